# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""What torch's storages do with the address of their memory, which memory of
libcore's devices does not always have: here a copy on the CPU does it.  What
needs memory that processes share is refused."""

import functools
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing.reductions as reductions

_Storage = torch.UntypedStorage


def _through_the_cpu(name, changes):
    """Replaces a method.  changes: whether it changes the storage."""
    method = getattr(_Storage, name)

    @functools.wraps(method)
    def replaced(self, *arguments):
        if self.device.type != "libcore":
            return method(self, *arguments)
        copy = self.cpu()
        result = method(copy, *arguments)
        if changes:
            self.copy_(copy)
            return self if result is copy else result
        return result

    setattr(_Storage, name, replaced)


def _refuse_sharing(device):
    raise RuntimeError(
        f"libcore: memory of {device} cannot be shared between processes; send "
        "tensors of the CPU, such as those that cpu() returns, and move them to "
        "the device where they are received")


def _reduce(storage):
    """The receiver gets the error.  A queue sends in a thread of its own, which only
    prints errors, and the receiver would wait forever."""
    if storage.device.type == "libcore":
        return _refuse_sharing, (str(storage.device),)
    return reductions.reduce_storage(storage)


def install():
    """Gives torch's storages these methods."""
    ForkingPickler.register(_Storage, _reduce)
    _through_the_cpu("_write_file", False)
    _through_the_cpu("_set_from_file", True)
    _through_the_cpu("_byteswap", True)
