/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Positions in sorted rows, and counts of values between edges. */

#include <float.h>
#include <math.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* --------------------------------------------------------------- search -- */

typedef struct search {
    cpu_dense rows, values, order, places;
    int64_t size;  /* of a row */
    int64_t count; /* of the values to find in each; all of them in the only
                    * row */
    bool right;
} search;

/* The first position whose element is not below x (for the right side: above
 * x); NaN is above all numbers. */
#define SEARCH(NAME, TYPE)                                                    \
    static int64_t place_##NAME(const TYPE *row, const int64_t *order,        \
                                int64_t n, TYPE x, bool right)                \
    {                                                                         \
        int64_t begin = 0, end = n;                                           \
        while (begin < end) {                                                 \
            int64_t middle = begin + (end - begin) / 2;                       \
            TYPE y = row[order ? order[middle] : middle];                     \
            if (right ? y > x : y >= x)                                       \
                end = middle;                                                 \
            else                                                              \
                begin = middle + 1;                                           \
        }                                                                     \
        return begin;                                                         \
    }                                                                         \
    static void search_task_##NAME(void *context, int64_t first, int64_t end) \
    {                                                                         \
        search *job = context;                                                \
        const TYPE *rows = job->rows.data, *values = job->values.data;        \
        const int64_t *orders = job->order.data;                              \
        for (int64_t i = first; i < end; i++) {                               \
            int64_t at = i / job->count * job->size;                          \
            ((int64_t *)job->places.data)[i] =                                \
                place_##NAME(rows + at, orders ? orders + at : NULL,          \
                             job->size, values[i], job->right);               \
        }                                                                     \
    }
CPU_COMPUTE_TYPES(SEARCH)

/* The dtype of the comparison. */
static core_dtype common(const core_view *a, const core_view *b)
{
    core_dtype x = cpu_compute_dtype(a->dtype), y = cpu_compute_dtype(b->dtype);

    if (x == CORE_F64 || y == CORE_F64)
        return CORE_F64;
    return x == CORE_F32 || y == CORE_F32 ? CORE_F32 : CORE_I64;
}

static core_status search_run(search *job, const core_call *call,
                              const core_view *rows, const core_view *values,
                              const core_view *order, const core_view *places)
{
    core_dtype dtype = common(rows, values);
    core_status status = cpu_dense_read(rows, dtype, &job->rows);

    job->size = rows->sizes[rows->ndim - 1];
    job->count =
        rows->ndim == 1 ? values->numel : values->sizes[values->ndim - 1];
    if (status == CORE_OK)
        status = cpu_dense_read(values, dtype, &job->values);
    if (status == CORE_OK && order)
        status = cpu_dense_read(order, CORE_I64, &job->order);
    if (status == CORE_OK)
        status = cpu_dense_open(places, CORE_I64, &job->places);
    for (int64_t i = 0; status == CORE_OK && order && i < order->numel; i++) {
        int64_t k = ((const int64_t *)job->order.data)[i];

        if (k < 0 || k >= job->size)
            status =
                cpu_index_error(call, "sorter", k, job->size, order->ndim - 1);
    }
    if (status == CORE_OK && values->numel > 0) {
        cpu_parallel_for(values->numel, cpu_grain(values->numel, 64),
                         dtype == CORE_F32   ? search_task_f32
                         : dtype == CORE_F64 ? search_task_f64
                                             : search_task_i64,
                         job);
        cpu_dense_write(&job->places);
    }
    cpu_dense_close(&job->rows);
    cpu_dense_close(&job->values);
    cpu_dense_close(&job->order);
    cpu_dense_close(&job->places);
    return status;
}

/* searchsorted(sorted_sequence, self, *, out_int32, right, side, sorter) */
static core_status launch_search(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    search job = {.right = cpu_int(&args[3]) != 0};

    (void)nargs;
    (void)nresults;
    if (args[4].tag == CORE_VALUE_STRING)
        job.right = args[4].u.string[0] == 'r';
    return search_run(&job, call, cpu_view(&args[0]), cpu_view(&args[1]),
                      cpu_view(&args[5]), cpu_view(&results[0]));
}

/* bucketize(self, boundaries, *, out_int32, right) */
static core_status launch_bucketize(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    search job = {.right = cpu_int(&args[3]) != 0};

    (void)nargs;
    (void)nresults;
    return search_run(&job, call, cpu_view(&args[1]), cpu_view(&args[0]), NULL,
                      cpu_view(&results[0]));
}

/* ----------------------------------------------------------- histograms -- */

/* How a bin is found: by the edges, by arithmetic, or by arithmetic that the
 * edges correct by one bin. */
enum { BY_EDGES, BY_NUMBER, BY_BOTH };

typedef struct histogram {
    cpu_dense self, weight, edges, counts;
    int64_t n, bins;
    double low, high;
    int how;
    bool range;   /* low and high are given */
    bool density; /* counts become a density */
    double slack; /* extends an empty range on both sides */
} histogram;

/* The bin of low <= x <= high by arithmetic; where that overflows, with scaled
 * numbers.  Without a width, the last bin holds everything, as among equal
 * edges. */
#define NUMBER_OF_BIN(NAME, TYPE, MOST)                                     \
    static int64_t number_##NAME(TYPE low, TYPE high, TYPE x, int64_t bins) \
    {                                                                       \
        const TYPE scale = (TYPE)0x1p-64;                                   \
        TYPE width = high - low, part = (x - low) * (TYPE)bins;             \
        if (width == 0)                                                     \
            return bins - 1;                                                \
        if (width > (MOST) || part > (MOST)) {                              \
            width = high * scale - low * scale;                             \
            part = (x * scale - low * scale) * (TYPE)bins;                  \
        }                                                                   \
        return (int64_t)(part / width);                                     \
    }
NUMBER_OF_BIN(f32, float, FLT_MAX)
NUMBER_OF_BIN(f64, double, DBL_MAX)

#define HISTOGRAM(NAME, TYPE)                                                \
    static void range_##NAME(histogram *job)                                 \
    {                                                                        \
        const TYPE *x = job->self.data;                                      \
        for (int64_t i = 0; i < job->n; i++) {                               \
            if (i == 0)                                                      \
                job->low = job->high = (double)x[0];                         \
            /* NaN is kept, to be refused */                                 \
            job->low =                                                       \
                x[i] < job->low || x[i] != x[i] ? (double)x[i] : job->low;   \
            job->high =                                                      \
                x[i] > job->high || x[i] != x[i] ? (double)x[i] : job->high; \
        }                                                                    \
    }                                                                        \
    static void edges_##NAME(const histogram *job)                           \
    {                                                                        \
        TYPE *edges = job->edges.data;                                       \
        TYPE low = (TYPE)job->low, high = (TYPE)job->high;                   \
        TYPE step = (high - low) / (TYPE)job->bins;                          \
        if (isinf(step))                                                     \
            step = high / (TYPE)job->bins - low / (TYPE)job->bins;           \
        for (int64_t i = 0; i <= job->bins; i++)                             \
            edges[i] = i < (job->bins + 1) / 2                               \
                           ? low + step * (TYPE)i                            \
                           : high - step * (TYPE)(job->bins - i);            \
    }                                                                        \
    static int64_t bin_##NAME(const histogram *job, TYPE low, TYPE high,     \
                              TYPE x)                                        \
    {                                                                        \
        const TYPE *edges = job->edges.data;                                 \
        int64_t k, last = job->bins + 1;                                     \
        if (job->how == BY_EDGES)                                            \
            return place_##NAME(edges, NULL, last, x, true) - 1;             \
        k = number_##NAME(low, high, x, job->bins);                          \
        if (job->how == BY_BOTH) {                                           \
            int64_t begin = k > 0 ? k - 1 : 0;                               \
            int64_t end = k + 2 < last ? k + 2 : last;                       \
            k = begin - 1 +                                                  \
                place_##NAME(edges + begin, NULL, end - begin, x, true);     \
        }                                                                    \
        return k < 0 ? 0 : k;                                                \
    }                                                                        \
    static void count_##NAME(const histogram *job)                           \
    {                                                                        \
        const TYPE *x = job->self.data, *weight = job->weight.data;          \
        const TYPE *edges = job->edges.data;                                 \
        TYPE *counts = job->counts.data, sum = 0;                            \
        TYPE low = edges ? edges[0] : (TYPE)job->low;                        \
        TYPE high = edges ? edges[job->bins] : (TYPE)job->high;              \
        for (int64_t i = 0; i < job->bins; i++)                              \
            counts[i] = 0;                                                   \
        for (int64_t i = 0; i < job->n && job->bins > 0; i++) {              \
            int64_t k;                                                       \
            if (!(x[i] >= low && x[i] <= high))                              \
                continue;                                                    \
            k = bin_##NAME(job, low, high, x[i]);                            \
            counts[k < job->bins ? k : job->bins - 1] +=                     \
                weight ? weight[i] : 1;                                      \
        }                                                                    \
        for (int64_t i = 0; job->density && i < job->bins; i++)              \
            sum += counts[i];                                                \
        for (int64_t i = 0; job->density && i < job->bins; i++)              \
            counts[i] = counts[i] / sum / (edges[i + 1] - edges[i]);         \
    }
CPU_COMPUTE_FLOATS(HISTOGRAM)

/* Fills counts, and edges unless they were given; closes everything. */
static core_status histogram_run(histogram *job, const core_call *call,
                                 core_status status)
{
    core_string name = cpu_operator(call);
    bool wide = job->self.dtype == CORE_F64;

    if (status != CORE_OK)
        goto done;
    if (job->how != BY_EDGES && !job->range && wide)
        range_f64(job);
    else if (job->how != BY_EDGES && !job->range)
        range_f32(job);
    if (job->how != BY_EDGES && (!isfinite(job->low) || !isfinite(job->high))) {
        status = cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                           "%.*s: the range %g to %g is not finite",
                           (int)name.size, name.data, job->low, job->high);
        goto done;
    }
    if (job->low == job->high) {
        job->low -= job->slack;
        job->high += job->slack;
    }
    if (job->how == BY_BOTH && wide)
        edges_f64(job);
    else if (job->how == BY_BOTH)
        edges_f32(job);
    (wide ? count_f64 : count_f32)(job);
    cpu_dense_write(&job->counts);
    if (job->how == BY_BOTH)
        cpu_dense_write(&job->edges);
done:
    cpu_dense_close(&job->self);
    cpu_dense_close(&job->weight);
    cpu_dense_close(&job->edges);
    cpu_dense_close(&job->counts);
    return status;
}

static core_status histogram_open(histogram *job, const core_view *self,
                                  const core_view *weight,
                                  const core_view *counts)
{
    core_dtype dtype = cpu_compute_dtype(self->dtype);
    core_status status = cpu_dense_read(self, dtype, &job->self);

    job->n = self->numel;
    job->bins = counts->numel;
    if (status == CORE_OK)
        status = cpu_dense_read(weight, dtype, &job->weight);
    if (status == CORE_OK)
        status = cpu_dense_open(counts, dtype, &job->counts);
    return status;
}

/* histc(self, bins, min, max) */
static core_status launch_histc(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    histogram job = {.how = BY_NUMBER,
                     .low = cpu_float(&args[2]),
                     .high = cpu_float(&args[3]),
                     .slack = 1};

    (void)nargs;
    (void)nresults;
    job.range = job.low != job.high;
    return histogram_run(
        &job, call,
        histogram_open(&job, cpu_view(&args[0]), NULL, cpu_view(&results[0])));
}

/* histogram.bin_ct(self, bins, *, range, weight, density) -> (hist, edges) */
static core_status launch_bins(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    histogram job = {.how = BY_BOTH,
                     .high = 1,
                     .slack = .5,
                     .density = cpu_int(&args[4]) != 0};
    core_status status;

    (void)nargs;
    (void)nresults;
    if (args[2].tag == CORE_VALUE_FLOAT_LIST) {
        job.range = true;
        job.low = args[2].u.floats[0];
        job.high = args[2].u.floats[1];
    }
    status = histogram_open(&job, cpu_view(&args[0]), cpu_view(&args[3]),
                            cpu_view(&results[0]));
    if (status == CORE_OK)
        status =
            cpu_dense_open(cpu_view(&results[1]), job.self.dtype, &job.edges);
    return histogram_run(&job, call, status);
}

/* histogram.bins_tensor(self, bins, *, weight, density) -> (hist, edges) */
static core_status launch_edges(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    histogram job = {.how = BY_EDGES, .density = cpu_int(&args[3]) != 0};
    core_status status = histogram_open(
        &job, cpu_view(&args[0]), cpu_view(&args[2]), cpu_view(&results[0]));

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[1]), job.self.dtype, &job.edges);
    if (status == CORE_OK)
        cpu_view_copy(cpu_view(&results[1]), cpu_view(&args[1]));
    return histogram_run(&job, call, status);
}

/* ------------------------------------------------------------- bincount -- */

static core_status largest(const core_call *call, const int64_t *x, int64_t n,
                           int64_t *out_largest)
{
    core_string name = cpu_operator(call);

    for (int64_t i = 0; i < n; i++) {
        if (x[i] < 0)
            return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                             "%.*s: element %lld of self is negative, %lld",
                             (int)name.size, name.data, (long long)i,
                             (long long)x[i]);
        if (x[i] >= *out_largest)
            *out_largest = x[i] + (x[i] < INT64_MAX);
    }
    return CORE_OK;
}

/* bincount(self, weights, minlength): in i64, or in the weights' f32 or f64 */
static core_status launch_bincount(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *weights = cpu_view(&args[1]);
    const core_view *result = NULL;
    core_dtype dtype = CORE_I64;
    cpu_dense x = {0}, weight = {0}, out = {0};
    int64_t count = cpu_int(&args[2]), n = self->numel;
    core_status status = cpu_dense_read(self, CORE_I64, &x);

    (void)nargs;
    (void)results;
    (void)nresults;
    if (weights && n > 0)
        dtype = weights->dtype == CORE_F32 ? CORE_F32 : CORE_F64;
    if (status == CORE_OK)
        status = cpu_dense_read(weights, CORE_F64, &weight);
    if (status == CORE_OK)
        status = largest(call, x.data, n, &count);
    if (status == CORE_OK)
        status = call->host->call_allocate_result(call, 0, dtype, 1, &count,
                                                  &result);
    if (status == CORE_OK)
        status = cpu_dense_open(result, dtype == CORE_I64 ? CORE_I64 : CORE_F64,
                                &out);
    if (status != CORE_OK)
        goto done;
    if (count > 0)
        memset(out.data, 0, (size_t)count * sizeof(int64_t));
    for (int64_t i = 0; i < n; i++) {
        int64_t k = ((const int64_t *)x.data)[i];

        if (dtype == CORE_I64)
            ((int64_t *)out.data)[k]++;
        else
            ((double *)out.data)[k] += ((const double *)weight.data)[i];
    }
    cpu_dense_write(&out);
done:
    cpu_dense_close(&x);
    cpu_dense_close(&weight);
    cpu_dense_close(&out);
    return status;
}

static const cpu_kernel kernels[] = {
    {"searchsorted.Tensor",
     launch_search,
     NULL,
     {CPU_ALL, CPU_ALL, CPU_INDICES, CPU_INDICES},
     0},
    {"bucketize.Tensor",
     launch_bucketize,
     NULL,
     {CPU_ALL, CPU_ALL, CPU_INDICES},
     0},
    {"histc", launch_histc, NULL, {CPU_FLOATS, CPU_FLOATS}, 0},
    {"histogram.bin_ct",
     launch_bins,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
    {"histogram.bins_tensor",
     launch_edges,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
    {"bincount", launch_bincount, NULL, {CPU_INTEGERS, CPU_ALL}, 0},
};

const cpu_kernel_table cpu_search_kernels = {kernels, sizeof kernels /
                                                          sizeof kernels[0]};
