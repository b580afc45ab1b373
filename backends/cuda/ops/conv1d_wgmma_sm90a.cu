// conv1d_wgmma_sm90a.cu -- dense correlations of f16 and bf16 on Hopper's matrix units, stride and dilation 1. Step 5 of a tensor's
// path. Nothing but the weights is written twice: x goes from where it lies to shared memory.
//
// A block makes 128 output channels x 256 positions and goes on to the next tile (persistent). The reduction runs over slices of 64
// channels and, within one, over the taps. With x contiguous along positions neither the copy engine (TMA) nor a matrix descriptor
// can start at any position: both know multiples of 16 bytes only. So a slice of x comes once, from an aligned start and with a halo
// of 16 positions; three warps transpose it in shared memory; a position then is 16 bytes of 8 channels, and tap j is the
// descriptor's address + 16 * j.
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
#include <cuda.h>

#include "conv1d_native.h"
#include "dtype.h"

namespace narrows::gpu {
namespace {

constexpr int kRows = 128, kColumns = 256, kHalo = 16, kSlice = 64;  // output channels, positions, channels
constexpr int kWarpgroup = 128, kBlockThreads = 3 * kWarpgroup;
constexpr int kPositions = kColumns + kHalo, kChunk = kPositions * 16;                 // bytes from 8 channels to the next 8
constexpr int kTileBytes = kPositions * kSlice * 2, kBox = kSlice * 128;               // of x; of 64 positions in it
constexpr int kWeightBox = kSlice * 128, kWeightTile = 2 * kWeightBox;                 // of 64 output channels, of all
constexpr int kRawTiles = 2, kTiles = 2, kWeightTiles = 4, kOutBytes = 64 * 128;
constexpr int kBarriers = 2 * (kRawTiles + kTiles + kWeightTiles) + 1;
constexpr int kSharedBytes = 1024 + (kRawTiles + kTiles) * kTileBytes + kWeightTiles * kWeightTile + 2 * kOutBytes + 8 * kBarriers;

struct WgmmaShape {
  CUtensorMap x, x_halo, w, out;
  void* y;
  const void* bias;
  int64_t out_batch, out_channel, out_position, bias_stride;
  int outs, ins, taps, length;
  int start, shift;  // a tile of x begins `start` after its first output, tap 0 `shift` later
  int slices, row_tiles, column_tiles, tiles;
  bool resident;   // all weights of a block's rows stay in shared memory
  bool copy_out;   // the copy engine can write y
};

// ---- instructions ----

__device__ __forceinline__ uint32_t address_of(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void init_barrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void copy_in(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void copy_out(const CUtensorMap* map, uint32_t from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(from), "r"(x),
               "r"(y), "r"(z)
               : "memory");
}
// Ordinary stores before it are seen by the copy engine and the matrix units after it.
__device__ __forceinline__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void sync_warpgroup(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }

__device__ __forceinline__ uint64_t descriptor(uint32_t address, int leading, int stride, int swizzle) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | static_cast<uint64_t>(swizzle) << 62;
}

// 64 x 256 sums += 16 of the reduction; `accumulate` = 0: the sums start here.
#define NARROWS_SUMS8(i)                                                                                                       \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), "+f"(sums[i + 6]), \
      "+f"(sums[i + 7])
#define NARROWS_WGMMA(type)                                                                                                    \
  asm volatile(                                                                                                                \
      "{ .reg .pred p; setp.ne.b32 p, %130, 0;\n"                                                                              \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                                                             \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,"   \
      "%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,"   \
      "%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,"   \
      "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,"     \
      "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, %128, %129, p, 1, 1, 1, 0; }\n"                 \
      : NARROWS_SUMS8(0), NARROWS_SUMS8(8), NARROWS_SUMS8(16), NARROWS_SUMS8(24), NARROWS_SUMS8(32), NARROWS_SUMS8(40),        \
        NARROWS_SUMS8(48), NARROWS_SUMS8(56), NARROWS_SUMS8(64), NARROWS_SUMS8(72), NARROWS_SUMS8(80), NARROWS_SUMS8(88),      \
        NARROWS_SUMS8(96), NARROWS_SUMS8(104), NARROWS_SUMS8(112), NARROWS_SUMS8(120)                                          \
      : "l"(a), "l"(b), "r"(accumulate))
template <class T>
__device__ __forceinline__ void wgmma(float (&sums)[128], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (std::is_same_v<T, f16>)
    NARROWS_WGMMA("f16");
  else
    NARROWS_WGMMA("bf16");
}
#undef NARROWS_WGMMA
#undef NARROWS_SUMS8

template <class T>
__device__ __forceinline__ uint32_t pair_of(float a, float b) {
  const T pair[2] = {narrowed<T>(a), narrowed<T>(b)};
  uint32_t bits;
  memcpy(&bits, pair, 4);
  return bits;
}

// ---- a block's memory and its work ----

// A ring of slots; `phase` is the parity that its next wait asks for.
template <int N>
struct Ring {
  int slot = 0;
  uint32_t phase;
  __device__ explicit Ring(uint32_t first_phase) : phase(first_phase) {}
  __device__ void advance() {
    if (++slot == N) slot = 0, phase ^= 1;
  }
  __device__ int before() const { return slot == 0 ? N - 1 : slot - 1; }
};
constexpr uint32_t kFill = 1, kDrain = 0;  // first phase of who fills a ring, of who empties it

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

// Output channels are the fastest: blocks that read one tile of x run side by side.
struct Place {
  int row, column, batch;
  __device__ Place(const WgmmaShape& s, int tile) {
    row = tile % s.row_tiles * kRows;
    column = tile / s.row_tiles % s.column_tiles * kColumns;
    batch = tile / s.row_tiles / s.column_tiles;
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
  int tile, slice = 0;

  __device__ void next(const WgmmaShape& s, const Memory& m) {
    if (tile >= s.tiles) return;
    const Place at(s, tile);
    wait(m.raw_empty + 8 * ring.slot, ring.phase);
    const uint32_t barrier = m.raw_full + 8 * ring.slot, to = m.raw + ring.slot * kTileBytes;
    expect_bytes(barrier, kTileBytes);
    for (int i = 0; i < kColumns / 64; ++i)
      copy_in(to + i * kBox, &s.x, barrier, at.column + s.start + i * 64, slice * kSlice, at.batch);
    copy_in(to + kColumns / 64 * kBox, &s.x_halo, barrier, at.column + s.start + kColumns, slice * kSlice, at.batch);
    ring.advance();
    if (++slice == s.slices) slice = 0, tile += static_cast<int>(gridDim.x);
  }
};

// Weights of this block's rows, all of them: [slice][tap][half of the rows][16 channels].
__device__ void load_resident_weights(const WgmmaShape& s, const Memory& m) {
  const int row = Place(s, blockIdx.x).row;
  expect_bytes(m.weights_full, s.taps * ((s.ins + 15) / 16) * 4096);
  uint32_t to = m.weights;
  for (int slice = 0; slice < s.slices; ++slice)
    for (int tap = 0; tap < s.taps; ++tap)
      for (int half = 0; half < 2; ++half)
        for (int step = 0; step < steps_of(s, slice); ++step, to += 2048)
          copy_in(to, &s.w, m.weights_full, row + half * 64, slice * kSlice + step * 16, tap);
}

template <bool kResident>
__device__ void load(const WgmmaShape& s, const Memory& m) {
  InputLoads x{.tile = static_cast<int>(blockIdx.x)};
  for (int i = 0; i < kRawTiles; ++i) x.next(s, m);
  if constexpr (kResident) {
    load_resident_weights(s, m);
    while (x.tile < s.tiles) x.next(s, m);
    return;
  }
  Ring<kWeightTiles> ring(kFill);
  for (int tile = blockIdx.x; tile < s.tiles; tile += gridDim.x)
    for (int slice = 0; slice < s.slices; ++slice) {
      for (int tap = 0; tap < s.taps; ++tap, ring.advance()) {
        wait(m.weights_empty + 8 * ring.slot, ring.phase);
        const uint32_t barrier = m.weights_full + 8 * ring.slot, to = m.weights + ring.slot * kWeightTile;
        expect_bytes(barrier, kWeightTile);
        for (int half = 0; half < 2; ++half)
          copy_in(to + half * kWeightBox, &s.w, barrier, Place(s, tile).row + half * 64, slice * kSlice, tap);
      }
      x.next(s, m);
    }
}

// ---- transposition: warps 1 to 3 share the groups of 8 positions ----

// Lane i of ldmatrix.x4 addresses channel i: row i % 8 of matrix i / 8. ".trans" gives each lane what it then stores as rows of 8
// channels. Four loads are on their way before the first store.
__device__ __forceinline__ void transpose_32_channels(uint32_t raw, uint32_t x, int half, int worker) {
  constexpr int kGroups = kPositions / 8, kAtOnce = 4, kWorkers = 3;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t from = raw + half * 4096 + lane * 128, halo = raw + kColumns / 64 * kBox + half * 1024 + lane * 32;
  const uint32_t to = x + half * 4 * kChunk + (lane >> 3) * kChunk + (lane & 7) * 16;
#pragma unroll
  for (int first = 0; first < kGroups; first += kAtOnce * kWorkers) {
    uint32_t r[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int g = first + i * kWorkers + worker;
      const uint32_t address = g < kColumns / 8 ? from + (g >> 3) * kBox + (((g ^ lane) & 7) << 4) : halo + (g & 1) * 16;
      if (g < kGroups)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[i][0]), "=r"(r[i][1]), "=r"(r[i][2]), "=r"(r[i][3])
                     : "r"(address)
                     : "memory");
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int g = first + i * kWorkers + worker;
      if (g < kGroups)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + g * 128), "r"(r[i][0]),
                     "r"(r[i][1]), "r"(r[i][2]), "r"(r[i][3])
                     : "memory");
    }
  }
}

__device__ void transpose(const WgmmaShape& s, const Memory& m, int worker) {
  Ring<kRawTiles> raw(kDrain);
  Ring<kTiles> x(kFill);
  for (int tile = blockIdx.x; tile < s.tiles; tile += gridDim.x)
    for (int slice = 0; slice < s.slices; ++slice, raw.advance(), x.advance()) {
      wait(m.raw_full + 8 * raw.slot, raw.phase);
      wait(m.x_empty + 8 * x.slot, x.phase);
      for (int half = 0; half < (steps_of(s, slice) > 2 ? 2 : 1); ++half)
        transpose_32_channels(m.raw + raw.slot * kTileBytes, m.x + x.slot * kTileBytes, half, worker);
      fence_proxy();
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(m.x_full + 8 * x.slot), arrive(m.raw_empty + 8 * raw.slot);
    }
}

// ---- products: a warpgroup's 64 x 256 sums ----

template <class T, bool kResident>
struct Products {
  const WgmmaShape& s;
  const Memory& m;
  const int group;    // which of the two warpgroups
  const bool leader;  // of its threads
  Ring<kWeightTiles> weights{kDrain};
  Ring<kTiles> x{kDrain};
  float sums[128];

  __device__ void release_weights() {
    if (!kResident && leader) arrive(m.weights_empty + 8 * weights.before());
  }
  __device__ void release_x() {
    if (leader) arrive(m.x_empty + 8 * x.before());
  }

  // A slice of kSteps * 16 channels. The number is known when compiling: a condition around a wgmma makes ptxas wait after each.
  template <int kSteps>
  __device__ __forceinline__ void add_slice(int slice, bool first_tile) {
    wait(m.x_full + 8 * x.slot, x.phase);
    for (int tap = 0; tap < s.taps; ++tap) {
      if (!kResident) wait(m.weights_full + 8 * weights.slot, weights.phase);
      const uint32_t at = kResident ? m.weights + (slice * kSlice * s.taps + tap * kSteps * 16) * 256 + group * kSteps * 2048
                                    : m.weights + weights.slot * kWeightTile + group * kWeightBox;
      const uint64_t a = descriptor(at, kWeightBox, 1024, 1);
      const uint64_t b = descriptor(m.x + x.slot * kTileBytes + (s.shift + tap) * 16, kChunk, 128, 0);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < kSteps; ++k) wgmma<T>(sums, a + k * 128, b + k * (2 * kChunk / 16), k > 0 ? 1 : slice | tap);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // the tap before this one has been read
      if ((slice | tap) != 0) release_weights();
      if (slice > 0 && tap == 0) release_x();
      weights.advance();
      // Resident: one warpgroup runs a slice ahead of the other, so that one multiplies while the other stores.
      if (kResident && group == 0 && leader && first_tile && slice == 0 && tap == s.taps - 1) arrive(m.one_ahead);
    }
    x.advance();
  }

  __device__ __forceinline__ void multiply(bool first_tile) {
    const int rest = steps_of(s, s.slices - 1), full = s.slices - (rest < kSlice / 16 ? 1 : 0);
    for (int slice = 0; slice < full; ++slice) add_slice<kSlice / 16>(slice, first_tile);
    if (rest == 1) add_slice<1>(full, first_tile);
    if (rest == 2) add_slice<2>(full, first_tile);
    if (rest == 3) add_slice<3>(full, first_tile);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(sums[i])::"memory");
    release_weights();
    release_x();
  }

  // sums[4g], [4g + 1]: row warp * 16 + lane / 4, columns 8g + lane % 4 * 2 and the next; [4g + 2], [4g + 3]: 8 rows below.
  __device__ __forceinline__ void add_bias(int row) {
    if (s.bias == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = row + half * 8;
      const float bias = at < s.outs ? widen(static_cast<const T*>(s.bias)[at * s.bias_stride]) : 0.0f;
#pragma unroll
      for (int g = 0; g < 32; ++g) sums[4 * g + half * 2] += bias, sums[4 * g + half * 2 + 1] += bias;
    }
  }

  __device__ __forceinline__ void store_by_engine(const Place& at) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t buffer = m.out + group * kOutBytes;
    const int row = warp * 16 + (lane & 15);  // stmatrix: lanes 8i to 8i + 7 address the rows of matrix i
#pragma unroll
    for (int box = 0; box < kColumns / 64; ++box) {
      if (leader) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      sync_warpgroup(group + 1);
#pragma unroll
      for (int g = 0; g < 8; g += 2) {
        const int e = (box * 8 + g) * 4;
        const uint32_t to = buffer + row * 128 + (((g + (lane >> 4)) ^ (lane & 7)) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                     "r"(pair_of<T>(sums[e], sums[e + 1])), "r"(pair_of<T>(sums[e + 2], sums[e + 3])),
                     "r"(pair_of<T>(sums[e + 4], sums[e + 5])), "r"(pair_of<T>(sums[e + 6], sums[e + 7]))
                     : "memory");
      }
      fence_proxy();
      sync_warpgroup(group + 1);
      if (leader) {
        copy_out(&s.out, buffer, at.column + box * 64, at.row + group * 64, at.batch);  // clipped at y's extents
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
  }

  __device__ __forceinline__ void store_by_threads(const Place& at, int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    T* const y = static_cast<T*>(s.y) + at.batch * s.out_batch;
#pragma unroll
    for (int g = 0; g < 32; ++g)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int channel = row + e / 2 * 8, position = at.column + g * 8 + lane % 4 * 2 + e % 2;
        if (channel < s.outs && position < s.length)
          y[channel * s.out_channel + position * s.out_position] = narrowed<T>(sums[4 * g + e]);
      }
  }

  __device__ void run() {
    if (kResident) wait(m.weights_full, 0);
    if (kResident && group == 1) wait(m.one_ahead, 0);
    for (int tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
      multiply(tile == static_cast<int>(blockIdx.x));
      const Place at(s, tile);
      const int row = at.row + group * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
      add_bias(row);
      if (s.copy_out)
        store_by_engine(at);
      else
        store_by_threads(at, row);
    }
    if (leader) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
};

template <class T, bool kResident>
__global__ void __launch_bounds__(kBlockThreads, 1) correlate_wgmma(const __grid_constant__ WgmmaShape s) {
  extern __shared__ uint8_t bytes[];
  const Memory m(address_of(bytes));
  if (threadIdx.x == 0) m.init_barriers();
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup, warp = static_cast<int>(threadIdx.x) / 32;
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) load<kResident>(s, m);
    if (warp > 0) transpose(s, m, warp - 1);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    Products<T, kResident>{s, m, warpgroup - 1, threadIdx.x % kWarpgroup == 0}.run();
  }
}

// ---- weights: packed[tap][channel][output channel], output channels padded to a multiple of 8 ----

struct PackShape {
  Correlation c;
  int64_t pitch;
  bool along_outs;  // output channels are nearer to each other in w than channels
};

template <class T>
__global__ void pack_for_wgmma(const PackShape s, const T* w, T* packed) {
  __shared__ T tile[32][34];
  const Correlation& c = s.c;
  const int64_t depth = c.ins * c.taps, depth_tiles = (depth + 31) / 32;
  const int64_t k0 = blockIdx.x % depth_tiles * 32, m0 = blockIdx.x / depth_tiles * 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, warps = kThreads / 32;
  for (int i = warp; i < 32; i += warps) {
    const int out = s.along_outs ? lane : i, at = s.along_outs ? i : lane;
    const int64_t channel = (k0 + at) / c.taps, tap = (k0 + at) % c.taps;
    tile[out][at] = m0 + out < c.outs && k0 + at < depth ? w[(m0 + out) * c.w_out + channel * c.w_in + tap * c.w_tap]
                                                         : narrowed<T>(0.0f);
  }
  __syncthreads();
  for (int i = warp; i < 32; i += warps) {
    const int64_t channel = (k0 + i) / c.taps, tap = (k0 + i) % c.taps;
    if (k0 + i < depth && m0 + lane < s.pitch) packed[(tap * c.ins + channel) * s.pitch + m0 + lane] = tile[lane][i];
  }
}

// ---- tensor maps ----

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);
// nullptr: a driver without it.
Encode find_encode() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return encode;
}

// Dimension 0 is contiguous; strides of the others in elements. A stride that is never taken may be 0.
struct MapShape {
  Dtype dtype;
  int64_t extents[3], strides[2];
  int columns, rows;  // of a box
  bool swizzle;
};
CUtensorMap encode_map(const MapShape& m, const void* base) {
  const auto pitch = [](int64_t extent, int64_t stride) { return static_cast<cuuint64_t>(extent > 1 ? stride * 2 : 16); };
  const cuuint64_t extents[3] = {static_cast<cuuint64_t>(m.extents[0]), static_cast<cuuint64_t>(m.extents[1]),
                                 static_cast<cuuint64_t>(m.extents[2])};
  const cuuint64_t strides[2] = {pitch(m.extents[1], m.strides[0]), pitch(m.extents[2], m.strides[1])};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(m.columns), static_cast<cuuint32_t>(m.rows), 1}, steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = find_encode()(
      &map, m.dtype == Dtype::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(base),
      extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, m.swizzle ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Refusal{NW_FAILED, -1, "conv1d: a tensor map could not be encoded (driver error " + std::to_string(result) + ")", result};
  return map;
}

// ---- the part ----

int64_t floor_to_8(int64_t v) { return v - (v % 8 + 8) % 8; }

class WgmmaPart final : public Part {
 public:
  explicit WgmmaPart(const CorrelationProblem& problem) : dtype_(problem.dtype), c_(problem.c) {
    WgmmaShape& s = s_;
    s.outs = static_cast<int>(c_.outs), s.ins = static_cast<int>(c_.ins), s.taps = static_cast<int>(c_.taps);
    s.length = static_cast<int>(c_.length);
    s.start = static_cast<int>(floor_to_8(c_.origin)), s.shift = static_cast<int>(c_.origin - s.start);
    s.out_batch = c_.out_batch, s.out_channel = c_.out_channel, s.out_position = c_.out_position, s.bias_stride = c_.bias_stride;
    s.slices = static_cast<int>(ceil_div(c_.ins, kSlice));
    s.row_tiles = static_cast<int>(ceil_div(c_.outs, kRows)), s.column_tiles = static_cast<int>(ceil_div(c_.length, kColumns));
    s.tiles = static_cast<int>(int64_t{s.row_tiles} * s.column_tiles * c_.batch);
    const int multiprocessors = problem.device->multiprocessors;
    s.resident = c_.taps * ceil_div(c_.ins, 16) * 4096 <= kWeightTiles * kWeightTile && s.row_tiles <= multiprocessors;
    s.copy_out = c_.out_position == 1 && problem.out_align >= 4 && c_.out_offset % 8 == 0 && Steps(c_.outs, c_.out_channel) &&
                 Steps(c_.batch, c_.out_batch);
    // A block with resident weights keeps its rows.
    blocks_ = std::min(s.tiles, s.resident ? multiprocessors - multiprocessors % s.row_tiles : multiprocessors);
    pack_ = {c_, ceil_div(c_.outs, 8) * 8, std::abs(c_.w_out) < std::abs(c_.w_in)};
    workspace_size = static_cast<uint64_t>(c_.taps * c_.ins * pack_.pitch) * 2;
    ForKernel([&]<class T, bool kResident>() {
      load_kernel(correlate_wgmma<T, kResident>, kSharedBytes);
      load_kernel(pack_for_wgmma<T>);
    });
  }

  // Whether the copy engine can walk it.
  static bool Steps(int64_t extent, int64_t stride) {
    return extent <= 1 || (stride > 0 && stride % 8 == 0 && stride < (int64_t{1} << 38));
  }

  void launch(const Operands& p, void* workspace, gpuStream_t stream) const override {
    const auto at = [](const void* base, int64_t offset) { return static_cast<const char*>(base) + offset * 2; };
    WgmmaShape s = s_;
    s.y = const_cast<char*>(at(p.out, c_.out_offset)), s.bias = p.bias;
    const int64_t x_extents[3] = {c_.extent, c_.ins, c_.batch}, x_strides[2] = {c_.in_channel, c_.in_batch};
    s.x = encode_map({dtype_, {x_extents[0], x_extents[1], x_extents[2]}, {x_strides[0], x_strides[1]}, 64, kSlice, true}, p.a);
    s.x_halo = encode_map({dtype_, {x_extents[0], x_extents[1], x_extents[2]}, {x_strides[0], x_strides[1]}, kHalo, kSlice, false}, p.a);
    s.w = encode_map({dtype_, {c_.outs, c_.ins, c_.taps}, {pack_.pitch, pack_.pitch * c_.ins}, 64, s.resident ? 16 : kSlice, true},
                     workspace);
    s.out = s.copy_out ? encode_map({dtype_, {c_.length, c_.outs, c_.batch}, {c_.out_channel, c_.out_batch}, 64, 64, true}, s.y) : s.w;
    const int64_t pack_blocks = ceil_div(c_.ins * c_.taps, 32) * ceil_div(pack_.pitch, 32);
    ForKernel([&]<class T, bool kResident>() {
      launch_kernel(pack_for_wgmma<T>, pack_blocks, kThreads, 0, stream, pack_, static_cast<const T*>(p.b) + c_.w_offset,
                    static_cast<T*>(workspace));
      launch_kernel(correlate_wgmma<T, kResident>, blocks_, kBlockThreads, kSharedBytes, stream, s);
    });
  }

 private:
  template <class Visit>
  void ForKernel(Visit&& visit) const {
    if (dtype_ == Dtype::f16)
      s_.resident ? visit.template operator()<f16, true>() : visit.template operator()<f16, false>();
    else
      s_.resident ? visit.template operator()<bf16, true>() : visit.template operator()<bf16, false>();
  }
  Dtype dtype_;
  Correlation c_;
  WgmmaShape s_{};
  PackShape pack_;
  int blocks_;
};

}  // namespace

std::unique_ptr<Part> plan_wgmma(const CorrelationProblem& problem) {
  const Correlation& c = problem.c;
  if (problem.device->compute_capability != 90 || problem.device->shared_memory < kSharedBytes || find_encode() == nullptr)
    return nullptr;
  if (size_of(problem.dtype) != 2 || !problem.aligned() || problem.in_align < 4 || c.groups != 1 || c.ins == 0) return nullptr;
  if (c.step != 1 || (c.taps > 1 && c.tap_step != 1) || c.origin - floor_to_8(c.origin) + c.taps - 1 > kHalo) return nullptr;
  if (c.extent == 0 || (c.extent > 1 && c.in_position != 1)) return nullptr;
  if (!WgmmaPart::Steps(c.ins, c.in_channel) || !WgmmaPart::Steps(c.batch, c.in_batch)) return nullptr;
  constexpr int64_t kMost = int64_t{1} << 30;  // coordinates and tiles are counted in 32 bits
  if (c.length > kMost || c.extent > kMost || c.origin < -kMost || c.origin > kMost || c.outs > kMost || c.ins > kMost) return nullptr;
  if (c.batch > kMost / (ceil_div(c.outs, kRows) * ceil_div(c.length, kColumns))) return nullptr;
  return std::make_unique<WgmmaPart>(problem);
}

}  // namespace narrows::gpu
