/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The content of storages while a program is recorded: which value they have,
 * and how views are read and written. */

#include "compile/record/lazy.h"

#include "autograd/graph/autograd_meta.h"
#include "base/checksum.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "dispatch/schema.h"
#include "ops_ids.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"
#include "transfer/recorded_data.h"

#include <libcore/autograd.h>

#include <string.h>

/* Guards the links between storages and traces: the last tensor of a trace that
 * has ended may be released in any thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void core__traced_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

/* ------------------------------------------------------------- records -- */

static void destroy(core__traced_storage *traced)
{
    core_node_release(traced->history);
    core__free(traced->views);
    core__free(traced);
}

/* Called by the storage. */
static void storage_released(void *context, void *data)
{
    core__traced_storage *traced = context;
    bool ended;

    (void)data;
    pthread_mutex_lock(&lock);
    traced->storage = NULL;
    ended = !traced->trace;
    pthread_mutex_unlock(&lock);
    if (ended)
        destroy(traced);
}

bool core__traced_is_pending(const core_storage *storage)
{
    return storage->release == storage_released;
}

/* True for a trace of this thread. */
static bool is_own(const core__trace *trace)
{
    const core__trace *own = core__thread_self()->trace;

    while (own && own != trace)
        own = own->outer;
    return own;
}

/* With the lock. */
static const char *origin_of(const core__traced_storage *traced)
{
    if (traced && !traced->trace)
        return traced->failed ? "a segment of a lazy region that failed"
                              : "a program whose recording has ended";
    if (!traced || traced->trace->lazy)
        return "another thread's lazy region, which core_lazy_sync runs there";
    return is_own(traced->trace) ? "a program that is being recorded"
                                 : "a program that another thread records";
}

const char *core__traced_origin(const core_tensor *tensor, bool *out_lost)
{
    const core__traced_storage *traced;
    const char *origin;

    pthread_mutex_lock(&lock);
    /* Another thread may give it content now. */
    traced = core__traced_is_pending(tensor->storage) ? tensor->storage->context
                                                      : NULL;
    *out_lost = traced && !traced->trace;
    origin = origin_of(traced);
    pthread_mutex_unlock(&lock);
    return origin;
}

core_storage *core__traced_detach(core__traced_storage *traced)
{
    core_storage *storage;

    pthread_mutex_lock(&lock);
    storage = traced->storage;
    traced->storage = NULL;
    if (storage) {
        storage->release = NULL;
        storage->context = NULL;
    }
    pthread_mutex_unlock(&lock);
    return storage;
}

uint32_t core__traced_end(core__trace *trace)
{
    uint32_t in_use = 0;

    for (uint32_t i = 0; i < trace->nstorages; i++) {
        core__traced_storage *traced = trace->storages[i];
        bool free;

        pthread_mutex_lock(&lock);
        free = traced->kind == CORE__TRACED_HIDDEN || !traced->storage;
        traced->trace = NULL;
        pthread_mutex_unlock(&lock);
        if (free)
            destroy(traced);
        else
            in_use++;
    }
    core__free(trace->storages);
    trace->storages = NULL;
    trace->nstorages = 0;
    return in_use;
}

static core_status add_storage(core__trace *trace, core__traced_kind kind,
                               uint32_t index, core_device *device,
                               core__traced_storage **out)
{
    core__traced_storage **slot;

    *out = core__alloc_zero(sizeof **out);
    if (!*out)
        return core__error_memory(sizeof **out);
    slot =
        core__program_grow(&trace->storages, &trace->nstorages, sizeof *slot);
    if (!slot) {
        core__free(*out);
        *out = NULL;
        return core__error_memory(sizeof *slot);
    }
    *slot = *out;
    (*out)->trace = trace;
    (*out)->kind = (uint8_t)kind;
    (*out)->index = index;
    (*out)->device = device;
    return CORE_OK;
}

/* Adds a view with the tensor's layout; type.device is that of the storage. */
static core_status add_view(core__trace *trace, core__traced_storage *traced,
                            const core_tensor *tensor, uint32_t device,
                            core__traced_view **out)
{
    core__traced_view *view =
        core__program_grow(&traced->views, &traced->nviews, sizeof *view);

    *out = view;
    if (!view)
        return core__error_memory(sizeof *view);
    view->offset = tensor->offset;
    view->value = CORE__NO_VALUE;
    return core__program_type_set(trace->program, tensor->dtype, tensor->ndim,
                                  tensor->sizes, tensor->strides, device,
                                  &view->type);
}

/* Makes `tensor` the whole of a new record. */
static core_status set_whole(core__trace *trace, core__traced_storage *traced,
                             const core_tensor *tensor, uint32_t value)
{
    core__traced_view *whole;
    uint32_t device;

    CORE_TRY(core__program_device(trace->program, traced->device, &device));
    CORE_TRY(add_view(trace, traced, tensor, device, &whole));
    whole->value = value;
    traced->dense = tensor->flags & CORE__TENSOR_DENSE;
    return CORE_OK;
}

/* ------------------------------------------------------ traced tensors -- */

/* One past the last element; offset if there is none. */
static int64_t end_of(uint32_t ndim, const int64_t *sizes,
                      const int64_t *strides, int64_t offset)
{
    int64_t last = offset;

    for (uint32_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0)
            return offset;
        last += (sizes[i] - 1) * strides[i];
    }
    return last + 1;
}

/* A tensor of the type on a storage of its own, without memory. */
static core_status without_memory(core__traced_storage *traced,
                                  const core__program_type *type,
                                  int64_t offset, core_tensor **out_tensor)
{
    const int64_t *sizes = core__type_sizes(type);
    const int64_t *strides = core__type_strides(type);
    core_storage *storage;
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(core__storage_adopt(
        traced->device, NULL,
        (uint64_t)end_of(type->ndim, sizes, strides, offset) *
            core__dtype_size((core_dtype)type->dtype),
        storage_released, traced, &storage));
    traced->storage = storage;
    status = core__tensor_new_on_storage(storage, type->dtype, type->ndim,
                                         sizes, out_tensor);
    core__storage_release(storage);
    if (status != CORE_OK)
        return status;
    if (type->ndim)
        memcpy((*out_tensor)->strides, strides, type->ndim * sizeof *strides);
    (*out_tensor)->offset = offset;
    core__tensor_update_layout(*out_tensor);
    (*out_tensor)->flags |= CORE__TENSOR_TRACED;
    (*out_tensor)->keys |= CORE__KEYS_TRACED;
    core__lazy_note(*out_tensor);
    return CORE_OK;
}

core_status core__traced_new(core__trace *trace, const core__program_type *type,
                             core_device *device, uint32_t value,
                             core_tensor **out_tensor)
{
    core__traced_storage *traced;
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(add_storage(trace, CORE__TRACED_RESULT, 0, device, &traced));
    CORE_TRY(without_memory(traced, type, 0, out_tensor));
    status = set_whole(trace, traced, *out_tensor, value);
    if (status != CORE_OK) {
        core__tensor_release(*out_tensor);
        *out_tensor = NULL;
    }
    return status;
}

static const char *name_of(const core_operator *op)
{
    return op ? core__operator_name(op) : "core_program_trace";
}

/* Marks storages that share memory with a new one, which cannot be told apart
 * once one of them is written. */
static core_status mark_conflicts(core__trace *trace, const core_operator *op,
                                  core__traced_storage *added,
                                  const core_tensor *whole)
{
    bool changed = false;

    for (uint32_t i = 0; i < trace->nstorages; i++) {
        core__traced_storage *other = trace->storages[i];
        const core__program_type *type = &other->views[0].type;
        core_tensor *alias;

        if (other == added || !other->nviews ||
            (other->kind == CORE__TRACED_HIDDEN
                 ? other->storage
                 : other->origin) != whole->storage)
            continue;
        CORE_TRY(core__tensor_alias(
            (core_tensor *)(uintptr_t)whole, type->dtype, type->ndim,
            core__type_sizes(type), core__type_strides(type),
            other->views[0].offset, &alias));
        if (core__layout_overlap(alias, whole) != CORE__OVERLAP_NONE) {
            added->conflict = other->conflict = true;
            changed = changed || other->version > 0;
        }
        core__tensor_release(alias);
    }
    return !changed ? CORE_OK
                    : core__error(
                          CORE_ERROR_UNSUPPORTED,
                          "%s: a tensor that is used first now overlaps one in "
                          "memory that was changed before; this cannot be "
                          "recorded",
                          name_of(op));
}

core_status core__traced_input(core__trace *trace, core_tensor *input,
                               uint32_t index, core_tensor **out_tensor)
{
    core__program_input *described = &trace->program->inputs[index];
    core__traced_storage *traced;
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(core__program_add_value(trace->program, &described->type,
                                     CORE__VALUE_OF_INPUT, index,
                                     &described->value));
    CORE_TRY(
        add_storage(trace, CORE__TRACED_INPUT, index, input->device, &traced));
    traced->origin = input->storage;
    CORE_TRY(
        without_memory(traced, &described->type, input->offset, out_tensor));
    status = set_whole(trace, traced, *out_tensor, described->value);
    if (status == CORE_OK)
        status = mark_conflicts(trace, NULL, traced, input);
    if (status != CORE_OK) {
        core__tensor_release(*out_tensor);
        *out_tensor = NULL;
    }
    return status;
}

core_status core__traced_tangent(core__trace *trace, const core_tensor *of,
                                 bool row_major, core_tensor **out_tensor)
{
    core_program *program = trace->program;
    uint32_t index = program->ninputs, device;
    core__traced_storage *traced;
    core__program_input *input;
    core__program_type type;
    int64_t strides[CORE_MAX_NDIM], next = 1;
    core_status status;

    *out_tensor = NULL;
    for (uint32_t i = of->ndim; i-- > 0;) {
        strides[i] = of->flags & CORE__TENSOR_DENSE && !row_major
                         ? of->strides[i]
                         : next;
        next *= of->sizes[i] > 1 ? of->sizes[i] : 1;
    }
    CORE_TRY(core__program_device(program, of->device, &device));
    CORE_TRY(core__program_type_set(program, of->dtype, of->ndim, of->sizes,
                                    strides, device, &type));
    input =
        core__program_grow(&program->inputs, &program->ninputs, sizeof *input);
    if (!input)
        return core__error_memory(sizeof *input);
    *input = (core__program_input){.type = type, .base = CORE__NO_VALUE};
    CORE_TRY(core__program_add_value(program, &type, CORE__VALUE_OF_INPUT,
                                     index, &input->value));
    CORE_TRY(
        add_storage(trace, CORE__TRACED_INPUT, index, of->device, &traced));
    CORE_TRY(without_memory(traced, &type, 0, out_tensor));
    status = set_whole(trace, traced, *out_tensor, input->value);
    if (status != CORE_OK) {
        core__tensor_release(*out_tensor);
        *out_tensor = NULL;
    }
    return status;
}

core_status core__traced_input_view(core__trace *trace, core_tensor *input,
                                    core_tensor *base, core_tensor **out_tensor)
{
    core__traced_storage *traced;
    uint32_t view;

    CORE_TRY(core__tensor_alias(base, input->dtype, input->ndim, input->sizes,
                                input->strides, input->offset, out_tensor));
    return core__traced_find(trace, NULL, *out_tensor, &traced, &view);
}

/* ------------------------------------------------------------- finding -- */

static bool has_layout(const core__traced_view *view, const core_tensor *tensor)
{
    size_t size = tensor->ndim * sizeof(int64_t);

    return view->offset == tensor->offset && view->type.ndim == tensor->ndim &&
           view->type.dtype == tensor->dtype &&
           memcmp(core__type_sizes(&view->type), tensor->sizes, size) == 0 &&
           memcmp(core__type_strides(&view->type), tensor->strides, size) == 0;
}

static uint32_t find_view(const core__traced_storage *traced,
                          const core_tensor *tensor)
{
    for (uint32_t i = 0; i < traced->nviews; i++)
        if (has_layout(&traced->views[i], tensor))
            return i;
    return CORE__NO_VALUE;
}

/* True if each element of the tensor is one of the whole. */
static bool contains(const core__traced_storage *traced,
                     const core_tensor *tensor)
{
    const core__traced_view *whole = &traced->views[0];
    const core__program_type *type = &whole->type;

    return traced->dense && type->dtype == tensor->dtype &&
           tensor->offset >= whole->offset &&
           end_of(tensor->ndim, tensor->sizes, tensor->strides,
                  tensor->offset) <= end_of(type->ndim, core__type_sizes(type),
                                            core__type_strides(type),
                                            whole->offset);
}

/* Adds a tensor of which it is not known how it was made. */
static core_status add_unknown(core__trace *trace, const core_operator *op,
                               core__traced_storage *traced,
                               const core_tensor *tensor, uint32_t *out_view)
{
    core__traced_view *view;

    if (!contains(traced, tensor))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: a view reaches elements that are not in the tensor of the "
            "program that it is a view of, or is of another dtype; this cannot "
            "be recorded",
            name_of(op));
    *out_view = traced->nviews;
    return add_view(trace, traced, tensor, traced->views[0].type.device, &view);
}

static core_status find_traced(core__trace *trace, const core_operator *op,
                               core_tensor *tensor,
                               core__traced_storage **out_storage,
                               uint32_t *out_view)
{
    core__traced_storage *traced = tensor->storage->context;

    if (traced->trace != trace)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: a tensor belongs to %s, whose tensors cannot be used here",
            name_of(op),
            traced->failed  ? "a segment of a lazy region that failed"
            : traced->trace ? "another program that is being recorded"
                            : "the recording of a program that has ended");
    *out_storage = traced;
    *out_view = find_view(traced, tensor);
    return *out_view == CORE__NO_VALUE
               ? add_unknown(trace, op, traced, tensor, out_view)
               : CORE_OK;
}

bool core__traced_is_part(const core_tensor *part, const core_tensor *whole)
{
    return part->storage == whole->storage && part->dtype == whole->dtype &&
           whole->flags & CORE__TENSOR_DENSE && part->offset >= whole->offset &&
           end_of(part->ndim, part->sizes, part->strides, part->offset) <=
               end_of(whole->ndim, whole->sizes, whole->strides, whole->offset);
}

/* The tensor of which a real tensor that is seen first is a part. */
static core_tensor *whole_of(core_tensor *tensor)
{
    return tensor->base && core__traced_is_part(tensor, tensor->base)
               ? tensor->base
               : tensor;
}

/* Notes that a hidden input is what core_tensor_from_data makes. */
static void note_data(core__program_hidden *hidden)
{
    const core__recorded_data *recorded = core__thread_self()->recorded_data;
    core__checksum sum;

    if (!recorded || recorded->tensor != hidden->tensor)
        return;
    core__checksum_begin(&sum, false);
    core__checksum_add(&sum, recorded->data, recorded->size);
    core__checksum_end(&sum, hidden->checksum);
    hidden->constant = true;
    core__tensor_retain(hidden->tensor);
}

static core_status add_hidden(core__trace *trace, const core_operator *op,
                              core_tensor *tensor, core__traced_storage **out)
{
    core_program *program = trace->program;
    core_tensor *whole = whole_of(tensor);
    uint32_t index = program->nhidden, value;
    core__program_hidden *hidden;

    CORE_TRY(
        add_storage(trace, CORE__TRACED_HIDDEN, index, whole->device, out));
    hidden =
        core__program_grow(&program->hidden, &program->nhidden, sizeof *hidden);
    if (!hidden)
        return core__error_memory(sizeof *hidden);
    hidden->value = CORE__NO_VALUE;
    hidden->tensor = whole;
    core__tensor_retain(whole);
    note_data(hidden);
    (*out)->storage = whole->storage;
    if (whole->autograd && whole->autograd->grad_fn) {
        (*out)->history = core_node_retain(whole->autograd->grad_fn);
        (*out)->history_output = whole->autograd->output;
    }
    CORE_TRY(set_whole(trace, *out, whole, CORE__NO_VALUE));
    CORE_TRY(core__program_add_value(program, &(*out)->views[0].type,
                                     CORE__VALUE_OF_HIDDEN, index, &value));
    hidden->value = (*out)->views[0].value = value;
    return mark_conflicts(trace, op, *out, whole);
}

/* Notes that a run must be given this tensor, or one that contains it. */
static core_status add_known(core__trace *trace, core__traced_storage *traced,
                             core_tensor *tensor)
{
    core_program *program = trace->program;
    core__program_known *known;

    for (uint32_t i = 0; i < program->nknown; i++)
        if (program->known[i].tensor->storage == tensor->storage &&
            program->known[i].input == traced->index)
            return CORE_OK;
    known =
        core__program_grow(&program->known, &program->nknown, sizeof *known);
    if (!known)
        return core__error_memory(sizeof *known);
    core__tensor_retain(tensor);
    *known = (core__program_known){tensor, traced->index,
                                   tensor->offset - traced->views[0].offset};
    return CORE_OK;
}

/* Notes a tensor that is not the hidden input itself. */
static core_status add_alias(core__trace *trace,
                             const core__traced_storage *traced,
                             core_tensor *tensor)
{
    core_program *program = trace->program;
    core_tensor **alias;

    if (traced->kind == CORE__TRACED_HIDDEN &&
        program->hidden[traced->index].tensor == tensor)
        return CORE_OK;
    for (uint32_t i = 0; i < program->naliases; i++)
        if (program->aliases[i] == tensor)
            return CORE_OK;
    alias = core__program_grow(&program->aliases, &program->naliases,
                               sizeof *alias);
    if (!alias)
        return core__error_memory(sizeof *alias);
    core__tensor_retain(tensor);
    *alias = tensor;
    return CORE_OK;
}

/* The storage of which a real tensor is a part; a new hidden input if it is
 * seen first. */
static core_status find_real_storage(core__trace *trace,
                                     const core_operator *op,
                                     core_tensor *tensor,
                                     core__traced_storage **out)
{
    for (uint32_t i = 0; i < trace->nstorages; i++) {
        core__traced_storage *traced = trace->storages[i];
        bool hidden = traced->kind == CORE__TRACED_HIDDEN;

        if ((hidden ? traced->storage : traced->origin) != tensor->storage)
            continue;
        if (find_view(traced, tensor) == CORE__NO_VALUE &&
            !contains(traced, tensor))
            continue;
        *out = traced;
        return hidden ? CORE_OK : add_known(trace, traced, tensor);
    }
    return add_hidden(trace, op, tensor, out);
}

static core_status find_real(core__trace *trace, const core_operator *op,
                             core_tensor *tensor,
                             core__traced_storage **out_storage,
                             uint32_t *out_view)
{
    if (!tensor->storage)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: a tensor on \"meta\" has no content to record",
                           name_of(op));
    CORE_TRY(find_real_storage(trace, op, tensor, out_storage));
    CORE_TRY(add_alias(trace, *out_storage, tensor));
    *out_view = find_view(*out_storage, tensor);
    return *out_view == CORE__NO_VALUE
               ? add_unknown(trace, op, *out_storage, tensor, out_view)
               : CORE_OK;
}

core_status core__traced_find(core__trace *trace, const core_operator *op,
                              core_tensor *tensor,
                              core__traced_storage **out_storage,
                              uint32_t *out_view)
{
    return tensor->flags & CORE__TENSOR_TRACED &&
                   !core__region_captures(trace, tensor)
               ? find_traced(trace, op, tensor, out_storage, out_view)
               : find_real(trace, op, tensor, out_storage, out_view);
}

/* --------------------------------------------------------------- views -- */

core_status core__traced_add_view(core__trace *trace,
                                  core__traced_storage *traced, uint32_t parent,
                                  core_operator *op, const core_value *args,
                                  uint32_t nargs, const core_tensor *tensor)
{
    core__program_argument *copies;
    core__traced_view *view;
    uint32_t added;

    if (find_view(traced, tensor) != CORE__NO_VALUE)
        return CORE_OK;
    /* It may reach what its parent does not contain. */
    if (op->id == CORE_OP_AS_STRIDED)
        return add_unknown(trace, op, traced, tensor, &added);
    copies = core__program_alloc(trace->program, nargs * sizeof *copies);
    if (!copies)
        return core__error_memory(nargs * sizeof *copies);
    for (uint32_t i = 0; i < nargs; i++)
        CORE_TRY(
            core__program_add_constant(trace->program, &args[i], &copies[i]));
    CORE_TRY(
        add_view(trace, traced, tensor, traced->views[0].type.device, &view));
    view->op = op;
    view->args = copies;
    view->nargs = nargs;
    view->parent = parent;
    return CORE_OK;
}

core_status core__traced_add_views(core__trace *trace,
                                   core__traced_storage *traced,
                                   uint32_t parent, core_operator *op,
                                   const core_value *args, uint32_t nargs,
                                   core_tensor *const *tensors, uint32_t count)
{
    core__program_argument *copies =
        core__program_alloc(trace->program, nargs * sizeof *copies);

    if (!copies)
        return core__error_memory(nargs * sizeof *copies);
    for (uint32_t i = 0; i < nargs; i++)
        CORE_TRY(
            core__program_add_constant(trace->program, &args[i], &copies[i]));
    for (uint32_t i = 0; i < count; i++) {
        core__traced_view *view;
        uint32_t index;

        if (!tensors[i] || find_view(traced, tensors[i]) != CORE__NO_VALUE)
            continue;
        CORE_TRY(add_unknown(trace, op, traced, tensors[i], &index));
        view = &traced->views[index];
        view->list_op = op;
        view->list_index = i;
        view->args = copies;
        view->nargs = nargs;
        view->parent = parent;
    }
    return CORE_OK;
}

static core_status constant_ints(core_program *program, const int64_t *ints,
                                 uint32_t count, core__program_argument *out)
{
    const core_value value = {CORE_VALUE_INT_LIST, count, {.ints = ints}};

    return core__program_add_constant(program, &value, out);
}

/* size, stride and storage_offset of as_strided, for a view of the whole. */
static core_status strided_arguments(core__trace *trace,
                                     const core__traced_storage *traced,
                                     const core__program_type *type,
                                     int64_t offset,
                                     core__program_argument *out)
{
    CORE_TRY(constant_ints(trace->program, core__type_sizes(type), type->ndim,
                           &out[0]));
    CORE_TRY(constant_ints(trace->program, core__type_strides(type), type->ndim,
                           &out[1]));
    out[2] = (core__program_argument){
        CORE_VALUE_INT, 0, {.i = offset - traced->views[0].offset}};
    return CORE_OK;
}

static core__program_argument of_value(uint32_t value)
{
    return (core__program_argument){CORE_VALUE_TENSOR, 0, {.value = value}};
}

static core_status read_view(core__trace *trace, core__traced_storage *traced,
                             uint32_t index, uint32_t *out_value);

/* Makes a view again from the present content. */
static core_status make_view(core__trace *trace, core__traced_storage *traced,
                             uint32_t index, uint32_t *out_value)
{
    core__program_argument args[CORE__SCHEMA_ARGUMENTS] = {{0}};
    const core__traced_view *view = &traced->views[index];
    uint32_t parent;

    CORE_TRY(read_view(trace, traced, view->op ? view->parent : 0, &parent));
    view = &traced->views[index];
    args[0] = of_value(parent);
    if (view->op) {
        memcpy(args + 1, view->args + 1, (view->nargs - 1) * sizeof *args);
        return core__trace_append(trace, view->op, args, view->nargs, 0,
                                  &view->type, out_value);
    }
    CORE_TRY(
        strided_arguments(trace, traced, &view->type, view->offset, args + 1));
    return core__trace_append(trace, &core__operators[CORE_OP_AS_STRIDED], args,
                              4, 0, &view->type, out_value);
}

static core_status read_view(core__trace *trace, core__traced_storage *traced,
                             uint32_t index, uint32_t *out_value)
{
    core__traced_view *view = &traced->views[index];

    if (view->value == CORE__NO_VALUE || view->version != traced->version) {
        CORE_TRY(make_view(trace, traced, index, out_value));
        view = &traced->views[index];
        view->value = *out_value;
        view->version = traced->version;
    }
    *out_value = view->value;
    return CORE_OK;
}

core_status core__traced_read(core__trace *trace, const core_operator *op,
                              core_tensor *tensor, uint32_t *out_value)
{
    core__traced_storage *traced;
    uint32_t view;

    CORE_TRY(core__traced_find(trace, op, tensor, &traced, &view));
    return read_view(trace, traced, view, out_value);
}

/* -------------------------------------------------------------- writes -- */

static core_status check_writable(const core_operator *op,
                                  const core__traced_storage *traced,
                                  uint32_t view)
{
    const core__program_type *whole = &traced->views[0].type;

    if (traced->conflict)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: a tensor that is written overlaps another one in memory, and "
            "neither contains the other; this cannot be recorded",
            name_of(op));
    if (view != 0 && !traced->dense)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "%s: a view of a tensor with gaps is written, sizes and strides of "
            "which the program's inputs have; this cannot be recorded. Pass "
            "the function a tensor without gaps",
            name_of(op));
    if (core__strides_overlap(whole->ndim, core__type_sizes(whole),
                              core__type_strides(whole)))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: a tensor whose elements share memory is "
                           "written; this cannot be recorded",
                           name_of(op));
    return CORE_OK;
}

core_status core__traced_check_writes(core__trace *trace,
                                      const core_operator *op,
                                      const core_value *args, uint32_t written)
{
    /* All are found first: a hidden input that is added may be in conflict with
     * one from before. */
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t left = written; left; left &= left - 1) {
            core_tensor *const *tensors;
            uint32_t count =
                core__tensors_of(&args[__builtin_ctz(left)], &tensors);

            for (uint32_t k = 0; k < count; k++) {
                core__traced_storage *traced;
                uint32_t view;

                if (!tensors[k])
                    continue;
                CORE_TRY(
                    core__traced_find(trace, op, tensors[k], &traced, &view));
                if (pass)
                    CORE_TRY(check_writable(op, traced, view));
            }
        }
    return CORE_OK;
}

/* The whole after a change of all of it. */
static core_status replace_whole(core__trace *trace,
                                 core__traced_storage *traced, uint32_t value,
                                 uint32_t *out_whole)
{
    const core__program_type *type = &traced->views[0].type;
    core__program_argument args[3] = {of_value(traced->views[0].value),
                                      of_value(value),
                                      {CORE_VALUE_BOOL, 0, {0}}};

    *out_whole = value;
    if (core__types_equal(&trace->program->values[value].type, type))
        return CORE_OK;
    return core__trace_append(trace, &core__operators[CORE_OP_COPY_], args, 3,
                              1, type, out_whole);
}

/* The whole after a change of a part of it. */
static core_status replace_part(core__trace *trace,
                                core__traced_storage *traced, uint32_t index,
                                uint32_t value, uint32_t *out_whole)
{
    const core__traced_view *view = &traced->views[index];
    core__program_argument args[5] = {of_value(traced->views[0].value),
                                      of_value(value)};

    CORE_TRY(
        strided_arguments(trace, traced, &view->type, view->offset, args + 2));
    return core__trace_append(trace,
                              &core__operators[CORE_OP_AS_STRIDED_SCATTER],
                              args, 5, 0, &traced->views[0].type, out_whole);
}

core_status core__traced_write(core__trace *trace, const core_operator *op,
                               core_tensor *tensor, uint32_t value)
{
    core__traced_storage *traced;
    core__traced_view *view;
    uint32_t index, whole;

    CORE_TRY(core__traced_find(trace, op, tensor, &traced, &index));
    CORE_TRY(check_writable(op, traced, index));
    CORE_TRY(index == 0 ? replace_whole(trace, traced, value, &whole)
                        : replace_part(trace, traced, index, value, &whole));
    trace->changes++;
    traced->version++;
    traced->views[0].value = whole;
    traced->views[0].version = traced->version;
    view = &traced->views[index];
    if (core__types_equal(&trace->program->values[value].type, &view->type)) {
        view->value = index == 0 ? whole : value;
        view->version = traced->version;
    }
    return CORE_OK;
}
