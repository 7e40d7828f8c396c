#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Compares loss curves of core-train and PyTorch, trained from the same weights
on the same samples in the same order.

core-train writes its initial weights; the models are built here again with
PyTorch modules, and both train.  The checkpoint provides everything taken from
core-train; the order of the samples is computed here from the seed, as in
core-train's random.c.
"""

import argparse
import json
import math
import random
import struct
import subprocess
import sys

import torch
from torch import nn
from torch.nn import functional as F

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


# ------------------------------------------------------------- sample order


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def number(seed, stream, index):
    x = mix(seed + GOLDEN & MASK)
    x = mix(x + (stream + 1) * GOLDEN & MASK)
    return mix(x + (index + 1) * GOLDEN & MASK)


def below(seed, stream, index, bound):
    return number(seed, stream, index) * bound >> 64


def shuffled(count, seed, epoch):
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        k = below(seed, 1 << 32 | epoch, i, i + 1)
        order[i], order[k] = order[k], order[i]
    return order


# --------------------------------------------------------------- safetensors

DTYPES = {"F32": torch.float32, "I64": torch.int64}


def read_safetensors(path):
    """Returns the tensors and the metadata texts of a file."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    texts = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if end == begin:
            continue
        flat = torch.frombuffer(data[begin:end],
                                dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors, texts


# ------------------------------------------------------------------- models


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        size = width // self.heads
        parts = self.qkv(self.norm1(x)).reshape(n, length, 3, self.heads, size)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(size)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(-1) @ value
        y = y.transpose(1, 2).reshape(n, length, width)
        x = x + self.projection(y)
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, texts):
        super().__init__()
        width, heads = int(texts["width"]), int(texts["heads"])
        self.context = int(texts["context"])
        self.layers = int(texts["layers"])
        count = len(texts["characters"]) // 2
        self.characters = nn.Parameter(torch.empty(count, width))
        self.places = nn.Parameter(torch.empty(self.context, width))
        for i in range(1, self.layers + 1):
            self.add_module("block%d" % i, Block(width, heads))
        self.norm = nn.LayerNorm(width)

    def forward(self, numbers):
        x = F.embedding(numbers, self.characters)
        x = x + self.places[: numbers.shape[1]]
        for i in range(1, self.layers + 1):
            x = getattr(self, "block%d" % i)(x)
        return self.norm(x) @ self.characters.t()


class Cnn(nn.Module):
    def __init__(self, texts):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 24, 3, padding=1)
        self.conv2 = nn.Conv2d(24, 48, 3, padding=1)
        self.hidden = nn.Linear(48 * 49, 32)
        self.output = nn.Linear(32, 10)

    def forward(self, images):
        x = images.reshape(-1, 1, 28, 28)
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.reshape(-1, 48 * 49)
        return self.output(F.relu(self.hidden(x)))


class Text:
    """Windows of a text, shifted differently in each epoch."""

    def __init__(self, path, texts):
        known = bytes.fromhex(texts["characters"])
        with open(path, "rb") as file:
            data = file.read(int(texts["text.size"]))
        self.numbers = torch.tensor([known.index(c) for c in data])
        self.context = int(texts["context"])
        self.seed = int(texts["seed"])
        self.count = int(texts["images"])

    def batch(self, samples, epoch):
        context = self.context
        shift = below(self.seed, 2 << 32, epoch, context)
        windows = torch.stack([
            self.numbers[s * context + shift:][: context + 1] for s in samples
        ])
        return windows[:, :-1], windows[:, 1:].reshape(-1)


class Images:
    def __init__(self, folder, texts):
        with open(folder + "/train-images-idx3-ubyte", "rb") as file:
            pixels = torch.tensor(list(file.read()[16:])).reshape(-1, 784)
        with open(folder + "/train-labels-idx1-ubyte", "rb") as file:
            self.labels = torch.tensor(list(file.read()[8:]))
        self.pixels = ((pixels.double() / 255 - 0.2860) / 0.3530).float()
        self.count = int(texts["images"])

    def batch(self, samples, epoch):
        return self.pixels[samples], self.labels[samples]


def write_images(folder, count, seed):
    """Writes ten patterns with noise as the four files of the data set."""
    chance = random.Random(seed)
    patterns = [[chance.random() for _ in range(784)] for _ in range(10)]
    for half, n in (("train", count), ("t10k", 100)):
        labels = bytes(chance.randrange(10) for _ in range(n))
        with open("%s/%s-labels-idx1-ubyte" % (folder, half), "wb") as file:
            file.write(struct.pack(">II", 0x801, n) + labels)
        with open("%s/%s-images-idx3-ubyte" % (folder, half), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, n, 28, 28))
            for label in labels:
                file.write(bytes(
                    int(255 * (0.6 * p + 0.4 * chance.random()))
                    for p in patterns[label]
                ))


# ----------------------------------------------------------------- training


def rate(texts, step, total):
    """Returns the rate of the cosine schedule with warm-up, down to a tenth."""
    lr, warmup = float(texts["lr"]), int(texts["warmup"])
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    done = (step - warmup) / (total - warmup)
    return 0.1 * lr + 0.9 * lr * 0.5 * (1 + math.cos(math.pi * done))


def curve(model, data, texts, steps, epochs):
    """Trains and returns the learning rates and losses."""
    seed, batch = int(texts["seed"]), int(texts["batch"])
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = kind[texts["optimizer"]](
        model.parameters(), weight_decay=float(texts["weight_decay"]))
    per_epoch = (data.count + batch - 1) // batch
    clip, found = float(texts["clip"]), []
    for epoch in range(epochs):
        order = shuffled(data.count, seed, epoch)
        for first in range(0, data.count, batch):
            if len(found) == steps:
                return found
            inputs, labels = data.batch(order[first:first + batch], epoch)
            logits = model(inputs)
            loss = F.cross_entropy(logits.reshape(len(labels), -1), labels)
            lr = rate(texts, len(found), per_epoch * epochs)
            optimizer.param_groups[0]["lr"] = lr
            optimizer.zero_grad()
            loss.backward()
            if clip > 0:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            found.append((lr, loss.item()))
    return found


def core_train(program, options):
    done = subprocess.run([program, "--json", "--dropout", "0"] + options,
                          stdout=subprocess.PIPE, check=True,
                          universal_newlines=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [(line["lr"], line["loss"]) for line in lines if "step" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--core-train", required=True)
    parser.add_argument("--model", choices=("gpt", "cnn"), required=True)
    parser.add_argument("--data", required=True,
                        help="a text; for cnn a folder to create images in")
    parser.add_argument("--work", required=True, help="a folder for output")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("options", nargs="*", help="options of core-train")
    args = parser.parse_args()
    weights = args.work + "/weights"
    options = ["--model", args.model, "--epochs", str(args.epochs)]
    if args.model == "gpt":
        options += ["--text", args.data, "--sample", "0"]
    else:
        write_images(args.data, 2000, 1)
        options += ["--data", args.data]
    options += args.options

    core_train(args.core_train, options + ["--steps", "0", "--save", weights])
    ours = core_train(args.core_train,
                      options + ["--steps", str(args.steps), "--log", "1"])
    tensors, texts = read_safetensors(weights)
    if args.model == "gpt":
        model, data = Gpt(texts), Text(args.data, texts)
    else:
        model, data = Cnn(texts), Images(args.data, texts)
    model.load_state_dict({name[len("model."):]: tensor
                           for name, tensor in tensors.items()
                           if name.startswith("model.")})
    theirs = curve(model, data, texts, args.steps, args.epochs)

    worst, at, rates = 0, 0, 0
    for i, (a, b) in enumerate(zip(ours, theirs)):
        rates = max(rates, abs(a[0] - b[0]) / b[0])
        if not abs(a[1] - b[1]) <= worst:
            worst, at = abs(a[1] - b[1]), i + 1
        if args.verbose:
            print("%4d  %.6f  %.6f  %+.1e" % (i + 1, a[1], b[1], a[1] - b[1]))
    print("%s, %d steps: loss %.4f to %.4f; PyTorch %s differs by at most "
          "%.2e, at step %d" % (args.model, len(ours), ours[0][1], ours[-1][1],
                                torch.__version__, worst, at))
    if len(ours) != args.steps or len(theirs) != args.steps:
        sys.exit("%d steps of core-train, %d of PyTorch; expected %d"
                 % (len(ours), len(theirs), args.steps))
    if rates > 1e-12:
        sys.exit("the learning rates differ by %.1e of their value" % rates)
    if not worst <= args.tolerance:
        sys.exit("the losses differ by more than %g" % args.tolerance)


if __name__ == "__main__":
    main()
