/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tensor.h: tensors, as a program sees them.
 *
 * A tensor is a strided window (sizes, strides, offset, in elements) on a
 * storage of a device.  Views share the storage.  Tensors are reference
 * counted; the functions here and in ops.h that give a tensor give one
 * reference, which core_tensor_release drops.  What computes on tensors is in
 * ops.h.
 *
 * Threads: reading one tensor from several threads is fine, changing it (in
 * place, its grad, requires_grad) needs the program's own order. */

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

static inline core_scalar core_int(int64_t value)
{
    core_scalar scalar = {CORE_VALUE_INT, 0, {value}};

    return scalar;
}

static inline core_scalar core_float(double value)
{
    core_scalar scalar = {CORE_VALUE_FLOAT, 0, {0}};

    scalar.u.f = value;
    return scalar;
}

static inline core_scalar core_bool(bool value)
{
    core_scalar scalar = {CORE_VALUE_BOOL, 0, {value}};

    return scalar;
}

/* What losses do with the values of the elements: their argument reduction. */
enum {
    CORE_REDUCTION_NONE = 0, /* gives all */
    CORE_REDUCTION_MEAN = 1,
    CORE_REDUCTION_SUM = 2
};

/* Drops what a result value owns (a tensor, a list of tensors) and makes it
 * NONE. */
void core_value_release(core_value *value);
/* Releases count tensors and the array itself, as list results come. */
void core_tensors_release(core_tensor **tensors, size_t count);

/* ------------------------------------------------------------ creation -- */

/* A tensor with a copy of host data: row-major, core_dtype_size bytes per
 * element; a byte of CORE_BOOL that is not 0 becomes 1.  device NULL: the
 * default one. */
core_status core_tensor_from_data(const void *data, core_dtype dtype,
                                  const int64_t *sizes, size_t ndim,
                                  core_device *device,
                                  core_tensor **out_tensor);
/* A "cpu" tensor on memory of the caller's, not copied: row-major, writable,
 * aligned to its element.  Bytes of CORE_BOOL must be 0 or 1: nobody looks
 * through them, and of others operators may say different things.  release(context, data) is called once, when the
 * last tensor on it is gone; also if this call fails.  NULL: nothing is
 * called, and data must outlive the tensors. */
core_status core_tensor_from_memory(void *data, core_dtype dtype,
                                    const int64_t *sizes, size_t ndim,
                                    void (*release)(void *context, void *data),
                                    void *context, core_tensor **out_tensor);

/* Returns tensor. */
core_tensor *core_tensor_retain(core_tensor *tensor);
/* Takes NULL. */
void core_tensor_release(core_tensor *tensor);

/* ----------------------------------------------------------- accessors -- */

uint32_t core_tensor_ndim(const core_tensor *tensor);
/* ndim entries, borrowed. */
const int64_t *core_tensor_sizes(const core_tensor *tensor);
const int64_t *core_tensor_strides(const core_tensor *tensor);
/* dim counts from the end if negative; out of range gives -1. */
int64_t core_tensor_size(const core_tensor *tensor, int64_t dim);
int64_t core_tensor_numel(const core_tensor *tensor);
core_dtype core_tensor_dtype(const core_tensor *tensor);
/* Borrowed. */
core_device *core_tensor_device(const core_tensor *tensor);
/* In elements, from the start of the storage. */
int64_t core_tensor_offset(const core_tensor *tensor);
/* format: CORE_FORMAT_CONTIGUOUS, _CHANNELS_LAST (4 dimensions) or
 * _CHANNELS_LAST_3D (5). */
bool core_tensor_is_contiguous(const core_tensor *tensor, uint32_t format);
/* Both on one storage. */
bool core_tensor_shares_storage(const core_tensor *a, const core_tensor *b);
/* Counts changes in place of the storage. */
uint32_t core_tensor_version(const core_tensor *tensor);
/* A view of another tensor; its base is borrowed, NULL if it is none. */
core_tensor *core_tensor_base(const core_tensor *tensor);
/* On memory that came in from outside and may not be changed (dlpack.h,
 * safetensors.h): operators in place are refused (REFUSED). */
bool core_tensor_is_read_only(const core_tensor *tensor);
/* References held, for tests and curiosity. */
uint32_t core_tensor_references(const core_tensor *tensor);

/* ---------------------------------------------------------- host access -- */

/* The address of the first element, on devices whose memory the host can use
 * (the CPU); waits for pending work.  UNSUPPORTED elsewhere.  Bytes written
 * to a CORE_BOOL tensor must be 0 or 1. */
core_status core_tensor_data(core_tensor *tensor, void **out_data);
/* All elements to or from host memory, row-major; size in bytes must be
 * numel * core_dtype_size.  Any device; waits.  Writing makes 1 of a byte of
 * CORE_BOOL that is not 0. */
core_status core_tensor_read(core_tensor *tensor, void *data, size_t size);
core_status core_tensor_write(core_tensor *tensor, const void *data,
                              size_t size);
/* The one element of a tensor with numel 1; waits. */
core_status core_tensor_item(core_tensor *tensor, core_scalar *out_value);
core_status core_tensor_item_float(core_tensor *tensor, double *out_value);
core_status core_tensor_item_int(core_tensor *tensor, int64_t *out_value);

/* ------------------------------------------------------------- printing -- */

/* Text as NumPy prints arrays, with dtype and device behind where they are not
 * f32 on the CPU; large tensors are summarised.  Freed with core_text_free. */
core_status core_tensor_format(core_tensor *tensor, char **out_text);
/* The same to standard output, and a newline. */
core_status core_tensor_print(core_tensor *tensor);
void core_text_free(char *text);

/* --------------------------------------------------------------- dtypes -- */

/* Bytes of an element; 0 for an id without elements. */
uint32_t core_dtype_size(core_dtype dtype);
/* "f32"; "none" for what is no dtype. */
const char *core_dtype_name(core_dtype dtype);
/* NONE if there is no such name. */
core_dtype core_dtype_from_name(const char *name);
/* What an operator on both computes in. */
core_dtype core_dtype_promote(core_dtype a, core_dtype b);
bool core_dtype_is_floating(core_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
