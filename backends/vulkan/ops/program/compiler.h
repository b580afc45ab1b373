// SPDX-License-Identifier: Apache-2.0
// compiler.h -- shaderc, which compiles GLSL, opened when the first program is planned.
#pragma once

#include <string>

namespace narrows::vulkan {

// Refuses (NW_UNAVAILABLE) where there is none, with the command that installs it. Says which it is, with the texts that shaders
// include, for keys of what it made.
std::string compiler_identity();

// The SPIR-V that it makes and its file, for people. Refuses as that does.
std::string compiler_description();

// Whether it knows an extension of GLSL's, which is tried once. False where there is none.
bool compiler_knows(const std::string& extension);

// SPIR-V of a compute shader. Refuses (NW_FAILED) a text that it does not take.
std::string compile_glsl(const std::string& text);

}  // namespace narrows::vulkan
