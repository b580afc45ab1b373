// SPDX-License-Identifier: Apache-2.0
// naive_device.cpp -- whose device the naive plugin has, and the memory of a launch as the host can read and write it. See naive.h.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "naive.h"
#include "real_plugin.h"

namespace naive {

const nw_plugin* load_device(nw_error* error) {
  const char* const path = mutants::real_plugin_path(nullptr);
  return path == nullptr ? &host_plugin : mutants::load_plugin(path, error);
}

const nw_plugin& device_plugin() {
  static const nw_plugin& found = *load_device(nullptr);
  return found;
}

bool is_host() { return &device_plugin() == &host_plugin; }

namespace {

constexpr DLDevice kHost{kDLCPU, 0};
constexpr uintptr_t kAround = 256;  // bytes before and behind a tensor that are copied with it: as many as a test tensor guards
constexpr uint64_t kBeyond = 4096, kMostBeyond = 1 << 20;  // filler around a copy, for what mutants do farther away
constexpr unsigned char kFiller = 0xC5;

// ---- what is allocated ----

struct Allocations {
  std::mutex mutex;
  std::map<uintptr_t, uintptr_t> ends;  // by where they begin
};
Allocations& allocations() {
  static auto* const all = new Allocations;  // leaked: memory is freed until the process ends
  return *all;
}

// The range with what was allocated around it; as it is where nobody knows.
void widen(uintptr_t* begin, uintptr_t* end) {
  Allocations& all = allocations();
  const std::lock_guard<std::mutex> hold(all.mutex);
  auto found = all.ends.upper_bound(*begin);
  if (found == all.ends.begin() || *end > (--found)->second) return;
  *begin = std::max(found->first, *begin - kAround);
  *end = std::min(found->second, *end + kAround);
}

// The bytes that a layout spans, counted from its first element.
struct Span {
  int64_t low = 0, high = 0;
};
Span span_of(const Layout& layout) {
  if (layout.size() == 0) return {};
  Span span{0, item_size(layout.dtype)};
  for (int32_t i = 0; i < layout.ndim; ++i) {
    const int64_t reach = (layout.shape[i] - 1) * layout.strides[i];
    (reach < 0 ? span.low : span.high) += reach;
  }
  return span;
}

Layout layout_of(const DLTensor& t) {
  Layout layout;
  layout.dtype = dtype_of(t.dtype);
  layout.ndim = t.ndim;
  int64_t contiguous = item_size(layout.dtype);
  for (int32_t i = t.ndim; i-- > 0;) {
    layout.shape[i] = t.shape[i];
    layout.strides[i] = t.strides == nullptr ? contiguous : t.strides[i] * item_size(layout.dtype);
    contiguous *= t.shape[i];
  }
  return layout;
}

}  // namespace

void remember_allocation(const void* data, uint64_t size) {
  const std::lock_guard<std::mutex> hold(allocations().mutex);
  const auto begin = reinterpret_cast<uintptr_t>(data);
  if (data != nullptr) allocations().ends[begin] = begin + size;
}
void forget_allocation(const void* data) {
  const std::lock_guard<std::mutex> hold(allocations().mutex);
  allocations().ends.erase(reinterpret_cast<uintptr_t>(data));
}

// ---- the memory of a launch ----

struct LaunchMemory::Copy {
  DLDevice device;
  uintptr_t begin, end;  // on the device
  uint64_t beyond;       // filler before and behind
  bool written;
  std::unique_ptr<unsigned char[]> memory = nullptr;
  unsigned char* first = nullptr;  // of `begin`
  std::vector<unsigned char> before = {};

  uint64_t size() const { return end - begin; }
  // Aligned as on the device.
  void allocate() {
    const uint64_t all = size() + 2 * beyond + NW_WORKSPACE_ALIGN;
    memory.reset(new unsigned char[all]);
    const uintptr_t lowest = reinterpret_cast<uintptr_t>(memory.get()) + beyond;
    first = memory.get() + beyond + (begin - lowest) % NW_WORKSPACE_ALIGN;
    std::memset(memory.get(), kFiller, static_cast<size_t>(first - memory.get()));
    std::memset(first + size(), kFiller, static_cast<size_t>(memory.get() + all - first) - size());
  }
};

LaunchMemory::LaunchMemory(const DeviceStream& stream, const Plan& plan, const nw_call& call)
    : stream_(stream), workspace_(call.workspace) {
  nw_error reason{};
  check(device_plugin().stream_sync(stream.device, stream.device_id, stream.handle, &reason), reason);
  if (is_host()) return;
  for (uint32_t i = 0; i < call.num_inputs; ++i)
    if (call.inputs[i] != nullptr) add(*call.inputs[i], plan.inputs[i], false);
  for (uint32_t i = 0; i < call.num_outputs; ++i)
    if (call.outputs[i] != nullptr) add(*call.outputs[i], plan.outputs[i], true);
  const auto workspace = reinterpret_cast<uintptr_t>(call.workspace);
  if (workspace != 0) add(call.device, workspace, workspace + call.workspace_size, 0, true);
  for (Copy& copy : copies_) {
    copy.allocate();
    if (copy.size() == 0) continue;
    check(device_plugin().copy(stream.device, kHost, copy.first, copy.device, reinterpret_cast<const void*>(copy.begin),
                               copy.size(), stream.handle, &reason),
          reason);
    if (copy.written) copy.before.assign(copy.first, copy.first + copy.size());
  }
}
LaunchMemory::~LaunchMemory() = default;

// Beyond what it spans goes a mutant that takes it for contiguous, or for what it planned.
void LaunchMemory::add(const DLTensor& t, const Layout& planned, bool written) {
  if (t.data == nullptr) return;
  const Layout layout = layout_of(t);
  const Span span = span_of(layout), other = span_of(planned);
  const uintptr_t first = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  const auto beyond = static_cast<uint64_t>(layout.size() * item_size(layout.dtype) + other.high - other.low);
  add(t.device, first + static_cast<uintptr_t>(span.low), first + static_cast<uintptr_t>(span.high), beyond, written);
}

// Joins what it overlaps: two tensors of one memory stay of one memory.
void LaunchMemory::add(DLDevice device, uintptr_t begin, uintptr_t end, uint64_t beyond, bool written) {
  widen(&begin, &end);
  Copy all{device, begin, end, std::min(beyond + kBeyond, kMostBeyond), written};
  const auto apart = [&](const Copy& other) { return other.end <= all.begin || all.end <= other.begin; };
  for (const Copy& other : copies_) {
    if (apart(other)) continue;
    all.begin = std::min(all.begin, other.begin), all.end = std::max(all.end, other.end);
    all.beyond = std::max(all.beyond, other.beyond), all.written |= other.written;
  }
  copies_.erase(std::remove_if(copies_.begin(), copies_.end(), [&](const Copy& other) { return !apart(other); }), copies_.end());
  copies_.push_back(std::move(all));
}

uintptr_t LaunchMemory::here(uintptr_t address) const {
  const Copy* found = nullptr;
  for (const Copy& copy : copies_)
    if (copy.begin <= address && (address < copy.end || (address == copy.end && found == nullptr))) found = &copy;
  return found == nullptr ? 0 : reinterpret_cast<uintptr_t>(found->first) + (address - found->begin);
}

uintptr_t LaunchMemory::first(const DLTensor& t) const {
  const uintptr_t address = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  return is_host() ? address : here(address);
}

unsigned char* LaunchMemory::workspace() const {
  return is_host() ? static_cast<unsigned char*>(workspace_)
                   : reinterpret_cast<unsigned char*>(here(reinterpret_cast<uintptr_t>(workspace_)));
}

void LaunchMemory::write_back() {
  for (const Copy& copy : copies_) {
    if (!copy.written) continue;
    const unsigned char* const end = copy.first + copy.size();
    const auto [from, was] = std::mismatch(static_cast<const unsigned char*>(copy.first), end, copy.before.begin());
    if (from == end) continue;
    const unsigned char* to = end;
    while (to[-1] == copy.before[static_cast<size_t>(to - copy.first) - 1]) --to;
    nw_error reason{};
    check(device_plugin().copy(stream_.device, copy.device,
                               reinterpret_cast<void*>(copy.begin + static_cast<uintptr_t>(from - copy.first)), kHost, from,
                               static_cast<uint64_t>(to - from), stream_.handle, &reason),
          reason);
  }
}

}  // namespace naive
