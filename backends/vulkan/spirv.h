// SPDX-License-Identifier: Apache-2.0
// spirv.h -- a module's words for one device and one pipeline.
#pragma once

#include <vector>

#include "kernels.h"
#include "physical.h"

namespace narrows::vulkan {

// Refuses a module that needs a capability which the device lacks. Float controls that it lacks are left out, since they only ask
// for what the functions are written to do without. Of a switch over a specialization constant one case stays, and no function that
// cannot be called then: drivers and validation read all there is, which takes them a second for a module of 70 functions, and tens
// of milliseconds for one of them. `constants`: as in Kernels::get().
std::vector<uint32_t> words_for(const PhysicalDevice& device, const Shader& shader, const std::vector<uint32_t>& constants);

// Refuses, with NW_INVALID, what is no whole module of a compute shader with an entry point "main", or has descriptors: a plugin's
// modules come from outside.
void check_module(const std::vector<uint32_t>& words);

// Whether a module uses cooperative matrices; only work groups of whole subgroups run it then.
bool uses_matrices(const std::vector<uint32_t>& words);

}  // namespace narrows::vulkan
