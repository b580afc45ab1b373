// SPDX-License-Identifier: Apache-2.0
// matrices.h -- products of matrix units as GLSL's cooperative matrices, each held by a subgroup: what common/program_printer.h
// leaves to a dialect.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/program_printer.h"
#include "physical.h"

namespace narrows::vulkan {

namespace ir = ::narrows::program;
using common::Tile;

// Of a device: what it multiplies, as far as the compiler knows it, too.
struct ProductUnits {
  MatrixUnits units;
  int64_t shared_bytes = 48 << 10;  // of a work group
  // The threads of a subgroup run in step, and its barrier would make the whole work group wait: so does Mesa's lavapipe.
  bool in_step = false;
};

// Threads that a program's product is shared out to: as many as there are in a schedule for other GPUs. Where a subgroup has fewer,
// the first one of them computes it.
int64_t unit_lanes(const MatrixUnits& units);

class MatrixPrinter : public common::KernelPrinter {
 public:
  MatrixPrinter(const common::KernelProgram& program, const common::Bound& bound, const common::KernelLayout& layout,
                const ProductUnits& units)
      : KernelPrinter(program, bound, layout), units_(units) {}

 protected:
  void begin_matrices(const common::Kernel& kernel);
  std::string shared_array(const common::SharedArray& array);  // its declaration
  // Of an allocation in shared memory whose elements lie in uvec4s, eight in each: these are written whole.
  bool is_packed(const std::string& buffer) const { return packed_.count(buffer) != 0; }
  std::string in_array(const std::string& buffer, const std::string& array, const std::string& index) override;
  std::string matrix_definitions() const;  // ahead of the kernel's text; "": it has no matrices
  std::string matrix_arrays() const;       // in shared memory

 private:
  struct Shape {
    int64_t m = 0, n = 0, k = 0;         // of one multiplication; 0: the unit has none that fits
    const common::Node* pair = nullptr;  // two iterations of this loop have their columns side by side, and make one product
  };
  struct Side {  // a factor of a tile, or its sums
    const std::string& buffer;
    const std::vector<ir::ExprPtr>& indices;
    std::string rows, columns;  // loops
    int64_t num_rows, num_columns;
    std::string array;  // of matrices
  };
  struct Layout {  // in shared memory
    bool by_columns;
    int64_t pitch;  // elements from a row to the next one, or from a column
  };
  enum class Role { a, b, sum };

  bool writes_eights(const std::vector<common::Node>& body, const std::string& buffer);
  bool is_loop_of_eights(const common::Node& loop, const std::string& buffer);

  std::string why_plain(const Tile& tile) override;
  void declare_sums(const Tile& tile) override;
  void move_sums(const Tile& tile, bool store) override;
  void multiply(const Tile& tile) override;

  const MatrixUnit& unit_of(const Tile& tile) const;
  Shape shape_of(const Tile& tile) const;
  Side side_of(const Tile& tile, Role role) const;
  std::vector<const common::Node*> loops_of_side(const Tile& tile, Role role) const;
  std::optional<Layout> layout_of(const Side& side);
  std::optional<int64_t> pitch_of(const Side& side, const std::string& loop);
  int64_t patch_bytes(bool is_sum) const;

  std::string matrix_type(const Tile& tile, Role role) const;
  int64_t count_matrices(const Tile& tile, Role role) const;
  std::string number_of(const Tile& tile, Role role, int64_t row, int64_t column);
  void for_each_matrix(const Tile& tile, Role role, const std::function<void(int64_t row, int64_t column)>& body);
  void place_side(const Tile& tile, Role role, const std::string& row, const std::string& column);
  void move(const Tile& tile, Role role, int64_t row, int64_t column, bool store);
  void move_by_patch(const Tile& tile, Role role, int64_t row, int64_t column, bool store);
  std::string declare(const Tile& tile, Role role);
  void read_factor(const Tile& tile, Role role);
  void open_unit();
  void close_unit();

  const ProductUnits units_;
  std::string a_, b_;  // arrays of the factors at hand
  // of a kernel
  const common::Kernel* kernel_of_loops_ = nullptr;
  bool has_joint_ = false;
  common::Names packed_;
  int64_t shared_used_ = 0;  // bytes
  uint32_t subgroup_ = 0;    // threads; 0: there are no matrices
  bool has_bf16_ = false, patches_factors_ = false, patches_sums_ = false;
};

}  // namespace narrows::vulkan
