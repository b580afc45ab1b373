# SPDX-License-Identifier: Apache-2.0
"""Calls alike are launched by a plan that the op remembers. What differs between them without being remembered are addresses: each test makes
some calls that go through, and then one that only its addresses tell from them."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import narrows
import present

try:
    import torch
except ImportError:
    torch = None

PLUGINS = pathlib.Path(__file__).parent / "plugins"


def of_numpy(count):
    """Zeros whose first lies at a multiple of 256 bytes, so that alignments do not tell calls apart."""
    memory = np.zeros(count + 64, "float32")
    first = -memory.ctypes.data % 256 // 4
    return memory[first : first + count]


@pytest.fixture(params=["numpy", *(present.of_torch(torch) if torch else ())])
def floats(request):
    def of_torch(count):
        memory = torch.zeros(count + 64, device=request.param)
        first = -memory.data_ptr() % 256 // 4
        return memory[first : first + count]

    return of_numpy if request.param == "numpy" else of_torch


def call_some(call, calls=4):
    for _ in range(calls):
        call()


def test_outputs_that_overlap_an_input_in_part(floats):
    call_some(lambda: narrows.add(floats(128), 1, out=floats(128)))
    memory = floats(256)
    for begin, end in ((64, 192), (0, 128)):
        other = 64 - begin
        with pytest.raises(ValueError, match=r"out of shape \(128,\) .* overlaps a of shape \(128,\)"):
            narrows.add(memory[begin:end], 1, out=memory[other : other + 128])
    assert not memory.any()


def test_two_outputs_that_overlap(floats):
    def cell(new_h, new_cell):
        x, w, b, h, c = floats(64), floats(192 * 128), floats(192), floats(64), floats(64)
        out = new_h.reshape(1, 64), new_cell.reshape(1, 64)
        narrows.lltm(x.reshape(1, 64), w.reshape(192, 128), b, h.reshape(1, 64), c.reshape(1, 64), out=out)

    call_some(lambda: cell(floats(64), floats(64)))
    memory = floats(128)
    cell(memory[:64], memory[64:])
    with pytest.raises(ValueError, match=r"new_cell .*overlaps new_h|new_h .*overlaps new_cell"):
        cell(memory[:64], memory[:64])


def test_an_output_that_is_an_input(floats):
    out = floats(128)
    call_some(lambda: narrows.add(floats(128), 1, out=out))
    narrows.add(out, 1, out=out)
    narrows.subtract(out, out, out=out)
    assert not out.any()


def test_outputs_that_interleave_with_an_input(floats):
    call_some(lambda: narrows.add(floats(256)[::2], 1, out=floats(256)[::2]))
    memory = floats(256)
    narrows.add(memory[::2], 1, out=memory[1::2])
    assert not memory[::2].any() and (memory[1::2] == 1).all()


def test_an_output_that_is_written_backwards():
    x = np.arange(128, dtype="float32")
    call_some(lambda: narrows.add(of_numpy(192)[63:191], 1, out=of_numpy(192)[191:63:-1]))
    memory = of_numpy(384)
    with pytest.raises(ValueError, match="overlaps a"):
        narrows.add(memory[63:191], 1, out=memory[255:127:-1])
    memory[63:191] = x
    narrows.add(memory[63:191], 1, out=memory[383:255:-1])
    np.testing.assert_array_equal(memory[383:255:-1], x + 1)


def test_operands_that_are_broadcast(floats):
    one = floats(1)
    one += 1
    widened = (lambda x: np.broadcast_to(x, 128)) if isinstance(one, np.ndarray) else (lambda x: x.expand(128))
    wide = widened(one)
    call_some(lambda: narrows.add(wide, 1, out=floats(128)))
    memory = floats(128)
    with pytest.raises(ValueError, match="overlaps a"):
        narrows.add(widened(memory[127:]), 1, out=memory)


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_outputs_that_are_allocated_lie_anywhere(name):
    pytest.importorskip(name)
    script = f"""
import {name} as module, narrows
narrows.load(narrows.build({str(PLUGINS / "bare.c")!r}))
aligned = narrows.op("test.aligned/1")
kept = []
for i in range(300):
    kept.append(module.zeros(i % 23, dtype=module.uint8))  # moves the next one
    kept.append(aligned(module.zeros(40, dtype=module.float32) + i))
print(all((found == i + 1).all() for i, found in enumerate(kept[1::2])))
"""
    environment = os.environ | {"BARE_DEVICE": "1"}  # a process of its own, whose CPU has a plugin more
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_frameworks_in_turn():
    x = np.ones(40, "float32")
    for _ in range(6):
        for given in (x, torch.from_numpy(x), narrows.from_dlpack(x)):
            found = narrows.add(given, 1)
            assert type(found) is type(given) and (np.asarray(found) == 2).all()
            out = np.empty_like(x)
            assert narrows.add(given, 1, out=out) is out and (out == 2).all()


def test_a_call_that_fails_again_and_again(floats):
    """What cannot be planned says so each time, beside calls of other shapes that go through."""
    for _ in range(4):
        with pytest.raises(ValueError, match="shape"):
            narrows.add(floats(128), 1, out=floats(127))
        narrows.add(floats(127), 1, out=floats(127))


def test_a_plugin_that_is_loaded_gets_calls_that_were_planned_without_it():
    script = f"""
import numpy, narrows
x = numpy.ones(4, "float32")
out = numpy.empty_like(x)
for _ in range(4):
    narrows.add(x, x, out=out)
    narrows.add(x, x)
narrows.load(narrows.build({str(PLUGINS / "bare.c")!r}))
for given in ({{"out": out}}, {{}}):
    try:
        narrows.add(x, x, **given)
    except RuntimeError as error:
        print(error)
"""
    environment = os.environ | {"BARE_DEVICE": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("it was asked for a plan") == 2, done.stdout
