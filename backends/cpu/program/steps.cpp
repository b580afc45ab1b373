// SPDX-License-Identifier: Apache-2.0
// steps.cpp -- see steps.h.
#include "program/steps.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/text.h"

namespace narrows::cpu {
namespace {

using Kind = ir::Expr::Kind;
using ir::DType;

template <class T>
T get(const Frame& frame, int32_t cell) {
  T out;
  std::memcpy(&out, frame.cells[cell].bytes, sizeof(T));
  return out;
}
template <class T>
void set(Frame& frame, int32_t cell, T value) {
  std::memcpy(frame.cells[cell].bytes, &value, sizeof(T));
}

// ---- memory ----

char* address(const Step* step, const Frame& frame) {
  int64_t offset = step->constant;
  for (int32_t i = 0; i < step->num_terms; ++i) offset += step->terms[i].factor * frame.cells[step->terms[i].cell].index;
  return frame.base[step->buffer] + offset;
}
template <size_t Size>
const Step* load_bytes(const Step* step, Frame& frame) {
  std::memcpy(frame.cells[step->out].bytes, address(step, frame), Size);
  return step + 1;
}
const Step* load_bool(const Step* step, Frame& frame) {
  frame.cells[step->out].bytes[0] = *address(step, frame) != 0 ? 1 : 0;
  return step + 1;
}
template <size_t Size>
const Step* store_bytes(const Step* step, Frame& frame) {
  std::memcpy(address(step, frame), frame.cells[step->a].bytes, Size);
  return step + 1;
}
const Step* store_sum(const Step* step, Frame& frame) {  // of index
  int64_t out = step->constant;
  for (int32_t i = 0; i < step->num_terms; ++i) out += step->terms[i].factor * frame.cells[step->terms[i].cell].index;
  frame.cells[step->out].index = out;
  return step + 1;
}

Run1 load_step(DType dtype) {
  if (dtype == DType::boolean) return load_bool;
  switch (bytes_of(dtype)) {
    case 1: return load_bytes<1>;
    case 2: return load_bytes<2>;
    case 4: return load_bytes<4>;
    default: return load_bytes<8>;
  }
}
Run1 store_step(DType dtype) {
  switch (bytes_of(dtype)) {
    case 1: return store_bytes<1>;
    case 2: return store_bytes<2>;
    case 4: return store_bytes<4>;
    default: return store_bytes<8>;
  }
}

// ---- control ----

const Step* end(const Step*, Frame&) { return nullptr; }
const Step* jump(const Step* step, Frame&) { return step + step->jump; }
const Step* jump_if_false(const Step* step, Frame& frame) {
  return frame.cells[step->a].bytes[0] != 0 ? step + 1 : step + step->jump;
}
const Step* copy(const Step* step, Frame& frame) {
  frame.cells[step->out] = frame.cells[step->a];
  return step + 1;
}

// ---- functions ----

const Step* by_kernel(const Step* step, Frame& frame) {
  Run run;
  run.in[0] = frame.cells[step->a].bytes;
  run.in[1] = frame.cells[step->b].bytes;
  run.in[2] = frame.cells[step->c].bytes;
  run.out = frame.cells[step->out].bytes;
  run.n = 1;
  step->kernel(run);
  return step + 1;
}
const Step* by_kernel_with_alpha(const Step* step, Frame& frame) {
  Run run;
  run.in[0] = frame.cells[step->a].bytes;
  run.out = frame.cells[step->out].bytes;
  run.n = 1;
  run.alpha = get<double>(frame, step->b);
  step->kernel(run);
  return step + 1;
}

template <class T>
using Wide =
    std::conditional_t<std::is_floating_point_v<T>, T, std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>>;

template <class T>
struct Add {
  static T apply(T a, T b) { return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b)); }
};
template <class T>
struct Sub {
  static T apply(T a, T b) { return static_cast<T>(static_cast<Wide<T>>(a) - static_cast<Wide<T>>(b)); }
};
template <class T>
struct Mul {  // 16-bit factors would become int, and overflow
  using W = std::conditional_t<std::is_floating_point_v<T>, T, uint64_t>;
  static T apply(T a, T b) { return static_cast<T>(static_cast<W>(a) * static_cast<W>(b)); }
};
template <class T>
struct Maximum {
  static T apply(T a, T b) { return a > b || a != a ? a : b; }  // NOLINT(misc-redundant-expression): NaN
};
template <class T>
struct Minimum {
  static T apply(T a, T b) { return a < b || a != a ? a : b; }  // NOLINT(misc-redundant-expression): NaN
};
#define NARROWS_COMPARISON(Name, symbol)               \
  template <class T>                                   \
  struct Name {                                        \
    static bool apply(T a, T b) { return a symbol b; } \
  };
NARROWS_COMPARISON(Less, <)
NARROWS_COMPARISON(LessEqual, <=)
NARROWS_COMPARISON(Greater, >)
NARROWS_COMPARISON(GreaterEqual, >=)
NARROWS_COMPARISON(Equal, ==)
NARROWS_COMPARISON(NotEqual, !=)
#undef NARROWS_COMPARISON

template <template <class> class F, class T>
const Step* binary(const Step* step, Frame& frame) {
  set(frame, step->out, F<T>::apply(get<T>(frame, step->a), get<T>(frame, step->b)));
  return step + 1;
}

template <template <class> class F>
Run1 binary_step(DType dtype) {
  switch (dtype) {
    case DType::index:
    case DType::i64: return binary<F, int64_t>;
    case DType::i8: return binary<F, int8_t>;
    case DType::i16: return binary<F, int16_t>;
    case DType::i32: return binary<F, int32_t>;
    case DType::u8: return binary<F, uint8_t>;
    case DType::u16: return binary<F, uint16_t>;
    case DType::u32: return binary<F, uint32_t>;
    case DType::u64: return binary<F, uint64_t>;
    case DType::f32: return binary<F, float>;
    case DType::f64: return binary<F, double>;
    default: return nullptr;  // bool and the halves
  }
}

// A step for what is asked often; nullptr: the kernel does it.
Run1 quick_step(const std::string& name, DType dtype) {
  if (name == "add") return binary_step<Add>(dtype);
  if (name == "sub") return binary_step<Sub>(dtype);
  if (name == "mul") return binary_step<Mul>(dtype);
  if (name == "maximum") return binary_step<Maximum>(dtype);
  if (name == "minimum") return binary_step<Minimum>(dtype);
  if (name == "lt") return binary_step<Less>(dtype);
  if (name == "le") return binary_step<LessEqual>(dtype);
  if (name == "gt") return binary_step<Greater>(dtype);
  if (name == "ge") return binary_step<GreaterEqual>(dtype);
  if (name == "eq") return binary_step<Equal>(dtype);
  if (name == "ne") return binary_step<NotEqual>(dtype);
  return nullptr;
}

template <class T, bool Fused>
const Step* muladd(const Step* step, Frame& frame) {
  const T a = get<T>(frame, step->a), b = get<T>(frame, step->b), c = get<T>(frame, step->c);
  set(frame, step->out, Fused ? std::fma(a, b, c) : a * b + c);
  return step + 1;
}

// Of index. By 0 it is 0: the sizes of a call may make a divisor 0, of loops that then run nothing.
const Step* floor_div(const Step* step, Frame& frame) {
  const int64_t a = frame.cells[step->a].index, b = frame.cells[step->b].index;
  int64_t out = 0;
  if (b == -1)
    out = static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  else if (b != 0)
    out = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  frame.cells[step->out].index = out;
  return step + 1;
}
const Step* remainder(const Step* step, Frame& frame) {
  const int64_t a = frame.cells[step->a].index, b = frame.cells[step->b].index;
  int64_t out = b == 0 || b == -1 ? 0 : a % b;
  if (out != 0 && (out < 0) != (b < 0)) out += b;
  frame.cells[step->out].index = out;
  return step + 1;
}

// An integer as an index.
template <class T>
const Step* to_index(const Step* step, Frame& frame) {
  const T value = get<T>(frame, step->a);
  const bool past = std::is_same_v<T, uint64_t> && value > static_cast<T>(INT64_MAX);
  frame.cells[step->out].index = past ? INT64_MAX : static_cast<int64_t>(value);
  return step + 1;
}
Run1 to_index_step(DType dtype) {
  switch (dtype) {
    case DType::i8: return to_index<int8_t>;
    case DType::i16: return to_index<int16_t>;
    case DType::i32: return to_index<int32_t>;
    case DType::u8: return to_index<uint8_t>;
    case DType::u16: return to_index<uint16_t>;
    case DType::u32: return to_index<uint32_t>;
    case DType::u64: return to_index<uint64_t>;
    default: return copy;
  }
}
const Step* index_to_bool(const Step* step, Frame& frame) {
  frame.cells[step->out].bytes[0] = frame.cells[step->a].index != 0 ? 1 : 0;
  return step + 1;
}

}  // namespace

void Code::finish() {
  Step last;
  last.run = end;
  steps.push_back(last);
  for (Step& step : steps) step.terms = terms.data() + step.first_term;
}

int32_t Compiler::buffer_number(const std::string& name) {
  const auto found = std::find(buffer_names_.begin(), buffer_names_.end(), name);
  if (found != buffer_names_.end()) return static_cast<int32_t>(found - buffer_names_.begin());
  buffer_names_.push_back(name);
  return static_cast<int32_t>(buffer_names_.size() - 1);
}

int32_t Compiler::constant(Cell value) {
  for (const Constant& one : constants_)
    if (one.value.index == value.index) return one.cell;
  constants_.push_back({new_cell(), value});
  return constants_.back().cell;
}

int32_t Compiler::emit(Step step, Code* code) {
  step.out = new_cell();
  code->steps.push_back(step);
  return step.out;
}

size_t Compiler::jump_unless(int32_t cell, Code* code) {
  Step step;
  step.run = jump_if_false;
  step.a = cell;
  code->steps.push_back(step);
  return code->steps.size() - 1;
}

int32_t Compiler::name(const ir::Expr& expr) {
  const auto loop = names_.find(expr.name);
  if (loop != names_.end()) return loop->second;
  const auto param = bound_.params.find(expr.name);
  if (param == bound_.params.end()) refuse(NW_INVALID, -1, "the program has no '%s'", expr.name.c_str());
  Cell cell{};
  std::memcpy(cell.bytes, param_scalar(instance_, expr.dtype, param->second).bytes, sizeof(cell));
  return constant(cell);
}

// ---- index ----

void Compiler::add_terms(const Linear& sum, int64_t factor, Step* step, std::vector<AddressTerm>* terms, Code* code) {
  step->constant += sum.constant * factor;
  for (const Term& term : sum.terms) {
    const int32_t cell = term.is_name() ? name(*term.atom) : value(term.atom, code);
    terms->push_back({cell, term.factor * factor});
  }
}

namespace {
void attach(const std::vector<AddressTerm>& terms, Step* step, Code* code) {
  step->first_term = static_cast<int64_t>(code->terms.size());
  step->num_terms = static_cast<int32_t>(terms.size());
  code->terms.insert(code->terms.end(), terms.begin(), terms.end());
}
}  // namespace

int32_t Compiler::sum(const ir::ExprPtr& expr, Code* code) {
  const Linear sum = linear(expr, extents_);
  if (sum.is_constant()) return constant({.index = sum.constant});
  if (sum.constant == 0 && sum.terms.size() == 1 && sum.terms[0].factor == 1) {
    const ir::ExprPtr& atom = sum.terms[0].atom;
    if (atom->kind == Kind::name) return name(*atom);
    if (atom->kind == Kind::call) return index_call(atom, code);
    return value(atom, code);
  }
  Step step;
  step.run = store_sum;
  std::vector<AddressTerm> terms;
  add_terms(sum, 1, &step, &terms, code);
  attach(terms, &step, code);
  return emit(step, code);
}

int32_t Compiler::index_call(const ir::ExprPtr& expr, Code* code) {
  Step step;
  step.a = value(expr->operands[0], code);
  step.b = value(expr->operands[1], code);
  step.run = expr->name == "floor_div" ? floor_div : expr->name == "remainder" ? remainder : quick_step(expr->name, DType::index);
  if (step.run == nullptr) refuse(NW_UNSUPPORTED, -1, "the cpu backend has no function '%s' of index", expr->name.c_str());
  return emit(step, code);
}

int32_t Compiler::clamp(const ir::ExprPtr& expr, Code* code) {
  Step as_index, low, high;
  as_index.a = value(expr->operands[0], code);
  as_index.run = to_index_step(expr->operands[0]->dtype);
  low.a = emit(as_index, code);
  low.b = value(expr->operands[1], code);
  low.run = quick_step("maximum", DType::index);
  high.a = emit(low, code);
  high.b = value(expr->operands[2], code);
  high.run = quick_step("minimum", DType::index);
  return emit(high, code);
}

// ---- values ----

Step Compiler::access(const std::string& buffer, const std::vector<ir::ExprPtr>& indices, Code* code) {
  const BoundBuffer& bound = bound_.buffers.at(buffer);
  Step step;
  step.buffer = buffer_number(buffer);
  std::vector<AddressTerm> terms;
  for (size_t d = 0; d < indices.size(); ++d)
    add_terms(linear(indices[d], extents_), bound.strides[d] * bytes_of(bound.buffer->dtype), &step, &terms, code);
  attach(terms, &step, code);
  return step;
}

int32_t Compiler::load(const ir::Expr& expr, Code* code) {
  if (!bound_.buffers.at(expr.name).present) return constant({.index = 0});  // under where(present(…), …), which leaves it out
  Step step = access(expr.name, expr.operands, code);
  step.run = load_step(expr.dtype);
  return emit(step, code);
}

void Compiler::store(const ir::Store& store, Code* code) {
  if (!bound_.buffers.at(store.buffer).present) return;  // an output that is not wanted
  const int32_t cell = value(store.value, code);
  Step step = access(store.buffer, store.indices, code);
  step.run = store_step(bound_.buffers.at(store.buffer).buffer->dtype);
  step.a = cell;
  code->steps.push_back(step);
}

// The operand that is not chosen is not computed: its loads may lie outside of their buffers.
int32_t Compiler::where(const ir::ExprPtr& expr, Code* code) {
  const ir::ExprPtr& condition = expr->operands[0];
  if (condition->kind == Kind::present || condition->kind == Kind::boolean) {
    const bool chosen = condition->kind == Kind::boolean ? condition->integer != 0 : bound_.buffers.at(condition->name).present;
    return value(expr->operands[chosen ? 1 : 2], code);
  }
  const int32_t out = new_cell();
  const auto assign = [&](int32_t cell) {
    Step step;
    step.run = copy;
    step.a = cell;
    step.out = out;
    code->steps.push_back(step);
  };
  const size_t to_other = jump_unless(value(condition, code), code);
  assign(value(expr->operands[1], code));
  Step over;
  over.run = jump;
  code->steps.push_back(over);
  const size_t to_end = code->steps.size() - 1;
  land(to_other, code);
  assign(value(expr->operands[2], code));
  land(to_end, code);
  return out;
}

int32_t Compiler::cast(const ir::ExprPtr& expr, Code* code) {
  const DType from = expr->operands[0]->dtype, to = expr->dtype;
  const int32_t operand = value(expr->operands[0], code);
  if (from == to) return operand;
  Step step;
  step.a = operand;
  if (from == DType::index && to == DType::boolean) {
    step.run = index_to_bool;
  } else if (from == DType::index && !ir::is_float(to)) {
    step.run = copy;  // the low bytes
  } else {
    step.run = by_kernel;
    step.kernel = conversion_kernel(instance_, from, to);
  }
  return emit(step, code);
}

int32_t Compiler::sum_of_product(const ir::Expr& expr, size_t product, Code* code) {
  Step step;
  step.a = value(expr.operands[product]->operands[0], code);
  step.b = value(expr.operands[product]->operands[1], code);
  step.c = value(expr.operands[1 - product], code);
  const bool fused = fuses(instance_);
  if (expr.dtype == DType::f32)
    step.run = fused ? muladd<float, true> : muladd<float, false>;
  else
    step.run = fused ? muladd<double, true> : muladd<double, false>;
  return emit(step, code);
}

int32_t Compiler::call(const ir::ExprPtr& expr, Code* code) {
  if (expr->dtype == DType::index) return sum(expr, code);
  if (expr->name == "where") return where(expr, code);
  if (const auto product = fusible_product(*expr, contract_); product.has_value()) return sum_of_product(*expr, *product, code);
  const DType dtype = expr->operands[0]->dtype;
  Step step;
  int32_t cells[3] = {};
  for (size_t i = 0; i < expr->operands.size() && i < 3; ++i) cells[i] = value(expr->operands[i], code);
  step.a = cells[0];
  step.b = cells[1];
  step.c = cells[2];
  step.run = quick_step(expr->name, dtype);
  if (step.run != nullptr) return emit(step, code);
  step.run = by_kernel;
  step.kernel = function_kernel(instance_, expr->name, dtype);
  if (expr->name == "elu") {
    Step widen;
    widen.run = by_kernel;
    widen.a = step.b;
    widen.kernel = conversion_kernel(instance_, dtype, DType::f64);
    step.b = dtype == DType::f64 ? step.b : emit(widen, code);
    step.run = by_kernel_with_alpha;
  }
  return emit(step, code);
}

int32_t Compiler::value(const ir::ExprPtr& expr, Code* code) {
  switch (expr->kind) {
    case Kind::integer:
      if (expr->dtype == DType::index || expr->dtype == DType::i64 || !ir::is_float(expr->dtype))
        return constant({.index = expr->integer});
      [[fallthrough]];
    case Kind::real: {
      Cell cell{};
      std::memcpy(cell.bytes, make_scalar(instance_, dtype_number(expr->dtype), expr->real, expr->integer).bytes, sizeof(cell));
      return constant(cell);
    }
    case Kind::boolean: return constant({.index = expr->integer != 0 ? 1 : 0});
    case Kind::present: return constant({.index = bound_.buffers.at(expr->name).present ? 1 : 0});
    case Kind::name: return name(*expr);
    case Kind::load: return load(*expr, code);
    case Kind::cast: return cast(expr, code);
    case Kind::clamp: return clamp(expr, code);
    case Kind::call: return call(expr, code);
  }
  refuse(NW_UNSUPPORTED, -1, "the cpu backend does not know %s", ir::print(expr).c_str());
}

}  // namespace narrows::cpu
