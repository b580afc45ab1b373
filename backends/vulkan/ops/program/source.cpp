// SPDX-License-Identifier: Apache-2.0
// source.cpp -- GLSL's dialect of kernels. See source.h. All floating point is calls of functions: Vulkan leaves operators looser
// than docs/ops.md, and what a function that is `precise` computes is not fused.
#include "ops/program/source.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>

#include "core/program/dtype.h"

namespace narrows::vulkan {
namespace {

using common::is_half;
using common::Node;
using common::Slot;
using common::storage_of;
using common::type_of;
using ir::DType;

// ---- functions: %a, %b and %c are operands ----

using Texts = std::map<std::string, const char*>;

// Of shaders/math_f32.glsl and math_f64.glsl.
const Texts kReals = {
    {"abs", "size(%a)"},
    {"sign", "sign_of(%a)"},
    {"sqrt", "sqrt_real(%a)"},
    {"rsqrt", "rsqrt_real(%a)"},
    {"cbrt", "cbrt_real(%a)"},
    {"exp", "exp_real(%a)"},
    {"exp2", "exp2_real(%a)"},
    {"expm1", "expm1_real(%a)"},
    {"log", "log_real(%a)"},
    {"log2", "log2_real(%a)"},
    {"log10", "log10_real(%a)"},
    {"log1p", "log1p_real(%a)"},
    {"sin", "sin_real(%a)"},
    {"cos", "cos_real(%a)"},
    {"tan", "tan_real(%a)"},
    {"asin", "asin_real(%a)"},
    {"acos", "acos_real(%a)"},
    {"atan", "atan_real(%a)"},
    {"sinh", "sinh_real(%a)"},
    {"cosh", "cosh_real(%a)"},
    {"tanh", "tanh_real(%a)"},
    {"asinh", "asinh_real(%a)"},
    {"acosh", "acosh_real(%a)"},
    {"atanh", "atanh_real(%a)"},
    {"sigmoid", "sigmoid_real(%a)"},
    {"elu", "elu_real(%a, %b)"},
    {"gelu", "gelu_real(%a)"},
    {"gelu_tanh", "gelu_tanh_real(%a)"},
    {"silu", "silu_real(%a)"},
    {"softplus", "softplus_real(%a)"},
    {"erf", "erf_real(%a)"},
    {"erfc", "erfc_real(%a)"},
    {"sinc", "sinc_real(%a)"},
    {"floor", "floor_real(%a)"},
    {"ceil", "ceil_real(%a)"},
    {"round", "round_real(%a)"},
    {"trunc", "trunc_real(%a)"},
    {"isnan", "is_nan(%a)"},
    {"isinf", "is_inf(%a)"},
    {"isfinite", "is_finite(%a)"},
    {"logical_not", "is_zero(%a)"},
    {"logical_and", "(!is_zero(%a) && !is_zero(%b))"},
    {"logical_or", "(!is_zero(%a) || !is_zero(%b))"},
    {"logical_xor", "(is_zero(%a) != is_zero(%b))"},
    {"pow", "pow_real(%a, %b)"},
    {"atan2", "atan2_real(%a, %b)"},
    {"hypot", "hypot_real(%a, %b)"},
    {"fmod", "fmod_real(%a, %b)"},
    {"remainder", "remainder_real(%a, %b)"},
    {"logaddexp", "logaddexp_real(%a, %b)"},
    {"fma", "fma_stored(%a, %b, %c)"},
    {"clamp", "smaller(larger(%a, %b), %c)"},
};

// %T: the dtype's type. %W and %U: the type of 32 or 64 bits that is computed in, and the unsigned one; the low bits of what that
// gives are the result.
const Texts kIntegers = {
    {"neg", "%T(%U(0) - %U(%a))"},
    {"abs", "nw_abs(%a)"},
    {"sign", "%T(sign_of(%W(%a)))"},
    {"square", "%T(%U(%a) * %U(%a))"},
    {"floor", "%a"},
    {"ceil", "%a"},
    {"round", "%a"},
    {"trunc", "%a"},
    {"isnan", "false"},
    {"isinf", "false"},
    {"isfinite", "true"},
    {"bitwise_not", "%T(~%a)"},
    {"logical_not", "(%a == %T(0))"},
    {"logical_and", "(%a != %T(0) && %b != %T(0))"},
    {"logical_or", "(%a != %T(0) || %b != %T(0))"},
    {"logical_xor", "((%a != %T(0)) != (%b != %T(0)))"},
    {"div", "%T(quotient(%W(%a), %W(%b)))"},
    {"pow", "%T(power(%W(%a), %W(%b)))"},
    {"fmod", "%T(rest_of(%W(%a), %W(%b)))"},
    {"remainder", "%T(remainder(%W(%a), %W(%b)))"},
    {"bitwise_left_shift", "%T(left_shift(%W(%a), %W(%b)))"},
    {"bitwise_right_shift", "%T(right_shift(%W(%a), %W(%b)))"},
    {"fma", "%T(%U(%a) * %U(%b) + %U(%c))"},
    {"clamp", "nw_minimum(nw_maximum(%a, %b), %c)"},
};

std::string replaced(const char* text, const std::map<char, std::string>& by) {
  std::string out;
  for (const char* at = text; *at != '\0'; ++at) {
    if (*at == '%')
      out += by.at(*++at);
    else
      out += *at;
  }
  return out;
}

// The dtypes of elementwise_words.glsl, in capitals; of an index and of f16 and bf16, what they are held as.
std::string dtype_constant(DType dtype) {
  if (dtype == DType::index) return "I64";
  if (dtype == DType::boolean) return "BOOL";
  std::string out = ir::name_of(dtype);
  for (char& letter : out) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return out;
}

class Printer final : public MatrixPrinter {
 public:
  using MatrixPrinter::MatrixPrinter;

 private:
  // ---- values ----

  // In decimals where these are the number for sure, else by its bits.
  std::string real_literal(double value, bool is_single) override {
    char text[48];
    const auto single = static_cast<float>(value);
    if (is_single ? std::isnormal(single) : std::isnormal(value)) {
      if (is_single)
        std::snprintf(text, sizeof(text), "%.9g", static_cast<double>(single));
      else
        std::snprintf(text, sizeof(text), "%.17g", value);
      std::string out = text;
      if (out.find_first_of(".e") == std::string::npos) out += ".0";
      return "(" + out + (is_single ? ")" : "lf)");
    }
    if (is_single) {
      uint32_t bits = 0;
      std::memcpy(&bits, &single, sizeof(bits));
      std::snprintf(text, sizeof(text), "nw_float(0x%08xu)", std::isnan(value) ? 0x7fc00000U : bits);
    } else {
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      std::snprintf(text, sizeof(text), "nw_double(0x%016llxul)",
                    std::isnan(value) ? 0x7ff8000000000000ULL : static_cast<unsigned long long>(bits));
    }
    return text;
  }
  std::string wide_literal(uint64_t bits, bool is_signed) override { return std::to_string(bits) + (is_signed ? "l" : "ul"); }

  std::string real_arithmetic(const std::string& symbol, DType, const std::string& a, const std::string& b) override {
    const char* const name = symbol == "+" ? "nw_add" : symbol == "-" ? "nw_sub" : symbol == "*" ? "nw_mul" : "quotient";
    return std::string(name) + "(" + a + ", " + b + ")";
  }
  std::string real_compare(const std::string& symbol, const std::string& a, const std::string& b) override {
    const bool is_turned = symbol[0] == '>';
    const std::string operands = is_turned ? "(" + b + ", " + a + ")" : "(" + a + ", " + b + ")";
    if (symbol == "==") return "equal" + operands;
    if (symbol == "!=") return "(!equal" + operands + ")";
    return (symbol.size() == 1 ? "less" : "less_equal") + operands;
  }
  std::string negated(const std::string& a) override { return "negated(" + a + ")"; }

  std::string function(const std::string& name, const std::string&, DType dtype,
                       const std::vector<std::string>& operands) override {
    std::map<char, std::string> by = {{'T', type_of(dtype)}};
    for (size_t i = 0; i < operands.size(); ++i) by[static_cast<char>('a' + i)] = operands[i];
    if (ir::is_float(dtype)) return real_function(name, dtype, by);
    const auto found = kIntegers.find(name);
    if (found == kIntegers.end()) return "";
    const char* const bits = ir::bits_of(dtype) == 64 ? "64" : "32";
    by['U'] = std::string("u") + bits;
    by['W'] = (ir::is_signed(dtype) ? "i" : "u") + std::string(bits);
    uses_integers_ = true;
    return replaced(found->second, by);
  }
  std::string real_function(const std::string& name, DType dtype, const std::map<char, std::string>& by) {
    if (name == "reciprocal") return rounded(real_arithmetic("/", dtype, dtype == DType::f64 ? "1.0lf" : "1.0", by.at('a')), dtype);
    if (name == "fma" && is_half(dtype)) return rounded(replaced("nw_fma_short(%a, %b, %c)", by), dtype);
    const auto found = kReals.find(name);
    if (found == kReals.end()) return "";
    const bool is_test = name.rfind("is", 0) == 0 || name.rfind("logical", 0) == 0;
    return is_test ? replaced(found->second, by) : rounded(replaced(found->second, by), dtype);
  }

  std::string as_i64(const std::string& whole) override { return "nw_i64(" + whole + ")"; }
  // f16 and bf16 are held as f32, which has all of their values.
  std::string convert(const std::string& in, DType from, DType to) override {
    if (to == DType::boolean) return "(!is_zero(" + in + "))";
    if (is_half(from)) from = DType::f32;
    if (is_half(to) && from == DType::f32) return rounded(in, to);
    if (from == DType::f32 && to == DType::f32) return in;
    if (from == DType::f32 && to == DType::f64) return "f64(" + in + ")";
    const bool is_exact = from != DType::index && ir::is_integer(from) &&
                          (to == DType::f64 ? ir::bits_of(from) <= 32 : to == DType::f32 && ir::bits_of(from) <= 16);
    if (is_exact) return type_of(to) + "(" + in + ")";
    const std::string bits = "cast_bits(nw_bits(" + in + "), " + dtype_constant(from) + ", " + dtype_constant(to) + ")";
    return is_half(to) ? std::string("nw_from_") + ir::name_of(to) + "(" + bits + ")"
                       : "nw_of_bits_" + type_of(to) + "(" + bits + ")";
  }

  // ---- memory ----

  std::string in_memory(const ir::Buffer& buffer, const std::string& address, const std::string& offset) override {
    return "at_" + storage_of(buffer.dtype) + (coherent_.count(buffer.name) != 0 ? "_c(" : "(") + address + ", " + offset + ")";
  }
  // GLSL has none of 64 bits.
  std::string subscript(const std::string& index) override { return layout_.short_indices ? index : "i32(" + index + ")"; }
  void declare_shared(const common::SharedArray& array) override { globals_ += shared_array(array); }
  void declare_address(const std::string&, const std::string& name, const std::string& address) override {
    line("const u64 " + name + " = " + address + ";");
  }

  // A run's address, where it may be read and written in pieces of up to 16 bytes.
  std::optional<std::string> address_of(const Run& run, const std::vector<ir::ExprPtr>& first) {
    const auto array = arrays_.find(run.buffer);
    if (coherent_.count(run.buffer) != 0 || (array != arrays_.end() && addresses_.count(run.buffer) == 0)) return std::nullopt;
    const std::string base = array != arrays_.end() ? array->second : slot(Slot::Kind::buffer, run.buffer);
    const int64_t size = common::bytes_of(buffer_of(run.buffer).dtype);
    return "nw_at(" + base + ", " + offset(run.buffer, first) + ", " + std::to_string(size) + "ul)";
  }
  struct Pieces {
    int64_t size, bytes, elements, count;  // of an element; of a piece, its elements; of the run
  };
  Pieces pieces_of(const Run& run, int64_t length) const {
    const int64_t size = common::bytes_of(buffer_of(run.buffer).dtype), all = size * length;
    const int64_t bytes = all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 2;
    return {size, bytes, bytes / size, all / bytes};
  }
  std::string open_loop(int64_t count) {
    const std::string variable = fresh("e");
    open("NW_UNROLL for (i32 " + variable + " = 0; " + variable + " < " + std::to_string(count) + "; ++" + variable + ") {");
    return variable;
  }
  std::string next_element(const Run& run, const std::vector<ir::ExprPtr>& first, const std::string& i) {
    const std::string at = offset(run.buffer, first) + " + " + i;
    const auto array = arrays_.find(run.buffer);
    if (array != arrays_.end() && addresses_.count(run.buffer) == 0) return in_array(run.buffer, array->second, at);
    return in_memory(buffer_of(run.buffer), array != arrays_.end() ? array->second : slot(Slot::Kind::buffer, run.buffer), at);
  }

  void read_run(const Run& run, const std::vector<ir::ExprPtr>& first, int64_t length) override {
    const std::optional<std::string> address = address_of(run, first);
    if (!address.has_value()) {
      const std::string i = open_loop(length);
      line(run.array + "[" + i + "] = " + next_element(run, first, i) + ";");
      return close();
    }
    const Pieces p = pieces_of(run, length);
    const std::string from = fresh("p"), bytes = std::to_string(p.bytes), elements = std::to_string(p.elements), piece = fresh("q");
    line("const u64 " + from + " = " + *address + ";");
    const std::string i = open_loop(p.count);
    line("const uvec4 " + piece + " = load_vector(" + from + " + u64(" + i + ") * " + bytes + "ul, " + bytes + "u);");
    const std::string j = open_loop(p.elements);
    line(run.array + "[" + i + " * " + elements + " + " + j + "] = nw_of_bits_" + storage_of(buffer_of(run.buffer).dtype) +
         "(element_of(" + piece + ", u32(" + j + "), " + std::to_string(p.size) + "u));");
    close();
    close();
  }
  void write_run(const Run& run, const std::vector<ir::ExprPtr>& first, int64_t length) override {
    const std::optional<std::string> address = address_of(run, first);
    if (is_packed(run.buffer)) {
      const std::string to = fresh("p"), at = offset(run.buffer, first), &array = arrays_.at(run.buffer);
      line("const ix " + to + " = (" + at + ") / 8;");
      return write_pieces(run, length, [&](const std::string& i, const std::string& piece) {
        line(array + "[" + subscript(to + " + " + i) + "] = " + piece + ";");
      });
    }
    if (!address.has_value()) {
      const std::string i = open_loop(length);
      line(next_element(run, first, i) + " = " + run.array + "[" + i + "];");
      return close();
    }
    const std::string to = fresh("p"), bytes = std::to_string(pieces_of(run, length).bytes);
    line("const u64 " + to + " = " + *address + ";");
    write_pieces(run, length, [&](const std::string& i, const std::string& piece) {
      line("store_vector(" + to + " + u64(" + i + ") * " + bytes + "ul, " + piece + ", " + bytes + "u);");
    });
  }
  // Puts a run's array together to pieces, and `write`s each by its number.
  void write_pieces(const Run& run, int64_t length, const std::function<void(const std::string&, const std::string&)>& write) {
    const Pieces p = pieces_of(run, length);
    const std::string elements = std::to_string(p.elements), piece = fresh("q"), i = open_loop(p.count);
    line("uvec4 " + piece + " = uvec4(0);");
    const std::string j = open_loop(p.elements);
    line(piece + " = with_element(" + piece + ", nw_bits(" + run.array + "[" + i + " * " + elements + " + " + j + "]), u32(" + j +
         "), " + std::to_string(p.size) + "u);");
    close();
    write(i, piece);
    close();
  }

  // ---- kernels ----

  void begin_kernel(const common::Kernel& kernel) override {
    begin_matrices(kernel);
    globals_.clear();
    coherent_.clear();
    uses_integers_ = false;
    common::Names read, written;
    if (!collect(kernel.body, &read, &written)) return;
    for (const std::string& name : written)
      if (read.count(name) != 0) coherent_.insert(name);
  }
  // What is read and written; whether threads wait for each other.
  static bool collect(const std::vector<Node>& body, common::Names* read, common::Names* written) {
    bool out = false;
    const auto load = [&](const ir::Expr& expr) { read->insert(expr.name); };
    for (const Node& node : body) {
      out = out || node.has_barrier || (node.product.has_value() && node.product->is_joint);
      for (const ir::ExprPtr& condition : node.conditions) common::for_each_load(condition, load);
      for (const ir::Store& store : node.stores) {
        written->insert(store.buffer);
        for (const ir::ExprPtr& index : store.indices) common::for_each_load(index, load);
        common::for_each_load(store.value, load);
      }
      const bool inside = collect(node.body, read, written);
      out = out || inside;
    }
    return out;
  }

  void end_kernel(size_t) override {
    std::string fields, locals;
    for (size_t i = 0; i < kernel_->slots.size(); ++i) {
      const Slot& slot = kernel_->slots[i];
      const std::string name = "s" + std::to_string(i);
      fields += common::join({"  u64 ", name, ";\n"}, "");
      const bool is_address = slot.kind == Slot::Kind::buffer || slot.kind == Slot::Kind::parts,
                 is_index = slot.kind == Slot::Kind::size || slot.kind == Slot::Kind::stride;
      const bool is_param = slot.kind == Slot::Kind::param;
      const std::string type = is_param ? type_of(param_dtype(slot.name)) : is_address ? "u64" : is_index ? "ix" : "i64";
      locals += common::join({"  const ", type, " ", name, " = ", is_param ? "nw_param_" : "", type, "(A.", name, ");\n"}, "");
    }
    if (fields.empty()) fields = "  u64 none;\n";
    const std::string push = kernel_->slots.size() <= kPushSlots
                                 ? "layout(push_constant) uniform Push {\n" + fields + "} A;\n"
                                 : "layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Numbers {\n" +
                                       fields + "};\nlayout(push_constant) uniform Push {\n  Numbers A;\n};\n";
    const std::string body = globals_ + matrix_arrays() + push + "void main() {\n" + locals + out_ + "}\n";
    std::string& text = kernel_->text;
    text = "#version 460\n#extension GL_GOOGLE_include_directive : require\n";
    if (body.find("f64") != std::string::npos || body.find("nw_double(") != std::string::npos) text += "#define NARROWS_FLOAT64\n";
    if (uses_integers_) text += "#define NW_INTEGERS\n";
    text += matrix_definitions();
    text += std::string("#define ix ") + (layout_.short_indices ? "int" : "int64_t") + "\n#include \"program/program.glsl\"\n";
    text += "layout(local_size_x = " + std::to_string(kernel_->threads) + ") in;\n" + body;
    source_.text += "// ---- " + kernel_->name + " ----\n" + text;
  }
  void end_program() override {}

  std::string globals_;
  common::Names coherent_;  // buffers of which threads of a block read what others wrote
  bool uses_integers_ = false;
};

}  // namespace

common::PrintedProgram print_glsl(const common::KernelProgram& program, const common::Bound& bound,
                                  const common::KernelLayout& layout, const ProductUnits& units) {
  return Printer(program, bound, layout, units).print();
}

}  // namespace narrows::vulkan
