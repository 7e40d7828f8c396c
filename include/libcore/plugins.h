/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugins.h: which plugins there are, what became of each, and what they
 * brought.  A program needs none of this to compute: asking for a device opens
 * the plugin that serves it.
 *
 * A plugin is found, in this order, by the path that core_plugin_load names;
 * in LIBCORE_PLUGIN_PATH; in the installed folder plugins-<ABI major>; and
 * through manifests, for plugins that vendors install elsewhere: a file
 * NAME.plugin in /usr/share/libcore/plugins.d or /etc/libcore/plugins.d with
 * the lines
 *
 *     path = /opt/vendor/lib/core_example.so
 *     sha256 = 64 digits, as sha256sum prints them
 *
 * of which the second may be missing, and comments after #.  With a hash, a file
 * that has another one is refused, whether it was damaged or replaced.  A seal
 * in the file (core_plugin_seal_file) finds damage.  A file in /etc replaces the
 * one of the same name in /usr/share; an empty one hides it.  In folders, files
 * named core_*.so count.
 * The working directory is never looked at.
 *
 * Scanning reads a few bytes of each file and runs no code of it.  A file or
 * folder that everybody may write, or that belongs to neither root nor the
 * user, is refused.  Whatever is wrong with a plugin is a recorded reason,
 * never a failed process.
 *
 * Every function may be called by any thread.  Texts live as long as the
 * process unless said. */

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

typedef struct core_plugin core_plugin;

enum {
    CORE_PLUGIN_FOUND = 0, /* may be opened, and was not asked for yet */
    CORE_PLUGIN_LOADED = 1,
    CORE_PLUGIN_REFUSED = 2, /* none of its code was run */
    CORE_PLUGIN_FAILED = 3,  /* it was opened, and undone */
    CORE_PLUGIN_UNLOADED = 4
};

enum {
    CORE_PLUGIN_FROM_PROGRAM = 0, /* core_plugin_load */
    CORE_PLUGIN_FROM_ENVIRONMENT = 1,
    CORE_PLUGIN_FROM_INSTALLATION = 2,
    CORE_PLUGIN_FROM_MANIFEST = 3
};

enum {
    CORE_PLUGIN_WITHOUT_SEAL = 0, /* its note has no room for one */
    CORE_PLUGIN_UNSEALED = 1,
    CORE_PLUGIN_SEALED = 2 /* checked whenever the plugin is opened */
};

/* Where the note could not be read, its texts are "" and its numbers 0, and
 * name is taken from the file's. */
typedef struct core_plugin_information {
    uint32_t struct_size; /* in: the caller's; out: what was filled */
    uint32_t state;       /* CORE_PLUGIN_… */
    uint32_t from;        /* CORE_PLUGIN_FROM_… */
    core_status status;   /* CORE_OK, or the code of reason */
    uint32_t abi_major;
    uint32_t abi_minor_min;
    uint32_t abi_minor_max;
    uint32_t abi_minor; /* negotiated; 0 until loaded */
    const char *name;
    const char *path;
    const char *vendor;
    const char *version;
    const char *license;
    const char *device_types; /* with commas between them */
    const char *minimum_driver;
    const char *reason; /* "" when there is nothing to explain */
    uint32_t seal;      /* CORE_PLUGIN_…SEAL… */
    uint32_t reserved;
} core_plugin_information;
CORE_STATIC_ASSERT(sizeof(core_plugin_information) == 104,
                   "core_plugin_information");

/* Looks at every place again.  Fails only for want of memory. */
core_status core_plugins_scan(void);
/* Scans, and opens every plugin that was found.  What cannot be opened is not
 * an error of this call: see core_plugin_describe. */
core_status core_plugins_load_all(void);

/* Opens the plugin of this file, which then has precedence over others of its
 * name.  One reference for the caller; out_plugin may be NULL. */
core_status core_plugin_load(const char *path, core_plugin **out_plugin);

/* All that were found so far, refused ones included, in the order in which
 * they were.  The list only grows; core_plugin_at borrows, NULL behind the
 * last. */
uint32_t core_plugin_count(void);
core_plugin *core_plugin_at(uint32_t index);
core_status core_plugin_describe(core_plugin *plugin,
                                 core_plugin_information *out_information);

/* Breaches of the ABI's contract that the layer `validate` has seen
 * (LIBCORE_LAYERS), on either side, and the first of them in words; 0 and ""
 * where there was none, or nobody looked.  out_first may be NULL. */
uint64_t core_plugin_violations(core_plugin *plugin, const char **out_first);

void core_plugin_retain(core_plugin *plugin);
void core_plugin_release(core_plugin *plugin);

/* Shuts the plugin down and closes it.  UNSUPPORTED if it does not declare
 * that to be safe; BUSY, and nothing has changed, while an object of it lives
 * or another plugin uses its kernels. */
core_status core_plugin_unload(core_plugin *plugin, uint64_t deadline_ns);

/* Seals the plugin's file: writes into its note (core_plugin_seal of plugin.h) a
 * sum of all that is loaded of it.  From then on libcore refuses the file if
 * that is damaged, before any of its code runs.  The last step of building a
 * plugin: what changes the file afterwards breaks the seal, but for `strip`
 * where it takes away nothing that is loaded.  Of use against damage alone; a
 * manifest's hash is what tells a file that was replaced.
 *
 * A copy takes the file's place at once, with its mode.  A file that is sealed
 * as it is stays untouched; another seal is written anew, whatever has become
 * of the file since.  No code of the plugin runs.  UNSUPPORTED: built with
 * headers that left no room; IO: its folder cannot be written, or the like; else
 * what the file would be refused for. */
core_status core_plugin_seal_file(const char *path);

/* ----------------------------------------------------------- inventory -- */

/* A registered backend; device.h has its devices, core_kernel_at
 * (dispatch.h) its kernels. */
typedef struct core_backend_information {
    uint32_t struct_size;
    uint32_t device_count;
    uint32_t kernel_count;   /* registrations */
    uint32_t operator_count; /* distinct operators among them */
    const char *device_type; /* valid while the plugin is loaded */
    core_plugin *plugin;     /* borrowed; NULL: built in */
    const char *reason;      /* why there are no devices, or "" */
    uint32_t synchronous;    /* 1: no streams */
    uint32_t reserved;
    /* Kernels that no call finds, as libcore asks for none of their names
     * (misspelt, of a later libcore, or an in-place variant's): the names,
     * separated by ", ", or "". */
    const char *unmatched_kernels;
} core_backend_information;
CORE_STATIC_ASSERT(sizeof(core_backend_information) == 56,
                   "core_backend_information");

/* Backends of the plugins that are loaded; NOT_FOUND behind the last.  Counts
 * devices, but opens none. */
core_status core_backend_describe(uint32_t index,
                                  core_backend_information *out_information);

#ifdef __cplusplus
}
#endif
#endif
