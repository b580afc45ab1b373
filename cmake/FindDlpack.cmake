# SPDX-License-Identifier: Apache-2.0
# Finds dlpack.h 1.3 or newer, from any package that brings it, and defines dlpack::dlpack. PyPI's apache-tvm-ffi brings it into a Python's
# site-packages, which scikit-build-core has among the prefixes.
set(_hints ${PROJECT_SOURCE_DIR}/.deps/include)
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
  list(APPEND _hints ${_prefix}/tvm_ffi/include)
endforeach()
find_path(Dlpack_INCLUDE_DIR dlpack/dlpack.h HINTS ${_hints})
if(Dlpack_INCLUDE_DIR)
  file(STRINGS ${Dlpack_INCLUDE_DIR}/dlpack/dlpack.h _lines REGEX "#define DLPACK_(MAJOR|MINOR)_VERSION")
  string(REGEX REPLACE ".*MAJOR_VERSION ([0-9]+).*MINOR_VERSION ([0-9]+).*" "\\1.\\2" Dlpack_VERSION "${_lines}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Dlpack REQUIRED_VARS Dlpack_INCLUDE_DIR VERSION_VAR Dlpack_VERSION)
if(Dlpack_FOUND AND NOT TARGET dlpack::dlpack)
  add_library(dlpack::dlpack INTERFACE IMPORTED)
  target_include_directories(dlpack::dlpack SYSTEM INTERFACE ${Dlpack_INCLUDE_DIR})
endif()
