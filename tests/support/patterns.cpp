// SPDX-License-Identifier: Apache-2.0
// patterns.cpp -- see patterns.h.
#include "patterns.h"

#include <vector>

namespace narrows::test {
namespace {

// At the commas that stand between patterns: not in quotes, nor behind a backslash.
std::vector<std::string> alternatives(const std::string& patterns) {
  std::vector<std::string> all(1);
  bool quoted = false;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const char c = patterns[i];
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) {
      all.emplace_back();
      continue;
    }
    all.back() += c;
    if (c == '\\' && i + 1 < patterns.size()) all.back() += patterns[++i];
  }
  return all;
}

bool means_hidden(const std::string& pattern) {
  if (pattern.starts_with('"') && pattern.find('*') == std::string::npos) return true;  // one test, by its whole name
  for (const char* word : {"[.", "[!", "huge", "bench"})
    if (pattern.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

std::string without_hidden(const std::string& patterns) {
  std::string text;
  for (const std::string& pattern : alternatives(patterns))
    text += "," + std::string(pattern.empty() || means_hidden(pattern) ? "" : "~[.]") + pattern;
  return text.substr(1);
}

}  // namespace narrows::test
