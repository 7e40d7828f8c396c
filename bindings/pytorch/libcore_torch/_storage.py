# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""What torch's storages do with the address of their memory, which memory of
libcore's devices does not always have: here a copy on the CPU does it."""

import functools

import torch

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


def install():
    """Gives torch's storages these methods."""
    _through_the_cpu("_write_file", False)
    _through_the_cpu("_set_from_file", True)
    _through_the_cpu("_byteswap", True)
