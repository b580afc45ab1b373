// SPDX-License-Identifier: Apache-2.0
// walk.h -- goes through a program: its blocks with their loops, and the parts of expressions.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

using Loops = std::vector<std::shared_ptr<const For>>;  // from the outermost to the innermost

// In the order in which they stand.
void for_each_block(const Program& program, const std::function<void(const Block&, const Loops&)>& visit);

// Each part of an expression, itself first; nothing of NULL.
void for_each_part(const ExprPtr& expr, const std::function<void(const Expr&)>& visit);
void for_each_load(const ExprPtr& expr, const std::function<void(const Expr&)>& visit);
void for_each_load(const Block& block, const std::function<void(const Expr&)>& visit);  // of its init and body, subscripts too

std::set<std::string> names_in(const ExprPtr& expr);  // of kind name

const Buffer* find_buffer(const Program& program, const std::string& name);  // NULL: there is none
const Param* find_param(const Program& program, const std::string& name);

bool same(const Program& a, const Program& b);

}  // namespace narrows::program
