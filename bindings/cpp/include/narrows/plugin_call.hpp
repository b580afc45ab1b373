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
#include <functional>
#include <initializer_list>
#include <narrows/float16.hpp>
#include <narrows/plugin_base.hpp>
#include <narrows/plugin_space.hpp>
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

// The number of elements of a tensor of that shape.
inline int64_t count_elements(const int64_t* shape, int32_t ndim) {
  if (std::count(shape, shape + ndim, 0) != 0) return 0;  // the other extents may be huge
  int64_t n = 1;
  for (int32_t d = 0; d < ndim; ++d) n *= shape[d];
  return n;
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

// A tensor's strides in elements: its own, or those of a tensor without gaps.
inline void read_strides(const DLTensor& t, int64_t* out) {
  uint64_t dense = 1;  // beside an extent of 0 the others may be huge: then it wraps
  for (int32_t d = t.ndim - 1; d >= 0; --d) {
    out[d] = t.strides != nullptr ? t.strides[d] : static_cast<int64_t>(dense);
    dense *= static_cast<uint64_t>(t.shape[d]);
  }
}

inline bool broadcasts(const DLTensor& t, const DLTensor& to) {
  const int32_t ahead = to.ndim - t.ndim;
  if (ahead < 0) return false;
  for (int32_t d = 0; d < t.ndim; ++d)
    if (t.shape[d] != 1 && t.shape[d] != to.shape[ahead + d]) return false;
  return true;
}

// Launch::space().
inline Space space_of(const std::reference_wrapper<const DLTensor>* tensors, size_t count) {
  if (count == 0 || count > kMaxOperands)
    throw std::invalid_argument(std::to_string(count) + " tensors to walk; expected 1 to " +
                                std::to_string(kMaxOperands));
  nw_tensor_sig read[kMaxOperands] = {};
  const nw_tensor_sig* sigs[kMaxOperands];
  int64_t sizes[kMaxOperands], strides[kMaxOperands][NW_MAX_NDIM];
  const DLTensor& first = tensors[0];
  for (size_t k = 0; k < count; ++k) {
    const DLTensor& t = tensors[k];
    if (!broadcasts(t, first))
      throw std::invalid_argument("tensor " + std::to_string(k) + " of a walk has shape " +
                                  show(t.shape, t.ndim) + "; expected one that broadcasts to " +
                                  show(first.shape, first.ndim));
    read_strides(t, strides[k]);
    read[k].ndim = t.ndim;
    read[k].shape = t.shape;
    read[k].strides = strides[k];
    sigs[k] = &read[k];
    sizes[k] = t.dtype.bits / 8;
  }
  Space out;
  collapse(*sigs[0], sigs, sizes, static_cast<int>(count), 0, &out);
  return out;
}

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
  /// Elements along dimension `d`, of [0, N).
  NARROWS_ANYWHERE int64_t extent(int d) const { return shape[d]; }
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

/// A piece of a row of tensors that are walked together. Launch::walk() hands it out.
class Piece {
 public:
  /// Borrows all. `first`: number of its first element in the space.
  Piece(const Space& space, const DLTensor* const* tensors, int64_t first, int64_t size)
      : space_(space), tensors_(tensors), first_(first), size_(size) {}
  /// Number of elements.
  int64_t size() const { return size_; }
  /// The elements of tensor `k` of those that are walked. Throws std::invalid_argument if they are
  /// no Ts.
  template <class T>
  View<T, 1> of(int k) const {
    const DLTensor& t = *tensors_[k];
    if (!detail::holds<std::remove_const_t<T>>(t.dtype))
      throw std::invalid_argument("tensor " + std::to_string(k) + " of a walk has dtype " +
                                  detail::show(t.dtype) + "; the kernel asks for " +
                                  detail::show_type<std::remove_const_t<T>>());
    return {reinterpret_cast<T*>(data<char>(&t) + space_.offset_of(k, first_)),
            {size_},
            {space_.step(k) / static_cast<int64_t>(sizeof(T))}};
  }

 private:
  const Space& space_;
  const DLTensor* const* tensors_;
  int64_t first_, size_;
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
  /// Number of elements of an output. Throws std::invalid_argument if it is not wanted.
  int64_t size(uint32_t output) const {
    const nw_tensor_sig& t = out(output);
    return detail::count_elements(t.shape, t.ndim);
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
    return detail::count_elements(t.shape, t.ndim);
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
  /// One iteration space over tensors of any strides and of any rank. The first one has the space's
  /// shape, and the walk follows its layout. The others are broadcast to it.
  ///
  /// @param tensors  1 to #kMaxOperands, of this call: `{call.out(0), call.in(0)}`.
  ///
  /// Throws std::invalid_argument if there are more, or a shape does not broadcast.
  Space space(std::initializer_list<std::reference_wrapper<const DLTensor>> tensors) const {
    return detail::space_of(tensors.begin(), tensors.size());
  }
  /// Runs `body(piece)` for every Piece of space(tensors) on the host's threads. `piece.of<T>(k)`
  /// has the elements of the k-th tensor, as a View of one dimension. All tensors of a piece have
  /// its size.
  ///
  /// A thread takes at least `grain` elements at a time. Throws as space() and parallel_for() do.
  template <class Body>
  void walk(std::initializer_list<std::reference_wrapper<const DLTensor>> tensors, const Body& body,
            int64_t grain = 16384) const {
    const Space all = space(tensors);
    const DLTensor* operands[kMaxOperands];
    std::transform(tensors.begin(), tensors.end(), operands, [](const DLTensor& t) { return &t; });
    const int64_t n = all.size(), row = all.row_size();
    const int64_t length = std::min(row, std::max<int64_t>(grain, 1));  // of a piece
    const int64_t pieces_of_row = n == 0 ? 0 : ceil_div(row, length);
    parallel_for(
        n == 0 ? 0 : n / row * pieces_of_row,
        [&](int64_t i) {
          const int64_t begin = i % pieces_of_row * length;
          body(
              Piece(all, operands, i / pieces_of_row * row + begin, std::min(length, row - begin)));
        },
        std::max<int64_t>(grain / std::max<int64_t>(length, 1), 1));
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
    std::copy_n(t->shape, N, out.shape);
    detail::read_strides(*t, out.strides);
    return out;
  }
  const nw_host* host_;
  const nw_call* call_;
  const Op* op_;
};

/// @cond
namespace detail {

// The elements of a tensor to those of another one of the same shape.
class StridedCopy {
 public:
  StridedCopy(const DLTensor& from, const DLTensor& to)
      : from_(data<const char>(&from)), to_(data<char>(&to)), item_(to.dtype.bits / 8) {
    const std::reference_wrapper<const DLTensor> tensors[] = {to, from};
    space_ = space_of(tensors, 2);
  }
  NARROWS_ANYWHERE int64_t size() const { return space_.size(); }
  // Elements [begin, end), in the order of the walk: a row, or what is left of it, at a time.
  void run(int64_t begin, int64_t end) const {
    const int64_t row = space_.row_size();
    for (int64_t n = 0; begin < end; begin += n) {
      n = std::min(row - begin % row, end - begin);
      elements(begin, n);
    }
  }
  // So many elements of one row.
  NARROWS_ANYWHERE void elements(int64_t first, int64_t n) const {
    int64_t bytes[2];
    space_.offsets_of(first, bytes);
    char* const to = to_ + bytes[0];
    const char* const from = from_ + bytes[1];
    switch (item_) {
      case 1: return items<uint8_t>(from, to, n);
      case 2: return items<uint16_t>(from, to, n);
      case 4: return items<uint32_t>(from, to, n);
      default: return items<uint64_t>(from, to, n);
    }
  }

 private:
  template <class Item>
  NARROWS_ANYWHERE void items(const char* from, char* to, int64_t n) const {
    const int64_t from_step = space_.step(1), to_step = space_.step(0);
    for (int64_t i = 0; i < n; ++i)
      if (sizeof(Item) == static_cast<size_t>(item_)) {
        Item value;
        std::memcpy(&value, from + i * from_step, sizeof value);
        std::memcpy(to + i * to_step, &value, sizeof value);
      } else {  // of more than 8 bytes
        for (int64_t k = 0; k < item_; ++k) to[i * to_step + k] = from[i * from_step + k];
      }
  }
  const char* from_;
  char* to_;
  int64_t item_;
  Space space_;
};

}  // namespace detail
/// @endcond

/// @}

}  // namespace narrows::plugin
#endif
