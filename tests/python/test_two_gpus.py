# SPDX-License-Identifier: Apache-2.0
"""Two NVIDIA GPUs in one process, by number: each framework's arrays on the second one, while the first stays the current one; results stay
where the arrays are; copies between both. Skipped where there is one. tests/cuda/two_devices.cpp asks the same of the C API."""

import numpy as np
import pytest

import narrows
import present

if not present.GPU or "cuda:1" not in map(str, narrows.devices()):
    pytest.skip("the cuda backend has no two GPUs here", allow_module_level=True)

X = np.linspace(-2, 2, 4096, dtype="float32")


@pytest.mark.parametrize("current", [0, 1])
def test_torch(torch, current):
    torch.cuda.set_device(current)
    try:
        for device in ("cuda:1", "cuda:0", "cuda:1"):
            x, w = torch.randn(2, 4, 50, device=device), torch.randn(3, 4, 5, device=device, requires_grad=True)
            y = narrows.conv1d(x, w)
            assert y.device == x.device and torch.cuda.current_device() == current
            torch.testing.assert_close(y, torch.nn.functional.conv1d(x, w), rtol=1e-4, atol=1e-4)
            y.sum().backward()  # by a thread of autograd's
            assert w.grad.device == x.device and torch.cuda.current_device() == current
            ours, w.grad = w.grad, None
            torch.nn.functional.conv1d(x, w).sum().backward()
            torch.testing.assert_close(ours, w.grad, rtol=1e-4, atol=1e-4)
    finally:
        torch.cuda.set_device(0)


def test_torchs_stream_is_that_of_the_tensors_device(torch):
    x = torch.zeros(4096, device="cuda:1")
    narrows.add(x, 1)  # all is loaded now
    torch.cuda.synchronize(1)
    stream = torch.cuda.Stream(1)
    with torch.cuda.stream(stream):  # which makes the second device the current one
        torch.cuda._sleep(400_000_000)
        x.fill_(1)
        with torch.cuda.device(0):
            y = narrows.add(x, 1)
        assert not stream.query() and torch.cuda.default_stream(1).query()
    stream.synchronize()
    assert y.device == x.device and bool((y == 2).all())


def test_tensors_of_two_devices_are_refused(torch):
    near, far = (torch.ones(4, device=f"cuda:{i}") for i in range(2))
    with pytest.raises((ValueError, RuntimeError), match="device"):
        narrows.add(near, far)
    assert bool((near == 1).all()) and bool((far == 1).all())


def test_torchs_tensors_of_either_device_are_viewed(torch):
    for device in ("cuda:1", "cuda:0"):
        x = torch.arange(4.0, device=device)
        assert str(narrows.from_dlpack(x).device) == device and torch.cuda.current_device() == 0
        np.testing.assert_array_equal(narrows.from_dlpack(x).numpy(), [0, 1, 2, 3])


def test_narrows_tensors_go_from_one_to_the_other():
    near = narrows.from_dlpack(X, "cuda:0")
    far = near.to("cuda:1")
    doubled = narrows.add(far, far)
    assert str(doubled.device) == "cuda:1"
    back = doubled.to("cuda:0")
    assert str(back.device) == "cuda:0"
    np.testing.assert_array_equal(back.numpy(), 2 * X)
    np.testing.assert_array_equal(narrows.add(near, near).numpy(), 2 * X)


def test_copies_wait_for_what_their_source_waits_for(torch):
    """A tensor of torch's whose stream is busy, into memory of ours on the other device."""
    x = torch.zeros(1 << 20, device="cuda:0")
    target = narrows.empty((1 << 20,), "float32", "cuda:1")
    for _ in range(2):  # all is loaded the second time
        x.zero_()
        torch.cuda._sleep(200_000_000)
        x.fill_(3)
        target._copy_from(x)
        assert (target.numpy() == 3).all()


def test_cupy(cupy):
    with cupy.cuda.Device(1):
        x = cupy.asarray(X)
    for current in (0, 1):
        with cupy.cuda.Device(current):
            y = narrows.exp(x)
            assert y.device.id == 1 and cupy.cuda.Device().id == current
        with cupy.cuda.Device(1):
            np.testing.assert_allclose(cupy.asnumpy(y), np.exp(X), rtol=1e-6)


def test_jax(jax):
    devices = jax.devices("cuda")
    for device in (devices[1], devices[0], devices[1]):
        x = jax.device_put(X, device)
        for y in (narrows.exp(x), jax.jit(narrows.exp)(x)):
            assert y.devices() == {device}
            np.testing.assert_allclose(np.asarray(y), np.exp(X), rtol=1e-6)
