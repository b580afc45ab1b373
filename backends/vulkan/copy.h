// SPDX-License-Identifier: Apache-2.0
// copy.h -- copies within a device.
#pragma once

#include "device.h"

namespace narrows::vulkan {

// Puts the copy on the stream. Refuses bytes that lie in no live allocation, and sides that overlap.
void copy_within(Device& device, Stream& stream, Address to, Address from, uint64_t size);

}  // namespace narrows::vulkan
