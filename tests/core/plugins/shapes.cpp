// SPDX-License-Identifier: Apache-2.0
// shapes.cpp -- a plugin whose ops are the shape rules of shape_cases.h. Its devices hold nothing: it is asked for shapes only.
#include "shape_cases.h"

#include <narrows/plugin.h>

#include <array>
#include <cstddef>

namespace {

using namespace narrows::test;

int32_t create(const nw_host*, void** self, nw_error*) {
  static int instance;
  *self = &instance;
  return NW_OK;
}
void destroy(void*) {}
int32_t device_count(void*, int32_t* count, nw_error*) {
  *count = 1;
  return NW_OK;
}
int32_t device_info(void*, int32_t, nw_device_info*, nw_error*) { return NW_OK; }
int32_t alloc(void*, int32_t, uint64_t, void*, void**, nw_error*) { return NW_OUT_OF_MEMORY; }
int32_t free_memory(void*, int32_t, void*, void*, nw_error*) { return NW_OK; }
int32_t copy(void*, DLDevice, void*, DLDevice, const void*, uint64_t, void*, nw_error*) { return NW_UNSUPPORTED; }
int32_t stream_create(void*, int32_t, void**, nw_error*) { return NW_UNSUPPORTED; }
int32_t stream(void*, int32_t, void*, nw_error*) { return NW_OK; }
int32_t stream_wait(void*, int32_t, void*, void*, nw_error*) { return NW_OK; }
int32_t plan(void*, const nw_sig*, void**, nw_plan_info*, nw_error*) { return NW_UNSUPPORTED; }
void plan_free(void*, void*) {}
int32_t launch(void*, const void*, const nw_call*, nw_error*) { return NW_FAILED; }

const nw_param kN{"n", {kDLInt, 64, 1}, offsetof(RuleParams, n), nullptr, 0},
    kK{"k", {kDLInt, 64, 1}, offsetof(RuleParams, k), nullptr, 0}, kS{"s", {kDLInt, 32, 1}, offsetof(RuleParams, s), nullptr, 0},
    kU{"u", {kDLUInt, 8, 1}, offsetof(RuleParams, u), nullptr, 0},
    kReal{"real", {kDLFloat, 64, 1}, offsetof(RuleParams, real), nullptr, 0},
    kWide{"wide", {kDLUInt, 64, 1}, offsetof(RuleParams, wide), nullptr, 0};
const nw_param* const kFields[] = {&kN, &kK, &kS, &kU, &kReal, &kWide, nullptr};

const char* const kInputs[] = {"a?", "b?", "c?", nullptr};
const char* const kTwoInputs[] = {"a?", "b?", nullptr};
const char* const kOneInput[] = {"a?", nullptr};
const char* const kOutputs[] = {"x", "y", "z", nullptr};
const char* const kTwoOutputs[] = {"x", "y", nullptr};
const char* const kOneOutput[] = {"x", nullptr};
const char* const* const kInputNames[] = {nullptr, kOneInput, kTwoInputs, kInputs};
const char* const* const kOutputNames[] = {nullptr, kOneOutput, kTwoOutputs, kOutputs};

struct Declarations {
  std::array<nw_op, kNumRules> ops{};
  std::array<const nw_op*, kNumRules> pointers{};
  Declarations() {
    for (uint32_t i = 0; i < kNumRules; ++i) {
      nw_op& op = ops[i];
      op.struct_size = sizeof op;
      op.name = kRules[i].name;
      op.max_inputs = kRules[i].inputs;
      op.num_outputs = kRules[i].outputs;
      op.inputs = kInputNames[op.max_inputs];
      op.outputs = kOutputNames[op.num_outputs];
      op.params = kFields;
      op.params_size = sizeof(RuleParams);
      op.shape_rule = kRules[i].rule;
      pointers[i] = &op;
    }
  }
};
const Declarations kDeclarations;

const nw_plugin kPlugin = {sizeof(nw_plugin),
                           NW_ABI_MAJOR,
                           "shapes",
                           "0.0.1",
                           kDLExtDev,
                           0,
                           0,
                           kNumRules,
                           kDeclarations.pointers.data(),
                           create,
                           destroy,
                           device_count,
                           device_info,
                           alloc,
                           free_memory,
                           copy,
                           stream_create,
                           stream,
                           stream,
                           stream_wait,
                           nullptr,
                           plan,
                           plan_free,
                           launch,
                           nullptr,
                           nullptr,
                           nullptr};

}  // namespace

const nw_plugin* narrows_plugin_query(uint32_t, nw_error*) { return &kPlugin; }
