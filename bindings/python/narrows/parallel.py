# SPDX-License-Identifier: Apache-2.0
"""torch: plans for torch.distributed.tensor.parallel.parallelize_module, of narrows.torch.Conv1d and LLTM.

    parallelize_module(model, mesh, {"first": narrows.parallel.Filters(), "second": narrows.parallel.Channels()})

``Filters`` then ``Channels`` is one sum over the devices for two layers: what lies between them is split by channels.
"""

import functools
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

import narrows.torch
from narrows import _errors, _functions

__all__ = ["Channels", "Filters", "Groups", "States"]

_CHANNELS = Shard(-2)  # of (N, C, L) and of (C, L)


def __getattr__(name):
    raise _errors.attribute(__name__, name, __dir__())


def __dir__():
    return [*__all__, "__doc__"]


class _Convolution(ParallelStyle):
    """How the parameters lie, and what a call wants of its input and gives."""

    _weight: Placement
    _bias: Placement
    _input: Placement
    _output: Placement

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        """``input_layouts``: how a plain tensor lies that is given as input. ``output_layouts``: how the output is to lie.
        ``use_local_output``: whether that is each device's part as a plain tensor, else a DTensor."""
        super().__init__()
        self.input_layouts = input_layouts or self._input
        self.output_layouts = output_layouts or self._output
        self.use_local_output = use_local_output

    def _check(self, module: Any, mesh: DeviceMesh) -> None:
        """ValueError: the module's filters cannot be split so."""

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        _require(self, module, narrows.torch.Conv1d)
        self._check(module, device_mesh)
        take: Any = self._take
        return distribute_module(module, device_mesh, self._partition, take, self._give)

    def _partition(self, _, module, mesh):
        for name, placement in (("weight", self._weight), ("bias", self._bias)):
            _distribute(self, module, name, mesh, placement)

    def _take(self, module, inputs, mesh):
        x, *others = inputs
        shape = list(x.shape)
        if any(self.input_layouts.is_shard(d) for d in (-2, x.dim() - 2)):
            shape[-2] = module.in_channels  # which the devices' parts alone do not say where they are uneven
            x = _laid(x, mesh, self.input_layouts, shape)
        return (_laid(x, mesh, self.input_layouts).redistribute(mesh, [self._input]), *others)

    def _give(self, _, output, mesh):
        output = output.redistribute(mesh, [self.output_layouts])
        return output.to_local() if self.use_local_output else output


class Filters(_Convolution):
    """Each device has some of the filters: it reads the whole input, and gives their channels. Nothing is communicated forward; the
    gradient of the input is a sum. Of one group."""

    _weight, _bias, _input, _output = Shard(0), Shard(0), Replicate(), _CHANNELS

    def _check(self, module, mesh):
        _require_groups(self, module, module.groups == 1, "1; Groups splits others")


class Channels(_Convolution):
    """Each device has some channels of the input, and of each filter those: the outputs are summed. Of one group."""

    _weight, _bias, _input, _output = Shard(1), Replicate(), _CHANNELS, Replicate()

    def _check(self, module, mesh):
        _require_groups(self, module, module.groups == 1, "1; Groups splits others")


class Groups(_Convolution):
    """Each device has some of the groups, with their channels and filters. Nothing is communicated."""

    _weight, _bias, _input, _output = Shard(0), Shard(0), _CHANNELS, _CHANNELS

    def _check(self, module, mesh):
        _require_groups(self, module, module.groups % mesh.size() == 0, f"a multiple of the {mesh.size()} devices")


class States(ParallelStyle):
    """Of an LLTM: each device has some of the states, with the rows of the weights that give them, and its part of old_h, old_cell, new_h
    and new_cell. In each step old_h is gathered, and nothing else.

    ``weights`` becomes (3, S, S + F) and ``bias`` (3, S), both split along S: that is what a checkpoint has, too.
    """

    def __init__(self, *, input_layouts: Placement | None = None, use_local_output: bool = True) -> None:
        """``input_layouts``: how a plain tensor lies that is given as input. ``use_local_output``: whether the new states are each
        device's part as plain tensors, else DTensors. Plain tensors that are given as states are such parts."""
        super().__init__()
        self.input_layouts = input_layouts or Replicate()
        self.use_local_output = use_local_output

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        _require(self, module, narrows.torch.LLTM)
        with torch.no_grad():
            known: Any = module
            gates, features = (3, known.state_size), known.input_features + known.state_size
            for name, shape in (("weights", (*gates, features)), ("bias", gates)):
                whole = getattr(module, name)
                module.register_parameter(name, torch.nn.Parameter(whole.reshape(shape), requires_grad=whole.requires_grad))
                _distribute(self, module, name, device_mesh, Shard(1))
        module.forward = functools.partial(self._step, module, device_mesh)
        return module

    def _step(self, module, mesh, input, state):
        shape = len(state[0]), module.state_size
        old_h, old_cell = (_laid(x, mesh, Shard(1), shape) for x in state)
        whole_h = old_h.redistribute(mesh, [Replicate()])
        read = _laid(input, mesh, self.input_layouts).redistribute(mesh, [Replicate()])
        # Each device reads all of these for its own states, so what it gives back is a part of their gradients.
        read = torch.cat([x.to_local(grad_placements=[Partial()]) for x in (whole_h, read)], 1)
        weights, bias = module.weights.to_local(), module.bias.to_local()
        own = weights.shape[1]
        # The op reads old_h as the first columns of what the weights multiply, and nowhere else: as many as it has states.
        h, cell = _functions.lltm(
            read[:, own:], weights.flatten(0, 1), bias.flatten(), read[:, :own], old_cell.redistribute(mesh, [Shard(1)]).to_local()
        )
        if self.use_local_output:
            return h, cell
        return _laid(h, mesh, Shard(1), shape), _laid(cell, mesh, Shard(1), shape)


def _laid(x, mesh, placement, shape=None):
    """A plain tensor as each device's part of one of that shape; None: of parts of one size."""
    if isinstance(x, DTensor):
        return x
    known: Any = {} if shape is None else {"shape": torch.Size(shape), "stride": torch.empty(shape, device="meta").stride()}
    return DTensor.from_local(x, mesh, [placement], run_check=False, **known)


def _distribute(style, module, name, mesh, placement):
    """Puts each device's part of a parameter in its place; one that is None stays so."""
    whole = getattr(module, name)
    if whole is not None:
        part = distribute_tensor(whole, mesh, [placement], src_data_rank=style.src_data_rank)
        module.register_parameter(name, torch.nn.Parameter(part, requires_grad=whole.requires_grad))


def _require(style, module, expected):
    if not isinstance(module, expected):
        name = type(style).__name__
        raise TypeError(f"{name}: the module is {type(module).__name__}; expected narrows.torch.{expected.__name__}")


def _require_groups(style, module, is_right, expected):
    if not is_right:
        raise ValueError(f"{type(style).__name__}: the module has groups = {module.groups}; expected {expected}")
