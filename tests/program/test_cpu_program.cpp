// test_cpu_program.cpp -- the cpu backend's two kernels of tensor programs, beside plain loops in double and beside each other.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cpu_plugin.h"
#include "examples.h"

namespace {

using Catch::Matchers::ContainsSubstring;

void expect(Tensor& out, const std::function<double(int64_t)>& want, double tolerance) {
  for (int64_t i = 0; i < out.elements(); ++i) {
    const double got = out.get(i), right = want(i);
    if (std::isnan(right) ? std::isnan(got) : std::fabs(got - right) <= tolerance * std::max(1.0, std::fabs(right)) || got == right)
      continue;
    INFO("element " << i << " is " << got << "; expected " << right);
    FAIL();
  }
  SUCCEED();
}

// ---- products, by many schedules ----

const std::string kHead = "program 1 mm(A: f32[M, K], B: f32[K, N], C: out f32[M, N]):\n";

struct Schedule {
  const char* name;
  const char* body;
};
const Schedule kSchedules[] = {
    {"as it is written", R"(  alloc Y: f32[M, N]
  for i in M:
    for j in N:
      for k in K:
        block Y(vi: S(M) = i, vj: S(N) = j, vk: R(K) = k):
          init:
            Y[vi, vj] = f32(0)
          Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
  for i1 in M:
    for j1 in N:
      block C(vi: S(M) = i1, vj: S(N) = j1):
        C[vi, vj] = maximum(Y[vi, vj], f32(0))
)"},
    {"the reduction outside", R"(  alloc Y: f32[M, N]
  for k in K:
    for i in M:
      for j in N:
        block Y(vi: S(M) = i, vj: S(N) = j, vk: R(K) = k):
          init:
            Y[vi, vj] = f32(0)
          Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
  for i1 in M parallel:
    for j1 in N vectorize:
      block C(vi: S(M) = i1, vj: S(N) = j1):
        C[vi, vj] = maximum(Y[vi, vj], f32(0))
)"},
    {"a register tile", R"(  alloc Y: f32[M, N]
  for i0 in (M + 3) // 4 parallel:
    for j0 in (N + 15) // 16:
      for k in K:
        for i1 in 4 unroll:
          for j1 in 16 vectorize:
            block Y(vi: S(M) = i0 * 4 + i1, vj: S(N) = j0 * 16 + j1, vk: R(K) = k) if i0 * 4 + i1 < M and j0 * 16 + j1 < N:
              init:
                Y[vi, vj] = f32(0)
              Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
      for i2 in 4 unroll:
        for j2 in 16 vectorize:
          block C(vi: S(M) = i0 * 4 + i2, vj: S(N) = j0 * 16 + j2) if i0 * 4 + i2 < M and j0 * 16 + j2 < N:
            C[vi, vj] = maximum(Y[vi, vj], f32(0))
)"},
    {"contracted, the reduction split", R"(  alloc Y: f32[M, N]
  for i0 in (M + 1) // 2:
    for j0 in (N + 23) // 24:
      for k0 in (K + 7) // 8:
        for k1 in 8:
          for i1 in 2 unroll:
            for j1 in 24 vectorize:
              block Y(vi: S(M) = i0 * 2 + i1, vj: S(N) = j0 * 24 + j1, vk: R(K) = k0 * 8 + k1) if i0 * 2 + i1 < M and j0 * 24 + j1 < N and k0 * 8 + k1 < K {"contract": "true"}:
                init:
                  Y[vi, vj] = f32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
      for i2 in 2:
        for j2 in 24:
          block C(vi: S(M) = i0 * 2 + i2, vj: S(N) = j0 * 24 + j2) if i0 * 2 + i2 < M and j0 * 24 + j2 < N:
            C[vi, vj] = maximum(Y[vi, vj], f32(0))
)"},
};

struct Sizes {
  int64_t m, n, k;
};

}  // namespace

TEST_CASE("a product is right by every schedule, size and layout") {
  const Sizes size =
      GENERATE(Sizes{4, 32, 8}, Sizes{1, 1, 1}, Sizes{7, 50, 13}, Sizes{5, 17, 0}, Sizes{0, 3, 2}, Sizes{16, 48, 16});
  for (const auto& [name, body] : kSchedules) {
    for (const int64_t step : {int64_t{1}, int64_t{3}, int64_t{-1}}) {
      Tensor a(DType::f32, {size.m, size.k}, step, step == 3 ? 1 : 0), b(DType::f32, {size.k, size.n}, step);
      a.fill(1);
      b.fill(2);
      for (const char* kernel : kKernels) {
        INFO(name << ", " << kernel << ", step " << step << ", " << size.m << " " << size.n << " " << size.k);
        Tensor c(DType::f32, {size.m, size.n}, step, step == 3 ? 2 : 0);
        const Answer answer = Call{plugin(), kHead + body, {&a, &b}, {&c}, kernel}.run();
        INFO(answer.message);
        REQUIRE(answer);
        CHECK(answer.kernel == kernel);
        const auto want = [&](int64_t at) {
          double sum = 0;
          for (int64_t k = 0; k < size.k; ++k) sum += a.get(at / size.n * size.k + k) * b.get(k * size.n + at % size.n);
          return std::max(sum, 0.0);
        };
        expect(c, want, 1e-5);
      }
    }
  }
}

TEST_CASE("a loop that leads to rows and to the reduction initialises each row once") {
  const std::string text = R"(program 1 f(A: f32[M, 6], C: out f32[M]):
  for f in M * 6:
    block C(vi: S(M) = f // 6, vk: R(6) = f % 6):
      init:
        C[vi] = f32(1)
      C[vi] = C[vi] + A[vi, vk]
)";
  for (const char* kernel : kKernels) {
    Tensor a(DType::f32, {5, 6}), c(DType::f32, {5});
    a.fill(1);
    const Answer answer = Call{plugin(), text, {&a}, {&c}, kernel}.run();
    INFO(answer.message);
    REQUIRE(answer);
    expect(
        c,
        [&](int64_t i) {
          double sum = 1;
          for (int64_t k = 0; k < 6; ++k) sum += a.get(i * 6 + k);
          return sum;
        },
        1e-6);
  }
}

// ---- all texts: two ways to run one program ----

TEST_CASE("both kernels give the same bits") {
  CHECK(std::size(kExamples) == program_files().size());
  for (const Example& example : kExamples) {
    INFO(example.name);
    Prepared one = example.prepare(), two = example.prepare();
    const Answer first =
        Call{plugin(), text_of(example.name), pointers(one.inputs), pointers(one.outputs), "interpreter", one.params}.run();
    INFO(first.message);
    REQUIRE(first);
    const Answer second =
        Call{plugin(), text_of(example.name), pointers(two.inputs), pointers(two.outputs), "compiled", two.params}.run();
    INFO(second.message);
    REQUIRE(second);
    for (size_t i = 0; i < one.outputs.size(); ++i) CHECK(one.outputs[i].bytes == two.outputs[i].bytes);
  }
}

TEST_CASE("a processor's lesser instructions give the same bits") {
  for (const char* target : {"avx2", "sse4"}) {
    setenv("NARROWS_CPU_TARGET", target, 1);
    nw_error error{};
    const bool usable = Plugin::is_usable(&error);
    if (usable) {
      const Plugin lesser;
      for (const Example& example : kExamples) {
        INFO(target << " " << example.name);
        Prepared one = example.prepare(), two = example.prepare();
        const Answer first =
            Call{lesser, text_of(example.name), pointers(one.inputs), pointers(one.outputs), "interpreter", one.params}.run();
        const Answer second =
            Call{lesser, text_of(example.name), pointers(two.inputs), pointers(two.outputs), "compiled", two.params}.run();
        INFO(first.message << second.message);
        REQUIRE((first && second));
        for (size_t i = 0; i < one.outputs.size(); ++i) CHECK(one.outputs[i].bytes == two.outputs[i].bytes);
      }
    }
    unsetenv("NARROWS_CPU_TARGET");
    if (!usable) WARN(error.message);
  }
}

TEST_CASE("an in-out tensor is updated in place, or begins as a copy") {
  const std::string text =
      "program 1 f(A: f32[N], B: inout f32[N]):\n  for i in N:\n    block B(vi: S(N) = i):\n      B[vi] = B[vi] + A[vi]\n";
  for (const char* kernel : kKernels) {
    Tensor a = filled(kF, {33}, 1), b = filled(kF, {33}, 2), out(kF, {33}, -2), in_place = b;
    Answer answer = Call{plugin(), text, {&a, &b}, {&out}, kernel}.run();
    INFO(answer.message);
    REQUIRE(answer);
    const auto want = [&](int64_t i) { return static_cast<double>(static_cast<float>(b.get(i)) + static_cast<float>(a.get(i))); };
    expect(out, want, 0);
    answer = Call{plugin(), text, {&a, &in_place}, {&in_place}, kernel, {}, 1}.run();
    REQUIRE(answer);
    expect(in_place, want, 0);
  }
}

TEST_CASE("what does not fit is refused with names and numbers") {
  const std::string text = kHead + kSchedules[0].body;
  Tensor a(kF, {3, 4}), b(kF, {5, 6}), c(kF, {3, 6}), wide(DType::f64, {4, 6});
  Answer answer = Call{plugin(), text, {&a, &b}, {&c}}.run();
  CHECK(answer.status == NW_INVALID);
  CHECK_THAT(answer.message, ContainsSubstring("'B' has 5 in dimension 0; expected K = 4"));
  answer = Call{plugin(), text, {&a, &wide}, {&c}}.run();
  CHECK_THAT(answer.message, ContainsSubstring("'B'") && ContainsSubstring("expected f32"));
  const std::string large =
      "program 1 f(A: f32[N], C: out f32[N]):\n  alloc T: f32[N, 1152921504606846976]\n  for i in N:\n    for j in "
      "1152921504606846976:\n"
      "      block T(vi: S(N) = i, vj: S(1152921504606846976) = j):\n        T[vi, vj] = A[vi]\n  for i1 in N:\n    block C(vi: "
      "S(N) = i1):\n      C[vi] = T[vi, 0]\n";
  for (const char* kernel : kKernels) {
    Tensor x(kF, {4}), y(kF, {4});
    answer = Call{plugin(), large, {&x}, {&y}, kernel}.run();
    INFO(answer.message);
    CHECK(answer.status == NW_OUT_OF_MEMORY);
    CHECK_THAT(answer.message, ContainsSubstring("'T'"));
  }
}

TEST_CASE("softmax is right") {
  for (const char* kernel : kKernels) {
    Tensor x = filled(kF, {4, 70}, 9, -5, 5), y(kF, {4, 70});
    REQUIRE(Call{plugin(), text_of("softmax"), {&x}, {&y}, kernel}.run());
    expect(
        y,
        [&](int64_t at) {
          double sum = 0;
          for (int64_t j = 0; j < 70; ++j) sum += std::exp(x.get(at / 70 * 70 + j));
          return std::exp(x.get(at)) / sum;
        },
        1e-5);
  }
}

TEST_CASE("conv1d is right, with a bias and without") {
  for (const char* kernel : kKernels) {
    for (const bool absent : {false, true}) {
      const int64_t length = 21, taps = 3, out_length = (length + 8 - 3 * (taps - 1) - 1) / 2 + 1;
      Tensor x = filled(kF, {2, 8, length}, 1), w = filled(kF, {6, 4, taps}, 2), bias = filled(kF, {6}, 3),
             y(kF, {2, 6, out_length});
      bias.absent = absent;
      const Answer answer = Call{plugin(), text_of("conv1d"), {&x, &w, &bias}, {&y}, kernel}.run();
      INFO(answer.message);
      REQUIRE(answer);
      expect(
          y,
          [&](int64_t at) {
            const int64_t t = at % out_length, o = at / out_length % 6, n = at / out_length / 6;
            double sum = absent ? 0 : bias.get(o);
            for (int64_t c = 0; c < 4; ++c)
              for (int64_t k = 0; k < taps; ++k)
                if (const int64_t l = 2 * t + 3 * k - 4; l >= 0 && l < length)
                  sum += x.get((n * 8 + o / 3 * 4 + c) * length + l) * w.get((o * 4 + c) * taps + k);
            return sum;
          },
          1e-5);
    }
  }
}

// ---- dtypes ----

TEST_CASE("every dtype is loaded, computed in and stored") {
  for (const DType dtype : narrows::test::kAllDTypes) {
    const std::string t = narrows::test::name(dtype);
    if (dtype == DType::boolean) continue;
    const std::string text =
        "program 1 f(A: " + t + "[N], B: " + t + "[N], C: out " + t +
        "[N], D: out bool[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n"
        "      C[vi] = where(A[vi] < B[vi], A[vi] + B[vi], maximum(A[vi], B[vi]) * A[vi])\n      D[vi] = A[vi] >= B[vi]\n";
    for (const char* kernel : kKernels) {
      INFO(t << " " << kernel);
      Tensor a = filled(dtype, {83}, 1, -9, 9), b = filled(dtype, {83}, 2, -9, 9), c(dtype, {83}), d(DType::boolean, {83});
      const Answer answer = Call{plugin(), text, {&a, &b}, {&c, &d}, kernel}.run();
      INFO(answer.message);
      REQUIRE(answer);
      expect(
          c,
          [&](int64_t i) {
            const double x = a.get(i), y = b.get(i), exact = x < y ? x + y : std::max(x, y) * x;
            return narrows::test::is_float(dtype) ? static_cast<double>(narrows::test::rounded(dtype, exact)) : exact;
          },
          0);
      expect(d, [&](int64_t i) { return a.get(i) >= b.get(i) ? 1.0 : 0.0; }, 0);
    }
  }
}

TEST_CASE("casts of every pair of dtypes agree") {
  for (const DType from : narrows::test::kAllDTypes) {
    for (const DType to : narrows::test::kAllDTypes) {
      if (from == to) continue;
      const std::string a = narrows::test::name(from), b = narrows::test::name(to);
      const std::string text = "program 1 f(A: " + a + "[N], C: out " + b +
                               "[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      C[vi] = " + b + "(A[vi])\n";
      const double range = narrows::test::item_size(from) == 1 ? 120 : 300;
      Tensor in = filled(from, {37}, 3, -range, range), one(to, {37}), two(to, {37});
      INFO(a << " to " << b);
      REQUIRE(Call{plugin(), text, {&in}, {&one}, "interpreter"}.run());
      const Answer answer = Call{plugin(), text, {&in}, {&two}, "compiled"}.run();
      INFO(answer.message);
      REQUIRE(answer);
      CHECK(one.bytes == two.bytes);
    }
  }
}
