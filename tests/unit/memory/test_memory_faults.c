/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Allocation fails at every point of a training step: the step returns
 * OUT_OF_MEMORY, nothing is leaked, and the next step works. */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/schemas.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"

#include <libcore/dispatch.h>
#include <libcore/memory.h>
#include <libcore/optim.h>
#include <libcore/random.h>
#include <libcore/settings.h>

typedef struct model {
    core_device *device;
    core_tensor *parameters[4];
    core_tensor *x;
    core_tensor *y;
    core_optimizer *optimizer;
} model;

static core_tensor *randn(core_device *device, int64_t rows, int64_t columns)
{
    int64_t sizes[] = {rows, columns};
    core_tensor *tensor;

    OK(core_randn(sizes, columns ? 2 : 1, NULL, CORE_F32, device, &tensor));
    return tensor;
}

static void make(model *m, const char *device, bool adam)
{
    int64_t classes[] = {0, 2, 1};
    int64_t three = 3;

    core_seed(7);
    OK(core_device_find(device, &m->device));
    m->parameters[0] = randn(m->device, 5, 4);
    m->parameters[1] = randn(m->device, 5, 0);
    m->parameters[2] = randn(m->device, 3, 5);
    m->parameters[3] = randn(m->device, 3, 0);
    for (int i = 0; i < 4; i++)
        OK(core_tensor_set_requires_grad(m->parameters[i], true));
    m->x = randn(m->device, 3, 4);
    OK(core_tensor_from_data(classes, CORE_I64, &three, 1, m->device, &m->y));
    if (adam) {
        core_adam_options options = {sizeof options, 0,    0.01, 0.9,
                                     0.999,          1e-8, 0};

        OK(core_adam_create(m->parameters, 4, &options, &m->optimizer));
    } else {
        core_sgd_options options = {sizeof options, 1, 0.01, 0.9, 0, 1e-4};

        OK(core_sgd_create(m->parameters, 4, &options, &m->optimizer));
    }
}

static void unmake(model *m)
{
    core_optimizer_release(m->optimizer);
    for (int i = 0; i < 4; i++)
        core_tensor_release(m->parameters[i]);
    core_tensor_release(m->x);
    core_tensor_release(m->y);
}

static core_status forward(model *m, core_tensor **out_loss)
{
    core_tensor *hidden = NULL;
    core_tensor *active = NULL;
    core_tensor *scores = NULL;
    core_status status;

    *out_loss = NULL;
    status = core_linear(m->x, m->parameters[0], m->parameters[1], &hidden);
    if (status == CORE_OK)
        status = core_relu(hidden, &active);
    if (status == CORE_OK)
        status =
            core_linear(active, m->parameters[2], m->parameters[3], &scores);
    if (status == CORE_OK)
        status =
            core_cross_entropy_loss(scores, m->y, NULL, 1, -100, 0.0, out_loss);
    core_tensor_release(hidden);
    core_tensor_release(active);
    core_tensor_release(scores);
    return status;
}

static core_status step(model *m)
{
    core_tensor *loss = NULL;
    core_status status;
    double value;

    core_optimizer_zero_grad(m->optimizer);
    status = forward(m, &loss);
    if (status == CORE_OK)
        status = core_backward(&loss, 1, NULL, 0);
    if (status == CORE_OK)
        status = core_optimizer_step(m->optimizer);
    if (status == CORE_OK)
        status = core_tensor_item_float(loss, &value);
    core_tensor_release(loss);
    return status;
}

static int64_t storages(model *m)
{
    OK(core_device_synchronize(m->device));
    return core__thread_storages(m->device->backend->slot);
}

static void starve(const char *device, bool adam)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    core_memory_stats stats = {.struct_size = sizeof stats};
    int64_t allowed = 0;
    int64_t before;
    int64_t kept;
    model m;

    schemas_parse();
    make(&m, device, adam);
    /* Allocates what is allocated only once: the operators' tables and the
     * optimizer's state, which its second step changes by other operators than
     * its first. */
    OK(step(&m));
    OK(step(&m));
    core_optimizer_zero_grad(m.optimizer);
    core__alloc_fault_set(INT32_MAX, false);
    /* The query makes the allocator join blocks lazily left apart. */
    OK(core_memory_get_stats(m.device, &stats));
    before = core__alloc_live();
    kept = storages(&m);
    while (status != CORE_OK) {
        core__alloc_fault_set(allowed++, false);
        status = step(&m);
        core__alloc_fault_set(INT32_MAX, false);
        core_optimizer_zero_grad(m.optimizer);
        if (status != CORE_OK)
            ck_assert_msg(status == CORE_ERROR_OUT_OF_MEMORY, "%s: %s",
                          core_status_name(status), core_error_message());
        ck_assert_msg(storages(&m) == kept, "after %lld: %lld storages leak",
                      (long long)allowed, (long long)(storages(&m) - kept));
        ck_assert_msg(core__alloc_live() == before,
                      "after %lld: %lld blocks leak", (long long)allowed,
                      (long long)(core__alloc_live() - before));
    }
    ck_assert_int_gt(allowed, 30);
    core__alloc_fault_set(-1, false);
    OK(step(&m));
    unmake(&m);
}

START_TEST(step_on_the_cpu_survives_every_failing_allocation)
{
    starve("cpu", false);
    starve("cpu", true);
}
END_TEST

START_TEST(step_on_sim_survives_every_failing_allocation)
{
    starve("sim", false);
}
END_TEST

/* Every allocation from the nth on fails, even that of an error object: the
 * failing call still sets a message. */
static void dry_up(const char *device)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    int64_t allowed = 0;
    model m;

    make(&m, device, false);
    OK(step(&m));
    OK(step(&m));
    while (status != CORE_OK) {
        core_error_clear();
        core__alloc_fault_set(allowed++, true);
        status = step(&m);
        core__alloc_fault_set(-1, false);
        if (status == CORE_OK)
            break;
        ck_assert_msg(status == CORE_ERROR_OUT_OF_MEMORY, "%lld: %s: %s",
                      (long long)allowed, core_status_name(status),
                      core_error_message());
        ck_assert_msg(core_error_code() == status, "%lld: the record has %s",
                      (long long)allowed, core_status_name(core_error_code()));
        ck_assert_msg(*core_error_message(), "%lld: no message",
                      (long long)allowed);
    }
    ck_assert_int_gt(allowed, 30);
    OK(step(&m));
    unmake(&m);
}

START_TEST(permanent_lack_of_memory_fails_every_step_on_the_cpu)
{
    dry_up("cpu");
}
END_TEST

START_TEST(permanent_lack_of_memory_fails_every_step_on_sim)
{
    dry_up("sim");
}
END_TEST

static core_status twice(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core_status status;

    (void)call;
    (void)nargs;
    (void)nresults;
    status = core_add(args[0].u.tensor, args[0].u.tensor, core_int(1),
                      &results[0].u.tensor);
    if (status != CORE_OK)
        return status;
    results[0].tag = CORE_VALUE_TENSOR;
    status = core_neg(args[0].u.tensor, &results[1].u.tensor);
    if (status == CORE_OK)
        results[1].tag = CORE_VALUE_TENSOR;
    else
        core_value_release(&results[0]);
    return status;
}

/* Only the CPU has the kernel: the results are allocated on the host first. */
START_TEST(fallback_without_memory_fails)
{
    core_registration *schema, *kernel;
    core_status status;
    core_device *sim;
    core_value arg, results[2] = {0};
    core_operator *op;
    int64_t before;
    int failed = 0;

    core__alloc_fault_set(INT32_MAX, false); /* disables all caches */
    OK(core_device_find("sim", &sim));
    arg = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = randn(sim, 2, 3)}};
    OK(core_setting_set("LIBCORE_FALLBACK", "count"));
    OK(core_op_register("mine::twice(Tensor a) -> (Tensor, Tensor)", &schema));
    OK(core_function_register("mine::twice", CORE_KEY_BACKEND, "cpu", twice,
                              NULL, &kernel));
    OK(core_op_find("mine::twice", &op));
    OK(core_op_call(op, &arg, 1, results, 2));
    core_value_release(&results[0]);
    core_value_release(&results[1]);
    before = core__alloc_live();
    /* Some allocations are optional: a call that succeeds is not the last to
     * try. */
    for (int64_t allowed = 0; allowed < 100; allowed++) {
        core__alloc_fault_set(allowed, false);
        status = core_op_call(op, &arg, 1, results, 2);
        core__alloc_fault_set(INT32_MAX, false);
        if (status != CORE_OK) {
            failed++;
            ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
            ck_assert_int_eq(results[0].tag, CORE_VALUE_NONE);
            ck_assert_int_eq(results[1].tag, CORE_VALUE_NONE);
        }
        core_value_release(&results[0]);
        core_value_release(&results[1]);
        ck_assert_msg(core__alloc_live() == before,
                      "after %lld: %lld blocks leak", (long long)allowed,
                      (long long)(core__alloc_live() - before));
    }
    core__alloc_fault_set(-1, false);
    ck_assert_int_gt(failed, 5);
    core_value_release(&arg);
    core_registration_release(kernel);
    core_registration_release(schema);
}
END_TEST

SUITE("memory/memory_faults", step_on_the_cpu_survives_every_failing_allocation,
      step_on_sim_survives_every_failing_allocation,
      permanent_lack_of_memory_fails_every_step_on_the_cpu,
      permanent_lack_of_memory_fails_every_step_on_sim,
      fallback_without_memory_fails)
