/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The host table: the functions that libcore offers to plugins. */

#include "autograd/graph/operator_gradient.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "io/cache_folder.h"
#include "loader/loader.h"
#include "tensor/tensor.h"

#include <libcore/dispatch.h>
#include <libcore/function.h>

#include <limits.h>
#include <string.h>

/* A text without memory would be read all the same. */
static core_status check_text(core_string text, const char *what)
{
    if (text.data || text.size == 0)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "a plugin passes %llu bytes at NULL as %s",
                       (unsigned long long)text.size, what);
}

static core_status check_pointer(const void *pointer, const char *what)
{
    if (pointer)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "a plugin passes NULL as %s", what);
}

static core_status host_error(const core_error_info *info)
{
    static const char no_message[] = "the plugin gave no message";
    core_error_info known = {0};
    size_t size;

    CORE_TRY(check_pointer(info, "an error"));
    /* An older plugin's struct is shorter. */
    size = info->struct_size;
    memcpy(&known, info, size < sizeof known ? size : sizeof known);
    if (!known.component.data)
        known.component.size = 0;
    if (!known.text.data || known.text.size == 0)
        known.text = (core_string){no_message, sizeof no_message - 1};
    if (known.code == CORE_OK)
        known.code = CORE_ERROR_INTERNAL; /* an error was to be reported */
    return core__error_info(&known);
}

static void host_error_last(core_error_info *out_info)
{
    const core__error_record *record = &core__thread_self()->error;

    if (out_info->struct_size < sizeof *out_info)
        return; /* the minimum size since this function exists */
    *out_info = (core_error_info){
        .struct_size = out_info->struct_size,
        .code = record->code,
        .severity = record->severity,
        .retryable = record->retryable,
        .vendor_code = record->vendor_code,
        .text = {record->text, strlen(record->text)},
    };
}

static void host_log(uint32_t level, core_string component, core_string text)
{
    char name[64];
    size_t size = component.data ? component.size : 0;

    if (!core__log_is_enabled(level))
        return;
    if (!text.data)
        text.size = 0;
    if (size >= sizeof name)
        size = sizeof name - 1;
    if (size > 0)
        memcpy(name, component.data, size);
    name[size] = '\0';
    core__log(level, name, "%.*s", (int)(text.size < 1024 ? text.size : 1024),
              text.size ? text.data : "");
}

static core_string host_setting(core_string name)
{
    const char *text =
        name.data ? core__setting_by_name(name.data, name.size) : NULL;

    return (core_string){text, text ? strlen(text) : 0};
}

/* -------------------------------------------------------- registration -- */

static core_status check_open(const core_registry *registry)
{
    if (registry && registry->plugin && registry->plugin->opening)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "a plugin can register only while its init runs");
}

/* What the text of a device type does not show. */
static const char *rest_of(core_string type)
{
    if (type.data && memchr(type.data, '\0', type.size))
        return " (its size counts a NUL)";
    return type.size > 64 ? " and more" : "";
}

static core_status register_backend(core_registry *registry,
                                    const core_backend *backend)
{
    core_string type;

    CORE_TRY(check_open(registry));
    CORE_TRY(check_pointer(backend, "a backend"));
    type = backend->device_type;
    CORE_TRY(check_text(type, "a device type"));
    if (!type.data || !core__list_contains(registry->plugin->note.device_types,
                                           type.data, type.size))
        return core__error(CORE_ERROR_REFUSED,
                           "registers the device type \"%.*s\"%s, which its "
                           "note does not list (%s)",
                           (int)(type.size < 64 ? type.size : 64),
                           type.data ? type.data : "", rest_of(type),
                           registry->plugin->note.device_types);
    if (backend->flags != 0)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "backend \"%.*s\" has the flags 0x%x; this libcore accepts none",
            (int)type.size, type.data, backend->flags);
    if (registry->plugin->interposers)
        CORE_TRY(core__interposers_backend(registry->plugin->interposers,
                                           backend, &backend));
    return core__registry_add_backend(registry, backend);
}

/* Also those that no tensor has yet, and all that core_kernel_at reports of a
 * kernel that names none. */
static uint32_t known_dtypes(void)
{
    uint32_t known = CORE__DTYPES_OF_0_1 | CORE_DTYPE_MASK(CORE_COMPLEX64) |
                     CORE_DTYPE_MASK(CORE_COMPLEX128);

    for (core_dtype dtype = 0; dtype < CORE_DTYPE_LIMIT; dtype++)
        known |= core__dtype_is_known(dtype) ? CORE_DTYPE_MASK(dtype) : 0;
    return known;
}

/* All bits stand for every dtype.  A plugin that is built for later minors, too,
 * may have kernels of dtypes that this libcore does not have: no call chooses
 * them.  Those for minors before 0.6 were not checked. */
static core_status check_signature(const core_plugin *plugin,
                                   const core_kernel *kernel, uint32_t known)
{
    bool later = plugin->note.abi_minor_max > CORE_ABI_MINOR;

    if (kernel->struct_size < offsetof(core_kernel, supports))
        return CORE_OK; /* core__registry_add_kernels refuses it */
    if (core__plugin_minor(plugin) < 6)
        return CORE_OK;
    for (uint32_t i = 0; !later && i < CORE_SIGNATURE_MAX; i++)
        if (kernel->signature[i] & ~known && kernel->signature[i] != UINT32_MAX)
            return core__error(
                CORE_ERROR_UNSUPPORTED,
                "kernel \"%.*s\": signature[%u] is 0x%x, with bits of no "
                "dtype, 0x%x; accepted: CORE_DTYPE_MASK of dtypes, 0x%x",
                (int)kernel->name.size, kernel->name.data, i,
                kernel->signature[i], kernel->signature[i] & ~known, known);
    if (kernel->reserved != 0)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "kernel \"%.*s\": its field reserved is %u; it must be 0",
            (int)kernel->name.size, kernel->name.data, kernel->reserved);
    return CORE_OK;
}

/* A constraint that is not known could not be met. */
static core_status check_kernel(const core_plugin *plugin,
                                const core_kernel *kernel, uint32_t dtypes)
{
    uint32_t known = CORE_REQUIRE_CONTIGUOUS | CORE_REQUIRE_NO_FALLBACK;
    bool plans;

    if (core__plugin_minor(plugin) >= 3)
        known |= CORE_REQUIRE_EQUAL_DTYPES | CORE_REQUIRE_INDEX32 |
                 CORE_REQUIRE_ALIGNMENT;

    CORE_TRY(check_pointer(kernel, "a kernel"));
    CORE_TRY(check_text(kernel->name, "a kernel's name"));
    plans =
        kernel->struct_size > offsetof(core_kernel, prepare) && kernel->prepare;
    if (kernel->demands & ~known)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "kernel \"%.*s\" has the requirements 0x%x; plugin ABI "
            "%d.%u accepts 0x%x",
            (int)kernel->name.size, kernel->name.data, kernel->demands,
            CORE_ABI_MAJOR, core__plugin_minor(plugin), known);
    if (plans && core__plugin_minor(plugin) < 2)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "kernel \"%.*s\" has plans, which plugin ABI %d.%u "
                           "does not support",
                           (int)kernel->name.size, kernel->name.data,
                           CORE_ABI_MAJOR, core__plugin_minor(plugin));
    return check_signature(plugin, kernel, dtypes);
}

static core_status register_interposed(core_registry *registry,
                                       core_string backend,
                                       const core_kernel *const *kernels,
                                       uint32_t count)
{
    const core_kernel *interposed;

    for (uint32_t i = 0; i < count; i++) {
        CORE_TRY(core__interposers_kernel(registry->plugin->interposers,
                                          backend, kernels[i], &interposed));
        CORE_TRY(core__registry_add_kernels(registry, backend, &interposed, 1));
    }
    return CORE_OK;
}

static core_status register_kernels(core_registry *registry,
                                    core_string backend,
                                    const core_kernel *const *kernels,
                                    uint32_t count)
{
    uint32_t dtypes = known_dtypes();

    CORE_TRY(check_open(registry));
    CORE_TRY(check_text(backend, "a device type"));
    if (count > 0)
        CORE_TRY(check_pointer(kernels, "an array of kernels"));
    for (uint32_t i = 0; i < count; i++)
        CORE_TRY(check_kernel(registry->plugin, kernels[i], dtypes));
    if (registry->plugin->interposers)
        return register_interposed(registry, backend, kernels, count);
    return core__registry_add_kernels(registry, backend, kernels, count);
}

static core_status register_fallback(core_registry *registry,
                                     core_string backend, core_function kernel,
                                     void *user)
{
    CORE_TRY(check_open(registry));
    CORE_TRY(check_text(backend, "a device type"));
    if (!kernel)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "the function of a fallback is NULL");
    if (registry->plugin->interposers) {
        const core_kernel given = {
            .struct_size = sizeof given,
            .name = {"fallback", 8},
            .launch = kernel,
            .user = user,
        };
        const core_kernel *interposed;

        CORE_TRY(core__interposers_kernel(registry->plugin->interposers,
                                          backend, &given, &interposed));
        kernel = interposed->launch;
        user = interposed->user;
    }
    return core__registry_add_fallback(registry, backend, kernel, user);
}

static core_status register_operator(core_registry *registry,
                                     core_string schema)
{
    CORE_TRY(check_open(registry));
    CORE_TRY(check_text(schema, "a schema"));
    return core__registry_add_operator(registry, schema);
}

static core_status register_function(core_registry *registry,
                                     core_string operator_name, uint32_t key,
                                     core_string backend,
                                     core_function function, void *user)
{
    CORE_TRY(check_open(registry));
    CORE_TRY(check_text(operator_name, "an operator's name"));
    CORE_TRY(check_text(backend, "a device type"));
    if (registry->plugin->interposers)
        CORE_TRY(core__interposers_function(registry->plugin->interposers,
                                            operator_name, &function, &user));
    return core__registry_add_function(registry, operator_name, key, backend,
                                       function, user);
}

static core_status register_gradient(core_registry *registry,
                                     core_string operator_name,
                                     const core_operator_gradient *gradient)
{
    CORE_TRY(check_open(registry));
    CORE_TRY(check_text(operator_name, "an operator's name"));
    CORE_TRY(check_pointer(gradient, "a gradient"));
    return core__gradient_add(registry, operator_name, gradient,
                              &registry->plugin->recorded);
}

static core_status register_shape(core_registry *registry,
                                  core_string operator_name,
                                  core_shape_function shape, void *user)
{
    CORE_TRY(check_open(registry));
    CORE_TRY(check_text(operator_name, "an operator's name"));
    if (registry->plugin->interposers)
        CORE_TRY(core__interposers_shape(registry->plugin->interposers,
                                         operator_name, &shape, &user));
    return core__registry_add_shape(registry, operator_name, shape, user);
}

static core_status register_interface(core_registry *registry, core_string name,
                                      uint32_t version, const void *table,
                                      void *user)
{
    static const char collectives[] = "core.collectives";

    CORE_TRY(check_open(registry));
    CORE_TRY(check_text(name, "an interface's name"));
    CORE_TRY(check_pointer(table, "an interface"));
    if (name.size != sizeof collectives - 1 ||
        memcmp(name.data, collectives, name.size) != 0 || version != 1)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "registers the interface \"%.*s\", version %u; this libcore has "
            "%s, version 1",
            (int)(name.size < 64 ? name.size : 64), name.data ? name.data : "",
            version, collectives);
    return core__comm_engine_add(registry->plugin,
                                 &registry->plugin->information, table, user);
}

static uint32_t host_node_needs_gradient(const core_node *node, uint64_t input)
{
    return core_node_needs_gradient(node, input);
}

/* ----------------------------------------------- operators and tensors -- */

static core_status host_operator_find(core_string name, core_operator **out)
{
    *out = NULL;
    CORE_TRY(check_text(name, "an operator's name"));
    *out = core__operator_find(name.data, name.size);
    if (*out)
        return CORE_OK;
    return core__error(CORE_ERROR_NOT_FOUND, "there is no operator \"%.*s\"",
                       (int)(name.size < 128 ? name.size : 128), name.data);
}

static core_string host_operator_name(const core_operator *op)
{
    const char *name = core__operator_name(op);

    return (core_string){name, strlen(name)};
}

static core_status host_redispatch(core_call *call, uint64_t keys,
                                   const core_value *args, uint32_t nargs,
                                   core_value *results, uint32_t nresults)
{
    if (!(keys & CORE__KEYS_FUNCTIONALITY))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: redispatch with a key set that has no functionality",
            core__operator_name(call->op));
    return core__redispatch(call->op, keys, args, nargs, results, nresults);
}

static void host_tensor_retain(core_tensor *tensor)
{
    core__tensor_retain(tensor);
}

static void host_tensor_release(core_tensor *tensor)
{
    core__tensor_release(tensor);
}

static core_status host_tensor_view(core_tensor *tensor, core_view *out_view)
{
    if (core__tensor_is_meta(tensor))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "a tensor on the meta device has no memory");
    core__tensor_fill_view(tensor, out_view);
    return CORE_OK;
}

static core_status host_backend_kernel(core_string type, uint32_t index,
                                       const core_kernel **out_kernel)
{
    core__backend *backend;
    core_status status = CORE_OK;

    *out_kernel = NULL;
    CORE_TRY(check_text(type, "a device type"));
    core__loader_lock();
    backend = core__backend_by_type(type.data, type.size);
    if (!backend) {
        status = core__loader_load_type(type.data, type.size);
        backend = core__backend_by_type(type.data, type.size);
    }
    if (backend && backend->plugin && backend->plugin != core__loader_opening)
        backend->plugin->used_by_others = true;
    if (backend)
        status = core__registry_kernel_at(backend, index, out_kernel);
    core__loader_unlock();
    return status;
}

/* --------------------------------------------------------------- table -- */

/* The path lives until the process ends. */
static core_status cache_directory(core_string name, core_string *out_path)
{
    char path[PATH_MAX];
    const char *interned;

    *out_path = (core_string){0};
    CORE_TRY(core__cache_folder_make(name, path, sizeof path));
    core__loader_lock();
    interned = core__loader_intern(path);
    core__loader_unlock();
    if (!*interned)
        return core__error_memory(strlen(path) + 1);
    *out_path = (core_string){interned, strlen(interned)};
    return CORE_OK;
}

const core_host core__host = {
    .struct_size = sizeof(core_host),
    .abi_minor = CORE_ABI_MINOR,
    .error = host_error,
    .log = host_log,
    .setting = host_setting,
    .register_backend = register_backend,
    .register_kernels = register_kernels,
    .register_fallback = register_fallback,
    .register_operator = register_operator,
    .register_function = register_function,
    .operator_find = host_operator_find,
    .operator_name = host_operator_name,
    .operator_call = core_op_call,
    .redispatch = host_redispatch,
    .tensor_retain = host_tensor_retain,
    .tensor_release = host_tensor_release,
    .tensor_view = host_tensor_view,
    .backend_kernel = host_backend_kernel,
    .call_scratch = core__call_scratch,
    .call_allocate_result = core__call_allocate_result,
    .call_copy = core__call_copy,
    .call_drop = core__call_drop,
    .error_last = host_error_last,
    .register_gradient = register_gradient,
    .context_save = core_context_save,
    .context_mark_non_differentiable = core_context_mark_non_differentiable,
    .context_no_zeros = core_context_no_zeros,
    .context_set_state = core_context_set_state,
    .node_saved = core_node_saved,
    .node_needs_gradient = host_node_needs_gradient,
    .cache_directory = cache_directory,
    .call_record_stream = core__call_record_stream,
    .tensor_record_stream = core__host_record_stream,
    .devices_changed = core__devices_changed,
    .call_view_content = core__call_view_content,
    .register_shape = register_shape,
    .redispatch_displaced = core_redispatch_displaced,
    .redispatch_below = core_redispatch_below,
    .register_interface = register_interface,
};

/* A plugin sees the size of its minor's table, and NULL after it. */
void core__host_fill(core_host *host, uint32_t abi_minor)
{
    size_t known = abi_minor < 2   ? offsetof(core_host, error_last)
                   : abi_minor < 3 ? offsetof(core_host, cache_directory)
                   : abi_minor < 4 ? offsetof(core_host, call_record_stream)
                   : abi_minor < 6 ? offsetof(core_host, devices_changed)
                                   : sizeof *host;

    *host = core__host;
    host->abi_minor = abi_minor;
    host->struct_size = (uint32_t)known;
    memset((char *)host + known, 0, sizeof *host - known);
}
