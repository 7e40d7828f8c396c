/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The confusion matrix: rows are the actual classes, columns the predicted
 * ones. */

#include "train.h"

#include <stdlib.h>

static core_status count_part(const trainer *t, int64_t first, int64_t count,
                              int64_t *numbers, int64_t *said,
                              train_confusion *confusion)
{
    const int64_t classes = 1;
    core_tensor *places = NULL, *inputs = NULL, *labels = NULL, *logits = NULL,
                *best = NULL;
    core_status status;

    for (int64_t i = 0; i < count; i++)
        numbers[i] = first + i;
    status =
        core_tensor_from_data(numbers, CORE_I64, &count, 1, t->device, &places);
    if (status == CORE_OK)
        status = t->task->batch(t, &t->test, places, &inputs, &labels);
    if (status == CORE_OK)
        status = train_logits(t, inputs, false, &logits);
    if (status == CORE_OK)
        status = core_argmax(logits, &classes, false, &best);
    if (status == CORE_OK)
        status = core_tensor_read(best, said, (size_t)count * sizeof *said);
    if (status == CORE_OK)
        status =
            core_tensor_read(labels, numbers, (size_t)count * sizeof *numbers);
    for (int64_t i = 0; status == CORE_OK && i < count; i++)
        confusion->count[numbers[i]][said[i]]++;
    core_tensor_release(places);
    core_tensor_release(inputs);
    core_tensor_release(labels);
    core_tensor_release(logits);
    core_tensor_release(best);
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
