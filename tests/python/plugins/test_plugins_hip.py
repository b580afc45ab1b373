# SPDX-License-Identifier: Apache-2.0
"""Sources in CUDA for AMD's GPUs: hipcc compiles them where it is meant. tests/hip/emulation runs such a plugin."""

import re
import shutil

import pytest

import narrows
from narrows import _hip

SOURCE = """
#include <cuda_fp16.h>
#include <narrows/plugin_cuda.hpp>
__global__ void twice(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = __half2float(__float2half(2.0F)) * x[i];
}
float offset();  // in the other source
void run(const narrows::plugin::Launch& call) {
  const int64_t n = call.size(0);
  if (n == 0) return;
  twice<<<(n + 255) / 256, 256, 0, narrows::plugin::stream(call)>>>(call.input<float>(0) + int(offset()), call.output<float>(0), n);
  narrows::plugin::check(cudaGetLastError());
}
NARROWS_CUDA_PLUGIN("onhip", {.name = "onhip.twice/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = run,
                              .layout = narrows::plugin::Layout::copied})
"""


@pytest.fixture
def no_compiler_is_named(monkeypatch):
    monkeypatch.delenv("NVCC", raising=False)
    monkeypatch.delenv("HIPCC", raising=False)


def recording_compiler(folder, name):
    """One that writes down its arguments, and gives a library that is none."""
    script = folder / name
    script.write_text(f"""#!/bin/sh
echo "$0 HIP_PLATFORM=$HIP_PLATFORM $*" >> '{folder}/asked'
for word; do [ "$last" = -o ] && : > "$word"; [ "$word" = -MM ] && rule=1; last=$word; done
[ -z "$rule" ] || echo "k.o: $last"
""")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    "served, compiler",
    [([], "nvcc"), ([10], "hipcc"), ([2, 10], "nvcc"), ([2], "nvcc")],
    ids=["no GPU", "AMD", "both", "NVIDIA"],
)
def test_the_gpus_that_are_served_choose_the_compiler(tmp_path, monkeypatch, no_compiler_is_named, served, compiler):
    for name in ("nvcc", "hipcc"):
        recording_compiler(tmp_path, name)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    backends = [{"status": "ok", "device_type": t, "device_count": 2} for t in served]
    backends.append({"status": "unavailable", "device_type": 10, "device_count": 0})
    monkeypatch.setattr(_hip._narrows, "backends", lambda: backends)
    monkeypatch.setattr(_hip._narrows, "device_info", lambda kind, i: {"arch": f"gfx90{i}"})
    (tmp_path / "k.cu").write_text("")
    narrows.build(tmp_path / "k.cu")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {line.partition(" ")[0] for line in asked} == {str(tmp_path / compiler)}
    if compiler == "hipcc":
        made = asked[-1]
        assert "HIP_PLATFORM=amd" in made and "--offload-arch=gfx900 --offload-arch=gfx901" in made
        assert re.search(r"-I\S+/narrows/hip .*-x hip \S+/k\.cu -o ", made)


def test_the_environment_chooses_first(tmp_path, monkeypatch, no_compiler_is_named):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "k.cu").write_text("")
    monkeypatch.setenv("HIPCC", recording_compiler(tmp_path, "its-hipcc"))
    narrows.build(tmp_path / "k.cu", flags=["--offload-arch=gfx1030"])
    assert "its-hipcc" in (tmp_path / "asked").read_text() and "gfx1030" in (tmp_path / "asked").read_text()
    monkeypatch.setenv("NVCC", recording_compiler(tmp_path, "its-nvcc"))
    narrows.build(tmp_path / "k.cu")
    assert "its-nvcc" in (tmp_path / "asked").read_text()


def test_no_hipcc(tmp_path, monkeypatch, no_compiler_is_named):
    monkeypatch.setenv("HIPCC", "no-such-hipcc")
    with pytest.raises(
        RuntimeError, match="no compiler 'no-such-hipcc' on PATH, which compiles CUDA sources for AMD's GPUs; set HIPCC"
    ):
        narrows.load_inline("onhip", cuda_sources=SOURCE)


def test_no_gpu_to_compile_for(tmp_path, monkeypatch, no_compiler_is_named):
    if any(b["device_type"] == 10 and b["status"] == "ok" for b in narrows.info()["backends"]):
        pytest.skip("this is about machines without an AMD GPU; here is one")
    monkeypatch.setenv("HIPCC", recording_compiler(tmp_path, "hipcc"))
    with pytest.raises(RuntimeError, match=r"no backend serves an AMD GPU here.*flags=\['--offload-arch=gfx90a'\]"):
        narrows.load_inline("onhip", cuda_sources=SOURCE)
    assert not (tmp_path / "asked").exists()


def test_hipcc_compiles_sources_in_cuda(tmp_path, monkeypatch, no_compiler_is_named):
    """For two GPUs; the plugin says that HIP or a GPU is missing where that is so."""
    if shutil.which("hipcc") is None:
        pytest.skip("needs hipcc, which is not installed")
    monkeypatch.setenv("HIPCC", "hipcc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a $b"))
    sources = {"k.cu": SOURCE, "offset.cpp": "float offset() { return 0; }\n"}
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    flags = ["--offload-arch=gfx90a", "--offload-arch=gfx1030"]
    library = narrows.build([tmp_path / name for name in sources], "onhip", flags)
    assert narrows.build([tmp_path / name for name in sources], "onhip", flags) == library
    with open(library, "rb") as f:
        code = f.read()
    assert b"gfx90a" in code and b"gfx1030" in code and b"libamdhip64" in code and b"libcudart" not in code
    narrows.load(library)
    (backend,) = (b for b in narrows.info()["backends"] if b["path"] == library)
    assert backend["name"] == "onhip" and backend["device_type"] == 10 and backend["status"] in ("ok", "unavailable")
