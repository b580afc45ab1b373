// SPDX-License-Identifier: Apache-2.0
// OPNAME.cpp -- the contract of OPNAME. docs/ops.md has the formula; a change there is a new op name.
#include "core/contract.h"

namespace narrows {
namespace {

const char* const kInputs[] = {"x", nullptr};
const char* const kOutputs[] = {"y", nullptr};
constexpr const char* kRule = "like 0";  // y has the shape of x; docs/abi.md has the grammar of the rules

}  // namespace

const Contract& OPNAME_contract() {
  static const Contract& contract = *new Contract([] {
    Contract out(declare("OPNAME", 1, kInputs, kOutputs, kRule));
    out.check = [](const nw_sig& sig) { check_float_inputs(OPNAME_contract().op, sig); };
    return out;
  }());
  return contract;
}

}  // namespace narrows
