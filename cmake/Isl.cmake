# SPDX-License-Identifier: Apache-2.0
# isl, the library of integer sets that verifies schedules of tensor programs: the target narrows_isl, where there is one. It is the
# installed library. With NARROWS_ISL_FROM_SOURCE, or where none is installed and NARROWS_FETCH allows downloads, it is a pinned
# release: linked statically, compiled for size, with its own integers (imath) in place of GMP. The wheels of scripts/release.py
# have that one. Where nobody asked for the release and it cannot be downloaded, a build goes on without tensor programs.
option(NARROWS_ISL_FROM_SOURCE "Build isl from its released sources, without GMP, in place of the installed one" OFF)
set(NARROWS_ISL_RELEASE isl-0.25)
set(NARROWS_ISL_URL https://libisl.sourceforge.io/${NARROWS_ISL_RELEASE}.tar.xz CACHE STRING
    "Where the release of isl is: an address, or a file, as Debian's isl_0.25.orig.tar.xz")

if(NOT NARROWS_ISL_FROM_SOURCE)
  find_path(ISL_INCLUDE_DIR isl/ctx.h)
  find_library(ISL_LIBRARY isl)
  if(ISL_INCLUDE_DIR AND ISL_LIBRARY)
    add_library(narrows_isl INTERFACE)
    target_link_libraries(narrows_isl INTERFACE ${ISL_LIBRARY})
    target_include_directories(narrows_isl SYSTEM INTERFACE ${ISL_INCLUDE_DIR})
    return()
  endif()
  if(NOT NARROWS_FETCH OR NOT "cpu" IN_LIST NARROWS_BACKENDS)  # the wheel of another backend has no libnarrows_program
    return()
  endif()
  message(STATUS "isl is not installed: fetching ${NARROWS_ISL_RELEASE}")
  set(isl_archive ${PROJECT_BINARY_DIR}/${NARROWS_ISL_RELEASE}.tar.xz)
  if(NARROWS_ISL_URL MATCHES "^https?://")
    file(DOWNLOAD ${NARROWS_ISL_URL} ${isl_archive} STATUS isl_status TIMEOUT 300 INACTIVITY_TIMEOUT 30)
    list(GET isl_status 0 isl_failed)
    if(isl_failed)
      list(GET isl_status 1 isl_reason)
      message(WARNING "${NARROWS_ISL_URL}: ${isl_reason}. This build has no schedules of tensor programs; install isl (Debian: "
                      "libisl-dev), or give NARROWS_ISL_URL a file")
      return()
    endif()
    set(NARROWS_ISL_URL ${isl_archive})
  endif()
endif()

include(FetchContent)
FetchContent_Declare(isl URL ${NARROWS_ISL_URL} DOWNLOAD_EXTRACT_TIMESTAMP ON
                     URL_HASH SHA256=be7b210647ccadf90a2f0b000fca11a4d40546374a850db67adb32fad4b230d9)
FetchContent_MakeAvailable(isl)

# What isl's configure would find on Linux with GCC or Clang.
set(isl_folder ${PROJECT_BINARY_DIR}/isl)
file(CONFIGURE OUTPUT ${isl_folder}/isl_config.h @ONLY CONTENT [[
#define GCC_WARN_UNUSED_RESULT __attribute__((__warn_unused_result__))
#define HAVE___ATTRIBUTE__ 1
#define HAVE_DECL_FFS 1
#define HAVE_DECL_SNPRINTF 1
#define HAVE_DECL_STRCASECMP 1
#define HAVE_DECL_STRNCASECMP 1
#define USE_IMATH_FOR_MP 1
#define USE_SMALL_INT_OPT 1
#include <isl_config_post.h>
]])
file(CONFIGURE OUTPUT ${isl_folder}/include/isl/stdint.h CONTENT "#include <stdint.h>\n")
file(CONFIGURE OUTPUT ${isl_folder}/gitversion.h CONTENT "#define GIT_HEAD_ID \"${NARROWS_ISL_RELEASE}\"\n")

# isl_<name>.c, as Makefile.am lists them with --with-int=imath-32.
set(isl_names aff aff_map affine_hull arg ast ast_build ast_build_expr ast_codegen ast_graft bernstein blk bound box coalesce
  constraint convex_hull ctx deprecated dim_map equalities factorization farkas ffs flow fold hash id id_to_ast_expr id_to_id id_to_pw_aff ilp
  imath input int_sioimath local local_space lp map map_list map_simplify map_subtract map_to_basic_set mat morph obj options output
  point polynomial printer range reordering sample scan schedule schedule_band schedule_constraints schedule_node schedule_read
  schedule_tree scheduler scheduler_clustering seq set_list set_to_ast_graft_list sort space stream stride tab tab_pip tarjan
  transitive_closure union_map val val_sioimath vec version vertices)
list(TRANSFORM isl_names REPLACE "^.+$" "${isl_SOURCE_DIR}/isl_\\0.c" OUTPUT_VARIABLE isl_sources)
foreach(name IN ITEMS basis_reduction_tab print imath_wrap/gmp_compat imath_wrap/imath imath_wrap/imrat)
  list(APPEND isl_sources ${isl_SOURCE_DIR}/${name}.c)
endforeach()

# A warning of isl's is not ours to mend. Sections let the linker leave out what no proof needs.
add_library(narrows_isl_sources STATIC ${isl_sources})
target_compile_options(narrows_isl_sources PRIVATE -w $<$<CONFIG:Release>:-Os> -ffunction-sections -fdata-sections)
target_include_directories(narrows_isl_sources PRIVATE ${isl_folder} ${isl_SOURCE_DIR} ${isl_SOURCE_DIR}/imath_wrap)
target_include_directories(narrows_isl_sources SYSTEM PUBLIC ${isl_folder}/include ${isl_SOURCE_DIR}/include)
set_target_properties(narrows_isl_sources PROPERTIES C_EXTENSIONS ON C_VISIBILITY_PRESET hidden)
add_library(narrows_isl INTERFACE)
target_link_libraries(narrows_isl INTERFACE narrows_isl_sources -Wl,--gc-sections)
