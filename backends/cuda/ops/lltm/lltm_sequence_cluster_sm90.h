// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_cluster_sm90.h -- what the kernels of lltm_sequence_cluster.h have in common. A thread has the cells of one state
// in every eighth row of its cluster. All blocks multiply the same operand. Each block has it twice in its shared memory: one is
// read while the next one is written. Each of the two has a barrier that counts the bytes which all blocks send. A block sends only
// after it has read the operand before. So the block that got all bytes of a step may overwrite that one, and nothing else has to
// wait.
#pragma once

#include <cooperative_groups.h>

#include "lltm_cell.h"
#include "lltm_sequence_cluster.h"
#include "ops/barrier_sm90.h"

namespace narrows::gpu {

inline constexpr int kClusterThreads = 256, kClusterWarps = kClusterThreads / 32;
inline constexpr int kClusterStates = 32;  // of a block: one for each lane
inline constexpr int kMostClusterBlocks = 8;

// The blocks of a cluster that has all states, at least two: a launch of single blocks has no clusters. 0: more than there may be.
inline int cluster_blocks(int64_t state) {
  int blocks = 2;
  while (blocks * kClusterStates < state && blocks <= kMostClusterBlocks) blocks *= 2;
  return blocks <= kMostClusterBlocks ? blocks : 0;
}

// A launch for a batch in clusters of `blocks` blocks, each of which has `rows` rows; no kernel: the device has not what it takes.
inline LltmClusterChoice cluster_choice(const Device& device, const void* kernel, int64_t batch, int rows, int blocks,
                                        size_t shared) {
  const int64_t all = ceil_div(batch, rows) * blocks;
  if (shared > device.shared_memory || all > kMaxBlocks) return {};
  return {kernel, {static_cast<unsigned>(all), kClusterThreads, shared, false, static_cast<unsigned>(blocks)}};
}
// Few rows a cluster make a step short, unless more blocks come of it than run at once.
inline LltmClusterChoice fewer_rows(const Device& device, const LltmClusterChoice& few, const LltmClusterChoice& many) {
  const bool at_once = few.kernel != nullptr && few.grid.blocks <= static_cast<unsigned>(device.multiprocessors) * 9 / 10;
  return at_once || many.kernel == nullptr ? few : many;
}
// One launch of lltm is no slower than a cluster's start, and a large batch fills the device step by step.
inline bool pays(const Device& device, const LltmSequenceSizes& sizes, const LltmClusterChoice& made) {
  return sizes.steps >= 2 && made.grid.blocks <= 2 * static_cast<unsigned>(device.multiprocessors);
}

__device__ __forceinline__ int64_t steps_of_row(const Lengths& lengths, int64_t row, int64_t steps) {
  return lengths.base == nullptr ? steps : steps_of(reinterpret_cast<const int32_t*>(lengths.base)[row * lengths.stride], steps);
}

// Partial sums in shared memory: [split of the reduction][column of a state][row][state].
template <class Products>
__device__ __forceinline__ float& sum_at(float* sums, int split, int column, int row, int state) {
  return sums[((split * Products::kColumns + column) * Products::kRows + row) * Products::kSumsPitch + state];
}
template <class Products>
__device__ __forceinline__ float sum_of_splits(float* sums, int column, int row, int state) {
  float total = 0;
#pragma unroll
  for (int split = 0; split < Products::kSplits; ++split) total += sum_at<Products>(sums, split, column, row, state);
  return total;
}

// Which cells a thread has. Row j of a thread is row `warp + j * kClusterWarps` of its cluster.
template <int Rows>
struct OwnCells {
  static constexpr int kCount = (Rows + kClusterWarps - 1) / kClusterWarps;
  int64_t row0, state;    // the cluster's first row; the thread's state
  int64_t steps[kCount];  // of the rows; 0: there is no such row

  __device__ OwnCells(const Lengths& lengths, int64_t first_row, int64_t first_state, int64_t batch, int64_t all_steps)
      : row0(first_row), state(first_state + static_cast<int>(threadIdx.x) % 32) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) steps[j] = in_batch(j, batch) ? steps_of_row(lengths, row(j), all_steps) : 0;
  }
  static __device__ __forceinline__ int row_of_cluster(int j) { return static_cast<int>(threadIdx.x) / 32 + j * kClusterWarps; }
  __device__ __forceinline__ int64_t row(int j) const { return row0 + row_of_cluster(j); }
  __device__ __forceinline__ bool in_batch(int j, int64_t batch) const { return row_of_cluster(j) < Rows && row(j) < batch; }
};

// A thread's elements of a sequence, at one step after the other: column `column` of its rows.
template <class T>
class Walk {
 public:
  __device__ Walk() = default;
  // `first`: the step that comes first; `back`: the one before it comes next.
  __device__ __forceinline__ Walk(const Sequence& s, int64_t first, bool back, int64_t row, int64_t column)
      : at_(s.base == nullptr ? nullptr : reinterpret_cast<T*>(s.base) + first * s.step + row * s.row + column * s.column),
        step_(back ? -s.step : s.step), rows_(kClusterWarps * s.row) {}
  __device__ __forceinline__ T* row(int j) const { return at_ + j * rows_; }
  __device__ __forceinline__ bool is_there() const { return at_ != nullptr; }
  __device__ __forceinline__ void advance() { at_ += step_; }

 private:
  T* at_ = nullptr;
  int64_t step_ = 0, rows_ = 0;
};

// Reads in batches, since a store to shared memory may not pass a load: put(i, get(i)) for i below `count`.
template <class T, class Get, class Put>
__device__ __forceinline__ void move_in_batches(int count, const Get& get, const Put& put) {
  constexpr int kBatch = 16;
  for (int first = 0; first < count; first += kBatch) {
    T moved[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) moved[i] = get(min(first + i, count - 1));
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (first + i < count) put(first + i, moved[i]);
  }
}

// Tells all blocks of a cluster what a warp's states are. A lane sends the same 16 bytes of a row to the same blocks each time.
template <class T>
class Exchange {
 public:
  // By all threads, before the cluster's first barrier. `own`: where row 0 of this warp has its 32 elements in operand 0; operand 1
  // lies `operand` elements further on. `bytes`: what all blocks send to one in a step.
  __device__ Exchange(uint64_t* barriers, int bytes, int blocks, const T* own, int operand)
      : barriers_(shared_address(barriers)), bytes_(bytes), operand_(operand * static_cast<int>(sizeof(T))) {
#pragma unroll
    for (int i = 0; i < kSends; ++i) {
      const int rank = lane() / kUnits + i * (32 / kUnits);
      sends_[i] = rank < blocks;
      to_[i] = address_in(shared_address(reinterpret_cast<const uint4*>(own) + lane() % kUnits), sends_[i] ? rank : 0);
      told_[i] = address_in(barriers_, sends_[i] ? rank : 0);
    }
    if (threadIdx.x != 0) return;
    init_barrier(barriers_, 1), init_barrier(barriers_ + 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // Exchange number n, from 1 on, fills operand n % 2.
  __device__ __forceinline__ void begin(int64_t n) const {
    if (threadIdx.x == 0) expect_bytes(barriers_ + place(n) * 8, bytes_);
  }
  // The warp's 32 elements, each lane's own; `offset`: elements from those of row 0.
  __device__ __forceinline__ void send(int64_t n, T own, int offset) const {
    const uint4 unit = unit_of(own);
    const uint32_t further = place(n) * static_cast<uint32_t>(operand_) + static_cast<uint32_t>(offset) * sizeof(T);
#pragma unroll
    for (int i = 0; i < kSends; ++i)
      if (sends_[i]) send_16_bytes(to_[i] + further, unit, told_[i] + place(n) * 8);
  }
  __device__ __forceinline__ void wait(int64_t n) const {
    gpu::wait(barriers_ + place(n) * 8, static_cast<uint32_t>((n - 1) / 2 % 2));
  }

 private:
  static constexpr int kUnits = kClusterStates * static_cast<int>(sizeof(T)) / 16;  // of 16 bytes
  static constexpr int kSends = (kUnits * kMostClusterBlocks + 31) / 32;
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ uint32_t place(int64_t n) { return static_cast<uint32_t>(n % 2); }
  // The 16 bytes that the lane sends.
  static __device__ __forceinline__ uint4 unit_of(T own) {
    constexpr unsigned kAll = 0xffffffff;
    constexpr int kOfWord = 4 / static_cast<int>(sizeof(T));  // elements
    uint32_t word;                                            // of this lane's element, and of the next lane's
    if constexpr (kOfWord == 1) {
      word = __float_as_uint(own);
    } else {
      const uint32_t bits = reinterpret_cast<const uint16_t&>(own);
      word = bits | __shfl_down_sync(kAll, bits, 1) << 16;
    }
    const int first = lane() % kUnits * 4 * kOfWord;
    return {__shfl_sync(kAll, word, first), __shfl_sync(kAll, word, first + kOfWord), __shfl_sync(kAll, word, first + 2 * kOfWord),
            __shfl_sync(kAll, word, first + 3 * kOfWord)};
  }

  uint32_t barriers_;
  int bytes_, operand_;
  bool sends_[kSends];
  uint32_t to_[kSends], told_[kSends];  // in the other blocks
};

}  // namespace narrows::gpu
