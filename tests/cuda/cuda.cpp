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
  add(lltm_sequence_examples(dtype, 3, 33, 20, 17));
  return all;
}

std::vector<Example> matrix_examples() {
  std::vector<Example> all = conv1d_examples(DType::f16, 2, 256, 256, 2048, 3, 1);
  for (Example& e : lltm_examples(DType::f16, 256, 512, 512)) all.push_back(std::move(e));
  return all;
}

std::vector<Example> program_examples() {
  constexpr const char* kSoftmax = R"(program 1 softmax(x: f32[M, N], y: out f32[M, N]):
  alloc top: f32[M]
  alloc total: f32[M]
  for i in M:
    for j in N:
      block top(vi: S(M) = i, vj: R(N) = j):
        init:
          top[vi] = f32(-inf)
        top[vi] = maximum(top[vi], x[vi, vj])
  for i1 in M:
    for j1 in N:
      block total(vi: S(M) = i1, vj: R(N) = j1):
        init:
          total[vi] = f32(0)
        total[vi] = total[vi] + exp(x[vi, vj] - top[vi])
  for i2 in M:
    for j2 in N:
      block y(vi: S(M) = i2, vj: S(N) = j2):
        y[vi, vj] = exp(x[vi, vj] - top[vi]) / total[vi]
)";
  constexpr const char* kProduct = R"(program 1 product(a: f32[M, K], b: f32[K, N], c: out f32[M, N]):
  for i in M:
    for j in N:
      for k in K:
        block c(vi: S(M) = i, vj: S(N) = j, vk: R(K) = k):
          init:
            c[vi, vj] = f32(0)
          c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
)";
  const auto loaded = [](const char* text) {
    const nw_op* op = nullptr;
    nw_error error{};
    const int32_t status = nw_load_program(runtime(), text, nullptr, &op, &error);
    INFO(error.message);
    REQUIRE(status == NW_OK);
    return op->name;
  };
  using Shape = std::vector<int64_t>;
  const auto example = [&](const char* what, const char* text, const std::vector<Shape>& inputs, const Shape& output) {
    Example e{.what = what, .op = loaded(text), .inputs = {}, .outputs = {}, .params = {}};
    Rng rng(what);
    for (const Shape& shape : inputs) {
      e.inputs.push_back(std::make_unique<Tensor>(DType::f32, shape));
      e.inputs.back()->fill_uniform(rng, -1, 1);
    }
    e.outputs.push_back(std::make_unique<Tensor>(DType::f32, output));
    return e;
  };
  std::vector<Example> all;
  all.push_back(example("a program: softmax", kSoftmax, {{37, 301}}, {37, 301}));
  all.push_back(example("a program: a product", kProduct, {{70, 65}, {65, 130}}, {70, 130}));
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
