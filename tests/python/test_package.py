# SPDX-License-Identifier: Apache-2.0
"""The wheel: one for every CPython from 3.11, needing nothing, in an empty environment; and the examples."""

import os
import pathlib
import re
import struct
import subprocess
import sys
import sysconfig
import venv
import wave
import zipfile
import zlib

import pytest

import narrows

ROOT = pathlib.Path(__file__).parents[2]


def named_wheel(name):
    """The path that this variable of the environment holds, or ""."""
    return os.environ.get(name, "") and os.path.abspath(os.environ[name])


WHEEL = named_wheel("NARROWS_WHEEL")
needs_wheel = pytest.mark.skipif(not WHEEL, reason="NARROWS_WHEEL names no wheel: ./run check python makes one")


@needs_wheel
def test_what_the_wheel_holds():
    with zipfile.ZipFile(WHEEL) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    module, tags = "_narrows.abi3.so", "cp311-abi3"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):  # for this version alone
        module = "_narrows" + sysconfig.get_config_var("EXT_SUFFIX")
        tags = "cp{0}{1}-cp{0}{1}t".format(*sys.version_info)
    assert re.search(rf"narrows-[0-9.]+-{tags}-.*linux_\w+\.whl$", WHEEL)
    for name in (module, "lib/libnarrows.so.1", "lib/libnarrows_program.so.1", "lib/libnarrows_torch.so", "lib/libnarrows_xla.so",
                 "lib/narrows/backends/narrows_cpu.so", "bin/narrows", "py.typed",
                 "__init__.pyi", "include/narrows/plugin.h", "include/narrows/plugin.hpp", "include/narrows/xla.h", "include/dlpack/dlpack.h",
                 "include/narrows/plugin_base.hpp", "include/narrows/plugin_space.hpp", "include/narrows/plugin_cuda.hpp", "include/narrows/plugin_vulkan.hpp",
                 "include/narrows/kernel.glsl", "include/narrows/hip/cuda_runtime.h", "libexec/narrows/narrows-conform", "lib/libnarrows.so",
                 "lib/cmake/Narrows/NarrowsConfig.cmake", "lib/pkgconfig/narrows.pc", "skeleton/pyproject.toml"):  # fmt: skip
        assert f"narrows/{name}" in names
    extras = [f"Requires-Dist: narrows-{name}; extra == '{name}'" for name in ("cuda", "hip", "vulkan")]
    assert [line.replace('"', "'") for line in metadata.splitlines() if "Requires-Dist" in line] == extras


def licenses_in(wheel):
    """{the project's name: the text} of those that the wheel brings along."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if ".dist-info/licenses/LICENSES/" in n and not n.endswith("/")]
        return {pathlib.PurePath(n).stem: archive.read(n).decode() for n in names}


def fetched_libraries():
    """What the build takes from elsewhere, by the names of the texts."""
    recipe = (ROOT / "cmake" / "Fetch.cmake").read_text()
    return {name.lower() for name in re.findall(r"^ +narrows_fetch(?:_package)?\((\w+)", recipe, re.M)} | {"isl", "imath"}


def test_each_library_that_is_compiled_in_has_its_license_among_the_sources_and_a_line_in_the_docs():
    texts = {p.stem: p for p in [*(ROOT / "LICENSES").iterdir(), *(ROOT / "backends/vulkan/LICENSES").iterdir()]}
    assert fetched_libraries() >= {"highway", "sleef", "catch2"} and texts.keys() == fetched_libraries() | {"gmp", "volk"}
    page = (ROOT / "docs" / "licenses.md").read_text()
    assert set(re.findall(r"\| `(\w+)\.txt` \|$", page, re.M)) == texts.keys()
    for name, path in texts.items():
        assert re.search(r"^Copyright (\(c\) )?[12]\d\d\d|^Copyright [A-Z]", path.read_text(), re.M | re.I), name


def carried_libraries(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {re.match(r"narrows\.libs/lib(\w+)", n)[1] for n in archive.namelist() if n.startswith("narrows.libs/lib")}


def has_isl_compiled_in(wheel):
    return not carried_libraries(wheel) & {"isl", "gmp"}


@needs_wheel
def test_the_wheel_has_the_license_of_every_library_in_it():
    licenses = licenses_in(WHEEL)
    assert carried_libraries(WHEEL) - {"isl", "gmp"} == {"hwy", "sleef"}  # the rest is compiled in
    assert licenses.keys() == fetched_libraries() | {"gmp"}
    for name, words in {"highway": "Apache License, Version 2.0", "sleef": "Boost Software License", "gmp": "GNU LESSER GENERAL PUBLIC",
                        "isl": "The above copyright notice and this permission notice"}.items():  # fmt: skip
        assert words in licenses[name]


@needs_wheel
def test_tensor_programs_add_less_than_a_megabyte_to_the_wheel():
    if not has_isl_compiled_in(WHEEL):
        pytest.skip("the wheel was built with the installed isl, which needs GMP")
    with zipfile.ZipFile(WHEEL) as archive:
        sizes = {info.filename: info.compress_size for info in archive.infolist()}
    assert sum(size for name, size in sizes.items() if re.search(r"libnarrows_program|libisl|libgmp", name)) < 1_000_000


def empty_environment(folder, *wheels):
    """The bin folder of one in folder where the wheels are all that is installed, and a function that runs a command beside it."""
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NARROWS_PLUGIN_PATH")}

    def run(*command):
        done = subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(programs / "python", "-m", "pip", "install", "--no-index", *wheels)
    assert run(programs / "python", "-m", "pip", "check") == "No broken requirements found.\n"
    return programs, run


@needs_wheel
def test_in_an_empty_environment(tmp_path):
    programs, run = empty_environment(tmp_path, WHEEL)
    python = programs / "python"
    code = "import narrows, pathlib; t = narrows.add(narrows.empty((3,)), 1); print(t, pathlib.Path(narrows.get_include(), 'narrows/abi.h').exists())"
    assert run(python, "-c", code) == "narrows.Tensor(shape=(3,), dtype='float32', device='cpu') True\n"
    assert "cpu" in run(programs / "narrows", "info")
    code = "import narrows; narrows.exp(narrows.empty((3,))); print(*{l.split()[-1] for l in open('/proc/self/maps') if 'libhwy' in l or 'libsleef' in l})"
    libraries = run(python, "-c", code).split()
    assert len(libraries) == 2 and all(str(tmp_path) in path for path in libraries)  # its own, not those of the machine
    source = tmp_path / "plugin.c"
    source.write_bytes((ROOT / "examples" / "plugin_minimal" / "plugin.c").read_bytes())
    code = f"import narrows; path = narrows.build({str(source)!r}); narrows.load(path); print(path, narrows.ops)"
    plugin, _, ops = run(python, "-c", code).partition(" ")
    assert ops.startswith("<narrows.ops: conv1d")
    assert "PASSED" in run(programs / "narrows", "conform", "--plugin", plugin, "[own]")
    assert re.search(r"example\.mod_add/1 .*\bus\b", run(programs / "narrows", "bench", "--plugin", plugin))


# What each backend's wheel has compiled in, which check makes the wheel, and what is said where there is no device.
BACKENDS = {
    "cuda": ({"xxhash"}, "wheels", "NVIDIA driver"),
    "hip": ({"xxhash"}, "wheels", "HIP sees no AMD GPU"),
    "vulkan": ({"volk", "xxhash"}, "vulkan", None),  # lavapipe is a device
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_wheel_of_a_backend(backend, tmp_path):
    """Beside the wheel narrows. NumPy is that of the environment that runs the tests."""
    licenses, check, no_device = BACKENDS[backend]
    wheel = named_wheel(f"NARROWS_{backend.upper()}_WHEEL")
    if not (WHEEL and wheel):
        pytest.skip(f"NARROWS_WHEEL and NARROWS_{backend.upper()}_WHEEL name no wheels: ./run check {check} makes them")
    with zipfile.ZipFile(wheel) as archive:  # narrows and the driver's library are not in it
        names = {n for n in archive.namelist() if ".dist-info/" not in n and not n.endswith("/")}
        texts = [n for n in archive.namelist() if n.endswith("LICENSE")]
    assert (
        names == {f"narrows_plugins/narrows_{backend}.so", f"narrows_plugins/narrows_{backend}.manifest.json"} and len(texts) == 1
    )
    assert licenses_in(wheel).keys() == licenses
    assert re.search(rf"narrows_{backend}-[0-9.]+-py3-none-manylinux_[\w.]+\.whl$", wheel)
    if backend != "hip":  # which links its driver's library, as auditwheel then tells
        assert_any_linux(wheel)
    programs, run = empty_environment(tmp_path, WHEEL, wheel)
    device = "rocm" if backend == "hip" else backend
    assert f"from narrows-{backend} {narrows.__version__}" in run(programs / "narrows", "info")
    found, said, *values = run(programs / "python", "-c", f"""
import narrows, sys
found = {{b["name"]: b for b in narrows.info()["backends"]}}
here = found["{backend}"]
print(*sorted(found), here["path"].partition("narrows_plugins")[0])
print(here["status"], here["reason"])
if here["devices"]:
  sys.path.append({sysconfig.get_path("platlib")!r})
  import numpy as np
  x = np.arange(5, dtype="float32")
  y = narrows.multiply(x, 3, device="{device}")
  print(type(y) is np.ndarray, y.tolist(), narrows.multiply(narrows.from_dlpack(x, "{device}"), 3))
""").splitlines()  # fmt: skip
    assert found.startswith(f"cpu {backend} {tmp_path}/env/lib/")
    if values or no_device is None:
        assert said.startswith("ok")
        assert values == [f"True [0.0, 3.0, 6.0, 9.0, 12.0] narrows.Tensor(shape=(5,), dtype='float32', device='{device}:0')"]
    else:
        assert said.startswith("unavailable ") and no_device in said


def test_only_the_limited_api_is_used():
    pytest.importorskip("abi3audit")
    library = narrows._narrows.__file__
    if not library.endswith(".abi3.so"):
        pytest.skip("a build for one version of Python")
    command = [sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", "3.11", "--report", library]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    command[5] = "3.9"  # what it uses came in 3.10: the check looks
    assert subprocess.run(command, capture_output=True, text=True).returncode != 0


def assert_any_linux(wheel):
    """By auditwheel: it needs nothing that not every Linux has."""
    shown = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True).stdout
    assert re.search(r'platform tag:\s+"manylinux_', shown) and not re.search(
        r"libpython|libtorch|libcuda|libvulkan|libstdc\+\+\.so\.5", shown
    )


@needs_wheel
def test_auditwheel_finds_nothing_from_outside():
    pytest.importorskip("auditwheel")
    assert_any_linux(WHEEL)


@pytest.mark.parametrize(
    "example, words",
    [
        ("puzzle17.py", "74 80 41 14 0"),
        ("custom_op.py", "torch 5.37929"),
        ("custom_op.py", "jax   5.37929"),
        ("mm_relu.py", "there is no loop 'j'"),
    ],
)
def test_examples(example, words):
    done = subprocess.run([sys.executable, ROOT / "examples" / example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


def test_the_audio_filter_and_its_picture(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "examples" / "audio_filter.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(re.search(r"(\d+) dB quieter", done.stdout)[1]) > 40
    picture = (tmp_path / "filtered.png").read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    data = zlib.decompress(picture[picture.index(b"IDAT") + 4 : -16])
    assert len(data) == height * (width + 1) and 60 < sum(data) / len(data) < 200  # neither black nor white
    with wave.open(str(tmp_path / "filtered.wav")) as f, wave.open(str(tmp_path / "again.wav"), "wb") as g:
        g.setparams(f.getparams())
        g.writeframes(f.readframes(f.getnframes()))
    again = [sys.executable, ROOT / "examples" / "audio_filter.py", tmp_path / "again.wav", tmp_path]
    assert subprocess.run(again, capture_output=True).returncode == 0


def test_the_cell_learns_to_read():
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    done = subprocess.run([sys.executable, ROOT / "examples" / "lltm_digits.py", "4"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lstm, lltm = (float(re.search(r"([0-9.]+) % of unseen", line)[1]) for line in done.stdout.splitlines())
    assert lltm > 55 and lstm > 55  # by chance: 10


OTHER_LIBRARY = 'const char* nw_version(void) { return "9.9.9"; }\n'


def other_libnarrows(folder, source=OTHER_LIBRARY):
    """A libnarrows.so.1 of another version, which has nothing else."""
    folder.mkdir(exist_ok=True)
    (folder / "other.c").write_text(source)
    library = folder / "libnarrows.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libnarrows.so.1", folder / "other.c", "-o", library], check=True)
    return library


COMMANDS = (
    [sys.executable, "-c", "import narrows; print(narrows.__version__)"],
    [pathlib.Path(narrows.__file__).parent / "bin" / "narrows", "--version"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=["module", "command"])
def test_its_own_libnarrows_is_found_whatever_the_library_path_holds(tmp_path, command):
    other_libnarrows(tmp_path)
    done = subprocess.run(command, env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split()[-1] == narrows.__version__, done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=["module", "command"])
@pytest.mark.parametrize("whole", [True, False])
def test_another_libnarrows_in_the_process_is_refused_by_name_and_version(tmp_path, command, whole):
    """One that was loaded before, and has every function or only some."""
    names = (ROOT / "tests" / "abi" / "exports.txt").read_text().split()
    rest = "".join(f"void {name}(void) {{}}\n" for name in names if name != "nw_version") if whole else ""
    library = other_libnarrows(tmp_path, OTHER_LIBRARY + rest)
    done = subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True)
    assert done.returncode != 0 and re.search(rf"has libnarrows 9\.9\.9, {re.escape(str(library))}; expected ", done.stderr), (
        done.stderr
    )
