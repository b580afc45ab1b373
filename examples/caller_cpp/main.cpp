// SPDX-License-Identifier: Apache-2.0
// Puzzle 17 of MAX, a 1-D convolution, from C++17.
//   c++ -std=c++17 -Wall -Wextra main.cpp -o caller_cpp $(pkg-config --cflags --libs narrows) && ./caller_cpp
#include <iostream>
#include <narrows/narrows.hpp>
#include <numeric>
#include <vector>

int main() try {
  std::vector<float> x(15), w = {0, 1, 2, 3};
  std::iota(x.begin(), x.end(), 0.0f);
  nw_conv1d_params params{};
  params.pad_right = 3;

  const narrows::Runtime runtime;
  std::vector<float> y(runtime.infer("conv1d", {x, w}, params)[0].shape[0]);
  // run() does it in one step; a plan says what will run, and runs again without being looked up.
  const narrows::Plan plan = runtime.plan("conv1d", {x, w}, {y}, params);
  plan.launch({x, w}, {y});

  for (size_t i = 0; i < y.size(); ++i) std::cout << y[i] << (i + 1 < y.size() ? ' ' : '\n');
  const nw_device_info device = runtime.device();
  std::cout << "conv1d ran on " << plan.backend() << ", kernel " << plan.kernel() << ": " << device.name << ", " << device.arch
            << '\n';
} catch (const narrows::Error& error) {
  std::cerr << "caller_cpp: " << error.what() << '\n';
  return 1;
}
