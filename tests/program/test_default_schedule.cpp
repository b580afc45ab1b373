// SPDX-License-Identifier: Apache-2.0
// test_default_schedule.cpp -- the schedule of a program that has none: what it does, and that the cpu backend then computes the
// same.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/program/auto.h"
#include "core/program/text.h"
#include "core/program/tree.h"
#include "core/program/walk.h"
#include "examples.h"

namespace {

using Catch::Matchers::ContainsSubstring;
using narrows::program::Expr;
using narrows::program::For;
using narrows::program::Machine;
using narrows::program::Path;
using narrows::program::Schedule;

Schedule scheduled(const std::string& text, const Machine& machine = {}) {
  Schedule out(narrows::program::parse(text));
  schedule_for_cpu(&out, machine);
  return out;
}

std::string trace_of(const Schedule& schedule) {
  std::string out;
  for (const std::string& line : schedule.trace()) out += line + "\n";
  return out;
}

std::string product(const std::string& rows) {
  return "program 1 mm(A: f32[" + rows + ", K], B: f32[K, N], C: out f32[" + rows + ", N]):\n  for i in " + rows +
         ":\n    for j in N:\n      for k in K:\n"
         "        block C(vi: S(" +
         rows +
         ") = i, vj: S(N) = j, vk: R(K) = k):\n          init:\n            C[vi, vj] = f32(0)\n"
         "          C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]\n";
}

}  // namespace

TEST_CASE("every program computes the same by its default schedule") {
  for (const Machine& machine : {Machine{64, 32}, Machine{16, 16}}) {
    for (const Example& example : kExamples) {
      const Schedule schedule = scheduled(text_of(example.name), machine);
      INFO(example.name << "\n" << print(schedule.program()));
      Prepared plain = example.prepare();
      REQUIRE(Call{plugin(), text_of(example.name), pointers(plain.inputs), pointers(plain.outputs), "interpreter", plain.params}
                  .run());
      for (const char* kernel : kKernels) {
        Prepared fast = example.prepare();
        const Answer answer =
            Call{plugin(), print(schedule.program()), pointers(fast.inputs), pointers(fast.outputs), kernel, fast.params}.run();
        INFO(kernel << " " << answer.message);
        REQUIRE(answer);
        for (size_t o = 0; o < plain.outputs.size(); ++o)
          for (int64_t i = 0; i < plain.outputs[o].elements(); ++i) {
            const double want = plain.outputs[o].get(i), got = fast.outputs[o].get(i);
            const double tolerance = fast.outputs[o].dtype == DType::f16 ? 2e-3 : 2e-5;
            if (std::fabs(want - got) <= tolerance * std::max(1.0, std::fabs(want))) continue;
            INFO("output " << o << ", element " << i << ": " << got << "; expected " << want);
            FAIL();
          }
      }
    }
  }
}

TEST_CASE("a product is tiled, packed where it is large, and what reads it joins the tile") {
  const std::string small = trace_of(scheduled(text_of("mm_relu")));
  CHECK_THAT(small, ContainsSubstring("factors=[None, 8]") && ContainsSubstring("factors=[None, 32]"));
  CHECK_THAT(small, ContainsSubstring("reverse_compute_at(block=\"C\"") && ContainsSubstring("vectorize") &&
                        ContainsSubstring("parallel"));
  CHECK_THAT(small, !ContainsSubstring("cache_read"));
  CHECK_THAT(trace_of(scheduled(product("M"))), ContainsSubstring("cache_read(block=\"C\", buffer=\"B\")") &&
                                                    ContainsSubstring("transform_layout") && ContainsSubstring("cache_write"));
}

// A pass is a block that reads the rows of x.
TEST_CASE("the reductions of a row share one loop, are vectors, and pass over the row as often as they must") {
  const std::tuple<const char*, int, int> programs[] = {// passes; reductions
                                                        {"softmax", 3, 2},
                                                        {"layer_norm", 3, 2},
                                                        {"rms_norm", 2, 1},
                                                        {"log_sum_exp", 2, 2}};
  for (const auto& [name, passes, reductions] : programs) {
    const Schedule schedule = scheduled(text_of(name));
    INFO(print(schedule.program()));
    REQUIRE(schedule.program().body.size() == 1);
    int found = 0, vectors = 0;
    for (const Path& path : paths(schedule.program())) {
      CHECK(path.loops[0]->kind == For::Kind::parallel);
      bool reads = false;
      for_each_load(*path.block, [&](const Expr& load) { reads = reads || load.name == "x"; });
      found += reads ? 1 : 0;
      vectors += reads && path.loops.back()->kind == For::Kind::vectorize ? 1 : 0;
    }
    CHECK(found == passes);
    CHECK(vectors == reductions);
  }
}

TEST_CASE("a short row's result does not join the loop of those who read it") {
  const auto text = [](const std::string& columns) {
    return "program 1 f(x: f32[M, " + columns + "], y: out f32[M]):\n  alloc total: f32[M]\n  for i in M:\n    for j in " +
           columns + ":\n      block total(vi: S(M) = i, vj: R(" + columns +
           ") = j):\n        init:\n          total[vi] = f32(0)\n        total[vi] = total[vi] + x[vi, vj]\n"
           "  for i1 in M:\n    block y(vi: S(M) = i1):\n      y[vi] = log(total[vi])\n";
  };
  CHECK(scheduled(text("3")).program().body.size() == 2);
  CHECK(scheduled(text("300")).program().body.size() == 1);
}

namespace {
// How many loops of a call are given to threads.
int64_t loops_split(const std::string& text, const std::vector<std::vector<int64_t>>& shapes, const char* kernel) {
  std::vector<Tensor> inputs;
  for (const auto& shape : shapes) inputs.push_back(filled(kF, shape, 1));
  Tensor out(kF, shapes[0]);
  const int64_t before = loops_on_threads;
  const Answer answer = Call{plugin(), print(scheduled(text).program()), pointers(inputs), {&out}, kernel}.run();
  INFO(answer.message);
  REQUIRE(answer);
  return loops_on_threads - before;
}
std::string chain(const std::string& value) {
  return "program 1 f(x: f32[N], y: f32[N], z: out f32[N]):\n  for i in N:\n    block z(vi: S(N) = i):\n      z[vi] = " + value +
         "\n";
}
}  // namespace

// From about 30 us on. On one thread of a Xeon: x + y 19 us, exp 34 us; softmax 9 us and 110 us.
TEST_CASE("loops are given to threads by what they cost, functions included") {
  const int64_t n = 1 << 17;
  CHECK(loops_split(chain("x[vi] + y[vi]"), {{n}, {n}}, "compiled") == 0);
  CHECK(loops_split(chain("exp(x[vi] + y[vi])"), {{n}, {n}}, "compiled") == 1);
  CHECK(loops_split(chain("x[vi] + y[vi]"), {{8 * n}, {8 * n}}, "compiled") == 1);
  CHECK(loops_split(text_of("softmax"), {{64, 128}}, "compiled") == 0);
  CHECK(loops_split(text_of("softmax"), {{128, 1000}}, "compiled") == 1);
  CHECK(loops_split(text_of("stencil"), {{4, 8}}, "interpreter") == 0);
  CHECK(loops_split(text_of("stencil"), {{64, 128}}, "interpreter") == 1);
}

TEST_CASE("a product by its default schedule is right for sizes that leave partial tiles") {
  for (const char* rows : {"M", "5", "24"}) {
    const std::string text = print(scheduled(product(rows)).program());
    for (const int64_t n : {1, 31, 32, 70}) {
      for (const char* kernel : kKernels) {
        const int64_t m = rows[0] == 'M' ? 19 : std::atoll(rows), k = 9;
        Tensor a = filled(kF, {m, k}, 1), b = filled(kF, {k, n}, 2), c(kF, {m, n});
        INFO(text << kernel << " " << rows << " " << n);
        const Answer answer = Call{plugin(), text, {&a, &b}, {&c}, kernel}.run();
        INFO(answer.message);
        REQUIRE(answer);
        for (int64_t at = 0; at < m * n; ++at) {
          double sum = 0;
          for (int64_t i = 0; i < k; ++i) sum += a.get(at / n * k + i) * b.get(i * n + at % n);
          if (std::fabs(sum - c.get(at)) > 1e-5) FAIL("element " << at << " is " << c.get(at) << "; expected " << sum);
        }
      }
    }
  }
}
