// SPDX-License-Identifier: Apache-2.0
// export_functions.cpp -- the functions of an exported plugin's kernels: see export_text.h and exported_functions.c.
#include <string_view>

#include "core/program/dtype.h"
#include "core/program/functions.h"
#include "program/c_printer.h"
#include "program/export_text.h"
#include "program/exported_parts.h"

namespace narrows::cpu {
namespace {

using ir::DType;

// Whether exported_functions.c has it; the others are the C library's.
bool is_own(const std::string& name) {
  return std::string_view(kExportedFunctions).find(" fn_" + name + "(double a") != std::string_view::npos;
}

std::string type_of(DType dtype) { return dtype == DType::index ? "i64" : c_storage(dtype); }
std::string wide_of(DType dtype, const std::string& text) { return std::string("FROM_") + ir::name_of(dtype) + "(" + text + ")"; }
std::string narrow_of(DType dtype, const std::string& text) { return std::string("TO_") + ir::name_of(dtype) + "(" + text + ")"; }

std::string of_floats(const std::string& name, DType dtype) {
  const std::string a = wide_of(dtype, "*A"), b = wide_of(dtype, "*B"), c = wide_of(dtype, "*C");
  if (name == "isinf" || name == "isfinite") return name + "(" + a + ") != 0";
  if (name == "fma" && dtype == DType::f32) return "fmaf(*A, *B, *C)";
  if (name == "fma") return narrow_of(dtype, "fma(" + a + ", " + b + ", " + c + ")");
  if (name == "elu") return narrow_of(dtype, a + " > 0 ? " + a + " : alpha * expm1(" + a + ")");
  const std::string operands = ir::find_function(name)->operands == 2 ? a + ", " + b : a;
  return narrow_of(dtype, (is_own(name) ? "fn_" : "") + name + "(" + operands + ")");
}

std::string of_integers(const std::string& name, DType dtype) {
  const std::string prefix = ir::is_signed(dtype) ? "in_" : "un_", width = std::to_string(ir::bits_of(dtype));
  if (name == "floor" || name == "ceil" || name == "round" || name == "trunc") return "*A";
  if (name == "isinf") return "0";
  if (name == "isfinite") return "1";
  if (name == "bitwise_not") return dtype == DType::boolean ? "!*A" : "~*A";
  if (name == "bitwise_left_shift") return prefix + "left(*A, *B, " + width + ")";
  if (name == "bitwise_right_shift") return prefix + "right(*A, *B, " + width + ")";
  if (name == "fma") return "(u64)*A * (u64)*B + (u64)*C";
  if (name == "sign") return prefix + "sign(*A)";
  if (name == "div" || name == "fmod" || name == "remainder" || name == "pow") return prefix + name + "(*A, *B)";
  return "";
}

std::string conversion(DType from, DType to) {
  const bool is_signed = from == DType::index || ir::is_signed(from);
  if (ir::is_float(to)) {
    if (ir::is_float(from)) return narrow_of(to, wide_of(from, "*A"));
    return narrow_of(to, std::string(is_signed ? "odd_signed" : "odd_unsigned") + "(*A)");
  }
  const std::string width = std::to_string(ir::bits_of(to));
  if (ir::is_float(from)) {
    const char* name = ir::is_signed(to) ? "saturated_signed(" : "saturated_unsigned(";
    return name + wide_of(from, "*A") + ", " + width + ")";
  }
  if (ir::is_signed(to)) {
    const std::string limit = "((wide)1 << (" + width + " - 1))";
    return "saturated(*A, -" + limit + ", " + limit + " - 1)";
  }
  return "saturated(*A, 0, ((wide)1 << " + width + ") - 1)";
}

}  // namespace

ExportedFunction exported_function(const CFunction& f) {
  const bool converts = f.function.empty(), gives_bool = f.function == "isinf" || f.function == "isfinite";
  const std::string expression = converts               ? conversion(f.from, f.to)
                                 : ir::is_float(f.from) ? of_floats(f.function, f.from)
                                                        : of_integers(f.function, f.from);
  if (expression.empty())
    refuse(NW_UNSUPPORTED, -1, "an exported plugin has no function '%s' of %s", f.function.c_str(), ir::name_of(f.from));
  const std::string result = converts ? type_of(f.to) : gives_bool ? "u8" : type_of(f.from);
  const std::string name = "nf_" + f.function + "_" + ir::name_of(f.from) + (converts ? std::string("_") + ir::name_of(f.to) : "");
  return {name, "FUNCTION(" + name + ", " + type_of(f.from) + ", " + result + ", " + expression + ")\n"};
}

}  // namespace narrows::cpu
