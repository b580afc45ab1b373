// SPDX-License-Identifier: Apache-2.0
// test_adjoint.cpp -- adjoints of programs against finite differences, both by the reference in long double; what has none.
#include "core/program/adjoint.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

#include "core/program/derivative.h"
#include "core/program/dtype.h"
#include "core/program/functions.h"
#include "core/program/schedule.h"
#include "core/program/tree.h"
#include "core/program/walk.h"
#include "programs.h"
#include "reference/program.h"

using namespace narrows::program;
using narrows::reference::Arguments;
using narrows::reference::evaluate;
using narrows::reference::Evaluation;
using narrows::reference::Exact;

namespace {

using Sizes = std::map<std::string, int64_t>;

// In f64 throughout, so that no cast rounds; and small.
Program in_f64(std::string text) {
  const auto replace = [&](const std::string& old, const std::string& with) {
    for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + with.size()))
      text.replace(at, old.size(), with);
  };
  replace("f32", "f64");
  replace("f16", "f64");
  replace("128", "5");
  return parse(text);
}
Program named(const std::string& name) { return in_f64(read_file(std::string(TEXTS) + "/" + name + ".program")); }

struct Numbers {
  std::mt19937_64 random{7};
  double low, high;
  std::vector<Exact> operator()(size_t count) {
    std::uniform_real_distribution<double> uniform(low, high);
    std::vector<Exact> out(count);
    for (Exact& value : out) value = uniform(random);
    return out;
  }
};

Arguments filled(const Program& program, const Sizes& sizes, Numbers& numbers) {
  Arguments out = narrows::reference::small_integers(program, sizes, 3);
  for (const Buffer& tensor : program.tensors)
    if (tensor.role == Buffer::Role::input && is_float(tensor.dtype))
      out.tensors[tensor.name] = numbers(out.tensors[tensor.name].size());
  return out;
}

Exact weighted(const Program& program, const Arguments& arguments, const std::map<std::string, std::vector<Exact>>& seeds) {
  const Evaluation result = evaluate(program, arguments);
  Exact out = 0;
  for (const auto& [name, weights] : seeds)
    for (size_t i = 0; i < weights.size(); ++i) out += weights[i] * result.arrays.at(name).values[i];
  return out;
}

// Each element of each gradient of the adjoint, which the verifier takes; nothing in it is out of bounds.
void check_gradients(const Program& program, const Sizes& sizes, double low = -2, double high = 2, bool all_present = true) {
  Numbers numbers{.low = low, .high = high};
  Arguments at = filled(program, sizes, numbers);
  if (!all_present)
    for (const Buffer& tensor : program.tensors)
      if (tensor.optional) at.tensors.erase(tensor.name);
  const Program backward = adjoint(program);
  CAPTURE(print(backward));
  CHECK_NOTHROW(Schedule(backward));
  CHECK(same(parse(print(backward)), backward));

  const Evaluation forward = evaluate(program, at);
  Arguments given = at;
  std::map<std::string, std::vector<Exact>> seeds;
  for (const Buffer& tensor : program.tensors) {
    if (tensor.role != Buffer::Role::output) continue;
    given.tensors[tensor.name] = forward.arrays.at(tensor.name).values;
    if (is_float(tensor.dtype)) given.tensors["d_" + tensor.name] = seeds[tensor.name] = numbers(given.tensors[tensor.name].size());
  }
  const Evaluation found = evaluate(backward, given);
  CHECK(found.faults.empty());
  for (const Buffer& tensor : program.tensors) {
    if (tensor.role != Buffer::Role::input || at.tensors.count(tensor.name) == 0 || !is_float(tensor.dtype)) continue;
    const std::vector<Exact>& gradient = found.arrays.at("d_" + tensor.name).values;
    REQUIRE(gradient.size() == at.tensors[tensor.name].size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      const Exact step = 1e-5L;
      Arguments moved = at;
      moved.tensors[tensor.name][i] += step;
      const Exact above = weighted(program, moved, seeds);
      moved.tensors[tensor.name][i] -= 2 * step;
      const Exact want = (above - weighted(program, moved, seeds)) / (2 * step);
      CAPTURE(tensor.name, i, static_cast<double>(want), static_cast<double>(gradient[i]));
      REQUIRE(std::fabs(static_cast<double>(gradient[i] - want)) <= 1e-7 * (1 + std::fabs(static_cast<double>(want))));
    }
  }
}

// f(x, w) over N and M, C[vi] being `value`.
Program reading(const std::string& value, const std::string& size = "N", const std::string& shapes = "x: f64[M], w: f64[N]") {
  return parse("program 1 f(" + shapes + ", C: out f64[" + size + "]):\n  for i in " + size + ":\n    block C(vi: S(" + size +
               ") = i):\n      C[vi] = " + value + "\n");
}

// Where tests try a function.
struct Range {
  const char* name;
  double low, high;
};
const Range& range_of(const std::string& function) {
  static constexpr Range kRanges[] = {
#define NARROWS_CASE(name, low, high, low_f64, high_f64, low_b, high_b, error, cancels, subnormal) {#name, low, high},
#include "support/elementwise_cases.inc"
#undef NARROWS_CASE
  };
  return *std::find_if(std::begin(kRanges), std::end(kRanges), [&](const Range& r) { return r.name == function; });
}

std::string refused(const std::string& text) {
  try {
    adjoint(parse(text));
  } catch (const narrows::Failure& failure) {
    CHECK(failure.status == NW_UNSUPPORTED);
    return failure.message;
  }
  return "";
}

}  // namespace

TEST_CASE("adjoints of the programs are their derivatives") {
  const std::vector<std::pair<std::string, Sizes>> cases = {
      {"add", {{"M", 2}, {"N", 3}}},
      {"mm_relu", {}},
      {"batched_matmul", {{"N", 2}, {"M", 3}, {"P", 2}, {"K", 4}}},
      {"softmax", {{"M", 2}, {"N", 5}}},
      {"log_sum_exp", {{"M", 2}, {"N", 5}}},
      {"layer_norm", {{"M", 2}, {"N", 5}}},
      {"rms_norm", {{"M", 2}, {"N", 5}}},
      {"attention", {{"M", 3}, {"N", 4}, {"D", 2}, {"E", 3}}},
      {"stencil", {{"H", 4}, {"W", 3}}},
      {"depthwise_conv2d", {{"N", 1}, {"C", 2}, {"H", 4}, {"W", 3}}},
      {"lltm", {{"B", 2}, {"F", 2}, {"S", 2}}},
      {"conv1d", {{"N", 1}, {"L", 7}, {"K", 2}}},
  };
  for (const auto& [name, sizes] : cases) {
    CAPTURE(name);
    check_gradients(named(name), sizes);
  }
  check_gradients(named("layer_norm"), {{"M", 2}, {"N", 3}}, -2, 2, false);
}

TEST_CASE("the adjoint of an adjoint") {
  for (const char* name : {"mm_relu", "softmax", "rms_norm"}) {
    CAPTURE(name);
    CHECK_NOTHROW(Schedule(adjoint(adjoint(named(name)))));
  }
}

TEST_CASE("reads of every form are inverted") {
  const std::vector<Program> programs = {
      reading("where(vi < M, x[vi], f64(0)) * w[vi]"),
      reading("where(vi + 2 < M, square(x[vi + 2]), f64(3)) + w[N - 1 - vi]"),
      reading("where(M > 0, x[min(max(vi - 1, 0), M - 1)], f64(0)) * w[vi] * w[vi]"),
      reading("where(2 * vi + 1 < M, x[2 * vi + 1], w[vi])"),
      reading("where(vi // 2 < M, x[vi // 2], f64(0)) * w[vi]"),
      reading("x[vi // 3] + w[vi % 3]", "N", "x: f64[N], w: f64[3], z: f64[N]"),
      reading("x[vi // 3, vi % 3] * w[vi]", "3 * M", "x: f64[M, 3], w: f64[3 * M]"),
      reading("w[vi] * where(N > 0, w[0], f64(1)) * x[vi, vi]", "N", "x: f64[N, N], w: f64[N]"),
  };
  for (const Program& program : programs) {
    CAPTURE(print(program));
    check_gradients(program, {{"N", 6}, {"M", 4}});
  }
}

TEST_CASE("contributions of the same axes are summed in one pass") {
  const Program program = parse(
      "program 1 f(x: f64[N], w: f64[N, M], C: out f64[N, M]):\n  for i in N:\n    for j in M:\n"
      "      block C(vi: S(N) = i, vj: S(M) = j):\n"
      "        C[vi, vj] = where(w[vi, vj] > f64(0), x[vi] * w[vi, vj], x[vi] * x[vi])\n");
  check_gradients(program, {{"N", 3}, {"M", 4}});
  const std::vector<Path> all = paths(adjoint(program));
  CHECK(std::count_if(all.begin(), all.end(), [](const Path& it) { return it.block->name.rfind("d_x", 0) == 0; }) == 1);
}

TEST_CASE("where few points read an element, only these are gone through, whatever other conditions there are") {
  const Program program = reading("where(2 * vi < M, x[max(vi - 2, 0)], f64(0)) * w[vi]");
  check_gradients(program, {{"N", 6}, {"M", 9}});
  CHECK_THAT(print(adjoint(program)), Catch::Matchers::ContainsSubstring(": R(2) ="));
}

TEST_CASE("marks of loops are nothing to the adjoint") {
  std::string text =
      "program 1 f(x: f64[8], C: out f64[8]):\n  alloc Y: f64[8]\n  for i in 8 pipeline 2:\n    block Y(vi: S(8) = i):\n"
      "      Y[vi] = x[vi]\n    block C(vi: S(8) = i):\n      C[vi] = Y[vi] * Y[vi]\n";
  const std::string marked = print(adjoint(parse(text)));
  CHECK(marked == print(adjoint(parse(text.erase(text.find(" pipeline"), 11)))));
}

TEST_CASE("every function with a gradient has it here") {
  for (const std::string& name : function_names()) {
    CAPTURE(name);
    CHECK((has_derivative(name) || name == "where") == find_function(name)->has_gradient);
    if (!has_derivative(name) || !takes(*find_function(name), DType::f64)) continue;
    const int operands = find_function(name)->operands;
    const std::string value = name + (operands == 1   ? "(x[vi])"
                                      : operands == 2 ? "(x[vi], w[vi])"
                                                      : "(x[vi], w[vi], x[vi] * w[vi])");
    // A little inside the ends of what it is smooth on.
    const Range range = range_of(name);
    check_gradients(reading(value, "N", "x: f64[N], w: f64[N]"), {{"N", 5}}, std::max(-2.0, range.low + 0.1),
                    std::min(2.4, range.high - 0.1));
  }
}

TEST_CASE("ties share the gradient of a maximum, and an absent gradient is 0") {
  const Program program = parse(
      "program 1 f(x: f64[N], y: out f64[1], z: out f64[1]):\n  for k in N:\n    block y(vo: S(1) = 0, vk: R(N) = k):\n      "
      "init:\n"
      "        y[vo] = f64(1)\n      y[vo] = maximum(y[vo], x[vk])\n  block z():\n    z[0] = f64(7)\n");
  const Program backward = adjoint(program);
  Arguments at;
  at.sizes = {{"N", 4}};
  at.tensors = {{"x", {3, 1, 3, 2}}, {"y", {3}}, {"d_y", {5}}};
  CHECK(evaluate(backward, at).arrays.at("d_x").values == std::vector<Exact>{2.5L, 0, 2.5L, 0});
  at.tensors.erase("d_y");
  CHECK(evaluate(backward, at).arrays.at("d_x").values == std::vector<Exact>{0, 0, 0, 0});
}

TEST_CASE("an output that may be absent has a gradient, which is 0 where it is absent") {
  const Program program = parse(
      "program 1 f(x: f64[N], y: out f64[N], z?: out f64[N]):\n  for i in N:\n    block y(vi: S(N) = i):\n      y[vi] = x[vi] * "
      "x[vi]\n  for j in N:\n    block z(vj: S(N) = j):\n      z[vj] = y[vj] * x[N - 1 - vj]\n");
  check_gradients(program, {{"N", 4}});
  Arguments at;
  at.sizes = {{"N", 2}};
  at.tensors = {{"x", {3, 5}}, {"y", {9, 25}}, {"d_y", {1, 10}}};
  CHECK(evaluate(adjoint(program), at).arrays.at("d_x").values == std::vector<Exact>{6, 100});
}

TEST_CASE("the tensors of an adjoint are those of nw_op.backward") {
  const std::string header = print_header(adjoint(parse(read_file(std::string(TEXTS) + "/layer_norm.program"))));
  CHECK_THAT(header, Catch::Matchers::ContainsSubstring(
                         "layer_norm_adjoint(d_y?: f16[M, N], x: f16[M, N], scale: f16[N], shift?: f16[N], y?: f16[M, N], "
                         "d_x: out f16[M, N], d_scale: out f16[N], d_shift?: out f16[N], epsilon: param f32"));
}

TEST_CASE("what has no adjoint is named") {
  using Catch::Matchers::ContainsSubstring;
  const auto text = [](const char* name) { return read_file(std::string(TEXTS) + "/" + name + ".program"); };
  CHECK_THAT(refused(text("gather")), ContainsSubstring("program 'gather' has no adjoint: block 'y': 'table' is read at "
                                                        "clamp(rows[vb], 0, V - 1), a place that data choose"));
  CHECK_THAT(refused(text("cumsum")), ContainsSubstring("block 'y': 'y' is computed along axis 'vj', which keeps its order (C)"));
  CHECK_THAT(refused("program 1 f(x: inout f32[N]):\n  for i in N:\n    block x(vi: S(N) = i):\n      x[vi] = x[vi] * x[vi]\n"),
             ContainsSubstring("'x' is inout; what it held before is lost"));
  CHECK_THAT(refused("program 1 f(x: f32[N], y: out f32[]):\n  for k in N:\n    block y(vk: R(N) = k):\n      init:\n"
                     "        y[] = f32(1)\n      y[] = y[] * x[vk]\n"),
             ContainsSubstring("block 'y': 'y' is reduced by 'mul'"));
  CHECK_THAT(refused("program 1 f(x: f32[N], y: out f32[N]):\n  for i in N:\n    block a(vi: S(N) = i):\n      y[vi] = x[vi]\n"
                     "  for j in N:\n    block b(vi: S(N) = j):\n      y[vi] = y[vi] * x[vi]\n"),
             ContainsSubstring("'y' is stored into by block 'a' and by block 'b'"));
}
