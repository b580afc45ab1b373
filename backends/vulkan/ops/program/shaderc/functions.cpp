// SPDX-License-Identifier: Apache-2.0
// functions.cpp -- the functions of shaderc's static library, which hides them, by name. See ../shaderc.cmake and ../compiler.cpp.
#include <shaderc/shaderc.h>

#include <string_view>

extern "C" __attribute__((visibility("default"))) void* narrows_shaderc_function(const char* name) {
#define NARROWS_ROW(function) {#function, reinterpret_cast<void*>(function)}
  static const struct {
    std::string_view name;
    void* address;
  } rows[] = {
      NARROWS_ROW(shaderc_compiler_initialize),
      NARROWS_ROW(shaderc_compile_options_initialize),
      NARROWS_ROW(shaderc_compile_options_release),
      NARROWS_ROW(shaderc_compile_options_set_target_env),
      NARROWS_ROW(shaderc_compile_options_set_optimization_level),
      NARROWS_ROW(shaderc_compile_options_set_suppress_warnings),
      NARROWS_ROW(shaderc_compile_options_set_include_callbacks),
      NARROWS_ROW(shaderc_compile_into_spv),
      NARROWS_ROW(shaderc_result_release),
      NARROWS_ROW(shaderc_result_get_compilation_status),
      NARROWS_ROW(shaderc_result_get_length),
      NARROWS_ROW(shaderc_result_get_bytes),
      NARROWS_ROW(shaderc_result_get_error_message),
      NARROWS_ROW(shaderc_get_spv_version),
  };
#undef NARROWS_ROW
  for (const auto& row : rows)
    if (row.name == name) return row.address;
  return nullptr;
}
