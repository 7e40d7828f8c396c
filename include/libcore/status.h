/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* status.h: errors, as a program sees them.
 *
 * Calls that can fail return a core_status (codes in plugin.h).  The call that
 * decided the error left a record in its thread: code, and a message in full
 * sentences that names operator, shapes, dtypes, device.  A later successful
 * call leaves the record alone; a later failing one replaces it.
 *
 * NULL: a call that returns a core_status answers INVALID_ARGUMENT to a
 * pointer that is NULL and must not be (an object, a name, a list with a count
 * above 0), with a message that names the call and the argument; so do the
 * typed calls (ops.h), their `out…` included.  Not so the accessors that return
 * a value, such as core_tensor_ndim: theirs must not be NULL.  Release
 * functions take NULL.  A pointer that is neither NULL nor valid is never
 * noticed. */

#ifndef LIBCORE_STATUS_H
#define LIBCORE_STATUS_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns from the enclosing function when the call failed. */
#define CORE_TRY(call)                  \
    do {                                \
        core_status core_try_ = (call); \
        if (core_try_ != CORE_OK)       \
            return core_try_;           \
    } while (0)

/* An error taken off one thread, to be raised on another. */
typedef struct core_error core_error;

/* "CORE_ERROR_SHAPE"; "CORE_ERROR_UNKNOWN" for a code that is not libcore's.
 * Static text. */
const char *core_status_name(core_status status);

/* The message of this thread's latest error, "" if there was none.  Valid
 * until the thread's next failing call. */
const char *core_error_message(void);
/* Its code, CORE_OK if there was none. */
core_status core_error_code(void);
/* Forgets it. */
void core_error_clear(void);

/* Sets the thread's record (the message is copied) and returns code: for
 * functions that a program registers as kernels, gradients or callbacks. */
core_status core_error_set(core_status code, const char *message);

/* Moves the thread's record into an object: NULL in *out_error when there is
 * none.  Without memory for the object it is NULL too, and the record stays
 * where it is: the message can be read, until the next failing call.  Returns
 * the record's code. */
core_status core_error_detach(core_error **out_error);
/* Makes it this thread's record, releases it, returns its code.  NULL gives
 * CORE_OK. */
core_status core_error_raise(core_error *error);
void core_error_release(core_error *error);

/* "0.1.0" */
const char *core_version(void);

#ifdef __cplusplus
}
#endif
#endif
