// SPDX-License-Identifier: Apache-2.0
// program.cpp -- see program.h.
#include "ops/program/program.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "common/program_bind.h"
#include "common/program_files.h"
#include "common/program_kernels.h"
#include "common/program_launch.h"
#include "common/recent.h"
#include "core/error.h"
#include "core/program/text.h"
#include "ops/program/compiler.h"
#include "ops/program/source.h"

namespace narrows::gpu {

const char* const kProgramKernels[] = {"compiled", nullptr};

namespace {

// ---- what is kept ----

// A program that was read; for each layout of a call its text, and for each device the module of that.
// No std::map: clang 15 fails on its pairs when it compiles for AMD's GPUs.
struct Module {
  int device;
  void* code;
};
struct Layout {
  std::shared_ptr<const PrintedProgram> source;
  std::vector<Module> modules;
  void* module_on(int device) const {
    const auto found = std::find_if(modules.begin(), modules.end(), [&](const Module& one) { return one.device == device; });
    return found == modules.end() ? nullptr : found->code;
  }
};
struct Known {
  KernelProgram program;
  common::Recent<Layout> layouts{4096};
};

std::mutex& programs_lock() {
  static std::mutex& lock = *new std::mutex;
  return lock;
}

using Programs = common::Recent<Known>;

// Those that were read for devices of these limits. Under the lock.
Programs& programs_for(const GpuLimits& limits) {
  struct Kind {
    explicit Kind(const GpuLimits& limits) : limits(limits) {}  // clang 15 makes none of its own
    GpuLimits limits;
    Programs programs{256};
  };
  static auto& kinds = *new std::list<Kind>;
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.limits == limits; });
  return found == kinds.end() ? kinds.emplace_back(limits).programs : found->programs;
}

std::shared_ptr<Known> read(std::string_view text, const GpuLimits& limits) {
  {
    const std::lock_guard hold(programs_lock());
    if (std::shared_ptr<Known> found = programs_for(limits).find(text); found != nullptr) return found;
  }
  auto known = std::make_shared<Known>();
  known->program = make_kernels(ir::parse(text), limits);
  std::shared_ptr<Known> dropped;  // freed without the lock
  const std::lock_guard hold(programs_lock());
  dropped = programs_for(limits).keep(text, known);
  return known;
}

// Machine code from the disk, else from the compiler.
std::string code_of(const std::string& text, const std::string& target) {
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
      functions_.push_back(module == nullptr ? nullptr
                                             : find_in_module(module, source.kernels[launch.kernel].name, launch.shared_bytes));
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
      const Grid grid = {static_cast<unsigned>(one.blocks), static_cast<unsigned>(one.threads),
                         static_cast<size_t>(one.shared_bytes), false};
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
    const std::string target = compiler_target(device);
    const std::shared_ptr<Known> known = read(text, limits_for_programs(device, target));
    Bound bound = bind(known->program.lowered, sig);
    std::list<ir::Buffer> inputs;
    const KernelProgram program = with_copies(known->program, &bound, &inputs);
    const KernelLayout layout = layout_of(program, bound, sig, kMaxBlocks);
    const std::string key = key_of(bound, layout);
    std::shared_ptr<const PrintedProgram> source;
    void* module = nullptr;
    {
      const std::lock_guard hold(programs_lock());
      if (const std::shared_ptr<Layout> found = known->layouts.find(key); found != nullptr)
        source = found->source, module = found->module_on(device.id);
    }
    if (source == nullptr) source = std::make_shared<const PrintedProgram>(print_gpu(program, bound, layout));
    if (module == nullptr && !asks && !bound.is_empty) module = load_module(code_of(source->text, target));
    {
      const std::lock_guard hold(programs_lock());
      std::shared_ptr<Layout> kept = known->layouts.find(key);
      if (kept == nullptr) known->layouts.keep(key, kept = std::make_shared<Layout>(Layout{source, {}}));
      if (module != nullptr && kept->module_on(device.id) == nullptr) kept->modules.push_back({device.id, module});
    }
    return std::make_unique<ProgramPlan>(device, plan_launches(program, bound, *source, limits_of(device)), *source, module);
  } catch (const narrows::Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

namespace {

// The text is that of a device with every unit: an H100's or H200's.
const Device& device_with_all() {
  static const Device device = [] {
    Device out{};
    out.compute_capability = 90;
    out.shared_memory = 227 << 10;
    return out;
  }();
  return device;
}

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
    const KernelProgram program = make_kernels(ir::parse(text), limits_for_programs(device_with_all(), "sm_90a"));
    const Bound bound = any_call(program.lowered);
    return first_line() + print_gpu(program, bound, {}).text;
  } catch (const narrows::Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::gpu
