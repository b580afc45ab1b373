# SPDX-License-Identifier: Apache-2.0
"""CuPy: its current stream, and outputs in its own arrays. Written by CuPy's and DLPack's specification."""

import cupy

from narrows import _narrows


def current_stream(device_id):
    """CuPy's current stream on that device; its handle is ``ptr``."""
    with cupy.cuda.Device(device_id):
        return cupy.cuda.get_current_stream()


def import_tensor(tensor):
    """A cupy.ndarray over a tensor that was made on CuPy's current stream: nothing has to wait."""
    return cupy.from_dlpack(_OnSameStream(tensor))


class _OnSameStream:
    """A producer that is told to order nothing."""

    def __init__(self, tensor: _narrows.Tensor):
        self._tensor = tensor

    def __dlpack__(self, *, stream=None, **keywords):
        return self._tensor.__dlpack__(stream=-1, **keywords)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()
