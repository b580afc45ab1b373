/* SPDX-License-Identifier: Apache-2.0 */
/* exported.c -- the fixed part of a plugin that nw_program_export() writes: planning and launching of compiled programs by the C
 * ABI alone. export.cpp puts the ABI's headers and the kernels' prelude (c_prelude.cpp) in front of it, and what is particular to
 * the programs (export_text.cpp) at the line "TABLES". Nothing of libnarrows or the cpu backend is needed where the plugin runs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMS = 64, PLACE_ALIGN = 64 };

/* ---- what the tables are made of ---- */

/* What an index can be: from least to greatest. Of sizes alone both are its value. */
typedef struct range {
  wide least, greatest;
} range;

/* A buffer of one call: a tensor, or an allocation. Strides in elements. */
struct placed {
  i64 shape[NW_MAX_NDIM], strides[NW_MAX_NDIM], in_strides[NW_MAX_NDIM];
  u64 offset; /* of an allocation: into the shared part of the workspace, or into a thread's */
  i64 item;   /* bytes of an element */
  int32_t input, output, ndim;
  u8 present, is_private, copied; /* copied: an in-out tensor whose output is not its input */
};

/* A call while it is planned. */
struct state {
  const nw_sig* sig;
  nw_error* error;
  int32_t status;
  i64* numbers; /* sizes and integer params */
  range* loops;
  struct placed* placed;
  u64 shared_bytes, private_bytes;
  unsigned char params[MAX_PARAMS * 8];
};

struct tensor {
  const char* name;
  int32_t input, output, ndim, item; /* input, output: its number there, or -1 */
  int32_t optional;                  /* its bit in the mask of what is present, or -1 */
};
struct size { /* a number that a dimension of a tensor gives */
  int32_t number, tensor, dimension;
};
struct param { /* kind: 'd' f64, 'f' f32, 'b' bool, 'i' i64; number: of an integer one, else -1 */
  int32_t kind, number;
};

/* A program compiled for tensors that are present, and dense or of any strides. */
struct variant {
  void (*entry)(char* const* base, const i64* numbers, const struct services* services);
  u32 num_buffers, num_numbers;
  const u16* buffers;
  void (*numbers)(struct state* s, i64* out);
  const void* const* functions;
};
struct program {
  const nw_op* op;
  const struct tensor* tensors;
  const struct size* sizes;
  const struct param* params;
  u32 num_tensors, num_sizes, num_params, num_placed, num_numbers, num_loops;
  void (*place)(struct state* s);        /* allocations */
  void (*check)(struct state* s);        /* that no index leaves 64 bits */
  const struct variant* const* variants; /* 2 * mask of what is present, + 1 where a tensor is not dense */
};

/* ---- errors ---- */

static int32_t write_error(nw_error* error, int32_t status, int32_t argument, const char* format, ...) {
  if (error == NULL) return status;
  va_list values;
  va_start(values, format);
  error->status = status;
  error->argument = argument;
  error->native_code = 0;
  vsnprintf(error->message, sizeof error->message, format, values);
  va_end(values);
  return status;
}
/* The first failure of a planned call stays. */
#define REFUSE(s, code, argument, ...) \
  ((s)->status != NW_OK ? (void)0 : (void)((s)->status = write_error((s)->error, code, argument, __VA_ARGS__)))

/* ---- indices ---- */

static range con(i64 value) { return (range){value, value}; }
static range num(const struct state* s, int i) { return con(s->numbers[i]); }
static wide smaller(wide a, wide b) { return a < b ? a : b; }
static wide larger(wide a, wide b) { return a > b ? a : b; }
static wide size_of(range a) { return larger(a.greatest, -a.least); }

static range seen(struct state* s, range r) {
  const wide limit = (wide)1 << 62;
  if (r.least >= -limit && r.greatest <= limit) return r;
  REFUSE(s, NW_INVALID, -1, "%s: an index may leave the numbers from -2^62 to 2^62; expected smaller tensors", s->sig->op);
  return con(0);
}
static range around(struct state* s, wide a, wide b, wide c, wide d) {
  return seen(s, (range){smaller(smaller(a, b), smaller(c, d)), larger(larger(a, b), larger(c, d))});
}
static range add(struct state* s, range a, range b) { return seen(s, (range){a.least + b.least, a.greatest + b.greatest}); }
static range sub(struct state* s, range a, range b) { return seen(s, (range){a.least - b.greatest, a.greatest - b.least}); }
static range mul(struct state* s, range a, range b) {
  return around(s, a.least * b.least, a.least * b.greatest, a.greatest * b.least, a.greatest * b.greatest);
}
static wide divided(wide x, wide y) { return x / y - (x % y != 0 && (x % y < 0) != (y < 0)); }
static range floor_div(struct state* s, range a, range b) {
  if (b.least <= 0 && b.greatest >= 0) return seen(s, (range){-size_of(a) - 1, size_of(a) + 1});
  return around(s, divided(a.least, b.least), divided(a.least, b.greatest), divided(a.greatest, b.least),
                divided(a.greatest, b.greatest));
}
static range remainder_of(struct state* s, range a, range b) {
  if (a.least == a.greatest && b.least == b.greatest && b.least != 0) {
    const wide r = a.least % b.least;
    return seen(s, con((i64)(r != 0 && (r < 0) != (b.least < 0) ? r + b.least : r)));
  }
  return seen(s, (range){smaller(0, -size_of(b)), size_of(b)});
}
static range minimum(struct state* s, range a, range b) {
  return seen(s, (range){smaller(a.least, b.least), smaller(a.greatest, b.greatest)});
}
static range maximum(struct state* s, range a, range b) {
  return seen(s, (range){larger(a.least, b.least), larger(a.greatest, b.greatest)});
}
static range either(struct state* s, range a, range b) {
  return seen(s, (range){smaller(a.least, b.least), larger(a.greatest, b.greatest)});
}
static range upto(range extent) { return (range){0, larger(extent.greatest - 1, 0)}; }
static double trips(range extent) { return extent.greatest > 0 ? (double)extent.greatest : 0; }

/* ---- allocations and params ---- */

static void allocate(struct state* s, int at, int is_private, i64 item, int ndim, const range* dims) {
  struct placed* place = &s->placed[at];
  u64 *total = is_private ? &s->private_bytes : &s->shared_bytes, bytes = (u64)item;
  i64 elements = 1;
  *place = (struct placed){.offset = *total, .item = item, .input = -1, .output = -1, .ndim = ndim, .present = 1};
  place->is_private = (u8)is_private;
  for (int d = ndim; d-- > 0;) {
    if (dims[d].least != dims[d].greatest || dims[d].least < 0) {
      REFUSE(s, NW_INVALID, -1, "%s: an allocation has an extent that is negative, or divided by 0", s->sig->op);
      return;
    }
    const i64 extent = (i64)larger(dims[d].least, 1);
    place->shape[d] = (i64)dims[d].least;
    place->strides[d] = elements;
    if (__builtin_mul_overflow(elements, extent, &elements) || __builtin_mul_overflow(bytes, (u64)extent, &bytes)) bytes = ~0ULL;
    if (bytes > 1ULL << 62) break;
  }
  if (bytes > 1ULL << 62 || *total + bytes > 1ULL << 62) {
    REFUSE(s, NW_OUT_OF_MEMORY, -1, "%s: its allocations have more bytes than there are", s->sig->op);
    return;
  }
  *total = (*total + bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

/* A param's bytes as an element of its dtype. */
static i64 param(const struct state* s, int i, int kind) {
  i64 out = 0;
  double real;
  memcpy(&out, s->params + 8 * i, 8);
  memcpy(&real, &out, 8);
  if (kind == 'b') out = out != 0;
  if (kind == 'f') {
    const float single = (float)real;
    out = 0;
    memcpy(&out, &single, 4);
  }
  return out;
}
static i64 bits(double value) {
  i64 out;
  memcpy(&out, &value, 8);
  return out;
}

/* ---- the programs ---- */

/* TABLES */

/* ---- planning ---- */

struct instance {
  const nw_host* host;
};
struct plan {
  const struct program* program;
  const struct variant* variant;
  const struct instance* instance;
  struct placed* placed;
  i64* numbers;
  u64 shared_bytes, private_bytes;
  int is_empty;
};

static void read_params(struct state* s, const struct program* p) {
  const unsigned char* blob = s->sig->params;
  const u64 known = 8 * p->num_params, size = s->sig->params_size;
  if (size != 0) memcpy(s->params, blob, size < known ? size : known);
  for (u64 i = known; i < size; ++i)
    if (blob[i] != 0) {
      REFUSE(s, NW_UNSUPPORTED, -1, "%s: params byte %d is %d; expected 0 after %d bytes", s->sig->op, (int)i, blob[i], (int)known);
      return;
    }
  for (u32 i = 0; i < p->num_params; ++i)
    if (p->params[i].number >= 0) s->numbers[p->params[i].number] = param(s, (int)i, 'i');
}

static const nw_tensor_sig* input_of(const nw_sig* sig, int32_t i) {
  return (u32)i < sig->num_inputs && sig->tensors[i].ndim >= 0 ? &sig->tensors[i] : NULL;
}
static const nw_tensor_sig* output_of(const nw_sig* sig, int32_t i) {
  const nw_tensor_sig* t = &sig->tensors[sig->num_inputs + (u32)i];
  return (u32)i < sig->num_outputs && t->ndim >= 0 ? t : NULL;
}

/* Dtypes and shapes the host has compared with the declaration. */
static void read_tensor(struct state* s, const struct tensor* t, struct placed* place) {
  const nw_tensor_sig* sig = t->output >= 0 ? output_of(s->sig, t->output) : input_of(s->sig, t->input);
  *place = (struct placed){.item = t->item, .input = t->input, .output = t->output, .ndim = t->ndim, .present = sig != NULL};
  if (sig == NULL) {
    if (t->optional < 0) REFUSE(s, NW_INVALID, -1, "%s: '%s' is absent; it must be given", s->sig->op, t->name);
    return;
  }
  if (sig->ndim != t->ndim) {
    REFUSE(s, NW_INVALID, -1, "%s: '%s' has %d dimensions; expected %d", s->sig->op, t->name, sig->ndim, t->ndim);
    return;
  }
  for (int d = 0; d < t->ndim; ++d) place->shape[d] = sig->shape[d], place->strides[d] = sig->strides[d];
  if (t->output < 0) return;
  if (sig->alias_of >= 0 && sig->alias_of != t->input)
    REFUSE(s, NW_INVALID, (int32_t)s->sig->num_inputs + t->output, "%s: output '%s' is another input; expected memory of its own%s",
           s->sig->op, t->name, t->input < 0 ? "" : ", or its own input");
  if (t->input < 0) return;
  const nw_tensor_sig* in = input_of(s->sig, t->input);
  place->copied = in != NULL && sig->alias_of != t->input;
  for (int d = 0; in != NULL && d < t->ndim; ++d) place->in_strides[d] = in->strides[d];
}

static int is_dense(const struct placed* place) {
  i64 step = 1;
  for (int d = place->ndim; d-- > 0;) {
    if (place->shape[d] > 1 && place->strides[d] != step) return 0;
    step *= place->shape[d];
  }
  return 1;
}

static void bind(struct state* s, const struct program* p) {
  read_params(s, p);
  for (u32 i = 0; i < p->num_tensors && s->status == NW_OK; ++i) read_tensor(s, &p->tensors[i], &s->placed[i]);
  for (u32 i = 0; i < p->num_sizes && s->status == NW_OK; ++i)
    s->numbers[p->sizes[i].number] = s->placed[p->sizes[i].tensor].shape[p->sizes[i].dimension];
  if (s->status == NW_OK) p->place(s);
  if (s->status == NW_OK) p->check(s);
}

static const struct variant* choose(const struct state* s, const struct program* p, int* is_empty) {
  u32 mask = 0, strided = 0;
  *is_empty = 1;
  for (u32 i = 0; i < p->num_tensors; ++i) {
    const struct placed* place = &s->placed[i];
    if (!place->present) continue;
    if (p->tensors[i].optional >= 0) mask |= 1U << p->tensors[i].optional;
    strided |= !is_dense(place);
    int has_elements = 1;
    for (int d = 0; d < place->ndim; ++d) has_elements &= place->shape[d] != 0;
    if (place->output >= 0 && has_elements) *is_empty = 0;
  }
  return p->variants[2 * mask + strided];
}

static u64 aligned(u64 bytes) { return (bytes + NW_WORKSPACE_ALIGN - 1) / NW_WORKSPACE_ALIGN * NW_WORKSPACE_ALIGN; }

static int32_t make_plan(const struct program* p, struct state* s, const struct instance* instance, void** out,
                         nw_plan_info* info) {
  bind(s, p);
  if (s->status != NW_OK) return s->status;
  const u64 threads = instance->host->num_threads, own = aligned(s->private_bytes);
  if (own > (1ULL << 62) / threads)
    return write_error(s->error, NW_OUT_OF_MEMORY, -1, "%s: needs more bytes than the address space has", s->sig->op);
  if (info != NULL) {
    const nw_plan_info found = {info->struct_size, NW_PLAN_CAPTURABLE, aligned(s->shared_bytes) + threads * own, NULL, NULL};
    const size_t known = offsetof(nw_plan_info, backend); /* which the host fills in */
    memcpy(info, &found, info->struct_size < known ? info->struct_size : known);
  }
  if (out == NULL) return NW_OK;
  int is_empty = 0;
  const struct variant* variant = choose(s, p, &is_empty);
  const size_t placed_bytes = p->num_placed * sizeof(struct placed);
  struct plan* plan = calloc(1, sizeof *plan + placed_bytes + variant->num_numbers * sizeof(i64));
  if (plan == NULL) return write_error(s->error, NW_OUT_OF_MEMORY, -1, "%s: no memory for a plan", s->sig->op);
  *plan = (struct plan){p, variant, instance, (struct placed*)(plan + 1), NULL, aligned(s->shared_bytes), own, is_empty};
  plan->numbers = (i64*)((char*)plan->placed + placed_bytes);
  memcpy(plan->placed, s->placed, placed_bytes);
  variant->numbers(s, plan->numbers);
  *out = plan;
  return NW_OK;
}

static int32_t plan_call(void* self, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  const struct program* p = NULL;
  for (u32 i = 0; i < NUM_PROGRAMS; ++i)
    if (strcmp(programs[i].op->name, sig->op) == 0) p = &programs[i];
  if (p == NULL) return write_error(error, NW_UNSUPPORTED, -1, "no op '%s'", sig->op);
  if (sig->flags & ~(u32)NW_DETERMINISTIC)
    return write_error(error, NW_UNSUPPORTED, -1, "%s: flags are 0x%x; expected 0 or 1", sig->op, sig->flags);
  if (sig->kernel != NULL)
    return write_error(error, NW_UNSUPPORTED, -1, "%s: kernel is '%s'; expected none: it has one alone", sig->op, sig->kernel);
  if (sig->device.device_type != kDLCPU || sig->device.device_id != 0)
    return write_error(error, NW_UNSUPPORTED, -1, "%s: device %d:%d; expected the CPU, 1:0", sig->op, (int)sig->device.device_type,
                       sig->device.device_id);
  struct state s = {.sig = sig, .error = error};
  s.numbers = calloc(p->num_numbers + 1, sizeof *s.numbers);
  s.loops = calloc(p->num_loops + 1, sizeof *s.loops);
  s.placed = calloc(p->num_placed + 1, sizeof *s.placed);
  const int32_t status = s.numbers == NULL || s.loops == NULL || s.placed == NULL
                             ? write_error(error, NW_OUT_OF_MEMORY, -1, "%s: no memory to plan", sig->op)
                             : make_plan(p, &s, self, out, info);
  free(s.numbers);
  free(s.loops);
  free(s.placed);
  return status;
}
static void plan_free(void* self, void* plan) {
  (void)self;
  free(plan);
}

/* ---- launching ---- */

struct context {
  const struct plan* plan;
  const nw_call* call;
};

static char* address(const DLTensor* t) { return t == NULL || t->data == NULL ? NULL : (char*)t->data + t->byte_offset; }

static void enter(void* context, i64 slot, char** base) {
  const struct context* here = context;
  const struct plan* plan = here->plan;
  for (u32 i = 0; i < plan->variant->num_buffers; ++i) {
    const struct placed* place = &plan->placed[plan->variant->buffers[i]];
    if (place->is_private)
      base[i] = (char*)here->call->workspace + plan->shared_bytes + (u64)slot * plan->private_bytes + place->offset;
  }
}

static void copy_strided(const struct placed* place, int d, char* to, const char* from) {
  if (d == place->ndim) {
    memcpy(to, from, (size_t)place->item);
    return;
  }
  for (i64 i = 0; i < place->shape[d]; ++i)
    copy_strided(place, d + 1, to + i * place->strides[d] * place->item, from + i * place->in_strides[d] * place->item);
}

struct loop {
  void (*body)(void* arg, i64 slot, i64 begin, i64 end);
  void* arg;
  i64 n, piece, next;
};
static void run_slots(void* arg, int64_t first, int64_t last) {
  struct loop* loop = arg;
  for (int64_t slot = first; slot < last; ++slot)
    for (i64 begin; (begin = __atomic_fetch_add(&loop->next, loop->piece, __ATOMIC_RELAXED)) < loop->n;)
      loop->body(loop->arg, slot, begin, begin + loop->piece < loop->n ? begin + loop->piece : loop->n);
}
/* Slots own their part of the workspace; pieces go to whoever is free. Waking threads pays from 1e6 multiply-adds on. */
static void run_parallel(void* context, i64 n, double cost, void (*body)(void*, i64, i64, i64), void* arg) {
  const nw_host* host = ((const struct context*)context)->plan->instance->host;
  const double worth = 1e6;
  const i64 threads = host->num_threads, slots = cost * (double)n < worth ? 1 : n < threads ? n : threads;
  if (n <= 0) return;
  if (slots == 1) {
    body(arg, 0, 0, n);
    return;
  }
  i64 piece = (i64)(worth / 4 / (cost > 1 ? cost : 1)), most = n / (4 * slots);
  if (most < 1) most = 1;
  piece = piece < 1 ? 1 : piece > most ? most : piece;
  struct loop loop = {body, arg, n, piece, 0};
  host->parallel_for(host->ctx, slots, 1, run_slots, &loop);
}

typedef void (*function)(const void* a, const void* b, const void* c, void* out, i64 n, double alpha);
static void call_function(const void* f, const void* a, const void* b, const void* c, void* out, i64 n, double alpha) {
  ((function)f)(a, b, c, out, n, alpha);
}

/* The mode that kernels are written for: to nearest, subnormal numbers kept, nothing trapped. Gives the caller's. */
#if defined(__x86_64__)
static u32 get_mode(void) { return __builtin_ia32_stmxcsr(); }
static void set_mode(u32 mode) { __builtin_ia32_ldmxcsr(mode); }
static u32 plain_mode(u32 mode) { return (mode & ~0xffc0U) | 0x1f80U; }
#elif defined(__aarch64__)
static u64 get_mode(void) {
  u64 mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
static void set_mode(u64 mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
static u64 plain_mode(u64 mode) { return mode & ~0x07c89f00ULL; }
#else
static u32 get_mode(void) { return 0; }
static void set_mode(u32 mode) { (void)mode; }
static u32 plain_mode(u32 mode) { return mode; }
#endif

static int32_t launch(void* self, const void* planned, const nw_call* call, nw_error* error) {
  (void)self, (void)error;
  const struct plan* plan = planned;
  if (plan->is_empty) return NW_OK;
  const struct variant* variant = plan->variant;
  struct context context = {plan, call};
  char* base[variant->num_buffers + 1];
  for (u32 i = 0; i < variant->num_buffers; ++i) {
    const struct placed* place = &plan->placed[variant->buffers[i]];
    if (place->output >= 0)
      base[i] = address(call->outputs[place->output]);
    else if (place->input >= 0)
      base[i] = place->present ? address(call->inputs[place->input]) : NULL;
    else
      base[i] = (char*)call->workspace + place->offset;
  }
  enter(&context, 0, base);
  for (u32 i = 0; i < plan->program->num_tensors; ++i) {
    const struct placed* place = &plan->placed[i];
    if (place->copied) copy_strided(place, 0, address(call->outputs[place->output]), address(call->inputs[place->input]));
  }
  const struct services services = {&context, run_parallel, enter, call_function, variant->functions};
  const __typeof__(get_mode()) mode = get_mode();
  if (mode != plain_mode(mode)) set_mode(plain_mode(mode));
  variant->entry(base, plan->numbers, &services);
  if (mode != plain_mode(mode)) set_mode(mode);
  return NW_OK;
}

/* ---- the device: host memory, one stream ---- */

static int32_t known(int32_t id, const void* stream, nw_error* error) {
  if (id != 0) return write_error(error, NW_INVALID, -1, "device %d was asked for; expected 0", id);
  return stream == NULL ? NW_OK
                        : write_error(error, NW_INVALID, -1, "stream %p was given; the only stream of the CPU is NULL", stream);
}
static int32_t create(const nw_host* host, void** self, nw_error* error) {
  const char* missing = missing_feature();
  if (missing != NULL)
    return write_error(error, NW_UNAVAILABLE, -1,
                       PLUGIN ": it was exported for " TARGET
                              ", and this CPU lacks %s; export it with NARROWS_CPU_TARGET set to a target that this CPU has",
                       missing);
  struct instance* made = malloc(sizeof *made);
  if (made == NULL) return write_error(error, NW_OUT_OF_MEMORY, -1, PLUGIN ": no memory for an instance");
  made->host = host;
  *self = made;
  return NW_OK;
}
static void destroy(void* self) { free(self); }
static int32_t device_count(void* self, int32_t* count, nw_error* error) {
  (void)self, (void)error;
  *count = 1;
  return NW_OK;
}
static int32_t device_info(void* self, int32_t id, nw_device_info* out, nw_error* error) {
  (void)self;
  if (known(id, NULL, error) != NW_OK) return NW_INVALID;
  const nw_device_info info = {out->struct_size, 0, "host memory", TARGET_LABEL, {0}, 0};
  memcpy(out, &info, out->struct_size < sizeof info ? out->struct_size : sizeof info);
  return NW_OK;
}
static int32_t alloc_memory(void* self, int32_t id, uint64_t size, void* stream, void** data, nw_error* error) {
  (void)self;
  if (known(id, stream, error) != NW_OK) return NW_INVALID;
  *data = NULL;
  if (size == 0) return NW_OK;
  *data = size > 1ULL << 62 ? NULL : aligned_alloc(NW_WORKSPACE_ALIGN, aligned(size));
  return *data != NULL ? NW_OK : write_error(error, NW_OUT_OF_MEMORY, -1, "cannot allocate %llu bytes of host memory", (u64)size);
}
static int32_t free_memory(void* self, int32_t id, void* data, void* stream, nw_error* error) {
  (void)self;
  if (known(id, stream, error) != NW_OK) return NW_INVALID;
  free(data);
  return NW_OK;
}
static int32_t copy(void* self, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream,
                    nw_error* error) {
  (void)self;
  if (to.device_type != kDLCPU || from.device_type != kDLCPU)
    return write_error(error, NW_UNSUPPORTED, -1, "a copy; expected CPU memory");
  if (known(to.device_id | from.device_id, stream, error) != NW_OK) return NW_INVALID;
  if (size != 0) memmove(dst, src, size);
  return NW_OK;
}
static int32_t stream_create(void* self, int32_t id, void** stream, nw_error* error) {
  (void)self;
  *stream = NULL;
  return known(id, NULL, error);
}
static int32_t stream_check(void* self, int32_t id, void* stream, nw_error* error) {
  (void)self;
  return known(id, stream, error);
}
static int32_t stream_wait(void* self, int32_t id, void* waiter, void* signaler, nw_error* error) {
  (void)self;
  return known(id, waiter != NULL ? waiter : signaler, error);
}

static const nw_plugin table = {.struct_size = sizeof(nw_plugin),
                                .abi_major = NW_ABI_MAJOR,
                                .name = PLUGIN,
                                .device_type = kDLCPU,
                                .num_ops = NUM_PROGRAMS,
                                .ops = ops,
                                .create = create,
                                .destroy = destroy,
                                .device_count = device_count,
                                .device_info = device_info,
                                .alloc = alloc_memory,
                                .free = free_memory,
                                .copy = copy,
                                .stream_create = stream_create,
                                .stream_destroy = stream_check,
                                .stream_sync = stream_check,
                                .stream_wait = stream_wait,
                                .plan = plan_call,
                                .plan_free = plan_free,
                                .launch = launch};

const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  if (host_major == NW_ABI_MAJOR) return &table;
  write_error(error, NW_UNSUPPORTED, -1, PLUGIN ": the host speaks ABI %u and this plugin ABI %d", host_major, NW_ABI_MAJOR);
  return NULL;
}
