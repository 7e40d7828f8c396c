/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels under names that no call uses.  They are not errors: a plugin built
 * for a newer libcore may have kernels that this one does not know, and runs
 * with those that both know.  A misspelt name is reported in the same way. */

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "dispatch/table.h"
#include "dispatch/upcalls.h"

#include <string.h>

enum {
    NAMES = CORE__UNMATCHED_NAMES_SIZE - 4
}; /* further names are only logged */

static bool is_listed(const char *names, core_string name)
{
    while (names) {
        size_t size = strcspn(names, ",");

        if (size == name.size && memcmp(names, name.data, size) == 0)
            return true;
        names = strstr(names, ", ");
        names = names ? names + 2 : NULL;
    }
    return false;
}

/* If the memory is used up, the name is only logged.  The text is extended in
 * place, because programs may be reading it, and is always terminated. */
static void list_name(core__backend *backend, core_string name)
{
    size_t used =
        backend->unmatched_kernels ? strlen(backend->unmatched_kernels) : 0;
    size_t at = used ? used + 2 : 0;

    if (is_listed(backend->unmatched_kernels, name) || used + name.size > NAMES)
        return;
    if (!backend->unmatched_kernels)
        backend->unmatched_kernels = core__alloc_zero(NAMES + 3);
    if (!backend->unmatched_kernels)
        return;
    memcpy(backend->unmatched_kernels + at, name.data, name.size);
    if (used) {
        backend->unmatched_kernels[used + 1] = ' ';
        backend->unmatched_kernels[used] = ',';
    }
}

bool core__registry_check_unmatched(core_registry *registry,
                                    core__backend *backend,
                                    const core_kernel *kernel,
                                    core_operator *op)
{
    const char *plugin =
        registry->plugin ? core__dispatch_upcalls.plugin_name(registry->plugin)
                         : "the program";

    /* Calls of sum.dim_IntList use the kernel named sum.  A kernel registered as
     * sum.dim_IntList is accepted as well, and declares that the plugin's
     * kernel for sum supports this overload.  If it is another function, it is
     * never called, and core__unmatched_kernel_names lists it. */
    if (op && (core__operator_kernel(op) == op ||
               op->data->variant == CORE__VARIANT_FUNCTIONAL))
        return false;
    if (op)
        core__log(CORE_LOG_WARNING, "registry",
                  "%s: the kernel \"%.*s\" of \"%s\" is never called: calls of "
                  "this operator use the kernels of \"%s\"",
                  plugin, (int)kernel->name.size, kernel->name.data,
                  backend->type,
                  core__operator_name(core__operator_kernel(op)));
    else
        core__log(CORE_LOG_WARNING, "registry",
                  "%s: the kernel \"%.*s\" of \"%s\" is never called: this "
                  "libcore has no operator of that name",
                  plugin, (int)kernel->name.size, kernel->name.data,
                  backend->type);
    list_name(backend, kernel->name);
    return true;
}

static const core__kernel *kernels_of(core_operator *op, core__backend *backend)
{
    core__kernel_set *set = core__registry_set(op, backend);

    return set ? atomic_load(&set->first) : NULL;
}

/* Tests whether a kernel of an operator whose calls use other kernels is none
 * of those. */
static bool differs(core_operator *op, core__backend *backend)
{
    const core__kernel *used = kernels_of(core__operator_kernel(op), backend);

    for (const core__kernel *k = kernels_of(op, backend); k; k = k->next) {
        const core__kernel *same = used;

        while (same && same->kernel.launch != k->kernel.launch)
            same = same->next;
        if (!same)
            return true;
    }
    return false;
}

void core__unmatched_kernel_names(core__backend *backend, char *text,
                                  size_t capacity)
{
    const char *list =
        backend->unmatched_kernels ? backend->unmatched_kernels : "";
    size_t size = strlen(list);

    if (size >= capacity)
        size = capacity - 1;
    memcpy(text, list, size);
    text[size] = 0;
    core__registry_lock();
    for (uint32_t i = 0; i < core__operator_count; i++) {
        core_operator *op = &core__operators[i];
        const char *name;

        if (!op->data || core__operator_kernel(op) == op ||
            !differs(op, backend))
            continue;
        name = core__operator_name(op);
        if (size + strlen(name) + 3 > capacity)
            break;
        size += (size_t)core__format(text + size, capacity - size, "%s%s",
                                     size ? ", " : "", name);
    }
    core__registry_unlock();
}
