// SPDX-License-Identifier: Apache-2.0
// naive_plugin.cpp -- the table of the naive plugin: an instance, the slots of its device with their faults, plan and launch.
// Everything that plugin.h and docs/abi.md ask of a plugin is here; what the ops compute is not. See naive.h.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "naive.h"

namespace naive {
namespace {

#define NARROWS_OP(name) &name,
constexpr const Op* kOps[] = {
#include "core/ops/ops.inc"
};
#undef NARROWS_OP
constexpr uint32_t kNumOps = sizeof kOps / sizeof *kOps;

// The instance: one of it per runtime.
struct Instance {
  const nw_host* host;
  void* device;  // the instance of device_plugin()
  std::mutex mutex;
  std::vector<Plan> old_plans;  // of mutants that take a plan for another call's
};
Instance& instance_of(void* self) { return *static_cast<Instance*>(self); }

// What a mutant asks for instead that refuses nothing.
int32_t asked(int32_t device_id) { return fault(Fault::any_device) ? 0 : device_id; }
void* asked(void* stream) { return fault(Fault::any_stream) ? nullptr : stream; }

// ---- slots: the instance ----

int32_t create(const nw_host* host, void** self, nw_error* error) {
  return guarded(error, [&] {
    static Instance only{};
    nw_error reason{};
    void* device = nullptr;
    check(device_plugin().create(host, &device, &reason), reason);
    if (fault(Fault::one_instance)) only.host = host, only.device = device;
    *self = fault(Fault::one_instance) ? &only : new Instance{host, device, {}, {}};
  });
}
void destroy(void* self) {
  if (fault(Fault::one_instance)) {
    instance_of(self).host = nullptr;
    return;
  }
  device_plugin().destroy(instance_of(self).device);
  if (!fault(Fault::leaks_instances)) delete static_cast<Instance*>(self);
}

// ---- slots: the device, its memory and its streams ----

int32_t device_count(void* self, int32_t* count, nw_error* error) {
  return device_plugin().device_count(instance_of(self).device, count, error);
}

// As much of a struct as the caller has room for. Its struct_size stays.
template <class T>
void write_sized(T* out, T value, size_t size = sizeof(T)) {
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, fault(Fault::struct_overrun) ? size : std::min<size_t>(out->struct_size, size));
}

int32_t device_info(void* self, int32_t device_id, nw_device_info* out, nw_error* error) {
  nw_device_info info{};
  info.struct_size = sizeof info;
  const int32_t status = device_plugin().device_info(instance_of(self).device, asked(device_id), &info, error);
  if (status == NW_OK) write_sized(out, info);
  return status;
}

int32_t alloc_memory(void* self, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  const bool wraps = fault(Fault::alloc_wraps) && size > UINT64_MAX - NW_WORKSPACE_ALIGN;  // rounded up, it is next to nothing
  uint64_t wanted = wraps ? NW_WORKSPACE_ALIGN : size;
  if (fault(Fault::alloc_misaligned) && size != 0 && size <= PTRDIFF_MAX) wanted += NW_WORKSPACE_ALIGN;
  if (fault(Fault::alloc_nothing) && size == 0) wanted = NW_WORKSPACE_ALIGN;
  void* memory = nullptr;
  const int32_t status = device_plugin().alloc(instance_of(self).device, asked(device_id), wanted, asked(stream), &memory, error);
  if (status != NW_OK) return status;
  if (fault(Fault::alloc_misaligned) && memory != nullptr) memory = static_cast<char*>(memory) + 16;
  remember_allocation(memory, size);
  *data = memory;
  return NW_OK;
}

int32_t free_memory(void* self, int32_t device_id, void* data, void* stream, nw_error* error) {
  forget_allocation(data);
  if (fault(Fault::alloc_misaligned)) data = nullptr;  // and leaks
  return device_plugin().free(instance_of(self).device, asked(device_id), data, asked(stream), error);
}

int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error) {
  if (fault(Fault::copy_swapped)) std::swap(dst, const_cast<void*&>(src)), std::swap(to, from);
  if (fault(Fault::copy_short) && size != 0) --size;
  return device_plugin().copy(instance_of(self).device, to, dst, from, src, size, asked(stream), error);
}

int32_t stream_create(void* self, int32_t device_id, void** stream, nw_error* error) {
  return device_plugin().stream_create(instance_of(self).device, asked(device_id), stream, error);
}
int32_t stream_destroy(void* self, int32_t device_id, void* stream, nw_error* error) {
  return device_plugin().stream_destroy(instance_of(self).device, asked(device_id), asked(stream), error);
}
int32_t stream_sync(void* self, int32_t device_id, void* stream, nw_error* error) {
  return device_plugin().stream_sync(instance_of(self).device, asked(device_id), asked(stream), error);
}
int32_t stream_wait(void* self, int32_t device_id, void* waiter, void* signaler, nw_error* error) {
  return device_plugin().stream_wait(instance_of(self).device, asked(device_id), asked(waiter), asked(signaler), error);
}

// ---- slots: plan ----

const Op& find_op(const nw_sig& sig) {
  for (const Op* op : kOps)
    if (std::strcmp(op->name, sig.op) == 0) return *op;
  if (fault(Fault::any_op)) return lltm_backward;
  throw Refusal{NW_UNSUPPORTED, -1, std::string("naive: no op '") + sig.op + "'"};
}

void check_sig(const Instance& instance, const nw_sig& sig) {
  if ((sig.flags & ~uint32_t{NW_DETERMINISTIC}) != 0 && !fault(Fault::any_flag))
    throw Refusal{NW_UNSUPPORTED, -1, "naive: flags = " + std::to_string(sig.flags) + "; it knows 0 and 1"};
  if (sig.kernel != nullptr && !fault(Fault::any_kernel))
    throw Refusal{NW_UNSUPPORTED, -1, std::string("naive: kernel '") + sig.kernel + "'; its only one has no name"};
  const int32_t type = device_plugin().device_type, id = sig.device.device_id;
  if (sig.device.device_type != type) throw Refusal{NW_UNSUPPORTED, -1, "naive: serves device type " + std::to_string(type)};
  int32_t devices = 0;
  nw_error reason{};
  check(device_plugin().device_count(instance.device, &devices, &reason), reason);
  if ((id < 0 || id >= devices) && !fault(Fault::any_device))
    throw Refusal{NW_INVALID, -1, "naive: device " + std::to_string(id) + "; there are " + std::to_string(devices) + ", from 0"};
}

Layout layout_of(const nw_tensor_sig& t, int32_t argument) {
  Layout out;
  if (t.ndim < 0) return out;
  out.present = true;
  out.dtype = dtype_of(t.dtype);
  out.ndim = t.ndim;
  out.align_log2 = t.align_log2;
  if (out.dtype == DType::none) throw Refusal{NW_UNSUPPORTED, argument, "naive: a dtype that it does not know"};
  for (int32_t i = 0; i < t.ndim; ++i) {
    out.shape[i] = t.shape[i];
    out.strides[i] = static_cast<int64_t>(static_cast<uint64_t>(t.strides[i]) * static_cast<uint64_t>(item_size(out.dtype)));
  }
  return out;
}

// Whether a mutant takes an earlier plan for the one that `wanted` asks for, as a cache does whose key lacks something.
bool same_key(const Plan& old, const Plan& wanted) {
  if (old.op != wanted.op || old.elementwise.function != wanted.elementwise.function) return false;
  const bool params = std::memcmp(&old.elementwise, &wanted.elementwise, sizeof old.elementwise) == 0 &&
                      std::memcmp(&old.conv1d, &wanted.conv1d, sizeof old.conv1d) == 0 &&
                      std::memcmp(&old.sequence, &wanted.sequence, sizeof old.sequence) == 0;
  if ((!params && !fault(Fault::stale_params)) || old.workspace_size > wanted.workspace_size) return false;
  const auto same = [](const Layout& a, const Layout& b) {
    if (a.present != b.present || a.dtype != b.dtype || a.ndim != b.ndim || a.size() > b.size()) return false;
    const size_t axes = static_cast<size_t>(a.ndim) * sizeof *a.shape;
    return (fault(Fault::stale_shape) || std::memcmp(a.shape, b.shape, axes) == 0) &&
           (fault(Fault::stale_shape) || fault(Fault::stale_strides) || std::memcmp(a.strides, b.strides, axes) == 0) &&
           (fault(Fault::stale_alignment) || a.align_log2 == b.align_log2);
  };
  return std::equal(old.inputs.begin(), old.inputs.end(), wanted.inputs.begin(), same) &&
         std::equal(old.outputs.begin(), old.outputs.end(), wanted.outputs.begin(), same);
}

void make_stale(Instance& instance, Plan& plan) {
  const std::lock_guard<std::mutex> lock(instance.mutex);
  for (const Plan& old : instance.old_plans)
    if (same_key(old, plan)) plan = Plan(old);
  instance.old_plans.push_back(plan);
}

std::unique_ptr<Plan> make_plan(const Instance& instance, const nw_sig& sig) {
  const Op& op = find_op(sig);
  check_sig(instance, sig);
  auto plan = std::make_unique<Plan>();
  plan->op = &op;
  plan->device_id = sig.device.device_id;
  plan->inputs.resize(op.max_inputs);
  plan->outputs.resize(op.num_outputs);
  for (uint32_t i = 0; i < sig.num_inputs; ++i) plan->inputs[i] = layout_of(sig.tensors[i], static_cast<int32_t>(i));
  for (uint32_t i = 0; i < sig.num_outputs; ++i)
    plan->outputs[i] = layout_of(sig.tensors[sig.num_inputs + i], static_cast<int32_t>(sig.num_inputs + i));
  op.plan(sig, *plan);
  return plan;
}

// What a mutant does to the signature that is lent to it, and to the thread that lent it.
void misuse_signature(const nw_sig& sig, Plan& plan) {
  if (fault(Fault::writes_signature)) const_cast<volatile uint32_t&>(sig.flags) = sig.flags;
  if (fault(Fault::keeps_signature)) plan.kept = &sig;
  if (fault(Fault::plan_rounds_up)) std::fesetround(FE_UPWARD);
}

int32_t plan_slot(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  return guarded(error, [&] {
    if (instance_of(self).host == nullptr) throw Refusal{NW_FAILED, -1, "naive: the instance was destroyed"};
    std::unique_ptr<Plan> plan = make_plan(instance_of(self), *sig);
    if (fault(Fault::would_refuse) && out == nullptr) throw Refusal{NW_UNSUPPORTED, -1, "naive: would not run it, but does"};
    if (fault(Fault::would_run) && out != nullptr) throw Refusal{NW_UNSUPPORTED, -1, "naive: would run it, but does not"};
    if (fault(Fault::stale_params) || fault(Fault::stale_shape) || fault(Fault::stale_strides) || fault(Fault::stale_alignment))
      make_stale(instance_of(self), *plan);
    if (info != nullptr)  // `backend` is the host's to fill in
      write_sized(info, {0, is_host() ? NW_PLAN_CAPTURABLE : 0U, plan->workspace_size, nullptr, nullptr},
                  offsetof(nw_plan_info, backend));
    misuse_signature(*sig, *plan);
    if (out != nullptr) *out = plan.release();
  });
}

void plan_free(void* /*self*/, void* plan) {
  if (!fault(Fault::leaks_plans)) delete static_cast<Plan*>(plan);
}

// ---- slots: launch ----

// The byte behind the last element, as a kernel reads it that loads before it checks the bounds.
void read_behind(const Layout& layout, uintptr_t address) {
  int64_t end = item_size(layout.dtype);
  for (int32_t i = 0; i < layout.ndim; ++i) end += (layout.shape[i] - 1) * std::max<int64_t>(layout.strides[i], 0);
  if (layout.size() != 0) static_cast<void>(*reinterpret_cast<const volatile unsigned char*>(address + static_cast<uint64_t>(end)));
}

View view_of(const Layout& layout, const DLTensor* t, const LaunchMemory& memory, bool input) {
  View v;
  if (t == nullptr || !layout.present) return v;
  static_cast<Layout&>(v) = layout;
  uintptr_t address = memory.first(*t);
  if (fault(Fault::byte_offset) && input) address -= t->byte_offset;
  if (fault(Fault::stale_alignment) && input) address -= address % (uintptr_t{1} << layout.align_log2);  // as planned
  if (fault(Fault::items_aligned) && input) address -= address % static_cast<uintptr_t>(item_size(layout.dtype));
  if (fault(Fault::reads_past_end) && input) read_behind(layout, address);
  const bool vectors = layout.ndim > 0 && layout.shape[layout.ndim - 1] % 16 == 0;
  if (fault(Fault::reads_past_vectors) && input && vectors) read_behind(layout, address);
  if (fault(Fault::rows_for_columns) && !input && layout.ndim == 2 && layout.shape[0] != layout.shape[1] &&
      layout.strides[1] == item_size(layout.dtype) && layout.strides[0] == layout.shape[0] * layout.strides[1])
    std::swap(v.strides[0], v.strides[1]);
  static unsigned char nothing;  // of tensors without elements, whose address may be NULL
  v.data = address == 0 ? &nothing : reinterpret_cast<unsigned char*>(address);
  return v;
}

// glibc finds its list of free blocks broken while it holds the heap's lock, and aborts.
void break_the_heap() {
  constexpr size_t kSize = 60000;  // of a block that goes onto that list, between two that stay
  static void* nowhere[4] = {};
  std::thread([] {}).join();  // where there never was another thread nobody takes the lock
  void* volatile blocks[3];
  for (void* volatile& block : blocks) block = std::malloc(kSize);
  const auto links = reinterpret_cast<uintptr_t>(blocks[1]);
  std::free(blocks[1]);
  reinterpret_cast<void* volatile*>(links)[1] = nowhere;
  blocks[1] = std::malloc(2 * kSize);
}

void harm_the_process() {
  if (fault(Fault::crashes)) std::raise(SIGSEGV);
  if (fault(Fault::breaks_the_heap)) break_the_heap();
  if (fault(Fault::exits)) std::_Exit(3);
  while (fault(Fault::hangs)) usleep(100'000);
}

// A number behind each row, as a vector that is stored whole would leave it, where there is room.
void write_padding(const View& v) {
  if (!v || v.ndim < 2 || v.size() == 0) return;
  const int64_t item = item_size(v.dtype), columns = v.shape[v.ndim - 1], rows = v.shape[v.ndim - 2];
  const bool room = v.strides[v.ndim - 1] == item && v.strides[v.ndim - 2] > columns * item;
  for (int64_t row = 0; room && row + 1 < rows; ++row)
    std::memset(v.data + row * v.strides[v.ndim - 2] + columns * item, 0, static_cast<size_t>(item));
}

// body(address) of every element.
template <class Body>
void for_each_element(const View& v, const Body& body) {
  const int64_t size = v ? v.size() : 0;
  for (int64_t i = 0; i < size; ++i) {
    int64_t offset = 0, rest = i;
    for (int32_t axis = v.ndim; axis-- > 0; rest /= v.shape[axis]) offset += rest % v.shape[axis] * v.strides[axis];
    body(v.data + offset);
  }
}

// What was NaN in the outputs before stays so, as in a sum with 0 times what was there.
class KeptNaN {
 public:
  explicit KeptNaN(const Task& task) {
    if (!fault(Fault::keeps_nan) || task.plan.op == &elementwise || task.plan.op == &elementwise_backward) return;
    for (const View& v : task.outputs)
      for_each_element(v, [&](unsigned char* at) {
        if (const Real value = load_real(v.dtype, at); value != value) kept_.push_back({v.dtype, at});
      });
  }
  ~KeptNaN() {
    for (const auto& [dtype, at] : kept_) store_real(dtype, at, std::numeric_limits<Real>::quiet_NaN());
  }
  KeptNaN(const KeptNaN&) = delete;
  KeptNaN& operator=(const KeptNaN&) = delete;

 private:
  std::vector<std::pair<DType, unsigned char*>> kept_;
};

void flush_subnormals() {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | uint64_t{1} << 24));
#endif
}

template <class T>
void write_again(T* lent) {
  if (lent != nullptr) *const_cast<volatile std::remove_const_t<T>*>(lent) = *lent;
}

// What a mutant does to the call that is lent to it.
void misuse_call(const Plan& plan, const nw_call& call) {
  if (fault(Fault::writes_call)) write_again(&call.workspace_size);
  if (fault(Fault::writes_params)) write_again(static_cast<const unsigned char*>(call.params));
  for (uint32_t i = 0; i < call.num_inputs; ++i) {
    const DLTensor* const t = call.inputs[i];
    if (t == nullptr || t->ndim == 0) continue;
    if (fault(Fault::writes_shape)) write_again(t->shape);
    if (fault(Fault::writes_tensor)) write_again(&t->byte_offset);
    if (fault(Fault::changes_strides) && t->shape[0] == 1 && t->strides != nullptr) t->strides[0] = 7;  // which nobody needs
    if (fault(Fault::writes_input_back) && is_host() && plan.inputs[i].size() != 0)
      write_again(static_cast<const unsigned char*>(t->data) + t->byte_offset);
  }
  if (plan.kept != nullptr) static_cast<void>(*reinterpret_cast<const volatile uint32_t*>(plan.kept));
}

// What it leaves to the thread and to the process.
void misuse_process() {
  if (fault(Fault::leaves_flush)) flush_subnormals();
  if (fault(Fault::leaks_a_byte)) static_cast<void>(*new volatile char);
  if (fault(Fault::leaks_files)) static_cast<void>(open("/dev/null", O_RDONLY));
  if (fault(Fault::handles_signals)) std::signal(SIGUSR2, SIG_IGN);
  if (fault(Fault::pins_thread)) {
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &cpus) && kept++ != 0) CPU_CLR(cpu, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
  }
}

void run(const Plan& plan, const Task& task) {
  const KeptNaN kept(task);
  plan.op->launch(task);
  for (const View& v : task.outputs)
    if (fault(Fault::writes_padding)) write_padding(v);
}

int32_t launch(void* self, const void* planned, const nw_call* call, nw_error* error) {
  if (fault(Fault::error_on_success)) write_error(error, NW_OK, -1, "naive: nothing is wrong");
  return guarded(error, [&] {
    const Plan& plan = *static_cast<const Plan*>(planned);
    LaunchMemory memory({instance_of(self).device, plan.device_id, asked(call->stream)}, plan, *call);
    Task task{*instance_of(self).host, plan, memory.workspace(), {}, {}};
    for (uint32_t i = 0; i < plan.inputs.size(); ++i)
      task.inputs[i] = view_of(plan.inputs[i], i < call->num_inputs ? call->inputs[i] : nullptr, memory, true);
    for (uint32_t i = 0; i < plan.outputs.size(); ++i)
      task.outputs[i] = view_of(plan.outputs[i], i < call->num_outputs ? call->outputs[i] : nullptr, memory, false);
    if (fault(Fault::one_layout_for_outputs))
      for (View& v : task.outputs)
        if (v && v.ndim == task.outputs[0].ndim) std::copy_n(task.outputs[0].strides, v.ndim, v.strides);
    if (plan.op == &conv1d) harm_the_process();
    misuse_call(plan, *call);
    run(plan, task);
    misuse_process();
    memory.write_back();
    if (fault(Fault::refused_after_writing)) throw Refusal{NW_UNSUPPORTED, -1, "naive: refused, after the outputs were written"};
  });
}

// ---- the table ----

const void* any_extension(void* self, const char* /*name*/) { return self; }

const nw_plugin* table() {
  static nw_op ops[kNumOps];  // the host knows all of a built-in op but its kernels
  static const nw_op* pointers[kNumOps];
  for (uint32_t i = 0; i < kNumOps; ++i) {
    ops[i].struct_size = sizeof(nw_op);
    ops[i].name = kOps[i]->name;
    pointers[i] = &ops[i];
  }
  static const nw_plugin plugin = {
      .struct_size = sizeof(nw_plugin),
      .abi_major = NW_ABI_MAJOR,
      .name = "naive",
      .version = "1.0",
      .device_type = device_plugin().device_type,
      .pinned_type = device_plugin().pinned_type,
      .managed_type = device_plugin().managed_type,
      .num_ops = kNumOps,
      .ops = pointers,
      .create = create,
      .destroy = destroy,
      .device_count = device_count,
      .device_info = device_info,
      .alloc = alloc_memory,
      .free = free_memory,
      .copy = copy,
      .stream_create = stream_create,
      .stream_destroy = stream_destroy,
      .stream_sync = stream_sync,
      .stream_wait = stream_wait,
      .infer = nullptr,
      .plan = plan_slot,
      .plan_free = plan_free,
      .launch = launch,
      .extension = fault(Fault::any_extension) ? any_extension : nullptr,
      .plan_program = nullptr,
      .program_kernels = nullptr,
  };
  if (fault(Fault::table_changes)) return new nw_plugin(plugin);
  return &plugin;
}

}  // namespace

// ---- errors ----

int32_t write_error(nw_error* error, int32_t status, int32_t argument, const std::string& message) {
  if (error != nullptr) {
    *error = {status, argument, 0, ""};
    std::snprintf(error->message, sizeof error->message, "%s", message.c_str());
  }
  return status;
}

// ---- what the ops share ----

void read_params(const nw_sig& sig, void* params, uint64_t size) {
  const auto* const blob = static_cast<const unsigned char*>(sig.params);
  if (sig.params_size != 0 && size != 0) std::memcpy(params, blob, std::min(size, sig.params_size));
  for (uint64_t i = size; i < sig.params_size; ++i)
    if (blob[i] != 0 && !fault(Fault::params_tail))
      throw Refusal{NW_UNSUPPORTED, -1,
                    "naive: byte " + std::to_string(i) + " of params is set; expected 0 from " + std::to_string(size) + " on"};
}

int64_t Layout::size() const {
  int64_t n = 1;
  for (int32_t i = 0; i < ndim; ++i)
    if (shape[i] == 0) return 0;
  for (int32_t i = 0; i < ndim; ++i) n *= shape[i];
  return n;
}

View with_rank(View v, int32_t ndim) {
  if (!v || v.ndim >= ndim) return v;
  const int32_t more = ndim - v.ndim;
  std::copy_backward(v.shape, v.shape + v.ndim, v.shape + ndim);
  std::copy_backward(v.strides, v.strides + v.ndim, v.strides + ndim);
  std::fill_n(v.shape, more, 1);
  std::fill_n(v.strides, more, 0);
  v.ndim = ndim;
  return v;
}

View broadcast_to(View v, const Layout& shape) {
  if (fault(Fault::broadcast_from_left)) v.ndim = shape.ndim;  // the axes that it lacks are put behind the others
  v = with_rank(v, shape.ndim);
  for (int32_t i = 0; i < v.ndim; ++i) {
    if (v.shape[i] != shape.shape[i]) v.strides[i] = 0;
    v.shape[i] = shape.shape[i];
  }
  return v;
}

void fill_zero(const View& v) {
  const int64_t size = v.size();
  for (int64_t i = 0; i < size; ++i) {
    int64_t offset = 0, rest = i;
    for (int32_t axis = v.ndim; axis-- > 0; rest /= v.shape[axis]) offset += rest % v.shape[axis] * v.strides[axis];
    std::memset(v.data + offset, 0, static_cast<size_t>(item_size(v.dtype)));
  }
}

}  // namespace naive

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  if (host_major != NW_ABI_MAJOR && mutants::wanted_fault() != static_cast<int>(mutants::Fault::any_major)) {
    naive::write_error(error, NW_UNSUPPORTED, -1, "naive: the host speaks ABI " + std::to_string(host_major) + "; expected 1");
    return nullptr;
  }
  mutants::active_fault = mutants::wanted_fault();
  if (mutants::active_fault < 0) {
    naive::write_error(error, NW_INVALID, -1, "naive: NARROWS_TEST_FAULT is none of faults.txt");
    return nullptr;
  }
  return naive::load_device(error) == nullptr ? nullptr : naive::table();
}
