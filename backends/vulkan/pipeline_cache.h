// SPDX-License-Identifier: Apache-2.0
// pipeline_cache.h -- compiled pipelines on disk, for the next process. One file for each device and driver, in
// NARROWS_VULKAN_CACHE, or else in narrows/ of the user's cache folder (XDG_CACHE_HOME, ~/.cache). NARROWS_VULKAN_CACHE= (empty):
// none. A file that is damaged, or of another driver, counts as none; one that cannot be written is left out. Nothing here throws
// or fails a call.
#pragma once

#include <string>
#include <vector>

#include "physical.h"

namespace narrows::vulkan {

// "": there is no place for one.
std::string pipeline_cache_file(const PhysicalDevice& device);
// What the driver once gave, or nothing.
std::vector<char> read_pipeline_cache(const std::string& file);
// Replaces the file as a whole: a reader sees the old one or the new one.
bool write_pipeline_cache(const std::string& file, const std::vector<char>& data);

}  // namespace narrows::vulkan
