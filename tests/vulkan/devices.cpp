// SPDX-License-Identifier: Apache-2.0
// Several devices: lavapipe's manifest under two names stands for two drivers, and each of them has a physical device.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "calls.h"
#include "driver.h"
#include "environment.h"
#include "opened.h"
#include "runtime.h"

namespace narrows::vulkan::test {
namespace {

namespace fs = std::filesystem;

std::string lavapipe_manifest() {
  for (const char* folder : {"/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"}) {
    std::error_code error;
    for (const auto& file : fs::directory_iterator(folder, error))
      if (file.path().filename().string().rfind("lvp_icd", 0) == 0) return file.path();
  }
  return "";
}

// A loader that begins while it lives finds two drivers.
class TwoDrivers {
 public:
  TwoDrivers() : folder_(fs::temp_directory_path() / ("narrows-drivers-" + std::to_string(getpid()))) {
    const std::string manifest = lavapipe_manifest();
    if (manifest.empty()) SKIP("two drivers are made of Mesa's lavapipe, which is not installed (mesa-vulkan-drivers)");
    fs::create_directory(folder_);
    const fs::path one = folder_ / "one.json", two = folder_ / "two.json";
    fs::copy_file(manifest, one);
    fs::copy_file(manifest, two);
    files_.emplace("VK_DRIVER_FILES", one.string() + ":" + two.string());
    names_.emplace("VK_ICD_FILENAMES", one.string() + ":" + two.string());  // of loaders before 1.3.207
  }
  ~TwoDrivers() { fs::remove_all(folder_); }
  TwoDrivers(const TwoDrivers&) = delete;
  TwoDrivers& operator=(const TwoDrivers&) = delete;

 private:
  const fs::path folder_;
  std::optional<EnvironmentVariable> files_, names_;
};

// 1000 floats on a device.
class Floats {
 public:
  Floats(const Runtime& rt, int32_t id, float value) : rt_(rt), id_(id) {
    const std::vector<float> values(1000, value);
    REQUIRE(nw_alloc(rt.handle, on(id), 4000, nullptr, &data, nullptr) == NW_OK);
    REQUIRE(nw_copy(rt.handle, on(id), data, {kDLCPU, 0}, values.data(), 4000, nullptr, nullptr) == NW_OK);
    REQUIRE(nw_stream_sync(rt.handle, on(id), nullptr, nullptr) == NW_OK);  // before the values go
  }
  ~Floats() { nw_free(rt_.handle, on(id_), data, nullptr, nullptr); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  bool are(float value) const {
    std::vector<float> values(1000);
    REQUIRE(nw_copy(rt_.handle, {kDLCPU, 0}, values.data(), on(id_), data, 4000, nullptr, nullptr) == NW_OK);
    REQUIRE(nw_stream_sync(rt_.handle, on(id_), nullptr, nullptr) == NW_OK);
    return values == std::vector<float>(1000, value);
  }
  void* data = nullptr;

 private:
  const Runtime& rt_;
  const int32_t id_;
};

TEST_CASE("devices: each of two has memory and streams of its own", "[devices]") {
  const TwoDrivers drivers;
  const Runtime rt;
  nw_error error;
  nw_vulkan_device seen[2]{};
  for (int32_t id : {0, 1}) {
    seen[id].struct_size = sizeof seen[id];
    REQUIRE(rt.vulkan->device(rt.vulkan->self, id, &seen[id], &error) == NW_OK);
  }
  CHECK(seen[0].device != seen[1].device);
  CHECK(seen[0].physical_device != seen[1].physical_device);
  CHECK(rt.vulkan->device(rt.vulkan->self, 2, &seen[0], &error) == NW_INVALID);
  CHECK(std::strstr(error.message, "device 2 was asked for; there are 2, from 0") != nullptr);

  const Floats first(rt, 0, 1), second(rt, 1, 10);
  CHECK(add(rt, 0, first.data, first.data, first.data, 1000) == NW_OK);
  CHECK(add(rt, 1, second.data, second.data, second.data, 1000) == NW_OK);
  CHECK(first.are(2));
  CHECK(second.are(20));

  const auto refused = [&](int32_t status, int32_t argument, const char* words) {
    CHECK(error.status == status);
    CHECK(error.argument == argument);
    INFO(error.message);
    CHECK(std::strstr(error.message, words) != nullptr);
  };
  CHECK(add(rt, 0, first.data, second.data, first.data, 1000, &error) != NW_OK);
  refused(NW_INVALID, 1, "lie in no live allocation of device 0: a host pointer, an address of another device, or freed");
  CHECK(add(rt, 1, second.data, second.data, first.data, 1000, &error) != NW_OK);
  refused(NW_INVALID, 2, "lie in no live allocation of device 1");
  CHECK(nw_free(rt.handle, on(0), second.data, nullptr, &error) != NW_OK);
  CHECK(error.status == NW_INVALID);
  CHECK(nw_copy(rt.handle, on(1), second.data, on(0), first.data, 4000, nullptr, &error) != NW_OK);
  refused(NW_UNSUPPORTED, -1, "a copy from device 0 to device 1; copy through host memory");

  void* stream = nullptr;
  REQUIRE(nw_stream_create(rt.handle, on(1), &stream, &error) == NW_OK);
  CHECK(add(rt, 1, second.data, second.data, second.data, 1000, &error, stream) == NW_OK);
  CHECK(add(rt, 0, first.data, first.data, first.data, 1000, &error, stream) != NW_OK);
  refused(NW_INVALID, -1, "does not belong to device 0");
  CHECK(nw_stream_wait(rt.handle, on(0), nullptr, stream, &error) != NW_OK);
  refused(NW_INVALID, -1, "does not belong to device 0");
  CHECK(nw_stream_destroy(rt.handle, on(1), stream, &error) == NW_OK);
  CHECK(first.are(2));
  CHECK(second.are(40));
}

TEST_CASE("devices: NARROWS_VULKAN_DEVICE leaves one of two, as number 0", "[devices]") {
  const TwoDrivers drivers;
  const auto loader = Loader::get();
  const std::vector<VkPhysicalDevice> all = loader->physical_devices();
  REQUIRE(all.size() == 2);
  for (const size_t index : {0, 1}) {
    const EnvironmentVariable chosen("NARROWS_VULKAN_DEVICE", std::to_string(index));
    CHECK(loader->physical_devices() == std::vector<VkPhysicalDevice>{all[index]});
    const Runtime rt;
    nw_vulkan_device seen{};
    seen.struct_size = sizeof seen;
    CHECK(rt.vulkan->device(rt.vulkan->self, 0, &seen, nullptr) == NW_OK);
    CHECK(rt.vulkan->device(rt.vulkan->self, 1, &seen, nullptr) == NW_INVALID);
  }
  const EnvironmentVariable chosen("NARROWS_VULKAN_DEVICE", "2");
  CHECK(refusal([&] { (void)loader->physical_devices(); }).find("expected an index below 2") != std::string::npos);
}

// The Vulkan drivers that this process has loaded.
std::set<std::string> drivers() {
  std::set<std::string> objects, found;
  const auto add = [](dl_phdr_info* object, size_t, void* to) {
    return static_cast<std::set<std::string>*>(to)->emplace(object->dlpi_name), 0;
  };
  dl_iterate_phdr(add, &objects);
  objects.erase("");  // the program itself
  for (const std::string& name : objects) {
    void* const library = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    if (dlsym(library, "vk_icdGetInstanceProcAddr") != nullptr) found.insert(name);
    dlclose(library);
  }
  return found;
}

// NVIDIA's driver could be loaded thirty times.
TEST_CASE("devices: runtimes are made and destroyed again and again, and the driver stays", "[devices]") {
  for (int i = 0; i < 40; ++i) {
    std::set<std::string> before;
    {
      const Runtime rt(here());
      const Floats values(rt, 0, static_cast<float>(i));
      CHECK(values.are(static_cast<float>(i)));
      before = drivers();
    }
    CHECK(!before.empty());
    CHECK(drivers() == before);
  }
}

TEST_CASE("devices: drivers without a device, or with none that is fit, make the backend unavailable", "[devices]") {
  const Driver driver;
  nw_error error;
  nw_device_info info{};
  info.struct_size = sizeof info;
  const auto asked = [&] {
    nw_runtime* rt = nullptr;
    REQUIRE(nw_runtime_create(nullptr, &rt, nullptr) == NW_OK);
    REQUIRE(nw_load(rt, here(), nullptr) == NW_OK);
    const int32_t status = nw_device(rt, on(0), &info, &error);
    nw_runtime_destroy(rt);
    return status;
  };
  const auto enumerate = std::exchange(vkEnumeratePhysicalDevices, [](VkInstance, uint32_t* count, VkPhysicalDevice*) -> VkResult {
    *count = 0;
    return VK_SUCCESS;
  });
  CHECK(asked() == NW_UNAVAILABLE);
  INFO(error.message);
  constexpr const char* kNone = "vulkan: there is no device; install the GPU's driver";
  CHECK(std::strstr(error.message, kNone) == error.message);  // the name once
  {
    const EnvironmentVariable chosen("NARROWS_VULKAN_DEVICE", "1");  // of none there is no index to be wrong about
    CHECK(asked() == NW_UNAVAILABLE);
    CHECK(std::strstr(error.message, kNone) == error.message);
  }
  vkEnumeratePhysicalDevices = enumerate;
  CHECK(asked() == NW_OK);
  static PFN_vkGetPhysicalDeviceFeatures features = nullptr;
  features = std::exchange(vkGetPhysicalDeviceFeatures, [](VkPhysicalDevice device, VkPhysicalDeviceFeatures* has) {
    features(device, has);
    has->shaderInt16 = VK_FALSE;
  });
  CHECK(asked() == NW_UNAVAILABLE);
  vkGetPhysicalDeviceFeatures = features;
  INFO(error.message);
  CHECK(std::strstr(error.message, "there is no device: ") != nullptr);
  CHECK(std::strstr(error.message, " lacks the feature shaderInt16; install") != nullptr);
}

TEST_CASE("devices: without shaderFloat64 every op refuses f64 by that name, and takes f32", "[devices]") {
  const Driver driver({.without_f64 = true});
  const Runtime rt(here());
  for (const DLDataType dtype : {kF64, kF32}) {
    const Tensor row{dtype, {30}}, rows{dtype, {20, 30}};
    const Conv conv{2, 3, 40, 3, 3};
    const Call calls[] = {elementwise(NW_EW_ADD, {rows, row}, rows),
                          elementwise_backward(NW_EW_MUL, {rows, row}, rows),
                          conv1d(dtype, conv),
                          conv1d_backward(dtype, conv),
                          lltm(dtype, 3, 4, 5),
                          lltm_backward(dtype, 3, 4, 5)};
    for (const Call& call : calls)
      for (const char* kernel : kernels(rt, call.op)) {
        Prepared prepared(rt, call, kernel);
        const std::vector<Bytes> before = prepared.outputs();
        nw_error error{};
        const int32_t status = prepared.run(&error);
        INFO(call.op << ", " << (kernel ? kernel : "its own choice") << ": " << error.message);
        const bool is_f64 = dtype.bits == 64;
        CHECK((status == (is_f64 ? NW_UNSUPPORTED : NW_OK) || (status == NW_UNSUPPORTED && kernel != nullptr)));
        CHECK((prepared.outputs() == before) == (status != NW_OK));
        if (is_f64 && kernel == nullptr) CHECK(std::strstr(error.message, "lacks shaderFloat64 ") != nullptr);
      }
  }
  // Casts work on bits.
  const Tensor doubles{kF64, {30}}, halves{kF16, {30}};
  CHECK(Prepared(rt, elementwise(NW_EW_CAST, {doubles}, halves)).run() == NW_OK);
}

}  // namespace
}  // namespace narrows::vulkan::test
