// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp -- every function of elementwise on every dtype that it takes, against the reference: values, sizes, layouts,
// broadcasting, scalar operands, in place. Special values, integers, casts and refusals have files of their own.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "conformance/threads.h"
#include "elementwise_cases.h"

using namespace narrows::test;
using narrows::reference::function;

namespace {

std::vector<Shape> same_shapes(const Function& f, const Shape& shape) { return std::vector<Shape>(f.operands, shape); }

// A few functions that stand for all in tests of sizes and layouts: one per number of operands and kind of result.
void for_each_representative(const std::function<void(const Function&, DType)>& body) {
  for (const DType dtype : kAllDTypes)
    for (const int32_t number :
         {NW_EW_SQUARE, NW_EW_EXP, NW_EW_ISFINITE, NW_EW_ADD, NW_EW_LT, NW_EW_LOGICAL_XOR, NW_EW_WHERE, NW_EW_CLAMP})
      if (narrows::reference::allows(function(number).domain, dtype)) body(function(number), dtype);
}

// Puts a number that every dtype holds in the fields of operand i, and returns it.
Exact set_scalar(nw_elementwise_params& p, int operand, DType dtype) {
  const double number = dtype == DType::boolean ? 1 : is_float(dtype) ? 2.5 : 3;
  if (is_float(dtype))
    (operand == 1 ? p.b_real : p.c_real) = number;
  else
    (operand == 1 ? p.b_int : p.c_int) = static_cast<int64_t>(number);
  return number;
}

// One call with b, c or both absent.
void check_scalars(const Function& f, DType dtype, bool no_b, bool no_c) {
  Rng rng("scalar", static_cast<uint64_t>(f.number) * 16 + static_cast<uint64_t>(dtype));
  nw_elementwise_params p = params_for(f);
  std::vector<std::unique_ptr<Tensor>> tensors(3);
  std::vector<const Tensor*> operands(f.operands, nullptr);
  std::vector<Exact> values[3];
  for (int i = 0; i < f.operands; ++i) {
    const DType own = operand_dtype(f, i, dtype);
    if ((i == 1 && no_b) || (i == 2 && no_c)) {
      values[i] = std::vector<Exact>(67, set_scalar(p, i, own));
      continue;
    }
    tensors[i] = std::make_unique<Tensor>(own, Shape{67});
    tensors[i]->set(sample(f, i, dtype, 67, rng));
    values[i] = tensors[i]->exact();
    operands[i] = tensors[i].get();
  }
  Tensor out(narrows::reference::out_dtype(f, dtype), {67});
  const auto reference = narrows::reference::elementwise(f, dtype, values[0], values[1], values[2], kAlpha);
  for (const char* kernel : kernels("elementwise")) {
    const Result result = run_params(p, operands, out, kernel);
    if (!result.was_declined()) expect_close(result, out, reference, tolerance(f, dtype));
  }
}

}  // namespace

TEST_CASE("elementwise: the reference knows every function of ops.h once", "[elementwise]") {
  for (size_t i = 0; i < functions().size(); ++i) CHECK(functions()[i].number == static_cast<int32_t>(i) + 1);
  const nw_op* op = nullptr;
  REQUIRE(nw_find_op(runtime(), "elementwise", &op, nullptr) == NW_OK);
  for (const nw_param* const* p = op->params; *p != nullptr; ++p) {
    if (std::string((*p)->name) != "function") continue;
    for (const Function& f : functions()) CHECK(std::string((*p)->values[f.number]) == f.name);
    CHECK((*p)->values[functions().size() + 1] == nullptr);
  }
}

TEST_CASE("elementwise: every function on every dtype", "[elementwise]") {
  for_each_function([](const Function& f, DType dtype) { check({f, dtype, same_shapes(f, {2053}), {2053}}, "every function"); });
}

TEST_CASE("elementwise: every unary function on all 65536 values of f16 and bf16", "[elementwise]") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Tensor a(dtype, {65536});
    std::vector<Exact> all;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const unsigned char bytes[2] = {static_cast<unsigned char>(bits), static_cast<unsigned char>(bits >> 8)};
      all.push_back(load(dtype, bytes));
    }
    a.set(all);
    for (const Function& f : functions()) {
      if (f.operands != 1 || f.number == NW_EW_CAST || !narrows::reference::allows(f.domain, dtype)) continue;
      Tensor out(narrows::reference::out_dtype(f, dtype), {65536});
      const auto reference = expected(f, {&a}, {65536});
      for (const char* kernel : kernels("elementwise")) {
        const Result result = run_function(f, {&a}, out, kernel);
        if (!result.was_declined()) expect_close(result, out, reference, tolerance(f, dtype));
      }
    }
  }
}

TEST_CASE("elementwise: sizes around every vector width", "[elementwise]") {
  for (const int64_t n : {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 1000, 1023, 1026, 4099})
    for_each_representative([n](const Function& f, DType dtype) { check({f, dtype, same_shapes(f, {n}), {n}}, "sizes"); });
}

TEST_CASE("elementwise: shapes", "[elementwise]") {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{1, 1, 1}, Shape{3, 1026}, Shape{4, 6}, Shape{7, 11, 13}, Shape{5, 0, 3}, Shape{2, 3, 2, 5},
        Shape{2, 1, 3, 1, 2, 2, 1, 3}, Shape{1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 3}})
    for_each_representative(
        [&shape](const Function& f, DType dtype) { check({f, dtype, same_shapes(f, shape), shape}, "shapes"); });
}

TEST_CASE("elementwise: every function on transposed, misaligned and strided operands", "[elementwise]") {
  for_each_function([](const Function& f, DType dtype) {
    const auto item = static_cast<uint64_t>(item_size(dtype));
    check({f, dtype, same_shapes(f, {9, 37}), {9, 37}, {Layout::transposed(), Layout::strided(2), Layout::with_steps({-1, 1})}, {}},
          "mixed");
    check({f,
           dtype,
           same_shapes(f, {67}),
           {67},
           {Layout{}.with_misalignment(1), Layout{}.with_offset(item), Layout::reversed()},
           Layout{}.with_misalignment(item + 1)},
          "misaligned");
  });
}

TEST_CASE("elementwise: every layout of an operand and of the output", "[elementwise]") {
  for_each_representative([](const Function& f, DType dtype) {
    for (const Shape& shape : {Shape{77}, Shape{5, 33}, Shape{3, 4, 19}}) {
      for (const Layout& layout : all_layouts(static_cast<int>(shape.size()), dtype)) {
        check({f, dtype, same_shapes(f, shape), shape, {layout}, {}}, "layout of a");
        check({f, dtype, same_shapes(f, shape), shape, {Layout{}, layout}, layout}, "layout of b and out");
        check({f, dtype, same_shapes(f, shape), shape, {layout, layout, layout}, layout}, "all alike");
      }
    }
  });
}

TEST_CASE("elementwise: stride 0 in an operand", "[elementwise]") {
  for_each_representative([](const Function& f, DType dtype) {
    for (const auto& axes : {std::vector<bool>{true, false}, {false, true}, {true, true}}) {
      const Layout layout = Layout::broadcast(axes);
      check({f, dtype, same_shapes(f, {6, 35}), {6, 35}, {layout}, {}}, "stride 0 of a");
      check({f, dtype, same_shapes(f, {6, 35}), {6, 35}, {Layout{}, layout, layout}, Layout::transposed()}, "stride 0 of b and c");
    }
  });
}

TEST_CASE("elementwise: broadcasting as in NumPy", "[elementwise]") {
  struct Broadcast {
    Shape a, b, c, out;
  };
  const Broadcast cases[] = {{{16, 128}, {128}, {1}, {16, 128}},
                             {{5, 1}, {1, 37}, {5, 37}, {5, 37}},
                             {{}, {33}, {1, 1}, {1, 33}},
                             {{3, 1, 5}, {4, 1}, {5}, {3, 4, 5}},
                             {{1}, {1}, {}, {1}},
                             {{0, 3}, {1}, {3}, {0, 3}},
                             {{1, 7}, {0, 1}, {7}, {0, 7}},
                             {{2, 1, 3, 1}, {5, 1, 19}, {2, 1, 1, 1}, {2, 5, 3, 19}},
                             {{65}, {1}, {65}, {65}},
                             {{1}, {65}, {65}, {65}}};
  for (const Broadcast& shapes : cases) {
    for_each_representative([&shapes](const Function& f, DType dtype) {
      Shape out = shapes.a;
      if (f.operands > 1) out = narrows::reference::broadcast_shape(out, shapes.b);
      if (f.operands > 2) out = narrows::reference::broadcast_shape(out, shapes.c);
      check({f, dtype, {shapes.a, shapes.b, shapes.c}, out}, "broadcast");
      check({f, dtype, {shapes.a, shapes.b, shapes.c}, out, {Layout::reversed(), Layout::strided(2)}, Layout::transposed()},
            "broadcast strided");
    });
    CHECK(narrows::reference::broadcast_shape(narrows::reference::broadcast_shape(shapes.a, shapes.b), shapes.c) == shapes.out);
  }
}

TEST_CASE("elementwise: sixteen dimensions that collapse", "[elementwise]") {
  const Shape shape(16, 2);
  for (const DType dtype : {DType::f32, DType::i8})
    for (const int32_t number : {NW_EW_SQUARE, NW_EW_ADD})
      check({function(number), dtype, same_shapes(function(number), shape), shape}, "rank 16");
}

TEST_CASE("elementwise: transposed matrices with rows and columns left over from blocks", "[elementwise]") {
  const Layout transposed = Layout::transposed(), wide = Layout::strided(2);
  const Function& add = function(NW_EW_ADD);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::i16, DType::u8}) {
    for (const Shape& shape : {Shape{45, 150}, Shape{2, 33, 70}}) {
      check({add, dtype, {shape, shape}, shape, {transposed}, {}}, "the first operand");
      check({add, dtype, {shape, shape}, shape, {transposed, transposed}, {}}, "both operands");
      check({add, dtype, {shape, shape}, shape, {}, transposed}, "the output");
      check({add, dtype, {shape, shape}, shape, {transposed, Layout{}.with_misalignment(1)}, wide}, "mixed");
    }
  }
  for_each_representative([&](const Function& f, DType dtype) {
    const Shape shape{20, 130};
    check({f, dtype, same_shapes(f, shape), shape, {transposed, Layout::reversed(), transposed}, {}}, "every function");
    if (f.operands < 2) return;
    auto shapes = same_shapes(f, shape);
    shapes[1] = {20, 1};
    if (f.operands > 2) shapes[2] = {130};
    check({f, dtype, shapes, shape, {transposed}, {}}, "a column and a row");
  });
}

TEST_CASE("elementwise: transposed matrices that begin within a cache line", "[elementwise]") {
  const Layout at_16 = Layout{}.with_offset(16), across_at_40 = Layout::transposed().with_offset(40),
               across_at_56 = Layout::transposed().with_offset(56);
  const Function& add = function(NW_EW_ADD);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::i16, DType::u8})
    for (const Shape& shape : {Shape{192, 320}, Shape{2, 128, 192}}) {
      check({add, dtype, {shape, shape}, shape, {across_at_40}, at_16}, "the first operand, and the output");
      check({add, dtype, {shape, shape}, shape, {across_at_40, across_at_56}, {}}, "both operands, each elsewhere");
      check({add, dtype, {shape, shape}, shape, {at_16}, across_at_56}, "the output");
    }
  const Shape shape{192, 320};
  check({function(NW_EW_WHERE), DType::f32, {shape, shape, shape}, shape, {across_at_40, across_at_56}, at_16}, "a mask of bytes");
}

TEST_CASE("elementwise: in place, the other operand transposed", "[elementwise]") {
  const Function& add = function(NW_EW_ADD);
  const Shape shape{70, 100};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i32, DType::u8})
    for (const char* kernel : kernels("elementwise")) {
      Rng rng("in place across");
      Tensor a(dtype, shape), b(dtype, shape, Layout::transposed());
      a.fill_uniform(rng, 0, 50);
      b.fill_uniform(rng, 0, 50);
      const auto reference = expected(add, {&a, &b}, shape);
      const Result result = run_function(add, {&a, &b}, a, kernel);
      if (!result.was_declined()) expect_close(result, a, reference, tolerance(add, dtype));
    }
}

TEST_CASE("elementwise: eight dimensions that do not collapse", "[elementwise]") {
  const Shape shape{2, 3, 2, 3, 2, 3, 2, 3};
  const Layout scattered = Layout::with_steps({2, 3, 2, -2, 2, 3, -2, 2});
  for (const DType dtype : {DType::f32, DType::f16, DType::u8, DType::f64})
    for (const int32_t number : {NW_EW_SQUARE, NW_EW_ADD})
      check({function(number),
             dtype,
             same_shapes(function(number), shape),
             shape,
             {scattered, Layout::transposed()},
             Layout::strided(2)},
            "rank 8");
}

TEST_CASE("elementwise: nine and sixteen dimensions that do not collapse", "[elementwise]") {
  for (const size_t rank : {size_t{9}, size_t{16}}) {
    for (const DType dtype : {DType::f32, DType::u8}) {
      Rng rng("rank 9 and more");
      const Shape shape(rank, 2);
      Tensor a(dtype, shape, Layout::transposed()), b(dtype, shape), out(dtype, shape);  // no two axes are neighbours in both
      a.fill_uniform(rng, 0, 100);
      b.fill_uniform(rng, 0, 100);
      const Result result = run_function(function(NW_EW_ADD), {&a, &b}, out);
      if (result.was_declined()) continue;
      expect_close(result, out, expected(function(NW_EW_ADD), {&a, &b}, shape), tolerance(function(NW_EW_ADD), dtype));
    }
  }
}

TEST_CASE("elementwise: a scalar for operand b or c", "[elementwise]") {
  for_each_function([](const Function& f, DType dtype) {
    if (f.operands == 1) return;
    check_scalars(f, dtype, true, false);
    if (f.operands == 3) check_scalars(f, dtype, false, true);
    if (f.operands == 3 && f.number != NW_EW_WHERE) check_scalars(f, dtype, true, true);  // where: nothing would give the dtype
  });
}

TEST_CASE("elementwise: a scalar is taken in the operands' dtype", "[elementwise]") {
  nw_elementwise_params p = params_for(function(NW_EW_SUB));
  p.b_real = 0.1;
  for (const DType dtype : kFloatDTypes) {  // 0.1 rounds to the dtype, so the difference is exactly 0
    Tensor a(dtype, {19}), out(dtype, {19});
    a.set(std::vector<double>(19, 0.1));
    for (const char* kernel : kernels("elementwise")) {
      const Result result = run_params(p, {&a}, out, kernel);
      if (!result.was_declined()) expect_close(result, out, std::vector<double>(19, 0), {});
    }
  }
  p = params_for(function(NW_EW_ADD));
  p.b_int = std::numeric_limits<int64_t>::min() + 5;  // 64 bits, not through a double
  Tensor a(DType::i64, {9}), out(DType::i64, {9});
  a.set(std::vector<double>(9, 0));
  for (const char* kernel : kernels("elementwise")) {
    const Result result = run_params(p, {&a}, out, kernel);
    if (!result.was_declined()) expect_close(result, out, std::vector<Exact>(9, static_cast<Exact>(p.b_int)), kExact);
  }
}

TEST_CASE("elementwise: in place, for every operand that has the output's shape and dtype", "[elementwise]") {
  for_each_function([](const Function& f, DType dtype) {
    for (const Layout& layout : {Layout::contiguous(), Layout::strided(2), Layout::transposed(), Layout{}.with_misalignment(1)}) {
      for (int target = 0; target < f.operands; ++target) {
        if (operand_dtype(f, target, dtype) != narrows::reference::out_dtype(f, dtype)) continue;
        for (const char* kernel : kernels("elementwise")) {
          Rng rng("in place", static_cast<uint64_t>(f.number));
          std::vector<std::unique_ptr<Tensor>> tensors;
          std::vector<const Tensor*> operands;
          for (int i = 0; i < f.operands; ++i) {
            tensors.push_back(std::make_unique<Tensor>(operand_dtype(f, i, dtype), Shape{5, 23}, i == target ? layout : Layout{}));
            tensors.back()->set(sample(f, i, dtype, 5 * 23, rng));
            operands.push_back(tensors.back().get());
          }
          const auto reference = expected(f, operands, {5, 23});
          const Result result = run_function(f, operands, *tensors[target], kernel);
          if (!result.was_declined()) expect_close(result, *tensors[target], reference, tolerance(f, dtype));
        }
      }
    }
  });
}

TEST_CASE("elementwise: one tensor as every operand and the output", "[elementwise]") {
  for (const DType dtype : {DType::f32, DType::i16}) {
    Tensor a(dtype, {130});
    Rng rng("all one");
    a.fill_uniform(rng, -50, 50);
    const auto reference = expected(function(NW_EW_ADD), {&a, &a}, {130});
    const Result result = run_function(function(NW_EW_ADD), {&a, &a}, a);
    expect_close(result, a, reference, tolerance(function(NW_EW_ADD), dtype));
  }
}

TEST_CASE("elementwise: the same bits twice, with NW_DETERMINISTIC and without", "[elementwise]") {
  for_each_function([](const Function& f, DType dtype) {
    Rng rng("deterministic", static_cast<uint64_t>(f.number));
    std::vector<std::unique_ptr<Tensor>> tensors;
    std::vector<const Tensor*> operands;
    for (int i = 0; i < f.operands; ++i) {
      tensors.push_back(std::make_unique<Tensor>(operand_dtype(f, i, dtype), Shape{4001}));
      tensors.back()->set(sample(f, i, dtype, 4001, rng));
      operands.push_back(tensors.back().get());
    }
    Tensor out(narrows::reference::out_dtype(f, dtype), {4001});
    for (const char* kernel : kernels("elementwise"))
      for (const uint32_t flags : {uint32_t{0}, uint32_t{NW_DETERMINISTIC}}) {
        const auto once = [&] { return run("elementwise", operands, {&out}, params_for(f), kernel, flags, f.name); };
        const Result first = once();
        if (first.was_declined()) continue;
        expect_ok(first);
        if (!first.promises_same_bits()) continue;
        const auto bytes = out.element_bytes();
        expect_ok(once());
        CHECK(out.element_bytes() == bytes);
      }
  });
}

TEST_CASE("elementwise: the same bits again, and on any number of threads", "[elementwise][determinism]") {
  for (const DType dtype : kFloatDTypes)
    for (const int32_t number : {NW_EW_EXP, NW_EW_COS, NW_EW_ADD, NW_EW_CLAMP})
      for (const Shape& shape : {Shape{100003}, Shape{301, 167}}) {
        const Function& f = function(number);
        Rng rng("threads", static_cast<uint64_t>(number));
        std::vector<std::unique_ptr<Tensor>> tensors;
        std::vector<const Tensor*> operands;
        for (int i = 0; i < f.operands; ++i) {
          tensors.push_back(std::make_unique<Tensor>(dtype, i == 1 ? Shape{shape.back()} : shape));
          tensors[i]->set(sample(f, i, dtype, tensors[i]->size(), rng));
          operands.push_back(tensors[i].get());
        }
        Tensor out(dtype, shape, Layout::contiguous().with_misalignment(static_cast<uint64_t>(item_size(dtype))));
        expect_same_bits("elementwise", operands, {&out}, params_for(f));
      }
}
