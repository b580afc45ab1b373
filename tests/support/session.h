// SPDX-License-Identifier: Apache-2.0
// session.h -- what the suite judges: a backend, its device, the seed, and what the backend's manifest says. Set once by main.cpp,
// before the first test. It governs harness.h and what stands on it.
#pragma once

#include <narrows/narrows.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "manifest.h"

namespace narrows::test {

struct Options {
  std::string plugin;       // a file, loaded ahead of those that are found; "": none
  std::string backend;      // a plugin's name; "": that of `plugin`, else the first that serves the device
  std::string device;       // "2:0", DLDeviceType:id; "": the first device of the backend
  std::string manifest;     // a file; "": the one beside the plugin, if there is one
  std::string environment;  // one of the manifest's environments; "": as the process was started
  uint64_t seed = 20260101;
};

// Finds what the options name. Throws std::runtime_error that says what was found instead, NotHere where the environment asks for
// something that this machine lacks. Afterwards the functions below may be called.
struct NotHere : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void open_session(const Options& options);

// Destroys the runtime. What is printed meanwhile, as by a layer that finds objects left over; "": nothing.
std::string close_session();

nw_runtime* runtime();                          // one for the process
nw_runtime* new_runtime(uint32_t num_threads);  // another one with the same plugins; 0: the default number of threads
DLDevice device();                              // under test
const nw_backend_info& tested();                // the plugin under test
const char* backend();                          // its name, for nw_call.backend
std::string arch();                             // nw_device_info.arch
bool has_addresses();                           // DLTensor.data is an address there, and no handle
uint64_t base_seed();
Manifest& manifest();

// Whether the plugin lists the op.
bool offers(const char* op);
// nullptr, then the names of the variants that the plugin lists for the op.
std::vector<const char*> kernels(const char* op);

}  // namespace narrows::test
