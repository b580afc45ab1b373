// SPDX-License-Identifier: Apache-2.0
// allocator.h -- malloc and its family, defined in the program so that every library of the process uses them, with a switch: the
// n-th allocation from now fails, or it and all after it. Blocks that are alive are counted. glibc only; not under a sanitizer,
// which brings an allocator of its own.
#pragma once

#include <cstddef>

namespace narrows::attack {

enum class Failing { once, onwards };

// The n-th allocation (1: the next) of any thread fails with ENOMEM.
void fail_allocations(Failing how, long n);
// The n-th thread that is to be started is not granted: EAGAIN.
void fail_threads(Failing how, long n);

struct Count {
  long asked;  // since the switch was turned on
  long failed;
};
Count stop_failing();

// Blocks alive that were allocated since this program began, without those of ld.so, which keeps what it loaded.
struct Live {
  long blocks;
  long mark;  // number of the last allocation
};
Live live();
// Prints size and allocating library of what is alive and younger than `since`; to stderr.
void print_live_since(const Live& since);

}  // namespace narrows::attack
