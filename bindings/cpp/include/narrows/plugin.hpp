// SPDX-License-Identifier: Apache-2.0
/// @file plugin.hpp
/// @brief A plugin for the CPU in C++20, made from ops and their kernels.
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
///                         .kernel = scale,
///                         .params = {narrows::plugin::field("factor", &Params::factor, 1.0)},
///                         .params_size = sizeof(Params)})
/// @endcode
///
/// This is step 4 of a tensor's path in docs/design.md.
///
/// - **Calls** that a kernel cannot take are refused before it runs: another dtype, another layout,
///   shapes that the shape rule does not allow, params that Op::check refuses.
/// - **Declarations** that are wrong or leave a shape unchecked are refused when the plugin is
///   loaded.
/// - **Errors.** A kernel may throw. The call then fails with the op's name and the exception's
///   message.
/// - **GPUs.** plugin_cuda.hpp is the same for NVIDIA GPUs, plugin_vulkan.hpp for Vulkan's devices.
/// - **Anything else.** For another device, write a plugin against plugin.h, or in C++ against
///   plugin_base.hpp. examples/plugin_minimal is one.
#ifndef NARROWS_PLUGIN_HPP
#define NARROWS_PLUGIN_HPP

#include <narrows/plugin.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <narrows/plugin_call.hpp>
#include <narrows/plugin_declare.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// Makes plugins from ops and their kernels.
namespace narrows::plugin {

/// @addtogroup cpp_plugins
/// @{

/// The plugin's table, made from its ops. Each library has its own. #NARROWS_PLUGIN makes it, and
/// it is never destroyed.
class __attribute__((visibility("hidden"))) Plugin {
 public:
  /// Makes the table of a plugin with these ops.
  Plugin(const char* name, std::vector<Op> ops) : name_(name), ops_(std::move(ops)) {
    guarded(&fault_, [&] {
      detail::complete(&ops_, &texts_);
      for (const Op& op : ops_) declared_.push_back(std::make_unique<Declaration>(op));
      for (const auto& declaration : declared_) declaration->check_backward(declared_);
    });
    for (const auto& declaration : declared_) pointers_.push_back(declaration->table());
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
  /// The table. NULL for a host of another major version, and where a declaration is wrong; `error`
  /// has the reason then.
  const nw_plugin* table(uint32_t host_major, nw_error* error) const {
    return query(name_, host_major, error, [&]() -> const nw_plugin* {
      if (fault_.status != NW_OK) refuse(fault_.status, -1, "%s", fault_.message);
      return &table_;
    });
  }

 protected:
  /// A planned call. Copies of tensors that are not contiguous lie in the workspace, behind what
  /// the op asked for.
  struct Planned {
    /// Of the op.
    const Declaration* declaration;
    /// The op's, or that of one of its variants.
    Kernel kernel;
    /// In `copies`: the tensor is used as it is.
    static constexpr uint64_t kAsIs = UINT64_MAX;
    /// Of each input, then of each output: where its copy begins, or kAsIs.
    std::vector<uint64_t> copies;
    /// Likewise: what `plan_copy_` gave.
    std::vector<std::shared_ptr<void>> copy_plans;
  };
  /// Copies a tensor's elements into another one of the same shape and dtype.
  using Copy = void (*)(const nw_host& host, const nw_call& call, const void* copy_plan,
                        const DLTensor& from, const DLTensor& to);
  /// Plans such a copy for a call of that signature.
  using PlanCopy = std::shared_ptr<void> (*)(void* self, const nw_sig& call,
                                             const nw_tensor_sig& from, const nw_tensor_sig& to);

  /// Runs a plan. An exception becomes a status: that of a Refusal, else #NW_FAILED.
  static int32_t run(void* self, const void* plan, const nw_call* call, nw_error* error,
                     Copy copy) {
    return guarded(error, [&] {
      const auto& planned = *static_cast<const Planned*>(plan);
      const auto& host = *static_cast<const nw_host*>(self);
      const Op& op = planned.declaration->op();
      const auto compute = [&](const nw_call* seen) {
        in_op(op.name, NW_FAILED, [&] { planned.kernel(Launch(&host, seen, &op)); });
      };
      if (planned.copies.empty()) return compute(call);
      const Contiguous tensors(*call, planned.copies);
      const auto copied = [&](uint32_t i) { return planned.copies[i] != Planned::kAsIs; };
      const uint32_t inputs = call->num_inputs;
      for (uint32_t i = 0; i < inputs; ++i)
        if (copied(i))
          copy(host, *call, planned.copy_plans[i].get(), *call->inputs[i], tensors.all[i]);
      compute(&tensors.call);
      for (uint32_t i = inputs; i < inputs + call->num_outputs; ++i)
        if (copied(i))
          copy(host, *call, planned.copy_plans[i].get(), tensors.all[i],
               *call->outputs[i - inputs]);
    });
  }
  /// What the host sees. Derived classes replace slots.
  nw_plugin table_{};
  /// NULL: copies need no plan.
  PlanCopy plan_copy_ = nullptr;

 private:
  // The call with contiguous tensors in the place of those that are copied.
  struct Contiguous {
    Contiguous(const nw_call& given, const std::vector<uint64_t>& copies) {
      // An older host's call is shorter.
      std::memcpy(&call, &given, std::min<size_t>(given.struct_size, sizeof call));
      for (size_t i = 0; i < copies.size(); ++i) {
        pointers[i] = i < given.num_inputs ? given.inputs[i] : given.outputs[i - given.num_inputs];
        if (copies[i] == Planned::kAsIs) continue;
        all[i] = *pointers[i];
        all[i].data = static_cast<char*>(given.workspace) + copies[i];
        all[i].byte_offset = 0;
        all[i].strides = nullptr;
        pointers[i] = &all[i];
      }
      call.inputs = pointers;
      call.outputs = pointers + given.num_inputs;
    }
    nw_call call{};
    DLTensor all[NW_MAX_TENSORS];
    const DLTensor* pointers[NW_MAX_TENSORS];
  };

  static Plugin*& only() {
    static Plugin* plugin = nullptr;
    return plugin;
  }
  const Declaration& find(const nw_sig& sig) const {
    for (const auto& declaration : declared_)
      if (std::strcmp(declaration->op().name, sig.op) == 0) return *declaration;
    refuse(NW_UNSUPPORTED, -1, "%s is not an op of this plugin", sig.op);
  }
  static int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info,
                      nw_error* error) {
    return guarded(error, [&] {
      const Declaration& declaration = only()->find(*sig);
      const Op& op = declaration.op();
      if ((sig->flags & ~uint32_t{NW_DETERMINISTIC}) != 0)
        refuse(NW_UNSUPPORTED, -1, "%s: flags are 0x%x; this plugin knows 0x%x", sig->op,
               sig->flags, NW_DETERMINISTIC);
      if ((sig->flags & NW_DETERMINISTIC) != 0 && (op.traits & NW_PLAN_NONDETERMINISTIC) != 0)
        refuse(NW_UNSUPPORTED, -1,
               "%s: its kernel is not deterministic, and NW_DETERMINISTIC is set", sig->op);
      check_params_tail(*sig, op.params_size);
      auto planned = std::make_unique<Planned>();
      planned->declaration = &declaration;
      declaration.check_tensors(*sig);
      const Signature signature(*sig);
      uint64_t workspace = 0;
      const char* name = nullptr;
      in_op(op.name, NW_INVALID, [&] {
        if (op.check != nullptr) op.check(signature);
        planned->kernel = declaration.choose_kernel(*sig, signature, &name);
        if (op.workspace != nullptr) workspace = op.workspace(signature);
      });
      if (op.layout == Layout::copied) place_copies(*sig, &planned->copies, &workspace);
      plan_copies(self, *sig, planned.get());
      if (info != nullptr)
        write_sized(info, {0, op.traits, workspace, name, nullptr},
                    offsetof(nw_plan_info, backend));
      if (out != nullptr) *out = planned.release();
    });
  }
  // Where the copies lie, for tensors that are not contiguous; nothing is written where all are.
  static void place_copies(const nw_sig& sig, std::vector<uint64_t>* copies, uint64_t* workspace) {
    const uint32_t count = sig.num_inputs + sig.num_outputs;
    for (uint32_t i = 0; i < count; ++i) {
      const nw_tensor_sig& t = sig.tensors[i];
      if (t.ndim < 0 || !has_elements(t) || (is_contiguous(t) && is_aligned(t))) continue;
      copies->resize(count, Planned::kAsIs);
      uint64_t bytes = t.dtype.bits / 8;
      bool fits = true;
      for (int32_t d = 0; d < t.ndim; ++d)
        fits = fits && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(t.shape[d]), &bytes);
      constexpr uint64_t kAlignment = 256;
      const uint64_t place = (*workspace + kAlignment - 1) / kAlignment * kAlignment;
      if (!fits || __builtin_add_overflow(place, bytes, workspace))
        refuse(NW_UNSUPPORTED, -1, "%s: a contiguous copy of tensor %u has more than 2^64 bytes",
               sig.op, i);
      (*copies)[i] = place;
    }
  }
  static void plan_copies(void* self, const nw_sig& sig, Planned* planned) {
    planned->copy_plans.resize(planned->copies.size());
    const PlanCopy plan_copy = only()->plan_copy_;
    for (uint32_t i = 0; i < planned->copies.size() && plan_copy != nullptr; ++i) {
      if (planned->copies[i] == Planned::kAsIs) continue;
      const nw_tensor_sig& t = sig.tensors[i];
      int64_t strides[NW_MAX_NDIM], size = 1;
      nw_tensor_sig dense = t;
      for (int32_t d = t.ndim - 1; d >= 0; size *= t.shape[d--]) strides[d] = size;
      dense.strides = strides;
      dense.align_log2 = 8;
      const bool is_input = i < sig.num_inputs;
      planned->copy_plans[i] = plan_copy(self, sig, is_input ? t : dense, is_input ? dense : t);
    }
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
    return fail(error, NW_INVALID, -1, message);
  }
  static int32_t allocate(void*, int32_t id, uint64_t size, void* stream, void** data,
                          nw_error* error) {
    if (known(id, stream, error) != NW_OK) return NW_INVALID;
    void* memory = nullptr;
    if (size != 0 && posix_memalign(&memory, 256, size) != 0) {
      char message[96];
      std::snprintf(message, sizeof message, "cannot allocate %llu bytes of host memory",
                    static_cast<unsigned long long>(size));
      return fail(error, NW_OUT_OF_MEMORY, -1, message);
    }
    return *data = memory, NW_OK;
  }
  static int32_t free_memory(void*, int32_t id, void* data, void* stream, nw_error* error) {
    return known(id, stream, error) == NW_OK ? std::free(data), NW_OK : NW_INVALID;
  }
  static int32_t copy_bytes(void*, DLDevice to, void* dst, DLDevice from, const void* src,
                            uint64_t size, void* stream, nw_error* error) {
    if (to.device_type != kDLCPU || from.device_type != kDLCPU)
      return fail(error, NW_UNSUPPORTED, -1, "copy: expected CPU memory");
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
    table_.alloc = allocate;
    table_.free = free_memory;
    table_.copy = copy_bytes;
    table_.stream_create = stream_create;
    table_.stream_destroy = table_.stream_sync = of_stream;
    table_.stream_wait = stream_wait;
    table_.plan = plan;
    table_.plan_free = [](void*, void* plan) { delete static_cast<Planned*>(plan); };
    table_.launch = [](void* self, const void* plan, const nw_call* call, nw_error* error) {
      return run(self, plan, call, error, copy_tensor);
    };
  }

  // Elements are handed out to threads.
  static void copy_tensor(const nw_host& host, const nw_call&, const void*, const DLTensor& from,
                          const DLTensor& to) {
    const detail::StridedCopy copy(from, to);
    host.parallel_for(
        host.ctx, copy.size(), 16384,
        [](void* arg, int64_t begin, int64_t end) {
          static_cast<const detail::StridedCopy*>(arg)->run(begin, end);
        },
        const_cast<detail::StridedCopy*>(&copy));
  }

  const char* name_;
  std::vector<Op> ops_;
  std::deque<std::string> texts_;  // of what ops left out
  std::vector<std::unique_ptr<Declaration>> declared_;
  std::vector<const nw_op*> pointers_;
  nw_error fault_{};
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
