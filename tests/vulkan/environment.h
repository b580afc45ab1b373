// SPDX-License-Identifier: Apache-2.0
// environment.h -- a variable of the environment, for as long as it lives; then it is what it was.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace narrows::vulkan::test {

class EnvironmentVariable {
 public:
  // std::nullopt: it is not set.
  EnvironmentVariable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }
  ~EnvironmentVariable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace narrows::vulkan::test
