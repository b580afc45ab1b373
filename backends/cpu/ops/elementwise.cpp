// elementwise.cpp -- out = function(a, b, c), broadcast. Kernels know contiguous runs only: what lies otherwise is copied to and
// from tiles, block by block (elementwise_blocks.cpp). Step 5 of a tensor's path.
#include <hwy/cache_control.h>

#include "elementwise.h"

namespace narrows::cpu {

// ---- the functions ----

namespace {

constexpr unsigned kNumber = kFloat | kInt, kAny = kFloat | kInt | kBool, kBits = kInt | kBool;
constexpr Function kFunctions[] = {
    // by number, from 1
    {NW_EW_NEG, "neg", 1, kNumber, false, false},
    {NW_EW_ABS, "abs", 1, kNumber, false, false},
    {NW_EW_SIGN, "sign", 1, kNumber, false, false},
    {NW_EW_SQUARE, "square", 1, kNumber, false, false},
    {NW_EW_SQRT, "sqrt", 1, kFloat, false, false},
    {NW_EW_RSQRT, "rsqrt", 1, kFloat, false, false},
    {NW_EW_CBRT, "cbrt", 1, kFloat, false, true},
    {NW_EW_EXP, "exp", 1, kFloat, false, true},
    {NW_EW_EXP2, "exp2", 1, kFloat, false, true},
    {NW_EW_EXPM1, "expm1", 1, kFloat, false, true},
    {NW_EW_LOG, "log", 1, kFloat, false, true},
    {NW_EW_LOG2, "log2", 1, kFloat, false, true},
    {NW_EW_LOG10, "log10", 1, kFloat, false, true},
    {NW_EW_LOG1P, "log1p", 1, kFloat, false, true},
    {NW_EW_SIN, "sin", 1, kFloat, false, true},
    {NW_EW_COS, "cos", 1, kFloat, false, true},
    {NW_EW_TAN, "tan", 1, kFloat, false, true},
    {NW_EW_ASIN, "asin", 1, kFloat, false, true},
    {NW_EW_ACOS, "acos", 1, kFloat, false, true},
    {NW_EW_ATAN, "atan", 1, kFloat, false, true},
    {NW_EW_SINH, "sinh", 1, kFloat, false, true},
    {NW_EW_COSH, "cosh", 1, kFloat, false, true},
    {NW_EW_TANH, "tanh", 1, kFloat, false, true},
    {NW_EW_ASINH, "asinh", 1, kFloat, false, true},
    {NW_EW_ACOSH, "acosh", 1, kFloat, false, true},
    {NW_EW_ATANH, "atanh", 1, kFloat, false, true},
    {NW_EW_SIGMOID, "sigmoid", 1, kFloat, false, true},
    {NW_EW_RELU, "relu", 1, kNumber, false, false},
    {NW_EW_ELU, "elu", 1, kFloat, false, true},
    {NW_EW_GELU, "gelu", 1, kFloat, false, true},
    {NW_EW_GELU_TANH, "gelu_tanh", 1, kFloat, false, true},
    {NW_EW_SILU, "silu", 1, kFloat, false, true},
    {NW_EW_SOFTPLUS, "softplus", 1, kFloat, false, true},
    {NW_EW_ERF, "erf", 1, kFloat, false, true},
    {NW_EW_ERFC, "erfc", 1, kFloat, false, true},
    {NW_EW_FLOOR, "floor", 1, kNumber, false, false},
    {NW_EW_CEIL, "ceil", 1, kNumber, false, false},
    {NW_EW_ROUND, "round", 1, kNumber, false, false},
    {NW_EW_TRUNC, "trunc", 1, kNumber, false, false},
    {NW_EW_RECIPROCAL, "reciprocal", 1, kFloat, false, false},
    {NW_EW_LOGICAL_NOT, "logical_not", 1, kAny, true, false},
    {NW_EW_BITWISE_NOT, "bitwise_not", 1, kBits, false, false},
    {NW_EW_ISNAN, "isnan", 1, kNumber, true, false},
    {NW_EW_ISINF, "isinf", 1, kNumber, true, false},
    {NW_EW_ISFINITE, "isfinite", 1, kNumber, true, false},
    {NW_EW_CAST, "cast", 1, kAny, false, false},
    {NW_EW_ADD, "add", 2, kNumber, false, false},
    {NW_EW_SUB, "sub", 2, kNumber, false, false},
    {NW_EW_MUL, "mul", 2, kNumber, false, false},
    {NW_EW_DIV, "div", 2, kNumber, false, false},
    {NW_EW_POW, "pow", 2, kNumber, false, true},
    {NW_EW_ATAN2, "atan2", 2, kFloat, false, true},
    {NW_EW_HYPOT, "hypot", 2, kFloat, false, true},
    {NW_EW_MAXIMUM, "maximum", 2, kNumber, false, false},
    {NW_EW_MINIMUM, "minimum", 2, kNumber, false, false},
    {NW_EW_FMOD, "fmod", 2, kNumber, false, true},
    {NW_EW_REMAINDER, "remainder", 2, kNumber, false, true},
    {NW_EW_COPYSIGN, "copysign", 2, kFloat, false, false},
    {NW_EW_LOGADDEXP, "logaddexp", 2, kFloat, false, true},
    {NW_EW_EQ, "eq", 2, kAny, true, false},
    {NW_EW_NE, "ne", 2, kAny, true, false},
    {NW_EW_LT, "lt", 2, kNumber, true, false},
    {NW_EW_LE, "le", 2, kNumber, true, false},
    {NW_EW_GT, "gt", 2, kNumber, true, false},
    {NW_EW_GE, "ge", 2, kNumber, true, false},
    {NW_EW_LOGICAL_AND, "logical_and", 2, kAny, true, false},
    {NW_EW_LOGICAL_OR, "logical_or", 2, kAny, true, false},
    {NW_EW_LOGICAL_XOR, "logical_xor", 2, kAny, true, false},
    {NW_EW_BITWISE_AND, "bitwise_and", 2, kBits, false, false},
    {NW_EW_BITWISE_OR, "bitwise_or", 2, kBits, false, false},
    {NW_EW_BITWISE_XOR, "bitwise_xor", 2, kBits, false, false},
    {NW_EW_BITWISE_LEFT_SHIFT, "bitwise_left_shift", 2, kInt, false, false},
    {NW_EW_BITWISE_RIGHT_SHIFT, "bitwise_right_shift", 2, kInt, false, false},
    {NW_EW_FMA, "fma", 3, kNumber, false, false},
    {NW_EW_WHERE, "where", 3, kAny, false, false},
    {NW_EW_CLAMP, "clamp", 3, kNumber, false, false},
};
constexpr int kNumFunctions = static_cast<int>(std::size(kFunctions));

constexpr bool numbered_in_order() {
  for (int i = 0; i < kNumFunctions; ++i)
    if (kFunctions[i].number != i + 1) return false;
  return true;
}
static_assert(numbered_in_order());

struct DataType {
  const char* name;
  uint8_t code, bits;
  unsigned kind;
};
constexpr DataType kDataTypes[] = {
    // by number (NW_DTYPE_*), from 1
    {"float32", kDLFloat, 32, kFloat},   {"float64", kDLFloat, 64, kFloat}, {"float16", kDLFloat, 16, kFloat},
    {"bfloat16", kDLBfloat, 16, kFloat}, {"int8", kDLInt, 8, kInt},         {"int16", kDLInt, 16, kInt},
    {"int32", kDLInt, 32, kInt},         {"int64", kDLInt, 64, kInt},       {"uint8", kDLUInt, 8, kInt},
    {"uint16", kDLUInt, 16, kInt},       {"uint32", kDLUInt, 32, kInt},     {"uint64", kDLUInt, 64, kInt},
    {"bool", kDLBool, 8, kBool},
};
constexpr int kNumDataTypes = static_cast<int>(std::size(kDataTypes));

}  // namespace

const Function& find_function(const nw_sig& sig, int number) {
  if (number < 1 || number > kNumFunctions)
    refuse(NW_UNSUPPORTED, -1, "%s: function is %d; this backend knows 1 to %d", sig.op, number, kNumFunctions);
  return kFunctions[number - 1];
}

int dtype_of(const nw_sig& sig, uint32_t tensor) {
  const DLDataType t = sig.tensors[tensor].dtype;
  for (int i = 0; i < kNumDataTypes; ++i)
    if (is(t, kDataTypes[i].code, kDataTypes[i].bits)) return i + 1;
  refuse(NW_UNSUPPORTED, static_cast<int32_t>(tensor),
         "%s: tensor %u has dtype code %d with %d bits, which this backend does not have", sig.op, tensor, t.code, t.bits);
}

int64_t size_of(int dtype) { return kDataTypes[dtype - 1].bits / 8; }
unsigned kind_of(int dtype) { return kDataTypes[dtype - 1].kind; }

int compute_dtype(int dtype) { return dtype == NW_DTYPE_FLOAT16 || dtype == NW_DTYPE_BFLOAT16 ? NW_DTYPE_FLOAT32 : dtype; }
bool is_aligned(const nw_tensor_sig& tensor, int64_t size) { return (int64_t{1} << tensor.align_log2) >= size; }

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

struct Request {
  const Instance& instance;
  const nw_sig& sig;
  nw_elementwise_params params;
  const Function& function;
  int dtype;    // of the operands; of where's b and c
  int compute;  // the dtype in which the kernel works
};

Kernel find_function_kernel(const Request& r) {
  if (r.function.number == NW_EW_CAST) return cast_kernel(r.instance, r.dtype, dtype_of(r.sig, r.sig.num_inputs));
  if (r.compute == NW_DTYPE_FLOAT32) return f32_kernel(r.instance, r.function.number);
  if (r.compute == NW_DTYPE_FLOAT64) return f64_kernel(r.instance, r.function.number);
  return int_kernel(r.instance, r.function.number, r.compute);
}

// A dtype of unsigned integers of the same width: all that a selection or a copy needs to know.
int bits_dtype(int dtype) {
  const int64_t size = size_of(dtype);
  return size == 1 ? NW_DTYPE_UINT8 : size == 2 ? NW_DTYPE_UINT16 : size == 4 ? NW_DTYPE_UINT32 : NW_DTYPE_UINT64;
}

Request read_request(const Instance& instance, const nw_sig& sig) {
  const auto params = read_params<nw_elementwise_params>(sig);
  const Function& function = find_function(sig, params.function);
  if (!has_input(sig, 0) || !has_output(sig, 0)) refuse(NW_INVALID, 0, "%s: a and out must be there", sig.op);
  const bool where = function.number == NW_EW_WHERE, cast = function.number == NW_EW_CAST;
  const uint32_t typed = !where ? 0 : has_input(sig, 1) ? 1 : 2;
  if (!has_input(sig, typed)) refuse(NW_INVALID, 1, "%s: where has neither b nor c", sig.op);
  const int dtype = dtype_of(sig, typed), out = dtype_of(sig, sig.num_inputs);
  if (!(function.kinds & kind_of(dtype)))
    refuse(NW_UNSUPPORTED, static_cast<int32_t>(typed), "%s: %s of %s is not defined", sig.op, function.name,
           kDataTypes[dtype - 1].name);
  const int expected = function.to_bool ? NW_DTYPE_BOOL : dtype;
  if (!cast && out != expected)
    refuse(NW_INVALID, static_cast<int32_t>(sig.num_inputs), "%s: out of %s has dtype %s, not %s", sig.op, function.name,
           kDataTypes[out - 1].name, kDataTypes[expected - 1].name);
  return {instance, sig, params, function, dtype, where ? bits_dtype(dtype) : cast ? dtype : compute_dtype(dtype)};
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
  if (dtype_of(r.sig, index) != dtype)
    refuse(NW_INVALID, k, "%s: input %d of %s is not %s", r.sig.op, k, r.function.name, kDataTypes[dtype - 1].name);
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
  const Request r = read_request(instance, sig);
  auto plan = std::make_unique<ElementwisePlan>();
  plan->instance = &instance;
  plan->num_inputs = r.function.arity;
  plan->alpha = r.params.alpha;
  plan->function = find_function_kernel(r);
  if (plan->function == nullptr)
    refuse(NW_UNSUPPORTED, 0, "%s: %s has no kernel for %s", sig.op, r.function.name, kDataTypes[r.dtype - 1].name);
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
