// SPDX-License-Identifier: Apache-2.0
// plugin_table.h -- the plugin under test spoken to directly, as the host would: its table, instances on hosts of the tests' own,
// signatures, and calls by its slots. It governs plugin_*.cpp, which are about the plugin's own answers, before core can mend them.
// What is handed to a slot is what a host may hand to it: core's checks have been passed (by op_sampler.h) and nothing else is
// bent.
#pragma once

#include <narrows/plugin.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "op_sampler.h"
#include "support/harness.h"

namespace narrows::test {

// The file of the tested backend: opened as the host opens it, and never closed.
nw_plugin_query_fn tested_query();
const nw_plugin& tested_table();  // as it is; slots after `launch` only through struct_size

// A struct of some size alone on the heap, with bytes behind it that nobody may touch.
template <class Struct>
class Sized {
 public:
  explicit Sized(size_t size, unsigned char fill = 0) : size_(size), bytes_(size + kBehind, kCanary) {
    std::fill(bytes_.begin(), bytes_.end() - kBehind, fill);
    get()->struct_size = static_cast<uint32_t>(size);
  }
  // The known part of `from`; what is longer holds `fill`.
  Sized(const Struct& from, size_t size, unsigned char fill) : Sized(size, fill) {
    const auto* first = reinterpret_cast<const unsigned char*>(&from);
    std::copy_n(first, std::min(size, sizeof from), bytes_.begin());
    get()->struct_size = static_cast<uint32_t>(size);
  }
  Struct* get() { return reinterpret_cast<Struct*>(bytes_.data()); }
  const unsigned char* bytes() const { return bytes_.data(); }
  bool intact_behind() const {
    return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(size_), bytes_.end(),
                       [](unsigned char byte) { return byte == kCanary; });
  }

 private:
  static constexpr size_t kBehind = 1024;  // more than any of these structs: one that ignores the size is seen, and breaks nothing
  static constexpr unsigned char kCanary = 0xC5;
  size_t size_;
  std::vector<unsigned char> bytes_;
};

// An nw_error in which nothing may be written on success.
struct WatchedError {
  WatchedError();
  bool untouched() const;
  std::string message() const;  // what was written of it: "" where it is untouched
  nw_error error;
};
// "" where a slot refused as it should: that status (0: any of 1 to 5), error.status the same, a message that ends.
std::string refusal_fault(int32_t got, const nw_error& error, int32_t expected);

// How the tests' parallel_for cuts its range.
enum class Cut { whole, pieces, backwards, threads };

// An instance of the plugin on a host of its own. `tail`: bytes of garbage behind the nw_host that the plugin knows. What the
// plugin runs by parallel_for has to leave its thread's floating-point mode as it was: DirectRun fails where it does not.
class Instance {
 public:
  explicit Instance(Cut cut = Cut::whole, size_t tail = 0);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  void* self() const { return self_; }

 private:
  Cut cut_;
  std::unique_ptr<Sized<nw_host>> host_;
  void* self_ = nullptr;
};

// How every tensor of a signature looks.
struct Look {
  uint16_t align_log2 = 8;
  int64_t step = 1;  // between neighbours, of every axis; < 0: reversed
};

// The signature of a sample in memory of its own, so that it can be destroyed after plan() has read it.
class Signature {
 public:
  explicit Signature(const Sample& sample, Look look = {}, size_t tail = 0, bool with_outputs = true);
  nw_sig* get() { return sig_->get(); }
  // The params as the host hands them over: without the zeros at the end.
  void set_params(std::vector<unsigned char> blob);

 private:
  std::string op_;
  std::vector<unsigned char> params_;
  std::vector<std::vector<int64_t>> shapes_, strides_;
  std::vector<nw_tensor_sig> tensors_;
  std::unique_ptr<Sized<nw_sig>> sig_;
};

// A sample on memory of one instance, by alloc, copy, plan and launch. Values by the seed; all outputs as bytes.
class DirectRun {
 public:
  DirectRun(const Instance& instance, const Sample& sample);
  ~DirectRun();
  DirectRun(const DirectRun&) = delete;
  DirectRun& operator=(const DirectRun&) = delete;
  // Poisons the outputs, launches, synchronises and reads them. `tail`: zero bytes behind the nw_call that the plugin knows.
  std::vector<unsigned char> launch(const void* plan, const nw_plan_info& info, size_t tail = 0);
  // The same where `launch` does the launch of that call.
  std::vector<unsigned char> launch(const nw_plan_info& info, const std::function<void(const nw_call&)>& launch);
  // By a plan of its own, whose signature is gone before it is launched.
  std::vector<unsigned char> run();

 private:
  struct Memory;
  void add(const TensorSpec& spec, Rng& rng, std::vector<const DLTensor*>* to);

  const Instance& instance_;
  const Sample& sample_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<const DLTensor*> inputs_, outputs_;
};

// For CHECK, which would print both.
inline bool same_bytes(const std::vector<unsigned char>& a, const std::vector<unsigned char>& b) { return a == b; }

// Plans or fails the test; freed by the caller.
void* plan_or_fail(const Instance& instance, Signature& signature, nw_plan_info* info);

// Accepted samples of every op that the plugin offers, at most `each` of an op; fails the test where there is none at all.
std::vector<Sample> plugin_samples(size_t each);

}  // namespace narrows::test
