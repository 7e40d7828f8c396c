/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin of a minor that does not exist yet: its structs have grown, and it
 * uses operators and interfaces that this libcore does not have.  By default it
 * keeps to what was negotiated, as the rules demand; LIBCORE_FUTURE_PLUGIN=NAME
 * makes it use one feature that was not negotiated. */

#include <libcore/sdk.h>

#include <stdlib.h>

enum { FUTURE_MINOR = 9, UNKNOWN = 1 << 20 };

/* As CORE_SDK_NOTE writes it, with a newer minor. */
__attribute__((section(".note.libcore"), used,
               aligned(4))) static const core_sdk_note note = {
    8,
    (uint32_t)(sizeof(core_plugin_note) + sizeof(core_plugin_seal)),
    CORE_NOTE_TYPE,
    "libcore",
    {{'L', 'I', 'B', 'C', 'O', 'R', 'E', 0},
     CORE_NOTE_VERSION,
     CORE_ABI_MAJOR,
     1,
     FUTURE_MINOR,
     0,
     0,
     "future",
     "libcore tests",
     "9.0",
     "MIT-0",
     "future",
     ""},
    {{'U', 'N', 'S', 'E', 'A', 'L', 'E', 'D'}, {0}, {0}}};

static const core_host *host;

static int uses(const char *what)
{
    core_string set = host->setting(core_sdk_string("LIBCORE_FUTURE_PLUGIN"));

    return set.data != NULL && core_sdk_string_equal(set, what);
}

static core_status enumerate(void *backend, uint32_t *out_count,
                             core_string *out_reason)
{
    (void)backend;
    *out_count = 1;
    *out_reason = core_sdk_string("");
    return CORE_OK;
}

static core_status device_open(void *backend, uint32_t index, void **out_device)
{
    (void)index;
    *out_device = backend;
    return CORE_OK;
}

static void device_close(void *backend, void *device)
{
    (void)backend;
    (void)device;
}

/* The newer struct; only as much is written as the host's struct can hold. */
typedef struct future_properties {
    core_device_properties known;
    uint64_t more[4];
} future_properties;

static core_status device_properties(void *device, core_device_properties *out)
{
    future_properties mine;
    uint32_t size = out->struct_size;

    (void)device;
    memset(&mine, 0, sizeof(mine));
    mine.known.flags = CORE_DEVICE_FLAT | CORE_DEVICE_HAS_F64 |
                       (uses("property") ? UNKNOWN : 0);
    mine.known.base_alignment = 64;
    mine.known.granularity = 64;
    mine.known.numa_node = UINT32_MAX;
    mine.more[0] = UINT64_MAX;
    if (size > sizeof(mine))
        size = sizeof(mine);
    mine.known.struct_size = size;
    memcpy(out, &mine, size);
    return CORE_OK;
}

static core_status alloc(void *device, uint64_t size, core_memory *out_memory)
{
    (void)device;
    out_memory->offset = 0;
    out_memory->handle = aligned_alloc(64, (size + 63) / 64 * 64);
    return out_memory->handle ? CORE_OK : CORE_ERROR_OUT_OF_MEMORY;
}

static void release(void *device, core_memory memory, uint64_t size)
{
    (void)device;
    (void)size;
    free(memory.handle);
}

static core_status copy_from_host(void *device, void *stream, core_memory to,
                                  const void *from, uint64_t size)
{
    (void)device;
    (void)stream;
    memcpy(core_sdk_address(to), from, size);
    return uses("status") ? 0xffff : CORE_OK;
}

static core_status copy_to_host(void *device, void *stream, void *to,
                                core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    memcpy(to, core_sdk_address(from), size);
    return CORE_OK;
}

static core_status copy(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    memmove(core_sdk_address(to), core_sdk_address(from), size);
    return CORE_OK;
}

static core_status fill(void *device, void *stream, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size)
{
    char *bytes = core_sdk_address(to);

    (void)device;
    (void)stream;
    for (uint64_t i = 0; i < size; i++)
        bytes[i] = (char)(pattern >> i % pattern_size * 8);
    return CORE_OK;
}

/* Tables with slots after today's, which must not be called. */
static const struct {
    core_memory_table known;
    void (*more[8])(void);
} memory = {
    {.struct_size = sizeof(memory),
     .alloc = alloc,
     .free = release,
     .copy_from_host = copy_from_host,
     .copy_to_host = copy_to_host,
     .copy = copy,
     .fill = fill},
    {(void (*)(void))1, (void (*)(void))1},
};

static core_status neg_f32(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_operand *o = call->loop->operands;

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    for (int64_t i = 0; i < call->loop->numel; i++)
        ((float *)(void *)core_sdk_address(o[0].memory))[i] =
            -((const float *)(const void *)core_sdk_address(o[1].memory))[i];
    return CORE_OK;
}

typedef struct future_kernel {
    core_kernel known;
    void (*more[4])(void);
} future_kernel;

static core_status register_kernel(core_registry *registry, const char *name,
                                   uint32_t requirements)
{
    future_kernel kernel;
    const core_kernel *const all[] = {&kernel.known};

    memset(&kernel, 0xff, sizeof(kernel));
    memset(&kernel.known, 0, sizeof(kernel.known));
    kernel.known.struct_size = sizeof(kernel);
    kernel.known.demands = CORE_DEMAND_CONTIGUOUS | requirements;
    kernel.known.name = core_sdk_string(name);
    kernel.known.signature[0] = CORE_DTYPE_MASK(CORE_F32);
    /* Also of a dtype that this libcore does not have. */
    kernel.known.signature[1] = CORE_DTYPE_MASK(CORE_F32) | CORE_DTYPE_MASK(31);
    kernel.known.max_ndim = 1;
    kernel.known.launch = neg_f32;
    return host->register_kernels(registry, core_sdk_string("future"), all, 1);
}

static struct {
    core_backend known;
    void (*more[8])(void);
} backend = {
    {.struct_size = sizeof(backend),
     .device_type = {"future", 6},
     .enumerate = enumerate,
     .device_open = device_open,
     .device_close = device_close,
     .device_properties = device_properties,
     .memory = &memory.known},
    {(void (*)(void))1},
};

static core_status stop(void *plugin, uint64_t deadline_ns)
{
    (void)plugin;
    (void)deadline_ns;
    return CORE_OK;
}

static core_status init(const core_host *given, core_registry *registry,
                        void **out_plugin)
{
    core_status status;

    host = given;
    *out_plugin = NULL;
    backend.known.flags = uses("backend flag") ? UNKNOWN : 0;
    status = host->register_backend(registry, &backend.known);
    if (status == CORE_OK)
        status = register_kernel(registry, "neg", 0);
    if (status == CORE_OK)
        status = register_kernel(registry, "operator_of_2030", 0);
    if (status == CORE_OK && uses("requirement"))
        status = register_kernel(registry, "exp", UNKNOWN);
    if (status == CORE_OK && uses("key"))
        status = host->register_function(registry, core_sdk_string("neg"), 77,
                                         core_sdk_string(""), neg_f32, NULL);
    return status;
}

core_status core_plugin_entry(const core_plugin_offer *offer,
                              core_plugin_answer *answer);
CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer)
{
    core_status status = core_sdk_negotiate(
        offer, answer, 1, CORE_PLUGIN_UNLOAD_SAFE, init, stop);

    if (getenv("LIBCORE_FUTURE_PLUGIN") != NULL &&
        strcmp(getenv("LIBCORE_FUTURE_PLUGIN"), "answer flag") == 0)
        answer->flags |= UNKNOWN;
    return status;
}
