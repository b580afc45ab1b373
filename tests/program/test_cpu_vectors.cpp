// SPDX-License-Identifier: Apache-2.0
// test_cpu_vectors.cpp -- vectors of which memory holds a part, every second element, loops that threads share, results past the
// caches: the compiled kernel beside plain loops, on each instruction set that the machine has.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "examples.h"

namespace {

void run(const Plugin& plugin, const std::string& text, std::vector<Tensor*> inputs, Tensor* output) {
  const Answer answer = Call{plugin, text, std::move(inputs), {output}, "compiled"}.run();
  INFO(answer.message);
  REQUIRE(answer);
  CHECK(output->is_clean_outside());
}

void expect(Tensor& out, const std::function<double(int64_t)>& want) {
  for (int64_t i = 0; i < out.elements(); ++i) {
    if (out.get(i) == want(i)) continue;
    INFO("element " << i << " is " << out.get(i) << "; expected " << want(i));
    FAIL();
  }
}

// A tensor that ends where a page does, and the page behind it cannot be read.
class Guarded {
 public:
  Guarded(DType dtype, int64_t size) : Guarded(dtype, std::vector<int64_t>{size}) {}
  Guarded(DType dtype, const std::vector<int64_t>& shape) : page_(sysconf(_SC_PAGESIZE)), tensor(dtype, shape) {
    const int64_t bytes = tensor.elements() * narrows::test::item_size(dtype), pages = (bytes + page_ - 1) / page_;
    size_ = static_cast<size_t>((pages + 1) * page_);
    memory_ = static_cast<unsigned char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory_ != MAP_FAILED);
    REQUIRE(mprotect(memory_ + pages * page_, static_cast<size_t>(page_), PROT_NONE) == 0);
    tensor.outside = memory_ + pages * page_ - bytes;
  }
  ~Guarded() { munmap(memory_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

 private:
  int64_t page_;
  unsigned char* memory_;
  size_t size_;

 public:
  Tensor tensor;
};

// Twice A, and 1 more for all but the last three, from a buffer of 16 elements.
const char* const kTwoWriters = R"(program 1 f(A: f32[N], C: out f32[N]):
  alloc Y: f32[N]
  for i0 in (N + 15) // 16 parallel:
    for i1 in 16 vectorize:
      block Y(v: S(N) = i0 * 16 + i1) if i0 * 16 + i1 < N:
        Y[v] = A[v] * f32(2)
    for i2 in 16 vectorize:
      block Z(v: S(N - 3) = i0 * 16 + i2) if i0 * 16 + i2 < N - 3:
        Y[v] = Y[v] + f32(1)
    for i3 in 16 vectorize:
      block C(v: S(N) = i0 * 16 + i3) if i0 * 16 + i3 < N:
        C[v] = Y[v]
)";

// Tiles of 4 rows by 32 columns of sums of 3 products, in registers. `factor`: of the row; `more`: between the sums and what reads
// them.
std::string tiles_of_sums(const std::string& factor, const std::string& more) {
  const auto point = [](const std::string& rows, const std::string& n, const std::string& axes) {
    const std::string row = "i0 * 4 + i" + n, column = "j0 * 32 + j" + n;
    return "(vi: S(" + rows + ") = " + row + ", vj: S(N) = " + column + axes + ") if " + row + " < " + rows + " and " + column +
           " < N:\n";
  };
  const auto loops = [](const std::string& n) {
    return "for i" + n + " in 4 unroll:\n          for j" + n + " in 32 vectorize:\n            ";
  };
  std::string out = R"(program 1 f(A: f32[M, 3], B: f32[3, N], C: out f32[M, N]):
  alloc Y: f32[M, N]
  for i0 in (M + 3) // 4 parallel:
    for j0 in (N + 31) // 32:
      for k in 3:
        )" + loops("1") +
                    "block Y" + point("M", "1", ", vk: R(3) = k") + R"(
              init:
                Y[vi, vj] = f32(0)
              Y[vi, vj] = Y[vi, vj] + )" +
                    factor + " * B[vk, vj]\n";
  if (!more.empty())
    out += "      " + loops("2") + "block Z" + point("M - 1", "2", "") + "              Y[vi, vj] = " + more + "\n";
  return out + "      " + loops("3") + "block C" + point("M", "3", "") + "              C[vi, vj] = Y[vi, vj]\n";
}

std::string every_second(const char* dtype) {
  return std::string("program 1 f(A: ") + dtype + "[2 * N], like: i8[N], C: out " + dtype +
         "[N]):\n  for i in N:\n    block C(v: S(N) = i):\n      C[v] = A[2 * v + 1]\n";
}

}  // namespace

TEST_CASE("a partial vector leaves the lanes of a register alone that its condition leaves out", "[sanitized]") {
  for_each_target([](const Plugin& plugin) {
    for (const int64_t size : {3, 15, 16, 17, 18, 19, 31, 50}) {
      INFO(size);
      Guarded a(DType::f32, size), c(DType::f32, size);
      a.tensor.fill(1);
      run(plugin, kTwoWriters, {&a.tensor}, &c.tensor);
      expect(c.tensor, [&](int64_t i) {
        const auto twice = static_cast<float>(a.tensor.get(i)) * 2;
        return static_cast<double>(i < size - 3 ? twice + 1 : twice);
      });
    }
  });
}

TEST_CASE("a partial tile of sums uses what is there alone, whatever is not", "[sanitized]") {
  const std::pair<std::string, std::string> kinds[] = {{"A[vi, vk]", ""},
                                                       {"A[vi, vk]", "Y[vi, vj] + f32(1)"},  // of all rows but the last
                                                       {"where(vi > 0, A[vi - 1, vk], f32(0))", ""}};
  for_each_target([&](const Plugin& plugin) {
    for (const auto& [factor, more] : kinds) {
      const std::string text = tiles_of_sums(factor, more);
      const bool shifts = factor.front() == 'w';
      for (const int64_t m : {1, 2, 3, 5, 8, 9}) {
        for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 49, 64, 70}) {
          INFO(text << m << " x " << n);
          Guarded a(DType::f32, {m, 3}), b(DType::f32, {3, n}), c(DType::f32, {m, n});
          a.tensor.fill(1);
          b.tensor.fill(2);
          run(plugin, text, {&a.tensor, &b.tensor}, &c.tensor);
          expect(c.tensor, [&](int64_t at) {
            float sum = 0;
            const int64_t row = at / n - (shifts ? 1 : 0);
            for (int64_t k = 0; k < 3; ++k) {
              const auto one = row < 0 ? 0.0F : static_cast<float>(a.tensor.get(3 * row + k));
              sum += one * static_cast<float>(b.tensor.get(n * k + at % n));
            }
            return static_cast<double>(!more.empty() && at / n < m - 1 ? sum + 1 : sum);
          });
        }
      }
    }
  });
}

TEST_CASE("every second element is read, and none behind the last") {
  for_each_target([](const Plugin& plugin) {
    for (const auto& [name, dtype] : {std::pair{"f32", DType::f32}, {"i8", DType::i8}, {"f64", DType::f64}, {"f16", DType::f16}}) {
      for (const int64_t size : {1, 15, 16, 65, 200}) {
        INFO(name << " " << size);
        Guarded a(dtype, 2 * size);
        Tensor like(DType::i8, {size}), c(dtype, {size});
        a.tensor.fill(2);
        run(plugin, every_second(name), {&a.tensor, &like}, &c);
        expect(c, [&](int64_t i) { return a.tensor.get(2 * i + 1); });
      }
    }
  });
}

TEST_CASE("an element that memory ends with is read alone") {
  const Plugin plugin;
  for (const DType dtype : narrows::test::kAllDTypes) {
    const std::string t = narrows::test::name(dtype);
    const std::string text =
        "program 1 f(A: " + t + "[N], C: out " + t + "[N]):\n  for i in N:\n    block C(v: S(N) = i):\n      C[v] = A[v]\n";
    for (const char* kernel : {"interpreter", "compiled"}) {
      INFO(t << " " << kernel);
      Guarded a(dtype, 5), c(dtype, 5);
      a.tensor.fill(1);
      const Answer answer = Call{plugin, text, {&a.tensor}, {&c.tensor}, kernel}.run();
      INFO(answer.message);
      REQUIRE(answer);
      expect(c.tensor, [&](int64_t i) { return a.tensor.get(i); });
    }
  }
}

// Memory that is there when it is written: more than 4 GiB of it take some pages.
TEST_CASE("elements behind 4 GiB are found") {
  constexpr int64_t kBehind = int64_t{1} << 32, kSize = kBehind + 300;
  const std::string slice =
      "program 1 f(A: u8[300], B: inout u8[4294967596]):\n  for i in 300:\n    block B(v: S(300) = i):\n"
      "      B[v + 4294967296] = B[v + 4294967296] * u8(2) + A[v]\n";
  const std::string rows =
      "program 1 f(A: u8[N], B: inout u8[M, N]):\n  for i in M:\n    for j in N:\n      block B(v: S(M) = i, w: S(N) = j):\n"
      "        B[v, w] = B[v, w] * u8(2) + A[w]\n";
  const std::string columns =
      "program 1 f(A: u8[N], B: inout u8[N, M]):\n  for i in M:\n    for j in N:\n      block B(v: S(M) = i, w: S(N) = j):\n"
      "        B[w, v] = B[w, v] * u8(2) + A[w]\n";
  struct View {
    const std::string& text;
    std::vector<int64_t> shape, strides;
    int64_t first, last;  // elements: the first one of the tensor, and the one that is looked at first
  };
  const View views[] = {{slice, {kSize}, {1}, 0, kBehind},
                        {rows, {3, 300}, {kBehind / 2, 1}, 0, kBehind},
                        {rows, {3, 300}, {-kBehind / 2, 1}, kBehind, 0},
                        {columns, {300, 2}, {1, kBehind}, 0, kBehind}};
  const Plugin plugin;
  for (const View& view : views) {
    for (const char* kernel : {"compiled", "interpreter"}) {
      INFO(view.text << kernel);
      auto* const memory = static_cast<unsigned char*>(
          mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      REQUIRE(memory != MAP_FAILED);
      Tensor a(DType::u8, {300}), b;
      b.dtype = DType::u8;
      b.shape = view.shape;
      b.strides = view.strides;
      b.outside = memory + view.first;
      for (int64_t i = 0; i < 300; ++i) {
        a.set(i, static_cast<double>(i % 100));
        memory[view.last + i] = static_cast<unsigned char>(i % 60);
      }
      const Answer answer = Call{plugin, view.text, {&a, &b}, {&b}, kernel, {}, 1}.run();
      int64_t right = 0;
      for (int64_t i = 0; i < 300; ++i) right += memory[view.last + i] == i % 60 * 2 + i % 100 ? 1 : 0;
      munmap(memory, kSize);
      INFO(answer.message);
      REQUIRE(answer);
      CHECK(right == 300);
    }
  }
}

TEST_CASE("a kernel that was made for other strides is not used") {
  const char* const text = R"(program 1 f(A: f32[N], C: out f32[N]):
  for i in N:
    block C(vi: S(N) = i):
      C[vi] = A[vi] + f32(24)
)";
  const Plugin plugin;
  for (const int64_t step : {1, 3, 1, -2}) {
    INFO(step);
    Tensor a(DType::f32, {37}, step), c(DType::f32, {37});
    for (int64_t i = 0; i < 37; ++i) a.set(i, static_cast<double>(i));
    run(plugin, text, {&a}, &c);
    expect(c, [](int64_t i) { return static_cast<double>(i) + 24; });
  }
}

TEST_CASE("parallel loops within each other hand out each of their iterations once", "[sanitized]") {
  const char* const text = R"(program 1 f(A: f32[M, N, K], C: out f32[K, M, N]):
  for i in M parallel:
    for j in N parallel:
      for k in K parallel:
        block C(vi: S(M) = i, vj: S(N) = j, vk: S(K) = k):
          C[vk, vi, vj] = A[vi, vj, vk]
)";
  const Plugin plugin;
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{3, 5, 7}, {1, 1, 1}, {40, 50, 60}, {4, 0, 2}}) {
    Tensor a(DType::f32, {m, n, k}), c(DType::f32, {k, m, n});
    a.fill(3);
    run(plugin, text, {&a}, &c);
    expect(c, [&, m = m, n = n, k = k](int64_t at) { return a.get(at % (m * n) * k + at / (m * n)); });
  }
}

TEST_CASE("results of a large call are right wherever they lie") {
  const char* const text = R"(program 1 f(A: f32[N], C: out f32[N]):
  for i0 in (N + 4095) // 4096 parallel:
    for i1 in 4096:
      block C(v: S(N) = i0 * 4096 + i1) if i0 * 4096 + i1 < N:
        C[v] = A[v] + f32(1)
)";
  for_each_target([&](const Plugin& plugin) {
    for (const int64_t shift : {0, 4}) {
      const int64_t size = (17 << 18) + 5;  // 35 MB in all
      Tensor a(DType::f32, {size}), c(DType::f32, {size}, 1, shift);
      auto* const from = reinterpret_cast<float*>(a.begin());
      for (int64_t i = 0; i < size; ++i) from[i] = static_cast<float>(i % 1000);
      const Answer answer = Call{plugin, text, {&a}, {&c}, "compiled"}.run();
      INFO(answer.message);
      REQUIRE(answer);
      const unsigned char* const to = c.begin();
      int64_t wrong = 0;
      for (int64_t i = 0; i < size; ++i) {
        float got = 0;
        std::memcpy(&got, to + i * 4, 4);
        wrong += got == static_cast<float>(i % 1000) + 1 ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  });
}

namespace {

// Sums of products, from 1 on, and their greater part: A's columns times B. Each loop with the kinds that it is given.
std::string products(const std::string& i, const std::string& j, const std::string& order) {
  const std::string loops = order == "ijk" ? "  for i in 19" + i + ":\n    for j in 5" + j + ":\n      for k in K:\n"
                                           : "  for k in K:\n    for i in 19" + i + ":\n      for j in 5" + j + ":\n";
  return "program 1 f(A: f32[K, 19], B: f32[K, 5], C: out f32[19, 5]):\n  alloc Y: f32[19, 5]\n" + loops +
         "        block Y(vi: S(19) = i, vj: S(5) = j, vk: R(K) = k):\n          init:\n            Y[vi, vj] = f32(1)\n"
         "          Y[vi, vj] = Y[vi, vj] + A[vk, vi] * B[vk, vj]\n  for i1 in 19" +
         i + ":\n    for j1 in 5" + j +
         ":\n      block C(vi: S(19) = i1, vj: S(5) = j1):\n        C[vi, vj] = maximum(Y[vi, vj], f32(2))\n";
}

// The same in one nest: an iteration of the outer loop has a buffer of its own.
const char* const kOwnRow = R"(program 1 f(A: f32[K, 19], B: f32[K, 5], C: out f32[19, 5]):
  alloc Y: f32[19, 5]
  for i in 19 vectorize:
    for j in 5:
      for k in K:
        block Y(vi: S(19) = i, vj: S(5) = j, vk: R(K) = k):
          init:
            Y[vi, vj] = f32(1)
          Y[vi, vj] = Y[vi, vj] + A[vk, vi] * B[vk, vj]
    for j1 in 5:
      block C(vi: S(19) = i, vj: S(5) = j1):
        C[vi, vj] = maximum(Y[vi, vj], f32(2))
)";

// The same with a buffer of one element for each iteration of the inner loop.
const char* const kOwnElement = R"(program 1 f(A: f32[K, 19], B: f32[K, 5], C: out f32[19, 5]):
  alloc Y: f32[19, 5]
  for i in 19 vectorize:
    for j in 5:
      for k in K:
        block Y(vi: S(19) = i, vj: S(5) = j, vk: R(K) = k):
          init:
            Y[vi, vj] = f32(1)
          Y[vi, vj] = Y[vi, vj] + A[vk, vi] * B[vk, vj]
      block C(vi: S(19) = i, vj: S(5) = j):
        C[vi, vj] = maximum(Y[vi, vj], f32(2))
)";

// Each iteration of the outer loop fills the buffer, and keeps it from step to step; the first one reads it in its last step.
const char* const kKept = R"(program 1 f(A: f32[6, 9], C: out f32[9]):
  alloc T: f32[9]
  for i in 6 vectorize:
    for m in 4:
      for l in 9:
        block W(vi: C(6) = i, vl: S(9) = l) if m == 0:
          T[vl] = A[vi, vl]
        block C(vl: S(9) = l) if m == 3 and i == 0:
          C[vl] = T[vl]
)";

}  // namespace

TEST_CASE("a loop of lanes does not mix what its iterations keep") {
  for_each_target([&](const Plugin& plugin) {
    for (const char* kernel : {"compiled", "interpreter"}) {
      INFO(kernel);
      Tensor a(DType::f32, {6, 9}), c(DType::f32, {9});
      a.fill(8);
      const Answer answer = Call{plugin, kKept, {&a}, {&c}, kernel}.run();
      INFO(answer.message);
      REQUIRE(answer);
      expect(c, [&](int64_t l) { return a.get(l); });
    }
  });
}

TEST_CASE("a block of a carried axis begins once") {
  const std::string text =
      "program 1 f(A: f32[7, 3], C: out f32[3]):\n  for c in 7:\n    for i in 3:\n      block C(vi: S(3) = i, vc: C(7) = c):\n"
      "        init:\n          C[vi] = f32(5)\n        C[vi] = C[vi] + A[vc, vi]\n";
  const Plugin plugin;
  for (const char* kernel : {"compiled", "interpreter"}) {
    INFO(kernel);
    Tensor a(DType::f32, {7, 3}), c(DType::f32, {3});
    for (int64_t at = 0; at < 21; ++at) a.set(at, static_cast<double>(at));
    const Answer answer = Call{plugin, text, {&a}, {&c}, kernel}.run();
    INFO(answer.message);
    REQUIRE(answer);
    expect(c, [](int64_t i) { return 5.0 + 7.0 * static_cast<double>(i) + 3.0 * 21.0; });
  }
}

TEST_CASE("a loop of lanes around others gives what plain loops give") {
  const std::string lanes = " vectorize";
  std::vector<std::string> texts = {kOwnRow, kOwnElement};
  for (const char* order : {"ijk", "kij"}) {
    texts.push_back(products(lanes, "", order));
    texts.push_back(products("", lanes, order));
    texts.push_back(products(lanes, lanes, order));
    texts.push_back(products(lanes, " parallel", order));
    texts.push_back(products(lanes, " unroll", order));
  }
  for_each_target([&](const Plugin& plugin) {
    for (const int64_t size : {0, 1, 7}) {
      Tensor a(DType::f32, {size, 19}), b(DType::f32, {size, 5});
      a.fill(4);
      b.fill(5);
      const auto want = [&](int64_t at) {
        float sum = 1;
        for (int64_t k = 0; k < size; ++k)
          sum += static_cast<float>(a.get(k * 19 + at / 5)) * static_cast<float>(b.get(k * 5 + at % 5));
        return static_cast<double>(std::max(sum, 2.0F));
      };
      for (const std::string& text : texts) {
        for (const char* kernel : {"compiled", "interpreter"}) {
          INFO(text << kernel << ", K = " << size);
          Tensor c(DType::f32, {19, 5});
          const Answer answer = Call{plugin, text, {&a, &b}, {&c}, kernel}.run();
          INFO(answer.message);
          REQUIRE(answer);
          CHECK(c.is_clean_outside());
          expect(c, want);
        }
      }
    }
  });
}

TEST_CASE("lanes that store at one place, where a condition lets one of them run, are a plain loop") {
  const std::string text =
      "program 1 f(x: f32[5], C: out f32[1]):\n  for i in 5:\n    for j in 8 vectorize:\n      block C(vi: R(5) = i + j) if j < "
      "1:\n"
      "        init:\n          C[0] = f32(0)\n        C[0] = maximum(C[0], x[vi // 2] * f32(2))\n";
  for_each_target([&](const Plugin& plugin) {
    Tensor x(DType::f32, {5}), out(DType::f32, {1});
    for (int64_t i = 0; i < 5; ++i) x.set(i, static_cast<double>(i));
    run(plugin, text, {&x}, &out);
    expect(out, [](int64_t) { return 4.0; });
  });
}

TEST_CASE("an extent that a loop of lanes decides") {
  const char* const text = R"(program 1 f(A: f32[8, 8], C: inout f32[8, 8]):
  for i in 8 vectorize:
    for j in i + 1:
      block C(vi: S(8) = i, vj: S(8) = j):
        C[vi, vj] = A[vi, vj]
)";
  for_each_target([&](const Plugin& plugin) {
    for (const char* kernel : {"compiled", "interpreter"}) {
      Tensor a(DType::f32, {8, 8}), before(DType::f32, {8, 8}), c(DType::f32, {8, 8});
      a.fill(6);
      before.fill(7);
      const Answer answer = Call{plugin, text, {&a, &before}, {&c}, kernel}.run();
      INFO(answer.message);
      REQUIRE(answer);
      expect(c, [&](int64_t i) { return i % 8 <= i / 8 ? a.get(i) : before.get(i); });
    }
  });
}

TEST_CASE("a place outside of a small buffer, where a condition never holds, is not touched") {
  // Of P there is one element, in a variable; vi - 1 is -1.
  const std::string text = R"(program 1 f(A: f32[1, M], x: f32[1], C: out f32[1]):
  alloc P: f32[M, 1]
  for l in 1:
    block P(vi: S(M) = M - 1, vj: S(1) = l - 1) if M - 1 >= 0 and l - 1 >= 0:
      P[vi, vj] = x[vj]
    block C_init():
      C[0] = f32(1)
    block C(vi: R(1) = l):
      C[0] = C[0] * (where(M > 0, A[vi, M - 1], f32(2)) + where(M > 0 and vi > 0, P[M - 1, vi - 1], f32(2)))
)";
  for_each_target([&](const Plugin& plugin) {
    for (const int64_t m : {0, 1, 5}) {
      INFO("M = " << m);
      Tensor a(DType::f32, {1, m}), x(DType::f32, {1}), c(DType::f32, {1});
      a.fill(1);
      x.fill(2);
      run(plugin, text, {&a, &x}, &c);
      expect(c, [&](int64_t) { return m > 0 ? static_cast<double>(static_cast<float>(a.get(m - 1)) + 2.0F) : 4.0; });
    }
  });
}

TEST_CASE("a row of a buffer that shrinks to it begins where the buffer does") {
  // The interpreter's rows lie beside each other: one that begins further on lies in another buffer's.
  const char* const text = R"(program 1 f(A: f32[N, 64], C: out f32[N, 64]):
  alloc L: f32[N, 64]
  alloc M: f32[N + 1, 64]
  alloc R: f32[N, 64]
  for i in N:
    for j in 64:
      block L(v: S(N) = i, w: S(64) = j):
        L[v, w] = A[v, w]
    for k in 64:
      block M(v: S(N) = i, w: S(64) = k):
        M[v + 1, w] = A[v, w] * f32(2)
    for l in 64:
      block R(v: S(N) = i, w: S(64) = l):
        R[v, w] = A[v, w] * f32(4)
    for m in 64:
      block C(v: S(N) = i, w: S(64) = m):
        C[v, w] = L[v, w] + M[v + 1, w] + R[v, w]
)";
  const Plugin plugin;
  for (const char* kernel : {"interpreter", "compiled"}) {
    INFO(kernel);
    Tensor a(DType::f32, {3, 64}), c(DType::f32, {3, 64});
    for (int64_t i = 0; i < a.elements(); ++i) a.set(i, static_cast<double>(i));
    const Answer answer = Call{plugin, text, {&a}, {&c}, kernel}.run();
    INFO(answer.message);
    REQUIRE(answer);
    expect(c, [&](int64_t i) { return 7 * static_cast<double>(i); });
  }
}

TEST_CASE("a loop over all elements finds each, and runs to its end where there is none") {
  // Of 0 columns f // K is computed, and of no element.
  const char* const text = R"(program 1 f(A: f32[N, K], B: f32[N], C: out f32[N, K], D: out f32[N]):
  for f in N * K + 1:
    block C(v: S(N) = f // K, w: S(K) = f % K) if f // K < N and f < N * K:
      C[v, w] = A[v, w]
  for i in N:
    block D(v: S(N) = i):
      D[v] = B[v]
)";
  const Plugin plugin;
  for (const char* kernel : {"interpreter", "compiled"})
    for (const int64_t columns : {0, 1, 2, 7}) {
      INFO(kernel << " " << columns);
      Tensor a(DType::f32, {5, columns}), b(DType::f32, {5}), c(DType::f32, {5, columns}), d(DType::f32, {5});
      a.fill(1);
      b.fill(2);
      const Answer answer = Call{plugin, text, {&a, &b}, {&c, &d}, kernel}.run();
      INFO(answer.message);
      REQUIRE(answer);
      expect(c, [&](int64_t i) { return a.get(i); });
      expect(d, [&](int64_t i) { return b.get(i); });
    }
}

TEST_CASE("a program whose products may be fused has products of integers, too") {
  const char* const text = R"(program 1 f(A: f32[N], B: i8[N], C: out f32[N], D: out i8[N]):
  for i in N:
    block C(v: S(N) = i) {"contract": "true"}:
      C[v] = A[v] * A[v] + A[v]
    block D(v: S(N) = i):
      D[v] = B[v] * B[v]
)";
  for_each_target([&](const Plugin& plugin) {
    Tensor a(DType::f32, {9}), b(DType::i8, {9}), c(DType::f32, {9}), d(DType::i8, {9});
    for (int64_t i = 0; i < 9; ++i) a.set(i, static_cast<double>(i)), b.set(i, static_cast<double>(i));
    const Answer answer = Call{plugin, text, {&a, &b}, {&c, &d}, "compiled"}.run();
    INFO(answer.message);
    REQUIRE(answer);
    expect(c, [](int64_t i) { return static_cast<double>(i * i + i); });
    expect(d, [](int64_t i) { return static_cast<double>(i * i); });
  });
}

TEST_CASE("a small input is read as it lies where a schedule packs it") {
  const std::string text = R"(program 1 f(A: f32[M, K], B: f32[K, N], C: out f32[M, N]):
  alloc P: f32[(N + 31) // 32, K, 32]
  for p in (N + 31) // 32:
    for q in K:
      for l in 32 vectorize:
        block P(vk: S(K) = q, vj: S(N) = p * 32 + l) if p * 32 + l < N:
          P[vj // 32, vk, vj % 32] = B[vk, vj]
  for j0 in (N + 31) // 32:
    for i in M:
      for k in K:
        for j1 in 32 vectorize:
          block C(vi: S(M) = i, vj: S(N) = j0 * 32 + j1, vk: R(K) = k) if j0 * 32 + j1 < N:
            init:
              C[vi, vj] = f32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * P[vj // 32, vk, vj % 32]
)";
  const auto workspace = [&](const Plugin& plugin, int64_t k, int64_t n, int64_t step) {
    INFO(k << " x " << n << ", step " << step);
    Tensor a = filled(DType::f32, {3, k}, 1), b(DType::f32, {k, n}, step), c(DType::f32, {3, n});
    b.fill(2);
    const Answer answer = Call{plugin, text, {&a, &b}, {&c}, "compiled"}.run();
    INFO(answer.message);
    REQUIRE(answer);
    expect(c, [&](int64_t at) {
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += static_cast<float>(a.get(at / n * k + i)) * static_cast<float>(b.get(i * n + at % n));
      return static_cast<double>(sum);
    });
    return answer.workspace;
  };
  for_each_target([&](const Plugin& plugin) {
    for (const int64_t n : {1, 31, 32, 33, 70}) CHECK(workspace(plugin, 7, n, 1) == 0);
    CHECK(workspace(plugin, 7, 33, 2) > 0);  // its rows are no runs
    CHECK(workspace(plugin, 512, 70, 1) > 0);
  });
}
