// SPDX-License-Identifier: Apache-2.0
// elementwise_grad_f32.cu -- the gradients of f32.
#include "elementwise_gradients.h"

namespace narrows::gpu {
const GradientTable kGradientsF32 = gradient_table<float>();
}
