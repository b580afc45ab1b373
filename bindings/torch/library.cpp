// SPDX-License-Identifier: Apache-2.0
// library.cpp -- libnarrows_torch.so: registers every op of the default runtime with torch, when the library is loaded or as the
// program asks.
#include <link.h>
#include <narrows/torch.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "bindings/torch/kernel.h"
#include "bindings/torch/schema.h"
#include "bindings/torch/shim.h"

namespace narrows::torch {
namespace {

// torch tells a kernel nothing of the op that it is called for, so each op has a function of its own.
constexpr size_t kMaxOps = 512;
const Entry* entries[kMaxOps];

template <size_t Index>
void run_entry(Value* stack, uint64_t, uint64_t) {
  run_op(*entries[Index], stack);
}

template <size_t... Indices>
constexpr std::array<Kernel, sizeof...(Indices)> kernels_of(std::index_sequence<Indices...>) {
  return {run_entry<Indices>...};
}
constexpr auto kKernels = kernels_of(std::make_index_sequence<kMaxOps>());

struct Failure {
  int32_t status;
  std::string message;
};

// torch's libraries: what was registered by one is unregistered with it, so they stay.
struct Libraries {
  explicit Libraries(const Shim& shim) {
    const int32_t failed = shim.aoti_torch_library_init_fragment("narrows", __FILE__, __LINE__, &fragment) |
                           shim.aoti_torch_library_init_impl("narrows", "CPU", __FILE__, __LINE__, &cpu) |
                           shim.aoti_torch_library_init_impl("narrows", "CUDA", __FILE__, __LINE__, &cuda);
    if (failed != 0) throw Failure{NW_FAILED, "torch makes no library named narrows"};
  }
  Handle fragment = nullptr, cpu = nullptr, cuda = nullptr;
};

std::mutex mutex;
std::map<std::string, std::string>& registered() {  // by torch's name: ours, or of a refused one ""
  static auto& names = *new std::map<std::string, std::string>;
  return names;
}
size_t num_entries = 0;

std::string last_words(const Shim& shim) {
  const char* const words =
      shim.torch_exception_get_what_without_backtrace == nullptr ? nullptr : shim.torch_exception_get_what_without_backtrace();
  return words == nullptr ? "" : std::string(": ") + words;
}

// Whether the Python package is in this process: it defines the ops.
bool package_is_loaded() {
  const auto is_module = [](dl_phdr_info* object, size_t, void*) -> int {
    const char* const slash = std::strrchr(object->dlpi_name, '/');
    return slash != nullptr && std::strncmp(slash, "/_narrows.", 10) == 0;
  };
  return dl_iterate_phdr(is_module, nullptr) != 0;
}

bool is_program(const nw_op& op) { return std::strncmp(op.name, "program.", 8) == 0; }

bool is_backward(nw_runtime* rt, const nw_op& op) {
  for (uint32_t i = 0; const nw_op* other = nw_op_at(rt, i); ++i)
    if (other->backward != nullptr && std::strcmp(other->backward, op.name) == 0) return true;
  return false;
}

// Throws Failure, and torch is not asked again.
void define(const Shim& shim, const Libraries& to, const std::string& op, const std::string& schema, Kernel kernel) {
  const std::string name = schema.substr(0, schema.find('(')), shown = "op '" + op + "': ";
  registered()[name] = "";
  if (shim.aoti_torch_library_def(to.fragment, schema.c_str()) != 0)
    throw Failure{NW_FAILED, shown + "torch refuses its schema, " + schema + last_words(shim)};
  for (const Handle library : {to.cpu, to.cuda})
    if (shim.torch_library_impl(library, name.c_str(), kernel, kShimVersion) != 0)
      throw Failure{NW_FAILED, shown + "torch refuses its kernel" + last_words(shim)};
  registered()[name] = op;
}

// Whether torch was asked for the op before. Throws Failure.
bool is_known(const std::string& name, const std::string& op) {
  const auto known = registered().find(name);
  if (known == registered().end()) return false;
  if (known->second == op || known->second.empty()) return true;
  throw Failure{NW_FAILED, "op '" + op + "': torch calls it narrows::" + name + ", as it does '" + known->second + "'"};
}

// Throws Failure.
void add(const Shim& shim, const Libraries& to, nw_runtime* rt, const nw_op& op) {
  if (is_known(torch_name(op.name), op.name)) return;
  if (num_entries == kMaxOps)
    throw Failure{NW_FAILED, std::string("op '") + op.name + "': torch has 512 ops of Narrows already; expected no more"};
  entries[num_entries] = new Entry(&op, is_backward(rt, op));
  define(shim, to, op.name, schema(op), kKernels[num_entries++]);
}

// The op by which every program is called. Throws Failure.
void add_programs(const Shim& shim, const Libraries& to) {
  if (!is_known("program", "program")) define(shim, to, "program", kProgramSchema, run_program);
}

// Throws the first Failure, when all others are registered.
void register_ops() {
  if (package_is_loaded()) return;
  const std::lock_guard lock(mutex);
  Failure failure{NW_OK, ""};
  if (std::strcmp(nw_version(), NARROWS_VERSION) != 0)
    throw Failure{NW_UNSUPPORTED, std::string("this process has libnarrows ") + nw_version() + "; expected " NARROWS_VERSION};
  const Shim* const shim = find_shim(&failure.status, &failure.message);
  if (shim == nullptr) throw Failure(failure);
  nw_runtime* rt = nullptr;
  nw_error error{};
  if (nw_runtime_default(&rt, &error) != NW_OK) throw Failure{error.status, error.message};
  set_runtime(rt);
  static const Libraries& libraries = *new Libraries(*shim);
  const auto attempt = [&failure](const auto& step) {
    try {
      step();
    } catch (const Failure& found) {
      if (failure.status == NW_OK) failure = found;
    }
  };
  attempt([&] { add_programs(*shim, libraries); });
  for (uint32_t i = 0; const nw_op* op = nw_op_at(rt, i); ++i)
    if (!is_program(*op)) attempt([&] { add(*shim, libraries, rt, *op); });
  if (failure.status != NW_OK) throw Failure(failure);
}

[[gnu::constructor]] void on_load() {
  nw_error error{};
  const int32_t status = nw_torch_register(&error);
  // Without torch in the process nothing can be registered yet; the program will ask.
  if (status != NW_OK && status != NW_UNAVAILABLE) std::fprintf(stderr, "narrows: error: libnarrows_torch: %s\n", error.message);
}

}  // namespace
}  // namespace narrows::torch

int32_t nw_torch_register(nw_error* error) {
  using narrows::torch::Failure;
  Failure failure{NW_OK, ""};
  try {
    narrows::torch::register_ops();
  } catch (const Failure& found) {
    failure = found;
  } catch (const std::exception& found) {
    failure = {NW_FAILED, found.what()};
  }
  if (failure.status != NW_OK && error != nullptr) {
    *error = {failure.status, -1, 0, {}};
    std::snprintf(error->message, sizeof error->message, "%s", failure.message.c_str());
  }
  return failure.status;
}

const char* nw_torch_version() { return NARROWS_VERSION; }
