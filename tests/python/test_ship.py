# SPDX-License-Identifier: Apache-2.0
"""A package that `narrows new` writes, and C builds against an installed wheel."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

import narrows
import present

ROOT = pathlib.Path(__file__).parents[2]
WHEEL = os.environ.get("NARROWS_WHEEL", "") and os.path.abspath(os.environ["NARROWS_WHEEL"])
needs_wheel = pytest.mark.skipif(not WHEEL, reason="NARROWS_WHEEL names no wheel: ./run check python makes one")
NVCC = present.nvcc()
PIP, OFFLINE = ("-m", "pip", "-q", "--disable-pip-version-check"), ("--no-index", "--no-deps")


def command(*words, cwd, ok=True, **environment):
    """python -m narrows, or another command that begins with python's options; what it printed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NARROWS_PLUGIN", "LD_LIBRARY"))} | environment
    done = subprocess.run([sys.executable, *map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, timeout=1200)
    assert not ok or done.returncode == 0, done.stdout + done.stderr
    return done.stdout if ok else (done.returncode, done.stderr)


# ---- narrows new ----


def test_new_writes_a_package_by_its_name(tmp_path):
    out = command("-m", "narrows", "new", "Fast-Norm.2", "--into", "a b", cwd=tmp_path)
    folder = tmp_path / "a b"
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == {
        "pyproject.toml", "CMakeLists.txt", "README.md", ".gitignore", ".github/workflows/test.yml", "src/scale.h", "src/scale.cpp",
        "src/scale.cu", "src/scale_vulkan.cpp", "src/times.comp", "src/fast_norm_2/__init__.py", "tests/test_scale.py",
    }  # fmt: skip
    assert all(f"a b/{name}\n" in out for name in files)
    text = "".join((folder / name).read_text() for name in files)
    assert "my_ops" not in text and "my-ops" not in text and "SPDX" not in text
    assert 'name = "Fast-Norm.2"' in text and 'NARROWS_PLUGIN("fast_norm_2"' in text


@pytest.mark.parametrize(
    "name, words",
    [("", "NAME = ''"), ("2fast", "NAME = '2fast'"), ("a/b", "NAME = 'a/b'"), ("a--", "NAME = 'a--'"), ("json", "no module or word"),
     ("lambda", "no module or word"), ("Narrows", "and not narrows"), ("é", "NAME = 'é'"), ("full", "full exists; expected a new")],
)  # fmt: skip
def test_new_refuses_in_one_line(tmp_path, name, words):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    code, error = command("-m", "narrows", "new", name, cwd=tmp_path, ok=False)
    assert code == 2 and error.startswith("narrows new: ") and words in error and error.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full"]


def test_new_says_why_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    code, error = command("-m", "narrows", "new", "mine", "--into", "file/mine", cwd=tmp_path, ok=False)
    assert code == 4 and error == "narrows new: file/mine: Not a directory\n"


# ---- the wheel ----


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder in which the wheel is installed, and nothing else. Its path has a space."""
    folder = tmp_path_factory.mktemp("wheel") / "site packages"
    command(*PIP, "install", *OFFLINE, "--target", folder, WHEEL, cwd="/")
    return folder


def with_path(*folders):
    """PYTHONPATH of these folders alone; NumPy and pytest are those that run this."""
    return {"PYTHONPATH": os.pathsep.join(map(str, [*folders, sysconfig.get_path("platlib")]))}


def repaired(source):
    """The wheel that lies in `built`, as the package's workflow makes it ready for PyPI."""
    words = re.search(r"- run: (auditwheel repair .+)", (source / ".github" / "workflows" / "test.yml").read_text())[1]
    path = {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-ec", words], cwd=source, env={**os.environ, **path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (source / "dist").iterdir()
    return wheel


def test_a_new_package_builds_passes_its_tests_and_is_found(tmp_path):
    """Against the package that runs this test, installed or in a build folder."""
    pytest.importorskip("scikit_build_core")
    pytest.importorskip("auditwheel")
    installed = pathlib.Path(narrows.__file__).parents[1]
    path = with_path(installed)
    command("-m", "narrows", "new", "fast-norm", cwd=tmp_path, **path)
    site, source = tmp_path / "site", tmp_path / "fast-norm"
    cuda = {"CUDACXX": NVCC} if NVCC else {}
    command(*PIP, "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", "built", ".", cwd=source, **path, **cuda)
    wheel = repaired(source)
    assert re.fullmatch(r"fast_norm-0\.1\.0-py3-none-manylinux_2_[\w.]+\.whl", wheel.name)
    command(*PIP, "install", *OFFLINE, "--target", site, wheel, cwd=tmp_path)
    assert {p.name for p in site.iterdir()} == {"fast_norm", "fast_norm-0.1.0.dist-info"}  # no library is carried along
    built = {p.name for p in (site / "fast_norm").glob("*.so")}
    others = {"narrows_fast_norm_cuda.so": NVCC or shutil.which("hipcc"), "narrows_fast_norm_vulkan.so": shutil.which("glslc")}
    assert built == {"narrows_fast_norm.so", *(name for name, compiler in others.items() if compiler)}
    path = with_path(site, installed)
    out = command("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests", cwd=source, **path)
    assert " passed" in out and "failed" not in out
    for device, compiler in {"cuda:0": NVCC, "vulkan:0": shutil.which("glslc")}.items():
        if compiler is not None and device in present.DEVICES:
            assert f"fast_norm_{device[:-2]} was not built, or has no device" not in out
    assert "from fast-norm 0.1.0" in command("-m", "narrows", "info", cwd=tmp_path, **path)
    assert "'fast_norm.scale/1'" in command("-c", "import narrows; print(list(narrows.ops))", cwd=tmp_path, **path)


@pytest.mark.skipif(shutil.which("hipcc") is None, reason="needs hipcc, which is not installed")
def test_a_new_package_has_its_cuda_source_compiled_for_amd(tmp_path):
    command("-m", "narrows", "new", "fast-norm", cwd=tmp_path)
    for words in (
        ["-S", "fast-norm", "-B", "build", f"-DNarrows_DIR={narrows.cmake_dir()}", "-DCMAKE_CUDA_COMPILER=NOTFOUND",
         "-DNARROWS_HIP_ARCHITECTURES=gfx90a"],
        ["--build", "build", "--target", "narrows_fast_norm_cuda"],
    ):  # fmt: skip
        done = subprocess.run(["cmake", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    (library,) = (tmp_path / "build").rglob("narrows_fast_norm_cuda.so")
    code = library.read_bytes()
    assert b"gfx90a" in code and b"libamdhip64" in code and b"libcudart" not in code
    path = {"NARROWS_PLUGIN_PATH": str(library.parent)}
    assert re.search(r"(accepted|unavailable) +fast_norm_cuda", command("-m", "narrows", "info", cwd=tmp_path, **path))


PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(stranger LANGUAGES C)
find_package(Narrows REQUIRED)
add_executable(caller caller.c)
target_link_libraries(caller PRIVATE Narrows::narrows)
narrows_add_backend(example SOURCES plugin.c DESTINATION plugins)
"""


def check_caller(program, installed):
    """It runs, by the libnarrows of the wheel, without LD_LIBRARY_PATH."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NARROWS_PLUGIN", "LD_LIBRARY"))}
    loaded = subprocess.run(["ldd", program], env=clean, capture_output=True, text=True, check=True).stdout
    path = re.search(r"libnarrows\.so\.1 => (.+) \(0x", loaded)[1]
    assert os.path.realpath(path) == f"{installed}/narrows/lib/libnarrows.so.1"
    done = subprocess.run([program], env=clean, capture_output=True, text=True)
    assert done.returncode == 0 and "14 20 26 32 38 44 50 56 62 68 74 80 41 14 0" in done.stdout, done.stdout + done.stderr


@needs_wheel
def test_a_program_and_a_plugin_by_cmake(installed, tmp_path):
    shutil.copy(ROOT / "examples" / "caller_c" / "main.c", tmp_path / "caller.c")
    shutil.copy(ROOT / "examples" / "plugin_minimal" / "plugin.c", tmp_path / "plugin.c")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    folder = command("-c", "import narrows; print(narrows.cmake_dir())", cwd=tmp_path, **with_path(installed)).strip()
    assert folder == command("-m", "narrows", "config", "--cmake-dir", cwd=tmp_path, **with_path(installed)).strip()
    for words in (
        ["-S", ".", "-B", "build", f"-DNarrows_DIR={folder}"],
        ["--build", "build"],
        ["--install", "build", "--prefix", "made"],
    ):
        done = subprocess.run(["cmake", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    check_caller(tmp_path / "build" / "caller", installed)
    path = {**with_path(installed), "NARROWS_PLUGIN_PATH": str(tmp_path / "made" / "plugins")}
    out = command("-c", "import narrows; print([n for n in narrows.ops if '.' in n])", cwd=tmp_path, **path)
    assert out == "['example.mod_add/1']\n"


@needs_wheel
def test_schedules_are_verified_by_the_isl_in_the_wheel(installed, tmp_path):
    code = """
import runpy, sys
runpy.run_path(sys.argv[1], run_name="__main__")
names = {line.split("/")[-1].strip() for line in open("/proc/self/maps")}
print({name for name in names if name.startswith(("libisl", "libgmp", "libnarrows_program"))})
"""
    out = command("-c", code, ROOT / "examples" / "mm_relu.py", cwd=tmp_path, **with_path(installed))
    assert "there is no loop 'j'" in out and "'libnarrows_program.so.1'" in out.splitlines()[-1]
    assert not re.search("lib(isl|gmp)[.]so", out.splitlines()[-1])  # an installed one; a wheel's own has a number in its name


@needs_wheel
@pytest.mark.parametrize("how", ["config", "pkg-config"])
def test_a_program_by_options(installed, tmp_path, how):
    path = with_path(installed)
    words = f"'{sys.executable}' -m narrows config --cflags --libs"
    if how == "pkg-config":
        if shutil.which("pkg-config") is None:
            pytest.skip("pkg-config is not installed")
        folder = command("-m", "narrows", "config", "--pkgconfig-dir", cwd=tmp_path, **path).strip()
        path["PKG_CONFIG_PATH"] = folder
        words = "pkg-config --cflags --libs narrows"
    main = ROOT / "examples" / "caller_c" / "main.c"
    done = subprocess.run(
        ["sh", "-ec", f'o=$({words}); eval "cc \'{main}\' $(echo $o) -o caller"'],
        cwd=tmp_path, env={**os.environ, **path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    check_caller(tmp_path / "caller", installed)


def test_config_refuses_in_words(tmp_path):
    code, error = command("-m", "narrows", "config", cwd=tmp_path, ok=False)
    assert code == 2 and "expected an option: --cflags, " in error


def test_config_prints_a_line_for_each_option(tmp_path):
    package = os.path.dirname(narrows.__file__)
    out = command("-m", "narrows", "config", "--cflags", "--libs", "--cmake-dir", "--pkgconfig-dir", "--version", cwd=tmp_path)
    cflags, libs, cmake, pkgconfig, version = out.splitlines()
    assert cflags == f"-I{package}/include" and version == narrows.__version__
    assert libs == f"-L{package}/lib -Wl,-rpath,{package}/lib -lnarrows"
    assert cmake == narrows.cmake_dir() == f"{package}/lib/cmake/Narrows" and pkgconfig == f"{package}/lib/pkgconfig"
