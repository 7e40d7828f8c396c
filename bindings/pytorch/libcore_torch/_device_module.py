# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""torch.libcore: what torch calls on the module of a device type."""

import os

import torch

from . import _shim

_forked = False
_initialized = True  # checkpoints save the states of generators


def _after_fork():
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def _index(device):
    """-1, the current device, for None."""
    if device is None:
        return -1
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return -1 if index is None else index


def is_available():
    return _shim.device_count() > 0


def device_count():
    return _shim.device_count()


def current_device():
    return _shim.current_device()


def set_device(device):
    _shim.set_device(_index(device))


def synchronize(device=None):
    """Waits for all work of a device; for the current one if it is None."""
    _shim.synchronize(_index(device))


class device:
    """A context in which another device is the current one."""

    def __init__(self, device):
        self._wanted = _index(device)

    def __enter__(self):
        self._before = current_device()
        if self._wanted >= 0:
            _shim.set_device(self._wanted)
        return self

    def __exit__(self, *unused):
        _shim.set_device(self._before)


def is_initialized():
    return True


def _lazy_init():
    pass


def _is_in_bad_fork():
    return _forked


def manual_seed_all(seed):
    _shim.manual_seed_all(int(seed))


def manual_seed(seed):
    default_generator(current_device()).manual_seed(int(seed))


def default_generator(index):
    return _shim.default_generator(index)


default_generators = tuple(_shim.default_generator(index)
                           for index in range(_shim.device_count()))


def get_rng_state(device="libcore"):
    return default_generator(_index(device)).get_state()


def set_rng_state(state, device="libcore"):
    default_generator(_index(device)).set_state(state)


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation=True):
    return True


def get_device_name(device=None):
    index = _index(device)
    name, _, text = _shim.describe(current_device() if index < 0 else index)
    return text or name


def empty_cache():
    torch.accelerator.empty_cache()


Stream = torch.Stream
Event = torch.Event
