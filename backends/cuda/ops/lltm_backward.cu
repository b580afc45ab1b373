// lltm_backward.cu -- plans and launches lltm_backward, its gradient of the gates, and its plainest products. Step 5 of a tensor's
// path.
#include "lltm_backward.h"

#include "lltm_cell.h"
#include "lltm_library.h"
#include "lltm_native.h"
#include "tile_gemm.h"

namespace narrows::gpu {
namespace {

constexpr int kThreads = 256;
// Blocks of the gradient of the gates where the library needs the largest of each, and its bytes.
constexpr int64_t kMostLargest = 1024;
constexpr uint64_t kLargestSize = kMostLargest * sizeof(float);

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

constexpr const char* kKernels[] = {blaslt::kVariant, "mma", "tiled", "scalar", nullptr};
enum Kernel { kLibrary, kMma, kTiled, kScalar };
enum Input : uint32_t { kGradH, kGradCell, kInput, kWeights, kBias, kOldH, kOldCell, kNewH, kNewCell, kGates, kNumInputs };
enum Output : uint32_t { kDInput, kDWeights, kDBias, kDOldH, kDOldCell, kNumOutputs };

class LltmBackwardPlan final : public Plan {
 public:
  LltmBackwardPlan(const Instance& instance, const nw_sig& sig) {
    sizes_ = {float_dtype(sig, kInput), input(sig, kInput).shape[0], input(sig, kInput).shape[1], input(sig, kOldH).shape[1]};
    for (uint32_t i = 0; i < kNumInputs; ++i) inputs_[i] = has_input(sig, i) ? strides2(input(sig, i)) : Strides2{};
    for (uint32_t i = 0; i < kNumOutputs; ++i) outputs_[i] = has_output(sig, i) ? strides2(output(sig, i)) : Strides2{};
    for (uint32_t i = 0; i < kNumOutputs; ++i) wanted_[i] = has_output(sig, i);
    const bool aligned = is_element_aligned(sig);
    const int forced = forced_kernel(sig, kKernels);
    if (forced == kTiled && !aligned) refuse_forced(kTiled, "it needs tensors that are aligned to their elements");
    choice_ = forced >= 0 ? static_cast<Kernel>(forced) : aligned ? kTiled : kScalar;
    all_zero_ = (!has_input(sig, kGradH) && !has_input(sig, kGradCell)) || sizes_.batch == 0 || sizes_.state == 0;
    if (all_zero_ && (forced == kLibrary || forced == kMma))
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
    char* const behind_grads = static_cast<char*>(call.workspace) + gate_grads_size_;
    const bool by_library = choice_ == kLibrary;
    const int64_t blocks = std::min(ceil_div(sizes_.batch * sizes_.state, kThreads), by_library ? kMostLargest : kMaxBlocks);
    launch_kernel(gate_grads_, blocks, kThreads, 0, stream,
                  LltmGateGrads{sizes_.batch, sizes_.state, in(call, kGradH), in(call, kGradCell), in(call, kNewCell),
                                in(call, kGates), out(call, kDOldCell), grads, by_library ? behind_grads : nullptr});
    if (by_library) return library_->launch(library_tensors(call, grads, behind_grads), blocks, stream);
    LltmProducts products = products_;
    products.gate_grads = grads;
    products.partials = behind_grads;
    for (int i = 0; i < products.count; ++i) bind(call, i, &products.list[i]);
    if (products.count == 0) return;
    if (choice_ == kScalar) return launch_scalar(products, stream);
    launch_kernel(tiled_.products, tiled_.blocks, tiled_.threads, tiled_.shared, stream, products);
    if (tiled_.sums != nullptr) launch_kernel(tiled_.sums, tiled_.sum_blocks, kLltmSumThreads, 0, stream, products);
  }

 private:
  // Only what is read or written counts.
  static bool is_element_aligned(const nw_sig& sig) {
    for (uint32_t i = 0; i < sig.num_inputs + sig.num_outputs; ++i) {
      if (i < sig.num_inputs && (i == kBias || i == kOldCell || i == kNewH)) continue;
      if (const nw_tensor_sig& t = sig.tensors[i]; t.ndim >= 0 && (1 << t.align_log2) < t.dtype.bits / 8) return false;
    }
    return true;
  }

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
    add_products();
    reserve_gate_grads();
    if (forced ? choice_ == kLibrary : choice_ == kTiled) plan_library(device, sig, aligned, forced);
    if (forced ? choice_ == kMma : choice_ == kTiled) plan_mma(device, sig, aligned, forced);
    with_dtype(sizes_.dtype, [&]<class T>(T) {
      gate_grads_ = aligned ? gate_grads_kernel<T, true> : gate_grads_kernel<T, false>;
      scalar_ = aligned ? scalar_product_kernel<T, true> : scalar_product_kernel<T, false>;
      constexpr int64_t kUnit = kGroup<Accumulate<T>>;
      if (choice_ == kTiled) tiled_ = lltm_tiled_products(device, sizes_.dtype, has_rows_of(sig, kUnit), &products_);
    });
    load_kernel(gate_grads_);
    if (choice_ == kLibrary) {
      workspace_size = gate_grads_size_ + kLargestSize + library_->workspace_size;
      return;
    }
    workspace_size = gate_grads_size_ + tiled_.partials_size;
    if (choice_ == kScalar) return load_kernel(scalar_);
    if (products_.count != 0) load_kernel(tiled_.products, tiled_.shared);
    if (tiled_.sums != nullptr) load_kernel(tiled_.sums);
  }

  // The vendor's library, if it takes the call; unless forced, only where it is faster.
  void plan_library(const Device& device, const nw_sig& sig, bool aligned, bool forced) {
    std::string reason;
    const bool to_inputs = wanted_[kDOldH] || wanted_[kDInput];
    if (is_for_library(sizes_, forced) && aligned && (to_inputs || wanted_[kDWeights]) &&
        (!to_inputs || has_library_rows(input(sig, kWeights))) && (!wanted_[kDWeights] || has_library_rows(output(sig, kDWeights))))
      library_ = LltmLibraryProducts::plan(device, sizes_, {wanted_[kDOldH], wanted_[kDInput], wanted_[kDBias]},
                                           inputs_[kWeights].row, wanted_[kDWeights] ? outputs_[kDWeights].row : 0, &reason);
    if (library_ != nullptr)
      choice_ = kLibrary, traits |= kLibraryTraits;
    else if (forced)
      refuse_forced(kLibrary, !reason.empty()
                                  ? reason.c_str()
                                  : "it needs f16 or bf16, states and features in eights, and contiguous rows of weights "
                                    "and d_weights at multiples of 16 bytes");
  }

  // The matrix units, if they take the call; unless forced, only where there is enough for them to do.
  void plan_mma(const Device& device, const nw_sig& sig, bool aligned, bool forced) {
    constexpr LltmTileSize kTile = {128, 128, 32};
    const int64_t least = sizes_.dtype == Dtype::f64 ? 1 : 8;  // of stages for each multiprocessor; f64's own units gain sooner
    if (!forced && num_stages(products_, kTile) < least * device.multiprocessors) return;
    if (aligned && lltm_native().products != nullptr)
      tiled_ = lltm_native().products(device, sizes_.dtype, has_rows_of(sig, 16 / size_of(sizes_.dtype)), &products_);
    if (tiled_.products != nullptr)
      choice_ = kMma;
    else if (forced)
      refuse_forced(kMma, lltm_native().products == nullptr
                              ? "this build has none"
                              : "it needs sm_90, and states, features and contiguous rows at multiples of 16 bytes");
  }

  // Long reductions first, so that they do not end last.
  void add_products() {
    const int64_t gates = 3 * sizes_.state;
    if (wanted_[kDOldH]) add(kDOldHProduct, sizes_.batch, sizes_.state, gates);
    if (wanted_[kDInput]) add(kDInputProduct, sizes_.batch, sizes_.features, gates);
    if (wanted_[kDWeights]) add(kStateWeights, gates, sizes_.state, sizes_.batch);
    if (wanted_[kDWeights]) add(kFeatureWeights, gates, sizes_.features, sizes_.batch);
    if (wanted_[kDBias]) add(kBiasProduct, gates, 1, sizes_.batch);
  }
  enum Role { kDOldHProduct, kDInputProduct, kStateWeights, kFeatureWeights, kBiasProduct };
  void add(Role role, int64_t rows, int64_t columns, int64_t depth) {
    if (columns == 0) return;
    LltmProduct product{};
    product.rows = rows, product.columns = columns, product.depth = depth;
    product.to_weights = role >= kStateWeights;
    product.has_operand = role != kBiasProduct;
    roles_[products_.count] = role;
    products_.list[products_.count++] = product;
  }

  // Rows of whole groups of 16 bytes, so that any kernel may read them so.
  void reserve_gate_grads() {
    const int64_t element = size_of(accumulate_dtype(sizes_.dtype)), unit = 16 / element;
    pitch_ = ceil_div(3 * sizes_.state, unit) * unit;
    int64_t bytes;
    if (__builtin_mul_overflow(pitch_ * element, sizes_.batch, &bytes) || bytes > INT64_MAX / 4)
      refuse(NW_OUT_OF_MEMORY, -1, "lltm_backward: the gradient of %lld x %lld gates is larger than any memory",
             static_cast<long long>(sizes_.batch), static_cast<long long>(3 * sizes_.state));
    gate_grads_size_ = static_cast<uint64_t>(ceil_div(bytes, 256) * 256);
  }

  // Whether every operand that is read has contiguous rows that start at multiples of `unit` elements, in memory too.
  bool has_rows_of(const nw_sig& sig, int64_t unit) const {
    const auto has = [&](uint32_t i, int64_t first) {
      return inputs_[i].column == 1 && inputs_[i].row % unit == 0 && first % unit == 0 &&
             int64_t{1} << input(sig, i).align_log2 >= unit * size_of(sizes_.dtype);
    };
    const bool to_inputs = wanted_[kDInput] || wanted_[kDOldH], to_weights = wanted_[kDWeights];
    return (!to_inputs || has(kWeights, wanted_[kDInput] ? sizes_.state : 0)) && (!to_weights || (has(kInput, 0) && has(kOldH, 0)));
  }

  // ---- launching ----

  LltmLibraryGradients library_tensors(const nw_call& call, Matrix grads, char* largest) const {
    Matrix d_bias = out(call, kDBias);
    d_bias.row = 0;  // it is one row, whatever its rank
    return {grads,
            largest,
            in(call, kInput),
            in(call, kWeights),
            in(call, kOldH),
            out(call, kDInput),
            out(call, kDWeights),
            out(call, kDOldH),
            d_bias,
            largest + kLargestSize};
  }

  void bind(const nw_call& call, int i, LltmProduct* product) const {
    switch (roles_[i]) {
      case kDOldHProduct: product->operand = in(call, kWeights), product->out = out(call, kDOldH); break;
      case kDInputProduct:
        product->operand = from_column(in(call, kWeights), sizes_.state), product->out = out(call, kDInput);
        break;
      case kStateWeights: product->operand = in(call, kOldH), product->out = out(call, kDWeights); break;
      case kFeatureWeights:
        product->operand = in(call, kInput), product->out = from_column(out(call, kDWeights), sizes_.state);
        break;
      case kBiasProduct:
        product->out = out(call, kDBias);
        product->out.row = product->out.column;  // results lie along its columns
        break;
    }
  }

  void launch_scalar(const LltmProducts& products, gpuStream_t stream) const {
    for (int i = 0; i < products.count; ++i) {
      const LltmProduct& product = products.list[i];
      const int64_t blocks = std::min(ceil_div(product.rows * product.columns, kThreads), kMaxBlocks);
      launch_kernel(scalar_, blocks, kThreads, 0, stream, product, products.gate_grads);
    }
  }

  void fill_zero(const nw_call& call) const {
    const int64_t b = sizes_.batch, f = sizes_.features, s = sizes_.state;
    const auto fill = [&](uint32_t i, int64_t rows, int64_t columns) {
      if (!wanted_[i] || rows == 0 || columns == 0) return;
      launch_kernel(fill_zero_kernel, std::min(ceil_div(rows * columns, kThreads), kMaxBlocks), kThreads, 0, stream_of(call),
                    out(call, i), rows, columns, size_of(sizes_.dtype));
    };
    fill(kDInput, b, f), fill(kDWeights, 3 * s, s + f), fill(kDBias, 1, 3 * s), fill(kDOldH, b, s), fill(kDOldCell, b, s);
  }

  LltmSizes sizes_;
  Strides2 inputs_[kNumInputs], outputs_[kNumOutputs];
  bool wanted_[kNumOutputs];
  bool all_zero_;
  Kernel choice_;
  int64_t pitch_ = 0;
  uint64_t gate_grads_size_ = 0;
  Role roles_[kMaxLltmProducts];
  LltmProducts products_;
  LltmProductsChoice tiled_;
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
