// SPDX-License-Identifier: Apache-2.0
/// @file narrows.hpp
/// @brief narrows.h for C++17: values that clean up after themselves, and exceptions.
///
/// Header only. It needs narrows.h and nothing else. docs/ops.md says what each op takes and gives.
///
/// @code{.cpp}
/// narrows::Runtime runtime;
/// std::vector<float> x = {0, 1, 2, 3}, w = {0, 1}, y(4);
/// nw_conv1d_params params{};
/// params.pad_right = 1;
/// runtime.run("conv1d", {x, w}, {y}, params);
/// @endcode
///
/// This is step 1 of a tensor's path in docs/design.md.
///
/// - **Shapes** and strides are in elements. A Tensor without strides is C-contiguous. A vector or
///   array is a tensor of one dimension.
/// - **Memory.** A Tensor borrows. Its memory must outlive the call and what the call put on a
///   stream. A Buffer owns its memory.
/// - **Order.** Buffer, Stream and Plan keep their runtime alive. Destroy them in any order.
/// - **Errors.** A call that fails throws an Error. Error::status() says why.
/// - **Threads.** Many threads may use a Runtime, a Stream or a Plan at once. Streams order the use
///   of a Buffer's memory, as of any memory.
#ifndef NARROWS_NARROWS_HPP
#define NARROWS_NARROWS_HPP

#include <narrows/narrows.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// The C++ binding of narrows.h.
namespace narrows {

/// @defgroup cpp C++: calling Narrows
/// @{

/// Why a call failed, and where.
class Error : public std::runtime_error {
 public:
  /// Makes an error from its parts. what() becomes the name of the status, then the message.
  Error(int32_t status, int32_t argument, int64_t native_code, const std::string& message)
      : std::runtime_error(std::string(nw_status_name(status)) + ": " + message), status_(status),
        argument_(argument), native_code_(native_code) {}
  /// Makes an error from what a function of narrows.h reported.
  explicit Error(const nw_error& error)
      : Error(error.status, error.argument, error.native_code, error.message) {}

  /// The status: #NW_INVALID and so on.
  int32_t status() const noexcept { return status_; }
  /// Which tensor is at fault: inputs count from 0, then outputs. -1: none.
  int32_t argument() const noexcept { return argument_; }
  /// The platform's own error: a cudaError_t, a VkResult, an errno. 0: none.
  int64_t native_code() const noexcept { return native_code_; }

 private:
  int32_t status_, argument_;
  int64_t native_code_;
};

namespace detail {

// Calls f(..., &error) and throws what it reports.
template <class Function, class... Arguments>
void check(Function f, Arguments... arguments) {
  nw_error error;
  error.status = NW_OK;
  error.argument = -1;
  error.native_code = 0;
  error.message[0] = '\0';
  const int32_t status = f(arguments..., &error);
  if (status == NW_OK) return;
  error.status = status;
  throw Error(error);
}

}  // namespace detail

/// The CPU.
inline constexpr DLDevice kCPU{kDLCPU, 0};

/// A 16-bit floating-point number of IEEE 754, as its bits.
struct float16 {
  /// The bits.
  uint16_t bits;
};
/// The upper half of a 32-bit floating-point number, as its bits.
struct bfloat16 {
  /// The bits.
  uint16_t bits;
};

/// The dtype of elements of type T. Specialise it for a type of your own.
template <class T, class = void>
struct dtype_of;
/// The dtype of an arithmetic type.
template <class T>
struct dtype_of<T, std::enable_if_t<std::is_arithmetic_v<T>>> {
  static_assert(!std::is_same_v<T, long double>, "long double has no DLPack dtype");
  /// DLPack's code of the type.
  static constexpr uint8_t code = std::is_same_v<T, bool>       ? kDLBool
                                  : std::is_floating_point_v<T> ? kDLFloat
                                  : std::is_signed_v<T>         ? kDLInt
                                                                : kDLUInt;
  /// The dtype.
  static constexpr DLDataType value{code, 8 * sizeof(T), 1};
};
/// The dtype of float16.
template <>
struct dtype_of<float16> {
  /// The dtype.
  static constexpr DLDataType value{kDLFloat, 16, 1};
};
/// The dtype of bfloat16.
template <>
struct dtype_of<bfloat16> {
  /// The dtype.
  static constexpr DLDataType value{kDLBfloat, 16, 1};
};

/// Extents or strides: up to #NW_MAX_NDIM numbers.
class Dims {
 public:
  /// No dimensions.
  Dims() = default;
  /// The numbers of a list in braces.
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.size()) {}
  /// The numbers of a vector.
  Dims(const std::vector<int64_t>& values) : Dims(values.data(), values.size()) {}
  /// Copies `size` numbers. Throws if there are more than #NW_MAX_NDIM.
  Dims(const int64_t* values, size_t size) : size_(size) {
    if (size > NW_MAX_NDIM)
      throw Error(NW_INVALID, -1, 0, std::to_string(size) + " dimensions; expected 16 at most");
    for (size_t i = 0; i < size; ++i) values_[i] = values[i];
  }

  /// How many numbers there are.
  size_t size() const noexcept { return size_; }
  /// The first number.
  const int64_t* data() const noexcept { return values_; }
  /// The first number.
  const int64_t* begin() const noexcept { return values_; }
  /// The place after the last number.
  const int64_t* end() const noexcept { return values_ + size_; }
  /// Number `i`, which is not checked.
  int64_t operator[](size_t i) const noexcept { return values_[i]; }
  /// Whether both have the same numbers.
  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }
  /// Whether they differ.
  friend bool operator!=(const Dims& a, const Dims& b) noexcept { return !(a == b); }

 private:
  int64_t values_[NW_MAX_NDIM] = {};
  size_t size_ = 0;
};

/// A view of memory that somebody else owns.
///
/// A default-constructed Tensor stands for an optional tensor that is absent.
class Tensor {
 public:
  /// An absent tensor.
  Tensor() = default;

  /// A view of device memory with elements of type T.
  ///
  /// If `strides` is empty, the tensor is C-contiguous. A view of const memory can only be an
  /// input.
  template <class T, class = decltype(dtype_of<std::remove_const_t<T>>::value)>
  Tensor(T* data, const Dims& shape, const Dims& strides = {}, DLDevice device = kCPU)
      : Tensor(const_cast<std::remove_const_t<T>*>(data), dtype_of<std::remove_const_t<T>>::value,
               shape, strides, device) {
    read_only_ = std::is_const_v<T>;
  }
  /// A view of device memory whose dtype is known at run time only.
  Tensor(void* data, DLDataType dtype, const Dims& shape, const Dims& strides = {},
         DLDevice device = kCPU)
      : data_(data), shape_(shape), strides_(strides), device_(device), dtype_(dtype),
        present_(true) {
    if (strides.size() != 0 && strides.size() != shape.size())
      throw Error(NW_INVALID, -1, 0,
                  std::to_string(strides.size()) + " strides; expected one per dimension, " +
                      std::to_string(shape.size()));
  }
  /// A view of a vector, array or span: one dimension of its size.
  template <class Container,
            class T = std::remove_pointer_t<decltype(std::declval<Container&>().data())>,
            class = decltype(dtype_of<std::remove_const_t<T>>::value)>
  Tensor(Container& values) : Tensor(values.data(), Dims{static_cast<int64_t>(values.size())}) {}
  /// A view of what DLPack gave.
  explicit Tensor(const DLTensor& t)
      : Tensor(t.data, t.dtype, Dims(t.shape, static_cast<size_t>(t.ndim)),
               t.strides == nullptr ? Dims{} : Dims(t.strides, static_cast<size_t>(t.ndim)),
               t.device) {
    byte_offset_ = t.byte_offset;
  }

  /// Whether the tensor is there.
  bool present() const noexcept { return present_; }
  /// Whether it is a view of const memory.
  bool read_only() const noexcept { return read_only_; }
  /// Address of the memory. The first element is `byte_offset` of the DLTensor after it.
  void* data() const noexcept { return data_; }
  /// Dtype of the elements.
  DLDataType dtype() const noexcept { return dtype_; }
  /// The device whose memory it is.
  DLDevice device() const noexcept { return device_; }
  /// Extents, in elements.
  const Dims& shape() const noexcept { return shape_; }
  /// Strides, in elements. Empty: C-contiguous.
  const Dims& strides() const noexcept { return strides_; }

  /// The tensor for the C API. Its pointers point into this Tensor and live as long as it.
  DLTensor dl() const noexcept {
    auto* strides = strides_.size() == 0 ? nullptr : const_cast<int64_t*>(strides_.data());
    return {data_,
            device_,
            static_cast<int32_t>(shape_.size()),
            dtype_,
            const_cast<int64_t*>(shape_.data()),
            strides,
            byte_offset_};
  }

 private:
  void* data_ = nullptr;
  Dims shape_, strides_;
  uint64_t byte_offset_ = 0;
  DLDevice device_ = kCPU;
  DLDataType dtype_{};
  bool present_ = false, read_only_ = false;
};

/// A list of tensors, in braces or in a vector. It is borrowed for the call.
class Tensors {
 public:
  /// No tensors.
  Tensors() = default;
  /// The tensors of a list in braces.
  Tensors(std::initializer_list<Tensor> list) : size_(list.size()) {
    data_ = list.begin();  // alive until the end of the full expression
  }
  /// The tensors of a vector.
  Tensors(const std::vector<Tensor>& list) : data_(list.data()), size_(list.size()) {}

  /// How many tensors there are.
  size_t size() const noexcept { return size_; }
  /// Tensor `i`, which is not checked.
  const Tensor& operator[](size_t i) const noexcept { return data_[i]; }

 private:
  const Tensor* data_ = nullptr;
  size_t size_ = 0;
};

/// An op's params: its struct from ops.h or from a plugin, or bytes. Borrowed for the call.
class Params {
 public:
  /// No params.
  Params() = default;
  /// `size` bytes.
  Params(const void* data, size_t size) : data_(data), size_(size) {}
  /// An op's params struct.
  template <class Struct, class = std::enable_if_t<std::is_class_v<Struct> &&
                                                   std::is_trivially_copyable_v<Struct>>>
  Params(const Struct& params) : data_(&params), size_(sizeof params) {}

  /// The first byte.
  const void* data() const noexcept { return data_; }
  /// Number of bytes.
  size_t size() const noexcept { return size_; }

 private:
  const void* data_ = nullptr;
  size_t size_ = 0;
};

/// How a call is made. The defaults mean what NULL and 0 mean in nw_call.
struct CallOptions {
  /// #NW_DETERMINISTIC, or 0.
  uint32_t flags = 0;
  /// The device to run on. {0, 0}: where the tensors live. A call without tensors must name it.
  DLDevice device{};
  /// The stream: a native handle, or Stream::get(). nullptr: the default stream.
  void* stream = nullptr;
  /// Memory of the device, aligned to #NW_WORKSPACE_ALIGN. nullptr: it is allocated around the
  /// launch.
  void* workspace = nullptr;
  /// Bytes of `workspace`.
  uint64_t workspace_size = 0;
  /// Name of the plugin to use. nullptr: as nw_call.backend says.
  const char* backend = nullptr;
  /// Name of the kernel variant to use. nullptr: the backend chooses.
  const char* kernel = nullptr;
  /// Most threads on the CPU. 0: as many as Runtime::set_num_threads() allows.
  uint64_t max_threads = 0;
};

namespace detail {

// An nw_call and the arrays that it points to. Borrows everything.
class Call {
 public:
  Call(const char* op, Tensors inputs, Tensors outputs, Params params, const CallOptions& options) {
    if (inputs.size() + outputs.size() > NW_MAX_TENSORS)
      throw Error(NW_INVALID, -1, 0,
                  std::to_string(inputs.size() + outputs.size()) + " tensors; expected 32 at most");
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].read_only())
        throw Error(NW_INVALID, static_cast<int32_t>(inputs.size() + i), 0,
                    std::string(op) + ": an output is a view of const memory");
    add(inputs, 0);
    add(outputs, inputs.size());
    call_.struct_size = sizeof call_;
    call_.flags = options.flags;
    call_.num_inputs = static_cast<uint32_t>(inputs.size());
    call_.num_outputs = static_cast<uint32_t>(outputs.size());
    call_.op = op;
    call_.inputs = pointers_;
    call_.outputs = pointers_ + inputs.size();
    call_.params = params.size() == 0 ? nullptr : params.data();
    call_.params_size = params.size();
    call_.stream = options.stream;
    call_.workspace = options.workspace;
    call_.workspace_size = options.workspace_size;
    call_.device = options.device;
    call_.backend = options.backend;
    call_.kernel = options.kernel;
    call_.max_threads = options.max_threads;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const nw_call* get() const noexcept { return &call_; }

 private:
  void add(Tensors list, size_t first) {
    for (size_t i = 0; i < list.size(); ++i) {
      tensors_[first + i] = list[i].dl();
      pointers_[first + i] = list[i].present() ? &tensors_[first + i] : nullptr;
    }
  }

  DLTensor tensors_[NW_MAX_TENSORS];
  const DLTensor* pointers_[NW_MAX_TENSORS];
  nw_call call_{};
};

// What the copies of a Runtime, and all that was made from it, share.
struct Shared {
  nw_runtime* runtime = nullptr;
  std::function<void(int32_t, const char*)> log;
  ~Shared() { nw_runtime_destroy(runtime); }
};

// Releases a plan, whose runtime it keeps alive.
struct PlanRelease {
  std::shared_ptr<Shared> shared;
  void operator()(nw_plan* plan) const noexcept { nw_plan_release(plan); }
};

}  // namespace detail

/// How a runtime is made. See nw_options.
struct Options {
  /// Threads of the pool, the caller's own included. 0: as nw_options.num_threads says.
  uint32_t num_threads = 0;
  /// Folders to search for plugins: absolute paths with ':' between them. nullptr: the folders in
  /// NARROWS_PLUGIN_PATH.
  const char* plugin_path = nullptr;
  /// Receives log messages. Any thread may call it. It must not throw. Empty: they go to stderr.
  std::function<void(int32_t level, const char* message)> log;
  /// How many plans the cache keeps. 0: 1024.
  uint32_t plan_cache_capacity = 0;
};

/// A planned call: shapes and strides are settled. A launch needs addresses and a stream only.
///
/// A plan can be moved. Many threads may use it at once.
class Plan {
 public:
  /// Launches the call.
  ///
  /// The tensors must have the dtypes, shapes, strides and device that were planned, and at least
  /// the alignment. Otherwise it throws with #NW_INVALID.
  void launch(Tensors inputs, Tensors outputs, void* stream = nullptr, void* workspace = nullptr,
              uint64_t workspace_size = 0) const {
    CallOptions options = options_;
    options.backend = backend_ ? backend_->c_str() : nullptr;
    options.kernel = kernel_ ? kernel_->c_str() : nullptr;
    options.stream = stream;
    options.workspace = workspace;
    options.workspace_size = workspace_size;
    const detail::Call call(op_.c_str(), inputs, outputs, {params_.data(), params_.size()},
                            options);
    detail::check(nw_launch, plan_.get(), call.get());
  }

  /// Bytes of workspace that a launch needs.
  uint64_t workspace_size() const noexcept { return info_.workspace_size; }
  /// Bits #NW_PLAN_CAPTURABLE and #NW_PLAN_NONDETERMINISTIC.
  uint32_t traits() const noexcept { return info_.traits; }
  /// Name of the kernel variant that was chosen. Empty: it has none.
  std::string kernel() const { return info_.kernel == nullptr ? "" : info_.kernel; }
  /// Name of the plugin that was chosen.
  std::string backend() const { return info_.backend == nullptr ? "" : info_.backend; }

 private:
  friend class Runtime;
  Plan() = default;

  std::unique_ptr<nw_plan, detail::PlanRelease> plan_;
  nw_plan_info info_{};
  // The call that it was made for, to be told again at each launch.
  std::string op_;
  std::vector<unsigned char> params_;
  CallOptions options_;                          // but for its strings,
  std::optional<std::string> backend_, kernel_;  // which are the caller's
};

/// The plugins that were found, a thread pool and a plan cache.
///
/// Copies share one runtime. It is destroyed with the last copy, and the last buffer, stream and
/// plan made from it.
class Runtime {
 public:
  /// Makes a runtime and looks for plugins.
  explicit Runtime(const Options& options = {}) : shared_(std::make_shared<detail::Shared>()) {
    nw_options o{};
    o.struct_size = sizeof o;
    o.num_threads = options.num_threads;
    o.plugin_path = options.plugin_path;
    o.plan_cache_capacity = options.plan_cache_capacity;
    if (options.log) {
      shared_->log = options.log;
      o.log_ctx = shared_.get();
      o.log = [](void* ctx, int32_t level, const char* message) {
        static_cast<detail::Shared*>(ctx)->log(level, message);
      };
    }
    detail::check(nw_runtime_create, &o, &shared_->runtime);
  }

  /// Computes `outputs`, whose memory the caller allocated. On a stream this returns before the
  /// work is done.
  void run(const char* op, Tensors inputs, Tensors outputs, Params params = {},
           const CallOptions& options = {}) const {
    detail::check(nw_run, get(), detail::Call(op, inputs, outputs, params, options).get());
  }
  /// Gives dtype and shape of every output of such a call. It reads no memory of the tensors.
  std::vector<nw_spec> infer(const char* op, Tensors inputs, Params params = {},
                             const CallOptions& options = {}) const {
    std::vector<nw_spec> specs(find_op(op).num_outputs);
    const detail::Call call(op, inputs, {}, params, options);
    detail::check(nw_infer, get(), call.get(), specs.data(), static_cast<uint32_t>(specs.size()));
    return specs;
  }
  /// Plans now what run() would plan at its first such call.
  Plan plan(const char* op, Tensors inputs, Tensors outputs, Params params = {},
            const CallOptions& options = {}) const {
    Plan result;
    result.op_ = op;
    result.options_ = options;
    if (options.backend != nullptr) result.backend_ = options.backend;
    if (options.kernel != nullptr) result.kernel_ = options.kernel;
    const auto* bytes = static_cast<const unsigned char*>(params.data());
    result.params_.assign(bytes, bytes + params.size());
    result.info_.struct_size = sizeof result.info_;
    nw_plan* plan = nullptr;
    detail::check(nw_plan_get, get(), detail::Call(op, inputs, outputs, params, options).get(),
                  &plan, &result.info_);
    result.plan_ = {plan, {shared_}};
    return result;
  }
  /// Whether run() would take the call. If not, and `why` is not nullptr, `*why` becomes the
  /// reason.
  bool supports(const char* op, Tensors inputs, Tensors outputs, Params params = {},
                const CallOptions& options = {}, std::string* why = nullptr) const {
    const detail::Call call(op, inputs, outputs, params, options);
    nw_error error{};
    if (nw_plan_get(get(), call.get(), nullptr, nullptr, &error) == NW_OK) return true;
    if (why != nullptr) *why = error.message;
    return false;
  }

  /// Sets how many threads a call may use: 1 to the size of the pool. See nw_set_num_threads().
  void set_num_threads(int64_t num_threads) const {
    detail::check(nw_set_num_threads, get(), num_threads);
  }
  /// How many threads a call may use.
  uint32_t num_threads() const noexcept { return nw_get_num_threads(get()); }

  /// Loads one more plugin, ahead of those that are present.
  void load(const char* absolute_path) const { detail::check(nw_load, get(), absolute_path); }
  /// Lists every plugin file that was found, in search order. Refused ones say why.
  ///
  /// Strings in the list live as long as the runtime.
  std::vector<nw_backend_info> backends() const {
    std::vector<nw_backend_info> result(nw_backend_count(get()));
    for (uint32_t i = 0; i < result.size(); ++i) {
      result[i].struct_size = sizeof result[i];
      detail::check(nw_backend, get(), i, &result[i]);
    }
    return result;
  }
  /// Lists the declarations of all ops that a usable backend has, each name once.
  std::vector<const nw_op*> ops() const {
    std::vector<const nw_op*> result;
    for (const nw_backend_info& backend : backends())
      for (uint32_t i = 0; backend.status == NW_OK && (backend.flags & NW_BACKEND_SHADOWED) == 0 &&
                           i < backend.num_ops;
           ++i) {
        const nw_op* op = &find_op(backend.ops[i]->name);
        bool listed = false;
        for (const nw_op* other : result)
          listed = listed || std::strcmp(other->name, op->name) == 0;
        if (!listed) result.push_back(op);
      }
    return result;
  }
  /// Finds the declaration of an op. It lives as long as the runtime.
  const nw_op& find_op(const char* name) const {
    const nw_op* op = nullptr;
    detail::check(nw_find_op, get(), name, &op);
    return *op;
  }
  /// Describes a device.
  nw_device_info device(DLDevice device = kCPU) const {
    nw_device_info info{};
    info.struct_size = sizeof info;
    detail::check(nw_device, get(), device, &info);
    return info;
  }
  /// Returns a plugin's extension struct. nullptr: there is none of this name.
  ///
  /// The struct begins with `struct_size`. Compare that before you read a field.
  template <class Struct>
  const Struct* extension(const char* backend, const char* name) const noexcept {
    return static_cast<const Struct*>(nw_extension(get(), backend, name));
  }
  /// Copies `size` contiguous bytes.
  ///
  /// If either side is host memory, the copy is done when this returns. Otherwise it is ordered on
  /// `stream`.
  void copy(DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size,
            void* stream = nullptr) const {
    detail::check(nw_copy, get(), to, dst, from, src, size, stream);
  }
  /// Empties the plan cache. Plans that the caller holds stay valid.
  void clear_plan_cache() const noexcept { nw_plan_cache_clear(get()); }

  /// The runtime, for narrows.h.
  nw_runtime* get() const noexcept { return shared_->runtime; }

 private:
  friend class Buffer;
  friend class Stream;
  std::shared_ptr<detail::Shared> shared_;
};

/// A stream of a device. It is destroyed with this object.
///
/// On the CPU it is NULL, and everything on it is done at once.
class Stream {
 public:
  /// Makes a stream.
  explicit Stream(const Runtime& runtime, DLDevice device = kCPU)
      : shared_(runtime.shared_), device_(device) {
    detail::check(nw_stream_create, shared_->runtime, device_, &stream_);
  }
  /// Takes the stream of `other`.
  Stream(Stream&& other) noexcept
      : shared_(std::move(other.shared_)), device_(other.device_),
        stream_(std::exchange(other.stream_, nullptr)) {}
  /// Exchanges the streams.
  Stream& operator=(Stream&& other) noexcept {
    std::swap(shared_, other.shared_);
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  /// Destroys the stream.
  ~Stream() {
    if (shared_ != nullptr) nw_stream_destroy(shared_->runtime, device_, stream_, nullptr);
  }

  /// Waits until everything on the stream is done.
  void sync() const { detail::check(nw_stream_sync, shared_->runtime, device_, stream_); }
  /// Makes what is put on this stream from now on wait for what is on `signaler` now. The host does
  /// not wait.
  void wait(void* signaler) const {
    detail::check(nw_stream_wait, shared_->runtime, device_, stream_, signaler);
  }
  /// The native handle, for CallOptions::stream.
  void* get() const noexcept { return stream_; }

 private:
  std::shared_ptr<detail::Shared> shared_;
  DLDevice device_;
  void* stream_ = nullptr;
};

/// A C-contiguous tensor on any device that owns its memory, aligned to 256 bytes.
///
/// Allocation and release are ordered on `stream`, which must outlive the buffer.
class Buffer {
 public:
  /// Allocates memory. Nothing is written to it.
  Buffer(const Runtime& runtime, DLDataType dtype, const Dims& shape, DLDevice device = kCPU,
         void* stream = nullptr)
      : shared_(runtime.shared_), dtype_(dtype), shape_(shape), device_(device), stream_(stream),
        size_(bytes(dtype, shape)) {
    detail::check(nw_alloc, shared_->runtime, device_, size_, stream_, &data_);
  }
  /// Allocates memory for an output that Runtime::infer() described.
  Buffer(const Runtime& runtime, const nw_spec& spec, DLDevice device = kCPU,
         void* stream = nullptr)
      : Buffer(runtime, spec.dtype, Dims(spec.shape, static_cast<size_t>(spec.ndim)), device,
               stream) {}
  /// Takes the memory of `other`.
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  /// Exchanges the memory.
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(shared_, other.shared_);
    std::swap(dtype_, other.dtype_);
    std::swap(shape_, other.shape_);
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    return *this;
  }
  /// Frees the memory.
  ~Buffer() {
    if (shared_ != nullptr) nw_free(shared_->runtime, device_, data_, stream_, nullptr);
  }

  /// A view of the memory.
  operator Tensor() const { return tensor(); }
  /// A view of the memory.
  Tensor tensor() const { return {data_, dtype_, shape_, {}, device_}; }
  /// Copies size() bytes from contiguous host memory. It is done when this returns.
  void write(const void* host) const {
    detail::check(nw_copy, shared_->runtime, device_, data_, kCPU, host, size_, stream_);
  }
  /// Copies size() bytes to contiguous host memory. It is done when this returns.
  void read(void* host) const {
    detail::check(nw_copy, shared_->runtime, kCPU, host, device_, data_, size_, stream_);
  }

  /// Address of the memory.
  void* data() const noexcept { return data_; }
  /// Bytes of the memory.
  uint64_t size() const noexcept { return size_; }
  /// Dtype of the elements.
  DLDataType dtype() const noexcept { return dtype_; }
  /// Extents, in elements.
  const Dims& shape() const noexcept { return shape_; }
  /// The device whose memory it is.
  DLDevice device() const noexcept { return device_; }

 private:
  static uint64_t bytes(DLDataType dtype, const Dims& shape) {
    uint64_t total = (uint64_t{dtype.bits} * dtype.lanes + 7) / 8;
    bool is_empty = false;  // the other extents may be huge
    for (const int64_t extent : shape) is_empty = is_empty || extent == 0;
    for (const int64_t extent : shape)
      if (extent < 0 ||
          (!is_empty && __builtin_mul_overflow(total, static_cast<uint64_t>(extent), &total)))
        throw Error(NW_INVALID, -1, 0,
                    "an extent is " + std::to_string(extent) +
                        "; expected 0 or more, and fewer than 2^64 bytes in all");
    return is_empty ? 0 : total;
  }

  std::shared_ptr<detail::Shared> shared_;
  DLDataType dtype_{};
  Dims shape_;
  DLDevice device_{};
  void* stream_ = nullptr;
  uint64_t size_ = 0;
  void* data_ = nullptr;
};

/// @}

}  // namespace narrows
#endif
