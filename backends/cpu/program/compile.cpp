// SPDX-License-Identifier: Apache-2.0
// compile.cpp -- see compile.h.
#include "program/compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/plugin.h"
#include "program/process.h"

namespace narrows::cpu {
namespace {

using common::refuse;

constexpr size_t kMostObjects = 512;  // that stay mapped though no plan uses them
constexpr double kSeconds = 60;

std::string hex_digest(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  char out[33];
  std::snprintf(out, sizeof(out), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return out;
}

// ---- the compiler ----

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; (begin = text.find_first_not_of(' ', begin)) != std::string::npos;) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

// The compiler with what $CC says beside its name; empty: there is none.
std::vector<std::string> find_compiler() {
  if (const std::string named = environment("CC"); !named.empty()) {
    std::vector<std::string> out = words(named);
    if (!out.empty()) out[0] = find_program(out[0]);
    return out.empty() || out[0].empty() ? std::vector<std::string>() : out;
  }
  for (const char* name : {"cc", "gcc", "clang"})
    if (std::string path = find_program(name); !path.empty()) return {path};
  return {};
}

// What changes where another compiler is installed under its name.
std::string identity(const std::string& path) {
  char resolved[PATH_MAX];
  struct stat info{};
  if (realpath(path.c_str(), resolved) == nullptr || stat(resolved, &info) != 0) return path;
  return std::string(resolved) + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) + "." +
         std::to_string(info.st_mtim.tv_nsec);
}

double time_limit() {
  const std::string text = environment("NARROWS_COMPILE_SECONDS");
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  return end != text.c_str() && seconds > 0 ? std::min(seconds, 86400.0) : kSeconds;
}

// ---- files ----

bool write_file(const std::string& path, const std::string& bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  const bool closed = close(file) == 0;
  return closed && done == bytes.size();
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

// An object ends with the digest of what stands before it: the loader ignores what follows an object, and a file that was cut
// short would otherwise end the process.
constexpr size_t kDigestSize = 32;
bool seal(const std::string& path) {
  std::string bytes;
  if (!read_file(path, &bytes)) return false;
  const std::string digest = hex_digest(bytes);
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return false;
  const bool written = write(file, digest.data(), digest.size()) == static_cast<ssize_t>(digest.size());
  return close(file) == 0 && written;
}
bool is_sealed(const std::string& path) {
  std::string bytes;
  if (!read_file(path, &bytes) || bytes.size() <= kDigestSize) return false;
  return bytes.substr(bytes.size() - kDigestSize) == hex_digest(bytes.substr(0, bytes.size() - kDigestSize));
}

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

// The folder of compiled objects; empty: there is none to be used.
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

std::string temporary_base() {
  const std::string base = environment("TMPDIR");
  return base.empty() ? "/tmp" : base;
}

// A folder where files are made: the cache itself, or a temporary one that goes away with this.
class Workplace {
 public:
  explicit Workplace(const std::string& cache) : folder_(cache), is_temporary_(cache.empty()) {
    if (!is_temporary_) return;
    std::string pattern = temporary_base() + "/narrows-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr)
      refuse(NW_FAILED, -1, "a temporary folder %s cannot be made: %s", pattern.c_str(), std::strerror(errno));
    folder_ = pattern;
  }
  ~Workplace() {
    if (is_temporary_) rmdir(folder_.c_str());  // if it is empty
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  const std::string& folder() const { return folder_; }
  bool is_temporary() const { return is_temporary_; }

 private:
  std::string folder_;
  const bool is_temporary_;
};

// Keeps the source that a call failed for where the next such call will put it, too. Gives the path.
std::string keep_source(const std::string& text, const Workplace& place, const std::string& digest) {
  const std::string folder =
      place.is_temporary() ? temporary_base() + "/narrows-" + std::to_string(geteuid()) : std::string(place.folder());
  const std::string kept = folder + "/" + digest + ".c";
  return make_folders(folder) && rename(text.c_str(), kept.c_str()) == 0 ? kept : text;
}

// ---- building ----

std::string last_lines(const std::string& output) {
  constexpr size_t kMost = 200;
  std::string out = output.substr(output.size() > kMost ? output.size() - kMost : 0);
  if (out.size() < output.size())
    if (const size_t line = out.find('\n'); line != std::string::npos && line + 1 < out.size()) out = out.substr(line + 1);
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out;
}

[[noreturn]] void refuse_outcome(const Outcome& outcome, const std::string& compiler, const std::string& source) {
  const std::string lines = last_lines(outcome.output);
  switch (outcome.kind) {
    case Outcome::Kind::not_started:
      refuse(NW_UNAVAILABLE, -1, "the C compiler %s cannot be started: %s", compiler.c_str(), std::strerror(outcome.number));
    case Outcome::Kind::timed_out:
      refuse(NW_FAILED, -1, "the C compiler %s was ended after %g seconds ($NARROWS_COMPILE_SECONDS); the source is %s",
             compiler.c_str(), time_limit(), source.c_str());
    case Outcome::Kind::killed:
      refuse(NW_FAILED, -1, "the C compiler %s was killed by signal %d; the source is %s%s%s", compiler.c_str(), outcome.number,
             source.c_str(), lines.empty() ? "" : "; its last lines: ", lines.c_str());
    default:
      refuse(NW_FAILED, -1, "the C compiler %s failed with status %d; the source is %s%s%s", compiler.c_str(), outcome.number,
             source.c_str(), lines.empty() ? "" : "; its last lines: ", lines.c_str());
  }
}

std::shared_ptr<const CObject> open_object(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  return handle == nullptr ? nullptr : std::make_shared<const CObject>(handle);
}

std::shared_ptr<const CObject> compile(const std::string& source, const std::vector<std::string>& compiler,
                                       const std::vector<std::string>& flags, const std::string& cache, const std::string& digest) {
  Workplace place(cache);
  const std::string stem = place.folder() + "/" + digest + "." + std::to_string(getpid()) + "." +
                           std::to_string(static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(&place)));
  const std::string text = stem + ".c", object = stem + ".so";
  unlink(text.c_str());
  if (!write_file(text, source)) {
    const int reason = errno;
    unlink(text.c_str());
    if (!place.is_temporary()) return compile(source, compiler, flags, "", digest);  // a full or failing disk, maybe only there
    refuse(NW_FAILED, -1, "%s cannot be written: %s", text.c_str(), std::strerror(reason));
  }
  std::vector<std::string> arguments = compiler;
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"-o", object, text});
  const Outcome outcome = run_process(arguments, time_limit());
  const bool good = outcome.kind == Outcome::Kind::exited && outcome.number == 0;
  std::shared_ptr<const CObject> out;
  if (good && seal(object)) out = open_object(object);
  if (out == nullptr) {
    const char* reason = good ? dlerror() : nullptr;
    unlink(object.c_str());
    if (!place.is_temporary() && outcome.kind == Outcome::Kind::exited) {  // a full disk or `noexec`, maybe only there
      unlink(text.c_str());
      return compile(source, compiler, flags, "", digest);
    }
    const std::string kept = keep_source(text, place, digest);
    if (!good) refuse_outcome(outcome, compiler[0], kept);
    refuse(NW_FAILED, -1, "what the C compiler %s made of %s cannot be loaded: %s", compiler[0].c_str(), kept.c_str(),
           reason == nullptr ? "the file is not complete" : reason);
  }
  unlink(text.c_str());
  const std::string final_path = place.folder() + "/" + digest + ".so";
  if (place.is_temporary() || rename(object.c_str(), final_path.c_str()) != 0) unlink(object.c_str());
  return out;
}

}  // namespace

std::mutex& programs_lock() {
  static std::mutex lock;
  static const int registered =
      pthread_atfork([] { programs_lock().lock(); }, [] { programs_lock().unlock(); }, [] { programs_lock().unlock(); });
  (void)registered;
  return lock;
}

CObject::~CObject() { dlclose(handle_); }
void* CObject::symbol(const char* name) const { return dlsym(handle_, name); }

struct CCompiler::Shared {
  struct Entry {
    std::string digest;
    std::shared_ptr<const CObject> object;
  };
  std::list<Entry> objects;  // the one used last in front

  std::shared_ptr<const CObject> find(const std::string& digest) {
    const std::lock_guard hold(programs_lock());
    const auto found = std::find_if(objects.begin(), objects.end(), [&](const Entry& e) { return e.digest == digest; });
    if (found == objects.end()) return nullptr;
    objects.splice(objects.begin(), objects, found);
    return found->object;
  }

  // Forgets objects that no plan uses, the oldest first, where there are too many.
  std::shared_ptr<const CObject> insert(const std::string& digest, std::shared_ptr<const CObject> object) {
    std::vector<std::shared_ptr<const CObject>> dropped;  // closed without the lock
    const std::lock_guard hold(programs_lock());
    const auto found = std::find_if(objects.begin(), objects.end(), [&](const Entry& e) { return e.digest == digest; });
    if (found != objects.end()) return found->object;
    for (auto entry = objects.end(); objects.size() >= kMostObjects && entry != objects.begin();) {
      --entry;
      if (entry->object.use_count() > 1) continue;
      dropped.push_back(std::move(entry->object));
      entry = objects.erase(entry);
    }
    objects.push_front({digest, object});
    return object;
  }
};

CCompiler::CCompiler() : shared_(std::make_unique<Shared>()) { (void)programs_lock(); }
CCompiler::~CCompiler() = default;

bool CCompiler::is_present() { return !find_compiler().empty(); }

std::shared_ptr<const CObject> CCompiler::build(const std::string& source, const std::vector<std::string>& flags) {
  const std::vector<std::string> compiler = find_compiler();
  if (compiler.empty()) {
    const std::string named = environment("CC");
    refuse(NW_UNAVAILABLE, -1, "there is no C compiler: %s; install one, or set CC",
           named.empty() ? "cc, gcc and clang were not found" : ("CC is '" + named + "', which was not found").c_str());
  }
  std::string key = source + identity(compiler[0]);
  for (const std::string& word : compiler) key += "\n" + word;
  for (const std::string& flag : flags) key += "\n" + flag;
  const std::string digest = hex_digest(key);
  if (auto object = shared_->find(digest); object != nullptr) return object;
  const std::string cache = cache_folder(), kept = cache + "/" + digest + ".so";
  std::shared_ptr<const CObject> object;
  if (!cache.empty() && is_sealed(kept)) object = open_object(kept);
  if (object == nullptr) object = compile(source, compiler, flags, cache, digest);
  return shared_->insert(digest, object);
}

}  // namespace narrows::cpu
