# SPDX-License-Identifier: Apache-2.0
# NARROWS_FETCH: libraries that the machine lacks are downloaded, from the pinned tags below, and built in. Off by default: the
# usual way is a package (./run installs Debian's and Ubuntu's). `pip install .` turns it on. What is installed is always taken first.
option(NARROWS_FETCH "Download the libraries that are not installed" OFF)
if(NOT NARROWS_FETCH)
  return()
endif()
include(FetchContent)

# narrows_fetch(NAME REPOSITORY TAG): the sources and, unless a folder without a CMakeLists.txt is named, their targets.
function(narrows_fetch name repository tag)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW) # their options take the values set here
  set(BUILD_TESTING OFF)
  message(STATUS "${name} is not installed: fetching ${tag}")
  FetchContent_Declare(${name} GIT_REPOSITORY https://github.com/${repository} GIT_TAG ${tag} GIT_SHALLOW ON SYSTEM ${ARGN})
  FetchContent_MakeAvailable(${name})
  set(${name}_SOURCE_DIR ${${name}_SOURCE_DIR} PARENT_SCOPE)
  set(${name}_BINARY_DIR ${${name}_BINARY_DIR} PARENT_SCOPE)
endfunction()

find_package(Dlpack 1.3 QUIET)
if(NOT Dlpack_FOUND)
  narrows_fetch(dlpack dmlc/dlpack v1.3 SOURCE_SUBDIR include)
  set(Dlpack_INCLUDE_DIR ${dlpack_SOURCE_DIR}/include CACHE PATH "" FORCE)
endif()

find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT XXHASH_INCLUDE_DIR)
  narrows_fetch(xxhash Cyan4973/xxHash v0.8.3 SOURCE_SUBDIR doc)
  set(XXHASH_INCLUDE_DIR ${xxhash_SOURCE_DIR} CACHE PATH "" FORCE)
endif()

find_package(PkgConfig)
if(PkgConfig_FOUND)
  pkg_check_modules(installed_hwy QUIET libhwy)
endif()
if("cpu" IN_LIST NARROWS_BACKENDS AND NOT installed_hwy_FOUND)
  set(HWY_ENABLE_TESTS OFF)
  set(HWY_ENABLE_EXAMPLES OFF)
  set(HWY_ENABLE_CONTRIB OFF)
  set(HWY_ENABLE_INSTALL OFF)
  narrows_fetch(highway google/highway 1.2.0)
endif()

find_library(SLEEF_LIBRARY sleef)
if("cpu" IN_LIST NARROWS_BACKENDS AND NOT SLEEF_LIBRARY)
  foreach(part IN ITEMS TESTS DFT QUAD GNUABI_LIBS SCALAR_LIB SHARED_LIBS)
    set(SLEEF_BUILD_${part} OFF)
  endforeach()
  set(SLEEF_ENABLE_TESTER OFF)
  narrows_fetch(sleef shibatch/sleef 3.9.0)
endif()

# These are asked for by find_package(), which finds what was fetched.
function(narrows_fetch_package name version repository tag)
  find_package(${name} ${version} QUIET)
  if(NOT ${name}_FOUND)
    message(STATUS "${name} is not installed: fetching ${tag}")
    FetchContent_Declare(${name} GIT_REPOSITORY https://github.com/${repository} GIT_TAG ${tag} GIT_SHALLOW ON SYSTEM
                         OVERRIDE_FIND_PACKAGE)
  endif()
endfunction()
if(NARROWS_BUILD_TOOLS OR NARROWS_BUILD_TESTS OR NARROWS_BUILD_CONFORM)
  narrows_fetch_package(CLI11 2.1 CLIUtils/CLI11 v2.4.1)
  narrows_fetch_package(nlohmann_json 3.10 nlohmann/json v3.11.3)
endif()
if(NARROWS_BUILD_TESTS OR NARROWS_BUILD_CONFORM)
  narrows_fetch_package(Catch2 3.4 catchorg/Catch2 v3.7.1)
endif()
