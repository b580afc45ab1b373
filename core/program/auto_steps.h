// SPDX-License-Identifier: Apache-2.0
// auto_steps.h -- what the parts of the default schedule share: steps that may be refused.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/program/auto.h"
#include "core/program/tree.h"

namespace narrows::program {

std::string quoted(const std::string& name);

class Steps {
 public:
  using Arguments = std::vector<std::pair<const char*, std::string>>;

  explicit Steps(Schedule* schedule) : schedule_(schedule) {}

  const Schedule& schedule() const { return *schedule_; }
  void restore(const Schedule& before) { *schedule_ = before; }

  // Takes a step; gives what it made. False, or nothing made: it was refused.
  bool take(const char* step, const Arguments& arguments, std::vector<std::string>* made = nullptr);
  std::vector<std::string> attempt(const char* step, const Arguments& arguments);

  Path path(const std::string& block) const;
  std::vector<std::string> loops(const std::string& block) const { return schedule_->loops(block); }

  void set_tiled(const std::string& block) { tiled_.insert(block); }
  bool is_tiled(const std::string& block) const { return tiled_.count(block) != 0; }

 private:
  Schedule* schedule_;
  std::set<std::string> tiled_;
};

// A block that adds products of which one factor moves along the result's last dimension and the other does not: a matrix product,
// a convolution. Its tile lies in registers; what is read along the tile's rows is packed first where it is large or lies
// crosswise. Of another reduction whose results lie along what it reads, the tile is one row.
void tile_contraction(Steps* steps, const std::string& block, const Machine& machine);

// The same for the threads of a GPU: a tile for each block, in shared memory, of which each thread has a part in registers.
// has_unit: whole tiles of f16 and bf16 are products of a matrix unit.
void tile_for_gpu(Steps* steps, const std::string& block, bool has_unit);

// Element-wise blocks are computed where they are read.
void inline_chains(Steps* steps);

// Producers move into the loop over the rows of the last block that reads them, where an iteration needs only one of their rows.
void share_rows(Steps* steps);

// The reduction axis along which a block reads a run; "": none.
std::string axis_of_rows(const Block& block);

// Is the block within the loop, and with fewer loops of its own than before?
bool has_lost_a_loop(const Steps& steps, const std::string& block, const std::string& loop, size_t before);

}  // namespace narrows::program
