/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Distinct elements, sorted or consecutive, and the most frequent one of each
 * line. */

#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* NaN comes last, and equals nothing. */
#define PAIRS(NAME, TYPE)                                            \
    typedef struct pair_##NAME {                                     \
        TYPE key;                                                    \
        int64_t index;                                               \
    } pair_##NAME;                                                   \
    static int order_##NAME(const void *left, const void *right)     \
    {                                                                \
        const pair_##NAME *a = left, *b = right;                     \
        bool last_a = a->key != a->key, last_b = b->key != b->key;   \
        if (last_a != last_b)                                        \
            return last_a ? 1 : -1;                                  \
        if (!last_a && a->key != b->key)                             \
            return a->key < b->key ? -1 : 1;                         \
        return a->index < b->index ? -1 : 1;                         \
    }                                                                \
    static pair_##NAME *sorted_##NAME(const TYPE *x, int64_t stride, \
                                      int64_t n)                     \
    {                                                                \
        pair_##NAME *pairs = cpu_allocate(n, sizeof *pairs);         \
        for (int64_t i = 0; pairs && i < n; i++)                     \
            pairs[i] = (pair_##NAME){x[i * stride], i};              \
        if (pairs && n > 1)                                          \
            qsort(pairs, (size_t)n, sizeof *pairs, order_##NAME);    \
        return pairs;                                                \
    }
CPU_COMPUTE_TYPES(PAIRS)

/* --------------------------------------------------------------- unique -- */

/* Groups of equal elements: each element's group, and for each group one
 * representative element. */
typedef struct groups {
    int64_t n, count;
    int64_t *group; /* of each element */
    int64_t *first; /* of each group */
} groups;

#define GROUP(NAME, TYPE)                                                 \
    static core_status group_sorted_##NAME(groups *g, const TYPE *x)      \
    {                                                                     \
        pair_##NAME *pairs = sorted_##NAME(x, 1, g->n);                   \
        if (!pairs)                                                       \
            return CORE_ERROR_OUT_OF_MEMORY;                              \
        for (int64_t i = 0; i < g->n; i++) {                              \
            if (i == 0 || !(pairs[i].key == pairs[i - 1].key))            \
                g->first[g->count++] = pairs[i].index;                    \
            g->group[pairs[i].index] = g->count - 1;                      \
        }                                                                 \
        free(pairs);                                                      \
        return CORE_OK;                                                   \
    }                                                                     \
    /* Slices of outer times inner elements each. */                      \
    static bool same_##NAME(const TYPE *x, const cpu_split *s, int64_t a, \
                            int64_t b)                                    \
    {                                                                     \
        for (int64_t o = 0; o < s->outer; o++)                            \
            for (int64_t i = 0; i < s->inner; i++)                        \
                if (!(x[(o * s->size + a) * s->inner + i] ==              \
                      x[(o * s->size + b) * s->inner + i]))               \
                    return false;                                         \
        return true;                                                      \
    }                                                                     \
    static core_status group_runs_##NAME(groups *g, const TYPE *x,        \
                                         const cpu_split *split)          \
    {                                                                     \
        for (int64_t i = 0; i < g->n; i++) {                              \
            if (i == 0 || !same_##NAME(x, split, i - 1, i))               \
                g->first[g->count++] = i;                                 \
            g->group[i] = g->count - 1;                                   \
        }                                                                 \
        return CORE_OK;                                                   \
    }
CPU_COMPUTE_TYPES(GROUP)

/* Split NULL: equal elements anywhere; else consecutive slices. */
static core_status group(groups *g, const core_view *self, int64_t n,
                         const cpu_split *split)
{
    core_dtype dtype = cpu_compute_dtype(self->dtype);
    cpu_dense x = {0};
    core_status status = cpu_dense_read(self, dtype, &x);

    g->n = n;
    g->group = cpu_allocate(n, sizeof *g->group);
    g->first = cpu_allocate(n, sizeof *g->first);
    if (status == CORE_OK && (!g->group || !g->first))
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK && dtype == CORE_F32)
        status = split ? group_runs_f32(g, x.data, split)
                       : group_sorted_f32(g, x.data);
    else if (status == CORE_OK && dtype == CORE_F64)
        status = split ? group_runs_f64(g, x.data, split)
                       : group_sorted_f64(g, x.data);
    else if (status == CORE_OK)
        status = split ? group_runs_i64(g, x.data, split)
                       : group_sorted_i64(g, x.data);
    cpu_dense_close(&x);
    return status;
}

/* Result 0: the representative slice of each group. */
static core_status put_values(core_call *call, const groups *g,
                              const core_view *self, const cpu_split *split,
                              uint32_t ndim, const int64_t *sizes)
{
    int64_t item = cpu_item_size(self->dtype), row = split->inner * item;
    const core_view *result = NULL;
    cpu_dense from = {0}, to = {0};
    core_status status = cpu_dense_read(self, self->dtype, &from);

    if (status == CORE_OK)
        status = call->host->call_allocate_result(call, 0, self->dtype, ndim,
                                                  sizes, &result);
    if (status == CORE_OK)
        status = cpu_dense_open(result, self->dtype, &to);
    for (int64_t o = 0; status == CORE_OK && row > 0 && o < split->outer; o++)
        for (int64_t k = 0; k < g->count; k++)
            cpu_move((char *)to.data + (o * g->count + k) * row,
                     (const char *)from.data +
                         (o * split->size + g->first[k]) * row,
                     row);
    if (status == CORE_OK)
        cpu_dense_write(&to);
    cpu_dense_close(&from);
    cpu_dense_close(&to);
    return status;
}

/* Results 1 and 2: each element's group, each group's size; empty if not
 * requested. */
static core_status put_groups(core_call *call, const groups *g, bool inverse,
                              bool counts, uint32_t ndim, const int64_t *sizes)
{
    const int64_t none = 0;
    const core_view *result = NULL;
    cpu_dense to = {0};
    core_status status =
        call->host->call_allocate_result(call, 1, CORE_I64, inverse ? ndim : 1,
                                         inverse ? sizes : &none, &result);

    if (status == CORE_OK)
        status = cpu_dense_open(result, CORE_I64, &to);
    if (status == CORE_OK && inverse && g->n > 0)
        memcpy(to.data, g->group, (size_t)g->n * sizeof *g->group);
    if (status == CORE_OK)
        cpu_dense_write(&to);
    cpu_dense_close(&to);
    if (status == CORE_OK)
        status = call->host->call_allocate_result(
            call, 2, CORE_I64, 1, counts ? &g->count : &none, &result);
    if (status == CORE_OK)
        status = cpu_dense_open(result, CORE_I64, &to);
    if (status == CORE_OK && counts) {
        int64_t *count = to.data;

        for (int64_t k = 0; k < g->count; k++)
            count[k] = 0;
        for (int64_t i = 0; i < g->n; i++)
            count[g->group[i]]++;
        cpu_dense_write(&to);
    }
    cpu_dense_close(&to);
    return status;
}

/* _unique2(self, sorted, return_inverse, return_counts) */
static core_status launch_unique(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    bool counts = cpu_int(&args[3]) != 0;
    cpu_split flat = {1, self->numel, 1};
    groups g = {0};
    core_status status = group(&g, self, self->numel, NULL);

    (void)nargs;
    (void)results;
    (void)nresults;
    if (status == CORE_OK)
        status = put_values(call, &g, self, &flat, 1, &g.count);
    if (status == CORE_OK)
        status = put_groups(call, &g, cpu_int(&args[2]) != 0, counts,
                            self->ndim, self->sizes);
    free(g.group);
    free(g.first);
    return status;
}

/* unique_consecutive(self, return_inverse, return_counts, dim): of slices, not
 * of elements, there is always everything; dimension 0 of one dimension is
 * that of its elements */
static core_status launch_runs(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    bool flattened = args[3].tag == CORE_VALUE_NONE || self->ndim == 0 ||
                     (self->ndim == 1 && cpu_int(&args[3]) == 0);
    cpu_split split = {1, self->numel, 1};
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t dim = 0;
    groups g = {0};
    core_status status;

    (void)nargs;
    (void)results;
    (void)nresults;
    if (!flattened) {
        dim = cpu_dim(cpu_int(&args[3]), self->ndim);
        split = cpu_split_at(self, dim);
        memcpy(sizes, self->sizes, self->ndim * sizeof *sizes);
    }
    status = group(&g, self, split.size, &split);
    sizes[dim] = g.count;
    if (status == CORE_OK)
        status = put_values(call, &g, self, &split, flattened ? 1 : self->ndim,
                            sizes);
    if (status == CORE_OK)
        status = put_groups(call, &g, cpu_int(&args[1]) != 0 || !flattened,
                            cpu_int(&args[2]) != 0 || !flattened,
                            flattened ? self->ndim : 1,
                            flattened ? self->sizes : &split.size);
    free(g.group);
    free(g.first);
    return status;
}

/* ----------------------------------------------------------------- mode -- */

typedef struct mode_job {
    cpu_dense self, values, indices;
    cpu_split split;
    core_status status;
} mode_job;

/* The least of the most frequent elements of each line; its last place. */
#define MODE(NAME, TYPE)                                                    \
    static void mode_task_##NAME(void *context, int64_t begin, int64_t end) \
    {                                                                       \
        mode_job *job = context;                                            \
        int64_t n = job->split.size, inner = job->split.inner;              \
        for (int64_t line = begin; line < end; line++) {                    \
            const TYPE *x = (const TYPE *)job->self.data +                  \
                            line / inner * n * inner + line % inner;        \
            pair_##NAME *pairs = sorted_##NAME(x, inner, n);                \
            int64_t most = 0, run = 0;                                      \
            if (!pairs) {                                                   \
                __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,    \
                                 __ATOMIC_RELAXED);                         \
                return;                                                     \
            }                                                               \
            for (int64_t i = 0; i < n; i++) {                               \
                run++;                                                      \
                if (i + 1 < n && pairs[i].key == pairs[i + 1].key)          \
                    continue;                                               \
                if (run > most) {                                           \
                    most = run;                                             \
                    ((TYPE *)job->values.data)[line] = pairs[i].key;        \
                    ((int64_t *)job->indices.data)[line] = pairs[i].index;  \
                }                                                           \
                run = 0;                                                    \
            }                                                               \
            free(pairs);                                                    \
        }                                                                   \
    }
CPU_COMPUTE_TYPES(MODE)

/* mode(self, dim, keepdim) -> (values, indices) */
static core_status launch_mode(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    core_dtype dtype = cpu_compute_dtype(self->dtype);
    mode_job job = {.status = CORE_OK};
    int64_t lines;
    core_status status = cpu_dense_read(self, dtype, &job.self);

    (void)call;
    (void)nargs;
    (void)nresults;
    job.split = cpu_split_at(self, cpu_dim(cpu_int(&args[1]), self->ndim));
    lines = job.split.outer * job.split.inner;
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), dtype, &job.values);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I64, &job.indices);
    if (status == CORE_OK && lines > 0) {
        cpu_parallel_for(lines, cpu_grain(lines, 32 * job.split.size),
                         dtype == CORE_F32   ? mode_task_f32
                         : dtype == CORE_F64 ? mode_task_f64
                                             : mode_task_i64,
                         &job);
        status = job.status;
    }
    if (status == CORE_OK) {
        cpu_dense_write(&job.values);
        cpu_dense_write(&job.indices);
    }
    cpu_dense_close(&job.self);
    cpu_dense_close(&job.values);
    cpu_dense_close(&job.indices);
    return status;
}

static const cpu_kernel kernels[] = {
    {"_unique2", launch_unique, NULL, {CPU_ALL}, 0},
    {"unique_consecutive", launch_runs, NULL, {CPU_ALL}, 0},
    {"mode", launch_mode, NULL, {CPU_ALL, CPU_ALL, CPU_INDICES}, 0},
};

const cpu_kernel_table cpu_unique_kernels = {kernels, sizeof kernels /
                                                          sizeof kernels[0]};
