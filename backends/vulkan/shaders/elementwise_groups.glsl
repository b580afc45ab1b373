// elementwise_groups.glsl -- which functions of elementwise a module holds: -DGROUP=GROUP_..., or all of them. backends/vulkan/ops
// has the same groups by function in elementwise_group.h.
#ifndef NARROWS_ELEMENTWISE_GROUPS
#define NARROWS_ELEMENTWISE_GROUPS

#include "elementwise_numbers.glsl"

#define GROUP_BASIC 1         // what is one instruction or a choice, comparisons and predicates
#define GROUP_DIVISION 2      // div reciprocal fmod remainder fma, roots, hypot: by digits
#define GROUP_EXPONENTIALS 3  // and activations made of them
#define GROUP_LOGARITHMS 4    // and inverse hyperbolic functions, pow
#define GROUP_ANGLES 5        // trigonometric functions and their inverses
#define GROUP_ERROR 6         // erf erfc gelu

#ifndef GROUP
#define GROUP 0
#endif
#define WITH(group) (GROUP == 0 || GROUP == group)

#endif
