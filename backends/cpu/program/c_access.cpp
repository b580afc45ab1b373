// SPDX-License-Identifier: Apache-2.0
// c_access.cpp -- loads and stores in C: where an element lies, whether a vector's elements are one run, and buffers that are
// registers. See c_printer.h.
#include "core/program/dtype.h"
#include "program/c_printer.h"

namespace narrows::cpu {

using ir::DType;

// A stride as text; as a number where it is one: 1, or a product of constant extents.
std::string Printer::stride(const std::string& buffer, size_t dimension, std::optional<int64_t>* number_out) {
  const auto array = arrays_.find(buffer);
  if (buffer[0] == '#') {  // a strip's
    *number_out = 1;
    return "1";
  }
  const BoundBuffer& bound = bound_.buffers.at(buffer);
  const std::vector<ir::ExprPtr>& shape = bound.buffer->shape;
  const bool dense = array != arrays_.end() || registers_.count(buffer) != 0 || bound.is_dense();
  int64_t step = 1;
  bool is_constant = dense;
  for (size_t d = dimension + 1; d < shape.size() && is_constant; ++d) {
    const auto extent = ir::constant(shape[d]);
    is_constant = extent.has_value();
    if (is_constant) step *= *extent;
  }
  if (!is_constant && bound.strides[dimension] == 1) is_constant = true;
  if (is_constant) {
    *number_out = dense && step != 1 ? step : 1;
    return std::to_string(**number_out);
  }
  return number(CNumber::Kind::stride, buffer, dimension);
}

Printer::Access Printer::access(const std::string& buffer, const std::vector<ir::ExprPtr>& indices) {
  Access out;
  Linear known;  // what has numbers for strides
  std::vector<std::string> offsets, steps;
  out.lanes = Access::Lanes::scattered;
  for (const ir::ExprPtr& index : indices)
    for (const Term& term : linear(index, extents_).terms)
      if (!term.is_name() && mentions(term.atom, kLane)) return out;
  for (size_t d = 0; d < indices.size(); ++d) {
    const Linear sum = linear(indices[d], extents_);
    std::optional<int64_t> step_number;
    const std::string step = stride(buffer, d, &step_number);
    if (step_number.has_value()) {
      known = known + sum * *step_number;
    } else {
      const Linear rest = sum.without(kLane);
      if (const int64_t factor = sum.factor_of(kLane); factor != 0) steps.push_back("(" + std::to_string(factor) + "LL) * " + step);
      if (!rest.terms.empty() || rest.constant != 0) offsets.push_back("(" + sum_text(rest) + ") * " + step);
    }
  }
  const int64_t factor = known.factor_of(kLane);
  const Linear rest = known.without(kLane);
  if (offsets.empty() && rest.is_constant()) out.constant = rest.constant;
  if (!rest.is_constant() || rest.constant != 0 || offsets.empty()) offsets.insert(offsets.begin(), sum_text(rest));
  out.offset = join(offsets, " + ");
  if (factor != 0) steps.insert(steps.begin(), std::to_string(factor));
  out.step = join(steps, " + ");
  if (steps.empty())
    out.lanes = Access::Lanes::same;
  else
    out.lanes = steps.size() == 1 && factor == 1 ? Access::Lanes::next : Access::Lanes::stepped;
  return out;
}

// The variable that stands for these elements of a buffer that is in registers.
std::optional<std::string> Printer::in_register(const std::string& buffer, const Access& access, int lanes) {
  const auto found = registers_.find(buffer);
  if (found == registers_.end()) return std::nullopt;
  Registers& registers = found->second;
  if (!access.constant.has_value() || (lanes > 1 && access.lanes != Access::Lanes::next)) {
    registers.failed = true;
    return registers.name;  // what is written will be thrown away
  }
  registers.used.insert({*access.constant, lanes});
  note_use({*access.constant, lanes}, &registers);
  need_type(bound_.buffers.at(buffer).buffer->dtype, lanes);
  return registers.name + "_" + std::to_string(*access.constant);
}

std::string Printer::element(const std::string& buffer, const std::string& offset, int lanes) {
  const auto array = arrays_.find(buffer);
  if (array != arrays_.end()) {
    const DType dtype = buffer[0] == '#' ? strips_.at(buffer) : bound_.buffers.at(buffer).buffer->dtype;
    need_type(is_half(dtype) ? DType::u16 : dtype == DType::boolean ? DType::u8 : dtype, lanes);
    return "*(" + c_storage(dtype, lanes) + "u*)(" + array->second + " + (" + offset + "))";
  }
  auto found = std::find(source_.buffers.begin(), source_.buffers.end(), buffer);
  if (found == source_.buffers.end()) found = source_.buffers.insert(source_.buffers.end(), buffer);
  const DType dtype = bound_.buffers.at(buffer).buffer->dtype;
  need_type(is_half(dtype) ? DType::u16 : dtype == DType::boolean ? DType::u8 : dtype, lanes);
  return "*(" + c_storage(dtype, lanes) + "u*)(b" + std::to_string(found - source_.buffers.begin()) + " + (" + offset + ") * " +
         std::to_string(bytes_of(dtype)) + ")";
}

// The prelude's function that reads or writes a part of a vector.
std::string Printer::part_function(const char* name, DType dtype, int lanes) {
  const DType stored = is_half(dtype) ? DType::u16 : dtype == DType::boolean ? DType::u8 : dtype;
  need_type(stored, lanes);
  parts_.insert({stored, lanes});
  return std::string(name) + "_" + c_storage(dtype, lanes);
}

// A result that nothing reads again, a vector of a register's size after the other.
bool Printer::may_stream(const std::string& buffer, int lanes) const {
  const ir::Buffer& target = *bound_.buffers.at(buffer).buffer;
  return in_a_run_ && target.role == ir::Buffer::Role::output && read_.count(buffer) == 0 &&
         lanes * bytes_of(target.dtype) == target_.vector_bytes;
}

// The lanes that a part has, as a mask for values of that type.
Value Printer::part_mask(DType dtype) {
  const auto bytes = static_cast<int>(bytes_of(dtype));
  const std::string type = c_mask(bytes, lanes_), item = "(" + c_mask(bytes, 1) + ")";
  need_type(bytes == 8 ? DType::i64 : bytes == 4 ? DType::i32 : bytes == 2 ? DType::i16 : DType::i8, lanes_);
  std::vector<std::string> numbers;
  numbers.reserve(static_cast<size_t>(lanes_));
  for (int lane = 0; lane < lanes_; ++lane) numbers.push_back(std::to_string(lane));
  const std::string all = keep(type, "(" + type + "){" + join(numbers, ", ") + "}");
  const std::string text = "(" + all + " >= " + item + part_->begin + ") & (" + all + " < " + item + part_->end + ")";
  return {keep(type, text), DType::boolean, lanes_, bytes};
}

// ---- between memory and values ----

Value Printer::from_storage(const std::string& text, DType dtype, int lanes) {
  if (dtype == DType::boolean) {
    if (lanes == 1) return {keep("i32", text + " != 0"), dtype};
    need_type(DType::i8, lanes);
    need_type(DType::u8, lanes);
    return {keep(c_mask(1, lanes), "(" + c_mask(1, lanes) + ")(" + text + " != 0)"), dtype, lanes, 1};
  }
  if (!is_half(dtype)) return {keep(c_type(dtype, lanes), text), dtype, lanes};
  need_type(DType::u16, lanes);
  const std::string name = helper(std::string("nw_from_") + ir::name_of(dtype), lanes);
  return {keep(c_type(dtype, lanes), name + "(" + text + ")"), dtype, lanes};
}

std::string Printer::to_storage(const Value& value) {
  if (value.dtype == DType::boolean && value.lanes > 1) {
    need_type(DType::u8, value.lanes);
    return "(" + c_storage(value.dtype, value.lanes) + ")(" + mask(value, 1, value.lanes) + " & 1)";
  }
  if (!is_half(value.dtype)) return value.text;
  return helper(std::string("nw_to_") + ir::name_of(value.dtype), value.lanes) + "(" + value.text + ")";
}

namespace {
std::vector<ir::ExprPtr> on_lane(const std::vector<ir::ExprPtr>& indices, int64_t lane) {
  std::vector<ir::ExprPtr> out;
  out.reserve(indices.size());
  for (const ir::ExprPtr& index : indices) out.push_back(ir::substitute(index, {{kLane, ir::make_integer(lane)}}));
  return out;
}
bool same_indices(const std::vector<ir::ExprPtr>& a, const std::vector<ir::ExprPtr>& b, const Extents& extents) {
  for (size_t d = 0; d < a.size(); ++d)
    if (!(linear(a[d], extents) == linear(b[d], extents))) return false;
  return true;
}
}  // namespace

// Lanes two elements apart, of two vectors that together reach from the first lane's to the last one's.
Value Printer::every_second(const ir::Expr& load, const std::string& offset) {
  const std::string first = keep("i64", offset), type = c_storage(load.dtype, lanes_);
  const std::string low = keep(type, element(load.name, first, lanes_));
  const std::string high = keep(type, element(load.name, first + " + " + std::to_string(lanes_ - 1), lanes_));
  std::vector<std::string> chosen;
  chosen.reserve(static_cast<size_t>(lanes_));
  for (int lane = 0; lane < lanes_; ++lane) chosen.push_back(std::to_string(2 * lane + (2 * lane < lanes_ ? 0 : 1)));
  const int bytes = static_cast<int>(bytes_of(load.dtype));
  need_type(bytes == 8 ? DType::i64 : bytes == 4 ? DType::i32 : bytes == 2 ? DType::i16 : DType::i8, lanes_);
  const std::string numbers = "NW_SHUFFLE(" + low + ", " + high + ", " + c_mask(bytes, lanes_) + ", " + join(chosen, ", ") + ")";
  return from_storage(keep(type, numbers), load.dtype, lanes_);
}

Value Printer::load(const ir::Expr& expr) {
  const DType dtype = expr.dtype;
  if (expr.name[0] != '#' && !bound_.buffers.at(expr.name).present)  // under where(present(…), …), which leaves it out
    return {c_literal({ir::is_float(dtype) ? ir::Expr::Kind::real : ir::Expr::Kind::integer, dtype, 0, 0, "", {}}), dtype};
  const auto accumulator = accumulators_.find(expr.name);
  if (accumulator != accumulators_.end() && same_indices(accumulator->second.indices, expr.operands, extents_))
    return {keep(c_type(dtype), accumulator->second.variable), dtype};
  const Access place = access(expr.name, expr.operands);
  const int lanes = place.lanes == Access::Lanes::same ? 1 : lanes_;
  if (const auto variable = in_register(expr.name, place, lanes); variable.has_value()) {
    if (lanes > 1) need_type(dtype, lanes);
    return {keep(c_type(dtype, lanes), *variable), dtype, lanes};
  }
  if (part_.has_value() && lanes > 1) {
    if (place.lanes != Access::Lanes::next) part_->failed = true;
    const std::string text = part_function("nw_load", dtype, lanes) + "(&" + element(expr.name, place.offset, lanes) + ", " +
                             part_->begin + ", " + part_->end + ")";
    return from_storage(text, dtype, lanes);
  }
  if (lanes == 1 || place.lanes == Access::Lanes::next) return from_storage(element(expr.name, place.offset, lanes), dtype, lanes);
  if (place.step == "2" && lanes >= 4) return every_second(expr, place.offset);
  std::vector<std::string> each;
  const std::string first = place.lanes == Access::Lanes::stepped ? keep("i64", place.offset) : "";
  const std::string step = place.lanes == Access::Lanes::stepped ? keep("i64", place.step) : "";
  for (int lane = 0; lane < lanes; ++lane) {
    std::string offset;
    if (place.lanes == Access::Lanes::stepped)
      offset.append(first).append(" + ").append(std::to_string(lane)).append(" * ").append(step);
    else
      offset = access(expr.name, on_lane(expr.operands, lane)).offset;
    each.push_back(element(expr.name, offset, 1));
  }
  const std::string type = c_storage(dtype, lanes);
  need_type(is_half(dtype) ? DType::u16 : dtype == DType::boolean ? DType::u8 : dtype, lanes);
  return from_storage(keep(type, "(" + type + "){" + join(each, ", ") + "}"), dtype, lanes);
}

void Printer::store(const ir::Store& store) {
  const BoundBuffer& buffer = bound_.buffers.at(store.buffer);
  if (!buffer.present) return;  // an output that is not wanted
  const DType dtype = buffer.buffer->dtype;
  const std::vector<ir::ExprPtr> indices = resolved(store.indices);
  Value computed = value(resolved(store.value));
  if (accumulators_.count(store.buffer) != 0) return line(accumulators_.at(store.buffer).variable + " = " + computed.text + ";");
  const Access place = access(store.buffer, indices);
  const int lanes = place.lanes == Access::Lanes::same ? 1 : lanes_;
  if (lanes > 1) computed = widen(computed, lanes);
  if (const auto variable = in_register(store.buffer, place, lanes); variable.has_value()) {
    if (part_.has_value() && lanes > 1 && keeps_lanes_) computed = select(part_mask(dtype), computed, {*variable, dtype, lanes});
    return line(*variable + " = " + computed.text + ";");
  }
  if (part_.has_value()) {
    if (place.lanes != Access::Lanes::next) part_->failed = true;
    return line(part_function("nw_store", dtype, lanes) + "(&" + element(store.buffer, place.offset, lanes) + ", " +
                to_storage(computed) + ", " + part_->begin + ", " + part_->end + ");");
  }
  if (place.lanes == Access::Lanes::next && may_stream(store.buffer, lanes))
    return line(part_function("nw_stream", dtype, lanes) + "(&" + element(store.buffer, place.offset, lanes) + ", " +
                to_storage(computed) + ", " + number(CNumber::Kind::kept, "") + ");");
  if (lanes == 1 || place.lanes == Access::Lanes::next)
    return line(element(store.buffer, place.offset, lanes) + " = " + to_storage(computed) + ";");
  need_type(is_half(dtype) ? DType::u16 : dtype == DType::boolean ? DType::u8 : dtype, lanes);
  const std::string all = keep(c_storage(dtype, lanes), to_storage(computed));
  for (int lane = 0; lane < lanes; ++lane) {
    const std::string offset = place.lanes == Access::Lanes::stepped
                                   ? "(" + place.offset + ") + " + std::to_string(lane) + " * (" + place.step + ")"
                                   : access(store.buffer, on_lane(indices, lane)).offset;
    line(element(store.buffer, offset, 1) + " = " + all + "[" + std::to_string(lane) + "];");
  }
}

// ---- numbers that come at run time ----

std::string Printer::number(CNumber::Kind kind, const std::string& name, size_t dimension, const Node* loop) {
  size_t i = 0;
  for (; i < source_.numbers.size(); ++i) {
    const CNumber& one = source_.numbers[i];
    if (one.kind == kind && one.name == name && one.dimension == dimension && one.loop == loop) break;
  }
  if (i == source_.numbers.size()) source_.numbers.push_back({kind, name, dimension, loop});
  if (kind != CNumber::Kind::param) return "n" + std::to_string(i);
  for (const ir::Param& param : bound_.lowered->program.params) {
    if (param.name != name) continue;
    if (is_half(param.dtype))
      return helper(std::string("nw_from_") + ir::name_of(param.dtype), 1) + "(*(const u16u*)(S + " + std::to_string(i) + "))";
    return "(*(const " + c_storage(param.dtype) + "u*)(S + " + std::to_string(i) + "))";
  }
  return "n" + std::to_string(i);
}

}  // namespace narrows::cpu
