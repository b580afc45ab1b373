// SPDX-License-Identifier: Apache-2.0
// conv1d.h -- the kernels that conv1d and its gradients use. common/conv1d.h has the geometry.
#pragma once

#include <cstdint>

#include "backend.h"
#include "common/conv1d.h"
#include "ops/float_types.h"
#include "ops/gemm/gemm.h"
#include "ops/tasks.h"

namespace narrows::cpu {

struct CorrelationData {
  const void* in;
  const void* w;
  const void* bias;  // NULL: none
  void* out;
};

// A correlation's group as a product: m by (n, q), summed over (c, j).
GemmProblem correlation_product(const Correlation& correlation, const CorrelationData& data, Dtype dtype, int64_t group);

// The direct kernel: vectors along the positions, taps broadcast. `problems` correlations no larger than the given one.
struct DirectLayout {
  Dtype dtype;
  int64_t problems, batch, groups;
  int64_t block, span, outs;  // positions of a task, what its taps spread over at once, outputs that share a line
  int64_t blocks, out_blocks;
  double task_cost;
  uint64_t acc_bytes, line_bytes, slot_bytes, workspace_size;
};
// Which part of a correlation a task computes.
struct DirectPart {
  int64_t batch, group, out_block, block;
};
DirectLayout direct_layout(const Instance& instance, Dtype dtype, int64_t problems, const Correlation& largest);
void correlate_direct(const Instance& instance, const DirectLayout& layout, void* workspace, const CorrelationData& data,
                      Correlation (*describe)(const void* arg, int64_t i), const void* arg);

// The kernel for few outputs of each filter, whose taps lie side by side in memory: a dot product for each output.
struct DotsLayout {
  Dtype dtype;
  bool across;                           // vectors go across a filter's outputs, else along the depth
  int64_t column_stride;                 // elements from one gathered column to the next; across: outputs of a row, rounded up
  int64_t block_rows, row_blocks;        // a task's filters, and how many such blocks a group has
  int64_t block_columns, column_blocks;  // a task's outputs of each filter, alike
  int64_t tasks;                         // of all groups
  double task_cost;
  uint64_t columns_bytes, slot_bytes, workspace_size;
};
DotsLayout dots_layout(const Instance& instance, Dtype dtype, const Correlation& correlation);
void correlate_dots(const Instance& instance, const DotsLayout& layout, void* workspace, const CorrelationData& data,
                    const Correlation& correlation);

// Sums over batch and positions, cut by shape alone: every split sums its blocks of positions in f64, then splits are added.
struct SumLayout {
  bool grad_bias;              // else grad_w
  int64_t rows, splits, sums;  // sums of a row: taps, or 1
  int64_t blocks_per_row, blocks;
  double task_cost;
  uint64_t partial_bytes, slot_bytes, workspace_size;
};
// A split of a row: its blocks of positions.
struct SumPart {
  int64_t row, begin, end, blocks_per_row;
  bool grad_bias;
};
SumLayout grad_w_layout(const Instance& instance, const ConvGeometry& geometry);
SumLayout grad_bias_layout(const Instance& instance, const ConvGeometry& geometry);
void grad_w_direct(const Instance& instance, const SumLayout& layout, const ConvGeometry& geometry, void* workspace,
                   const void* grad_y, const void* x, void* grad_w, Strides3 grad_w_strides);
void grad_bias_sum(const Instance& instance, const SumLayout& layout, const ConvGeometry& geometry, void* workspace,
                   const void* grad_y, void* grad_bias, int64_t grad_bias_stride);

// The plain loops, as a baseline. Each sum is in the order of its indices.
void correlate_scalar(const Instance& instance, Dtype dtype, const Correlation& correlation, const CorrelationData& data);
void grad_w_scalar(const Instance& instance, const ConvGeometry& geometry, const void* grad_y, const void* x, void* grad_w,
                   Strides3 grad_w_strides);
void grad_bias_scalar(const Instance& instance, const ConvGeometry& geometry, const void* grad_y, void* grad_bias, int64_t stride);

}  // namespace narrows::cpu
