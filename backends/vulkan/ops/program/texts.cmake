# SPDX-License-Identifier: Apache-2.0
# The GLSL that the shaders of tensor programs include, as a table of C++: narrows_glsl_texts(FILE) writes the header FILE.
# program/program_names.glsl is made here: new names for what math_f64.glsl and math_f32.glsl both have (program_f64.glsl).
function(narrows_glsl_texts file)
  set(shaders ${PROJECT_SOURCE_DIR}/backends/vulkan/shaders)
  set(names not_a_number power_of_two two_over_pi Wide)
  foreach(name IN ITEMS math_f64 math real)
    file(READ ${shaders}/${name}.glsl text)
    string(REGEX MATCHALL "k[A-Z][A-Za-z0-9]*" found "${text}")
    list(APPEND names ${found})
  endforeach()
  list(REMOVE_DUPLICATES names)
  list(TRANSFORM names REPLACE "(.+)" "#define \\1 \\1_f64")
  list(JOIN names "\n" renamed)
  set(rows "  {\"program/program_names.glsl\", R\"PART(${renamed}\n)PART\"},\n")
  foreach(name IN ITEMS bits common elementwise/elementwise_cast elementwise/elementwise_words float_controls functions_f32 integers
                        math math_f32 math_f64 program/program program/program_f64 real)
    set(source ${shaders}/${name}.glsl)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(READ ${source} text)
    string(APPEND rows "  {\"${name}.glsl\", R\"PART(${text})PART\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${file} CONTENT "// SPDX-License-Identifier: Apache-2.0
// Made by backends/vulkan/ops/program/texts.cmake.
#pragma once
#include <string_view>
struct IncludedText {
  std::string_view name, text;
};
inline constexpr IncludedText kIncluded[] = {
${rows}};
" @ONLY)
endfunction()
