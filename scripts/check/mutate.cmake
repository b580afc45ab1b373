# SPDX-License-Identifier: Apache-2.0
# mutate.cmake -- what `./run check mutate` compiles otherwise than `./run test`: the product alone. ccache knows the tests' objects.
# CMake includes it after project() (CMAKE_PROJECT_INCLUDE); the targets are there when the top folder is done.
function(narrows_mutate_options)
  # A change that leaves a variable without a use is one for the tests to catch.
  foreach(target IN ITEMS narrows_core_objects narrows_program_ir narrows_program_schedule narrows_program narrows_backend_common narrows_cpu)
    target_compile_options(${target} PRIVATE -w)
  endforeach()
  # A kernel for one tier at -O1 takes a sixth of the time to compile.
  target_compile_options(narrows_cpu PRIVATE -O1)
  if(NARROWS_MUTATE_TIER STREQUAL "avx2")
    target_compile_options(narrows_cpu PRIVATE -march=haswell -DNARROWS_FEW_TARGETS)
  endif()
endfunction()
cmake_language(DEFER CALL narrows_mutate_options)
