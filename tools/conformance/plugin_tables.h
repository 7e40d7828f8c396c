/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugin_tables.h: direct access to the plugin's tables, without libcore, as
 * its init registered them with the suite's own host table.  A process that has
 * opened a plugin this way does not also load it through libcore. */

#ifndef CONFORMANCE_PLUGIN_TABLES_H
#define CONFORMANCE_PLUGIN_TABLES_H

#include "side_effects.h"
#include "suite.h"

enum { PLUGIN_ERROR_TEXT = 400 };

/* The plugin's own operators, as init registered them. */
enum { PLUGIN_OPERATORS = 64 };
typedef struct plugin_operators {
    uint32_t count;
    char name[PLUGIN_OPERATORS][128]; /* "vendor::name.overload" */
    bool gradient[PLUGIN_OPERATORS];
} plugin_operators;

struct plugin_tables {
    void *library;
    core_host host;
    core_plugin_answer answer;
    void *plugin;
    core_backend backend; /* complete: slots that the plugin lacks are NULL */
    core_memory_table memory;
    core_stream_table streams;
    core_event_table events;
    bool synchronous; /* no streams */
    uint32_t backends;
    uint32_t engines;                  /* of core.collectives */
    core_collectives_interface engine; /* the last one */
    uint32_t kernels;
    plugin_operators operators;
    side_effects effects;  /* of opening it */
    double seconds[SLOTS]; /* that the calls took until it was open */
    uint32_t index;        /* of the device, 0 unless --device says another */
    uint32_t second;       /* of another one, which tests of two devices open */
    void *device;
    void *stream; /* NULL on a synchronous device */
    core_device_properties properties;
    core_device_information information;
};

/* The last error that the plugin reported to the host in this thread. */
typedef struct plugin_error {
    uint32_t count;
    core_status code;
    uint32_t severity;
    char text[PLUGIN_ERROR_TEXT];
} plugin_error;
plugin_error *plugin_last_error(void);

/* Opens the plugin and the device, once.  On failure returns NULL and sets the
 * outcome. */
plugin_tables *plugin_tables_open(suite *self, outcome *out);
/* Opens the file and finds the entry, for tests of the negotiation. */
core_plugin_entry_function plugin_tables_entry(suite *self, outcome *out);

/* Fills `host` as a host of an older minor has it. */
void plugin_tables_old_host(plugin_tables *plugin, uint32_t minor,
                            uint32_t size);
/* Calls init. */
core_status plugin_tables_init(plugin_tables *plugin, slot as);

/* How many changes of devices the plugin has announced (devices_changed). */
uint64_t plugin_tables_changes(void);

/* Returns an optional interface, or NULL. */
const void *plugin_interface(const plugin_tables *plugin, const char *name);

/* The host's `setting`. */
core_string plugin_setting(core_string name);

/* Like expect_ok, with the plugin's message. */
bool expect_plugin_ok(outcome *out, core_status status, const char *what);
/* Expects an error with this status and a message. */
bool expect_plugin_error(outcome *out, core_status status, core_status wanted,
                         const char *what);

/* Memory of the given size, allocated as the core does it: rounded up to the
 * granularity. plugin_free accepts a zeroed block. */
typedef struct plugin_block {
    core_memory memory;
    uint64_t size;
} plugin_block;
bool plugin_alloc(plugin_tables *plugin, outcome *out, uint64_t size,
                  plugin_block *block);
void plugin_free(plugin_tables *plugin, plugin_block *block);
/* Returns a size whose allocation shows in the device's free memory, of which
 * there are so many bytes. */
uint64_t plugin_visible_size(const plugin_tables *plugin, uint64_t left);
core_memory plugin_block_at(const plugin_block *block, uint64_t offset);
/* Copies that are complete when the call returns. */
bool plugin_write(plugin_tables *plugin, outcome *out, core_memory to,
                  const void *from, uint64_t size);
bool plugin_read(plugin_tables *plugin, outcome *out, void *to,
                 core_memory from, uint64_t size);
/* Tests whether that many streams can exist besides `stream`; if not, the
 * outcome is NOT_SUPPORTED. */
bool plugin_has_streams(plugin_tables *plugin, uint32_t more, outcome *out);
/* The same for a total of `streams`.  If the device has no more than that,
 * `stream` is destroyed until plugin_restore_stream creates it again. */
bool plugin_reserve_streams(plugin_tables *plugin, uint32_t streams,
                            outcome *out);
bool plugin_restore_stream(plugin_tables *plugin, outcome *out);
/* Waits for `stream`. */
bool plugin_wait(plugin_tables *plugin, outcome *out);

#endif
