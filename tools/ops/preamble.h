/* ops.h: a typed call for every operator.
 *
 * The comment above a call is the schema of its operator, in ATen's syntax.  On
 * a device with streams, a call enqueues its work on the current stream and
 * returns.
 *
 * Arguments are borrowed.  Each result is stored in an `out…` argument, which
 * must not be NULL (INVALID_ARGUMENT); the result is NULL on failure.  The
 * caller owns the results, and releases a tensor with core_tensor_release and a
 * list of tensors with core_tensors_release.  A call whose name ends in `_`
 * changes its first argument in place; an `…_out` call writes into tensors of
 * the caller.
 *
 * To omit an argument, pass NULL for a tensor or an optional value,
 * CORE_DTYPE_NONE for a dtype, and -1 for a memory format.  A number argument
 * is core_int(2), core_float(0.5) or core_bool(true).
 *
 * Every call is thread-safe, under the conditions of tensor.h.  Errors are
 * reported as status.h describes.
 *
 * The calls are inline functions, which take most of the time to compile a short
 * file.  A program of many files compiles faster if each of them defines
 * CORE_OPS_EXTERN before it includes any header of libcore, which then only
 * declares the calls, and one file, with CORE_OPS_IMPLEMENTATION, has their
 * definitions:
 *
 *     #define CORE_OPS_IMPLEMENTATION
 *     #include <libcore/ops.h>
 *
 * Compiled with -ffunction-sections and linked with -Wl,--gc-sections, the
 * program contains only those that it calls.  A shared library does not export
 * them. */

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

#if !defined CORE_OPS_EXTERN && !defined CORE_OPS_IMPLEMENTATION
#define CORE_OPS_CALL static inline
#elif defined __GNUC__
#define CORE_OPS_CALL __attribute__((visibility("hidden")))
#else
#define CORE_OPS_CALL
#endif

/* ------------------------------------------------------------- packing -- */

/* The functions core_pack_… and core_unpack_… convert between C arguments and
 * core_value for the typed calls.  Programs do not need them.  Values that they
 * return borrow what they point to. */

/* The maximum number of elements of a list argument. */
#define CORE_PACK_MOST ((size_t)INT32_MAX)

/* Returns NONE. */
static inline core_value core_pack_none(void)
{
    core_value value;

    value.tag = CORE_VALUE_NONE;
    value.count = 0;
    value.u.i = 0;
    return value;
}

/* Returns an integer with a tag. */
static inline core_value core_pack_tagged(uint32_t tag, int64_t i)
{
    core_value value;

    value.tag = tag;
    value.count = 0;
    value.u.i = i;
    return value;
}

/* Returns a pointer with a tag, or NONE if it is NULL.  count: of a list or
 * string, otherwise 0. */
static inline core_value core_pack_pointer(uint32_t tag, const void *pointer,
                                           size_t count)
{
    core_value value;

    value.tag = pointer ? tag : (uint32_t)CORE_VALUE_NONE;
    value.count = (uint32_t)(count > CORE_PACK_MOST ? CORE_PACK_MOST : count);
    value.u.pointer = (void *)pointer;
    return value;
}

/* Returns a list with a tag.  pointer: may be NULL if the list is empty. */
static inline core_value core_pack_list(uint32_t tag, const void *pointer,
                                        size_t count)
{
    core_value value = core_pack_pointer(tag, pointer, count);

    value.tag = tag;
    return value;
}

/* Returns a tensor, or NONE for NULL. */
static inline core_value core_pack_tensor(core_tensor *x)
{
    return core_pack_pointer(CORE_VALUE_TENSOR, x, 0);
}

/* Returns a list of tensors. */
static inline core_value core_pack_tensors(core_tensor *const *x, size_t n)
{
    return core_pack_list(CORE_VALUE_TENSOR_LIST, x, n);
}

/* Returns an integer. */
static inline core_value core_pack_int(int64_t x)
{
    return core_pack_tagged(CORE_VALUE_INT, x);
}

/* Returns a boolean. */
static inline core_value core_pack_bool(bool x)
{
    return core_pack_tagged(CORE_VALUE_BOOL, x ? 1 : 0);
}

/* Returns a floating-point number. */
static inline core_value core_pack_float(double x)
{
    core_value value = core_pack_tagged(CORE_VALUE_FLOAT, 0);

    value.u.f = x;
    return value;
}

/* Returns a number, or NONE for NULL. */
static inline core_value core_pack_scalar_optional(const core_scalar *x)
{
    return x ? *x : core_pack_none();
}

/* Returns an integer, or NONE for NULL. */
static inline core_value core_pack_int_optional(const int64_t *x)
{
    return x ? core_pack_int(*x) : core_pack_none();
}

/* Returns a boolean, or NONE for NULL. */
static inline core_value core_pack_bool_optional(const bool *x)
{
    return x ? core_pack_bool(*x) : core_pack_none();
}

/* Returns a floating-point number, or NONE for NULL. */
static inline core_value core_pack_float_optional(const double *x)
{
    return x ? core_pack_float(*x) : core_pack_none();
}

/* Returns a list of integers. */
static inline core_value core_pack_ints(const int64_t *x, size_t n)
{
    return core_pack_list(CORE_VALUE_INT_LIST, x, n);
}

/* Returns a list of integers, or NONE for NULL. */
static inline core_value core_pack_ints_optional(const int64_t *x, size_t n)
{
    return core_pack_pointer(CORE_VALUE_INT_LIST, x, n);
}

/* Returns a list of floating-point numbers. */
static inline core_value core_pack_floats(const double *x, size_t n)
{
    return core_pack_list(CORE_VALUE_FLOAT_LIST, x, n);
}

/* Returns a list of floating-point numbers, or NONE for NULL. */
static inline core_value core_pack_floats_optional(const double *x, size_t n)
{
    return core_pack_pointer(CORE_VALUE_FLOAT_LIST, x, n);
}

/* Returns a list of booleans, one byte each. */
static inline core_value core_pack_bools(const uint8_t *x, size_t n)
{
    return core_pack_list(CORE_VALUE_BOOL_LIST, x, n);
}

/* Returns a string, or NONE for NULL. */
static inline core_value core_pack_string(const char *x)
{
    return core_pack_pointer(CORE_VALUE_STRING, x, x ? strlen(x) : 0);
}

/* Returns a dtype, or NONE for CORE_DTYPE_NONE. */
static inline core_value core_pack_dtype(core_dtype x)
{
    return x == CORE_DTYPE_NONE
               ? core_pack_none()
               : core_pack_tagged(CORE_VALUE_DTYPE, (int64_t)x);
}

/* Returns a device, or NONE for NULL. */
static inline core_value core_pack_device(core_device *x)
{
    return core_pack_pointer(CORE_VALUE_DEVICE, x, 0);
}

/* Returns a generator, or NONE for NULL. */
static inline core_value core_pack_generator(core_generator *x)
{
    return core_pack_pointer(CORE_VALUE_GENERATOR, x, 0);
}

/* Returns a memory format, or NONE for -1. */
static inline core_value core_pack_format(int32_t x)
{
    return x == -1 ? core_pack_none() : core_pack_tagged(CORE_VALUE_FORMAT, x);
}

/* Sets results to NONE, as they must be before a call. */
static inline void core_pack_nothing(core_value *results, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        results[i].tag = CORE_VALUE_NONE;
        results[i].count = 0;
        results[i].u.i = 0;
    }
}

/* Returns the tensor of a result, or NULL for another tag. */
static inline core_tensor *core_unpack_tensor(const core_value *value)
{
    return value->tag == CORE_VALUE_TENSOR ? value->u.tensor : NULL;
}

/* Returns the tensors of a list result and sets *out_count, or returns NULL and
 * sets it to 0 for another tag. */
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

/* Calls an operator with one result, a tensor, which it stores in *out; NULL on
 * failure.  If out is NULL, fails with that error message. */
static inline core_status core_pack_call(uint32_t op, const char *no_out,
                                         const core_value *args, uint32_t nargs,
                                         core_tensor **out)
{
    core_value result;
    core_status status;

    if (!out)
        return core_error_set(CORE_ERROR_INVALID_ARGUMENT, no_out);
    core_pack_nothing(&result, 1);
    status = core_op_invoke(op, args, nargs, &result, 1);
    *out = core_unpack_tensor(&result);
    return status;
}

/* --------------------------------------------------------------- calls -- */

