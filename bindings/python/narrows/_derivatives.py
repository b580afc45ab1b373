# SPDX-License-Identifier: Apache-2.0
"""Forward mode and second derivatives of conv1d, elementwise and lltm, the same for torch and JAX.

An op f(x) has a backward op B(g, x) = J(x)^T g, where J is the matrix of f's derivatives. For each op stand here two functions, made of ops:

    tangent(x, t) = J(x) t              forward mode of f
    curvature(g, x, u) = d/dx (J(x)^T g) . u     a symmetric matrix times u, since second derivatives are symmetric

The derivatives of B follow from the two:

    forward mode       B(dg, x) + curvature(g, x, dx)
    backward, from u   tangent(x, u) for g, curvature(g, x, u) for x

What they call is differentiable, so there are derivatives of any order. A first derivative never comes from here: it is the fused B.
B also reads what f saved of its outputs. Those depend on x, and their share is part of the derivatives with respect to x.

``framework`` is _torch_derivatives or _jax_derivatives.
"""

import math

from narrows import _functions, _programs
from narrows._second_derivatives import SECOND

_F = _functions.public


def _shown(op):
    return op.__name__ if _programs.is_program(op.op) else op.op


def missing(op, is_backward):
    """Why a call has no derivative by a backward op; ``is_backward``: the op is one itself, and of first derivatives."""
    is_program = _programs.is_program(op.op)
    order = _programs.order(op.op) + 1 if is_program else 1 + is_backward
    what = {1: "derivative", 2: "second derivative"}.get(order, f"derivative of order {order}")
    expected = f"; expected build(gradient={True if order == 1 else order})" if is_program else ""
    return f"{_shown(op)} declares no backward op, so there is no {what}{expected}"


def missing_forward(op):
    """Why a call has no derivative in forward mode."""
    return f"{_shown(op)}: no forward-mode derivative (jvp, jacfwd, hessian); expected reverse mode (grad, vjp, jacrev)"


def rule_of(name):
    """The derivatives of the op of that name, None where there are none: forward mode of an op, and both of a backward op."""
    return _RULES.get(name)


class Rule:
    """Forward mode of an op."""

    def __init__(self, name, num_inputs, num_outputs, tangent, curvature, reads_all=False):
        self.name, self.num_inputs, self.num_outputs = name, num_inputs, num_outputs
        self._tangent, self._curvature = tangent, curvature
        self.reads_all = reads_all  # whether the two functions read more of x than the op saves

    def tangents(self, framework, params, inputs, tangents, shapes):
        """Of the main outputs, which have these shapes, from those of the inputs; None stands for zero."""
        if all(t is None for t in tangents):
            return [None] * self.num_outputs
        return self._tangent(framework, params, inputs, tangents, shapes)

    def curvature(self, framework, params, gradients, inputs, directions, needed):
        """Of the inputs that are needed; None stands for zero."""
        if not any(needed) or all(g is None for g in gradients) or all(u is None for u in directions):
            return [None] * self.num_inputs
        found = self._curvature(framework, params, gradients, inputs, directions, needed)
        return [y if n else None for y, n in zip(found, needed, strict=True)]


class BackwardRule:
    """Both derivatives of a backward op. Its inputs are a gradient of each main output of f, f's inputs, and f's outputs."""

    reads_all = True

    def __init__(self, rule):
        self.rule, self.name = rule, f"{rule.name}_backward"

    def parts(self, tensors):
        """Those of the gradients, and those of f's inputs."""
        first, last = self.rule.num_outputs, self.rule.num_outputs + self.rule.num_inputs
        return tensors[:first], tensors[first:last]

    def tangents(self, framework, params, inputs, tangents, shapes):
        """Of the outputs, None where it is zero or where `shapes` has None."""
        (gradients, x), (d_gradients, dx) = self.parts(inputs), self.parts(tangents)
        there = [shape is not None for shape in shapes]
        found = [None] * len(there)
        if any(there) and any(g is not None for g in d_gradients):
            wanted = sum(1 << i for i, y in enumerate(there) if y)
            found = framework.call(self.name, params, (*d_gradients, *inputs[len(gradients) :]), wanted)
        bent = self.rule.curvature(framework, params, gradients, x, dx, there)
        return [_add(a, b) for a, b in zip(found, bent, strict=True)]

    def gradients(self, framework, params, inputs, cotangents, needed):
        """Of the inputs that are needed, from one of each output; None where it is not needed. Of f's outputs there is none."""
        (gradients, x), (need_gradients, need_x) = self.parts(inputs), self.parts(needed)
        found = [None] * len(gradients)
        if any(need_gradients):
            shapes = [None if g is None else g.shape for g in gradients]
            found = self.rule.tangents(framework, params, x, cotangents, shapes)
        found = [*found, *self.rule.curvature(framework, params, gradients, x, cotangents, need_x)]
        filled = [framework.zeros_like(a) if y is None and n else y for a, y, n in zip(inputs, found, needed, strict=False)]
        return [y if n else None for y, n in zip(filled, needed, strict=False)] + [None] * (len(inputs) - len(filled))


def _add(a, b):
    return b if a is None else a if b is None else a + b


# ---- conv1d: linear in x and in w ----


def _conv1d_tangent(framework, params, inputs, tangents, shapes):
    x, w, _ = inputs
    dx, dw, db = tangents
    y = None
    if dx is not None:
        y = framework.call("conv1d", params, (dx, w, db))[0]
    if dw is not None:
        y = _add(y, framework.call("conv1d", params, (x, dw, db if y is None else None))[0])
    if y is None:
        y = framework.broadcast(db if len(shapes[0]) == 1 else db.reshape(-1, 1), shapes[0])
    return [y]


def _conv1d_curvature(framework, params, gradients, inputs, directions, needed):
    x, w, _ = inputs
    ux, uw, _ = directions
    wanted = (uw is not None and needed[0]) | (
        ux is not None and needed[1]
    ) << 1  # the gradient of x depends on w, and that of w on x
    if not wanted:
        return [None] * 3
    read = x if ux is None else ux, w if uw is None else uw
    return framework.call("conv1d_backward", params, (*gradients, *read, None, None), wanted)


# ---- elementwise: second derivatives that are not derived from the first as expressions, since that cancels or loses a limit ----


def _elementwise_tangent(framework, params, inputs, tangents, shapes):
    """The terms of elementwise_backward's own gradients, each of an operand that nothing repeats, so that nothing is summed."""
    if params["function"] == "cast":
        return [framework.call("elementwise", params, tangents)[0]]
    total, shape = None, shapes[0]
    for i, t in enumerate(tangents):
        if t is not None:
            operands = [framework.broadcast(x, shape) if j == i else x for j, x in enumerate(inputs)]
            term = framework.call("elementwise_backward", params, (framework.broadcast(t, shape), *operands, None), 1 << i)[i]
            total = _add(total, term)
    return [total]


def _elementwise_curvature(framework, params, gradients, inputs, directions, needed):
    second, arity = _second_derivatives(params["function"])
    if not second:
        return [None] * 3
    second_operand = params.get("alpha" if params["function"] == "elu" else "b_real")
    number = _DEFAULTS[params["function"] == "elu"] if second_operand is None else second_operand
    values = [framework.widened(inputs[0]), number if inputs[1] is None else framework.widened(inputs[1])]
    gradient, directions = framework.widened(gradients[0]), [framework.widened(u) for u in directions]
    found = [None] * 3
    for (i, j), derivative in second.items():
        places = {(i, j): None, (j, i): None}  # one place where i is j
        pairs = [(to, along) for to, along in places if needed[to] and directions[along] is not None]
        factor = derivative(*values[:arity]) if pairs else None
        for to, along in pairs:
            term = gradient * directions[along] * factor
            found[to] = _add(found[to], framework.summed(term, inputs[to].shape))
    return [None if y is None else framework.cast(y, inputs[0].dtype) for y in found]


def _second_derivatives(function):
    """{(i, j): the second derivative by operands i and j}, of operands and of numbers that stand for them; and how many it takes."""
    if function in _UNARY:
        return {(0, 0): _UNARY[function]}, 1
    if function in _BINARY:
        return _BINARY[function], 2
    arity, derived = SECOND.get(function, (1, {}))
    return derived, arity


def _finite(x):
    """x, and of an infinity a large number: for the limits of quotients."""
    if not hasattr(x, "shape"):
        return max(-(2.0**126), min(x, 2.0**126))
    large = 2.0**1022 if str(x.dtype).endswith("float64") else 2.0**126
    return _F("clip")(x, -large, large)


def _within(x, bound):
    """x, or the bound beyond which a derivative is zero: an infinity times zero would be NaN."""
    return _F("clip")(x, -bound, bound)


def _sigmoids(a):
    """Of a and of -a: the second is 1 minus the first, without its rounding."""
    return _F("sigmoid")(a), _F("sigmoid")(-a)


def _sech2(a):
    """1 - tanh(a)^2 where tanh is nearly 1, too."""
    s, n = _sigmoids(2 * a)
    return 4 * s * n


def _normal(a):
    """The density of the standard normal distribution."""
    return _F("exp")(a * a * -0.5) * (1 / math.sqrt(2 * math.pi))


def _polar(a, b):
    """Of the point (a, b): the cosine and the sine of its angle, and 1 by its distance."""
    c, d = _finite(a), _finite(b)
    distance = _F("hypot")(c, d)
    return c / distance, d / distance, _F("reciprocal")(_F("hypot")(a, b))


def _cbrt(a):
    c = _F("cbrt")(a)
    return -2 / 9 / (c * c) / a


def _asin(a, sign=1.0):
    d = (1 - a) * (1 + a)
    return a * (_F("rsqrt")(d) / d) * sign


def _atan(a):
    c, _, r = _polar(a, 1.0)
    return c * r * r * r * -2


def _asinh(a):
    c, _, r = _polar(a, 1.0)
    return -c * r * r


def _acosh(a):
    a = _finite(a)
    root = _F("sqrt")(a - 1) * _F("sqrt")(a + 1)
    return -a / root / root / root


def _atanh(a):
    d = (1 - a) * (1 + a)
    return 2 * a / d / d


def _elu(a, alpha):
    return _F("where")(a > 0, 0.0, _F("exp")(_F("minimum")(a, 0.0)) * alpha)


def _gelu(a):
    a = _within(a, 40.0)
    return _normal(a) * (2 - a * a)


def _gelu_tanh(a):
    k, cubic = math.sqrt(2 / math.pi), 0.044715
    a = _within(a, 40.0)
    u, du, ddu = k * a * (1 + cubic * a * a), k * (1 + 3 * cubic * a * a), 6 * k * cubic * a
    return _sech2(u) * (du + a * (0.5 * ddu - _F("tanh")(u) * du * du))


def _silu(a):
    a = _within(a, 800.0)
    s, n = _sigmoids(a)
    return s * n * (2 + a * (n - s))


def _softplus(a):
    s, n = _sigmoids(a)
    return s * n


def _erf(a, sign=1.0):
    a = _within(a, 40.0)
    return a * _F("exp")(-a * a) * (-4 / math.sqrt(math.pi) * sign)


def _sinc(a):
    """-pi^2 sinc(a) - 2/a sinc'(a); near 0 by its series, where the terms cancel."""
    z = _F("square")(_F("clip")(a, -0.25, 0.25)) * (math.pi**2)
    series = 0.0
    for k in range(8, -1, -1):  # (-1)^(k + 1) pi^2 z^k/((2k)! (2k + 3))
        series = series * z + (-1) ** (k + 1) * math.pi**2 / math.factorial(2 * k) / (2 * k + 3)
    near = _F("abs")(a) < 0.25
    far = _F("where")(near, 1.0, a)
    cos = _F("cos")(_F("remainder")(_finite(far), 2.0) * math.pi)
    sinc = _F("sinc")(far)
    return _F("where")(near, series, -(math.pi**2) * sinc - (cos - sinc) * 2 / _finite(far) / _finite(far))


_UNARY = {
    "cbrt": _cbrt,
    "asin": _asin,
    "acos": lambda a: _asin(a, -1.0),
    "atan": _atan,
    "tanh": lambda a: _F("tanh")(a) * _sech2(a) * -2,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "erf": _erf,
    "erfc": lambda a: _erf(a, -1.0),
    "sinc": _sinc,
}


def _pow_aa(a, b):
    """0 where b is 0 or 1, where a to the power of b - 2 may be infinite."""
    factor = b * (b - 1)
    if not hasattr(b, "shape"):
        return 0.0 if factor == 0 else _F("pow")(a, b - 2) * factor
    zero = factor == 0
    return _F("where")(zero, 0.0, _F("pow")(a, _F("where")(zero, 2.0, b - 2)) * factor)


def _pow_ab(a, b):
    """0 where a is 0 and b above 1: the limit."""
    zero = (a == 0) & (b > 1)
    safe = _F("where")(zero, 1.0, a)
    return _F("where")(zero, 0.0, _F("pow")(safe, b - 1) * (1 + b * _F("log")(safe)))


def _pow_bb(a, b):
    """0 where a is 0 and b is not below 0, as the first derivative by b is."""
    zero = (a == 0) & (b >= 0)
    safe = _F("where")(zero, 1.0, a)
    return _F("where")(zero, 0.0, _F("pow")(safe, b) * _F("square")(_F("log")(safe)))


def _atan2_aa(a, b, sign=-2.0):
    p, q, r = _polar(a, b)
    return p * q * r * r * sign


def _atan2_ab(a, b):
    p, q, r = _polar(a, b)
    return (p - q) * (p + q) * r * r


def _hypot(i, j):
    """The second derivative by two operands, in which it is the product of those that are left."""

    def derivative(a, b):
        *direction, r = _polar(a, b)
        return direction[1 - i] * direction[1 - j] * r * (1.0 if i == j else -1.0)

    return derivative


def _logaddexp(sign):
    def derivative(a, b):
        return _softplus(_finite(_finite(a) - _finite(b))) * sign

    return derivative


_DEFAULTS = 0.0, 1.0  # of b_real, of alpha
_BINARY = {
    "elu": {(0, 0): _elu},
    "pow": {(0, 0): _pow_aa, (0, 1): _pow_ab, (1, 1): _pow_bb},
    "atan2": {(0, 0): _atan2_aa, (0, 1): _atan2_ab, (1, 1): lambda a, b: _atan2_aa(a, b, 2.0)},
    "hypot": {(i, j): _hypot(i, j) for i, j in ((0, 0), (0, 1), (1, 1))},
    "logaddexp": {(0, 0): _logaddexp(1.0), (0, 1): _logaddexp(-1.0), (1, 1): _logaddexp(1.0)},
}


# ---- lltm ----


class _Cell:
    """One step by conv1d and elementwise, with two derivatives of each activation."""

    def __init__(self, framework, inputs):
        self.framework = framework
        inputs = [framework.widened(x) for x in inputs]
        self.z, self.w, bias = self._linear(inputs)
        gates = self._parts(self._convolved(self.z, self.w, bias))
        self.i, self.o, self.c = (
            _sigmoid_and_derivatives(gates[0]),
            _sigmoid_and_derivatives(gates[1]),
            _elu_and_derivatives(gates[2]),
        )
        self.cell = inputs[4] + self.c[0] * self.i[0]
        tanh, slope = _F("tanh")(self.cell), _sech2(self.cell)
        self.t = tanh, slope, -2 * tanh * slope

    def _linear(self, inputs):
        """[old_h, input], the weights and the bias, as conv1d takes them."""
        input, weights, bias, old_h, _ = inputs
        z = self.framework.concatenated((old_h, input))
        return z.reshape(*z.shape, 1), weights.reshape(*weights.shape, 1), bias.reshape(-1)

    def _convolved(self, z, w, bias):
        return self.framework.call("conv1d", {}, (z, w, bias))[0]

    def _parts(self, gates):
        states = gates.shape[1] // 3
        return [gates[:, n * states : (n + 1) * states, 0] for n in range(3)]

    def moved(self, directions):
        """How [old_h, input] and the weights move with the inputs, and how the three gates and new_cell do."""
        directions = [self.framework.widened(u) for u in directions]
        uz, uw, ub = self._linear(directions)
        u = self._parts(self._convolved(uz, self.w, ub) + self._convolved(self.z, uw, None))
        return uz, uw, u, directions[4] + self.c[0] * self.i[1] * u[0] + self.i[0] * self.c[1] * u[2]


def _sigmoid_and_derivatives(a):
    s, n = _sigmoids(a)
    return s, s * n, s * n * (n - s)


def _elu_and_derivatives(a):
    positive, power = a > 0, _F("exp")(_F("minimum")(a, 0.0))
    return _F("elu")(a), _F("where")(positive, 1.0, power), _F("where")(positive, 0.0, power)


def _filled(framework, tensors, like):
    return [framework.zeros_like(x) if t is None else t for t, x in zip(tensors, like, strict=True)]


def _lltm_tangent(framework, params, inputs, tangents, shapes):
    cell = _Cell(framework, inputs)
    _, _, u, u_cell = cell.moved(_filled(framework, tangents, inputs))
    u_h = cell.t[1] * u_cell * cell.o[0] + cell.t[0] * cell.o[1] * u[1]
    return [framework.cast(y, inputs[0].dtype) for y in (u_h, u_cell)]


def _lltm_curvature(framework, params, gradients, inputs, directions, needed):
    """Of the backward op d_cell = t' o g_h + g_cell, d_gates = (d_cell c i', t g_h o', d_cell i c'), then conv1d_backward."""
    cell = _Cell(framework, inputs)
    g_h, g_cell = (framework.widened(g) for g in _filled(framework, gradients, (inputs[4], inputs[4])))
    uz, uw, u, u_cell = cell.moved(_filled(framework, directions, inputs))
    (i, i1, i2), (o, o1, o2), (c, c1, c2), (t, t1, t2) = cell.i, cell.o, cell.c, cell.t
    d_cell = g_h * t1 * o + g_cell
    bent_cell = g_h * (t2 * u_cell * o + t1 * o1 * u[1])
    d_gates = d_cell * c * i1, g_h * t * o1, d_cell * i * c1
    bent_gates = (
        bent_cell * c * i1 + d_cell * (c1 * u[2] * i1 + c * i2 * u[0]),
        g_h * (t1 * u_cell * o1 + t * o2 * u[1]),
        bent_cell * i * c1 + d_cell * (i1 * u[0] * c1 + i * c2 * u[2]),
    )
    d_gates, bent_gates = (framework.concatenated(g).reshape(-1, cell.w.shape[0], 1) for g in (d_gates, bent_gates))
    dz, dw, db = framework.call("conv1d_backward", {}, (bent_gates, cell.z, cell.w, None, None), 0b111)
    ez, ew, _ = framework.call("conv1d_backward", {}, (d_gates, uz, uw, None, None), 0b011)
    dz, states = (dz + ez)[:, :, 0], inputs[3].shape[1]
    found = dz[:, states:], (dw + ew)[:, :, 0], db, dz[:, :states], bent_cell
    return [framework.cast(y, x.dtype).reshape(x.shape) for x, y in zip(inputs, found, strict=True)]


_FORWARD = {
    "conv1d": Rule("conv1d", 3, 1, _conv1d_tangent, _conv1d_curvature),
    "elementwise": Rule("elementwise", 3, 1, _elementwise_tangent, _elementwise_curvature),
    "lltm": Rule("lltm", 5, 2, _lltm_tangent, _lltm_curvature, reads_all=True),
}
_RULES = _FORWARD | {f"{rule.name}_backward": BackwardRule(rule) for rule in _FORWARD.values()}
