// SPDX-License-Identifier: Apache-2.0
// test_errors.cpp -- core/error.cpp: the message is cut safely, NULL is accepted, nothing is written on success.
#include <cstring>
#include <stdexcept>

#include "fixture.h"

using namespace narrows::test;

namespace {

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    i += length;
  }
  return true;
}

}  // namespace

TEST_CASE("a long message is cut at 495 bytes between characters") {
  Runtime rt;
  const nw_op* op = nullptr;
  for (const std::string letter : {"x", "ä", "鏡", "🚀"}) {
    for (size_t shift = 0; shift < 8; ++shift) {
      INFO(letter << " shifted by " << shift);
      std::string name(shift, 'y');
      while (name.size() < 900) name += letter;
      Error error;
      CHECK(nw_find_op(rt, name.c_str(), &op, &error) == NW_INVALID);
      const std::string text = error.text();
      CHECK(error.message[495] == '\0');
      CHECK(text.size() <= 495);
      CHECK(text.size() > 495 - letter.size());
      CHECK(is_utf8(text));
    }
  }
}

TEST_CASE("the longest message that fits is whole") {
  Runtime rt;
  const nw_op* op = nullptr;
  Error error;
  CHECK(nw_find_op(rt, "x", &op, &error) == NW_INVALID);
  const size_t others = error.text().size() - 1;
  for (const size_t total : {493, 494, 495}) {
    CHECK(nw_find_op(rt, std::string(total - others, 'x').c_str(), &op, &error) == NW_INVALID);
    CHECK(error.text().size() == total);
    CHECK(error.text().back() != 'x');  // what stands behind the name is there
  }
}

TEST_CASE("a plugin's message that is not terminated is read within its 496 bytes") {
  Loaded rt({"probe"});
  rt.probe().message = std::string(496, 'z');
  rt.probe().plan_status = NW_INVALID;
  Array a({2}), out({2});
  Call call("probe.noop/1", {&a}, {&out});
  expect_refused(call.run(rt), call.error, NW_INVALID, -1, {"zzzz"});
  CHECK(call.error.message[495] == '\0');
}

TEST_CASE("a message of bytes that end no character is cut to nothing") {
  auto options = sized<nw_options>();
  options.plugin_path = "";
  options.log = [](void*, int32_t, const char*) { throw std::runtime_error(std::string(600, '\x80')); };
  nw_runtime* rt = nullptr;
  REQUIRE(nw_runtime_create(&options, &rt, nullptr) == NW_OK);
  Error error;
  CHECK(nw_load(rt, plugin_file("fine_newer").c_str(), &error) == NW_FAILED);  // logs the op that it leaves out
  CHECK(error.status == NW_FAILED);
  CHECK(error.text().empty());
  nw_runtime_destroy(rt);
}

TEST_CASE("a plugin that gives a status and no message is quoted by the status") {
  Loaded rt({"probe"});
  rt.probe().message = "";
  Array a({2}), out({2});
  for (const auto& [status, text] : {std::pair{NW_INVALID, "probe: invalid"}, {NW_OUT_OF_MEMORY, "probe: out of memory"}}) {
    rt.probe().plan_status = status;
    Call("probe.noop/1", {&a}, {&out}).refused(rt, status, -1, {text});
  }
}

TEST_CASE("messages name devices as people do") {
  Runtime rt;
  const std::pair<int32_t, const char*> types[] = {
      {kDLCPU, "CPU:7"},       {kDLCUDA, "CUDA:7"},         {kDLCUDAHost, "CUDAHost:7"},     {kDLCUDAManaged, "CUDAManaged:7"},
      {kDLROCM, "ROCM:7"},     {kDLROCMHost, "ROCMHost:7"}, {kDLVulkan, "Vulkan:7"},         {kDLMetal, "Metal:7"},
      {kDLOpenCL, "OpenCL:7"}, {kDLOneAPI, "OneAPI:7"},     {kDLExtDev, "device type 12:7"}, {99, "device type 99:7"}};
  for (const auto& [type, name] : types) {
    auto info = sized<nw_device_info>();
    Error error;
    CHECK(nw_device(rt, {static_cast<DLDeviceType>(type), 7}, &info, &error) != NW_OK);
    INFO(error.text());
    CHECK(contains(error.text(), name));
  }
}

TEST_CASE("on success no error is written") {
  Loaded rt({"probe"});
  Error error;
  auto backend = sized<nw_backend_info>();
  auto device = sized<nw_device_info>();
  const nw_op* op = nullptr;
  void* data = nullptr;
  void* stream = nullptr;
  CHECK(nw_backend(rt, 0, &backend, &error) == NW_OK);
  CHECK(nw_device(rt, kProbe, &device, &error) == NW_OK);
  CHECK(nw_find_op(rt, "conv1d", &op, &error) == NW_OK);
  CHECK(nw_alloc(rt, kProbe, 8, nullptr, &data, &error) == NW_OK);
  CHECK(nw_free(rt, kProbe, data, nullptr, &error) == NW_OK);
  CHECK(nw_stream_create(rt, kProbe, &stream, &error) == NW_OK);
  CHECK(nw_stream_destroy(rt, kProbe, stream, &error) == NW_OK);
  CHECK(nw_load(rt, plugin_file("fine").c_str(), &error) == NW_OK);
  CHECK(error.untouched());
}

TEST_CASE("an output is written on success only") {
  Loaded rt({"probe"});
  Error error;
  int marker = 0;
  auto* const op_before = reinterpret_cast<const nw_op*>(&marker);
  const nw_op* op = op_before;
  CHECK(nw_find_op(rt, "nobody", &op, &error) == NW_INVALID);
  CHECK(op == op_before);
  void* data = &marker;
  CHECK(nw_alloc(rt, probe_device(9), 8, nullptr, &data, &error) == NW_INVALID);
  CHECK(nw_stream_create(rt, probe_device(9), &data, &error) == NW_INVALID);
  CHECK(data == &marker);
  auto device = sized<nw_device_info>();
  device.total_memory = 42;
  CHECK(nw_device(rt, probe_device(9), &device, &error) == NW_INVALID);
  CHECK(device.total_memory == 42);
  Array a({2}), out({3});
  Call call("probe.noop/1", {&a}, {&out});
  auto info = sized<nw_plan_info>();
  info.workspace_size = 42;
  auto* plan = reinterpret_cast<nw_plan*>(&marker);
  CHECK(call.plan(rt, &plan, &info) == NW_INVALID);
  CHECK(plan == reinterpret_cast<nw_plan*>(&marker));
  CHECK(info.workspace_size == 42);
}
