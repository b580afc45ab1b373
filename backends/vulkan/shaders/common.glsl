// common.glsl -- what every module begins with. Recorder::dispatch() folds the work groups into x and y: flat_group() unfolds them.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

uint flat_group() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
// The group's column and row, with `columns` groups to a row; no division where the grid has such rows
// (Recorder::dispatch_rows).
uvec2 group_of_rows(uint columns) {
  if (gl_NumWorkGroups.x == columns) return gl_WorkGroupID.xy;
  const uint group = flat_group(), row = group / columns;
  return uvec2(group - row * columns, row);
}
