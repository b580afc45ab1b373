// SPDX-License-Identifier: Apache-2.0
// harness.h -- what every conformance test stands on: a runtime, test tensors, calls through the public C API, comparisons.
// It governs tests/conformance. It uses narrows.h alone, and device memory only by nw_alloc and nw_copy, so the same tests run on
// every backend.
//
// How to write a test:
//
//   for (const char* kernel : kernels("conv1d")) {                 // nullptr (the backend chooses), then every listed variant
//     Rng rng("conv1d strided");                                   // seeded by the tag and --seed
//     Tensor x(DType::f16, {2, 3, 50}, Layout::transposed());      // canaries around it, a pattern in its gaps
//     x.fill_uniform(rng, -1, 1);                                  // rounds to f16; x.values() are the rounded numbers
//     Tensor y(DType::f16, {2, 4, 48}, Layout::strided(2));
//     Result r = run("conv1d", {&x, &w, nullptr}, {&y}, params, kernel);   // nullptr: an absent tensor
//     if (r.was_declined()) continue;                       // counted: a variant that never ran fails the suite
//     expect_close(r, y, reference, {.rtol = 1e-3, .atol = 1e-3}); // reference: vector<double> or vector<Exact>
//   }
//
// run() poisons the outputs, and reports by FAIL_CHECK: inputs that changed, bytes written before, after or between the
// elements of an output, outputs touched by a refused call, an nw_infer or nw_plan_get that disagrees with nw_run, descriptors
// that were written, and another floating-point mode than before.
// expect_refused(r, NW_INVALID, argument, {"words", "of the message"}) is its counterpart for bad input.
//
// What is judged, on which device: session.h.
#pragma once

#include <narrows/narrows.h>

#include <catch2/catch_tostring.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dtype.h"
#include "session.h"

namespace narrows::test {

// ---- seeded numbers (SplitMix64), the same on every platform ----

class Rng {
 public:
  explicit Rng(std::string_view tag, uint64_t extra = 0);
  uint64_t bits();
  double uniform(double low, double high);
  int64_t integer(int64_t low, int64_t high);  // both included

 private:
  uint64_t state_;
};

// ---- test tensors ----

// How the elements lie in memory. Start from one of the functions and chain with_*().
struct Layout {
  std::string name = "contiguous";
  std::vector<int> order = {};      // axes from the outermost in memory to the innermost; empty: 0, 1, 2, ...
  std::vector<int64_t> steps = {};  // per axis, 1 where missing: elements between neighbours; < 0: reversed; 0: one element for all
  uint64_t byte_offset = 0;         // DLTensor.byte_offset
  uint64_t misalign = 0;            // bytes by which the address is off a multiple of 256
  bool null_strides = false;        // contiguous, given as strides == NULL
  int64_t pitch = 0;  // elements from a row (the innermost axis in memory) to the next, where that is more than a row has

  static Layout contiguous() { return {}; }
  static Layout null_stride() { return Layout{.name = "null strides", .null_strides = true}; }
  static Layout transposed();           // column major
  static Layout strided(int64_t step);  // gaps along every axis
  static Layout reversed();             // every stride negative
  static Layout with_steps(std::vector<int64_t> steps);
  static Layout broadcast(std::vector<bool> axes);  // stride 0 along those axes: inputs only
  // Rows that are a part of longer ones: as long as the tensor has rows where that is more, else longer by one element.
  static Layout padded();
  static Layout padded(int64_t pitch);
  Layout with_offset(uint64_t bytes) const;
  Layout with_misalignment(uint64_t bytes) const;
};
// One of each of the above, for loops over layouts. Outputs take no broadcast one.
std::vector<Layout> all_layouts(int ndim, DType dtype);

class Tensor {
 public:
  Tensor(DType dtype, std::vector<int64_t> shape, Layout layout = {});
  // Another view of the memory of `base`: strides in elements, `first` the byte offset of its first element from base's.
  Tensor(const Tensor& base, DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t first);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const Layout& layout() const { return layout_; }
  int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  std::string describe() const;  // "f16(2,3,50) transposed"

  // Writing: C order of the shape, rounded to nearest even; an integer or bool dtype takes representable values only.
  void set(const std::vector<double>& values);
  void set(const std::vector<Exact>& values);
  void fill_uniform(Rng& rng, double low, double high);  // integers: both ends included; bool: any_bool()
  void fill_bits(Rng& rng);                              // any bit pattern, NaN and infinities included; bool: any_bool()
  void poison();                                         // elements become bytes 0xC0 .. 0xCF: finite, unlike any result
  void fill_nan();                                       // every byte of an element 0xFF: NaN, and what is multiplied by 0 stays so
  void fill_gaps_nan();                                  // every byte that lies between elements

  // Reading: what the device holds now.
  std::vector<double> values() const;
  std::vector<Exact> exact() const;                  // every dtype's values without loss
  std::vector<unsigned char> element_bytes() const;  // for bitwise comparisons
  bool is_stale(int64_t index) const;                // the element still is the poison
  int64_t count_stale() const;                       // how many elements are

  // Empty when nothing but elements (or nothing at all) changed since the last set() or poison(); else what did.
  std::string damage_outside_elements() const;
  std::string damage() const;
  bool shares_memory(const Tensor& other) const { return storage_ == other.storage_; }
  void accept() const;  // what the device holds now is the state that damage() compares with; run() does so for inputs

  DLTensor* dl() { return &dl_; }  // bad-input tests bend it
  const DLTensor* dl() const { return &dl_; }

 private:
  struct Storage;
  void bind();
  std::vector<unsigned char> download() const;
  bool is_stale(const std::vector<unsigned char>& host, int64_t index) const;
  void upload();

  DType dtype_;
  std::vector<int64_t> shape_, strides_;
  Layout layout_;
  std::vector<int64_t> offsets_;  // byte offset in the storage of every element, in C order
  std::shared_ptr<Storage> storage_;
  uint64_t first_ = 0;  // byte offset of element 0 in the storage
  DLTensor dl_{};

 public:
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  Tensor(Tensor&& other) noexcept;
};

// ---- calls ----

// A params struct, or any bytes.
struct Blob {
  Blob() = default;
  template <class P, class = std::enable_if_t<std::is_trivially_copyable_v<P> && !std::is_pointer_v<P>>>
  Blob(const P& params)
      : bytes(reinterpret_cast<const unsigned char*>(&params), reinterpret_cast<const unsigned char*>(&params) + sizeof(P)) {}
  explicit Blob(std::vector<unsigned char> raw) : bytes(std::move(raw)) {}
  std::vector<unsigned char> bytes;
};

struct Result {
  int32_t status = NW_OK;
  nw_error error{};
  std::string what;      // op, tensors, layouts, kernel, seed: the head of every failure message
  bool forced = false;   // a kernel was named
  uint32_t traits = 0;   // of its plan, NW_PLAN_*
  bool offered = true;   // the plugin lists the op, or nobody knows it
  std::string declined;  // why the plugin may decline the call: it lists no such op, or the manifest excludes it; "": it may not
  bool ok() const { return status == NW_OK; }
  // The same call has to give the same bits again.
  bool promises_same_bits() const { return ok() && (traits & NW_PLAN_NONDETERMINISTIC) == 0; }
  // The plugin did not run it, and may: a variant that is not made for this call, or Result::declined.
  bool was_declined() const { return (forced && status == NW_UNSUPPORTED) || !declined.empty(); }
};

// A call before it is made, so that a test can bend it.
class Call {
 public:
  Call(const char* op, std::vector<const Tensor*> inputs, std::vector<Tensor*> outputs, Blob params = {});
  nw_call raw{};
  std::string note;         // joins the failure message: the function's name and the like
  bool nan_before = false;  // the outputs hold NaN before the call, in the place of the poison
  Result run();             // see the head of this file for what it checks

 private:
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
  std::vector<const DLTensor*> input_pointers_, output_pointers_;
  Blob params_;
  std::string describe() const;
  std::vector<unsigned char> lent() const;
  void check_success(const Result& result) const;
  void check_refusal(const Result& result) const;
  void count(Result& result) const;
};

// Calls by Call::run() since the last take_tally().
struct Tally {
  int64_t accepted = 0, refused = 0;
  std::set<std::string> declined;  // Result::declined of each
  std::set<std::string> variants;  // forced ones that ran, "op/kernel"
};
Tally take_tally();

Result run(const char* op, std::vector<const Tensor*> inputs, std::vector<Tensor*> outputs, Blob params = {},
           const char* kernel = nullptr, uint32_t flags = 0, std::string note = {});

// ---- comparison ----

// Per element: |got - ref| <= atol + rtol*|ref| + ulps*ulp(ref). Over the tensor: ||got - ref|| <= l2*||ref||.
// NaN passes only where the reference is NaN, an infinity only where the reference rounds to it within the bound.
struct Tolerance {
  double rtol = 0;
  double atol = 0;
  double ulps = 0;         // units in the last place of the tensor's dtype
  double l2 = -1;          // < 0: rtol + ulps*epsilon, so that atol (for cancellation in single elements) does not excuse all
  bool zero_sign = false;  // -0 is not +0
  bool nan_sign = false;   // -NaN is not NaN
};
inline constexpr Tolerance kExact{.zero_sign = true};

// Empty when they agree; else where, what, and how far off.
std::string difference(const Tensor& got, const std::vector<double>& reference, const Tolerance& tolerance);
std::string difference(const Tensor& got, const std::vector<Exact>& reference, const Tolerance& tolerance);

// Skips the rest of the test unless the plugin lists the op.
void expect_offered(const char* op);
// These skip the rest of the test where the plugin may decline the call (Result::declined).
// The call succeeded and the output agrees; FAIL_CHECK with everything needed to reproduce it otherwise.
void expect_close(const Result& result, const Tensor& got, const std::vector<double>& reference, const Tolerance& tolerance);
void expect_close(const Result& result, const Tensor& got, const std::vector<Exact>& reference, const Tolerance& tolerance);
// The call was refused so, its message holding every word. That nothing was written run() has seen to.
void expect_refused(const Result& result, int32_t status, int32_t argument, std::initializer_list<const char*> words);
void expect_ok(const Result& result);

}  // namespace narrows::test

// How CHECK shows bytes: as numbers. Catch2 would show them as characters, and its reporters do not survive all of these.
template <>
struct Catch::StringMaker<std::vector<unsigned char>> {
  static std::string convert(const std::vector<unsigned char>& bytes);
};
