// SPDX-License-Identifier: Apache-2.0
// parse.cpp -- reads a program's text: see text.h. One function for each line of the grammar in docs/programs.md.
#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/program/cursor.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/parse_expr.h"
#include "core/program/text.h"
#include "core/program/types.h"

namespace narrows::program {
namespace {

using Notes = std::vector<std::pair<std::string, std::string>>;

class Parser {
 public:
  explicit Parser(std::string_view text) : cursor_(text) {}

  Program run() {
    header();
    begin_lines("the program");
    while (cursor_.take("alloc")) allocation();
    statements(program_.body, 0);
    if (!cursor_.at(Token::Kind::end)) cursor_.bad("the end of the text");
    return std::move(program_);
  }

 private:
  void header() {
    cursor_.expect("program", "at the beginning of a program");
    const Token version = cursor_.peek();
    if (version.kind != Token::Kind::number) cursor_.bad("the version of the text, 1");
    if (version.text != "1")
      fail_at(version.line, version.column,
              "the text is of version " + std::string(version.text) + "; this library reads version 1");
    cursor_.next();
    program_.name = cursor_.name("the program's name");
    cursor_.expect("(", "after the program's name");
    if (!cursor_.take(")")) {
      do item();
      while (cursor_.take(","));
      cursor_.expect(")", "or ',' after a tensor or a param");
    }
    end_of_header("the program's tensors and params");
  }

  void end_of_header(const std::string& what) {
    cursor_.expect(":", "after " + what);
    if (!cursor_.at(Token::Kind::newline)) cursor_.bad("the end of the line after ':'");
    cursor_.next();
  }

  void begin_lines(const std::string& what) {
    if (!cursor_.at(Token::Kind::indent)) cursor_.bad("the indented lines of " + what);
    cursor_.next();
  }

  bool end_lines() {
    if (!cursor_.at(Token::Kind::dedent)) return false;
    cursor_.next();
    return true;
  }

  void end_of_line(const std::string& what) {
    if (!cursor_.at(Token::Kind::newline)) cursor_.bad("the end of the line after " + what);
    cursor_.next();
  }

  void declare(std::map<std::string, DType, std::less<>>& names, const Token& at, const std::string& name, DType dtype) {
    if (scope_.values.count(name) != 0 || scope_.buffers.count(name) != 0)
      fail_at(at.line, at.column, "there is a '" + name + "' already; buffers, params, sizes and loops have names of their own");
    names[name] = dtype;
  }

  void item() {
    const Token at = cursor_.peek();
    const std::string name = cursor_.name("the name of a tensor or a param");
    const bool optional = cursor_.take("?");
    cursor_.expect(":", "after the name '" + name + "'");
    if (!optional && cursor_.at("param") && !Cursor::is(cursor_.peek(1), "[")) return param(at, name);
    Buffer tensor;
    tensor.name = name;
    tensor.optional = optional;
    tensor.role = cursor_.take("out") ? Buffer::Role::output : cursor_.take("inout") ? Buffer::Role::inout : Buffer::Role::input;
    scope_.declares_sizes = true;
    shape(tensor);
    scope_.declares_sizes = false;
    declare(scope_.buffers, at, name, tensor.dtype);
    program_.tensors.push_back(std::move(tensor));
  }

  DType dtype(const std::string& what) {
    const auto found = cursor_.at(Token::Kind::name) ? find_dtype(cursor_.peek().text) : std::nullopt;
    if (!found.has_value()) cursor_.bad("the type of " + what + ": bool, i8 to i64, u8 to u64, f16, bf16, f32 or f64");
    cursor_.next();
    return *found;
  }

  void shape(Buffer& buffer) {
    buffer.dtype = dtype("'" + buffer.name + "'");
    cursor_.expect("[", "and the shape of '" + buffer.name + "'");
    if (cursor_.take("]")) return;
    do buffer.shape.push_back(parse_index(cursor_, scope_, "an extent of '" + buffer.name + "'"));
    while (cursor_.take(","));
    cursor_.expect("]", "or ',' in the shape of '" + buffer.name + "'");
    for (const ExprPtr& extent : buffer.shape) declare_sizes(extent);
  }

  // A name in a tensor's dimension is a size, unless it is a param.
  void declare_sizes(const ExprPtr& extent) {
    if (extent->kind == Expr::Kind::name) scope_.values.emplace(extent->name, DType::index);
    for (const ExprPtr& operand : extent->operands) declare_sizes(operand);
  }

  void param(const Token& at, const std::string& name) {
    cursor_.expect("param");
    Param param;
    param.name = name;
    param.dtype = dtype("param '" + name + "'");
    cursor_.expect("=", "and the default of param '" + name + "'");
    param.value = parse_constant(cursor_, param.dtype);
    if (param.value == nullptr) cursor_.bad("a number, the default of param '" + name + "'");
    const DType in_expressions = is_integer(param.dtype) ? DType::index : param.dtype;
    const auto known = scope_.values.find(name);  // from a dimension that names it
    if (known == scope_.values.end() || param_named(name))
      declare(scope_.values, at, name, in_expressions);
    else if (in_expressions != DType::index)
      fail_at(at.line, at.column,
              "param '" + name + "' is " + name_of(param.dtype) + ", but a dimension is made of it; expected an integer");
    program_.params.push_back(std::move(param));
  }

  bool param_named(const std::string& name) const {
    return std::any_of(program_.params.begin(), program_.params.end(), [&](const Param& param) { return param.name == name; });
  }

  void allocation() {
    const Token at = cursor_.peek();
    Buffer buffer;
    buffer.role = Buffer::Role::allocated;
    buffer.name = cursor_.name("the name of a buffer");
    cursor_.expect(":", "after the name '" + buffer.name + "'");
    shape(buffer);
    if (cursor_.take("shared"))
      buffer.scope = Buffer::Scope::shared;
    else if (cursor_.take("local"))
      buffer.scope = Buffer::Scope::local;
    else
      cursor_.take("global");
    if (cursor_.take("pad")) padding(buffer);
    end_of_line("the shape, scope ('global', 'shared' or 'local') and padding ('pad [0, 8]') of '" + buffer.name + "'");
    declare(scope_.buffers, at, buffer.name, buffer.dtype);
    program_.allocations.push_back(std::move(buffer));
  }

  void padding(Buffer& buffer) {
    cursor_.expect("[", "and the padding of '" + buffer.name + "'");
    do buffer.padding.push_back(integer("the padding of a dimension, an integer"));
    while (cursor_.take(","));
    cursor_.expect("]", "or ',' in the padding of '" + buffer.name + "'");
  }

  int64_t integer(const std::string& what) {
    int64_t value = 0;
    const std::string_view text = cursor_.peek().text;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (!cursor_.at(Token::Kind::number) || error != std::errc() || end != text.data() + text.size()) cursor_.bad(what);
    cursor_.next();
    return value;
  }

  // Up to the end of the indented lines.
  void statements(std::vector<Stmt>& body, int depth) {
    if (depth > kMaxLoops)
      fail_at(cursor_.peek().line, cursor_.peek().column, "more than " + std::to_string(kMaxLoops) + " loops in each other");
    do {
      if (++statements_ > kMaxStatements)
        fail_at(cursor_.peek().line, cursor_.peek().column, "more than " + std::to_string(kMaxStatements) + " loops and blocks");
      if (cursor_.take("for"))
        body.emplace_back(loop(depth));
      else if (cursor_.take("block"))
        body.emplace_back(block());
      else if (cursor_.at("alloc"))
        cursor_.bad("'for' or 'block'; each 'alloc' stands before the first of them");
      else
        cursor_.bad("'for' or 'block'; a store stands in a block");
    } while (!end_lines());
  }

  std::shared_ptr<const For> loop(int depth) {
    For loop;
    const Token at = cursor_.peek();
    loop.name = cursor_.name("the name of a loop");
    cursor_.expect("in", "after the name of loop '" + loop.name + "'");
    loop.extent = parse_index(cursor_, scope_, "the extent of loop '" + loop.name + "'");
    kind(loop);
    loop.notes = notes();
    end_of_header("loop '" + loop.name +
                  "', its kind ('parallel', 'vectorize', 'unroll', 'bind', 'pipeline' or 'tensorize') and its notes");
    declare(scope_.values, at, loop.name, DType::index);
    begin_lines("loop '" + loop.name + "'");
    statements(loop.body, depth + 1);
    scope_.values.erase(loop.name);
    return std::make_shared<const For>(std::move(loop));
  }

  void kind(For& loop) {
    if (cursor_.take("parallel")) loop.kind = For::Kind::parallel;
    if (cursor_.take("vectorize")) loop.kind = For::Kind::vectorize;
    if (cursor_.take("unroll")) loop.kind = For::Kind::unroll;
    if (cursor_.take("pipeline")) {
      loop.kind = For::Kind::pipeline;
      loop.stages = integer("the number of stages after 'pipeline'");
    }
    if (cursor_.take("tensorize")) {
      loop.kind = For::Kind::tensorize;
      loop.intrinsic = string("the name of an intrinsic, \"…\", after 'tensorize'");
    }
    if (!cursor_.take("bind")) return;
    loop.kind = For::Kind::bind;
    const std::string level = cursor_.at("block") || cursor_.at("thread") ? std::string(cursor_.next().text) : "";
    if (level.empty()) cursor_.bad("'block' or 'thread' after 'bind'");
    cursor_.expect(".", "after 'bind " + level + "'");
    if (!cursor_.at("x") && !cursor_.at("y") && !cursor_.at("z")) cursor_.bad("'x', 'y' or 'z' after 'bind " + level + ".'");
    loop.thread = level + "." + std::string(cursor_.next().text);
  }

  Notes notes() {
    Notes out;
    if (!cursor_.take("{")) return out;
    do {
      std::string key = string("a note's key, \"…\"");
      cursor_.expect(":", "after a note's key");
      out.emplace_back(std::move(key), string("a note's value, \"…\""));
    } while (cursor_.take(","));
    cursor_.expect("}", "or ',' after a note");
    return out;
  }

  std::string string(const char* what) {
    if (!cursor_.at(Token::Kind::string)) cursor_.bad(what);
    return unquote(cursor_.next());
  }

  std::shared_ptr<const Block> block() {
    Block block;
    block.name = cursor_.name("the name of a block");
    cursor_.expect("(", "and the axes of block '" + block.name + "'");
    if (!cursor_.take(")")) {
      do axis(block);
      while (cursor_.take(","));
      cursor_.expect(")", "or ',' after an axis of block '" + block.name + "'");
    }
    const auto outside = scope_.values;
    for (const Axis& axis : block.axes) scope_.values[axis.name] = DType::index;
    if (cursor_.take("if")) block.predicate = parse_expression(cursor_, scope_);
    block.notes = notes();
    end_of_header("block '" + block.name + "', its condition and its notes");
    begin_lines("block '" + block.name + "'");
    if (cursor_.at("init") && Cursor::is(cursor_.peek(1), ":")) {
      cursor_.next();
      end_of_header("init");
      begin_lines("the init of block '" + block.name + "'");
      stores(block.init);
    }
    stores(block.body);
    scope_.values = outside;
    return std::make_shared<const Block>(std::move(block));
  }

  void axis(Block& block) {
    Axis axis;
    const Token at = cursor_.peek();
    axis.name = cursor_.name("the name of an axis");
    cursor_.expect(":", "and the kind of axis '" + axis.name + "'");
    if (cursor_.take("R"))
      axis.kind = Axis::Kind::reduction;
    else if (cursor_.take("C"))
      axis.kind = Axis::Kind::carried;
    else if (!cursor_.take("S"))
      cursor_.bad("S (spatial), R (reduction) or C (carried), the kind of axis '" + axis.name + "'");
    cursor_.expect("(", "and the extent of axis '" + axis.name + "'");
    axis.extent = parse_index(cursor_, scope_, "the extent of axis '" + axis.name + "'");
    cursor_.expect(")", "after the extent of axis '" + axis.name + "'");
    cursor_.expect("=", "and the value of axis '" + axis.name + "'");
    axis.binding = parse_index(cursor_, scope_, "the value of axis '" + axis.name + "'");
    const auto is_it = [&](const Axis& other) { return other.name == axis.name; };
    if (scope_.values.count(axis.name) != 0 || scope_.buffers.count(axis.name) != 0 ||
        std::any_of(block.axes.begin(), block.axes.end(), is_it))
      fail_at(at.line, at.column, "there is a '" + axis.name + "' already; an axis has a name of its own");
    block.axes.push_back(std::move(axis));
  }

  void stores(std::vector<Store>& out) {
    do {
      Store store;
      store.buffer = cursor_.name("a store, as in Y[vi] = A[vi]");
      if (scope_.buffers.count(store.buffer) == 0 && !cursor_.at("["))
        cursor_.bad("'[' and the place in buffer '" + store.buffer + "'");
      cursor_.expect("[", "and the place in buffer '" + store.buffer + "'");
      if (!cursor_.take("]")) {
        do store.indices.push_back(parse_index(cursor_, scope_, "a subscript of '" + store.buffer + "'"));
        while (cursor_.take(","));
        cursor_.expect("]", "or ',' after a subscript of '" + store.buffer + "'");
      }
      cursor_.expect("=", "and the value that '" + store.buffer + "' gets");
      store.value = parse_expression(cursor_, scope_);
      end_of_line("the store into '" + store.buffer + "'");
      out.push_back(std::move(store));
    } while (!end_lines());
  }

  Cursor cursor_;
  Scope scope_;
  Program program_;
  int statements_ = 0;
};

}  // namespace

Program parse(std::string_view text) {
  Program program = Parser(text).run();
  check(program);
  return program;
}

}  // namespace narrows::program
