// SPDX-License-Identifier: Apache-2.0
// record.cpp -- see record.h.
#include "record.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>

#include "random_program.h"

namespace narrows::search {
namespace {

constexpr const char* kNames =
    "code,first seed,next seed,programs,sequences,steps accepted,steps "
    "refused,interpreted,compiled,undecided,wrong,seconds,generator";

// Of a line: "code,first,next,...".
uint64_t next_of(const std::string& line) {
  const size_t first = line.find(','), next = line.find(',', first + 1);
  if (next == std::string::npos) throw std::runtime_error("no line of a record: " + line);
  return std::stoull(line.substr(next + 1));
}

}  // namespace

uint64_t next_seed(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);  // the names
  uint64_t next = 1;
  while (std::getline(in, line)) next = std::max(next, next_of(line));
  return next;
}

void add_line(const std::string& file, const RecordLine& line) {
  const bool is_new = !std::ifstream(file).good();
  std::ofstream out(file, std::ios::app);
  if (is_new) out << kNames << "\n";
  out << line.code << "," << line.first << "," << line.next;
  for (const int64_t count : {line.programs, line.sequences, line.accepted, line.refused, line.interpreted, line.compiled,
                              line.undecided, line.wrong, static_cast<int64_t>(std::lround(line.seconds)), int64_t{kGenerator}})
    out << "," << count;
  if (!(out << "\n").flush()) throw std::runtime_error(file + " cannot be written");
}

}  // namespace narrows::search
