# SPDX-License-Identifier: Apache-2.0
# Shaders, compiled at build time by glslc and put into the binary as words:
#   narrows_add_shader(NAME FILE [DEFINITION[=VALUE]...])   compiles shaders/FILE
#   narrows_add_matrix_shader(NAME FILE [DEFINITION...])    one with cooperative matrices, by glslc or glslang, whichever knows them, of
#                                                           bf16 too if one does; where none does the shader is there without words
#   narrows_write_numbers(FILE HEADER PREFIX)               writes HEADER's #define PREFIX... lines to FILE, which shaders include
#   narrows_embed_shaders(TARGET HEADER)                    puts all that were added into TARGET; C++ finds them as
#                                                           narrows::vulkan::shaders::NAME of HEADER
find_program(GLSLC glslc REQUIRED)
set(NARROWS_SHADERS "")
set(NARROWS_GLSLC_OPTIMIZE -O)  # of the shaders that are added from there on
# Where each access brings its checks with it, loops stay loops: `unroll` is an attribute alone.
set(NARROWS_GLSLC_LOOPS "")
if(NARROWS_VULKAN_GPUAV)
  set(NARROWS_GLSLC_LOOPS -Dunroll=dont_unroll)
endif()
set(NARROWS_SHADER_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${NARROWS_SHADER_FOLDER})

# -mfmt=num: the words as a list of numbers, which C++ includes. The depfile names the included .glsl files.
function(narrows_add_shader name file)
  list(TRANSFORM ARGN PREPEND -D)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/shaders/${file})
  set(words ${NARROWS_SHADER_FOLDER}/${name}.inc)
  add_custom_command(OUTPUT ${words} COMMAND ${GLSLC} --target-env=vulkan1.2 ${NARROWS_GLSLC_OPTIMIZE} ${NARROWS_GLSLC_LOOPS} -Werror
                     -mfmt=num ${ARGN} -MD -MF ${words}.d -I ${PROJECT_SOURCE_DIR}/backends/vulkan/shaders -I ${NARROWS_SHADER_FOLDER}
                     -o ${words} ${source}
                     DEPENDS ${source} DEPFILE ${words}.d
                     COMMENT "glslc ${name}" VERBATIM)
  set(NARROWS_SHADERS ${NARROWS_SHADERS} ${name} PARENT_SCOPE)
endfunction()

# What compiles cooperative matrices: a command and its options, to which come a file for dependences, definitions, folders, -o and the
# source; empty: there is nothing. Of two that know them, one that knows them of bf16 too (narrows_matrix_bf16).
function(narrows_find_matrix_compiler)
  find_program(GLSLANG glslang HINTS ${PROJECT_SOURCE_DIR}/.deps/venv/bin)
  set(glslc ${GLSLC} --target-env=vulkan1.2 -O -Werror -mfmt=num -MD -MF)
  set(glslang ${GLSLANG} -V --quiet --target-env vulkan1.2 -x "-P#extension GL_GOOGLE_include_directive : require" --depfile)
  foreach(more IN ITEMS "#extension GL_EXT_bfloat16 : require" "")
    set(probe ${NARROWS_SHADER_FOLDER}/matrix_probe.comp)
    file(WRITE ${probe} "#version 460\n#extension GL_KHR_cooperative_matrix : require\n${more}\nvoid main() {}\n")
    foreach(compiler IN ITEMS glslc glslang)
      execute_process(COMMAND ${${compiler}} ${probe}.d -o ${probe}.inc ${probe} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
      if(NOT failed EQUAL 0)
        continue()
      endif()
      if(more)
        message(STATUS "Cooperative matrices: compiled by ${compiler}, of bf16 too")
        set_property(GLOBAL PROPERTY narrows_matrix_bf16 ON)
      else()
        message(STATUS "Cooperative matrices: compiled by ${compiler}, not of bf16, which newer glslang knows, as 16.6 (GLSLANG)")
      endif()
      set_property(GLOBAL PROPERTY narrows_matrix_compiler ${${compiler}})
      return()
    endforeach()
  endforeach()
  message(STATUS "Cooperative matrices: left out; ${GLSLC} does not know them, and there is no glslang of 13 or newer (GLSLANG)")
  set_property(GLOBAL PROPERTY narrows_matrix_compiler "")
endfunction()
get_property(known GLOBAL PROPERTY narrows_matrix_compiler SET)
if(NOT known)
  narrows_find_matrix_compiler()
endif()

function(narrows_add_matrix_shader name file)
  set(NARROWS_SHADERS ${NARROWS_SHADERS} ${name} PARENT_SCOPE)
  set(words ${NARROWS_SHADER_FOLDER}/${name}.inc)
  get_property(compiler GLOBAL PROPERTY narrows_matrix_compiler)
  get_property(knows_bf16 GLOBAL PROPERTY narrows_matrix_bf16)
  if(NOT compiler OR (DTYPE_BF16 IN_LIST ARGN AND NOT knows_bf16))
    file(CONFIGURE OUTPUT ${words}.none CONTENT "0\n" @ONLY)
    add_custom_command(OUTPUT ${words} COMMAND ${CMAKE_COMMAND} -E copy ${words}.none ${words} VERBATIM)  # built anew once there is one
    return()
  endif()
  list(TRANSFORM ARGN PREPEND -D)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/shaders/${file})
  add_custom_command(OUTPUT ${words} COMMAND ${compiler} ${words}.d ${ARGN} -I${PROJECT_SOURCE_DIR}/backends/vulkan/shaders
                     -I${NARROWS_SHADER_FOLDER} -o ${words} ${source}
                     DEPENDS ${source} DEPFILE ${words}.d
                     COMMENT "glslang ${name}" VERBATIM)
endfunction()

# GLSL cannot read a C header, and what both must agree on is written down once.
function(narrows_write_numbers file header prefix)
  file(STRINGS ${header} lines REGEX "^#define ${prefix}")
  list(JOIN lines "\n" text)
  file(CONFIGURE OUTPUT ${NARROWS_SHADER_FOLDER}/${file} CONTENT "// Made by NarrowsShaders.cmake.\n${text}\n" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endfunction()

function(narrows_embed_shaders target header)
  set(declarations "// Made by NarrowsShaders.cmake.\n#pragma once\n#include \"kernels.h\"\nnamespace narrows::vulkan::shaders {\n")
  set(definitions "// Made by NarrowsShaders.cmake.\n#include \"${header}\"\nnamespace narrows::vulkan::shaders {\n")
  set(words "")
  foreach(name IN LISTS NARROWS_SHADERS)
    string(APPEND declarations "extern const Shader ${name};\n")
    string(APPEND definitions "static constexpr uint32_t ${name}_words[] = {\n#include \"${name}.inc\"\n};\n"
                              "const Shader ${name} = {\"${name}\", ${name}_words, sizeof(${name}_words)};\n")
    list(APPEND words ${NARROWS_SHADER_FOLDER}/${name}.inc)
  endforeach()
  file(CONFIGURE OUTPUT ${NARROWS_SHADER_FOLDER}/${header} CONTENT "${declarations}}  // namespace\n" @ONLY)
  file(CONFIGURE OUTPUT ${NARROWS_SHADER_FOLDER}/${header}.cpp CONTENT "${definitions}}  // namespace\n" @ONLY)
  set_source_files_properties(${NARROWS_SHADER_FOLDER}/${header}.cpp PROPERTIES OBJECT_DEPENDS "${words}")
  target_sources(${target} PRIVATE ${NARROWS_SHADER_FOLDER}/${header}.cpp)
  target_include_directories(${target} PUBLIC ${NARROWS_SHADER_FOLDER})
endfunction()
