// SPDX-License-Identifier: Apache-2.0
// test_gpu_program.cpp -- tensor programs on a GPU's plugin (cuda, hip, vulkan) beside the reference: unscheduled, and by loops
// that are bound to blocks and threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/program/auto.h"
#include "core/program/dtype.h"
#include "core/program/functions.h"
#include "core/program/schedule.h"
#include "gpu_program.h"

using Catch::Matchers::ContainsSubstring;

TEST_CASE("every example program is right as it is written") {
  for (const Example& example : kExamples) {
    INFO(example.name);
    Prepared prepared = example.prepare();
    expect_right(text_of(example.name), prepared.inputs, prepared.outputs, prepared.params, 2e-5);
  }
}

namespace {

const std::string kHead = "program 1 mm(A: f32[M, K], B: f32[K, N], C: out f32[M, N]):\n";
const std::string kAsWritten = R"(  alloc Y: f32[M, N]
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
)";
// A block's tiles of A and B in shared memory, a register for each thread.
const std::string kTiled = R"(  alloc Y: f32[M, N] local
  alloc A_shared: f32[M, K] shared pad [0, 1]
  alloc B_shared: f32[K, N] shared
  for i0 in (M + 7) // 8 bind block.y:
    for j0 in (N + 15) // 16 bind block.x:
      for i3 in 8 bind thread.y:
        for j3 in 16 bind thread.x:
          block Y_init(vi: S(M) = i0 * 8 + i3, vj: S(N) = j0 * 16 + j3) if i0 * 8 + i3 < M and j0 * 16 + j3 < N:
            Y[vi, vj] = f32(0)
      for k0 in (K + 15) // 16:
        for a0 in 8 bind thread.y:
          for a1 in 16 bind thread.x:
            block A_shared(vi: S(M) = i0 * 8 + a0, vk: S(K) = k0 * 16 + a1) if i0 * 8 + a0 < M and k0 * 16 + a1 < K:
              A_shared[vi, vk] = A[vi, vk]
        for b0 in 8 bind thread.y:
          for b1 in 16 bind thread.x:
            for b2 in 2 unroll:
              block B_shared(vk: S(K) = k0 * 16 + b2 * 8 + b0, vj: S(N) = j0 * 16 + b1) if k0 * 16 + b2 * 8 + b0 < K and j0 * 16 + b1 < N:
                B_shared[vk, vj] = B[vk, vj]
        for i1 in 8 bind thread.y:
          for j1 in 16 bind thread.x:
            for k1 in 16:
              block Y(vi: S(M) = i0 * 8 + i1, vj: S(N) = j0 * 16 + j1, vk: R(K) = k0 * 16 + k1) if i0 * 8 + i1 < M and j0 * 16 + j1 < N and k0 * 16 + k1 < K:
                Y[vi, vj] = Y[vi, vj] + A_shared[vi, vk] * B_shared[vk, vj]
      for i2 in 8 bind thread.y:
        for j2 in 16 bind thread.x:
          block C(vi: S(M) = i0 * 8 + i2, vj: S(N) = j0 * 16 + j2) if i0 * 8 + i2 < M and j0 * 16 + j2 < N:
            C[vi, vj] = maximum(Y[vi, vj], f32(0))
)";
// The reduction outermost: the loops of rows and columns are free all the same.
const std::string kOutside = R"(  alloc Y: f32[M, N]
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
)";

}  // namespace

TEST_CASE("a product is right by threads and tiles, at every size and layout") {
  struct Sizes {
    int64_t m, n, k;
  };
  for (const Sizes size : {Sizes{8, 16, 16}, Sizes{1, 1, 1}, Sizes{17, 50, 33}, Sizes{5, 17, 0}, Sizes{0, 3, 2}}) {
    for (const int64_t step : {int64_t{1}, int64_t{3}, int64_t{-1}}) {
      for (const std::string& body : {kAsWritten, kTiled, kOutside}) {
        INFO(body << size.m << " " << size.n << " " << size.k << ", step " << step);
        std::vector<Tensor> inputs{Tensor(DType::f32, {size.m, size.k}, step), Tensor(DType::f32, {size.k, size.n}, step)};
        std::vector<Tensor> outputs{Tensor(DType::f32, {size.m, size.n}, step)};
        inputs[0].fill(1);
        inputs[1].fill(2);
        expect_right(kHead + body, inputs, outputs, {}, 1e-5, kHead + kAsWritten);
      }
    }
  }
}

TEST_CASE("the default schedule computes what the program does") {
  struct More {
    const char* name;
    Prepared prepared;
  };
  std::vector<More> all;
  for (const Example& example : kExamples) all.push_back({example.name, example.prepare()});
  all.push_back({"softmax", {{filled(kF, {3, 1000}, 1)}, {Tensor(kF, {3, 1000})}, {}}});
  // A thread's loops take fewer than 65,535 iterations, where some drivers of Vulkan end them.
  all.push_back({"batched_matmul", {{filled(kF, {2, 35, 40}, 1), filled(kF, {2, 45, 40}, 2)}, {Tensor(kF, {2, 35, 45})}, {}}});
  for (auto& [name, prepared] : all) {
    narrows::program::Schedule schedule(narrows::program::parse(text_of(name)));
    narrows::program::schedule_for_gpu(&schedule);
    CHECK_NOTHROW(schedule.require_scopes());
    const std::string text = narrows::program::print(schedule.program());
    INFO(text);
    expect_right(text, prepared.inputs, prepared.outputs, prepared.params, 2e-5, text_of(name));
    if (std::string(name) == "mm_relu" || std::string(name) == "softmax") CHECK_THAT(text, ContainsSubstring("bind thread.x"));
  }
}

TEST_CASE("threads wait for what others wrote, also from one iteration to the next") {
  // Each thread reads what another one wrote, writes after all have read, and thread 0 alone writes a sum.
  const std::string text = R"(program 1 f(A: f32[R, 64], C: out f32[R, 64], T: out f32[R]):
  alloc X: f32[R, 64] shared
  alloc Z: f32[R] shared
  for r in R bind block.x:
    for t0 in 64 bind thread.x:
      block X(vr: S(R) = r, vt: S(64) = t0):
        X[vr, vt] = A[vr, vt]
    for s in 3:
      block Z(vr: S(R) = r, vs: C(3) = s):
        Z[vr] = X[vr, 63] + X[vr, 5]
      for t1 in 64 bind thread.x:
        block C(vr: S(R) = r, vt: S(64) = t1, vs: C(3) = s):
          C[vr, vt] = X[vr, 63 - vt] + Z[vr]
      for t2 in 64 bind thread.x:
        block X2(vr: S(R) = r, vt: S(64) = t2, vs: C(3) = s):
          X[vr, vt] = C[vr, vt] * f32(0.5)
    block T(vr: S(R) = r):
      T[vr] = X[vr, 0] + X[vr, 40]
)";
  std::vector<Tensor> inputs{Tensor(DType::f32, {3, 64})}, outputs{Tensor(DType::f32, {3, 64}), Tensor(DType::f32, {3})};
  inputs[0].fill(1);
  expect_right(text, inputs, outputs, {}, 1e-6);
}

TEST_CASE("threads wait in front of a loop that they do not all run alike") {
  // Thread 0 has 32 elements and thread 1 has 8; each reads what the other one wrote.
  const std::string text = R"(program 1 f(A: f32[R, 40], C: out f32[R, 40]):
  alloc X: f32[R, 40] shared
  for r in R bind block.x:
    for t0 in 2 bind thread.x:
      for i0 in min(32, 40 - t0 * 32):
        block X(vr: S(R) = r, vt: S(40) = t0 * 32 + i0):
          X[vr, vt] = A[vr, vt]
    for t1 in 2 bind thread.x:
      for i1 in min(32, 40 - t1 * 32):
        block C(vr: S(R) = r, vt: S(40) = t1 * 32 + i1):
          C[vr, vt] = X[vr, 39 - vt]
)";
  std::vector<Tensor> inputs{Tensor(DType::f32, {3, 40})}, outputs{Tensor(DType::f32, {3, 40})};
  inputs[0].fill(1);
  expect_right(text, inputs, outputs, {}, 0);
}

TEST_CASE("each iteration of a bound loop has its own allocations") {
  const std::string text = R"(program 1 f(A: f32[N, 40], C: out f32[N, 40]):
  alloc X: f32[N]
  alloc L: f32[N, 40]
  for i in (N + 3) // 4 bind block.x:
    for t in 4 bind thread.x:
      for j in 40:
        block L(vi: S(N) = i * 4 + t, vj: S(40) = j) if i * 4 + t < N:
          L[vi, vj] = A[vi, vj] * f32(2)
      for k in 40:
        block X(vi: S(N) = i * 4 + t, vk: C(40) = k) if i * 4 + t < N and k % 2 == 0:
          X[vi] = L[vi, 39 - vk]
        block C(vi: S(N) = i * 4 + t, vk: S(40) = k) if i * 4 + t < N:
          C[vi, vk] = X[vi] + f32(1)
)";
  std::vector<Tensor> inputs{Tensor(DType::f32, {11, 40})}, outputs{Tensor(DType::f32, {11, 40})};
  inputs[0].fill(1);
  expect_right(text, inputs, outputs, {}, 1e-6);
}

TEST_CASE("runs of elements are read and written at once, and their rest one by one") {
  for (const char* dtype : {"f32", "f16", "i8", "f64"}) {
    const std::string text = std::string("program 1 f(A: ") + dtype + "[M, N], B: " + dtype + "[N], C: out " + dtype + R"([M, N]):
  for i in M bind block.x:
    for j0 in (N + 31) // 32:
      for t in 8 bind thread.x:
        for v in 4 vectorize:
          block C(vi: S(M) = i, vj: S(N) = j0 * 32 + t * 4 + v) if j0 * 32 + t * 4 + v < N:
            C[vi, vj] = A[vi, vj] * )" +
                             dtype + "(2) + where(vj > 0, B[max(vj - 1, 0)], " + dtype + "(1))\n";
    const DType type = dtype == std::string("f32")   ? DType::f32
                       : dtype == std::string("f16") ? DType::f16
                       : dtype == std::string("i8")  ? DType::i8
                                                     : DType::f64;
    for (const int64_t n : {64, 70, 68}) {
      for (const int64_t step : {1, 2}) {
        INFO(text << n << " " << step);
        std::vector<Tensor> inputs{Tensor(type, {3, n}, step), Tensor(type, {n})}, outputs{Tensor(type, {3, n}, step)};
        inputs[0].fill(1);
        inputs[1].fill(2);
        expect_right(text, inputs, outputs, {}, 2e-3);
      }
    }
  }
}

TEST_CASE("every function gives what it gives elsewhere, in each dtype") {
  using narrows::program::DType;
  const std::pair<const char*, ::DType> kTypes[] = {{"f32", ::DType::f32},   {"f64", ::DType::f64}, {"f16", ::DType::f16},
                                                    {"bf16", ::DType::bf16}, {"i8", ::DType::i8},   {"i32", ::DType::i32},
                                                    {"i64", ::DType::i64},   {"u8", ::DType::u8},   {"u64", ::DType::u64}};
  for (const auto& [name, type] : kTypes) {
    const DType dtype = *narrows::program::find_dtype(name);
    std::vector<std::string> functions;
    for (const std::string& function : narrows::program::function_names())
      if (function != "where" && narrows::program::takes(*narrows::program::find_function(function), dtype))
        functions.push_back(function);
    constexpr size_t kEach = 24;
    for (size_t from = 0; from < functions.size(); from += kEach) {
      const size_t to = std::min(functions.size(), from + kEach);
      std::string head = std::string("program 1 f(a: ") + name + "[N], b: " + name + "[N], c: " + name + "[N]", body;
      std::vector<Tensor> inputs(3, Tensor(type, {40})), outputs;
      for (size_t i = 0; i < 3; ++i) inputs[i].fill(static_cast<unsigned>(i + 1), i == 1 ? 0.25 : -3, 3);
      for (size_t f = from; f < to; ++f) {
        const narrows::program::Function& function = *narrows::program::find_function(functions[f]);
        const std::string out = "y" + std::to_string(f), loop = "i" + std::to_string(f);
        head += ", " + out + ": out " + (function.gives_bool ? "bool" : name) + "[N]";
        const char* const operands[] = {"a[v]", "a[v], b[v]", "a[v], b[v], c[v]"};
        const int count = functions[f] == "elu" ? 2 : function.operands;
        body += "  for " + loop + " in N:\n    block " + out + "(v: S(N) = " + loop + "):\n      " + out + "[v] = " + functions[f] +
                "(" + operands[count - 1] + ")\n";
        outputs.emplace_back(function.gives_bool ? ::DType::boolean : type, std::vector<int64_t>{40});
      }
      INFO(head);
      const double tolerance = type == ::DType::bf16 ? 1.6e-2 : type == ::DType::f16 ? 2e-3 : type == ::DType::f64 ? 1e-13 : 1e-5;
      expect_right(head + "):\n" + body, inputs, outputs, {}, tolerance);
    }
  }
}

TEST_CASE("casts round, saturate and wrap as elsewhere") {
  const std::vector<std::pair<std::string, DType>> types = {
      {"bool", DType::boolean}, {"i8", DType::i8},   {"i16", DType::i16}, {"i32", DType::i32}, {"i64", DType::i64},
      {"u8", DType::u8},        {"u16", DType::u16}, {"u32", DType::u32}, {"u64", DType::u64}, {"f16", DType::f16},
      {"bf16", DType::bf16},    {"f32", DType::f32}, {"f64", DType::f64}};
  for (const auto& [from, type] : types) {
    std::string head = "program 1 f(a: " + from + "[N]", body;
    std::vector<Tensor> inputs{Tensor(type, {64})}, outputs;
    const bool is_byte = type == DType::i8 || type == DType::u8 || type == DType::i16 || type == DType::boolean;
    inputs[0].fill(7, is_byte ? -100 : -300, is_byte ? 100 : 60000);
    for (const auto& [to, target] : types) {
      if (to == from) continue;
      head += ", y_" + to + ": out " + to + "[N], x_" + to + ": out " + to + "[N]";
      body += "  for i_" + to + " in N:\n    block y_" + to + "(v: S(N) = i_" + to + "):\n      y_" + to + "[v] = " + to +
              "(a[v])\n      x_" + to + "[v] = " + to + "(v * 37 - 500)\n";
      for (int i = 0; i < 2; ++i) outputs.emplace_back(target, std::vector<int64_t>{64});
    }
    INFO(head);
    expect_right(head + "):\n" + body, inputs, outputs, {}, 0);
  }
}

TEST_CASE("optional tensors, params and in-out tensors") {
  const std::string text =
      R"(program 1 f(x: inout f32[N], bias?: f32[N], scale: param f32 = 2, shift: param i64 = 1, flip: param bool = 0):
  for i in N:
    block x(vi: S(N) = i):
      x[vi] = where(flip, -x[vi], x[vi]) * scale + where(present(bias), bias[vi], f32(shift))
)";
  for (const bool has_bias : {true, false}) {
    std::vector<Tensor> inputs{Tensor(DType::f32, {33}, 2), Tensor(DType::f32, {33})}, outputs{Tensor(DType::f32, {33})};
    inputs[0].fill(1);
    inputs[1].fill(2);
    inputs[1].absent = !has_bias;
    expect_right(text, inputs, outputs, {{1.5, 0, true}, {0, 3, false}, {0, 1, false}}, 1e-6);
  }
}

TEST_CASE("points of a nest that lead to no element touch none") {
  for (const char* text : kPointsOfNoRow) {
    INFO(text);
    std::vector<Tensor> inputs{filled(DType::f32, {4, 4}, 1)}, outputs{Tensor(DType::f32, {4})};
    expect_right(text, inputs, outputs, {}, 1e-6);
  }
}

TEST_CASE("a number beside an array of a thread's own stands where nothing runs") {
  const std::string text = R"(program 1 f(A: f32[N], x: f32[1], C: out f32[N]):
  alloc y: f32[1] local
  for i in N bind block.x:
    for j in 2:
      block y(vj: S(1) = j - 1) if j - 1 >= 0:
        y[vj] = x[vj]
    for k in 1:
      block C(vi: S(N) = i, vk: S(1) = k):
        C[vi] = A[vi] + where(vk > 0, y[vk - 1], y[vk])
)";
  std::vector<Tensor> inputs{filled(DType::f32, {5}, 1), filled(DType::f32, {1}, 2)}, outputs{Tensor(DType::f32, {5})};
  expect_right(text, inputs, outputs, {}, 1e-6);
}

TEST_CASE("a subscript is the greater of two numbers, also where a compiler knows them") {
  // Its loop is unrolled by the vendor's assembler, which was wrong at vj 2 and 3.
  const std::string text = R"(program 1 f(A: i32[2, 5], x: i32[2], C: out i32[5, 5]):
  alloc S: i32[5, 5] shared
  for i in 15:
    for k in 5:
      for h in 2:
        block S(vi: S(5) = i // 5 * 2 + h, vj: S(5) = i % 5, vk: R(5) = k) if i // 5 * 2 + h < 5:
          init:
            S[vi, vj] = A[1, max(vj - 1, 0)]
          S[vi, vj] = S[vi, vj] + maximum(x[1], A[1, vk])
  for i1 in 5:
    for j1 in 5:
      block C(vi: S(5) = i1, vj: S(5) = j1):
        C[vi, vj] = S[vi, vj]
)";
  std::vector<Tensor> inputs{filled(DType::i32, {2, 5}, 1), filled(DType::i32, {2}, 2)}, outputs{Tensor(DType::i32, {5, 5})};
  expect_right(text, inputs, outputs, {}, 0);
}

TEST_CASE("threads of one row share what one of them wrote, apart from other rows") {
  const std::string head = "program 1 rows(x: f32[6], y: f32[5], C: out f32[5, 6]):\n";
  const std::string plain = head + R"(  for i in 5:
    for j in 6:
      block C(vi: S(5) = i, vj: S(6) = j):
        C[vi, vj] = x[vj] * y[vi]
)";
  for (const std::string scope : {"", " local", " shared", " local pad [3]"}) {
    for (const std::string outer : {"thread.y", "block.x"}) {
      const std::string text = head + "  alloc row: f32[6]" + scope + "\n  for o in 5 bind " + outer + R"(:
    for i in 1 bind thread.z:
      for a in 6:
        block row(vi: C(5) = o + i, va: S(6) = a):
          row[va] = x[va] * y[vi]
      for j in 6 bind thread.x:
        block C(vi: S(5) = o + i, vj: S(6) = 5 - j):
          C[vi, vj] = row[vj]
)";
      INFO(text);
      std::vector<Tensor> inputs{filled(DType::f32, {6}, 1), filled(DType::f32, {5}, 2)}, outputs{Tensor(DType::f32, {5, 6})};
      expect_right(text, inputs, outputs, {}, 1e-6, plain);
    }
  }
}

TEST_CASE("what a GPU cannot run so is refused") {
  (void)plugin();  // without a GPU the case is skipped here: a skip inside of CHECK is a failure
  const auto why = [](const std::string& text, std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
    const Answer answer = Call{plugin(), text, pointers(inputs), pointers(outputs)}.run();
    CHECK(answer.status == NW_UNSUPPORTED);
    return answer.message;
  };
  CHECK_THAT(
      why("program 1 f(A: f32[N], C: out f32[N]):\n  for i in N bind thread.x:\n    block C(vi: S(N) = i):\n      C[vi] = A[vi]\n",
          {Tensor(DType::f32, {5})}, {Tensor(DType::f32, {5})}),
      ContainsSubstring("a loop of varying iterations is bound to 'thread.x'; expected a number of threads, at most "));
  CHECK_THAT(why("program 1 f(A: f32[2048], C: out f32[2048]):\n  for i in 2048 bind thread.x:\n    block C(vi: S(2048) = i):\n"
                 "      C[vi] = A[vi]\n",
                 {Tensor(DType::f32, {2048})}, {Tensor(DType::f32, {2048})}),
             ContainsSubstring("2048 iterations"));
  // A block would read what another one writes in the iteration before.
  CHECK_THAT(why("program 1 f(A: f32[8, 8], C: out f32[8, 8]):\n  for k in 8:\n    for i in 8 bind block.x:\n"
                 "      block C(vi: S(8) = i, vk: C(8) = k):\n        C[vk, vi] = A[vk, vi] + where(vk > 0, C[max(vk - 1, 0), 7 - "
                 "vi], f32(0))\n",
                 {Tensor(DType::f32, {8, 8})}, {Tensor(DType::f32, {8, 8})}),
             ContainsSubstring("a block might use 'C' of another one"));
  // Row 0 of threads has two iterations and row 1 has one, so that they do not meet.
  CHECK_THAT(why(R"(program 1 f(A: f32[3, 4], C: out f32[3, 4]):
  alloc X: f32[3, 4] shared
  for t in 2 bind thread.y:
    for s in min(2, 3 - t * 2):
      for u in 4 bind thread.x:
        block X(vr: S(3) = t * 2 + s, vu: S(4) = u):
          X[vr, vu] = A[vr, vu]
      for w in 4 bind thread.x:
        block C(vr: S(3) = t * 2 + s, vu: S(4) = w):
          C[vr, vu] = X[vr, 3 - vu]
)",
                 {Tensor(DType::f32, {3, 4})}, {Tensor(DType::f32, {3, 4})}),
             ContainsSubstring("block 'C' would wait for other threads in a loop that not all of them run alike"));
}
