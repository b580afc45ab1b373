// SPDX-License-Identifier: Apache-2.0
// shape_pattern.cpp -- see shape_pattern.h.
#include "shape_pattern.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace narrows::test {
namespace {

std::string strip(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// At separators outside parentheses.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == separator && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (std::string& part : parts) part = strip(part);
  return parts;
}

TensorPattern pattern_of(std::string text) {
  TensorPattern out;
  out.optional = !text.empty() && text.back() == '?';
  if (out.optional) text = strip(text.substr(0, text.size() - 1));
  out.any = text == "*" || text.empty();
  if (!out.any && text != "()") out.dims = split(text, ',');
  return out;
}

// expr := term {('+'|'-') term}; term := factor {('*'|'//') factor}. A failure anywhere makes `good` false.
class Reader {
 public:
  Reader(std::string_view text, const Names& names) : text_(text), names_(names) {}
  std::optional<int64_t> read() {
    const int64_t value = sum();
    space();
    return good_ && at_ == text_.size() ? std::optional<int64_t>(value) : std::nullopt;
  }

 private:
  void space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    space();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  int64_t sum() {
    int64_t value = product();
    while (good_) {
      if (take("+"))
        value += product();
      else if (take("-"))
        value -= product();
      else
        break;
    }
    return value;
  }
  int64_t product() {
    int64_t value = primary();
    while (good_) {
      if (take("//")) {
        const int64_t by = primary();
        if (by == 0) return fail();
        value = value / by - (value % by != 0 && (value < 0) != (by < 0) ? 1 : 0);
      } else if (take("*")) {
        value *= primary();
      } else {
        break;
      }
    }
    return value;
  }
  int64_t primary() {
    space();
    if (take("(")) {
      const int64_t value = sum();
      return take(")") ? value : fail();
    }
    std::string word;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      word += text_[at_++];
    if (word.empty() || word.size() > 12) return fail();
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return std::stoll(word);
    if ((word == "max" || word == "min") && take("(")) return extreme(word == "max");
    const auto found = names_.find(word);
    return found == names_.end() ? fail() : found->second;
  }
  int64_t extreme(bool largest) {
    const int64_t a = sum();
    if (!take(",")) return fail();
    const int64_t b = sum();
    if (!take(")")) return fail();
    return largest ? std::max(a, b) : std::min(a, b);
  }
  int64_t fail() {
    good_ = false;
    return 0;
  }

  std::string_view text_;
  const Names& names_;
  size_t at_ = 0;
  bool good_ = true;
};

}  // namespace

std::vector<std::vector<TensorPattern>> input_patterns(const char* shape_rule) {
  std::vector<std::vector<TensorPattern>> alternatives;
  if (shape_rule == nullptr) return alternatives;
  for (const std::string& alternative : split(shape_rule, '|')) {
    const size_t arrow = alternative.find("->");
    if (arrow == std::string::npos) continue;
    std::vector<TensorPattern> inputs;
    for (const std::string& tensor : split(alternative.substr(0, arrow), ';')) inputs.push_back(pattern_of(tensor));
    alternatives.push_back(std::move(inputs));
  }
  return alternatives;
}

bool is_name(const std::string& dim) {
  return !dim.empty() && std::isdigit(static_cast<unsigned char>(dim[0])) == 0 &&
         std::all_of(dim.begin(), dim.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

std::optional<int64_t> evaluate(const std::string& expression, const Names& names) { return Reader(expression, names).read(); }

}  // namespace narrows::test
