// SPDX-License-Identifier: Apache-2.0
// c_printer.h -- how c_source.cpp (functions, loops), c_vectors.cpp (vectorised loops), c_access.cpp (buffers) and c_values.cpp
// (expressions) share the writing of C.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/text_writer.h"
#include "core/program/expr.h"
#include "program/c_source.h"

namespace narrows::cpu {

// The lane of a vector, as a name in subscripts: one that no program has.
inline constexpr const char* kLane = "#lane";

inline constexpr int64_t kMostStackBytes = 192 << 10;  // of a function, for buffers and strips

// A value in C. A vector of bool is a mask: a vector of signed integers of `mask` bytes, each 0 or -1. f16 and bf16 are held as
// f32.
struct Value {
  std::string text;
  ir::DType dtype;
  int lanes = 1;
  int mask = 0;
};

std::string join(const std::vector<std::string>& parts, const char* between);
std::string c_type(ir::DType dtype, int lanes = 1);     // as a value
std::string c_storage(ir::DType dtype, int lanes = 1);  // as it lies in memory
std::string c_literal(const ir::Expr& constant);
std::string c_mask(int bytes, int lanes);
bool casts_by_c(ir::DType from, ir::DType to);  // as docs/ops.md says, by C's conversion
// `elu` whose alpha differs from element to element, which its kernel does not take. `expm1` is given its call.
ir::ExprPtr elu_by_expm1(const ir::Expr& elu, const std::function<ir::ExprPtr(const ir::ExprPtr&)>& expm1);
bool is_half(ir::DType dtype);

class Printer : private common::TextWriter {
 public:
  Printer(const Bound& bound, const CTarget& target);
  CSource print();

 private:
  // ---- text ----
  std::string fresh(const char* prefix) { return prefix + std::to_string(counter_++); }
  std::string keep(const std::string& type, const std::string& text);  // a new constant; gives its name
  void need_type(ir::DType dtype, int lanes);
  std::string helper(const std::string& name, int lanes);  // a function of the prelude for so many lanes
  std::string part_function(const char* name, ir::DType dtype, int lanes);
  Value part_mask(ir::DType dtype);
  bool may_stream(const std::string& buffer, int lanes) const;

  // ---- functions and loops: c_source.cpp ----
  void nodes(const std::vector<Node>& body);
  void loop(const Node& node);
  void serial_loop(const Node& node);
  void plain_loop(const Node& node);
  Names arrays_of_loop(const Node& node) const;
  bool loop_in_registers(const Node& node);
  void parallel_loop(const Node& node);
  std::vector<const Node*> parallel_nest(const Node& node) const;
  std::string call_in_parallel(const std::string& function, const std::string& iterations, const Node& innermost);
  void iterations(const std::vector<const Node*>& nest, const std::vector<std::string>& extents);
  void unrolled_loop(const Node& node);
  void versions(const Node& node);
  void scope(const std::vector<size_t>& allocations, const std::vector<Node>& body);
  bool try_scope(const std::vector<size_t>& allocations, const std::vector<Node>& body, Names* not_in_registers);
  struct Registers {
    std::set<std::pair<int64_t, int>> used;  // offset, lanes
    std::string name;
    bool failed = false;
    // In a partial tile: do uses need their conditions, or do elements have one condition each?
    bool is_free = false, is_mixed = false;
    std::map<std::pair<int64_t, int>, std::string> conditions = {};
  };
  static bool fits_registers(const Registers& registers);
  void declare_registers(size_t at, const std::string& buffer);
  void stores(const Node& node);
  bool may_be_local(size_t allocation, const std::vector<Node>& body) const;
  bool accumulate(const Node& node);
  void collect_kinds(const std::vector<Node>& body);  // and what is read
  void fence();
  int64_t unrolled_parts(const Node& node) const;

  // Full tiles: the conditions that a loop decides for all loops inside it.
  struct Full {
    size_t depth;     // of the loop that decides
    std::string key;  // what is decided
    ir::ExprPtr test;
  };
  std::optional<Full> full_test(const ir::ExprPtr& condition, const std::vector<std::string>& path) const;
  void collect_full(const std::vector<Node>& body, std::vector<std::string>* path, size_t depth,
                    std::map<std::string, ir::ExprPtr>* tests, std::map<std::string, ir::ExprPtr>* firsts) const;
  std::vector<ir::ExprPtr> open_conditions(const Node& node) const;  // those that are not known to hold

  // ---- partial tiles: c_partial.cpp ----
  struct TileBounds {
    std::map<std::string, std::vector<std::string>> loops;  // the last value of each that is there
    std::vector<std::string> lanes;                         // how many are there
  };
  bool always_holds(const Linear& sum) const;
  ir::ExprPtr test_of_first(const ir::ExprPtr& condition, const std::vector<std::string>& path, size_t depth) const;
  std::string tile_text(const Node& node, const Names& decided, const Names& lacking);
  bool partial_tile(const Node& node, const std::map<std::string, ir::ExprPtr>& firsts);
  bool is_lacking(const TileBounds& bounds, const ir::ExprPtr& base);
  std::string conditions_key(const Node& node) const;
  void note_use(const std::pair<int64_t, int>& element, Registers* registers) const;
  bool may_load_freely(const ir::Expr& load, const Node& loop) const;
  bool tile_bounds(const Node& node, const Node& loop, const ir::ExprPtr& base, TileBounds* out);
  ir::ExprPtr with_registers(const ir::ExprPtr& expr) const;
  bool free_stores(const Node& node, const Node& loop, const ir::ExprPtr& base, int lanes);

  // ---- vectors: c_vectors.cpp ----
  void set_lanes(int lanes);
  bool vector_loop(const Node& node);
  bool is_safe_to_vectorize(const Node& node) const;
  int lanes_for(const Node& node) const;
  bool needs_kernel(const ir::Expr& expr) const;
  bool calls_functions(const ir::ExprPtr& expr) const;
  int64_t strip_bytes(const Node& node) const;
  void chunk(const Node& node, const ir::ExprPtr& base, int lanes);
  void vector_stores(const Node& node, const Node& loop, const ir::ExprPtr& base, int lanes);
  bool bound_lanes(const ir::ExprPtr& condition, std::vector<std::string>* first, std::vector<std::string>* last);
  void some_lanes(const Node& node, const Node& loop, const ir::ExprPtr& base, int lanes, const std::vector<std::string>& first,
                  const std::vector<std::string>& last);
  bool try_part(const Node& node, int lanes, const std::vector<std::string>& first, const std::vector<std::string>& last);
  void lane_by_lane(const Node& node, const Node& loop, const ir::ExprPtr& base, int lanes);
  struct Strip {
    const Node* loop;
    ir::ExprPtr base;  // the loop's value at the strip's first element
    std::string length;
    int lanes;
    bool contract;
  };
  void strip(const Node& node, const ir::ExprPtr& base, const std::string& length, int lanes);
  void over(const std::string& length, int lanes, const std::function<void(const ir::ExprPtr& at, int lanes)>& body);
  ir::ExprPtr without_calls(const ir::ExprPtr& expr, const ir::ExprPtr& guard, const Strip& strip);
  void write(const Node& node);  // its stores
  ir::ExprPtr call_for_strip(const ir::Expr& call, const ir::ExprPtr& guard, const Strip& strip);
  std::string operand_for_strip(const ir::ExprPtr& operand, const ir::ExprPtr& guard, const Strip& strip, bool once);
  std::optional<std::string> elements_in_memory(const ir::ExprPtr& operand, const Strip& strip);
  std::string strip_array(ir::DType dtype);
  bool ends_decide(const ir::ExprPtr& condition) const;
  std::string at_lane(const ir::ExprPtr& condition, int64_t lane);  // of conditions that the lane's ends decide

  // ---- buffers: c_access.cpp ----
  struct Access {
    enum class Lanes { same, next, stepped, scattered };
    Lanes lanes = Lanes::same;
    std::string offset;               // elements, of lane 0
    std::string step;                 // elements from lane to lane
    std::optional<int64_t> constant;  // the offset, where it is a number
  };
  std::string stride(const std::string& buffer, size_t dimension, std::optional<int64_t>* number);
  Access access(const std::string& buffer, const std::vector<ir::ExprPtr>& indices);
  std::optional<std::string> in_register(const std::string& buffer, const Access& access, int lanes);
  Value load(const ir::Expr& expr);
  Value every_second(const ir::Expr& load, const std::string& offset);
  void store(const ir::Store& store);
  std::string element(const std::string& buffer, const std::string& offset, int lanes);
  Value from_storage(const std::string& text, ir::DType dtype, int lanes);
  std::string to_storage(const Value& value);
  std::string number(CNumber::Kind kind, const std::string& name, size_t dimension = 0, const Node* loop = nullptr);

  // ---- expressions: c_values.cpp ----
  ir::ExprPtr resolved(const ir::ExprPtr& expr) const { return ir::substitute(expr, replaced_); }
  std::vector<ir::ExprPtr> resolved(const std::vector<ir::ExprPtr>& indices) const;
  std::string sum_text(const Linear& sum);          // of index, a scalar
  std::string index_text(const ir::ExprPtr& expr);  // of a resolved expression without lanes
  std::string atom_text(const ir::ExprPtr& atom);
  Value index_value(const ir::ExprPtr& expr);
  Value value(const ir::ExprPtr& expr);  // of a resolved expression
  Value call(const ir::Expr& expr);
  Value sum_of_product(const ir::Expr& expr, size_t product);
  Value arithmetic(const std::string& symbol, const Value& a, const Value& b);
  Value compare(const std::string& symbol, const Value& a, const Value& b);
  Value logic(const std::string& name, const std::vector<Value>& operands);
  Value extreme(const std::string& symbol, const Value& a, const Value& b);
  Value select(const Value& condition, const Value& a, const Value& b);
  Value where(const ir::Expr& expr);
  Value guarded(const ir::Expr& expr, const std::string& test);
  Value each_lane(const ir::ExprPtr& expr);
  Value cast(const ir::Expr& expr);
  size_t function_number(const CFunction& function);
  Value by_c_function(const std::string& name, const std::vector<Value>& operands);
  Value by_function(const CFunction& function, const std::vector<Value>& operands, ir::DType result);
  std::optional<Value> simple(const std::string& name, std::vector<Value>& operands);
  bool is_instruction(const std::string& name, ir::DType dtype) const;
  std::optional<Value> unary(const std::string& name, const Value& a);
  Value widen(const Value& value, int lanes);  // to a vector
  std::string mask(const Value& value, int bytes, int lanes);
  Value truth(const Value& value);
  Value rounded(Value value);  // of f16 and bf16
  std::string condition_text(const std::vector<ir::ExprPtr>& conditions);

  const Bound& bound_;
  const CTarget target_;
  CSource source_;
  std::string functions_;
  std::set<std::pair<ir::DType, int>> types_;
  Names read_;                                 // buffers that are read somewhere
  bool in_a_run_ = false;                      // of whole vectors, as many as a loop has
  std::set<std::pair<ir::DType, int>> parts_;  // vectors of which parts are read or written
  std::set<std::pair<std::string, int>> helpers_;
  int counter_ = 0;

  ir::Substitution replaced_;                   // loops that are numbers, or a vector's lanes
  std::map<std::string, std::string> c_names_;  // loops that are variables
  Extents extents_;
  std::vector<std::string> path_;               // the loops around, the outermost first
  std::map<std::string, ir::For::Kind> kinds_;  // of loops
  std::set<std::string> known_;                 // conditions that hold
  std::set<const Node*> shared_;                // loops whose iterations a parallel loop around them hands out, too
  bool slow_ = false, in_parallel_ = false, contract_ = false;
  int lanes_ = 1;  // of the vector that is being written
  struct Part {    // the lanes of it that memory sees
    std::string begin, end;
    bool failed;
  };
  std::optional<Part> part_;
  bool keeps_lanes_ = true;  // a register's lanes that a part does not have
  struct Tile {              // a partial tile whose first point is there
    size_t depth;            // of the loop that it is an iteration of
    Names decided;           // what holds at the first point
    Names lacking;           // tests that say which parts are not there, either
    Names halves[2];         // such tests of the second half of vectors, of rows
    bool used;               // by stores that need no conditions
  };
  std::optional<Tile> tile_;
  std::string here_;           // the conditions of the stores that are being written
  Names bound_to_conditions_;  // buffers whose uses need them
  bool is_rare_ = false;       // what is written need not be fast

  std::map<std::string, Registers> registers_;  // buffers in registers
  std::map<std::string, std::string> arrays_;   // buffers on the stack
  struct Accumulator {
    std::vector<ir::ExprPtr> indices;
    std::string variable;
  };
  std::map<std::string, Accumulator> accumulators_;
  std::map<std::string, ir::DType> strips_;  // arrays that a strip has computed, named with a # in front
  int64_t stack_bytes_ = 0;
};

}  // namespace narrows::cpu
