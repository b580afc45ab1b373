// SPDX-License-Identifier: Apache-2.0
// lower.h -- what the targets of programs do with one that they take for good: it is lowered, bound to the tensors of a call and
// printed as C.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/program_bind.h"
#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/text.h"
#include "core/program/types.h"
#include "finding.h"
#include "program/c_source.h"

namespace narrows::fuzz {

using program::Buffer;
using program::DType;

constexpr size_t kMaxText = size_t{16} << 20;
constexpr int64_t kSizes[] = {4, 0, 1, 7, 33, int64_t{1} << 62};  // the last one overflows with most others

inline DLDataType dl_dtype(DType dtype) {
  const uint8_t code = dtype == DType::boolean     ? uint8_t{kDLBool}
                       : dtype == DType::bf16      ? uint8_t{kDLBfloat}
                       : program::is_float(dtype)  ? uint8_t{kDLFloat}
                       : program::is_signed(dtype) ? uint8_t{kDLInt}
                                                   : uint8_t{kDLUInt};
  return {code, static_cast<uint8_t>(program::bits_of(dtype)), 1};
}

// A call's tensors, dense, of shapes that the sizes give.
class Signature {
 public:
  Signature(const program::Program& program, size_t choice) : params_(program.params.size() * 8) {
    std::map<std::string, int64_t> sizes;
    for (const std::string& name : program::sizes_of(program)) sizes[name] = kSizes[choice++ % std::size(kSizes)];
    for (const program::Param& param : program.params)
      if (program::is_integer(param.dtype)) sizes[param.name] = 0;
    for (const Buffer& tensor : program.tensors)
      if (tensor.role != Buffer::Role::output) add(tensor, sizes);
    num_inputs_ = tensors_.size();
    for (const Buffer& tensor : program.tensors)
      if (tensor.role != Buffer::Role::input) add(tensor, sizes);
  }

  nw_sig sig() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].shape = shapes_[i].data();
      tensors_[i].strides = strides_[i].data();
    }
    return {sizeof(nw_sig),
            0,
            static_cast<uint32_t>(num_inputs_),
            static_cast<uint32_t>(tensors_.size() - num_inputs_),
            "program.fuzz",
            nullptr,
            tensors_.data(),
            params_.data(),
            params_.size(),
            {kDLCPU, 0}};
  }

 private:
  void add(const Buffer& tensor, const std::map<std::string, int64_t>& sizes) {
    std::vector<int64_t> shape, strides(tensor.shape.size());
    for (const program::ExprPtr& extent : tensor.shape) shape.push_back(program::evaluate(extent, sizes));
    uint64_t next = 1;
    for (size_t d = shape.size(); d-- > 0; next *= static_cast<uint64_t>(shape[d])) strides[d] = static_cast<int64_t>(next);
    tensors_.push_back({dl_dtype(tensor.dtype), static_cast<int32_t>(shape.size()), 8, 0, -1, nullptr, nullptr});
    shapes_.push_back(std::move(shape));
    strides_.push_back(std::move(strides));
  }

  std::vector<std::vector<int64_t>> shapes_, strides_;
  std::vector<nw_tensor_sig> tensors_;
  std::vector<unsigned char> params_;
  size_t num_inputs_ = 0;
};

inline void lower_and_print(const program::Program& program, size_t choice) {
  Signature signature(program, choice);
  const nw_sig sig = signature.sig();
  const common::Lowered lowered = common::lower(program);
  const common::Bound bound = common::bind(lowered, sig);
  for (const int bytes : {16, 32, 64}) {
    const cpu::CSource source = cpu::print_c(bound, {.vector_bytes = bytes, .fuses = bytes > 16, .rounds = bytes > 16});
    if (source.text.size() > kMaxText)
      finding("%zu bytes of C of a program of %zu", source.text.size(), program::print(program).size());
  }
}

// Lowers and prints it, or demands a refusal with a message.
inline void lower_or_refuse(const program::Program& program, size_t choice) {
  try {
    lower_and_print(program, choice);
  } catch (const Failure& failure) {
    if (failure.status == NW_FAILED || failure.message.empty()) finding("status %d, '%s'", failure.status, failure.message.c_str());
  } catch (const common::Refusal& refusal) {
    if (refusal.status == NW_FAILED || refusal.message.empty()) finding("status %d, '%s'", refusal.status, refusal.message.c_str());
  }
}

}  // namespace narrows::fuzz
