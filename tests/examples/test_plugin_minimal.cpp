// SPDX-License-Identifier: Apache-2.0
// test_plugin_minimal.cpp -- examples/plugin_minimal/plugin.c: what it computes, what it refuses, and every slot of its table.
#include <dlfcn.h>
#include <narrows/plugin.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <narrows/narrows.hpp>
#include <string>
#include <vector>

using narrows::Tensor;

// A sanitizer that is asked for far too much memory shall say no, as malloc does, and not end the program.
// NOLINTBEGIN(bugprone-reserved-identifier): the names are the sanitizers'
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
// NOLINTEND(bugprone-reserved-identifier)

namespace {

constexpr const char* kOp = "example.mod_add/1";

struct Modulus {
  int64_t modulus;
};

narrows::Runtime example() {
  narrows::Runtime runtime;
  runtime.load(EXAMPLE_PLUGIN);
  return runtime;
}

const nw_plugin* table() {
  void* library = dlopen(EXAMPLE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto query = reinterpret_cast<nw_plugin_query_fn>(dlsym(library, NW_PLUGIN_QUERY));
  REQUIRE(query != nullptr);
  nw_error error;
  return query(NW_ABI_MAJOR, &error);
}

std::vector<float> numbers(int64_t n, float first, float step) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + step * static_cast<float>(i);
  return values;
}

// Runs f, which must throw an Error of this status whose message has these words.
template <class F>
void refused(int32_t status, int32_t argument, const std::string& words, F&& f) {
  try {
    f();
  } catch (const narrows::Error& error) {
    INFO(error.what());
    CHECK(error.status() == status);
    CHECK(error.argument() == argument);
    CHECK(std::string(error.what()).find(words) != std::string::npos);
    return;
  }
  FAIL("not refused: " << words);
}

}  // namespace

TEST_CASE("plugin.c is the text that an author copies: at most 150 lines of 132 columns", "[plugin_minimal]") {
  std::ifstream source(EXAMPLE_SOURCE);
  REQUIRE(source.good());
  int lines = 0;
  for (std::string line; std::getline(source, line); ++lines) CHECK(line.size() <= 132);
  CHECK(lines > 0);
  CHECK(lines <= 150);
}

TEST_CASE("mod_add: A[i] = B[i % modulus] + C[i]", "[plugin_minimal]") {
  const narrows::Runtime runtime = example();
  for (const int64_t n : {0, 1, 4, 127, 128, 129, 100003})
    for (const int64_t modulus : {1, 3, 128}) {
      const std::vector<float> b = numbers(128, 1000, 1), c = numbers(n, 0, 0.5f);
      std::vector<float> a(static_cast<size_t>(n), -1);
      runtime.run(kOp, {b, c}, {a}, Modulus{modulus});
      int64_t wrong = 0;
      for (int64_t i = 0; i < n; ++i) wrong += a[i] != b[i % modulus] + c[i];
      CHECK(wrong == 0);
    }
}

TEST_CASE("mod_add takes any strides and offsets, and c as a", "[plugin_minimal]") {
  const narrows::Runtime runtime = example();
  std::vector<float> b = {9, 0, 100, 0, 200, 0}, c = numbers(5, 0, 1), a(10, -1);
  runtime.run(kOp, {Tensor(&b[4], {3}, {-2}), c}, {Tensor(a.data(), {5}, {2})}, Modulus{2});
  CHECK(a == std::vector<float>{200, -1, 101, -1, 202, -1, 103, -1, 204, -1});

  int64_t extent = 2;
  const DLTensor with_offset{b.data(), narrows::kCPU, 1, {kDLFloat, 32, 1}, &extent, nullptr, 2 * sizeof(float)};
  runtime.run(kOp, {Tensor(with_offset), c}, {c}, Modulus{1});
  CHECK(c == std::vector<float>{100, 101, 102, 103, 104});
}

TEST_CASE("mod_add reads a blob of any length: what is absent is 0, what is too much must be 0", "[plugin_minimal]") {
  const narrows::Runtime runtime = example();
  const std::vector<float> b = {10, 20, 30}, c = {1, 2, 3};
  std::vector<float> a(3);
  const unsigned char blob[17] = {2};
  for (const size_t size : {1, 3, 8, 17}) {
    a.assign(3, -1);
    runtime.run(kOp, {b, c}, {a}, {blob, size});
    CHECK(a == std::vector<float>{11, 22, 13});
  }
  unsigned char tail[9] = {2, 0, 0, 0, 0, 0, 0, 0, 7};
  refused(NW_UNSUPPORTED, -1, "byte 8 is", [&] { runtime.run(kOp, {b, c}, {a}, {tail, 9}); });
  refused(NW_INVALID, -1, "modulus is 0", [&] { runtime.run(kOp, {b, c}, {a}); });
}

TEST_CASE("mod_add refuses what is wrong and what it does not know", "[plugin_minimal]") {
  const narrows::Runtime runtime = example();
  std::vector<float> b = {10, 20, 30}, c = {1, 2, 3}, a(4);
  const Tensor out(a.data(), {3});
  const Modulus two{2};
  refused(NW_INVALID, -1, "modulus is -1", [&] { runtime.run(kOp, {b, c}, {out}, Modulus{-1}); });
  refused(NW_INVALID, -1, "modulus is 4; expected 1 to 3", [&] { runtime.run(kOp, {b, c}, {out}, Modulus{4}); });

  narrows::CallOptions options;
  options.kernel = "fast";
  refused(NW_UNSUPPORTED, -1, "fast", [&] { runtime.run(kOp, {b, c}, {out}, two, options); });
  options.kernel = nullptr;
  options.flags = 1u << 30;
  refused(NW_UNSUPPORTED, -1, "flags", [&] { runtime.run(kOp, {b, c}, {out}, two, options); });
  options.flags = NW_DETERMINISTIC;
  runtime.run(kOp, {b, c}, {out}, two, options);

  std::vector<double> wide(3);
  refused(NW_UNSUPPORTED, 0, "dtype", [&] { runtime.run(kOp, {wide, wide}, {wide}, two); });
  refused(NW_INVALID, 0, "ndim is 2", [&] { runtime.run(kOp, {Tensor(b.data(), {1, 3}), c}, {out}, two); });
  auto* odd = reinterpret_cast<float*>(reinterpret_cast<char*>(a.data()) + 2);
  refused(NW_UNSUPPORTED, 2, "multiple of 2", [&] { runtime.run(kOp, {b, c}, {Tensor(odd, {3})}, two); });
  refused(NW_UNSUPPORTED, 2, "a is b", [&] { runtime.run(kOp, {b, c}, {b}, two); });
}

TEST_CASE("the table of plugin.c keeps what plugin.h promises", "[plugin_minimal]") {
  const nw_plugin* plugin = table();
  REQUIRE(plugin != nullptr);
  CHECK(plugin == table());
  nw_host host{};
  void* self = nullptr;
  nw_error error;
  REQUIRE(plugin->create(&host, &self, &error) == NW_OK);

  int32_t count = 0;
  CHECK(plugin->device_count(self, &count, &error) == NW_OK);
  CHECK(count == 1);
  nw_device_info info{};
  info.struct_size = sizeof info;
  CHECK(plugin->device_info(self, 0, &info, &error) == NW_OK);
  CHECK(std::string(info.name) == "host memory");
  CHECK(plugin->device_info(self, 1, &info, &error) == NW_INVALID);
  CHECK(std::string(error.message).find("device_id is 1") != std::string::npos);

  void *memory = &host, *stream = &host;
  CHECK(plugin->alloc(self, 0, 0, nullptr, &memory, &error) == NW_OK);
  CHECK(memory == nullptr);
  CHECK(plugin->alloc(self, 0, 1000, nullptr, &memory, &error) == NW_OK);
  CHECK(reinterpret_cast<uintptr_t>(memory) % 256 == 0);
  CHECK(plugin->free(self, 0, memory, nullptr, &error) == NW_OK);
  CHECK(plugin->free(self, 0, nullptr, nullptr, &error) == NW_OK);
  CHECK(plugin->alloc(self, 0, UINT64_MAX / 2, nullptr, &memory, &error) == NW_OUT_OF_MEMORY);
  CHECK(plugin->alloc(self, 0, 1, &host, &memory, &error) == NW_INVALID);
  CHECK(plugin->free(self, 0, nullptr, &host, nullptr) == NW_INVALID);  // error may be NULL

  const char from[] = "four";
  char to[5] = {};
  const DLDevice cpu{kDLCPU, 0}, cuda{kDLCUDA, 0}, second{kDLCPU, 1};
  CHECK(plugin->copy(self, cpu, to, cpu, from, 5, nullptr, &error) == NW_OK);
  CHECK(std::string(to) == "four");
  CHECK(plugin->copy(self, cpu, to, cuda, from, 5, nullptr, &error) == NW_UNSUPPORTED);
  CHECK(plugin->copy(self, second, to, cpu, from, 5, nullptr, &error) == NW_INVALID);

  CHECK(plugin->stream_create(self, 0, &stream, &error) == NW_OK);
  CHECK(stream == nullptr);
  CHECK(plugin->stream_sync(self, 0, nullptr, &error) == NW_OK);
  CHECK(plugin->stream_wait(self, 0, nullptr, nullptr, &error) == NW_OK);
  CHECK(plugin->stream_wait(self, 0, nullptr, &host, &error) == NW_INVALID);
  CHECK(plugin->stream_wait(self, 0, &host, nullptr, &error) == NW_INVALID);
  CHECK(plugin->stream_destroy(self, 0, nullptr, &error) == NW_OK);
  plugin->destroy(self);
}

// The host refuses a tail that no loaded plugin knows; a plugin must refuse the one that only others know.
TEST_CASE("plan of plugin.c refuses a tail that is not zero", "[plugin_minimal]") {
  const int64_t extent = 4, stride = 1;
  const nw_tensor_sig in{{kDLFloat, 32, 1}, 1, 8, 0, -1, &extent, &stride};
  const nw_tensor_sig tensors[3] = {in, in, in};
  unsigned char blob[9] = {2, 0, 0, 0, 0, 0, 0, 0, 7};
  nw_sig sig{};
  sig.struct_size = sizeof sig;
  sig.num_inputs = 2;
  sig.num_outputs = 1;
  sig.op = kOp;
  sig.tensors = tensors;
  sig.params = blob;
  sig.params_size = 9;
  sig.device = narrows::kCPU;
  nw_error error{};
  CHECK(table()->plan(nullptr, &sig, nullptr, nullptr, &error) == NW_UNSUPPORTED);
  CHECK(std::string(error.message).find("byte 8 is 7; expected 0 from byte 8 on") != std::string::npos);
  sig.params_size = 8;
  CHECK(table()->plan(nullptr, &sig, nullptr, nullptr, &error) == NW_OK);
}

TEST_CASE("plugin.c refuses a host of another major", "[plugin_minimal]") {
  void* library = dlopen(EXAMPLE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto query = reinterpret_cast<nw_plugin_query_fn>(dlsym(library, NW_PLUGIN_QUERY));
  nw_error error{};
  CHECK(query(NW_ABI_MAJOR + 1, &error) == nullptr);
  CHECK(error.status == NW_UNSUPPORTED);
  CHECK(std::string(error.message).find("ABI major is 2; expected 1") != std::string::npos);
  CHECK(query(NW_ABI_MAJOR + 1, nullptr) == nullptr);
}
