// SPDX-License-Identifier: Apache-2.0
/// @file plugin_vulkan.hpp
/// @brief plugin.hpp for Vulkan's devices: a plugin from ops whose kernels are compute shaders.
///
/// The devices, memory and streams are those of the vulkan backend, which must be there. The plugin
/// links nothing of Vulkan. It is C++20.
///
/// A shader takes tensors by address:
///
/// @code{.glsl}
/// #version 460
/// #include <narrows/kernel.glsl>
/// layout(local_size_x = 256) in;
/// NARROWS_POINTER(Floats, float, 4)
/// layout(push_constant) uniform Push { Floats x, y; uint64_t n; float factor; };
/// void main() {
///   const uint64_t i = narrows_index();
///   if (i < n) at(y, i).value = factor * at(x, i).value;
/// }
/// @endcode
///
/// `glslc --target-env=vulkan1.2 -mfmt=num` writes its words, of which an array is made. build()
/// and load_inline() of the Python package do so.
///
/// @code{.cpp}
/// constexpr uint32_t times[] = {
/// #include "times.inc"
/// };
/// struct Push { const float* x; float* y; uint64_t n; float factor; };
/// void scale(const narrows::plugin::Launch& call) {
///   const auto n = static_cast<uint64_t>(call.size(0));
///   const Push push{call.input<float>(0), call.output<float>(0), n, 2.0F};
///   narrows::plugin::dispatch(call, times, push, narrows::plugin::groups(n, 256));
/// }
/// NARROWS_VULKAN_PLUGIN(
///     "mine", {.name = "mine.scale/1", .inputs = {"x"}, .outputs = {"y"}, .kernel = scale})
/// @endcode
///
/// This is step 4 of a tensor's path in docs/design.md.
///
/// The op's function must not wait for the GPU, and must not touch what the pointers point to.
/// Everything else is as in plugin.hpp.
#ifndef NARROWS_PLUGIN_VULKAN_HPP
#define NARROWS_PLUGIN_VULKAN_HPP

#include <narrows/ops.h>
#include <narrows/vulkan.h>

#include <map>
#include <mutex>
#include <narrows/plugin.hpp>

namespace narrows::plugin {

/// @defgroup cpp_vulkan C++: plugins for Vulkan's devices
/// @{

/// Work groups along x, y and z.
struct Groups {
  /// Along x.
  uint32_t x = 1;
  /// Along y.
  uint32_t y = 1;
  /// Along z.
  uint32_t z = 1;
};

/// As many groups of `local_size` threads as give `n` threads or more: along x, and along y where
/// x is too few. narrows_index() of kernel.glsl numbers the threads. At most 2^30 groups; more
/// throw std::invalid_argument.
inline Groups groups(uint64_t n, uint32_t local_size) {
  constexpr uint64_t kMostAlong = 32768;  // every device runs 65,535
  const uint64_t all = n / local_size + (n % local_size != 0 ? 1 : 0);
  if (all > kMostAlong * kMostAlong)
    throw std::invalid_argument("n is " + std::to_string(n) + "; expected at most 2^30 groups of " +
                                std::to_string(local_size));
  if (all <= kMostAlong) return {static_cast<uint32_t>(all)};
  return {kMostAlong, static_cast<uint32_t>((all + kMostAlong - 1) / kMostAlong)};
}

/// @cond
namespace detail {

// The host as the ops of a Vulkan plugin have it.
struct VulkanHost : nw_host {
  const nw_vulkan_kernels* kernels = nullptr;
  mutable std::mutex mutex;
  mutable std::map<const uint32_t*, const void*> modules;  // by where their words are

  const void* module(const uint32_t* words, size_t size) const {
    const std::lock_guard lock(mutex);
    const void*& out = modules[words];
    nw_error error;
    if (out == nullptr && kernels->module(kernels->self, words, size, &out, &error) != NW_OK)
      refuse(error.status, -1, "%s", error.message);
    return out;
  }
};

}  // namespace detail
/// @endcond

/// Puts a shader on the stream of a call. It waits for what is there before it.
///
/// @param call       The call of an op of a #NARROWS_VULKAN_PLUGIN.
/// @param words      The SPIR-V module: an array that lives as long as the plugin.
/// @param push       The push constants, as the shader declares them: at most 128 bytes. Pointers
/// are addresses.
/// @param groups     How many work groups run.
/// @param constants  Values of the specialization constants 0, 1, 2, ... At most 16.
///
/// Throws Refusal, with the backend's words: the module is none, or needs what the device lacks; a
/// tensor lies in no live allocation.
template <size_t N, class Push>
void dispatch(const Launch& call, const uint32_t (&words)[N], const Push& push, Groups groups,
              const std::vector<uint32_t>& constants = {}) {
  static_assert(std::is_trivially_copyable_v<Push>, "expected a struct of numbers and pointers");
  static_assert(sizeof(Push) % 4 == 0 && sizeof(Push) <= 128, "expected at most 128 bytes");
  const auto& host = static_cast<const detail::VulkanHost&>(call.host());
  const nw_vulkan_dispatch one{sizeof one,
                               0,
                               host.module(words, sizeof words),
                               constants.data(),
                               &push,
                               static_cast<uint32_t>(constants.size()),
                               sizeof push,
                               {groups.x, groups.y, groups.z},
                               0};
  const nw_vulkan_dispatch* const list[] = {&one};
  nw_error error;
  if (host.kernels->launch(host.kernels->self, &call.raw(), list, 1, &error) != NW_OK)
    refuse(error.status, error.argument, "%s", error.message);
}

/// The plugin's table for Vulkan's devices. Each library has its own. #NARROWS_VULKAN_PLUGIN makes
/// it.
class __attribute__((visibility("hidden"))) VulkanPlugin : public Plugin {
 public:
  /// Makes the table of a plugin with these ops.
  VulkanPlugin(const char* name, std::vector<Op> ops) : Plugin(name, std::move(ops)) {
    table_.device_type = kDLVulkan;
    table_.create = create;
    table_.destroy = [](void* self) { delete static_cast<detail::VulkanHost*>(self); };
    table_.device_count = pass_on<&nw_plugin::device_count>;
    table_.device_info = pass_on<&nw_plugin::device_info>;
    table_.alloc = pass_on<&nw_plugin::alloc>;
    table_.free = pass_on<&nw_plugin::free>;
    table_.copy = pass_on<&nw_plugin::copy>;
    table_.stream_create = pass_on<&nw_plugin::stream_create>;
    table_.stream_destroy = pass_on<&nw_plugin::stream_destroy>;
    table_.stream_sync = pass_on<&nw_plugin::stream_sync>;
    table_.stream_wait = pass_on<&nw_plugin::stream_wait>;
    table_.launch = [](void* self, const void* plan, const nw_call* call, nw_error* error) {
      nw_host* const host = static_cast<detail::VulkanHost*>(self);
      return run(host, plan, call, error, copy_tensor);
    };
    plan_copy_ = plan_copy;
  }

 private:
  // A slot that is the backend's own.
  template <auto Slot, class... Given>
  static int32_t pass_on(void* self, Given... given) {
    const nw_vulkan_kernels& kernels = *static_cast<detail::VulkanHost*>(self)->kernels;
    return (kernels.plugin->*Slot)(kernels.self, given...);
  }
  // By the backend's own casts, of the elements' bits as integers.
  static std::shared_ptr<void> plan_copy(void* self, const nw_sig& call, const nw_tensor_sig& from,
                                         const nw_tensor_sig& to) {
    const nw_vulkan_kernels& kernels = *static_cast<detail::VulkanHost*>(self)->kernels;
    nw_tensor_sig tensors[] = {from, to};
    for (nw_tensor_sig& t : tensors) t.dtype.code = kDLUInt;
    nw_elementwise_params params{};
    params.function = NW_EW_CAST;
    switch (from.dtype.bits) {
      case 8: params.out_dtype = NW_DTYPE_UINT8; break;
      case 16: params.out_dtype = NW_DTYPE_UINT16; break;
      case 32: params.out_dtype = NW_DTYPE_UINT32; break;
      default: params.out_dtype = NW_DTYPE_UINT64;
    }
    const nw_sig sig{sizeof sig,    0,          1, 1, "elementwise", nullptr, tensors, &params,
                     sizeof params, call.device};
    void* plan = nullptr;
    nw_plan_info info{};
    info.struct_size = sizeof info;
    nw_error error;
    if (kernels.plugin->plan(kernels.self, &sig, &plan, &info, &error) != NW_OK)
      refuse(error.status, -1, "%s: a tensor cannot be copied to a contiguous one: %s", call.op,
             error.message);
    std::shared_ptr<void> out(plan,
                              [&kernels](void* p) { kernels.plugin->plan_free(kernels.self, p); });
    if (info.workspace_size != 0)
      refuse(NW_UNSUPPORTED, -1, "%s: a copy of a tensor needs %llu bytes; expected none", call.op,
             static_cast<unsigned long long>(info.workspace_size));
    return out;
  }
  static void copy_tensor(const nw_host& host, const nw_call& call, const void* plan,
                          const DLTensor& from, const DLTensor& to) {
    const nw_vulkan_kernels& kernels = *static_cast<const detail::VulkanHost&>(host).kernels;
    DLTensor tensors[] = {from, to};
    for (DLTensor& t : tensors) t.dtype.code = kDLUInt;
    const DLTensor *const input = &tensors[0], *const output = &tensors[1];
    nw_call one{};
    one.struct_size = sizeof one;
    one.op = "elementwise";
    one.num_inputs = one.num_outputs = 1;
    one.inputs = &input;
    one.outputs = &output;
    one.stream = call.stream;
    one.device = call.device;
    nw_error error;
    if (kernels.plugin->launch(kernels.self, plan, &one, &error) != NW_OK)
      refuse(error.status, -1, "%s", error.message);
  }
  static int32_t create(const nw_host* host, void** self, nw_error* error) {
    return guarded(error, [&] {
      const bool can_ask = host->struct_size > offsetof(nw_host, extension);  // since ABI 1.2
      const void* const found =
          can_ask ? host->extension(host->ctx, "vulkan", "vulkan_kernels/1") : nullptr;
      if (found == nullptr)
        refuse(NW_UNAVAILABLE, -1, "%s",
               can_ask ? "the vulkan backend is not here; this plugin runs on its devices"
                       : "this narrows has no nw_host.extension; expected ABI 1.2 or newer");
      auto made = std::make_unique<detail::VulkanHost>();
      std::memcpy(static_cast<nw_host*>(made.get()), host,
                  std::min<size_t>(host->struct_size, sizeof(nw_host)));
      made->kernels = static_cast<const nw_vulkan_kernels*>(found);
      *self = made.release();
    });
  }
};

/// @}

}  // namespace narrows::plugin

/// @ingroup cpp_vulkan
/// @hideinitializer
/// Defines the one symbol that the host looks up, as #NARROWS_PLUGIN does, for Vulkan's devices.
///
/// @param NAME  Name of the plugin.
/// @param ...   One Op in braces, or several with ',' between them.
#define NARROWS_VULKAN_PLUGIN(NAME, ...)                                                        \
  const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {                 \
    static const auto* const plugin =                                                           \
        new narrows::plugin::VulkanPlugin(NAME, std::vector<narrows::plugin::Op>{__VA_ARGS__}); \
    return plugin->table(host_major, error);                                                    \
  }
#endif
