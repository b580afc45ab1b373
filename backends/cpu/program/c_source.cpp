// SPDX-License-Identifier: Apache-2.0
// c_source.cpp -- functions, loops, tiles and where allocations live, in C: see c_source.h and c_printer.h.
#include "program/c_source.h"

#include <algorithm>

#include "core/program/dtype.h"
#include "core/program/text.h"
#include "core/program/walk.h"
#include "program/c_prelude.h"
#include "program/c_printer.h"

namespace narrows::cpu {
namespace {

constexpr int64_t kMostLocalBytes = 32 << 10, kMostRegisterBytes = 4096;
constexpr int64_t kMostLoopBytes = 1024;                             // of an array that is in registers for a loop
constexpr int64_t kMostUnrolled = 16384, kMostInPartialTile = 1024;  // parts of expressions
constexpr size_t kMostLoopsAround = 32;                              // of a parallel loop: struct frame

bool has_parallel(const std::vector<Node>& body) {
  return std::any_of(body.begin(), body.end(), [](const Node& node) {
    return node.kind == Node::Kind::loop && (node.loop_kind == ir::For::Kind::parallel || has_parallel(node.body));
  });
}

bool contracts(const std::vector<Node>& body) {
  return std::any_of(body.begin(), body.end(), [](const Node& node) { return node.contract || contracts(node.body); });
}

int64_t local_elements(const ir::Buffer& buffer) {  // -1: not a number
  int64_t out = 1;
  for (const ir::ExprPtr& dim : buffer.shape) {
    const auto extent = ir::constant(dim);
    if (!extent.has_value() || __builtin_mul_overflow(out, *extent, &out)) return -1;
  }
  return out;
}

std::string replace_all(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

}  // namespace

Printer::Printer(const Bound& bound, const CTarget& target) : bound_(bound), target_(target) {
  collect_extents(bound.lowered->body, &extents_);
  source_.contracts = target.fuses && (target.contracts || contracts(bound.lowered->body));
}

// ---- loops ----

void Printer::nodes(const std::vector<Node>& body) {
  for (const Node& node : body) {
    if (node.kind == Node::Kind::stores)
      stores(node);
    else
      loop(node);
  }
}

void Printer::loop(const Node& node) {
  if (shared_.count(&node) != 0) {
    path_.push_back(node.name);
    versions(node);
    path_.pop_back();
    return;
  }
  if (vector_loop(node)) return;
  const int64_t most = slow_ ? registers_.empty() || is_rare_ ? 0 : kMostInPartialTile : kMostUnrolled;
  if (node.loop_kind == ir::For::Kind::unroll && ir::constant(node.extent).has_value() && unrolled_parts(node) <= most)
    return unrolled_loop(node);
  if (node.loop_kind == ir::For::Kind::parallel && !in_parallel_ && path_.size() < kMostLoopsAround) return parallel_loop(node);
  if (!accumulate(node)) serial_loop(node);
}

// What a nest is once the loops in it are unrolled; no more than one above the most, so that no product overflows.
int64_t Printer::unrolled_parts(const Node& node) const {
  int64_t out = 0;
  for (const ir::Store& store : node.stores) {
    const auto count = [&](const ir::Expr&) { ++out; };
    ir::for_each_part(store.value, count);
    for (const ir::ExprPtr& index : store.indices) ir::for_each_part(index, count);
  }
  for (const Node& child : node.body) out = std::min(out + unrolled_parts(child), kMostUnrolled + 1);
  if (node.kind == Node::Kind::stores) return std::min(out, kMostUnrolled + 1);
  const int64_t extent = std::clamp<int64_t>(ir::constant(node.extent).value_or(1), 1, kMostUnrolled + 1);
  if (node.loop_kind == ir::For::Kind::unroll) out *= extent;
  if (node.loop_kind == ir::For::Kind::vectorize) out *= std::max<int64_t>(extent / 8, 1);
  return std::min(out, kMostUnrolled + 1);
}

void Printer::serial_loop(const Node& node) {
  if (!loop_in_registers(node)) plain_loop(node);
}

namespace {
// Buffers that a loop stores into, if all within it is written out: unrolled or as vectors.
bool collect_stored(const std::vector<Node>& body, Names* stored) {
  return std::all_of(body.begin(), body.end(), [&](const Node& node) {
    for (const ir::Store& store : node.stores) stored->insert(store.buffer);
    const bool is_short =
        node.kind == Node::Kind::stores || node.loop_kind == ir::For::Kind::unroll || node.loop_kind == ir::For::Kind::vectorize;
    return is_short && node.allocations.empty() && collect_stored(node.body, stored);
  });
}
}  // namespace

// Small arrays that a loop stores into.
Names Printer::arrays_of_loop(const Node& node) const {
  Names stored, out;
  if (!node.allocations.empty() || !collect_stored(node.body, &stored)) return out;
  for (const std::string& name : stored) {
    if (arrays_.count(name) == 0 || registers_.count(name) != 0 || accumulators_.count(name) != 0) continue;
    const ir::Buffer& buffer = *bound_.buffers.at(name).buffer;
    if (buffer.dtype == ir::DType::boolean || is_half(buffer.dtype)) continue;
    if (local_elements(buffer) * bytes_of(buffer.dtype) <= kMostLoopBytes) out.insert(name);
  }
  return out;
}

// A loop that stores into small arrays at constant places keeps their elements in variables meanwhile. False, and nothing written:
// there is no such array.
bool Printer::loop_in_registers(const Node& node) {
  const Names mine = arrays_of_loop(node);
  if (mine.empty()) return false;
  const std::string out_before = out_, functions_before = functions_;
  const auto registers_before = registers_;
  for (const std::string& name : mine) registers_[name] = {{}, fresh("r"), false};
  plain_loop(node);
  const std::string body = out_.substr(out_before.size());
  const auto in_loop = registers_;
  // An array's elements are loaded ahead of the loop and stored behind it: none may lie outside, also where no iteration uses it.
  const bool good = std::all_of(mine.begin(), mine.end(), [&](const auto& name) {
    const int64_t elements = local_elements(*bound_.buffers.at(name).buffer);
    const auto& used = in_loop.at(name).used;
    return fits_registers(in_loop.at(name)) &&
           std::all_of(used.begin(), used.end(), [&](const auto& part) { return part.first + part.second <= elements; });
  });
  out_ = out_before;
  if (!good) {
    functions_ = functions_before;
    registers_ = registers_before;
    return false;
  }
  for (const std::string& name : mine) registers_.erase(name);
  std::string after;
  for (const std::string& name : mine) {
    const Registers& registers = in_loop.at(name);
    for (const auto& [offset, lanes] : registers.used) {
      const std::string variable = registers.name + "_" + std::to_string(offset);
      const std::string place = element(name, std::to_string(offset), lanes);
      const std::string type = c_type(bound_.buffers.at(name).buffer->dtype, lanes);
      line(std::string(type).append(" ").append(variable).append(" = ").append(place).append(";"));
      after.append(static_cast<size_t>(2 * indent_), ' ').append(place).append(" = ").append(variable).append(";\n");
    }
  }
  out_ += body + after;
  return true;
}

void Printer::plain_loop(const Node& node) {
  const std::string extent = keep("i64", index_text(resolved(node.extent))), variable = fresh("l");
  if (node.loop_kind == ir::For::Kind::vectorize) line("// no vectors: the loop is not the innermost, or stores at one place");
  open("for (i64 " + variable + " = 0; " + variable + " < " + extent + "; ++" + variable + ") {");
  c_names_[node.name] = variable;
  path_.push_back(node.name);
  versions(node);
  path_.pop_back();
  c_names_.erase(node.name);
  close();
}

void Printer::unrolled_loop(const Node& node) {
  path_.push_back(node.name);
  for (int64_t i = 0; i < *ir::constant(node.extent); ++i) {
    replaced_[node.name] = ir::make_integer(i);
    open("{");
    scope(node.allocations, node.body);
    close();
  }
  replaced_.erase(node.name);
  path_.pop_back();
}

// A parallel loop, and those right within it that are parallel, too.
std::vector<const Node*> Printer::parallel_nest(const Node& node) const {
  std::vector<const Node*> out{&node};
  Names outer{node.name};
  while (out.back()->allocations.empty() && out.back()->body.size() == 1 && path_.size() + out.size() < kMostLoopsAround) {
    const Node& next = out.back()->body[0];
    if (next.kind != Node::Kind::loop || next.loop_kind != ir::For::Kind::parallel || mentions(next.extent, outer)) break;
    out.push_back(&next);
    outer.insert(next.name);
  }
  return out;
}

// Writes the call of the function that has a nest's iterations. Gives the lines by which it receives the loops around.
std::string Printer::call_in_parallel(const std::string& function, const std::string& iterations, const Node& innermost) {
  const std::string extent = keep("i64", iterations), cost = number(CNumber::Kind::cost, "", 0, &innermost);
  std::vector<std::string> around;
  std::string received;
  for (const std::string& name : path_) {
    const auto outer = c_names_.find(name);
    if (outer == c_names_.end()) continue;
    received += "  const i64 " + outer->second + " = F->loops[" + std::to_string(around.size()) + "];\n";
    around.push_back(outer->second);
  }
  open("{");
  line("const struct frame f = {B, S, H, {" + (around.empty() ? "0" : join(around, ", ")) + "}};");
  line("H->parallel(H->context, " + extent + ", *(const f64u*)(S + " + cost.substr(1) + "), " + function + ", (void*)&f);");
  close();
  return received;
}

// The iterations from `begin` to `end` of a nest, whose loops have these extents.
void Printer::iterations(const std::vector<const Node*>& nest, const std::vector<std::string>& extents) {
  std::string rest = fresh("l");
  open("for (i64 " + rest + " = begin; " + rest + " < end; ++" + rest + ") {");
  for (size_t i = nest.size(); i-- > 1;) {
    c_names_[nest[i]->name] = keep("i64", std::string(rest).append(" % ").append(extents[i]));
    rest = keep("i64", std::string(rest).append(" / ").append(extents[i]));
    shared_.insert(nest[i]);
  }
  c_names_[nest[0]->name] = rest;
  path_.push_back(nest[0]->name);
  versions(*nest[0]);
  path_.pop_back();
  for (const Node* loop : nest) {
    c_names_.erase(loop->name);
    shared_.erase(loop);
  }
  close();
}

// The body becomes a function of its own, which is handed iterations of the whole nest.
void Printer::parallel_loop(const Node& node) {
  const std::vector<const Node*> nest = parallel_nest(node);
  std::vector<std::string> extents;
  // A negative one is none: the product of two of them would be a count.
  for (const Node* loop : nest) {
    const std::string extent = index_text(resolved(loop->extent));
    extents.push_back(nest.size() == 1 || ir::constant(loop->extent).has_value() ? extent : "nw_maximum(" + extent + ", 0)");
  }
  const std::string function = fresh("p"), received = call_in_parallel(function, join(extents, " * "), *nest.back());
  std::string outside;
  outside.swap(out_);
  const int indent = std::exchange(indent_, 1);
  in_parallel_ = true;
  iterations(nest, extents);
  fence();
  in_parallel_ = false;
  functions_ +=
      "static void " + function + "(void* arg, i64 slot, i64 begin, i64 end) {\n" +
      "  const struct frame* F = arg;\n  const i64* S = F->numbers;\n  const struct services* H = F->services;\n" +
      "  char* B[@BUFFERS@];\n  for (i64 i = 0; i < @BUFFERS@; ++i) B[i] = F->base[i];\n  H->enter(H->context, slot, B);\n" +
      "@LOCALS@" + received + out_ + "}\n";
  out_.swap(outside);
  indent_ = indent;
}

// ---- full tiles ----

// What decides a condition for all iterations of the loops inside one loop: that it holds where it holds least.
std::optional<Printer::Full> Printer::full_test(const ir::ExprPtr& condition, const std::vector<std::string>& path) const {
  const std::optional<Linear> sum = as_inequality(condition, extents_);
  if (!sum.has_value()) return std::nullopt;
  size_t major = path.size();
  int64_t largest = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    const int64_t factor = std::abs(sum->factor_of(path[i]));
    if (factor > largest) {
      largest = factor;
      major = i;
    }
  }
  if (major == path.size()) return std::nullopt;
  Linear least = *sum;
  bool decides = false;
  for (size_t i = major + 1; i < path.size(); ++i) {
    const int64_t factor = least.factor_of(path[i]);
    least = least.without(path[i]);
    if (mentions(expression(least), path[i])) return std::nullopt;
    if (factor == 0) continue;
    const auto extent = extents_.find(path[i]);
    if (extent == extents_.end()) return std::nullopt;
    if (factor < 0) least.constant += factor * (extent->second - 1);
    decides = true;
  }
  if (!decides || kinds_.at(path[major]) == ir::For::Kind::unroll || kinds_.at(path[major]) == ir::For::Kind::vectorize)
    return std::nullopt;
  const ir::ExprPtr test = ir::make_call("ge", {expression(least), ir::make_integer(0)});
  return Full{major, ir::print(test), test};
}

std::vector<ir::ExprPtr> Printer::open_conditions(const Node& node) const {
  std::vector<ir::ExprPtr> out;
  for (const ir::ExprPtr& condition : node.conditions) {
    if (const auto sum = as_inequality(condition, extents_); sum.has_value() && always_holds(*sum)) continue;
    if (const auto full = full_test(condition, path_); full.has_value() && known_.count(full->key) != 0) continue;
    out.push_back(condition);
  }
  return out;
}

// The tests that the loop at `depth` decides best: no loop inside it decides any of the same stores' conditions.
void Printer::collect_full(const std::vector<Node>& body, std::vector<std::string>* path, size_t depth,
                           std::map<std::string, ir::ExprPtr>* tests, std::map<std::string, ir::ExprPtr>* firsts) const {
  for (const Node& node : body) {
    if (node.kind == Node::Kind::loop) {
      path->push_back(node.name);
      collect_full(node.body, path, depth, tests, firsts);
      path->pop_back();
      continue;
    }
    std::vector<Full> all;
    size_t deepest = 0;
    for (const ir::ExprPtr& condition : node.conditions) {
      const auto full = full_test(condition, *path);
      if (!full.has_value() || known_.count(full->key) != 0 || always_holds(*as_inequality(condition, extents_))) continue;
      all.push_back(*full);
      deepest = std::max(deepest, full->depth);
    }
    if (all.empty() || deepest != depth) continue;
    for (const Full& full : all) (*tests)[full.key] = full.test;
    for (const ir::ExprPtr& condition : node.conditions)
      if (const ir::ExprPtr first = test_of_first(condition, *path, depth); first != nullptr) (*firsts)[ir::print(first)] = first;
  }
}

// One iteration of a loop: twice, if conditions hold for whole tiles inside it or do not.
void Printer::versions(const Node& node) {
  std::map<std::string, ir::ExprPtr> tests, firsts;
  std::vector<std::string> path = path_;
  if (!slow_) collect_full(node.body, &path, path_.size() - 1, &tests, &firsts);
  if (tests.empty()) return scope(node.allocations, node.body);
  std::vector<ir::ExprPtr> conditions;
  const std::set<std::string> before = known_;
  for (const auto& [key, test] : tests) {
    conditions.push_back(test);
    known_.insert(key);
  }
  open("if (" + condition_text(conditions) + ") {");
  scope(node.allocations, node.body);
  close("} else {");
  ++indent_;
  known_ = before;
  slow_ = true;
  const bool has_tile = partial_tile(node, firsts);
  is_rare_ = has_tile && registers_.empty();
  scope(node.allocations, node.body);
  is_rare_ = slow_ = false;
  if (has_tile) close();
  close();
}

// ---- allocations ----

bool Printer::may_be_local(size_t allocation, const std::vector<Node>& body) const {
  const ir::Buffer& buffer = bound_.lowered->allocations[allocation];
  const int64_t elements = local_elements(buffer);
  return elements > 0 && elements <= kMostLocalBytes / bytes_of(buffer.dtype) && bound_.lowered->fresh.count(buffer.name) != 0 &&
         (in_parallel_ || !has_parallel(body)) && stack_bytes_ + elements * bytes_of(buffer.dtype) <= kMostStackBytes;
}

void Printer::scope(const std::vector<size_t>& allocations, const std::vector<Node>& body) {
  Names not_in_registers;
  while (!try_scope(allocations, body, &not_in_registers)) {
  }
}

// The body with its small allocations in registers, but for those that are named. False: one more has to be named.
bool Printer::try_scope(const std::vector<size_t>& allocations, const std::vector<Node>& body, Names* not_in_registers) {
  const std::string out_before = out_, functions_before = functions_;
  const auto registers_before = registers_;
  const int64_t stack_before = stack_bytes_;
  const size_t at = out_.size();
  const bool was_used = tile_.has_value() && tile_->used;
  Names mine;
  for (const size_t number : allocations) {
    if (!may_be_local(number, body)) continue;
    const ir::Buffer& buffer = bound_.lowered->allocations[number];
    const int64_t bytes = local_elements(buffer) * bytes_of(buffer.dtype);
    mine.insert(buffer.name);
    const bool small = bytes <= kMostRegisterBytes && buffer.dtype != ir::DType::boolean && !is_half(buffer.dtype) && !is_rare_;
    if (small && not_in_registers->count(buffer.name) == 0) {
      registers_[buffer.name] = {{}, fresh("r"), false, tile_.has_value() && bound_to_conditions_.count(buffer.name) == 0};
    } else {
      arrays_[buffer.name] = fresh("a");
      stack_bytes_ += bytes;
      line("NW_ALIGNED " + c_storage(buffer.dtype) + " " + arrays_[buffer.name] + "[" + std::to_string(local_elements(buffer)) +
           "];");
    }
  }
  nodes(body);
  bool good = true;
  for (const std::string& name : mine) {
    arrays_.erase(name);
    const auto entry = registers_.find(name);
    if (entry == registers_.end()) continue;
    if (fits_registers(entry->second) && !entry->second.is_mixed) {
      declare_registers(at, name);
      continue;
    }
    (entry->second.is_mixed ? bound_to_conditions_ : *not_in_registers).insert(name);
    good = false;
  }
  stack_bytes_ = stack_before;
  if (!good) {
    out_ = out_before;
    functions_ = functions_before;
    registers_ = registers_before;
    if (tile_.has_value()) tile_->used = was_used;
  }
  for (const std::string& name : mine) registers_.erase(name);
  return good;
}

// Each element belongs to one variable.
bool Printer::fits_registers(const Registers& registers) {
  int64_t end = 0;  // a place ahead of the buffer has no name; it stands where a condition never holds
  for (const auto& [offset, lanes] : registers.used) {
    if (offset < end) return false;
    end = offset + lanes;
  }
  return !registers.failed;
}

void Printer::declare_registers(size_t at, const std::string& buffer) {
  const Registers& registers = registers_.at(buffer);
  std::string text;
  for (const auto& [offset, lanes] : registers.used)
    text += std::string(static_cast<size_t>(2 * indent_), ' ') + c_type(bound_.buffers.at(buffer).buffer->dtype, lanes) + " " +
            registers.name + "_" + std::to_string(offset) + ";\n";
  out_.insert(at, text);
}

// ---- stores ----

void Printer::stores(const Node& node) {
  if (tile_.has_value()) here_ = conditions_key(node);
  if (free_stores(node, Node(), nullptr, 1)) return;
  const std::string test = condition_text(open_conditions(node));
  open(test.empty() ? "{" : "if (" + test + ") {");
  write(node);
  close();
}

void Printer::write(const Node& node) {
  contract_ = node.contract;
  for (const ir::Store& one : node.stores) store(one);
  contract_ = false;
}

// A loop that adds up one element keeps it in a variable. False: it is no such loop.
bool Printer::accumulate(const Node& node) {
  if (node.body.size() != 1 || node.body[0].kind != Node::Kind::stores || node.body[0].stores.size() != 1) return false;
  const Node& child = node.body[0];
  const ir::Store& only = child.stores[0];
  if (registers_.count(only.buffer) != 0 || !bound_.buffers.at(only.buffer).present) return false;
  bool fits = true, reads = false;
  const auto check = [&](const ir::Expr& load) {
    if (load.name != only.buffer) return;
    reads = true;
    for (size_t d = 0; d < load.operands.size(); ++d)
      fits = fits && linear(load.operands[d], extents_) == linear(only.indices[d], extents_);
  };
  for_each_load(only.value, check);
  bool in_index = false;
  const auto gathers = [&](const ir::Expr&) { in_index = true; };
  for (const ir::ExprPtr& index : only.indices) {
    for_each_load(index, gathers);
    fits = fits && !mentions(index, node.name);
  }
  for (const ir::ExprPtr& condition : child.conditions) for_each_load(condition, gathers);
  if (!fits || !reads || in_index) return false;
  const Names around(path_.begin(), path_.end());
  path_.push_back(node.name);
  // Else the element may lie behind the buffer's end, or be another thread's.
  const bool always = open_conditions(child).empty() && (is_never_empty(node.extent, extents_) || !mentions(node.extent, around));
  path_.pop_back();
  if (!always) return false;
  const std::vector<ir::ExprPtr> indices = resolved(only.indices);
  const ir::DType dtype = bound_.buffers.at(only.buffer).buffer->dtype;
  const std::string place = element(only.buffer, access(only.buffer, indices).offset, 1), variable = fresh("s");
  line(c_type(dtype) + " " + variable + " = " + from_storage(place, dtype, 1).text + ";");
  accumulators_[only.buffer] = {indices, variable};
  serial_loop(node);
  accumulators_.erase(only.buffer);
  line(place + " = " + to_storage({variable, dtype}) + ";");
  return true;
}

// ---- the whole ----

CSource Printer::print() {
  collect_kinds(bound_.lowered->body);
  scope(bound_.lowered->outermost, bound_.lowered->body);
  fence();
  std::string locals;
  for (size_t i = 0; i < source_.buffers.size(); ++i)
    locals += "  char* const b" + std::to_string(i) + " = B[" + std::to_string(i) + "];\n";
  for (size_t i = 0; i < source_.numbers.size(); ++i)
    locals += "  const i64 n" + std::to_string(i) + " = S[" + std::to_string(i) + "];\n";
  std::string text = functions_ + "__attribute__((visibility(\"default\"))) void " + kCEntry +
                     "(char* const* B, const i64* S, const struct services* H) {\n@LOCALS@" + out_ + "}\n";
  text = replace_all(text, "@LOCALS@", locals);
  text = replace_all(text, "@BUFFERS@", std::to_string(std::max<size_t>(1, source_.buffers.size())));
  source_.text = c_prelude(types_, parts_, helpers_) + text;
  return source_;
}

// What was written past the caches is seen by whoever goes on.
void Printer::fence() {
  if (out_.find("nw_stream_") != std::string::npos) line("NW_FENCE;");
}

void Printer::collect_kinds(const std::vector<Node>& body) {
  const auto read = [&](const ir::Expr& load) { read_.insert(load.name); };
  for (const Node& node : body) {
    for (const ir::ExprPtr& condition : node.conditions) for_each_load(condition, read);
    for (const ir::Store& store : node.stores) {
      for (const ir::ExprPtr& index : store.indices) for_each_load(index, read);
      for_each_load(store.value, read);
    }
    if (node.kind != Node::Kind::loop) continue;
    kinds_[node.name] = node.loop_kind;
    collect_kinds(node.body);
  }
}

CSource print_c(const Bound& bound, const CTarget& target) { return Printer(bound, target).print(); }

}  // namespace narrows::cpu
