// SPDX-License-Identifier: Apache-2.0
// printer.h -- how source.cpp (kernels, loops, buffers) and values.cpp (expressions) share the writing of a kernel. Step 5 of a
// tensor's path.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/program/source.h"

namespace narrows::gpu {

using common::Bound;
using common::BoundBuffer;
using common::Extents;
using common::Kernel;
using common::Linear;
using common::Names;
using common::Node;
using common::Place;

std::string type_of(ir::DType dtype);     // as a value: f16 and bf16 are held as f32
std::string storage_of(ir::DType dtype);  // as it lies in memory
bool is_half(ir::DType dtype);

class Printer {
 public:
  Printer(const common::KernelProgram& program, const Bound& bound, const GpuLayout& layout)
      : program_(program), bound_(bound), layout_(layout) {}
  GpuSource print();

 private:
  // ---- text ----
  void line(const std::string& text);
  void open(const std::string& text);
  void close(const std::string& text = "}");
  std::string fresh(const char* prefix) { return prefix + std::to_string(counter_++); }

  // ---- kernels and loops: source.cpp ----
  void kernel(const Kernel& kernel, size_t number);
  void declare_allocations(const Kernel& kernel);
  void bound_loops(const Kernel& kernel);
  void flat_loops(const Kernel& kernel);
  void decode(std::vector<common::KernelLoop> loops, std::string from);
  void nodes(const std::vector<Node>& body);
  void loop(const Node& node);
  void plain_loop(const Node& node);
  bool accumulate(const Node& node);
  void stores(const Node& node);
  std::string threads_test(const Node& node) const;
  bool indexes_local(const Node& node, const std::string& loop) const;
  std::string slot(Slot::Kind kind, const std::string& name = "", size_t dimension = 0);

  // ---- runs of elements: vectors.cpp ----
  bool vector_loop(const Node& node);
  struct Run {  // elements side by side that the iterations of a loop read or write
    std::string buffer, array;
    std::vector<ir::ExprPtr> indices;
  };
  using Runs = std::map<std::string, Run>;  // by key_of()
  bool is_run(const std::string& buffer, const std::vector<ir::ExprPtr>& indices, const std::string& loop, int64_t length);
  void collect_runs(const Node& node, int64_t length, Runs* reads, Runs* writes);
  bool may_read_runs(const Node& node, const std::string& buffer) const;
  std::optional<std::string> whole_test(const Node& node, int64_t length);
  void write_run(const Node& node, int64_t length, const Runs& reads, const Runs& writes);
  int64_t alignment_of(const std::string& buffer) const;

  // ---- buffers: source.cpp ----
  std::string stride(const std::string& buffer, size_t dimension, std::optional<int64_t>* number);
  std::string offset(const std::string& buffer, const std::vector<ir::ExprPtr>& indices);
  std::string element(const std::string& buffer, const std::vector<ir::ExprPtr>& indices);
  std::string load(const ir::Expr& expr);
  void store(const ir::Store& store);
  std::string from_storage(const std::string& text, ir::DType dtype) const;
  std::string to_storage(const std::string& text, ir::DType dtype) const;

  // ---- expressions: values.cpp ----
  std::string sum_text(const Linear& sum);
  std::string index_text(const ir::ExprPtr& expr) { return sum_text(common::linear(expr, extents_)); }
  std::string atom_text(const ir::ExprPtr& atom);
  std::string value(const ir::ExprPtr& expr);
  std::string call(const ir::Expr& expr);
  std::string where(const ir::Expr& expr);
  std::string cast(const ir::Expr& expr);
  std::string function(const std::string& name, const std::string& type, ir::DType dtype, const std::vector<std::string>& operands);
  std::string arithmetic(const std::string& symbol, ir::DType dtype, const std::string& a, const std::string& b);
  std::string rounded(const std::string& text, ir::DType dtype) const;
  std::string condition_text(const std::vector<ir::ExprPtr>& conditions);
  std::vector<ir::ExprPtr> open_conditions(const Node& node) const;

  const common::KernelProgram& program_;
  const Bound& bound_;
  const GpuLayout& layout_;
  GpuSource source_;
  bool with_functions_ = false;

  // of the kernel that is being written
  KernelSource* kernel_ = nullptr;
  std::string out_;
  int counter_ = 0, indent_ = 1;
  std::map<std::string, std::string> c_names_;  // loops
  std::map<std::string, std::string> arrays_;   // allocations in variables or shared memory
  Extents extents_;
  bool contract_ = false;
  struct Accumulator {
    std::vector<ir::ExprPtr> indices;
    std::string variable;
  };
  std::map<std::string, Accumulator> accumulators_;
  std::map<std::string, std::string> read_runs_, written_runs_;  // by key_of(): the element of a run's array
};

std::string key_of(const std::string& buffer, const std::vector<ir::ExprPtr>& indices);

}  // namespace narrows::gpu
