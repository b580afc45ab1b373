// SPDX-License-Identifier: Apache-2.0
// sweep.h -- one operation, and every allocation of it failing in turn: the engine of allocations.cpp.
#pragma once

#include <narrows/narrows.h>

#include <functional>
#include <string>

#include "allocator.h"

namespace narrows::attack {

// What is told to the parent process, in shared memory.
struct Report {
  char where[256];  // what is under way, for who dies in the middle
  long operations, attempts, refused, tolerated, broken_by_loader, loader, failures;
};
extern Report* report;
extern nw_runtime* rt;  // of the operation under way

void wrong(const char* what, const nw_error* error = nullptr);  // counts, and prints the first twenty
// Live(), without what glibc keeps for the next dlerror() of the thread.
Live alive();
void expect_no_leak(const Live& before);
// What nw_backend says of all plugins of rt.
std::string inventory();

struct Operation {
  std::string name;
  std::function<int32_t(nw_error*)> run;
  std::function<bool()> right = [] { return true; };      // after success: it did all that it says
  std::function<bool()> untouched = [] { return true; };  // after a failure
  std::function<void()> before = [] {};                   // each attempt
  std::function<void()> undo = [] {};                     // what a success made
  std::function<void()> undo_failure = [] {};             // what a failure may keep: a plan that was made before it
  std::function<void()> setup = [] {}, teardown = [] {};  // around a failure and the attempt that follows
  bool keeps = false;                                     // a failure may leave lazily made things behind, until teardown
  bool allocates = true;                                  // false: it must not
};

// All n of one operation in this process, after it ran once, so that what is made once per process is there.
void sweep(const Operation& operation);
// All n of an operation that is the first of its process, each in a new one. What remains alive at the end must be what remains
// without a failure: what a process makes once.
void sweep_cold(Operation operation);

// Runs work in a child; false when it crashed, hung or ended otherwise.
bool in_child(unsigned seconds, const std::function<void()>& work);

}  // namespace narrows::attack
