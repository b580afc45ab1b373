// SPDX-License-Identifier: Apache-2.0
// elementwise_grad_f16.cu -- the gradients of f16.
#include "elementwise_gradients.h"

namespace narrows::gpu {
const GradientTable kGradientsF16 = gradient_table<f16>();
}
