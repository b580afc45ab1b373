// SPDX-License-Identifier: Apache-2.0
// block.cpp -- see block.h. Each thread of a block that waits at a barrier is a fiber of its own; those that never wait share one.
#include "block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "hip/hip_runtime.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else  // nobody has to know whose stack is whose
inline void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
inline void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

namespace hip_emulation {

Position thread_index, block_index, block_size, grid_size;

namespace {

namespace fcontext = boost::context::detail;

struct Fiber {
  fcontext::fcontext_t context = nullptr;
  char* stack = nullptr;
  unsigned thread = 0;         // whose turn it has
  bool waits = false;          // at a barrier
  void* fake_stack = nullptr;  // AddressSanitizer's
};

constexpr size_t kStackSize = 512 << 10;  // kernels are compiled without their registers

struct Grid {
  void (*kernel)(void*);
  void* argument;
};
Grid grid;
Fiber* running = nullptr;
std::vector<Fiber*>& idle = *new std::vector<Fiber*>;  // kernels may run as long as the process does

const void* host_stack = nullptr;
size_t host_stack_size = 0;

void to_host() {
  Fiber& self = *running;
  __sanitizer_start_switch_fiber(&self.fake_stack, host_stack, host_stack_size);
  self.context = fcontext::jump_fcontext(self.context, nullptr).fctx;  // self.context is the host's while it runs
  __sanitizer_finish_switch_fiber(self.fake_stack, &host_stack, &host_stack_size);
}

void live(fcontext::transfer_t from) {
  running->context = from.fctx;
  __sanitizer_finish_switch_fiber(nullptr, &host_stack, &host_stack_size);
  for (;;) {
    grid.kernel(grid.argument);
    running->waits = false;
    to_host();
  }
}

// Until it ends or waits.
void take_turn(Fiber& fiber) {
  thread_index.x = fiber.thread;
  running = &fiber;
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.stack, kStackSize);
  fiber.context = fcontext::jump_fcontext(fiber.context, nullptr).fctx;
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  running = nullptr;
}

// Their stacks end at a page that nobody may touch.
Fiber* take_fiber() {
  if (!idle.empty()) {
    Fiber* const fiber = idle.back();
    idle.pop_back();
    return fiber;
  }
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, page + kStackSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
    std::perror("hip emulation: a stack");
    std::abort();
  }
  auto fiber = std::make_unique<Fiber>();
  fiber->stack = static_cast<char*>(memory) + page;
  fiber->context = fcontext::make_fcontext(fiber->stack + kStackSize, kStackSize, live);
  return fiber.release();
}

// Every second turn goes backwards, so that what a missing barrier spares comes from either neighbour.
void run_block() {
  std::vector<Fiber*> waiting;
  const bool backwards = block_index.x % 2 != 0;
  Fiber* fiber = nullptr;
  for (unsigned i = 0; i < block_size.x; ++i) {
    if (fiber == nullptr) fiber = take_fiber();
    fiber->thread = backwards ? block_size.x - 1 - i : i;
    take_turn(*fiber);
    if (!fiber->waits) continue;
    waiting.push_back(std::exchange(fiber, nullptr));
  }
  if (fiber != nullptr) idle.push_back(fiber);
  while (!waiting.empty()) {
    std::vector<Fiber*> turn;
    turn.swap(waiting);
    std::reverse(turn.begin(), turn.end());
    for (Fiber* next : turn) {
      take_turn(*next);
      (next->waits ? waiting : idle).push_back(next);
    }
  }
}

}  // namespace

void barrier() {
  running->waits = true;
  to_host();
}

void run_grid(unsigned blocks, unsigned threads, void (*kernel)(void*), void* argument) {
  grid = {kernel, argument};
  grid_size.x = blocks;
  block_size.x = threads;
  for (unsigned i = 0; i < blocks; ++i) {
    block_index.x = i;
    run_block();
  }
}

}  // namespace hip_emulation
