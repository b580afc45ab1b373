// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp -- the contract of conv1d and conv1d_backward. docs/ops.md has the formula; a change there is a new op name.
#include "core/contract.h"

namespace narrows {
namespace {

const nw_param kStride = {"stride", kInt64Field, offsetof(nw_conv1d_params, stride), nullptr, 1};
const nw_param kDilation = {"dilation", kInt64Field, offsetof(nw_conv1d_params, dilation), nullptr, 1};
const nw_param kGroups = {"groups", kInt64Field, offsetof(nw_conv1d_params, groups), nullptr, 1};
const nw_param kPadLeft = {"pad_left", kInt64Field, offsetof(nw_conv1d_params, pad_left), nullptr, 0};
const nw_param kPadRight = {"pad_right", kInt64Field, offsetof(nw_conv1d_params, pad_right), nullptr, 0};
const char* const kModes[] = {"zeros", nullptr};
const nw_param kPaddingMode = {"padding_mode", kInt64Field, offsetof(nw_conv1d_params, padding_mode), kModes, NW_PADDING_ZEROS};
const nw_param* const kFields[] = {&kStride, &kDilation, &kGroups, &kPadLeft, &kPadRight, &kPaddingMode, nullptr};

const char* const kInputs[] = {"x", "w", "bias?", nullptr};
const char* const kOutputs[] = {"y", nullptr};
const char* const kBackwardInputs[] = {"grad_y?", "x", "w", "bias?", "y?", nullptr};
const char* const kBackwardOutputs[] = {"grad_x?", "grad_w?", "grad_bias?", nullptr};

#define T "(L+pad_left+pad_right-max(dilation,1)*(K-1)-1)//max(stride,1)+1"
constexpr const char* kRule =
    "N,C,L ; O,C//max(groups,1),K ; O? -> N,O," T " | C,L ; O,C//max(groups,1),K ; O? -> O," T " | L ; K ; 1? -> " T;
constexpr const char* kBackwardRule = "N,O," T
                                      "? ; N,C,L ; O,C//max(groups,1),K ; O? ; ? -> N,C,L ; O,C//max(groups,1),K ; O"
                                      " | O," T
                                      "? ; C,L ; O,C//max(groups,1),K ; O? ; ? -> C,L ; O,C//max(groups,1),K ; O"
                                      " | " T "? ; L ; K ; 1? ; ? -> L ; K ; 1";
#undef T
// A batch of signals, or, of a batch of filters too, a convolution of more groups. In one group filters may be parted, and
// channels, whose outputs are summed.
#define WAYS "N | C,O,groups | O where groups<=1"
constexpr const char* kBatch = WAYS " | C once bias where groups<=1";
constexpr const char* kBackwardBatch = WAYS " | C once grad_bias where groups<=1";
#undef WAYS

void check_at_least(const char* op, const char* field, int64_t value, int64_t least) {
  if (value < least)
    throw_failure(NW_INVALID, -1, "%s: %s = %lld; expected %lld or more", op, field, static_cast<long long>(value),
                  static_cast<long long>(least));
}

void check_params(const char* op, const nw_conv1d_params& p) {
  check_at_least(op, "stride", p.stride, 0);
  check_at_least(op, "dilation", p.dilation, 0);
  check_at_least(op, "groups", p.groups, 0);
  check_at_least(op, "pad_left", p.pad_left, 0);
  check_at_least(op, "pad_right", p.pad_right, 0);
  if (p.padding_mode != NW_PADDING_ZEROS)
    throw_failure(NW_UNSUPPORTED, -1, "%s: padding_mode = %lld; this host knows 0 (zeros)", op,
                  static_cast<long long>(p.padding_mode));
}

void check_groups(const char* op, const nw_tensor_sig& x, const nw_tensor_sig& w, int64_t groups, int32_t x_index) {
  if (x.ndim == 1) {
    if (groups > 1)
      throw_failure(NW_INVALID, -1, "%s: groups = %lld; a signal (L) has 1 channel", op, static_cast<long long>(groups));
    return;
  }
  const int64_t channels = x.shape[x.ndim - 2];
  if (channels % groups != 0)
    throw_failure(NW_INVALID, x_index, "%s: groups = %lld does not divide the %lld channels of x", op,
                  static_cast<long long>(groups), static_cast<long long>(channels));
  if (w.shape[0] % groups != 0)
    throw_failure(NW_INVALID, x_index + 1, "%s: groups = %lld does not divide the %lld filters of w", op,
                  static_cast<long long>(groups), static_cast<long long>(w.shape[0]));
}

// Every sum that the output's length is made of stays in 64 bits, and the length is 1 at least.
void check_length(const char* op, const nw_tensor_sig& x, const nw_tensor_sig& w, const nw_conv1d_params& p, int32_t x_index) {
  const long long length = x.shape[x.ndim - 1], taps = w.shape[w.ndim - 1];
  const long long dilation = std::max<int64_t>(p.dilation, 1);
  if (taps < 1) throw_failure(NW_INVALID, x_index + 1, "%s: w has %lld taps; expected 1 or more", op, taps);
  long long padded = 0, reach = 0;
  if (__builtin_add_overflow(length, p.pad_left, &padded) || __builtin_add_overflow(padded, p.pad_right, &padded) ||
      __builtin_mul_overflow(dilation, taps - 1, &reach))
    throw_failure(
        NW_INVALID, -1,
        "%s: L = %lld, pad_left = %lld, pad_right = %lld, dilation = %lld, K = %lld overflow 64 bits; expected sums of at most "
        "2^63 - 1",
        op, length, static_cast<long long>(p.pad_left), static_cast<long long>(p.pad_right), dilation, taps);
  if (padded - reach - 1 < 0)
    throw_failure(
        NW_INVALID, -1,
        "%s: the output has no element: L + pad_left + pad_right - dilation*(K-1) - 1 = %lld + %lld + %lld - %lld*%lld - 1 = "
        "%lld; expected 0 or more",
        op, length, static_cast<long long>(p.pad_left), static_cast<long long>(p.pad_right), dilation, taps - 1,
        padded - reach - 1);
}

void check_from(const nw_op& op, const nw_sig& sig, uint32_t x_index) {
  check_float_inputs(op, sig);
  const auto p = read_params<nw_conv1d_params>(sig);
  check_params(op.name, p);
  const nw_tensor_sig &x = sig.tensors[x_index], &w = sig.tensors[x_index + 1];
  if (x.ndim < 1 || x.ndim > 3 || w.ndim != (x.ndim == 1 ? 1 : 3)) return;  // for the shape rule to refuse
  check_groups(op.name, x, w, std::max<int64_t>(p.groups, 1), static_cast<int32_t>(x_index));
  check_length(op.name, x, w, p, static_cast<int32_t>(x_index));
}

}  // namespace

const Contract& conv1d_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("conv1d", 2, kInputs, kOutputs, kRule);
    op.params_size = sizeof(nw_conv1d_params);
    op.params = kFields;
    op.backward = "conv1d_backward";
    op.saved = 0b011;  // x, w
    op.flags = NW_OP_AUTOCAST;
    op.batch = kBatch;
    Contract out(op);
    out.check = [](const nw_sig& sig) { check_from(conv1d_contract().op, sig, 0); };
    return out;
  }());
  return contract;
}

const Contract& conv1d_backward_contract() {
  static const Contract& contract = *new Contract([] {
    nw_op op = declare("conv1d_backward", 3, kBackwardInputs, kBackwardOutputs, kBackwardRule);
    op.batch = kBackwardBatch;
    op.params_size = sizeof(nw_conv1d_params);
    op.params = kFields;
    Contract out(op);
    out.check = [](const nw_sig& sig) { check_from(conv1d_backward_contract().op, sig, 1); };
    return out;
  }());
  return contract;
}

}  // namespace narrows
