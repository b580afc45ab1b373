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

class Driver {
 public:
  // as_discrete: the device says that it is a discrete GPU, so that copies are staged.
  // largest: bytes of the largest allocation, as of the device's limit, beyond which the driver has no memory; 0: its own limit.
  explicit Driver(bool as_discrete = false, uint64_t largest = 0);
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

  size_t kept_pipelines() const;                 // bytes that the last pipeline cache began with
  int calls(const std::string& name) const;      // of a function, so far
  std::map<std::string, int> left_over() const;  // what was created and not destroyed, by the creating function, where not 0

 private:
  std::shared_ptr<Loader> loader_;
};

}  // namespace narrows::vulkan::test
