/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Optimizer steps over many tensors, in one pass.  The core has checked that
 * all are dense and of one dtype.  Threads share the elements of all tensors;
 * results do not depend on the division, since every element is computed
 * separately. */

#include "optim.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

enum {
    LEAST = 16384,  /* elements that a thread takes at once */
    MOST = 1 << 20, /* with more, others would wait for the slowest */
    BESIDE = 256,   /* elements that are computed in a copy */
    LINE = 64       /* the first element of a chunk is aligned to a cache
                     * line */
};

typedef struct steps {
    cpu_step step;
    const core_value *lists;
    uint32_t nlists;
    uint32_t size;      /* of an element */
    const float *scale; /* the divisor of gradients, or NULL */
    cpu_step_function compute;
    int64_t *first; /* the first index of each tensor in the sequence of all,
                     * and the end */
} steps;

static const cpu_step_functions *functions(void)
{
    return CPU_CHOSEN(&cpu_step_functions);
}

static void divide(const steps *job, void *grad, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (job->size == sizeof(float))
            ((float *)grad)[i] /= *job->scale;
        else
            ((double *)grad)[i] /= (double)*job->scale;
}

/* Elements that are not a multiple of the round, or have scaled gradients. */
static void step_beside(const steps *job, char *const *from, int64_t n)
{
    _Alignas(64) char scratch[CPU_STEP_LISTS][BESIDE * sizeof(double)];
    void *lists[CPU_STEP_LISTS];

    for (int64_t at = 0; at < n; at += BESIDE) {
        int64_t count = n - at < BESIDE ? n - at : BESIDE;
        size_t offset = (size_t)at * job->size;
        size_t bytes = (size_t)count * job->size;

        memset(scratch, 0, sizeof scratch);
        for (uint32_t k = 0; k < job->nlists; k++)
            lists[k] = memcpy(scratch[k], from[k] + offset, bytes);
        if (job->scale)
            divide(job, scratch[1], count);
        job->compute(&job->step, lists, BESIDE);
        for (uint32_t k = 0; k < job->nlists; k++)
            if (k != 1)
                memcpy(from[k] + offset, scratch[k], bytes);
    }
}

/* Elements of tensor k from `at` on. */
static void step_part(const steps *job, uint32_t k, int64_t at, int64_t n)
{
    int64_t round = job->scale ? 0 : n & -CPU_STEP_ROUND;
    char *lists[CPU_STEP_LISTS];

    for (uint32_t l = 0; l < job->nlists; l++)
        lists[l] = (char *)cpu_address(job->lists[l].u.views[k]->memory) +
                   at * job->size;
    job->compute(&job->step, (void *const *)lists, round);
    for (uint32_t l = 0; l < job->nlists; l++)
        lists[l] += round * job->size;
    step_beside(job, lists, n - round);
}

static void task(void *context, int64_t begin, int64_t end)
{
    const steps *job = context;
    uint32_t k = 0, last = job->lists[0].count;

    while (last - k > 1) {
        uint32_t middle = (k + last) / 2;

        if (job->first[middle] <= begin)
            k = middle;
        else
            last = middle;
    }
    for (; begin < end; k++) {
        int64_t at = begin - job->first[k];
        int64_t n = job->lists[0].u.views[k]->numel - at;

        if (n > end - begin)
            n = end - begin;
        if (n > 0)
            step_part(job, k, at, n);
        begin = job->first[k + 1];
    }
}

/* Each thread has one part, or few: the next step assigns the same again, which
 * may still be in its cache. */
static int64_t chunk(int64_t n)
{
    int64_t part = n / cpu_thread_pool_threads();

    while (part > MOST)
        part /= 2;
    part = (part + LINE) & -LINE;
    return part > LEAST ? part : LEAST;
}

/* found_inf: NULL, or above 0 if the step is to be skipped. */
static core_status run(steps *job, const core_value *args, uint32_t nlists,
                       int kind, const core_value *numbers)
{
    const core_view *scale = cpu_view(&numbers[0]);
    const core_view *found = cpu_view(&numbers[1]);
    uint32_t count = args[0].count;
    bool f32;
    int64_t end = 0;

    if (count == 0 || (found && *(const float *)cpu_address(found->memory) > 0))
        return CORE_OK;
    job->first = cpu_allocate(count + 1, sizeof *job->first);
    if (!job->first)
        return CORE_ERROR_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < count; k++) {
        job->first[k] = end;
        end += (args[0].u.views[k]->numel + LINE - 1) & -LINE;
    }
    job->first[count] = end;
    f32 = args[0].u.views[0]->dtype == CORE_F32;
    job->lists = args;
    job->nlists = nlists;
    job->size = f32 ? sizeof(float) : sizeof(double);
    job->scale = scale ? cpu_address(scale->memory) : NULL;
    job->compute = (f32 ? functions()->f32 : functions()->f64)[kind];
    cpu_parallel_for(end, chunk(end), task, job);
    free(job->first);
    return CORE_OK;
}

/* rest: (momentum, dampening, weight_decay, nesterov, …); optional: (grad_scale,
 * found_inf) */
static core_status run_sgd(const core_value *args, double rate, bool first,
                           const core_value *rest, const core_value *optional)
{
    double momentum = cpu_float(&rest[0]), decay = cpu_float(&rest[2]);
    steps job = {.step = {
                     .decay = decay,
                     .beta1 = momentum,
                     .share1 = 1 - cpu_float(&rest[1]),
                     .rate = -rate,
                     .coupled = decay != 0,
                     .nesterov = cpu_int(&rest[3]) != 0,
                     .first = first,
                 }};

    return run(&job, args, momentum != 0 ? 3 : 2,
               momentum != 0 ? CPU_STEP_MOMENTUM : CPU_STEP_PLAIN, optional);
}

/* (self, grads, momentum_buffers, lr, momentum, dampening, weight_decay,
 * nesterov, first, grad_scale, found_inf) */
static core_status sgd(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    (void)call;
    (void)nargs;
    (void)results;
    (void)nresults;
    return run_sgd(args, cpu_float(&args[3]), cpu_int(&args[8]) != 0, &args[4],
                   &args[9]);
}

/* (self, grads, momentum_buffers, (lr, first), momentum, dampening,
 * weight_decay, nesterov, grad_scale, found_inf) */
static core_status sgd_of_numbers(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const double *numbers = cpu_address(cpu_view(&args[3])->memory);

    (void)call;
    (void)nargs;
    (void)results;
    (void)nresults;
    return run_sgd(args, numbers[0], numbers[1] != 0, &args[4], &args[8]);
}

/* numbers: (rate, root, remainder) of cpu_step; rest: (beta1, beta2, eps,
 * weight_decay, decoupled, grad_scale, found_inf) */
static core_status run_adam(const core_value *args, const double *numbers,
                            const core_value *rest)
{
    double beta1 = cpu_float(&rest[0]), beta2 = cpu_float(&rest[1]);
    double decay = cpu_float(&rest[3]);
    bool decoupled = cpu_int(&rest[4]) != 0;
    steps job = {.step = {
                     .decay = decay,
                     .beta1 = beta1,
                     .beta2 = beta2,
                     .share1 = 1 - beta1,
                     .share2 = 1 - beta2,
                     .epsilon = cpu_float(&rest[2]),
                     .root = numbers[1],
                     .rate = numbers[0],
                     .remainder = numbers[2],
                     .coupled = decay != 0 && !decoupled,
                     .decoupled = decay != 0 && decoupled,
                 }};

    return run(&job, args, 4, CPU_STEP_ADAM, &rest[5]);
}

/* (self, grads, exp_avgs, exp_avg_sqs, step, lr, beta1, beta2, eps,
 * weight_decay, decoupled, grad_scale, found_inf) */
static core_status adam(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    double count = cpu_float(&args[4]), rate = cpu_float(&args[5]);
    double beta1 = cpu_float(&args[6]), beta2 = cpu_float(&args[7]);
    const double numbers[] = {-(rate / (1 - pow(beta1, count))),
                              sqrt(1 - pow(beta2, count)),
                              1 - rate * cpu_float(&args[9])};

    (void)call;
    (void)nargs;
    (void)results;
    (void)nresults;
    return run_adam(args, numbers, &args[6]);
}

/* (self, grads, exp_avgs, exp_avg_sqs, numbers, beta1, beta2, eps, weight_decay,
 * decoupled, grad_scale, found_inf) */
static core_status adam_of_numbers(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    (void)call;
    (void)nargs;
    (void)results;
    (void)nresults;
    return run_adam(args, cpu_address(cpu_view(&args[4])->memory), &args[5]);
}

#define TYPES (CORE_DTYPE_MASK(CORE_F32) | CORE_DTYPE_MASK(CORE_F64))

static const cpu_kernel kernels[] = {
    {"_fused_sgd_step", sgd, NULL, {TYPES, TYPES, TYPES}, 0},
    {"_fused_sgd_step.device_numbers",
     sgd_of_numbers,
     NULL,
     {TYPES, TYPES, TYPES, CORE_DTYPE_MASK(CORE_F64)},
     0},
    {"_fused_adam_step", adam, NULL, {TYPES, TYPES, TYPES, TYPES}, 0},
    {"_fused_adam_step.device_numbers",
     adam_of_numbers,
     NULL,
     {TYPES, TYPES, TYPES, TYPES, CORE_DTYPE_MASK(CORE_F64)},
     0},
};

const cpu_kernel_table cpu_optim_kernels = {kernels,
                                            sizeof kernels / sizeof kernels[0]};
