// SPDX-License-Identifier: Apache-2.0
// index.h -- arithmetic of `index` on numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace narrows::program {

bool is_index_function(std::string_view name);
bool gives_boolean(std::string_view name);  // of the functions of `index`: a comparison

// Towards minus infinity; b is neither 0 nor -1.
constexpr int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0); }

// Throws Failure: an overflow of 64 bits, a division by 0. Division and remainder are Python's: towards minus infinity.
int64_t index_function(const std::string& name, int64_t a, int64_t b);

}  // namespace narrows::program
