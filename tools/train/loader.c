/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The batches of an epoch: a data loader reads them ahead in its threads, and
 * copies them to the device. */

#include "layers.h"

#include <string.h>

/* A batch of which this rank has no samples. */
static core_status read_nothing(core_tensor **outputs)
{
    core_scope scope = core_scope_begin();
    core_tensor *none = core_x_zeros(CORE_SIZES(0), CORE_F32, NULL);

    core_scope_output(none, &outputs[0]);
    core_scope_output(none, &outputs[1]);
    return core_scope_end(scope);
}

/* The samples at the places of the epoch's order. */
static core_status read_samples(const trainer *t, const int64_t *order,
                                int64_t count, core_tensor **outputs)
{
    core_scope scope = core_scope_begin();
    core_tensor *inputs = NULL, *labels = NULL;
    core_tensor *places = core_x_from_data(order, CORE_I64, CORE_SIZES(count),
                                           core_tensor_device(t->train.data));

    t->task->batch(t, &t->train, places, &inputs, &labels);
    core_scope_output(inputs, &outputs[0]);
    core_scope_output(labels, &outputs[1]);
    return core_scope_end(scope);
}

/* In the epoch's order, train_shuffle: checkpoints of earlier versions continue
 * with the one that they began. */
static core_status read_batch(void *context, const int64_t *samples,
                              size_t count, core_tensor **outputs,
                              size_t *noutputs)
{
    const trainer *t = context;
    int64_t first = 0, end = (int64_t)count;

    train_distributed_part(t, (int64_t)count, &first, &end);
    *noutputs = 2;
    if (first == end)
        return read_nothing(outputs);
    return read_samples(t, t->order + t->first + samples[0] + first,
                        end - first, outputs);
}

core_status train_loader_begin(trainer *t)
{
    const core_data_source source = {.struct_size = sizeof source,
                                     .count = t->train.count - t->position,
                                     .read = read_batch,
                                     .context = t};
    core_data_options options = {.struct_size = sizeof options,
                                 .batch_size = t->options.batch,
                                 .device = t->device};

    if (source.count == 0)
        return CORE_OK;
    options.threads = t->options.loaders >= 0 ? (uint32_t)t->options.loaders
                      : strcmp(core_device_type(t->device), "cpu") == 0 ? 0
                                                                        : 2;
    t->first = t->position;
    CORE_TRY(core_data_loader_create(&source, &options, &t->loader));
    return core_data_loader_begin(t->loader, 0, 0);
}
