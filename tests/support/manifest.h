// SPDX-License-Identifier: Apache-2.0
// manifest.h -- what a backend's manifest says: the calls that it may decline, each with a reason, and the environments in which it
// has to be judged. docs/conformance.md has the format. An exclusion is a claim like any other: one that no longer holds fails.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace narrows::test {

// A class of calls that the backend declines with NW_UNSUPPORTED. A field that is "" leaves the class open there.
struct Exclusion {
  std::string op;
  std::string function;   // of elementwise, by name
  std::string dtype;      // of the first present input: "f64"
  std::string out_dtype;  // of the first present output
  std::string kernel;     // a listed variant that never runs here; a call without a kernel is not meant
  std::string reason;
  // Where it holds; empty: everywhere.
  std::vector<std::string> arch;                 // nw_device_info.arch begins with one of these
  std::vector<std::string> without;              // none of these libraries can be opened
  std::map<std::string, std::string> variables;  // these variables are set so

  bool applies = true;                 // on the device under test
  int64_t declined = 0, accepted = 0;  // calls of this class in the test under way

  std::string text() const;     // "elementwise erf f64"
  std::string variant() const;  // "op/kernel" if it excludes all calls of a variant; else ""
  bool holds(const std::string& device_arch) const;
};

// Variables under which the suite is run once more, as "NARROWS_CPU_TARGET=avx2".
struct Environment {
  std::string name;
  std::string machine;  // uname's, "x86_64": on others the environment does not exist; "": on all
  std::map<std::string, std::string> variables;
  std::string arch;              // how nw_device_info.arch begins then; "": anything
  std::vector<std::string> cpu;  // features of /proc/cpuinfo without which it cannot be run
};

// What a call is, in the manifest's terms.
struct CallClass {
  std::string op, function, dtype, out_dtype, kernel;
};

struct Manifest {
  std::string path;  // "": there is none
  std::vector<Environment> environments;
  std::vector<Exclusion> exclusions;

  // The exclusions that cover the call on the device under test.
  std::vector<Exclusion*> covering(const CallClass& call);
  const Environment* environment(const std::string& name) const;
};

// Throws std::runtime_error that names file, entry and what was expected.
Manifest read_manifest(const std::string& path);

}  // namespace narrows::test
