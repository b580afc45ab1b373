// SPDX-License-Identifier: Apache-2.0
// recent.h -- what was made of the texts that were asked for last. It has no lock: its user's is held.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <string>
#include <string_view>

namespace narrows::common {

template <class Value>
class Recent {
 public:
  explicit Recent(size_t most) : most_(most) {}

  std::shared_ptr<Value> find(std::string_view text) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.text == text; });
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return found->value;
  }

  // Gives back what it dropped for it, so that it can be freed without the lock.
  std::shared_ptr<Value> keep(std::string_view text, std::shared_ptr<Value> value) {
    entries_.push_front({std::string(text), std::move(value)});
    if (entries_.size() <= most_) return nullptr;
    const std::shared_ptr<Value> dropped = entries_.back().value;
    entries_.pop_back();
    return dropped;
  }

 private:
  struct Entry {
    std::string text;
    std::shared_ptr<Value> value;
  };
  std::list<Entry> entries_;  // the one used last in front
  const size_t most_;
};

}  // namespace narrows::common
