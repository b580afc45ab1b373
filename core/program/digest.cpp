// SPDX-License-Identifier: Apache-2.0
// digest.cpp -- see digest.h.
#include "core/program/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/error.h"
#include "core/program/text.h"

namespace narrows::program {

std::string digest(const Program& program) { return digest_of(print(program)); }

std::string digest_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return format("%016llx%016llx", static_cast<unsigned long long>(hash.high64), static_cast<unsigned long long>(hash.low64));
}

}  // namespace narrows::program
