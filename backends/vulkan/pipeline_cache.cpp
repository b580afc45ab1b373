// SPDX-License-Identifier: Apache-2.0
// pipeline_cache.cpp -- see pipeline_cache.h.
#define XXH_INLINE_ALL
#include "pipeline_cache.h"

#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace narrows::vulkan {
namespace {

namespace fs = std::filesystem;

// Before the driver's bytes: drivers look at their own header, and trust the rest.
struct Header {
  char magic[8];
  uint64_t size;
  uint64_t hash;
};
constexpr char kMagic[] = "NWVKPC1";
constexpr uint64_t kLargest = uint64_t{256} << 20;

fs::path folder() {
  if (const char* given = secure_getenv("NARROWS_VULKAN_CACHE")) return given;
  if (const char* cache = secure_getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') return fs::path(cache) / "narrows";
  if (const char* home = secure_getenv("HOME"); home != nullptr && home[0] == '/') return fs::path(home) / ".cache" / "narrows";
  return {};
}

}  // namespace

std::string pipeline_cache_file(const PhysicalDevice& device) {
  const fs::path where = folder();
  if (where.empty()) return "";
  const VkPhysicalDeviceProperties& p = device.properties;
  char name[128];
  int length = std::snprintf(name, sizeof(name), "vulkan-%04x-%04x-%08x-", p.vendorID, p.deviceID, p.driverVersion);
  for (const uint8_t byte : p.pipelineCacheUUID)
    length += std::snprintf(name + length, sizeof(name) - static_cast<size_t>(length), "%02x", byte);
  return (where / (std::string(name) + ".bin")).string();
}

std::vector<char> read_pipeline_cache(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  Header header;
  if (!in.read(reinterpret_cast<char*>(&header), sizeof(header))) return {};
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0 || header.size > kLargest) return {};
  std::error_code error;
  if (fs::file_size(file, error) != sizeof(header) + header.size) return {};
  std::vector<char> data(header.size);
  if (!in.read(data.data(), static_cast<std::streamsize>(data.size()))) return {};
  return XXH64(data.data(), data.size(), 0) == header.hash ? data : std::vector<char>{};
}

bool write_pipeline_cache(const std::string& file, const std::vector<char>& data) {
  if (data.empty() || data.size() > kLargest) return false;
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  if (error) return false;
  static std::atomic<uint32_t> count{0};  // a process may have several devices of one kind
  const std::string fresh = file + "." + std::to_string(getpid()) + "." + std::to_string(count++);
  Header header{{}, data.size(), XXH64(data.data(), data.size(), 0)};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&header), sizeof(header));
  out.write(data.data(), static_cast<std::streamsize>(data.size()));
  out.close();
  if (out) fs::rename(fresh, file, error);
  if (out && !error) return true;
  fs::remove(fresh, error);
  return false;
}

}  // namespace narrows::vulkan
