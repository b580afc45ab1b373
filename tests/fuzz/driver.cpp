// SPDX-License-Identifier: Apache-2.0
// driver.cpp -- runs a fuzz target once on each file of the folders that are its arguments: the seeds and the former findings, as
// an ordinary test, without libFuzzer. Fails when the first folder, that of the seeds, has no file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int count = 0, seeds = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::string> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i], error)) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) {
      std::printf("%s\n", file.c_str());
      std::fflush(stdout);  // the last line names the file that ended the process
      std::ifstream in(file, std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++count;
      seeds += i == 1;
    }
  }
  std::printf("%d inputs\n", count);
  return seeds == 0 ? 1 : 0;
}
