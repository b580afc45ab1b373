// SPDX-License-Identifier: Apache-2.0
// record.h -- the file of what searches have tried: comma-separated, a line for each search, below a line of names. The docs show
// it.
#pragma once

#include <cstdint>
#include <string>

namespace narrows::search {

struct RecordLine {
  std::string code;              // the commit, or another name of the code
  uint64_t first = 0, next = 0;  // seeds: the first one, and the one to go on with
  int64_t programs = 0, sequences = 0, accepted = 0, refused = 0, interpreted = 0, compiled = 0, undecided = 0, wrong = 0;
  double seconds = 0;
};

// The first seed that no line has. Throws std::runtime_error where a line cannot be read.
uint64_t next_seed(const std::string& file);

void add_line(const std::string& file, const RecordLine& line);

}  // namespace narrows::search
