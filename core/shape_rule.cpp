// SPDX-License-Identifier: Apache-2.0
// shape_rule.cpp -- see shape_rule.h. A recursive-descent parser and a tree walk; nothing here is on a hot path.
#include "core/shape_rule.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <optional>

#include "core/error.h"

namespace narrows {

struct ShapeRule::Expression {
  char kind;  // 'n' a number, 'v' a name, '+' '-' '*' '/' (floor), 'M' max, 'm' min
  int64_t number = 0;
  std::string name;
  std::vector<Expression> operands;
  std::string text;  // as it stands in the rule
};

struct ShapeRule::Dims {
  bool leading = false;  // they begin with '...': any number of dimensions, the same for all tensors of a call
  std::vector<Expression> named;
};

struct ShapeRule::Tensor {
  bool any = false;  // '*' or '?': of any shape
  bool optional = false;
  Dims dims;
};

struct ShapeRule::Output {
  char kind;  // 'd' dims, 'l' like an input, 'b' broadcast
  uint32_t like = 0;
  Dims dims;
};

struct ShapeRule::Alternative {
  bool checks_inputs = false;
  std::vector<Tensor> inputs;
  std::vector<Output> outputs;
};

namespace {

using Expression = ShapeRule::Expression;
using Dims = ShapeRule::Dims;
constexpr int kMaxDepth = 64;
constexpr const char* kLeading = "...";

std::string strip(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == separator && depth == 0)
      out.emplace_back();
    else
      out.back() += c;
  }
  for (std::string& part : out) part = strip(part);
  return out;
}

class ExpressionParser {
 public:
  explicit ExpressionParser(const std::string& text) : text_(text) {}

  Expression parse() {
    Expression out = sum();
    skip_space();
    if (at_ != text_.size()) bad("unexpected character");
    out.text = text_;
    return out;
  }

 private:
  [[noreturn]] void bad(const char* what) const {
    throw_failure(NW_INVALID, -1, "%s at position %zu of '%s'", what, at_, text_.c_str());
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(const char* token) {
    skip_space();
    const size_t size = std::strlen(token);
    if (text_.compare(at_, size, token) != 0) return false;
    at_ += size;
    return true;
  }
  static Expression node(char kind, Expression a, Expression b) {
    Expression out{kind, 0, "", {}, ""};
    out.operands.push_back(std::move(a));
    out.operands.push_back(std::move(b));
    return out;
  }

  Expression sum() {
    Expression out = product();
    for (;;) {
      if (take("+"))
        out = node('+', std::move(out), product());
      else if (take("-"))
        out = node('-', std::move(out), product());
      else
        return out;
    }
  }
  Expression product() {
    Expression out = primary();
    for (;;) {
      if (take("*"))
        out = node('*', std::move(out), primary());
      else if (take("//"))
        out = node('/', std::move(out), primary());
      else
        return out;
    }
  }
  Expression primary() {
    if (++depth_ > kMaxDepth) bad("nested too deeply");
    Expression out = bare_primary();
    --depth_;
    return out;
  }
  Expression bare_primary() {
    skip_space();
    if (at_ == text_.size()) bad("an expression is missing");
    if (take("(")) {
      Expression out = sum();
      if (!take(")")) bad("')' is missing");
      return out;
    }
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c))) return number();
    if (!std::isalpha(static_cast<unsigned char>(c)) && c != '_') bad("unexpected character");
    std::string name;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) name += text_[at_++];
    if ((name == "max" || name == "min") && take("(")) {
      Expression a = sum();
      if (!take(",")) bad("',' is missing");
      Expression b = sum();
      if (!take(")")) bad("')' is missing");
      return node(name == "max" ? 'M' : 'm', std::move(a), std::move(b));
    }
    return Expression{'v', 0, name, {}, name};
  }
  Expression number() {
    int64_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_)
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value))
        bad("a number is too large");
    return Expression{'n', value, "", {}, ""};
  }

  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
};

Dims parse_dims(const std::string& text) {
  Dims out;
  if (text == "()") return out;
  for (const std::string& part : split(text, ','))
    if (part == kLeading && !out.leading && out.named.empty())
      out.leading = true;
    else if (part == kLeading)
      throw_failure(NW_INVALID, -1, "'%s' has a '...' that is not its first dimension", text.c_str());
    else
      out.named.push_back(ExpressionParser(part).parse());
  if (out.named.size() > NW_MAX_NDIM) throw_failure(NW_INVALID, -1, "'%s' has more than %d dimensions", text.c_str(), NW_MAX_NDIM);
  return out;
}

ShapeRule::Tensor parse_tensor(const std::string& text) {
  ShapeRule::Tensor out;
  if (text == "*" || text == "?") {
    out.any = true;
    out.optional = text == "?";
    return out;
  }
  out.optional = !text.empty() && text.back() == '?';
  out.dims = parse_dims(strip(out.optional ? text.substr(0, text.size() - 1) : text));
  return out;
}

ShapeRule::Output parse_output(const std::string& text, uint32_t max_inputs) {
  if (text == "broadcast") return {'b', 0, {}};
  if (text.rfind("like ", 0) == 0) {
    const Expression index = ExpressionParser(strip(text.substr(5))).parse();
    if (index.kind != 'n' || index.number >= max_inputs) throw_failure(NW_INVALID, -1, "'%s' names no input", text.c_str());
    return {'l', static_cast<uint32_t>(index.number), {}};
  }
  return {'d', 0, parse_dims(text)};
}

ShapeRule::Alternative parse_alternative(const std::string& text, uint32_t max_inputs, uint32_t num_outputs) {
  ShapeRule::Alternative out;
  const size_t arrow = text.find("->");
  out.checks_inputs = arrow != std::string::npos;
  if (out.checks_inputs)
    for (const std::string& part : split(text.substr(0, arrow), ';')) out.inputs.push_back(parse_tensor(part));
  for (const std::string& part : split(out.checks_inputs ? text.substr(arrow + 2) : text, ';'))
    out.outputs.push_back(parse_output(part, max_inputs));
  if (out.inputs.size() > max_inputs)
    throw_failure(NW_INVALID, -1, "'%s' has %zu inputs, the op at most %u", text.c_str(), out.inputs.size(), max_inputs);
  if (out.outputs.size() != num_outputs)
    throw_failure(NW_INVALID, -1, "'%s' has %zu outputs, the op %u", text.c_str(), out.outputs.size(), num_outputs);
  const auto leads = [](const auto& tensor) { return tensor.dims.leading; };
  if (std::any_of(out.outputs.begin(), out.outputs.end(), leads) && std::none_of(out.inputs.begin(), out.inputs.end(), leads))
    throw_failure(NW_INVALID, -1, "'%s' has an output with '...' and no input with it", text.c_str());
  return out;
}

// The integer field of that name, of 8 to 64 bits, in a blob; false if there is none.
bool read_field(const nw_op& op, const std::string& name, const void* params, uint64_t params_size, int64_t* value) {
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field) {
    const nw_param& f = **field;
    const uint64_t size = f.dtype.bits / 8;
    if (name != f.name || (f.dtype.code != kDLInt && f.dtype.code != kDLUInt) || f.dtype.lanes != 1 || size - 1 >= 8) continue;
    unsigned char bytes[8] = {};
    for (uint64_t i = 0; i < size && f.offset + i < params_size; ++i)
      bytes[i] = static_cast<const unsigned char*>(params)[f.offset + i];
    if (f.dtype.code == kDLInt && size < 8 && (bytes[size - 1] & 0x80)) std::memset(bytes + size, 0xFF, 8 - size);
    std::memcpy(value, bytes, 8);
    if (f.dtype.code == kDLUInt && *value < 0)
      throw_failure(NW_INVALID, -1, "%s: %s = %llu overflows 64 bits in the shape rule", op.name, f.name,
                    static_cast<unsigned long long>(*value));
    return true;
  }
  return false;
}

class Evaluator {
 public:
  Evaluator(const nw_op& op, const void* params, uint64_t params_size) : op_(op), params_(params), params_size_(params_size) {}

  void bind(const std::string& name, int64_t value) { bound_.emplace(name, value); }
  bool is_field(const std::string& name) const {
    int64_t ignored;
    return read_field(op_, name, params_, params_size_, &ignored);
  }

  int64_t value(const Expression& e) const {
    if (e.kind == 'n') return e.number;
    if (e.kind == 'v') return variable(e.name);
    const int64_t a = value(e.operands[0]), b = value(e.operands[1]);
    int64_t out = 0;
    bool overflow = false;
    switch (e.kind) {
      case '+': overflow = __builtin_add_overflow(a, b, &out); break;
      case '-': overflow = __builtin_sub_overflow(a, b, &out); break;
      case '*': overflow = __builtin_mul_overflow(a, b, &out); break;
      case 'M': return std::max(a, b);
      case 'm': return std::min(a, b);
      default:
        if (b == 0) throw_failure(NW_INVALID, -1, "%s: the shape rule divides %lld by 0", op_.name, static_cast<long long>(a));
        overflow = a == INT64_MIN && b == -1;
        if (!overflow) out = a / b - (a % b != 0 && (a < 0) != (b < 0));
    }
    if (overflow)
      throw_failure(NW_INVALID, -1, "%s: the shapes and params overflow 64 bits in the shape rule (%lld %c %lld)", op_.name,
                    static_cast<long long>(a), e.kind, static_cast<long long>(b));
    return out;
  }

 private:
  int64_t variable(const std::string& name) const {
    if (const auto found = bound_.find(name); found != bound_.end()) return found->second;
    int64_t out = 0;
    if (!read_field(op_, name, params_, params_size_, &out))
      throw_failure(NW_INVALID, -1,
                    "%s: '%s' of the shape rule is neither a dimension of a present input nor an integer field of params", op_.name,
                    name.c_str());
    return out;
  }

  const nw_op& op_;
  const void* params_;
  uint64_t params_size_;
  std::map<std::string, int64_t> bound_;
};

std::string show_dims(const Dims& dims) {
  std::string out = dims.leading ? kLeading : "";
  for (const Expression& dim : dims.named) out += (out.empty() ? "" : ", ") + dim.text;
  return "(" + out + ")";
}

std::string declared_name(const char* const* names, uint32_t count, uint32_t i, const char* fallback) {
  if (i >= count) return format("%s %u", fallback, i);
  std::string out = names[i];
  if (out.back() == '?') out.pop_back();
  return out;
}

// The index of the first input whose presence or rank does not fit the alternative, or -1.
int32_t first_misfit(const ShapeRule::Alternative& alternative, const std::vector<Shape>& inputs) {
  if (!alternative.checks_inputs) return -1;
  for (size_t i = 0; i < alternative.inputs.size(); ++i) {
    const ShapeRule::Tensor& rule = alternative.inputs[i];
    const Shape& shape = inputs[i];
    const size_t named = rule.dims.named.size();
    const bool rank_fits = rule.dims.leading ? named <= shape.extents.size() : named == shape.extents.size();
    const bool fits = shape.present ? rule.any || rank_fits : rule.optional;
    if (!fits) return static_cast<int32_t>(i);
  }
  for (size_t i = alternative.inputs.size(); i < inputs.size(); ++i)
    if (inputs[i].present) return static_cast<int32_t>(i);
  return -1;
}

[[noreturn]] void refuse_ranks(const nw_op& op, const std::vector<ShapeRule::Alternative>& alternatives,
                               const std::vector<Shape>& inputs) {
  // The alternative that went furthest names the input at fault.
  int32_t at = 0;
  for (const ShapeRule::Alternative& alternative : alternatives) at = std::max(at, first_misfit(alternative, inputs));
  const auto i = static_cast<uint32_t>(at);
  const Shape& shape = inputs[i];
  std::vector<std::string> wanted;
  for (const ShapeRule::Alternative& alternative : alternatives) {
    if (i >= alternative.inputs.size() || alternative.inputs[i].any) continue;
    const std::string text = show_dims(alternative.inputs[i].dims) + (alternative.inputs[i].optional ? " or none" : "");
    if (std::find(wanted.begin(), wanted.end(), text) == wanted.end()) wanted.push_back(text);
  }
  std::string list;
  for (const std::string& text : wanted) list += (list.empty() ? "" : " | ") + text;
  const std::string has =
      shape.present
          ? format("has shape %s (%zu dimensions)",
                   show_shape(shape.extents.data(), static_cast<int32_t>(shape.extents.size())).c_str(), shape.extents.size())
          : "is absent";
  throw_failure(NW_INVALID, at, "%s: %s %s; expected %s", op.name, input_name(op, i).c_str(), has.c_str(),
                list.empty() ? "no such input" : list.c_str());
}

// How many leading dimensions of the shape '...' stands for.
size_t leading_rank(const Dims& dims, const Shape& shape) { return dims.leading ? shape.extents.size() - dims.named.size() : 0; }

// What the names of a rule are in a call.
struct Bound {
  Evaluator evaluator;
  std::optional<std::vector<int64_t>> leading;  // nothing: no present input has '...'
};

Bound bind_inputs(const nw_op& op, const ShapeRule::Alternative& alternative, const std::vector<Shape>& inputs, const void* params,
                  uint64_t params_size) {
  Bound out{Evaluator(op, params, params_size), {}};
  // Inputs that must be there bind before those that may be absent, so that a wrong gradient is blamed and not the input.
  for (const bool optional : {false, true}) {
    for (size_t i = 0; i < alternative.inputs.size(); ++i) {
      const ShapeRule::Tensor& rule = alternative.inputs[i];
      if (!inputs[i].present || rule.optional != optional) continue;
      const std::vector<int64_t>& extents = inputs[i].extents;
      const auto first = extents.begin() + static_cast<ptrdiff_t>(leading_rank(rule.dims, inputs[i]));
      if (rule.dims.leading && !out.leading) out.leading.emplace(extents.begin(), first);
      for (size_t d = 0; d < rule.dims.named.size(); ++d)
        if (rule.dims.named[d].kind == 'v' && !out.evaluator.is_field(rule.dims.named[d].name))
          out.evaluator.bind(rule.dims.named[d].name, first[static_cast<ptrdiff_t>(d)]);
    }
  }
  return out;
}

[[noreturn]] void refuse_shape(const nw_op& op, size_t i, const Shape& shape, const Dims& dims, const std::string& why) {
  throw_failure(NW_INVALID, static_cast<int32_t>(i), "%s: %s has shape %s; expected %s, %s", op.name,
                input_name(op, static_cast<uint32_t>(i)).c_str(),
                show_shape(shape.extents.data(), static_cast<int32_t>(shape.extents.size())).c_str(), show_dims(dims).c_str(),
                why.c_str());
}

void check_inputs(const nw_op& op, const ShapeRule::Alternative& alternative, const std::vector<Shape>& inputs,
                  const Bound& bound) {
  for (size_t i = 0; i < alternative.inputs.size(); ++i) {
    if (!inputs[i].present || alternative.inputs[i].any) continue;
    const Dims& dims = alternative.inputs[i].dims;
    const std::vector<int64_t>& extents = inputs[i].extents;
    const size_t leading = leading_rank(dims, inputs[i]);
    if (dims.leading && !std::equal(extents.begin(), extents.begin() + static_cast<ptrdiff_t>(leading), bound.leading->begin(),
                                    bound.leading->end()))
      refuse_shape(op, i, inputs[i], dims,
                   "where '...' is " + show_shape(bound.leading->data(), static_cast<int32_t>(bound.leading->size())) + " here");
    for (size_t d = 0; d < dims.named.size(); ++d) {
      const int64_t expected = bound.evaluator.value(dims.named[d]);
      if (extents[leading + d] != expected)
        refuse_shape(op, i, inputs[i], dims,
                     format("whose dimension %zu is %lld here", leading + d, static_cast<long long>(expected)));
    }
  }
}

Shape output_shape(const nw_op& op, uint32_t index, const ShapeRule::Output& rule, const Bound& bound,
                   const std::vector<Shape>& inputs) {
  if (rule.kind == 'b') return broadcast(op, inputs);
  if (rule.kind == 'l') return inputs[rule.like];
  Shape out{true, {}};
  if (rule.dims.leading && !bound.leading)
    throw_failure(NW_INVALID, -1, "%s: the shape of %s is %s, and every input with '...' is absent", op.name,
                  output_name(op, index).c_str(), show_dims(rule.dims).c_str());
  if (rule.dims.leading) out.extents = *bound.leading;
  for (const Expression& dim : rule.dims.named) {
    const int64_t extent = bound.evaluator.value(dim);
    if (extent < 0)
      throw_failure(NW_INVALID, -1, "%s: the shapes and params give %s a negative extent: %s = %lld", op.name,
                    output_name(op, index).c_str(), dim.text.c_str(), static_cast<long long>(extent));
    out.extents.push_back(extent);
  }
  if (out.extents.size() > NW_MAX_NDIM)
    throw_failure(NW_INVALID, -1, "%s: %s of shape %s has %zu dimensions; at most %d", op.name, output_name(op, index).c_str(),
                  show_dims(rule.dims).c_str(), out.extents.size(), NW_MAX_NDIM);
  return out;
}

// Whether the dimensions may be that many.
bool fits_rank(const Dims& dims, size_t rank) { return dims.leading ? dims.named.size() <= rank : dims.named.size() == rank; }

// Whether calls of the alternative may have that rank once their inputs are padded to equal ranks. What may be absent is.
bool has_rank(const ShapeRule::Alternative& alternative, size_t rank) {
  size_t least = 0;
  bool has_fixed = false, has_open = false;
  for (const ShapeRule::Tensor& input : alternative.inputs) {
    if (input.optional) continue;
    least = std::max(least, input.dims.named.size());
    (input.any || input.dims.leading ? has_open : has_fixed) = true;
  }
  return has_fixed && !has_open ? least == rank : least <= rank;
}

// Whether a call of another alternative and that rank is one of this alternative with one more leading dimension on every tensor.
bool takes_batch_of(const ShapeRule::Alternative& alternative, const ShapeRule::Alternative& other, size_t rank) {
  for (const ShapeRule::Tensor& input : alternative.inputs)
    if (!input.optional && !input.any && !fits_rank(input.dims, rank + 1)) return false;
  for (size_t i = 0; i < alternative.outputs.size(); ++i) {
    const ShapeRule::Output &batched = alternative.outputs[i], &single = other.outputs[i];
    const bool is_fixed = batched.kind == 'd' && !batched.dims.leading && single.kind == 'd' && !single.dims.leading;
    if (is_fixed && batched.dims.named.size() != single.dims.named.size() + 1) return false;
  }
  return true;
}

}  // namespace

ShapeRule::ShapeRule(const std::string& text, uint32_t max_inputs, uint32_t num_outputs) : text_(text) {
  try {
    for (const std::string& part : split(text, '|')) alternatives_.push_back(parse_alternative(part, max_inputs, num_outputs));
  } catch (const Failure& failure) {
    throw_failure(NW_INVALID, -1, "shape rule \"%s\": %s", text.c_str(), failure.message.c_str());
  }
}
ShapeRule::~ShapeRule() = default;
ShapeRule::ShapeRule(ShapeRule&&) noexcept = default;

std::vector<std::vector<std::vector<std::string>>> ShapeRule::named_dims() const {
  std::vector<std::vector<std::vector<std::string>>> out;
  const auto add = [&](const Dims& dims) {
    std::vector<std::string>& names = out.back().emplace_back();
    if (dims.leading) names.emplace_back(kLeading);
    for (const Expression& dim : dims.named) names.push_back(dim.kind == 'v' ? dim.name : "");
  };
  for (const Alternative& alternative : alternatives_) {
    out.emplace_back();
    for (const Tensor& input : alternative.inputs) add(input.dims);
    for (const Output& output : alternative.outputs) add(output.dims);
  }
  return out;
}

std::string ShapeRule::first_of_fixed_rank() const {
  const auto is_fixed = [](const Dims& dims) { return !dims.leading || !dims.named.empty(); };
  for (const Alternative& alternative : alternatives_) {
    for (const Tensor& input : alternative.inputs)
      if (!input.any && is_fixed(input.dims)) return show_dims(input.dims);
    for (const Output& output : alternative.outputs)
      if (output.kind == 'd' && is_fixed(output.dims)) return show_dims(output.dims);
  }
  return "";
}

bool ShapeRule::takes_a_leading_dimension() const {
  for (const Alternative& single : alternatives_)
    for (const Alternative& batched : alternatives_)
      for (size_t rank = 0; rank < NW_MAX_NDIM; ++rank)
        if (has_rank(single, rank) && takes_batch_of(batched, single, rank)) return true;
  return false;
}

std::vector<Shape> ShapeRule::evaluate(const nw_op& op, const std::vector<Shape>& inputs, const void* params,
                                       uint64_t params_size) const {
  for (const Alternative& alternative : alternatives_) {
    if (first_misfit(alternative, inputs) >= 0) continue;
    const Bound bound = bind_inputs(op, alternative, inputs, params, params_size);
    check_inputs(op, alternative, inputs, bound);
    std::vector<Shape> out;
    out.reserve(alternative.outputs.size());
    for (uint32_t i = 0; i < alternative.outputs.size(); ++i)
      out.push_back(output_shape(op, i, alternative.outputs[i], bound, inputs));
    return out;
  }
  refuse_ranks(op, alternatives_, inputs);
}

Shape broadcast(const nw_op& op, const std::vector<Shape>& inputs) {
  Shape out{true, {}};
  size_t rank = 0;
  for (const Shape& shape : inputs) rank = std::max(rank, shape.extents.size());
  out.extents.assign(rank, 1);
  std::vector<uint32_t> from(rank, 0);
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    const std::vector<int64_t>& extents = inputs[i].extents;
    for (size_t d = 0; d < extents.size(); ++d) {
      int64_t& extent = out.extents[rank - extents.size() + d];
      uint32_t& owner = from[rank - extents.size() + d];
      if (extents[d] == extent || extents[d] == 1) continue;
      if (extent != 1)
        throw_failure(NW_INVALID, static_cast<int32_t>(i),
                      "%s: %s of shape %s and %s of shape %s do not broadcast: %lld against %lld", op.name,
                      input_name(op, owner).c_str(),
                      show_shape(inputs[owner].extents.data(), static_cast<int32_t>(inputs[owner].extents.size())).c_str(),
                      input_name(op, i).c_str(), show_shape(extents.data(), static_cast<int32_t>(extents.size())).c_str(),
                      static_cast<long long>(extent), static_cast<long long>(extents[d]));
      extent = extents[d];
      owner = i;
    }
  }
  return out;
}

std::string input_name(const nw_op& op, uint32_t i) { return declared_name(op.inputs, op.max_inputs, i, "input"); }
std::string output_name(const nw_op& op, uint32_t i) { return declared_name(op.outputs, op.num_outputs, i, "output"); }

}  // namespace narrows
