/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loader.h: plugins.
 *
 * The list and every state are guarded by the lock of backends and devices,
 * which is recursive: opening a device may open a plugin, and the reverse. */

#ifndef CORE_LOADER_LOADER_H
#define CORE_LOADER_LOADER_H

#include "device/device.h"
#include "dispatch/registry.h"
#include "interpose/interposers.h"

#include <libcore/plugins.h>

#include <stdbool.h>

/* Stays in the list until the process ends. */
struct core_plugin {
    /* The program's, and one for every object that needs the plugin's code. */
    _Atomic uint32_t references;
    core_plugin *next;
    core_plugin_information information; /* its texts live until the process
                                          * ends */
    uint64_t file_device; /* identifies the file, whatever its path */
    uint64_t file_inode;
    core_plugin_note note;
    core_plugin_seal seal;     /* of the file when it was opened */
    const char *sha256;        /* required by a manifest, else NULL or "" */
    const core_plugin *behind; /* of the same name, which took precedence; or
                                * NULL */
    bool opening;        /* its init is running and may load other plugins */
    bool used_by_others; /* another plugin uses its kernels, so it is never
                         * closed */
    void *library;
    core_plugin_answer answer;
    void *impl;                     /* returned by init */
    core_host host;                 /* for the negotiated minor */
    core_registry registry;         /* its registrations, which are undone
                                  * together */
    uint64_t violations;            /* of interposers that have ended */
    const char *first_violation;    /* NULL: none */
    core__interposers *interposers; /* NULL: not interposed */
    /* Calls in graphs whose gradients are functions of the plugin. */
    _Atomic uint64_t recorded;
};

/* Opens the plugin that serves a device type, after a scan if that was not
 * done.  NOT_FOUND: no plugin serves it; another error: the reason why its
 * plugin could not be opened. */
core_status core__loader_load_type(const char *device_type, size_t size);
/* Opens all plugins that were found: for lookups without a type (the default
 * device). */
core_status core__loader_load_all(void);
/* Opens the plugins whose notes list no device types, for their other
 * interfaces.  That one cannot be opened is not an error. */
core_status core__loader_load_deviceless(void);

/* In a child: a plugin that a thread of the parent was opening cannot be opened
 * any more. */
void core__loader_after_fork(void);

/* ------------------------------------------------------------ internal -- */

void core__loader_lock(void);
void core__loader_unlock(void);
/* The plugin whose init is running, or NULL; guarded by the lock. */
extern core_plugin *core__loader_opening;

/* Opens, negotiates and initialises; on failure everything is undone, and
 * state and reason are set.  With the lock held; the state is FOUND. */
core_status core__plugin_open(core_plugin *plugin);
core_status core__plugin_close(core_plugin *plugin, uint64_t deadline_ns);
/* Sets state, status and reason from the thread's error record. */
core_status core__plugin_set_state(core_plugin *plugin, uint32_t state,
                                   core_status status);
/* Copies text until the process ends; "" if there is no memory. */
const char *core__loader_intern(const char *text);

/* The minor of a backend's plugin; that of this libcore for built-in
 * backends. */
static inline uint32_t core__plugin_minor(const core_plugin *plugin)
{
    return plugin ? plugin->host.abi_minor : (uint32_t)CORE_ABI_MINOR;
}

/* Fills in a plugin's host table for a minor. */
void core__host_fill(core_host *host, uint32_t abi_minor);

/* CORRUPT: the file's hash is not that of its manifest. */
core_status core__plugin_check_hash(const core_plugin *plugin, int file);

/* Check the texts of LIBCORE_PLUGIN_PATH and LIBCORE_QUARANTINE. */
core_status core__plugin_path_check(const char *text);
core_status core__quarantine_check(const char *text);

#endif
