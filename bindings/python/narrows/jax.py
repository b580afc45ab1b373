# SPDX-License-Identifier: Apache-2.0
"""JAX: every op as a jitted call of one XLA handler, with grad and vmap from its declaration.

``narrows.add`` and the others come here for JAX arrays and tracers. ``call`` is the same for an op by name, with ``donate``.
Nothing is read in Python: XLA hands the buffers to the handler, on its stream, with its own scratch memory.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from narrows import _device, _errors, _jax_call, _jax_derivatives, _jax_sharding, _narrows, _operands, _ops, _xla

__all__ = ["call", "disabled_checks"]  # noqa: F822 # of __getattr__


def __getattr__(name):
    """``disabled_checks``: for jax.export.export, which exports only those targets of custom calls that it is told of. Made when it is
    asked for: jax.export of some versions needs packages that JAX itself does not."""
    if name != "disabled_checks":
        raise _errors.attribute(__name__, name, __dir__())
    from jax import export

    return globals().setdefault(name, tuple(map(export.DisabledSafetyCheck.custom_call, _xla.TARGETS)))


def __dir__():
    return [*__all__, "__doc__"]


@functools.lru_cache(4096)
def _jitted(call, aliases, donated):
    def run(*arrays):  # under shard_map, where some may differ from device to device and some not, all are taken to differ
        return _jax_derivatives.run(
            call, aliases, *_jax_sharding.vary(arrays, frozenset().union(*map(_jax_sharding.varying, arrays)))
        )

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
    call = _jax_call.Call(op, present, (1 << main) - 1)
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
        raise _operands.no_array(op, i, x)
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
    bound._infer(seen, next(iter(_jax_call.device_types(op).values()), 1))
    i = next(i for i, spec in enumerate(specs) if spec is not None and spec[0] in _NARROWED)
    dtype = specs[i][0]
    raise ValueError(
        f"{op.op}: {op.inputs[i].rstrip('?')} has dtype {dtype}; expected {_NARROWED[dtype]}, or jax_enable_x64: else JAX has no {dtype}"
    )


def _prepared(op, inputs):
    first = next((x for x in inputs if isinstance(x, jax.Array)), None)
    if first is None:
        raise TypeError(f"{op.__name__}: no input is an array of JAX; expected one, as jax.numpy.asarray(x) gives")
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
        tensors = "1 tensor" if len(op.inputs) == 1 else f"{len(op.inputs)} tensors"
        raise TypeError(f"{op.__name__} takes {tensors}; {len(inputs)} were given")
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
    bound: Any = _ops.op(op, **params) if isinstance(op, str) else op.bind(**params)
    bound._refuse_replaced()
    return _ordered(bound, inputs, (donate,) if isinstance(donate, int) else tuple(donate))
