// SPDX-License-Identifier: Apache-2.0
// wav.h -- WAV files in and out. Any file that is not plainly a mono or stereo PCM or float WAV is refused with a message; no
// size that a header claims is believed before it has been compared with the bytes that are there.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace narrows::tools {

// Why a file could not be read or written. what() names the file where one is known.
struct WavError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Wav {
  uint32_t sample_rate = 0;    // Hz
  uint32_t channels = 0;       // of the file: 1 or 2
  std::string encoding;        // of the file: "16-bit PCM"
  std::vector<float> samples;  // one channel, stereo mixed by the mean; full scale is +-1

  double seconds() const { return sample_rate == 0 ? 0 : static_cast<double>(samples.size()) / sample_rate; }
};

inline constexpr uint64_t kLargestWav = uint64_t{1} << 30;  // bytes

// PCM of 8, 16, 24 or 32 bits and float of 32 or 64, as WAVE_FORMAT_EXTENSIBLE too. Throws WavError.
Wav parse_wav(std::span<const uint8_t> file);
Wav read_wav(const std::string& path);

// A mono 16-bit PCM file; samples beyond +-1 are clipped and rounded half away from zero. Throws WavError.
std::vector<uint8_t> encode_wav(std::span<const float> samples, uint32_t sample_rate);
void write_wav(const std::string& path, std::span<const float> samples, uint32_t sample_rate);

}  // namespace narrows::tools
