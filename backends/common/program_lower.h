// SPDX-License-Identifier: Apache-2.0
// program_lower.h -- a program as what runs: loops and the stores in them, with axes replaced by what they are bound to, inits
// where they happen, and allocations where their elements live. It holds for every size and stride. What every backend starts from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program_linear.h"

namespace narrows::common {

// What a loop is that a `tensorize` step marked (intrinsics.h): its loops by their roles, and who computes it.
struct UnitProduct {
  std::string intrinsic, m, n, k;
  bool is_joint = false;       // the threads of a warp, together: program_products.h
  std::string why_plain = "";  // if it is not
};

// Of a loop whose first nodes copy for iterations ahead: program_ahead.h.
struct Ahead {
  int64_t stages = 1;                      // iterations that have the buffers for themselves
  size_t copies = 0;                       // nodes
  std::vector<std::string> buffers;        // that they write
  std::vector<std::string> overlaid = {};  // of sums, all of which lie in registers meanwhile: in the same memory
};

// A loop over `body`, or the stores of one block at one point of its loops.
struct Node {
  enum class Kind { loop, stores };
  Kind kind = Kind::stores;

  std::string name;  // of the loop, which no loop around it or in it has, too; of the block
  // loop
  ir::ExprPtr extent;
  ir::For::Kind loop_kind = ir::For::Kind::serial;
  std::string thread;
  std::optional<UnitProduct> product;
  int64_t stages = 0;  // of a `pipeline` loop
  std::optional<Ahead> ahead;
  std::string why_in_order = "";  // of a `pipeline` loop without it
  bool moved_in = false;          // see move_lanes_inwards()
  std::vector<Node> body;
  std::vector<size_t> allocations;  // numbers in Lowered::allocations; their elements live through one iteration
  // stores
  std::vector<ir::ExprPtr> conditions;  // all must hold, else nothing happens
  std::vector<ir::Store> stores;        // in order: what one writes, a later one reads
  bool is_init = false;
  bool contract = false;  // see fusible_product()
  // in kernels of a GPU: program_kernels.h
  Names first_only;                  // of these loops, the first iteration alone runs it
  std::vector<size_t> thread_loops;  // numbers of the loops around it that are bound to threads
  bool has_barrier = false;          // the threads of a block wait for each other before it
};

struct Lowered {
  ir::Program program;                  // its body is not looked at any more
  std::vector<ir::Buffer> allocations;  // with the shapes that they shrank to, and their padding
  std::vector<size_t> outermost;        // the allocations that live through the whole call
  std::vector<Node> body;
  Names fresh;  // allocations of which every element that is read was written by the same iteration of their innermost shared loop
};

// Which operand of a sum of f32 or f64 is a product that need not be rounded before it is added, where the block's note "contract"
// is "true".
std::optional<size_t> fusible_product(const ir::Expr& expr, bool contract);

// The loops and stores alone: allocations are not placed yet.
Lowered lower_loops(const ir::Program& program);

// Where an init happens: before the outermost of the block's loops that its reduction or carried axes depend on and that has
// another extent than 1. So it has happened where none of the updates runs.
Lowered lower(const ir::Program& program);

// The extents of loops in a body that are numbers.
void collect_extents(const std::vector<Node>& body, Extents* extents);

}  // namespace narrows::common
