# SPDX-License-Identifier: Apache-2.0
"""What the tests share: the plugins that they bring, compiled once, and no compiler's cache of the user's own."""

import importlib
import os
import pathlib
import sys

import pytest

import present

# JAX reads these when it is imported: the CPU first, since a plugin's op may be for that alone.
os.environ.setdefault("JAX_PLATFORMS", ",".join(present.of_jax()))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """narrows.build keeps what it compiles here."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def same_random_numbers():
    """torch's, for every test that begins when torch was imported."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def scale_plugin(own_cache):
    """tests/python/plugins/scale.cpp, loaded: test.scale/1 and test.affine/1, with backward."""
    import narrows

    narrows.load(narrows.build(HERE / "plugins" / "scale.cpp"))
    return narrows.ops.test


@pytest.fixture(scope="session")
def scale_folder(own_cache, tmp_path_factory):
    """A folder for NARROWS_PLUGIN_PATH of other processes, with the same plugin, which this process does not load for it."""
    import narrows

    folder = tmp_path_factory.mktemp("plugins")
    (folder / "narrows_scale.so").symlink_to(narrows.build(HERE / "plugins" / "scale.cpp"))
    return folder


@pytest.fixture(scope="session")
def rows_plugin(own_cache):
    """tests/python/plugins/rows.cpp, loaded: test.centre/1 and its backward of NW_OP_BATCHABLE, test.centre_all/1 without."""
    import narrows

    narrows.load(narrows.build(HERE / "plugins" / "rows.cpp"))
    return narrows.ops.test


@pytest.fixture(scope="session")
def correlate_plugin(own_cache):
    """tests/python/plugins/correlate.cpp, loaded: test.correlate/1, a convolution, and its backward."""
    import narrows

    narrows.load(narrows.build(HERE / "plugins" / "correlate.cpp"))
    return narrows.ops.test


@pytest.fixture(scope="session")
def minimal_plugin(own_cache):
    """examples/plugin_minimal, loaded: example.mod_add/1."""
    import narrows

    narrows.load(narrows.build(ROOT / "examples" / "plugin_minimal" / "plugin.c", name="minimal"))
    return narrows.ops.example


# ---- frameworks on an NVIDIA GPU: for the files that are about one ----


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    importlib.import_module("narrows.torch")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # torch's own results are the reference
        yield torch
    torch.cuda.synchronize()


@pytest.fixture
def cupy():
    cupy = pytest.importorskip("cupy")
    yield cupy
    cupy.cuda.runtime.deviceSynchronize()


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    if "cuda" not in present.of_jax():
        pytest.skip("this JAX has no CUDA")
    return jax
