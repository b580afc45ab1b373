// SPDX-License-Identifier: Apache-2.0
// OPNAME.cpp -- the contract of OPNAME. docs/ops.md has the formula; a change there is a new op name.
#include "core/contract.h"

namespace narrows {
namespace {

const nw_param kCAMEL = {"FIELDNAME", {CODE, BITS, 1}, offsetof(nw_FORWARD_params, FIELDNAME), nullptr, 0};  // each field
const nw_param* const kFields[] = {                                                                          // with params
    &kCAMEL,                                                                                                 // each field
    nullptr};                                                                                                // with params

const char* const kInputs[] = {"x", nullptr};
const char* const kOutputs[] = {"y", nullptr};
constexpr const char* kRule = "like 0";  // y has the shape of x; docs/abi.md has the grammar of the rules

}  // namespace

const Contract& OPNAME_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("OPNAME", 1, kInputs, kOutputs, kRule);
    op.params_size = sizeof(nw_FORWARD_params);  // with params
    op.params = kFields;                         // with params
    Contract out(op);
    out.check = [](const nw_sig& sig) { check_float_inputs(OPNAME_contract().op, sig); };
    return out;
  }());
  return contract;
}

}  // namespace narrows
