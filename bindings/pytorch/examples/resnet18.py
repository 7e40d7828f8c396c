# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Trains a ResNet-18 on pictures of bars, on a device of libcore.

    resnet18.py [--device NAME] [--width N] [--size N] [--batch N] [--steps N]

--device: as libcore names it, such as sim or opencl:0, or torch-cpu for torch's
own CPU.  With the same options every device prints the same losses, but for
rounding.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

import libcore_torch


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False),
            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self, width=64, classes=2):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, inputs = [], width
        for stage in range(4):
            outputs = width << stage
            blocks += [Block(inputs, outputs, 1 if stage == 0 else 2),
                       Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def pictures(count, size):
    """Noise with horizontal (0) or vertical (1) bars."""
    labels = torch.randint(0, 2, (count,))
    bars = torch.sin(torch.arange(size) * 1.5).expand(size, size)
    clean = torch.where(labels[:, None, None].bool(), bars, bars.t())
    return clean[:, None] + 0.3 * torch.randn(count, 3, size, size), labels


def train(device, width=16, size=64, batch=8, steps=10):
    """The losses."""
    torch.manual_seed(0)
    model = ResNet18(width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    losses = []
    for _ in range(steps):
        images, labels = pictures(batch, size)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    for name, value in (("width", 16), ("size", 64), ("batch", 8),
                        ("steps", 10)):
        parser.add_argument("--" + name, type=int, default=value)
    options = vars(parser.parse_args())
    name = options.pop("device")
    device = (torch.device("cpu") if name == "torch-cpu"
              else libcore_torch.device(name))
    for step, loss in enumerate(train(device, **options), 1):
        print(f"step {step}  loss {loss:.5f}")
    print("fallbacks", libcore_torch.fallbacks())


if __name__ == "__main__":
    main()
