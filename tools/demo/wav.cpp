// SPDX-License-Identifier: Apache-2.0
// wav.cpp -- the RIFF reader and writer. See wav.h.
#include "wav.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

namespace narrows::tools {
namespace {

constexpr uint16_t kPcm = 1, kFloat = 3, kExtensible = 0xFFFE;
constexpr uint32_t kHighestRate = 1'000'000;  // Hz

// Little-endian bytes, read from the front. Every read checks what is left.
class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  size_t left() const { return bytes_.size(); }

  std::span<const uint8_t> take(size_t count, const char* what) {
    if (count > left())
      throw WavError(std::string(what) + " needs " + std::to_string(count) + " bytes, but the file ends after " +
                     std::to_string(left()) + " of them");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  uint32_t number(size_t count, const char* what) {
    uint32_t value = 0;
    int shift = 0;
    for (const uint8_t byte : take(count, what)) value |= uint32_t{byte} << shift, shift += 8;
    return value;
  }
  std::string tag(const char* what) {
    const auto four = take(4, what);
    return {reinterpret_cast<const char*>(four.data()), 4};
  }

 private:
  std::span<const uint8_t> bytes_;
};

struct Format {
  uint16_t tag = 0;  // kPcm or kFloat
  uint16_t channels = 0;
  uint32_t sample_rate = 0;
  uint16_t bits = 0;  // of the container
  size_t frame_bytes() const { return size_t{channels} * (bits / 8); }
};

std::string format_name(uint16_t tag) {
  switch (tag) {
    case 0x0002: return "Microsoft ADPCM";
    case 0x0006: return "A-law";
    case 0x0007: return "mu-law";
    case 0x0011: return "IMA ADPCM";
    case 0x0031: return "GSM 6.10";
    case 0x0050: return "MPEG";
    case 0x0055: return "MP3";
    default: return "format tag " + std::to_string(tag);
  }
}

// The sub-format of WAVE_FORMAT_EXTENSIBLE: its first two bytes are a format tag, the other fourteen are fixed.
uint16_t extensible_tag(Bytes& chunk, uint16_t bits) {
  static constexpr uint8_t kGuidTail[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
  const uint32_t extra = chunk.number(2, "the fmt chunk");
  if (extra < 22) throw WavError("WAVE_FORMAT_EXTENSIBLE with " + std::to_string(extra) + " extra bytes; 22 are needed");
  const uint32_t valid_bits = chunk.number(2, "the fmt chunk");
  if (valid_bits > bits) throw WavError(std::to_string(valid_bits) + " valid bits in samples of " + std::to_string(bits) + " bits");
  chunk.take(4, "the fmt chunk");  // which speaker is which: mixed anyway
  const auto tag = static_cast<uint16_t>(chunk.number(2, "the fmt chunk"));
  const auto tail = chunk.take(sizeof kGuidTail, "the fmt chunk");
  if (!std::equal(tail.begin(), tail.end(), std::begin(kGuidTail))) throw WavError("an unknown sub-format; PCM and float are read");
  return tag;
}

void check_format(const Format& f, uint32_t frame_bytes) {
  if (f.tag != kPcm && f.tag != kFloat)
    throw WavError("compressed audio (" + format_name(f.tag) + "); only PCM and float are read: convert it first");
  if (f.channels != 1 && f.channels != 2) throw WavError(std::to_string(f.channels) + " channels; mono and stereo are read");
  if (f.sample_rate == 0 || f.sample_rate > kHighestRate)
    throw WavError("a sample rate of " + std::to_string(f.sample_rate) + " Hz; expected 1 to " + std::to_string(kHighestRate));
  const bool known = f.tag == kPcm ? f.bits == 8 || f.bits == 16 || f.bits == 24 || f.bits == 32 : f.bits == 32 || f.bits == 64;
  if (!known)
    throw WavError(std::to_string(f.bits) +
                   (f.tag == kPcm ? "-bit PCM; 8, 16, 24 and 32 bits are read" : "-bit float; 32 and 64 bits are read"));
  if (frame_bytes != f.frame_bytes())
    throw WavError("the header says " + std::to_string(frame_bytes) + " bytes for a sample of all channels; " +
                   std::to_string(f.channels) + " of " + std::to_string(f.bits) + " bits are " + std::to_string(f.frame_bytes()));
}

Format parse_format(std::span<const uint8_t> bytes) {
  Bytes chunk(bytes);
  Format f;
  f.tag = static_cast<uint16_t>(chunk.number(2, "the fmt chunk"));
  f.channels = static_cast<uint16_t>(chunk.number(2, "the fmt chunk"));
  f.sample_rate = chunk.number(4, "the fmt chunk");
  chunk.take(4, "the fmt chunk");  // bytes per second: says nothing new, and is often wrong
  const uint32_t frame_bytes = chunk.number(2, "the fmt chunk");
  f.bits = static_cast<uint16_t>(chunk.number(2, "the fmt chunk"));
  if (f.tag == kExtensible) f.tag = extensible_tag(chunk, f.bits);
  check_format(f, frame_bytes);
  return f;
}

double decode_pcm(const uint8_t* p, int bits) {
  if (bits == 8) return (p[0] - 128) / 128.0;  // the one size that is unsigned
  uint32_t word = 0;
  for (int byte = 0; byte < bits / 8; ++byte) word |= uint32_t{p[byte]} << (32 - bits + 8 * byte);
  return static_cast<int32_t>(word) / 2147483648.0;
}

double decode_float(const uint8_t* p, int bits) {
  if (bits == 32) {
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  double value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::vector<float> decode(const Format& f, std::span<const uint8_t> data) {
  if (data.empty()) throw WavError("no samples: the data chunk is empty");
  if (data.size() % f.frame_bytes() != 0)
    throw WavError("the data chunk ends inside a sample: " + std::to_string(data.size()) + " bytes, " +
                   std::to_string(f.frame_bytes()) + " to a sample");
  const auto decode_one = f.tag == kPcm ? decode_pcm : decode_float;
  std::vector<float> samples(data.size() / f.frame_bytes());
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint8_t* frame = data.data() + i * f.frame_bytes();
    double sum = 0;
    for (int channel = 0; channel < f.channels; ++channel) sum += decode_one(frame + channel * (f.bits / 8), f.bits);
    samples[i] = static_cast<float>(sum / f.channels);
    if (!std::isfinite(samples[i])) throw WavError("sample " + std::to_string(i) + " is not a finite number");
  }
  return samples;
}

void expect_riff(Bytes& file) {
  if (file.left() == 0) throw WavError("the file is empty");
  const std::string riff = file.tag("the RIFF header");
  if (riff == "RIFX" || riff == "RF64") throw WavError("a " + riff + " file; only plain RIFF is read");
  if (riff != "RIFF") throw WavError("not a WAV file: it does not begin with RIFF");
  file.take(4, "the RIFF header");  // the file's size again: streaming writers leave it wrong, and nothing needs it
  if (file.tag("the RIFF header") != "WAVE") throw WavError("a RIFF file, but not a WAVE");
}

void put(std::vector<uint8_t>& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

}  // namespace

Wav parse_wav(std::span<const uint8_t> bytes) {
  static_assert(std::endian::native == std::endian::little);
  Bytes file(bytes);
  expect_riff(file);
  std::optional<Format> format;
  while (file.left() > 0) {
    const std::string tag = file.tag("a chunk's header");
    const uint32_t size = file.number(4, "a chunk's header");
    const auto chunk = file.take(size, tag == "data" ? "the data chunk" : tag == "fmt " ? "the fmt chunk" : "a chunk");
    if (size % 2 == 1 && file.left() > 0) file.take(1, "the pad byte");  // some writers forget the last one
    if (tag == "fmt " && !format) format = parse_format(chunk);
    if (tag != "data") continue;
    if (!format) throw WavError("the data chunk comes before the fmt chunk");
    return {format->sample_rate, format->channels, std::to_string(format->bits) + (format->tag == kPcm ? "-bit PCM" : "-bit float"),
            decode(*format, chunk)};
  }
  throw WavError(format ? "no data chunk" : "no fmt chunk and no data chunk");
}

Wav read_wav(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw WavError(path + ": no such file");
  if (!std::filesystem::is_regular_file(status)) throw WavError(path + ": not a regular file");
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) throw WavError(path + ": " + error.message());
  if (size > kLargestWav)
    throw WavError(path + ": " + std::to_string(size) + " bytes; at most " + std::to_string(kLargestWav) + " are read");
  std::vector<uint8_t> bytes(size);
  std::ifstream in(path, std::ios::binary);
  if (!in || !in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size)))
    throw WavError(path + ": cannot be read");
  try {
    return parse_wav(bytes);
  } catch (const WavError& e) {
    throw WavError(path + ": " + e.what());
  }
}

std::vector<uint8_t> encode_wav(std::span<const float> samples, uint32_t sample_rate) {
  const uint64_t data_bytes = samples.size() * uint64_t{2};
  if (data_bytes > kLargestWav) throw WavError(std::to_string(samples.size()) + " samples are too many for one file");
  std::vector<uint8_t> out;
  out.reserve(44 + data_bytes);
  const auto tag = [&](const char* four) { out.insert(out.end(), four, four + 4); };
  tag("RIFF"), put(out, 36 + data_bytes, 4), tag("WAVE");
  tag("fmt "), put(out, 16, 4), put(out, kPcm, 2), put(out, 1, 2), put(out, sample_rate, 4), put(out, uint64_t{sample_rate} * 2, 4);
  put(out, 2, 2), put(out, 16, 2);
  tag("data"), put(out, data_bytes, 4);
  for (const float sample : samples) {
    if (std::isnan(sample)) throw WavError("a sample is NaN");
    const long value = std::lround(std::clamp(sample, -1.0f, 1.0f) * 32768.0);
    put(out, static_cast<uint16_t>(std::min(value, 32767L)), 2);
  }
  return out;
}

void write_wav(const std::string& path, std::span<const float> samples, uint32_t sample_rate) {
  const auto bytes = encode_wav(samples, sample_rate);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw WavError(path + ": cannot be written");
}

}  // namespace narrows::tools
