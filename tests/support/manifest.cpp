// SPDX-License-Identifier: Apache-2.0
// manifest.cpp -- see manifest.h.
#include "manifest.h"

#include <dlfcn.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "dtype.h"

namespace narrows::test {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const std::string& path, const std::string& what) { throw std::runtime_error(path + ": " + what); }

// The string fields of an entry, each into its place; any other key is a mistake.
void read_fields(const std::string& path, const Json& entry, const std::map<std::string, std::string*>& fields) {
  if (!entry.is_object()) fail(path, "expected an object, found " + entry.dump());
  for (const auto& [key, value] : entry.items()) {
    const auto field = fields.find(key);
    if (field == fields.end()) {
      std::string known;
      for (const auto& [name, place] : fields) known += (known.empty() ? "" : ", ") + name;
      fail(path, "unknown key '" + key + "' in " + entry.dump() + "; expected " + known);
    }
    if (field->second == nullptr) continue;
    if (!value.is_string()) fail(path, "'" + key + "' is " + value.dump() + "; expected a string");
    *field->second = value.get<std::string>();
  }
}

bool is_dtype_name(const std::string& text) {
  return std::any_of(std::begin(kAllDTypes), std::end(kAllDTypes), [&](DType dtype) { return text == name(dtype); });
}

Exclusion read_exclusion(const std::string& path, const Json& entry) {
  Exclusion e;
  read_fields(path, entry,
              {{"op", &e.op},
               {"function", &e.function},
               {"dtype", &e.dtype},
               {"out_dtype", &e.out_dtype},
               {"kernel", &e.kernel},
               {"arch", nullptr},
               {"without", nullptr},
               {"variables", nullptr},
               {"reason", &e.reason}});
  if (e.op.empty()) fail(path, "an exclusion without 'op': " + entry.dump());
  if (e.reason.empty()) fail(path, "an exclusion without 'reason': " + entry.dump());
  for (const std::string& dtype : {e.dtype, e.out_dtype})
    if (!dtype.empty() && !is_dtype_name(dtype))
      fail(path, "unknown dtype '" + dtype + "'; expected f32, f64, f16, bf16, i8, …, u64 or bool");
  try {
    e.arch = entry.value("arch", e.arch);
    e.without = entry.value("without", e.without);
    e.variables = entry.value("variables", e.variables);
  } catch (const Json::exception&) {
    fail(path,
         "in " + entry.dump() +
             " 'arch' has to be a list of how names of devices begin, 'without' one of libraries' names, 'variables' an object of "
             "strings");
  }
  return e;
}

Environment read_environment(const std::string& path, const Json& entry) {
  Environment e;
  read_fields(path, entry,
              {{"name", &e.name}, {"machine", &e.machine}, {"variables", nullptr}, {"arch", &e.arch}, {"cpu", nullptr}});
  if (e.name.empty()) fail(path, "an environment without 'name': " + entry.dump());
  try {
    e.variables = entry.value("variables", e.variables);
    e.cpu = entry.value("cpu", e.cpu);
  } catch (const Json::exception&) {
    fail(path, "in " + entry.dump() + " 'variables' has to be an object of strings, and 'cpu' a list of them");
  }
  return e;
}

// As the backend would open it. It stays open: it may be of those that do not go again.
bool is_installed(const std::string& library) { return dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr; }

bool is_set(const std::pair<const std::string, std::string>& variable) {
  const char* const value = std::getenv(variable.first.c_str());
  return value != nullptr && value == variable.second;
}

bool fits(const std::string& wanted, const std::string& is) { return wanted.empty() || wanted == is; }

}  // namespace

std::string Exclusion::variant() const {
  return kernel.empty() || !function.empty() || !dtype.empty() || !out_dtype.empty() ? "" : op + "/" + kernel;
}

std::string Exclusion::text() const {
  std::string words = op;
  for (const std::string* word : {&function, &kernel, &dtype})
    if (!word->empty()) words += " " + *word;
  return out_dtype.empty() ? words : words + " -> " + out_dtype;
}

bool Exclusion::holds(const std::string& device_arch) const {
  const auto begins_so = [&](const std::string& begin) { return device_arch.rfind(begin, 0) == 0; };
  return (arch.empty() || std::any_of(arch.begin(), arch.end(), begins_so)) &&
         std::none_of(without.begin(), without.end(), is_installed) && std::all_of(variables.begin(), variables.end(), is_set);
}

std::vector<Exclusion*> Manifest::covering(const CallClass& call) {
  std::vector<Exclusion*> found;
  for (Exclusion& e : exclusions)
    if (e.applies && e.op == call.op && fits(e.function, call.function) && fits(e.dtype, call.dtype) &&
        fits(e.out_dtype, call.out_dtype) && fits(e.kernel, call.kernel))
      found.push_back(&e);
  return found;
}

const Environment* Manifest::environment(const std::string& name) const {
  const auto found = std::find_if(environments.begin(), environments.end(), [&](const Environment& e) { return e.name == name; });
  return found == environments.end() ? nullptr : &*found;
}

Manifest read_manifest(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(path, "cannot be read");
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail(path, "is not a JSON object");
  read_fields(path, json, {{"environments", nullptr}, {"exclusions", nullptr}});
  Manifest manifest;
  manifest.path = path;
  for (const char* list : {"environments", "exclusions"})
    if (json.contains(list) && !json[list].is_array()) fail(path, std::string("'") + list + "' has to be a list");
  utsname here{};
  uname(&here);
  for (const Json& entry : json.value("environments", Json::array())) {
    Environment e = read_environment(path, entry);
    if (e.machine.empty() || e.machine == here.machine) manifest.environments.push_back(std::move(e));
  }
  for (const Json& entry : json.value("exclusions", Json::array())) manifest.exclusions.push_back(read_exclusion(path, entry));
  return manifest;
}

}  // namespace narrows::test
