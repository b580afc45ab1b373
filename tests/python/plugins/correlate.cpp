// SPDX-License-Identifier: Apache-2.0
// A convolution of a plugin's own, f32 and bf16: test.correlate/1 is conv1d of stride 1 without padding. Its declaration says what
// conv1d's says of batches and of autocast; the bindings know neither by its name.
#include <narrows/plugin.hpp>

using narrows::plugin::dtype;
using narrows::plugin::field;
using narrows::plugin::Launch;

namespace {

struct Params {
  int64_t groups;
};

float load(const Launch& call, uint32_t input, int64_t i) {
  if (call.in(input).dtype.bits == 32) return call.input<float>(input)[i];
  const uint32_t bits = uint32_t{call.input<uint16_t>(input)[i]} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void store(const Launch& call, uint32_t output, int64_t i, double sum) {
  const float value = static_cast<float>(sum);
  if (call.out(output).dtype.bits == 32) {
    call.output<float>(output)[i] = value;
    return;
  }
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  call.output<uint16_t>(output)[i] =
      static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to the nearest, ties to even
}

// Sizes of x, (N, C, L) or (C, L), and of w, (O, I, K).
struct Sizes {
  int64_t batch, channels, length, filters, inner, taps, outputs, per_group;
  Sizes(const Launch& call, uint32_t x_index) {
    const DLTensor &x = call.in(x_index), &w = call.in(x_index + 1);
    batch = x.ndim == 3 ? x.shape[0] : 1;
    channels = x.shape[x.ndim - 2], length = x.shape[x.ndim - 1];
    filters = w.shape[0], inner = w.shape[1], taps = w.shape[2];
    outputs = length - taps + 1;
    per_group = filters / std::max<int64_t>(call.params<Params>().groups, 1);
  }
  int64_t x_at(int64_t n, int64_t o, int64_t i, int64_t t) const { return (n * channels + o / per_group * inner + i) * length + t; }
  int64_t w_at(int64_t o, int64_t i, int64_t k) const { return (o * inner + i) * taps + k; }
  int64_t y_at(int64_t n, int64_t o, int64_t t) const { return (n * filters + o) * outputs + t; }
};

// Calls body(index of y, of x, of w) for every product.
template <class Body>
void every_product(const Sizes& s, const Body& body) {
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t o = 0; o < s.filters; ++o)
      for (int64_t t = 0; t < s.outputs; ++t)
        for (int64_t i = 0; i < s.inner; ++i)
          for (int64_t k = 0; k < s.taps; ++k) body(s.y_at(n, o, t), s.x_at(n, o, i, t + k), s.w_at(o, i, k));
}

void correlate(const Launch& call) {
  std::vector<double> y(call.size(0));
  every_product(Sizes(call, 0), [&](int64_t at, int64_t x, int64_t w) { y[at] += load(call, 0, x) * load(call, 1, w); });
  for (int64_t i = 0; i < call.size(0); ++i) store(call, 0, i, y[i]);
}

void correlate_backward(const Launch& call) {  // grad_y?, x, w, y? -> grad_x?, grad_w?
  const Sizes sizes(call, 1);
  for (uint32_t j = 0; j < 2; ++j) {
    if (!call.has_output(j)) continue;
    std::vector<double> sums(call.size(j));
    if (call.has_input(0))
      every_product(sizes, [&](int64_t y, int64_t x, int64_t w) {
        sums[j == 0 ? x : w] += load(call, 0, y) * load(call, 2 - j, j == 0 ? w : x);
      });
    for (int64_t i = 0; i < call.size(j); ++i) store(call, j, i, sums[i]);
  }
}

const std::vector<DLDataType> kFloats = {dtype<float>(), {kDLBfloat, 16, 1}};
const nw_param kGroups = field("groups", &Params::groups, 2);

}  // namespace

NARROWS_PLUGIN("correlate",
               {.name = "test.correlate/1",
                .inputs = {"x", "w"},
                .outputs = {"y"},
                .shape_rule = "N,C,L ; O,C//max(groups,1),K -> N,O,L-K+1 | C,L ; O,C//max(groups,1),K -> O,L-K+1",
                .kernel = correlate,
                .params = {kGroups},
                .params_size = sizeof(Params),
                .dtypes = kFloats,
                .backward = "test.correlate_backward/1",
                .saved = 3,
                .flags = NW_OP_AUTOCAST,
                .batch = "N | C,O,groups | O where groups<=1 | C where groups<=1"},
               {.name = "test.correlate_backward/1",
                .inputs = {"grad_y?", "x", "w", "y?"},
                .outputs = {"grad_x?", "grad_w?"},
                .shape_rule = "N,O,L-K+1? ; N,C,L ; O,C//max(groups,1),K ; ? -> N,C,L ; O,C//max(groups,1),K"
                              " | O,L-K+1? ; C,L ; O,C//max(groups,1),K ; ? -> C,L ; O,C//max(groups,1),K",
                .kernel = correlate_backward,
                .params = {kGroups},
                .params_size = sizeof(Params),
                .dtypes = kFloats,
                .batch = "N | C,O,groups | O where groups<=1 | C where groups<=1"})
