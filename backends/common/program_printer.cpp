// SPDX-License-Identifier: Apache-2.0
// program_printer.cpp -- kernels, their loops, and where an element lies. See program_printer.h.
#include "program_printer.h"

#include <algorithm>
#include <utility>

#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/text.h"

namespace narrows::common {

using ir::DType;

namespace {

constexpr int64_t kMostUnrolled = 64;  // iterations of a loop that chooses among variables

bool same_indices(const std::vector<ir::ExprPtr>& a, const std::vector<ir::ExprPtr>& b, const Extents& extents) {
  for (size_t d = 0; d < a.size(); ++d)
    if (!(linear(a[d], extents) == linear(b[d], extents))) return false;
  return true;
}

bool is_stores(const Node& node) { return node.kind == Node::Kind::stores; }

// Around a loop whose extent the compiler does not know, unrolling takes it long and gives little.
bool has_varying_loop(const Node& node) {
  return std::any_of(node.body.begin(), node.body.end(), [](const Node& child) {
    return child.kind == Node::Kind::loop && (!ir::constant(child.extent).has_value() || has_varying_loop(child));
  });
}

// Sets how often a buffer is there for copies that run ahead, and what it may share memory with.
void set_stages(const std::vector<Node>& body, const ir::Buffer& allocation, SharedArray* array) {
  const auto has = [&](const std::vector<std::string>& all) {
    return std::find(all.begin(), all.end(), allocation.name) != all.end();
  };
  for (const Node& node : body) {
    set_stages(node.body, allocation, array);
    if (!node.ahead.has_value()) continue;
    if (has(node.ahead->overlaid)) array->overlay = SharedArray::Overlay::sums;
    if (!has(node.ahead->buffers)) continue;
    array->count = elements_of_stage(allocation) * node.ahead->stages;
    array->overlay = SharedArray::Overlay::stages;
  }
}

}  // namespace

int64_t elements_of(const ir::Buffer& buffer) {
  int64_t out = 1;
  for (const ir::ExprPtr& extent : buffer.shape) out *= std::max<int64_t>(ir::constant(extent).value_or(1), 1);
  return out;
}

int64_t elements_of_stage(const ir::Buffer& buffer) {
  const int64_t in_16_bytes = 128 / ir::bits_of(buffer.dtype);
  return (elements_of(buffer) + in_16_bytes - 1) / in_16_bytes * in_16_bytes;
}

std::string key_of(const std::string& buffer, const std::vector<ir::ExprPtr>& indices) {
  std::string out = buffer;
  for (const ir::ExprPtr& index : indices) out += "," + ir::print(index);
  return out;
}

std::string KernelPrinter::slot(Slot::Kind kind, const std::string& name, size_t dimension) {
  const Slot wanted{kind, name, dimension};
  auto& slots = kernel_->slots;
  auto found = std::find(slots.begin(), slots.end(), wanted);
  if (found == slots.end()) found = slots.insert(slots.end(), wanted);
  return "s" + std::to_string(found - slots.begin());
}

// ---- buffers ----

// A stride as text; as a number where it is one: 1, or a product of constant extents.
std::string KernelPrinter::stride(const std::string& buffer, size_t dimension, std::optional<int64_t>* number) {
  const BoundBuffer& bound = bound_.buffers.at(buffer);
  const std::vector<ir::ExprPtr>& shape = bound.buffer->shape;
  const bool dense = arrays_.count(buffer) != 0 || bound.is_dense();
  int64_t step = 1;
  bool is_constant = dense;
  for (size_t d = dimension + 1; d < shape.size() && is_constant; ++d) {
    const auto extent = ir::constant(shape[d]);
    is_constant = extent.has_value() && !__builtin_mul_overflow(step, std::max<int64_t>(*extent, 1), &step);
  }
  if (!is_constant && bound.strides[dimension] == 1) {
    is_constant = true;
    step = 1;
  }
  if (!is_constant) return slot(Slot::Kind::stride, buffer, dimension);
  *number = step;
  return std::to_string(step);
}

std::string KernelPrinter::offset(const std::string& buffer, const std::vector<ir::ExprPtr>& indices) {
  Linear known;  // what has numbers for strides
  std::string out;
  for (size_t d = 0; d < indices.size(); ++d) {
    const Linear sum = linear(indices[d], extents_);
    std::optional<int64_t> number;
    const std::string step = stride(buffer, d, &number);
    if (number.has_value())
      known = known + sum * *number;
    else if (!sum.terms.empty() || sum.constant != 0)
      out += " + (" + sum_text(sum) + ") * " + step;
  }
  return sum_text(known) + out;
}

// A number beside the array, as x[vj - 1] has at vj = 0. It stands where no iteration comes, and a compiler may refuse it.
bool KernelPrinter::is_beside(const std::string& buffer, const std::vector<ir::ExprPtr>& indices) const {
  for (size_t d = 0; d < indices.size(); ++d) {
    const Linear sum = linear(indices[d], extents_);
    const auto extent = ir::constant(buffer_of(buffer).shape[d]);
    if (sum.is_constant() && (sum.constant < 0 || (extent.has_value() && sum.constant >= *extent))) return true;
  }
  return false;
}

std::string KernelPrinter::element(const std::string& buffer, const std::vector<ir::ExprPtr>& indices) {
  const auto array = arrays_.find(buffer);
  if (panels_.count(buffer) != 0)
    return array->second + "[nw_panel(" + index_text(indices[0]) + ", " + index_text(indices[1]) + ", " +
           std::to_string(*ir::constant(buffer_of(buffer).shape[0])) + ")]";
  if (array != arrays_.end() && addresses_.count(buffer) == 0)
    return in_array(buffer, array->second, is_beside(buffer, indices) ? "0" : offset(buffer, indices));
  const std::string address = array != arrays_.end() ? array->second : slot(Slot::Kind::buffer, buffer);
  return in_memory(buffer_of(buffer), address, offset(buffer, indices));
}

std::string KernelPrinter::from_storage(const std::string& text, DType dtype) const {
  if (dtype == DType::boolean) return "(" + text + " != 0)";
  return is_half(dtype) ? std::string("nw_from_") + ir::name_of(dtype) + "(" + text + ")" : text;
}
std::string KernelPrinter::to_storage(const std::string& text, DType dtype) const {
  if (dtype == DType::boolean) return "u8(" + text + ")";
  if (!is_half(dtype)) return text;
  const std::string type = ir::name_of(dtype), round = "nw_round_" + type + "(";
  const bool is_rounded = text.rfind(round, 0) == 0;  // a value is one call; what that rounds is rounded by the store
  return "nw_to_" + type + "(" + (is_rounded ? text.substr(round.size()) : text + ")");
}

std::string KernelPrinter::load(const ir::Expr& expr) {
  if (!bound_.buffers.at(expr.name).present)  // under where(present(…), …), which leaves it out
    return type_of(expr.dtype) + "(0)";
  const auto accumulator = accumulators_.find(expr.name);
  if (accumulator != accumulators_.end() && same_indices(accumulator->second.indices, expr.operands, extents_))
    return accumulator->second.variable;
  return from_storage(in_storage(expr), expr.dtype);
}

std::string KernelPrinter::in_storage(const ir::Expr& load) {
  const auto run = read_runs_.find(key_of(load.name, load.operands));
  return run != read_runs_.end() ? run->second : element(load.name, load.operands);
}

// f16 and bf16 that are not computed with stay as they lie.
std::string KernelPrinter::computed(const ir::ExprPtr& expr, DType dtype) {
  const bool is_copy = is_half(dtype) && expr->kind == ir::Expr::Kind::load && expr->dtype == dtype && accumulators_.empty() &&
                       bound_.buffers.at(expr->name).present;
  return is_copy ? in_storage(*expr) : to_storage(value(expr), dtype);
}

void KernelPrinter::store(const ir::Store& store) {
  const BoundBuffer& buffer = bound_.buffers.at(store.buffer);
  if (!buffer.present) return;  // an output that is not wanted
  const DType dtype = buffer.buffer->dtype;
  if (const auto found = accumulators_.find(store.buffer); found != accumulators_.end())
    return line(found->second.variable + " = " + value(store.value) + ";");
  const std::string right = computed(store.value, dtype);
  const auto run = written_runs_.find(key_of(store.buffer, store.indices));
  const std::string place = run != written_runs_.end() ? run->second : element(store.buffer, store.indices);
  line(place + " = " + right + ";");
}

// ---- loops ----

void KernelPrinter::nodes(const std::vector<Node>& body, size_t first, size_t end) {
  for (size_t i = first; i < end; ++i) {
    const Node& node = body[i];
    if (node.has_barrier && &node != waited_for_) line("nw_barrier();");
    if (is_stores(node))
      stores(node);
    else
      loop(node);
  }
}

void KernelPrinter::loop(const Node& node) {
  if (product_loop(node) || vector_loop(node)) return;
  if (!accumulate(node)) plain_loop(node);
}

// A loop that chooses an element of a variable by its iteration: only written out the element is a register.
bool KernelPrinter::indexes_local(const Node& node, const std::string& loop) const {
  bool out = false;
  const auto look = [&](const std::string& buffer, const std::vector<ir::ExprPtr>& indices) {
    const auto place = program_.places.find(buffer);
    if (place == program_.places.end() || place->second != Place::local) return;
    for (const ir::ExprPtr& index : indices) out = out || mentions(index, loop);
  };
  const auto load = [&](const ir::Expr& expr) { look(expr.name, expr.operands); };
  for (const ir::Store& store : node.stores) {
    look(store.buffer, store.indices);
    for_each_load(store.value, load);
  }
  for (const Node& child : node.body) out = out || indexes_local(child, loop);
  return out;
}

void KernelPrinter::plain_loop(const Node& node) {
  if (node.ahead.has_value()) return pipelined_loop(node);
  if (node.stages > 0) line("// pipeline: a plain loop, since " + node.why_in_order);
  const auto extent = ir::constant(node.extent);
  std::string unroll;
  const bool is_asked = node.loop_kind == ir::For::Kind::unroll || node.loop_kind == ir::For::Kind::vectorize;
  const bool asked = is_asked && !has_varying_loop(node);
  if (extent.has_value() && (asked || (*extent <= kMostUnrolled && indexes_local(node, node.name)))) unroll = "NW_UNROLL ";
  const std::string variable = fresh("l");
  open(unroll + "for (ix " + variable + " = 0; " + variable + " < " + index_text(node.extent) + "; ++" + variable + ") {");
  loops_[node.name] = variable;
  nodes(node.body);
  loops_.erase(node.name);
  close();
}

std::string KernelPrinter::threads_test(const Node& node) const {
  std::string out;
  for (const std::string& loop : node.first_only) out += (out.empty() ? "" : " && ") + loops_.at(loop) + " == 0";
  return out;
}

void KernelPrinter::stores(const Node& node) {
  const std::string threads = threads_test(node), conditions = condition_text(open_conditions(node));
  const std::string test = threads + (threads.empty() || conditions.empty() ? "" : " && ") + conditions;
  open(test.empty() ? "{" : "if (" + test + ") {");
  contract_ = node.contract;
  for (const ir::Store& one : node.stores) store(one);
  contract_ = false;
  close();
}

// Whether a condition, or the extent of a loop, can leave out all that a thread would do with one element: then that is another
// thread's, or none of the buffer's.
bool KernelPrinter::chooses_element(const ir::ExprPtr& condition, const std::vector<ir::ExprPtr>& indices) const {
  return std::any_of(loops_.begin(), loops_.end(), [&](const auto& entry) {
    const std::string& loop = entry.first;
    const bool is_of_element =
        std::any_of(indices.begin(), indices.end(), [&](const auto& index) { return mentions(index, loop); });
    return (is_of_element || concurrent_.count(loop) != 0) && mentions(condition, loop);
  });
}

// Loops that add up one element keep it in a variable, which is read ahead of them and written behind. False: they are none.
bool KernelPrinter::accumulate(const Node& node) {
  Names loops;
  std::vector<ir::ExprPtr> extents;  // that may be 0
  const Node* leaf = &node;
  while (leaf->kind == Node::Kind::loop) {
    if (leaf->body.size() != 1 || (leaf != &node && leaf->has_barrier)) return false;
    if (mentions(leaf->extent, loops)) return false;
    if (!is_never_empty(leaf->extent, extents_)) extents.push_back(leaf->extent);
    loops.insert(leaf->name);
    leaf = leaf->body.data();
  }
  if (leaf->has_barrier || leaf->stores.size() != 1 || !accumulators_.empty()) return false;
  const ir::Store& only = leaf->stores[0];
  if (!bound_.buffers.at(only.buffer).present) return false;
  bool fits = true, reads = false;
  const auto check = [&](const ir::Expr& load) {
    if (load.name != only.buffer) return;
    reads = true;
    fits = fits && same_indices(load.operands, only.indices, extents_);
  };
  for_each_load(only.value, check);
  for (const ir::ExprPtr& index : only.indices) fits = fits && !mentions(index, loops);
  const auto gathers = [&](const ir::Expr&) { fits = false; };
  std::vector<ir::ExprPtr> outer;
  for (const ir::ExprPtr& condition : open_conditions(*leaf)) {
    for_each_load(condition, gathers);
    if (!mentions(condition, loops))
      outer.push_back(condition);
    else if (chooses_element(condition, only.indices))
      return false;
  }
  for (const ir::ExprPtr& extent : extents) fits = fits && !chooses_element(extent, only.indices);
  for (const ir::ExprPtr& index : only.indices) for_each_load(index, gathers);
  if (!fits || !reads) return false;
  const std::string threads = threads_test(*leaf), conditions = condition_text(outer);
  const std::string test = threads + (threads.empty() || conditions.empty() ? "" : " && ") + conditions;
  const DType dtype = bound_.buffers.at(only.buffer).buffer->dtype;
  open(test.empty() ? "{" : "if (" + test + ") {");
  const std::string place = element(only.buffer, only.indices), variable = fresh("v");
  line(type_of(dtype) + " " + variable + " = " + from_storage(place, dtype) + ";");
  accumulators_[only.buffer] = {only.indices, variable};
  plain_loop(node);
  accumulators_.erase(only.buffer);
  line(place + " = " + to_storage(variable, dtype) + ";");
  close();
  return true;
}

// ---- kernels ----

// Factors of a unit's products whose rows are whole runs of 128 bytes. In panels of 64 columns no two lanes that read together use
// the same bank: nw_panel exchanges the runs of 8 elements of each row by the row's number.
void KernelPrinter::find_panels(const Kernel& kernel) {
  panels_.clear();
  if (!program_.limits.has_panels) return;
  const auto add = [&](const ir::Expr& load) {
    const auto place = program_.places.find(load.name);
    if (place == program_.places.end() || place->second != Place::shared) return;
    const auto& shape = buffer_of(load.name).shape;
    if (shape.size() == 2 && *ir::constant(shape[0]) % 8 == 0 && *ir::constant(shape[1]) % 64 == 0) panels_.insert(load.name);
  };
  for (const Node& node : kernel.body)
    for_each_joint(node, [&](const Node& product) {
      add(*parts_of(product).a);
      add(*parts_of(product).b);
    });
}

void KernelPrinter::declare_allocations(const Kernel& kernel) {
  Names used;
  const auto collect = [&](const auto& self, const std::vector<Node>& body) -> void {
    const auto load = [&](const ir::Expr& expr) { used.insert(expr.name); };
    for (const Node& node : body) {
      for (const ir::ExprPtr& condition : node.conditions) for_each_load(condition, load);
      for (const ir::Store& store : node.stores) {
        used.insert(store.buffer);
        for (const ir::ExprPtr& index : store.indices) for_each_load(index, load);
        for_each_load(store.value, load);
      }
      self(self, node.body);
    }
  };
  collect(collect, kernel.body);
  for (const ir::Buffer& buffer : program_.lowered.allocations) {
    if (used.count(buffer.name) == 0) continue;
    const Place place = program_.places.at(buffer.name);
    if (place == Place::global) continue;
    const std::string name = arrays_[buffer.name] = fresh("a"), type = storage_of(buffer.dtype);
    if (place == Place::local || place == Place::shared) {
      SharedArray array{type, name, elements_of(buffer), panels_.count(buffer.name) != 0, SharedArray::Overlay::none};
      set_stages(kernel.body, buffer, &array);
      if (place == Place::shared)
        declare_shared(array);
      else
        line(join({"NW_ALIGNED ", type, " ", name, "[", std::to_string(elements_of(buffer)), "];"}, ""));
      continue;
    }
    kernel_->is_strided = true;
    addresses_.insert(buffer.name);
    std::string at =
        slot(Slot::Kind::parts) + " + i64(nw_block) * " + slot(Slot::Kind::part) + " + " + slot(Slot::Kind::place, buffer.name);
    if (place == Place::of_thread) at += " + i64(nw_thread) * " + slot(Slot::Kind::bytes, buffer.name);
    declare_address(type, name, at);
  }
}

// The loops' iterations of one number, the first loop's being next to each other.
void KernelPrinter::decode(std::vector<KernelLoop> loops, std::string from) {
  for (size_t i = 0; i < loops.size(); ++i) {
    const std::string variable = fresh("g"), extent = index_text(loops[i].extent);
    const bool is_last = i + 1 == loops.size();
    line(join({"const ix ", variable, " = ", from, is_last ? "" : " % ix(", is_last ? "" : extent, is_last ? ";" : ");"}, ""));
    loops_[loops[i].name] = variable;
    concurrent_.insert(loops[i].name);
    if (is_last) break;
    const std::string rest = fresh("g");
    line(join({"const ix ", rest, " = ", from, " / ix(", extent, ");"}, ""));
    from = rest;
  }
}

void KernelPrinter::bound_loops(const Kernel& kernel) {
  kernel_->threads = kernel.num_threads;
  decode(kernel.threads, "ix(nw_thread)");
  if (kernel_->is_strided)
    open("for (i64 block = i64(nw_block); block < " + slot(Slot::Kind::blocks) + "; block += i64(nw_blocks)) {");
  decode(kernel.blocks, kernel_->is_strided ? "ix(block)" : "ix(nw_block)");
  nodes(kernel.body);
  if (!kernel_->is_strided) return;
  line("nw_barrier();");
  close();
}

void KernelPrinter::flat_loops(const Kernel& kernel) {
  if (kernel.flat.empty()) return nodes(kernel.body);
  kernel_->threads = kFlatThreads;
  const std::string threads = std::to_string(kFlatThreads), first = "i64(nw_block) * " + threads + " + i64(nw_thread)",
                    total = slot(Slot::Kind::blocks);
  if (kernel_->is_strided) {
    open("for (i64 point = " + first + "; point < " + total + "; point += i64(nw_blocks) * " + threads + ") {");
  } else {
    line("const i64 point = " + first + ";");
    open("if (point < " + total + ") {");
  }
  std::vector<KernelLoop> loops = kernel.flat;
  std::reverse(loops.begin(), loops.end());
  decode(loops, "ix(point)");
  nodes(kernel.body);
  close();
}

void KernelPrinter::kernel(const Kernel& kernel, size_t number) {
  source_.kernels.emplace_back();
  kernel_ = &source_.kernels.back();
  kernel_->name = "k" + std::to_string(number);
  kernel_->is_strided = layout_.is_strided;
  out_.clear();
  counter_ = 0;
  loops_.clear();
  concurrent_.clear();
  arrays_.clear();
  addresses_.clear();
  bound_kernel_ = &kernel;
  extents_.clear();
  collect_extents(program_.lowered.body, &extents_);
  begin_kernel(kernel);
  for (const std::string& remark : kernel.remarks) line(remark);
  find_panels(kernel);
  declare_allocations(kernel);
  if (kernel.is_bound)
    bound_loops(kernel);
  else
    flat_loops(kernel);
  end_kernel(number);
}

DType KernelPrinter::param_dtype(const std::string& name) const {
  const auto& params = bound_.lowered->program.params;
  return std::find_if(params.begin(), params.end(), [&](const ir::Param& param) { return param.name == name; })->dtype;
}

PrintedProgram KernelPrinter::print() {
  for (size_t i = 0; i < program_.kernels.size(); ++i) kernel(program_.kernels[i], i);
  end_program();
  return source_;
}

}  // namespace narrows::common
