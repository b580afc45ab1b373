// SPDX-License-Identifier: Apache-2.0
// gemm_library_test.cpp -- backends/cuda/ops/gemm/gemm_library.cpp without a GPU: beside a cuBLASLt or hipBLASLt of our own on host
// memory, where it is switched off, and where it fails (CMakeLists.txt has the environment of each case).
#include "ops/gemm/gemm_library.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "backend.h"
#include "fake_blaslt.h"
#include "support/dtype.h"

using namespace narrows::gpu;
using narrows::common::Dtype;
using narrows::test::DType;

namespace {

bool device_is_lost = false;  // as plugin.cpp would find it
int products = 0;             // that were put on a stream

}  // namespace

void narrows::gpu::refuse_lost_device(gpuStream_t) {
  if (device_is_lost) throw Refusal{NW_DEVICE_LOST, -1, "the device is lost", 700};
}
void narrows::gpu::mark_enqueued() { ++products; }

namespace {

const bool kIsHip = std::string(blaslt::kVariant) == "hipblaslt";

// "cublasLtMatmul failed (cuBLAS status 7)", or hip's words with its own status.
std::string failed(const std::string& function, int cuda_status, int hip_status) {
  return kIsHip ? "hipblasLt" + function + " failed (hipBLAS status " + std::to_string(hip_status) + ")"
                : "cublasLt" + function + " failed (cuBLAS status " + std::to_string(cuda_status) + ")";
}

DType of_tests(Dtype dtype) { return dtype == Dtype::f16 ? DType::f16 : dtype == Dtype::bf16 ? DType::bf16 : DType::f32; }

// While it lives.
struct LostDevice {
  LostDevice() { device_is_lost = true; }
  ~LostDevice() { device_is_lost = false; }
};

// Rows with a gap behind each, from -1 to 1.
struct Rows {
  Rows(Dtype of, int64_t rows, int64_t columns, int64_t gap, uint32_t seed)
      : dtype(of_tests(of)), pitch(columns + gap), bytes(static_cast<size_t>(rows * pitch * item_size(dtype))) {
    for (int64_t i = 0; i < rows * pitch; ++i) {
      seed = seed * 1664525u + 1013904223u;
      store(dtype, narrows::test::rounded(dtype, static_cast<double>(seed >> 8) / (1 << 23) - 1), place(i));
    }
  }
  unsigned char* place(int64_t i) { return bytes.data() + i * item_size(dtype); }
  double at(int64_t row, int64_t column) { return static_cast<double>(load(dtype, place(row * pitch + column))); }
  DType dtype;
  int64_t pitch;
  std::vector<unsigned char> bytes;
};

std::unique_ptr<const Gemm> planned(const GemmShape& shape) {
  std::string reason;
  auto gemm = plan_gemm(0, shape, &reason);
  INFO(reason);
  REQUIRE(gemm != nullptr);
  CHECK(reason.empty());
  CHECK(gemm->workspace_size == 512);
  return gemm;
}

// With a workspace of the size that was asked for, and a guard behind it.
void launch(const Gemm& gemm, float alpha, const void* left, const void* right, float beta, void* out, bool on_device = false) {
  constexpr size_t kGuard = 64;
  std::vector<unsigned char> workspace(gemm.workspace_size + kGuard, 0x55);
  const int before = products;
  const auto at = [&](const float& factor) { return on_device ? on_fake_device(factor) : &factor; };
  gemm.launch(at(alpha), left, right, at(beta), out, workspace.data(), nullptr);
  CHECK(products == before + 1);
  CHECK(std::count(workspace.end() - kGuard, workspace.end(), 0x55) == kGuard);
}

const GemmShape kShape = {Dtype::f16, Dtype::f32, 8, 16, 24, {24, false}, {24, true}, {16, false}, false};

// One product, from column `first` of the right operand on, against sums in double; the gaps of the result stay as they were.
void check(Dtype dtype, Dtype out_dtype, bool left_transposed, bool right_transposed, float alpha, float beta, int64_t first) {
  constexpr int64_t kRows = 24, kColumns = 40, kDepth = 56;
  Rows left = left_transposed ? Rows(dtype, kDepth, kRows, 8, 1) : Rows(dtype, kRows, kDepth, 16, 1);
  Rows right = right_transposed ? Rows(dtype, kColumns, first + kDepth, 8, 2) : Rows(dtype, kDepth, first + kColumns, 0, 2);
  Rows out(out_dtype, kRows, kColumns, 24, 3), before = out;
  const bool on_device = blaslt::kReadsFactorsOnDevice && out_dtype != Dtype::f32;
  const auto gemm = planned({dtype,
                             out_dtype,
                             kRows,
                             kColumns,
                             kDepth,
                             {left.pitch, left_transposed},
                             {right.pitch, right_transposed},
                             {out.pitch, false},
                             on_device});
  launch(*gemm, alpha, left.place(0), right.place(first), beta, out.place(0), on_device);
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < out.pitch; ++column) {
      double sum = 0;
      for (int64_t k = 0; k < kDepth && column < kColumns; ++k)
        sum += (left_transposed ? left.at(k, row) : left.at(row, k)) *
               (right_transposed ? right.at(column, first + k) : right.at(k, first + column));
      const double expected =
          column < kColumns ? alpha * sum + (beta == 0 ? 0 : beta * before.at(row, column)) : before.at(row, column);
      const double rounding = out_dtype == Dtype::bf16 ? 0x1p-8 : out_dtype == Dtype::f16 ? 0x1p-11 : 0;
      REQUIRE(std::fabs(out.at(row, column) - expected) <= rounding * std::fabs(expected) + 1e-5);
    }
}

}  // namespace

TEST_CASE("there: products of rows as lltm and its gradients have them", "[there]") {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    check(dtype, Dtype::f32, false, true, 1, 0, 0);   // of old_h and weights
    check(dtype, Dtype::f32, false, true, 1, 1, 16);  // of input and weights, added
    check(dtype, Dtype::f32, false, false, 1, 0, 8);  // of gradients and weights
    check(dtype, dtype, true, false, 0.25f, 0, 0);    // of gradients and [old_h, input]
    check(dtype, Dtype::f32, true, false, 1, 0, 0);
  }
}

TEST_CASE("there: a product that the library does not have is declined with its status", "[there]") {
  GemmShape shape = kShape;
  shape.left.pitch = 8;  // less than a row
  std::string reason;
  CHECK(plan_gemm(0, shape, &reason) == nullptr);
  CHECK(reason == failed("MatrixLayoutCreate", 7, 3));
  shape = kShape;
  shape.dtype = Dtype::f32;
  CHECK(plan_gemm(0, shape, &reason) == nullptr);
  CHECK(reason == failed("MatmulAlgoGetHeuristic", 15, 7));
  CHECK(plan_gemm(64, kShape, &reason) == nullptr);
  CHECK(reason == "device 64 is beyond the 64 that are known");
}

TEST_CASE("without: every plan says why there is no library", "[without]") {
  const char* const expected = std::getenv("EXPECTED");
  REQUIRE(expected != nullptr);
  for (int again = 0; again < 2; ++again) {
    std::string reason;
    CHECK(plan_gemm(0, kShape, &reason) == nullptr);
    INFO(reason);
    CHECK(reason.find(expected) != std::string::npos);
  }
  const LostDevice lost;
  std::string reason;
  CHECK_THROWS_AS(plan_gemm(0, kShape, &reason), narrows::common::Refusal);
  CHECK(reason.empty());
}

TEST_CASE("without: a library that could not be started stays away", "[kept]") {
  std::string reason, again;
  CHECK(plan_gemm(0, kShape, &reason) == nullptr);
  REQUIRE(unsetenv("FAKE_BLASLT_FAILS") == 0);
  CHECK(plan_gemm(0, kShape, &again) == nullptr);
  CHECK(again == reason);
}

TEST_CASE("without: a library that was short of memory is started by the next plan", "[short]") {
  for (int i = 0; i < 2; ++i) {
    std::string reason;
    CHECK(plan_gemm(0, kShape, &reason) == nullptr);
    INFO(reason);
    CHECK(reason.find(failed("Create", 3, 2)) != std::string::npos);
  }
  REQUIRE(unsetenv("FAKE_BLASLT_FAILS") == 0);
  (void)planned(kShape);
}

TEST_CASE("launch fails: the call is refused with the library's status", "[launch]") {
  const auto gemm = planned(kShape);
  try {
    launch(*gemm, 1, nullptr, nullptr, 0, nullptr);
    FAIL("it was not refused");
  } catch (const narrows::common::Refusal& refusal) {
    CHECK(refusal.status == NW_FAILED);
    CHECK(refusal.message == failed("Matmul", 14, 6));
  }
}

TEST_CASE("launch fails: a lost device is what the call says", "[launch]") {
  const auto gemm = planned(kShape);
  const LostDevice lost;
  try {
    launch(*gemm, 1, nullptr, nullptr, 0, nullptr);
    FAIL("it was not refused");
  } catch (const narrows::common::Refusal& refusal) {
    CHECK(refusal.status == NW_DEVICE_LOST);
    CHECK(refusal.native_code == 700);
  }
}
