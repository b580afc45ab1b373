// SPDX-License-Identifier: Apache-2.0
/// @file plugin_call.hpp
/// @brief What a kernel sees of a call, and a check of its signature. plugin.hpp includes it.
#ifndef NARROWS_PLUGIN_CALL_HPP
#define NARROWS_PLUGIN_CALL_HPP

#include <narrows/plugin.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <narrows/float16.hpp>
#include <narrows/plugin_base.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace narrows::plugin {

/// @defgroup cpp_plugins C++: plugins for the CPU
/// @{

/// The dtype whose elements another library's type is. To read a tensor as such a type, say it
/// once:
///
/// @code{.cpp}
/// template <>
/// inline constexpr DLDataType narrows::plugin::class_dtype<std::complex<float>> = {
///     kDLComplex, 64, 1};
/// @endcode
///
/// plugin_cuda.hpp does so for the 16-bit types of CUDA and HIP.
template <class T>
inline constexpr DLDataType class_dtype = {};
/// The dtype of narrows::f16.
template <>
inline constexpr DLDataType class_dtype<f16> = {kDLFloat, 16, 1};
/// The dtype of narrows::bf16.
template <>
inline constexpr DLDataType class_dtype<bf16> = {kDLBfloat, 16, 1};

/// The dtype of a type: of an arithmetic one, of f16, of bf16, of one that class_dtype knows.
template <class T>
constexpr DLDataType dtype() {
  static_assert(std::is_arithmetic_v<T> || class_dtype<T>.bits != 0,
                "expected an arithmetic type, narrows::f16, narrows::bf16, or a type that "
                "narrows::plugin::class_dtype is specialised for");
  if constexpr (std::is_arithmetic_v<T>) {
    constexpr uint8_t code = std::is_same_v<T, bool>       ? kDLBool
                             : std::is_floating_point_v<T> ? kDLFloat
                             : std::is_signed_v<T>         ? kDLInt
                                                           : kDLUInt;
    return {code, 8 * sizeof(T), 1};
  } else {
    static_assert(class_dtype<T>.bits == 8 * sizeof(T), "class_dtype has another size");
    return class_dtype<T>;
  }
}

struct Op;

/// @cond
namespace detail {

// "float32", "bfloat16", "bool".
inline std::string show(DLDataType t) {
  const char* const kind = t.code == kDLFloat    ? "float"
                           : t.code == kDLBfloat ? "bfloat"
                           : t.code == kDLInt    ? "int"
                           : t.code == kDLUInt   ? "uint"
                           : t.code == kDLBool   ? "bool"
                                                 : "dtype of another kind, ";
  return t.code == kDLBool ? kind : kind + std::to_string(t.bits);
}

// "(2, 3)".
inline std::string show(const int64_t* numbers, int32_t count) {
  std::string out = "(";
  for (int32_t d = 0; d < count; ++d) out += (d == 0 ? "" : ", ") + std::to_string(numbers[d]);
  return out + ")";
}

// Types that read the bytes of any dtype.
template <class T>
constexpr bool is_byte = std::is_same_v<T, char> || std::is_same_v<T, std::byte>;

// Whether elements of that dtype may be seen as Ts: of f16 and bf16 the bits as uint16_t, of bool
// the bytes as uint8_t, of any dtype the bytes as char.
template <class T>
bool holds(DLDataType t) {
  if constexpr (is_byte<T>) {
    return true;
  } else {
    if (t.bits != 8 * sizeof(T)) return false;
    if (std::is_same_v<T, uint16_t> && (t.code == kDLFloat || t.code == kDLBfloat)) return true;
    if (std::is_same_v<T, uint8_t> && t.code == kDLBool) return true;
    return dtype<T>().code == t.code;
  }
}

template <class T>
std::string show_type() {
  if constexpr (is_byte<T>)
    return "bytes";
  else
    return show(dtype<T>());
}

std::string tensor_name(const Op* op, bool is_input, uint32_t i);
bool takes_strides(const Op* op);

}  // namespace detail
/// @endcond

/// A tensor of N dimensions and any strides. It borrows the memory.
template <class T, int N>
struct View {
  /// The element at index 0 of every dimension.
  T* data;
  /// Extents. Of N = 0 none counts.
  int64_t shape[N == 0 ? 1 : N];
  /// Distances in elements. They may be 0 or negative.
  int64_t strides[N == 0 ? 1 : N];
  /// The element at these indices, one for each dimension. Nothing checks them.
  template <class... Index>
  NARROWS_ANYWHERE T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == N, "expected an index for each dimension");
    int64_t at = 0;
    int d = 0;
    ((at += static_cast<int64_t>(index) * strides[d++]), ...);
    return data[at];
  }
};

/// A call before it is planned, as Op::check, Op::workspace and Variant::fits see it: params,
/// shapes and dtypes, and no address. It borrows all.
class Signature {
 public:
  /// Borrows `sig`.
  explicit Signature(const nw_sig& sig) : sig_(sig) {}
  /// Number of inputs of the call.
  uint32_t inputs() const { return sig_.num_inputs; }
  /// Whether input `i` is there.
  bool has_input(uint32_t i) const { return plugin::has_input(sig_, i); }
  /// Whether output `i` is wanted.
  bool has_output(uint32_t i) const { return plugin::has_output(sig_, i); }
  /// Input `i`. Throws std::invalid_argument if it is absent.
  const nw_tensor_sig& in(uint32_t i) const {
    if (!has_input(i)) absent("input ", i);
    return plugin::input(sig_, i);
  }
  /// Output `i`. Throws std::invalid_argument if it is not wanted.
  const nw_tensor_sig& out(uint32_t i) const {
    if (!has_output(i)) absent("output ", i);
    return plugin::output(sig_, i);
  }
  /// The op's params. Bytes that the caller left out are 0.
  template <class Params>
  Params params() const {
    return read_params<Params>(sig_);
  }
  /// The whole signature.
  const nw_sig& raw() const { return sig_; }

 private:
  [[noreturn]] static void absent(const char* kind, uint32_t i) {
    throw std::invalid_argument(kind + std::to_string(i) +
                                " is absent; expected has_input or has_output before in or out");
  }
  const nw_sig& sig_;
};

/// One call, as a kernel sees it.
class Launch {
 public:
  /// Borrows all until the kernel returns. `op` says what tensors are called. It may be NULL.
  Launch(const nw_host* host, const nw_call* call, const Op* op = nullptr)
      : host_(host), call_(call), op_(op) {}

  /// Number of inputs of the call.
  uint32_t inputs() const { return call_->num_inputs; }
  /// Whether input `i` is there.
  bool has_input(uint32_t i) const { return i < call_->num_inputs && call_->inputs[i] != nullptr; }
  /// Whether output `i` is wanted.
  bool has_output(uint32_t i) const {
    return i < call_->num_outputs && call_->outputs[i] != nullptr;
  }
  /// Input `i`. Throws std::invalid_argument if it is absent.
  const DLTensor& in(uint32_t i) const {
    if (!has_input(i)) wrong(true, i, " is absent; the kernel asks for it");
    return *call_->inputs[i];
  }
  /// Output `i`. Throws std::invalid_argument if it is not wanted.
  const DLTensor& out(uint32_t i) const {
    if (!has_output(i)) wrong(false, i, " is absent; the kernel asks for it");
    return *call_->outputs[i];
  }
  /// The first element of input `i`, row-major without gaps. Throws std::invalid_argument if the
  /// input is absent, its elements are no Ts, or the op takes tensors of any strides
  /// (Layout::strided) and this one has gaps.
  template <class T>
  const T* input(uint32_t i) const {
    return contiguous<const T>(has_input(i) ? call_->inputs[i] : nullptr, true, i);
  }
  /// The first element of output `i`. As input().
  template <class T>
  T* output(uint32_t i) const {
    return contiguous<T>(has_output(i) ? call_->outputs[i] : nullptr, false, i);
  }
  /// Input `i` with its strides. Throws std::invalid_argument if the input is absent, its elements
  /// are no Ts, or it has not N dimensions.
  template <class T, int N>
  View<const T, N> input_view(uint32_t i) const {
    return view<const T, N>(has_input(i) ? call_->inputs[i] : nullptr, true, i);
  }
  /// Output `i` with its strides. As input_view().
  template <class T, int N>
  View<T, N> output_view(uint32_t i) const {
    return view<T, N>(has_output(i) ? call_->outputs[i] : nullptr, false, i);
  }
  /// The memory that Op::workspace asked for, aligned to 256 bytes. NULL: it asked for none.
  template <class T>
  T* workspace() const {
    return static_cast<T*>(call_->workspace);
  }
  /// The stream that a GPU's kernels are put on. NULL on the CPU.
  void* stream() const { return call_->stream; }
  /// Number of elements of an output. Throws std::invalid_argument if it is not wanted.
  int64_t size(uint32_t output) const {
    const DLTensor& t = out(output);
    if (std::count(t.shape, t.shape + t.ndim, 0) != 0) return 0;  // the other extents may be huge
    int64_t n = 1;
    for (int32_t d = 0; d < t.ndim; ++d) n *= t.shape[d];
    return n;
  }
  /// The op's params. Bytes that the caller left out are 0.
  template <class Params>
  Params params() const {
    Params p{};
    if (call_->params_size != 0)
      std::memcpy(static_cast<void*>(&p), call_->params,
                  std::min<size_t>(call_->params_size, sizeof p));
    return p;
  }
  /// The host.
  const nw_host& host() const { return *host_; }
  /// The whole call.
  const nw_call& raw() const { return *call_; }
  /// Runs `body(i)` for every i of [0, n) on the host's threads.
  ///
  /// A thread takes at least `grain` indices at a time. If `body` throws, the first exception is
  /// thrown here, and what was not begun by then is left out.
  template <class Body>
  void parallel_for(int64_t n, const Body& body, int64_t grain = 16384) const {
    struct Work {
      const Body& body;
      std::atomic<bool> failed{false};
      std::exception_ptr exception{};  // of the thread that set `failed`
    } work{body};
    const auto piece = [](void* arg, int64_t begin, int64_t end) {
      Work& all = *static_cast<Work*>(arg);
      if (all.failed.load(std::memory_order_relaxed)) return;
      try {
        for (int64_t i = begin; i < end; ++i) all.body(i);
      } catch (...) {
        if (!all.failed.exchange(true)) all.exception = std::current_exception();
      }
    };
    host_->parallel_for(host_->ctx, n, grain, piece, &work);
    if (work.exception) std::rethrow_exception(work.exception);
  }
  /// How many threads parallel_for() would use now. For a kernel that has threads of its own, such
  /// as OpenMP's.
  uint32_t usable_threads() const {
    const bool says =
        host_->struct_size > offsetof(nw_host, usable_threads);  // hosts since ABI 1.1
    return says ? host_->usable_threads(host_->ctx) : host_->num_threads;
  }

 private:
  [[noreturn]] void wrong(bool is_input, uint32_t i, const std::string& why) const {
    throw std::invalid_argument(detail::tensor_name(op_, is_input, i) + why);
  }
  template <class T>
  T* address(const DLTensor* t, bool is_input, uint32_t i) const {
    using Item = std::remove_const_t<T>;
    if (t == nullptr || !detail::holds<Item>(t->dtype))
      wrong(is_input, i,
            (t == nullptr ? " is absent" : " has dtype " + detail::show(t->dtype)) +
                "; the kernel asks for " + detail::show_type<Item>());
    return data<T>(t);
  }
  template <class T>
  T* contiguous(const DLTensor* t, bool is_input, uint32_t i) const {
    T* const first = address<T>(t, is_input, i);
    if (!detail::takes_strides(op_) || t->strides == nullptr) return first;
    nw_tensor_sig sig{};
    sig.ndim = t->ndim;
    sig.shape = t->shape;
    sig.strides = t->strides;
    if (!is_contiguous(sig))
      wrong(is_input, i,
            " has shape " + detail::show(t->shape, t->ndim) + " and strides " +
                detail::show(t->strides, t->ndim) +
                "; the kernel reads it as a contiguous tensor; "
                "expected input_view or output_view");
    return first;
  }
  template <class T, int N>
  View<T, N> view(const DLTensor* t, bool is_input, uint32_t i) const {
    View<T, N> out{address<T>(t, is_input, i), {}, {}};
    if (t->ndim != N)
      wrong(is_input, i,
            " has " + std::to_string(t->ndim) + " dimensions; the kernel asks for " +
                std::to_string(N));
    int64_t dense = 1;
    for (int32_t d = N - 1; d >= 0; --d) {
      out.shape[d] = t->shape[d];
      out.strides[d] = t->strides != nullptr ? t->strides[d] : dense;
      dense *= std::max<int64_t>(t->shape[d], 1);
    }
    return out;
  }
  const nw_host* host_;
  const nw_call* call_;
  const Op* op_;
};

/// @cond
namespace detail {

// The elements of a tensor to those of another one of the same shape, a row of the last dimension
// at a time.
class StridedCopy {
 public:
  StridedCopy(const DLTensor& from, const DLTensor& to)
      : from_(data<const char>(&from)), to_(data<char>(&to)), item_(from.dtype.bits / 8) {
    ndim_ = from.ndim;
    for (int32_t d = 0; d < ndim_; ++d) shape_[d] = from.shape[d];
    read_strides(from, from_strides_);
    read_strides(to, to_strides_);
    for (int32_t d = 0; d + 1 < ndim_; ++d) rows_ *= shape_[d];
  }
  int64_t rows() const { return rows_; }
  int64_t row() const { return ndim_ == 0 ? 1 : shape_[ndim_ - 1]; }
  // The row with that number.
  void run(int64_t index) const {
    const Places at = places(index, ndim_ - 2);
    const int64_t n = row();
    switch (item_) {
      case 1: return items<uint8_t>(at, n);
      case 2: return items<uint16_t>(at, n);
      case 4: return items<uint32_t>(at, n);
      default: return items<uint64_t>(at, n);
    }
  }
  // The element with that number, row-major.
  NARROWS_ANYWHERE void element(int64_t index) const {
    const Places at = places(index, ndim_ - 1);
    switch (item_) {
      case 1: return items<uint8_t>(at, 1);
      case 2: return items<uint16_t>(at, 1);
      case 4: return items<uint32_t>(at, 1);
      default: return items<uint64_t>(at, 1);
    }
  }

 private:
  void read_strides(const DLTensor& t, int64_t* out) const {  // in bytes
    int64_t dense = item_;
    for (int32_t d = ndim_ - 1; d >= 0; --d) {
      out[d] = t.strides != nullptr ? t.strides[d] * item_ : dense;
      dense *= t.shape[d];
    }
  }
  struct Places {
    const char* from;
    char* to;
  };
  // Of the index-th place, row-major, of the dimensions up to `last`.
  NARROWS_ANYWHERE Places places(int64_t index, int32_t last) const {
    Places out{from_, to_};
    for (int32_t d = last; d >= 0; --d) {
      out.from += index % shape_[d] * from_strides_[d];
      out.to += index % shape_[d] * to_strides_[d];
      index /= shape_[d];
    }
    return out;
  }
  template <class Item>
  NARROWS_ANYWHERE void items(Places at, int64_t n) const {
    const int64_t from_step = ndim_ == 0 ? 0 : from_strides_[ndim_ - 1];
    const int64_t to_step = ndim_ == 0 ? 0 : to_strides_[ndim_ - 1];
    for (int64_t i = 0; i < n; ++i)
      if (sizeof(Item) == static_cast<size_t>(item_)) {
        Item value;
        std::memcpy(&value, at.from + i * from_step, sizeof value);
        std::memcpy(at.to + i * to_step, &value, sizeof value);
      } else {  // of more than 8 bytes
        for (int64_t k = 0; k < item_; ++k) at.to[i * to_step + k] = at.from[i * from_step + k];
      }
  }
  const char* from_;
  char* to_;
  int64_t item_;
  int32_t ndim_ = 0;
  int64_t rows_ = 1;
  int64_t shape_[NW_MAX_NDIM], from_strides_[NW_MAX_NDIM], to_strides_[NW_MAX_NDIM];
};

}  // namespace detail
/// @endcond

/// @}

}  // namespace narrows::plugin
#endif
