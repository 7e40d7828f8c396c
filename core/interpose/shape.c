/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrapper of the shape functions of a plugin's own operators. */

#include "base/memory.h"
#include "interpose/interposer.h"

#include <stdio.h>
#include <string.h>

enum { RESULTS = 4 }; /* register_shape accepts no more */

/* The function is pure: the same arguments have the same results. */
static void check_repeated(interposer_call *call, const interposer_shape *of,
                           const core_value *args, uint32_t nargs,
                           const core_result_shape *shapes, uint32_t nresults)
{
    core_result_shape again[RESULTS];

    memset(again, 0, sizeof again);
    if (of->function(of->user, args, nargs, again, nresults) != CORE_OK) {
        interposer_violation(call, "fails when it is called again with the "
                                   "same arguments");
        return;
    }
    for (uint32_t i = 0; i < nresults; i++)
        if (again[i].dtype != shapes[i].dtype ||
            again[i].ndim != shapes[i].ndim ||
            memcmp(again[i].sizes, shapes[i].sizes,
                   shapes[i].ndim * sizeof *shapes[i].sizes) != 0)
            interposer_violation(call,
                                 "infers another result %u when it is called "
                                 "again with the same arguments",
                                 i);
}

static core_status shape(void *user, const core_value *args, uint32_t nargs,
                         core_result_shape *shapes, uint32_t nresults)
{
    interposer_shape *self = user;
    interposer_call call;
    core_status status;
    bool good = true;

    CORE_TRY(interposer_enter(&call, self->interposers, "", self->name,
                              INTERPOSER_FUNCTION));
    status = self->function(self->user, args, nargs, shapes, nresults);
    if (status == CORE_OK && interposer_validates(self->interposers)) {
        for (uint32_t i = 0; i < nresults; i++)
            good = good && shapes[i].ndim <= (uint32_t)CORE_MAX_NDIM;
        if (!good)
            interposer_violation(&call, "infers more than %d dimensions",
                                 (int)CORE_MAX_NDIM);
        else if (nresults <= RESULTS)
            check_repeated(&call, self, args, nargs, shapes, nresults);
    }
    return interposer_leave(&call, status, "%u arguments, %u results", nargs,
                            nresults);
}

core_status core__interposers_shape(core__interposers *interposers,
                                    core_string name,
                                    core_shape_function *given, void **user)
{
    interposer_shape *wrapper;

    if (!*given)
        return CORE_OK; /* rejected at registration */
    wrapper = core__alloc_zero(sizeof *wrapper);
    if (!wrapper)
        return core__error_memory(sizeof *wrapper);
    wrapper->interposers = interposers;
    wrapper->function = *given;
    wrapper->user = *user;
    snprintf(wrapper->name, sizeof wrapper->name, "%.*s.shape",
             (int)(name.size < 88 ? name.size : 88), name.data);
    wrapper->next = interposers->shapes;
    interposers->shapes = wrapper;
    *given = shape;
    *user = wrapper;
    return CORE_OK;
}
