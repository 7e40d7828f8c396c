/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient of a recurrent layer: by the fused operator or, if it is to be
 * differentiated again, by recorded operators.  Either way those of the weight
 * and the bias are one product and one sum over all steps. */

#include "autograd/formulas/formulas.h"

#include "base/memory.h"
#include "ops/expression.h"
#include "ops/recurrent.h"

#include <libcore/autograd.h>

typedef struct layer {
    core_tensor *grad_output, *grad_hy, *grad_cy, *grad_saved;
    core_tensor *output, *hx, *cx, *weight, *saved;
    int64_t mode, steps, batch, rows, n;
    bool reverse;
    const int64_t *sizes; /* samples of each step; NULL: all */
} layer;

/* Gradients of the gates, of the input's part and the hidden one, and of the
 * first states: owned. */
typedef struct gradients {
    core_tensor *input, *hidden, *hx, *cx;
} gradients;

static void gradients_release(gradients *g)
{
    core__tensor_release(g->input);
    core__tensor_release(g->hidden);
    core__tensor_release(g->hx);
    core__tensor_release(g->cx);
}

/* The rows of a step, and the part of them whose sample also has the step that
 * was computed before it. */
typedef struct rows {
    int64_t first, count, past, known;
} rows;

static int64_t count_at(const layer *a, int64_t step)
{
    return a->sizes ? a->sizes[step] : a->batch;
}

/* Rows of all steps, in the order of the sequence: an array to be freed, or NULL
 * without memory. */
static rows *rows_of(const layer *a)
{
    rows *all = core__alloc_zero((size_t)(a->steps + 1) * sizeof *all);
    int64_t first = 0;

    for (int64_t t = 0; all && t < a->steps; t++) {
        all[t].first = first;
        all[t].count = count_at(a, t);
        first += all[t].count;
    }
    for (int64_t t = 0; all && t < a->steps; t++) {
        int64_t before = a->reverse ? t + 1 : t - 1;

        if (before < 0 || before == a->steps)
            continue;
        all[t].past = all[before].first;
        all[t].known =
            all[before].count < all[t].count ? all[before].count : all[t].count;
    }
    return all;
}

/* ---------------------------------------------------------- recorded steps -- */

/* The states before a step: columns of the rows of `all`, where samples have
 * them, and the first ones. */
static core_tensor *before(core__scope *s, const rows *r, core_tensor *all,
                           core_tensor *first)
{
    core_tensor *parts[2];

    if (r->known == 0)
        return core__x_slice(s, first, 0, 0, r->count);
    parts[0] = core__x_slice(s, all, 0, r->past, r->past + r->known);
    if (r->known == r->count)
        return parts[0];
    parts[1] = core__x_slice(s, first, 0, r->known, r->count);
    return CORE__DO(s, core_cat, parts, 2, 0);
}

/* x plus column block `part` of the gradient of the saved numbers. */
static core_tensor *with_saved(core__scope *s, const layer *a, const rows *r,
                               int64_t part, core_tensor *x)
{
    core_tensor *w = a->grad_saved;

    if (!w)
        return x;
    w = core__x_slice(s, w, 0, r->first, r->first + r->count);
    return core__x_add(s, x,
                       core__x_slice(s, w, 1, part * a->n, (part + 1) * a->n));
}

/* x y (1 - y) and x (1 - y²) */
static core_tensor *through_sigmoid(core__scope *s, core_tensor *x,
                                    core_tensor *y)
{
    return core__x_mul(s, core__x_mul(s, x, y), core__x_rsub_scalar(s, 1, y));
}

static core_tensor *through_tanh(core__scope *s, core_tensor *x, core_tensor *y)
{
    return core__x_mul(s, x, core__x_rsub_scalar(s, 1, core__x_mul(s, y, y)));
}

static void saved_parts(core__scope *s, const layer *a, const rows *r,
                        int count, core_tensor **out)
{
    core_tensor *row =
        core__x_slice(s, a->saved, 0, r->first, r->first + r->count);

    for (int i = 0; i < count; i++)
        out[i] = core__x_slice(s, row, 1, i * a->n, (i + 1) * a->n);
}

/* Gates are input, forget, cell and output.  c' = f c + i g, h' = o tanh(c') */
static core_tensor *lstm_gates(core__scope *s, const layer *a, const rows *r,
                               core_tensor *dh, core_tensor **dc)
{
    core_tensor *p[5], *gates[4], *t, *c, *x;

    saved_parts(s, a, r, 5, p);
    c = a->saved;
    c = before(s, r, core__x_slice(s, c, 1, 4 * a->n, 5 * a->n), a->cx);
    t = core__x_tanh(s, p[4]);
    x = through_tanh(s, core__x_mul(s, dh, p[3]), t);
    x = with_saved(s, a, r, 4, core__x_add(s, *dc, x));
    gates[0] = with_saved(s, a, r, 0, core__x_mul(s, x, p[2]));
    gates[1] = with_saved(s, a, r, 1, core__x_mul(s, x, c));
    gates[2] = with_saved(s, a, r, 2, core__x_mul(s, x, p[0]));
    gates[3] = with_saved(s, a, r, 3, core__x_mul(s, dh, t));
    for (int i = 0; i < 4; i++)
        gates[i] = i == 2 ? through_tanh(s, gates[i], p[i])
                          : through_sigmoid(s, gates[i], p[i]);
    *dc = core__x_mul(s, x, p[1]);
    return CORE__DO(s, core_cat, gates, 4, 1);
}

/* Gates are reset, update and new.  n = tanh(x + r m), h' = n + z (h - n).
 * *dh becomes what h' passes on to h directly. */
static core_tensor *gru_gates(core__scope *s, const layer *a, const rows *r,
                              core_tensor **dh, core_tensor **hidden)
{
    core_tensor *p[4], *gates[3], *h = before(s, r, a->output, a->hx), *x;

    saved_parts(s, a, r, 4, p);
    gates[1] =
        with_saved(s, a, r, 1, core__x_mul(s, *dh, core__x_sub(s, h, p[2])));
    gates[1] = through_sigmoid(s, gates[1], p[1]);
    x = core__x_mul(s, *dh, core__x_rsub_scalar(s, 1, p[1]));
    x = through_tanh(s, with_saved(s, a, r, 2, x), p[2]);
    gates[0] = with_saved(s, a, r, 0, core__x_mul(s, x, p[3]));
    gates[0] = through_sigmoid(s, gates[0], p[0]);
    gates[2] = with_saved(s, a, r, 3, core__x_mul(s, x, p[0]));
    *hidden = CORE__DO(s, core_cat, gates, 3, 1);
    gates[2] = x;
    *dh = core__x_mul(s, *dh, p[1]);
    return CORE__DO(s, core_cat, gates, 3, 1);
}

static core_tensor *plain_gates(core__scope *s, const layer *a, const rows *r,
                                core_tensor *dh)
{
    core_tensor *h =
        core__x_slice(s, a->output, 0, r->first, r->first + r->count);

    if (a->mode == CORE__RECURRENT_TANH)
        return through_tanh(s, dh, h);
    return core__x_mul(
        s, dh,
        core__x_cast(s, CORE__DO(s, core_gt_scalar, h, core_int(0)), h->dtype));
}

/* Replaces the first `count` rows of *state, which is owned. */
static void replace(core__scope *s, core_tensor **state, int64_t count,
                    core_tensor *x)
{
    core_tensor *parts[2] = {x, NULL};

    if (s->status == CORE_OK && count < (*state)->sizes[0]) {
        parts[1] = core__x_slice(s, *state, 0, count, (*state)->sizes[0]);
        x = CORE__DO(s, core_cat, parts, 2, 0);
    }
    if (s->status != CORE_OK)
        return;
    core__tensor_retain(x);
    core__tensor_release(*state);
    *state = x;
}

/* g->hx and g->cx are the gradients of the states after the step, then before
 * it. */
static core_status one_step(const layer *a, const rows *r, gradients *g,
                            core_tensor **input, core_tensor **hidden)
{
    core_tensor *dh, *dc = NULL, *x, *y = NULL, *carry = NULL;
    core__scope s;

    core__scope_begin(&s);
    dh = core__x_slice(&s, g->hx, 0, 0, r->count);
    if (a->grad_output)
        dh = core__x_add(&s, dh,
                         core__x_slice(&s, a->grad_output, 0, r->first,
                                       r->first + r->count));
    if (a->mode == CORE__RECURRENT_LSTM) {
        dc = core__x_slice(&s, g->cx, 0, 0, r->count);
        x = lstm_gates(&s, a, r, dh, &dc);
        replace(&s, &g->cx, r->count, dc);
    } else if (a->mode == CORE__RECURRENT_GRU) {
        carry = dh;
        x = gru_gates(&s, a, r, &carry, &y);
    } else {
        x = plain_gates(&s, a, r, dh);
    }
    dh = core__x_mm(&s, y ? y : x, a->weight);
    replace(&s, &g->hx, r->count, carry ? core__x_add(&s, carry, dh) : dh);
    if (s.status == CORE_OK) {
        *input = core__formula_same(x);
        *hidden = core__formula_same(y);
    }
    return core__scope_end(&s);
}

static core_status first_gradient(core_tensor *given, core_tensor *like,
                                  core_tensor **out)
{
    *out = core__formula_same(given);
    return given || !like
               ? CORE_OK
               : core_zeros_like(like, CORE_DTYPE_NONE, NULL, -1, out);
}

static core_status recorded_steps(const layer *a, const rows *all,
                                  core_tensor **parts, gradients *out)
{
    core_tensor **hidden = parts + a->steps;

    CORE_TRY(first_gradient(a->grad_hy, a->hx, &out->hx));
    if (a->mode == CORE__RECURRENT_LSTM)
        CORE_TRY(first_gradient(a->grad_cy, a->cx, &out->cx));
    for (int64_t i = 0; i < a->steps; i++) {
        int64_t t = a->reverse ? i : a->steps - 1 - i;

        CORE_TRY(one_step(a, &all[t], out, &parts[t], &hidden[t]));
    }
    CORE_TRY(core_cat(parts, (size_t)a->steps, 0, &out->input));
    return a->mode == CORE__RECURRENT_GRU
               ? core_cat(hidden, (size_t)a->steps, 0, &out->hidden)
               : CORE_OK;
}

static core_status recorded(const layer *a, const rows *all, gradients *out)
{
    size_t count = 2 * (size_t)a->steps;
    core_tensor **parts = core__alloc_zero((count + 1) * sizeof *parts);
    core_status status;

    if (!parts)
        return core__error_memory(count * sizeof *parts);
    status = recorded_steps(a, all, parts, out);
    for (size_t i = 0; i < count; i++)
        core__tensor_release(parts[i]);
    core__free(parts);
    return status;
}

/* Computes in the dtype of the saved numbers. */
static core_status recorded_in_one_dtype(const layer *given, const rows *all,
                                         gradients *out)
{
    layer a = *given;
    core_tensor **tensors[] = {&a.grad_output, &a.grad_hy, &a.grad_cy,
                               &a.output,      &a.hx,      &a.cx,
                               &a.weight};
    core__scope s;

    core__scope_begin(&s);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (*tensors[i])
            *tensors[i] = core__x_cast(&s, *tensors[i], a.saved->dtype);
    if (s.status == CORE_OK)
        CORE__RUN(&s, recorded(&a, all, out));
    return core__scope_end(&s);
}

/* ------------------------------------------------------------- all steps -- */

/* The hidden state before each row, of all steps. */
static core_status states_before(const layer *a, const rows *all,
                                 core_tensor **out)
{
    size_t count = 0;
    core_tensor **parts =
        core__alloc_zero((2 * (size_t)a->steps + 1) * sizeof *parts);
    core_status status = CORE_OK;

    if (!parts)
        return core__error_memory(2 * (size_t)a->steps * sizeof *parts);
    for (int64_t t = 0; status == CORE_OK && t < a->steps; t++) {
        int64_t first = all[t].past, end = first + all[t].known, count_of;

        /* Rows that follow each other are one part. */
        while (!a->sizes && t + 1 < a->steps && all[t].known > 0 &&
               all[t + 1].known > 0)
            end += all[++t].known;
        if (end > first)
            status = core_slice(a->output, 0, &first, &end, 1, &parts[count++]);
        first = all[t].known;
        count_of = all[t].count;
        if (status == CORE_OK && first < count_of)
            status =
                core_slice(a->hx, 0, &first, &count_of, 1, &parts[count++]);
    }
    if (status == CORE_OK)
        status = core_cat(parts, count, 0, out);
    for (size_t i = 0; i < count; i++)
        core__tensor_release(parts[i]);
    core__free(parts);
    return status;
}

static core_status of_parameters(const layer *a, const rows *all,
                                 core_tensor *gates, const uint8_t *mask,
                                 core_tensor **out_weight,
                                 core_tensor **out_bias)
{
    const int64_t dim = 0;
    core_tensor *states = NULL;
    core__scope s;

    core__scope_begin(&s);
    if (mask[4])
        *out_bias =
            core__formula_same(core__x_sum_dim(&s, gates, &dim, 1, false));
    if (mask[3] && a->rows == 0)
        *out_weight = core__formula_same(core__x_zeros_like(&s, a->weight));
    else if (mask[3]) {
        CORE__RUN(&s, states_before(a, all, &states));
        states = core__scope_keep(&s, states);
        if (s.status == CORE_OK)
            states = core__x_cast(&s, states, gates->dtype);
        *out_weight =
            core__formula_same(core__x_mm(&s, core__x_t(&s, gates), states));
    }
    return core__scope_end(&s);
}

core_status core__formula_recurrent_grad(
    core_tensor *grad_output, core_tensor *grad_hy, core_tensor *grad_cy,
    core_tensor *grad_workspace, core_tensor *output, core_tensor *hx,
    core_tensor *cx, core_tensor *w_hh, core_tensor *workspace,
    const int64_t *batch_sizes, size_t batch_sizes_count, int64_t mode,
    bool reverse, const uint8_t *output_mask, size_t output_mask_count,
    core_tensor **out0, core_tensor **out1, core_tensor **out2,
    core_tensor **out3, core_tensor **out4)
{
    const bool saves =
        mode == CORE__RECURRENT_LSTM || mode == CORE__RECURRENT_GRU;
    layer a = {.grad_output = grad_output,
               .grad_hy = grad_hy,
               .grad_cy = mode == CORE__RECURRENT_LSTM ? grad_cy : NULL,
               .grad_saved = saves ? grad_workspace : NULL,
               .output = output,
               .hx = hx,
               .cx = cx,
               .weight = w_hh,
               .saved = workspace,
               .mode = mode,
               .batch = hx->sizes[0],
               .rows = output->sizes[0],
               .n = hx->sizes[1],
               .reverse = reverse,
               .sizes = batch_sizes_count ? batch_sizes : NULL};
    gradients g = {NULL, NULL, NULL, NULL};
    core_status status;
    rows *all;

    (void)output_mask_count;
    a.steps = a.sizes   ? (int64_t)batch_sizes_count
              : a.batch ? a.rows / a.batch
                        : 0;
    all = rows_of(&a);
    if (!all)
        return core__error_memory((size_t)a.steps * sizeof *all);
    status = core_grad_mode() && a.rows > 0
                 ? recorded_in_one_dtype(&a, all, &g)
                 : core_recurrent_layer_backward(
                       grad_output, grad_hy, a.grad_cy, a.grad_saved, output,
                       hx, cx, w_hh, workspace, batch_sizes, batch_sizes_count,
                       mode, reverse, &g.input, &g.hidden, &g.hx, &g.cx);
    if (status == CORE_OK)
        status = of_parameters(&a, all, g.hidden ? g.hidden : g.input,
                               output_mask, out3, out4);
    if (status == CORE_OK) {
        *out0 = output_mask[0] ? core__formula_same(g.input) : NULL;
        *out1 = output_mask[1] ? core__formula_same(g.hx) : NULL;
        *out2 = output_mask[2] ? core__formula_same(g.cx) : NULL;
    }
    gradients_release(&g);
    core__free(all);
    return status;
}
