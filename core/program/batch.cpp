// SPDX-License-Identifier: Apache-2.0
// batch.cpp -- see batch.h. A program is a batch along a size M if each part of M computes its part of every buffer alone:
//   - M is a whole dimension of buffers, at most one of each, and the extent of loops and axes; it stands nowhere else;
//   - a block has at most one axis of M, which is such a loop's variable; each buffer with M is read and written at that axis, and
//     the axis enters nothing else;
//   - an S axis is fine so. An R axis sums, from 0, into an output that nobody reads: that output is the sum over the parts.
// An output that knows no M is computed by each part alike: it counts once.
#include "core/program/batch.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/program/expr.h"
#include "core/program/reduction.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

bool is_name(const ExprPtr& expr, const std::string& name) { return expr->kind == Expr::Kind::name && expr->name == name; }
bool mentions(const ExprPtr& expr, const std::string& name) { return expr != nullptr && names_in(expr).count(name) != 0; }

bool is_zero(const ExprPtr& expr) {
  if (expr->kind == Expr::Kind::cast) return is_zero(expr->operands[0]);
  return (expr->kind == Expr::Kind::integer && expr->integer == 0) || (expr->kind == Expr::Kind::real && expr->real == 0);
}

// Of one size of one program: whether it is a way, and which outputs count once or are sums.
class Splitter {
 public:
  Splitter(const Program& program, std::string size) : program_(program), size_(std::move(size)) {}

  std::string way() {
    look_at_buffers();
    for_each_block(program_, [&](const Block& block, const Loops& loops) { look_at(block, loops); });
    for (const Buffer& tensor : program_.tensors) look_at_whole(tensor);
    for (const std::string& sum : sums_)
      if (read_.count(sum) != 0 || writers_.count(sum) > 1) fits_ = false;
    return fits_ ? size_ + once_ : "";
  }

 private:
  // The dimension of M; -1: none.
  int dimension(const std::string& buffer) const {
    const Buffer* found = find_buffer(program_, buffer);
    for (size_t d = 0; d < found->shape.size(); ++d)
      if (is_name(found->shape[d], size_)) return static_cast<int>(d);
    return -1;
  }

  void look_at_buffers() {
    for (const auto* buffers : {&program_.tensors, &program_.allocations})
      for (const Buffer& buffer : *buffers) {
        const auto whole =
            std::count_if(buffer.shape.begin(), buffer.shape.end(), [&](const auto& d) { return is_name(d, size_); });
        const auto any = std::count_if(buffer.shape.begin(), buffer.shape.end(), [&](const auto& d) { return mentions(d, size_); });
        if (whole > 1 || any != whole) fits_ = false;
      }
  }

  // A tensor without M: an input is the same for all parts. An output that is no sum counts once; one that is an input too is
  // neither.
  void look_at_whole(const Buffer& tensor) {
    if (tensor.role == Buffer::Role::input || dimension(tensor.name) >= 0) return;
    if (tensor.role == Buffer::Role::inout) fits_ = false;
    if (sums_.count(tensor.name) == 0) once_ += (once_.empty() ? " once " : ", ") + tensor.name;
  }

  void look_at(const Block& block, const Loops& loops) {
    std::set<std::string> variables;
    for (const auto& loop : loops) {
      if (is_name(loop->extent, size_))
        variables.insert(loop->name);
      else if (mentions(loop->extent, size_))
        fits_ = false;
    }
    const Axis* axis = nullptr;
    for (const Axis& candidate : block.axes) {
      const bool is_whole = is_name(candidate.extent, size_) && candidate.binding->kind == Expr::Kind::name;
      if (is_whole && axis == nullptr && variables.count(candidate.binding->name) != 0)
        axis = &candidate;
      else if (mentions(candidate.extent, size_) || mentions(candidate.binding, size_) ||
               mentions_any(candidate.binding, variables))
        fits_ = false;
    }
    // The loops of M that no axis takes would run the block again for each part.
    if (variables.size() > (axis == nullptr ? 0 : 1)) fits_ = false;
    if (axis != nullptr && axis->kind == Axis::Kind::carried) fits_ = false;
    if (mentions(block.predicate, size_) || mentions_any(block.predicate, variables)) fits_ = false;
    look_at_stores(block, axis);
  }

  static bool mentions_any(const ExprPtr& expr, const std::set<std::string>& names) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return mentions(expr, name); });
  }

  // The body of a block speaks of axes, sizes and params, and of no loop.
  void look_at_stores(const Block& block, const Axis* axis) {
    const std::string name = axis == nullptr ? "" : axis->name;
    const bool sums = axis != nullptr && axis->kind == Axis::Kind::reduction;
    for (const Store& store : block.init) {
      look_at_access(store.buffer, store.indices, name, sums);
      look_at_value(store.value, name, "");
      writers_.insert(store.buffer);
      if (sums && !is_zero(store.value)) fits_ = false;
    }
    for (const Store& store : block.body) {
      look_at_access(store.buffer, store.indices, name, sums);
      look_at_value(store.value, name, sums ? store.buffer : "");
      if (block.init.empty()) writers_.insert(store.buffer);
      if (sums) look_at_sum(block, store);
    }
  }

  void look_at_sum(const Block& block, const Store& store) {
    const auto reduction = reduction_of(store);
    const Buffer* target = find_buffer(program_, store.buffer);
    const bool begins = block.init.size() == 1 && block.init[0].buffer == store.buffer;
    if (!reduction || reduction->combine != "add" || !begins || block.body.size() != 1 || target->role != Buffer::Role::output)
      fits_ = false;
    sums_.insert(store.buffer);
  }

  // Every access to a buffer with M is at the axis, and to another one it is not.
  void look_at_access(const std::string& buffer, const std::vector<ExprPtr>& indices, const std::string& axis, bool is_sum) {
    const int dim = dimension(buffer);
    if (dim < 0 && !is_sum && !axis.empty()) fits_ = false;  // written by every part, each with its own
    if (dim >= 0 && (axis.empty() || is_sum)) fits_ = false;
    look_at_indices(indices, dim, axis);
  }

  void look_at_indices(const std::vector<ExprPtr>& indices, int dim, const std::string& axis) {
    for (size_t d = 0; d < indices.size(); ++d) {
      if (static_cast<int>(d) != dim)
        look_at_value(indices[d], axis, "");
      else if (axis.empty() || !is_name(indices[d], axis))
        fits_ = false;
    }
  }

  // `own`: the buffer that a sum adds to, whose read there is no other.
  void look_at_value(const ExprPtr& value, const std::string& axis, const std::string& own) {
    if (value->kind == Expr::Kind::name && (value->name == size_ || value->name == axis)) fits_ = false;
    if (value->kind == Expr::Kind::load) {
      if (value->name != own) read_.insert(value->name);
      return look_at_indices(value->operands, dimension(value->name), axis);
    }
    for (const ExprPtr& operand : value->operands) look_at_value(operand, axis, own);
  }

  const Program& program_;
  std::string size_, once_;
  std::set<std::string> sums_, read_;
  std::multiset<std::string> writers_;
  bool fits_ = true;
};

}  // namespace

std::string batch_of(const Program& program) {
  std::vector<std::string> sizes;
  for (const Buffer& tensor : program.tensors)
    for (const ExprPtr& extent : tensor.shape)
      if (extent->kind == Expr::Kind::name && find_param(program, extent->name) == nullptr &&
          std::find(sizes.begin(), sizes.end(), extent->name) == sizes.end())
        sizes.push_back(extent->name);
  std::string out;
  for (const std::string& size : sizes)
    if (const std::string way = Splitter(program, size).way(); !way.empty()) out += (out.empty() ? "" : " | ") + way;
  return out;
}

}  // namespace narrows::program
