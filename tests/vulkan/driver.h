// SPDX-License-Identifier: Apache-2.0
// driver.h -- Vulkan's functions as the backend finds them, with a hand in between: a call can be made to fail, and what is created
// and not destroyed is counted. It holds for what the test's own copy of the backend opens while a Driver lives: the parts that
// test_vulkan links (Opened), and runtimes of here().
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "loader.h"

namespace narrows::vulkan::test {

// What a device says of itself in the place of the truth.
struct Said {
  bool as_discrete = false;        // that it is a discrete GPU, so that copies are staged
  bool as_nvidia = false;          // that its driver is NVIDIA's own
  uint64_t largest = 0;            // bytes of the largest allocation, beyond which the driver has no memory; 0: its own limit
  uint32_t columns = 0, rows = 0;  // of work groups in a dispatch; 0: its own limits
  bool without_f64 = false;        // that it lacks shaderFloat64
};

class Driver {
 public:
  explicit Driver(const Said& said = {});
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Of the functions that create, allocate, record or submit, the call number `call` from now on (0: the next) gives `result`
  // instead. name: of these alone; "": of any.
  void fail(int call, VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY, const std::string& name = "");
  bool has_failed();  // that call was made; from then on, as after calm(), all are the driver's own again
  void calm();
  const std::set<std::string>& failed() const;  // the functions of which a call has failed so far
  static std::set<std::string> functions();     // those that can be made to fail

  void leave_out(const std::string& name);  // calls of a counted function are counted, and not made; "": all are

  int folded() const;            // dispatches of more than one row, so far
  uint64_t specialized() const;  // a number that stands for the constants of all pipelines made so far: for each the same is added
  uint32_t constant(uint32_t id) const;          // a specialization constant of the newest pipeline, id < 32; 0: it was given none
  size_t kept_pipelines() const;                 // bytes that the last pipeline cache began with
  int calls(const std::string& name) const;      // of a function, so far
  std::map<std::string, int> left_over() const;  // what was created and not destroyed, by the creating function, where not 0

 private:
  std::shared_ptr<Loader> loader_;
};

}  // namespace narrows::vulkan::test
