// SPDX-License-Identifier: Apache-2.0
// test_narrows_hpp.cpp -- bindings/cpp/include/narrows/narrows.hpp, through the example plugin, which needs no other backend.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <narrows/narrows.hpp>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

using narrows::Buffer;
using narrows::Dims;
using narrows::Tensor;

namespace {

constexpr const char* kOp = "example.mod_add/1";
constexpr DLDataType kFloat{kDLFloat, 32, 1};

struct Modulus {
  int64_t modulus;
};

narrows::Runtime example(const narrows::Options& options = {}) {
  narrows::Runtime runtime(options);
  runtime.load(EXAMPLE_PLUGIN);
  return runtime;
}

bool same(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

template <class F>
std::optional<narrows::Error> error_of(F&& f) {
  try {
    f();
  } catch (const narrows::Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("dtype_of gives DLPack's codes", "[narrows.hpp]") {
  CHECK(same(narrows::dtype_of<float>::value, {kDLFloat, 32, 1}));
  CHECK(same(narrows::dtype_of<double>::value, {kDLFloat, 64, 1}));
  CHECK(same(narrows::dtype_of<narrows::float16>::value, {kDLFloat, 16, 1}));
  CHECK(same(narrows::dtype_of<narrows::bfloat16>::value, {kDLBfloat, 16, 1}));
  CHECK(same(narrows::dtype_of<int8_t>::value, {kDLInt, 8, 1}));
  CHECK(same(narrows::dtype_of<int64_t>::value, {kDLInt, 64, 1}));
  CHECK(same(narrows::dtype_of<uint16_t>::value, {kDLUInt, 16, 1}));
  CHECK(same(narrows::dtype_of<bool>::value, {kDLBool, 8, 1}));
}

TEST_CASE("a Tensor views a vector, an array, a pointer, a DLTensor, or nothing", "[narrows.hpp]") {
  std::vector<float> vector(6);
  const std::array<double, 3> array{};
  CHECK(Tensor(vector).shape() == Dims{6});
  CHECK_FALSE(Tensor(vector).read_only());
  CHECK(Tensor(array).read_only());
  CHECK(same(Tensor(array).dtype(), {kDLFloat, 64, 1}));
  CHECK_FALSE(Tensor().present());

  const Tensor matrix(vector.data(), {2, 3}, {1, 2});
  const DLTensor dl = matrix.dl();
  CHECK(dl.ndim == 2);
  CHECK(dl.shape[1] == 3);
  CHECK(dl.strides[1] == 2);
  CHECK(Tensor(vector).dl().strides == nullptr);
  CHECK(Tensor(vector.data(), Dims{}).dl().ndim == 0);

  DLTensor shifted = dl;
  shifted.byte_offset = 4;
  CHECK(Tensor(shifted).dl().byte_offset == 4);
  CHECK(Tensor(shifted).strides() == matrix.strides());
  static_assert(!std::is_constructible_v<Tensor, std::vector<std::string>&>);

  CHECK(error_of([&] { Tensor(vector.data(), {2, 3}, {1}); })->status() == NW_INVALID);
  CHECK(error_of([&] { Dims(std::vector<int64_t>(17, 1)); })->status() == NW_INVALID);
}

TEST_CASE("run computes and infer describes, for lists in braces and in vectors", "[narrows.hpp]") {
  const narrows::Runtime runtime = example();
  const std::vector<float> b = {10, 20}, c = {1, 2, 3};
  const std::vector<nw_spec> specs = runtime.infer(kOp, {b, c}, Modulus{2});
  REQUIRE(specs.size() == 1);
  CHECK(same(specs[0].dtype, kFloat));
  CHECK(specs[0].ndim == 1);
  CHECK(specs[0].shape[0] == 3);

  std::vector<float> a(3);
  runtime.run(kOp, {b, c}, {a}, Modulus{2});
  CHECK(a == std::vector<float>{11, 22, 13});
  const std::vector<Tensor> inputs = {b, c};
  std::vector<float> again(3);
  runtime.run(kOp, inputs, {again}, Modulus{2});
  CHECK(again == a);
}

TEST_CASE("a failure is an Error with status, argument and message", "[narrows.hpp]") {
  const narrows::Runtime runtime = example();
  const std::vector<float> b = {10, 20}, c = {1, 2, 3};
  std::vector<float> a(3), longer(4);
  const auto wrong_shape = error_of([&] { runtime.run(kOp, {b, c}, {longer}, Modulus{2}); });
  REQUIRE(wrong_shape.has_value());
  CHECK(wrong_shape->status() == NW_INVALID);
  CHECK(wrong_shape->argument() == 2);
  CHECK(std::string(wrong_shape->what()).rfind("invalid: ", 0) == 0);

  CHECK(error_of([&] { runtime.run(kOp, {b, {}}, {a}, Modulus{2}); })->argument() == 1);  // an absent tensor travels as NULL
  const auto unknown = error_of([&] { runtime.find_op("example.none/1"); });
  CHECK(unknown->status() != NW_OK);
  CHECK(std::string(unknown->what()).find("example.none/1") != std::string::npos);
  CHECK(error_of([&] { runtime.load("/no/such/plugin.so"); }).has_value());
  CHECK(error_of([&] { runtime.device({kDLCPU, 77}); }).has_value());
}

TEST_CASE("a view of const memory is no output, and 33 tensors are too many", "[narrows.hpp]") {
  const narrows::Runtime runtime = example();
  const std::vector<float> b = {10, 20}, c = {1, 2}, a = {5, 5};
  const auto error = error_of([&] { runtime.run(kOp, {b, c}, {a}, Modulus{2}); });
  REQUIRE(error.has_value());
  CHECK(error->argument() == 2);
  CHECK(a[0] == 5);
  const std::vector<Tensor> many(33, Tensor(b));
  CHECK(error_of([&] { runtime.run(kOp, many, {}, Modulus{2}); })->status() == NW_INVALID);
}

TEST_CASE("supports says why not", "[narrows.hpp]") {
  const narrows::Runtime runtime = example();
  const std::vector<float> b = {10, 20}, c = {1, 2};
  std::vector<float> a(2);
  std::string why;
  CHECK(runtime.supports(kOp, {b, c}, {a}, Modulus{2}, {}, &why));
  CHECK(why.empty());
  CHECK_FALSE(runtime.supports(kOp, {b, c}, {a}, Modulus{9}, {}, &why));
  CHECK(why.find("modulus is 9") != std::string::npos);
  CHECK_FALSE(runtime.supports(kOp, {b, c}, {a}, Modulus{9}));
}

TEST_CASE("a plan is launched by many threads, survives a move and its runtime's name", "[narrows.hpp]") {
  const std::vector<float> b = {10, 20}, c = {1, 2, 3};
  auto runtime = std::make_unique<narrows::Runtime>(example());
  std::vector<Buffer> outputs;  // Buffers are aligned alike: a plan fits memory of at least the alignment that it was made for
  outputs.reserve(5);
  for (int i = 0; i < 5; ++i) outputs.emplace_back(*runtime, kFloat, Dims{3});
  narrows::Plan first = runtime->plan(kOp, {b, c}, {outputs[4]}, Modulus{2});
  CHECK(first.backend() == "example");
  CHECK(first.kernel().empty());
  CHECK(first.workspace_size() == 0);
  const narrows::Plan plan = std::move(first);
  runtime.reset();

  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) failures += error_of([&] { plan.launch({b, c}, {outputs[t]}); }).has_value();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  for (int t = 0; t < 4; ++t) {
    std::vector<float> a(3);
    outputs[t].read(a.data());
    CHECK(a == std::vector<float>{11, 22, 13});
  }

  std::vector<float> longer(4);
  CHECK(error_of([&] { plan.launch({b, longer}, {longer}); })->status() == NW_INVALID);
}

TEST_CASE("a Buffer owns memory, moves, and outlives the name of its runtime", "[narrows.hpp]") {
  auto runtime = std::make_unique<narrows::Runtime>(example());
  const std::vector<float> b = {10, 20}, c = {1, 2, 3};
  Buffer in(*runtime, kFloat, {3}), out(*runtime, runtime->infer(kOp, {b, c}, Modulus{2})[0]);
  CHECK(in.size() == 12);
  CHECK(reinterpret_cast<uintptr_t>(in.data()) % 256 == 0);
  in.write(c.data());
  runtime->run(kOp, {b, in}, {out}, Modulus{2});
  Buffer moved = std::move(out);
  Buffer assigned(*runtime, kFloat, {0});
  CHECK(assigned.data() == nullptr);
  assigned = std::move(moved);
  runtime.reset();
  std::vector<float> a(3);
  assigned.read(a.data());
  CHECK(a == std::vector<float>{11, 22, 13});
  CHECK(assigned.shape() == Dims{3});
}

TEST_CASE("a Buffer of an impossible size is refused", "[narrows.hpp]") {
  const narrows::Runtime runtime = example();
  CHECK(error_of([&] { Buffer(runtime, kFloat, {-1}); })->status() == NW_INVALID);
  CHECK(error_of([&] { Buffer(runtime, kFloat, {int64_t{1} << 40, int64_t{1} << 40}); })->status() == NW_INVALID);
  CHECK(error_of([&] { Buffer(runtime, kFloat, {int64_t{1} << 60}); })->status() == NW_OUT_OF_MEMORY);
  for (const Dims& empty : {Dims{int64_t{1} << 40, int64_t{1} << 40, 0}, Dims{0, int64_t{1} << 40, int64_t{1} << 40}})
    CHECK(Buffer(runtime, kFloat, empty).size() == 0);
}

TEST_CASE("a Stream of the CPU is NULL and does nothing", "[narrows.hpp]") {
  const narrows::Runtime runtime = example();
  narrows::Stream stream(runtime);
  CHECK(stream.get() == nullptr);
  stream.sync();
  stream.wait(nullptr);
  const narrows::Stream moved = std::move(stream);
  moved.sync();
}

TEST_CASE("a runtime lists its backends, ops and device", "[narrows.hpp]") {
  const narrows::Runtime runtime = example();
  const std::vector<nw_backend_info> backends = runtime.backends();
  REQUIRE(!backends.empty());
  CHECK(std::string(backends[0].name) == "example");
  CHECK(std::string(backends[0].path) == EXAMPLE_PLUGIN);
  CHECK(backends[0].status == NW_OK);

  const std::vector<const nw_op*> ops = runtime.ops();
  CHECK(std::count_if(ops.begin(), ops.end(), [](const nw_op* op) { return std::strcmp(op->name, kOp) == 0; }) == 1);
  const nw_op& op = runtime.find_op(kOp);
  CHECK(std::string(op.inputs[1]) == "c");
  CHECK(op.params[0]->initial == 128);
  CHECK(std::string(runtime.device().name) != "host memory");  // the example's word: the cpu backend describes the CPU
  CHECK(runtime.extension<nw_spec>("example", "none/1") == nullptr);

  char from[4] = "abc", to[4] = "";
  runtime.copy(narrows::kCPU, to, narrows::kCPU, from, 4);
  CHECK(std::string(to) == "abc");
  runtime.clear_plan_cache();
  CHECK(runtime.get() != nullptr);
}

TEST_CASE("the log of a runtime goes where its options say", "[narrows.hpp]") {
  std::vector<std::string> lines;
  narrows::Options options;
  options.log = [&](int32_t, const char* message) { lines.emplace_back(message); };
  options.plugin_path = "relative/folder";  // refused, with a warning: only absolute folders are searched
  options.num_threads = 1;
  const narrows::Runtime runtime = example(options);
  REQUIRE(!lines.empty());
  CHECK(lines[0].find("relative/folder") != std::string::npos);
}
