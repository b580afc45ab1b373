# SPDX-License-Identifier: Apache-2.0
"""Arrays of dtypes that no op has, by every way into a call: an error that names the argument, its dtype and what was expected, and nothing
is written. float8 and less, bits, complex numbers, times, objects, records."""

import re
import warnings

import numpy as np
import pytest

import narrows

REFUSALS = (TypeError, ValueError, NotImplementedError, BufferError)


def refused(call, argument, dtype):
    """The call raises words of the library's own."""
    with pytest.raises(REFUSALS) as error:
        call()
    text = str(error.value)
    assert re.search(dtype, text) and "expected" in text, text
    assert argument is None or any(words in text for words in (f": {argument}: ", f": {argument} ", f" {argument} has ")), text


NUMPY = ["complex64", "complex128", "longdouble", "M8[s]", "m8[s]", "O", "S3", "U3", "V4", [("a", "f4")]]
SMALL = ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float6_e2m3fn", "float4_e2m1fn", "int4", "uint4", "int2"]


def numpy_array(name):
    if isinstance(name, str) and name in SMALL:
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed; ./run check python installs it")
        if not hasattr(ml_dtypes, name):
            pytest.skip(f"this ml_dtypes has no {name}")
        name = getattr(ml_dtypes, name)
    return np.zeros(2, name)


@pytest.mark.parametrize("name", [*NUMPY, *SMALL], ids=str)
def test_numpy(name):
    x, good = numpy_array(name), np.ones(2, "float32")
    dtype, kept = re.escape(str(x.dtype)), x.copy()
    for device in ({}, {"device": "cpu"}):
        refused(lambda d=device: narrows.add(x, x, **d), "a", dtype)
        refused(lambda d=device: narrows.add(good, x, **d), "b", dtype)
        refused(lambda d=device: narrows.add(x, 1, **d), "a", dtype)
        refused(lambda d=device: narrows.subtract(1, x, **d), None, dtype)
        refused(lambda d=device: narrows.add(good, 1, out=x, **d), "out", dtype)
        refused(lambda d=device: narrows.conv1d(good, x, **d), "w", dtype)
    refused(lambda: narrows.from_dlpack(x), None, dtype)
    refused(lambda: narrows.astype(good, x.dtype), "dtype", "astype: dtype = ")
    refused(lambda: narrows.empty(2, x.dtype), None, "dtype")
    assert x.tobytes() == kept.tobytes()


TORCH = ["complex64", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2", "bits8", "bits16", "bits1x8",
         "uint1", "uint4", "uint7", "int1", "int4", "int7"]  # fmt: skip


@pytest.mark.parametrize("name", TORCH)
def test_torch(name):
    torch = pytest.importorskip("torch", reason="torch is not installed; ./run check python installs it")
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    x, good = torch.zeros(2, dtype=torch.uint8).repeat(8)[:16].view(torch.int64).view(getattr(torch, name))[:2], torch.ones(2)
    grad, negated = torch.ones(2, requires_grad=True), torch._neg_view(torch.ones(2))
    dtype = name.replace("_x2", "_?x2|2 lanes")  # two elements in a byte
    refused(lambda: narrows.add(x, x), "a", dtype)
    refused(lambda: narrows.add(good, x), "b", dtype)
    refused(lambda: narrows.add(np.ones(2, "float32"), x), "b", dtype)
    refused(lambda: narrows.add(x, 1), None, dtype)
    refused(lambda: narrows.subtract(1, x), None, dtype)
    refused(lambda: narrows.add(grad, x), "b", dtype)
    refused(lambda: narrows.add(negated, x), "b", dtype)
    refused(lambda: narrows.add(good, 1, out=x), "out", dtype)
    refused(lambda: narrows.add(negated, 1, out=x), "out", dtype)
    refused(lambda: narrows.conv1d(good, x), "w", dtype)
    refused(lambda: torch.ops.narrows.elementwise(x, x, function="add"), "a", dtype)
    refused(lambda: narrows.add(x.to("meta"), x.to("meta")), "a", dtype)
    refused(lambda: torch.vmap(lambda a: narrows.add(a, a))(x), "a", dtype)
    refused(lambda: narrows.from_dlpack(x), None, dtype)
    refused(lambda: narrows.astype(good, x.dtype), "dtype", "astype: dtype = ")


@pytest.mark.parametrize("name", ["complex64", "float8_e4m3fn"])
def test_torch_compile(name):
    torch = pytest.importorskip("torch", reason="torch is not installed; ./run check python installs it")
    x = torch.zeros(2, dtype=getattr(torch, name))
    for call in (lambda a: narrows.add(a, a), lambda a: narrows.subtract(1, a), lambda a: narrows.conv1d(torch.ones(2), a)):
        with pytest.raises(Exception, match=f"has dtype {name}; expected"):  # torch's own class
            torch.compile(call, backend="aot_eager", fullgraph=True)(x)


@pytest.mark.parametrize("name", ["complex64", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "uint4", "int2", "key"])
def test_jax(name):
    jax = pytest.importorskip("jax", reason="JAX is not installed; ./run check python installs it")
    import narrows.jax

    jnp = jax.numpy
    try:
        x = jax.random.split(jax.random.key(0)) if name == "key" else jnp.zeros(2, name)
    except TypeError:
        pytest.skip(f"this JAX has no {name}")
    good, dtype = jnp.ones(2), "key<fry>" if name == "key" else name
    refused(lambda: narrows.add(x, x), "a", dtype)
    refused(lambda: narrows.add(good, x), "b", dtype)
    refused(lambda: narrows.add(x, 1), None, dtype)
    refused(lambda: narrows.subtract(1, x), None, dtype)
    refused(lambda: narrows.conv1d(good, x), "w", dtype)
    refused(lambda: jax.jit(lambda a: narrows.add(a, a))(x), "a", dtype)
    refused(lambda: jax.vmap(lambda a: narrows.add(a, a))(x), "a", dtype)
    refused(lambda: jax.grad(lambda a: narrows.add(a, x).sum())(good), "b", dtype)
    refused(lambda: narrows.jax.call("elementwise", x, x, function="add"), "a", dtype)
    if name != "key":  # which exports nothing
        refused(lambda: narrows.add(np.ones(2, "float32"), x), "b", dtype)
        refused(lambda: narrows.from_dlpack(x), None, dtype)


def test_a_complex_number_that_jax_has_made_an_array_of():
    """JAX calls it weak, as the numbers that take the other operands' dtype; its imaginary part would be lost."""
    jax = pytest.importorskip("jax", reason="JAX is not installed; ./run check python installs it")
    good = jax.numpy.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(lambda: jax.jit(lambda z: narrows.add(good, z))(1j), "b", "complex64")
        refused(lambda: jax.jit(lambda z: narrows.subtract(z, good))(1j), None, "complex64")


@pytest.mark.parametrize(
    "dtype, name",
    [
        (np.longlong, "int64"),
        (np.ulonglong, "uint64"),
        (np.dtype("longlong"), "int64"),
        (np.bool_, "bool"),
        (type("bool_", (), {}), "bool"),
    ],
    ids=str,
)
def test_names_of_numpys_own(dtype, name):
    """bool_: as NumPy's before 2 calls itself."""
    assert narrows.astype(np.ones(2, "int8"), dtype).dtype == name and narrows.empty(2, dtype).dtype == name
