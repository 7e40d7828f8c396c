/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Tensors that the graph of a branch or loop saves. */

#include "compile/control_flow/region_saved.h"

#include "autograd/api/partial_gradients.h"
#include "autograd/graph/saved.h"
#include "autograd/graph/view.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/batched.h"

#include <libcore/function.h>

typedef struct search {
    core__region_saved *saved;
    core_tensor *const *leaves;
    size_t nleaves;
    const core_program *program; /* of the region */
} search;

static core_status add_other(core__region_saved *saved, core_tensor *tensor)
{
    core_tensor **added;

    for (uint32_t i = 0; i < saved->nothers; i++)
        if (saved->others[i] == tensor)
            return CORE_OK;
    added = core__program_grow(&saved->others, &saved->nothers, sizeof *added);
    if (!added)
        return core__error_memory(sizeof *added);
    *added = core_tensor_retain(tensor);
    return CORE_OK;
}

/* What the function has made itself is neither. */
static core_status note_tensor(const search *s, const core_tensor *tensor)
{
    const core_storage *storage = tensor ? tensor->storage : NULL;

    if (!storage)
        return CORE_OK;
    for (size_t i = 0; i < s->nleaves; i++)
        if (s->leaves[i]->storage == storage)
            s->saved->inputs[i] = true;
    for (uint32_t i = 0; i < s->program->nhidden; i++)
        if (s->program->hidden[i].tensor->storage == storage)
            CORE_TRY(add_other(s->saved, s->program->hidden[i].tensor));
    return CORE_OK;
}

static core_status note_saved(const search *s, const core__saved *saved,
                              size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (saved[i].kind == CORE__SAVED_LIST)
            CORE_TRY(
                note_saved(s, saved[i].value.u.pointer, saved[i].value.count));
        else if (saved[i].kind == CORE__SAVED_TENSOR ||
                 saved[i].kind == CORE__SAVED_RESULT)
            CORE_TRY(note_tensor(s, saved[i].value.u.tensor));
    }
    return CORE_OK;
}

static core_status note_node(void *context, core_node *node)
{
    const search *s = context;

    CORE_TRY(note_saved(s, node->saved, node->nsaved));
    if (node->kind != CORE__NODE_SLICES || !node->u.slices)
        return CORE_OK;
    return note_node(context, node->u.slices->inner);
}

core_status core__region_saved_add(core__region_saved *saved,
                                   core_tensor *const *outputs, size_t noutputs,
                                   core_tensor *const *wanted, size_t nwanted,
                                   core_tensor *const *leaves, size_t nleaves)
{
    search s = {saved, leaves, nleaves, core__thread_self()->trace->program};

    return core__partial_gradients_visit(outputs, noutputs, wanted, nwanted,
                                         note_node, &s);
}

void core__region_saved_drop(core__region_saved *saved)
{
    for (uint32_t i = 0; i < saved->nothers; i++)
        core_tensor_release(saved->others[i]);
    core__free(saved->others);
    saved->others = NULL;
    saved->nothers = 0;
}

static core_status __attribute__((cold)) refuse(const core_node *node)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: a tensor that it reads, and that its gradient may "
                       "need, is changed in place later, which cannot be "
                       "recorded; change a copy (core_clone)",
                       core_node_name(node));
}

core_status core__region_saved_get(core_node *node, size_t index,
                                   core_tensor **out_tensor)
{
    core_status status = core_node_saved(node, index, out_tensor);

    return status == CORE_ERROR_VERSION ? refuse(node) : status;
}

core_status core__region_saved_check(core_node *node, size_t index)
{
    core_tensor *tensor;

    CORE_TRY(core__region_saved_get(node, index, &tensor));
    core_tensor_release(tensor);
    return CORE_OK;
}

core_status core__region_captured_note(core__region_node *recorded,
                                       uint32_t first)
{
    for (uint32_t k = first; k < CORE__REGIONS_MAX; k++) {
        core__region_captured *captured = &recorded->captured[k];
        size_t size = captured->count * sizeof *captured->versions;

        captured->versions = core__alloc(size + 1);
        if (!captured->versions)
            return core__error_memory(size);
        for (uint32_t i = 0; i < captured->count; i++)
            captured->versions[i] = core__content_version(captured->tensors[i]);
    }
    return CORE_OK;
}

core_status core__region_captured_check(const core__region_node *recorded,
                                        const core_node *node)
{
    for (uint32_t k = 0; k < CORE__REGIONS_MAX; k++) {
        const core__region_captured *captured = &recorded->captured[k];

        for (uint32_t i = 0; captured->versions && i < captured->count; i++)
            if (core__content_version(captured->tensors[i]) !=
                captured->versions[i])
                return refuse(node);
    }
    return CORE_OK;
}
