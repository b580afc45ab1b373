// SPDX-License-Identifier: Apache-2.0
/// @file plugin.hpp
/// @brief plugin.h for C++20: a plugin for the CPU, made from ops and their kernels.
///
/// Header only. The plugin links nothing of Narrows. abi.h says what the fields of a declaration
/// mean.
///
/// @code{.cpp}
/// struct Params { float factor; };
/// void scale(const narrows::plugin::Launch& call) {
///   const float *x = call.input<float>(0), factor = call.params<Params>().factor;
///   float* y = call.output<float>(0);
///   call.parallel_for(call.size(0), [=](int64_t i) { y[i] = factor * x[i]; });
/// }
/// NARROWS_PLUGIN("mine", {.name = "mine.scale/1",
///                         .inputs = {"x"},
///                         .outputs = {"y"},
///                         .shape_rule = "like 0",
///                         .kernel = scale,
///                         .params = {narrows::plugin::field("factor", &Params::factor, 1.0)},
///                         .params_size = sizeof(Params)})
/// @endcode
///
/// This is step 4 of a tensor's path in docs/design.md.
///
/// - **Tensors** are C-contiguous, aligned to their items, and of the op's dtypes. A call with
///   other tensors is refused before it reaches the kernel.
/// - **Errors.** A kernel may throw. The call then fails with the exception's message. Op::check
///   may refuse params and shapes before that.
/// - **GPUs.** plugin_cuda.hpp is the same for NVIDIA GPUs.
/// - **Anything else.** For another device, or for layouts and kernel variants of its own, write a
///   plugin against plugin.h. examples/plugin_minimal is one.
#ifndef NARROWS_PLUGIN_HPP
#define NARROWS_PLUGIN_HPP

#include <narrows/plugin.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// Makes plugins from ops and their kernels.
namespace narrows::plugin {

/// @defgroup cpp_plugins C++: plugins for the CPU
/// @{

/// The dtype of an arithmetic type T. f16 and bf16 are {kDLFloat, 16, 1} and {kDLBfloat, 16, 1}.
template <class T>
constexpr DLDataType dtype() {
  static_assert(std::is_arithmetic_v<T>,
                "f16 and bf16 are given as {kDLFloat, 16, 1} and {kDLBfloat, 16, 1}");
  constexpr uint8_t code = std::is_same_v<T, bool>       ? kDLBool
                           : std::is_floating_point_v<T> ? kDLFloat
                           : std::is_signed_v<T>         ? kDLInt
                                                         : kDLUInt;
  return {code, 8 * sizeof(T), 1};
}

/// Declares a member of the params struct, so that a binding can fill it in by name.
///
/// @param name     Name of the field.
/// @param member   The member, like `&Params::factor`.
/// @param initial  What a binding takes when its user gives nothing.
template <class Params, class T>
nw_param field(const char* name, T Params::* member, double initial = 0) {
  static const Params params{};
  const auto offset =
      reinterpret_cast<const char*>(&(params.*member)) - reinterpret_cast<const char*>(&params);
  return {name, dtype<T>(), static_cast<uint32_t>(offset), nullptr, initial};
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

// Whether elements of that dtype may be seen as Ts: of f16 and bf16 the bits as uint16_t, of any
// dtype the bytes. A type that is not arithmetic, such as CUDA's __half, has the right size.
template <class T>
bool holds(DLDataType t) {
  if (std::is_same_v<T, char> || std::is_same_v<T, unsigned char> || std::is_same_v<T, std::byte>)
    return true;
  if (t.bits != 8 * sizeof(T)) return false;
  if constexpr (std::is_arithmetic_v<T>)
    return dtype<T>().code == t.code ||
           (std::is_same_v<T, uint16_t> && (t.code == kDLFloat || t.code == kDLBfloat));
  return true;
}

template <class T>
std::string show_type() {
  if constexpr (std::is_arithmetic_v<T>) return show(dtype<T>());
  return "a type of " + std::to_string(sizeof(T)) + " bytes";
}

std::string tensor_name(const Op* op, bool is_input, uint32_t i);

}  // namespace detail
/// @endcond

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
  /// Input `i`, which must be there.
  const DLTensor& in(uint32_t i) const { return *call_->inputs[i]; }
  /// Output `i`, which must be wanted.
  const DLTensor& out(uint32_t i) const { return *call_->outputs[i]; }
  /// The first element of input `i`. Throws std::invalid_argument if the input is absent, or its
  /// elements are no Ts.
  template <class T>
  const T* input(uint32_t i) const {
    return address<const T>(has_input(i) ? call_->inputs[i] : nullptr, true, i);
  }
  /// The first element of output `i`. Throws std::invalid_argument if the output is not wanted, or
  /// its elements are no Ts.
  template <class T>
  T* output(uint32_t i) const {
    return address<T>(has_output(i) ? call_->outputs[i] : nullptr, false, i);
  }
  /// The stream that a GPU's kernels are put on. NULL on the CPU.
  void* stream() const { return call_->stream; }
  /// Number of elements of an output.
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
  /// Runs `body(i)` for every i of [0, n) on the host's threads.
  ///
  /// `body` must not throw. A thread takes at least `grain` indices at a time.
  template <class Body>
  void parallel_for(int64_t n, const Body& body, int64_t grain = 16384) const {
    const auto piece = [](void* arg, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) (*static_cast<const Body*>(arg))(i);
    };
    host_->parallel_for(host_->ctx, n, grain, piece, const_cast<Body*>(&body));
  }
  /// How many threads parallel_for() would use now. For a kernel that has threads of its own, such
  /// as OpenMP's.
  uint32_t usable_threads() const {
    const bool says =
        host_->struct_size > offsetof(nw_host, usable_threads);  // hosts since ABI 1.1
    return says ? host_->usable_threads(host_->ctx) : host_->num_threads;
  }

 private:
  template <class T>
  T* address(const DLTensor* t, bool is_input, uint32_t i) const {
    using Item = std::remove_const_t<T>;
    if (t == nullptr || !detail::holds<Item>(t->dtype))
      throw std::invalid_argument(
          detail::tensor_name(op_, is_input, i) +
          (t == nullptr ? " is absent" : " has dtype " + detail::show(t->dtype)) +
          "; the kernel asks for " + detail::show_type<Item>());
    return reinterpret_cast<T*>(static_cast<char*>(t->data) + t->byte_offset);
  }
  const nw_host* host_;
  const nw_call* call_;
  const Op* op_;
};

/// An op: the fields of nw_op, and what computes it.
struct Op {
  /// Name of the op: "vendor.name/1".
  const char* name;
  /// Names of the inputs. A '?' at the end of a name: it may be absent.
  std::vector<const char*> inputs,
      /// Names of the outputs. A '?' at the end of a name: it may be NULL.
      outputs;
  /// The shapes of the outputs: docs/abi.md, "Shape rules".
  const char* shape_rule = "like 0";
  /// Computes a call. It may throw.
  void (*kernel)(const Launch&) = nullptr;
  /// The fields of the params struct, made by field().
  std::vector<nw_param> params = {};
  /// Bytes of the params struct.
  uint64_t params_size = 0;
  /// The dtypes that every tensor may have.
  std::vector<DLDataType> dtypes = {dtype<float>()};
  /// Name of the op that differentiates this one. nullptr: not differentiable.
  const char* backward = nullptr;
  /// What the backward op reads: bit i for input i, bit 32 + j for output j.
  uint64_t saved = 0;
  /// Bits #NW_OP_INPLACE, #NW_OP_BATCHABLE and #NW_OP_AUTOCAST, or 0.
  uint32_t flags = 0;
  /// How many outputs, counted from the last, exist for backward only.
  uint32_t num_aux = 0;
  /// Traits of its plans. #NW_PLAN_CAPTURABLE: on a GPU, the kernel only puts work on the stream.
  uint32_t traits = 0;
  /// Throws std::invalid_argument if params or shapes are wrong. May be nullptr.
  void (*check)(const nw_sig&) = nullptr;
  /// The dtype of each input, where it has one of its own. Zeros, or past the end: one of `dtypes`.
  std::vector<DLDataType> input_dtypes = {};
  /// The dtype of each output, where it has one of its own. Zeros, or past the end: that of the
  /// first input, and one of `dtypes`.
  std::vector<DLDataType> output_dtypes = {};
  /// The sizes of the shape rule along which a call is a batch of calls, such as "N". nullptr:
  /// nothing is said.
  const char* batch = nullptr;
};

/// @cond
namespace detail {

// "mine.scale/1: input x", as the op declares it.
inline std::string tensor_name(const Op* op, bool is_input, uint32_t i) {
  const std::string kind = is_input ? "input " : "output ";
  if (op == nullptr) return kind + std::to_string(i);
  const std::vector<const char*>& names = is_input ? op->inputs : op->outputs;
  std::string name = i < names.size() ? names[i] : "number " + std::to_string(i);
  if (name.back() == '?') name.pop_back();
  return std::string(op->name) + ": " + kind + name;
}

}  // namespace detail
/// @endcond

/// The plugin's table, made from its ops. Each library has its own. #NARROWS_PLUGIN makes it, and
/// it is never destroyed.
class __attribute__((visibility("hidden"))) Plugin {
 public:
  /// Makes the table of a plugin with these ops.
  Plugin(const char* name, std::vector<Op> ops)
      : ops_(std::move(ops)), declared_(ops_.size()), tables_(ops_.size()) {
    for (size_t i = 0; i < ops_.size(); ++i) declare(i);
    for (const nw_op& op : declared_) pointers_.push_back(&op);
    table_.struct_size = sizeof table_;
    table_.abi_major = NW_ABI_MAJOR;
    table_.name = name;
    table_.version = "1";
    table_.device_type = kDLCPU;
    table_.num_ops = static_cast<uint32_t>(pointers_.size());
    table_.ops = pointers_.data();
    fill_slots();
    only() = this;
  }
  /// The table.
  const nw_plugin* table() const { return &table_; }
  /// The table. NULL for a host of another major version, and `error` is filled in.
  const nw_plugin* table(uint32_t host_major, nw_error* error) const {
    if (host_major == NW_ABI_MAJOR) return &table_;
    char message[96];
    std::snprintf(message, sizeof message, "ABI major is %u; expected %d: rebuild the plugin",
                  host_major, NW_ABI_MAJOR);
    return fail(error, NW_UNSUPPORTED, message), nullptr;
  }

 protected:
  /// Fills in `error`, which may be NULL, and returns `status`.
  static int32_t fail(nw_error* error, int32_t status, const char* message) {
    if (error == nullptr) return status;
    *error = {};
    error->status = status;
    error->argument = -1;
    std::snprintf(error->message, sizeof error->message, "%s", message);
    return status;
  }
  /// nw_plugin.launch: runs the kernel of the op. An exception becomes #NW_FAILED.
  static int32_t launch(void* self, const void* plan, const nw_call* call, nw_error* error) {
    try {
      static_cast<const Op*>(plan)->kernel(
          Launch(static_cast<const nw_host*>(self), call, static_cast<const Op*>(plan)));
      return NW_OK;
    } catch (const std::exception& e) {
      return fail(error, NW_FAILED, e.what());
    }
  }
  /// What the host sees. Derived classes replace slots.
  nw_plugin table_{};

 private:
  struct Tables {
    std::vector<const char*> inputs, outputs;
    std::vector<const nw_param*> params;
    std::vector<DLDataType> input_dtypes, output_dtypes;
  };
  static Plugin*& only() {
    static Plugin* plugin = nullptr;
    return plugin;
  }
  void declare(size_t i) {
    const Op& op = ops_[i];
    Tables& t = tables_[i];
    t.inputs = op.inputs;
    t.outputs = op.outputs;
    for (const nw_param& p : op.params) t.params.push_back(&p);
    t.inputs.push_back(nullptr);
    t.outputs.push_back(nullptr);
    t.params.push_back(nullptr);
    nw_op& d = declared_[i];
    d.struct_size = sizeof d;
    d.flags = op.flags;
    d.name = op.name;
    d.max_inputs = static_cast<uint32_t>(op.inputs.size());
    for (uint32_t k = 0; k < d.max_inputs; ++k)
      if (op.inputs[k][std::strlen(op.inputs[k]) - 1] != '?') d.min_inputs = k + 1;
    d.num_outputs = static_cast<uint32_t>(op.outputs.size());
    d.num_aux = op.num_aux;
    d.inputs = t.inputs.data();
    d.outputs = t.outputs.data();
    d.params_size = op.params_size;
    d.shape_rule = op.shape_rule;
    d.backward = op.backward;
    d.saved = op.saved;
    d.batch = op.batch;
    d.params = op.params.empty() ? nullptr : t.params.data();
    t.input_dtypes = op.input_dtypes;
    t.output_dtypes = op.output_dtypes;
    t.input_dtypes.resize(op.inputs.size());
    t.output_dtypes.resize(op.outputs.size());
    // NULL where nothing is declared: hosts before ABI 1.2 take such a plugin, too.
    d.input_dtypes = op.input_dtypes.empty() ? nullptr : t.input_dtypes.data();
    d.output_dtypes = op.output_dtypes.empty() ? nullptr : t.output_dtypes.data();
  }

  static bool contiguous(const nw_tensor_sig& t) {
    if (std::count(t.shape, t.shape + t.ndim, 0) != 0)
      return true;  // no element, and the other extents may be huge
    int64_t dense = 1;
    for (int32_t d = t.ndim - 1; d >= 0; --d) {
      if (t.shape[d] != 1 && t.strides[d] != dense) return false;
      dense *= t.shape[d];
    }
    return true;
  }
  // Did the host check its dtype, because it is declared?
  static bool is_declared(const std::vector<DLDataType>& dtypes, size_t i) {
    return i < dtypes.size() && dtypes[i].bits != 0;
  }
  static int32_t check_tensor(const Op& op, const nw_sig& sig, uint32_t i, nw_error* error) {
    const nw_tensor_sig& t = sig.tensors[i];
    if (t.ndim < 0) return NW_OK;
    bool known = i < sig.num_inputs ? is_declared(op.input_dtypes, i)
                                    : is_declared(op.output_dtypes, i - sig.num_inputs);
    for (const DLDataType& d : op.dtypes)
      known = known || (d.code == t.dtype.code && d.bits == t.dtype.bits);
    if (known && contiguous(t) && (1 << t.align_log2) * 8 >= t.dtype.bits) return NW_OK;
    const bool is_input = i < sig.num_inputs;
    std::string why = detail::tensor_name(&op, is_input, is_input ? i : i - sig.num_inputs);
    if (!known) {
      why += " has dtype " + detail::show(t.dtype) + "; expected ";
      if (op.dtypes.empty()) why += "what the op declares, which is nothing";
      for (const DLDataType& d : op.dtypes)
        why += (&d == op.dtypes.data() ? "" : " or ") + detail::show(d);
    } else if (!contiguous(t)) {
      why +=
          " has shape " + detail::show(t.shape, t.ndim) + " and strides " +
          detail::show(t.strides, t.ndim) +
          "; expected a C-contiguous tensor, as .contiguous() or numpy.ascontiguousarray() gives";
    } else {
      why += " has an address that is no multiple of " + std::to_string(t.dtype.bits / 8) +
             " bytes; expected one that is";
    }
    fail(error, NW_UNSUPPORTED, why.c_str());
    if (error != nullptr) error->argument = static_cast<int32_t>(i);
    return NW_UNSUPPORTED;
  }
  const Op* find(const char* name) const {
    for (const Op& op : ops_)
      if (std::strcmp(op.name, name) == 0) return &op;
    return nullptr;
  }

  static int32_t plan(void*, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
    const Op* const op = only()->find(sig->op);
    if (op == nullptr) return fail(error, NW_UNSUPPORTED, "not an op of this plugin");
    if ((sig->flags & ~uint32_t{NW_DETERMINISTIC}) != 0 || sig->kernel != nullptr)
      return fail(error, NW_UNSUPPORTED,
                  "flags and kernel variants that this plugin does not have");
    for (uint64_t i = op->params_size; i < sig->params_size; ++i)
      if (static_cast<const unsigned char*>(sig->params)[i] != 0)
        return fail(error, NW_UNSUPPORTED, "params that this plugin does not know");
    try {
      for (uint32_t i = 0; i < sig->num_inputs + sig->num_outputs; ++i)
        if (const int32_t status = check_tensor(*op, *sig, i, error); status != NW_OK)
          return status;
      if (op->check != nullptr) op->check(*sig);
    } catch (const std::bad_alloc&) {
      return fail(error, NW_OUT_OF_MEMORY, "out of memory while the call was planned");
    } catch (const std::exception& e) {
      return fail(error, NW_INVALID, e.what());
    }
    if (info != nullptr && info->struct_size > 4)
      std::memset(reinterpret_cast<char*>(info) + 4, 0,
                  (info->struct_size < sizeof *info ? info->struct_size : sizeof *info) - 4);
    if (info != nullptr && info->struct_size >= 8) info->traits = op->traits;
    if (out != nullptr) *out = const_cast<Op*>(op);
    return NW_OK;
  }
  // Device 0, host memory, and its one stream, NULL.
  static int32_t known(int32_t id, const void* stream, nw_error* error) {
    char message[96];
    if (id != 0)
      std::snprintf(message, sizeof message, "device_id is %d; expected 0", id);
    else if (stream != nullptr)
      std::snprintf(message, sizeof message, "stream is %p; expected NULL: the CPU has no other",
                    stream);
    else
      return NW_OK;
    return fail(error, NW_INVALID, message);
  }
  static int32_t alloc(void*, int32_t id, uint64_t size, void* stream, void** data,
                       nw_error* error) {
    if (known(id, stream, error) != NW_OK) return NW_INVALID;
    void* memory = nullptr;
    if (size != 0 && posix_memalign(&memory, 256, size) != 0) {
      char message[96];
      std::snprintf(message, sizeof message, "%llu bytes of host memory are not to be had",
                    static_cast<unsigned long long>(size));
      return fail(error, NW_OUT_OF_MEMORY, message);
    }
    return *data = memory, NW_OK;
  }
  static int32_t free(void*, int32_t id, void* data, void* stream, nw_error* error) {
    return known(id, stream, error) == NW_OK ? std::free(data), NW_OK : NW_INVALID;
  }
  static int32_t copy(void*, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size,
                      void* stream, nw_error* error) {
    if (to.device_type != kDLCPU || from.device_type != kDLCPU)
      return fail(error, NW_UNSUPPORTED, "copy: expected CPU memory");
    if (known(to.device_id, stream, error) != NW_OK ||
        known(from.device_id, stream, error) != NW_OK)
      return NW_INVALID;
    return size != 0 ? std::memmove(dst, src, size) : dst, NW_OK;
  }
  static int32_t stream_create(void*, int32_t id, void** stream, nw_error* error) {
    return known(id, nullptr, error) == NW_OK ? *stream = nullptr, NW_OK : NW_INVALID;
  }
  static int32_t of_stream(void*, int32_t id, void* stream, nw_error* error) {
    return known(id, stream, error);
  }
  static int32_t stream_wait(void*, int32_t id, void* waiter, void* signaler, nw_error* error) {
    return known(id, waiter != nullptr ? waiter : signaler, error);
  }
  static int32_t device_info(void*, int32_t id, nw_device_info* out, nw_error* error) {
    if (known(id, nullptr, error) != NW_OK) return NW_INVALID;
    nw_device_info info{};
    info.struct_size = out->struct_size;
    std::strcpy(info.name, "host memory");
    std::strcpy(info.arch, "any");
    return std::memcpy(out, &info, out->struct_size < sizeof info ? out->struct_size : sizeof info),
           NW_OK;
  }
  void fill_slots() {
    table_.create = [](const nw_host* host, void** self, nw_error*) {
      return *self = const_cast<nw_host*>(host), NW_OK;
    };
    table_.destroy = [](void*) {};
    table_.device_count = [](void*, int32_t* count, nw_error*) { return *count = 1, NW_OK; };
    table_.device_info = device_info;
    table_.alloc = alloc;
    table_.free = free;
    table_.copy = copy;
    table_.stream_create = stream_create;
    table_.stream_destroy = table_.stream_sync = of_stream;
    table_.stream_wait = stream_wait;
    table_.plan = plan;
    table_.plan_free = [](void*, void*) {};  // a plan is the op itself
    table_.launch = launch;
  }

  std::vector<Op> ops_;
  std::vector<nw_op> declared_;
  std::vector<Tables> tables_;
  std::vector<const nw_op*> pointers_;
};

/// @}

}  // namespace narrows::plugin

/// @ingroup cpp_plugins
/// @hideinitializer
/// Defines the one symbol that the host looks up.
///
/// @param NAME  Name of the plugin.
/// @param ...   One Op in braces, or several with ',' between them.
#define NARROWS_PLUGIN(NAME, ...)                                                         \
  const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {           \
    static const auto* const plugin =                                                     \
        new narrows::plugin::Plugin(NAME, std::vector<narrows::plugin::Op>{__VA_ARGS__}); \
    return plugin->table(host_major, error);                                              \
  }
#endif
