// SPDX-License-Identifier: Apache-2.0
// source.cpp -- CUDA's and HIP's dialect of kernels. See source.h.
#include "ops/program/source.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <set>
#include <string_view>

#include "common/program_printer.h"
#include "core/program/dtype.h"
#include "ops/program/wide_products.h"

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

class Printer final : public WideProducts {
 public:
  using WideProducts::WideProducts;

 private:
  using Overlay = common::SharedArray::Overlay;

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
  void declare_shared(const common::SharedArray& array) override { shared_.push_back(array); }
  void declare_address(const std::string& type, const std::string& name, const std::string& address) override {
    line(type + "* const " + name + " = (" + type + "*)(" + address + ");");
  }
  void read_run(const Run& run, const std::vector<ir::ExprPtr>& first, int64_t) override {
    line("nw_read_run(" + run.array + ", &" + element(run.buffer, first) + ");");
  }
  void write_run(const Run& run, const std::vector<ir::ExprPtr>& first, int64_t) override {
    line("nw_write_run(&" + element(run.buffer, first) + ", " + run.array + ");");
  }

  void copy_ahead(const Run& to, const std::vector<ir::ExprPtr>& first_to, const Run& from,
                  const std::vector<ir::ExprPtr>& first_from, int64_t length) override {
    const std::string target = element(to.buffer, first_to), source = element(from.buffer, first_from);
    line("nw_copy_ahead<" + std::to_string(length) + ">(&" + target + ", &" + source + ");");
  }

  // wgmma of m64 x `columns` x 16, as PTX puts it: 4 sums of each 8 columns in a thread.
  std::string group_product(const std::string& intrinsic, int64_t columns, bool a_across, bool b_across) override {
    const std::string type = intrinsic == "mma.f16.f32" ? "f16" : "bf16", n = std::to_string(columns);
    const std::string across = std::string(a_across ? "1" : "0") + ", " + (b_across ? "1" : "0");
    const std::string name = "nw_group_mma_" + type + "_" + n + (a_across ? "_1" : "_0") + (b_across ? "1" : "0");
    if (!groups_.insert(name).second) return name;
    std::string sums, operands;
    for (int64_t i = 0; i < columns / 2; ++i) {
      sums += (i > 0 ? ", %" : "%") + std::to_string(i);
      operands += (i > 0 ? ", \"+f\"(c[" : "\"+f\"(c[") + std::to_string(i / 4) + "][" + std::to_string(i % 4) + "])";
    }
    const auto operand = [&](int64_t i) { return "%" + std::to_string(columns / 2 + i); };
    group_text_ += "NW_INLINE void " + name + "(f32 (*c)[4], u64 a, u64 b) {\n  asm volatile(\"{ .reg .pred p; setp.ne.b32 p, " +
                   operand(2) + ", 0; wgmma.mma_async.sync.aligned.m64n" + n + "k16.f32." + type + "." + type + " {" + sums +
                   "}, " + operand(0) + ", " + operand(1) + ", p, 1, 1, " + across + "; }\"\n    : " + operands +
                   " : \"l\"(a), \"l\"(b), \"r\"(1));\n}\n";
    return name;
  }

  // Places arrays one after the other, from `begin` on; gives the end.
  int64_t place_arrays(Overlay overlay, int64_t begin, std::string* text) const {
    for (const bool has_panels : {true, false}) {
      const int64_t alignment = has_panels ? 1024 : 16;
      for (const common::SharedArray& one : shared_) {
        if (one.overlay != overlay || one.has_panels != has_panels) continue;
        begin = (begin + alignment - 1) / alignment * alignment;
        *text += "  " + one.type + "* const " + one.name + " = (" + one.type + "*)(nw_shared + " + std::to_string(begin) + ");\n";
        begin += one.count * size_of(one.type);
      }
    }
    return begin;
  }

  // Arrays in shared memory: each by itself; together where some use the memory of others, or where they take more than each kernel
  // has unless its launch asks.
  std::string declared_shared() {
    constexpr int64_t kWithoutAsking = 48 << 10;
    std::string together, apart;
    const int64_t stages = place_arrays(Overlay::stages, 0, &together), sums = place_arrays(Overlay::sums, 0, &together);
    const int64_t bytes = place_arrays(Overlay::none, std::max(stages, sums), &together);
    for (const common::SharedArray& one : shared_)
      apart += "  NW_SHARED(" + std::string(one.has_panels ? "1024" : "16") + ") " + one.type + " " + one.name + "[" +
               std::to_string(one.count) + "];\n";
    shared_.clear();
    const bool asks = bytes > kWithoutAsking;
    if (!asks && sums == 0) return apart;
    if (asks) kernel_->shared_bytes = bytes;
    return (asks ? "  NW_SHARED_OF_LAUNCH(nw_shared);\n" : "  NW_SHARED(1024) char nw_shared[" + std::to_string(bytes) + "];\n") +
           together;
  }
  static int64_t size_of(const std::string& storage) { return storage.back() == '8' ? 1 : std::stoi(storage.substr(1)) / 8; }

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
                    std::to_string(kernel_->threads) + ") {\n" + locals + declared_shared() + out_ + "}\n";
  }
  void end_program() override {
    const std::string index = std::string("typedef ") + (layout_.short_indices ? "int" : "long long") + " ix;\n";
    source_.text = index + gpu_prelude(with_functions_) + group_text_ + source_.text;
  }

  std::vector<common::SharedArray> shared_;
  std::set<std::string> groups_;  // functions that group_text_ has
  std::string group_text_;
  bool with_functions_ = false;
};

}  // namespace

PrintedProgram print_gpu(const common::KernelProgram& program, const common::Bound& bound, const KernelLayout& layout) {
  return Printer(program, bound, layout).print();
}

}  // namespace narrows::gpu
