// SPDX-License-Identifier: Apache-2.0
// program_bind.cpp -- see program_bind.h.
#include "program_bind.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/program/dtype.h"
#include "core/program/expr.h"
#include "core/program/text.h"
#include "program_range.h"

namespace narrows::common {
namespace {

using Role = ir::Buffer::Role;

constexpr uint64_t kPlaceAlign = 64;

// ---- params ----

bool is_real(ir::DType dtype) { return ir::is_float(dtype); }

void read_params_into(const nw_sig& sig, Bound* bound) {
  const std::vector<ir::Param>& params = bound->lowered->program.params;
  check_params_tail(sig, params.size() * 8);
  for (size_t i = 0; i < params.size(); ++i) {
    unsigned char bytes[8] = {};
    if (sig.params_size > i * 8)
      std::memcpy(bytes, static_cast<const unsigned char*>(sig.params) + i * 8, std::min<uint64_t>(8, sig.params_size - i * 8));
    ParamValue value;
    if (is_real(params[i].dtype))
      std::memcpy(&value.real, bytes, 8);
    else
      std::memcpy(&value.integer, bytes, 8);
    const ir::DType dtype = params[i].dtype;
    if (ir::is_integer(dtype)) {
      if (!ir::holds(dtype, ir::is_signed(dtype) && value.integer < 0,
                     ir::is_signed(dtype) && value.integer < 0 ? 0 - static_cast<uint64_t>(value.integer)
                                                               : static_cast<uint64_t>(value.integer)))
        refuse(NW_INVALID, -1, "%s: param '%s' is %lld, which %s does not hold", sig.op, params[i].name.c_str(),
               static_cast<long long>(value.integer), ir::name_of(dtype));
      bound->numbers[params[i].name] = value.integer;
    }
    bound->params[params[i].name] = value;
  }
}

// ---- tensors ----

const char* side(const BoundBuffer& bound) { return bound.input >= 0 ? "input" : "output"; }
int32_t argument(const BoundBuffer& bound, const nw_sig& sig) {
  return bound.input >= 0 ? bound.input : static_cast<int32_t>(sig.num_inputs) + bound.output;
}

const nw_tensor_sig* signature_of(const BoundBuffer& bound, const nw_sig& sig) {
  if (bound.output >= 0)
    return has_output(sig, static_cast<uint32_t>(bound.output)) ? &output(sig, static_cast<uint32_t>(bound.output)) : nullptr;
  return has_input(sig, static_cast<uint32_t>(bound.input)) ? &input(sig, static_cast<uint32_t>(bound.input)) : nullptr;
}

void check_dtype(const BoundBuffer& bound, const nw_tensor_sig& tensor, const nw_sig& sig) {
  const DLDataType want = ir::dlpack_of(bound.buffer->dtype);
  if (tensor.dtype.code != want.code || tensor.dtype.bits != want.bits)
    refuse(NW_INVALID, argument(bound, sig), "%s: %s '%s' has dtype %s; expected %s", sig.op, side(bound),
           bound.buffer->name.c_str(), show_dtype(tensor.dtype).c_str(), show_dtype(want).c_str());
}

BoundBuffer bind_tensor(const ir::Buffer& buffer, int* inputs, int* outputs, const nw_sig& sig) {
  BoundBuffer out;
  out.buffer = &buffer;
  if (buffer.role != Role::output) out.input = (*inputs)++;
  if (buffer.role != Role::input) out.output = (*outputs)++;
  const nw_tensor_sig* tensor = signature_of(out, sig);
  out.present = tensor != nullptr;
  if (tensor == nullptr) {
    if (!buffer.optional)
      refuse(NW_INVALID, argument(out, sig), "%s: %s '%s' is absent; it must be given", sig.op, side(out), buffer.name.c_str());
    return out;
  }
  check_dtype(out, *tensor, sig);
  if (tensor->ndim != static_cast<int32_t>(buffer.shape.size()))
    refuse(NW_INVALID, argument(out, sig), "%s: %s '%s' has %d dimensions; expected %zu", sig.op, side(out), buffer.name.c_str(),
           tensor->ndim, buffer.shape.size());
  out.shape.assign(tensor->shape, tensor->shape + tensor->ndim);
  if (tensor->ndim > 0) out.strides.assign(tensor->strides, tensor->strides + tensor->ndim);
  if (buffer.role == Role::inout) {
    const nw_tensor_sig& in = input(sig, static_cast<uint32_t>(out.input));
    out.copied = tensor->alias_of != out.input;
    if (tensor->ndim > 0) out.in_strides.assign(in.strides, in.strides + in.ndim);
  }
  return out;
}

// A plain name in an input's shape is a size; the first input that has it says what it is.
void bind_sizes(const BoundBuffer& bound, Numbers* numbers, std::map<std::string, std::string>* origins) {
  for (size_t d = 0; d < bound.buffer->shape.size() && bound.present; ++d) {
    const ir::Expr& dim = *bound.buffer->shape[d];
    if (dim.kind != ir::Expr::Kind::name || numbers->count(dim.name) != 0) continue;
    (*numbers)[dim.name] = bound.shape[d];
    (*origins)[dim.name] = "'" + bound.buffer->name + "', dimension " + std::to_string(d);
  }
}

// "N = 4 (from 'A', dimension 1)": the sizes of an expression.
std::string explain(const ir::ExprPtr& expr, const Numbers& numbers, const std::map<std::string, std::string>& origins) {
  Names names;
  collect_names(expr, &names);
  std::string out;
  for (const std::string& name : names) {
    const auto origin = origins.find(name);
    out += (out.empty() ? "; " : ", ") + name + " = " + std::to_string(numbers.at(name));
    if (origin != origins.end()) out += " (from " + origin->second + ")";
  }
  return out;
}

int64_t evaluate_extent(const ir::ExprPtr& expr, const Numbers& numbers, const nw_sig& sig, const std::string& what) {
  try {
    return ir::evaluate(expr, numbers);
  } catch (const Failure& failure) {
    refuse(NW_INVALID, -1, "%s: %s: %s", sig.op, what.c_str(), failure.message.c_str());
  }
}

void check_shape(const BoundBuffer& bound, const Numbers& numbers, const std::map<std::string, std::string>& origins,
                 const nw_sig& sig) {
  for (size_t d = 0; d < bound.shape.size(); ++d) {
    const ir::ExprPtr& dim = bound.buffer->shape[d];
    const int64_t want = evaluate_extent(dim, numbers, sig, "dimension " + std::to_string(d) + " of '" + bound.buffer->name + "'");
    if (want == bound.shape[d]) continue;
    refuse(NW_INVALID, argument(bound, sig), "%s: %s '%s' has %lld in dimension %zu; expected %s = %lld%s", sig.op, side(bound),
           bound.buffer->name.c_str(), static_cast<long long>(bound.shape[d]), d, ir::print(dim).c_str(),
           static_cast<long long>(want), explain(dim, numbers, origins).c_str());
  }
}

void bind_tensors(const nw_sig& sig, Bound* bound) {
  int inputs = 0, outputs = 0;
  std::map<std::string, std::string> origins;
  for (const ir::Buffer& buffer : bound->lowered->program.tensors)
    bound->buffers[buffer.name] = bind_tensor(buffer, &inputs, &outputs, sig);
  for (const ir::Buffer& buffer : bound->lowered->program.tensors)
    if (buffer.role != Role::output) bind_sizes(bound->buffers[buffer.name], &bound->numbers, &origins);
  bound->is_empty = true;
  for (const auto& [name, tensor] : bound->buffers) {
    if (!tensor.present) continue;
    check_shape(tensor, bound->numbers, origins, sig);
    if (tensor.output >= 0 && tensor.elements() != 0) bound->is_empty = false;
  }
}

// ---- allocations ----

uint64_t place(uint64_t bytes, uint64_t* total, const std::string& name, const nw_sig& sig) {
  const uint64_t offset = *total;
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, bytes, &end) || end > (uint64_t{1} << 62))
    refuse(NW_OUT_OF_MEMORY, -1, "%s: allocation '%s' needs %llu bytes; with those before it, more than the address space", sig.op,
           name.c_str(), static_cast<unsigned long long>(bytes));
  *total = (end + kPlaceAlign - 1) / kPlaceAlign * kPlaceAlign;
  return offset;
}

BoundBuffer bind_allocation(const ir::Buffer& buffer, const Numbers& numbers, const nw_sig& sig) {
  BoundBuffer out;
  out.buffer = &buffer;
  int64_t elements = 1;
  for (const ir::ExprPtr& dim : buffer.shape) {
    const int64_t extent = evaluate_extent(dim, numbers, sig, "the shape of '" + buffer.name + "'");
    if (extent < 0)
      refuse(NW_INVALID, -1, "%s: allocation '%s' has an extent of %s = %lld; expected 0 or more", sig.op, buffer.name.c_str(),
             ir::print(dim).c_str(), static_cast<long long>(extent));
    out.shape.push_back(extent);
  }
  out.strides.resize(out.shape.size());
  int64_t bytes = bytes_of(buffer.dtype);
  for (size_t d = out.shape.size(); d-- > 0;) {
    out.strides[d] = elements;
    const int64_t extent = std::max<int64_t>(out.shape[d], 1);
    if (__builtin_mul_overflow(elements, extent, &elements) || __builtin_mul_overflow(bytes, extent, &bytes))
      refuse(NW_OUT_OF_MEMORY, -1, "%s: allocation '%s' needs more bytes than the address space has", sig.op, buffer.name.c_str());
  }
  out.bytes = static_cast<uint64_t>(bytes);
  return out;
}

void place_all(const std::vector<Node>& body, const std::vector<size_t>& here, bool is_private, const nw_sig& sig, Bound* bound) {
  for (const size_t number : here) {
    const ir::Buffer& buffer = bound->lowered->allocations[number];
    BoundBuffer placed = bind_allocation(buffer, bound->numbers, sig);
    placed.is_private = is_private;
    placed.offset = place(placed.bytes, is_private ? &bound->private_bytes : &bound->shared_bytes, buffer.name, sig);
    bound->buffers[buffer.name] = std::move(placed);
  }
  for (const Node& node : body)
    if (node.kind == Node::Kind::loop)
      place_all(node.body, node.allocations, is_private || node.loop_kind == ir::For::Kind::parallel, sig, bound);
}

}  // namespace

int dtype_number(ir::DType dtype) {
  constexpr int kNumbers[] = {0,
                              NW_DTYPE_BOOL,
                              NW_DTYPE_INT8,
                              NW_DTYPE_INT16,
                              NW_DTYPE_INT32,
                              NW_DTYPE_INT64,
                              NW_DTYPE_UINT8,
                              NW_DTYPE_UINT16,
                              NW_DTYPE_UINT32,
                              NW_DTYPE_UINT64,
                              NW_DTYPE_FLOAT16,
                              NW_DTYPE_BFLOAT16,
                              NW_DTYPE_FLOAT32,
                              NW_DTYPE_FLOAT64};
  return kNumbers[static_cast<int>(dtype)];
}

int64_t bytes_of(ir::DType dtype) { return ir::bits_of(dtype) / 8; }

// As many as there can be where the product is more: a tensor with strides of 0 may have any extents.
static int64_t product(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? INT64_MAX : out;
}

int64_t BoundBuffer::elements() const {
  int64_t out = 1;
  for (const int64_t extent : shape) out = product(out, extent);
  return out;
}

bool BoundBuffer::is_dense() const {
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] > 1 && strides[d] != step) return false;
    step = product(step, shape[d]);
  }
  return true;
}

uint64_t Bound::workspace_size(int64_t threads) const {
  uint64_t all = 0;
  if (__builtin_mul_overflow(private_bytes, static_cast<uint64_t>(threads), &all) ||
      __builtin_add_overflow(all, shared_bytes, &all))
    refuse(NW_OUT_OF_MEMORY, -1, "%s: needs %llu bytes for each of %lld threads; more than the address space",
           lowered->program.name.c_str(), static_cast<unsigned long long>(private_bytes), static_cast<long long>(threads));
  return all;
}

Bound bind(const Lowered& lowered, const nw_sig& sig) {
  Bound out;
  out.lowered = &lowered;
  read_params_into(sig, &out);
  bind_tensors(sig, &out);
  place_all(lowered.body, lowered.outermost, false, sig, &out);
  check_ranges(out, sig);
  return out;
}

Bound any_call(const Lowered& lowered, const std::vector<const ir::Buffer*>& optional, size_t mask, bool is_strided) {
  Bound out;
  out.lowered = &lowered;
  const auto add = [&](const ir::Buffer& buffer, bool strided) {
    BoundBuffer bound;
    bound.buffer = &buffer;
    int64_t step = strided ? 2 : 1;
    for (const ir::ExprPtr& extent : buffer.shape) bound.shape.push_back(strided ? 3 : ir::constant(extent).value_or(3));
    bound.strides.resize(bound.shape.size());
    for (size_t d = bound.shape.size(); d-- > 0;) {
      bound.strides[d] = step;
      if (__builtin_mul_overflow(step, std::max<int64_t>(bound.shape[d], 1), &step)) step = INT64_MAX;
    }
    const auto bit = std::find(optional.begin(), optional.end(), &buffer);
    bound.present = bit == optional.end() || (mask >> (bit - optional.begin()) & 1) != 0;
    out.buffers[buffer.name] = std::move(bound);
  };
  for (const ir::Buffer& tensor : lowered.program.tensors) add(tensor, is_strided && !tensor.shape.empty());
  for (const ir::Buffer& allocation : lowered.allocations) add(allocation, false);
  return out;
}

char* address(const BoundBuffer& buffer, const nw_call& call) {
  return buffer.output >= 0 ? data<char>(call.outputs[buffer.output]) : data<char>(call.inputs[buffer.input]);
}

}  // namespace narrows::common
