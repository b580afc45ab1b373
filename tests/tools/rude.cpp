// SPDX-License-Identifier: Apache-2.0
// rude.cpp -- a plugin that answers as the naive one does, and harms the process that it is in at its first allocation, in the way
// that NARROWS_TEST_RUDENESS names. `narrows conform` must not be fooled by it: conform.py, case ends_badly.
#include <dlfcn.h>
#include <narrows/plugin.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

const nw_plugin* naive() {
  static const nw_plugin* const plugin = [] {
    void* const library = dlopen(NARROWS_NAIVE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    const auto query = library == nullptr ? nullptr : reinterpret_cast<nw_plugin_query_fn>(dlsym(library, NW_PLUGIN_QUERY));
    return query == nullptr ? nullptr : query(NW_ABI_MAJOR, nullptr);
  }();
  return plugin;
}

bool fault(const char* name) {
  const char* const wanted = std::getenv("NARROWS_TEST_RUDENESS");
  return wanted != nullptr && std::strcmp(wanted, name) == 0;
}

void harm() {
  if (fault("aborts_at_exit")) std::atexit([] { std::abort(); });
  if (fault("exits_at_exit")) std::atexit([] { _exit(5); });
  if (fault("hangs_at_exit")) std::atexit([] { pause(); });
  if (fault("exits_with_77")) _exit(77);
  if (fault("spoils_events") && write(3, "no event", 8) != 8) std::abort();
  for (int fd = 3; fault("closes_files") && fd < 64; ++fd) close(fd);
  if (fault("leaves_a_child") && fork() == 0) {
    sleep(60);  // and holds the stream of events open
    _exit(0);
  }
}

int32_t alloc(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  static const bool once = (harm(), true);
  static_cast<void>(once);
  return naive()->alloc(self, device_id, size, stream, data, error);
}

}  // namespace

const nw_plugin* narrows_plugin_query(uint32_t, nw_error*) {
  if (naive() == nullptr) return nullptr;
  static nw_plugin table = *naive();
  table.name = "rude";
  table.alloc = alloc;
  return &table;
}
