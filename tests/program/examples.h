// SPDX-License-Identifier: Apache-2.0
// examples.h -- the programs of texts/, each with tensors that fit it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cpu_plugin.h"
#include "programs.h"

inline const Plugin& plugin() {
#ifdef PROGRAM_NEEDS_A_GPU
  nw_error error{};
  if (!Plugin::is_usable(&error) && error.status == NW_UNAVAILABLE) SKIP(error.message);
#endif
  static const Plugin one;
  return one;
}

// The plugin held to each set of instructions. The machine's own is always checked; the others where this processor has them.
inline void for_each_target(const std::function<void(const Plugin&)>& check) {
  check(Plugin());
  for (const char* target : {"avx2", "sse4"}) {
    setenv("NARROWS_CPU_TARGET", target, 1);
    nw_error error{};
    const int32_t status = Plugin::status(&error);
    INFO(target);
    if (status == NW_OK) check(Plugin());
    unsetenv("NARROWS_CPU_TARGET");
    if (status == NW_OK) continue;
    INFO(error.message);
    CHECK(status == NW_UNAVAILABLE);  // of another processor; any other refusal is a fault
  }
}

inline const char* const kKernels[] = {"interpreter", "compiled"};

inline std::string text_of(const char* name) { return read_file(std::filesystem::path(TEXTS) / (std::string(name) + ".program")); }

struct Prepared {
  std::vector<Tensor> inputs, outputs;
  std::vector<Param> params;
};
inline Tensor filled(DType dtype, std::vector<int64_t> shape, unsigned seed, double low = -2, double high = 2) {
  Tensor out(dtype, std::move(shape));
  out.fill(seed, low, high);
  return out;
}
// The same values with gaps between.
inline Tensor spread(Tensor& dense, int64_t step) {
  Tensor out(dense.dtype, dense.shape, step);
  for (int64_t i = 0; i < dense.elements(); ++i) out.set(i, dense.exact(i));
  return out;
}
inline void run_well(const Call& call) {
  const Answer answer = call.run();
  INFO(call.kernel << ": " << answer.message);
  REQUIRE(answer);
}
struct Example {
  const char* name;
  std::function<Prepared()> prepare;
};
inline constexpr DType kF = DType::f32;
inline const Example kExamples[] = {
    {"add", [] { return Prepared{{filled(kF, {3, 37}, 1), filled(kF, {3, 37}, 2)}, {Tensor(kF, {3, 37})}, {}}; }},
    {"argmax", [] { return Prepared{{filled(kF, {5, 19}, 1)}, {Tensor(DType::i64, {5}), Tensor(kF, {5})}, {}}; }},
    {"attention",
     [] {
       return Prepared{
           {filled(kF, {9, 8}, 1), filled(kF, {11, 8}, 2), filled(kF, {11, 6}, 3)}, {Tensor(kF, {9, 6})}, {{0, 1, false}}};
     }},
    {"conv1d",
     [] {
       return Prepared{{filled(kF, {2, 8, 21}, 1), filled(kF, {6, 4, 3}, 2), filled(kF, {6}, 3)},
                       {Tensor(kF, {2, 6, (21 + 8 - 6 - 1) / 2 + 1})},
                       {}};
     }},
    {"batched_matmul",
     [] { return Prepared{{filled(kF, {2, 5, 7}, 1), filled(kF, {2, 35, 7}, 2)}, {Tensor(kF, {2, 5, 35})}, {}}; }},
    {"cumsum", [] { return Prepared{{filled(kF, {3, 40}, 1)}, {Tensor(kF, {3, 40})}, {}}; }},
    {"depthwise_conv2d",
     [] { return Prepared{{filled(kF, {2, 3, 9, 37}, 1), filled(kF, {3, 3, 3}, 2)}, {Tensor(kF, {2, 3, 9, 37})}, {}}; }},
    {"gather", [] { return Prepared{{filled(kF, {6, 21}, 1), filled(DType::i64, {9}, 2, -4, 12)}, {Tensor(kF, {9, 21})}, {}}; }},
    {"int8_matmul",
     [] {
       return Prepared{{filled(DType::i8, {6, 19}, 1, -120, 120), filled(DType::i8, {19, 40}, 2, -120, 120)},
                       {Tensor(DType::i32, {6, 40})},
                       {}};
     }},
    {"layer_norm",
     [] {
       return Prepared{{filled(DType::f16, {4, 50}, 1), filled(DType::f16, {50}, 2), filled(DType::f16, {50}, 3)},
                       {Tensor(DType::f16, {4, 50})},
                       {{1e-5, 0, true}}};
     }},
    {"log_sum_exp", [] { return Prepared{{filled(kF, {4, 50}, 1)}, {Tensor(kF, {4})}, {}}; }},
    {"rms_norm", [] { return Prepared{{filled(kF, {4, 50}, 1), filled(kF, {50}, 2)}, {Tensor(kF, {4, 50})}, {{1e-5, 0, true}}}; }},
    {"stencil", [] { return Prepared{{filled(kF, {8, 45}, 1)}, {Tensor(kF, {8, 45})}, {}}; }},
    {"lltm",
     [] {
       return Prepared{
           {filled(kF, {3, 4}, 1), filled(kF, {15, 9}, 2), filled(kF, {15}, 3), filled(kF, {3, 5}, 4), filled(kF, {3, 5}, 5)},
           {Tensor(kF, {3, 5}), Tensor(kF, {3, 5})},
           {}};
     }},
    {"mm_relu", [] { return Prepared{{filled(kF, {128, 128}, 1), filled(kF, {128, 128}, 2)}, {Tensor(kF, {128, 128})}, {}}; }},
    {"softmax", [] { return Prepared{{filled(kF, {6, 300}, 1)}, {Tensor(kF, {6, 300})}, {}}; }},
};

// Rows that are added up, by loops of which some points lead to no row: nothing may be read or written for these, neither ahead of
// the loops that add up nor by the init.
inline const char* const kPointsOfNoRow[] = {
    // a condition that only the reduction decides
    R"(program 1 sums(x: f32[4, 4], C: out f32[4]):
  for i in 8:
    for k in 4:
      block C(vi: S(4) = i, vk: R(4) = k) if i + k // 4 < 4:
        init:
          C[vi] = f32(0)
        C[vi] = C[vi] + x[vi, vk]
)",
    // loops that have no iteration
    R"(program 1 sums(x: f32[4, 4], C: out f32[4]):
  for i in 8:
    for k in 4 - i // 4 * 4:
      block C(vi: S(4) = i, vk: R(4) = k):
        init:
          C[vi] = f32(0)
        C[vi] = C[vi] + x[vi, vk]
)",
    // of two parallel iterations one adds all up; the other one must not store what it read before
    R"(program 1 sums(x: f32[4, 4], C: out f32[4]):
  for i in 4:
    for k0 in 2 parallel:
      for k1 in 6:
        block C(vi: S(4) = i, vk: R(4) = k0 * 6 + k1) if k0 * 6 + k1 < 4:
          init:
            C[vi] = f32(0)
          C[vi] = C[vi] + x[vi, vk]
)",
    R"(program 1 sums(x: f32[4, 4], C: out f32[4]):
  for i in 4:
    for k0 in 2 parallel:
      for k1 in 4 - k0 * 4:
        block C(vi: S(4) = i, vk: R(4) = k0 * 4 + k1):
          init:
            C[vi] = f32(0)
          C[vi] = C[vi] + x[vi, vk]
)"};

inline std::vector<Tensor*> pointers(std::vector<Tensor>& tensors) {
  std::vector<Tensor*> out;
  for (Tensor& tensor : tensors) out.push_back(&tensor);
  return out;
}
