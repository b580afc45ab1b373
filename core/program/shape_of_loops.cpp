// SPDX-License-Identifier: Apache-2.0
// shape_of_loops.cpp -- see shape_of_loops.h.
#include "core/program/shape_of_loops.h"

#include <map>

#include "core/error.h"
#include "core/program/expr.h"
#include "core/program/intrinsics.h"
#include "core/program/text.h"
#include "core/program/tree.h"

namespace narrows::program {
namespace {

constexpr int64_t kMaxLanes = 1024, kMaxUnrolled = 4096;  // of one loop; stores of a nest of unrolled loops

int64_t require_constant(const For& loop, const char* kind) {
  const auto extent = constant(loop.extent);
  if (!extent)
    throw_failure(NW_INVALID, -1, "loop '%s' is %s and needs a constant extent, not %s", loop.name.c_str(), kind,
                  print(loop.extent).c_str());
  return *extent;
}

// Stores after unrolling. An extent that is not constant counts as one.
int64_t stores(const std::vector<Stmt>& body) {
  int64_t out = 0;
  for (const Stmt& stmt : body) {
    int64_t count = 0;
    if (const ForPtr* const loop = std::get_if<ForPtr>(&stmt)) {
      const bool is_unrolled = (*loop)->kind == For::Kind::unroll;
      const int64_t times = is_unrolled ? std::max<int64_t>(constant((*loop)->extent).value_or(1), 1) : 1;
      if (__builtin_mul_overflow(stores((*loop)->body), times, &count)) return kMaxUnrolled + 1;
    } else {
      count = static_cast<int64_t>(std::get<BlockPtr>(stmt)->body.size());
    }
    out = std::min(out + std::min(count, kMaxUnrolled + 1), kMaxUnrolled + 1);
  }
  return out;
}

struct Threads {
  std::map<std::string, const For*> of_nest;  // the first loop of each thread

  void visit(const std::vector<Stmt>& body, std::vector<const For*>& around) {
    for (const Stmt& stmt : body) {
      const ForPtr* const loop = std::get_if<ForPtr>(&stmt);
      if (loop == nullptr) continue;
      const For& it = **loop;
      const bool is_bound = it.kind == For::Kind::bind;
      if (is_bound) add(it, around);
      if (is_bound) around.push_back(&it);
      visit(it.body, around);
      if (is_bound) around.pop_back();
    }
  }

  void add(const For& loop, const std::vector<const For*>& around) {
    for (const For* const outer : around) {
      if (outer->thread == loop.thread)
        throw_failure(NW_INVALID, -1, "loop '%s' is bound to %s, as is the loop '%s' around it", loop.name.c_str(),
                      loop.thread.c_str(), outer->name.c_str());
    }
    const auto [found, is_new] = of_nest.emplace(loop.thread, &loop);
    if (!is_new && !same(found->second->extent, loop.extent))
      throw_failure(NW_INVALID, -1, "loops '%s' and '%s' of one kernel are bound to %s, but their extents are %s and %s",
                    found->second->name.c_str(), loop.name.c_str(), loop.thread.c_str(), print(found->second->extent).c_str(),
                    print(loop.extent).c_str());
  }
};

}  // namespace

void require_shape(const For& loop) {
  if (loop.kind == For::Kind::vectorize && require_constant(loop, "vectorized") > kMaxLanes)
    throw_failure(NW_INVALID, -1, "loop '%s' is vectorized over %s iterations; at most %lld are possible", loop.name.c_str(),
                  print(loop.extent).c_str(), static_cast<long long>(kMaxLanes));
  if (loop.kind == For::Kind::tensorize) require_product(loop);
  if (loop.kind != For::Kind::unroll) return;
  require_constant(loop, "unrolled");
  if (stores({std::make_shared<const For>(loop)}) > kMaxUnrolled)
    throw_failure(NW_INVALID, -1, "unrolling loop '%s' gives more than %lld stores", loop.name.c_str(),
                  static_cast<long long>(kMaxUnrolled));
}

void require_threads(const Program& program) {
  for (const Stmt& stmt : program.body) {
    Threads threads;
    std::vector<const For*> around;
    threads.visit({stmt}, around);
  }
}

}  // namespace narrows::program
