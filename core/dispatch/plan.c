/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Plans by structure: kernel, device, dtypes, sizes, strides, and the
 * arguments that are neither tensors nor numbers of type Scalar or float
 * (those, such as a learning rate, change from step to step and are passed at
 * launch).
 *
 * The structure is written as a sequence of 64-bit words; equal sequences
 * share a plan.  All plans are in one table, limited by LIBCORE_PLAN_CACHE;
 * the least recently used is dropped first. */

#include "dispatch/plan.h"

#include "base/fork.h"
#include "base/memory.h"
#include "base/settings.h"
#include "capture/capture.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/schema.h"
#include "dispatch/inference.h"

#include <libcore/dispatch.h>

#include <string.h>

enum { BUCKETS = 1024, RANDOM_WORDS = 3, INLINE_WORDS = 160 };

struct core__plan {
    core__plan *next_in_bucket;
    core__plan *newer; /* by use */
    core__plan *older;
    const core_kernel *kernel;
    const core_device *device;
    void (*destroy)(void *plan);
    void *handle;
    uint32_t users;
    bool dropped; /* removed from the table; destroyed by the last user */
    uint64_t hash;
    size_t count;
    uint64_t words[];
};

typedef struct structure {
    uint64_t few[INLINE_WORDS];
    uint64_t *words;
    size_t count;
    size_t capacity;
    bool failed;
} structure;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core__plan *buckets[BUCKETS];
static core__plan *newest;
static core__plan *oldest;
static core_plan_counts counts;

void core__plans_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

/* ----------------------------------------------------------- structure -- */

static void add_word(structure *s, uint64_t word)
{
    if (s->count == s->capacity) {
        bool owned = s->words != s->few;
        uint64_t *more = core__realloc(owned ? s->words : NULL,
                                       2 * s->capacity * sizeof *more);

        s->failed |= !more;
        if (!more)
            return;
        if (!owned)
            memcpy(more, s->few, sizeof s->few);
        s->words = more;
        s->capacity *= 2;
    }
    s->words[s->count++] = word;
}

static void add_bytes(structure *s, const void *data, size_t size)
{
    const char *at = data;

    add_word(s, size);
    while (size) {
        uint64_t word = 0;
        size_t part = size < sizeof word ? size : sizeof word;

        memcpy(&word, at, part);
        add_word(s, word);
        at += part;
        size -= part;
    }
}

static void add_view(structure *s, const core_view *view)
{
    if (!view) {
        add_word(s, UINT64_MAX);
        return;
    }
    add_word(s, (uint64_t)view->dtype << 32 | view->ndim);
    for (uint32_t i = 0; i < view->ndim; i++) {
        add_word(s, (uint64_t)view->sizes[i]);
        add_word(s, (uint64_t)view->strides[i]);
    }
}

static void add_value(structure *s, const core_value *value, bool number)
{
    add_word(s, (uint64_t)value->tag << 32 | value->count);
    switch (value->tag) {
    case CORE_VALUE_VIEW:
        add_view(s, value->u.view);
        break;
    case CORE_VALUE_VIEW_LIST:
        for (uint32_t i = 0; i < value->count; i++)
            add_view(s, value->u.views[i]);
        break;
    case CORE_VALUE_STRING:
    case CORE_VALUE_BOOL_LIST:
        add_bytes(s, value->u.pointer, value->count);
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        add_bytes(s, value->u.pointer, value->count * sizeof(int64_t));
        break;
    case CORE_VALUE_FLOAT:
    case CORE_VALUE_NONE:
    case CORE_VALUE_TENSOR: /* of a loop: its operands determine it */
    case CORE_VALUE_TENSOR_LIST:
    case CORE_VALUE_GENERATOR:
        break;
    default:
        if (!number)
            add_word(s, (uint64_t)value->u.i);
    }
}

static void add_loop(structure *s, const core_loop *loop)
{
    add_word(s, (uint64_t)loop->flags << 32 | loop->reduced);
    add_word(s, (uint64_t)loop->ndim << 32 | loop->noperands);
    add_bytes(s, loop->sizes, loop->ndim * sizeof *loop->sizes);
    for (uint32_t i = 0; i < loop->noperands; i++) {
        const core_operand *operand = &loop->operands[i];

        add_word(s, (uint64_t)operand->dtype << 32 | operand->flags);
        if (!(operand->flags & CORE_OPERAND_IMMEDIATE))
            add_bytes(s, operand->strides,
                      loop->ndim * sizeof *operand->strides);
    }
}

static core_status describe(structure *s, const core__kernel_call *run,
                            const core_value *args, uint32_t nargs,
                            const core_value *results, uint32_t nresults)
{
    const core__schema *schema;

    s->words = s->few;
    s->count = 0;
    s->capacity = INLINE_WORDS;
    s->failed = false;
    CORE_TRY(core__schema_of(run->op, &schema));
    if (run->op->flags & CORE__OP_RANDOM)
        nargs -= RANDOM_WORDS;
    add_word(s, (uintptr_t)run->call.kernel_op);
    if (run->call.loop)
        add_loop(s, run->call.loop);
    for (uint32_t i = 0; i < nargs; i++)
        add_value(s, &args[i],
                  i < schema->narguments && schema->arguments[i].scalar);
    for (uint32_t i = 0; i < nresults; i++)
        add_value(s, &results[i], false);
    return s->failed ? core__error_memory(s->capacity * 16) : CORE_OK;
}

static void structure_free(structure *s)
{
    if (s->words != s->few)
        core__free(s->words);
}

static uint64_t hash_of(const structure *s, const core_kernel *kernel,
                        const core_device *device)
{
    uint64_t hash = (uintptr_t)kernel ^ (uintptr_t)device << 1;

    for (size_t i = 0; i < s->count; i++) {
        hash = (hash ^ s->words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* --------------------------------------------------------------- table -- */

static void unlink_use(core__plan *plan)
{
    *(plan->newer ? &plan->newer->older : &newest) = plan->older;
    *(plan->older ? &plan->older->newer : &oldest) = plan->newer;
}

static void link_newest(core__plan *plan)
{
    plan->newer = NULL;
    plan->older = newest;
    *(newest ? &newest->newer : &oldest) = plan;
    newest = plan;
}

static core__plan *look_up(const structure *s, const core_kernel *kernel,
                           const core_device *device, uint64_t hash)
{
    core__plan *plan = buckets[hash % BUCKETS];

    while (plan &&
           !(plan->hash == hash && plan->kernel == kernel &&
             plan->device == device && plan->count == s->count &&
             memcmp(plan->words, s->words, s->count * sizeof *s->words) == 0))
        plan = plan->next_in_bucket;
    if (plan) {
        plan->users++;
        unlink_use(plan);
        link_newest(plan);
    }
    return plan;
}

/* Removes the plan from the table; true if it must be destroyed now. */
static bool remove_plan(core__plan *plan)
{
    core__plan **at = &buckets[plan->hash % BUCKETS];

    while (*at != plan)
        at = &(*at)->next_in_bucket;
    *at = plan->next_in_bucket;
    unlink_use(plan);
    plan->dropped = true;
    counts.cached--;
    return plan->users == 0;
}

static void destroy(core__plan *plan)
{
    if (plan->destroy)
        plan->destroy(plan->handle);
    core__free(plan);
}

static void insert(core__plan *plan)
{
    core__plan *evicted = NULL;
    int64_t limit;

    /* An invalid value has been reported; the default remains. */
    (void)core__setting_integer(CORE__SETTING_PLAN_CACHE, &limit);
    pthread_mutex_lock(&lock);
    plan->next_in_bucket = buckets[plan->hash % BUCKETS];
    buckets[plan->hash % BUCKETS] = plan;
    link_newest(plan);
    counts.prepared++;
    counts.cached++;
    if (counts.cached > (uint64_t)limit) {
        evicted = oldest;
        counts.evicted++;
        if (!remove_plan(evicted))
            evicted = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (evicted)
        destroy(evicted);
}

static core_status make(core__kernel_call *run, const core_kernel *kernel,
                        const structure *s, uint64_t hash,
                        const core_value *args, uint32_t nargs,
                        const core_value *results, uint32_t nresults,
                        core__plan **out_plan)
{
    size_t size = s->count * sizeof *s->words;
    core__plan *plan;
    core_status status;

    *out_plan = NULL;
    if (run->call.flags & CORE_CALL_CAPTURING) {
        core__capture_invalidate(core__stream_current(run->device),
                                 "a plan that was not prepared");
        return core__op_error(
            CORE_ERROR_UNSUPPORTED, run->op,
            "\"%s\" has no plan for the structure of this call, and a capture "
            "cannot prepare one; run the calls once before they are captured",
            run->device->name);
    }
    plan = core__alloc_zero(sizeof *plan + size);
    if (!plan)
        return core__error_memory(sizeof *plan + size);
    status = kernel->prepare(&run->call, args, nargs, results, nresults,
                             &plan->handle);
    if (status != CORE_OK) {
        core__free(plan);
        return status;
    }
    plan->kernel = kernel;
    plan->device = run->device;
    plan->destroy = kernel->plan_destroy;
    plan->users = 1;
    plan->hash = hash;
    plan->count = s->count;
    memcpy(plan->words, s->words, size);
    insert(plan);
    *out_plan = plan;
    return CORE_OK;
}

core_status core__plan_find(core__kernel_call *run, const core_kernel *kernel,
                            const core_value *args, uint32_t nargs,
                            const core_value *results, uint32_t nresults,
                            core__plan **out_plan)
{
    core_status status;
    structure s;
    uint64_t hash;

    *out_plan = NULL;
    status = describe(&s, run, args, nargs, results, nresults);
    if (status != CORE_OK)
        goto done;
    hash = hash_of(&s, kernel, run->device);
    pthread_mutex_lock(&lock);
    *out_plan = look_up(&s, kernel, run->device, hash);
    counts.hits += *out_plan != NULL;
    pthread_mutex_unlock(&lock);
    /* Two threads may prepare the same plan: both are valid, and the older one
     * is dropped eventually. */
    if (!*out_plan)
        status = make(run, kernel, &s, hash, args, nargs, results, nresults,
                      out_plan);
done:
    structure_free(&s);
    return status;
}

void *core__plan_handle(const core__plan *plan)
{
    return plan->handle;
}

void core__plan_release(core__plan *plan)
{
    bool last;

    pthread_mutex_lock(&lock);
    last = --plan->users == 0 && plan->dropped;
    pthread_mutex_unlock(&lock);
    if (last)
        destroy(plan);
}

void core__plans_drop(const core_kernel *kernel, const core_device *device)
{
    core__plan *removed = NULL;

    pthread_mutex_lock(&lock);
    for (core__plan *plan = newest; plan;) {
        core__plan *next = plan->older;

        if ((!kernel || plan->kernel == kernel) &&
            (!device || plan->device == device) && remove_plan(plan)) {
            plan->next_in_bucket = removed;
            removed = plan;
        }
        plan = next;
    }
    pthread_mutex_unlock(&lock);
    while (removed) {
        core__plan *next = removed->next_in_bucket;

        destroy(removed);
        removed = next;
    }
}

void core_plan_get_counts(core_plan_counts *out_counts)
{
    if (!out_counts)
        return;
    pthread_mutex_lock(&lock);
    *out_counts = counts;
    pthread_mutex_unlock(&lock);
}
