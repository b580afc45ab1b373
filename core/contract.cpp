// SPDX-License-Identifier: Apache-2.0
// contract.cpp -- see contract.h.
#include "core/contract.h"

#include <algorithm>

#include "core/batch.h"
#include "core/overlap.h"

namespace narrows {
namespace {

bool is_optional(const char* const* names, uint32_t i) { return names[i][std::strlen(names[i]) - 1] == '?'; }

void check_names(const nw_op& op, const char* const* names, uint32_t count, const char* what) {
  if (names == nullptr) throw_failure(NW_INVALID, -1, "op '%s' declares no names of %s", op.name, what);
  for (uint32_t i = 0; i < count; ++i) {
    if (names[i] == nullptr) throw_failure(NW_INVALID, -1, "op '%s' declares %u %s but only %u names", op.name, count, what, i);
    if (std::strspn(names[i], "?") == std::strlen(names[i]))
      throw_failure(NW_INVALID, -1, "op '%s': '%s', the name of number %u of its %s, is empty", op.name, names[i], i, what);
  }
  if (names[count] != nullptr)
    throw_failure(NW_INVALID, -1, "op '%s' declares %u %s but names more, '%s' the next", op.name, count, what, names[count]);
  for (uint32_t i = 0; i < count; ++i)
    for (uint32_t j = 0; j < i; ++j)
      if (std::strcmp(names[i], names[j]) == 0)
        throw_failure(NW_INVALID, -1, "op '%s' declares two %s named '%s'", op.name, what, names[i]);
}

void check_fields(const nw_op& op) {
  uint64_t end = 0;
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field) {
    const nw_param& f = **field;
    if (f.name == nullptr || f.name[0] == '\0') throw_failure(NW_INVALID, -1, "op '%s' declares a field without a name", op.name);
    if (f.offset < end)
      throw_failure(
          NW_INVALID, -1,
          "op '%s': field '%s' at byte %u; expected fields in the order of their offsets, which begin behind the one before",
          op.name, f.name, f.offset);
    end = f.offset + uint64_t{f.dtype.bits} * f.dtype.lanes / 8;
    if (end > op.params_size)
      throw_failure(NW_INVALID, -1, "op '%s': field '%s' ends at byte %llu of params that have %llu", op.name, f.name,
                    static_cast<unsigned long long>(end), static_cast<unsigned long long>(op.params_size));
  }
}

void check_presence(const Contract& contract, const nw_sig& sig) {
  const nw_op& op = contract.op;
  if (sig.num_inputs > op.max_inputs)
    throw_failure(NW_INVALID, static_cast<int32_t>(op.max_inputs), "%s: %u inputs, expected at most %u", op.name, sig.num_inputs,
                  op.max_inputs);
  for (uint32_t i = 0; i < op.max_inputs; ++i) {
    if (has_input(sig, i) || is_optional(op.inputs, i)) continue;
    if (i < op.min_inputs || i < sig.num_inputs)
      throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s is absent (NULL); expected a tensor", op.name,
                    input_name(op, i).c_str());
  }
}

void check_dtype_exists(const nw_op& op, const nw_sig& sig, uint32_t i) {
  const nw_tensor_sig& t = sig.tensors[i];
  if (t.ndim < 0) return;
  const std::string name = i < sig.num_inputs ? input_name(op, i) : output_name(op, i - sig.num_inputs);
  const int32_t argument = i < sig.num_inputs ? static_cast<int32_t>(i) : output_argument(i - sig.num_inputs);
  if (t.dtype.code > kDLFloat4_e2m1fn)
    throw_failure(NW_INVALID, argument, "%s: %s has dtype code %d; expected a DLDataTypeCode (0 to %d)", op.name, name.c_str(),
                  t.dtype.code, kDLFloat4_e2m1fn);
  if (t.dtype.lanes != 1)
    throw_failure(NW_INVALID, argument, "%s: %s has %d lanes; expected 1", op.name, name.c_str(), t.dtype.lanes);
  if (t.dtype.bits == 0 || t.dtype.bits % 8 != 0)
    throw_failure(NW_INVALID, argument, "%s: %s has %d bits per element; expected whole bytes", op.name, name.c_str(),
                  t.dtype.bits);
}

void check_dtypes(const nw_op& op, const DLDataType* dtypes, uint32_t count, const char* what) {
  for (uint32_t i = 0; dtypes != nullptr && i < count; ++i) {
    const DLDataType t = dtypes[i];
    if (t.bits == 0 ? t.code != 0 || t.lanes != 0 : t.code > kDLFloat4_e2m1fn || t.lanes != 1 || t.bits % 8 != 0)
      throw_failure(
          NW_INVALID, -1,
          "op '%s': the dtype of number %u of its %s has code %d, %d bits and %d lanes; expected one of whole bytes, or zeros",
          op.name, i, what, t.code, t.bits, t.lanes);
  }
}

void check_input_dtypes(const nw_op& op, const nw_sig& sig) {
  for (uint32_t i = 0; op.input_dtypes != nullptr && i < sig.num_inputs; ++i) {
    const DLDataType expected = op.input_dtypes[i];
    if (!has_input(sig, i) || expected.bits == 0 || same(sig.tensors[i].dtype, expected)) continue;
    throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has dtype %s; expected %s", op.name, input_name(op, i).c_str(),
                  show_dtype(sig.tensors[i].dtype).c_str(), show_dtype(expected).c_str());
  }
}

std::string dtypes_difference(const char* what, const DLDataType* a, const DLDataType* b, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const DLDataType here = a == nullptr ? DLDataType{} : a[i], there = b == nullptr ? DLDataType{} : b[i];
    const auto show = [](DLDataType t) { return t.bits == 0 ? std::string("any") : show_dtype(t); };
    if (!same(here, there)) return format("%s %u has dtype %s here and %s there", what, i, show(here).c_str(), show(there).c_str());
  }
  return "";
}

constexpr uint32_t kOpFlags = NW_OP_INPLACE | NW_OP_BATCHABLE | NW_OP_AUTOCAST;

std::string quoted(const char* text) { return text == nullptr ? "none" : format("'%s'", text); }

std::string names_difference(const char* what, const char* const* a, const char* const* b, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (std::strcmp(a[i], b[i]) != 0) return format("%s %u is '%s' here and '%s' there", what, i, a[i], b[i]);
  return "";
}

// Names of numbers: one side may know more of them.
std::string values_difference(const char* field, const char* const* a, const char* const* b) {
  if ((a == nullptr) != (b == nullptr)) return format("field '%s' of params has named values on one side only", field);
  for (uint32_t i = 0; a != nullptr && a[i] != nullptr && b[i] != nullptr; ++i)
    if (std::strcmp(a[i], b[i]) != 0) return format("value %u of field '%s' is '%s' here and '%s' there", i, field, a[i], b[i]);
  return "";
}

std::string fields_difference(const nw_param* const* a, const nw_param* const* b) {
  if (a == nullptr || b == nullptr) return "";
  for (uint32_t i = 0; a[i] != nullptr && b[i] != nullptr; ++i) {
    if (std::strcmp(a[i]->name, b[i]->name) != 0)
      return format("field %u of params is '%s' here and '%s' there", i, a[i]->name, b[i]->name);
    if (a[i]->offset != b[i]->offset || !same(a[i]->dtype, b[i]->dtype))
      return format("field '%s' of params is %s at byte %u here and %s at byte %u there", a[i]->name,
                    show_dtype(a[i]->dtype).c_str(), a[i]->offset, show_dtype(b[i]->dtype).c_str(), b[i]->offset);
    if (!(a[i]->initial == b[i]->initial))
      return format("field '%s' of params is %g by default here and %g there", a[i]->name, a[i]->initial, b[i]->initial);
    if (std::string out = values_difference(a[i]->name, a[i]->values, b[i]->values); !out.empty()) return out;
  }
  return "";
}

}  // namespace

Contract::Contract(const nw_op& declaration) : op(declaration) {
  op.kernels = nullptr;
  if (op.max_inputs < op.min_inputs)
    throw_failure(NW_INVALID, -1, "op '%s' declares %u inputs at least and %u at most", op.name, op.min_inputs, op.max_inputs);
  if (op.num_outputs == 0 || op.max_inputs > NW_MAX_TENSORS || op.num_outputs > NW_MAX_TENSORS - op.max_inputs)
    throw_failure(NW_INVALID, -1, "op '%s' declares %u inputs and %u outputs; expected at least one output and at most %d tensors",
                  op.name, op.max_inputs, op.num_outputs, NW_MAX_TENSORS);
  if (op.num_aux > op.num_outputs)
    throw_failure(NW_INVALID, -1, "op '%s' declares %u auxiliary outputs of %u", op.name, op.num_aux, op.num_outputs);
  if (op.flags & ~kOpFlags)
    throw_failure(NW_UNSUPPORTED, -1, "op '%s' declares flags 0x%x; this host knows 0x%x", op.name, op.flags, kOpFlags);
  check_names(op, op.inputs, op.max_inputs, "inputs");
  check_names(op, op.outputs, op.num_outputs, "outputs");
  check_dtypes(op, op.input_dtypes, op.max_inputs, "inputs");
  check_dtypes(op, op.output_dtypes, op.num_outputs, "outputs");
  check_fields(op);
  if (op.shape_rule != nullptr) rule.emplace(op.shape_rule, op.max_inputs, op.num_outputs);
  check_batch(op, rule ? &*rule : nullptr);
}

const std::vector<const Contract*>& builtins() {
  // Never destroyed, nor is what it points to: an exit handler may still make a call.
#define NARROWS_OP(name) &name##_contract(),
  static const auto& all = *new std::vector<const Contract*>{
#include "core/ops/ops.inc"
  };
#undef NARROWS_OP
  return all;
}

const Contract* find_builtin(const std::string& name) {
  for (const Contract* contract : builtins())
    if (name == contract->op.name) return contract;
  return nullptr;
}

std::string declaration_difference(const nw_op& a, const nw_op& b) {
  if (a.min_inputs != b.min_inputs || a.max_inputs != b.max_inputs || a.num_outputs != b.num_outputs || a.num_aux != b.num_aux)
    return format("it takes %u to %u inputs and gives %u outputs (%u auxiliary) here, and %u to %u, %u (%u) there", a.min_inputs,
                  a.max_inputs, a.num_outputs, a.num_aux, b.min_inputs, b.max_inputs, b.num_outputs, b.num_aux);
  // What changes no value one side may leave out: NW_OP_AUTOCAST and `batch`, which a plugin for an older host cannot say.
  if ((a.flags ^ b.flags) & ~uint32_t{NW_OP_AUTOCAST}) return format("flags are 0x%x here and 0x%x there", a.flags, b.flags);
  if (quoted(a.shape_rule) != quoted(b.shape_rule))
    return format("the shape rule is %s here and %s there", quoted(a.shape_rule).c_str(), quoted(b.shape_rule).c_str());
  if (quoted(a.backward) != quoted(b.backward))
    return format("backward is %s here and %s there", quoted(a.backward).c_str(), quoted(b.backward).c_str());
  if (a.batch != nullptr && b.batch != nullptr && std::strcmp(a.batch, b.batch) != 0)
    return format("batch is '%s' here and '%s' there", a.batch, b.batch);
  if (a.saved != b.saved)
    return format("saved is 0x%llx here and 0x%llx there", static_cast<unsigned long long>(a.saved),
                  static_cast<unsigned long long>(b.saved));
  if (std::string out = names_difference("input", a.inputs, b.inputs, a.max_inputs); !out.empty()) return out;
  if (std::string out = names_difference("output", a.outputs, b.outputs, a.num_outputs); !out.empty()) return out;
  if (std::string out = dtypes_difference("input", a.input_dtypes, b.input_dtypes, a.max_inputs); !out.empty()) return out;
  if (std::string out = dtypes_difference("output", a.output_dtypes, b.output_dtypes, a.num_outputs); !out.empty()) return out;
  return fields_difference(a.params, b.params);
}

void check_inputs(const Contract& contract, const nw_sig& sig) {
  const nw_op& op = contract.op;
  if (sig.flags & ~uint32_t{NW_DETERMINISTIC})
    throw_failure(NW_UNSUPPORTED, -1, "%s: flags 0x%x; this host knows 0x%x", op.name, sig.flags, NW_DETERMINISTIC);
  check_presence(contract, sig);
  if (sig.params_size > op.params_size)
    throw_failure(NW_UNSUPPORTED, -1, "%s: params byte %llu is not 0; the op knows %llu bytes and takes only 0 after them", op.name,
                  static_cast<unsigned long long>(sig.params_size - 1), static_cast<unsigned long long>(op.params_size));
  for (uint32_t i = 0; i < sig.num_inputs + sig.num_outputs; ++i) check_dtype_exists(op, sig, i);
  check_input_dtypes(op, sig);
  if (contract.check != nullptr) contract.check(sig);
}

std::vector<nw_spec> infer_by_rule(const Contract& contract, const nw_sig& sig) {
  std::vector<Shape> inputs(contract.op.max_inputs);
  for (uint32_t i = 0; i < sig.num_inputs; ++i)
    if (has_input(sig, i)) inputs[i] = {true, {sig.tensors[i].shape, sig.tensors[i].shape + sig.tensors[i].ndim}};
  const std::vector<Shape> shapes = contract.rule->evaluate(contract.op, inputs, sig.params, sig.params_size);
  DLDataType dtype{};
  for (uint32_t i = sig.num_inputs; i-- > 0;)
    if (has_input(sig, i)) dtype = sig.tensors[i].dtype;
  std::vector<nw_spec> specs(shapes.size());
  for (uint32_t i = 0; i < shapes.size(); ++i) {
    nw_spec& spec = specs[i];
    const DLDataType* const declared = contract.op.output_dtypes;
    spec.dtype = contract.output_dtype != nullptr               ? contract.output_dtype(sig, i)
                 : declared != nullptr && declared[i].bits != 0 ? declared[i]
                                                                : dtype;
    spec.ndim = shapes[i].present ? static_cast<int32_t>(shapes[i].extents.size()) : -1;
    std::copy(shapes[i].extents.begin(), shapes[i].extents.end(), spec.shape);
  }
  return specs;
}

void check_outputs(const Contract& contract, const nw_sig& sig, const std::vector<nw_spec>& specs) {
  const nw_op& op = contract.op;
  if (sig.num_outputs != op.num_outputs)
    throw_failure(NW_INVALID, -1, "%s: %u outputs, expected %u", op.name, sig.num_outputs, op.num_outputs);
  for (uint32_t i = 0; i < op.num_outputs; ++i) {
    const std::string name = output_name(op, i);
    const int32_t argument = output_argument(i);
    const nw_tensor_sig* t = find_output(sig, i);
    if (t == nullptr) {
      if (i + op.num_aux >= op.num_outputs || is_optional(op.outputs, i)) continue;
      if (specs[i].ndim < 0)
        throw_failure(
            NW_INVALID, argument,
            "%s: %s has no shape, because the input that gives it is absent; expected that input: %s is declared without '?'",
            op.name, name.c_str(), name.c_str());
      throw_failure(NW_INVALID, argument, "%s: %s is NULL; expected a tensor", op.name, name.c_str());
    }
    const nw_spec& spec = specs[i];
    if (spec.ndim < 0)
      throw_failure(NW_INVALID, argument, "%s: %s has no shape, because the input that gives it is absent; expected %s = NULL",
                    op.name, name.c_str(), name.c_str());
    if (!same(t->dtype, spec.dtype))
      throw_failure(NW_INVALID, argument, "%s: %s has dtype %s; expected %s", op.name, name.c_str(), show_dtype(t->dtype).c_str(),
                    show_dtype(spec.dtype).c_str());
    if (t->ndim != spec.ndim || !std::equal(t->shape, t->shape + t->ndim, spec.shape))
      throw_failure(NW_INVALID, argument, "%s: %s has shape %s; expected %s", op.name, name.c_str(),
                    show_shape(t->shape, t->ndim).c_str(), show_shape(spec.shape, spec.ndim).c_str());
    if (may_overlap_itself(*t))
      throw_failure(NW_INVALID, argument, "%s: %s of shape %s has strides %s, by which two elements share a place", op.name,
                    name.c_str(), show_shape(t->shape, t->ndim).c_str(), show_shape(t->strides, t->ndim).c_str());
    const bool may_be = contract.inplace.empty() ? (op.flags & NW_OP_INPLACE) != 0 : contract.inplace[i] == t->alias_of;
    if (t->alias_of >= 0 && !may_be)
      throw_failure(NW_INVALID, argument, "%s: %s is the same memory as %s; this op does not work in place%s", op.name,
                    name.c_str(), input_name(op, static_cast<uint32_t>(t->alias_of)).c_str(),
                    contract.inplace.empty() ? "" : " there");
  }
}

nw_op declare(const char* name, uint32_t min_inputs, const char* const* inputs, const char* const* outputs,
              const char* shape_rule) {
  nw_op op{};
  op.struct_size = sizeof op;
  op.name = name;
  op.min_inputs = min_inputs;
  while (inputs[op.max_inputs] != nullptr) ++op.max_inputs;
  while (outputs[op.num_outputs] != nullptr) ++op.num_outputs;
  op.inputs = inputs;
  op.outputs = outputs;
  op.shape_rule = shape_rule;
  return op;
}

void check_float_inputs(const nw_op& op, const nw_sig& sig) {
  int32_t first = -1;
  for (uint32_t i = 0; i < sig.num_inputs; ++i) {
    if (!has_input(sig, i)) continue;
    const DLDataType dtype = sig.tensors[i].dtype;
    if (!is_float(dtype))
      throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has dtype %s; expected float32, float64, float16 or bfloat16",
                    op.name, input_name(op, i).c_str(), show_dtype(dtype).c_str());
    if (first < 0) first = static_cast<int32_t>(i);
    const DLDataType expected = sig.tensors[first].dtype;
    if (!same(dtype, expected))
      throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has dtype %s; expected %s, the dtype of %s", op.name,
                    input_name(op, i).c_str(), show_dtype(dtype).c_str(), show_dtype(expected).c_str(),
                    input_name(op, static_cast<uint32_t>(first)).c_str());
  }
}

}  // namespace narrows
