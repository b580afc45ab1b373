"""What the tests of torch share: the device that each runs on, and inputs."""

import torch

import present

torch.set_num_threads(1)


DEVICES = present.of_torch(torch)


def on_device(name):
    """What a module's autouse fixture `device` yields from: each test runs on each of DEVICES, where torch makes its tensors then."""
    if name == "cpu":
        yield name
        return
    torch.set_default_device(name)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # torch's own results are the reference
        yield name
    torch.set_default_device(None)


def double(*shape, low=0.2, high=0.9):
    return (torch.rand(*shape, dtype=torch.float64) * (high - low) + low).requires_grad_()


def cells(*batch, dtype=torch.float32):
    """Inputs of lltm: for each of a batch an input and a state of its own, the parameters shared."""
    shapes = (*batch, 2, 3), (12, 7), (12,), (*batch, 2, 4), (*batch, 2, 4)
    return [torch.randn(*s, dtype=dtype) for s in shapes]
