# SPDX-License-Identifier: Apache-2.0
# For NVIDIA's GPUs: HIP's headers, which say its names in CUDA's, through clang. CUDA 13 lacks what they use, so it wants a tree of
# CUDA 12; ./run check hip-nvidia makes one, and brings the headers. The runtime of that tree is linked statically.
set(NARROWS_HIP_ARCHITECTURES "sm_90" CACHE STRING "GPUs to build for, as clang's --offload-arch; each brings its PTX along")
set(NARROWS_HIP_CUDA ${PROJECT_SOURCE_DIR}/.deps/hip-nvidia/cuda CACHE PATH "A tree of CUDA 12")
set(NARROWS_HIP_INCLUDE ${PROJECT_SOURCE_DIR}/.deps/hip-nvidia/include CACHE PATH "The folder of HIP's headers, 5.7 or newer")
find_program(NARROWS_HIP_CLANG NAMES clang++-19 clang++-20 clang++-21)
if(NOT NARROWS_HIP_CLANG)
  message(FATAL_ERROR "The hip backend for NVIDIA needs clang 19: on Debian and Ubuntu, apt-get install clang-19")
endif()
foreach(needed IN ITEMS ${NARROWS_HIP_CUDA}/lib64/libcudart_static.a ${NARROWS_HIP_INCLUDE}/hip/nvidia_detail/nvidia_hip_runtime_api.h)
  if(NOT EXISTS ${needed})
    message(FATAL_ERROR "The hip backend for NVIDIA needs ${needed}: ./run check hip-nvidia fetches it; or set NARROWS_HIP_CUDA and NARROWS_HIP_INCLUDE")
  endif()
endforeach()
set(environment)
set(compile ${NARROWS_HIP_CLANG} -x cuda --cuda-path=${NARROWS_HIP_CUDA} -Wno-unknown-cuda-version -D__HIP_PLATFORM_NVIDIA__
            -isystem ${NARROWS_HIP_INCLUDE})

# The wheels of CUDA 12 are no whole toolkit: fatbinary is taken from the machine's own CUDA, whose options are newer ones than clang's.
if(NOT EXISTS ${NARROWS_HIP_CUDA}/bin/fatbinary)
  cmake_path(SET nvcc "$ENV{CUDACXX}")
  cmake_path(GET nvcc PARENT_PATH beside_nvcc)
  find_program(NARROWS_FATBINARY fatbinary HINTS ${beside_nvcc} ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT NARROWS_FATBINARY)
    message(FATAL_ERROR "The hip backend for NVIDIA needs fatbinary, which a CUDA toolkit has; NARROWS_FATBINARY names it")
  endif()
  execute_process(COMMAND ${NARROWS_FATBINARY} --help OUTPUT_VARIABLE options ERROR_QUIET)
  set(compress)
  if(options MATCHES "--compress-mode")
    set(compress --compress-mode=size)
  endif()
  configure_file(fatbinary.in ${CMAKE_CURRENT_BINARY_DIR}/bin/fatbinary @ONLY FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  list(APPEND compile -B${CMAKE_CURRENT_BINARY_DIR}/bin)
  set(environment CCACHE_EXTRAFILES=${CMAKE_CURRENT_BINARY_DIR}/bin/fatbinary)  # which ccache does not see
endif()
# clang includes this header of cuRAND before any source, to undo what it declares; nobody uses cuRAND here.
if(NOT EXISTS ${NARROWS_HIP_CUDA}/include/curand_mtgp32_kernel.h)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/include/curand_mtgp32_kernel.h "")
  list(APPEND compile -isystem ${CMAKE_CURRENT_BINARY_DIR}/include)
endif()

set(vendor_sources ${CMAKE_CURRENT_SOURCE_DIR}/platform/nvidia.cpp ${PROJECT_SOURCE_DIR}/backends/cuda/platform/driver.cpp ${PROJECT_SOURCE_DIR}/backends/cuda/platform/compiler.cpp)
set(libraries ${NARROWS_HIP_CUDA}/lib64/libcudart_static.a Threads::Threads rt ${CMAKE_DL_LIBS})
