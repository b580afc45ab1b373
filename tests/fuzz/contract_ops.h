// SPDX-License-Identifier: Apache-2.0
// contract_ops.h -- the rules of the single ops, for contract.cpp: the inputs and the params are legal each by itself. Each sets
// what is wrong, or the outputs.
#pragma once

#include "call.h"

namespace narrows::fuzz {

void judge_conv1d(const Case& c, Verdict* v);
void judge_elementwise(const Case& c, Verdict* v);
void judge_lltm(const Case& c, Verdict* v);

}  // namespace narrows::fuzz
