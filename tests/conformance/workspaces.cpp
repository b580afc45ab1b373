// SPDX-License-Identifier: Apache-2.0
// workspaces.cpp -- a workspace of exactly the size that the plan asks for, at many shapes, of any content: nothing is written
// before or behind it, and on the CPU nothing is read behind it either.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "call_examples.h"

using namespace narrows::test;

namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

// The plan's answer for an example; false where it is declined, or needs no workspace.
bool needs_workspace(const Example& e, const char* kernel, uint64_t* size) {
  Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
  call.raw.kernel = kernel;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  *size = 0;
  if (nw_plan_get(runtime(), &call.raw, nullptr, &info, nullptr) == NW_OK) *size = info.workspace_size;
  return *size != 0;
}

// Memory that ends within 256 bytes of a page that may not be touched. Of the CPU.
class AtAnEdge {
 public:
  explicit AtAnEdge(uint64_t size) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t inside = (size + page - 1) / page * page;
    size_ = inside + page;
    map_ = static_cast<unsigned char*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(map_ != MAP_FAILED);
    REQUIRE(mprotect(map_, inside, PROT_READ | PROT_WRITE) == 0);
    std::memset(map_, 0xFF, inside);  // NaN
    first_ = map_ + (inside - size) / NW_WORKSPACE_ALIGN * NW_WORKSPACE_ALIGN;
  }
  ~AtAnEdge() { munmap(map_, size_); }
  AtAnEdge(const AtAnEdge&) = delete;
  AtAnEdge& operator=(const AtAnEdge&) = delete;
  void* first() const { return first_; }

 private:
  uint64_t size_ = 0;
  unsigned char *map_ = nullptr, *first_ = nullptr;
};

// The call with a workspace of NaN and one of random bytes, between canaries; and with one at the edge of a page.
void check_content(const Example& e, Call& call, Tensor& workspace, const std::vector<unsigned char>& expected) {
  Rng rng("workspace");
  for (const bool random : {false, true}) {
    random ? workspace.fill_bits(rng) : workspace.fill_nan();
    expect_ok(call.run());
    CHECK(workspace.damage_outside_elements().empty());
    const bool same = e.bytes() == expected;
    CHECK(same);
    workspace.accept();
  }
  if (device().device_type != kDLCPU) return;
  const AtAnEdge edge(call.raw.workspace_size);
  call.raw.workspace = edge.first();
  expect_ok(call.run());
  call.raw.workspace = workspace.dl()->data;
  const bool same = e.bytes() == expected;
  CHECK(same);
}

void check_refusals(const Example& e, Call& call, Tensor& workspace, uint64_t size) {
  const std::string exact = std::to_string(size), less = std::to_string(size - 1);
  call.raw.workspace_size = size - 1;
  expect_refused(call.run(), NW_INVALID, -1, {e.op, ("workspace_size = " + less).c_str(), (exact + " bytes").c_str()});
  call.raw.workspace_size = 0;
  expect_refused(call.run(), NW_INVALID, -1, {e.op, "workspace_size = 0", (exact + " bytes").c_str()});
  call.raw.workspace_size = size;
  for (const int off : {1, 64, 128}) {
    call.raw.workspace = static_cast<char*>(workspace.dl()->data) + off;
    expect_refused(call.run(), NW_INVALID, -1, {e.op, "workspace = ", "divisible by 256"});
  }
  CHECK(workspace.damage().empty());
}

// Whether the plan of some kernel asked for one.
bool check_workspaces(const Example& e, bool refusals) {
  bool some = false;
  for (const char* kernel : kernels(e.op)) {
    uint64_t size = 0;
    if (!needs_workspace(e, kernel, &size)) continue;
    const Result without = e.run(kernel);
    if (without.was_declined()) continue;
    some = true;
    INFO(e.what << " kernel " << (kernel == nullptr ? "-" : kernel) << ", a workspace of " << size << " bytes");
    expect_ok(without);
    const auto expected = e.bytes();
    Tensor workspace(DType::u8, {static_cast<int64_t>(size)});  // canaries before and behind it
    Call call(e.op, e.input_pointers(), e.output_pointers(), e.params);
    call.note = e.what;
    call.raw.kernel = kernel;
    call.raw.workspace = workspace.dl()->data;
    call.raw.workspace_size = size;
    check_content(e, call, workspace, expected);
    if (refusals) check_refusals(e, call, workspace, size);
  }
  return some;
}

void expect_some(int with_workspace) {
  if (with_workspace == 0) SKIP("no plan of " << backend() << " asks for a workspace");
}

}  // namespace

TEST_CASE("calls: a workspace of exactly the size that the plan asks for, of any content", "[calls][workspace]") {
  int with_workspace = 0;
  for (const DType dtype : kDTypes)
    for (const Example& e : large_examples(dtype)) with_workspace += check_workspaces(e, true);
  expect_some(with_workspace);
}

TEST_CASE("lltm: a workspace of exactly the size that the plan asks for, at batches and sizes around every block",
          "[lltm][calls][workspace]") {
  int with_workspace = 0;
  for (const DType dtype : kDTypes)
    for (const int64_t batch : {1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 32, 64, 100, 129})
      for (const auto& [features, states] : {std::pair<int64_t, int64_t>{3, 5}, {16, 16}, {33, 32}})
        for (const Example& e : lltm_examples(dtype, batch, features, states)) with_workspace += check_workspaces(e, false);
  expect_some(with_workspace);
}

TEST_CASE("conv1d: a workspace of exactly the size that the plan asks for, at sizes around every block",
          "[conv1d][calls][workspace]") {
  int with_workspace = 0;
  const auto check = [&with_workspace](const std::vector<Example>& examples) {
    for (const Example& e : examples) with_workspace += check_workspaces(e, false);
  };
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const int64_t length : {5, 64, 129}) {
      check(conv1d_examples(dtype, 1, 1, 1, length, 3, 1));
      check(conv1d_examples(dtype, 3, 4, 4, length, 2, 4));
      check(strided_conv1d_examples(dtype, 2, 8, 12, length, 4, 2, 3));
    }
    for (const int64_t channels : {3, 31, 64})
      for (const int64_t filters : {1, 33, 80}) check(conv1d_examples(dtype, 2, channels, filters, 2 * channels + 1, 3, 1));
  }
  expect_some(with_workspace);
}

TEST_CASE("elementwise: a workspace of exactly the size that the plan asks for, at many shapes",
          "[elementwise][calls][workspace]") {
  int with_workspace = 0;
  for (const DType dtype : kDTypes)
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{1, 1}, {7, 33}, {64, 64}, {1, 5000}, {5000, 1}, {129, 127}, {2000, 16}})
      for (const Example& e : elementwise_examples(dtype, rows, columns)) with_workspace += check_workspaces(e, false);
  expect_some(with_workspace);
}
