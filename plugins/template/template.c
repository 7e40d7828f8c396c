/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* template.c: the skeleton of a plugin, to be copied.
 *
 * It provides one device, "template", whose memory is host memory and which
 * completes everything before a call returns.  That is enough: with
 * LIBCORE_FALLBACK=count every operator works on it and models train.  Its
 * few kernels show the two ways in which kernels receive their operands.
 * docs/plugin-guide.md continues from here, step by step, to a fast device.
 *
 * To make it yours, replace NAME, the note's texts, alloc, free and the
 * copies.  Then add kernels. */

#include <libcore/sdk.h>

#include <math.h>
#include <stdlib.h>

#define NAME "template" /* [a-z][a-z0-9]*: the plugin's name and device type */

CORE_SDK_NOTE(NAME, "The libcore authors", "0.1", "Apache-2.0 OR MIT-0", NAME,
              "");

static const core_host *host;

/* -------------------------------------------------------------- devices -- */

/* Returns the number of devices.  A machine without any is not an error: give
 * the reason. */
static core_status enumerate(void *backend, uint32_t *out_count,
                             core_string *out_reason)
{
    (void)backend;
    *out_count = 1;
    *out_reason = core_sdk_string("");
    return CORE_OK;
}

/* Returns your handle, which is passed as `device` to every call. */
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

static core_status device_properties(void *device, core_device_properties *out)
{
    (void)device;
    /* FLAT: handle + offset is an address.  Not HOST_ACCESS, though it is host
     * memory, so that the core does not access it, as with a real device. */
    out->flags = CORE_DEVICE_FLAT | CORE_DEVICE_HAS_F64;
    out->base_alignment = 64;
    out->granularity = 64;
    out->numa_node = UINT32_MAX;
    return CORE_OK;
}

static core_status device_information(void *device,
                                      core_device_information *out)
{
    (void)device;
    out->name = core_sdk_string("host memory, as a device");
    return CORE_OK;
}

/* --------------------------------------------------------------- memory -- */

static core_status alloc(void *device, uint64_t size, core_memory *out_memory)
{
    (void)device;
    out_memory->offset = 0;
    out_memory->handle = aligned_alloc(64, (size + 63) / 64 * 64);
    if (out_memory->handle == NULL)
        return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                              "no host memory for %llu bytes",
                              (unsigned long long)size);
    return CORE_OK;
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
    return CORE_OK;
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

static const core_memory_table memory_table = {
    .struct_size = sizeof(core_memory_table),
    .alloc = alloc,
    .free = release,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy = copy,
    .fill = fill,
};

/* -------------------------------------------------------------- kernels -- */

/* A loop kernel: the core has broadcast, promoted and coalesced; out = f(in)
 * for every index.  One function serves a family; the user pointer selects the
 * operator. */
enum { ADD, MUL, EXP };

typedef struct element_wise {
    int which;
    float alpha;
} element_wise;

static void row_f32(void *context, char *const *data, const int64_t *strides,
                    int64_t count)
{
    const element_wise *op = (const element_wise *)context;

    for (int64_t i = 0; i < count; i++) {
        float a = *(const float *)(const void *)(data[1] + i * strides[1]);
        float *out = (float *)(void *)(data[0] + i * strides[0]);

        if (op->which == EXP)
            *out = expf(a);
        else {
            float b = *(const float *)(const void *)(data[2] + i * strides[2]);

            *out = op->which == ADD ? a + op->alpha * b : a * b;
        }
    }
}

static core_status element_wise_f32(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    element_wise op = {(int)(intptr_t)call->user, 1};

    (void)results;
    (void)nresults;
    /* add.Tensor(self, other, alpha): numbers are read from the arguments,
     * tensors from the loop only. */
    if (op.which == ADD && nargs > 2)
        op.alpha = (float)core_sdk_double(&args[2], 1);
    return core_sdk_loop_rows(call->loop, row_f32, &op);
}

/* A view kernel: arguments in the schema's order, mm(self, mat2). */
static core_status mm_f32(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_view *a = args[0].u.view, *b = args[1].u.view;
    const core_view *c = results[0].u.view;
    const float *pa = (const float *)(const void *)core_sdk_address(a->memory);
    const float *pb = (const float *)(const void *)core_sdk_address(b->memory);
    float *pc = (float *)(void *)core_sdk_address(c->memory);

    (void)call;
    (void)nargs;
    (void)nresults;
    for (int64_t i = 0; i < a->sizes[0]; i++)
        for (int64_t j = 0; j < b->sizes[1]; j++) {
            float sum = 0;

            for (int64_t k = 0; k < a->sizes[1]; k++)
                sum += pa[i * a->strides[0] + k * a->strides[1]] *
                       pb[k * b->strides[0] + j * b->strides[1]];
            pc[i * c->strides[0] + j * c->strides[1]] = sum;
        }
    return CORE_OK;
}

#define F32 CORE_DTYPE_MASK(CORE_F32)
#define LOOP_KERNEL(text, which, inputs)                                      \
    {                                                                         \
        .struct_size = sizeof(core_kernel), .name = {text, sizeof(text) - 1}, \
        .signature = {F32, F32, (inputs) > 1 ? F32 : 0},                      \
        .launch = element_wise_f32, .user = (void *)(intptr_t)(which)         \
    }

static const core_kernel add_kernel = LOOP_KERNEL("add.Tensor", ADD, 2);
static const core_kernel mul_kernel = LOOP_KERNEL("mul.Tensor", MUL, 2);
static const core_kernel exp_kernel = LOOP_KERNEL("exp", EXP, 1);
static const core_kernel mm_kernel = {
    .struct_size = sizeof(core_kernel),
    .name = {"mm", 2},
    .signature = {F32, F32, F32},
    .launch = mm_f32,
};
static const core_kernel *const kernels[] = {&add_kernel, &mul_kernel,
                                             &exp_kernel, &mm_kernel};

/* ------------------------------------------------------------ the plugin -- */

static core_backend backend = {
    .struct_size = sizeof(core_backend),
    .device_type = {NAME, sizeof(NAME) - 1},
    .user = &backend,
    .enumerate = enumerate,
    .device_open = device_open,
    .device_close = device_close,
    .device_information = device_information,
    .device_properties = device_properties,
    .memory = &memory_table,
    /* streams and events NULL: synchronous */
};

/* Only registers: hardware is first accessed by enumerate and device_open. */
static core_status init(const core_host *given, core_registry *registry,
                        void **out_plugin)
{
    core_status status;

    host = given;
    *out_plugin = NULL;
    status = host->register_backend(registry, &backend);
    if (status == CORE_OK)
        status = host->register_kernels(
            registry, core_sdk_string(NAME), kernels,
            (uint32_t)(sizeof(kernels) / sizeof(*kernels)));
    return status;
}

static core_status stop(void *plugin, uint64_t deadline_ns)
{
    (void)plugin;
    (void)deadline_ns;
    return CORE_OK;
}

core_status core_plugin_entry(const core_plugin_offer *offer,
                              core_plugin_answer *answer);
CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer)
{
    /* Works with every minor since 0.1; dlclose leaves nothing behind. */
    return core_sdk_negotiate(offer, answer, 1, CORE_PLUGIN_UNLOAD_SAFE, init,
                              stop);
}
