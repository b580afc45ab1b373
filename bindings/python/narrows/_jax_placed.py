# SPDX-License-Identifier: Apache-2.0
"""JAX: a call split over the devices where its arrays are, and batched under jax.vmap."""

import functools

from narrows import _batching, _jax_batching, _jax_call, _jax_sharding


def run(call, aliases, *arrays):
    """The outputs; split where the op may be, else of whole arrays."""
    axes = frozenset().union(*map(_jax_sharding.varying, arrays))
    return _jax_sharding.vary(_placed(call, aliases, *arrays), axes)


def _placed(call, aliases, *arrays):
    split = _jax_sharding.may_be_split(call.op)
    # jax.shard_map of a JAX that has no sharding rules knows no custom_vmap: there XLA's own call is batched.
    if not split and not (_jax_sharding.HAS_RULES and _batching.has_way(call.op)):
        return _jax_call.run(call, aliases, *arrays)

    def place(levels, arrays):  # what jax.jit was told of donated arrays is enough for XLA
        one = lambda c: functools.partial(_jax_call.run, c, ())  # noqa: E731
        run = lambda c, *parts: _jax_batching.run_batch(c, levels, one, parts)  # noqa: E731
        return _jax_sharding.split(call, levels, run, arrays) if split else run(call, *arrays)

    batched = _jax_batching.with_batches(call, place, functools.partial(run, call, ()))
    return _jax_sharding.with_types(call, batched, arrays)
