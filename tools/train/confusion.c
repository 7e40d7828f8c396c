/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The confusion matrix: rows are the actual classes, columns the predicted
 * ones. */

#include "layers.h"

#include <stdlib.h>

static core_status count_part(const trainer *t, int64_t first, int64_t count,
                              int64_t *numbers, int64_t *said,
                              train_confusion *confusion)
{
    size_t size = (size_t)count * sizeof *numbers;
    core_scope scope = core_scope_begin();
    core_tensor *places, *inputs, *labels, *best;
    core_status status;

    for (int64_t i = 0; i < count; i++)
        numbers[i] = first + i;
    places = core_x_from_data(numbers, CORE_I64, CORE_SIZES(count), t->device);
    t->task->batch(t, &t->test, places, &inputs, &labels);
    best = core_x_argmax(train_logits(t, inputs, false), core_int(1));
    CORE_CHECK(core_tensor_read(best, said, size));
    CORE_CHECK(core_tensor_read(labels, numbers, size));
    status = core_scope_end(scope);
    for (int64_t i = 0; status == CORE_OK && i < count; i++)
        confusion->count[numbers[i]][said[i]]++;
    return status;
}

core_status train_confuse(const trainer *t, train_confusion *out_confusion)
{
    int64_t part = t->task->part;
    int64_t *numbers = malloc(2 * (size_t)part * sizeof *numbers);
    bool before;
    core_status status = CORE_OK;

    *out_confusion = (train_confusion){.classes = TRAIN_CLASSES};
    if (!numbers)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for the confusion matrix");
    before = core_grad_mode_set(false);
    for (int64_t first = 0; status == CORE_OK && first < t->test.count;
         first += part) {
        int64_t left = t->test.count - first;

        status = count_part(t, first, left < part ? left : part, numbers,
                            numbers + part, out_confusion);
    }
    core_grad_mode_set(before);
    free(numbers);
    return status;
}
