# The modules of the vulkan backend: narrows_add_shader(NAME FILE [DEFINITION[=VALUE]...]) compiles shaders/FILE by glslc; C++ finds
# it as shaders::NAME of "shaders.h". narrows_embed_shaders(TARGET) puts all of them into TARGET.
set(NARROWS_SHADERS "")
set(NARROWS_GLSLC_OPTIMIZE -O)
set(NARROWS_SHADER_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${NARROWS_SHADER_FOLDER})

# -mfmt=num: the words as a list of numbers, which C++ includes. The depfile names the included .glsl files.
function(narrows_add_shader name file)
  list(TRANSFORM ARGN PREPEND -D)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/shaders/${file})
  set(words ${NARROWS_SHADER_FOLDER}/${name}.inc)
  add_custom_command(OUTPUT ${words} COMMAND ${GLSLC} --target-env=vulkan1.2 ${NARROWS_GLSLC_OPTIMIZE} -Werror -mfmt=num ${ARGN} -MD -MF ${words}.d
                     -o ${words} ${source} DEPENDS ${source} DEPFILE ${words}.d COMMENT "glslc ${name}" VERBATIM)
  set(NARROWS_SHADERS ${NARROWS_SHADERS} ${name} PARENT_SCOPE)
endfunction()

function(narrows_embed_shaders target)
  set(header "// Made by shaders.cmake.\n#pragma once\n#include \"kernels.h\"\nnamespace narrows::vulkan::shaders {\n")
  set(source "// Made by shaders.cmake.\n#include \"shaders.h\"\nnamespace narrows::vulkan::shaders {\n")
  set(words "")
  foreach(name IN LISTS NARROWS_SHADERS)
    string(APPEND header "extern const Shader ${name};\n")
    string(APPEND source "static constexpr uint32_t ${name}_words[] = {\n#include \"${name}.inc\"\n};\n"
                         "const Shader ${name} = {\"${name}\", ${name}_words, sizeof(${name}_words)};\n")
    list(APPEND words ${NARROWS_SHADER_FOLDER}/${name}.inc)
  endforeach()
  file(CONFIGURE OUTPUT ${NARROWS_SHADER_FOLDER}/shaders.h CONTENT "${header}}  // namespace\n" @ONLY)
  file(CONFIGURE OUTPUT ${NARROWS_SHADER_FOLDER}/shaders.cpp CONTENT "${source}}  // namespace\n" @ONLY)
  set_source_files_properties(${NARROWS_SHADER_FOLDER}/shaders.cpp PROPERTIES OBJECT_DEPENDS "${words}")
  target_sources(${target} PRIVATE ${NARROWS_SHADER_FOLDER}/shaders.cpp)
  target_include_directories(${target} PRIVATE ${NARROWS_SHADER_FOLDER})
endfunction()

include(${CMAKE_CURRENT_SOURCE_DIR}/shaders/elementwise.cmake)
include(${CMAKE_CURRENT_SOURCE_DIR}/shaders/lltm.cmake)
include(${CMAKE_CURRENT_SOURCE_DIR}/shaders/conv1d.cmake)
