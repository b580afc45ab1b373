// SPDX-License-Identifier: Apache-2.0
// Shader checks: one small call of every op, forward and backward, for the run in which the validation layer checks each access of
// a shader (NARROWS_VULKAN_VALIDATION=gpu), which takes lavapipe many times as long as the access. What it says is the call's
// error. Gradients run in every dtype, since each has modules of its own; conv1d and lltm in few, whose pipelines take the longest.
#include <cstring>
#include <set>

#include "calls.h"

namespace narrows::vulkan::test {
namespace {

// For kernels of that dtype.
bool has_matrix_unit(const Runtime& rt, const DLDataType& dtype) {
  if (dtype.bits != 16) return false;
  nw_device_info info{};
  info.struct_size = sizeof info;
  REQUIRE(nw_device(rt.handle, on(0), &info, nullptr) == NW_OK);
  const std::string words = dtype.code == kDLBfloat ? "bf16, " : "matrix unit of f16";
  return std::strstr(info.arch, words.c_str()) != nullptr;
}

bool has_f64(const Runtime& rt) {
  const Tensor one{kF64, {1}};
  nw_error error{};
  if (Prepared(rt, elementwise(NW_EW_NEG, {one}, one)).run(&error) == NW_OK) return true;
  INFO(error.message);
  CHECK(std::strstr(error.message, "lacks shaderFloat64") != nullptr);
  return false;
}

bool can_run(const Runtime& rt, const Call& call, const char* kernel) {
  if (kernel == nullptr || std::strcmp(kernel, "coopmat") != 0) return true;
  return has_matrix_unit(rt, call.outputs.front().dtype);
}

// Each call on every variant, of which one may decline a call, but not all of its op's.
void run_all(const Runtime& rt, const std::vector<Call>& calls) {
  std::set<std::string> ran, wanted;
  for (const Call& call : calls)
    for (const char* kernel : kernels(rt, call.op)) {
      const std::string name = std::string(call.op) + ", " + (kernel != nullptr ? kernel : "its own choice");
      Prepared prepared(rt, call, kernel);
      nw_error error{};
      int32_t status = prepared.run(&error);
      if (status == NW_OK) status = nw_stream_sync(rt.handle, on(0), nullptr, &error);
      INFO(name << ": " << error.message);
      CHECK((status == NW_OK || (status == NW_UNSUPPORTED && kernel != nullptr)));
      if (status == NW_OK) ran.insert(name);
      if (can_run(rt, call, kernel)) wanted.insert(name);
    }
  CHECK(ran == wanted);
}

constexpr Conv kSignal{1, 1, 41, 1, 3, {.pad_right = 2}}, kDense{1, 9, 11, 9, 3, {}}, kStrided{1, 2, 11, 2, 2, {.stride = 3}};

std::vector<Call> forward_calls(const Runtime& rt) {
  const Tensor words{kI32, {37}}, run{kF32, {37}}, rows{kF32, {3, 21}}, table{kF32, {20, 37}}, transposed{kF32, {20, 37}, {1, 20}};
  std::vector<Call> calls{elementwise(NW_EW_ADD, {run, run}, run),
                          elementwise(NW_EW_MUL, {transposed, {kF32, {37}}}, table),
                          elementwise(NW_EW_CAST, {words}, {kF16, {37}}),
                          elementwise(NW_EW_BITWISE_XOR, {words, words}, words),
                          conv1d(kF32, kSignal),
                          conv1d(kF16, kDense),
                          lltm(kF32, 2, 3, 5)};
  if (has_matrix_unit(rt, kF16)) calls.push_back(lltm(kF16, 2, 3, 5));
  if (has_matrix_unit(rt, kBf16)) calls.insert(calls.end(), {conv1d(kBf16, kDense), lltm(kBf16, 2, 3, 5)});
  return calls;
}

std::vector<Call> gradients(DLDataType dtype) {
  const Tensor run{dtype, {37}}, column{dtype, {3, 1}}, row{dtype, {21}}, rows{dtype, {3, 21}};
  return {elementwise_backward(NW_EW_MUL, {run, run}, run),
          elementwise_backward(NW_EW_MUL, {column, row}, rows),
          conv1d_backward(dtype, kSignal),
          conv1d_backward(dtype, kDense),
          conv1d_backward(dtype, kStrided),
          lltm_backward(dtype, 2, 3, 5)};
}

// In one runtime, so that forward calls and gradients share pipelines.
TEST_CASE("shader checks: small calls of every op and variant, gradients in every dtype", "[shader_checks]") {
  const Runtime rt;
  run_all(rt, forward_calls(rt));
  for (const DLDataType dtype : {kF32, kF64, kF16, kBf16}) {
    if (dtype.bits == 64 && !has_f64(rt)) continue;
    INFO("dtype " << int{dtype.code} << " of " << int{dtype.bits} << " bits");
    run_all(rt, gradients(dtype));
  }
}

}  // namespace
}  // namespace narrows::vulkan::test
