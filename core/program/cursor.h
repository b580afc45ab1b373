// SPDX-License-Identifier: Apache-2.0
// cursor.h -- the tokens of a text, one after the other, and what an error says about them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/lexer.h"

namespace narrows::program {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : tokens_(tokenize(text)) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  bool at(std::string_view text) const { return is(peek(), text); }
  bool at(Token::Kind kind) const { return peek().kind == kind; }
  static bool is(const Token& token, std::string_view text) {
    return (token.kind == Token::Kind::symbol || token.kind == Token::Kind::name) && token.text == text;
  }
  bool take(std::string_view text) {
    const bool found = at(text);
    if (found) next();
    return found;
  }

  // `where` says after what: "after the extent of loop 'i'". It may be "".
  void expect(std::string_view text, const std::string& where = "") {
    if (!take(text)) bad("'" + std::string(text) + "'" + (where.empty() ? "" : " " + where));
  }
  std::string name(const std::string& what) {
    const Token& token = peek();
    if (token.kind != Token::Kind::name) bad(what);
    if (!is_name(token.text))
      fail_at(token.line, token.column, "'" + std::string(token.text) + "' is a word of the language; expected " + what);
    return std::string(next().text);
  }

  [[noreturn]] void bad(const std::string& expected) const {
    fail_at(peek().line, peek().column, "found " + show(peek()) + ", expected " + expected);
  }

 private:
  static std::string show(const Token& token) {
    switch (token.kind) {
      case Token::Kind::newline: return "the end of the line";
      case Token::Kind::indent: return "a deeper line";
      case Token::Kind::dedent: return "the end of the indented lines";
      case Token::Kind::end: return "the end of the text";
      default: return "'" + std::string(token.text.substr(0, 40)) + (token.text.size() > 40 ? "…'" : "'");
    }
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace narrows::program
