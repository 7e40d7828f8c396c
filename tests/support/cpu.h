/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cpu.h: for the tests of the CPU backend: a fake host, through which the
 * backend registers, and calls of its kernels without a core. */

#ifndef TESTS_SUPPORT_CPU_H
#define TESTS_SUPPORT_CPU_H

#include "instruction_sets.h"
#include "suite.h"

#include "isa.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libcore/sdk.h>

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer);

static char cpu_message[512], cpu_logged[512];
static const char *cpu_isa_setting, *cpu_threads_setting, *cpu_native_setting;
static core_kernel *cpu_all_kernels;
static uint32_t cpu_kernel_count;
/* How many registrations of kernels succeed before all others fail. */
static uint32_t cpu_refused_after = UINT32_MAX;
static const core_backend *cpu_backend;
static core_plugin_answer cpu_answer;

static core_status host_error(const core_error_info *info)
{
    snprintf(cpu_message, sizeof(cpu_message), "%.*s", (int)info->text.size,
             info->text.data);
    return info->code;
}

static void host_log(uint32_t level, core_string component, core_string text)
{
    (void)level;
    (void)component;
    snprintf(cpu_logged, sizeof cpu_logged, "%.*s", (int)text.size, text.data);
}

static core_string host_setting(core_string name)
{
    if (core_sdk_string_equal(name, "LIBCORE_CPU_ISA"))
        return core_sdk_string(cpu_isa_setting);
    if (core_sdk_string_equal(name, "LIBCORE_THREADS"))
        return core_sdk_string(cpu_threads_setting);
    if (core_sdk_string_equal(name, "LIBCORE_CPU_NATIVE"))
        return core_sdk_string(cpu_native_setting);
    return core_sdk_string(NULL);
}

static core_status host_register_backend(core_registry *registry,
                                         const core_backend *backend)
{
    (void)registry;
    cpu_backend = backend;
    return CORE_OK;
}

static core_status host_register_kernels(core_registry *registry,
                                         core_string backend,
                                         const core_kernel *const *kernels,
                                         uint32_t count)
{
    (void)registry;
    ck_assert(core_sdk_string_equal(backend, "cpu"));
    if (cpu_refused_after == 0)
        return CORE_ERROR_OUT_OF_MEMORY;
    cpu_refused_after--;
    cpu_all_kernels = realloc(cpu_all_kernels,
                              (cpu_kernel_count + count) * sizeof(core_kernel));
    for (uint32_t k = 0; k < count; k++)
        cpu_all_kernels[cpu_kernel_count++] = *kernels[k];
    return CORE_OK;
}

static core_string host_operator_name(const core_operator *op)
{
    (void)op;
    return core_sdk_string("test");
}

static const core_host cpu_test_host = {
    .struct_size = sizeof(core_host),
    .abi_minor = CORE_ABI_MINOR,
    .error = host_error,
    .log = host_log,
    .setting = host_setting,
    .register_backend = host_register_backend,
    .register_kernels = host_register_kernels,
    .operator_name = host_operator_name,
};

/* Loads the backend; isa NULL: the best of the machine. */
static inline core_status cpu_open(const char *isa)
{
    core_plugin_offer offer = {sizeof(offer),
                               CORE_ABI_MAJOR,
                               CORE_ABI_MINOR,
                               CORE_ABI_MINOR,
                               {"test", 4}};
    void *plugin;

    cpu_isa_setting = isa;
    memset(&cpu_answer, 0, sizeof(cpu_answer));
    cpu_answer.struct_size = sizeof(cpu_answer);
    ck_assert_int_eq(core_plugin_entry(&offer, &cpu_answer), CORE_OK);
    return cpu_answer.init(&cpu_test_host, NULL, &plugin);
}

/* Loads the backend with an instruction set, or the best one for NULL.  False,
 * and the test is skipped, if the machine or the build does not have it. */
static inline bool cpu_open_isa(const char *isa)
{
    int wanted = instruction_set_best();

    if (isa != NULL && instruction_set_number(isa) > wanted) {
        suite_skip("%s is not available", isa);
        return false;
    }
    ck_assert_int_eq(cpu_open(isa), CORE_OK);
    if (isa != NULL)
        wanted = instruction_set_number(isa);
    ck_assert_str_eq(cpu_isa_name(cpu_isa), instruction_set_names[wanted]);
    return true;
}

static inline void cpu_close(void)
{
    cpu_answer.shutdown(NULL, 0);
    free(cpu_all_kernels);
    cpu_all_kernels = NULL;
    cpu_kernel_count = 0;
}

/* Every test that loops over _i runs once per instruction set. */
static const char *const cpu_isas[] = {"baseline", "avx2", "avx512"};

static inline void cpu_threads(uint32_t threads)
{
    const core_cpu_threads_interface *interface = cpu_backend->get_interface(
        NULL, core_sdk_string("core.cpu_threads"), 1);

    ck_assert_ptr_nonnull(interface);
    ck_assert_int_eq(interface->set(threads), CORE_OK);
    ck_assert_uint_eq(interface->get(), threads);
}

/* The last kernel that accepts the loop's dtypes. */
static inline const core_kernel *cpu_find(const char *name,
                                          const core_loop *loop)
{
    const core_kernel *found = NULL;

    for (uint32_t k = 0; k < cpu_kernel_count; k++) {
        const core_kernel *kernel = &cpu_all_kernels[k];
        int fits = core_sdk_string_equal(kernel->name, name);

        for (uint32_t j = 0; fits && j < loop->noperands; j++)
            fits = kernel->signature[j] == 0 ||
                   (kernel->signature[j] &
                    CORE_DTYPE_MASK(loop->operands[j].dtype));
        if (fits)
            found = kernel;
    }
    return found;
}

static inline core_status cpu_launch(const char *name, const core_loop *loop,
                                     const core_value *args, uint32_t nargs)
{
    const core_kernel *kernel = cpu_find(name, loop);
    core_value results[2] = {{0}, {0}};
    core_call call = {
        .struct_size = sizeof(call), .host = &cpu_test_host, .loop = loop};

    ck_assert_msg(kernel != NULL, "no kernel for %s", name);
    call.user = kernel->user;
    return kernel->launch(&call, args, nargs, results, loop->noutputs);
}

/* ---------------------------------------------------------------- loops -- */

/* A loop in the form that tests write: sizes innermost first, strides in
 * bytes. */
typedef struct test_loop {
    core_loop loop;
    int64_t sizes[4];
    core_operand operands[4];
    int64_t strides[4][4];
} test_loop;

static inline void loop_begin(test_loop *t, uint32_t noutputs, uint32_t ndim,
                              const int64_t *sizes)
{
    memset(t, 0, sizeof(*t));
    t->loop.struct_size = sizeof(core_loop);
    t->loop.noutputs = noutputs;
    t->loop.ndim = ndim;
    t->loop.numel = 1;
    t->loop.sizes = t->sizes;
    t->loop.operands = t->operands;
    for (uint32_t d = 0; d < ndim; d++) {
        t->sizes[d] = sizes[d];
        t->loop.numel *= sizes[d];
    }
}

static inline void loop_operand(test_loop *t, void *data, core_dtype dtype,
                                const int64_t *strides)
{
    uint32_t k = t->loop.noperands++;

    t->operands[k].memory.handle = data;
    t->operands[k].dtype = dtype;
    t->operands[k].strides = t->strides[k];
    t->operands[k].flags = k < t->loop.noutputs ? CORE_OPERAND_OUTPUT : 0;
    for (uint32_t d = 0; d < t->loop.ndim; d++)
        t->strides[k][d] = strides[d];
}

static inline void loop_immediate(test_loop *t, const void *element,
                                  core_dtype dtype)
{
    uint32_t k = t->loop.noperands++;

    t->operands[k].dtype = dtype;
    t->operands[k].strides = t->strides[k];
    t->operands[k].flags = CORE_OPERAND_IMMEDIATE;
    memcpy(&t->operands[k].immediate, element, core_sdk_itemsize(dtype));
}

/* A dense run of n elements for every operand. */
static inline void loop_dense(test_loop *t, uint32_t noutputs, int64_t n)
{
    loop_begin(t, noutputs, 1, &n);
    t->loop.flags = CORE_LOOP_CONTIGUOUS;
}

static inline void loop_dense_operand(test_loop *t, void *data,
                                      core_dtype dtype)
{
    int64_t stride = core_sdk_itemsize(dtype);

    loop_operand(t, data, dtype, &stride);
}

static inline core_value value_int(int64_t i)
{
    core_value value = {.tag = CORE_VALUE_INT, .u.i = i};
    return value;
}

static inline core_value value_float(double f)
{
    core_value value = {.tag = CORE_VALUE_FLOAT, .u.f = f};
    return value;
}

static inline core_value value_string(const char *text)
{
    core_value value = {.tag = CORE_VALUE_STRING,
                        .count = (uint32_t)strlen(text),
                        .u.string = text};
    return value;
}

/* The same numbers on every run. */
static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * UINT32_C(1664525) + UINT32_C(1013904223);
    return *state >> 8;
}

static inline float random_float(uint32_t *state)
{
    return (float)next_random(state) / 8388608.0f - 1.0f;
}

#endif
