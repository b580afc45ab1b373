// SPDX-License-Identifier: Apache-2.0
// source.cpp -- CUDA's and HIP's dialect of kernels. See source.h.
#include "ops/program/source.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "common/program_printer.h"
#include "core/program/dtype.h"

namespace narrows::gpu {
namespace {

using common::is_half;
using common::storage_of;
using common::type_of;
using ir::DType;

// The function of elementwise_functions.h that computes what docs/ops.md says. "" for none.
std::string_view struct_of(std::string_view name, DType dtype) {
  struct Row {
    std::string_view name, real, integer;
  };
  static constexpr Row kRows[] = {
      {"neg", "Neg", "Neg"},
      {"abs", "Abs", "Abs"},
      {"sign", "Sign", "Sign"},
      {"square", "Square", "Square"},
      {"sqrt", "Sqrt", ""},
      {"rsqrt", "Rsqrt", ""},
      {"cbrt", "Cbrt", ""},
      {"exp", "Exp", ""},
      {"exp2", "Exp2", ""},
      {"expm1", "Expm1", ""},
      {"log", "Log", ""},
      {"log2", "Log2", ""},
      {"log10", "Log10", ""},
      {"log1p", "Log1p", ""},
      {"sin", "Sin", ""},
      {"cos", "Cos", ""},
      {"tan", "Tan", ""},
      {"asin", "Asin", ""},
      {"acos", "Acos", ""},
      {"atan", "Atan", ""},
      {"sinh", "Sinh", ""},
      {"cosh", "Cosh", ""},
      {"tanh", "Tanh", ""},
      {"asinh", "Asinh", ""},
      {"acosh", "Acosh", ""},
      {"atanh", "Atanh", ""},
      {"sigmoid", "Sigmoid", ""},
      {"relu", "Relu", "Relu"},
      {"elu", "Elu", ""},
      {"gelu", "Gelu", ""},
      {"gelu_tanh", "GeluTanh", ""},
      {"silu", "Silu", ""},
      {"softplus", "Softplus", ""},
      {"erf", "Erf", ""},
      {"erfc", "Erfc", ""},
      {"floor", "Floor", "Identity"},
      {"ceil", "Ceil", "Identity"},
      {"round", "Round", "Identity"},
      {"trunc", "Trunc", "Identity"},
      {"reciprocal", "Reciprocal", ""},
      {"logical_not", "LogicalNot", "LogicalNot"},
      {"bitwise_not", "", "BitwiseNot"},
      {"isnan", "IsNan", "Never"},
      {"isinf", "IsInf", "Never"},
      {"isfinite", "IsFinite", "Always"},
      {"div", "Div", "IntDiv"},
      {"pow", "Pow", "IntPow"},
      {"atan2", "Atan2", ""},
      {"hypot", "Hypot", ""},
      {"maximum", "Maximum", "Maximum"},
      {"minimum", "Minimum", "Minimum"},
      {"fmod", "Fmod", "IntFmod"},
      {"remainder", "Remainder", "IntRemainder"},
      {"logaddexp", "Logaddexp", ""},
      {"logical_and", "LogicalAnd", "LogicalAnd"},
      {"logical_or", "LogicalOr", "LogicalOr"},
      {"logical_xor", "LogicalXor", "LogicalXor"},
      {"bitwise_left_shift", "", "LeftShift"},
      {"bitwise_right_shift", "", "RightShift"},
      {"fma", "Fma", "Fma"},
      {"clamp", "Clamp", "Clamp"},
      {"sinc", "Sinc", ""},
  };
  const auto found = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.name == name; });
  if (found == std::end(kRows)) return "";
  return ir::is_float(dtype) ? found->real : found->integer;
}

class Printer final : public common::KernelPrinter {
 public:
  using KernelPrinter::KernelPrinter;

 private:
  std::string real_literal(double value, bool is_single) override {
    char text[40];
    if (std::isnan(value)) return is_single ? "nw_float(0x7fc00000u)" : "nw_double(0x7ff8000000000000ULL)";
    if (std::isinf(value)) {
      const std::string bits = is_single ? "nw_float(0x7f800000u)" : "nw_double(0x7ff0000000000000ULL)";
      return value < 0 ? "(-" + bits + ")" : bits;
    }
    std::snprintf(text, sizeof(text), "(%a%s)", value, is_single ? "f" : "");
    return text;
  }
  std::string wide_literal(uint64_t bits, bool is_signed) override { return std::to_string(bits) + (is_signed ? "LL" : "ULL"); }
  std::string real_arithmetic(const std::string& symbol, DType, const std::string& a, const std::string& b) override {
    return "(" + a + " " + symbol + " " + b + ")";
  }
  std::string real_compare(const std::string& symbol, const std::string& a, const std::string& b) override {
    return "(" + a + " " + symbol + " " + b + ")";
  }
  std::string negated(const std::string& a) override { return "(-" + a + ")"; }

  std::string function(const std::string& name, const std::string& type, DType dtype,
                       const std::vector<std::string>& operands) override {
    const std::string_view found = struct_of(name, dtype);
    if (found.empty()) return "";
    with_functions_ = true;
    const std::string tag = is_half(dtype) ? std::string("nw::") + ir::name_of(dtype) : type_of(dtype);
    return "nw::call<nw::" + std::string(found) + ", " + type + ", " + tag + ">(" + common::join(operands, ", ") + ")";
  }

  std::string convert(const std::string& in, DType from, DType to) override {
    if (to == DType::boolean) return "(" + in + " != 0)";
    if (ir::is_float(to) && !is_half(to)) return type_of(to) + "(" + in + ")";
    if (is_half(to) && (from == DType::f32 || is_half(from))) return rounded(in, to);
    with_functions_ = true;
    const std::string source = (from == DType::index ? "i64" : type_of(from)) + "(" + in + ")";
    if (is_half(to)) return rounded("nw::to_float(" + source + ")", to);
    return "nw::Cast<" + type_of(to) + ">::apply(" + source + ")";
  }

  std::string in_memory(const ir::Buffer&, const std::string& address, const std::string& offset) override {
    return address + "[" + offset + "]";
  }
  void declare_shared(const std::string& type, const std::string& name, int64_t count) override {
    line("NW_SHARED " + type + " " + name + "[" + std::to_string(count) + "];");
  }
  void declare_address(const std::string& type, const std::string& name, const std::string& address) override {
    line(type + "* const " + name + " = (" + type + "*)(" + address + ");");
  }
  void read_run(const Run& run, const std::vector<ir::ExprPtr>& first, int64_t) override {
    line("nw_read_run(" + run.array + ", &" + element(run.buffer, first) + ");");
  }
  void write_run(const Run& run, const std::vector<ir::ExprPtr>& first, int64_t) override {
    line("nw_write_run(&" + element(run.buffer, first) + ", " + run.array + ");");
  }

  void end_kernel(size_t number) override {
    const std::string type = "A" + std::to_string(number);
    std::string fields, locals;
    for (size_t i = 0; i < kernel_->slots.size(); ++i) {
      const Slot& slot = kernel_->slots[i];
      const std::string name = "s" + std::to_string(i);
      if (slot.kind == Slot::Kind::buffer) {
        const std::string storage = storage_of(buffer_of(slot.name).dtype);
        fields += "  " + storage + "* " + name + ";\n";
        locals += "  " + storage + "* NW_RESTRICT const " + name + " = A." + name + ";\n";
      } else if (slot.kind == Slot::Kind::parts) {
        fields += "  char* " + name + ";\n";
        locals += "  char* const " + name + " = A." + name + ";\n";
      } else if (slot.kind == Slot::Kind::param) {
        const std::string value = type_of(param_dtype(slot.name));
        fields += "  i64 " + name + ";\n";
        locals += "  const " + value + " " + name + " = nw_param_" + value + "(A." + name + ");\n";
      } else {
        const bool is_index = slot.kind == Slot::Kind::size || slot.kind == Slot::Kind::stride;
        fields += "  i64 " + name + ";\n";
        locals +=
            "  const " + std::string(is_index ? "ix " : "i64 ") + name + " = " + (is_index ? "(ix)" : "") + "A." + name + ";\n";
      }
    }
    if (fields.empty()) fields = "  i64 none;\n";
    source_.text += "struct " + type + " {\n" + fields + "};\nNW_KERNEL(" + kernel_->name + ", " + type + ", " +
                    std::to_string(kernel_->threads) + ") {\n" + locals + out_ + "}\n";
  }
  void end_program() override {
    const std::string index = std::string("typedef ") + (layout_.short_indices ? "int" : "long long") + " ix;\n";
    source_.text = index + gpu_prelude(with_functions_) + source_.text;
  }

  bool with_functions_ = false;
};

}  // namespace

PrintedProgram print_gpu(const common::KernelProgram& program, const common::Bound& bound, const KernelLayout& layout) {
  return Printer(program, bound, layout).print();
}

}  // namespace narrows::gpu
