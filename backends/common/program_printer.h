// SPDX-License-Identifier: Apache-2.0
// program_printer.h -- the kernels of a program as text for a vendor's compiler: what CUDA, HIP and GLSL have in common. Kernels,
// loops and buffers are in program_printer.cpp, expressions in program_printer_values.cpp, runs of elements in
// program_printer_runs.cpp, products of matrix units in program_printer_products.cpp, those of four warps in
// program_printer_groups.cpp, copies that run ahead in program_printer_ahead.cpp. A backend's dialect says the rest. No name of the
// program reaches the text.
//
// What a dialect's prelude has: types i8 ... u64, f32, f64 and ix (of subscripts); nw_thread, nw_block and nw_blocks; nw_barrier();
// NW_UNROLL before a loop, NW_ALIGNED before an array; nw_param_T of a param's bits; nw_floor_div, nw_remainder, nw_minimum,
// nw_maximum, nw_clamp, nw_of_u64, nw_relu, nw_square, nw_fma32, nw_fma64, nw_copysign32, nw_copysign64; nw_from_T, nw_to_T and
// nw_round_T of f16 and bf16. If its GpuLimits have unit_lanes: nw_warp_barrier() and, unless it prints tiles of products itself,
// nw_lane, nw_pair, nw_read_pair, nw_read_tiles, nw_read_tiles_across, nw_mma_f16 and nw_mma_bf16. If they have has_panels:
// nw_panel; copies_ahead: nw_copy_ahead, nw_copies_commit and nw_copies_wait; has_groups: nw_group_begin, nw_group_commit,
// nw_group_wait, nw_group_fence and nw_group_matrix.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "program_bind.h"
#include "program_kernels.h"
#include "program_products.h"
#include "program_tiles.h"
#include "text_writer.h"

namespace narrows::common {

// What a kernel is handed, 8 bytes each, in one struct.
struct Slot {
  enum class Kind {
    buffer,  // an address
    size,    // of a size or an integer param
    stride,  // in elements
    param,   // its bits, as its dtype
    blocks,  // how many blocks or, of a kernel whose loops are not bound, iterations there are
    parts,   // the address of what blocks and threads have of their own
    part,    // the bytes of one block's part
    place,   // of an allocation: bytes into a block's part
    bytes,   // of an allocation that each thread has
  };
  Kind kind;
  std::string name;
  size_t dimension = 0;
  bool operator==(const Slot&) const = default;
};

struct KernelSource {
  std::string name;  // of its function
  std::vector<Slot> slots;
  int64_t threads = 1;       // of a block
  int64_t shared_bytes = 0;  // of a block, to be asked for at the launch
  bool is_strided = false;   // blocks go on until there are no more iterations
  std::string text;          // its own, where each kernel is compiled alone
};

struct PrintedProgram {
  std::string text;
  std::vector<KernelSource> kernels;  // as in KernelProgram
};

// What is known of a call beside its layout.
struct KernelLayout {
  bool short_indices = false;            // all indices fit into 32 bits
  bool is_strided = false;               // there are more blocks than a launch takes
  std::map<std::string, int> alignment;  // of buffers: elements of which addresses and strides other than 1 are multiples
};

inline constexpr int kFlatThreads = 256;  // of a block whose kernel has no loop that is bound

std::string type_of(ir::DType dtype);     // as a value: f16 and bf16 are held as f32
std::string storage_of(ir::DType dtype);  // as it lies in memory
bool is_half(ir::DType dtype);
std::string join(const std::vector<std::string>& parts, const char* between);
int64_t elements_of(const ir::Buffer& buffer);        // of an allocation with a constant shape
int64_t elements_of_stage(const ir::Buffer& buffer);  // so many that each stage begins at a multiple of 16 bytes

struct SharedArray {
  // What copies that run ahead write, and sums that lie in registers meanwhile, may use the same memory.
  enum class Overlay { none, stages, sums };
  std::string type, name;
  int64_t count;
  bool has_panels;
  Overlay overlay;
};

class KernelPrinter : protected TextWriter {
 public:
  KernelPrinter(const KernelProgram& program, const Bound& bound, const KernelLayout& layout)
      : program_(program), bound_(bound), layout_(layout) {}
  virtual ~KernelPrinter() = default;
  PrintedProgram print();

 protected:
  struct Run {  // elements side by side that the iterations of a loop read or write
    std::string buffer, array;
    std::vector<ir::ExprPtr> indices;
  };

  // ---- the dialect ----
  virtual std::string real_literal(double value, bool is_single) = 0;
  virtual std::string wide_literal(uint64_t bits, bool is_signed) = 0;  // of 64 bits
  virtual std::string real_arithmetic(const std::string& symbol, ir::DType dtype, const std::string& a, const std::string& b) = 0;
  virtual std::string real_compare(const std::string& symbol, const std::string& a, const std::string& b) = 0;
  virtual std::string negated(const std::string& a) = 0;
  // A function of elementwise; "" for one that there is not.
  virtual std::string function(const std::string& name, const std::string& type, ir::DType dtype,
                               const std::vector<std::string>& operands) = 0;
  virtual std::string as_i64(const std::string& whole) { return "i64(" + whole + ")"; }
  virtual std::string convert(const std::string& in, ir::DType from, ir::DType to) = 0;  // a cast that is no widening
  virtual std::string in_memory(const ir::Buffer& buffer, const std::string& address, const std::string& offset) = 0;
  virtual std::string subscript(const std::string& index) { return index; }  // of arrays in variables and in shared memory
  virtual std::string in_array(const std::string&, const std::string& array, const std::string& index) {  // an allocation's
    return array + "[" + subscript(index) + "]";
  }
  virtual void declare_shared(const SharedArray& array) = 0;
  // A run of elements, from global to shared memory.
  virtual void copy_ahead(const Run&, const std::vector<ir::ExprPtr>&, const Run&, const std::vector<ir::ExprPtr>&, int64_t) {}
  // The name of a function that four warps call: see program_printer_groups.cpp.
  virtual std::string group_product(const std::string&, int64_t, bool, bool) { return ""; }
  virtual void declare_address(const std::string& type, const std::string& name, const std::string& address) = 0;
  virtual void read_run(const Run& run, const std::vector<ir::ExprPtr>& first, int64_t length) = 0;
  virtual void write_run(const Run& run, const std::vector<ir::ExprPtr>& first, int64_t length) = 0;
  virtual void begin_kernel(const Kernel&) {}
  virtual void end_kernel(size_t number) = 0;  // puts its function around `out_`
  virtual void end_program() = 0;

  // ---- products of matrix units ----
  virtual std::string why_plain(const Tile&) { return ""; }  // plain loops compute it, since; "": the unit does
  virtual void declare_sums(const Tile& tile);
  virtual void move_sums(const Tile& tile, bool store);
  virtual void multiply(const Tile& tile);
  // Text of a tile's loops, and which of their iterations it is at. `pair`: of that loop two iterations are one.
  void over(const std::vector<const Node*>& loops, const std::function<void()>& body, const Node* pair = nullptr);
  std::string number_in(const std::vector<const Node*>& loops, const Node* pair = nullptr) const;

  // ---- kernels and loops ----
  std::string fresh(const char* prefix) { return prefix + std::to_string(counter_++); }
  std::string slot(Slot::Kind kind, const std::string& name = "", size_t dimension = 0);
  std::string element(const std::string& buffer, const std::vector<ir::ExprPtr>& indices);
  std::string offset(const std::string& buffer, const std::vector<ir::ExprPtr>& indices);
  bool is_beside(const std::string& buffer, const std::vector<ir::ExprPtr>& indices) const;
  std::string rounded(const std::string& text, ir::DType dtype) const;
  const ir::Buffer& buffer_of(const std::string& name) const { return *bound_.buffers.at(name).buffer; }
  ir::DType param_dtype(const std::string& name) const;
  std::string stride(const std::string& buffer, size_t dimension, std::optional<int64_t>* number);
  bool is_run(const std::string& buffer, const std::vector<ir::ExprPtr>& indices, const std::string& loop, int64_t length);
  std::vector<ir::ExprPtr> open_conditions(const Node& node) const;
  void place(const Tile& tile, const std::string& m, const std::string& n, const std::string& k);

  const KernelProgram& program_;
  const Bound& bound_;
  const KernelLayout& layout_;
  PrintedProgram source_;
  KernelSource* kernel_ = nullptr;             // that is being written
  std::map<std::string, std::string> arrays_;  // allocations in variables, in shared memory or at an address of their own
  Names addresses_;                            // of these, the last ones
  std::map<std::string, std::string> loops_;   // the variables of loops
  Extents extents_;

 private:
  void kernel(const Kernel& kernel, size_t number);
  void declare_allocations(const Kernel& kernel);
  void bound_loops(const Kernel& kernel);
  void flat_loops(const Kernel& kernel);
  void decode(std::vector<KernelLoop> loops, std::string from);
  void nodes(const std::vector<Node>& body) { nodes(body, 0, body.size()); }
  void nodes(const std::vector<Node>& body, size_t first, size_t end);
  void loop(const Node& node);
  void plain_loop(const Node& node);
  bool accumulate(const Node& node);
  bool chooses_element(const ir::ExprPtr& condition, const std::vector<ir::ExprPtr>& indices) const;
  void stores(const Node& node);
  std::string threads_test(const Node& node) const;
  bool indexes_local(const Node& node, const std::string& loop) const;

  // ---- runs of elements: program_printer_runs.cpp ----
  using Runs = std::map<std::string, Run>;  // by key_of()
  bool vector_loop(const Node& node);
  static std::vector<ir::ExprPtr> first_of(const Run& run, const std::string& loop);
  void collect_runs(const Node& node, int64_t length, Runs* reads, Runs* writes);
  bool may_read_runs(const Node& node, const std::string& buffer) const;
  std::optional<std::string> whole_test(const Node& node, int64_t length);
  void runs(const Node& node, int64_t length, const Runs& reads, const Runs& writes);
  int64_t alignment_of(const std::string& buffer) const;

  // ---- products of matrix units: program_printer_products.cpp ----
  bool product_loop(const Node& node);
  std::string remark_of_plain(const Node& node) const;
  std::string read_factor(const Tile& tile, bool is_a);
  void read_fragment(const Tile& tile, bool is_a, const std::string& fragment);

  // ---- products of four warps: program_printer_groups.cpp ----
  std::string loop_of_groups(const Tile& tile, const Node& ahead);
  bool is_group_side(const ir::ExprPtr& index, const Tile& tile, const std::string& warp, bool is_a, bool is_across) const;
  void multiply_in_groups(const Tile& tile);

  // ---- copies that run ahead: program_printer_ahead.cpp ----
  void pipelined_loop(const Node& node);
  void stage(const Node& node, const std::string& stage, const std::function<void()>& body);
  void copies(const Node& node, const std::string& iteration);
  bool copy_runs(const Node& node, int64_t length, const Runs& reads, const Runs& writes);

  // ---- buffers ----
  void find_panels(const Kernel& kernel);
  std::string load(const ir::Expr& expr);
  std::string in_storage(const ir::Expr& load);
  std::string computed(const ir::ExprPtr& expr, ir::DType dtype);
  void store(const ir::Store& store);
  std::string from_storage(const std::string& text, ir::DType dtype) const;
  std::string to_storage(const std::string& text, ir::DType dtype) const;

  // ---- expressions: program_printer_values.cpp ----
  std::string literal(const ir::Expr& constant);
  std::string sum_text(const Linear& sum);
  std::string index_text(const ir::ExprPtr& expr) { return sum_text(linear(expr, extents_)); }
  std::string atom_text(const ir::ExprPtr& atom);
  std::string value(const ir::ExprPtr& expr);
  std::string call(const ir::Expr& expr);
  std::string operation(const ir::Expr& expr, const std::vector<std::string>& operands);
  std::string where(const ir::Expr& expr);
  std::string cast(const ir::Expr& expr);
  std::string arithmetic(const std::string& symbol, ir::DType dtype, const std::string& a, const std::string& b);
  std::string condition_text(const std::vector<ir::ExprPtr>& conditions);

  int counter_ = 0;
  Names concurrent_;  // of loops, the ones that blocks and threads share out
  bool contract_ = false;
  struct Accumulator {
    std::vector<ir::ExprPtr> indices;
    std::string variable;
  };
  std::map<std::string, Accumulator> accumulators_;
  const Kernel* bound_kernel_ = nullptr;                         // that is being written
  Names panels_;                                                 // buffers that lie so
  bool copies_ahead_ = false;                                    // the stores that are being written do
  const Node* waited_for_ = nullptr;                             // its barrier is written otherwise
  std::map<const Node*, Tile> tiles_;                            // of which the sums are in registers, by the outermost loop
  std::map<const Node*, std::string> plain_;                     // products that were joint, by why_plain()
  std::map<std::string, std::string> read_runs_, written_runs_;  // by key_of(): the element of a run's array
};

std::string key_of(const std::string& buffer, const std::vector<ir::ExprPtr>& indices);

}  // namespace narrows::common
