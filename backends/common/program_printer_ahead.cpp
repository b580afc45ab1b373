// SPDX-License-Identifier: Apache-2.0
// program_printer_ahead.cpp -- loops whose first nodes copy into shared memory for later iterations: see program_ahead.h. Each
// thread waits for its own copies of an iteration, then for all other threads. That barrier also says that nobody uses the stage of
// the iteration before any more, so that the next copies may write there.
#include "core/program/expr.h"
#include "program_printer.h"

namespace narrows::common {

// What the body says of the loop's buffers is of one stage.
void KernelPrinter::stage(const Node& node, const std::string& stage, const std::function<void()>& body) {
  const std::map<std::string, std::string> before = arrays_;
  for (const std::string& buffer : node.ahead->buffers) {
    const std::string elements = std::to_string(elements_of_stage(buffer_of(buffer)));
    arrays_[buffer] = join({"(", before.at(buffer), " + ", stage, " * ", elements, ")"}, "");
  }
  body();
  arrays_ = before;
}

// Those of one iteration, if there is such a one. Without it there is an empty group of copies, so that their number says which.
void KernelPrinter::copies(const Node& node, const std::string& iteration) {
  const std::string variable = fresh("l");
  line("const ix " + variable + " = " + iteration + ";");
  open("if (" + variable + " < " + index_text(node.extent) + ") {");
  loops_[node.name] = variable;
  copies_ahead_ = true;
  waited_for_ = node.body.data();
  stage(node, variable + " % " + std::to_string(node.ahead->stages), [&] { nodes(node.body, 0, node.ahead->copies); });
  copies_ahead_ = false;
  loops_.erase(node.name);
  close();
  line("nw_copies_commit();");
}

void KernelPrinter::pipelined_loop(const Node& node) {
  bool has_groups = false;
  for (auto& [head, tile] : tiles_) {
    tile.warp = loop_of_groups(tile, node);
    has_groups = has_groups || !tile.warp.empty();
  }
  // Products of four warps may still be under way in the next iteration.
  const int64_t stages = node.ahead->stages, under_way = has_groups && stages > 2 ? 1 : 0, ahead = stages - 1 - under_way;
  line("// pipeline: copies " + std::to_string(ahead) + " iterations ahead, in " + std::to_string(stages) + " stages");
  const std::string first = fresh("l");
  open("for (ix " + first + " = 0; " + first + " < " + std::to_string(ahead) + "; ++" + first + ") {");
  copies(node, first);
  close();
  const std::string variable = fresh("l");
  open("for (ix " + variable + " = 0; " + variable + " < " + index_text(node.extent) + "; ++" + variable + ") {");
  line("nw_copies_wait<" + std::to_string(ahead - 1) + ">();");
  if (has_groups) line("nw_group_fence();");
  line("nw_barrier();");
  const auto next = [&] { copies(node, variable + " + " + std::to_string(ahead)); };
  if (under_way == 0) next();
  if (has_groups) line("nw_group_begin();");
  loops_[node.name] = variable;
  waited_for_ = &node.body[node.ahead->copies];
  stage(node, variable + " % " + std::to_string(stages), [&] { nodes(node.body, node.ahead->copies, node.body.size()); });
  loops_.erase(node.name);
  if (has_groups) line("nw_group_commit();");
  if (under_way != 0) next();
  if (has_groups) line("nw_group_wait<" + std::to_string(under_way) + ">();");
  close();
  if (under_way != 0) line("nw_group_wait<0>();");
}

// A loop that does nothing but copy one run of elements.
bool KernelPrinter::copy_runs(const Node& node, int64_t length, const Runs& reads, const Runs& writes) {
  if (node.body.size() != 1 || reads.size() != 1 || writes.size() != 1) return false;
  const Run &from = reads.begin()->second, &to = writes.begin()->second;
  if (buffer_of(from.buffer).dtype != buffer_of(to.buffer).dtype) return false;
  copy_ahead(to, first_of(to, node.name), from, first_of(from, node.name), length);
  return true;
}

}  // namespace narrows::common
