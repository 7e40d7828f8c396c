/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Structured operators whose kernels receive views: inference, results,
 * views. */

#include "base/memory.h"
#include "capture/capture.h"
#include "dispatch/kernel_constraints.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch_log.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "dispatch/inference.h"
#include "dispatch/upcalls.h"
#include "random/generator.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <string.h>

enum { ARGUMENTS_MAX = 32, VIEWS_MAX = CORE__KERNEL_TENSORS };

typedef struct kernel_run {
    core__kernel_call run;
    core__inference inference;
    core_operator *op;
    const core_value *args;
    uint32_t nargs;
    core__kernel_set *set;
    uint32_t nresults;
    core_tensor *targets[CORE__RESULTS_MAX]; /* without references */
    core_tensor *outputs[CORE__RESULTS_MAX]; /* with references */
    core_value values[ARGUMENTS_MAX];        /* the kernel's arguments */
    uint32_t nvalues;
    core_view *views;
    const core_view **view_lists;
    core_tensor **tensors; /* tensors whose memory the kernel uses; first by
                            * view */
    core_tensor **copies;  /* contiguous copies, or copies on this device; with
                            * references */
    uint32_t nviews;
    uint32_t nlisted;
    uint32_t ntensors;
    uint32_t ncopies;
    /* The four point to `few`, or to `many` for long lists. */
    struct {
        core_view views[VIEWS_MAX];
        const core_view *view_lists[VIEWS_MAX];
        core_tensor *copies[VIEWS_MAX];
    } few;
    void *many;
    core_dtype dtypes[CORE_SIGNATURE_MAX];
    uint32_t ndtypes;
    core_view result_views[CORE__RESULTS_MAX];
    /* Tensors that the kernel writes instead of an output (without references,
     * from copies). */
    core_tensor *substitutes[CORE__RESULTS_MAX];
} kernel_run;

/* Finds the device of all tensors among the arguments. */
static core_status find_device(kernel_run *k)
{
    core_tensor *few[VIEWS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < k->nargs; i++) {
        const core_value *value = &k->args[i];
        bool list = value->tag == CORE_VALUE_TENSOR_LIST;
        uint32_t items = list ? value->count : value->tag == CORE_VALUE_TENSOR;

        for (uint32_t j = 0; j < items; j++) {
            core_tensor *tensor = list ? value->u.tensors[j] : value->u.tensor;

            if (!tensor)
                continue;
            CORE_TRY(core__dtype_check_computable(k->op, tensor->dtype));
            if (count == VIEWS_MAX) {
                core_device *same;

                CORE_TRY(core__device_of(k->op, few, count, &same));
                count = 1;
            }
            few[count++] = tensor;
        }
    }
    if (count > 0)
        return core__device_of(k->op, few, count, &k->inference.device);
    for (uint32_t i = 0; i < k->nargs; i++)
        if (k->args[i].tag == CORE_VALUE_DEVICE)
            k->inference.device = k->args[i].u.device;
    return k->inference.device ? CORE_OK
                               : core__device_current(&k->inference.device);
}

/* Position of the argument that is result i. */
static uint32_t target_at(const kernel_run *k, uint32_t i)
{
    return k->op->variant == CORE__VARIANT_OUT ? k->op->nargs - k->nresults + i
                                               : 0;
}

static core_status find_targets(kernel_run *k)
{
    if (k->op->variant == CORE__VARIANT_INPLACE)
        k->targets[0] = k->args[0].u.tensor;
    else if (k->op->variant == CORE__VARIANT_OUT)
        for (uint32_t i = 0; i < k->nresults; i++)
            k->targets[i] = k->args[target_at(k, i)].u.tensor;
    for (uint32_t i = 0; i < k->nresults; i++)
        if (k->targets[i])
            CORE_TRY(core__target_check(k->op, target_at(k, i), k->targets[i],
                                        k->inference.device));
    return k->targets[0] ? core__overlap_check(k->op, k->args, k->nargs)
                         : CORE_OK;
}

/* True if the kernel may write directly into the target: nothing else reads
 * it, or the operator exists only in place (uniform_). */
static bool writes_target(const kernel_run *k, const core_tensor *target,
                          const core__result_spec *spec)
{
    if (target->dtype != spec->dtype)
        return false;
    if (k->op->variant == CORE__VARIANT_INPLACE)
        return core__operator_base(k->op) == k->op;
    /* The arguments before the targets: one may be the target itself. */
    for (uint32_t i = 0; i < k->op->nargs - k->nresults; i++) {
        const core_value *value = &k->args[i];

        if (value->tag == CORE_VALUE_TENSOR &&
            core__layout_overlap(target, value->u.tensor) != CORE__OVERLAP_NONE)
            return false;
        if (value->tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t j = 0; j < value->count; j++)
                if (value->u.tensors[j] &&
                    core__layout_overlap(target, value->u.tensors[j]) !=
                        CORE__OVERLAP_NONE)
                    return false;
    }
    return true;
}

static core_status check_inplace(const kernel_run *k, const core_tensor *target,
                                 const core__result_spec *spec)
{
    bool same = spec->ndim == target->ndim;
    char expected[160];
    char given[160];

    for (uint32_t i = 0; same && i < spec->ndim; i++)
        same = spec->sizes[i] == target->sizes[i];
    if (!same)
        return core__op_error(
            CORE_ERROR_SHAPE, k->op,
            "the result has sizes %s, which do not match the sizes %s of the "
            "tensor to be changed",
            core__sizes_text(spec->ndim, spec->sizes, expected,
                             sizeof expected),
            core__sizes_text(target->ndim, target->sizes, given, sizeof given));
    CORE_TRY(core__dtype_check_computable(k->op, target->dtype));
    if (core__dtype_category(target->dtype) < core__dtype_category(spec->dtype))
        return core__op_error(CORE_ERROR_DTYPE, k->op,
                              "the result is %s and cannot be stored in a "
                              "tensor of %s",
                              core__dtype_name(spec->dtype),
                              core__dtype_name(target->dtype));
    return CORE_OK;
}

static core_status check_targets(const kernel_run *k)
{
    for (uint32_t i = 0; i < k->nresults; i++) {
        const core__result_spec *spec = &k->inference.results[i];

        if (spec->dtype == CORE_DTYPE_NONE)
            continue; /* not requested */
        if (k->op->variant == CORE__VARIANT_OUT)
            CORE_TRY(core__out_check_shape(k->op, target_at(k, i),
                                           k->targets[i], spec->dtype,
                                           spec->ndim, spec->sizes));
        else
            CORE_TRY(check_inplace(k, k->targets[i], spec));
    }
    return CORE_OK;
}

static core_status make_outputs(kernel_run *k)
{
    if (k->targets[0])
        CORE_TRY(check_targets(k));
    for (uint32_t i = 0; i < k->nresults; i++) {
        const core__result_spec *spec = &k->inference.results[i];
        core_tensor *target = k->targets[i];

        if (spec->dtype == CORE_DTYPE_NONE)
            continue; /* not requested */
        if (target && k->op->variant == CORE__VARIANT_OUT)
            CORE_TRY(core__out_resize(k->op, target_at(k, i), target,
                                      spec->dtype, spec->ndim, spec->sizes));
        if (target && writes_target(k, target, spec)) {
            core__tensor_retain(target);
            k->outputs[i] = target;
        } else {
            CORE_TRY(core__tensor_new(
                k->inference.device, spec->dtype, spec->ndim, spec->sizes,
                spec->has_strides ? spec->strides : NULL, &k->outputs[i]));
        }
    }
    return CORE_OK;
}

static void note_dtype(kernel_run *k, core_dtype dtype)
{
    if (k->ndtypes < CORE_SIGNATURE_MAX)
        k->dtypes[k->ndtypes++] = dtype;
}

/* Allocates views for all tensors; each may be copied once or twice. */
static core_status reserve_views(kernel_run *k)
{
    size_t count = 0;
    size_t most;
    char *block;

    for (uint32_t i = 0; i < k->nargs; i++)
        count += k->args[i].tag == CORE_VALUE_TENSOR        ? 1
                 : k->args[i].tag == CORE_VALUE_TENSOR_LIST ? k->args[i].count
                                                            : 0;
    k->views = k->few.views;
    k->view_lists = k->few.view_lists;
    k->copies = k->few.copies;
    k->tensors = k->run.tensors;
    most = 3 * count + CORE__RESULTS_MAX + 1;
    if (core__likely(most <= VIEWS_MAX))
        return CORE_OK;
    block = core__alloc(most * (sizeof(core_view) + 3 * sizeof(void *)));
    if (!block)
        return core__error_memory(most * sizeof(core_view));
    k->many = block;
    k->views = (core_view *)(void *)block;
    k->view_lists = (const core_view **)(void *)(k->views + most);
    k->copies = (core_tensor **)(void *)(k->view_lists + most);
    k->tensors = k->copies + most;
    return CORE_OK;
}

static void add_view(kernel_run *k, core_tensor *tensor, core_view *view)
{
    k->tensors[k->ntensors++] = tensor;
    core__tensor_fill_view(tensor, view);
}

/* A 0-dim tensor on the host is copied to the device of the others. */
static core_status add_view_here(kernel_run *k, core_tensor *tensor,
                                 core_view *view)
{
    if (core__unlikely(tensor->device != k->inference.device)) {
        core_tensor *here = NULL;

        CORE_TRY(core__tensor_new(k->inference.device, tensor->dtype,
                                  tensor->ndim, tensor->sizes, NULL, &here));
        k->copies[k->ncopies++] = here;
        CORE_TRY(core__dispatch_copy(here, tensor));
        tensor = here;
    }
    add_view(k, tensor, view);
    return CORE_OK;
}

static core_status view_list(kernel_run *k, const core_value *from,
                             core_value *to)
{
    *to = (core_value){CORE_VALUE_VIEW_LIST,
                       from->count,
                       {.views = k->view_lists + k->nlisted}};
    note_dtype(k, from->count && from->u.tensors[0] ? from->u.tensors[0]->dtype
                                                    : CORE_DTYPE_NONE);
    for (uint32_t i = 0; i < from->count; i++) {
        core_tensor *tensor = from->u.tensors[i];
        core_view *view = NULL;

        if (tensor) {
            view = &k->views[k->nviews++];
            CORE_TRY(add_view_here(k, tensor, view));
        }
        k->view_lists[k->nlisted++] = view;
    }
    return CORE_OK;
}

static core_status make_values(kernel_run *k)
{
    uint32_t count = k->op->nargs;

    if (k->op->variant == CORE__VARIANT_OUT)
        count -= k->nresults; /* out arguments are passed as results */
    k->nvalues = count;
    for (uint32_t i = 0; i < count; i++) {
        const core_value *value = &k->args[i];

        if (value->tag == CORE_VALUE_TENSOR) {
            core_view *view = &k->views[k->nviews++];

            CORE_TRY(add_view_here(k, value->u.tensor, view));
            note_dtype(k, value->u.tensor->dtype);
            k->values[i] = (core_value){CORE_VALUE_VIEW, 0, {.view = view}};
        } else if (value->tag == CORE_VALUE_TENSOR_LIST) {
            CORE_TRY(view_list(k, value, &k->values[i]));
        } else {
            if ((k->op->tensors | k->op->lists) >> i & 1)
                note_dtype(k, CORE_DTYPE_NONE);
            k->values[i] = *value;
        }
    }
    return CORE_OK;
}

/* Random kernels receive seed, offset and the counter of a capture after their
 * arguments. */
static core_status add_random(kernel_run *k, const core_kernel *kernel)
{
    uint32_t minor =
        ((const core__kernel *)(const void *)kernel)->host->abi_minor;
    core_stream *stream = core__stream_current(k->inference.device);
    core__launch_log *log = core__thread_self()->launch_log;
    core_generator *generator = NULL;
    core_tensor *counter = NULL;
    uint64_t numel = 0;
    uint64_t seed = 0;
    uint64_t offset = 0;

    for (uint32_t i = 0; i < k->nargs; i++)
        if (k->args[i].tag == CORE_VALUE_GENERATOR)
            generator = k->args[i].u.generator;
    if (!generator && !log)
        generator = core__generator_default_find(k->inference.device->name);
    for (uint32_t i = 0; i < k->nresults; i++)
        if (k->outputs[i] && (uint64_t)k->outputs[i]->numel > numel)
            numel = (uint64_t)k->outputs[i]->numel;
    for (uint32_t i = 0; i < k->nviews; i++)
        if ((uint64_t)k->views[i].numel > numel)
            numel = (uint64_t)k->views[i].numel;
    if (k->inference.draws != CORE__DRAWS_LARGEST)
        numel = k->inference.draws;
    if (core__unlikely(log != NULL))
        core__launch_log_random(log, generator, numel, k->nvalues);
    else if (k->inference.draws == 0)
        ;
    else if (core__unlikely(stream->capture != NULL))
        CORE_TRY(core__capture_random(stream, generator, numel, &seed, &offset,
                                      &counter));
    else
        core__generator_advance_for(generator, numel, &seed, &offset);
    k->values[k->nvalues++] =
        (core_value){CORE_VALUE_INT, 0, {.i = (int64_t)seed}};
    k->values[k->nvalues++] =
        (core_value){CORE_VALUE_INT, 0, {.i = (int64_t)offset}};
    if (minor < 2)
        return CORE_OK;
    k->values[k->nvalues] = (core_value){0};
    if (counter) {
        core_view *view = &k->views[k->nviews++];

        add_view(k, counter, view);
        k->values[k->nvalues] =
            (core_value){CORE_VALUE_VIEW, 0, {.view = view}};
    }
    k->nvalues++;
    return CORE_OK;
}

/* --------------------------------------------------------- constraints -- */

static bool view_matches(const kernel_run *k, const core_kernel *kernel,
                         core_dtype common, const core_view *view)
{
    return !(kernel->demands & CORE_REQUIRE_CONTIGUOUS &&
             !(view->flags & CORE_VIEW_CONTIGUOUS)) &&
           core__constraint_dtype(view->dtype, common) == view->dtype &&
           core__constraint_aligned(kernel, k->inference.device, view->memory);
}

/* Replaces a tensor in k->tensors with a copy that satisfies the kernel. */
static core_status replace(kernel_run *k, core_tensor **at, core_dtype common,
                           bool filled, core_view *view)
{
    core_tensor *copy;

    CORE_TRY(core__constraint_copy(k->op, *at,
                                   core__constraint_dtype((*at)->dtype, common),
                                   filled, &copy));
    k->copies[k->ncopies++] = copy;
    core__tensor_fill_view(copy, view);
    *at = copy;
    return CORE_OK;
}

/* Operators that exist only in place read what they write. */
static bool only_in_place(const kernel_run *k)
{
    return k->op->variant == CORE__VARIANT_INPLACE &&
           core__operator_base(k->op) == k->op;
}

static core_status replace_results(kernel_run *k, const core_kernel *kernel,
                                   core_dtype common)
{
    uint32_t at = k->nviews;

    for (uint32_t i = 0; i < k->nresults; i++) {
        core_tensor **tensor = &k->tensors[at];

        if (!k->outputs[i])
            continue;
        at++;
        if (k->substitutes[i] ||
            view_matches(k, kernel, common, &k->result_views[i]))
            continue;
        CORE_TRY(replace(k, tensor, common,
                         only_in_place(k) && !(k->op->flags & CORE__OP_RANDOM),
                         &k->result_views[i]));
        k->substitutes[i] = *tensor;
    }
    if (only_in_place(k) && k->substitutes[0]) {
        k->tensors[0] = k->substitutes[0];
        k->views[0] = k->result_views[0];
    }
    return CORE_OK;
}

/* Copies tensors that do not satisfy the kernel; each tensor once. */
static core_status make_suitable(kernel_run *k, const core_kernel *kernel,
                                 core_dtype common)
{
    uint32_t made = k->ncopies;

    CORE_TRY(replace_results(k, kernel, common));
    for (uint32_t i = 0; i < k->nviews; i++) {
        bool copied = false;

        if (view_matches(k, kernel, common, &k->views[i]))
            continue;
        for (uint32_t c = 0; c < made && !copied; c++)
            copied = k->copies[c] == k->tensors[i];
        /* Copying a fresh tensor again would not improve its layout. */
        if (!copied || core__constraint_dtype(k->views[i].dtype, common) !=
                           k->views[i].dtype)
            CORE_TRY(replace(k, &k->tensors[i], common, true, &k->views[i]));
    }
    return CORE_OK;
}

static bool all_suit(const kernel_run *k, const core_kernel *kernel)
{
    bool narrow = kernel->demands & CORE_REQUIRE_INDEX32;

    for (uint32_t i = 0; i < k->nviews; i++)
        if (!view_matches(k, kernel, CORE_DTYPE_NONE, &k->views[i]) ||
            (narrow && !core__constraint_view_fits(&k->views[i])))
            return false;
    for (uint32_t i = 0; i < k->nresults; i++)
        if (k->outputs[i] &&
            (!view_matches(k, kernel, CORE_DTYPE_NONE, &k->result_views[i]) ||
             (narrow && !core__constraint_view_fits(&k->result_views[i]))))
            return false;
    return true;
}

/* For kernels with constraints or `supports`: the first that accepts the call,
 * with copies where it needs them; NULL if there is none. */
static __attribute__((noinline)) core_status find_constrained(
    kernel_run *k, uint32_t largest, const core_kernel **out_kernel)
{
    const core_kernel *kernel;
    core_dtype common;

    kernel = core__constraint_pick_equal(k->set, k->dtypes, k->ndtypes, largest,
                                         &common);
    if (common)
        CORE_TRY(make_suitable(k, kernel, common));
    for (uint32_t i = 0; i < k->ndtypes; i++)
        k->dtypes[i] = core__constraint_dtype(k->dtypes[i], common);
    for (; kernel;
         kernel = core__kernel_next(kernel, k->dtypes, k->ndtypes, largest)) {
        const core_kernel *first = kernel;

        CORE_TRY(make_suitable(k, kernel, CORE_DTYPE_NONE));
        CORE_TRY(core__kernel_query_supports(
            k->op, k->set, k->inference.device, k->dtypes, k->ndtypes, largest,
            NULL, k->values, k->nvalues, &kernel));
        if (!kernel)
            break;
        if (kernel != first)
            CORE_TRY(make_suitable(k, kernel, CORE_DTYPE_NONE));
        if (all_suit(k, kernel))
            break;
    }
    *out_kernel = kernel;
    return CORE_OK;
}

/* Copies back arguments of which the kernel wrote copies. */
static core_status copy_back_written(kernel_run *k)
{
    uint32_t written = core__operator_written_arguments(k->op, k->nargs);

    if (k->op->variant != CORE__VARIANT_FUNCTIONAL)
        written &=
            ~core__operator_changed_arguments(k->op, k->nargs); /* results */
    for (uint32_t i = 0; written >> i && i < k->nvalues; i++) {
        const core_value *value = &k->values[i];
        uint32_t at = (uint32_t)(value->u.view - k->views);

        if (!(written >> i & 1) || value->tag != CORE_VALUE_VIEW ||
            k->tensors[at] == k->args[i].u.tensor)
            continue;
        core__conversion_count(k->op, CORE_CONVERSION_RESULT);
        CORE_TRY(core__dispatch_copy(k->args[i].u.tensor, k->tensors[at]));
    }
    return CORE_OK;
}

/* Arguments that the operator changes although its schema does not say so, such
 * as running statistics: their versions do not count it, since autograd may
 * have saved them. */
static void __attribute__((cold, noinline)) note_uncounted(const kernel_run *k)
{
    uint32_t written = k->op->data->writes & ~(uint32_t)k->op->lists;

    for (; written; written &= written - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(written);
        core_storage *storage = NULL;

        if (i < k->nargs && k->args[i].tag == CORE_VALUE_TENSOR &&
            k->args[i].u.tensor)
            storage = k->args[i].u.tensor->storage;
        if (storage && !core__storage_varies(storage))
            core__storage_set_varying(storage);
    }
}

/* Copies back results that the kernel wrote elsewhere. */
static core_status copy_back_results(kernel_run *k)
{
    if (core__unlikely(k->ncopies > 0))
        CORE_TRY(copy_back_written(k));
    for (uint32_t i = 0; i < k->nresults; i++) {
        if (!k->substitutes[i])
            continue;
        core__conversion_count(k->op, CORE_CONVERSION_RESULT);
        CORE_TRY(core__dispatch_copy(k->outputs[i], k->substitutes[i]));
    }
    return CORE_OK;
}

/* The dtype of an index without elements does not matter: where kernels only
 * have integers for it, it becomes i64. */
static __attribute__((cold, noinline)) void retype_no_indices(kernel_run *k,
                                                              uint32_t largest)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < k->nvalues && at < k->ndtypes; i++) {
        const core_value *value = &k->values[i];
        core_dtype before = k->dtypes[at];

        if (value->tag == CORE_VALUE_VIEW && value->u.view->numel == 0) {
            k->dtypes[at] = CORE_I64;
            if (core__kernel_pick(k->set, k->dtypes, k->ndtypes, largest)) {
                k->views[value->u.view - k->views].dtype = CORE_I64;
                return;
            }
            k->dtypes[at] = before;
        }
        at += (k->op->tensors | k->op->lists) >> i & 1;
    }
}

static core_status launch(kernel_run *k)
{
    core_value results[CORE__RESULTS_MAX];
    core_view *views = k->result_views;
    const core_kernel *kernel;
    uint32_t largest = 0;

    for (uint32_t i = 0; i < k->nresults; i++) {
        results[i] = (core_value){0};
        k->substitutes[i] = NULL;
        if (!k->outputs[i])
            continue;
        add_view(k, k->outputs[i], &views[i]);
        note_dtype(k, k->outputs[i]->dtype);
        results[i] = (core_value){CORE_VALUE_VIEW, 0, {.view = &views[i]}};
    }
    for (uint32_t i = 0; i < k->nviews; i++)
        if (k->views[i].ndim > largest)
            largest = k->views[i].ndim;
    kernel = core__kernel_pick(k->set, k->dtypes, k->ndtypes, largest);
    if (core__unlikely(!kernel || kernel->supports ||
                       kernel->demands & CORE__CONSTRAINTS_OPERANDS)) {
        if (!kernel)
            retype_no_indices(k, largest);
        CORE_TRY(find_constrained(k, largest, &kernel));
    }
    if (!kernel)
        return core__kernel_none_error(k->op, k->set, k->dtypes, k->ndtypes);
    if (k->op->flags & CORE__OP_RANDOM)
        CORE_TRY(add_random(k, kernel));
    k->run.device = k->inference.device;
    k->run.op = k->op;
    k->run.ntensors = k->ntensors;
    if (k->ntensors > CORE__KERNEL_TENSORS)
        k->run.many = k->tensors;
    else if (k->many)
        memcpy(k->run.tensors, k->tensors, k->ntensors * sizeof *k->tensors);
    CORE_TRY(core__kernel_launch(&k->run, kernel, NULL, k->values, k->nvalues,
                                 results, k->nresults));
    if (core__unlikely(k->op->data->writes))
        note_uncounted(k);
    return copy_back_results(k);
}

static core_status take_allocated(kernel_run *k)
{
    for (uint32_t i = 0; i < k->nresults; i++) {
        if (k->outputs[i])
            continue;
        k->outputs[i] = k->run.allocated[i];
        k->run.allocated[i] = NULL;
        if (!k->outputs[i])
            return core__op_error(CORE_ERROR_INTERNAL, k->op,
                                  "the kernel did not allocate result %u", i);
    }
    return CORE_OK;
}

static core_status finish(kernel_run *k, core_value *results, uint32_t nresults)
{
    /* The shape of results that the kernel allocated is known only now. */
    for (uint32_t i = 0; k->op->flags & CORE__OP_DYNAMIC_OUTPUT &&
                         i < k->nresults && k->targets[i];
         i++)
        CORE_TRY(core__out_check_shape(
            k->op, target_at(k, i), k->targets[i], k->outputs[i]->dtype,
            k->outputs[i]->ndim, k->outputs[i]->sizes));
    for (uint32_t i = 0; i < k->nresults; i++) {
        core_tensor *target = k->targets[i];

        if (!target || !k->outputs[i] || target == k->outputs[i])
            continue;
        if (k->op->flags & CORE__OP_DYNAMIC_OUTPUT)
            CORE_TRY(core__out_resize(k->op, target_at(k, i), target,
                                      k->outputs[i]->dtype, k->outputs[i]->ndim,
                                      k->outputs[i]->sizes));
        core__conversion_count(k->op, CORE_CONVERSION_RESULT);
        CORE_TRY(core__dispatch_copy(target, k->outputs[i]));
    }
    for (uint32_t i = 0; i < k->nresults && i < nresults; i++) {
        core_tensor *result = k->targets[i] ? k->targets[i] : k->outputs[i];

        if (!result)
            continue;
        core__tensor_retain(result);
        results[i] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = result}};
    }
    return CORE_OK;
}

/* True if every result is empty, so that no kernel is called. */
static bool no_results(const kernel_run *k)
{
    bool empty = k->nresults > 0;

    for (uint32_t i = 0; i < k->nresults && empty; i++)
        empty = !k->outputs[i] || k->outputs[i]->numel == 0;
    return empty;
}

static void count_largest(const core_tensor *tensor, uint64_t *numel)
{
    if (tensor && (uint64_t)tensor->numel > *numel)
        *numel = (uint64_t)tensor->numel;
}

/* On meta: counts the blocks that add_random would take from the generator. */
static void __attribute__((cold, noinline)) count_draws(const kernel_run *k)
{
    uint64_t numel = 0;

    for (uint32_t i = 0; i < k->nresults; i++)
        count_largest(k->outputs[i], &numel);
    for (uint32_t i = 0; i < k->nargs; i++) {
        if (k->args[i].tag == CORE_VALUE_TENSOR)
            count_largest(k->args[i].u.tensor, &numel);
        if (k->args[i].tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t j = 0; j < k->args[i].count; j++)
                count_largest(k->args[i].u.tensors[j], &numel);
    }
    if (k->inference.draws != CORE__DRAWS_LARGEST)
        numel = k->inference.draws;
    if (k->inference.draws != 0 && !no_results(k))
        core__thread_self()->meta_draws += core__generator_blocks(numel);
}

static core_status run(kernel_run *k, core_value *results, uint32_t nresults)
{
    bool dynamic = k->op->flags & CORE__OP_DYNAMIC_OUTPUT;

    CORE_TRY(find_device(k));
    CORE_TRY(find_targets(k));
    if (k->op->data->infer)
        CORE_TRY(k->op->data->infer(&k->inference));
    if (dynamic && k->inference.device->meta)
        return core__op_error(CORE_ERROR_DATA_DEPENDENT, k->op,
                              "the shape of the result depends on data, which "
                              "a tensor on \"meta\" does not have");
    if (dynamic && core__stream_current(k->inference.device)->capture) {
        core__capture_invalidate(core__stream_current(k->inference.device),
                                 core__operator_name(k->op));
        return core__op_error(CORE_ERROR_UNSUPPORTED, k->op,
                              "the shape of the result depends on data, which "
                              "a capture does not have");
    }
    if (!dynamic)
        CORE_TRY(make_outputs(k));
    if (k->inference.device->meta) {
        if (k->op->flags & CORE__OP_RANDOM)
            count_draws(k);
    } else {
        if (dynamic || !no_results(k)) {
            CORE_TRY(reserve_views(k));
            CORE_TRY(make_values(k));
            CORE_TRY(launch(k));
        }
        if (dynamic)
            CORE_TRY(take_allocated(k));
    }
    return finish(k, results, nresults);
}

core_status core__kernel_run(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    kernel_run k;
    core_status status;

    CORE_TRY(core__numbers_check_tags(call->op, args, nargs));
    memset(k.run.allocated, 0, sizeof k.run.allocated);
    k.inference.op = call->op;
    k.inference.args = args;
    k.inference.nargs = nargs;
    k.inference.device = NULL;
    k.inference.draws = CORE__DRAWS_LARGEST;
    for (uint32_t i = 0; i < CORE__RESULTS_MAX; i++)
        k.inference.results[i].has_strides = false;
    k.op = call->op;
    k.args = args;
    k.nargs = nargs;
    k.set = call->user;
    k.nresults = call->op->nresults;
    memset(k.targets, 0, sizeof k.targets);
    memset(k.outputs, 0, sizeof k.outputs);
    k.nviews = k.nlisted = k.ntensors = k.ncopies = k.ndtypes = 0;
    k.many = NULL;
    status = run(&k, results, nresults);
    for (uint32_t i = 0; i < k.ncopies; i++)
        core__tensor_release(k.copies[i]);
    core__free(k.many);
    for (uint32_t i = 0; i < k.nresults; i++) {
        core__tensor_release(k.outputs[i]);
        core__tensor_release(k.run.allocated[i]);
    }
    if (core__unlikely(status != CORE_OK))
        status = core__structured_fail(call, k.inference.device, status, args,
                                       nargs, results, nresults);
    return status;
}
