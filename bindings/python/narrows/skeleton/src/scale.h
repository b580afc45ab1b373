// SPDX-License-Identifier: Apache-2.0
// The declaration of my_ops.scale/1, which is the same for every device.
#pragma once

#include <narrows/plugin.hpp>

struct Params {
  double factor;
};

// The op, as one device's kernel computes it.
inline narrows::plugin::Op scale_op(void (*kernel)(const narrows::plugin::Launch&)) {
  return {.name = "my_ops.scale/1",
          .inputs = {"x"},
          .outputs = {"y"},
          .kernel = kernel,
          .params = {narrows::plugin::field("factor", &Params::factor, 1.0)},
          .params_size = sizeof(Params)};
}
