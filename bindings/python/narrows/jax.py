"""JAX: every op as a jitted call of one XLA handler, with grad and vmap from its declaration.

``narrows.add`` and the others come here for JAX arrays and tracers. ``call`` is the same for an op by name, with ``donate``.
Nothing is read in Python: XLA hands the buffers to the handler, on its stream, with its own scratch memory.
"""

import functools
import threading
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from narrows import _batching, _device, _jax_batching, _jax_sharding, _narrows, _operands, _ops

try:
    from jax import ffi
except ImportError:  # before 0.5
    from jax.extend import ffi  # type: ignore[no-redef, attr-defined] # pyright: ignore

_lock = threading.Lock()
_registered: list = []


def _register():
    """The handlers, once JAX has started its backends: a handler that is refused before that would end JAX for the process."""
    with _lock:
        if not _registered:
            jax.devices()
            plain, capturable = _narrows.xla_handlers()
            ffi.register_ffi_target("narrows", plain, platform="cpu")
            for platform in ("CUDA", "ROCM"):
                ffi.register_ffi_target("narrows", plain, platform=platform)
                ffi.register_ffi_target("narrows_capturable", capturable, platform=platform)
            _registered.append(True)


_DEVICE_TYPES = {"cpu": 1, "cuda": 2, "rocm": 10}


class _Call:
    """An op with its params and which inputs are there; hashable, so that JAX compiles each once."""

    def __init__(self, op, present, wanted):
        self.op, self.present, self.wanted = op, present, wanted
        self.key = op.op, op.blob, present, wanted

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return isinstance(other, _Call) and self.key == other.key

    def with_params(self, **params):
        """The same call with these values."""
        return _Call(self.op.bind(**params), self.present, self.wanted)

    def inputs(self, arrays):
        """(dtype, shape) or None for every input."""
        given = iter(arrays)
        return [
            (lambda a: (str(a.dtype), tuple(a.shape)))(next(given)) if self.present >> i & 1 else None
            for i in range(len(self.op.inputs))
        ]

    def specs(self, arrays):
        """The same for every output."""
        return self.op._infer(self.inputs(arrays), next(iter(_device_types(self.op).values()), 1))

    def outputs(self, arrays):
        """The outputs that the handler is to fill: (index, ShapeDtypeStruct)."""
        return [
            (j, jax.ShapeDtypeStruct(spec[1], jnp.dtype(spec[0])))
            for j, spec in enumerate(self.specs(arrays))
            if spec is not None and self.wanted >> j & 1
        ]


def _target(call, mask, device_type, arrays):
    """The handler by its name. XLA may put what is capturable into a graph; of a batch under vmap, where shapes change behind this,
    only what never needs a workspace."""
    may_grow = call.op.flags & 2 and call.op.op != "elementwise"
    if device_type == 1 or may_grow or not call.op._capturable(call.inputs(arrays), mask, device_type):
        return "narrows"
    return "narrows_capturable"


def _primitive_call(call, aliases, device_type, *arrays):
    """One ffi_call on one kind of device."""
    outputs = call.outputs(arrays)
    mask = sum(1 << j for j, _ in outputs)
    layout = np.array([call.present, mask, device_type, len(call.op.inputs), len(call.op.outputs)], np.int64)
    batchable = call.op.flags & 2
    run = ffi.ffi_call(
        _target(call, mask, device_type, arrays),
        [spec for _, spec in outputs],
        vmap_method="broadcast_all" if batchable else "sequential",
        input_output_aliases=dict(aliases) or None,
    )
    return tuple(run(*arrays, op=call.op.op, params=np.frombuffer(call.op.blob, np.uint8), layout=layout))


def _equal_ranks(arrays):
    """A batch axis may be put before inputs of equal rank only: those of a lower one get axes of 1."""
    rank = max(a.ndim for a in arrays)
    return [a.reshape((1,) * (rank - a.ndim) + a.shape) for a in arrays]


def _on_devices(call, aliases, *arrays):
    """Split over the devices where the arrays are and the op may be, else on whole arrays."""
    axes = frozenset().union(*map(_jax_sharding.varying, arrays))
    return _jax_sharding.vary(_placed(call, aliases, *arrays), axes)


def _placed(call, aliases, *arrays):
    split = _jax_sharding.may_be_split(call.op)
    # jax.shard_map of a JAX that has no sharding rules knows no custom_vmap: there XLA's own call is batched.
    if not split and not (_jax_sharding.HAS_RULES and _batching.has_way(call.op)):
        return _on_platform(call, aliases, *arrays)

    def place(levels, arrays):  # what jax.jit was told of donated arrays is enough for XLA
        run = lambda *parts: _jax_batching.run_batch(call, levels, lambda c: functools.partial(_on_platform, c, ()), parts)  # noqa: E731
        return _jax_sharding.split(call, levels, run, arrays) if split else run(*arrays)

    run = _jax_batching.with_batches(call, place, functools.partial(_on_devices, call, ()))
    return _jax_sharding.with_types(call, run, arrays)


def _on_platform(call, aliases, *arrays):
    _register()
    if call.op.flags & 2 and len({a.ndim for a in arrays}) > 1:
        shapes = [spec.shape for _, spec in call.outputs(arrays)]
        outputs = _on_platform(call, aliases, *_equal_ranks(arrays))
        return tuple(y.reshape(shape) for y, shape in zip(outputs, shapes, strict=True))
    platforms = {p: functools.partial(_primitive_call, call, aliases, n) for p, n in _device_types(call.op).items()}
    if len(platforms) == 1:
        return next(iter(platforms.values()))(*arrays)
    return jax.lax.platform_dependent(*arrays, **platforms)


def _device_types(op):
    """{platform: its device type} of those that a program may run on and that have the op. Built-in ones are everywhere."""
    serving = _ops.device_types(op.op) if "." in op.op else _DEVICE_TYPES.values()
    return {p: n for p, n in _DEVICE_TYPES.items() if p in _platforms() and n in serving}


@functools.cache
def _platforms():
    """Those that a program may run on, and not the default one alone: ``jax.devices()`` has no other."""
    return frozenset(name for name in _DEVICE_TYPES if _has(name))


def _has(platform):
    try:
        return bool(jax.devices(platform))
    except RuntimeError:
        return False


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(call, *arrays):
    return _on_devices(call, (), *arrays)


def _forward(call, *arrays):
    every = _Call(call.op, call.present, (1 << len(call.op.outputs)) - 1)  # what exists for backward only, too
    outputs = _on_devices(every, (), *arrays)
    indices = [j for j, _ in every.outputs(arrays)]
    kept = tuple(y for j, y in zip(indices, outputs, strict=True) if call.op.saved >> (32 + j) & 1)
    return tuple(y for j, y in zip(indices, outputs, strict=True) if call.wanted >> j & 1), (arrays, kept)


def _backward(call, saved, gradients):
    """Calls the declared backward op; integers have the gradient float0."""
    op = call.op
    arrays, kept = saved
    backward = _ops.op(op.backward)
    backward = backward.bind(**op.params) if op.fields else backward
    main = len(op.outputs) - op.num_aux
    places = [i for i in range(len(op.inputs)) if call.present >> i & 1]
    given = dict(zip(places, arrays, strict=True))
    there = [j for j, _ in _Call(op, call.present, (1 << len(op.outputs)) - 1).outputs(arrays)]
    stored = dict(zip([j for j in there if op.saved >> (32 + j) & 1], kept, strict=True))
    needed = [not name.endswith("?") for name in backward.inputs]
    incoming = dict(zip([j for j in there if call.wanted >> j & 1], gradients, strict=True))
    inputs = [g if g is not None and g.dtype != jax.dtypes.float0 else None for g in map(incoming.get, range(main))]
    inputs += [given.get(i) if op.saved >> i & 1 or needed[main + i] else None for i in range(len(op.inputs))]
    inputs += [stored.get(j) for j in range(len(op.outputs))]
    floating = [i for i in places if jnp.issubdtype(given[i].dtype, jnp.floating)]
    present = sum(1 << i for i, x in enumerate(inputs) if x is not None)
    read = [x for x in inputs if x is not None]
    required = {
        j for j, name in enumerate(backward.outputs[: len(op.inputs)]) if not name.endswith("?")
    }  # which no call leaves out
    wanted = _Call(backward, present, sum(1 << j for j in required.union(floating)))
    for j, spec in enumerate(wanted.specs(read)):
        if spec is None and j in required:
            raise ValueError(_ops.without_shape(backward, j))
        if spec is None and j in floating:
            raise ValueError(_ops.without_saved(op, backward, j))
    found = dict(zip([j for j, _ in wanted.outputs(read)], _on_devices(wanted, (), *read), strict=True))
    zero = lambda x: np.zeros(x.shape, jax.dtypes.float0)  # noqa: E731
    shaped = lambda i: _jax_sharding.as_primal(found[i].reshape(given[i].shape), given[i])  # noqa: E731
    return tuple(shaped(i) if i in floating else zero(given[i]) for i in places)


_differentiable.defvjp(_forward, _backward)


@functools.lru_cache(4096)
def _jitted(call, aliases, donated):
    if call.op.backward is not None and not aliases:
        function = functools.partial(_differentiable, call)
    else:
        function = functools.partial(_on_devices, call, aliases)

    def run(*arrays):  # under shard_map, where some may differ from device to device and some not, all are taken to differ
        return function(*_jax_sharding.vary(arrays, frozenset().union(*map(_jax_sharding.varying, arrays))))

    return jax.jit(run, donate_argnums=donated)


def _run(op, inputs, donate=()):
    inputs = list(inputs) + [None] * (len(op.inputs) - len(inputs))
    present = sum(1 << i for i, x in enumerate(inputs) if x is not None)
    main = len(op.outputs) - op.num_aux
    places = [i for i, x in enumerate(inputs) if x is not None]
    for i in donate:
        if isinstance(i, bool) or i not in places:
            raise ValueError(f"{op.op}: donate has {i!r}; expected indices of inputs that are given: {places}")
    donated = tuple(places.index(i) for i in donate)
    call = _Call(op, present, (1 << main) - 1)
    arrays = [inputs[i] for i in places]
    first = call.specs(arrays)[0] if donated and op.flags & 1 else None  # an output may only take memory that is as its own
    aliases = tuple((i, 0) for i in donated if (str(arrays[i].dtype), tuple(arrays[i].shape)) == first)[:1]
    outputs = tuple(_jitted(call, aliases, donated)(*arrays))
    if len(outputs) < main:  # one of them is absent
        given = iter(outputs)
        outputs = tuple(None if spec is None else next(given) for spec in call.specs(arrays)[:main])
    return outputs[0] if main == 1 else outputs


_config: Any = jax.config  # for what no type checker finds there
_NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32"}  # by JAX, outside of its x64 mode


def _array(op, i, x):
    """The i-th input, that was read before; other frameworks' arrays become JAX's."""
    if isinstance(x, jax.Array):
        return x
    if isinstance(x, np.ndarray):
        return jnp.asarray(x)
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"{op.op}: {op.inputs[i].rstrip('?')}: {type(x).__name__} is no array: it has no __dlpack__")
    if getattr(x, "requires_grad", False):
        import torch

        if torch.is_grad_enabled():
            name = op.inputs[i].rstrip("?")
            raise ValueError(f"{op.op}: {name} needs a gradient of torch's, which JAX cannot give; expected x.detach()")
        x = x.detach()
    try:
        return jnp.from_dlpack(x)
    except (BufferError, RuntimeError):
        return _device.jax_array(_device.from_dlpack(x))


def _refuse_narrowed(op, inputs, specs):
    """JAX would narrow these inputs without a word: the library says what is wrong with their dtypes as they are, or else this does."""
    specs = [(str(x.dtype), tuple(x.shape)) if isinstance(x, jax.Array) else spec for x, spec in zip(inputs, specs, strict=True)]
    optional = [name.endswith("?") for name in op.inputs]
    first, last = (next(s[0] for s in order if s is not None) for order in (specs, specs[::-1]))
    bound, _ = op._bind_operands([x if _operands.is_number(x) and optional[i] else None for i, x in enumerate(inputs)], last)
    seen = [(first, ()) if _operands.is_number(x) and not optional[i] else specs[i] for i, x in enumerate(inputs)]
    bound._infer(seen, next(iter(_device_types(op).values()), 1))
    i = next(i for i, spec in enumerate(specs) if spec is not None and spec[0] in _NARROWED)
    dtype = specs[i][0]
    raise ValueError(
        f"{op.op}: {op.inputs[i].rstrip('?')} has dtype {dtype}; expected {_NARROWED[dtype]}, or jax_enable_x64: else JAX has no {dtype}"
    )


def _prepared(op, inputs):
    first = next((x for x in inputs if isinstance(x, jax.Array)), None)
    if first is None:
        raise TypeError(f"{op.op}: no input is an array of JAX")
    optional = [name.endswith("?") for name in op.inputs]
    if not all(x is None or isinstance(x, jax.Array) or _operands.is_number(x) for x in inputs):
        inputs = [x.resolve_neg() if not isinstance(x, jax.Array) and hasattr(x, "resolve_neg") else x for x in inputs]  # of torch
        specs = op._checked(tuple(None if isinstance(x, jax.Array) or _operands.is_number(x) else x for x in inputs))
        if not _config.jax_enable_x64 and any(spec is not None and spec[0] in _NARROWED for spec in specs):
            _refuse_narrowed(op, inputs, specs)
    inputs = _as_their_neighbours(op, inputs)
    inputs = [
        x
        if x is None or (_operands.is_number(x) and optional[i])
        else jnp.asarray(op._number(i, x, str(first.dtype)), first.dtype)
        if _operands.is_number(x)
        else _array(op, i, x)
        for i, x in enumerate(inputs)
    ]
    if any(_operands.is_number(x) for x in inputs if x is not None):
        last = [x for x in inputs if isinstance(x, jax.Array)][-1]
        return op._bind_operands(inputs, str(last.dtype))
    return op, inputs


def _as_their_neighbours(op, inputs):
    """Numbers that JAX has made arrays of (an argument of a jitted function, a loop's counter) get the dtype that numbers get."""
    weak = [isinstance(x, jax.Array) and x.ndim == 0 and _is_weak(x) for x in inputs]
    like = [x for x, w in zip(inputs, weak, strict=True) if isinstance(x, jax.Array) and not w][-1:]
    if not any(weak) or not like or like[0].dtype == bool:  # bool: the condition of `where`
        return inputs
    dtype = like[0].dtype
    for i, (x, w) in enumerate(zip(inputs, weak, strict=True)):
        if w and jnp.issubdtype(x.dtype, jnp.floating) and not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"{op.op}: {op.inputs[i].rstrip('?')} is a number of {x.dtype} beside {dtype} operands; expected an integer"
            )
    return [jax.lax.convert_element_type(x, dtype) if w else x for x, w in zip(inputs, weak, strict=True)]


def _is_weak(x):
    """Whether JAX would let other operands say the dtype; of a complex number that would lose its imaginary part."""
    kind = jnp.issubdtype(x.dtype, jnp.integer) or jnp.issubdtype(x.dtype, jnp.floating)
    return kind and x.weak_type


def _is_foreign(x):
    """An array of another framework on a GPU, whose streams are not JAX's."""
    if x is None or isinstance(x, jax.Array) or _operands.is_number(x):
        return False
    return hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] != 1


def _call(op, inputs, out, device):
    """A call with an input of JAX."""
    if out is not None:
        raise TypeError(f"{op.op}: JAX's arrays cannot be written to; leave out= away")
    return _ordered(op, inputs)


def _ordered(op, inputs, donate=()):
    """A call after which an array of another framework on a GPU may be written to again."""
    if len(inputs) > len(op.inputs):
        raise TypeError(f"{op.op} takes {len(op.inputs)} tensors; {len(inputs)} were given")
    foreign = any(map(_is_foreign, inputs))
    if foreign and any(isinstance(x, jax.core.Tracer) for x in inputs):
        raise ValueError(f"{op.op}: an array of another framework on a GPU while JAX traces; expected jax.numpy.from_dlpack of it")
    op, prepared = _prepared(op, inputs)
    result = _run(op, prepared, donate)
    return jax.block_until_ready(result) if foreign else result


def call(op: "str | _narrows.Op", *inputs: Any, donate: int | Sequence[int] = (), **params: Any) -> Any:
    """The op of that name, or an Op, on JAX's arrays; ``donate``: index or indices of inputs whose memory the outputs may take.

    >>> import jax.numpy as jnp, narrows.jax
    >>> narrows.jax.call("elementwise", jnp.ones(2), jnp.ones(2), function="add")
    Array([2., 2.], dtype=float32)
    """
    op = _ops.op(op, **params) if isinstance(op, str) else op.bind(**params)
    return _ordered(op, inputs, (donate,) if isinstance(donate, int) else tuple(donate))
