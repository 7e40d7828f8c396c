/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compiled.h: compiled functions (libcore/compiled.h).
 *
 * A compiled function has entries.  An entry has the guard record of the call
 * that led to it, and a program, or the reason why there is none (a graph
 * break).  A guard record is a flat sequence of bytes: what is known before the
 * call about its thread, inputs and key.  An entry serves a call with an equal
 * record, if besides its hidden inputs are what they were.
 *
 * Calls find entries without a lock, in a slot each; an entry is freed when no
 * call can still be looking at it (dispatch/epoch_reclaim.c).  Entries are
 * added and removed under one lock of the process.  No lock is held while a
 * function is recorded: two threads may record the same facts at once, and the
 * second result is dropped. */

#ifndef CORE_COMPILE_COMPILED_H
#define CORE_COMPILE_COMPILED_H

#include "autograd/graph/autograd_meta.h"
#include "autograd/graph/hooks.h"
#include "autograd/graph/node.h"
#include "base/json.h"
#include "base/thread.h"
#include "compile/prepare/replay.h"
#include "compile/program/lock.h"
#include "compile/program/program.h"
#include "dispatch/registry.h"

#include <libcore/compiled.h>

/* -------------------------------------------------------------- guards -- */

enum { CORE__GUARD_LOCAL = 2048 };

/* True if a gradient of the tensor is passed to hooks: its own, if it is a
 * leaf, or those of the node that made it. */
static inline bool core__has_hooks(const core_tensor *tensor)
{
    core__autograd_meta *autograd = tensor->autograd;

    return autograd && ((autograd->hooks &&
                         core__hooks_active(core__hooks_of_leaf(autograd))) ||
                        (autograd->grad_fn && autograd->grad_fn->hooks));
}

/* The guard record of a call. */
typedef struct core__guard {
    unsigned char *bytes; /* `local`, or allocated */
    size_t size;
    _Alignas(8) unsigned char local[CORE__GUARD_LOCAL];
} core__guard;

/* Why a call cannot be served by a program, whatever its function does; NULL:
 * it can.  *out_input: the input that the reason is about, or UINT32_MAX. */
const char *core__guard_refuses_thread(const core__thread *self);
const char *core__guard_refuses_inputs(core_tensor *const *inputs,
                                       size_t ninputs, uint32_t *out_input);
core_status core__guard_make(core__guard *guard, core_tensor *const *inputs,
                             size_t ninputs, size_t noutputs, const void *key,
                             size_t key_size);
/* True if the record of a call is equal to this one, and its inputs are not
 * refused.  False for many inputs, whose records must be made and compared. */
bool core__guard_holds(const unsigned char *bytes, size_t size,
                       core_tensor *const *inputs, size_t ninputs,
                       size_t noutputs, const void *key, size_t key_size);
void core__guard_free(core__guard *guard);
/* Writes the inputs and the facts of the thread as members of an object. */
void core__guard_write(const unsigned char *bytes, core__json *json);
/* The first fact in which a record differs from an earlier one, as text. */
void core__guard_difference(const unsigned char *before, size_t before_size,
                            const unsigned char *after, size_t after_size,
                            char *text, size_t size);

/* True for records that differ in sizes and strides of inputs alone, and not in
 * sizes of 0 or 1. */
bool core__guard_same_but_sizes(const unsigned char *a, size_t a_size,
                                const unsigned char *b, size_t b_size);

/* ------------------------------------------------------------- holders -- */

/* How many references programs of compiled functions have to a tensor.  If
 * there are no others, the function cannot have it any more. */
typedef struct core__holder {
    core_tensor *tensor;
    _Atomic uint32_t held;
    uint32_t users;
    struct core__holder *next;
} core__holder;

core_status core__holder_add(core_tensor *tensor, uint32_t held,
                             core__holder **out_holder);
void core__holder_drop(core__holder *holder, uint32_t held);

/* ------------------------------------------------------------- entries -- */

/* Of a graph break (graph_break.h); "": not known. */
typedef struct core__break_place {
    char text[256];
} core__break_place;

/* What is known of a tensor that a program keeps. */
typedef struct core__kept_tensor {
    core_tensor *tensor;
    core__holder *holder;
    uint32_t held; /* references that the program has */
    core_storage *storage;
    uint64_t keys;
    int64_t offset;
    uint16_t kind;
    bool checks_grad; /* the program uses its gradient: */
    core_tensor *grad;
    int64_t *dims;                /* sizes and strides */
    bool checks_hooks, has_hooks; /* a backward in the function calls them */
    bool constant; /* of the program; a reset of its device voids it */
    bool frozen;   /* its content must not change: */
    uint32_t version;
} core__kept_tensor;

typedef struct core__training core__training; /* compiled_node.h */

typedef struct core__compiled_entry {
    core__retired link; /* first: core__reclaim frees the entry */
    _Atomic uint32_t references;
    core_program *program;    /* NULL: a graph break */
    core__training *training; /* NULL: no result requires grad */
    core__kept_tensor *kept;
    uint32_t nkept;
    uint32_t *gradients; /* pairs: of this input, kept tensor of this index is
                          * the gradient */
    uint32_t ngradients;
    /* Of the graph break; operator or place NULL: not known. */
    char *operator_name, *reason, *place;
    bool hooked;            /* which is that of hooks of a tensor */
    uint32_t hooks_removed; /* core__hooks_removed before it was recorded */
    bool created;           /* or that of new layers, which is forgotten */
    char *why;              /* why it was recorded */
    uint64_t recording;     /* its number */
    /* It can be made again from programs of other sizes (dynamic_shapes.h), so
     * it makes room for others. */
    _Atomic bool replaceable;
    uint64_t trace_ns;
    _Atomic uint64_t calls;
    size_t guard_size;
    _Alignas(8) unsigned char guard[];
} core__compiled_entry;

/* Takes over the program, and training, which may be NULL. */
core_status core__entry_new(const core__guard *guard, core_program *program,
                            core__training *training,
                            core_tensor *const *inputs, size_t ninputs,
                            core__compiled_entry **out_entry);
/* False if it is being freed. */
bool core__entry_retain(core__compiled_entry *entry);
void core__entry_release(core__compiled_entry *entry);

typedef enum core__entry_match {
    CORE__ENTRY_HOLDS,
    CORE__ENTRY_DIFFERS, /* it may hold at another call */
    CORE__ENTRY_GONE     /* it will not: a tensor was released or changed */
} core__entry_match;

/* For a call whose guard record is the entry's. */
core__entry_match core__entry_check(const core__compiled_entry *entry,
                                    core_tensor *const *inputs);
/* True if it cannot hold for any inputs. */
bool core__entry_is_gone(const core__compiled_entry *entry);

/* ------------------------------------------------------------ functions -- */

/* Calls that the guards refuse, by reason. */
typedef struct core__refused_calls {
    const char *reason; /* static */
    uint64_t count;
} core__refused_calls;

enum { CORE__REFUSED_KINDS = 16 };

struct core_compiled {
    _Atomic uint32_t
        references;         /* of the program: the function may be called */
    _Atomic uint32_t holds; /* one for all of those, and of nodes of graphs */
    core_tensor_function function;
    void *context;
    core_compile_options options;
    uint32_t limit;
    bool limit_warned; /* under the lock, as refused */
    _Atomic uint32_t nentries;
    /* Calls are counted by their entry; these are those of entries that were
     * removed or not added, those of no entry, and what happens rarely. */
    _Atomic uint64_t past_programs, past_breaks, limit_calls, inlined_calls,
        failed_calls, traces, trace_ns, invalidated, checks, resized,
        expected_breaks;
    _Atomic uint32_t creations; /* calls that broke as they created layers */
    struct core__size_patterns *patterns; /* dynamic_shapes.h */
    core__replays *replays;               /* NULL: no program is captured */
    core_compiled *next, *previous;       /* list of all, under the lock */
    core__refused_calls refused[CORE__REFUSED_KINDS];
    core__compiled_entry *_Atomic entries[]; /* limit slots */
};

/* Keeps the struct, not the function. */
core_compiled *core__compiled_hold(core_compiled *compiled);
void core__compiled_drop(core_compiled *compiled);
/* core_compiled_retain, unless the program has released it: then false. */
bool core__compiled_retain_used(core_compiled *compiled);

/* Adds the counts of a function. */
void core__compiled_add_counts(const core_compiled *compiled,
                               core_compile_counts *counts);

/* Records a function for a call with noutputs outputs.  *out_training is NULL
 * if no result requires grad.  *out_place: of an error. */
core_status core__compiled_trace(const core_compiled *compiled,
                                 core_tensor *const *inputs, size_t ninputs,
                                 size_t noutputs, core_program **out_program,
                                 core__training **out_training,
                                 core__break_place *out_place);

#endif
