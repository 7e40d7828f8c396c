/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sim.h: the simulated accelerator without libcore, which a fake host table
 * replaces, so that these tests check only the plugin. */

#ifndef TESTS_SUPPORT_SIM_H
#define TESTS_SUPPORT_SIM_H

#include "suite.h"

#include <libcore/backend.h>
#include <libcore/kernel.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../plugins/sim/sim_control.h"

/* ------------------------------------------------------------- the host -- */

static _Thread_local char error_text[512];
static _Thread_local core_error_info error_now;
static core_backend sim;
static const core_kernel *sim_kernels[16]; /* as registered */
static uint32_t sim_nkernels;
static core_plugin_answer answer = {.struct_size = sizeof answer};
static void *library;
static void *device, *device1; /* sim:0 and sim:1, opened by sim_open */
static const sim_control *control;

static inline core_status host_error(const core_error_info *info)
{
    size_t size = info->text.size < 511 ? info->text.size : 511;

    error_now = *info;
    memmove(error_text, info->text.data, size);
    error_text[size] = '\0';
    error_now.text = (core_string){error_text, size};
    return info->code;
}

static inline void host_error_last(core_error_info *out)
{
    *out = error_now;
}

static inline void host_log(uint32_t level, core_string component,
                            core_string text)
{
    (void)level;
    (void)component;
    (void)text;
}

static inline core_string host_setting(core_string name)
{
    char text[64];
    const char *value;

    snprintf(text, sizeof text, "%.*s", (int)name.size, name.data);
    value = getenv(text);
    return (core_string){value, value ? strlen(value) : 0};
}

static inline core_status host_backend(core_registry *registry,
                                       const core_backend *backend)
{
    (void)registry;
    sim = *backend;
    return CORE_OK;
}

static inline core_status host_kernels(core_registry *registry,
                                       core_string backend,
                                       const core_kernel *const *kernels,
                                       uint32_t count)
{
    (void)registry;
    (void)backend;
    ck_assert_uint_le(count, 16);
    for (uint32_t i = 0; i < count; i++)
        sim_kernels[i] = kernels[i];
    sim_nkernels = count;
    return CORE_OK;
}

/* The fake operator is its name. */
static inline core_string host_operator_name(const core_operator *op)
{
    const char *name = (const char *)op;

    return (core_string){name, strlen(name)};
}

/* Copies of the values of a call; what they point to belongs to the test and
 * outlives it. */
typedef struct call_copy {
    core_call call;
    core_value args[8];
    core_value results[8];
} call_copy;

static _Atomic int call_copies;

static inline core_status host_call_copy(
    const core_call *call, const core_value *args, uint32_t nargs,
    const core_value *results, uint32_t nresults, core_call **out_call,
    const core_value **out_args, core_value **out_results)
{
    call_copy *copy = calloc(1, sizeof *copy);

    copy->call = *call;
    for (uint32_t i = 0; i < nargs; i++)
        copy->args[i] = args[i];
    for (uint32_t i = 0; i < nresults; i++)
        copy->results[i] = results[i];
    *out_call = &copy->call;
    *out_args = copy->args;
    *out_results = copy->results;
    atomic_fetch_add(&call_copies, 1);
    return CORE_OK;
}

static inline void host_call_drop(core_call *call)
{
    atomic_fetch_sub(&call_copies, 1);
    free(call);
}

/* ----------------------------------------------------------- its kernels -- */

/* to[i] = from[i] + 1, of n bytes each: operands 0 and 1 of a loop. */
static inline core_status cpu_increment(core_call *call, const core_value *args,
                                        uint32_t nargs, core_value *results,
                                        uint32_t nresults)
{
    const core_loop *loop = call->loop;
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    for (int64_t i = 0; i < loop->sizes[0]; i++)
        ((uint8_t *)to->memory
             .handle)[to->memory.offset + (uint64_t)(i * to->strides[0])] =
            (uint8_t)(((uint8_t *)from->memory
                           .handle)[from->memory.offset +
                                    (uint64_t)(i * from->strides[0])] +
                      1);
    return CORE_OK;
}

/* Writes one byte too many. */
static inline core_status cpu_overruns(core_call *call, const core_value *args,
                                       uint32_t nargs, core_value *results,
                                       uint32_t nresults)
{
    const core_operand *to = &call->loop->operands[0];

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    ((uint8_t *)to->memory
         .handle)[to->memory.offset + (uint64_t)call->loop->sizes[0]] = 0;
    return CORE_OK;
}

static inline core_status cpu_fails(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    bool data = !strcmp((const char *)call->op, "bad_index");
    core_error_info info = {.struct_size = sizeof info,
                            .code =
                                data ? CORE_ERROR_INDEX : CORE_ERROR_INTERNAL,
                            .text = data ? (core_string){"index 7 of 3", 12}
                                         : (core_string){"it broke", 8}};

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return host_error(&info);
}

static const core_kernel cpu_kernels[] = {
    {.struct_size = sizeof(core_kernel),
     .name = {"increment", 9},
     .launch = cpu_increment},
    {.struct_size = sizeof(core_kernel),
     .name = {"bad_index", 9},
     .launch = cpu_fails},
    {.struct_size = sizeof(core_kernel),
     .name = {"breaks", 6},
     .launch = cpu_fails},
    {.struct_size = sizeof(core_kernel),
     .name = {"overruns", 8},
     .launch = cpu_overruns},
};

static inline core_status host_backend_kernel(core_string backend,
                                              uint32_t index,
                                              const core_kernel **out)
{
    (void)backend;
    *out = index < 4 ? &cpu_kernels[index] : NULL;
    return *out ? CORE_OK : CORE_ERROR_NOT_FOUND;
}

static const core_host host = {
    .struct_size = sizeof host,
    .abi_minor = CORE_ABI_MINOR,
    .error = host_error,
    .error_last = host_error_last,
    .log = host_log,
    .setting = host_setting,
    .register_backend = host_backend,
    .register_kernels = host_kernels,
    .operator_name = host_operator_name,
    .backend_kernel = host_backend_kernel,
    .call_copy = host_call_copy,
    .call_drop = host_call_drop,
};

/* ------------------------------------------------------- open and close -- */

#define OK(call)                                                        \
    do {                                                                \
        core_status status_ = (call);                                   \
        ck_assert_msg(status_ == CORE_OK, "%s: %d: %s", #call, status_, \
                      error_text);                                      \
    } while (0)

/* The call fails with this code, and its message contains the text. */
#define FAILS(call, code, text)                                          \
    do {                                                                 \
        core_status status_ = (call);                                    \
        ck_assert_msg(status_ == (code), "%s: %d: %s", #call, status_,   \
                      error_text);                                       \
        ck_assert_msg(strstr(error_text, text) != NULL, "%s: %s", #call, \
                      error_text);                                       \
    } while (0)

static inline core_status sim_load(void)
{
    const char *folder = getenv("LIBCORE_PLUGIN_PATH");
    core_plugin_offer offer = {.struct_size = sizeof offer,
                               .abi_major = CORE_ABI_MAJOR,
                               .abi_minor_max = CORE_ABI_MINOR};
    core_plugin_entry_function entry;
    void *plugin;
    char path[4096];

    snprintf(path, sizeof path, "%s/core_sim.so", folder ? folder : ".libs");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    *(void **)&entry = dlsym(library, CORE_PLUGIN_ENTRY);
    ck_assert_ptr_nonnull(entry);
    OK(entry(&offer, &answer));
    return answer.init(&host, NULL, &plugin);
}

static inline const void *interface(const char *name)
{
    const void *table =
        sim.get_interface(sim.user, (core_string){name, strlen(name)}, 1);

    ck_assert_msg(table != NULL, "no interface %s", name);
    return table;
}

/* Opens both devices; the core accepts error flags. */
static inline void sim_open(void)
{
    OK(sim_load());
    OK(sim.device_open(sim.user, 0, &device));
    OK(sim.device_open(sim.user, 1, &device1));
    interface("core.stream_error");
    control = interface("sim.control");
}

static inline void sim_open_checked(void)
{
    setenv("LIBCORE_SIM_CHECK", "1", 1);
    sim_open();
}

static void *kept[256]; /* calls of this test */
static uint32_t nkept;

static inline void sim_close(void)
{
    sim.device_close(sim.user, device);
    sim.device_close(sim.user, device1);
    OK(answer.shutdown(NULL, 0));
    ck_assert_int_eq(atomic_load(&call_copies), 0);
    dlclose(library);
    while (nkept > 0)
        free(kept[--nkept]);
}

/* ---------------------------------------------------------------- things -- */

static inline void *new_stream(void *of)
{
    void *stream;

    OK(sim.streams->create(of, 0, &stream));
    return stream;
}

static inline void *new_event(void *of, uint32_t flags)
{
    void *event;

    OK(sim.events->create(of, flags, &event));
    return event;
}

static inline core_memory new_block(void *of, uint64_t size)
{
    core_memory memory;

    OK(sim.memory->alloc(of, size, &memory));
    return memory;
}

static inline core_memory at(core_memory memory, uint64_t offset)
{
    memory.offset += offset;
    return memory;
}

static inline void fill(void *of, void *stream, core_memory to, uint64_t size,
                        uint8_t value)
{
    OK(sim.memory->fill(of, stream, to, size, value, 1));
}

static inline uint8_t byte_of(void *of, void *stream, core_memory memory)
{
    uint8_t byte = 0;

    OK(sim.memory->copy_to_host(of, stream, &byte, memory, 1));
    OK(sim.streams->synchronize(of, stream));
    return byte;
}

static inline sim_counters counted(uint32_t index)
{
    sim_counters counters = {.struct_size = sizeof counters};

    OK(control->counters(index, &counters));
    return counters;
}

/* A call of to[i * to_stride] = from[i * from_stride] + 1; lives as long as the
 * test. */
typedef struct increment {
    int64_t size, strides[2];
    core_operand operands[2];
    core_loop loop;
    core_call call;
} increment;

static inline increment *make_call(const char *name, void *of, void *stream,
                                   core_memory to, int64_t to_stride,
                                   core_memory from, int64_t from_stride,
                                   int64_t count)
{
    static uint64_t calls;
    increment *i = calloc(1, sizeof *i);

    ck_assert_uint_lt(nkept, 256);
    kept[nkept++] = i;
    i->size = count;
    i->strides[0] = to_stride;
    i->strides[1] = from_stride;
    i->operands[0] = (core_operand){.memory = to,
                                    .strides = &i->strides[0],
                                    .dtype = CORE_U8,
                                    .flags = CORE_OPERAND_OUTPUT};
    i->operands[1] = (core_operand){
        .memory = from, .strides = &i->strides[1], .dtype = CORE_U8};
    i->loop = (core_loop){.struct_size = sizeof i->loop,
                          .ndim = 1,
                          .noperands = 2,
                          .noutputs = 1,
                          .numel = count,
                          .sizes = &i->size,
                          .operands = i->operands};
    i->call = (core_call){.struct_size = sizeof i->call,
                          .host = &host,
                          .op = (core_operator *)(uintptr_t)name,
                          .loop = &i->loop,
                          .device = of,
                          .stream = stream,
                          .id = ++calls};
    return i;
}

static inline const core_kernel *kernel_named(const char *name)
{
    for (uint32_t k = 0; k < sim_nkernels; k++)
        if (sim_kernels[k]->name.size == strlen(name) &&
            memcmp(sim_kernels[k]->name.data, name, strlen(name)) == 0)
            return sim_kernels[k];
    ck_abort_msg("no kernel %s", name);
}

static void *plan_now; /* the plan of the following launches */

static inline core_status launch_named(const char *name, void *of, void *stream,
                                       core_memory to, int64_t to_stride,
                                       core_memory from, int64_t from_stride,
                                       int64_t count)
{
    increment *i =
        make_call(name, of, stream, to, to_stride, from, from_stride, count);

    i->call.user = kernel_named(name)->user;
    i->call.plan = plan_now;
    return kernel_named(name)->launch(&i->call, NULL, 0, NULL, 0);
}

static inline core_status prepare_named(const char *name, void *of,
                                        void *stream, core_memory to,
                                        int64_t to_stride, core_memory from,
                                        int64_t from_stride, int64_t count,
                                        void **out_plan)
{
    increment *i =
        make_call(name, of, stream, to, to_stride, from, from_stride, count);

    i->call.user = kernel_named(name)->user;
    return kernel_named(name)->prepare(&i->call, NULL, 0, NULL, 0, out_plan);
}

/* to = from + 1, byte by byte. */
static inline void increment_bytes(void *of, void *stream, core_memory to,
                                   core_memory from, int64_t count)
{
    OK(launch_named("increment", of, stream, to, 1, from, 1, count));
}

/* Records an event on one stream and makes the other wait for it. */
static inline void order(void *earlier_of, void *earlier, void *later_of,
                         void *later)
{
    void *event = new_event(earlier_of, 0);

    OK(sim.events->record(earlier_of, event, earlier));
    OK(sim.streams->wait_event(later_of, later, event));
    sim.events->destroy(earlier_of, event);
}

#endif
