// SPDX-License-Identifier: Apache-2.0
// gemm_library.cpp -- products of matrices by cuBLASLt or hipBLASLt, which is opened when the first one is planned;
// platform/blaslt.h says what the two differ in.
#include "gemm_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "backend.h"
#include "ops/relaxed_capture.h"

namespace narrows::gpu {
namespace {

using namespace blaslt;

// ---- the interface that both libraries have, but for the numbers in platform/blaslt.h ----

struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_size;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == kResultSize);

using Desc = struct DescOpaque*;              // hipblasLtMatmulDesc_t
using Layout = struct LayoutOpaque*;          // hipblasLtMatrixLayout_t
using Preference = struct PreferenceOpaque*;  // hipblasLtMatmulPreference_t

// The functions, whose names begin with kPrefix.
struct Functions {
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  Status (*desc_create)(Desc*, ComputeType, DataType scale);
  Status (*desc_set)(Desc, DescAttribute, const void* value, size_t size);
  Status (*desc_destroy)(Desc);
  Status (*layout_create)(Layout*, DataType, uint64_t rows, uint64_t columns, int64_t pitch);  // column-major
  Status (*layout_destroy)(Layout);
  Status (*preference_create)(Preference*);
  Status (*preference_set)(Preference, PreferenceAttribute, const void* value, size_t size);
  Status (*preference_destroy)(Preference);
  Status (*choose)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference, int wanted, HeuristicResult* found,
                   int* count);
  Status (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta, const void* c,
                   Layout, void* d, Layout, const Algorithm*, void* workspace, size_t workspace_size, gpuStream_t);
};

// ---- opening it ----

// What NVIDIA advises for Hopper; a product asks for what its algorithm needs.
constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;

// What went wrong with the library; plan_gemm() hands the words on.
struct Failure {
  std::string what;
  bool short_of_memory = false;
};

// "cublasLtMatmul" for "Matmul".
std::string function_name(const char* name) { return std::string(kPrefix) + name; }

std::string failed(const std::string& what, Status status) {
  return what + " failed (" + kStatusName + " " + std::to_string(status) + ")";
}
// `name`: of the function that returned it.
void expect(Status status, const char* name) {
  if (status != kSuccess) throw Failure{failed(function_name(name), status), status == kShortOfMemory};
}

template <class Function>
void find(void* file, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(file, function_name(name).c_str()));
  if (*function == nullptr) throw Failure{"it has no " + function_name(name)};
}

Functions functions_of(void* file) {
  Functions f{};
  find(file, "Create", &f.create);
  find(file, "Destroy", &f.destroy);
  find(file, "MatmulDescCreate", &f.desc_create);
  find(file, "MatmulDescSetAttribute", &f.desc_set);
  find(file, "MatmulDescDestroy", &f.desc_destroy);
  find(file, "MatrixLayoutCreate", &f.layout_create);
  find(file, "MatrixLayoutDestroy", &f.layout_destroy);
  find(file, "MatmulPreferenceCreate", &f.preference_create);
  find(file, "MatmulPreferenceSetAttribute", &f.preference_set);
  find(file, "MatmulPreferenceDestroy", &f.preference_destroy);
  find(file, "MatmulAlgoGetHeuristic", &f.choose);
  find(file, "Matmul", &f.matmul);
  return f;
}

// The library, and its state for a device.
struct Library {
  Functions functions{};
  Handle handle = nullptr;
};

Library start(void* file) {
  const std::string other = other_runtime(file);
  if (!other.empty()) throw Failure{other};
  Library library{functions_of(file)};
  expect(library.functions.create(&library.handle), "Create");
  const std::string unknown = unknown_version(file, library.handle);
  if (!unknown.empty()) {
    (void)library.functions.destroy(library.handle);
    throw Failure{unknown};
  }
  return library;
}

// One that the process has already, torch's for instance, before one that would be a second; the next one where one does not work:
// the newer may ask for a newer driver. What was opened stays open: its threads and exit handlers may outlive us.
Library open_library() {
  const char* const wanted = std::getenv(kSwitch);
  if (wanted != nullptr && std::string_view(wanted) == "0") throw Failure{std::string(kSwitch) + " is 0"};
  std::string errors;
  const auto note = [&](const std::string& what) { errors += (errors.empty() ? "" : "; ") + what; };
  std::vector<void*> tried;
  for (const int only_loaded : {RTLD_NOLOAD, 0})
    for (const char* name : kFiles) {
      void* const file = dlopen(name, RTLD_NOW | only_loaded);
      if (file == nullptr && only_loaded == 0) {
        const char* const error = dlerror();
        note(error != nullptr ? error : name);
      }
      if (file == nullptr || std::find(tried.begin(), tried.end(), file) != tried.end()) continue;
      tried.push_back(file);
      try {
        return start(file);
      } catch (const Failure& failure) {
        if (failure.short_of_memory) throw;
        note(std::string(name) + ": " + failure.what);
      }
    }
  throw Failure{errors};
}

// Opened when it is first asked for, for each device; a failure too is kept, so that nobody searches the disk for every plan, but
// for one of memory that was short: the next plan tries again. Never destroyed: a captured graph may use what it holds.
const Library& library_of(int device) {
  struct Slot {
    std::once_flag made;
    Library library;
    std::string failure;
  };
  constexpr int kMost = 64;
  static Slot* const slots = new Slot[kMost];
  if (device < 0 || device >= kMost) throw Failure{"device " + std::to_string(device) + " is beyond the 64 that are known"};
  Slot& slot = slots[device];
  std::call_once(slot.made, [&] {
    try {
      slot.library = open_library();
    } catch (const Failure& failure) {
      if (failure.short_of_memory) throw;
      slot.failure = failure.what;
    }
  });
  if (!slot.failure.empty()) throw Failure{slot.failure};
  return slot.library;
}

// A descriptor of the library's.
template <class T, Status (*Functions::*Destroy)(T)>
class Owned {
 public:
  explicit Owned(const Functions& functions) : functions_(functions) {}
  ~Owned() {
    if (value_ != nullptr) (void)(functions_.*Destroy)(value_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* place() { return &value_; }
  operator T() const { return value_; }

 private:
  const Functions& functions_;
  T value_ = nullptr;
};

DataType type_of(Dtype dtype) { return dtype == Dtype::f16 ? kFloat16 : dtype == Dtype::bf16 ? kBfloat16 : kFloat32; }

// The library's matrices are column-major, so ours are their transposes: out^T = right^T * left^T, its A being `right`.
class LibraryGemm final : public Gemm {
 public:
  LibraryGemm(int device, const GemmShape& s) : library_(library_of(device)) {
    expect(f_.desc_create(desc_.place(), kCompute32F, kFloat32), "MatmulDescCreate");
    if (s.right.transposed) set(kTransA, kTransposed);
    if (s.left.transposed) set(kTransB, kTransposed);
    if (s.factors_on_device) set_factors_on_device([&](DescAttribute attribute, int32_t value) { set(attribute, value); });
    const auto lay = [&](auto& layout, Dtype dtype, const GemmMatrix& m, int64_t rows, int64_t columns) {
      if (m.transposed) std::swap(rows, columns);
      expect(f_.layout_create(layout.place(), type_of(dtype), static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), m.pitch),
             "MatrixLayoutCreate");
    };
    lay(left_, s.dtype, s.left, s.rows, s.depth);
    lay(right_, s.dtype, s.right, s.depth, s.columns);
    lay(out_, s.out_dtype, s.out, s.rows, s.columns);
    choose_algorithm();
  }

  void launch(const float* alpha, const void* left, const void* right, const float* beta, void* out, void* workspace,
              gpuStream_t stream) const override {
    std::unique_lock<std::mutex> lock(launching_, std::defer_lock);
    if constexpr (kWritesDescriptor) lock.lock();  // any thread may launch the plan
    const Status status = f_.matmul(library_.handle, desc_, alpha, right, right_, left, left_, beta, out, out_, out, out_,
                                    &algorithm_, workspace, workspace_size, stream);
    if (status == kSuccess) return mark_enqueued();
    refuse_lost_device(stream);
    throw Refusal{NW_FAILED, -1, failed(function_name("Matmul"), status), status};
  }

 private:
  void set(DescAttribute attribute, int32_t value) {
    expect(f_.desc_set(desc_, attribute, &value, sizeof value), "MatmulDescSetAttribute");
  }

  void choose_algorithm() {
    Owned<Preference, &Functions::preference_destroy> preference(f_);
    expect(f_.preference_create(preference.place()), "MatmulPreferenceCreate");
    const auto prefer = [&](PreferenceAttribute attribute, auto value) {
      expect(f_.preference_set(preference, attribute, &value, sizeof value), "MatmulPreferenceSetAttribute");
    };
    prefer(kMaxWorkspaceBytes, kMostWorkspace);
    prefer_more(prefer, static_cast<uint32_t>(kGemmAlignment));
    HeuristicResult found{};
    int count = 0;
    expect(f_.choose(library_.handle, desc_, right_, left_, out_, out_, preference, 1, &found, &count), "MatmulAlgoGetHeuristic");
    if (count < 1) throw Failure{std::string(kName) + " has no algorithm for this product"};
    if (found.state != kSuccess) throw Failure{failed(std::string("the algorithm that ") + kName + " chose", found.state)};
    algorithm_ = found.algorithm;
    workspace_size = found.workspace_size;
  }

  const Library& library_;
  const Functions& f_ = library_.functions;
  Owned<Desc, &Functions::desc_destroy> desc_{f_};
  Owned<Layout, &Functions::layout_destroy> left_{f_}, right_{f_}, out_{f_};
  Algorithm algorithm_{};
  mutable std::mutex launching_;
};

}  // namespace

// The library may allocate when it is opened, which the caller's capture of some stream would not allow.
std::unique_ptr<const Gemm> plan_gemm(int device, const GemmShape& shape, std::string* reason) {
  const RelaxedCapture relaxed;
  try {
    return std::make_unique<LibraryGemm>(device, shape);
  } catch (const Failure& failure) {
    refuse_lost_device(nullptr);
    *reason = failure.what;
    return nullptr;
  }
}

}  // namespace narrows::gpu
