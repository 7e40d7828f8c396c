/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scope.h: the open scopes of a thread. */

#ifndef CORE_SCOPE_SCOPE_H
#define CORE_SCOPE_SCOPE_H

#include "base/error.h"
#include "base/thread.h"

#include <libcore/scope.h>

typedef enum core__owned_kind {
    CORE__OWNED_LIST,   /* an array of count tensors */
    CORE__OWNED_OBJECT, /* of another kind, with the function that releases it */
    CORE__OWNED_TENSOR,
    CORE__OWNED_OUTPUT, /* a tensor for *out, if the scope ends without an
                         * error */
    CORE__OWNED_KEPT    /* a tensor that the scope around it gets */
} core__owned_kind;

typedef struct core__owned {
    void *object;
    union {
        core_tensor **out;
        size_t count;
        void (*release)(void *object);
    };
    core__owned_kind kind;
} core__owned;

typedef struct core__scopes {
    bool ready; /* the innermost scope has no error */
    core__owned *owned;
    size_t count, capacity;
    struct core__open_scope *open; /* the innermost last */
    size_t depth, open_capacity;
    uint64_t last_number;
} core__scopes;

/* Returns NULL; outside of any scope it reports that for a call at `where`. */
core__scopes *core__scopes_unready(const char *where) __attribute__((cold));

/* Returns the scopes of this thread if the innermost one has no error, and
 * otherwise NULL, and reports that there is no scope. */
static inline core__scopes *core__scopes_ready(const char *where)
{
    core__scopes *scopes = core__thread_self()->scopes;

    return core__likely(scopes && scopes->ready) ? scopes
                                                 : core__scopes_unready(where);
}

core_tensor *core__scopes_own_slow(core__scopes *scopes, const char *where,
                                   core_tensor *tensor);

/* Makes the innermost scope the owner of a reference, and returns the tensor;
 * without memory releases it, reports that, and returns NULL. */
static inline core_tensor *core__scopes_own(core__scopes *scopes,
                                            const char *where,
                                            core_tensor *tensor)
{
    core__owned *row;

    if (core__unlikely(!scopes->ready || scopes->count == scopes->capacity))
        return core__scopes_own_slow(scopes, where, tensor);
    row = &scopes->owned[scopes->count++];
    row->object = tensor;
    row->kind = CORE__OWNED_TENSOR;
    return tensor;
}

/* The same for a list result of an operator; false without memory. */
bool core__scopes_own_list(core__scopes *scopes, const char *where,
                           core_tensor **tensors, size_t count);

/* The innermost of the open scopes, of which there is one, and whether a handle
 * is its. */
core_scope core__scopes_innermost(const core__scopes *scopes);
bool core__scopes_is_innermost(const core__scopes *scopes, core_scope handle);

/* Makes the thread's error record the error of the innermost scope. */
void core__scopes_fail(core__scopes *scopes, const char *where,
                       core_status status) __attribute__((cold));

/* Releases what the open scopes own when the thread ends. */
void core__scopes_thread_end(core__thread *self);

#endif
