// SPDX-License-Identifier: Apache-2.0
// samples.h -- calls of every op in plain memory, with the bytes that they must give. No test framework and no runtime of their
// own: what is attacked here (allocation, loading, threads) decides when a call is made. It governs tests/attack.
#pragma once

#include <narrows/narrows.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace narrows::attack {

// A tensor's dtype and shape; an absent one has code 255.
struct Spec {
  DLDataType dtype;
  std::vector<int64_t> shape;
};
Spec absent();

// One call. Inputs are filled once; outputs are poisoned before each use. Not copied or moved: the call points into it.
class Sample {
 public:
  Sample(const char* op, std::string note, const std::vector<Spec>& inputs, const std::vector<Spec>& outputs, const void* params,
         size_t params_size);
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;

  const std::string& what() const { return what_; }  // "conv1d f32 1,1,20011"
  nw_call call{};

  void poison();
  bool poisoned() const;      // no output was written, no input changed
  void expect_these_bytes();  // what the outputs hold is right
  bool right() const;         // the outputs hold it again, no input changed
  // poison(), nw_run, right(): the status, or NW_FAILED where the bytes are wrong.
  int32_t run(nw_runtime* rt, nw_error* error = nullptr);

 private:
  struct Tensor {
    DLTensor dl{};
    std::vector<int64_t> shape;
    std::unique_ptr<unsigned char, void (*)(void*)> memory;
    size_t size;  // bytes
    std::vector<unsigned char> expected;
  };
  Tensor* add(const Spec& spec);
  bool inputs_intact() const;

  std::string what_;
  std::vector<std::unique_ptr<Tensor>> inputs_, outputs_;
  std::vector<const DLTensor*> input_pointers_, output_pointers_;
  std::vector<unsigned char> params_;
  uint64_t seed_;
};

using Samples = std::vector<std::unique_ptr<Sample>>;

// Both directions of the three ops in four floating dtypes, elementwise in integers too. `large`: big enough for threads and
// workspaces, else small.
Samples builtin_samples(bool large);
// example.mod_add/1 of examples/plugin_minimal.
std::unique_ptr<Sample> plugin_sample();

// The variants that the plugin "cpu" lists for the op, NULL first: the backend chooses.
std::vector<const char*> kernels(nw_runtime* rt, const char* op);

// A runtime that finds what lies beside libnarrows alone, or NULL and the reason on stderr.
nw_runtime* create(uint32_t num_threads, const char* plugin_path = "");

}  // namespace narrows::attack
