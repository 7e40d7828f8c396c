/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sort, topk, kthvalue and medians along one dimension.  NaN is larger than
 * every number.  Sorting is a merge sort of (key, index) pairs, always stable;
 * pairs of f32 are 64-bit integers, which are compared without branches.
 * One element of a line of floats is found by quickselect, with the same
 * result; lines of integers are sorted, which is less code. */

#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

enum { SORT, TOP, KTH, MEDIAN, NAN_MEDIAN };

typedef struct sort_job {
    const core_view *self, *values, *indices;
    cpu_dense dense_values, dense_indices; /* one per line: KTH, medians */
    uint32_t dim;
    uint32_t what;
    bool descending;
    int64_t k;
    core_status status;
} sort_job;

/* Runs of this length are sorted by insertion. */
enum { RUN = 16 };

/* topk keeps up to this many of the best sorted by insertion. */
enum { FEW = 64 };

/* A line is sorted if this many pivots have not isolated the element. */
enum { ROUNDS = 64 };

#define IS_FLOAT(TYPE) ((TYPE)0.5 != 0)

/* ---------------------------------------------------- pairs as integers -- */

enum { WORDS = 4 /* sorted by comparisons that are the same for any order */ };

/* In the order of the keys, then of the indices: zeros are equal, NaNs too. */
static inline uint64_t word_of(float key, int64_t index, bool descending)
{
    uint32_t bits;

    key = key == 0 ? 0 : key;
    memcpy(&bits, &key, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
    bits = key != key ? UINT32_MAX : bits;
    return (uint64_t)(descending ? ~bits : bits) << 32 | (uint32_t)index;
}

static inline void order(uint64_t *a, uint64_t *b)
{
    uint64_t low = *a < *b ? *a : *b, high = *a < *b ? *b : *a;

    *a = low;
    *b = high;
}

/* Two runs of n, one after the other, from both ends: n steps from either end use
 * up neither. */
static void merge_equal(uint64_t *to, const uint64_t *x, int64_t n)
{
    int64_t a = 0, b = n, a_last = n - 1, b_last = 2 * n - 1;

    for (int64_t i = 0; i < n; i++) {
        uint64_t low = x[a], other = x[b], high = x[a_last], more = x[b_last];
        bool first = low < other, second = high < more;

        to[i] = first ? low : other;
        to[2 * n - 1 - i] = second ? more : high;
        a += first;
        b += !first;
        a_last -= !second;
        b_last -= second;
    }
}

static void merge_words(uint64_t *to, const uint64_t *a, int64_t na,
                        const uint64_t *b, int64_t nb)
{
    while (na > 0 && nb > 0) {
        uint64_t low = *a, other = *b;
        bool first = low < other;

        *to++ = first ? low : other;
        a += first;
        na -= first;
        b += !first;
        nb -= !first;
    }
    memcpy(to, a, (size_t)na * sizeof *to);
    memcpy(to + na, b, (size_t)nb * sizeof *to);
}

/* Sorts x with as much memory in y; returns which of them has the result. */
static uint64_t *sort_words(uint64_t *x, uint64_t *y, int64_t n)
{
    int64_t whole = n / WORDS * WORDS;

    for (uint64_t *w = x; w < x + whole; w += WORDS) {
        order(w, w + 1);
        order(w + 2, w + 3);
        order(w, w + 2);
        order(w + 1, w + 3);
        order(w + 1, w + 2);
    }
    for (int64_t i = whole; i < n; i++)
        for (int64_t j = i; j > whole; j--)
            order(x + j - 1, x + j);
    for (int64_t run = WORDS; run < n; run *= 2) {
        uint64_t *swap = x;

        for (int64_t i = 0; i < n; i += 2 * run) {
            int64_t na = n - i < run ? n - i : run, nb = n - i - na;

            if (nb >= run)
                merge_equal(y + i, x + i, run);
            else
                merge_words(y + i, x + i, na, x + i + na, nb);
        }
        x = y;
        y = swap;
    }
    return x;
}

/* Moves what would be x[k] of the sorted words there; no two are equal. */
static void nth_word(uint64_t *x, uint64_t *y, int64_t n, int64_t k)
{
    for (int round = 0; n > RUN && round < ROUNDS; round++) {
        uint64_t pivot[3] = {x[0], x[n / 2], x[n - 1]};
        int64_t front = 0, back = 0;

        order(pivot, pivot + 1);
        order(pivot + 1, pivot + 2);
        order(pivot, pivot + 1);
        for (int64_t i = 0; i < n; i++) {
            uint64_t now = x[i];
            bool first = now < pivot[1];

            x[front] = now;
            y[back] = now;
            front += first;
            back += !first;
        }
        if (k < front) {
            n = front;
            continue;
        }
        memcpy(x + front, y, (size_t)back * sizeof *y);
        x += front;
        n -= front;
        k -= front;
    }
    if (sort_words(x, y, n) == y)
        memcpy(x, y, (size_t)n * sizeof *x);
}

/* ---------------------------------------------------------------- lines -- */

/* Sorts a line of f32 as words, or selects the element that would be at `place`.
 * Returns false, having done nothing, if an index does not fit in 32 bits or if
 * only the few largest elements are wanted.  keys and memory have 16 and 32
 * bytes for each element. */
static bool by_words_f32(const sort_job *job, int64_t line, float *keys,
                         void *memory, int64_t n, int64_t place)
{
    const core_view *values = job->values, *at = job->indices;
    int64_t count = job->what == TOP ? job->k : n;
    int64_t *index = (int64_t *)(void *)keys + n;
    uint64_t *words = memory;
    float *out = keys + n;

    if ((job->what == TOP && count <= FEW) || n > UINT32_MAX)
        return false;
    for (int64_t i = 0; i < n; i++)
        words[i] = word_of(keys[i], i, job->descending);
    if (job->what >= KTH) {
        nth_word(words, words + n, n, place);
        place = (int64_t)(words[place] & UINT32_MAX);
        ((float *)job->dense_values.data)[line] = keys[place];
        if (job->dense_indices.data)
            ((int64_t *)job->dense_indices.data)[line] = place;
        return true;
    }
    words = sort_words(words, words + n, n);
    for (int64_t i = 0; i < count; i++) {
        index[i] = (int64_t)(words[i] & UINT32_MAX);
        out[i] = keys[index[i]];
    }
    cpu_put_f32(values->dtype, cpu_line_address(values, job->dim, line),
                cpu_line_stride(values, job->dim), out, count);
    cpu_put_i64(at->dtype, cpu_line_address(at, job->dim, line),
                cpu_line_stride(at, job->dim), index, count);
    return true;
}
#define by_words_f64(job, line, keys, memory, n, place) false
#define by_words_i64(job, line, keys, memory, n, place) false

#define SORTING(NAME, TYPE)                                                    \
    typedef struct pair_##NAME {                                               \
        TYPE key;                                                              \
        int64_t index;                                                         \
    } pair_##NAME;                                                             \
    static inline bool before_##NAME(TYPE a, TYPE b, bool descending)          \
    {                                                                          \
        if (descending)                                                        \
            return a > b || (a != a && b == b);                                \
        return a < b || (b != b && a == a);                                    \
    }                                                                          \
    static void insert_##NAME(pair_##NAME *x, int64_t n, bool descending)      \
    {                                                                          \
        for (int64_t i = 1; i < n; i++) {                                      \
            pair_##NAME now = x[i];                                            \
            int64_t j = i;                                                     \
            for (; j > 0 && before_##NAME(now.key, x[j - 1].key, descending);  \
                 j--)                                                          \
                x[j] = x[j - 1];                                               \
            x[j] = now;                                                        \
        }                                                                      \
    }                                                                          \
    static void merge_##NAME(pair_##NAME *to, const pair_##NAME *a,            \
                             int64_t na, const pair_##NAME *b, int64_t nb,     \
                             bool descending)                                  \
    {                                                                          \
        while (na > 0 && nb > 0)                                               \
            if (before_##NAME(b->key, a->key, descending)) {                   \
                *to++ = *b++;                                                  \
                nb--;                                                          \
            } else {                                                           \
                *to++ = *a++;                                                  \
                na--;                                                          \
            }                                                                  \
        memcpy(to, a, (size_t)na * sizeof *to);                                \
        memcpy(to + na, b, (size_t)nb * sizeof *to);                           \
    }                                                                          \
    /* Sorts x with as much memory in y; returns which of them has the \
     * result. */       \
    static pair_##NAME *sort_##NAME(pair_##NAME *x, pair_##NAME *y, int64_t n, \
                                    bool descending)                           \
    {                                                                          \
        for (int64_t i = 0; i < n; i += RUN)                                   \
            insert_##NAME(x + i, n - i < RUN ? n - i : RUN, descending);       \
        for (int64_t run = RUN; run < n; run *= 2) {                           \
            pair_##NAME *swap = x;                                             \
            for (int64_t i = 0; i < n; i += 2 * run) {                         \
                int64_t na = n - i < run ? n - i : run, nb = n - i - na;       \
                merge_##NAME(y + i, x + i, na, x + i + na,                     \
                             nb < run ? nb : run, descending);                 \
            }                                                                  \
            x = y;                                                             \
            y = swap;                                                          \
        }                                                                      \
        return x;                                                              \
    }                                                                          \
    /* Sorts the first k of n, k small, to the front of x. */                  \
    static void select_##NAME(pair_##NAME *x, int64_t n, int64_t k,            \
                              bool descending)                                 \
    {                                                                          \
        insert_##NAME(x, k, descending);                                       \
        for (int64_t i = k; i < n; i++) {                                      \
            pair_##NAME now = x[i];                                            \
            int64_t j = k - 1;                                                 \
            if (!before_##NAME(now.key, x[j].key, descending))                 \
                continue;                                                      \
            for (; j > 0 && before_##NAME(now.key, x[j - 1].key, descending);  \
                 j--)                                                          \
                x[j] = x[j - 1];                                               \
            x[j] = now;                                                        \
        }                                                                      \
    }                                                                          \
    /* Moves what is before the pivot (equal: not after it) to the front. */   \
    static int64_t part_##NAME(pair_##NAME *x, pair_##NAME *y, int64_t n,      \
                               TYPE pivot, bool equal)                         \
    {                                                                          \
        int64_t front = 0, back = 0;                                           \
        for (int64_t i = 0; i < n; i++) {                                      \
            pair_##NAME now = x[i];                                            \
            bool first = equal ? !before_##NAME(pivot, now.key, false)         \
                               : before_##NAME(now.key, pivot, false);         \
            x[front] = now;                                                    \
            y[back] = now;                                                     \
            front += first;                                                    \
            back += !first;                                                    \
        }                                                                      \
        memcpy(x + front, y, (size_t)back * sizeof *y);                        \
        return front;                                                          \
    }                                                                          \
    static TYPE middle_##NAME(TYPE a, TYPE b, TYPE c)                          \
    {                                                                          \
        bool turned = before_##NAME(b, a, false);                              \
        TYPE low = turned ? b : a, high = turned ? a : b;                      \
        return before_##NAME(c, low, false)    ? low                           \
               : before_##NAME(high, c, false) ? high                          \
                                               : c;                            \
    }                                                                          \
    /* Moves what would be x[k] of the sorted line there. */                   \
    static void nth_##NAME(pair_##NAME *x, pair_##NAME *y, int64_t n,          \
                           int64_t k)                                          \
    {                                                                          \
        for (int round = 0; n > RUN && round < ROUNDS; round++) {              \
            TYPE pivot = middle_##NAME(x[0].key, x[n / 2].key, x[n - 1].key);  \
            int64_t front = part_##NAME(x, y, n, pivot, false);                \
            if (k < front) {                                                   \
                n = front;                                                     \
                continue;                                                      \
            }                                                                  \
            x += front;                                                        \
            n -= front;                                                        \
            k -= front;                                                        \
            front = part_##NAME(x, y, n, pivot, true);                         \
            if (k < front)                                                     \
                return; /* all of them are equal, and in their order */        \
            x += front;                                                        \
            n -= front;                                                        \
            k -= front;                                                        \
        }                                                                      \
        if (sort_##NAME(x, y, n, false) == y)                                  \
            memcpy(x, y, (size_t)n * sizeof *x);                               \
    }                                                                          \
    /* The wanted position in the sorted line; NaN is at its end. */           \
    static int64_t place_##NAME(const sort_job *job, const TYPE *keys,         \
                                int64_t n)                                     \
    {                                                                          \
        int64_t numbers = 0;                                                   \
        if (job->what == KTH)                                                  \
            return job->k - 1;                                                 \
        for (int64_t i = 0; i < n; i++)                                        \
            numbers += keys[i] == keys[i];                                     \
        if (numbers < n && (job->what == MEDIAN || numbers == 0))              \
            return numbers;                                                    \
        return (numbers - 1) / 2;                                              \
    }                                                                          \
    static void line_put_##NAME(sort_job *job, int64_t line,                   \
                                const pair_##NAME *x, TYPE *keys,              \
                                int64_t *index, int64_t n)                     \
    {                                                                          \
        const core_view *values = job->values, *at = job->indices;             \
        if (job->what >= KTH) {                                                \
            ((TYPE *)job->dense_values.data)[line] = x->key;                   \
            if (job->dense_indices.data)                                       \
                ((int64_t *)job->dense_indices.data)[line] = x->index;         \
            return;                                                            \
        }                                                                      \
        n = job->what == TOP ? job->k : n;                                     \
        for (int64_t i = 0; i < n; i++) {                                      \
            keys[i] = x[i].key;                                                \
            index[i] = x[i].index;                                             \
        }                                                                      \
        cpu_put_##NAME(values->dtype,                                          \
                       cpu_line_address(values, job->dim, line),               \
                       cpu_line_stride(values, job->dim), keys, n);            \
        cpu_put_i64(at->dtype, cpu_line_address(at, job->dim, line),           \
                    cpu_line_stride(at, job->dim), index, n);                  \
    }                                                                          \
    static void sort_task_##NAME(void *context, int64_t begin, int64_t end)    \
    {                                                                          \
        sort_job *job = context;                                               \
        const core_view *self = job->self;                                     \
        int64_t n = cpu_line_size(self, job->dim);                             \
        int64_t stride = cpu_line_stride(self, job->dim);                      \
        pair_##NAME *x = cpu_allocate(2 * n, sizeof *x), *sorted;              \
        TYPE *keys = cpu_allocate(2 * n, sizeof(int64_t));                     \
        if (!x || !keys)                                                       \
            __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,           \
                             __ATOMIC_RELAXED);                                \
        for (int64_t line = begin; line < end && x && keys; line++) {          \
            cpu_get_##NAME(keys, self->dtype,                                  \
                           cpu_line_address(self, job->dim, line), stride, n); \
            if (by_words_##NAME(job, line, keys, x, n,                         \
                                job->what < KTH ? 0                            \
                                                : place_##NAME(job, keys, n))) \
                continue;                                                      \
            for (int64_t i = 0; i < n; i++)                                    \
                x[i] = (pair_##NAME){keys[i], i};                              \
            sorted = x;                                                        \
            if (job->what >= KTH && IS_FLOAT(TYPE)) {                          \
                sorted = x + place_##NAME(job, keys, n);                       \
                nth_##NAME(x, x + n, n, sorted - x);                           \
            } else if (job->what == TOP && job->k <= FEW && job->k > 0)        \
                select_##NAME(x, n, job->k, job->descending);                  \
            else                                                               \
                sorted = sort_##NAME(x, x + n, n, job->descending);            \
            if (job->what >= KTH && !IS_FLOAT(TYPE))                           \
                sorted += place_##NAME(job, keys, n);                          \
            line_put_##NAME(job, line, sorted, keys, (int64_t *)keys + n, n);  \
        }                                                                      \
        free(x);                                                               \
        free(keys);                                                            \
    }
CPU_COMPUTE_TYPES(SORTING)

static core_status sort_run(sort_job *job)
{
    core_dtype dtype = cpu_compute_dtype(job->self->dtype);
    int64_t lines = cpu_line_count(job->self, job->dim);

    if (job->self->numel == 0)
        return CORE_OK;
    cpu_parallel_for(lines, cpu_grain(lines, 16 * job->self->numel / lines),
                     dtype == CORE_F32   ? sort_task_f32
                     : dtype == CORE_F64 ? sort_task_f64
                                         : sort_task_i64,
                     job);
    if (job->status != CORE_OK)
        cpu_error(job->status, "no host memory to sort lines of %lld elements",
                  (long long)(job->self->numel / lines));
    return job->status;
}

/* -------------------------------------------------------------- kernels -- */

/* sort.stable(self, *, stable, dim, descending) -> (values, indices);
 * sort(self, dim, descending): call->user is the index of dim */
static core_status launch_sort(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    uintptr_t at = (uintptr_t)call->user;
    sort_job job = {.self = cpu_view(&args[0]),
                    .what = SORT,
                    .values = cpu_view(&results[0]),
                    .indices = cpu_view(&results[1]),
                    .descending = cpu_int(&args[at + 1]) != 0};

    (void)nargs;
    (void)nresults;
    job.dim = cpu_dim(cpu_int(&args[at]), job.self->ndim);
    return sort_run(&job);
}

/* topk(self, k, dim, largest, sorted) -> (values, indices) */
static core_status launch_top(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    sort_job job = {.self = cpu_view(&args[0]),
                    .what = TOP,
                    .values = cpu_view(&results[0]),
                    .indices = cpu_view(&results[1]),
                    .k = cpu_int(&args[1]),
                    .descending = cpu_int(&args[3]) != 0};
    int64_t size;

    (void)call;
    (void)nargs;
    (void)nresults;
    job.dim = cpu_dim(cpu_int(&args[2]), job.self->ndim);
    size = cpu_line_size(job.self, job.dim);
    if (job.k < 0 || job.k > size)
        return cpu_error(CORE_ERROR_INDEX,
                         "topk: k is %lld in a dimension of size %lld",
                         (long long)job.k, (long long)size);
    if (job.self->ndim == 0)
        job.k = 1; /* a 0-dim tensor has one result, whatever k is */
    return job.k == 0 ? CORE_OK : sort_run(&job);
}

/* One element of each line, for dense results. */
static core_status run_one(sort_job *job, const core_value *results,
                           uint32_t nresults)
{
    core_status status =
        cpu_dense_open(cpu_view(&results[0]),
                       cpu_compute_dtype(job->self->dtype), &job->dense_values);

    if (status == CORE_OK && nresults > 1)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I64,
                                &job->dense_indices);
    if (status == CORE_OK)
        status = sort_run(job);
    if (status == CORE_OK) {
        cpu_dense_write(&job->dense_values);
        cpu_dense_write(&job->dense_indices);
    }
    cpu_dense_close(&job->dense_values);
    cpu_dense_close(&job->dense_indices);
    return status;
}

/* kthvalue(self, k, dim, keepdim) -> (values, indices) */
static core_status launch_kth(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    sort_job job = {
        .self = cpu_view(&args[0]), .what = KTH, .k = cpu_int(&args[1])};
    int64_t size;

    (void)call;
    (void)nargs;
    job.dim = cpu_dim(cpu_int(&args[2]), job.self->ndim);
    size = cpu_line_size(job.self, job.dim);
    if (job.k < 1 || job.k > size)
        return cpu_error(CORE_ERROR_INDEX,
                         "kthvalue: k is %lld in a dimension of size %lld",
                         (long long)job.k, (long long)size);
    return run_one(&job, results, nresults);
}

/* median.dim(self, dim, keepdim) -> (values, indices), nanmedian.dim */
static core_status launch_median(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    sort_job job = {.self = cpu_view(&args[0]),
                    .what = (uint32_t)(uintptr_t)call->user};

    (void)nargs;
    job.dim = cpu_dim(cpu_int(&args[1]), job.self->ndim);
    return run_one(&job, results, nresults);
}

/* median(self), nanmedian(self): of all elements */
static core_status launch_median_all(core_call *call, const core_value *args,
                                     uint32_t nargs, core_value *results,
                                     uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    const core_value not_a_number = {.tag = CORE_VALUE_FLOAT,
                                     .u.f = __builtin_nan("")};
    cpu_dense all = {0};
    core_status status = cpu_dense_read(self, self->dtype, &all);
    int64_t one = 1;
    core_view row = {.dtype = self->dtype,
                     .memory.handle = all.data,
                     .sizes = &self->numel,
                     .strides = &one,
                     .ndim = 1,
                     .numel = self->numel};
    sort_job job = {.self = &row, .what = (uint32_t)(uintptr_t)call->user};

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK && self->numel == 0)
        cpu_view_fill(cpu_view(&results[0]), &not_a_number);
    else if (status == CORE_OK)
        status = run_one(&job, results, 1);
    cpu_dense_close(&all);
    return status;
}

#define LINES                         \
    {                                 \
        CPU_ALL, CPU_ALL, CPU_INDICES \
    }

static const cpu_kernel kernels[] = {
    {"sort.stable", launch_sort, (void *)2, LINES, 0},
    {"sort", launch_sort, (void *)1, LINES, 0},
    {"topk", launch_top, NULL, LINES, 0},
    {"kthvalue", launch_kth, NULL, LINES, 0},
    {"median.dim", launch_median, (void *)MEDIAN, LINES, 0},
    {"nanmedian.dim", launch_median, (void *)NAN_MEDIAN, LINES, 0},
    {"median", launch_median_all, (void *)MEDIAN, {CPU_ALL, CPU_ALL}, 0},
    {"nanmedian", launch_median_all, (void *)NAN_MEDIAN, {CPU_ALL, CPU_ALL}, 0},
};

const cpu_kernel_table cpu_sort_kernels = {kernels,
                                           sizeof kernels / sizeof kernels[0]};
