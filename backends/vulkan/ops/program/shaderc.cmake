# SPDX-License-Identifier: Apache-2.0
# shaderc, which compiles tensor programs at run time: its header is needed here, its library is opened when the first program is
# planned. Where the distribution's library cannot be opened (Debian 12's lacks glslang's symbols), one is linked of the static
# parts, beside the plugin.
find_path(SHADERC_INCLUDE_DIR shaderc/shaderc.h REQUIRED)

function(narrows_add_shaderc)
  find_library(SHADERC_LIBRARY NAMES shaderc shaderc_shared)
  if(SHADERC_LIBRARY AND NOT CMAKE_CROSSCOMPILING AND NOT DEFINED NARROWS_SHADERC_OPENS)
    set(probe ${CMAKE_CURRENT_BINARY_DIR}/shaderc_probe.c)
    file(WRITE ${probe} "#include <dlfcn.h>\nint main(void) { return dlopen(\"${SHADERC_LIBRARY}\", RTLD_NOW) == 0; }\n")
    try_run(failed compiled ${CMAKE_CURRENT_BINARY_DIR}/shaderc_probe ${probe} LINK_LIBRARIES ${CMAKE_DL_LIBS})
    if(compiled AND failed EQUAL 0)
      set(opens ON)
    else()
      set(opens OFF)
    endif()
    set(NARROWS_SHADERC_OPENS ${opens} CACHE INTERNAL "whether the distribution's libshaderc can be opened")
  endif()
  if(NARROWS_SHADERC_OPENS OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(parts "")
  foreach(name IN ITEMS shaderc_combined glslang MachineIndependent OSDependent OGLCompiler GenericCodeGen HLSL SPIRV
                        SPIRV-Tools-opt SPIRV-Tools)
    find_library(NARROWS_STATIC_${name} lib${name}.a)
    if(NOT NARROWS_STATIC_${name})
      message(STATUS "Tensor programs on Vulkan: libshaderc cannot be opened here, nor linked for lack of lib${name}.a: "
                     "where they run they will need one")
      return()
    endif()
    list(APPEND parts ${NARROWS_STATIC_${name}})
  endforeach()
  message(STATUS "Tensor programs on Vulkan: libshaderc cannot be opened here; libnarrows_shaderc is linked of its static parts")
  add_library(narrows_shaderc SHARED ops/program/shaderc/functions.cpp)
  target_include_directories(narrows_shaderc SYSTEM PRIVATE ${SHADERC_INCLUDE_DIR})
  target_link_libraries(narrows_shaderc PRIVATE narrows_warnings -Wl,--start-group ${parts} -Wl,--end-group)
  target_link_options(narrows_shaderc PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,nodelete -Wl,-z,defs)
  set_target_properties(narrows_shaderc PROPERTIES CXX_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/narrows/backends)
  add_dependencies(narrows_vulkan narrows_shaderc)
  install(TARGETS narrows_shaderc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/narrows/backends)
endfunction()
