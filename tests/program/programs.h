// SPDX-License-Identifier: Apache-2.0
// programs.h -- what the tests of programs share: the texts, and the message of what is refused.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/program/text.h"

inline std::vector<std::filesystem::path> program_files() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(TEXTS)) out.push_back(entry.path());
  return out;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The message that `work` is refused with; "" where it is not.
template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const narrows::Failure& failure) {
    CHECK(failure.status == NW_INVALID);
    CHECK(failure.argument == -1);  // a text and a step have no argument of a call
    return failure.message;
  }
  return "";
}

inline std::string refused_text(const std::string& text) {
  return refusal([&] { narrows::program::parse(text); });
}

// A program of one block on A[N] and C[N]; `axes`, `body` and `items` (which begin with ", ") can be others.
inline std::string with_block(const std::string& body, const std::string& axes = "vi: S(N) = i", const std::string& items = "") {
  return "program 1 f(A: f32[N], C: out f32[N]" + items + "):\n  for i in N:\n    block C(" + axes + "):\n      " + body + "\n";
}

// The same with a value for C[vi].
inline std::string with_value(const std::string& value, const std::string& items = "") {
  return with_block("C[vi] = " + value, "vi: S(N) = i", items);
}
