// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp -- out = function(a, b, c), broadcast. Kernels know contiguous runs and constants only. What is contiguous as a
// whole is one run; else a block's rows are runs where they lie, if they are long enough; what lies otherwise is copied to and from
// tiles (elementwise_blocks.cpp).
#include <hwy/cache_control.h>

#include "elementwise.h"
#include "ops/tasks.h"

namespace narrows::cpu {

Scalar make_scalar(const Instance& instance, int dtype, double real, int64_t integer) {
  Scalar scalar{};
  if (kind_of(dtype) == kFloat) {
    cast_kernel(instance, NW_DTYPE_FLOAT64, dtype)({.in = {&real}, .out = scalar.bytes, .n = 1});
  } else {  // little-endian: the low bytes are the number modulo two to the width
    if (kind_of(dtype) == kBool) integer = integer != 0;
    std::memcpy(scalar.bytes, &integer, sizeof(integer));
  }
  return scalar;
}

// ---- validate and plan ----

namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line
enum Variant { kVector, kStream, kScalar };
constexpr const char* kKernels[] = {"vector", "stream", "scalar", nullptr};

class ElementwisePlan : public Plan {
 public:
  void launch(const nw_call& call) const override;

  const Instance* instance;
  int num_inputs;
  Operand operand[4];  // inputs, then the output
  Blocks blocks;
  Kernel function;
  double alpha;
  bool streamed;
  bool flat;                   // one run: every operand is contiguous or constant
  bool by_rows;                // a block's rows are runs
  int at_lines[2] = {-1, -1};  // operands whose cache lines blocks begin with, along dimensions 0 and 1; -1: none
  int64_t grain;               // elements that are worth a thread

 private:
  Run start(char* const* base) const;
  void run_flat(char* const* base, int64_t begin, int64_t end) const;
  void launch_blocks(const Blocks& placed, char* const* base) const;
  void run_blocks(const Blocks& placed, char* const* base, int64_t begin, int64_t end) const;
  void fetch_next_block(const Run& row, int64_t columns) const;
};

struct Request : ElementwiseRequest {
  const Instance& instance;
};

Kernel find_function_kernel(const Request& r) {
  if (r.function.number == NW_EW_CAST) return cast_kernel(r.instance, r.dtype, dtype_of(r.sig, r.sig.num_inputs));
  if (kind_of(r.compute) == kFloat) return float_kernel(r.instance, r.function.number, r.dtype);
  return int_kernel(r.instance, r.function.number, r.compute);
}

Operand input_operand(const Request& r, int k) {
  const auto index = static_cast<uint32_t>(k);
  Operand operand;
  const bool mask = r.function.number == NW_EW_WHERE && k == 0;
  operand.size = operand.compute_size = size_of(mask ? NW_DTYPE_BOOL : r.dtype);
  operand.present = has_input(r.sig, index);
  if (!operand.present) {
    const double real = k == 1 ? r.params.b_real : r.params.c_real;
    const int64_t integer = k == 1 ? r.params.b_int : r.params.c_int;
    operand.scalar = make_scalar(r.instance, r.dtype, real, integer);
    operand.constant = true;
    return operand;
  }
  operand.aligned = is_aligned(input(r.sig, index), operand.size);
  operand.copy = copy_kernel(r.instance, operand.size);
  return operand;
}

Operand output_operand(const Request& r) {
  Operand operand;
  operand.size = operand.compute_size = size_of(dtype_of(r.sig, r.sig.num_inputs));
  operand.present = true;
  operand.aligned = is_aligned(output(r.sig, 0), operand.size);
  operand.copy = copy_kernel(r.instance, operand.size);
  return operand;
}

bool all_zero(const int64_t* strides, int n) {
  return std::all_of(strides, strides + n, [](int64_t s) { return s == 0; });
}

bool is_run(const ElementwisePlan& plan, int k) {
  return plan.operand[k].aligned && plan.blocks.stride[k][0] == plan.operand[k].size;
}

// Blocks whose rows are runs where they lie, or of one element each; the others' elements must fit a tile.
void plan_rows(ElementwisePlan* plan) {
  constexpr int64_t kShortRow = 64;
  Blocks& blocks = plan->blocks;
  const int n = plan->num_inputs;
  int64_t most = kMostInPlace;
  plan->flat =
      blocks.extent[0] > 1 && std::all_of(blocks.extent + 1, blocks.extent + blocks.ndim, [](int64_t e) { return e == 1; });
  for (int k = 0; k <= n; ++k) {
    if (plan->operand[k].constant || is_run(*plan, k)) continue;
    plan->flat = false;
    if (blocks.stride[k][0] != 0) most = std::min(most, kTileBytes / plan->operand[k].size);
  }
  plan->by_rows = blocks.extent[0] >= kShortRow;
  if (plan->by_rows && !blocks.across) blocks.set_block(most / std::min(most, blocks.extent[0]), most);
}

// Operand k has contiguous elements along dimension d, which begin at the same place of a cache line in all of their rows, and
// blocks have whole lines of them.
bool has_lines(const ElementwisePlan& plan, int k, int d) {
  const Blocks& blocks = plan.blocks;
  const int64_t size = plan.operand[k].size, length = d == 0 ? blocks.columns : blocks.rows;
  if (!plan.operand[k].aligned || blocks.stride[k][d] != size || length * size % kLine != 0) return false;
  for (int other = 0; other < blocks.ndim; ++other)
    if (other != d && blocks.stride[k][other] % kLine != 0) return false;
  return true;
}

// Of a line that two blocks share, the output would be written in parts, and an input that is read across would be read twice:
// beyond the caches that took twice as long. Within them blocks of one size are faster (512 x 512: by a third).
void plan_lines(const Request& r, ElementwisePlan* plan) {
  if (!plan->by_rows || !plan->blocks.across) return;
  const int n = plan->num_inputs;
  if (has_lines(*plan, n, 0) && (plan->blocks.column_blocks > 1 || is_aligned(output(r.sig, 0), kLine))) plan->at_lines[0] = n;
  for (int k = n - 1; k >= 0; --k)
    if (!plan->operand[k].constant && has_lines(*plan, k, 1)) plan->at_lines[1] = k;
}

// Writing past the caches saves reading what will be overwritten. It pays where the call's bytes are more than the last cache holds
// (measured on Zen 4 with 32 MB: half as fast up to 24 MB, the same at 40, then up to 1.5 times as fast), and where the output is a
// good part of them. What is computed in place is in the caches already.
bool worth_streaming(const Request& r, const ElementwisePlan& plan) {
  const auto bytes = [&](int k) { return touched_bytes(plan.blocks, k, plan.operand[k].size); };
  int64_t total = 0;
  for (int k = 0; k <= plan.num_inputs; ++k) total += bytes(k);
  return total > kBytesWorthStreaming && bytes(plan.num_inputs) >= total / 4 && output(r.sig, 0).alias_of < 0 &&
         (!plan.blocks.across || plan.at_lines[0] >= 0);
}

void plan_variant(const Request& r, ElementwisePlan* plan) {
  const int forced = forced_kernel(r.sig, kKernels);
  const bool can_stream = HWY_ARCH_X86 && (plan->flat || plan->by_rows) && is_run(*plan, plan->num_inputs);
  if (forced == kStream && plan->blocks.count > 0 && !can_stream)
    refuse(NW_UNSUPPORTED, static_cast<int32_t>(r.sig.num_inputs),
           "%s: kernel 'stream' needs x86-64 and an aligned output that is one run, or has rows of 64 elements or more", r.sig.op);
  plan->streamed = forced == kStream || (forced < 0 && can_stream && worth_streaming(r, *plan));
  if (forced == kScalar) {
    plan->blocks.set_block(1, 1);
    plan->flat = plan->by_rows = false;
  }
  if (!plan->streamed) plan->at_lines[0] = plan->at_lines[1] = -1;
  plan->kernel = kKernels[plan->streamed ? kStream : forced == kScalar ? kScalar : kVector];
  plan->grain = r.function.heavy ? 8192 : 16384;
}

std::unique_ptr<Plan> plan_elementwise(const Instance& instance, const nw_sig& sig) {
  const Request r{read_elementwise(sig), instance};
  auto plan = std::make_unique<ElementwisePlan>();
  plan->instance = &instance;
  plan->num_inputs = r.function.arity;
  plan->alpha = r.params.alpha;
  plan->function = find_function_kernel(r);
  if (plan->function == nullptr)
    refuse(NW_UNSUPPORTED, 0, "%s: %s has no kernel for %s", sig.op, r.function.name, name_of(r.dtype));
  const nw_tensor_sig* tensors[4] = {};
  const int n = plan->num_inputs;
  for (int k = 0; k < n; ++k) {
    plan->operand[k] = input_operand(r, k);
    if (plan->operand[k].present) tensors[k] = &input(sig, static_cast<uint32_t>(k));
  }
  plan->operand[n] = output_operand(r);
  tensors[n] = &output(sig, 0);
  collapse(*tensors[n], tensors, plan->operand, n + 1, n, &plan->blocks);
  for (int k = 0; k < n; ++k) plan->operand[k].constant |= all_zero(plan->blocks.stride[k], plan->blocks.ndim);
  choose_block(&plan->blocks, plan->operand, n + 1);
  plan_rows(plan.get());
  plan_lines(r, plan.get());
  plan_variant(r, plan.get());
  return plan;
}

// ---- launch ----

// A run's constants; the rest of it is for the caller to fill.
Run ElementwisePlan::start(char* const* base) const {
  Run run;
  run.alpha = alpha;
  run.streamed = streamed;
  for (int k = 0; k < num_inputs; ++k) {
    run.constant[k] = operand[k].constant;
    if (run.constant[k]) run.in[k] = operand[k].present ? static_cast<const void*>(base[k]) : operand[k].scalar.bytes;
  }
  return run;
}

// Elements [begin, end), on one thread.
void ElementwisePlan::run_flat(char* const* base, int64_t begin, int64_t end) const {
  Run run = start(base);
  for (int k = 0; k < num_inputs; ++k)
    if (!run.constant[k]) run.in[k] = base[k] + blocks.offset[k] + begin * operand[k].size;
  run.out = base[num_inputs] + blocks.offset[num_inputs] + begin * operand[num_inputs].size;
  run.n = end - begin;
  function(run);
  if (streamed) hwy::FlushStream();
}

// This row of the next block: the processor does not foresee rows this short. Of what lies in a tile nothing is fetched that is not
// there already; leaving that out took longer.
void ElementwisePlan::fetch_next_block(const Run& row, int64_t columns) const {
  for (int k = 0; k < num_inputs; ++k) {
    if (row.constant[k]) continue;
    const int64_t size = columns * operand[k].size;
    for (int64_t i = size; i < 2 * size; i += 64) hwy::Prefetch(static_cast<const char*>(row.in[k]) + i);
  }
}

// Blocks [begin, end), on one thread.
void ElementwisePlan::run_blocks(const Blocks& placed, char* const* base, int64_t begin, int64_t end) const {
  Tiles tiles[4];
  const Run constants = start(base);
  const int n = num_inputs;
  Rows rows[4];
  Block before{};
  for (int64_t index = begin; index < end; ++index) {
    const Block block = locate(placed, n + 1, base, index);
    const bool same_shape = block.rows == before.rows && block.columns == before.columns;
    bool whole = true;  // rows follow each other without a gap, in every operand: the block is one run
    for (int k = 0; k <= n; ++k) {
      if (k < n && constants.constant[k]) continue;
      const bool loaded = k < n && same_shape && block.address[k] == before.address[k];  // as of an operand that is broadcast
      if (!loaded) rows[k] = reach(operand[k], block, k, blocks.stride[k], by_rows, k == n, tiles[k]);
      whole &= rows[k].step == block.columns * operand[k].size && !rows[k].constant;
    }
    Run run = constants;
    run.n = whole ? block.rows * block.columns : block.columns;
    const bool narrow = by_rows && blocks.across && block.columns < blocks.extent[0];  // rows are parts of the tensor's
    for (int64_t row = 0; row < (whole ? 1 : block.rows); ++row) {
      for (int k = 0; k < n; ++k) {
        if (constants.constant[k]) continue;
        run.in[k] = rows[k].data + row * rows[k].step;
        run.constant[k] = rows[k].constant;
      }
      if (narrow) fetch_next_block(run, block.columns);
      run.out = rows[n].data + row * rows[n].step;
      function(run);
    }
    if (!by_rows || !is_run(*this, n))
      store(operand[n], rows[n].data, block.address[n], block.rows, block.columns, blocks.stride[n], tiles[n]);
    before = block;
  }
  if (streamed) hwy::FlushStream();
}

void ElementwisePlan::launch_blocks(const Blocks& placed, char* const* base) const {
  const int64_t worthwhile = std::max<int64_t>(1, grain / (placed.rows * placed.columns));
  if (placed.count <= worthwhile) return run_blocks(placed, base, 0, placed.count);
  instance->parallel_for(placed.count, worthwhile, [&](int64_t begin, int64_t end) { run_blocks(placed, base, begin, end); });
}

void ElementwisePlan::launch(const nw_call& call) const {
  if (blocks.count == 0) return;
  char* base[4];
  for (int k = 0; k < num_inputs; ++k) base[k] = operand[k].present ? data<char>(call.inputs[k]) : nullptr;
  base[num_inputs] = data<char>(call.outputs[0]);
  if (flat) {
    constexpr int64_t kUnit = 256;  // pieces of whole cache lines
    const int64_t n = blocks.extent[0];
    if (n <= grain) return run_flat(base, 0, n);
    instance->parallel_for(ceil_div(n, kUnit), grain / kUnit,
                           [&](int64_t begin, int64_t end) { run_flat(base, begin * kUnit, std::min(end * kUnit, n)); });
  } else {
    int64_t leads[2] = {};  // NumPy's tensors begin 16 bytes past a line
    for (int d = 0; d < 2; ++d)
      if (const int k = at_lines[d]; k >= 0 && (d == 0 ? blocks.column_blocks : blocks.row_blocks) > 1)
        leads[d] = static_cast<int64_t>(reinterpret_cast<uintptr_t>(base[k] + blocks.offset[k]) % kLine) / operand[k].size;
    if (leads[0] == 0 && leads[1] == 0) return launch_blocks(blocks, base);
    Blocks placed = blocks;
    placed.set_leads(leads[1], leads[0]);
    launch_blocks(placed, base);
  }
}

}  // namespace

const Op elementwise = {"elementwise", kKernels, plan_elementwise};

}  // namespace narrows::cpu
