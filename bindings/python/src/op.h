// SPDX-License-Identifier: Apache-2.0
// op.h -- narrows.Op: an op's declaration with values for its params. Calling it is step 1 of a tensor's path.
#ifndef NARROWS_PYTHON_OP_H
#define NARROWS_PYTHON_OP_H

#include "arrays.h"

#include <atomic>
#include <memory>
#include <vector>

namespace narrows::python {

// What a call of an op needs to know of its nw_op; one per nw_op, kept.
struct Declaration {
  explicit Declaration(const nw_op* op);

  const nw_op* op;
  std::vector<PyObject*> inputs, fields;  // names, interned, without '?'
  std::vector<bool> optional;             // of each input
  // An optional input `b` may be a number if there are fields b_real and b_int for it: their indices, else -1.
  std::vector<int> real_field, int_field;
  bool has_vendor;                     // a plugin's own op
  std::atomic<bool> replaced = false;  // a plugin that was loaded since has the op now: calls by name would compute another
  bool lower_precision;                // what torch's autocast runs in its dtype, as it does its own
};

constexpr size_t kBlob = 256;       // bytes of params that a call keeps on the stack, and a key holds
constexpr uint64_t kAligned = 256;  // alignments above it are alike, to libnarrows too (kMaxAlign of core/signature.cpp)

// What calls alike have in common: of every input, and of every output that is given, dtype, device, alignment, shape, strides and
// whether it has memory; which of these outputs are inputs; the outputs wanted, and in which shapes; the params; and the plugins
// that there were.
struct SpecKey {
  static constexpr size_t kWords = 2 + NW_MAX_TENSORS * (2 + 2 * NW_MAX_NDIM) + kBlob / 8;
  uint64_t words[kWords];
  size_t size;
  uint64_t hash;
};

// A plan, and what its launches need: so many bytes of workspace, and outputs that are allocated for them aligned to so many.
struct Planned {
  Planned() = default;
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;
  ~Planned() { nw_plan_release(plan); }

  nw_plan* plan = nullptr;
  uint64_t workspace_size = 0;
  uintptr_t align = kAligned;
};

// What was found out for calls alike; shared by those under way.
struct Inferred {
  Inferred() = default;
  Inferred(const Inferred&) = delete;
  Inferred& operator=(const Inferred&) = delete;
  ~Inferred() { delete planned.load(); }

  Count references = 0;
  std::vector<uint64_t> key;
  Ref shapes;                                     // of the inputs, each a tuple or None; where a tensor of torch leads
  std::vector<nw_spec> specs;                     // of the outputs; none where they are given
  bool as_wanted = true;                          // every output that is wanted has a shape, and one that is wanted fits it
  std::vector<OutputSpec> outputs;                // the same as they are allocated, in the shapes that the caller wants
  std::atomic<const Planned*> planned = nullptr;  // once it is there, it stays
  std::atomic<uint32_t> calls = 0;                // that went through without it, on the CPU
};

void destroy(Inferred* inferred);  // in op.cpp
// A std::shared_ptr would count by atomic operations, which take as long as a tenth of a small call.
class InferredRef {
 public:
  InferredRef() = default;
  explicit InferredRef(Inferred* inferred) : inferred_(inferred) {
    if (inferred_ != nullptr) ++inferred_->references;
  }
  InferredRef(const InferredRef& other) : InferredRef(other.inferred_) {}
  InferredRef& operator=(InferredRef other) noexcept {
    std::swap(inferred_, other.inferred_);
    return *this;
  }
  ~InferredRef() {
    if (inferred_ != nullptr && --inferred_->references == 0) destroy(inferred_);
  }
  Inferred* get() const { return inferred_; }
  Inferred* operator->() const { return inferred_; }
  explicit operator bool() const { return inferred_ != nullptr; }

 private:
  Inferred* inferred_ = nullptr;
};

// An entry is replaced by the next one of its slot.
class SpecCache {
 public:
  InferredRef find(const SpecKey& key);  // null: none
  void put(const SpecKey& key, InferredRef entry);

 private:
  static constexpr size_t kEntries = 64, kShift = 58;  // by the high bits of a hash
  [[no_unique_address]] Mutex mutex_;
  std::unique_ptr<InferredRef[]> entries_;  // made by the first put()
};

using Vectorcall = PyObject* (*)(PyObject*, PyObject* const*, size_t, PyObject*);

struct Op {
  PyObject ob_base;
  Vectorcall vectorcall;
  const Declaration* declaration;
  unsigned char* blob;  // declaration->op->params_size bytes
  SpecCache* cache;
  PyObject *name, *doc, *signature, *weak_references;
  PyObject* otherwise;        // called instead where an operand is missing or a keyword is none of the op's; NULL: an error
  PyObject* recorder;         // (f, x), once it is known: f(x, op, *inputs) is a call that autograd has to know of; NULL before
  int32_t operands, padding;  // so many inputs must be given, whatever the declaration lets be absent
};

extern PyTypeObject* op_type;
// An op with other values; a new reference. NULL: exception set.
PyObject* new_op(const Declaration* declaration, const unsigned char* blob);

// Of every op that a plugin declared: whether one that was loaded since has taken its place.
void find_replaced();
// True, with the exception set.
bool refuse_replaced(const Op& op);
// What stands behind a name that is none of these: the nearest of them, or all.
std::string instead_of(PyObject* name, const std::vector<std::string>& known);
// Names as text.
std::vector<std::string> names_of(const std::vector<PyObject*>& interned);

// The field of that name; -1: none. `exactly`: an interned name, compared by identity. No exception.
int find_field(const Declaration& declaration, PyObject* name, bool exactly = false);
// What a binding fills in when its user gives nothing.
void store_initial(const nw_param& field, unsigned char* blob);
// False: exception set.
bool set_field(const Declaration& declaration, int field, PyObject* value, unsigned char* blob);
PyObject* get_field(const nw_param& field, const unsigned char* blob);
// The dtype of the arrays beside a number. False: exception set.
bool operands_dtype(const Declaration& declaration, PyObject* object, DLDataType* dtype);
// A number for the optional input `input`, taken in `dtype`; in numbers.cpp. False: exception set.
bool set_operand(const Declaration& declaration, uint32_t input, PyObject* value, DLDataType dtype, unsigned char* blob);

// The calls, in call.cpp.
PyObject* op_vectorcall(PyObject* self, PyObject* const* arguments, size_t flagged_count, PyObject* keywords);
PyObject* op_call(PyObject* self, PyObject* arguments, PyObject* keywords);
PyObject* op_run(PyObject* self, PyObject* arguments);
PyObject* op_forward(PyObject* self, PyObject* arguments);
PyObject* op_checked(PyObject* self, PyObject* arguments);
PyObject* op_number(PyObject* self, PyObject* arguments);  // in numbers.cpp
PyObject* op_infer(PyObject* self, PyObject* arguments);
PyObject* op_capturable(PyObject* self, PyObject* arguments);

}  // namespace narrows::python
#endif
