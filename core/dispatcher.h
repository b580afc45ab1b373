// SPDX-License-Identifier: Apache-2.0
// dispatcher.h -- step 2 of a tensor's path: where do the tensors live? -> the backend; validate once; plan or find the plan;
// launch. Every function throws Failure.
#pragma once

#include <narrows/narrows.h>

#include <vector>

#include "core/plan_cache.h"
#include "core/runtime.h"

namespace narrows {

void run(nw_runtime& runtime, const nw_call& call);
void launch(const nw_plan& plan, const nw_call& call);
// The caller gets one reference. With `ask_only` nothing is planned for keeps, and the result is empty.
PlanRef get_plan(nw_runtime& runtime, const nw_call& call, bool ask_only, nw_plan_info* info);
std::vector<nw_spec> infer(nw_runtime& runtime, const nw_call& call);

}  // namespace narrows
