// SPDX-License-Identifier: Apache-2.0
// launch.cpp -- how a call whose arrays are read and allocated gets to the library: nw_run or nw_launch, without the GIL, and which
// calls are launched by a plan that the op remembers, without another look at their tensors.
#include <cstring>

#include "call.h"
#include "core/byte_range.h"

namespace narrows::python {
namespace {

// A built-in op on arrays of at most so many elements is done in less time than releasing the GIL takes, or waking a thread.
constexpr int64_t kTooFewForGil = 1024, kTooFewForThreads = 512;

// Elements of the largest array of a call; INT64_MAX: more than matter, or an op that may do anything with few.
int64_t most_elements(const Call& c) {
  if (c.declaration.has_vendor) return INT64_MAX;
  int64_t most = 0;
  for (uint32_t i = 0; i < c.num_inputs + c.num_outputs; ++i) {
    if (!c.is_array(i)) continue;
    int64_t count = 1;
    for (int32_t d = 0; d < c.arrays[i].tensor.ndim; ++d) {
      count *= c.arrays[i].tensor.shape[d];
      if (count > kTooFewForGil) return INT64_MAX;
    }
    most = std::max(most, count);
  }
  return most;
}

// Torch's number of threads, where its tensors are computed by more than one. False: exception set.
bool limit_threads(const Call& c, int64_t elements, nw_call& call) {
  constexpr uint32_t kTorch = 1u << static_cast<unsigned>(Route::torch) | 1u << static_cast<unsigned>(Route::torch_other);
  if ((c.routes_seen & kTorch) == 0 || elements <= kTooFewForThreads) return true;
  call.max_threads = torch_threads();
  return call.max_threads != 0;
}

// The workspace of a launch, of the framework's memory; to be kept until then. Null: the backend's own. `raised`: exception set.
Ref give_workspace(Call& c, uint64_t size, nw_call& call, bool* raised) {
  const Route route = c.routes[c.lead];
  if (route != Route::torch && route != Route::cupy) return Ref();
  OutputSpec bytes;
  Array workspace;
  Ref memory(bytes.assign({{kDLUInt, 8, 1}, 1, {static_cast<int64_t>(size)}})
                 ? allocate(route, c.objects[c.lead], bytes, c.where, c.stream, c.stream_keeper.get())
                 : nullptr);
  *raised = !memory || !workspace.read(memory.get(), route_of(memory.get()), c.stream);
  if (!*raised) call.workspace = workspace.tensor.data, call.workspace_size = size;
  return memory;
}

// Whether no output that is given meets another tensor of the call.
bool outputs_are_apart(const Call& c) {
  for (uint32_t o = c.num_inputs; o < c.num_inputs + c.num_outputs; ++o) {
    if (!c.is_array(o)) continue;
    const ByteRange output = byte_range(c.arrays[o].tensor);
    for (uint32_t i = 0; i < o; ++i)
      if (c.is_array(i) && output.meets(byte_range(c.arrays[i].tensor))) return false;
  }
  return true;
}

// Torch's and NumPy's arrays are what they say; what others hand over, and from_dlpack() took, is looked at each time.
bool has_known_arrays(const Call& c) {
  const auto bit = [](Route route) { return 1u << static_cast<unsigned>(route); };
  return (c.routes_seen & ~(bit(Route::none) | bit(Route::number) | bit(Route::numpy) | bit(Route::torch))) == 0;
}

// What calls alike do not have in common are addresses. Whether those of this one may be taken as they are: new memory is apart
// from that of the inputs, outputs that are given have to be.
bool has_right_addresses(const Call& c) {
  if (c.out == nullptr) return c.where.device_type != kDLCPU || has_known_arrays(c);
  return has_known_arrays(c) && outputs_are_apart(c);
}

// Whether outputs that were allocated here are surely as they were asked for, and aligned as the plan was told.
bool fit_outputs(const Call& c, const Planned& planned) {
  for (uint32_t i = c.num_inputs; c.out == nullptr && i < c.num_inputs + c.num_outputs; ++i) {
    if (!c.is_array(i)) continue;
    const DLTensor& t = c.arrays[i].tensor;
    const bool known = c.routes[i] == Route::torch || c.routes[i] == Route::own || c.routes[i] == Route::numpy;
    if (!known || t.data == nullptr || (reinterpret_cast<uintptr_t>(t.data) + t.byte_offset) % planned.align != 0) return false;
  }
  return true;
}

int32_t launch_planned(Call& c, nw_call& call, const Planned& planned, nw_error* error, bool* raised) {
  const Ref workspace(planned.workspace_size != 0 ? give_workspace(c, planned.workspace_size, call, raised) : Ref());
  int32_t status = NW_OK;
  if (*raised) return status;
  Py_BEGIN_ALLOW_THREADS;
  status = nw_launch(planned.plan, &call, error);
  Py_END_ALLOW_THREADS;
  return status;
}

// Remembers the plan, where nobody else has.
void keep(Call& c, std::unique_ptr<Planned> planned) {
  const Planned* none = nullptr;
  if (c.inferred && c.inferred->planned.compare_exchange_strong(none, planned.get())) (void)planned.release();
}

bool same_text(const char* a, const char* b) { return a == b || (a != nullptr && b != nullptr && std::strcmp(a, b) == 0); }

// A plan for calls like this one, which went through, on the CPU. Outputs are allocated at different alignments: it is for the
// least, and kept if the same kernel runs that is planned for this call's own.
void plan_ahead(Call& c, const nw_call& call) {
  auto planned = std::make_unique<Planned>();
  nw_plan* own = nullptr;
  nw_plan_info of_own{}, info{};
  of_own.struct_size = info.struct_size = sizeof info;
  planned->align = c.routes[c.lead] == Route::numpy ? 16 : 64;
  DLTensor kept[NW_MAX_TENSORS];
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = nw_plan_get(runtime(), &call, &own, &of_own, nullptr);
  for (uint32_t i = c.num_inputs; c.out == nullptr && i < c.num_inputs + c.num_outputs; ++i) {
    if (!c.is_array(i)) continue;
    DLTensor& t = c.arrays[i].tensor;
    kept[i] = t;
    t.data = nullptr, t.byte_offset = planned->align;  // memory is not asked for, alignment is
  }
  if (status == NW_OK) status = nw_plan_get(runtime(), &call, &planned->plan, &info, nullptr);
  for (uint32_t i = c.num_inputs; c.out == nullptr && i < c.num_inputs + c.num_outputs; ++i)
    if (c.is_array(i)) c.arrays[i].tensor = kept[i];
  nw_plan_release(own);
  Py_END_ALLOW_THREADS;
  if (status == NW_OK && same_text(of_own.backend, info.backend) && same_text(of_own.kernel, info.kernel))
    keep(c, std::move(planned));
}

int32_t launch_on_cpu(Call& c, nw_call& call, const Planned* planned, nw_error* error, bool* raised) {
  const int64_t elements = most_elements(c);
  *raised = !limit_threads(c, elements, call);
  if (*raised) return NW_OK;
  if (planned != nullptr) call.flags |= NW_FITS;
  const auto launch = [&] { return planned != nullptr ? nw_launch(planned->plan, &call, error) : nw_run(runtime(), &call, error); };
  if (elements <= kTooFewForGil) return launch();
  int32_t status = NW_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = launch();
  Py_END_ALLOW_THREADS;
  return status;
}

}  // namespace

int32_t launch(Call& c, nw_call& call, nw_error* error, bool* raised) {
  const bool on_cpu = c.where.device_type == kDLCPU, right = has_right_addresses(c);
  if (!c.inferred && (right || !on_cpu)) find_alike(c);
  const Planned* const known = c.inferred ? c.inferred->planned.load(std::memory_order_acquire) : nullptr;
  const bool fits = right && known != nullptr && fit_outputs(c, *known);
  int32_t status = NW_OK;
  if (on_cpu) {
    status = launch_on_cpu(c, call, fits ? known : nullptr, error, raised);
    if (status == NW_OK && !*raised && right && known == nullptr && c.inferred && ++c.inferred->calls == 2) plan_ahead(c, call);
    return status;
  }
  if (known != nullptr) {
    if (fits) call.flags |= NW_FITS;
    status = launch_planned(c, call, *known, error, raised);
    if (fits || status != NW_INVALID) return status;
    call.workspace = nullptr, call.workspace_size = 0;  // it may not fit outputs that are aligned worse: planned anew
  }
  auto planned = std::make_unique<Planned>();
  nw_plan_info info{};
  info.struct_size = sizeof info;
  Py_BEGIN_ALLOW_THREADS;
  status = nw_plan_get(runtime(), &call, &planned->plan, &info, error);
  Py_END_ALLOW_THREADS;
  if (status != NW_OK) return status;
  planned->workspace_size = info.workspace_size;
  status = launch_planned(c, call, *planned, error, raised);
  if (status == NW_OK) keep(c, std::move(planned));
  return status;
}

}  // namespace narrows::python
