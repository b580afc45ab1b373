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
#include "common/program_launch.h"
#include "common/recent.h"
#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/text.h"
#include "ops/program/compiler.h"
#include "ops/program/source.h"

namespace narrows::vulkan {

const char* const kProgramKernels[] = {"compiled", nullptr};

namespace {

using common::Bound;
using common::GpuLimits;
using common::KernelLaunch;
using common::KernelLayout;
using common::KernelProgram;
using common::KernelSource;
using common::Node;
using common::Numbers;
using common::PrintedProgram;
using common::ProgramLaunches;

// Of a launch: what every device has in x, so that no grid is folded. Of more blocks each takes several.
constexpr int64_t kMostBlocks = 65'535;
// With parts of the workspace.
constexpr int64_t kResidentBlocks = 1024;
constexpr size_t kMostSlots = Recorder::kMaxParams / sizeof(uint64_t);

// What programs are printed for.
struct Target {
  GpuLimits limits;
  ProductUnits products;
};

// A device's matrix unit for one intrinsic, or why there is none.
void add_unit(Target* target, const PhysicalDevice& device, const char* intrinsic, const char* factor, MatrixUnit* unit,
              std::initializer_list<const char*> extensions) {
  std::string why;
  if (!*unit) why = std::string(device.properties.deviceName) + " has no matrices of " + factor + " with sums in f32";
  for (const char* extension : extensions)
    if (why.empty() && !compiler_knows(extension))
      why = std::string("this shaderc does not know ") + extension + "; NARROWS_SHADERC may name a newer one";
  if (why.empty()) return;
  *unit = {};
  target->limits.no_unit[intrinsic] = why;
}

Target target_of(const PhysicalDevice& device, std::string_view text) {
  const VkPhysicalDeviceLimits& limits = device.properties.limits;
  Target out;
  out.limits.threads =
      std::min({out.limits.threads, int64_t{limits.maxComputeWorkGroupInvocations}, int64_t{limits.maxComputeWorkGroupSize[0]}});
  out.limits.shared_bytes = std::min(out.limits.shared_bytes, int64_t{limits.maxComputeSharedMemorySize});
  if (text.find("tensorize") == std::string_view::npos) return out;
  MatrixUnits& units = out.products.units = device.matrix_units;
  add_unit(&out, device, "mma.f16.f32", "f16", &units.f16, {"GL_KHR_cooperative_matrix"});
  add_unit(&out, device, "mma.bf16.f32", "bf16", &units.bf16, {"GL_KHR_cooperative_matrix", "GL_EXT_bfloat16"});
  out.limits.unit_lanes = unit_lanes(units);
  out.products.shared_bytes = out.limits.shared_bytes;
  out.products.in_step = device.is_cpu();
  return out;
}

std::string key_of(const Target& target) {
  std::string out = std::to_string(target.limits.threads) + " " + std::to_string(target.limits.shared_bytes) + " " +
                    std::to_string(int{target.products.in_step});
  for (const MatrixUnit& unit : {target.products.units.f16, target.products.units.bf16})
    for (const uint32_t part : {unit.m, unit.n, unit.k, unit.subgroup, uint32_t{unit.has_narrow}})
      out += " " + std::to_string(part);
  return out;
}

// ---- what is kept ----

// A program that was read; for each layout of a call its text and the shaders made of it.
struct Known {
  KernelProgram program;
  struct Layout {
    std::shared_ptr<const PrintedProgram> source;
    std::vector<const Shader*> shaders;  // one for each kernel, or none yet
  };
  std::map<std::string, Layout> layouts;
};

std::mutex& programs_lock() {
  static std::mutex& lock = *new std::mutex;
  return lock;
}

std::shared_ptr<Known> read(std::string_view text, const Target& target) {
  static auto& known_programs = *new common::Recent<Known>(256);
  const std::string key = key_of(target) + "\n" + std::string(text);
  {
    const std::lock_guard hold(programs_lock());
    if (std::shared_ptr<Known> found = known_programs.find(key); found != nullptr) return found;
  }
  auto known = std::make_shared<Known>();
  known->program = common::make_kernels(ir::parse(text), target.limits);
  std::shared_ptr<Known> dropped;  // freed without the lock
  const std::lock_guard hold(programs_lock());
  dropped = known_programs.keep(key, known);
  return known;
}

// SPIR-V from the disk, else from the compiler.
std::string code_of(const std::string& text, const std::string& digest) {
  const std::string name = digest + ".spv", cache = common::cache_folder("vulkan");
  std::string code = cache.empty() ? "" : common::read_sealed(cache + "/" + name);
  if (!code.empty() && code.size() % sizeof(uint32_t) == 0) return code;
  code = compile_glsl(text);
  if (!cache.empty()) common::write_sealed(cache, name, code);
  return code;
}

// The shader of a kernel's text. It stays as long as the process: pipelines are found by where it lies.
const Shader* shader_of(const std::string& text) {
  static auto& made = *new std::map<std::string, const Shader*>;  // by digest
  const std::string digest = common::hex_digest(text + "\n" + compiler_identity());
  {
    const std::lock_guard hold(programs_lock());
    if (const auto found = made.find(digest); found != made.end()) return found->second;
  }
  const std::string code = code_of(text, digest);
  auto words = std::make_unique<uint32_t[]>(code.size() / sizeof(uint32_t));
  std::memcpy(words.get(), code.data(), code.size());
  const std::lock_guard hold(programs_lock());
  const Shader*& shader = made[digest];
  if (shader == nullptr) shader = new Shader{"program", words.release(), code.size()};
  return shader;
}

// ---- a call ----

// The most iterations of loops that a thread takes for an expression of loops and sizes, which is largest where the loops begin or
// end.
double extent_of(const ir::ExprPtr& extent, const Numbers& first, const Numbers& last) {
  return static_cast<double>(std::max<int64_t>({0, ir::evaluate(extent, first), ir::evaluate(extent, last)}));
}
double iterations_of(const std::vector<Node>& body, Numbers* first, Numbers* last) {
  double out = 0;
  for (const Node& node : body) {
    if (node.kind != Node::Kind::loop) continue;
    const double extent = extent_of(node.extent, *first, *last);
    (*first)[node.name] = 0;
    (*last)[node.name] = std::max<int64_t>(0, static_cast<int64_t>(extent) - 1);
    out += extent * (1 + iterations_of(node.body, first, last));
  }
  return out;
}

// Some drivers on a CPU end a thread's loops early: docs/internals/vulkan.md.
void check_loops(Device& device, const KernelProgram& program, const Bound& bound, const KernelLaunch& launch) {
  const common::Kernel& kernel = program.kernels[launch.kernel];
  Numbers first = bound.numbers, last = bound.numbers;
  double blocks = 1;
  for (const auto* loops : {&kernel.blocks, &kernel.flat})
    for (const common::KernelLoop& loop : *loops) {
      const int64_t extent = ir::evaluate(loop.extent, bound.numbers);
      blocks *= static_cast<double>(extent);
      first[loop.name] = 0;
      last[loop.name] = std::max<int64_t>(0, extent - 1);
    }
  for (const common::KernelLoop& loop : kernel.threads) {
    first[loop.name] = 0;
    last[loop.name] = std::max<int64_t>(0, ir::evaluate(loop.extent, bound.numbers) - 1);
  }
  if (!kernel.is_bound) blocks /= static_cast<double>(launch.threads);
  const double turns = std::max(1.0, blocks / static_cast<double>(launch.blocks));
  device.check_loops(turns * (1 + iterations_of(kernel.body, &first, &last)));
}

class ProgramPlan final : public DevicePlan {
 public:
  ProgramPlan(Device& on, ProgramLaunches launches, const std::vector<const Shader*>& shaders)
      : DevicePlan(on), launches_(std::move(launches.launches)) {
    kernel = kProgramKernels[0];
    workspace_size = launches.workspace_size;
    for (const KernelLaunch& launch : launches_)
      kernels_.push_back(shaders.empty() ? Kernel{} : on.kernels().get(*shaders[launch.kernel]));
  }

  void record(Recorder& recorder, const nw_call& call) const override {
    for (size_t i = 0; i < launches_.size(); ++i) {
      Push push{};
      const std::vector<uint64_t>& numbers = launches_[i].numbers;
      if (numbers.size() <= kPushSlots) {
        std::copy(numbers.begin(), numbers.end(), push.numbers);
        launches_[i].set_addresses(call, push.numbers);
      } else {
        std::vector<uint64_t> all = numbers;
        launches_[i].set_addresses(call, all.data());
        push.numbers[0] = recorder.params(all.data(), all.size() * sizeof(uint64_t));
      }
      recorder.dispatch_rows(kernels_[i], push, launches_[i].blocks, 1);
    }
  }

 private:
  struct Push {
    uint64_t numbers[kPushSlots];
  };
  std::vector<KernelLaunch> launches_;
  std::vector<Kernel> kernels_;
};

void check_params(const KernelProgram& program, const ProgramLaunches& launches) {
  uint64_t bytes = 0;
  for (const KernelLaunch& launch : launches.launches)
    if (launch.numbers.size() > kPushSlots) bytes += round_up(launch.numbers.size() * sizeof(uint64_t), 64);
  if (bytes > Recorder::kMaxParams)
    refuse(NW_UNSUPPORTED, -1, "%s: its kernels need %llu bytes of numbers and addresses; expected at most %llu",
           program.lowered.program.name.c_str(), static_cast<unsigned long long>(bytes),
           static_cast<unsigned long long>(Recorder::kMaxParams));
}

void check_f64(const PhysicalDevice& device, const KernelProgram& program, const PrintedProgram& source) {
  if (source.text.find("#define NARROWS_FLOAT64") != std::string::npos && device.features.shaderFloat64 == VK_FALSE)
    refuse(NW_UNSUPPORTED, -1, "%s: %s lacks shaderFloat64, which f64 needs", program.lowered.program.name.c_str(),
           device.properties.deviceName);
}

std::unique_ptr<Plan> plan(Device& device, std::string_view text, const nw_sig& sig, bool asks) {
  const Target target = target_of(device.physical, text);
  const std::shared_ptr<Known> known = read(text, target);
  Bound bound = common::bind(known->program.lowered, sig);
  std::list<ir::Buffer> inputs;
  const KernelProgram program = common::with_copies(known->program, &bound, &inputs);
  const KernelLayout layout = common::layout_of(program, bound, sig, kMostBlocks);
  const std::string key = common::key_of(bound, layout);
  Known::Layout found;
  {
    const std::lock_guard hold(programs_lock());
    if (const auto at = known->layouts.find(key); at != known->layouts.end()) found = at->second;
  }
  if (found.source == nullptr)
    found.source = std::make_shared<const PrintedProgram>(print_glsl(program, bound, layout, target.products));
  check_f64(device.physical, program, *found.source);
  ProgramLaunches launches = common::plan_launches(program, bound, *found.source, {kMostBlocks, kResidentBlocks, kMostSlots});
  check_params(program, launches);
  for (const KernelLaunch& launch : launches.launches) check_loops(device, program, bound, launch);
  if (found.shaders.empty() && !asks && !bound.is_empty)
    for (const KernelSource& kernel : found.source->kernels) found.shaders.push_back(shader_of(kernel.text));
  {
    const std::lock_guard hold(programs_lock());
    Known::Layout& kept = known->layouts[key];
    if (kept.shaders.empty()) kept = found;  // another thread may have compiled them
  }
  return std::make_unique<ProgramPlan>(device, std::move(launches), asks ? std::vector<const Shader*>{} : found.shaders);
}

}  // namespace

std::unique_ptr<Plan> plan_program(const Instance& instance, std::string_view text, const nw_sig& sig, bool asks) {
  try {
    (void)forced_kernel(sig, kProgramKernels);
    Device& device = instance.device(sig);
    (void)compiler_identity();
    return plan(device, text, sig, asks);
  } catch (const narrows::Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

namespace {

std::string first_line() {
  try {
    return "// vulkan: kernel 'compiled' runs, made by " + compiler_description() + "\n";
  } catch (const Refusal& refusal) {
    return "// vulkan: no kernel runs: " + refusal.message + "\n";
  }
}

Target target_of_first_device(std::string_view text) {
  try {
    const std::shared_ptr<Loader> loader = Loader::get();
    for (const VkPhysicalDevice handle : loader->physical_devices()) {
      const PhysicalDevice device(loader->instance(), handle);
      if (device.unfit().empty()) return target_of(device, text);
    }
  } catch (const Refusal&) {  // there is no Vulkan here
  }
  return {};
}

}  // namespace

std::string source_of_program(std::string_view text) {
  try {
    const Target target = target_of_first_device(text);
    const KernelProgram program = common::make_kernels(ir::parse(text), target.limits);
    const Bound bound = common::any_call(program.lowered);
    return first_line() + print_glsl(program, bound, {}, target.products).text;
  } catch (const narrows::Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::vulkan
