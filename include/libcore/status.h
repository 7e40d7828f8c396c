/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* status.h: error codes and error messages.
 *
 * A function that can fail returns a core_status (codes in plugin.h).  When it
 * fails, it stores an error record in the calling thread: the code, and a
 * message that names the operator, shapes, dtypes and device concerned.  A
 * successful call leaves the record unchanged; the next failing call replaces
 * it.  Every function here is thread-safe.
 *
 * NULL arguments.  A function that returns a core_status returns
 * INVALID_ARGUMENT for a NULL pointer that is not allowed (an object, a name,
 * an `out` argument, a list whose count is above 0), with a message that names
 * the function and the argument; so do the typed calls of ops.h.  Accessors
 * that return a value, such as core_tensor_ndim, do not check their arguments.
 * Release functions accept NULL.  Invalid pointers other than NULL are not
 * detected. */

#ifndef LIBCORE_STATUS_H
#define LIBCORE_STATUS_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Evaluates a call and returns its status from the enclosing function if it is
 * not CORE_OK. */
#define CORE_TRY(call)                  \
    do {                                \
        core_status core_try_ = (call); \
        if (core_try_ != CORE_OK)       \
            return core_try_;           \
    } while (0)

/* An error record detached from one thread, to be raised in another. */
typedef struct core_error core_error;

/* Returns the name of a code, "CORE_ERROR_SHAPE", or "CORE_ERROR_UNKNOWN" for a
 * code that libcore does not define.  The text is static. */
const char *core_status_name(core_status status);

/* Returns the message of the calling thread's error record, or "" if there is
 * none.  The text is valid until the next failing call of the thread. */
const char *core_error_message(void);

/* Returns the code of the calling thread's error record, or CORE_OK if there is
 * none. */
core_status core_error_code(void);

/* Clears the calling thread's error record. */
void core_error_clear(void);

/* Sets the calling thread's error record and returns code.  The message is
 * copied.  For kernels, gradients and callbacks that a program registers. */
core_status core_error_set(core_status code, const char *message);

/* Moves the calling thread's error record into an object, and returns its code.
 * The caller owns *out_error, which core_error_raise or core_error_release
 * frees.  If there is no record, *out_error is NULL and the result CORE_OK.  If
 * there is no memory for the object, *out_error is NULL and the record stays
 * in the thread. */
core_status core_error_detach(core_error **out_error);

/* Sets the calling thread's error record to a detached error, frees the error,
 * and returns its code.  CORE_OK for NULL. */
core_status core_error_raise(core_error *error);

/* Frees a detached error.  Accepts NULL. */
void core_error_release(core_error *error);

/* Returns the version of libcore, "0.1.0".  The text is static. */
const char *core_version(void);

#ifdef __cplusplus
}
#endif
#endif
