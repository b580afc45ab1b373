# SPDX-License-Identifier: Apache-2.0
# narrows_add_backend(NAME [NO_INSTALL] [HIP] SOURCES ... [LIBRARIES ...] [MANIFEST file] [DESTINATION folder]): here, and for who has
# found an installed Narrows. MANIFEST: what `narrows conform` has to know of it; it is put beside the module as
# narrows_NAME.manifest.json. DESTINATION: where it is installed, as in a Python package; else NARROWS_BACKENDS_DESTINATION; else
# narrows/backends beside libnarrows. What is installed is the component backend-NAME.
# A shader times.comp among SOURCES becomes the header times.comp.h, by glslc: `constexpr uint32_t times[]`, its SPIR-V module.
# HIP: sources in CUDA (plugin_cuda.hpp) are compiled by hipcc for AMD's GPUs, those of NARROWS_HIP_ARCHITECTURES.
# A plugin: a module beside libnarrows that exports narrows_plugin_query and nothing else, and is never unloaded.
set(NARROWS_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map CACHE INTERNAL "")
include(GNUInstallDirs)

function(narrows_shader_header target shader)
  find_program(GLSLC glslc REQUIRED)
  cmake_path(GET shader STEM name)
  cmake_path(ABSOLUTE_PATH shader)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}_shaders)
  file(CONFIGURE OUTPUT ${folder}/${name}.comp.h @ONLY
       CONTENT "#include <cstdint>\nconstexpr std::uint32_t ${name}[] = {\n#include \"${name}.comp.inc\"\n};\n")
  set(folders $<TARGET_PROPERTY:Narrows::plugin,INTERFACE_INCLUDE_DIRECTORIES>)
  add_custom_command(OUTPUT ${folder}/${name}.comp.inc
    COMMAND ${GLSLC} --target-env=vulkan1.2 -O -mfmt=num "-I$<JOIN:${folders},;-I>" -MD -MF ${folder}/${name}.comp.d
            -o ${folder}/${name}.comp.inc ${shader}
    DEPENDS ${shader} DEPFILE ${folder}/${name}.comp.d COMMENT "glslc ${name}.comp" COMMAND_EXPAND_LISTS VERBATIM)
  target_sources(${target} PRIVATE ${folder}/${name}.comp.inc)
  target_include_directories(${target} PRIVATE ${folder})
endfunction()

# narrows_hip_objects(TARGET SOURCE...): the target has the objects that hipcc makes of these sources.
function(narrows_hip_objects target)
  find_program(NARROWS_HIPCC hipcc HINTS ENV ROCM_PATH ENV HIP_PATH PATHS /opt/rocm PATH_SUFFIXES bin REQUIRED)
  find_library(NARROWS_AMDHIP64 amdhip64 HINTS ENV ROCM_PATH ENV HIP_PATH PATHS /opt/rocm PATH_SUFFIXES lib REQUIRED)
  set(NARROWS_HIP_ARCHITECTURES "gfx906;gfx908;gfx90a;gfx1030" CACHE STRING "GPUs to build for, as hipcc's --offload-arch")
  list(TRANSFORM NARROWS_HIP_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE architectures)
  set(folders $<TARGET_PROPERTY:Narrows::plugin,INTERFACE_INCLUDE_DIRECTORIES>)
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(GET source FILENAME file)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_hip/${file}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d COMMENT "hipcc ${file}" COMMAND_EXPAND_LISTS VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/${target}_hip
      COMMAND ${CMAKE_COMMAND} -E env HIP_PLATFORM=amd ${NARROWS_HIPCC} -x hip ${architectures} -std=c++17 -O3 -fPIC
              -fvisibility=hidden "-I$<JOIN:${folders},;-I>" "-I$<JOIN:${folders},/narrows/hip;-I>/narrows/hip" -include cuda_runtime.h
              -MD -MT ${object} -MF ${object}.d -c ${source} -o ${object})
    target_sources(${target} PRIVATE ${object})
  endforeach()
  target_link_libraries(${target} PRIVATE ${NARROWS_AMDHIP64})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

function(narrows_add_backend name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_INSTALL;HIP" "MANIFEST;DESTINATION" "SOURCES;LIBRARIES")
  if(NOT arg_DESTINATION)
    set(arg_DESTINATION ${NARROWS_BACKENDS_DESTINATION})
  endif()
  if(NOT arg_DESTINATION)
    set(arg_DESTINATION ${CMAKE_INSTALL_LIBDIR}/narrows/backends)
  endif()
  set(target narrows_${name})
  set(shaders ${arg_SOURCES})
  list(FILTER shaders INCLUDE REGEX "\\.comp$")
  list(FILTER arg_SOURCES EXCLUDE REGEX "\\.comp$")
  set(for_hip)
  if(arg_HIP)
    set(for_hip ${arg_SOURCES})
    list(FILTER for_hip INCLUDE REGEX "\\.cu$")
    list(FILTER arg_SOURCES EXCLUDE REGEX "\\.cu$")
  endif()
  add_library(${target} MODULE ${arg_SOURCES})
  if(for_hip)
    narrows_hip_objects(${target} ${for_hip})
  endif()
  foreach(shader IN LISTS shaders)
    narrows_shader_header(${target} ${shader})
  endforeach()
  target_link_libraries(${target} PRIVATE Narrows::plugin $<TARGET_NAME_IF_EXISTS:narrows_warnings> ${arg_LIBRARIES})
  set_target_properties(${target} PROPERTIES
    PREFIX "" CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/narrows/backends
    LINK_DEPENDS ${NARROWS_PLUGIN_MAP})
  if(arg_MANIFEST)
    cmake_path(ABSOLUTE_PATH arg_MANIFEST)
    set(folder ${PROJECT_BINARY_DIR}/lib/narrows/backends)
    if(arg_NO_INSTALL)
      set(folder ${CMAKE_CURRENT_BINARY_DIR})
    endif()
    configure_file(${arg_MANIFEST} ${folder}/${target}.manifest.json COPYONLY)
    if(NOT arg_NO_INSTALL)
      install(FILES ${arg_MANIFEST} DESTINATION ${arg_DESTINATION} RENAME ${target}.manifest.json COMPONENT backend-${name})
    endif()
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  target_link_options(${target} PRIVATE -Wl,--version-script=${NARROWS_PLUGIN_MAP} -Wl,--exclude-libs,ALL -Wl,-z,nodelete
                                        -Wl,-z,defs)
  if(arg_NO_INSTALL)  # for tests and benchmarks: kept away from the plugins that are found
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
    return()
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${arg_DESTINATION} COMPONENT backend-${name})
endfunction()
