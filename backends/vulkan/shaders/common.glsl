// common.glsl -- what every module begins with. Recorder::dispatch() folds the work groups into x and y: flat_group() unfolds them.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

uint flat_group() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
