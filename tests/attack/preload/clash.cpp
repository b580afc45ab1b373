// SPDX-License-Identifier: Apache-2.0
// clash.cpp -- to be preloaded: symbols that sound like Narrows' own, and end the process when they are called. Nothing of Narrows
// may be looked up by name in the process.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

struct nw_op;
struct nw_sig;
struct nw_options;

struct nw_runtime {
  static nw_runtime* create(const nw_options&);
  void load(const std::string&);
  const nw_op* find_op(const std::string&) const;
};
nw_runtime* nw_runtime::create(const nw_options&) { std::abort(); }
void nw_runtime::load(const std::string&) { std::abort(); }
const nw_op* nw_runtime::find_op(const std::string&) const { std::abort(); }

namespace narrows {

class Backend;
struct Contract;
class ThreadPool {
 public:
  explicit ThreadPool(uint32_t);
  ~ThreadPool();
  void parallel_for(int64_t, int64_t, void (*)(void*, int64_t, int64_t), void*);
};
ThreadPool::ThreadPool(uint32_t) { std::abort(); }
ThreadPool::~ThreadPool() { std::abort(); }
void ThreadPool::parallel_for(int64_t, int64_t, void (*)(void*, int64_t, int64_t), void*) { std::abort(); }

std::string format(const char*, ...) { std::abort(); }
void throw_failure(int32_t, int32_t, const char*, ...) { std::abort(); }
std::string elf_error(const std::string&) { std::abort(); }
std::string own_folder() { std::abort(); }
std::unique_ptr<int> load_plugin(const std::string&) { std::abort(); }
const std::vector<const Contract*>& builtins() { std::abort(); }
const Contract* find_builtin(const std::string&) { std::abort(); }

namespace cpu {
struct Instance;
void refuse(int32_t, int32_t, const char*, ...) { std::abort(); }
int forced_kernel(const nw_sig&, const char* const*) { std::abort(); }
int conv1d = 1, lltm = 2, elementwise = 3;
}  // namespace cpu
}  // namespace narrows

extern "C" {
int plan() { std::abort(); }
int launch() { std::abort(); }
int table = 4;
int narrows_test_preloaded = 1;  // by which the test sees that this library is there
}
