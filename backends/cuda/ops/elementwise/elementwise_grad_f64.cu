// SPDX-License-Identifier: Apache-2.0
// elementwise_grad_f64.cu -- the gradients of f64.
#include "elementwise_gradients.h"

namespace narrows::gpu {
const GradientTable kGradientsF64 = gradient_table<double>();
}
