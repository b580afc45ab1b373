// SPDX-License-Identifier: Apache-2.0
// steps.h -- what the interpreter runs: steps on cells of 8 bytes, each a function that gives the step after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/program_bind.h"
#include "program/functions.h"

namespace narrows::cpu {

// A value: an element in the low bytes (bool: 0 or 1), or a number of `index`.
union Cell {
  int64_t index;
  unsigned char bytes[8];
};

struct Frame {
  Cell* cells;
  char** base;  // of each buffer: its first element
  bool in_parallel = false;
};

struct AddressTerm {
  int32_t cell;
  int64_t factor;
};

struct Step;
using Run1 = const Step* (*)(const Step* step, Frame& frame);

struct Step {
  Run1 run = nullptr;
  int32_t out = 0, a = 0, b = 0, c = 0;  // cells
  int32_t buffer = 0, jump = 0;
  int32_t num_terms = 0;
  int64_t first_term = 0;  // in Code::terms; `terms` once the code is complete
  const AddressTerm* terms = nullptr;
  int64_t constant = 0;
  Kernel kernel = nullptr;
};

// Straight-line steps with jumps forward. Ends with a step whose run gives nullptr.
struct Code {
  std::vector<Step> steps;
  std::vector<AddressTerm> terms;
  void finish();
  void run(Frame& frame) const {
    for (const Step* step = steps.data(); step != nullptr;) step = step->run(step, frame);
  }
};

// Turns expressions into steps. Names of sizes must be numbers already.
class Compiler {
 public:
  Compiler(const Instance& instance, const Bound& bound) : instance_(instance), bound_(bound) {}

  int32_t new_cell() { return num_cells_++; }
  int32_t num_cells() const { return num_cells_; }
  int32_t buffer_number(const std::string& name);
  const std::vector<std::string>& buffer_names() const { return buffer_names_; }
  void name_cell(const std::string& loop, int32_t cell) { names_[loop] = cell; }
  void set_contract(bool contract) { contract_ = contract; }
  void set_extents(Extents extents) { extents_ = std::move(extents); }

  int32_t value(const ir::ExprPtr& expr, Code* code);
  // Skips to wherever the returned step's jump is set to, unless the cell is true.
  size_t jump_unless(int32_t cell, Code* code);
  void land(size_t step, Code* code) const { code->steps[step].jump = static_cast<int32_t>(code->steps.size() - step); }
  void store(const ir::Store& store, Code* code);

  // Cells that hold one value through a launch.
  struct Constant {
    int32_t cell;
    Cell value;
  };
  const std::vector<Constant>& constants() const { return constants_; }

 private:
  int32_t constant(Cell value);
  int32_t call(const ir::ExprPtr& expr, Code* code);
  int32_t sum_of_product(const ir::Expr& expr, size_t product, Code* code);
  int32_t index_call(const ir::ExprPtr& expr, Code* code);
  int32_t where(const ir::ExprPtr& expr, Code* code);
  int32_t cast(const ir::ExprPtr& expr, Code* code);
  int32_t clamp(const ir::ExprPtr& expr, Code* code);
  int32_t load(const ir::Expr& expr, Code* code);
  int32_t sum(const ir::ExprPtr& expr, Code* code);
  int32_t name(const ir::Expr& expr);
  void add_terms(const Linear& sum, int64_t factor, Step* step, std::vector<AddressTerm>* terms, Code* code);
  Step access(const std::string& buffer, const std::vector<ir::ExprPtr>& indices, Code* code);
  int32_t emit(Step step, Code* code);

  const Instance& instance_;
  const Bound& bound_;
  Extents extents_;
  std::map<std::string, int32_t> names_;
  std::vector<std::string> buffer_names_;
  std::vector<Constant> constants_;
  int32_t num_cells_ = 0;
  bool contract_ = false;
};

}  // namespace narrows::cpu
