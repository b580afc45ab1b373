// SPDX-License-Identifier: Apache-2.0
// patterns.h -- which tests Catch2's patterns mean for narrows-conform: see without_hidden().
#pragma once

#include <string>

namespace narrows::test {

// Catch2 runs a hidden test wherever a pattern fits it: "[conv1d]" the one of four gigabytes, too, that "[.huge][conv1d]" hides.
// Here only a pattern that says huge or bench, or one test's whole name in quotes, means these.
std::string without_hidden(const std::string& patterns);

}  // namespace narrows::test
