// SPDX-License-Identifier: Apache-2.0
// guard_pages.cpp -- loads and stores past the ends of tensors, for every op: each tensor ends, or begins, at a page that may not
// be touched. A vector that is loaded whole and then masked ends the process here, as it would at the end of a mapped file.
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "call_examples.h"
#include "sample_tensors.h"

using namespace narrows::test;

namespace {

enum class Edge { first, last };

// A copy of a tensor whose first byte is the first, or whose last byte is the last, of memory that may be touched.
class Guarded {
 public:
  Guarded(const Tensor& t, Edge edge, int64_t step) : dtype_(t.dtype()), shape_(t.shape()) {
    const auto item = static_cast<uint64_t>(item_size(dtype_));
    uint64_t span = t.size() == 0 ? 0 : 1;
    int64_t stride = step;
    strides_.resize(shape_.size());
    for (size_t axis = shape_.size(); axis-- > 0;) {
      strides_[axis] = stride;
      if (t.size() != 0) span += static_cast<uint64_t>((shape_[axis] - 1) * stride);
      stride *= shape_[axis];
    }
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t bytes = span * item, inside = (bytes + page - 1) / page * page;
    size_ = inside + 2 * page;
    map_ = static_cast<unsigned char*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(map_ != MAP_FAILED);
    if (inside != 0) REQUIRE(mprotect(map_ + page, inside, PROT_READ | PROT_WRITE) == 0);
    std::memset(map_ + page, 0xC5, inside);
    first_ = map_ + page + (edge == Edge::first ? 0 : inside - bytes);
    const auto elements = t.element_bytes();
    for (int64_t i = 0; i < t.size(); ++i) std::memcpy(at(i), elements.data() + i * static_cast<int64_t>(item), item);
    dl = {first_, device(), static_cast<int32_t>(shape_.size()), dl_dtype(dtype_), shape_.data(), strides_.data(), 0};
  }
  ~Guarded() { munmap(map_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void poison(int64_t size) {
    for (int64_t i = 0; i < size; ++i) std::memset(at(i), 0xC5, static_cast<size_t>(item_size(dtype_)));
  }
  std::vector<Exact> values(int64_t size) const {
    std::vector<Exact> out;
    for (int64_t i = 0; i < size; ++i) out.push_back(load(dtype_, at(i)));
    return out;
  }
  DLTensor dl;

 private:
  unsigned char* at(int64_t index) const {  // in C order
    int64_t offset = 0;
    for (size_t axis = shape_.size(); axis-- > 0; index /= shape_[axis]) offset += index % shape_[axis] * strides_[axis];
    return first_ + offset * item_size(dtype_);
  }

  DType dtype_;
  std::vector<int64_t> shape_, strides_;
  uint64_t size_ = 0;
  unsigned char *map_ = nullptr, *first_ = nullptr;
};

// The example once by the harness and once between guard pages: the same values, but for what another alignment may change. An op
// of the plugin's own may decline steps and alignments.
void check_guarded(const Example& e, bool own = false) {
  for (const char* kernel : kernels(e.op)) {
    const Result plain = e.run(kernel);
    if (plain.was_declined()) continue;
    expect_ok(plain);
    for (const Edge edge : {Edge::first, Edge::last})
      for (const int64_t step : {1, 2}) {
        INFO(e.what << " kernel " << (kernel == nullptr ? "-" : kernel) << (edge == Edge::first ? ", first" : ", last")
                    << " byte at a guard page, step " << step);
        std::vector<std::unique_ptr<Guarded>> tensors;
        std::vector<const DLTensor*> inputs, outputs;
        const auto guard = [&](const Tensor* t, std::vector<const DLTensor*>& to) {
          tensors.push_back(t == nullptr ? nullptr : std::make_unique<Guarded>(*t, edge, step));
          to.push_back(t == nullptr ? nullptr : &tensors.back()->dl);
        };
        for (const auto& t : e.inputs) guard(t.get(), inputs);
        for (const auto& t : e.outputs) {
          guard(t.get(), outputs);
          if (t != nullptr) tensors.back()->poison(t->size());
        }
        Call call(e.op, {}, {}, e.params);
        call.raw.kernel = kernel;
        call.raw.inputs = inputs.data(), call.raw.num_inputs = static_cast<uint32_t>(inputs.size());
        call.raw.outputs = outputs.data(), call.raw.num_outputs = static_cast<uint32_t>(outputs.size());
        nw_error error{};
        const int32_t status = nw_run(runtime(), &call.raw, &error);
        if ((kernel != nullptr || own) && status == NW_UNSUPPORTED) continue;  // 'stream' is for aligned outputs
        INFO(error.message);
        REQUIRE(status == NW_OK);
        for (size_t i = 0; i < e.outputs.size(); ++i) {
          if (e.outputs[i] == nullptr) continue;
          Tensor got(e.outputs[i]->dtype(), e.outputs[i]->shape());
          got.set(tensors[e.inputs.size() + i]->values(got.size()));
          const std::vector<Exact> expected = e.outputs[i]->exact();
          const Tolerance tolerance = own ? generic_tolerance(got.dtype(), expected) : other_order(got.dtype());
          CHECK(difference(got, expected, tolerance) == "");
        }
      }
  }
}

void check_all(const std::vector<Example>& examples) {
  for (const Example& e : examples) check_guarded(e);
}

#define SKIP_BUT_ON_THE_CPU() \
  if (device().device_type != kDLCPU) SKIP("pages that may not be touched are the CPU's")

}  // namespace

TEST_CASE("trap: loads before the bounds are checked, elementwise at the edge of a page", "[elementwise][trap][guard]") {
  SKIP_BUT_ON_THE_CPU();
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i16, DType::i32, DType::i64})
    for (const int64_t columns : {1, 2, 3, 5, 7, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128})
      for (const int64_t rows : {1, 3})
        if (rows == 1 || columns % 16 != 0) check_all(elementwise_examples(dtype, rows, columns));
  for (const DType dtype : kFloatDTypes)
    for (const int64_t columns : {1, 7, 16, 33, 65}) check_all(later_examples(dtype, 3, columns));
}

TEST_CASE("conv1d trap: loads and stores past the end, at the edge of a page", "[conv1d][trap][guard]") {
  SKIP_BUT_ON_THE_CPU();
  for (const DType dtype : kFloatDTypes)
    for (const int64_t length : {1, 4, 7, 17, 33})
      for (const int64_t taps : {1, 3, 4, 9}) {
        check_all(conv1d_examples(dtype, 1, 1, 1, length, taps, 1));
        check_all(conv1d_examples(dtype, 2, 3, 3, length, taps, 3));
        check_all(conv1d_examples(dtype, 2, 5, 7, length, taps, 1));
        check_all(conv1d_examples(dtype, 1, 17, 19, length, taps, 1));
      }
}

// Rows of whole vectors, of which the last one has no neighbour behind it: a stride of 2 takes every other element of such.
TEST_CASE("conv1d trap: loads past rows of whole vectors, in steps and without zeros, at the edge of a page",
          "[conv1d][trap][guard]") {
  SKIP_BUT_ON_THE_CPU();
  for (const DType dtype : kFloatDTypes)
    for (const int64_t length : {16, 32, 64, 128})
      for (const int64_t stride : {1, 2, 3})
        for (const int64_t taps : {1, 3, 8}) {
          check_all(strided_conv1d_examples(dtype, 1, 1, 1, length, taps, 1, stride));
          check_all(strided_conv1d_examples(dtype, 1, 2, 2, length, taps, 2, stride));
          if (taps == 3) check_all(strided_conv1d_examples(dtype, 1, 16, 16, length, taps, 1, stride));
        }
}

TEST_CASE("lltm trap: loads and stores past the end, at the edge of a page", "[lltm][trap][guard]") {
  SKIP_BUT_ON_THE_CPU();
  for (const DType dtype : kFloatDTypes)
    for (const int64_t batch : {1, 3, 8}) {
      for (const int64_t features : {1, 5, 17})
        for (const int64_t states : {1, 3, 8, 19}) check_all(lltm_examples(dtype, batch, features, states));
      for (const int64_t size : {16, 32}) check_all(lltm_examples(dtype, batch, size, size));
      for (const int64_t size : {3, 16}) check_all(lltm_sequence_examples(dtype, 2, batch, size, size));
    }
}

TEST_CASE("own: loads and stores past the end, at the edge of a page", "[own][guard]") {
  SKIP_BUT_ON_THE_CPU();
  bool some = false;
  for (const nw_op* op : offered_ops()) {
    if (!is_own(*op)) continue;
    some = true;
    for (const Sample& s : samples_of(*op).filled) {
      SampleTensors t(s);
      check_guarded({s.describe(), s.op->name, std::move(t.inputs), std::move(t.outputs), Blob(s.params)}, true);
    }
  }
  if (!some) SKIP("the backend brings no op of its own");
}

TEST_CASE("guard pages: a load past the end would be seen", "[harness][guard]") {
  SKIP_BUT_ON_THE_CPU();
  Tensor t(DType::f32, {5});
  t.set(std::vector<double>{1, 2, 3, 4, 5});
  for (const Edge edge : {Edge::first, Edge::last}) {
    const Guarded guarded(t, edge, 1);
    CHECK(guarded.values(5) == t.exact());
    const auto* bytes = static_cast<const unsigned char*>(guarded.dl.data);
    int pipe_ends[2];  // the kernel reads the byte, and says EFAULT where this process would be killed
    REQUIRE(pipe(pipe_ends) == 0);
    CHECK(write(pipe_ends[1], bytes, 20) == 20);
    CHECK(write(pipe_ends[1], edge == Edge::first ? bytes - 1 : bytes + 20, 1) == -1);
    CHECK(errno == EFAULT);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
  }
}
