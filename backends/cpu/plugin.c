/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The CPU backend as a plugin. */

#include <string.h>

#include <libcore/sdk.h>

#include "codegen/code_memory.h"
#include "codegen/native.h"
#include "cpu.h"
#include "runtime/device.h"
#include "loop/elementwise.h"
#include "isa.h"
#include "runtime/thread_pool.h"
#include "runtime/scratch.h"
#include "tables.h"

CORE_SDK_NOTE("cpu", "The libcore authors", "0.1.0", "Apache-2.0", "cpu", "");

#define DECLARE(file) extern const cpu_kernel_table cpu_##file##_kernels;
CPU_TABLES(DECLARE)
#undef DECLARE

#define DECLARE(file)                                            \
    extern const cpu_kernel_table cpu_##file##_kernels_baseline; \
    extern const cpu_kernel_table cpu_##file##_kernels_avx2;     \
    extern const cpu_kernel_table cpu_##file##_kernels_avx512;
CPU_ISA_TABLES(DECLARE)
#undef DECLARE

/* Compiled once. */
static const cpu_kernel_table *const tables[] = {
#define ROW(file) &cpu_##file##_kernels,
    CPU_TABLES(ROW) NULL
#undef ROW
};

/* Compiled per instruction set: three of each, or one. */
static const cpu_kernel_table *const isa_tables[][3] = {
#ifdef CPU_X86_ISA
#define ROW(file)                                                \
    {&cpu_##file##_kernels_baseline, &cpu_##file##_kernels_avx2, \
     &cpu_##file##_kernels_avx512},
#else
#define ROW(file) {&cpu_##file##_kernels_baseline, NULL, NULL},
#endif
    CPU_ISA_TABLES(ROW){NULL, NULL, NULL}
#undef ROW
};

static const cpu_loop_functions *const loops[3] = {
    &cpu_loop_functions_baseline,
#ifdef CPU_X86_ISA
    &cpu_loop_functions_avx2,
    &cpu_loop_functions_avx512,
#endif
};

enum { AT_ONCE = 64 };

static core_status set_threads(uint32_t threads)
{
    if (cpu_thread_pool_set_threads(threads) != 0)
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "%u threads: the CPU backend accepts 1 to 1024",
                         threads);
    return CORE_OK;
}

static const void *get_interface(void *backend, core_string name,
                                 uint32_t version)
{
    static const core_cpu_threads_interface threads = {
        .struct_size = sizeof(core_cpu_threads_interface),
        .set = set_threads,
        .get = cpu_thread_pool_threads,
    };
    /* The pool restarts in a forked child by itself (thread_pool.c). */
    static const core_fork_safe_interface fork_safe = {
        .struct_size = sizeof(core_fork_safe_interface),
    };

    (void)backend;
    if (core_sdk_string_equal(name, "core.cpu_threads") && version <= 1)
        return &threads;
    if (core_sdk_string_equal(name, "core.fork_safe") && version <= 1)
        return &fork_safe;
    if (core_sdk_string_equal(name, "core.codegen") && version <= 1)
        return &cpu_codegen;
    return NULL;
}

/* The ABI takes an array of pointers; at most AT_ONCE at a time, because new
 * memory for all of them would cost more than filling it. */
static core_status register_rows(const core_host *host, core_registry *registry,
                                 const cpu_kernel *rows, uint32_t count)
{
    core_kernel kernels[AT_ONCE];
    const core_kernel *pointers[AT_ONCE];

    memset(kernels, 0, count * sizeof kernels[0]);
    for (uint32_t k = 0; k < count; k++) {
        kernels[k].struct_size = sizeof(core_kernel);
        kernels[k].demands = rows[k].requirements;
        kernels[k].name = core_sdk_string(rows[k].name);
        memcpy(kernels[k].signature, rows[k].signature,
               sizeof rows[k].signature);
        kernels[k].launch = rows[k].launch;
        kernels[k].user = rows[k].user;
        pointers[k] = &kernels[k];
    }
    return host->register_kernels(registry, core_sdk_string("cpu"), pointers,
                                  count);
}

static uint32_t chunk_size(uint32_t left)
{
    return left < AT_ONCE ? left : AT_ONCE;
}

static core_status register_table(const core_host *host,
                                  core_registry *registry,
                                  const cpu_kernel_table *table)
{
    core_status status = CORE_OK;

    for (uint32_t k = 0; k < table->count && status == CORE_OK; k += AT_ONCE)
        status = register_rows(host, registry, table->kernels + k,
                               chunk_size(table->count - k));
    return status;
}

static core_status register_elementwise(const core_host *host,
                                        core_registry *registry)
{
    core_status status = CORE_OK;
    cpu_kernel rows[AT_ONCE];
    const uint32_t count = cpu_elementwise_count;

    for (uint32_t k = 0; k < count && status == CORE_OK; k += AT_ONCE) {
        for (uint32_t i = 0; i < chunk_size(count - k); i++)
            cpu_elementwise_row(k + i, &rows[i]);
        status = register_rows(host, registry, rows, chunk_size(count - k));
    }
    return status;
}

static core_status register_all(const core_host *host, core_registry *registry)
{
    const int isa = CPU_ISA_COMPILED(cpu_isa);
    core_status status;
    size_t k;

    status = cpu_elementwise_open(loops[isa]);
    if (status == CORE_OK)
        status = register_elementwise(host, registry);
    for (k = 0; status == CORE_OK && isa_tables[k][0] != NULL; k++)
        status = register_table(host, registry, isa_tables[k][isa]);
    for (k = 0; status == CORE_OK && tables[k] != NULL; k++)
        status = register_table(host, registry, tables[k]);
    if (status != CORE_OK) /* undoes a partial start */
        cpu_elementwise_close();
    return status;
}

static core_status read_threads(const core_host *host)
{
    core_string text = host->setting(core_sdk_string("LIBCORE_THREADS"));
    uint64_t threads = 0, k;

    if (text.data == NULL || text.size == 0)
        return CORE_OK;
    for (k = 0; k < text.size; k++) {
        if (text.data[k] < '0' || text.data[k] > '9' || threads > 99999) {
            threads = 0;
            break;
        }
        threads = threads * 10 + (uint64_t)(text.data[k] - '0');
    }
    if (threads == 0 || cpu_thread_pool_set_threads((uint32_t)threads) != 0)
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "LIBCORE_THREADS is \"%.*s\"; accepted: 1 to 1024",
                         (int)text.size, text.data);
    return CORE_OK;
}

static core_status init(const core_host *host, core_registry *registry,
                        void **out_plugin)
{
    static const core_backend backend = {
        .struct_size = sizeof(core_backend),
        .device_type = {"cpu", 3},
        .enumerate = cpu_device_enumerate,
        .device_open = cpu_device_open,
        .device_close = cpu_device_close,
        .device_information = cpu_device_information,
        .device_properties = cpu_device_properties,
        .get_interface = get_interface,
        .memory = &cpu_memory_table,
    };
    core_status status;

    *out_plugin = NULL;
    cpu_host = host;
    status = cpu_isa_choose(host, &cpu_isa);
    if (status != CORE_OK)
        return status;
    status = read_threads(host);
    if (status != CORE_OK)
        return status;
    cpu_native_choose(host);
    status = host->register_backend(registry, &backend);
    if (status != CORE_OK)
        return status;
    return register_all(host, registry);
}

static core_status stop(void *plugin, uint64_t deadline_ns)
{
    (void)plugin;
    (void)deadline_ns;
    cpu_thread_pool_shutdown();
    cpu_code_shutdown();
    cpu_scratch_shutdown();
    cpu_elementwise_close();
    return CORE_OK;
}

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer);

core_status core_plugin_entry(const core_plugin_offer *offer,
                              core_plugin_answer *answer)
{
    return core_sdk_negotiate(offer, answer, 1, CORE_PLUGIN_UNLOAD_SAFE, init,
                              stop);
}
