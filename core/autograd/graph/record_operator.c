/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Creates the graph node of an operator call from its arguments and results. */

#include "autograd/graph/anomaly.h"
#include "autograd/graph/layer.h"

#include "autograd/graph/node_make.h"

#include <string.h>

/* ---------------------------------------------------------------- sizing -- */

static size_t aligned(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

/* The sizes of a list of tensors are saved as one list: ndim and sizes of
 * each. */
static uint32_t list_sizes_count(const core_value *list)
{
    uint32_t count = list->count;

    for (uint32_t i = 0; i < list->count; i++)
        if (list->u.tensors[i])
            count += list->u.tensors[i]->ndim;
    return count;
}

/* Bytes that the copy of a saved value takes at the end of the node. */
static size_t value_size(const core__saving *saving, const core_value *arg)
{
    if (saving->kind == CORE__SAVE_SIZES && arg->tag == CORE_VALUE_TENSOR)
        return arg->u.tensor->ndim * sizeof(int64_t);
    if (saving->kind == CORE__SAVE_LAYOUT && arg->tag == CORE_VALUE_TENSOR)
        return (1 + 2 * arg->u.tensor->ndim) * sizeof(int64_t);
    if (saving->kind == CORE__SAVE_SIZES && arg->tag == CORE_VALUE_TENSOR_LIST)
        return list_sizes_count(arg) * sizeof(int64_t);
    if (saving->kind != CORE__SAVE_VALUE)
        return 0;
    switch (arg->tag) {
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        return arg->count * sizeof(int64_t);
    case CORE_VALUE_BOOL_LIST:
        return aligned(arg->count);
    case CORE_VALUE_STRING:
        return aligned(arg->count + 1);
    default:
        return 0;
    }
}

static uint32_t flat_count(const core_value *results, uint32_t nresults,
                           size_t *out_dims)
{
    uint32_t count = 0;

    *out_dims = 0;
    for (uint32_t i = 0; i < nresults; i++) {
        const core_value *result = &results[i];

        if (result->tag == CORE_VALUE_TENSOR) {
            *out_dims += result->u.tensor->ndim;
            count++;
        } else if (result->tag == CORE_VALUE_TENSOR_LIST) {
            for (uint32_t j = 0; j < result->count; j++)
                *out_dims += result->u.tensors[j]->ndim;
            count += result->count;
        } else {
            count++;
        }
    }
    return count;
}

/* --------------------------------------------------------------- filling -- */

static inline void fill_meta(core__tensor_meta *meta, const core_tensor *tensor,
                             int64_t **sizes)
{
    for (uint32_t i = 0; i < tensor->ndim; i++)
        (*sizes)[i] = tensor->sizes[i];
    core__tensor_meta_fill(meta, tensor, *sizes);
    *sizes += tensor->ndim;
}

static inline void fill_inputs(core_node *node, const core_value *results,
                               uint32_t nresults, int64_t **sizes)
{
    core__tensor_meta *meta = node->inputs;

    for (uint32_t i = 0; i < nresults; i++) {
        const core_value *result = &results[i];

        if (core__likely(result->tag == CORE_VALUE_TENSOR)) {
            fill_meta(meta++, result->u.tensor, sizes);
        } else if (result->tag == CORE_VALUE_TENSOR_LIST) {
            for (uint32_t j = 0; j < result->count; j++)
                fill_meta(meta++, result->u.tensors[j], sizes);
        } else {
            *meta++ = (core__tensor_meta){0};
        }
    }
}

static core_status fill_edges(core_node *node, const core__recording *recording)
{
    const core__gradient *gradient = recording->gradient;
    core__edge *edge = node->edges;

    for (uint32_t i = 0; i < gradient->ngradients; i++) {
        const core_value *arg = &recording->args[gradient->arguments[i]];
        bool needed = recording->needed >> i & 1;

        node->counts[i] = 1;
        if (core__unlikely(arg->tag == CORE_VALUE_TENSOR_LIST)) {
            node->counts[i] = (uint16_t)arg->count;
            for (uint32_t j = 0; j < arg->count; j++, edge++)
                if (arg->u.tensors[j] &&
                    core__tensor_needs_grad(arg->u.tensors[j]))
                    CORE_TRY(core__gradient_edge(arg->u.tensors[j], edge));
        } else {
            if (needed)
                CORE_TRY(core__gradient_edge(arg->u.tensor, edge));
            edge++;
        }
    }
    return CORE_OK;
}

/* Saves ndim and sizes of each tensor in a list. */
static void save_list_sizes(core__saved *saved, const core_value *list,
                            char **extra)
{
    int64_t *sizes = (int64_t *)(void *)*extra;

    saved->kind = CORE__SAVED_VALUE;
    saved->value = (core_value){
        CORE_VALUE_INT_LIST, list_sizes_count(list), {.ints = sizes}};
    for (uint32_t i = 0; i < list->count; i++) {
        const core_tensor *tensor = list->u.tensors[i];

        *sizes++ = tensor ? tensor->ndim : 0;
        for (uint32_t d = 0; tensor && d < tensor->ndim; d++)
            *sizes++ = tensor->sizes[d];
    }
    *extra = (char *)sizes;
}

static void save_layout(core__saved *saved, const core_tensor *tensor,
                        char **extra)
{
    int64_t *layout = (int64_t *)(void *)*extra;

    saved->kind = CORE__SAVED_VALUE;
    saved->value = (core_value){
        CORE_VALUE_INT_LIST, 1 + 2 * tensor->ndim, {.ints = layout}};
    *layout++ = tensor->offset;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        layout[d] = tensor->sizes[d];
        layout[tensor->ndim + d] = tensor->strides[d];
    }
    *extra = (char *)(layout + 2 * tensor->ndim);
}

/* Copies what a value points to into the node's block. */
static void save_value(core__saved *saved, const core__saving *saving,
                       const core_value *arg, char **extra)
{
    core_value value = {0};
    size_t size = value_size(saving, arg);
    const core_tensor *tensor =
        arg->tag == CORE_VALUE_TENSOR ? arg->u.tensor : NULL;

    switch (saving->kind) {
    case CORE__SAVE_SIZES:
        if (arg->tag == CORE_VALUE_TENSOR_LIST) {
            save_list_sizes(saved, arg, extra);
            return;
        }
        if (tensor)
            value = (core_value){
                CORE_VALUE_INT_LIST, tensor->ndim, {.ints = tensor->sizes}};
        break;
    case CORE__SAVE_LAYOUT:
        if (tensor) {
            save_layout(saved, tensor, extra);
            return;
        }
        break;
    case CORE__SAVE_DTYPE:
        if (tensor)
            value = (core_value){CORE_VALUE_DTYPE, 0, {.i = tensor->dtype}};
        break;
    case CORE__SAVE_NDIM:
        if (tensor)
            value = (core_value){CORE_VALUE_INT, 0, {.i = tensor->ndim}};
        break;
    case CORE__SAVE_DEVICE:
        if (tensor)
            value =
                (core_value){CORE_VALUE_DEVICE, 0, {.device = tensor->device}};
        break;
    default:
        value = *arg;
    }
    if (size) {
        memcpy(*extra, value.u.pointer,
               value.tag == CORE_VALUE_BOOL_LIST ? value.count
               : value.tag == CORE_VALUE_STRING  ? value.count + 1
                                                 : size);
        value.u.pointer = *extra;
        *extra += size;
    }
    saved->value = value;
    saved->kind = CORE__SAVED_VALUE;
}

/* Rows that may need space at the end of the node; most are tensors and
 * numbers. */
static inline bool may_have_size(const core__saving *saving,
                                 const core_value *arg)
{
    return saving->kind == CORE__SAVE_SIZES ||
           saving->kind == CORE__SAVE_LAYOUT ||
           (saving->kind == CORE__SAVE_VALUE &&
            (arg->tag >= CORE_VALUE_INT_LIST || arg->tag == CORE_VALUE_STRING));
}

static core_status save_one(core__saved *saved,
                            const core__recording *recording,
                            const core__saving *saving,
                            const core_value *results, core_tensor *before,
                            char **extra)
{
    const core_value *arg = &recording->args[saving->position];

    if (saving->kind == CORE__SAVE_RESULT) {
        const core_value *result = &results[saving->position];

        if (result->tag != CORE_VALUE_TENSOR)
            return CORE_OK;
        return core__saved_result(
            saved, result->u.tensor, saving->position,
            core__tensor_requires_grad(result->u.tensor) ||
                recording->gradient->results >> saving->position & 1);
    }
    if (saving->kind != CORE__SAVE_ARGUMENT) {
        if (saving->kind == CORE__SAVE_VALUE && !may_have_size(saving, arg)) {
            saved->value = *arg;
            saved->kind = CORE__SAVED_VALUE;
        } else {
            save_value(saved, saving, arg, extra);
        }
        return CORE_OK;
    }
    if (core__likely(arg->tag == CORE_VALUE_TENSOR))
        return core__saved_tensor(saved, arg->u.tensor, before);
    if (arg->tag == CORE_VALUE_TENSOR_LIST)
        return core__saved_list(saved, arg->u.tensors, arg->count);
    return CORE_OK;
}

static core_status fill_saved(core_node *node, const core__recording *recording,
                              const core_value *results, char **extra)
{
    const core__gradient *gradient = recording->gradient;

    for (uint32_t i = 0; i < gradient->nsaved; i++) {
        const core__saving *saving = &gradient->saved[i];

        if (saving->needed_by & recording->needed)
            CORE_TRY(save_one(&node->saved[i], recording, saving, results,
                              recording->before ? recording->before[i] : NULL,
                              extra));
    }
    return CORE_OK;
}

/* ------------------------------------------------------------------ nodes -- */

/* Adds edges for every tensor that needs a gradient, or only counts them. */
static core_status edges_of_all(const core__recording *recording,
                                core__edge *edges, uint32_t *out_count)
{
    *out_count = 0;
    for (uint32_t i = 0; i < recording->op->nargs; i++) {
        const core_value *arg = &recording->args[i];
        bool list = arg->tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count = list ? arg->count : arg->tag == CORE_VALUE_TENSOR;

        for (uint32_t j = 0; j < count; j++) {
            core_tensor *tensor = list ? arg->u.tensors[j] : arg->u.tensor;

            if (!tensor || !core__tensor_needs_grad(tensor))
                continue;
            if (edges)
                CORE_TRY(core__gradient_edge(tensor, &edges[*out_count]));
            ++*out_count;
        }
    }
    return CORE_OK;
}

/* Records an operator without a formula: an error only when its gradient is
 * needed.  It has edges, so that a search from the gradient of an input passes
 * through it. */
static core_status record_missing(const core__recording *recording,
                                  const core_value *results, uint32_t nresults,
                                  core_node **out_node)
{
    const char *name = core__operator_name(recording->op);
    size_t length = strlen(name) + 1, dims;
    uint32_t ninputs = flat_count(results, nresults, &dims);
    uint32_t nedges;
    core_status status;
    core_node *node;
    void *extra;
    int64_t *sizes;

    *out_node = NULL;
    CORE_TRY(edges_of_all(recording, NULL, &nedges));
    node = core__node_new(nedges, 0, ninputs, dims * sizeof *sizes + length,
                          &extra);
    if (!node)
        return core__error_memory(sizeof *node);
    node->kind = CORE__NODE_MISSING;
    sizes = extra;
    fill_inputs(node, results, nresults, &sizes);
    core__node_set_stream(node);
    node->name = memcpy(sizes, name, length);
    status = edges_of_all(recording, node->edges, &nedges);
    if (status != CORE_OK) {
        core__node_release(node);
        return status;
    }
    if (core__thread_self()->anomaly)
        core__anomaly_note(node);
    *out_node = node;
    return CORE_OK;
}

core_status core__record_operator(const core__recording *recording,
                                  const core_value *results, uint32_t nresults,
                                  core_node **out_node)
{
    const core__gradient *gradient = recording->gradient;
    size_t extra_size = 0, dims;
    core_status status;
    core_node *node;
    uint32_t ninputs;
    int64_t *sizes;
    char *extra;

    *out_node = NULL;
    if (core__unlikely(!gradient))
        return record_missing(recording, results, nresults, out_node);
    if (core__likely(nresults == 1 && results[0].tag == CORE_VALUE_TENSOR)) {
        ninputs = 1;
        dims = results[0].u.tensor->ndim;
    } else {
        ninputs = flat_count(results, nresults, &dims);
    }
    for (uint32_t i = 0; i < gradient->nsaved; i++) {
        const core__saving *saving = &gradient->saved[i];
        const core_value *arg = &recording->args[saving->position];

        if (may_have_size(saving, arg))
            extra_size += value_size(saving, arg);
    }
    node = core__node_new_inline(recording->nedges, gradient->nsaved, ninputs,
                                 dims * sizeof *sizes + extra_size,
                                 (void **)&sizes);
    if (core__unlikely(!node))
        return core__error_memory(sizeof *node);
    node->kind = CORE__NODE_OPERATOR;
    node->name = gradient->name;
    node->gradient = gradient;
    node->needed = recording->needed;
    fill_inputs(node, results, nresults, &sizes);
    core__node_set_stream(node);
    extra = (char *)sizes;
    if (core__unlikely(core__thread_self()->anomaly))
        core__anomaly_note(node);
    status = fill_edges(node, recording);
    if (core__likely(status == CORE_OK))
        status = fill_saved(node, recording, results, &extra);
    if (core__unlikely(status != CORE_OK)) {
        core__node_release(node);
        return status;
    }
    *out_node = node;
    return CORE_OK;
}
