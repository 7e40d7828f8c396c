/* ops.h: a typed call for every operator.
 *
 * Arguments are borrowed.  A result is a new reference, written to `out…`
 * (NULL on failure; no `out…` may be NULL itself: that is refused); release it
 * with core_tensor_release, a list of them with core_tensors_release.  Calls
 * whose name ends in `_` change their first argument; `…_out` calls write into
 * tensors that are given.  An absent tensor or optional value is NULL, an
 * absent dtype CORE_DTYPE_NONE, an absent memory format -1.  A number argument
 * is core_int(2), core_float(0.5) or core_bool(true). */

#ifndef LIBCORE_OPS_H
#define LIBCORE_OPS_H

#include <stdbool.h>
#include <string.h>

#include "dispatch.h"
#include "ops_ids.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- packing -- */

/* Elements that a list of a typed call may have. */
#define CORE_PACK_MOST ((size_t)INT32_MAX)

static inline core_value core_pack_none(void)
{
    core_value value;

    value.tag = CORE_VALUE_NONE;
    value.count = 0;
    value.u.i = 0;
    return value;
}

static inline core_value core_pack_tagged(uint32_t tag, int64_t i)
{
    core_value value;

    value.tag = tag;
    value.count = 0;
    value.u.i = i;
    return value;
}

static inline core_value core_pack_pointer(uint32_t tag, const void *pointer,
                                           size_t count)
{
    core_value value;

    value.tag = pointer ? tag : (uint32_t)CORE_VALUE_NONE;
    value.count = (uint32_t)(count > CORE_PACK_MOST ? CORE_PACK_MOST : count);
    value.u.pointer = (void *)pointer;
    return value;
}

/* A list that is empty need not have an address. */
static inline core_value core_pack_list(uint32_t tag, const void *pointer,
                                        size_t count)
{
    core_value value = core_pack_pointer(tag, pointer, count);

    value.tag = tag;
    return value;
}

static inline core_value core_pack_tensor(core_tensor *x)
{
    return core_pack_pointer(CORE_VALUE_TENSOR, x, 0);
}

static inline core_value core_pack_tensors(core_tensor *const *x, size_t n)
{
    return core_pack_list(CORE_VALUE_TENSOR_LIST, x, n);
}

static inline core_value core_pack_int(int64_t x)
{
    return core_pack_tagged(CORE_VALUE_INT, x);
}

static inline core_value core_pack_bool(bool x)
{
    return core_pack_tagged(CORE_VALUE_BOOL, x ? 1 : 0);
}

static inline core_value core_pack_float(double x)
{
    core_value value = core_pack_tagged(CORE_VALUE_FLOAT, 0);

    value.u.f = x;
    return value;
}

static inline core_value core_pack_scalar_optional(const core_scalar *x)
{
    return x ? *x : core_pack_none();
}

static inline core_value core_pack_int_optional(const int64_t *x)
{
    return x ? core_pack_int(*x) : core_pack_none();
}

static inline core_value core_pack_bool_optional(const bool *x)
{
    return x ? core_pack_bool(*x) : core_pack_none();
}

static inline core_value core_pack_float_optional(const double *x)
{
    return x ? core_pack_float(*x) : core_pack_none();
}

static inline core_value core_pack_ints(const int64_t *x, size_t n)
{
    return core_pack_list(CORE_VALUE_INT_LIST, x, n);
}

static inline core_value core_pack_ints_optional(const int64_t *x, size_t n)
{
    return core_pack_pointer(CORE_VALUE_INT_LIST, x, n);
}

static inline core_value core_pack_floats(const double *x, size_t n)
{
    return core_pack_list(CORE_VALUE_FLOAT_LIST, x, n);
}

static inline core_value core_pack_floats_optional(const double *x, size_t n)
{
    return core_pack_pointer(CORE_VALUE_FLOAT_LIST, x, n);
}

static inline core_value core_pack_bools(const uint8_t *x, size_t n)
{
    return core_pack_list(CORE_VALUE_BOOL_LIST, x, n);
}

static inline core_value core_pack_string(const char *x)
{
    return core_pack_pointer(CORE_VALUE_STRING, x, x ? strlen(x) : 0);
}

static inline core_value core_pack_dtype(core_dtype x)
{
    return x == CORE_DTYPE_NONE
               ? core_pack_none()
               : core_pack_tagged(CORE_VALUE_DTYPE, (int64_t)x);
}

static inline core_value core_pack_device(core_device *x)
{
    return core_pack_pointer(CORE_VALUE_DEVICE, x, 0);
}

static inline core_value core_pack_generator(core_generator *x)
{
    return core_pack_pointer(CORE_VALUE_GENERATOR, x, 0);
}

static inline core_value core_pack_format(int32_t x)
{
    return x == -1 ? core_pack_none() : core_pack_tagged(CORE_VALUE_FORMAT, x);
}

/* What results are before a call, and stay if it fails. */
static inline void core_pack_nothing(core_value *results, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        results[i].tag = CORE_VALUE_NONE;
        results[i].count = 0;
        results[i].u.i = 0;
    }
}

static inline core_tensor *core_unpack_tensor(const core_value *value)
{
    return value->tag == CORE_VALUE_TENSOR ? value->u.tensor : NULL;
}

static inline core_tensor **core_unpack_tensors(const core_value *value,
                                                size_t *out_count)
{
    if (value->tag != CORE_VALUE_TENSOR_LIST) {
        *out_count = 0;
        return NULL;
    }
    *out_count = value->count;
    return (core_tensor **)value->u.tensors;
}

/* --------------------------------------------------------------- calls -- */

