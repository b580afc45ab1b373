// elementwise_loops.h -- the kernels that apply a function to elements: in vectors where elements lie side by side, one by one
// where they lie anywhere. Step 5 of a tensor's path.
#pragma once

#include "bytes.h"
#include "elementwise.h"

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

template <int kPiece, int V, class S>
__device__ __forceinline__ void load_pieces(S (&v)[V], const char* p, bool streamed) {
  constexpr int kPieces = V * static_cast<int>(sizeof(S)) / kPiece;
  Bits<kPiece> pieces[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const auto* from = reinterpret_cast<const Bits<kPiece>*>(p) + i;
    pieces[i] = streamed ? load_streamed(from) : *from;
  }
  memcpy(static_cast<void*>(v), pieces, sizeof(v));
}
template <int kPiece, int V, class S>
__device__ __forceinline__ void store_pieces(const S (&v)[V], char* p, bool streamed) {
  constexpr int kPieces = V * static_cast<int>(sizeof(S)) / kPiece;
  Bits<kPiece> pieces[kPieces];
  memcpy(pieces, v, sizeof(v));
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    auto* to = reinterpret_cast<Bits<kPiece>*>(p) + i;
    streamed ? store_streamed(to, pieces[i]) : static_cast<void>(*to = pieces[i]);
  }
}

// The pieces that a vector may be moved in: all of it, words, or elements one by one, those in [from, to). kAccess: chosen at
// compile time; 0: by `access`.
template <int kAccess, int V, class S>
__device__ __forceinline__ void load_vector(S (&v)[V], const char* p, int access, int from, int to, bool streamed) {
  constexpr int kBytes = V * static_cast<int>(sizeof(S)), kPiece = kAccess < kBytes && kAccess != 0 ? kAccess : kBytes;
  const bool whole = to - from == V;
  if (whole && access >= kPiece) return load_pieces<kPiece>(v, p, streamed);
  if constexpr (kAccess == 0 && kBytes > 4 && sizeof(S) < 4)
    if (whole && access >= 4) return load_pieces<4>(v, p, false);
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] = i >= from && i < to ? reinterpret_cast<const S*>(p)[i] : S{};
}
template <int kAccess, int V, class S>
__device__ __forceinline__ void store_vector(const S (&v)[V], char* p, int access, int from, int to, bool streamed) {
  constexpr int kBytes = V * static_cast<int>(sizeof(S)), kPiece = kAccess < kBytes && kAccess != 0 ? kAccess : kBytes;
  const bool whole = to - from == V;
  if (whole && access >= kPiece) return store_pieces<kPiece>(v, p, streamed);
  if constexpr (kAccess == 0 && kBytes > 4 && sizeof(S) < 4)
    if (whole && access >= 4) return store_pieces<4>(v, p, false);
#pragma unroll
  for (int i = 0; i < V; ++i)
    if (i >= from && i < to) reinterpret_cast<S*>(p)[i] = v[i];
}

// ---- functions of arrays ----

template <class F, class Out, int N, class A, class T>
__device__ __forceinline__ void apply(Out (&out)[N], const A (&a)[N], const T (&b)[N], const T (&c)[N], const T (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if constexpr (F::kArity == 1) out[i] = closed<Out>(F::apply(a[i]));
    if constexpr (F::kArity == 2) out[i] = closed<Out>(F::apply(a[i], b[i]));
    if constexpr (F::kArity == 3) out[i] = closed<Out>(F::apply(a[i], b[i], c[i]));
    if constexpr (F::kArity == 4) out[i] = closed<Out>(F::apply(a[i], b[i], c[i], d[i]));
  }
}

// ---- vector: elements side by side ----

template <int kAccess, class S, int V>
__device__ __forceinline__ void fetch_vector(Compute<S> (&x)[V], const VectorArgs& args, int k, int64_t offset, int from, int to) {
  if (args.numbers >> k & 1 || !(args.units >> k & 1)) {
    Compute<S> same;
    if (args.numbers >> k & 1)
      same = number_as<Compute<S>>(args.number[k]);
    else
      same = opened(*reinterpret_cast<const S*>(args.in[k] + offset));
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = same;
    return;
  }
  S v[V];
  load_vector<kAccess>(v, args.in[k] + offset, args.access[k], from, to, args.streamed);
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = opened(v[i]);
}

__device__ __forceinline__ uint32_t quotient(uint32_t n, const Divider& d) { return (__umulhi(n, d.factor) + n) >> d.shift; }

// A: type of slot 0; T: of the other ones. kAccess: see load_vector().
template <class F, class Out, class A, class T, int V, int kAccess, int kThreads>
__global__ __launch_bounds__(kThreads) void vector_kernel(const VectorArgs args) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  int64_t offset[kMaxSlots + 1];
  int from = 0, to = V;
  if (args.dims == 0) {
    const int64_t first = index * V - args.lead, rest = args.n - first;
    if (rest <= 0) return;
    if (first < 0) from = static_cast<int>(-first);
    if (rest < V) to = static_cast<int>(rest);
    offset[0] = args.units & 1 ? first * static_cast<int64_t>(sizeof(A)) : 0;
#pragma unroll
    for (int k = 1; k < F::kArity; ++k) offset[k] = args.units >> k & 1 ? first * static_cast<int64_t>(sizeof(T)) : 0;
    offset[kOut] = first * static_cast<int64_t>(sizeof(Out));
  } else {
    if (index >= args.n) return;
    uint32_t left = static_cast<uint32_t>(index);
#pragma unroll
    for (int k = 0; k <= kMaxSlots; ++k) offset[k] = 0;
    for (int d = 0; d < args.dims; ++d) {
      const uint32_t next = quotient(left, args.divider[d]), digit = left - next * args.divider[d].divisor;
      left = next;
#pragma unroll
      for (int k = 0; k <= kMaxSlots; ++k)
        if (k < F::kArity || k == kOut) offset[k] += digit * args.stride[k][d];
    }
  }
  Compute<A> a[V];
  Compute<T> b[V], c[V], d[V];
  fetch_vector<kAccess, A>(a, args, 0, offset[0], from, to);
  if constexpr (F::kArity > 1) fetch_vector<kAccess, T>(b, args, 1, offset[1], from, to);
  if constexpr (F::kArity > 2) fetch_vector<kAccess, T>(c, args, 2, offset[2], from, to);
  if constexpr (F::kArity > 3) fetch_vector<kAccess, T>(d, args, 3, offset[3], from, to);
  Out out[V];
  apply<F>(out, a, b, c, d);
  store_vector<kAccess>(out, args.out + offset[kOut], args.access[kOut], from, to, args.streamed);
}

// ---- strided: elements anywhere ----

template <class... Types>
constexpr int kLargest = 0;
template <class First, class... Rest>
constexpr int kLargest<First, Rest...> = static_cast<int>(sizeof(First)) > kLargest<Rest...> ? static_cast<int>(sizeof(First))
                                                                                              : kLargest<Rest...>;

// E elements at `offset`, or at `place` of a tile in shared memory; where not `valid`, zeros.
template <class S, int E>
__device__ __forceinline__ void gather(Compute<S> (&x)[E], const char* base, const int64_t (&offset)[E], const bool (&valid)[E],
                                       bool bytewise) {
  S v[E];
  if (bytewise) {
#pragma unroll
    for (int e = 0; e < E; ++e) v[e] = valid[e] ? load_bytes<S>(base + offset[e]) : S{};
  } else {
#pragma unroll
    for (int e = 0; e < E; ++e) v[e] = valid[e] ? *reinterpret_cast<const S*>(base + offset[e]) : S{};
  }
#pragma unroll
  for (int e = 0; e < E; ++e) x[e] = opened(v[e]);
}
template <class C, int E>
__device__ __forceinline__ void fill(C (&x)[E], uint64_t number) {
#pragma unroll
  for (int e = 0; e < E; ++e) x[e] = number_as<C>(number);
}

// A square of a slot that lies along dimension 1, read along it.
template <class S, int kTile>
__device__ __forceinline__ void stage(S* shared, const char* from, const int64_t* stride, int columns, int rows) {
  constexpr int kStep = kStridedThreads / kTile;
  const int row = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile;
  from += row * stride[1];
#pragma unroll 4
  for (int column = first; column < kTile; column += kStep)
    if (row < rows && column < columns)
      shared[row * (kTile + 1) + column] = *reinterpret_cast<const S*>(from + column * stride[0]);
}

template <class F, class Out, class A, class T>
struct StridedShape {
  static constexpr int kElements = F::kHeavy ? 1 : 4;  // of a thread at a time
  static constexpr int kTile = kLargest<Out, A, T> <= 2 ? 64 : 32;
  static constexpr int kTileBytes = (kTile * (kTile + 1) * kLargest<A, T> + 15) / 16 * 16;
};

template <class F, class Out, class A, class T>
__global__ __launch_bounds__(kStridedThreads) void strided_kernel(const StridedArgs args) {
  using Shape = StridedShape<F, Out, A, T>;
  constexpr int E = Shape::kElements, kTile = Shape::kTile, kStep = kStridedThreads / kTile;
  extern __shared__ uint4 shared_memory[];
  char* const shared = reinterpret_cast<char*>(shared_memory);
  int64_t base[kMaxSlots + 1] = {};
  int columns = 0, rows = 0, passes = 1;
  if (args.tiled) {
    uint32_t left = blockIdx.x;
    for (int d = 0; d < args.dims; ++d) {
      const uint32_t next = quotient(left, args.divider[d]);
      const int digit = static_cast<int>(left - next * args.divider[d].divisor);
      left = next;
      if (d == 0) columns = args.extent[0] - digit * kTile;
      if (d == 1) rows = args.extent[1] - digit * kTile;
#pragma unroll
      for (int k = 0; k <= kMaxSlots; ++k)
        if (k < F::kArity || k == kOut) base[k] += digit * args.stride[k][d];
    }
    int staged = 0;
#pragma unroll
    for (int k = 0; k < F::kArity; ++k) {
      if (!(args.staged >> k & 1)) continue;
      char* const to = shared + staged++ * Shape::kTileBytes;
      if (k == 0)
        stage<A, kTile>(reinterpret_cast<A*>(to), args.in[k] + base[k], args.inner[k], columns, rows);
      else
        stage<T, kTile>(reinterpret_cast<T*>(to), args.in[k] + base[k], args.inner[k], columns, rows);
    }
    __syncthreads();
    passes = kTile * kTile / (kStridedThreads * E);
  }
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    int64_t offset[kMaxSlots + 1][E];
    int64_t place[E];  // in a tile
    bool valid[E];
    uint32_t index[E];
    const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile + pass * E * kStep;
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const int row = y + e * kStep;
      index[e] = (blockIdx.x * E + e) * kStridedThreads + threadIdx.x;
      place[e] = row * (kTile + 1) + x;
      valid[e] = args.tiled ? x < columns && row < rows : index[e] < args.n;
#pragma unroll
      for (int k = 0; k <= kMaxSlots; ++k)
        if (k < F::kArity || k == kOut)
          offset[k][e] = args.tiled ? base[k] + x * args.inner[k][0] + row * args.inner[k][1] : 0;
    }
    if (!args.tiled) {
      for (int d = 0; d < args.dims; ++d) {
        const Divider divider = args.divider[d];
#pragma unroll
        for (int e = 0; e < E; ++e) {
          const uint32_t next = quotient(index[e], divider), digit = index[e] - next * divider.divisor;
          index[e] = next;
#pragma unroll
          for (int k = 0; k <= kMaxSlots; ++k)
            if (k < F::kArity || k == kOut) offset[k][e] += digit * args.stride[k][d];
        }
      }
    }
    Compute<A> a[E];
    Compute<T> b[E], c[E], d[E];
    int staged = 0;
    const auto fetch = [&](int k, auto stored, auto& to) {
      using S = decltype(stored);
      if (args.numbers >> k & 1) {
        fill(to, args.number[k]);
      } else if (args.staged >> k & 1) {
        const S* const tile = reinterpret_cast<const S*>(shared + staged++ * Shape::kTileBytes);
#pragma unroll
        for (int e = 0; e < E; ++e) to[e] = opened(tile[place[e]]);
      } else {
        gather<S>(to, args.in[k], offset[k], valid, args.bytewise);
      }
    };
    fetch(0, A{}, a);
    if constexpr (F::kArity > 1) fetch(1, T{}, b);
    if constexpr (F::kArity > 2) fetch(2, T{}, c);
    if constexpr (F::kArity > 3) fetch(3, T{}, d);
    Out out[E];
    apply<F>(out, a, b, c, d);
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!valid[e]) continue;
      char* const to = args.out + offset[kOut][e];
      if (args.bytewise)
        store_bytes(to, out[e]);
      else
        *reinterpret_cast<Out*>(to) = out[e];
    }
  }
}

// ---- rows of tables ----

template <class F, class Out, class A, class T>
constexpr Kernels kernels() {
  using Shape = StridedShape<F, Out, A, T>;
  constexpr int kBytes = 16 / kLargest<Out, A, T>, kVector = F::kHeavy && kBytes > 4 ? 4 : kBytes,
                kThreads = F::kHeavy ? 256 : 512;
  constexpr int kFirst = sizeof(A), kRest = sizeof(T);
  return {vector_kernel<F, Out, A, T, kVector, 0, kThreads>,
          strided_kernel<F, Out, A, T>,
          F::kArity,
          {kFirst, kRest, kRest, kRest, static_cast<int>(sizeof(Out))},
          kVector,
          kThreads,
          Shape::kElements,
          Shape::kTile,
          Shape::kTileBytes};
}

}  // namespace narrows::gpu
