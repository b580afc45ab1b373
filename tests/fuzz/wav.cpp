// SPDX-License-Identifier: Apache-2.0
// wav.cpp -- fuzz target: the WAV reader of the narrows command on any bytes. What is demanded: nothing but WavError is thrown,
// with a reason; the samples are those of a data chunk, whole; what is accepted is a sound that the writer takes, and whose 16-bit
// form is read back to the bit. The reader of files agrees with the reader of bytes.
#include "demo/wav.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "finding.h"

namespace {

using narrows::fuzz::finding;
using narrows::tools::Wav;
using narrows::tools::WavError;

constexpr float kStep = 1.0f / 32768;  // of 16-bit samples

std::optional<Wav> parse(std::span<const uint8_t> file) {
  try {
    return narrows::tools::parse_wav(file);
  } catch (const WavError& error) {
    if (error.what()[0] == '\0') finding("refused without a reason");
    return std::nullopt;
  }
}

// By way of a file, in memory.
std::optional<Wav> read(std::span<const uint8_t> file) {
  static const int fd = memfd_create("narrows-fuzz-wav", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, file.data(), file.size(), 0) != static_cast<ssize_t>(file.size()))
    finding("no file in memory can be written");
  try {
    return narrows::tools::read_wav(path);
  } catch (const WavError& error) {
    if (std::string_view(error.what()).substr(0, path.size()) != path)
      finding("a reason that does not name the file: %s", error.what());
    return std::nullopt;
  }
}

void check_sound(const Wav& wav, size_t file_size) {
  if (wav.samples.empty() || wav.samples.size() > file_size) finding("%zu samples in %zu bytes", wav.samples.size(), file_size);
  if (wav.sample_rate == 0 || wav.sample_rate > 1'000'000) finding("a sample rate of %u", wav.sample_rate);
  if (wav.channels != 1 && wav.channels != 2) finding("%u channels", wav.channels);
  if (wav.encoding.empty()) finding("no name for the encoding");
  for (const float sample : wav.samples)
    if (!std::isfinite(sample)) finding("a sample is %g", static_cast<double>(sample));
}

// Somewhere in the file stands a data chunk of exactly as many bytes as the samples need.
void check_size(const Wav& wav, std::span<const uint8_t> file) {
  const uint64_t bytes = wav.samples.size() * wav.channels * (std::stoul(wav.encoding) / 8);
  const uint8_t head[] = {'d',
                          'a',
                          't',
                          'a',
                          static_cast<uint8_t>(bytes),
                          static_cast<uint8_t>(bytes >> 8),
                          static_cast<uint8_t>(bytes >> 16),
                          static_cast<uint8_t>(bytes >> 24)};
  const auto found = std::search(file.begin(), file.end(), std::begin(head), std::end(head));
  if (static_cast<uint64_t>(file.end() - found) < sizeof head + bytes)
    finding("%zu samples of %u channels, %s, from no chunk of so many bytes", wav.samples.size(), wav.channels,
            wav.encoding.c_str());
}

void check_round_trip(const Wav& wav) {
  const std::vector<uint8_t> file = narrows::tools::encode_wav(wav.samples, wav.sample_rate);
  const std::optional<Wav> again = parse(file);
  if (!again || again->samples.size() != wav.samples.size() || again->sample_rate != wav.sample_rate || again->channels != 1)
    finding("what was read cannot be written and read again");
  const bool same = wav.encoding == "16-bit PCM" && wav.channels == 1;
  for (size_t i = 0; i < wav.samples.size(); ++i) {
    const float sample = std::clamp(wav.samples[i], -1.0f, 1.0f), got = again->samples[i];
    // Half a step, and the whole of the one that +1 lacks.
    if (same ? got != sample : std::fabs(got - std::min(sample, 1 - kStep)) > kStep / 2)
      finding("sample %zu of %s was %.9g, and is %.9g when read again", i, wav.encoding.c_str(), static_cast<double>(sample),
              static_cast<double>(got));
  }
  if (narrows::tools::encode_wav(again->samples, again->sample_rate) != file) finding("written a second time it is another file");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> file(data, size);
  const std::optional<Wav> wav = parse(file), from_file = read(file);
  if (wav.has_value() != from_file.has_value() || (wav && wav->samples != from_file->samples))
    finding("the bytes are %s, the file is %s", wav ? "read" : "refused", from_file ? "read" : "refused");
  if (!wav) return 0;
  check_sound(*wav, size);
  check_size(*wav, file);
  check_round_trip(*wav);
  return 0;
}
