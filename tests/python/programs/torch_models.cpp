// SPDX-License-Identifier: Apache-2.0
// torch_models.cpp -- a program without Python, linked with torch alone, or with libnarrows_torch too: runs saved models.
// torch_models LIBRARY INPUT MODEL...: loads LIBRARY unless it is "", and prints the sum of each model's output for the buffer `x`
// of the module INPUT.
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cstdio>
#include <string>

namespace {

at::Tensor run(const std::string& path, const at::Tensor& x) {
  if (path.find(".pt2") != std::string::npos) return torch::inductor::AOTIModelPackageLoader(path).run({x}).at(0);
  return torch::jit::load(path).forward({x}).toTensor();
}

}  // namespace

int main(int argc, char** argv) {
  if (*argv[1] != '\0' && dlopen(argv[1], RTLD_NOW) == nullptr) return std::puts(dlerror()), 2;
  c10::InferenceMode guard;
  const at::Tensor x = torch::jit::load(argv[2]).attr("x").toTensor();
  for (int i = 3; i < argc; ++i) std::printf("%.5f\n", run(argv[i], x).sum().item<double>());
  return 0;
}
