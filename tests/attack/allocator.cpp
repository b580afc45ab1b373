// SPDX-License-Identifier: Apache-2.0
// allocator.cpp -- see allocator.h.
#include "allocator.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t align, size_t size);
void __libc_free(void* block);
}

namespace narrows::attack {
namespace {

// ---- the switches ----

struct Switch {
  std::atomic<bool> on{false};
  std::atomic<long> asked{0}, failed{0};
  std::atomic<long> n{0};
  std::atomic<Failing> how{Failing::once};

  void turn_on(Failing as, long at) {
    asked = failed = 0;
    n = at;
    how = as;
    on = true;
  }
  bool fails() {
    if (!on.load(std::memory_order_relaxed)) return false;
    const long mine = asked.fetch_add(1) + 1;
    if (how == Failing::once ? mine != n : mine < n) return false;
    failed.fetch_add(1);
    return true;
  }
};
Switch memory, threads;

// ---- blocks alive: an open-addressed table, without memory of its own to ask for ----

struct Block {
  void* at;
  const void* caller;
  size_t size;
  long number;
};
constexpr size_t kSlots = size_t{1} << 17;
Block table[kSlots];
std::atomic_flag locked = ATOMIC_FLAG_INIT;
long num_blocks, last_number;
uintptr_t loader_begin, loader_end;  // ld.so

class Lock {
 public:
  Lock() {
    while (locked.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  ~Lock() { locked.clear(std::memory_order_release); }
};

size_t slot_of(const void* at) { return (reinterpret_cast<uintptr_t>(at) >> 4) * 0x9E3779B97F4A7C15u >> (64 - 17); }
size_t next(size_t slot) { return (slot + 1) % kSlots; }

void find_loader() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        if (std::strstr(info->dlpi_name, "/ld-linux") == nullptr) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
          const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;
          if (loader_begin == 0) loader_begin = begin;
          loader_end = end;
        }
        return 1;
      },
      nullptr);
}

void* remember(void* at, size_t size, const void* caller) {
  const auto from = reinterpret_cast<uintptr_t>(caller);
  if (at == nullptr || from - loader_begin < loader_end - loader_begin) return at;
  const Lock lock;
  if (num_blocks == kSlots / 2) std::abort();
  size_t slot = slot_of(at);
  while (table[slot].at != nullptr) slot = next(slot);
  table[slot] = {at, caller, size, ++last_number};
  ++num_blocks;
  return at;
}

void forget(const void* at) {
  if (at == nullptr) return;
  const Lock lock;
  size_t slot = slot_of(at);
  while (table[slot].at != at) {
    if (table[slot].at == nullptr) return;  // ld.so's
    slot = next(slot);
  }
  --num_blocks;
  for (size_t hole = slot;;) {  // what follows moves up, unless it would move before its own place
    table[hole].at = nullptr;
    do {
      slot = next(slot);
      if (table[slot].at == nullptr) return;
    } while ((slot - slot_of(table[slot].at)) % kSlots < (slot - hole) % kSlots);
    table[hole] = table[slot];
    hole = slot;
  }
}

bool refused() {
  if (!memory.fails()) return false;
  errno = ENOMEM;
  return true;
}

[[gnu::constructor]] void begin() { find_loader(); }

}  // namespace

void fail_allocations(Failing how, long n) { memory.turn_on(how, n); }
void fail_threads(Failing how, long n) { threads.turn_on(how, n); }

Count stop_failing() {
  Switch& used = threads.on ? threads : memory;
  used.on = false;
  return {used.asked, used.failed};
}

Live live() {
  const Lock lock;
  return {num_blocks, last_number};
}

void print_live_since(const Live& since) {
  for (const Block& block : table) {
    if (block.at == nullptr || block.number <= since.mark) continue;
    Dl_info info{};
    dladdr(block.caller, &info);
    std::fprintf(stderr, "    alive: %zu bytes, allocated by %s+0x%zx %s\n", block.size,
                 info.dli_fname != nullptr ? info.dli_fname : "?",
                 reinterpret_cast<uintptr_t>(block.caller) - reinterpret_cast<uintptr_t>(info.dli_fbase),
                 info.dli_sname != nullptr ? info.dli_sname : "");
  }
}

}  // namespace narrows::attack

// ---- what the process calls ----

using namespace narrows::attack;

extern "C" {

void* malloc(size_t size) { return refused() ? nullptr : remember(__libc_malloc(size), size, __builtin_return_address(0)); }

void* calloc(size_t count, size_t size) {
  return refused() ? nullptr : remember(__libc_calloc(count, size), count * size, __builtin_return_address(0));
}

void* realloc(void* old, size_t size) {
  if (size != 0 && refused()) return nullptr;
  forget(old);  // before another thread can be given the same address
  void* const block = __libc_realloc(old, size);
  return remember(block, size, __builtin_return_address(0));
}

void* memalign(size_t align, size_t size) {
  return refused() ? nullptr : remember(__libc_memalign(align, size), size, __builtin_return_address(0));
}

void* aligned_alloc(size_t align, size_t size) {
  return refused() ? nullptr : remember(__libc_memalign(align, size), size, __builtin_return_address(0));
}

int posix_memalign(void** out, size_t align, size_t size) {
  if (memory.fails()) return ENOMEM;
  void* const block = remember(__libc_memalign(align, size), size, __builtin_return_address(0));
  if (block != nullptr) *out = block;
  return block != nullptr ? 0 : ENOMEM;
}

void free(void* block) {
  forget(block);
  __libc_free(block);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* arg) {
  using Function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_create"));
  return threads.fails() ? EAGAIN : real(thread, attributes, start, arg);
}
}
