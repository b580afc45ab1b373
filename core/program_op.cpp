// SPDX-License-Identifier: Apache-2.0
// program_op.cpp -- see program_op.h.
#include "core/program_op.h"

#include "core/program/batch.h"
#include "core/program/digest.h"
#include "core/program/dtype.h"
#include "core/program/rule.h"
#include "core/program/text.h"
#include "core/program/walk.h"

namespace narrows {
namespace {

std::vector<const char*> pointers(const std::vector<std::string>& names) {
  std::vector<const char*> out;
  out.reserve(names.size() + 1);
  for (const std::string& name : names) out.push_back(name.c_str());
  out.push_back(nullptr);
  return out;
}

// Of the names of a call's tensors: with '?' where one may be absent.
std::string declared(const program::Buffer& tensor) { return tensor.name + (tensor.optional ? "?" : ""); }

}  // namespace

ProgramOp::ProgramOp(const std::string& text, const ProgramOp* backward) : program_(program::parse(text)) {
  text_ = std::make_shared<const std::string>(program::print(program_));
  if (backward != nullptr) backward_ = backward->name();
  name_ = kProgramPrefix + program_.name + "_" + program::digest_of(*text_ + backward_) + "/1";
  for (const program::Buffer& tensor : program_.tensors) add_tensor(tensor);
  for (const program::Param& param : program_.params) add_param(param);
  params_.reserve(fields_.size() + 1);
  for (const nw_param& field : fields_) params_.push_back(&field);
  params_.push_back(nullptr);
  inputs_ = pointers(input_names_);
  outputs_ = pointers(output_names_);
  rule_ = program::shape_rule_of(program_);
  batch_ = program::batch_of(program_);
  if (backward != nullptr) differentiate_by(*backward);
  contract_.emplace(declare());
  contract_->inplace = inplace_;
}

void ProgramOp::add_tensor(const program::Buffer& tensor) {
  const bool is_input = tensor.role != program::Buffer::Role::output, is_output = tensor.role != program::Buffer::Role::input;
  if (is_output) {
    output_names_.push_back(declared(tensor));
    output_dtypes_.push_back(program::dlpack_of(tensor.dtype));
    inplace_.push_back(is_input ? static_cast<int32_t>(input_names_.size()) : -1);
  }
  if (is_input) {
    input_names_.push_back(declared(tensor));
    input_dtypes_.push_back(program::dlpack_of(tensor.dtype));
  }
}

void ProgramOp::add_param(const program::Param& param) {
  constexpr uint32_t kFieldBytes = 8;
  nw_param field{};
  field.name = param.name.c_str();
  field.offset = static_cast<uint32_t>(fields_.size()) * kFieldBytes;
  const bool real = program::is_float(param.dtype);
  field.dtype = real                                     ? DLDataType{kDLFloat, 64, 1}
                : param.dtype == program::DType::boolean ? DLDataType{kDLBool, 8, 1}
                                                         : kInt64Field;
  field.initial = real ? param.value->real : static_cast<double>(param.value->integer);
  fields_.push_back(field);
}

nw_op ProgramOp::declare() {
  nw_op op{};
  op.struct_size = sizeof op;
  op.name = name_.c_str();
  op.max_inputs = static_cast<uint32_t>(input_names_.size());
  for (uint32_t i = 0; i < op.max_inputs; ++i)
    if (input_names_[i].back() != '?') op.min_inputs = i + 1;
  op.num_outputs = static_cast<uint32_t>(output_names_.size());
  op.inputs = inputs_.data();
  op.outputs = outputs_.data();
  op.params_size = fields_.size() * sizeof(int64_t);
  op.params = fields_.empty() ? nullptr : params_.data();
  op.shape_rule = rule_.c_str();
  op.batch = batch_.empty() ? nullptr : batch_.c_str();
  op.input_dtypes = input_dtypes_.data();
  op.output_dtypes = output_dtypes_.data();
  op.backward = backward_.empty() ? nullptr : backward_.c_str();
  op.saved = saved_;
  for (const int32_t input : inplace_)
    if (input >= 0) op.flags = NW_OP_INPLACE;
  return op;
}

// Its inputs are the gradients of all outputs, then the inputs and the outputs; its outputs the gradients of the inputs.
void ProgramOp::differentiate_by(const ProgramOp& backward) {
  const nw_op& op = backward.contract_->op;
  const size_t inputs = input_names_.size(), outputs = output_names_.size();
  if (op.max_inputs != 2 * outputs + inputs || op.num_outputs != inputs)
    throw_failure(
        NW_INVALID, -1,
        "program '%s': backward '%s' takes %u inputs and gives %u outputs; expected %zu, the gradient of each output, each input "
        "and "
        "each output, and %zu, the gradient of each input",
        program_.name.c_str(), op.name, op.max_inputs, op.num_outputs, 2 * outputs + inputs, inputs);
  for (size_t i = 0; i < outputs; ++i) {
    backward.require_input(i, output_dtypes_[i], "the gradient of output", output_names_[i]);
    backward.require_input(outputs + inputs + i, output_dtypes_[i], "output", output_names_[i]);
  }
  for (size_t i = 0; i < inputs; ++i) {
    backward.require_input(outputs + i, input_dtypes_[i], "input", input_names_[i]);
    backward.require(backward.output_names_[i], backward.output_dtypes_[i], input_dtypes_[i], "the gradient of input",
                     input_names_[i]);
    if (backward.reads(static_cast<uint32_t>(outputs + i))) saved_ |= uint64_t{1} << i;
  }
  for (size_t i = 0; i < outputs; ++i)
    if (backward.reads(static_cast<uint32_t>(outputs + inputs + i))) saved_ |= uint64_t{1} << (32 + i);
}

// This one differentiates another, of which the tensor is that one there.
void ProgramOp::require(const std::string& tensor, DLDataType found, DLDataType expected, const char* role,
                        const std::string& of) const {
  if (same(found, expected)) return;
  throw_failure(NW_INVALID, -1,
                "backward '%s': '%s' is of %s; expected %s, for it is %s '%s': a tensor and its gradient have one dtype",
                name_.c_str(), tensor.c_str(), show_dtype(found).c_str(), show_dtype(expected).c_str(), role, of.c_str());
}
void ProgramOp::require_input(size_t input, DLDataType expected, const char* role, const std::string& of) const {
  require(input_names_[input], input_dtypes_[input], expected, role, of);
}

// Does the program need that input? One that has to be there it does; it may have to for its shape alone.
bool ProgramOp::reads(uint32_t input) const {
  std::string name = input_names_[input];
  if (name.back() != '?') return true;
  name.pop_back();
  return program::uses_tensor(program_, name);
}

ProgramTexts ProgramOp::texts_for(const std::string& backend) const {
  const auto found = schedules_.find(backend);
  return {text_, found == schedules_.end() ? nullptr : found->second};
}

void ProgramOp::schedule(const std::string& backend, std::shared_ptr<const std::string> scheduled) {
  if (scheduled == nullptr)
    schedules_.erase(backend);
  else
    schedules_[backend] = std::move(scheduled);
}

std::string ProgramOp::read_schedule(const std::string& text) const {
  const program::Program scheduled = program::parse(text);
  if (program::print_header(scheduled) != program::print_header(program_))
    throw_failure(NW_INVALID, -1, "the schedule of %s is of another program: it begins with\n%s\nexpected\n%s", name_.c_str(),
                  program::print_header(scheduled).c_str(), program::print_header(program_).c_str());
  return program::print(scheduled);
}

}  // namespace narrows
