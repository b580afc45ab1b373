// SPDX-License-Identifier: Apache-2.0
// test_space.cpp -- Launch::space() and Launch::walk() against plain loops over the indices.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <cstring>
#include <narrows/plugin.hpp>
#include <numeric>
#include <random>
#include <vector>

using namespace narrows::plugin;

namespace {

// A host whose loop hands out pieces of the grain, the last one first.
nw_host backward_host() {
  nw_host host{};
  host.struct_size = sizeof host;
  host.num_threads = 3;
  host.parallel_for = [](void*, int64_t n, int64_t grain, void (*piece)(void*, int64_t, int64_t), void* arg) {
    for (int64_t begin = (n - 1) / grain * grain; n > 0 && begin >= 0; begin -= grain)
      piece(arg, begin, std::min(begin + grain, n));
  };
  return host;
}

// A tensor of T in memory of its own: some dimensions broadcast, reversed, with gaps, in any order. broadcasts: it may lack leading
// dimensions, and repeat elements.
template <class T>
struct Sample {
  std::vector<int64_t> shape, strides;
  std::vector<T> memory;
  DLTensor tensor{};

  Sample(std::mt19937& random, const std::vector<int64_t>& whole, bool broadcasts) {
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
    const int64_t lacking = broadcasts ? below(whole.size() + 1) : 0;
    shape.assign(whole.begin() + lacking, whole.end());
    for (int64_t& extent : shape)
      if (broadcasts && below(4) == 0) extent = 1;
    strides.resize(shape.size());
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (below(2) == 0)
      std::shuffle(order.begin(), order.end(), random);
    else
      std::reverse(order.begin(), order.end());
    int64_t step = 1 + below(2), first = 0;
    for (const size_t d : order) {
      const bool repeats = broadcasts && below(5) == 0, backwards = below(4) == 0;
      strides[d] = repeats ? 0 : backwards ? -step : step;
      if (backwards && !repeats) first += step * std::max<int64_t>(shape[d] - 1, 0);
      if (!repeats) step *= std::max<int64_t>(shape[d], 1) + (below(4) == 0);
    }
    memory.resize(static_cast<size_t>(step) + 1);
    std::iota(memory.begin(), memory.end(), T(1));
    tensor = {memory.data(), {kDLCPU, 0},    static_cast<int32_t>(shape.size()),      dtype<T>(),
              shape.data(),  strides.data(), static_cast<uint64_t>(first) * sizeof(T)};
  }
  // The element at these indices of the whole shape.
  T& at(const std::vector<int64_t>& index) {
    const size_t ahead = index.size() - shape.size();
    int64_t place = static_cast<int64_t>(tensor.byte_offset / sizeof(T));
    for (size_t d = 0; d < shape.size(); ++d) place += (shape[d] == 1 ? 0 : index[ahead + d]) * strides[d];
    return memory[static_cast<size_t>(place)];
  }
};

template <class Body>
void for_each_index(const std::vector<int64_t>& shape, const Body& body) {
  std::vector<int64_t> index(shape.size());
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
    body(index);
  }
}

std::vector<int64_t> random_shape(std::mt19937& random) {
  std::vector<int64_t> shape(random() % 6);
  for (int64_t& extent : shape) extent = static_cast<int64_t>(random() % 5);
  if (random() % 4 != 0)
    for (int64_t& extent : shape) extent = std::max<int64_t>(extent, 1);
  return shape;
}

}  // namespace

TEST_CASE("a walk visits each element once, with what is broadcast to it") {
  std::mt19937 random(1);
  const nw_host host = backward_host();
  const nw_call call{};
  const Launch launch(&host, &call);
  for (int round = 0; round < 3000; ++round) {
    INFO("round " << round);
    const std::vector<int64_t> shape = random_shape(random);
    Sample<double> out(random, shape, false);
    Sample<float> a(random, shape, true);
    Sample<int32_t> b(random, shape, true);
    std::vector<double> want = out.memory;
    want.swap(out.memory);
    out.tensor.data = out.memory.data();
    for_each_index(shape, [&](const std::vector<int64_t>& index) { out.at(index) += 1000.0 * a.at(index) + 1e6 * b.at(index); });
    want.swap(out.memory);
    out.tensor.data = out.memory.data();
    launch.walk(
        {out.tensor, a.tensor, b.tensor},
        [](const Piece& piece) {
          const auto y = piece.of<double>(0);
          const auto x = piece.of<const float>(1);
          const auto z = piece.of<const int32_t>(2);
          for (int64_t i = 0; i < piece.size(); ++i) y(i) += 1000.0 * x(i) + 1e6 * z(i);
        },
        1 + static_cast<int64_t>(random() % 9));
    CHECK(out.memory == want);
  }
}

TEST_CASE("a space gives the place of every element by its number") {
  std::mt19937 random(2);
  const nw_host host = backward_host();
  const nw_call call{};
  for (int round = 0; round < 1000; ++round) {
    INFO("round " << round);
    const std::vector<int64_t> shape = random_shape(random);
    Sample<int32_t> out(random, shape, false), in(random, shape, true);
    const Space space = Launch(&host, &call).space({out.tensor, in.tensor});
    const auto element = [&](Sample<int32_t>& of, int k, int64_t i) {
      return of.memory[(of.tensor.byte_offset + static_cast<uint64_t>(space.offset_of(k, i))) / sizeof(int32_t)];
    };
    std::vector<std::pair<int32_t, int32_t>> got, want;
    for (int64_t i = 0; i < space.size(); ++i) {
      got.emplace_back(element(out, 0, i), element(in, 1, i));
      int64_t bytes[2];
      space.offsets_of(i, bytes);
      CHECK((bytes[0] == space.offset_of(0, i) && bytes[1] == space.offset_of(1, i)));
    }
    for_each_index(shape, [&](const std::vector<int64_t>& index) { want.emplace_back(out.at(index), in.at(index)); });
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    CHECK(got == want);
  }
}

TEST_CASE("contiguous tensors of any shape are one row, and an extent of 0 is no element beside huge ones") {
  const nw_host host = backward_host();
  const nw_call call{};
  const Launch launch(&host, &call);
  int64_t shape[] = {2, 1, 3, 4};
  const DLTensor dense{nullptr, {kDLCPU, 0}, 4, dtype<float>(), shape, nullptr, 0};
  const Space space = launch.space({dense, dense});
  CHECK(space.ndim == 1);
  CHECK(space.row_size() == 24);
  CHECK(space.step(1) == 4);
  int64_t huge[] = {int64_t{1} << 62, int64_t{1} << 62, 0}, strides[] = {0, 0, 1};
  const DLTensor empty{nullptr, {kDLCPU, 0}, 3, dtype<float>(), huge, strides, 0};
  CHECK(launch.space({empty}).size() == 0);
  launch.walk({empty}, [](const Piece&) { FAIL("a piece of nothing"); });
}

TEST_CASE("tensors that cannot be walked together are refused") {
  const nw_host host = backward_host();
  const nw_call call{};
  const Launch launch(&host, &call);
  int64_t shape[] = {2, 3}, other[] = {3, 3};
  float memory[9] = {};
  const DLTensor a{memory, {kDLCPU, 0}, 2, dtype<float>(), shape, nullptr, 0},
      b{memory, {kDLCPU, 0}, 2, dtype<float>(), other, nullptr, 0};
  using Catch::Matchers::Message;
  CHECK_THROWS_MATCHES(launch.space({a, b}), std::invalid_argument,
                       Message("tensor 1 of a walk has shape (3, 3); expected one that broadcasts to (2, 3)"));
  CHECK_THROWS_MATCHES(launch.space({a, a, a, a, a, a, a, a}), std::invalid_argument,
                       Message("8 tensors to walk; expected 1 to 7"));
  CHECK_THROWS_MATCHES(launch.walk({a}, [](const Piece& piece) { piece.of<int32_t>(0); }), std::invalid_argument,
                       Message("tensor 0 of a walk has dtype float32; the kernel asks for int32"));
}
