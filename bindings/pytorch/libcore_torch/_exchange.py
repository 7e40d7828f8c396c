# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Tensors that are shared with other libraries, without copies.

torch takes its devices of this kind for extension devices, and their addresses
for pointers.  Here tensors are exported as what they are, so that what the host
can access is a tensor of the CPU for other libraries.
"""

import functools

import torch

from . import _shim

# Devices that torch itself imports: the CPU and GPUs of its own build.
_OF_TORCH = {1, 2, 3, 10, 11, 13, 14}
_CUDA = 2

_tensor_dlpack = torch.Tensor.__dlpack__
_tensor_dlpack_device = torch.Tensor.__dlpack_device__
_torch_from_dlpack = torch.from_dlpack


def _is_ours(value):
    return isinstance(value, torch.Tensor) and value.device.type == "libcore"


def _check_exportable(tensor, read_only):
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use "
                          "tensor.detach()")
    if tensor.is_conj() or tensor.is_neg():
        raise BufferError("Can't export conjugated or negated views")
    if read_only:
        raise BufferError("libcore does not export tensors as read-only")


def _consumer_stream(stream, device):
    """libcore's number of a stream that a consumer names."""
    if stream is None:
        return 1 if device[0] == _CUDA else 0
    if not isinstance(stream, int):
        raise TypeError("stream must be ``int`` or ``none``")
    return stream


@functools.wraps(_tensor_dlpack)
def _dlpack(self, *, stream=-1, max_version=None, dl_device=None, copy=None,
            read_only=False):
    if not _is_ours(self):
        return _tensor_dlpack(self, stream=stream, max_version=max_version,
                              dl_device=dl_device, copy=copy,
                              read_only=read_only)
    _check_exportable(self, read_only)
    own = _shim.dlpack_device(self)
    if dl_device is not None and tuple(map(int, dl_device)) != own:
        if int(dl_device[0]) != 1 or copy is False:
            raise BufferError(f"libcore cannot export a tensor of DLPack's "
                              f"device {own} to {tuple(dl_device)} without a "
                              "copy on the CPU")
        return _tensor_dlpack(self.cpu(), max_version=max_version)
    versioned = max_version is not None and max_version[0] >= 1
    return _shim.export_dlpack(self, _consumer_stream(stream, own), versioned,
                               bool(copy))


@functools.wraps(_tensor_dlpack_device)
def _dlpack_device(self):
    if _is_ours(self):
        return _shim.dlpack_device(self)
    return _tensor_dlpack_device(self)


def _capsule_of(source, stream):
    """The capsule of an exporter, which may be older than DLPack 1.0."""
    try:
        return source.__dlpack__(stream=stream, max_version=(1, 1))
    except TypeError:
        return source.__dlpack__(stream=stream)


def _index_for(source, device):
    if device is not None:
        device = torch.device(device)
        if device.type != "libcore":
            raise ValueError("libcore_torch.from_dlpack: expected a device of "
                             f"libcore, found {device}")
        return -1 if device.index is None else device.index
    if _is_ours(source):
        return source.device.index
    return _find_device(source)


def _find_device(source):
    """The device whose memory DLPack names as the source does."""
    if not hasattr(source, "__dlpack_device__"):
        return -1
    wanted = tuple(map(int, source.__dlpack_device__()))
    for index in range(_shim.device_count()):
        with torch.inference_mode():
            own = _shim.dlpack_device(torch.empty(0, device=torch.device(
                "libcore", index)))
        if own == wanted and own[0] != 12:
            return index
    raise ValueError("libcore_torch.from_dlpack: name the device: none of "
                     f"libcore's is DLPack's device {wanted}")


def from_dlpack(source, device=None):
    """A tensor on a device of libcore with the memory of a tensor of another
    library, or of a capsule.  device: where the memory is; by default the one
    that DLPack names, and for a capsule the current one.  Work on the current
    stream of the device comes after the exporter's."""
    index = _index_for(source, device)
    if hasattr(source, "__dlpack__"):
        source = _capsule_of(source, _shim.dlpack_stream(index))
    return _shim.import_dlpack(source, index)


@functools.wraps(_torch_from_dlpack)
def _from_dlpack(ext_tensor, *, device=None, copy=None):
    wanted = None if device is None else torch.device(device)
    if wanted is not None and wanted.type == "libcore":
        if copy is False and not _shares(ext_tensor, wanted):
            raise ValueError(f"cannot move the tensor to {wanted} without "
                             "copying")
        result = (from_dlpack(ext_tensor, wanted)
                  if _shares(ext_tensor, wanted)
                  else _from_dlpack(ext_tensor).to(wanted))
        return result.clone() if copy else result
    if (not hasattr(ext_tensor, "__dlpack_device__")
            or int(ext_tensor.__dlpack_device__()[0]) in _OF_TORCH):
        return _torch_from_dlpack(ext_tensor, device=device, copy=copy)
    result = from_dlpack(ext_tensor)
    if wanted is not None:
        return result.to(wanted, copy=bool(copy))
    return result.clone() if copy else result


def _shares(source, device):
    """Whether memory of the source is memory of the device."""
    if not hasattr(source, "__dlpack_device__"):
        return True
    with torch.inference_mode():
        own = _shim.dlpack_device(torch.empty(0, device=device))
    if own[0] == 12 and not (_is_ours(source) and source.device == device):
        return False
    return own == tuple(map(int, source.__dlpack_device__()))


def install():
    """Gives torch's tensors and torch.from_dlpack these functions."""
    torch.Tensor.__dlpack__ = _dlpack
    torch.Tensor.__dlpack_device__ = _dlpack_device
    torch.from_dlpack = _from_dlpack
    torch.utils.dlpack.from_dlpack = _from_dlpack
