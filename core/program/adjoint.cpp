// SPDX-License-Identifier: Apache-2.0
// adjoint.cpp -- see adjoint.h. The blocks are gone through backwards. Each read of a buffer contributes to that buffer's gradient:
// a sum over the points that read the element (inverse.h), of the gradient of what they store, times a derivative (derivative.h).
// What the derivatives read of the forward's memory is computed again in front.
#include "core/program/adjoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/program/derivative.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/inverse.h"
#include "core/program/reduction.h"
#include "core/program/text.h"
#include "core/program/types.h"
#include "core/program/verify.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

// Gradients of 16 bits are added up in f32.
DType sum_dtype(DType dtype) { return bits_of(dtype) == 16 ? DType::f32 : dtype; }

ExprPtr zero_of(DType dtype) { return make_cast(dtype, make_integer(0)); }
ExprPtr where(const ExprPtr& condition, const ExprPtr& value) {
  if (condition->kind == Expr::Kind::boolean && condition->integer == 1) return value;
  return make_call("where", {condition, value, zero_of(value->dtype)});
}
ExprPtr plus(const ExprPtr& a, const ExprPtr& b) { return a == nullptr ? b : a + b; }

// What a read adds to the gradient of the buffer that it reads.
struct Contribution {
  Reading reading;
  ExprPtr value;
};

// Names that nothing else has.
class Namer {
 public:
  explicit Namer(const Program& program) {
    for (const Buffer& tensor : program.tensors) taken_.insert(tensor.name);
    for (const Buffer& allocation : program.allocations) taken_.insert(allocation.name);
    for (const Param& param : program.params) taken_.insert(param.name);
    for (const std::string& size : sizes_of(program)) taken_.insert(size);
    for_each_block(program, [&](const Block& block, const Loops& loops) {
      taken_.insert(block.name);
      for (const Axis& axis : block.axes) taken_.insert(axis.name);
      for (const auto& loop : loops) taken_.insert(loop->name);
    });
  }

  std::string operator()(const std::string& wish) {
    std::string name = wish;
    for (int i = 1; !taken_.insert(name).second; ++i) name = wish + "_" + std::to_string(i);
    return name;
  }

 private:
  std::set<std::string> taken_;
};

// A block in loops of its own, one for each axis.
Stmt in_loops(Block block, const std::function<std::string()>& name) {
  std::vector<For> loops;
  for (Axis& axis : block.axes) {
    For loop;
    loop.name = name();
    loop.extent = axis.extent;
    loops.push_back(std::move(loop));
    axis.binding = make_name(loops.back().name);
  }
  block.predicate = nullptr;
  Stmt out = std::make_shared<const Block>(std::move(block));
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
    loop->body = {out};
    out = std::make_shared<const For>(std::move(*loop));
  }
  return out;
}

bool has(const Block& block, Axis::Kind kind) {
  return std::any_of(block.axes.begin(), block.axes.end(), [&](const Axis& axis) { return axis.kind == kind; });
}

class Adjoint {
 public:
  explicit Adjoint(const Program& program) : forward_(program), names_(program) {
    for_each_block(forward_, [&](const Block& block, const Loops&) { blocks_.push_back(&block); });
  }

  Program run() {
    check(forward_);
    require_tensors();
    require_one_writer();
    require_separable();
    find_active();
    declare_tensors();
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) go_back(**block);
    for (const Buffer& tensor : forward_.tensors)
      if (tensor.role == Buffer::Role::input) finish(tensor);
    compute_again();
    check(out_);
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw_failure(NW_UNSUPPORTED, -1, "program '%s' has no adjoint: %s", forward_.name.c_str(), why.c_str());
  }
  [[noreturn]] void refuse(const Block& block, const std::string& why) const { refuse("block '" + block.name + "': " + why); }

  std::string loop_name() { return names_("i"); }
  const Buffer& buffer(const std::string& name) const { return *find_buffer(forward_, name); }

  // ---- what a program must be ----

  void require_tensors() const {
    for (const Buffer& tensor : forward_.tensors) {
      if (tensor.role == Buffer::Role::inout) refuse("'" + tensor.name + "' is inout; what it held before is lost");
    }
  }

  void require_one_writer() {
    for (const Block* block : blocks_) {
      for (const Store& store : block->body) {
        const auto [other, is_first] = writers_.emplace(store.buffer, block);
        if (!is_first)
          refuse("'" + store.buffer + "' is stored into by block '" + other->second->name + "' and by block '" + block->name +
                 "'; one block may, so that each element has one value");
      }
    }
  }

  // Each block may run whole before the next one, so that it reads what is complete.
  void require_separable() {
    Program apart = forward_;
    apart.body.clear();
    for (const Block* block : blocks_) apart.body.push_back(in_loops(*block, [&] { return loop_name(); }));
    const Verifier verifier(forward_);
    try {
      verifier.check(apart);
    } catch (const Failure& failure) {
      refuse("its blocks cannot run one after the other: " + failure.message);
    }
  }

  // ---- which buffers have a gradient ----

  void find_active() {
    for (const Buffer& tensor : forward_.tensors)
      if (tensor.role == Buffer::Role::input && is_float(tensor.dtype)) active_.insert(tensor.name);
    for (const Block* block : blocks_) {
      for (const std::vector<Store>* stores : {&block->init, &block->body})
        for (const Store& store : *stores)
          if (depends(store.value)) active_.insert(store.buffer);
    }
  }

  // Does a gradient flow through the value to what is active?
  bool depends(const ExprPtr& expr) const {
    if (!is_float(expr->dtype)) return false;
    if (expr->kind == Expr::Kind::load) return active_.count(expr->name) != 0;
    if (expr->kind != Expr::Kind::call && expr->kind != Expr::Kind::cast) return false;
    return std::any_of(expr->operands.begin(), expr->operands.end(), [&](const ExprPtr& operand) { return depends(operand); });
  }

  // ---- the adjoint's tensors ----

  void declare_tensors() {
    out_.name = forward_.name + "_adjoint";
    out_.params = forward_.params;
    std::vector<Buffer> inputs, outputs, results;
    for (const Buffer& tensor : forward_.tensors) {
      Buffer gradient = tensor, given = tensor;
      gradient.name = names_("d_" + tensor.name);
      given.role = Buffer::Role::input;
      const bool is_input = tensor.role == Buffer::Role::input;
      gradient.role = is_input ? Buffer::Role::output : Buffer::Role::input;
      gradient.optional = is_input ? tensor.optional : true;
      (is_input ? results_ : seeds_)[tensor.name] = gradient.name;
      given.optional = is_input ? tensor.optional : true;
      (is_input ? results : out_.tensors).push_back(gradient);
      (is_input ? inputs : outputs).push_back(given);
    }
    for (const std::vector<Buffer>* list : {&inputs, &outputs, &results})
      out_.tensors.insert(out_.tensors.end(), list->begin(), list->end());
  }

  // ---- backwards ----

  void go_back(const Block& block) {
    for (auto store = block.body.rbegin(); store != block.body.rend(); ++store) {
      if (active_.count(store->buffer) == 0) continue;
      const Buffer& target = buffer(store->buffer);
      finish(target);
      const ExprPtr gradient = gradient_at(target, store->indices);
      if (gradient != nullptr) go_back(block, *store, gradient);
    }
  }

  // The gradient of an element; NULL: 0.
  ExprPtr gradient_at(const Buffer& of, const std::vector<ExprPtr>& indices) const {
    const auto computed = gradients_.find(of.name);
    if (computed != gradients_.end()) return make_cast(of.dtype, make_load(computed->second, sum_dtype(of.dtype), indices));
    const auto seed = seeds_.find(of.name);
    return seed == seeds_.end() ? nullptr : where(make_present(seed->second), make_load(seed->second, of.dtype, indices));
  }

  void go_back(const Block& block, const Store& store, const ExprPtr& gradient) {
    for (const Axis& axis : block.axes)
      if (axis.kind == Axis::Kind::carried)
        refuse(block, "'" + store.buffer + "' is computed along axis '" + axis.name + "', which keeps its order (C)");
    const auto first = std::find_if(block.init.begin(), block.init.end(), [&](const Store& s) { return s.buffer == store.buffer; });
    const ExprPtr init = first == block.init.end() ? nullptr : first->value;
    if (!has(block, Axis::Kind::reduction)) {
      if (reads(store.value, store.buffer)) refuse(block, "it reads '" + store.buffer + "', which it stores into");
      return contribute(block, block.axes, store.value, gradient);
    }
    const Reduction form = *reduction_of(store);
    ExprPtr share = gradient;
    if (form.combine == "maximum" || form.combine == "minimum") {
      share = make_call("div", {gradient, count_equal(block, store, form.element, init)});
    } else if (form.combine != "add") {
      refuse(block, "'" + store.buffer + "' is reduced by '" + form.combine + "'; sums, maxima and minima have a gradient");
    }
    const auto of = [&](const ExprPtr& value) { return form.combine == "add" ? share : where(is_result(store, value), share); };
    contribute(block, block.axes, form.element, of(form.element));
    if (init != nullptr) contribute(block, spatial(block), init, of(init));
  }

  static std::vector<Axis> spatial(const Block& block) {
    std::vector<Axis> out;
    for (const Axis& axis : block.axes)
      if (axis.kind == Axis::Kind::spatial) out.push_back(axis);
    return out;
  }

  ExprPtr is_result(const Store& store, const ExprPtr& value) const {
    return make_call("eq", {value, make_load(store.buffer, value->dtype, store.indices)});
  }

  // How many elements are the largest (or smallest): they share its gradient.
  ExprPtr count_equal(const Block& block, const Store& store, const ExprPtr& element, const ExprPtr& init) {
    const Buffer& target = buffer(store.buffer);
    const DType dtype = sum_dtype(target.dtype);
    const std::string count = allocate(names_("count_" + target.name), dtype, target.shape);
    const ExprPtr sum = make_load(count, dtype, store.indices), one = make_cast(dtype, make_integer(1));
    Block counts{count, block.axes, nullptr, {}, {}, {}};
    counts.init = {{count, store.indices, init == nullptr ? zero_of(dtype) : where(is_result(store, init), one)}};
    counts.body = {{count, store.indices, sum + where(is_result(store, element), one)}};
    emit(std::move(counts));
    return make_cast(target.dtype, sum);
  }

  // ---- the chain rule in an expression ----

  void contribute(const Block& block, const std::vector<Axis>& axes, const ExprPtr& value, const ExprPtr& gradient) {
    std::vector<ExprPtr> conditions;
    follow(block, axes, value, gradient, &conditions);
  }

  void follow(const Block& block, const std::vector<Axis>& axes, const ExprPtr& value, const ExprPtr& gradient,
              std::vector<ExprPtr>* conditions) {
    if (gradient == nullptr || !depends(value)) return;
    const auto& operands = value->operands;
    if (value->kind == Expr::Kind::load) return read(block, {axes, operands, *conditions}, *value, gradient);
    if (value->kind == Expr::Kind::cast)
      return follow(block, axes, operands[0], make_cast(operands[0]->dtype, gradient), conditions);
    if (value->name == "where") {
      for (size_t i = 1; i < 3; ++i) {
        conditions->push_back(i == 1 ? operands[0] : make_call("logical_not", {operands[0]}));
        follow(block, axes, operands[i], gradient, conditions);
        conditions->pop_back();
      }
      return;
    }
    const std::vector<ExprPtr> of_operands = derivatives(value, gradient);
    for (size_t i = 0; i < operands.size(); ++i) follow(block, axes, operands[i], of_operands[i], conditions);
  }

  void read(const Block& block, Reading reading, const Expr& load, const ExprPtr& gradient) {
    for (const ExprPtr& index : reading.indices) {
      for_each_part(index, [&](const Expr& part) {
        if (part.kind == Expr::Kind::clamp)
          refuse(block, "'" + load.name + "' is read at " + print(index) + ", a place that data choose");
      });
    }
    const ExprPtr value = make_cast(sum_dtype(load.dtype), gradient);
    std::vector<Contribution>& all = contributions_[load.name];
    const auto alike = [&](const Contribution& other) {
      return other.reading.axes.size() == reading.axes.size() &&
             std::equal(reading.axes.begin(), reading.axes.end(), other.reading.axes.begin(),
                        [](const Axis& a, const Axis& b) { return a.name == b.name && same(a.extent, b.extent); }) &&
             same(other.reading.indices, reading.indices) && same(other.reading.conditions, reading.conditions);
    };
    const auto found = std::find_if(all.begin(), all.end(), alike);
    if (found != all.end())
      found->value = found->value + value;
    else
      all.push_back({std::move(reading), value});
  }

  // ---- a buffer's gradient: the sum of what its reads contribute ----

  struct Total {
    std::vector<Axis> axes;  // that are summed over
    ExprPtr value;
  };

  void finish(const Buffer& of) {
    const bool is_input = of.role == Buffer::Role::input;
    if (!is_input && contributions_[of.name].empty()) return;
    const DType dtype = sum_dtype(of.dtype);
    const std::vector<ExprPtr> places = places_of(of);
    ExprPtr direct;  // what is not summed
    if (const ExprPtr seed = gradient_at(of, places)) direct = make_cast(dtype, seed);
    std::vector<Total> totals = totals_of(of, places, &direct);
    const std::string result = is_input ? results_.at(of.name) : names_("d_" + of.name);
    if (!is_input) allocate(result, dtype, of.shape);
    const bool casts = is_input && (dtype != of.dtype || of.optional);  // what may be absent cannot be added up in
    for (size_t i = 0; i < totals.size(); ++i) {
      const bool is_last = i + 1 == totals.size() && !casts;
      const std::string part = is_last ? result : allocate(names_("d_" + of.name), dtype, of.shape);
      emit_sum(part, dtype, of, totals[i], direct == nullptr ? zero_of(dtype) : direct);
      direct = make_load(part, dtype, places);
    }
    if (totals.empty() || casts) {
      const ExprPtr value = direct == nullptr ? zero_of(of.dtype) : make_cast(is_input ? of.dtype : dtype, direct);
      emit({result, axes_of(of), nullptr, {}, {}, {{result, places, value}}});
    }
    if (!is_input) gradients_[of.name] = result;
  }

  std::vector<Total> totals_of(const Buffer& of, const std::vector<ExprPtr>& places, ExprPtr* direct) {
    std::vector<Total> out;
    for (const Contribution& contribution : contributions_[of.name]) {
      for (const Inverse& inverse : invert(contribution.reading, places, of.shape, [&] { return names_("r"); })) {
        ExprPtr value = substitute(contribution.value, inverse.axes);
        for (auto condition = inverse.conditions.rbegin(); condition != inverse.conditions.rend(); ++condition)
          value = where(substitute(*condition, inverse.axes), value);
        add_total(inverse.free, where(inverse.guard, value), direct, &out);
      }
    }
    return out;
  }

  // Those of the same axes are summed in one pass.
  static void add_total(const std::vector<Axis>& axes, const ExprPtr& value, ExprPtr* direct, std::vector<Total>* out) {
    if (axes.empty()) {
      *direct = plus(*direct, value);
      return;
    }
    const auto same_axes = [&](const Total& other) {
      return std::equal(axes.begin(), axes.end(), other.axes.begin(), other.axes.end(),
                        [](const Axis& a, const Axis& b) { return a.name == b.name && same(a.extent, b.extent); });
    };
    const auto found = std::find_if(out->begin(), out->end(), same_axes);
    if (found == out->end())
      out->push_back({axes, value});
    else
      found->value = found->value + value;
  }

  void emit_sum(const std::string& into, DType dtype, const Buffer& of, const Total& total, const ExprPtr& first) {
    const std::vector<ExprPtr> places = places_of(of);
    Block block{into, axes_of(of), nullptr, {}, {}, {}};
    block.axes.insert(block.axes.end(), total.axes.begin(), total.axes.end());
    block.init = {{into, places, first}};
    block.body = {{into, places, make_load(into, dtype, places) + total.value}};
    emit(std::move(block));
  }

  std::vector<ExprPtr> places_of(const Buffer& of) {
    while (places_.size() < of.shape.size()) places_.push_back(make_name(names_("p" + std::to_string(places_.size()))));
    return {places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(of.shape.size())};
  }
  std::vector<Axis> axes_of(const Buffer& of) {
    std::vector<Axis> out;
    out.reserve(of.shape.size());
    for (size_t d = 0; d < of.shape.size(); ++d) out.push_back({places_of(of)[d]->name, Axis::Kind::spatial, of.shape[d], nullptr});
    return out;
  }

  std::string allocate(const std::string& name, DType dtype, const std::vector<ExprPtr>& shape) {
    Buffer made;
    made.name = name;
    made.dtype = dtype;
    made.shape = shape;
    made.role = Buffer::Role::allocated;
    out_.allocations.push_back(made);
    return name;
  }

  void emit(Block block) {
    for (const std::vector<Store>* stores : {&block.init, &block.body})
      for (const Store& store : *stores) note_reads(store.value);
    out_.body.push_back(in_loops(std::move(block), [&] { return loop_name(); }));
  }

  // ---- what is computed again ----

  void note_reads(const ExprPtr& value) {
    for_each_load(value, [&](const Expr& load) { read_.insert(load.name); });
  }

  void compute_again() {
    std::vector<Stmt> again;
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
      if (auto part = needed_of(**block)) again.push_back(in_loops(std::move(*part), [&] { return loop_name(); }));
    }
    out_.body.insert(out_.body.begin(), again.rbegin(), again.rend());
    for (const Buffer& allocation : forward_.allocations) {
      if (read_.count(allocation.name) != 0) allocate(allocation.name, allocation.dtype, allocation.shape);
    }
    for (Buffer& tensor : out_.tensors) {
      if (seeds_.count(tensor.name) != 0 && read_.count(tensor.name) != 0) tensor.optional = false;
    }
  }

  // The block's stores into allocations that are read; an output that is read is given.
  std::optional<Block> needed_of(const Block& block) {
    Block out = block;
    const auto is_dropped = [&](const Store& store) {
      return buffer(store.buffer).role != Buffer::Role::allocated || read_.count(store.buffer) == 0;
    };
    for (auto store = block.body.rbegin(); store != block.body.rend(); ++store)
      if (!is_dropped(*store)) note_reads(store->value);
    std::erase_if(out.init, is_dropped);
    std::erase_if(out.body, is_dropped);
    if (out.body.empty()) return std::nullopt;
    for (const Store& store : out.init) note_reads(store.value);
    for (const Store& store : block.body)
      if (has(block, Axis::Kind::carried) && buffer(store.buffer).role != Buffer::Role::allocated && read_.count(store.buffer) != 0)
        refuse(block, "it carries '" + store.buffer + "', an output, and a buffer that the adjoint computes again");
    return out;
  }

  const Program& forward_;
  Namer names_;
  std::vector<const Block*> blocks_;
  std::map<std::string, const Block*> writers_;
  std::set<std::string> active_, read_;
  std::map<std::string, std::string> seeds_, results_, gradients_;  // of outputs, of inputs, of others: the names of gradients
  std::map<std::string, std::vector<Contribution>> contributions_;
  std::vector<ExprPtr> places_;
  Program out_;
};

}  // namespace

Program adjoint(const Program& program) { return Adjoint(program).run(); }

bool is_adjoint(const Program& found, const Program& program) { return same(found, adjoint(program)); }

}  // namespace narrows::program
