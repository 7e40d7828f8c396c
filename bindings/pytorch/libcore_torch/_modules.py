# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Parameters of modules that move between the CPU and libcore's devices.

torch moves a parameter in place between its own devices, so that weights stay
tied and optimizers keep what they update.  For devices of this kind it makes new
parameters; here the old ones get the new memory.
"""

import functools
import warnings

import torch

_torch_apply = torch.nn.Module._apply


def _moves(old, new):
    return (old is not None and new is not old
            and "libcore" in (old.device.type, new.device.type))


def _in_place(old, new):
    """The old parameter with what the new one has."""
    try:
        torch.utils.swap_tensors(old, new)
    except RuntimeError as error:
        warnings.warn("libcore: a parameter cannot be moved in place, so it is a "
                      "new one: weights that were tied no longer are, and "
                      f"optimizers update the old one ({error})", stacklevel=3)
        return new
    return old


@functools.wraps(_torch_apply)
def _apply(self, fn, recurse=True):
    before = dict(self._parameters)
    result = _torch_apply(self, fn, recurse)
    if not torch.__future__.get_overwrite_module_params_on_conversion():
        for name, old in before.items():
            if _moves(old, self._parameters[name]):
                self._parameters[name] = _in_place(old, self._parameters[name])
    return result


def install():
    """Gives torch's modules this function."""
    torch.nn.Module._apply = _apply
