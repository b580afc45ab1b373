// SPDX-License-Identifier: Apache-2.0
// api.cpp -- the functions of program.h: arguments checked, exceptions turned into statuses, strings kept for their caller. The
// work is in schedule.h, and in libnarrows for what a runtime does.
#include <narrows/program.h>

#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/program/adjoint.h"
#include "core/program/auto.h"
#include "core/program/digest.h"
#include "core/program/saved.h"
#include "core/program/schedule.h"
#include "core/program/text.h"

struct nw_program {
  explicit nw_program(narrows::program::Schedule given) : schedule(std::move(given)) {}

  const char* keep(std::string given) {
    text = std::move(given);
    return text.c_str();
  }
  const char* const* keep(std::vector<std::string> given) {
    names = std::move(given);
    pointers.clear();
    pointers.reserve(names.size() + 1);
    for (const std::string& name : names) pointers.push_back(name.c_str());
    pointers.push_back(nullptr);
    return pointers.data();
  }

  narrows::program::Schedule schedule;
  // What the last call returned.
  std::string text;
  std::vector<std::string> names;
  std::vector<const char*> pointers;
};

namespace {

using narrows::Failure;
using narrows::throw_failure;

template <class Work>
int32_t guarded(nw_error* error, Work&& work) noexcept {
  try {
    work();
    return NW_OK;
  } catch (...) {
    const Failure failure = narrows::caught(nullptr, "tensor program");
    return narrows::write_error(error, failure.status, failure.argument, failure.native_code, failure.message.c_str());
  }
}

template <class T>
T& needed(T* pointer, const char* name) {
  if (pointer == nullptr) throw_failure(NW_INVALID, -1, "%s is NULL; expected a non-NULL pointer", name);
  return *pointer;
}

// That each program is the adjoint of the one before. None is NULL.
void require_adjoints(const nw_program* const* programs, uint32_t count) {
  for (uint32_t i = 1; i < count; ++i) {
    if (!narrows::program::is_adjoint(programs[i]->schedule.original(), programs[i - 1]->schedule.original()))
      throw_failure(NW_INVALID, -1, "programs[%u] is '%s'; expected the adjoint of programs[%u], as nw_program_vjp() gives it", i,
                    programs[i]->schedule.original().name.c_str(), i - 1);
  }
}

// A function of narrows.h, called from here: its failure goes on.
void require(int32_t status, const nw_error& error) {
  if (status != NW_OK) throw Failure{status, error.argument, error.native_code, error.message};
}

const nw_op& loaded(nw_runtime* rt, const narrows::program::Schedule& schedule, const char* backward) {
  const nw_op* op = nullptr;
  nw_error why;
  require(nw_load_program(rt, narrows::program::print(schedule.original()).c_str(), backward, &op, &why), why);
  return *op;
}

int32_t set_schedule(nw_runtime* rt, const nw_op& op, const char* backend, const narrows::program::Schedule& schedule,
                     nw_error* error) {
  return nw_schedule_program(rt, op.name, backend, narrows::program::print(schedule.program()).c_str(), error);
}

std::set<const nw_op*> ops_of(nw_runtime* rt) {
  std::set<const nw_op*> out;
  for (uint32_t i = 0; const nw_op* op = nw_op_at(rt, i); ++i) out.insert(op);
  return out;
}

// A plugin of that name would be taken for the backend.
void refuse_name_of_backend(const std::string& path) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view name : narrows::program::kScheduledBackends)
    if (file == "narrows_" + std::string(name) + ".so")
      throw_failure(NW_INVALID, -1, "path is '%s', the file of a backend of Narrows; expected another name", path.c_str());
}

// Whether a plugin of that name was found, which then chooses again. None is opened: a process that forks later may not want that.
bool is_found(nw_runtime* rt, const nw_op& op, const std::string& backend) {
  return nw_schedule_program(rt, op.name, backend.c_str(), nullptr, nullptr) == NW_OK;
}

// For all plugins that were found, but those in `others`.
void set_default_schedules(nw_runtime* rt, const nw_op& op, const narrows::program::Schedule& original,
                           const std::set<std::string>& others = {}) {
  std::optional<narrows::program::Schedule> for_gpu;  // GPUs share it, but cuda's, whose matrix units it may use
  for (const std::string_view name : narrows::program::kScheduledBackends) {
    const std::string backend(name);
    if (others.count(backend) != 0 || !is_found(rt, op, backend)) continue;
    const bool is_shared = backend != "cpu" && backend != "cuda";
    narrows::program::Schedule schedule = is_shared ? for_gpu.value_or(original) : original;
    if (!is_shared || !for_gpu.has_value()) narrows::program::schedule_by_default(&schedule, backend);
    if (is_shared) for_gpu = schedule;
    nw_error why;
    require(set_schedule(rt, op, backend.c_str(), schedule, &why), why);
  }
}

// A plugin that was not found needs no schedule. One that was found and has none in the saved text takes its default one.
void set_saved_schedules(nw_runtime* rt, const nw_op& op, const narrows::program::SavedProgram& program) {
  std::set<std::string> set;
  for (const auto& [backend, schedule] : program.scheduled) {
    if (!is_found(rt, op, backend)) continue;
    nw_error why;
    require(set_schedule(rt, op, backend.c_str(), schedule, &why), why);
    set.insert(backend);
  }
  set_default_schedules(rt, op, program.original, set);
}

}  // namespace

int32_t nw_program_parse(const char* text, nw_program** out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    *out = new nw_program(narrows::program::Schedule(narrows::program::parse(&needed(text, "text"))));
  });
}

int32_t nw_program_clone(const nw_program* program, nw_program** out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    *out = new nw_program(needed(program, "program").schedule);
  });
}

void nw_program_free(nw_program* program) { delete program; }

int32_t nw_program_step(nw_program* program, const char* step, const char* const** names, nw_error* error) {
  return guarded(error, [&] {
    std::vector<std::string> made = needed(program, "program").schedule.apply(&needed(step, "step"));
    if (names != nullptr) *names = program->keep(std::move(made));
  });
}

int32_t nw_program_auto(nw_program* program, const char* backend, nw_error* error) {
  return guarded(error, [&] {
    needed(program, "program");
    if (!narrows::program::schedule_by_default(&program->schedule, &needed(backend, "backend")))
      throw_failure(NW_UNSUPPORTED, -1, "backend is '%s'; expected 'cpu', 'cuda', 'hip' or 'vulkan', which have a default schedule",
                    backend);
  });
}

int32_t nw_program_print(nw_program* program, const char** text, nw_error* error) {
  return guarded(error, [&] {
    const narrows::program::Program& current = needed(program, "program").schedule.program();
    needed(text, "text") = program->keep(narrows::program::print(current));
  });
}

int32_t nw_program_trace(nw_program* program, const char** trace, nw_error* error) {
  return guarded(error, [&] {
    std::string lines;
    for (const std::string& line : needed(program, "program").schedule.trace()) lines += line + "\n";
    needed(trace, "trace") = program->keep(std::move(lines));
  });
}

int32_t nw_program_name(nw_program* program, const char** name, nw_error* error) {
  return guarded(error, [&] { needed(name, "name") = needed(program, "program").schedule.original().name.c_str(); });
}

int32_t nw_program_digest(nw_program* program, const char** digest, nw_error* error) {
  return guarded(error, [&] {
    std::string hex = narrows::program::digest(needed(program, "program").schedule.original());
    needed(digest, "digest") = program->keep(std::move(hex));
  });
}

int32_t nw_program_blocks(nw_program* program, const char* const** names, nw_error* error) {
  return guarded(error, [&] { needed(names, "names") = needed(program, "program").keep(program->schedule.blocks()); });
}

int32_t nw_program_loops(nw_program* program, const char* block, const char* const** names, nw_error* error) {
  return guarded(error, [&] {
    std::vector<std::string> loops = needed(program, "program").schedule.loops(&needed(block, "block"));
    needed(names, "names") = program->keep(std::move(loops));
  });
}

int32_t nw_program_vjp(const nw_program* program, nw_program** out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    *out = new nw_program(narrows::program::Schedule(narrows::program::adjoint(needed(program, "program").schedule.original())));
  });
}

int32_t nw_program_load(nw_runtime* rt, const nw_program* program, const char* backward, const char* backend, const nw_op** out,
                        nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    const narrows::program::Schedule& schedule = needed(program, "program").schedule;
    needed(rt, "rt");
    const std::set<const nw_op*> before = backend == nullptr ? std::set<const nw_op*>() : ops_of(rt);
    const nw_op& op = loaded(rt, schedule, backward);
    nw_error why;
    if (before.count(&op) == 0)  // a new one, or all are asked for
      set_default_schedules(rt, op, narrows::program::Schedule(schedule.original()));
    if (backend != nullptr) require(set_schedule(rt, op, backend, schedule, &why), why);
    *out = &op;
  });
}

int32_t nw_program_load_saved(nw_runtime* rt, const char* saved, const nw_op** out, nw_error* error) {
  return guarded(error, [&] {
    needed(out, "out");
    const std::vector<narrows::program::SavedProgram> programs = narrows::program::read_saved(&needed(saved, "saved"));
    needed(rt, "rt");
    const std::set<const nw_op*> before = ops_of(rt);
    const nw_op* op = nullptr;  // the adjoint of the program that is next
    for (auto program = programs.rbegin(); program != programs.rend(); ++program) {
      op = &loaded(rt, program->original, op == nullptr ? nullptr : op->name);
      if (before.count(op) == 0) set_saved_schedules(rt, *op, *program);  // else whoever loaded it chose
    }
    *out = op;
  });
}

int32_t nw_program_export(nw_runtime* rt, const nw_program* const* programs, uint32_t num_programs, const char* backend,
                          const char* op, const char* path, nw_error* error) {
  return guarded(error, [&] {
    needed(rt, "rt");
    needed(programs, "programs");
    if (num_programs < 1 || num_programs > 8) throw_failure(NW_INVALID, -1, "num_programs is %u; expected 1 to 8", num_programs);
    for (uint32_t i = 0; i < num_programs; ++i) needed(programs[i], "a program");
    needed(backend, "backend");
    refuse_name_of_backend(&needed(path, "path"));
    require_adjoints(programs, num_programs);
    const auto* exporter = static_cast<const nw_program_exporter*>(nw_extension(rt, backend, "program_export/1"));
    if (exporter == nullptr || exporter->struct_size < sizeof *exporter)
      throw_failure(NW_UNSUPPORTED, -1, "backend is '%s', which is not here, or exports no programs; expected 'cpu'", backend);
    std::vector<std::string> texts;
    std::vector<const char*> pointers;
    texts.reserve(num_programs);
    pointers.reserve(num_programs);
    for (uint32_t i = 0; i < num_programs; ++i) texts.push_back(narrows::program::print(programs[i]->schedule.program()));
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    nw_error why;
    require(exporter->write(exporter->self, pointers.data(), num_programs, op, path, &why), why);
  });
}
