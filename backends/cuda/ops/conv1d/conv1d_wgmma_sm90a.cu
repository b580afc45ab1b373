// SPDX-License-Identifier: Apache-2.0
// conv1d_wgmma_sm90a.cu -- correlations of f16 and bf16 on Hopper's matrix units. Weights are packed into the workspace. x goes
// from where it lies to shared memory, if the copy engine (TMA) can walk it and the stride is 1; else it is copied to the workspace
// first, one line for each residue of the position modulo the stride.
//
// A block makes 128 output channels x 256 positions and goes on to the next tile (persistent). The reduction runs over slices of 64
// channels; within one over chunks of neighbouring taps; within one over its taps. With x contiguous along positions neither the
// copy engine nor a matrix descriptor can start at any position: both know multiples of 16 bytes only. So a slice of x comes once
// for a chunk, from an aligned start and with a halo of 16 positions; three warps transpose it in shared memory; a position then is
// 16 bytes of 8 channels, and a tap is the descriptor's address + 16 for each position that it reads later.
//
//   warp 0          loads: x by slices, weights by (slice, tap)
//   warps 1 to 3    transpose x: ldmatrix.trans, stmatrix
//   warps 4 to 11   two warpgroups of 64 x 256 sums each, and what becomes of them
//
// Shared memory, and how descriptors read it (bits 0-13 address >> 4, 16-29 leading step >> 4, 32-45 stride step >> 4, 62-63
// swizzle):
//   raw x     [4 boxes of 64 positions][channel][64 positions], 128-byte swizzle; then the halo, [channel][16 positions], plain
//   x         [8 channels][272 positions][8 channels]: K-major, no swizzle; stride step 128, leading step 272 * 16
//   weights   [channel][64 output channels]: M-major ("transposed"), 128-byte swizzle; stride step 1024 from 8 channels to the next
//   out       [64 output channels][64 positions], 128-byte swizzle
#include "conv1d_native.h"
#include "conv1d_wgmma_pack_sm90a.h"

namespace narrows::gpu {
namespace {

constexpr int kRows = 128, kColumns = 256;  // output channels, positions
constexpr int kNarrow = 32;                 // positions of a row's last tile that are made by themselves
constexpr int kWarpgroup = 128, kBlockThreads = 3 * kWarpgroup;
constexpr int kPositions = kColumns + kHalo, kChunk = kPositions * 16;    // bytes from 8 channels to the next 8
constexpr int kTileBytes = kPositions * kSlice * 2, kBox = kSlice * 128;  // of x; of 64 positions in it
constexpr int kWeightBox = kSlice * 128, kWeightTile = 2 * kWeightBox;    // of 64 output channels, of all
constexpr int kRawTiles = 2, kTiles = 2, kWeightTiles = 4, kOutBytes = 64 * 128;
constexpr int kBarriers = 2 * (kRawTiles + kTiles + kWeightTiles) + 1;
constexpr int kSharedBytes = 1024 + (kRawTiles + kTiles) * kTileBytes + kWeightTiles * kWeightTile + 2 * kOutBytes + 8 * kBarriers;

struct WgmmaShape {
  CUtensorMap x, x_halo, w, out;
  void* y;
  const void* bias;
  int64_t out_batch, out_group, out_channel, out_position, bias_stride;
  int groups, outs, ins, taps, length;
  int slices, row_tiles, column_tiles, tiles, wide_tiles;
  bool resident;  // all weights of a block's rows stay in shared memory
  bool copied;    // x lies in the workspace, by lines
  TapChunks of;
};

// ---- instructions ----

// 64 x 256 sums += 16 of the reduction; `accumulate` = 0: the sums start here.
#define NARROWS_WGMMA(type)                                                                                                  \
  asm volatile(                                                                                                              \
      "{ .reg .pred p; setp.ne.b32 p, %130, 0;\n"                                                                            \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                                                           \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
      "%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59," \
      "%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88," \
      "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,"   \
      "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, %128, %129, p, 1, 1, 1, 0; }\n"               \
      : NARROWS_SUMS8(0), NARROWS_SUMS8(8), NARROWS_SUMS8(16), NARROWS_SUMS8(24), NARROWS_SUMS8(32), NARROWS_SUMS8(40),      \
        NARROWS_SUMS8(48), NARROWS_SUMS8(56), NARROWS_SUMS8(64), NARROWS_SUMS8(72), NARROWS_SUMS8(80), NARROWS_SUMS8(88),    \
        NARROWS_SUMS8(96), NARROWS_SUMS8(104), NARROWS_SUMS8(112), NARROWS_SUMS8(120)                                        \
      : "l"(a), "l"(b), "r"(accumulate))
// The same with 64 x 32 of them.
#define NARROWS_NARROW_WGMMA(type)                                                             \
  asm volatile(                                                                                \
      "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"                                               \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                              \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 1, 0; }\n" \
      : NARROWS_SUMS8(0), NARROWS_SUMS8(8)                                                     \
      : "l"(a), "l"(b), "r"(accumulate))
template <class T>
__device__ __forceinline__ void wgmma(float (&sums)[16], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (std::is_same_v<T, f16>)
    NARROWS_NARROW_WGMMA("f16");
  else
    NARROWS_NARROW_WGMMA("bf16");
}
#undef NARROWS_NARROW_WGMMA
template <class T>
__device__ __forceinline__ void wgmma(float (&sums)[128], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (std::is_same_v<T, f16>)
    NARROWS_WGMMA("f16");
  else
    NARROWS_WGMMA("bf16");
}
#undef NARROWS_WGMMA

__device__ __forceinline__ void load_shared_16_bytes(uint32_t from, uint32_t* words) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from));
}

// ---- a block's memory and its work ----

struct Memory {
  uint32_t raw, x, weights, out;
  uint32_t raw_full, raw_empty, x_full, x_empty, weights_full, weights_empty, one_ahead;

  __device__ explicit Memory(uint32_t base) {
    raw = (base + 1023) & ~1023u;
    x = raw + kRawTiles * kTileBytes, weights = x + kTiles * kTileBytes, out = weights + kWeightTiles * kWeightTile;
    raw_full = out + 2 * kOutBytes, raw_empty = raw_full + 8 * kRawTiles;
    x_full = raw_empty + 8 * kRawTiles, x_empty = x_full + 8 * kTiles;
    weights_full = x_empty + 8 * kTiles, weights_empty = weights_full + 8 * kWeightTiles;
    one_ahead = weights_empty + 8 * kWeightTiles;
  }
  __device__ void init_barriers() const {
    for (int i = 0; i < kRawTiles; ++i) init_barrier(raw_full + 8 * i, 1), init_barrier(raw_empty + 8 * i, 3);
    for (int i = 0; i < kTiles; ++i) init_barrier(x_full + 8 * i, 3), init_barrier(x_empty + 8 * i, 2);
    for (int i = 0; i < kWeightTiles; ++i) init_barrier(weights_full + 8 * i, 1), init_barrier(weights_empty + 8 * i, 2);
    init_barrier(one_ahead, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
};

// Output channels are the fastest: blocks that read one tile of x run side by side. What is left of the rows, if it is narrow,
// comes last, when there are blocks without another tile.
struct Place {
  int row, group, column, batch;
  bool narrow;
  __device__ Place(const WgmmaShape& s, int tile) : narrow(tile >= s.wide_tiles) {
    if (narrow) tile -= s.wide_tiles;
    row = tile % s.row_tiles * kRows, tile /= s.row_tiles;
    group = tile % s.groups, tile /= s.groups;
    batch = narrow ? tile : tile / s.column_tiles;
    column = (narrow ? s.column_tiles : tile - batch * s.column_tiles) * kColumns;
  }
};
// Steps of 16 channels in a slice.
__device__ __forceinline__ int steps_of(const WgmmaShape& s, int slice) {
  const int left = (s.ins - slice * kSlice + 15) / 16;
  return left < kSlice / 16 ? left : kSlice / 16;
}

// ---- loads: one thread; x runs ahead of the weights by the raw tiles ----

struct InputLoads {
  Ring<kRawTiles> ring{kFill};
  int tile, slice = 0, chunk = 0;

  __device__ void next(const WgmmaShape& s, const Memory& m) {
    if (tile >= s.tiles) return;
    const Place at(s, tile);
    wait(m.raw_empty + 8 * ring.slot, ring.phase);
    const uint32_t barrier = m.raw_full + 8 * ring.slot, to = m.raw + ring.slot * kTileBytes;
    expect_bytes(barrier, kTileBytes);
    const int first = at.column + s.of.chunk[chunk].start, line = s.of.chunk[chunk].line;
    for (int i = 0; i < kColumns / 64; ++i)
      copy_in(to + i * kBox, &s.x, barrier, first + i * 64, slice * kSlice, at.group, line, at.batch);
    copy_in(to + kColumns / 64 * kBox, &s.x_halo, barrier, first + kColumns, slice * kSlice, at.group, line, at.batch);
    ring.advance();
    if (++chunk == s.of.chunks) chunk = 0, ++slice;
    if (slice == s.slices) slice = 0, tile += static_cast<int>(gridDim.x);
  }
};

// Weights of this block's rows, all of them: [slice][tap][half of the rows][16 channels].
__device__ void load_resident_weights(const WgmmaShape& s, const Memory& m) {
  const Place at(s, blockIdx.x);
  expect_bytes(m.weights_full, s.taps * ((s.ins + 15) / 16) * 4096);
  uint32_t to = m.weights;
  for (int slice = 0; slice < s.slices; ++slice)
    for (int tap = 0; tap < s.taps; ++tap)
      for (int half = 0; half < 2; ++half)
        for (int step = 0; step < steps_of(s, slice); ++step, to += 2048)
          copy_in(to, &s.w, m.weights_full, at.row + half * 64, slice * kSlice + step * 16, tap, at.group, 0);
}

template <bool kResident>
__device__ void load(const WgmmaShape& s, const Memory& m) {
  InputLoads x{.tile = static_cast<int>(blockIdx.x)};
  if (s.copied) wait_for_kernel_ahead();
  for (int i = 0; i < kRawTiles; ++i) x.next(s, m);
  if (!s.copied) wait_for_kernel_ahead();  // the one that packs the weights
  if constexpr (kResident) {
    load_resident_weights(s, m);
    while (x.tile < s.tiles) x.next(s, m);
    return;
  }
  Ring<kWeightTiles> ring(kFill);
  for (int tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
    const Place at(s, tile);
    for (int slice = 0; slice < s.slices; ++slice)
      for (int chunk = 0, tap = 0; chunk < s.of.chunks; ++chunk) {
        for (int i = 0; i < s.of.chunk[chunk].taps; ++i, ++tap, ring.advance()) {
          wait(m.weights_empty + 8 * ring.slot, ring.phase);
          const uint32_t barrier = m.weights_full + 8 * ring.slot, to = m.weights + ring.slot * kWeightTile;
          expect_bytes(barrier, kWeightTile);
          for (int half = 0; half < 2; ++half)
            copy_in(to + half * kWeightBox, &s.w, barrier, at.row + half * 64, slice * kSlice, tap, at.group, 0);
        }
        x.next(s, m);
      }
  }
}

// ---- transposition: warps 1 to 3 share the groups of 8 positions ----

__device__ void transpose(const WgmmaShape& s, const Memory& m, int worker) {
  Ring<kRawTiles> raw(kDrain);
  Ring<kTiles> x(kFill);
  for (int tile = blockIdx.x; tile < s.tiles; tile += gridDim.x)
    for (int i = 0; i < s.slices * s.of.chunks; ++i, raw.advance(), x.advance()) {
      wait(m.raw_full + 8 * raw.slot, raw.phase);
      wait(m.x_empty + 8 * x.slot, x.phase);
      for (int half = 0; half < (steps_of(s, i / s.of.chunks) > 2 ? 2 : 1); ++half)
        transpose_32_channels<kColumns>(m.raw + raw.slot * kTileBytes, m.x + x.slot * kTileBytes, half, worker,
                                        (tile >= s.wide_tiles ? kNarrow + kHalo : kPositions) / 8);
      fence_proxy();
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(m.x_full + 8 * x.slot), arrive(m.raw_empty + 8 * raw.slot);
    }
}

// ---- products: a warpgroup's 64 x 256 sums, or 64 x 32 ----

template <class T, bool kResident, bool kCopyOut>
struct Products {
  const WgmmaShape& s;
  const Memory& m;
  const int group;    // which of the two warpgroups
  const bool leader;  // of its threads
  Ring<kWeightTiles> weights{kDrain};
  Ring<kTiles> x{kDrain};

  __device__ void release_weights() {
    if (!kResident && leader) arrive(m.weights_empty + 8 * weights.before());
  }
  __device__ void release_x() {
    if (leader) arrive(m.x_empty + 8 * x.before());
  }

  // A slice of kSteps * 16 channels. The number is known when compiling: a condition around a wgmma makes ptxas wait after each.
  template <int kSteps, int kSums>
  __device__ __forceinline__ void add_slice(float (&sums)[kSums], int slice, bool first_tile) {
    for (int chunk = 0, tap = 0; chunk < s.of.chunks; ++chunk, x.advance()) {
      wait(m.x_full + 8 * x.slot, x.phase);
      const int count = s.of.chunk[chunk].taps;
      uint32_t windows = m.x + x.slot * kTileBytes + s.of.chunk[chunk].shift * 16;
      for (int i = 0; i < count; ++i, ++tap, windows += s.of.tap_step * 16) {
        if (!kResident) wait(m.weights_full + 8 * weights.slot, weights.phase);
        const uint32_t at = kResident ? m.weights + (slice * kSlice * s.taps + tap * kSteps * 16) * 256 + group * kSteps * 2048
                                      : m.weights + weights.slot * kWeightTile + group * kWeightBox;
        const uint64_t a = descriptor(at, kWeightBox, 1024, 1), b = descriptor(windows, kChunk, 128, 0);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < kSteps; ++k) wgmma<T>(sums, a + k * 128, b + k * (2 * kChunk / 16), k > 0 ? 1 : slice | tap);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // the tap before this one has been read
        if ((slice | tap) != 0) {
          release_weights();
          if (i == 0) release_x();
        }
        weights.advance();
        // Resident: one warpgroup runs a tile of x ahead of the other, so that one multiplies while the other stores. Not further:
        // tiles are freed by both.
        if (kResident && group == 0 && leader && first_tile && (slice | chunk) == 0 && i == count - 1) arrive(m.one_ahead);
      }
    }
  }

  template <int kSums>
  __device__ __forceinline__ void multiply(float (&sums)[kSums], bool first_tile) {
    const int rest = steps_of(s, s.slices - 1), full = s.slices - (rest < kSlice / 16 ? 1 : 0);
    for (int slice = 0; slice < full; ++slice) add_slice<kSlice / 16>(sums, slice, first_tile);
    if (rest == 1) add_slice<1>(sums, full, first_tile);
    if (rest == 2) add_slice<2>(sums, full, first_tile);
    if (rest == 3) add_slice<3>(sums, full, first_tile);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
    release_weights();
    release_x();
  }

  // sums[4g], [4g + 1]: row warp * 16 + lane / 4, columns 8g + lane % 4 * 2 and the next; [4g + 2], [4g + 3]: 8 rows below.
  template <int kSums>
  __device__ __forceinline__ void add_bias(float (&sums)[kSums], int row, int filter_group) {
    if (s.bias == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = row + half * 8;
      const float bias =
          at < s.outs ? widen(static_cast<const T*>(s.bias)[(int64_t{filter_group} * s.outs + at) * s.bias_stride]) : 0.0f;
#pragma unroll
      for (int g = 0; g < kSums / 4; ++g) sums[4 * g + half * 2] += bias, sums[4 * g + half * 2 + 1] += bias;
    }
  }

  // By way of shared memory, 64 positions at a time: by the copy engine, or by threads along the positions.
  template <int kSums>
  __device__ __forceinline__ void store(const float (&sums)[kSums], const Place& at) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t buffer = m.out + group * kOutBytes;
    const int row = warp * 16 + (lane & 15);  // stmatrix: lanes 8i to 8i + 7 address the rows of matrix i
#pragma unroll
    for (int box = 0; box < (kSums + 31) / 32; ++box) {
      if (leader) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      sync_warpgroup(group + 1);
#pragma unroll
      for (int g = 0; g < 8 && g < kSums / 4; g += 2) {
        const int e = (box * 8 + g) * 4;
        const uint32_t to = buffer + row * 128 + (((g + (lane >> 4)) ^ (lane & 7)) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                     "r"(narrow_pair(sums[e], sums[e + 1], T{})), "r"(narrow_pair(sums[e + 2], sums[e + 3], T{})),
                     "r"(narrow_pair(sums[e + 4], sums[e + 5], T{})), "r"(narrow_pair(sums[e + 6], sums[e + 7], T{}))
                     : "memory");
      }
      fence_proxy();
      sync_warpgroup(group + 1);
      if constexpr (!kCopyOut) {
        s.out_position == 1 ? store_rows(at, buffer, at.column + box * 64) : store_box(at, buffer, at.column + box * 64);
      } else if (leader) {
        copy_out(&s.out, buffer, at.column + box * 64, at.row + group * 64, at.group, at.batch, 0);  // clipped at y's extents
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
  }

  // Rows that start anywhere: 16 bytes at a time where these are aligned in y, which are anywhere in the box; what is left at both
  // ends by elements. Eight threads share a row.
  __device__ __forceinline__ void store_rows(const Place& at, uint32_t buffer, int column) {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, part = thread % 8;
    const int rows = s.outs - at.row - group * 64, end = s.length - column < 64 ? s.length - column : 64;
    auto* const y = static_cast<uint16_t*>(s.y) + at.batch * s.out_batch + at.group * s.out_group + column;
#pragma unroll
    for (int i = 0; i < 64; i += kWarpgroup / 8) {
      const int row = i + thread / 8;
      if (row >= rows) break;
      uint16_t* const to = y + (at.row + group * 64 + row) * s.out_channel;
      const auto chunk = [&](int c) { return buffer + row * 128 + ((c ^ (row & 7)) << 4); };
      const int lead = static_cast<int>(-(reinterpret_cast<uintptr_t>(to) / 2) & 7), head = lead < end ? lead : end;
      const int vectors = (end - head) / 8, tail = head + vectors * 8;
      if (part < vectors) {
        uint32_t words[8];
        load_shared_16_bytes(chunk(part), words);
        if (head != 0) load_shared_16_bytes(chunk(part + 1), words + 4);
        shift_down(words, head * 2);
        store_16_bytes(to + head + part * 8, {words[0], words[1], words[2], words[3]});
      }
      for (int e = part; e < head + end - tail; e += 8) {
        const int position = e < head ? e : e - head + tail;
        uint16_t bits;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(chunk(position / 8) + position % 8 * 2));
        to[position] = bits;
      }
    }
  }

  // Rows whose positions are apart.
  __device__ __forceinline__ void store_box(const Place& at, uint32_t buffer, int column) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    auto* const y = static_cast<uint16_t*>(s.y) + at.batch * s.out_batch + at.group * s.out_group;
    const int rows = s.outs - at.row - group * 64;
    constexpr int kAtOnce = 4;
    for (int first = warp; first < 64 && first < rows; first += 4 * kAtOnce) {
      uint16_t bits[kAtOnce][2];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = first + r * 4, in_box = lane + i * 32;
          asm volatile("ld.shared.u16 %0, [%1];"
                       : "=h"(bits[r][i])
                       : "r"(buffer + row * 128 + (((in_box >> 3) ^ (row & 7)) << 4) + (in_box & 7) * 2));
        }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = first + r * 4, position = column + lane + i * 32;
          if (row < rows && position < s.length)
            y[(at.row + group * 64 + row) * s.out_channel + position * s.out_position] = bits[r][i];
        }
    }
  }

  template <int kSums>
  __device__ __forceinline__ void make_tile(const Place& at, int tile) {
    float sums[kSums];
    multiply(sums, tile == static_cast<int>(blockIdx.x));
    const int row = at.row + group * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    add_bias(sums, row, at.group);
    store(sums, at);
  }

  __device__ void run() {
    if (kResident) wait(m.weights_full, 0);
    if (kResident && group == 1) wait(m.one_ahead, 0);
    for (int tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
      const Place at(s, tile);
      at.narrow ? make_tile<kNarrow / 2>(at, tile) : make_tile<kColumns / 2>(at, tile);
    }
    if (leader) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
};

template <class T, bool kResident, bool kCopyOut>
__global__ void __launch_bounds__(kBlockThreads, 1) correlate_wgmma(const __grid_constant__ WgmmaShape s) {
  extern __shared__ uint8_t bytes[];
  const Memory m(shared_address(bytes));
  if (threadIdx.x == 0) m.init_barriers();
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup, warp = static_cast<int>(threadIdx.x) / 32;
  if (warpgroup == 0) {  // with fewer registers the transposition keeps addresses in memory
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    if (threadIdx.x == 0) load<kResident>(s, m);
    if (warp > 0) transpose(s, m, warp - 1);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    Products<T, kResident, kCopyOut>{s, m, warpgroup - 1, threadIdx.x % kWarpgroup == 0}.run();
  }
}

// ---- the part ----

class WgmmaPart final : public Part {
 public:
  explicit WgmmaPart(const CorrelationProblem& problem) : dtype_(problem.dtype), c_(problem.c) {
    const bool in_place = c_.extent % 8 == 0 && is_walkable(problem);
    if (!plan_chunks(c_, kHalo, 8, &s_.of)) return;
    WgmmaShape& s = s_;
    s.groups = static_cast<int>(c_.groups), s.outs = static_cast<int>(c_.outs), s.ins = static_cast<int>(c_.ins);
    s.taps = static_cast<int>(c_.taps), s.length = static_cast<int>(c_.length);
    s.out_batch = c_.out_batch, s.out_group = c_.out_group, s.out_channel = c_.out_channel, s.out_position = c_.out_position;
    s.bias_stride = c_.bias_stride;
    s.slices = static_cast<int>(ceil_div(c_.ins, kSlice));
    const int64_t rest = c_.length % kColumns;
    s.row_tiles = static_cast<int>(ceil_div(c_.outs, kRows));
    s.column_tiles = static_cast<int>(c_.length / kColumns + (rest > kNarrow ? 1 : 0));
    s.wide_tiles = static_cast<int>(c_.groups * s.row_tiles * c_.batch) * s.column_tiles;
    s.tiles = s.wide_tiles + (rest > 0 && rest <= kNarrow ? static_cast<int>(c_.groups * s.row_tiles * c_.batch) : 0);
    const int multiprocessors = problem.device->multiprocessors, filters = s.row_tiles * s.groups;
    s.resident = c_.taps * ceil_div(c_.ins, 16) * 4096 <= kWeightTiles * kWeightTile && filters <= multiprocessors;
    copy_out_ = c_.out_position == 1 && c_.length % 8 == 0 && problem.out_align >= 16 && c_.out_offset % 8 == 0 &&
                steps_well(c_.outs, c_.out_channel) && steps_well(c_.groups, c_.out_group) && steps_well(c_.batch, c_.out_batch);
    // A block with resident weights keeps its rows.
    blocks_ = std::min(s.tiles, s.resident ? multiprocessors - multiprocessors % filters : multiprocessors);
    pack_.c = c_, pack_.lines = s_.of.lines, pack_.pitch = ceil_div(c_.outs, 8) * 8,
    pack_.along_outs = std::abs(c_.w_out) < std::abs(c_.w_in);
    workspace_size = ceil_div(c_.groups * c_.taps * c_.ins * pack_.pitch * 2, 256) * 256;
    if (!in_place) PlanLines();
    ForKernel([&]<class T, bool kResident, bool kCopyOut>() {
      load_kernel(correlate_wgmma<T, kResident, kCopyOut>, kSharedBytes);
      load_kernel(pack_for_wgmma<T>);
      load_copies<T>();
    });
  }
  bool fits() const { return blocks_ > 0; }

  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    WgmmaShape s = s_;
    s.y = static_cast<uint16_t*>(p.out) + c_.out_offset, s.bias = p.bias;
    void* const lines = static_cast<char*>(workspace) + lines_offset_;
    EncodeMaps(s_.copied ? lines : p.a, workspace, s);
    const int64_t pack_blocks = ceil_div(c_.ins * c_.taps, 32) * ceil_div(pack_.pitch, 32) * c_.groups;
    ForKernel([&]<class T, bool kResident, bool kCopyOut>() {
      launch_kernel(pack_for_wgmma<T>, pack_blocks, kThreads, 0, stream, pack_, static_cast<const T*>(p.b) + c_.w_offset,
                    static_cast<T*>(workspace));
      if (s_.copied) launch_copy<T>(line_, p.a, lines, stream);
      launch_overlapping(90, correlate_wgmma<T, kResident, kCopyOut>, blocks_, kBlockThreads, kSharedBytes, stream, s);
    });
  }

 private:
  void PlanLines() {
    line_ = plan_lines(c_, s_.of, dtype_);
    s_.copied = true;
    lines_offset_ = static_cast<int64_t>(workspace_size);
    workspace_size += bytes_of(line_, dtype_);
    if (line_.blocks == 0) blocks_ = 0;
  }

  void EncodeMaps(const void* x, const void* weights, WgmmaShape& s) const {
    MapShape in = s_.copied ? map_of_lines(line_, dtype_, 64, kSlice, 128) : map_in_place(c_, dtype_, 64, kSlice, 128);
    s.x = encode_map(in, x, "conv1d");
    in.columns = kHalo, in.swizzle = 0;
    s.x_halo = encode_map(in, x, "conv1d");
    const int64_t tap = pack_.pitch * c_.ins;
    s.w = encode_map(
        {dtype_, {c_.outs, c_.ins, c_.taps, c_.groups, 1}, {pack_.pitch, tap, tap * c_.taps, 0}, 64, s.resident ? 16 : kSlice, 128},
        weights, "conv1d");
    s.out = s.w;
    if (copy_out_)
      s.out = encode_map(
          {dtype_, {c_.length, c_.outs, c_.groups, c_.batch, 1}, {c_.out_channel, c_.out_group, c_.out_batch, 0}, 64, 64, 128}, s.y,
          "conv1d");
  }

  template <class Visit>
  void ForKernel(Visit&& visit) const {
    dtype_ == Dtype::f16 ? ForFlags<f16>(visit) : ForFlags<bf16>(visit);
  }
  template <class T, class Visit>
  void ForFlags(Visit&& visit) const {
    if (s_.resident)
      copy_out_ ? visit.template operator()<T, true, true>() : visit.template operator()<T, true, false>();
    else
      copy_out_ ? visit.template operator()<T, false, true>() : visit.template operator()<T, false, false>();
  }
  Dtype dtype_;
  Correlation c_;
  WgmmaShape s_{};
  PackShape pack_{};
  LineShape line_{};
  bool copy_out_ = false;  // the copy engine can write y
  int64_t lines_offset_ = 0;
  int blocks_ = 0;
};

}  // namespace

std::unique_ptr<Part> plan_wgmma(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  if (problem.device->compute_capability != 90 || problem.device->shared_memory < kSharedBytes || find_encode() == nullptr)
    return nullptr;
  if (size_of(problem.dtype) != 2 || !problem.aligned() || c.ins == 0 || c.extent == 0) return nullptr;
  if (!is_countable(c)) return nullptr;
  constexpr int64_t kMost = int64_t{1} << 28;  // tiles are counted in 32 bits
  if (c.batch * c.groups > kMost / (ceil_div(c.outs, kRows) * ceil_div(c.length, kColumns))) return nullptr;
  auto part = std::make_unique<WgmmaPart>(problem);
  return part->fits() ? std::move(part) : nullptr;
}

}  // namespace narrows::gpu
