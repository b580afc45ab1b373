// SPDX-License-Identifier: Apache-2.0
// gpu.cpp -- the ops on each backend of one GPU, by the same calls in one run: what a stream does in microseconds, what that moves
// or computes per second, and, of tiny ops, what the host waits for.
//   bench_gpu [--backend NAME]... [--kernel NAME] [--quick] [WORDS]     default: --backend cuda --backend vulkan; WORDS: in the
//                                                                       names of rows; 'function': other rows, of functions
//                                                                       that may cost more than their bytes
// --kernel: the variant that each backend runs a row on whose op has one of that name; where it declines the row, it is left out.
// Each is timed on the device that the first backend has first. That backend is what the others' results are compared with (which
// has no part in the times): a row whose results differ says so, and the exit code is 1. --quick: small tensors, to see that it
// runs; the times mean nothing.
#include <narrows/narrows.h>
#include <narrows/ops.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "gpu_rows.h"
#include "timing.h"

namespace {

using namespace narrows::bench;

nw_runtime* runtime = nullptr;

// ---- calls ----

class Backend {
 public:
  Backend(std::string its_name, DLDevice where, const nw_backend_info& info)
      : name(std::move(its_name)), device(where), ops_(info.ops, info.ops + info.num_ops) {
    nw_error error;
    need(nw_stream_create(runtime, device, &stream, &error), error);
  }
  ~Backend() { nw_stream_destroy(runtime, device, stream, nullptr); }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  void sync() const {
    nw_error error;
    need(nw_stream_sync(runtime, device, stream, &error), error);
  }
  // The name as the backend has it; nullptr: its op has no such variant.
  const char* variant(const std::string& op, const std::string& kernel) const {
    for (const nw_op* one : ops_)
      for (const char* const* at = op == one->name ? one->kernels : nullptr; at != nullptr && *at != nullptr; ++at)
        if (kernel == *at) return *at;
    return nullptr;
  }
  const std::string name;
  const DLDevice device;
  void* stream = nullptr;

 private:
  std::vector<const nw_op*> ops_;  // which live as long as the runtime
};

class Memory {
 public:
  Memory(const Backend& backend, uint64_t size) : backend_(backend) {
    nw_error error;
    need(nw_alloc(runtime, backend.device, size, nullptr, &data, &error), error);
  }
  ~Memory() { nw_free(runtime, backend_.device, data, nullptr, nullptr); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data = nullptr;

 private:
  const Backend& backend_;
};

// A row's call on a backend, with memory, workspace and stream of its own. `forced`: a variant; "": the backend chooses.
class Call {
 public:
  Call(const Backend& backend, const Row& row, const std::string& forced = "") : backend_(backend), row_(row), shaped_(row.inputs) {
    shaped_.insert(shaped_.end(), row.outputs.begin(), row.outputs.end());
    tensors_.resize(shaped_.size());
    for (size_t i = 0; i < shaped_.size(); ++i) add_tensor(i);
    call_.struct_size = sizeof call_;
    call_.op = row.op.c_str();
    call_.num_inputs = static_cast<uint32_t>(row.inputs.size());
    call_.num_outputs = static_cast<uint32_t>(row.outputs.size());
    call_.inputs = pointers_.data();
    call_.outputs = pointers_.data() + row.inputs.size();
    call_.params = row.params.empty() ? nullptr : row.params.data();
    call_.params_size = row.params.size() * sizeof(int64_t);
    call_.stream = backend.stream;
    call_.backend = backend.name.c_str();
    call_.kernel = backend.variant(row.op, forced);
    nw_plan_info info{};
    info.struct_size = sizeof info;
    nw_error error;
    const int32_t status = nw_plan_get(runtime, &call_, nullptr, &info, &error);
    if (call_.kernel != nullptr && status == NW_UNSUPPORTED) {
      declined = error.message;
      return;
    }
    need(status, error);
    kernel = info.kernel == nullptr ? "" : info.kernel;
    memory_.push_back(std::make_unique<Memory>(backend, std::max<uint64_t>(info.workspace_size, 1)));
    call_.workspace = memory_.back()->data;
    call_.workspace_size = info.workspace_size;
  }

  void run() {
    nw_error error;
    need(nw_run(runtime, &call_, &error), error);
  }
  void sync() const { backend_.sync(); }

  // The values of each output that is there, of large ones at evenly spaced places.
  std::vector<std::vector<double>> outputs() const {
    std::vector<std::vector<double>> all;
    for (size_t i = row_.inputs.size(); i < shaped_.size(); ++i)
      if (pointers_[i] != nullptr) all.push_back(values(tensors_[i], static_cast<size_t>(shaped_[i].count())));
    return all;
  }

  std::string kernel, declined;  // why the forced variant does not run the row

 private:
  std::vector<double> values(const DLTensor& t, size_t n) const {
    const size_t size = t.dtype.bits / 8u;
    std::vector<char> bytes(n * size);
    nw_error error;
    need(nw_copy(runtime, {kDLCPU, 0}, bytes.data(), t.device, t.data, bytes.size(), backend_.stream, &error), error);
    backend_.sync();
    constexpr size_t kMost = size_t{1} << 22;
    size_t step = n / kMost + 1;
    while (std::gcd(step, static_cast<size_t>(t.shape[t.ndim - 1])) != 1) ++step;  // each place within a row takes part
    std::vector<double> values;
    for (size_t i = 0; i < n; i += step) values.push_back(load(&bytes[i * size], t.dtype));
    return values;
  }

  void add_tensor(size_t i) {
    const Shaped& s = shaped_[i];
    if (s.shape.empty()) {
      pointers_.push_back(nullptr);
      return;
    }
    const auto n = static_cast<size_t>(s.span());
    const Dtype& dtype = row_.dtype_of(s);
    const size_t size = dtype.size();
    std::vector<char> bytes(n * size, static_cast<char>(0xff));  // of outputs: NaN
    constexpr size_t kPeriod = 1048573;                          // a prime, so that no two rows are the same
    uint32_t random = 1 + static_cast<uint32_t>(i);
    for (size_t j = 0; i < row_.inputs.size() && j < std::min(n, kPeriod); ++j) {
      random = random * 1664525 + 1013904223;
      store(&bytes[j * size], dtype.type, (static_cast<double>(random) / 2147483648.0 - 1) * s.size);
    }
    for (size_t j = kPeriod; i < row_.inputs.size() && j < n; j += kPeriod)
      std::memcpy(&bytes[j * size], bytes.data(), std::min(kPeriod, n - j) * size);
    memory_.push_back(std::make_unique<Memory>(backend_, bytes.size()));
    nw_error error;
    need(nw_copy(runtime, backend_.device, memory_.back()->data, {kDLCPU, 0}, bytes.data(), bytes.size(), backend_.stream, &error),
         error);
    backend_.sync();
    tensors_[i] = {memory_.back()->data,
                   backend_.device,
                   static_cast<int32_t>(s.shape.size()),
                   dtype.type,
                   shaped_[i].shape.data(),
                   s.strides.empty() ? nullptr : shaped_[i].strides.data(),
                   0};
    pointers_.push_back(&tensors_[i]);
  }

  const Backend& backend_;
  const Row& row_;
  std::vector<Shaped> shaped_;
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
  std::vector<std::unique_ptr<Memory>> memory_;
  nw_call call_{};
};

// ---- times ----

struct Options {
  std::vector<std::string> backends, words;
  std::string kernel;  // "": none is forced
  bool quick = false;
  bool wants(const std::string& name) const {
    return std::all_of(words.begin(), words.end(), [&](const std::string& w) { return name.find(w) != std::string::npos; });
  }
  bool wants_any(std::initializer_list<const char*> names) const {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return wants(name); });
  }
};

// Microseconds of one of many on a stream, until the host knows that the last is done: the median of samples of some 20 ms.
template <class Enqueue>
double chain_us(const Options& options, const Backend& backend, Enqueue enqueue) {
  const double sample_us = options.quick ? 500 : 20000;
  const auto sample = [&](int times) {
    backend.sync();
    const double start = now_us();
    for (int i = 0; i < times; ++i) enqueue();
    backend.sync();
    return (now_us() - start) / times;
  };
  sample(1);
  const double estimate = sample(options.quick ? 2 : 20);
  const int times = std::clamp(static_cast<int>(sample_us / estimate), options.quick ? 1 : 10, 20000);
  std::vector<double> samples(options.quick ? 3 : 15);
  for (double& s : samples) s = sample(times);
  return median(samples);
}

// How far apart two results are, in parts of their size: the norm of the difference over the norm, of the output where that is the
// most; NaN or infinite where one alone has a NaN or an infinity.
double distance(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  double most = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < a[k].size(); ++i) {
      const double x = a[k][i], y = b[k][i];
      if (!std::isfinite(x) && (x == y || (std::isnan(x) && std::isnan(y)))) continue;
      difference += (x - y) * (x - y), size += x * x;
    }
    const double apart = difference == 0 ? 0 : std::sqrt(difference / size);
    if (!(apart <= most)) most = apart;
    if (std::isnan(most)) break;
  }
  return most;
}

// What is measured of a tiny op beside all_rows().
constexpr const char *kChain = "tiny op of a chain", *kLaunched = "tiny op, launched on an idle stream",
                     *kAppended = "tiny op, appended to a busy stream", *kSubmitted = "tiny op, submitted: the difference",
                     *kSeen = "tiny op, until the host sees it";

// Whether all backends agree.
bool measure_row(const Options& options, const std::vector<std::unique_ptr<Backend>>& backends, const Row& row, double copied) {
  if (!options.wants(row.name)) return true;
  bool agree = true;
  std::vector<std::vector<double>> reference;
  std::string first;  // whose result that is
  double first_us = 0;
  for (const auto& backend : backends) {
    Call call(*backend, row, options.kernel);
    if (!call.declined.empty()) {
      std::printf("%-36s %-7s %-10s left out: %s\n", row.name.c_str(), backend->name.c_str(), options.kernel.c_str(),
                  call.declined.c_str());
      continue;
    }
    call.run();
    std::vector<std::vector<double>> result = call.outputs();
    const double us = chain_us(options, *backend, [&] { call.run(); });
    std::printf("%-36s %-7s %-10s %10.2f us", row.name.c_str(), backend->name.c_str(), call.kernel.c_str(), us);
    if (row.operations > 0)
      std::printf("  %7.2f TFLOP/s        ", row.operations / us * 1e-6);
    else
      std::printf("  %7.3f TB/s, %.3f of copy", row.bytes() / us * 1e-6, row.bytes() / us / copied);
    if (reference.empty()) {
      first_us = us, first = backend->name;
      reference = std::move(result);
      std::printf("\n");
    } else {
      const double apart = distance(reference, result);
      const bool same = apart <= row.dtype_of(row.outputs[0]).tolerance;  // false for NaN
      agree = agree && same;
      std::printf("  %5.2f of %s's rate  %s %.1e\n", first_us / us, first.c_str(), same ? "apart" : "WRONG: apart", apart);
    }
    std::fflush(stdout);
  }
  return agree;
}

// Host time of a call behind work that is under way, which a backend may only take down: the median.
double appended_us(const Options& options, const Backend& backend, Call& call) {
  constexpr int kTimes = 16;  // a batch of the vulkan backend's has room for them
  const uint64_t size = options.quick ? 1 << 20 : 256 << 20;
  const Memory to(backend, size), from(backend, size);
  std::vector<double> appended;
  for (int round = 0; round < (options.quick ? 2 : 100); ++round) {
    backend.sync();
    nw_error error;
    for (int i = 0; i < 4; ++i)
      need(nw_copy(runtime, backend.device, to.data, backend.device, from.data, size, backend.stream, &error), error);
    for (int i = 0; i < kTimes; ++i) {
      const double start = now_us();
      call.run();
      appended.push_back(now_us() - start);
    }
  }
  backend.sync();
  return median(appended);
}

// Of a tiny op: the call on an idle stream, which puts it on the device at once; what of that is more than a call behind other work
// takes; and the call until the host knows that it is done.
void measure_latency(const Options& options, const std::vector<std::unique_ptr<Backend>>& backends, const Row& tiny) {
  if (!options.wants_any({kLaunched, kAppended, kSubmitted, kSeen})) return;
  for (const auto& backend : backends) {
    Call call(*backend, tiny);
    std::vector<double> launched(options.quick ? 5 : 2000), seen(launched.size());
    for (size_t i = 0; i < launched.size(); ++i) {
      backend->sync();
      const double start = now_us();
      call.run();
      launched[i] = now_us() - start;
      backend->sync();
      seen[i] = now_us() - start;
    }
    const double launch = median(launched), append = appended_us(options, *backend, call);
    const auto print = [&](const char* what, double us) {
      if (options.wants(what)) std::printf("%-36s %-7s %-10s %10.2f us\n", what, backend->name.c_str(), "", us);
    };
    print(kLaunched, launch);
    print(kAppended, append);
    print(kSubmitted, launch - append);
    print(kSeen, median(seen));
  }
}

// Bytes per microsecond, read and written, of the fastest backend's copy within the device.
double measure_copy(const Options& options, const std::vector<std::unique_ptr<Backend>>& backends) {
  double best = 0;
  const uint64_t size = options.quick ? 1 << 20 : 256 << 20;
  const std::vector<char> ones(size, 1);
  for (const auto& backend : backends) {
    const Memory to(*backend, size), from(*backend, size);
    nw_error error;
    need(nw_copy(runtime, backend->device, from.data, {kDLCPU, 0}, ones.data(), size, backend->stream, &error), error);
    const double us = chain_us(options, *backend, [&] {
      need(nw_copy(runtime, backend->device, to.data, backend->device, from.data, size, backend->stream, &error), error);
    });
    const double rate = 2.0 * static_cast<double>(size) / us;
    std::printf("%-36s %-7s %-10s %10.2f us  %7.3f TB/s\n", "copy within the device", backend->name.c_str(), "nw_copy", us,
                rate * 1e-6);
    best = std::max(best, rate);
  }
  return best;
}

// ---- ----

struct Found {
  DLDevice device;
  nw_device_info info;
  nw_backend_info backend;
};

bool is_known(const nw_device_info& info) {
  return std::any_of(std::begin(info.uuid), std::end(info.uuid), [](uint8_t byte) { return byte != 0; });
}

// Of a backend's devices the one that `first` is too, by its UUID, or the first one; where there is none, the reason goes to
// stdout.
std::optional<Found> device_of(const nw_backend_info& backend, const nw_device_info* first) {
  if (backend.status != NW_OK) {
    std::printf("%s: left out: %s\n", backend.name, backend.reason);
    return std::nullopt;
  }
  for (int32_t id = 0; id < backend.device_count; ++id) {
    Found found{{static_cast<DLDeviceType>(backend.device_type), id}, {}, backend};
    found.info.struct_size = sizeof found.info;
    nw_error error;
    need(nw_device(runtime, found.device, &found.info, &error), error);
    if (first != nullptr && (!is_known(*first) || std::memcmp(first->uuid, found.info.uuid, sizeof first->uuid) != 0)) continue;
    std::printf("%s %d: %s, %s\n", backend.name, id, found.info.name, found.info.arch);
    return found;
  }
  std::printf("%s: left out: none of its %d devices has the UUID of the first backend's\n", backend.name, backend.device_count);
  return std::nullopt;
}

std::optional<Found> device_of(const std::string& name, const nw_device_info* first) {
  for (uint32_t i = 0; i < nw_backend_count(runtime); ++i) {
    nw_backend_info info{};
    info.struct_size = sizeof info;
    nw_error error;
    need(nw_backend(runtime, i, &info, &error), error);
    if (name == info.name && (info.flags & NW_BACKEND_SHADOWED) == 0) return device_of(info, first);
  }
  std::printf("%s: left out: no such backend\n", name.c_str());
  return std::nullopt;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      options.quick = true;
    } else if (word == "--backend" && i + 1 < argc) {
      options.backends.push_back(argv[++i]);
    } else if (word == "--kernel" && i + 1 < argc) {
      options.kernel = argv[++i];
    } else if (word.rfind("--", 0) == 0) {
      std::fprintf(stderr, "usage: bench_gpu [--backend NAME]... [--kernel NAME] [--quick] [WORDS]\n");
      std::exit(2);
    } else {
      options.words.push_back(word);
    }
  }
  if (options.backends.empty()) options.backends = {"cuda", "vulkan"};
  return options;
}

std::vector<Row> rows_for(const Options& options) {
  const auto is_function = [](const std::string& word) { return word.find("function") != std::string::npos; };
  const bool functions = std::any_of(options.words.begin(), options.words.end(), is_function);
  std::vector<Row> rows = options.quick ? quick_rows() : functions ? function_rows(4096) : all_rows();
  std::erase_if(rows, [&](const Row& row) { return !options.wants(row.name); });
  return rows;
}

int run(const Options& options) {
  std::vector<std::unique_ptr<Backend>> backends;
  nw_device_info first{};
  for (const std::string& name : options.backends) {
    const auto found = device_of(name, backends.empty() ? nullptr : &first);
    if (!found) continue;
    if (backends.empty()) first = found->info;
    backends.push_back(std::make_unique<Backend>(name, found->device, found->backend));
  }
  if (backends.empty()) {
    std::printf("skipped: none of the backends can be used here\n");
    return 2;
  }
  const std::vector<Row> rows = rows_for(options);
  if (rows.empty() && !options.wants_any({kChain, kLaunched, kAppended, kSubmitted, kSeen})) {
    std::fprintf(stderr, "bench_gpu: no row has these words in its name\n");
    return 2;
  }
  const double copied = measure_copy(options, backends);
  const Row tiny = add(kChain, kF32, 16);
  bool agree = measure_row(options, backends, tiny, copied);
  measure_latency(options, backends, tiny);
  for (const Row& row : rows) agree = measure_row(options, backends, row, copied) && agree;
  return agree ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  nw_error error;
  need(nw_runtime_create(nullptr, &runtime, &error), error);
  const int code = run(options);
  nw_runtime_destroy(runtime);
  return code;
}
