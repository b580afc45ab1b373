// SPDX-License-Identifier: Apache-2.0
// naive_elementwise.cpp -- elementwise and elementwise_backward: one element of the output, or of a gradient, after the other.
// What a function computes is in naive_functions.cpp, naive_integers.cpp and naive_gradients.cpp. See naive.h.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "naive.h"

namespace naive {
namespace {

constexpr int64_t kGrain = 4096;  // elements: fewer are not worth a thread

// The byte offsets of element `index` of a shape, in C order, in each of several tensors that have been broadcast to it.
template <size_t N>
struct Offsets {
  int64_t of[N] = {};

  Offsets(const View& shape, const View (&tensors)[N], int64_t index) {
    const int32_t last = fault(Fault::rank_8) ? std::max(0, shape.ndim - 8) : 0;
    for (int32_t axis = shape.ndim; axis-- > last;) {
      const int64_t i = axis == 0 ? index : index % shape.shape[axis];
      if (axis != 0) index /= shape.shape[axis];
      for (size_t t = 0; t < N; ++t) of[t] += i * tensors[t].strides[axis];
    }
  }
};

// What a call computes on: the operands as views of the output's shape, or numbers that stand for them.
struct Operation {
  const nw_elementwise_params& params;
  DType dtype;       // of the operands; of where: of b and c
  View operands[3];  // empty: absent
  Real numbers[3];   // for absent ones
  int64_t integers[3];

  Operation(const Plan& plan, const View* given, const Layout& shape)
      : params(plan.elementwise), dtype(given[0].dtype), numbers{}, integers{} {
    if (params.function == NW_EW_WHERE) dtype = given[1] ? given[1].dtype : given[2].dtype;
    for (int i = 0; i < 3; ++i) {
      if (given[i]) operands[i] = broadcast_to(given[i], shape);
    }
    if (fault(Fault::scalar_ignored)) return;
    for (const int i : {1, 2}) {
      const double number = i == 1 ? params.b_real : params.c_real;
      numbers[i] = is_float(dtype) && !fault(Fault::scalar_unrounded) ? round_to(dtype, number) : number;
      integers[i] = i == 1 ? params.b_int : params.c_int;
      if (fault(Fault::i64_scalar_through_f64)) integers[i] = static_cast<int64_t>(static_cast<double>(integers[i]));
    }
  }

  Real real(int i, int64_t offset) const {
    return operands[i] ? load_real(operands[i].dtype, operands[i].data + offset) : numbers[i];
  }
  int64_t integer(int i, int64_t offset) const {
    return operands[i] ? load_integer(operands[i].dtype, operands[i].data + offset) : integers[i];
  }
};

void compute(const Operation& op, DType out_dtype, unsigned char* out, const int64_t* offset) {
  if (op.params.function == NW_EW_CAST) return store_real(out_dtype, out, op.real(0, offset[0]));
  if (is_float(op.dtype)) {
    const Operands x{op.real(0, offset[0]), op.real(1, offset[1]), op.real(2, offset[2])};
    const bool one =
        fault(Fault::difference_of_one) && op.params.function == NW_EW_SUB && op.operands[0].data == op.operands[1].data;
    const Real result = one ? 0 : real_function(op.params, op.dtype, x);
    return out_dtype == DType::boolean ? store_integer(out_dtype, out, result != 0) : store_real(out_dtype, out, result);
  }
  store_integer(
      out_dtype, out,
      integer_function(op.params.function, op.dtype, op.integer(0, offset[0]), op.integer(1, offset[1]), op.integer(2, offset[2])));
}

// How many elements a launch takes: all of them, but in mutants.
int64_t elements_taken(const View& out, int64_t n) {
  const int64_t row = out.ndim == 0 ? 1 : out.shape[out.ndim - 1];
  if (fault(Fault::tail_of_4)) return n - n % 4;
  if (fault(Fault::last_block)) return n - n % 64;
  if (fault(Fault::short_rows) && row < 4) return 0;
  if (fault(Fault::rows_65535)) return std::min(n, 65535 * row);
  return n;
}

void launch_elementwise(const Task& task) {
  const View& out = task.outputs[0];
  const Operation op(task.plan, task.inputs, out);
  const View tensors[] = {op.operands[0], op.operands[1], op.operands[2], out};
  if (fault(Fault::clears_output)) fill_zero(out);
  parallel(task.host, elements_taken(out, out.size()), kGrain, [&](int64_t i) {
    const Offsets<4> offsets(out, tensors, i);
    compute(op, out.dtype, out.data + offsets.of[3], offsets.of);
  });
  const bool plain = out.ndim == 1 && out.strides[0] == item_size(out.dtype);
  if (fault(Fault::store_past_end) && plain && out.size() % 4 == 1) std::fill_n(out.at(out.size()), item_size(out.dtype), 0);
}

constexpr int32_t kNumFunctions = 0
#define NARROWS_FUNCTION(number, name, operands, dtypes, result, differentiable, cost) +1
#include "core/ops/elementwise_functions.inc"
#undef NARROWS_FUNCTION
    ;

void plan_elementwise(const nw_sig& sig, Plan& plan) {
  read_params(sig, &plan.elementwise, sizeof plan.elementwise);
  const int32_t function = plan.elementwise.function;
  if ((function < NW_EW_NEG || function > kNumFunctions) && !fault(Fault::any_number))
    throw Refusal{NW_UNSUPPORTED, -1,
                  "naive: function = " + std::to_string(function) + "; it knows 1 to " + std::to_string(kNumFunctions)};
}

// ---- backward ----

// The gradient of one element of an operand: the sum over all elements of the output for which it was read.
struct Gradient {
  const Operation& op;
  const View& grad_out;
  int operand;
  View repeated;    // a shape: the extents of the axes along which the operand was repeated, 1 along the others
  View tensors[4];  // a, b, c, grad_out as views of the output's shape

  Gradient(const Operation& operation, const View& given, int which, const View& own)
      : op(operation), grad_out(given), operand(which), repeated(given),
        tensors{operation.operands[0], operation.operands[1], operation.operands[2], given} {
    const View aligned = with_rank(own, given.ndim);
    for (int32_t axis = 0; axis < given.ndim; ++axis) {
      if (aligned.shape[axis] == given.shape[axis]) repeated.shape[axis] = 1;
      if (fault(Fault::axis_not_summed) && axis == 0) repeated.shape[axis] = 1;
    }
  }

  // `at`: the offsets of the operand's element in each tensor.
  Real sum(const Offsets<4>& at) const {
    Real total = 0;
    const int64_t terms = repeated.size();
    for (int64_t i = 0; i < terms; ++i) {
      const Offsets<4> more(repeated, tensors, i);
      const auto real = [&](int t) { return op.real(t, at.of[t] + more.of[t]); };
      const Real g = load_real(grad_out.dtype, grad_out.data + at.of[3] + more.of[3]);
      const Real factor = real_gradient(op.params, op.dtype, operand, {real(0), real(1), real(2)});
      const bool chosen = op.params.function == NW_EW_WHERE && !fault(Fault::where_gradient);
      total += chosen ? (factor != 0 ? g : 0) : g * factor;
      if (fault(Fault::f16_sum) || (fault(Fault::plain_sum) && item_size(op.dtype) > 2)) total = round_to(op.dtype, total);
    }
    return fault(Fault::mean_of_gradient) ? total / static_cast<Real>(terms) : total;
  }
};

// Whether the i-th element is in a row behind the last whole block of 32 rows.
bool is_behind_blocks(const View& view, int64_t i) {
  if (view.ndim < 2) return false;
  const int64_t columns = view.shape[view.ndim - 1], rows = view.shape[view.ndim - 2];
  return rows > 32 && i / columns % rows >= rows / 32 * 32;
}

void launch_gradient(const Task& task, const Operation& op, int operand) {
  static std::atomic<int> launches{0};
  bool odd = fault(Fault::order_of_gradients) && ++launches % 4 == 1;  // as sums in another order would be
  odd |= fault(Fault::order_of_threads) && task.host.num_threads > 1;
  const View& grad = task.outputs[operand];
  const View& grad_out = task.inputs[0];
  const Gradient gradient(op, grad_out, operand, grad);
  const View own = with_rank(grad, grad_out.ndim);
  parallel(task.host, grad.size(), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, gradient.repeated.size())), [&](int64_t i) {
    if (fault(Fault::left_over_rows) && is_behind_blocks(own, i)) return;
    const Offsets<4> at(own, gradient.tensors, i);
    const View only_own[] = {own};
    store_real(grad.dtype, own.data + Offsets<1>(own, only_own, i).of[0], gradient.sum(at) * (odd ? 1 + 0x1p-23L : 1));
  });
}

// What a mutant makes of tanh: 1 - out^2, right where `out` is what the forward call gave.
void launch_from_out(const Task& task) {
  const View &grad_out = task.inputs[0], &out = task.inputs[4], &grad = task.outputs[0];
  const View tensors[] = {grad_out, out, grad};
  parallel(task.host, grad.size(), kGrain, [&](int64_t i) {
    const Offsets<3> at(grad, tensors, i);
    const Real y = load_real(out.dtype, out.data + at.of[1]);
    store_real(grad.dtype, grad.data + at.of[2], (1 - y * y) * load_real(grad_out.dtype, grad_out.data + at.of[0]));
  });
}

void launch_elementwise_backward(const Task& task) {
  if (!task.inputs[0]) {  // a gradient of zero
    for (const View& grad : task.outputs)
      if (grad && !fault(Fault::absent_gradient)) fill_zero(grad);
    return;
  }
  const Operation op(task.plan, &task.inputs[1], task.inputs[0]);
  if (fault(Fault::reads_out) && task.inputs[4] && task.outputs[0]) return launch_from_out(task);
  for (int operand = 0; operand < 3; ++operand)
    if (task.outputs[operand]) launch_gradient(task, op, operand);
}

}  // namespace

const Op elementwise = {"elementwise", 3, 1, plan_elementwise, launch_elementwise};
const Op elementwise_backward = {"elementwise_backward", 5, 3, plan_elementwise, launch_elementwise_backward};

}  // namespace naive
