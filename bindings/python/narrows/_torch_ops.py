# SPDX-License-Identifier: Apache-2.0
"""torch.ops.narrows: how an op is registered with torch's dispatcher, all of it made from the op's declaration: schema, kernels, fake
kernel, autograd, and what torch.func's transforms do with it. ``narrows.torch`` has the calls that users make.
"""

import functools
import importlib
import operator
import threading
import warnings
from typing import Any

import torch
from torch._functorch import eager_transforms
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from narrows import _derivatives, _narrows, _ops, _programs, _torch_derivatives, _torch_library, _torch_shapes, _torch_vmap

_library = _torch_library.fragment
_private: Any = torch  # for what no type checker finds there


# ---- registration ----


class _Registered:
    """An op of torch, and what its declaration says of it."""

    is_listed = False  # torch's op takes and gives lists of tensors

    def __init__(self, op):
        self.op = op
        self.name = _torch_name(op.op)
        self.inputs = op.inputs
        self.outputs = op.outputs
        self.params = [f[0] for f in op.fields]
        self.num_main = len(op.outputs) - op.num_aux
        main = op.outputs[: self.num_main]
        self.required = sum(1 << j for j, name in enumerate(main) if not name.endswith("?"))  # a mask of what no call may leave out
        self.masked = any(name.endswith("?") for name in main)  # gradients: only those that are wanted
        self.is_backward = self.masked  # or another op says so
        self.backward: Any = None  # the _Registered of the backward op
        self.rule = _derivatives.rule_of(op.op)  # of forward mode, and of the derivatives of a backward op
        self.call: Any = self.defined()
        if op.backward is not None:
            self.backward = registered(op.backward)
            self.backward.is_backward = True
            forward = self.backward.inputs[self.num_main : self.num_main + len(self.inputs)]
            every = self.rule is not None and self.rule.reads_all
            kept = [every or bool(op.saved >> i & 1) or not name.endswith("?") for i, name in enumerate(forward)]
            kept += [bool(op.saved >> (32 + j) & 1) for j in range(len(self.outputs))]
            self.kept: Any = operator.itemgetter(*(i if keep else len(kept) for i, keep in enumerate(kept)))
            self.recorder = apply_eager, self

    def defined(self):
        """The op of torch: this one's own."""
        kernels = {"run": self.run, "differentiable": self.differentiable, "transformed": self.transformed, "fake": self.fake}
        call = define(self.name, self.schema(), **kernels)
        for key in ("AutocastCPU", "AutocastCUDA") if self.op._lower_precision else ():
            _library.impl(self.name, functools.partial(self.autocast, key), key)
        return call

    def node(self, inputs, params) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The call as a graph has it: torch's op, its arguments, and those by name."""
        return self.call, tuple(inputs), params

    def schema(self):
        """As torch writes it."""
        arguments = []
        last = max((i for i, name in enumerate(self.inputs) if not name.endswith("?")), default=-1)
        for i, name in enumerate(self.inputs):  # no default may stand before an input that is required
            default = "=None" if i > last else ""
            arguments.append(f"Tensor? {name[:-1]}{default}" if name.endswith("?") else f"Tensor {name}")
        arguments.append("*") if self.params or self.masked else None
        arguments += [_argument(*field) for field in self.op.fields]
        if self.masked:
            arguments.append("int wanted=-1")
        tensors = ", ".join(["Tensor"] * len(self.outputs))
        result = "Tensor[]" if self.masked else f"({tensors})" if len(self.outputs) != 1 else "Tensor"
        return f"{self.name}({', '.join(arguments)}) -> {result}"

    def bound(self, params):
        """The op with these values, without `wanted`; and that."""
        wanted = params.pop("wanted", -1)
        given = {n: _torch_shapes.concrete(v) for n, v in params.items() if v is not None and not (isinstance(v, str) and v == "")}
        return one(self.op.bind(**given)) if given else self.op, wanted

    def mask(self, wanted):
        """Of the outputs: those that are wanted, and those that the declaration does not leave out."""
        return (wanted | self.required) & ((1 << len(self.outputs)) - 1)

    # ---- kernels ----

    def run(self, *inputs, **params):
        """Below the dispatcher, on real tensors."""
        op, wanted = self.bound(params)
        if not self.is_backward:
            return self.as_returned(op._run(inputs, self.mask(wanted)))
        return self.as_returned(tuple(y for y in _gradients(op, inputs, self.mask(wanted)) if y is not None))

    def fake(self, *inputs, **params):
        """Shapes and dtypes without memory."""
        symbolic = {n: v for n, v in params.items() if isinstance(v, torch.SymInt) and n != "wanted"}
        op, wanted = self.bound(params)
        device = self.one_device(inputs)
        specs = _torch_shapes.specs_of(op, inputs, symbolic)
        mask = self.mask(wanted)
        outputs: list[Any] = []
        for j, spec in enumerate(specs):
            if spec is None and self.required >> j & 1:
                raise ValueError(_ops.without_shape(op, j))
            if spec is None or not mask >> j & 1:
                outputs.append(None)
            else:
                outputs.append(torch.empty(tuple(spec[1]), dtype=getattr(torch, spec[0]), device=device))
        if self.masked:
            return [y for y in outputs if y is not None]
        return tuple(outputs) if len(outputs) != 1 else outputs[0]

    def one_device(self, inputs):
        """That of the inputs: of real tensors core says so, of others nobody else."""
        lead = next(i for i, x in enumerate(inputs) if x is not None)
        for i, x in enumerate(inputs):
            if x is not None and x.device != inputs[lead].device:
                names = self.inputs[i].rstrip("?"), self.inputs[lead].rstrip("?")
                raise ValueError(f"{self.op.op}: {names[0]} is on {x.device}; expected {inputs[lead].device}, where {names[1]} is")
        return inputs[lead].device

    def vmap(self, info, in_dims, *inputs, **params):
        """The outputs of a batch of calls, and their batch axis, 0."""
        in_dims = in_dims[: len(inputs)] if isinstance(in_dims, (tuple, list)) else (in_dims,)
        return _torch_vmap.mapped(self, info.batch_size, in_dims, inputs, params)

    # ---- autograd ----

    def differentiable(self, keyset, *inputs, **params):
        """At torch's autograd key: records the call where an input needs a gradient or has a tangent."""
        needed = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
        if not needed and not _torch_derivatives.has_tangent(inputs):
            return self.below_autograd(keyset, inputs, params)
        return self.as_returned(_Dispatched.apply(self, keyset, params, *self.filled(inputs)))

    def below_autograd(self, keyset, inputs, params):
        """The kernel, or what else stands below."""
        with torch._C._AutoDispatchBelowAutograd():
            return self.call.redispatch(keyset & torch._C._after_autograd_keyset, *inputs, **params)

    def transformed(self, *inputs, **params):
        """Under torch.func: one autograd.Function that knows every transform but functionalize."""
        inputs = lowered(self.op, inputs)
        interpreter = retrieve_current_functorch_interpreter()
        if interpreter.key() == _private._C._functorch.TransformType.Functionalize:
            return self.functionalized(interpreter, inputs, params)
        return self.as_returned(_Functional.apply(self, params, *self.filled(inputs)))

    def functionalized(self, interpreter: Any, inputs, params):
        """Under torch.func.functionalize: the op writes to none of its inputs, so it is called with what the wrappers hold."""
        views = interpreter.functionalize_add_back_views()
        with interpreter.lower():
            outputs = self.call(*eager_transforms._unwrap_all_tensors_from_functional(tuple(inputs), reapply_views=views), **params)
        return eager_transforms._wrap_all_tensors_to_functional(outputs, level=interpreter.level())

    def autocast(self, key, *inputs, **params):
        """Under torch.autocast, of an op that heeds it: the same call of lower precision."""
        inputs = lowered(self.op, inputs)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))):
            return self.call(*inputs, **params)

    def filled(self, inputs):
        """Every input; torch leaves out trailing ones that have their default."""
        return (*inputs, *[None] * (len(self.inputs) - len(inputs)))

    def as_returned(self, outputs):
        """A tuple of tensors as what the schema says."""
        return list(outputs) if self.masked else outputs[0] if len(outputs) == 1 else outputs

    def keep(self, ctx, inputs, outputs):
        """Saves what backward reads, and no more, and the shapes of the inputs."""
        ctx.shapes = shapes_of(inputs)
        ctx.set_materialize_grads(False)
        if self.backward is not None:
            ctx.save_for_backward(*self.kept((*inputs, *outputs, None)))
        elif self.rule is not None:
            ctx.save_for_backward(*inputs)
        if self.rule is not None and _torch_derivatives.is_forward_mode():
            _torch_derivatives.keep(ctx, inputs, outputs)

    def mark(self, ctx, outputs):
        """Tells torch which of the outputs have no gradient."""
        if self.masked or len(outputs) > self.num_main or not outputs[0].is_floating_point():
            of_none = lambda j, y: y is not None and (j >= self.num_main or not y.is_floating_point())  # noqa: E731
            ctx.mark_non_differentiable(*(y for j, y in enumerate(outputs) if of_none(j, y)))

    def there(self, inputs, params, outputs):
        """A mask of the declared outputs that torch's dispatcher returned: of those that are wanted, all that have a shape."""
        mask = self.mask(params.get("wanted", -1))
        if len(outputs) == mask.bit_count():
            return mask
        _, specs = _torch_shapes.hinted_specs(self.bound(dict(params))[0], self.filled(inputs))
        return sum(1 << j for j, spec in enumerate(specs) if spec is not None and mask >> j & 1)

    def spread(self, outputs, there):
        """One for each declared output, None where it is not there."""
        if len(outputs) == len(self.outputs):
            return outputs
        given = iter(outputs)
        return [next(given) if there >> j & 1 else None for j in range(len(self.outputs))]

    def gradients(self, ctx, gradients, needed, params, call, saved=None):
        """A gradient for each input by the declared backward op, from one for each main output; None where it is not wanted.
        ``saved``: the saved tensors, which may be asked for once."""
        if self.backward is None:
            return _torch_derivatives.gradients(self, ctx, gradients, needed, params)
        mask, places = _wanted(needed, self.backward.required)
        result: list[Any] = [None] * len(needed)
        if not places or are_absent(gradients):
            return tuple(result)
        saved = ctx.saved_tensors if saved is None else saved
        found = call(*gradients, *saved, **params, wanted=mask)
        if len(found) < mask.bit_count():  # the rule does not know the shape of one
            specs = _torch_shapes.specs_of(self.backward.op, (*gradients, *saved))
            raise ValueError(_ops.without_saved(self.op, self.backward.op, next(i for i, _ in places if specs[i] is None)))
        for i, place in places:
            gradient, shape = found[place], ctx.shapes[i]
            result[i] = gradient if gradient.shape == shape else gradient.reshape(shape)
        return tuple(result)


def define(name, schema, run, differentiable, transformed, fake):
    """An op of torch.ops.narrows with these kernels."""
    call = _torch_library.define(name, schema, run, fake)
    _library.impl(name, differentiable, "Autograd", with_keyset=True)
    _library.impl(name, transformed, "FuncTorchDynamicLayerFrontMode")
    return call


def _argument(name, kind, lanes, values, initial: Any):
    """A param as torch's schema has it."""
    if values is not None:
        return f'str {name}="{initial if isinstance(initial, str) else ""}"'
    schema_kind = f"{kind}[{lanes}]" if lanes > 1 else {"int": "SymInt", "float": "Scalar"}.get(kind, kind)
    if kind == "float" and 0 in (initial if lanes > 1 else (initial,)):
        return f"{schema_kind}? {name}=None"  # torch leaves out what equals the default, as -0.0 does 0.0
    return f"{schema_kind} {name}={list(initial) if lanes > 1 else initial}"


def shapes_of(tensors):
    """That of each, None where there is none."""
    return tuple(None if x is None else x.shape for x in tensors)


def are_absent(gradients):
    """Whether nothing that came is a gradient."""
    return gradients[0] is None and all(g is None for g in gradients)


@functools.lru_cache(4096)
def _wanted(needed, required):
    """A mask of the gradients that the backward op is asked for, and of each one that is needed its index and its place among them."""
    mask = sum(1 << i for i, need in enumerate(needed) if need) | required
    return mask, [(i, (mask & ((1 << i) - 1)).bit_count()) for i, need in enumerate(needed) if need]


def lowered(op, inputs):
    """The tensors as torch.autocast wants them of this op, if it is on."""
    kind = next(x for x in inputs if x is not None).device.type  # "meta" has no autocast
    if not (op._lower_precision and torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return inputs
    dtype = torch.get_autocast_dtype(kind)
    return [x.to(dtype) if isinstance(x, torch.Tensor) and _is_lowered(x) else x for x in inputs]


def _is_lowered(x):
    """Whether torch casts it for its own ops."""
    return x.is_floating_point() and x.dtype != torch.float64


@functools.lru_cache(4096)
def one(op):
    """The first of all equal ops: it has the shapes that were inferred before."""
    return op


def _torch_name(name):
    return name.replace(".", "_").replace("/", "_")


_registered: dict[str, _Registered] = {}
_by_torch_name: dict[str, str] = {}  # the op that torch calls by a name, registered or refused
lock = threading.RLock()  # of these two, and of the attributes of torch.ops.narrows


def registered(name):
    """The op of that name in torch, registered now if it was not."""
    found = _registered.get(name)
    if found is not None:
        return found
    with lock:
        if name not in _registered and _programs.is_program(name):
            _registered[name] = _torch_programs().Program(_ops.op(name))
        if name not in _registered:
            torch_name = _torch_name(name)
            other = _by_torch_name.setdefault(torch_name, name)
            if other != name:
                raise ValueError(
                    f"{name}: torch calls it narrows::{torch_name}, as it does {other}; expected ops of different names"
                )
            _registered[name] = _Registered(_ops.op(name))
            for listener in _listeners:
                listener(_registered[name])
        return _registered[name]


def _torch_programs() -> Any:
    return importlib.import_module("narrows._torch_programs")


_listeners: list[Any] = []  # told of every op that torch has by a name of its own


def listen(function):
    """Calls function(_Registered) for every op, those that torch has and those to come."""
    with lock:
        _listeners.append(function)
        for found in list(_registered.values()):
            if not _programs.is_program(found.op.op):
                function(found)


def register_all():
    """Registers every op that is declared: a model that was saved finds them by torch's dispatcher, which asks nobody here."""
    with lock:
        _torch_programs()
        for name in _narrows.declared():
            if not _programs.is_program(name) and name not in _registered and _torch_name(name) not in _by_torch_name:
                try:
                    registered(name)
                except Exception as error:  # a plugin's op that torch cannot have; the others are not to blame
                    warnings.warn(f"narrows: torch refuses the op {name}: {error}", RuntimeWarning, stacklevel=2)


call_spread: Any = None  # _torch_spread.call once torch has DTensors


# ---- autograd ----


class Eager(torch.autograd.Function):
    """Plain tensors of which one needs a gradient: no dispatcher at all, but for a derivative of the derivative. Outputs that exist for
    backward only are kept, and nobody else sees them."""

    @staticmethod
    def forward(ctx, reg, op, *inputs):
        outputs, shapes = op._forward(inputs)
        ctx.reg, ctx.op, ctx.shapes = reg, op, shapes or shapes_of(inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*reg.kept((*inputs, *outputs, None)))
        if reg.masked or len(outputs) != 1 or not outputs[0].is_floating_point():
            outputs = outputs[: reg.num_main]
            reg.mark(ctx, outputs)
        return outputs

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[override] # pyright: ignore
        needed, saved = ctx.needs_input_grad[2:], ctx.saved_tensors
        found = None if torch.is_grad_enabled() or are_absent(gradients) else _run_backward(ctx, (*gradients, *saved), needed)
        if found is None:
            reg = ctx.reg
            call = functools.partial(_call_backward, reg)
            found = reg.gradients(ctx, gradients, needed, differing(ctx.op), call, saved)
        return None, None, *found


_without_transforms: Any = super(torch.autograd.Function, Eager)
apply_eager = _without_transforms.apply  # Eager.apply where no transform of torch.func is on


class _Dispatched(torch.autograd.Function):
    """A call of torch.ops.narrows.<op>."""

    @staticmethod
    def forward(ctx, reg, keyset, params, *inputs):
        result = reg.below_autograd(keyset, inputs, params)
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        ctx.reg, ctx.params, ctx.there = reg, _without_wanted(params), reg.there(inputs, params, outputs)
        every = reg.spread(outputs, ctx.there)
        reg.keep(ctx, inputs, every)
        reg.mark(ctx, every)
        return outputs

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[override] # pyright: ignore
        return None, None, None, *_dispatched_gradients(ctx, gradients, ctx.needs_input_grad[3:])

    @staticmethod
    def jvp(ctx, *tangents):  # pyright: ignore
        return _torch_derivatives.tangents(ctx, tangents[3:])


class _Functional(torch.autograd.Function):
    """Under torch.func: vmap, grad, jacrev and their compositions."""

    @staticmethod
    def forward(reg, params, *inputs):
        result = reg.call(*inputs, **params)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.reg, params, *tensors = inputs
        ctx.params, ctx.there = _without_wanted(params), ctx.reg.there(tensors, params, output)
        every = ctx.reg.spread(output, ctx.there)
        ctx.reg.keep(ctx, tensors, every)
        ctx.reg.mark(ctx, every)

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, *_dispatched_gradients(ctx, gradients, ctx.needs_input_grad[2:])

    @staticmethod
    def jvp(ctx, *tangents):  # pyright: ignore
        return _torch_derivatives.tangents(ctx, tangents[2:])

    @staticmethod
    def vmap(info, in_dims, reg, params, *inputs):  # pyright: ignore[reportIncompatibleMethodOverride]
        result, _ = reg.vmap(info, in_dims[2:], *inputs, **params)
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        return outputs, (0,) * len(outputs)


def _without_wanted(params):
    return {k: v for k, v in params.items() if k != "wanted"}


def _dispatched_gradients(ctx, gradients, needed):
    reg = ctx.reg
    gradients = reg.spread(gradients, ctx.there)[: reg.num_main]
    return reg.gradients(ctx, gradients, needed, ctx.params, functools.partial(_call_backward, reg))


def _call_backward(reg, *inputs, wanted, **params):
    """The backward op by torch's dispatcher."""
    return dispatched(reg.backward, inputs, {**params, "wanted": wanted} if reg.backward.masked else params)


def dispatched(reg, inputs, params):
    """The outputs of an op by torch's dispatcher, which knows none of others' ops under torch's older vmap (is_grads_batched): there as
    under the newer one, if it is the only one."""
    if torch.compiler.is_compiling() or not any(map(_is_batched, inputs)):
        return _as_sequence(reg.call(*inputs, **params))
    batched = tuple(map(_is_batched, inputs))
    first = inputs[batched.index(True)]
    level = next((n for n in range(1, 65) if not _is_batched(_private._remove_batch_dim(first, n, 1, 0))), None)
    if level is None:
        return _as_sequence(reg.call(*inputs, **params))
    inputs = tuple(_private._remove_batch_dim(x, level, 1, 0) if b else x for x, b in zip(inputs, batched, strict=True))
    size = inputs[batched.index(True)].shape[0]
    outputs, _ = _torch_vmap.mapped(reg, size, tuple(0 if b else None for b in batched), inputs, params)
    return [_private._add_batch_dim(y.contiguous(), 0, level) for y in _as_sequence(outputs)]


def _as_sequence(outputs):
    """What an op of torch returned, as the tensors."""
    return (outputs,) if isinstance(outputs, torch.Tensor) else outputs


def _is_batched(x):
    return x is not None and _private._C._functorch.is_legacy_batchedtensor(x)


# The key itself is asked for in a tenth of a microsecond, its name in two.
_PRE_DISPATCH: Any = getattr(_private._C.DispatchKey, "PreDispatch", "PreDispatch")


def is_observed():
    """Whether somebody looks on who sees what torch's dispatcher does: a mode (a default device is none), torch.jit.trace, a trace ahead
    of the dispatcher."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return True
    if torch._C._dispatch_tls_is_dispatch_key_included(_PRE_DISPATCH):
        return True
    modes = torch.overrides._get_current_function_mode_stack() if torch._C._is_torch_function_mode_enabled() else ()
    return any(type(mode) is not _private.utils._device.DeviceContext for mode in modes)


def plain(inputs):
    """Whether torch's dispatcher may be left out, as the C gate says it where torch has the exchange API."""
    if is_observed() or torch.autograd.forward_ad._current_level >= 0:
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    if not _HAS_GATE and torch.autograd._profiler_enabled():  # pyright: ignore[reportPrivateImportUsage]
        return False  # the dispatcher shows it the op
    return all(x is None or (is_strided(x) and not x.is_neg() and not x._is_zerotensor()) for x in inputs)


def is_strided(x):
    """Whether it is a plain tensor with elements in memory."""
    return (
        (type(x) in (torch.Tensor, torch.nn.Parameter) and x.device.type in ("cpu", "cuda") and x.layout == torch.strided)
        and not x.is_nested
        and not x.is_quantized
        and not _is_batched(x)
    )


_HAS_GATE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def _run_backward(ctx, inputs, needed):
    """The backward op with the forward's params, straight. None: it has to go by torch's dispatcher, which says what is wrong, too."""
    if not (_HAS_GATE or plain(inputs)):
        return None
    op, mask, is_exact = _backward_of(ctx.reg, ctx.op, needed)
    found = _gradients(op, inputs, mask, _HAS_GATE, ctx.shapes)
    if found is None or is_exact:
        return found
    return [gradient if need else None for gradient, need in zip(found, needed, strict=True)]


@functools.lru_cache(4096)
def _backward_of(reg, op, needed):
    """The backward op of a call, a mask of what it is asked for, and whether that is what is needed."""
    mask, places = _wanted(needed, reg.backward.required)
    backward = reg.backward.op
    return backward.bind(**op.params) if op.fields else backward, mask, len(places) == mask.bit_count()


def _gradients(op, inputs, wanted, gated=False, shapes=None):
    """The wanted outputs of a backward op, in these shapes where they are given. None: the gate lets nothing through, or one of them has
    no such shape. Autograd makes gradients of any strides, which nobody chose and not every kernel takes."""
    try:
        return op._run(inputs, wanted, gated, shapes)
    except NotImplementedError:
        if all(x is None or x.is_contiguous() for x in inputs):
            raise
        return op._run(tuple(x if x is None else x.contiguous() for x in inputs), wanted, gated, shapes)


@functools.lru_cache(4096)
def _differing(op):
    params = op.params
    return {name: params[name] for name, _, _, _, initial in op.fields if repr(params[name]) != repr(initial)}  # -0.0 == 0.0


def differing(op):
    """The params that are not what the schema has as default."""
    return dict(_differing(op))
