/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Eight-bit products: the Linears of a model (two-dimensional weights with a
 * bias) quantize input and weight, and the gradient in backward.  Everything
 * else stays in f32.
 *
 * A checkpoint stores the states of all quantizers as tensors, in the order
 * of the parameters, and of input, weight, gradient:
 *
 *     quantizers.counts     i64 [n, 3]: amaxes that are kept, calls, those that
 *                           saturated
 *     quantizers.scales     f32 [n, 2]: scale, amax of the last call
 *     quantizers.history    f32 [n, 1024]: the amaxes, newest first; then 0 */

#include "train.h"

#include <libcore/linear.h>

#include <stdlib.h>
#include <string.h>

/* The usual length.  The largest amax of the history is used, without a
 * margin. */
enum { HISTORY = 1024, ROLES = 3, COUNTS = 3, SCALES = 2 };

/* The quantizers of a Linear. */
typedef struct roles {
    core_quantizer *of[ROLES];
} roles;

struct train_fp8 {
    size_t count;    /* number of Linears */
    size_t *weights; /* their indices among the parameters */
    roles *linears;
};

typedef struct snapshot {
    core_quantizer_state state;
    float history[HISTORY];
} snapshot;

struct train_fp8_states {
    size_t count;
    snapshot snapshots[];
};

static core_quantizer *quantizer(const train_fp8 *fp8, size_t index)
{
    return fp8->linears[index / ROLES].of[index % ROLES];
}

/* --------------------------------------------------------------- making -- */

static bool is_linear(const train_model *model, size_t index)
{
    return index + 1 < model->count &&
           core_tensor_ndim(model->parameters[index]) == 2 &&
           core_tensor_ndim(model->parameters[index + 1]) == 1 &&
           core_tensor_size(model->parameters[index], 0) ==
               core_tensor_size(model->parameters[index + 1], 0);
}

static core_status make_roles(roles *linear)
{
    for (int role = 0; role < ROLES; role++) {
        const core_quantizer_options options = {
            .struct_size = sizeof options,
            .scaling = CORE_SCALING_DELAYED,
            .dtype = role == ROLES - 1 ? CORE_F8E5M2 : CORE_F8E4M3,
            .history_length = HISTORY,
        };

        CORE_TRY(core_quantizer_create(&options, &linear->of[role]));
    }
    return CORE_OK;
}

core_status train_fp8_create(train_model *model)
{
    train_fp8 *fp8 = calloc(1, sizeof *fp8);
    core_status status = CORE_OK;

    model->fp8 = fp8;
    if (fp8) {
        fp8->weights = calloc(model->count, sizeof *fp8->weights);
        fp8->linears = calloc(model->count, sizeof *fp8->linears);
    }
    if (!fp8 || !fp8->weights || !fp8->linears)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for quantizers");
    for (size_t i = 0; status == CORE_OK && i < model->count; i++)
        if (is_linear(model, i)) {
            fp8->weights[fp8->count] = i;
            status = make_roles(&fp8->linears[fp8->count++]);
        }
    return status;
}

void train_fp8_release(train_fp8 *fp8)
{
    if (!fp8)
        return;
    for (size_t i = 0; i < fp8->count * ROLES; i++)
        core_quantizer_release(quantizer(fp8, i));
    free(fp8->weights);
    free(fp8->linears);
    free(fp8);
}

/* ------------------------------------------------------------- computing -- */

core_status train_fp8_linear(const train_model *model, core_tensor *x,
                             core_tensor *weight, core_tensor *bias,
                             core_tensor **out_y)
{
    const train_fp8 *fp8 = model->fp8;

    for (size_t i = 0; i < fp8->count; i++)
        if (model->parameters[fp8->weights[i]] == weight) {
            const core_linear_forward_args args = {
                .struct_size = sizeof args,
                .input = x,
                .weight = weight,
                .bias = bias,
                .input_quantizer = fp8->linears[i].of[0],
                .weight_quantizer = fp8->linears[i].of[1],
                .grad_quantizer = fp8->linears[i].of[2],
            };

            return core_linear_apply(&args, out_y);
        }
    return core_linear(x, weight, bias, out_y);
}

core_status train_fp8_remember(const train_fp8 *fp8,
                               train_fp8_states **out_states)
{
    size_t count = fp8 ? fp8->count * ROLES : 0;
    train_fp8_states *states;

    *out_states = NULL;
    if (!fp8)
        return CORE_OK;
    states = calloc(1, sizeof *states + count * sizeof *states->snapshots);
    if (!states)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for the states of quantizers");
    states->count = count;
    for (size_t i = 0; i < count; i++) {
        snapshot *s = &states->snapshots[i];

        s->state.struct_size = sizeof s->state;
        core_quantizer_get_state(quantizer(fp8, i), &s->state);
        memcpy(s->history, core_quantizer_history(quantizer(fp8, i)),
               s->state.history_count * sizeof *s->history);
    }
    *out_states = states;
    return CORE_OK;
}

void train_fp8_restore(const train_fp8 *fp8, train_fp8_states *states)
{
    for (size_t i = 0; states && i < states->count; i++)
        core_quantizer_set_state(quantizer(fp8, i), &states->snapshots[i].state,
                                 states->snapshots[i].history);
    free(states);
}

/* --------------------------------------------------------- checkpoints -- */

const char *const train_fp8_names[TRAIN_FP8_TENSORS] = {
    "quantizers.counts", "quantizers.scales", "quantizers.history"};

/* The tensors in memory. */
typedef struct table {
    int64_t (*counts)[COUNTS];
    float (*scales)[SCALES];
    float (*history)[HISTORY];
} table;

static const int64_t widths[] = {COUNTS, SCALES, HISTORY};
static const core_dtype dtypes[] = {CORE_I64, CORE_F32, CORE_F32};

static void table_close(table *t)
{
    free(t->counts);
    free(t->scales);
    free(t->history);
}

static core_status table_open(table *t, size_t count)
{
    t->counts = calloc(count + 1, sizeof *t->counts);
    t->scales = calloc(count + 1, sizeof *t->scales);
    t->history = calloc(count + 1, sizeof *t->history);
    if (t->counts && t->scales && t->history)
        return CORE_OK;
    table_close(t);
    return train_error(CORE_ERROR_OUT_OF_MEMORY,
                       "no memory for the states of quantizers");
}

core_status train_fp8_save(const train_fp8 *fp8, core_tensor **out_tensors)
{
    int64_t count = (int64_t)fp8->count * ROLES;
    core_device *cpu;
    core_status status;
    table t;

    CORE_TRY(core_device_find("cpu", &cpu));
    CORE_TRY(table_open(&t, (size_t)count));
    for (int64_t i = 0; i < count; i++) {
        core_quantizer_state s = {.struct_size = sizeof s};
        const core_quantizer *q = quantizer(fp8, (size_t)i);

        core_quantizer_get_state(q, &s);
        t.counts[i][0] = s.history_count;
        t.counts[i][1] = (int64_t)s.calls;
        t.counts[i][2] = (int64_t)s.saturated;
        t.scales[i][0] = s.scale;
        t.scales[i][1] = s.amax;
        memcpy(t.history[i], core_quantizer_history(q),
               s.history_count * sizeof **t.history);
    }
    status = CORE_OK;
    for (int k = 0; k < TRAIN_FP8_TENSORS && status == CORE_OK; k++) {
        const void *data[] = {t.counts, t.scales, t.history};

        status = core_tensor_from_data(data[k], dtypes[k],
                                       (int64_t[]){count, widths[k]}, 2, cpu,
                                       &out_tensors[k]);
    }
    table_close(&t);
    return status;
}

static core_status read_table(core_tensor *const *tensors, const char *path,
                              int64_t count, const table *t)
{
    void *data[] = {t->counts, t->scales, t->history};

    for (int k = 0; k < TRAIN_FP8_TENSORS; k++) {
        core_tensor *tensor = tensors[k];

        if (core_tensor_dtype(tensor) != dtypes[k] ||
            core_tensor_ndim(tensor) != 2 ||
            core_tensor_size(tensor, 0) != count ||
            core_tensor_size(tensor, 1) != widths[k])
            return train_error(CORE_ERROR_SHAPE,
                               "%s: tensor \"%s\" must have %lld times %lld "
                               "elements of dtype %s",
                               path, train_fp8_names[k], (long long)count,
                               (long long)widths[k],
                               core_dtype_name(dtypes[k]));
        CORE_TRY(core_tensor_read(tensor, data[k],
                                  (size_t)(count * widths[k]) *
                                      (k ? sizeof(float) : sizeof(int64_t))));
    }
    return CORE_OK;
}

static core_status set_state(const train_fp8 *fp8, const char *path,
                             const table *t, size_t i)
{
    const core_quantizer_state state = {
        .struct_size = sizeof state,
        .history_count = (uint32_t)t->counts[i][0],
        .calls = (uint64_t)t->counts[i][1],
        .saturated = (uint64_t)t->counts[i][2],
        .scale = t->scales[i][0],
        .amax = t->scales[i][1],
    };

    if (t->counts[i][0] < 0 || t->counts[i][0] > HISTORY)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is damaged: a quantizer keeps %lld amaxes", path,
                           (long long)t->counts[i][0]);
    if (core_quantizer_set_state(quantizer(fp8, i), &state, t->history[i]) !=
        CORE_OK)
        return train_error(CORE_ERROR_CORRUPT, "%s is damaged: %s", path,
                           core_error_message());
    return CORE_OK;
}

core_status train_fp8_load(const train_fp8 *fp8, const char *path,
                           core_tensor *const *tensors)
{
    size_t count = fp8->count * ROLES;
    core_status status;
    table t;

    CORE_TRY(table_open(&t, count));
    status = read_table(tensors, path, (int64_t)count, &t);
    for (size_t i = 0; status == CORE_OK && i < count; i++)
        status = set_state(fp8, path, &t, i);
    table_close(&t);
    return status;
}
