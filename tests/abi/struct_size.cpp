// SPDX-License-Identifier: Apache-2.0
// struct_size.cpp -- the growth rule, tried for every struct_size from 0 up: too small is refused, what a caller has not is read as
// 0, nothing is read or written past it, and a longer struct works while its tail is zero. Blocks have the exact size, so that
// AddressSanitizer sees one byte too much; without it the canary behind them does for writes.
#include <cstring>
#include <memory>

#include "fixture.h"

using namespace narrows::test;

namespace {

constexpr unsigned char kCanary = 0xC5;

// A struct of some size alone on the heap. Under AddressSanitizer nothing follows it; else 64 canary bytes do.
template <class Struct>
class Block {
 public:
  Block(size_t size, unsigned char fill = 0) : size_(size), bytes_(new unsigned char[size + kBehind]) {
    std::memset(bytes_.get(), fill, size);
    std::memset(bytes_.get() + size, kCanary, kBehind);
  }
  // The first bytes of a whole struct, and its own size as struct_size.
  Block(size_t size, const Struct& from) : Block(size) {
    std::memcpy(bytes_.get(), &from, std::min(size, sizeof from));
    set_size();
  }
  void set_size() {
    const auto value = static_cast<uint32_t>(size_);
    std::memcpy(bytes_.get(), &value, std::min(size_, sizeof value));
  }
  Struct* get() { return reinterpret_cast<Struct*>(bytes_.get()); }
  unsigned char* bytes() { return bytes_.get(); }
  bool intact() const {
    for (size_t i = 0; i < kBehind; ++i)
      if (bytes_[size_ + i] != kCanary) return false;
    return true;
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kBehind = 0;
#else
  static constexpr size_t kBehind = 64;
#endif
  size_t size_;
  std::unique_ptr<unsigned char[]> bytes_;
};

// Calls `write(struct, error)` for every size of an output struct, and compares with what the full size gives.
template <class Struct, class Write>
void check_output_struct(const char* name, Write&& write) {
  auto whole = sized<Struct>();
  REQUIRE(write(&whole, nullptr) == NW_OK);
  for (size_t size = sizeof(uint32_t); size <= sizeof(Struct) + 40; ++size) {
    INFO(name << " of " << size << " bytes");
    Block<Struct> block(size, 0xEE);
    block.set_size();
    Error error;
    const int32_t status = write(block.get(), &error);
    CHECK(block.intact());
    REQUIRE(status == NW_OK);
    Struct expected = whole;
    expected.struct_size = static_cast<uint32_t>(size);
    CHECK(std::memcmp(block.bytes(), &expected, std::min(size, sizeof expected)) == 0);
    for (size_t i = sizeof expected; i < size; ++i) CHECK(block.bytes()[i] == 0);  // what we don't know is 0
  }
  for (uint32_t size = 0; size < sizeof(uint32_t); ++size) {
    INFO(name << ".struct_size = " << size);
    Block<Struct> block(sizeof(uint32_t), 0);
    std::memcpy(block.bytes(), &size, sizeof size);
    Error error;
    expect_refused(write(block.get(), &error), error, NW_INVALID, -1, {name, "struct_size"});
    CHECK(block.intact());
  }
}

// The fields of nw_call behind `outputs`, at whose ends an old caller may stop, and whether the probe then sees them set.
struct Boundary {
  size_t end;
  bool params, stream, workspace, device, kernel, max_threads;
};

#define END_OF(field) (offsetof(nw_call, field) + sizeof(nw_call::field))
const Boundary kBoundaries[] = {
    {offsetof(nw_call, params), false, false, false, false, false, false},
    {END_OF(params_size), true, false, false, false, false, false},
    {END_OF(stream), true, true, false, false, false, false},
    {END_OF(workspace_size), true, true, true, false, false, false},
    {END_OF(device), true, true, true, true, false, false},
    {END_OF(backend), true, true, true, true, false, false},
    {END_OF(kernel), true, true, true, true, true, false},
    {END_OF(max_threads), true, true, true, true, true, true},
};

}  // namespace

TEST_CASE("nw_call of every size") {
  Loaded rt({"probe"});
  Array a({4}), out({4});
  const Call whole("probe.noop/1", {&a}, {&out});  // neutral values behind outputs, so that half a field is no other field
  for (size_t size = sizeof(uint32_t); size < offsetof(nw_call, params); ++size) {
    INFO("size " << size);
    Block<nw_call> block(size, whole.raw);
    Error error;
    expect_refused(nw_run(rt, block.get(), &error), error, NW_INVALID, -1, {"nw_call.struct_size", "40"});
    expect_refused(nw_plan_get(rt, block.get(), nullptr, nullptr, &error), error, NW_INVALID, -1, {"struct_size"});
    nw_spec spec;
    expect_refused(nw_infer(rt, block.get(), &spec, 1, &error), error, NW_INVALID, -1, {"struct_size"});
  }
  for (size_t size = offsetof(nw_call, params); size <= sizeof(nw_call) + 40; ++size) {
    INFO("size " << size);
    Block<nw_call> block(size, whole.raw);
    Error error;
    const int32_t status = nw_run(rt, block.get(), &error);
    INFO((status == NW_OK ? "" : error.text()));
    CHECK(status == NW_OK);
    CHECK(block.intact());
  }
  CHECK(rt.probe().plans == 1);  // all of them are one call
  for (uint32_t size = 0; size < sizeof(uint32_t); ++size) {
    nw_call call = whole.raw;
    call.struct_size = size;
    Error error;
    expect_refused(nw_run(rt, &call, &error), error, NW_INVALID, -1, {"struct_size"});
  }
}

TEST_CASE("what an old caller's nw_call lacks is 0") {
  Loaded rt({"probe"});
  Array a({4}), out({4}), workspace({256});
  for (const Boundary& boundary : kBoundaries) {
    INFO("size " << boundary.end);
    Call whole("probe.noop/1", {&a}, {&out});
    whole.params(ProbeParams{5, 6, 7});
    whole.raw.stream = &rt;  // any address: the probe only reports it
    whole.raw.workspace = workspace.tensor.data;
    whole.raw.workspace_size = 512;
    whole.raw.device = kProbe;
    whole.raw.backend = "probe";
    whole.raw.kernel = "slow";
    whole.raw.max_threads = 1;
    Block<nw_call> block(boundary.end, whole.raw);
    std::optional<nw_call> seen;
    rt.probe().on_launch = [&](const nw_call& call) { seen = call; };
    nw_plan_cache_clear(rt);
    Error error;
    const int32_t status = nw_run(rt, block.get(), &error);
    INFO((status == NW_OK ? "" : error.text()));
    REQUIRE(status == NW_OK);
    REQUIRE(seen.has_value());
    CHECK((seen->params_size != 0) == boundary.params);
    CHECK((seen->stream != nullptr) == boundary.stream);
    CHECK((seen->workspace != nullptr) == boundary.workspace);
    CHECK((seen->max_threads != 0) == boundary.max_threads);
    CHECK(seen->struct_size == sizeof(nw_call));
    CHECK(rt.probe().last_sig().kernel.has_value() == boundary.kernel);
    CHECK((rt.probe().last_sig().params.size() == (boundary.params ? 17 : 0)));
  }
}

TEST_CASE("nw_call may be longer than we know with zeros there") {
  Loaded rt({"probe"});
  Array a({4}), out({4});
  const Call whole("probe.noop/1", {&a}, {&out});
  for (size_t at = sizeof(nw_call); at < sizeof(nw_call) + 24; ++at) {
    Block<nw_call> block(sizeof(nw_call) + 24, whole.raw);
    block.bytes()[at] = 1;
    Error error;
    expect_refused(nw_run(rt, block.get(), &error), error, NW_UNSUPPORTED, -1, {"nw_call", std::to_string(at).c_str()});
    CHECK(out.pristine());
  }
}

TEST_CASE("nw_options of every size") {
  Folder folder;
  folder.add("probe");
  auto whole = sized<nw_options>();
  whole.plugin_path = folder.path().c_str();
  whole.num_threads = 2;
  for (size_t size = sizeof(uint32_t); size <= sizeof(nw_options) + 24; ++size) {
    // Half a pointer is no pointer: an old caller stops at the end of a field.
    if (size > offsetof(nw_options, plugin_path) && size < offsetof(nw_options, log)) continue;
    INFO("size " << size);
    Block<nw_options> block(size, whole);
    nw_runtime* rt = nullptr;
    Error error;
    REQUIRE(nw_runtime_create(block.get(), &rt, &error) == NW_OK);
    const bool has_path = size >= offsetof(nw_options, log);
    CHECK((nw_extension(rt, "probe", "probe/1") != nullptr) == has_path);
    if (has_path) CHECK(static_cast<const Probe*>(nw_extension(rt, "probe", "probe/1"))->host->num_threads == 2);
    nw_runtime_destroy(rt);
    CHECK(block.intact());
  }
  for (uint32_t size = 0; size < sizeof(uint32_t); ++size) {
    nw_options options = whole;
    options.struct_size = size;
    nw_runtime* rt = nullptr;
    Error error;
    expect_refused(nw_runtime_create(&options, &rt, &error), error, NW_INVALID, -1, {"nw_options.struct_size"});
    CHECK(rt == nullptr);
  }
  for (size_t at = sizeof(nw_options); at < sizeof(nw_options) + 16; ++at) {
    Block<nw_options> block(sizeof(nw_options) + 16, whole);
    block.bytes()[at] = 1;
    nw_runtime* rt = nullptr;
    Error error;
    expect_refused(nw_runtime_create(block.get(), &rt, &error), error, NW_UNSUPPORTED, -1,
                   {"nw_options", std::to_string(at).c_str()});
    CHECK(rt == nullptr);
  }
}

TEST_CASE("output structs of every size") {
  Loaded rt({"probe"});
  rt.probe().workspace_size = 4096;
  Array a({4}), out({4});
  Call call("probe.noop/1", {&a}, {&out});
  check_output_struct<nw_plan_info>(
      "nw_plan_info", [&](nw_plan_info* info, nw_error* error) { return nw_plan_get(rt, &call.raw, nullptr, info, error); });
  check_output_struct<nw_device_info>(
      "nw_device_info", [&](nw_device_info* info, nw_error* error) { return nw_device(rt, probe_device(1), info, error); });
  check_output_struct<nw_backend_info>("nw_backend_info",
                                       [&](nw_backend_info* info, nw_error* error) { return nw_backend(rt, 0, info, error); });
}

TEST_CASE("a plan that comes with a wrong nw_plan_info is not leaked") {
  Loaded rt({"probe"});
  Array a({4}), out({4});
  Call call("probe.noop/1", {&a}, {&out});
  nw_plan_info info{};  // struct_size 0
  nw_plan* plan = nullptr;
  expect_refused(call.plan(rt, &plan, &info), call.error, NW_INVALID, -1, {"nw_plan_info.struct_size"});
  CHECK(plan == nullptr);
  nw_plan_cache_clear(rt);
  CHECK(rt.probe().plans == rt.probe().plans_freed);
}

TEST_CASE("the strings of the constants") {
  CHECK(std::string(NW_PLUGIN_QUERY) == "narrows_plugin_query");
  CHECK(nw_abi_major() == NW_ABI_MAJOR);
  CHECK(!std::string(nw_version()).empty());
  const char* const names[] = {"ok",     "invalid",    "unsupported", "unavailable", "out of memory", "not capturable",
                               "failed", "device lost"};
  for (int32_t status = 0; status <= NW_DEVICE_LOST; ++status) CHECK(std::string(nw_status_name(status)) == names[status]);
  for (const int32_t status : {-1, 8, INT32_MIN, INT32_MAX}) CHECK(!std::string(nw_status_name(status)).empty());
}
