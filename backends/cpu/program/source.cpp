// SPDX-License-Identifier: Apache-2.0
// source.cpp -- extension nw_program_source: the C text of a program, for a reader.
#include <narrows/program.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "common/program_bind.h"
#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/text.h"
#include "program/program.h"

namespace narrows::cpu {
namespace {

using Role = ir::Buffer::Role;

constexpr int64_t kSize = 64;  // of every size: the text does not depend on it

DLDataType dtype_of(ir::DType dtype) {
  const auto bits = static_cast<uint8_t>(ir::bits_of(dtype));
  if (dtype == ir::DType::boolean) return {kDLBool, bits, 1};
  if (dtype == ir::DType::bf16) return {kDLBfloat, bits, 1};
  if (ir::is_float(dtype)) return {kDLFloat, bits, 1};
  return {static_cast<uint8_t>(ir::is_signed(dtype) ? kDLInt : kDLUInt), bits, 1};
}

// The signature of a call with dense tensors, all of them there.
class DenseCall {
 public:
  explicit DenseCall(const ir::Program& program) {
    read_numbers(program);
    for (const ir::Buffer& tensor : program.tensors)
      if (tensor.role != Role::output) add(tensor, -1);
    sig_.num_inputs = static_cast<uint32_t>(tensors_.size());
    int32_t input = 0;
    for (const ir::Buffer& tensor : program.tensors) {
      if (tensor.role != Role::input) add(tensor, tensor.role == Role::inout ? input : -1);
      if (tensor.role != Role::output) ++input;
    }
    sig_.struct_size = sizeof sig_;
    sig_.num_outputs = static_cast<uint32_t>(tensors_.size()) - sig_.num_inputs;
    sig_.op = program.name.c_str();
    sig_.tensors = tensors_.data();
    sig_.params = params_.data();
    sig_.params_size = params_.size() * sizeof(int64_t);
    sig_.device = {kDLCPU, 0};
  }

  const nw_sig& sig() const { return sig_; }

 private:
  void read_numbers(const ir::Program& program) {
    for (const ir::Param& param : program.params) {
      int64_t field = param.value->integer;
      if (ir::is_float(param.dtype)) std::memcpy(&field, &param.value->real, sizeof field);
      params_.push_back(field);
      numbers_[param.name] = param.value->integer;
    }
    for (const ir::Buffer& tensor : program.tensors)
      for (const ir::ExprPtr& dim : tensor.shape)
        if (dim->kind == ir::Expr::Kind::name) numbers_.try_emplace(dim->name, kSize);
  }

  void add(const ir::Buffer& tensor, int32_t alias_of) {
    std::vector<int64_t>& shape = sizes_.emplace_back();
    for (const ir::ExprPtr& dim : tensor.shape) shape.push_back(ir::evaluate(dim, numbers_));
    std::vector<int64_t>& strides = sizes_.emplace_back(shape.size(), 1);
    for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(shape[d], 1);
    nw_tensor_sig sig{};
    sig.dtype = dtype_of(tensor.dtype);
    sig.ndim = static_cast<int32_t>(shape.size());
    sig.align_log2 = 8;
    sig.alias_of = alias_of;
    sig.shape = shape.data();
    sig.strides = strides.data();
    tensors_.push_back(sig);
  }

  common::Numbers numbers_;
  std::vector<int64_t> params_;
  std::deque<std::vector<int64_t>> sizes_;  // a shape, its strides, the next one's; none of them moves
  std::vector<nw_tensor_sig> tensors_;
  nw_sig sig_{};
};

std::string first_line(const Instance& instance) {
  if (CCompiler::is_present()) return std::string("// cpu: kernel 'compiled' runs, for ") + instance.target + "\n";
  return "// cpu: kernel 'interpreter' runs, for there is no C compiler; 'compiled' would be\n";
}

}  // namespace

std::string source_of_program(const Instance& instance, std::string_view text) {
  try {
    const common::Lowered lowered = common::lower(ir::parse(text));
    const DenseCall call(lowered.program);
    return first_line(instance) + print_c(common::bind(lowered, call.sig()), c_target(instance)).text;
  } catch (const Failure& failure) {
    throw common::Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::cpu
