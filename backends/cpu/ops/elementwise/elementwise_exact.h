// SPDX-License-Identifier: Apache-2.0
// elementwise_exact.h -- gradients of the few elements for which the vectors' expressions lack the range.
#pragma once

namespace narrows::cpu {

// One element's gradient by operand 0 or 1 of the functions that elementwise_grad-inl.h leaves to it.
long double exact_gradient(int function, int operand, long double g, long double a, long double b, double alpha);

}  // namespace narrows::cpu
