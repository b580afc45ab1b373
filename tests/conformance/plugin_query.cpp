// SPDX-License-Identifier: Apache-2.0
// plugin_query.cpp -- the one exported symbol of the plugin under test, and its instances: a query that does nothing but answer,
// several instances at once, and hosts that know more than the plugin. plugin.h has the promises.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <thread>

#include "plugin_table.h"

using namespace narrows::test;

TEST_CASE("plugin: the query gives one constant table, again and from many threads", "[plugin]") {
  const nw_plugin* const table = &tested_table();
  const std::vector<unsigned char> before(reinterpret_cast<const unsigned char*>(table),
                                          reinterpret_cast<const unsigned char*>(table) + table->struct_size);
  std::vector<const nw_plugin*> seen(6, nullptr);
  std::vector<std::thread> threads;
  for (const nw_plugin*& slot : seen) threads.emplace_back([&slot] { slot = tested_query()(NW_ABI_MAJOR, nullptr); });
  for (std::thread& thread : threads) thread.join();
  for (const nw_plugin* other : seen) CHECK(other == table);
  const Instance instance;
  nw_error error;
  CHECK(tested_query()(NW_ABI_MAJOR, &error) == table);
  CHECK(std::memcmp(before.data(), table, before.size()) == 0);
}

TEST_CASE("plugin: a query that succeeds leaves the error alone", "[plugin]") {
  WatchedError watched;
  REQUIRE(tested_query()(NW_ABI_MAJOR, &watched.error) != nullptr);
  CHECK(watched.untouched());
}

// plugin.h: NULL and the reason when a host of that major cannot be served; abi.h: different majors refuse each other.
TEST_CASE("plugin: a host of another major gets no table of this one", "[plugin]") {
  for (const uint32_t major : {0u, NW_ABI_MAJOR + 1u, NW_ABI_MAJOR + 1000u, UINT32_MAX}) {
    INFO("narrows_plugin_query(" << major << ", error)");
    nw_error error;
    std::memset(&error, 0x5A, sizeof error);
    const nw_plugin* const table = tested_query()(major, &error);
    if (table != nullptr) {
      CHECK(table->abi_major == major);  // it serves both
    } else {
      CHECK(refusal_fault(error.status, error, 0).empty());
    }
    CHECK(tested_query()(major, nullptr) == table);
  }
  CHECK(tested_query()(NW_ABI_MAJOR, nullptr) == &tested_table());
}

TEST_CASE("plugin: the table is as the host needs it", "[plugin]") {
  const nw_plugin& table = tested_table();
  CHECK(table.abi_major == NW_ABI_MAJOR);
  CHECK(table.struct_size >= offsetof(nw_plugin, launch) + sizeof table.launch);
  CHECK(table.device_type == static_cast<int32_t>(device().device_type));
  CHECK(std::string(table.name) == backend());
  CHECK((table.create != nullptr && table.destroy != nullptr && table.device_count != nullptr && table.device_info != nullptr));
  CHECK((table.alloc != nullptr && table.free != nullptr && table.copy != nullptr));
  CHECK((table.stream_create != nullptr && table.stream_destroy != nullptr && table.stream_sync != nullptr));
  CHECK((table.stream_wait != nullptr && table.plan != nullptr && table.plan_free != nullptr && table.launch != nullptr));
}

TEST_CASE("plugin: every op that is offered has a call that is accepted", "[plugin]") {
  for (const nw_op* op : offered_ops()) {
    const Samples& samples = samples_of(*op);
    INFO(op->name << ": no accepted call found; the last refusal: " << samples.refusal);
    CHECK(!samples.filled.empty());
  }
}

TEST_CASE("plugin: two instances live at once, and one outlives the other", "[plugin]") {
  const std::vector<Sample> samples = plugin_samples(1);
  auto first = std::make_unique<Instance>();
  const auto second = std::make_unique<Instance>(Cut::threads);
  std::vector<std::vector<unsigned char>> expected;
  for (const Sample& s : samples) expected.push_back(DirectRun(*first, s).run());
  for (size_t i = 0; i < samples.size(); ++i) {
    INFO(samples[i].describe());
    CHECK(same_bytes(DirectRun(*second, samples[i]).run(), expected[i]));
  }
  first.reset();
  for (size_t i = 0; i < samples.size(); ++i) {
    INFO(samples[i].describe());
    CHECK(same_bytes(DirectRun(*second, samples[i]).run(), expected[i]));
  }
  const Instance third;
  for (size_t i = 0; i < samples.size(); ++i) CHECK(same_bytes(DirectRun(third, samples[i]).run(), expected[i]));
}

TEST_CASE("plugin: what a longer nw_host says behind the known fields is not looked at", "[plugin]") {
  for (const size_t tail : {size_t{0}, size_t{8}, size_t{64}}) {
    INFO("an nw_host of " << sizeof(nw_host) + tail << " bytes");
    const Instance instance(Cut::whole, tail);
    for (const Sample& s : plugin_samples(1)) CHECK_NOTHROW(DirectRun(instance, s).run());
  }
}

TEST_CASE("plugin: results do not depend on how the host cuts a loop", "[plugin][determinism]") {
  const Instance whole, pieces(Cut::pieces), backwards(Cut::backwards), threads(Cut::threads);
  for (const Sample& s : plugin_samples(3)) {
    INFO(s.describe());
    Signature signature(s);
    nw_plan_info info{};
    void* const plan = plan_or_fail(whole, signature, &info);
    tested_table().plan_free(whole.self(), plan);
    if ((info.traits & NW_PLAN_NONDETERMINISTIC) != 0) continue;
    const auto expected = DirectRun(whole, s).run();
    CHECK(same_bytes(DirectRun(pieces, s).run(), expected));
    CHECK(same_bytes(DirectRun(backwards, s).run(), expected));
    CHECK(same_bytes(DirectRun(threads, s).run(), expected));
  }
}
