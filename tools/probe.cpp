// SPDX-License-Identifier: Apache-2.0
// probe.cpp -- the questions. See probe.h.
#include "probe.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace narrows::tools {
namespace {

// A tensor that exists in a question only: planning reads no memory, so any aligned address serves.
struct Imagined {
  DLDataType dtype{};
  std::vector<int64_t> shape;
};
using Tensors = std::vector<std::optional<Imagined>>;  // nullopt: absent

DLTensor imagined_dl(const Imagined& tensor, DLDevice device, size_t index) {
  DLTensor t{};
  t.data = reinterpret_cast<void*>((index + 1) << 20);  // NOLINT(performance-no-int-to-ptr): nothing looks there
  t.device = device;
  t.ndim = static_cast<int32_t>(tensor.shape.size());
  t.dtype = tensor.dtype;
  t.shape = const_cast<int64_t*>(tensor.shape.data());
  return t;
}

struct SupportQuery {
  nw_runtime* runtime;
  const char* backend;
  DLDevice device;

  // Imagines the outputs that the op would have, and asks.
  Support ask(const char* op, const Tensors& inputs, const Params& params) const {
    std::vector<DLTensor> tensors(NW_MAX_TENSORS);
    std::vector<const DLTensor*> pointers;
    const auto add = [&](const std::optional<Imagined>& tensor) {
      const size_t at = pointers.size();
      if (tensor) tensors[at] = imagined_dl(*tensor, device, at);
      pointers.push_back(tensor ? &tensors[at] : nullptr);
    };
    for (const auto& input : inputs) add(input);
    nw_call call{};
    call.struct_size = sizeof call;
    call.op = op;
    call.num_inputs = static_cast<uint32_t>(inputs.size());
    call.inputs = pointers.data();
    call.params = params.size == 0 ? nullptr : params.bytes;
    call.params_size = params.size;
    call.device = device;
    call.backend = backend;

    const nw_op* declaration = nullptr;
    if (nw_find_op(runtime, op, &declaration, nullptr) != NW_OK) return Support::no;
    std::vector<nw_spec> specs(declaration->num_outputs);
    if (const int32_t status = nw_infer(runtime, &call, specs.data(), declaration->num_outputs, nullptr); status != NW_OK)
      return status == NW_INVALID ? Support::outside : Support::no;
    // The gradient of an absent input, or of a bool, cannot be asked for.
    std::vector<Imagined> outputs(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      outputs[i] = {specs[i].dtype, {specs[i].shape, specs[i].shape + std::max(specs[i].ndim, 0)}};
      const bool gradient = std::strstr(op, "_backward") != nullptr;
      add(specs[i].ndim < 0 || specs[i].dtype.bits == 0 || (gradient && specs[i].dtype.code == kDLBool)
              ? std::nullopt
              : std::optional(outputs[i]));
      if (pointers.back() != nullptr) tensors[pointers.size() - 1].shape = outputs[i].shape.data();
    }
    call.inputs = pointers.data();
    call.outputs = pointers.data() + inputs.size();
    call.num_outputs = static_cast<uint32_t>(outputs.size());
    const int32_t status = nw_plan_get(runtime, &call, nullptr, nullptr, nullptr);
    return status == NW_OK ? Support::yes : status == NW_INVALID ? Support::outside : Support::no;
  }
};

// Of several questions that stand for one answer: what one refuses, the whole lacks.
Support both(Support a, Support b) {
  if (a == Support::outside) return b;
  if (b == Support::outside) return a;
  return std::min(a, b);
}

const std::vector<int64_t> kShape = {3, 5};

Support ask_elementwise(const SupportQuery& q, int32_t function, size_t operands, DLDataType type, int32_t out_dtype,
                        bool backward) {
  nw_elementwise_params params{};
  params.function = function;
  params.out_dtype = out_dtype;
  params.alpha = function == NW_EW_ELU ? 1 : 0;
  Tensors inputs(operands, Imagined{type, kShape});
  if (function == NW_EW_WHERE) inputs[0]->dtype = {kDLBool, 8, 1};
  if (backward) inputs.insert(inputs.begin(), Imagined{out_dtype != 0 ? kDtypes[out_dtype - 1].type : type, kShape});
  return q.ask(backward ? "elementwise_backward" : "elementwise", inputs, params);
}

// A function's number of operands is the number that its contract takes, the most first: a missing one could be a number.
Support ask_function(const SupportQuery& q, int32_t function, DLDataType type, bool backward) {
  Support answer = Support::outside;
  if (function == NW_EW_CAST) {  // to every dtype
    for (size_t to = 1; to <= kDtypes.size(); ++to)
      answer = both(answer, ask_elementwise(q, function, 1, type, static_cast<int32_t>(to), backward));
    return answer;
  }
  for (size_t operands = 3; operands >= 1 && answer == Support::outside; --operands)
    if (function != NW_EW_WHERE || operands == 3) answer = ask_elementwise(q, function, operands, type, 0, backward);
  return answer;
}

// ---- the question of each op but elementwise ----

Support ask_conv1d(const SupportQuery& q, DLDataType type) {
  return q.ask("conv1d", {Imagined{type, {2, 4, 16}}, Imagined{type, {6, 4, 3}}, Imagined{type, {6}}}, nw_conv1d_params{});
}

Support ask_conv1d_backward(const SupportQuery& q, DLDataType type) {
  const Imagined x{type, {2, 4, 16}}, w{type, {6, 4, 3}}, bias{type, {6}}, y{type, {2, 6, 14}};
  return q.ask("conv1d_backward", {y, x, w, bias}, nw_conv1d_params{});
}

Support ask_lltm(const SupportQuery& q, DLDataType type) {
  const Imagined input{type, {2, 4}}, weights{type, {24, 12}}, bias{type, {24}}, state{type, {2, 8}};
  return q.ask("lltm", {input, weights, bias, state, state}, {});
}

Support ask_lltm_backward(const SupportQuery& q, DLDataType type) {
  const Imagined input{type, {2, 4}}, weights{type, {24, 12}}, bias{type, {24}}, state{type, {2, 8}};
  // The gates of 16-bit inputs are float32.
  const Imagined gates{type.bits == 16 ? DLDataType{kDLFloat, 32, 1} : type, {2, 24}};
  return q.ask("lltm_backward", {state, state, input, weights, bias, state, state, state, state, gates}, {});
}

constexpr int64_t kSteps = 3;

Support ask_lltm_sequence(const SupportQuery& q, DLDataType type) {
  const Imagined input{type, {kSteps, 2, 4}}, weights{type, {24, 12}}, bias{type, {24}}, state{type, {2, 8}};
  return q.ask("lltm_sequence", {input, weights, bias, state, state}, nw_lltm_sequence_params{});
}

Support ask_lltm_sequence_backward(const SupportQuery& q, DLDataType type) {
  const Imagined input{type, {kSteps, 2, 4}}, weights{type, {24, 12}}, bias{type, {24}}, state{type, {2, 8}};
  const Imagined states{type, {kSteps, 2, 8}}, gates{type.bits == 16 ? DLDataType{kDLFloat, 32, 1} : type, {kSteps, 2, 24}};
  return q.ask(
      "lltm_sequence_backward",
      {states, state, state, input, weights, bias, state, state, std::nullopt, states, std::nullopt, std::nullopt, states, gates},
      nw_lltm_sequence_params{});
}

struct Question {
  const char* op;
  Support (*ask)(const SupportQuery& q, DLDataType type);
};
constexpr Question kQuestions[] = {
    {"conv1d", ask_conv1d},
    {"conv1d_backward", ask_conv1d_backward},
    {"lltm", ask_lltm},
    {"lltm_backward", ask_lltm_backward},
    {"lltm_sequence", ask_lltm_sequence},
    {"lltm_sequence_backward", ask_lltm_sequence_backward},
};  // kQuestions

std::vector<std::string> function_names(nw_runtime* runtime) {
  const nw_op* op = nullptr;
  std::vector<std::string> names;
  if (nw_find_op(runtime, "elementwise", &op, nullptr) != NW_OK) return names;
  for (const nw_param* const* field = op->params; field != nullptr && *field != nullptr; ++field)
    if (std::strcmp((*field)->name, "function") == 0 && (*field)->values != nullptr)
      for (const char* const* name = (*field)->values; *name != nullptr; ++name) names.emplace_back(*name);
  return names;
}

template <class Ask>
FunctionSupport row(std::string name, Ask&& ask) {
  FunctionSupport support{std::move(name), {}};
  for (size_t i = 0; i < kDtypes.size(); ++i) support.dtypes[i] = ask(kDtypes[i].type);
  return support;
}

std::vector<FunctionSupport> probe_op(const SupportQuery& q, const std::string& op) {
  for (const Question& question : kQuestions)
    if (op == question.op) return {row("", [&](DLDataType type) { return question.ask(q, type); })};
  const bool backward = op.ends_with("_backward");
  std::vector<FunctionSupport> rows;
  if (op != "elementwise" && op != "elementwise_backward") return rows;
  const auto names = function_names(q.runtime);
  for (size_t number = 1; number < names.size(); ++number)
    rows.push_back(
        row(names[number], [&](DLDataType type) { return ask_function(q, static_cast<int32_t>(number), type, backward); }));
  return rows;
}

}  // namespace

OpSupport::Count OpSupport::count(size_t dtype) const {
  Count c;
  for (const FunctionSupport& f : functions) {
    c.legal += f.dtypes[dtype] != Support::outside;
    c.supported += f.dtypes[dtype] == Support::yes;
  }
  return c;
}

std::vector<OpSupport> probe(const Runtime& runtime, const nw_backend_info& backend) {
  std::vector<OpSupport> found;
  const SupportQuery q{runtime.get(), backend.name, {static_cast<DLDeviceType>(backend.device_type), 0}};
  for (uint32_t i = 0; i < backend.num_ops; ++i) {
    const nw_op& op = *backend.ops[i];
    if (std::strchr(op.name, '.') != nullptr) continue;  // the plugin's own: only it knows what suits it
    OpSupport support{op.name, {}, probe_op(q, op.name)};
    for (const char* const* kernel = op.kernels; kernel != nullptr && *kernel != nullptr; ++kernel)
      support.kernels.emplace_back(*kernel);
    found.push_back(std::move(support));
  }
  return found;
}

std::string dtype_text(DLDataType type) {
  std::string text = "dtype code " + std::to_string(type.code) + ", " + std::to_string(type.bits) + " bits";
  for (const Dtype& known : kDtypes)
    if (known.type.code == type.code && known.type.bits == type.bits) text = known.name;
  return type.lanes > 1 ? text + " x " + std::to_string(type.lanes) : text;
}

}  // namespace narrows::tools
