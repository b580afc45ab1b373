// SPDX-License-Identifier: Apache-2.0
/// @file plugin_declare.hpp
/// @brief What an op of plugin.hpp declares, and what is refused of it. plugin.hpp includes it.
#ifndef NARROWS_PLUGIN_DECLARE_HPP
#define NARROWS_PLUGIN_DECLARE_HPP

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <narrows/plugin_call.hpp>
#include <string>
#include <utility>
#include <vector>

namespace narrows::plugin {

/// @addtogroup cpp_plugins
/// @{

/// Declares a member of the params struct, so that a binding can fill it in by name.
///
/// @param name     Name of the field.
/// @param member   The member, like `&Params::factor`.
/// @param initial  What a binding takes when its user gives nothing.
template <class Params, class T>
nw_param field(const char* name, T Params::* member, double initial = 0) {
  static const Params params{};
  const auto offset =
      reinterpret_cast<const char*>(&(params.*member)) - reinterpret_cast<const char*>(&params);
  return {name, dtype<T>(), static_cast<uint32_t>(offset), nullptr, initial};
}

/// Computes a call. It may throw.
using Kernel = void (*)(const Launch&);

/// Which tensors reach a kernel.
enum class Layout {
  contiguous,  ///< C-contiguous and aligned ones. A call with others is refused.
  copied,      ///< The same. Others are copied, into the call's workspace and from it.
  strided      ///< Aligned ones of any strides. The kernel reads them by input_view().
};

/// One of several kernels of an op.
struct Variant {
  /// Its name: nw_call.kernel, `narrows conform` and `narrows bench` choose by it.
  const char* name;
  /// Computes a call.
  Kernel kernel;
  /// Whether it takes the call. nullptr: it takes every one.
  bool (*fits)(const Signature&) = nullptr;
};

/// An op: the fields of nw_op, and what computes it.
struct Op {
  /// Name of the op: "vendor.name/1".
  const char* name;
  /// The inputs: "x". A '?' behind the name: it may be absent. Dtypes of its own: "x: f32|f64",
  /// "index?: i64".
  std::vector<const char*> inputs = {},
                           /// The outputs. A '?': it may be NULL. One dtype of its own: "y: i32".
                           /// Unless it has one: that of the first input that is there.
      outputs = {};
  /// The shapes: docs/abi.md, "Shape rules". It has to say something of every input, if only that
  /// any shape is right ("*"). nullptr, for an op of one input: "like 0".
  const char* shape_rule = nullptr;
  /// Computes a call. nullptr: there are `variants`.
  Kernel kernel = nullptr;
  /// The fields of the params struct, made by field().
  std::vector<nw_param> params = {};
  /// Bytes of the params struct.
  uint64_t params_size = 0;
  /// The dtypes of inputs that have none of their own. These inputs share one of them.
  std::vector<DLDataType> dtypes = {dtype<float>()};
  /// Name of the op that differentiates this one: its inputs are the gradients of the outputs that
  /// are not aux, the inputs, the outputs; its outputs the gradients of the inputs. What that op
  /// leaves out of inputs and outputs, shape_rule, params and batch follows from this one, if it is
  /// of the same plugin; of batch not the ways with `once`. nullptr: not differentiable.
  const char* backward = nullptr;
  /// What the backward op reads: bit i for input i, bit 32 + j for output j.
  uint64_t saved = 0;
  /// Bits #NW_OP_INPLACE, #NW_OP_BATCHABLE and #NW_OP_AUTOCAST, or 0.
  uint32_t flags = 0;
  /// How many outputs, counted from the last, exist for backward only.
  uint32_t num_aux = 0;
  /// Traits of its plans. #NW_PLAN_CAPTURABLE: on a GPU, the kernel only puts work on the stream.
  uint32_t traits = 0;
  /// Throws std::invalid_argument if params or shapes are wrong. May be nullptr.
  void (*check)(const Signature&) = nullptr;
  /// The sizes of the shape rule along which a call is a batch of calls, such as "N". nullptr:
  /// nothing is said.
  const char* batch = nullptr;
  /// Which tensors reach the kernel.
  Layout layout = Layout::contiguous;
  /// Bytes of Launch::workspace(). nullptr: 0.
  uint64_t (*workspace)(const Signature&) = nullptr;
  /// Several kernels in the place of `kernel`. The first that fits computes the call.
  std::vector<Variant> variants = {};
};

/// @cond
namespace detail {

inline std::string strip(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (c == separator)
      out.emplace_back();
    else
      out.back() += c;
  for (std::string& part : out) part = strip(part);
  return out;
}

inline DLDataType dtype_of(const std::string& name) {
  constexpr struct {
    const char* name;
    DLDataType dtype;
  } kDtypes[] = {
      {"f16", {kDLFloat, 16, 1}}, {"bf16", {kDLBfloat, 16, 1}}, {"f32", {kDLFloat, 32, 1}},
      {"f64", {kDLFloat, 64, 1}}, {"i8", {kDLInt, 8, 1}},       {"i16", {kDLInt, 16, 1}},
      {"i32", {kDLInt, 32, 1}},   {"i64", {kDLInt, 64, 1}},     {"u8", {kDLUInt, 8, 1}},
      {"u16", {kDLUInt, 16, 1}},  {"u32", {kDLUInt, 32, 1}},    {"u64", {kDLUInt, 64, 1}},
      {"bool", {kDLBool, 8, 1}}};
  std::string known;
  for (const auto& entry : kDtypes) {
    if (name == entry.name) return entry.dtype;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  refuse(NW_INVALID, -1, "dtype '%s'; expected one of %s", name.c_str(), known.c_str());
}

// "x?: f32|f64".
struct Tensor {
  std::string name;  // with its '?'
  std::vector<DLDataType> dtypes;
  explicit Tensor(const std::string& text) {
    const size_t colon = text.find(':');
    name = strip(text.substr(0, colon));
    if (colon == std::string::npos) return;
    for (const std::string& part : split(text.substr(colon + 1), '|'))
      dtypes.push_back(dtype_of(part));
  }
  std::string bare() const {
    return !name.empty() && name.back() == '?' ? name.substr(0, name.size() - 1) : name;
  }
};

inline std::string show(const std::vector<DLDataType>& dtypes) {
  std::string out;
  for (const DLDataType& d : dtypes) out += (out.empty() ? "" : " or ") + show(d);
  return out.empty() ? "what the op declares, which is nothing" : out;
}

// The remedy for another dtype.
inline std::string cast_to(DLDataType t) {
  return ", as .astype(\"" + show(t) + "\") or .to(torch." + show(t) + ") gives";
}

// "mine.scale/1: input x", as the op declares it.
inline std::string tensor_name(const Op* op, bool is_input, uint32_t i) {
  const std::string kind = is_input ? "input " : "output ";
  if (op == nullptr) return kind + std::to_string(i);
  const std::vector<const char*>& names = is_input ? op->inputs : op->outputs;
  const std::string text = i < names.size() ? names[i] : "number " + std::to_string(i);
  return std::string(op->name) + ": " + kind + strip(text.substr(0, text.find_first_of("?:")));
}

inline bool takes_strides(const Op* op) { return op != nullptr && op->layout == Layout::strided; }

inline bool is_among(const std::vector<DLDataType>& dtypes, DLDataType t) {
  return std::any_of(dtypes.begin(), dtypes.end(),
                     [&](const DLDataType& d) { return d.code == t.code && d.bits == t.bits; });
}

// What a backward op leaves out, from its forward op. `texts` own what is written.
class Backward {
 public:
  Backward(const Op& forward, Op* backward, std::deque<std::string>* texts)
      : forward_(forward), texts_(*texts) {
    if (backward->inputs.empty() && backward->outputs.empty()) {
      name_tensors(backward);
      backward->dtypes = forward.dtypes;
    }
    if (backward->shape_rule == nullptr && forward.shape_rule != nullptr)
      backward->shape_rule = keep(rule());
    if (backward->params.empty() && backward->params_size == 0) {
      backward->params = forward.params;
      backward->params_size = forward.params_size;
    }
    if (backward->batch == nullptr && forward.batch != nullptr)
      if (const std::string known = ways(forward.batch); !known.empty())
        backward->batch = keep(known);
  }

 private:
  // But those in which a tensor counts once: its gradient is another tensor.
  static std::string ways(const std::string& batch) {
    std::string out;
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = batch.find('|', begin);
      const std::string way = batch.substr(begin, end == std::string::npos ? end : end - begin);
      if (way.find(" once ") == std::string::npos) out += (out.empty() ? "" : "|") + way;
    }
    return out;
  }
  const char* keep(std::string text) { return texts_.emplace_back(std::move(text)).c_str(); }
  // "grad_y?: f32" of "y: f32".
  static std::string with(const char* before, const char* tensor, const char* behind) {
    const std::string text = tensor;
    const size_t colon = text.find(':'), end = text.find_first_of("?:");
    return before + strip(text.substr(0, end)) + behind +
           (colon == std::string::npos ? "" : text.substr(colon));
  }
  void name_tensors(Op* backward) {
    const size_t gradients = forward_.outputs.size() - forward_.num_aux;
    for (size_t j = 0; j < gradients; ++j)
      backward->inputs.push_back(keep(with("grad_", forward_.outputs[j], "?")));
    for (const char* x : forward_.inputs) backward->inputs.push_back(x);
    for (const char* y : forward_.outputs) backward->inputs.push_back(keep(with("", y, "?")));
    for (const char* x : forward_.inputs) {
      const std::string gradient = with("grad_", x, "?");
      // An output has one dtype of its own, or that of the first input.
      const bool several = gradient.find('|') != std::string::npos;
      backward->outputs.push_back(
          keep(several ? gradient.substr(0, gradient.find(':')) : gradient));
    }
  }
  // "N? ; N ; N? -> N" of "N -> N".
  std::string rule() const {
    std::string out;
    for (const std::string& alternative : split(forward_.shape_rule, '|'))
      out += (out.empty() ? "" : " | ") + of_alternative(alternative);
    return out;
  }
  std::string of_alternative(const std::string& text) const {
    const size_t arrow = text.find("->"), gradients = forward_.outputs.size() - forward_.num_aux;
    std::vector<std::string> inputs(forward_.inputs.size(), "...");
    if (arrow != std::string::npos) inputs = split(text.substr(0, arrow), ';');
    const bool is_like_0 = arrow == std::string::npos && inputs.size() == 1;
    std::vector<std::string> outputs =
        split(arrow != std::string::npos ? text.substr(arrow + 2) : text, ';');
    for (std::string& output : outputs) {
      const long index = output.rfind("like ", 0) == 0 ? std::strtol(&output[5], nullptr, 10) : -1;
      if (index >= 0 && static_cast<size_t>(index) < inputs.size())
        output = inputs[static_cast<size_t>(index)];
      if (output == "broadcast" || (arrow == std::string::npos && !is_like_0))
        refuse(NW_INVALID, -1,
               "op '%s': no shape_rule of its backward '%s' follows from its own, '%s'; expected "
               "that op to have one",
               forward_.name, forward_.backward, forward_.shape_rule);
      if (output == "*") output = "?";
      if (output.empty() || output.back() != '?') output += "?";
    }
    outputs.resize(forward_.outputs.size(), "?");  // the host refuses a rule of too few
    inputs.resize(forward_.inputs.size(), "?");    // those past the rule's are absent
    std::vector<std::string> all(outputs.begin(),
                                 outputs.begin() + static_cast<ptrdiff_t>(gradients));
    all.insert(all.end(), inputs.begin(), inputs.end());
    all.insert(all.end(), outputs.begin(), outputs.end());
    std::string out = all[0];
    for (size_t i = 1; i < all.size(); ++i) out += " ; " + all[i];
    for (size_t k = 0; k < inputs.size(); ++k)
      out += (k == 0 ? " -> " : " ; ") + shape_of_gradient(inputs, k, gradients + k);
    return out;
  }

  // The input's own dims, so that the gradient has a shape also where the backward op does not read
  // the input. Of an input that may be absent they may have no numbers: as the input, if it is
  // there.
  static std::string shape_of_gradient(const std::vector<std::string>& inputs, size_t k,
                                       size_t place) {
    const bool may_lack = !inputs[k].empty() && inputs[k].back() == '?';
    const std::string dims =
        may_lack ? strip(inputs[k].substr(0, inputs[k].size() - 1)) : inputs[k];
    const bool is_bound = std::any_of(inputs.begin(), inputs.end(), [](const std::string& other) {
      return other.rfind("...", 0) == 0 && other.back() != '?';
    });
    const bool has_numbers = may_lack ? dims == "..." && is_bound : dims != "*";
    return has_numbers ? dims : "like " + std::to_string(place);
  }

  const Op& forward_;
  std::deque<std::string>& texts_;
};

// Fills in what ops leave out: the shape rule of one input, and what a backward op has of its
// forward op.
inline void complete(std::vector<Op>* ops, std::deque<std::string>* texts) {
  const auto is_backward = [&](const Op& op) {
    return std::any_of(ops->begin(), ops->end(), [&](const Op& other) {
      return other.backward != nullptr && std::strcmp(other.backward, op.name) == 0;
    });
  };
  for (Op& op : *ops)
    if (op.shape_rule == nullptr && op.inputs.size() == 1 && !is_backward(op))
      op.shape_rule = "like 0";
  // As often as a backward op may be the forward op of another one.
  for (size_t round = 0; round < ops->size(); ++round)
    for (const Op& forward : *ops)
      for (Op& backward : *ops)
        if (forward.backward != nullptr && &forward != &backward && !forward.outputs.empty() &&
            std::strcmp(forward.backward, backward.name) == 0)
          Backward(forward, &backward, texts);
}

}  // namespace detail
/// @endcond

/// An op's declaration as the host reads it. Making one refuses (Refusal) what is wrong in itself.
/// What the host checks of every plugin, as names and the grammar of the shape rule, is left to it.
class Declaration {
 public:
  /// Borrows `op`.
  explicit Declaration(const Op& op) : op_(op) {
    for (const char* text : op.inputs) read("input", text, &inputs_);
    for (const char* text : op.outputs) read("output", text, &outputs_);
    check_kernels();
    check_outputs();
    check_params();
    check_shape_rule();
    if ((op.flags & NW_OP_AUTOCAST) != 0) check_autocast();
    if ((op.flags & NW_OP_INPLACE) != 0) check_inplace();
    fill();
  }
  /// The op.
  const Op& op() const { return op_; }
  /// What the host reads.
  const nw_op* table() const { return &table_; }
  /// Refuses a backward op of the same plugin that does not fit this one.
  void check_backward(const std::vector<std::unique_ptr<Declaration>>& all) const {
    if (op_.backward == nullptr) {
      if (op_.saved != 0) wrong("saved is 0x%llx without a backward op; expected 0", op_.saved);
      return;
    }
    const size_t inputs = op_.inputs.size(), outputs = op_.outputs.size();
    const auto bits = [](size_t count) { return (uint64_t{1} << std::min<size_t>(count, 32)) - 1; };
    const uint64_t known = bits(inputs) | bits(outputs) << 32;
    if ((op_.saved & ~known) != 0)
      wrong("saved is 0x%llx; expected bits of its inputs (from bit 0) and outputs (from bit 32)",
            op_.saved);
    for (const auto& other : all) {
      const Op& backward = other->op_;
      if (std::strcmp(backward.name, op_.backward) != 0 || &backward == &op_) continue;
      const size_t gradients = outputs - op_.num_aux;
      if (backward.inputs.size() != gradients + inputs + outputs ||
          backward.outputs.size() != inputs)
        refuse(NW_INVALID, -1,
               "op '%s' is the backward of '%s' and has %zu inputs and %zu outputs; expected %llu "
               "and %llu: the gradients of its outputs, its inputs, its outputs, and the gradients "
               "of its inputs",
               backward.name, op_.name, backward.inputs.size(), backward.outputs.size(),
               static_cast<unsigned long long>(gradients + inputs + outputs),
               static_cast<unsigned long long>(inputs));
      if (backward.params_size != op_.params_size)
        refuse(NW_INVALID, -1,
               "op '%s' is the backward of '%s' and has params of %llu bytes; expected its %llu",
               backward.name, op_.name, static_cast<unsigned long long>(backward.params_size),
               static_cast<unsigned long long>(op_.params_size));
    }
  }
  /// Refuses dtypes and layouts that the kernel does not take.
  void check_tensors(const nw_sig& sig) const {
    const nw_tensor_sig* first = nullptr;  // of those that share a dtype
    uint32_t number = 0;
    for (uint32_t i = 0; i < sig.num_inputs; ++i) {
      const nw_tensor_sig& t = sig.tensors[i];
      if (t.ndim < 0) continue;
      const std::vector<DLDataType>& own = inputs_[i].dtypes;
      check_dtype(t, i, dtypes_of(inputs_[i]));
      if (!own.empty()) continue;
      if (first == nullptr) first = &t, number = i;
      if (!is(t.dtype, first->dtype.code, first->dtype.bits))
        refuse_tensor(NW_UNSUPPORTED, true, i,
                      "has dtype " + detail::show(t.dtype) + "; expected " +
                          detail::show(first->dtype) + ", the dtype of " + inputs_[number].bare() +
                          detail::cast_to(first->dtype));
    }
    for (uint32_t i = 0; i < sig.num_inputs + sig.num_outputs; ++i)
      if (sig.tensors[i].ndim >= 0 && op_.layout != Layout::copied)
        check_layout(sig.tensors[i], i < sig.num_inputs,
                     i < sig.num_inputs ? i : i - sig.num_inputs);
  }
  /// The kernel of a call, and its name, which is NULL for an op without variants.
  Kernel choose_kernel(const nw_sig& sig, const Signature& signature, const char** name) const {
    if (op_.variants.empty() && sig.kernel != nullptr)
      refuse(NW_UNSUPPORTED, -1, "%s has no kernel '%s'; it has one, without a name", op_.name,
             sig.kernel);
    if (op_.variants.empty()) return op_.kernel;
    const int forced = forced_kernel(sig, kernels_.data());
    for (size_t i = 0; i < op_.variants.size(); ++i) {
      const Variant& variant = op_.variants[i];
      if ((forced >= 0 && forced != static_cast<int>(i)) ||
          (variant.fits != nullptr && !variant.fits(signature)))
        continue;
      *name = variant.name;
      return variant.kernel;
    }
    if (forced >= 0)
      refuse(NW_UNSUPPORTED, -1, "%s: kernel '%s' does not take these shapes and params", op_.name,
             sig.kernel);
    refuse(NW_UNSUPPORTED, -1, "%s: no kernel takes these shapes and params", op_.name);
  }

 private:
  void read(const char* kind, const char* text, std::vector<detail::Tensor>* tensors) const {
    try {
      tensors->emplace_back(text);
    } catch (Refusal& refusal) {
      refusal.message =
          std::string("op '") + op_.name + "': " + kind + " '" + text + "': " + refusal.message;
      throw;
    }
  }
  template <class... Args>
  [[noreturn]] void wrong(const char* format, Args... args) const {
    char text[256];
    std::snprintf(text, sizeof text, format, static_cast<unsigned long long>(args)...);
    refuse(NW_INVALID, -1, "op '%s': %s", op_.name, text);
  }
  [[noreturn]] void refuse_tensor(int32_t status, bool is_input, uint32_t i,
                                  const std::string& why) const {
    refuse(status, is_input ? static_cast<int32_t>(i) : -1, "%s %s",
           detail::tensor_name(&op_, is_input, i).c_str(), why.c_str());
  }
  void check_kernels() const {
    if ((op_.kernel == nullptr) == op_.variants.empty())
      refuse(NW_INVALID, -1, "op '%s' has %s; expected a kernel, or variants", op_.name,
             op_.kernel == nullptr ? "no kernel" : "a kernel and variants");
    for (const Variant& variant : op_.variants)
      if (variant.name == nullptr || variant.name[0] == '\0' || variant.kernel == nullptr)
        refuse(NW_INVALID, -1, "op '%s' has a variant without a %s", op_.name,
               variant.kernel == nullptr ? "kernel" : "name");
  }
  void check_outputs() const {
    for (const detail::Tensor& t : outputs_)
      if (t.dtypes.size() > 1)
        refuse(NW_INVALID, -1,
               "op '%s': output %s has dtypes %s; expected one, or none: then it has that of the "
               "first input",
               op_.name, t.bare().c_str(), detail::show(t.dtypes).c_str());
  }
  // Bindings take tensors, params and these words by keyword in one call.
  void check_params() const {
    for (const nw_param& p : op_.params) {
      if (p.name == nullptr) continue;  // the host refuses it
      for (const char* word : {"out", "device", "stream", "backend", "kernel", "deterministic"})
        if (std::strcmp(p.name, word) == 0)
          refuse(NW_INVALID, -1,
                 "op '%s': params has '%s', a word of every call; expected another name", op_.name,
                 p.name);
      for (const detail::Tensor& t : inputs_)
        if (t.bare() == p.name)
          refuse(NW_INVALID, -1,
                 "op '%s': params has '%s', which is the name of an input; expected another name",
                 op_.name, p.name);
    }
  }
  // The dtypes that an input may have.
  const std::vector<DLDataType>& dtypes_of(const detail::Tensor& input) const {
    return input.dtypes.empty() ? op_.dtypes : input.dtypes;
  }
  // torch.autocast casts each input of float32 to one of 16 bits.
  void check_autocast() const {
    bool is_cast = inputs_.empty();
    for (const detail::Tensor& t : inputs_) {
      const std::vector<DLDataType>& dtypes = dtypes_of(t);
      const bool narrow =
          detail::is_among(dtypes, dtype<f16>()) || detail::is_among(dtypes, dtype<bf16>());
      if (!narrow && detail::is_among(dtypes, dtype<float>())) refuse_autocast(t);
      is_cast = is_cast || narrow;
    }
    if (!is_cast) refuse_autocast(inputs_[0]);
  }
  [[noreturn]] void refuse_autocast(const detail::Tensor& t) const {
    refuse(NW_INVALID, -1,
           "op '%s': flags has NW_OP_AUTOCAST, and input %s has dtypes %s; expected float16 or "
           "bfloat16 "
           "among them, to which torch.autocast casts it",
           op_.name, t.bare().c_str(), detail::show(dtypes_of(t)).c_str());
  }
  // Without a dtype of its own an output has that of an input.
  void check_inplace() const {
    for (const detail::Tensor& y : outputs_) {
      if (y.dtypes.empty()) return;
      for (const detail::Tensor& x : inputs_)
        if (detail::is_among(dtypes_of(x), y.dtypes[0])) return;
    }
    refuse(NW_INVALID, -1,
           "op '%s': flags has NW_OP_INPLACE, and no input has the dtype of an output, as %s: %s; "
           "expected an output that may be an input",
           op_.name, outputs_[0].bare().c_str(), detail::show(outputs_[0].dtypes).c_str());
  }
  // A kernel that reads an input whose shape nobody checked reads beyond its end.
  void check_shape_rule() const {
    if (op_.shape_rule == nullptr)
      refuse(
          NW_INVALID, -1,
          "op '%s' has %zu inputs and no shape_rule; expected one, as '... ; ... -> ...' for two "
          "inputs of one shape",
          op_.name, op_.inputs.size());
    size_t most = 0;  // inputs that one alternative has
    for (const std::string& alternative : detail::split(op_.shape_rule, '|')) {
      const std::vector<bool> known = inputs_of(alternative);
      most = std::max(most, static_cast<size_t>(std::count(known.begin(), known.end(), true)));
      // One that lists its inputs means calls without the others: those may be absent.
      const bool lists = alternative.find("->") != std::string::npos;
      for (size_t i = 0; i < known.size(); ++i)
        if (!known[i] && !(lists && inputs_[i].bare() != inputs_[i].name)) refuse_unchecked(i);
    }
    if (most < inputs_.size()) refuse_unchecked(most);
  }
  // Of each input, whether an alternative of the shape rule has it.
  std::vector<bool> inputs_of(const std::string& alternative) const {
    std::vector<bool> known(op_.inputs.size());
    const size_t arrow = alternative.find("->");
    if (arrow != std::string::npos) {
      const size_t listed = detail::split(alternative.substr(0, arrow), ';').size();
      std::fill_n(known.begin(), std::min(listed, known.size()), true);
      return known;
    }
    for (const std::string& output : detail::split(alternative, ';')) {
      if (output == "broadcast") known.assign(known.size(), true);
      const long index = output.rfind("like ", 0) == 0 ? std::strtol(&output[5], nullptr, 10) : -1;
      if (index >= 0 && static_cast<size_t>(index) < known.size())
        known[static_cast<size_t>(index)] = true;
    }
    return known;
  }
  [[noreturn]] void refuse_unchecked(size_t i) const {
    refuse(NW_INVALID, -1,
           "op '%s': shape_rule '%s' says nothing of input %s, so a kernel could read beyond its "
           "end; expected a rule for every input, as '... ; ... -> ...' for two of one shape, or "
           "'*' for any shape",
           op_.name, op_.shape_rule, inputs_[i].bare().c_str());
  }
  void check_dtype(const nw_tensor_sig& t, uint32_t i,
                   const std::vector<DLDataType>& dtypes) const {
    if (!detail::is_among(dtypes, t.dtype))
      refuse_tensor(NW_UNSUPPORTED, true, i,
                    "has dtype " + detail::show(t.dtype) + "; expected " + detail::show(dtypes) +
                        (dtypes.empty() ? "" : detail::cast_to(dtypes[0])));
  }
  void check_layout(const nw_tensor_sig& t, bool is_input, uint32_t i) const {
    if (!is_aligned(t) && has_elements(t))
      refuse_tensor(NW_UNSUPPORTED, is_input, i,
                    "has an address that is no multiple of " + std::to_string(t.dtype.bits / 8) +
                        " bytes; expected one that is");
    if (op_.layout == Layout::contiguous && !is_contiguous(t))
      refuse_tensor(NW_UNSUPPORTED, is_input, i,
                    "has shape " + detail::show(t.shape, t.ndim) + " and strides " +
                        detail::show(t.strides, t.ndim) +
                        "; expected a C-contiguous tensor, as .contiguous() or "
                        "numpy.ascontiguousarray() gives");
  }
  void fill() {
    for (const detail::Tensor& t : inputs_) add(t, &input_names_, &input_dtypes_);
    for (const detail::Tensor& t : outputs_) add(t, &output_names_, &output_dtypes_);
    for (const nw_param& p : op_.params) params_.push_back(&p);
    for (const Variant& variant : op_.variants) kernels_.push_back(variant.name);
    input_names_.push_back(nullptr);
    output_names_.push_back(nullptr);
    params_.push_back(nullptr);
    kernels_.push_back(nullptr);
    table_.struct_size = sizeof table_;
    table_.flags = op_.flags;
    table_.name = op_.name;
    table_.max_inputs = static_cast<uint32_t>(inputs_.size());
    for (uint32_t k = 0; k < table_.max_inputs; ++k)
      if (inputs_[k].bare() == inputs_[k].name) table_.min_inputs = k + 1;
    table_.num_outputs = static_cast<uint32_t>(outputs_.size());
    table_.num_aux = op_.num_aux;
    table_.inputs = input_names_.data();
    table_.outputs = output_names_.data();
    table_.params_size = op_.params_size;
    table_.shape_rule = op_.shape_rule;
    table_.backward = op_.backward;
    table_.saved = op_.saved;
    table_.batch = op_.batch;
    table_.params = op_.params.empty() ? nullptr : params_.data();
    table_.kernels = op_.variants.empty() ? nullptr : kernels_.data();
    // NULL where nothing is declared: hosts before ABI 1.2 take such a plugin, too.
    const auto declared = [](const std::vector<DLDataType>& dtypes) {
      return std::any_of(dtypes.begin(), dtypes.end(), [](DLDataType d) { return d.bits != 0; })
                 ? dtypes.data()
                 : nullptr;
    };
    table_.input_dtypes = declared(input_dtypes_);
    table_.output_dtypes = declared(output_dtypes_);
  }
  static void add(const detail::Tensor& t, std::vector<const char*>* names,
                  std::vector<DLDataType>* dtypes) {
    names->push_back(t.name.c_str());
    dtypes->push_back(t.dtypes.size() == 1 ? t.dtypes[0] : DLDataType{});
  }

  const Op& op_;
  std::vector<detail::Tensor> inputs_, outputs_;
  std::vector<const char*> input_names_, output_names_, kernels_;
  std::vector<DLDataType> input_dtypes_, output_dtypes_;
  std::vector<const nw_param*> params_;
  nw_op table_{};
};

/// @}

}  // namespace narrows::plugin
#endif
