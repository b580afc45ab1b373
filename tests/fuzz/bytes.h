// SPDX-License-Identifier: Apache-2.0
// bytes.h -- an input as a row of decisions: numbers read from its front, 0 when it has ended. So every input means something,
// and one that is cut short means something smaller. It governs how the seeds of tests/fuzz/seeds are read: a change here, or in
// the order in which a target reads, makes other cases of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace narrows::fuzz {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }
  uint8_t byte() { return number<uint8_t>(); }
  bool flag() { return (byte() & 1) != 0; }
  // 0 .. n-1
  size_t below(size_t n) { return byte() % n; }
  template <class T>
  T number() {
    T value{};
    const size_t size = left_.size() < sizeof value ? left_.size() : sizeof value;
    if (size != 0) std::memcpy(&value, left_.data(), size);
    left_ = left_.subspan(size);
    return value;
  }
  template <class T, size_t n>
  T pick(const T (&choices)[n]) {
    return choices[below(n)];
  }
  std::vector<uint8_t> rest() { return {left_.begin(), left_.end()}; }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace narrows::fuzz
