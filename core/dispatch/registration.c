/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Registrations of a program, and their removal: each call has its own
 * registry. */

#include "base/memory.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"

#include <libcore/dispatch.h>
#include <libcore/mode.h>

#include <string.h>

struct core_registration {
    core_registry registry;
};

static core_status finish(core_status status, core_registration *registration,
                          core_registration **out_registration)
{
    *out_registration = status == CORE_OK ? registration : NULL;
    if (status != CORE_OK)
        core_registration_release(registration);
    return status;
}

core_status core__registration_new(core_registration **out_registration)
{
    *out_registration = core__alloc_zero(sizeof **out_registration);
    return *out_registration ? CORE_OK
                             : core__error_memory(sizeof **out_registration);
}

core_status core_op_register(const char *schema,
                             core_registration **out_registration)
{
    core_registration *registration;

    CORE__NOT_NULL(out_registration);
    *out_registration = NULL;
    CORE__NOT_NULL(schema);
    CORE_TRY(core__thread_cut(__func__));
    CORE_TRY(core__registration_new(&registration));
    return finish(
        core__registry_add_operator(&registration->registry,
                                    (core_string){schema, strlen(schema)}),
        registration, out_registration);
}

core_status core_function_register(const char *operator_name, uint32_t key,
                                   const char *device_type,
                                   core_function function, void *user,
                                   core_registration **out_registration)
{
    core_string type = {device_type, device_type ? strlen(device_type) : 0};
    core_registration *registration;

    CORE__NOT_NULL(out_registration);
    *out_registration = NULL;
    CORE__NOT_NULL(operator_name);
    CORE__NOT_NULL(function);
    CORE_TRY(core__thread_cut(__func__));
    CORE_TRY(core__registration_new(&registration));
    return finish(core__registry_add_function(
                      &registration->registry,
                      (core_string){operator_name, strlen(operator_name)}, key,
                      type, function, user),
                  registration, out_registration);
}

core_status core_fallback_register(uint32_t key, const char *device_type,
                                   core_function function, void *user,
                                   core_registration **out_registration)
{
    core_string type = {device_type, device_type ? strlen(device_type) : 0};
    core_registration *registration;

    CORE__NOT_NULL(out_registration);
    *out_registration = NULL;
    CORE__NOT_NULL(function);
    CORE_TRY(core__thread_cut(__func__));
    CORE_TRY(core__registration_new(&registration));
    return finish(core__registry_add_program_fallback(
                      &registration->registry, key, type, function, user),
                  registration, out_registration);
}

core_registry *core__registration_registry(core_registration *registration)
{
    return &registration->registry;
}

void core_registration_release(core_registration *registration)
{
    if (!registration)
        return;
    core__thread_cut_later(__func__);
    core__registry_undo(&registration->registry);
    core__free(registration);
}

core_status core_kernel_at(const char *device_type, uint32_t index,
                           const core_kernel **out_kernel)
{
    core__backend *backend;

    CORE__NOT_NULL(out_kernel);
    *out_kernel = NULL;
    CORE__NOT_NULL(device_type);
    backend = core__backend_by_type(device_type, strlen(device_type));
    if (!backend)
        return core__backend_not_found(device_type, strlen(device_type));
    return core__registry_kernel_at(backend, index, out_kernel);
}
