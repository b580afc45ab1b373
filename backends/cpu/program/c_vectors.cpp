// SPDX-License-Identifier: Apache-2.0
// c_vectors.cpp -- loops whose iterations are the lanes of vectors: those that the schedule vectorises, and innermost ones that may
// be without changing a bit. See c_printer.h.
#include <algorithm>
#include <functional>

#include "core/program/dtype.h"
#include "core/program/functions.h"
#include "program/c_printer.h"

namespace narrows::cpu {
namespace {

using Kind = ir::Expr::Kind;
using ir::DType;

constexpr int64_t kStrip = 256;      // elements that a function is called for at once
constexpr int64_t kMostChunks = 16;  // that are written one after the other

void for_each_expr(const ir::ExprPtr& expr, const std::function<void(const ir::ExprPtr&)>& visit) {
  visit(expr);
  for (const ir::ExprPtr& operand : expr->operands) for_each_expr(operand, visit);
}

int64_t widest(const ir::ExprPtr& expr) {
  int64_t out = 1;
  for_each_expr(expr, [&](const ir::ExprPtr& part) {
    if (part->dtype == DType::index || part->dtype == DType::boolean) return;
    out = std::max(out, is_half(part->dtype) ? 4 : bytes_of(part->dtype));
  });
  return out;
}

// Whether iterations store at different places. Where all of them have one place, a condition lets one of them run.
bool varies(const Node& loop) {
  const auto by_loop = [&](const ir::Store& store) {
    return std::any_of(store.indices.begin(), store.indices.end(), [&](const auto& index) { return mentions(index, loop.name); });
  };
  return std::all_of(loop.body.begin(), loop.body.end(),
                     [&](const Node& child) { return std::all_of(child.stores.begin(), child.stores.end(), by_loop); });
}

}  // namespace

namespace {
// function(function(a, b), c)
std::string nested(const char* function, const std::vector<std::string>& values) {
  std::string out = values[0];
  for (size_t i = 1; i < values.size(); ++i)
    out = std::string(function).append("(").append(out).append(", ").append(values[i]).append(")");
  return out;
}
}  // namespace

void Printer::set_lanes(int lanes) {
  lanes_ = lanes;
  extents_.erase(kLane);
  if (lanes > 1) extents_[kLane] = lanes;
}

// Vectors fill a register with the widest type that they compute in; narrower ones fill a part.
int Printer::lanes_for(const Node& node) const {
  int64_t bytes = 1;
  for (const Node& child : node.body)
    for (const ir::Store& store : child.stores) {
      const DType dtype = bound_.buffers.at(store.buffer).buffer->dtype;
      bytes = std::max({bytes, widest(store.value), is_half(dtype) ? 4 : bytes_of(dtype)});
    }
  return static_cast<int>(target_.vector_bytes / bytes);
}

// Whether a kernel computes it, which is called for many elements at once.
bool Printer::needs_kernel(const ir::Expr& expr) const {
  if (expr.dtype == DType::index || expr.operands.empty()) return false;
  const DType from = expr.operands[0]->dtype;
  if (expr.kind == Kind::cast) return from != DType::index && !casts_by_c(from, expr.dtype);
  const ir::Function* function = expr.kind == Kind::call ? ir::find_function(expr.name) : nullptr;
  if (function == nullptr || from == DType::index) return false;
  if (function->is_costly()) return true;
  const auto is_one_of = [&](const std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return expr.name == name; });
  };
  if (!ir::is_float(from)) return is_one_of({"div", "bitwise_left_shift", "bitwise_right_shift"});
  if (is_one_of({"fma", "floor", "ceil", "trunc", "round"})) return !is_instruction(expr.name, from);
  return is_one_of({"sqrt", "rsqrt"});
}

bool Printer::calls_functions(const ir::ExprPtr& expr) const {
  bool found = false;
  for_each_expr(expr, [&](const ir::ExprPtr& part) { found = found || needs_kernel(*part); });
  return found;
}

// What strip_array() puts on the stack for the store that needs most.
int64_t Printer::strip_bytes(const Node& node) const {
  int64_t most = 0;
  for (const Node& child : node.body) {
    for (const ir::Store& store : child.stores) {
      int64_t bytes = 0;
      for_each_expr(store.value, [&](const ir::ExprPtr& part) {
        if (!needs_kernel(*part)) return;
        const int64_t least = part->name == "elu" ? 4 : 1;  // elu_by_expm1()
        bytes += kStrip * std::max(least, bytes_of(part->dtype));
        for (const ir::ExprPtr& operand : part->operands) bytes += kStrip * std::max(least, bytes_of(operand->dtype));
      });
      most = std::max(most, bytes);
    }
  }
  return most;
}

// A serial loop that stores one run, and where no iteration reads what another one writes.
bool Printer::is_safe_to_vectorize(const Node& node) const {
  std::map<std::string, const std::vector<ir::ExprPtr>*> written;
  const auto same = [&](const std::vector<ir::ExprPtr>& a, const std::vector<ir::ExprPtr>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const auto& x, const auto& y) { return linear(x, extents_) == linear(y, extents_); });
  };
  for (const Node& child : node.body) {
    for (const ir::Store& store : child.stores) {
      const auto [entry, is_new] = written.insert({store.buffer, &store.indices});
      if (!is_new && !same(*entry->second, store.indices)) return false;
      if (store.indices.empty()) return false;
      for (size_t d = 0; d < store.indices.size(); ++d) {
        const Linear sum = linear(store.indices[d], extents_);
        const bool last = d + 1 == store.indices.size();
        if (last ? sum.factor_of(node.name) != 1 : mentions(store.indices[d], node.name)) return false;
        if (last && mentions(expression(sum.without(node.name)), node.name)) return false;
      }
    }
  }
  bool safe = true;
  const auto check = [&](const ir::Expr& load) {
    const auto found = written.find(load.name);
    safe = safe && (found == written.end() || same(*found->second, load.operands));
  };
  for (const Node& child : node.body) {
    for (const ir::ExprPtr& condition : child.conditions) for_each_load(condition, check);
    for (const ir::Store& store : child.stores) {
      for (const ir::ExprPtr& index : store.indices) for_each_load(index, check);
      for_each_load(store.value, check);
    }
  }
  return safe;
}

bool Printer::vector_loop(const Node& node) {
  const bool innermost =
      std::all_of(node.body.begin(), node.body.end(), [](const Node& n) { return n.kind == Node::Kind::stores; });
  const bool asked = node.loop_kind == ir::For::Kind::vectorize;
  const auto extent = ir::constant(node.extent);
  if (!innermost || !node.allocations.empty() || node.body.empty() || (asked && !varies(node))) return false;
  if (!asked && (node.loop_kind != ir::For::Kind::serial || (extent.has_value() && *extent < 4) || !is_safe_to_vectorize(node)))
    return false;
  bool calls = false;
  for (const Node& child : node.body)
    for (const ir::Store& store : child.stores) calls = calls || calls_functions(store.value);
  if (calls && stack_bytes_ + strip_bytes(node) > kMostStackBytes) calls = false;  // then for one vector at once
  int lanes = lanes_for(node);
  if (extent.has_value())
    while (lanes > 1 && lanes > *extent) lanes /= 2;
  if (lanes < 2) return false;
  if (node.moved_in) line("// vectors of a loop that the program has further out");
  path_.push_back(node.name);
  if (!calls && extent.has_value() && *extent / lanes <= kMostChunks) {
    for (int64_t done = 0; done < *extent;) {
      while (lanes > *extent - done) lanes /= 2;
      chunk(node, ir::make_integer(done), lanes);
      done += lanes;
    }
  } else {
    const std::string whole = extent.has_value() ? std::to_string(*extent) : keep("i64", index_text(resolved(node.extent)));
    const std::string start = fresh("q");
    const int64_t step = calls ? kStrip : lanes;
    open("for (i64 " + start + " = 0; " + start + " < " + whole + "; " + start + " += " + std::to_string(step) + ") {");
    c_names_["#" + start] = start;
    const ir::ExprPtr base = ir::make_name("#" + start);
    const std::string left = keep("i64", "nw_minimum(" + whole + " - " + start + ", " + std::to_string(step) + ")");
    if (calls) {
      strip(node, base, left, lanes);
    } else {
      open("if (" + left + " == " + std::to_string(lanes) + ") {");
      in_a_run_ = true;
      chunk(node, base, lanes);
      in_a_run_ = false;
      close("} else");
      over(left, 1, [&](const ir::ExprPtr& within, int) { chunk(node, base + within, 1); });
    }
    close();
  }
  replaced_.erase(node.name);
  path_.pop_back();
  return true;
}

// Whole vectors of [0, length), then single elements.
void Printer::over(const std::string& length, int lanes, const std::function<void(const ir::ExprPtr& at, int lanes)>& body) {
  const std::string at = fresh("q");
  c_names_["#" + at] = at;
  const auto emit = [&](int step, const std::string& loop) {
    open(loop + " " + at + " + " + std::to_string(step) + " <= " + length + "; " + at + " += " + std::to_string(step) + ") {");
    body(ir::make_name("#" + at), step);
    close();
  };
  open("{");
  line("i64 " + at + " = 0;");
  if (lanes > 1) emit(lanes, "for (;");
  emit(1, "for (;");
  close();
}

void Printer::chunk(const Node& node, const ir::ExprPtr& base, int lanes) {
  for (const Node& child : node.body) vector_stores(child, node, base, lanes);
}

// `loop` takes the values base to base + lanes - 1.
void Printer::vector_stores(const Node& node, const Node& loop, const ir::ExprPtr& base, int lanes) {
  replaced_[loop.name] = lanes > 1 ? base + ir::make_name(kLane) : base;
  set_lanes(lanes);
  if (tile_.has_value()) here_ = conditions_key(node);
  if (free_stores(node, loop, base, lanes)) return set_lanes(1);
  set_lanes(lanes);
  std::vector<ir::ExprPtr> even;
  std::vector<std::string> tests, some;
  std::vector<std::string> first{"0"}, last{std::to_string(lanes)};  // of the lanes that are there
  bool by_lane = false, by_part = true;
  for (const ir::ExprPtr& condition : open_conditions(node)) {
    const ir::ExprPtr test = resolved(condition);
    if (!mentions(test, kLane)) {
      even.push_back(condition);
    } else if (ends_decide(test)) {
      tests.push_back(at_lane(test, 0));
      tests.push_back(at_lane(test, lanes - 1));
      by_part = by_part && bound_lanes(test, &first, &last);
      some.push_back("(" + tests[tests.size() - 2] + " || " + tests.back() + ")");
    } else {
      by_lane = true;
    }
  }
  set_lanes(1);
  const std::string outer = condition_text(even);
  open(outer.empty() ? "{" : "if (" + outer + ") {");
  if (slow_ && !by_lane && by_part && !tests.empty() && try_part(node, lanes, first, last)) return close();
  if (!by_lane) {
    open(tests.empty() ? "{" : "if (" + join(tests, " && ") + ") {");
    set_lanes(lanes);
    write(node);
    set_lanes(1);
    close();
    if (!tests.empty()) line("else if (" + join(some, " && ") + ")");  // else no lane has it
  }
  if (by_lane || (!tests.empty() && !by_part))
    lane_by_lane(node, loop, base, lanes);
  else if (!tests.empty())
    some_lanes(node, loop, base, lanes, first, last);
  close();
}

// The stores as one vector, of which memory sees the lanes from the greatest of `first` to the least of `last` alone: so a buffer
// in registers may keep the other lanes, too. False, and nothing written: an element is reached otherwise than as one of a run.
bool Printer::try_part(const Node& node, int lanes, const std::vector<std::string>& first, const std::vector<std::string>& last) {
  const std::string before = out_;
  open("{");
  const std::string begin = keep("i64", nested("nw_maximum", first)), end = keep("i64", nested("nw_minimum", last));
  open("if (" + begin + " < " + end + ") {");
  part_ = Part{begin, end, false};
  set_lanes(lanes);
  write(node);
  set_lanes(1);
  const bool good = !part_->failed;
  part_.reset();
  close();
  close();
  if (!good) out_ = before;
  return good;
}

// Adds what a condition says of the first lane that it holds for, or of the one after the last. False: it says something else.
bool Printer::bound_lanes(const ir::ExprPtr& condition, std::vector<std::string>* first, std::vector<std::string>* last) {
  const Linear sum = *as_inequality(condition, extents_), rest = sum.without(kLane);
  const int64_t factor = sum.factor_of(kLane);
  if (factor != 1 && factor != -1) return false;
  if (factor == 1)
    first->push_back(sum_text(rest * -1));
  else
    last->push_back(sum_text(rest) + " + 1");
  return true;
}

// The lanes from the greatest of `first` to the least of `last`: by vectors of half the size, of a quarter and so on.
void Printer::some_lanes(const Node& node, const Node& loop, const ir::ExprPtr& base, int lanes,
                         const std::vector<std::string>& first, const std::vector<std::string>& last) {
  open("{");
  const std::string at = fresh("q"), end = keep("i64", nested("nw_minimum", last));
  line("i64 " + at + " = " + nested("nw_maximum", first) + ";");
  c_names_["#" + at] = at;
  const auto emit = [&](int count) {
    const std::string step = std::to_string(count);
    open("for (; " + at + " + " + step + " <= " + end + "; " + at + " += " + step + ") {");
    const ir::ExprPtr here = base + ir::make_name("#" + at);
    replaced_[loop.name] = count > 1 ? here + ir::make_name(kLane) : here;
    set_lanes(count);
    write(node);
    set_lanes(1);
    close();
  };
  for (int count = lanes / 2; count >= 1; count /= 2) emit(count);
  close();
}

void Printer::lane_by_lane(const Node& node, const Node& loop, const ir::ExprPtr& base, int lanes) {
  const std::string lane = fresh("q");
  open("for (i64 " + lane + " = 0; " + lane + " < " + std::to_string(lanes) + "; ++" + lane + ") {");
  c_names_["#" + lane] = lane;
  replaced_[loop.name] = base + ir::make_name("#" + lane);
  set_lanes(1);
  open("if (" + condition_text(open_conditions(node)) + ") {");
  write(node);
  close();
  close();
}

// Whether a condition holds for all lanes if it does for the first and the last: no %, min or max of the lane, which turn back.
bool Printer::ends_decide(const ir::ExprPtr& condition) const {
  const std::optional<Linear> sum = as_inequality(condition, extents_);
  return sum.has_value() && !mentions(expression(sum->without(kLane)), kLane);
}

std::string Printer::at_lane(const ir::ExprPtr& condition, int64_t lane) {
  const ir::ExprPtr one = ir::substitute(condition, {{kLane, ir::make_integer(lane)}});
  if (one->kind == Kind::boolean) return one->integer != 0 ? "1" : "0";  // the other terms are numbers, too
  const std::optional<Linear> sum = as_inequality(one, extents_);
  return "(" + sum_text(*sum) + ") >= 0";
}

// ---- strips: functions that are called for many elements at once ----

namespace {
bool has_load(const ir::ExprPtr& expr) {
  bool found = false;
  for_each_load(expr, [&](const ir::Expr&) { found = true; });
  return found;
}
ir::ExprPtr both(const ir::ExprPtr& a, const ir::ExprPtr& b) { return a == nullptr ? b : ir::make_call("logical_and", {a, b}); }
ir::ExprPtr zero_of(DType dtype) {
  return dtype == DType::boolean ? ir::make_boolean(false) : ir::make_cast(dtype, ir::make_integer(0));
}
}  // namespace

// `expr` with the results of costly functions in its place: each of them is computed for the whole strip first. Loads under `guard`
// are made where it holds.
ir::ExprPtr Printer::without_calls(const ir::ExprPtr& expr, const ir::ExprPtr& guard, const Strip& strip) {
  if (!calls_functions(expr)) return expr;
  ir::Expr out = *expr;
  const bool chooses = expr->kind == Kind::call && expr->name == "where" && expr->operands[0]->kind != Kind::present;
  for (size_t i = 0; i < out.operands.size(); ++i) {
    ir::ExprPtr inner = guard;
    if (chooses && i == 1) inner = both(guard, expr->operands[0]);
    if (chooses && i == 2) inner = both(guard, ir::make_call("logical_not", {expr->operands[0]}));
    out.operands[i] = without_calls(expr->operands[i], inner, strip);
  }
  if (!needs_kernel(*expr)) return std::make_shared<const ir::Expr>(std::move(out));
  if (expr->name == "elu" && (mentions(out.operands[1], strip.loop->name) || (guard != nullptr && has_load(out.operands[1]))))
    return elu_by_expm1(out, [&](const ir::ExprPtr& expm1) { return call_for_strip(*expm1, guard, strip); });
  return call_for_strip(out, guard, strip);
}

// The elements of a load, where they lie one after the other as a kernel takes them, but for their alignment.
std::optional<std::string> Printer::elements_in_memory(const ir::ExprPtr& operand, const Strip& strip) {
  if (operand->kind != Kind::load || operand->dtype == DType::boolean) return std::nullopt;
  const std::string& buffer = operand->name;
  const bool is_elsewhere = registers_.count(buffer) + arrays_.count(buffer) + accumulators_.count(buffer) != 0;
  if (buffer[0] != '#' && (is_elsewhere || !bound_.buffers.at(buffer).present)) return std::nullopt;
  replaced_[strip.loop->name] = strip.base + ir::make_name(kLane);
  set_lanes(2);
  const Access place = access(buffer, resolved(operand->operands));
  set_lanes(1);
  if (place.lanes != Access::Lanes::next) return std::nullopt;
  return "&" + element(buffer, place.offset, 1);
}

// A pointer to an operand's elements.
std::string Printer::operand_for_strip(const ir::ExprPtr& operand, const ir::ExprPtr& guard, const Strip& strip, bool once) {
  const bool guards = guard != nullptr && has_load(operand);
  const std::optional<std::string> elements = guards || once ? std::nullopt : elements_in_memory(operand, strip);
  const ir::ExprPtr value_expr = guards ? ir::make_call("where", {guard, operand, zero_of(operand->dtype)}) : operand;
  if (elements.has_value() && operand->name[0] == '#') return *elements;
  const std::string array = strip_array(operand->dtype);
  std::string out = array;
  if (elements.has_value()) {
    out = fresh("m");
    line("const void* " + out + " = " + *elements + ";");
    open("if ((u64)" + out + " % " + std::to_string(bytes_of(operand->dtype)) + " != 0) {");
    line(out + " = " + array + ";");
  }
  over(once ? "1" : strip.length, once ? 1 : strip.lanes, [&](const ir::ExprPtr& at, int lanes) {
    replaced_[strip.loop->name] = lanes > 1 ? strip.base + at + ir::make_name(kLane) : strip.base + at;
    set_lanes(lanes);
    contract_ = strip.contract;
    Value one = value(resolved(value_expr));
    contract_ = false;
    if (lanes > 1) one = widen(one, lanes);
    set_lanes(lanes);
    const std::string place = element("#" + array, index_text(at), lanes);
    line(place + " = " + to_storage(one) + ";");
    set_lanes(1);
  });
  if (elements.has_value()) close();
  return out;
}

// A call whose operands are the same all along is made for one element.
ir::ExprPtr Printer::call_for_strip(const ir::Expr& call, const ir::ExprPtr& guard, const Strip& strip) {
  std::vector<std::string> pointers;
  const bool once = std::none_of(call.operands.begin(), call.operands.end(), [&](const ir::ExprPtr& operand) {
    return mentions(operand, strip.loop->name) || (guard != nullptr && has_load(operand));
  });
  const size_t alphas = call.name == "elu" ? 1 : 0;
  for (size_t i = 0; i + alphas < call.operands.size(); ++i)
    pointers.push_back(operand_for_strip(call.operands[i], guard, strip, once));
  pointers.resize(3, "0");
  const std::string alpha = alphas == 0 ? "0" : value(resolved(call.operands[1])).text;
  const DType from = call.operands[0]->dtype;
  const CFunction function = call.kind == Kind::cast ? CFunction{"", from, call.dtype} : CFunction{call.name, from, from};
  const std::string out = strip_array(call.dtype);
  line("H->call(H->functions[" + std::to_string(function_number(function)) + "], " + join(pointers, ", ") + ", " + out + ", " +
       (once ? "1" : strip.length) + ", " + alpha + ");");
  return ir::make_load("#" + out, call.dtype, {once ? ir::make_integer(0) : ir::make_name(strip.loop->name) - strip.base});
}

std::string Printer::strip_array(DType dtype) {
  const std::string array = fresh("m");
  line("NW_ALIGNED " + c_storage(dtype) + " " + array + "[" + std::to_string(kStrip) + "];");
  arrays_["#" + array] = array;
  strips_["#" + array] = dtype;
  return array;
}

void Printer::strip(const Node& node, const ir::ExprPtr& base, const std::string& length, int lanes) {
  Strip strip{&node, base, length, lanes, false};
  for (const Node& child : node.body) {
    strip.contract = child.contract;
    ir::ExprPtr guard;
    for (const ir::ExprPtr& condition : open_conditions(child)) guard = both(guard, condition);
    for (const ir::Store& one : child.stores) {
      open("{");
      Node single = child;
      single.stores = {one};
      single.stores[0].value = without_calls(one.value, guard, strip);
      over(length, lanes, [&](const ir::ExprPtr& at, int count) {
        in_a_run_ = true;
        vector_stores(single, node, base + at, count);
        in_a_run_ = false;
      });
      close();
    }
  }
}

}  // namespace narrows::cpu
