# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Arguments and results, in which tensors are in lists and dicts."""

import torch


def mapped(value, function):
    """A copy of nested arguments with function applied to the tensors."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(mapped(item, function) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    return value


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in tensors_of(item)]
    return []
