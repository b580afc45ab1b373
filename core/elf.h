// SPDX-License-Identifier: Apache-2.0
// elf.h -- is this file a shared object that this process can load? Asked before dlopen, which crashes on a truncated file.
#pragma once

#include <string>

namespace narrows {

// "" when the file may be given to dlopen; else why not, in one line.
std::string elf_error(const std::string& path);

}  // namespace narrows
