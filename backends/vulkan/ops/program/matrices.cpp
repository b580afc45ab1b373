// SPDX-License-Identifier: Apache-2.0
// matrices.cpp -- see matrices.h. A matrix is loaded from shared memory as it lies there, where its rows or columns begin at
// multiples of 16 bytes, as Vulkan wants them. Any other goes by a patch of the subgroup's own in shared memory, element by
// element.
#include "ops/program/matrices.h"

#include <algorithm>

#include "core/program/expr.h"

namespace narrows::vulkan {

using common::Linear;
using common::linear;
using common::Node;
using common::Place;

namespace {

constexpr int64_t kRows = 16, kColumns = 8, kDepth = 16;  // of a program's product: intrinsics.h
constexpr int64_t kPatch = 256;                           // elements of the largest matrix
constexpr int64_t kWarp = 32;
constexpr int64_t kEight = 8, kLongestRun = 64;  // elements; of a vector_loop()

int64_t extent_of(const Node& loop) { return *ir::constant(loop.extent); }

std::string number(int64_t value) { return std::to_string(value); }
std::string sum_of(int64_t first, const std::string& more) { return first == 0 ? more : number(first) + " + " + more; }

}  // namespace

int64_t unit_lanes(const MatrixUnits& units) {
  const MatrixUnit& unit = units.f16 ? units.f16 : units.bf16;
  return unit ? std::max<int64_t>(unit.subgroup, kWarp) : 0;
}

// ---- what fits ----

const MatrixUnit& MatrixPrinter::unit_of(const Tile& tile) const {
  return tile.product->product->intrinsic == "mma.f16.f32" ? units_.units.f16 : units_.units.bf16;
}

MatrixPrinter::Shape MatrixPrinter::shape_of(const Tile& tile) const {
  const MatrixUnit& unit = unit_of(tile);
  if (unit.n == kColumns) return {unit.m, unit.n, unit.k, nullptr};
  if (const Node* const pair = common::pair_of(tile, extents_); pair != nullptr) return {unit.m, unit.n, unit.k, pair};
  return unit.has_narrow ? Shape{unit.m, kColumns, unit.k, nullptr} : Shape{};
}

MatrixPrinter::Side MatrixPrinter::side_of(const Tile& tile, Role role) const {
  const common::UnitProduct& product = *tile.product->product;
  const common::ProductParts& parts = tile.parts;
  const Shape shape = shape_of(tile);
  switch (role) {
    case Role::a: return {parts.a->name, parts.a->operands, product.m, product.k, shape.m, shape.k, a_};
    case Role::b: return {parts.b->name, parts.b->operands, product.k, product.n, shape.k, shape.n, b_};
    default: return {parts.sum->buffer, parts.sum->indices, product.m, product.n, shape.m, shape.n, tile.sums};
  }
}

std::vector<const Node*> MatrixPrinter::loops_of_side(const Tile& tile, Role role) const {
  return role == Role::sum ? tile.loops : tile.loops_of(role == Role::a ? *tile.parts.a : *tile.parts.b);
}

// Elements from one iteration of the loop to the next; nothing: that is no number above 0.
std::optional<int64_t> MatrixPrinter::pitch_of(const Side& side, const std::string& loop) {
  int64_t out = 0;
  for (size_t d = 0; d < side.indices.size(); ++d) {
    const Linear sum = linear(side.indices[d], extents_);
    if (common::mentions(expression(sum.without(loop)), loop)) return std::nullopt;
    if (sum.factor_of(loop) == 0) continue;
    std::optional<int64_t> step;
    (void)stride(side.buffer, d, &step);
    if (!step.has_value()) return std::nullopt;
    out += sum.factor_of(loop) * *step;
  }
  return out > 0 ? std::optional(out) : std::nullopt;
}

// Nothing: not in shared memory, or not at multiples of 16 bytes.
std::optional<MatrixPrinter::Layout> MatrixPrinter::layout_of(const Side& side) {
  const auto place = program_.places.find(side.buffer);
  if (place == program_.places.end() || place->second != Place::shared) return std::nullopt;
  const int64_t run = 16 / common::bytes_of(buffer_of(side.buffer).dtype);
  for (const bool by_columns : {false, true}) {
    if (!is_run(side.buffer, side.indices, by_columns ? side.rows : side.columns, run)) continue;
    if (const auto pitch = pitch_of(side, by_columns ? side.columns : side.rows); pitch.has_value() && *pitch % run == 0)
      return Layout{by_columns, *pitch};
  }
  return std::nullopt;
}

int64_t MatrixPrinter::patch_bytes(bool is_sum) const {
  return kernel_->threads / std::max<int64_t>(1, unit_lanes(units_.units)) * kPatch * (is_sum ? 4 : 2);
}

std::string MatrixPrinter::why_plain(const Tile& tile) {
  if (shape_of(tile).m == 0) return "the unit's products are 16 wide, and there are not two of them side by side";
  const bool factors = patches_factors_ || !layout_of(side_of(tile, Role::a)) || !layout_of(side_of(tile, Role::b));
  const bool sums = patches_sums_ || !layout_of(side_of(tile, Role::sum));
  const int64_t bytes = (factors ? patch_bytes(false) : 0) + (sums ? patch_bytes(true) : 0);
  if (bytes + shared_used_ > units_.shared_bytes)
    return "it needs " + number(bytes) + " bytes of shared memory, and " +
           number(std::max<int64_t>(0, units_.shared_bytes - shared_used_)) + " are left";
  patches_factors_ = factors;
  patches_sums_ = sums;
  return "";
}

// ---- a kernel ----

void MatrixPrinter::begin_matrices(const common::Kernel& kernel) {
  kernel_of_loops_ = &kernel;
  has_joint_ = false;
  for (const Node& node : kernel.body) common::for_each_joint(node, [&](const Node&) { has_joint_ = true; });
  packed_.clear();
  shared_used_ = 0;
  subgroup_ = 0;
  has_bf16_ = patches_factors_ = patches_sums_ = false;
}

// Whether only loops of whole eights write it, which do nothing else with it.
bool MatrixPrinter::writes_eights(const std::vector<Node>& body, const std::string& buffer) {
  return std::all_of(body.begin(), body.end(), [&](const Node& node) {
    if (node.kind == Node::Kind::loop) return is_loop_of_eights(node, buffer) || writes_eights(node.body, buffer);
    return std::none_of(node.stores.begin(), node.stores.end(), [&](const ir::Store& store) { return store.buffer == buffer; });
  });
}

// As vector_loop() has it.
bool MatrixPrinter::is_loop_of_eights(const Node& loop, const std::string& buffer) {
  const int64_t extent = ir::constant(loop.extent).value_or(0);
  if (loop.loop_kind != ir::For::Kind::vectorize || extent <= 0 || extent > kLongestRun || extent % kEight != 0) return false;
  bool out = true;
  const auto load = [&](const ir::Expr& expr) { out = out && expr.name != buffer; };
  for (const Node& child : loop.body) {
    if (child.kind != Node::Kind::stores || child.has_barrier || !child.first_only.empty()) return false;
    if (!open_conditions(child).empty()) return false;
    for (const ir::Store& store : child.stores) {
      common::for_each_load(store.value, load);
      out = out && (store.buffer != buffer || is_run(buffer, store.indices, loop.name, extent));
    }
  }
  return out;
}

std::string MatrixPrinter::shared_array(const common::SharedArray& array) {
  const std::string &type = array.type, &name = array.name;
  const int64_t bytes = array.count * std::stoi(type.substr(1)) / 8, vectors = (bytes + 15) / 16;  // "f32"
  shared_used_ += 16 * vectors;
  const auto found = std::find_if(arrays_.begin(), arrays_.end(), [&](const auto& entry) { return entry.second == name; });
  if (has_joint_ && type == "u16" && writes_eights(kernel_of_loops_->body, found->first)) {
    packed_.insert(found->first);
    return "shared uvec4 " + name + "[" + number(vectors) + "];\n";
  }
  return "shared " + type + " " + name + "[" + number(array.count) + "];\n";
}

std::string MatrixPrinter::in_array(const std::string& buffer, const std::string& array, const std::string& index) {
  if (!is_packed(buffer)) return KernelPrinter::in_array(buffer, array, index);
  return "nw_half(" + array + "[" + subscript("(" + index + ") / 8") + "], u32(" + index + ") % 8u)";
}

std::string MatrixPrinter::matrix_definitions() const {
  if (subgroup_ == 0) return "";
  return "#define NW_SUBGROUP " + number(subgroup_) + "u\n#define NW_WARP " + number(unit_lanes(units_.units)) + "u\n" +
         (has_bf16_ ? "#define NW_BF16_MATRICES\n" : "") + (units_.in_step ? "#define NW_IN_STEP\n" : "");
}

std::string MatrixPrinter::matrix_arrays() const {
  std::string out;
  if (subgroup_ == 0) return out;
  if (patches_factors_) out += "shared u16 nw_factors[" + number(patch_bytes(false) / 2) + "];\n";
  if (patches_sums_) out += "shared f32 nw_sums[" + number(patch_bytes(true) / 4) + "];\n";
  return out;
}

// ---- matrices of a tile ----

std::string MatrixPrinter::matrix_type(const Tile& tile, Role role) const {
  const Side side = side_of(tile, role);
  const bool is_f16 = tile.product->product->intrinsic == "mma.f16.f32";
  const char* const type = role == Role::sum ? "float" : is_f16 ? "float16_t" : "bfloat16_t";
  const char* const use = role == Role::sum ? "Accumulator" : role == Role::a ? "A" : "B";
  return common::join(
      {"coopmat<", type, ", gl_ScopeSubgroup, ", number(side.num_rows), ", ", number(side.num_columns), ", gl_MatrixUse", use, ">"},
      "");
}

// A product of the tile, or two that make one, is some matrices.
int64_t MatrixPrinter::count_matrices(const Tile& tile, Role role) const {
  const Shape shape = shape_of(tile);
  const int64_t m = kRows / shape.m, n = shape.pair != nullptr ? 1 : kColumns / shape.n, k = kDepth / shape.k;
  return role == Role::a ? m * k : role == Role::b ? k * n : m * n;
}

std::string MatrixPrinter::declare(const Tile& tile, Role role) {
  int64_t count = count_matrices(tile, role);
  const Node* const pair = shape_of(tile).pair;
  for (const Node* loop : loops_of_side(tile, role)) count *= extent_of(*loop) / (loop == pair ? 2 : 1);
  std::string array = role == Role::sum ? tile.sums : fresh("m");
  line(matrix_type(tile, role) + " " + array + "[" + number(count) + "];");
  return array;
}

// The element of the side's array that the tile's loops are at, of its matrices in one product the one in this row and column of
// them.
std::string MatrixPrinter::number_of(const Tile& tile, Role role, int64_t row, int64_t column) {
  const Side side = side_of(tile, role);
  const std::vector<const Node*> loops = loops_of_side(tile, role);
  std::string out = number_in(loops, shape_of(tile).pair);
  const int64_t columns = role == Role::a ? kDepth / side.num_columns : std::max<int64_t>(1, kColumns / side.num_columns);
  const int64_t inner = row * columns + column, count = count_matrices(tile, role);
  if (loops.empty()) out = number(inner);
  if (!loops.empty() && count > 1) out = "(" + out + ") * " + number(count) + (inner == 0 ? "" : " + " + number(inner));
  return side.array + "[" + subscript(out) + "]";
}

void MatrixPrinter::for_each_matrix(const Tile& tile, Role role, const std::function<void(int64_t, int64_t)>& body) {
  const Side side = side_of(tile, role);
  const int64_t rows = (role == Role::b ? kDepth : kRows) / side.num_rows;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < count_matrices(tile, role) / rows; ++column) body(row, column);
}

// What the product's own loops stand for at an element of a side.
void MatrixPrinter::place_side(const Tile& tile, Role role, const std::string& row, const std::string& column) {
  switch (role) {
    case Role::a: return place(tile, row, "0", column);
    case Role::b: return place(tile, "0", column, row);
    default: return place(tile, row, column, "0");
  }
}

void MatrixPrinter::move(const Tile& tile, Role role, int64_t row, int64_t column, bool store) {
  const Side side = side_of(tile, role);
  const std::optional<Layout> layout = layout_of(side);
  if (!layout.has_value()) return move_by_patch(tile, role, row, column, store);
  place_side(tile, role, number(row * side.num_rows), number(column * side.num_columns));
  const int64_t pack = is_packed(side.buffer) ? kEight : 1;
  line(common::join({store ? "coopMatStore(" : "coopMatLoad(", number_of(tile, role, row, column), ", ", arrays_.at(side.buffer),
                     ", u32(", offset(side.buffer, side.indices), pack == 1 ? "), " : ") / 8u, ", number(layout->pitch / pack),
                     "u, gl_CooperativeMatrixLayout", layout->by_columns ? "Column" : "Row", "Major);"},
                    ""));
}

void MatrixPrinter::move_by_patch(const Tile& tile, Role role, int64_t row, int64_t column, bool store) {
  const Side side = side_of(tile, role);
  const std::string patch = role == Role::sum ? "nw_sums" : "nw_factors", base = "nw_warp * " + number(kPatch) + "u",
                    columns = number(side.num_columns), e = fresh("e");
  const std::string whole = common::join({store ? "coopMatStore(" : "coopMatLoad(", number_of(tile, role, row, column), ", ", patch,
                                          ", ", base, ", ", columns, "u, gl_CooperativeMatrixLayoutRowMajor);"},
                                         "");
  if (store) {
    line(whole);
    line("nw_warp_barrier();");
  }
  open(common::join(
      {"for (ix ", e, " = ix(nw_lane); ", e, " < ", number(side.num_rows * side.num_columns), "; ", e, " += ix(NW_SUBGROUP)) {"},
      ""));
  place_side(tile, role, sum_of(row * side.num_rows, e + " / " + columns), sum_of(column * side.num_columns, e + " % " + columns));
  const std::string in_memory = element(side.buffer, side.indices),
                    in_patch = common::join({patch, "[", base, " + u32(", e, ")]"}, "");
  line(store ? in_memory + " = " + in_patch + ";" : in_patch + " = " + in_memory + ";");
  close();
  line("nw_warp_barrier();");
  if (store) return;
  line(whole);
  line("nw_warp_barrier();");
}

// ---- printing ----

void MatrixPrinter::open_unit() {
  if (subgroup_ < unit_lanes(units_.units)) open("if (nw_is_first_subgroup) {");
}
void MatrixPrinter::close_unit() {
  if (subgroup_ < unit_lanes(units_.units)) close();
}

void MatrixPrinter::declare_sums(const Tile& tile) {
  subgroup_ = unit_of(tile).subgroup;
  has_bf16_ = has_bf16_ || tile.product->product->intrinsic == "mma.bf16.f32";
  (void)declare(tile, Role::sum);
}

void MatrixPrinter::move_sums(const Tile& tile, bool store) {
  open_unit();
  const auto one = [&](int64_t row, int64_t column) { move(tile, Role::sum, row, column, store); };
  over(tile.loops, [&] { for_each_matrix(tile, Role::sum, one); }, shape_of(tile).pair);
  close_unit();
}

void MatrixPrinter::read_factor(const Tile& tile, Role role) {
  (role == Role::a ? a_ : b_) = declare(tile, role);
  const auto one = [&](int64_t row, int64_t column) { move(tile, role, row, column, false); };
  over(loops_of_side(tile, role), [&] { for_each_matrix(tile, role, one); }, shape_of(tile).pair);
}

void MatrixPrinter::multiply(const Tile& tile) {
  const Shape shape = shape_of(tile);
  open("{");
  line(common::remark(*tile.product->product) + ", by matrices of " + number(shape.m) + " x " + number(shape.n) + " x " +
       number(shape.k));
  line("nw_warp_barrier();");
  open_unit();
  read_factor(tile, Role::a);
  read_factor(tile, Role::b);
  const auto one = [&](int64_t row, int64_t column) {
    const std::string sum = number_of(tile, Role::sum, row, column);
    for (int64_t k = 0; k < kDepth / shape.k; ++k)
      line(common::join(
          {sum, " = coopMatMulAdd(", number_of(tile, Role::a, row, k), ", ", number_of(tile, Role::b, k, column), ", ", sum, ");"},
          ""));
  };
  over(tile.loops, [&] { for_each_matrix(tile, Role::sum, one); }, shape.pair);
  close_unit();
  line("nw_warp_barrier();");
  close();
}

}  // namespace narrows::vulkan
