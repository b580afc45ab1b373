# SPDX-License-Identifier: Apache-2.0
"""The LLTM learns to read: scikit-learn's digits, row by row, beside torch's LSTM of the same state size.

python3 examples/lltm_digits.py [epochs]
"""

import sys
import time

import torch
from sklearn.datasets import load_digits

from narrows.torch import LLTM

STATE, BATCH = 48, 64


class Reader(torch.nn.Module):
    """Eight rows of eight pixels, in one call; the last state says which digit it was."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, torch.nn.Linear(STATE, 10)

    def forward(self, images):
        _, (h, _) = self.layer(images)
        return self.head(h[-1])


def accuracy(model, images, digits):
    with torch.no_grad():
        return (model(images).argmax(1) == digits).float().mean().item()


def train(name, layer, data, epochs):
    images, digits, test_images, test_digits = data
    model = Reader(layer)
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
    start = time.perf_counter()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(BATCH):
            loss = torch.nn.functional.cross_entropy(model(images[batch]), digits[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    seconds = time.perf_counter() - start
    parameters = sum(p.numel() for p in layer.parameters())
    reached = accuracy(model, test_images, test_digits)
    print(f"{name:5} {parameters:6} parameters  {seconds:5.1f} s  {100 * reached:.1f} % of unseen digits read")
    return reached


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(images))
    seen, unseen = order[:1400], order[1400:]
    data = images[seen], labels[seen], images[unseen], labels[unseen]
    train("LSTM", torch.nn.LSTM(8, STATE, batch_first=True), data, epochs)
    train("LLTM", LLTM(8, STATE, batch_first=True), data, epochs)


if __name__ == "__main__":
    main()
