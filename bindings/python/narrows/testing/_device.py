# SPDX-License-Identifier: Apache-2.0
"""Checks on a device that is not the CPU: by NumPy's arrays, whose memory goes there and comes back."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

import narrows
from narrows import _narrows
from narrows.testing import _arguments, _backward, _compare, _numpy
from narrows.testing._run import Run
from narrows.testing._subject import Case, Subject

_ALIGNMENT = 256  # of memory on a device


def named(devices: Any) -> list[narrows.Device]:
    """The devices; ValueError: one is none, or not here."""
    given = _arguments.several("devices", devices, (str, narrows.Device))
    for k, d in enumerate(given):
        if not isinstance(d, (str, narrows.Device)):
            raise TypeError(f"check_op: devices[{k}] = {d!r}; expected a device, as 'cpu'")
    found = [narrows.Device(d) for d in given]
    here = narrows.devices()
    for device in found:
        if device not in here:
            raise ValueError(f"check_op: devices has '{device}'; here are {', '.join(map(str, here))}")
    if not found:
        raise ValueError("check_op: devices is empty; expected at least one")
    return found


def check(
    run: Run, subject: Subject, cases: Sequence[Case], sizes: Sequence[int], gradients: bool, strict: bool, device: narrows.Device
) -> None:
    usable = _numpy.usable_cases(run, cases)
    _numpy.check_calls(run, OnDevice(subject, device), usable, sizes, strict, str(device))
    for case in usable if gradients else ():
        if any(map(_compare.is_float, case.dtypes)):
            run.check(f"gradient: {device}; {case}", _gradient, subject, case, device)


def check_refused(run: Run, subject: Subject, case: Case, refused: Sequence[Any], device: narrows.Device) -> None:
    _numpy.check_refused(run, OnDevice(subject, device), case, refused, str(device))


class OnDevice(Subject):
    """The subject, whose op computes on a device. Arrays keep their strides there, and what lies around them; so do outputs."""

    device: narrows.Device

    def __init__(self, subject: Subject, device: narrows.Device):
        self.__dict__ = {**subject.__dict__, "device": device, "device_type": device.type}

    def __call__(self, arrays: Sequence[Any], case: Case, out: Any = None, **how: Any) -> list[Any]:
        blocks: dict[int, _Block] = {}

        def placed(x: Any) -> Any:
            if x is None:
                return None
            owner = x
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if owner.ctypes.data not in blocks:
                blocks[owner.ctypes.data] = _Block(owner, self.device)
            return blocks[owner.ctypes.data].view(x)

        inputs = [placed(x) for x in arrays]
        if out is None:
            made = self.op(*inputs, **dict(case.params), **how)
            results = [None if y is None else y.numpy() for y in (made if isinstance(made, tuple) else (made,))]
        else:
            results = list(out) if isinstance(out, tuple) else [out]
            outputs = tuple(map(placed, results))
            self.op(*inputs, **dict(case.params), **how, out=outputs if isinstance(out, tuple) else outputs[0])
        for block in blocks.values():
            block.bring()
        return results


class _Block:
    """The memory of an array, and a copy of it on a device, as far from a multiple of the alignment as it is here."""

    def __init__(self, owner: Any, device: narrows.Device):
        self._owner, self._ahead = owner, owner.ctypes.data % _ALIGNMENT
        memory = (ctypes.c_uint8 * owner.nbytes).from_address(owner.ctypes.data)
        self._here = np.frombuffer(memory, np.uint8) if owner.nbytes else np.empty(0, np.uint8)
        self._there: Any = narrows.from_dlpack(np.concatenate([np.zeros(self._ahead, np.uint8), self._here]), device, copy=True)

    def view(self, x: Any) -> Any:
        """The array on the device."""
        begin = self._ahead + x.ctypes.data - self._owner.ctypes.data if x.size else 0
        strides = tuple(s // x.itemsize for s in x.strides)
        return self._there._strided(x.dtype.name, x.shape, strides, begin)

    def bring(self) -> None:
        """What the device has, into the array's own memory."""
        now = self._there.numpy()[self._ahead :]
        if not np.array_equal(now, self._here):
            self._here[:] = now


def _gradient(subject: Subject, case: Case, device: narrows.Device) -> None:
    """The backward op, given what bindings give it."""

    def sent(arrays: Sequence[Any]) -> list[Any]:
        return [None if x is None else narrows.from_dlpack(x, device) for x in arrays]

    arrays, weights = subject.arrays(case), subject.weights(case, subject.expected(case))
    op, inputs = subject.op.bind(**dict(case.params)), sent(arrays)
    outputs = _outputs(op, inputs, device)
    backward = _narrows._op_from_blob(op.backward, op.blob, op.backward)
    given = [*sent(weights), *_backward.saved(op, backward, inputs, outputs)]
    gradients = [None if g is None else g.numpy() for g in _outputs(backward, given, device)]
    subject.compare_derivatives(gradients, subject.derivatives(case, arrays, weights), case, 1)


def _outputs(op: Any, inputs: Sequence[Any], device: narrows.Device) -> list[Any]:
    specs = op._infer([None if x is None else (x.dtype, x.shape) for x in inputs], device.type)
    outputs = [None if s is None else narrows.empty(s[1], s[0], device) for s in specs]
    op(*inputs, out=tuple(outputs) if len(outputs) > 1 else outputs[0])
    return outputs
