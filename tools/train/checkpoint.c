/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A checkpoint is a safetensors file:
 *
 *     model.NAME               a parameter
 *     optimizer.NAME.STATE     what the optimizer keeps of it
 *     optimizer.steps          i64, how often each parameter was stepped
 *     progress.loss_sum, progress.correct   of the epoch that was begun
 *
 * and texts: what the options were, how far training came, and the state of
 * the random generator.  The order of the images follows from seed and
 * epoch. */

#include "train.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2, NAMES = TRAIN_PARAMETERS * (1 + SLOTS) + 3, TEXTS = 16 };

typedef struct contents {
    core_named_tensor tensors[NAMES];
    char names[NAMES][80];
    size_t tensor_count;
    core_named_text texts[TEXTS];
    char values[TEXTS][40];
    size_t text_count;
    core_tensor *steps;
} contents;

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

static void collect_texts(contents *c, const trainer *t)
{
    const train_options *options = &t->options;
    uint64_t seed, offset;

    core_generator_state(NULL, &seed, &offset);
    add_text(c, "format", "core-train");
    add_text(c, "format_version", "1");
    add_text(c, "model", "%s", t->model.kind->name);
    add_text(c, "optimizer", "%s", train_optimizers[options->optimizer]);
    add_text(c, "lr", "%.17g", options->lr);
    add_text(c, "lr_decay", "%.17g", options->lr_decay);
    add_text(c, "momentum", "%.17g", options->momentum);
    add_text(c, "weight_decay", "%.17g", options->weight_decay);
    add_text(c, "batch", "%lld", (long long)options->batch);
    add_text(c, "seed", "%llu", (unsigned long long)options->seed);
    add_text(c, "images", "%lld", (long long)t->train.count);
    add_text(c, "epoch", "%lld", (long long)t->epoch);
    add_text(c, "position", "%lld", (long long)t->position);
    add_text(c, "generator.seed", "%llu", (unsigned long long)seed);
    add_text(c, "generator.offset", "%llu", (unsigned long long)offset);
}

static core_status collect_tensors(contents *c, const trainer *t)
{
    int64_t steps[TRAIN_PARAMETERS], count = (int64_t)t->model.count;
    core_device *cpu;
    core_status status;

    for (size_t i = 0; i < t->model.count; i++) {
        const char *slot;

        add_tensor(c, t->model.parameters[i], "model.%s", t->model.names[i]);
        steps[i] = (int64_t)core_optimizer_steps(t->optimizer, i);
        for (size_t k = 0;
             (slot = core_optimizer_state_name(t->optimizer, k)) != NULL; k++)
            if (steps[i] > 0)
                add_tensor(c, core_optimizer_state(t->optimizer, i, k),
                           "optimizer.%s.%s", t->model.names[i], slot);
    }
    add_tensor(c, t->loss_sum, "progress.loss_sum");
    add_tensor(c, t->correct, "progress.correct");
    CORE_TRY(core_device_find("cpu", &cpu));
    status = core_tensor_from_data(steps, CORE_I64, &count, 1, cpu, &c->steps);
    core_device_release(cpu);
    if (status == CORE_OK)
        add_tensor(c, c->steps, "optimizer.steps");
    return status;
}

core_status checkpoint_save(const trainer *t, const char *path)
{
    contents *c = calloc(1, sizeof *c);
    core_status status;

    if (!c)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for a checkpoint");
    collect_texts(c, t);
    status = collect_tensors(c, t);
    if (status == CORE_OK)
        status = core_safetensors_save(path, c->tensors, c->tensor_count,
                                       c->texts, c->text_count);
    core_tensor_release(c->steps);
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
                           "%s is damaged: it has no text \"%s\"", path, name);
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
                           "%s is damaged: its text \"%s\" is \"%.40s\"", path,
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
                           "%s is damaged: its text \"%s\" is \"%.40s\"", path,
                           name, text);
    return CORE_OK;
}

static core_status contradiction(const char *path, const char *option,
                                 const char *has, const char *given)
{
    return train_error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s was made with --%s %s and cannot go on with %s",
                       path, option, has, given);
}

/* Names: model and optimizer. */
static core_status take_names(const core_safetensors *file, const char *path,
                              train_options *options)
{
    const char *text;
    uint32_t optimizer = 0;

    CORE_TRY(text_of(file, path, "model", &text));
    if (!train_model_find(text))
        return train_error(CORE_ERROR_UNSUPPORTED,
                           "%s has a model \"%.40s\", which this core-train "
                           "does not know",
                           path, text);
    if ((options->given & TRAIN_GAVE_MODEL) &&
        strcmp(text, options->model) != 0)
        return contradiction(path, "model", text, options->model);
    options->model = train_model_find(text)->name;

    CORE_TRY(text_of(file, path, "optimizer", &text));
    while (optimizer < TRAIN_OPTIMIZERS &&
           strcmp(text, train_optimizers[optimizer]) != 0)
        optimizer++;
    if (optimizer == TRAIN_OPTIMIZERS)
        return train_error(CORE_ERROR_UNSUPPORTED,
                           "%s has an optimizer \"%.40s\", which this "
                           "core-train does not know",
                           path, text);
    if ((options->given & TRAIN_GAVE_OPTIMIZER) &&
        optimizer != options->optimizer)
        return contradiction(path, "optimizer", text,
                             train_optimizers[options->optimizer]);
    options->optimizer = optimizer;
    return CORE_OK;
}

/* What the order of the images depends on must stay. */
static core_status take_order(const core_safetensors *file, const char *path,
                              train_options *options)
{
    int64_t batch, seed;
    char has[24], given[24];

    CORE_TRY(integer_of(file, path, "batch", 1, &batch));
    CORE_TRY(integer_of(file, path, "seed", 0, &seed));
    if ((options->given & TRAIN_GAVE_BATCH) && batch != options->batch) {
        snprintf(has, sizeof has, "%lld", (long long)batch);
        snprintf(given, sizeof given, "%lld", (long long)options->batch);
        return contradiction(path, "batch", has, given);
    }
    if ((options->given & TRAIN_GAVE_SEED) && (uint64_t)seed != options->seed) {
        snprintf(has, sizeof has, "%lld", (long long)seed);
        snprintf(given, sizeof given, "%lld", (long long)options->seed);
        return contradiction(path, "seed", has, given);
    }
    options->batch = batch;
    options->seed = (uint64_t)seed;
    return CORE_OK;
}

core_status checkpoint_options(const core_safetensors *file, const char *path,
                               train_options *options)
{
    const char *format = core_safetensors_text(file, "format");
    double lr, lr_decay, momentum, weight_decay;
    int64_t version;

    if (!format || strcmp(format, "core-train") != 0)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is a safetensors file, but no checkpoint of "
                           "core-train",
                           path);
    CORE_TRY(integer_of(file, path, "format_version", 1, &version));
    if (version != 1)
        return train_error(CORE_ERROR_INCOMPATIBLE,
                           "%s is a checkpoint of version %lld; this "
                           "core-train reads version 1",
                           path, (long long)version);
    CORE_TRY(take_names(file, path, options));
    CORE_TRY(take_order(file, path, options));
    CORE_TRY(number_of(file, path, "lr", &lr));
    CORE_TRY(number_of(file, path, "lr_decay", &lr_decay));
    CORE_TRY(number_of(file, path, "momentum", &momentum));
    CORE_TRY(number_of(file, path, "weight_decay", &weight_decay));
    /* These may change on the way. */
    if (!(options->given & TRAIN_GAVE_LR))
        options->lr = lr;
    if (!(options->given & TRAIN_GAVE_LR_DECAY))
        options->lr_decay = lr_decay;
    if (!(options->given & TRAIN_GAVE_MOMENTUM))
        options->momentum = momentum;
    if (!(options->given & TRAIN_GAVE_WEIGHT_DECAY))
        options->weight_decay = weight_decay;
    return CORE_OK;
}

static core_status load_state(const core_safetensors *file, trainer *t,
                              size_t parameter, int64_t steps)
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
        status = core_safetensors_load(file, name, t->device, &state[count]);
        count++;
    }
    if (status == CORE_OK)
        status = core_optimizer_set_state(t->optimizer, parameter,
                                          (uint64_t)steps, state, count);
    for (size_t i = 0; i < SLOTS; i++)
        core_tensor_release(state[i]);
    return status;
}

static core_status load_optimizer(const core_safetensors *file,
                                  const char *path, trainer *t)
{
    int64_t steps[TRAIN_PARAMETERS], count = (int64_t)t->model.count;
    core_tensor *tensor = NULL;
    core_device *cpu;
    core_status status;

    CORE_TRY(core_device_find("cpu", &cpu));
    status = core_safetensors_load(file, "optimizer.steps", cpu, &tensor);
    core_device_release(cpu);
    if (status != CORE_OK)
        return status;
    if (core_tensor_dtype(tensor) != CORE_I64 ||
        core_tensor_ndim(tensor) != 1 || core_tensor_numel(tensor) != count)
        status = train_error(CORE_ERROR_SHAPE,
                             "%s: tensor \"optimizer.steps\" must be %lld "
                             "numbers of dtype i64",
                             path, (long long)count);
    else
        status = core_tensor_read(tensor, steps, (size_t)count * sizeof *steps);
    core_tensor_release(tensor);
    for (size_t i = 0; status == CORE_OK && i < t->model.count; i++) {
        if (steps[i] < 0)
            status = train_error(CORE_ERROR_CORRUPT,
                                 "%s is damaged: a parameter was stepped %lld "
                                 "times",
                                 path, (long long)steps[i]);
        else if (steps[i] > 0)
            status = load_state(file, t, i, steps[i]);
    }
    return status;
}

static core_status load_progress(const core_safetensors *file, const char *path,
                                 trainer *t)
{
    int64_t images, seed, offset;

    CORE_TRY(integer_of(file, path, "images", 1, &images));
    if (images != t->train.count)
        return train_error(CORE_ERROR_SHAPE,
                           "%s was made with %lld training images, and here "
                           "are %lld (--limit, --data)",
                           path, (long long)images, (long long)t->train.count);
    CORE_TRY(integer_of(file, path, "epoch", 0, &t->epoch));
    CORE_TRY(integer_of(file, path, "position", 0, &t->position));
    if (t->position >= images || t->position % t->options.batch != 0)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is damaged: it stopped at image %lld of %lld",
                           path, (long long)t->position, (long long)images);
    CORE_TRY(integer_of(file, path, "generator.seed", 0, &seed));
    CORE_TRY(integer_of(file, path, "generator.offset", 0, &offset));
    core_generator_set_state(NULL, (uint64_t)seed, (uint64_t)offset);
    CORE_TRY(
        core_safetensors_load_into(file, "progress.loss_sum", t->loss_sum));
    return core_safetensors_load_into(file, "progress.correct", t->correct);
}

core_status checkpoint_load(const core_safetensors *file, const char *path,
                            trainer *t)
{
    char name[80];

    for (size_t i = 0; i < t->model.count; i++) {
        snprintf(name, sizeof name, "model.%s", t->model.names[i]);
        CORE_TRY(
            core_safetensors_load_into(file, name, t->model.parameters[i]));
    }
    CORE_TRY(load_optimizer(file, path, t));
    return load_progress(file, path, t);
}
