/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A checkpoint is a safetensors file:
 *
 *     model.NAME               a parameter
 *     optimizer.NAME.STATE     the optimizer's state for it
 *     optimizer.steps          i64, number of steps of each parameter
 *     progress.loss_sum, progress.correct   of the epoch in progress
 *     quantizers.…             of --amp fp8, see fp8.c
 *
 * With --shard, the optimizer's state is in other files, shard.c, which the text
 * "shards" names.  And metadata: the options, the progress, and the states of the random
 * generator and of the gradient scaler.  The order of the samples follows
 * from seed and epoch. */

#include "parameter_shards.h"
#include "tensor_parallel.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2, OTHERS = 3 + TRAIN_FP8_TENSORS, TEXTS = 40 };

typedef struct contents {
    core_named_tensor *tensors;
    char (*names)[80];
    core_tensor **wholes; /* of divided parameters, and their state */
    size_t tensor_count;
    bool kept; /* it is written; otherwise this rank only sends its parts */
    core_named_text texts[TEXTS];
    char values[TEXTS][40];
    size_t text_count;
    char characters[2 * 256 + 1];
    core_tensor *steps;
    core_tensor *quantizers[TRAIN_FP8_TENSORS];
} contents;

/* Options that are stored.  The fixed ones cannot change when resuming; those
 * that were added to the format later may be missing. */
static const struct {
    const char *name;
    size_t at;
    unsigned given;
    bool number; /* otherwise an integer */
    bool fixed;
    bool later;
} saved[] = {
#define AT(field) offsetof(train_options, field)
    {"batch", AT(batch), TRAIN_GAVE_BATCH, false, true, false},
    {"seed", AT(seed), TRAIN_GAVE_SEED, false, true, false},
    {"lr", AT(lr), TRAIN_GAVE_LR, true, false, false},
    {"lr_decay", AT(lr_decay), TRAIN_GAVE_LR_DECAY, true, false, false},
    {"momentum", AT(momentum), TRAIN_GAVE_MOMENTUM, true, false, false},
    {"weight_decay", AT(weight_decay), TRAIN_GAVE_WEIGHT_DECAY, true, false,
     false},
    {"warmup", AT(warmup), TRAIN_GAVE_WARMUP, false, false, true},
    {"clip", AT(clip), TRAIN_GAVE_CLIP, true, false, true},
    {"dropout", AT(dropout), TRAIN_GAVE_DROPOUT, true, false, true},
    {"context", AT(context), TRAIN_GAVE_CONTEXT, false, true, true},
    {"layers", AT(layers), TRAIN_GAVE_LAYERS, false, true, true},
    {"heads", AT(heads), TRAIN_GAVE_HEADS, false, true, true},
    {"width", AT(width), TRAIN_GAVE_WIDTH, false, true, true},
#undef AT
};
enum { SAVED = sizeof saved / sizeof *saved };

/* --------------------------------------------------------------- saving -- */

static void add_tensor(contents *c, core_tensor *tensor, const char *format,
                       ...) __attribute__((format(printf, 3, 4)));
static void add_tensor(contents *c, core_tensor *tensor, const char *format,
                       ...)
{
    size_t index = c->tensor_count++;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(c->names[index], sizeof c->names[index], format, arguments);
    va_end(arguments);
    c->tensors[index] = (core_named_tensor){c->names[index], tensor};
}

/* A tensor of a parameter's sizes, which the ranks of --tensor-parallel join. */
static core_status add_part(contents *c, const trainer *t, size_t parameter,
                            core_tensor *part, const char *kind,
                            const char *state)
{
    core_tensor **whole = &c->wholes[c->tensor_count];

    CORE_TRY(train_tensor_join(&t->model, parameter, part, whole));
    if (!c->kept) {
        core_tensor_release(*whole);
        *whole = NULL;
        return CORE_OK;
    }
    add_tensor(c, *whole, "%s.%s%s%s", kind, t->model.names[parameter],
               state ? "." : "", state ? state : "");
    return CORE_OK;
}

static void add_text(contents *c, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_text(contents *c, const char *name, const char *format, ...)
{
    size_t index = c->text_count++;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(c->values[index], sizeof c->values[index], format, arguments);
    va_end(arguments);
    c->texts[index] = (core_named_text){name, c->values[index]};
}

static void collect_characters(contents *c, const train_text *text)
{
    for (int64_t i = 0; i < text->count; i++)
        snprintf(c->characters + 2 * i, 3, "%02x", text->known[i]);
    c->texts[c->text_count++] = (core_named_text){"characters", c->characters};
    add_text(c, "text.size", "%lld", (long long)text->size);
    add_text(c, "text.digest", "%016llx", (unsigned long long)text->digest);
}

/* Of a run in f16. */
static void collect_scaler(contents *c, const core_grad_scaler *scaler)
{
    core_grad_scaler_state state = {.struct_size = sizeof state};

    core_grad_scaler_get_state(scaler, &state);
    add_text(c, "scaler.scale", "%.17g", state.scale);
    add_text(c, "scaler.growth_factor", "%.17g", state.growth_factor);
    add_text(c, "scaler.backoff_factor", "%.17g", state.backoff_factor);
    add_text(c, "scaler.growth_interval", "%llu",
             (unsigned long long)state.growth_interval);
    add_text(c, "scaler.growth_tracker", "%llu",
             (unsigned long long)state.growth_tracker);
}

static void collect_texts(contents *c, const trainer *t)
{
    const char *options = (const char *)&t->options;
    uint64_t seed, offset;

    core_generator_state(NULL, &seed, &offset);
    add_text(c, "format", "core-train");
    add_text(c, "format_version", "1");
    add_text(c, "model", "%s", t->model.kind->name);
    add_text(c, "optimizer", "%s", train_optimizers[t->options.optimizer]);
    add_text(c, "schedule", "%s", train_schedules[t->options.schedule]);
    add_text(c, "amp", "%s", train_amps[t->options.amp]);
    add_text(c, "skipped_steps", "%lld", (long long)t->skipped);
    if (t->scaler)
        collect_scaler(c, t->scaler);
    for (size_t i = 0; i < SAVED; i++) {
        const void *value = options + saved[i].at;

        if (saved[i].number)
            add_text(c, saved[i].name, "%.17g", *(const double *)value);
        else
            add_text(c, saved[i].name, "%lld",
                     (long long)*(const int64_t *)value);
    }
    add_text(c, "images", "%lld", (long long)t->train.count);
    add_text(c, "epoch", "%lld", (long long)t->epoch);
    add_text(c, "position", "%lld", (long long)t->position);
    add_text(c, "generator.seed", "%llu", (unsigned long long)seed);
    add_text(c, "generator.offset", "%llu", (unsigned long long)offset);
    if (t->shard)
        add_text(c, "shards", "%s", t->shard_suffix);
    if (t->text.count)
        collect_characters(c, &t->text);
}

/* The parameters of a unit, or their states, from the pieces of all ranks. */
static core_status add_unit(contents *c, const trainer *t, size_t index,
                            core_tensor *piece, const char *kind,
                            const char *state)
{
    const train_pieces *all = t->model.pieces;
    const train_unit *unit = &all->units[index];
    core_device *cpu;
    float *numbers, *at;
    core_status status;

    CORE_TRY(core_device_find("cpu", &cpu));
    status = train_pieces_join(all, piece, &numbers);
    at = numbers;
    for (size_t i = unit->first;
         status == CORE_OK && c->kept && i < unit->first + unit->count; i++) {
        const train_whole *whole = &all->parameters[i];
        core_tensor **tensor = &c->wholes[c->tensor_count];

        status = core_tensor_from_data(at, CORE_F32, whole->sizes, whole->ndim,
                                       cpu, tensor);
        add_tensor(c, *tensor, "%s.%s%s%s", kind, whole->name, state ? "." : "",
                   state ? state : "");
        at += whole->numel;
    }
    free(numbers);
    return status;
}

static core_status add_any(contents *c, const trainer *t, size_t parameter,
                           core_tensor *tensor, const char *kind,
                           const char *state)
{
    return (t->model.pieces ? add_unit : add_part)(c, t, parameter, tensor,
                                                   kind, state);
}

static core_status collect_state(contents *c, const trainer *t,
                                 size_t parameter)
{
    const char *slot;

    for (size_t k = 0;
         (slot = core_optimizer_state_name(t->optimizer, k)) != NULL; k++)
        CORE_TRY(add_any(c, t, parameter,
                         core_optimizer_state(t->optimizer, parameter, k),
                         "optimizer", slot));
    return CORE_OK;
}

/* Of the model, not of the optimizer. */
static int64_t parameter_count(const trainer *t)
{
    return (int64_t)(t->model.pieces ? t->model.pieces->count : t->model.count);
}

/* The numbers of the parameters that the optimizer has as its index-th: from the
 * result to *out_end - 1. */
static size_t parameters_of(const trainer *t, size_t index, size_t *out_end)
{
    const train_unit *unit;

    *out_end = index + 1;
    if (!t->model.pieces)
        return index;
    unit = &t->model.pieces->units[index];
    *out_end = unit->first + unit->count;
    return unit->first;
}

static core_status collect_optimizer(contents *c, const trainer *t)
{
    int64_t *steps, count = parameter_count(t);
    core_device *cpu = NULL;
    core_status status = CORE_OK;

    steps = malloc((size_t)count * sizeof *steps);
    if (!steps)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for a checkpoint");
    for (size_t i = 0; status == CORE_OK && i < t->model.count; i++) {
        int64_t made = (int64_t)core_optimizer_steps(t->optimizer, i);
        size_t end, k = parameters_of(t, i, &end);

        for (; k < end; k++)
            steps[k] = made;
        if (made > 0)
            status = collect_state(c, t, i);
    }
    if (status == CORE_OK)
        status = core_device_find("cpu", &cpu);
    if (status == CORE_OK)
        status =
            core_tensor_from_data(steps, CORE_I64, &count, 1, cpu, &c->steps);
    if (status == CORE_OK)
        add_tensor(c, c->steps, "optimizer.steps");
    free(steps);
    return status;
}

static core_status collect_tensors(contents *c, const trainer *t)
{
    core_status status = CORE_OK;

    for (size_t i = 0; i < t->model.count; i++)
        CORE_TRY(add_any(c, t, i, t->model.parameters[i], "model", NULL));
    add_tensor(c, t->loss_sum, "progress.loss_sum");
    add_tensor(c, t->correct, "progress.correct");
    if (!t->shard)
        status = collect_optimizer(c, t);
    if (status == CORE_OK && t->model.fp8)
        status = train_fp8_save(t->model.fp8, c->quantizers);
    for (int i = 0; i < TRAIN_FP8_TENSORS; i++)
        if (status == CORE_OK && c->quantizers[i])
            add_tensor(c, c->quantizers[i], "%s", train_fp8_names[i]);
    return status;
}

core_status checkpoint_save(const trainer *t, const char *path)
{
    size_t names = (size_t)parameter_count(t) * (1 + SLOTS) + OTHERS;
    contents *c = calloc(1, sizeof *c);
    core_status status = CORE_OK;

    if (c) {
        c->tensors = calloc(names, sizeof *c->tensors);
        c->names = calloc(names, sizeof *c->names);
        c->wholes = calloc(names, sizeof(core_tensor *));
    }
    if (!c || !c->tensors || !c->names || !c->wholes)
        status =
            train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a checkpoint");
    if (status == CORE_OK) {
        c->kept = path != NULL;
        collect_texts(c, t);
        status = collect_tensors(c, t);
    }
    if (status == CORE_OK && path)
        status = core_safetensors_save(path, c->tensors, c->tensor_count,
                                       c->texts, c->text_count);
    if (c) {
        core_tensor_release(c->steps);
        for (int i = 0; i < TRAIN_FP8_TENSORS; i++)
            core_tensor_release(c->quantizers[i]);
        for (size_t i = 0; c->wholes && i < names; i++)
            core_tensor_release(c->wholes[i]);
        free(c->wholes);
        free(c->tensors);
        free(c->names);
    }
    free(c);
    return status;
}

/* -------------------------------------------------------------- loading -- */

static core_status text_of(const core_safetensors *file, const char *path,
                           const char *name, const char **out_text)
{
    *out_text = core_safetensors_text(file, name);
    if (!*out_text)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is damaged: entry \"%s\" is missing", path,
                           name);
    return CORE_OK;
}

static core_status integer_of(const core_safetensors *file, const char *path,
                              const char *name, int64_t least,
                              int64_t *out_value)
{
    const char *text;

    CORE_TRY(text_of(file, path, name, &text));
    if (!train_parse_integer(text, least, INT64_MAX, out_value))
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is damaged: entry \"%s\" is \"%.40s\"", path,
                           name, text);
    return CORE_OK;
}

static core_status number_of(const core_safetensors *file, const char *path,
                             const char *name, double *out_value)
{
    const char *text;

    CORE_TRY(text_of(file, path, name, &text));
    if (!train_parse_number(text, out_value) || *out_value < 0)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is damaged: entry \"%s\" is \"%.40s\"", path,
                           name, text);
    return CORE_OK;
}

static core_status contradiction(const char *path, const char *option,
                                 const char *has, const char *given)
{
    return train_error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s was made with --%s %s and cannot be resumed with %s",
                       path, option, has, given);
}

/* Reads the names of model and optimizer. */
static core_status take_names(const core_safetensors *file, const char *path,
                              train_options *options)
{
    const char *text;
    uint32_t optimizer = 0;

    CORE_TRY(text_of(file, path, "model", &text));
    if (!train_model_find(text))
        return train_error(CORE_ERROR_UNSUPPORTED,
                           "%s has an unknown model \"%.40s\"", path, text);
    if ((options->given & TRAIN_GAVE_MODEL) &&
        strcmp(text, options->model) != 0)
        return contradiction(path, "model", text, options->model);
    options->model = train_model_find(text)->name;
    train_options_complete(options);

    CORE_TRY(text_of(file, path, "optimizer", &text));
    while (optimizer < TRAIN_OPTIMIZERS &&
           strcmp(text, train_optimizers[optimizer]) != 0)
        optimizer++;
    if (optimizer == TRAIN_OPTIMIZERS)
        return train_error(CORE_ERROR_UNSUPPORTED,
                           "%s has an unknown optimizer \"%.40s\"", path, text);
    if ((options->given & TRAIN_GAVE_OPTIMIZER) &&
        optimizer != options->optimizer)
        return contradiction(path, "optimizer", text,
                             train_optimizers[options->optimizer]);
    options->optimizer = optimizer;
    return CORE_OK;
}

/* A checkpoint from before the option existed has none. */
static core_status take_amp(const core_safetensors *file, const char *path,
                            train_options *options)
{
    const char *text = core_safetensors_text(file, "amp");
    uint32_t amp = 0;

    if (!text)
        text = train_amps[TRAIN_AMP_OFF];
    while (amp < TRAIN_AMPS && strcmp(text, train_amps[amp]) != 0)
        amp++;
    if (amp == TRAIN_AMPS)
        return train_error(CORE_ERROR_UNSUPPORTED,
                           "%s has an unknown precision \"%.40s\"", path, text);
    if ((options->given & TRAIN_GAVE_AMP) && amp != options->amp)
        return contradiction(path, "amp", text, train_amps[options->amp]);
    options->amp = amp;
    return CORE_OK;
}

static core_status take_schedule(const core_safetensors *file, const char *path,
                                 train_options *options)
{
    const char *text = core_safetensors_text(file, "schedule");
    uint32_t schedule = 0;

    if (options->given & TRAIN_GAVE_SCHEDULE)
        return CORE_OK;
    while (text && schedule < TRAIN_SCHEDULES &&
           strcmp(text, train_schedules[schedule]) != 0)
        schedule++;
    if (schedule == TRAIN_SCHEDULES)
        return train_error(CORE_ERROR_UNSUPPORTED,
                           "%s has an unknown schedule \"%.40s\"", path, text);
    options->schedule = schedule;
    return CORE_OK;
}

static core_status take_whole(const core_safetensors *file, const char *path,
                              size_t index, train_options *options)
{
    int64_t *value = (int64_t *)(void *)((char *)options + saved[index].at);
    bool given = options->given & saved[index].given;
    int64_t found;
    char has[24], wants[24];

    CORE_TRY(integer_of(file, path, saved[index].name, 0, &found));
    if (given && saved[index].fixed && found != *value) {
        snprintf(has, sizeof has, "%lld", (long long)found);
        snprintf(wants, sizeof wants, "%lld", (long long)*value);
        return contradiction(path, saved[index].name, has, wants);
    }
    if (!given)
        *value = found;
    return CORE_OK;
}

static core_status take_options(const core_safetensors *file, const char *path,
                                train_options *options)
{
    for (size_t i = 0; i < SAVED; i++) {
        double *number = (double *)(void *)((char *)options + saved[i].at);
        double found;

        if (saved[i].later && !core_safetensors_text(file, saved[i].name))
            continue;
        if (!saved[i].number) {
            CORE_TRY(take_whole(file, path, i, options));
            continue;
        }
        CORE_TRY(number_of(file, path, saved[i].name, &found));
        if (!(options->given & saved[i].given))
            *number = found;
    }
    if (options->batch < 1 || options->context < 1 || options->layers < 1 ||
        options->heads < 1 || options->width < 1 || options->dropout >= 1 ||
        options->width % options->heads != 0)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is damaged: its options are invalid", path);
    return CORE_OK;
}

core_status checkpoint_options(const core_safetensors *file, const char *path,
                               train_options *options)
{
    const char *format = core_safetensors_text(file, "format");
    int64_t version;

    if (!format || strcmp(format, "core-train") != 0)
        return train_error(
            CORE_ERROR_CORRUPT,
            "%s is a safetensors file but not a checkpoint of core-train",
            path);
    CORE_TRY(integer_of(file, path, "format_version", 1, &version));
    if (version != 1)
        return train_error(CORE_ERROR_INCOMPATIBLE,
                           "%s is a checkpoint of version %lld; this "
                           "core-train reads version 1",
                           path, (long long)version);
    CORE_TRY(take_names(file, path, options));
    CORE_TRY(take_amp(file, path, options));
    CORE_TRY(take_schedule(file, path, options));
    if (core_safetensors_text(file, "shards")) {
        if (options->shard_level == TRAIN_SHARD_PARAMETERS)
            return contradiction(path, "shard", "states or gradients",
                                 "--shard=parameters");
        options->shards = true;
    }
    return take_options(file, path, options);
}

static core_status check_finite(const char *path, core_tensor *tensor,
                                const char *name)
{
    bool finite;

    CORE_TRY(train_tensor_finite(tensor, &finite));
    if (!finite)
        return train_error(
            CORE_ERROR_CORRUPT,
            "%s cannot be used: tensor \"%s\" has an infinite or NaN element",
            path, name);
    return CORE_OK;
}

/* Reads a tensor of f32 with so many elements, and continues the hash. */
static core_status load_numbers(const core_safetensors *file, const char *path,
                                const char *name, float *to, int64_t count,
                                uint64_t *digest)
{
    core_tensor *tensor;
    core_device *cpu;
    core_status status;

    CORE_TRY(core_device_find("cpu", &cpu));
    CORE_TRY(core_safetensors_load(file, name, cpu, &tensor));
    if (core_tensor_dtype(tensor) == CORE_F32 &&
        core_tensor_numel(tensor) == count)
        status = core_tensor_read(tensor, to, (size_t)count * sizeof *to);
    else
        status = train_error(CORE_ERROR_SHAPE,
                             "%s: tensor \"%s\" must have %lld elements of f32",
                             path, name, (long long)count);
    if (status == CORE_OK)
        status = check_finite(path, tensor, name);
    if (status == CORE_OK)
        status = train_tensor_digest(tensor, digest);
    core_tensor_release(tensor);
    return status;
}

/* Reads the tensors of a unit, "KIND.NAME" or "KIND.NAME.STATE", of which this
 * rank has a piece. */
static core_status load_unit(const core_safetensors *file, const char *path,
                             trainer *t, size_t index, const char *kind,
                             const char *state, core_tensor *piece)
{
    const train_pieces *all = t->model.pieces;
    const train_unit *unit = &all->units[index];
    float *numbers = malloc((size_t)unit->numel * sizeof *numbers);
    float *at = numbers;
    core_status status = CORE_OK;
    char name[80];

    if (!numbers)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a unit");
    for (size_t i = unit->first;
         status == CORE_OK && i < unit->first + unit->count; i++) {
        const train_whole *whole = &all->parameters[i];

        snprintf(name, sizeof name, "%s.%s%s%s", kind, whole->name,
                 state ? "." : "", state ? state : "");
        status =
            load_numbers(file, path, name, at, whole->numel, &t->read_digest);
        at += whole->numel;
    }
    if (status == CORE_OK)
        status = train_pieces_take(all, index, numbers, piece);
    free(numbers);
    return status;
}

/* Reads a tensor of which this rank of --tensor-parallel may have a part. */
static core_status load_part(const core_safetensors *file, const char *path,
                             const char *name, trainer *t, size_t parameter,
                             core_tensor *part)
{
    core_tensor *whole;
    core_device *cpu;
    core_status status;

    if (!t->tensor)
        return core_safetensors_load_into(file, name, part);
    CORE_TRY(core_device_find("cpu", &cpu));
    CORE_TRY(core_safetensors_load(file, name, cpu, &whole));
    if (core_tensor_numel(whole) == train_tensor_numel(&t->model, parameter))
        status = train_tensor_take(&t->model, parameter, whole, part);
    else
        status = train_error(
            CORE_ERROR_SHAPE,
            "%s: tensor \"%s\" must have %lld elements, it "
            "has %lld",
            path, name, (long long)train_tensor_numel(&t->model, parameter),
            (long long)core_tensor_numel(whole));
    if (status == CORE_OK)
        status = train_tensor_digest(whole, &t->read_digest);
    core_tensor_release(whole);
    return status;
}

/* A tensor of an optimizer's state, which has the parameter's sizes. */
static core_status load_slot(const core_safetensors *file, const char *path,
                             const char *slot, trainer *t, size_t parameter,
                             core_tensor **out_state)
{
    core_tensor *tensor = t->model.parameters[parameter];
    char name[80];

    *out_state = NULL;
    snprintf(name, sizeof name, "optimizer.%s.%s", t->model.names[parameter],
             slot);
    if (!t->tensor && !t->model.pieces)
        return core_safetensors_load(file, name, core_tensor_device(tensor),
                                     out_state);
    CORE_TRY(core_empty(core_tensor_sizes(tensor), core_tensor_ndim(tensor),
                        CORE_F32, core_tensor_device(tensor), -1, out_state));
    if (t->model.pieces)
        return load_unit(file, path, t, parameter, "optimizer", slot,
                         *out_state);
    return load_part(file, path, name, t, parameter, *out_state);
}

static core_status load_state(const core_safetensors *file, const char *path,
                              trainer *t, size_t parameter, int64_t steps)
{
    core_tensor *state[SLOTS] = {NULL};
    core_status status = CORE_OK;
    char name[80];
    const char *slot;
    size_t count = 0;

    while (status == CORE_OK &&
           (slot = core_optimizer_state_name(t->optimizer, count)) != NULL) {
        snprintf(name, sizeof name, "optimizer.%s.%s",
                 t->model.names[parameter], slot);
        status = load_slot(file, path, slot, t, parameter, &state[count]);
        if (status == CORE_OK && !t->model.pieces &&
            core_tensor_dtype(state[count]) == CORE_F32)
            status = check_finite(path, state[count], name);
        count++;
    }
    if (status == CORE_OK)
        status = core_optimizer_set_state(t->optimizer, parameter,
                                          (uint64_t)steps, state, count);
    for (size_t i = 0; i < SLOTS; i++)
        core_tensor_release(state[i]);
    return status;
}

/* Those of the parameters of a unit are equal: it is one for the optimizer. */
static core_status check_steps(const char *path, const trainer *t,
                               const int64_t *steps, size_t first, size_t end)
{
    for (size_t k = first; k < end; k++) {
        if (steps[k] < 0)
            return train_error(CORE_ERROR_CORRUPT,
                               "%s is damaged: a parameter has %lld steps",
                               path, (long long)steps[k]);
        if (steps[k] != steps[first])
            return train_error(
                CORE_ERROR_UNSUPPORTED,
                "%s cannot be resumed with --shard=parameters: %s has had "
                "%lld steps and %s %lld",
                path, t->model.pieces->parameters[first].name,
                (long long)steps[first], t->model.pieces->parameters[k].name,
                (long long)steps[k]);
    }
    return CORE_OK;
}

static core_status load_optimizer(const core_safetensors *file,
                                  const char *path, trainer *t)
{
    int64_t *steps, count = parameter_count(t);
    core_tensor *tensor = NULL;
    core_device *cpu;
    core_status status;

    CORE_TRY(core_device_find("cpu", &cpu));
    status = core_safetensors_load(file, "optimizer.steps", cpu, &tensor);
    if (status != CORE_OK)
        return status;
    steps = malloc((size_t)count * sizeof *steps);
    if (!steps)
        status = train_error(CORE_ERROR_OUT_OF_MEMORY,
                             "no memory to read a checkpoint");
    else if (core_tensor_dtype(tensor) != CORE_I64 ||
             core_tensor_ndim(tensor) != 1 ||
             core_tensor_numel(tensor) != count)
        status = train_error(CORE_ERROR_SHAPE,
                             "%s: tensor \"optimizer.steps\" must have %lld "
                             "elements of dtype i64",
                             path, (long long)count);
    else
        status = core_tensor_read(tensor, steps, (size_t)count * sizeof *steps);
    core_tensor_release(tensor);
    for (size_t i = 0; status == CORE_OK && i < t->model.count; i++) {
        size_t end, first = parameters_of(t, i, &end);

        status = check_steps(path, t, steps, first, end);
        if (status != CORE_OK)
            break;
        if (steps[first] > 0)
            status = load_state(file, path, t, i, steps[first]);
    }
    free(steps);
    return status;
}

/* --shard is an option of a whole run, because of where its state is. */
static core_status load_any_optimizer(const core_safetensors *file,
                                      const char *path, trainer *t)
{
    const char *shards = core_safetensors_text(file, "shards");

    if (!t->shard)
        return load_optimizer(file, path, t);
    if (!shards)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s was made without --shard and cannot be resumed "
                           "with it",
                           path);
    if (strlen(shards) >= TRAIN_SUFFIX || strchr(shards, '/'))
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is damaged: entry \"shards\" is \"%.40s\"", path,
                           shards);
    return train_shard_load(t, path, shards);
}

/* Weights of one text's characters mean nothing for another text. */
static core_status check_text(const core_safetensors *file, const char *path,
                              const trainer *t)
{
    const char *digest;
    char here[24];

    if (!t->text.count)
        return CORE_OK;
    CORE_TRY(text_of(file, path, "text.digest", &digest));
    snprintf(here, sizeof here, "%016llx", (unsigned long long)t->text.digest);
    if (strcmp(here, digest) != 0)
        return train_error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s was made with a different text than %s (--text, --limit)", path,
            t->options.text);
    return CORE_OK;
}

static core_status load_progress(const core_safetensors *file, const char *path,
                                 trainer *t)
{
    int64_t images, seed, offset;

    CORE_TRY(integer_of(file, path, "images", 1, &images));
    if (images != t->train.count)
        return train_error(CORE_ERROR_SHAPE,
                           "%s was made with %lld training %s, but the data "
                           "have %lld (--limit, --data)",
                           path, (long long)images, t->task->samples,
                           (long long)t->train.count);
    CORE_TRY(integer_of(file, path, "epoch", 0, &t->epoch));
    CORE_TRY(integer_of(file, path, "position", 0, &t->position));
    if (t->position >= images || t->position % t->options.batch != 0)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is damaged: it stopped at sample %lld of %lld",
                           path, (long long)t->position, (long long)images);
    CORE_TRY(integer_of(file, path, "generator.seed", 0, &seed));
    CORE_TRY(integer_of(file, path, "generator.offset", 0, &offset));
    core_generator_set_state(NULL, (uint64_t)seed, (uint64_t)offset);
    CORE_TRY(
        core_safetensors_load_into(file, "progress.loss_sum", t->loss_sum));
    return core_safetensors_load_into(file, "progress.correct", t->correct);
}

static core_status load_scaler(const core_safetensors *file, const char *path,
                               trainer *t)
{
    core_grad_scaler_state state = {.struct_size = sizeof state};
    int64_t interval, tracker;

    if (core_safetensors_text(file, "skipped_steps"))
        CORE_TRY(integer_of(file, path, "skipped_steps", 0, &t->skipped));
    if (!t->scaler)
        return CORE_OK;
    CORE_TRY(number_of(file, path, "scaler.scale", &state.scale));
    CORE_TRY(
        number_of(file, path, "scaler.growth_factor", &state.growth_factor));
    CORE_TRY(
        number_of(file, path, "scaler.backoff_factor", &state.backoff_factor));
    CORE_TRY(integer_of(file, path, "scaler.growth_interval", 1, &interval));
    CORE_TRY(integer_of(file, path, "scaler.growth_tracker", 0, &tracker));
    state.growth_interval = (uint64_t)interval;
    state.growth_tracker = (uint64_t)tracker;
    if (core_grad_scaler_set_state(t->scaler, &state) != CORE_OK)
        return train_error(CORE_ERROR_CORRUPT, "%s is damaged: %s", path,
                           core_error_message());
    return CORE_OK;
}

static core_status load_quantizers(const core_safetensors *file,
                                   const char *path, trainer *t)
{
    core_tensor *tensors[TRAIN_FP8_TENSORS] = {NULL};
    core_device *cpu;
    core_status status;

    if (!t->model.fp8)
        return CORE_OK;
    status = core_device_find("cpu", &cpu);
    for (int i = 0; i < TRAIN_FP8_TENSORS && status == CORE_OK; i++)
        status =
            core_safetensors_load(file, train_fp8_names[i], cpu, &tensors[i]);
    if (status == CORE_OK)
        status = train_fp8_load(t->model.fp8, path, tensors);
    for (int i = 0; i < TRAIN_FP8_TENSORS; i++)
        core_tensor_release(tensors[i]);
    return status;
}

core_status checkpoint_load(const core_safetensors *file, const char *path,
                            trainer *t)
{
    char name[80];

    CORE_TRY(check_text(file, path, t));
    for (size_t i = 0; i < t->model.count; i++) {
        snprintf(name, sizeof name, "model.%s", t->model.names[i]);
        CORE_TRY(t->model.pieces ? load_unit(file, path, t, i, "model", NULL,
                                             t->model.parameters[i])
                                 : load_part(file, path, name, t, i,
                                             t->model.parameters[i]));
        if (!t->model.pieces)
            CORE_TRY(check_finite(path, t->model.parameters[i], name));
    }
    CORE_TRY(load_any_optimizer(file, path, t));
    CORE_TRY(load_scaler(file, path, t));
    CORE_TRY(load_quantizers(file, path, t));
    return load_progress(file, path, t);
}
