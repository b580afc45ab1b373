// throwing.cpp -- a plugin whose query (THROW_IN_QUERY) or whose create() throws: the host must turn both into a refusal.
#include <narrows/plugin.h>

#include <stdexcept>

namespace {

struct Odd {};  // not a std::exception

int32_t create(const nw_host*, void**, nw_error*) { throw Odd{}; }
void destroy(void*) {}
int32_t device_count(void*, int32_t* count, nw_error*) { return *count = 0; }
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

const nw_plugin kPlugin = {sizeof(nw_plugin),
                           NW_ABI_MAJOR,
                           "throwing",
                           "0.0.1",
                           kDLExtDev,
                           0,
                           0,
                           0,
                           nullptr,
                           create,
                           destroy,
                           device_count,
                           device_info,
                           alloc,
                           free_memory,
                           copy,
                           stream_create,
                           stream,
                           stream,
                           stream_wait,
                           nullptr,
                           plan,
                           plan_free,
                           launch,
                           nullptr};

}  // namespace

const nw_plugin* narrows_plugin_query(uint32_t, nw_error*) {
#ifdef THROW_IN_QUERY
  throw std::runtime_error("the query throws");
#endif
  return &kPlugin;
}
