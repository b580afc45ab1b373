// SPDX-License-Identifier: Apache-2.0
// Loops: long sums by one thread. Some drivers end a shader's loops early and say nothing: there a call is right or refused.
#include <narrows/narrows.h>
#include <narrows/ops.h>

#include <cstring>

#include "opened.h"

namespace narrows::vulkan::test {
namespace {

using Shape = std::vector<int64_t>;

// Calls over tensors of ones, whose sums count their terms.
class Ones {
 public:
  explicit Ones(int64_t most) {
    REQUIRE(nw_runtime_create(nullptr, &runtime_, nullptr) == NW_OK);
    const std::vector<float> values(static_cast<size_t>(most), 1.0f);
    ones_ = allocate(most);
    REQUIRE(nw_copy(runtime_, kDevice, ones_, kHost, values.data(), values.size() * 4, nullptr, nullptr) == NW_OK);
    for (void*& out : outs_) out = allocate(most);
  }
  ~Ones() {
    for (void* data : {ones_, outs_[0], outs_[1], outs_[2]}) (void)nw_free(runtime_, kDevice, data, nullptr, nullptr);
    nw_runtime_destroy(runtime_);
  }
  Ones(const Ones&) = delete;
  Ones& operator=(const Ones&) = delete;

  // The status. A shape of {} stands for an absent tensor.
  int32_t run(const char* op, const char* kernel, const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
    nw_call call{};
    call.struct_size = sizeof call;
    call.op = op, call.kernel = kernel, call.backend = "vulkan", call.device = kDevice;
    DLTensor tensors[16];
    const DLTensor* pointers[16];
    size_t used = 0;
    for (const auto* shapes : {&inputs, &outputs})
      for (size_t i = 0; i < shapes->size(); ++i, ++used) {
        const Shape& shape = (*shapes)[i];
        void* const data = shapes == &inputs ? ones_ : outs_[i];
        tensors[used] = {
            data, kDevice, static_cast<int32_t>(shape.size()), {kDLFloat, 32, 1}, const_cast<int64_t*>(shape.data()), nullptr, 0};
        pointers[used] = shape.empty() ? nullptr : &tensors[used];
      }
    nw_elementwise_params params{};
    params.function = NW_EW_ADD;
    if (std::strstr(op, "elementwise") != nullptr) call.params = &params, call.params_size = sizeof params;
    call.num_inputs = static_cast<uint32_t>(inputs.size()), call.num_outputs = static_cast<uint32_t>(outputs.size());
    call.inputs = pointers, call.outputs = pointers + inputs.size();
    const float none = 0;  // of the call before nothing stays
    for (void* data : outs_) REQUIRE(nw_copy(runtime_, kDevice, data, kHost, &none, sizeof none, nullptr, nullptr) == NW_OK);
    return nw_run(runtime_, &call, &error);
  }
  float first(size_t output) const {
    float value = 0;
    REQUIRE(nw_copy(runtime_, kHost, &value, kDevice, outs_[output], sizeof value, nullptr, nullptr) == NW_OK);
    return value;
  }
  std::vector<float> all(size_t output, int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count));
    REQUIRE(nw_copy(runtime_, kHost, values.data(), kDevice, outs_[output], values.size() * 4, nullptr, nullptr) == NW_OK);
    return values;
  }
  nw_error error{};

 private:
  static constexpr DLDevice kDevice = {kDLVulkan, 0}, kHost = {kDLCPU, 0};
  void* allocate(int64_t floats) {
    void* data = nullptr;
    REQUIRE(nw_alloc(runtime_, kDevice, static_cast<uint64_t>(floats) * 4, nullptr, &data, nullptr) == NW_OK);
    return data;
  }
  nw_runtime* runtime_ = nullptr;
  void *ones_ = nullptr, *outs_[3] = {};
};

TEST_CASE("loops: a sum of many terms has them all, or is refused", "[loops]") {
  const bool all_run = [] {
    Opened opened;
    return refusal([&] { opened->check_loops(1e12); }).empty();
  }();
  for (const int64_t n : {20'000, 65'000, 70'001, 1'000'000}) {
    const struct {
      const char* op;
      const char* kernel;
      std::vector<Shape> inputs, outputs;
      size_t output;  // whose elements are sums of `terms` ones
      int64_t terms;
    } calls[] = {
        {"conv1d", "gemm", {{n}, {n}}, {{1}}, 0, n},
        {"conv1d", "dots", {{n}, {n}}, {{1}}, 0, n},
        {"conv1d", "direct", {{n}, {n}}, {{1}}, 0, n},
        {"conv1d", "direct", {{n + 299}, {n}}, {{300}}, 0, n},
        {"conv1d", "direct", {{n, 1}, {1, n, 1}}, {{1, 1}}, 0, n},
        {"conv1d", "direct", {{n, 3}, {1, n, 1}}, {{1, 3}}, 0, n},
        {"conv1d", "scalar", {{n}, {n}}, {{1}}, 0, n},
        {"conv1d_backward", "gemm", {{n}, {n}, {1}}, {{}, {1}, {}}, 1, n},
        {"conv1d_backward", "direct", {{n}, {n}, {1}}, {{}, {1}, {1}}, 2, n},
        {"conv1d_backward", "scalar", {{n}, {n}, {1}}, {{}, {1}, {}}, 1, n},
        {"conv1d_backward", "scalar", {{n, 1, 1}, {n, 1, 1}, {1, 1, 1}}, {{}, {1, 1, 1}, {}}, 1, n},
        {"elementwise_backward", nullptr, {{n}, {n}, {1}}, {{}, {1}, {}}, 1, n},
        {"lltm", "fused", {{1, n}, {3, n + 1}, {3}, {1, 1}, {1, 1}}, {{1, 1}, {1, 1}, {1, 3}}, 2, n + 2},
        {"lltm", "dots", {{1, n}, {3, n + 1}, {3}, {1, 1}, {1, 1}}, {{1, 1}, {1, 1}, {1, 3}}, 2, n + 2},
        {"lltm", "scalar", {{1, n}, {3, n + 1}, {3}, {1, 1}, {1, 1}}, {{1, 1}, {1, 1}, {1, 3}}, 2, n + 2},
    };
    Ones ones(3 * (n + 1));
    for (const auto& call : calls) {
      CAPTURE(call.op, call.kernel == nullptr ? "" : call.kernel, n, call.inputs);
      const int32_t status = ones.run(call.op, call.kernel, call.inputs, call.outputs);
      INFO(ones.error.message);
      if (status == NW_OK) {
        CHECK(ones.first(call.output) == static_cast<float>(call.terms));
      } else {
        CHECK(status == NW_UNSUPPORTED);
        CHECK(std::strstr(ones.error.message, "ends such loops early; use a newer driver") != nullptr);
        CHECK(!all_run);
        CHECK(n > 60'000);
      }
    }
  }
}

// So many tiles that they fill a device without being cut, of sums that are too long for one loop.
TEST_CASE("loops: a gradient of many weights is cut where a driver would end its sums", "[loops]") {
  constexpr int64_t kTerms = 60'001, kWeights = 4096;
  Ones ones(kTerms + kWeights);
  REQUIRE(ones.run("conv1d_backward", "gemm", {{kTerms}, {kTerms + kWeights - 1}, {kWeights}}, {{}, {kWeights}, {}}) == NW_OK);
  CHECK(ones.all(1, kWeights) == std::vector<float>(kWeights, kTerms));
}

}  // namespace
}  // namespace narrows::vulkan::test
