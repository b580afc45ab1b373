// SPDX-License-Identifier: Apache-2.0
// backend.h -- the instance of the template backend, and its ops. plugin.cpp holds the table and turns exceptions into statuses;
// ops/<op>.cpp plans and launches one op.
#pragma once

#include "device.h"

namespace narrows::template_backend {

using namespace common;

constexpr DLDeviceType kDeviceType = kDLExtDev;  // which tensors are this backend's, by DLTensor.device

// What create() makes, once per runtime. Immutable afterwards.
struct Instance {
  const nw_host* host;
  Device* device;
};

using Op = common::Op<Instance>;
extern const Op conv1d;

}  // namespace narrows::template_backend
