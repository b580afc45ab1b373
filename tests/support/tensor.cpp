// SPDX-License-Identifier: Apache-2.0
// tensor.cpp -- test tensors: memory with canaries, layouts, poison. See harness.h.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "bool_bytes.h"
#include "harness.h"

namespace narrows::test {
namespace {

constexpr uint64_t kCanary = 256;  // bytes before and after, so that a vector that runs over is seen

constexpr unsigned char kNaNByte = 0xFF;
constexpr int64_t kAsManyAsRows = -1;  // Layout::pitch

// The byte that fills position i of an allocation: 0xC0 .. 0xCF, which is a finite number in every floating dtype, no bool that
// an op gives, and differs from its neighbours, so that a shifted copy is seen too.
unsigned char pattern(uint64_t i) { return static_cast<unsigned char>(0xC0 | ((i * 7 + (i >> 4) * 3 + (i >> 8) * 5) & 0x0F)); }

void require(int32_t status, const nw_error& error, const char* what) {
  if (status != NW_OK) throw std::runtime_error(std::string(what) + ": " + error.message);
}

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape, const Layout& layout, int64_t* span_before) {
  const int ndim = static_cast<int>(shape.size());
  std::vector<int> order = layout.order;
  if (order.empty()) {
    order.resize(ndim);
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<int64_t> strides(ndim, 0);
  int64_t running = 1;
  *span_before = 0;
  for (int k = ndim - 1; k >= 0; --k) {
    const int axis = order.at(k);
    const int64_t step = axis < static_cast<int>(layout.steps.size()) ? layout.steps[axis] : 1;
    strides[axis] = step * running;
    if (step < 0) *span_before += -strides[axis] * std::max<int64_t>(shape[axis] - 1, 0);
    if (step != 0) running *= std::abs(step) * std::max<int64_t>(shape[axis], 1);
    if (k != ndim - 1 || layout.pitch == 0 || k == 0) continue;
    const int64_t row = running, rows = std::max<int64_t>(shape[order.at(k - 1)], 1);
    running = std::max(row, layout.pitch != kAsManyAsRows ? layout.pitch : rows > row ? rows : row + 1);
  }
  return strides;
}

// Byte offsets of all elements from element 0, in C order.
std::vector<int64_t> element_offsets(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int64_t item) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  std::vector<int64_t> offsets;
  offsets.reserve(count);
  std::vector<int64_t> index(shape.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    offsets.push_back(at * item);
    for (size_t axis = shape.size(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return offsets;
}

std::string join(const std::vector<int64_t>& numbers) {
  std::ostringstream text;
  for (size_t i = 0; i < numbers.size(); ++i) text << (i == 0 ? "" : ",") << numbers[i];
  return text.str();
}

std::string hex(unsigned char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", byte);
  return text;
}

}  // namespace

// Device memory, and what the host believes it to hold. Freed with the last view.
struct Tensor::Storage {
  explicit Storage(uint64_t bytes) : expected(bytes) {
    for (uint64_t i = 0; i < bytes; ++i) expected[i] = pattern(i);
    nw_error error{};
    require(nw_alloc(runtime(), device(), bytes, nullptr, &data, &error), error, "nw_alloc");
  }
  ~Storage() { nw_free(runtime(), device(), data, nullptr, nullptr); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data = nullptr;
  std::vector<unsigned char> expected;
};

Layout Layout::transposed() { return Layout{.name = "transposed", .order = {-1}}; }
Layout Layout::strided(int64_t step) {
  return Layout{.name = "strided(" + std::to_string(step) + ")", .steps = {step, step, step, step, step, step, step, step}};
}
Layout Layout::reversed() { return Layout{.name = "reversed", .steps = {-1, -1, -1, -1, -1, -1, -1, -1}}; }
Layout Layout::with_steps(std::vector<int64_t> steps) {
  Layout layout;
  layout.name = "steps(";
  layout.name += join(steps) + ")";
  layout.steps = std::move(steps);
  return layout;
}
Layout Layout::broadcast(std::vector<bool> axes) {
  Layout layout{.name = "broadcast("};
  for (const bool axis : axes) {
    layout.steps.push_back(axis ? 0 : 1);
    layout.name += axis ? "0" : "1";
  }
  layout.name += ")";
  return layout;
}
Layout Layout::padded() { return Layout{.name = "padded rows", .pitch = kAsManyAsRows}; }
Layout Layout::padded(int64_t pitch) { return Layout{.name = "pitch " + std::to_string(pitch), .pitch = pitch}; }
Layout Layout::with_offset(uint64_t bytes) const {
  Layout layout = *this;
  layout.byte_offset = bytes;
  layout.name += "+offset" + std::to_string(bytes);
  return layout;
}
Layout Layout::with_misalignment(uint64_t bytes) const {
  Layout layout = *this;
  layout.misalign = bytes;
  layout.name += "+misaligned" + std::to_string(bytes);
  return layout;
}

std::vector<Layout> all_layouts(int ndim, DType dtype) {
  const auto item = static_cast<uint64_t>(item_size(dtype));
  std::vector<Layout> layouts{Layout::contiguous(),
                              Layout::null_stride(),
                              Layout::strided(2),
                              Layout::strided(3),
                              Layout::reversed(),
                              Layout::with_steps({-3, 2, -2}),
                              Layout::contiguous().with_offset(item),
                              Layout::contiguous().with_offset(3 * item + 1),
                              Layout::contiguous().with_misalignment(1),
                              Layout::contiguous().with_misalignment(item),
                              Layout::contiguous().with_misalignment(16),
                              Layout::strided(2).with_misalignment(item + 1)};
  if (ndim >= 2) {
    layouts.push_back(Layout::transposed());
    layouts.push_back(Layout::transposed().with_misalignment(3 * item));
    layouts.push_back(Layout::padded());  // rows apart, elements of a row adjacent
    if (ndim > 2) layouts.push_back(Layout::with_steps({2}));
    layouts.push_back(Layout::with_steps({-1, 1}));  // rows backwards
  }
  return layouts;
}

Tensor::Tensor(DType dtype, std::vector<int64_t> shape, Layout layout)
    : dtype_(dtype), shape_(std::move(shape)), layout_(std::move(layout)) {
  if (layout_.order == std::vector<int>{-1}) {  // column major, whatever the rank
    layout_.order.resize(shape_.size());
    std::iota(layout_.order.rbegin(), layout_.order.rend(), 0);
  }
  int64_t before = 0;
  strides_ = strides_of(shape_, layout_, &before);
  const int64_t item = item_size(dtype_);
  offsets_ = element_offsets(shape_, strides_, item);
  int64_t after = 0;
  for (const int64_t offset : offsets_) after = std::max(after, offset + item);
  first_ = kCanary + layout_.misalign + layout_.byte_offset + static_cast<uint64_t>(before * item);
  if (before != 0) {  // element 0 keeps the alignment that the layout asks for
    first_ = (first_ - layout_.misalign - layout_.byte_offset + 255) / 256 * 256 + layout_.misalign + layout_.byte_offset;
  }
  storage_ = std::make_shared<Storage>(first_ + static_cast<uint64_t>(after) + kCanary);
  bind();
  upload();
}

Tensor::Tensor(const Tensor& base, DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t first)
    : dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)), layout_{.name = "view+" + std::to_string(first)} {
  offsets_ = element_offsets(shape_, strides_, item_size(dtype_));
  storage_ = base.storage_;
  first_ = base.first_ + static_cast<uint64_t>(first);
  bind();
}

Tensor::Tensor(Tensor&& other) noexcept
    : dtype_(other.dtype_), shape_(std::move(other.shape_)), strides_(std::move(other.strides_)), layout_(std::move(other.layout_)),
      offsets_(std::move(other.offsets_)), storage_(std::move(other.storage_)), first_(other.first_), dl_(other.dl_) {
  dl_.shape = shape_.data();
  if (dl_.strides != nullptr) dl_.strides = strides_.data();
}

void Tensor::bind() {
  for (int64_t& offset : offsets_) offset += static_cast<int64_t>(first_);
  dl_.data = static_cast<char*>(storage_->data) + (first_ - layout_.byte_offset);
  dl_.byte_offset = layout_.byte_offset;
  dl_.device = device();
  dl_.ndim = static_cast<int32_t>(shape_.size());
  dl_.dtype = dl_dtype(dtype_);
  dl_.shape = shape_.data();
  dl_.strides = layout_.null_strides ? nullptr : strides_.data();
}

std::string Tensor::describe() const { return std::string(name(dtype_)) + "(" + join(shape_) + ") " + layout_.name; }

void Tensor::upload() {
  nw_error error{};
  const auto& host = storage_->expected;
  require(nw_copy(runtime(), device(), storage_->data, {kDLCPU, 0}, host.data(), host.size(), nullptr, &error), error, "nw_copy");
}

std::vector<unsigned char> Tensor::download() const {
  std::vector<unsigned char> host(storage_->expected.size());
  nw_error error{};
  require(nw_copy(runtime(), {kDLCPU, 0}, host.data(), device(), storage_->data, host.size(), nullptr, &error), error, "nw_copy");
  return host;
}

void Tensor::set(const std::vector<Exact>& values) {
  if (values.size() != offsets_.size())
    throw std::logic_error("a test sets " + std::to_string(values.size()) + " values in " + describe());
  for (size_t i = 0; i < values.size(); ++i) store(dtype_, values[i], storage_->expected.data() + offsets_[i]);
  upload();
}
void Tensor::set(const std::vector<double>& values) { set(std::vector<Exact>(values.begin(), values.end())); }

void Tensor::fill_uniform(Rng& rng, double low, double high) {
  std::vector<Exact> values(offsets_.size());
  for (Exact& v : values) {
    if (is_float(dtype_))
      v = rng.uniform(low, high);
    else if (dtype_ == DType::boolean)
      v = static_cast<Exact>(any_bool(rng));
    else
      v = static_cast<Exact>(rng.integer(static_cast<int64_t>(low), static_cast<int64_t>(high)));
  }
  set(values);
}

void Tensor::fill_bits(Rng& rng) {
  for (const int64_t offset : offsets_) {
    uint64_t bits = rng.bits();
    if (dtype_ == DType::boolean) bits = any_bool(rng);
    std::memcpy(storage_->expected.data() + offset, &bits, item_size(dtype_));
  }
  upload();
}

void Tensor::poison() {
  for (const int64_t offset : offsets_)
    for (int64_t k = 0; k < item_size(dtype_); ++k) storage_->expected[offset + k] = pattern(offset + k);
  upload();
}

void Tensor::fill_nan() {
  for (const int64_t offset : offsets_) std::fill_n(storage_->expected.begin() + offset, item_size(dtype_), kNaNByte);
  upload();
}

void Tensor::fill_gaps_nan() {
  const auto [first, last] = std::minmax_element(offsets_.begin(), offsets_.end());
  if (first == offsets_.end()) return;
  std::vector<unsigned char>& bytes = storage_->expected;
  const std::vector<unsigned char> before = bytes;
  std::fill(bytes.begin() + *first, bytes.begin() + *last, kNaNByte);
  for (const int64_t offset : offsets_) std::copy_n(before.begin() + offset, item_size(dtype_), bytes.begin() + offset);
  upload();
}

std::vector<Exact> Tensor::exact() const {
  const auto host = download();
  std::vector<Exact> values;
  values.reserve(offsets_.size());
  for (const int64_t offset : offsets_) values.push_back(load(dtype_, host.data() + offset));
  return values;
}

std::vector<double> Tensor::values() const {
  const auto all = exact();
  return {all.begin(), all.end()};
}

std::vector<unsigned char> Tensor::element_bytes() const {
  const auto host = download();
  std::vector<unsigned char> bytes;
  for (const int64_t offset : offsets_) bytes.insert(bytes.end(), host.begin() + offset, host.begin() + offset + item_size(dtype_));
  return bytes;
}

bool Tensor::is_stale(int64_t index) const { return is_stale(download(), index); }

int64_t Tensor::count_stale() const {
  const auto host = download();
  int64_t count = 0;
  for (int64_t i = 0; i < size(); ++i) count += is_stale(host, i) ? 1 : 0;
  return count;
}

bool Tensor::is_stale(const std::vector<unsigned char>& host, int64_t index) const {
  const int64_t offset = offsets_.at(index);
  for (int64_t k = 0; k < item_size(dtype_); ++k)
    if (host[offset + k] != pattern(offset + k)) return false;
  return true;
}

std::string Tensor::damage() const {
  const auto host = download();
  const auto& expected = storage_->expected;
  for (size_t i = 0; i < host.size(); ++i)
    if (host[i] != expected[i])
      return describe() + ": byte " + std::to_string(static_cast<int64_t>(i) - static_cast<int64_t>(first_)) +
             " from element 0 changed from " + hex(expected[i]) + " to " + hex(host[i]);
  return {};
}

std::string Tensor::damage_outside_elements() const {
  auto host = download();
  const auto& expected = storage_->expected;
  for (const int64_t offset : offsets_)
    for (int64_t k = 0; k < item_size(dtype_); ++k) host[offset + k] = expected[offset + k];
  for (size_t i = 0; i < host.size(); ++i)
    if (host[i] != expected[i])
      return describe() + ": a store outside its elements, " +
             std::to_string(static_cast<int64_t>(i) - static_cast<int64_t>(first_)) + " bytes from element 0: " + hex(expected[i]) +
             " became " + hex(host[i]);
  return {};
}

void Tensor::accept() const { storage_->expected = download(); }

}  // namespace narrows::test
