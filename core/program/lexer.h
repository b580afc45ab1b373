// SPDX-License-Identifier: Apache-2.0
// lexer.h -- cuts a program's text into tokens; the depth of lines becomes tokens of its own, as in Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace narrows::program {

constexpr size_t kMaxText = size_t{1} << 20;  // bytes
constexpr size_t kMaxName = 128;

struct Token {
  enum class Kind : uint8_t { name, number, string, symbol, newline, indent, dedent, end };
  Kind kind;
  std::string_view text;  // of a string with its quotes
  int line, column;       // from 1
};

// Throws Failure at a character, an indentation or a string that is none.
std::vector<Token> tokenize(std::string_view text);

[[noreturn]] void fail_at(int line, int column, const std::string& message);

// Is it an identifier of ASCII letters, digits and '_', of at most kMaxName bytes, and no word of the language?
bool is_name(std::string_view text);

// A note's text between quotes, and back.
std::string quote(std::string_view text);
// What stands behind a backslash in a string; '\0': nothing that may.
char unescaped(char c);
std::string unquote(const Token& token);
bool is_utf8(std::string_view text);

}  // namespace narrows::program
