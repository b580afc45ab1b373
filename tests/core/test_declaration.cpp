// SPDX-License-Identifier: Apache-2.0
// test_declaration.cpp -- core/contract.cpp and backend.cpp: what a plugin may declare of its ops, and what a declaration asks of a
// call. One plugin, "bent", declares whatever the test makes of faulty.op/1: inputs a and b?, output out, one field n, "like 0".
#include <functional>

#include "fixture.h"

using namespace narrows::test;

namespace {

using Bend = std::function<void(nw_plugin& table, nw_op& op)>;

struct {
  Bend bend;
  nw_op op;
  const nw_op* ops[3];
} bent;

void bend_table(nw_plugin* table) {
  bent.op = *table->ops[0];
  bent.ops[0] = &bent.op;
  table->ops = bent.ops;
  bent.bend(*table, bent.op);
}

int32_t load(nw_runtime* rt, const Bend& bend, nw_error* error = nullptr) {
  const std::string address = std::to_string(reinterpret_cast<uintptr_t>(&bend_table));
  const Environment variable("NARROWS_TEST_BEND", address.c_str());
  bent.bend = bend;
  return nw_load(rt, plugin_file("bent").c_str(), error);
}

Bend named(const char* name) {
  return [=](nw_plugin&, nw_op& op) { op.name = name; };
}

// ---- arrays for ops to point to ----

const char* const kABC[] = {"a", "b", "c", nullptr};
const char* const kAA[] = {"a", "a", nullptr};
const char* const kEmpty[] = {"a", "", nullptr};
const char* const kQuestion[] = {"a", "?", nullptr};
const char* const kResult[] = {"result", nullptr};
const char* const kTwoOut[] = {"out", "more", nullptr};

constexpr DLDataType kI64x2{kDLInt, 64, 2}, kBoolx2{kDLBool, 8, 2}, kI128{kDLInt, 128, 1}, kI4{kDLInt, 4, 1};
const DLDataType kHalfBytes[] = {{}, kI4}, kPairs[] = {kI64x2}, kBytesToInts[] = {{kDLInt, 8, 1}, {}}, kInts[] = {kI32},
                 kCodeAlone[] = {{1, 0, 0}}, kLaneAlone[] = {{0, 0, 1}}, kUnknownCode[] = {{99, 8, 1}}, kNothing[] = {{}};
const char* const kModes[] = {"zeros", "mirror", nullptr};
const char* const kMoreModes[] = {"zeros", "mirror", "wrap", nullptr};
const char* const kOtherModes[] = {"zeros", "wrap", nullptr};
struct Field {
  nw_param field;
  const nw_param* list[2] = {&field, nullptr};
  Field(const char* name, DLDataType dtype, uint32_t offset = 0, const char* const* values = nullptr)
      : field{name, dtype, offset, values, 0} {}
};
const Field kN("n", kI64), kNameless("", kI64), kPair("n", kI64x2), kFlags("n", kBoolx2), kFlag("n", kB8), kFar("n", kI64, 8),
    kLastByte("m", kB8, 7), kNext("m", kI64, 8), kModeField("n", kI64, 0, kModes), kMoreModesField("n", kI64, 0, kMoreModes),
    kOtherModesField("n", kI64, 0, kOtherModes), kUnsigned("n", {kDLUInt, 32, 1}), kReal("n", kF64), kHuge("n", kI128),
    kNibble("n", kI4);
const nw_param* const kOverlapping[] = {&kN.field, &kFlag.field, nullptr};
const nw_param* const kSharingAByte[] = {&kN.field, &kLastByte.field, nullptr};
const nw_param* const kSideBySide[] = {&kN.field, &kNext.field, nullptr};

Bend with_field(const Field& field) {
  return [&field](nw_plugin&, nw_op& op) {
    op.params = field.list;
    op.params_size = 16;
  };
}

// With a shape rule of sizes A and C, and one field.
Bend batch(const char* text, const Field& field = kN) {
  return [&field, text](nw_plugin&, nw_op& op) {
    op.shape_rule = "A,C ; ? -> A,C";
    op.params = field.list;
    op.params_size = 16;
    op.batch = text;
  };
}

Bend batchable(const char* rule) {
  return [=](nw_plugin&, nw_op& op) { op.shape_rule = rule, op.flags = NW_OP_BATCHABLE; };
}

int32_t says_nothing(void*, const nw_sig*, nw_spec*, uint32_t, nw_error*) { return NW_OK; }

struct Fault {
  const char* what;
  Bend bend;
  std::vector<const char*> words;
  int32_t status = NW_INVALID;
};

const Fault kFaults[] = {
    {"a name without a number", named("acme.op"), {"'acme.op'", "vendor.name/1"}},
    {"a name without a vendor", named(".op/1"), {"'.op/1'", "vendor.name/1"}},
    {"a name of a vendor alone", named("acme./1"), {"'acme./1'", "vendor.name/1"}},
    {"a name with its parts turned round", named("acme/1.op"), {"'acme/1.op'", "vendor.name/1"}},
    {"a name with a number to come", named("acme.op/"), {"'acme.op/'", "vendor.name/1"}},
    {"a name with a negative number", named("acme.op/-1"), {"'acme.op/-1'", "vendor.name/1"}},
    {"a name with a letter for a number", named("acme.op/1a"), {"'acme.op/1a'", "vendor.name/1"}},
    {"the name of a tensor program", named("program.op/1"), {"'program.op/1' is named like a tensor program"}},
    {"an input of half a byte",
     [](nw_plugin&, nw_op& op) { op.input_dtypes = kHalfBytes; },
     {"dtype of number 1 of its inputs has code 0, 4 bits and 1 lanes; expected one of whole bytes, or zeros"}},
    {"no dtype, with a code",
     [](nw_plugin&, nw_op& op) { op.output_dtypes = kCodeAlone; },
     {"dtype of number 0 of its outputs has code 1, 0 bits and 0 lanes"}},
    {"no dtype, with a lane",
     [](nw_plugin&, nw_op& op) { op.output_dtypes = kLaneAlone; },
     {"dtype of number 0 of its outputs has code 0, 0 bits and 1 lanes"}},
    {"an output of an unknown code",
     [](nw_plugin&, nw_op& op) { op.output_dtypes = kUnknownCode; },
     {"dtype of number 0 of its outputs has code 99"}},
    {"an output of two lanes",
     [](nw_plugin&, nw_op& op) { op.output_dtypes = kPairs; },
     {"dtype of number 0 of its outputs", "2 lanes"}},
    {"33 inputs",
     [](nw_plugin&, nw_op& op) { op.max_inputs = 33; },
     {"faulty.op/1", "33 inputs and 1 outputs", "at most 32 tensors"}},
    {"no output", [](nw_plugin&, nw_op& op) { op.num_outputs = 0; }, {"0 outputs", "at least one output"}},
    {"more names than inputs", [](nw_plugin&, nw_op& op) { op.inputs = kABC; }, {"2 inputs but names more, 'c' the next"}},
    {"more names than outputs", [](nw_plugin&, nw_op& op) { op.outputs = kTwoOut; }, {"1 outputs but names more, 'more'"}},
    {"one name twice", [](nw_plugin&, nw_op& op) { op.inputs = kAA; }, {"two inputs named 'a'"}},
    {"an empty name", [](nw_plugin&, nw_op& op) { op.inputs = kEmpty; }, {"number 1 of its inputs", "is empty"}},
    {"a name that is only '?'", [](nw_plugin&, nw_op& op) { op.inputs = kQuestion; }, {"number 1 of its inputs", "is empty"}},
    {"a field with an empty name", with_field(kNameless), {"field without a name"}},
    {"fields that overlap",
     [](nw_plugin&, nw_op& op) { op.params = kOverlapping; },
     {"field 'n' at byte 0; expected fields in the order of their offsets"}},
    {"fields that share a byte",
     [](nw_plugin&, nw_op& op) { op.params = kSharingAByte, op.params_size = 16; },
     {"field 'm' at byte 7; expected fields in the order of their offsets"}},
    {"a field that ends a byte behind the params",
     [](nw_plugin&, nw_op& op) { op.params = kN.list, op.params_size = 7; },
     {"field 'n' ends at byte 8 of params that have 7"}},
    {"a batch without a shape rule",
     [](nw_plugin& table, nw_op& op) { table.infer = says_nothing, op.shape_rule = nullptr, op.batch = "A"; },
     {"declares batch 'A' and no shape rule"}},
    {"a batch along no size", batch("A | B"), {"batch 'A | B'", "'B' is no size of its shape rule and no integer field"}},
    {"a batch of leading dimensions that the rule lacks", batch("..."), {"batch '...'", "'...' is no size of its shape rule"}},
    {"a batch along leading dimensions and a size",
     [](nw_plugin&, nw_op& op) { op.shape_rule = "...,A ; ? -> ...,A", op.batch = "...,A"; },
     {"declares batch '...,A': one tensor has two axes in one way"}},
    {"an element-wise op whose rule has a size",
     [](nw_plugin&, nw_op& op) { op.shape_rule = "A ; ? -> A", op.batch = "*"; },
     {"batch '*', and shape rule \"A ; ? -> A\" has (A)", "expected '...', '*', 'broadcast' or 'like i' alone"}},
    {"an element-wise op with two dimensions",
     [](nw_plugin&, nw_op& op) { op.shape_rule = "A ; N -> A, N", op.batch = "*"; },
     {"batch '*'", "has (A)"}},
    {"an element-wise op with a leading dimension and a last one",
     [](nw_plugin&, nw_op& op) { op.shape_rule = "* ; ? -> like 0 | ... ; ...,3 -> ...", op.batch = "*"; },
     {"batch '*'", "has (..., 3)"}},
    {"an element-wise op with a number for a result",
     [](nw_plugin&, nw_op& op) { op.shape_rule = "... ; ? -> ()", op.batch = "*"; },
     {"batch '*'", "has ()"}},
    {"a batch with an unknown tensor that counts once",
     batch("A once d"),
     {"batch 'A once d'", "'d' stands behind 'once'", "a tensor"}},
    {"a batch where a field is no number", batch("A where n=A"), {"where 'n=A'", "expected 'FIELD = N' or 'FIELD <= N'"}},
    {"a batch where a field is more", batch("A where n>=2"), {"where 'n>=2'", "expected 'FIELD = N' or 'FIELD <= N'"}},
    {"a batch where an unknown field is 1", batch("A where m=1"), {"where 'm=1'", "an integer field of its params"}},
    {"a batch where a field", batch("A where n"), {"where 'n'", "expected 'FIELD = N'"}},
    {"a batch where nothing is 1", batch("A where =1"), {"where '=1'", "expected 'FIELD = N'"}},
    {"a batch of no name", batch("A,"), {"batch 'A,'", "'' is no size"}},
    {"a batch of nothing", batch(""), {"batch ''", "'' is no size"}},
    {"a batch of a field alone", batch("n"), {"batch 'n'", "expected a size of its shape rule in each way"}},
    {"a batch of a field that is real", batch("A,n", kReal), {"'n' is no size of its shape rule and no integer field"}},
    {"a batch of a field of two lanes", batch("A,n", kPair), {"'n' is no size of its shape rule and no integer field"}},
    {"a batch of two axes of one tensor", batch("A,C"), {"batch 'A,C': one tensor has two axes in one way"}},
    {"a batch of one rank alone",
     batchable("A,C ; ? -> A,C"),
     {"flag NW_OP_BATCHABLE", "shape rule \"A,C ; ? -> A,C\" takes no tensors of one leading dimension more"}},
    {"a batch of two ranks more", batchable("A ; A? -> A | A,B,C -> A,B,C"), {"flag NW_OP_BATCHABLE"}},
    {"a batch of an output of one rank", batchable("A ; ? -> () | A,C ; ? -> ()"), {"flag NW_OP_BATCHABLE"}},
    {"a batch of every rank whose output has one", batchable("... ; ? -> ()"), {"flag NW_OP_BATCHABLE"}},
    {"a batch of one input of two", batchable("A ; C -> A | A,B ; C -> A,B"), {"flag NW_OP_BATCHABLE"}},
    {"neither a shape rule nor infer", [](nw_plugin&, nw_op& op) { op.shape_rule = nullptr; }, {"no shape_rule", "no infer"}},
    {"a built-in op with fewer inputs at most than at least",
     [](nw_plugin&, nw_op& op) {
       op = nw_op{};
       op.struct_size = sizeof op;
       op.name = "conv1d";
       op.min_inputs = 2;
     },
     {"'conv1d' declares 2 inputs at least and 0 at most"}},
};

struct BadRule {
  const char* rule;
  std::vector<const char*> words;
};
const BadRule kBadRules[] = {
    {"", {"an expression is missing", "position 0"}},
    {"A ; ", {"an expression is missing"}},
    {" -> A", {"an expression is missing"}},
    {"A,,B", {"an expression is missing"}},
    {"A+", {"an expression is missing", "position 2 of 'A+'"}},
    {"A B", {"unexpected character", "position 2 of 'A B'"}},
    {"A / 2", {"unexpected character"}},
    {"$", {"unexpected character", "position 0"}},
    {"-1", {"unexpected character", "position 0"}},
    {"(A", {"')' is missing"}},
    {"max(A)", {"',' is missing"}},
    {"min(A,B", {"')' is missing"}},
    {"99999999999999999999", {"a number is too large"}},
    {"9223372036854775808", {"a number is too large"}},
    {"like A", {"'like A' names no input"}},
    {"like 2", {"'like 2' names no input"}},
    {"A,... ; ? -> A", {"'A,...' has a '...' that is not its first dimension"}},
    {"...,... ; ? -> A", {"'...,...' has a '...' that is not its first dimension"}},
    {"A ; ? -> ...", {"'A ; ? -> ...' has an output with '...' and no input with it"}},
    {"...", {"'...' has an output with '...' and no input with it"}},
    {"....,A ; ? -> A", {"unexpected character at position 0 of '....'"}},
    {"like -1", {"unexpected character"}},
    {"A ; B ; C -> A", {"has 3 inputs, the op at most 2"}},
    {"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", {"more than 16 dimensions"}},
};

// Two declarations of one op that cannot both be right.
struct Clash {
  const char* what;
  Bend first, second;
  std::vector<const char*> words;
};
const Clash kClashes[] = {
    {"more inputs",
     [](nw_plugin&, nw_op&) {},
     [](nw_plugin&, nw_op& op) { op.max_inputs = 3, op.inputs = kABC; },
     {"takes 1 to 3 inputs", "and 1 to 2"}},
    {"more outputs",
     [](nw_plugin&, nw_op& op) { op.shape_rule = "broadcast"; },
     [](nw_plugin&, nw_op& op) { op.num_outputs = 2, op.outputs = kTwoOut, op.shape_rule = "broadcast ; broadcast"; },
     {"gives 2 outputs (0 auxiliary) here", "1 (0) there"}},
    {"outputs for backward only",
     [](nw_plugin&, nw_op&) {},
     [](nw_plugin&, nw_op& op) { op.num_aux = 1; },
     {"gives 1 outputs (1 auxiliary) here", "1 (0) there"}},
    {"an output of another name",
     [](nw_plugin&, nw_op&) {},
     [](nw_plugin&, nw_op& op) { op.outputs = kResult; },
     {"output 0 is 'result' here and 'out' there"}},
    {"another batch", batch("A"), batch("C"), {"batch is 'C' here and 'A' there"}},
    {"an output of another dtype",
     [](nw_plugin&, nw_op&) {},
     [](nw_plugin&, nw_op& op) { op.output_dtypes = kInts; },
     {"output 0 has dtype int32 here and any there"}},
    {"an output of a dtype that was any",
     [](nw_plugin&, nw_op& op) { op.output_dtypes = kInts; },
     [](nw_plugin&, nw_op&) {},
     {"output 0 has dtype any here and int32 there"}},
    {"an input of another dtype",
     [](nw_plugin&, nw_op&) {},
     [](nw_plugin&, nw_op& op) { op.input_dtypes = kBytesToInts; },
     {"input 0 has dtype int8 here and any there"}},
    {"a field at another place",
     with_field(kN),
     with_field(kFar),
     {"field 'n' of params is int64 at byte 8 here and int64 at byte 0 there"}},
    {"a field of more lanes", with_field(kN), with_field(kPair), {"'n'", "int64x2 at byte 0 here and int64 at byte 0 there"}},
    {"a bool of more lanes", with_field(kFlag), with_field(kFlags), {"bool8x2 at byte 0 here and bool at byte 0 there"}},
    {"a value of another name",
     with_field(kModeField),
     with_field(kOtherModesField),
     {"value 1 of field 'n' is 'wrap' here and 'mirror' there"}},
};

// What bindings read of a declaration, as one text. Of a field: offset, type and initial value.
std::string declared(const nw_op& op) {
  std::string out;
  const auto names = [&](const char* const* list) {
    for (; *list != nullptr; ++list) out += std::string(*list) + " ";
  };
  names(op.inputs);
  out += "-> ";
  names(op.outputs);
  out += "min " + std::to_string(op.min_inputs) + ", aux " + std::to_string(op.num_aux) + ", flags " + std::to_string(op.flags) +
         ", batch " + (op.batch == nullptr ? "none" : op.batch) + ", saved " + std::to_string(op.saved) + ", params " +
         std::to_string(op.params_size) + ":";
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field) {
    const nw_param& f = **field;
    out += std::string(" ") + f.name + "@" + std::to_string(f.offset) + (f.dtype.code == kDLFloat ? " float" : " int") +
           std::to_string(f.dtype.bits) + " = " + std::to_string(static_cast<int>(f.initial));
  }
  return out;
}

}  // namespace

TEST_CASE("the dtypes that a plugin's op declares hold for its calls") {
  Runtime rt;
  REQUIRE(load(rt, [](nw_plugin&, nw_op& op) { op.input_dtypes = kBytesToInts, op.output_dtypes = kInts; }) == NW_OK);
  Array a({2}, kProbe, {kDLInt, 8, 1}), b({5}), out({2}, kProbe, kI32), floats({2});
  std::vector<nw_spec> specs(1);
  Call call("faulty.op/1", {&a, &b});  // b may be of any dtype
  REQUIRE(call.infer(rt, specs) == NW_OK);
  CHECK((specs[0].dtype.code == kDLInt && specs[0].dtype.bits == 32));
  CHECK(Call("faulty.op/1", {&a, &b}, {&out}).run(rt) == NW_OK);
  Call("faulty.op/1", {&floats, &b}, {&out}).refused(rt, NW_INVALID, 0, {"a has dtype float32; expected int8"});
  Call("faulty.op/1", {&a, &b}, {&floats}).refused(rt, NW_INVALID, 2, {"out has dtype float32; expected int32"});
}

TEST_CASE("a batch is along sizes of the shape rule and integer fields") {
  for (const Field* field : {&kN, &kUnsigned})
    for (const char* text : {"A", "C | A", "A, n", "A,n|C"}) {
      INFO(text);
      Runtime rt;
      REQUIRE(load(rt, batch(text, *field)) == NW_OK);
      const nw_op* op = nullptr;
      REQUIRE(nw_find_op(rt, "faulty.op/1", &op, nullptr) == NW_OK);
      CHECK(op->batch == std::string(text));
    }
}

TEST_CASE("an element-wise op has shapes of any rank") {
  for (const char* rule : {"broadcast", "like 0", "... ; ? -> ...", "* ; ... -> like 0 | ... ; ...? -> ..."}) {
    INFO(rule);
    Runtime rt;
    REQUIRE(load(rt, [&](nw_plugin&, nw_op& op) { op.shape_rule = rule, op.batch = "*"; }) == NW_OK);
  }
}

TEST_CASE("a field that is a dimension too is no axis of a batch") {
  Runtime rt;
  REQUIRE(load(rt, [](nw_plugin& table, nw_op& op) {
            batch("A,n")(table, op);
            op.shape_rule = "A,n ; ? -> A,n";
          }) == NW_OK);
}

TEST_CASE("a declared dtype goes before the one that infer says") {
  Runtime rt;
  Array a({2}, kProbe, kU8);
  std::vector<nw_spec> specs(1);
  const auto gives_f64 = [](void*, const nw_sig*, nw_spec* outputs, uint32_t, nw_error*) -> int32_t {
    outputs[0].dtype = kF64;
    return NW_OK;
  };
  SECTION("where there is one") {
    REQUIRE(load(rt, [&](nw_plugin& table, nw_op& op) { table.infer = gives_f64, op.output_dtypes = kInts; }) == NW_OK);
    REQUIRE(Call("faulty.op/1", {&a}).infer(rt, specs) == NW_OK);
    CHECK((specs[0].dtype.code == kDLInt && specs[0].dtype.bits == 32));
  }
  SECTION("where there is none") {
    REQUIRE(load(rt, [&](nw_plugin& table, nw_op& op) { table.infer = gives_f64, op.output_dtypes = kNothing; }) == NW_OK);
    REQUIRE(Call("faulty.op/1", {&a}).infer(rt, specs) == NW_OK);
    CHECK((specs[0].dtype.code == kDLFloat && specs[0].dtype.bits == 64));
  }
  SECTION("where there is neither, it is that of the input") {
    REQUIRE(load(rt, [](nw_plugin&, nw_op& op) { op.output_dtypes = kNothing; }) == NW_OK);
    REQUIRE(Call("faulty.op/1", {&a}).infer(rt, specs) == NW_OK);
    CHECK((specs[0].dtype.code == kDLUInt && specs[0].dtype.bits == 8));
  }
}

TEST_CASE("an op of plugin.hpp takes one dtype and gives another") {
  Runtime rt;
  Error error;
  REQUIRE(nw_load(rt, plugin_file("sums").c_str(), &error) == NW_OK);
  constexpr DLDataType kI8{kDLInt, 8, 1};
  Array a({2}, kCpu, kI8), b({2}, kCpu, kI8), out({2}, kCpu, kI32), bytes({2}, kCpu, kI8), wrong({2}, kCpu, kI32);
  a.data<int8_t>()[0] = -128, b.data<int8_t>()[0] = 127;
  Call("sums.product/1", {&a, &b}, {&out}).ok(rt);
  CHECK(out.data<int32_t>()[0] == -128 * 127);
  CHECK(out.data<int32_t>()[1] == 0x11 * 0x11);
  Call("sums.product/1", {&wrong, &b}, {&out}).refused(rt, NW_INVALID, 0, {"a has dtype int32; expected int8"});
  Call("sums.product/1", {&a, &wrong}, {&out}).refused(rt, NW_INVALID, 1, {"b has dtype int32; expected int8"});
  Call("sums.product/1", {&a, &b}, {&bytes}).refused(rt, NW_INVALID, 2, {"out has dtype int8; expected int32"});
}

TEST_CASE("what the built-in ops declare is what bindings make of them") {
  Runtime rt;
  const std::string conv1d =
      "params 48: stride@0 int64 = 1 dilation@8 int64 = 1 groups@16 int64 = 1 pad_left@24 int64 = 0 "
      "pad_right@32 int64 = 0 padding_mode@40 int64 = 0";
  const std::string ways = "N | C,O,groups | O where groups<=1 | C once ";
  const std::string elementwise =
      "params 48: function@0 int32 = 0 out_dtype@4 int32 = 0 alpha@8 float64 = 1 b_real@16 float64 = 0 "
      "b_int@24 int64 = 0 c_real@32 float64 = 0 c_int@40 int64 = 0";
  const std::string sequence_batch = "batch P where batch_first=1 | Q where batch_first=0";
  const std::string sequence = "params 24: batch_first@0 int64 = 0 reverse@8 int64 = 0 recompute@16 int64 = 0";
  const std::pair<const char*, std::string> ops[] = {
      {"conv1d", "x w bias? -> y min 2, aux 0, flags 4, batch " + ways + "bias where groups<=1, saved 3, " + conv1d},
      {"conv1d_backward", "grad_y? x w bias? y? -> grad_x? grad_w? grad_bias? min 3, aux 0, flags 0, batch " + ways +
                              "grad_bias where groups<=1, saved 0, " + conv1d},
      {"elementwise", "a b? c? -> out min 1, aux 0, flags 3, batch *, saved 7, " + elementwise},
      {"elementwise_backward",
       "grad_out? a b? c? out? -> grad_a? grad_b? grad_c? min 2, aux 0, flags 2, batch *, saved 0, " + elementwise},
      {"lltm",
       "input weights bias old_h old_cell -> new_h new_cell gates? min 5, aux 1, flags 4, batch B, saved 25769803787, params 0:"},
      {"lltm_backward",
       "grad_h? grad_cell? input weights bias? old_h old_cell? new_h? new_cell gates -> "
       "d_input? d_weights? d_bias? d_old_h? d_old_cell? min 10, aux 0, flags 0, batch B, saved 0, params 0:"},
      {"lltm_sequence", "input weights bias? old_h old_cell lengths? -> h new_h new_cell cells? gates? min 5, aux 2, flags 4, " +
                            sequence_batch + ", saved 107374182463, " + sequence},
      {"lltm_sequence_backward",
       "grad_h? grad_new_h? grad_new_cell? input weights bias? old_h old_cell? lengths? h new_h? new_cell? cells? gates? -> "
       "d_input? d_weights? d_bias? d_old_h? d_old_cell? d_lengths? min 10, aux 0, flags 0, " +
           sequence_batch + ", saved 0, " + sequence},
  };
  for (const auto& [name, expected] : ops) {
    INFO(name);
    const nw_op* op = nullptr;
    REQUIRE(nw_find_op(rt, name, &op, nullptr) == NW_OK);
    CHECK(declared(*op) == expected);
  }
}

TEST_CASE("a declaration with a fault is refused") {
  for (const Fault& fault : kFaults) {
    INFO(fault.what);
    Runtime rt;
    Error error;
    expect_refused(load(rt, fault.bend, &error), error, fault.status, -1, {});
    for (const char* word : fault.words) {
      INFO("expected word: " << word << "; message: " << error.text());
      CHECK(contains(error.text(), word));
    }
    CHECK(rt.backend_of_file(plugin_file("bent")).num_ops == 0);
  }
  Runtime rt;
  CHECK(load(rt, [](nw_plugin&, nw_op&) {}) == NW_OK);
  Runtime other;  // one field behind the other, up to the last byte
  CHECK(load(other, [](nw_plugin&, nw_op& op) { op.params = kSideBySide, op.params_size = 16; }) == NW_OK);
}

TEST_CASE("a shape rule that cannot be read is refused with the place") {
  for (const BadRule& bad : kBadRules) {
    INFO("rule \"" << bad.rule << '"');
    Runtime rt;
    Error error;
    const Bend bend = [&](nw_plugin&, nw_op& op) { op.shape_rule = bad.rule; };
    const std::string shown = std::string("shape rule \"") + bad.rule + "\": ";
    expect_refused(load(rt, bend, &error), error, NW_INVALID, -1, {shown.c_str()});
    for (const char* word : bad.words) {
      INFO("expected word: " << word << "; message: " << error.text());
      CHECK(contains(error.text(), word));
    }
  }
}

TEST_CASE("a shape rule may be nested so deeply and no deeper") {
  for (const int depth : {60, 100, 100000}) {
    INFO(depth << " parentheses");
    const std::string rule = std::string(static_cast<size_t>(depth), '(') + "7" + std::string(static_cast<size_t>(depth), ')');
    const Bend bend = [&](nw_plugin&, nw_op& op) { op.shape_rule = rule.c_str(); };
    Runtime rt;
    Error error;
    if (depth == 60)
      CHECK(load(rt, bend, &error) == NW_OK);
    else
      expect_refused(load(rt, bend, &error), error, NW_INVALID, -1, {depth == 100 ? "nested too deeply" : "shape rule \"(((("});
  }
}

TEST_CASE("an op declared twice must be the same") {
  for (const Clash& clash : kClashes) {
    INFO(clash.what);
    Runtime rt;
    Error error;
    REQUIRE(load(rt, clash.first) == NW_OK);
    expect_refused(load(rt, clash.second, &error), error, NW_INVALID, -1, {"faulty.op/1", "declared differently by"});
    for (const char* word : clash.words) {
      INFO("expected word: " << word << "; message: " << error.text());
      CHECK(contains(error.text(), word));
    }
    Runtime other;  // and the other way round
    REQUIRE(load(other, clash.second) == NW_OK);
    CHECK(load(other, clash.first) == NW_INVALID);
  }
}

TEST_CASE("an op declared twice may say more on one side: values of a field, its fields, its batch, autocast") {
  const Bend fieldless = [](nw_plugin&, nw_op& op) { op.params = nullptr, op.params_size = 16; };
  const Bend with_autocast = [](nw_plugin&, nw_op& op) { op.flags = NW_OP_AUTOCAST; }, nothing = [](nw_plugin&, nw_op&) {};
  const std::pair<Bend, Bend> pairs[] = {{batch("A"), batch(nullptr)},
                                         {batch(nullptr), batch("A")},
                                         {batch("A"), batch("A")},
                                         {with_autocast, nothing},
                                         {nothing, with_autocast},
                                         {with_field(kModeField), with_field(kMoreModesField)},
                                         {with_field(kMoreModesField), with_field(kModeField)},
                                         {with_field(kModeField), with_field(kModeField)},
                                         {with_field(kN), fieldless},
                                         {fieldless, with_field(kN)}};
  for (const auto& [first, second] : pairs) {
    INFO("pair " << &first - &pairs[0].first);
    Runtime rt;
    CHECK(load(rt, first) == NW_OK);
    CHECK(load(rt, second) == NW_OK);
  }
}

TEST_CASE("an op of NW_OP_BATCHABLE takes one leading dimension more, by its shape rule") {
  for (const char* rule :
       {"like 0", "broadcast", "... ; ...? -> ...", "...,A ; A? -> ...,A", "* ; ? -> like 0", "A ; ? -> A | B,A ; ? -> B,A",
        "A ; ? -> () | B,A ; ? -> B", "B,A ; ? -> B,A | A ; ? -> A", "A,C ; C -> A,C | B,A,C ; B,D,C -> B,A,C"}) {
    INFO(rule);
    Runtime rt;
    Error error;
    CHECK(load(rt, batchable(rule), &error) == NW_OK);
    INFO(error.text());
  }
}

TEST_CASE("an op's declaration may grow by zeros only") {
  struct {
    nw_op op;
    uint64_t more;
  } grown{};
  const Bend bend = [&](nw_plugin&, nw_op& op) {
    grown.op = op;
    grown.op.struct_size = sizeof grown;
    bent.ops[0] = &grown.op;
  };
  Runtime rt;
  CHECK(load(rt, bend) == NW_OK);
  grown.more = uint64_t{1} << 63;
  Error error;
  expect_refused(load(rt, bend, &error), error, NW_UNSUPPORTED, -1,
                 {"faulty.op/1", "more than this host knows", "not 0 past byte"});
}

TEST_CASE("all built-in ops that this host does not know are left out and logged") {
  nw_op gemm{}, sort{};
  gemm.struct_size = sort.struct_size = sizeof gemm;
  gemm.name = "gemm";
  sort.name = "sort";
  Runtime rt;
  REQUIRE(load(rt, [&](nw_plugin& table, nw_op&) {
            bent.ops[1] = &gemm;
            bent.ops[2] = &sort;
            table.num_ops = 3;
          }) == NW_OK);
  CHECK(rt.backend_of_file(plugin_file("bent")).num_ops == 1);
  CHECK(contains(rt.log(), "left out: gemm, sort"));
}

TEST_CASE("an input that is not called optional must be there") {
  Runtime rt;
  // One input at least, and none of three is optional: c may be missing at the end, b not in the middle.
  REQUIRE(load(rt, [](nw_plugin&, nw_op& op) { op.max_inputs = 3, op.inputs = kABC; }) == NW_OK);
  Array a({2}), c({2}), out({2});
  Call("faulty.op/1", {&a}, {&out}).ok(rt);
  Call("faulty.op/1", {&a, &c}, {&out}).ok(rt);
  Call("faulty.op/1", {&a, &c, &c}, {&out}).ok(rt);
  Call("faulty.op/1", {&a, nullptr, &c}, {&out}).refused(rt, NW_INVALID, 1, {"b is absent", "expected a tensor"});
  Call("faulty.op/1", {nullptr, &a}, {&out}).refused(rt, NW_INVALID, 0, {"a is absent", "expected a tensor"});
}

TEST_CASE("an output that is not called optional needs the input that it has its shape from") {
  static const char* const names[] = {"a", "b?", nullptr};
  Runtime rt;
  REQUIRE(load(rt, [](nw_plugin&, nw_op& op) { op.inputs = names, op.shape_rule = "like 1"; }) == NW_OK);
  Array a({2}), b({3}), out({3});
  Call("faulty.op/1", {&a, &b}, {&out}).ok(rt);
  Call("faulty.op/1", {&a, &b}, {nullptr}).refused(rt, NW_INVALID, 2, {"out is NULL", "expected a tensor"});
  Call("faulty.op/1", {&a}, {nullptr}).refused(rt, NW_INVALID, 1, {"out has no shape", "declared without '?'"});
}

TEST_CASE("an input past those of the shape rule must be absent") {
  Runtime rt;
  REQUIRE(load(rt, [](nw_plugin&, nw_op& op) { op.shape_rule = "N -> N"; }) == NW_OK);
  Array a({2}), b({3}), out({2});
  Call("faulty.op/1", {&a}, {&out}).ok(rt);
  Call("faulty.op/1", {&a, &b}, {&out}).refused(rt, NW_INVALID, 1, {"b has shape (3,)", "expected no such input"});
}

TEST_CASE("a shape rule reads integer fields of up to 64 bits and of one lane") {
  for (const Field* field : {&kReal, &kPair, &kHuge, &kNibble}) {
    INFO("field of " << int{field->field.dtype.bits} << " bits, " << field->field.dtype.lanes << " lanes");
    Runtime rt;
    REQUIRE(load(rt, [&](nw_plugin& table, nw_op& op) {
              with_field (*field)(table, op);
              op.shape_rule = "N -> n";
            }) == NW_OK);
    Array a({2}), out({2});
    Call call("faulty.op/1", {&a}, {&out});
    call.params(int64_t{2}).refused(rt, NW_INVALID, -1, {"'n' of the shape rule", "integer field"});
  }
}

TEST_CASE("max and min are names of dimensions too") {
  Runtime rt;
  REQUIRE(load(rt, [](nw_plugin&, nw_op& op) { op.shape_rule = "max, _min -> max + _min, max(max, _min)"; }) == NW_OK);
  Array a({2, 5});
  std::vector<nw_spec> specs(1);
  REQUIRE(Call("faulty.op/1", {&a}).infer(rt, specs) == NW_OK);
  CHECK(specs[0].ndim == 2);
  CHECK(specs[0].shape[0] == 7);
  CHECK(specs[0].shape[1] == 5);
}

TEST_CASE("a dimension that bears the name of a field is that field") {
  Runtime rt;
  REQUIRE(load(rt, [](nw_plugin&, nw_op& op) { op.shape_rule = "n, C -> C"; }) == NW_OK);
  Array a({4, 3}), out({3});
  Call("faulty.op/1", {&a}, {&out}).params(int64_t{4}).ok(rt);
  Call("faulty.op/1", {&a}, {&out})
      .params(int64_t{5})
      .refused(rt, NW_INVALID, 0, {"a has shape (4, 3)", "(n, C)", "dimension 0 is 5"});
}

TEST_CASE("a device type that DLPack does not know is served") {
  constexpr DLDevice kNew{static_cast<DLDeviceType>(77), 0};
  Runtime rt;
  REQUIRE(load(rt, [](nw_plugin& table, nw_op&) { table.device_type = 77; }) == NW_OK);
  Array a({2}, kNew), out({2}, kNew), cpu({2}, kCpu);
  Call("faulty.op/1", {&a}, {&out}).ok(rt);
  Call("faulty.op/1", {&a}, {&cpu}).refused(rt, NW_INVALID, 1, {"a lives on device type 77:0", "out on CPU:0"});
}

TEST_CASE("params longer than any inline buffer are part of the plan's key") {
  Runtime rt;
  REQUIRE(load(rt, [](nw_plugin&, nw_op& op) { op.params_size = 4096; }) == NW_OK);
  Array a({2}), out({2});
  std::vector<unsigned char> blob(4096, 1);
  nw_plan* plan = nullptr;
  Call call("faulty.op/1", {&a}, {&out});
  REQUIRE(call.blob(blob).plan(rt, &plan) == NW_OK);
  CHECK(nw_launch(plan, &call.raw, nullptr) == NW_OK);
  blob[4000] = 2;
  Error error;
  expect_refused(nw_launch(plan, &call.blob(blob).raw, &error), error, NW_INVALID, -1, {"does not fit the plan"});
  call.ok(rt);
  nw_plan_release(plan);
}
