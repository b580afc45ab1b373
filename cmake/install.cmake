# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: headers, libnarrows, the backends (narrows_add_backend installs each), the command, and the
# files by which find_package(Narrows) and pkg-config find them. The prefix may be moved afterwards: every path is relative.
# Components: library, tools, xla, torch, onnxruntime, backend-NAME, and devel, which is the rest. packages.cmake makes a Debian package of each.
include(CMakePackageConfigHelpers)
option(NARROWS_INSTALL_DLPACK "Install dlpack.h beside Narrows' headers; OFF where a package of the system owns that file" ON)
set(NARROWS_DLPACK_INCLUDEDIR "" CACHE STRING "Folder below the prefix for dlpack/dlpack.h; unless given, that of Narrows' headers")
set(narrows_dlpack_dir ${CMAKE_INSTALL_INCLUDEDIR})
set(narrows_pc_dlpack)
if(NARROWS_DLPACK_INCLUDEDIR)
  set(narrows_dlpack_dir ${NARROWS_DLPACK_INCLUDEDIR})
  set(narrows_pc_dlpack " -I\${prefix}/${narrows_dlpack_dir}")
endif()
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME devel)

set(narrows_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Narrows)
set(narrows_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY abi/include/narrows DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY bindings/cpp/include/narrows DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h" PATTERN "*.glsl")
install(DIRECTORY bindings/xla/include/narrows DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(NARROWS_INSTALL_DLPACK)
  install(FILES ${Dlpack_INCLUDE_DIR}/dlpack/dlpack.h DESTINATION ${narrows_dlpack_dir}/dlpack)
endif()
set(narrows_name_for_linker)
if(SKBUILD)  # a wheel holds no links: in the place of libnarrows.so -> libnarrows.so.1 lies a file that tells the linker the same
  set(narrows_name_for_linker NAMELINK_SKIP)
  set(narrows_linked narrows)
  if(TARGET narrows_program)
    list(APPEND narrows_linked narrows_program)
  endif()
  foreach(library IN LISTS narrows_linked)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/package/lib${library}.so CONTENT "INPUT(lib${library}.so.1)\n")
    install(FILES ${PROJECT_BINARY_DIR}/package/lib${library}.so DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endforeach()
endif()
# narrows_install_library(COMPONENT TARGET... [OPTION...]): the link by which a linker finds a versioned one is devel's.
function(narrows_install_library component)
  install(TARGETS ${ARGN} EXPORT NarrowsTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_COMPONENT devel ${narrows_name_for_linker}
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()
narrows_install_library(library narrows_abi narrows_core narrows_plugin narrows_cpp)
narrows_install_library(xla narrows_xla)
if(TARGET narrows_program)
  narrows_install_library(library narrows_program)
endif()
if(TARGET narrows_torch)
  narrows_install_library(torch narrows_torch)
  install(DIRECTORY bindings/torch/include/narrows DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET narrows_onnxruntime)
  install(TARGETS narrows_onnxruntime LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT onnxruntime)
endif()
if(TARGET narrows_command)
  file(RELATIVE_PATH narrows_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(narrows_command PROPERTIES INSTALL_RPATH "$ORIGIN/${narrows_bin_to_lib}")
  install(TARGETS narrows_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()

install(EXPORT NarrowsTargets NAMESPACE Narrows:: DESTINATION ${narrows_cmake_dir})
configure_package_config_file(cmake/NarrowsConfig.cmake.in ${PROJECT_BINARY_DIR}/package/NarrowsConfig.cmake
                              INSTALL_DESTINATION ${narrows_cmake_dir} PATH_VARS narrows_dlpack_dir)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/NarrowsConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/NarrowsConfig.cmake ${PROJECT_BINARY_DIR}/package/NarrowsConfigVersion.cmake
              cmake/NarrowsBackend.cmake cmake/FindDlpack.cmake cmake/plugin.map
        DESTINATION ${narrows_cmake_dir})

file(RELATIVE_PATH narrows_pc_to_prefix ${CMAKE_INSTALL_PREFIX}/${narrows_pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" narrows_pc_to_prefix "${narrows_pc_to_prefix}")
set(narrows_pc_rpath)
if(SKBUILD)  # nobody has the folder of a Python package in LD_LIBRARY_PATH
  set(narrows_pc_rpath " -Wl,-rpath,\${libdir}")
endif()
configure_file(cmake/narrows.pc.in ${PROJECT_BINARY_DIR}/package/narrows.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/narrows.pc DESTINATION ${narrows_pkgconfig_dir})

# The same for the Python package as it is imported from a build folder: python/narrows, whose lib/ is a link to the build's.
if(NARROWS_BUILD_PYTHON AND NOT SKBUILD)
  set(narrows_build_package ${PROJECT_BINARY_DIR}/lib/cmake/Narrows)
  export(EXPORT NarrowsTargets NAMESPACE Narrows:: FILE ${narrows_build_package}/NarrowsTargets.cmake)
  configure_package_config_file(cmake/NarrowsConfig.cmake.in ${narrows_build_package}/NarrowsConfig.cmake PATH_VARS narrows_dlpack_dir
                                INSTALL_DESTINATION lib/cmake/Narrows INSTALL_PREFIX ${PROJECT_BINARY_DIR}/python/narrows)
  foreach(file IN ITEMS cmake/NarrowsBackend.cmake cmake/FindDlpack.cmake cmake/plugin.map)
    file(COPY ${PROJECT_SOURCE_DIR}/${file} DESTINATION ${narrows_build_package})
  endforeach()
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/LICENSE)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)
  install(DIRECTORY LICENSES DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)
endif()
