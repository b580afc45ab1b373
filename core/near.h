// SPDX-License-Identifier: Apache-2.0
// near.h -- the known name that a mistyped one is nearest to, for messages.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace narrows {

// How many letters are to be put in, left out, replaced or exchanged with a neighbour to make one of the other; upper case is
// lower.
inline size_t letters_apart(std::string_view a, std::string_view b) {
  const auto same = [&](size_t i, size_t j) {
    return std::tolower(static_cast<unsigned char>(a[i])) == std::tolower(static_cast<unsigned char>(b[j]));
  };
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same(i - 1, j - 1) ? 0 : 1)});
      if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1)) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// "; did you mean 'stride'?", or "" where no known name is as near as a third of its letters.
inline std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  if (name.size() > 256) return "";  // the time goes with the square of it
  const std::string* nearest = nullptr;
  size_t least = 0;
  for (const std::string& word : known) {
    const size_t apart = letters_apart(name, word);
    if (apart > std::max<size_t>(1, std::max(name.size(), word.size()) / 3) || apart >= word.size()) continue;
    if (nearest == nullptr || apart < least) nearest = &word, least = apart;
  }
  return nearest == nullptr ? "" : "; did you mean '" + *nearest + "'?";
}

}  // namespace narrows
