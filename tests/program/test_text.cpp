// SPDX-License-Identifier: Apache-2.0
// test_text.cpp -- a program's text: what is read, how it is printed, and what is refused at which place.
#include <cmath>
#include <limits>

#include "core/program/digest.h"
#include "core/program/expr.h"
#include "core/program/walk.h"
#include "programs.h"

using namespace narrows::program;

namespace {

const Block& first_block(const Program& program) {
  const Block* out = nullptr;
  for_each_block(program, [&](const Block& block, const Loops&) { out = out == nullptr ? &block : out; });
  return *out;
}

// The value of C[vi], as it is printed again.
std::string reprinted(const std::string& value, const std::string& items = "") {
  return print(first_block(parse(with_value(value, items))).body[0].value);
}

std::string without_comments(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    if (text[at] != '#') out += text.substr(at, end - at);
    at = end;
  }
  return out;
}

}  // namespace

TEST_CASE("each program of texts/ is its own print") {
  REQUIRE(program_files().size() >= 16);
  for (const auto& path : program_files()) {
    CAPTURE(path.filename().string());
    const std::string text = read_file(path);
    Program program;
    REQUIRE(refusal([&] { program = parse(text); }) == "");
    CHECK(print(program) == without_comments(text));
    CHECK(same(parse(print(program)), program));
    CHECK(program.name == path.stem().string());
  }
}

TEST_CASE("what a text says is in the program") {
  const Program program = parse(
      R"(program 1 f(A: f32[N, 4], b?: i8[N], D: inout f64[], C: out f32[N * 2, k], k: param i64 = 3, on: param bool = 1, s: param f32 = -0x1p-1):
  alloc Y: bf16[N, 4] shared
  alloc Z: f32[8] local
  for i in N parallel:
    for j in 4 bind thread.x {"a": "b\"\\\n"}:
      block Y(vi: S(N) = i, vj: S(4) = j) if i < 3 and not j == 2 {"contract": "on"}:
        Y[vi, vj] = bf16(A[vi, vj])
  for k1 in 8:
    block C(vk: S(8) = k1):
      C[vk, 0] = s
  block D(v: R(4) = 0):
    init:
      D[] = f64(0)
    D[] = f64(1) + D[]
)");
  REQUIRE(program.tensors.size() == 4);
  CHECK(program.tensors[1].optional);
  CHECK(program.tensors[2].role == Buffer::Role::inout);
  CHECK(program.tensors[2].shape.empty());
  CHECK(print(program.tensors[3].shape[0]) == "N * 2");
  REQUIRE(program.params.size() == 3);
  CHECK(program.params[0].value->integer == 3);
  CHECK(program.params[2].value->real == -0.5);
  CHECK(program.allocations[0].scope == Buffer::Scope::shared);
  CHECK(program.allocations[1].scope == Buffer::Scope::local);
  const For& outer = *std::get<0>(program.body[0]);
  CHECK(outer.kind == For::Kind::parallel);
  const For& inner = *std::get<0>(outer.body[0]);
  CHECK(inner.thread == "thread.x");
  CHECK(inner.notes[0].second == "b\"\\\n");
  const Block& block = *std::get<1>(inner.body[0]);
  CHECK(print(block.predicate) == "i < 3 and not j == 2");
  CHECK(block.notes[0].first == "contract");
  CHECK(std::get<1>(program.body[2])->init.size() == 1);
  CHECK(same(parse(print(program)), program));
}

TEST_CASE("white space is free where it has no meaning") {
  const Program expected = parse(with_value("A[vi] + f32(1)"));
  const std::string free =
      "\n# a comment\nprogram 1 f(  # of two\n    A:f32[ N ],\n\n    C : out f32[N]\n):\r\n   for i in N :\n\n         block "
      "C(vi:S(N)=i):  # here\n"
      "          C[vi]=A[ vi ]\\n+f32(1)";
  std::string text = free;
  text.replace(text.find("\\n"), 2, "");
  CHECK(same(parse(text), expected));
}

TEST_CASE("operators bind as in Python, and brackets are the fewest") {
  const auto index = [&](const std::string& text) { return reprinted("f32(" + text + ")"); };
  CHECK(index("(vi + 1) * 2 - (N - vi)") == "f32((vi + 1) * 2 - (N - vi))");
  CHECK(index("((vi) + (2 * vi))") == "f32(vi + 2 * vi)");
  CHECK(index("vi - (3 - vi)") == "f32(vi - (3 - vi))");
  CHECK(index("-vi // 2 % 3") == "f32(-vi // 2 % 3)");
  CHECK(index("-(vi // 2) + -3") == "f32(-(vi // 2) + -3)");
  CHECK(index("min(vi, max(N, 3))") == "f32(min(vi, max(N, 3)))");
  CHECK(reprinted("-A[vi] * -(A[vi] + A[vi]) / f32(3)") == "-A[vi] * -(A[vi] + A[vi]) / f32(3)");
  CHECK(reprinted("A[vi] / (A[vi] / A[vi])") == "A[vi] / (A[vi] / A[vi])");
  const auto truth = [&](const std::string& text) { return reprinted("where(" + text + ", A[vi], f32(0))"); };
  CHECK(truth("not (vi < 1 and vi > 2) or (vi == 3 or vi != 4)") ==
        "where(not (vi < 1 and vi > 2) or (vi == 3 or vi != 4), A[vi], f32(0))");
  CHECK(truth("(vi < 1) == (vi < 2)") == "where((vi < 1) == (vi < 2), A[vi], f32(0))");
  CHECK(truth("logical_and(A[vi], A[vi])") == "where(logical_and(A[vi], A[vi]), A[vi], f32(0))");
  CHECK(reprinted("maximum(fma(A[vi], s, exp(A[vi])), A[vi] % s)", ", s: param f32 = 2") ==
        "maximum(fma(A[vi], s, exp(A[vi])), A[vi] % s)");
}

TEST_CASE("index arithmetic of constants is done, and its neutral operands go") {
  const auto index = [&](const std::string& text) { return reprinted("f32(vi + (" + text + "))"); };
  CHECK(index("2 * 3 - 7 // 2 + -7 // 2 + -7 % 4") == "f32(vi)");  // 6 - 3 - 4 + 1
  CHECK(index("min(3, 2) + max(5, 9)") == "f32(vi + 11)");
  CHECK(index("(vi + 0) * 1 // 1 + 0 * vi + vi % 1") == "f32(vi + vi)");
  CHECK(reprinted("where(2 < 3 and vi < 4, A[vi], f32(2 + 3))") == "where(vi < 4, A[vi], f32(5))");
  CHECK(index("9223372036854775807 - 1") == "f32(vi + 9223372036854775806)");
  CHECK_THAT(refused_text(with_value("f32(9223372036854775807 + 1)")),
             Catch::Matchers::ContainsSubstring("does not fit in 64 bits"));
  CHECK_THAT(refused_text(with_value("f32(4294967296 * 4294967296)")),
             Catch::Matchers::ContainsSubstring("does not fit in 64 bits"));
  CHECK_THAT(refused_text(with_value("f32(3 // 0)")), Catch::Matchers::ContainsSubstring("by 0"));
  CHECK_THAT(refused_text(with_value("f32(-9223372036854775808 // -1)")),
             Catch::Matchers::ContainsSubstring("does not fit in 64 bits"));
}

TEST_CASE("constants are exact") {
  const auto constant = [&](const std::string& type, const std::string& text) {
    const std::string printed = reprinted("f32(" + type + "(" + text + "))");
    return type == "f32" ? printed : printed.substr(4, printed.size() - 5);
  };
  CHECK(constant("f32", "0.1") == "f32(0x1.99999ap-4)");
  CHECK(constant("f32", "1e3") == "f32(1000)");
  CHECK(constant("f32", "-0.0") == "f32(-0x0p+0)");
  CHECK(constant("f32", "inf") == "f32(inf)");
  CHECK(constant("f32", "-inf") == "f32(-inf)");
  CHECK(constant("f32", "nan") == "f32(nan)");
  CHECK(constant("f32", "3.5e38") == "f32(inf)");
  CHECK(constant("f64", "0x1.921fb54442d18p+1") == "f64(0x1.921fb54442d18p+1)");
  CHECK(constant("f64", "9007199254740993") == "f64(0x1p+53)");
  CHECK(constant("f16", "65519") == "f16(65504)");
  CHECK(constant("f16", "65520") == "f16(inf)");
  CHECK(constant("f16", "2049") == "f16(2048)");  // a tie goes to the even one
  CHECK(constant("f16", "0x1p-25") == "f16(0)");
  CHECK(constant("f16", "0x1.8p-25") == "f16(0x1p-24)");
  CHECK(constant("bf16", "257") == "bf16(256)");
  CHECK(constant("u64", "18446744073709551615") == "u64(18446744073709551615)");
  CHECK(constant("i64", "-9223372036854775808") == "i64(-9223372036854775808)");
  CHECK(constant("i8", "-128") == "i8(-128)");
  CHECK(constant("bool", "1") == "bool(1)");
  CHECK(make_cast(DType::i8, make_integer(300))->integer == 44);  // of index a cast wraps
  CHECK(same(make_real(DType::f32, -std::nan("")), make_real(DType::f32, std::nan(""))));
  CHECK_FALSE(same(make_real(DType::f32, 0.0), make_real(DType::f32, -0.0)));
}

TEST_CASE("a digest is of the canonical text") {
  const Program program = parse(with_value("A[vi]"));
  CHECK(digest(program).size() == 32);
  CHECK(digest(program) == digest(parse("# x\n" + with_value("(A[vi])"))));
  CHECK(digest(program) != digest(parse(with_value("-A[vi]"))));
  CHECK(digest(program) == "0ac9129eb43de7ebbce04c165e4eca4b");  // for ever: saved models hold such names
}

TEST_CASE("expressions are substituted and evaluated") {
  const ExprPtr i = make_name("i"), n = make_name("n");
  const ExprPtr expr = make_call("minimum", {i * 8 + n, make_integer(100)});
  CHECK(evaluate(expr, {{"i", 3}, {"n", 2}}) == 26);
  CHECK(print(substitute(expr, {{"i", n + 1}})) == "min((n + 1) * 8 + n, 100)");
  CHECK(print(substitute(expr, {{"i", make_integer(2)}, {"n", make_integer(1)}})) == "17");
  CHECK(substitute(expr, {{"k", n}}) == expr);
  CHECK(evaluate(make_call("logical_not", {make_call("lt", {i, n})}), {{"i", 3}, {"n", 2}}) == 1);
  CHECK(refusal([&] { evaluate(expr, {{"i", 3}}); }) == "the value of 'n' is not known");
  CHECK_THAT(refusal([&] { evaluate(i * 8, {{"i", std::numeric_limits<int64_t>::max()}}); }),
             Catch::Matchers::ContainsSubstring("64 bits"));
}

TEST_CASE("a text that is none is refused at its place") {
  struct Case {
    std::string text, message;
  };
  const std::string head = "program 1 f(A: f32[N], C: out f32[N]):\n";
  const Case cases[] = {
      {"", "line 1, column 1: found the end of the text, expected 'program' at the beginning of a program"},
      {"program 2 f():\n", "line 1, column 9: the text is of version 2; this library reads version 1"},
      {"program 1 for():\n", "line 1, column 11: 'for' is a word of the language; expected the program's name"},
      {"program 1 f(A: f31[N]):\n",
       "line 1, column 16: found 'f31', expected the type of 'A': bool, i8 to i64, u8 to u64, f16, bf16, f32 or f64"},
      {"program 1 f(A: f32[N], A: f32[N]):\n",
       "line 1, column 24: there is a 'A' already; buffers, params, sizes and loops have names of their own"},
      {head, "line 2, column 1: found the end of the text, expected the indented lines of the program"},
      {head + "\tfor i in N:\n", "line 2, column 1: found a tab; lines are indented by spaces"},
      {head + "  A[0] = 3\n", "line 2, column 3: found 'A', expected 'for' or 'block'; a store stands in a block"},
      {head + "  for i in N:\n      block C():\n    for\n",
       "line 4, column 5: the line is indented by 4 spaces, unlike any above it"},
      {head + "  for i N:\n", "line 2, column 9: found 'N', expected 'in' after the name of loop 'i'"},
      {head + "  for i in M:\n", "line 2, column 12: there is no size, param, loop or axis 'M' here"},
      {head + "  for i in N paralel:\n",
       "line 2, column 14: found 'paralel', expected ':' after loop 'i', its kind ('parallel', 'vectorize', 'unroll', 'bind', "
       "'pipeline' or 'tensorize') "
       "and its notes"},
      {head + "  for i in N bind warp.x:\n", "line 2, column 19: found 'warp', expected 'block' or 'thread' after 'bind'"},
      {head + "  for i in N pipeline:\n", "line 2, column 22: found ':', expected the number of stages after 'pipeline'"},
      {head + "  for i in N tensorize mma:\n",
       "line 2, column 24: found 'mma', expected the name of an intrinsic, \"…\", after 'tensorize'"},
      {head + "  alloc Y: f32[N] pad [x]\n", "line 2, column 24: found 'x', expected the padding of a dimension, an integer"},
      {head + "  alloc Y: f32[N] pad 8\n", "line 2, column 23: found '8', expected '[' and the padding of 'Y'"},
      {head + "  for i in N bind block.w:\n", "line 2, column 25: found 'w', expected 'x', 'y' or 'z' after 'bind block.'"},
      {with_block("C[vi] = A[vi]", "vi: T(N) = i"),
       "line 3, column 17: found 'T', expected S (spatial), R (reduction) or C (carried), the kind of axis 'vi'"},
      {with_block("C[vi] = A[vi]", "i: S(N) = i"), "line 3, column 13: there is a 'i' already; an axis has a name of its own"},
      {with_value("A[vi"), "line 4, column 16: a bracket that is never closed"},
      {with_value("A[vi] @ 2"), "line 4, column 21: found '@', which begins nothing in a program"},
      {with_value("B[vi]"), "line 4, column 15: there is no buffer 'B'"},
      {with_value("A"), "line 4, column 15: 'A' is a buffer; expected its subscripts, as in A[i]"},
      {with_value("exq(A[vi])"), "line 4, column 15: there is no function 'exq'; did you mean 'exp'?"},
      {with_value("exp(vi)"),
       "line 4, column 15: 'exp' is not a function of index; cast the operands to a type that it takes, as in f32(i)"},
      {with_value("cast(A[vi])"), "line 4, column 15: there is no function 'cast'"},
      {with_value("Alpha[vi]", ", Alpho: f32[N]"), "there is no buffer 'Alpha'; did you mean 'Alpho'?"},
      {with_value("exp(A[vi], A[vi])"), "line 4, column 15: 'exp' takes 1 operand, not 2"},
      {with_value("A[vi] + 1"), "line 4, column 21: 'add': A[vi] is f32 and 1 is index; expected one type, so cast one of them"},
      {with_value("1.5"),
       "line 4, column 15: found 1.5, expected an integer; a value of floating point is written with its type, as in f32(1.5)"},
      {with_value("f32(1.5x)"), "line 4, column 19: '1.5x' is not a number"},
      {with_value("f32(1e999)"), "line 4, column 19: the number 1e999 is beyond the range of f64"},
      {with_value("f32(i8(128))"), "line 4, column 22: 128 is not a number of i8"},
      {with_value("f32(u8(-1))"), "line 4, column 23: -1 is not a number of u8"},
      {with_value("f32(bool(2))"), "line 4, column 24: 2 is not a number of bool"},
      {with_value("f32(i8(1.5))"), "line 4, column 22: found 1.5, expected an integer for i8"},
      {with_value("f32(vi + 9223372036854775808)"), "line 4, column 24: 9223372036854775808 is not a number of index"},
      {with_value("A[A[vi]]"),
       "line 4, column 15: a subscript of 'A' is f32, not index: A[vi]; a value becomes one by clamp(value, low, high)"},
      {with_value("f32(vi < 2 < 3)"), "line 4, column 26: a chain of comparisons; write a < b and b < c"},
      {with_value("f32(vi / 2)"),
       "line 4, column 22: '/': expected floating point; write a // b for index, div(a, b), which truncates, for integers"},
      {with_value("A[vi] // A[vi]"),
       "line 4, column 21: '//': expected operands of index; write floor(a / b) for floating point, div(a, b) for integers"},
      {with_value("min(A[vi], A[vi])"), "line 4, column 15: 'min': expected operands of index; write minimum(a, b) for others"},
      {with_value("where(A[vi], A[vi], A[vi])"), "line 4, column 15: the condition of 'where', A[vi], is f32; expected bool"},
      {with_value("where(A[vi] and vi < 2, A[vi], A[vi])"), "line 4, column 27: 'and': A[vi] is f32; expected bool"},
      {with_value("f32(vi) + not vi"), "line 4, column 25: found 'not', expected an operand; 'not' stands between brackets here"},
      {with_value("A[vi])"), "line 4, column 20: found ')' without its opening bracket"},
      {with_value(std::string(300, '(') + "vi" + std::string(300, ')')), "the expression is nested too deeply"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i) {\"a\": \"b"), "a string without its closing '\"' in the same line"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i) {\"a\": \"\\x\"}:#"),
       "line 3, column 34: expected \\\", \\\\, \\n or \\t in a string"},
      {with_block("C[vi] = A[vi]", "vi: S(N) = i) {\"a\": \"\xff\"}:#"), "line 3, column 33: the string is not UTF-8"},
      {with_value("A[vi]") + "  alloc Y: f32[3]\n",
       "line 5, column 3: found 'alloc', expected 'for' or 'block'; each 'alloc' stands before the first of them"},
      {with_value("A[vi]", ", s: param f32 = x"), "found 'x', expected a number, the default of param 's'"},
      {with_value("A[vi]", ", D: f32[n], n: param f32 = 1"),
       "param 'n' is f32, but a dimension is made of it; expected an integer"},
      {with_value(std::string(200, 'a')), "line 4, column 15: a name of 200 bytes; at most 128"},
      {with_value("\xc3\xa4"), "line 4, column 15: found the byte 0xc3, which begins nothing in a program"},
      {std::string((1 << 20) + 1, ' '), "the text of the program has 1048577 bytes; at most 1048576"},
  };
  for (const Case& example : cases) {
    CAPTURE(example.text.substr(0, 300), example.message);
    CHECK_THAT(refused_text(example.text), Catch::Matchers::ContainsSubstring(example.message));
  }
}

TEST_CASE("long texts are refused, and not by a stack that overflows") {
  std::string sum = "A[vi]";
  for (int i = 0; i < 5000; ++i) sum += " + A[vi]";
  CHECK_THAT(refused_text(with_value(sum)), Catch::Matchers::ContainsSubstring("more than 4096 operations"));
  std::string nest = "program 1 f(A: f32[N], C: out f32[N]):\n";
  for (int i = 0; i < 100; ++i) nest += std::string(i + 1, ' ') + "for i" + std::to_string(i) + " in 2:\n";
  CHECK_THAT(refused_text(nest), Catch::Matchers::ContainsSubstring("more than 64 loops in each other"));
  CHECK(refused_text(with_value("f32(" + std::string(100000, '-') + "vi)")).find("nested too deeply") != std::string::npos);
  std::string many = with_value("A[vi]");
  for (int i = 0; i < 5000; ++i)
    many += "  for j" + std::to_string(i) + " in N:\n    block B" + std::to_string(i) + "():\n      C[0] = f32(0)\n";
  CHECK_THAT(refused_text(many), Catch::Matchers::ContainsSubstring("line 12290, column 3: more than 8192 loops and blocks"));
}
