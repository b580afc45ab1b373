// gemm_library.cpp -- products of matrices by cuBLASLt, which is opened when the first one is planned. Step 5 of a tensor's path.
#include "ops/gemm_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "cublaslt.h"
#include "relaxed_capture.h"

namespace narrows::gpu {
namespace {

using namespace cublaslt;
using common::Dtype;
using common::Refusal;

constexpr const char* kFiles[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
// What NVIDIA advises for Hopper; a product asks for what its algorithm needs.
constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;

// What went wrong with the library; plan_gemm() hands the words on.
struct Failure {
  std::string what;
};

void expect(Status status, const char* doing) {
  if (status != kSuccess) throw Failure{std::string(doing) + " failed (cuBLAS status " + std::to_string(status) + ")"};
}

// One that the process has already, torch's for instance, before one that would be a second.
void* open_file() {
  for (const char* file : kFiles)
    if (void* found = dlopen(file, RTLD_NOW | RTLD_NOLOAD)) return found;
  std::string errors;
  for (const char* file : kFiles) {
    if (void* found = dlopen(file, RTLD_NOW)) return found;
    const char* const error = dlerror();
    errors += (errors.empty() ? "" : "; ") + std::string(error != nullptr ? error : file);
  }
  throw Failure{errors};
}

template <class Function>
void find(void* file, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(file, name));
  if (*function == nullptr) throw Failure{std::string("libcublasLt has no ") + name};
}

Functions open_library() {
  const char* const wanted = std::getenv("NARROWS_CUBLASLT");
  if (wanted != nullptr && std::string_view(wanted) == "0") throw Failure{"NARROWS_CUBLASLT is 0"};
  void* const file = open_file();  // stays open: its threads and exit handlers may outlive us
  Functions f{};
  find(file, "cublasLtCreate", &f.create);
  find(file, "cublasLtMatmulDescCreate", &f.desc_create);
  find(file, "cublasLtMatmulDescSetAttribute", &f.desc_set);
  find(file, "cublasLtMatmulDescDestroy", &f.desc_destroy);
  find(file, "cublasLtMatrixLayoutCreate", &f.layout_create);
  find(file, "cublasLtMatrixLayoutDestroy", &f.layout_destroy);
  find(file, "cublasLtMatmulPreferenceCreate", &f.preference_create);
  find(file, "cublasLtMatmulPreferenceSetAttribute", &f.preference_set);
  find(file, "cublasLtMatmulPreferenceDestroy", &f.preference_destroy);
  find(file, "cublasLtMatmulAlgoGetHeuristic", &f.choose);
  find(file, "cublasLtMatmul", &f.matmul);
  return f;
}

// Made once; a failure too, so that nobody searches the disk for every plan.
template <class Value, class Make>
const Value& once(std::once_flag& made, Value& value, std::string& failure, Make&& make) {
  std::call_once(made, [&] {
    try {
      value = make();
    } catch (const Failure& f) {
      failure = f.what;
    }
  });
  if (!failure.empty()) throw Failure{failure};
  return value;
}

const Functions& library() {
  static std::once_flag made;
  static Functions functions;
  static std::string& failure = *new std::string;
  return once(made, functions, failure, open_library);
}

// The library's state for a device. Never destroyed: a captured graph may use what it holds.
Handle handle_of(int device) {
  struct Slot {
    std::once_flag made;
    Handle handle = nullptr;
    std::string failure;
  };
  constexpr int kMost = 64;
  static Slot* const slots = new Slot[kMost];
  if (device < 0 || device >= kMost) throw Failure{"device " + std::to_string(device) + " is beyond the 64 that are known"};
  Slot& slot = slots[device];
  return once(slot.made, slot.handle, slot.failure, [] {
    Handle handle = nullptr;
    expect(library().create(&handle), "cublasLtCreate");
    return handle;
  });
}

// A descriptor of the library's.
template <class T, Status (*Functions::*Destroy)(T)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (value_ != nullptr) (void)(library().*Destroy)(value_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* place() { return &value_; }
  operator T() const { return value_; }

 private:
  T value_ = nullptr;
};

DataType type_of(Dtype dtype) { return dtype == Dtype::f16 ? kFloat16 : dtype == Dtype::bf16 ? kBfloat16 : kFloat32; }

// The library's matrices are column-major, so ours are their transposes: out^T = right^T * left^T, its A being `right`.
class CublasLtGemm final : public Gemm {
 public:
  CublasLtGemm(int device, const GemmShape& s) : handle_(handle_of(device)) {
    const Functions& f = library();
    expect(f.desc_create(desc_.place(), kCompute32F, kFloat32), "cublasLtMatmulDescCreate");
    if (s.right.transposed) set(kTransA, kTransposed);
    if (s.left.transposed) set(kTransB, kTransposed);
    if (s.factors_on_device) set(kPointerMode, kPointersToDevice);
    const auto lay = [&](auto& layout, Dtype dtype, const GemmMatrix& m, int64_t rows, int64_t columns) {
      if (m.transposed) std::swap(rows, columns);
      expect(f.layout_create(layout.place(), type_of(dtype), static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), m.pitch),
             "cublasLtMatrixLayoutCreate");
    };
    lay(left_, s.dtype, s.left, s.rows, s.depth);
    lay(right_, s.dtype, s.right, s.depth, s.columns);
    lay(out_, s.out_dtype, s.out, s.rows, s.columns);
    choose_algorithm();
  }

  void launch(const float* alpha, const void* left, const void* right, const float* beta, void* out, void* workspace,
              gpuStream_t stream) const override {
    const Status status = library().matmul(handle_, desc_, alpha, right, right_, left, left_, beta, out, out_, out, out_,
                                           &algorithm_, workspace, workspace_size, stream);
    if (status != kSuccess)
      throw Refusal{NW_FAILED, -1, "cublasLtMatmul failed (cuBLAS status " + std::to_string(status) + ")", status};
  }

 private:
  void set(DescAttribute attribute, int32_t value) {
    expect(library().desc_set(desc_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  // Never a reduction whose order is left to chance.
  void choose_algorithm() {
    const Functions& f = library();
    Owned<Preference, &Functions::preference_destroy> preference;
    expect(f.preference_create(preference.place()), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](PreferenceAttribute attribute, auto value) {
      expect(f.preference_set(preference, attribute, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(kMaxWorkspaceBytes, kMostWorkspace);
    prefer(kReductionSchemeMask, kReducedInWorkspace);
    for (const PreferenceAttribute alignment : {kMinAlignmentA, kMinAlignmentB, kMinAlignmentC, kMinAlignmentD})
      prefer(alignment, static_cast<uint32_t>(kGemmAlignment));
    HeuristicResult found{};
    int count = 0;
    expect(f.choose(handle_, desc_, right_, left_, out_, out_, preference, 1, &found, &count), "cublasLtMatmulAlgoGetHeuristic");
    if (count < 1) throw Failure{"cuBLASLt has no algorithm for this product"};
    expect(found.state, "the algorithm that cuBLASLt chose");
    algorithm_ = found.algorithm;
    workspace_size = found.workspace_size;
  }

  Handle handle_;
  Owned<Desc, &Functions::desc_destroy> desc_;
  Owned<Layout, &Functions::layout_destroy> left_, right_, out_;
  Algorithm algorithm_{};
};

}  // namespace

// The library may allocate when it is opened, which the caller's capture of some stream would not allow.
std::unique_ptr<const Gemm> plan_gemm(int device, const GemmShape& shape, std::string* reason) {
  const RelaxedCapture relaxed;
  try {
    return std::make_unique<CublasLtGemm>(device, shape);
  } catch (const Failure& failure) {
    *reason = failure.what;
    return nullptr;
  }
}

}  // namespace narrows::gpu
