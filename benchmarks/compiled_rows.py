# SPDX-License-Identifier: Apache-2.0
"""Rows of python_calls.py: what a call costs inside torch.compile, beside torch's op of the same work in the same graph."""

import pathlib
import sys

import narrows


def compiled(torch, ours, theirs, *arguments):
    """Both, compiled and called once."""
    found = {"torch": torch.compile(theirs, fullgraph=True), "narrows": torch.compile(ours, fullgraph=True)}
    for call in found.values():
        call(*arguments)
    return found


def compiled_rows(torch, device="cpu"):
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    where, how = ("", {}) if device == "cpu" else (" on CUDA", {"sync": torch.cuda.synchronize})
    a, b, c = (torch.rand(4, 4, device=device) for _ in range(3))
    large = [torch.rand(1 << 20, device=device) for _ in range(3)]
    x, w = torch.rand(1, 4, 32, device=device), torch.rand(4, 4, 3, device=device)
    chain = lambda a, b, c: narrows.clip(narrows.add(narrows.multiply(a, b), narrows.relu(c)), 0.25, 1.5)  # noqa: E731
    theirs = lambda a, b, c: torch.clamp(a * b + torch.relu(c), 0.25, 1.5)  # noqa: E731
    add = lambda a, b: narrows.add(a, b)  # noqa: E731
    rows = {
        "add": (add, lambda a, b: a + b, a, b),
        "exp": (lambda a: narrows.exp(a), lambda a: a.exp(), a),
        "a chain of 4": (chain, theirs, a, b, c),
        "a chain of 4, 1M elements": (chain, theirs, *large),
        "conv1d": (lambda x, w: narrows.conv1d(x, w), lambda x, w: torch.nn.functional.conv1d(x, w), x, w),
    }
    for name, (ours, other, *arguments) in rows.items():
        yield f"torch.compile {name}{where}, goal 1.1", compiled(torch, ours, other, *arguments), tuple(arguments), how


def compiled_gpu_rows(torch):
    """The same on CUDA; the last is replayed by a CUDA graph."""
    yield from compiled_rows(torch, "cuda")
    a, b = (torch.rand(4, 4, device="cuda") for _ in range(2))
    calls = {"torch": lambda a, b: torch.exp(a + b), "narrows": lambda a, b: narrows.exp(narrows.add(a, b))}
    calls = {name: torch.compile(f, fullgraph=True, mode="reduce-overhead") for name, f in calls.items()}
    for call in [*calls.values()] * 3:  # warms up, records, replays
        call(a, b)
    yield "torch.compile reduce-overhead on CUDA, goal 1.1", calls, (a, b), {"sync": torch.cuda.synchronize}


def silero_rows(torch):
    """A chunk of silero-vad by examples/silero_vad.py, which needs the package silero-vad."""
    torch.set_grad_enabled(False)
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))  # ahead of the package, which has the same name
    import silero_vad as example

    network = example.SileroVAD(example.package_model())
    inputs = torch.randn(1, example.CHUNK + example.CONTEXT) / 50, torch.zeros(2, 1, example.STATE)
    compiled_network = torch.compile(network, fullgraph=True)
    compiled_network(*inputs)
    yield "silero-vad chunk, compiled, goal 1.0", {"eager": network, "narrows": compiled_network}, inputs
