// SPDX-License-Identifier: Apache-2.0
// program_products.cpp -- see program_products.h.
#include "program_products.h"

#include <algorithm>
#include <utility>

#include "core/program/expr.h"
#include "core/program/reduction.h"

namespace narrows::common {
namespace {

const Node& leaf_of(const Node& product) {
  const Node* out = &product;
  while (out->kind == Node::Kind::loop) out = out->body.data();
  return *out;
}

// The loops of threads that a node is not in are the first ones, x before y before z, and make one warp.
bool is_of_warp(const Node& leaf, const Kernel& kernel, int64_t lanes) {
  int64_t threads = 1;
  size_t found = 0;
  for (const KernelLoop& loop : kernel.threads) {
    const int64_t extent = *ir::constant(loop.extent);
    if (extent == 1) continue;
    if (threads == lanes || leaf.first_only.count(loop.name) == 0) break;
    threads *= extent;
    ++found;
  }
  return threads == lanes && found == leaf.first_only.size();
}

// "": the unit computes it.
std::string why_plain(const Node& product, const Kernel& kernel, const GpuLimits& limits) {
  const std::string& intrinsic = product.product->intrinsic;
  const int64_t lanes = limits.unit_lanes;
  if (const auto found = limits.no_unit.find(intrinsic); found != limits.no_unit.end()) return found->second;
  if (lanes == 0) return "there is no unit for it here";
  if (intrinsic != "mma.f16.f32" && intrinsic != "mma.bf16.f32") return "the unit has no such product";
  if (!is_of_warp(leaf_of(product), kernel, lanes))
    return "it is no warp's: expected it in no loop of the first " + std::to_string(lanes) + " threads, and in all others";
  bool reads_data = false;
  for (const ir::ExprPtr& index : parts_of(product).sum->indices) for_each_load(index, [&](const ir::Expr&) { reads_data = true; });
  return reads_data ? "data decide which sums it adds to" : "";
}

void mark(Node* node, const Kernel& kernel, const GpuLimits& limits) {
  if (node->product.has_value()) {
    node->product->why_plain = why_plain(*node, kernel, limits);
    node->product->is_joint = node->product->why_plain.empty();
  }
  for (Node& child : node->body) mark(&child, kernel, limits);
}

}  // namespace

void mark_joint(Kernel* kernel, const GpuLimits& limits) {
  for (Node& node : kernel->body) mark(&node, *kernel, limits);
}

void unmark_waiting(std::vector<Node>* body) {
  for (Node& node : *body) {
    if (node.product.has_value() && node.product->is_joint && has_barrier_in(node)) {
      node.product->is_joint = false;
      node.product->why_plain = "threads wait for each other in it";
    }
    unmark_waiting(&node.body);
  }
}

bool has_barrier_in(const Node& node) {
  return std::any_of(node.body.begin(), node.body.end(),
                     [](const Node& child) { return child.has_barrier || has_barrier_in(child); });
}

std::vector<std::string> plain_products(Node* nest) {
  std::vector<std::string> out;
  if (nest->product.has_value()) {
    nest->product->why_plain = "no loop around it is bound to threads";
    out.push_back(remark(*nest->product));
    nest->product.reset();
  }
  for (Node& child : nest->body)
    for (std::string& one : plain_products(&child)) out.push_back(std::move(one));
  return out;
}

std::string remark(const UnitProduct& product) {
  return "// " + product.intrinsic + ": " +
         (product.is_joint ? "a warp together, on the matrix unit where there is one" : "plain loops, since " + product.why_plain);
}

void for_each_joint(const Node& node, const std::function<void(const Node&)>& visit) {
  if (node.product.has_value() && node.product->is_joint) return visit(node);
  for (const Node& child : node.body) for_each_joint(child, visit);
}

ProductParts parts_of(const Node& product) {
  ProductParts out{&leaf_of(product), nullptr, nullptr, nullptr};
  out.sum = out.leaf->stores.data();
  const ir::ExprPtr element = ir::reduction_of(*out.sum)->element;
  for (const ir::ExprPtr& factor : element->operands) {
    const ir::Expr* const load = factor->kind == ir::Expr::Kind::cast ? factor->operands[0].get() : factor.get();
    bool has_m = false;
    for (const ir::ExprPtr& index : load->operands) has_m = has_m || mentions(index, product.product->m);
    (has_m ? out.a : out.b) = load;
  }
  return out;
}

}  // namespace narrows::common
