// SPDX-License-Identifier: Apache-2.0
// gemm_pairs-inl.h -- products of bf16 by instructions that take two depths at once: AVX512_BF16's dot product, and AMX's tiles.
// Compiled for AVX-512 alone.
//
// A pair is what a column holds at depths k and k + 1, k in its low half. Operands are packed in squares of 16 pairs by 16 columns,
// which is what a tile register holds: b's panels as rows of pairs, 48 columns each; a's as 16 pairs of each of 16 rows. What is
// missing at an edge, also of the depth, is zeros.
//
// Both instructions take subnormal numbers for 0, of operands, sums and results. No square is given to them where that could be
// seen: see Flushes().
#if defined(NARROWS_CPU_GEMM_PAIRS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_CPU_GEMM_PAIRS_INL_H
#undef NARROWS_CPU_GEMM_PAIRS_INL_H
#else
#define NARROWS_CPU_GEMM_PAIRS_INL_H
#endif

#include "gemm_pack-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

HWY_BEFORE_NAMESPACE();
namespace narrows::cpu::HWY_NAMESPACE {

using Pair = uint32_t;
inline constexpr int64_t kSquare = 16, kPanel = 3 * kSquare;  // in pairs, or columns
using Pairs = hn::FixedTag<Pair, kSquare>;
using Sums = hn::FixedTag<float, kSquare>;

// Pairs of a range of depths, whole squares of them.
constexpr int64_t PairsOf(int64_t depth) { return round_up(ceil_div(depth, 2), kSquare); }

// ---- packing

// Depths from k on, as the view splits them.
class DepthCursor {
 public:
  DepthCursor(const GemmView& view, int64_t k) : view_(view), outer_(k / view.depth_inner), inner_(k % view.depth_inner) {}
  void operator++() {
    if (++inner_ == view_.depth_inner) inner_ = 0, ++outer_;
  }
  // How many depths follow each other in the same range.
  int64_t left() const { return view_.depth_inner - inner_; }
  int64_t offset() const { return outer_ * view_.depth_outer; }
  int64_t position() const { return inner_ * view_.depth_step + view_.origin; }

 private:
  const GemmView& view_;
  int64_t outer_, inner_;
};

// A run of contiguous columns at one depth: where it lies, or a copy in `line` where some of `width` are missing.
inline const uint16_t* RunAt(const GemmView& view, const DepthCursor& depth, const Run& run, int64_t width, uint16_t* line) {
  const int64_t position = depth.position() + run.position;
  const uint16_t* first = static_cast<const uint16_t*>(view.base) + depth.offset() + run.offset + position;
  const bool bounded = view.extent != kUnbounded;
  const int64_t low = bounded ? std::clamp<int64_t>(-position, 0, run.count) : 0;
  const int64_t high = bounded ? std::clamp<int64_t>(view.extent - position, low, run.count) : run.count;
  if (low == 0 && high == width) return first;
  std::fill(line, line + width, uint16_t{0});
  std::memcpy(line + low, first + low, static_cast<size_t>(high - low) * sizeof(uint16_t));
  return line;
}

// Columns of one run, a pair of rows at a time.
inline void PackPairsOfRun(const GemmView& view, int64_t k, int64_t depth, const Run& run, int64_t width, Pair* dst, int64_t ld) {
  const Pairs d;
  const hn::Rebind<uint16_t, Pairs> half;
  alignas(64) uint16_t line[2][kPanel], zeros[kPanel] = {};
  DepthCursor at(view, k);
  for (int64_t i = 0; i < 2 * PairsOf(depth); i += 2, dst += ld) {
    const uint16_t *low = zeros, *high = zeros;
    if (i < depth) low = RunAt(view, at, run, width, line[0]), ++at;
    if (i + 1 < depth) high = RunAt(view, at, run, width, line[1]), ++at;
    for (int64_t j = 0; j < width; j += kSquare) {
      const auto first = hn::PromoteTo(d, hn::LoadU(half, low + j)), second = hn::PromoteTo(d, hn::LoadU(half, high + j));
      hn::StoreU(hn::Or(first, hn::ShiftLeft<16>(second)), d, dst + j);
    }
  }
}

// Up to 16 columns of any strides, at up to 32 depths: as f32, as always, of which a bf16 is the upper half.
inline void PackSquareOfAny(const GemmView& view, int64_t k, int64_t depth, int64_t j, int64_t count, Pair* dst, int64_t ld) {
  const Pairs d;
  alignas(64) float wide[2 * kSquare * kSquare] = {};
  if (count > 0 && depth > 0) PackAs<bf16>(view, k, depth, j, count, PanelRow<float>{wide, 0, kSquare, kSquare, 0});
  const auto* bits = reinterpret_cast<const Pair*>(wide);
  for (int64_t i = 0; i < kSquare; ++i, dst += ld, bits += 2 * kSquare) {
    const auto upper = hn::And(hn::Load(d, bits + kSquare), hn::Set(d, 0xffff0000u));
    hn::StoreU(hn::Or(hn::ShiftRight<16>(hn::Load(d, bits)), upper), d, dst);
  }
}

// 16 columns whose depths are contiguous hold their pairs as they are wanted, but for the order.
class ContiguousDepths {
 public:
  ContiguousDepths(const GemmView& view, int64_t j, int64_t count) : view_(view) {
    usable_ = view.depth_step == 1 && view.stride == 1 && count == kSquare;
    for (int64_t c = 0; usable_ && c < kSquare; ++c) {
      const int64_t position = (j + c) % view.width_inner * view.width_step;
      column_[c] = static_cast<const bf16*>(view.base) + (j + c) / view.width_inner * view.width_outer + position;
      low_ = std::min(low_, position), high_ = std::max(high_, position);
    }
  }
  // Are the next 32 depths of all columns in memory, and side by side?
  bool Reaches(const DepthCursor& at) const {
    if (!usable_ || at.left() < 2 * kSquare) return false;
    return view_.extent == kUnbounded || (low_ + at.position() >= 0 && high_ + at.position() + 2 * kSquare <= view_.extent);
  }
  const float* column(const DepthCursor& at, int64_t c) const {
    return reinterpret_cast<const float*>(column_[c] + at.offset() + at.position());
  }
  void Pack(const DepthCursor& at, Pair* dst, int64_t ld) const {
    const float* columns[kSquare];
    for (int64_t c = 0; c < kSquare; ++c) columns[c] = column(at, c);
    TransposeSquare<float>(Sums(), columns, 0, reinterpret_cast<float*>(dst), ld);
  }

 private:
  const GemmView& view_;
  bool usable_;
  const bf16* column_[kSquare];
  int64_t low_ = INT64_MAX, high_ = INT64_MIN;
};

// Columns j .. j + count of b, 16 or 48 wide.
inline void PackPairsOfB(const GemmView& view, int64_t k, int64_t depth, int64_t j, int64_t count, int64_t width, Pair* dst) {
  count = std::max<int64_t>(count, 0);
  if (view.width_step == 1 && view.stride == 1 && count > 0 && j % view.width_inner + count <= view.width_inner) {
    const Run run = {0, count, j / view.width_inner * view.width_outer, j % view.width_inner};
    return PackPairsOfRun(view, k, depth, run, width, dst, kPanel);
  }
  for (int64_t first = 0; first < width; first += kSquare) {
    const int64_t columns = std::clamp<int64_t>(count - first, 0, kSquare);
    const ContiguousDepths contiguous(view, j + first, columns);
    DepthCursor at(view, k);
    for (int64_t i = 0; i < depth; i += 2 * kSquare) {
      Pair* to = dst + first + i / 2 * kPanel;
      if (i + 2 * kSquare <= depth && contiguous.Reaches(at)) {
        contiguous.Pack(at, to, kPanel);
      } else {
        PackSquareOfAny(view, k + i, std::min(depth - i, 2 * kSquare), j + first, columns, to, kPanel);
      }
      for (int64_t n = 0; n < 2 * kSquare; ++n) ++at;
    }
  }
}

// Rows j .. j + count of a, of 16.
inline void PackPairsOfA(const GemmView& view, int64_t k, int64_t depth, int64_t j, int64_t count, Pair* dst) {
  const ContiguousDepths contiguous(view, j, count);
  DepthCursor at(view, k);
  for (int64_t i = 0; i < depth; i += 2 * kSquare, dst += kSquare * kSquare) {
    if (i + 2 * kSquare <= depth && contiguous.Reaches(at)) {
      for (int64_t r = 0; r < kSquare; ++r)
        hn::StoreU(hn::LoadU(Sums(), contiguous.column(at, r)), Sums(), reinterpret_cast<float*>(dst + r * kSquare));
    } else {
      alignas(64) Pair square[kSquare * kSquare];
      PackSquareOfAny(view, k + i, std::min(depth - i, 2 * kSquare), j, count, square, kSquare);
      const float* columns[kSquare];
      for (int64_t c = 0; c < kSquare; ++c) columns[c] = reinterpret_cast<const float*>(square + c * kSquare);
      TransposeSquare<float>(Sums(), columns, 0, reinterpret_cast<float*>(dst), kSquare);
    }
    for (int64_t n = 0; n < 2 * kSquare; ++n) ++at;
  }
}

// ---- what the instructions take for 0

// The exponent, as a bf16 holds it, of the smallest number that is not 0; that of infinity and more if there is none.
inline int SmallestExponent(const Pair* pairs, int64_t count) {
  const hn::FixedTag<uint16_t, 2 * kSquare> d;
  const auto magnitude = hn::Set(d, 0x7fff), one = hn::Set(d, 1);
  auto smallest = hn::Set(d, 0xffff);
  for (int64_t i = 0; i < count; i += kSquare)  // 0 becomes the largest
    smallest = hn::Min(smallest, hn::Sub(hn::And(hn::Load(d, reinterpret_cast<const uint16_t*>(pairs + i)), magnitude), one));
  alignas(64) uint16_t lanes[2 * kSquare];
  hn::Store(smallest, d, lanes);
  return (*std::min_element(lanes, lanes + 2 * kSquare) + 1) >> 7;
}

// Might flushing be seen? Numbers from 2^(e - 127) on are multiples of 2^(e - 134), and their products, and all sums of those, of
// 2^(e + f - 268): where that is a normal number, 2^-126 or more, nothing is flushed.
inline bool Flushes(int a_exponent, int b_exponent) { return a_exponent < 1 || b_exponent < 1 || a_exponent + b_exponent < 142; }

// ---- micro-kernels: tile (+)= 16 rows of a * a panel of b; at an edge the rows and vectors that are there. What a tile holds
// beyond them is never stored, so it need not be written before it is read.

// By rows of kHalf, for which there are registers.
inline constexpr int64_t kHalf = 8;

// The halves of pairs as f32. Nothing is flushed.
inline void MultiplyWidened(const Pair* a, const Pair* b, int64_t pairs, float* tile, bool add) {
  const Pairs d;
  const auto upper = [](hn::Vec<Pairs> pair) HWY_ATTR { return hn::BitCast(Sums(), hn::And(pair, hn::Set(Pairs(), 0xffff0000u))); };
  const auto lower = [](hn::Vec<Pairs> pair) HWY_ATTR { return hn::BitCast(Sums(), hn::ShiftLeft<16>(pair)); };
  for (int64_t first = 0; first < kSquare; first += kHalf) {
    hn::Vec<Sums> sum[kHalf][3];
    for (auto& row : sum) row[0] = row[1] = row[2] = hn::Zero(Sums());
    for (int64_t k = 0; k < pairs; ++k) {
      const Pair* column = a + (k / kSquare * kSquare + first) * kSquare + k % kSquare;
      HWY_UNROLL(3)
      for (int64_t v = 0; v < 3; ++v) {
        const auto row = hn::Load(d, b + k * kPanel + v * kSquare);
        HWY_UNROLL(8)
        for (int64_t r = 0; r < kHalf; ++r) {
          const auto scale = hn::Set(d, column[r * kSquare]);
          sum[r][v] = hn::MulAdd(upper(scale), upper(row), hn::MulAdd(lower(scale), lower(row), sum[r][v]));
        }
      }
    }
    for (int64_t r = 0; r < kHalf; ++r)
      for (int64_t v = 0; v < 3; ++v) {
        float* at = tile + (first + r) * kPanel + v * kSquare;
        hn::Store(add ? hn::Add(hn::Load(Sums(), at), sum[r][v]) : sum[r][v], Sums(), at);
      }
  }
}

// AVX512_BF16. By intrinsics alone: clang inlines none of Highway's functions where one more instruction set is allowed.
// The first `rows` rows, in halves of the square, by kVectors vectors of the panel.
template <int kVectors>
__attribute__((target("avx512bf16"))) inline void MultiplyDots(int64_t rows, const Pair* a, const Pair* b, int64_t pairs,
                                                               float* tile, bool add) {
  for (int64_t first = 0; first < rows; first += kHalf) {
    __m512 sum[kHalf][kVectors];
    HWY_UNROLL(8)
    for (auto& row : sum)
      for (__m512& v : row) v = _mm512_setzero_ps();
    const Pair *square = a + first * kSquare, *row = b;
    for (int64_t k = 0; k < pairs; k += kSquare, square += kSquare * kSquare)
      for (int64_t i = 0; i < std::min(pairs - k, kSquare); ++i, row += kPanel) {
        __m512i columns[kVectors];
        HWY_UNROLL(3)
        for (int64_t v = 0; v < kVectors; ++v) columns[v] = _mm512_load_si512(row + v * kSquare);
        HWY_UNROLL(8)
        for (int64_t r = 0; r < kHalf; ++r) {
          const __m512i scale = _mm512_set1_epi32(static_cast<int>(square[r * kSquare + i]));
          HWY_UNROLL(3)
          for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)scale, (__m512bh)columns[v]);
        }
      }
    HWY_UNROLL(8)
    for (int64_t r = 0; r < kHalf; ++r)
      for (int64_t v = 0; v < kVectors; ++v) {
        float* at = tile + (first + r) * kPanel + v * kSquare;
        _mm512_store_ps(at, add ? _mm512_add_ps(_mm512_load_ps(at), sum[r][v]) : sum[r][v]);
      }
  }
}

// AMX. Up to three tiles of sums, one of a, as many of b, each of 16 rows of 64 bytes: 512 multiply-adds a cycle, four loads for
// three.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Not inlined: to some compilers a load of a tile reads no memory that was stored to before.
template <int kVectors>
__attribute__((target("amx-tile,amx-bf16"), noinline)) void MultiplyTiles(const Pair* a, const Pair* b, int64_t pairs, float* tile,
                                                                          bool add) {
  constexpr int64_t kRow = kPanel * sizeof(float);
  if (add) {
    _tile_loadd(0, tile, kRow);
    if constexpr (kVectors > 1) _tile_loadd(1, tile + kSquare, kRow);
    if constexpr (kVectors > 2) _tile_loadd(2, tile + 2 * kSquare, kRow);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
  }
  for (int64_t k = 0; k < pairs; k += kSquare, a += kSquare * kSquare, b += kSquare * kPanel) {
    _tile_loadd(3, a, 64);
    _tile_loadd(4, b, kRow);
    _tile_dpbf16ps(0, 3, 4);
    if constexpr (kVectors > 1) {
      _tile_loadd(5, b + kSquare, kRow);
      _tile_dpbf16ps(1, 3, 5);
    }
    if constexpr (kVectors > 2) {
      _tile_loadd(6, b + 2 * kSquare, kRow);
      _tile_dpbf16ps(2, 3, 6);
    }
  }
  _tile_stored(0, tile, kRow);
  if constexpr (kVectors > 1) _tile_stored(1, tile + kSquare, kRow);
  if constexpr (kVectors > 2) _tile_stored(2, tile + 2 * kSquare, kRow);
}

// While it lives this thread has tile registers. They are given back, since the system saves those that are in use.
class TileRegisters {
 public:
  explicit TileRegisters(Bf16Products products) : used_(products == Bf16Products::tiles) {
    if (used_) Configure();
  }
  ~TileRegisters() {
    if (used_) Release();
  }
  TileRegisters(const TileRegisters&) = delete;

 private:
  __attribute__((target("amx-tile"))) static void Configure() {
    static constexpr TileConfig config;
    _tile_loadconfig(&config);
  }
  __attribute__((target("amx-tile"))) static void Release() { _tile_release(); }
  bool used_;
};

}  // namespace narrows::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3
#endif
