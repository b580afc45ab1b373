// SPDX-License-Identifier: Apache-2.0
// backend.h -- the instance of the vulkan backend, its devices and its ops. plugin.cpp holds the table; each ops/<op>.cpp plans an
// op and records it on a stream.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <vector>

#include "device.h"
#include "loader.h"
#include "modules.h"
#include "shaders.h"

namespace narrows::vulkan {

// A device, opened at its first use, or adopted.
struct Slot {
  explicit Slot(const PhysicalDevice& device) : physical(device) {}
  PhysicalDevice physical;
  std::mutex mutex;
  std::unique_ptr<Device> device;
};

// What create() makes, once per runtime.
struct Instance {
  const nw_host* host;
  bool checked;  // NARROWS_CHECK=1
  std::shared_ptr<Loader> loader;

  Slot& slot(int32_t id) const;      // refuses an id that is none
  Device& device(int32_t id) const;  // opens it if need be; calls hold it by DeviceInUse
  int32_t count() const;
  // One more device; its number. adopted: the application's, which is opened at once; where that fails nothing is added.
  int32_t add(const PhysicalDevice& physical, const nw_vulkan_device* adopted = nullptr);
  Device& device(const nw_sig& sig) const { return device(sig.device.device_id); }  // that a call is planned on

  nw_vulkan extension;  // of this instance
  nw_vulkan_kernels kernels_extension;
  Modules modules;

 private:
  mutable std::shared_mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;  // none ever goes
};

// Refuses, with NW_INVALID, a call of which a tensor or the workspace does not lie in a live allocation of the device: a foreign or
// freed address is an error and never a crash.
void require_live(Device& device, const nw_call& call, uint64_t workspace_size);

// "vulkan/1" for an instance: extension.cpp.
nw_vulkan make_extension(Instance& instance);

using Op = common::Op<Instance>;
#define NARROWS_OP(name) extern const Op name;
#include "ops.inc"
#undef NARROWS_OP

// A planned call of one device: host memory only. Its kernels belong to the device.
class DevicePlan : public Plan {
 public:
  explicit DevicePlan(Device& device) : device(device) { traits = 0; }  // no stream of this backend is ever captured
  void launch(const nw_call& call) const override {
    device.stream(call.stream)->record([&](Recorder& recorder) { record(recorder, call); });
  }
  // Puts the call on a stream. call.workspace is an address of workspace_size bytes.
  virtual void record(Recorder& recorder, const nw_call& call) const = 0;

  Device& device;
};

// Address of a tensor's first element; 0 for an absent tensor.
inline Address address(const DLTensor* t) { return reinterpret_cast<Address>(data<void>(t)); }
inline Address workspace(const nw_call& call) { return reinterpret_cast<Address>(call.workspace); }

}  // namespace narrows::vulkan
