// SPDX-License-Identifier: Apache-2.0
// bench.cpp -- the cases of `narrows bench`: each is checked by the suite's own check, then timed, on every kernel
// variant that takes it. Bytes count each element once, operations as docs/ops.md writes them.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>

#include "conformance/conv1d/conv1d_case.h"
#include "conformance/elementwise/elementwise_cases.h"
#include "conformance/lltm/lltm_case.h"
#include "sample_tensors.h"
#include "support/bench.h"

using namespace narrows::test;
using narrows::reference::function;

namespace reference = narrows::reference;

namespace {

// Of a GPU more is asked: tensors that its caches do not hold.
bool on_cpu() { return device().device_type == kDLCPU; }

// Each variant that takes the call, the backend's choice first.
void bench_each_kernel(const std::string& title, const char* op, const std::vector<const Tensor*>& inputs,
                       const std::vector<Tensor*>& outputs, const Blob& params, double bytes, double operations) {
  for (const char* kernel : kernels(op)) {
    Call call(op, inputs, outputs, params);
    call.raw.kernel = kernel;
    const Result result = call.run();
    if (result.was_declined()) continue;
    expect_ok(result);
    measure(title, call, bytes, operations);
  }
}

void bench_elementwise(int32_t number, DType dtype, int64_t n) {
  const Function& f = function(number);
  check({f, dtype, std::vector<Shape>(f.operands, Shape{std::min<int64_t>(n, 1 << 16)}), {std::min<int64_t>(n, 1 << 16)}}, "bench");
  Rng rng("bench elementwise");
  std::vector<std::unique_ptr<Tensor>> operands;
  std::vector<const Tensor*> inputs;
  for (int i = 0; i < f.operands; ++i) {
    operands.push_back(std::make_unique<Tensor>(operand_dtype(f, i, dtype), Shape{n}));
    operands.back()->fill_uniform(rng, 0, 3);
    inputs.push_back(operands.back().get());
  }
  Tensor out(reference::out_dtype(f, dtype), {n});
  const double bytes = static_cast<double>(n * (f.operands * item_size(dtype) + item_size(out.dtype())));
  bench_each_kernel(std::string(f.name) + " " + name(dtype) + " " + std::to_string(n), "elementwise", inputs, {&out},
                    Blob(params_for(f)), bytes, 0);
}

// Checked on one batch of a short signal, for the same reason as lltm.
void bench_conv1d(const char* what, reference::Conv1d s, DType dtype, int rank) {
  const Conv1dCase c{.shape = s, .dtype = dtype, .rank = rank};
  Conv1dCase small = c;
  small.shape.batch = 1;
  small.shape.length = std::min<int64_t>(s.length, 4096);
  Rng rng("bench conv1d");
  check_conv1d(small, rng);
  Conv1dTensors t(c, rng);
  const double macs = static_cast<double>(s.batch * s.filters * s.outputs() * s.group_channels() * s.taps);
  const std::string title = std::string(what) + " " + name(dtype);
  bench_each_kernel("conv1d " + title, "conv1d", {&t.x, &t.w, &t.bias}, {&t.y}, c.params(), 0, 2 * macs);
  check_conv1d_backward(small, rng);
  Tensor gx(dtype, c.x_dims()), gw(dtype, c.w_dims()), gbias(dtype, c.bias_dims());
  t.y.fill_uniform(rng, -1, 1);
  bench_each_kernel("conv1d_backward " + title, "conv1d_backward", {&t.y, &t.x, &t.w}, {&gx, &gw, &gbias}, c.params(), 0, 4 * macs);
}

// Checked on a batch of 16 at most: the loops of the reference are slow, and variants are forced.
void bench_lltm(reference::Lltm s, DType dtype) {
  const LltmCase c{.shape = s, .dtype = dtype};
  LltmCase small = c;
  small.shape.batch = std::min<int64_t>(s.batch, 16);
  Rng rng("bench lltm");
  check_lltm(small, rng);
  check_lltm_backward(small, rng);
  LltmTensors t(c, rng);
  LltmGradTensors g(c, rng);
  const std::string title =
      "B" + std::to_string(s.batch) + " F" + std::to_string(s.features) + " S" + std::to_string(s.states) + " " + name(dtype);
  const double macs = static_cast<double>(s.batch * 3 * s.states * (s.states + s.features));
  bench_each_kernel("lltm " + title, "lltm", t.forward_inputs(), {&t.new_h, &t.new_cell, &t.gates}, {}, 0, 2 * macs);
  bench_each_kernel(
      "lltm_backward " + title, "lltm_backward",
      {&g.grad_h, &g.grad_cell, &t.input, &t.weights, &t.bias, &t.old_h, &t.old_cell, &t.new_h, &t.new_cell, &t.gates}, g.all(), {},
      0, 4 * macs);
}

double seconds_of(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(nw_run(runtime(), &call.raw, nullptr) == NW_OK);
  REQUIRE(nw_stream_sync(runtime(), device(), nullptr, nullptr) == NW_OK);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Only its author can say that its numbers are right: it is checked that the same call gives the same twice. The seconds of a call.
double bench_own(const Sample& s) {
  const SampleTensors t(s);
  const Result result = t.run();
  expect_ok(result);
  if (!result.ok()) return 0;
  const auto values = t.values();
  expect_agrees(t.run(), t, values);
  std::string title = s.describe();
  title.resize(std::min(title.find(" -> "), title.size()));
  bench_each_kernel(title, s.op->name, t.in(), t.out(), Blob(s.params), static_cast<double>(s.bytes()), 0);
  return seconds_of(Call(s.op->name, t.in(), t.out(), Blob(s.params)));
}

// From small to large, per dtype. A product of matrices takes the bytes to the power of 1.5: what would take longer is left out.
void bench_own(const std::vector<Sample>& samples) {
  constexpr double kLongest = 0.5;
  const Sample* last = nullptr;
  double seconds = 0;
  for (const Sample& s : samples) {
    if (last != nullptr && last->inputs[0].dtype == s.inputs[0].dtype &&
        seconds * std::pow(static_cast<double>(s.bytes()) / static_cast<double>(last->bytes()), 1.5) > kLongest)
      continue;
    seconds = bench_own(s);
    last = &s;
  }
}

}  // namespace

TEST_CASE("bench: ops of the plugin's own", "[.bench][own]") {
  bool some = false;
  for (const nw_op* op : offered_ops()) {
    if (!is_own(*op)) continue;
    some = true;
    const std::vector<Sample> samples = large_samples_of(*op);
    if (samples.empty()) FAIL_CHECK(op->name << ": no accepted call found");
    bench_own(samples);
  }
  if (!some) SKIP("the backend brings no op of its own");
}

TEST_CASE("bench: smallest", "[.bench]") {
  bench_elementwise(NW_EW_ADD, DType::f32, 1024);
  bench_lltm({2, 3, 4}, DType::f32);
}

TEST_CASE("bench: elementwise", "[.bench][elementwise]") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32})
    for (const int64_t n : {int64_t{4096}, int64_t{1} << 20, int64_t{1} << (on_cpu() ? 24 : 25)})
      for (const int32_t number : {NW_EW_ADD, NW_EW_FMA, NW_EW_EXP, NW_EW_TANH, NW_EW_GELU})
        if (reference::allows(function(number).domain, dtype)) bench_elementwise(number, dtype, n);
}

TEST_CASE("bench: conv1d", "[.bench][conv1d]") {
  const int64_t length = int64_t{1} << (on_cpu() ? 20 : 24);
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t taps : {4, 31, 127})
      bench_conv1d(("signal K" + std::to_string(taps)).c_str(), {.length = length, .taps = taps, .pad_right = taps - 1}, dtype, 1);
    if (on_cpu()) {
      bench_conv1d("depthwise B4 C256 L4096 K4",
                   {.batch = 4, .channels = 256, .length = 4096, .filters = 256, .taps = 4, .groups = 256, .pad_left = 3}, dtype,
                   3);
      bench_conv1d("dense B4 C64->64 L4096 K3",
                   {.batch = 4, .channels = 64, .length = 4096, .filters = 64, .taps = 3, .pad_left = 1, .pad_right = 1}, dtype, 3);
    } else {
      bench_conv1d("depthwise B8 C2048 L2048 K4",
                   {.batch = 8, .channels = 2048, .length = 2048, .filters = 2048, .taps = 4, .groups = 2048, .pad_left = 3}, dtype,
                   3);
      bench_conv1d("dense B16 C256->256 L4096 K3",
                   {.batch = 16, .channels = 256, .length = 4096, .filters = 256, .taps = 3, .pad_left = 1, .pad_right = 1}, dtype,
                   3);
    }
  }
}

TEST_CASE("bench: lltm", "[.bench][lltm]") {
  for (const DType dtype : kFloatDTypes)
    for (const reference::Lltm& s : {reference::Lltm{16, 32, 128}, {64, 256, 256}, {256, 1024, 1024}, {512, 2048, 2048}})
      if (!on_cpu() || s.states < 2048) bench_lltm(s, dtype);  // the last one's weights are 50 to 200 MB: beyond a GPU's cache
}
