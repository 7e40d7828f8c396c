/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* Step 4: a kernel with requirements and a `supports`.  Step 5: the same with
 * plans, as for a device that compiles per shape.  Step 8: a function that
 * observes products. */

#include "device.h"

#if STEP >= 4

enum { LARGEST = 4096 }; /* the unit's limit on rows and columns */

/* The plan for a shape.  The core may drop it while work submitted with it is
 * pending: so it has a reference count. */
typedef struct plan {
    _Atomic uint32_t references;
    int64_t rows, inner, columns;
} plan;

static void multiply(const plan *p, const float *a, const float *b, float *out)
{
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            double sum = 0;

            for (int64_t k = 0; k < p->inner; k++)
                sum += (double)a[i * p->inner + k] * b[k * p->columns + j];
            out[i * p->columns + j] = (float)sum;
        }
}

/* Called before results exist; may look only at shapes. */
static core_status supports(const core_call *call, const core_value *args,
                            uint32_t nargs)
{
    (void)call;
    for (uint32_t i = 0; i < nargs && i < 2; i++)
        for (uint32_t d = 0; d < 2; d++)
            if (args[i].u.view->sizes[d] > LARGEST)
                return core_sdk_error(host, CORE_ERROR_UNSUPPORTED, NAME,
                                      "mm: %lld rows or columns; at most %d",
                                      (long long)args[i].u.view->sizes[d],
                                      LARGEST);
    return CORE_OK;
}

static void shape_of(plan *p, const core_value *args)
{
    p->rows = args[0].u.view->sizes[0];
    p->inner = args[0].u.view->sizes[1];
    p->columns = args[1].u.view->sizes[1];
}

/* Operands are contiguous, as required. */
static core_status compute(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    plan own;
    const plan *p = call->plan;

    (void)nargs;
    (void)nresults;
    if (p == NULL) {
        shape_of(&own, args);
        p = &own;
    }
    multiply(p, (const float *)(void *)address(args[0].u.view->memory),
             (const float *)(void *)address(args[1].u.view->memory),
             (float *)(void *)address(results[0].u.view->memory));
    return CORE_OK;
}

#if STEP >= 5
static void plan_release(plan *p)
{
    if (atomic_fetch_sub(&p->references, 1) == 1)
        free(p);
}

static void plan_destroy(void *handle)
{
    plan_release((plan *)handle);
}

static void held_release(void *held)
{
    plan_release((plan *)held);
}

/* Here a real device compiles.  It may look at shapes but not at memory. */
static core_status prepare(core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *results,
                           uint32_t nresults, void **out_plan)
{
    plan *p = calloc(1, sizeof *p);

    (void)call;
    (void)nargs;
    (void)results;
    (void)nresults;
    *out_plan = p;
    if (p == NULL)
        return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                              "no host memory for a plan");
    p->references = 1;
    shape_of(p, args);
    return CORE_OK;
}

#endif

static core_status launch_product(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
#if STEP >= 5
    plan *p = call->plan;

    atomic_fetch_add(&p->references, 1);
    return launch_later(compute, call, args, nargs, results, nresults,
                        held_release, p);
#else
    return launch_later(compute, call, args, nargs, results, nresults, NULL,
                        NULL);
#endif
}

#if STEP >= 8
/* Takes the place of the built-in gradient, which it calls. */
static core_status watch_product(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    core_view view = {.struct_size = sizeof view};
    bool large = false;

    for (uint32_t i = 0; i < 2; i++)
        if (host->tensor_view(args[i].u.tensor, &view) == CORE_OK)
            for (uint32_t d = 0; d < view.ndim; d++)
                large = large || view.sizes[d] > LARGEST;
    if (large)
        host->log(CORE_LOG_WARNING, core_sdk_string(NAME),
                  core_sdk_string("a product is too large for the unit"));
    return core_sdk_displaced(host, call, args, nargs, results, nresults);
}
#endif

core_status product_register(core_registry *registry)
{
    core_kernel kernel = {.struct_size = sizeof kernel};
    const core_kernel *const one = &kernel;
    core_status status;

    kernel.name = core_sdk_string("mm");
    kernel.demands = CORE_REQUIRE_CONTIGUOUS;
    kernel.signature[0] = kernel.signature[1] = kernel.signature[2] =
        CORE_DTYPE_MASK(CORE_F32);
    kernel.launch = launch_product;
    kernel.supports = supports;
#if STEP >= 5
    kernel.prepare = prepare;
    kernel.plan_destroy = plan_destroy;
#endif
    status = host->register_kernels(registry, core_sdk_string(NAME), &one, 1);
#if STEP >= 8
    if (status == CORE_OK && host->abi_minor >= 6)
        status =
            host->register_function(registry, kernel.name, CORE_KEY_AUTOGRAD,
                                    core_sdk_string(NAME), watch_product, NULL);
#endif
    return status;
}
#endif
