// SPDX-License-Identifier: Apache-2.0
// test_export.cpp -- exported plugins: what they compute is what the interpreter computes, for every program of texts/, function,
// dtype and layout; and what cannot be exported is refused, with nothing left behind.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "examples.h"

namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

// A folder that goes away with the test.
struct Folder {
  Folder() {
    char pattern[] = "/tmp/narrows-export-XXXXXX";
    REQUIRE(mkdtemp(pattern) != nullptr);
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path / ("narrows_" + name + ".so")).string(); }
  fs::path path;
};

// A variable of the environment, as it was before once this goes away.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    const char* const now = std::getenv(name);
    is_set_ = now != nullptr;
    if (is_set_) before_ = now;
    setenv(name, value, 1);
  }
  ~Environment() { is_set_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  bool is_set_ = false;
  std::string before_;
};

void exported(const std::string& path, const std::vector<std::string>& texts, const char* op = nullptr) {
  nw_error error{};
  const int32_t status = plugin().export_to(path, texts, op, &error);
  INFO((status == NW_OK ? "" : error.message));
  REQUIRE(status == NW_OK);
}

// The interpreter's kernels are Highway's, the plugin's functions the C library's: they differ in the last places.
double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 4e-3 : dtype == DType::bf16 ? 4e-2 : 0;
}

void compare(Tensor& got, Tensor& want) {
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double a = got.get(i), b = want.get(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    CAPTURE(i, a, b);
    REQUIRE(std::fabs(a - b) <= tolerance(want.dtype) * std::max(1.0, std::fabs(b)));
  }
  REQUIRE(got.is_clean_outside());
}

// The program by the interpreter and by the exported plugin.
void check(const Plugin& made, const std::string& text, std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
           const std::vector<Param>& params) {
  const nw_op& op = made.op(0);
  const auto is_declared = [](DLDataType declared, const Tensor& tensor) {
    const DLDataType own = narrows::test::dl_dtype(tensor.dtype);
    return declared.code == own.code && declared.bits == own.bits && declared.lanes == own.lanes;
  };
  for (size_t i = 0; i < inputs.size(); ++i) REQUIRE(is_declared(op.input_dtypes[i], inputs[i]));
  for (size_t i = 0; i < outputs.size(); ++i) REQUIRE(is_declared(op.output_dtypes[i], outputs[i]));
  std::vector<Tensor> wanted = outputs;
  const Answer want = Call{plugin(), text, pointers(inputs), pointers(wanted), "interpreter", params}.run();
  INFO(want.message);
  REQUIRE(want);
  const Answer got = Call{made, made.op(0).name, pointers(inputs), pointers(outputs), nullptr, params}.run();
  INFO(got.message);
  REQUIRE(got);
  for (size_t i = 0; i < outputs.size(); ++i) compare(outputs[i], wanted[i]);
}

std::string refused(const std::string& path, const std::vector<std::string>& texts, int32_t status, const char* op = nullptr) {
  nw_error error{};
  CHECK(plugin().export_to(path, texts, op, &error) == status);
  return error.message;
}

// out<i> = the i-th expression of a, b and c.
std::string functions_text(const std::vector<std::string>& expressions, const std::string& dtype, const std::string& result) {
  std::string items, body;
  for (size_t i = 0; i < expressions.size(); ++i) {
    const std::string name = "o" + std::to_string(i);
    items += ", " + name + ": out " + result + "[N]";
    body += "    block " + name + "(vi: S(N) = i):\n      " + name + "[vi] = " + expressions[i] + "\n";
  }
  return "program 1 functions(a: " + dtype + "[N], b: " + dtype + "[N], c: " + dtype + "[N]" + items + "):\n  for i in N:\n" + body;
}

void check_functions(const Folder& folder, const std::string& name, const std::vector<std::string>& expressions, DType dtype,
                     const std::string& dtype_name, DType result, const std::string& result_name) {
  const std::string text = functions_text(expressions, dtype_name, result_name);
  exported(folder.file(name), {text});
  const Plugin made(folder.file(name).c_str());
  std::vector<Tensor> inputs = {filled(dtype, {97}, 1), filled(dtype, {97}, 2), filled(dtype, {97}, 3)}, outputs;
  const bool is_real = narrows::test::is_float(dtype);
  const std::vector<double> special =
      is_real ? std::vector<double>{0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 2.5} : std::vector<double>{0, 1, 2, 3, 5, 7, 40, 70};
  for (size_t i = 0; i < 64; ++i) {
    inputs[0].set(static_cast<int64_t>(i), special[i % 8]);
    inputs[1].set(static_cast<int64_t>(i), special[i / 8]);
  }
  for (size_t i = 0; i < expressions.size(); ++i) outputs.emplace_back(result, std::vector<int64_t>{97});
  check(made, text, inputs, outputs, {});
}

}  // namespace

TEST_CASE("every program of texts/ computes the same when it is exported", "[export]") {
  const Folder folder;
  for (const Example& example : kExamples) {
    DYNAMIC_SECTION(example.name) {
      const std::string text = text_of(example.name);
      exported(folder.file(example.name), {text});
      CHECK(fs::exists(folder.path / ("narrows_" + std::string(example.name) + ".manifest.json")));
      const Plugin made(folder.file(example.name).c_str());
      CHECK(made.op(0).name == std::string(example.name) + "." + example.name + "/1");
      Prepared data = example.prepare();
      std::vector<Tensor> outputs = data.outputs;
      check(made, text, data.inputs, outputs, data.params);
      for (const int64_t step : {2, -3}) {
        std::vector<Tensor> inputs, spaced;
        for (Tensor& tensor : data.inputs) inputs.push_back(spread(tensor, step));
        for (Tensor& tensor : data.outputs) spaced.emplace_back(tensor.dtype, tensor.shape, step);
        check(made, text, inputs, spaced, data.params);
      }
    }
  }
}

// The C library's functions take one element at a time: a call that one thread makes in a program that is built is worth more here.
TEST_CASE("loops of an exported program are given to threads by what they cost", "[export]") {
  const Folder folder;
  for (const auto& [name, value, split] : {std::tuple{"plain", "x[vi, vj]", 0}, {"costly", "exp(x[vi, vj])", 1}}) {
    const std::string text =
        std::string("program 1 f(x: f32[M, N], y: out f32[M, N]):\n  for i in M parallel:\n    for j in N:\n") +
        "      block y(vi: S(M) = i, vj: S(N) = j):\n        y[vi, vj] = " + value + "\n";
    exported(folder.file(name), {text});
    const Plugin made(folder.file(name).c_str());
    std::vector<Tensor> inputs{filled(DType::f32, {8, 4096}, 1)}, outputs{Tensor(DType::f32, {8, 4096})};
    const int64_t before = loops_on_threads;
    INFO(value);
    REQUIRE(Call{made, made.op(0).name, pointers(inputs), pointers(outputs), nullptr}.run());
    CHECK(loops_on_threads - before == split);
  }
}

// Calls of every function of these dtypes, by their letters in the table, that gives bool or not. Not elu, whose alpha is a number,
// nor where and cast.
std::vector<std::string> calls(const std::string& dtypes, const std::string& result) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& name, int operands, const char* kinds, const char* gives) {
    if (dtypes.find(kinds) == std::string::npos || result != gives || name == "elu" || name == "where") return;
    out.push_back(name + (operands == 1 ? "(a[vi])" : operands == 2 ? "(a[vi], b[vi])" : "(a[vi], b[vi], c[vi])"));
  };
#define NARROWS_FUNCTION(number, name, operands, dtypes, result, differentiable, cost) add(#name, operands, #dtypes, #result);
#include "core/ops/elementwise_functions.inc"
#undef NARROWS_FUNCTION
  return out;
}

// In parts: a program has at most 32 tensors.
void check_all(const std::vector<std::string>& all, DType dtype, const std::string& name, DType result,
               const std::string& result_name) {
  constexpr size_t kPart = 24;
  const Folder folder;
  for (size_t i = 0; i < all.size(); i += kPart)
    check_functions(
        folder, "part" + std::to_string(i),
        {all.begin() + static_cast<ptrdiff_t>(i), all.begin() + static_cast<ptrdiff_t>(std::min(i + kPart, all.size()))}, dtype,
        name, result, result_name);
}

TEST_CASE("functions of floating point are the interpreter's to the last places", "[export]") {
  const std::pair<DType, const char*> dtypes[] = {
      {DType::f32, "f32"}, {DType::f64, "f64"}, {DType::f16, "f16"}, {DType::bf16, "bf16"}};
  for (const auto& [dtype, name] : dtypes) {
    DYNAMIC_SECTION(name) {
      check_all(calls("FN", "operands"), dtype, name, dtype, name);
      check_all(calls("NA", "bool"), dtype, name, DType::boolean, "bool");
    }
  }
}

TEST_CASE("functions of integers are the interpreter's", "[export]") {
  const std::pair<DType, const char*> dtypes[] = {{DType::i8, "i8"}, {DType::i32, "i32"}, {DType::u64, "u64"}};
  for (const auto& [dtype, name] : dtypes) {
    DYNAMIC_SECTION(name) {
      check_all(calls("NBI", "operands"), dtype, name, dtype, name);
      check_all(calls("NA", "bool"), dtype, name, DType::boolean, "bool");
    }
  }
}

TEST_CASE("casts are the interpreter's", "[export]") {
  const char* const names[] = {"bool", "i8", "i32", "i64", "u8", "u64", "f16", "bf16", "f32", "f64"};
  const DType dtypes[] = {DType::boolean, DType::i8,  DType::i32,  DType::i64, DType::u8,
                          DType::u64,     DType::f16, DType::bf16, DType::f32, DType::f64};
  const Folder folder;
  for (const size_t from : {1UL, 3UL, 5UL, 6UL, 8UL, 9UL}) {
    DYNAMIC_SECTION("from " << names[from]) {
      std::string items, body;
      const double most = narrows::test::item_size(dtypes[from]) == 1 ? 120 : 300;
      std::vector<Tensor> inputs = {filled(dtypes[from], {97}, 1, -most, most)}, outputs;
      const std::vector<double> special = {NAN, INFINITY, -INFINITY, 3e9, -3e9, 65519.0, 1e20};
      for (size_t i = 0; i < special.size() && narrows::test::is_float(dtypes[from]); ++i)
        inputs[0].set(static_cast<int64_t>(i), special[i]);
      for (size_t to = 0; to < std::size(names); ++to) {
        const std::string name = "o" + std::to_string(to);
        items += ", " + name + ": out " + names[to] + "[N]";
        body += "    block " + name + "(vi: S(N) = i):\n      " + name + "[vi] = " + names[to] + "(a[vi])\n";
        outputs.emplace_back(dtypes[to], std::vector<int64_t>{97});
      }
      const std::string text = "program 1 casts(a: " + std::string(names[from]) + "[N]" + items + "):\n  for i in N:\n" + body;
      exported(folder.file(names[from]), {text});
      check(Plugin(folder.file(names[from]).c_str()), text, inputs, outputs, {});
    }
  }
}

TEST_CASE("tensors that may be absent, params and an in-out tensor", "[export]") {
  const std::string text =
      "program 1 f(x: f32[N], bias?: f32[N], y: inout f32[N], z?: out f32[N], alpha: param f32 = 2, k: param i64 = 1, on: param "
      "bool = 1):\n"
      "  for i in N:\n"
      "    block y(vi: S(N) = i):\n"
      "      y[vi] = y[vi] + where(on, x[vi] * alpha, f32(0)) + where(present(bias), bias[vi], f32(k))\n"
      "  for j in N:\n"
      "    block z(vi: S(N) = j):\n"
      "      z[vi] = exp(y[vi])\n";
  const Folder folder;
  exported(folder.file("absent"), {text}, "mine.f/3");
  const Plugin made(folder.file("absent").c_str());
  const nw_op& op = made.op(0);
  CHECK(op.name == std::string("mine.f/3"));
  CHECK((op.min_inputs == 3 && op.max_inputs == 3 && op.num_outputs == 2 && op.params_size == 24));
  CHECK((op.flags == NW_OP_INPLACE && op.inputs[1] == std::string("bias?") && op.outputs[1] == std::string("z?")));
  CHECK((op.params[0]->initial == 2 && op.params[1]->initial == 1 && op.params[2]->initial == 1));
  CHECK((op.params[0]->dtype.code == kDLFloat && op.params[1]->dtype.code == kDLInt && op.params[2]->dtype.code == kDLBool));
  const std::vector<Param> params = {{0.5, 0, true}, {0, 3, false}, {0, 1, false}};
  for (const bool bias : {false, true}) {
    for (const bool z : {false, true}) {
      std::vector<Tensor> inputs = {filled(kF, {40}, 1), filled(kF, {40}, 2), filled(kF, {40}, 3)};
      std::vector<Tensor> outputs = {Tensor(kF, {40}, 2), Tensor(kF, {40})};
      inputs[1].absent = !bias;
      outputs[1].absent = !z;
      check(made, text, inputs, outputs, params);
    }
  }
  std::vector<Tensor> inputs = {filled(kF, {8}, 1), filled(kF, {8}, 2), filled(kF, {8}, 3)},
                      outputs = {Tensor(kF, {8}), Tensor(kF, {8})};
  const Answer answer = Call{made, "mine.f/3", pointers(inputs), pointers(outputs), nullptr, params, 0}.run();
  CHECK(answer.status == NW_INVALID);
  CHECK_THAT(answer.message, ContainsSubstring("'y' is another input"));
}

TEST_CASE("two integer params, one of them alone an input's dimension", "[export]") {
  const std::string text =
      "program 1 f(x: f32[k], y: out f32[k], k: param i64 = 4, m: param i64 = 1):\n"
      "  for i in k:\n"
      "    block y(vi: S(k) = i):\n"
      "      y[vi] = x[vi] * f32(m) + f32(k)\n";
  const Folder folder;
  exported(folder.file("two"), {text});
  const Plugin made(folder.file("two").c_str());
  for (const int64_t k : {4, 9}) {
    std::vector<Tensor> inputs = {filled(kF, {k}, 1)}, outputs = {Tensor(kF, {k})};
    check(made, text, inputs, outputs, {{0, k, false}, {0, 3, false}});
  }
}

TEST_CASE("sizes that leave 64 bits, and allocations that are too large, are refused when a call is planned", "[export]") {
  const std::string begin = "program 1 f(x: f32[N], y: out f32[N], k: param i64 = 1):\n";
  const std::string store = "  for j in N:\n    block y(vi: S(N) = j):\n      y[vi] = ";
  const std::string texts[] = {
      begin + "  alloc t: f32[max(N, max(k, 1))]\n  for i in N:\n    block t(vi: S(N) = i):\n      t[vi] = x[vi]\n" + store +
          "t[vi] + t[N - 1 - vi]\n",
      begin + store + "where(k * 4 > vi, x[vi], f32(2))\n"};
  const int32_t statuses[] = {NW_OUT_OF_MEMORY, NW_INVALID};
  const Folder folder;
  for (size_t i = 0; i < 2; ++i) {
    const std::string path = folder.file("wide" + std::to_string(i));
    exported(path, {texts[i]});
    const Plugin made(path.c_str());
    std::vector<Tensor> inputs = {filled(kF, {8}, 1)}, outputs = {Tensor(kF, {8})};
    check(made, texts[i], inputs, outputs, {{0, 3, false}});
    const std::vector<Param> large = {{0, int64_t{1} << 61, false}};
    const Answer got = Call{made, made.op(0).name, pointers(inputs), pointers(outputs), nullptr, large}.run();
    const Answer want = Call{plugin(), texts[i], pointers(inputs), pointers(outputs), "interpreter", large}.run();
    INFO(got.message << "\n" << want.message);
    CHECK((got.status == statuses[i] && want.status == statuses[i]));
  }
}

TEST_CASE("what cannot be exported is refused, and nothing is left behind", "[export]") {
  const Folder folder;
  const std::string text = text_of("add");
  CHECK_THAT(refused((folder.path / "add.so").string(), {text}, NW_INVALID),
             ContainsSubstring("expected a file narrows_<name>.so"));
  CHECK_THAT(refused((folder.path / "narrows_a-b.so").string(), {text}, NW_INVALID), ContainsSubstring("narrows_a-b.so"));
  CHECK_THAT(refused("/no/such/narrows_a.so", {text}, NW_INVALID), ContainsSubstring("there is no folder '/no/such'"));
  CHECK_THAT(refused(folder.file("a"), {text}, NW_INVALID, "add"), ContainsSubstring("expected one like 'vendor.name/1'"));
  CHECK_THAT(refused(folder.file("a"), {text}, NW_INVALID, "program.add/1"), ContainsSubstring("not in 'program.'"));
  CHECK_THAT(refused(folder.file("a"), {text}, NW_INVALID, "a.b\\\"/1"), ContainsSubstring("a.b"));
  CHECK_THAT(refused(folder.file("a"), {text}, NW_INVALID, "add"), ContainsSubstring("op is 'add'"));
  CHECK_THAT(refused(folder.file("program"), {text}, NW_INVALID),
             ContainsSubstring(folder.file("program") + "', which makes the op 'program.add/1'"));
  const int32_t status = access("/proc/self", W_OK) == 0 ? NW_FAILED : NW_INVALID;  // nobody makes files there
  CHECK_THAT(refused("/proc/self/narrows_a.so", {text}, status), ContainsSubstring("/proc/self/narrows_a.so"));
  CHECK(fs::is_empty(folder.path));
  exported(folder.file("a"), {text});
  CHECK_THAT(refused(folder.file("a"), {text}, NW_INVALID), ContainsSubstring("which is there already"));
  fs::remove(folder.file("a"));
  CHECK_THAT(refused(folder.file("a"), {text}, NW_INVALID),
             ContainsSubstring(folder.file("a") + "', and its manifest '") && ContainsSubstring("narrows_a.manifest.json"));

  const char* const compiler = std::getenv("CC");
  const std::string before = compiler == nullptr ? "" : compiler;
  setenv("CC", "no-such-compiler", 1);
  CHECK_THAT(refused(folder.file("b"), {text}, NW_UNAVAILABLE), ContainsSubstring("CC is 'no-such-compiler'"));
  setenv("CC", "false", 1);
  CHECK_THAT(refused(folder.file("b"), {text}, NW_FAILED), ContainsSubstring("failed with status 1"));
  compiler == nullptr ? unsetenv("CC") : setenv("CC", before.c_str(), 1);
  CHECK(!fs::exists(folder.file("b")));
}

TEST_CASE("the source that the compiler failed for is named, and stays", "[export]") {
  const Folder folder;
  const fs::path script = folder.path / "cc.sh";
  std::ofstream(script) << "#!/bin/sh\ncase \"$*\" in *narrows_kernel_0_1.c*) exit 3;; esac\nexec cc \"$@\"\n";
  fs::permissions(script, fs::perms::owner_all);
  std::ofstream(folder.path / ("narrows-" + std::to_string(geteuid()))) << "where sources are kept else";
  const Environment compiler("CC", script.c_str()), temporary("TMPDIR", folder.path.c_str());
  const std::string message = refused(folder.file("a"), {text_of("add")}, NW_FAILED),
                    before = "failed with status 3; the source is ";
  const size_t at = message.find(before);
  INFO(message);
  REQUIRE(at != std::string::npos);
  CHECK_THAT(read_file(message.substr(at + before.size())), ContainsSubstring("void narrows_kernel_0_1("));
}

TEST_CASE("of two threads that export to one place, one does", "[export]") {
  const Folder folder;
  int32_t statuses[2] = {};
  std::vector<std::thread> threads;
  for (int32_t& status : statuses)
    threads.emplace_back([&] {
      nw_error error{};
      status = plugin().export_to(folder.file("a"), {text_of("add")}, nullptr, &error);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK((statuses[0] == NW_OK) != (statuses[1] == NW_OK));
  CHECK(std::max(statuses[0], statuses[1]) == NW_INVALID);
  CHECK(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()) == 2);
  CHECK(Plugin(folder.file("a").c_str()).op(0).name == std::string("a.add/1"));
}
