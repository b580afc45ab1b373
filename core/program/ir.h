// SPDX-License-Identifier: Apache-2.0
// ir.h -- a tensor program as data. text.h reads and prints it, types.h checks it, verify.h proves a schedule of it, schedule.h
// changes it, and a backend lowers it. docs/programs.md has the text and the meaning of each part.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace narrows::program {

// `index` is the type of sizes, loop variables and subscripts: a signed integer of 64 bits that may enter a subscript. It becomes a
// value by a cast. The others are the element types of docs/ops.md, and what a buffer holds.
enum class DType : uint8_t { index, boolean, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64 };

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;  // never changed once it is made, so programs share parts

// What a value or a subscript is computed from.
struct Expr {
  enum class Kind : uint8_t {
    integer,  // of `index`, or of an integer type: `integer`
    real,     // of a floating-point type: `real`, a value of that type
    boolean,  // `integer`, 0 or 1
    name,     // a size, a loop variable, an axis or an integer param: of `index`; a floating-point or bool param: of its type
    load,     // the element `operands` (each of `index`) of buffer `name`
    call,     // the function `name` of docs/ops.md. On `index`: add, sub, mul, floor_div, remainder, minimum, maximum, comparisons
    cast,     // operands[0] as `dtype`; from `index` it is exact or wraps
    present,  // bool: was the optional tensor `name` given?
    clamp,    // of `index`: the integer value operands[0], held between operands[1] and operands[2] (of `index`)
  };
  Kind kind;
  DType dtype;
  int64_t integer = 0;
  double real = 0;
  std::string name;
  std::vector<ExprPtr> operands;
};

struct Buffer {
  enum class Role : uint8_t { input, output, inout, allocated };
  enum class Scope : uint8_t { global, shared, local };  // of an allocated one; the others are global
  std::string name;
  DType dtype = DType::f32;
  std::vector<ExprPtr> shape;  // of sizes and integer params; an input's plain names bind sizes
  Role role = Role::input;
  Scope scope = Scope::global;
  bool optional = false;  // 'name?': the caller may leave it out
  // Of an allocated one: how many elements its memory has more along each dimension. No access reaches them. Empty: none.
  std::vector<int64_t> padding;
};

struct Param {
  std::string name;
  DType dtype = DType::f64;
  ExprPtr value;  // the default: of kind integer, real or boolean
};

struct Axis {
  // A spatial axis may run in any order; a reduction axis may where its update is associative; a carried one keeps its order.
  enum class Kind : uint8_t { spatial, reduction, carried };
  std::string name;
  Kind kind = Kind::spatial;
  ExprPtr extent;   // the axis runs over 0 <= name < extent
  ExprPtr binding;  // its value, from loop variables
};

struct Store {
  std::string buffer;
  std::vector<ExprPtr> indices;
  ExprPtr value;
};

// A unit of computation: the body runs once for each point of its axes, the init before the first update of each spatial point.
struct Block {
  std::string name;
  std::vector<Axis> axes;
  ExprPtr predicate;  // NULL: none. Where it is false, the loops' iteration runs nothing
  std::vector<std::pair<std::string, std::string>> notes;
  std::vector<Store> init;
  std::vector<Store> body;
};

struct For;
using Stmt = std::variant<std::shared_ptr<const For>, std::shared_ptr<const Block>>;

struct For {
  enum class Kind : uint8_t { serial, parallel, vectorize, unroll, bind, pipeline, tensorize };
  std::string name;
  ExprPtr extent;  // runs over 0 <= name < extent
  Kind kind = Kind::serial;
  std::string thread;     // of `bind`: "block.x" to "thread.z"
  int64_t stages = 0;     // of `pipeline`: the iterations of which copies may be under way at once (race.h)
  std::string intrinsic;  // of `tensorize`: the name of the unit's product (intrinsics.h)
  std::vector<std::pair<std::string, std::string>> notes;
  std::vector<Stmt> body;
};

struct Program {
  std::string name;
  std::vector<Buffer> tensors;  // inputs, outputs and in-out ones, in the order of a call: each kind in its own order
  std::vector<Param> params;
  std::vector<Buffer> allocations;
  std::vector<Stmt> body;
};

}  // namespace narrows::program
