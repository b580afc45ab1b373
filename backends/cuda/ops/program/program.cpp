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
#include "common/program_range.h"
#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/text.h"
#include "ops/program/compiler.h"
#include "ops/program/source.h"

namespace narrows::gpu {

const char* const kProgramKernels[] = {"compiled", nullptr};

namespace {

using ir::DType;

constexpr uint64_t kAlign = 256;                      // of what blocks have in the workspace
constexpr uint64_t kMostParts = uint64_t{256} << 20;  // bytes of all of them
constexpr uint64_t aligned_bytes(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// ---- what is kept ----

// A program that was read; for each layout of a call its text, and for each device the module of that.
struct Known {
  KernelProgram program;
  struct Layout {
    std::shared_ptr<const GpuSource> source;
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

// In-out tensors whose output is another one begin as copies: each by a kernel of its own, before the others.
std::string name_of_input(const std::string& buffer) { return buffer + ".in"; }

KernelProgram with_copies(const KernelProgram& program, Bound* bound, std::list<ir::Buffer>* inputs) {
  KernelProgram out = program;
  std::vector<Kernel> copies;
  for (const ir::Buffer& tensor : program.lowered.program.tensors) {
    const BoundBuffer& to = bound->buffers.at(tensor.name);
    if (!to.copied) continue;
    inputs->push_back(tensor);
    inputs->back().name = name_of_input(tensor.name);
    BoundBuffer from = to;
    from.buffer = &inputs->back();
    from.output = -1;
    from.copied = false;
    from.strides = to.in_strides;
    bound->buffers[inputs->back().name] = from;
    Kernel kernel;
    Node node;
    std::vector<ir::ExprPtr> indices;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      kernel.flat.push_back({"copy." + std::to_string(d), tensor.shape[d]});
      indices.push_back(ir::make_name(kernel.flat.back().name));
    }
    node.name = tensor.name;
    node.stores.push_back({tensor.name, indices, ir::make_load(inputs->back().name, tensor.dtype, indices)});
    kernel.body.push_back(node);
    copies.push_back(std::move(kernel));
  }
  out.kernels.insert(out.kernels.begin(), copies.begin(), copies.end());
  return out;
}

// The largest power of two up to 16 of which a buffer's address and strides are multiples, in elements.
int alignment_of(const BoundBuffer& buffer, int64_t address) {
  const int64_t size = bytes_of(buffer.buffer->dtype);
  int out = 16;
  while (out > 1 && address % (out * size) != 0 && address != 0) out /= 2;
  for (size_t d = 0; d < buffer.strides.size(); ++d)
    while (out > 1 && buffer.strides[d] != 1 && buffer.shape[d] > 1 && buffer.strides[d] % out != 0) out /= 2;
  return out;
}

int64_t product(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? INT64_MAX : out;
}

int64_t iterations_of(const std::vector<KernelLoop>& loops, const Numbers& numbers) {
  int64_t out = 1;
  for (const KernelLoop& loop : loops) out = product(out, std::max<int64_t>(0, ir::evaluate(loop.extent, numbers)));
  return out;
}

// Whether an element of a buffer may be 2^31 elements from its first one.
bool is_long(const BoundBuffer& buffer) {
  int64_t span = 0;
  for (size_t d = 0; d < buffer.shape.size(); ++d) {
    int64_t more = 0;
    if (__builtin_mul_overflow(std::max<int64_t>(buffer.shape[d] - 1, 0), std::abs(buffer.strides[d]), &more) ||
        __builtin_add_overflow(span, more, &span))
      return true;
  }
  return span > INT32_MAX;
}

GpuLayout layout_of(const KernelProgram& program, const Bound& bound, const nw_sig& sig) {
  GpuLayout out;
  out.short_indices = fits_32_bits(bound, sig);
  for (const Kernel& kernel : program.kernels)
    if (iterations_of(kernel.is_bound ? kernel.blocks : kernel.flat, bound.numbers) > INT32_MAX) out.short_indices = false;
  for (const auto& [name, buffer] : bound.buffers) {
    if (!buffer.present) continue;
    int64_t address = static_cast<int64_t>(kAlign);
    if (buffer.output >= 0) address = alignment(output(sig, static_cast<uint32_t>(buffer.output)));
    if (buffer.input >= 0 && buffer.output < 0) address = alignment(input(sig, static_cast<uint32_t>(buffer.input)));
    if (address < bytes_of(buffer.buffer->dtype))
      refuse(NW_UNSUPPORTED, -1, "%s: '%s' does not lie on a multiple of its elements' size", sig.op, name.c_str());
    out.alignment[name] = alignment_of(buffer, address);
    if (is_long(buffer)) out.short_indices = false;
  }
  return out;
}

// All that a source depends on beside the program: see print_gpu().
std::string key_of(const Bound& bound, const GpuLayout& layout) {
  std::string out = layout.short_indices ? "32" : "64";
  for (const auto& [name, buffer] : bound.buffers) {
    out += buffer.present ? buffer.is_dense() ? 'd' : 's' : '-';
    if (buffer.copied) out += 'c';
    for (const int64_t stride : buffer.strides) out += stride == 1 ? '1' : 'n';
    if (buffer.present) out += std::to_string(layout.alignment.at(name));
  }
  return out;
}

class ProgramPlan : public Plan {
 public:
  ProgramPlan(const Device& device, const KernelProgram& program, const Bound& bound, const GpuSource& source, void* module) {
    kernel = kProgramKernels[0];
    device_id = device.id;
    place_allocations(program, bound);
    for (size_t i = 0; i < source.kernels.size() && !bound.is_empty; ++i)
      add(device, program.kernels[i], program, bound, source.kernels[i], module);
    workspace_size = global_bytes_ + part_bytes_;
  }

  void launch(const nw_call& call) const override {
    constexpr size_t kFew = 96;
    uint64_t few[kFew];
    for (const Launch& one : launches_) {
      std::vector<uint64_t> many(one.numbers.size() > kFew ? one.numbers.size() : 0);
      uint64_t* const numbers = many.empty() ? few : many.data();
      std::memcpy(numbers, one.numbers.data(), one.numbers.size() * sizeof(uint64_t));
      for (const Pointer& pointer : one.pointers) numbers[pointer.slot] = address(pointer, call);
      void* arguments[] = {numbers};
      check(launch_symbol(nullptr, one.function, one.grid, arguments, stream_of(call)), "launching a program's kernel");
      mark_enqueued();
    }
  }

 private:
  struct Pointer {
    size_t slot;
    int input, output;
    uint64_t offset;  // into the workspace, where it is neither
  };
  struct Launch {
    gpuFunction_t function = nullptr;
    Grid grid{};
    std::vector<uint64_t> numbers;
    std::vector<Pointer> pointers;
  };

  static uint64_t address(const Pointer& pointer, const nw_call& call) {
    const char* const place = pointer.output >= 0  ? data<char>(call.outputs[pointer.output])
                              : pointer.input >= 0 ? data<char>(call.inputs[pointer.input])
                                                   : static_cast<char*>(call.workspace) + pointer.offset;
    return reinterpret_cast<uint64_t>(place);
  }

  void place_allocations(const KernelProgram& program, const Bound& bound) {
    for (const auto& [name, place] : program.places) {
      if (place != Place::global) continue;
      offsets_[name] = global_bytes_;
      global_bytes_ += aligned_bytes(bound.buffers.at(name).bytes);
    }
  }

  void add(const Device& device, const Kernel& nest, const KernelProgram& program, const Bound& bound, const KernelSource& source,
           void* module) {
    Launch out;
    const int64_t all = iterations_of(nest.is_bound ? nest.blocks : nest.flat, bound.numbers);
    if (all == 0) return;
    int64_t blocks = nest.is_bound ? all : (all + source.threads - 1) / source.threads;
    std::map<std::string, uint64_t> places;  // into a block's part
    uint64_t part = 0;
    for (const Slot& slot : source.slots) {
      if (slot.kind != Slot::Kind::place) continue;
      places[slot.name] = part;
      const bool is_of_thread = program.places.at(slot.name) == Place::of_thread;
      part += aligned_bytes(bound.buffers.at(slot.name).bytes) * static_cast<uint64_t>(is_of_thread ? source.threads : 1);
    }
    if (source.is_strided) {
      const auto most = static_cast<int64_t>(std::max<uint64_t>(1, kMostParts / std::max<uint64_t>(part, 1)));
      blocks = std::min({blocks, most, int64_t{16} * device.multiprocessors});
      part_bytes_ = std::max(part_bytes_, part * static_cast<uint64_t>(blocks));
    }
    if (blocks > kMaxBlocks)
      refuse(NW_UNSUPPORTED, -1, "%s: a kernel of %lld blocks; expected at most %lld", program.lowered.program.name.c_str(),
             static_cast<long long>(blocks), static_cast<long long>(kMaxBlocks));
    out.grid = {static_cast<unsigned>(blocks), static_cast<unsigned>(source.threads), 0, false};
    for (const Slot& slot : source.slots) {
      uint64_t number = 0;
      switch (slot.kind) {
        case Slot::Kind::buffer: {
          const BoundBuffer& buffer = bound.buffers.at(slot.name);
          const auto offset = offsets_.find(slot.name);
          out.pointers.push_back({out.numbers.size(), buffer.input, buffer.output, offset == offsets_.end() ? 0 : offset->second});
          break;
        }
        case Slot::Kind::parts: out.pointers.push_back({out.numbers.size(), -1, -1, global_bytes_}); break;
        case Slot::Kind::size: number = static_cast<uint64_t>(bound.numbers.at(slot.name)); break;
        case Slot::Kind::stride: number = static_cast<uint64_t>(bound.buffers.at(slot.name).strides[slot.dimension]); break;
        case Slot::Kind::param: number = param_bits(bound, slot.name); break;
        case Slot::Kind::blocks: number = static_cast<uint64_t>(all); break;
        case Slot::Kind::part: number = part; break;
        case Slot::Kind::place: number = places.at(slot.name); break;
        case Slot::Kind::bytes: number = aligned_bytes(bound.buffers.at(slot.name).bytes); break;
      }
      out.numbers.push_back(number);
    }
    if (out.numbers.empty()) out.numbers.push_back(0);
    if (out.numbers.size() * sizeof(uint64_t) > 4000)
      refuse(NW_UNSUPPORTED, -1, "%s: a kernel needs %zu numbers and addresses; expected at most 500",
             program.lowered.program.name.c_str(), out.numbers.size());
    if (module != nullptr) out.function = find_in_module(module, source.name);
    launches_.push_back(std::move(out));
  }

  static uint64_t param_bits(const Bound& bound, const std::string& name) {
    for (const ir::Param& param : bound.lowered->program.params) {
      if (param.name != name) continue;
      const ParamValue& value = bound.params.at(name);
      uint64_t out = 0;
      const auto single = static_cast<float>(value.real);
      if (param.dtype == DType::f32)
        std::memcpy(&out, &single, sizeof(single));
      else if (param.dtype == DType::f64)
        std::memcpy(&out, &value.real, sizeof(value.real));
      else
        out = static_cast<uint64_t>(value.integer);
      return out;
    }
    refuse(NW_FAILED, -1, "the program has no param '%s'", name.c_str());
  }

  std::vector<Launch> launches_;
  std::map<std::string, uint64_t> offsets_;  // of allocations that all kernels see
  uint64_t global_bytes_ = 0, part_bytes_ = 0;
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
    const GpuLayout layout = layout_of(program, bound, sig);
    const std::string key = key_of(bound, layout);
    std::shared_ptr<const GpuSource> source;
    void* module = nullptr;
    {
      const std::lock_guard hold(programs_lock());
      if (const auto found = known->layouts.find(key); found != known->layouts.end()) {
        source = found->second.source;
        if (const auto loaded = found->second.modules.find(device.id); loaded != found->second.modules.end())
          module = loaded->second;
      }
    }
    if (source == nullptr) source = std::make_shared<const GpuSource>(print_gpu(program, bound, layout));
    if (module == nullptr && !asks && !bound.is_empty) module = load_module(code_of(source->text, device));
    {
      const std::lock_guard hold(programs_lock());
      Known::Layout& kept = known->layouts[key];
      kept.source = source;
      if (module != nullptr) kept.modules[device.id] = module;
    }
    return std::make_unique<ProgramPlan>(device, program, bound, *source, module);
  } catch (const narrows::Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

std::string source_of_program(std::string_view text) {
  try {
    const KernelProgram program = make_kernels(ir::parse(text), {});
    const Bound bound = any_call(program.lowered);
    return std::string("// ") + kPluginName + ": kernel 'compiled' runs\n" + print_gpu(program, bound, {}).text;
  } catch (const narrows::Failure& failure) {
    throw Refusal{failure.status, failure.argument, failure.message, failure.native_code};
  }
}

}  // namespace narrows::gpu
