// SPDX-License-Identifier: Apache-2.0
// split_sm90a.h -- products of f32 on Hopper's matrix units, as accurate as f32's own arithmetic.
//
// The units multiply numbers of 8 significant bits (bf16) and add in f32. An f32 number is the sum of three such numbers, high,
// middle and low, exactly. Of the nine products of two numbers' parts the six largest are summed; the other three are below f32's
// rounding. A number times 1 is that number.
//
// The units cut off what a sum cannot hold, which shifts long sums. So a sum starts anew every 32 terms (kSplitDepth), and ordinary
// additions add these parts up.
//
// Three kinds of operands lose more than f32 does: numbers so small that `low` is below bf16's least number, numbers so large that
// `high` rounds to infinity, and those that are not finite. A tile that had one of them is computed again by plain multiply-adds:
// SplitRecord says which.
//
// Operand a is raw and split by the threads that multiply. Operand b is split ahead into three planes, [column][depth] each. A
// block makes tiles of 128 rows of a by 64, 96 or 128 columns of b, one after the other (persistent):
//
//   warp 0          loads b, by steps of 32 of the depth
//   warp 1          loads a, by boxes; one box serves several steps where a window slides along the rows
//   warps 2 and 3   look for elements of a that lose bits in the split
//   warps 4 to 11   two warpgroups of 64 rows each: split a, multiply, and store
//
// What the tiles, boxes and steps are, a Work says: see multiply_split() below.
#pragma once

#include <algorithm>

#include "ops/hopper_sm90a.h"

namespace narrows::gpu {

inline constexpr int kSplitDepth = 32;  // terms of a step
inline constexpr int kSplitRows = 128;  // rows of a tile: two warpgroups have 64 each
// How a box of a lies in shared memory.
enum class BoxOrder {
  rows,   // [depth][row], plain: a window may slide along the rows
  depth,  // [row][depth], with the 128-byte swizzle: a window may slide along the rows
  slid,   // [row][depth], plain: the depth may begin at any of 4 elements
};
// Elements from one row (by rows: from one of the depth) to the next. By rows and slid, no two threads of a warp ask one bank.
constexpr int box_pitch(BoxOrder order) { return order == BoxOrder::rows ? kSplitRows + 12 : order == BoxOrder::depth ? 32 : 36; }
constexpr int box_rows(BoxOrder order) { return order == BoxOrder::slid ? kSplitRows : kSplitRows + 12; }
constexpr int box_bytes(BoxOrder order) { return 4 * box_pitch(order) * (order == BoxOrder::rows ? kSplitDepth : box_rows(order)); }
inline constexpr int kSplitSlack = 12;           // places that a window may slide along the rows
inline constexpr int kSplitBoxStep = 18 * 1024;  // bytes from box to box
static_assert(box_bytes(BoxOrder::rows) <= kSplitBoxStep && box_bytes(BoxOrder::slid) <= kSplitBoxStep);

// In a box [row][depth], threads take elements of the depth by fours: of 16, the one at place i of the products is this one. The
// planes of b are made in that order too.
__host__ __device__ constexpr int depth_at(BoxOrder order, int i) {
  return order == BoxOrder::rows ? i : i % 2 * 4 + i / 8 * 8 + i / 2 % 4;
}

// ---- splitting ----

inline constexpr int kParts = 3;

// Two numbers' parts, the first in the lower halves. Each part is what is left, rounded to 8 bits; the last one is exact.
__device__ __forceinline__ void split(float x, float y, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    parts[i] = narrow_pair(x, y, bf16{});
    x -= __uint_as_float(parts[i] << 16), y -= __uint_as_float(parts[i] & 0xffff0000u);
  }
}

// Below this, 2^-110, bits of a number's `low` get lost.
inline constexpr uint32_t kSplitLeast = (127 - 110) << 23, kInfinity = 0x7f800000;  // as f32's bits

// What a tile met. Magnitudes as f32's bits, which are in the order of the numbers.
struct SplitRecord {
  uint32_t least_in, most_in;    // of the elements of a that are not 0
  uint32_t least_out, most_out;  // of the sums
  uint32_t b_loses;              // not 0: b has elements so small that bits got lost, as far as that is known of a tile

  __device__ __forceinline__ void clear() { least_in = least_out = ~0u, most_in = most_out = b_loses = 0; }
  // Whether plain arithmetic has to compute the tile again, a sum of `depth` terms. Of b: its least magnitude, or ~0, and its most.
  // An element that lost bits adds at most 2^-134 times the other factor to an error. So large sums forgive it.
  __device__ __forceinline__ bool is_lost(int64_t depth, uint32_t least_b, uint32_t most_b) const {
    const float unit = static_cast<float>(depth) * __uint_as_float(kSplitLeast);
    const bool a_matters = least_in < kSplitLeast && least_out < __float_as_uint(unit * __uint_as_float(most_b));
    const bool b_matters = least_b < kSplitLeast && least_out < __float_as_uint(unit * __uint_as_float(most_in));
    return most_out >= kInfinity || a_matters || b_matters;
  }
};

// The extremes of some elements, of a whole warp once gathered.
struct SplitRange {
  uint32_t least = ~0u, most = 0;  // least: twice the bits, minus 1; so a 0 is the largest

  // An element as f32's bits.
  __device__ __forceinline__ void see(uint32_t x) { least = min(least, 2 * x - 1), most = max(most, x & 0x7fffffffu); }
  __device__ __forceinline__ void gather_in(SplitRecord* record) const {
    const uint32_t low = __reduce_min_sync(~0u, least), high = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 != 0) return;
    const volatile SplitRecord& now = *record;  // most warps have nothing to add
    if (low != ~0u && low / 2 + 1 < now.least_in) atomicMin(&record->least_in, low / 2 + 1);
    if (high > now.most_in) atomicMax(&record->most_in, high);
  }
};

// ---- instructions ----

#define NARROWS_SPLIT_REGISTERS32 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NARROWS_SPLIT_REGISTERS48 NARROWS_SPLIT_REGISTERS32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define NARROWS_SPLIT_REGISTERS64 NARROWS_SPLIT_REGISTERS48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NARROWS_SPLIT_WGMMA(columns, registers, a0, a1, a2, a3, b, accumulate)                                       \
  "{ .reg .pred p; setp.ne.b32 p, " accumulate                                                                       \
  ", 0;\n"                                                                                                           \
  "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" registers "}, {" a0 "," a1 "," a2 "," a3 "}, " b \
  ", p, 1, 1, 0; }\n"
#define NARROWS_SPLIT_INPUTS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAccumulate)

// 64 rows x 64, 96 or 128 columns of sums, plus 16 of the depth; without kAccumulate the sums start here.
template <int kAccumulate>
__device__ __forceinline__ void multiply_parts(float (&sums)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(NARROWS_SPLIT_WGMMA("64", NARROWS_SPLIT_REGISTERS32, "%32", "%33", "%34", "%35", "%36", "%37")
               : NARROWS_SUMS8(0), NARROWS_SUMS8(8), NARROWS_SUMS8(16), NARROWS_SUMS8(24)
               : NARROWS_SPLIT_INPUTS);
}
template <int kAccumulate>
__device__ __forceinline__ void multiply_parts(float (&sums)[48], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(NARROWS_SPLIT_WGMMA("96", NARROWS_SPLIT_REGISTERS48, "%48", "%49", "%50", "%51", "%52", "%53")
               : NARROWS_SUMS8(0), NARROWS_SUMS8(8), NARROWS_SUMS8(16), NARROWS_SUMS8(24), NARROWS_SUMS8(32), NARROWS_SUMS8(40)
               : NARROWS_SPLIT_INPUTS);
}
template <int kAccumulate>
__device__ __forceinline__ void multiply_parts(float (&sums)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(NARROWS_SPLIT_WGMMA("128", NARROWS_SPLIT_REGISTERS64, "%64", "%65", "%66", "%67", "%68", "%69")
               : NARROWS_SUMS8(0), NARROWS_SUMS8(8), NARROWS_SUMS8(16), NARROWS_SUMS8(24), NARROWS_SUMS8(32), NARROWS_SUMS8(40),
                 NARROWS_SUMS8(48), NARROWS_SUMS8(56)
               : NARROWS_SPLIT_INPUTS);
}
#undef NARROWS_SPLIT_INPUTS
#undef NARROWS_SPLIT_WGMMA
#undef NARROWS_SPLIT_REGISTERS64
#undef NARROWS_SPLIT_REGISTERS48
#undef NARROWS_SPLIT_REGISTERS32

// ---- a warpgroup's 64 rows of a tile ----

// Where the sums of a tile go; strides in elements.
struct SplitTarget {
  float* base;
  int64_t row, column;
};

// Thread t of a warp has of row t / 4 + 8h of the warp's 16, for h of 0 and 1, the columns 8j + t % 4 * 2 and the next:
// at[4j + 2h], at[4j + 2h + 1].
template <int kColumns>
struct SplitSums {
  static constexpr int kSums = kColumns / 2, kPlane = kColumns * kSplitDepth * 2;  // kPlane: bytes of a plane of b in shared memory
  float at[kSums];
  float raw[2][4][2];  // of a, of the next step: 16 of the depth each; pairs that are neighbours in the depth

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kSums; ++i) at[i] = 0;
  }
  // The elements of this thread's rows, of the warp's from `row` on, of a box.
  template <BoxOrder kOrder>
  __device__ __forceinline__ void fetch(uint32_t box, int row, int shift) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kPitch = box_pitch(kOrder) * 4;
    if constexpr (kOrder == BoxOrder::depth) {
      // Lanes 8i to 8i + 7 address the rows of matrix i: of 8 rows and 4 of the depth.
      const int at = row + shift + (lane & 15);
      const uint32_t from = box + at * kPitch;
#pragma unroll
      for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=f"(raw[k][2 * half][0]), "=f"(raw[k][2 * half + 1][0]), "=f"(raw[k][2 * half][1]),
                         "=f"(raw[k][2 * half + 1][1])
                       : "r"(from + (((k * 4 + half * 2 + (lane >> 4)) ^ (at & 7)) << 4))
                       : "memory");
    } else {
      constexpr bool kByRows = kOrder == BoxOrder::rows;
      const int depth = kByRows ? (lane & 3) * 2 : (lane & 3) + shift, at = row + (lane >> 2) + (kByRows ? shift : 0);
      const uint32_t from = box + (kByRows ? depth * kPitch + at * 4 : at * kPitch + depth * 4);
      constexpr int kOfDepth = kByRows ? kPitch : 4, kOfRow = kByRows ? 4 : kPitch;
#pragma unroll
      for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            asm volatile("ld.shared.f32 %0, [%1];"
                         : "=f"(raw[k][i][e])
                         : "r"(from + (k * 16 + depth_at(kOrder, i / 2 * 8 + e)) * kOfDepth + i % 2 * 8 * kOfRow));
    }
  }
  // One step of kSteps * 16 of the depth, of what was fetched. Before it waits for the products, fetch_next() gets the next.
  template <int kSteps, class FetchNext>
  __device__ __forceinline__ void add(uint32_t planes, FetchNext&& fetch_next) {
    uint32_t parts[kParts][kSteps][4];
    float fresh[kSums];
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t of_pair[kParts];
        split(raw[k][i][0], raw[k][i][1], of_pair);
#pragma unroll
        for (int part = 0; part < kParts; ++part) parts[part][k][i] = of_pair[part];
      }
    const uint64_t b = descriptor(planes, 16, 512, 2);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    // The small products first.
    multiply_plane<0, kSteps, 0>(fresh, parts[2], b);
    multiply_plane<1, kSteps, 1>(fresh, parts[1], b);
    multiply_plane<2, kSteps, 1>(fresh, parts[0], b);
    multiply_plane<0, kSteps, 1>(fresh, parts[1], b);
    multiply_plane<1, kSteps, 1>(fresh, parts[0], b);
    multiply_plane<0, kSteps, 1>(fresh, parts[0], b);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    fetch_next();
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(fresh[i])::"memory");
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) asm volatile("" ::"r"(parts[part][k][i]) : "memory");  // the units read until here
#pragma unroll
    for (int i = 0; i < kSums; ++i) at[i] += fresh[i];
  }

  // Stores what finish(j, sum) makes of this thread's sums: those within `rows` and `columns`, both from the tile's first on.
  template <class Finish>
  __device__ __forceinline__ void store(const SplitTarget& to, int group, int rows, int columns, SplitRecord* record,
                                        Finish&& finish) const {
    rows >= kSplitRows&& columns >= kColumns ? store_some<true>(to, group, rows, columns, record, finish)
                                             : store_some<false>(to, group, rows, columns, record, finish);
  }
  // Of this thread's j-th column.
  static __device__ __forceinline__ int column_of(int j) { return j / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + j % 2; }

 private:
  template <bool kWhole, class Finish>
  __device__ __forceinline__ void store_some(const SplitTarget& to, int group, int rows, int columns, SplitRecord* record,
                                             Finish&& finish) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = group * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    float* at_column = to.base + row * to.row + lane % 4 * 2 * to.column;
    const int64_t half_down = 8 * to.row, next = 7 * to.column;
    const bool has[2] = {kWhole || row < rows, kWhole || row + 8 < rows};
    uint32_t least = ~0u, most = 0;
#pragma unroll
    for (int j = 0; j < kColumns / 4; ++j) {
      const bool there = kWhole || column_of(j) < columns;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!there || !has[half]) continue;
        const float sum = at[j / 2 * 4 + 2 * half + j % 2];
        const uint32_t bits = __float_as_uint(sum) & 0x7fffffffu;
        least = min(least, bits), most = max(most, bits);
        at_column[half == 0 ? 0 : half_down] = finish(j, sum);
      }
      at_column += j % 2 == 0 ? to.column : next;
    }
    least = __reduce_min_sync(~0u, least), most = __reduce_max_sync(~0u, most);
    if (lane == 0) atomicMin(&record->least_out, least), atomicMax(&record->most_out, most);
  }
  template <int kPart, int kSteps, int kAccumulate>
  static __device__ __forceinline__ void multiply_plane(float (&sums)[kSums], const uint32_t (&a)[kSteps][4], uint64_t b) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const uint64_t at = b + kPart * (kPlane / 16) + k * 2;
      if (k == 0)
        multiply_parts<kAccumulate>(sums, a[k], at);
      else
        multiply_parts<1>(sums, a[k], at);
    }
  }
};

// ---- a block ----

inline constexpr int kSplitThreads = 384, kSplitStages = 5, kSplitBoxes = 4, kSplitLookers = 64, kSplitColumns = 128;  // the most
inline constexpr int kSplitShared = 1024 + kSplitStages * kParts * SplitSums<kSplitColumns>::kPlane + kSplitBoxes * kSplitBoxStep +
                                    16 * (kSplitStages + kSplitBoxes);
static_assert(kSplitShared <= 227 * 1024);

template <int kColumns>
struct SplitMemory {
  static constexpr int kStage = kParts * SplitSums<kColumns>::kPlane;
  uint32_t b, a, b_full, b_empty, a_full, a_empty;

  __device__ explicit SplitMemory(uint32_t base) {
    a = (base + 1023) & ~1023u, b = a + kSplitBoxes * kSplitBoxStep;
    b_full = b + kSplitStages * kStage, b_empty = b_full + 8 * kSplitStages;
    a_full = b_empty + 8 * kSplitStages, a_empty = a_full + 8 * kSplitBoxes;
  }
  __device__ void init_barriers() const {
    constexpr int kConsumers = 8, kLookerWarps = kSplitLookers / 32;
    for (int i = 0; i < kSplitStages; ++i) init_barrier(b_full + 8 * i, 1), init_barrier(b_empty + 8 * i, kConsumers);
    for (int i = 0; i < kSplitBoxes; ++i) init_barrier(a_full + 8 * i, 1), init_barrier(a_empty + 8 * i, kConsumers + kLookerWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
};

template <class Work, int kColumns>
__device__ void load_b(const Work& work, const SplitMemory<kColumns>& m) {
  Ring<kSplitStages> ring(kFill);
  for (int tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
    const typename Work::Place at(work, tile);
    typename Work::Box box(work, at);
    for (int i = 0; i < at.boxes; ++i, box.advance(work))
      for (int step = 0; step < box.steps(work); ++step, ring.advance()) {
        wait(m.b_empty + 8 * ring.slot, ring.phase);
        expect_bytes(m.b_full + 8 * ring.slot, m.kStage);
        for (int part = 0; part < kParts; ++part)
          work.load_b(at, box, step, part, m.b + ring.slot * m.kStage + part * (m.kStage / kParts), m.b_full + 8 * ring.slot);
      }
  }
}

template <BoxOrder kOrder, class Work, int kColumns>
__device__ void load_a(const Work& work, const SplitMemory<kColumns>& m) {
  Ring<kSplitBoxes> ring(kFill);
  for (int tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
    const typename Work::Place at(work, tile);
    typename Work::Box box(work, at);
    for (int i = 0; i < at.boxes; ++i, box.advance(work), ring.advance()) {
      wait(m.a_empty + 8 * ring.slot, ring.phase);
      expect_bytes(m.a_full + 8 * ring.slot, box_bytes(kOrder));
      work.load_a(at, box, m.a + ring.slot * kSplitBoxStep, m.a_full + 8 * ring.slot);
    }
  }
}

template <BoxOrder kOrder, class Work, int kColumns>
__device__ void look_at_a(const Work& work, const SplitMemory<kColumns>& m) {
  Ring<kSplitBoxes> ring(kDrain);
  const int first = static_cast<int>(threadIdx.x) % kSplitLookers * 16;
  for (int tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
    const typename Work::Place at(work, tile);
    SplitRange range;
    for (int box = 0; box < at.boxes; ++box, ring.advance()) {
      wait(m.a_full + 8 * ring.slot, ring.phase);
#pragma unroll 4
      for (int i = first; i < box_bytes(kOrder); i += kSplitLookers * 16) {
        uint32_t e[4];
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(e[0]), "=r"(e[1]), "=r"(e[2]), "=r"(e[3])
                     : "r"(m.a + ring.slot * kSplitBoxStep + i));
#pragma unroll
        for (int j = 0; j < 4; ++j) range.see(e[j]);
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(m.a_empty + 8 * ring.slot);
    }
    range.gather_in(&work.records[tile]);
  }
}

template <class Work, int kColumns, BoxOrder kOrder>
struct SplitProducts {
  const Work& work;
  const SplitMemory<kColumns>& m;
  const int group;  // which of the two warpgroups
  Ring<kSplitStages> b{kDrain};
  Ring<kSplitBoxes> a{kDrain};
  SplitSums<kColumns> sums;
  // The step that comes next: in its box, of which `left` are to come, itself included.
  using Place = typename Work::Place;
  struct Next {
    typename Work::Box box;
    int left, step = 0;
    __device__ Next(const Work& work, const Place& at) : box(work, at), left(at.boxes) {}
  };

  __device__ __forceinline__ void fetch(const Place& at, const Next& next) {
    const int row = group * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16;
    sums.template fetch<kOrder>(m.a + a.slot * kSplitBoxStep, row, next.box.shift(work, at, next.step));
  }
  __device__ __forceinline__ void open_box() { wait(m.a_full + 8 * a.slot, a.phase); }

  template <int kSteps>
  __device__ __forceinline__ void step(const Place& at, Next& next) {
    wait(m.b_full + 8 * b.slot, b.phase);
    const uint32_t b_empty = m.b_empty + 8 * b.slot, a_empty = m.a_empty + 8 * a.slot;
    bool closes = false;
    sums.template add<kSteps>(m.b + b.slot * m.kStage, [&] {
      closes = ++next.step == next.box.steps(work);
      if (closes) {
        next.step = 0, --next.left, next.box.advance(work), a.advance();
        if (next.left > 0) open_box();
      }
      if (next.left > 0) fetch(at, next);
    });
    b.advance();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      arrive(b_empty);
      if (closes) arrive(a_empty);
    }
  }
  __device__ __forceinline__ void multiply(const Place& at) {
    sums.clear();
    Next next(work, at);
    open_box();
    fetch(at, next);
    const int narrow = at.boxes - max(at.wide_boxes, 0);
#pragma unroll 1
    while (next.left > narrow) step<2>(at, next);
#pragma unroll 1
    while (next.left > 0) step<1>(at, next);
  }
};

// The most workspace that is taken for speed: no call shall run out of memory for it.
inline constexpr uint64_t kMostSplitWorkspace = uint64_t{1} << 31;
// Bytes of a part of the workspace, so that the next part is aligned.
inline int64_t split_bytes(int64_t size) { return ceil_div(size, 256) * 256; }

// In a kernel of a block for each kTilesOfBlock tiles: compute(tile) of those that is_lost(tile) says. All of the block's threads
// compute.
inline constexpr int kTilesOfBlock = 8;
template <class IsLost, class Compute>
__device__ __forceinline__ void for_each_lost(int tiles, IsLost&& is_lost, Compute&& compute) {
  __shared__ bool lost[kTilesOfBlock];
  const int first = static_cast<int>(blockIdx.x) * kTilesOfBlock, mine = static_cast<int>(threadIdx.x);
  if (mine < kTilesOfBlock) lost[mine] = first + mine < tiles && is_lost(first + mine);
  __syncthreads();
  for (int i = 0; i < kTilesOfBlock; ++i) {
    if (!lost[i]) continue;
    compute(first + i);
    __syncthreads();
  }
}

// How a sum is cut into parts, each by tiles of its own, where whole sums are too few tiles to fill the multiprocessors.
struct SplitCut {
  int64_t parts, of_part;  // of_part: units of a part, such as slices of channels
};
// Counted in the time of a step. What surrounds a tile's products takes as long as some steps; adding a part's sums takes one for
// some 3 MB, and some for the launch.
inline SplitCut cut_split(int multiprocessors, int64_t tiles, int64_t units, int64_t steps_of_unit, int64_t sums) {
  constexpr int64_t kAround = 4, kLaunch = 5, kMostParts = 128, kBytesOfStep = 3'000'000, kMostBytes = int64_t{256} << 20;
  SplitCut cut{1, units};
  int64_t best = 0;
  for (int64_t parts = 1; parts <= std::min(units, kMostParts); ++parts) {
    const int64_t bytes = parts * sums * 4, of_part = ceil_div(units, parts);
    if (parts > 1 && bytes > kMostBytes) break;
    const int64_t adding = parts == 1 ? 0 : kLaunch + 2 * bytes / kBytesOfStep;
    const int64_t cost = ceil_div(tiles * parts, multiprocessors) * (of_part * steps_of_unit + kAround) + adding;
    if (best != 0 && cost >= best) continue;
    best = cost, cut = {ceil_div(units, of_part), of_part};
  }
  return cut;
}

// All of a kernel of kSplitThreads threads, with kSplitShared bytes of shared memory. A Work has
// - tiles, records: the number of tiles, and a SplitRecord for each, cleared
// - Place(work, tile), with boxes and wide_boxes: boxes of the tile; from wide_boxes on they have half the depth, padded with zeros
// - Box(work, place), with advance(work): the tile's first box; to the next one
// - box.steps(work), box.shift(work, place, step): a step's shift from the box's start, along the rows or, slid, along the depth
// - load_a(place, box, to, barrier): box_bytes() of them, zeros outside of the operand
// - load_b(place, box, step, part, to, barrier): kColumns by kSplitDepth elements of a plane, with the 64-byte swizzle
// - store(place, sums, group, record): what becomes of a warpgroup's sums
// Where a is walked by rows, b's planes have the depth in its order; else as depth_at() says.
template <class Work, int kColumns, BoxOrder kOrder>
__device__ __forceinline__ void multiply_split(const Work& work, uint8_t* shared) {
  const SplitMemory<kColumns> m(shared_address(shared));
  if (threadIdx.x == 0) m.init_barriers();
  __syncthreads();
  wait_for_kernel_ahead();
  // Uniform in the compiler's eyes too: else each warp keeps descriptors in registers of its own.
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0), warp = static_cast<int>(threadIdx.x) / 32;
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) load_b(work, m);
    if (threadIdx.x == 32) load_a<kOrder>(work, m);
    if (warp >= 2) look_at_a<kOrder>(work, m);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    SplitProducts<Work, kColumns, kOrder> products{work, m, warpgroup - 1};
    // The second warpgroup begins later, when some stages are full, so that one multiplies while the other stores.
    constexpr int kLate = 3;
    if (warpgroup == 2 && typename Work::Place(work, blockIdx.x).boxes > kLate) wait(m.b_full + 8 * kLate, 0);
    for (int tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
      const typename Work::Place at(work, tile);
      products.multiply(at);
      work.store(at, products.sums, warpgroup - 1, &work.records[tile]);
    }
  }
}

}  // namespace narrows::gpu
