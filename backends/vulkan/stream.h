// SPDX-License-Identifier: Apache-2.0
// stream.h -- a stream: work in order on one queue. Ops are appended to an open command buffer, the batch, which is submitted when
// it is full, when somebody waits, or when nothing of the stream is on the device: a submission costs microseconds, an op within
// one a fraction.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels.h"
#include "memory.h"

namespace narrows::vulkan {

class Device;
class Queue;

// A timeline semaphore; value n: the stream's n-th submission is done. Shared by the submissions that wait for it.
class Timeline {
 public:
  explicit Timeline(Device& device);
  ~Timeline();
  uint64_t completed() const;
  // Spins shortly, then blocks. A device on which no stream makes progress for NARROWS_VULKAN_TIMEOUT seconds (120; 0: for ever) is
  // lost: after a wild write some drivers report nothing else. While work waits for an application's semaphore, that is no loss.
  // patient = false: gives up after a tenth of a second in which some did, since who waits here may be who is to signal it.
  void wait(uint64_t value, bool patient = true) const;
  VkSemaphore handle = VK_NULL_HANDLE;

 private:
  Device& device_;
  const uint64_t limit_;  // seconds; 0: none
};

// A value of a timeline semaphore: a stream's, which is kept until nobody waits for it, or an application's.
struct Point {
  VkSemaphore semaphore;
  uint64_t value;
  std::shared_ptr<Timeline> keep;
};

// A dispatch, or a copy where `pipeline` is null.
struct Command {
  VkPipeline pipeline;
  uint32_t columns, rows, layers;  // of work groups
  bool ordered;                    // waits for what is on the stream before it
  uint32_t push_size;
  alignas(8) unsigned char push[kPushBytes];
  VkBuffer to, from;
  VkBufferCopy region;
};

// Commands on their way: being recorded, submitted, or done and ready for the next.
struct Batch {
  VkCommandBuffer commands = VK_NULL_HANDLE;
  Buffer params;  // what ops keep beyond push constants
  uint64_t params_used = 0;
  uint32_t ops = 0;
  VkPipeline bound = VK_NULL_HANDLE;  // by the last dispatch
  bool ordered = false;               // the barrier of the next command is there already
  bool ended = false;                 // recorded to the end, but not submitted: the driver was out of memory
  uint64_t value = 0;                 // of the stream's timeline
  std::vector<Point> waits;
  std::vector<std::shared_ptr<const void>> kernels;  // in use until it is done
  std::vector<Command> op;                           // what a Recorder has taken down of one
};

// What an op records with. Every command waits for all that was put on the stream before it. Commands are taken down, and put on
// the stream all at once: of an op that is refused midway nothing is left.
class Recorder {
 public:
  ~Recorder();
  // Copies `block` to where the device reads it; the address holds until the batch is done. At most kMaxParams bytes an op.
  template <class Block>
  Address params(const Block& block) {
    return params(&block, sizeof(Block));
  }
  Address params(const void* block, uint64_t size);

  // Runs `groups` work groups, numbered by flat_group() of shaders/common.glsl, of which there may be more: those past the last
  // have to return. ordered = false: does not wait for the op's own commands before it.
  template <class Push>
  void dispatch(const Kernel& kernel, const Push& push, int64_t groups, bool ordered = true) {
    static_assert(sizeof(Push) <= kPushBytes && sizeof(Push) % 4 == 0);
    dispatch(kernel, &push, sizeof(Push), groups, groups, ordered);
  }
  // As `rows` rows of `columns` groups, numbered by group_of_rows(columns); in rows of a power of two unless
  // PhysicalDevice::has_grid(columns, rows). Here, too, there may be more groups.
  template <class Push>
  void dispatch_rows(const Kernel& kernel, const Push& push, int64_t columns, int64_t rows) {
    static_assert(sizeof(Push) <= kPushBytes && sizeof(Push) % 4 == 0);
    dispatch(kernel, &push, sizeof(Push), columns * rows, columns, true);
  }
  // As so many groups along x, y and z, which the shader numbers itself. Nothing runs if one is 0.
  void dispatch_grid(const Kernel& kernel, const void* push, uint32_t size, const uint32_t (&groups)[3], bool ordered);
  void copy(Span to, Span from, uint64_t size);
  Device& device() const { return device_; }

  static constexpr uint64_t kMaxParams = 16 << 10;

 private:
  friend class Stream;
  Recorder(Device& device, Batch& batch)
      : device_(device), batch_(batch), params_used_(batch.params_used), num_kernels_(batch.kernels.size()) {}
  void dispatch(const Kernel& kernel, const void* push, uint32_t size, int64_t groups, int64_t columns, bool ordered);
  Command& add(const Kernel& kernel, const void* push, uint32_t size, bool ordered);
  void commit();  // to the command buffer
  void barrier(bool to_host = false);

  Device& device_;
  Batch& batch_;
  uint64_t params_used_;  // of the batch, without what is not committed
  size_t num_kernels_;    // likewise
};

// Thread-safe. Errors are thrown as Refusal.
class Stream {
 public:
  Stream(Device& device, Queue& queue);
  ~Stream();

  // body(Recorder&) appends one op.
  template <class Body>
  void record(Body&& body) {
    const std::lock_guard lock(mutex_);
    Recorder recorder(device_, open_batch());
    body(recorder);
    recorder.commit();
    end_op();
  }
  // Waits for all that is on the stream. goes_on: more will come, so the next batch is begun while the device works.
  void sync(bool goes_on = false);
  void wait_for(Stream& signaler);  // from here on; the host does not wait
  void wait_for(VkSemaphore semaphore, uint64_t value);
  void signal(VkSemaphore semaphore, uint64_t value);            // when all that is on the stream now is done
  Point point();                                                 // at which all that is on the stream now is done
  uint64_t completed() const { return timeline_->completed(); }  // submissions
  bool waits_for_application() const;                            // what comes next does
  // sync(), but nothing is refused that the validation layer or a guard has told: the next call says it.
  void finish(bool goes_on = false);

  Address allocate(uint64_t size);  // 0 where there is no room, even after waiting for this stream
  void free(Address address);
  void copy_to_host(void* to, Address from, uint64_t size);
  void copy_from_host(Address to, const void* from, uint64_t size);

 private:
  Batch& open_batch();
  Batch* begin_batch();
  Batch* new_batch();
  void end_op();
  void prepare();
  uint64_t flush(bool read_by_host = false, const Point* signal = nullptr);  // the value that stands for all so far
  void submit(Batch& batch, const Point* signal);
  uint64_t submit_copy(Span to, Span from, uint64_t size, bool to_host);
  void collect();
  uint64_t pending_value() const { return submitted_ + (open_ != nullptr || !waits_.empty() ? 1 : 0); }
  Span span(Address begin, uint64_t size, const char* what) const;
  Buffer& staging();

  Device& device_;
  Queue& queue_;
  std::mutex mutex_;
  std::shared_ptr<Timeline> timeline_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  Batch* open_ = nullptr;
  Batch* ready_ = nullptr;  // begun, with no command yet
  std::deque<Batch*> flying_;
  std::vector<Batch*> idle_;
  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<Point> waits_;  // of the next batch
  Pieces freed_;
  Buffer staging_;
  uint64_t submitted_ = 0;
  uint64_t staged_ = 0;  // the last submission that uses staging_
  mutable std::mutex gates_mutex_;
  mutable std::deque<uint64_t> gates_;  // submissions that only wait for an application's semaphore, as far as they may not be done
};

}  // namespace narrows::vulkan
