// elementwise.cpp -- out = function(a, b, c), broadcast. Kernels know contiguous runs only: what lies otherwise is copied to and
// from tiles, block by block (elementwise_blocks.cpp). Step 5 of a tensor's path.
#include <hwy/cache_control.h>

#include "elementwise.h"

namespace narrows::cpu {

Scalar make_scalar(const Instance& instance, int dtype, double real, int64_t integer) {
  Scalar scalar{};
  if (kind_of(dtype) == kFloat) {
    const void* in = &real;
    cast_kernel(instance, NW_DTYPE_FLOAT64, dtype)(&in, scalar.bytes, 1, 0);
  } else {  // little-endian: the low bytes are the number modulo two to the width
    if (kind_of(dtype) == kBool) integer = integer != 0;
    std::memcpy(scalar.bytes, &integer, sizeof(integer));
  }
  return scalar;
}

// ---- validate and plan ----

namespace {

enum Variant { kVector, kStream, kScalar };
constexpr const char* kKernels[] = {"vector", "stream", "scalar", nullptr};

class ElementwisePlan : public Plan {
 public:
  void launch(const nw_call& call) const override;
  void run(char* const* base, int64_t begin, int64_t end) const;

  const Instance* instance;
  int num_inputs;
  Operand operand[4];  // inputs, then the output
  Blocks blocks;
  Kernel function;
  double alpha;
  bool streamed;
  int64_t grain;  // blocks that are worth a thread
};

struct Request : ElementwiseRequest {
  const Instance& instance;
};

Kernel find_function_kernel(const Request& r) {
  if (r.function.number == NW_EW_CAST) return cast_kernel(r.instance, r.dtype, dtype_of(r.sig, r.sig.num_inputs));
  if (r.compute == NW_DTYPE_FLOAT32) return f32_kernel(r.instance, r.function.number);
  if (r.compute == NW_DTYPE_FLOAT64) return f64_kernel(r.instance, r.function.number);
  return int_kernel(r.instance, r.function.number, r.compute);
}

Operand input_operand(const Request& r, int k) {
  const auto index = static_cast<uint32_t>(k);
  Operand operand;
  const bool mask = r.function.number == NW_EW_WHERE && k == 0;
  const int dtype = mask ? NW_DTYPE_BOOL : r.dtype, compute = mask ? NW_DTYPE_BOOL : r.compute;
  operand.size = size_of(dtype);
  operand.compute_size = size_of(compute);
  operand.present = has_input(r.sig, index);
  if (!operand.present) {
    const double real = k == 1 ? r.params.b_real : r.params.c_real;
    const int64_t integer = k == 1 ? r.params.b_int : r.params.c_int;
    const Scalar stored = make_scalar(r.instance, r.dtype, real, integer);
    operand.scalar = stored;
    const void* in = stored.bytes;
    if (operand.size != operand.compute_size) cast_kernel(r.instance, dtype, compute)(&in, operand.scalar.bytes, 1, 0);
    operand.constant = true;
    return operand;
  }
  operand.aligned = is_aligned(input(r.sig, index), operand.size);
  if (operand.size != operand.compute_size) operand.convert = cast_kernel(r.instance, dtype, compute);
  return operand;
}

Operand output_operand(const Request& r) {
  Operand operand;
  const int dtype = dtype_of(r.sig, r.sig.num_inputs);
  const bool converts = !r.function.to_bool && r.function.number != NW_EW_CAST && size_of(dtype) != size_of(r.compute);
  operand.size = size_of(dtype);
  operand.compute_size = converts ? size_of(r.compute) : operand.size;
  operand.present = true;
  operand.aligned = is_aligned(output(r.sig, 0), operand.size);
  if (converts) operand.convert = cast_kernel(r.instance, r.compute, dtype);
  return operand;
}

bool all_zero(const int64_t* strides, int n) {
  return std::all_of(strides, strides + n, [](int64_t s) { return s == 0; });
}

// Non-temporal stores need whole rows in memory.
bool can_stream(const ElementwisePlan& plan) {
  return HWY_ARCH_X86 && plan.operand[plan.num_inputs].aligned &&
         plan.blocks.stride[plan.num_inputs][0] == plan.operand[plan.num_inputs].size;
}

void plan_variant(const Request& r, ElementwisePlan* plan) {
  const int forced = forced_kernel(r.sig, kKernels);
  if (forced == kStream && plan->blocks.count > 0 && !can_stream(*plan))
    refuse(NW_UNSUPPORTED, static_cast<int32_t>(r.sig.num_inputs),
           "%s: kernel 'stream' needs x86-64 and an aligned output that is contiguous along one dimension", r.sig.op);
  plan->streamed = forced == kStream;
  if (forced == kScalar) plan->blocks.set_block(1, 1);
  if (forced == kStream && plan->blocks.rows == 1) plan->blocks.set_block(1, std::min(plan->blocks.columns, kTileBytes / 8));
  plan->kernel = kKernels[forced < 0 ? kVector : forced];
  const int64_t elements = r.function.heavy ? 2048 : 16384;
  plan->grain = std::max<int64_t>(1, elements / (plan->blocks.rows * plan->blocks.columns));
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
  plan_variant(r, plan.get());
  return plan;
}

// ---- launch ----

// Blocks [begin, end), on one thread.
void ElementwisePlan::run(char* const* base, int64_t begin, int64_t end) const {
  Tiles tiles[4];
  const void* in[3] = {};
  const int n = num_inputs;
  for (int k = 0; k < n; ++k)
    if (operand[k].constant) in[k] = load_constant(operand[k], base[k], tiles[k]);
  for (int64_t index = begin; index < end; ++index) {
    const Block block = locate(blocks, n + 1, base, index);
    for (int k = 0; k < n; ++k)
      if (!operand[k].constant) in[k] = load(operand[k], block.address[k], block.rows, block.columns, blocks.stride[k], tiles[k]);
    void* out = destination(operand[n], block.address[n], block.rows, block.columns, blocks.stride[n], streamed, tiles[n]);
    function(in, out, block.rows * block.columns, alpha);
    store(operand[n], out, block.address[n], block.rows, block.columns, blocks.stride[n], streamed, tiles[n]);
  }
  if (streamed) hwy::FlushStream();
}

void ElementwisePlan::launch(const nw_call& call) const {
  if (blocks.count == 0) return;
  char* base[4];
  for (int k = 0; k < num_inputs; ++k) base[k] = operand[k].present ? data<char>(call.inputs[k]) : nullptr;
  base[num_inputs] = data<char>(call.outputs[0]);
  if (blocks.count <= grain) return run(base, 0, blocks.count);
  instance->parallel_for(blocks.count, grain, [&](int64_t begin, int64_t end) { run(base, begin, end); });
}

}  // namespace

const Op elementwise = {"elementwise", kKernels, plan_elementwise};

}  // namespace narrows::cpu
