# SPDX-License-Identifier: Apache-2.0
# For AMD's GPUs, by hipcc. libamdhip64 is a shared library that the plugin needs to be loaded: HIP has no static one, and where it is
# missing the host lists the plugin as one that cannot be loaded, with the library's name.
set(NARROWS_HIP_ARCHITECTURES "gfx906;gfx908;gfx90a;gfx1030" CACHE STRING "GPUs to build for, as hipcc's --offload-arch")
find_program(NARROWS_HIPCC hipcc HINTS ENV ROCM_PATH ENV HIP_PATH PATHS /opt/rocm PATH_SUFFIXES bin)
find_library(NARROWS_AMDHIP64 amdhip64 HINTS ENV ROCM_PATH ENV HIP_PATH PATHS /opt/rocm PATH_SUFFIXES lib)
if(NOT NARROWS_HIPCC OR NOT NARROWS_AMDHIP64)
  message(FATAL_ERROR "The hip backend needs hipcc and libamdhip64: on Debian and Ubuntu, apt-get install hipcc libamdhip64-dev")
endif()
set(environment HIP_PLATFORM=amd)  # where hipcc sees nvcc it would compile for NVIDIA
set(compile ${NARROWS_HIPCC} -x hip)
set(vendor_sources ${CMAKE_CURRENT_SOURCE_DIR}/platform/amd.cpp ${CMAKE_CURRENT_SOURCE_DIR}/platform/amd_compiler.cpp)
set(libraries ${NARROWS_AMDHIP64})
