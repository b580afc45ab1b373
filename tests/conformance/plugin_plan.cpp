// SPDX-License-Identifier: Apache-2.0
// plugin_plan.cpp -- plan() of the plugin under test: the question and the answer in full agree, equal signatures give plans that
// act alike, what is longer or shorter than the plugin knows is treated by the growth rule, and what it does not know it refuses
// itself. Through core these refusals would be core's.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>

#include "plugin_table.h"

using namespace narrows::test;

namespace {

const void* const kUntouched = &kUntouched;

struct Answer {
  int32_t status = NW_OK;
  nw_error error{};
  nw_plan_info info{};
};

// In both forms, which must agree: the question, and the plan, which is freed.
Answer ask(const Instance& instance, Signature& signature, const std::string& what) {
  const nw_plugin& table = tested_table();
  Answer full, question;
  std::memset(&full.error, 0x5A, sizeof full.error);
  std::memset(&question.error, 0x5A, sizeof question.error);
  full.info.struct_size = question.info.struct_size = sizeof(nw_plan_info);
  void* plan = const_cast<void*>(kUntouched);
  full.status = table.plan(instance.self(), signature.get(), &plan, &full.info, &full.error);
  question.status = table.plan(instance.self(), signature.get(), nullptr, &question.info, &question.error);
  const int32_t bare = table.plan(instance.self(), signature.get(), nullptr, nullptr, nullptr);
  INFO(what);
  CHECK(full.status == question.status);
  CHECK(full.status == bare);
  if (full.status != NW_OK) {
    CHECK(plan == kUntouched);
    CHECK(refusal_fault(full.status, full.error, 0) == "");
    CHECK(refusal_fault(question.status, question.error, 0) == "");
    return full;
  }
  CHECK(full.info.traits == question.info.traits);
  CHECK(full.info.workspace_size == question.info.workspace_size);
  CHECK((full.info.kernel == nullptr) == (question.info.kernel == nullptr));
  if (full.info.kernel != nullptr && question.info.kernel != nullptr)
    CHECK(std::strcmp(full.info.kernel, question.info.kernel) == 0);
  CHECK(plan != kUntouched);
  table.plan_free(instance.self(), plan);
  full.info.kernel = nullptr;  // alive as long as the plan
  return full;
}

void expect_unsupported(const Instance& instance, Signature& signature, const std::string& what) {
  const Answer answer = ask(instance, signature, what);
  const std::string fault = refusal_fault(answer.status, answer.error, NW_UNSUPPORTED);
  if (!fault.empty()) FAIL_CHECK(what << ": " << fault << (answer.status == NW_OK ? "" : std::string(": ") + answer.error.message));
}

std::vector<Sample> all_samples() {
  std::vector<Sample> all;
  for (const nw_op* op : offered_ops())
    for (const auto* list : {&samples_of(*op).filled, &samples_of(*op).empty}) all.insert(all.end(), list->begin(), list->end());
  return all;
}

// As the plugin declares it: its `params` may go further than the host's, or be left to the host.
const nw_op& declared_by_plugin(const Sample& s) {
  const nw_plugin& table = tested_table();
  for (uint32_t i = 0; i < table.num_ops; ++i)
    if (std::strcmp(table.ops[i]->name, s.op->name) == 0 && table.ops[i]->struct_size >= sizeof(nw_op)) return *table.ops[i];
  return *s.op;
}

uint64_t known_params(const Sample& s) { return std::max(s.op->params_size, declared_by_plugin(s).params_size); }

// The names of a field's numbers, by whoever declares more of them.
int64_t known_values(const Sample& s, const nw_param& field) {
  int64_t most = 0;
  for (const nw_op* op : {s.op, &declared_by_plugin(s)})
    for (const nw_param* const* f = op->params; f != nullptr && *f != nullptr; ++f) {
      if (std::strcmp((*f)->name, field.name) != 0 || (*f)->values == nullptr) continue;
      int64_t count = 0;
      while ((*f)->values[count] != nullptr) ++count;
      most = std::max(most, count);
    }
  return most;
}

// A field whose numbers name dtypes: the tensor has that dtype as well, and no host hands over the one without the other.
bool says_a_dtype(const nw_param& field) {
  for (const char* const* value = field.values; *value != nullptr; ++value)
    if (std::strcmp(*value, "float32") == 0) return true;
  return false;
}

}  // namespace

TEST_CASE("plugin: plan asked and plan made agree, whatever the tensors look like", "[plugin][plan]") {
  const Instance instance;
  int accepted = 0;
  for (const Sample& s : all_samples())
    for (const uint16_t align : {8, 4, 2, 0})
      for (const int64_t step : {1, 2, -1}) {
        Signature signature(s, {align, step});
        const std::string what = s.describe() + " align_log2 " + std::to_string(align) + " step " + std::to_string(step);
        const Answer answer = ask(instance, signature, what);
        accepted += answer.status == NW_OK ? 1 : 0;
        INFO(what << ": " << answer.error.message);
        if (align == 8 && step == 1) CHECK(answer.status == NW_OK);
        CHECK((answer.status == NW_OK || answer.status == NW_UNSUPPORTED));  // legal, so here or not here
      }
  CHECK(accepted > 0);
}

TEST_CASE("plugin: a plan names a kernel that is listed, and the one that was asked for", "[plugin][plan]") {
  const Instance instance;
  for (const Sample& s : plugin_samples(6))
    for (const char* kernel : kernels(s.op->name)) {
      Signature signature(s);
      signature.get()->kernel = kernel;
      nw_plan_info info{};
      info.struct_size = sizeof info;
      void* plan = nullptr;
      const int32_t status = tested_table().plan(instance.self(), signature.get(), &plan, &info, nullptr);
      INFO(s.describe() << " kernel " << (kernel == nullptr ? "-" : kernel));
      CHECK((status == NW_OK || (kernel != nullptr && status == NW_UNSUPPORTED)));
      if (status != NW_OK) continue;
      bool listed = info.kernel == nullptr && kernels(s.op->name).size() == 1;
      for (const char* name : kernels(s.op->name))
        listed |= name != nullptr && info.kernel != nullptr && std::strcmp(name, info.kernel) == 0;
      CHECK(listed);
      if (kernel != nullptr && info.kernel != nullptr) CHECK(std::string(info.kernel) == kernel);
      tested_table().plan_free(instance.self(), plan);
    }
}

TEST_CASE("plugin: equal signatures give plans that act alike, and one works when the other is freed", "[plugin][plan]") {
  const Instance instance;
  for (const Sample& s : plugin_samples(3)) {
    INFO(s.describe());
    void* plans[3];
    nw_plan_info infos[3];
    for (int i = 0; i < 3; ++i) {
      Signature gone(s, {8, 1}, i == 2 ? 40 : 0);  // destroyed before the launch: what it points to is borrowed
      plans[i] = plan_or_fail(instance, gone, &infos[i]);
      CHECK(infos[i].traits == infos[0].traits);
      CHECK(infos[i].workspace_size == infos[0].workspace_size);
    }
    DirectRun call(instance, s);
    const auto expected = call.launch(plans[0], infos[0]);
    tested_table().plan_free(instance.self(), plans[0]);
    const bool same_bits = (infos[0].traits & NW_PLAN_NONDETERMINISTIC) == 0;
    for (int i = 1; i < 3; ++i) {
      const auto bytes = call.launch(plans[i], infos[i], i == 2 ? 64 : 0);
      CHECK((!same_bits || bytes == expected));
      tested_table().plan_free(instance.self(), plans[i]);
    }
  }
}

TEST_CASE("plugin: nw_plan_info of every size is filled as far as it goes", "[plugin][growth]") {
  const Instance instance;
  for (const Sample& s : plugin_samples(1)) {
    Signature signature(s);
    Sized<nw_plan_info> whole(sizeof(nw_plan_info));
    REQUIRE(tested_table().plan(instance.self(), signature.get(), nullptr, whole.get(), nullptr) == NW_OK);
    std::string damaged;
    for (size_t size = sizeof(uint32_t); size <= sizeof(nw_plan_info) + 40; ++size) {
      Sized<nw_plan_info> some(size, 0xEE);
      REQUIRE(tested_table().plan(instance.self(), signature.get(), nullptr, some.get(), nullptr) == NW_OK);
      const bool traits = size < 8 || some.get()->traits == whole.get()->traits;
      const bool workspace = size < 16 || some.get()->workspace_size == whole.get()->workspace_size;
      if (!some.intact_behind() || some.get()->struct_size != size || !traits || !workspace) damaged += " " + std::to_string(size);
    }
    INFO(s.describe());
    INFO("struct_size of nw_plan_info at which it wrote past the end, or changed struct_size, or left out a field:" << damaged);
    CHECK(damaged.empty());
  }
}

TEST_CASE("plugin: what a longer nw_sig says behind the known fields is not looked at", "[plugin][growth]") {
  const Instance instance;
  for (const Sample& s : plugin_samples(2))
    for (const size_t tail : {size_t{1}, size_t{8}, size_t{100}}) {
      Signature signature(s, {8, 1}, tail);
      const Answer answer = ask(instance, signature, s.describe());
      INFO(s.describe() << " with an nw_sig of " << signature.get()->struct_size << " bytes: " << answer.error.message);
      CHECK(answer.status == NW_OK);
    }
}

TEST_CASE("plugin: an unknown flag is unsupported, each of them", "[plugin][refusal]") {
  const Instance instance;
  for (const Sample& s : plugin_samples(3)) {
    for (int bit = 1; bit < 32; ++bit)
      for (const uint32_t known : {0u, uint32_t{NW_DETERMINISTIC}}) {
        Signature signature(s);
        signature.get()->flags = 1u << bit | known;
        expect_unsupported(instance, signature, s.describe() + " flag 1 << " + std::to_string(bit));
      }
    Signature signature(s);
    signature.get()->flags = NW_DETERMINISTIC;
    const Answer answer = ask(instance, signature, s.describe());  // known: may be granted or not
    CHECK((answer.status == NW_OK || answer.status == NW_UNSUPPORTED));
  }
}

TEST_CASE("plugin: a params tail that is not zero is unsupported", "[plugin][refusal]") {
  const Instance instance;
  for (const Sample& s : plugin_samples(3))
    for (const uint64_t behind : {0, 1, 7, 8, 100}) {
      std::vector<unsigned char> blob = s.params;
      blob.resize(known_params(s) + behind + 1, 0);
      blob.back() = 1;
      Signature signature(s);
      signature.set_params(blob);
      expect_unsupported(instance, signature, s.describe() + " with params byte " + std::to_string(blob.size() - 1) + " = 1");
    }
}

TEST_CASE("plugin: an unknown number of a numbered field is unsupported", "[plugin][refusal]") {
  const Instance instance;
  std::map<std::string, bool> fields;  // of which some sample lets the number be what it is about
  for (const Sample& s : all_samples())
    for (const nw_param* const* field = s.op->params; field != nullptr && *field != nullptr; ++field) {
      const nw_param& f = **field;
      DType dtype{};
      if (f.values == nullptr || !find_dtype(f.dtype, &dtype) || says_a_dtype(f)) continue;
      const auto item = static_cast<size_t>(item_size(dtype));
      bool& tried = fields[std::string(s.op->name) + "." + f.name];
      // Where 0 has no name the field is one that some functions do not read, and there another number is another mistake.
      if (f.values[0][0] == '\0' && load(dtype, s.params.data() + f.offset) == 0) continue;
      tried = true;
      const int64_t count = known_values(s, f);
      for (const int64_t number : {count, count + 100, int64_t{-1}}) {
        if (number < 0 && !is_signed_int(dtype)) continue;
        std::vector<unsigned char> blob = s.params;
        blob.resize(std::max<size_t>(blob.size(), f.offset + item), 0);
        store(dtype, static_cast<Exact>(number), blob.data() + f.offset);
        Signature signature(s);
        signature.set_params(blob);
        expect_unsupported(instance, signature, s.describe() + " " + f.name + " = " + std::to_string(number));
      }
    }
  if (fields.empty()) SKIP("no op of the plugin has a field whose numbers have names");
  for (const auto& [field, tried] : fields) {
    INFO("no accepted call reads " << field);
    CHECK(tried);
  }
}

TEST_CASE("plugin: a kernel that it does not list is unsupported", "[plugin][refusal]") {
  const Instance instance;
  for (const Sample& s : plugin_samples(1))
    for (const char* kernel : {"no such kernel", ""}) {
      Signature signature(s);
      signature.get()->kernel = kernel;
      expect_unsupported(instance, signature, s.describe() + " kernel '" + kernel + "'");
    }
}

TEST_CASE("plugin: an op that it does not list is unsupported", "[plugin][refusal]") {
  if (tested_table().num_ops < 2) SKIP("a plugin of one op, which need not read the name: the host asks for no other");
  const Instance instance;
  for (const Sample& s : plugin_samples(1))
    for (const char* op : {"narrows_test.no_such_op/1", "no_such_op", ""}) {
      Signature signature(s);
      signature.get()->op = op;
      expect_unsupported(instance, signature, s.describe() + " as op '" + op + "'");
    }
}
