// SPDX-License-Identifier: Apache-2.0
// test_cpp_plan.cpp -- narrows.hpp: what a Plan remembers of the call that it was made for. The rest of the binding:
// tests/examples.
#include <narrows/narrows.hpp>

#include "fixture.h"

using namespace narrows::test;

TEST_CASE("a C++ plan that was made for a named backend and kernel is launched") {
  const narrows::Runtime runtime;
  for (const char* name : {"probe", "probe2"}) runtime.load(plugin_file(name).c_str());
  std::vector<float> a(4), out(4);
  const narrows::Tensor in(a.data(), {4}, {}, kProbe), to(out.data(), {4}, {}, kProbe);
  std::optional<narrows::Plan> plan;
  {
    const std::string backend = "probe", kernel = "slow";  // which end before the launch
    narrows::CallOptions options;
    options.flags = NW_DETERMINISTIC;
    options.backend = backend.c_str();
    options.kernel = kernel.c_str();
    plan = runtime.plan("probe.noop/1", {in}, {to}, ProbeParams{1, 2, 3}, options);
  }
  CHECK(plan->backend() == "probe");
  CHECK(plan->kernel() == "slow");
  plan->launch({in}, {to});
  CHECK(runtime.extension<Probe>("probe", "probe/1")->launches == 1);
  narrows::Plan other = runtime.plan("probe.noop/1", {in}, {to});
  other = std::move(*plan);
  other.launch({in}, {to});
  CHECK(runtime.extension<Probe>("probe", "probe/1")->launches == 2);
}
