// SPDX-License-Identifier: Apache-2.0
// The pipeline cache on disk: kept, found again, and never trusted.
#include "pipeline_cache.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "driver.h"
#include "environment.h"
#include "opened.h"
#include "runtime.h"

namespace narrows::vulkan::test {
namespace {

namespace fs = std::filesystem;

// An empty folder, named by NARROWS_VULKAN_CACHE.
struct CacheFolder {
  CacheFolder() : path(fs::temp_directory_path() / ("narrows-cache-" + std::to_string(getpid()))) {
    fs::remove_all(path);
    setenv("NARROWS_VULKAN_CACHE", path.c_str(), 1);
  }
  ~CacheFolder() {
    unsetenv("NARROWS_VULKAN_CACHE");
    fs::remove_all(path);
  }
  size_t files() const { return fs::exists(path) ? static_cast<size_t>(std::distance(fs::directory_iterator(path), {})) : 0; }
  fs::path path;
};

// One pipeline on a device that is opened and closed.
std::string use_a_pipeline() {
  Opened opened;
  (void)opened->kernels().get(shaders::steps, {3});
  return pipeline_cache_file(opened.physical);
}

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE("pipeline cache: in the user's cache folder, one file for each device and driver", "[cache]") {
  const Opened opened;
  const EnvironmentVariable none("NARROWS_VULKAN_CACHE", std::nullopt), home("HOME", "/home/of-a-test");
  const auto folder = [&] { return fs::path(pipeline_cache_file(opened.physical)).parent_path().string(); };
  {
    const EnvironmentVariable cache("XDG_CACHE_HOME", "/cache/of-a-test");
    CHECK(folder() == "/cache/of-a-test/narrows");
    const EnvironmentVariable given("NARROWS_VULKAN_CACHE", "/given");
    CHECK(folder() == "/given");
  }
  for (const std::optional<std::string>& no_cache : {std::optional<std::string>(), std::optional<std::string>("relative")}) {
    const EnvironmentVariable cache("XDG_CACHE_HOME", no_cache);
    CHECK(folder() == "/home/of-a-test/.cache/narrows");
    const EnvironmentVariable homeless("HOME", std::nullopt);
    CHECK(pipeline_cache_file(opened.physical).empty());
  }
  std::set<std::string> files;
  PhysicalDevice device = opened.physical;
  files.insert(pipeline_cache_file(device));
  ++device.properties.driverVersion;
  files.insert(pipeline_cache_file(device));
  device.properties.pipelineCacheUUID[VK_UUID_SIZE - 1] ^= 1;
  files.insert(pipeline_cache_file(device));
  ++device.properties.deviceID;
  files.insert(pipeline_cache_file(device));
  ++device.properties.vendorID;
  files.insert(pipeline_cache_file(device));
  CHECK(files.size() == 5);
}

// Run by the next test, in a process of its own.
TEST_CASE("pipeline cache: this process begins with what another one has left", "[.][kept]") {
  const Driver driver;
  use_a_pipeline();
  CHECK(driver.kept_pipelines() > 0);
}

TEST_CASE("pipeline cache: another process has what this one made", "[cache]") {
  const CacheFolder folder;
  const std::string other = "'" + fs::read_symlink("/proc/self/exe").string() + "' '[kept]' > /dev/null 2>&1";
  CHECK(std::system(other.c_str()) != 0);  // there is none yet; it leaves one
  REQUIRE(folder.files() == 1);
  CHECK(std::system(other.c_str()) == 0);
  const Driver driver;
  use_a_pipeline();
  CHECK(driver.kept_pipelines() > 0);
  const std::string file = use_a_pipeline();
  std::ofstream(file, std::ios::binary | std::ios::trunc) << "damaged";
  use_a_pipeline();
  CHECK(driver.kept_pipelines() == 0);
}

// Run by the next test: as programs end whose language destroys nothing at exit.
TEST_CASE("pipeline cache: this process ends without destroying its runtime", "[.][undestroyed]") {
  const auto* const rt = new Runtime(here());
  void* data = nullptr;
  REQUIRE(nw_alloc(rt->handle, on(0), 4000, nullptr, &data, nullptr) == NW_OK);
  REQUIRE(add(*rt, 0, data, data, data, 1000) == NW_OK);
  std::_Exit(nw_stream_sync(rt->handle, on(0), nullptr, nullptr));
}

TEST_CASE("pipeline cache: a process that never destroys its runtime leaves one too", "[cache]") {
  const CacheFolder folder;
  const std::string other = "'" + fs::read_symlink("/proc/self/exe").string() + "' '[undestroyed]' > /dev/null 2>&1";
  REQUIRE(std::system(other.c_str()) == 0);
  CHECK(folder.files() == 1);  // and nothing half written
  const Driver driver;
  const Opened opened;
  CHECK(driver.kept_pipelines() > 0);
}

// A driver whose cache grows by a byte a pipeline, each of which takes that long to make, and to be handed out.
struct GrowingCache {
  GrowingCache(Device& device, std::chrono::milliseconds making, std::chrono::milliseconds saving) {
    make_takes = making, save_takes = saving;
    bytes = 100, saves = 0;
    create = std::exchange(device.vk.vkCreateComputePipelines,
                           [](VkDevice on, VkPipelineCache cache, uint32_t count, const VkComputePipelineCreateInfo* info,
                              const VkAllocationCallbacks* callbacks, VkPipeline* made) {
                             std::this_thread::sleep_for(make_takes);
                             ++bytes;
                             return create(on, cache, count, info, callbacks, made);
                           });
    device.vk.vkGetPipelineCacheData = [](VkDevice, VkPipelineCache, size_t* size, void* data) {
      if (data != nullptr) {
        std::this_thread::sleep_for(save_takes);
        std::memset(data, 0, *size);
        ++saves;
      }
      *size = bytes;
      return VK_SUCCESS;
    };
  }
  inline static std::chrono::milliseconds make_takes, save_takes;
  inline static size_t bytes;
  inline static int saves;
  inline static PFN_vkCreateComputePipelines create;
};

TEST_CASE("pipeline cache: saved as it grows, where that takes little beside what is saved", "[cache]") {
  const CacheFolder folder;
  Opened opened;
  const std::string file = pipeline_cache_file(opened.physical);
  for (const bool is_slow : {true, false}) {
    using std::chrono::milliseconds;
    const auto device = std::make_unique<Device>(*opened.loader, opened.physical, 0, false);
    const GrowingCache cache(*device, milliseconds(is_slow ? 100 : 0), milliseconds(is_slow ? 0 : 100));
    uint32_t made = 0;
    const auto make = [&] { (void)device->kernels().get(shaders::steps, {++made}); };
    make();
    CHECK(read_pipeline_cache(file).size() == 101);
    do make();
    while (made < (is_slow ? 100 : 5) && cache.saves == 1);
    CHECK(read_pipeline_cache(file).size() == (is_slow ? 100 + made : 101));
    CHECK(cache.saves == (is_slow ? 2 : 1));
    fs::remove(file);
  }
}

TEST_CASE("pipeline cache: what is written is read", "[cache]") {
  const CacheFolder folder;
  const std::string file = (folder.path / "deep" / "file").string();
  const std::vector<char> data{'a', '\0', 'b'};
  CHECK(read_pipeline_cache(file).empty());
  CHECK(write_pipeline_cache(file, data));
  CHECK(read_pipeline_cache(file) == data);
  CHECK(write_pipeline_cache(file, {'c'}));
  CHECK(read_pipeline_cache(file) == std::vector<char>{'c'});
  CHECK_FALSE(write_pipeline_cache("/proc/nowhere/file", data));
}

TEST_CASE("pipeline cache: a damaged file counts as none", "[cache]") {
  const CacheFolder folder;
  const std::string file = use_a_pipeline();
  REQUIRE(folder.files() == 1);
  const std::string good = bytes_of(file);
  REQUIRE_FALSE(read_pipeline_cache(file).empty());
  for (size_t at = 0; at <= good.size(); at += 1 + good.size() / 200) {
    std::string cut = good.substr(0, at), flipped = good;
    if (at < good.size()) flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    for (const std::string& bad : {cut, flipped, good + "x"}) {
      if (bad == good) continue;
      std::ofstream(file, std::ios::binary | std::ios::trunc) << bad;
      INFO(at);
      REQUIRE(read_pipeline_cache(file).empty());
    }
  }
  CHECK(use_a_pipeline() == file);  // and is replaced
  CHECK_FALSE(read_pipeline_cache(file).empty());
}

TEST_CASE("pipeline cache: a full disk, a folder that is none, none wanted", "[cache]") {
  const CacheFolder folder;
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit{}, before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  limit = before;
  limit.rlim_cur = 10;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  use_a_pipeline();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(folder.files() == 0);  // nothing half written stays
  setenv("NARROWS_VULKAN_CACHE", "/dev/null/folder", 1);
  use_a_pipeline();
  setenv("NARROWS_VULKAN_CACHE", "", 1);
  CHECK(use_a_pipeline().empty());
  unsetenv("NARROWS_VULKAN_CACHE");
}

}  // namespace
}  // namespace narrows::vulkan::test
