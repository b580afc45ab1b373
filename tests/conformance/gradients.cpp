// SPDX-License-Identifier: Apache-2.0
// gradients.cpp -- the built-in ops' backward by finite differences in f64, by the same code that judges a stranger's: a witness
// that shares nothing with tests/reference.
#include <array>
#include <catch2/catch_test_macros.hpp>

#include "gradient_check.h"
#include "support/harness.h"

using namespace narrows::test;

namespace {

struct Input {
  std::vector<int64_t> shape;
  bool present = true;
  DType dtype = DType::f64;
};

// The number of derivatives compared, of both signs or positive inputs alone.
int64_t check(const char* op, const std::vector<Input>& inputs, const Blob& params, Values values) {
  Sample s;
  nw_error error{};
  REQUIRE(nw_find_op(runtime(), op, &s.op, &error) == NW_OK);
  for (const Input& input : inputs) s.inputs.push_back({input.present, input.dtype, input.shape});
  s.inputs.resize(s.op->max_inputs);
  s.params = params.bytes;
  REQUIRE(infer_outputs(s, &error));
  return check_gradient(s, values);
}

void skip_unless_offered(const char* forward, const char* backward) {
  if (!offers(forward) || !offers(backward)) SKIP("the backend offers no " << forward << " with its backward");
}

}  // namespace

TEST_CASE("conv1d: its backward is its derivative, by finite differences alone", "[conv1d][backward][gradcheck]") {
  skip_unless_offered("conv1d", "conv1d_backward");
  struct Case {
    std::vector<int64_t> x, w;
    nw_conv1d_params params;
  };
  const Case cases[] = {{{7}, {3}, {1, 1, 1, 1, 1, 0}},
                        {{2, 9}, {3, 2, 3}, {2, 1, 1, 0, 2, 0}},
                        {{2, 4, 8}, {6, 2, 3}, {1, 2, 2, 4, 0, 0}},
                        {{3, 3, 5}, {3, 1, 2}, {1, 1, 3, 1, 0, 0}}};
  for (const Case& c : cases)
    for (const bool bias : {false, true}) {
      const int64_t filters = c.w.size() == 1 ? 1 : c.w[0];
      CHECK(check("conv1d", {{c.x}, {c.w}, {{filters}, bias}}, Blob(c.params), Values::both_signs) > 0);
    }
}

TEST_CASE("lltm: its backward is its derivative, by finite differences alone", "[lltm][backward][gradcheck]") {
  skip_unless_offered("lltm", "lltm_backward");
  for (const auto& [b, f, s] : {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 4}, {5, 2, 3}})
    for (const Values values : {Values::positive, Values::both_signs})
      CHECK(check("lltm", {{{b, f}}, {{3 * s, s + f}}, {{3 * s}}, {{b, s}}, {{b, s}}}, {}, values) > 0);
}

TEST_CASE("lltm_sequence: its backward is its derivative, by finite differences alone", "[lltm_sequence][backward][gradcheck]") {
  skip_unless_offered("lltm_sequence", "lltm_sequence_backward");
  constexpr int64_t b = 2, f = 2, s = 3, steps = 4;
  for (const int64_t batch_first : {0, 1})
    for (const int64_t reverse : {0, 1})
      for (const int64_t recompute : {0, 1}) {
        const nw_lltm_sequence_params params{batch_first, reverse, recompute};
        const Input sequence{batch_first != 0 ? std::vector<int64_t>{b, steps, f} : std::vector<int64_t>{steps, b, f}};
        CHECK(check("lltm_sequence", {sequence, {{3 * s, s + f}}, {{3 * s}, recompute != 0}, {{b, s}}, {{b, s}}}, Blob(params),
                    Values::both_signs) > 0);
      }
}

TEST_CASE("elementwise: backward is the derivative, by finite differences alone", "[elementwise][backward][gradcheck]") {
  skip_unless_offered("elementwise", "elementwise_backward");
  const auto params = [](int32_t function) {
    nw_elementwise_params p{};
    p.function = function;
    p.alpha = function == NW_EW_ELU ? 1.25 : 0;
    return Blob(p);
  };
  const Input a{{3, 4}}, row{{4}}, column{{3, 1}};
  for (const int32_t function : {NW_EW_SQRT, NW_EW_RSQRT, NW_EW_LOG, NW_EW_LOG2, NW_EW_LOG10})
    CHECK(check("elementwise", {a}, params(function), Values::positive) > 0);
  for (const int32_t function :
       {NW_EW_NEG,  NW_EW_ABS,      NW_EW_SQUARE, NW_EW_CBRT, NW_EW_EXP,     NW_EW_EXP2, NW_EW_EXPM1,     NW_EW_LOG1P,
        NW_EW_SIN,  NW_EW_COS,      NW_EW_TAN,    NW_EW_ASIN, NW_EW_ACOS,    NW_EW_ATAN, NW_EW_SINH,      NW_EW_COSH,
        NW_EW_TANH, NW_EW_ASINH,    NW_EW_ATANH,  NW_EW_RELU, NW_EW_SIGMOID, NW_EW_ELU,  NW_EW_GELU,      NW_EW_GELU_TANH,
        NW_EW_SILU, NW_EW_SOFTPLUS, NW_EW_ERF,    NW_EW_ERFC, NW_EW_FLOOR,   NW_EW_SIGN, NW_EW_RECIPROCAL})
    CHECK(check("elementwise", {a}, params(function), Values::both_signs) > 0);
  for (const int32_t function : {NW_EW_ADD, NW_EW_SUB, NW_EW_MUL, NW_EW_DIV, NW_EW_ATAN2, NW_EW_HYPOT, NW_EW_MAXIMUM, NW_EW_MINIMUM,
                                 NW_EW_COPYSIGN, NW_EW_LOGADDEXP})
    CHECK(check("elementwise", {a, row}, params(function), Values::both_signs) > 0);
  CHECK(check("elementwise", {column, row}, params(NW_EW_POW), Values::positive) > 0);
  CHECK(check("elementwise", {a, row, column}, params(NW_EW_FMA), Values::both_signs) > 0);
  CHECK(check("elementwise", {{{3, 4}, true, DType::boolean}, row, a}, params(NW_EW_WHERE), Values::both_signs) > 0);
}
