# SPDX-License-Identifier: Apache-2.0
"""torch: every op as ``torch.ops.narrows.<op>``, with fake kernels, autograd and vmap made from its declaration.

``vendor.name/1`` is ``torch.ops.narrows.vendor_name_1``: inputs in their order, parameters by keyword. Every declared op is registered
when torch is imported, or its plugin is loaded. ``narrows.add`` and the others come here only where torch's dispatcher has to see the
call: gradients, tracing, transforms, autocast. ``Conv1d`` and ``LLTM`` are modules.
"""

import contextlib
import importlib
import math
import os
import warnings
from typing import Any

import torch

import narrows
from narrows import (
    _device,
    _errors,
    _functions,
    _narrows,
    _operands,
    _ops,
    _torch_library,
    _torch_ops,
    _torch_saved,
    _torch_shapes,
    _torch_tools,
    _when,
)
from narrows._torch_ops import registered

__all__ = ["LLTM", "Conv1d", "library_path", "onnx_table"]


def __getattr__(name):
    raise _errors.attribute(__name__, name, __dir__())


def __dir__():
    return [*__all__, "__doc__"]


# ---- calls that the gate did not let through ----


def _tensors(op, inputs) -> tuple[list[Any], dict[str, Any]]:
    """The inputs, of which one at least is a tensor of torch, as such tensors, and the numbers that are operands as params."""
    first = next(x for x in inputs if isinstance(x, torch.Tensor))
    optional = [name.endswith("?") for name in op.inputs]
    tensors: list[Any] = []
    for i, x in enumerate(inputs):
        if _is_number(x):
            x = x if optional[i] else _as_tensor(op, i, x, first)
        elif x is not None and not isinstance(x, torch.Tensor):
            x = _of_others(op, i, x)
        if isinstance(x, torch.Tensor):
            _refuse_unreadable(op, op.inputs[i].rstrip("?"), x)
        tensors.append(x)
    tensors = list(_torch_ops.lowered(op, tensors))
    if not any(map(_is_number, tensors)):
        return tensors, {}
    last = [x for x in tensors if isinstance(x, torch.Tensor)][-1]
    numbers = dict(_number_param(op, i, x, last) for i, x in enumerate(tensors) if _is_number(x))
    return [None if _is_number(x) else x for x in tensors], numbers


def _of_others(op, i, x):
    """Another framework's array as a tensor of torch, which ends the process at negative strides: a copy of those. NumPy cannot export
    bfloat16."""
    if not hasattr(x, "__dlpack__"):
        raise _operands.no_array(op, i, x)
    if _is_backwards(x):
        x = _device.contiguous(_device.from_dlpack(x))
    elif str(getattr(x, "dtype", "")) == "bfloat16":
        x = _device.from_dlpack(x)
    return torch.from_dlpack(x)


def _is_backwards(x):
    """Whether some stride is negative."""
    return any(stride < 0 for stride in getattr(x, "strides", None) or ())


def _as_tensor(op, i, x, like):
    """A 0-d tensor of the number that is given as input i; of what is symbolic, too."""
    if _operands.is_number(x):
        return _operands.as_array(op, i, x, like)
    return torch.full((), x, dtype=like.dtype, device=like.device)


def _number_param(op, i, x: Any, like):
    """Name and value of the param that stands for input i; what is symbolic stays so."""
    operand, kind = op.inputs[i][:-1], "real" if like.dtype.is_floating_point else "int"
    if f"{operand}_{kind}" not in op.params:
        raise TypeError(f"{op.op}: {operand} is {x!r}; expected a tensor: this op takes no number there")
    if _operands.is_number(x):
        x = op._number(i, x, _torch_shapes.dtype_of(like))
    elif kind == "real":
        x = torch.sym_float(x)
    elif isinstance(x, torch.SymFloat):
        raise TypeError(f"{op.op}: {operand} is {x!r} beside {_torch_shapes.dtype_of(like)} operands; expected an integer")
    return f"{operand}_{kind}", x


def _is_number(x):
    return _operands.is_number(x) or isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _eager(op, inputs, out, device):
    """Plain tensors, of which one needs a gradient; numbers are params already."""
    reg = registered(op.op)
    if reg.backward is None or torch._C._are_functorch_transforms_active():
        return _call(op, inputs, out, device)
    op = _torch_ops.one(op)
    op._recorder = reg.recorder
    outputs = _torch_ops.apply_eager(reg, op, *reg.filled(inputs))
    return outputs[0] if reg.num_main == 1 else outputs


def _call(op, inputs, out, device, symbols=None):
    """Any other call that the C gate has sent here; ``symbols``: params that stand for numbers made of sizes."""
    if _torch_ops.call_spread is not None and out is None and symbols is None and not op._lower_precision:
        outputs = _torch_ops.call_spread(op, inputs)
        if outputs is not None:
            return outputs[0] if len(outputs) == 1 else tuple(outputs)
    if any(isinstance(x, torch.fx.Proxy) for x in (*inputs, *(out if isinstance(out, (tuple, list)) else (out,)))):
        return _traced(op, inputs, out)
    symbols = symbols or {}
    for name, kind, *_ in op.fields if symbols else ():
        if kind != "float" and isinstance(symbols.get(name), torch.SymFloat):
            raise TypeError(f"{op.op}: {name} is {symbols[name]!r}; expected an integer")
    if symbols and (out is not None or not any(isinstance(x, torch.Tensor) for x in inputs)):
        return op.bind(**symbols)(*inputs, out=out, device=device)
    first = next((x for x in inputs if x is not None and not _is_number(x)), None)
    if out is None and not isinstance(first, torch.Tensor):
        tensors, given = _tensors(op, inputs)
        return _as_first(first, _call(op.bind(**given) if given else op, tensors, None, None, symbols))
    numbers: dict[str, Any] = {}
    if isinstance(first, torch.Tensor) or any(isinstance(x, torch.Tensor) for x in inputs):  # else `out` alone is one
        inputs, numbers = _tensors(op, inputs)
    needs_grad = torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in inputs)
    if out is not None:
        return _into(op.bind(**numbers) if numbers else op, inputs, out, needs_grad)
    reg = registered(op.op)
    if _torch_ops.call_spread is not None and not symbols:
        outputs = _torch_ops.call_spread(op, inputs, numbers)
        if outputs is not None:
            return outputs[0] if reg.num_main == 1 else tuple(outputs)
    if reg.backward is not None and needs_grad and not symbols and _torch_ops.plain(inputs):
        outputs = _torch_ops.Eager.apply(reg, _torch_ops.one(op.bind(**numbers) if numbers else op), *reg.filled(inputs))
    else:
        outputs = _dispatch(reg, inputs, {**_torch_ops.differing(op), **numbers, **symbols})
    if isinstance(outputs, torch.Tensor):
        return outputs
    outputs = tuple(outputs)[: reg.num_main]
    return outputs[0] if reg.num_main == 1 else outputs


def _dispatch(reg, inputs, params) -> Any:
    """The call by torch's dispatcher, which does not say which tensor is real where others are fake: the output, or every output,
    None where it is absent."""
    try:
        outputs = reg.call(*inputs, **params)
        return reg.spread(outputs, reg.there(inputs, params, outputs)) if reg.masked else outputs
    except AssertionError:
        fake = [x is None or isinstance(x, torch._subclasses.FakeTensor) for x in inputs]
        if all(fake):
            raise
        name = reg.inputs[fake.index(False)].rstrip("?")
        raise ValueError(f"{reg.op.op}: {name} is real beside fake tensors, or under their mode; expected a fake one") from None


def _as_first(first, result):
    """Outputs of the first input's framework, unless torch has yet to do something with them."""
    if isinstance(result, tuple):
        return tuple(_as_first(first, y) for y in result)
    if result.requires_grad or type(result) is not torch.Tensor or _torch_ops.is_observed():
        return result
    if torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
        return result
    return _operands.like(first, _narrows.from_dlpack(result))


def _traced(op, inputs, out):
    """Under torch.fx.symbolic_trace: a node for the call; narrows.add and the like by that name, other ops as torch.ops.narrows.<op>."""
    if out is not None:
        raise NotImplementedError(f"{op.op}: out= under torch.fx.symbolic_trace; expected none")
    proxy = next(x for x in inputs if isinstance(x, torch.fx.Proxy))
    if op.__name__ in _functions.NAMES and _functions.public(op.__name__) is op:
        return proxy.tracer.create_proxy("call_function", op, tuple(inputs[: op._operands]), {})
    if any(map(_is_number, inputs)):
        raise NotImplementedError(f"{op.op}: a number as operand under torch.fx.symbolic_trace; expected narrows.add and the like")
    reg = registered(op.op)
    outputs: Any = proxy.tracer.create_proxy("call_function", *reg.node(inputs, _torch_ops.differing(op)))
    if len(op.outputs) == 1 and not reg.is_listed:
        return outputs
    return outputs[0] if reg.num_main == 1 else tuple(outputs[i] for i in range(reg.num_main))


def _into(op, inputs, out, needs_grad):
    """out= where the dispatcher sees the call: computed, then copied."""
    outs: Any = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    tensors = [o for o in outs if isinstance(o, torch.Tensor)]
    if needs_grad or (torch.is_grad_enabled() and any(o.requires_grad for o in tensors)):
        raise ValueError(f"{op.op}: out= has no gradient, but an argument requires one; use torch.no_grad()")
    for o in tensors:
        if o.is_inference() and not torch.is_inference_mode_enabled():
            raise RuntimeError(f"{op.op}: out is an inference tensor outside torch.inference_mode(); expected another")
        _refuse_unreadable(op, "out", o)
        _refuse_shrunk(op, o)
    if _are_in_memory((*inputs, *outs)):
        shown = tuple(map(_as_in_memory, outs))
        op._checked(tuple(map(_as_in_memory, _operands.lift(op, inputs))), shown)
    for target, value in zip(outs, _outputs(op, inputs)[: len(outs)], strict=True):
        if target is None:
            continue
        value = value if isinstance(value, torch.Tensor) else torch.from_dlpack(_device.from_dlpack(value))
        target = target if isinstance(target, torch.Tensor) else _others_memory(op, target)
        if target.device != value.device:
            raise ValueError(f"{op.op}: out is on {target.device}; expected {value.device}, where the inputs are")
        if target.shape != value.shape or target.dtype != value.dtype:
            found = f"{target.dtype}, {tuple(target.shape)}"
            raise ValueError(f"{op.op}: out is {found}; expected {value.dtype}, {tuple(value.shape)}")
        target.copy_(value)
    return outs if len(outs) > 1 else outs[0]


def _outputs(op, inputs):
    """Every output, those too that exist for backward only."""
    if not any(isinstance(x, torch.Tensor) for x in inputs):
        return op._run(tuple(_operands.lift(op, inputs)), (1 << len(op.outputs)) - 1)
    return _torch_ops._as_sequence(_dispatch(registered(op.op), inputs, _torch_ops.differing(op)))


def _refuse_unreadable(op, name, x):
    """What has no elements at strides of its own, or a dtype that torch exports as another or not at all; torch's dispatcher would
    refuse it without saying which argument it is."""
    if x.layout != torch.strided or x.is_nested or x.is_quantized:
        kind = "nested" if x.is_nested else "quantised" if x.is_quantized else str(x.layout)
        raise NotImplementedError(f"{op.op}: {name} is a tensor that is {kind}; expected a strided one")
    if _torch_shapes.dtype_of(x) not in _operands.dtypes():
        raise ValueError(f"{op.op}: {name} has dtype {_torch_shapes.dtype_of(x)}; expected {_operands.EXPECTED}")


def _refuse_shrunk(op, out):
    """An output whose storage was made smaller than the tensor is, where a copy would write past it."""
    if not _are_in_memory((out,)) or out.numel() == 0:
        return
    last = out.storage_offset() + sum((n - 1) * s for n, s in zip(out.shape, out.stride(), strict=True))
    size, needed = out.untyped_storage().nbytes(), (last + 1) * out.element_size()
    if size < needed:
        raise ValueError(f"{op.op}: out has a storage of {size} bytes; expected {needed}")


def _are_in_memory(arrays):
    """Whether all can be looked at as they are: torch's tensors are plain ones, lazily negated or not, and none stands for another."""
    if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
        return False
    return all(_torch_ops.is_strided(x) for x in arrays if isinstance(x, torch.Tensor))


def _as_in_memory(x):
    """The same memory without a lazy negation, which DLPack does not export."""
    return _torch_ops._private._neg_view(x) if isinstance(x, torch.Tensor) and x.is_neg() else x


def _others_memory(op, out):
    """Another framework's output, as a tensor of torch."""
    tensor = _device.from_dlpack(out)
    if tensor.read_only:
        raise ValueError(f"{op.op}: out is read-only")
    if _is_backwards(tensor):
        raise ValueError(
            f"{op.op}: out has strides {tensor.strides}, and torch none below 0; expected others, or a tensor of torch"
        )
    if tensor.device.type != 1:
        raise ValueError(
            f"{op.op}: out is on {tensor.device} and not torch's, beside tensors that torch's dispatcher has to see; "
            "expected a tensor of torch"
        )
    return torch.from_dlpack(tensor)


# ---- torch.ops.narrows, and Dynamo ----


class _Namespace(torch._ops._OpNamespace):
    """torch.ops.narrows: there is one object of each op, and a name that is none says where plugins were looked for."""

    __module__ = torch._ops._OpNamespace.__module__  # the generated code of torch.fx finds ops by it

    def __getattr__(self, name):
        with _torch_ops.lock:
            if name in vars(self):  # another thread was first
                return vars(self)[name]
            try:
                return super().__getattr__(name)
            except AttributeError:
                raise AttributeError(_torch_saved.missing(name)) from None


def _teach_dynamo():
    """Puts every op into the graph as it is; AOT autograd then sees what it calls."""
    for name in _functions.NAMES:
        if name != "astype":
            _functions.public(name)
    for name in _functions.WRITTEN:  # modules' __getattr__ makes them
        getattr(narrows, name)
    for name in _functions.OPS:
        _functions.public(name)
    torch.compiler.allow_in_graph(_functions.astype)  # which makes an op for each dtype
    _ops.listen(torch.compiler.allow_in_graph)
    _ops.fill()


def _teach_inductor():
    """Before torch 2.10 it calls the ops by torch's dispatcher."""
    if not _torch_ops._HAS_GATE:
        return
    try:
        importlib.import_module("narrows._torch_inductor")
    except (ImportError, AttributeError) as error:
        warnings.warn(f"narrows: compiled calls go by torch's dispatcher, which is slower: {error}", stacklevel=2)


def _teach_dtensor():
    """Before torch 2.11 DTensor has other parts: there it refuses the ops itself, as every op without a rule."""
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("narrows._torch_sharding").register()


_functions._torch = torch
torch.ops.narrows.__class__ = _Namespace  # whoever has loaded libnarrows_torch keeps its objects of the ops
_torch_ops.register_all()
_ops.on_load(_torch_ops.register_all)
_torch_saved.watch()
_when.imported("torch._dynamo", _teach_dynamo)
_when.imported("torch.utils.flop_counter", _torch_tools.register_flop_formulas)
_when.imported("torch._inductor.lowering", _teach_inductor)
_when.imported("torch.distributed.tensor", _teach_dtensor)


# ---- ONNX ----


def onnx_table() -> dict[Any, Any]:
    """Our ops by ONNX's operators of opset 18, for custom_translation_table= of torch.onnx.export(..., dynamo=True).

    A function, dtype or param that ONNX cannot say with our values raises NotImplementedError inside of the export, whose error shows
    it. ImportError: onnxscript is missing.
    """
    return dict(importlib.import_module("narrows._torch_onnx").TABLE)


# ---- C++ programs ----


def library_path() -> str:
    """libnarrows_torch.so: every op for programs without Python. torch.ops.load_library, dlopen or a linker takes it.

    >>> import os, narrows.torch
    >>> os.path.basename(narrows.torch.library_path())
    'libnarrows_torch.so'
    """
    if not os.path.exists(_torch_library.path()):
        raise FileNotFoundError(f"narrows was built without {_torch_library.path()}; expected -DNARROWS_BUILD_TORCH=ON")
    return _torch_library.path()


# ---- modules ----


class Conv1d(torch.nn.Conv1d):
    """torch.nn.Conv1d with narrows.conv1d inside: the same arguments, parameters, state dict and repr.

    Shape: (N, C, L) or (C, L) -> (N, O, T) or (O, T). Other padding modes than zeros pad first, as torch does.

        >>> import torch, narrows.torch
        >>> narrows.torch.Conv1d(2, 4, 3, padding="same")(torch.zeros(1, 2, 8)).shape
        torch.Size([1, 4, 8])
    """

    def _conv_forward(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        left, right = self._reversed_padding_repeated_twice[0], self._reversed_padding_repeated_twice[1]
        if self.padding_mode != "zeros":
            input = torch.nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            left, right = 0, 0
        stride, dilation = self.stride[0], self.dilation[0]
        if torch.jit.is_scripting():  # TorchScript compiles calls of ops alone # pyright: ignore[reportPrivateImportUsage]
            return torch.ops.narrows.conv1d(
                input, weight, bias, stride=stride, dilation=dilation, groups=self.groups, pad_left=left, pad_right=right
            )
        else:  # which TorchScript leaves out, and nothing that would follow
            padding: Any = left, right
            return _functions.conv1d(input, weight, bias, stride, padding, dilation, self.groups)


class LLTM(torch.nn.Module):
    """The recurrent cell of PyTorch's C++ extension tutorial: forward(input, (old_h, old_cell)) -> (new_h, new_cell); or layers of
    it over sequences, as torch.nn.LSTM has: forward(input, state=None, lengths=None) -> (h, (new_h, new_cell)).

    Shapes, with F input_features, S state_size, L num_layers, D 2 if bidirectional, else 1:

    - A cell: input (B, F), old_h, old_cell, new_h, new_cell (B, S).
    - A sequence: input (T, B, F), with batch_first (B, T, F); h (T, B, D*S), likewise; the states (D*L, B, S), by default zeros;
      lengths (B), integers: the steps of each row. At its other steps h is 0, and the state stays. Those outside of 0 to T count as
      the nearer end.

    The parameters are weights (3S, F + S) and bias (1, 3S), of ``dtype`` on ``device``, by default torch's. Those of the other layers
    and of the other direction have torch.nn.LSTM's endings: weights_l1, bias_l0_reverse. With recompute, training saves h alone and
    computes the gates again. Dtypes and errors: those of narrows.lltm.

    >>> import torch, narrows.torch
    >>> h = torch.zeros(2, 5)
    >>> narrows.torch.LLTM(3, 5)(torch.zeros(2, 3), (h, h))[0].shape
    torch.Size([2, 5])
    >>> narrows.torch.LLTM(3, 5, num_layers=2, bidirectional=True)(torch.zeros(7, 2, 3))[0].shape
    torch.Size([7, 2, 10])
    """

    def __init__(
        self,
        input_features: int,
        state_size: int,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        batch_first: bool = False,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        least = {"input_features": (input_features, 0), "state_size": (state_size, 0), "num_layers": (num_layers, 1)}
        for name, (value, fewest) in least.items():
            if value < fewest:
                raise ValueError(f"LLTM: {name} = {value}; expected {fewest} or more")
        self.input_features: int = input_features
        self.state_size: int = state_size
        self.num_layers: int = num_layers
        self.bidirectional: bool = bidirectional
        self.batch_first: bool = batch_first
        self.recompute: bool = recompute
        self.weights: torch.nn.Parameter
        self.bias: torch.nn.Parameter
        for layer in range(num_layers):
            for ending in self._endings(layer):
                features = input_features if layer == 0 else state_size * (2 if bidirectional else 1)
                for name, shape in (("weights", (3 * state_size, features + state_size)), ("bias", (1, 3 * state_size))):
                    empty = torch.empty(*shape, device=device, dtype=dtype)
                    self.register_parameter(name + ending, torch.nn.Parameter(empty))
        self.reset_parameters()

    def _endings(self, layer: int) -> list[str]:
        """Of the names of a layer's parameters, one for each direction."""
        first = "" if layer == 0 else f"_l{layer}"
        return [first, f"_l{layer}_reverse"] if self.bidirectional else [first]

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(state_size), as in the tutorial."""
        bound = 1 / math.sqrt(self.state_size) if self.state_size else 0.0
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self,
        input: torch.Tensor,
        state: tuple[torch.Tensor, torch.Tensor] | None = None,
        lengths: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One step, or, of an input of three dimensions, what sequence() gives."""
        if torch.jit.is_scripting():  # pyright: ignore[reportPrivateImportUsage]
            assert state is not None
            outputs = torch.ops.narrows.lltm(input, self.weights, self.bias, state[0], state[1])
            return outputs[0], outputs[1]
        else:
            if not isinstance(input, (torch.Tensor, torch.fx.Proxy)):
                raise TypeError(f"LLTM: input is {type(input).__name__}; expected a tensor, and lengths for rows that end early")
            dims = input.dim()
            if not isinstance(dims, int) and state is not None and self.num_layers == 1 and not self.bidirectional:
                return _functions.lltm(input, self.weights, self.bias, state[0], state[1])  # torch.fx traces a step, not a sequence
            if dims == 3:
                return self.sequence(input, state, lengths)  # type: ignore[return-value]
            if state is None or lengths is not None or self.num_layers > 1 or self.bidirectional:
                wanted = "(B, F) with a state and no lengths, or " if self.num_layers == 1 and not self.bidirectional else ""
                order = "(B, T, F)" if self.batch_first else "(T, B, F)"
                raise ValueError(f"LLTM: input has shape {tuple(input.shape)}; expected {wanted}a sequence {order}")
            self._check(input, state)
            return _functions.lltm(input, self.weights, self.bias, state[0], state[1])

    def _check(self, input: torch.Tensor, state: Any) -> None:
        if input.shape[-1] != self.input_features:
            raise ValueError(
                f"LLTM: input has shape {tuple(input.shape)}; expected {self.input_features} features in its last dimension"
            )
        if not isinstance(state, (tuple, list)) or len(state) != 2:
            what = f"{len(state)} tensors" if isinstance(state, (tuple, list)) else type(state).__name__
            raise TypeError(f"LLTM: state is {what}; expected a tuple (old_h, old_cell)")

    def sequence(
        self,
        input: torch.Tensor,
        state: tuple[torch.Tensor, torch.Tensor] | None = None,
        lengths: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """All layers over a sequence: (h, (new_h, new_cell))."""
        count, batch = self.num_layers * (2 if self.bidirectional else 1), input.shape[0 if self.batch_first else 1]
        if state is None:
            zeros = input.new_zeros(count, batch, self.state_size)
            state = zeros, zeros
        self._check(input, state)
        for name, given in zip(("old_h", "old_cell"), state, strict=True):
            if tuple(given.shape) != (count, batch, self.state_size):
                expected = (count, batch, self.state_size)
                raise ValueError(f"LLTM: {name} has shape {tuple(given.shape)}; expected {expected}")
        if lengths is not None:
            lengths = torch.as_tensor(lengths)
            if lengths.dtype.is_floating_point:
                raise TypeError(f"LLTM: lengths have dtype {lengths.dtype}; expected integers")
            lengths = lengths.to(input.device, torch.int32)
        states: list[tuple[torch.Tensor, torch.Tensor]] = []
        for layer in range(self.num_layers):
            outputs = []
            for reverse, ending in enumerate(self._endings(layer)):
                h, new_h, new_cell = _functions.run_lltm_sequence(
                    input,
                    getattr(self, "weights" + ending),
                    getattr(self, "bias" + ending),
                    state[0][len(states)],
                    state[1][len(states)],
                    lengths,
                    batch_first=int(self.batch_first),
                    reverse=reverse,
                    recompute=int(self.recompute),
                )
                outputs.append(h)
                states.append((new_h, new_cell))
            input = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        new_h, new_cell = zip(*states, strict=True)
        return input, (torch.stack(new_h), torch.stack(new_cell))

    def extra_repr(self) -> str:
        """As torch's own modules show theirs."""
        options = {"num_layers": (self.num_layers, 1)}
        options |= {name: (getattr(self, name), False) for name in ("bidirectional", "batch_first", "recompute")}
        more = [f"{name}={value}" for name, (value, default) in options.items() if value != default]
        return ", ".join([f"{self.input_features}, {self.state_size}", *more])
