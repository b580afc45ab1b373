# SPDX-License-Identifier: Apache-2.0
# narrows_add_backend(NAME [NO_INSTALL] SOURCES ... [LIBRARIES ...] [MANIFEST file] [DESTINATION folder]): here, and for who has
# found an installed Narrows. MANIFEST: what `narrows conform` has to know of it; it is put beside the module as
# narrows_NAME.manifest.json. DESTINATION: where it is installed, as in a Python package; else NARROWS_BACKENDS_DESTINATION; else
# narrows/backends beside libnarrows. What is installed is the component backend-NAME.
# A shader times.comp among SOURCES becomes the header times.comp.h, by glslc: `constexpr uint32_t times[]`, its SPIR-V module.
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

function(narrows_add_backend name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_INSTALL" "MANIFEST;DESTINATION" "SOURCES;LIBRARIES")
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
  add_library(${target} MODULE ${arg_SOURCES})
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
