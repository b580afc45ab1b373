"""A batch of calls as one call, for vmap of torch and JAX: which axis of each tensor the batch may join.

An element-wise op takes a leading axis as it is, by its declaration. conv1d and lltm have a batch of their own, which the new axis joins where it
maps over nothing else; where it maps over filters too, or their gradients are wanted, a convolution becomes one of more groups. What is left
(a plugin's op, weights of an lltm) is one call for each.
"""

# {tensor: (rank, axis that the batch joins)}; None: one for all, and of a rank of its own. The cheaper way comes first.
_SIGNALS = (
    dict.fromkeys(("x", "y", "grad_x", "grad_y"), (3, 0))
    | dict.fromkeys(("w", "grad_w"), (3, None))
    | dict.fromkeys(("bias", "grad_bias"), (1, None))
)
_GROUPS = (
    dict.fromkeys(("x", "y", "grad_x", "grad_y"), (3, 1))
    | dict.fromkeys(("w", "grad_w"), (3, 0))
    | dict.fromkeys(("bias", "grad_bias"), (1, 0))
)
_CELLS = dict.fromkeys(
    ("input", "old_h", "old_cell", "new_h", "new_cell", "gates", "grad_h", "grad_cell", "d_input", "d_old_h", "d_old_cell"), (2, 0)
) | dict.fromkeys(("weights", "bias", "d_weights", "d_bias"), (None, None))
_WAYS = {"conv1d": (_SIGNALS, _GROUPS), "conv1d_backward": (_SIGNALS, _GROUPS), "lltm": (_CELLS,), "lltm_backward": (_CELLS,)}


class Way:
    """(rank, axis) of each input and output; `grouped`: there are so many times the groups."""

    def __init__(self, op, axes):
        self.inputs = [axes[name.rstrip("?")] for name in op.inputs]
        self.outputs = [axes[name.rstrip("?")] for name in op.outputs]
        self.grouped = axes is _GROUPS

    def fits(self, batched, wanted):
        """Whether every input that is mapped over, and every output that is wanted, has an axis for the batch."""
        mapped = all(axis is not None for (_, axis), b in zip(self.inputs, batched, strict=True) if b)
        return mapped and all(axis is not None for j, (_, axis) in enumerate(self.outputs) if wanted >> j & 1)


def has_way(op):
    """Whether batches of the op may be one call."""
    return op.op in _WAYS


def find_way(op, batched, wanted):
    """The Way of a batch that maps over these inputs; None: one call for each."""
    ways = (Way(op, axes) for axes in _WAYS.get(op.op, ()))
    return next((way for way in ways if way.fits(batched, wanted)), None)


def joined(shape, rank, axis):
    """Shapes on the way of a tensor whose first axis is the batch: with the rank's leading ones, and, the batch moved to `axis`, merged."""
    size, example = shape[0], tuple(shape[1:])
    example = (1,) * (rank - len(example)) + example
    return (size, *example), (*example[:axis], size * example[axis], *example[axis + 1 :])


def parted(shape, axis, size):
    """The shape of an output whose `axis` holds the batch, with an axis of its own for it ahead of that."""
    return (*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :])
