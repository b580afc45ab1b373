// SPDX-License-Identifier: Apache-2.0
// check.cpp -- makes a call three ways, by nw_infer, nw_plan_get and nw_run, and holds it against the contract. See call.h.
//
// What is demanded: an illegal call is refused, with a status from NW_INVALID to NW_NOT_CAPTURABLE, a message and no byte changed;
// a legal one is accepted, or refused only where the docs leave that open; the three agree; an accepted one writes the elements of
// its outputs and nothing else, as the reference has them.
//
// nw_run gets real memory, or none: where a tensor's extent, or the work, is beyond the budget, its data is NULL, which nw_run must
// refuse, and only nw_plan_get, which touches no memory, is asked whether the metadata is legal.
#include <cmath>
#include <cstring>

#include "finding.h"
#include "memory.h"

namespace narrows::fuzz {
namespace {

constexpr Wide kMostWork = 1 << 18;

nw_runtime* runtime() {
  static nw_runtime* const rt = [] {
    nw_options options{};
    options.struct_size = sizeof options;
    options.num_threads = 1;           // the same coverage every time
    options.plan_cache_capacity = 16;  // so that plans are evicted
    options.plugin_path = "";
    nw_runtime* out = nullptr;
    nw_error error;
    if (nw_runtime_create(&options, &out, &error) != NW_OK) finding("no runtime: %s", error.message);
    return out;
  }();
  return rt;
}

std::string show(const std::vector<int64_t>& numbers) {
  std::string out = "(";
  for (const int64_t n : numbers) out += (out.size() > 1 ? ", " : "") + std::to_string(n);
  return out + ")";
}

std::string show(const TensorSpec& t) {
  if (!t.present) return "absent";
  const std::optional<DType> dtype = t.known_dtype();
  std::string out =
      dtype ? test::name(*dtype)
            : "dtype " + std::to_string(t.dtype.code) + ":" + std::to_string(t.dtype.bits) + "x" + std::to_string(t.dtype.lanes);
  out += show(t.shape) + " strides " + (t.strides_null ? "NULL" : show(t.strides));
  if (static_cast<size_t>(t.ndim) != t.shape.size()) out += " ndim " + std::to_string(t.ndim);
  if (t.shape_null) out += " shape NULL";
  if (t.data_null) out += " data NULL";
  if (t.byte_offset != 0) out += " byte_offset " + std::to_string(t.byte_offset);
  if (t.misalign != 0) out += " misaligned by " + std::to_string(t.misalign);
  if (t.shares_with >= 0) out += " at tensor " + std::to_string(t.shares_with) + " + " + std::to_string(t.shift);
  if (t.device.device_type != kDLCPU || t.device.device_id != 0) out += " elsewhere";
  return out;
}

nw_call make(const Case& c, const Memory& memory) {
  nw_call call{};
  call.struct_size = sizeof call;
  call.flags = c.flags;
  call.op = facts(c.op).name;
  call.num_inputs = static_cast<uint32_t>(c.inputs.size());
  call.num_outputs = static_cast<uint32_t>(c.outputs.size());
  call.inputs = memory.inputs();
  call.outputs = memory.outputs();
  call.params = c.params_null ? nullptr : c.params.data();
  call.params_size = c.params.size();
  call.kernel = c.kernel;
  return call;
}

// A status, and its error if it is one.
void check_status(const Case& c, const char* function, int32_t status, const nw_error& error) {
  if (status == NW_OK) return;
  const size_t length = strnlen(error.message, sizeof error.message);
  if (length == 0 || length == sizeof error.message)
    finding("%s of %s: a message of %zu bytes", function, describe(c).c_str(), length);
  if (status < NW_INVALID || status > NW_NOT_CAPTURABLE)
    finding("%s of %s: status %d, which no bad input may cause: %s", function, describe(c).c_str(), status, error.message);
  if (error.status != status)
    finding("%s of %s: returns %d, its error says %d", function, describe(c).c_str(), status, error.status);
  if (error.argument < -1 || error.argument >= static_cast<int32_t>(c.size()))
    finding("%s of %s: names argument %d: %s", function, describe(c).c_str(), error.argument, error.message);
}

void check_verdict(const Case& c, const char* function, const Verdict& v, int32_t status, const nw_error& error) {
  check_status(c, function, status, error);
  if (status == NW_OK && !v.illegal.empty())
    finding("%s of %s: accepted, though it has %s", function, describe(c).c_str(), v.illegal.c_str());
  if (status != NW_OK && v.illegal.empty() && v.unsettled.empty())
    finding("%s of %s: legal, and refused: %s", function, describe(c).c_str(), error.message);
}

// Of the inputs alone: the outputs' own faults and a device without a backend are not its business.
void check_infer(const Case& c, const nw_call& call) {
  Case inputs = c;
  inputs.outputs.clear();
  Verdict v = judge_inputs(inputs);
  for (const TensorSpec& t : c.inputs)
    if (t.device.device_type != kDLCPU || t.device.device_id != 0) return;
  nw_spec specs[NW_MAX_TENSORS];
  nw_error error{};
  const uint32_t count = facts(c.op).num_outputs;
  const int32_t status = nw_infer(runtime(), &call, specs, count, &error);
  check_verdict(c, "nw_infer", v, status, error);
  for (size_t i = 0; status == NW_OK && i < v.outputs.size(); ++i) {
    const OutputSpec& wanted = v.outputs[i];
    const std::vector<int64_t> shape(specs[i].shape, specs[i].shape + std::max(specs[i].ndim, 0));
    if ((specs[i].ndim < 0) == wanted.possible)
      finding("nw_infer of %s: output %zu has ndim %d", describe(c).c_str(), i, specs[i].ndim);
    if (!wanted.possible) continue;
    TensorSpec got;
    got.dtype = specs[i].dtype;
    if (shape != wanted.shape || got.known_dtype() != wanted.dtype)
      finding("nw_infer of %s: output %zu is %s, expected %s", describe(c).c_str(), i, show(shape).c_str(),
              show(wanted.shape).c_str());
  }
}

bool agrees(DType dtype, Exact got, Exact value, Exact bound) {
  if (!std::isfinite(bound)) return true;
  if (std::isnan(value) || std::isnan(got)) return std::isnan(value) == std::isnan(got);
  if (!test::is_float(dtype)) return got == value;
  return got >= test::rounded(dtype, value - bound) && got <= test::rounded(dtype, value + bound);
}

void check_values(const Case& c, const Memory& memory, const std::vector<Expected>& expected) {
  for (size_t o = 0; o < expected.size(); ++o) {
    if (c.output(o) == nullptr || expected[o].values.empty()) continue;
    const std::vector<Exact> got = memory.values(c.inputs.size() + o);
    if (got.size() != expected[o].values.size()) finding("%s: output %zu has %zu elements", describe(c).c_str(), o, got.size());
    for (size_t i = 0; i < got.size(); ++i)
      if (!agrees(*c.outputs[o].known_dtype(), got[i], expected[o].values[i], expected[o].bounds[i]))
        finding("%s: output %zu, element %zu: got %.18Lg, expected %.18Lg within %.3Lg", describe(c).c_str(), o, i, got[i],
                expected[o].values[i], expected[o].bounds[i]);
  }
}

// The call is as it is; memory may be incomplete.
void check_plan(const Case& c, const nw_call& call, const Verdict& v) {
  nw_error error{};
  nw_plan* plan = nullptr;
  nw_plan_info info{};
  info.struct_size = sizeof info;
  const int32_t status = nw_plan_get(runtime(), &call, &plan, &info, &error);
  check_verdict(c, "nw_plan_get", v, status, error);
  if ((status == NW_OK) != (plan != nullptr))
    finding("nw_plan_get of %s: status %d, plan %p", describe(c).c_str(), status, static_cast<void*>(plan));
  nw_plan_release(plan);
  nw_error asked{};
  const int32_t answer = nw_plan_get(runtime(), &call, nullptr, nullptr, &asked);
  if (answer != status) finding("nw_plan_get of %s: %d, and %d when only asked", describe(c).c_str(), status, answer);
}

void check_run(const Case& c, const nw_call& call, Memory& memory, const Verdict& v) {
  std::vector<std::vector<Exact>> values;
  for (size_t i = 0; i < c.inputs.size(); ++i) values.push_back(memory.values(i));
  const std::vector<Expected> wanted = v.illegal.empty() ? expected(c, values) : std::vector<Expected>{};
  memory.snapshot();
  nw_error error{};
  const int32_t status = nw_run(runtime(), &call, &error);
  check_verdict(c, "nw_run", v, status, error);
  if (std::string what = memory.damage(status != NW_OK); !what.empty())
    finding("nw_run of %s: %s; status %d", describe(c).c_str(), what.c_str(), status);
  if (status == NW_OK) check_values(c, memory, wanted);
}

bool has_null_data(const Case& c) {
  for (size_t i = 0; i < c.size(); ++i)
    if (const TensorSpec& t = c.tensor(i); t.present && t.data_null && !reach(t)->empty()) return true;
  return false;
}

}  // namespace

void check(const Case& c) {
  Verdict v = judge(c);
  Memory memory(c, !v.illegal.empty());
  if (v.illegal.empty()) memory.judge(&v);
  const nw_call call = make(c, memory);
  check_infer(c, call);
  check_plan(c, call, v);
  if (v.illegal.empty() && (!memory.complete() || work(c) > kMostWork)) {
    if (memory.complete()) return;  // it would run, for too long
    v.illegal = "a tensor without memory";
  } else if (v.illegal.empty() && has_null_data(c)) {
    v.illegal = "a tensor whose data is NULL";
  }
  check_run(c, call, memory, v);
}

std::string describe(const Case& c) {
  std::string out = facts(c.op).name;
  if (c.op == Op::conv1d || c.op == Op::conv1d_backward) {
    const nw_conv1d_params p = c.conv1d();
    out += " params " + show({p.stride, p.dilation, p.groups, p.pad_left, p.pad_right, p.padding_mode});
  } else if (c.op == Op::elementwise || c.op == Op::elementwise_backward) {
    const nw_elementwise_params p = c.elementwise();
    out += " params (" + std::to_string(p.function) + ", " + std::to_string(p.out_dtype) + ", " + std::to_string(p.alpha) + ", " +
           std::to_string(p.b_real) + ", " + std::to_string(p.b_int) + ", " + std::to_string(p.c_real) + ", " +
           std::to_string(p.c_int) + ")";
  }
  out += " of " + std::to_string(c.params.size()) + " bytes, flags " + std::to_string(c.flags);
  if (c.kernel != nullptr) out += ", kernel '" + std::string(c.kernel) + "'";
  for (size_t i = 0; i < c.size(); ++i)
    out += (i < c.inputs.size() ? "\n  input " : "\n  output ") + std::to_string(i < c.inputs.size() ? i : i - c.inputs.size()) +
           ": " + show(c.tensor(i));
  return out + "\n ";
}

}  // namespace narrows::fuzz
