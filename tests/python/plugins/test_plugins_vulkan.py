# SPDX-License-Identifier: Apache-2.0
"""A plugin whose kernels are shaders in GLSL: built by glslc, loaded, and called on the first Vulkan device. Skipped where there is none."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import narrows
import narrows.testing
import planted_on_devices
import present
from narrows import _build

if "vulkan:0" not in present.DEVICES or shutil.which("glslc") is None:
    pytest.skip("the vulkan backend has no device here, or there is no glslc", allow_module_level=True)

SHADERS = {
    "times": """
#version 460
#include <narrows/kernel.glsl>
layout(local_size_x = 64) in;
layout(constant_id = 0) const float plus = 0;
NARROWS_POINTER(Floats, float, 4)
layout(push_constant) uniform Push { Floats x, y; uint64_t n; float factor; };
void main() {
  const uint64_t i = narrows_index();
  if (i < n) at(y, i).value = factor * at(x, i).value + plus;
}
""",
    "rows": """
#version 460
#include <narrows/kernel.glsl>
layout(local_size_x = 64) in;
NARROWS_POINTER(Ints, int, 4)
layout(push_constant) uniform Push { Ints x, y; int64_t columns, x_row, x_step, y_row, y_step; };
void main() {
  const int64_t i = gl_WorkGroupID.x;
  for (int64_t j = gl_LocalInvocationID.x; j < columns; j += 64)
    at(y, i * y_row + j * y_step).value = at(x, i * x_row + j * x_step).value;
}
""",
}
SOURCE = """
#include <narrows/plugin_vulkan.hpp>
#include "times.comp.h"
#include "rows.comp.h"
using namespace narrows::plugin;
struct Params { double factor; };
struct Push { const float* x; float* y; uint64_t n; float factor; };
void scale(const Launch& call) {
  const auto n = static_cast<uint64_t>(call.size(0));
  const auto factor = static_cast<float>(call.params<Params>().factor);
  dispatch(call, times, Push{call.input<float>(0), call.output<float>(0), n, factor}, groups(n, 64));
}
void scale_backward(const Launch& call) {  // grad_y?, x? -> grad_x: the factor, and 0 times anything where the gradient is 0
  const auto n = static_cast<uint64_t>(call.size(0));
  const bool has = call.has_input(0);
  const auto factor = has ? static_cast<float>(call.params<Params>().factor) : 0;
  float* const out = call.output<float>(0);
  dispatch(call, times, Push{has ? call.input<float>(0) : out, out, n, factor}, groups(n, 64));
}
void twice(const Launch& call) {  // 2 (2 x + 1) + 1, by way of the workspace
  const auto n = static_cast<uint64_t>(call.size(0));
  if (n == 0) return;
  const uint32_t one = 0x3f800000;  // 1.0
  float* const scratch = call.workspace<float>();
  dispatch(call, times, Push{call.input<float>(0), scratch, n, 2}, groups(n, 64), {one});
  dispatch(call, times, Push{scratch, call.output<float>(0), n, 2}, groups(n, 64), {one});
}
uint64_t bytes(const Signature& call) {
  uint64_t n = sizeof(float);
  for (int32_t d = 0; d < call.in(0).ndim; ++d) n *= static_cast<uint64_t>(call.in(0).shape[d]);
  return n;
}
void dense(const Launch& call) {  // of any strides
  const auto x = call.input_view<int32_t, 2>(0);
  const auto y = call.output_view<int32_t, 2>(0);
  struct { const int32_t* x; int32_t* y; int64_t columns, strides[4]; } push = {
      x.data, y.data, x.shape[1], {x.strides[0], x.strides[1], y.strides[0], y.strides[1]}};
  dispatch(call, rows, push, {static_cast<uint32_t>(x.shape[0])});
}
void whole_words(const Signature& call) {
  int64_t bits = call.in(0).dtype.bits;
  for (int32_t d = 0; d < call.in(0).ndim; ++d) bits *= call.in(0).shape[d];
  if (bits % 32 != 0) refuse(NW_UNSUPPORTED, 0, "x is no whole number of words");
}
void words(const Launch& call) {  // a dense tensor of whole words of 4 bytes
  const auto* const x = reinterpret_cast<const int32_t*>(call.input<char>(0));
  auto* const y = reinterpret_cast<int32_t*>(call.output<char>(0));
  struct { const int32_t* x; int32_t* y; int64_t columns, strides[4]; } push = {
      x, y, call.size(0) * call.in(0).dtype.bits / 32, {0, 1, 0, 1}};
  dispatch(call, rows, push, {1});
}
NARROWS_VULKAN_PLUGIN("inglsl",
                      {.name = "inglsl.scale/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = scale,
                       .params = {field("factor", &Params::factor, 1.0)}, .params_size = sizeof(Params),
                       .backward = "inglsl.scale_backward/1"},
                      {.name = "inglsl.scale_backward/1", .kernel = scale_backward},
                      {.name = "inglsl.twice/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = twice, .workspace = bytes},
                      {.name = "inglsl.dense/1", .inputs = {"x: i32"}, .outputs = {"y"}, .shape_rule = "N,M -> N,M", .kernel = dense,
                       .layout = Layout::strided},
                      {.name = "inglsl.words/1", .inputs = {"x: i8|f16|i32|f64"}, .outputs = {"y"}, .kernel = words,
                       .check = whole_words, .layout = Layout::copied})
"""
REFUSED_SHADERS = {
    "wide": "#version 460\nlayout(local_size_x = 1024, local_size_y = 1024) in;\nvoid main() {}\n",
    "bound": "#version 460\nlayout(local_size_x = 1) in;\nlayout(binding = 0) buffer B { float b; };\nvoid main() { b = 1; }\n",
}
REFUSED = """
#include <narrows/plugin_vulkan.hpp>
#include "wide.comp.h"
#include "bound.comp.h"
using namespace narrows::plugin;
void too_wide(const Launch& call) { dispatch(call, wide, uint32_t{0}, {}); }
void with_binding(const Launch& call) { dispatch(call, bound, uint32_t{0}, {}); }
NARROWS_VULKAN_PLUGIN("refused", {.name = "refused.too_wide/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = too_wide},
                      {.name = "refused.with_binding/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = with_binding})
"""


def load(**more):
    return narrows.load_inline("inglsl", vulkan_sources=SOURCE, shaders=SHADERS, **more)


@pytest.fixture(scope="module")
def ops():
    return load()


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000, 64 * 32768 + 1])  # the last has two rows of groups
def test_a_shader_computes(ops, n):
    x = np.random.default_rng(n).normal(size=n).astype("float32")
    np.testing.assert_array_equal(ops.scale(x, factor=3, device="vulkan"), 3 * x)
    np.testing.assert_allclose(ops.twice(x, device="vulkan"), 4 * x + 3, rtol=1e-6, atol=1e-6)


def test_tensors_that_stay_there(ops):
    x = np.arange(12, dtype="float32")
    there = narrows.from_dlpack(x, "vulkan")
    y = ops.scale(ops.scale(there, factor=2), factor=3)
    assert str(y.device) == "vulkan:0"
    np.testing.assert_array_equal(y.numpy(), 6 * x)


def test_tensors_of_any_strides(ops):
    """They have them on the device, too, where device= would send dense ones."""
    report = narrows.testing.check_op(ops.dense, lambda x: x, [(5, 7)], "int32", devices="vulkan")
    assert report.passed["layouts"] > 8 and report.declined["layouts"] == 1  # what is misaligned


def test_tensors_are_copied_where_the_op_says_so(ops):
    """Of elements of 1 to 8 bytes, whatever the strides and the address of input and output."""
    report = narrows.testing.check_op(
        ops.words, lambda x: x, [(4, 8), (16,)], ["int8", "float16", "int32", "float64"], devices="vulkan", strided=True, sizes=()
    )
    assert report.passed["layouts"] > 40 and report.passed["writes"] == 8


def test_what_a_device_or_the_backend_refuses(ops):
    x, refused = np.ones(3, "float32"), narrows.load_inline("refused", vulkan_sources=REFUSED, shaders=REFUSED_SHADERS)
    with pytest.raises(NotImplementedError, match="work groups of 1024 x 1024 x 1 threads"):
        refused.too_wide(x, device="vulkan")
    with pytest.raises(ValueError, match=r"has a descriptor \(layout\(binding"):
        refused.with_binding(x, device="vulkan")
    np.testing.assert_array_equal(ops.scale(x, factor=3, device="vulkan"), 3 * x)  # and goes on


def test_the_judge_passes_it(ops):
    narrows.testing.conform(ops.scale)


PLANTED_TIMES = """
#version 460
#include <narrows/kernel.glsl>
layout(local_size_x = 64) in;
NARROWS_POINTER(Floats, float, 4)
layout(push_constant) uniform Push { Floats x, y; uint64_t n; float factor; };
void main() {
  const uint64_t i = narrows_index();
  if (TEST) at(y, i).value = VALUE;
}
"""
PLANTED = """
#include <narrows/plugin_vulkan.hpp>
INCLUDES
using namespace narrows::plugin;
struct Params { double factor; };
struct Push { const float* x; float* y; uint64_t n; float factor; };
template <const auto& shader> void forward(const Launch& call) {
  const auto n = static_cast<uint64_t>(call.size(0));
  dispatch(call, shader, Push{call.input<float>(0), call.output<float>(0), n, static_cast<float>(call.params<Params>().factor)},
           groups(n, 64));
}
template <int slope> void backward(const Launch& call) {  // grad_y?, x? -> grad_x; where the gradient is 0, 0 times anything
  const auto n = static_cast<uint64_t>(call.size(0));
  const auto factor = call.has_input(0) ? static_cast<float>(slope * call.params<Params>().factor) : 0;
  float* const out = call.output<float>(0);
  dispatch(call, right, Push{call.has_input(0) ? call.input<float>(0) : out, out, n, factor}, groups(n, 64));
}
template <bool ignored> void rows_of(const Launch& call) {
  const auto x = call.input_view<int32_t, 2>(0);
  const auto y = call.output_view<int32_t, 2>(0);
  struct { const int32_t* x; int32_t* y; int64_t columns, strides[4]; } push = {
      x.data, y.data, x.shape[1], {ignored ? x.shape[1] : x.strides[0], ignored ? 1 : x.strides[1], y.strides[0], y.strides[1]}};
  dispatch(call, rows, push, {static_cast<uint32_t>(x.shape[0])});
}
const std::vector<nw_param> kParams = {field("factor", &Params::factor, 2.0)};
NARROWS_VULKAN_PLUGIN("planted_vulkan",
                      {.name = "planted.rows/1", .inputs = {"x: i32"}, .outputs = {"y"}, .shape_rule = "N,M -> N,M",
                       .kernel = rows_of<false>, .layout = Layout::strided},
                      {.name = "planted.rows_strides/1", .inputs = {"x: i32"}, .outputs = {"y"}, .shape_rule = "N,M -> N,M",
                       .kernel = rows_of<true>, .layout = Layout::strided},
                      OPS)
"""
PLANTED_OP = """{.name = "planted.%(name)s/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = forward<%(name)s>, .params = kParams,
 .params_size = sizeof(Params), .backward = "planted.%(name)s_backward/1"},
{.name = "planted.%(name)s_backward/1", .kernel = backward<%(slope)d>}"""


def test_planted_faults_are_caught_on_the_device():
    shaders = {
        name: PLANTED_TIMES.replace("TEST", test).replace("VALUE", value.replace("X", "at(x, i).value"))
        for name, (test, value, _) in planted_on_devices.TIMES.items()
    }
    shaders["rows"] = SHADERS["rows"]
    source = PLANTED.replace("INCLUDES", "".join(f'#include "{name}.comp.h"\n' for name in shaders))
    source = source.replace("OPS", planted_on_devices.declared(PLANTED_OP))
    planted_on_devices.judge(narrows.load_inline("planted", vulkan_sources=source, shaders=shaders), "vulkan")


def test_a_shader_that_does_not_compile(monkeypatch):
    with pytest.raises(RuntimeError, match=r"(?s)glslc.*times\.comp.*nothing"):
        narrows.load_inline("broken", vulkan_sources=SOURCE, shaders={"times": "#version 460\nvoid main() { nothing; }\n"})
    with pytest.raises(ValueError, match="shaders has times, and vulkan_sources nothing"):
        narrows.load_inline("broken", shaders={"times": ""})
    with pytest.raises(ValueError, match="expected a shader whose name is an identifier"):
        narrows.load_inline("broken", vulkan_sources=SOURCE, shaders={"1x": ""})
    with pytest.raises(ValueError, match="expected the name of a file, without a folder"):
        narrows.load_inline("broken", vulkan_sources=SOURCE, headers={"a/b.h": ""})
    with pytest.raises(TypeError, match="expected a dict of texts by name"):
        narrows.load_inline("broken", vulkan_sources=SOURCE, shaders=["x"])
    monkeypatch.setenv("GLSLC", "glslc-of-nowhere")
    with pytest.raises(RuntimeError, match="no compiler 'glslc-of-nowhere' on PATH; set GLSLC"):
        load(flags=["-DOTHER"])


def test_without_glslc_shaderc_makes_the_same_module(tmp_path, monkeypatch):
    def words():
        _build._write_words(shader, tmp_path)
        return [int(n, 0) for n in re.findall(r"0x\w+|\d+", (tmp_path / "times.comp.h").read_text().partition("{")[2])]

    (tmp_path / "part.glsl").write_text("const float twice = 2;\n")
    shader = tmp_path / "times.comp"
    shader.write_text(SHADERS["times"].replace("layout(", '#include "part.glsl"\nlayout(', 1).replace("factor *", "twice *"))
    expected = words()
    monkeypatch.setitem(_build._COMPILERS, "GLSLC", "no-such-glslc")
    try:
        assert words() == expected
    except RuntimeError as error:
        if "shaderc cannot be opened" in str(error):
            pytest.skip("needs a libshaderc that can be opened")
        raise
    for text, said in (("void main() { nothing; }", "nothing"), ('#include "none.h"\nvoid main() {}', "there is no such file")):
        shader.write_text(f"#version 460\n{text}\n")
        with pytest.raises(RuntimeError, match=rf"(?s)times\.comp:2.*{said}"):
            words()
    monkeypatch.setenv("NARROWS_SHADERC", "/none.so")
    with pytest.raises(RuntimeError, match=r"no glslc is on PATH, and shaderc cannot be opened \(/none\.so.*; install glslc"):
        words()


def test_without_the_backend_it_is_unavailable(ops):
    library = next(b["path"] for b in narrows.info()["backends"] if b["name"] == "inglsl" and b["status"] == "ok")
    code = (
        "import sys, narrows; narrows.load(sys.argv[1]); narrows.devices(); "
        "print(*[(b['status'], b['reason']) for b in narrows.info()['backends'] if b['name'] == 'inglsl'])"
    )
    package = pathlib.Path(narrows.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, library],
        env={**os.environ, "PYTHONPATH": str(package), "VK_DRIVER_FILES": "/none", "VK_ICD_FILENAMES": "/none"},
        capture_output=True,
        text=True,
    )
    assert "unavailable" in done.stdout and "the vulkan backend is not here; this plugin runs on its devices" in done.stdout, done


def test_the_example(tmp_path):
    example = pathlib.Path(__file__).parents[3] / "examples" / "three_devices.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and "vulkan  [ 0.  3.  6.  9. 12.]" in lines and "cpu     [ 0.  3.  6.  9. 12.]" in lines, done
