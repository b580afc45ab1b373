// SPDX-License-Identifier: Apache-2.0
// kernels.cpp -- see kernels.h.
#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "../cpu_plugin.h"
#include "core/program/dtype.h"
#include "core/program/text.h"
#include "random_program.h"

namespace narrows::search {
namespace {

Tensor filled(const reference::Array& array, const std::vector<reference::Exact>* values, Random& random) {
  static const std::vector<int64_t> kSteps = {1, 1, 2, -1};
  Tensor out(array.dtype, array.shape, random.pick(kSteps));
  for (size_t i = 0; values != nullptr && i < values->size(); ++i) out.set(static_cast<int64_t>(i), (*values)[i]);
  return out;
}

Tensor input(const program::Buffer& tensor, const reference::Evaluation& want, const reference::Arguments& arguments,
             Random& random) {
  const auto values = arguments.tensors.find(tensor.name);
  if (values != arguments.tensors.end()) return filled(want.arrays.at(tensor.name), &values->second, random);
  Tensor out;
  out.absent = true;
  return out;
}

std::vector<Param> params_of(const program::Program& program, const reference::Arguments& arguments) {
  std::vector<Param> out;
  for (const program::Param& param : program.params) {
    const bool is_real = program::is_float(param.dtype);
    const auto given = arguments.params.find(param.name);
    if (given == arguments.params.end())
      out.push_back({param.value->real, param.value->integer, is_real});
    else
      out.push_back({static_cast<double>(given->second), static_cast<int64_t>(given->second), is_real});
  }
  return out;
}

std::string wrong_values(const std::string& name, Tensor& tensor, const reference::Array& want) {
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const reference::Exact got = tensor.exact(i), expected = want.values[static_cast<size_t>(i)];
    if (got != expected && !(std::isnan(got) && std::isnan(expected)))
      return "element " + std::to_string(i) + " of " + name + " is " + std::to_string(got) + "; expected " +
             std::to_string(expected);
  }
  return tensor.is_clean_outside() ? "" : "something beside the elements of " + name + " was written";
}

bool is_bound(const program::Stmt& stmt) {
  const auto* const loop = std::get_if<std::shared_ptr<const program::For>>(&stmt);
  if (loop == nullptr) return false;
  const program::For& it = **loop;
  return it.kind == program::For::Kind::bind || std::any_of(it.body.begin(), it.body.end(), is_bound);
}

}  // namespace

bool runs_on_cpu(const program::Program& program) { return std::none_of(program.body.begin(), program.body.end(), is_bound); }

std::string wrong_by_kernel(const Plugin& plugin, const program::Program& program, const reference::Arguments& arguments,
                            const char* kernel, uint64_t seed) {
  const reference::Evaluation want = reference::evaluate(program, arguments, reference::Rounding::each);
  Random random(seed);
  std::map<std::string, Tensor> given, made;
  Call call{plugin, program::print(program), {}, {}, kernel, params_of(program, arguments)};
  for (const program::Buffer& tensor : program.tensors) {
    const bool is_given = tensor.role != program::Buffer::Role::output;
    if (is_given) {
      given[tensor.name] = input(tensor, want, arguments, random);
      call.inputs.push_back(&given[tensor.name]);
    }
    if (tensor.role == program::Buffer::Role::input) continue;
    if (is_given && call.outputs.empty() && random.chance(50)) {  // one buffer
      call.alias_of = static_cast<int>(call.inputs.size()) - 1;
      call.outputs.push_back(call.inputs.back());
    } else {
      made[tensor.name] = filled(want.arrays.at(tensor.name), nullptr, random);
      call.outputs.push_back(&made[tensor.name]);
    }
  }
  if (const Answer answer = call.run(); !answer)
    return answer.status == NW_UNSUPPORTED && !plugin.is_of_cpu() ? kDeclined : "it fails: " + answer.message;
  size_t next = 0;
  for (const program::Buffer& tensor : program.tensors) {
    if (tensor.role == program::Buffer::Role::input) continue;
    if (const std::string wrong = wrong_values(tensor.name, *call.outputs[next++], want.arrays.at(tensor.name)); !wrong.empty())
      return wrong;
  }
  return "";
}

}  // namespace narrows::search
