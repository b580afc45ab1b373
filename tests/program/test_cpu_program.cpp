// SPDX-License-Identifier: Apache-2.0
// test_cpu_program.cpp -- the cpu backend's two kernels of tensor programs, beside plain loops in double and beside each other.
#include <pthread.h>
#include <sys/mman.h>
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
  CHECK(out.is_clean_outside());
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
    {"padded tiles, and copies that run ahead", R"(  alloc Y: f32[M, N]
  alloc A_shared: f32[M, K] shared pad [0, 3]
  alloc B_shared: f32[K, N] shared pad [2, 1]
  for i0 in (M + 3) // 4 parallel:
    for i3 in 4:
      for j3 in N:
        block Y_init(vi: S(M) = i0 * 4 + i3, vj: S(N) = j3) if i0 * 4 + i3 < M:
          Y[vi, vj] = f32(0)
    for k0 in (K + 7) // 8 pipeline 3:
      for a0 in 4:
        for a1 in 8:
          block A_shared(vi: S(M) = i0 * 4 + a0, vk: S(K) = k0 * 8 + a1) if i0 * 4 + a0 < M and k0 * 8 + a1 < K:
            A_shared[vi, vk] = A[vi, vk]
      for b0 in 8:
        for b1 in N:
          block B_shared(vk: S(K) = k0 * 8 + b0, vj: S(N) = b1) if k0 * 8 + b0 < K:
            B_shared[vk, vj] = B[vk, vj]
      for i1 in 4:
        for k1 in 8:
          for j in N:
            block Y(vi: S(M) = i0 * 4 + i1, vj: S(N) = j, vk: R(K) = k0 * 8 + k1) if i0 * 4 + i1 < M and k0 * 8 + k1 < K:
              Y[vi, vj] = Y[vi, vj] + A_shared[vi, vk] * B_shared[vk, vj]
    for i2 in 4:
      for j2 in N:
        block C(vi: S(M) = i0 * 4 + i2, vj: S(N) = j2) if i0 * 4 + i2 < M:
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

TEST_CASE("a product is right by every schedule, size and layout", "[sanitized]") {
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

TEST_CASE("a product of a matrix unit is what its loops give") {
  const auto text = [](const std::string& mark, const std::string& kind) {
    return "program 1 mm(A: f16[M, 16], B: f16[16, 8], C: inout f32[M, 8]):\n  for i_0 in M // 16:\n    for i_1 in 16" + mark +
           ":\n      for k in 16:\n        for j in 8" + kind +
           ":\n          block C(vi: S(M // 16 * 16) = i_0 * 16 + i_1, vj: S(8) = j, vk: R(16) = k):\n"
           "            C[vi, vj] = C[vi, vj] + f32(A[vi, vk]) * f32(B[vk, vj])\n";
  };
  for (const char* const kernel : kKernels) {
    std::vector<std::vector<unsigned char>> results;
    for (const auto& [mark, kind] :
         {std::pair{"", ""}, {" tensorize \"mma.f16.f32\"", ""}, {" tensorize \"mma.f16.f32\"", " vectorize"}}) {
      Tensor a(DType::f16, {32, 16}), b(DType::f16, {16, 8}), before(DType::f32, {32, 8}), c(DType::f32, {32, 8});
      a.fill(1);
      b.fill(2);
      before.fill(3);
      run_well({plugin(), text(mark, kind), {&a, &b, &before}, {&c}, kernel});
      results.push_back(c.bytes);
    }
    CHECK(results[1] == results[0]);
    CHECK(results[2] == results[0]);
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

TEST_CASE("an init has its block's condition, or stays in the domain where a reduction decides it") {
  const std::string text = R"(program 1 f(A: f32[3, N], C: out f32[N]):
  for i0 in (N + 1) // 2:
    for i1 in 2:
      for f in 3 * N:
        block C(vi: S(N) = i0 * 2 + i1, vj: R(3) = f // N, vk: R(N) = f % N) if i0 * 2 + i1 < N:
          init:
            C[vi] = f32(1)
          C[vi] = C[vi] + A[vj, vk]
)";
  const std::string mixed = R"(program 1 f(A: f32[N, 2], C: out f32[N]):
  for i in N + 1:
    for k in 2:
      block C(vi: S(N) = i, vk: R(2) = k) if i * 2 + k < N * 2:
        init:
          C[vi] = f32(1)
        C[vi] = C[vi] + A[vi, vk]
)";
  const std::string never_empty = R"(program 1 f(A: f32[N, 3], C: out f32[N]):
  for i0 in (N + 1) // 2:
    for i1 in 2:
      for k in 3:
        block C(vi: S(N) = i0 * 2 + i1, vk: R(3) = k) if i0 * 2 + i1 < N:
          init:
            C[vi] = f32(1)
          C[vi] = C[vi] + A[vi, vk]
)";
  for (const char* const kernel : kKernels) {
    for (const int64_t n : {1, 4, 7}) {
      INFO(kernel << " " << n);
      Tensor rows(DType::f32, {n, 3}), of_rows(DType::f32, {n});
      rows.fill(3);
      run_well({plugin(), never_empty, {&rows}, {&of_rows}, kernel});
      expect(of_rows, [&](int64_t i) { return 1 + rows.get(3 * i) + rows.get(3 * i + 1) + rows.get(3 * i + 2); }, 1e-5);
      Tensor pairs(DType::f32, {n, 2}), sums(DType::f32, {n});
      pairs.fill(2);
      run_well({plugin(), mixed, {&pairs}, {&sums}, kernel});
      expect(sums, [&](int64_t i) { return 1 + pairs.get(2 * i) + pairs.get(2 * i + 1); }, 1e-5);
      Tensor a(DType::f32, {3, n}), c(DType::f32, {n});
      a.fill(1);
      run_well({plugin(), text, {&a}, {&c}, kernel});
      const auto want = [&](int64_t) {
        double sum = 1;
        for (int64_t k = 0; k < 3 * n; ++k) sum += a.get(k);
        return sum;
      };
      expect(c, want, 1e-5);
    }
  }
}

TEST_CASE("points of a nest that lead to no element touch none") {
  for (const char* const kernel : kKernels) {
    for (const char* const text : kPointsOfNoRow) {
      INFO(kernel << " " << text);
      Tensor x = filled(DType::f32, {4, 4}, 1), sums(DType::f32, {4});
      run_well({plugin(), text, {&x}, {&sums}, kernel});
      expect(sums, [&](int64_t i) { return x.get(4 * i) + x.get(4 * i + 1) + x.get(4 * i + 2) + x.get(4 * i + 3); }, 1e-6);
    }
  }
}

TEST_CASE("both kernels give the same bits", "[sanitized]") {
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

TEST_CASE("parallel loops of negative extents, one in the other, do nothing", "[sanitized]") {
  const std::string text =
      "program 1 f(y: inout f32[n, m]):\n"
      "  for i in n - 3 parallel:\n"
      "    for j in m - 3 parallel:\n"
      "      block y(vi: S(n) = i + 1, vj: S(m) = j + 1):\n"
      "        y[vi, vj] = y[vi, vj] + f32(1)\n";
  for (const char* kernel : kKernels) {
    for (const int64_t size : {int64_t{1}, int64_t{2}, int64_t{5}}) {
      INFO(kernel << ", " << size);
      Tensor y = filled(kF, {size, size}, 1), out(kF, {size, size});
      run_well({plugin(), text, {&y}, {&out}, kernel});
      const auto is_inside = [&](int64_t at) { return at >= 1 && at < size - 2; };
      const auto want = [&](int64_t at) {
        const float more = is_inside(at / size) && is_inside(at % size) ? 1 : 0;
        return static_cast<double>(static_cast<float>(y.get(at)) + more);
      };
      expect(out, want, 0);
    }
  }
}

TEST_CASE("a reduction over nothing initialises the points of its domain and no others") {
  const std::string text =
      "program 1 f(B: f32[N], C: out f32[5]):\n  alloc P: f32[N]\n  for l in 5:\n    for i in max(N - 1, 0) - min(N - 1, 0) + 1:\n"
      "      for k in N:\n        block P(vi: S(N) = min(N - 1, 0) + i, vj: R(N) = k):\n          init:\n            P[vi] = "
      "f32(1)\n"
      "          P[vi] = P[vi] * B[vj]\n    block C(vc: S(5) = l):\n      C[vc] = where(N > 0, P[N - 1], f32(2))\n";
  for (const char* kernel : {"compiled", "interpreter"}) {
    for (const int64_t n : {0, 1, 3}) {
      Tensor b(DType::f32, {n}), c(DType::f32, {5});
      for (int64_t i = 0; i < n; ++i) b.set(i, 2);
      const Answer answer = Call{plugin(), text, {&b}, {&c}, kernel}.run();
      INFO(kernel << ", N = " << n << ": " << answer.message);
      REQUIRE(answer);
      CHECK(c.get(4) == (n == 0 ? 2 : std::exp2(static_cast<double>(n))));
    }
  }
}

TEST_CASE("what does not fit is refused with names and numbers") {
  const std::string text = kHead + kSchedules[0].body;
  Tensor a(kF, {3, 4}), b(kF, {5, 6}), c(kF, {3, 6}), wide(DType::f64, {4, 6});
  Answer answer = Call{plugin(), text, {&a, &b}, {&c}}.run();
  CHECK(answer.status == NW_INVALID);
  CHECK_THAT(answer.message, ContainsSubstring("'B' has 5 in dimension 0; expected K = 4"));
  answer = Call{plugin(), text, {&a, &wide}, {&c}}.run();
  CHECK_THAT(answer.message, ContainsSubstring("'B'") && ContainsSubstring("has dtype float64; expected float32"));
  CHECK(answer.argument == 1);
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
  const std::string threads =
      "program 1 f(A: f32[N], C: out f32[N]):\n  for i in 2:\n    for j in N bind thread.x:\n      block C(v: S(N) = j):\n        "
      "C[v] = A[v]\n";
  for (const char* kernel : kKernels) {
    Tensor x(kF, {4}), y(kF, {4});
    answer = Call{plugin(), threads, {&x}, {&y}, kernel}.run();
    CHECK((answer.status == NW_UNSUPPORTED && answer.argument == -1));
    CHECK_THAT(answer.message, ContainsSubstring("loop 'j' is bound to thread.x"));
  }
  // In bounds among all integers, and not where they wrap at 64 bits.
  const std::string wraps =
      "program 1 f(X: f32[M], Z: out f32[M]):\n  for i in M:\n    block Z(v: S(M) = i):\n      Z[v] = X[min(v * "
      "2305843009213693952, M - 1)]\n";
  for (const char* kernel : kKernels)
    for (const int64_t size : {int64_t{3}, int64_t{4}}) {  // up to 2^62, and 3 * 2^61
      Tensor x(kF, {size}), y(kF, {size});
      answer = Call{plugin(), wraps, {&x}, {&y}, kernel}.run();
      INFO(answer.message);
      CHECK(answer.status == (size == 3 ? NW_OK : NW_INVALID));
      if (size == 4) CHECK_THAT(answer.message, ContainsSubstring("'i * 2305843009213693952' may leave"));
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

// ---- conditions of lanes and tiles ----

TEST_CASE("a condition of a vector whose first lane is a number") {
  const std::string split = R"(program 1 f(A: f32[13], C: out f32[13]):
  for i0 in 2 unroll:
    for i1 in 8 vectorize:
      block C(vi: S(13) = i0 * 8 + i1) if i0 * 8 + i1 < 13:
        C[vi] = A[vi] + f32(1)
)";
  const std::string half = R"(program 1 f(A: f32[2, 16], C: out f32[2, 16]):
  for i in 2:
    for j in 16:
      block C(vi: S(2) = i, vj: S(16) = j):
        C[vi, vj] = where(vj < 8, A[vi, vj], f32(0))
)";
  for (const char* kernel : kKernels) {
    Tensor a = filled(kF, {13}, 1), c(kF, {13});
    run_well({plugin(), split, {&a}, {&c}, kernel});
    expect(c, [&](int64_t i) { return static_cast<double>(static_cast<float>(a.get(i)) + 1.0F); }, 0);
    Tensor b = filled(kF, {2, 16}, 2), d(kF, {2, 16});
    run_well({plugin(), half, {&b}, {&d}, kernel});
    expect(d, [&](int64_t i) { return i % 16 < 8 ? b.get(i) : 0; }, 0);
  }
}

TEST_CASE("a condition that turns back within a vector is tested for each lane") {
  for (const int64_t period :
       {3, 7, 15, 31}) {  // of vectors of 4, 8, 16 and 32 lanes one begins and ends where the condition holds
    const std::string holds = " % " + std::to_string(period) + " < 1";
    const std::string chosen =
        "program 1 f(A: f32[64], C: out f32[64]):\n  for i in 64 vectorize:\n    block C(vi: S(64) = i):\n      " +
        ("C[vi] = where(vi" + holds + ", A[vi], f32(0))\n");
    const std::string stored =
        "program 1 f(A: f32[64], C: inout f32[64]):\n  for i in 64 vectorize:\n    block C(vi: S(64) = i) if i" + holds +
        ":\n      C[vi] = A[vi]\n";
    for (const char* kernel : kKernels) {
      INFO(period << " " << kernel);
      Tensor a(kF, {64}), c(kF, {64}), before = filled(kF, {64}, 1), d(kF, {64});
      for (int i = 0; i < 64; ++i) a.set(i, i + 1);
      run_well({plugin(), chosen, {&a}, {&c}, kernel});
      expect(c, [&](int64_t i) { return i % period < 1 ? a.get(i) : 0; }, 0);
      run_well({plugin(), stored, {&a, &before}, {&d}, kernel});
      expect(d, [&](int64_t i) { return i % period < 1 ? a.get(i) : before.get(i); }, 0);
    }
  }
}

TEST_CASE("a partial tile of sums touches nothing behind its rows", "[sanitized]") {
  const std::string text = R"(program 1 f(A: f32[M, K], C: out f32[M]):
  for i0 in (M + 3) // 4:
    for i1 in 4:
      for k in K:
        block C(vi: S(M) = i0 * 4 + i1, vk: R(K) = k) if i0 * 4 + i1 < M:
          init:
            C[vi] = f32(0)
          C[vi] = C[vi] + A[vi, vk]
)";
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* const pages = static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  REQUIRE(mprotect(pages + page, page, PROT_NONE) == 0);
  for (const char* kernel : kKernels) {
    Tensor a = filled(kF, {5, 3}, 1), c(kF, {5});
    c.outside = reinterpret_cast<unsigned char*>(pages + page) - 5 * sizeof(float);  // ends where nothing may be read
    run_well({plugin(), text, {&a}, {&c}, kernel});
    expect(c, [&](int64_t i) { return a.get(3 * i) + a.get(3 * i + 1) + a.get(3 * i + 2); }, 1e-6);
  }
  munmap(pages, 2 * page);
}

TEST_CASE("many costly functions in one store need little stack") {
  std::vector<std::string> terms(255, "pow(A[vi], B[vi])");
  while (terms.size() > 1) {
    std::vector<std::string> sums;
    for (size_t i = 0; i < terms.size(); i += 2)
      sums.push_back(i + 1 == terms.size() ? terms[i] : "(" + terms[i] + " + " + terms[i + 1] + ")");
    terms = sums;
  }
  const std::string text =
      "program 1 f(A: f64[N], B: f64[N], C: out f64[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      C[vi] = " + terms[0] +
      "\n";
  Tensor a = filled(DType::f64, {300}, 1, 1, 2), b = filled(DType::f64, {300}, 2), c(DType::f64, {300});
  Answer answer;
  std::function<void()> body = [&] { answer = Call{plugin(), text, {&a, &b}, {&c}, "compiled"}.run(); };
  (void)plugin();
  pthread_attr_t little;
  pthread_attr_init(&little);
  REQUIRE(pthread_attr_setstacksize(&little, 1 << 20) == 0);  // 255 calls for 256 elements would take 1.5 MiB
  pthread_t thread{};
  const auto start = [](void* arg) -> void* { return (*static_cast<std::function<void()>*>(arg))(), nullptr; };
  REQUIRE(pthread_create(&thread, &little, start, &body) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&little);
  INFO(answer.message);
  REQUIRE(answer);
  expect(c, [&](int64_t i) { return 255 * std::pow(a.get(i), b.get(i)); }, 1e-12);
}
