// SPDX-License-Identifier: Apache-2.0
// library.cpp -- lltm and lltm_backward with the vendor's library, and without it: each way is a process of its own, whose
// environment CMakeLists.txt has. Their results are judged by the conformance suite as every variant's are; here is what is this
// variant's alone, and of gradients in two parts of 16 bits, which kernels of our own have too.
#include <dlfcn.h>

#include <cmath>
#include <cstring>

#include "conformance/lltm/lltm_case.h"
#include "cuda.h"

using namespace narrows::test;

namespace {

using Values = std::vector<double>;

constexpr DType kHalves[] = {DType::f16, DType::bf16};

bool is_hip() { return std::strcmp(backend(), "hip") == 0; }
// The variant's name.
const char* library() { return is_hip() ? "hipblaslt" : "cublaslt"; }

// The kernel of a call of these sizes, by its signature alone: no address of it is ever used.
std::string planned_kernel(const char* op, DType dtype, int64_t batch, int64_t features, int64_t states,
                           const char* forced = nullptr, uint32_t flags = 0) {
  const Example e = std::move(lltm_examples(dtype, 8, 8, 8)[std::strcmp(op, "lltm") == 0 ? 0 : 1]);
  std::vector<std::vector<int64_t>> shapes;
  std::vector<DLTensor> tensors;
  std::vector<const DLTensor*> inputs, outputs;
  shapes.reserve(e.inputs.size() + e.outputs.size()), tensors.reserve(shapes.capacity());
  // The examples have batch rows; weights and d_weights have 3 * states of states + features.
  const auto add = [&](const Tensor* t, bool is_weights, bool is_input, bool is_bias, std::vector<const DLTensor*>* list) {
    if (t == nullptr) return list->push_back(nullptr);
    shapes.push_back(is_weights                ? std::vector<int64_t>{3 * states, states + features}
                     : is_bias                 ? std::vector<int64_t>{3 * states}
                     : is_input                ? std::vector<int64_t>{batch, features}
                     : t->shape().back() == 24 ? std::vector<int64_t>{batch, 3 * states}
                                               : std::vector<int64_t>{batch, states});
    DLTensor dl = *t->dl();
    dl.data = reinterpret_cast<void*>((shapes.size() + 1) << 36);
    dl.byte_offset = 0, dl.strides = nullptr, dl.shape = shapes.back().data();
    tensors.push_back(dl);
    list->push_back(&tensors.back());
  };
  const bool forward = std::strcmp(op, "lltm") == 0;
  for (size_t i = 0; i < e.inputs.size(); ++i)
    add(e.inputs[i].get(), i == (forward ? 1 : 3), i == (forward ? 0 : 2), forward && i == 2, &inputs);
  for (size_t i = 0; i < e.outputs.size(); ++i)
    add(e.outputs[i].get(), !forward && i == 1, !forward && i == 0, !forward && i == 2, &outputs);
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = op, call.backend = backend(), call.kernel = forced, call.flags = flags;
  call.num_inputs = static_cast<uint32_t>(inputs.size()), call.inputs = inputs.data();
  call.num_outputs = static_cast<uint32_t>(outputs.size()), call.outputs = outputs.data();
  nw_plan_info info{};
  info.struct_size = sizeof info;
  nw_error error{};
  if (nw_plan_get(runtime(), &call, nullptr, &info, &error) != NW_OK) return error.message;
  return info.kernel;
}

// hip's is cuBLASLt too, behind hipblaslt_shim.c. cuda's is opened by the plugin alone, whose search is under test.
void skip_without_library() {
  if (is_hip() && dlopen("libcublasLt.so.13", RTLD_NOW) == nullptr && dlopen("libcublasLt.so.12", RTLD_NOW) == nullptr)
    SKIP("hipblaslt_shim.c plays hipBLASLt with NVIDIA's cuBLASLt (12 or 13), which this machine does not have");
  const std::string kernel = planned_kernel("lltm", DType::f16, 8, 8, 8, library());
  if (!is_hip() && kernel.find("cannot open") != std::string::npos) SKIP(kernel);
  REQUIRE(kernel == library());
}

// Large calls are planned, small ones run, all without the library, which is named when it is asked for.
void check_without(const char* reason) {
  for (const DType dtype : kHalves) {
    for (const char* op : {"lltm", "lltm_backward"}) {
      const std::string chosen = planned_kernel(op, dtype, 1024, 4096, 4096);
      INFO(op << " " << name(dtype) << ": " << chosen);
      CHECK((chosen == "wgmma" || chosen == "mma" || chosen == "fused" || chosen == "tiled"));
      const std::string refusal = planned_kernel(op, dtype, 1024, 4096, 4096, library());
      INFO(refusal);
      CHECK(refusal.find("kernel '" + std::string(library()) + "'") != std::string::npos);
      CHECK(refusal.find(reason) != std::string::npos);
    }
    Rng rng("without library");
    check_lltm({.shape = {64, 128, 128}, .dtype = dtype}, rng);
    check_lltm_backward({.shape = {64, 128, 128}, .dtype = dtype}, rng);
  }
}

// The gradients of a call by a kernel that splits those of the gates, and by one that does not. `change` spoils some of its
// tensors.
template <class Change>
void check_gradients(const char* kernel, DType dtype, const char* what, Change&& change, const Layout& outputs = {}) {
  Rng rng(what);
  const LltmCase c{.shape = {40, 72, 64}, .dtype = dtype};
  LltmTensors t(c, rng);
  LltmGradTensors g({.shape = c.shape, .dtype = dtype, .layouts = everywhere(outputs)}, rng);
  t.new_cell.fill_uniform(rng, -1, 1);
  t.gates.fill_uniform(rng, -2, 2);
  change(t, g);
  const std::vector<const Tensor*> inputs{&g.grad_h, &g.grad_cell, &t.input, &t.weights,  nullptr,
                                          &t.old_h,  nullptr,      nullptr,  &t.new_cell, &t.gates};
  expect_ok(run("lltm_backward", inputs, g.all(), {}, "tiled"));
  std::vector<Values> expected;
  for (const Tensor* out : g.all()) expected.push_back(out->values());
  const Result result = run("lltm_backward", inputs, g.all(), {}, kernel);
  INFO(kernel << ", " << what);
  expect_ok(result);
  for (size_t i = 0; i < expected.size(); ++i) {
    double largest = 0;
    for (const double v : expected[i])
      if (std::isfinite(v)) largest = std::fmax(largest, std::fabs(v));
    // Two roundings to 16 bits; and where a sum cancels, what the split takes from its largest terms.
    expect_close(result, *g.all()[i], expected[i], {.atol = largest * 0x1p-14, .ulps = 2});
  }
}

Values scaled(Values values, double factor) {
  for (double& v : values) v *= factor;
  return values;
}
Values with(Values values, size_t i, double value) {
  values[i] = value;
  return values;
}

void check_magnitudes(const char* kernel) {
  for (const DType dtype : kHalves) {
    check_gradients(kernel, dtype, "plain", [](LltmTensors&, LltmGradTensors&) {});
    // The gradients of gates pass f16's ends on both sides: 65504 and 2^-24.
    for (const double factor : {0x1p-20, 0x1p-12, 0x1p12})
      check_gradients(kernel, dtype, "scaled", [&](LltmTensors&, LltmGradTensors& g) {
        for (Tensor* grad : {&g.grad_h, &g.grad_cell}) grad->set(scaled(grad->values(), factor));
      });
    for (const double factor : {0x1p10, 0x1p20})  // elu passes large candidates on
      check_gradients(kernel, dtype, "large candidates", [&](LltmTensors& t, LltmGradTensors&) {
        Values gates = t.gates.values();
        for (size_t i = 0; i < gates.size(); ++i)
          if (i % 192 >= 128) gates[i] *= factor;
        t.gates.set(gates);
      });
    check_gradients(kernel, dtype, "all zero", [](LltmTensors&, LltmGradTensors& g) {
      for (Tensor* grad : {&g.grad_h, &g.grad_cell}) grad->set(scaled(grad->values(), 0));
    });
  }
}

// Outputs that neither the copy engine nor words of 4 bytes can be stored to, and such as take words.
void check_outputs(const char* kernel) {
  for (const DType dtype : kHalves)
    for (const Layout& layout : {Layout::transposed(), Layout::reversed(), Layout::strided(3), Layout::contiguous().with_offset(2),
                                 Layout::contiguous().with_offset(4)})
      check_gradients(kernel, dtype, layout.name.c_str(), [](LltmTensors&, LltmGradTensors&) {}, layout);
}

void check_infinities(const char* kernel) {
  for (const DType dtype : kHalves)
    for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      check_gradients(kernel, dtype, "in grad_cell",
                      [&](LltmTensors&, LltmGradTensors& g) { g.grad_cell.set(with(g.grad_cell.values(), 3 * 64 + 5, value)); });
      check_gradients(kernel, dtype, "in old_h",
                      [&](LltmTensors& t, LltmGradTensors&) { t.old_h.set(with(t.old_h.values(), 7 * 64 + 9, value)); });
      check_gradients(kernel, dtype, "in weights",
                      [&](LltmTensors& t, LltmGradTensors&) { t.weights.set(with(t.weights.values(), 11 * 136 + 70, value)); });
    }
}

// A kernel of our own that splits the gradients as the library's variant does.
void check_own(const char* kernel) {
  if (const auto excluded = manifest().covering({"lltm_backward", "", "", "", kernel}); !excluded.empty())
    SKIP("kernel '" << kernel << "': " << excluded.front()->reason);
  check_magnitudes(kernel);
  check_infinities(kernel);
  check_outputs(kernel);
}

}  // namespace

TEST_CASE("kernels: gradients of lltm in two parts of 16 bits, on wgmma", "[kernels]") { check_own("wgmma"); }
TEST_CASE("kernels: gradients of lltm in two parts of 16 bits, on mma", "[kernels]") { check_own("mma"); }

// Tiles and slices in both directions, of sizes that they do not divide; no features; a batch of one; each gradient alone.
TEST_CASE("kernels: gradients of lltm over many tiles", "[kernels]") {
  Rng rng("tiles");
  const auto check = [&](const narrows::reference::Lltm& shape, DType dtype, const LltmWanted& wanted = {}) {
    for (const char* kernel : {"wgmma", "mma"})
      if (manifest().covering({"lltm_backward", "", "", "", kernel}).empty())
        CHECK(planned_kernel("lltm_backward", dtype, shape.batch, shape.features, shape.states, kernel) == kernel);
    check_lltm_backward({.shape = shape, .dtype = dtype}, rng, wanted);
  };
  check({300, 264, 520}, DType::f16);
  check({130, 264, 264}, DType::bf16);
  check({1, 8, 264}, DType::f16);
  check({700, 0, 64}, DType::bf16);
  for (unsigned one = 1; one < 32; one *= 2) check({130, 72, 264}, DType::f16, {.outputs = one});
  check_lltm_backward({.shape = {130, 64, 72}, .dtype = DType::f16, .layouts = {.old_h = Layout::broadcast({true, false})}}, rng);
}

// hip's has to be forced. Backward Hopper's own kernel is as fast.
TEST_CASE("library there: large calls choose it, and small ones do not", "[.][library_there]") {
  skip_without_library();
  for (const DType dtype : kHalves)
    for (const char* op : {"lltm", "lltm_backward"}) {
      const std::string chosen = planned_kernel(op, dtype, 1024, 4096, 4096);
      const bool on_hopper = manifest().covering({"lltm_backward", "", "", "", "wgmma"}).empty();
      if (is_hip())
        CHECK(chosen != library());
      else
        CHECK(chosen == (on_hopper && std::strcmp(op, "lltm_backward") == 0 ? "wgmma" : library()));
      CHECK(planned_kernel(op, dtype, 1024, 4096, 4096, library()) == library());
      CHECK(planned_kernel(op, dtype, 16, 32, 128) != library());
    }
  for (const DType dtype : {DType::f32, DType::f64}) {
    CHECK(planned_kernel("lltm", dtype, 1024, 4096, 4096) != library());
    CHECK(planned_kernel("lltm", dtype, 1024, 4096, 4096, library()).find("does not take") != std::string::npos);
  }
}

TEST_CASE("library there: gradients of any magnitude", "[.][library_there]") {
  skip_without_library();
  check_magnitudes(library());
}

TEST_CASE("library there: what is infinite or NaN goes where it goes in f32", "[.][library_there]") {
  skip_without_library();
  check_infinities(library());
}

// cuBLASLt does; hipBLASLt cannot be asked to.
TEST_CASE("library there: a call that wants the same bits again takes it if it promises them", "[.][library_there]") {
  skip_without_library();
  for (const DType dtype : kHalves)
    for (const char* op : {"lltm", "lltm_backward"}) {
      const std::string forced = planned_kernel(op, dtype, 1024, 4096, 4096, library(), NW_DETERMINISTIC);
      INFO(forced);
      CHECK((is_hip() ? forced.find("is not deterministic") != std::string::npos : forced == library()));
    }
}

TEST_CASE("library off: its variable is 0", "[.][library_off]") {
  check_without(is_hip() ? "NARROWS_HIPBLASLT is 0" : "NARROWS_CUBLASLT is 0");
}

TEST_CASE("library broken: one that fails", "[.][library_broken]") {
  check_without(is_hip() ? "hipblasLtCreate failed (hipBLAS status 6)" : "cublasLtCreate failed (cuBLAS status 14)");
}
