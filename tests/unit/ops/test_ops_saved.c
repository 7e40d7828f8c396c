/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Backward saves only what a gradient needs: for every saved row that the
 * generator derives from a formula, some call's gradient changes with the data
 * of that row.  Saved-tensor hooks pass other data to the formula; where that
 * makes no difference in any sample, the sizes or strides were enough and the
 * formula must say so (self.sizes, self.layout). */

#include "support/samples.h"

#include "autograd/graph/gradient.h"
#include "dispatch/operator.h"

#include <libcore/random.h>
#include <libcore/saved.h>

#include <math.h>

enum { OPERATORS = 2048, ROWS = 16, PACKED = 64, GRADIENTS = 16 };

static uint8_t kept[OPERATORS][ROWS], used[OPERATORS][ROWS];

/* ---------------------------------------------------------------- hooks -- */

enum { TURNED, ZEROS, ONES, NANS, WAYS };

static uintptr_t packed;  /* tensors packed by the call so far */
static uintptr_t changed; /* which one backward sees changed, from 1; 0: none */
static int way;
static int64_t elements[PACKED];
static core_tensor *held[PACKED];

static core_status pack(void *context, core_tensor *tensor, void **out_handle)
{
    (void)context;
    ck_assert_uint_lt(packed, PACKED);
    elements[packed] = core_tensor_numel(tensor);
    held[packed] = core_tensor_retain(tensor);
    *out_handle = (void *)++packed;
    return CORE_OK;
}

/* Other numbers in the same layout. */
static core_status disturb(core_tensor *tensor, core_tensor **out)
{
    core_dtype dtype = core_tensor_dtype(tensor);
    core_tensor *x = NULL;

    if (way == ZEROS)
        return core_zeros_like(tensor, CORE_DTYPE_NONE, NULL, -1, out);
    if (way == NANS && dtype != CORE_BOOL && dtype != CORE_I64)
        return core_full_like(tensor, core_float(NAN), CORE_DTYPE_NONE, NULL,
                              -1, out);
    if (way == ONES)
        return core_ones_like(tensor, CORE_DTYPE_NONE, NULL, -1, out);
    if (dtype == CORE_BOOL)
        return core_logical_not(tensor, out);
    CORE_TRY(core_rsub_scalar(
        tensor, dtype == CORE_F64 ? core_float(-.77) : core_int(1), core_int(1),
        &x));
    *out = x;
    return CORE_OK;
}

static core_status unpack(void *context, void *handle, core_tensor **out_tensor)
{
    uintptr_t which = (uintptr_t)handle;

    (void)context;
    if (which == changed)
        return disturb(held[which - 1], out_tensor);
    *out_tensor = core_tensor_retain(held[which - 1]);
    return CORE_OK;
}

static const core_saved_hooks_info hooks = {
    .struct_size = sizeof hooks, .pack = pack, .unpack = unpack};

/* ----------------------------------------------------------- gradients -- */

typedef struct outcome {
    core_status status;
    core_tensor *gradients[TENSORS];
} outcome;

typedef struct graph {
    arguments a;
    core_value results[RESULTS];
    core_tensor *outputs[GRADIENTS], *grads[GRADIENTS];
    size_t noutputs;
} graph;

static void collect(graph *g, core_tensor *tensor)
{
    core_tensor *grad;
    int64_t numel = core_tensor_numel(tensor);
    double values[512];

    if (!core_tensor_requires_grad(tensor))
        return;
    ck_assert_uint_lt(g->noutputs, GRADIENTS);
    ck_assert_int_le(numel, 512);
    for (int64_t i = 0; i < numel; i++)
        values[i] = uniform(.5, 1.5);
    grad = typed(core_tensor_dtype(tensor), 1, &numel, values);
    g->grads[g->noutputs] = CALL(reshape, grad, core_tensor_sizes(tensor),
                                 core_tensor_ndim(tensor));
    g->outputs[g->noutputs++] = tensor;
}

static outcome differentiate(graph *g, uint32_t flags)
{
    outcome o = {CORE_OK, {NULL}};

    o.status =
        core_grad(g->outputs, g->noutputs, g->grads, g->a.leaves, g->a.nleaves,
                  CORE_ALLOW_UNUSED | CORE_RETAIN_GRAPH | flags, o.gradients);
    return o;
}

static bool same_bits(core_tensor *a, core_tensor *b)
{
    double left[512], right[512];
    size_t bytes;

    if (!a || !b)
        return a == b;
    bytes = (size_t)core_tensor_numel(a) * sizeof *left;
    ck_assert_uint_le(bytes, sizeof left);
    OK(core_tensor_read(a, left, bytes));
    OK(core_tensor_read(b, right, bytes));
    return memcmp(left, right, bytes) == 0;
}

static bool same(const outcome *a, const outcome *b)
{
    for (size_t i = 0; i < TENSORS; i++)
        if (!same_bits(a->gradients[i], b->gradients[i]))
            return false;
    return a->status == b->status;
}

static void release(outcome *o)
{
    for (size_t i = 0; i < TENSORS; i++)
        core_tensor_release(o->gradients[i]);
}

/* -------------------------------------------------------------- samples -- */

/* How many tensors a row packs for this value. */
static uint32_t tensors_of(const core_value *value)
{
    uint32_t count = 0;

    if (value->tag != CORE_VALUE_TENSOR_LIST)
        return value->tag == CORE_VALUE_TENSOR && value->u.tensor;
    for (uint32_t i = 0; i < value->count; i++)
        count += value->u.tensors[i] != NULL;
    return count;
}

/* Finds the row of each packed tensor. */
static void attribute(const graph *g, uint32_t *rows)
{
    const core__gradient *gradient = g->a.op->data->gradient;
    uint32_t wanted = 0, count = 0;

    for (uint32_t i = 0; i < gradient->ngradients; i++) {
        const core_value *arg = &g->a.values[gradient->arguments[i]];

        if (arg->tag == CORE_VALUE_TENSOR)
            wanted |= (uint32_t)core_tensor_requires_grad(arg->u.tensor) << i;
        for (uint32_t j = 0;
             arg->tag == CORE_VALUE_TENSOR_LIST && j < arg->count; j++)
            if (arg->u.tensors[j] &&
                core_tensor_requires_grad(arg->u.tensors[j]))
                wanted |= 1u << i;
    }
    for (uint32_t row = 0; row < gradient->nsaved; row++) {
        const core__saving *saving = &gradient->saved[row];
        const core_value *value = saving->kind == CORE__SAVE_RESULT
                                      ? &g->results[saving->position]
                                      : &g->a.values[saving->position];
        bool tensor = saving->kind == CORE__SAVE_RESULT ||
                      saving->kind == CORE__SAVE_ARGUMENT;
        uint32_t n =
            tensor && saving->needed_by & wanted ? tensors_of(value) : 0;

        ck_assert_uint_le(count + n, packed);
        while (n--)
            rows[count++] = row;
    }
    ck_assert_msg(count == packed, "%s packs %zu tensors, not %u",
                  core_op_name(g->a.op), (size_t)packed, count);
}

/* Takes flags because some formulas differ where the graph is recorded. */
static void disturb_each(graph *g, uint32_t flags)
{
    const uint32_t id = g->a.op->id;
    uint32_t rows[PACKED];
    outcome plain;

    attribute(g, rows);
    changed = 0;
    plain = differentiate(g, flags);
    for (changed = 1; changed <= packed && plain.status == CORE_OK; changed++) {
        uint32_t row = rows[changed - 1];

        kept[id][row] |= elements[changed - 1] > 0;
        for (way = 0; way < WAYS && !used[id][row]; way++) {
            outcome other = differentiate(g, flags);

            used[id][row] |= !same(&plain, &other);
            release(&other);
        }
    }
    release(&plain);
}

static void record(graph *g)
{
    core_value *values = g->a.values;

    make_positive(&g->a);
    if (g->a.op->variant == CORE__VARIANT_INPLACE)
        values[0].u.tensor =
            CALL(clone, values[0].u.tensor, CORE_FORMAT_PRESERVE);
    packed = changed = 0;
    core_seed(7);
    OK(core_saved_hooks_push(&hooks));
    OK(core_op_call(g->a.op, values, g->a.count, g->results, RESULTS));
    OK(core_saved_hooks_pop());
    for (int i = 0; i < RESULTS; i++) {
        const core_value *r = &g->results[i];

        if (r->tag == CORE_VALUE_TENSOR)
            collect(g, r->u.tensor);
        for (uint32_t j = 0; r->tag == CORE_VALUE_TENSOR_LIST && j < r->count;
             j++)
            collect(g, r->u.tensors[j]);
    }
}

static void run(const sample *s)
{
    graph g = {.noutputs = 0};

    parse_sample(&g.a, s, s->words);
    if (g.a.op->data->gradient) {
        ck_assert_uint_lt(g.a.op->id, OPERATORS);
        record(&g);
        disturb_each(&g, 0);
        disturb_each(&g, CORE_CREATE_GRAPH);
    }
    for (int r = 0; r < RESULTS; r++)
        core_value_release(&g.results[r]);
    while (packed)
        core_tensor_release(held[--packed]);
    drop_all();
}

/* These need rows that no sample does.  The second derivative of the first is
 * NaN, and the slope of the second is that at a jump, so that they cannot be
 * samples. */
static const sample power_of_zero = {"pow.Scalar", "f:0 t:5", .5, 2, 0, NULL};
static const sample equal_neighbours = {"nextafter", "t:3 t:3", 1, 1, 0, NULL};

/* Their formula holds for normalised probabilities only, so that they are in no
 * sample that finite differences check. */
static const sample ctc_loss = {
    "_ctc_loss", "t:4,2,3 x:2,2/2 l:4,3 l:2,1 i:2 b:0", -2, 0, 0, NULL};
static const sample ctc_loss_by_lengths = {
    "_ctc_loss_by_lengths", "t:4,2,3 x:2,2/2 y:2 y:2 i:2 b:0", -2, 0, 0, NULL};

START_TEST(every_saved_tensor_is_read_by_a_gradient)
{
    static char unread[4000], unseen[4000];
    size_t rows = 0;

    for (size_t i = 0; i < SAMPLES; i++)
        if (!(samples[i].flags & SAMPLE_FORWARD_ONLY))
            run(&samples[i]);
    run(&power_of_zero);
    run(&equal_neighbours);
    run(&ctc_loss);
    run(&ctc_loss_by_lengths);
    for (uint32_t i = 0; i < core__operator_count; i++) {
        const core__operator_data *data = core__operators[i].data;

        if (!data || !data->gradient || data->base != i)
            continue;
        for (uint32_t row = 0; row < data->gradient->nsaved; row++) {
            const core__saving *saving = &data->gradient->saved[row];
            char *list = kept[i][row] ? unread : unseen;

            if (saving->kind != CORE__SAVE_ARGUMENT &&
                saving->kind != CORE__SAVE_RESULT)
                continue;
            rows++;
            if (!used[i][row])
                snprintf(list + strlen(list), 4000 - strlen(list), " %s(%s %u)",
                         data->name,
                         saving->kind == CORE__SAVE_RESULT ? "result"
                                                           : "argument",
                         saving->position);
        }
    }
    ck_assert_uint_gt(rows, 300);
    ck_assert_msg(!unread[0] && !unseen[0],
                  "saved although no gradient depends on it:%s; saved in no "
                  "sample:%s",
                  unread, unseen);
}
END_TEST

SUITE("ops/ops_saved", every_saved_tensor_is_read_by_a_gradient)
