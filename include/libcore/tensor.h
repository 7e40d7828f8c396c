/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tensor.h: tensors: creation, properties, host access.
 *
 * A tensor is a strided view (sizes, strides and offset, in elements) of a
 * storage on a device.  Several tensors can share a storage.  Tensors are
 * reference-counted: a function here or in ops.h that returns a tensor in an
 * `out` argument returns one reference, which the caller drops with
 * core_tensor_release.  ops.h contains the operators.
 *
 * Threads.  Every function here is thread-safe, and several threads may read
 * one tensor at once.  A program that changes a tensor (in place, its grad, or
 * requires_grad) while other threads use it must synchronise them itself. */

#ifndef LIBCORE_TENSOR_H
#define LIBCORE_TENSOR_H

#include "device.h"
#include "kernel.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- values -- */

/* Returns an integer as a number argument of an operator. */
static inline core_scalar core_int(int64_t value)
{
    core_scalar scalar = {CORE_VALUE_INT, 0, {value}};

    return scalar;
}

/* Returns a floating-point number as a number argument of an operator. */
static inline core_scalar core_float(double value)
{
    core_scalar scalar = {CORE_VALUE_FLOAT, 0, {0}};

    scalar.u.f = value;
    return scalar;
}

/* Returns a boolean as a number argument of an operator. */
static inline core_scalar core_bool(bool value)
{
    core_scalar scalar = {CORE_VALUE_BOOL, 0, {value}};

    return scalar;
}

/* The argument `reduction` of losses. */
enum {
    CORE_REDUCTION_NONE = 0, /* one loss per element */
    CORE_REDUCTION_MEAN = 1,
    CORE_REDUCTION_SUM = 2
};

/* Releases what a result value owns (a tensor or a list of tensors) and sets it
 * to NONE.  Accepts NULL. */
void core_value_release(core_value *value);

/* Releases count tensors, which may be NULL, and frees the array.  For list
 * results of operators. */
void core_tensors_release(core_tensor **tensors, size_t count);

/* ------------------------------------------------------------ creation -- */

/* Creates a row-major tensor with a copy of host data.  The caller owns one
 * reference.  data: row-major, core_dtype_size(dtype) bytes per element; it is
 * not read for "meta", and may be NULL if there are no elements.  A CORE_BOOL
 * byte that is not 0 becomes 1.  device NULL: the default device. */
core_status core_tensor_from_data(const void *data, core_dtype dtype,
                                  const int64_t *sizes, size_t ndim,
                                  core_device *device,
                                  core_tensor **out_tensor);

/* Creates a row-major tensor on "cpu" that uses the caller's memory without a
 * copy.  The caller owns one reference.  data: row-major, writable and aligned
 * to the element size.  CORE_BOOL bytes must be 0 or 1; they are not checked,
 * and other values give undefined results.  release(context, data) is called
 * once, when the last tensor that uses the memory is gone, and also if this
 * call fails.  release NULL: the memory must outlive the tensors. */
core_status core_tensor_from_memory(void *data, core_dtype dtype,
                                    const int64_t *sizes, size_t ndim,
                                    void (*release)(void *context, void *data),
                                    void *context, core_tensor **out_tensor);

/* Creates a tensor with any dtype, sizes and strides on the storage of another
 * tensor, for programs that keep storages without a type.  The caller owns one
 * reference, which keeps the memory alive.  storage: any tensor on it.  sizes,
 * strides: ndim entries, strides in elements and at least 0.  offset: from the
 * start of the storage, not of the tensor, in elements of dtype.  The result is
 * not a view for autograd: it has no history.  Changes of it count as changes
 * of the storage, and it is read-only if `storage` is.  The bytes of a
 * CORE_BOOL tensor must be 0 or 1; they are not checked.
 *
 * SHAPE: too many dimensions, negative sizes, strides or offset, or more bytes
 * than the storage has.  DTYPE: not a supported dtype.  INVALID_ARGUMENT: the
 * memory is not aligned to the element size.  UNSUPPORTED: a tensor on "meta",
 * inside of core_vmap, or of a program that is being recorded. */
core_status core_tensor_alias(core_tensor *storage, core_dtype dtype,
                              const int64_t *sizes, const int64_t *strides,
                              size_t ndim, int64_t offset,
                              core_tensor **out_tensor);

/* Adds a reference and returns tensor.  Accepts NULL. */
core_tensor *core_tensor_retain(core_tensor *tensor);

/* Drops a reference.  Accepts NULL. */
void core_tensor_release(core_tensor *tensor);

/* ----------------------------------------------------------- accessors -- */

/* The tensor arguments of the accessors must not be NULL. */

/* Returns the number of dimensions. */
uint32_t core_tensor_ndim(const core_tensor *tensor);

/* Returns the sizes, ndim entries, borrowed. */
const int64_t *core_tensor_sizes(const core_tensor *tensor);

/* Returns the strides in elements, ndim entries, borrowed. */
const int64_t *core_tensor_strides(const core_tensor *tensor);

/* Returns the size of one dimension.  A negative dim counts from the end.
 * Returns -1 if dim is out of range. */
int64_t core_tensor_size(const core_tensor *tensor, int64_t dim);

/* Returns the number of elements. */
int64_t core_tensor_numel(const core_tensor *tensor);

/* Returns the dtype. */
core_dtype core_tensor_dtype(const core_tensor *tensor);

/* Returns the device, borrowed. */
core_device *core_tensor_device(const core_tensor *tensor);

/* Returns the offset of the first element from the start of the storage, in
 * elements. */
int64_t core_tensor_offset(const core_tensor *tensor);

/* Returns whether the elements are contiguous in a memory format:
 * CORE_FORMAT_CONTIGUOUS, _CHANNELS_LAST (4 dimensions) or _CHANNELS_LAST_3D (5
 * dimensions). */
bool core_tensor_is_contiguous(const core_tensor *tensor, uint32_t format);

/* Returns whether two tensors share a storage. */
bool core_tensor_shares_storage(const core_tensor *a, const core_tensor *b);

/* Returns how often the storage was changed in place. */
uint32_t core_tensor_version(const core_tensor *tensor);

/* Returns the tensor that this one is a view of, borrowed, or NULL if it is not
 * a view. */
core_tensor *core_tensor_base(const core_tensor *tensor);

/* Returns whether the tensor uses imported memory that must not be changed
 * (dlpack.h).  Operators that would change it in place return REFUSED. */
bool core_tensor_is_read_only(const core_tensor *tensor);

/* Returns the reference count, for tests and debugging. */
uint32_t core_tensor_references(const core_tensor *tensor);

/* ---------------------------------------------------------- host access -- */

/* Gets the address of the first element, on a device whose memory the host can
 * access (CORE_MEMORY_HOST_VISIBLE, device.h).  The address is valid while the
 * tensor lives.  Waits for the work of the current stream.  CORE_BOOL bytes
 * that the caller writes must be 0 or 1.  UNSUPPORTED on other devices. */
core_status core_tensor_data(core_tensor *tensor, void **out_data);

/* Gets the place of the first element in the device's memory: the plugin's
 * handle and an offset in bytes (plugin.h).  Does not wait.  On a device with
 * CORE_DEVICE_FLAT (backend.h), handle + offset is an address.  It is valid
 * while the tensor lives.  UNSUPPORTED for a tensor without memory: on "meta",
 * inside of core_vmap, or of a program that is being recorded. */
core_status core_tensor_memory(const core_tensor *tensor,
                               core_memory *out_memory);

/* Copies all elements to host memory, row-major.  Waits for the copy.  size: in
 * bytes; INVALID_ARGUMENT unless it is numel * core_dtype_size.  DATA_DEPENDENT
 * on "meta". */
core_status core_tensor_read(core_tensor *tensor, void *data, size_t size);

/* Copies host memory, row-major, to all elements, in place and not recorded by
 * autograd.  The host memory may be reused on return.  A CORE_BOOL byte that is
 * not 0 becomes 1.  size: in bytes; INVALID_ARGUMENT unless it is numel *
 * core_dtype_size.  DATA_DEPENDENT on "meta".  REFUSED if the tensor is
 * read-only. */
core_status core_tensor_write(core_tensor *tensor, const void *data,
                              size_t size);

/* Gets the only element of a tensor with numel 1 as a number.  Waits for the
 * work of the current stream.  SHAPE if numel is not 1; DATA_DEPENDENT on
 * "meta". */
core_status core_tensor_item(core_tensor *tensor, core_scalar *out_value);

/* Gets the only element of a tensor with numel 1 as double.  Waits and
 * fails like core_tensor_item. */
core_status core_tensor_item_float(core_tensor *tensor, double *out_value);

/* Gets the only element of a tensor with numel 1 as int64.  Waits and fails
 * like core_tensor_item.  DTYPE if the tensor is floating. */
core_status core_tensor_item_int(core_tensor *tensor, int64_t *out_value);

/* ------------------------------------------------------------- printing -- */

/* Formats a tensor as NumPy prints arrays, followed by dtype and device unless
 * they are f32 and cpu.  Large tensors are summarised.  Waits for the work of
 * the current stream.  The caller frees the text with core_text_free. */
core_status core_tensor_format(core_tensor *tensor, char **out_text);

/* Prints a tensor, formatted by core_tensor_format, and a newline to the
 * standard output.  IO if that fails. */
core_status core_tensor_print(core_tensor *tensor);

/* Frees a text that a function of libcore returned.  Accepts NULL. */
void core_text_free(char *text);

/* --------------------------------------------------------------- dtypes -- */

/* Returns the size of an element in bytes, or 0 if dtype is not a supported
 * dtype. */
uint32_t core_dtype_size(core_dtype dtype);

/* Returns the name of a dtype, "f32", or "none" if there is no such dtype.  The
 * text is static. */
const char *core_dtype_name(core_dtype dtype);

/* Returns the dtype of a name, or CORE_DTYPE_NONE if there is no such name. */
core_dtype core_dtype_from_name(const char *name);

/* Returns the dtype in which an operator on two dtypes computes, or
 * CORE_DTYPE_NONE if there is none: an f8 dtype is promoted only with
 * itself. */
core_dtype core_dtype_promote(core_dtype a, core_dtype b);

/* Returns whether a dtype is f64, f32, f16 or bf16. */
bool core_dtype_is_floating(core_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
