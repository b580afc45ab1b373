// SPDX-License-Identifier: Apache-2.0
// program_compare.cpp -- arguments for a tensor program, and what differs between two runs of one. See program.h.
#include <algorithm>
#include <cmath>

#include "program_values.h"

namespace narrows::reference {
namespace {

using program::Axis;
using program::Buffer;
using program::Program;
using Point = std::vector<int64_t>;

bool is_close(Exact a, Exact b, Exact tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= tolerance * std::max<Exact>({1, std::fabs(a), std::fabs(b)});
}

void compare_values(const std::string& name, const Array& a, const Array& b, Exact tolerance, std::vector<std::string>& found) {
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (is_close(a.values[i], b.values[i], tolerance)) continue;
    found.push_back("element " + std::to_string(i) + " of " + name + " is " + std::to_string(b.values[i]) + "; unscheduled it is " +
                    std::to_string(a.values[i]));
    return;
  }
}

// The same points; as often as each other where they have the spatial coordinates in common: a reduction is repeated whole.
void compare_points(const std::string& name, const BlockRuns& a, const BlockRuns& b, std::vector<std::string>& found) {
  std::map<Point, int64_t> rounds;
  for (const auto& [point, times] : b.points) {
    if (a.points.count(point) == 0)
      return found.push_back("block " + name + " runs at " + shown(point) + ", unscheduled it does not");
    Point spatial;
    for (size_t i = 0; i < point.size(); ++i)
      if (b.kinds[i] == Axis::Kind::spatial) spatial.push_back(point[i]);
    if (rounds.try_emplace(spatial, times).first->second != times)
      return found.push_back("block " + name + " runs " + std::to_string(times) + " times at " + shown(point) +
                             ", elsewhere in its reduction " + std::to_string(rounds.at(spatial)) + " times");
  }
  if (!b.writes_tensors) return;
  for (const auto& [point, times] : a.points)
    if (b.points.count(point) == 0) return found.push_back("block " + name + " does not run at " + shown(point));
}

}  // namespace

Arguments small_integers(const Program& program, std::map<std::string, int64_t> sizes, uint64_t seed) {
  Arguments arguments{std::move(sizes), {}, {}};
  uint64_t state = seed * 2862933555777941757u + 3037000493u;
  const auto next = [&](int64_t low, int64_t high) {  // a linear congruential generator's upper bits
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(high - low + 1));
  };
  // Shapes are evaluated by a machine of a program without inputs.
  Program shapes = program;
  shapes.body.clear();
  for (Buffer& tensor : shapes.tensors) tensor.role = Buffer::Role::allocated;
  const Evaluation empty = evaluate(shapes, arguments);
  for (const Buffer& tensor : program.tensors) {
    if (tensor.role == Buffer::Role::output) continue;
    const DType dtype = element_dtype(tensor.dtype);
    const int64_t low = test::is_float(dtype) || test::is_signed_int(dtype) ? -3 : 0;
    std::vector<Exact>& values = arguments.tensors[tensor.name];
    values.resize(empty.arrays.at(tensor.name).values.size());
    for (Exact& value : values) value = next(low, dtype == DType::boolean ? 1 : 3);
  }
  return arguments;
}

std::vector<std::string> differences(const Evaluation& unscheduled, const Evaluation& scheduled, const Program& program,
                                     Exact tolerance) {
  std::vector<std::string> found;
  for (const Buffer& tensor : program.tensors)
    if (tensor.role != Buffer::Role::input && unscheduled.arrays.count(tensor.name) != 0)
      compare_values(tensor.name, unscheduled.arrays.at(tensor.name), scheduled.arrays.at(tensor.name), tolerance, found);
  for (const auto& [name, runs] : unscheduled.blocks) {
    const auto other = scheduled.blocks.find(name);
    if (other == scheduled.blocks.end() || other->second.axes != runs.axes || other->second.kinds != runs.kinds ||
        other->second.extents != runs.extents)
      continue;  // a step replaced it
    compare_points(name, runs, other->second, found);
  }
  return found;
}

}  // namespace narrows::reference
