// SPDX-License-Identifier: Apache-2.0
// files.h -- the folder that keeps compiled objects, and the places where they are made. Step 5 of a tensor's path.
#pragma once

#include <string>

namespace narrows::cpu {

std::string hex_digest(const std::string& bytes);

bool write_all(int file, const std::string& bytes);  // false, with errno
// Makes a file that nobody else reads; false, with errno: it is there, or it cannot be written.
bool write_file(const std::string& path, const std::string& bytes);
// Appends to `bytes`.
bool read_file(const std::string& path, std::string* bytes);

// The folder of compiled objects: $NARROWS_CACHE_DIR, else $XDG_CACHE_HOME/narrows, else ~/.cache/narrows, and /cpu; empty: there
// is none to be used.
std::string cache_folder();

// A folder where files are made: the cache itself, or a temporary one that goes away with this.
class Workplace {
 public:
  explicit Workplace(const std::string& cache);
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  const std::string& folder() const { return folder_; }
  bool is_temporary() const { return is_temporary_; }

 private:
  std::string folder_;
  const bool is_temporary_;
};

// Keeps the source that a call failed for where the next such call will put it, too. Gives the path.
std::string keep_source(const std::string& text, const Workplace& place, const std::string& digest);

}  // namespace narrows::cpu
