/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Functions that leave the state of their thread changed when they return: they
 * are graph breaks, so the state after a call is that of the function. */

#include "support/training.h"

#include "base/thread.h"

#include <libcore/autocast.h>
#include <libcore/control_flow.h>
#include <libcore/saved.h>
#include <libcore/settings.h>

static uint64_t region;

COMPILED_FUNCTION(turns_grad_mode_off)
{
    *noutputs = 1;
    core_grad_mode_set(false);
    return core_mul(x[0], x[1], &out[0]);
}

COMPILED_FUNCTION(stays_in_inference_mode)
{
    *noutputs = 1;
    (void)core_inference_begin();
    return core_mul(x[0], x[1], &out[0]);
}

COMPILED_FUNCTION(leaves_a_region_open)
{
    *noutputs = 1;
    OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
    return core_mul(x[0], x[1], &out[0]);
}

/* Which the caller has begun. */
COMPILED_FUNCTION(ends_a_region)
{
    *noutputs = 1;
    CORE_TRY(core_mul(x[0], x[1], &out[0]));
    return core_autocast_end(region);
}

COMPILED_FUNCTION(changes_the_device)
{
    core_device *meta;

    *noutputs = 1;
    OK(core_device_find("meta", &meta));
    OK(core_device_set_current(meta));
    return core_mul(x[0], x[1], &out[0]);
}

COMPILED_FUNCTION(turns_anomaly_mode_on)
{
    *noutputs = 1;
    core_anomaly_mode_set(true);
    return core_mul(x[0], x[1], &out[0]);
}

/* A setting of the process, which is not restored. */
COMPILED_FUNCTION(changes_numerics)
{
    *noutputs = 1;
    OK(core_setting_set("LIBCORE_DETERMINISTIC", "1"));
    return core_mul(x[0], x[1], &out[0]);
}

static core_status pack(void *context, core_tensor *tensor, void **out_handle)
{
    (void)context;
    *out_handle = core_tensor_retain(tensor);
    return CORE_OK;
}

static core_status unpack(void *context, void *handle, core_tensor **out_tensor)
{
    (void)context;
    *out_tensor = core_tensor_retain(handle);
    return CORE_OK;
}

static void drop_handle(void *context, void *handle)
{
    (void)context;
    core_tensor_release(handle);
}

static void push_hooks(void)
{
    const core_saved_hooks_info info = {.struct_size = sizeof info,
                                        .pack = pack,
                                        .unpack = unpack,
                                        .release = drop_handle};

    OK(core_saved_hooks_push(&info));
}

COMPILED_FUNCTION(leaves_hooks)
{
    *noutputs = 1;
    push_hooks();
    return core_mul(x[0], x[1], &out[0]);
}

/* Which the caller has set. */
COMPILED_FUNCTION(pops_hooks)
{
    *noutputs = 1;
    CORE_TRY(core_mul(x[0], x[1], &out[0]));
    return core_saved_hooks_pop();
}

COMPILED_FUNCTION(product)
{
    *noutputs = 1;
    return core_mul(x[0], x[1], &out[0]);
}

/* Of one branch. */
COMPILED_FUNCTION(branches)
{
    core_tensor *yes = T(gt_scalar, T(sum, x[0], CORE_DTYPE_NONE), core_int(0));
    core_status status =
        core_cond(yes, turns_grad_mode_off, product, w, x, 2, out, 1);

    (void)finish();
    *noutputs = 1;
    return status;
}

/* Of hooks that this function has set, as it leaves them. */
COMPILED_FUNCTION(pops_hooks_in_a_branch)
{
    core_tensor *yes = T(gt_scalar, T(sum, x[0], CORE_DTYPE_NONE), core_int(0));
    core_status status;

    push_hooks();
    status = core_cond(yes, pops_hooks, product, w, x, 2, out, 1);
    (void)finish();
    *noutputs = 1;
    return status;
}

typedef struct state {
    bool grad, inference, anomaly, hooks;
    uint32_t numerics;
    core_dtype autocast;
    core_device *device;
} state;

static state present(void)
{
    const core__thread *self = core__thread_self();
    core_device *device;

    OK(core_device_default(&device));
    return (state){core_grad_mode(),
                   core_inference_mode(),
                   core_anomaly_mode(),
                   self->saved_hooks != NULL,
                   self->call_flags,
                   core_autocast_dtype(program_device),
                   device};
}

static void reset(const state *first)
{
    core_inference_end(0);
    core_grad_mode_set(true);
    if (core_autocast_dtype(program_device) != CORE_DTYPE_NONE)
        OK(core_autocast_end(region));
    OK(core_device_set_current(first->device));
    core_anomaly_mode_set(false);
    OK(core_setting_set("LIBCORE_DETERMINISTIC", NULL));
    while (present().hooks)
        OK(core_saved_hooks_pop());
}

/* The state after the function, called as it is or compiled. */
static state after(core_tensor_function function, world *w,
                   core_compiled *compiled)
{
    bool ends = function == ends_a_region;
    state first = present(), then;
    core_tensor *y = NULL;
    size_t one = 1;

    if (ends)
        OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
    OK(compiled ? core_compiled_call(compiled, w->inputs, 2, &y, 1)
                : function(w, w->inputs, 2, &y, &one));
    then = present();
    core_tensor_release(y);
    reset(&first);
    return then;
}

static void compare_states(core_tensor_function function, const char *reason)
{
    world w = two_leaves();
    core_compiled *compiled =
        compile_with(function, &w, (core_compile_options){.mode = 0});
    core_compiled *full = compile_fully(function, &w);
    state first = present();
    core_tensor *y;

    for (int i = 0; i < 3; i++) {
        state a = after(function, &w, NULL), b = after(function, &w, compiled);

        ck_assert_int_eq(a.grad, b.grad);
        ck_assert_int_eq(a.inference, b.inference);
        ck_assert_int_eq(a.autocast, b.autocast);
        ck_assert_int_eq(a.anomaly, b.anomaly);
        ck_assert_int_eq(a.hooks, b.hooks);
        ck_assert_uint_eq(a.numerics, b.numerics);
        ck_assert_ptr_eq(a.device, b.device);
    }
    EXPLAINS(compiled, reason);
    if (function == ends_a_region)
        OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
    FAILS(core_compiled_call(full, w.inputs, 2, &y, 1), CORE_ERROR_UNSUPPORTED,
          reason);
    ck_assert_int_eq(core_grad_mode(), first.grad);
    ck_assert_int_eq(core_inference_mode(), first.inference);
    ck_assert_int_eq(core_anomaly_mode(), first.anomaly);
    ck_assert_int_eq(present().hooks, first.hooks);
    ck_assert_ptr_eq(present().device, first.device);
    reset(&first);
    core_compiled_release(compiled);
    core_compiled_release(full);
}

START_TEST(a_mode_that_is_left_changed_is_a_break)
{
    compare_states(turns_grad_mode_off, "leaves grad mode changed");
    compare_states(stays_in_inference_mode, "leaves inference mode changed");
    compare_states(leaves_a_region_open,
                   "leaves the region of autocast changed");
    compare_states(ends_a_region, "the region began outside of the function");
    compare_states(changes_the_device, "leaves the current device changed");
    compare_states(turns_anomaly_mode_on, "leaves anomaly mode changed");
    compare_states(changes_numerics, "leaves a setting of numerics changed");
    compare_states(leaves_hooks, "leaves hooks for saved tensors changed");
}
END_TEST

START_TEST(a_mode_that_a_branch_leaves_changed_is_a_break)
{
    compare_states(branches, "then_function leaves grad mode changed");
    compare_states(pops_hooks_in_a_branch,
                   "the hooks were set outside of the function");
}
END_TEST

/* Grad mode is what it was when a recording fails. */
START_TEST(a_recording_restores_the_state)
{
    world w = two_leaves();
    core_program *program;

    FAILS(core_program_trace(turns_grad_mode_off, &w, w.inputs, 2, 1, &program),
          CORE_ERROR_UNSUPPORTED, "leaves grad mode changed");
    ck_assert(core_grad_mode());
    FAILS(
        core_program_trace(leaves_a_region_open, &w, w.inputs, 2, 1, &program),
        CORE_ERROR_UNSUPPORTED, "leaves the region of autocast");
    ck_assert_int_eq(core_autocast_dtype(program_device), CORE_DTYPE_NONE);
}
END_TEST

/* Neither the hooks that it pops nor those around them. */
START_TEST(a_recording_leaves_the_hooks_of_its_caller)
{
    world w = two_leaves();
    core_program *program;

    push_hooks();
    push_hooks();
    FAILS(core_program_trace(pops_hooks, &w, w.inputs, 2, 1, &program),
          CORE_ERROR_UNSUPPORTED, "core_saved_hooks_pop: the hooks were set");
    OK(core_saved_hooks_pop());
    OK(core_saved_hooks_pop());
    FAILS(core_saved_hooks_pop(), CORE_ERROR_AUTOGRAD, "no saved-tensor hooks");
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/left_state",
                     a_mode_that_is_left_changed_is_a_break,
                     a_mode_that_a_branch_leaves_changed_is_a_break,
                     a_recording_restores_the_state,
                     a_recording_leaves_the_hooks_of_its_caller)
