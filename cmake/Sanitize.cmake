# SPDX-License-Identifier: Apache-2.0
# NARROWS_SANITIZE: what gcc's -fsanitize= takes, for everything that is built; a finding ends the program.
# NARROWS_SANITIZE_SHORT: what `./run check asan --short` needs. The cpu backend has its baseline and AVX2 alone, which is half of the build, and
# the conformance suite is one part of many; every tier and every case belong to the whole run.
set(NARROWS_SANITIZE "" CACHE STRING "Sanitizers, ',' between: address,undefined or thread")
option(NARROWS_SANITIZE_SHORT "Build for the shorter run" OFF)
# CMAKE_BUILD_TYPE=Sanitize. -O1 takes a third to a half of -O2's time to compile checks into the kernels; -g1 is lines and functions.
set(CMAKE_C_FLAGS_SANITIZE "-O1 -g1")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1")
if(NARROWS_SANITIZE)
  add_compile_options(-fsanitize=${NARROWS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${NARROWS_SANITIZE})
endif()
if(NARROWS_SANITIZE_SHORT)
  add_compile_definitions(NARROWS_FEW_TARGETS)
endif()
