// SPDX-License-Identifier: Apache-2.0
// program_products.h -- which loops that are marked as a matrix unit's products a unit computes on a GPU. A nest that is in no loop
// of thread.x is run by the first thread along x alone. If the threads that it leaves out so are whole warps (thread.x of 32, or x
// of 4 and y of 8), all threads of the warp take part in the product instead: they reach it together. program_printer_products.cpp
// prints it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program_kernels.h"

namespace narrows::common {

// Decides for each marked loop of a kernel whose loops are bound.
void mark_joint(Kernel* kernel, const GpuLimits& limits);

// Takes back the decision for loops in which threads wait for each other: to be asked when barriers are set.
void unmark_waiting(std::vector<Node>* body);

// In a kernel whose loops are not bound there are only plain loops: takes the marks away, and gives a remark for each.
std::vector<std::string> plain_products(Node* nest);

std::string remark(const UnitProduct& product);

// The loops that warps compute together, within a node or the node itself.
void for_each_joint(const Node& node, const std::function<void(const Node&)>& visit);

// What a marked loop adds up. Both factors are loads; a moves along m, b along n.
struct ProductParts {
  const Node* leaf;
  const ir::Store* sum;
  const ir::Expr *a, *b;
};
ProductParts parts_of(const Node& product);

bool has_barrier_in(const Node& node);

}  // namespace narrows::common
