// SPDX-License-Identifier: Apache-2.0
// test_cpu_dtypes.cpp -- every dtype and function of docs/ops.md by the cpu backend's two kernels of tensor programs: beside
// numbers that are rounded here, and beside each other.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "core/program/dtype.h"
#include "core/program/functions.h"
#include "examples.h"
#include "folder.h"

namespace {

using narrows::test::Exact;

// Where a dtype ends, turns or rounds.
std::vector<Exact> edges(DType dtype) {
  using namespace narrows::test;
  if (dtype == DType::boolean) return {0, 1, 2, 255};
  std::vector<Exact> out;
  if (is_float(dtype)) {
    out = {Exact(0), -Exact(0), INFINITY, -INFINITY, NAN, largest(dtype), lowest(dtype), smallest_subnormal(dtype)};
    for (const double x : {0.5, -0.5, 1.0, -1.5, 2.5, 255.5, -128.5, 32767.5, 65519.0, 65520.0, -2147483649.0, 4294967296.0, 0x1p63,
                           -0x1.8p63, 0x1p64, 0x1.0000018p5, 1e-6, 1e30})
      out.push_back(rounded(dtype, x));
    return out;
  }
  for (const Exact x : {Exact(0), Exact(1), Exact(-1), Exact(127), Exact(128), Exact(-129), Exact(255), Exact(256), Exact(2049),
                        Exact(65535), Exact(65520), Exact(-32769), Exact(16777217), Exact(2147483648.0), Exact(-2147483649.0),
                        Exact(4294967296.0), lowest(dtype), largest(dtype), largest(dtype) - 1})
    if (x >= lowest(dtype) && x <= largest(dtype)) out.push_back(x);
  return out;
}

// The same number, with its sign if it is a zero; or both are NaN.
void expect_exactly(Tensor& out, const std::function<Exact(int64_t)>& want) {
  for (int64_t i = 0; i < out.elements(); ++i) {
    const Exact got = out.exact(i), right = want(i);
    if (std::isnan(right) ? std::isnan(got) : got == right && std::signbit(got) == std::signbit(right)) continue;
    INFO("element " << i << " is " << static_cast<double>(got) << "; expected " << static_cast<double>(right));
    FAIL();
  }
  CHECK(out.is_clean_outside());
}

// One operation, rounded once; integers in two's complement.
Exact computed(DType dtype, char symbol, Exact x, Exact y) {
  if (dtype == DType::f64) {
    const auto a = static_cast<double>(x), b = static_cast<double>(y);
    return symbol == '+' ? a + b : a * b;
  }
  if (narrows::test::is_float(dtype)) return narrows::test::rounded(dtype, symbol == '+' ? x + y : x * y);
  const auto bits = [](Exact v) { return v < 0 ? static_cast<uint64_t>(static_cast<int64_t>(v)) : static_cast<uint64_t>(v); };
  const int64_t unused = 64 - 8 * narrows::test::item_size(dtype);
  const uint64_t whole = (symbol == '+' ? bits(x) + bits(y) : bits(x) * bits(y)) << unused;
  if (narrows::test::is_signed_int(dtype)) return static_cast<Exact>(static_cast<int64_t>(whole) >> unused);
  return static_cast<Exact>(whole >> unused);
}

// As docs/ops.md says of `cast`.
Exact converted(DType from, DType to, Exact value) {
  using namespace narrows::test;
  if (from == DType::boolean || to == DType::boolean) value = value == 0 ? 0 : 1;  // NaN is true
  if (to == DType::boolean) return value;
  if (is_float(to)) return rounded(to, value);
  if (std::isnan(value)) return 0;
  return std::clamp(std::trunc(value), lowest(to), largest(to)) + Exact(0);
}

// All pairs of edges, then numbers by chance, `least` in all.
std::pair<Tensor, Tensor> edge_pairs(DType dtype, int64_t least = 0) {
  const std::vector<Exact> values = edges(dtype);
  const auto count = static_cast<int64_t>(values.size()), size = std::max(count * count + 83, least);
  Tensor a = filled(dtype, {size}, 1, -9, 9), b = filled(dtype, {size}, 2, -9, 9);
  for (int64_t i = 0; i < count * count; ++i) {
    a.set(i, values[static_cast<size_t>(i / count)]);
    b.set(i, values[static_cast<size_t>(i % count)]);
  }
  return {a, b};
}

}  // namespace

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
      auto [a, b] = edge_pairs(dtype);
      Tensor c(dtype, a.shape), d(DType::boolean, a.shape);
      run_well({plugin(), text, {&a, &b}, {&c, &d}, kernel});
      const auto want = [&, &a = a, &b = b](int64_t i) {
        const Exact x = a.exact(i), y = b.exact(i);
        if (x < y) return computed(dtype, '+', x, y);
        const Exact got = c.exact(i), product = computed(dtype, '*', std::isnan(x) || x >= y ? x : y, x);
        return x == 0 && y == 0 && got == 0 ? got : product;  // the larger of 0 and −0 is either
      };
      expect_exactly(c, want);
      expect_exactly(d, [&, &a = a, &b = b](int64_t i) { return a.exact(i) >= b.exact(i) ? 1 : 0; });
    }
  }
}

TEST_CASE("any byte but 0 is true, and what is stored is 0 or 1") {
  const std::string text =
      "program 1 f(A: bool[N], B: bool[N], C: out bool[N], D: out bool[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n"
      "      C[vi] = where(A[vi] and not B[vi], A[vi] or B[vi], A[vi] != B[vi])\n      D[vi] = A[vi] == B[vi]\n";
  for (const char* kernel : kKernels) {
    INFO(kernel);
    auto [a, b] = edge_pairs(DType::boolean);
    Tensor c(DType::boolean, a.shape), d(DType::boolean, a.shape);
    run_well({plugin(), text, {&a, &b}, {&c, &d}, kernel});
    expect_exactly(c, [&a = a, &b = b](int64_t i) { return (*a.at(i) != 0) != (*b.at(i) != 0) ? 1 : 0; });
    expect_exactly(d, [&a = a, &b = b](int64_t i) { return (*a.at(i) != 0) == (*b.at(i) != 0) ? 1 : 0; });
  }
}

// Buffers of a tile are variables, if they are small and hold numbers that a register holds.
TEST_CASE("a buffer of a tile keeps every dtype as memory does") {
  for (const DType dtype : narrows::test::kAllDTypes) {
    const std::string t = narrows::test::name(dtype), sum = dtype == DType::boolean ? "A[v] or B[v]" : "A[v] + B[v]",
                      less = dtype == DType::boolean ? "A[v] and not B[v]" : "A[v] < B[v]";
    const auto tile = [&](const char* buffer, const std::string& loop, const std::string& value) {
      return "    for " + loop + " in 16 vectorize:\n      block " + buffer + "(v: S(N) = i * 16 + " + loop + ") if i * 16 + " +
             loop + " < N:\n        " + buffer + "[v] = " + value + "\n";
    };
    const std::string text = "program 1 f(A: " + t + "[N], B: " + t + "[N], C: out " + t + "[N]):\n  alloc Y: " + t +
                             "[N]\n  alloc Z: bool[N]\n  for i in (N + 15) // 16:\n" + tile("Y", "j", sum) + tile("Z", "k", less) +
                             tile("C", "l", "where(Z[v], Y[v], A[v])");
    for (const char* kernel : kKernels) {
      INFO(t << " " << kernel);
      auto [a, b] = edge_pairs(dtype);
      Tensor c(dtype, a.shape);
      run_well({plugin(), text, {&a, &b}, {&c}, kernel});
      expect_exactly(c, [&, &a = a, &b = b](int64_t i) -> Exact {
        if (dtype == DType::boolean) return *a.at(i) != 0 ? 1 : 0;
        return a.exact(i) < b.exact(i) ? computed(dtype, '+', a.exact(i), b.exact(i)) : a.exact(i);
      });
    }
  }
}

TEST_CASE("casts of every pair of dtypes are right") {
  for (const DType from : narrows::test::kAllDTypes) {
    const std::string a = narrows::test::name(from);
    std::vector<DType> types;
    std::string items, body;
    for (const DType to : narrows::test::kAllDTypes) {
      if (from == to) continue;
      const std::string b = narrows::test::name(to), n = std::to_string(types.size());
      items += ", C" + n + ": out " + b + "[N]";
      body.append("  for i").append(n).append(" in N:\n    block C").append(n).append("(vi: S(N) = i").append(n);
      body.append("):\n      C").append(n).append("[vi] = ").append(b).append("(A[vi])\n");
      types.push_back(to);
    }
    const std::string text = "program 1 f(A: " + a + "[N]" + items + "):\n" + body;
    const double range = narrows::test::item_size(from) == 1 ? 120 : 300;
    const std::vector<Exact> values = edges(from);
    Tensor in = filled(from, {static_cast<int64_t>(values.size()) + 37}, 3, -range, range);
    for (size_t i = 0; i < values.size(); ++i) in.set(static_cast<int64_t>(i), values[i]);
    for (const char* kernel : kKernels) {
      std::vector<Tensor> outputs;
      for (const DType to : types) outputs.emplace_back(to, in.shape);
      run_well({plugin(), text, {&in}, pointers(outputs), kernel});
      for (size_t o = 0; o < types.size(); ++o) {
        INFO(a << " to " << narrows::test::name(types[o]) << ", " << kernel);
        expect_exactly(outputs[o], [&](int64_t i) { return converted(from, types[o], in.exact(i)); });
      }
    }
  }
}

// ---- functions ----

namespace {

namespace ir = narrows::program;

// A program of a function a loop, so that one start of the compiler is enough for all of them: those that give the operands' dtype
// are rows of y, those that give bool rows of z, and casts have an output for each dtype.
class AllFunctions {
 public:
  explicit AllFunctions(DType dtype) : dtype_(dtype), name_(narrows::test::name(dtype)) {
    for (const std::string& name : ir::function_names()) {
      const ir::Function& function = *ir::find_function(name);
      if (name == "where")
        add(&same_, "where(a[v] == b[v], b[v], c[v])");
      else if (ir::takes(function, *ir::find_dtype(name_)))
        add(function.gives_bool ? &boolean_ : &same_, name + operands_of(function));
    }
    for (const DType to : narrows::test::kAllDTypes) {
      if (to == dtype) continue;
      casts_.push_back(to);
      loop("cast" + std::to_string(casts_.size()), "[v]", std::string(narrows::test::name(to)) + "(a[v])");
    }
  }

  // Outputs y, z and those of the casts.
  std::string text() const {
    std::string out = "program 1 functions(";
    for (const char* operand : {"a", "b", "c"}) out += std::string(operand) + ": " + name_ + "[N], ";
    out += "y: out " + name_ + rows(same_) + ", z: out bool" + rows(boolean_);
    for (size_t i = 0; i < casts_.size(); ++i)
      out += ", cast" + std::to_string(i + 1) + ": out " + narrows::test::name(casts_[i]) + "[N]";
    return out + "):\n" + loops_;
  }

  std::vector<Tensor> outputs(int64_t size, int64_t step) const {
    std::vector<Tensor> out;
    out.emplace_back(dtype_, std::vector<int64_t>{static_cast<int64_t>(same_.size()), size}, step);
    out.emplace_back(DType::boolean, std::vector<int64_t>{static_cast<int64_t>(boolean_.size()), size}, step);
    for (const DType to : casts_) out.emplace_back(to, std::vector<int64_t>{size}, step);
    return out;
  }

  // What an output's row is.
  std::string value_of(size_t output, int64_t row) const {
    return output == 0   ? same_[static_cast<size_t>(row)]
           : output == 1 ? boolean_[static_cast<size_t>(row)]
                         : std::string("cast to ") + narrows::test::name(casts_[output - 2]);
  }

 private:
  std::string operands_of(const ir::Function& function) const {
    if (std::string_view(function.name) == "elu") return "(a[v], " + name_ + "(0.75))";
    return function.operands == 1 ? "(a[v])" : function.operands == 2 ? "(a[v], b[v])" : "(a[v], b[v], c[v])";
  }
  static std::string rows(const std::vector<std::string>& values) { return "[" + std::to_string(values.size()) + ", N]"; }

  void add(std::vector<std::string>* values, const std::string& value) {
    loop(values == &same_ ? "y" : "z", "[" + std::to_string(values->size()) + ", v]", value);
    values->push_back(value);
  }
  void loop(const std::string& buffer, const std::string& subscripts, const std::string& value) {
    const std::string number = std::to_string(count_++);
    loops_.append("  for i").append(number).append(" in N:\n    block b").append(number).append("(v: S(N) = i").append(number);
    loops_.append("):\n      ").append(buffer).append(subscripts).append(" = ").append(value).append("\n");
  }

  DType dtype_;
  std::string name_, loops_;
  std::vector<std::string> same_, boolean_;
  std::vector<DType> casts_;
  int count_ = 0;
};

// NaN is NaN, whatever its bits.
bool same_bits(Tensor& a, Tensor& b, int64_t at) {
  if (std::memcmp(a.at(at), b.at(at), static_cast<size_t>(narrows::test::item_size(a.dtype))) == 0) return true;
  return narrows::test::is_float(a.dtype) && std::isnan(a.get(at)) && std::isnan(b.get(at));
}

}  // namespace

// Functions are called for 256 elements at once: three times, and once for those that are left. The compiler does not optimize: for
// so many functions it would take a minute. Other cases have it optimize.
TEST_CASE("both kernels give the same bits for every function of every dtype") {
  const Folder folder;
  const Environment compiler("CC", folder.script("plain", "exec gcc \"$@\" -O0"));
  for (const DType dtype : narrows::test::kAllDTypes) {
    const AllFunctions functions(dtype);
    auto [a, b] = edge_pairs(dtype, 3 * 256 + 39);
    Tensor c = filled(dtype, a.shape, 3, -9, 9);
    for (const int64_t step : {1, -2}) {
      std::vector<Tensor> inputs = {spread(a, step), spread(b, step), spread(c, step)};
      std::vector<Tensor> want = functions.outputs(a.elements(), step), got = want;
      run_well({plugin(), functions.text(), pointers(inputs), pointers(want), "interpreter"});
      run_well({plugin(), functions.text(), pointers(inputs), pointers(got), "compiled"});
      for (size_t o = 0; o < want.size(); ++o) {
        CHECK(got[o].is_clean_outside());
        for (int64_t at = 0; at < want[o].elements(); ++at) {
          if (same_bits(got[o], want[o], at)) continue;
          const int64_t i = at % a.elements();
          INFO(functions.value_of(o, at / a.elements())
               << " of " << narrows::test::name(dtype) << ", step " << step << ": of " << a.get(i) << ", " << b.get(i) << ", "
               << c.get(i) << " it is " << got[o].get(at) << "; the interpreter gives " << want[o].get(at));
          FAIL_CHECK();
          at += a.elements() - 1 - i;  // one element of each function is enough
        }
      }
    }
  }
}

// What is printed as C, and the kernels that take an operand where it lies, of whatever bits.
TEST_CASE("functions of C have the bits of the kernels, on each instruction set") {
  const std::string values[] = {"sign(a[v])",
                                "floor(a[v])",
                                "ceil(a[v])",
                                "round(a[v])",
                                "trunc(a[v])",
                                "copysign(a[v], b[v])",
                                "fma(a[v], b[v], c[v])",
                                "elu(a[v], b[v])",
                                "elu(a[v], s[0])",
                                "expm1(-exp(a[v]))",
                                "where(isinf(a[v]), b[v], c[v])",
                                "where(isfinite(a[v]), b[v], c[v])"};
  const int64_t size = 3 * 256 + 300;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const std::string t = narrows::test::name(dtype), rows = std::to_string(std::size(values));
    std::string text = "program 1 f(a: " + t + "[N], b: " + t + "[N], c: " + t + "[N], s: " + t + "[1], y: out " + t + "[" + rows +
                       ", N], n: out i32[N]):\n";
    for (size_t row = 0; row < std::size(values); ++row) {
      const std::string i = std::to_string(row);
      text += "  for i" + i + " in N:\n    block b" + i + "(v: S(N) = i" + i + "):\n      y[" + i + ", v] = " + values[row] + "\n";
    }
    text += "  for j in N:\n    block n(v: S(N) = j):\n      n[v] = i32(a[v]) + i32(floor(b[v]))\n";
    std::mt19937_64 random(7);
    for (const int64_t shift : {0, 1}) {  // off the alignment that kernels need
      std::vector<Tensor> inputs;
      for (int operand = 0; operand < 3; ++operand) {
        inputs.emplace_back(dtype, std::vector<int64_t>{size}, 1, shift);
        for (int64_t i = 0; i < size; ++i) {
          const uint64_t bits = random();
          std::memcpy(inputs.back().at(i), &bits, static_cast<size_t>(narrows::test::item_size(dtype)));
        }
      }
      auto [a, b] = edge_pairs(dtype);
      for (int64_t i = 0; i < std::min(size, a.elements()); ++i) inputs[0].set(i, a.exact(i)), inputs[1].set(i, b.exact(i));
      inputs.push_back(filled(dtype, {1}, 3));
      std::vector<Tensor> want;
      want.emplace_back(dtype, std::vector<int64_t>{std::ssize(values), size});
      want.emplace_back(DType::i32, std::vector<int64_t>{size});
      for_each_target([&](const Plugin& held) {
        std::vector<Tensor> got = want;
        run_well({held, text, pointers(inputs), pointers(want), "interpreter"});
        run_well({held, text, pointers(inputs), pointers(got), "compiled"});
        for (size_t o = 0; o < want.size(); ++o) {
          for (int64_t at = 0; at < want[o].elements(); ++at) {
            if (same_bits(got[o], want[o], at)) continue;
            const int64_t i = at % size;
            INFO((o == 0 ? values[at / size] : "n")
                 << " of " << t << ", shift " << shift << ": of " << inputs[0].get(i) << ", " << inputs[1].get(i) << ", "
                 << inputs[2].get(i) << " it is " << got[o].get(at) << "; the interpreter gives " << want[o].get(at));
            FAIL_CHECK();
            at += size - 1 - i;
          }
        }
      });
    }
  }
}

TEST_CASE("a function of a tensor that is absent reads nothing") {
  const std::string text =
      "program 1 f(x: f32[N], b?: f32[N], y: out f32[N]):\n  for i in N:\n    block y(v: S(N) = i):\n"
      "      y[v] = x[v] + where(present(b), elu(exp(b[v]), b[v]) + exp(b[v]), f32(0))\n";
  for (const char* kernel : kKernels) {
    INFO(kernel);
    Tensor x = filled(DType::f32, {700}, 1), b, y(DType::f32, {700});
    b.absent = true;
    run_well({plugin(), text, {&x, &b}, {&y}, kernel});
    expect_exactly(y, [&](int64_t i) { return x.exact(i); });
  }
}
