// SPDX-License-Identifier: Apache-2.0
// saved.cpp -- see saved.h. Of a program's own text only the first line is not indented, so every other line that is not
// begins a part.
#include "core/program/saved.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/program/adjoint.h"
#include "core/program/digest.h"
#include "core/program/text.h"

namespace narrows::program {
namespace {

constexpr std::string_view kFirst = "saved programs 1";

// The lines of the text, one after the other.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }
  int number() const { return number_; }  // of the line that `take` gave last
  std::string_view peek() const { return rest_.substr(0, rest_.find('\n')); }
  std::string_view take() {
    const std::string_view line = peek();
    rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
    ++number_;
    return line;
  }
  // Takes the next line if it begins so, and gives what follows.
  bool take(std::string_view word, std::string_view* rest) {
    if (done() || peek().substr(0, word.size()) != word) return false;
    *rest = take().substr(word.size());
    return true;
  }
  bool is_indented() const { return !done() && peek().substr(0, 1) == " "; }

 private:
  std::string_view rest_;
  int number_ = 0;
};

std::string shown(std::string_view line) { return std::string(line.substr(0, 60)); }

// Is it the first line of a later format?
bool is_newer(std::string_view line) {
  constexpr std::string_view kWords = kFirst.substr(0, kFirst.size() - 1);
  if (line.substr(0, kWords.size()) != kWords) return false;
  int number = 0;
  const auto [end, error] = std::from_chars(line.data() + kWords.size(), line.data() + line.size(), number);
  return error == std::errc() && end == line.data() + line.size() && number > 1;
}

void read_first(Lines* lines) {
  const std::string_view line = lines->done() ? "" : lines->take();
  if (line == kFirst) return;
  throw_failure(NW_INVALID, -1, "saved program: it begins with '%s'; expected '%s'%s", shown(line).c_str(),
                std::string(kFirst).c_str(), is_newer(line) ? ": a newer Narrows saved it" : "");
}

// Throws what the work throws, with the line of the part that it is about.
template <class Work>
auto at_line(const char* part, int line, Work&& work) {
  try {
    return work();
  } catch (const Failure& failure) {
    throw Failure{failure.status, failure.argument, failure.native_code,
                  format("saved program, %s at line %d: %s", part, line, failure.message.c_str())};
  }
}

Schedule read_program(Lines* lines, std::string_view digest_expected) {
  const int first = lines->number() + 1;
  std::string text;
  if (!lines->done()) text += std::string(lines->take()) + "\n";
  while (lines->is_indented()) text += std::string(lines->take()) + "\n";
  return at_line("text", first, [&] {
    Program program = parse(text);
    const std::string found = digest(program);
    if (found != digest_expected)
      throw_failure(NW_INVALID, -1, "'%s' was changed: its digest is %s; expected %s", program.name.c_str(), found.c_str(),
                    shown(digest_expected).c_str());
    return Schedule(std::move(program));
  });
}

// The steps of one plugin, taken.
Schedule read_steps(Lines* lines, Schedule schedule) {
  while (lines->is_indented()) {
    std::string_view step = lines->take();
    step.remove_prefix(std::min(step.find_first_not_of(' '), step.size()));
    at_line("step", lines->number(), [&] { return schedule.apply(step); });
  }
  return schedule;
}

SavedProgram read_one(Lines* lines) {
  std::string_view rest;
  if (!lines->take("digest ", &rest))
    throw_failure(NW_INVALID, -1, "saved program, line %d: '%s'; expected 'digest' and that of the program that follows",
                  lines->number() + 1, shown(lines->peek()).c_str());
  SavedProgram out{read_program(lines, rest), {}};
  while (lines->take("schedule ", &rest)) {
    const std::string plugin(rest);
    out.scheduled.emplace_back(plugin, read_steps(lines, out.original));
  }
  return out;
}

void require_adjoint(const Program& found, const Program& program) {
  if (!is_adjoint(found, program))
    throw_failure(NW_INVALID, -1,
                  "'%s' is not the adjoint of '%s', which is before it; expected what nw_program_vjp() of this Narrows gives",
                  found.name.c_str(), program.name.c_str());
}

}  // namespace

std::vector<SavedProgram> read_saved(std::string_view text) {
  Lines lines(text);
  read_first(&lines);
  std::vector<SavedProgram> out;
  do {
    const int line = lines.number() + 2;  // of the text, behind its digest
    out.push_back(read_one(&lines));
    if (const size_t last = out.size() - 1; last > 0)
      at_line("text", line, [&] { require_adjoint(out[last].original.original(), out[last - 1].original.original()); });
  } while (!lines.done());
  return out;
}

}  // namespace narrows::program
