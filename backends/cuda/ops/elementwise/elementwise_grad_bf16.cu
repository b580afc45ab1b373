// SPDX-License-Identifier: Apache-2.0
// elementwise_grad_bf16.cu -- the gradients of bf16.
#include "elementwise_gradients.h"

namespace narrows::gpu {
const GradientTable kGradientsBf16 = gradient_table<bf16>();
}
