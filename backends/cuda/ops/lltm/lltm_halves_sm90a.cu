// SPDX-License-Identifier: Apache-2.0
// lltm_halves_sm90a.cu -- the products of lltm_backward in f16 and bf16 on Hopper's matrix units (wgmma): both parts of the gates'
// gradients (lltm_halves_sm80.h) times one tile of the other operand.
//
// A block makes 128 rows x 128 columns, and the two blocks of a cluster neighbouring columns of the same rows: each fetches half of
// the gradients for both. There are at most as many blocks as multiprocessors. Each cluster makes its part of the tiles on the way
// to the inputs, or to the weights, whichever take longer, and then as many of the others as leave all clusters about the same
// number of stages. Warpgroup 0 feeds the copy engine (TMA), ahead into the next tile; the other two multiply 64 rows each, keep
// the sums over first parts beside those over second ones, and leave the results to the copy engine.
//
// A stage: 6 boxes of 64 rows of 64 elements, 128 bytes, with the 128-byte swizzle that the copy engine writes and wgmma reads. Two
// of first parts, one for each warpgroup, two of second parts, two of the other operand, whose rows are the reduction (N-major).
// The gradients' rows are results on the way to the inputs (K-major), and the reduction on the way to the weights (M-major). What
// lies past an operand's edge comes as 0.
#include "lltm_cluster_sm80.h"
#include "lltm_halves_sm80.h"
#include "lltm_native.h"
#include "ops/hopper_sm90a.h"

namespace narrows::gpu {
namespace {

constexpr int kWarpgroup = 128, kThreads = 3 * kWarpgroup, kCluster = 2, kStages = 4;
constexpr int kRows = 128, kColumns = 128, kDepth = 64;
constexpr int kBox = 64 * 128;  // bytes
// The stages, the results, the barriers; the swizzle repeats every 1024 bytes.
constexpr int kStageBytes = 6 * kBox, kResults = 4 * kBox, kShared = 1024 + kStages * kStageBytes + kResults + 2 * kStages * 8;

// How a product is cut: rows x columns of tiles, each of both blocks of a cluster, and each of `stages`, shared out to slices.
struct Cut {
  uint32_t rows, columns, slices, stages;
  bool copied_out;  // the copy engine can write the output
};
// Slices of tiles, of all products to the inputs or to the weights: numbers [first, first + count).
struct Units {
  uint32_t first, count, stages;  // stages: of all of them
};
struct HalvesTensors {
  CUtensorMap halves, operands[kMaxLltmProducts], outputs[kMaxLltmProducts];
  Cut cuts[kMaxLltmProducts];
  Units longer, shorter;
  uint32_t room[2];  // of a cluster after its longer units, in stages: if it has the fewest of them, and one more
  double in_room;    // shorter units in a stage of room
  LltmProducts p;
};

struct HalvesSums {
  float first[64], second[64];
};

#define NARROWS_WGMMA(type)                                                                                              \
  asm volatile(                                                                                                          \
      "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"                                                                         \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                                       \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
      "%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, %67, 1; }\n"                                                         \
      : NARROWS_SUMS8(0), NARROWS_SUMS8(8), NARROWS_SUMS8(16), NARROWS_SUMS8(24), NARROWS_SUMS8(32), NARROWS_SUMS8(40),  \
        NARROWS_SUMS8(48), NARROWS_SUMS8(56)                                                                             \
      : "l"(a), "l"(b), "r"(accumulate), "n"(ToWeights ? 1 : 0))
// 64 x 128 sums += 16 of the reduction; `accumulate` = 0: the sums start here.
template <class T, bool ToWeights>
__device__ __forceinline__ void wgmma(float (&sums)[64], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (std::is_same_v<T, f16>)
    NARROWS_WGMMA("f16");
  else
    NARROWS_WGMMA("bf16");
}
#undef NARROWS_WGMMA

struct Memory {
  uint32_t stages, results, barriers;
  __device__ explicit Memory(const void* shared)
      : stages((shared_address(shared) + 1023) / 1024 * 1024), results(stages + kStages * kStageBytes),
        barriers(results + kResults) {}
  __device__ uint32_t box(int stage, int i) const { return stages + static_cast<uint32_t>(stage * kStageBytes + i * kBox); }
  __device__ uint32_t full(int stage) const { return barriers + static_cast<uint32_t>(8 * stage); }
  __device__ uint32_t empty(int stage) const { return barriers + static_cast<uint32_t>(8 * (kStages + stage)); }
};

// ---- which tiles a cluster makes ----

// A slice of a tile: this block's part of it, and its stages.
struct Unit {
  int product, row0, column0, begin, end, slice;
};

// slice_begin() in 32 bits, whose divisions are short.
__device__ __forceinline__ uint32_t share_begin(uint32_t all, uint32_t shares, uint32_t i) {
  return all / shares * i + min(i, all % shares);
}

// Where the part of a cluster begins among the shorter units.
__device__ __forceinline__ uint32_t shorter_begin(const HalvesTensors& t, uint32_t clusters, uint32_t cluster) {
  if (cluster == clusters) return t.shorter.count;
  const uint32_t fuller = min(cluster, t.longer.count % clusters);  // of those before it
  const double before = static_cast<double>(fuller) * t.room[1] + static_cast<double>(cluster - fuller) * t.room[0];
  return min(t.shorter.count, static_cast<uint32_t>(before * t.in_room));
}

// A place among the units of all products.
struct Cursor {
  uint32_t product, row, column, slice;
  __device__ Cursor(const HalvesTensors& t, uint32_t number) : product(0) {
    for (uint32_t units; product + 1 < static_cast<uint32_t>(t.p.count) && number >= (units = units_of(t.cuts[product])); ++product)
      number -= units;
    const Cut& cut = t.cuts[product];
    slice = number % cut.slices, number /= cut.slices;
    column = number % cut.columns, row = number / cut.columns;
  }
  static __host__ __device__ uint32_t units_of(const Cut& cut) { return cut.rows * cut.columns * cut.slices; }
  __device__ __forceinline__ void advance(const Cut& cut) {
    if (++slice < cut.slices) return;
    slice = 0;
    if (++column < cut.columns) return;
    column = 0;
    if (++row == cut.rows) row = 0, ++product;
  }
};

// Visits the units of this block's cluster, in order.
template <class Visit>
__device__ __forceinline__ void for_each_unit(const HalvesTensors& t, const Visit& visit) {
  const uint32_t clusters = gridDim.x / kCluster, cluster = blockIdx.x / kCluster, rank = blockIdx.x % kCluster;
  const uint32_t longer_begin = share_begin(t.longer.count, clusters, cluster);
  const uint32_t longer = share_begin(t.longer.count, clusters, cluster + 1) - longer_begin;
  const uint32_t begin = shorter_begin(t, clusters, cluster), all = longer + shorter_begin(t, clusters, cluster + 1) - begin;
  Cursor at(t, longer > 0 ? t.longer.first + longer_begin : t.shorter.first + begin);
#pragma unroll 1
  for (uint32_t n = 0; n < all; ++n) {
    if (n == longer) at = Cursor(t, t.shorter.first + begin);
    const Cut& cut = t.cuts[at.product];
    visit(Unit{static_cast<int>(at.product), static_cast<int>(at.row * kRows),
               static_cast<int>((at.column * kCluster + rank) * kColumns),
               static_cast<int>(share_begin(cut.stages, cut.slices, at.slice)),
               static_cast<int>(share_begin(cut.stages, cut.slices, at.slice + 1)), static_cast<int>(at.slice)});
    at.advance(cut);
  }
}

// ---- a block ----

// One thread. `empty` counts the multiplying warpgroups of both blocks, into whose stages this one's copies go.
__device__ void feed(const HalvesTensors& t, const Memory& memory) {
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  Ring<kStages> ring(kFill);
  for_each_unit(t, [&](const Unit& unit) {
    const bool to_weights = t.p.list[unit.product].to_weights;
    for (int stage = unit.begin; stage < unit.end; ++stage, ring.advance()) {
      const uint32_t full = memory.full(ring.slot);
      const int k = stage * kDepth;
      wait(memory.empty(ring.slot), ring.phase);
      expect_bytes(full, kStageBytes);
#pragma unroll
      for (int box = 0; box < 2; ++box) {  // this block fetches first parts for both, the other one second parts
        const int result = unit.row0 + box * 64, gate = to_weights ? result : k;
        copy_in_to_all<kCluster>(memory.box(ring.slot, 2 * rank + box), &t.halves, full, 0, to_weights ? k : result, rank,
                                 gate / static_cast<int>(kLltmChunk), 0);
      }
#pragma unroll
      for (int box = 0; box < 2; ++box)
        copy_in(memory.box(ring.slot, 4 + box), &t.operands[unit.product], full, unit.column0 + box * 64, k, 0, 0, 0);
    }
  });
}

__device__ __forceinline__ void release(const Memory& memory, int slot) {
  if (threadIdx.x % kWarpgroup < kCluster) arrive_at(memory.empty(slot), static_cast<int>(threadIdx.x) % kWarpgroup);
}

template <class T, bool ToWeights>
__device__ __forceinline__ void multiply(const Memory& memory, const Unit& unit, int warpgroup, Ring<kStages>& ring,
                                         HalvesSums& sums) {
#pragma unroll 1
  for (int stage = unit.begin; stage < unit.end; ++stage) {
    wait(memory.full(ring.slot), ring.phase);
    const uint64_t first = descriptor(memory.box(ring.slot, warpgroup), 16, 1024, 1);
    const uint64_t second = descriptor(memory.box(ring.slot, 2 + warpgroup), 16, 1024, 1);
    const uint64_t operand = descriptor(memory.box(ring.slot, 4), kBox, 1024, 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {  // 16 k are 32 bytes where k lie together, else 16 rows; an address counts 16 bytes
      const int accumulate = k > 0 ? 1 : stage - unit.begin;
      const uint64_t along = static_cast<uint64_t>(2 * k), across = static_cast<uint64_t>(128 * k);
      wgmma<T, ToWeights>(sums.first, first + (ToWeights ? across : along), operand + across, accumulate);
      wgmma<T, ToWeights>(sums.second, second + (ToWeights ? across : along), operand + across, accumulate);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // the stage before this one has been read
    if (stage > unit.begin) release(memory, ring.before());
    ring.advance();
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  release(memory, ring.before());
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(sums.first[i]), "+f"(sums.second[i])::"memory");
}

// sums[4g], [4g + 1]: row warp * 16 + lane / 4, columns 8g + lane % 4 * 2 and the next; [4g + 2], [4g + 3]: 8 rows below.
template <class T>
__device__ __forceinline__ void store(const HalvesTensors& t, const Unit& unit, int warpgroup, const HalvesSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
  const LltmHalvesStore<T> to(t.p, t.p.list[unit.product], unit.slice);
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int g = 0; g < 16; ++g)
      to(unit.row0 + warpgroup * 64 + warp * 16 + lane / 4 + half * 8, unit.column0 + g * 8 + lane % 4 * 2,
         sums.first + g * 4 + half * 2, sums.second + g * 4 + half * 2);
}

// By way of shared memory, where the copy engine takes two boxes of 64 columns; it leaves out what lies past the output's edges.
template <class T>
__device__ __forceinline__ void copy_results(const HalvesTensors& t, const Memory& memory, const Unit& unit, int warpgroup,
                                             const HalvesSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
  const bool leader = threadIdx.x % kWarpgroup == 0;
  const float unscale = *t.p.unscale;
  const uint32_t results = memory.results + static_cast<uint32_t>(warpgroup * 2 * kBox);
  if (leader) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // the tile before this one has left
  sync_warpgroup(warpgroup + 1);
  const auto pair = [&](int i) {
    return narrow_pair(unscale * add_second(sums.first[i], sums.second[i]),
                       unscale * add_second(sums.first[i + 1], sums.second[i + 1]), T{});
  };
  const uint32_t row =
      results + static_cast<uint32_t>((warp * 16 + lane % 16) * 128);  // lanes 8i to 8i + 7 address matrix i's rows
#pragma unroll
  for (int g = 0; g < 16; g += 2)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     row + static_cast<uint32_t>(g / 8 * kBox + (((g % 8 + lane / 16) ^ (lane & 7)) << 4))),
                 "r"(pair(g * 4)), "r"(pair(g * 4 + 2)), "r"(pair(g * 4 + 4)), "r"(pair(g * 4 + 6))
                 : "memory");
  fence_proxy();
  sync_warpgroup(warpgroup + 1);
  if (!leader) return;
#pragma unroll
  for (int box = 0; box < 2; ++box)
    copy_out(&t.outputs[unit.product], results + static_cast<uint32_t>(box * kBox), unit.column0 + box * 64,
             unit.row0 + warpgroup * 64, 0, 0, 0);
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <class T>
__device__ void multiply_units(const HalvesTensors& t, const Memory& memory, int warpgroup) {
  Ring<kStages> ring(kDrain);
  for_each_unit(t, [&](const Unit& unit) {
    HalvesSums sums;
    if (t.p.list[unit.product].to_weights)
      multiply<T, true>(memory, unit, warpgroup, ring, sums);
    else
      multiply<T, false>(memory, unit, warpgroup, ring, sums);
    if (t.cuts[unit.product].copied_out)
      copy_results<T>(t, memory, unit, warpgroup, sums);
    else
      store<T>(t, unit, warpgroup, sums);
  });
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <class T>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    lltm_halves_sm90a_kernel(const __grid_constant__ HalvesTensors t) {
  extern __shared__ char shared[];
  const Memory memory(shared);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage)
      init_barrier(memory.full(stage), 1), init_barrier(memory.empty(stage), 2 * kCluster);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  sync_blocks<kCluster>();  // nobody copies or arrives before the other's barriers are there
  if (threadIdx.x < kWarpgroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) feed(t, memory);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply_units<T>(t, memory, static_cast<int>(threadIdx.x) / kWarpgroup - 1);
  }
  sync_blocks<kCluster>();  // nobody leaves while the other still copies to it or arrives at its barriers
}

// ---- the choice, and the launch ----

// Boxes of 64 rows and 64 columns.
template <class T>
CUtensorMap map_of(const Matrix& m, int64_t rows, int64_t columns) {
  return encode_map({kDtype<T>, {columns, rows, 1, 1, 1}, {m.row, 0, 0, 0}, 64, 64, 128}, m.base, "lltm_backward");
}
// Boxes of 64 rows and the 64 first or second parts of a chunk: (in the chunk, row, part, chunk).
template <class T>
CUtensorMap map_of_halves(const Matrix& grads, int64_t batch) {
  constexpr int64_t kChunk = kLltmChunk;
  return encode_map({kDtype<T>, {kChunk, batch, 2, grads.row / kChunk, 1}, {2 * grads.row, kChunk, 2 * kChunk, 0}, 64, 64, 128},
                    grads.base, "lltm_backward");
}

bool can_copy_out(const LltmProduct& product) {
  const Matrix& out = product.out;
  return product.slices == 1 && out.column == 1 && reinterpret_cast<uintptr_t>(out.base) % 16 == 0 &&
         steps_well(product.rows, out.row);
}

// The units of all products, and how clusters share them.
void share_out(const LltmProducts& p, uint32_t clusters, HalvesTensors* t) {
  const auto u32 = [](int64_t n) { return static_cast<uint32_t>(n); };
  Units inputs{}, weights{};
  for (int i = 0; i < p.count; ++i) {
    const LltmProduct& product = p.list[i];
    const Cut& cut = t->cuts[i] = {u32(ceil_div(product.rows, kRows)), u32(ceil_div(product.columns, kCluster * kColumns)),
                                   u32(product.slices), u32(ceil_div(product.depth, kDepth)), can_copy_out(product)};
    Units& units = product.to_weights ? weights : inputs;
    units.count += Cursor::units_of(cut), units.stages += cut.rows * cut.columns * cut.stages;
  }
  weights.first = inputs.count;
  const auto length = [](const Units& units) { return units.count == 0 ? 0 : units.stages / units.count; };
  const bool inputs_longer = length(inputs) >= length(weights);
  t->longer = inputs_longer ? inputs : weights, t->shorter = inputs_longer ? weights : inputs;
  const uint32_t share = (inputs.stages + weights.stages + clusters - 1) / clusters, fuller = t->longer.count % clusters;
  double all = 0;
  for (uint32_t more = 0; more < 2; ++more) {
    const uint32_t full = (t->longer.count / clusters + more) * length(t->longer);
    t->room[more] = share > full ? share - full : 0;
    all += static_cast<double>(t->room[more]) * (more == 1 ? fuller : clusters - fuller);
  }
  t->in_room = all > 0 ? t->shorter.count / all : 0;
}

template <class T>
void launch(const LltmProductsChoice& choice, const LltmProducts& p, gpuStream_t stream) {
  launch_lltm_split(kDtype<T>, p, batch_of(p.list[0]), gates_of(p.list[0]), stream);
  HalvesTensors t;
  t.p = p;
  t.halves = map_of_halves<T>(p.gate_grads, batch_of(p.list[0]));
  share_out(p, static_cast<uint32_t>(choice.blocks / kCluster), &t);
  for (int i = 0; i < p.count; ++i) {
    const LltmProduct& product = p.list[i];
    t.operands[i] = map_of<T>(product.operand, product.depth, product.columns);
    t.outputs[i] = t.cuts[i].copied_out ? map_of<T>(product.out, product.rows, product.columns) : t.operands[i];
  }
  launch_kernel(lltm_halves_sm90a_kernel<T>, choice.blocks, choice.threads, choice.shared, stream, t);
}

}  // namespace

LltmProductsChoice lltm_halves_sm90a(const Device& device, Dtype dtype, LltmProducts* products) {
  if (device.compute_capability != 90 || device.shared_memory < kShared || find_encode() == nullptr) return {};
  constexpr LltmTileSize kTile = {kRows, kCluster * kColumns, kDepth};
  constexpr int64_t kMost = int64_t{1} << 28;  // coordinates and stages are counted in 32 bits
  for (int i = 0; i < products->count; ++i)
    for (const int64_t extent : {products->list[i].rows, products->list[i].columns, products->list[i].depth})
      if (extent > kMost) return {};
  if (num_stages(*products, kTile) > kMost) return {};
  LltmProductsChoice choice = lay_out(device.multiprocessors / kCluster, dtype, kTile, products, true);
  choice.blocks = std::min<int64_t>(choice.blocks, device.multiprocessors / kCluster) * kCluster;
  choice.kernel =
      reinterpret_cast<const void*>(dtype == Dtype::f16 ? lltm_halves_sm90a_kernel<f16> : lltm_halves_sm90a_kernel<bf16>);
  choice.threads = kThreads;
  choice.shared = kShared;
  choice.launch = dtype == Dtype::f16 ? launch<f16> : launch<bf16>;
  load_lltm_split(dtype);
  return choice;
}

}  // namespace narrows::gpu
