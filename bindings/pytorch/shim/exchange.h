/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* exchange.h: functions of the extension module that share tensors with other
 * libraries. */

#ifndef BINDINGS_PYTORCH_EXCHANGE_H
#define BINDINGS_PYTORCH_EXCHANGE_H

#include <Python.h>

#include "shim.h"

namespace libcore_torch
{

/* The index of a device; -1: the current one.  Throws if there is none. */
c10::DeviceIndex index_argument(PyObject *object);
/* export_dlpack(tensor, stream, versioned, copied): a capsule. */
PyObject *export_dlpack(PyObject *self, PyObject *arguments);
/* dlpack_device(tensor): DLPack's numbers, (type, index). */
PyObject *dlpack_device(PyObject *self, PyObject *tensor);
/* is_read_only(tensor): whether its memory must not be written. */
PyObject *is_read_only(PyObject *self, PyObject *tensor);
/* capsule_device(capsule): DLPack's numbers, or None for what cannot be used. */
PyObject *capsule_device(PyObject *self, PyObject *capsule);
/* dlpack_stream(index): the number of the current stream, or None. */
PyObject *dlpack_stream(PyObject *self, PyObject *index);
/* import_dlpack(capsule, index): a tensor on libcore:index. */
PyObject *import_dlpack(PyObject *self, PyObject *arguments);
/* exchange_api(capsule): DLPack's table of functions for tensors of torch, which
 * passes tensors of other devices to torch's own, that of the capsule.  What is no
 * such capsule is returned as it is. */
PyObject *exchange_api(PyObject *self, PyObject *capsule);
/* buffer(tensor): an object with the buffer protocol. */
PyObject *buffer(PyObject *self, PyObject *tensor);

} // namespace libcore_torch

#endif
