// SPDX-License-Identifier: Apache-2.0
// program_printer_products.cpp -- products that the threads of a warp compute together, by m16n8k16: see program_products.h and
// program_printer.h. Each thread holds parts of the matrices: lane l has g = l / 4 and t = l % 4;
//   sums      [e]: m = g + 8 (e / 2),      n = 2t + e % 2
//   a, half h [r]: m = g + 8 (r % 2),      k = 2t + 8 (r / 2) + h
//   b, half h [r]: n = g,                  k = 2t + 8 r + h
// Products side by side are a tile: its factors are read once. Its sums stay in registers through the loops that only add to them.
#include <algorithm>

#include "core/program/expr.h"
#include "program_printer.h"

namespace narrows::common {
namespace {

const std::string kGroup = "(nw_lane >> 2)", kPair = "(nw_lane & 3) * 2";

std::string plus(const std::string& a, int b) { return b == 0 ? a : a + " + " + std::to_string(b); }

// Of loops' bodies, where clang-tidy wants no sums of texts.
std::string unrolled_loop(const std::string& variable, int64_t extent) {
  return "NW_UNROLL for (ix " + variable + " = 0; " + variable + " < " + std::to_string(extent) + "; ++" + variable + ") {";
}
std::string next_digit(const std::string& number, int64_t extent, const std::string& digit) {
  return number.empty() ? digit : "(" + number + ") * " + std::to_string(extent) + " + " + digit;
}
std::string doubled(const std::string& number) { return "(" + number + " * 2)"; }
std::string halved(const std::string& number) { return number + " / 2"; }
std::string at_index(const std::string& array, int64_t i) { return array + "[" + std::to_string(i) + "]"; }
std::string assignment(const std::string& to, const std::string& from) { return to + " = " + from + ";"; }
std::string read_pair(const std::string& first) { return "nw_read_pair(&" + first + ")"; }
std::string pair_of(const std::string& low, const std::string& high) { return "nw_pair(" + low + ", " + high + ")"; }

int64_t extent_of(const Node& loop) { return *ir::constant(loop.extent); }

bool has_overlay(const Node& node) {
  return (node.ahead.has_value() && !node.ahead->overlaid.empty()) || std::any_of(node.body.begin(), node.body.end(), has_overlay);
}

}  // namespace

// ---- printing ----

void KernelPrinter::over(const std::vector<const Node*>& loops, const std::function<void()>& body, const Node* pair) {
  const std::map<std::string, std::string> before = loops_;
  for (const Node* loop : loops) {
    const std::string variable = fresh("l");
    open(unrolled_loop(variable, extent_of(*loop) / (loop == pair ? 2 : 1)));
    loops_[loop->name] = loop == pair ? doubled(variable) : variable;
  }
  body();
  for (size_t i = 0; i < loops.size(); ++i) close();
  loops_ = before;
}

std::string KernelPrinter::number_in(const std::vector<const Node*>& loops, const Node* pair) const {
  std::string out;
  for (const Node* loop : loops) {
    const std::string& digit = loops_.at(loop->name);
    out = loop == pair ? next_digit(out, extent_of(*loop) / 2, halved(digit)) : next_digit(out, extent_of(*loop), digit);
  }
  return out.empty() ? "0" : out;
}

// What the product's own loops stand for from here on. Those of one iteration have no role.
void KernelPrinter::place(const Tile& tile, const std::string& m, const std::string& n, const std::string& k) {
  for (const Node* node = tile.product; node->kind == Node::Kind::loop; node = node->body.data()) loops_[node->name] = "0";
  loops_[tile.product->product->m] = m;
  loops_[tile.product->product->n] = n;
  loops_[tile.product->product->k] = k;
}

void KernelPrinter::declare_sums(const Tile& tile) {
  line("f32 " + tile.sums + "[" + std::to_string(count_of(tile.loops)) + "][4];");
}

void KernelPrinter::move_sums(const Tile& tile, bool store) {
  over(tile.loops, [&] {
    const std::string sums = tile.sums + "[" + number_in(tile.loops) + "]";
    for (int e = 0; e < 4; ++e) {
      place(tile, plus(kGroup, e / 2 * 8), plus(kPair, e % 2), "0");
      const std::string sum = at_index(sums, e), in_memory = element(tile.parts.sum->buffer, tile.parts.sum->indices);
      line(store ? assignment(in_memory, sum) : assignment(sum, in_memory));
    }
  });
}

// From shared memory by tiles of 8 x 8, whichever side lies in runs of 8 elements; else in pairs along k; else one by one.
void KernelPrinter::read_fragment(const Tile& tile, bool is_a, const std::string& fragment) {
  const ir::Expr& load = is_a ? *tile.parts.a : *tile.parts.b;
  const UnitProduct& product = *tile.product->product;
  const auto at = [&](const std::string& side, const std::string& k) {
    place(tile, is_a ? side : "0", is_a ? "0" : side, k);
    return element(load.name, load.operands);
  };
  const auto found = program_.places.find(load.name);
  if (found != program_.places.end() && found->second == Place::shared) {
    const std::string row = "(nw_lane & 7)", second = "((nw_lane >> 3) & 1) * 8", third = "(nw_lane >> 4) * 8";
    place(tile, "0", "0", "0");
    if (is_run(load.name, load.operands, product.k, 8)) {
      const std::string first = is_a ? at("(nw_lane & 15)", third) : at(row, second);
      return line("nw_read_tiles(" + fragment + ", &" + first + ");");
    }
    if (is_run(load.name, load.operands, is_a ? product.m : product.n, 8)) {
      const std::string first = is_a ? at(second, row + " + " + third) : at("0", "(nw_lane & 15)");
      return line("nw_read_tiles_across(" + fragment + ", &" + first + ");");
    }
  }
  const bool is_pair = is_run(load.name, load.operands, product.k, 2);
  for (int r = 0; r < (is_a ? 4 : 2); ++r) {
    const std::string side = plus(kGroup, is_a ? r % 2 * 8 : 0), k = plus(kPair, is_a ? r / 2 * 8 : r * 8);
    const std::string first = at(side, k);
    line(assignment(at_index(fragment, r), is_pair ? read_pair(first) : pair_of(first, at(side, plus(k, 1)))));
  }
}

// Gives the fragment of the product at hand, in the tile's loops.
std::string KernelPrinter::read_factor(const Tile& tile, bool is_a) {
  const std::vector<const Node*> loops = tile.loops_of(is_a ? *tile.parts.a : *tile.parts.b);
  const std::string array = fresh("m");
  line("u32 " + array + "[" + std::to_string(count_of(loops)) + "][" + (is_a ? "4" : "2") + "];");
  over(loops, [&] { read_fragment(tile, is_a, array + "[" + number_in(loops) + "]"); });
  return array;
}

void KernelPrinter::multiply(const Tile& tile) {
  if (!tile.warp.empty()) return multiply_in_groups(tile);
  open("{");
  line(remark(*tile.product->product));
  line("nw_warp_barrier();");
  const std::string a = read_factor(tile, true), b = read_factor(tile, false);
  const std::string function = tile.product->product->intrinsic == "mma.f16.f32" ? "nw_mma_f16(" : "nw_mma_bf16(";
  over(tile.loops, [&] {
    const std::string of_a = number_in(tile.loops_of(*tile.parts.a)), of_b = number_in(tile.loops_of(*tile.parts.b));
    line(function + tile.sums + "[" + number_in(tile.loops) + "], " + a + "[" + of_a + "], " + b + "[" + of_b + "]);");
  });
  line("nw_warp_barrier();");
  close();
}

std::string KernelPrinter::remark_of_plain(const Node& node) const {
  UnitProduct product = *node.product;
  if (product.is_joint) product.why_plain = plain_.at(&node);
  product.is_joint = false;
  return remark(product);
}

bool KernelPrinter::product_loop(const Node& node) {
  if (const auto found = tiles_.find(&node); found != tiles_.end()) {
    multiply(found->second);
    return true;
  }
  std::vector<Tile> kept = tiles_kept_by(node, extents_);
  std::erase_if(kept, [&](const Tile& tile) {
    if (tiles_.count(tile.head()) != 0 || plain_.count(tile.product) != 0) return true;
    if (!bound_.buffers.at(tile.parts.sum->buffer).present) return true;
    std::string why = why_plain(tile);
    const bool is_plain = !why.empty();
    if (is_plain) plain_[tile.product] = std::move(why);
    return is_plain;
  });
  if (kept.empty()) {
    if (node.product.has_value()) line(remark_of_plain(node));
    return false;
  }
  for (Tile& tile : kept) {
    tile.sums = fresh("m");
    declare_sums(tile);
    tiles_.emplace(tile.head(), tile);
  }
  const bool is_overlaid = has_overlay(node);
  const bool is_certain = is_never_empty(node.extent, extents_);  // else no sum may be touched
  open(is_certain ? "{" : "if (0 < " + index_text(node.extent) + ") {");
  line("nw_warp_barrier();");
  for (const Tile& tile : kept) move_sums(tile, false);
  if (is_overlaid) line("nw_barrier();");  // before copies write where the sums were
  if (const auto own = tiles_.find(&node); own != tiles_.end())
    multiply(own->second);
  else
    plain_loop(node);
  if (is_overlaid) line("nw_barrier();");
  for (const Tile& tile : kept) {
    move_sums(tile, true);
    tiles_.erase(tile.head());
  }
  line("nw_warp_barrier();");
  close();
  if (has_barrier_in(node)) line("nw_barrier();");  // what waits in the loop may be all that readers of the sums wait for
  return true;
}

}  // namespace narrows::common
