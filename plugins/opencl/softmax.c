/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Softmax and its logarithm, forward and backward. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"softmax", opencl_softmax_cl, NULL, NULL};

static void put_line(opencl_launch *l, opencl_line line)
{
    opencl_long(l, line.outer);
    opencl_long(l, line.size);
    opencl_long(l, line.inner);
}

/* _softmax(self, dim, half_to_float) */
static core_status softmax(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    core_dtype types[2] = {to->dtype, args[0].u.view->dtype};
    opencl_line line = opencl_line_of(to, args[1].u.i);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "softmax");
    opencl_buffer(&l, to->memory);
    opencl_view(&l, &args[0]);
    put_line(&l, line);
    opencl_int(&l, call->user != NULL);
    return opencl_run(&l, (uint64_t)(line.outer * line.inner), OPENCL_GROUP);
}

/* _softmax_backward_data(grad_output, output, dim, input_dtype) */
static core_status softmax_backward(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    core_dtype types[2] = {to->dtype, args[0].u.view->dtype};
    opencl_line line = opencl_line_of(to, args[2].u.i);
    opencl_launch l;

    (void)nargs;
    (void)nresults;
    if (to->numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "softmax_backward");
    opencl_buffer(&l, to->memory);
    opencl_view(&l, &args[0]);
    opencl_view(&l, &args[1]);
    put_line(&l, line);
    opencl_int(&l, call->user != NULL);
    return opencl_run(&l, (uint64_t)(line.outer * line.inner), OPENCL_GROUP);
}

core_status opencl_register_rows(core_registry *registry)
{
    /* The result's type and the operands'. */
    static const uint32_t pairs[][2] = {
        {OPENCL_F32, OPENCL_F32}, {OPENCL_F64, OPENCL_F64},
        {OPENCL_F16, OPENCL_F16}, {OPENCL_BF16, OPENCL_BF16},
        {OPENCL_F32, OPENCL_F16}, {OPENCL_F32, OPENCL_BF16},
        {OPENCL_F16, OPENCL_F32}, {OPENCL_BF16, OPENCL_F32},
    };
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS, BACKWARD_ONLY = 6 };
    core_status status = CORE_OK;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        uint32_t to = pairs[i][0], from = pairs[i][1];
        const opencl_row rows[] = {
            {"_softmax_backward_data",
             softmax_backward,
             NULL,
             {from, from, to},
             DENSE},
            {"_log_softmax_backward_data",
             softmax_backward,
             (void *)1,
             {from, from, to},
             DENSE},
            {"_softmax", softmax, NULL, {from, to}, DENSE},
            {"_log_softmax", softmax, (void *)1, {from, to}, DENSE},
        };

        if (status == CORE_OK)
            status =
                opencl_register(registry, rows, i < BACKWARD_ONLY ? 4 : 2, 0);
    }
    return status;
}
