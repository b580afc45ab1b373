# SPDX-License-Identifier: Apache-2.0
# Debian packages, by `cpack -G DEB` in a build folder whose prefix is /usr, as that of the preset deb: one of each component that
# install.cmake lists. Dependences on the system's libraries are dpkg-shlibdeps' own.
set(NARROWS_PACKAGE_MAINTAINER "Narrows maintainers <narrows@localhost>" CACHE STRING "Maintainer of the Debian packages")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME narrows)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # else it stands before the summary of each package
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${NARROWS_PACKAGE_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENTS_ALL)
# Of what is compiled into the packages; the libraries that they depend on have their own.
set(copyright ${PROJECT_BINARY_DIR}/debian_copyright)
configure_file(cmake/debian_copyright ${copyright} COPYONLY)
file(GLOB texts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/LICENSES/*.txt ${PROJECT_SOURCE_DIR}/backends/vulkan/LICENSES/volk.txt)
list(FILTER texts EXCLUDE REGEX /\(gmp|sleef\).txt$)
foreach(text IN LISTS texts)
  file(READ ${text} text)
  file(APPEND ${copyright} "\n----\n\n${text}")
endforeach()
set(narrows_this_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

# narrows_package(COMPONENT NAME SECTION SUMMARY TEXT [DEPENDS own package...] [RECOMMENDS package...])
function(narrows_package component name section summary text)
  cmake_parse_arguments(PARSE_ARGV 5 arg "" "" "DEPENDS;RECOMMENDS")
  string(TOUPPER ${component} upper)
  list(TRANSFORM arg_DEPENDS APPEND " ${narrows_this_version}")
  list(JOIN arg_DEPENDS ", " depends)
  list(JOIN arg_RECOMMENDS ", " recommends)
  foreach(field IN ITEMS PACKAGE_NAME=${name} PACKAGE_SECTION=${section} PACKAGE_DEPENDS=${depends} PACKAGE_RECOMMENDS=${recommends}
                         "DESCRIPTION=${summary}\n${text}")
    string(REGEX MATCH "^([A-Z_]+)=(.*)$" _ "${field}")
    set(CPACK_DEBIAN_${upper}_${CMAKE_MATCH_1} "${CMAKE_MATCH_2}" PARENT_SCOPE)
  endforeach()
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  install(FILES ${PROJECT_BINARY_DIR}/debian_copyright DESTINATION share/doc/${name} RENAME copyright COMPONENT ${component}
          EXCLUDE_FROM_ALL)
endfunction()

narrows_package(library libnarrows1 libs "compute ops through one small C ABI (library)"
                "libnarrows calls ops of plugins on the device where the tensors live. A program also needs a backend, as narrows-backend-cpu."
                RECOMMENDS narrows-backend-cpu)
set(of_devel libnarrows1)
foreach(of_framework IN ITEMS xla torch onnxruntime)
  if(TARGET narrows_${of_framework})
    narrows_package(${of_framework} libnarrows-${of_framework} libs "compute ops through one small C ABI (for ${of_framework})"
                    "The ops of libnarrows for ${of_framework}, without Python." DEPENDS libnarrows1)
    list(APPEND of_devel libnarrows-${of_framework})
  endif()
endforeach()
list(REMOVE_ITEM of_devel libnarrows-onnxruntime)  # nothing links it
narrows_package(devel libnarrows-dev libdevel "compute ops through one small C ABI (headers)"
                "Headers of libnarrows for programs and plugins, and its files for CMake and pkg-config. dlpack.h is among them."
                DEPENDS ${of_devel} RECOMMENDS narrows)
if(TARGET narrows_command)
  narrows_package(tools narrows science "compute ops through one small C ABI (command)"
                  "The command narrows lists backends, devices and ops, and has a demo." DEPENDS libnarrows1
                  RECOMMENDS narrows-backend-cpu)
endif()
foreach(backend IN LISTS NARROWS_BACKENDS)
  narrows_package(backend-${backend} narrows-backend-${backend} libs "compute ops through one small C ABI (${backend} backend)"
                  "The plugin by which libnarrows runs its ops on ${backend} devices." DEPENDS libnarrows1)
endforeach()
include(CPack)
