/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Results of kernels that write row by row.  The core makes their operands
 * contiguous; a result with another layout (channels-last, or the window that
 * an in-place operator changes) is computed in scratch memory and copied. */

#include "opencl.h"

enum { RESULTS = 8, CHUNK = 256 };

/* The kernel behind a registered one.  Never freed, because the plugin is never
 * unloaded. */
typedef struct wrapped {
    core_function launch;
    void *user;
} wrapped;

typedef struct chunk {
    struct chunk *next;
    uint32_t used;
    wrapped entries[CHUNK];
} chunk;

static chunk *chunks;

typedef struct dense_view {
    core_view view;
    int64_t strides[CORE_MAX_NDIM];
} dense_view;

static core_status take_dense(core_call *call, const core_view *view,
                              dense_view *to)
{
    uint64_t item = core_sdk_itemsize(view->dtype);
    int64_t stride = 1;

    to->view = *view;
    to->view.strides = to->strides;
    to->view.flags |= CORE_VIEW_CONTIGUOUS;
    for (uint32_t d = view->ndim; d-- > 0;) {
        to->strides[d] = stride;
        stride *= view->sizes[d];
    }
    return opencl_host->call_scratch(call, (uint64_t)view->numel * item,
                                     &to->view.memory);
}

static core_status launch_dense(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const wrapped *inner = call->user;
    core_value given[RESULTS];
    dense_view views[RESULTS];
    core_status status = CORE_OK;
    bool any = false;

    call->user = inner->user;
    for (uint32_t i = 0; i < nresults && i < RESULTS; i++)
        any |= results[i].tag == CORE_VALUE_VIEW &&
               !(results[i].u.view->flags & CORE_VIEW_CONTIGUOUS) &&
               results[i].u.view->numel > 0;
    if (!any)
        return inner->launch(call, args, nargs, results, nresults);
    for (uint32_t i = 0; i < nresults && status == CORE_OK; i++) {
        const core_view *view = results[i].u.view;

        given[i] = results[i];
        if (results[i].tag != CORE_VALUE_VIEW ||
            (view->flags & CORE_VIEW_CONTIGUOUS) || view->numel == 0)
            continue;
        status = take_dense(call, view, &views[i]);
        given[i].u.view = &views[i].view;
    }
    if (status == CORE_OK)
        status = inner->launch(call, args, nargs, given, nresults);
    for (uint32_t i = 0; i < nresults && status == CORE_OK; i++) {
        const core_view *to = results[i].u.view, *from = given[i].u.view;

        if (results[i].tag == CORE_VALUE_VIEW && from != to)
            status = opencl_copy_window(call, to->dtype, to->ndim, to->sizes,
                                        to->memory, to->strides, from->memory,
                                        from->strides);
    }
    return status;
}

core_status opencl_register_kernel(core_registry *registry, core_kernel kernel)
{
    const core_kernel *one = &kernel;
    wrapped *entry;

    if (!(kernel.demands & CORE_REQUIRE_CONTIGUOUS))
        goto done;
    if (chunks == NULL || chunks->used == CHUNK) {
        chunk *more = calloc(1, sizeof *more);

        if (more == NULL)
            return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                                 "no host memory for the kernels");
        more->next = chunks;
        chunks = more;
    }
    entry = &chunks->entries[chunks->used++];
    *entry = (wrapped){kernel.launch, kernel.user};
    kernel.launch = launch_dense;
    kernel.user = entry;
done:
    return opencl_host->register_kernels(registry, core_sdk_string("opencl"),
                                         &one, 1);
}
