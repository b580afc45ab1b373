"""torch: every op as ``torch.ops.narrows.<op>``, with fake kernels, autograd and vmap made from its declaration.

``vendor.name/1`` is ``torch.ops.narrows.vendor_name_1``: inputs in their order, parameters by keyword. An op is registered when it
is first asked for. ``narrows.add`` and the others come here only where torch's dispatcher has to see the call: gradients, tracing,
transforms, autocast. ``Conv1d`` and ``LLTM`` are modules.
"""

import functools
import math
import threading
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from narrows import _functions, _operands, _ops, _rules, _when

_library = torch.library.Library("narrows", "FRAGMENT")


# ---- registration ----


class _Registered:
    """An op of torch, and what its declaration says of it."""

    def __init__(self, op):
        self.op = op
        self.name = _torch_name(op.op)
        self.inputs = op.inputs
        self.outputs = op.outputs
        self.params = [f[0] for f in op.fields]
        self.num_main = len(op.outputs) - op.num_aux
        self.masked = any(name.endswith("?") for name in op.outputs[: self.num_main])  # gradients: only those that are wanted
        self.backward: Any = None  # the _Registered of the backward op
        _library.define(self.schema())
        for key in ("CPU", "CUDA"):
            _library.impl(self.name, self.run, key)
        torch.library.register_fake(f"narrows::{self.name}", self.fake, lib=_library)
        self.call = getattr(torch.ops.narrows, self.name).default
        torch.library.register_vmap(f"narrows::{self.name}", self.vmap, lib=_library)
        if op.backward is not None and not self.masked:
            self.backward = registered(op.backward)
            forward = self.backward.inputs[self.num_main : self.num_main + len(self.inputs)]
            self.kept_inputs = [bool(op.saved >> i & 1) or not name.endswith("?") for i, name in enumerate(forward)]
            self.kept_outputs = [bool(op.saved >> (32 + j) & 1) for j in range(len(self.outputs))]
            torch.library.register_autograd(
                f"narrows::{self.name}", once_differentiable(self.differentiate), setup_context=self.save, lib=_library
            )
        elif not self.masked:
            torch.library.register_autograd(f"narrows::{self.name}", self.refuse_gradient, lib=_library)

    def schema(self):
        """As torch writes it."""
        arguments = []
        last = max((i for i, name in enumerate(self.inputs) if not name.endswith("?")), default=-1)
        for i, name in enumerate(self.inputs):  # no default may stand before an input that is required
            default = "=None" if i > last else ""
            arguments.append(f"Tensor? {name[:-1]}{default}" if name.endswith("?") else f"Tensor {name}")
        arguments.append("*") if self.params or self.masked else None
        for name, kind, lanes, values, initial in self.op.fields:
            kind = "str" if values is not None else kind
            default = f'"{initial}"' if isinstance(initial, str) else '""' if values is not None else initial
            default = "[" + ", ".join(map(str, initial)) + "]" if lanes > 1 else default
            arguments.append(f"{kind}{f'[{lanes}]' if lanes > 1 else ''} {name}={default}")
        if self.masked:
            arguments.append("int wanted=-1")
        tensors = ", ".join(["Tensor"] * len(self.outputs))
        result = "Tensor[]" if self.masked else f"({tensors})" if len(self.outputs) != 1 else "Tensor"
        return f"{self.name}({', '.join(arguments)}) -> {result}"

    def bound(self, params):
        """The op with these values, without `wanted`; and that."""
        wanted = params.pop("wanted", -1)
        if not params:
            return self.op, wanted
        return _bound(self.op, tuple((n, v) for n, v in params.items() if v != "")), wanted

    # ---- kernels ----

    def run(self, *inputs, **params):
        """Below the dispatcher, on real tensors."""
        op, wanted = self.bound(params)
        if self.masked:
            return _gradients(op, inputs, _mask(wanted, len(self.outputs)))
        outputs = op._run(inputs, _mask(wanted, len(self.outputs)))
        return outputs if len(outputs) != 1 else outputs[0]

    def fake(self, *inputs, **params):
        """Shapes and dtypes without memory."""
        op, wanted = self.bound(params)
        device = next(x.device for x in inputs if x is not None)
        specs = specs_of(op, inputs)
        mask = _mask(wanted, len(specs))
        outputs = []
        for j, spec in enumerate(specs):
            if spec is None or not mask >> j & 1:
                outputs.append(None)
            else:
                outputs.append(torch.empty(tuple(spec[1]), dtype=getattr(torch, spec[0]), device=device))
        if self.masked:
            return [y for y in outputs if y is not None]
        return tuple(outputs) if len(outputs) != 1 else outputs[0]

    def vmap(self, info, in_dims, *inputs, **params):
        """One call where the declaration says that a leading axis is a batch, else one for each."""
        in_dims = in_dims[: len(inputs)] if isinstance(in_dims, (tuple, list)) else (in_dims,)
        batched = _batched if self.op.flags & 2 else _one_by_one
        return batched(self, info.batch_size, in_dims, inputs, params)

    # ---- autograd ----

    def save(self, ctx, inputs, output, keyword_only_inputs=None):
        """What backward reads, and no more."""
        outputs = output if isinstance(output, tuple) else (output,)
        self.keep(ctx, (*inputs, *[None] * (len(self.inputs) - len(inputs))), outputs)
        ctx.params = dict(keyword_only_inputs or {})

    def keep(self, ctx, inputs, outputs):
        """The same without the params."""
        kept = [x if k else None for x, k in zip(inputs, self.kept_inputs, strict=True)]
        kept += [y if k else None for y, k in zip(outputs, self.kept_outputs, strict=True)]
        ctx.save_for_backward(*kept)
        ctx.shapes = [None if x is None else x.shape for x in inputs]
        ctx.set_materialize_grads(False)

    def differentiate(self, ctx, *gradients):
        """Calls the declared backward op for the gradients that are wanted."""
        return self.gradients(ctx, gradients, ctx.needs_input_grad, ctx.params, self.backward.call)

    def refuse_gradient(self, ctx, *gradients):
        """Else torch would give none, with a warning."""
        raise NotImplementedError(f"{self.op.op} declares no backward op, so it has no derivative")

    def gradients(self, ctx, gradients, needed, params, call):
        """A gradient for each input; None where it is not wanted."""
        count = len(needed)  # torch leaves out trailing inputs that have their default
        wanted = [i for i in range(count) if needed[i] and ctx.shapes[i] is not None]
        if not wanted or all(g is None for g in gradients[: self.num_main]):
            return (None,) * count
        mask = sum(1 << i for i in wanted)
        found = call(*gradients[: self.num_main], *ctx.saved_tensors, **params, wanted=mask)
        result = [None] * count
        for i, gradient in zip(wanted, found, strict=True):
            result[i] = gradient if gradient.shape == ctx.shapes[i] else gradient.reshape(ctx.shapes[i])
        return tuple(result)


@functools.lru_cache(4096)
def _bound(op, params):
    return op.bind(**dict(params))


def _mask(wanted, count):
    return wanted & ((1 << count) - 1)


def _torch_name(name):
    return name.replace(".", "_").replace("/", "_")


_registered: dict[str, _Registered] = {}
_being_registered: set[str] = set()  # torch looks the name up while it defines it
_lock = threading.RLock()


def registered(name):
    """The op of that name in torch, registered now if it was not."""
    with _lock:
        if name not in _registered:
            _being_registered.add(_torch_name(name))
            _registered[name] = _Registered(_ops.op(name))
        return _registered[name]


# ---- shapes ----


class _Symbolic(_rules.Numbers):
    maximum: Any = staticmethod(torch.sym_max)
    minimum: Any = staticmethod(torch.sym_min)
    check: Any = staticmethod(torch._check)


def _hint(extent):
    """A size that may stand for a symbolic one; every unknown one is 64."""
    if isinstance(extent, int):
        return extent
    hint = extent.node.hint if extent.node.has_hint() else None
    return int(hint) if isinstance(hint, int) else 64


def specs_of(op, inputs) -> list[Any]:
    """[(dtype, shape) or None, ...] of the outputs; shapes symbolic where those of the inputs are."""
    present = [None if x is None else (_dtype(x), tuple(x.shape)) for x in inputs]
    concrete = [None if p is None else (p[0], tuple(map(_hint, p[1]))) for p in present]
    if all(isinstance(n, int) for p in present if p is not None for n in p[1]):
        return op._infer(concrete)
    specs = op._infer(concrete)
    if op.shape_rule is not None:
        shapes = _rules.evaluate(op, [None if p is None else p[1] for p in present], _Symbolic)
        return [None if spec is None else (spec[0], shape) for spec, shape in zip(specs, shapes, strict=True)]
    context = torch.library.get_ctx()
    return [None if s is None else (s[0], tuple(context.new_dynamic_size() for _ in s[1])) for s in specs]


def _dtype(x):
    return str(x.dtype).removeprefix("torch.")


# ---- vmap ----


def _single_shapes(reg, size, in_dims, inputs, params):
    """Shapes of one example's outputs."""
    op, _ = reg.bound(dict(params))
    examples = [
        x if d is None else x.select(d, 0) if size else x.new_empty(_without(x.shape, d))
        for x, d in zip(inputs, in_dims, strict=True)
    ]
    return specs_of(op, examples)


def _without(shape, d):
    return tuple(shape[:d]) + tuple(shape[d % len(shape) + 1 :])


def _batched(reg, size, in_dims, inputs, params):
    specs = _single_shapes(reg, size, in_dims, inputs, params)
    rank = max(x.dim() - (d is not None) for x, d in zip(inputs, in_dims, strict=True) if x is not None)
    moved = []
    for x, d in zip(inputs, in_dims, strict=True):
        if x is not None:
            x = x.movedim(d, 0) if d is not None else x.unsqueeze(0).expand(size, *x.shape)
            x = x.reshape(size, *(1,) * (rank - x.dim() + 1), *x.shape[1:])
        moved.append(x)
    result = reg.call(*moved, **params)
    mask = _mask(params.get("wanted", -1), len(specs))
    shapes = [s[1] for j, s in enumerate(specs) if s is not None and mask >> j & 1]
    if isinstance(result, torch.Tensor):
        return result.reshape(size, *shapes[0]), 0
    result = type(result)(y.reshape(size, *shape) for y, shape in zip(result, shapes, strict=True))
    return result, type(result)(0 for _ in result)


def _one_by_one(reg, size, in_dims, inputs, params):
    if size == 0:
        raise NotImplementedError(f"{reg.op.op}: vmap over an axis of 0 elements")
    results = [
        reg.call(*(x if d is None else x.select(d, i) for x, d in zip(inputs, in_dims, strict=True)), **params) for i in range(size)
    ]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results), 0
    kind = type(results[0])
    return kind(torch.stack(ys) for ys in zip(*results, strict=True)), kind(0 for _ in results[0])


# ---- calls that the gate did not let through ----


class _Eager(torch.autograd.Function):
    """Plain tensors of which one needs a gradient: no dispatcher at all."""

    @staticmethod
    def forward(ctx, reg, op, *inputs):
        outputs = op._run(inputs, (1 << len(reg.outputs)) - 1)
        reg.keep(ctx, inputs, outputs)
        ctx.reg, ctx.op = reg, op
        if reg.op.num_aux or not outputs[0].is_floating_point():
            ctx.mark_non_differentiable(*(y for j, y in enumerate(outputs) if j >= reg.num_main or not y.is_floating_point()))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):  # type: ignore[override] # pyright: ignore
        reg = ctx.reg
        return (
            None,
            None,
            *reg.gradients(ctx, gradients, ctx.needs_input_grad[2:], {}, functools.partial(_run_backward, reg, ctx.op)),
        )


def _run_backward(reg, op, *inputs, wanted):
    """The backward op with the forward's params, straight."""
    backward = _with_blob_of(reg.backward.op, op)
    return _gradients(backward, inputs, wanted)


def _gradients(op, inputs, wanted):
    """The wanted outputs of a backward op. Autograd makes gradients of any strides, which nobody chose and not every kernel takes."""
    try:
        outputs = op._run(inputs, wanted)
    except NotImplementedError:
        if all(x is None or x.is_contiguous() for x in inputs):
            raise
        outputs = op._run(tuple(x if x is None else x.contiguous() for x in inputs), wanted)
    return [y for y in outputs if y is not None]


@functools.lru_cache(4096)
def _with_blob_of(backward, op):
    return backward.bind(**op.params) if op.fields else backward


class _Functional(torch.autograd.Function):
    """Under torch.func: vmap, grad, jacrev and their compositions."""

    generate_vmap_rule = True

    @staticmethod
    def forward(reg, params, *inputs):
        result = reg.call(*inputs, **params)
        return result if isinstance(result, tuple) else (result,)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.reg, ctx.params, *tensors = inputs
        ctx.reg.keep(ctx, tensors, output)
        ctx.mark_non_differentiable(*output[ctx.reg.num_main :])

    @staticmethod
    def backward(ctx, *gradients):
        reg = ctx.reg
        return None, None, *reg.gradients(ctx, gradients, ctx.needs_input_grad[2:], ctx.params, reg.backward.call)


def _tensors(op, inputs) -> tuple[list[Any], dict[str, Any]]:
    """The inputs as tensors of torch, and the numbers that are operands as params."""
    first = next(x for x in inputs if isinstance(x, torch.Tensor))
    optional = [name.endswith("?") for name in op.inputs]
    tensors: list[Any] = []
    for i, x in enumerate(inputs):
        if _is_number(x):
            x = x if optional[i] else _operands.as_array(x, first)
        elif x is not None and not isinstance(x, torch.Tensor):
            x = torch.from_dlpack(x)
        tensors.append(x)
    if op._lower_precision and torch.is_autocast_enabled(first.device.type):
        dtype = torch.get_autocast_dtype(first.device.type)
        tensors = [x.to(dtype) if x is not None and x.dtype == torch.float32 else x for x in tensors]
    if not any(map(_is_number, tensors)):
        return tensors, {}
    last = [x for x in tensors if isinstance(x, torch.Tensor)][-1]
    numbers = dict(_number_param(op, op.inputs[i][:-1], x, last) for i, x in enumerate(tensors) if _is_number(x))
    return [None if _is_number(x) else x for x in tensors], numbers


def _number_param(op, operand, x: Any, like):
    """Name and value of the param that stands for an operand; what is symbolic stays so."""
    kind = "real" if like.dtype.is_floating_point else "int"
    if f"{operand}_{kind}" not in op.params:
        raise TypeError(f"{op.op}: {operand} is {x!r}; expected a tensor: this op takes no number there")
    if kind == "int" and isinstance(x, (float, torch.SymFloat)):
        raise TypeError(f"{op.op}: {operand} is {x!r} beside {_dtype(like)} operands; expected an integer")
    x = x.item() if hasattr(x, "item") else x
    return f"{operand}_{kind}", float(x) if isinstance(x, int) and kind == "real" else x


def _is_number(x):
    return _operands.is_number(x) or isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _eager(op, inputs, out, device):
    """Plain tensors, of which one needs a gradient; numbers are params already."""
    reg = _registered.get(op.op) or registered(op.op)
    if reg.backward is None or torch._C._are_functorch_transforms_active():
        return _call(op, inputs, out, device)
    outputs = _Eager.apply(reg, _one(op), *inputs, *[None] * (len(reg.inputs) - len(inputs)))
    return outputs[0] if reg.num_main == 1 else outputs[: reg.num_main]


def _call(op, inputs, out, device):
    """Any other call that the C gate has sent here."""
    if torch.autograd.forward_ad._current_level >= 0:
        _refuse_tangents(op, inputs)
    inputs, numbers = _tensors(op, inputs)
    needs_grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    if out is not None:
        return _into(op.bind(**numbers) if numbers else op, inputs, out, needs_grad)
    reg = registered(op.op)
    inputs += [None] * (len(reg.inputs) - len(inputs))
    if reg.backward is not None and torch._C._are_functorch_transforms_active():
        outputs = _Functional.apply(reg, {**_differing(op), **numbers}, *inputs)
    elif reg.backward is not None and needs_grad and _plain(inputs):
        outputs = _Eager.apply(reg, _one(op.bind(**numbers) if numbers else op), *inputs)
    else:
        outputs = reg.call(*inputs, **{**_differing(op), **numbers})
    if isinstance(outputs, torch.Tensor):
        return outputs
    outputs = tuple(outputs)[: reg.num_main]
    return outputs[0] if reg.num_main == 1 else outputs


def _refuse_tangents(op, inputs):
    """The declarations have no forward-mode derivative, and dropping a tangent would be wrong in silence."""
    for x in inputs:
        if isinstance(x, torch.Tensor) and torch.autograd.forward_ad.unpack_dual(x).tangent is not None:
            raise NotImplementedError(f"{op.op}: no forward-mode derivative (jvp, jacfwd); expected reverse mode")


@functools.lru_cache(4096)
def _differing_of(op):
    return {name: op.params[name] for name, _, _, _, initial in op.fields if op.params[name] != initial}


def _differing(op):
    """The params that are not what the schema has as default."""
    return dict(_differing_of(op))


@functools.lru_cache(4096)
def _one(op):
    """The first of all equal ops: it has the shapes that were inferred before."""
    return op


def _plain(inputs):
    if torch._C._len_torch_dispatch_stack() or torch.autograd.forward_ad._current_level >= 0:
        return False
    return all(
        x is None
        or (
            (type(x) in (torch.Tensor, torch.nn.Parameter) and x.device.type in ("cpu", "cuda") and x.layout == torch.strided)
            and not x.is_neg()
            and not x.is_nested
            and not x.is_quantized
        )
        for x in inputs
    )


def _into(op, inputs, out, needs_grad):
    """out= where the dispatcher sees the call: computed, then copied."""
    outs: Any = out if isinstance(out, (tuple, list)) else (out,)
    if needs_grad or any(o is not None and o.requires_grad and torch.is_grad_enabled() for o in outs):
        raise ValueError(f"{op.op}: out= has no gradient, but an argument requires one; use torch.no_grad()")
    result: Any = _call(op, inputs, None, None)
    for target, value in zip(outs, result if isinstance(result, tuple) else (result,), strict=False):
        if target is None:
            continue
        if not isinstance(target, torch.Tensor) or target.shape != value.shape or target.dtype != value.dtype:
            found = f"{target.dtype}, {tuple(target.shape)}" if isinstance(target, torch.Tensor) else type(target).__name__
            raise ValueError(f"{op.op}: out is {found}; expected {value.dtype}, {tuple(value.shape)}")
        target.copy_(value)
    return out


# ---- torch.ops.narrows, and Dynamo ----


class _Namespace(torch._ops._OpNamespace):
    """torch.ops.narrows: an op is registered when its name is first looked up."""

    def __getattr__(self, name):
        if not name.startswith("_") and name not in _being_registered:
            for full in _ops.names():
                if _torch_name(full) == name:
                    registered(full)
                    break
        return super().__getattr__(name)


def _teach_dynamo():
    """Puts every op into the graph as it is; AOT autograd then sees what it calls."""
    for name in _functions.NAMES:
        if name != "astype":
            _functions.public(name)
    _functions.public("conv1d")
    _functions.public("lltm")
    _ops.listen(torch.compiler.allow_in_graph)
    _ops.fill()


setattr(torch.ops, "narrows", _Namespace("narrows"))  # noqa: B010 -- type checkers know no attributes of it
_when.imported("torch._dynamo", _teach_dynamo)


# ---- modules ----


class Conv1d(torch.nn.Conv1d):
    """torch.nn.Conv1d with narrows.conv1d inside: the same arguments, parameters, state dict and repr.

    Shape: (N, C, L) or (C, L) -> (N, O, T) or (O, T). Other padding modes than zeros pad first, as torch does.

        >>> import torch, narrows.torch
        >>> narrows.torch.Conv1d(2, 4, 3, padding="same")(torch.zeros(1, 2, 8)).shape
        torch.Size([1, 4, 8])
    """

    def _conv_forward(self, input, weight, bias):
        padding: Any = self.padding if isinstance(self.padding, str) else self.padding[0]
        if self.padding_mode != "zeros":
            input = torch.nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return _functions.conv1d(input, weight, bias, self.stride[0], padding, self.dilation[0], self.groups)


class LLTM(torch.nn.Module):
    """The recurrent cell of PyTorch's C++ extension tutorial: forward(input, (old_h, old_cell)) -> (new_h, new_cell).

    >>> import torch, narrows.torch
    >>> h = torch.zeros(2, 5)
    >>> narrows.torch.LLTM(3, 5)(torch.zeros(2, 3), (h, h))[0].shape
    torch.Size([2, 5])
    """

    def __init__(self, input_features, state_size, device=None, dtype=None):
        super().__init__()
        self.input_features, self.state_size = input_features, state_size
        shape = 3 * state_size, input_features + state_size
        self.weights = torch.nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.empty(1, 3 * state_size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Uniform in +-1/sqrt(state_size), as in the tutorial."""
        bound = 1 / math.sqrt(self.state_size) if self.state_size else 0.0
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input, state):
        """One step."""
        return _functions.lltm(input, self.weights, self.bias, *state)

    def extra_repr(self):
        """As torch's own modules show theirs."""
        return f"{self.input_features}, {self.state_size}"
