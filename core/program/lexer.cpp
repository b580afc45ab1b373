// SPDX-License-Identifier: Apache-2.0
// lexer.cpp -- see lexer.h.
#include "core/program/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace narrows::program {
namespace {

constexpr std::array<std::string_view, 8> kWords = {"and", "or", "not", "for", "in", "if", "inf", "nan"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool opens(char c) { return c == '(' || c == '[' || c == '{'; }
bool closes(char c) { return c == ')' || c == ']' || c == '}'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      if (line_begins_ && brackets_.empty()) indentation();
      if (at_ < text_.size()) step();
    }
    if (!brackets_.empty()) fail_at(brackets_.back().first, brackets_.back().second, "a bracket that is never closed");
    if (!line_begins_) put(Token::Kind::newline, 0);
    for (; depths_.size() > 1; depths_.pop_back()) put(Token::Kind::dedent, 0);
    put(Token::Kind::end, 0);
    return std::move(tokens_);
  }

 private:
  int column() const { return static_cast<int>(at_ - line_start_) + 1; }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void put(Token::Kind kind, size_t size) {
    tokens_.push_back({kind, text_.substr(at_, size), line_, column()});
    at_ += size;
  }

  void next_line() {
    ++at_;
    ++line_;
    line_start_ = at_;
    line_begins_ = true;
  }

  // Passes empty lines and comments, then compares the depth of the line with those around it.
  void indentation() {
    const size_t begin = at_;
    while (peek() == ' ') ++at_;
    if (peek() == '#') skip_comment();
    if (peek() == '\r' && peek(1) == '\n') ++at_;
    if (at_ == text_.size()) return;
    if (peek() == '\n') return next_line();
    if (peek() == '\t') fail_at(line_, column(), "found a tab; lines are indented by spaces");
    const size_t depth = at_ - begin;
    line_begins_ = false;
    if (depth > depths_.back()) {
      depths_.push_back(depth);
      put(Token::Kind::indent, 0);
    }
    for (; depth < depths_.back(); depths_.pop_back()) put(Token::Kind::dedent, 0);
    if (depth != depths_.back())
      fail_at(line_, column(), "the line is indented by " + std::to_string(depth) + " spaces, unlike any above it");
  }

  void skip_comment() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  void step() {
    if (line_begins_ && brackets_.empty()) return;  // an empty line
    const char c = peek();
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      skip_comment();
    } else if (c == '\n') {
      if (brackets_.empty()) put(Token::Kind::newline, 0);
      next_line();
    } else if (is_letter(c)) {
      put(Token::Kind::name, size_of_name());
    } else if (is_digit(c)) {
      put(Token::Kind::number, size_of_number());
    } else if (c == '"') {
      put(Token::Kind::string, size_of_string());
    } else {
      symbol();
    }
  }

  size_t size_of_name() const {
    size_t size = 0;
    while (is_letter(peek(size)) || is_digit(peek(size))) ++size;
    if (size > kMaxName)
      fail_at(line_, column(), "a name of " + std::to_string(size) + " bytes; at most " + std::to_string(kMaxName));
    return size;
  }

  size_t size_of_number() const {
    const bool hex = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    const char exponent = hex ? 'p' : 'e';
    size_t size = 0;
    for (;; ++size) {
      const char c = peek(size);
      if (is_letter(c) || is_digit(c) || c == '.') continue;
      if ((c == '+' || c == '-') && size > 0 && (peek(size - 1) | 0x20) == exponent) continue;
      return size;
    }
  }

  size_t size_of_string() const {
    for (size_t size = 1;; ++size) {
      const auto c = static_cast<unsigned char>(peek(size));
      if (c == '\\') {
        ++size;
        continue;
      }
      if (c == '"') return size + 1;
      if (c < 0x20) fail_at(line_, column(), "a string without its closing '\"' in the same line");
    }
  }

  void symbol() {
    constexpr std::array<std::string_view, 5> kTwo = {"==", "!=", "<=", ">=", "//"};
    if (std::find(kTwo.begin(), kTwo.end(), text_.substr(at_, 2)) != kTwo.end()) return put(Token::Kind::symbol, 2);
    const char c = peek();
    if (std::string_view("()[]{},:=<>+-*/%?.").find(c) == std::string_view::npos) stray(c);
    if (opens(c)) brackets_.emplace_back(line_, column());
    if (closes(c)) {
      if (brackets_.empty()) fail_at(line_, column(), std::string("found '") + c + "' without its opening bracket");
      brackets_.pop_back();
    }
    put(Token::Kind::symbol, 1);
  }

  [[noreturn]] void stray(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    const bool printable = byte >= 0x20 && byte < 0x7F;
    fail_at(line_, column(),
            (printable ? std::string("found '") + c + "'" : format("found the byte 0x%02x", byte)) +
                ", which begins nothing in a program");
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::vector<size_t> depths_{0};
  std::vector<std::pair<int, int>> brackets_;  // line and column of those that are open
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
};

// The bytes of the UTF-8 character at the front; 0: it is none.
size_t utf8_size(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) < 0xE0) return follows(1) ? 2 : 0;
  if (byte(0) >= 0xE0 && byte(0) < 0xF0) {
    const bool overlong = byte(0) == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = byte(0) == 0xED && byte(1) >= 0xA0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  const bool in_range =
      (byte(0) > 0xF0 && byte(0) < 0xF4) || (byte(0) == 0xF0 && byte(1) >= 0x90) || (byte(0) == 0xF4 && byte(1) < 0x90);
  return in_range && follows(1) && follows(2) && follows(3) ? 4 : 0;
}

}  // namespace

std::vector<Token> tokenize(std::string_view text) {
  if (text.size() > kMaxText)
    throw_failure(NW_INVALID, -1, "the text of the program has %zu bytes; at most %zu", text.size(), kMaxText);
  return Lexer(text).run();
}

void fail_at(int line, int column, const std::string& message) {
  throw_failure(NW_INVALID, -1, "line %d, column %d: %s", line, column, message.c_str());
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > kMaxName || is_digit(text[0])) return false;
  if (!std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); })) return false;
  return std::find(kWords.begin(), kWords.end(), text) == kWords.end();
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = utf8_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n' || c == '\t') out += '\\';
    out += c == '\n' ? 'n' : c == '\t' ? 't' : c;
  }
  return out + '"';
}

char unescaped(char c) { return c == 'n' ? '\n' : c == 't' ? '\t' : c == '"' || c == '\\' ? c : '\0'; }

std::string unquote(const Token& token) {
  std::string out;
  for (size_t i = 1; i + 1 < token.text.size(); ++i) {
    if (token.text[i] != '\\') {
      out += token.text[i];
      continue;
    }
    const char c = unescaped(token.text[++i]);
    if (c == '\0') fail_at(token.line, token.column + static_cast<int>(i) - 1, "expected \\\", \\\\, \\n or \\t in a string");
    out += c;
  }
  if (!is_utf8(out)) fail_at(token.line, token.column, "the string is not UTF-8");
  return out;
}

}  // namespace narrows::program
