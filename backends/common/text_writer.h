// SPDX-License-Identifier: Apache-2.0
// text_writer.h -- a source text that grows line by line, indented by the braces that are open.
#pragma once

#include <string>

namespace narrows::common {

class TextWriter {
 public:
  void line(const std::string& text) { out_.append(static_cast<size_t>(2 * indent_), ' ').append(text).append("\n"); }
  void open(const std::string& text) {
    line(text);
    ++indent_;
  }
  void close(const std::string& text = "}") {
    --indent_;
    line(text);
  }

 protected:
  std::string out_;
  int indent_ = 1;
};

}  // namespace narrows::common
