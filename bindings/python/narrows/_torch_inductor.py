# SPDX-License-Identifier: Apache-2.0
"""torch.compile's Inductor: how it computes ``torch.ops.narrows.<op>``. Loaded when Inductor is.

Element-wise functions whose results are determined to the bit become code of Inductor's own, which fuses with what stands around it.
Every other call is one of our kernels, straight: compiled code has real tensors alone, so torch's dispatcher would find nothing to do.
Inductor's names are private to torch: what is used of them is in this file.
"""

import functools
import os
import zlib
from typing import Any

import torch
from torch._inductor import ir, lowering
from torch._inductor.codecache import CacheBase
from torch._inductor.dependencies import extract_read_writes
from torch._inductor.virtualized import V, ops

import narrows
from narrows import _built_in, _torch_ops, _torch_programs

_private: Any = torch  # for what no type checker finds there

_PROGRAM: Any = torch.ops.narrows.program.default
FUSE = os.environ.get("NARROWS_TORCH_FUSE", "1") != "0"


def register(reg):
    """Teaches Inductor an op of torch.ops.narrows."""
    lowering.lowerings[reg.call] = functools.partial(_lowered, reg)
    if not _built_in.is_elementwise(reg.op):  # inputs as eager calls have them: another layout may have no kernel
        lowering.add_layout_constraint(reg.call, lowering.constrain_to_fake_tensors)


def _lowered_program(tensors, program, **params):
    """A call of a tensor program."""
    if V.graph.cpp_wrapper:
        params = _with_defaults(_PROGRAM, params)
    return _boxed(_Call.create(_PROGRAM, tensors, program, **params))


def _with_defaults(call, params):
    return {a.name: a.default_value for a in call._schema.arguments if a.kwarg_only} | params


def _lowered(reg, *given, **params):
    """A call in a graph. Inductor may give inputs by name."""
    inputs = [*given, *(params.pop(name.rstrip("?"), None) for name in reg.inputs[len(given) :])]
    fused = _fused(inputs, params) if FUSE and _built_in.is_elementwise(reg.op) else None
    if V.graph.cpp_wrapper:
        params = _complete(reg, params)
    return _boxed(_Call.create(reg.call, *inputs, **params)) if fused is None else fused


def _complete(reg, params):
    """With every default: torch's C++ code passes all numbers, and says only of those that are given which they are. libnarrows_torch
    takes no integer for a float."""
    every = _with_defaults(reg.call, params)
    floats = {name for name, kind, *_ in reg.op.fields if kind == "float"}
    return {n: float(v) if n in floats and type(v) is int else v for n, v in every.items()}


# ---- calls of our kernels ----


def _boxed(outputs):
    """Buffers as a lowering returns them."""
    if isinstance(outputs, (list, tuple)):
        return type(outputs)(map(_boxed, outputs))
    return ir.TensorBox.create(outputs) if isinstance(outputs, ir.IRNode) else outputs


class _Call(ir.FallbackKernel):
    """A call by the bound op, which the generated module looks up once. In C++ it goes by the dispatcher, as torch has it."""

    def codegen(self, wrapper):
        call = None if V.graph.cpp_wrapper else self._bound(wrapper)
        if call is None:
            super().codegen(wrapper)
            return
        nodes: Any = self.inputs
        inputs, _ = self.unflatten_args([_Text(x.codegen_reference()) for x in nodes], self.constant_args)
        inputs = inputs[:1] if self.op_overload is _PROGRAM else inputs  # the program is bound
        self.codegen_comment(wrapper)
        wrapper.writeline(f"{self.get_name()} = {call}({', '.join(map(repr, inputs))})")
        self.codegen_unbacked_symbol_defs(wrapper)

    def _bound(self, wrapper):
        """The name of the bound op in the generated module. None: a param is symbolic."""
        given, params = self.unflatten_args(list(self.inputs), self.constant_args)
        params = {**self.kwargs, **params}
        op: Any = self.op_overload
        if op is _PROGRAM:
            params["program"] = given[1]
        if not all(map(_is_constant_param, params.values())):
            return None
        arguments = f"{op._opname!r}, {dict(sorted(params.items()))!r}"
        name = f"narrows_{op._opname}_{zlib.crc32(arguments.encode()):08x}"
        while hasattr(wrapper, "parent_wrapper"):
            wrapper = wrapper.parent_wrapper
        wrapper.add_import_once("from narrows._torch_inductor import bound as narrows_bound")
        wrapper.add_import_once(f"{name} = narrows_bound({arguments})")
        return name


def _is_constant_param(value):
    kinds = bool, int, float, str, type(None)
    return isinstance(value, kinds) or (isinstance(value, (list, tuple)) and all(isinstance(v, kinds) for v in value))


class _Text:
    """A piece of generated code."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def bound(name, params):
    """What generated code calls: the op of torch.ops.narrows with these params, of tensors."""
    call: Any = getattr(torch.ops.narrows, name).default
    if name == "program":
        return _bound_program(call, **params)
    reg = next(r for r in list(_torch_ops._registered.values()) if r.name == name)
    op, wanted = reg.bound(dict(params))
    if not reg.masked and len(reg.outputs) == 1 and not reg.is_backward:
        return op
    mask = reg.mask(wanted)

    def run(*inputs):
        outputs = _torch_ops._gradients(op, inputs, mask, True) if reg.is_backward else op._run(inputs, mask, True)
        if outputs is None:  # somebody looks on, who sees what the dispatcher does
            return call(*inputs, **params)
        return [y for y in outputs if y is not None] if reg.masked else outputs

    return run


def _bound_program(call, program, integers=(), reals=(), present=-1, wanted=-1):
    """The same of a tensor program, of a list of tensors."""
    reg = _torch_programs.of(program)
    given = reg.named(integers, reals)
    op, mask = reg.bound({**given, "wanted": wanted})[0], reg.mask(wanted)
    every = range(len(reg.inputs))
    places = [i for i in every if present >> i & 1]
    named = {"integers": integers, "reals": reals, "present": present, "wanted": wanted}

    def run(tensors):
        inputs: Any = dict(zip(places, tensors, strict=True))
        inputs = tuple(inputs.get(i) for i in every)
        outputs = _torch_ops._gradients(op, inputs, mask, True) if reg.is_backward else op._run(inputs, mask, True)
        if outputs is None:
            return call(tensors, program, **named)
        return [y for y in (outputs if isinstance(outputs, (list, tuple)) else (outputs,)) if y is not None]

    return run


# ---- functions that Inductor computes ----


def _constant(value, dtype):
    return ops.constant(value, dtype)


def _neg(dtype, a):
    """By the sign's bit: compilers take -(a - b) for b - a, where the zero has another sign."""
    integer, bit = _SIGNS[dtype]
    bits = ops.bitwise_xor(ops.to_dtype_bitcast(a, integer, dtype), ops.constant(bit, integer))
    return ops.to_dtype_bitcast(bits, dtype, integer)


_SIGNS = {torch.float32: (torch.int32, -(2**31)), torch.float64: (torch.int64, -(2**63))}


def _sign(dtype, a):
    zero, one = _constant(0, dtype), _constant(1, dtype)
    negative = ops.where(ops.lt(a, zero), _constant(-1, dtype), ops.where(ops.eq(a, zero), zero, a))
    return ops.where(ops.gt(a, zero), one, negative)


def _relu(dtype, a):
    zero = _constant(0, dtype)
    return ops.where(ops.le(a, zero), zero, a)


def _isfinite(dtype, a):
    return ops.lt(ops.abs(a), _constant(float("inf"), dtype))


def _truth(dtype, a):
    return a if dtype == torch.bool else ops.ne(a, _constant(0, dtype))


_WIDE = frozenset((torch.float32, torch.float64))
_HALF = frozenset((torch.float16, torch.bfloat16))
_FLOATS = _WIDE | _HALF
_INTEGERS = frozenset((torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8))
_NUMBERS = _FLOATS | _INTEGERS
_ANY = _NUMBERS | {torch.bool}

# Function -> (dtypes of the operands, dtype of the result if it is another, the result by Inductor's operations). What is missing here
# keeps our kernel, since Inductor's code would give other values:
# - functions that are not rounded correctly (exp, sin, ...): its vectors and what remains behind them differ in the last bits
# - arithmetic of 16 bits: its code does not round between two functions
# - integers: it divides by zero and shifts as C++ does, if at all, and C++ leaves an overflow open; computed wider, sums and products are
#   slower than our kernels
_FUNCTIONS: dict[str, tuple[frozenset, Any, Any]] = {
    "neg": (_FLOATS, None, _neg),
    "abs": (_FLOATS, None, lambda _, a: ops.abs(a)),
    "sign": (_NUMBERS, None, _sign),
    "square": (_WIDE, None, lambda _, a: ops.mul(a, a)),
    "sqrt": (_WIDE, None, lambda _, a: ops.sqrt(a)),
    "relu": (_NUMBERS, None, _relu),
    "floor": (_FLOATS, None, lambda _, a: ops.floor(a)),
    "ceil": (_FLOATS, None, lambda _, a: ops.ceil(a)),
    "round": (_FLOATS, None, lambda _, a: ops.round(a)),
    "trunc": (_FLOATS, None, lambda _, a: ops.trunc(a)),
    "reciprocal": (_WIDE, None, lambda dtype, a: ops.truediv(_constant(1, dtype), a)),
    "logical_not": (_ANY, torch.bool, lambda dtype, a: ops.logical_not(_truth(dtype, a))),
    "bitwise_not": (_INTEGERS, None, lambda _, a: ops.bitwise_not(a)),
    "isnan": (_FLOATS, torch.bool, lambda _, a: ops.isnan(a)),
    "isinf": (_FLOATS, torch.bool, lambda _, a: ops.isinf(a)),
    "isfinite": (_FLOATS, torch.bool, _isfinite),
    "add": (_WIDE, None, lambda _, a, b: ops.add(a, b)),
    "sub": (_WIDE, None, lambda _, a, b: ops.sub(a, b)),
    "mul": (_WIDE, None, lambda _, a, b: ops.mul(a, b)),
    "div": (_WIDE, None, lambda _, a, b: ops.truediv(a, b)),
    "maximum": (_NUMBERS, None, lambda _, a, b: ops.maximum(a, b)),
    "minimum": (_NUMBERS, None, lambda _, a, b: ops.minimum(a, b)),
    "copysign": (_FLOATS, None, lambda _, a, b: ops.copysign(a, b)),
    "eq": (_NUMBERS, torch.bool, lambda _, a, b: ops.eq(a, b)),
    "ne": (_NUMBERS, torch.bool, lambda _, a, b: ops.ne(a, b)),
    "lt": (_NUMBERS, torch.bool, lambda _, a, b: ops.lt(a, b)),
    "le": (_NUMBERS, torch.bool, lambda _, a, b: ops.le(a, b)),
    "gt": (_NUMBERS, torch.bool, lambda _, a, b: ops.gt(a, b)),
    "ge": (_NUMBERS, torch.bool, lambda _, a, b: ops.ge(a, b)),
    "logical_and": (_ANY, torch.bool, lambda dtype, a, b: ops.logical_and(_truth(dtype, a), _truth(dtype, b))),
    "logical_or": (_ANY, torch.bool, lambda dtype, a, b: ops.logical_or(_truth(dtype, a), _truth(dtype, b))),
    "logical_xor": (_NUMBERS, torch.bool, lambda dtype, a, b: ops.ne(_truth(dtype, a), _truth(dtype, b))),
    "bitwise_and": (_INTEGERS, None, lambda _, a, b: ops.bitwise_and(a, b)),
    "bitwise_or": (_INTEGERS, None, lambda _, a, b: ops.bitwise_or(a, b)),
    "bitwise_xor": (_INTEGERS, None, lambda _, a, b: ops.bitwise_xor(a, b)),
    "fma": (_WIDE, None, lambda _, a, b, c: ops.fma(a, b, c)),
    "where": (_NUMBERS, None, lambda _, a, b, c: ops.where(a, b, c)),
    "clamp": (_NUMBERS, None, lambda _, a, b, c: ops.minimum(ops.maximum(a, b), c)),
}

# Of these, Triton's own code contracts a product and a sum into one rounding, rounds quotients and roots otherwise, and takes the floor
# or ceiling of a subnormal number for 0. On NVIDIA's GPUs they are one instruction of PTX, which has the rounding in its name.
_PTX = {
    "add": "add.rn.{0} $0, $1, $2;",
    "sub": "sub.rn.{0} $0, $1, $2;",
    "mul": "mul.rn.{0} $0, $1, $2;",
    "square": "mul.rn.{0} $0, $1, $1;",
    "div": "div.rn.{0} $0, $1, $2;",
    "sqrt": "sqrt.rn.{0} $0, $1;",
    "reciprocal": "rcp.rn.{0} $0, $1;",
    "fma": "fma.rn.{0} $0, $1, $2, $3;",
    "floor": "cvt.rmi.{0}.{0} $0, $1;",
    "ceil": "cvt.rpi.{0}.{0} $0, $1;",
}


def _by_ptx(function, dtype, *operands):
    kind, register = ("f64", "d") if dtype == torch.float64 else ("f32", "f")
    constraints = ",".join(["=" + register] + [register] * len(operands))
    return ops.inline_asm_elementwise(*operands, asm=_PTX[function].format(kind), constraints=constraints, dtype=dtype)


def _fused(inputs, params):
    """The call as code of Inductor's. None: our kernel has to do it."""
    function = params.get("function")
    known = _FUNCTIONS.get(function)
    if known is None or not all(isinstance(v, (int, float, str, type(None))) for v in params.values()):
        return None
    dtypes, result, body = known
    tensors = [x for x in inputs if x is not None]
    device, dtype = tensors[-1].get_device(), tensors[-1].get_dtype()
    if dtype not in dtypes or device.type not in ("cpu", "cuda"):
        return None
    node = V.graph.current_node
    if dtype == torch.bool and not all(map(_is_ours, (*node.args, *(node.kwargs.get(name) for name in "abc")))):
        return None
    count = body.__code__.co_argcount - 1
    if device.type == "cuda" and function in _PTX:
        if torch.version.hip:
            return None
        body = functools.partial(_by_ptx, function)
    operands = inputs[:count]
    numbers = [_number(params, "abc"[i], dtype) if x is None else None for i, x in enumerate(operands)]
    # A compiler that sees a zero takes x + 0 for x, and -0 + 0 is 0.
    if function in ("add", "sub") and (0 in numbers or any(map(_is_constant, tensors))):
        return None
    return _pointwise(body, operands, numbers, device, dtype, result or dtype)


def _pointwise(body, operands, numbers, device, dtype, result):
    """What body(dtype, *operands) gives for each element; of 16-bit operands it is told float32, which holds them."""
    tensors = lowering.broadcast_tensors(*(x for x in operands if x is not None))
    shape = tensors[0].get_size()
    tensors = iter(tensors)
    loaders = [None if x is None else next(tensors).make_loader() for x in operands]
    raised = torch.float32 if dtype in _HALF else dtype

    def operand(i, index):
        if loaders[i] is None:
            return _constant(numbers[i], raised)
        x = loaders[i](index)
        return x if raised == dtype or operands[i].get_dtype() == torch.bool else ops.to_dtype(x, raised)

    def value(index):
        return body(raised, *(operand(i, index) for i in range(len(operands))))

    return ir.Pointwise.create(device=device, dtype=result, inner_fn=value, ranges=shape)


def _number(params, operand, dtype):
    """The number that stands for an operand, rounded to the dtype."""
    if not dtype.is_floating_point:
        return params.get(f"{operand}_int") or 0
    return torch.tensor(params.get(f"{operand}_real") or 0.0, dtype=torch.float64).to(dtype).item()


def _is_ours(node):
    """Whether the tensor of bool is an output of ours, whose bytes are 0 or 1; in others any byte but 0 is true."""
    return node is None or getattr(node.target, "namespace", "") == "narrows"


def _is_constant(x):
    """Whether the tensor is the same number everywhere, which a compiler sees."""
    return not extract_read_writes(x.make_loader(), x.get_size()).reads


# ---- Inductor's caches ----

# Code that was compiled with another version of narrows, or another setting, is not found.
CacheBase.get_system()["narrows"] = f"{narrows.__version__} {FUSE}"  # type: ignore[typeddict-unknown-key]
_torch_ops.listen(register)
lowering.lowerings[_PROGRAM] = _lowered_program
lowering.add_layout_constraint(_PROGRAM, lowering.constrain_to_fake_tensors)
