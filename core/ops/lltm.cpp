// SPDX-License-Identifier: Apache-2.0
// lltm.cpp -- the contract of lltm and lltm_backward. docs/ops.md has the formulas; a change there is a new op name.
#include "core/contract.h"

namespace narrows {
namespace {

const char* const kInputs[] = {"input", "weights", "bias", "old_h", "old_cell", nullptr};
const char* const kOutputs[] = {"new_h", "new_cell", "gates?", nullptr};
const char* const kBackwardInputs[] = {"grad_h?",   "grad_cell?", "input",    "weights", "bias?", "old_h",
                                       "old_cell?", "new_h?",     "new_cell", "gates",   nullptr};
const char* const kBackwardOutputs[] = {"d_input?", "d_weights?", "d_bias?", "d_old_h?", "d_old_cell?", nullptr};

constexpr const char* kRule =
    "B,F ; 3*S,S+F ; 3*S ; B,S ; B,S -> B,S ; B,S ; B,3*S"
    " | B,F ; 3*S,S+F ; 1,3*S ; B,S ; B,S -> B,S ; B,S ; B,3*S";
constexpr const char* kBackwardRule =
    "B,S? ; B,S? ; B,F ; 3*S,S+F ; 3*S? ; B,S ; B,S? ; B,S? ; B,S ; B,3*S -> B,F ; 3*S,S+F ; 3*S ; B,S ; B,S"
    " | B,S? ; B,S? ; B,F ; 3*S,S+F ; 1,3*S ; B,S ; B,S? ; B,S? ; B,S ; B,3*S -> B,F ; 3*S,S+F ; 1,3*S ; B,S ; B,S";
constexpr uint32_t kGates = 9;  // the last input of backward

// Activations lose too much in 16 bits for the derivatives: the gates stay in what they were accumulated in.
DLDataType gates_dtype(DLDataType dtype) { return dtype.bits == 16 ? kFloat32 : dtype; }

void check_backward(const nw_sig& sig) {
  const nw_op& op = lltm_backward_contract().op;
  nw_sig without_gates = sig;
  without_gates.num_inputs = kGates;
  check_float_inputs(op, without_gates);
  const DLDataType expected = gates_dtype(sig.tensors[2].dtype);
  if (!same(sig.tensors[kGates].dtype, expected))
    throw_failure(NW_INVALID, kGates, "%s: gates has dtype %s; expected %s beside %s inputs", op.name,
                  show_dtype(sig.tensors[kGates].dtype).c_str(), show_dtype(expected).c_str(),
                  show_dtype(sig.tensors[2].dtype).c_str());
}

}  // namespace

const Contract& lltm_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("lltm", 5, kInputs, kOutputs, kRule);
    op.num_aux = 1;
    op.flags = NW_OP_AUTOCAST;
    op.batch = "B";
    op.backward = "lltm_backward";
    op.saved = 0b01011 | uint64_t{0b110} << 32;  // input, weights, old_h; new_cell, gates
    Contract out(op);
    out.check = [](const nw_sig& sig) { check_float_inputs(lltm_contract().op, sig); };
    out.output_dtype = [](const nw_sig& sig, uint32_t i) {
      return i == 2 ? gates_dtype(sig.tensors[0].dtype) : sig.tensors[0].dtype;
    };
    return out;
  }());
  return contract;
}

const Contract& lltm_backward_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("lltm_backward", 10, kBackwardInputs, kBackwardOutputs, kBackwardRule);
    op.batch = "B";
    Contract out(op);
    out.check = check_backward;
    out.output_dtype = [](const nw_sig& sig, uint32_t) { return sig.tensors[2].dtype; };
    return out;
  }());
  return contract;
}

}  // namespace narrows
