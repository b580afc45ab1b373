// SPDX-License-Identifier: Apache-2.0
// elementwise_loops.h -- the kernels that apply a function to elements: in vectors where elements lie side by side, one by one
// where they lie anywhere.
#pragma once

#include "elementwise.h"
#include "ops/bytes.h"
#include "overlap.h"

namespace narrows::gpu {

// ---- elements ----

// The type that a stored element is computed in: f32 for halves.
template <class S>
struct ComputeType {
  using type = S;
};
template <>
struct ComputeType<f16> {
  using type = float;
};
template <>
struct ComputeType<bf16> {
  using type = float;
};
template <class S>
using Compute = typename ComputeType<S>::type;

template <class S>
__device__ __forceinline__ Compute<S> opened(S x) {
  if constexpr (std::is_same_v<S, Compute<S>>)
    return x;
  else
    return widen(x);
}
// What a function gives, as it is stored; integers wrap.
template <class S, class R>
__device__ __forceinline__ S closed(R x) {
  if constexpr (std::is_same_v<S, R>) {
    return x;
  } else if constexpr (std::is_same_v<S, Compute<S>>) {
    return static_cast<S>(x);
  } else {
    S out;
    narrow(x, out);
    return out;
  }
}
template <class C>
__device__ __forceinline__ C number_as(uint64_t bits) {
  C x;
  memcpy(&x, &bits, sizeof(C));
  return x;
}

// ---- vectors ----

// An unsigned integer, or four, of that many bytes.
template <int kBytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using type = unsigned char;
};
template <>
struct BitsOf<2> {
  using type = unsigned short;
};
template <>
struct BitsOf<4> {
  using type = unsigned;
};
template <>
struct BitsOf<8> {
  using type = uint2;
};
template <>
struct BitsOf<16> {
  using type = uint4;
};
template <int kBytes>
using Bits = typename BitsOf<kBytes>::type;

// A vector of elements as one value; where all elements are the same one, that one stands first.
template <class S, int V>
using Raw = Bits<V* static_cast<int>(sizeof(S))>;

// By accesses of kPiece bytes.
template <int kPiece, class R>
__device__ __forceinline__ R load_pieces(const char* p) {
  constexpr int kPieces = sizeof(R) / kPiece;
  Bits<kPiece> pieces[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) pieces[i] = reinterpret_cast<const Bits<kPiece>*>(p)[i];
  R raw;
  memcpy(&raw, pieces, sizeof(raw));
  return raw;
}
template <int kPiece, class R>
__device__ __forceinline__ void store_pieces(char* p, const R& raw, bool streamed) {
  constexpr int kPieces = sizeof(R) / kPiece;
  Bits<kPiece> pieces[kPieces];
  memcpy(pieces, &raw, sizeof(raw));
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    auto* to = reinterpret_cast<Bits<kPiece>*>(p) + i;
    if (streamed)
      store_streamed(to, pieces[i]);
    else
      *to = pieces[i];
  }
}

// The elements in [from, to) one by one, or, of a whole vector, by words if `access` allows it.
template <class S, int V>
__device__ __forceinline__ Raw<S, V> load_slowly(const char* p, int access, int from, int to) {
  if constexpr (sizeof(Raw<S, V>) > 4 && sizeof(S) < 4)
    if (access >= 4 && to - from == V) return load_pieces<4, Raw<S, V>>(p);
  S v[V];
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] = i >= from && i < to ? reinterpret_cast<const S*>(p)[i] : S{};
  Raw<S, V> raw;
  memcpy(&raw, v, sizeof(raw));
  return raw;
}
template <class S, int V>
__device__ __forceinline__ void store_slowly(char* p, const S (&v)[V], int access, int from, int to) {
  if constexpr (sizeof(Raw<S, V>) > 4 && sizeof(S) < 4)
    if (access >= 4 && to - from == V) {
      Raw<S, V> raw;
      memcpy(&raw, v, sizeof(raw));
      return store_pieces<4>(p, raw, false);
    }
#pragma unroll
  for (int i = 0; i < V; ++i)
    if (i >= from && i < to) reinterpret_cast<S*>(p)[i] = v[i];
}

// ---- functions of arrays ----

// A function may have a version for what is rounded to 16 bits afterwards.
template <class Out>
constexpr bool kIsHalf = std::is_same_v<Out, f16> || std::is_same_v<Out, bf16>;

template <class F, class Out, int N, class A, class T>
__device__ __forceinline__ void apply(Out (&out)[N], const A (&a)[N], const T (&b)[N], const T (&c)[N], const T (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if constexpr (std::is_same_v<Out, f16> && requires { F::apply_f16(0.f); })
      out[i] = closed<Out>(F::apply_f16(a[i]));
    else if constexpr (kIsHalf<Out> && requires { F::apply_half(0.f); })
      out[i] = closed<Out>(F::apply_half(a[i]));
    else if constexpr (F::kArity == 1)
      out[i] = closed<Out>(F::apply(a[i]));
    if constexpr (F::kArity == 2) out[i] = closed<Out>(F::apply(a[i], b[i]));
    if constexpr (kIsHalf<Out> && requires { F::template apply_to_halves<Out>(0.f, 0.f, 0.f); })
      out[i] = closed<Out>(F::template apply_to_halves<Out>(a[i], b[i], c[i]));
    else if constexpr (F::kArity == 3)
      out[i] = closed<Out>(F::apply(a[i], b[i], c[i]));
    if constexpr (F::kArity == 4) out[i] = closed<Out>(F::apply(a[i], b[i], c[i], d[i]));
  }
}

// Four bytes at once, the first in the lowest; a function may have a version for them.
template <class F, class Out, class A, class T>
__device__ __forceinline__ uint32_t apply_to_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  if constexpr (requires { F::template apply_bytes<T>(a, b); }) {
    return F::template apply_bytes<T>(a, b);
  } else {
    Out out[4];
    A first[4];
    T rest[3][4];
    memcpy(first, &a, 4), memcpy(rest[0], &b, 4), memcpy(rest[1], &c, 4), memcpy(rest[2], &d, 4);
    apply<F>(out, first, rest[0], rest[1], rest[2]);
    uint32_t word;
    memcpy(&word, out, 4);
    return word;
  }
}

// ---- vector: elements side by side ----

template <class... Types>
constexpr int kLargest = 0;
template <class First, class... Rest>
constexpr int kLargest<First, Rest...> = static_cast<int>(sizeof(First)) > kLargest<Rest...> ? static_cast<int>(sizeof(First))
                                                                                             : kLargest<Rest...>;

__device__ __forceinline__ uint32_t quotient(uint32_t n, const Divider& d) { return (__umulhi(n, d.factor) + n) >> d.shift; }

// Bytes from the operands' first vectors to vector `left`.
template <class F>
__device__ __forceinline__ void locate_row(const VectorArgs& args, uint32_t left, int64_t (&offset)[kMaxSlots + 1]) {
#pragma unroll
  for (int k = 0; k <= kMaxSlots; ++k) offset[k] = 0;
#pragma unroll 1
  for (int d = 0; d < args.dims; ++d) {
    const uint32_t next = quotient(left, args.divider[d]), digit = left - next * args.divider[d].divisor;
    left = next;
#pragma unroll
    for (int k = 0; k <= kMaxSlots; ++k)
      if (k < F::kArity || k == kOut) offset[k] += digit * args.stride[k][d];
  }
}

// The bytes of an access to a vector of kBytes; kAccess: see vector_kernel.
constexpr int piece(int access, int bytes) { return access != 0 && access < bytes ? access : bytes; }

// A vector of an operand that may be repeated, `same`, and of which else only a part may be there.
template <class S, int V, int kAccess>
__device__ __forceinline__ Raw<S, V> load_any(const VectorArgs& args, int k, const char* same, const char* at, bool whole, int from,
                                              int to) {
  Raw<S, V> raw{};
  if (args.numbers >> k & 1) return raw;
  if (args.repeated >> k & 1) {
    const S element = *reinterpret_cast<const S*>(same);
    memcpy(&raw, &element, sizeof(element));
    return raw;
  }
  if (whole) return load_pieces<piece(kAccess, sizeof(raw)), Raw<S, V>>(at);
  return load_slowly<S, V>(at, args.access[k], from, to);
}
template <class S, int V>
__device__ __forceinline__ void open_raw(Compute<S> (&x)[V], const Raw<S, V>& raw) {
  S v[V];
  memcpy(static_cast<void*>(v), &raw, sizeof(raw));
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = opened(v[i]);
}
template <class C, int V>
__device__ __forceinline__ void repeat(C (&x)[V], const VectorArgs& args, int k) {
  if (!(args.repeated >> k & 1)) return;
  const C same = args.numbers >> k & 1 ? number_as<C>(args.number[k]) : x[0];
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = same;
}

// Words of a vector of bytes, or of the one that is repeated.
template <int V>
__device__ __forceinline__ void open_words(uint32_t (&words)[V / 4], const Raw<uint8_t, V>& raw, const VectorArgs& args, int k) {
  memcpy(words, &raw, V);
  if (!(args.repeated >> k & 1)) return;
  const uint32_t same = ((args.numbers >> k & 1 ? static_cast<uint32_t>(args.number[k]) : words[0]) & 0xff) * 0x01010101;
#pragma unroll
  for (int i = 0; i < V / 4; ++i) words[i] = same;
}

// Blocks on a multiprocessor that registers have to be saved for, where more registers would leave too few loads on their way: of
// one operand, and of bytes. A costly function has no loads waiting.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kThreadsBeside = 1024;  // on a multiprocessor at most
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 800 || __CUDA_ARCH__ / 100 == 9 || __CUDA_ARCH__ / 100 == 10
constexpr int kThreadsBeside = 2048;
#else
constexpr int kThreadsBeside = 1536;
#endif
template <class F, int kBytes>
constexpr int kBlocksBeside = (kBytes == 1 || (kBytes <= 4 && F::kArity == 1)) && !F::kHeavy ? kThreadsBeside / kVectorThreads : 1;

// What a function gives for vectors. A: type of slot 0; T: of the other ones.
template <class F, class Out, class A, class T, int V>
__device__ __forceinline__ void apply_to_vectors(Out (&out)[V], const VectorArgs& args, const Raw<A, V>& raw_a,
                                                 const Raw<T, V>& raw_b, const Raw<T, V>& raw_c, const Raw<T, V>& raw_d) {
  constexpr int kArity = F::kArity;
  if constexpr (kLargest<Out, A, T> == 1) {  // as words: opened, they would take four times the registers
    uint32_t a[V / 4], b[V / 4] = {}, c[V / 4] = {}, d[V / 4] = {}, words[V / 4];
    open_words<V>(a, raw_a, args, 0);
    if constexpr (kArity > 1) open_words<V>(b, raw_b, args, 1);
    if constexpr (kArity > 2) open_words<V>(c, raw_c, args, 2);
    if constexpr (kArity > 3) open_words<V>(d, raw_d, args, 3);
#pragma unroll
    for (int i = 0; i < V / 4; ++i) words[i] = apply_to_bytes<F, Out, A, T>(a[i], b[i], c[i], d[i]);
    memcpy(out, words, V);
  } else {
    Compute<A> a[V];
    Compute<T> b[V], c[V], d[V];
    open_raw<A, V>(a, raw_a);
    if constexpr (kArity > 1) open_raw<T, V>(b, raw_b);
    if constexpr (kArity > 2) open_raw<T, V>(c, raw_c);
    if constexpr (kArity > 3) open_raw<T, V>(d, raw_d);
    if (kArity > 1 && args.repeated != 0) {
      repeat(a, args, 0);
      repeat(b, args, 1);
      if constexpr (kArity > 2) repeat(c, args, 2);
      if constexpr (kArity > 3) repeat(d, args, 3);
    }
    apply<F>(out, a, b, c, d);
  }
}

// One run of elements. kAccess: bytes of an access; 0: a vector's. First come all the loads, then what waits for them. The one
// operand of a function is never repeated.
template <class F, class Out, class A, class T, int V, int kAccess>
__global__ __launch_bounds__(kVectorThreads, (kBlocksBeside<F, kLargest<Out, A, T>>)) void vector_kernel(const VectorArgs args) {
  if (args.overlaps) take_over();
  constexpr int kArity = F::kArity;
  const int64_t index = static_cast<int64_t>(static_cast<uint64_t>(blockIdx.x) * kVectorThreads + threadIdx.x);
  const char* at[kMaxSlots] = {args.in[0] + index * static_cast<int64_t>(V * sizeof(A))};
#pragma unroll
  for (int k = 1; k < kArity; ++k) at[k] = args.in[k] + index * static_cast<int64_t>(V * sizeof(T));
  Raw<A, V> raw_a;
  Raw<T, V> raw_b{}, raw_c{}, raw_d{};
  int from = 0, to = V;  // the elements of the vector that there are
  const bool whole = static_cast<uint64_t>(index - args.first_whole) < static_cast<uint64_t>(args.num_whole);
  if (whole && (kArity == 1 || args.repeated == 0)) {
    constexpr int kFirst = piece(kAccess, sizeof(raw_a)), kPiece = piece(kAccess, sizeof(raw_b));
    raw_a = load_pieces<kFirst, Raw<A, V>>(at[0]);
    if constexpr (kArity > 1) raw_b = load_pieces<kPiece, Raw<T, V>>(at[1]);
    if constexpr (kArity > 2) raw_c = load_pieces<kPiece, Raw<T, V>>(at[2]);
    if constexpr (kArity > 3) raw_d = load_pieces<kPiece, Raw<T, V>>(at[3]);
  } else {
    if (!whole) {
      const int64_t first = index * V - args.lead, rest = args.n - first;
      if (rest <= 0) return;
      if (first < 0) from = static_cast<int>(-first);
      if (rest < V) to = static_cast<int>(rest);
    }
    raw_a = load_any<A, V, kAccess>(args, 0, args.in[0], at[0], whole, from, to);
    if constexpr (kArity > 1) raw_b = load_any<T, V, kAccess>(args, 1, args.in[1], at[1], whole, from, to);
    if constexpr (kArity > 2) raw_c = load_any<T, V, kAccess>(args, 2, args.in[2], at[2], whole, from, to);
    if constexpr (kArity > 3) raw_d = load_any<T, V, kAccess>(args, 3, args.in[3], at[3], whole, from, to);
  }
  Out out[V];
  apply_to_vectors<F, Out, A, T, V>(out, args, raw_a, raw_b, raw_c, raw_d);
  char* const out_at = args.out + index * static_cast<int64_t>(V * sizeof(Out));
  if (!whole) return store_slowly(out_at, out, args.access[kOut], from, to);
  Raw<Out, V> raw;
  memcpy(&raw, out, sizeof(raw));
  store_pieces<piece(kAccess, sizeof(raw))>(out_at, raw, args.streamed);
}

// Rows of whole vectors.
template <class F, class Out, class A, class T, int V>
__global__ __launch_bounds__(kVectorThreads) void rows_kernel(const VectorArgs args) {
  constexpr int kArity = F::kArity;
  const uint32_t index = blockIdx.x * kVectorThreads + threadIdx.x;
  if (index >= args.num_whole) return;
  int64_t offset[kMaxSlots + 1];
  locate_row<F>(args, index, offset);
  const auto load = [&]<class S>(S, int k) {
    const char* const at = args.in[k] + offset[k];
    return load_any<S, V, 0>(args, k, at, at, true, 0, V);
  };
  const Raw<A, V> raw_a = load(A{}, 0);
  Raw<T, V> raw_b{}, raw_c{}, raw_d{};
  if constexpr (kArity > 1) raw_b = load(T{}, 1);
  if constexpr (kArity > 2) raw_c = load(T{}, 2);
  if constexpr (kArity > 3) raw_d = load(T{}, 3);
  Out out[V];
  apply_to_vectors<F, Out, A, T, V>(out, args, raw_a, raw_b, raw_c, raw_d);
  Raw<Out, V> raw;
  memcpy(&raw, out, sizeof(raw));
  store_pieces<sizeof(raw)>(args.out + offset[kOut], raw, false);  // what is broadcast is read again
}

// ---- strided: elements anywhere ----

// A square of a slot that lies along dimension 1, read along it.
template <class S, int kTile>
__device__ __forceinline__ void stage(S* shared, const char* from, const int64_t* stride, int columns, int rows) {
  constexpr int kStep = kStridedThreads / kTile, kBatch = 8;
  const int row = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile;
  if (row >= rows) return;
  from += row * stride[1] + first * stride[0];
  shared += row * (kTile + 1) + first;
  const int64_t step = kStep * stride[0];
#pragma unroll
  for (int column = first; column < kTile; column += kStep * kBatch) {
    S v[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i, from += step)
      if (column + i * kStep < columns && column + i * kStep < kTile) v[i] = *reinterpret_cast<const S*>(from);
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (column + i * kStep < kTile) shared[column - first + i * kStep] = v[i];
  }
}

template <class F, class Out, class A, class T>
struct StridedShape {
  static constexpr int kElements = F::kHeavy ? 1 : kLargest<Out, A, T> <= 2 ? 8 : 4;  // of a thread at a time
  static constexpr int kTile = kLargest<Out, A, T> <= 4 ? 64 : 32;
  static constexpr int kTileBytes = (kTile * (kTile + 1) * kLargest<A, T> + 15) / 16 * 16;
};

// E elements, `step` bytes apart: loads only, see load_raw().
template <bool kBytewise, class S, int E>
__device__ __forceinline__ void gather(S (&v)[E], const char* from, int64_t step, const bool (&valid)[E], bool bytewise) {
  if (kBytewise && bytewise) {
#pragma unroll
    for (int e = 0; e < E; ++e) v[e] = valid[e] ? load_bytes<S>(from + e * step) : S{};
  } else {
#pragma unroll
    for (int e = 0; e < E; ++e) v[e] = valid[e] ? *reinterpret_cast<const S*>(from + e * step) : S{};
  }
}
template <class S, int E>
__device__ __forceinline__ void gather_staged(S (&v)[E], const char* tile, int place, int step) {
#pragma unroll
  for (int e = 0; e < E; ++e) v[e] = reinterpret_cast<const S*>(tile)[place + e * step];
}
template <class S, int E>
__device__ __forceinline__ void open_all(Compute<S> (&x)[E], const S (&v)[E], bool is_number, uint64_t number) {
#pragma unroll
  for (int e = 0; e < E; ++e) x[e] = is_number ? number_as<Compute<S>>(number) : opened(v[e]);
}

// kScalar: one element a thread, at any address; else several, aligned, and what is transposed through shared memory.
template <class F, class Out, class A, class T, bool kScalar>
__global__ __launch_bounds__(kStridedThreads) void strided_kernel(const StridedArgs args) {
  using Shape = StridedShape<F, Out, A, T>;
  constexpr int E = kScalar ? 1 : Shape::kElements, kTile = Shape::kTile;
  // Where the block's rectangle begins, and what of it there is.
  int64_t offset[kMaxSlots + 1] = {}, columns_left = args.extent[0], rows_left = args.extent[1];
  uint32_t left = blockIdx.x;
#pragma unroll 1
  for (int d = 0; d < args.dims; ++d) {
    const uint32_t next = quotient(left, args.divider[d]), digit = left - next * args.divider[d].divisor;
    left = next;
    if (d == 0) columns_left -= static_cast<int64_t>(digit) * args.block[0];
    if (d == 1) rows_left -= static_cast<int64_t>(digit) * args.block[1];
#pragma unroll
    for (int k = 0; k <= kMaxSlots; ++k)
      if (k < F::kArity || k == kOut) offset[k] += digit * args.stride[k][d];
  }
  const int columns = static_cast<int>(columns_left < args.block[0] ? columns_left : args.block[0]);
  const int rows = static_cast<int>(rows_left < args.block[1] ? rows_left : args.block[1]);
  const char* tiles[kMaxSlots];
  if (!kScalar && args.staged != 0) {
    gpuDynamicShared(uint4, shared_memory);
    char* to = reinterpret_cast<char*>(shared_memory);
#pragma unroll
    for (int k = 0; k < F::kArity; ++k) {
      if (!(args.staged >> k & 1)) continue;
      if (k == 0)
        stage<A, kTile>(reinterpret_cast<A*>(to), args.in[k] + offset[k], args.inner[k], columns, rows);
      else
        stage<T, kTile>(reinterpret_cast<T*>(to), args.in[k] + offset[k], args.inner[k], columns, rows);
      tiles[k] = to;
      to += Shape::kTileBytes;
    }
    __syncthreads();
  }
  // The thread's elements: `step` apart, the first at (x, y).
  int x = static_cast<int>(threadIdx.x) & (args.width - 1);
  int y = static_cast<int>(threadIdx.x) / args.width, place = y * (kTile + 1) + x;
#pragma unroll
  for (int k = 0; k <= kMaxSlots; ++k)
    if (k < F::kArity || k == kOut) offset[k] += x * args.inner[k][0] + y * args.inner[k][1];
#pragma unroll 1
  for (int pass = 0; pass < args.passes; ++pass) {
    bool valid[E];
#pragma unroll
    for (int e = 0; e < E; ++e) valid[e] = x + e * args.apart[0] < columns && y + e * args.apart[1] < rows;
    A raw_a[E];
    T raw_b[E], raw_c[E], raw_d[E];
    const auto load = [&](int k, auto& raw) {
      if (!kScalar && args.staged >> k & 1)
        gather_staged(raw, tiles[k], place, args.apart[1] * (kTile + 1));
      else if (!(args.numbers >> k & 1))
        gather<kScalar>(raw, args.in[k] + offset[k], args.step[k], valid, args.bytewise);
    };
    load(0, raw_a);
    if constexpr (F::kArity > 1) load(1, raw_b);
    if constexpr (F::kArity > 2) load(2, raw_c);
    if constexpr (F::kArity > 3) load(3, raw_d);
    Compute<A> a[E];
    Compute<T> b[E], c[E], d[E];
    open_all(a, raw_a, args.numbers & 1, args.number[0]);
    if constexpr (F::kArity > 1) open_all(b, raw_b, args.numbers >> 1 & 1, args.number[1]);
    if constexpr (F::kArity > 2) open_all(c, raw_c, args.numbers >> 2 & 1, args.number[2]);
    if constexpr (F::kArity > 3) open_all(d, raw_d, args.numbers >> 3 & 1, args.number[3]);
    Out out[E];
    apply<F>(out, a, b, c, d);
    char* const to = args.out + offset[kOut];
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!valid[e]) continue;
      if (kScalar && args.bytewise)
        store_bytes(to + e * args.step[kOut], out[e]);
      else
        *reinterpret_cast<Out*>(to + e * args.step[kOut]) = out[e];
    }
    x += E * args.apart[0];
    y += E * args.apart[1];
    place += E * args.apart[1] * (kTile + 1);
#pragma unroll
    for (int k = 0; k <= kMaxSlots; ++k)
      if (k < F::kArity || k == kOut) offset[k] += E * args.step[k];
  }
}

// ---- rows of tables ----

template <class F, class Out, class A, class T>
constexpr Kernels kernels() {
  using Shape = StridedShape<F, Out, A, T>;
  constexpr int kVector = 16 / kLargest<Out, A, T>;  // 16 bytes of the largest element
  constexpr int kFirst = sizeof(A), kRest = sizeof(T);
  return {vector_kernel<F, Out, A, T, kVector, 0>,
          rows_kernel<F, Out, A, T, kVector>,
          strided_kernel<F, Out, A, T, false>,
          strided_kernel<F, Out, A, T, true>,
          F::kArity,
          {kFirst, kRest, kRest, kRest, static_cast<int>(sizeof(Out))},
          kVector,
          Shape::kElements,
          Shape::kTile,
          Shape::kTileBytes};
}

}  // namespace narrows::gpu
