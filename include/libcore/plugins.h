/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugins.h: the plugins that were found, their state, and their backends.  A
 * program does not need this header to compute: finding a device opens the
 * plugin that provides it.
 *
 * libcore searches for plugins, in this order: at the path passed to
 * core_plugin_load; in the directories of LIBCORE_PLUGIN_PATH; in the installed
 * directory plugins-<ABI major>; and through manifests, for plugins that
 * vendors install elsewhere.  A manifest is a file NAME.plugin in
 * /usr/share/libcore/plugins.d or /etc/libcore/plugins.d with the lines
 *
 *     path = /opt/vendor/lib/core_example.so
 *     sha256 = 64 digits, as sha256sum prints them
 *
 * and comments after #.  The second line is optional; with it, a file that has
 * another hash is refused, so it detects damaged and replaced files.  (A seal,
 * core_plugin_seal_file, detects damage only.)  A manifest in /etc overrides
 * that of the same name in /usr/share; an empty one hides it.  In directories,
 * plugins are the files named core_*.so; a plugin with another name is refused.
 * The working directory is never searched.
 *
 * Scanning reads a few bytes of each file and runs none of its code.  A file or
 * directory that is world-writable, or that belongs to neither root nor the
 * user, is refused.  A faulty plugin never makes the process fail: libcore
 * records the reason (core_plugin_describe).
 *
 * Every function here is thread-safe.  Texts live as long as the process,
 * unless stated otherwise. */

#ifndef LIBCORE_PLUGINS_H
#define LIBCORE_PLUGINS_H

#include "backend.h"
#include "kernel.h"
#include "settings.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- plugins -- */

/* A plugin that was found.  It is in the list of plugins for the life of the
 * process, whatever its state. */
typedef struct core_plugin core_plugin;

/* The state of a plugin. */
enum {
    CORE_PLUGIN_FOUND = 0, /* acceptable, not opened yet */
    CORE_PLUGIN_LOADED = 1,
    CORE_PLUGIN_REFUSED = 2, /* rejected before any of its code ran */
    CORE_PLUGIN_FAILED = 3,  /* opening or shutting it down failed */
    CORE_PLUGIN_UNLOADED = 4
};

/* How a plugin was found. */
enum {
    CORE_PLUGIN_SOURCE_PROGRAM = 0, /* core_plugin_load */
    CORE_PLUGIN_SOURCE_ENVIRONMENT = 1,
    CORE_PLUGIN_SOURCE_INSTALLATION = 2,
    CORE_PLUGIN_SOURCE_MANIFEST = 3
};

/* Whether a plugin's file is sealed. */
enum {
    CORE_PLUGIN_WITHOUT_SEAL = 0, /* its note has no space for a seal */
    CORE_PLUGIN_UNSEALED = 1,
    CORE_PLUGIN_SEALED = 2 /* verified whenever the plugin is opened */
};

/* A plugin's state and the content of its note.  If the note could not be read,
 * its texts are "", its numbers 0, and name is taken from the file name. */
typedef struct core_plugin_information {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t state;       /* CORE_PLUGIN_FOUND, … */
    uint32_t source;      /* CORE_PLUGIN_SOURCE_… */
    core_status status;   /* CORE_OK, or the error that reason describes */
    uint32_t abi_major;
    uint32_t abi_minor_min;
    uint32_t abi_minor_max;
    uint32_t abi_minor; /* negotiated; 0 before the plugin is loaded */
    const char *name;
    const char *path;
    const char *vendor;
    const char *version;
    const char *license;
    const char *device_types; /* comma-separated */
    const char *minimum_driver;
    const char *reason; /* why it was refused or failed; otherwise "" */
    uint32_t seal;      /* CORE_PLUGIN_SEALED, … */
    uint32_t reserved;
} core_plugin_information;
CORE_STATIC_ASSERT(sizeof(core_plugin_information) == 104,
                   "core_plugin_information");

/* Searches for plugins again.  OUT_OF_MEMORY is the only error. */
core_status core_plugins_scan(void);

/* Searches for plugins again and opens all of them.  A plugin that cannot be
 * opened is not an error of this call: see core_plugin_describe. */
core_status core_plugins_load_all(void);

/* Opens the plugin in a file, which then has precedence over others with its
 * name.  While code of the plugin runs, signals of this thread are blocked, but
 * for those of faults: handlers of the program run after it or on other
 * threads, and a thread of libcore takes signals without a handler, so that an
 * init that hangs can be ended.  The caller owns one reference to *out_plugin;
 * out_plugin may be NULL.  Returns the error for which the plugin was refused
 * or failed. */
core_status core_plugin_load(const char *path, core_plugin **out_plugin);

/* Returns the number of plugins found so far, including refused ones.  It never
 * decreases. */
uint32_t core_plugin_count(void);

/* Returns a plugin, borrowed.  index counts from 0 in the order in which the
 * plugins were found.  NULL after the last one. */
core_plugin *core_plugin_at(uint32_t index);

/* Describes a plugin.  The caller sets out_information->struct_size. */
core_status core_plugin_describe(core_plugin *plugin,
                                 core_plugin_information *out_information);

/* Returns how many violations of the ABI's contract, by the plugin or by
 * libcore, the interposer `validate` has detected (LIBCORE_INTERPOSERS).
 * *out_first describes the first one, or is ""; out_first may be NULL.  0
 * without that interposer. */
uint64_t core_plugin_violations(core_plugin *plugin, const char **out_first);

/* Adds a reference and returns plugin.  Accepts NULL. */
core_plugin *core_plugin_retain(core_plugin *plugin);

/* Drops a reference to a plugin.  Accepts NULL.  It does not unload the
 * plugin. */
void core_plugin_release(core_plugin *plugin);

/* Shuts a plugin down and closes it.  deadline_ns: the time in nanoseconds that
 * its shutdown may take.  UNSUPPORTED if the plugin does not declare unloading
 * safe (CORE_PLUGIN_UNLOAD_SAFE).  BUSY, without effect, while an object of the
 * plugin lives or another plugin uses its kernels.  INVALID_ARGUMENT if it is
 * not loaded.  If its shutdown fails, the plugin stays mapped, in the state
 * CORE_PLUGIN_FAILED. */
core_status core_plugin_unload(core_plugin *plugin, uint64_t deadline_ns);

/* Seals a plugin's file: writes a checksum of everything in it that is loaded
 * into its note (core_plugin_seal in plugin.h).  From then on libcore refuses
 * the file if it is damaged, before any of its code runs.  Sealing is the last
 * step of building a plugin: changing the file afterwards breaks the seal,
 * except by a `strip` that removes only what is not loaded.  A seal detects
 * damage, but not a replaced file; use the hash of a manifest for that.
 *
 * The file is replaced atomically by a copy with its mode.  A file with a valid
 * seal is not changed; an invalid seal is replaced.  No code of the plugin
 * runs.  UNSUPPORTED: the plugin was built with headers that left no space for
 * a seal.  IO: the file cannot be read or its directory cannot be written.
 * Otherwise the error for which the file would be refused. */
core_status core_plugin_seal_file(const char *path);

/* Checks what is in a plugin's file, its note, seal, segments and symbols, as
 * opening it does, without running any of its code or changing the list of
 * plugins.  Not checked: a manifest's SHA-256, and what the policy says about
 * names, owners and modes of files.  CORRUPT: it is damaged, or does not match
 * its seal.  Otherwise the error for which the file would be refused; IO if it
 * cannot be read.  Any thread. */
core_status core_plugin_check_file(const char *path);

/* ----------------------------------------------------------- inventory -- */

/* A registered backend.  device.h lists its devices, and core_kernel_at
 * (dispatch.h) its kernels. */
typedef struct core_backend_information {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t device_count;
    uint32_t kernel_count;   /* registered kernels */
    uint32_t operator_count; /* distinct operators among them */
    const char *device_type; /* valid while the plugin is loaded */
    core_plugin *plugin;     /* borrowed; NULL: built in */
    const char *reason;      /* why there are no devices, or "" */
    uint32_t synchronous;    /* 1: it has no streams */
    uint32_t reserved;
    /* Names of kernels that no call uses, separated by ", "; or "".  This
     * libcore has no such functional operator (a misspelt name, one of a later
     * libcore, or that of an in-place variant), or uses for it the kernels of
     * another one, which have other functions. */
    const char *unmatched_kernels;
} core_backend_information;
CORE_STATIC_ASSERT(sizeof(core_backend_information) == 56,
                   "core_backend_information");

/* Describes a backend of a loaded plugin.  index counts from 0.  The caller
 * sets out_information->struct_size.  Counts the devices, but opens none.
 * NOT_FOUND after the last backend. */
core_status core_backend_describe(uint32_t index,
                                  core_backend_information *out_information);

#ifdef __cplusplus
}
#endif
#endif
