// SPDX-License-Identifier: Apache-2.0
// intrinsics.h -- the products of small matrices that matrix units compute, by their names, and the loops that are one of them.
#pragma once

#include <string>

#include "core/program/ir.h"

namespace narrows::program {

// C[m, n] += A[m, k] * B[k, n]: factors of one type, exact products, sums of another in any order.
struct Intrinsic {
  const char* name;
  DType factors, sums;
  int64_t m, n, k;
};

const Intrinsic& need_intrinsic(const std::string& name);  // throws Failure, with the names that there are

// A nest of loops that is one product. A loop of one iteration has no role, and an extent of 1 needs no loop: then it is NULL.
struct Product {
  const Intrinsic* intrinsic = nullptr;
  const Block* block = nullptr;
  const For *m = nullptr, *n = nullptr, *k = nullptr;
  const Expr *a = nullptr, *b = nullptr;  // loads
};

// Of a loop that is tensorized. Throws Failure: what the nest has that the intrinsic has not.
Product require_product(const For& loop);

}  // namespace narrows::program
