# SPDX-License-Identifier: Apache-2.0
"""A user's program, for type checkers: what each call gives, and which calls are wrong. It is checked and never run: `./run check python`
gives it to mypy and pyright, and a wrong call that either lets pass is an error there."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from types import SimpleNamespace
from typing import Any, assert_type

import jax
import narrows
import narrows.jax
import narrows.torch
import numpy as np
import torch
from narrows.program import PrimFunc, Schedule
from narrows.program import script as T


def functions(x: torch.Tensor, y: "np.ndarray[Any, Any]", t: narrows.Tensor, stream: narrows.Stream) -> None:
    assert_type(narrows.exp(x), torch.Tensor)
    assert_type(narrows.add(x, 2, out=x, stream=stream, backend="cpu", kernel="scalar", deterministic=True), torch.Tensor)
    assert_type(narrows.subtract(2, t), narrows.Tensor)
    assert_type(narrows.add(t, y), narrows.Tensor)
    assert_type(narrows.where(narrows.greater(x, 0), x, 0.5), torch.Tensor)
    assert_type(narrows.fma(2, x, 1), torch.Tensor)
    assert_type(narrows.clip(x, min=0, out=x), torch.Tensor)
    assert_type(narrows.clip(2, None, t), narrows.Tensor)
    assert_type(narrows.elu(x, alpha=0.5, device="cpu"), torch.Tensor)
    assert_type(narrows.conv1d(x, x, padding="same"), torch.Tensor)
    assert_type(narrows.conv1d(x, x, stride=(2,), padding=(1, 0), dilation=[3]), torch.Tensor)
    assert_type(narrows.lltm(x, x, x, x, x), tuple[torch.Tensor, torch.Tensor])
    assert_type(narrows.lltm(x, x, x, x, x, out=(x, x)), tuple[torch.Tensor, torch.Tensor])
    assert_type(narrows.lltm(x, x, x, x, x, out=[x, x]), tuple[torch.Tensor, torch.Tensor])
    assert_type(narrows.astype(t, "int8"), narrows.Tensor)


def ops(x: torch.Tensor) -> None:
    bound = narrows.op("conv1d", stride=2)
    assert_type(bound, narrows.Op)
    bound(x, x, dilation=2, kernel="direct")
    assert_type(bound.bind(stride=3).params, dict[str, Any])
    assert_type(narrows.ops["vendor.name/1"], narrows.Op)
    assert_type(list(narrows.ops), list[str])
    assert_type(narrows.load_inline("mine", "source"), SimpleNamespace)
    assert_type(narrows.build(["a.cpp", "b.c"], flags=["-g"]), str)


def memory(x: torch.Tensor) -> None:
    t = narrows.empty((2, 3), "float16", narrows.Device("cuda", 1), narrows.Stream("cuda:1"))
    assert_type(t.to("cpu", stream=None), narrows.Tensor)
    assert_type(t.shape, tuple[int, ...])
    assert_type(torch.from_dlpack(t), torch.Tensor)
    assert_type(narrows.from_dlpack(x, "cpu", copy=True).device.id, int)


def what_is_there(x: torch.Tensor) -> None:
    info = narrows.info()
    assert_type(info["abi"], int)
    backend = info["backends"][0]
    assert_type(backend["ops"][0]["kernels"], list[str])
    assert_type(backend["shadowed"], bool)
    assert_type(backend["devices"][0]["total_memory"], int)
    assert_type(narrows.Device("cpu").info["arch"], str)
    times = narrows.bench({"torch": torch.exp, "narrows": narrows.exp}, x)
    assert_type(times["torch"] / times["narrows"], float)
    info["backend"]  # type: ignore
    backend["device"]  # type: ignore
    narrows.bench(3)  # type: ignore


def frameworks(x: torch.Tensor, a: jax.Array) -> None:
    cell = narrows.torch.LLTM(3, 5, dtype=torch.float64)
    assert_type(cell.forward(x, (x, x)), tuple[torch.Tensor, torch.Tensor])
    convolution: torch.nn.Conv1d = narrows.torch.Conv1d(2, 4, 3, padding="same")
    convolution(x)
    narrows.jax.call("elementwise", a, 1, function="add", donate=(0,))
    assert_type(narrows.add(a, 1), jax.Array)


def wrong(x: torch.Tensor) -> None:
    narrows.add(x)  # type: ignore
    narrows.add(x, x, streams=1)  # type: ignore
    narrows.add(x, x, backend=3)  # type: ignore
    narrows.exp(x, x)  # type: ignore
    narrows.op(3)  # type: ignore
    print(narrows.nothing)  # type: ignore
    narrows.Device([])  # type: ignore
    narrows.torch.LLTM("3", 5)  # type: ignore


def programs(f: PrimFunc, x: torch.Tensor) -> None:
    schedule = Schedule(f)
    loops = schedule.get_loops(schedule.get_block("Y"))
    outer, inner = schedule.split(loops[0], factors=[None, 8])
    schedule.reorder(inner, outer)
    schedule.parallel(8)  # type: ignore[arg-type]
    assert_type(schedule.build(), narrows.Op)
    assert_type(schedule.mod["f"], PrimFunc)
    assert_type(schedule.evaluate(x, x).seconds, float)
    assert_type(T.prim_func(functions), PrimFunc)
