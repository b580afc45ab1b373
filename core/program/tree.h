// SPDX-License-Identifier: Apache-2.0
// tree.h -- walks a program's loops and blocks, and makes changed copies. What does not change is shared.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/program/ir.h"

namespace narrows::program {

using ForPtr = std::shared_ptr<const For>;
using BlockPtr = std::shared_ptr<const Block>;

// A block and where it stands: loops[d] is the child at[d] of loops[d - 1] (of the program for d = 0), and the block is the last
// at.
struct Path {
  std::vector<ForPtr> loops;
  std::vector<int> at;
  BlockPtr block;

  int depth_of(const std::string& loop) const;  // -1: it is not there
};

std::vector<Path> paths(const Program& program);  // in the order of execution
std::vector<std::string> block_names(const std::vector<Stmt>& body);
ForPtr find_loop(const std::vector<Stmt>& body, const std::string& name);  // NULL: there is none

// How many loops from the outside are the same of both.
int common_loops(const Path& a, const Path& b);

// A copy in which `change` gives what stands for a statement; nullopt: look inside. A loop that loses its whole body goes, too.
using Change = std::function<std::optional<std::vector<Stmt>>(const Stmt&)>;
std::vector<Stmt> edit(const std::vector<Stmt>& body, const Change& change);

// The same for one loop or block by its name.
std::vector<Stmt> replace_loop(const std::vector<Stmt>& body, const std::string& loop, const std::vector<Stmt>& with);
std::vector<Stmt> replace_block(const std::vector<Stmt>& body, const std::string& block, const std::vector<Stmt>& with);

// Each block, changed in place by `change`.
std::vector<Stmt> edit_blocks(const std::vector<Stmt>& body, const std::function<void(Block&)>& change);

Stmt make_stmt(For loop);
Stmt make_stmt(Block block);

// Each name that the program uses for anything, and one that it does not use yet: `wanted`, or with _1, _2, … behind.
std::set<std::string> used_names(const Program& program);
std::string fresh_name(std::set<std::string>& used, const std::string& wanted);

// A name for a block; blocks and loops have names of their own, but a block may be called as a buffer is.
std::string fresh_block(const Program& program, const Program& other, const std::string& wanted);

// Does the expression contain the name, as a value?
bool mentions(const ExprPtr& expr, const std::string& name);

// A changed copy: `change` gives what stands for an expression; NULL: look inside.
ExprPtr rewrite(const ExprPtr& expr, const std::function<ExprPtr(const ExprPtr&)>& change);

}  // namespace narrows::program
