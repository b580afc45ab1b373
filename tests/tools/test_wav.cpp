// SPDX-License-Identifier: Apache-2.0
// test_wav.cpp -- tools/demo/wav.cpp: every format that is read, and every file that is refused.
#include "demo/wav.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>

using namespace narrows::tools;
using Catch::Matchers::ContainsSubstring;

namespace {

// A WAV put together chunk by chunk, right or wrong.
struct File {
  std::vector<uint8_t> bytes;

  File& tag(std::string_view text) { return bytes.insert(bytes.end(), text.begin(), text.end()), *this; }
  File& number(uint64_t value, int count) {
    for (int i = 0; i < count; ++i, value >>= 8) bytes.push_back(static_cast<uint8_t>(value));
    return *this;
  }
  File& riff() { return tag("RIFF").number(0, 4).tag("WAVE"); }
  File& format(uint32_t tag_number, uint32_t channels, uint32_t bits, uint32_t rate = 8000, uint32_t size = 16) {
    const uint32_t frame = channels * bits / 8;
    return tag("fmt ")
        .number(size, 4)
        .number(tag_number, 2)
        .number(channels, 2)
        .number(rate, 4)
        .number(rate * frame, 4)
        .number(frame, 2)
        .number(bits, 2);
  }
  File& extensible(uint32_t channels, uint32_t bits, uint32_t valid, uint32_t sub_format) {
    static constexpr uint8_t kTail[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    format(0xFFFE, channels, bits, 8000, 40).number(22, 2).number(valid, 2).number(0, 4).number(sub_format, 2);
    return bytes.insert(bytes.end(), std::begin(kTail), std::end(kTail)), *this;
  }
  template <class T>
  File& data(std::initializer_list<T> values) {
    tag("data").number(values.size() * sizeof(T), 4);
    for (const T value : values) raw(value);
    return *this;
  }
  template <class T>
  File& raw(T value) {
    uint8_t copy[sizeof(T)];
    std::memcpy(copy, &value, sizeof(T));
    return bytes.insert(bytes.end(), copy, copy + sizeof(T)), *this;
  }
};

std::vector<float> samples(const File& file) { return parse_wav(file.bytes).samples; }

void refused(const File& file, const char* message) {
  CHECK_THROWS_AS(parse_wav(file.bytes), WavError);
  CHECK_THROWS_WITH(parse_wav(file.bytes), ContainsSubstring(message));
}

}  // namespace

TEST_CASE("PCM of every width is scaled to full scale") {
  CHECK(samples(File().riff().format(1, 1, 8).data<uint8_t>({0, 128, 255, 192})) == std::vector<float>{-1, 0, 127 / 128.0f, 0.5f});
  CHECK(samples(File().riff().format(1, 1, 16).data<int16_t>({-32768, 0, 16384})) == std::vector<float>{-1, 0, 0.5f});
  CHECK(samples(File().riff().format(1, 1, 24).data<uint8_t>({0, 0, 0x80, 0, 0, 0x40, 0, 0, 0xC0})) ==
        std::vector<float>{-1, 0.5f, -0.5f});
  CHECK(samples(File().riff().format(1, 1, 32).data<int32_t>({INT32_MIN, 0, 1 << 30})) == std::vector<float>{-1, 0, 0.5f});
}

TEST_CASE("float of both widths is taken as it is") {
  CHECK(samples(File().riff().format(3, 1, 32).data<float>({-1.5f, 0.25f})) == std::vector<float>{-1.5f, 0.25f});
  CHECK(samples(File().riff().format(3, 1, 64).data<double>({-1.5, 0.25})) == std::vector<float>{-1.5f, 0.25f});
}

TEST_CASE("stereo is mixed to the mean") {
  const Wav wav = parse_wav(File().riff().format(1, 2, 16, 44100).data<int16_t>({16384, 0, -32768, -32768}).bytes);
  CHECK(wav.samples == std::vector<float>{0.25f, -1});
  CHECK(wav.channels == 2);
  CHECK(wav.sample_rate == 44100);
  CHECK(wav.encoding == "16-bit PCM");
  CHECK(wav.seconds() == 2.0 / 44100);
}

TEST_CASE("WAVE_FORMAT_EXTENSIBLE holds PCM or float") {
  CHECK(samples(File().riff().extensible(1, 16, 16, 1).data<int16_t>({16384})) == std::vector<float>{0.5f});
  CHECK(samples(File().riff().extensible(2, 32, 32, 3).data<float>({0.5f, 1.0f})) == std::vector<float>{0.75f});
  CHECK(samples(File().riff().extensible(1, 32, 24, 1).data<int32_t>({1 << 30})) == std::vector<float>{0.5f});
  refused(File().riff().extensible(1, 16, 17, 1).data<int16_t>({0}), "17 valid bits");
  refused(File().riff().extensible(1, 16, 16, 0x55).data<int16_t>({0}), "MP3");
  File foreign = File().riff().extensible(1, 16, 16, 1);
  foreign.bytes.back() ^= 1;
  refused(foreign.data<int16_t>({0}), "unknown sub-format");
  refused(File().riff().format(0xFFFE, 1, 16).data<int16_t>({0}), "fmt chunk");
  refused(File().riff().format(0xFFFE, 1, 16, 8000, 18).number(0, 2).data<int16_t>({0}), "22 are needed");
}

TEST_CASE("chunks that nobody knows are stepped over, odd ones with their pad byte") {
  CHECK(samples(File()
                    .riff()
                    .tag("LIST")
                    .number(3, 4)
                    .number(0x414141, 3)
                    .number(0, 1)
                    .format(1, 1, 16)
                    .tag("junk")
                    .number(0, 4)
                    .data<int16_t>({16384})) == std::vector<float>{0.5f});
  CHECK(samples(File().riff().format(1, 1, 8).data<uint8_t>({192})) == std::vector<float>{0.5f});  // pad byte forgotten
  CHECK(samples(File().riff().format(1, 1, 8).data<uint8_t>({192}).number(0, 1)) == std::vector<float>{0.5f});
  CHECK(samples(File().riff().format(1, 1, 16).data<int16_t>({16384}).tag("LIST").number(1000, 4)) ==
        std::vector<float>{0.5f});  // after
}

TEST_CASE("what is no WAV is refused") {
  refused(File(), "empty");
  refused(File().number(0, 3), "RIFF header");
  refused(File().tag("OggS").number(0, 60), "does not begin with RIFF");
  refused(File().tag("RIFF").number(4, 4).tag("AVI "), "not a WAVE");
  refused(File().tag("RF64").number(4, 4).tag("WAVE"), "RF64");
  refused(File().tag("RIFX").number(4, 4).tag("WAVE"), "RIFX");
  refused(File().riff(), "no fmt chunk and no data chunk");
  refused(File().riff().format(1, 1, 16), "no data chunk");
  refused(File().riff().data<int16_t>({0}).format(1, 1, 16), "before the fmt chunk");
}

TEST_CASE("sizes that lie are refused, and nothing of that size is allocated") {
  refused(File().riff().format(1, 1, 16).tag("data").number(0xFFFFFFFF, 4).raw<int16_t>(0),
          "the data chunk needs 4294967295 bytes");
  refused(File().riff().tag("LIST").number(0xFFFFFFF0, 4), "a chunk needs 4294967280 bytes");
  refused(File().riff().tag("fmt ").number(0x7FFFFFFF, 4).number(1, 2), "the fmt chunk needs");
  refused(File().riff().tag("fmt ").number(14, 4).number(1, 2).number(0, 12).data<int16_t>({0}), "the fmt chunk needs");
  refused(File().riff().format(1, 1, 16).tag("data").number(3, 4).number(0, 3), "ends inside a sample");
  refused(File().riff().format(1, 1, 16).tag("data").number(0, 4), "no samples");
  refused(File().riff().format(1, 1, 16).tag("da"), "a chunk's header");
}

TEST_CASE("every truncation of a good file is refused") {
  const File good = File().riff().tag("LIST").number(2, 4).number(0, 2).extensible(2, 24, 24, 1).data<uint8_t>({1, 2, 3, 4, 5, 6});
  REQUIRE(samples(good).size() == 1);
  for (size_t length = 0; length < good.bytes.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(parse_wav(std::span(good.bytes).first(length)), WavError);
  }
}

TEST_CASE("every byte changed to every value is read or refused, never a crash") {
  const File good = File().riff().extensible(1, 16, 16, 1).data<int16_t>({1, 2});
  size_t read = 0, turned_down = 0;
  for (size_t at = 0; at < good.bytes.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      File changed = good;
      changed.bytes[at] = static_cast<uint8_t>(value);
      try {
        const size_t count = parse_wav(changed.bytes).samples.size();
        ++read;
        CHECK(count <= 4);
      } catch (const WavError&) {
        ++turned_down;
      }
    }
  }
  CHECK(read + turned_down == good.bytes.size() * 256);
  CHECK(read > 0);
  CHECK(turned_down > 0);
}

TEST_CASE("formats that are not read are named") {
  refused(File().riff().format(1, 0, 16).data<int16_t>({0}), "0 channels");
  refused(File().riff().format(1, 6, 16).data<int16_t>({0}), "6 channels");
  refused(File().riff().format(1, 1, 16, 0).data<int16_t>({0}), "0 Hz");
  refused(File().riff().format(1, 1, 16, 4'000'000'000u).data<int16_t>({0}), "4000000000 Hz");
  refused(File().riff().format(1, 1, 12).data<int16_t>({0}), "12-bit PCM");
  refused(File().riff().format(3, 1, 16).data<int16_t>({0}), "16-bit float");
  refused(File().riff().format(2, 1, 8).data<uint8_t>({0}), "Microsoft ADPCM");
  refused(File().riff().format(6, 1, 8).data<uint8_t>({0}), "A-law");
  refused(File().riff().format(0x1234, 1, 8).data<uint8_t>({0}), "format tag 4660");
  File wrong_frame = File().riff().format(1, 1, 16);
  wrong_frame.bytes[12 + 8 + 12] = 4;
  refused(wrong_frame.data<int16_t>({0, 0}), "4 bytes for a sample of all channels");
}

TEST_CASE("numbers that are not finite are refused") {
  refused(File().riff().format(3, 1, 32).data<float>({0, std::numeric_limits<float>::quiet_NaN()}),
          "sample 1 is not a finite number");
  refused(File().riff().format(3, 1, 32).data<float>({std::numeric_limits<float>::infinity()}), "sample 0");
  refused(File().riff().format(3, 1, 64).data<double>({1e300}), "sample 0");
}

TEST_CASE("what is written is read back, to half a step") {
  std::vector<float> wave;
  for (int i = 0; i < 1000; ++i) wave.push_back(0.9f * std::sin(0.1f * static_cast<float>(i)));
  const Wav back = parse_wav(encode_wav(wave, 16000));
  REQUIRE(back.samples.size() == wave.size());
  CHECK(back.sample_rate == 16000);
  for (size_t i = 0; i < wave.size(); ++i) CHECK(std::abs(back.samples[i] - wave[i]) <= 0.5f / 32768);
  CHECK(parse_wav(encode_wav(std::vector<float>{2, -2, 1, -1}, 8000)).samples ==
        std::vector<float>{32767 / 32768.0f, -1, 32767 / 32768.0f, -1});
  CHECK_THROWS_AS(encode_wav(std::vector<float>{std::numeric_limits<float>::quiet_NaN()}, 8000), WavError);
}

TEST_CASE("files: errors name the file") {
  const auto folder = std::filesystem::temp_directory_path() / ("narrows_test_wav." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "a.wav").string();
  write_wav(path, std::vector<float>{0.5f, -0.5f}, 8000);
  CHECK(read_wav(path).samples == std::vector<float>{0.5f, -0.5f});
  std::ofstream(path, std::ios::trunc).close();
  CHECK_THROWS_WITH(read_wav(path), ContainsSubstring(path) && ContainsSubstring("empty"));
  CHECK_THROWS_WITH(read_wav((folder / "none.wav").string()), ContainsSubstring("no such file"));
  CHECK_THROWS_WITH(read_wav(folder.string()), ContainsSubstring("not a regular file"));
  CHECK_THROWS_WITH(read_wav("/dev/zero"), ContainsSubstring("not a regular file"));
  CHECK_THROWS_WITH(write_wav((folder / "no" / "b.wav").string(), std::vector<float>{0}, 8000),
                    ContainsSubstring("cannot be written"));
  std::filesystem::remove_all(folder);
}
