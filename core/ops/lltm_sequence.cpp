// SPDX-License-Identifier: Apache-2.0
// lltm_sequence.cpp -- the contract of lltm_sequence and lltm_sequence_backward. docs/ops.md has the formulas; a change there is a
// new op name.
#include "core/contract.h"

namespace narrows {
namespace {

const nw_param kBatchFirst = {"batch_first", kInt64Field, offsetof(nw_lltm_sequence_params, batch_first), nullptr, 0};
const nw_param kReverse = {"reverse", kInt64Field, offsetof(nw_lltm_sequence_params, reverse), nullptr, 0};
const nw_param kRecompute = {"recompute", kInt64Field, offsetof(nw_lltm_sequence_params, recompute), nullptr, 0};
const nw_param* const kFields[] = {&kBatchFirst, &kReverse, &kRecompute, nullptr};

const char* const kInputs[] = {"input", "weights", "bias?", "old_h", "old_cell", "lengths?", nullptr};
const char* const kOutputs[] = {"h", "new_h", "new_cell", "cells?", "gates?", nullptr};
const char* const kBackwardInputs[] = {"grad_h?", "grad_new_h?", "grad_new_cell?", "input",    "weights",
                                       "bias?",   "old_h",       "old_cell?",      "lengths?", "h",
                                       "new_h?",  "new_cell?",   "cells?",         "gates?",   nullptr};
const char* const kBackwardOutputs[] = {"d_input?", "d_weights?", "d_bias?", "d_old_h?", "d_old_cell?", "d_lengths?", nullptr};
enum Input : uint32_t { kLengths = 5, kFirstGrad = 3, kBackwardLengths = 8, kBackwardOldCell = 7, kCells = 12, kGates = 13 };
constexpr uint32_t kDLengths = 5;

// P and Q are the first two extents: steps and batch, or batch and steps. With `recompute` nothing is saved: no steps of it.
#define B "Q*(1-batch_first)+P*batch_first"
#define SAVED "P*(1-recompute),Q"
#define FORWARD(BIAS) \
  "P,Q,F ; 3*S,S+F ; " BIAS " ; " B ",S ; " B ",S ; " B "? -> P,Q,S ; " B ",S ; " B ",S ; " SAVED ",S ; " SAVED ",3*S"
#define BACKWARD(BIAS, GRAD)                                                                                                       \
  "P,Q,S? ; " B ",S? ; " B ",S? ; P,Q,F ; 3*S,S+F ; " BIAS " ; " B ",S ; " B ",S? ; " B "? ; P,Q,S ; " B ",S? ; " B ",S? ; " SAVED \
  ",S? ; " SAVED ",3*S? -> P,Q,F ; 3*S,S+F ; " GRAD " ; " B ",S ; " B ",S ; like 8"
constexpr const char* kRule = FORWARD("3*S?") " | " FORWARD("1,3*S");
constexpr const char* kBackwardRule = BACKWARD("3*S?", "3*S") " | " BACKWARD("1,3*S", "1,3*S");
constexpr const char* kBatch = "P where batch_first=1 | Q where batch_first=0";
#undef BACKWARD
#undef FORWARD
#undef SAVED
#undef B

DLDataType gates_dtype(DLDataType dtype) { return dtype.bits == 16 ? kFloat32 : dtype; }  // as lltm's

void check_dtype(const nw_op& op, const nw_sig& sig, uint32_t i, DLDataType expected, const char* why) {
  if (has_input(sig, i) && !same(sig.tensors[i].dtype, expected))
    throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has dtype %s; expected %s%s", op.name, input_name(op, i).c_str(),
                  show_dtype(sig.tensors[i].dtype).c_str(), show_dtype(expected).c_str(), why);
}

void check_params(const nw_op& op, const nw_lltm_sequence_params& p) {
  const int64_t values[] = {p.batch_first, p.reverse, p.recompute};
  for (int i = 0; i < 3; ++i)
    if (values[i] != 0 && values[i] != 1)
      throw_failure(NW_INVALID, -1, "%s: %s = %lld; expected 0 or 1", op.name, kFields[i]->name, static_cast<long long>(values[i]));
}

// In words that the shape rule has not: which axis is the batch depends on a param.
void check_batch(const nw_op& op, const nw_sig& sig, uint32_t first) {
  const nw_tensor_sig& sequence = sig.tensors[first];
  if (sequence.ndim != 3) return;  // for the shape rule to refuse
  const int axis = read_params<nw_lltm_sequence_params>(sig).batch_first != 0 ? 0 : 1;
  for (const uint32_t i : {first + 3, first + 4, first + 5})
    if (has_input(sig, i) && sig.tensors[i].ndim > 0 && sig.tensors[i].shape[0] != sequence.shape[axis])
      throw_failure(NW_INVALID, static_cast<int32_t>(i),
                    "%s: %s has shape %s; expected a batch of %lld, as axis %d of input %s, with batch_first = %d", op.name,
                    input_name(op, i).c_str(), show_shape(sig.tensors[i].shape, sig.tensors[i].ndim).c_str(),
                    static_cast<long long>(sequence.shape[axis]), axis, show_shape(sequence.shape, 3).c_str(), 1 - axis);
}

// The op's dtype is that of the first input that is there; `lengths` and the gates have their own.
void check_all(const nw_op& op, const nw_sig& sig, uint32_t lengths, uint32_t gates) {
  check_params(op, read_params<nw_lltm_sequence_params>(sig));
  nw_sig floats = sig;
  floats.num_inputs = std::min(sig.num_inputs, lengths);
  check_float_inputs(op, floats);
  const DLDataType dtype = sig.tensors[lengths == kLengths ? uint32_t{0} : uint32_t{kFirstGrad}].dtype;
  check_dtype(op, sig, lengths, {kDLInt, 32, 1}, "");
  for (uint32_t i = lengths + 1; i < sig.num_inputs; ++i)
    check_dtype(op, sig, i, i == gates ? gates_dtype(dtype) : dtype, i == gates ? " beside these inputs" : ", the dtype of input");
  check_batch(op, sig, lengths - kLengths);
}

// What backward reads depends on `recompute`.
void check_backward(const nw_sig& sig) {
  const nw_op& op = lltm_sequence_backward_contract().op;
  check_all(op, sig, kBackwardLengths, kGates);
  const bool recompute = read_params<nw_lltm_sequence_params>(sig).recompute != 0;
  for (const uint32_t i : {uint32_t{kBackwardOldCell}, uint32_t{kCells}, uint32_t{kGates}})
    if (recompute == (i == kBackwardOldCell) && !has_input(sig, i))
      throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s is absent (NULL); expected a tensor, as recompute = %d", op.name,
                    input_name(op, i).c_str(), recompute ? 1 : 0);
  if (find_output(sig, kDLengths) != nullptr)
    throw_failure(NW_INVALID, output_argument(kDLengths),
                  "%s: d_lengths is wanted, but lengths are integers and have no gradient; expected NULL", op.name);
}

void add_params(nw_op& op) {
  op.params_size = sizeof(nw_lltm_sequence_params);
  op.params = kFields;
}

}  // namespace

const Contract& lltm_sequence_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("lltm_sequence", 5, kInputs, kOutputs, kRule);
    add_params(op);
    op.batch = kBatch;
    op.num_aux = 2;
    op.flags = NW_OP_AUTOCAST;
    op.backward = "lltm_sequence_backward";
    op.saved = 0b111111 | uint64_t{0b11001} << 32;  // every input; h, cells, gates
    Contract out(op);
    out.check = [](const nw_sig& sig) { check_all(lltm_sequence_contract().op, sig, kLengths, UINT32_MAX); };
    out.output_dtype = [](const nw_sig& sig, uint32_t i) {
      return i == 4 ? gates_dtype(sig.tensors[0].dtype) : sig.tensors[0].dtype;
    };
    return out;
  }());
  return contract;
}

const Contract& lltm_sequence_backward_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("lltm_sequence_backward", 10, kBackwardInputs, kBackwardOutputs, kBackwardRule);
    add_params(op);
    op.batch = kBatch;
    Contract out(op);
    out.check = check_backward;
    out.output_dtype = [](const nw_sig& sig, uint32_t i) {
      return i == kDLengths ? DLDataType{kDLInt, 32, 1} : sig.tensors[kFirstGrad].dtype;
    };
    return out;
  }());
  return contract;
}

}  // namespace narrows
