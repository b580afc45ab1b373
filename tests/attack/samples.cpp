// SPDX-License-Identifier: Apache-2.0
// samples.cpp -- see samples.h.
#include "samples.h"

#include <narrows/ops.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace narrows::attack {
namespace {

constexpr unsigned char kPoison = 0xCB;
constexpr DLDataType kF32{kDLFloat, 32, 1}, kF64{kDLFloat, 64, 1}, kF16{kDLFloat, 16, 1}, kBF16{kDLBfloat, 16, 1},
    kBool{kDLBool, 8, 1};

// The element's bits: a float of 0.5 to 1 in size and of either sign, any integer, as a bool 0 or any byte.
uint64_t element(DLDataType dtype, uint64_t random) {
  if (dtype.code == kDLBool) return random >> 63 != 0 ? random >> 32 & 0xFF : 0;
  if (dtype.code != kDLFloat && dtype.code != kDLBfloat) return random;
  const int mantissa = dtype.code == kDLBfloat ? 7 : dtype.bits == 16 ? 10 : dtype.bits == 32 ? 23 : 52;
  const int exponent = dtype.bits - 1 - mantissa;
  const uint64_t half = (uint64_t{1} << (exponent - 1)) - 2;  // the exponent of [0.5, 1)
  const uint64_t sign = random >> 63 << (dtype.bits - 1);
  return sign | half << mantissa | (random & ((uint64_t{1} << mantissa) - 1));
}

void fill(const DLTensor& t, size_t size, uint64_t& state) {
  const size_t item = t.dtype.bits / 8;
  for (size_t at = 0; at < size; at += item) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bits = element(t.dtype, state ^ state >> 29);
    std::memcpy(static_cast<char*>(t.data) + at, &bits, item);
  }
}

std::string name(DLDataType dtype) {
  static const char* const codes[] = {"i", "u", "f", "", "bf", "", "bool"};
  return codes[dtype.code] + std::to_string(dtype.bits);
}

using Dims = std::vector<int64_t>;

template <class Params>
void add(Samples& out, const char* op, const std::string& note, const std::vector<Spec>& inputs, const std::vector<Spec>& outputs,
         const Params& params) {
  out.push_back(std::make_unique<Sample>(op, note, inputs, outputs, &params, sizeof params));
}

void add_conv1d(Samples& out, DLDataType t, int64_t batch, int64_t channels, int64_t filters, int64_t length, int64_t taps,
                int64_t groups) {
  const nw_conv1d_params params{1, 1, groups, taps - 1, 0, NW_PADDING_ZEROS};
  const Spec x{t, {batch, channels, length}}, w{t, {filters, channels / groups, taps}}, bias{t, {filters}};
  const Spec y{t, {batch, filters, length}};
  add(out, "conv1d", name(t), {x, w, bias}, {y}, params);
  add(out, "conv1d_backward", name(t), {y, x, w}, {x, w, bias}, params);
}

void add_elementwise(Samples& out, DLDataType t, int64_t rows, int64_t columns) {
  nw_elementwise_params params{};
  const Spec a{t, {rows, columns}}, row{t, {columns}};
  params.function = t.code == kDLBool ? NW_EW_LOGICAL_AND : NW_EW_ADD;
  add(out, "elementwise", "binary " + name(t), {a, row}, {a}, params);
  if (t.code != kDLFloat && t.code != kDLBfloat) return;
  params.function = NW_EW_TANH;
  add(out, "elementwise", "tanh " + name(t), {a}, {a}, params);
  params.function = NW_EW_CAST;
  params.out_dtype = NW_DTYPE_INT16;
  add(out, "elementwise", "cast " + name(t), {a}, {{{kDLInt, 16, 1}, a.shape}}, params);
  params.out_dtype = 0;
  params.function = NW_EW_MUL;
  add(out, "elementwise_backward", "mul " + name(t), {a, a, row}, {a, row, absent()}, params);
}

void add_lltm(Samples& out, DLDataType t, int64_t batch, int64_t features, int64_t states) {
  const DLDataType wide = t.bits == 64 ? kF64 : kF32;
  const Spec input{t, {batch, features}}, weights{t, {3 * states, states + features}}, bias{t, {3 * states}};
  const Spec state{t, {batch, states}}, gates{wide, {batch, 3 * states}};
  const auto op = [&](const char* name_of_op, const std::vector<Spec>& inputs, const std::vector<Spec>& outputs) {
    out.push_back(std::make_unique<Sample>(name_of_op, name(t), inputs, outputs, nullptr, 0));
  };
  op("lltm", {input, weights, bias, state, state}, {state, state, gates});
  op("lltm_backward", {state, state, input, weights, absent(), state, absent(), absent(), state, gates},
     {input, weights, bias, state, state});
}

}  // namespace

Spec absent() { return {{255, 0, 0}, {}}; }

Sample::Sample(const char* op, std::string note, const std::vector<Spec>& inputs, const std::vector<Spec>& outputs,
               const void* params, size_t params_size)
    : what_(op + (" " + std::move(note))), seed_(inputs.size() + 16 * outputs.size()) {
  for (const Spec& spec : inputs) {
    inputs_.emplace_back(add(spec));
    Tensor* const t = inputs_.back().get();
    input_pointers_.push_back(t != nullptr ? &t->dl : nullptr);
    if (t == nullptr) continue;
    fill(t->dl, t->size, seed_);
    t->expected.assign(t->memory.get(), t->memory.get() + t->size);
  }
  for (const Spec& spec : outputs) {
    outputs_.emplace_back(add(spec));
    output_pointers_.push_back(outputs_.back() != nullptr ? &outputs_.back()->dl : nullptr);
  }
  if (!inputs.empty()) what_ += " of " + std::to_string(inputs_[0]->size) + " bytes";
  const auto* bytes = static_cast<const unsigned char*>(params);
  params_.assign(bytes, bytes + params_size);
  call.struct_size = sizeof call;
  call.op = op;
  call.num_inputs = static_cast<uint32_t>(inputs.size());
  call.inputs = input_pointers_.data();
  call.num_outputs = static_cast<uint32_t>(outputs.size());
  call.outputs = output_pointers_.data();
  call.params = params_size != 0 ? params_.data() : nullptr;
  call.params_size = params_size;
}

Sample::Tensor* Sample::add(const Spec& spec) {
  if (spec.dtype.code == 255) return nullptr;
  size_t size = spec.dtype.bits / 8;
  for (const int64_t extent : spec.shape) size *= static_cast<size_t>(extent);
  auto* memory = static_cast<unsigned char*>(std::aligned_alloc(256, (size + 255) / 256 * 256));
  if (memory == nullptr) std::abort();
  auto* t = new Tensor{{}, spec.shape, {memory, std::free}, size, {}};
  t->dl = {memory, {kDLCPU, 0}, static_cast<int32_t>(spec.shape.size()), spec.dtype, t->shape.data(), nullptr, 0};
  return t;
}

void Sample::poison() {
  for (const auto& t : outputs_)
    if (t != nullptr) std::memset(t->memory.get(), kPoison, t->size);
}

bool Sample::inputs_intact() const {
  for (const auto& t : inputs_)
    if (t != nullptr && std::memcmp(t->memory.get(), t->expected.data(), t->size) != 0) return false;
  return true;
}

bool Sample::poisoned() const {
  for (const auto& t : outputs_)
    for (size_t i = 0; t != nullptr && i < t->size; ++i)
      if (t->memory.get()[i] != kPoison) return false;
  return inputs_intact();
}

void Sample::expect_these_bytes() {
  for (const auto& t : outputs_)
    if (t != nullptr) t->expected.assign(t->memory.get(), t->memory.get() + t->size);
}

bool Sample::right() const {
  for (const auto& t : outputs_)
    if (t != nullptr && (t->expected.size() != t->size || std::memcmp(t->memory.get(), t->expected.data(), t->size) != 0))
      return false;
  return inputs_intact();
}

Samples builtin_samples(bool large) {
  Samples out;
  for (const DLDataType t : {kF32, kF64, kF16, kBF16}) {
    if (large) {
      add_conv1d(out, t, 1, 1, 1, 20011, 9, 1);
      add_conv1d(out, t, 3, 33, 34, 151, 3, 1);
      add_conv1d(out, t, 3, 33, 34, 5, 3, 1);
      add_elementwise(out, t, 301, 167);
      add_lltm(out, t, 65, 40, 33);
    } else {
      add_conv1d(out, t, 2, 4, 6, 40, 3, 2);
      add_conv1d(out, t, 2, 4, 6, 7, 3, 2);
      add_elementwise(out, t, 3, 10);
      add_lltm(out, t, 3, 5, 4);
    }
  }
  for (const DLDataType t : {DLDataType{kDLInt, 8, 1}, DLDataType{kDLInt, 32, 1}, DLDataType{kDLUInt, 64, 1}, kBool})
    add_elementwise(out, t, large ? 301 : 3, large ? 167 : 10);
  return out;
}

std::unique_ptr<Sample> plugin_sample() {
  const int64_t modulus = 128;
  return std::make_unique<Sample>("example.mod_add/1", "f32", std::vector<Spec>{{kF32, {modulus}}, {kF32, {100000}}},
                                  std::vector<Spec>{{kF32, {100000}}}, &modulus, sizeof modulus);
}

// ---- with a libnarrows that the program is linked with ----

#ifndef NARROWS_ATTACK_NO_LIBRARY

int32_t Sample::run(nw_runtime* rt, nw_error* error) {
  poison();
  const int32_t status = nw_run(rt, &call, error);
  return status == NW_OK && !right() ? NW_FAILED : status;
}

std::vector<const char*> kernels(nw_runtime* rt, const char* op) {
  std::vector<const char*> out{nullptr};
  for (uint32_t i = 0; i < nw_backend_count(rt); ++i) {
    nw_backend_info info{};
    info.struct_size = sizeof info;
    if (nw_backend(rt, i, &info, nullptr) != NW_OK || std::strcmp(info.name, "cpu") != 0) continue;
    for (uint32_t k = 0; k < info.num_ops; ++k)
      if (std::strcmp(info.ops[k]->name, op) == 0)
        for (const char* const* name = info.ops[k]->kernels; name != nullptr && *name != nullptr; ++name) out.push_back(*name);
  }
  return out;
}

nw_runtime* create(uint32_t num_threads, const char* plugin_path) {
  nw_options options{};
  options.struct_size = sizeof options;
  options.num_threads = num_threads;
  options.plugin_path = plugin_path;
  nw_runtime* rt = nullptr;
  nw_error error{};
  if (nw_runtime_create(&options, &rt, &error) != NW_OK) std::fprintf(stderr, "nw_runtime_create: %s\n", error.message);
  return rt;
}

#endif

}  // namespace narrows::attack
