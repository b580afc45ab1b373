// SPDX-License-Identifier: Apache-2.0
// interpreter.cpp -- see interpreter.h. steps.cpp has the steps.
#include "program/interpreter.h"

#include <cstring>
#include <utility>

#include "core/program/expr.h"
#include "ops/tasks.h"
#include "program/cost.h"
#include "program/memory.h"
#include "program/steps.h"

namespace narrows::cpu {
namespace {

constexpr double kStep = 150;  // multiply-adds that take as long

// A loop, or stores.
struct Part {
  bool is_loop = false;
  bool is_parallel = false;
  int32_t variable = 0, extent = 0;  // cells
  double cost = 0;                   // of one iteration, as run_tasks() takes it
  Code code;                         // computes the extent; or does all that the stores do
  std::vector<Part> body;
};

class Builder {
 public:
  Builder(const Instance& instance, const Bound& bound) : bound_(bound), compiler(instance, bound) {
    for (const auto& [name, number] : bound.numbers) sizes_[name] = ir::make_integer(number);
    Extents extents;
    collect_numbers(bound.lowered->body, &extents);
    compiler.set_extents(std::move(extents));
  }

  std::vector<Part> body(const std::vector<Node>& nodes) {
    std::vector<Part> out;
    out.reserve(nodes.size());
    for (const Node& node : nodes) out.push_back(node.kind == Node::Kind::loop ? loop(node) : stores(node));
    return out;
  }

 private:
  void collect_numbers(const std::vector<Node>& nodes, Extents* extents) const {
    for (const Node& node : nodes) {
      if (node.kind != Node::Kind::loop) continue;
      if (const auto extent = ir::constant(ir::substitute(node.extent, sizes_)); extent.has_value())
        (*extents)[node.name] = *extent;
      collect_numbers(node.body, extents);
    }
  }

  Part loop(const Node& node) {
    Part out;
    out.is_loop = true;
    out.is_parallel = node.loop_kind == ir::For::Kind::parallel;
    out.variable = compiler.new_cell();
    out.extent = compiler.value(ir::substitute(node.extent, sizes_), &out.code);
    out.code.finish();
    compiler.name_cell(node.name, out.variable);
    out.body = body(node.body);
    for (size_t i = 0; i < node.body.size(); ++i) out.cost += cost(out.body[i], node.body[i]);
    return out;
  }

  double cost(const Part& part, const Node& node) const {
    return kStep * static_cast<double>(part.code.steps.size()) + (part.is_loop ? trips_of(node, bound_.numbers) * part.cost : 0);
  }

  Part stores(const Node& node) {
    Part out;
    std::vector<size_t> jumps;
    jumps.reserve(node.conditions.size());
    compiler.set_contract(node.contract);
    for (const ir::ExprPtr& condition : node.conditions)
      jumps.push_back(compiler.jump_unless(compiler.value(ir::substitute(condition, sizes_), &out.code), &out.code));
    for (const ir::Store& store : node.stores) {
      ir::Store number = store;
      for (ir::ExprPtr& index : number.indices) index = ir::substitute(index, sizes_);
      number.value = ir::substitute(store.value, sizes_);
      compiler.store(number, &out.code);
    }
    for (const size_t jump : jumps) compiler.land(jump, &out.code);
    out.code.finish();
    return out;
  }

  const Bound& bound_;
  ir::Substitution sizes_;

 public:
  Compiler compiler;
};

class InterpreterPlan : public Plan {
 public:
  InterpreterPlan(const Instance& instance, const Bound& bound) : instance_(instance), is_empty_(bound.is_empty) {
    Builder builder(instance, bound);
    body_ = builder.body(bound.lowered->body);
    cells_.resize(static_cast<size_t>(builder.compiler.num_cells()));
    for (const auto& [cell, value] : builder.compiler.constants()) cells_[static_cast<size_t>(cell)] = value;
    const std::vector<std::string>& names = builder.compiler.buffer_names();
    memory_ = std::make_unique<Memory>(instance, bound, names, cells_.size() * sizeof(Cell) + names.size() * sizeof(char*));
    workspace_size = memory_->workspace_size();
    kernel = "interpreter";
  }

  void launch(const nw_call& call) const override {
    if (is_empty_) return;
    Frame frame = frame_of(call, -1);
    std::copy(cells_.begin(), cells_.end(), frame.cells);
    memory_->begin(call, frame.base);
    run(body_, call, frame);
  }

 private:
  Frame frame_of(const nw_call& call, int64_t slot) const {
    char* const memory = memory_->frame(call, slot);
    Frame out{};
    out.cells = reinterpret_cast<Cell*>(memory);
    out.base = reinterpret_cast<char**>(memory + cells_.size() * sizeof(Cell));
    return out;
  }

  void run(const std::vector<Part>& parts, const nw_call& call, Frame& frame) const {
    for (const Part& part : parts) {
      part.code.run(frame);
      if (!part.is_loop) continue;
      const int64_t extent = frame.cells[part.extent].index;
      if (part.is_parallel && !frame.in_parallel)
        run_parallel(part, extent, call, frame);
      else
        run_range(part, 0, extent, call, frame);
    }
  }

  void run_range(const Part& part, int64_t begin, int64_t end, const nw_call& call, Frame& frame) const {
    for (int64_t i = begin; i < end; ++i) {
      frame.cells[part.variable].index = i;
      run(part.body, call, frame);
    }
  }

  void run_parallel(const Part& part, int64_t extent, const nw_call& call, const Frame& frame) const {
    if (extent <= 0) return;
    run_tasks(instance_, extent, part.cost, [&](int64_t slot, int64_t begin, int64_t end) {
      Frame mine = frame_of(call, slot);
      std::copy(frame.cells, frame.cells + cells_.size(), mine.cells);
      std::copy(frame.base, frame.base + memory_->num_buffers(), mine.base);
      memory_->enter(call, slot, mine.base);
      mine.in_parallel = true;
      run_range(part, begin, end, call, mine);
    });
  }

  const Instance& instance_;
  const bool is_empty_;
  std::vector<Part> body_;
  std::vector<Cell> cells_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace

std::unique_ptr<Plan> plan_interpreter(const Instance& instance, const Bound& bound) {
  return std::make_unique<InterpreterPlan>(instance, bound);
}

}  // namespace narrows::cpu
