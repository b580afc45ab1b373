# SPDX-License-Identifier: Apache-2.0
"""`narrows hub`: a plugin in the layout of Hugging Face's kernels, loaded by their own loader."""

import json
import os
import pathlib
import platform
import subprocess
import sys

import pytest

import narrows

SOURCES = pathlib.Path(__file__).parent / "plugins"
VARIANT = f"build/torch-stable-abi28-cpu-{platform.machine()}-linux"


def hub(folder, *words):
    """Exit code, output and errors of the command in a folder."""
    done = subprocess.run([sys.executable, "-m", "narrows", "hub", *map(str, words)], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def plugin(own_cache):
    return narrows.build(SOURCES / "scale.cpp")


def test_their_loader_takes_it(tmp_path, plugin):
    pytest.importorskip("kernels", reason="kernels is not installed; ./run check python installs it")
    pytest.importorskip("torch")
    code, out, error = hub(tmp_path, "fast-scale", "--plugin", plugin, "--license", "MIT", "--version", 3)
    assert code == 0, error
    assert [line.strip() for line in out.splitlines()] == [
        f"fast-scale/{VARIANT}/{name}" for name in ("__init__.py", "metadata.json", "narrows_scale.so")
    ]
    script = """
import pathlib, torch
from kernels import get_local_kernel, get_loaded_kernels
kernel = get_local_kernel(pathlib.Path("fast-scale"))
x = torch.arange(3.0, requires_grad=True)
y = kernel.scale(x, factor=4.0)
y.sum().backward()
loaded, = get_loaded_kernels()
print(kernel.__all__, y.tolist(), x.grad.tolist(), loaded.metadata.name, loaded.metadata.version, loaded.metadata.license)
"""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['affine', 'scale'] [0.0, 4.0, 8.0] [4.0, 4.0, 4.0] fast-scale 3 MIT\n"


def test_the_identifier_is_that_of_the_content(tmp_path, plugin):
    """Two kernels of one name may be in one process."""
    other = tmp_path / "narrows_other.so"
    other.write_bytes(pathlib.Path(plugin).read_bytes())
    for folder, file in (("a", plugin), ("b", plugin), ("c", other)):
        assert hub(tmp_path, "fast-scale", "--plugin", file, "--license", "MIT", "--into", folder)[0] == 0
    ids = [json.loads((tmp_path / f / VARIANT / "metadata.json").read_text())["id"] for f in "abc"]
    assert ids[0] == ids[1] != ids[2] and ids[0].startswith("_fast_scale_")


def test_without_narrows_the_import_says_so(tmp_path, plugin):
    assert hub(tmp_path, "fast-scale", "--plugin", plugin, "--license", "MIT")[0] == 0
    script = f"import sys; sys.modules['narrows'] = None; sys.path.insert(0, 'fast-scale/build'); __import__({VARIANT[6:]!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (
        done.returncode == 1 and "ImportError: fast-scale: narrows is missing; expected the Python package narrows" in done.stderr
    )


@pytest.mark.parametrize(
    "name, more, words",
    [
        ("Fast", [], "NAME = 'Fast'; expected lower-case letters"),
        ("a_b", [], "NAME = 'a_b'; expected lower-case letters"),
        ("fast-", [], "NAME = 'fast-'; expected lower-case letters"),
        ("fast", ["--version", 0], "--version 0; expected 1 or more"),
        ("fast", ["--plugin", "nothing.so"], "--plugin nothing.so: "),
        ("fast", ["--into", "full"], "exists; expected a folder without it"),
    ],
)
def test_what_is_refused_is_not_written(tmp_path, plugin, name, more, words):
    (tmp_path / "full" / VARIANT).mkdir(parents=True)
    code, out, error = hub(tmp_path, name, "--plugin", plugin, "--license", "MIT", *more)
    assert code == 2 and not out and error.startswith("narrows hub: ") and words in error and error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["full"] and not list((tmp_path / "full" / VARIANT).iterdir())


def test_a_plugin_without_an_op_of_its_own(tmp_path):
    package = pathlib.Path(narrows.__file__).parent
    code, _, error = hub(tmp_path, "fast", "--plugin", package / "lib/narrows/backends/narrows_cpu.so", "--license", "MIT")
    assert code == 2 and "it has no op of its own; expected ops that are named like 'vendor.name/1'" in error
