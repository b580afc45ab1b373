// SPDX-License-Identifier: Apache-2.0
// params.cpp -- see params.h.
#include "bindings/onnxruntime/params.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/near.h"

namespace narrows::onnxruntime {
namespace {

// The attributes of a node. Each question is answered with nothing where the attribute is absent or of another type.
class Attributes {
 public:
  Attributes(const OrtApi& api, const OrtKernelInfo* info) : api_(api), info_(info) {}

  std::optional<std::string> text(const char* name) const {
    size_t size = 0;
    if (!succeeds(api_.KernelInfoGetAttribute_string(info_, name, nullptr, &size))) return {};
    std::string out(size, '\0');
    if (!succeeds(api_.KernelInfoGetAttribute_string(info_, name, out.data(), &size))) return {};
    out.resize(size - 1);  // its NUL
    return out;
  }

  // One number, or a list of them.
  std::optional<std::vector<int64_t>> integers(const char* name) const {
    return numbers<int64_t>(name, api_.KernelInfoGetAttribute_int64, api_.KernelInfoGetAttributeArray_int64);
  }
  std::optional<std::vector<float>> reals(const char* name) const {
    return numbers<float>(name, api_.KernelInfoGetAttribute_float, api_.KernelInfoGetAttributeArray_float);
  }

  // Of any type: of a list of another type ONNX Runtime says that it is empty.
  bool has(const char* name) const {
    size_t size = 0;
    return succeeds(api_.KernelInfoGetAttributeArray_int64(info_, name, nullptr, &size));
  }

 private:
  bool succeeds(OrtStatus* status) const {
    if (status != nullptr) api_.ReleaseStatus(status);
    return status == nullptr;
  }

  template <class Number, class One, class Many>
  std::optional<std::vector<Number>> numbers(const char* name, One one, Many many) const {
    std::vector<Number> out(1);
    if (succeeds(one(info_, name, out.data()))) return out;
    size_t size = 0;
    if (!succeeds(many(info_, name, nullptr, &size)) || size == 0) return {};
    out.resize(size);
    if (!succeeds(many(info_, name, out.data(), &size))) return {};
    return out;
  }

  const OrtApi& api_;
  const OrtKernelInfo* info_;
};

[[noreturn]] void refuse(const nw_op& op, const nw_param& field, const std::string& what) {
  throw std::invalid_argument(std::string(op.name) + ": attribute " + field.name + " " + what);
}

bool fits(DLDataType dtype, int64_t value) {
  if (dtype.code == kDLBool) return value == 0 || value == 1;
  if (dtype.code == kDLUInt) return value >= 0 && (dtype.bits == 64 || value < int64_t{1} << dtype.bits);
  return dtype.bits == 64 || (value >= -(int64_t{1} << (dtype.bits - 1)) && value < int64_t{1} << (dtype.bits - 1));
}

void write(const nw_param& field, unsigned char* params, unsigned lane, int64_t integer, double real) {
  const auto single = static_cast<float>(real);
  const void* value = &integer;  // little-endian: the low bytes are those of a shorter integer
  if (field.dtype.code == kDLFloat) value = field.dtype.bits == 32 ? static_cast<const void*>(&single) : &real;
  std::memcpy(params + field.offset + size_t{lane} * field.dtype.bits / 8, value, field.dtype.bits / 8);
}

// The number of a name.
int64_t number_of(const nw_op& op, const nw_param& field, const std::string& text) {
  std::vector<std::string> known;
  for (int64_t i = 0; field.values[i] != nullptr; ++i) {
    if (text == field.values[i] && !text.empty()) return i;
    if (*field.values[i] != '\0') known.emplace_back(field.values[i]);
  }
  refuse(op, field, "is '" + text + "'; expected the name of a known one" + did_you_mean(text, known));
}

void read_integers(const nw_op& op, const nw_param& field, const std::vector<int64_t>& values, unsigned char* params) {
  for (unsigned lane = 0; lane < field.dtype.lanes; ++lane) {
    if (!fits(field.dtype, values[lane]))
      refuse(op, field, "is " + std::to_string(values[lane]) + ", which " + std::to_string(field.dtype.bits) + " bits do not hold");
    write(field, params, lane, values[lane], 0);
  }
}

void read_field(const nw_op& op, const nw_param& field, const Attributes& attributes, unsigned char* params) {
  if (field.values != nullptr) {
    if (const auto text = attributes.text(field.name)) return write(field, params, 0, number_of(op, field, *text), 0);
    return refuse(op, field, "is of the wrong type; expected a string");
  }
  const auto expected = [&field](const char* what) {
    const std::string count = std::to_string(field.dtype.lanes);
    return "is of the wrong type or length; expected " + count + " " + what + (field.dtype.lanes == 1 ? "" : "s");
  };
  const auto integers = attributes.integers(field.name);
  if (field.dtype.code != kDLFloat) {
    if (!integers || integers->size() != field.dtype.lanes) refuse(op, field, expected("integer"));
    return read_integers(op, field, *integers, params);
  }
  const auto reals = attributes.reals(field.name);
  if ((reals ? reals->size() : integers ? integers->size() : 0) != field.dtype.lanes) refuse(op, field, expected("number"));
  for (unsigned lane = 0; lane < field.dtype.lanes; ++lane)
    write(field, params, lane, 0, reals ? static_cast<double>((*reals)[lane]) : static_cast<double>((*integers)[lane]));
}

}  // namespace

std::vector<unsigned char> read_params(const nw_op& op, const OrtApi& api, const OrtKernelInfo* info) {
  std::vector<unsigned char> params(op.params_size);
  const Attributes attributes(api, info);
  for (const nw_param* const* f = op.params; f != nullptr && *f != nullptr; ++f) {
    for (unsigned lane = 0; lane < (*f)->dtype.lanes; ++lane)
      write(**f, params.data(), lane, static_cast<int64_t>((*f)->initial), (*f)->initial);
    if (attributes.has((*f)->name)) read_field(op, **f, attributes, params.data());
  }
  return params;
}

}  // namespace narrows::onnxruntime
