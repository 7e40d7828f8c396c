/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels under names that no call asks for.  They are no error: a plugin built
 * for a newer libcore brings more than this one knows, and runs with what both
 * have.  A misspelt one is told in the same way. */

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "dispatch/table.h"
#include "dispatch/upcalls.h"

#include <string.h>

enum { NAMES = CORE__UNASKED_NAMES - 4 }; /* the rest is logged alone */

static bool is_kept(const char *names, core_string name)
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

/* Without memory it is not listed: it was logged.  The text stays where it is,
 * as programs may be reading it, and always has an end. */
static void keep(core__backend *backend, core_string name)
{
    size_t used = backend->unasked ? strlen(backend->unasked) : 0;
    size_t at = used ? used + 2 : 0;

    if (is_kept(backend->unasked, name) || used + name.size > NAMES)
        return;
    if (!backend->unasked)
        backend->unasked = core__alloc_zero(NAMES + 3);
    if (!backend->unasked)
        return;
    memcpy(backend->unasked + at, name.data, name.size);
    if (used) {
        backend->unasked[used + 1] = ' ';
        backend->unasked[used] = ',';
    }
}

bool core__registry_unasked(core_registry *registry, core__backend *backend,
                            const core_kernel *kernel, core_operator *op)
{
    const char *plugin =
        registry->plugin ? core__dispatch_upcalls.plugin_name(registry->plugin)
                         : "the program";

    /* One of another functional operator, as sum.dim_IntList, which calls use
     * by the name of sum, does no harm: it says that the kernel can do it.
     * Where there is none by the name of sum, core__unasked_names tells. */
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
    keep(backend, kernel->name);
    return true;
}

static bool has_kernels(core_operator *op, core__backend *backend)
{
    core__kernel_set *set = op ? core__registry_set(op, backend) : NULL;

    return set && atomic_load(&set->first);
}

void core__unasked_names(core__backend *backend, char *text, size_t room)
{
    const char *kept = backend->unasked ? backend->unasked : "";
    size_t size = strlen(kept);

    if (size >= room)
        size = room - 1;
    memcpy(text, kept, size);
    text[size] = 0;
    core__registry_lock();
    for (uint32_t i = 0; i < core__operator_count; i++) {
        core_operator *op = &core__operators[i];
        const char *name;

        if (!op->data || core__operator_kernel(op) == op ||
            !has_kernels(op, backend) ||
            has_kernels(core__operator_kernel(op), backend))
            continue;
        name = core__operator_name(op);
        if (size + strlen(name) + 3 > room)
            break;
        size += (size_t)core__format(text + size, room - size, "%s%s",
                                     size ? ", " : "", name);
    }
    core__registry_unlock();
}
