// SPDX-License-Identifier: Apache-2.0
// random_program.cpp -- see random_program.h.
#include "random_program.h"

#include <algorithm>
#include <array>
#include <memory>

namespace narrows::search {
namespace {

struct Array {
  std::string name;
  std::vector<std::string> shape;
  bool is_changed = false;  // an inout tensor
};

struct Axis {
  std::string name;
  char kind;  // S, R or C
  std::string extent;
};

struct Block {
  std::string name;
  std::vector<Axis> axes;
  std::string first, body;  // `first` may be empty, `body` may have two lines
};

// Loops with what stands in them, or a block.
struct Node {
  std::string loop, extent, kind;
  std::vector<std::unique_ptr<Node>> inside;
  std::vector<std::string> lines;  // of a block
};

void write(const Node& node, int depth, std::string& out) {
  const std::string indent(static_cast<size_t>(depth) * 2, ' ');
  if (!node.loop.empty()) out += indent + "for " + node.loop + " in " + node.extent + node.kind + ":\n";
  for (const std::string& line : node.lines) out += indent + line + "\n";
  for (const auto& inner : node.inside) write(*inner, depth + 1, out);
}

class Maker {
 public:
  explicit Maker(Random& random)
      : random_(random), dtype_(random.chance(15) ? "i32" : "f32"), has_bias_(random.chance(15)), has_positions_(random.chance(15)),
        has_params_(random.chance(15)) {}

  RandomProgram run() {
    extents();
    inputs_ = {{"A", {rows_, columns_}}, {"B", {columns_, rows_}}, {"x", {rows_}, random_.chance(15)}};
    known_ = inputs_;
    const int64_t count = random_.integer(1, 4), change = inputs_[2].is_changed ? random_.integer(0, count - 1) : -1;
    for (int64_t i = 0; i < count; ++i) {
      if (i == change) rewrite(inputs_[2]);
      block(i == count - 1);
    }
    return {text(), sizes(), params()};
  }

 private:
  void extents() {
    const auto extent = [&](const char* name) {
      return random_.chance(50) ? std::string(name) : std::to_string(random_.integer(1, 6));
    };
    rows_ = extent("N");
    columns_ = random_.chance(30) ? rows_ : extent("M");
  }

  static bool is_number(const std::string& extent) { return extent.find_first_not_of("0123456789") == std::string::npos; }

  std::string number(int64_t value) const { return dtype_ + "(" + std::to_string(value) + ")"; }

  // ---- subscripts and values ----

  std::string subscript(const std::string& extent, const std::vector<Axis>& axes, std::string& guard) {
    std::vector<std::string> fitting;
    for (const Axis& axis : axes)
      if (axis.extent == extent) fitting.push_back(axis.name);
    if (fitting.empty()) {
      if (!is_number(extent)) guard += (guard.empty() ? "" : " and ") + extent + " > 0";
      return random_.chance(50) ? "0" : extent + " - 1";
    }
    const std::string v = random_.pick(fitting);
    if (has_positions_ && extent == rows_ && random_.chance(40)) return "clamp(at[" + v + "], 0, " + extent + " - 1)";
    if (has_params_ && random_.chance(25)) return "min(max(" + v + " + n, 0), " + extent + " - 1)";
    switch (random_.integer(0, 11)) {
      case 0: return "max(" + v + " - 1, 0)";
      case 1: return "min(" + v + " + 1, " + extent + " - 1)";
      case 2: return extent + " - 1 - " + v;
      case 3: guard += (guard.empty() ? "" : " and ") + v + " > 0"; return v + " - 1";
      case 4: return axes.size() > 1 && random_.chance(60) ? window(extent, axes, guard) : v + " // 2";
      case 5: return "(" + v + " + 1) % " + (is_number(extent) ? extent : "1");
      default: return v;
    }
  }

  // A sum of two axes, as a convolution reads.
  std::string window(const std::string& extent, const std::vector<Axis>& axes, std::string& guard) {
    const std::string at = axes[0].name + " + " + axes[1].name;
    guard += (guard.empty() ? "" : " and ") + at + " < " + extent;
    return at;
  }

  std::string element(const Array& array, const std::vector<Axis>& axes) {
    std::string guard, indices;
    for (const std::string& extent : array.shape) indices += (indices.empty() ? "" : ", ") + subscript(extent, axes, guard);
    const std::string load = array.name + "[" + indices + "]";
    return guard.empty() ? load : "where(" + guard + ", " + load + ", " + number(random_.integer(0, 2)) + ")";
  }

  // Rather of what was written last.
  const Array& source() { return random_.chance(60) ? known_.back() : random_.pick(known_); }

  std::string value(const std::vector<Axis>& axes) {
    const std::string a = plain_value(axes);
    if (has_bias_ && random_.chance(50))
      return a + " + where(present(bias), " + element({"bias", {rows_}}, axes) + ", " + number(1) + ")";
    if (has_params_ && random_.chance(30)) return "(" + a + ") * " + (dtype_ == "f32" ? "alpha" : "i32(n)");
    if (has_params_ && random_.chance(30)) return "where(flag, " + a + ", " + element(source(), axes) + ")";
    return a;
  }

  std::string plain_value(const std::vector<Axis>& axes) {
    const std::string a = element(source(), axes);
    switch (random_.integer(0, 5)) {
      case 0: return a;
      case 1: return a + " * " + number(2);
      case 2: return "maximum(" + a + ", " + element(source(), axes) + ")";
      case 3: return a + " - " + element(source(), axes);
      case 4: return a + " + " + dtype_ + "(" + axes[0].name + ")";
      default: return a + " + " + element(source(), axes);
    }
  }

  // ---- blocks ----

  Array target(const std::vector<Axis>& axes, bool is_last) {
    Array array{is_last ? "C" : std::string(1, static_cast<char>('P' + allocations_.size())), {}};
    for (const Axis& axis : axes)
      if (axis.kind != 'R') array.shape.push_back(axis.extent);
    if (array.shape.empty()) array.shape.push_back("1");
    (is_last ? outputs_ : allocations_).push_back(array);
    return array;
  }

  static std::string place(const Array& array, const std::vector<Axis>& axes) {
    std::string indices;
    for (const Axis& axis : axes)
      if (axis.kind != 'R') indices += (indices.empty() ? "" : ", ") + axis.name;
    return array.name + "[" + (indices.empty() ? "0" : indices) + "]";
  }

  std::vector<Axis> axes_of(const std::string& kinds) {
    std::vector<Axis> axes;
    for (const char kind : kinds)
      axes.push_back({std::string("v") + static_cast<char>('i' + axes.size()), kind, random_.chance(50) ? rows_ : columns_});
    return axes;
  }

  void block(bool is_last) {
    if (!is_last && !allocations_.empty() && random_.chance(15)) return rewrite(random_.pick(allocations_));
    static const std::vector<std::string> kKinds = {"S", "SS", "SS", "SR", "SR", "SSR", "R", "SRR", "SC", "C"};
    Block made{"", axes_of(random_.pick(kKinds)), "", ""};
    const bool reduces = std::any_of(made.axes.begin(), made.axes.end(), [](const Axis& axis) { return axis.kind == 'R'; });
    const bool carries = std::any_of(made.axes.begin(), made.axes.end(), [](const Axis& axis) { return axis.kind == 'C'; });
    const std::string read = value(made.axes);
    const Array array = target(made.axes, is_last);
    made.name = array.name;
    const std::string at = place(array, made.axes);
    if (reduces) return reduction(made, array, at, read);
    made.body = at + " = " + read + (carries ? " + " + before(array, made.axes) : "");
    if (is_last || !random_.chance(12)) {
      add(made);
      known_.push_back(array);
      return;
    }
    const Array second = target(made.axes, false);  // a block that stores into two buffers
    made.body += "\n" + place(second, made.axes) + " = " + value(made.axes);
    add(made);
    known_.insert(known_.end(), {array, second});
  }

  // What a running sum adds to: the element before along the carried axis, the last one here.
  std::string before(const Array& array, const std::vector<Axis>& axes) const {
    std::string indices;
    for (const Axis& axis : axes) indices += (indices.empty() ? "" : ", ") + axis.name + (axis.kind == 'C' ? " - 1" : "");
    return "where(" + axes.back().name + " > 0, " + array.name + "[" + indices + "], " + number(1) + ")";
  }

  void reduction(Block& made, const Array& array, const std::string& at, const std::string& read) {
    static const std::vector<std::string> kSums = {"+", "+", "+", "*", "maximum"};
    const std::string sum = random_.pick(kSums);
    made.body = at + " = " + (sum == "maximum" ? "maximum(" + at + ", " + read + ")" : at + " " + sum + " (" + read + ")");
    std::vector<Axis> spatial;
    for (const Axis& axis : made.axes)
      if (axis.kind == 'S') spatial.push_back(axis);
    const std::string first =
        !spatial.empty() && random_.chance(20) ? element(random_.pick(inputs_), spatial) : number(sum == "*" ? 1 : 0);
    if (random_.chance(20) && !spatial.empty()) {
      add({made.name + "_init", spatial, "", at + " = " + first});
    } else {
      made.first = at + " = " + first;
    }
    add(made);
    known_.push_back(array);
  }

  // An allocation or an inout tensor gets new values, of its own ones too.
  void rewrite(const Array& array) {
    Block made{array.name + "_" + std::to_string(blocks_++), {}, "", ""};
    for (const std::string& extent : array.shape)
      made.axes.push_back({std::string("v") + static_cast<char>('i' + made.axes.size()), 'S', extent});
    std::string at = place(array, made.axes);
    const Array& other = inputs_[static_cast<size_t>(random_.integer(0, array.is_changed ? 1 : 2))];
    made.body = at + " = " + (random_.chance(50) ? at + " * " + number(2) : element(other, made.axes));
    add(made);
    known_.push_back(array);
  }

  // ---- loops ----

  std::string loop_name() { return "l" + std::to_string(loops_++); }

  void add(const Block& made) {
    auto leaf = std::make_unique<Node>();
    std::vector<std::unique_ptr<Node>> chain;
    std::vector<std::string> bindings(made.axes.size());
    std::string predicate;
    std::vector<size_t> order(made.axes.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i > 1 && random_.chance(30); --i)
      std::swap(order[i - 1], order[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(i) - 1))]);
    Node* const shared = common_loop(made.axes[order[0]]);
    for (size_t i = 0; i < order.size(); ++i) {
      const Axis& axis = made.axes[order[i]];
      if (i == 0 && shared != nullptr)
        bindings[order[i]] = shared->loop;
      else
        bindings[order[i]] = loops_of(axis, chain, predicate);
    }
    leaf->lines = lines_of(made, bindings, predicate);
    chain.push_back(std::move(leaf));
    for (size_t i = chain.size() - 1; i > 0; --i) chain[i - 1]->inside.push_back(std::move(chain[i]));
    if (shared != nullptr)
      shared->inside.push_back(std::move(chain[0]));
    else
      body_.push_back(std::move(chain[0]));
  }

  // The last nest's outermost loop, where the axis could run with it.
  Node* common_loop(const Axis& axis) {
    if (body_.empty() || axis.kind == 'C' || !random_.chance(25)) return nullptr;
    Node& last = *body_.back();
    return last.loop.empty() || last.extent != axis.extent ? nullptr : &last;
  }

  // One loop for an axis; or two, with a predicate for what they have too much.
  std::string loops_of(const Axis& axis, std::vector<std::unique_ptr<Node>>& chain, std::string& predicate) {
    const auto loop = [&](const std::string& extent) {
      chain.push_back(std::make_unique<Node>());
      chain.back()->loop = loop_name();
      chain.back()->extent = extent;
      return chain.back()->loop;
    };
    if (!random_.chance(8)) return loop(axis.extent);
    const std::string outer = loop("(" + axis.extent + " + 1) // 2"), inner = loop("2"), at = outer + " * 2 + " + inner;
    predicate += (predicate.empty() ? " if " : " and ") + at + " < " + axis.extent;
    return at;
  }

  static std::vector<std::string> lines_of(const Block& made, const std::vector<std::string>& bindings,
                                           const std::string& predicate) {
    std::string head = "block " + made.name + "(";
    for (size_t i = 0; i < made.axes.size(); ++i) {
      const Axis& axis = made.axes[i];
      head += (i == 0 ? "" : ", ") + axis.name + ": " + axis.kind + "(" + axis.extent + ") = " + bindings[i];
    }
    std::vector<std::string> lines = {head + ")" + predicate + ":"};
    if (!made.first.empty()) lines.insert(lines.end(), {"  init:", "    " + made.first});
    const size_t end = made.body.find('\n');
    lines.push_back("  " + made.body.substr(0, end));
    if (end != std::string::npos) lines.push_back("  " + made.body.substr(end + 1));
    return lines;
  }

  // ---- the whole ----

  static std::string declared(const Array& array, const std::string& dtype) {
    std::string shape;
    for (const std::string& extent : array.shape) shape += (shape.empty() ? "" : ", ") + extent;
    return array.name + ": " + dtype + "[" + shape + "]";
  }

  std::string text() {
    std::string out = "program 1 random(";
    for (const Array& array : inputs_)
      out += (array.name == "A" ? "" : ", ") + declared(array, (array.is_changed ? "inout " : "") + dtype_);
    if (has_bias_) out += ", " + declared({"bias?", {rows_}}, dtype_);
    if (has_positions_) out += ", " + declared({"at", {rows_}}, "i32");
    for (const Array& array : outputs_) out += ", " + declared(array, "out " + dtype_);
    if (has_params_) out += ", alpha: param f32 = 2, n: param i64 = 1, flag: param bool = 1";
    out += "):\n";
    for (const Array& array : allocations_) out += "  alloc " + declared(array, dtype_) + "\n";
    for (const auto& node : body_) write(*node, 1, out);
    return out;
  }

  std::vector<std::map<std::string, int64_t>> sizes() {
    std::vector<std::map<std::string, int64_t>> all = {{{"N", 4}, {"M", 5}}};
    if (rows_ == "N" || columns_ == "M" || columns_ == "N") {
      all.push_back({{"N", random_.integer(1, 6)}, {"M", random_.integer(1, 6)}});
      all.push_back({{"N", random_.integer(0, 2)}, {"M", random_.integer(0, 3)}});
    }
    return all;
  }

  std::map<std::string, int64_t> params() {
    if (!has_params_) return {};
    return {{"alpha", random_.integer(-2, 3)}, {"n", random_.integer(-2, 2)}, {"flag", random_.integer(0, 1)}};
  }

  Random& random_;
  std::string dtype_, rows_, columns_;
  bool has_bias_, has_positions_, has_params_;
  std::vector<Array> inputs_, outputs_, allocations_, known_;
  std::vector<std::unique_ptr<Node>> body_;
  int loops_ = 0, blocks_ = 0;
};

// A product of matrices as a unit computes it, in loops of the unit's shape or nearly so.
class ProductMaker {
 public:
  explicit ProductMaker(Random& random) : random_(random) {}

  RandomProgram run() {
    static const std::vector<Unit> kUnits = {
        {"f16", "f32", {16, 8, 16}}, {"bf16", "f32", {16, 8, 16}}, {"i8", "i32", {1, 1, 4}}, {"i8", "i32", {1, 1, 4}}};
    const Unit unit = random_.pick(kUnits);
    const bool is_dot = unit.tiles[0] == 1;
    std::vector<std::string> outer, inner;
    for (size_t axis = 0; axis < 3; ++axis) {
      const std::string name(1, "ijk"[axis]), tile = std::to_string(unit.tiles[axis]);
      const int64_t count = random_.integer(1, is_dot ? 3 : axis == 0 ? 2 : 1);
      extents_[axis] = std::to_string(count * unit.tiles[axis]);
      bindings_[axis] = name;
      if (is_dot && axis != 2) {
        extents_[axis] = axis == 0 && random_.chance(50) ? "N" : extents_[axis];
        outer.push_back("for " + name + " in " + extents_[axis]);
      } else if (count == 1 && random_.chance(60)) {
        inner.push_back("for " + name + " in " + tile);
      } else {
        outer.push_back("for " + name + "_0 in " + std::to_string(count));
        inner.push_back("for " + name + "_1 in " + tile);
        bindings_[axis] = name + "_0 * " + tile + " + " + name + "_1";
      }
    }
    shuffle(outer);
    shuffle(inner);
    outer.insert(outer.end(), inner.begin(), inner.end());
    if (random_.chance(10)) shuffle(outer);
    return {text(unit, outer), {{{"N", 4}}, {{"N", random_.integer(0, 3)}}}, {}};
  }

 private:
  struct Unit {
    std::string factors, sums;
    std::vector<int64_t> tiles;
  };

  void shuffle(std::vector<std::string>& list) {
    for (size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(i) - 1))]);
  }

  struct Matrix {
    std::string shape, place;
  };
  // Over two axes, now and then transposed; with `is_read` its subscripts may be others than the axes.
  Matrix matrix(size_t row, size_t column, bool is_read) {
    if (random_.chance(25)) std::swap(row, column);
    Matrix out;
    for (const size_t axis : {row, column}) {
      const std::string v = std::string("v") + "ijk"[axis];
      const bool is_odd = is_read && random_.chance(4);
      static const std::vector<std::string> kOdd = {" // 2", " * 0", " % 2"};
      out.shape += (out.shape.empty() ? "" : ", ") + extents_[axis];
      out.place += (out.place.empty() ? "" : ", ") + v + (is_odd ? random_.pick(kOdd) : "");
    }
    return out;
  }

  std::string text(const Unit& unit, const std::vector<std::string>& loops) {
    const Matrix a = matrix(0, 2, true), b = matrix(2, 1, true), c = matrix(0, 1, false);
    const bool has_reader = random_.chance(50), has_init = random_.chance(30);
    const std::string sum = has_reader ? "P" : "C", zero = unit.sums + "(0)";
    const auto factor = [&](const char* name, const Matrix& of) { return unit.sums + "(" + name + "[" + of.place + "])"; };
    std::string product = factor("A", a) + " * " + factor("B", b);
    if (random_.chance(20)) product = factor("B", b) + " * " + factor("A", a);
    if (random_.chance(5)) product = factor("A", a) + " * " + factor("A", a);
    std::string out = "program 1 random(A: " + unit.factors + "[" + a.shape + "], B: " + unit.factors + "[" + b.shape +
                      "], C: out " + unit.sums + "[" + c.shape + "]):\n";
    if (has_reader) out += "  alloc P: " + unit.sums + "[" + c.shape + "]\n";
    const std::string each = "  for l0 in " + extents_[0] + ":\n    for l1 in " + extents_[1] + ":\n      block ";
    const std::string axes = "(vi: S(" + extents_[0] + ") = l0, vj: S(" + extents_[1] + ") = l1):\n        ";
    const std::string target = sum + "[" + c.place + "]";
    if (!has_init) out += each + sum + "_init" + axes + target + " = " + zero + "\n";
    std::string indent = "  ";
    for (const std::string& loop : loops) out += indent + loop + ":\n", indent += "  ";
    out += indent + "block " + sum + "(";
    for (size_t axis = 0; axis < 3; ++axis)
      out += std::string(axis == 0 ? "v" : ", v") + "ijk"[axis] + (axis == 2 ? ": R(" : ": S(") + extents_[axis] +
             ") = " + bindings_[axis];
    out += "):\n";
    if (has_init) out += indent + "  init:\n" + indent + "    " + target + " = " + zero + "\n";
    out += indent + "  " + target + " = " + target + " + " + product + "\n";
    std::string last = each;
    for (size_t at = last.find("l0"); at != std::string::npos; at = last.find("l0")) last.replace(at, 2, "m0");
    for (size_t at = last.find("l1"); at != std::string::npos; at = last.find("l1")) last.replace(at, 2, "m1");
    if (has_reader)
      out += last + "C(vi: S(" + extents_[0] + ") = m0, vj: S(" + extents_[1] + ") = m1):\n        C[" + c.place +
             "] = maximum(P[" + c.place + "], " + zero + ")\n";
    return out;
  }

  Random& random_;
  std::array<std::string, 3> extents_, bindings_;  // of the rows, the columns and what is added up
};

}  // namespace

uint64_t Random::bits() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

RandomProgram random_program(Random& random) { return random.chance(5) ? ProductMaker(random).run() : Maker(random).run(); }

}  // namespace narrows::search
