// SPDX-License-Identifier: Apache-2.0
// files.cpp -- see files.h.
#include "program/files.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/plugin.h"
#include "program/process.h"

namespace narrows::cpu {
namespace {

using common::refuse;

bool is_ours(const std::string& folder) {
  struct stat info{};
  return lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 022) == 0 &&
         access(folder.c_str(), W_OK | X_OK) == 0;
}

// Makes a folder with those above it; those of ours are for nobody else.
bool make_folders(const std::string& folder) {
  for (size_t at = 1; at != std::string::npos && at < folder.size();) {
    at = folder.find('/', at + 1);
    const std::string part = folder.substr(0, at);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return false;
  }
  return is_ours(folder);
}

std::string temporary_base() {
  const std::string base = environment("TMPDIR");
  return base.empty() ? "/tmp" : base;
}

}  // namespace

std::string hex_digest(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  char out[33];
  std::snprintf(out, sizeof(out), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return out;
}

bool write_all(int file, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return done == bytes.size();
}

bool write_file(const std::string& path, const std::string& bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  const bool written = write_all(file, bytes);
  return close(file) == 0 && written;
}

bool read_file(const std::string& path, std::string* bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  char buffer[16384];
  ssize_t count = 0;
  while ((count = read(file, buffer, sizeof(buffer))) > 0 || (count < 0 && errno == EINTR))
    if (count > 0) bytes->append(buffer, static_cast<size_t>(count));
  close(file);
  return count == 0;
}

std::string cache_folder() {
  if (getauxval(AT_SECURE) != 0) return "";
  std::string base = environment("NARROWS_CACHE_DIR");
  if (base.empty()) {
    if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty())
      base = xdg + "/narrows";
    else if (const std::string home = environment("HOME"); !home.empty())
      base = home + "/.cache/narrows";
  }
  if (base.empty() || base[0] != '/') return "";
  const std::string folder = base + "/cpu";
  return make_folders(folder) ? folder : "";
}

Workplace::Workplace(const std::string& cache) : folder_(cache), is_temporary_(cache.empty()) {
  if (!is_temporary_) return;
  std::string pattern = temporary_base() + "/narrows-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr)
    refuse(NW_FAILED, -1, "a temporary folder %s cannot be made: %s", pattern.c_str(), std::strerror(errno));
  folder_ = pattern;
}
Workplace::~Workplace() {
  if (is_temporary_) rmdir(folder_.c_str());  // if it is empty
}

std::string keep_source(const std::string& text, const Workplace& place, const std::string& digest) {
  const std::string folder =
      place.is_temporary() ? temporary_base() + "/narrows-" + std::to_string(geteuid()) : std::string(place.folder());
  const std::string kept = folder + "/" + digest + ".c";
  return make_folders(folder) && rename(text.c_str(), kept.c_str()) == 0 ? kept : text;
}

}  // namespace narrows::cpu
