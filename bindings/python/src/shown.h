// SPDX-License-Identifier: Apache-2.0
// shown.h -- a call as torch's profiler shows it: the op by the name that torch's dispatcher has for it, and in it, if params of
// the op name a function, an event with that: "narrows::elementwise", "narrows::elementwise(mul)".
#ifndef NARROWS_PYTHON_SHOWN_H
#define NARROWS_PYTHON_SHOWN_H

#include "bindings/torch/record.h"
#include "call.h"

namespace narrows::python {

class Shown {
 public:
  explicit Shown(const Call& call) {
    if ((call.routes_seen >> static_cast<unsigned>(Route::torch) & 1) != 0 && torch::is_recorded()) begin(call);
  }

 private:
  void begin(const Call& call);
  torch::Record op_, function_;
};

}  // namespace narrows::python
#endif
