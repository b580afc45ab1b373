// SPDX-License-Identifier: Apache-2.0
// elementwise_blocks.cpp -- strided, broadcast, misaligned tensors as blocks of contiguous elements: the space is collapsed once,
// while planning; a launch then locates blocks and copies only what a kernel cannot use where it lies.
#include <cstdlib>
#include <utility>

#include "elementwise.h"

namespace narrows::cpu {

// ---- planning ----

void collapse(const nw_tensor_sig& shape, const nw_tensor_sig* const* operands, const Operand* access, int num_operands, int leader,
              Blocks* blocks) {
  int64_t sizes[kMaxOperands];
  for (int i = 0; i < num_operands; ++i) sizes[i] = access[i].size;
  common::collapse(shape, operands, sizes, num_operands, leader, blocks);
  for (; blocks->ndim < 2; ++blocks->ndim) {  // locate() and the copies below see two dimensions at least
    blocks->extent[blocks->ndim] = 1;
    for (int i = 0; i < num_operands; ++i) blocks->stride[i][blocks->ndim] = 0;
  }
}

void Blocks::set_block(int64_t rows_wanted, int64_t columns_wanted) {
  columns = std::clamp<int64_t>(columns_wanted, 1, std::max<int64_t>(extent[0], 1));
  rows = std::clamp<int64_t>(rows_wanted, 1, std::max<int64_t>(extent[1], 1));
  set_leads(0, 0);
}

void Blocks::set_leads(int64_t rows_wanted, int64_t columns_wanted) {
  lead_rows = rows_wanted, lead_columns = columns_wanted;
  column_blocks = ceil_div(extent[0] + lead_columns, columns);
  row_blocks = ceil_div(extent[1] + lead_rows, rows);
  count = column_blocks * row_blocks;
  for (int d = 2; d < ndim; ++d) count *= extent[d];
}

void Blocks::bring_to_1(int from) {
  for (int d = from; d > 1; --d) {
    std::swap(extent[d], extent[d - 1]);
    for (auto& s : stride) std::swap(s[d], s[d - 1]);
  }
}

namespace {

// 64 columns, so that rows are long enough for kernels to work on where they lie, in units of 16 (of f32 a cache line). Where there
// are more columns than that they are shared out evenly; where there are few rows, more of them fill a tile of `most` elements.
void set_block_across(Blocks* blocks, int64_t most) {
  constexpr int64_t kColumns = 64, kUnit = 16;
  const int64_t inner = blocks->extent[0], fitting = most / blocks->extent[1] / kUnit * kUnit;
  int64_t columns = std::max(kColumns, fitting);
  if (inner > columns) columns = round_up(ceil_div(inner, ceil_div(inner, columns)), kUnit);
  columns = std::clamp<int64_t>(inner, 1, columns);
  blocks->set_block(most / columns, columns);
}

}  // namespace

void choose_block(Blocks* blocks, const Operand* access, int num_operands) {
  int64_t widest = 1;
  bool tiles = blocks->ndim > 2 || blocks->extent[1] > 1;
  int across = 0;  // a dimension along which an operand is contiguous that strides over dimension 0
  for (int k = 0; k < num_operands; ++k) {
    const Operand& operand = access[k];
    widest = std::max({widest, operand.size, operand.compute_size});
    const int64_t s0 = std::abs(blocks->stride[k][0]);
    tiles |= blocks->stride[k][0] != operand.size || operand.convert != nullptr || !operand.aligned;
    for (int d = 1; d < blocks->ndim; ++d)
      if (s0 > operand.size && blocks->extent[d] > 1 && std::abs(blocks->stride[k][d]) == operand.size) across = d;
  }
  const int64_t most = kTileBytes / widest, inner = blocks->extent[0];
  constexpr int64_t kShortRow = 128;
  blocks->across = across != 0;
  if (!tiles) return blocks->set_block(1, kMostInPlace);
  if (across != 0) {
    blocks->bring_to_1(across);
    return set_block_across(blocks, most);
  }
  if (inner >= kShortRow) return blocks->set_block(1, most);
  if (inner * blocks->extent[1] < kShortRow)
    blocks->bring_to_1(static_cast<int>(std::max_element(blocks->extent + 1, blocks->extent + blocks->ndim) - blocks->extent));
  blocks->set_block(most / std::max<int64_t>(inner, 1), inner);
}

// ---- launching ----

Block locate(const Blocks& blocks, int num_operands, char* const* base, int64_t index) {
  int64_t at[NW_MAX_NDIM];
  const int64_t outer = index / blocks.column_blocks;
  const int64_t column = (index - outer * blocks.column_blocks) * blocks.columns - blocks.lead_columns;
  at[0] = std::max<int64_t>(column, 0);
  int64_t rest = outer / blocks.row_blocks;
  const int64_t row = (outer - rest * blocks.row_blocks) * blocks.rows - blocks.lead_rows;
  at[1] = std::max<int64_t>(row, 0);
  for (int d = 2; d < blocks.ndim; ++d) {
    const int64_t next = rest / blocks.extent[d];
    at[d] = rest - next * blocks.extent[d];
    rest = next;
  }
  Block block;
  block.columns = std::min(column + blocks.columns, blocks.extent[0]) - at[0];
  block.rows = std::min(row + blocks.rows, blocks.extent[1]) - at[1];
  for (int k = 0; k < num_operands; ++k) {
    int64_t offset = blocks.offset[k];
    for (int d = 0; d < blocks.ndim; ++d) offset += at[d] * blocks.stride[k][d];
    block.address[k] = base[k] + offset;
  }
  return block;
}

int64_t touched_bytes(const Blocks& blocks, int k, int64_t size) {
  for (int d = 0; d < blocks.ndim; ++d)
    if (blocks.stride[k][d] != 0) size *= blocks.extent[d];
  return size;
}

namespace {

// Repeats the first `have` bytes of a tile until `want` are there.
void repeat(unsigned char* tile, int64_t have, int64_t want) {
  for (int64_t next; have < want; have += next) {
    next = std::min(have, want - have);
    std::memcpy(tile + have, tile, static_cast<size_t>(next));
  }
}

bool usable_in_place(const Operand& operand, int64_t rows, int64_t columns, const int64_t* stride) {
  return operand.aligned && (columns == 1 || stride[0] == operand.size) && (rows == 1 || stride[1] == columns * operand.size);
}

void convert(const Operand& operand, const void* from, void* to, int64_t n) { operand.convert({.in = {from}, .out = to, .n = n}); }

}  // namespace

const void* load(const Operand& operand, const char* address, int64_t rows, int64_t columns, const int64_t* stride, Tiles& tiles) {
  const void* run = address;
  if (!usable_in_place(operand, rows, columns, stride)) {
    const int64_t size = operand.size;
    const int64_t own_rows = stride[1] == 0 ? 1 : rows, own_columns = stride[0] == 0 && own_rows == 1 ? 1 : columns;
    operand.copy(reinterpret_cast<char*>(tiles.stored), columns * size, size, address, stride[1], stride[0], own_rows, own_columns);
    repeat(tiles.stored, own_rows * own_columns * size, rows * columns * size);
    run = tiles.stored;
  }
  if (operand.convert == nullptr) return run;
  convert(operand, run, tiles.computed, rows * columns);
  return tiles.computed;
}

const void* load_constant(const Operand& operand, const char* address, Tiles& tiles) {
  if (!operand.present) {
    std::memcpy(tiles.computed, operand.scalar.bytes, static_cast<size_t>(operand.compute_size));
  } else {
    std::memcpy(tiles.stored, address, static_cast<size_t>(operand.size));
    const void* element = tiles.stored;
    if (operand.convert != nullptr)
      convert(operand, element, tiles.computed, 1);
    else
      std::memcpy(tiles.computed, element, static_cast<size_t>(operand.size));
  }
  repeat(tiles.computed, operand.compute_size, kTileBytes);
  return tiles.computed;
}

void* destination(const Operand& operand, char* address, int64_t rows, int64_t columns, const int64_t* stride, Tiles& tiles) {
  const bool direct = operand.convert == nullptr && usable_in_place(operand, rows, columns, stride);
  return direct ? address : static_cast<void*>(tiles.computed);
}

void store(const Operand& operand, const void* computed, char* address, int64_t rows, int64_t columns, const int64_t* stride,
           Tiles& tiles) {
  if (computed == address) return;
  const bool in_place = usable_in_place(operand, rows, columns, stride);
  const void* run = computed;
  if (operand.convert != nullptr) {
    void* to = in_place ? address : static_cast<void*>(tiles.stored);
    convert(operand, run, to, rows * columns);
    if (to == address) return;
    run = to;
  }
  const int64_t size = operand.size;
  operand.copy(address, stride[1], stride[0], static_cast<const char*>(run), columns * size, size, rows, columns);
}

Rows reach(const Operand& operand, const Block& block, int k, const int64_t* stride, bool by_rows, bool is_output, Tiles& tiles) {
  char* address = block.address[k];
  if (by_rows && operand.aligned && stride[0] == operand.size) return {address, stride[1], false};
  if (by_rows && stride[0] == 0 && !is_output) return {address, stride[1], true};
  const int64_t step = block.columns * operand.size;
  if (is_output) return {static_cast<char*>(destination(operand, address, block.rows, block.columns, stride, tiles)), step, false};
  const void* run = load(operand, address, block.rows, block.columns, stride, tiles);
  return {static_cast<char*>(const_cast<void*>(run)), step, false};
}

}  // namespace narrows::cpu
