// SPDX-License-Identifier: Apache-2.0
// c_source.h -- a lowered program as C: explicit vectors by the GNU vector extensions, tiles in registers, full tiles apart from
// partial ones. No name of the program reaches the text.
#pragma once

#include <string>
#include <vector>

#include "backend.h"
#include "common/program_bind.h"

namespace narrows::cpu {

// What the text is written for.
struct CTarget {
  int vector_bytes;
  bool fuses;              // it has a fused multiply-add
  bool rounds;             // it has instructions that round to an integer
  bool contracts = false;  // the compiler is told to fuse, whether this program may or not
};

// A number that the function is given at run time.
struct CNumber {
  enum class Kind { size, stride, param, cost, kept };
  Kind kind;
  std::string name;            // of the size or param, of the buffer
  size_t dimension = 0;        // of a stride
  const Node* loop = nullptr;  // of a cost: one iteration of this parallel loop
  // kept: 0 if the call has so many bytes that results are written past the caches, else 1
};

// A function of docs/ops.md that is called: a kernel of elementwise. `function` is empty for a conversion.
struct CFunction {
  std::string function;
  ir::DType from, to;
  bool operator==(const CFunction&) const = default;
};

struct CSource {
  std::string text;
  std::vector<std::string> buffers;
  std::vector<CNumber> numbers;
  std::vector<CFunction> functions;
  bool contracts = false;  // products may be fused where the text adds them directly
};

// The entry that the text defines, and what it is handed. The text declares the same structs.
inline constexpr const char* kCEntry = "narrows_program";
struct CServices {
  void* context;
  void (*parallel)(void* context, int64_t n, double cost, void (*body)(void* arg, int64_t slot, int64_t begin, int64_t end),
                   void* arg);
  void (*enter)(void* context, int64_t slot, char** base);  // sets the bases of a thread's own allocations
  void (*call)(const void* function, const void* a, const void* b, const void* c, void* out, int64_t n, double alpha);
  const void* const* functions;
};
using CEntry = void (*)(char* const* base, const int64_t* numbers, const CServices* services);

// The text depends on the program, on which tensors are present, and on which strides are 1 or, of a dense tensor of constant
// shape, known; not on sizes, other strides or addresses.
CSource print_c(const Bound& bound, const CTarget& target);

}  // namespace narrows::cpu
