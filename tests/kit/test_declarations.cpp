// SPDX-License-Identifier: Apache-2.0
// test_declarations.cpp -- what plugin.hpp refuses of an op's declaration, and what it fills in.
#include <catch2/catch_test_macros.hpp>
#include <complex>
#include <functional>
#include <narrows/plugin.hpp>

using narrows::plugin::dtype;
using narrows::plugin::field;
using narrows::plugin::Launch;
using narrows::plugin::Op;
using narrows::plugin::Plugin;
using narrows::plugin::Signature;

template <>
inline constexpr DLDataType narrows::plugin::class_dtype<std::complex<float>> = {kDLComplex, 64, 1};

namespace {

void nothing(const Launch&) {}

struct Params {
  int32_t k = 0;
  float eps = 0;
};

// An op of two inputs, and its backward op, to be bent.
std::vector<Op> pair() {
  return {{.name = "t.pair/1",
           .inputs = {"a", "b?"},
           .outputs = {"y"},
           .shape_rule = "... ; ...? -> ...",
           .kernel = nothing,
           .params = {field("k", &Params::k, 1.0)},
           .params_size = sizeof(Params),
           .backward = "t.pair_backward/1",
           .saved = 3},
          {.name = "t.pair_backward/1", .kernel = nothing}};
}

std::string fault_of(std::vector<Op> ops) {
  const Plugin plugin("t", std::move(ops));
  nw_error error{};
  const nw_plugin* const table = plugin.table(NW_ABI_MAJOR, &error);
  CHECK((table == nullptr) == (error.status == NW_INVALID));
  return table == nullptr ? error.message : "";
}

struct Fault {
  const char* what;
  std::function<void(Op& op, Op& backward)> bend;
  const char* message;
};

const Fault kFaults[] = {
    {"no kernel", [](Op& op, Op&) { op.kernel = nullptr; }, "op 't.pair/1' has no kernel; expected a kernel, or variants"},
    {"a kernel and variants", [](Op& op, Op&) { op.variants = {{"v", nothing}}; },
     "op 't.pair/1' has a kernel and variants; expected a kernel, or variants"},
    {"a variant without a name", [](Op& op, Op&) { op.kernel = nullptr, op.variants = {{"", nothing}}; },
     "op 't.pair/1' has a variant without a name"},
    {"a variant without a kernel", [](Op& op, Op&) { op.kernel = nullptr, op.variants = {{"v", nullptr}}; },
     "op 't.pair/1' has a variant without a kernel"},
    {"an unknown dtype", [](Op& op, Op&) { op.inputs = {"a: f32|float", "b?"}; },
     "op 't.pair/1': input 'a: f32|float': dtype 'float'; expected one of f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, "
     "u64, bool"},
    {"no dtype behind a colon", [](Op& op, Op&) { op.inputs = {"a:", "b?"}; },
     "op 't.pair/1': input 'a:': dtype ''; expected one of f16"},
    {"an unknown dtype of an output", [](Op& op, Op&) { op.outputs = {"y: f23"}; },
     "op 't.pair/1': output 'y: f23': dtype 'f23'; expected one of f16"},
    {"an output of two dtypes", [](Op& op, Op&) { op.outputs = {"y: f32|f64"}; },
     "op 't.pair/1': output y has dtypes float32 or float64; expected one, or none"},
    {"no shape rule for two inputs", [](Op& op, Op& backward) { op.shape_rule = nullptr, backward.shape_rule = "*"; },
     "op 't.pair/1' has 2 inputs and no shape_rule; expected one, as '... ; ... -> ...'"},
    {"a shape rule that leaves an input out", [](Op& op, Op&) { op.shape_rule = "like 0", op.backward = nullptr, op.saved = 0; },
     "op 't.pair/1': shape_rule 'like 0' says nothing of input b, so a kernel could read beyond its end"},
    {"one alternative that leaves an input out",
     [](Op& op, Op& backward) { op.shape_rule = "N ; N? -> N | N,M", backward.shape_rule = "*"; },
     "shape_rule 'N ; N? -> N | N,M' says nothing of input a"},
    {"a rule with an arrow that lists too few inputs",
     [](Op& op, Op& backward) { op.shape_rule = "M -> M", backward.shape_rule = "*"; },
     "op 't.pair/1': shape_rule 'M -> M' says nothing of input b"},
    {"a required input that one alternative leaves out",
     [](Op& op, Op& backward) { op.inputs = {"a", "b"}, op.shape_rule = "N -> N | N ; N -> N", backward.shape_rule = "*"; },
     "shape_rule 'N -> N | N ; N -> N' says nothing of input b"},
    {"params named as an input", [](Op& op, Op&) { op.params[0].name = "b"; },
     "op 't.pair/1': params has 'b', which is the name of an input; expected another name"},
    {"params named as a word of every call", [](Op& op, Op&) { op.params[0].name = "stream"; },
     "op 't.pair/1': params has 'stream', a word of every call; expected another name"},
    {"params of a backward op alone",
     [](Op&, Op& backward) { backward.params = {field("deterministic", &Params::k)}, backward.params_size = sizeof(Params); },
     "op 't.pair_backward/1': params has 'deterministic'"},
    {"saved bits without a backward op",
     [](Op& op, Op& backward) { op.backward = nullptr, backward.inputs = {"x"}, backward.outputs = {"y"}; },
     "op 't.pair/1': saved is 0x3 without a backward op; expected 0"},
    {"saved bits of no tensor", [](Op& op, Op&) { op.saved = 4; },
     "op 't.pair/1': saved is 0x4; expected bits of its inputs (from bit 0) and outputs (from bit 32)"},
    {"a backward op of too few inputs",
     [](Op&, Op& backward) {
       backward.inputs = {"g?", "a", "b?"}, backward.outputs = {"ga?", "gb?"}, backward.shape_rule = "*;*;? -> like 1 ; like 2";
     },
     "op 't.pair_backward/1' is the backward of 't.pair/1' and has 3 inputs and 2 outputs; expected 4 and 2: the gradients of its"},
    {"a backward op of other params", [](Op&, Op& backward) { backward.params_size = 4; },
     "op 't.pair_backward/1' is the backward of 't.pair/1' and has params of 4 bytes; expected its 8"},
    {"autocast without a dtype of 16 bits", [](Op& op, Op&) { op.flags = NW_OP_AUTOCAST; },
     "op 't.pair/1': flags has NW_OP_AUTOCAST, and input a has dtypes float32; expected float16 or bfloat16 among them"},
    {"autocast of one input of two",
     [](Op& op, Op&) {
       op.flags = NW_OP_AUTOCAST, op.dtypes = {dtype<float>(), dtype<narrows::f16>()}, op.inputs = {"a", "b?: f32"};
     },
     "op 't.pair/1': flags has NW_OP_AUTOCAST, and input b has dtypes float32"},
    {"autocast without floats", [](Op& op, Op&) { op.flags = NW_OP_AUTOCAST, op.inputs = {"a: i32", "b?: i64"}; },
     "op 't.pair/1': flags has NW_OP_AUTOCAST, and input a has dtypes int32"},
    {"in place with an output of another dtype", [](Op& op, Op&) { op.flags = NW_OP_INPLACE, op.outputs = {"y: i32"}; },
     "op 't.pair/1': flags has NW_OP_INPLACE, and no input has the dtype of an output, as y: int32"},
    {"a backward op whose shape rule does not follow", [](Op& op, Op&) { op.shape_rule = "broadcast"; },
     "op 't.pair/1': no shape_rule of its backward 't.pair_backward/1' follows from its own, 'broadcast'"},
};

std::string names(const char* const* list) {
  std::string out;
  for (; *list != nullptr; ++list) out += (out.empty() ? "" : " ") + std::string(*list);
  return out;
}

}  // namespace

TEST_CASE("a declaration that is wrong is refused when the plugin is loaded") {
  CHECK(fault_of(pair()).empty());
  for (const Fault& fault : kFaults) {
    std::vector<Op> ops = pair();
    fault.bend(ops[0], ops[1]);
    const std::string message = fault_of(ops);
    INFO(fault.what << ": " << message);
    CHECK(message.find(fault.message) != std::string::npos);
  }
}

TEST_CASE("an optional input may be missing in some alternatives, not in all") {
  std::vector<Op> ops = pair();
  ops[0].shape_rule = "N -> N | N ; N -> N";
  CHECK(fault_of(ops).empty());
}

TEST_CASE("flags that the dtypes allow") {
  std::vector<Op> ops = pair();
  ops[0].flags = NW_OP_AUTOCAST | NW_OP_INPLACE;
  ops[0].dtypes = {dtype<float>(), dtype<narrows::bf16>()};
  ops[0].inputs = {"a", "b?: i64"};
  CHECK(fault_of(ops).empty());
  ops[0].outputs = {"y: bf16"};
  CHECK(fault_of(ops).empty());
}

TEST_CASE("tensors that are absent are refused by name") {
  const Op op = pair()[0];
  int64_t extent = 3;
  DLTensor x{};
  x.ndim = 1;
  x.shape = &extent;
  const DLTensor *inputs[] = {&x, nullptr}, *outputs[] = {nullptr};
  nw_call call{};
  call.inputs = inputs;
  call.outputs = outputs;
  call.num_inputs = 2;
  call.num_outputs = 1;
  const nw_host host{};
  const Launch launch(&host, &call, &op);
  const auto says = [](const auto& ask) -> std::string {
    try {
      ask();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "nothing";
  };
  CHECK(&launch.in(0) == &x);
  CHECK(says([&] { launch.in(1); }) == "t.pair/1: input b is absent; the kernel asks for it");
  CHECK(says([&] { launch.in(7); }) == "t.pair/1: input number 7 is absent; the kernel asks for it");
  CHECK(says([&] { launch.out(0); }) == "t.pair/1: output y is absent; the kernel asks for it");
  CHECK(says([&] { launch.size(0); }) == "t.pair/1: output y is absent; the kernel asks for it");
  CHECK(says([&] { launch.size(9); }) == "t.pair/1: output number 9 is absent; the kernel asks for it");

  nw_tensor_sig tensors[3] = {};
  tensors[1].ndim = tensors[2].ndim = -1;
  nw_sig sig{};
  sig.tensors = tensors;
  sig.num_inputs = 2;
  sig.num_outputs = 1;
  const Signature signature(sig);
  CHECK(&signature.in(0) == tensors);
  for (const uint32_t i : {1u, 7u}) CHECK(says([&] { signature.in(i); }).find("input " + std::to_string(i) + " is absent") == 0);
  for (const uint32_t i : {0u, 9u}) CHECK(says([&] { signature.out(i); }).find("output " + std::to_string(i) + " is absent") == 0);
}

TEST_CASE("a signature counts the elements of its outputs") {
  int64_t shape[] = {2, 3, int64_t{1} << 62};
  nw_tensor_sig tensors[3] = {};
  for (nw_tensor_sig& t : tensors) t.shape = shape;
  tensors[0].ndim = 2;
  tensors[2].ndim = -1;
  nw_sig sig{};
  sig.tensors = tensors;
  sig.num_outputs = 3;
  const Signature signature(sig);
  CHECK(signature.size(0) == 6);
  CHECK(signature.size(1) == 1);
  tensors[0].ndim = 3;
  shape[1] = 0;
  CHECK(signature.size(0) == 0);
  CHECK_THROWS_AS(signature.size(2), std::invalid_argument);
  CHECK_THROWS_AS(signature.size(3), std::invalid_argument);
}

std::string thrown_in_op(void (*body)()) {
  nw_error error{};
  const int32_t status = narrows::plugin::guarded(&error, [&] { narrows::plugin::in_op("t.pair/1", NW_INVALID, body); });
  return std::to_string(status) + " " + error.message;
}

TEST_CASE("what is thrown in an op's work names the op once") {
  using narrows::plugin::refuse;
  const std::string invalid = std::to_string(NW_INVALID) + " ", unsupported = std::to_string(NW_UNSUPPORTED) + " ";
  CHECK(thrown_in_op([] { throw std::runtime_error("k is odd"); }) == invalid + "t.pair/1: k is odd");
  CHECK(thrown_in_op([] { throw std::runtime_error("t.pair/1: k is odd"); }) == invalid + "t.pair/1: k is odd");
  CHECK(thrown_in_op([] { refuse(NW_UNSUPPORTED, -1, "k is odd"); }) == unsupported + "t.pair/1: k is odd");
  CHECK(thrown_in_op([] { refuse(NW_UNSUPPORTED, -1, "t.pair/1 is new"); }) == unsupported + "t.pair/1 is new");
  CHECK(thrown_in_op([] { throw 3; }) == std::to_string(NW_FAILED) + " t.pair/1: an unknown exception");
  CHECK(thrown_in_op([] { throw std::bad_alloc(); }) == std::to_string(NW_OUT_OF_MEMORY) + " out of host memory");
}

// The dtypes that input<T>() gives as Ts.
template <class T>
std::string read_as() {
  const char* const names[] = {"f16", "bf16", "f32", "f64", "i8",  "i16",  "i32",
                               "i64", "u8",   "u16", "u32", "u64", "bool", "complex64"};
  std::string out;
  for (const char* name : names) {
    const bool is_complex = std::strcmp(name, "complex64") == 0;
    const DLDataType t = is_complex ? DLDataType{kDLComplex, 64, 1} : narrows::plugin::detail::dtype_of(name);
    if (narrows::plugin::detail::holds<T>(t)) out += (out.empty() ? "" : " ") + std::string(name);
  }
  return out;
}

TEST_CASE("a type reads tensors of its own dtype") {
  CHECK(read_as<float>() == "f32");
  CHECK(read_as<double>() == "f64");
  CHECK(read_as<narrows::f16>() == "f16");
  CHECK(read_as<narrows::bf16>() == "bf16");
  CHECK(read_as<int64_t>() == "i64");
  CHECK(read_as<int8_t>() == "i8");
  CHECK(read_as<bool>() == "bool");
  CHECK(read_as<std::complex<float>>() == "complex64");
  // Bits, and bytes.
  CHECK(read_as<uint16_t>() == "f16 bf16 u16");
  CHECK(read_as<unsigned char>() == "u8 bool");
  CHECK(read_as<char>() == "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool complex64");
  CHECK(read_as<std::byte>() == read_as<char>());
}

TEST_CASE("a host of another major is refused") {
  const Plugin plugin("t", pair());
  nw_error error{};
  CHECK(plugin.table(NW_ABI_MAJOR + 1, &error) == nullptr);
  CHECK(error.status == NW_UNSUPPORTED);
  CHECK(std::string(error.message).find("the host speaks ABI 2 and this plugin ABI 1") != std::string::npos);
}

TEST_CASE("tensors are declared by name, '?' and dtypes") {
  std::vector<Op> ops = pair();
  ops.resize(1);
  ops[0].backward = nullptr;
  ops[0].saved = 0;
  ops[0].inputs = {" a : f32 | f64", "b?: i64"};
  ops[0].outputs = {"y: bool"};
  const Plugin plugin("t", ops);
  const nw_op& op = *plugin.table()->ops[0];
  CHECK(names(op.inputs) == "a b?");
  CHECK(names(op.outputs) == "y");
  CHECK((op.min_inputs == 1 && op.max_inputs == 2));
  CHECK((op.input_dtypes[0].bits == 0 && op.input_dtypes[1].code == kDLInt && op.input_dtypes[1].bits == 64));
  CHECK((op.output_dtypes[0].code == kDLBool && op.output_dtypes[0].lanes == 1));
}

TEST_CASE("what a backward op leaves out follows from its forward op") {
  std::vector<Op> ops = pair();
  ops[0].outputs = {"y: i32", "extra"};
  ops[0].shape_rule = "N,M ; M? -> N ; like 1 | N -> () ; *";
  ops[0].num_aux = 1;
  ops[0].batch = "N|M once b|N where k=1";
  // Before its forward op, and with a backward op of its own.
  ops[1].backward = "t.second/1";
  std::swap(ops[0], ops[1]);
  ops.insert(ops.begin(), {.name = "t.second/1", .kernel = nothing});
  const Plugin plugin("t", ops);
  nw_error error{};
  CHECK(plugin.table(NW_ABI_MAJOR, &error) != nullptr);
  INFO(error.message);
  const nw_op &second = *plugin.table()->ops[0], &backward = *plugin.table()->ops[1];
  CHECK(names(backward.inputs) == "grad_y? a b? y? extra?");
  CHECK(names(backward.outputs) == "grad_a? grad_b?");
  CHECK(std::string(backward.shape_rule) == "N? ; N,M ; M? ; N? ; M? -> N,M ; like 2 | ()? ; N ; ? ; ()? ; ? -> N ; like 2");
  CHECK((backward.input_dtypes[0].bits == 32 && backward.input_dtypes[3].code == kDLInt && backward.input_dtypes[1].bits == 0));
  CHECK((backward.params_size == sizeof(Params) && std::string(backward.params[0]->name) == "k"));
  CHECK(std::string(backward.batch) == "N|N where k=1");
  CHECK((backward.min_inputs == 2 && backward.max_inputs == 5));
  CHECK(names(second.inputs) == "grad_grad_a? grad_grad_b? grad_y? a b? y? extra? grad_a? grad_b?");
  CHECK(names(second.outputs) == "grad_grad_y? grad_a? grad_b? grad_y? grad_extra?");
}
