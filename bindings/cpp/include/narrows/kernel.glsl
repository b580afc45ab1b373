// SPDX-License-Identifier: Apache-2.0
// kernel.glsl -- what a compute shader of a plugin begins with: see plugin_vulkan.hpp.
#ifndef NARROWS_KERNEL_GLSL
#define NARROWS_KERNEL_GLSL
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

// A type of pointers to elements of TYPE, BYTES each: at(p, i).value is element i.
#define NARROWS_POINTER(NAME, TYPE, BYTES)                                                     \
  layout(buffer_reference, std430, buffer_reference_align = BYTES) buffer NAME { TYPE value; }; \
  NAME at(NAME p, uint64_t i) { return NAME(uint64_t(p) + i * BYTES); }

// The number of this thread among all of the dispatch, a uint64_t, if groups() of plugin_vulkan.hpp chose the groups. It is a macro:
// the size of a work group is known behind layout(local_size_x = ...) alone.
#define narrows_index()                                                                  \
  ((uint64_t(gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x) *                \
       (gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z) +                  \
   gl_LocalInvocationIndex)

#endif
