// SPDX-License-Identifier: Apache-2.0
// wide_products.cpp -- see wide_products.h.
#include "ops/program/wide_products.h"

#include <algorithm>

namespace narrows::gpu {

using common::join;
using common::Node;
using common::Tile;

std::string WideProducts::why_plain(const Tile& tile) {
  if (!program_.limits.has_pairs || pair_of(tile, extents_) != nullptr) return "";
  return "the unit's products are 16 wide, and there are not two of them side by side";
}

std::string WideProducts::one_of(const std::string& array, const Loops& loops, const Node* pair) const {
  return join({array, "[", number_in(loops, pair), "]"}, "");
}

void WideProducts::declare(const char* type, const std::string& array, const Loops& loops, const Node* pair) {
  const bool has_pair = std::find(loops.begin(), loops.end(), pair) != loops.end();
  line(join({type, " ", array, "[", std::to_string(common::count_of(loops) / (has_pair ? 2 : 1)), "];"}, ""));
}

void WideProducts::declare_sums(const Tile& tile) {
  if (!program_.limits.has_pairs) return KernelPrinter::declare_sums(tile);
  declare("nw_sums", tile.sums, tile.loops, pair_of(tile, extents_));
}

void WideProducts::move_sums(const Tile& tile, bool store) {
  if (!program_.limits.has_pairs) return KernelPrinter::move_sums(tile, store);
  const Node* const pair = pair_of(tile, extents_);
  const auto one = [&] {
    const std::string e = fresh("e"), sum = one_of(tile.sums, tile.loops, pair) + "[" + e + "]";
    open("NW_UNROLL for (int " + e + " = 0; " + e + " < NW_SUMS; ++" + e + ") {");
    place(tile, "nw_row(" + e + ")", "(nw_lane & 15)", "0");
    const std::string in_memory = element(tile.parts.sum->buffer, tile.parts.sum->indices);
    line(store ? in_memory + " = " + sum + ";" : sum + " = " + in_memory + ";");
    close();
  };
  over(tile.loops, one, pair);
}

// A thread has elements of one row of a, or of one column of b, side by side along k.
std::string WideProducts::read_factor(const Tile& tile, bool is_a) {
  const ir::Expr& load = is_a ? *tile.parts.a : *tile.parts.b;
  const Loops loops = tile.loops_of(load);
  const Node* const pair = pair_of(tile, extents_);
  const std::string array = fresh("m"), side = "(nw_lane & 15)";
  declare("nw_factor", array, loops, pair);
  const auto at = [&](const std::string& k) {
    place(tile, is_a ? side : "0", is_a ? "0" : side, k);
    return element(load.name, load.operands);
  };
  const auto one = [&] {
    const std::string factor = one_of(array, loops, pair);
    if (is_run(load.name, load.operands, tile.product->product->k, 16))
      return line("nw_read_factor(" + factor + ", &" + at("nw_depth(0)") + ");");
    const std::string e = fresh("e");
    open("NW_UNROLL for (int " + e + " = 0; " + e + " < NW_FACTORS; ++" + e + ") {");
    line(factor + "[" + e + "] = " + at("nw_depth(" + e + ")") + ";");
    close();
  };
  over(loops, one, pair);
  return array;
}

void WideProducts::multiply(const Tile& tile) {
  if (!program_.limits.has_pairs) return KernelPrinter::multiply(tile);
  const Node* const pair = pair_of(tile, extents_);
  open("{");
  line(common::remark(*tile.product->product) + ", by matrices of 16 x 16 x 16");
  line("nw_warp_barrier();");
  const std::string a = read_factor(tile, true), b = read_factor(tile, false);
  const char* const function = tile.product->product->intrinsic == "mma.f16.f32" ? "nw_multiply_f16(" : "nw_multiply_bf16(";
  const auto one = [&] {
    const std::string sum = one_of(tile.sums, tile.loops, pair);
    line(join({sum, " = ", function, one_of(a, tile.loops_of(*tile.parts.a), pair), ", ",
               one_of(b, tile.loops_of(*tile.parts.b), pair), ", ", sum, ");"},
              ""));
  };
  over(tile.loops, one, pair);
  line("nw_warp_barrier();");
  close();
}

}  // namespace narrows::gpu
