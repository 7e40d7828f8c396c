# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""The samples of PyTorch's operators (op_db) on a device of libcore: which device
and dtype, how an entry is judged, and copies of its arguments.

LIBCORE_TORCH_DEVICE names the device, "cpu" by default, and LIBCORE_TORCH_DTYPE
the dtype, "float32" by default."""

import dataclasses
import os

import torch

import judges
import libcore_torch
from nested import mapped

DEVICE_NAME = os.environ.get("LIBCORE_TORCH_DEVICE", "cpu")
DEVICE = libcore_torch.device(DEVICE_NAME)
DTYPE = getattr(torch, os.environ.get("LIBCORE_TORCH_DTYPE", "float32"))


def read_exclusions():
    """How an entry is judged, a set of words, and why, by its name."""
    lines = [line.split(None, 2) for line in judges.lines_of("exclusions.txt")]
    return {name: (set(how.split(",")), reason.strip())
            for name, how, reason in lines}


EXCLUSIONS = read_exclusions()


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name
                      else "")


def how_of(op):
    return EXCLUSIONS.get(name_of(op), (set(), ""))[0]


def reason_of(op):
    return EXCLUSIONS[name_of(op)][1]


# What became of the entries.
OUTCOMES = {"passed": 0, "fallback": 0, "failed": 0, "excluded": 0,
            "without input": 0}


def count(test, op, outcome_of):
    """Tries an entry with outcome_of, unless it is excluded, and counts what it
    returns."""
    if "skip" in how_of(op):
        OUTCOMES["excluded"] += 1
        test.skipTest(reason_of(op))
    libcore_torch.reset_fallbacks()
    outcome = "failed"
    try:
        outcome = outcome_of()
    finally:
        OUTCOMES[outcome] += 1


def report():
    print(", ".join(f"{count} {name}" for name, count in OUTCOMES.items()))


# Operators whose second argument torch takes on the CPU only.
ONLY_FIRST_MOVES = ("tensor_split",)


def is_plain(tensor):
    return (tensor.layout == torch.strided and not tensor.is_conj()
            and not tensor.is_neg() and not tensor.is_quantized)


def with_strides(tensor, device, dtype):
    """A copy of the tensor's storage, of which the result is the same view."""
    storage = tensor.detach().untyped_storage()
    whole = torch.empty(0, dtype=tensor.dtype).set_(
        storage, 0, (storage.nbytes() // tensor.itemsize,))
    return whole.to(device, dtype, copy=True).as_strided(
        tensor.size(), tensor.stride(), tensor.storage_offset())


def copies(op, arguments, device, dtype=None):
    """Leaves with the same numbers elsewhere, or in another floating dtype."""
    def copy(tensor):
        wanted = (dtype if dtype and tensor.is_floating_point()
                  else tensor.dtype)
        if is_plain(tensor):
            made = with_strides(tensor, device, wanted)
        else:
            made = tensor.detach().to(device, wanted, copy=True)
        return made.requires_grad_(tensor.requires_grad)

    def named(value):
        if value == torch.device("cpu") or value == "cpu":
            return device
        return (dtype if dtype and isinstance(value, torch.dtype)
                and value.is_floating_point else value)

    (first, *others), kwargs = arguments
    if op.name not in ONLY_FIRST_MOVES:
        others = mapped(others, copy)
    if op.name == "to":
        others = [named(value) for value in others]
    kwargs = {key: named(value) if key in ("device", "dtype") else value
              for key, value in mapped(kwargs, copy).items()}
    if "device" in kwargs:
        kwargs["device"] = device
    return (mapped(first, copy), *others), kwargs


def pooling_samples(op, sample):
    """Numbers from 0 to 1 for the regions of pooling, which would be random.
    torch's own are also outside of 0 to 1, which its documentation excludes.
    They are sixteenths, of which dtypes of 16 bits represent the sums with the
    positions, which torch's CPU rounds."""
    given = sample.kwargs.get("_random_samples")
    if given is None:
        spatial = 2 if op.name.endswith("2d") else 3
        given = torch.randn((*sample.input.shape[:2], spatial),
                            generator=torch.Generator().manual_seed(5))
    sixteenths = (given.float().sigmoid() * 16).floor() / 16
    return sixteenths.to(sample.input.dtype)


def valid(op, sample):
    """The sample with arguments that libcore accepts and that ask for the same
    on all devices.  torch sums linear_cross_entropy in f32 by default on the CPU
    only."""
    if op.name.startswith("nn.functional.fractional_max_pool"):
        sample.kwargs["_random_samples"] = pooling_samples(op, sample)
    options = sample.kwargs.get("options")
    if getattr(options, "acc_policy", None) == "auto":
        sample.kwargs["options"] = dataclasses.replace(options,
                                                       acc_policy="accurate")
    return sample


# By operator with dropout: the position after the input and the name of the chance
# of dropout, its default, and the default of `training`.
DROPOUT = {
    "nn.functional.alpha_dropout": (0, "p", 0.5, False),
    "nn.functional.dropout": (0, "p", 0.5, True),
    "nn.functional.dropout2d": (0, "p", 0.5, True),
    "nn.functional.dropout3d": (0, "p", 0.5, True),
    "nn.functional.feature_alpha_dropout": (0, "p", 0.5, False),
    "nn.functional.multi_head_attention_forward": (9, "dropout_p", 0, True),
    "nn.functional.scaled_dot_product_attention": (4, "dropout_p", 0, True),
}


def draws(op, sample):
    """Whether the result of a sample of an entry marked `some` is random."""
    if op.name == "nn.functional.rrelu":
        return sample.kwargs.get("training", False)
    if op.name == "svd_lowrank":  # of a difference, which has the full rank
        return sample.kwargs.get("M") is not None
    at, name, chance, training = DROPOUT[op.name]
    chance = (sample.args[at] if at < len(sample.args)
              else sample.kwargs.get(name, chance))
    return 0 < chance < 1 and sample.kwargs.get("training", training)


def is_judged_by_sizes(op, sample):
    how = how_of(op)
    return "sizes" in how or ("some" in how and draws(op, sample))
