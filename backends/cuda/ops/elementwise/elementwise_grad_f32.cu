// SPDX-License-Identifier: Apache-2.0
// elementwise_grad_f32.cu -- the gradients of f32. Step 5 of a tensor's path.
#include "elementwise_gradients.h"

namespace narrows::gpu {
const GradientTable kGradientsF32 = gradient_table<float>();
}
