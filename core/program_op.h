// SPDX-License-Identifier: Apache-2.0
// program_op.h -- a tensor program as an op: its declaration, made of its text, and how the plugins are to run it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/contract.h"
#include "core/program/ir.h"

namespace narrows {

// The name of every op that is one begins with this.
inline constexpr const char* kProgramPrefix = "program.";
inline bool is_program_name(const std::string& op) { return op.rfind(kProgramPrefix, 0) == 0; }

// What a plugin plans from.
struct ProgramTexts {
  std::shared_ptr<const std::string> text;
  std::shared_ptr<const std::string> scheduled;  // none: the plugin chooses
};

class ProgramOp {
 public:
  // `backward` differentiates it; NULL: nothing does. Throws Failure: the text is none, or `backward` does not fit it.
  ProgramOp(const std::string& text, const ProgramOp* backward);
  ProgramOp(const ProgramOp&) = delete;

  const std::string& name() const { return name_; }
  const std::string& text() const { return *text_; }
  const Contract& contract() const { return *contract_; }

  // By the name of a plugin. The runtime guards these two with its lock.
  ProgramTexts texts_for(const std::string& backend) const;
  void schedule(const std::string& backend, std::shared_ptr<const std::string> scheduled);

  // The canonical text of a schedule; throws Failure where it is not of this program's name, tensors and params.
  std::string read_schedule(const std::string& text) const;

 private:
  void add_tensor(const program::Buffer& tensor);
  void add_param(const program::Param& param);
  nw_op declare();
  void differentiate_by(const ProgramOp& backward);
  void require(const std::string& tensor, DLDataType found, DLDataType expected, const char* role, const std::string& of) const;
  void require_input(size_t input, DLDataType expected, const char* role, const std::string& of) const;
  bool reads(uint32_t input) const;

  program::Program program_;
  std::shared_ptr<const std::string> text_;
  std::string name_, rule_, batch_, backward_;
  std::vector<std::string> input_names_, output_names_;
  std::vector<const char*> inputs_, outputs_;
  std::vector<DLDataType> input_dtypes_, output_dtypes_;
  std::vector<int32_t> inplace_;  // for each output the input that it may be
  std::vector<nw_param> fields_;
  std::vector<const nw_param*> params_;
  uint64_t saved_ = 0;
  std::optional<Contract> contract_;  // made last, of all that stands above
  std::map<std::string, std::shared_ptr<const std::string>> schedules_;
};

}  // namespace narrows
