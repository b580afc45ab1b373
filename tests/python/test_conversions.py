# SPDX-License-Identifier: Apache-2.0
"""narrows.Tensor in the hands of NumPy's, torch's and JAX's own conversions: the same values, shape and dtype, or an error; never bytes."""

import array

import numpy as np
import pytest

import narrows

torch = pytest.importorskip("torch")
jnp = pytest.importorskip("jax.numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

DTYPES = ["float32", "float16", "bfloat16", "int16", "int32", "uint8", "bool"]
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "of every second": lambda x: x[::2, 1::2],
    "backwards": lambda x: x[::-1],
    "broadcast": lambda x: np.broadcast_to(x[0], (3, 6)),
    "of one element": lambda x: x[1, 1],
    "of no element": lambda x: x[:0],
    "of an axis of 1": lambda x: x[:, 2:3],
}
CONVERSIONS = {
    "numpy.asarray": np.asarray,
    "numpy.array": np.array,
    "numpy.stack": lambda t: np.stack([t, t])[1],
    "numpy.from_dlpack": lambda t: np.from_dlpack(t),
    "torch.asarray": torch.asarray,
    "torch.as_tensor": torch.as_tensor,
    "torch.tensor": torch.tensor,
    "torch.from_dlpack": torch.from_dlpack,
    "jax.numpy.asarray": jnp.asarray,
    "jax.numpy.array": jnp.array,
    "jax.numpy.stack": lambda t: jnp.stack([jnp.asarray(t)] * 2)[1],
}


def tensor(dtype, layout):
    """A narrows.Tensor of that layout over NumPy's memory, and the array."""
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    base = np.arange(24).reshape(4, 6).astype(dtype)
    x = LAYOUTS[layout](base)
    x = x if isinstance(x, np.ndarray) else base[1:2, 1].reshape(())
    return narrows.from_dlpack(x), x


def as_numpy(y):
    y = y.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if getattr(y, "dtype", None) is torch.bfloat16 else y
    return np.asarray(y)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_keeps_everything(name, dtype, layout):
    if layout == "broadcast" and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("before 2.1 NumPy exports no read-only memory")
    if name == "numpy.from_dlpack" and dtype == "bfloat16":
        pytest.skip("NumPy reads no bfloat16 by DLPack")
    if name.startswith("torch") and layout == "backwards":
        pytest.skip("torch ends the process at negative strides, NumPy's own too")
    t, x = tensor(dtype, layout)
    y = as_numpy(CONVERSIONS[name](t))
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("name", ["numpy.asarray", "torch.asarray", "torch.as_tensor", "jax.numpy.asarray"])
def test_a_conversion_copies_nothing(name):
    t = narrows.empty((16, 16))
    narrows.add(t, t, out=t)
    y = CONVERSIONS[name](t)
    address = {"n": lambda: y.ctypes.data, "t": lambda: y.data_ptr(), "j": lambda: y.unsafe_buffer_pointer()}[name[0]]()
    assert address == t.data_ptr
    del t
    assert y.shape == (16, 16)


@pytest.mark.parametrize("function, dtype", [(np.asarray, "float64"), (np.array, "int8"), (jnp.asarray, jnp.float16)])
def test_another_dtype(function, dtype):
    t, x = tensor("float32", "transposed")
    np.testing.assert_array_equal(np.asarray(function(t, dtype=dtype)), x.astype(dtype))


def test_another_dtype_of_torch():
    t, x = tensor("int16", "of every second")
    for function in (torch.asarray, torch.as_tensor, torch.tensor):
        y = function(t, dtype=torch.float64)
        assert y.dtype == torch.float64
        np.testing.assert_array_equal(y.numpy(), x)


@pytest.mark.parametrize(
    "reads_bytes",
    [
        lambda t: np.frombuffer(t, "float32"),
        lambda t: np.ndarray((2,), "float32", t),
        lambda t: torch.frombuffer(t, dtype=torch.float32),
        lambda t: jnp.frombuffer(t, "float32"),
        memoryview,
        bytes,
        bytearray,
        float,
        int,
        lambda t: array.array("f", t),
    ],
)
def test_nobody_reads_the_bytes_alone(reads_bytes):
    """float() of a buffer parses it as text: of bytes that spell a number it gave that number."""
    t = narrows.from_dlpack(np.frombuffer(b"12345678", "uint8").copy())
    with pytest.raises((TypeError, ValueError)):
        reads_bytes(t)


def test_a_tensor_is_neither_true_nor_false():
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(narrows.from_dlpack(np.zeros(1, "float32")))


def test_read_only_stays():
    x = np.arange(3, dtype="float32")
    x.flags.writeable = False
    t = narrows.from_dlpack(jnp.asarray(x))
    assert t.read_only and not np.asarray(t).flags.writeable and not t.numpy().flags.writeable
    assert t.__array_interface__["data"] == (t.data_ptr, True)
    y = jnp.asarray(t)  # JAX imports no read-only memory: a copy
    assert y.unsafe_buffer_pointer() != t.data_ptr
    np.testing.assert_array_equal(y, x)


def test_a_device_that_jax_has_not():
    tensor = narrows.from_dlpack(FromMetal())
    with pytest.raises(TypeError, match=r"the tensor is on metal:0, where JAX has no arrays; expected one of \.to\('cpu'\)"):
        jnp.asarray(tensor)
    with pytest.raises(TypeError, match=r"the tensor is on metal:0, not on the CPU; expected \.numpy"):
        np.asarray(tensor)


class FromMetal:
    """Memory that says it is Metal's: nobody reads it."""

    def __dlpack__(self, **_):
        from test_bad_input import fake_capsule

        return fake_capsule(device=(8, 0))

    def __dlpack_device__(self):
        return 8, 0
