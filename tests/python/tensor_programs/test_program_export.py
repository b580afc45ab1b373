# SPDX-License-Identifier: Apache-2.0
"""Exported programs: plugins that another process loads, with no compiler to be found; and what is said where one cannot be."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import narrows
from narrows.program import PrimFunc, Schedule
from narrows.program import script as T

TEXTS = pathlib.Path(__file__).parents[3] / "examples" / "programs"


@T.prim_func
def scaled(
    x: T.Buffer(("n", "m"), "float32"),
    y: T.Buffer(("n", "m"), "float32"),
    alpha: T.float32 = 1.5,
    bias: T.Buffer(("m",), "float32") = None,
):
    for i, j in T.grid(*x.shape):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.tanh(x[vi, vj]) * alpha + T.if_then_else(T.present(bias), bias[vj], 0.0)


def elsewhere(folder, code, *before, **environment):
    """Runs code in a process that finds plugins in the folder, and no program to start."""
    found = {k: v for k, v in os.environ.items() if k not in ("PATH", "CC")}
    return subprocess.run(
        [*before, sys.executable, "-c", textwrap.dedent(code)],
        env={**found, "NARROWS_PLUGIN_PATH": str(folder), "PATH": str(folder / "nothing"), **environment},
        capture_output=True,
        text=True,
    )


def values(folder, code, **environment):
    ran = elsewhere(folder, "import numpy as np, narrows\n" + textwrap.dedent(code), **environment)
    assert ran.returncode == 0, ran.stderr
    return np.load(folder / "result.npz")


def test_another_process_without_a_compiler_has_the_same_values(tmp_path):
    scaled.export(tmp_path / "narrows_mine.so")
    x, bias = np.random.default_rng(1).standard_normal((2, 40, 40), dtype="float32")
    np.savez(tmp_path / "given.npz", x=x, bias=bias[0])
    got = values(
        tmp_path,
        """
        given = np.load(__import__("os").environ["NARROWS_PLUGIN_PATH"] + "/given.npz")
        x, bias, f = given["x"], given["bias"], narrows.ops.mine.scaled
        assert f.op == "mine.scaled/1" and f.params == {"alpha": 1.5}, (f.op, f.params)
        folder = __import__("os").environ["NARROWS_PLUGIN_PATH"]
        np.savez(folder + "/result.npz", plain=f(x), with_bias=f(x, bias, alpha=-2), strided=f(x.T, bias), part=f(x[:7, ::3]))
        """,
    )
    f = scaled.build()
    for name, want in {
        "plain": f(x),
        "with_bias": f(x, bias[0], alpha=-2),
        "strided": f(x.T, bias[0]),
        "part": f(x[:7, ::3]),
    }.items():
        np.testing.assert_allclose(got[name], want, rtol=1e-6, atol=1e-6)


def test_gradients_are_exported_with_their_program(tmp_path):
    torch = pytest.importorskip("torch")
    function = PrimFunc((TEXTS / "softmax.program").read_text())
    function.export(tmp_path / "narrows_grad.so", "vendor.softmax/2", gradient=True)
    got = values(
        tmp_path,
        """
        import os, torch
        x = torch.linspace(-2, 3, 30).reshape(5, 6).requires_grad_()
        y = narrows.ops.vendor.softmax(x)
        (y * torch.arange(30.0).reshape(5, 6)).sum().backward()
        np.savez(os.environ["NARROWS_PLUGIN_PATH"] + "/result.npz", dx=x.grad.numpy())
        """,
    )
    x = torch.linspace(-2, 3, 30, dtype=torch.float64).reshape(5, 6).requires_grad_()
    (torch.softmax(x, 1) * torch.arange(30.0).reshape(5, 6)).sum().backward()
    np.testing.assert_allclose(got["dx"], x.grad, rtol=1e-4, atol=1e-6)


def test_a_schedule_is_exported_as_it_is(tmp_path):
    sch = Schedule(PrimFunc((TEXTS / "mm_relu.program").read_text()))
    sch.parallel(sch.get_loops("Y")[0])
    sch.export(tmp_path / "narrows_steps.so")
    a, b = np.random.default_rng(2).standard_normal((2, 128, 128), dtype="float32")
    narrows.load(tmp_path / "narrows_steps.so")
    want, before = np.maximum(a.astype("float64") @ b, 0), narrows.get_num_threads()
    try:
        for threads in (1, 2):
            narrows.set_num_threads(threads)
            np.testing.assert_allclose(narrows.ops.steps.mm_relu(a, b), want, rtol=1e-4, atol=1e-4)
    finally:
        narrows.set_num_threads(before)


def test_the_manifest_says_what_it_is_for(tmp_path):
    scaled.export(tmp_path / "narrows_mine.so")
    kept = json.loads((tmp_path / "narrows_mine.manifest.json").read_text())
    assert kept["exclusions"] == [] and len(kept["environments"]) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["narrows_mine.manifest.json", "narrows_mine.so"]


def conform(plugin, *arguments):
    command = pathlib.Path(narrows.__file__).parent / "bin" / "narrows"
    return subprocess.run([command, "conform", "--plugin", plugin, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("target", [None, "avx2", "baseline"])
def test_an_exported_file_conforms(tmp_path, target):
    export = f"""
        from narrows.program import PrimFunc
        PrimFunc({scaled.text!r}).export({str(tmp_path / "narrows_mine.so")!r})
    """
    if target == "avx2" and "avx2" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no avx2")
    environment = {**os.environ, **({"NARROWS_CPU_TARGET": target} if target else {})}
    made = subprocess.run([sys.executable, "-c", textwrap.dedent(export)], env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    ran = conform(tmp_path / "narrows_mine.so", "[own]")
    assert ran.returncode == 0 and "PASSED" in ran.stdout, ran.stdout + ran.stderr


def test_what_keeps_the_suite_from_starting_is_told_once(tmp_path):
    scaled.export(tmp_path / "narrows_mine.so")
    manifest = tmp_path / "narrows_mine.manifest.json"
    kept = json.loads(manifest.read_text())
    kept["environments"][0]["arch"] = "another one"
    manifest.write_text(json.dumps(kept))
    ran = conform(tmp_path / "narrows_mine.so", "[own]")
    assert ran.returncode != 0 and ran.stdout.count("not run: the suite ended") == 1, ran.stdout
    assert ran.stdout.count("expected 'another one") == 1, ran.stdout


def test_a_cpu_that_lacks_the_instructions_is_told(tmp_path):
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None or os.uname().machine != "x86_64":
        pytest.skip("there is no qemu-x86_64 to run a lesser CPU by")
    if narrows.Device("cpu").info["arch"].startswith(("SSE4", "baseline")):
        pytest.skip("this CPU has no instructions that the lesser one lacks")
    scaled.export(tmp_path / "narrows_mine.so")
    code = "import narrows; print([b['reason'] for b in narrows.info()['backends'] if b['name'] == 'mine'][0])"
    ran = elsewhere(tmp_path, code, emulator, "-cpu", "Nehalem")
    assert "mine: it was exported for avx" in ran.stdout and "this CPU lacks avx" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "path, name, message",
    [
        ("mine.so", None, "expected a file narrows_<name>.so"),
        ("no/folder/narrows_mine.so", None, "there is no folder"),
        ("narrows_cpu.so", None, "narrows_cpu.so', the file of a backend of Narrows; expected another name"),
        ("narrows_vulkan.so", None, "the file of a backend of Narrows"),
        ("narrows_mine.so", "mine", "expected one like 'vendor.name/1'"),
    ],
)
def test_bad_paths_and_names(tmp_path, path, name, message):
    with pytest.raises(ValueError, match=message):
        scaled.export(tmp_path / path, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("gradient", [8, -1])
def test_bad_gradients(tmp_path, gradient):
    for function in (scaled, Schedule(scaled)):
        with pytest.raises(ValueError, match=f"gradient = {gradient}; expected False, True, or"):
            function.export(tmp_path / "narrows_mine.so", gradient=gradient)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_stays(tmp_path):
    (tmp_path / "narrows_mine.so").write_text("mine")
    with pytest.raises(ValueError, match="is there already"):
        scaled.export(tmp_path / "narrows_mine.so")
    assert (tmp_path / "narrows_mine.so").read_text() == "mine"


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match="there is no C compiler: CC is 'no-such-compiler'"):
        scaled.export(tmp_path / "narrows_mine.so")
    assert not list(tmp_path.iterdir())


def test_a_backend_that_exports_nothing(tmp_path):
    with pytest.raises(NotImplementedError, match="'metal'"):
        Schedule(scaled).export(tmp_path / "narrows_mine.so", backend="metal")
