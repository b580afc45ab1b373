// SPDX-License-Identifier: Apache-2.0
// runtime_programs.cpp -- the tensor programs of a runtime: see runtime.h and program_op.h.
#include <algorithm>

#include "core/program_op.h"
#include "core/runtime.h"

using narrows::ProgramOp;
using narrows::ProgramTexts;
using narrows::throw_failure;

const nw_op& nw_runtime::load_program(const std::string& text, const char* backward) {
  const ProgramOp* gradient = nullptr;
  if (backward != nullptr) {
    gradient = find_program(backward);
    if (gradient == nullptr)
      throw_failure(NW_INVALID, -1, "backward = '%s'; expected the op of a program that was loaded before", backward);
  }
  auto made = std::make_unique<ProgramOp>(text, gradient);  // without the lock: a text may be long
  const std::lock_guard lock(mutex_);
  const std::string name = made->name(), canonical = made->text();
  // One that is there stays: what was given out lives as long as the runtime.
  const ProgramOp& known = *programs_.try_emplace(name, std::move(made)).first->second;
  if (known.text() != canonical)
    throw_failure(NW_INVALID, -1, "the digest of this program gives it the name '%s', which another program has", name.c_str());
  return known.contract().op;
}

void nw_runtime::schedule_program(const std::string& op, const std::string& backend, const char* scheduled) {
  const ProgramOp* const known = find_program(op);
  if (known == nullptr) throw_failure(NW_INVALID, -1, "op = '%s'; expected that of a program that was loaded before", op.c_str());
  const auto all = backends();
  if (std::none_of(all.begin(), all.end(), [&](const narrows::Backend* each) { return each->name() == backend; }))
    throw_failure(NW_INVALID, -1, "backend = '%s'; expected the name of a plugin that was found", backend.c_str());
  std::shared_ptr<const std::string> text;
  if (scheduled != nullptr) text = std::make_shared<const std::string>(known->read_schedule(scheduled));
  {
    const std::lock_guard lock(mutex_);
    programs_.at(op)->schedule(backend, std::move(text));
  }
  cache_->clear();  // it has plans of the schedule before
}

const ProgramOp* nw_runtime::find_program(const std::string& op) const {
  if (!narrows::is_program_name(op)) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = programs_.find(op);
  return found == programs_.end() ? nullptr : found->second.get();
}

std::vector<const ProgramOp*> nw_runtime::programs() const {
  const std::lock_guard lock(mutex_);
  std::vector<const ProgramOp*> out;
  out.reserve(programs_.size());
  for (const auto& [name, program] : programs_) out.push_back(program.get());
  return out;
}

ProgramTexts nw_runtime::texts_of(const ProgramOp& program, const std::string& backend) const {
  const std::lock_guard lock(mutex_);
  return program.texts_for(backend);
}
