// SPDX-License-Identifier: Apache-2.0
// test_types.cpp -- what a program must be: each rule of types.h with the message of its refusal.
#include "core/program/types.h"

#include "core/program/expr.h"
#include "core/program/reduction.h"
#include "core/program/rule.h"
#include "core/program/walk.h"
#include "programs.h"

using namespace narrows::program;

namespace {

struct Case {
  std::string text, message;
};

void check_refused(const std::vector<Case>& cases) {
  for (const Case& example : cases) {
    CAPTURE(example.text, example.message);
    CHECK_THAT(refused_text(example.text), Catch::Matchers::ContainsSubstring(example.message));
  }
}

// A program that sums A by the update `body`; `axes` are vi and vk over the loops i and k.
std::string with_sum(const std::string& body, const std::string& init = "C[vi] = f32(0)",
                     const std::string& axes = "vi: S(N) = i, vk: R(K) = k", const std::string& items = "") {
  return "program 1 f(A: f32[N, K], C: out f32[N]" + items + "):\n  for i in N:\n    for k in K:\n      block C(" + axes + "):\n" +
         (init.empty() ? "" : "        init:\n          " + init + "\n") + "        " + body + "\n";
}

const std::string kCount = "C[vi] = C[vi] + A[vi, vk]";

// As parse() would never make it.
Program broken(const std::string& text, const std::function<void(Program&)>& change) {
  Program program = parse(text);
  change(program);
  return program;
}

}  // namespace

TEST_CASE("names are declared once and used where they stand") {
  check_refused({
      {"program 1 f(N: f32[4], A: f32[N], C: out f32[4]):\n  block C():\n    C[0] = N[0]\n", "program 'f': there is a 'N' already"},
      {"program 1 f(A: f32[N], C: out f32[N]):\n  for A in N:\n", "there is a 'A' already"},
      {with_value("A[vi]") + "  for i in N:\n    block D(vi: S(N) = i):\n      C[vi] = A[vi]\n",
       "program 'f': there is a 'i' already"},
      {with_value("A[vi]") + "  for j in N:\n    block C(vi: S(N) = j):\n      C[vi] = A[vi]\n",
       "program 'f': there are two blocks 'C'"},
      {with_value("f32(i)"),
       "block 'C': the store into 'C': its value: 'i' cannot stand here; the block's axes, sizes and params can"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i, vj: S(vi) = 0"), "there is no size, param, loop or axis 'vi' here"},
      {with_block("C[vi] = A[vi]", "vi: S(i) = i"), "block 'C': axis 'vi': its extent: 'i' cannot stand here"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i) if (vi < 3"),
       "block 'C': its condition: 'vi' cannot stand here; the loops around, sizes and integer params can"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i) if (A[0] < f32(3)"), "block 'C': its condition: 'A' is read here"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i) if (on", ", on: param bool = 1"),
       "block 'C': its condition: param 'on' is bool; only integer params may stand here"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i) if (i"), "block 'C': its condition: expected bool, not index: i"},
  });
}

TEST_CASE("tensors and params") {
  check_refused({
      {"program 1 f(A: f32[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      A[vi] = f32(0)\n",
       "block 'C': 'A' is an input, and cannot be stored into; one that can is 'out' or 'inout'"},
      {"program 1 f(A: f32[N], C: out f32[N], D: out f32[T]):\n  block C():\n    C[0] = A[0]\n",
       "program 'f': 'D': an extent: 'T' cannot stand here; sizes (each alone a dimension of an input that must be there) and "
       "integer params can"},
      {"program 1 f(A?: f32[N], C: out f32[N]):\n  block C():\n    C[0] = f32(0)\n", "'N' cannot stand here"},
      {"program 1 f(A: f32[N], C: out f32[-1]):\n  block C():\n    C[0] = A[0]\n",
       "program 'f': 'C': an extent is -1; expected 0 or more"},
      {"program 1 f(C: out f32[2305843009213693952]):\n  block C():\n    C[0] = f32(0)\n",
       "program 'f': 'C' has more than 2^63 - 1 bytes"},
      {"program 1 f(C: out f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]):\n  block C():\n    C[0] = f32(0)\n",
       "'C' has 17 dimensions; at most 16"},
      {"program 1 f(A: f32[N], C: out f32[N], D: out f32[N]):\n  block C():\n    C[0] = A[0]\n",
       "program 'f': no block stores into 'D', an output"},
      {"program 1 f(A: f32[N]):\n  alloc Y: f32[N]\n  block Y():\n    Y[0] = A[0]\n", "program 'f': it has no output"},
      {"program 1 f(C: out f32[1]):\n  alloc Y: f32[1]\n  block C():\n    C[0] = Y[0]\n",
       "'Y' is read, but no block stores into it"},
      {with_value("A[vi]", ", s: param u64 = 1"), "param 's' is u64; a param is bool, i64, f32 or f64"},
      {with_value("A[vi]", ", s: param i64 = 9007199254740993"),
       "the default of param 's' is 9007199254740993; it is -2^53 to 2^53"},
      {with_value("A[vi] * s", ", s: param f64 = 1"), "A[vi] is f32 and s is f64"},
      {with_value("b[0]", ", b?: f32[1]"),
       "block 'C': the store into 'C': its value: 'b' may be absent; it is read under where(present(b), …)"},
      {with_value("where(present(b), A[vi], b[0])", ", b?: f32[1]"), "'b' may be absent"},
      {with_value("where(present(b) or vi < 2, b[0], A[vi])", ", b?: f32[1]"), "'b' may be absent"},
      {with_value("where(present(A), A[vi], f32(0))"), "present(A) asks for no optional tensor"},
  });
  for (const char* condition : {"present(b)", "present(b) and vi < 2", "vi < 2 and (present(b) and vi > 0)"})
    CHECK(refused_text(with_value("where(" + std::string(condition) + ", b[0], A[vi])", ", b?: f32[1]")) == "");
  for (const char* condition : {"not present(b)", "not present(b) or vi < 2"})
    CHECK(refused_text(with_value("where(" + std::string(condition) + ", A[vi], b[0])", ", b?: f32[1]")) == "");
}

TEST_CASE("sizes are the plain dimensions of required inputs, in order") {
  const Program program = parse(
      "program 1 f(c?: f32[K], A: f32[N + 1, M], B: inout f32[N, k, K], C: out f32[M], k: param i64 = 1):\n  block C(vi: S(M) = "
      "0):\n    C[vi] = A[0, 0]\n  "
      "block B():\n    B[0, 0, 0] = f32(0)\n");
  CHECK(sizes_of(program) == std::vector<std::string>{"M", "N", "K"});
}

TEST_CASE("subscripts are affine, and data do not choose where a store goes") {
  check_refused({
      {with_value("A[vi * N]"),
       "'vi * N' multiplies a loop or an axis by what is no constant; an index is a sum of constant multiples"},
      {with_value("A[vi * vi]"), "multiplies a loop or an axis by what is no constant"},
      {with_value("A[vi * s]", ", s: param i64 = 2"), "'vi * s' multiplies a loop or an axis by what is no constant"},
      {with_value("A[vi // N]"), "'vi // N' divides a loop, an axis or by one; the divisor of such is a constant"},
      {with_value("A[N % vi]"), "'N % vi' divides a loop, an axis or by one"},
      {with_value("A[vi // (N * 0)]"), "a division by 0: vi // 0"},
      {with_block("C[clamp(I[vi], 0, N)] = A[vi]", "vi: S(N) = i", ", I: i64[N]"),
       "a place that depends on data cannot stand here: clamp(I[vi], 0, N); data may only choose what is read"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = clamp(I[0], 0, N)", ", I: i64[N]"),
       "block 'C': axis 'vi': its value: a place that depends on data cannot stand here"},
      {with_value("A[clamp(A[vi], 0, N)]"), "clamp to an index takes an integer, not f32: A[vi]"},
      {with_value("A[0, vi]"), "block 'C': the store into 'C': its value: 'A' has 1 dimensions, but is read by 2 subscripts"},
      {with_block("C[vi, 0] = A[vi]"), "block 'C': 'C' has 1 dimensions, but is stored into by 2 subscripts"},
      {with_block("C[vi] = i8(A[vi])"), "block 'C': the store into 'C': its value: expected f32, not i8: i8(A[vi])"},
      {with_block("C[vi] = vi"), "expected f32, not index: vi"},
  });
  for (const char* index :
       {"vi * 3 // 2 % 5 - N // 2 + N * N % 7 + s // N", "min(vi * 2, max(N - 1, 0))", "clamp(i32(A[vi]), 0, vi + 3)"})
    CHECK(refused_text(with_value("A[" + std::string(index) + "]", ", s: param i64 = 2")) == "");
}

TEST_CASE("blocks store once, where their S axes say") {
  check_refused({
      {with_block("C[vi] = A[vi]\n      C[vi] = f32(2)"), "block 'C': it stores into 'C' twice; a block stores once into a buffer"},
      {with_block("C[vi] = A[vi]\n      D[vi] = f32(2)"), "block 'C': there is no buffer 'D' to store into"},
      {with_block("C[0] = A[vi]"),
       "block 'C': S axis 'vi' does not choose the place in 'C', so each of its points stores there; an axis that is reduced over "
       "is R"},
      {with_sum(kCount, "C[vi] = f32(0)", "vi: S(N) = i, vk: S(K) = k"), "block 'C': an init without an R or C axis"},
      {with_sum(kCount, "", "vi: S(N) = i, vk: S(K) = k"), "S axis 'vk' does not choose the place in 'C'"},
      {with_sum("C[vi] = A[vi, vk]", "", "vi: S(N) = i, vk: C(K) = k) if (i < 3) {"), "found"},
      {with_block("C[vi] = A[vi] + C[vi - 1]"),
       "block 'C': it reads 'C' at another place than it stores; S axes have no order, an axis whose order counts is C"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i) {\"a\": \"1\", \"a\": \"2\"}:#"), "block 'C': it has two notes \"a\""},
  });
  CHECK(refused_text(with_block("C[vi] = C[vi] * A[vi]")) == "");
  CHECK(refused_text(with_block("C[0] = A[vi]", "vi: S(1) = 0")) == "");
  CHECK(refused_text(with_block("C[vi] = A[vi] + C[max(vi - 1, 0)]", "vi: C(N) = i")) == "");
}

TEST_CASE("a reduction has its form") {
  check_refused({
      {with_sum("C[vi] = A[vi, vk] + C[vi] + C[vi]"), "block 'C': the R axes need an update of the form C[vi] = C[vi] + …"},
      {with_sum("C[vi] = C[vi] - A[vi, vk]"), "this is none: C[vi] = C[vi] - A[vi, vk]. An axis whose order counts is C"},
      {with_sum("C[vi] = A[vi, vk]"), "the R axes need an update of the form"},
      {with_sum("C[vi] = C[vi] + C[0]"), "the R axes need an update of the form"},
      {with_sum("C[vk] = C[vk] + A[vi, vk]", ""), "block 'C': S axis 'vi' does not choose the place in 'C'"},
      {with_sum("C[vi + vk] = C[vi + vk] + A[vi, vk]", ""),
       "block 'C': R axis 'vk' chooses the place in 'C', so it reduces nothing; it is S or C"},
      {with_sum(kCount, "C[vi] = A[vi, vk]"), "'vk' cannot stand here"},
      {with_sum(kCount, "C[0] = f32(0)"), "block 'C': its init stores at another place of 'C' than its body"},
      {with_sum(kCount, "C[vi] = C[vi]"), "block 'C': its init reads 'C', which the block computes"},
      {with_sum(kCount, "D[vi] = f32(0)", "vi: S(N) = i, vk: R(K) = k", ", D: out f32[N]"),
       "block 'C': its init stores into 'D', its body does not"},
      {with_sum(kCount + "\n        D[vi] = D[vi] + C[vi]", "C[vi] = f32(0)", "vi: S(N) = i, vk: R(K) = k", ", D: out f32[N]"),
       "block 'C': 'D' is made of 'C', which the same R axes update"},
  });
  CHECK(refused_text(with_sum(kCount + "\n        D[vi] = maximum(A[vi, vk], D[vi])", "C[vi] = f32(0)",
                              "vi: S(N) = i, vk: R(K) = k", ", D: out f32[N]")) == "");
  const auto form = [](const std::string& update) {
    std::string out;
    for_each_block(parse(with_sum(update)), [&](const Block& block, const Loops&) {
      const auto found = reduction_of(block.body[0]);
      out = found->combine + ": " + print(found->element);
    });
    return out;
  };
  CHECK(form("C[vi] = C[vi] + A[vi, vk] * A[vi, 0]") == "add: A[vi, vk] * A[vi, 0]");
  CHECK(form("C[vi] = minimum(-A[vi, vk], C[vi])") == "minimum: -A[vi, vk]");
}

TEST_CASE("a reduction's neutral value changes nothing") {
  CHECK(print(identity_of("add", DType::f16)) == "f16(0)");
  CHECK(print(identity_of("mul", DType::u8)) == "u8(1)");
  CHECK(print(identity_of("maximum", DType::f32)) == "f32(-inf)");
  CHECK(print(identity_of("maximum", DType::i64)) == "i64(-9223372036854775808)");
  CHECK(print(identity_of("maximum", DType::u16)) == "u16(0)");
  CHECK(print(identity_of("minimum", DType::f32)) == "f32(inf)");
  CHECK(print(identity_of("minimum", DType::i8)) == "i8(127)");
  CHECK(print(identity_of("minimum", DType::u64)) == "u64(18446744073709551615)");
  CHECK(print(identity_of("logical_and", DType::boolean)) == "bool(1)");
  CHECK(refusal([] { identity_of("sub", DType::f32); }) == "internal error: 'sub' is no combining function of a reduction");
}

TEST_CASE("programs that no text gives are refused, too") {
  const std::string text = with_value("A[vi] + f32(1)");
  const auto refused = [&](const std::function<void(Program&)>& change) { return refusal([&] { check(broken(text, change)); }); };
  const auto with_value_of = [&](const ExprPtr& value) {
    return refused([&](Program& program) {
      For loop = *std::get<0>(program.body[0]);
      Block block = *std::get<1>(loop.body[0]);
      block.body[0].value = value;
      loop.body[0] = std::make_shared<const Block>(block);
      program.body[0] = std::make_shared<const For>(loop);
    });
  };
  using Catch::Matchers::ContainsSubstring;
  CHECK(refused([](Program&) {}) == "");
  CHECK_THAT(refused([](Program& p) { p.name = "a b"; }), ContainsSubstring("'a b' is no name for a program"));
  CHECK_THAT(refused([](Program& p) { p.tensors[0].name = "x;}"; }), ContainsSubstring("'x;}' is no name for a buffer"));
  CHECK_THAT(refused([](Program& p) { p.tensors[0].scope = Buffer::Scope::local; }),
             ContainsSubstring("'A' is a tensor with a scope"));
  CHECK_THAT(refused([](Program& p) { p.tensors[0].padding = {1}; }), ContainsSubstring("'A' is a tensor with padding"));
  const auto with_loop = [&](const std::function<void(For&)>& change) {
    return refused([&](Program& program) {
      For loop = *std::get<0>(program.body[0]);
      change(loop);
      program.body[0] = std::make_shared<const For>(loop);
    });
  };
  CHECK_THAT(with_loop([](For& loop) { loop.stages = 2; }),
             ContainsSubstring("loop 'i' has 2 stages; expected 0, as it is not pipelined"));
  CHECK_THAT(with_loop([](For& loop) { loop.intrinsic = "dot.i8.i32"; }),
             ContainsSubstring("loop 'i' names the intrinsic 'dot.i8.i32', but is not tensorized"));
  CHECK_THAT(with_loop([](For& loop) { loop.kind = For::Kind::tensorize; }), ContainsSubstring("there is no intrinsic ''"));
  CHECK_THAT(with_loop([](For& loop) { loop.notes = {{"a", "1"}, {"a", "2"}}; }),
             ContainsSubstring("loop 'i': it has two notes \"a\""));
  CHECK_THAT(refused([](Program& p) { p.allocations.push_back(p.tensors[0]); }), ContainsSubstring("there is a 'A' already"));
  CHECK_THAT(refused([](Program& p) { p.tensors[0].dtype = DType::index; }), ContainsSubstring("'A' has the type index"));
  CHECK_THAT(refused([](Program& p) { p.tensors[0].shape[0] = nullptr; }), ContainsSubstring("an expression is missing"));
  CHECK_THAT(refused([](Program& p) { p.params.push_back({"s", DType::f32, make_integer(1)}); }),
             ContainsSubstring("the default of param 's' is a constant of f32"));
  CHECK_THAT(refused([](Program& p) { p.tensors.resize(40, p.tensors[0]); }), ContainsSubstring("40 tensors; at most 32"));
  const auto expr = [](Expr::Kind kind, DType dtype, std::vector<ExprPtr> operands, const char* name = "") {
    return std::make_shared<const Expr>(Expr{kind, dtype, 300, 0.1, name, std::move(operands)});
  };
  CHECK_THAT(with_value_of(expr(Expr::Kind::integer, DType::i8, {})), ContainsSubstring("a constant is not a number of i8"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::real, DType::f32, {})), ContainsSubstring("a constant is not a number of f32"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::boolean, DType::boolean, {})), ContainsSubstring("a constant is not a number of bool"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::name, DType::f32, {}, "vi")), ContainsSubstring("'vi' is index, not f32"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::load, DType::f32, {}, "Q")), ContainsSubstring("there is no buffer 'Q'"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::load, DType::f16, {make_name("vi")}, "A")), ContainsSubstring("'A' is f32, not f16"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::call, DType::f32, {}, "exp")), ContainsSubstring("'exp' takes 1 operand, not 0"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::call, DType::f64, {make_real(DType::f32, 1)}, "exp")),
             ContainsSubstring("'exp' gives f32, not f64"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::cast, DType::f32, {})), ContainsSubstring("operands"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::cast, DType::index, {make_load("A", DType::f32, {make_name("vi")})})),
             ContainsSubstring("a value becomes an index by clamp(value, low, high), not by a cast: A[vi]"));
  CHECK_THAT(with_value_of(expr(Expr::Kind::clamp, DType::index, {make_name("vi")})), ContainsSubstring("operands"));
  ExprPtr twice = make_real(DType::f32, 1);
  for (int i = 0; i < 40; ++i) twice = make_call("add", {twice, twice});  // shared parts: 2^40 of them in print
  CHECK_THAT(with_value_of(twice), ContainsSubstring("more than 262144 parts"));
  ExprPtr deep = make_real(DType::f32, 1);
  for (int i = 0; i < 2000; ++i) deep = make_call("neg", {deep});
  CHECK_THAT(with_value_of(deep), ContainsSubstring("nested too deeply"));
}

TEST_CASE("a block has at most 64 axes and 64 stores") {
  const auto with = [](int axes, int stores) {
    std::string list = "vi: S(N) = i", items, body = "C[vi] = A[vi]";
    for (int i = 1; i < axes; ++i) list += ", v" + std::to_string(i) + ": S(1) = 0";
    for (int i = 1; i < stores; ++i) {
      items += "  alloc Y" + std::to_string(i) + ": f32[N]\n";
      body += "\n      Y" + std::to_string(i) + "[vi] = A[vi]";
    }
    std::string text = with_block(body, list);
    return text.insert(text.find("  for"), items);
  };
  CHECK(refused_text(with(64, 64)).empty());
  check_refused({{with(65, 1), "block 'C': 65 axes; at most 64"}, {with(1, 65), "block 'C': 65 stores; at most 64"}});
}

TEST_CASE("a program has at most 64 params") {
  const auto with = [](int params) {
    std::string items;
    for (int i = 0; i < params; ++i) items += ", p" + std::to_string(i) + ": param f32 = 1";
    return with_value("A[vi]", items);
  };
  CHECK(refused_text(with(64)).empty());
  check_refused({{with(65), "program 'f': 65 params; at most 64"}});
}

TEST_CASE("a dimension whose shape rule would be too long is refused") {
  const auto rule = [](int count) {
    std::string extent = "M";
    for (int i = 0; i < count; ++i) extent += " % 9";
    return refusal(
        [&] { shape_rule_of(parse("program 1 f(A: f32[M], C: out f32[" + extent + "]):\n  block C():\n    C[0] = A[0]\n")); });
  };
  CHECK(rule(3).empty());
  CHECK_THAT(rule(13), Catch::Matchers::ContainsSubstring("too long for a shape rule; expected fewer % in each other"));
}
