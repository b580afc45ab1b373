// SPDX-License-Identifier: Apache-2.0
// lltm.cpp -- plans and records lltm. Every variant is one kernel.
#include "lltm.h"

namespace narrows::vulkan {
namespace {

using namespace lltm_forward;
enum Variant { kCoopmat, kFused, kDots, kScalar };
constexpr const char* kKernels[] = {"coopmat", "fused", "dots", "scalar", nullptr};
constexpr MatrixModules kCoopmatModules = NARROWS_MATRIX_MODULES(lltm_coopmat);
constexpr ByDtype kFusedModules = NARROWS_BY_DTYPE(lltm_fused), kDotsModules = NARROWS_BY_DTYPE(lltm_dots),
                  kScalarModules = NARROWS_BY_DTYPE(lltm_scalar);

// `column_groups` 3: one for each gate.
constexpr GemmTile kLarge = {16, 16, 2, 3, 16}, kLargeF64 = {8, 16, 2, 3, 8}, kSmall = {8, 8, 1, 3, 16};
static_assert(kLarge.is_whole() && kLargeF64.is_whole() && kSmall.is_whole());
// Likewise 3 matrices across. kShallow is as large as kLarge, of half as many subgroups and for stages of half the depth, where
// shared memory has no room for more; on an H200 it took 1.4 times as long.
constexpr MatrixTile kLargeMatrices = {4, 4, 2, 3}, kShallowMatrices = {2, 4, 4, 3}, kMiddleMatrices = {4, 2, 1, 3},
                     kSmallMatrices = {2, 2, 1, 3};
constexpr int64_t kScalarThreads = 64;

// As in shaders/lltm/lltm_forward.glsl.
struct Shape {
  int64_t batch, features, state;
  Strides2 inputs[kNumInputs], outputs[kNumOutputs];
};
struct Push {
  Address inputs[kNumInputs], outputs[kNumOutputs], shape;
  int32_t state_tiles, padding;
};

class LltmPlan final : public DevicePlan {
 public:
  LltmPlan(Device& device, const nw_sig& sig) : DevicePlan(device) {
    const LltmSizes sizes = lltm_sizes(sig, kInput, kOldH);
    dtype_ = sizes.dtype;
    shape_ = {sizes.batch, sizes.features, sizes.state, {}, {}};
    read_strides(sig, shape_.inputs, shape_.outputs);
    const bool aligned = std::all_of(sig.tensors, sig.tensors + sig.num_inputs + sig.num_outputs, is_aligned);
    const bool fits = aligned && std::max({shape_.batch, shape_.features, shape_.state}) < kMostExtent;
    const int forced = forced_kernel(sig, kKernels);
    if ((forced == kFused || forced == kDots) && !fits)
      refuse(NW_UNSUPPORTED, -1, "lltm: kernel '%s' takes tensors that are aligned to their elements, of extents below 2^28",
             kKernels[forced]);
    const bool has_unit = fits && has_matrix_unit(device, kCoopmatModules, dtype_);
    if (forced == kCoopmat && !has_unit)
      refuse(NW_UNSUPPORTED, -1,
             "lltm: kernel 'coopmat' needs f16 or bf16 tensors that 'fused' takes too. The device and this build must have "
             "cooperative matrices of that dtype");
    const Variant variant = forced >= 0                             ? static_cast<Variant>(forced)
                            : fits && prefers_dots()                ? kDots
                            : has_unit && !device.physical.is_cpu() ? kCoopmat
                            : fits                                  ? kFused
                                                                    : kScalar;
    kernel = kKernels[variant];
    if (shape_.batch == 0 || shape_.state == 0) return;
    switch (variant) {
      case kCoopmat: plan_coopmat(sig); break;
      case kFused: plan_fused(sig); break;
      case kDots: plan_dots(sig); break;
      case kScalar: plan_scalar(aligned); break;
    }
  }

  void record(Recorder& recorder, const nw_call& call) const override {
    if (groups_ == 0) return;
    Push push{};
    for (uint32_t i = 0; i < kNumInputs; ++i) push.inputs[i] = address(call.inputs[i]);
    for (uint32_t i = 0; i < kNumOutputs; ++i) push.outputs[i] = i < call.num_outputs ? address(call.outputs[i]) : 0;
    push.shape = recorder.params(shape_);
    push.state_tiles = static_cast<int32_t>(state_tiles_);
    recorder.dispatch(kernel_, push, groups_);
  }

 private:
  // Whether the operands of the product can be read so many elements at a time.
  bool reads_together(const nw_sig& sig, int64_t group) const {
    return reads_rows_together(input(sig, kInput), 0, group) && reads_rows_together(input(sig, kOldH), 0, group) &&
           reads_rows_together(input(sig, kWeights), shape_.state, group);
  }
  // Whether the operands are whole stages, and 32 bits count their bytes.
  bool has_whole_stages(int64_t depth) const {
    constexpr int64_t kMost = int64_t{1} << 30;  // elements
    const auto fits = [](int64_t rows, int64_t stride) { return stride == 0 || rows <= kMost / stride; };
    return shape_.state % depth == 0 && shape_.features % depth == 0 && fits(shape_.batch, shape_.inputs[kInput].row) &&
           fits(shape_.batch, shape_.inputs[kOldH].row) && fits(3 * shape_.state, shape_.inputs[kWeights].row);
  }
  void plan_coopmat(const nw_sig& sig) {
    const MatrixUnit& unit = matrix_unit(device, dtype_);
    const auto count = [&](const MatrixTile& tile) {
      state_tiles_ = ceil_div(shape_.state, tile.columns(unit) / 3);
      return ceil_div(shape_.batch, tile.rows(unit)) * state_tiles_;
    };
    const VkPhysicalDeviceLimits& limits = device.physical.properties.limits;
    const bool large = count(kLargeMatrices) >= kManyGroups / 2;
    const bool has_room = kLargeMatrices.shared_memory(unit, 2 * kMatrixDepth, 0, 3) <= limits.maxComputeSharedMemorySize &&
                          kLargeMatrices.subgroups() * unit.subgroup <=
                              std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]);
    const MatrixTile& tile = large && has_room                          ? kLargeMatrices
                             : large                                    ? kShallowMatrices
                             : shape_.batch > kSmallMatrices.rows(unit) ? kMiddleMatrices
                                                                        : kSmallMatrices;
    groups_ = count(tile);
    const int64_t depth = large && !has_room ? kMatrixDepth : 2 * kMatrixDepth;  // the fewer stages there are, the less is waited
    device.check_loops(3 * (ceil_div(shape_.state, depth) + ceil_div(shape_.features, depth)) + 1024);
    const bool together = reads_together(sig, 8), whole = together && has_whole_stages(depth);
    kernel_ = matrix_kernel(device, kCoopmatModules, dtype_, tile, 0, depth, {together, whole});
  }
  void plan_fused(const nw_sig& sig) {
    const bool together = reads_together(sig, kGroup);
    GemmTile tile = dtype_ == Dtype::f64 ? kLargeF64 : kLarge;
    if (device.physical.is_cpu() || count(tile) < kManyGroups) tile = kSmall;
    groups_ = count(tile);
    device.check_loops(gemm_loops(tile, shape_.state + tile.depth + shape_.features));
    kernel_ = gemm_kernel(device, kFusedModules.of(dtype_), tile, {together});
  }
  int64_t count(const GemmTile& tile) {
    state_tiles_ = ceil_div(shape_.state, tile.columns() / 3);
    return ceil_div(shape_.batch, tile.rows()) * state_tiles_;
  }
  // Products few enough that waiting is what takes the time; a CPU waits for nothing.
  bool prefers_dots() const {
    constexpr double kMost = 1 << 23;
    const auto number = [](int64_t x) { return static_cast<double>(x); };
    return !device.physical.is_cpu() &&
           number(shape_.batch) * number(shape_.state) * number(shape_.state + shape_.features) <= kMost;
  }
  void plan_dots(const nw_sig& sig) {
    constexpr int64_t kTeams = 4, kManyCells = 16384, kMostTiles = int64_t{1} << 30;  // of a work group; of all
    // Fewer loads for a product, as far as enough teams are left, and shared memory.
    const bool many = shape_.batch * shape_.state >= kManyCells;
    const int64_t rows = many && dtype_ != Dtype::f64 ? 8 : 4, states = many ? 2 : 1;
    state_tiles_ = ceil_div(shape_.state, states);
    const int64_t tiles = ceil_div(shape_.batch, rows);
    if (tiles > kMostTiles / state_tiles_)
      refuse(NW_UNSUPPORTED, -1, "lltm: kernel 'dots' takes up to %lld cells; this call has a batch of %lld and a state of %lld",
             static_cast<long long>(kMostTiles * rows * states), static_cast<long long>(shape_.batch),
             static_cast<long long>(shape_.state));
    groups_ = ceil_div(state_tiles_ * tiles, kTeams);
    device.check_loops(ceil_div(shape_.state, 128) + ceil_div(shape_.features, 128) + 64);
    kernel_ = device.kernels().get(kDotsModules.of(dtype_),
                                   {0, reads_together(sig, kGroup), static_cast<uint32_t>(rows), static_cast<uint32_t>(states)});
  }
  void plan_scalar(bool aligned) {
    device.check_loops(shape_.state + shape_.features + 64);
    groups_ = ceil_div(shape_.batch * shape_.state, kScalarThreads);
    kernel_ = device.kernels().get(kScalarModules.of(dtype_), {!aligned});
  }

  Dtype dtype_;
  Shape shape_{};
  int64_t groups_ = 0, state_tiles_ = 0;
  Kernel kernel_;
};

}  // namespace

const Op lltm = {"lltm", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                   check_params_tail(sig, 0);
                   return std::make_unique<LltmPlan>(instance.device(sig), sig);
                 }};

}  // namespace narrows::vulkan
