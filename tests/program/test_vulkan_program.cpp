// SPDX-License-Identifier: Apache-2.0
// test_vulkan_program.cpp -- what only Vulkan has of tensor programs: its compiler and the files that it leaves, push constants
// that do not suffice, more blocks than a launch takes, and modules as the specification wants them. test_gpu_program.cpp has the
// rest.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "gpu_program.h"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

constexpr size_t kSeal = 32;  // letters at the end of a kept file: program_files.h

// Runs this program again for the test cases of a tag, with more in its environment. Its exit status.
int again(const std::string& tag, const std::string& environment) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const int status = std::system(("env " + environment + " '" + self + "' '" + tag + "' >/dev/null").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "narrows-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
  std::vector<fs::path> modules() const {
    std::vector<fs::path> out;
    if (!fs::exists(path / "vulkan")) return out;
    for (const auto& entry : fs::directory_iterator(path / "vulkan"))
      if (entry.path().extension() == ".spv") out.push_back(entry.path());
    return out;
  }
  std::string environment() const { return "NARROWS_CACHE_DIR=" + path.string(); }
  fs::path path;
};

std::string one_kernel(const std::string& name, const std::string& value) {
  return "program 1 " + name + "(A: f32[N], C: out f32[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      C[vi] = " + value +
         "\n";
}
const std::string kTripled = one_kernel("kept", "A[vi] * f32(3) + f32(1)");
const std::string kHalved = one_kernel("kept", "A[vi] * f32(0.5) - f32(1)");

void expect_text(const std::string& text, const std::string& computes) {
  std::vector<Tensor> inputs{Tensor(DType::f32, {100})}, outputs{Tensor(DType::f32, {100})};
  inputs[0].fill(1);
  expect_right(text, inputs, outputs, {}, 1e-6, computes);
}

}  // namespace

// ---- run by other tests, in a process of their own ----

TEST_CASE("without its compiler a program is unavailable", "[.no_compiler]") {
  std::vector<Tensor> inputs{Tensor(DType::f32, {5})}, outputs{Tensor(DType::f32, {5})};
  const Answer answer = Call{plugin(), kTripled, pointers(inputs), pointers(outputs)}.run();
  CHECK(answer.status == NW_UNAVAILABLE);
  CHECK_THAT(answer.message, ContainsSubstring("apt-get install libshaderc1"));
  const char* const named = std::getenv("NARROWS_SHADERC");
  CHECK_THAT(answer.message, ContainsSubstring(named == std::string("0") ? "NARROWS_SHADERC is 0" : named));
  CHECK_THAT(plugin().source(kTripled), StartsWith("// vulkan: no kernel runs: tensor programs need shaderc"));
}
TEST_CASE("the program that triples", "[.tripled]") { expect_text(kTripled, kTripled); }
TEST_CASE("the program that halves", "[.halved]") { expect_text(kHalved, kHalved); }
TEST_CASE("the text that triples computes what the other one does", "[.exchanged]") { expect_text(kTripled, kHalved); }

// ---- the compiler, and what it leaves ----

TEST_CASE("without shaderc, or with a file that is none, programs are refused with the command that installs it") {
  CHECK(again("[no_compiler]", "NARROWS_SHADERC=0") == 0);
  CHECK(again("[no_compiler]", "NARROWS_SHADERC=/nowhere/libshaderc.so.1") == 0);
}

TEST_CASE("the source names the compiler, and no name of the program reaches it") {
  const std::string source = plugin().source(one_kernel("kernel_of_mine", "exp(A[vi])"));
  CHECK_THAT(source, StartsWith("// vulkan: kernel 'compiled' runs, made by shaderc for SPIR-V "));
  CHECK_THAT(source, ContainsSubstring("#version 460") && ContainsSubstring("exp_real("));
  CHECK_THAT(source, !ContainsSubstring("kernel_of_mine"));
}

TEST_CASE("a kernel is kept on disk, is taken from there, and compiled again where it is damaged") {
  const Folder folder;
  REQUIRE(again("[halved]", folder.environment()) == 0);
  const std::vector<fs::path> halved = folder.modules();
  REQUIRE(halved.size() == 1);
  REQUIRE(again("[tripled]", folder.environment()) == 0);
  REQUIRE(folder.modules().size() == 2);
  fs::path tripled;
  for (const fs::path& path : folder.modules())
    if (path != halved[0]) tripled = path;
  const std::string good = read_file(tripled);

  // What lies there is what runs.
  fs::copy_file(halved[0], tripled, fs::copy_options::overwrite_existing);
  CHECK(again("[exchanged]", folder.environment()) == 0);

  for (const size_t size : {size_t{0}, good.size() / 2, good.size() - 1}) {
    INFO(size);
    fs::resize_file(tripled, 0);
    std::ofstream(tripled, std::ios::binary) << good.substr(0, size);
    CHECK(again("[tripled]", folder.environment()) == 0);
    CHECK(read_file(tripled) == good);
  }
}

// ---- kernels ----

TEST_CASE("a kernel with more numbers and addresses than push constants hold") {
  std::string head = "program 1 f(", sum;
  std::vector<Tensor> inputs, outputs;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "A" + std::to_string(i);
    head += name + ": f32[M, N], ";
    sum += (i == 0 ? "" : " + ") + name + "[vi, vj] * f32(" + std::to_string(i + 1) + ")";
    inputs.emplace_back(DType::f32, std::vector<int64_t>{3, 7}, 1 + i % 3);
    inputs.back().fill(static_cast<unsigned>(i + 1));
  }
  outputs.emplace_back(DType::f32, std::vector<int64_t>{3, 7}, 2);
  const std::string text = head +
                           "C: out f32[M, N]):\n  for i in M:\n    for j in N:\n      block C(vi: S(M) = i, vj: S(N) = j):\n"
                           "        C[vi, vj] = " +
                           sum + "\n";
  expect_right(text, inputs, outputs, {}, 1e-5);
}

TEST_CASE("blocks beyond what a launch takes are run in turns") {
  constexpr int64_t kMost = 65'535;
  SECTION("of free loops") {
    const std::string text =
        "program 1 f(A: u8[N], C: out u8[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      C[vi] = A[vi] + u8(3)\n";
    const int64_t size = kMost * 256 + 300;
    std::vector<Tensor> inputs{Tensor(DType::u8, {size})}, outputs{Tensor(DType::u8, {size})};
    for (int64_t i = 0; i < size; ++i) inputs[0].begin()[i] = static_cast<unsigned char>(i % 251);
    const Answer answer = Call{plugin(), text, pointers(inputs), pointers(outputs)}.run();
    INFO(answer.message);
    REQUIRE(answer);
    int64_t wrong = 0;
    for (int64_t i = 0; i < size; ++i) wrong += outputs[0].begin()[i] != static_cast<unsigned char>(i % 251 + 3) ? 1 : 0;
    CHECK(wrong == 0);
    CHECK(outputs[0].is_clean_outside());
  }
  SECTION("of bound loops with shared memory") {
    const std::string text = R"(program 1 f(A: u8[R, 16], C: out u8[R, 16]):
  alloc X: u8[R, 16] shared
  for r in R bind block.x:
    for t in 16 bind thread.x:
      block X(vr: S(R) = r, vt: S(16) = t):
        X[vr, vt] = A[vr, vt]
    for t1 in 16 bind thread.x:
      block C(vr: S(R) = r, vt: S(16) = t1):
        C[vr, vt] = X[vr, 15 - vt]
)";
    const int64_t rows = 2 * kMost + 7;
    std::vector<Tensor> inputs{Tensor(DType::u8, {rows, 16})}, outputs{Tensor(DType::u8, {rows, 16})};
    for (int64_t i = 0; i < 16 * rows; ++i) inputs[0].begin()[i] = static_cast<unsigned char>(i % 253);
    const Answer answer = Call{plugin(), text, pointers(inputs), pointers(outputs)}.run();
    INFO(answer.message);
    REQUIRE(answer);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 16 * rows; ++i) wrong += outputs[0].begin()[i] != inputs[0].begin()[i / 16 * 16 + 15 - i % 16] ? 1 : 0;
    CHECK(wrong == 0);
  }
}

TEST_CASE("a loop that the driver would end early is refused, else it is right") {
  const std::string text =
      "program 1 f(A: i32[K], C: out i32[1]):\n  for z in 1:\n    for k in K:\n      block C(vz: S(1) = z, vk: R(K) = k):\n"
      "        init:\n          C[vz] = i32(0)\n        C[vz] = C[vz] + A[vk]\n";
  for (const int64_t size : {int64_t{1000}, int64_t{200'000}}) {
    std::vector<Tensor> inputs{Tensor(DType::i32, {size})}, outputs{Tensor(DType::i32, {1})};
    for (int64_t i = 0; i < size; ++i) inputs[0].set(i, 3);
    const Answer answer = Call{plugin(), text, pointers(inputs), pointers(outputs)}.run();
    INFO(size << " " << answer.message);
    if (answer.status == NW_UNSUPPORTED && size > 65'535) {
      CHECK_THAT(answer.message, ContainsSubstring("ends such loops early"));
      continue;
    }
    REQUIRE(answer);
    CHECK(outputs[0].get(0) == static_cast<double>(3 * size));
  }
}

TEST_CASE("products are fused into sums only where a block says so") {
  // (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24 where the product is not rounded, else 0.
  for (const bool fuses : {false, true}) {
    const std::string text =
        std::string("program 1 f(a: f32[N], b: f32[N], y: out f32[N]):\n  for i in N:\n    block y(v: S(N) = i)") +
        (fuses ? " {\"contract\": \"true\"}" : "") + ":\n      y[v] = a[v] * a[v] + b[v]\n";
    std::vector<Tensor> inputs{Tensor(DType::f32, {8}), Tensor(DType::f32, {8})}, outputs{Tensor(DType::f32, {8})};
    for (int64_t i = 0; i < 8; ++i) {
      inputs[0].set(i, 1 + std::ldexp(1.0, -12));
      inputs[1].set(i, -1 - std::ldexp(1.0, -11));
    }
    const Answer answer = Call{plugin(), text, pointers(inputs), pointers(outputs)}.run();
    INFO(text << answer.message);
    REQUIRE(answer);
    if (!fuses)
      CHECK(outputs[0].get(3) == 0);
    else
      CHECK((outputs[0].get(3) == 0 || outputs[0].get(3) == std::ldexp(1.0, -24)));
  }
}

TEST_CASE("an i64 that was a narrower integer or an index keeps its sign") {
  const std::string text =
      "program 1 f(a: i32[N], b: i8[N], y: out i64[N], z: out bool[N], w: out i64[N], u: out i32[N], x: out f32[N]):\n"
      "  for i in N:\n    block y(v: S(N) = i):\n      y[v] = maximum(i64(a[v]), i64(-3))\n"
      "      z[v] = i64(b[v]) < i64(0)\n      w[v] = abs(i64(v * 7 - 20))\n      u[v] = a[clamp(a[v], 1, 3)]\n"
      "      x[v] = f32(v * 7 - 20)\n";
  std::vector<Tensor> inputs{Tensor(DType::i32, {9}), Tensor(DType::i8, {9})};
  std::vector<Tensor> outputs{Tensor(DType::i64, {9}), Tensor(DType::boolean, {9}), Tensor(DType::i64, {9}),
                              Tensor(DType::i32, {9}), Tensor(DType::f32, {9})};
  for (int64_t i = 0; i < 9; ++i) {
    inputs[0].set(i, static_cast<double>(i * 5 - 17));
    inputs[1].set(i, static_cast<double>(i - 4));
  }
  expect_right(text, inputs, outputs, {}, 0);
}

// ---- modules: run where spirv-val is installed ----

#ifdef SPIRV_VAL
namespace {

// Operators of floating point that stand in a module's main(), or in nw_add(), nw_sub() and nw_mul() without NoContraction.
// `found`: how many of the three there are.
int loose_operators(const std::string& module, size_t* found) {
  enum : uint32_t { kName = 5, kEntryPoint = 15, kFunction = 54, kDecorate = 71, kAdd = 129, kSub = 131, kMul = 133, kDiv = 136 };
  std::vector<uint32_t> words(module.size() / 4);
  std::memcpy(words.data(), module.data(), words.size() * 4);
  uint32_t main = 0, function = 0;
  std::set<uint32_t> strict, operators;
  int out = 0;
  for (size_t i = 5; i < words.size(); i += words[i] >> 16) {
    const uint32_t opcode = words[i] & 0xffff;
    if (opcode == kEntryPoint) main = words[i + 2];
    if (opcode == kDecorate && words[i + 2] == 42) strict.insert(words[i + 1]);
    if (opcode == kName) {
      const std::string name = reinterpret_cast<const char*>(&words[i + 2]);
      if (name.rfind("nw_add(", 0) == 0 || name.rfind("nw_sub(", 0) == 0 || name.rfind("nw_mul(", 0) == 0)
        operators.insert(words[i + 1]);
    }
    if (opcode == kFunction) function = words[i + 2];
    if (opcode != kAdd && opcode != kSub && opcode != kMul && opcode != kDiv) continue;
    if (function == main || (operators.count(function) != 0 && strict.count(words[i + 2]) == 0)) ++out;
  }
  *found += operators.size();
  return out;
}

// Float controls of a width that a module asks for: there are three.
int float_controls(const std::string& module, uint32_t width) {
  enum : uint32_t { kExecutionMode = 16, kDenormPreserve = 4459, kSignedZeroInfNanPreserve = 4461, kRoundingModeRTE = 4462 };
  std::vector<uint32_t> words(module.size() / 4);
  std::memcpy(words.data(), module.data(), words.size() * 4);
  int out = 0;
  for (size_t i = 5; i < words.size(); i += words[i] >> 16) {
    if ((words[i] & 0xffff) != kExecutionMode || words[i] >> 16 != 4 || words[i + 3] != width) continue;
    out += words[i + 2] == kDenormPreserve || words[i + 2] == kSignedZeroInfNanPreserve || words[i + 2] == kRoundingModeRTE ? 1 : 0;
  }
  return out;
}

}  // namespace

TEST_CASE("the modules of every example are valid, and nothing in them may be fused", "[.modules]") {
  const Folder folder;
  REQUIRE(again("every example program is right as it is written", folder.environment()) == 0);
  REQUIRE(again("the default schedule computes what the program does", folder.environment()) == 0);
  REQUIRE(again("casts round*", folder.environment()) == 0);
  const std::vector<fs::path> modules = folder.modules();
  CHECK(modules.size() >= 30);
  size_t found = 0, doubles = 0;
  for (const fs::path& kept : modules) {
    INFO(kept);
    const std::string bytes = read_file(kept), words = bytes.substr(0, bytes.size() - kSeal);
    const std::string module = (folder.path / "module.spv").string();
    std::ofstream(module, std::ios::binary) << words;
    CHECK(std::system((std::string(SPIRV_VAL) + " --target-env vulkan1.2 " + module).c_str()) == 0);
    CHECK(loose_operators(words, &found) == 0);
    CHECK(float_controls(words, 32) == 3);
    doubles += float_controls(words, 64) == 3 ? 1 : 0;
  }
  CHECK(doubles >= 24);  // casts from and to f64
  CHECK(found >= 30);
}
#endif
