// SPDX-License-Identifier: Apache-2.0
// plugin.cpp -- a stranger's plugin: ops of its own alone, on the CPU, in every form that a declaration has (params, a numbered
// field, an optional input, variants, in place, batches, workspace, a backward op, no shape rule). It proves [plugin] and [own]: as
// it is they must pass, and with each fault that ACME_FAULT names the test that is about it must fail. CMakeLists.txt has the list.
#include <narrows/plugin.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

bool faulty(const char* fault) {
  const char* const wanted = std::getenv("ACME_FAULT");
  return wanted != nullptr && std::strcmp(wanted, fault) == 0;
}

__attribute__((format(printf, 4, 5))) int32_t fail(nw_error* error, int32_t status, int32_t argument, const char* format, ...) {
  if (error == nullptr) return status;
  *error = {status, argument, 0, {}};
  if (faulty("message")) return status;
  va_list values;
  va_start(values, format);
  std::vsnprintf(error->message, sizeof error->message, format, values);
  va_end(values);
  return status;
}

// ---- tensors ----

struct View {
  int32_t ndim;
  int64_t shape[NW_MAX_NDIM], strides[NW_MAX_NDIM];
  int64_t size() const {
    int64_t n = 1;
    for (int32_t d = 0; d < ndim; ++d) n *= shape[d];
    return n;
  }
  // Of element i in C order, in elements.
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (int32_t d = ndim; d-- > 0; i /= shape[d]) at += i % shape[d] * strides[d];
    return at;
  }
};

View view_of(const nw_tensor_sig& t) {
  View v{t.ndim, {}, {}};
  for (int32_t d = 0; d < t.ndim; ++d) v.shape[d] = t.shape[d], v.strides[d] = t.strides[d];
  bool forwards = true;  // else it would leave its memory, and crash before it is judged
  for (int32_t d = 0; d < t.ndim; ++d) forwards &= t.strides[d] > 0;
  if (faulty("strides") && forwards)
    for (int64_t d = t.ndim, n = 1; d-- > 0; n *= t.shape[d]) v.strides[d] = n;
  return v;
}

template <class T>
T* data(const DLTensor* t) {
  return t == nullptr ? nullptr : reinterpret_cast<T*>(static_cast<char*>(t->data) + t->byte_offset);
}

// ---- ops ----

struct Params {  // of scale_add; repeat has `times` alone
  double alpha;
  int32_t mode;  // 0 plain, 1 negated
  int32_t unused;
};
struct RepeatParams {
  int64_t times;
};

struct Plan {
  int op;
  bool f64;
  bool second_kernel;
  View views[8];
  Params params;
  int64_t times;
};

enum { kScaleAdd, kScaleAddBackward, kMatmul, kMatmulBackward, kAddBias, kRepeat, kNumOps };

std::atomic<int> launches{0}, destroyed{0}, inside{0}, planned{0};

template <class T>
void scale_add(const Plan& p, const nw_call& c, int64_t begin, int64_t end) {
  const T alpha = static_cast<T>(p.params.mode == 1 ? -p.params.alpha : p.params.alpha);
  const T *x = data<T>(c.inputs[0]), *y = data<T>(c.inputs[1]);
  T* const out = data<T>(c.outputs[0]);
  if (faulty("past") && end == p.views[0].size() && end != begin)
    static_cast<void>(*const_cast<const volatile T*>(x + p.views[0].offset(end - 1) + 1));
  const int64_t last = faulty("stale") && p.views[0].size() == end && end > 1 ? end - 1 : end;
  for (int64_t i = begin; i < last; ++i) {
    T& to = out[p.views[2].offset(i)];
    if (faulty("inplace")) to = 0;
    T value = alpha * x[p.views[0].offset(i)] + y[p.views[1].offset(i)];
    if (faulty("batch")) value *= static_cast<T>(p.views[0].ndim + 1);
    if (faulty("random")) value += static_cast<T>(launches % 7) * static_cast<T>(1e-7);
    if (faulty("loop") && i == begin) value += 1;
    if (faulty("broadcast") && p.views[0].ndim > 0 && p.views[0].shape[0] > 1 && p.views[0].strides[0] == 0) value += 1;
    if (faulty("kernel") && p.second_kernel) value += static_cast<T>(0.01);
    to = value;
  }
}

// grad_x = alpha * grad, grad_y = grad; either may be unwanted.
template <class T>
void scale_add_backward(const Plan& p, const nw_call& c, int64_t begin, int64_t end) {
  const T alpha = static_cast<T>(faulty("backward") ? 1 : p.params.mode == 1 ? -p.params.alpha : p.params.alpha);
  const uint32_t first_output = c.num_inputs;
  if (faulty("unwanted") && c.outputs[1] == nullptr) return;
  for (int64_t i = begin; i < end; ++i)
    for (uint32_t k = 0; k < 2; ++k) {
      T* const to = data<T>(c.outputs[k]);
      if (to != nullptr)
        to[p.views[first_output + k].offset(i)] = (k == 0 ? alpha : T{1}) * data<T>(c.inputs[0])[p.views[0].offset(i)];
    }
}

// Sums of products of a (rows, depth) and b (depth, columns), by their strides.
template <class T>
struct Matrix {
  const T* base;
  int64_t row, column;
  T at(int64_t i, int64_t j) const { return base[i * row + j * column]; }
};
template <class T>
Matrix<T> matrix(const View& v, const DLTensor* t, bool transposed = false) {
  return transposed ? Matrix<T>{data<T>(t), v.strides[1], v.strides[0]} : Matrix<T>{data<T>(t), v.strides[0], v.strides[1]};
}
template <class T>
void product(const Matrix<T>& a, const Matrix<T>& b, int64_t depth, const View& out, T* to, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < out.shape[1]; ++j) {
      T sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += a.at(i, k) * b.at(k, j);
      to[i * out.strides[0] + j * out.strides[1]] = sum;
    }
}

// b is copied to the workspace first, row after row.
template <class T>
void matmul(const Plan& p, const nw_call& c) {
  const int64_t depth = p.views[1].shape[0], columns = p.views[1].shape[1];
  T* const packed = static_cast<T*>(c.workspace);
  for (int64_t i = 0; i < depth * columns; ++i) packed[i] = data<T>(c.inputs[1])[p.views[1].offset(i)];
  product<T>(matrix<T>(p.views[0], c.inputs[0]), {packed, columns, 1}, depth, p.views[2], data<T>(c.outputs[0]), 0,
             p.views[2].shape[0]);
}

// inputs grad, a, b; outputs grad_a = grad b^T, grad_b = a^T grad.
template <class T>
void matmul_backward(const Plan& p, const nw_call& c) {
  const View *out = p.views + c.num_inputs, &grad = p.views[0];
  if (c.outputs[0] != nullptr)
    product<T>(matrix<T>(grad, c.inputs[0]), matrix<T>(p.views[2], c.inputs[2], true), grad.shape[1], out[0], data<T>(c.outputs[0]),
               0, out[0].shape[0]);
  if (c.outputs[1] != nullptr)
    product<T>(matrix<T>(p.views[1], c.inputs[1], true), matrix<T>(grad, c.inputs[0]), grad.shape[0], out[1], data<T>(c.outputs[1]),
               0, out[1].shape[0]);
}

template <class T>
void add_bias(const Plan& p, const nw_call& c, int64_t begin, int64_t end) {
  const T* const bias = c.num_inputs > 1 ? data<T>(c.inputs[1]) : nullptr;
  for (int64_t i = begin; i < end; ++i) {
    const T b = bias == nullptr ? T{0} : bias[p.views[1].offset(i % p.views[0].shape[1])];
    data<T>(c.outputs[0])[p.views[c.num_inputs].offset(i)] = data<T>(c.inputs[0])[p.views[0].offset(i)] + b;
  }
}

template <class T>
void repeat(const Plan& p, const nw_call& c, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    data<T>(c.outputs[0])[p.views[1].offset(i)] = data<T>(c.inputs[0])[p.views[0].offset(i % p.views[0].size())];
}

struct Task {
  const Plan& plan;
  const nw_call& call;
};
template <class T>
void piece(const Task& task, int64_t begin, int64_t end) {
  switch (task.plan.op) {
    case kScaleAdd: return scale_add<T>(task.plan, task.call, begin, end);
    case kScaleAddBackward: return scale_add_backward<T>(task.plan, task.call, begin, end);
    case kAddBias: return add_bias<T>(task.plan, task.call, begin, end);
    case kRepeat: return repeat<T>(task.plan, task.call, begin, end);
    case kMatmul: return matmul<T>(task.plan, task.call);
    default: return matmul_backward<T>(task.plan, task.call);
  }
}
void run_piece(void* arg, int64_t begin, int64_t end) {
  const Task& task = *static_cast<const Task*>(arg);
  task.plan.f64 ? piece<double>(task, begin, end) : piece<float>(task, begin, end);
}

// ---- declarations ----

constexpr DLDataType kF64{kDLFloat, 64, 1}, kI32{kDLInt, 32, 1}, kI64{kDLInt, 64, 1};
const char* const kModes[] = {"plain", "negated", nullptr};
const nw_param kAlpha{"alpha", kF64, offsetof(Params, alpha), nullptr, 1}, kMode{"mode", kI32, offsetof(Params, mode), kModes, 0},
    kTimes{"times", kI64, 0, nullptr, 2};
const nw_param *const kScaleFields[] = {&kAlpha, &kMode, nullptr}, *const kRepeatFields[] = {&kTimes, nullptr};
const char *const kXY[] = {"x", "y", nullptr}, *const kX[] = {"x", nullptr}, *const kXBias[] = {"x", "bias?", nullptr},
                  *const kOut[] = {"out", nullptr}, *const kBack[] = {"grad", "x?", "y?", "out?", nullptr},
                  *const kMatmulBack[] = {"grad", "a", "b", "out?", nullptr}, *const kGrads[] = {"grad_x?", "grad_y?", nullptr},
                  *const kVariants[] = {"loop", "unrolled", nullptr};

nw_op op(const char* name, uint32_t min, uint32_t max, const char* const* inputs, const char* const* outputs, uint32_t num_outputs,
         const char* rule) {
  nw_op o{};
  o.struct_size = sizeof o;
  o.name = name;
  o.min_inputs = min;
  o.max_inputs = max;
  o.inputs = inputs;
  o.num_outputs = num_outputs;
  o.outputs = outputs;
  o.shape_rule = rule;
  return o;
}

struct Ops {
  nw_op all[kNumOps] = {op("acme.scale_add/1", 2, 2, kXY, kOut, 1, "like 0"),
                        op("acme.scale_add_backward/1", 1, 4, kBack, kGrads, 2, "like 0 ; like 0"),
                        op("acme.matmul/1", 2, 2, kXY, kOut, 1, "M,K ; K,N -> M,N"),
                        op("acme.matmul_backward/1", 3, 4, kMatmulBack, kGrads, 2, "M,N ; M,K ; K,N ; ? -> M,K ; K,N"),
                        op("acme.add_bias/1", 1, 2, kXBias, kOut, 1, "N,C ; C? -> N,C"),
                        op("acme.repeat/1", 1, 1, kX, kOut, 1, nullptr)};
  const nw_op* pointers[kNumOps];
  Ops() {
    for (int i = 0; i < kNumOps; ++i) pointers[i] = &all[i];
    for (const int i : {kScaleAdd, kScaleAddBackward}) all[i].params_size = sizeof(Params), all[i].params = kScaleFields;
    all[kScaleAdd].flags = NW_OP_INPLACE | NW_OP_BATCHABLE;
    all[kScaleAdd].kernels = kVariants;
    all[kScaleAdd].backward = "acme.scale_add_backward/1";
    all[kMatmul].backward = "acme.matmul_backward/1";
    all[kMatmul].saved = faulty("saved") ? 19 : 3;
    all[kRepeat].params_size = sizeof(RepeatParams);
    all[kRepeat].params = kRepeatFields;
  }
};
const Ops& ops() {
  static const Ops declarations;
  return declarations;
}

// ---- plan and launch ----

int find_op(const char* name) {
  for (int i = 0; i < kNumOps; ++i)
    if (std::strcmp(ops().all[i].name, name) == 0) return i;
  return -1;
}

template <class Struct>
void give(Struct* to, Struct value, bool all) {
  value.struct_size = to->struct_size;
  std::memcpy(to, &value, all || to->struct_size > sizeof value ? sizeof value : to->struct_size);
}

// What stands behind the known fields of a longer struct, which is nobody's business here.
template <class Struct>
bool has_tail(const Struct* s) {
  return s->struct_size > sizeof *s && reinterpret_cast<const unsigned char*>(s)[sizeof *s] != 0;
}

int32_t read_params(const nw_sig& sig, uint64_t known, void* to, nw_error* error) {
  const auto* bytes = static_cast<const unsigned char*>(sig.params);
  for (uint64_t i = known; i < sig.params_size && !faulty("tail"); ++i)
    if (bytes[i] != 0) return fail(error, NW_UNSUPPORTED, -1, "params: byte %d is %d; expected 0", static_cast<int>(i), bytes[i]);
  if (sig.params_size != 0) std::memcpy(to, bytes, sig.params_size < known ? sig.params_size : known);
  return NW_OK;
}

int32_t check_dtypes(const nw_sig& sig, nw_error* error) {
  int32_t first = -1;
  for (int32_t i = 0; i < static_cast<int32_t>(sig.num_inputs + sig.num_outputs); ++i) {
    const nw_tensor_sig& t = sig.tensors[i];
    if (t.ndim < 0) continue;
    const bool known = t.dtype.code == kDLFloat && (t.dtype.bits == 32 || t.dtype.bits == 64);
    if (!known) return fail(error, NW_UNSUPPORTED, i, "dtype is code %d, bits %d; expected f32 or f64", t.dtype.code, t.dtype.bits);
    if (first < 0) first = i;
    if (t.dtype.bits != sig.tensors[first].dtype.bits) return fail(error, NW_INVALID, i, "dtypes differ; expected one");
    if (1 << t.align_log2 < t.dtype.bits / 8) return fail(error, NW_UNSUPPORTED, i, "the address is not aligned to its dtype");
  }
  return first < 0 ? fail(error, NW_INVALID, -1, "no tensor; expected one") : NW_OK;
}

int32_t check_shapes(const nw_sig& sig, int op, nw_error* error) {
  const nw_tensor_sig* t = sig.tensors;
  if (op != kScaleAdd && op != kScaleAddBackward) return NW_OK;
  if (t[0].ndim < 0) return fail(error, NW_INVALID, 0, "the gradient is absent; expected a tensor");
  for (int32_t i = 1; i < static_cast<int32_t>(sig.num_inputs); ++i) {
    if (t[i].ndim < 0) continue;
    bool same = t[i].ndim == t[0].ndim;
    for (int32_t d = 0; same && d < t[0].ndim; ++d) same = t[i].shape[d] == t[0].shape[d];
    if (!same) return fail(error, NW_INVALID, i, "the shape differs from the first input's; expected the same");
  }
  return NW_OK;
}

int32_t fill_plan(const nw_sig& sig, Plan* p, nw_error* error) {
  const bool scale = p->op == kScaleAdd || p->op == kScaleAddBackward;
  p->params = {};
  RepeatParams times{};
  const int32_t status = scale ? read_params(sig, sizeof p->params, &p->params, error)
                               : read_params(sig, p->op == kRepeat ? sizeof times : 0, &times, error);
  if (status != NW_OK) return status;
  if (p->params.mode < 0 || (p->params.mode > 1 && !faulty("mode")) || p->params.unused != 0)
    return fail(error, NW_UNSUPPORTED, -1, "mode is %d; expected 0 or 1", p->params.mode);
  if (p->op == kRepeat && times.times < 1)
    return fail(error, NW_INVALID, -1, "times is %lld; expected 1 or more", static_cast<long long>(times.times));
  for (const auto& check : {check_dtypes(sig, error), check_shapes(sig, p->op, error)})
    if (check != NW_OK) return check;
  for (uint32_t i = 0; i < sig.num_inputs + sig.num_outputs; ++i)
    if (sig.tensors[i].ndim >= 0) p->views[i] = view_of(sig.tensors[i]), p->f64 = sig.tensors[i].dtype.bits == 64;
  return NW_OK;
}

int32_t check_kernel(const nw_sig& sig, Plan* p, nw_error* error) {
  if (sig.kernel == nullptr) return NW_OK;
  const char* const* kernels = ops().all[p->op].kernels;
  for (int i = 0; kernels != nullptr && kernels[i] != nullptr; ++i)
    if (std::strcmp(kernels[i], sig.kernel) == 0 && !(faulty("no_variant") && i == 1)) return p->second_kernel = i == 1, NW_OK;
  return faulty("any_kernel") ? NW_OK : fail(error, NW_UNSUPPORTED, -1, "kernel is %s; expected one listed", sig.kernel);
}

int32_t plan(void*, const nw_sig* sig, void** out, nw_plan_info* info, nw_error* error) {
  Plan p{};
  p.op = find_op(sig->op);
  if (faulty("any_op") && p.op < 0) p.op = sig->num_inputs - 1;
  if (p.op < 0) return fail(error, NW_UNSUPPORTED, -1, "op is %s; expected one of acme's", sig->op);
  if ((sig->flags & ~uint32_t{NW_DETERMINISTIC}) != 0 && !faulty("flag"))
    return fail(error, NW_UNSUPPORTED, -1, "flags are 0x%x; expected 0 or 1", sig->flags);
  if (faulty("sig_tail") && has_tail(sig)) return fail(error, NW_UNSUPPORTED, -1, "nw_sig has a tail");
  if (faulty("question") && out == nullptr) return NW_OK;
  if (faulty("never") && p.op == kRepeat) return fail(error, NW_UNSUPPORTED, -1, "not today");
  for (const int32_t status : {check_kernel(*sig, &p, error), fill_plan(*sig, &p, error)})
    if (status != NW_OK) return status;
  if (faulty("layout") && p.views[0].ndim > 1 && p.views[0].strides[0] < p.views[0].strides[1])
    return fail(error, NW_INVALID, 0, "transposed");
  uint64_t workspace = 0;
  if (p.op == kMatmul) workspace = static_cast<uint64_t>(p.views[1].size()) * (p.f64 ? 8 : 4);
  const char* name = p.op == kScaleAdd ? kVariants[p.second_kernel ? 1 : 0] : nullptr;
  if (faulty("kernel_name")) name = "fast";
  if (faulty("impure")) workspace += static_cast<uint64_t>(++planned);
  if (info != nullptr) give(info, {0, NW_PLAN_CAPTURABLE, workspace, name, nullptr}, faulty("plan_info"));
  if (out != nullptr) *out = new Plan(p);
  return NW_OK;
}
void plan_free(void*, void* p) { delete static_cast<Plan*>(p); }

int32_t launch(void* self, const void* handle, const nw_call* call, nw_error* error) {
  const auto* host = static_cast<const nw_host*>(self);
  const Plan& p = *static_cast<const Plan*>(handle);
  ++launches;
  if (faulty("one_instance") && destroyed > 0) return fail(error, NW_FAILED, -1, "the instance is gone");
  if (faulty("threads")) {
    ++inside;
    usleep(3000);
    if (inside-- > 1) return fail(error, NW_FAILED, -1, "two threads at once");
  }
  if (faulty("empty") && p.views[0].size() == 0) return fail(error, NW_FAILED, -1, "no elements");
  Task task{p, *call};
  if (p.op == kMatmul || p.op == kMatmulBackward) return run_piece(&task, 0, 1), NW_OK;
  const View& range = p.op == kRepeat ? p.views[1] : p.views[0];
  return host->parallel_for(host->ctx, range.size(), 4, run_piece, &task), NW_OK;
}

// Of scale_add, which has a rule, and of repeat, which has not.
int32_t infer(void*, const nw_sig* sig, nw_spec* outputs, uint32_t, nw_error* error) {
  const int which = find_op(sig->op);
  if (which != kScaleAdd && which != kRepeat) return fail(error, NW_UNSUPPORTED, -1, "%s has a shape rule", sig->op);
  const nw_tensor_sig& x = sig->tensors[0];
  outputs[0] = {x.dtype, x.ndim, {}};
  for (int32_t d = 0; d < x.ndim; ++d) outputs[0].shape[d] = x.shape[d];
  if (which == kScaleAdd && faulty("infer") && x.ndim > 0) outputs[0].shape[0] += 1;
  if (which == kScaleAdd) return NW_OK;
  RepeatParams p{};
  if (const int32_t status = read_params(*sig, sizeof p, &p, error); status != NW_OK) return status;
  if (x.ndim != 1) return fail(error, NW_INVALID, 0, "ndim is %d; expected 1", x.ndim);
  if (p.times < 1 || p.times > 1000) return fail(error, NW_INVALID, -1, "times; expected 1 to 1000");
  return outputs[0].shape[0] *= p.times, NW_OK;
}

// ---- the device ----

int32_t known(int32_t id, const void* stream, nw_error* error) {
  if (id != 0 && !faulty("device")) return fail(error, NW_INVALID, -1, "device_id is %d; expected 0", id);
  return stream == nullptr || faulty("stream") ? NW_OK : fail(error, NW_INVALID, -1, "stream is %p; expected NULL", stream);
}
int32_t create(const nw_host* host, void** self, nw_error* error) {
  if (faulty("host_tail") && has_tail(host)) return fail(error, NW_UNSUPPORTED, -1, "nw_host has a tail");
  return *self = const_cast<nw_host*>(host), NW_OK;
}
void destroy(void*) { ++destroyed; }
int32_t device_count(void*, int32_t* count, nw_error*) { return *count = 1, NW_OK; }
int32_t device_info(void*, int32_t id, nw_device_info* out, nw_error* error) {
  if (known(id, nullptr, error) != NW_OK) return NW_INVALID;
  nw_device_info info{};
  std::strcpy(info.name, "acme");
  std::strcpy(info.arch, "any");
  return give(out, info, faulty("device_info")), NW_OK;
}
int32_t alloc(void*, int32_t id, uint64_t size, void* stream, void** out, nw_error* error) {
  if (known(id, stream, error) != NW_OK) return NW_INVALID;
  if (size == 0 && !faulty("zero_size")) return *out = nullptr, NW_OK;
  void* const memory = size > PTRDIFF_MAX - 512 ? nullptr : std::aligned_alloc(256, (size + 767) / 256 * 256);
  if (memory == nullptr) return fail(error, NW_OUT_OF_MEMORY, -1, "no memory for %zu bytes", static_cast<size_t>(size));
  return *out = faulty("align") ? static_cast<char*>(memory) + 64 : memory, NW_OK;
}
int32_t free_memory(void*, int32_t id, void* memory, void* stream, nw_error* error) {
  if (known(id, stream, error) != NW_OK) return NW_INVALID;
  return std::free(faulty("align") && memory != nullptr ? static_cast<char*>(memory) - 64 : memory), NW_OK;
}
int32_t copy(void*, DLDevice to, void* dst, DLDevice from, const void* src, uint64_t size, void* stream, nw_error* error) {
  if (to.device_type != kDLCPU || from.device_type != kDLCPU) return fail(error, NW_UNSUPPORTED, -1, "expected CPU memory");
  if (known(to.device_id | from.device_id, stream, error) != NW_OK) return NW_INVALID;
  if (faulty("copy")) size &= ~uint64_t{7};
  return size != 0 ? (std::memmove(dst, src, size), NW_OK) : NW_OK;
}
int32_t stream_create(void*, int32_t id, void** stream, nw_error* error) {
  return known(id, nullptr, error) == NW_OK ? (*stream = faulty("new_stream") ? &launches : nullptr, NW_OK) : NW_INVALID;
}
int32_t stream_end(void*, int32_t id, void* stream, nw_error* error) { return known(id, stream, error); }
int32_t stream_wait(void*, int32_t id, void* a, void* b, nw_error* error) { return known(id, a != nullptr ? a : b, error); }

}  // namespace

extern "C" const nw_plugin* narrows_plugin_query(uint32_t host_major, nw_error* error) {
  static const nw_plugin table = {.struct_size = sizeof(nw_plugin),
                                  .abi_major = NW_ABI_MAJOR,
                                  .name = "acme",
                                  .version = "1.0",
                                  .device_type = kDLCPU,
                                  .pinned_type = 0,
                                  .managed_type = 0,
                                  .num_ops = kNumOps,
                                  .ops = ops().pointers,
                                  .create = create,
                                  .destroy = destroy,
                                  .device_count = device_count,
                                  .device_info = device_info,
                                  .alloc = alloc,
                                  .free = free_memory,
                                  .copy = copy,
                                  .stream_create = stream_create,
                                  .stream_destroy = stream_end,
                                  .stream_sync = stream_end,
                                  .stream_wait = stream_wait,
                                  .infer = infer,
                                  .plan = plan,
                                  .plan_free = plan_free,
                                  .launch = launch,
                                  .extension = nullptr,
                                  .plan_program = nullptr,
                                  .program_kernels = nullptr};
  static nw_plugin copy_of_it = table;
  if (faulty("table") && error == nullptr) return &copy_of_it;
  if (host_major == NW_ABI_MAJOR && faulty("error") && error != nullptr) error->status = NW_OK;
  if (host_major == NW_ABI_MAJOR || faulty("major")) return &table;
  return fail(error, NW_UNSUPPORTED, -1, "ABI major is %u; expected %d", host_major, NW_ABI_MAJOR), nullptr;
}
