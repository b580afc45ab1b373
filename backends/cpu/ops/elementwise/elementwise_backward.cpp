// SPDX-License-Identifier: Apache-2.0
// elementwise_backward.cpp -- the gradient of each operand of elementwise: grad_out times a derivative, summed over the axes along
// which the operand was broadcast. Sums are in f64 whatever the dtype (compensated if that is f64), and their order is a matter of
// shapes alone.
#include <hwy/cache_control.h>

#include <cmath>

#include "elementwise.h"

namespace narrows::cpu {
namespace {

enum Variant { kVector, kScalar };
constexpr const char* kKernels[] = {"vector", "scalar", nullptr};
constexpr int kInputs = 4;  // grad_out, a, b, c

// ---- plan ----

// The gradients that are not summed: all of them in one pass.
struct MapPass {
  int dtype;  // of its kernels: the tensors' own, if they have one
  Operand inputs[kInputs];
  bool streamed;  // past the caches
  int num_outputs = 0;
  int operand_of[3];  // which gradient an output is
  Operand outputs[3];
  Gradient gradients[3];
  Blocks blocks;  // operands: the inputs, then the outputs
  int64_t grain;
};

// One gradient that is summed. Blocks go by what is kept of them; the rest, the blocks to sum, is cut into slices.
struct SumPass {
  int operand;
  Operand output;  // from f64
  Gradient gradient;
  Blocks blocks;  // operands: the inputs, then the output
  bool kept[NW_MAX_NDIM];
  int64_t num_sums;  // of a block
  int64_t kept_blocks, summed_blocks, slices;
  int64_t grain;       // kept blocks that are worth a thread
  uint64_t workspace;  // where in it the slices' sums begin

  int64_t digits(int d) const { return d == 0 ? blocks.column_blocks : d == 1 ? blocks.row_blocks : blocks.extent[d]; }
  int64_t block_index(int64_t keep, int64_t sum) const;
};

int64_t SumPass::block_index(int64_t keep, int64_t sum) const {
  int64_t index = 0, weight = 1;
  for (int d = 0; d < blocks.ndim; ++d) {
    int64_t& counter = kept[d] ? keep : sum;
    index += counter % digits(d) * weight;
    counter /= digits(d);
    weight *= digits(d);
  }
  return index;
}

class BackwardPlan : public Plan {
 public:
  void launch(const nw_call& call) const override;

  const Instance* instance;
  Operand inputs[kInputs];  // of the sums
  Accumulator accumulate;
  double alpha;
  MapPass map;
  int num_sums = 0;
  SumPass sums[3];
  // Where nothing is to be summed, for grad_out is absent or has no elements: outputs to fill with zeros.
  int num_zeros = 0;
  int zero_operand[3];
  Operand zero_outputs[3];
  Blocks zero_blocks[3];

 private:
  struct Loader;
  void run_map(char* const* base, int64_t begin, int64_t end) const;
  void sum_slice(const SumPass& pass, Loader& loader, Tiles& tiles, int64_t slice, int64_t keep, Sums& sums) const;
  void run_slices(const SumPass& pass, char* const* base, double* partial, int64_t begin, int64_t end) const;
  void finish_sum(const SumPass& pass, char* const* base, const double* partial, int64_t begin, int64_t end) const;
  void fill_zeros(int z, char* base) const;
};

struct Request : ElementwiseGradRequest {
  const Instance& instance;
};

// ---- validate and plan ----

Operand input_operand(const Request& r, uint32_t index, int compute) {
  Operand operand;
  operand.compute_size = size_of(compute);
  operand.present = has_input(r.sig, index);
  if (operand.present) {
    const int dtype = dtype_of(r.sig, index);
    operand.size = size_of(dtype);
    operand.aligned = is_aligned(input(r.sig, index), operand.size);
    operand.copy = copy_kernel(r.instance, operand.size);
    if (dtype != compute) operand.convert = cast_kernel(r.instance, dtype, compute);
    return operand;
  }
  // A number stands for it, taken in the operands' dtype.
  const int dtype = r.scalar_dtype();
  const Scalar stored = make_scalar(r.instance, dtype, index == 2 ? r.params.b_real : r.params.c_real, 0);
  cast_kernel(r.instance, dtype, compute)({.in = {stored.bytes}, .out = operand.scalar.bytes, .n = 1});
  operand.size = operand.compute_size;
  operand.constant = true;
  return operand;
}

Operand output_operand(const Request& r, int k, int compute) {
  const uint32_t index = r.sig.num_inputs + static_cast<uint32_t>(k);
  const int dtype = dtype_of(r.sig, index);
  Operand operand;
  operand.size = size_of(dtype);
  operand.compute_size = size_of(compute);
  operand.present = true;
  operand.aligned = is_aligned(r.sig.tensors[index], operand.size);
  operand.copy = copy_kernel(r.instance, operand.size);
  if (dtype != compute) operand.convert = cast_kernel(r.instance, compute, dtype);
  return operand;
}

// The dtype that all tensors have, of f16 and bf16: what is not summed need not go through f32 in memory. Else that of the sums.
int map_dtype(const Request& r) {
  const auto is_half = [](int dtype) { return dtype == NW_DTYPE_FLOAT16 || dtype == NW_DTYPE_BFLOAT16; };
  if (!has_input(r.sig, 0) || !is_half(dtype_of(r.sig, 0))) return r.compute;
  const int dtype = dtype_of(r.sig, 0);
  for (uint32_t i = 0; i < r.sig.num_inputs + 3; ++i) {
    if (i < r.sig.num_inputs ? !has_input(r.sig, i) : !has_output(r.sig, i - r.sig.num_inputs)) continue;
    if (const int other = dtype_of(r.sig, i); other != dtype && other != NW_DTYPE_BOOL) return r.compute;
  }
  return dtype;
}

Gradient find_gradient(const Request& r, int k, int dtype) {
  const Gradient gradient = gradient_kernel(r.instance, r.function.number, k, dtype);
  if (gradient.kernel == nullptr)
    refuse(NW_INVALID, static_cast<int32_t>(r.sig.num_inputs) + k, "%s: %s has no gradient by operand %d", r.sig.op,
           r.function.name, k);
  return gradient;
}

// The inputs as collapse() wants them; what no kernel reads takes no part.
void list_inputs(const Request& r, const Operand* inputs, unsigned reads, const nw_tensor_sig** tensors, Operand* access) {
  for (int k = 0; k < kInputs; ++k) {
    const bool read = reads >> k & 1;
    access[k] = inputs[k];
    if (!read) access[k].convert = nullptr;
    tensors[k] = read && access[k].present ? &input(r.sig, static_cast<uint32_t>(k)) : nullptr;
  }
}

void plan_blocks(const Request& r, const nw_tensor_sig* const* tensors, const Operand* access, int n, int considered,
                 Blocks* blocks) {
  const nw_tensor_sig& shape = input(r.sig, 0);
  collapse(shape, tensors, access, n, considered - 1, blocks);
  if (const int leader = choose_leader(*blocks, tensors, considered); leader != considered - 1)
    collapse(shape, tensors, access, n, leader, blocks);
  choose_block(blocks, access, considered);
}

bool forced_scalar(const Request& r) { return forced_kernel(r.sig, kKernels) == kScalar; }

// As in elementwise: see there.
bool worth_streaming(const Request& r, const MapPass& map, const nw_tensor_sig* const* tensors) {
  int64_t bytes = 0, out = 0;
  for (int k = 0; k < kInputs + map.num_outputs; ++k) {
    if (tensors[k] == nullptr) continue;
    const int64_t size = size_of(dtype_of(r.sig, static_cast<uint32_t>(tensors[k] - r.sig.tensors)));
    bytes += touched_bytes(map.blocks, k, size);
    if (k >= kInputs) out += touched_bytes(map.blocks, k, size);
  }
  return bytes > kBytesWorthStreaming && out >= bytes / 4;
}

void plan_map(const Request& r, BackwardPlan* plan) {
  MapPass& map = plan->map;
  const nw_tensor_sig* tensors[kMaxOperands];
  Operand access[kMaxOperands];
  unsigned reads = 0;
  for (int o = 0; o < map.num_outputs; ++o) reads |= map.gradients[o].reads;
  list_inputs(r, map.inputs, reads, tensors, access);
  for (int o = 0; o < map.num_outputs; ++o) {
    tensors[kInputs + o] = &output(r.sig, static_cast<uint32_t>(map.operand_of[o]));
    access[kInputs + o] = map.outputs[o];
  }
  const int n = kInputs + map.num_outputs;
  plan_blocks(r, tensors, access, n, n, &map.blocks);
  if (forced_scalar(r)) map.blocks.set_block(1, 1);
  map.streamed = HWY_ARCH_X86 && worth_streaming(r, map, tensors);
  map.grain = std::max<int64_t>(1, (r.function.heavy ? 8192 : 16384) / (map.blocks.rows * map.blocks.columns));
}

void plan_sum(const Request& r, BackwardPlan* plan, SumPass* pass) {
  const nw_tensor_sig* tensors[kMaxOperands];
  Operand access[kMaxOperands];
  list_inputs(r, plan->inputs, pass->gradient.reads, tensors, access);
  tensors[kInputs] = &output(r.sig, static_cast<uint32_t>(pass->operand));
  access[kInputs] = pass->output;
  plan_blocks(r, tensors, access, kInputs + 1, kInputs, &pass->blocks);
  Blocks& blocks = pass->blocks;
  for (int d = 0; d < blocks.ndim; ++d) pass->kept[d] = blocks.stride[kInputs][d] != 0;
  if (forced_scalar(r)) blocks.set_block(1, 1);
  pass->num_sums = (pass->kept[1] ? blocks.rows : 1) * (pass->kept[0] ? blocks.columns : 1);
  pass->kept_blocks = pass->summed_blocks = 1;
  for (int d = 0; d < blocks.ndim; ++d) {
    (pass->kept[d] ? pass->kept_blocks : pass->summed_blocks) *= pass->digits(d);
  }
  // Enough pieces for any number of threads, few enough to be added up in no time; by shapes alone.
  constexpr int64_t kPieces = 64, kLeastBlocks = 4;
  const int64_t wanted = (kPieces + pass->kept_blocks - 1) / std::max<int64_t>(pass->kept_blocks, 1);
  pass->slices = std::clamp<int64_t>(pass->summed_blocks / kLeastBlocks, 1, std::max<int64_t>(wanted, 1));
  const int64_t cost = (pass->slices > 1 ? pass->slices : pass->summed_blocks) * blocks.rows * blocks.columns;
  pass->grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(cost, 1));
  pass->workspace = plan->workspace_size;
  if (pass->slices > 1)
    plan->workspace_size += static_cast<uint64_t>(pass->slices * pass->kept_blocks * pass->num_sums) * sizeof(double);
}

void plan_zero(const Request& r, BackwardPlan* plan, int k) {
  const int z = plan->num_zeros++;
  const nw_tensor_sig* tensor = &output(r.sig, static_cast<uint32_t>(k));
  plan->zero_operand[z] = k;
  plan->zero_outputs[z] = output_operand(r, k, dtype_of(r.sig, r.sig.num_inputs + static_cast<uint32_t>(k)));
  collapse(*tensor, &tensor, &plan->zero_outputs[z], 1, 0, &plan->zero_blocks[z]);
  plan->zero_blocks[z].set_block(1, kTileBytes / plan->zero_outputs[z].size);
}

void plan_output(const Request& r, BackwardPlan* plan, int k) {
  const bool absent = !has_input(r.sig, 0) || is_empty(input(r.sig, 0));
  const bool summed = !absent && is_broadcast(input(r.sig, 0), output(r.sig, static_cast<uint32_t>(k)));
  const Gradient gradient = find_gradient(r, k, summed ? r.compute : plan->map.dtype);
  if (absent) return plan_zero(r, plan, k);
  if (!summed) {
    const int o = plan->map.num_outputs++;
    plan->map.operand_of[o] = k;
    plan->map.gradients[o] = gradient;
    plan->map.outputs[o] = output_operand(r, k, plan->map.dtype);
    return;
  }
  SumPass& pass = plan->sums[plan->num_sums++];
  pass.operand = k;
  pass.gradient = gradient;
  pass.output = output_operand(r, k, NW_DTYPE_FLOAT64);
  plan_sum(r, plan, &pass);
}

std::unique_ptr<Plan> plan_backward(const Instance& instance, const nw_sig& sig) {
  const Request r{read_elementwise_backward(sig), instance};
  auto plan = std::make_unique<BackwardPlan>();
  plan->instance = &instance;
  plan->alpha = r.params.alpha;
  plan->accumulate = accumulator(instance, r.compute);
  plan->map.dtype = map_dtype(r);
  plan->kernel = kKernels[forced_scalar(r) ? kScalar : kVector];
  for (uint32_t k = 0; k < kInputs; ++k) {
    plan->inputs[k] = input_operand(r, k, r.compute);
    plan->map.inputs[k] = input_operand(r, k, plan->map.dtype);
  }
  for (int k = 0; k < 3; ++k) {
    if (!has_output(sig, static_cast<uint32_t>(k))) continue;
    plan_output(r, plan.get(), k);
  }
  if (plan->map.num_outputs > 0) plan_map(r, plan.get());
  return plan;
}

// ---- launch ----

// Brings the inputs that kernels read of a block into contiguous runs.
struct BackwardPlan::Loader {
  Loader(const Operand* inputs, double alpha, const Blocks& blocks, unsigned reads, char* const* base)
      : inputs(inputs), blocks(blocks), base(base), moving(0) {
    run.alpha = alpha;
    for (int k = 0; k < kInputs; ++k) {
      if (!(reads >> k & 1)) continue;
      const int64_t* stride = blocks.stride[k];
      if (std::all_of(stride, stride + blocks.ndim, [](int64_t s) { return s == 0; }))
        run.in[k] = load_constant(inputs[k], base[k], tiles[k]);
      else
        moving |= 1u << k;
    }
  }
  Run load_block(const Block& block, void* out) {
    for (int k = 0; k < kInputs; ++k)
      if (moving >> k & 1) run.in[k] = load(inputs[k], block.address[k], block.rows, block.columns, blocks.stride[k], tiles[k]);
    run.out = out;
    run.n = block.rows * block.columns;
    return run;
  }

  const Operand* inputs;
  const Blocks& blocks;
  char* const* base;
  unsigned moving;
  Run run;
  Tiles tiles[kInputs];
};

void BackwardPlan::run_map(char* const* base, int64_t begin, int64_t end) const {
  unsigned reads = 0;
  for (int o = 0; o < map.num_outputs; ++o) reads |= map.gradients[o].reads;
  Loader loader(map.inputs, alpha, map.blocks, reads, base);
  Tiles tiles;
  for (int64_t index = begin; index < end; ++index) {
    const Block block = locate(map.blocks, kInputs + map.num_outputs, base, index);
    Run run = loader.load_block(block, nullptr);
    for (int o = 0; o < map.num_outputs; ++o) {
      const int64_t* stride = map.blocks.stride[kInputs + o];
      char* address = block.address[kInputs + o];
      run.out = destination(map.outputs[o], address, block.rows, block.columns, stride, tiles);
      run.streamed = map.streamed && run.out == address;
      map.gradients[o].kernel(run);
      store(map.outputs[o], run.out, address, block.rows, block.columns, stride, tiles);
    }
  }
  if (map.streamed) hwy::FlushStream();
}

void clear(Sums& sums, int64_t n) {
  std::fill_n(sums.sum, n, 0.0);
  std::fill_n(sums.lost, n, 0.0);
}
double total(const Sums& sums, int64_t i) { return std::isfinite(sums.lost[i]) ? sums.sum[i] + sums.lost[i] : sums.sum[i]; }

// Sums slice `slice` of what is kept as block `keep`.
void BackwardPlan::sum_slice(const SumPass& pass, Loader& loader, Tiles& tiles, int64_t slice, int64_t keep, Sums& sums) const {
  const int64_t first = slice * pass.summed_blocks / pass.slices, last = (slice + 1) * pass.summed_blocks / pass.slices;
  clear(sums, pass.num_sums);
  for (int64_t index = first; index < last; ++index) {
    const Block block = locate(pass.blocks, kInputs, loader.base, pass.block_index(keep, index));
    const Run run = loader.load_block(block, tiles.computed);
    if (!pass.gradient.same) pass.gradient.kernel(run);
    accumulate(sums, pass.gradient.same ? run.in[0] : run.out, block.rows, block.columns, pass.kept[1], pass.kept[0]);
  }
}

// Sums for kept blocks [begin, end), slice by slice into `partial`, whose piece s*kept_blocks + k holds slice s of kept block k.
void BackwardPlan::run_slices(const SumPass& pass, char* const* base, double* partial, int64_t begin, int64_t end) const {
  Loader loader(inputs, alpha, pass.blocks, pass.gradient.reads, base);
  Tiles tiles;
  Sums sums;
  for (int64_t piece = begin; piece < end; ++piece) {
    sum_slice(pass, loader, tiles, piece / pass.kept_blocks, piece % pass.kept_blocks, sums);
    for (int64_t i = 0; i < pass.num_sums; ++i) partial[piece * pass.num_sums + i] = total(sums, i);
  }
}

// Writes the gradient's kept blocks [begin, end): from the slices' sums, or, if there is one slice only, by summing it now.
void BackwardPlan::finish_sum(const SumPass& pass, char* const* base, const double* partial, int64_t begin, int64_t end) const {
  Loader loader(inputs, alpha, pass.blocks, pass.gradient.reads, base);
  Tiles tiles;
  Sums sums;
  for (int64_t keep = begin; keep < end; ++keep) {
    const Block block = locate(pass.blocks, kInputs + 1, base, pass.block_index(keep, 0));
    const int64_t rows = pass.kept[1] ? block.rows : 1, columns = pass.kept[0] ? block.columns : 1, n = rows * columns;
    if (partial == nullptr) {
      sum_slice(pass, loader, tiles, 0, keep, sums);
    } else {
      clear(sums, n);
      for (int64_t slice = 0; slice < pass.slices; ++slice)
        for (int64_t i = 0; i < n; ++i)
          add(sums.sum[i], sums.lost[i], partial[(slice * pass.kept_blocks + keep) * pass.num_sums + i]);
    }
    for (int64_t i = 0; i < n; ++i) sums.sum[i] = total(sums, i);
    store(pass.output, sums.sum, block.address[kInputs], rows, columns, pass.blocks.stride[kInputs], tiles);
  }
}

void BackwardPlan::fill_zeros(int z, char* base) const {
  const Blocks& blocks = zero_blocks[z];
  Tiles tiles;
  std::fill_n(tiles.computed, kTileBytes, static_cast<unsigned char>(0));  // 0 in every dtype
  for (int64_t index = 0; index < blocks.count; ++index) {
    const Block block = locate(blocks, 1, &base, index);
    store(zero_outputs[z], tiles.computed, block.address[0], block.rows, block.columns, blocks.stride[0], tiles);
  }
}

void BackwardPlan::launch(const nw_call& call) const {
  const Instance& host = *instance;
  char* base[kMaxOperands] = {};
  for (uint32_t k = 0; k < kInputs && k < call.num_inputs; ++k) base[k] = data<char>(call.inputs[k]);
  for (int z = 0; z < num_zeros; ++z) fill_zeros(z, data<char>(call.outputs[zero_operand[z]]));
  for (int s = 0; s < num_sums; ++s) {
    const SumPass& pass = sums[s];
    base[kInputs] = data<char>(call.outputs[pass.operand]);
    double* partial = pass.slices == 1 ? nullptr : reinterpret_cast<double*>(static_cast<char*>(call.workspace) + pass.workspace);
    if (partial != nullptr)
      host.parallel_for(pass.slices * pass.kept_blocks, 1,
                        [&](int64_t begin, int64_t end) { run_slices(pass, base, partial, begin, end); });
    host.parallel_for(pass.kept_blocks, pass.grain,
                      [&](int64_t begin, int64_t end) { finish_sum(pass, base, partial, begin, end); });
  }
  if (map.num_outputs == 0 || map.blocks.count == 0) return;
  for (int o = 0; o < map.num_outputs; ++o) base[kInputs + o] = data<char>(call.outputs[map.operand_of[o]]);
  if (map.blocks.count <= map.grain) return run_map(base, 0, map.blocks.count);
  host.parallel_for(map.blocks.count, map.grain, [&](int64_t begin, int64_t end) { run_map(base, begin, end); });
}

}  // namespace

const Op elementwise_backward = {"elementwise_backward", kKernels, plan_backward};

}  // namespace narrows::cpu
