# SPDX-License-Identifier: Apache-2.0
"""libnarrows_torch: saved models in programs without Python and in processes without the package; what it and the package say of models
and libraries that do not fit."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import zipfile

import pytest

import narrows

torch = pytest.importorskip("torch")
HERE = pathlib.Path(__file__).parents[1]
LIB = pathlib.Path(narrows.__file__).parent / "lib"
NEW = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
needs_library = pytest.mark.skipif(not NEW, reason="the library needs torch 2.10")
needs_two = pytest.mark.skipif(narrows.get_num_threads() < 2, reason="a call may use one thread here")


def run(command, **environment):
    """What a command prints; nothing on stderr."""
    clean = {k: v for k, v in os.environ.items() if k != "NARROWS_PLUGIN_PATH"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**clean, **environment}, timeout=300)
    # What torch 2.14 says where there is a CUDA Toolkit and no GPU is no matter of ours.
    said = [line for line in done.stderr.splitlines() if "No CUDA runtime is found" not in line]
    assert (done.returncode, said) == (0, []), done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def python(code, **environment):
    warnings = "-W", "error::RuntimeWarning", "-W", "ignore:`torch.jit:FutureWarning"  # torch 2.14 would have others save by export
    return run([sys.executable, *warnings, "-c", textwrap.dedent(code)], **environment)


def compile_cpp(source, output, *flags):
    subprocess.run(["c++", "-std=c++20", "-w", str(source), "-o", str(output), *map(str, flags)], check=True)
    return output


# ---- models in other processes ----

SAVE = """
import torch, narrows, narrows.torch
from narrows import _programs
from narrows.program import PrimFunc
SHIFTED = '''program 1 shifted(x: f32[l, m, n], y: out f32[l, m, n], by: param f32 = 1.5, times: param i64 = 1):
  for i in l:
    for j in m:
      for k in n:
        block y(vi: S(l) = i, vj: S(m) = j, vk: S(n) = k):
          y[vi, vj, vk] = x[vi, vj, vk] * f32(times) + by
'''
class Input(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.rand(3, 2, 8))
    def forward(self):
        return self.x
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = narrows.torch.Conv1d(2, 4, 3, padding="same")
        self.shifted: str = _programs.saved(PrimFunc(SHIFTED).build(gradient=True).op)
    def forward(self, x):
        x = torch.ops.narrows.program([x], self.shifted, integers=[3], reals=[0.5])[0]
        return torch.ops.narrows.elementwise(self.conv(x), function="pow", b_real=2.0)
class Scaled(torch.nn.Module):
    def forward(self, x):
        return torch.ops.narrows.test_scale_1(x, factor=3.0)
given, model, scaled = Input(), Model().requires_grad_(False), Scaled()
for name, module in (("input", given), ("model", model), ("scaled", scaled)):
    torch.jit.script(module).save(f"{name}.pt")
program = torch.export.export(model, (given.x,))
torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
print(model(given.x).sum().item(), scaled(given.x).sum().item())
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory, scale_folder):
    """A folder with models, and the sums of their outputs; the plugin of one of them lies in its folder "plugins"."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "plugins").symlink_to(scale_folder)
    (folder / "save.py").write_text(SAVE)
    environment = {**os.environ, "NARROWS_PLUGIN_PATH": str(folder / "plugins"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, "save.py"], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return folder, list(map(float, done.stdout.split()))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """tests/python/programs/torch_models.cpp, linked with torch alone, and with the library before torch."""
    folder, root = tmp_path_factory.mktemp("programs"), pathlib.Path(torch.__file__).parent
    include = root / "include"
    headers = [f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"]
    compiled = compile_cpp(HERE / "programs" / "torch_models.cpp", folder / "models.o", "-c", *headers)
    libraries = [f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    ours = ["-Wl,--no-as-needed", LIB / "libnarrows_torch.so", f"-Wl,-rpath-link,{LIB}", f"-Wl,-rpath,{LIB}"]
    alone = compile_cpp(compiled, folder / "alone", *libraries)
    return {
        "loaded": [alone, LIB / "libnarrows_torch.so"],
        "linked": [compile_cpp(compiled, folder / "linked", *ours, *libraries), ""],
    }


@needs_library
@pytest.mark.parametrize("way", ["loaded", "linked"])
def test_a_program_without_python_runs_models(saved, programs, way):
    folder, (model, scaled) = saved
    command = [*programs[way], folder / "input.pt", folder / "model.pt", folder / "model.pt2"]
    assert list(map(float, run(command).split())) == pytest.approx([model, model], abs=1e-4)
    printed = run([*command, folder / "scaled.pt"], NARROWS_PLUGIN_PATH=str(folder / "plugins"))
    assert list(map(float, printed.split())) == pytest.approx([model, model, scaled], abs=1e-4)


@needs_library
def test_python_without_the_package_and_then_with_it(saved):
    folder, (model, _) = saved
    printed = python(f"""
        import sys, torch
        import torch._inductor.codecache  # torch 2.10 uses it without this line
        torch.ops.load_library(r"{LIB / "libnarrows_torch.so"}")
        conv1d = torch.ops.narrows.conv1d
        x = torch.jit.load(r"{folder}/input.pt")()
        print(torch.jit.load(r"{folder}/model.pt")(x).sum().item(), torch._inductor.aoti_load_package(r"{folder}/model.pt2")(x).sum().item())
        assert "narrows" not in sys.modules
        import narrows
        assert torch.ops.narrows.conv1d is conv1d
        torch.ops.load_library(narrows.torch.library_path())
        x.requires_grad_()
        torch.jit.load(r"{folder}/model.pt")(x).sum().backward()
        print(x.grad.abs().sum().item() > 0)
    """)
    assert list(map(float, printed.split()[:2])) == pytest.approx([model, model], abs=1e-4) and printed.split()[2] == "True"


@needs_library
def test_plugins_that_are_loaded_later(saved):
    folder, (_, scaled) = saved
    printed = python(f"""
        import ctypes, torch
        library = ctypes.CDLL(r"{LIB / "libnarrows_torch.so"}")
        assert library.nw_torch_register(None) == 0
        narrows, runtime = ctypes.CDLL(r"{LIB / "libnarrows.so.1"}"), ctypes.c_void_p()
        assert narrows.nw_runtime_default(ctypes.byref(runtime), None) == 0
        assert narrows.nw_load(runtime, rb"{folder}/plugins/narrows_scale.so", None) == 0
        assert library.nw_torch_register(None) == 0
        print(torch.jit.load(r"{folder}/scaled.pt")(torch.jit.load(r"{folder}/input.pt")()).sum().item())
    """)
    assert float(printed) == pytest.approx(scaled, abs=1e-4)


@needs_library
@needs_two
def test_the_library_follows_torchs_number_of_threads():
    assert (
        python(f"""
        import os, torch
        torch.ops.load_library(r"{LIB / "libnarrows_torch.so"}")
        x, call = torch.ones(1 << 18), torch.ops.narrows.elementwise
        def started(threads):
            torch.set_num_threads(threads)
            before = len(os.listdir("/proc/self/task"))
            for _ in range(3):
                call(x, function="exp")
            return len(os.listdir("/proc/self/task")) - before
        print(started(1), started(2))
    """)
        == "0 1\n"
    )


# ---- models that do not fit ----


@pytest.fixture(scope="module")
def future(tmp_path_factory):
    """A folder with models of a narrows that has an op and an argument more."""
    folder = tmp_path_factory.mktemp("future")
    (folder / "save.py").write_text(
        textwrap.dedent("""
        import torch
        library = torch.library.Library("narrows", "DEF")
        for schema in ("conv1d(Tensor x, Tensor w, *, float future=0.) -> Tensor", "later_op(Tensor x) -> Tensor"):
            library.define(schema)
            name = schema.partition("(")[0]
            torch.library.register_fake(f"narrows::{name}", lambda x, *_, **__: torch.empty_like(x), lib=library)
        class Argument(torch.nn.Module):
            def forward(self, x):
                return torch.ops.narrows.conv1d(x, x, future=2.0)
        class Op(torch.nn.Module):
            def forward(self, x):
                return torch.ops.narrows.later_op(x)
        for name, model in (("argument", Argument()), ("op", Op())):
            torch.jit.script(model).save(name + ".script.pt")
            torch.export.save(torch.export.export(model, (torch.ones(1, 1, 1),)), name + ".exported.pt2")
        """)
    )
    subprocess.run([sys.executable, "save.py"], cwd=folder, check=True, capture_output=True)
    for name, node in {"argument": {"target": "narrows::conv1d", "inputs": [{"name": "future", "arg": {"as_float": 2.0}}]},
                       "op": {"target": "narrows::later_op", "inputs": []}}.items():  # fmt: skip
        with zipfile.ZipFile(folder / f"{name}.compiled.pt2", "w") as archive:  # what torch writes beside the code
            archive.writestr("data/aotinductor/model/a.wrapper.json", json.dumps({"nodes": [{"name": "buf0", "node": node}]}))
    return folder


LOADERS = {
    "script.pt": lambda path: torch.jit.load(path),
    "exported.pt2": lambda path: torch.export.load(path),
    "compiled.pt2": lambda path: importlib.import_module("torch._inductor").aoti_load_package(path),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_model_of_a_newer_narrows(future, kind):
    with pytest.raises(RuntimeError, match=r"gives narrows::conv1d an argument 'future'; narrows \d[\d.]+ has none of that name"):
        LOADERS[kind](str(future / f"argument.{kind}"))
    with pytest.raises(
        RuntimeError, match=r"no op 'later_op': it is none of narrows [0-9.]+, and no loaded plugin declares it. Plugins were"
    ):
        LOADERS[kind](str(future / f"op.{kind}"))


def test_a_model_in_memory_is_looked_at_too(future):
    with open(future / "op.exported.pt2", "rb") as file, pytest.raises(RuntimeError, match="no op 'later_op'"):
        torch.export.load(file)


def test_torchs_own_errors_stay(tmp_path):
    (tmp_path / "a.pt2").write_text("no model")
    for load in LOADERS.values():
        with pytest.raises(Exception) as error:
            load(str(tmp_path / "a.pt2"))
        assert "narrows" not in str(error.value)


# ---- libraries that do not fit: no torch is imported here ----

REGISTER = f"""
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
error = ctypes.create_string_buffer(512)
status = ctypes.CDLL(r"{LIB / "libnarrows_torch.so"}").nw_torch_register(error)
print(status, error.raw[16:].split(b"\\0")[0].decode())
"""


def registered(*libraries):
    """What the library says beside these: what it prints when it is loaded, and when it is asked."""
    done = subprocess.run([sys.executable, "-c", REGISTER, *map(str, libraries)], check=True, capture_output=True, text=True)
    return done.stderr, done.stdout.strip()


def other_library(folder, name, source):
    (folder / "other.cpp").write_text(source)
    return compile_cpp(folder / "other.cpp", folder / name, "-shared", "-fPIC", f"-Wl,-soname,{name}")


def test_no_torch():
    assert registered() == ("", "3 there is no libtorch in this process; expected torch 2.10 or later, loaded before")


def test_a_torch_without_the_shims_symbols(tmp_path):
    older = other_library(
        tmp_path, "libtorch_cpu.so", 'extern "C" unsigned long aoti_torch_abi_version() { return 2ul << 56 | 9ul << 48; }'
    )
    message = "torch 2.9 has no symbol aoti_torch_library_init_fragment; expected torch 2.10 or later"
    assert registered(older) == (f"narrows: error: libnarrows_torch: {message}\n", f"2 {message}")


def test_another_libnarrows(tmp_path):
    names = "find_op infer launch op_at plan_get plan_release run runtime_default".split()
    source = 'extern "C" { const char* nw_version() { return "9.9.9"; } ' + " ".join(f"void nw_{n}() {{}}" for n in names) + " }"
    message = f"this process has libnarrows 9.9.9; expected {narrows.info()['version']}"
    assert registered(other_library(tmp_path, "libnarrows.so.1", source)) == (
        f"narrows: error: libnarrows_torch: {message}\n",
        f"2 {message}",
    )
