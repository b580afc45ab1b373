// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- the conformance suite of conv1d: every dtype, feature and size, and every kernel variant, against the reference.
// Its layouts are in conv1d_layouts.cpp, backward in conv1d_backward.cpp, the named mistakes in conv1d_traps.cpp.
#include <catch2/catch_test_macros.hpp>

#include "conv1d_case.h"

using namespace narrows::test;
using narrows::reference::Conv1d;

namespace {

const std::vector<double> kSignal{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
const std::vector<double> kFilter{0, 1, 2, 3};
const std::vector<double> kFiltered{14, 20, 26, 32, 38, 44, 50, 56, 62, 68, 74, 80, 41, 14, 0};

// Around the widths of vectors (4 to 32 elements), of unrolled vectors, and of cache and thread blocks; primes.
constexpr int64_t kLengths[] = {1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17,  19,  31,  32,
                                33, 63, 64, 65, 97, 127, 128, 129, 255, 256, 257, 521, 1031};
constexpr int64_t kTaps[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 31, 33, 64, 65, 127};

Conv1dCase causal(DType dtype, int64_t length, int64_t taps, int64_t channels, int64_t filters, int64_t groups) {
  Conv1d s{.channels = channels, .length = length, .filters = filters, .taps = taps, .groups = groups, .pad_left = taps - 1};
  return {.shape = s, .dtype = dtype, .bias = (length & 1) != 0};
}

}  // namespace

TEST_CASE("conv1d reference: puzzle 17, and a strided, dilated, padded sum by hand", "[conv1d][reference]") {
  CHECK(narrows::reference::conv1d({.length = 15, .taps = 4, .pad_right = 3}, kSignal, kFilter) == kFiltered);
  // x = 1..6 with two zeros before and one after; taps 10, 1 three apart, every second position: 0 0 | 1 2 3 4 5 6 | 0.
  const Conv1d s{.length = 6, .taps = 2, .stride = 2, .dilation = 3, .pad_left = 2, .pad_right = 1};
  CHECK(narrows::reference::conv1d(s, {1, 2, 3, 4, 5, 6}, {10, 1}, {100}) == std::vector<double>{102, 114, 136});
}

TEST_CASE("conv1d: puzzle 17's exact example", "[conv1d]") {
  for (const DType dtype : kFloatDTypes)
    for (const int rank : {1, 2, 3})
      for (const char* kernel : kernels("conv1d")) {
        const Conv1dCase c{.shape = {.length = 15, .taps = 4, .pad_right = 3}, .dtype = dtype, .rank = rank};
        Tensor x(dtype, c.x_dims()), w(dtype, c.w_dims()), y(dtype, c.y_dims());
        x.set(kSignal);
        w.set(kFilter);
        const Result result = run("conv1d", {&x, &w}, {&y}, c.params(), kernel);
        if (!result.was_declined()) expect_close(result, y, kFiltered, kExact);
      }
}

TEST_CASE("conv1d: ranks, strides, dilations, groups, paddings", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d features");
    for (const Conv1dCase& c : conv1d_features(dtype)) check_conv1d(c, rng);
  }
}

TEST_CASE("conv1d: a signal, lengths and taps around every block", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d sizes of a signal");
    for (const int64_t length : kLengths)
      for (const int64_t taps : kTaps) check_conv1d(causal(dtype, length, taps, 1, 1, 1), rng);
  }
}

TEST_CASE("conv1d: dense and depthwise, lengths and taps around every block", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d sizes of channels");
    for (const int64_t length : kLengths)
      for (const int64_t taps : {1, 2, 3, 4, 5, 8, 17, 33}) {
        check_conv1d(causal(dtype, length, taps, 3, 4, 1), rng);
        check_conv1d(causal(dtype, length, taps, 5, 5, 5), rng);
      }
  }
}

TEST_CASE("conv1d: few and many channels", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d channels");
    for (const int64_t channels : {1, 2, 16, 17, 33, 64, 80})
      for (const int64_t filters : {1, 3, 8, 16, 17, 33, 70})
        for (const int64_t taps : {1, 3}) {
          Conv1d s{.batch = 2, .channels = channels, .length = 40, .filters = filters, .taps = taps, .pad_left = 1, .pad_right = 1};
          s.stride = (channels + filters) % 2 + 1;
          check_conv1d({.shape = s, .dtype = dtype}, rng);
        }
  }
}

TEST_CASE("conv1d: a long signal of several channels", "[conv1d][large]") {
  constexpr int64_t kLong = (int64_t{1} << 16) + 77;
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d long and wide");
    for (const Conv1d& s : {Conv1d{.channels = 3, .length = kLong, .filters = 2, .taps = 3, .pad_left = 2},
                            Conv1d{.channels = 2, .length = kLong, .filters = 2, .taps = 2, .groups = 2},
                            Conv1d{.channels = 2, .length = 2 * kLong, .filters = 2, .taps = 3, .stride = 2},
                            Conv1d{.channels = 2, .length = kLong, .filters = 3, .taps = 1}})
      check_conv1d({.shape = s, .dtype = dtype}, rng);
  }
}

TEST_CASE("conv1d: few outputs of long filters", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d few outputs");
    for (const int64_t outputs : {1, 2, 3, 4, 5, 7, 12, 16, 17})
      for (const int64_t channels : {8, 61, 131})
        for (const int64_t taps : {1, 5}) {
          // Outputs 3 apart; the first meets padding, and so does the last.
          Conv1d s{.channels = channels, .filters = 8 + outputs, .taps = taps, .stride = 3, .pad_left = taps / 2};
          s.length = 3 * outputs - 2, s.pad_right = taps - 1 - s.pad_left;
          check_conv1d({.shape = s, .dtype = dtype, .bias = outputs % 2 != 0}, rng);
          s.batch = outputs, s.length = 1, s.channels *= 2, s.filters *= 2, s.groups = 2;
          check_conv1d({.shape = s, .dtype = dtype}, rng);
        }
  }
}

TEST_CASE("conv1d: groups of many channels", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d large groups");
    for (const int64_t groups : {2, 3, 5})
      for (const int64_t channels : {16, 17})
        for (const int64_t filters : {1, 7, 24}) {
          const Conv1d s{.batch = 2,
                         .channels = groups * channels,
                         .length = 53,
                         .filters = groups * filters,
                         .taps = 3,
                         .groups = groups,
                         .pad_left = 2};
          check_conv1d({.shape = s, .dtype = dtype}, rng);
        }
  }
}

TEST_CASE("conv1d: more taps than any block, signals shorter and longer than the filter", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d taps");
    for (const int64_t taps : {300, 513, 1025})
      for (const int64_t length : {1, 100, 1200}) {
        const int64_t right = std::max<int64_t>(0, taps - length);
        for (const int64_t stride : {1, 3}) {
          Conv1d s{
              .channels = 2, .length = length, .filters = 3, .taps = taps, .stride = stride, .pad_left = 17, .pad_right = right};
          check_conv1d({.shape = s, .dtype = dtype}, rng);
          s.channels = s.filters = s.groups = 3;
          check_conv1d({.shape = s, .dtype = dtype, .rank = 2}, rng);
        }
      }
  }
}

TEST_CASE("conv1d: signals longer than a thread's share", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d long");
    check_conv1d({.shape = {.length = 100003, .taps = 5, .pad_left = 4}, .dtype = dtype, .rank = 1}, rng);
    check_conv1d({.shape = {.length = 70001, .taps = 7, .stride = 3, .dilation = 2}, .dtype = dtype, .rank = 1}, rng);
    check_conv1d(
        {.shape = {.batch = 2, .channels = 8, .length = 3001, .filters = 8, .taps = 4, .groups = 8, .pad_left = 3}, .dtype = dtype},
        rng);
  }
}

TEST_CASE("conv1d: a wide dense layer on every thread", "[conv1d]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Rng rng("conv1d wide");
    check_conv1d({.shape = {.batch = 3, .channels = 65, .length = 301, .filters = 67, .taps = 3, .pad_left = 1, .pad_right = 1},
                  .dtype = dtype},
                 rng);
  }
}

// Rows of several tiles each, more of them than a device runs at once: there a block may go on to the next tile, or take a larger
// one.
TEST_CASE("conv1d: as many tiles as keep a device busy", "[conv1d]") {
  Rng rng("conv1d busy");
  Conv1d rows{.channels = 690, .length = 1540, .filters = 690, .taps = 9, .groups = 690, .pad_left = 4, .pad_right = 3};
  check_conv1d({.shape = rows, .dtype = DType::f32}, rng);
  rows.length = 1543, rows.filters = 1380;
  check_conv1d({.shape = rows, .dtype = DType::f16}, rng);
  Conv1d dense{.channels = 8, .filters = 66, .taps = 3, .pad_left = 1, .pad_right = 1};
  // Tiles of 128 positions fill the first length better than tiles of 160, which fill the others better.
  for (const int64_t length : {16500, 16480, 16476}) {
    dense.length = length;
    check_conv1d({.shape = dense, .dtype = DType::f16}, rng);
  }
  dense.channels = 9, dense.length = 16417, dense.taps = 2, dense.dilation = 3;
  check_conv1d({.shape = dense, .dtype = DType::f16}, rng);
}

// Wide in both directions, so that grad_x is a wide product too; lengths just short of a tile, one and a little more; taps that
// make a run of their own, several, or none, and positions that runs share (stride = dilation). Every two of taps, length and
// filters meet: all three together would be three times as much work, and minutes where a CPU plays the device.
TEST_CASE("conv1d: runs of taps in wide products", "[conv1d][backward]") {
  Rng rng("conv1d runs");
  constexpr int64_t kLengths[] = {47, 128, 131};
  for (const int64_t taps : {1, 2, 3, 4, 5, 6, 7})
    for (int64_t turn = taps; const int64_t filters : {48, 80, 100, 130}) {
      const int64_t length = kLengths[turn++ % 3], step = taps % 2 + 1;
      const Conv1d s{.batch = length < 100 ? 2 : 1,
                     .channels = 70,
                     .length = length,
                     .filters = filters,
                     .taps = taps,
                     .stride = step,
                     .dilation = step,
                     .pad_left = taps / 2 * step,
                     .pad_right = 1};
      check_conv1d({.shape = s}, rng);
      check_conv1d_backward({.shape = s}, rng);
    }
}

// Signals of a wide product at every step, and its weights in the gradient of x, which lie as far apart as there are taps.
TEST_CASE("conv1d: elements up to sixteen apart in wide products", "[conv1d][backward]") {
  Rng rng("conv1d steps");
  for (const DType dtype : kFloatDTypes)
    for (int64_t step = 3; step <= 16; ++step) {
      const Conv1d strided{.channels = 4, .length = 50 * step, .filters = 24, .taps = 2, .stride = step, .pad_left = 1};
      check_conv1d({.shape = strided, .dtype = dtype}, rng);
      const Conv1d long_filter{.channels = 51, .length = step + 9, .filters = 8, .taps = step};
      check_conv1d_backward({.shape = long_filter, .dtype = dtype}, rng, kGradX);
    }
}

TEST_CASE("conv1d: tensors without elements, and sums without terms", "[conv1d]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d empty");
    check_conv1d({.shape = {.batch = 0, .channels = 3, .length = 9, .filters = 4, .taps = 3}, .dtype = dtype}, rng);
    check_conv1d({.shape = {.batch = 2, .channels = 3, .length = 9, .filters = 0, .taps = 3}, .dtype = dtype}, rng);
    check_conv1d(
        {.shape = {.batch = 2, .channels = 3, .length = 0, .filters = 4, .taps = 2, .pad_left = 2, .pad_right = 1}, .dtype = dtype},
        rng);
    check_conv1d({.shape = {.batch = 2, .channels = 0, .length = 9, .filters = 4, .taps = 3}, .dtype = dtype}, rng);
    check_conv1d({.shape = {.length = 0, .taps = 2, .pad_left = 2, .pad_right = 1}, .dtype = dtype, .rank = 1}, rng);
  }
}

TEST_CASE("conv1d: params of 0 are their neutral values, and a missing blob is all zeros", "[conv1d]") {
  Rng rng("conv1d zeros");
  Conv1dCase c{.shape = {.batch = 2, .channels = 3, .length = 9, .filters = 4, .taps = 3}};
  Conv1dTensors t(c, rng);
  const auto reference = narrows::reference::conv1d(c.shape, t.x.values(), t.w.values(), t.bias.values());
  const Tolerance tolerance{.rtol = 1e-6, .atol = 1e-6};  // nine products of numbers up to 1
  expect_close(run("conv1d", {&t.x, &t.w, &t.bias}, {&t.y}, nw_conv1d_params{}), t.y, reference, tolerance);
  expect_close(run("conv1d", {&t.x, &t.w, &t.bias}, {&t.y}), t.y, reference, tolerance);
}

TEST_CASE("conv1d: a short params blob is extended with zeros, a long one may end in zeros", "[conv1d]") {
  Rng rng("conv1d blobs");
  Conv1dCase c{.shape = {.batch = 2, .channels = 4, .length = 19, .filters = 4, .taps = 3, .stride = 2, .dilation = 3}};
  Conv1dTensors t(c, rng);
  const auto reference = narrows::reference::conv1d(c.shape, t.x.values(), t.w.values(), t.bias.values());
  const Blob whole(c.params());
  for (const size_t size :
       {size_t{9}, size_t{16}, size_t{17}, size_t{24}, size_t{40}, sizeof(nw_conv1d_params), sizeof(nw_conv1d_params) + 64}) {
    std::vector<unsigned char> bytes = whole.bytes;
    bytes.resize(size, 0);
    const Result result = run("conv1d", {&t.x, &t.w, &t.bias}, {&t.y}, Blob(bytes), nullptr, 0, "blob of " + std::to_string(size));
    expect_close(result, t.y, reference, {.rtol = 1e-6, .atol = 1e-6});
  }
}

TEST_CASE("conv1d: 200 seeded shapes with layouts of every kind", "[conv1d]") {
  Rng rng("conv1d sweep");
  for (int i = 0; i < 200; ++i) check_conv1d(random_conv1d(rng, kFloatDTypes[i % 4]), rng);
}
