/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The mode that counts calls, operations and bytes by operator. */

#include "modes/counting.h"

#include "base/growing_text.h"
#include "base/json.h"
#include "base/memory.h"
#include "dispatch/mode_stack.h"
#include "dispatch/operator.h"
#include "dispatch/schema.h"
#include "ops_ids.h"
#include "profiler/profile.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct counted {
    const core_operator *op;
    core_op_counts counts;
} counted;

/* One for all counters, so that none is held in the child of a fork. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void core__op_counters_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

struct core_op_counter {
    _Atomic uint32_t references;
    counted *rows; /* from here under the lock */
    size_t nrows, capacity;
    uint32_t builtin[CORE_OP_COUNT]; /* 1 + the row of an operator; 0: none */
};

core_status core_op_counter_create(core_op_counter **out_counter)
{
    core_op_counter *counter;

    CORE__NOT_NULL(out_counter);
    *out_counter = counter = core__alloc_zero(sizeof *counter);
    if (!counter)
        return core__error_memory(sizeof *counter);
    atomic_init(&counter->references, 1);
    core__profile_flop_prepare();
    return CORE_OK;
}

void core_op_counter_release(core_op_counter *counter)
{
    if (!counter || atomic_fetch_sub(&counter->references, 1) != 1)
        return;
    core__free(counter->rows);
    core__free(counter);
}

/* ---------------------------------------------------------------- rows -- */

/* NULL: there is none. */
static counted *row_of(const core_op_counter *counter, const core_operator *op)
{
    uint32_t place;

    if (!(op->flags & CORE__OP_CUSTOM)) {
        place = counter->builtin[op->id];
        return place ? &counter->rows[place - 1] : NULL;
    }
    for (size_t i = 0; i < counter->nrows; i++)
        if (counter->rows[i].op == op)
            return &counter->rows[i];
    return NULL;
}

static counted *row_add(core_op_counter *counter, const core_operator *op)
{
    if (counter->nrows == counter->capacity) {
        size_t capacity = counter->capacity ? 2 * counter->capacity : 32;
        counted *rows =
            core__realloc(counter->rows, capacity * sizeof *counter->rows);

        if (!rows)
            return NULL;
        counter->rows = rows;
        counter->capacity = capacity;
    }
    counter->rows[counter->nrows] = (counted){.op = op};
    if (!(op->flags & CORE__OP_CUSTOM))
        counter->builtin[op->id] = (uint32_t)counter->nrows + 1;
    return &counter->rows[counter->nrows++];
}

static void add(core_op_counts *to, const core_op_counts *counts)
{
    to->calls += counts->calls;
    to->flop += counts->flop;
    to->bytes += counts->bytes;
}

static core_status add_to_row(core_op_counter *counter, const core_operator *op,
                              const core_op_counts *counts)
{
    counted *row;
    size_t rows;

    pthread_mutex_lock(&lock);
    row = row_of(counter, op);
    if (!row)
        row = row_add(counter, op);
    if (row)
        add(&row->counts, counts);
    rows = counter->nrows;
    pthread_mutex_unlock(&lock);
    return row ? CORE_OK : core__error_memory(2 * rows * sizeof *row);
}

/* ------------------------------------------------------------ one call -- */

static uint64_t largest(const core_value *values, uint32_t count)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < count; i++) {
        bool list = values[i].tag == CORE_VALUE_TENSOR_LIST;
        core_tensor *const *tensors =
            list ? values[i].u.tensors : &values[i].u.tensor;
        uint32_t n =
            list ? values[i].count : values[i].tag == CORE_VALUE_TENSOR;

        for (uint32_t k = 0; k < n; k++)
            if (tensors[k] && (uint64_t)tensors[k]->numel > most)
                most = (uint64_t)tensors[k]->numel;
    }
    return most;
}

/* Operators that move data, or make it, without computing. */
static bool computes(const core_operator *op)
{
    uint32_t base = op->flags & CORE__OP_CUSTOM ? UINT32_MAX : op->data->base;

    return op->family != CORE__FAMILY_VIEW &&
           !(op->flags & (CORE__OP_PRIMITIVE | CORE__OP_FACTORY)) &&
           base != CORE_OP_COPY_;
}

static core_op_counts counts_of(const core_operator *op, const core_value *args,
                                uint32_t nargs, const core_value *results,
                                uint32_t nresults)
{
    core_op_counts counts = {.calls = 1};
    uint64_t most;

    if (op->family == CORE__FAMILY_VIEW)
        return counts;
    counts.bytes = core__profile_bytes(args, nargs);
    if (op->variant == CORE__VARIANT_FUNCTIONAL)
        counts.bytes += core__profile_bytes(results, nresults);
    else if (nresults == 0) { /* they are among the arguments */
        results =
            op->variant == CORE__VARIANT_INPLACE ? args : &args[nargs - 1];
        nresults = 1;
    }
    if (!computes(op))
        return counts;
    counts.flop = core__profile_flop(op, args, nargs, results, nresults);
    if (counts.flop == 0) {
        counts.flop = largest(args, nargs);
        most = largest(results, nresults);
        if (most > counts.flop)
            counts.flop = most;
    }
    return counts;
}

static core_status count_call(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    core_op_counts counts;

    CORE_TRY(core_redispatch_below(call, args, nargs, results, nresults));
    counts = counts_of(call->op, args, nargs, results, nresults);
    return add_to_row(call->user, call->op, &counts);
}

static void release(void *counter)
{
    core_op_counter_release(counter);
}

core_status core_mode_push_counting(core_op_counter *counter,
                                    core_mode **out_mode)
{
    CORE__NOT_NULL(out_mode);
    *out_mode = NULL;
    CORE__NOT_NULL(counter);
    atomic_fetch_add(&counter->references, 1);
    return core__mode_push(__func__, CORE_MODE_BELOW_AUTOGRAD, count_call,
                           counter, release, out_mode);
}

/* ------------------------------------------------------------- reading -- */

static core_op_counts total_of(const counted *rows, size_t nrows)
{
    core_op_counts total = {0};

    for (size_t i = 0; i < nrows; i++)
        add(&total, &rows[i].counts);
    return total;
}

core_status core_op_counter_get(core_op_counter *counter,
                                const core_operator *op,
                                core_op_counts *out_counts)
{
    const counted *row;

    CORE__NOT_NULL(out_counts);
    *out_counts = (core_op_counts){0};
    CORE__NOT_NULL(counter);
    pthread_mutex_lock(&lock);
    row = op ? row_of(counter, op) : NULL;
    if (row)
        *out_counts = row->counts;
    else if (!op)
        *out_counts = total_of(counter->rows, counter->nrows);
    pthread_mutex_unlock(&lock);
    return CORE_OK;
}

void core_op_counter_reset(core_op_counter *counter)
{
    if (!counter)
        return;
    pthread_mutex_lock(&lock);
    counter->nrows = 0;
    memset(counter->builtin, 0, sizeof counter->builtin);
    pthread_mutex_unlock(&lock);
}

static int by_work(const void *a, const void *b)
{
    const core_op_counts *x = &((const counted *)a)->counts;
    const core_op_counts *y = &((const counted *)b)->counts;

    if (x->flop != y->flop)
        return x->flop < y->flop ? 1 : -1;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void write_counts(core__json *json, const core_op_counts *counts)
{
    core__json_unsigned(json, "calls", counts->calls);
    core__json_unsigned(json, "flop", counts->flop);
    core__json_unsigned(json, "bytes", counts->bytes);
}

static bool write_rows(core__growing_text *to, const counted *rows,
                       size_t nrows)
{
    core_op_counts total = total_of(rows, nrows);
    core__json json;

    core__json_begin(&json, core__growing_text_append, to);
    core__json_object(&json, NULL);
    json.flat = true;
    core__json_object(&json, "total");
    write_counts(&json, &total);
    core__json_end(&json);
    core__json_array(&json, "operators");
    for (size_t i = 0; i < nrows; i++) {
        json.flat = true;
        core__json_object(&json, NULL);
        core__json_text(&json, "name", core__operator_name(rows[i].op));
        write_counts(&json, &rows[i].counts);
        core__json_end(&json);
    }
    core__json_end(&json);
    core__json_end(&json);
    return core__json_finish(&json);
}

core_status core_op_counter_json(core_op_counter *counter, char **out_json)
{
    counted *rows;
    core__growing_text to = {0};
    size_t nrows, size;
    bool written;

    CORE__NOT_NULL(out_json);
    *out_json = NULL;
    CORE__NOT_NULL(counter);
    pthread_mutex_lock(&lock);
    nrows = counter->nrows;
    size = (nrows + 1) * sizeof *rows;
    rows = core__alloc(size);
    if (rows && nrows)
        memcpy(rows, counter->rows, nrows * sizeof *rows);
    pthread_mutex_unlock(&lock);
    if (!rows)
        return core__error_memory(size);
    qsort(rows, nrows, sizeof *rows, by_work);
    written = write_rows(&to, rows, nrows);
    core__free(rows);
    if (!written) {
        core__free(to.data);
        return core__error_memory(to.capacity);
    }
    *out_json = to.data;
    return CORE_OK;
}
