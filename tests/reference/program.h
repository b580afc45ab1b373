// SPDX-License-Identifier: Apache-2.0
// program.h -- reference of tensor programs: runs a program of core/program/ir.h as plain loops over plain arrays, in the order of
// its loops, in long double for floating dtypes and in 128-bit integers for the others. A pipelined loop runs with as many
// iterations under way as it has stages. It takes the program as data and shares no code with core. It also says what no right
// program does: see Evaluation::faults.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/program/ir.h"
#include "reference.h"
#include "support/dtype.h"

namespace narrows::reference {

using test::DType;
using test::Exact;

DType element_dtype(program::DType dtype);  // `index` counts as i64

struct Array {
  DType dtype;
  Shape shape;
  std::vector<Exact> values;    // C order; an element that nobody wrote is NaN, or 0 of an integer
  std::vector<int64_t> writes;  // how often each element was written; an input's elements begin as written, with 0 writes
  std::vector<bool> is_written;
};

struct Arguments {
  std::map<std::string, int64_t> sizes;               // of every symbol
  std::map<std::string, Exact> params = {};           // those that are missing have their default
  std::map<std::string, std::vector<Exact>> tensors;  // of every input and in-out tensor, C order; a missing optional one is absent
};

// How often a block ran at each point of its axes.
struct BlockRuns {
  std::vector<std::string> axes;
  std::vector<program::Axis::Kind> kinds;
  std::vector<int64_t> extents;
  bool writes_tensors = false;  // and not allocations alone
  std::map<std::vector<int64_t>, int64_t> points;
};

struct Evaluation {
  std::map<std::string, Array> arrays;  // tensors and allocations
  std::map<std::string, BlockRuns> blocks;
  // A sentence for each fault, the first of each kind at each place: an access out of bounds, a read of what nobody wrote, an axis
  // out of its extent, an element that a block writes at two spatial points, an output's element that nobody writes, and an element
  // that two iterations of a parallel, vectorised or bound loop share although one of them writes it, or that is read in `shared`
  // or `local` memory of another thread block or thread than the one that wrote it; and a tensorized loop that is another product.
  std::vector<std::string> faults;
};

enum class Rounding {
  none,  // floating values keep all bits of long double, but for casts: what an exact computation gives
  each,  // every function and store rounds to its dtype, as a backend does that computes in the order of the loops
};
Evaluation evaluate(const program::Program& program, const Arguments& arguments, Rounding rounding = Rounding::none);

// Inputs of small integers of either sign (unsigned: not negative; bool: 0 or 1), so that sums and products of a few are exact in
// every dtype and in every order. Optional tensors are present.
Arguments small_integers(const program::Program& program, std::map<std::string, int64_t> sizes, uint64_t seed);

// What differs between the runs of a program and of a schedule of it, on the same arguments: an output's values, or the points at
// which a block ran that both have. Empty: nothing. `tolerance` is relative to the larger magnitude, and absolute below 1.
std::vector<std::string> differences(const Evaluation& unscheduled, const Evaluation& scheduled, const program::Program& program,
                                     Exact tolerance = 0);

}  // namespace narrows::reference
