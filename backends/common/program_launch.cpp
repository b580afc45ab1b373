// SPDX-License-Identifier: Apache-2.0
// program_launch.cpp -- see program_launch.h.
#include "program_launch.h"

#include <algorithm>
#include <cstring>

#include "core/program/expr.h"
#include "program_range.h"

namespace narrows::common {

using ir::DType;

namespace {

constexpr uint64_t kAlign = 256;                      // of what blocks have in the workspace
constexpr uint64_t kMostParts = uint64_t{256} << 20;  // bytes of all of them
constexpr uint64_t aligned_bytes(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::string name_of_input(const std::string& buffer) { return buffer + ".in"; }

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

uint64_t param_bits(const Bound& bound, const std::string& name) {
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

class Launches {
 public:
  Launches(const KernelProgram& program, const Bound& bound, const PrintedProgram& source, const LaunchLimits& limits)
      : program_(program), bound_(bound), limits_(limits) {
    for (const auto& [name, place] : program.places) {
      if (place != Place::global) continue;
      offsets_[name] = global_bytes_;
      global_bytes_ += aligned_bytes(bound.buffers.at(name).bytes);
    }
    for (size_t i = 0; i < source.kernels.size() && !bound.is_empty; ++i) add(i, source.kernels[i]);
    out_.workspace_size = global_bytes_ + part_bytes_;
  }
  ProgramLaunches take() { return std::move(out_); }

 private:
  // Where a block's allocations lie in its part of the workspace, and how large that is.
  struct Part {
    std::map<std::string, uint64_t> places;
    uint64_t bytes = 0;
  };
  Part part_of(const KernelSource& source) const {
    Part out;
    for (const Slot& slot : source.slots) {
      if (slot.kind != Slot::Kind::place) continue;
      out.places[slot.name] = out.bytes;
      const bool is_of_thread = program_.places.at(slot.name) == Place::of_thread;
      out.bytes += aligned_bytes(bound_.buffers.at(slot.name).bytes) * static_cast<uint64_t>(is_of_thread ? source.threads : 1);
    }
    return out;
  }

  void add(size_t kernel, const KernelSource& source) {
    const Kernel& nest = program_.kernels[kernel];
    const int64_t all = iterations_of(nest.is_bound ? nest.blocks : nest.flat, bound_.numbers);
    if (all == 0) return;
    KernelLaunch out{kernel,
                     nest.is_bound ? all : all / source.threads + (all % source.threads != 0 ? 1 : 0),
                     source.threads,
                     source.shared_bytes,
                     {},
                     {}};
    const Part part = part_of(source);
    if (source.is_strided) out.blocks = std::min(out.blocks, limits_.blocks);
    if (part.bytes != 0) {
      const auto most = static_cast<int64_t>(std::max<uint64_t>(1, kMostParts / part.bytes));
      out.blocks = std::min({out.blocks, most, limits_.resident});
      part_bytes_ = std::max(part_bytes_, part.bytes * static_cast<uint64_t>(out.blocks));
    }
    if (out.blocks > limits_.blocks)
      refuse(NW_UNSUPPORTED, -1, "%s: a kernel of %lld blocks; expected at most %lld", program_.lowered.program.name.c_str(),
             static_cast<long long>(out.blocks), static_cast<long long>(limits_.blocks));
    for (const Slot& slot : source.slots) out.numbers.push_back(number(slot, all, part, &out));
    if (out.numbers.empty()) out.numbers.push_back(0);
    if (out.numbers.size() > limits_.slots)
      refuse(NW_UNSUPPORTED, -1, "%s: a kernel needs %zu numbers and addresses; expected at most %zu",
             program_.lowered.program.name.c_str(), out.numbers.size(), limits_.slots);
    out_.launches.push_back(std::move(out));
  }

  uint64_t number(const Slot& slot, int64_t all, const Part& part, KernelLaunch* launch) const {
    switch (slot.kind) {
      case Slot::Kind::buffer: {
        const BoundBuffer& buffer = bound_.buffers.at(slot.name);
        const auto offset = offsets_.find(slot.name);
        launch->pointers.push_back(
            {launch->numbers.size(), buffer.input, buffer.output, offset == offsets_.end() ? 0 : offset->second});
        return 0;
      }
      case Slot::Kind::parts: launch->pointers.push_back({launch->numbers.size(), -1, -1, global_bytes_}); return 0;
      case Slot::Kind::size: return static_cast<uint64_t>(bound_.numbers.at(slot.name));
      case Slot::Kind::stride: return static_cast<uint64_t>(bound_.buffers.at(slot.name).strides[slot.dimension]);
      case Slot::Kind::param: return param_bits(bound_, slot.name);
      case Slot::Kind::blocks: return static_cast<uint64_t>(all);
      case Slot::Kind::part: return part.bytes;
      case Slot::Kind::place: return part.places.at(slot.name);
      case Slot::Kind::bytes: return aligned_bytes(bound_.buffers.at(slot.name).bytes);
    }
    return 0;
  }

  const KernelProgram& program_;
  const Bound& bound_;
  const LaunchLimits& limits_;
  ProgramLaunches out_;
  std::map<std::string, uint64_t> offsets_;  // of allocations that all kernels see
  uint64_t global_bytes_ = 0, part_bytes_ = 0;
};

}  // namespace

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

KernelLayout layout_of(const KernelProgram& program, const Bound& bound, const nw_sig& sig, int64_t most_blocks) {
  KernelLayout out;
  out.short_indices = fits_32_bits(bound, sig);
  for (const Kernel& kernel : program.kernels) {
    const int64_t all = iterations_of(kernel.is_bound ? kernel.blocks : kernel.flat, bound.numbers);
    if (all > INT32_MAX) out.short_indices = false;
    if (all > product(most_blocks, kernel.is_bound ? 1 : kFlatThreads)) out.is_strided = true;
  }
  for (const auto& [name, buffer] : bound.buffers) {
    if (!buffer.present) continue;
    int64_t address = static_cast<int64_t>(kAlign);
    if (buffer.output >= 0) address = alignment(output(sig, static_cast<uint32_t>(buffer.output)));
    if (buffer.input >= 0 && buffer.output < 0) address = alignment(input(sig, static_cast<uint32_t>(buffer.input)));
    if (address < bytes_of(buffer.buffer->dtype))
      refuse(NW_UNSUPPORTED, -1, "%s: '%s' is aligned to %lld bytes; expected %lld, the size of its elements", sig.op, name.c_str(),
             static_cast<long long>(address), static_cast<long long>(bytes_of(buffer.buffer->dtype)));
    out.alignment[name] = alignment_of(buffer, address);
    if (is_long(buffer)) out.short_indices = false;
  }
  return out;
}

std::string key_of(const Bound& bound, const KernelLayout& layout) {
  std::string out = layout.short_indices ? "32" : "64";
  if (layout.is_strided) out += "+";
  for (const auto& [name, buffer] : bound.buffers) {
    out += buffer.present ? buffer.is_dense() ? 'd' : 's' : '-';
    if (buffer.copied) out += 'c';
    for (const int64_t stride : buffer.strides) out += stride == 1 ? '1' : 'n';
    if (buffer.present) out += std::to_string(layout.alignment.at(name));
  }
  return out;
}

void KernelLaunch::set_addresses(const nw_call& call, uint64_t* all) const {
  for (const Pointer& pointer : pointers) {
    const char* const place = pointer.output >= 0  ? data<char>(call.outputs[pointer.output])
                              : pointer.input >= 0 ? data<char>(call.inputs[pointer.input])
                                                   : static_cast<char*>(call.workspace) + pointer.offset;
    all[pointer.slot] = reinterpret_cast<uint64_t>(place);
  }
}

ProgramLaunches plan_launches(const KernelProgram& program, const Bound& bound, const PrintedProgram& source,
                              const LaunchLimits& limits) {
  return Launches(program, bound, source, limits).take();
}

}  // namespace narrows::common
