// SPDX-License-Identifier: Apache-2.0
// lltm_backward.cu -- plans and launches lltm_backward, its gradient of the gates, and its plainest products.
#include "lltm_backward.h"

#include <optional>
#include <vector>

#include "lltm_as_conv1d.h"
#include "lltm_bias.h"
#include "lltm_cell.h"
#include "lltm_library.h"
#include "lltm_native.h"
#include "ops/gemm/tile_gemm.h"

namespace narrows::gpu {
namespace {

constexpr int kThreads = 256;
// Blocks of the gradient of the gates where a split needs the largest of each; with what undoes the split's scale, in bytes.
constexpr int64_t kMostLargest = 1024;
constexpr uint64_t kLargestSize = kMostLargest * sizeof(float), kUnscaleSize = 256;

// One thread for each cell.
template <class T, bool Aligned>
__global__ void __launch_bounds__(kThreads) gate_grads_kernel(LltmGateGrads p) {
  using A = Accumulate<T>;
  A largest = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < p.batch * p.state; i += step) {
    const int64_t b = i / p.state, s = i % p.state;
    const auto gate = [&](int64_t which) { return read<A, Aligned>(p.gates, b, which * p.state + s); };
    const A z_in = gate(0), z_out = gate(1), z_candidate = gate(2), new_cell = read<T, Aligned>(p.new_cell, b, s);
    const A grad_h = p.grad_h.base != nullptr ? read<T, Aligned>(p.grad_h, b, s) : A{0};
    const A grad_cell = p.grad_cell.base != nullptr ? read<T, Aligned>(p.grad_cell, b, s) : A{0};
    const A d_cell = tanh_slope(new_cell) * sigmoid(z_out) * grad_h + grad_cell;
    A* out = at<A>(p.gate_grads, b, s);
    const A grads[3] = {elu(z_candidate) * d_cell * sigmoid_slope(z_in),
                        hyperbolic_tangent(new_cell) * grad_h * sigmoid_slope(z_out),
                        sigmoid(z_in) * d_cell * elu_slope(z_candidate)};
#pragma unroll
    for (int which = 0; which < 3; ++which) {
      out[which * p.state] = grads[which];
      const A size = magnitude(grads[which]);
      if (size > largest && size < static_cast<A>(INFINITY)) largest = size;
    }
    if (p.d_old_cell.base != nullptr) write<T, Aligned>(p.d_old_cell, b, s, d_cell);
  }
  if (p.largest == nullptr) return;
  __shared__ A shared[kThreads];
  largest = largest_of_block<kThreads>(largest, shared);
  if (threadIdx.x == 0) reinterpret_cast<A*>(p.largest)[blockIdx.x] = largest;
}

// One product, one thread for each result.
template <class T, bool Aligned>
__global__ void __launch_bounds__(kThreads) scalar_product_kernel(LltmProduct p, Matrix gate_grads) {
  using A = Accumulate<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < p.rows * p.columns; i += step) {
    const int64_t row = i / p.columns, column = i % p.columns;
    A sum = 0;
    for (int64_t k = 0; k < p.depth; ++k) {
      const A grad = *at<const A>(gate_grads, p.to_weights ? k : row, p.to_weights ? row : k);
      sum += p.operand.base != nullptr ? grad * read<T, Aligned>(p.operand, k, column) : grad;
    }
    write<T, Aligned>(p.out, row, column, sum);
  }
}

// All bits of zero are a zero of every dtype, so bytes will do.
__global__ void __launch_bounds__(kThreads) fill_zero_kernel(Matrix out, int64_t rows, int64_t columns, int64_t element_size) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows * columns; i += step) {
    char* to = out.base + (i / columns * out.row + i % columns * out.column) * element_size;
    for (int64_t byte = 0; byte < element_size; ++byte) to[byte] = 0;
  }
}

constexpr const char* kKernels[] = {blaslt::kVariant, "wgmma", "wgmma_split", "mma", "tiled", "scalar", nullptr};
enum Kernel { kLibrary, kWgmma, kSplit, kMma, kTiled, kScalar };
using namespace lltm_grad;

class LltmBackwardPlan final : public Plan {
 public:
  LltmBackwardPlan(const Instance& instance, const nw_sig& sig) {
    sizes_ = lltm_sizes(sig, kInput, kOldH);
    read_strides(sig, inputs_, outputs_);
    for (uint32_t i = 0; i < kNumOutputs; ++i) wanted_[i] = has_output(sig, i);
    const bool aligned = lltm_grad_is_aligned(sig);
    const int forced = forced_kernel(sig, kKernels);
    if (forced == kTiled && !aligned) refuse_forced(kTiled, "it needs tensors that are aligned to their elements");
    choice_ = forced >= 0 ? static_cast<Kernel>(forced) : aligned ? kTiled : kScalar;
    all_zero_ = !lltm_grad_has_terms(sig, sizes_);
    if (all_zero_ && forced >= 0 && forced < kTiled)
      refuse(NW_UNSUPPORTED, -1, "lltm_backward: kernel '%s' has nothing to multiply where both gradients are absent or empty",
             kKernels[forced]);
    if (all_zero_)
      load_kernel(fill_zero_kernel);
    else
      plan_sums(instance.device(sig), sig, aligned, forced >= 0);
    kernel = kKernels[choice_];
  }

  void launch(const nw_call& call) const override {
    if (all_zero_) return fill_zero(call);
    const gpuStream_t stream = stream_of(call);
    const Matrix grads{static_cast<char*>(call.workspace), pitch_, 1};
    char* const largest = is_split() ? grads.base + gate_grads_size_ : nullptr;
    const int64_t blocks = std::min(ceil_div(sizes_.batch * sizes_.state, kThreads), is_split() ? kMostLargest : kMaxBlocks);
    launch_kernel(gate_grads_, blocks, kThreads, 0, stream,
                  LltmGateGrads{sizes_.batch, sizes_.state, in(call, kGradH), in(call, kGradCell), in(call, kNewCell),
                                in(call, kGates), out(call, kDOldCell), grads, largest});
    if (bias_) bias_->launch(grads, out(call, kDBias), grads.base, stream);
    if (choice_ == kLibrary) return library_->launch(library_tensors(call, grads, largest, blocks), stream);
    if (choice_ == kSplit) return launch_split(call, grads, stream);
    if (products_.count != 0) launch_products(call, grads, largest, blocks, stream);
  }

 private:
  Matrix in(const nw_call& call, uint32_t i) const {
    return {i < call.num_inputs ? data<char>(call.inputs[i]) : nullptr, inputs_[i].row, inputs_[i].column};
  }
  Matrix out(const nw_call& call, uint32_t i) const {
    return {i < call.num_outputs ? data<char>(call.outputs[i]) : nullptr, outputs_[i].row, outputs_[i].column};
  }
  Matrix from_column(Matrix m, int64_t column) const {
    m.base += column * m.column * size_of(sizes_.dtype);
    return m;
  }

  // ---- planning ----

  [[noreturn]] void refuse_forced(Kernel forced, const char* why) const {
    refuse(NW_UNSUPPORTED, -1, "lltm_backward: kernel '%s' does not take this call of %s: %s", kKernels[forced],
           name_of(sizes_.dtype), why);
  }

  void plan_sums(const Device& device, const nw_sig& sig, bool aligned, bool forced) {
    add_products(sig);
    reserve_gate_grads(16 / size_of(accumulate_dtype(sizes_.dtype)));
    choose_kernel(device, sig, aligned, forced);
    with_dtype(sizes_.dtype, [&]<class T>(T) {
      gate_grads_ = aligned ? gate_grads_kernel<T, true> : gate_grads_kernel<T, false>;
      scalar_ = aligned ? scalar_product_kernel<T, true> : scalar_product_kernel<T, false>;
      constexpr int64_t kUnit = kGroup<Accumulate<T>>;
      if (choice_ == kTiled) tiled_ = lltm_tiled_products(device, sizes_.dtype, has_rows_of(sig, kUnit), &products_);
    });
    load_kernel(gate_grads_);
    workspace_size = gate_grads_size_;
    if (is_split()) workspace_size += kLargestSize + kUnscaleSize;
    if ((is_split() || choice_ == kSplit) && wanted_[kDBias]) bias_.emplace(sizes_, &workspace_size);
    products_at_ = workspace_size;
    workspace_size += choice_ == kLibrary ? library_->workspace_size : tiled_.partials_size;
    uint64_t of_parts = 0;  // one after the other in the same place
    for (const std::unique_ptr<Part>& part : parts_) of_parts = std::max(of_parts, part->workspace_size);
    workspace_size += of_parts;
    if (choice_ == kScalar) {
      load_kernel(scalar_);
      return;
    }
    if (products_.count != 0 && tiled_.kernel != nullptr) load_kernel(tiled_.kernel, tiled_.shared);
    if (tiled_.sums != nullptr) load_kernel(tiled_.sums);
  }

  // Whether the gradient of the gates is split into two parts of 16 bits; then d_bias is none of the products.
  bool is_split() const { return choice_ == kLibrary || (size_of(sizes_.dtype) == 2 && (choice_ == kWgmma || choice_ == kMma)); }

  // The forced one, or the first that takes the call and gains by it.
  void choose_kernel(const Device& device, const nw_sig& sig, bool aligned, bool forced) {
    const auto tries = [&](Kernel kernel) { return forced ? choice_ == kernel : choice_ == kTiled; };
    const bool enough = forced || has_enough_for_matrix_units(device);
    if (enough && tries(kWgmma)) plan_matrix_units(kWgmma, device, sig, aligned, forced);
    if (tries(kLibrary)) plan_library(device, sig, aligned, forced);
    if (tries(kSplit)) plan_split(device, sig, aligned, forced);
    if (enough && tries(kMma)) plan_matrix_units(kMma, device, sig, aligned, forced);
  }

  // What they need around the products takes time: 16 bits a split; of f32 the units are those of f64.
  bool has_enough_for_matrix_units(const Device& device) const {
    constexpr LltmTileSize kTile = {128, 128, 32};
    const int64_t least = sizes_.dtype == Dtype::f32 ? 8 : sizes_.dtype == Dtype::f64 ? 1 : 2;  // stages for each multiprocessor
    return num_stages(size_of(sizes_.dtype) == 2 ? without_bias() : products_, kTile) >= least * device.multiprocessors;
  }
  LltmProducts without_bias() const {
    LltmProducts products = products_;
    if (wanted_[kDBias]) --products.count;  // it is the last
    return products;
  }

  // The vendor's library, if it takes the call; unless forced, only where it is faster, and does not want much memory for that.
  void plan_library(const Device& device, const nw_sig& sig, bool aligned, bool forced) {
    std::string reason;
    const bool to_inputs = wanted_[kDOldH] || wanted_[kDInput];
    if (is_for_library(sizes_, forced) && aligned && (to_inputs || wanted_[kDWeights]) &&
        (!to_inputs || has_library_rows(input(sig, kWeights))) && (!wanted_[kDWeights] || has_library_rows(output(sig, kDWeights))))
      library_ = LltmLibraryProducts::plan(device, sizes_, {wanted_[kDOldH], wanted_[kDInput]}, inputs_[kWeights].row,
                                           wanted_[kDWeights] ? outputs_[kDWeights].row : 0, &reason);
    if (!forced && library_ != nullptr && library_->workspace_size > static_cast<uint64_t>(kMostForLibrary)) library_ = nullptr;
    if (library_ != nullptr)
      choice_ = kLibrary, traits |= kLibraryTraits;
    else if (forced)
      refuse_forced(kLibrary, !reason.empty()
                                  ? reason.c_str()
                                  : "it needs f16 or bf16, states and features in eights, and contiguous rows of weights "
                                    "and d_weights at multiples of 16 bytes");
  }

  // NVIDIA's matrix units, if they take the call.
  void plan_matrix_units(Kernel kernel, const Device& device, const nw_sig& sig, bool aligned, bool forced) {
    const NativeLltm& native = lltm_native();
    const auto of_halves = kernel == kWgmma ? native.halves_wgmma : native.halves_mma;
    const bool is_16_bits = size_of(sizes_.dtype) == 2;
    if (is_16_bits && aligned && of_halves != nullptr)
      plan_halves(of_halves, device, sig, kernel == kWgmma);
    else if (!is_16_bits && aligned && kernel == kMma && native.products != nullptr)
      tiled_ = native.products(device, sizes_.dtype, has_rows_of(sig, 16 / size_of(sizes_.dtype)), &products_);
    if (tiled_.kernel != nullptr)
      choice_ = kernel;
    else if (forced)
      refuse_forced(kernel, of_halves == nullptr ? "this build has none"
                            : kernel == kWgmma
                                ? "it needs sm_90, f16 or bf16, products, states and features in eights, and contiguous rows at "
                                  "multiples of 16 bytes, one after the other"
                                : "it needs sm_80 and products in f16 and bf16, sm_90 in others, and states, features and "
                                  "contiguous rows at multiples of 16 bytes");
  }

  // wgmma_split does not share the sum over the batch among blocks. So if that sum is long, its tiles, of 128 x 256 sums, have to
  // occupy a quarter of the multiprocessors. 1024 is what was measured.
  static bool fills_with_tiles(const Device& device, const LltmProducts& products) {
    constexpr LltmTileSize kTile = {128, 256, 32};
    return std::all_of(products.list, products.list + products.count, [&](const LltmProduct& p) {
      return !p.to_weights || p.depth <= 1024 || 4 * num_tiles(p, kTile) >= device.multiprocessors;
    });
  }

  // Products of f32 in parts, if all of them are made so.
  void plan_split(const Device& device, const nw_sig& sig, bool aligned, bool forced) {
    const LltmProducts products = without_bias();
    if (sizes_.dtype == Dtype::f32 && aligned && (forced || fills_with_tiles(device, products)))
      for (int i = 0; i < products.count; ++i) {
        const LltmGradProduct& of = described_[static_cast<size_t>(i)];
        const auto align = [](const nw_tensor_sig& tensor, int64_t offset) {
          return offset * 4 % 16 == 0 ? alignment(tensor) : std::min<int64_t>(alignment(tensor), 4);
        };
        const Strides2 operand = inputs_[of.operand], out = outputs_[of.to];
        std::unique_ptr<Part> part = plan_lltm_as_conv1d({&device, products.list[i], operand, out,
                                                          align(input(sig, of.operand), of.operand_column * operand.column),
                                                          align(output(sig, of.to), of.to_column * out.column), pitch_, forced});
        if (part != nullptr) parts_.push_back(std::move(part));
      }
    if (!parts_.empty() && parts_.size() == static_cast<size_t>(products.count)) {
      choice_ = kSplit;
    } else {
      parts_.clear();
      if (forced) refuse_forced(kSplit, "it needs f32, sm_90, products, and tensors that are aligned to their elements");
    }
  }

  void plan_halves(LltmProductsChoice (*choose)(const Device&, Dtype, LltmProducts*), const Device& device, const nw_sig& sig,
                   bool positive) {
    LltmProducts products = without_bias();
    const int64_t pitch = ceil_div(3 * sizes_.state, kLltmChunk) * kLltmChunk;
    if (products.count == 0 || sizes_.state % 8 != 0 || sizes_.features % 8 != 0 || !has_rows_of(sig, 8, positive) ||
        pitch / kLltmChunk * sizes_.batch >= int64_t{1} << 31)
      return;
    tiled_ = choose(device, sizes_.dtype, &products);
    if (tiled_.kernel == nullptr) return;
    products_ = products;
    reserve_gate_grads(kLltmChunk);
  }

  void add_products(const nw_sig& sig) {
    described_ = lltm_grad_products(sig, sizes_);
    for (const LltmGradProduct& of : described_) {
      LltmProduct& product = products_.list[products_.count++];
      product = {};
      product.rows = of.rows, product.columns = of.columns, product.depth = of.depth;
      product.to_weights = of.to_weights;
      product.has_operand = of.operand != kNumInputs;
    }
  }

  // Rows of whole groups of 16 bytes, so that any kernel may read them so, or of whole `unit`s.
  void reserve_gate_grads(int64_t unit) {
    const GateGradsLayout layout = gate_grads_layout(sizes_, unit);
    pitch_ = layout.pitch, gate_grads_size_ = layout.bytes;
  }

  // Whether every operand that is read has contiguous rows that start at multiples of `unit` elements, in memory too; positive:
  // each behind the one before, as the copy engine wants them.
  bool has_rows_of(const nw_sig& sig, int64_t unit, bool positive = false) const {
    const auto has = [&](uint32_t i, int64_t first) {
      const Strides2& strides = inputs_[i];
      if (positive && input(sig, i).shape[0] > 1 && (strides.row <= 0 || strides.row >= int64_t{1} << 38)) return false;
      return strides.column == 1 && strides.row % unit == 0 && first % unit == 0 &&
             int64_t{1} << input(sig, i).align_log2 >= unit * size_of(sizes_.dtype);
    };
    const bool to_inputs = wanted_[kDInput] || wanted_[kDOldH], to_weights = wanted_[kDWeights];
    return (!to_inputs || has(kWeights, wanted_[kDInput] ? sizes_.state : 0)) &&
           (!to_weights || ((sizes_.features == 0 || has(kInput, 0)) && has(kOldH, 0)));
  }

  // ---- launching ----

  LltmLibraryGradients library_tensors(const nw_call& call, Matrix grads, const char* largest, int64_t num_largest) const {
    return {grads,
            reinterpret_cast<const float*>(largest),
            num_largest,
            in(call, kInput),
            in(call, kWeights),
            in(call, kOldH),
            out(call, kDInput),
            out(call, kDWeights),
            out(call, kDOldH),
            grads.base + products_at_};
  }

  void launch_split(const nw_call& call, Matrix grads, gpuStream_t stream) const {
    for (size_t i = 0; i < parts_.size(); ++i) {
      LltmProduct product{};
      bind(call, static_cast<int>(i), &product);
      parts_[i]->launch({product.operand.base, grads.base, nullptr, product.out.base}, grads.base + products_at_, stream);
    }
  }

  void launch_products(const nw_call& call, Matrix grads, char* largest, int64_t num_largest, gpuStream_t stream) const {
    LltmProducts products = products_;
    products.gate_grads = grads;
    products.partials = grads.base + products_at_;
    products.largest = reinterpret_cast<const float*>(largest), products.num_largest = num_largest;
    if (largest != nullptr) products.unscale = reinterpret_cast<float*>(largest + kLargestSize);
    for (int i = 0; i < products.count; ++i) bind(call, i, &products.list[i]);
    if (choice_ == kScalar) return launch_scalar(products, stream);
    if (tiled_.launch != nullptr)
      tiled_.launch(tiled_, products, stream);
    else
      launch_kernel(reinterpret_cast<LltmProductsKernel>(const_cast<void*>(tiled_.kernel)), tiled_.blocks, tiled_.threads,
                    tiled_.shared, stream, products);
    if (tiled_.sums != nullptr) launch_kernel(tiled_.sums, tiled_.sum_blocks, kLltmSumThreads, 0, stream, products);
  }

  void bind(const nw_call& call, int i, LltmProduct* product) const {
    const LltmGradProduct& of = described_[static_cast<size_t>(i)];
    if (of.operand != kNumInputs) product->operand = from_column(in(call, of.operand), of.operand_column);
    product->out = from_column(out(call, of.to), of.to_column);
    if (of.to == kDBias) product->out.row = product->out.column;  // results lie along its columns
  }

  void launch_scalar(const LltmProducts& products, gpuStream_t stream) const {
    for (int i = 0; i < products.count; ++i) {
      const LltmProduct& product = products.list[i];
      const int64_t blocks = std::min(ceil_div(product.rows * product.columns, kThreads), kMaxBlocks);
      launch_kernel(scalar_, blocks, kThreads, 0, stream, product, products.gate_grads);
    }
  }

  void fill_zero(const nw_call& call) const {
    for (uint32_t i = 0; i < kNumOutputs; ++i) {
      const Extents2 of = lltm_grad_extents(sizes_, i);
      if (!wanted_[i] || of.rows == 0 || of.columns == 0) continue;
      launch_kernel(fill_zero_kernel, std::min(ceil_div(of.rows * of.columns, kThreads), kMaxBlocks), kThreads, 0, stream_of(call),
                    out(call, i), of.rows, of.columns, size_of(sizes_.dtype));
    }
  }

  LltmSizes sizes_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  bool wanted_[kNumOutputs];
  bool all_zero_;
  Kernel choice_;
  int64_t pitch_ = 0;
  uint64_t gate_grads_size_ = 0, products_at_ = 0;  // products_at_: of partial sums, or of the library, in the workspace
  std::vector<LltmGradProduct> described_;          // the tensors of those in products_
  LltmProducts products_;
  LltmProductsChoice tiled_;
  std::vector<std::unique_ptr<Part>> parts_;  // of kSplit, one for each product
  std::optional<LltmBiasSums> bias_;          // if d_bias is wanted and none of the products
  std::unique_ptr<const LltmLibraryProducts> library_;
  void (*gate_grads_)(LltmGateGrads) = nullptr;
  void (*scalar_)(LltmProduct, Matrix) = nullptr;
};

}  // namespace

const Op lltm_backward = {"lltm_backward", kKernels, [](const Instance& instance, const nw_sig& sig) -> std::unique_ptr<Plan> {
                            check_params_tail(sig, 0);
                            return std::make_unique<LltmBackwardPlan>(instance, sig);
                          }};

}  // namespace narrows::gpu
