// SPDX-License-Identifier: Apache-2.0
// kernels.cpp -- the kernel variants by name: those of elementwise that LeetCUDA names, and the same bits again from each variant
// of each op on calls that take many blocks and several parts of a sum; plans of one kernel that differ in shared memory; calls
// that would take very many launches; each gradient of conv1d alone on matrix units.
#include <cstring>
#include <set>

#include "conformance/conv1d/conv1d_case.h"
#include "cuda.h"

using namespace narrows::test;
using narrows::reference::Conv1d;

namespace {

// The bytes of an example's outputs after a launch; they are contiguous, and were all ones before.
std::vector<unsigned char> launched(const Example& e, const Call& call) {
  const auto size_of = [](const Tensor& t) { return static_cast<size_t>(t.size() * item_size(t.dtype())); };
  std::vector<unsigned char> all;
  for (const auto& t : e.outputs)
    if (t != nullptr) CUDA_OK(cudaMemset(t->dl()->data, 0xFF, size_of(*t)));
  nw_error error{};
  const int32_t status = nw_run(runtime(), &call.raw, &error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
  CUDA_OK(cudaDeviceSynchronize());
  for (const auto& t : e.outputs) {
    if (t == nullptr) continue;
    const size_t before = all.size();
    all.resize(before + size_of(*t));
    CUDA_OK(cudaMemcpy(all.data() + before, t->dl()->data, size_of(*t), cudaMemcpyDeviceToHost));
  }
  return all;
}

// Work on a stream of its own that takes turns with a call's blocks, for a fraction of a millisecond.
class Bustle {
 public:
  void begin() {
    for (int i = 0; i < 16; ++i) CUDA_OK(cudaMemsetAsync(memory_.data(), i, kSize, stream_));
  }

 private:
  static constexpr size_t kSize = size_t{64} << 20;
  Buffer memory_{kSize};
  Stream stream_;
};

std::vector<Example> many_blocks(DType dtype) {
  std::vector<Example> all = elementwise_examples(dtype, 1024, 1032);
  if (!is_float(dtype)) return all;
  const auto add = [&](std::vector<Example> more) {
    for (Example& e : more) all.push_back(std::move(e));
  };
  add(conv1d_examples(dtype, 1, 1, 1, 1 << 20, 31, 1));
  add(conv1d_examples(dtype, 2, 256, 256, 2048, 3, 1));
  add(conv1d_examples(dtype, 4, 256, 256, 2048, 4, 256));
  add(conv1d_examples(dtype, 1, 512, 1024, 4, 5, 1));
  add(lltm_examples(dtype, 256, 512, 512));
  add(lltm_sequence_examples(dtype, 4, 256, 64, 128));
  return all;
}

// The kernel of a call's plan, or why there is none.
std::string planned(const Call& call) {
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  return nw_plan_get(runtime(), &call.raw, nullptr, &info, &error) == NW_OK ? info.kernel : error.message;
}

// A forced variant is refused where it takes neither gradient: one that is wanted alone is on that variant.
void check_each_gradient_alone(const char* kernel) {
  if (const auto excluded = manifest().covering({"conv1d_backward", "", "", "", kernel}); !excluded.empty())
    SKIP("kernel '" << kernel << "': " << excluded.front()->reason);
  const Conv1d whole{.batch = 3, .channels = 72, .length = 256, .filters = 136, .taps = 3, .pad_left = 1, .pad_right = 1};
  Conv1d longer = whole, later = whole;  // than whole tiles of positions; no x before its first output
  longer.length = later.length = 264, later.pad_left = 0, later.pad_right = 2;
  const auto check_gradients = [&](const Conv1d& shape, DType dtype) {
    Rng rng("conv1d gradients alone");
    const Conv1dCase c{.shape = shape, .dtype = dtype};
    Conv1dTensors t(c, rng);
    t.y.fill_uniform(rng, -1, 1);  // plays grad_y
    const std::vector<double> gy = t.y.values(), x = t.x.values(), w = t.w.values();
    const auto expected = narrows::reference::conv1d_backward(c.shape, gy, x, w);
    const auto magnitude = narrows::reference::conv1d_backward(c.shape, absolute(gy), absolute(x), absolute(w));
    const auto check = [&](Tensor* grad_x, Tensor* grad_w, const std::vector<double>& reference, const std::vector<double>& sizes,
                           int64_t terms) {
      Call call("conv1d_backward", {&t.y, &t.x, &t.w}, {grad_x, grad_w, nullptr}, c.params());
      call.raw.kernel = kernel;
      INFO((grad_x != nullptr ? "grad_x" : "grad_w") << " alone, length " << shape.length << ", pad_left " << shape.pad_left);
      CHECK(planned(call) == kernel);
      const Tensor& got = grad_x != nullptr ? *grad_x : *grad_w;
      expect_within(call.run(), got, reference, sum_bound(accumulator(dtype), sizes, terms, Terms::independent));
    };
    Tensor grad_x(dtype, c.x_dims()), grad_w(dtype, c.w_dims());
    check(&grad_x, nullptr, expected.x, magnitude.x, c.shape.filters * c.shape.taps);
    check(nullptr, &grad_w, expected.w, magnitude.w, c.shape.batch * c.shape.outputs());
  };
  const bool of_f32 = std::strcmp(kernel, "wgmma_split") == 0;
  for (const DType dtype : of_f32 ? std::vector{DType::f32} : std::vector{DType::f16, DType::bf16})
    for (const Conv1d& shape : {whole, longer, later}) check_gradients(shape, dtype);
}

}  // namespace

// Where one operand is the same everywhere, and the others lie at no multiple of a vector's bytes.
TEST_CASE("kernels: elementwise's eights of f16 with a number, at multiples of 4 bytes", "[kernels]") {
  for (const char* name : {"f16x8", "f16x8_pack"})
    for (const uint64_t bytes : {0, 4, 8, 12}) {
      INFO(name << " at " << bytes);
      Rng rng(name);
      Tensor a(DType::f16, {1000}, Layout{}.with_misalignment(bytes)), out(DType::f16, {1000});
      a.fill_uniform(rng, -1, 1);
      nw_elementwise_params p{};
      p.function = NW_EW_ADD;
      p.b_real = 1;
      expect_ok(run("elementwise", {&a, nullptr}, {&out}, p, "scalar"));
      const auto expected = out.element_bytes();
      const Result result = run("elementwise", {&a, nullptr}, {&out}, p, name);
      if (result.was_declined()) continue;
      expect_ok(result);
      CHECK(out.element_bytes() == expected);
    }
}

TEST_CASE("kernels: elementwise has LeetCUDA's six by their names", "[kernels]") {
  for (const auto& [name, dtype] : {std::pair{"f32", DType::f32},
                                    {"f32x4", DType::f32},
                                    {"f16", DType::f16},
                                    {"f16x2", DType::f16},
                                    {"f16x8", DType::f16},
                                    {"f16x8_pack", DType::f16}}) {
    INFO(name);
    std::set<std::string> listed;
    for (const char* kernel : kernels("elementwise")) listed.insert(kernel == nullptr ? "" : kernel);
    CHECK(listed.count(name) == 1);
    Rng rng(name);
    Tensor a(dtype, {64, 128}), b(dtype, {64, 128}), out(dtype, {64, 128});
    a.fill_uniform(rng, -1, 1);
    b.fill_uniform(rng, -1, 1);
    nw_elementwise_params p{};
    p.function = NW_EW_ADD;
    expect_ok(run("elementwise", {&a, &b}, {&out}, p));
    const auto expected = out.element_bytes();
    Call call("elementwise", {&a, &b}, {&out}, p);
    call.raw.kernel = name;
    expect_ok(call.run());
    CHECK(out.element_bytes() == expected);
    nw_plan_info info{};
    info.struct_size = sizeof info;
    REQUIRE(nw_plan_get(runtime(), &call.raw, nullptr, &info, nullptr) == NW_OK);
    CHECK(std::string(info.kernel) == name);
  }
}

// Once by itself; then while other blocks come between, in a workspace that held something else each time.
TEST_CASE("kernels: each gives the same bits again, in calls of many blocks", "[kernels]") {
  std::set<std::string> ran;
  Bustle bustle;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32})
    for (const Example& e : many_blocks(dtype))
      for (const char* kernel : kernels(e.op)) {
        Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
        call.raw.kernel = kernel;
        nw_plan_info info{};
        info.struct_size = sizeof info;
        const int32_t status = nw_plan_get(runtime(), &call.raw, nullptr, &info, nullptr);
        if (kernel != nullptr && status == NW_UNSUPPORTED) continue;
        INFO(e.what << ", kernel " << (kernel == nullptr ? "-" : kernel));
        REQUIRE(status == NW_OK);
        if ((info.traits & NW_PLAN_NONDETERMINISTIC) != 0) continue;
        const Buffer workspace(info.workspace_size + 1);
        call.raw.workspace = workspace.data(), call.raw.workspace_size = info.workspace_size;
        CUDA_OK(cudaMemset(workspace.data(), 0, info.workspace_size));
        const std::vector<unsigned char> once = launched(e, call);
        for (const unsigned char held : {0x3C, 0xFF}) {  // f16, bf16 and f32 near 1 and below, and NaN
          CUDA_OK(cudaMemset(workspace.data(), held, info.workspace_size));
          bustle.begin();
          const bool same = launched(e, call) == once;
          CHECK(same);
        }
        if (kernel != nullptr) ran.insert(std::string(e.op) + "/" + kernel);
      }
  expect_all_variants(ran);
}

// Operands that lie along the other dimension are staged, so these plans of one kernel ask for four tiles of shared memory, for
// three, and for four again.
TEST_CASE("kernels: a plan that needs less shared memory takes none away from another one", "[kernels]") {
  const std::vector<int64_t> shape{128, 128};
  Rng rng("clamp");
  Tensor grad_out(DType::f32, shape, Layout::transposed()), a(DType::f32, shape, Layout::transposed());
  Tensor b(DType::f32, shape, Layout::transposed()), far(DType::f32, shape, Layout::transposed()), near(DType::f32, shape);
  Tensor grad_a(DType::f32, shape);
  for (Tensor* t : {&grad_out, &a}) t->fill_uniform(rng, -1, 1);
  b.fill_uniform(rng, -1, 0);
  far.fill_uniform(rng, 0, 1);
  near.set(far.values());
  std::vector<double> expected = grad_out.values();
  const std::vector<double> at = a.values(), low = b.values(), high = far.values();
  for (size_t i = 0; i < expected.size(); ++i)
    if (at[i] < low[i] || at[i] > high[i]) expected[i] = 0;
  nw_elementwise_params p{};
  p.function = NW_EW_CLAMP;
  for (const Tensor* c : {&far, &near, &far}) {
    const Result result = run("elementwise_backward", {&grad_out, &a, &b, c}, {&grad_a, nullptr, nullptr}, p, "strided");
    INFO(c->describe());
    expect_ok(result);
    CHECK(grad_a.values() == expected);
  }
}

// Each residue of the positions modulo the stride would be a launch of its own.
TEST_CASE("kernels: grad_x of conv1d with thousands of residues", "[kernels]") {
  Rng rng("residues");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    check_conv1d_backward(
        {.shape = {.batch = 2, .channels = 4, .length = 5000, .filters = 6, .taps = 1100, .stride = 1100, .groups = 2},
         .dtype = dtype},
        rng, kGradX);
    check_conv1d_backward({.shape = {.length = 4000, .taps = 1025, .stride = 1031, .dilation = 3, .pad_left = 7, .pad_right = 900},
                           .dtype = dtype,
                           .x_layout = Layout::strided(2).with_misalignment(1)},
                          rng, kGradX);
  }
}

TEST_CASE("kernels: each gradient of conv1d alone on wgmma", "[kernels]") { check_each_gradient_alone("wgmma"); }
TEST_CASE("kernels: each gradient of conv1d alone on wgmma_split", "[kernels]") { check_each_gradient_alone("wgmma_split"); }
TEST_CASE("kernels: each gradient of conv1d alone on mma", "[kernels]") { check_each_gradient_alone("mma"); }

// Rows of 261 elements are none that the copy engine walks: wgmma copies grad_y for grad_x, and has no way to grad_w.
TEST_CASE("kernels: a gradient of conv1d that the forced variant isn't made for is on another one, or refused alone", "[kernels]") {
  if (const auto excluded = manifest().covering({"conv1d_backward", "", "", "", "wgmma"}); !excluded.empty())
    SKIP("kernel 'wgmma': " << excluded.front()->reason);
  const Conv1dCase c{.shape = {.batch = 2, .channels = 64, .length = 261, .filters = 64, .taps = 3, .pad_left = 2},
                     .dtype = DType::f16};
  Rng rng("conv1d gradients");
  Conv1dTensors t(c, rng);
  Tensor grad_x(c.dtype, c.x_dims()), grad_w(c.dtype, c.w_dims());
  Call both("conv1d_backward", {&t.y, &t.x, &t.w}, {&grad_x, &grad_w, nullptr}, c.params());
  Call alone("conv1d_backward", {&t.y, &t.x, &t.w}, {nullptr, &grad_w, nullptr}, c.params());
  both.raw.kernel = alone.raw.kernel = "wgmma";
  CHECK(planned(both) == "wgmma");
  expect_refused(alone.run(), NW_UNSUPPORTED, -1, {"conv1d_backward", "kernel 'wgmma'"});
  check_conv1d_backward(c, rng, kGradX | kGradW);
}

TEST_CASE("kernels: a forced variant of conv1d that cannot run here is declined where there is nothing to do, too", "[kernels]") {
  for (const char* kernel : {"wgmma", "wgmma_split", "mma"}) {
    INFO(kernel);
    const bool runs = manifest().covering({"conv1d", "", "", "", kernel}).empty();
    const Conv1dCase c{.shape = {.batch = 2, .channels = 8, .length = 64, .filters = 8, .taps = 3},
                       .dtype = std::strcmp(kernel, "wgmma_split") == 0 ? DType::f32 : DType::f16};
    Rng rng("nothing to do");
    Conv1dTensors t(c, rng);
    Tensor none_x(c.dtype, {0, 8, 64}), none_y(c.dtype, {0, 8, 62}), grad_w(c.dtype, c.w_dims()), grad_bias(c.dtype, {8});
    Call no_batch("conv1d", {&none_x, &t.w, nullptr}, {&none_y}, c.params());
    Call no_gradient("conv1d_backward", {nullptr, &t.x, &t.w}, {nullptr, &grad_w, nullptr}, c.params());
    Call bias_alone("conv1d_backward", {&t.y, &t.x, &t.w}, {nullptr, nullptr, &grad_bias}, c.params());
    for (Call* call : {&no_batch, &no_gradient, &bias_alone}) {
      call->raw.kernel = kernel;
      CHECK((planned(*call) == kernel) == runs);
    }
  }
}

// The shapes alone are planned: nothing lies at these addresses.
TEST_CASE("kernels: an element-wise output that no memory holds is refused", "[kernels]") {
  constexpr int64_t kMany = int64_t{1} << 31;
  int64_t column[] = {kMany, 1}, row[] = {1, kMany}, whole[] = {kMany, kMany};
  Addition call(device(), reinterpret_cast<void*>(uintptr_t{1} << 33), reinterpret_cast<void*>(uintptr_t{1} << 34),
                reinterpret_cast<void*>(uintptr_t{1} << 40), 1);
  int64_t* const shapes[] = {column, row, whole};
  for (int i = 0; i < 3; ++i) call.tensors[i].ndim = 2, call.tensors[i].dtype = {kDLUInt, 8, 1}, call.tensors[i].shape = shapes[i];
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  expect_status(nw_plan_get(runtime(), &call.call, nullptr, &info, &error), error, NW_UNSUPPORTED, {"tensor 2", "2^42"});
}
