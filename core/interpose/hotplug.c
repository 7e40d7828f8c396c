/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrapper of core.hotplug. */

#include "interpose/interposer.h"

enum { ID_MAX = 256 };

static core_status device_id(void *user, uint32_t index, core_string *out_id)
{
    interposer_backend *backend = user;
    interposer_call call;
    core_status status;

    CORE_TRY(interposer_enter(&call, backend->interposers, backend->type,
                              "hotplug.device_id", INTERPOSER_OPEN));
    status = backend->hotplug.device_id(backend->real.user, index, out_id);
    if (status == CORE_OK && interposer_validates(call.interposers)) {
        if (!out_id->data || out_id->size == 0 || out_id->size > ID_MAX)
            interposer_violation(&call, "reports an id of %llu bytes at %p",
                                 (unsigned long long)out_id->size,
                                 (const void *)out_id->data);
    }
    return interposer_leave(&call, status, "%u -> %.*s", index,
                            status == CORE_OK ? (int)out_id->size : 0,
                            status == CORE_OK ? out_id->data : "");
}

const core_hotplug_interface interposer_hotplug = {
    sizeof(core_hotplug_interface), 0, device_id};
