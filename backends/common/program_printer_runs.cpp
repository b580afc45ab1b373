// SPDX-License-Identifier: Apache-2.0
// program_printer_runs.cpp -- `vectorize` loops: what their iterations read and write side by side is one access of 4 to 16 bytes,
// where its address is known to be a multiple of that. Of `unroll` loops it is what they read. See program_printer.h.
#include <algorithm>

#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "program_printer.h"

namespace narrows::common {
namespace {

bool is_multiple(const Linear& sum, int64_t step, int64_t of) {
  return sum.constant * step % of == 0 &&
         std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Term& term) { return term.factor * step % of == 0; });
}

// Loads that are made whatever the values are: not those that a `where` chooses.
template <class Visit>
void for_each_certain_load(const ir::ExprPtr& expr, const Visit& visit) {
  if (expr->kind == ir::Expr::Kind::load) visit(*expr);
  const bool chooses = expr->kind == ir::Expr::Kind::call && expr->name == "where";
  for (size_t i = 0; i < (chooses ? 1 : expr->operands.size()); ++i) for_each_certain_load(expr->operands[i], visit);
}

}  // namespace

int64_t KernelPrinter::alignment_of(const std::string& buffer) const {
  const int64_t most = 16 / bytes_of(bound_.buffers.at(buffer).buffer->dtype);
  if (arrays_.count(buffer) != 0) return most;
  const auto found = layout_.alignment.find(buffer);
  return found == layout_.alignment.end() ? 1 : std::min<int64_t>(most, found->second);
}

// The loop's iterations use elements side by side, of which the first lies at a multiple of all of their bytes, or of 16.
bool KernelPrinter::is_run(const std::string& buffer, const std::vector<ir::ExprPtr>& indices, const std::string& loop,
                           int64_t length) {
  const auto place = program_.places.find(buffer);
  if (!bound_.buffers.at(buffer).present || (place != program_.places.end() && place->second == Place::local)) return false;
  const int64_t run = std::min(length, 16 / bytes_of(bound_.buffers.at(buffer).buffer->dtype));
  if (panels_.count(buffer) != 0 && length > run) return false;  // runs of 16 bytes do not lie beside each other
  if (run < 2 || length % run != 0 || alignment_of(buffer) < run) return false;
  int64_t factor = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    const Linear sum = linear(indices[d], extents_), rest = sum.without(loop);
    if (mentions(expression(rest), loop)) return false;
    std::optional<int64_t> number;
    const KernelSource before = *kernel_;
    (void)stride(buffer, d, &number);
    *kernel_ = before;  // it was only asked for
    const int64_t here = sum.factor_of(loop);
    if (here != 0 && !number.has_value()) return false;
    if (here != 0) factor += here * *number;
    if (number.has_value() && !is_multiple(rest, *number, run)) return false;
  }
  return factor == 1;
}

// A buffer that the loop writes, too, is read before all of it is written.
bool KernelPrinter::may_read_runs(const Node& node, const std::string& buffer) const {
  bool is_written = false;
  for (const Node& child : node.body)
    for (const ir::Store& store : child.stores) is_written = is_written || store.buffer == buffer;
  return !is_written;
}

void KernelPrinter::collect_runs(const Node& node, int64_t length, Runs* reads, Runs* writes) {
  for (const Node& child : node.body) {
    const auto load = [&](const ir::Expr& expr) {
      const std::string key = key_of(expr.name, expr.operands);
      if (reads->count(key) == 0 && may_read_runs(node, expr.name) && is_run(expr.name, expr.operands, node.name, length))
        (*reads)[key] = {expr.name, fresh("r"), expr.operands};
    };
    for (const ir::Store& store : child.stores) {
      for_each_certain_load(store.value, load);
      bool is_read = false;  // by another block of the loop, or elsewhere
      for (const Node& other : node.body)
        for (const ir::Store& reader : other.stores)
          for_each_load(reader.value, [&](const ir::Expr& expr) { is_read = is_read || expr.name == store.buffer; });
      const std::string key = key_of(store.buffer, store.indices);
      if (!is_read && writes->count(key) == 0 && is_run(store.buffer, store.indices, node.name, length))
        (*writes)[key] = {store.buffer, fresh("w"), store.indices};
    }
  }
}

// What says that all iterations run; nothing: it cannot be said by the first and the last one.
std::optional<std::string> KernelPrinter::whole_test(const Node& node, int64_t length) {
  std::vector<ir::ExprPtr> tests;
  for (const Node& child : node.body) {
    for (const ir::ExprPtr& condition : open_conditions(child)) {
      if (!mentions(condition, node.name)) {
        tests.push_back(condition);
        continue;
      }
      const auto sum = as_inequality(condition, extents_);
      if (!sum.has_value() || mentions(expression(sum->without(node.name)), node.name)) return std::nullopt;
      for (const int64_t lane : {int64_t{0}, length - 1})
        tests.push_back(ir::substitute(condition, {{node.name, ir::make_integer(lane)}}));
    }
  }
  std::vector<ir::ExprPtr> left;
  for (const ir::ExprPtr& test : tests) {
    if (test->kind == ir::Expr::Kind::boolean && test->integer != 0) continue;
    if (std::none_of(left.begin(), left.end(), [&](const auto& other) { return ir::same(other, test); })) left.push_back(test);
  }
  return condition_text(left);
}

std::vector<ir::ExprPtr> KernelPrinter::first_of(const Run& run, const std::string& loop) {
  std::vector<ir::ExprPtr> out;
  out.reserve(run.indices.size());
  for (const ir::ExprPtr& index : run.indices) out.push_back(ir::substitute(index, {{loop, ir::make_integer(0)}}));
  return out;
}

void KernelPrinter::runs(const Node& node, int64_t length, const Runs& reads, const Runs& writes) {
  const std::string variable = fresh("l"), count = std::to_string(length);
  const auto first = [&](const Run& run) { return first_of(run, node.name); };
  const auto declare = [&](const Run& run) {
    line("NW_ALIGNED " + storage_of(buffer_of(run.buffer).dtype) + " " + run.array + "[" + count + "];");
  };
  for (const auto& [key, run] : reads) {
    declare(run);
    read_run(run, first(run), length);
    read_runs_[key] = run.array + "[" + subscript(variable) + "]";
  }
  for (const auto& [key, run] : writes) {
    declare(run);
    written_runs_[key] = run.array + "[" + subscript(variable) + "]";
  }
  open("NW_UNROLL for (ix " + variable + " = 0; " + variable + " < " + count + "; ++" + variable + ") {");
  loops_[node.name] = variable;
  for (const Node& child : node.body) {
    contract_ = child.contract;
    for (const ir::Store& one : child.stores) store(one);
    contract_ = false;
  }
  loops_.erase(node.name);
  close();
  for (const auto& [key, run] : writes) write_run(run, first(run), length);
  read_runs_.clear();
  written_runs_.clear();
}

bool KernelPrinter::vector_loop(const Node& node) {
  const auto length = ir::constant(node.extent);
  const bool is_vector = node.loop_kind == ir::For::Kind::vectorize;
  if ((!is_vector && node.loop_kind != ir::For::Kind::unroll) || !length.has_value() || *length < 2 || *length > 64 ||
      node.body.empty())
    return false;
  for (const Node& child : node.body)
    if (child.kind != Node::Kind::stores || child.has_barrier || !child.first_only.empty()) return false;
  Runs reads, writes;
  collect_runs(node, *length, &reads, &writes);
  if (!is_vector) writes.clear();  // its iterations run in order
  if (reads.empty() && writes.empty()) return false;
  const std::optional<std::string> whole = whole_test(node, *length);
  if (!whole.has_value()) return false;
  open(whole->empty() ? "{" : "if (" + *whole + ") {");
  if (!copies_ahead_ || !copy_runs(node, *length, reads, writes)) runs(node, *length, reads, writes);
  if (whole->empty()) {
    close();
    return true;
  }
  close("} else {");
  ++indent_;
  plain_loop(node);
  close();
  return true;
}

}  // namespace narrows::common
