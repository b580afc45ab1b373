// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_cluster_sm90.cu -- lltm_sequence, see lltm_sequence_cluster.h. The operand of a step is [h, input] of a cluster's
// rows. 16 bits are multiplied by matrix units, with weights in registers; f32 by plain multiply-adds, with weights in shared
// memory.
#include "lltm_sequence_cluster_sm90.h"
#include "ops/gemm/tile_mma_sm80.h"

namespace narrows::gpu {
namespace {

constexpr int kThreads = kClusterThreads, kWarps = kClusterWarps, kStates = kClusterStates;
constexpr int kFewStates = 128;  // whose weights of f32 fit into registers
constexpr int kMoves = 16;       // elements of the next step's input that a thread has in registers

// Sizes that the kernel and the host agree on. Columns of the operand: states, rounded up to whole blocks; features; zeros.
template <class Products>
struct Shape {
  using T = typename Products::T;
  int held, depth, pitch;  // columns of states; all columns; elements from row to row

  __host__ __device__ Shape(int blocks, int64_t all_features) : held(blocks * kStates) {
    const int64_t features = Products::kHasInput ? all_features : 0;
    depth = held + static_cast<int>((features + Products::kDepthUnit - 1) / Products::kDepthUnit) * Products::kDepthUnit;
    pitch = Products::pitch(depth);
  }
  __host__ __device__ int operand() const { return Products::kRows * pitch; }  // elements
  __host__ __device__ int sums() const { return Products::kSplits * 3 * Products::kRows * Products::kSumsPitch; }
  // Barriers, two operands, sums, weights; while the kernel begins, weights of 16 bits lie in the sums' place.
  static __host__ __device__ size_t operands_at() { return 16; }
  __host__ __device__ size_t sums_at() const { return operands_at() + 2 * static_cast<size_t>(operand()) * sizeof(T); }
  __host__ __device__ size_t weights_at() const { return sums_at() + static_cast<size_t>(sums()) * 4; }
  __host__ size_t shared() const { return std::max(weights_at() + Products::weights_size(depth), sums_at() + Products::kFirst); }
};

// Weights of the block's gate rows (gate, state) x columns [first, first + 32 * chunks) of the operand, 0 outside: put(row, column,
// weight). A warp has every eighth row.
template <class T, class Put>
__device__ __forceinline__ void read_weights(const LltmSequenceForward& p, int64_t state0, int held, int first, int chunks,
                                             const Put& put) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto row_of = [&](int i) { return warp + i / chunks * kWarps; };
  const auto column_of = [&](int i) { return lane + i % chunks * 32; };
  const auto get = [&](int i) {
    const int column = first + column_of(i);
    const int64_t state = state0 + row_of(i) % kStates, k = column < held ? column : column - held + p.state;
    const bool there = state < p.state && (column < held ? k < p.state : k < p.state + p.features);
    const T weight = *at<const T>(p.weights, there ? row_of(i) / kStates * p.state + state : 0, there ? k : 0);
    return there ? weight : T{};
  };
  move_in_batches<T>(3 * kStates / kWarps * chunks, get, [&](int i, T weight) { put(row_of(i), column_of(i), weight); });
}

// ---- 16 bits ----

// Two warps share the states, four the reduction. The weights are the left operand, 16 states by 16 columns an instruction; a
// thread has 8 columns of 32, of two states, and reads 16 bytes of a row of the operand for two instructions. These take 8 rows,
// some of which are zeros where there are fewer.
template <class Element, int Rows>
class HalfProducts {
 public:
  using T = Element;
  static constexpr int kRows = Rows, kColumns = 3, kSplits = 4, kSumsPitch = kStates + 4, kDepthUnit = 32;
  static constexpr bool kHasInput = true;  // in the operand
  static constexpr int kMostChunks = 5;    // of 32 columns, of a warp
  // Two rows of 64 bytes touch every bank.
  static __host__ __device__ int pitch(int depth) { return depth + (depth % 64 == 0 ? 32 : 0); }
  static __host__ __device__ size_t weights_size(int) { return 0; }
  static constexpr int kFirstPitch = kSplits * kDepthUnit + 8, kFirst = 3 * kStates * kFirstPitch * 2;
  static bool takes(int depth) { return depth <= kMostChunks * kSplits * kDepthUnit; }

  // `first`: room for kFirst bytes, until all threads are here again.
  __device__ HalfProducts(const LltmSequenceForward& p, int64_t state0, const Shape<HalfProducts>& shape, void* first)
      : chunks_(shape.depth / kDepthUnit), pitch_(shape.pitch) {
    T* const some = static_cast<T*>(first);
#pragma unroll
    for (int j = 0; j < kMostChunks; ++j) {
      if (j * kSplits >= chunks_) break;
      __syncthreads();
      read_weights<T>(p, state0, shape.held, j * kSplits * kDepthUnit, kSplits,
                      [&](int row, int column, T weight) { some[row * kFirstPitch + column] = weight; });
      __syncthreads();
#pragma unroll
      for (int gate = 0; gate < 3; ++gate)
#pragma unroll
        for (int i = 0; i < 8; ++i) {  // of [half][pair of columns][upper state]
          const int row = gate * kStates + tile() * 16 + group() + i % 2 * 8;
          const int column = split() * kDepthUnit + unit() * 8 + i / 2 * 2;
          weights_[j][gate][i] = *reinterpret_cast<const uint32_t*>(some + row * kFirstPitch + column);
        }
    }
    __syncthreads();
  }

  __device__ __forceinline__ void multiply(const T* operand, float* sums) const {
    // Even and odd instructions have sums of their own: each waits for the one before it.
    float own[2][3][4] = {};
#pragma unroll
    for (int j = 0; j < kMostChunks; ++j) {
      const int chunk = split() + j * kSplits;
      if (chunk >= chunks_) break;
      uint4 b{};
      if (group() < kRows) b = *reinterpret_cast<const uint4*>(operand + group() * pitch_ + chunk * kDepthUnit + unit() * 8);
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        multiply_add(own[0][gate], weights_[j][gate], b.x, b.y);
        multiply_add(own[1][gate], weights_[j][gate] + 4, b.z, b.w);
      }
    }
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (const int row = unit() * 2 + i % 2; row < kRows)
          sum_at<HalfProducts>(sums, split(), gate, row, tile() * 16 + group() + i / 2 * 8) = own[0][gate][i] + own[1][gate][i];
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int group() { return lane() / 4; }
  static __device__ int unit() { return lane() % 4; }
  static __device__ int tile() { return static_cast<int>(threadIdx.x) / 32 % 2; }
  static __device__ int split() { return static_cast<int>(threadIdx.x) / 64; }
  static __device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t* a, uint32_t b0, uint32_t b1) {
    const uint32_t left[2][4] = {{a[0], a[2]}, {a[1], a[3]}}, right[4] = {b0, b1};
    mma(T{}, c, left, right, 0);
  }

  int chunks_, pitch_;
  uint32_t weights_[kMostChunks][3][8];
};

// ---- f32 ----

// A lane has a state, a warp every eighth four columns: `Held` of these have their weights in registers; 0: shared memory has them.
template <int Rows, int Held>
class FloatProducts {
 public:
  using T = float;
  static constexpr int kRows = Rows, kColumns = 3, kSplits = kWarps, kSumsPitch = kStates, kDepthUnit = 4;
  static constexpr bool kHasInput = false;
  static __host__ __device__ int pitch(int depth) { return depth; }
  static __host__ __device__ size_t weights_size(int depth) { return static_cast<size_t>(depth) * 3 * kStates * 4; }
  static constexpr int kFirst = 0;
  static bool takes(int depth) { return Held == 0 || depth <= Held * kWarps * 4; }

  __device__ FloatProducts(const LltmSequenceForward& p, int64_t state0, const Shape<FloatProducts>& shape, void* weights)
      : units_(shape.depth / 4), pitch_(shape.pitch), weights_(static_cast<const float4*>(weights)) {
    auto* to = static_cast<float*>(weights);  // [four columns][gate][state][column of four]
    read_weights<float>(p, state0, shape.held, 0, shape.depth / 32,
                        [&](int row, int column, float weight) { to[(column / 4 * 3 * kStates + row) * 4 + column % 4] = weight; });
    if constexpr (Held == 0) return;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Held; ++i)
#pragma unroll
      for (int gate = 0; gate < 3; ++gate)
        held_[i][gate] = warp() + i * kWarps < units_ ? weight(warp() + i * kWarps, gate) : float4{};
  }

  __device__ __forceinline__ void multiply(const float* operand, float* sums) const {
    float own[3][Rows] = {};
    if constexpr (Held != 0) {
#pragma unroll
      for (int i = 0; i < Held; ++i)
        if (const int unit = warp() + i * kWarps; unit < units_) add(operand + unit * 4, held_[i], own);
    } else {
#pragma unroll 4
      for (int unit = warp(); unit < units_; unit += kWarps) {
        const float4 w[3] = {weight(unit, 0), weight(unit, 1), weight(unit, 2)};
        add(operand + unit * 4, w, own);
      }
    }
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
#pragma unroll
      for (int row = 0; row < Rows; ++row) sum_at<FloatProducts>(sums, warp(), gate, row, lane()) = own[gate][row];
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ __forceinline__ float4 weight(int unit, int gate) const { return weights_[(unit * 3 + gate) * kStates + lane()]; }
  __device__ __forceinline__ void add(const float* columns, const float4 (&w)[3], float (&own)[3][Rows]) const {
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      const float4 x = *reinterpret_cast<const float4*>(columns + row * pitch_);
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        float& sum = own[gate][row];
        sum = fmaf(x.x, w[gate].x, sum), sum = fmaf(x.y, w[gate].y, sum);
        sum = fmaf(x.z, w[gate].z, sum), sum = fmaf(x.w, w[gate].w, sum);
      }
    }
  }

  int units_, pitch_;
  const float4* weights_;
  float4 held_[Held == 0 ? 1 : Held][3];
};

// ---- the input of a step ----

// Moves the input of steps, one after the other, to their operands: by copies that pass no register where rows are whole units of
// 16 bytes; else in two steps, by a warp every eighth row, through registers.
template <class T, int Rows>
class InputMover {
 public:
  static constexpr int kRowsOfWarp = OwnCells<Rows>::kCount, kColumns = kMoves / kRowsOfWarp;
  static constexpr int kMostFeatures = kColumns * 32;

  __device__ InputMover(const LltmSequenceForward& p, int64_t row0)
      : from_(p.input, p.reverse ? p.steps - 1 : 0, p.reverse, row0 + threadIdx.x / 32, threadIdx.x % 32),
        units_(p.input, p.reverse ? p.steps - 1 : 0, p.reverse, row0 + threadIdx.x / 32, 0), column_(32 * p.input.column),
        features_(static_cast<int>(p.features)), rows_(static_cast<int>(min(p.batch - row0, int64_t{Rows}))) {
    const int64_t strides = p.input.step | p.input.row | p.features;
    copies_ = p.lengths.base == nullptr && p.input.column == 1 && strides % kUnit == 0 &&
              reinterpret_cast<uintptr_t>(p.input.base) % 16 == 0;
  }

  // The next step, which is step `time`; zeros in rows that have not this step. Its operand is not read any more.
  __device__ __forceinline__ void begin(int64_t time, const int64_t (&steps)[kRowsOfWarp], T* operand, int pitch) {
    if (copies_) {
#pragma unroll
      for (int j = 0; j < kRowsOfWarp; ++j)
        if (const int row = OwnCells<Rows>::row_of_cluster(j); row < rows_)
          for (int unit = lane(); unit < features_ / kUnit; unit += 32)
            copy_16_bytes(shared_address(operand + row * pitch + unit * kUnit), units_.row(j) + unit * kUnit);
      units_.advance();
      return;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i * 32 >= features_) break;
#pragma unroll
      for (int j = 0; j < kRowsOfWarp; ++j)
        moved_[j][i] = time < steps[j] && lane() + i * 32 < features_ ? from_.row(j)[i * column_] : T{};
    }
    from_.advance();
  }
  // Before the barrier after which the operand is read.
  __device__ __forceinline__ void end(T* operand, int pitch) const {
    if (copies_) return wait_for_copies();
    T* const to = operand + threadIdx.x / 32 * pitch + lane();
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i * 32 >= features_) break;
#pragma unroll
      for (int j = 0; j < kRowsOfWarp; ++j)
        if (OwnCells<Rows>::row_of_cluster(j) < Rows && lane() + i * 32 < features_) to[j * kWarps * pitch + i * 32] = moved_[j][i];
    }
  }

 private:
  static constexpr int kUnit = 16 / static_cast<int>(sizeof(T));  // elements
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  Walk<const T> from_, units_;  // of the lane's column; of the first one
  int64_t column_;
  int features_, rows_;
  bool copies_;
  T moved_[kRowsOfWarp][kColumns];
};

// The input's part of the gates of a thread's cells, one step ahead.
template <int Rows>
class InputSums {
 public:
  static constexpr int kRowsOfWarp = OwnCells<Rows>::kCount;
  float at[kRowsOfWarp][3] = {};

  __device__ InputSums(const LltmSequenceForward& p, int64_t row0, int64_t state)
      : from_(p.sums, p.reverse ? p.steps - 1 : 0, p.reverse, row0 + threadIdx.x / 32, state), gate_(p.state * p.sums.column) {}

  __device__ __forceinline__ void read(const bool (&is_there)[kRowsOfWarp]) {
    if (!from_.is_there()) return;
#pragma unroll
    for (int j = 0; j < kRowsOfWarp; ++j)
#pragma unroll
      for (int i = 0; i < 3; ++i) ahead_[j][i] = is_there[j] ? from_.row(j)[i * gate_] : 0;
    from_.advance();
  }
  __device__ __forceinline__ void take() {
#pragma unroll
    for (int j = 0; j < kRowsOfWarp; ++j)
#pragma unroll
      for (int i = 0; i < 3; ++i) at[j][i] = ahead_[j][i];
  }

 private:
  Walk<const float> from_;
  int64_t gate_;  // from one gate to the next, in elements
  float ahead_[kRowsOfWarp][3] = {};
};

// ---- the kernel ----

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// A thread's cells, between steps, and where their values of a step go.
template <class Products>
struct States : OwnCells<Products::kRows> {
  using T = typename Products::T;
  using OwnCells<Products::kRows>::kCount;
  float cell[kCount], h[kCount], bias[3];
  bool is_there[kCount];
  Walk<T> to_h, to_cells;
  Walk<float> to_gates;
  int64_t gate;  // from one gate to the next, in elements

  __device__ States(const LltmSequenceForward& p, int64_t row0, int64_t state0)
      : OwnCells<Products::kRows>(p.lengths, row0, state0, p.batch, p.steps), gate(p.state * p.gates.column) {
    const int64_t s = this->state, first = p.reverse ? p.steps - 1 : 0, row = this->row(0);
    to_h = {p.h, first, p.reverse, row, s}, to_cells = {p.cells, first, p.reverse, row, s};
    to_gates = {p.gates, first, p.reverse, row, s};
#pragma unroll
    for (int i = 0; i < 3; ++i) bias[i] = p.bias.base != nullptr && s < p.state ? read<T, true>(p.bias, 0, i * p.state + s) : 0;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      is_there[j] = this->in_batch(j, p.batch) && s < p.state;
      cell[j] = is_there[j] ? read<T, true>(p.old_cell, this->row(j), s) : 0;
      h[j] = is_there[j] ? read<T, true>(p.old_h, this->row(j), s) : 0;
    }
  }

  // The outputs of a step that is there for row j, or zeros.
  __device__ __forceinline__ void write_step(int j, bool active, const float (&z)[3]) const {
    if (!is_there[j]) return;
    *to_h.row(j) = narrowed<T>(active ? h[j] : 0);
    if (to_cells.is_there()) *to_cells.row(j) = narrowed<T>(active ? cell[j] : 0);
    if (!to_gates.is_there()) return;
#pragma unroll
    for (int i = 0; i < 3; ++i) to_gates.row(j)[i * gate] = active ? z[i] : 0;
  }
  __device__ __forceinline__ void advance() { to_h.advance(), to_cells.advance(), to_gates.advance(); }
};

template <class Products>
__device__ void run_sequence(const LltmSequenceForward& p) {
  using T = typename Products::T;
  constexpr int kCount = States<Products>::kCount;
  extern __shared__ uint4 shared[];
  const auto cluster = cooperative_groups::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks()), rank = static_cast<int>(cluster.block_rank());
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Shape<Products> shape(blocks, p.features);
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) / blocks * Products::kRows, state0 = int64_t{rank} * kStates;
  char* const base = reinterpret_cast<char*>(shared);
  T* const operands = reinterpret_cast<T*>(base + shape.operands_at());
  float* const sums = reinterpret_cast<float*>(base + shape.sums_at());
  const Exchange<T> exchange(reinterpret_cast<uint64_t*>(base), blocks * Products::kRows * kStates * static_cast<int>(sizeof(T)),
                             blocks, operands + warp * shape.pitch + state0, shape.operand());
  const Products products(p, state0, shape, Products::kFirst != 0 ? sums : reinterpret_cast<float*>(base + shape.weights_at()));

  for (int i = static_cast<int>(threadIdx.x); i < 2 * shape.operand(); i += kThreads) operands[i] = T{};
  __syncthreads();
  for (int row = warp; row < Products::kRows && row0 + row < p.batch; row += kWarps)
    for (int64_t column = lane; column < p.state; column += 32)
      operands[row * shape.pitch + column] = *at<const T>(p.old_h, row0 + row, column);
  States<Products> own(p, row0, state0);
  InputMover<T, Products::kRows> input(p, row0);
  InputSums<Products::kRows> input_sums(p, row0, own.state);
  const auto time_of = [&](int64_t k) { return p.reverse ? p.steps - 1 - k : k; };
  const auto input_of = [&](int64_t k) { return operands + (k % 2) * shape.operand() + shape.held; };
  if constexpr (Products::kHasInput) {
    for (int64_t k = 0; k < min(p.steps, int64_t{2}); ++k) {
      input.begin(time_of(k), own.steps, input_of(k), shape.pitch);
      if (k == 0) input.end(input_of(0), shape.pitch);
    }
  } else {
    input_sums.read(own.is_there);
  }
  cluster.sync();

  for (int64_t k = 0; k < p.steps; ++k) {
    const int64_t time = time_of(k);
    const bool goes_on = k + 1 < p.steps;
    if (goes_on) exchange.begin(k + 1);
    if constexpr (!Products::kHasInput) {
      input_sums.take();
      if (goes_on) input_sums.read(own.is_there);
    }
    products.multiply(operands + (k % 2) * shape.operand(), sums);
    if constexpr (Products::kHasInput)
      if (goes_on) input.end(input_of(k + 1), shape.pitch);
    __syncthreads();
    float z[kCount][3];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int row = warp + j * kWarps;
      if (row >= Products::kRows) break;  // of the whole warp
#pragma unroll
      for (int gate = 0; gate < 3; ++gate)
        z[j][gate] = own.bias[gate] + input_sums.at[j][gate] + sum_of_splits<Products>(sums, gate, row, lane);
      const Cell<float> made = next_cell<T>(z[j], own.cell[j]);
      const bool active = time < own.steps[j];
      own.cell[j] = active ? widen(narrowed<T>(made.cell)) : own.cell[j];
      own.h[j] = active ? widen(narrowed<T>(made.h)) : own.h[j];
      if (!goes_on) continue;
      exchange.send(k + 1, own.is_there[j] ? narrowed<T>(own.h[j]) : T{}, j * kWarps * shape.pitch);
    }
    if constexpr (Products::kHasInput)
      if (k + 2 < p.steps) input.begin(time_of(k + 2), own.steps, input_of(k), shape.pitch);
#pragma unroll
    for (int j = 0; j < kCount; ++j) own.write_step(j, time < own.steps[j], z[j]);
    own.advance();
    if (goes_on) exchange.wait(k + 1);
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (!own.is_there[j]) continue;
    if (p.new_h.base != nullptr) write<T, true>(p.new_h, own.row(j), own.state, own.h[j]);
    if (p.new_cell.base != nullptr) write<T, true>(p.new_cell, own.row(j), own.state, own.cell[j]);
  }
}

#endif

template <class Products>
__global__ void __launch_bounds__(kThreads, 1) lltm_sequence_cluster_kernel(LltmSequenceForward p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  run_sequence<Products>(p);
#endif
}

// ---- the choice ----

template <class Products>
LltmClusterChoice choice(const Device& device, const LltmSequenceSizes& z, int blocks) {
  const Shape<Products> shape(blocks, z.step.features);
  if (!Products::takes(shape.depth)) return {};
  if (Products::kHasInput && z.step.features > InputMover<typename Products::T, Products::kRows>::kMostFeatures) return {};
  LltmClusterChoice made = cluster_choice(device, kernel_address(lltm_sequence_cluster_kernel<Products>), z.step.batch,
                                          Products::kRows, blocks, shape.shared());
  made.wants_sums = !Products::kHasInput;
  return made;
}

template <class Fewest, class... More>
LltmClusterChoice choose(const Device& device, const LltmSequenceSizes& z, int blocks) {
  LltmClusterChoice made = choice<Fewest>(device, z, blocks);
  ((made = fewer_rows(device, made, choice<More>(device, z, blocks))), ...);
  return made;
}

}  // namespace

LltmClusterChoice lltm_sequence_cluster(const Device& device, const LltmSequenceSizes& z, bool preferred) {
  const int blocks = cluster_blocks(z.step.state);
  if (device.generation < 90 || z.step.batch == 0 || z.step.state == 0 || blocks == 0) return {};
  if (z.step.features > 1 << 20) return {};  // what 32 bits count
  const LltmClusterChoice made = [&]() -> LltmClusterChoice {
    switch (z.step.dtype) {
      case Dtype::f16: return choose<HalfProducts<f16, 1>, HalfProducts<f16, 2>, HalfProducts<f16, 8>>(device, z, blocks);
      case Dtype::bf16: return choose<HalfProducts<bf16, 1>, HalfProducts<bf16, 2>, HalfProducts<bf16, 8>>(device, z, blocks);
      case Dtype::f32:
        if (z.step.state > kFewStates) return choose<FloatProducts<4, 0>, FloatProducts<8, 0>>(device, z, blocks);
        return choose<FloatProducts<1, 4>, FloatProducts<2, 4>, FloatProducts<4, 4>, FloatProducts<8, 0>>(device, z, blocks);
      default: return {};
    }
  }();
  // The sums of all steps are to fit beside the caller's tensors.
  constexpr double kMostSums = 2147483648.0;
  const bool fits =
      !made.wants_sums || 12.0 * static_cast<double>(z.steps) * static_cast<double>(z.step.batch * z.step.state) <= kMostSums;
  return preferred && !(fits && pays(device, z, made)) ? LltmClusterChoice{} : made;
}

}  // namespace narrows::gpu
