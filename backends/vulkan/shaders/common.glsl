// SPDX-License-Identifier: Apache-2.0
// common.glsl -- what every module begins with. Recorder::dispatch() folds the work groups into x and y: flat_group() unfolds them. A
// module that asks for gl_NumWorkGroups makes each of its dispatches take 0.3 us longer on NVIDIA's GPUs: rows are a power of two.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(constant_id = 29) const uint kRowShift = 15;  // PhysicalDevice::row_shift()

uint flat_group() { return (gl_WorkGroupID.y << kRowShift) + gl_WorkGroupID.x; }
// The group's column and row, with `columns` groups to a row; no division where the grid has such rows
// (PhysicalDevice::has_grid(), Recorder::dispatch_rows()).
uvec2 group_of_rows(uint columns, bool has_grid) {
  if (has_grid) return gl_WorkGroupID.xy;
  const uint group = flat_group(), row = group / columns;
  return uvec2(group - row * columns, row);
}
