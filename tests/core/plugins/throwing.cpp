// SPDX-License-Identifier: Apache-2.0
// throwing.cpp -- a plugin whose query (THROW_IN_QUERY), whose device_count() (THROW_IN_DEVICE_COUNT; so does its destroy() then)
// or whose create() throws: the host must turn each into a refusal.
#include <narrows/plugin.h>

#include <stdexcept>

namespace {

struct Odd {};  // not a std::exception

#ifdef THROW_IN_DEVICE_COUNT
#define THROWING_NAME "throwing in device_count"
int32_t create(const nw_host*, void** self, nw_error*) {
  static int instance;
  *self = &instance;
  return NW_OK;
}
void destroy(void*) { throw Odd{}; }
int32_t device_count(void*, int32_t*, nw_error*) { throw std::runtime_error("nobody can count"); }
#else
#define THROWING_NAME "throwing"
int32_t create(const nw_host*, void**, nw_error*) { throw Odd{}; }
void destroy(void*) {}
int32_t device_count(void*, int32_t* count, nw_error*) { return *count = 0; }
#endif
int32_t device_info(void*, int32_t, nw_device_info*, nw_error*) { return NW_INVALID; }
int32_t alloc(void*, int32_t, uint64_t, void*, void**, nw_error*) { return NW_OUT_OF_MEMORY; }
int32_t free_memory(void*, int32_t, void*, void*, nw_error*) { return NW_OK; }
int32_t copy(void*, DLDevice, void*, DLDevice, const void*, uint64_t, void*, nw_error*) { return NW_FAILED; }
int32_t stream_create(void*, int32_t, void**, nw_error*) { return NW_FAILED; }
int32_t stream(void*, int32_t, void*, nw_error*) { return NW_OK; }
int32_t stream_wait(void*, int32_t, void*, void*, nw_error*) { return NW_OK; }
int32_t plan(void*, const nw_sig*, void**, nw_plan_info*, nw_error*) { return NW_UNSUPPORTED; }
void plan_free(void*, void*) {}
int32_t launch(void*, const void*, const nw_call*, nw_error*) { return NW_FAILED; }

const nw_plugin kPlugin = {sizeof(nw_plugin), NW_ABI_MAJOR, THROWING_NAME, "0.0.1",      kDLExtDev,   0,     0,           0,
                           nullptr,           create,       destroy,       device_count, device_info, alloc, free_memory, copy,
                           stream_create,     stream,       stream,        stream_wait,  nullptr,     plan,  plan_free,   launch,
                           nullptr,           nullptr,      nullptr};

}  // namespace

const nw_plugin* narrows_plugin_query(uint32_t, nw_error*) {
#ifdef THROW_IN_QUERY
  throw std::runtime_error("the query throws");
#endif
  return &kPlugin;
}
