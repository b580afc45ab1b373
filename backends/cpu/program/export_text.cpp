// SPDX-License-Identifier: Apache-2.0
// export_text.cpp -- see export_text.h.
#include "program/export_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/rule.h"
#include "core/program/text.h"
#include "core/program/walk.h"
#include "program/cost.h"

namespace narrows::cpu {
namespace {

using Kind = ir::Expr::Kind;
using ir::DType;
using Role = ir::Buffer::Role;

constexpr double kFunction = 20;  // the C library's takes so much longer than the kernels of vectors

bool is_input(const ir::Buffer& tensor) { return tensor.role != Role::output; }
bool is_computed(const ir::Expr& index) { return index.kind != Kind::integer && index.kind != Kind::name; }
bool is_output(const ir::Buffer& tensor) { return tensor.role != Role::input; }

std::string number_text(double value) {
  if (std::isnan(value)) return "NAN";
  if (std::isinf(value)) return value < 0 ? "-INFINITY" : "INFINITY";
  char text[40];
  std::snprintf(text, sizeof(text), "%a", value);
  return text;
}

std::string integer_text(int64_t value) {
  return value == INT64_MIN ? "(-9223372036854775807LL - 1)" : "(" + std::to_string(value) + "LL)";
}

std::string dtype_text(DType dtype) {
  const char* code = dtype == DType::boolean ? "kDLBool"
                     : dtype == DType::bf16  ? "kDLBfloat"
                     : ir::is_float(dtype)   ? "kDLFloat"
                     : ir::is_signed(dtype)  ? "kDLInt"
                                             : "kDLUInt";
  return std::string("{") + code + ", " + std::to_string(ir::bits_of(dtype)) + ", 1}";
}

// An array with a last element, so that none is empty.
std::string array(const std::string& type, const std::string& name, const std::vector<std::string>& items,
                  const std::string& last) {
  std::string out = "static const " + type + " " + name + "[] = {";
  for (const std::string& item : items) out += item + ", ";
  return out + last + "};\n";
}

// One program's part; `id` is the end of its names.
class Tables {
 public:
  Tables(const ExportedProgram& exported, size_t number)
      : exported_(exported), program_(exported.lowered.program), id_(std::to_string(number)) {
    for (const ir::Buffer& tensor : program_.tensors) place(tensor.name);
    for (const ir::Buffer& allocation : exported.lowered.allocations) place(allocation.name);
    collect_numbers();
  }

  std::string text(const ExportedProgram* backward) {
    declare(backward);
    tensors();
    allocations();
    checks();
    for (size_t i = 0; i < exported_.kernels.size(); ++i) kernel(i);
    std::vector<std::string> chosen;
    chosen.reserve(exported_.variants.size());
    for (const size_t kernel : exported_.variants) chosen.push_back("&kernel_" + id_ + "_" + std::to_string(kernel));
    out_ += array("struct variant* const", "variants_" + id_, chosen, "NULL");
    return out_;
  }

  std::string row() const {
    std::string out = "{&op_" + id_;
    for (const char* name : {"tensors_", "sizes_", "params_"}) out += std::string(", ") + name + id_;
    for (const size_t count :
         {program_.tensors.size(), sizes_, program_.params.size(), places_.size(), numbers_.size(), loops_.size()})
      out += ", " + std::to_string(count);
    for (const char* name : {"place_", "check_", "variants_"}) out += std::string(", ") + name + id_;
    return out + "}";
  }

 private:
  void place(const std::string& name) { places_.emplace(name, places_.size()); }

  void collect_numbers() {
    for (const ir::Buffer& tensor : program_.tensors)
      for (const ir::ExprPtr& extent : tensor.shape)
        if (is_input(tensor) && extent->kind == Kind::name) numbers_.emplace(extent->name, numbers_.size());
    for (const ir::Param& param : program_.params)
      if (ir::is_integer(param.dtype)) numbers_.emplace(param.name, numbers_.size());
  }

  // ---- the declaration ----

  void declare(const ExportedProgram* backward) {
    std::vector<std::string> names[2], dtypes[2];
    size_t fewest = 0;
    bool in_place = false;
    for (const ir::Buffer& tensor : program_.tensors) {
      for (const bool output : {false, true}) {
        if (output ? !is_output(tensor) : !is_input(tensor)) continue;
        names[output].push_back("\"" + tensor.name + (tensor.optional ? "?\"" : "\""));
        dtypes[output].push_back(dtype_text(tensor.dtype));
      }
      if (is_input(tensor) && !tensor.optional) fewest = names[0].size();
      in_place = in_place || tensor.role == Role::inout;
    }
    for (const bool output : {false, true}) {
      const std::string side = output ? "outputs_" : "inputs_";
      out_ += array("char* const", side + id_, names[output], "NULL");
      out_ += array("DLDataType", side + "dtypes_" + id_, dtypes[output], "{0, 0, 0}");
    }
    fields();
    out_ += "static const nw_op op_" + id_ + " = {.struct_size = sizeof(nw_op), .name = \"" + exported_.op + "\"";
    out_ += ", .min_inputs = " + std::to_string(fewest) + ", .max_inputs = " + std::to_string(names[0].size()) +
            ", .num_outputs = " + std::to_string(names[1].size()) + ", .inputs = inputs_" + id_ + ", .outputs = outputs_" + id_ +
            ",\n  .input_dtypes = inputs_dtypes_" + id_ + ", .output_dtypes = outputs_dtypes_" + id_ + ", .shape_rule = \"" +
            ir::shape_rule_of(program_) + "\"";
    if (in_place) out_ += ", .flags = NW_OP_INPLACE";
    if (!program_.params.empty())
      out_ += ", .params = fields_" + id_ + ", .params_size = " + std::to_string(8 * program_.params.size());
    if (backward != nullptr)
      out_ += ", .backward = \"" + backward->op + "\", .saved = " + std::to_string(saved(backward->lowered.program)) + "ULL";
    out_ += "};\n";
  }

  void fields() {
    std::vector<std::string> pointers, kinds;
    for (size_t i = 0; i < program_.params.size(); ++i) {
      const ir::Param& param = program_.params[i];
      const std::string name = "field_" + id_ + "_" + std::to_string(i);
      const bool is_real = ir::is_float(param.dtype), is_bool = param.dtype == DType::boolean;
      const double initial = is_real ? param.value->real : static_cast<double>(param.value->integer);
      out_ += "static const nw_param " + name + " = {\"" + param.name + "\", " +
              dtype_text(is_real   ? DType::f64
                         : is_bool ? DType::boolean
                                   : DType::i64) +
              ", " + std::to_string(8 * i) + ", NULL, " + number_text(initial) + "};\n";
      pointers.push_back("&" + name);
      const char kind = is_bool ? 'b' : !is_real ? 'i' : param.dtype == DType::f64 ? 'd' : 'f';
      kinds.push_back(std::string("{'") + kind + "', " + (is_real || is_bool ? "-1" : std::to_string(numbers_.at(param.name))) +
                      "}");
    }
    if (!pointers.empty()) out_ += array("nw_param* const", "fields_" + id_, pointers, "NULL");
    out_ += array("struct param", "params_" + id_, kinds, "{0, -1}");
  }

  // What the backward program reads of the inputs and outputs: nw_op.saved.
  uint64_t saved(const ir::Program& backward) const {
    uint64_t out = 0;
    size_t outputs = 0, inputs = 0, number = 0;
    for (const ir::Buffer& tensor : program_.tensors) outputs += is_output(tensor), inputs += is_input(tensor);
    for (const ir::Buffer& tensor : backward.tensors) {
      if (!is_input(tensor)) continue;
      const size_t at = number++;
      if (at < outputs || (tensor.optional && !ir::uses_tensor(backward, tensor.name))) continue;
      out |= uint64_t{1} << (at - outputs < inputs ? at - outputs : 32 + at - outputs - inputs);
    }
    return out;
  }

  // ---- tensors and sizes ----

  void tensors() {
    std::vector<std::string> rows, sizes;
    std::set<std::string> bound;
    int inputs = 0, outputs = 0, bits = 0;
    for (const ir::Buffer& tensor : program_.tensors) {
      const int input = is_input(tensor) ? inputs++ : -1, output = is_output(tensor) ? outputs++ : -1;
      rows.push_back("{\"" + tensor.name + "\", " + std::to_string(input) + ", " + std::to_string(output) + ", " +
                     std::to_string(tensor.shape.size()) + ", " + std::to_string(bytes_of(tensor.dtype)) + ", " +
                     std::to_string(tensor.optional ? bits++ : -1) + "}");
      for (size_t d = 0; d < tensor.shape.size(); ++d) {
        const ir::Expr& extent = *tensor.shape[d];
        if (!is_input(tensor) || tensor.optional || extent.kind != Kind::name || ir::find_param(program_, extent.name) != nullptr)
          continue;
        if (bound.insert(extent.name).second)
          sizes.push_back("{" + std::to_string(numbers_.at(extent.name)) + ", " + std::to_string(places_.at(tensor.name)) + ", " +
                          std::to_string(d) + "}");
      }
    }
    sizes_ = sizes.size();
    out_ += array("struct tensor", "tensors_" + id_, rows, "{0}");
    out_ += array("struct size", "sizes_" + id_, sizes, "{0}");
  }

  // ---- indices ----

  std::string range(const ir::ExprPtr& expr) {
    switch (expr->kind) {
      case Kind::integer: return "con(" + integer_text(expr->integer) + ")";
      case Kind::name: {
        if (const auto loop = loops_.find(expr->name); loop != loops_.end())
          return "s->loops[" + std::to_string(loop->second) + "]";
        return "num(s, " + std::to_string(numbers_.at(expr->name)) + ")";
      }
      case Kind::clamp:
        see(expr->operands[0]);
        return "either(s, " + range(expr->operands[1]) + ", " + range(expr->operands[2]) + ")";
      default: break;
    }
    const std::string name = expr->name == "remainder" ? "remainder_of" : expr->name;
    const std::string a = range(expr->operands[0]), b = range(expr->operands[1]);
    return name + "(s, " + a + ", " + b + ")";
  }

  // The indices within a value.
  void see(const ir::ExprPtr& expr) {
    for (const ir::ExprPtr& operand : expr->operands) {
      if (operand->dtype != DType::index) {
        see(operand);
      } else if (const std::string text = range(operand); is_computed(*operand)) {
        out_ += "  seen(s, " + text + ");\n";
      }
    }
  }

  void allocations() {
    out_ += "static void place_" + id_ + "(struct state* s) {\n  (void)s;\n";
    allocate(exported_.lowered.body, exported_.lowered.outermost, false);
    out_ += "}\n";
  }

  void allocate(const std::vector<Node>& body, const std::vector<size_t>& here, bool is_private) {
    for (const size_t number : here) {
      const ir::Buffer& buffer = exported_.lowered.allocations[number];
      std::string dims;
      for (const ir::ExprPtr& extent : buffer.shape) dims += range(extent) + ", ";
      out_ += "  allocate(s, " + std::to_string(places_.at(buffer.name)) + ", " + (is_private ? "1, " : "0, ") +
              std::to_string(bytes_of(buffer.dtype)) + ", " + std::to_string(buffer.shape.size()) + ", (const range[]){" + dims +
              "{0, 0}});\n";
    }
    for (const Node& node : body)
      if (node.kind == Node::Kind::loop)
        allocate(node.body, node.allocations, is_private || node.loop_kind == ir::For::Kind::parallel);
  }

  void checks() {
    out_ += "static void check_" + id_ + "(struct state* s) {\n  (void)s;\n";
    check(exported_.lowered.body);
    out_ += "}\n";
  }

  void check(const std::vector<Node>& body) {
    for (const Node& node : body) {
      if (node.kind == Node::Kind::loop) {
        const std::string extent = range(node.extent);
        const size_t number = loops_.emplace(node.name, loops_.size()).first->second;
        out_ += "  s->loops[" + std::to_string(number) + "] = upto(" + extent + ");\n";
        check(node.body);
        continue;
      }
      for (const ir::ExprPtr& condition : node.conditions) see(condition);
      for (const ir::Store& store : node.stores) {
        for (const ir::ExprPtr& index : store.indices)
          if (const std::string text = range(index); is_computed(*index)) out_ += "  seen(s, " + text + ");\n";
        see(store.value);
      }
    }
  }

  // ---- kernels ----

  void kernel(size_t i) {
    const CSource& source = exported_.kernels[i].source;
    const std::string name = id_ + "_" + std::to_string(i);
    std::vector<std::string> buffers, functions;
    for (const std::string& buffer : source.buffers) buffers.push_back(std::to_string(places_.at(buffer)));
    for (const CFunction& function : source.functions) functions.push_back("(const void*)" + exported_function(function).name);
    out_ += array("u16", "buffers_" + name, buffers, "0");
    out_ += array("void* const", "functions_" + name, functions, "NULL");
    out_ += "static void numbers_" + name + "(struct state* s, i64* out) {\n  (void)s, (void)out;\n";
    for (size_t n = 0; n < source.numbers.size(); ++n)
      out_ += "  out[" + std::to_string(n) + "] = " + number(source.numbers[n]) + ";\n";
    out_ += "}\nvoid " + exported_.kernels[i].entry + "(char* const*, const i64*, const struct services*);\n";
    out_ += "static const struct variant kernel_" + name + " = {" + exported_.kernels[i].entry + ", " +
            std::to_string(source.buffers.size()) + ", " + std::to_string(source.numbers.size()) + ", buffers_" + name +
            ", numbers_" + name + ", functions_" + name + "};\n";
  }

  std::string number(const CNumber& one) {
    switch (one.kind) {
      case CNumber::Kind::size: return "s->numbers[" + std::to_string(numbers_.at(one.name)) + "]";
      case CNumber::Kind::stride:
        return "s->placed[" + std::to_string(places_.at(one.name)) + "].strides[" + std::to_string(one.dimension) + "]";
      case CNumber::Kind::cost: return "bits(" + cost(one.loop->body, {}) + ")";
      case CNumber::Kind::kept: return "1";  // through the caches, for calls of every size
      case CNumber::Kind::param: break;
    }
    const auto found =
        std::find_if(program_.params.begin(), program_.params.end(), [&](const auto& p) { return p.name == one.name; });
    const std::string at = std::to_string(found - program_.params.begin());
    return "param(s, " + at + ", params_" + id_ + "[" + at + "].kind)";
  }

  // cost_of() of cost.h, as C.
  std::string cost(const std::vector<Node>& body, const LoopPath& around) {
    std::string out = "0";
    for (const Node& node : body) {
      if (node.kind == Node::Kind::stores) {
        out += " + " + number_text(cost_of_stores(node, around, {}, kFunction));
        continue;
      }
      LoopPath inner = around;
      inner.push_back(&node);
      Names names;
      collect_names(node.extent, &names);
      const bool known = std::none_of(names.begin(), names.end(), [&](const std::string& n) { return loops_.count(n) != 0; });
      out += " + " + (known ? "trips(" + range(node.extent) + ")" : number_text(kUnknownTrips)) + " * (" + cost(node.body, inner) +
             ")";
    }
    return out;
  }

  const ExportedProgram& exported_;
  const ir::Program& program_;
  const std::string id_;
  std::map<std::string, size_t> places_, numbers_, loops_;
  size_t sizes_ = 0;
  std::string out_;
};

}  // namespace

std::vector<const ir::Buffer*> optional_tensors(const ir::Program& program) {
  std::vector<const ir::Buffer*> out;
  for (const ir::Buffer& tensor : program.tensors)
    if (tensor.optional) out.push_back(&tensor);
  return out;
}

std::string export_tables(const std::vector<ExportedProgram>& programs) {
  std::string functions, tables, rows, ops;
  std::set<std::string> defined;
  for (size_t i = 0; i < programs.size(); ++i) {
    for (const ExportedKernel& kernel : programs[i].kernels)
      for (const CFunction& called : kernel.source.functions)
        if (const ExportedFunction function = exported_function(called); defined.insert(function.name).second)
          functions += function.text;
    Tables one(programs[i], i);
    tables += one.text(i + 1 < programs.size() ? &programs[i + 1] : nullptr);
    rows += one.row() + ", ";
    ops += "&op_" + std::to_string(i) + ", ";
  }
  return functions + tables + "enum { NUM_PROGRAMS = " + std::to_string(programs.size()) +
         " };\nstatic const struct program programs[] = {" + rows + "};\nstatic const nw_op* const ops[] = {" + ops + "NULL};\n";
}

}  // namespace narrows::cpu
