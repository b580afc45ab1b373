// SPDX-License-Identifier: Apache-2.0
// lltm_backward.cpp -- plans and records lltm_backward. First the gradient of the gates, into the workspace, for a matrix unit in
// two parts of 16 bits too; then the products that spread it over inputs, weights and bias, side by side; then, where a long
// reduction was cut into slices, their sums.
#include "lltm.h"

namespace narrows::vulkan {
namespace {

using namespace lltm_grad;
enum Variant { kCoopmat, kTiled, kScalar };
constexpr const char* kKernels[] = {"coopmat", "tiled", "scalar", nullptr};
constexpr ByDtype kGateGrads = NARROWS_BY_DTYPE(lltm_gate_grads), kScalarProduct = NARROWS_BY_DTYPE(lltm_product_scalar),
                  kTiledProduct = NARROWS_BY_DTYPE(lltm_product_tiled);
constexpr MatrixModules kSplit = NARROWS_MATRIX_MODULES(lltm_split), kCoopmatProduct = NARROWS_MATRIX_MODULES(lltm_product_coopmat);
constexpr int64_t kThreads = 64;                                     // of the modules without tiles
constexpr int64_t kNumLargest = 64, kMostEights = int64_t{1} << 30;  // as lltm_split.comp has them; counts in 32 bits
constexpr GemmTile kLarge = {16, 16, 2, 2, 16}, kLargeF64 = {16, 16, 1, 2, 16}, kSmall = {8, 8, 1, 1, 16};
static_assert(kLarge.is_whole() && kLargeF64.is_whole() && kSmall.is_whole());
// Half of a tile's rows are first parts, the other half the second parts of the same.
constexpr MatrixTile kLargeMatrices = {2, 2, 4, 4}, kSmallMatrices = {2, 2, 2, 2};
constexpr int64_t kMostDepth = 2 * kMatrixDepth;  // of a stage

// As in shaders/lltm/lltm_gate_grads.comp.
struct GateGradsShape {
  int64_t batch, state, pitch;
  Strides2 grad_h, grad_cell, new_cell, gates, d_old_cell;
};
struct GateGradsPush {
  Address grad_h, grad_cell, new_cell, gates, d_old_cell, gate_grads, shape, largest;
};
// As in shaders/lltm/lltm_split.comp.
struct SplitPush {
  Address gate_grads, largest, parts, unscale;
  int64_t pitch;
  int32_t batch, gates;
  uint32_t eights_of_row, blocks;
};

// As in shaders/lltm/lltm_product.glsl.
struct ProductPush {
  Address gate_grads, operand, to, partial;
  Strides2 operand_strides, to_strides;
  int64_t pitch;
  int64_t rows, columns, depth;
  uint32_t slices, column_tiles, blocks;
  int32_t stages;
  Address unscale;
};

// One product: of which tensors, and where in them it begins, in elements of memory.
struct Product : LltmGradProduct {
  int64_t operand_at, to_at;
  bool together, whole;  // the operand's columns can be read in fours; in whole eights, which they are
  ProductPush push;      // but for the addresses
  Kernel kernel{};
  int64_t groups = 0;
  uint64_t partial = 0;  // where the slices begin in the workspace, in bytes
  SliceSum sum{};
  bool of_parts = false;  // works on the gradients in two parts
};

class LltmBackwardPlan final : public DevicePlan {
 public:
  LltmBackwardPlan(Device& device, const nw_sig& sig) : DevicePlan(device), sig_(&sig), sizes_(lltm_sizes(sig, kInput, kOldH)) {
    read_strides(sig, inputs_, outputs_);
    aligned_ = lltm_grad_is_aligned(sig);
    const bool fits = aligned_ && std::max({sizes_.batch, sizes_.features, sizes_.state}) < kMostExtent;
    const int forced = forced_kernel(sig, kKernels);
    if (forced == kTiled && !fits)
      refuse(NW_UNSUPPORTED, -1,
             "lltm_backward: kernel 'tiled' takes tensors that are aligned to their elements, of extents below 2^28");
    const bool has_unit = fits && has_matrix_unit(device, kCoopmatProduct, sizes_.dtype) && num_eights() <= kMostEights;
    if (forced == kCoopmat && !has_unit)
      refuse(
          NW_UNSUPPORTED, -1,
          "lltm_backward: kernel 'coopmat' needs f16 or bf16 tensors that 'tiled' takes too, of up to 2^33 gates (batch and gates "
          "rounded up to 64 each). The device and this build must have cooperative matrices of that dtype");
    const Variant variant = forced >= 0                      ? static_cast<Variant>(forced)
                            : has_unit && prefers_matrices() ? kCoopmat
                            : fits                           ? kTiled
                                                             : kScalar;
    kernel = kKernels[variant];
    if (lltm_grad_has_terms(sig, sizes_))
      plan_sums(variant);
    else
      fill_all();
    sig_ = nullptr;
  }

  void record(Recorder& recorder, const nw_call& call) const override {
    for (uint32_t i = 0; i < kNumOutputs; ++i)
      if (fill_[i].kernel.pipeline != VK_NULL_HANDLE) fill_[i].record(recorder, address(call.outputs[i]));
    if (gate_grads_groups_ == 0) return;
    if (scales_) zeros_.record(recorder, largest(call));
    record_gate_grads(recorder, call);
    if (split_.blocks != 0) record_split(recorder, call);
    for (const Product& product : products_) record_product(recorder, call, product, &product == products_.data());
    bool first = true;
    for (const Product& product : products_) {
      if (product.push.slices == 1) continue;
      product.sum.record(recorder, workspace(call) + product.partial, column_of(call.outputs[product.to], product.to_at), first);
      first = false;
    }
  }

 private:
  // ---- recording ----

  Address in(const nw_call& call, uint32_t i) const { return i < call.num_inputs ? address(call.inputs[i]) : 0; }
  // Where a column begins whose distance from the first is given in elements.
  Address column_of(const DLTensor* t, int64_t elements) const {
    return address(t) + static_cast<Address>(elements * size_of(sizes_.dtype));
  }

  void record_gate_grads(Recorder& recorder, const nw_call& call) const {
    const Address old_cell = kDOldCell < call.num_outputs ? address(call.outputs[kDOldCell]) : 0;
    const GateGradsPush push{in(call, kGradH), in(call, kGradCell), in(call, kNewCell),      in(call, kGates),
                             old_cell,         workspace(call),     recorder.params(shape_), scales_ ? largest(call) : 0};
    recorder.dispatch(gate_grads_, push, gate_grads_groups_);
  }
  // The workspace, split: the gradients, where they are scaled the largest of them and what undoes the scale, the parts.
  Address largest(const nw_call& call) const { return workspace(call) + largest_at_; }
  Address unscale(const nw_call& call) const { return largest(call) + kNumLargest * sizeof(uint32_t); }
  Address parts(const nw_call& call) const { return workspace(call) + parts_at_; }
  void record_split(Recorder& recorder, const nw_call& call) const {
    SplitPush push = split_;
    push.gate_grads = workspace(call), push.parts = parts(call);
    if (scales_) push.largest = largest(call), push.unscale = unscale(call);
    recorder.dispatch(split_kernel_, push, ceil_div(push.blocks, kThreads));
  }
  void record_product(Recorder& recorder, const nw_call& call, const Product& product, bool ordered) const {
    ProductPush push = product.push;
    push.gate_grads = product.of_parts ? parts(call) : workspace(call), push.partial = workspace(call) + product.partial;
    push.unscale = product.of_parts && scales_ ? unscale(call) : 0;
    push.operand = product.operand == kNumInputs ? 0 : column_of(call.inputs[product.operand], product.operand_at);
    push.to = column_of(call.outputs[product.to], product.to_at);
    recorder.dispatch(product.kernel, push, product.groups, ordered);
  }

  // ---- planning: zeros ----

  void fill_all() {
    for (uint32_t i = 0; i < kNumOutputs; ++i) {
      const Extents2 of = lltm_grad_extents(sizes_, i);
      if (!has_output(*sig_, i) || of.rows == 0 || of.columns == 0) continue;  // the other may be huge
      fill_[i].to = {1, of.rows, of.columns, {0, outputs_[i].row, outputs_[i].column}};
      fill_[i].load(device, size_of(sizes_.dtype), !is_aligned(output(*sig_, i)));
    }
  }

  // ---- planning: sums ----

  // Rows of whole fours, so that they may be read so.
  void plan_gate_grads() {
    const GateGradsLayout layout = gate_grads_layout(sizes_, kGroup);
    workspace_size = layout.bytes;
    shape_ = {sizes_.batch,       sizes_.state,      layout.pitch,    inputs_[kGradH],
              inputs_[kGradCell], inputs_[kNewCell], inputs_[kGates], outputs_[kDOldCell]};
    gate_grads_groups_ = ceil_div(sizes_.batch * sizes_.state, kThreads);
    gate_grads_ = device.kernels().get(kGateGrads.of(sizes_.dtype), {!aligned_});
  }

  // Products so many that the split is worth it.
  bool prefers_matrices() const {
    constexpr double kLeast = 1 << 24;
    const auto number = [](int64_t x) { return static_cast<double>(x); };
    return !device.physical.is_cpu() &&
           number(sizes_.batch) * number(sizes_.state) * number(sizes_.state + sizes_.features) >= kLeast;
  }

  // Of the first parts. Rows and their number are whole stages, so that products need not look where they end.
  int64_t eights_of_row() const { return ceil_div(3 * sizes_.state, kMostDepth) * (kMostDepth / 8); }
  int64_t num_eights() const { return ceil_div(sizes_.batch, kMostDepth) * kMostDepth * eights_of_row(); }
  void plan_split() {
    split_.pitch = shape_.pitch, split_.batch = static_cast<int32_t>(sizes_.batch),
    split_.gates = static_cast<int32_t>(3 * sizes_.state);
    split_.eights_of_row = static_cast<uint32_t>(eights_of_row()), split_.blocks = static_cast<uint32_t>(num_eights());
    split_kernel_ = device.kernels().get(kSplit.of(sizes_.dtype), {0});
    scales_ = sizes_.dtype == Dtype::f16;
    if (scales_) plan_scale();
    parts_at_ = workspace_size;
    workspace_size += round_up(uint64_t{split_.blocks} * 2 * 8 * sizeof(uint16_t), NW_WORKSPACE_ALIGN);
  }

  void plan_scale() {
    zeros_.to = {1, 1, kNumLargest, {0, 0, 1}};
    zeros_.load(device, sizeof(uint32_t), false);
    largest_at_ = workspace_size;
    workspace_size += round_up(uint64_t{(kNumLargest + 1) * sizeof(uint32_t)}, NW_WORKSPACE_ALIGN);
  }

  void plan_sums(Variant variant) {
    plan_gate_grads();
    for (const LltmGradProduct& product : lltm_grad_products(*sig_, sizes_)) add(product);
    const bool multiplies = std::ranges::any_of(products_, [](const Product& p) { return p.operand != kNumInputs; });
    if (variant == kCoopmat && multiplies) plan_split();
    for (Product& product : products_) {
      if (variant == kScalar)
        plan_scalar(product);
      else if (variant == kCoopmat && product.operand != kNumInputs)
        plan_coopmat(product);
      else
        plan_tiled(product);
    }
  }

  void add(const LltmGradProduct& of) {
    const bool has_operand = of.operand != kNumInputs;
    ProductPush push{};
    if (has_operand) push.operand_strides = inputs_[of.operand];
    push.to_strides = outputs_[of.to];
    if (of.to == kDBias) push.to_strides.row = push.to_strides.column;  // results lie along its columns
    push.pitch = shape_.pitch, push.rows = of.rows, push.columns = of.columns, push.depth = of.depth;
    push.slices = 1;
    const auto reads_together = [&](int64_t group) {
      return has_operand && reads_rows_together(input(*sig_, of.operand), of.operand_column, group);
    };
    products_.push_back({of, of.operand_column * push.operand_strides.column, of.to_column * push.to_strides.column,
                         reads_together(kGroup), reads_together(8) && of.columns % 8 == 0, push});
  }

  void plan_scalar(Product& product) {
    device.check_loops(product.push.depth + 2);
    product.groups = ceil_div(product.push.rows * product.push.columns, kThreads);
    product.kernel = device.kernels().get(kScalarProduct.of(sizes_.dtype), {!aligned_, product.to_weights});
  }

  void plan_tiled(Product& product) {
    ProductPush& push = product.push;
    const auto count = [&](const GemmTile& tile) {
      return ceil_div(push.rows, tile.rows()) * ceil_div(push.columns, tile.columns());
    };
    GemmTile tile = sizes_.dtype == Dtype::f64 ? kLargeF64 : kLarge;
    const int64_t stages = ceil_div(push.depth, int64_t{tile.depth});
    // A tile that is mostly empty, or too few of them even in slices.
    if (device.physical.is_cpu() || push.columns <= tile.columns() / 2 || count(tile) * stages < 8 * kManyGroups) tile = kSmall;
    push.stages = static_cast<int32_t>(stages);
    push.column_tiles = static_cast<uint32_t>(ceil_div(push.columns, tile.columns()));
    push.slices = static_cast<uint32_t>(gemm_slices(device, tile, count(tile), stages));
    product.groups = count(tile) * push.slices;
    push.blocks = static_cast<uint32_t>(product.groups);
    product.kernel = gemm_kernel(device, kTiledProduct.of(sizes_.dtype), tile, {product.to_weights, product.together});
    plan_slices(product);
  }

  void plan_coopmat(Product& product) {
    const MatrixUnit& unit = matrix_unit(device, sizes_.dtype);
    ProductPush& push = product.push;
    const auto count = [&](const MatrixTile& tile) {
      return ceil_div(push.rows, tile.rows(unit) / 2) * ceil_div(push.columns, tile.columns(unit));
    };
    const auto stages = [&](int64_t depth) { return ceil_div(push.depth, depth); };
    const bool fills =
        push.columns > kLargeMatrices.columns(unit) / 2 && count(kLargeMatrices) * stages(kMatrixDepth) >= 8 * kManyGroups;
    const MatrixTile& tile = fills ? kLargeMatrices : kSmallMatrices;
    const bool has_room = tile.shared_memory_across(unit, kMostDepth, product.to_weights, 2) <=
                          device.physical.properties.limits.maxComputeSharedMemorySize;
    const int64_t depth = has_room ? kMostDepth : kMatrixDepth;
    push.pitch = 2 * 8 * eights_of_row();
    push.stages = static_cast<int32_t>(stages(depth));
    push.column_tiles = static_cast<uint32_t>(ceil_div(push.columns, tile.columns(unit)));
    push.slices = static_cast<uint32_t>(num_slices(count(tile), push.stages));
    product.groups = count(tile) * push.slices;
    push.blocks = static_cast<uint32_t>(product.groups);
    product.of_parts = true;
    const bool out_together =
        push.columns % 8 == 0 && (push.slices > 1 || reads_rows_together(output(*sig_, product.to), product.to_at, 8));
    product.kernel =
        matrix_kernel(device, kCoopmatProduct, sizes_.dtype, tile, 0, depth, {product.to_weights, product.whole, out_together});
    device.check_loops(3 * ceil_div(push.stages, push.slices) + 1024);
    plan_slices(product);
  }

  // Where the reduction was cut, its sums come last.
  void plan_slices(Product& product) {
    const ProductPush& push = product.push;
    if (push.slices == 1) return;
    product.partial = workspace_size;
    product.sum = {push.slices, {1, push.rows, push.columns, {0, push.to_strides.row, push.to_strides.column}}, {}};
    product.sum.load(device, sizes_.dtype, false);
    workspace_size += round_up(product.sum.bytes(sizes_.dtype), NW_WORKSPACE_ALIGN);
  }

  const nw_sig* sig_;  // while planning
  LltmSizes sizes_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  bool aligned_;
  Fill fill_[kNumOutputs];  // where all gradients are zeros
  GateGradsShape shape_{};
  int64_t gate_grads_groups_ = 0;
  Kernel gate_grads_;
  SplitPush split_{};    // but for the addresses; blocks 0: the gradients stay whole
  bool scales_ = false;  // split, of f16, which has few exponents
  Fill zeros_;           // scales_: where the largest are found, before
  Kernel split_kernel_;
  uint64_t largest_at_ = 0, parts_at_ = 0;  // in the workspace
  std::vector<Product> products_;
};

}  // namespace

const Op lltm_backward = {"lltm_backward", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                            check_params_tail(sig, 0);
                            return std::make_unique<LltmBackwardPlan>(instance.device(sig), sig);
                          }};

}  // namespace narrows::vulkan
