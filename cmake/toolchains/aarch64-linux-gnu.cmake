# SPDX-License-Identifier: Apache-2.0
# Cross compiles for arm64 with Debian's g++-aarch64-linux-gnu and runs what it built under qemu-user.
# NARROWS_ARM64_ROOT: a folder into which arm64 packages of the libraries were unpacked; ./run check arm64 makes one.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NARROWS_ARM64_ROOT)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${NARROWS_ARM64_ROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${NARROWS_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${NARROWS_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${NARROWS_ARM64_ROOT}/usr/share/pkgconfig)
set(libraries ${NARROWS_ARM64_ROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${libraries})
set(CMAKE_CROSSCOMPILING_EMULATOR
    "qemu-aarch64;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${libraries}:/usr/aarch64-linux-gnu/lib")
