# SPDX-License-Identifier: Apache-2.0
# narrows_add_backend(NAME [NO_INSTALL] SOURCES ... [LIBRARIES ...] [MANIFEST file] [DESTINATION folder]): here, and for who has
# found an installed Narrows. MANIFEST: what `narrows conform` has to know of it; it is put beside the module as
# narrows_NAME.manifest.json. DESTINATION: where it is installed, as in a Python package; else NARROWS_BACKENDS_DESTINATION; else
# narrows/backends beside libnarrows. What is installed is the component backend-NAME.
# A plugin: a module beside libnarrows that exports narrows_plugin_query and nothing else, and is never unloaded.
set(NARROWS_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map CACHE INTERNAL "")
include(GNUInstallDirs)
function(narrows_add_backend name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_INSTALL" "MANIFEST;DESTINATION" "SOURCES;LIBRARIES")
  if(NOT arg_DESTINATION)
    set(arg_DESTINATION ${NARROWS_BACKENDS_DESTINATION})
  endif()
  if(NOT arg_DESTINATION)
    set(arg_DESTINATION ${CMAKE_INSTALL_LIBDIR}/narrows/backends)
  endif()
  set(target narrows_${name})
  add_library(${target} MODULE ${arg_SOURCES})
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
