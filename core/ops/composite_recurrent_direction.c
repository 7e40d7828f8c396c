/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* One layer of a recurrent network in one direction: with a device's kernel, or
 * composed of its steps. */

#include "base/memory.h"
#include "dispatch/structured.h"
#include "ops/recurrent.h"
#include "ops_ids.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

/* The states while a layer runs, each owned. */
typedef struct states {
    core_tensor *hidden, *cell; /* of the samples that run now */
    core_tensor **in;           /* the input's part of each step's gates */
    core_tensor **out;          /* what each step returned */
    core_tensor **ended[2];     /* states of samples that have ended */
    int64_t nended;
} states;

static void states_release(states *s, int64_t steps)
{
    core__tensor_release(s->hidden);
    core__tensor_release(s->cell);
    for (int64_t i = 0; i < steps; i++) {
        core__tensor_release(s->in[i]);
        core__tensor_release(s->out[i]);
        core__tensor_release(s->ended[0][i]);
        core__tensor_release(s->ended[1][i]);
    }
    core__free(s->in);
}

/* The first `count` samples of states [layers, batch, n] of a layer. */
static core_status first_states(core_tensor *all, int64_t index, int64_t count,
                                core_tensor **out)
{
    core__scope scope;

    core__scope_begin(&scope);
    all = CORE__DO(&scope, core_select, all, 0, index);
    return core__scope_finish(&scope, core__x_slice(&scope, all, 0, 0, count),
                              out);
}

/* Arrays for the steps, and the first states of `count` samples. */
static core_status states_begin(const core__recurrent_network *net,
                                int64_t index, int64_t count, states *s)
{
    size_t n = (size_t)net->steps;
    core_status status;

    *s = (states){.in = core__alloc_zero(4 * n * sizeof(core_tensor *))};
    if (!s->in)
        return core__error_memory(4 * n * sizeof(core_tensor *));
    s->out = s->in + n;
    s->ended[0] = s->in + 2 * n;
    s->ended[1] = s->in + 3 * n;
    status = first_states(net->hidden, index, count, &s->hidden);
    if (status == CORE_OK && net->cell)
        status = first_states(net->cell, index, count, &s->cell);
    return status;
}

/* Changes the number of samples that run from `before` to `now`: takes in the
 * first states of those that begin, or puts aside those that have ended. */
static core_status resize(const core__recurrent_network *net, int64_t index,
                          states *s, int64_t before, int64_t now)
{
    core_tensor **running[2] = {&s->hidden, &s->cell};
    core_tensor *first[2] = {net->hidden, net->cell};
    core__scope scope;
    core_tensor *x[2] = {NULL, NULL};

    core__scope_begin(&scope);
    for (int i = 0; i < 2 && first[i]; i++) {
        core_tensor *all = *running[i];

        if (now > before) {
            core_tensor *parts[2] = {
                all,
                core__x_slice(&scope,
                              CORE__DO(&scope, core_select, first[i], 0, index),
                              0, before, now)};

            x[i] = CORE__DO(&scope, core_cat, parts, 2, 0);
            continue;
        }
        x[i] = core__x_slice(&scope, all, 0, 0, now);
        CORE__RUN(&scope, core_slice(all, 0, &now, &before, 1,
                                     &s->ended[i][s->nended]));
    }
    s->nended += now < before;
    for (int i = 0; i < 2; i++)
        if (x[i] && scope.status == CORE_OK) {
            core__tensor_retain(x[i]);
            core__tensor_release(*running[i]);
            *running[i] = x[i];
        }
    return core__scope_end(&scope);
}

/* Stores the rows of each of the steps from `first` to `end` in out; `rows` has
 * those of them all.  The gradient of a slice is as large as what it was taken
 * from, so slices are taken from slices of a few steps: else the backward's time
 * would grow with the square of the number of steps. */
static core_status split_rows(const core__recurrent_network *net,
                              core_tensor *rows, int64_t first, int64_t end,
                              core_tensor **out)
{
    enum { PARTS = 8 };
    int64_t each = (end - first + PARTS - 1) / PARTS, row = 0;
    core_status status = CORE_OK;

    if (end - first == 1) {
        core__tensor_retain(rows);
        out[first] = rows;
        return CORE_OK;
    }
    for (int64_t t = first; status == CORE_OK && t < end; t += each) {
        int64_t last = t + each < end ? t + each : end, from = row;
        core_tensor *part = NULL;

        for (int64_t i = t; i < last; i++)
            row += net->sizes[i];
        status = core_slice(rows, 0, &from, &row, 1, &part);
        if (status == CORE_OK)
            status = split_rows(net, part, t, last, out);
        core__tensor_release(part);
    }
    return status;
}

static core_status one_step(const core__recurrent_network *net,
                            const core__recurrent_weights *w,
                            core_tensor *gates, states *s)
{
    core__scope scope;
    core_tensor *hidden, *cell = s->cell;

    core__scope_begin(&scope);
    hidden =
        core__recurrent_step(&scope, net->kind, w, gates, s->hidden, &cell);
    if (scope.status == CORE_OK) {
        core__tensor_retain(hidden);
        core__tensor_release(s->hidden);
        s->hidden = hidden;
        if (cell) {
            core__tensor_retain(cell);
            core__tensor_release(s->cell);
            s->cell = cell;
        }
    }
    return core__scope_end(&scope);
}

/* All steps of a layer in one direction. */
static core_status run_steps(const core__recurrent_network *net,
                             const core__recurrent_weights *w, int64_t index,
                             bool backward, states *s)
{
    int64_t running = net->sizes[backward ? net->steps - 1 : 0];

    for (int64_t i = 0; i < net->steps; i++) {
        int64_t t = backward ? net->steps - 1 - i : i;
        int64_t count = net->sizes[t];

        if (count != running)
            CORE_TRY(resize(net, index, s, running, count));
        running = count;
        CORE_TRY(one_step(net, w, s->in[t], s));
        core__tensor_retain(s->hidden);
        s->out[t] = s->hidden;
    }
    return CORE_OK;
}

/* The last states of all samples: those that ended last are the first. */
static core_status last_states(states *s, int which, int64_t steps,
                               core_tensor **out)
{
    core_tensor *running = which ? s->cell : s->hidden;
    core_tensor **parts;
    core_status status;

    if (s->nended == 0) {
        core__tensor_retain(running);
        *out = running;
        return CORE_OK;
    }
    parts = core__alloc_zero(((size_t)steps + 1) * sizeof *parts);
    if (!parts)
        return core__error_memory((size_t)steps * sizeof *parts);
    parts[0] = running;
    for (int64_t i = 0; i < s->nended; i++)
        parts[i + 1] = s->ended[which][s->nended - 1 - i];
    status = core_cat(parts, (size_t)s->nended + 1, 0, out);
    core__free(parts);
    return status;
}

static bool is_backward(const core__recurrent_network *net, int64_t index)
{
    return net->bidirectional && index % 2;
}

/* With operators. */
static core_status composed(const core__recurrent_network *net,
                            core_tensor *rows, const core__recurrent_weights *w,
                            int64_t index, core_tensor *out[3])
{
    bool backward = is_backward(net, index);
    core_tensor *gates = NULL;
    states s;
    core_status status =
        states_begin(net, index, net->sizes[backward ? net->steps - 1 : 0], &s);

    if (status == CORE_OK)
        status = core_linear(rows, w->w_ih, w->b_ih, &gates);
    if (status == CORE_OK)
        status = split_rows(net, gates, 0, net->steps, s.in);
    if (status == CORE_OK)
        status = run_steps(net, w, index, backward, &s);
    if (status == CORE_OK)
        status = core_cat(s.out, (size_t)net->steps, 0, &out[0]);
    if (status == CORE_OK)
        status = last_states(&s, 0, net->steps, &out[1]);
    if (status == CORE_OK && net->cell)
        status = last_states(&s, 1, net->steps, &out[2]);
    core__tensor_release(gates);
    if (s.in)
        states_release(&s, net->steps);
    return status;
}

/* Shorter sequences do not pay for packing the weight. */
enum { STEPS_FUSED = 4 };

/* Whether the device's kernel computes the layer.  The sizes are checked. */
static bool fused(const core__recurrent_network *net, core_tensor *rows,
                  const core__recurrent_weights *w)
{
    core_tensor *tensors[] = {rows,    net->hidden, net->cell, w->w_hh,
                              w->b_hh, w->w_ih,     w->b_ih};
    core_dtype sums = rows->dtype == CORE_F64 ? CORE_F64 : CORE_F32;
    core_dtype results[4] = {rows->dtype, rows->dtype, rows->dtype, sums};
    core_value values[8] = {{0}};

    if (net->steps < STEPS_FUSED || w->w_hr || rows->numel == 0 ||
        net->hidden->numel == 0 || !core__dtype_is_floating(rows->dtype))
        return false;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (tensors[i] && (tensors[i]->dtype != rows->dtype ||
                           core__tensor_is_batched(tensors[i])))
            return false;
        if (i < 5)
            values[i] = core_pack_tensor(tensors[i]);
    }
    values[6] = core_int(net->kind);
    values[7] = core_bool(false);
    return core__kernel_exists(&core__operators[CORE_OP_RECURRENT_LAYER],
                               values, 8, results, 4);
}

/* With the device's kernel.  The two biases of a GRU's new gate may not be added
 * to each other, as the reset gate multiplies only the hidden part. */
static core_status fuse(const core__recurrent_network *net, core_tensor *rows,
                        const core__recurrent_weights *w, int64_t index,
                        core_tensor *out[3])
{
    core_tensor *bias = w->b_ih, *hidden = w->b_hh, *cell = NULL;
    core_tensor *cy = NULL, *saved = NULL;
    size_t count = net->uneven ? (size_t)net->steps : 0;
    core__scope s;

    core__scope_begin(&s);
    if (bias && net->kind != CORE__RECURRENT_GRU) {
        bias = core__x_add(&s, bias, hidden);
        hidden = NULL;
    }
    if (net->cell)
        cell = CORE__DO(&s, core_select, net->cell, 0, index);
    rows = CORE__DO(&s, core_linear, rows, w->w_ih, bias);
    CORE__RUN(&s, core_recurrent_layer(
                      rows, CORE__DO(&s, core_select, net->hidden, 0, index),
                      cell, w->w_hh, hidden, net->sizes, count, net->kind,
                      is_backward(net, index), &out[0], &out[1], &cy, &saved));
    core__tensor_release(saved);
    if (net->cell)
        out[2] = cy;
    else
        core__tensor_release(cy);
    return core__scope_end(&s);
}

/* One layer in one direction: rows [sum of sizes, n], and the last states. */
core_status core__recurrent_direction(const core__recurrent_network *net,
                                      core_tensor *rows,
                                      const core__recurrent_weights *w,
                                      int64_t index, core_tensor *out[3])
{
    return fused(net, rows, w) ? fuse(net, rows, w, index, out)
                               : composed(net, rows, w, index, out);
}
