# SPDX-License-Identifier: Apache-2.0
# Modules of elementwise and its gradients. Not optimized: a driver does that once FUNCTION is known, and inlining all functions
# into one another first makes modules several times as large.
set(NARROWS_GLSLC_OPTIMIZE -O0)
narrows_write_numbers(elementwise_numbers.glsl ${PROJECT_SOURCE_DIR}/abi/include/narrows/ops.h NW_EW_)
foreach(bits IN ITEMS 32 64)
  narrows_add_shader(elementwise_f${bits} elementwise/elementwise.comp REALS=${bits})
  narrows_add_shader(elementwise_i${bits} elementwise/elementwise.comp INTEGERS=${bits} SIGNED=1)
  narrows_add_shader(elementwise_u${bits} elementwise/elementwise.comp INTEGERS=${bits} SIGNED=0)
  narrows_add_shader(elementwise_gradient_f${bits} elementwise/elementwise.comp REALS=${bits} GRADIENT)
  narrows_add_shader(elementwise_sum_f${bits} elementwise/elementwise_sum.comp REALS=${bits})
endforeach()
narrows_add_shader(elementwise_cast elementwise/elementwise_cast.comp)
set(NARROWS_GLSLC_OPTIMIZE -O)
