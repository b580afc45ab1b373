# SPDX-License-Identifier: Apache-2.0
"""NumPy's own DLPack tests, as its wheel ships them: every array goes through narrows.Tensor on its way, and again with narrows.Tensor
as the producer itself. What differs is named here, with the reason."""

import types

import numpy as np
import pytest

theirs = pytest.importorskip("numpy._core.tests.test_dlpack", reason="this NumPy is older than 2 or came without its tests")

import narrows  # noqa: E402

if not hasattr(theirs.TestDLPack, "test_device"):
    pytest.skip("this NumPy's DLPack tests are others than those adapted here (2.1 and newer)", allow_module_level=True)


class NumpyThroughNarrows(types.ModuleType):
    """numpy, but from_dlpack takes the way over narrows.from_dlpack."""

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def from_dlpack(x, /, **keywords):
        return np.from_dlpack(narrows.from_dlpack(x), **keywords)  # the flags, copies and versions are the tensor's own export


class NumpyOfTensors(NumpyThroughNarrows):
    """Arrays are narrows.Tensor from the start."""

    @staticmethod
    def arange(*arguments):
        return narrows.from_dlpack(np.arange(*arguments), copy=True)

    @staticmethod
    def from_dlpack(x, /, **keywords):
        return np.from_dlpack(x, **keywords)

    @staticmethod
    def may_share_memory(x, y):
        return np.may_share_memory(np.from_dlpack(x), y)


class TestThrough(theirs.TestDLPack):
    """NumPy -> narrows.Tensor -> NumPy."""

    @pytest.fixture(autouse=True)
    def through_narrows(self, monkeypatch):
        monkeypatch.setattr(theirs, "np", NumpyThroughNarrows("numpy"))

    @pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64])  # fmt: skip
    @pytest.mark.parametrize("arr", theirs.new_and_old_dlpack())
    def test_dtype_passthrough(self, arr, dtype):
        x = arr.astype(dtype)
        y = theirs.np.from_dlpack(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(x, y)

    def test_writeable(self):
        """NumPy takes what the old protocol gives as read-only; we as what it says, which is nothing: only a read-only array may not be
        exported by it."""
        for x in theirs.new_and_old_dlpack():
            assert theirs.np.from_dlpack(x).flags.writeable

    def test_complex_numbers_are_refused(self):
        with pytest.raises(NotImplementedError, match="has dtype complex64; expected"):
            narrows.from_dlpack(np.zeros(2, "complex64"))

    @pytest.mark.parametrize("ndim", range(17))
    def test_higher_dims(self, ndim):
        assert theirs.np.from_dlpack(np.zeros((1,) * ndim)).shape == (1,) * ndim

    @pytest.mark.parametrize("ndim", range(17, 33))
    def test_more_dimensions_are_refused(self, ndim):
        with pytest.raises(ValueError, match=f"{ndim} dimensions"):
            narrows.from_dlpack(np.zeros((1,) * ndim))


class TestOf:
    """narrows.Tensor -> NumPy: those tests that make their array by arange(n) and look at its methods."""

    dlpack_deleter_exception = theirs.TestDLPack.dlpack_deleter_exception
    test_dunder_dlpack_refcount = theirs.TestDLPack.test_dunder_dlpack_refcount
    test_dunder_dlpack_copy = theirs.TestDLPack.test_dunder_dlpack_copy
    test_dlpack_destructor_exception = theirs.TestDLPack.test_dlpack_destructor_exception
    test_copy = theirs.TestDLPack.test_copy
    test_device = theirs.TestDLPack.test_device

    def test_dunder_dlpack_stream(self):
        """NumPy 2.5 raises ValueError there, before it was RuntimeError."""
        x = NumpyOfTensors.arange(5)
        x.__dlpack__(stream=None)
        with pytest.raises(RuntimeError, match="stream = 1"):
            x.__dlpack__(stream=1)

    @pytest.fixture(autouse=True)
    def of_tensors(self, monkeypatch):
        monkeypatch.setattr(theirs, "np", NumpyOfTensors("numpy"))
