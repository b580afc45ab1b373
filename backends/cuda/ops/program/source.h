// SPDX-License-Identifier: Apache-2.0
// source.h -- the kernels of a program as text for the vendor's run-time compiler: CUDA and HIP alike. No name of the program
// reaches the text. Step 5 of a tensor's path.
#pragma once

#include <string>
#include <vector>

#include "common/program_bind.h"
#include "common/program_kernels.h"

namespace narrows::gpu {

namespace ir = ::narrows::program;

// What a kernel is handed, 8 bytes each, in one struct.
struct Slot {
  enum class Kind {
    buffer,  // an address
    size,    // of a size or an integer param
    stride,  // in elements
    param,   // its bits, as its dtype
    blocks,  // how many blocks or, of a kernel whose loops are not bound, iterations there are
    parts,   // the address of what blocks and threads have of their own
    part,    // the bytes of one block's part
    place,   // of an allocation: bytes into a block's part
    bytes,   // of an allocation that each thread has
  };
  Kind kind;
  std::string name;
  size_t dimension = 0;
  bool operator==(const Slot&) const = default;
};

struct KernelSource {
  std::string name;  // of its function
  std::vector<Slot> slots;
  int64_t threads = 1;      // of a block
  bool is_strided = false;  // blocks go on until there are no more iterations: they have parts of the workspace
};

struct GpuSource {
  std::string text;
  std::vector<KernelSource> kernels;  // as in KernelProgram
};

// What is known of a call beside its layout.
struct GpuLayout {
  bool short_indices = false;            // all indices fit into 32 bits
  std::map<std::string, int> alignment;  // of buffers: elements of which addresses and strides other than 1 are multiples
};

inline constexpr int kFlatThreads = 256;  // of a block whose kernel has no loop that is bound

GpuSource print_gpu(const common::KernelProgram& program, const common::Bound& bound, const GpuLayout& layout);

// What every text begins with: types, conversions, and, `with_functions`, the functions of elementwise.
std::string gpu_prelude(bool with_functions);

}  // namespace narrows::gpu
