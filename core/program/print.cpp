// SPDX-License-Identifier: Apache-2.0
// print.cpp -- writes a program's one text: see text.h.
#include <array>
#include <charconv>
#include <cmath>

#include "core/program/dtype.h"
#include "core/program/lexer.h"
#include "core/program/operators.h"
#include "core/program/text.h"

namespace narrows::program {
namespace {

std::string show_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == std::trunc(value) && std::fabs(value) < 0x1p53 && !(value == 0 && std::signbit(value)))
    return std::to_string(static_cast<int64_t>(value));
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), std::fabs(value), std::chars_format::hex).ptr;
  return (std::signbit(value) ? "-0x" : "0x") + std::string(digits.data(), end);
}

// What stands between the brackets of f32(…), and as a param's value.
std::string show_constant(const Expr& expr) {
  if (expr.kind == Expr::Kind::real) return show_real(expr.real);
  return expr.dtype == DType::u64 ? std::to_string(static_cast<uint64_t>(expr.integer)) : std::to_string(expr.integer);
}

class ExprPrinter {
 public:
  // In brackets where it binds more weakly than `least`.
  void put(const Expr& expr, int least) {
    const bool brackets = strength(expr) < least;
    if (brackets) out += '(';
    put_bare(expr);
    if (brackets) out += ')';
  }

  void put_list(const std::vector<ExprPtr>& list, const char* open, const char* close) {
    out += open;
    for (size_t i = 0; i < list.size(); ++i) {
      if (i != 0) out += ", ";
      put(*list[i], 0);
    }
    out += close;
  }

  std::string out;

 private:
  static bool is_negation(const Expr& expr) {
    if (expr.kind != Expr::Kind::call) return false;
    if (expr.dtype != DType::index) return expr.name == "neg";
    const Expr& left = *expr.operands[0];
    return expr.name == "sub" && left.kind == Expr::Kind::integer && left.integer == 0;
  }
  static bool is_not(const Expr& expr) {
    return expr.kind == Expr::Kind::call && expr.name == "logical_not" && expr.operands[0]->dtype == DType::boolean;
  }

  static int strength(const Expr& expr) {
    if (expr.kind == Expr::Kind::integer && expr.dtype == DType::index && expr.integer < 0) return kMinus;
    if (is_negation(expr)) return kMinus;
    if (is_not(expr)) return kNot;
    const Operator* const infix = infix_of(expr);
    return infix != nullptr ? infix->strength : kPrimary;
  }

  void put_bare(const Expr& expr) {
    switch (expr.kind) {
      case Expr::Kind::integer:
      case Expr::Kind::real:
      case Expr::Kind::boolean:
        out += expr.dtype == DType::index ? show_constant(expr) : name_of(expr.dtype) + ("(" + show_constant(expr) + ")");
        break;
      case Expr::Kind::name: out += expr.name; break;
      case Expr::Kind::load: out += expr.name, put_list(expr.operands, "[", "]"); break;
      case Expr::Kind::call: put_call(expr); break;
      case Expr::Kind::cast: out += name_of(expr.dtype), put_list(expr.operands, "(", ")"); break;
      case Expr::Kind::present: out += "present(" + expr.name + ")"; break;
      case Expr::Kind::clamp: put_list(expr.operands, "clamp(", ")"); break;
    }
  }

  void put_call(const Expr& expr) {
    if (is_negation(expr)) {
      out += '-';
      return put(*expr.operands.back(), kMinus);
    }
    if (is_not(expr)) {
      out += "not ";
      return put(*expr.operands[0], kNot);
    }
    const Operator* const infix = infix_of(expr);
    if (infix == nullptr) {
      out += written_name(expr);
      return put_list(expr.operands, "(", ")");
    }
    put(*expr.operands[0], infix->strength == kComparison ? kComparison + 1 : infix->strength);
    out += ' ' + std::string(infix->sign) + ' ';
    put(*expr.operands[1], infix->strength + 1);
  }
};

std::string list(const std::vector<ExprPtr>& parts, const char* open, const char* close) {
  ExprPrinter printer;
  printer.put_list(parts, open, close);
  return printer.out;
}

std::string show_notes(const std::vector<std::pair<std::string, std::string>>& notes) {
  if (notes.empty()) return "";
  std::string out = " {";
  for (size_t i = 0; i < notes.size(); ++i) out += (i != 0 ? ", " : "") + quote(notes[i].first) + ": " + quote(notes[i].second);
  return out + "}";
}

std::string show_tensor(const Buffer& buffer) {
  const char* const role = buffer.role == Buffer::Role::output ? "out " : buffer.role == Buffer::Role::inout ? "inout " : "";
  return buffer.name + (buffer.optional ? "?: " : ": ") + role + name_of(buffer.dtype) + list(buffer.shape, "[", "]");
}

std::string show_padding(const Buffer& buffer) {
  std::string out;
  for (const int64_t elements : buffer.padding) out += (out.empty() ? " pad [" : ", ") + std::to_string(elements);
  return out.empty() ? "" : out + "]";
}

std::string show_allocation(const Buffer& buffer) {
  const char* const scope = buffer.scope == Buffer::Scope::shared  ? " shared"
                            : buffer.scope == Buffer::Scope::local ? " local"
                                                                   : "";
  return "alloc " + buffer.name + ": " + name_of(buffer.dtype) + list(buffer.shape, "[", "]") + scope + show_padding(buffer);
}

std::string show_kind(const For& loop) {
  switch (loop.kind) {
    case For::Kind::parallel: return " parallel";
    case For::Kind::vectorize: return " vectorize";
    case For::Kind::unroll: return " unroll";
    case For::Kind::bind: return " bind " + loop.thread;
    case For::Kind::pipeline: return " pipeline " + std::to_string(loop.stages);
    case For::Kind::tensorize: return " tensorize " + quote(loop.intrinsic);
    default: return "";
  }
}

std::string show_axis(const Axis& axis) {
  const char* const kind = axis.kind == Axis::Kind::spatial ? "S(" : axis.kind == Axis::Kind::reduction ? "R(" : "C(";
  return axis.name + ": " + kind + print(axis.extent) + ") = " + print(axis.binding);
}

class ProgramPrinter {
 public:
  void line(int depth, const std::string& text) { out += std::string(static_cast<size_t>(depth) * 2, ' ') + text + '\n'; }

  void put(const std::vector<Stmt>& body, int depth) {
    for (const Stmt& stmt : body) {
      if (const auto* loop = std::get_if<std::shared_ptr<const For>>(&stmt)) {
        line(depth, print_header(**loop));
        put((*loop)->body, depth + 1);
      } else {
        put(*std::get<std::shared_ptr<const Block>>(stmt), depth);
      }
    }
  }

  std::string out;

 private:
  void put(const Block& block, int depth) {
    line(depth, print_header(block));
    if (!block.init.empty()) line(depth + 1, "init:");
    for (const Store& store : block.init) line(depth + 2, print(store));
    for (const Store& store : block.body) line(depth + 1, print(store));
  }
};

}  // namespace

std::string print(const ExprPtr& expr) {
  if (expr == nullptr) return "";
  ExprPrinter printer;
  printer.put(*expr, 0);
  return printer.out;
}

std::string print(const Store& store) { return store.buffer + list(store.indices, "[", "]") + " = " + print(store.value); }

std::string print_header(const Block& block) {
  std::string out = "block " + block.name + "(";
  for (size_t i = 0; i < block.axes.size(); ++i) out += (i != 0 ? ", " : "") + show_axis(block.axes[i]);
  return out + ")" + (block.predicate != nullptr ? " if " + print(block.predicate) : "") + show_notes(block.notes) + ":";
}

std::string print_header(const For& loop) {
  return "for " + loop.name + " in " + print(loop.extent) + show_kind(loop) + show_notes(loop.notes) + ":";
}

std::string print_header(const Program& program) {
  std::string out = "program 1 " + program.name + "(";
  const char* separator = "";
  for (const Buffer& tensor : program.tensors) {
    out += separator + show_tensor(tensor);
    separator = ", ";
  }
  for (const Param& param : program.params) {
    out += separator + param.name + ": param " + name_of(param.dtype) + " = " + (param.value ? show_constant(*param.value) : "");
    separator = ", ";
  }
  return out + "):";
}

std::string print(const Program& program) {
  ProgramPrinter printer;
  printer.line(0, print_header(program));
  for (const Buffer& allocation : program.allocations) printer.line(1, show_allocation(allocation));
  printer.put(program.body, 1);
  return printer.out;
}

}  // namespace narrows::program
