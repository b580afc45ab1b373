// elementwise_group.h -- which functions of elementwise share a module: making a pipeline reads all of a module, and one with every
// function would take 0.1 s where one with a group takes 5 to 25 ms (lavapipe). The numbers are those of
// shaders/elementwise_groups.glsl, whose cases must agree: a function in another group's module gives its operand back.
#pragma once

#include <narrows/ops.h>

namespace narrows::vulkan {

enum class ElementwiseGroup { basic = 1, division, exponentials, logarithms, angles, error };

constexpr ElementwiseGroup group_of(int function) {
  switch (function) {
    case NW_EW_SQRT:
    case NW_EW_RSQRT:
    case NW_EW_CBRT:
    case NW_EW_RECIPROCAL:
    case NW_EW_DIV:
    case NW_EW_HYPOT:
    case NW_EW_FMOD:
    case NW_EW_REMAINDER:
    case NW_EW_FMA: return ElementwiseGroup::division;
    case NW_EW_EXP:
    case NW_EW_EXP2:
    case NW_EW_EXPM1:
    case NW_EW_SINH:
    case NW_EW_COSH:
    case NW_EW_TANH:
    case NW_EW_SIGMOID:
    case NW_EW_ELU:
    case NW_EW_GELU_TANH:
    case NW_EW_SILU:
    case NW_EW_SOFTPLUS:
    case NW_EW_LOGADDEXP: return ElementwiseGroup::exponentials;
    case NW_EW_LOG:
    case NW_EW_LOG2:
    case NW_EW_LOG10:
    case NW_EW_LOG1P:
    case NW_EW_ASINH:
    case NW_EW_ACOSH:
    case NW_EW_ATANH:
    case NW_EW_POW: return ElementwiseGroup::logarithms;
    case NW_EW_SIN:
    case NW_EW_COS:
    case NW_EW_TAN:
    case NW_EW_ASIN:
    case NW_EW_ACOS:
    case NW_EW_ATAN:
    case NW_EW_ATAN2: return ElementwiseGroup::angles;
    case NW_EW_GELU:
    case NW_EW_ERF:
    case NW_EW_ERFC: return ElementwiseGroup::error;
    default: return ElementwiseGroup::basic;
  }
}

}  // namespace narrows::vulkan
