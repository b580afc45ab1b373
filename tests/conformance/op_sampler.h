// SPDX-License-Identifier: Apache-2.0
// op_sampler.h -- calls that an op accepts, found from its declaration alone: arity, names, fields, shape rule, and what nw_infer
// and nw_plan_get answer. It governs the tests that know nothing of an op but its declaration: own_*.cpp, plugin_*.cpp.
#pragma once

#include <string>
#include <vector>

#include "support/harness.h"

namespace narrows::test {

// One tensor of a call; ndim < 0 of an nw_spec is `present` = false.
struct TensorSpec {
  bool present = false;
  DType dtype = DType::f32;
  std::vector<int64_t> shape = {};
  int64_t size() const;
};

// A call without memory.
struct Sample {
  const nw_op* op = nullptr;  // by nw_find_op, so complete
  std::vector<TensorSpec> inputs, outputs;
  std::vector<unsigned char> params;
  int64_t bytes() const;  // of all tensors
  std::string describe() const;
};

// The ops that the tested backend lists and the host knows, own and built-in, by nw_find_op.
std::vector<const nw_op*> offered_ops();
bool is_own(const nw_op& op);  // a name with a '.'

// The outputs by nw_infer, all wanted. False where nw_infer refuses, or where a dtype is none that the tests can hold.
bool infer_outputs(Sample& sample, nw_error* error = nullptr);
// Would the backend run it? By nw_plan_get without memory.
bool is_accepted(const Sample& sample, nw_error* error = nullptr);

// Accepted calls of small tensors with elements, of as many dtypes, alternatives of the rule, presences of inputs and values of
// params as were found; and those with an empty tensor. The same for the whole process. `refusal`: why the last try failed.
struct Samples {
  std::vector<Sample> filled, empty;
  std::string refusal;
};
const Samples& samples_of(const nw_op& op);

// For measurements: of each dtype the accepted calls with the most bytes that were found of at most 64 KiB, 1 MiB and 16 MiB, in
// this order, with the params' initial values.
std::vector<Sample> large_samples_of(const nw_op& op);

// The call that differentiates `forward`, with every gradient wanted that there can be: by the convention of nw_op.backward.
// Inputs that backward does not read (nw_op.saved) are absent, if it lets them be. Its outputs are inferred: false where that
// fails.
bool gets_input(const nw_op& forward, const nw_op& backward, uint32_t i);  // forward input i: read, or not to be left out
bool backward_of(const Sample& forward, Sample* backward, nw_error* error = nullptr);

// A number that inputs are filled with: floats in +-[0.2, 0.8], away from kinks at 0 and 1, integers 0 to 3, bools any_bool().
double sample_value(DType dtype, Rng& rng, bool positive = false);

// The dtype of DLPack's, if the tests have it.
bool find_dtype(DLDataType from, DType* to);

}  // namespace narrows::test
