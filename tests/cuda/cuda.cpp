// SPDX-License-Identifier: Apache-2.0
// cuda.cpp -- see cuda.h.
#include "cuda.h"

#include <cstring>
#include <utility>

namespace narrows::test {

std::vector<Example> examples(DType dtype) {
  if (!is_float(dtype)) return elementwise_examples(dtype, 31, 1670);
  std::vector<Example> all = conv1d_examples(dtype, 2, 1, 1, 5003, 9, 1);
  const auto add = [&](std::vector<Example> more) {
    for (Example& e : more) all.push_back(std::move(e));
  };
  add(conv1d_examples(dtype, 3, 48, 40, 300, 3, 1));
  add(conv1d_examples(dtype, 2, 64, 64, 500, 4, 64));
  add(conv1d_examples(dtype, 3, 48, 40, 5, 3, 1));
  add(elementwise_examples(dtype, 31, 1670));
  add(lltm_examples(dtype, 33, 20, 17));
  add(lltm_examples(dtype, 64, 128, 128));
  return all;
}

std::vector<Example> matrix_examples() {
  std::vector<Example> all = conv1d_examples(DType::f16, 2, 256, 256, 2048, 3, 1);
  for (Example& e : lltm_examples(DType::f16, 256, 512, 512)) all.push_back(std::move(e));
  return all;
}

Addition::Addition(DLDevice where, void* a, void* b, void* out, int64_t n)
    : shape{n}, inputs{&tensors[0], &tensors[1]}, outputs{&tensors[2]} {
  void* const data[] = {a, b, out};
  for (int i = 0; i < 3; ++i) {
    tensors[i].data = data[i];
    tensors[i].device = where;
    tensors[i].ndim = 1;
    tensors[i].dtype = {kDLFloat, 32, 1};
    tensors[i].shape = shape;
  }
  params.function = NW_EW_ADD;
  call.struct_size = sizeof call;
  call.op = "elementwise";
  call.num_inputs = 2;
  call.num_outputs = 1;
  call.inputs = inputs;
  call.outputs = outputs;
  call.params = &params;
  call.params_size = sizeof params;
  call.backend = backend();
}

void expect_all_variants(const std::set<std::string>& ran) {
  for (uint32_t i = 0; i < tested().num_ops; ++i) {
    const char* const op = tested().ops[i]->name;
    for (const char* kernel : kernels(op)) {
      if (kernel == nullptr || !manifest().covering({op, "", "", "", kernel}).empty()) continue;
      INFO(op << ", kernel " << kernel << " never ran");
      CHECK(ran.count(std::string(op) + "/" + kernel) == 1);
    }
  }
}

void expect_status(int32_t got, const nw_error& error, int32_t status, std::initializer_list<const char*> words) {
  INFO(error.message);
  CHECK(std::string(nw_status_name(got)) == nw_status_name(status));
  if (got == NW_OK) return;
  for (const char* word : words) {
    INFO("expected word: " << word);
    CHECK(std::strstr(error.message, word) != nullptr);
  }
}

}  // namespace narrows::test
