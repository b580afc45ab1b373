# SPDX-License-Identifier: Apache-2.0
# The functions of elementwise as text, which the run-time compiler of programs reads: narrows_program_texts(FILE) writes the header FILE.
function(narrows_program_texts file)
  set(parts "// SPDX-License-Identifier: Apache-2.0\n// Made by backends/cuda/ops/program/texts.cmake.\n#pragma once\n")
  foreach(name IN ITEMS half math functions convert)
    set(source ${PROJECT_SOURCE_DIR}/backends/cuda/ops/elementwise/elementwise_${name}.h)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(READ ${source} text)
    string(REGEX REPLACE "#(include|pragma once)[^\n]*" "" text "${text}")
    string(REPLACE "std::" "nws::" text "${text}")  # the prelude's, since these compilers have no headers
    string(REPLACE "namespace narrows::gpu" "namespace nw" text "${text}")
    string(APPEND parts "inline constexpr char kElementwise_${name}[] = R\"PART(${text})PART\";\n")
  endforeach()
  file(CONFIGURE OUTPUT ${file} CONTENT "${parts}" @ONLY)
endfunction()
