// SPDX-License-Identifier: Apache-2.0
// cpu_quota.h -- how much CPU time the cgroups of this process grant it.
#pragma once

#include <cstdint>
#include <string>

namespace narrows {

// In CPUs, rounded up: the smallest quota of the process's cgroups and their ancestors, of version 1 and 2. 0: there is none.
// `root` stands before every path that is read; "" outside tests.
uint64_t cpu_quota(const std::string& root);

}  // namespace narrows
