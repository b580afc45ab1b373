// SPDX-License-Identifier: Apache-2.0
// program.cpp -- see program.h.
#include "ops/program/program.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "common/program_bind.h"
#include "common/program_files.h"
#include "common/program_kernels.h"
#include "common/program_launch.h"
#include "core/error.h"
#include "core/program/text.h"
#include "ops/program/compiler.h"
#include "ops/program/source.h"

namespace narrows::gpu {

const char* const kProgramKernels[] = {"compiled", nullptr};

namespace {

// ---- what is kept ----

// A program that was read; for each layout of a call its text, and for each device the module of that.
struct Known {
  KernelProgram program;
  struct Layout {
    std::shared_ptr<const PrintedProgram> source;
    std::map<int, void*> modules;  // by device
  };
  std::map<std::string, Layout> layouts;
};

std::mutex& programs_lock() {
  static std::mutex& lock = *new std::mutex;
  return lock;
}

std::shared_ptr<Known> read(std::string_view text) {
  constexpr size_t kMostKnown = 256;
  static auto& known_programs = *new std::list<std::pair<std::string, std::shared_ptr<Known>>>;  // the one used last in front
  {
    const std::lock_guard hold(programs_lock());
    const auto found =
        std::find_if(known_programs.begin(), known_programs.end(), [&](const auto& entry) { return entry.first == text; });
    if (found != known_programs.end()) {
      known_programs.splice(known_programs.begin(), known_programs, found);
      return found->second;
    }
  }
  auto known = std::make_shared<Known>();
  known->program = make_kernels(ir::parse(text), {});
  const std::lock_guard hold(programs_lock());
  known_programs.emplace_front(std::string(text), known);
  if (known_programs.size() > kMostKnown) known_programs.pop_back();
  return known;
}

// Machine code from the disk, else from the compiler.
std::string code_of(const std::string& text, const Device& device) {
  const std::string target = compiler_target(device);
  const std::string name = hex_digest(text + "\n" + compiler_identity() + "\n" + target) + ".bin";
  const std::string cache = cache_folder(kPluginName);
  std::string code = cache.empty() ? "" : read_sealed(cache + "/" + name);
  if (!code.empty()) return code;
  code = compile_text(text, target);
  if (!cache.empty()) write_sealed(cache, name, code);
  return code;
}

// ---- a call ----

constexpr LaunchLimits limits_of(const Device& device) { return {kMaxBlocks, int64_t{16} * device.multiprocessors, 500}; }

class ProgramPlan : public Plan {
 public:
  ProgramPlan(const Device& device, ProgramLaunches launches, const PrintedProgram& source, void* module)
      : launches_(std::move(launches.launches)) {
    kernel = kProgramKernels[0];
    device_id = device.id;
    workspace_size = launches.workspace_size;
    for (const KernelLaunch& launch : launches_)
      functions_.push_back(module == nullptr ? nullptr : find_in_module(module, source.kernels[launch.kernel].name));
  }

  void launch(const nw_call& call) const override {
    constexpr size_t kFew = 96;
    uint64_t few[kFew];
    for (size_t i = 0; i < launches_.size(); ++i) {
      const KernelLaunch& one = launches_[i];
      std::vector<uint64_t> many(one.numbers.size() > kFew ? one.numbers.size() : 0);
      uint64_t* const numbers = many.empty() ? few : many.data();
      std::memcpy(numbers, one.numbers.data(), one.numbers.size() * sizeof(uint64_t));
      one.set_addresses(call, numbers);
      void* arguments[] = {numbers};
      const Grid grid = {static_cast<unsigned>(one.blocks), static_cast<unsigned>(one.threads), 0, false};
      check(launch_symbol(nullptr, functions_[i], grid, arguments, stream_of(call)), "launching a program's kernel");
      mark_enqueued();
    }
  }

 private:
  std::vector<KernelLaunch> launches_;
  std::vector<gpuFunction_t> functions_;
};

}  // namespace

std::unique_ptr<Plan> plan_program(const Instance& instance, std::string_view text, const nw_sig& sig, bool asks) {
  try {
    (void)forced_kernel(sig, kProgramKernels);
    const Device& device = instance.device(sig);
    (void)compiler_identity();
    const std::shared_ptr<Known> known = read(text);
    Bound bound = bind(known->program.lowered, sig);
    std::list<ir::Buffer> inputs;
    const KernelProgram program = with_copies(known->program, &bound, &inputs);
    const KernelLayout layout = layout_of(program, bound, sig, kMaxBlocks);
    const std::string key = key_of(bound, layout);
    std::shared_ptr<const PrintedProgram> source;
    void* module = nullptr;
    {
      const std::lock_guard hold(programs_lock());
      if (const auto found = known->layouts.find(key); found != known->layouts.end()) {
        source = found->second.source;
        if (const auto loaded = found->second.modules.find(device.id); loaded != found->second.modules.end())
          module = loaded->second;
      }
    }
    if (source == nullptr) source = std::make_shared<const PrintedProgram>(print_gpu(program, bound, layout));
    if (module == nullptr && !asks && !bound.is_empty) module = load_module(code_of(source->text, device));
    {
      const std::lock_guard hold(programs_lock());
      Known::Layout& kept = known->layouts[key];
      kept.source = source;
      if (module != nullptr) kept.modules[device.id] = module;
    }
    return std::make_unique<ProgramPlan>(device, plan_launches(program, bound, *source, limits_of(device)), *source, module);
  } catch (const narrows::Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

namespace {

std::string first_line() {
  const std::string begin = std::string("// ") + kPluginName;
  try {
    return begin + ": kernel 'compiled' runs, made by " + compiler_description() + "\n";
  } catch (const Refusal& refusal) {
    return begin + ": no kernel runs: " + refusal.message + "\n";
  }
}

}  // namespace

std::string source_of_program(std::string_view text) {
  try {
    const KernelProgram program = make_kernels(ir::parse(text), {});
    const Bound bound = any_call(program.lowered);
    return first_line() + print_gpu(program, bound, {}).text;
  } catch (const narrows::Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::gpu
