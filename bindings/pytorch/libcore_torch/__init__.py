# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""libcore's devices as devices of PyTorch.

    import torch, libcore_torch

    print(libcore_torch.devices())
    x = torch.ones(3, device="libcore:0")

All devices of all plugins are libcore:0, libcore:1, ...; libcore:0 is libcore's
default device.  What libcore lacks is computed on the CPU, and counted:
fallbacks() returns the counts by operator.
"""

import torch

from . import _load

_shim = _load.shim()
torch.utils.rename_privateuse1_backend("libcore")
_shim.start()

from . import _device_module  # noqa: E402  (needs the name of the device)
from . import _exchange  # noqa: E402
from . import _modules  # noqa: E402
from . import _storage  # noqa: E402

if not hasattr(torch, "libcore"):  # the package may be imported again
    torch._register_device_module("libcore", _device_module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _exchange.install()
    _modules.install()
    _storage.install()
    if torch.distributed.is_available():
        from . import _distributed  # noqa: E402
        _distributed.install()
        ProcessGroupOptions = _distributed.ProcessGroupOptions

fallbacks = _shim.fallbacks
reset_fallbacks = _shim.reset_fallbacks
allow_fallback = _shim.allow_fallback
operators = _shim.operators
version = _shim.version
from_dlpack = _exchange.from_dlpack
buffer = _shim.buffer


class Device:
    """A device: its torch.device, its name in libcore, and its description."""

    def __init__(self, index):
        self.device = torch.device("libcore", index)
        self.name, self.type, self.description = _shim.describe(index)

    def __repr__(self):
        text = f": {self.description}" if self.description else ""
        return f"<{self.device} is {self.name}{text}>"


def devices():
    """All devices of all plugins, in the order of their indices."""
    return [Device(index) for index in range(_shim.device_count())]


def device(name):
    """The torch.device of libcore's device of a name, such as "opencl:0"."""
    wanted = name[:-2] if name.endswith(":0") else name
    for known in devices():
        if known.name == wanted:
            return known.device
    names = ", ".join(known.name for known in devices())
    reason = _shim.device_error(name)
    reason = f"; {reason}" if reason else ""
    raise ValueError(f"libcore_torch.device: there is no device {name!r}; "
                     f"the devices are {names}{reason}")
