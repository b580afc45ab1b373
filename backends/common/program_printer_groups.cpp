// SPDX-License-Identifier: Apache-2.0
// program_printer_groups.cpp -- products that four warps compute together from shared memory, 64 x 8n by 16 at a time, as Hopper's
// wgmma does. Warp w of four has the rows 16 w to 16 w + 15 of the sums, each thread the same ones as of products of one warp
// (program_printer_products.cpp). So a tile of those becomes products of four warps where the factors lie in panels, each warp has
// its 16 rows beside the others', and nothing but copies that run ahead fills them.
#include <algorithm>

#include "core/program/expr.h"
#include "program_printer.h"

namespace narrows::common {
namespace {

constexpr int64_t kWarps = 4, kRows = 16, kMostColumns = 256, kPanel = 64;

bool is_multiple_of(const Linear& sum, int64_t of) {
  return sum.constant % of == 0 &&
         std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& term) { return term.factor % of == 0; });
}

bool mentions_any(const Linear& sum, const std::vector<std::string>& names) {
  const ir::ExprPtr whole = expression(sum);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return mentions(whole, name); });
}

// The dimension of a factor that moves along k; the other one moves along m or n.
size_t dimension_of_k(const ir::Expr& load, const UnitProduct& product) { return mentions(load.operands[0], product.k) ? 0 : 1; }

}  // namespace

// The rows of a, or the columns of b, are those of the group, from where a panel or a group of 8 rows begins.
bool KernelPrinter::is_group_side(const ir::ExprPtr& index, const Tile& tile, const std::string& warp, bool is_a,
                                  bool is_across) const {
  const UnitProduct& product = *tile.product->product;
  Linear sum = linear(index, extents_);
  const std::string own = is_a ? product.m : product.n, next = is_a ? warp : tile.loops.empty() ? "" : tile.loops.back()->name;
  if (sum.factor_of(own) != 1 || (!next.empty() && sum.factor_of(next) != (is_a ? kRows : 8))) return false;
  sum = sum.without(own);
  if (!next.empty()) sum = sum.without(next);
  return is_multiple_of(sum, is_a || is_across ? kPanel : 8) && !mentions_any(sum, {own, next, product.k, warp});
}

// The loop of warps, if four of them can compute the tile in this pipelined loop together; else "".
std::string KernelPrinter::loop_of_groups(const Tile& tile, const Node& ahead) {
  if (!program_.limits.has_groups) return "";
  std::string warp;
  for (const KernelLoop& loop : bound_kernel_->threads) {
    const int64_t extent = *ir::constant(loop.extent);
    if (extent == 1 || tile.parts.leaf->first_only.count(loop.name) != 0) continue;
    if (!warp.empty() || extent % kWarps != 0) return "";
    warp = loop.name;
  }
  const int64_t columns = 8 * (tile.loops.empty() ? 1 : *ir::constant(tile.loops.back()->extent));
  if (warp.empty() || columns > kMostColumns) return "";
  const UnitProduct& product = *tile.product->product;
  for (const bool is_a : {true, false}) {
    const ir::Expr& load = is_a ? *tile.parts.a : *tile.parts.b;
    const auto& buffers = ahead.ahead->buffers;
    if (panels_.count(load.name) == 0 || std::find(buffers.begin(), buffers.end(), load.name) == buffers.end()) return "";
    const size_t dimension = dimension_of_k(load, product);
    const bool is_across = dimension == 0;
    if (!is_a && is_across && columns % kPanel != 0) return "";
    if (!is_group_side(load.operands[1 - dimension], tile, warp, is_a, is_across)) return "";
    const Linear along = linear(load.operands[dimension], extents_);
    if (along.factor_of(product.k) != 1 || !is_multiple_of(along.without(product.k), 16)) return "";
    std::vector<std::string> others{product.m, product.n, warp};
    if (!tile.loops.empty()) others.push_back(tile.loops.back()->name);
    if (mentions_any(along, others)) return "";
  }
  for (size_t i = 0; i + 1 < tile.loops.size(); ++i)  // the innermost one alone goes along the columns of a product
    if (mentions(expression(linear(tile.parts.b->operands[1 - dimension_of_k(*tile.parts.b, product)], extents_)),
                 tile.loops[i]->name))
      return "";
  return warp;
}

void KernelPrinter::multiply_in_groups(const Tile& tile) {
  const UnitProduct& product = *tile.product->product;
  std::vector<const Node*> outer = tile.loops;
  int64_t count = 1;
  std::string inner;
  if (!outer.empty()) {
    inner = outer.back()->name;
    count = *ir::constant(outer.back()->extent);
    outer.pop_back();
  }
  const std::string warp_before = loops_.at(tile.warp);
  line("// " + product.intrinsic + ": four warps together, from shared memory");
  over(outer, [&] {
    loops_[tile.warp] = "(" + warp_before + " & ~3)";
    if (!inner.empty()) loops_[inner] = "0";
    place(tile, "0", "0", "0");
    std::string matrices;
    std::vector<bool> is_across;
    for (const ir::Expr* load : {tile.parts.a, tile.parts.b}) {
      is_across.push_back(dimension_of_k(*load, product) == 0);
      const int64_t panel = *ir::constant(buffer_of(load->name).shape[0]) * kPanel * 2;  // bytes
      matrices += ", nw_group_matrix(&" + element(load->name, load->operands) + ", " + std::to_string(panel) + ")";
    }
    std::string sums = number_in(outer);
    sums = tile.sums + " + (" + sums + ") * " + std::to_string(count);
    line(group_product(product.intrinsic, 8 * count, is_across[0], is_across[1]) + "(" + sums + matrices + ");");
  });
  loops_[tile.warp] = warp_before;
}

}  // namespace narrows::common
