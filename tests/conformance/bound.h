// SPDX-License-Identifier: Apache-2.0
// bound.h -- comparison of a result that was summed in f32 or f64 and then rounded once to its tensor's dtype, by a bound for
// every element. It governs the tolerances of the conv1d and lltm tests; here too what else their cases share.
#pragma once

#include <cstdint>
#include <vector>

#include "support/harness.h"

namespace narrows::test {

// The dtype that sums are formed in: f64 for f64, f32 for all others.
DType accumulator(DType dtype);

std::vector<double> absolute(std::vector<double> values);

// What rounding may do to sums of `terms` products, `magnitude` being the same sums over absolute values. Each of the
// additions rounds by up to epsilon/2 of a partial sum, which is at most the magnitude; the roundings are independent, so they
// grow by sqrt(terms), not by terms: epsilon/2 * magnitude * sqrt(terms) * 2 leaves six of their standard deviations when all
// terms have one sign, and far more when they have not. The 2 covers products, bias and the reference's own rounding in f64.
// Equal terms, as stride 0 makes them, round alike, and their errors grow by `terms`.
enum class Terms { independent, equal };
std::vector<double> sum_bound(DType accumulator, const std::vector<double>& magnitude, int64_t terms,
                              Terms kind = Terms::independent);

// Before it was rounded to the tensor's dtype the result was within `bound` of the reference: rounding is monotone, so it lies
// between the rounded ends of that interval. Over the tensor the L2 norm of the difference is at most half that of the bound
// plus one rounding of the reference. NaN passes only where the reference is NaN.
std::string outside(const Tensor& got, const std::vector<double>& reference, const std::vector<double>& bound);
void expect_within(const Result& result, const Tensor& got, const std::vector<double>& reference, const std::vector<double>& bound);

bool has_stride_0(const Layout& layout);
// The layout for a gradient: that of its tensor, or contiguous where several of the tensor's elements lie in one place.
Layout without_broadcast(const Layout& layout);

}  // namespace narrows::test
