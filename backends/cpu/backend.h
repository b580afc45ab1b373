// SPDX-License-Identifier: Apache-2.0
// backend.h -- the instance of the cpu backend, and its ops. plugin.cpp holds the table and turns exceptions into statuses;
// ops/<op>/ plans and launches one op.
#pragma once

#include "common/plugin.h"

namespace narrows::cpu {

using namespace common;

// How bf16 is multiplied: widened to f32; two at once, by AVX512_BF16; by AMX's tiles.
enum class Bf16Products { f32, dots, tiles };

class Programs;  // program/program.h

// What create() makes, once per runtime. Immutable afterwards.
struct Instance {
  const nw_host* host;
  // Index of the Highway target whose kernels are used: the best that the CPU has, capped by NARROWS_CPU_TARGET. See targets.h.
  int target_index;
  Bf16Products bf16_products;
  const char* target;                  // its name, as in NARROWS_CPU_TARGET
  std::shared_ptr<Programs> programs;  // what is kept of tensor programs

  int64_t num_threads() const { return host->num_threads; }

  // body(begin, end) over pieces of [0, n) of at least `grain`; how it is cut must not change results.
  template <class Body>
  void parallel_for(int64_t n, int64_t grain, Body&& body) const {
    host->parallel_for(
        host->ctx, n, grain, [](void* arg, int64_t begin, int64_t end) { (*static_cast<Body*>(arg))(begin, end); }, &body);
  }
};

using Op = common::Op<Instance>;
extern const Op conv1d, conv1d_backward, elementwise, elementwise_backward, lltm, lltm_backward;

}  // namespace narrows::cpu
