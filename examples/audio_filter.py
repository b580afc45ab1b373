# SPDX-License-Identifier: Apache-2.0
"""Hum taken out of a recording by a FIR filter, through conv1d; before and after as a WAV and as a picture.

python3 examples/audio_filter.py [recording.wav] [folder]

Without a recording a voice-like sweep is made. The picture is a PNG: time from left to right, pitch upwards, loudness as brightness.
"""

import pathlib
import struct
import sys
import wave
import zlib

import numpy as np

import narrows

TAPS, LOW, HIGH = 511, 150.0, 4000.0  # what passes, in Hz


def recording(path):
    """(samples in -1..1, rate) of a 16-bit WAV, or a sweep with hum and noise."""
    if path is None:
        rate, rng = 16000, np.random.default_rng(0)
        t = np.arange(3 * rate) / rate
        voice = np.sin(2 * np.pi * (300 * t + 250 * t**2)) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t))
        return (0.4 * voice + 0.3 * np.sin(2 * np.pi * 50 * t) + 0.05 * rng.standard_normal(t.size)).astype("float32"), rate
    with wave.open(str(path)) as f:
        samples = np.frombuffer(f.readframes(f.getnframes()), "<i2").reshape(-1, f.getnchannels())
        return (samples[:, 0] / 32768).astype("float32"), f.getframerate()


def band_pass(rate):
    """A windowed sinc; symmetric, so that correlation is convolution."""
    n = np.arange(TAPS) - TAPS // 2
    low_pass = lambda f: 2 * f / rate * np.sinc(2 * f / rate * n)  # noqa: E731
    return ((low_pass(HIGH) - low_pass(LOW)) * np.hamming(TAPS)).astype("float32")


def spectrogram(samples, size=512):
    """Loudness in decibels: frequencies by frames, by a bank of sines and cosines as the kernels of one more conv1d."""
    n, k = np.arange(size), np.arange(size // 2)[:, None]
    angle = 2 * np.pi * k * n / size
    bank = (np.concatenate([np.cos(angle), np.sin(angle)]) * np.hanning(size))[:, None].astype("float32")
    parts = narrows.conv1d(samples[None], bank, stride=size // 4)
    power = narrows.add(narrows.square(parts[: size // 2]), narrows.square(parts[size // 2 :]))
    return narrows.multiply(narrows.log10(narrows.add(power, 1e-9)), 10)


def write_png(path, levels):
    """A grey picture of bytes."""
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    header = struct.pack(">IIBBBBB", levels.shape[1], levels.shape[0], 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def main():
    arguments = [pathlib.Path(a) for a in sys.argv[1:]]
    source = next((a for a in arguments if a.suffix == ".wav"), None)
    folder = next((a for a in arguments if a.suffix != ".wav"), pathlib.Path.cwd())
    before, rate = recording(source)
    after = narrows.conv1d(before, band_pass(rate), padding="same")
    with wave.open(str(folder / "filtered.wav"), "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(rate)
        f.writeframes(narrows.astype(narrows.multiply(narrows.clip(after, -1, 1), 32767), "int16").tobytes())
    pictures = [spectrogram(x)[::-1] for x in (before, after)]
    both = np.concatenate(pictures, axis=1)
    loudest = both.max()
    write_png(folder / "filtered.png", narrows.astype(narrows.clip((both - loudest + 80) * np.float32(255 / 80), 0, 255), "uint8"))
    hum = int(50 / (rate / 512)) + 1
    quieter = pictures[0][-hum - 1 :].mean() - pictures[1][-hum - 1 :].mean()
    print(f"{before.size} samples at {rate} Hz, {TAPS} taps: below {LOW:.0f} Hz {quieter:.0f} dB quieter")
    print(f"{folder / 'filtered.wav'}, {folder / 'filtered.png'} (left before, right after)")


if __name__ == "__main__":
    main()
