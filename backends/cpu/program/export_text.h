// SPDX-License-Identifier: Apache-2.0
// export_text.h -- what is particular to the programs of an exported plugin, as C for the line TABLES of exported.c: declarations,
// sizes and places of buffers, the numbers of each kernel, the functions that kernels call.
#pragma once

#include <string>
#include <vector>

#include "program/c_source.h"

namespace narrows::cpu {

struct ExportedKernel {
  std::string entry;  // the C function
  CSource source;
};

struct ExportedProgram {
  std::string op;  // its name: "vendor.name/1"
  Lowered lowered;
  std::vector<ExportedKernel> kernels;
  std::vector<size_t> variants;  // which kernel is for what: [2 * mask of the optional tensors that are present + is strided]
};

// The optional tensors have the bits of the mask, in the order of the text.
std::vector<const ir::Buffer*> optional_tensors(const ir::Program& program);

// Each program's backward is the next one.
std::string export_tables(const std::vector<ExportedProgram>& programs);

// A function that kernels call, made of exported_functions.c: its name, and the text that defines it.
struct ExportedFunction {
  std::string name, text;
};
ExportedFunction exported_function(const CFunction& function);

}  // namespace narrows::cpu
