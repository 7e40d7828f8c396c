/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* keys.h: dispatch keys, a set of 64 bits (docs/architecture.md, Decisions 4).
 *
 *   bits  0–15  backends, by the slot taken when they load.  Slot 0 means "no
 *               backend": a call without a tensor and without a device.
 *   bits 16, 17 facts about the operands: one requires grad, one is a recorded
 *               view
 *   bits 20–…   functionalities, lowest to highest
 *
 * A call is served by the entry of its highest functionality and highest
 * backend. */

#ifndef CORE_BASE_KEYS_H
#define CORE_BASE_KEYS_H

#include <stdint.h>

enum {
    CORE__SLOTS = 16,
    CORE__SLOT_NONE = 0,
    CORE__SLOT_META = 1,
    CORE__SLOT_HOST = 2,  /* "cpu", whenever it loads: a 0-dim tensor on the
                           * host never decides where a call runs */
    CORE__SLOT_FIRST = 3, /* of the other backends */
    CORE__FUNCTIONALITY_SHIFT = 20
};

enum {
    CORE__FUNCTIONALITY_BACKEND,
    CORE__FUNCTIONALITY_RECORD,        /* in the set of a thread that records a
                                        * program, and of its tensors, as */
    CORE__FUNCTIONALITY_FUNCTIONALIZE, /* compile/record/trace.h */
    CORE__FUNCTIONALITY_MODE_BELOW_AUTOGRAD, /* in a thread's set while it has
                                              * such modes, as MODE_API
                                              * (dispatch/mode_stack.h) */
    CORE__FUNCTIONALITY_INPLACE_OR_VIEW,
    CORE__FUNCTIONALITY_BATCH_RULE, /* below autograd: of a call that the
                                     * batched layer lets autograd record */
    CORE__FUNCTIONALITY_AUTOGRAD,
    CORE__FUNCTIONALITY_BATCHED, /* of batched tensors, and in a thread's set
                                  * while core_vmap runs a function */
    CORE__FUNCTIONALITY_AUTOCAST,
    CORE__FUNCTIONALITY_PROFILER,
    CORE__FUNCTIONALITY_TRACE, /* in every thread's set while calls are
                                * logged */
    CORE__FUNCTIONALITY_MODE_API,
    CORE__FUNCTIONALITIES
};

#define CORE__KEY(functionality) \
    (UINT64_C(1) << (CORE__FUNCTIONALITY_SHIFT + (functionality)))
#define CORE__KEY_BACKEND CORE__KEY(CORE__FUNCTIONALITY_BACKEND)
#define CORE__KEY_RECORD CORE__KEY(CORE__FUNCTIONALITY_RECORD)
#define CORE__KEY_FUNCTIONALIZE CORE__KEY(CORE__FUNCTIONALITY_FUNCTIONALIZE)
#define CORE__KEYS_TRACED (CORE__KEY_RECORD | CORE__KEY_FUNCTIONALIZE)
#define CORE__KEY_INPLACE_OR_VIEW CORE__KEY(CORE__FUNCTIONALITY_INPLACE_OR_VIEW)
#define CORE__KEY_AUTOGRAD CORE__KEY(CORE__FUNCTIONALITY_AUTOGRAD)
#define CORE__KEY_BATCH_RULE CORE__KEY(CORE__FUNCTIONALITY_BATCH_RULE)
#define CORE__KEY_BATCHED CORE__KEY(CORE__FUNCTIONALITY_BATCHED)
#define CORE__KEY_AUTOCAST CORE__KEY(CORE__FUNCTIONALITY_AUTOCAST)
#define CORE__KEY_PROFILER CORE__KEY(CORE__FUNCTIONALITY_PROFILER)

#define CORE__KEY_TRACE CORE__KEY(CORE__FUNCTIONALITY_TRACE)
#define CORE__KEY_MODE_BELOW_AUTOGRAD \
    CORE__KEY(CORE__FUNCTIONALITY_MODE_BELOW_AUTOGRAD)
#define CORE__KEY_MODE_API CORE__KEY(CORE__FUNCTIONALITY_MODE_API)
#define CORE__KEYS_MODE (CORE__KEY_MODE_BELOW_AUTOGRAD | CORE__KEY_MODE_API)

#define CORE__KEYS_SLOTS UINT64_C(0xffff)
#define CORE__KEYS_REQUIRES_GRAD (UINT64_C(1) << 16)
/* A fact, not a key: some operand is a view.  Its base may join the graph
 * later, by an in-place change, and the view with it.  A view made with grad
 * mode off does not join, and cannot be changed in place from then on. */
#define CORE__KEYS_VIEW (UINT64_C(1) << 17)
#define CORE__KEYS_FUNCTIONALITY (~((UINT64_C(1) << 20) - 1))
/* The keys of an inference tensor, whose changes are counted too, and of an
 * ordinary tensor, besides their slot. */
#define CORE__KEYS_INFERENCE (CORE__KEY_BACKEND | CORE__KEY_INPLACE_OR_VIEW)
#define CORE__KEYS_TENSOR (CORE__KEYS_INFERENCE | CORE__KEY_AUTOGRAD)
#define CORE__KEY_SLOT(slot) (UINT64_C(1) << (slot))

/* A set of keys fits in 32 bits; the upper half of the same 64 bits has the
 * keys that a thread excludes. */
enum { CORE__STATE_EXCLUDED_SHIFT = 32 };
_Static_assert(CORE__FUNCTIONALITY_SHIFT + CORE__FUNCTIONALITIES <=
                   CORE__STATE_EXCLUDED_SHIFT,
               "base/thread.h stores a key set in 32 bits");

enum { CORE__TABLE_SIZE = CORE__FUNCTIONALITIES * CORE__SLOTS };

/* keys must contain a functionality. */
static inline uint32_t core__keys_functionality(uint64_t keys)
{
    return 63 - CORE__FUNCTIONALITY_SHIFT - (uint32_t)__builtin_clzll(keys);
}

static inline uint32_t core__keys_slot(uint64_t keys)
{
    /* |1: slot 0 if there is no backend */
    return 63 - (uint32_t)__builtin_clzll((keys & CORE__KEYS_SLOTS) | 1);
}

/* Position of the highest bit; value must not be 0.  On x86 the compiler would
 * widen the builtin's result with a second instruction, on the hot path. */
static inline uint64_t core__highest_bit(uint64_t value)
{
#if defined(__x86_64__)
    uint64_t position;

    __asm__("bsrq %1, %0" : "=r"(position) : "r"(value) : "cc");
    return position;
#else
    return 63 - (uint64_t)__builtin_clzll(value);
#endif
}

/* Index of the entry for these keys in an operator's table.  The keys must
 * contain a slot, as those of every tensor do. */
static inline uint64_t core__keys_index_of_set(uint64_t keys)
{
    return core__highest_bit(keys) * CORE__SLOTS +
           core__highest_bit(keys & CORE__KEYS_SLOTS) -
           CORE__FUNCTIONALITY_SHIFT * CORE__SLOTS;
}

static inline uint64_t core__keys_index(uint64_t keys)
{
    return core__keys_index_of_set(keys | CORE__KEY_SLOT(CORE__SLOT_NONE));
}

/* The set without `functionality` and everything above it. */
static inline uint64_t core__keys_below(uint64_t keys, uint32_t functionality)
{
    return keys & (CORE__KEY(functionality) - 1);
}

#endif
