/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loader.h: plugins, inside the core.
 *
 * The list and every state are guarded by the lock of backends and devices,
 * which is recursive: opening a device may open a plugin, and the other way
 * round. */

#ifndef CORE_LOADER_LOADER_H
#define CORE_LOADER_LOADER_H

#include "device/device.h"
#include "dispatch/registry.h"
#include "interpose/interposers.h"

#include <libcore/plugins.h>

#include <stdbool.h>

typedef struct core__kept_text {
    struct core__kept_text *next;
    char text[];
} core__kept_text;

/* Stays in the list until the process ends. */
struct core_plugin {
    /* The program's, and one for every object that needs the plugin's code. */
    _Atomic uint32_t references;
    core_plugin *next;
    core_plugin_information information; /* texts are kept ones */
    uint64_t file_device; /* which file it is, under whatever path */
    uint64_t file_inode;
    core_plugin_note note;
    const char *sha256; /* that a manifest wants, else NULL or "" */
    bool opening;       /* its init runs: it may ask for other plugins */
    bool lent;          /* another plugin uses its kernels: never closed */
    void *library;
    core_plugin_answer answer;
    void *impl;             /* what init answered */
    core_host host;         /* at the negotiated minor */
    core_registry registry; /* what it registered, to be undone together */
    uint64_t breaches;      /* of layers that have ended */
    const char *breach;     /* the first; NULL: none */
    core__layers *layers;   /* what stands before it; NULL: nothing */
    /* Calls in graphs whose gradients are functions of the plugin. */
    _Atomic uint64_t recorded;
};

/* Opens what serves a device type, scanning first if that was not done.
 * NOT_FOUND: no plugin has it; another error:
 * why the one that has it could not be opened. */
core_status core__loader_load_for(const char *device_type, size_t size);
/* All that were found: for lookups without a type (the default device). */
core_status core__loader_load_all(void);

/* ------------------------------------------------------------ internal -- */

void core__loader_lock(void);
void core__loader_unlock(void);
/* The plugin of which init runs, NULL if none; with the lock. */
extern core_plugin *core__loader_opening;

/* Opens, negotiates and initialises; on failure everything is undone, state
 * and reason are set.  With the lock, state FOUND. */
core_status core__plugin_open(core_plugin *plugin);
core_status core__plugin_close(core_plugin *plugin, uint64_t deadline_ns);
/* Sets state, status and reason from the thread's error record. */
core_status core__plugin_set_state(core_plugin *plugin, uint32_t state,
                                   core_status status);
/* Keeps a copy of text until the process ends; "" if there is no memory. */
const char *core__loader_keep(const char *text);

/* The minor under which a backend's plugin runs; what is built in has ours. */
static inline uint32_t core__plugin_minor(const core_plugin *plugin)
{
    return plugin ? plugin->host.abi_minor : (uint32_t)CORE_ABI_MINOR;
}

/* The host table of a plugin, at a minor. */
void core__host_fill(core_host *host, uint32_t abi_minor);

/* CORRUPT: a manifest names another hash than the file has. */
core_status core__plugin_check_hash(const core_plugin *plugin, int file);

/* For core_host.cache_directory: cache_folder.c. */
core_status core__cache_folder(core_string name, core_string *out_path);

/* Checks the texts of LIBCORE_PLUGIN_PATH, LIBCORE_QUARANTINE and
 * LIBCORE_CACHE. */
core_status core__plugin_path_check(const char *text);
core_status core__quarantine_check(const char *text);
core_status core__cache_check(const char *text);

#endif
