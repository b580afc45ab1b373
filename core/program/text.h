// SPDX-License-Identifier: Apache-2.0
// text.h -- a program's text: docs/programs.md.
#pragma once

#include <string>
#include <string_view>

#include "core/program/ir.h"

namespace narrows::program {

// A checked program (types.h). Throws Failure (NW_INVALID): what was found and what was expected, with line and column; or what is
// wrong with the program as a whole, with the names of its blocks and buffers.
Program parse(std::string_view text);

// The one text of a program: parse(print(program)) is the program again. Of a program that is not right it is the best effort, so
// that messages can show it.
std::string print(const Program& program);
std::string print(const ExprPtr& expr);
std::string print(const Store& store);
std::string print_header(const Block& block);  // "block Y(vi: S(128) = i) if i < 3:"
std::string print_header(const For& loop);     // "for i in 128 parallel:"
std::string print_header(const Program& program);

}  // namespace narrows::program
