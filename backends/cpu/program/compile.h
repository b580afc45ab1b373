// SPDX-License-Identifier: Apache-2.0
// compile.h -- the system's C compiler, run at plan time, and the folder that keeps what it made.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace narrows::cpu {

// Guards what is kept of programs, for short moments. Locked around a fork: another thread's lock would stay locked in the child.
std::mutex& programs_lock();

// A loaded object: mapped as long as this lives.
class CObject {
 public:
  explicit CObject(void* handle) : handle_(handle) {}
  ~CObject();
  CObject(const CObject&) = delete;
  CObject& operator=(const CObject&) = delete;
  void* symbol(const char* name) const;

 private:
  void* handle_;
};

// Objects are kept in a folder by the digest of source, flags and compiler: $NARROWS_CACHE_DIR, else $XDG_CACHE_HOME/narrows, else
// ~/.cache/narrows; in a set-user-ID program, or where that is another user's or nothing can be made or loaded, in a temporary one,
// removed at once. Any thread may call; two threads or processes that build the same thing both build it, and one result stays.
class CCompiler {
 public:
  CCompiler();
  ~CCompiler();
  CCompiler(const CCompiler&) = delete;
  CCompiler& operator=(const CCompiler&) = delete;

  // $CC, cc, gcc, clang: the first that is there. Asked anew each time, since it costs microseconds.
  static bool is_present();

  // Compiles, or loads what was compiled before. Refuses: no compiler (NW_UNAVAILABLE), a compiler that fails, takes longer than
  // $NARROWS_COMPILE_SECONDS (60), or is killed (NW_FAILED), with its last lines and where the source lies.
  std::shared_ptr<const CObject> build(const std::string& source, const std::vector<std::string>& flags);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace narrows::cpu
