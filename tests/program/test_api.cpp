// SPDX-License-Identifier: Apache-2.0
// test_api.cpp -- program.h: programs from C. What the steps do is test_schedule's matter.
#include <narrows/program.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/plugins/probe.h"
#include "programs.h"

namespace {

using Catch::Matchers::ContainsSubstring;

const std::string kText = read_file(std::string(TEXTS) + "/mm_relu.program");

struct Freed {
  void operator()(nw_program* program) const { nw_program_free(program); }
};
using Handle = std::unique_ptr<nw_program, Freed>;

Handle parsed(const std::string& text = kText) {
  nw_program* out = nullptr;
  nw_error error;
  REQUIRE(nw_program_parse(text.c_str(), &out, &error) == NW_OK);
  return Handle(out);
}

// The one string or list that `ask` gives.
template <class Ask>
std::string answer(const Ask& ask) {
  const char* text = nullptr;
  nw_error error;
  REQUIRE(ask(&text, &error) == NW_OK);
  return text;
}
template <class Ask>
std::string names(const Ask& ask) {
  const char* const* list = nullptr;
  nw_error error;
  REQUIRE(ask(&list, &error) == NW_OK);
  std::string out;
  for (; *list != nullptr; ++list) out += std::string(out.empty() ? "" : " ") + *list;
  return out;
}

std::string printed(nw_program* program) {
  return answer([&](const char** out, nw_error* error) { return nw_program_print(program, out, error); });
}
std::string traced(nw_program* program) {
  return answer([&](const char** out, nw_error* error) { return nw_program_trace(program, out, error); });
}
std::string digested(nw_program* program) {
  return answer([&](const char** out, nw_error* error) { return nw_program_digest(program, out, error); });
}

}  // namespace

TEST_CASE("a program is read, changed, copied and printed from C") {
  const Handle program = parsed();
  const std::string before = printed(program.get()), digest = digested(program.get());
  CHECK(kText.find(before) != std::string::npos);  // behind a comment
  CHECK(digest.size() == 32);
  CHECK(answer([&](const char** out, nw_error* error) { return nw_program_name(program.get(), out, error); }) == "mm_relu");
  CHECK(names([&](const char* const** out, nw_error* error) { return nw_program_blocks(program.get(), out, error); }) == "Y C");
  CHECK(names([&](const char* const** out, nw_error* error) { return nw_program_loops(program.get(), "Y", out, error); }) ==
        "i j k");
  CHECK(traced(program.get()).empty());

  const std::string made = names([&](const char* const** out, nw_error* error) {
    return nw_program_step(program.get(), "split(loop=\"j\", factors=[None, 8])", out, error);
  });
  const size_t space = made.find(' ');
  REQUIRE(space != std::string::npos);
  const std::string after = printed(program.get());
  CHECK_THAT(after, ContainsSubstring("for " + made.substr(0, space) + " in 16:"));
  CHECK_THAT(after, ContainsSubstring("for " + made.substr(space + 1) + " in 8:"));
  CHECK(digested(program.get()) == digest);

  nw_program* copy = nullptr;
  nw_error error;
  REQUIRE(nw_program_clone(program.get(), &copy, &error) == NW_OK);
  const Handle owned(copy);
  REQUIRE(nw_program_step(copy, "parallel(loop=\"i\")", nullptr, &error) == NW_OK);
  CHECK(printed(copy) != after);
  CHECK(printed(program.get()) == after);

  const Handle again = parsed();
  std::string trace = traced(program.get());
  CHECK(std::count(trace.begin(), trace.end(), '\n') == 1);
  trace.pop_back();
  REQUIRE(nw_program_step(again.get(), trace.c_str(), nullptr, &error) == NW_OK);
  CHECK(printed(again.get()) == after);
}

TEST_CASE("a program that was read is an op of a runtime") {
  nw_runtime* rt = nullptr;
  nw_error error;
  REQUIRE(nw_runtime_create(nullptr, &rt, &error) == NW_OK);
  Handle program = parsed();
  const std::string name = "program.mm_relu_" + digested(program.get()) + "/1";
  REQUIRE(nw_program_step(program.get(), "parallel(loop=\"i\")", nullptr, &error) == NW_OK);
  const nw_op *op = nullptr, *found = nullptr;
  REQUIRE(nw_program_load(rt, program.get(), nullptr, "cpu", &op, &error) == NW_OK);
  program.reset();
  CHECK(op->name == name);
  REQUIRE(nw_find_op(rt, name.c_str(), &found, &error) == NW_OK);
  CHECK(found == op);
  program = parsed();
  CHECK(nw_program_load(rt, program.get(), "none", nullptr, &op, &error) == NW_INVALID);
  CHECK_THAT(error.message, ContainsSubstring("backward = 'none'"));
  nw_runtime_destroy(rt);
}

namespace {

struct RuntimeFreed {
  void operator()(nw_runtime* rt) const { nw_runtime_destroy(rt); }
};

// As a saved model has it.
std::string part(const std::string& text, const std::string& rest = "") {
  const Handle program = parsed(text);
  return "digest " + digested(program.get()) + "\n" + printed(program.get()) + rest;
}
std::string adjoint_of(const std::string& text) {
  nw_program* out = nullptr;
  REQUIRE(nw_program_vjp(parsed(text).get(), &out, nullptr) == NW_OK);
  return printed(Handle(out).get());
}

}  // namespace

namespace {

// How the probe, which is named "hip", was asked to run an op of 128 × 128 tensors: "" is as it likes.
std::string schedule_of(nw_runtime* rt, const nw_op& op) {
  int64_t shape[] = {128, 128}, strides[] = {128, 1};
  alignas(64) static float elements[2][128 * 128];  // the probe reads none
  const DLTensor in{elements[0], {kDLExtDev, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  DLTensor out = in;
  out.data = elements[1];
  const DLTensor* const inputs[] = {&in, &in};
  const DLTensor* const outputs[] = {&out};
  nw_call call{};
  call.struct_size = sizeof call;
  call.op = op.name;
  call.num_inputs = 2;
  call.num_outputs = 1;
  call.inputs = inputs;
  call.outputs = outputs;
  call.device = in.device;
  nw_plan* plan = nullptr;
  nw_error error;
  const int32_t status = nw_plan_get(rt, &call, &plan, nullptr, &error);
  INFO(error.message);
  REQUIRE(status == NW_OK);
  nw_plan_release(plan);
  return static_cast<const narrows::test::Probe*>(nw_extension(rt, "hip", "probe/1"))->scheduled;
}

std::string by_default(const char* backend) {
  const Handle program = parsed();
  REQUIRE(nw_program_auto(program.get(), backend, nullptr) == NW_OK);
  return printed(program.get());
}

}  // namespace

TEST_CASE("the plugins that were found run a program by their default schedules, and are not opened for it") {
  std::string log;
  const auto runtime = [&] {
    nw_options options{};
    options.struct_size = sizeof options;
    options.log = [](void* all, int32_t, const char* message) { *static_cast<std::string*>(all) += message; };
    options.log_ctx = &log;
    nw_runtime* made = nullptr;
    REQUIRE(nw_runtime_create(&options, &made, nullptr) == NW_OK);
    REQUIRE(nw_load(made, HIP_PROBE, nullptr) == NW_OK);
    return std::unique_ptr<nw_runtime, RuntimeFreed>(made);
  };
  const std::string hip = by_default("hip");
  REQUIRE(hip != by_default("cpu"));
  const Handle stepped = parsed();
  REQUIRE(nw_program_step(stepped.get(), "bind(loop=\"i1\", thread=\"block.x\")", nullptr, nullptr) == NW_OK);
  const nw_op* op = nullptr;

  const auto first = runtime();  // a new op of steps for one plugin, then of others
  for (const auto& [backend, expected] : std::initializer_list<std::pair<const char*, std::string>>{
           {"cpu", hip}, {"hip", printed(stepped.get())}, {"cpu", printed(stepped.get())}, {nullptr, hip}}) {
    log.clear();
    REQUIRE(nw_program_load(first.get(), stepped.get(), nullptr, backend, &op, nullptr) == NW_OK);
    CHECK(log.find("is created") == std::string::npos);
    CHECK(schedule_of(first.get(), *op) == expected);
  }
  for (const auto& [schedules, expected] : std::initializer_list<std::pair<const char*, std::string>>{
           {"", hip}, {"schedule hip\n  bind(loop=\"i1\", thread=\"block.x\")\n", printed(stepped.get())}}) {
    log.clear();
    const auto other = runtime();
    REQUIRE(nw_program_load_saved(other.get(), ("saved programs 1\n" + part(kText, schedules)).c_str(), &op, nullptr) == NW_OK);
    CHECK(log.find("is created") == std::string::npos);
    CHECK(schedule_of(other.get(), *op) == expected);
  }
}

TEST_CASE("what a saved model carries of a program becomes its op again") {
  nw_error error;
  std::unique_ptr<nw_runtime, RuntimeFreed> rt;
  const std::string first = "saved programs 1\n", adjoint = adjoint_of(kText);
  const std::string steps = "schedule cpu\n  split(loop=\"j\", factors=[None, 8])\n  parallel(loop=\"i\")\n";
  const nw_op *op = nullptr, *gradient = nullptr;
  for (const std::string& schedules : {std::string(), steps, steps + "schedule of_none\n"}) {
    nw_runtime* made = nullptr;  // one that has the program keeps its schedules
    REQUIRE(nw_runtime_create(nullptr, &made, &error) == NW_OK);
    rt.reset(made);
    REQUIRE(nw_program_load_saved(rt.get(), (first + part(kText, schedules) + part(adjoint)).c_str(), &op, &error) == NW_OK);
    REQUIRE(op->backward != nullptr);
    CHECK(nw_find_op(rt.get(), op->backward, &gradient, &error) == NW_OK);
  }
  const Handle one = parsed(), other = parsed(adjoint);
  REQUIRE(nw_program_load(rt.get(), other.get(), nullptr, nullptr, &gradient, &error) == NW_OK);
  const nw_op* again = nullptr;
  REQUIRE(nw_program_load(rt.get(), one.get(), gradient->name, nullptr, &again, &error) == NW_OK);
  CHECK(again == op);

  const auto refused = [&](const std::string& saved, const char* words) {
    again = nullptr;
    CHECK(nw_program_load_saved(rt.get(), saved.c_str(), &again, &error) == NW_INVALID);
    CHECK_THAT(error.message, ContainsSubstring(words));
    CHECK(again == nullptr);
  };
  refused("", "begins with ''; expected 'saved programs 1'");
  refused("saved programs 2\n" + part(kText), "expected 'saved programs 1': a newer Narrows saved it");
  for (const char* number : {"0", "x", "-2", "2x", ""}) {
    refused(std::string("saved programs ") + number + "\n" + part(kText), "expected 'saved programs 1'");
    CHECK(std::string(error.message).find("newer") == std::string::npos);
  }
  refused(kText, "expected 'saved programs 1'");
  refused(first, "line 2: ''; expected 'digest'");
  refused(first + "digest 0\n", "text at line 3: ");
  refused(first + part(kText) + "digests\n", "'digests'; expected 'digest'");
  std::string spoilt = first + part(kText);
  spoilt.replace(spoilt.find("f32(0)"), 6, "f32(1)");
  refused(spoilt, "text at line 3: 'mm_relu' was changed: its digest is");
  refused(first + part(kText, steps + "  parallel(loop=\"k\")\n"), "parallel");
  refused(first + part(kText, "schedule cpu\n  nothing()\n"), "saved program, step at line ");
  refused(first + part(kText) + part(kText), "'mm_relu' is not the adjoint of 'mm_relu', which is before it");
  std::string wrong = adjoint;  // of the same tensors, and with a digest of its own
  wrong.replace(wrong.find("f32(0)"), 6, "f32(1)");
  refused(first + part(kText) + part(wrong), "'mm_relu_adjoint' is not the adjoint of 'mm_relu'");
  CHECK(nw_program_load_saved(rt.get(), nullptr, &again, &error) == NW_INVALID);
  CHECK(nw_program_load_saved(rt.get(), first.c_str(), nullptr, &error) == NW_INVALID);
}

TEST_CASE("a trace that does not replay stops at the step that is refused") {
  const Handle first = parsed();
  nw_error error;
  for (const char* step :
       {"split(loop=\"j\", factors=[None, 8])", "parallel(loop=\"i\")", "decompose_reduction(block=\"Y\", loop=\"k\")"})
    REQUIRE(nw_program_step(first.get(), step, nullptr, &error) == NW_OK);
  std::string carried = kText;  // the same loops, and an axis that keeps its order
  carried.replace(carried.find("vk: R("), 5, "vk: C");
  carried.erase(carried.find("          init:"), carried.find("          Y[vi, vj] = Y") - carried.find("          init:"));
  carried.replace(carried.find("Y[vi, vj] = Y[vi, vj] +"), 23, "Y[vi, vj] =");
  const Handle other = parsed(carried);
  const std::string trace = traced(first.get());
  std::string refused, before;
  for (size_t begin = 0, end = 0; refused.empty() && (end = trace.find('\n', begin)) != std::string::npos; begin = end + 1) {
    before = printed(other.get());
    const std::string line = trace.substr(begin, end - begin);
    if (nw_program_step(other.get(), line.c_str(), nullptr, &error) != NW_OK) refused = error.message;
  }
  CHECK_THAT(refused, ContainsSubstring("decompose_reduction(block=") && ContainsSubstring("block 'Y' has no init"));
  CHECK(printed(other.get()) == before);
  CHECK(traced(other.get()) == trace.substr(0, trace.find("decompose")));
}

TEST_CASE("a program with its adjoint becomes a plugin from C") {
  char folder[] = "/tmp/narrows-api-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/narrows_fromc.so";
  nw_runtime* rt = nullptr;
  nw_error error;
  REQUIRE(nw_runtime_create(nullptr, &rt, &error) == NW_OK);
  const Handle program = parsed();
  nw_program* vjp = nullptr;
  REQUIRE(nw_program_vjp(program.get(), &vjp, &error) == NW_OK);
  const Handle adjoint(vjp);
  const nw_program* both[] = {program.get(), adjoint.get()};
  const nw_program* twice[] = {program.get(), program.get()};
  const auto refused = [&](int32_t status, int32_t want, const char* part) {
    CHECK(status == want);
    CHECK_THAT(error.message, ContainsSubstring(part));
  };
  refused(nw_program_export(rt, both, 0, "cpu", nullptr, path.c_str(), &error), NW_INVALID, "num_programs is 0");
  refused(nw_program_export(rt, nullptr, 1, "cpu", nullptr, path.c_str(), &error), NW_INVALID, "programs is NULL");
  refused(nw_program_export(rt, both, 1, "cpu", nullptr, nullptr, &error), NW_INVALID, "path is NULL");
  refused(nw_program_export(rt, twice, 2, "cpu", nullptr, path.c_str(), &error), NW_INVALID, "expected the adjoint of programs[0]");
  refused(nw_program_export(rt, both, 1, "metal", nullptr, path.c_str(), &error), NW_UNSUPPORTED, "'metal'");
  CHECK(std::filesystem::is_empty(folder));

  INFO(error.message);
  REQUIRE(nw_program_export(rt, both, 2, "cpu", "c.mm/2", path.c_str(), &error) == NW_OK);
  REQUIRE(nw_load(rt, path.c_str(), &error) == NW_OK);
  const nw_op *op = nullptr, *backward = nullptr;
  REQUIRE(nw_find_op(rt, "c.mm/2", &op, &error) == NW_OK);
  REQUIRE(op->backward == std::string("c.mm_backward/2"));
  REQUIRE(nw_find_op(rt, op->backward, &backward, &error) == NW_OK);
  CHECK((backward->max_inputs == 4 && backward->num_outputs == 2));  // d_C, A, B, C; d_A, d_B
  CHECK(op->saved == 0b11);                                          // A and B; C is not read
  nw_runtime_destroy(rt);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a plugin's op says which outputs its adjoint reads") {
  char folder[] = "/tmp/narrows-api-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/narrows_rows.so";
  nw_runtime* rt = nullptr;
  nw_error error;
  REQUIRE(nw_runtime_create(nullptr, &rt, &error) == NW_OK);
  const Handle program = parsed(R"(program 1 two(x: f32[M, N], y: out f32[M, N], top: out f32[M]):
  for i in M:
    for j in N:
      block y(vi: S(M) = i, vj: S(N) = j):
        y[vi, vj] = x[vi, vj] + f32(1)
  for i1 in M:
    for j1 in N:
      block top(vi: S(M) = i1, vj: R(N) = j1):
        init:
          top[vi] = f32(-inf)
        top[vi] = maximum(top[vi], x[vi, vj])
)");
  nw_program* vjp = nullptr;
  REQUIRE(nw_program_vjp(program.get(), &vjp, &error) == NW_OK);
  const Handle adjoint(vjp);
  const nw_program* both[] = {program.get(), adjoint.get()};
  INFO(error.message);
  REQUIRE(nw_program_export(rt, both, 2, "cpu", nullptr, path.c_str(), &error) == NW_OK);
  REQUIRE(nw_load(rt, path.c_str(), &error) == NW_OK);
  const nw_op* op = nullptr;
  REQUIRE(nw_find_op(rt, "rows.two/1", &op, &error) == NW_OK);
  INFO(printed(adjoint.get()));
  CHECK(op->saved == ((uint64_t{1} << 33) | 1));  // x, and top
  nw_runtime_destroy(rt);
  std::filesystem::remove_all(folder);
}

TEST_CASE("what cannot be is refused, and leaves the program as it was") {
  const Handle program = parsed();
  const std::string before = printed(program.get());
  nw_error error;
  const auto refused = [&](int32_t status, const char* part) {
    CHECK(status == NW_INVALID);
    CHECK_THAT(error.message, ContainsSubstring(part));
  };
  nw_program* out = nullptr;
  refused(nw_program_parse("program 1 f(", &out, &error), "line 1, column 12");
  refused(nw_program_parse(nullptr, &out, &error), "text is NULL");
  refused(nw_program_parse(kText.c_str(), nullptr, &error), "out is NULL");
  refused(nw_program_step(program.get(), "split(loop=\"q\", factors=[None, 8])", nullptr, &error), "q");
  refused(nw_program_step(program.get(), nullptr, nullptr, &error), "step is NULL");
  refused(nw_program_step(nullptr, "parallel(loop=\"i\")", nullptr, &error), "program is NULL");
  const char* const* list = nullptr;
  refused(nw_program_loops(program.get(), "Q", &list, &error), "Q");
  CHECK(nw_program_auto(program.get(), "metal", &error) == NW_UNSUPPORTED);
  CHECK(std::string(error.message).find("'metal'") != std::string::npos);
  const Handle other = parsed();
  for (const char* backend : {"cuda", "hip", "vulkan"}) CHECK(nw_program_auto(parsed().get(), backend, nullptr) == NW_OK);
  CHECK(nw_program_auto(other.get(), "cpu", nullptr) == NW_OK);
  CHECK(printed(other.get()) != before);
  refused(nw_program_print(program.get(), nullptr, &error), "text is NULL");
  CHECK(out == nullptr);
  CHECK(printed(program.get()) == before);
  nw_program_free(nullptr);
}
