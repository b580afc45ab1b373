// SPDX-License-Identifier: Apache-2.0
// tensorized.h -- products of f16 and bf16 by the steps that a matrix unit takes: tiles of a block in shared memory, of which each
// warp has some.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/program/schedule.h"
#include "core/program/text.h"

struct Product {
  int64_t m, n, k;
  std::string factor, result;  // dtypes
  bool a_across, b_across;     // they lie as [k, m] and [n, k]
};

struct Tiles {
  int64_t warps, tiles_m, tiles_n, depth;  // a warp has tiles_m * tiles_n products side by side, and `depth` of them along k
  std::string scope = "shared";            // of the sums
  bool is_staged = true;                   // factors are copied to shared memory
  bool is_bound = true;
  bool fits = true;                  // tensorize is taken; else it is refused, for a tile that is not whole
  int64_t lanes_y = 8, padding = 8;  // a warp is 4 * lanes_y threads
  int64_t stages = 0;                // of the loop over k; 0: it is not pipelined
};

// C = relu(A @ B)
inline std::string text_of_product(const Product& product) {
  const std::string m = std::to_string(product.m), n = std::to_string(product.n), k = std::to_string(product.k);
  const auto pair = [](bool swapped, const std::string& a, const std::string& b) {
    return "[" + (swapped ? b : a) + ", " + (swapped ? a : b) + "]";
  };
  const std::string sizes = "[" + m + ", " + n + "]", &factor = product.factor;
  return "program 1 mm(A: " + factor + pair(product.a_across, m, k) + ", B: " + factor + pair(product.b_across, k, n) +
         ", C: out " + product.result + sizes + "):\n  alloc Y: f32" + sizes + "\n  for i in " + m + ":\n    for j in " + n +
         ":\n      for k in " + k + ":\n        block Y(vi: S(" + m + ") = i, vj: S(" + n + ") = j, vk: R(" + k +
         ") = k):\n          init:\n            Y[vi, vj] = f32(0)\n          Y[vi, vj] = Y[vi, vj] + f32(A" +
         pair(product.a_across, "vi", "vk") + ") * f32(B" + pair(product.b_across, "vk", "vj") + ")\n  for i1 in " + m +
         ":\n    for j1 in " + n + ":\n      block C(vi: S(" + m + ") = i1, vj: S(" + n +
         ") = j1):\n        C[vi, vj] = " + (product.result == "f32" ? "relu(Y[vi, vj])" : product.result + "(relu(Y[vi, vj]))") +
         "\n";
}

// The steps on it, and the text of what they made.
class Tensorized {
 public:
  Tensorized(const Product& product, const Tiles& tiles)
      : tiles_(tiles), schedule_(narrows::program::parse(text_of_product(product))), intrinsic_("mma." + product.factor + ".f32") {}

  std::string run() {
    const Names i = split("i", {tiles_.warps, tiles_.tiles_m, 16}), j = split("j", {tiles_.tiles_n, 8});
    const Names k = split("k", {tiles_.depth, 16});
    reorder({i[0], j[0], k[0], i[1], k[1], i[2], j[1], i[3], j[2], k[2]});
    if (tiles_.scope != "global") schedule_.apply("set_scope(buffer=\"Y\", scope=\"" + tiles_.scope + "\")");
    schedule_.apply("reverse_compute_at(block=\"C\", loop=\"" + j[0] + "\")");
    schedule_.apply("decompose_reduction(block=\"Y\", loop=\"" + k[0] + "\")");
    if (tiles_.is_staged)
      for (const std::string buffer : {"A", "B"}) stage(buffer, k[0]);
    const std::string tensorize = "tensorize(loop=\"" + i[3] + "\", intrinsic=\"" + intrinsic_ + "\")";
    if (tiles_.fits)
      schedule_.apply(tensorize);
    else
      CHECK_THROWS_AS(schedule_.apply(tensorize), narrows::Failure);
    if (tiles_.stages != 0) schedule_.apply("pipeline(loop=\"" + k[0] + "\", stages=" + std::to_string(tiles_.stages) + ")");
    if (tiles_.is_bound) bind_all({i[0], j[0], i[1]});
    return narrows::program::print(schedule_.program());
  }

 private:
  using Names = std::vector<std::string>;

  static std::string list(const Names& names) {
    std::string out = "[";
    for (const std::string& name : names) out += (out.size() > 1 ? ", \"" : "\"") + name + "\"";
    return out + "]";
  }
  Names split(const std::string& loop, const std::vector<int64_t>& factors) {
    std::string line = "split(loop=\"" + loop + "\", factors=[None";
    for (const int64_t factor : factors) line += ", " + std::to_string(factor);
    return schedule_.apply(line + "])");
  }
  void bind(const std::string& loop, const std::string& thread) {
    schedule_.apply("bind(loop=\"" + loop + "\", thread=\"" + thread + "\")");
  }
  void reorder(const Names& loops) { schedule_.apply("reorder(loops=" + list(loops) + ")"); }
  // Rows and columns as a block's threads: z are its warps. Each has runs of `run` elements, its own loops innermost.
  void share(const std::string& row, const std::string& column, bool has_warps, int64_t run, const Names& between = {}) {
    const Names rows = has_warps ? split(row, {tiles_.warps, tiles_.lanes_y}) : split(row, {tiles_.lanes_y});
    const Names columns = split(column, {4, run});
    Names order(rows.begin() + 1, rows.end());
    order.push_back(columns[1]);
    order.insert(order.end(), between.begin(), between.end());
    for (const std::string& loop : {rows[0], columns[0], columns[2]}) order.push_back(loop);
    reorder(order);
    if (has_warps) bind(rows[1], "thread.z");
    bind(rows.back(), "thread.y");
    bind(columns[1], "thread.x");
    schedule_.apply("vectorize(loop=\"" + columns[2] + "\")");
  }
  void stage(const std::string& buffer, const std::string& loop) {
    const std::string copy = schedule_.apply("cache_read(block=\"Y\", buffer=\"" + buffer + "\", scope=\"shared\")")[0];
    schedule_.apply("compute_at(block=\"" + copy + "\", loop=\"" + loop + "\")");
    if (tiles_.padding != 0)
      schedule_.apply("pad(buffer=\"" + copy + "\", axis=1, elements=" + std::to_string(tiles_.padding) + ")");
    copies_.push_back(copy);
  }
  void bind_all(const Names& loops) {
    Names tiles = copies_;
    tiles.push_back("C");
    for (const std::string& block : tiles) {
      const Names own = schedule_.loops(block);
      share(own[own.size() - 2], own.back(), true, 8);
    }
    const Names init = schedule_.loops("Y_init");  // two of blocks, one of warps, two of tiles, two of a tile
    share(init[5], init[6], false, 2, {init[3], init[4]});
    bind(init[2], "thread.z");
    for (size_t i = 0; i < 3; ++i) bind(loops[i], kThreads[i]);
  }

  static constexpr const char* kThreads[] = {"block.y", "block.x", "thread.z"};
  const Tiles tiles_;
  narrows::program::Schedule schedule_;
  const std::string intrinsic_;
  Names copies_;
};

inline std::string tensorized(const Product& product, const Tiles& tiles) { return Tensorized(product, tiles).run(); }
