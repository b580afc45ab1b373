// SPDX-License-Identifier: Apache-2.0
// gpu_rows.cpp -- see gpu_rows.h.
#include "gpu_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace narrows::bench {
namespace {

Row elementwise(const std::string& name, int32_t function, const Dtype& dtype, const std::vector<Shaped>& inputs,
                const Shaped& out) {
  const int64_t out_dtype = function == NW_EW_CAST ? out.its_own->number : 0;
  return {name, "elementwise", dtype, inputs, {out}, {function | out_dtype << 32}};  // little-endian: function, out_dtype
}
// The gradients of a and b.
Row elementwise_backward(const std::string& name, int32_t function, const Dtype& dtype, const Shaped& a, const Shaped& b,
                         const Shaped& out) {
  Row row = elementwise(name, function, dtype, {out, a, b}, out);
  row.op = "elementwise_backward";
  row.outputs = {a, b, {}};
  return row;
}

// Beside add of f32 and f16.
std::vector<Row> elementwise_rows(int64_t side) {
  const std::string square = " " + std::to_string(side) + "^2";
  const Shaped t{{side, side}}, row{{side}}, column{{side, 1}}, transposed{{side, side}, 1, {1, side}},
      halves{{side, side}, 1, {}, kF16}, integers{{side, side}, 1 << 30}, bytes{{side, side}, 100},
      bytes_transposed{{side, side}, 100, {1, side}};
  const Shaped columns{{side, side}, 1, {2 * side, 2}}, rows{{side, side}, 1, {2 * side, 1}};
  const Shaped cube{{16, side / 4, side / 4}}, permuted{{16, side / 4, side / 4}, 1, {side * side / 16, 1, side / 4}};
  return {elementwise("neg f32" + square, NW_EW_NEG, kF32, {t}, t),
          elementwise("exp f32" + square, NW_EW_EXP, kF32, {t}, t),
          elementwise("tanh f16" + square, NW_EW_TANH, kF16, {t}, t),
          elementwise("cast f32 to f16" + square, NW_EW_CAST, kF32, {t}, halves),
          elementwise("add a number f32" + square, NW_EW_ADD, kF32, {t, {}}, t),
          elementwise("add a row f32" + square, NW_EW_ADD, kF32, {t, row}, t),
          elementwise("add a column f32" + square, NW_EW_ADD, kF32, {t, column}, t),
          elementwise("add transposed f32" + square, NW_EW_ADD, kF32, {t, transposed}, t),
          elementwise("add transposed f16" + square, NW_EW_ADD, kF16, {t, transposed}, t),
          elementwise("add transposed u8" + square, NW_EW_ADD, kU8, {bytes, bytes_transposed}, bytes),
          elementwise("add transposed f64" + square, NW_EW_ADD, kF64, {t, transposed}, t),
          elementwise("add permuted f32" + square, NW_EW_ADD, kF32, {cube, permuted}, cube),
          elementwise("add every second column f32" + square, NW_EW_ADD, kF32, {t, columns}, t),
          elementwise("add every second row f32" + square, NW_EW_ADD, kF32, {t, rows}, t),
          add("add f64" + square, kF64, side),
          add("add bf16" + square, kBf16, side),
          elementwise("add i32" + square, NW_EW_ADD, kI32, {integers, integers}, integers),
          elementwise_backward("mul backward f32" + square, NW_EW_MUL, kF32, t, t, t)};
}

struct Convolution {
  int64_t batch, channels, length, filters, taps, groups, pad_left, pad_right;
};
Row conv1d(const std::string& name, const Dtype& dtype, const Convolution& c, bool dense) {
  const int64_t outputs = c.length + c.pad_left + c.pad_right - c.taps + 1, ins = c.channels / c.groups;
  Row row{name,
          "conv1d",
          dtype,
          {{{c.batch, c.channels, c.length}}, {{c.filters, ins, c.taps}, 1 / std::sqrt(static_cast<double>(ins * c.taps))}},
          {{{c.batch, c.filters, outputs}}},
          {1, 1, c.groups, c.pad_left, c.pad_right, 0}};
  if (dense) row.operations = 2.0 * static_cast<double>(c.batch * c.filters * outputs * ins * c.taps);
  return row;
}
Row lltm(const std::string& name, const Dtype& dtype, int64_t batch, int64_t features, int64_t states) {
  const double size = 1 / std::sqrt(static_cast<double>(states + features));
  Row row{name,
          "lltm",
          dtype,
          {{{batch, features}}, {{3 * states, states + features}, size}, {{3 * states}}, {{batch, states}}, {{batch, states}}},
          {{{batch, states}}, {{batch, states}}, {}},
          {}};
  row.operations = 6.0 * static_cast<double>(batch * states * (states + features));
  return row;
}

Row conv1d_backward(const std::string& name, const Dtype& dtype, const Convolution& c, bool dense) {
  Row row = conv1d(name, dtype, c, dense);
  row.op = "conv1d_backward";
  row.inputs = {row.outputs[0], row.inputs[0], row.inputs[1]};
  row.outputs = {row.inputs[1], row.inputs[2], {}};
  row.operations *= 2;
  return row;
}
// Of w alone.
Row conv1d_grad_w(const std::string& name, const Dtype& dtype, const Convolution& c) {
  Row row = conv1d_backward(name, dtype, c, true);
  row.outputs[0] = {};
  row.operations /= 2;
  return row;
}
// The gates are of the accumulator's dtype.
Row lltm_backward(const std::string& name, const Dtype& dtype, int64_t batch, int64_t features, int64_t states) {
  Row row = lltm(name, dtype, batch, features, states);
  row.op = "lltm_backward";
  const Shaped input = row.inputs[0], weights = row.inputs[1], bias = row.inputs[2], state = row.inputs[3];
  row.inputs = {state, state, input, weights, {}, state, {}, {}, state, {{batch, 3 * states}, 1, {}, kF32}};
  row.outputs = {input, weights, bias, state, state};
  row.operations *= 2;
  return row;
}

}  // namespace

Row add(const std::string& name, const Dtype& dtype, int64_t side) {
  const Shaped t{{side, side}};
  return elementwise(name, NW_EW_ADD, dtype, {t, t}, t);
}

std::vector<Row> function_rows(int64_t side) {
  const struct {
    const char* name;
    int32_t number, arity;
  } functions[] = {{"square", NW_EW_SQUARE, 1},
                   {"cbrt", NW_EW_CBRT, 1},
                   {"reciprocal", NW_EW_RECIPROCAL, 1},
                   {"exp", NW_EW_EXP, 1},
                   {"exp2", NW_EW_EXP2, 1},
                   {"expm1", NW_EW_EXPM1, 1},
                   {"sin", NW_EW_SIN, 1},
                   {"tan", NW_EW_TAN, 1},
                   {"atan", NW_EW_ATAN, 1},
                   {"sinh", NW_EW_SINH, 1},
                   {"tanh", NW_EW_TANH, 1},
                   {"asinh", NW_EW_ASINH, 1},
                   {"sigmoid", NW_EW_SIGMOID, 1},
                   {"gelu", NW_EW_GELU, 1},
                   {"gelu_tanh", NW_EW_GELU_TANH, 1},
                   {"silu", NW_EW_SILU, 1},
                   {"softplus", NW_EW_SOFTPLUS, 1},
                   {"erf", NW_EW_ERF, 1},
                   {"erfc", NW_EW_ERFC, 1},
                   {"div", NW_EW_DIV, 2},
                   {"atan2", NW_EW_ATAN2, 2},
                   {"hypot", NW_EW_HYPOT, 2},
                   {"logaddexp", NW_EW_LOGADDEXP, 2},
                   {"fmod", NW_EW_FMOD, 2}};
  const Shaped t{{side, side}, 4};
  std::vector<Row> rows;
  for (const auto& f : functions)
    for (const Dtype& dtype : {kF32, kF16})
      rows.push_back(elementwise(std::string("function ") + f.name + " " + dtype.name + " " + std::to_string(side) + "^2", f.number,
                                 dtype, std::vector<Shaped>(static_cast<size_t>(f.arity), t), t));
  return rows;
}

std::vector<Row> quick_rows() {
  std::vector<Row> all{add("add f32 64^2", kF32, 64),
                       add("add f16 64^2", kF16, 64),
                       conv1d("conv1d 1 channel 2^12 f32 K4", kF32, {1, 1, 1 << 12, 1, 4, 1, 0, 0}, false),
                       conv1d("conv1d depthwise f16 K4", kF16, {2, 8, 512, 8, 4, 8, 3, 0}, false),
                       conv1d("conv1d dense f16", kF16, {2, 64, 256, 64, 3, 1, 1, 1}, true),
                       lltm("lltm f32", kF32, 16, 32, 64),
                       lltm("lltm f16", kF16, 64, 64, 64),
                       conv1d_backward("conv1d_backward depthwise f32 K4", kF32, {2, 8, 512, 8, 4, 8, 3, 0}, false),
                       conv1d_backward("conv1d_backward dense f32", kF32, {2, 64, 256, 64, 3, 1, 1, 1}, true),
                       conv1d_grad_w("conv1d grad_w dense f16", kF16, {2, 64, 256, 64, 3, 1, 1, 1}),
                       lltm_backward("lltm_backward f32", kF32, 16, 32, 64)};
  std::ranges::move(elementwise_rows(64), std::back_inserter(all));
  std::ranges::move(function_rows(64), std::back_inserter(all));
  return all;
}

std::vector<Row> all_rows() {
  std::vector<Row> all;
  for (const int64_t side : {1024, 2048, 4096, 8192, 16384})
    for (const Dtype& dtype : {kF32, kF16})
      all.push_back(add(std::string("add ") + dtype.name + " " + std::to_string(side) + "^2", dtype, side));
  std::ranges::move(elementwise_rows(8192), std::back_inserter(all));
  for (const int64_t taps : {4, 31, 127})
    all.push_back(conv1d("conv1d 1 channel 2^24 f32 K" + std::to_string(taps), kF32,
                         {1, 1, 1 << 24, 1, taps, 1, taps / 2, taps - 1 - taps / 2}, false));
  all.push_back(conv1d("conv1d depthwise B8 C2048 L2048 f32", kF32, {8, 2048, 2048, 2048, 4, 2048, 3, 0}, false));
  all.push_back(conv1d("conv1d depthwise B8 C2048 L2048 f16", kF16, {8, 2048, 2048, 2048, 4, 2048, 3, 0}, false));
  for (const Dtype& dtype : {kF16, kF32}) {
    const std::string name = dtype.name;
    all.push_back(conv1d("conv1d dense N16 256 L4096 K3 " + name, dtype, {16, 256, 4096, 256, 3, 1, 1, 1}, true));
    all.push_back(conv1d("conv1d dense N32 80-384 L3000 K3 " + name, dtype, {32, 80, 3000, 384, 3, 1, 1, 1}, true));
    all.push_back(conv1d("conv1d dense N64 512 L1024 K5 " + name, dtype, {64, 512, 1024, 512, 5, 1, 2, 2}, true));
    for (const int64_t few : {1, 4, 16})  // outputs of each filter
      all.push_back(
          conv1d("conv1d C256-512 K1, " + std::to_string(few) + " outputs " + name, dtype, {1, 256, few, 512, 1, 1, 0, 0}, true));
    all.push_back(lltm("lltm B16 F32 S128 " + name, dtype, 16, 32, 128));
    all.push_back(lltm("lltm B64 F256 S256 " + name, dtype, 64, 256, 256));
    all.push_back(lltm("lltm B256 F1024 S1024 " + name, dtype, 256, 1024, 1024));
    all.push_back(lltm("lltm B2048 F2048 S2048 " + name, dtype, 2048, 2048, 2048));
    all.push_back(lltm("lltm B512 F4096 S4096 " + name, dtype, 512, 4096, 4096));
  }
  all.push_back(conv1d("conv1d dense N16 256 L4096 K3 bf16", kBf16, {16, 256, 4096, 256, 3, 1, 1, 1}, true));
  all.push_back(conv1d("conv1d dense N64 512 L1024 K5 bf16", kBf16, {64, 512, 1024, 512, 5, 1, 2, 2}, true));
  all.push_back(lltm("lltm B2048 F2048 S2048 bf16", kBf16, 2048, 2048, 2048));
  all.push_back(conv1d_backward("conv1d_backward depthwise f32", kF32, {8, 2048, 2048, 2048, 4, 2048, 3, 0}, false));
  for (const Dtype& dtype : {kF16, kF32}) {
    const std::string name = dtype.name;
    all.push_back(conv1d_backward("conv1d_backward N16 256 L4096 K3 " + name, dtype, {16, 256, 4096, 256, 3, 1, 1, 1}, true));
    all.push_back(conv1d_grad_w("conv1d grad_w N16 256 L4096 K3 " + name, dtype, {16, 256, 4096, 256, 3, 1, 1, 1}));
    all.push_back(conv1d_grad_w("conv1d grad_w N32 80 384 L3000 K3 " + name, dtype, {32, 80, 3000, 384, 3, 1, 1, 1}));
    all.push_back(conv1d_grad_w("conv1d grad_w N64 512 L1024 K5 " + name, dtype, {64, 512, 1024, 512, 5, 1, 2, 2}));
    all.push_back(lltm_backward("lltm_backward B64 F256 S256 " + name, dtype, 64, 256, 256));
    all.push_back(lltm_backward("lltm_backward B128 F512 S512 " + name, dtype, 128, 512, 512));
    all.push_back(lltm_backward("lltm_backward B256 F1024 S1024 " + name, dtype, 256, 1024, 1024));
    all.push_back(lltm_backward("lltm_backward B2048 F2048 S2048 " + name, dtype, 2048, 2048, 2048));
  }
  all.push_back(conv1d_backward("conv1d_backward N16 256 L4096 K3 bf16", kBf16, {16, 256, 4096, 256, 3, 1, 1, 1}, true));
  all.push_back(conv1d_grad_w("conv1d grad_w N16 256 L4096 K3 bf16", kBf16, {16, 256, 4096, 256, 3, 1, 1, 1}));
  all.push_back(conv1d_grad_w("conv1d grad_w N64 512 L1024 K5 bf16", kBf16, {64, 512, 1024, 512, 5, 1, 2, 2}));
  all.push_back(lltm_backward("lltm_backward B2048 F2048 S2048 bf16", kBf16, 2048, 2048, 2048));
  return all;
}

}  // namespace narrows::bench
