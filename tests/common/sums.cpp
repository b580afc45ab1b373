// SPDX-License-Identifier: Apache-2.0
// sums.cpp -- how a GPU divides sums over broadcast dimensions: each term in one sum, and groups of threads that cover them.
#include "common/sums.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <random>
#include <set>
#include <vector>

using namespace narrows::common;

namespace {

constexpr int kOperands = 3;  // the last one is the result
constexpr int64_t kSizes[kOperands] = {4, 8, 4};
using Place = std::array<int64_t, kOperands>;  // where the operands' elements lie

struct Case {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides[kOperands];
  std::vector<nw_tensor_sig> sigs;

  explicit Case(std::mt19937& random) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    for (int64_t d = below(5); d > 0; --d) shape.push_back(1 + below(4));
    for (int k = 0; k < kOperands; ++k) {
      std::vector<size_t> order(shape.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      strides[k].resize(shape.size());
      int64_t step = 1 + below(2);
      for (const size_t d : order) {
        const bool broadcast = below(3) == 0, backwards = below(4) == 0;
        strides[k][d] = broadcast ? 0 : backwards ? -step : step;
        if (!broadcast) step *= shape[d];
      }
    }
    for (const auto& of : strides)
      sigs.push_back({{kDLFloat, 32, 1}, static_cast<int32_t>(shape.size()), 8, 0, -1, shape.data(), of.data()});
  }

  // By plain loops.
  std::multiset<Place> places() const {
    std::multiset<Place> out;
    std::vector<int64_t> index(shape.size());
    for (bool more = true; more;) {
      Place place{};
      for (size_t k = 0; k < kOperands; ++k)
        place[k] = std::inner_product(index.begin(), index.end(), strides[k].begin(), int64_t{0}) * kSizes[k];
      out.insert(place);
      more = false;
      for (size_t d = 0; d < shape.size() && !more; ++d) {
        more = ++index[d] < shape[d];
        if (!more) index[d] = 0;
      }
    }
    return out;
  }
};

// The places of the dimensions [first, last), from `from` on.
std::vector<Place> places_of(const SumDims& dims, int first, int last, const Place& from) {
  std::vector<Place> out = {from};
  for (int d = first; d < last; ++d) {
    const std::vector<Place> before = std::move(out);
    out.clear();
    for (const Place& place : before)
      for (int64_t i = 0; i < dims.extent[d]; ++i) {
        Place next = place;
        for (size_t k = 0; k < kOperands; ++k) next[k] += i * dims.stride[k][d];
        out.push_back(next);
      }
  }
  return out;
}

}  // namespace

TEST_CASE("each element of the result is one sum, of all that was broadcast from it") {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const Case example(random);
    const nw_tensor_sig* operands[kOperands];
    for (size_t k = 0; k < kOperands; ++k) operands[k] = &example.sigs[k];
    if (round % 3 == 0) operands[round % 2] = nullptr;  // a number
    const Space space = space_of_sums(example.sigs[0], operands, kSizes, kOperands);
    const SumDims dims = sum_dims(space, kOperands - 1);
    INFO("round " << round);
    std::multiset<Place> want = example.places(), got;
    Place origin{};
    for (size_t k = 0; k < kOperands; ++k) origin[k] = operands[k] == nullptr ? 0 : space.offset[k];
    const std::vector<Place> sums = places_of(dims, 0, dims.kept_dims, origin);
    REQUIRE(static_cast<int64_t>(sums.size()) == dims.kept);
    std::set<int64_t> results;
    for (const Place& sum : sums) {
      CHECK(results.insert(sum[kOperands - 1]).second);
      const std::vector<Place> terms = places_of(dims, dims.kept_dims, dims.dims, sum);
      REQUIRE(static_cast<int64_t>(terms.size()) == dims.summed);
      for (const Place& term : terms) {
        CHECK(term[kOperands - 1] == sum[kOperands - 1]);
        got.insert(term);
      }
    }
    if (round % 3 == 0) {
      std::multiset<Place> without;
      for (Place place : want) {
        place[static_cast<size_t>(round % 2)] = 0;
        without.insert(place);
      }
      want = without;
    }
    REQUIRE(got == want);
  }
}

TEST_CASE("groups of threads cover the sums, in a grid that there is") {
  const auto is_power = [](int64_t x) { return x > 0 && (x & (x - 1)) == 0; };
  for (const int threads : {32, 256})
    for (const int64_t most : {int64_t{65535}, INT64_MAX})
      for (const int64_t kept : {1, 2, 3, 31, 32, 33, 1000, 100000, 3000000})
        for (const int64_t summed : {0, 1, 4, 5, 100, 4096, 4097, 1000000, 100000000})
          for (const bool first_is_kept : {false, true}) {
            INFO(threads << " threads, " << kept << " sums of " << summed);
            SumDims dims;
            dims.kept = kept, dims.summed = summed;
            const SumGroups groups = sum_groups(dims, first_is_kept, threads, most);
            CHECK(groups.lanes_first == first_is_kept);
            CHECK((is_power(groups.lanes) && is_power(groups.rows)));
            CHECK(groups.lanes * groups.rows == threads);
            const int64_t sums = (kept + groups.lanes - 1) / groups.lanes;
            CHECK((sums <= most / 2 || groups.rows == 1));
            CHECK(groups.slices >= 1);
            CHECK((groups.slices == 1 || summed / groups.slices >= 16 * groups.rows));  // no thread without terms
            CHECK((groups.slices == 1 || (groups.slices - 1) * sums < 1024));
            CHECK(dims.is_wide(999999) == (kept > 999999 || summed > 999999));
            const SumGroups finishing = finishing_groups(groups, threads);
            CHECK(finishing.lanes_first);
            CHECK((is_power(finishing.rows) && finishing.lanes * finishing.rows == threads));
            CHECK(finishing.rows >= std::min<int64_t>(groups.slices, threads));
            CHECK(finishing.slices == 1);
          }
}
