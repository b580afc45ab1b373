// SPDX-License-Identifier: Apache-2.0
// random_program.h -- small random programs for the search: blocks that read what earlier ones wrote, by plain, shifted, mirrored,
// transposed and guarded subscripts, and by those that data or a param chooses; reductions, running sums, buffers that are written
// twice, nests with loops in common; tensors that are changed or may be absent, and params; and products in the shapes of matrix
// units.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace narrows::search {

// Which programs and steps a seed gives. It counts up when what is drawn changes; a record's lines name theirs.
constexpr int kGenerator = 2;

class Random {  // SplitMix64, the same on every platform
 public:
  explicit Random(uint64_t seed) : state_(seed * 0xD1342543DE82EF95U + 1) {}
  uint64_t bits();
  int64_t integer(int64_t low, int64_t high) { return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1)); }
  bool chance(int percent) { return integer(1, 100) <= percent; }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<size_t>(integer(0, static_cast<int64_t>(list.size()) - 1))];
  }

 private:
  uint64_t state_;
};

struct RandomProgram {
  std::string text;
  std::vector<std::map<std::string, int64_t>> sizes;  // to run it with: a few each time, also 0 and 1
  std::map<std::string, int64_t> params;              // beside their defaults
};
RandomProgram random_program(Random& random);

}  // namespace narrows::search
