/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradient destinations: checks of the program's buffers, and formulas that
 * write into them in place. */

#include "autograd/engine/destination.h"

#include "autograd/graph/autograd_ops.h"
#include "base/callback.h"
#include "autograd/graph/hooks.h"
#include "base/memory.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "ops/infer.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/ops.h>

#include <string.h>

/* ---------------------------------------------------------------- lookup -- */

/* Many destinations may be outputs of one node, as of a split. */
static size_t hash(const core_node *node, uint32_t input)
{
    return (size_t)((((uintptr_t)node >> 4) + input) *
                        UINT64_C(0x9e3779b97f4a7c15) >>
                    32);
}

core__destination *core__destination_of(const core__destinations *destinations,
                                        const core_node *node, uint32_t input)
{
    size_t mask = destinations->table_size - 1;

    if (!node)
        return NULL;
    for (size_t at = hash(node, input);; at++) {
        uint32_t index = destinations->table[at & mask];
        core__destination *item;

        if (index == 0)
            return NULL;
        item = &destinations->items[index - 1];
        if (item->node == node && item->input == input)
            return item;
    }
}

/* Inserts the last item. */
static void insert(core__destinations *destinations)
{
    const core__destination *last =
        &destinations->items[destinations->count - 1];
    size_t mask = destinations->table_size - 1;
    size_t at = hash(last->node, last->input);

    if (!last->node)
        return;
    while (destinations->table[at & mask] != 0)
        at++;
    destinations->table[at & mask] = (uint32_t)destinations->count;
}

/* Twice as large as the items. */
static core_status allocate(core__destinations *destinations, size_t count)
{
    size_t entries = 4, size;

    if (count >= UINT32_MAX / 2)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%zu gradient destinations; there can be %u", count,
                           UINT32_MAX / 2 - 1);
    while (entries < 2 * count)
        entries *= 2;
    size = count * sizeof *destinations->items +
           entries * sizeof *destinations->table;
    destinations->items = core__alloc_zero(size);
    if (!destinations->items)
        return core__error_memory(size);
    destinations->table = (void *)(destinations->items + count);
    destinations->table_size = entries;
    return CORE_OK;
}

/* --------------------------------------------------------------- gradients -- */

static bool is_buffer(const core_tensor *grad, const core_tensor *buffer)
{
    return grad->storage && grad->storage == buffer->storage &&
           grad->offset == buffer->offset && grad->dtype == buffer->dtype &&
           memcmp(grad->strides, buffer->strides,
                  grad->ndim * sizeof *grad->strides) == 0;
}

core_status core__destination_write_gradient(core__destination *destination,
                                             core_tensor *grad)
{
    core_status status = CORE_OK;

    if (!destination->touched && is_buffer(grad, destination->buffer))
        destination->in_place = true; /* a program's function wrote it */
    else if (destination->accumulate)
        status = core__autograd_op_add_in_place(destination->buffer, grad);
    else
        status = core__autograd_op_copy_in_place(destination->buffer, grad);
    destination->touched = true;
    destination->accumulate = true;
    return status;
}

static void set_result(const core__destination *destination)
{
    if (destination->touched)
        destination->given->result = destination->in_place
                                         ? CORE_DESTINATION_IN_PLACE
                                         : CORE_DESTINATION_COPIED;
}

/* Whether the program's struct, which may be older, has `ready`. */
static bool has_ready(const core_gradient_destination *given)
{
    return given->struct_size >= sizeof *given && given->ready;
}

core_status core__destination_ready(const core__destination *destination)
{
    core_gradient_destination *given = destination->given;
    uint32_t errors;

    if (!destination->touched || !has_ready(given))
        return CORE_OK;
    set_result(destination);
    errors = core__error_sequence();
    return core__callback_status(errors, given->ready(given->context, given),
                                 "the function of a destination");
}

/* ------------------------------------------------------ writing in place -- */

/* The gradient formula of linear, whose weight gradient is one matrix
 * product. */
static const core__gradient *linear;

static bool is_linear(const core__gradient *gradient)
{
    const core__gradient *known = __atomic_load_n(&linear, __ATOMIC_RELAXED);

    if (core__unlikely(!known)) {
        core_operator *op = core__operator_find("linear", strlen("linear"));

        known = op ? op->data->gradient : NULL;
        __atomic_store_n(&linear, known, __ATOMIC_RELAXED);
    }
    return known == gradient;
}

/* The saved value of an argument; NULL: not saved. */
static core_tensor *saved_argument(const core__formula_context *context,
                                   uint32_t position)
{
    const core__gradient *gradient = context->gradient;

    for (uint32_t i = 0; i < gradient->nsaved; i++)
        if (gradient->saved[i].kind == CORE__SAVE_ARGUMENT &&
            gradient->saved[i].position == position &&
            context->values[i].tag == CORE_VALUE_TENSOR)
            return context->values[i].u.tensor;
    return NULL;
}

/* Hooks on a gradient need the gradient as a tensor. */
static bool has_hooks(const core_node *node)
{
    const core_hook *hook;
    core__autograd_meta *meta = node->u.leaf->autograd;
    bool found = node->hooks != NULL;

    core__byte_lock(&meta->lock);
    for (hook = meta->hooks; hook; hook = hook->next)
        found |= hook->kind == CORE__HOOK_TENSOR;
    core__byte_unlock(&meta->lock);
    return found;
}

static core_status as_rows(core_tensor *tensor, core_tensor **out_rows)
{
    int64_t sizes[2] = {-1, tensor->sizes[tensor->ndim - 1]};

    if (tensor->ndim != 2)
        return core_reshape(tensor, sizes, 2, out_rows);
    core__tensor_retain(tensor);
    *out_rows = tensor;
    return CORE_OK;
}

/* buffer = beta * buffer + transposed(grad) x input */
static core_status linear_weight(core_tensor *buffer, bool accumulate,
                                 core_tensor *grad, core_tensor *input)
{
    core_tensor *rows = NULL, *across = NULL, *inputs = NULL;
    core_status status = as_rows(grad, &rows);

    if (status == CORE_OK)
        status = core_t(rows, &across);
    if (status == CORE_OK)
        status = as_rows(input, &inputs);
    if (status == CORE_OK)
        status = core_addmm_(buffer, across, inputs, core_int(accumulate),
                             core_int(1));
    core__tensor_release(inputs);
    core__tensor_release(across);
    core__tensor_release(rows);
    return status;
}

/* The destination that a gradient on this edge goes to unchanged; NULL:
 * none. */
static core__destination *destination_of_edge(
    const core__destinations *destinations, const core_node *node,
    const core__edge *edge)
{
    core__destination *to;

    /* On another stream the write would be unordered with other writes to the
     * buffer. */
    if (!edge->node || edge->node->kind != CORE__NODE_ACCUMULATE ||
        edge->node->stream != node->stream)
        return NULL;
    to = core__destination_of(destinations, edge->node, edge->input);
    return to && !has_hooks(edge->node) ? to : NULL;
}

core_tensor *core__destination_buffer(const core_node *node, uint32_t input,
                                      bool *out_accumulate)
{
    const core__destinations *offered =
        core__thread_self()->destinations_offered;
    core__destination *to =
        core__unlikely(offered != NULL)
            ? destination_of_edge(offered, node, &node->edges[input])
            : NULL;

    *out_accumulate = to && to->accumulate;
    return to ? to->buffer : NULL;
}

void core__destination_written(const core_node *node, uint32_t input)
{
    core__destination *to = destination_of_edge(
        core__thread_self()->destinations_offered, node, &node->edges[input]);

    to->touched = to->in_place = to->accumulate = true;
}

core_status core__destination_write_formula(core__destinations *destinations,
                                            core__formula_context *context)
{
    enum { WEIGHT = 1 }; /* index of the argument and of its gradient */
    core__destination *to;
    core_tensor *grad, *input;

    if (!(context->needed >> WEIGHT & 1) || !is_linear(context->gradient))
        return CORE_OK;
    input = saved_argument(context, 0);
    grad = context->grads[0];
    to =
        destination_of_edge(destinations, context->node,
                            &context->node->edges[context->first_edge[WEIGHT]]);
    if (!to || !input || to->buffer->dtype != grad->dtype ||
        to->buffer->ndim != 2 || input->dtype != grad->dtype ||
        to->buffer->storage == input->storage ||
        to->buffer->storage == grad->storage)
        return CORE_OK;
    CORE_TRY(linear_weight(to->buffer, to->accumulate, grad, input));
    to->touched = to->in_place = to->accumulate = true;
    context->needed &= ~(1u << WEIGHT);
    return CORE_OK;
}

/* ------------------------------------------------------ public interface -- */

static core_status check_buffer(const char *name, size_t index,
                                const core_tensor *input,
                                const core_tensor *buffer)
{
    char given[200], expected[200];

    if (buffer->device != input->device)
        return core__error(CORE_ERROR_DEVICE,
                           "%s: destination %zu is on \"%s\" and its input on "
                           "\"%s\"; they must be on the same device",
                           name, index, buffer->device->name,
                           input->device->name);
    if (!core__dtype_is_floating(buffer->dtype))
        return core__error(
            CORE_ERROR_DTYPE,
            "%s: destination %zu is %s; it must have a floating dtype", name,
            index, core__dtype_name(buffer->dtype));
    if (buffer->ndim != input->ndim ||
        memcmp(buffer->sizes, input->sizes,
               input->ndim * sizeof *input->sizes) != 0)
        return core__error(
            CORE_ERROR_SHAPE,
            "%s: destination %zu has sizes %s; it must have those of its "
            "input, %s",
            name, index,
            core__sizes_text(buffer->ndim, buffer->sizes, given, sizeof given),
            core__sizes_text(input->ndim, input->sizes, expected,
                             sizeof expected));
    if (core__tensor_needs_grad(buffer))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: destination %zu requires grad; it must not, as "
                           "writes to it are not recorded",
                           name, index);
    if (buffer->flags & CORE__TENSOR_READ_ONLY)
        return core__error(CORE_ERROR_REFUSED,
                           "%s: the memory of destination %zu was imported as "
                           "read-only and cannot be changed",
                           name, index);
    if (core__layout_overlaps_itself(buffer))
        return core__error(CORE_ERROR_SHAPE,
                           "%s: several elements of destination %zu share "
                           "memory, as in an expanded tensor",
                           name, index);
    if (core__destination_shares_memory(buffer, input))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: destination %zu shares memory with its input",
                           name, index);
    return CORE_OK;
}

/* The runs of a recorded program would not call it. */
static core_status check_ready(const char *name, size_t index,
                               const core_gradient_destination *given)
{
    const core__thread *self = core__thread_self();

    if (!has_ready(given) || !(self->included & CORE__KEY_RECORD) || self->lazy)
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: destination %zu has the function `ready`, which a "
                       "program that is being recorded cannot call",
                       name, index);
}

/* The size before `ready` was added. */
enum { FIRST_SIZE = offsetof(core_gradient_destination, ready) };

/* stride: the struct_size of the first destination. */
static core_status check(const char *name, size_t index, uint32_t stride,
                         const core_gradient_destination *given, bool leaf)
{
    if (stride < FIRST_SIZE || stride % 8 != 0 || given->struct_size != stride)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: destination %zu has struct_size %u; it must be "
                           "%zu, or %d without `ready`, for all of them",
                           name, index, given->struct_size, sizeof *given,
                           FIRST_SIZE);
    if (given->flags & ~(uint32_t)CORE_DESTINATION_ACCUMULATE)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: destination %zu has flags 0x%x; they must be "
                           "at most 0x%x",
                           name, index, given->flags,
                           CORE_DESTINATION_ACCUMULATE);
    if (!given->input || !given->buffer)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the %s of destination %zu is NULL", name,
                           given->input ? "buffer" : "input", index);
    if (!core__tensor_needs_grad(given->input) ||
        (leaf && !core__tensor_is_leaf(given->input)))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: the input of destination %zu %s", name, index,
                           leaf ? "is not a leaf that requires grad"
                                : "does not require grad");
    CORE_TRY(check_ready(name, index, given));
    return check_buffer(name, index, given->input, given->buffer);
}

static core_status begin_one(core__destinations *destinations,
                             core_gradient_destination *given)
{
    core__destination *item = &destinations->items[destinations->count];
    core__edge edge = {0};

    if (core__tensor_is_leaf(given->input))
        edge.node = core__accumulator_find(given->input);
    else
        CORE_TRY(core__gradient_edge(given->input, &edge));
    *item = (core__destination){.node = edge.node,
                                .input = edge.input,
                                .accumulate =
                                    given->flags & CORE_DESTINATION_ACCUMULATE,
                                .buffer = given->buffer,
                                .given = given};
    destinations->count++;
    insert(destinations);
    return CORE_OK;
}

static core_status check_all(const char *name, core_gradient_destination *given,
                             size_t count, bool leaves)
{
    uint32_t stride = given->struct_size;

    for (size_t i = 0; i < count; i++)
        CORE_TRY(
            check(name, i, stride, core__destination_given(given, i), leaves));
    CORE_TRY(core__destinations_check_pairs(name, given, count));
    for (size_t i = 0; i < count; i++)
        core__destination_given(given, i)->result = CORE_DESTINATION_UNUSED;
    return CORE_OK;
}

core_status core__destinations_begin(const char *name,
                                     core_gradient_destination *given,
                                     size_t count, bool leaves,
                                     core__destinations *destinations)
{
    *destinations = (core__destinations){0};
    if (!given || !count)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: the number of destinations is 0; it must be at least 1", name);
    CORE_TRY(check_all(name, given, count, leaves));
    CORE_TRY(allocate(destinations, count));
    for (size_t i = 0; i < count; i++)
        CORE_TRY(begin_one(destinations, core__destination_given(given, i)));
    return CORE_OK;
}

void core__destinations_end(core__destinations *destinations, bool done)
{
    for (size_t i = 0; i < destinations->count; i++) {
        if (done)
            set_result(&destinations->items[i]);
        core__node_release(destinations->items[i].node);
    }
    core__free(destinations->items);
}
