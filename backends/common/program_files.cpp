// SPDX-License-Identifier: Apache-2.0
// program_files.cpp -- see program_files.h.
#include "program_files.h"

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

#include "plugin.h"

namespace narrows::common {
namespace {

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

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

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

constexpr size_t kDigestSize = 32;  // in letters

bool seal(const std::string& path) {
  std::string bytes;
  if (!read_file(path, &bytes)) return false;
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return false;
  const bool written = write_all(file, hex_digest(bytes));
  return close(file) == 0 && written;
}

std::string read_sealed(const std::string& path) {
  std::string bytes;
  if (!read_file(path, &bytes) || bytes.size() <= kDigestSize) return "";
  const std::string digest = bytes.substr(bytes.size() - kDigestSize);
  bytes.resize(bytes.size() - kDigestSize);
  return hex_digest(bytes) == digest ? bytes : "";
}

bool is_sealed(const std::string& path) { return !read_sealed(path).empty(); }

void write_sealed(const std::string& folder, const std::string& name, const std::string& bytes) {
  const std::string path = folder + "/" + name;
  const std::string temporary = path + "." + std::to_string(getpid()) + "." +
                                std::to_string(static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(&path)));
  unlink(temporary.c_str());
  if (!write_file(temporary, bytes + hex_digest(bytes)) || rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

std::string cache_folder(const std::string& backend) {
  if (getauxval(AT_SECURE) != 0) return "";
  std::string base = environment("NARROWS_CACHE_DIR");
  if (base.empty()) {
    if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty())
      base = xdg + "/narrows";
    else if (const std::string home = environment("HOME"); !home.empty())
      base = home + "/.cache/narrows";
  }
  if (base.empty() || base[0] != '/') return "";
  const std::string folder = base + "/" + backend;
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

}  // namespace narrows::common
