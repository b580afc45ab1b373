// SPDX-License-Identifier: Apache-2.0
// types.cpp -- see types.h.
#include "core/program/types.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/error.h"
#include "core/program/check_block.h"
#include "core/program/check_expr.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/intrinsics.h"
#include "core/program/lexer.h"
#include "core/program/text.h"
#include "core/program/walk.h"

namespace narrows::program {
namespace {

constexpr int64_t kMinStages = 2, kMaxStages = 8;  // of a pipelined loop
constexpr std::array<DType, 4> kParamTypes = {DType::boolean, DType::i64, DType::f32, DType::f64};
constexpr int64_t kMaxDefault = int64_t{1} << 53;  // the largest up to which every integer is a double, as nw_param.initial has it
constexpr int64_t kMaxPadding = 4096;              // of one dimension
constexpr std::array<const char*, 6> kThreads = {"block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z"};

bool reads_memory(const Buffer& tensor) { return tensor.role == Buffer::Role::input || tensor.role == Buffer::Role::inout; }

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {}

  void run() {
    if (!is_name(program_.name)) bad("'" + program_.name + "' is no name for a program");
    if (program_.tensors.size() > kMaxTensors)
      bad(std::to_string(program_.tensors.size()) + " tensors; at most " + std::to_string(kMaxTensors));
    if (program_.params.size() > kMaxParams)
      bad(std::to_string(program_.params.size()) + " params; at most " + std::to_string(kMaxParams));
    for (const Param& param : program_.params) check_param(param);
    declare_sizes();
    for (const Buffer& tensor : program_.tensors) check_buffer(tensor, false);
    for (const Buffer& allocation : program_.allocations) check_buffer(allocation, true);
    check_body(program_.body, 0);
    check_written();
  }

 private:
  [[noreturn]] void bad(const std::string& message) const {
    throw_failure(NW_INVALID, -1, "program '%s': %s", program_.name.c_str(), message.c_str());
  }

  void declare(const std::string& name, const std::string& what) {
    if (!is_name(name)) bad("'" + name + "' is no name for " + what);
    if (!taken_.insert(name).second)
      bad("there is a '" + name + "' already; buffers, params, sizes and loops have names of their own");
  }

  void check_param(const Param& param) {
    declare(param.name, "a param");
    if (std::find(kParamTypes.begin(), kParamTypes.end(), param.dtype) == kParamTypes.end())
      bad("param '" + param.name + "' is " + name_of(param.dtype) + "; a param is bool, i64, f32 or f64");
    const Expr::Kind kind = is_float(param.dtype)           ? Expr::Kind::real
                            : param.dtype == DType::boolean ? Expr::Kind::boolean
                                                            : Expr::Kind::integer;
    if (param.value == nullptr || param.value->kind != kind || param.value->dtype != param.dtype)
      bad("the default of param '" + param.name + "' is a constant of " + name_of(param.dtype));
    if (kind == Expr::Kind::integer && (param.value->integer > kMaxDefault || param.value->integer < -kMaxDefault))
      bad("the default of param '" + param.name + "' is " + std::to_string(param.value->integer) + "; it is -2^53 to 2^53");
    if (is_integer(param.dtype))
      names_.sizes.insert(param.name);
    else
      names_.params[param.name] = param.dtype;
  }

  void declare_sizes() {
    for (const std::string& size : sizes_of(program_)) {
      if (names_.params.count(size) != 0) bad("param '" + size + "' is no integer, but stands in a dimension");
      declare(size, "a size");
      names_.sizes.insert(size);
    }
  }

  void check_buffer(const Buffer& buffer, bool allocated) {
    declare(buffer.name, "a buffer");
    const std::string what = "program '" + program_.name + "': '" + buffer.name + "'";
    if (allocated != (buffer.role == Buffer::Role::allocated))
      throw_failure(NW_INVALID, -1, "%s is %s", what.c_str(),
                    allocated ? "an allocation with the role of a tensor" : "a tensor with the role of an allocation");
    if (!allocated && buffer.scope != Buffer::Scope::global)
      throw_failure(NW_INVALID, -1, "%s is a tensor with a scope; only allocations have one", what.c_str());
    if (allocated && buffer.optional)
      throw_failure(NW_INVALID, -1, "%s is an allocation and optional; only an input or an output is optional", what.c_str());
    if (buffer.optional && buffer.role == Buffer::Role::inout)
      throw_failure(NW_INVALID, -1, "%s is inout and optional; expected an optional input and an output instead", what.c_str());
    if (buffer.dtype == DType::index)
      throw_failure(NW_INVALID, -1, "%s has the type index; expected a type of values, such as i64", what.c_str());
    if (buffer.shape.size() > kMaxRank)
      throw_failure(NW_INVALID, -1, "%s has %zu dimensions; at most %d", what.c_str(), buffer.shape.size(), kMaxRank);
    for (const ExprPtr& extent : buffer.shape) check_extent(extent, {what + ": an extent", nullptr, nullptr, false, false}, names_);
    check_padding(buffer, what);
    check_bytes(buffer, what);
    names_.buffers[buffer.name] = &buffer;
  }

  static void check_padding(const Buffer& buffer, const std::string& what) {
    if (buffer.padding.empty()) return;
    if (buffer.role != Buffer::Role::allocated)
      throw_failure(NW_INVALID, -1, "%s is a tensor with padding; only allocations have it", what.c_str());
    if (buffer.padding.size() != buffer.shape.size())
      throw_failure(NW_INVALID, -1, "%s has %zu dimensions, but padding of %zu", what.c_str(), buffer.shape.size(),
                    buffer.padding.size());
    for (const int64_t elements : buffer.padding) {
      if (elements < 0 || elements > kMaxPadding)
        throw_failure(NW_INVALID, -1, "%s is padded by %lld elements; expected 0 to %lld", what.c_str(),
                      static_cast<long long>(elements), static_cast<long long>(kMaxPadding));
    }
    if (std::all_of(buffer.padding.begin(), buffer.padding.end(), [](int64_t elements) { return elements == 0; }))
      throw_failure(NW_INVALID, -1, "%s: every padding is 0; leave 'pad' out", what.c_str());
  }

  // Of constant extents; an extent of 0 makes the others harmless only where it is known.
  static void check_bytes(const Buffer& buffer, const std::string& what) {
    int64_t bytes = bits_of(buffer.dtype) / 8;
    for (size_t i = 0; i < buffer.shape.size(); ++i) {
      int64_t count = std::max<int64_t>(constant(buffer.shape[i]).value_or(1), 1);
      if (!buffer.padding.empty() && __builtin_add_overflow(count, buffer.padding[i], &count)) count = INT64_MAX;
      if (__builtin_mul_overflow(bytes, count, &bytes))
        throw_failure(NW_INVALID, -1, "%s has more than 2^63 - 1 bytes", what.c_str());
    }
  }

  void check_body(const std::vector<Stmt>& body, int depth) {
    if (depth > kMaxLoops) bad("more than " + std::to_string(kMaxLoops) + " loops in each other");
    for (const Stmt& stmt : body) {
      if (++statements_ > kMaxStatements) bad("more than " + std::to_string(kMaxStatements) + " loops and blocks");
      if (const auto* block = std::get_if<std::shared_ptr<const Block>>(&stmt)) {
        check_named_block(**block);
      } else {
        check_loop(*std::get<std::shared_ptr<const For>>(stmt), depth);
      }
    }
  }

  void check_named_block(const Block& block) {
    if (!is_name(block.name)) bad("'" + block.name + "' is no name for a block");
    if (!blocks_.insert(block.name).second) bad("there are two blocks '" + block.name + "'");
    check_block(block, loops_, names_);
  }

  void check_loop(const For& loop, int depth) {
    declare(loop.name, "a loop");
    const std::string what = "loop '" + loop.name + "'";
    check_extent(loop.extent, {what + ": its extent", &loops_, nullptr, false, false}, names_);
    const bool known = std::find(kThreads.begin(), kThreads.end(), loop.thread) != kThreads.end();
    if (loop.kind == For::Kind::bind ? !known : !loop.thread.empty())
      bad(what + ": '" + loop.thread + "' is no place that it is bound to; block.x to thread.z are");
    check_marks(loop, what);
    check_notes(loop.notes, what);
    if (loop.body.empty()) bad(what + " is empty");
    loops_.insert(loop.name);
    check_body(loop.body, depth + 1);
    loops_.erase(loop.name);
  }

  void check_marks(const For& loop, const std::string& what) const {
    const bool is_pipelined = loop.kind == For::Kind::pipeline;
    if (is_pipelined ? loop.stages < kMinStages || loop.stages > kMaxStages : loop.stages != 0)
      bad(what + " has " + std::to_string(loop.stages) + " stages; expected " +
          (is_pipelined ? std::to_string(kMinStages) + " to " + std::to_string(kMaxStages) : "0, as it is not pipelined"));
    if (loop.kind == For::Kind::tensorize)
      need_intrinsic(loop.intrinsic);
    else if (!loop.intrinsic.empty())
      bad(what + " names the intrinsic '" + loop.intrinsic + "', but is not tensorized");
  }

  void check_written() const {
    std::set<std::string> read, written;
    for_each_block(program_, [&](const Block& block, const Loops&) {
      for (const Store& store : block.body) written.insert(store.buffer);
      for_each_load(block, [&](const Expr& load) { read.insert(load.name); });
    });
    const auto is_output = [](const Buffer& tensor) { return tensor.role != Buffer::Role::input; };
    if (std::none_of(program_.tensors.begin(), program_.tensors.end(), is_output)) bad("it has no output");
    for (const Buffer& tensor : program_.tensors) {
      if (is_output(tensor) && written.count(tensor.name) == 0) bad("no block stores into '" + tensor.name + "', an output");
    }
    for (const Buffer& allocation : program_.allocations) {
      if (read.count(allocation.name) != 0 && written.count(allocation.name) == 0)
        bad("'" + allocation.name + "' is read, but no block stores into it");
    }
  }

  const Program& program_;
  Names names_;
  std::set<std::string> taken_, blocks_, loops_;
  int statements_ = 0;
};

}  // namespace

void check(const Program& program) { Checker(program).run(); }

std::vector<std::string> sizes_of(const Program& program) {
  std::vector<std::string> out;
  for (const Buffer& tensor : program.tensors) {
    if (!reads_memory(tensor) || tensor.optional) continue;
    for (const ExprPtr& extent : tensor.shape) {
      const bool binds = extent != nullptr && extent->kind == Expr::Kind::name && find_param(program, extent->name) == nullptr;
      if (binds && std::find(out.begin(), out.end(), extent->name) == out.end()) out.push_back(extent->name);
    }
  }
  return out;
}

}  // namespace narrows::program
