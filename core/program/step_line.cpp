// SPDX-License-Identifier: Apache-2.0
// step_line.cpp -- see step_line.h.
#include "core/program/step_line.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/program/lexer.h"

namespace narrows::program {
namespace {

constexpr size_t kMaxLine = 16384, kMaxList = 64;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string show(const StepLine::Number& number) { return number ? std::to_string(*number) : "None"; }

template <typename T, typename Show>
std::string list(const std::vector<T>& values, const Show& show) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "" : ", ") + show(values[i]);
  return out + "]";
}

}  // namespace

class StepReader {
 public:
  explicit StepReader(std::string_view text) : text_(text) {}

  StepLine read() {
    StepLine out;
    out.name_ = word("the name of a step");
    expect('(');
    while (!take(')')) {
      if (!out.arguments_.empty()) expect(',');
      std::string key = word("the name of an argument");
      if (out.find(key.c_str()) != nullptr) bad("an argument other than '" + key + "' a second time");
      expect('=');
      StepLine::Value value = read_value();
      out.arguments_.emplace_back(std::move(key), std::move(value));
    }
    space();
    if (at_ != text_.size()) bad("the end of the line");
    return out;
  }

 private:
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  char next() {
    space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad("'" + std::string(1, c) + "'");
  }

  [[noreturn]] void bad(const std::string& expected) {
    const std::string found = at_ < text_.size() ? "'" + std::string(text_.substr(at_, 1)) + "'" : "the end";
    throw_failure(NW_INVALID, -1, "step '%s': column %zu: found %s, expected %s", std::string(text_.substr(0, 80)).c_str(), at_ + 1,
                  found.c_str(), expected.c_str());
  }

  std::string word(const char* what) {
    if (!is_letter(next())) bad(what);
    const size_t from = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }

  std::string string() {
    if (!at_string()) bad("a string in quotes");
    const char end = next();
    ++at_;
    std::string out;
    for (; at_ < text_.size() && text_[at_] != end; ++at_) {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) bad("no control character in a string");
      if (text_[at_] != '\\') {
        out += text_[at_];
        continue;
      }
      ++at_;
      const char c = at_ == text_.size() ? '\0' : text_[at_] == '\'' ? '\'' : unescaped(text_[at_]);
      if (c == '\0') bad("\", ', \\, n or t behind a backslash");
      out += c;
    }
    if (at_ == text_.size()) bad("the end of a string");
    ++at_;
    return out;
  }

  int64_t number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) bad("an integer of 64 bits");
    at_ = end - text_.data();
    return value;
  }

  bool at_string() { return next() == '"' || next() == '\''; }

  StepLine::Number number_or_none() {
    if (is_digit(next()) || next() == '-') return number();
    if (word("an integer or None") != "None") bad("an integer or None");
    return std::nullopt;
  }

  StepLine::Value read_value() {
    if (at_string()) return string();
    if (is_digit(next()) || next() == '-') return number();
    if (next() == 'T' || next() == 'F') {
      const std::string word = this->word("True or False");
      if (word != "True" && word != "False") bad("a value");
      return int64_t{word == "True" ? 1 : 0};
    }
    if (!take('[')) bad("a string, an integer or a list");
    if (at_string()) return read_list<std::string>([&] { return string(); });
    return read_list<StepLine::Number>([&] { return number_or_none(); });
  }

  template <typename T, typename Read>
  std::vector<T> read_list(const Read& read) {
    std::vector<T> out;
    while (!take(']')) {
      if (!out.empty()) expect(',');
      out.push_back(read());
      if (out.size() > kMaxList) bad("at most " + std::to_string(kMaxList) + " items");
      next();
    }
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
};

StepLine StepLine::parse(std::string_view text) {
  if (text.size() > kMaxLine) throw_failure(NW_INVALID, -1, "a step has %zu bytes; at most %zu are read", text.size(), kMaxLine);
  return StepReader(text).read();
}

std::string StepLine::print() const {
  std::string out = name_ + "(";
  for (const auto& [key, value] : arguments_) {
    out += (out.back() == '(' ? "" : ", ") + key + "=";
    if (const auto* text = std::get_if<std::string>(&value)) out += quote(*text);
    if (const auto* number = std::get_if<int64_t>(&value)) out += std::to_string(*number);
    if (const auto* texts = std::get_if<std::vector<std::string>>(&value))
      out += list(*texts, [](const std::string& each) { return quote(each); });
    if (const auto* numbers = std::get_if<std::vector<Number>>(&value)) out += list(*numbers, show);
  }
  return out + ")";
}

const StepLine::Value* StepLine::find(const char* key) const {
  const auto found =
      std::find_if(arguments_.begin(), arguments_.end(), [&](const auto& argument) { return argument.first == key; });
  return found == arguments_.end() ? nullptr : &found->second;
}

const StepLine::Value& StepLine::need(const char* key) const {
  const Value* const found = find(key);
  if (found == nullptr) throw_failure(NW_INVALID, -1, "the argument '%s' is missing", key);
  return *found;
}

const std::string& StepLine::text(const char* key) const {
  const auto* const value = std::get_if<std::string>(&need(key));
  if (value == nullptr) throw_failure(NW_INVALID, -1, "argument '%s': expected a string in quotes", key);
  return *value;
}

std::string StepLine::text(const char* key, const char* or_else) const { return find(key) == nullptr ? or_else : text(key); }

int64_t StepLine::number(const char* key) const {
  const auto* const value = std::get_if<int64_t>(&need(key));
  if (value == nullptr) throw_failure(NW_INVALID, -1, "argument '%s': expected an integer", key);
  return *value;
}

int64_t StepLine::number(const char* key, int64_t or_else) const { return find(key) == nullptr ? or_else : number(key); }

const std::vector<std::string>& StepLine::texts(const char* key) const {
  const auto* const value = std::get_if<std::vector<std::string>>(&need(key));
  if (value == nullptr) throw_failure(NW_INVALID, -1, "argument '%s': expected a list of strings", key);
  return *value;
}

std::vector<std::string> StepLine::texts(const char* key, const std::vector<std::string>& or_else) const {
  return find(key) == nullptr ? or_else : texts(key);
}

std::vector<StepLine::Number> StepLine::numbers(const char* key) const {
  const auto* const value = std::get_if<std::vector<Number>>(&need(key));
  if (value == nullptr) throw_failure(NW_INVALID, -1, "argument '%s': expected a list of integers", key);
  return *value;
}

void StepLine::allow(std::initializer_list<const char*> keys) const {
  for (const auto& argument : arguments_) {
    const auto is_it = [&](const char* key) { return argument.first == key; };
    if (std::any_of(keys.begin(), keys.end(), is_it)) continue;
    std::string known;
    for (const char* key : keys) known += (known.empty() ? "" : ", ") + std::string(key);
    throw_failure(NW_INVALID, -1, "unknown argument '%s'; expected one of: %s", argument.first.c_str(), known.c_str());
  }
}

}  // namespace narrows::program
