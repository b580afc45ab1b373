// SPDX-License-Identifier: Apache-2.0
// shape_cases.h -- the shape rules that plugins/shapes.cpp declares and test_shape_rule.cpp evaluates: op "shapes.<name>/1", with
// so many inputs (all of them may be absent, as far as the declaration goes) and outputs.
#pragma once

#include <cstdint>

namespace narrows::test {

struct RuleCase {
  const char* name;
  uint32_t inputs, outputs;
  const char* rule;
};

inline constexpr RuleCase kRules[] = {
    {"shapes.matmul/1", 2, 1, "N,C ; C,M -> N,M"},
    {"shapes.ranks/1", 1, 1, "N,C,L -> N,L | C,L -> L | L -> ()"},
    {"shapes.literal/1", 1, 1, "2,N -> N,2"},
    {"shapes.optional/1", 2, 1, "N ; M? -> N"},
    {"shapes.any/1", 3, 1, "* ; ? ; N -> N"},
    {"shapes.unchecked/1", 2, 1, "n, k+1"},
    {"shapes.arithmetic/1", 1, 1, "A,B -> A+B, A-B, A*B, A//B, max(A,B), min(A,B), (A+B)*2, A+B*2"},
    {"shapes.associative/1", 1, 1, "A -> 10-A-1, 100//A//2, 2*A+1, 100//(A*2), 7 - (A - 1)"},
    {"shapes.floor/1", 1, 1, "n//k+10"},
    {"shapes.product/1", 1, 1, "A -> A*n"},
    {"shapes.sum/1", 1, 1, "n+k"},
    {"shapes.difference/1", 1, 1, "n-k"},
    {"shapes.fields/1", 1, 1, "s+100, u"},
    {"shapes.wide/1", 1, 1, "wide//2"},
    {"shapes.expression/1", 1, 1, "N,N+1 -> N"},
    {"shapes.order/1", 2, 1, "N+1 ; N -> N"},
    {"shapes.repeated/1", 2, 1, "N,N ; N -> N"},
    {"shapes.scalar/1", 2, 1, "() ; N -> N | N ; () -> ()"},
    {"shapes.two/1", 1, 2, "N -> N ; N,N+1"},
    {"shapes.like/1", 2, 2, "like 1 ; like 0"},
    {"shapes.broadcast/1", 3, 1, "broadcast"},
    {"shapes.mixed/1", 2, 3, "N,C ; ? -> like 0 ; broadcast ; N*C"},
    {"shapes.spaces/1", 2, 1, "  N ,C;M->N ,  C ,M  "},
    {"shapes.unbound/1", 2, 1, "N ; M? -> N+M"},
    {"shapes.nested/1", 1, 1, "A -> max(min(A,n),max(2,k-1)), ((A))"},
    {"shapes.same/1", 2, 1, "... ; ...? -> ..."},
    {"shapes.rows/1", 2, 2, "...,D ; D -> ... ; ..., D, n"},
    {"shapes.late/1", 2, 1, "...,A? ; ... -> A, 2 | ? ; ...,A,A -> ..."},
    {"shapes.absent/1", 2, 1, "* ; ...? -> ..."},
};
inline constexpr uint32_t kNumRules = sizeof kRules / sizeof kRules[0];

struct RuleParams {
  int64_t n = 0, k = 0;
  int32_t s = 0;
  uint8_t u = 0;
  uint8_t unused[3] = {};
  double real = 0;
  uint64_t wide = 0;
};

}  // namespace narrows::test
