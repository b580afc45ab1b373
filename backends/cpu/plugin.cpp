// SPDX-License-Identifier: Apache-2.0
// plugin.cpp -- the table behind the one exported symbol: the instance, memory, streams, and the way to the ops.
// No exception leaves this file, and nothing is done before create().
#include <narrows/plugin.h>
#include <narrows/program.h>
#include <strings.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"
#include "float_mode.h"
#include "processor.h"
#include "program/export.h"
#include "program/program.h"
#include "program/toolchain.h"
#include "targets.h"

namespace narrows::cpu {

// Every built-in op; ops/<op>/ defines it.
#define NARROWS_OP(name) extern const Op name;
#include "core/ops/ops.inc"
#undef NARROWS_OP

namespace {

#define NARROWS_OP(name) &name,
constexpr const Op* kOps[] = {
#include "core/ops/ops.inc"
};
#undef NARROWS_OP

void check_device(int32_t device_id) {
  if (device_id != 0) refuse(NW_INVALID, -1, "cpu: device %d was asked for; the cpu backend has device 0 only", device_id);
}

void check_stream(const void* stream) {
  if (stream != nullptr) refuse(NW_INVALID, -1, "cpu: stream %p was given; the only stream of the CPU is NULL", stream);
}

// ---- instruction sets ----

struct Target {
  const char* name;  // as in NARROWS_CPU_TARGET
  const char* label;
  int64_t bits;
  Bf16Products bf16_products = Bf16Products::f32;
};
constexpr Target kTargets[] = {
    // the best first
    {"amx", "AVX-512 with AMX", HWY_AVX3, Bf16Products::tiles},
    {"avx512_bf16", "AVX-512 with BF16", HWY_AVX3, Bf16Products::dots},
    {"avx512", "AVX-512", HWY_AVX3},
    {"avx2", "AVX2", HWY_AVX2},
    {"sse4", "SSE4", HWY_SSE4},
#ifdef HWY_NEON_WITHOUT_AES
    {"neon", "NEON", HWY_NEON | HWY_NEON_WITHOUT_AES},
#else
    {"neon", "NEON", HWY_NEON},
#endif
    {"baseline", "baseline", HWY_STATIC_TARGET},
};

// Highway's bit of a target, the best (lowest) of several; 0 where this CPU or this build lacks it.
int64_t usable_bit(const Target& target) {
  const int64_t bits = target.bits & ((HWY_SUPPORTED_TARGETS & HWY_TARGETS) | HWY_STATIC_TARGET);
  return bits != 0 && multiplies(target.bf16_products) ? bits & -bits : 0;
}

// The target to use: what NARROWS_CPU_TARGET says, else the first that is usable. The baseline always is.
const Target& choose_target() {
  const char* wanted = std::getenv("NARROWS_CPU_TARGET");
  const bool any = wanted == nullptr || *wanted == '\0';
  std::string valid;
  for (const Target& target : kTargets) {
    if (!any && strcasecmp(wanted, target.name) != 0) continue;
    if (usable_bit(target) != 0) return target;
  }
  for (const Target& target : kTargets)
    if (usable_bit(target) != 0) valid += valid.empty() ? target.name : std::string(", ") + target.name;
  refuse(NW_UNAVAILABLE, -1, "NARROWS_CPU_TARGET is '%s'; this CPU and this build know %s", wanted, valid.c_str());
}

int index_of_target(int64_t bit) {
  hwy::ChosenTarget chosen;
  chosen.Update(bit);
  return static_cast<int>(chosen.GetIndex());
}

struct CpuInstance : Instance {
  const Target* chosen;
  nw_program_source source;
  nw_program_exporter exporter;
};
const CpuInstance& instance_of(void* self) { return *static_cast<const CpuInstance*>(self); }

int32_t write_plugin(void* self, const char* const* texts, uint32_t num_texts, const char* op, const char* path, nw_error* error);

// ---- slots: the instance and its device ----

// "4 threads", or "2 of 4 threads" where the application has lowered the number.
std::string threads_text(const nw_host& host) {
  const bool says = host.struct_size > offsetof(nw_host, usable_threads);  // hosts since ABI 1.1
  const uint32_t usable = says ? host.usable_threads(host.ctx) : host.num_threads;
  const std::string all = std::to_string(host.num_threads) + (host.num_threads == 1 ? " thread" : " threads");
  return usable == host.num_threads ? all : std::to_string(usable) + " of " + all;
}

int32_t program_source(void* self, const char* text, char* out, uint64_t size, uint64_t* needed, nw_error* error) {
  return guarded(error, [&] {
    if (text == nullptr) refuse(NW_INVALID, -1, "'text' is NULL; expected the text of a program");
    give_text(source_of_program(instance_of(self), text), out, size, needed);
  });
}
int32_t program_compiler(void*, char* out, uint64_t size, uint64_t* needed, nw_error* error) {
  return guarded(error, [&] { give_text(compiler_description(), out, size, needed); });
}

int32_t create(const nw_host* host, void** self, nw_error* error) {
  return guarded(error, [&] {
    if (host == nullptr || self == nullptr)
      refuse(NW_INVALID, -1, "cpu: create(): %s is NULL; expected a non-NULL pointer", host == nullptr ? "host" : "self");
    const Target& target = choose_target();
    auto* const made = new CpuInstance{
        {host, index_of_target(usable_bit(target)), target.bf16_products, target.name, std::make_shared<Programs>()},
        &target,
        {},
        {}};
    made->source = {sizeof(nw_program_source), 0, made, program_source, program_compiler};
    made->exporter = {sizeof(nw_program_exporter), 0, made, write_plugin};
    *self = made;
  });
}

void destroy(void* self) { delete static_cast<CpuInstance*>(self); }

int32_t device_count(void*, int32_t* count, nw_error*) {
  *count = 1;
  return NW_OK;
}

int32_t device_info(void* self, int32_t device_id, nw_device_info* out, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    const CpuInstance& instance = instance_of(self);
    nw_device_info info{};
    std::snprintf(info.name, sizeof(info.name), "%s", cpu_model().c_str());
    std::snprintf(info.arch, sizeof(info.arch), "%s, %s", instance.chosen->label, threads_text(*instance.host).c_str());
    info.total_memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    write_sized(out, info);
  });
}

// ---- slots: memory ----

int32_t alloc(void*, int32_t device_id, uint64_t size, void* stream, void** data, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    check_stream(stream);
    constexpr uint64_t kAlign = NW_WORKSPACE_ALIGN;
    if (size == 0) {
      *data = nullptr;
      return;
    }
    void* memory = size > PTRDIFF_MAX - kAlign ? nullptr : std::aligned_alloc(kAlign, (size + kAlign - 1) / kAlign * kAlign);
    if (memory == nullptr)
      refuse(NW_OUT_OF_MEMORY, -1, "cpu: cannot allocate %llu bytes of host memory", static_cast<unsigned long long>(size));
    *data = memory;
  });
}

int32_t free_memory(void*, int32_t device_id, void* data, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    check_stream(stream);
    std::free(data);
  });
}

bool is_host(DLDevice device) {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost || device.device_type == kDLROCMHost;
}

int32_t copy(void*, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_stream(stream);
    if (!is_host(to) || !is_host(from))
      refuse(NW_UNSUPPORTED, -1, "cpu: a copy from device type %d to %d; the cpu backend copies host memory only",
             static_cast<int>(from.device_type), static_cast<int>(to.device_type));
    if (size == 0) return;
    if (dst == nullptr || src == nullptr)
      refuse(NW_INVALID, -1, "cpu: copy: %s is NULL; expected a non-NULL pointer", dst == nullptr ? "dst" : "src");
    const uint64_t last = std::max(reinterpret_cast<uintptr_t>(dst), reinterpret_cast<uintptr_t>(src));
    if (size > PTRDIFF_MAX || last + size < last)
      refuse(NW_INVALID, -1, "cpu: a copy of %llu bytes leaves the address space", static_cast<unsigned long long>(size));
    std::memmove(dst, src, size);
  });
}

// ---- slots: the one stream, NULL ----

int32_t stream_create(void*, int32_t device_id, void** stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    *stream = nullptr;
  });
}

int32_t stream_check(void*, int32_t device_id, void* stream, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    check_stream(stream);
  });
}

int32_t stream_wait(void*, int32_t device_id, void* waiter, void* signaler, nw_error* error) {
  return guarded(error, [&] {
    check_device(device_id);
    check_stream(waiter);
    check_stream(signaler);
  });
}

// ---- slots: ops ----

int32_t plan(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  return guarded(error, [&] {
    const Op& op = find_op(kOps, *sig, kDLCPU);
    check_device(sig->device.device_id);
    plan_op<Instance>(op, instance_of(self), *sig, out, info);
  });
}

void plan_free(void*, void* plan) { delete static_cast<Plan*>(plan); }

int32_t launch(void*, const void* plan, const nw_call* call, nw_error* error) {
  return guarded(error, [&] {
    check_stream(call->stream);
    const FloatMode mode;
    static_cast<const Plan*>(plan)->launch(*call);
  });
}

// ---- slots: tensor programs ----

int32_t plan_program(void* self, const nw_program_text* program, const nw_sig* sig, void** out, nw_plan_info* info,
                     nw_error* error) {
  return guarded(error, [&] {
    check_signature(*sig, kDLCPU);
    check_device(sig->device.device_id);
    if (program->flags != 0)
      refuse(NW_UNSUPPORTED, -1, "%s: the program's flags are 0x%x; this backend knows none", sig->op, program->flags);
    const char* text = program->scheduled != nullptr ? program->scheduled : program->text;
    give_plan(plan_program(instance_of(self), text, *sig, out == nullptr), *sig, out, info);
  });
}

int32_t write_plugin(void* self, const char* const* texts, uint32_t num_texts, const char* op, const char* path, nw_error* error) {
  return guarded(error, [&] {
    const CpuInstance& instance = instance_of(self);
    export_programs(instance, instance.chosen->label, {texts, texts + num_texts}, op == nullptr ? "" : op, path);
  });
}

const void* extension(void* self, const char* name) {
  const CpuInstance& instance = instance_of(self);
  if (std::string_view(name) == "program_source/1") return &instance.source;
  return std::string_view(name) == "program_export/1" ? &instance.exporter : nullptr;
}

// ---- the table ----

const nw_plugin* table() {
  static const Declarations declarations(kOps);
  static const nw_plugin plugin = {
      .struct_size = sizeof(nw_plugin),
      .abi_major = NW_ABI_MAJOR,
      .name = "cpu",
      .version = NARROWS_CPU_VERSION,
      .device_type = kDLCPU,
      .pinned_type = 0,
      .managed_type = 0,
      .num_ops = std::size(kOps),
      .ops = declarations.pointers.data(),
      .create = create,
      .destroy = destroy,
      .device_count = device_count,
      .device_info = device_info,
      .alloc = alloc,
      .free = free_memory,
      .copy = copy,
      .stream_create = stream_create,
      .stream_destroy = stream_check,
      .stream_sync = stream_check,
      .stream_wait = stream_wait,
      .infer = nullptr,
      .plan = plan,
      .plan_free = plan_free,
      .launch = launch,
      .extension = extension,
      .plan_program = plan_program,
      .program_kernels = kProgramKernels,
  };
  return &plugin;
}

}  // namespace
}  // namespace narrows::cpu

extern "C" const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  using namespace narrows::cpu;
  return query("cpu", host_major, error, table);
}
