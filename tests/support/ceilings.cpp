// SPDX-License-Identifier: Apache-2.0
// ceilings.cpp -- see ceilings.h.
#include "ceilings.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <vector>

#include "cuda_graph.h"

namespace narrows::test {
namespace {

constexpr uint64_t kCopied = 256 << 20;
constexpr int kSide = 8192, kSamples = 11;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Memory of the device, of zeros.
class Memory {
 public:
  explicit Memory(uint64_t size) {
    const std::vector<char> zeros(size);
    if (nw_alloc(runtime(), device(), size, nullptr, &data, nullptr) == NW_OK)
      (void)nw_copy(runtime(), device(), data, {kDLCPU, 0}, zeros.data(), size, nullptr, nullptr);
  }
  ~Memory() { nw_free(runtime(), device(), data, nullptr, nullptr); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data = nullptr;
};

class OwnStream {
 public:
  OwnStream() { (void)nw_stream_create(runtime(), device(), &handle, nullptr); }
  ~OwnStream() { nw_stream_destroy(runtime(), device(), handle, nullptr); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  bool sync() const { return nw_stream_sync(runtime(), device(), handle, nullptr) == NW_OK; }
  void* handle = nullptr;
};

// The median of a few samples of `times` enqueuings each, one after the other; 0: one failed.
template <class Enqueue>
double seconds_of(const OwnStream& stream, int times, Enqueue enqueue) {
  std::vector<double> seconds;
  for (int sample = 0; sample <= kSamples; ++sample) {
    const double start = now();
    for (int i = 0; i < times; ++i)
      if (!enqueue()) return 0;
    if (!stream.sync()) return 0;
    if (sample > 0) seconds.push_back((now() - start) / times);  // the first warms up
  }
  std::nth_element(seconds.begin(), seconds.begin() + kSamples / 2, seconds.end());
  return seconds[kSamples / 2];
}

double measure_copy() {
  const OwnStream stream;
  const Memory from(kCopied), to(kCopied);
  const double seconds = seconds_of(stream, 20, [&] {
    return nw_copy(runtime(), device(), to.data, device(), from.data, kCopied, stream.handle, nullptr) == NW_OK;
  });
  return seconds == 0 ? 0 : 2.0 * kCopied / seconds;
}

// cublas_api.h and library_types.h of CUDA 12 and newer: cudaDataType, cublasComputeType_t.
struct GemmTypes {
  int data, compute;
};
const std::map<DType, GemmTypes> kGemmTypes = {
    {DType::f32, {0, 68}}, {DType::f64, {1, 70}}, {DType::f16, {2, 68}}, {DType::bf16, {14, 68}}};

template <class... Args>
bool cublas(const char* function, Args... args) {
  void* const found = find_function({"libcublas.so.13", "libcublas.so.12"}, function);
  return found != nullptr && reinterpret_cast<int (*)(Args...)>(found)(args...) == 0;
}

double measure_matrix(DType dtype) {
  const auto types = kGemmTypes.find(dtype);
  if (device().device_type != kDLCUDA || types == kGemmTypes.end()) return 0;
  const OwnStream stream;
  const CurrentContext context(stream.handle);
  void* handle = nullptr;
  if (!context.entered() || !cublas("cublasCreate_v2", &handle) || !cublas("cublasSetStream_v2", handle, stream.handle)) return 0;
  Rng rng("matrix ceiling");  // numbers of every size: a GPU multiplies zeros faster
  Tensor a(dtype, {kSide, kSide}), c(dtype, {kSide, kSide});
  a.fill_uniform(rng, -1, 1);
  const std::array<float, 2> scales = {1, 0};
  const std::array<double, 2> wide_scales = {1, 0};
  const void* const alpha = dtype == DType::f64 ? static_cast<const void*>(&wide_scales[0]) : &scales[0];
  const void* const beta = dtype == DType::f64 ? static_cast<const void*>(&wide_scales[1]) : &scales[1];
  const auto [data, compute] = types->second;
  const double seconds = seconds_of(stream, 4, [&, data = data, compute = compute] {
    return cublas("cublasGemmEx", handle, 0, 0, kSide, kSide, kSide, alpha, static_cast<const void*>(a.dl()->data), data, kSide,
                  static_cast<const void*>(a.dl()->data), data, kSide, beta, static_cast<void*>(c.dl()->data), data, kSide, compute,
                  -1);
  });
  cublas("cublasDestroy_v2", handle);
  return seconds == 0 ? 0 : 2.0 * kSide * kSide * kSide / seconds;
}

}  // namespace

double copy_ceiling() {
  if (device().device_type == kDLCPU) return 0;
  static const double measured = measure_copy();
  return measured;
}

double matrix_ceiling(DType dtype) {
  static std::map<DType, double> measured;
  const auto known = measured.find(dtype);
  return known != measured.end() ? known->second : measured[dtype] = measure_matrix(dtype);
}

}  // namespace narrows::test
