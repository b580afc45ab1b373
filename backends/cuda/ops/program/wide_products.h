// SPDX-License-Identifier: Apache-2.0
// wide_products.h -- tiles of products where the unit's own are 16 x 16 x 16, as AMD's: two of a program's side by side are one.
// Each thread of a wave has NW_FACTORS elements of a factor and NW_SUMS sums, whose places nw_depth() and nw_row() give:
// prelude.cpp.
#pragma once

#include <string>
#include <vector>

#include "common/program_printer.h"

namespace narrows::gpu {

namespace ir = ::narrows::program;

class WideProducts : public common::KernelPrinter {
 public:
  using KernelPrinter::KernelPrinter;

 protected:
  std::string why_plain(const common::Tile& tile) override;
  void declare_sums(const common::Tile& tile) override;
  void move_sums(const common::Tile& tile, bool store) override;
  void multiply(const common::Tile& tile) override;

 private:
  using Loops = std::vector<const common::Node*>;
  // The array's element that the tile's loops are at, and the declaration of all of them.
  std::string one_of(const std::string& array, const Loops& loops, const common::Node* pair) const;
  void declare(const char* type, const std::string& array, const Loops& loops, const common::Node* pair);
  std::string read_factor(const common::Tile& tile, bool is_a);
};

}  // namespace narrows::gpu
