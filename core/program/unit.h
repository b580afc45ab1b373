// SPDX-License-Identifier: Apache-2.0
// unit.h -- a block as verification sees it: which loops feed which axes, which elements it reads and writes, when its init runs.
#pragma once

#include <string>
#include <vector>

#include "core/program/affine.h"
#include "core/program/ir.h"
#include "core/program/tree.h"

namespace narrows::program {

struct Guard {
  ExprPtr condition;
  bool holds;
};

struct Access {
  const Buffer* buffer;
  const std::vector<ExprPtr>* indices;
  bool is_write;
  bool is_target;             // the element that a store of the body writes: its init and its updates are one matter
  std::vector<Guard> guards;  // a load under where(…) is skipped unless they hold
};

// How bindings take a loop apart: after fuse they divide it. Its value is then a sum of digits, or a pair for a product of sizes.
struct LoopForm {
  std::vector<int64_t> strides;  // of the digits but the lowest, each a multiple of the one before; of a constant extent
  bool is_product = false;       // the extent is high * low, `low` no constant, and bindings use it only as // low and % low
};

struct Unit {
  Path path;
  std::vector<Access> body, init;
  bool reads_its_writes = false;  // beyond a reduction with its init: then a repetition changes the values
  bool writes_tensor = false;     // an output or an in-out one
  // The loops around the outermost one that feeds a reduction or carried axis. With the statement below them they are where the
  // init runs: before that loop, as if decompose_reduction had put it there. Without such a loop: all.
  int outer = 0;
  std::vector<bool> feeds_spatial, feeds_other;  // for each loop
  std::vector<LoopForm> forms;                   // likewise
  const Block& block() const { return *path.block; }
  const std::string& name() const { return path.block->name; }
};

// Throws Failure: a body that reads loops, an unknown buffer.
std::vector<Unit> units(const Program& program);

// What runs of a unit: its updates, or its init as an interval that ends with the first update.
struct Part {
  const Unit* unit;
  bool is_init;

  const std::vector<Access>& accesses() const { return is_init ? unit->init : unit->body; }
  int depth() const { return is_init ? unit->outer : static_cast<int>(unit->path.loops.size()); }  // the loops that order it
};
std::vector<Part> parts(const std::vector<Unit>& units);

// One execution of a part: the values of its loops and axes. The first `shared` loops take the values that `with` has.
struct Run {
  std::vector<Linear> loops;
  std::vector<std::vector<Linear>> keys;  // of each loop: what orders it, the first key above the next; mostly the loop itself
  Values values;

  std::vector<Linear> all_keys(int depth) const;  // of the outermost loops
};

// One loop: its value, its keys, and the digits that it is a sum of, each with its end.
struct PlacedLoop {
  Linear value;
  std::vector<Linear> keys;
  std::vector<std::pair<Linear, Linear>> digits;
};
// `is_bounded` false: sizes are asked about, so that a loop is not said to have an iteration.
PlacedLoop place_loop(Affine& affine, const For& loop, const LoopForm& form, const std::string& name, const Values& values,
                      bool is_bounded);
size_t key_count(const Unit& unit, int depth);  // of the outermost loops
Run run(Affine& affine, const Part& part, const std::string& prefix, const Run* with = nullptr, int shared = 0);

// The element of an access, under its guards.
std::vector<Linear> element(Affine& affine, const Access& access, const Run& run);

// Axes anywhere within their domains, without any loop.
Run free_run(Affine& affine, const Unit& unit, bool only_spatial = false);

}  // namespace narrows::program
