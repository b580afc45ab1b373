// SPDX-License-Identifier: Apache-2.0
// program_files.h -- the folders that keep what programs were compiled to, and the places where that is made.
#pragma once

#include <string>

namespace narrows::common {

// Of the environment; empty where it is not set, or this is a set-user-ID program.
std::string environment(const char* name);

std::string hex_digest(const std::string& bytes);

bool write_all(int file, const std::string& bytes);  // false, with errno
// Makes a file that nobody else reads; false, with errno: it is there, or it cannot be written.
bool write_file(const std::string& path, const std::string& bytes);
// Appends to `bytes`.
bool read_file(const std::string& path, std::string* bytes);

// The folder of a backend's objects: $NARROWS_CACHE_DIR, else $XDG_CACHE_HOME/narrows, else ~/.cache/narrows, and the backend's
// name; empty: there is none to be used.
std::string cache_folder(const std::string& backend);

// A file ends with the digest of what stands before it, so that one that was cut short is none. Adds it; false: it could not.
bool seal(const std::string& path);
bool is_sealed(const std::string& path);
// What was sealed; empty: there is none, or it is damaged.
std::string read_sealed(const std::string& path);
// Puts bytes into a folder under a name, sealed, as a whole or not at all; whoever comes first stays.
void write_sealed(const std::string& folder, const std::string& name, const std::string& bytes);

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

}  // namespace narrows::common
