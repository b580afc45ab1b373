/* SPDX-License-Identifier: Apache-2.0 */
/* dep_plugin.c -- the minimal plugin under another name, with its result times what the library says that it needs (dep.c).
 *   NAME "dep1" */
#define narrows_plugin_query minimal_query
#include "../../../examples/plugin_minimal/plugin.c"
#undef narrows_plugin_query

int narrows_test_dep(void);

static int32_t launch_times_dep(void* self, const void* planned, const nw_call* call, nw_error* error) {
  const int32_t status = launch(self, planned, call, error);
  const mod_add_plan* p = planned;
  for (int64_t i = 0; status == NW_OK && i < p->n; ++i) first(call->outputs[0])[i * p->stride[2]] *= (float)narrows_test_dep();
  return status;
}

__attribute__((visibility("default"))) const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  static nw_plugin renamed;
  const nw_plugin* minimal = minimal_query(host_major, error);
  if (minimal == NULL) return NULL;
  renamed = *minimal;
  renamed.name = NAME;
  renamed.launch = launch_times_dep;
  return &renamed;
}
