# SPDX-License-Identifier: Apache-2.0
"""silero-vad, the detector of speech, rebuilt on Narrows' ops with the weights of the PyPI package; eager and compiled.

pip install --no-deps silero-vad==6.2.0
python3 examples/silero_vad.py [recording.wav]

The WAV has 16 bits and 16,000 samples a second. Without one a voice-like sweep is made. The package's own dependencies are not needed.

The probabilities are within 1e-6 of those of the package's own network. The state inside is not: after one chunk its largest differences
are these. They come from the sums of the convolutions; of the same input our LSTM step and torch's differ by 7e-7.

    | from        | ours   | the package's |
    |-------------|--------|---------------|
    | float64     | 1.3e-6 | 4.0e-6        |
    | the package | 4.9e-6 | 0             |
"""

import importlib.metadata
import pathlib
import sys
import time
import wave

import torch

import narrows

CHUNK, CONTEXT = 512, 64  # samples that come at once, and those from before that the network sees again
RATE, BINS, STATE = 16000, 129, 128


def package_model():
    """The package's own network, a module of TorchScript. ImportError: the package is missing, or is another version."""
    try:
        found = importlib.metadata.distribution("silero-vad")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError("silero-vad is not installed; pip install --no-deps silero-vad==6.2.0") from None
    if not found.version.startswith("6.2"):
        raise ImportError(f"silero-vad is version {found.version}; expected 6.2, whose network this is")
    path = pathlib.Path(str(found.locate_file("silero_vad/data/silero_vad.jit")))
    if not path.is_file():
        raise ImportError(f"silero-vad is installed without {path}")
    return torch.jit.load(path).eval()


class SileroVAD(torch.nn.Module):
    """forward(samples (B, 576), state (2, B, 128)) -> (probability of speech (B, 1), state), at 16,000 samples a second."""

    def __init__(self, model):
        super().__init__()
        weights = {name.removeprefix("_model."): value for name, value in model.state_dict().items()}
        take = lambda name, value: self.register_buffer(name, value.detach().clone())  # noqa: E731
        take("basis", weights["stft.forward_basis_buffer"])
        for i in range(4):
            take(f"weight_{i}", weights[f"encoder.{i}.reparam_conv.weight"])
            take(f"bias_{i}", weights[f"encoder.{i}.reparam_conv.bias"])
        gates = torch.cat([weights["decoder.rnn.weight_ih"], weights["decoder.rnn.weight_hh"]], 1)
        take("gates", gates.unsqueeze(2))  # a convolution by one tap is a matrix product
        take("gates_bias", weights["decoder.rnn.bias_ih"] + weights["decoder.rnn.bias_hh"])
        take("head", weights["decoder.decoder.2.weight"])
        take("head_bias", weights["decoder.decoder.2.bias"])

    def forward(self, samples, state):
        x = self.encoded(self.magnitudes(samples))
        h, cell = self.step(x, state[0].unsqueeze(2), state[1].unsqueeze(2))
        speech = narrows.sigmoid(narrows.conv1d(narrows.relu(h), self.head, self.head_bias))
        return speech.squeeze(2), torch.stack([h.squeeze(2), cell.squeeze(2)])

    def magnitudes(self, samples):
        """The spectrum of each frame: sines and cosines are the kernels of a convolution."""
        padded = torch.nn.functional.pad(samples, (0, 64), mode="reflect").unsqueeze(1)
        real, imaginary = narrows.conv1d(padded, self.basis, stride=128).split(BINS, 1)
        return narrows.sqrt(narrows.add(narrows.square(real), narrows.square(imaginary)))

    def encoded(self, x):
        """Four convolutions down to one frame."""
        for i, stride in enumerate((1, 2, 2, 1)):
            x = narrows.relu(narrows.conv1d(x, getattr(self, f"weight_{i}"), getattr(self, f"bias_{i}"), stride=stride, padding=1))
        return x

    def step(self, x, h, cell):
        """One step of an LSTM."""
        i, f, g, o = narrows.conv1d(torch.cat([x, h], 1), self.gates, self.gates_bias).split(STATE, 1)
        kept = narrows.multiply(narrows.sigmoid(f), cell)
        cell = narrows.add(kept, narrows.multiply(narrows.sigmoid(i), narrows.tanh(g)))
        return narrows.multiply(narrows.sigmoid(o), narrows.tanh(cell)), cell


def recording(path):
    """Samples in -1..1."""
    if path is None:
        t = torch.arange(3 * RATE) / RATE
        voice = torch.sin(2 * torch.pi * (150 * t + 40 * torch.sin(3 * t))) * (t % 1 < 0.6)
        return 0.4 * voice + 0.01 * torch.randn(len(t), generator=torch.Generator().manual_seed(0))
    with wave.open(path) as f:
        found = f.getframerate(), 8 * f.getsampwidth()
        if found != (RATE, 16):
            raise SystemExit(f"{path}: {found[0]} samples a second of {found[1]} bits; expected {RATE} of 16")
        samples = torch.frombuffer(bytearray(f.readframes(f.getnframes())), dtype=torch.int16)
        return samples.view(-1, f.getnchannels())[:, 0] / 32768


@torch.no_grad()
def probabilities(network, samples):
    """That of speech in each chunk of a recording."""
    state, context, found = torch.zeros(2, 1, STATE), torch.zeros(1, CONTEXT), []
    for chunk in samples[: len(samples) // CHUNK * CHUNK].view(-1, 1, CHUNK):
        seen = torch.cat([context, chunk], 1)
        speech, state = network(seen, state)
        context = seen[:, -CONTEXT:]
        found.append(speech)
    return torch.cat(found)[:, 0]


@torch.no_grad()
def microseconds(call, *arguments):
    """Of one call, the best of many."""
    best = float("inf")
    for _ in range(300):
        start = time.perf_counter()
        call(*arguments)
        best = min(best, time.perf_counter() - start)
    return 1e6 * best


def main():
    torch.set_num_threads(1)
    try:
        model = package_model()
    except ImportError as error:
        sys.exit(str(error))
    ours = SileroVAD(model)
    compiled = torch.compile(ours, fullgraph=True)
    samples = recording(sys.argv[1] if len(sys.argv) > 1 else None)
    with torch.no_grad():
        expected = torch.cat([model(chunk, RATE) for chunk in samples[: len(samples) // CHUNK * CHUNK].view(-1, 1, CHUNK)])[:, 0]
    for name, network in (("eager", ours), ("compiled", compiled)):
        difference = (probabilities(network, samples) - expected).abs().max().item()
        took = microseconds(network, samples[None, : CHUNK + CONTEXT], torch.zeros(2, 1, STATE))
        print(f"{name:8} {took:6.0f} us a chunk, within {difference:.1e} of the package's own network")
    print(f"speech in {100 * (expected > 0.5).float().mean().item():.0f} % of {len(samples) / RATE:.1f} s")


if __name__ == "__main__":
    main()
