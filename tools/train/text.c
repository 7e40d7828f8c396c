/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The text task: predict the next character.  A sample is a window of `context`
 * characters; its labels are the characters shifted by one.  Windows are
 * adjacent, with another offset in each epoch; the last tenth of the text is
 * for validation. */

#include "layers.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- file -- */

static core_status read_all(FILE *file, const char *path, int64_t limit,
                            train_text *text)
{
    size_t capacity = 0, size = 0, got;

    do {
        uint8_t *larger;

        capacity = capacity ? 2 * capacity : 65536;
        if (limit && capacity > (size_t)limit)
            capacity = (size_t)limit;
        larger = realloc(text->bytes, capacity);
        if (!larger)
            return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for %s",
                               path);
        text->bytes = larger;
        got = fread(larger + size, 1, capacity - size, file);
        size += got;
    } while (size == capacity && (!limit || size < (size_t)limit));
    if (ferror(file))
        return train_error(CORE_ERROR_IO, "cannot read %s: %s", path,
                           strerror(errno));
    text->size = (int64_t)size;
    return CORE_OK;
}

static void number_characters(train_text *text)
{
    uint8_t number[256] = {0};
    bool seen[256] = {false};

    text->digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (int64_t i = 0; i < text->size; i++) {
        seen[text->bytes[i]] = true;
        text->digest =
            (text->digest ^ text->bytes[i]) * UINT64_C(0x100000001b3);
    }
    text->count = 0;
    for (int c = 0; c < 256; c++)
        if (seen[c]) {
            number[c] = (uint8_t)text->count;
            text->known[text->count++] = (uint8_t)c;
        }
    for (int64_t i = 0; i < text->size; i++)
        text->bytes[i] = number[text->bytes[i]];
}

core_status train_text_read(train_text *text, const char *path, int64_t limit)
{
    core_status status;
    FILE *file;

    memset(text, 0, sizeof *text);
    file = fopen(path, "rb");
    if (!file)
        return train_error(errno == ENOENT ? CORE_ERROR_NOT_FOUND
                                           : CORE_ERROR_IO,
                           "cannot read %s: %s", path, strerror(errno));
    status = read_all(file, path, limit, text);
    fclose(file);
    if (status == CORE_OK)
        number_characters(text);
    return status;
}

void train_text_free(train_text *text)
{
    free(text->bytes);
    text->bytes = NULL;
}

/* ----------------------------------------------------------------- sets -- */

static core_status upload(train_set *set, const train_text *text, int64_t first,
                          int64_t size, core_device *device)
{
    int64_t *numbers = malloc((size_t)size * sizeof *numbers);
    core_status status;

    if (!numbers)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for %lld characters", (long long)size);
    for (int64_t i = 0; i < size; i++)
        numbers[i] = text->bytes[first + i];
    status =
        core_tensor_from_data(numbers, CORE_I64, &size, 1, device, &set->data);
    free(numbers);
    return status;
}

static core_status load(trainer *t)
{
    const train_options *options = &t->options;
    int64_t context = options->context, kept;
    core_device *host;

    if (!options->text)
        return train_error(CORE_ERROR_INVALID_ARGUMENT,
                           "--model gpt requires --text FILE");
    CORE_TRY(train_text_read(&t->text, options->text, options->limit));
    kept = t->text.size / 10;
    /* A window may begin up to context - 1 later than in the first epoch. */
    t->train.count = (t->text.size - kept - context) / context;
    t->test.count = (kept - 1) / context;
    if (t->text.size - kept < 2 * context || kept <= context)
        return train_error(CORE_ERROR_SHAPE,
                           "%s has %lld characters; with --context %lld at "
                           "least %lld are required",
                           options->text, (long long)t->text.size,
                           (long long)context, (long long)context * 10 + 10);
    CORE_TRY(core_device_find("cpu", &host));
    CORE_TRY(upload(&t->train, &t->text, 0, t->text.size - kept, host));
    return upload(&t->test, &t->text, t->text.size - kept, kept, t->device);
}

static void places(const trainer *t, int64_t *samples, int64_t count,
                   int64_t epoch)
{
    int64_t context = t->options.context, shift = 0;

    if (epoch >= 0)
        shift = train_random_below(train_random((uint64_t)t->options.seed,
                                                TRAIN_STREAM_SHIFT,
                                                (uint64_t)epoch),
                                   context);
    for (int64_t i = 0; i < count; i++)
        samples[i] = samples[i] * context + shift;
}

/* Returns [n, context + 1]. */
static core_tensor *gather(const train_set *set, core_tensor *begins,
                           int64_t context)
{
    int64_t n = core_x_size(begins, 0);
    core_tensor *steps, *index;

    steps = core_x_arange(core_int(context + 1), CORE_I64,
                          core_tensor_device(set->data));
    index = core_x_add(core_x_reshape(begins, CORE_SIZES(n, 1)), steps);
    index = core_x_reshape(index, CORE_SIZES(-1));
    return core_x_reshape(core_x_index_select(set->data, 0, index),
                          CORE_SIZES(n, context + 1));
}

static void batch(const trainer *t, const train_set *set, core_tensor *begins,
                  core_tensor **out_inputs, core_tensor **out_labels)
{
    int64_t context = t->options.context;
    core_tensor *windows = gather(set, begins, context);

    *out_inputs = core_x_narrow(windows, 1, 0, context);
    *out_labels =
        core_x_reshape(core_x_narrow(windows, 1, 1, context), CORE_SIZES(-1));
}

static int64_t labels(const trainer *t)
{
    return t->options.context;
}

static int64_t classes(const trainer *t)
{
    return t->text.count;
}

const train_task train_text_task = {
    .samples = "windows",
    .half = "validation",
    .unit = "characters",
    .part = 32,
    .labels = labels,
    .load = load,
    .classes = classes,
    .places = places,
    .batch = batch,
};

/* --------------------------------------------------------------- writing -- */

/* Samples an index with the probabilities of the logits. */
static int64_t draw(const float *logits, int64_t count, double chance)
{
    double most = logits[0], sum = 0, reached = 0;

    for (int64_t i = 1; i < count; i++)
        if (logits[i] > most)
            most = logits[i];
    for (int64_t i = 0; i < count; i++)
        sum += exp(logits[i] - most);
    for (int64_t i = 0; i < count; i++) {
        reached += exp(logits[i] - most) / sum;
        if (chance < reached)
            return i;
    }
    return count - 1;
}

/* Predicts the character that follows `length` others. */
static core_status next(const trainer *t, const int64_t *numbers,
                        int64_t length, uint64_t index, int64_t *out_number)
{
    uint64_t random =
        train_random((uint64_t)t->options.seed, TRAIN_STREAM_SAMPLE, index);
    core_scope scope = core_scope_begin();
    core_tensor *inputs, *last;
    float values[256] = {0};
    core_status status;

    inputs =
        core_x_from_data(numbers, CORE_I64, CORE_SIZES(1, length), t->device);
    last = core_x_select(train_logits(t, inputs, false), 0, length - 1);
    CORE_CHECK(
        core_tensor_read(last, values, (size_t)t->text.count * sizeof *values));
    status = core_scope_end(scope);
    if (status == CORE_OK)
        *out_number =
            draw(values, t->text.count, (double)(random >> 11) * 0x1p-53);
    return status;
}

core_status train_text_sample(const trainer *t, int64_t size, char *out_text)
{
    int64_t context = t->options.context;
    int64_t *numbers = malloc((size_t)(size + 1) * sizeof *numbers);
    bool before = core_grad_mode_set(false);
    core_status status = CORE_OK;

    *out_text = 0;
    if (!numbers)
        status = train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a text");
    else
        numbers[0] = t->text.bytes[0]; /* the beginning of the text */
    for (int64_t i = 0; status == CORE_OK && i < size; i++) {
        int64_t from = i + 1 > context ? i + 1 - context : 0;

        status =
            next(t, numbers + from, i + 1 - from, (uint64_t)i, &numbers[i + 1]);
        if (status == CORE_OK)
            out_text[i] = (char)t->text.known[numbers[i + 1]];
        out_text[i + 1] = 0;
    }
    free(numbers);
    core_grad_mode_set(before);
    return status;
}
