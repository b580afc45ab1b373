// SPDX-License-Identifier: Apache-2.0
// programs.cpp -- tensor programs on the backend: each of examples/programs by every kernel variant, in several sizes and layouts,
// beside the reference that shares no code with them.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>

#include "core/program/expr.h"
#include "core/program/text.h"
#include "plugin_table.h"
#include "program_texts.h"
#include "reference/program.h"
#include "support/harness.h"
#include "support/session.h"

using namespace narrows::test;
namespace program = narrows::program;
namespace reference = narrows::reference;

namespace {

bool serves_programs() {
  const nw_plugin& table = tested_table();
  return table.struct_size > offsetof(nw_plugin, program_kernels) && table.plan_program != nullptr;
}

std::vector<const char*> program_kernels() {
  std::vector<const char*> out{nullptr};
  for (const char* const* k = tested_table().program_kernels; k != nullptr && *k != nullptr; ++k) out.push_back(*k);
  return out;
}

void collect_sizes(const program::ExprPtr& expr, std::map<std::string, int64_t>* sizes) {
  if (expr->kind == program::Expr::Kind::name) (*sizes)[expr->name] = 0;
  for (const program::ExprPtr& part : expr->operands) collect_sizes(part, sizes);
}

// Small ones, odd and even, below a vector and above.
std::map<std::string, int64_t> draw_sizes(const program::Program& text, Rng& rng) {
  static constexpr std::array<int64_t, 6> kSizes = {1, 2, 5, 8, 19, 33};
  std::map<std::string, int64_t> out;
  for (const program::Buffer& tensor : text.tensors)
    for (const program::ExprPtr& extent : tensor.shape) collect_sizes(extent, &out);
  const auto fits = [&] {  // a filter that is longer than its signal leaves no output
    for (const program::Buffer& tensor : text.tensors)
      for (const program::ExprPtr& extent : tensor.shape)
        if (program::evaluate(extent, out) < 1) return false;
    return true;
  };
  do {
    for (auto& [name, size] : out) size = kSizes[rng.bits() % kSizes.size()];
  } while (!fits());
  return out;
}

// A field of 8 bytes for each: what the declaration fills in.
Blob params_of(const nw_op& op) {
  std::vector<unsigned char> bytes(op.params_size);
  for (const nw_param* const* field = op.params; field != nullptr && *field != nullptr; ++field) {
    const double real = (*field)->initial;
    const auto integer = static_cast<int64_t>(real);
    std::memcpy(&bytes[(*field)->offset], (*field)->dtype.code == kDLFloat ? static_cast<const void*>(&real) : &integer, 8);
  }
  return Blob(bytes);
}

// One program in one set of sizes, with all tensors in one layout.
class Case {
 public:
  Case(const char* text, const std::map<std::string, int64_t>& sizes, uint64_t seed, const Layout& layout)
      : program_(program::parse(text)) {
    nw_error error{};
    if (nw_load_program(runtime(), text, nullptr, &op_, &error) != NW_OK) FAIL(error.message);
    const reference::Arguments arguments = reference::small_integers(program_, sizes, seed);
    want_ = reference::evaluate(program_, arguments);
    for (const program::Buffer& tensor : program_.tensors) {
      const reference::Array& array = want_.arrays.at(tensor.name);
      auto made = std::make_unique<Tensor>(array.dtype, array.shape, layout);
      if (tensor.role == program::Buffer::Role::input) {
        made->set(arguments.tensors.at(tensor.name));
        inputs_.push_back(made.get());
      } else {
        outputs_.push_back(made.get());
      }
      tensors_[tensor.name] = std::move(made);
    }
  }

  // Whether the variant ran.
  bool run_by(const char* kernel) {
    for (Tensor* output : outputs_) output->poison();
    const Result result = run(op_->name, inputs_, outputs_, params_of(*op_), kernel);
    if (result.was_declined() && (kernel != nullptr || result.status != NW_UNSUPPORTED)) return false;
    if (!result.ok()) {
      FAIL_CHECK(result.what << ": " << result.error.message);
      return false;
    }
    for (const program::Buffer& tensor : program_.tensors)
      if (tensor.role != program::Buffer::Role::input)
        expect_close(result, *tensors_.at(tensor.name), want_.arrays.at(tensor.name).values,
                     {.rtol = 2e-5, .atol = 2e-5, .ulps = 1});
    return true;
  }

 private:
  program::Program program_;
  const nw_op* op_ = nullptr;
  reference::Evaluation want_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
};

}  // namespace

TEST_CASE("programs: the examples, in several sizes and layouts", "[program]") {
  if (!serves_programs()) SKIP("the plugin serves no tensor programs");
  const Layout others[] = {Layout::strided(2), Layout::padded().with_misalignment(8)};
  std::map<const char*, int> runs;
  for (size_t i = 0; i < std::size(kProgramTexts); ++i) {
    const char* const text = kProgramTexts[i];
    INFO(text);
    Rng rng("programs", i);
    for (const Layout& layout : {Layout::contiguous(), others[i % std::size(others)]}) {
      Case one(text, draw_sizes(program::parse(text), rng), rng.bits(), layout);
      for (const char* const kernel : program_kernels()) runs[kernel] += one.run_by(kernel) ? 1 : 0;
    }
  }
  for (const char* const kernel : program_kernels()) {
    INFO((kernel == nullptr ? "the backend's choice" : kernel));
    CHECK(runs[kernel] > 0);
  }
}

TEST_CASE("programs: a plan is refused where the text or its flags are not the plugin's", "[program]") {
  if (!serves_programs()) SKIP("the plugin serves no tensor programs");
  const Instance instance;
  const int64_t shape[] = {5}, strides[] = {1};
  const nw_tensor_sig tensor = {{kDLFloat, 32, 1}, 1, 8, 0, -1, shape, strides};
  const nw_tensor_sig tensors[] = {tensor, tensor};
  const auto refusal = [&](const char* text, uint32_t flags) {
    nw_sig sig{};
    sig.struct_size = sizeof sig;
    sig.num_inputs = sig.num_outputs = 1;
    sig.op = "program.conform";
    sig.tensors = tensors;
    sig.device = device();
    const nw_program_text given = {sizeof given, flags, text, nullptr};
    nw_plan_info info{};
    info.struct_size = sizeof info;
    nw_error error{};
    void* plan = nullptr;
    const int32_t status = tested_table().plan_program(instance.self(), &given, &sig, &plan, &info, &error);
    if (status == NW_OK) tested_table().plan_free(instance.self(), plan);
    CHECK(plan == nullptr);
    return refusal_fault(status, error, 0);
  };
  const std::string good =
      "program 1 f(A: f32[N], C: out f32[N]):\n  for i in N:\n    block C(vi: S(N) = i):\n      C[vi] = A[vi]\n";
  CHECK(refusal("program 1 f(A: f32[N], C: out f32[N]):\n  for i in\n", 0) == "");
  CHECK(refusal(("program 2" + good.substr(9)).c_str(), 0) == "");
  CHECK(refusal(good.c_str(), 0x80000000) == "");
}
