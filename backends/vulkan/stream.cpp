// SPDX-License-Identifier: Apache-2.0
// stream.cpp -- see stream.h.
#include "stream.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "device.h"

namespace narrows::vulkan {
namespace {

constexpr uint32_t kMaxOps = 64;   // of a batch
constexpr size_t kMaxFlying = 16;  // batches; then the host waits for the first of them
constexpr uint64_t kParamsBytes = 256 << 10;
constexpr uint64_t kStagingBytes = 16 << 20;  // two halves: one is copied while the device works on the other

constexpr VkPipelineStageFlags kStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
constexpr VkAccessFlags kWrites = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kReads = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;

uint64_t no_progress_limit() {
  constexpr uint64_t kMost = 1'000'000'000;
  const char* const text = std::getenv("NARROWS_VULKAN_TIMEOUT");
  if (text == nullptr || *text == '\0') return 120;
  uint64_t seconds = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, bad] = std::from_chars(text, end, seconds);
  if (bad != std::errc() || rest != end || seconds > kMost)
    refuse(NW_UNAVAILABLE, -1, "NARROWS_VULKAN_TIMEOUT is '%s'; expected seconds, at most %llu, or 0 for no limit", text,
           static_cast<unsigned long long>(kMost));
  return seconds;
}

// Does what may be left undone where there is no memory for it: a later call does it, or is refused in its place.
template <class Body>
void unless_out_of_memory(Body&& body) {
  try {
    body();
  } catch (const Refusal& refusal) {
    if (refusal.status != NW_OUT_OF_MEMORY) throw;
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

// ---- timeline ----

Timeline::Timeline(Device& device) : device_(device), limit_(no_progress_limit()) {
  VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  info.pNext = &type;
  device_.check(device_.vk.vkCreateSemaphore(device_.handle, &info, nullptr, &handle), "creating a timeline semaphore");
}

Timeline::~Timeline() {
  if (!device_.is_lost()) device_.vk.vkDestroySemaphore(device_.handle, handle, nullptr);
}

uint64_t Timeline::completed() const {
  uint64_t value = 0;
  device_.check(device_.vk.vkGetSemaphoreCounterValue(device_.handle, handle, &value), "reading a timeline");
  return value;
}

void Timeline::wait(uint64_t value, bool patient) const {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSpin = std::chrono::microseconds(50);
  const auto start = Clock::now();
  uint64_t seen = completed();
  while (seen < value && Clock::now() - start < kSpin) seen = completed();
  if (seen >= value) return;
  uint64_t done = device_.progress().done;
  auto last = Clock::now();
  while (seen < value) {
    device_.refuse_if_lost();
    VkSemaphoreWaitInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
    info.semaphoreCount = 1;
    info.pSemaphores = &handle;
    info.pValues = &value;
    constexpr uint64_t kSecond = 1'000'000'000;  // ns
    device_.check(device_.vk.vkWaitSemaphores(device_.handle, &info, patient ? kSecond : kSecond / 10), "waiting for a stream");
    const uint64_t before = std::exchange(seen, completed());
    const auto [now, waits_for_application] = device_.progress();
    if (waits_for_application && !patient) return;
    if (seen != before || now != done || waits_for_application) done = now, last = Clock::now();
    if (limit_ != 0 && seen < value && Clock::now() - last > std::chrono::seconds(limit_))
      device_.lose("nothing was done for as long as NARROWS_VULKAN_TIMEOUT says");
  }
}

// ---- recorder ----

Recorder::~Recorder() {
  batch_.op.clear();
  batch_.params_used = params_used_;
  batch_.kernels.resize(num_kernels_);
}

void Recorder::commit() {
  const VolkDeviceTable& vk = device_.vk;
  for (const Command& c : batch_.op) {
    const bool is_ordered = std::exchange(batch_.ordered, false);
    if (c.ordered && !is_ordered) barrier();
    if (c.pipeline == VK_NULL_HANDLE) {
      vk.vkCmdCopyBuffer(batch_.commands, c.from, c.to, 1, &c.region);
      continue;
    }
    if (batch_.bound != c.pipeline) vk.vkCmdBindPipeline(batch_.commands, VK_PIPELINE_BIND_POINT_COMPUTE, c.pipeline);
    batch_.bound = c.pipeline;
    if (c.push_size != 0)
      vk.vkCmdPushConstants(batch_.commands, device_.kernels().layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, c.push_size, c.push);
    vk.vkCmdDispatch(batch_.commands, c.columns, c.rows, c.layers);
  }
  params_used_ = batch_.params_used;
  num_kernels_ = batch_.kernels.size();
}

// Its first scope is all that was submitted to the queue before: that makes a stream in order.
void Recorder::barrier(bool to_host) {
  const VkMemoryBarrier memory{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, kWrites,
                               to_host ? VkAccessFlags{VK_ACCESS_HOST_READ_BIT} : kWrites | kReads};
  const VkPipelineStageFlags next = to_host ? VkPipelineStageFlags{VK_PIPELINE_STAGE_HOST_BIT} : kStages;
  device_.vk.vkCmdPipelineBarrier(batch_.commands, kStages, next, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

Address Recorder::params(const void* block, uint64_t size) {
  constexpr uint64_t kAlignment = 64;
  if (batch_.params_used + size > kParamsBytes)
    refuse(NW_FAILED, -1, "vulkan: an op keeps more than %llu bytes of params", static_cast<unsigned long long>(kMaxParams));
  std::memcpy(static_cast<char*>(batch_.params.mapped) + batch_.params_used, block, size);
  const Address address = batch_.params.address + batch_.params_used;
  batch_.params_used = round_up(batch_.params_used + size, kAlignment);
  return address;
}

void Recorder::dispatch(const Kernel& kernel, const void* push, uint32_t size, int64_t groups, int64_t columns, bool ordered) {
  if (groups <= 0) return;
  const PhysicalDevice& physical = device_.physical;
  const uint32_t* const most = physical.properties.limits.maxComputeWorkGroupCount;
  int64_t rows = groups / columns;
  if (!physical.has_grid(columns, rows)) {  // folded
    columns = int64_t{1} << physical.row_shift();
    rows = ceil_div(groups, columns);
  }
  if (rows > most[1] || groups > UINT32_MAX)  // flat_group() counts in 32 bits
    refuse(NW_UNSUPPORTED, -1, "vulkan: %lld work groups; %s runs %u x %u", static_cast<long long>(groups),
           physical.properties.deviceName, static_cast<unsigned>(columns), most[1]);
  Command& command = add(kernel, push, size, ordered);
  command.columns = static_cast<uint32_t>(columns), command.rows = static_cast<uint32_t>(rows), command.layers = 1;
}

void Recorder::dispatch_grid(const Kernel& kernel, const void* push, uint32_t size, const uint32_t (&groups)[3], bool ordered) {
  const VkPhysicalDeviceLimits& limits = device_.physical.properties.limits;
  for (int i = 0; i < 3; ++i) {
    if (groups[i] == 0) return;
    if (groups[i] > limits.maxComputeWorkGroupCount[i])
      refuse(NW_UNSUPPORTED, -1, "vulkan: %u work groups along %c; %s runs up to %u", groups[i], "xyz"[i],
             device_.physical.properties.deviceName, limits.maxComputeWorkGroupCount[i]);
  }
  Command& command = add(kernel, push, size, ordered);
  command.columns = groups[0], command.rows = groups[1], command.layers = groups[2];
}

Command& Recorder::add(const Kernel& kernel, const void* push, uint32_t size, bool ordered) {
  batch_.kernels.push_back(kernel.use);
  Command& command = batch_.op.emplace_back();
  command.pipeline = kernel.pipeline;
  command.ordered = ordered;
  command.push_size = size;
  if (size != 0) std::memcpy(command.push, push, size);
  return command;
}

void Recorder::copy(Span to, Span from, uint64_t size) {
  Command& command = batch_.op.emplace_back();
  command.pipeline = VK_NULL_HANDLE;
  command.ordered = true;
  command.to = to.buffer, command.from = from.buffer;
  command.region = {from.offset, to.offset, size};
}

// ---- stream: batches ----

Stream::Stream(Device& device, Queue& queue) : device_(device), queue_(queue), timeline_(std::make_shared<Timeline>(device)) {
  VkCommandPoolCreateInfo info{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  info.queueFamilyIndex = device_.physical.queue_family;
  device_.check(device_.vk.vkCreateCommandPool(device_.handle, &info, nullptr, &pool_), "creating a command pool");
}

Stream::~Stream() {
  if (device_.is_lost()) return;
  try {
    finish();
  } catch (...) {
    if (device_.is_lost()) return;
    // Out of memory: what was not submitted is dropped.
    const std::lock_guard lock(queue_);
    if (device_.vk.vkQueueWaitIdle(queue_.handle) < 0) return;
    for (const Piece& piece : freed_) device_.memory().give_back(piece.address);
  }
  for (const auto& batch : batches_) device_.memory().destroy_buffer(batch->params);
  device_.memory().destroy_buffer(staging_);
  device_.vk.vkDestroyCommandPool(device_.handle, pool_, nullptr);
}

Batch* Stream::new_batch() {
  batches_.reserve(batches_.size() + 1);
  idle_.reserve(batches_.size() + 1);  // for all of them: taking one back needs no memory
  auto batch = std::make_unique<Batch>();
  VkCommandBufferAllocateInfo info{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  info.commandPool = pool_;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  batch->params = device_.memory().create_buffer(kParamsBytes, Side::upload);
  const VkResult result = device_.vk.vkAllocateCommandBuffers(device_.handle, &info, &batch->commands);
  if (result < 0) device_.memory().destroy_buffer(batch->params);
  device_.check(result, "creating a command buffer");
  return batches_.emplace_back(std::move(batch)).get();
}

// The batch that the next op goes into, with room for it.
Batch& Stream::open_batch() {
  device_.refuse_if_lost();
  if (open_ != nullptr && (open_->ended || open_->params_used + Recorder::kMaxParams > kParamsBytes)) flush();
  if (open_ != nullptr) return *open_;
  collect();
  if (flying_.size() >= kMaxFlying) {
    timeline_->wait(flying_.front()->value, false);
    collect();
  }
  Batch* const batch = ready_ != nullptr ? std::exchange(ready_, nullptr) : begin_batch();
  batch->waits = std::move(waits_);
  waits_.clear();
  return *(open_ = batch);
}

// One that is idle, or a new one, for commands.
Batch* Stream::begin_batch() {
  Batch* batch = nullptr;
  if (idle_.empty()) {
    batch = new_batch();
  } else {
    batch = idle_.back();
    idle_.pop_back();
  }
  VkCommandBufferBeginInfo info{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  const VkResult result = device_.vk.vkBeginCommandBuffer(batch->commands, &info);
  if (result < 0) idle_.push_back(batch);
  device_.check(result, "beginning a command buffer");
  batch->params_used = batch->ops = 0;
  batch->ended = batch->ordered = false;
  batch->bound = VK_NULL_HANDLE;
  return batch;
}

// The op is on the stream, submitted or not.
void Stream::end_op() {
  ++open_->ops;
  unless_out_of_memory([&] {
    if (open_->ops >= kMaxOps || flying_.empty() || completed() == submitted_) flush();
  });
  device_.loader.refuse_if_invalid();
}

uint64_t Stream::flush(bool read_by_host, const Point* signal) {
  if (open_ == nullptr && !waits_.empty()) open_batch();  // a wait that no op has followed yet is work too
  if (open_ == nullptr) return submitted_;
  if (!open_->ended) {
    // A mapped pointer sees what was written only after this, and the wait.
    const Memory& memory = device_.memory();
    if (read_by_host || device_.physical.is_unified() || memory.is_checked() || memory.has_host_memory())
      Recorder(device_, *open_).barrier(true);
    // What was recorded is gone if this fails: the stream's results can be no one's.
    if (device_.vk.vkEndCommandBuffer(open_->commands) < 0) device_.lose("a command buffer could not be ended");
    open_->ended = true;
  }
  flying_.push_back(open_);  // first: this may find no memory
  try {
    submit(*open_, signal);
  } catch (...) {
    flying_.pop_back();
    throw;
  }
  open_ = nullptr;
  return submitted_;
}

// vkQueueSubmit rather than its successor, which is Vulkan 1.3 and costs the same.
void Stream::submit(Batch& batch, const Point* signal) {
  std::vector<VkSemaphore> semaphores;
  std::vector<uint64_t> values;
  for (const Point& wait : batch.waits) semaphores.push_back(wait.semaphore), values.push_back(wait.value);
  const std::vector<VkPipelineStageFlags> stages(batch.waits.size(), VK_PIPELINE_STAGE_ALL_COMMANDS_BIT);
  const uint64_t next = submitted_ + 1;
  const VkSemaphore signaled[] = {timeline_->handle, signal != nullptr ? signal->semaphore : VK_NULL_HANDLE};
  const uint64_t signaled_values[] = {next, signal != nullptr ? signal->value : 0};
  const uint32_t num_signaled = signal != nullptr ? 2 : 1;
  VkTimelineSemaphoreSubmitInfo timeline{.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  timeline.waitSemaphoreValueCount = static_cast<uint32_t>(values.size());
  timeline.pWaitSemaphoreValues = values.data();
  timeline.signalSemaphoreValueCount = num_signaled;
  timeline.pSignalSemaphoreValues = signaled_values;
  VkSubmitInfo info{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
  info.pNext = &timeline;
  info.waitSemaphoreCount = static_cast<uint32_t>(semaphores.size());
  info.pWaitSemaphores = semaphores.data();
  info.pWaitDstStageMask = stages.data();
  info.commandBufferCount = 1;
  info.pCommandBuffers = &batch.commands;
  info.signalSemaphoreCount = num_signaled;
  info.pSignalSemaphores = signaled;
  {
    const std::lock_guard lock(queue_);
    device_.check(device_.vk.vkQueueSubmit(queue_.handle, 1, &info, VK_NULL_HANDLE), "submitting work");
  }
  batch.value = submitted_ = next;
}

// Takes back what is done.
void Stream::collect() {
  if (flying_.empty() && freed_.empty()) return;
  const uint64_t done = timeline_->completed();
  while (!flying_.empty() && flying_.front()->value <= done) {
    flying_.front()->waits.clear();
    flying_.front()->kernels.clear();
    idle_.push_back(flying_.front());
    flying_.pop_front();
  }
  while (!freed_.empty() && freed_.front().value <= done) {
    device_.memory().give_back(freed_.front().address);
    freed_.pop_front();
  }
}

void Stream::sync(bool goes_on) {
  finish(goes_on);
  device_.loader.refuse_if_invalid();
}

void Stream::finish(bool goes_on) {
  uint64_t value = 0;
  {
    const std::lock_guard lock(mutex_);
    device_.refuse_if_lost();
    value = flush();
    if (goes_on) prepare();
  }
  timeline_->wait(value);
  const std::lock_guard lock(mutex_);
  collect();
  device_.memory().check_guards();
}

// Begins the next batch, with the barrier of its first command, while the device works: otherwise somebody would wait for that.
void Stream::prepare() {
  if (ready_ != nullptr || flying_.empty()) return;
  unless_out_of_memory([&] {
    ready_ = begin_batch();
    Recorder(device_, *ready_).barrier();
    ready_->ordered = true;
  });
}

void Stream::wait_for(Stream& signaler) {
  if (&signaler == this) return;
  const Point point = signaler.point();
  if (point.keep->completed() >= point.value) return;
  const std::lock_guard lock(mutex_);
  flush();  // what is on this stream already need not wait
  waits_.push_back(point);
}

// In a submission of its own, where there is memory for one: while that is the next to be done, the stream is known to wait for the
// application. Refused, it is not on the stream.
void Stream::wait_for(VkSemaphore semaphore, uint64_t value) {
  const std::lock_guard lock(mutex_);
  device_.refuse_if_lost();
  flush();
  waits_.reserve(1);  // none is left after that
  {
    const std::lock_guard gates_lock(gates_mutex_);
    gates_.push_back(submitted_ + 1);
  }
  waits_.push_back({semaphore, value, nullptr});
  unless_out_of_memory([&] { flush(); });
}

bool Stream::waits_for_application() const {
  const uint64_t done = completed();
  const std::lock_guard lock(gates_mutex_);
  while (!gates_.empty() && gates_.front() <= done) gates_.pop_front();
  return !gates_.empty() && gates_.front() == done + 1;
}

void Stream::signal(VkSemaphore semaphore, uint64_t value) {
  const std::lock_guard lock(mutex_);
  device_.refuse_if_lost();
  uint64_t reached = 0;
  device_.check(device_.vk.vkGetSemaphoreCounterValue(device_.handle, semaphore, &reached), "reading a semaphore");
  if (value <= reached)
    refuse(NW_INVALID, -1, "vulkan: signal: value %llu; expected more than %llu, which the semaphore has reached",
           static_cast<unsigned long long>(value), static_cast<unsigned long long>(reached));
  const Point point{semaphore, value, nullptr};
  (void)open_batch();  // a submission that signals, even if there is no work
  flush(false, &point);
}

Point Stream::point() {
  const std::lock_guard lock(mutex_);
  device_.refuse_if_lost();
  const uint64_t value = flush();
  return {timeline_->handle, value, timeline_};
}

// ---- stream: memory ----

Address Stream::allocate(uint64_t size) {
  const std::lock_guard lock(mutex_);
  device_.refuse_if_lost();
  collect();
  const uint64_t piece = round_up(size, NW_WORKSPACE_ALIGN);
  // What was freed on this stream may be used by what comes after on it at once; but in checked memory every size has its own
  // guards.
  const auto fits = [&](const Piece& p) { return round_up(p.size, NW_WORKSPACE_ALIGN) == piece && p.size >= size; };
  const auto again = device_.memory().is_checked() ? freed_.end() : std::ranges::find_if(freed_, fits);
  if (again != freed_.end()) {
    device_.memory().revive(freed_, again, size);
    return again->address;
  }
  if (const Address address = device_.memory().allocate(size)) return address;
  timeline_->wait(flush(), false);
  collect();
  device_.memory().trim();
  return device_.memory().allocate(size);
}

void Stream::free(Address address) {
  const std::lock_guard lock(mutex_);
  device_.memory().retire(address, pending_value(), freed_);
  if (!device_.is_lost()) collect();
}

// ---- stream: copies from and to the host ----

Span Stream::span(Address begin, uint64_t size, const char* what) const {
  const std::optional<Span> found = device_.memory().find(begin, begin + size);
  if (!found)
    refuse(NW_INVALID, -1, "vulkan: %s: bytes [0x%llx, 0x%llx) lie in no live allocation of device %d", what,
           static_cast<unsigned long long>(begin), static_cast<unsigned long long>(begin + size), device_.id);
  return *found;
}

Buffer& Stream::staging() {
  if (staging_.handle == VK_NULL_HANDLE) staging_ = device_.memory().create_buffer(kStagingBytes, Side::host);
  return staging_;
}

// In a submission of its own: where there is no memory for that the copy is dropped, since staging will hold something else.
uint64_t Stream::submit_copy(Span to, Span from, uint64_t size, bool to_host) {
  flush();
  Batch& batch = open_batch();
  Recorder recorder(device_, batch);
  recorder.copy(to, from, size);
  recorder.commit();
  try {
    return staged_ = flush(to_host);
  } catch (...) {
    idle_.push_back(&batch);
    open_ = nullptr;
    throw;
  }
}

void Stream::copy_to_host(void* to, Address from, uint64_t size) {
  Span source = span(from, size, "copy from");
  if (source.mapped != nullptr) {
    sync();
    std::memcpy(to, source.mapped, size);
    return;
  }
  const std::lock_guard lock(mutex_);
  constexpr uint64_t kHalf = kStagingBytes / 2;
  Buffer& buffer = staging();
  uint64_t values[2] = {};
  const auto chunk = [&](uint64_t i) { return std::min(kHalf, size - i * kHalf); };
  const uint64_t chunks = (size + kHalf - 1) / kHalf;
  for (uint64_t i = 0; i <= chunks; ++i) {
    if (i < chunks) {
      const Span half{buffer.handle, i % 2 * kHalf, nullptr}, part{source.buffer, source.offset + i * kHalf, nullptr};
      values[i % 2] = submit_copy(half, part, chunk(i), true);
    }
    if (i == 0) continue;
    timeline_->wait(values[(i - 1) % 2]);
    std::memcpy(static_cast<char*>(to) + (i - 1) * kHalf, static_cast<char*>(buffer.mapped) + (i - 1) % 2 * kHalf, chunk(i - 1));
  }
  collect();
}

void Stream::copy_from_host(Address to, const void* from, uint64_t size) {
  Span target = span(to, size, "copy to");
  if (target.mapped != nullptr) {
    sync();
    std::memcpy(target.mapped, from, size);
    return;
  }
  const std::lock_guard lock(mutex_);
  constexpr uint64_t kHalf = kStagingBytes / 2;
  Buffer& buffer = staging();
  uint64_t values[2] = {staged_, staged_};
  for (uint64_t i = 0; i * kHalf < size; ++i) {
    const uint64_t bytes = std::min(kHalf, size - i * kHalf);
    timeline_->wait(values[i % 2]);
    std::memcpy(static_cast<char*>(buffer.mapped) + i % 2 * kHalf, static_cast<const char*>(from) + i * kHalf, bytes);
    const Span half{buffer.handle, i % 2 * kHalf, nullptr}, part{target.buffer, target.offset + i * kHalf, nullptr};
    values[i % 2] = submit_copy(part, half, bytes, false);
  }
  timeline_->wait(submitted_);
  collect();
}

}  // namespace narrows::vulkan
