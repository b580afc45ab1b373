// SPDX-License-Identifier: Apache-2.0
// auto_contraction.cpp -- see auto_steps.h.
#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/program/auto_steps.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/reduction.h"
#include "core/program/walk.h"

namespace narrows::program {

std::string quoted(const std::string& name) { return "\"" + name + "\""; }

namespace {
std::string quoted_list(const std::vector<std::string>& names) {
  std::string out = "[";
  for (const std::string& name : names) out += (out.size() > 1 ? ", " : "") + quoted(name);
  return out + "]";
}
}  // namespace

// ---- Steps ----

bool Steps::take(const char* step, const Arguments& arguments, std::vector<std::string>* made) {
  std::string line = std::string(step) + "(";
  for (const auto& [key, value] : arguments) line += (line.back() == '(' ? "" : ", ") + std::string(key) + "=" + value;
  try {
    const std::vector<std::string> names = schedule_->apply(line + ")");
    if (made != nullptr) *made = names;
    return true;
  } catch (const Failure&) {  // left out: the program stays as it was
    return false;
  }
}

std::vector<std::string> Steps::attempt(const char* step, const Arguments& arguments) {
  std::vector<std::string> made;
  take(step, arguments, &made);
  return made;
}

Path Steps::path(const std::string& block) const {
  for (Path& path : paths(schedule_->program()))
    if (path.block->name == block) return path;
  throw_failure(NW_FAILED, -1, "internal error: the default schedule lost block '%s'", block.c_str());
}

bool has_lost_a_loop(const Steps& steps, const std::string& block, const std::string& loop, size_t before) {
  const std::vector<std::string> now = steps.loops(block);
  const auto found = std::find(now.begin(), now.end(), loop);
  return found != now.end() && static_cast<size_t>(now.end() - found) - 1 < before;
}

// ---- contractions ----

namespace {

constexpr int64_t kPackFrom = 128 * 1024;  // elements; what is smaller stays in a second-level cache as it lies

struct Contraction {
  std::string row, column;                  // loops
  std::vector<std::string> outer, reduced;  // the other ones
  std::string packed;                       // the buffer whose elements lie along columns
  bool lies_along = false;                  // its last dimension is the columns'
  ExprPtr rows, columns;                    // extents
  DType dtype = DType::f32;                 // of the sums
};

std::set<std::string> axes_in(const Expr& load) {
  std::set<std::string> out;
  for (const ExprPtr& index : load.operands) out.merge(names_in(index));
  return out;
}

const Axis* find_axis(const Block& block, const ExprPtr& name) {
  if (name->kind != Expr::Kind::name) return nullptr;
  const auto found = std::find_if(block.axes.begin(), block.axes.end(), [&](const Axis& axis) { return axis.name == name->name; });
  return found == block.axes.end() ? nullptr : &*found;
}

bool has_product(const ExprPtr& value) {
  bool out = false;
  for_each_part(value, [&](const Expr& part) {
    out = out || (part.kind == Expr::Kind::call && part.name == "mul" && part.dtype != DType::index);
  });
  return out;
}

// Loads that move along the columns and not along the rows; exactly one buffer's is packed.
void find_packed(const Block& block, const Axis& column, const Axis& row, Contraction* out) {
  std::set<std::string> buffers;
  for_each_load(block.body[0].value, [&](const Expr& load) {
    const std::set<std::string> names = axes_in(load);
    if (load.name == block.body[0].buffer || names.count(column.name) == 0 || names.count(row.name) != 0) return;
    buffers.insert(load.name);
    out->packed = load.name;
    out->lies_along = load.operands.back()->kind == Expr::Kind::name && load.operands.back()->name == column.name;
  });
  if (buffers.size() != 1) out->packed.clear();
}

// The loops around a block but for its row's and column's.
void collect_loops(const Path& path, Contraction* out) {
  for (const ForPtr& loop : path.loops) {
    if (loop->name == out->row || loop->name == out->column) continue;
    const bool reduces = std::any_of(path.block->axes.begin(), path.block->axes.end(), [&](const Axis& axis) {
      return axis.kind == Axis::Kind::reduction && axis.binding->name == loop->name;
    });
    (reduces ? out->reduced : out->outer).push_back(loop->name);
  }
}

// The axis of the result's last dimension, of a reduction whose axes are loops; nullptr: it is another block.
const Axis* find_column(const Block& block) {
  if (block.body.size() != 1 || block.predicate != nullptr || block.body[0].indices.empty()) return nullptr;
  if (!reduction_of(block.body[0]).has_value()) return nullptr;
  for (const Axis& axis : block.axes)
    if (axis.kind == Axis::Kind::carried || axis.binding->kind != Expr::Kind::name) return nullptr;
  const Axis* const out = find_axis(block, block.body[0].indices.back());
  return out == nullptr || out->kind != Axis::Kind::spatial ? nullptr : out;
}

// A reduction whose loads move along the columns by their last subscript, if they move along them at all; it has no row.
std::optional<Contraction> find_columns(const Path& path) {
  const Axis* const column = find_column(*path.block);
  if (column == nullptr) return std::nullopt;
  const Store& store = path.block->body[0];
  bool along = false, across = false;
  for_each_load(store.value, [&](const Expr& load) {
    if (load.name == store.buffer || load.operands.size() < 2 || axes_in(load).count(column->name) == 0) return;
    (names_in(load.operands.back()).count(column->name) != 0 ? along : across) = true;
  });
  if (!along || across) return std::nullopt;
  Contraction out;
  out.column = column->binding->name;
  out.columns = column->extent;
  out.dtype = store.value->dtype;
  collect_loops(path, &out);
  return out.reduced.empty() ? std::nullopt : std::optional(out);
}

std::optional<Contraction> find_contraction(const Path& path) {
  const Block& block = *path.block;
  const Axis* const column = find_column(block);
  if (column == nullptr || !has_product(block.body[0].value)) return std::nullopt;
  const Axis* row = nullptr;
  Contraction out;
  for (const ExprPtr& index : block.body[0].indices) {
    const Axis* const axis = find_axis(block, index);
    if (axis == nullptr || axis == column) continue;
    find_packed(block, *column, *axis, &out);
    if (!out.packed.empty()) row = axis;
  }
  if (row == nullptr) return std::nullopt;
  find_packed(block, *column, *row, &out);
  out.row = row->binding->name;
  out.column = column->binding->name;
  out.rows = row->extent;
  out.columns = column->extent;
  out.dtype = block.body[0].value->dtype;
  collect_loops(path, &out);
  return out;
}

// The largest tile that divides the extent, if one of at least half the size does.
int64_t tile_of(const ExprPtr& extent, int64_t most) {
  const auto number = constant(extent);
  if (!number.has_value()) return most;
  if (*number <= most) return std::max<int64_t>(*number, 1);
  for (int64_t tile = most; 2 * tile >= most; --tile)
    if (*number % tile == 0) return tile;
  return most;
}

int64_t columns_of(const ExprPtr& extent, int64_t lanes) {  // two vectors, or as many lanes as there are columns
  const auto number = constant(extent);
  int64_t out = 2 * lanes;
  while (number.has_value() && out > *number && out > 1) out /= 2;
  return out;
}

// As elements of one buffer: K rows of N become N / tile panels of K rows.
void pack(Steps* steps, const std::string& block, const Contraction& found, int64_t tile) {
  const Buffer* const buffer = find_buffer(steps->schedule().program(), found.packed);
  int64_t elements = 1;
  for (const ExprPtr& extent : buffer->shape) elements *= std::min<int64_t>(constant(extent).value_or(kPackFrom), kPackFrom);
  if ((found.lies_along && elements < kPackFrom) || buffer->shape.size() != 2 || buffer->optional) return;
  const Schedule before = steps->schedule();
  const auto copy = steps->attempt("cache_read", {{"block", quoted(block)}, {"buffer", quoted(found.packed)}});
  if (copy.empty()) return;
  const std::string panel = found.lies_along ? "b // T, a, b % T" : "a // T, b, a % T";
  std::string map = "a, b -> " + panel;
  for (size_t at = 0; (at = map.find('T')) != std::string::npos;) map.replace(at, 1, std::to_string(tile));
  const std::vector<std::string> loops = steps->loops(copy[0]);
  const std::string &along = loops[found.lies_along ? 1 : 0], &other = loops[found.lies_along ? 0 : 1];
  const std::string name = steps->path(copy[0]).block->body[0].buffer;
  const auto parts = steps->attempt("split", {{"loop", quoted(along)}, {"factors", "[None, " + std::to_string(tile) + "]"}});
  const bool done = steps->take("transform_layout", {{"buffer", quoted(name)}, {"map", quoted(map)}}) && parts.size() == 2 &&
                    steps->take("reorder", {{"loops", quoted_list({parts[0], other, parts[1]})}});
  if (!done) return steps->restore(before);
  steps->attempt("vectorize", {{"loop", quoted(parts[1])}});
  steps->attempt("parallel", {{"loop", quoted(parts[0])}});
  steps->set_tiled(copy[0]);
}

// The block that reads the sums moves to the tile; where none can, the sums are kept in a buffer of their own, and copied.
void finish_tile(Steps* steps, const std::string& block, const std::string& loop) {
  const std::string buffer = steps->path(block).block->body[0].buffer;
  std::vector<std::string> readers;
  for (const Path& path : paths(steps->schedule().program()))
    for_each_load(*path.block, [&](const Expr& load) {
      if (load.name == buffer && path.block->name != block && (readers.empty() || readers.back() != path.block->name))
        readers.push_back(path.block->name);
    });
  std::vector<std::string> made;
  const bool moved =
      readers.size() == 1 && steps->take("reverse_compute_at", {{"block", quoted(readers[0])}, {"loop", quoted(loop)}}, &made);
  std::string last = moved ? readers[0] : "";
  if (!moved) {
    const Schedule before = steps->schedule();
    const auto copy = steps->attempt("cache_write", {{"block", quoted(block)}, {"buffer", quoted(buffer)}});
    if (copy.empty()) return;
    if (!steps->take("reverse_compute_at", {{"block", quoted(copy[0])}, {"loop", quoted(loop)}}, &made))
      return steps->restore(before);
    last = copy[0];
  }
  steps->set_tiled(last);
  if (made.empty()) return;
  for (size_t i = 0; i + 1 < made.size(); ++i) steps->attempt("unroll", {{"loop", quoted(made[i])}});
  steps->attempt("vectorize", {{"loop", quoted(made.back())}});
}

}  // namespace

namespace {

std::vector<std::string> tiles(Steps* steps, const std::string& loop, int64_t tile) {
  return steps->attempt("split", {{"loop", quoted(loop)}, {"factors", "[None, " + std::to_string(tile) + "]"}});
}

// The loops in this order; `inner` is a loop of vectors, and what reads the sums joins the innermost of `tiled`.
bool order_tile(Steps* steps, const std::string& block, const Contraction& found, const std::vector<std::string>& tiled,
                const std::vector<std::string>& inner) {
  std::vector<std::string> order = tiled;
  order.insert(order.end(), found.reduced.begin(), found.reduced.end());
  order.insert(order.end(), inner.begin(), inner.end());
  if (!steps->take("reorder", {{"loops", quoted_list(order)}})) return false;
  finish_tile(steps, block, tiled.back());
  for (size_t i = 0; i + 1 < inner.size(); ++i) steps->attempt("unroll", {{"loop", quoted(inner[i])}});
  steps->attempt("vectorize", {{"loop", quoted(inner.back())}});
  for (const std::string& loop : tiled)
    if (!steps->take("parallel", {{"loop", quoted(loop)}})) break;
  if (found.dtype == DType::f32 || found.dtype == DType::f64)
    steps->attempt("annotate", {{"block", quoted(block)}, {"key", quoted("contract")}, {"value", quoted("true")}});
  steps->set_tiled(block);
  return true;
}

}  // namespace

void tile_contraction(Steps* steps, const std::string& block, const Machine& machine) {
  const Path path = steps->path(block);
  std::optional<Contraction> found = find_contraction(path);
  const bool has_rows = found.has_value();
  if (!has_rows) found = find_columns(path);
  if (!found.has_value()) return;
  const int64_t lanes = machine.vector_bytes / std::max(1, bits_of(found->dtype) / 8);
  const int64_t columns = columns_of(found->columns, lanes);
  if (columns < 4) return;
  const Schedule before = steps->schedule();
  std::vector<std::string> tiled = found->outer, inner;
  if (has_rows) pack(steps, block, *found, columns);
  const auto j = tiles(steps, found->column, columns);
  if (j.size() != 2) return steps->restore(before);
  tiled.push_back(j[0]);  // a panel of columns stays in a cache while the rows pass
  if (has_rows) {
    const auto i = tiles(steps, found->row, tile_of(found->rows, machine.vector_registers / 4));
    if (i.size() != 2) return steps->restore(before);
    tiled.push_back(i[0]);
    inner.push_back(i[1]);
  }
  inner.push_back(j[1]);
  if (!order_tile(steps, block, *found, tiled, inner)) steps->restore(before);
}

// ---- for GPUs ----

namespace {

constexpr int64_t kThreadsAcross = 16, kVector = 4, kDepth = 16;
constexpr int64_t kManyBlocks = 128;  // as many as large GPUs run at once; else tiles are smaller
// Of a block's tile, of which each of 16 x 16 threads has 4 x 4 or 8 x 8 elements.
constexpr int64_t kSmallSide = 64, kLargeSide = 128;

std::string factors(std::initializer_list<int64_t> inner) {
  std::string out = "[None";
  for (const int64_t factor : inner) out += ", " + std::to_string(factor);
  return out + "]";
}

// Rows go round the threads one by one, and columns in runs of four.
struct ThreadTile {
  std::string row, threads_y, columns, threads_x, run;  // loops; the first two and the next three make up a side of the tile
};
std::optional<ThreadTile> split_tile(Steps* steps, const std::string& row, const std::string& column, int64_t side,
                                     std::string* rows, std::string* columns) {
  const int64_t each = side / kThreadsAcross;
  const auto i = steps->attempt("split", {{"loop", quoted(row)}, {"factors", factors({each, kThreadsAcross})}});
  const auto j =
      steps->attempt("split", {{"loop", quoted(column)}, {"factors", factors({each / kVector, kThreadsAcross, kVector})}});
  if (i.size() != 3 || j.size() != 4) return std::nullopt;
  *rows = i[0], *columns = j[0];
  return ThreadTile{i[1], i[2], j[1], j[2], j[3]};
}

// The last two loops of a block as those of a tile's threads.
bool bind_tile(Steps* steps, const std::string& block, int64_t side) {
  const std::vector<std::string> loops = steps->loops(block);
  if (loops.size() < 2) return false;
  std::string one, other;  // of one iteration each
  const auto tile = split_tile(steps, loops[loops.size() - 2], loops.back(), side, &one, &other);
  return tile.has_value() &&
         steps->take(
             "reorder",
             {{"loops", quoted_list({one, other, tile->threads_y, tile->threads_x, tile->row, tile->columns, tile->run})}}) &&
         steps->take("bind", {{"loop", quoted(tile->threads_y)}, {"thread", quoted("thread.y")}}) &&
         steps->take("bind", {{"loop", quoted(tile->threads_x)}, {"thread", quoted("thread.x")}}) &&
         steps->take("vectorize", {{"loop", quoted(tile->run)}});
}

// The block that copies a tile of a buffer into shared memory, within the loop over steps of the reduction; "": it could not.
std::string stage(Steps* steps, const std::string& block, const std::string& buffer, const std::string& loop,
                  std::vector<std::string>* made) {
  const auto copy =
      steps->attempt("cache_read", {{"block", quoted(block)}, {"buffer", quoted(buffer)}, {"scope", quoted("shared")}});
  if (copy.empty()) return "";
  *made = steps->attempt("compute_at", {{"block", quoted(copy[0])}, {"loop", quoted(loop)}});
  return made->size() == 2 ? copy[0] : "";
}

// All threads copy it, an element each at a time.
bool share_elements(Steps* steps, const std::vector<std::string>& loops) {
  const auto rows = steps->attempt("split", {{"loop", quoted(loops[0])}, {"factors", factors({kThreadsAcross})}});
  const auto columns = steps->attempt("split", {{"loop", quoted(loops[1])}, {"factors", factors({kThreadsAcross})}});
  if (rows.size() != 2 || columns.size() != 2) return false;
  return steps->take("reorder", {{"loops", quoted_list({rows[0], columns[0], rows[1], columns[1]})}}) &&
         steps->take("bind", {{"loop", quoted(rows[1])}, {"thread", quoted("thread.y")}}) &&
         steps->take("bind", {{"loop", quoted(columns[1])}, {"thread", quoted("thread.x")}}) &&
         steps->take("unroll", {{"loop", quoted(columns[0])}}) && steps->take("unroll", {{"loop", quoted(rows[0])}});
}

// All threads copy it, in runs of four: a row's runs are some of the threads side by side.
bool share_runs(Steps* steps, const std::vector<std::string>& loops, int64_t columns) {
  const int64_t across = std::min(columns / kVector, kThreadsAcross), rows_across = kThreadsAcross / across;
  const auto rows = steps->attempt("split", {{"loop", quoted(loops[0])}, {"factors", factors({kThreadsAcross, rows_across})}});
  const auto runs = steps->attempt("split", {{"loop", quoted(loops[1])}, {"factors", factors({across, kVector})}});
  if (rows.size() != 3 || runs.size() != 3) return false;
  if (!steps->take("reorder", {{"loops", quoted_list({rows[1], rows[2], runs[1], rows[0], runs[0], runs[2]})}})) return false;
  const auto fused = steps->attempt("fuse", {{"loops", quoted_list({rows[2], runs[1]})}});
  return fused.size() == 1 && steps->take("bind", {{"loop", quoted(rows[1])}, {"thread", quoted("thread.y")}}) &&
         steps->take("bind", {{"loop", quoted(fused[0])}, {"thread", quoted("thread.x")}}) &&
         steps->take("vectorize", {{"loop", quoted(runs[2])}});
}

std::vector<std::string> factors_of(const Block& block) {  // buffers that the sum reads
  std::vector<std::string> out;
  for_each_load(block.body[0].value, [&](const Expr& load) {
    if (load.name != block.body[0].buffer && std::find(out.begin(), out.end(), load.name) == out.end()) out.push_back(load.name);
  });
  return out;
}

// What reads the sums moves into the loop; where nothing can, they are kept in a buffer of their own, and copied. Gives that block.
std::string move_reader(Steps* steps, const std::string& block, const std::string& loop, const char* scope) {
  const std::string buffer = steps->path(block).block->body[0].buffer;
  std::vector<std::string> readers;
  for (const Path& path : paths(steps->schedule().program()))
    for_each_load(*path.block, [&](const Expr& load) {
      if (load.name == buffer && path.block->name != block) readers.push_back(path.block->name);
    });
  const auto moves = [&](const std::string& name) {
    return steps->take("reverse_compute_at", {{"block", quoted(name)}, {"loop", quoted(loop)}});
  };
  if (readers.size() == 1 && moves(readers[0])) return readers[0];
  const auto copy = steps->attempt("cache_write", {{"block", quoted(block)}, {"buffer", quoted(buffer)}, {"scope", quoted(scope)}});
  return copy.empty() || !moves(copy[0]) ? "" : copy[0];
}

// Rows of a matrix in shared memory begin in other banks.
bool pad_rows(Steps* steps, const std::string& buffer, const char* elements) {
  return find_buffer(steps->schedule().program(), buffer)->shape.size() == 2 &&
         steps->take("pad", {{"buffer", quoted(buffer)}, {"axis", "1"}, {"elements", elements}});
}

// The axis that a loop is the value of; nullptr: none.
const Axis* axis_of(const Block& block, const std::string& loop) {
  const auto found =
      std::find_if(block.axes.begin(), block.axes.end(), [&](const Axis& axis) { return axis.binding->name == loop; });
  return found == block.axes.end() ? nullptr : &*found;
}

// How many tiles make up a product of f32; 0 where some are not whole.
int64_t whole_tiles(const Contraction& found, const Block& block, int64_t side) {
  const auto rows = constant(found.rows), columns = constant(found.columns);
  const Axis* const along = axis_of(block, found.reduced[0]);
  const auto depth = along == nullptr ? std::nullopt : constant(along->extent);
  const bool are_whole =
      found.dtype == DType::f32 && rows && columns && depth && *rows % side == 0 && *columns % side == 0 && *depth % kDepth == 0;
  return are_whole ? *rows / side * (*columns / side) : 0;
}

// Of whole tiles, factors are copied in runs, and ahead.
bool stage_factors(Steps* steps, const std::string& block, const std::string& loop, bool is_whole) {
  for (const std::string& name : factors_of(*steps->path(block).block)) {
    std::vector<std::string> loops;
    const std::string copy = stage(steps, block, name, loop, &loops);
    if (copy.empty()) return false;
    if (!is_whole) {
      if (!share_elements(steps, loops)) return false;
      continue;
    }
    const auto columns = constant(steps->path(copy).loops.back()->extent);
    if (!columns || *columns % kVector != 0 || !share_runs(steps, loops, *columns)) return false;
    if (*columns == kDepth && !pad_rows(steps, steps->path(copy).block->body[0].buffer, "4")) return false;
  }
  return !is_whole || steps->take("pipeline", {{"loop", quoted(loop)}, {"stages", "3"}});
}

bool tile_threads(Steps* steps, const std::string& block, const Contraction& found, int64_t side, bool is_whole) {
  std::string rows, columns;
  const auto tile = split_tile(steps, found.row, found.column, side, &rows, &columns);
  const auto k = steps->attempt("split", {{"loop", quoted(found.reduced[0])}, {"factors", factors({kDepth})}});
  if (!tile.has_value() || k.size() != 2) return false;
  if (!steps->take("reorder", {{"loops", quoted_list({rows, columns, k[0], tile->threads_y, tile->threads_x, k[1], tile->row,
                                                      tile->columns, tile->run})}}))
    return false;
  const std::set<std::string> before = [&] {
    const auto names = steps->schedule().blocks();
    return std::set<std::string>(names.begin(), names.end());
  }();
  const std::string last = move_reader(steps, block, columns, "local");
  if (last.empty() || !bind_tile(steps, last, side)) return false;
  if (!steps->take("decompose_reduction", {{"block", quoted(block)}, {"loop", quoted(k[0])}})) return false;
  if (!stage_factors(steps, block, k[0], is_whole)) return false;
  for (const auto& [loop, thread] :
       {std::pair{rows, "block.y"}, {columns, "block.x"}, {tile->threads_y, "thread.y"}, {tile->threads_x, "thread.x"}})
    if (!steps->take("bind", {{"loop", quoted(loop)}, {"thread", quoted(thread)}})) return false;
  for (const std::string& loop : {k[1], tile->row, tile->columns}) steps->attempt("unroll", {{"loop", quoted(loop)}});
  steps->attempt("vectorize", {{"loop", quoted(tile->run)}});
  const std::vector<std::string> init = steps->loops(block + "_init");
  if (init.size() != 7 || !steps->take("bind", {{"loop", quoted(init[2])}, {"thread", quoted("thread.y")}}) ||
      !steps->take("bind", {{"loop", quoted(init[3])}, {"thread", quoted("thread.x")}}))
    return false;
  if (found.dtype == DType::f32 || found.dtype == DType::f64)
    steps->attempt("annotate", {{"block", quoted(block)}, {"key", quoted("contract")}, {"value", quoted("true")}});
  for (const std::string& name : steps->schedule().blocks())
    if (before.count(name) == 0 || name == block || name == last) steps->set_tiled(name);
  return true;
}

// ---- for matrix units ----

// A block has some warps, each with 16 rows of sums and all columns of the tile, and takes some products along k into shared memory
// at a time, while it computes with those before. A warp is 8 x 4 threads.
struct UnitTile {
  int64_t warps, columns, steps;
  int64_t rows() const { return warps * 16; }
  int64_t depth() const { return steps * 16; }
};
constexpr int64_t kLanesX = 8, kLanesY = 4, kStages = 4;
// The first one that divides the product, from large to small.
constexpr UnitTile kUnitTiles[] = {{8, 256, 4}, {8, 128, 4}, {4, 128, 4}, {4, 64, 4}, {4, 64, 2}};

const UnitTile* unit_tile(int64_t rows, int64_t columns, int64_t depth) {
  for (const UnitTile& tile : kUnitTiles) {
    if (rows % tile.rows() != 0 || columns % tile.columns != 0 || depth % tile.depth() != 0) continue;
    const bool is_smallest = tile.warps == 4 && tile.columns == 64;
    if (is_smallest || rows / tile.rows() * (columns / tile.columns) >= kManyBlocks) return &tile;
  }
  return nullptr;
}

// "": the block is no sum in f32 of products that a unit has.
std::string intrinsic_of(const Block& block) {
  if (block.body[0].value->dtype != DType::f32) return "";
  std::set<DType> dtypes;
  for_each_load(block.body[0].value, [&](const Expr& load) {
    if (load.name != block.body[0].buffer) dtypes.insert(load.dtype);
  });
  if (dtypes == std::set<DType>{DType::f16}) return "mma.f16.f32";
  return dtypes == std::set<DType>{DType::bf16} ? "mma.bf16.f32" : "";
}

bool bind(Steps* steps, const std::string& loop, const char* thread) {
  return steps->take("bind", {{"loop", quoted(loop)}, {"thread", quoted(thread)}});
}

// Rows and columns as a block's threads, whose own loops go inwards, with runs of elements innermost.
bool share_tile(Steps* steps, const std::string& row, const std::string& column, int64_t warps, int64_t run,
                const std::vector<std::string>& between) {
  const bool has_warps = warps > 0;
  const auto rows =
      steps->attempt("split", {{"loop", quoted(row)}, {"factors", has_warps ? factors({warps, kLanesY}) : factors({kLanesY})}});
  const auto columns = steps->attempt("split", {{"loop", quoted(column)}, {"factors", factors({kLanesX, run})}});
  if (rows.size() < 2 || columns.size() != 3) return false;
  std::vector<std::string> order(rows.begin() + 1, rows.end());
  order.push_back(columns[1]);
  order.insert(order.end(), between.begin(), between.end());
  for (const std::string& loop : {rows[0], columns[0], columns[2]}) order.push_back(loop);
  return steps->take("reorder", {{"loops", quoted_list(order)}}) && (!has_warps || bind(steps, rows[1], "thread.z")) &&
         bind(steps, rows.back(), "thread.y") && bind(steps, columns[1], "thread.x") &&
         steps->take("vectorize", {{"loop", quoted(columns[2])}});
}

// A tile of a factor. Rows of whole panels need no padding. Gives the block; "": it could not.
std::string stage_factor(Steps* steps, const std::string& block, const std::string& buffer, const std::string& loop) {
  const auto copy =
      steps->attempt("cache_read", {{"block", quoted(block)}, {"buffer", quoted(buffer)}, {"scope", quoted("shared")}});
  if (copy.empty() || !steps->take("compute_at", {{"block", quoted(copy[0])}, {"loop", quoted(loop)}})) return "";
  const auto columns = constant(steps->path(copy[0]).loops.back()->extent);
  const bool has_panels = columns.has_value() && *columns % 64 == 0;
  return has_panels || pad_rows(steps, steps->path(copy[0]).block->body[0].buffer, "8") ? copy[0] : "";
}

// Whole tiles only: a unit takes no others.
bool tile_unit(Steps* steps, const std::string& block, const Contraction& found, const std::string& intrinsic) {
  const Path path = steps->path(block);
  const auto rows = constant(found.rows), columns = constant(found.columns);
  const Axis* const along = axis_of(*path.block, found.reduced[0]);
  const auto depth = along == nullptr ? std::nullopt : constant(along->extent);
  const UnitTile* const tile = !rows || !columns || !depth ? nullptr : unit_tile(*rows, *columns, *depth);
  if (tile == nullptr) return false;
  const auto i = steps->attempt("split", {{"loop", quoted(found.row)}, {"factors", factors({tile->warps, 16})}});
  const auto j = steps->attempt("split", {{"loop", quoted(found.column)}, {"factors", factors({tile->columns / 8, 8})}});
  const auto k = steps->attempt("split", {{"loop", quoted(found.reduced[0])}, {"factors", factors({tile->steps, 16})}});
  if (i.size() != 3 || j.size() != 3 || k.size() != 3) return false;
  if (!steps->take("reorder", {{"loops", quoted_list({i[0], j[0], k[0], i[1], k[1], j[1], i[2], j[2], k[2]})}})) return false;
  const std::string last = move_reader(steps, block, j[0], "shared");
  if (last.empty()) return false;
  const std::string sums = steps->path(block).block->body[0].buffer;
  if (!steps->take("set_scope", {{"buffer", quoted(sums)}, {"scope", quoted("shared")}}) || !pad_rows(steps, sums, "4"))
    return false;
  if (!steps->take("decompose_reduction", {{"block", quoted(block)}, {"loop", quoted(k[0])}})) return false;
  std::vector<std::string> shared{last};
  for (const std::string& name : factors_of(*path.block)) shared.push_back(stage_factor(steps, block, name, k[0]));
  if (!steps->take("tensorize", {{"loop", quoted(i[2])}, {"intrinsic", quoted(intrinsic)}})) return false;
  for (const std::string& name : shared) {
    if (name.empty()) return false;
    const std::vector<std::string> loops = steps->loops(name);
    if (loops.size() != (name == last ? 4U : 5U) || !share_tile(steps, loops[loops.size() - 2], loops.back(), tile->warps, 8, {}))
      return false;
  }
  const std::vector<std::string> init = steps->loops(block + "_init");
  if (init.size() != 6 || !share_tile(steps, init[4], init[5], 0, 1, {init[3]}) || !bind(steps, init[2], "thread.z")) return false;
  if (!steps->take("pipeline", {{"loop", quoted(k[0])}, {"stages", std::to_string(kStages)}})) return false;
  if (!bind(steps, i[0], "block.y") || !bind(steps, j[0], "block.x") || !bind(steps, i[1], "thread.z")) return false;
  for (const std::string& name : shared) steps->set_tiled(name);
  steps->set_tiled(block);
  steps->set_tiled(block + "_init");
  return true;
}

bool is_small(const ExprPtr& extent) {
  const auto number = constant(extent);
  return number.has_value() && *number < kSmallSide / 2;
}

}  // namespace

void tile_for_gpu(Steps* steps, const std::string& block, bool has_unit) {
  const Path path = steps->path(block);
  const std::optional<Contraction> found = find_contraction(path);
  if (!found.has_value() || found->reduced.size() != 1 || !found->outer.empty()) return;
  if (is_small(found->rows) || is_small(found->columns) || factors_of(*path.block).size() != 2) return;
  const Schedule before = steps->schedule();
  if (const std::string intrinsic = intrinsic_of(*path.block); has_unit && !intrinsic.empty()) {
    if (tile_unit(steps, block, *found, intrinsic)) return;
    steps->restore(before);
  }
  const auto tries = [&](int64_t side, bool is_whole) {
    if (tile_threads(steps, block, *found, side, is_whole)) return true;
    steps->restore(before);
    return false;
  };
  if (whole_tiles(*found, *path.block, kLargeSide) >= kManyBlocks && tries(kLargeSide, true)) return;
  if (whole_tiles(*found, *path.block, kSmallSide) > 0 && tries(kSmallSide, true)) return;
  (void)tries(kSmallSide, false);
}

}  // namespace narrows::program
