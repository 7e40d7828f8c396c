/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin that is built once with the headers of each minor.  It reports what
 * the host passed to it through the environment, which the tests read:
 * ABI_HOST, ABI_PROPERTIES, ABI_INTERFACES, ABI_PLANS, ABI_NUMERICS, ABI_CACHE,
 * ABI_RECORDED, ABI_LAYOUT, ABI_DEVICE_ID, ABI_CONTENT, ABI_OWN, ABI_PROGRAM. */

#include <libcore/sdk.h>

#include <stdlib.h>

CORE_SDK_NOTE(ABI_NAME, "libcore tests", "1.0", "MIT-0", ABI_TYPE, "");

static const core_host *host;

static void report(const char *name, long long a, long long b)
{
    char text[64];

    snprintf(text, sizeof text, "%lld %lld", a, b);
    setenv(name, text, 1);
}

static char *address(core_memory memory)
{
    return (char *)memory.handle + memory.offset;
}

/* -------------------------------------------------------------- devices -- */

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

static core_status device_properties(void *device, core_device_properties *out)
{
    (void)device;
    report("ABI_PROPERTIES", out->struct_size, sizeof *out);
    out->flags = CORE_DEVICE_FLAT | CORE_DEVICE_HAS_F64;
#if ABI_MINOR >= 5
    out->flags |= CORE_DEVICE_UNIFIED;
#endif
    out->base_alignment = 64;
    out->granularity = 64;
    out->numa_node = UINT32_MAX;
    return CORE_OK;
}

/* Features of 0.3. */
#if ABI_MINOR >= 3
static core_status numerics_get(void *device, core_numerics *out)
{
    (void)device;
    report("ABI_NUMERICS", out->struct_size, sizeof *out);
    out->flushes_denormals = CORE_DTYPE_MASK(CORE_F32);
    out->product_bits = 11;
    out->max_ulp = 8;
    return CORE_OK;
}

static double function_ulp(void *device, core_string name, core_dtype dtype)
{
    (void)device;
    return core_sdk_string_equal(name, "exp") && dtype == CORE_F32 ? 12 : 0;
}

static core_status measure(void *device, uint32_t index, core_measurement *out)
{
    (void)device;
    if (index > 1)
        return CORE_ERROR_NOT_FOUND;
    out->key = core_sdk_string(index ? "power" : "temperature");
    out->unit = core_sdk_string(index ? "watt" : "celsius");
    out->value = index ? 250 : 41.5;
    return CORE_OK;
}

static void forked(void *device)
{
    (void)device;
    report("ABI_FORKED", 1, 0);
}

/* Features of 0.5. */
#if ABI_MINOR >= 5
static uint32_t preferred(void *device, core_string name, core_dtype dtype,
                          uint32_t ndim)
{
    static int asked;

    (void)device;
    report("ABI_LAYOUT", ++asked, 0);
    return core_sdk_string_equal(name, "convolution") && dtype == CORE_F32 &&
                   ndim == 4
               ? CORE_FORMAT_CHANNELS_LAST
               : CORE_FORMAT_CONTIGUOUS;
}

/* Features of 0.6. */
#if ABI_MINOR >= 6
static core_status device_id(void *backend, uint32_t index, core_string *out_id)
{
    static int asked;

    (void)backend;
    report("ABI_DEVICE_ID", ++asked, index);
    *out_id = core_sdk_string("the only one");
    return CORE_OK;
}

/* Reports the id of device_id; nothing in an older core, or if
 * ABI_NO_STABLE_ID is set. */
static core_status device_information(void *device,
                                      core_device_information *out)
{
    (void)device;
    if (host->abi_minor >= 6 && !getenv("ABI_NO_STABLE_ID"))
        out->stable_id = core_sdk_string("the only one");
    return CORE_OK;
}

static const core_hotplug_interface hotplug = {
    .struct_size = sizeof hotplug,
    .device_id = device_id,
};

static core_status identity(void *device, core_string *out_text)
{
    (void)device;
    *out_text = core_sdk_string("none");
    return CORE_OK;
}

/* Reports what it knows of the program, and accepts none. */
static core_status accepts(void *device, const core_loop_program *program)
{
    (void)device;
    report("ABI_PROGRAM", program->struct_size, program->ninstructions);
    return core_sdk_error(host, CORE_ERROR_UNSUPPORTED, "abi",
                          "no loop programs today");
}

static core_status build(void *device, const core_loop_program *program,
                         const core_loop_hints *hints, void **out_kernel)
{
    (void)hints;
    *out_kernel = NULL;
    return accepts(device, program);
}

static void destroy(void *device, void *kernel)
{
    (void)device;
    (void)kernel;
}

static core_status run_program(void *device, void *kernel,
                               const core_loop_launch *launch)
{
    (void)device;
    (void)kernel;
    (void)launch;
    return CORE_ERROR_INTERNAL;
}

static const core_codegen_interface codegen = {
    .struct_size = sizeof codegen,
    .identity = identity,
    .accepts = accepts,
    .build = build,
    .destroy = destroy,
    .launch = run_program,
};
#endif

/* Its device is synchronous, so core.profiler is never requested. */
static const void *newest_interface(core_string name)
{
    static const core_layout_interface layout = {
        .struct_size = sizeof layout,
        .preferred = preferred,
    };

    if (core_sdk_string_equal(name, "core.layout"))
        return &layout;
#if ABI_MINOR >= 6
    if (core_sdk_string_equal(name, "core.hotplug"))
        return &hotplug;
    if (core_sdk_string_equal(name, "core.codegen"))
        return &codegen;
#endif
    return NULL;
}
#else
static const void *newest_interface(core_string name)
{
    (void)name;
    return NULL;
}
#endif

static const void *newer_interface(core_string name)
{
    static const core_numerics_interface numerics = {
        .struct_size = sizeof numerics,
        .get = numerics_get,
        .function_ulp = function_ulp,
    };
    static const core_telemetry_interface telemetry = {
        .struct_size = sizeof telemetry,
        .read = measure,
    };
    static const core_fork_safe_interface fork_safe = {
        .struct_size = sizeof fork_safe,
        .child = forked,
    };

    if (core_sdk_string_equal(name, "core.numerics"))
        return &numerics;
    if (core_sdk_string_equal(name, "core.telemetry"))
        return &telemetry;
    if (core_sdk_string_equal(name, "core.fork_safe"))
        return &fork_safe;
    return newest_interface(name);
}
#else
static const void *newer_interface(core_string name)
{
    (void)name;
    return NULL;
}
#endif

static const void *get_interface(void *backend, core_string name,
                                 uint32_t version)
{
    static int asked;

    (void)backend;
    report("ABI_INTERFACES", ++asked, 0);
    return version <= 1 ? newer_interface(name) : NULL;
}

static core_status alloc(void *device, uint64_t size, core_memory *out_memory)
{
    (void)device;
    out_memory->offset = 0;
    out_memory->handle = aligned_alloc(64, (size + 63) / 64 * 64);
    return out_memory->handle ? CORE_OK
                              : core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY,
                                               ABI_NAME, "no memory");
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
    memcpy(address(to), from, size);
    return CORE_OK;
}

static core_status copy_to_host(void *device, void *stream, void *to,
                                core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    memcpy(to, address(from), size);
    return CORE_OK;
}

static core_status copy(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    memmove(address(to), address(from), size);
    return CORE_OK;
}

static const core_memory_table memory = {
    .struct_size = sizeof(core_memory_table),
    .alloc = alloc,
    .free = release,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy = copy,
};

/* -------------------------------------------------------------- kernels -- */

enum { NEG = 1, MUL = 2, ABS = 3 };

/* out = -a, a * b, |a|: contiguous f32, one dimension. */
static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_operand *o = call->loop->operands;
    int which = (int)(intptr_t)call->user;
    float *out = (float *)(void *)address(o[0].memory);

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    for (int64_t i = 0; i < call->loop->numel; i++) {
        float a = ((const float *)(const void *)address(o[1].memory))[i];
        float b = a;

        if (which == MUL)
            b = ((const float *)(const void *)address(o[2].memory))[i];
        out[i] = which == MUL ? a * b : which == NEG || a < 0 ? -a : a;
    }
#if ABI_MINOR >= 4
    if (call->host->abi_minor >= 4 && which == NEG)
        report("ABI_RECORDED", call->host->call_record_stream(call, NULL), 0);
#endif
#if ABI_MINOR >= 6
    if (call->host->abi_minor >= 6 && which == NEG) {
        core_view_content content = {.struct_size = sizeof content};

        /* A loop has no views. */
        report("ABI_CONTENT",
               call->host->call_view_content(call, NULL, &content), 0);
    }
#endif
    return CORE_OK;
}

#define F32 CORE_DTYPE_MASK(CORE_F32)
#define KERNEL(text, which)                                                    \
    {                                                                          \
        .struct_size = sizeof(core_kernel), .demands = CORE_DEMAND_CONTIGUOUS, \
        .name = {text, sizeof(text) - 1}, .signature = {F32, F32, F32},        \
        .max_ndim = 1, .launch = launch, .user = (void *)(intptr_t)(which)     \
    }

/* Accepts every dtype, as its author knew them: ids added later must not reach
 * it. */
static core_status launch_any(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_operand *o = call->loop->operands;
    uint32_t size = core_sdk_itemsize(o[0].dtype);

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    report("ABI_DTYPE", o[0].dtype, size);
    memset(address(o[0].memory), 0, (size_t)call->loop->numel * size);
    return CORE_OK;
}

/* All bits of a mask, and none: both mean any dtype. */
static const core_kernel zero_kernel = {.struct_size = sizeof(core_kernel),
                                        .demands = CORE_DEMAND_CONTIGUOUS,
                                        .name = {"zero_", 5},
                                        .signature = {UINT32_MAX},
                                        .launch = launch_any};
static const core_kernel fill_kernel = {.struct_size = sizeof(core_kernel),
                                        .demands = CORE_DEMAND_CONTIGUOUS,
                                        .name = {"fill_.Scalar", 12},
                                        .launch = launch_any};
static const core_kernel neg_kernel = KERNEL("neg", NEG);
static const core_kernel mul_kernel = KERNEL("mul.Tensor", MUL);
static const core_kernel *const kernels[] = {&neg_kernel, &mul_kernel,
                                             &zero_kernel, &fill_kernel};

_Static_assert(CORE_ABI_MINOR == ABI_MINOR, "other headers than were meant");

/* A feature of 0.2, used where the host has it. */
#if ABI_MINOR >= 2
static core_status prepare(core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *results,
                           uint32_t nresults, void **out_plan)
{
    static int plans;

    (void)call;
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    *out_plan = &plans;
    report("ABI_PLANS", ++plans, 0);
    return CORE_OK;
}

static void plan_destroy(void *plan)
{
    (void)plan;
}

static core_status register_newer(core_registry *registry)
{
    core_kernel absolute = KERNEL("abs", ABS);
    const core_kernel *const all[] = {&absolute};
    core_error_info last = {.struct_size = sizeof last};

    if (host->abi_minor < 2)
        return CORE_OK;
    absolute.prepare = prepare;
    absolute.plan_destroy = plan_destroy;
    /* A bit that the plugin does not know itself: set by a test. */
    if (getenv("ABI_REQUIREMENTS"))
        absolute.demands |=
            (uint32_t)strtoul(getenv("ABI_REQUIREMENTS"), NULL, 0);
    host->error_last(&last);
#if ABI_MINOR >= 3
    if (host->abi_minor >= 3) {
        core_string path;

        if (host->cache_directory(core_sdk_string(ABI_NAME), &path) == CORE_OK)
            setenv("ABI_CACHE", path.data, 1);
    }
#endif
    return host->register_kernels(registry, core_sdk_string(ABI_TYPE), all, 1);
}
#else
static core_status register_newer(core_registry *registry)
{
    (void)registry;
    return CORE_OK;
}
#endif

/* A function: squared(self) = mul(self, self), computed by the host. */
static core_status squared(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    core_value both[2];
    core_operator *op;
    core_status status;

    (void)nargs;
#if ABI_MINOR >= 6
    /* It has displaced nothing. */
    if (host->abi_minor >= 6)
        report("ABI_DISPLACED",
               core_sdk_displaced(host, call, args, nargs, results, nresults),
               0);
#endif
    both[0] = both[1] = args[0];
    status = call->host->operator_find(core_sdk_string("mul.Tensor"), &op);
    if (status == CORE_OK)
        status = call->host->operator_call(op, both, 2, results, nresults);
    return status;
}

/* A feature of 0.6: twice(self) has a shape function and a kernel. */
#if ABI_MINOR >= 6
static core_status twice_shape(void *user, const core_value *args,
                               uint32_t nargs, core_result_shape *shapes,
                               uint32_t nresults)
{
    const core_view *self = args[0].u.view;

    (void)user;
    (void)nargs;
    (void)nresults;
    shapes[0].dtype = self->dtype;
    shapes[0].ndim = self->ndim;
    memcpy(shapes[0].sizes, self->sizes, self->ndim * sizeof *self->sizes);
    return CORE_OK;
}

static core_status twice(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    const core_view *self = args[0].u.view, *out = results[0].u.view;

    (void)nargs;
    (void)nresults;
    report("ABI_OWN", call->device != NULL, out->numel);
    for (int64_t i = 0; i < out->numel; i++)
        ((float *)(void *)address(out->memory))[i] =
            2 * ((const float *)(const void *)address(self->memory))[i];
    return CORE_OK;
}

static core_status register_own(core_registry *registry)
{
    const core_kernel kernel = {.struct_size = sizeof kernel,
                                .demands = CORE_REQUIRE_CONTIGUOUS,
                                .name = core_sdk_string(ABI_NAME "::twice"),
                                .signature = {F32, F32},
                                .launch = twice};
    const core_kernel *const all[] = {&kernel};
    core_status status;

    if (host->abi_minor < 6)
        return CORE_OK;
    status = host->register_operator(
        registry, core_sdk_string(ABI_NAME "::twice(Tensor self) -> Tensor"));
    if (status == CORE_OK)
        status = host->register_shape(registry, kernel.name, twice_shape, NULL);
    if (status == CORE_OK)
        status =
            host->register_kernels(registry, core_sdk_string(ABI_TYPE), all, 1);
    return status;
}
#else
static core_status register_own(core_registry *registry)
{
    (void)registry;
    return CORE_OK;
}
#endif

/* ------------------------------------------------------------ the plugin -- */

static core_backend backend = {
    .struct_size = sizeof(core_backend),
    .device_type = {ABI_TYPE, sizeof(ABI_TYPE) - 1},
    .user = &backend,
    .enumerate = enumerate,
    .device_open = device_open,
    .device_close = device_close,
    .device_properties = device_properties,
#if ABI_MINOR >= 6
    .device_information = device_information,
#endif
    .get_interface = get_interface,
    .memory = &memory,
};

static core_status init(const core_host *given, core_registry *registry,
                        void **out_plugin)
{
    core_status status;

    host = given;
    *out_plugin = NULL;
    report("ABI_HOST", host->abi_minor, host->struct_size);
    status = host->register_backend(registry, &backend);
    if (status == CORE_OK)
        status = host->register_kernels(registry, core_sdk_string(ABI_TYPE),
                                        kernels, 4);
    if (status == CORE_OK)
        status = register_newer(registry);
    if (status == CORE_OK)
        status = host->register_operator(
            registry,
            core_sdk_string(ABI_NAME "::squared(Tensor self) -> Tensor"));
    if (status == CORE_OK)
        status = host->register_function(
            registry, core_sdk_string(ABI_NAME "::squared"),
            CORE_KEY_COMPOSITE_IMPLICIT, core_sdk_string(""), squared, NULL);
    if (status == CORE_OK)
        status = register_own(registry);
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
    return core_sdk_negotiate(offer, answer, 1, CORE_PLUGIN_UNLOAD_SAFE, init,
                              stop);
}
