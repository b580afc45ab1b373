# SPDX-License-Identifier: Apache-2.0
# For no GPU: the sources that hipcc compiles for AMD's, by the C++ compiler, with a HIP that the CPU plays (tests/hip/emulation). For tests:
# kernels run, and run under the sanitizers.
find_package(Boost 1.74 CONFIG REQUIRED COMPONENTS context)
set(emulation ${PROJECT_SOURCE_DIR}/tests/hip/emulation)
add_library(narrows_hip_emulation STATIC ${emulation}/block.cpp ${emulation}/compiler.cpp ${emulation}/runtime.cpp)
target_include_directories(narrows_hip_emulation PUBLIC ${emulation})
target_link_libraries(narrows_hip_emulation PUBLIC narrows_warnings PRIVATE Boost::context ${CMAKE_DL_LIBS})
# What its hiprtc runs: the C++ compiler, as the backend itself is compiled.
set_source_files_properties(${emulation}/compiler.cpp PROPERTIES COMPILE_DEFINITIONS
  "EMULATION_COMPILER=\"${CMAKE_CXX_COMPILER}\";EMULATION_FOLDER=\"${emulation}\";EMULATION_SANITIZE=\"${NARROWS_SANITIZE}\"")
set_target_properties(narrows_hip_emulation PROPERTIES CXX_VISIBILITY_PRESET hidden)

set_source_files_properties(${op_sources} PROPERTIES LANGUAGE CXX)
narrows_add_backend(hip NO_INSTALL SOURCES ${op_sources} ${platform_sources} platform/amd.cpp platform/amd_compiler.cpp ${shared}/plugin.cpp ${shared}/memory_check.cpp
                    LIBRARIES narrows_backend_common narrows_hip_emulation MANIFEST manifest.json)
set_target_properties(narrows_hip PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/narrows/backends)  # found all the same
target_include_directories(narrows_hip PRIVATE platform ${shared} ${texts})
target_compile_definitions(narrows_hip PRIVATE NARROWS_BACKEND_VERSION="${PROJECT_VERSION}" NW_UNIT_LANES=32)
# Kernels read elements of one type through another, and leave pragmas to who knows them. GCC 12 warns of indices in dots that no
# instance takes. fma() is an instruction where there is one.
target_compile_options(narrows_hip PRIVATE -fno-strict-aliasing -Wno-unknown-pragmas $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
if(NARROWS_SANITIZE MATCHES "undefined")  # pointers go out of tensors before they come back; of the others AddressSanitizer tells, for less
  target_compile_options(narrows_hip PRIVATE -fno-sanitize=null,object-size,pointer-overflow)
endif()
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_compile_options(narrows_hip PRIVATE -march=x86-64-v3)
endif()
foreach(source IN LISTS op_sources)
  if(source MATCHES "/elementwise[^/]*$")  # most of what is compiled, and soon run
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off -O0)
  else()  # products of tiles, which take the time of the tests
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O2)
  endif()
endforeach()
