// SPDX-License-Identifier: Apache-2.0
// contract.cpp -- is a call legal, by what abi.h and "For every op" of docs/ops.md say? See call.h. The rules of the single ops
// are in contract_ops.cpp and ops/. Written from those pages in 128-bit arithmetic, so that no mistake is shared with core.
#include <cstring>

#include "oracle.h"

namespace narrows::fuzz {
namespace {

constexpr Wide kMost = INT64_MAX;

std::string at(const char* what, size_t i) { return std::string(what) + " " + std::to_string(i); }

// What is wrong with one tensor by itself.
std::string refuse_tensor(const TensorSpec& t) {
  if (!t.present) return "";
  if (t.ndim < 0 || t.ndim > NW_MAX_NDIM) return "a rank outside 0 to 16";
  if (t.shape_null && t.ndim != 0) return "a shape that is NULL";
  for (const int64_t extent : t.shape)
    if (extent < 0) return "a negative extent";
  if (!reach(t)) return "bytes beyond 63 bits";
  if (!t.known_dtype()) return "a dtype that no op takes";
  if (t.device.device_type != kDLCPU || t.device.device_id != 0) return "a device without a backend";
  return "";
}

std::string refuse_call(const Case& c) {
  const OpFacts& op = facts(c.op);
  if ((c.flags & ~uint32_t{NW_DETERMINISTIC}) != 0) return "unknown flags";
  if (c.params_null && !c.params.empty()) return "params is NULL, its size is not 0";
  for (size_t i = op.params_size; i < c.params.size(); ++i)
    if (c.params[i] != 0) return "a params byte that the op does not know";
  for (size_t i = 0; i < op.max_inputs; ++i)
    if ((op.required_inputs >> i & 1) != 0 && c.input(i) == nullptr) return at("no input", i);
  for (size_t i = op.max_inputs; i < c.inputs.size(); ++i)
    if (c.inputs[i].present) return at("too many: input", i);
  for (const TensorSpec& t : c.inputs)
    if (std::string why = refuse_tensor(t); !why.empty()) return "an input with " + why;
  return "";
}

std::string refuse_output(const Case& c, size_t i, const OutputSpec& spec) {
  const TensorSpec* t = c.output(i);
  if (t == nullptr) return (facts(c.op).required_outputs >> i & 1) != 0 ? at("no output", i) : "";
  if (std::string why = refuse_tensor(*t); !why.empty()) return "an output with " + why;
  if (!spec.possible) return "the gradient of an input that is absent";
  if (t->known_dtype() != spec.dtype) return at("another dtype in output", i);
  if (t->ndim == 0 ? !spec.shape.empty() : t->shape != spec.shape) return at("another shape in output", i);
  return "";
}

}  // namespace

std::optional<DType> TensorSpec::known_dtype() const {
  for (const DType d : test::kAllDTypes)
    if (const DLDataType own = test::dl_dtype(d); own.code == dtype.code && own.bits == dtype.bits && own.lanes == dtype.lanes)
      return d;
  return std::nullopt;
}

int64_t TensorSpec::stride(size_t d) const {
  if (!strides_null) return strides[d];
  int64_t stride = 1;
  for (size_t i = d + 1; i < shape.size(); ++i)
    if (__builtin_mul_overflow(stride, shape[i], &stride)) return INT64_MAX;
  return stride;
}

TensorSpec tensor(DType dtype, std::vector<int64_t> shape) {
  TensorSpec t;
  t.present = true;
  t.dtype = test::dl_dtype(dtype);
  t.ndim = static_cast<int32_t>(shape.size());
  t.shape = std::move(shape);
  t.strides.resize(t.shape.size());
  t.strides_null = true;
  for (size_t d = 0; d < t.shape.size(); ++d) t.strides[d] = t.stride(d);
  t.strides_null = false;
  return t;
}

std::optional<Reach> reach(const TensorSpec& t) {
  if (t.ndim < 0 || t.ndim > NW_MAX_NDIM || t.shape.size() != static_cast<size_t>(t.ndim)) return std::nullopt;
  for (const int64_t extent : t.shape)
    if (extent < 0)
      return std::nullopt;
    else if (extent == 0)
      return Reach{0, 0, 0};
  const Wide item = (Wide{t.dtype.bits} * t.dtype.lanes + 7) / 8;
  Reach r;
  Wide last = 0;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    if (t.shape[d] == 1) continue;
    r.elements *= t.shape[d];
    const Wide way = Wide{t.shape[d] - 1} * t.stride(d);
    (way < 0 ? r.below : last) += way;
    if (r.elements * item > kMost || r.below * item < -kMost - 1 || (last + 1) * item > kMost) return std::nullopt;
  }
  r.below *= item;
  r.above = (last + 1) * item;
  return r;
}

Verdict judge_inputs(const Case& c) {
  Verdict v;
  v.illegal = refuse_call(c);
  if (!v.illegal.empty()) return v;
  oracle(c.op).judge(c, &v);
  if (v.illegal.empty() && c.kernel != nullptr) v.unsettled = "a kernel variant is forced";
  if (c.inputs.size() > facts(c.op).max_inputs || c.inputs.size() < facts(c.op).min_inputs)
    v.unsettled = "absent inputs at the end";
  return v;
}

Verdict judge(const Case& c) {
  Verdict v = judge_inputs(c);
  if (!v.illegal.empty()) return v;
  if (c.outputs.size() != facts(c.op).num_outputs) v.illegal = "another number of outputs";
  for (size_t i = 0; i < c.outputs.size() && v.illegal.empty(); ++i) v.illegal = refuse_output(c, i, v.outputs[i]);
  return v;
}

}  // namespace narrows::fuzz
