// SPDX-License-Identifier: Apache-2.0
// bench.h -- timing of a call, for the bench cases of the suite: `narrows bench`. Nothing is measured that was not
// checked.
#pragma once

#include <functional>
#include <string>

#include "harness.h"

namespace narrows::test {

// One case on one kernel variant.
struct Measurement {
  std::string name, kernel;  // kernel "": the backend's choice
  double seconds = 0;        // of one call, median over batches
  double spread = 0;         // (third quartile - first quartile) / median
  int64_t runs = 0;          // calls in all
  bool graphs = false;       // of CUDA's were replayed; else it was launch by launch
  double bytes = 0;          // read and written by one call, each element once; 0: not told
  double operations = 0;     // floating-point, of one call; 0: bound by its bytes
  double ceiling = 0;        // what ceilings.h reaches per second, of operations if there are any, else of bytes; 0: not told
};

// Where measurements go; the reporter sets it. Without one they are printed.
void set_bench_sink(std::function<void(const Measurement&)> sink);

// Runs the call, which has succeeded before, for about half a second by one plan, and reports it. On a CUDA device a graph of it is
// replayed, so that what the host takes for a launch is in no figure; Measurement::graphs says whether it was.
void measure(const std::string& name, const Call& call, double bytes, double operations);

}  // namespace narrows::test
