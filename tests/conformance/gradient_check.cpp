// SPDX-License-Identifier: Apache-2.0
// gradient_check.cpp -- see gradient_check.h.
#include "gradient_check.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "sample_tensors.h"

namespace narrows::test {
namespace {

constexpr int64_t kPerInput = 20;  // derivatives that are looked at, evenly spread over an input

// Truncation is step^2/6 of a third derivative, rounding epsilon/step of the loss, both of which are of size 1 to 100 here:
// 1e-9 + 3e-9 in f64, 1e-3 + 2e-3 in f32.
struct Accuracy {
  double step, tolerance;
};
Accuracy accuracy_of(DType dtype) { return dtype == DType::f64 ? Accuracy{0x1p-17, 1e-6} : Accuracy{0x1p-6, 2e-2}; }

bool is_optional(const char* name) { return name[0] != '\0' && name[std::strlen(name) - 1] == '?'; }

class Problem {
 public:
  Problem(const Sample& forward, const Sample& backward, Values values)
      : forward_(forward), backward_(backward), tensors_(forward, {}, {}, values == Values::positive) {
    Rng rng("gradient " + forward.describe());
    for (uint32_t i = 0; i < plain_outputs(); ++i) {
      const TensorSpec& spec = forward.outputs[i];
      weights_.push_back(nullptr);
      if (!spec.present || !is_float(spec.dtype)) continue;
      weights_.back() = std::make_unique<Tensor>(spec.dtype, spec.shape);
      weights_.back()->fill_uniform(rng, -1, 1);
    }
    for (size_t i = 0; i < forward.inputs.size(); ++i) {
      const TensorSpec& spec = forward.inputs[i];
      const bool wanted = spec.present && is_float(spec.dtype);
      gradients_.push_back(wanted ? std::make_unique<Tensor>(spec.dtype, spec.shape) : nullptr);
    }
  }

  // 0 where backward could not be run: reported.
  int64_t check() {
    expect_ok(tensors_.run());
    if (!shapes_agree()) return 0;
    const Result result = run_backward(all());
    expect_ok(result);
    if (!result.ok()) return 0;
    std::vector<std::vector<Exact>> expected;
    for (const auto& g : gradients_) expected.push_back(g == nullptr ? std::vector<Exact>() : g->exact());
    check_subsets(expected);
    check_absent_gradients();
    int64_t compared = 0;
    for (size_t i = 0; i < gradients_.size(); ++i)
      if (gradients_[i] != nullptr) compared += compare(i, expected[i], result.what);
    return compared;
  }

 private:
  uint32_t plain_outputs() const { return forward_.op->num_outputs - forward_.op->num_aux; }
  std::vector<bool> all() const { return std::vector<bool>(gradients_.size(), true); }

  // "of its shape and dtype": what nw_infer says of backward's outputs.
  bool shapes_agree() const {
    bool agree = backward_.outputs.size() == forward_.inputs.size();
    for (size_t i = 0; agree && i < gradients_.size(); ++i) {
      const TensorSpec &gradient = backward_.outputs[i], &input = forward_.inputs[i];
      if (gradients_[i] != nullptr) agree = gradient.present && gradient.dtype == input.dtype && gradient.shape == input.shape;
    }
    if (!agree)
      FAIL_CHECK(backward_.describe() << ": not a gradient of each input of " << forward_.describe() << ", of its shape and dtype");
    return agree;
  }

  Result run_backward(const std::vector<bool>& wanted, int absent_weight = -1, int zero_weight = -1) {
    std::vector<const Tensor*> inputs;
    std::unique_ptr<Tensor> zero;
    for (size_t i = 0; i < weights_.size(); ++i) {
      inputs.push_back(static_cast<int>(i) == absent_weight ? nullptr : weights_[i].get());
      if (static_cast<int>(i) != zero_weight) continue;
      zero = std::make_unique<Tensor>(forward_.outputs[i].dtype, forward_.outputs[i].shape);
      zero->set(std::vector<double>(static_cast<size_t>(zero->size()), 0.0));
      inputs.back() = zero.get();
    }
    const uint64_t saved = forward_.op->saved;
    for (uint32_t i = 0; i < tensors_.inputs.size(); ++i)
      inputs.push_back(gets_input(*forward_.op, *backward_.op, i) ? tensors_.inputs[i].get() : nullptr);
    for (size_t i = 0; i < tensors_.outputs.size(); ++i)
      inputs.push_back((saved >> (32 + i) & 1) != 0 ? tensors_.outputs[i].get() : nullptr);
    std::vector<Tensor*> outputs;
    for (size_t i = 0; i < gradients_.size(); ++i) outputs.push_back(wanted[i] ? gradients_[i].get() : nullptr);
    return run(forward_.op->backward, inputs, outputs, Blob(forward_.params), nullptr, 0, "backward of " + forward_.describe());
  }

  void expect_gradients(const Result& result, const std::vector<bool>& wanted, const std::vector<std::vector<Exact>>& expected) {
    expect_ok(result);
    for (size_t i = 0; result.ok() && i < gradients_.size(); ++i)
      if (wanted[i] && gradients_[i] != nullptr)
        expect_close(result, *gradients_[i], expected[i], generic_tolerance(gradients_[i]->dtype(), expected[i]));
  }

  void check_subsets(const std::vector<std::vector<Exact>>& expected) {
    for (size_t alone = 0; alone < gradients_.size(); ++alone) {
      if (gradients_[alone] == nullptr) continue;
      std::vector<bool> wanted(gradients_.size(), false);
      wanted[alone] = true;
      expect_gradients(run_backward(wanted), wanted, expected);
    }
  }

  void check_absent_gradients() {
    for (uint32_t i = 0; i < plain_outputs(); ++i) {
      if (weights_[i] == nullptr || !is_optional(backward_.op->inputs[i]) || is_all(i)) continue;
      const Result with_zero = run_backward(all(), -1, static_cast<int>(i));
      expect_ok(with_zero);
      std::vector<std::vector<Exact>> expected;
      for (const auto& g : gradients_) expected.push_back(g == nullptr ? std::vector<Exact>() : g->exact());
      expect_gradients(run_backward(all(), static_cast<int>(i)), all(), expected);
    }
  }

  // Whether the backward op gets nothing but that gradient: without it, nothing says what shape its outputs have.
  bool is_all(uint32_t gradient) const {
    for (uint32_t i = 0; i < backward_.inputs.size(); ++i)
      if (i != gradient && backward_.inputs[i].present) return false;
    return true;
  }

  double loss() {
    Call call(forward_.op->name, tensors_.in(), tensors_.out(), Blob(forward_.params));
    nw_error error{};
    if (nw_run(runtime(), &call.raw, &error) != NW_OK || nw_stream_sync(runtime(), device(), nullptr, &error) != NW_OK)
      FAIL(forward_.describe() << ": " << error.message);
    double sum = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] == nullptr) continue;
      const std::vector<double> w = weights_[i]->values(), y = tensors_.outputs[i]->values();
      for (size_t k = 0; k < w.size(); ++k) sum += w[k] * y[k];
    }
    return sum;
  }

  int64_t compare(size_t input, const std::vector<Exact>& gradient, const std::string& what) {
    Tensor& x = *tensors_.inputs[input];
    const std::vector<double> at = x.values();
    const auto [step, tolerance] = accuracy_of(x.dtype());
    const auto count = static_cast<int64_t>(at.size()), looked_at = std::min(count, kPerInput);
    double largest = 1;
    for (const Exact g : gradient) largest = std::max(largest, static_cast<double>(std::isfinite(g) ? std::fabs(g) : 0));
    int64_t compared = 0;
    for (int64_t k = 0; k < looked_at; ++k) {
      const auto i = static_cast<size_t>(k * count / looked_at);
      double side[2];
      for (const int s : {0, 1}) {
        std::vector<double> moved = at;
        moved[i] += s == 0 ? -step : step;
        x.set(moved);
        side[s] = loss();
      }
      const double derivative = (side[1] - side[0]) / (2 * step), got = static_cast<double>(gradient[i]);
      if (!std::isfinite(derivative)) continue;
      ++compared;
      if (!(std::fabs(got - derivative) <= tolerance * largest))
        FAIL_CHECK(what << "\n  the gradient of input " << input << ", element " << i << " is " << got
                        << "; finite differences give " << derivative);
    }
    x.set(at);
    return compared;
  }

  const Sample& forward_;
  const Sample& backward_;
  SampleTensors tensors_;
  std::vector<std::unique_ptr<Tensor>> weights_, gradients_;
};

}  // namespace

bool can_difference(const Sample& forward) {
  bool any = false;
  DType common{};
  for (const TensorSpec& input : forward.inputs) {
    if (!input.present || !is_float(input.dtype)) continue;
    if (any && input.dtype != common) return false;
    any = true;
    common = input.dtype;
  }
  return any && (common == DType::f64 || common == DType::f32);
}

int64_t check_gradient(const Sample& forward, Values values) {
  Sample backward;
  nw_error error{};
  if (!backward_of(forward, &backward, &error)) {
    FAIL_CHECK(forward.describe() << ": its backward op " << forward.op->backward << " cannot be inferred: " << error.message);
    return 0;
  }
  return Problem(forward, backward, values).check();
}

}  // namespace narrows::test
