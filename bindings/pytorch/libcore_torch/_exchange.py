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
_EXTENSION = 12  # all devices that DLPack does not know

_tensor_dlpack = torch.Tensor.__dlpack__
_tensor_dlpack_device = torch.Tensor.__dlpack_device__
_torch_from_dlpack = torch.from_dlpack
_torch_to_dlpack = torch.utils.dlpack.to_dlpack


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
    """libcore's number of a stream that a consumer names.  None, the default of the
    protocol, is the default stream; torch's own default is -1, no stream."""
    if stream is None:
        return 1 if device[0] == _CUDA else 0
    if not isinstance(stream, int):
        raise TypeError("stream must be ``int`` or ``none``")
    return stream


@functools.wraps(_tensor_dlpack)
def _dlpack(self, **keywords):
    return (_export if _is_ours(self) else _tensor_dlpack)(self, **keywords)


def _export(self, *, stream=None, max_version=None, dl_device=None, copy=None,
            read_only=False):
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
        return source.__dlpack__(stream=stream, max_version=(1, 3))
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
    wanted = _device_of(source)
    if wanted is None:
        return -1
    for index in range(_shim.device_count()):
        with torch.inference_mode():
            own = _shim.dlpack_device(torch.empty(0, device=torch.device(
                "libcore", index)))
        if own == wanted and own[0] != _EXTENSION:
            return index
    if wanted[0] == _EXTENSION:
        raise ValueError("libcore_torch.from_dlpack: name the device with "
                         "device=: the source is on an extension device, and "
                         "DLPack does not say which")
    raise ValueError("libcore_torch.from_dlpack: no device of libcore has the "
                     f"memory of DLPack's device {wanted}; copy the tensor to "
                     "the CPU first")


def from_dlpack(source, device=None):
    """A tensor on a device of libcore with the memory of a tensor of another
    library, or of a capsule.  device: where the memory is; by default the one
    that DLPack names, which it does not for extension devices.  Work on the current
    stream of the device comes after the exporter's."""
    index = _index_for(source, device)
    if hasattr(source, "__dlpack__"):
        stream = _shim.dlpack_stream(index)
        source = _capsule_of(source, stream)
        if stream is None:  # the exporter used its default stream
            _shim.synchronize(index)
    return _shim.import_dlpack(source, index)


@functools.wraps(_torch_from_dlpack)
def _from_dlpack(ext_tensor, *, device=None, copy=None):
    wanted = None if device is None else _with_index(torch.device(device))
    if wanted is not None and wanted.type == "libcore":
        if copy is False and not _shares(ext_tensor, wanted):
            raise ValueError(f"cannot move the tensor to {wanted} without "
                             "copying")
        result = (from_dlpack(ext_tensor, wanted)
                  if _shares(ext_tensor, wanted)
                  else _from_dlpack(ext_tensor).to(wanted))
        return result.clone() if copy else result
    where = _device_of(ext_tensor)
    if where is None or where[0] in _OF_TORCH:
        _check_writable(ext_tensor, copy)
        return _torch_from_dlpack(ext_tensor, device=device, copy=copy)
    result = from_dlpack(ext_tensor)
    if wanted is not None:
        return result.to(wanted, copy=bool(copy))
    return result.clone() if copy else result


@functools.wraps(_torch_to_dlpack)
def _to_dlpack(tensor, /, **keywords):
    return (_export if _is_ours(tensor) else _torch_to_dlpack)(tensor,
                                                               **keywords)


def _with_index(device):
    """The device, the current one of libcore if it has no index."""
    if device.type == "libcore" and device.index is None:
        return torch.device("libcore", _shim.current_device())
    return device


def _device_of(source):
    """DLPack's numbers, or None for a source that torch is to refuse."""
    if hasattr(source, "__dlpack_device__"):
        return tuple(map(int, source.__dlpack_device__()))
    return _shim.capsule_device(source)


def _check_writable(source, copy):
    """torch does not know tensors that must not be changed."""
    if _is_ours(source) and not copy and _shim.is_read_only(source):
        raise BufferError("torch.from_dlpack: the tensor is read-only, and "
                          "torch could change it; pass copy=True")


def _shares(source, device):
    """Whether memory of the source is memory of the device.  Who names an
    extension device says whose memory it is."""
    with torch.inference_mode():
        own = _shim.dlpack_device(torch.empty(0, device=device))
    if _is_ours(source) and own[0] == _EXTENSION:
        return source.device == device
    return _device_of(source) in (None, own)


def install():
    """Gives torch's tensors and torch.from_dlpack these functions."""
    torch.Tensor.__dlpack__ = _dlpack
    torch.Tensor.__dlpack_device__ = _dlpack_device
    torch.from_dlpack = _from_dlpack
    torch.utils.dlpack.from_dlpack = _from_dlpack
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = _to_dlpack
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is not None:  # an older torch has no table
        torch.Tensor.__dlpack_c_exchange_api__ = _shim.exchange_api(table)
