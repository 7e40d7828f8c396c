/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* optim.c: optimizer steps over many tensors.  The core has checked that all
 * are dense and of one dtype. */

#include <gpu/host/host.h>
#include <gpu/shared_optim.h>

#include <math.h>

enum { BLOCKS = INT32_MAX }; /* in a launch */

/* Adds tensors from *next on, as many as fit in a launch, and advances *next.
 * Skips empty tensors. */
static core_status fill(gpu_step_list *list, const core_value *args,
                        uint32_t nlists, uint32_t *next)
{
    uint64_t blocks = 0, more;

    list->count = 0;
    for (; *next < args[0].count && list->count < GPU_STEP_TENSORS; ++*next) {
        uint64_t numel = (uint64_t)args[0].u.views[*next]->numel;

        more = (numel + GPU_STEP_CHUNK - 1) / GPU_STEP_CHUNK;
        if (more > BLOCKS)
            return gpu_refuse(
                CORE_ERROR_UNSUPPORTED,
                "an optimizer step: a parameter has %llu elements",
                (unsigned long long)numel);
        if (blocks + more > BLOCKS)
            break;
        if (more == 0)
            continue;
        list->first[list->count] = (uint32_t)blocks;
        list->size[list->count] = numel;
        for (uint32_t k = 0; k < nlists; k++)
            list->data[k][list->count] =
                gpu_address(args[k].u.views[*next]->memory);
        list->count++;
        blocks += more;
    }
    list->first[list->count] = (uint32_t)blocks;
    return CORE_OK;
}

/* Launches until all tensors are done; p starts with the list. */
static core_status run(core_call *call, const char *stem,
                       const core_value *args, uint32_t nlists,
                       gpu_step_list *list, const void *p, size_t size)
{
    core_status status = CORE_OK;
    char name[GPU_NAME];
    uint32_t next = 0;

    if (args[0].count == 0)
        return CORE_OK;
    gpu_name(name, stem, args[0].u.views[0]->dtype);
    while (status == CORE_OK && next < args[0].count) {
        status = fill(list, args, nlists, &next);
        if (status == CORE_OK)
            status = gpu_launch(call, "optim", name,
                                gpu_blocks(list->first[list->count], GPU_BLOCK),
                                p, size);
    }
    return status;
}

/* rest: (momentum, dampening, weight_decay, nesterov, …); optional: (grad_scale,
 * found_inf) */
static core_status run_sgd(core_call *call, gpu_sgd *p, const core_value *args,
                           const core_value *rest, const core_value *optional)
{
    p->momentum = core_sdk_double(&rest[0], 0);
    p->share = 1 - core_sdk_double(&rest[1], 0);
    p->decay = core_sdk_double(&rest[2], 0);
    p->nesterov = rest[3].u.i != 0;
    p->list.grad_scale = gpu_data(&optional[0]);
    p->list.found_inf = gpu_data(&optional[1]);
    return run(call, "optim_sgd", args, p->momentum != 0 ? 3 : 2, &p->list, p,
               sizeof *p);
}

/* (self, grads, momentum_buffers, lr, momentum, dampening, weight_decay,
 * nesterov, first, grad_scale, found_inf) */
static core_status sgd(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    gpu_sgd p;

    (void)nargs;
    (void)results;
    (void)nresults;
    memset(&p, 0, sizeof p);
    p.rate = -core_sdk_double(&args[3], 0);
    p.first = args[8].u.i != 0;
    return run_sgd(call, &p, args, &args[4], &args[9]);
}

/* (self, grads, momentum_buffers, (lr, first), momentum, dampening,
 * weight_decay, nesterov, grad_scale, found_inf) */
static core_status sgd_of_numbers(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    gpu_sgd p;

    (void)nargs;
    (void)results;
    (void)nresults;
    memset(&p, 0, sizeof p);
    p.list.numbers = gpu_data(&args[3]);
    return run_sgd(call, &p, args, &args[4], &args[8]);
}

/* rest: (beta1, beta2, eps, weight_decay, decoupled, grad_scale, found_inf) */
static core_status run_adam(core_call *call, gpu_adam *p,
                            const core_value *args, const core_value *rest)
{
    p->beta1 = core_sdk_double(&rest[0], 0);
    p->beta2 = core_sdk_double(&rest[1], 0);
    p->epsilon = core_sdk_double(&rest[2], 0);
    p->decay = core_sdk_double(&rest[3], 0);
    p->decoupled = rest[4].u.i != 0 && p->decay != 0;
    p->list.grad_scale = gpu_data(&rest[5]);
    p->list.found_inf = gpu_data(&rest[6]);
    return run(call, "optim_adam", args, 4, &p->list, p, sizeof *p);
}

/* (self, grads, exp_avgs, exp_avg_sqs, step, lr, beta1, beta2, eps,
 * weight_decay, decoupled, grad_scale, found_inf) */
static core_status adam(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    double step = (double)core_sdk_int(&args[4], 1);
    double rate = core_sdk_double(&args[5], 0);
    gpu_adam p;

    (void)nargs;
    (void)results;
    (void)nresults;
    memset(&p, 0, sizeof p);
    p.rate = -(rate / (1 - pow(core_sdk_double(&args[6], 0), step)));
    p.root = sqrt(1 - pow(core_sdk_double(&args[7], 0), step));
    p.remainder = 1 - rate * core_sdk_double(&args[9], 0);
    return run_adam(call, &p, args, &args[6]);
}

/* (self, grads, exp_avgs, exp_avg_sqs, (rate, root, remainder), beta1, beta2,
 * eps, weight_decay, decoupled, grad_scale, found_inf) */
static core_status adam_of_numbers(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    gpu_adam p;

    (void)nargs;
    (void)results;
    (void)nresults;
    memset(&p, 0, sizeof p);
    p.list.numbers = gpu_data(&args[4]);
    return run_adam(call, &p, args, &args[5]);
}

core_status gpu_register_optim(core_registry *registry)
{
#define STEPS(M)                                                              \
    {"_fused_sgd_step", sgd, NULL, {M, M, M, GPU_M_F32, GPU_M_F32}, 0, NULL}, \
        {"_fused_sgd_step.device_numbers",                                    \
         sgd_of_numbers,                                                      \
         NULL,                                                                \
         {M, M, M, GPU_M_F64, GPU_M_F32, GPU_M_F32},                          \
         0,                                                                   \
         NULL},                                                               \
        {"_fused_adam_step",                                                  \
         adam,                                                                \
         NULL,                                                                \
         {M, M, M, M, GPU_M_F32, GPU_M_F32},                                  \
         0,                                                                   \
         NULL},                                                               \
    {                                                                         \
        "_fused_adam_step.device_numbers", adam_of_numbers, NULL,             \
            {M, M, M, M, GPU_M_F64, GPU_M_F32, GPU_M_F32}, 0, NULL            \
    }
    static const gpu_row rows[] = {STEPS(GPU_M_F32), STEPS(GPU_M_F64),
                                   STEPS(GPU_M_F16), STEPS(GPU_M_BF16)};

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
