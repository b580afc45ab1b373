// SPDX-License-Identifier: Apache-2.0
// conv1d_layouts.cpp -- conv1d and conv1d_backward on strided, transposed, reversed, broadcast, offset and misaligned tensors.
#include <catch2/catch_test_macros.hpp>

#include "conv1d_case.h"

using namespace narrows::test;
using narrows::reference::Conv1d;

namespace {

// One shape for each kind of kernel that a backend may have: a signal, depthwise, grouped, dense, dense and wide.
std::vector<Conv1dCase> kinds(DType dtype) {
  std::vector<Conv1dCase> cases;
  for (const Conv1d& s : {Conv1d{.batch = 2, .length = 37, .taps = 5, .pad_left = 2},
                          Conv1d{.batch = 2, .channels = 4, .length = 37, .filters = 4, .taps = 4, .groups = 4, .pad_left = 3},
                          Conv1d{.batch = 2, .channels = 6, .length = 21, .filters = 4, .taps = 3, .stride = 2, .groups = 2},
                          Conv1d{.batch = 2, .channels = 17, .length = 35, .filters = 9, .taps = 3, .pad_left = 1, .pad_right = 1}})
    cases.push_back({.shape = s, .dtype = dtype});
  return cases;
}

std::vector<Layout> input_layouts(int ndim, DType dtype) {
  std::vector<Layout> layouts = all_layouts(ndim, dtype);
  layouts.push_back(Layout::broadcast({true}));
  if (ndim == 3) {
    layouts.push_back(Layout::broadcast({false, true, false}));
    layouts.push_back(Layout::broadcast({false, false, true}));
    layouts.push_back(Layout::broadcast({true, true, true}));
  }
  return layouts;
}

// The three axes in every order: (N,L,C) is how most audio frameworks hold x, and (K,C,O) how they hold w.
std::vector<Layout> permutations() {
  std::vector<Layout> layouts;
  for (const std::vector<int>& order : {std::vector<int>{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    Layout layout;
    layout.name = "order(" + std::to_string(order[0]) + std::to_string(order[1]) + std::to_string(order[2]) + ")";
    layout.order = order;
    layouts.push_back(layout);
  }
  return layouts;
}

template <class Check>
void for_each_layout(DType dtype, Check check) {
  for (const Conv1dCase& kind : kinds(dtype)) {
    auto with = [&](auto member, const Layout& layout) {
      Conv1dCase c = kind;
      c.*member = layout;
      check(c);
    };
    for (auto member : {&Conv1dCase::x_layout, &Conv1dCase::w_layout}) {
      for (const Layout& layout : input_layouts(3, dtype)) with(member, layout);
      for (const Layout& layout : permutations()) with(member, layout);
    }
    for (const Layout& layout : input_layouts(1, dtype)) with(&Conv1dCase::bias_layout, layout);
    for (const Layout& layout : all_layouts(3, dtype)) with(&Conv1dCase::y_layout, layout);
    for (const Layout& layout : permutations()) with(&Conv1dCase::y_layout, layout);
  }
}

}  // namespace

TEST_CASE("conv1d: every layout of x, w, bias and y in turn", "[conv1d][layout]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d layouts");
    for_each_layout(dtype, [&](const Conv1dCase& c) { check_conv1d(c, rng); });
  }
}

TEST_CASE("conv1d: every layout of x with every layout of y", "[conv1d][layout]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d pairs of layouts");
    for (Conv1dCase c : kinds(dtype))
      for (const Layout& x : input_layouts(3, dtype))
        for (const Layout& y : all_layouts(3, dtype)) {
          c.x_layout = x;
          c.y_layout = y;
          check_conv1d(c, rng);
        }
  }
}

TEST_CASE("conv1d: layouts of a plain signal", "[conv1d][layout]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d layouts of a signal");
    for (const Layout& x : input_layouts(1, dtype))
      for (const Layout& w : input_layouts(1, dtype))
        check_conv1d({.shape = {.length = 45, .taps = 5, .pad_left = 4},
                      .dtype = dtype,
                      .rank = 1,
                      .x_layout = x,
                      .w_layout = w,
                      .y_layout = x.steps.empty() ? x : Layout::strided(2)},
                     rng);
  }
}

TEST_CASE("conv1d_backward: every layout of grad_y, x, w and of the gradients", "[conv1d][layout]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward layouts");
    for_each_layout(dtype, [&](const Conv1dCase& c) { check_conv1d_backward(c, rng); });
  }
}

TEST_CASE("conv1d_backward: grad_y of stride 0, as the gradient of a sum has", "[conv1d][layout]") {
  for (const DType dtype : kFloatDTypes) {
    Rng rng("conv1d_backward broadcast");
    for (Conv1dCase c : kinds(dtype))
      for (const Layout& layout : input_layouts(3, dtype)) {
        c.y_layout = layout;
        check_conv1d_backward(c, rng);
      }
  }
}
