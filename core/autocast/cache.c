/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Casts of weights, kept until the outermost region ends: a weight used ten
 * times is cast once, and its gradient comes back through one cast.
 *
 * A table of the thread, by the weight's address.  It holds a reference, so
 * that the address is not another tensor's meanwhile.  A cast that was not
 * recorded is of no use to a call that records, so the mode is part of what is
 * looked for; so is the weight's version. */

#include "autocast/autocast.h"

#include "base/memory.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

enum { FIRST = 32, MODE_NO_GRAD = 1, MODE_INFERENCE = 2 };

typedef struct kept {
    core_tensor *source; /* referenced; NULL: free */
    core_tensor *result; /* referenced */
    uint32_t version;
    uint8_t mode;
} kept;

typedef struct core__autocast_casts casts;
struct core__autocast_casts {
    size_t size; /* a power of two, never more than half full */
    size_t count;
    kept slots[];
};

static uint8_t mode_of(const core__thread *self)
{
    return (uint8_t)((self->no_grad ? MODE_NO_GRAD : 0) |
                     (self->inference ? MODE_INFERENCE : 0));
}

/* The slot that has it, or the free one where it would be. */
static kept *find(casts *casts, const core_tensor *source, core_dtype dtype,
                  uint8_t mode)
{
    size_t at = (uintptr_t)source / 64 * 0x9e3779b1u & (casts->size - 1);

    while (casts->slots[at].source &&
           !(casts->slots[at].source == source &&
             casts->slots[at].result->dtype == dtype &&
             casts->slots[at].mode == mode))
        at = (at + 1) & (casts->size - 1);
    return &casts->slots[at];
}

static casts *grown(casts *old)
{
    size_t size = old ? old->size * 2 : FIRST;
    casts *grown = core__alloc_zero(sizeof *grown + size * sizeof(kept));

    if (!grown)
        return NULL;
    grown->size = size;
    for (size_t i = 0; old && i < old->size; i++) {
        kept *slot = &old->slots[i];

        if (!slot->source)
            continue;
        *find(grown, slot->source, (core_dtype)slot->result->dtype,
              slot->mode) = *slot;
        grown->count++;
    }
    core__free(old);
    return grown;
}

/* Where there is no memory it is not kept, and that is all. */
static void keep(core__thread *self, core_tensor *source, core_tensor *result)
{
    casts *casts = self->autocast_casts;
    uint8_t mode = mode_of(self);
    kept *slot;

    if (!casts || 2 * casts->count >= casts->size) {
        casts = grown(casts);
        if (!casts)
            return;
        self->autocast_casts = casts;
    }
    slot = find(casts, source, (core_dtype)result->dtype, mode);
    if (slot->source) {
        core__tensor_release(slot->result);
    } else {
        core__tensor_retain(source);
        slot->source = source;
        casts->count++;
    }
    core__tensor_retain(result);
    slot->result = result;
    slot->version = core__tensor_version(source);
    slot->mode = mode;
}

static bool to_be_kept(const core__thread *self, const core_tensor *source)
{
    return self->autocast_cached && core__tensor_requires_grad(source) &&
           !source->base && core_tensor_is_leaf(source);
}

core_status core__autocast_cast(core__thread *self, core_tensor *source,
                                core_dtype dtype, core_tensor **out_tensor)
{
    bool keeps = to_be_kept(self, source);

    *out_tensor = NULL;
    if (keeps && self->autocast_casts) {
        kept *slot = find(self->autocast_casts, source, dtype, mode_of(self));

        if (slot->source && slot->version == core__tensor_version(source)) {
            core__tensor_retain(slot->result);
            *out_tensor = slot->result;
            return CORE_OK;
        }
    }
    CORE_TRY(core_to(source, dtype, NULL, false, false, -1, out_tensor));
    if (keeps)
        keep(self, source, *out_tensor);
    return CORE_OK;
}

void core__autocast_forget(core__thread *self)
{
    casts *casts = self->autocast_casts;

    self->autocast_casts = NULL;
    for (size_t i = 0; casts && i < casts->size; i++) {
        if (!casts->slots[i].source)
            continue;
        core__tensor_release(casts->slots[i].source);
        core__tensor_release(casts->slots[i].result);
    }
    core__free(casts);
}
