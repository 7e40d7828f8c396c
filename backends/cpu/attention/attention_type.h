/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* attention_type.h: attention in one type; included by attention.c with TYPE,
 * DTYPE, T(name) and L(function) of lanes.h defined. */

/* A head's lines as BLAS reads them, distance elements apart. */
typedef struct T(lines) {
    TYPE *data;
    int64_t distance;
} T(lines);

static bool T(direct)(const core_view *view)
{
    return view->dtype == DTYPE &&
           (view->strides[3] == 1 || view->sizes[3] == 1) &&
           view->strides[2] >= view->sizes[3];
}

static char *T(address)(const core_view *view, const place *at, int64_t line)
{
    int64_t offset = at->batch * view->strides[0] +
                     at->head * view->strides[1] + line * view->strides[2];

    return (char *)cpu_address(view->memory) +
           offset * cpu_item_size(view->dtype);
}

/* Lines [first, first + count): the memory itself, or a copy in *workspace, which is
 * advanced. */
static T(lines) T(read)(const core_view *view, const place *at, int64_t first,
                        int64_t count, TYPE **workspace)
{
    T(lines) lines = {*workspace, view->sizes[3]};

    if (T(direct)(view))
        return (T(lines)){(TYPE *)(void *)T(address)(view, at, first),
                          view->strides[2]};
    for (int64_t i = 0; i < count; i++)
        L(cpu_get)
    (lines.data + i * lines.distance, view->dtype,
     T(address)(view, at, first + i), view->strides[3], view->sizes[3]);
    *workspace += count * lines.distance;
    return lines;
}

/* The memory for a result's lines: its own, or in *workspace. */
static T(lines) T(open)(const core_view *view, const place *at, int64_t first,
                        int64_t count, TYPE **workspace)
{
    T(lines) lines = {*workspace, view->sizes[3]};

    if (T(direct)(view))
        return (T(lines)){(TYPE *)(void *)T(address)(view, at, first),
                          view->strides[2]};
    *workspace += count * lines.distance;
    return lines;
}

static void T(close)(const core_view *view, const place *at, int64_t first,
                     int64_t count, T(lines) lines)
{
    if (T(direct)(view))
        return;
    for (int64_t i = 0; i < count; i++)
        L(cpu_put)
    (view->dtype, T(address)(view, at, first + i), view->strides[3],
     lines.data + i * lines.distance, view->sizes[3]);
}

static void T(zero)(T(lines) lines, int64_t count, int64_t width)
{
    for (int64_t i = 0; i < count; i++)
        memset(lines.data + i * lines.distance, 0,
               (size_t)width * sizeof(TYPE));
}

/* ---------------------------------------------------------------- a row -- */

/* Adds bias and masks to a row of n scores; number: its index among all
 * queries. */
static void T(score)(const attention *a, const place *at, int64_t row, TYPE *x,
                     int64_t n, TYPE *workspace)
{
    const core_view *bias = a->bias;
    int64_t end = a->causal && row + 1 < n ? row + 1 : n;
    const uint8_t *mask;

    for (int64_t i = end; i < n; i++)
        x[i] = -INFINITY;
    if (!bias)
        return;
    if (bias->dtype != CORE_BOOL) {
        L(cpu_get)
        (workspace, bias->dtype, T(address)(bias, at, row), bias->strides[3],
         end);
        for (int64_t i = 0; i < end; i++)
            x[i] += workspace[i];
        return;
    }
    mask = (const uint8_t *)T(address)(bias, at, row);
    for (int64_t i = 0; i < end; i++)
        x[i] = mask[i * bias->strides[3]] ? x[i] : -INFINITY;
}

/* Sets masked scores to 0: they have no gradient. */
static void T(hide)(const attention *a, const place *at, int64_t row, TYPE *x,
                    int64_t n)
{
    const uint8_t *mask;

    for (int64_t i = a->causal ? row + 1 : n; i < n; i++)
        x[i] = 0;
    if (!a->bias || a->bias->dtype != CORE_BOOL)
        return;
    mask = (const uint8_t *)T(address)(a->bias, at, row);
    for (int64_t i = 0; i < n; i++)
        x[i] = mask[i * a->bias->strides[3]] ? x[i] : 0;
}

static bool T(all_masked)(const TYPE *x, int64_t n)
{
    int64_t i = 0;

    while (i < n && x[i] == -INFINITY)
        i++;
    return i == n;
}

/* Replaces a row's n scores with their exponentials, the largest of which is 1;
 * returns their sum.  *out_log: the logarithm of the sum of the scores'
 * exponentials.  A query to which every key is masked has no weights: 0, with
 * the logarithm -inf. */
static TYPE T(weigh)(TYPE *x, int64_t n, TYPE *out_log)
{
    TYPE most = L(lanes_max)(x, n), sum;

    /* -INFINITY is also the maximum of NaN. */
    if (most == -INFINITY && T(all_masked)(x, n)) {
        memset(x, 0, (size_t)n * sizeof(TYPE));
        *out_log = most;
        return 0;
    }
    sum = (TYPE)L(lanes_exp)(x, x, most, n, NULL, NULL);
    *out_log = most + (TYPE)log((double)sum);
    return sum;
}

/* Draws element by element, like bernoulli_. */
static void T(drop)(const attention *a, const place *at, int64_t row, TYPE *x,
                    int64_t n)
{
    uint64_t first = ((uint64_t)at->which * (uint64_t)a->rows + (uint64_t)row) *
                     (uint64_t)a->columns;
    uint32_t word[4];

    for (int64_t i = 0; i < n; i++) {
        uint64_t element = first + (uint64_t)i;

        if (i == 0 || element % 4 == 0)
            philox_block(a->seed, a->offset + element / 4, word);
        x[i] = (double)word[element % 4] * 0x1p-32 < 1 - a->dropout
                   ? x[i] * (TYPE)a->kept_scale
                   : 0;
    }
}

/* ------------------------------------------------------------- forward -- */

/* Queries [first, first + count) of one head. */
static void T(forward_block)(const attention *a, const place *at, int64_t first,
                             int64_t count, TYPE *workspace)
{
    int64_t n = columns_of(a, first + count);
    TYPE *scores = workspace, *extra = scores + count * n, *sums = extra + n;
    T(lines) q, k, v, o;

    workspace = sums + count;
    q = T(read)(a->query, at, first, count, &workspace);
    k = T(read)(a->key, at, 0, n, &workspace);
    v = T(read)(a->value, at, 0, n, &workspace);
    o = T(open)(a->output, at, first, count, &workspace);
    L(product)
    (false, true, count, n, a->inner, (TYPE)a->scale, q.data, q.distance,
     k.data, k.distance, 0, scores, n);
    for (int64_t i = 0; i < count; i++) {
        TYPE *x = scores + i * n, logarithm;

        T(score)(a, at, first + i, x, n, extra);
        sums[i] = T(weigh)(x, n, &logarithm);
        if (a->sum)
            ((TYPE *)a->sum)[sum_at(a, at, first + i)] = logarithm;
        if (a->dropout > 0)
            T(drop)(a, at, first + i, x, n);
    }
    L(product)
    (false, false, count, a->outer, n, 1, scores, n, v.data, v.distance, 0,
     o.data, o.distance);
    for (int64_t i = 0; i < count; i++) {
        TYPE factor = sums[i] != 0 ? 1 / sums[i] : 0;
        TYPE *y = o.data + i * o.distance;

        /* Without weights 0, even if values are infinite or NaN. */
        for (int64_t j = 0; j < a->outer; j++)
            y[j] = factor != 0 ? y[j] * factor : 0;
    }
    T(close)(a->output, at, first, count, o);
}

static int64_t T(forward_workspace)(const attention *a)
{
    return a->block * (a->columns + 1 + a->inner + a->outer) +
           a->columns * (1 + a->inner + a->outer);
}

static void T(forward_task)(void *context, int64_t begin, int64_t end)
{
    attention *a = context;
    TYPE *workspace = cpu_allocate(T(forward_workspace)(a), sizeof(TYPE));

    if (!workspace) {
        __atomic_store_n(&a->status, CORE_ERROR_OUT_OF_MEMORY,
                         __ATOMIC_RELAXED);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        place at = place_of(a, i / a->blocks);
        int64_t first = i % a->blocks * a->block;
        int64_t rest = a->rows - first;

        T(forward_block)
        (a, &at, first, rest < a->block ? rest : a->block, workspace);
    }
    free(workspace);
}

/* ------------------------------------------------------------ backward -- */

/* The common data of a head's blocks of queries. */
typedef struct T(head) {
    T(lines) k, v, to_k, to_v;
} T(head);

/* Row i of a block: turns x, a score, into its weight after dropout, and g into
 * the gradient of the score. */
static void T(row_back)(const attention *a, const place *at, int64_t row,
                        TYPE *x, TYPE *g, TYPE *weights, const TYPE *grad,
                        const TYPE *output, int64_t n)
{
    TYPE sum = ((const TYPE *)a->sum)[sum_at(a, at, row)];
    TYPE slope = (TYPE)L(lanes_dot)(grad, output, 0, a->outer);

    T(score)(a, at, row, x, n, weights);
    if (sum == -INFINITY) /* every key is masked */
        memset(weights, 0, (size_t)n * sizeof(TYPE));
    else
        L(lanes_exp)(weights, x, sum, n, NULL, NULL);
    memcpy(x, weights, (size_t)n * sizeof(TYPE));
    if (a->dropout > 0) {
        T(drop)(a, at, row, x, n);
        T(drop)(a, at, row, g, n);
    }
    for (int64_t i = 0; i < n; i++)
        g[i] = weights[i] * (g[i] - slope);
    T(hide)(a, at, row, g, n);
    if (!a->to_bias)
        return;
    L(cpu_put)
    (a->to_bias->dtype, T(address)(a->to_bias, at, row), a->to_bias->strides[3],
     g, n);
    memset(weights, 0, (size_t)(a->columns - n) * sizeof(TYPE));
    L(cpu_put)
    (a->to_bias->dtype,
     T(address)(a->to_bias, at, row) +
         n * a->to_bias->strides[3] * cpu_item_size(a->to_bias->dtype),
     a->to_bias->strides[3], weights, a->columns - n);
}

static void T(backward_block)(const attention *a, const place *at,
                              const T(head) * h, int64_t first, int64_t count,
                              TYPE *workspace)
{
    int64_t n = columns_of(a, first + count);
    TYPE *scores = workspace, *slopes = scores + count * n;
    TYPE *extra = slopes + count * n;
    T(lines) q, g, y, to;

    workspace = extra + a->columns;
    q = T(read)(a->query, at, first, count, &workspace);
    g = T(read)(a->grad, at, first, count, &workspace);
    y = T(read)(a->output, at, first, count, &workspace);
    L(product)
    (false, true, count, n, a->inner, (TYPE)a->scale, q.data, q.distance,
     h->k.data, h->k.distance, 0, scores, n);
    L(product)
    (false, true, count, n, a->outer, 1, g.data, g.distance, h->v.data,
     h->v.distance, 0, slopes, n);
    for (int64_t i = 0; i < count; i++)
        T(row_back)
    (a, at, first + i, scores + i * n, slopes + i * n, extra,
     g.data + i * g.distance, y.data + i * y.distance, n);
    if (a->to_value)
        L(product)
    (true, false, n, a->outer, count, 1, scores, n, g.data, g.distance, 1,
     h->to_v.data, h->to_v.distance);
    if (a->to_key)
        L(product)
    (true, false, n, a->inner, count, (TYPE)a->scale, slopes, n, q.data,
     q.distance, 1, h->to_k.data, h->to_k.distance);
    if (a->to_query) {
        to = T(open)(a->to_query, at, first, count, &workspace);
        L(product)
        (false, false, count, a->inner, n, (TYPE)a->scale, slopes, n, h->k.data,
         h->k.distance, 0, to.data, to.distance);
        T(close)(a->to_query, at, first, count, to);
    }
}

static int64_t T(backward_workspace)(const attention *a)
{
    return a->block * 2 * (a->columns + a->inner + a->outer) +
           a->columns * (1 + 2 * (a->inner + a->outer));
}

static void T(backward_head)(const attention *a, const place *at,
                             TYPE *workspace)
{
    T(head) h = {{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}};

    h.k = T(read)(a->key, at, 0, a->columns, &workspace);
    h.v = T(read)(a->value, at, 0, a->columns, &workspace);
    if (a->to_key) {
        h.to_k = T(open)(a->to_key, at, 0, a->columns, &workspace);
        T(zero)(h.to_k, a->columns, a->inner);
    }
    if (a->to_value) {
        h.to_v = T(open)(a->to_value, at, 0, a->columns, &workspace);
        T(zero)(h.to_v, a->columns, a->outer);
    }
    for (int64_t first = 0; first < a->rows; first += a->block) {
        int64_t rest = a->rows - first;

        T(backward_block)
        (a, at, &h, first, rest < a->block ? rest : a->block, workspace);
    }
    if (a->to_key)
        T(close)(a->to_key, at, 0, a->columns, h.to_k);
    if (a->to_value)
        T(close)(a->to_value, at, 0, a->columns, h.to_v);
}

static void T(backward_task)(void *context, int64_t begin, int64_t end)
{
    attention *a = context;
    TYPE *workspace = cpu_allocate(T(backward_workspace)(a), sizeof(TYPE));

    if (!workspace) {
        __atomic_store_n(&a->status, CORE_ERROR_OUT_OF_MEMORY,
                         __ATOMIC_RELAXED);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        place at = place_of(a, i);

        T(backward_head)(a, &at, workspace);
    }
    free(workspace);
}
