// SPDX-License-Identifier: Apache-2.0
// params.h -- an op's params, read of the attributes of a node.
#pragma once

#include <narrows/narrows.h>
#include <onnxruntime_c_api.h>

#include <vector>

namespace narrows::onnxruntime {

// The params of a node; a field that no attribute names has its declared value. std::invalid_argument: an attribute is of the wrong
// type, length or range.
std::vector<unsigned char> read_params(const nw_op& op, const OrtApi& api, const OrtKernelInfo* info);

}  // namespace narrows::onnxruntime
