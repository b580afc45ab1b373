// SPDX-License-Identifier: Apache-2.0
// compile.cpp -- see compile.h.
#include "program/compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "common/plugin.h"
#include "common/program_files.h"
#include "program/toolchain.h"

namespace narrows::cpu {
namespace {

using namespace common;

constexpr size_t kMostObjects = 512;  // that stay mapped though no plan uses them

// ---- building ----

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
  const Outcome outcome = run_process(arguments, compile_seconds());
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

std::mutex the_lock;
[[maybe_unused]] const int registered =
    pthread_atfork([] { the_lock.lock(); }, [] { the_lock.unlock(); }, [] { the_lock.unlock(); });

}  // namespace

std::mutex& programs_lock() { return the_lock; }

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

CCompiler::CCompiler() : shared_(std::make_unique<Shared>()) {}
CCompiler::~CCompiler() = default;

bool CCompiler::is_present() { return !find_compiler().empty(); }

std::shared_ptr<const CObject> CCompiler::build(const std::string& source, const std::vector<std::string>& flags) {
  const std::vector<std::string> compiler = required_compiler();
  std::string key = source + identity(compiler[0]);
  for (const std::string& word : compiler) key += "\n" + word;
  for (const std::string& flag : flags) key += "\n" + flag;
  const std::string digest = hex_digest(key);
  if (auto object = shared_->find(digest); object != nullptr) return object;
  const std::string cache = cache_folder("cpu"), kept = cache + "/" + digest + ".so";
  std::shared_ptr<const CObject> object;
  if (!cache.empty() && is_sealed(kept)) object = open_object(kept);
  if (object == nullptr) object = compile(source, compiler, flags, cache, digest);
  return shared_->insert(digest, object);
}

}  // namespace narrows::cpu
