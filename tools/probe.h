// SPDX-License-Identifier: Apache-2.0
// probe.h -- what a backend can do, found out by asking it: every built-in op that it lists, with every dtype, is planned in
// question form (nw_plan_get without a plan). There is no list of what is supported that could be wrong.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine.h"

namespace narrows::tools {

struct Dtype {
  const char* name;        // "float32"
  const char* short_name;  // "f32"
  DLDataType type;
};
// In the order of NW_DTYPE_*, which count from 1.
inline constexpr std::array<Dtype, 13> kDtypes = {{{"float32", "f32", {kDLFloat, 32, 1}},
                                                   {"float64", "f64", {kDLFloat, 64, 1}},
                                                   {"float16", "f16", {kDLFloat, 16, 1}},
                                                   {"bfloat16", "bf16", {kDLBfloat, 16, 1}},
                                                   {"int8", "i8", {kDLInt, 8, 1}},
                                                   {"int16", "i16", {kDLInt, 16, 1}},
                                                   {"int32", "i32", {kDLInt, 32, 1}},
                                                   {"int64", "i64", {kDLInt, 64, 1}},
                                                   {"uint8", "u8", {kDLUInt, 8, 1}},
                                                   {"uint16", "u16", {kDLUInt, 16, 1}},
                                                   {"uint32", "u32", {kDLUInt, 32, 1}},
                                                   {"uint64", "u64", {kDLUInt, 64, 1}},
                                                   {"bool", "bool", {kDLBool, 8, 1}}}};

enum class Support {
  outside,  // not in the op's contract: no backend has it
  no,       // the backend refuses it
  yes
};
using SupportRow = std::array<Support, kDtypes.size()>;  // in the order of kDtypes

struct FunctionSupport {
  std::string name;  // "" for an op that has no functions
  SupportRow dtypes{};
};

struct OpSupport {
  std::string op;
  std::vector<std::string> kernels;
  std::vector<FunctionSupport> functions;  // one for an op that has none

  struct Count {
    int supported = 0, legal = 0;
  };
  Count count(size_t dtype) const;
};

// The built-in ops that the plugin lists, on the first device of its type.
std::vector<OpSupport> probe(const Runtime& runtime, const nw_backend_info& backend);

std::string dtype_text(DLDataType type);  // "float32", "int32 x 4"

}  // namespace narrows::tools
