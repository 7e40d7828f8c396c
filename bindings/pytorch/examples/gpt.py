# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Trains a GPT on the characters of a text, on a device of libcore, and writes
some text.

    gpt.py [--device NAME] [--text FILE] [--layers N] [--width N] [--heads N]
           [--length N] [--batch N] [--steps N]

--device: as libcore names it, such as sim or opencl:0, or torch-cpu for torch's
own CPU.  With the same options every device prints the same losses, but for
rounding.  --text: this file by default.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

import libcore_torch


class Block(nn.Module):
    """Causal attention, then a perceptron."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, characters, layers, width, heads, length):
        super().__init__()
        self.tokens = nn.Embedding(characters, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads)
                                      for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.05)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        x = self.tokens(x) + self.places(places)
        return self.head(self.norm(self.blocks(x)))


class Training:
    def __init__(self, device, text=__file__, layers=2, width=64, heads=4,
                 length=64):
        with open(text, encoding="utf-8") as file:
            content = file.read()
        self.device, self.length = device, length
        self.characters = sorted(set(content))
        self.codes = torch.tensor([self.characters.index(one)
                                   for one in content])
        torch.manual_seed(0)
        self.model = GPT(len(self.characters), layers, width, heads,
                         length).to(device)

    def run(self, batch=8, steps=30):
        """The losses."""
        optimizer = torch.optim.AdamW(self.model.parameters(), 3e-3)
        losses = []
        for _ in range(steps):
            starts = torch.randint(len(self.codes) - self.length - 1, (batch,))
            rows = torch.stack([self.codes[start:start + self.length + 1]
                                for start in starts]).to(self.device)
            optimizer.zero_grad()
            loss = F.cross_entropy(self.model(rows[:, :-1]).flatten(0, 1),
                                   rows[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    @torch.no_grad()
    def write(self, count):
        """Text that the model finds likely, one of the best at each place."""
        row = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        for _ in range(count):
            scores = self.model(row[:, -self.length:])[0, -1]
            best = scores.topk(3)
            chosen = best.indices[torch.multinomial(best.values.softmax(0), 1)]
            row = torch.cat([row, chosen[None]], 1)
        return "".join(self.characters[code] for code in row[0, 1:].tolist())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--text", default=__file__)
    for name, value in (("layers", 2), ("width", 64), ("heads", 4),
                        ("length", 64), ("batch", 8), ("steps", 30)):
        parser.add_argument("--" + name, type=int, default=value)
    options = vars(parser.parse_args())
    name = options.pop("device")
    device = (torch.device("cpu") if name == "torch-cpu"
              else libcore_torch.device(name))
    batch, steps = options.pop("batch"), options.pop("steps")
    training = Training(device, **options)
    for step, loss in enumerate(training.run(batch, steps), 1):
        print(f"step {step}  loss {loss:.5f}")
    print(training.write(100))
    print("fallbacks", libcore_torch.fallbacks())


if __name__ == "__main__":
    main()
