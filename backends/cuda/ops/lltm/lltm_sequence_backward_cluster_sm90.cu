// SPDX-License-Identifier: Apache-2.0
// lltm_sequence_backward_cluster_sm90.cu -- the state's gradients of all steps, see lltm_sequence_cluster.h. The operand of a step
// is the gradient of the gates of a cluster's rows, in f32; a block multiplies it by the weights of its 32 states. Beside weights
// of 16 bits, many rows are split into two numbers that TF32 units take: together they have 21 bits, and no range is lost.
#include "lltm_sequence_cluster_sm90.h"
#include "lltm_split.h"
#include "ops/copy_async_sm80.h"

namespace narrows::gpu {
namespace {

constexpr int kThreads = kClusterThreads, kWarps = kClusterWarps, kStates = kClusterStates;

// Sizes that the kernel and the host agree on. Columns of the operand: the gates of all states, each gate rounded up to whole
// blocks.
template <class Products>
struct Shape {
  int held, depth, pitch;  // columns of a gate; all columns; elements from row to row

  __host__ __device__ explicit Shape(int blocks) : held(blocks * kStates), depth(3 * held), pitch(Products::pitch(depth)) {}
  __host__ __device__ int operand() const { return Products::kRows * pitch; }  // elements
  __host__ __device__ int sums() const { return Products::kSplits * Products::kRows * Products::kSumsPitch; }
  // Barriers, two operands, sums, weights; while the kernel begins, weights of 16 bits lie in the operands' place.
  static __host__ __device__ size_t operands_at() { return 16; }
  __host__ __device__ size_t sums_at() const { return operands_at() + size_t{2} * operand() * 4; }
  __host__ __device__ size_t weights_at() const { return sums_at() + size_t{1} * sums() * 4; }
  __host__ size_t shared() const {
    return std::max(weights_at() + Products::weights_size(depth), operands_at() + Products::kFirst);
  }
};

// Weights of columns [first, first + count) of the operand x the block's states, 0 outside: put(column, state, weight). A warp has
// every eighth column.
template <class T, class Put>
__device__ __forceinline__ void read_weights(const LltmSequenceBackward& p, int64_t state0, int held, int first, int count,
                                             const Put& put) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t state = state0 + lane;
  const auto get = [&](int i) {
    const int column = first + warp + i * kWarps, gate = column / held, row = column % held;
    const bool there = gate < 3 && row < p.state && state < p.state;
    const T weight = *at<const T>(p.weights, there ? gate * p.state + row : 0, there ? state : 0);
    return there ? widen(weight) : 0.0f;
  };
  move_in_batches<float>(count / kWarps, get, [&](int i, float weight) { put(warp + i * kWarps, lane, weight); });
}

// ---- 16 bits, many rows ----

// Two warps share the states, four the reduction. The weights are the left operand, 16 states by 8 columns an instruction. A thread
// reads 16 bytes of a row of the operand, columns 4 * unit to 4 * unit + 3 of 16, for two instructions.
template <class Element>
class HalfProducts {
 public:
  using T = Element;
  static constexpr int kRows = 8, kColumns = 1, kSplits = 4, kSumsPitch = kStates + 4, kDepthUnit = 16;
  static constexpr int kMostChunks = 12;  // of 16 columns, of a warp
  // Two rows of 64 bytes touch every bank.
  static __host__ __device__ int pitch(int depth) { return depth + (depth % 32 == 0 ? 16 : 0); }
  static __host__ __device__ size_t weights_size(int) { return 0; }
  static constexpr int kFirstPitch = kStates + 4, kFirst = kSplits * kDepthUnit * kFirstPitch * 4;
  static bool takes(int depth) { return depth <= kMostChunks * kSplits * kDepthUnit; }

  // `first`: room for kFirst bytes, until all threads are here again.
  __device__ HalfProducts(const LltmSequenceBackward& p, int64_t state0, const Shape<HalfProducts>& shape, void* first)
      : chunks_(shape.depth / kDepthUnit), pitch_(shape.pitch) {
    float* const some = static_cast<float*>(first);
#pragma unroll
    for (int j = 0; j < kMostChunks; ++j) {
      if (j * kSplits >= chunks_) break;
      __syncthreads();
      read_weights<T>(p, state0, shape.held, j * kSplits * kDepthUnit, kSplits * kDepthUnit,
                      [&](int column, int state, float weight) { some[column * kFirstPitch + state] = weight; });
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 8; ++i)  // of [half][column][upper state]
        weights_[j][i] = some[(split() * kDepthUnit + unit() * 4 + i / 2) * kFirstPitch + tile() * 16 + group() + i % 2 * 8];
    }
    __syncthreads();
  }

  __device__ __forceinline__ void multiply(const float* operand, float* sums) const {
    // Each instruction waits for the one before it that has the same sums.
    float first[2][4] = {}, second[2][4] = {};
#pragma unroll
    for (int j = 0; j < kMostChunks; ++j) {
      const int chunk = split() + j * kSplits;
      if (chunk >= chunks_) break;
      const float4 x = *reinterpret_cast<const float4*>(operand + group() * pitch_ + chunk * kDepthUnit + unit() * 4);
      const float b[4] = {x.x, x.y, x.z, x.w};
      float upper[4], lower[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        upper[i] = __uint_as_float(__float_as_uint(b[i]) & 0xffffe000);
        lower[i] = is_finite(b[i]) ? b[i] - upper[i] : 0;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply_add(first[half], weights_[j] + half * 4, upper[half * 2], upper[half * 2 + 1]);
        multiply_add(second[half], weights_[j] + half * 4, lower[half * 2], lower[half * 2 + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sum_at<HalfProducts>(sums, split(), 0, unit() * 2 + i % 2, tile() * 16 + group() + i / 2 * 8) =
          add_second(first[0][i] + first[1][i], second[0][i] + second[1][i]);
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int group() { return lane() / 4; }
  static __device__ int unit() { return lane() % 4; }
  static __device__ int tile() { return static_cast<int>(threadIdx.x) / 32 % 2; }
  static __device__ int split() { return static_cast<int>(threadIdx.x) / 64; }
  static __device__ __forceinline__ void multiply_add(float (&c)[4], const float* a, float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
  }

  int chunks_, pitch_;
  float weights_[kMostChunks][8];
};

// ---- f32, and few rows of 16 bits, whose weights are widened ----

// A thread has four states; a quarter of a warp four columns, a warp every eighth 16 of them: `Held` times 16 have their weights in
// registers; 0: shared memory has them.
template <class Element, int Rows, int Held>
class FloatProducts {
 public:
  using T = Element;
  static constexpr int kRows = Rows, kColumns = 1, kSplits = kWarps, kSumsPitch = kStates, kDepthUnit = 16;
  static __host__ __device__ int pitch(int depth) { return depth; }
  static __host__ __device__ size_t weights_size(int depth) { return static_cast<size_t>(depth) * kStates * 4; }
  static constexpr int kFirst = 0;
  static bool takes(int depth) { return Held == 0 || depth <= Held * kWarps * kDepthUnit; }

  __device__ FloatProducts(const LltmSequenceBackward& p, int64_t state0, const Shape<FloatProducts>& shape, void* weights)
      : chunks_(shape.depth / kDepthUnit), pitch_(shape.pitch), weights_(static_cast<const float4*>(weights)) {
    auto* to = static_cast<float*>(weights);  // [column][state]
    read_weights<T>(p, state0, shape.held, 0, shape.depth,
                    [&](int k, int state, float weight) { to[k * kStates + state] = weight; });
    if constexpr (Held == 0) return;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Held; ++i)
      if (const int chunk = warp() + i * kWarps; chunk < chunks_) read(chunk, held_[i]);
  }

  __device__ __forceinline__ void multiply(const float* operand, float* sums) const {
    float own[Rows][4] = {};
    if constexpr (Held != 0) {
#pragma unroll
      for (int i = 0; i < Held; ++i)
        if (const int chunk = warp() + i * kWarps; chunk < chunks_) add(operand + column(chunk), held_[i], own);
    } else {
#pragma unroll 2
      for (int chunk = warp(); chunk < chunks_; chunk += kWarps) {
        float4 w[4];
        read(chunk, w);
        add(operand + column(chunk), w, own);
      }
    }
#pragma unroll
    for (int row = 0; row < Rows; ++row)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = own[row][i];
        sum += shuffle_xor(sum, 8);
        sum += shuffle_xor(sum, 16);
        if (slice() == i) sum_at<FloatProducts>(sums, warp(), 0, row, states() * 4 + i) = sum;
      }
  }

 private:
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ int slice() { return static_cast<int>(threadIdx.x) % 32 / 8; }
  static __device__ int states() { return static_cast<int>(threadIdx.x) % 8; }
  static __device__ int column(int chunk) { return chunk * kDepthUnit + slice() * 4; }
  __device__ __forceinline__ void read(int chunk, float4 (&w)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = weights_[(column(chunk) + i) * (kStates / 4) + states()];
  }
  __device__ __forceinline__ void add(const float* columns, const float4 (&w)[4], float (&own)[Rows][4]) const {
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      const float4 x = *reinterpret_cast<const float4*>(columns + row * pitch_);
      const float xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        own[row][0] = fmaf(xs[i], w[i].x, own[row][0]), own[row][1] = fmaf(xs[i], w[i].y, own[row][1]);
        own[row][2] = fmaf(xs[i], w[i].z, own[row][2]), own[row][3] = fmaf(xs[i], w[i].w, own[row][3]);
      }
    }
  }

  int chunks_, pitch_;
  const float4* weights_;
  float4 held_[Held == 0 ? 1 : Held][4];
};

// ---- the kernel ----

// What the gradients of a cell's gates are multiples of: of the gradients of its h and of its cell. It needs no gradient, so it is
// computed while these are still made.
struct CellFactors {
  float cell, gates[3];
};
__device__ __forceinline__ CellFactors cell_factors(const float (&z)[3], float cell) {
  return {tanh_slope(cell) * sigmoid(z[1]),
          {elu(z[2]) * sigmoid_slope(z[0]), hyperbolic_tangent(cell) * sigmoid_slope(z[1]), sigmoid(z[0]) * elu_slope(z[2])}};
}

// What the steps read of a thread's cells, one step after the other; zeros where there is no such step.
template <class T, int Count>
class Saved {
 public:
  // Of the step that take() was called for.
  float grad_h[Count];
  CellFactors factors[Count];

  __device__ Saved(const LltmSequenceBackward& p, int64_t row, int64_t state)
      : gate_(p.state * p.gates.column), from_grad_h_(p.grad_h, last(p), !p.reverse, row, state),
        from_cells_(p.cells, last(p), !p.reverse, row, state), from_gates_(p.gates, last(p), !p.reverse, row, state) {}
  static __device__ int64_t last(const LltmSequenceBackward& p) { return p.reverse ? 0 : p.steps - 1; }

  // Begins to read the next step, which is step `time`.
  __device__ __forceinline__ void read(int64_t time, const int64_t (&steps)[Count], bool is_state) {
#pragma unroll
    for (int j = 0; j < Count; ++j) {
      const bool there = is_state && time < steps[j];
      next_grad_h_[j] = there && from_grad_h_.is_there() ? widen(*from_grad_h_.row(j)) : 0;
      cell_[j] = there ? widen(*from_cells_.row(j)) : 0;
#pragma unroll
      for (int i = 0; i < 3; ++i) z_[j][i] = there ? from_gates_.row(j)[i * gate_] : 0;
    }
    from_grad_h_.advance(), from_cells_.advance(), from_gates_.advance();
  }
  // What was read last.
  __device__ __forceinline__ void take() {
#pragma unroll
    for (int j = 0; j < Count; ++j) grad_h[j] = next_grad_h_[j], factors[j] = cell_factors(z_[j], cell_[j]);
  }

 private:
  int64_t gate_;  // from one gate to the next, in elements
  Walk<const T> from_grad_h_, from_cells_;
  Walk<const float> from_gates_;
  float next_grad_h_[Count] = {}, cell_[Count] = {}, z_[Count][3] = {};
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <class Products>
__device__ void run_sequence_backward(const LltmSequenceBackward& p) {
  using T = typename Products::T;
  using Own = OwnCells<Products::kRows>;
  constexpr int kCount = Own::kCount;
  extern __shared__ uint4 shared[];
  const auto cluster = cooperative_groups::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks()), rank = static_cast<int>(cluster.block_rank());
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const Shape<Products> shape(blocks);
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) / blocks * Products::kRows, state0 = int64_t{rank} * kStates;
  char* const base = reinterpret_cast<char*>(shared);
  float* const operands = reinterpret_cast<float*>(base + shape.operands_at());
  float* const sums = reinterpret_cast<float*>(base + shape.sums_at());
  const Exchange<float> exchange(reinterpret_cast<uint64_t*>(base), blocks * Products::kRows * 3 * kStates * 4, blocks,
                                 operands + warp * shape.pitch + state0, shape.operand());
  const Products products(p, state0, shape, Products::kFirst != 0 ? operands : reinterpret_cast<float*>(base + shape.weights_at()));
  for (int i = static_cast<int>(threadIdx.x); i < 2 * shape.operand(); i += kThreads) operands[i] = 0;

  const Own own(p.lengths, row0, state0, p.batch, p.steps);
  const bool is_state = own.state < p.state;
  float grad_h[kCount], grad_cell[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const bool there = is_state && own.in_batch(j, p.batch);
    grad_h[j] = there && p.grad_new_h.base != nullptr ? gpu::read<T, true>(p.grad_new_h, own.row(j), own.state) : 0;
    grad_cell[j] = there && p.grad_new_cell.base != nullptr ? gpu::read<T, true>(p.grad_new_cell, own.row(j), own.state) : 0;
  }
  const auto time_of = [&](int64_t k) { return p.reverse ? p.steps - 1 - k : k; };
  Saved<T, kCount> saved(p, own.row(0), own.state);
  Walk<T> to_h(p.d_h, Saved<T, kCount>::last(p), !p.reverse, own.row(0), own.state);
  Walk<T> to_cell(p.d_cell, Saved<T, kCount>::last(p), !p.reverse, own.row(0), own.state);
  const auto read = [&](int64_t k) {
    if (k >= 0) saved.read(time_of(k), own.steps, is_state);
  };
  read(p.steps - 1);
  saved.take();
  read(p.steps - 2);
  cluster.sync();

  for (int64_t k = p.steps; k-- > 0;) {
    const int64_t time = time_of(k), number = p.steps - k;
    float* const operand = operands + (number % 2) * shape.operand();
    exchange.begin(number);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (Own::row_of_cluster(j) >= Products::kRows) break;  // of the whole warp
      const bool active = is_state && time < own.steps[j];
      // Rounded as the sums over all steps read them.
      const T h = narrowed<T>(active ? saved.grad_h[j] + grad_h[j] : 0), cell = narrowed<T>(active ? grad_cell[j] : 0);
      if (is_state && own.in_batch(j, p.batch)) *to_h.row(j) = h, *to_cell.row(j) = cell;
      const CellFactors& factors = saved.factors[j];
      const float d_cell = factors.cell * widen(h) + widen(cell);
      const float gates[3] = {factors.gates[0] * d_cell, factors.gates[1] * widen(h), factors.gates[2] * d_cell};
      if (active) grad_cell[j] = widen(narrowed<T>(d_cell));
#pragma unroll
      for (int gate = 0; gate < 3; ++gate)
        exchange.send(number, active ? gates[gate] : 0, j * kWarps * shape.pitch + gate * shape.held);
    }
    to_h.advance(), to_cell.advance();
    saved.take();  // of the step before
    read(k - 2);
    exchange.wait(number);
    products.multiply(operand, sums);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      if (time < own.steps[j]) grad_h[j] = sum_of_splits<Products>(sums, 0, Own::row_of_cluster(j), lane);
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (!is_state || !own.in_batch(j, p.batch)) continue;
    if (p.d_old_h.base != nullptr) write<T, true>(p.d_old_h, own.row(j), own.state, grad_h[j]);
    if (p.d_old_cell.base != nullptr) write<T, true>(p.d_old_cell, own.row(j), own.state, grad_cell[j]);
  }
}

#endif

template <class Products>
__global__ void __launch_bounds__(kThreads, 1) lltm_sequence_backward_cluster_kernel(LltmSequenceBackward p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  run_sequence_backward<Products>(p);
#endif
}

// ---- the choice ----

template <class Products>
LltmClusterChoice choice(const Device& device, int64_t batch, int blocks) {
  const Shape<Products> shape(blocks);
  if (!Products::takes(shape.depth)) return {};
  return cluster_choice(device, kernel_address(lltm_sequence_backward_cluster_kernel<Products>), batch, Products::kRows, blocks,
                        shape.shared());
}

template <class Fewest, class... More>
LltmClusterChoice choose(const Device& device, int64_t batch, int blocks) {
  LltmClusterChoice made = choice<Fewest>(device, batch, blocks);
  ((made = fewer_rows(device, made, choice<More>(device, batch, blocks))), ...);
  return made;
}

// One or two rows of up to 128 states, whose weights fit into registers, else more rows.
template <class T, class... More>
LltmClusterChoice few_rows(const Device& device, int64_t batch, int blocks) {
  return choose<FloatProducts<T, 1, 3>, FloatProducts<T, 2, 3>, More...>(device, batch, blocks);
}

}  // namespace

LltmClusterChoice lltm_sequence_backward_cluster(const Device& device, const LltmSequenceSizes& z, bool preferred) {
  const int64_t batch = z.step.batch;
  const int blocks = cluster_blocks(z.step.state);
  if (device.generation < 90 || batch == 0 || z.step.state == 0 || blocks == 0) return {};
  const LltmClusterChoice made = [&]() -> LltmClusterChoice {
    switch (z.step.dtype) {
      case Dtype::f16: return few_rows<f16, HalfProducts<f16>>(device, batch, blocks);
      case Dtype::bf16: return few_rows<bf16, HalfProducts<bf16>>(device, batch, blocks);
      case Dtype::f32: return few_rows<float, FloatProducts<float, 4, 0>, FloatProducts<float, 8, 0>>(device, batch, blocks);
      default: return {};
    }
  }();
  return preferred && !pays(device, z, made) ? LltmClusterChoice{} : made;
}

}  // namespace narrows::gpu
