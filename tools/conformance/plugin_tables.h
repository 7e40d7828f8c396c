/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugin_tables.h: the plugin without libcore between: its tables, as its init
 * registered them with a host table of the suite's own.  A process that has
 * opened a plugin so does not load it with libcore too. */

#ifndef CONFORMANCE_RAW_H
#define CONFORMANCE_RAW_H

#include "suite.h"

enum { RAW_ERRORS_TEXT = 400 };

/* Operators of the plugin's own, as init registered them. */
enum { RAW_OPERATORS = 64 };
typedef struct raw_operators {
    uint32_t count;
    char name[RAW_OPERATORS][128]; /* "vendor::name.overload" */
    bool gradient[RAW_OPERATORS];
} raw_operators;

struct raw {
    void *library;
    core_host host;
    core_plugin_answer answer;
    void *plugin;
    core_backend backend; /* full: slots that the plugin lacks are NULL */
    core_memory_table memory;
    core_stream_table streams;
    core_event_table events;
    bool synchronous; /* no streams */
    uint32_t backends;
    uint32_t kernels;
    raw_operators operators;
    void *device;
    void *stream; /* NULL on a synchronous device */
    core_device_properties properties;
    core_device_information information;
};

/* What the plugin told the host's error function last, in this thread. */
typedef struct raw_error {
    uint32_t count;
    core_status code;
    uint32_t severity;
    char text[RAW_ERRORS_TEXT];
} raw_error;
raw_error *raw_last_error(void);

/* Opens the plugin and device 0, once.  NULL: the outcome says why. */
raw *raw_open(suite *self, outcome *out);
/* The file, the entry, and no more: for negotiation. */
core_plugin_entry_function raw_entry(suite *self, outcome *out);

/* An optional interface, NULL if it is not there. */
const void *raw_interface(const raw *plugin, const char *name);

/* The host's `setting`. */
core_string raw_setting(core_string name);

/* Like expect_ok; the message is the plugin's. */
bool raw_ok(outcome *out, core_status status, const char *what);
/* An error of this code, with a message. */
bool raw_fails(outcome *out, core_status status, core_status wanted,
               const char *what);

/* Memory of size bytes with everything that the core does: rounded to the
 * granularity.  raw_free takes a zeroed one. */
typedef struct raw_block {
    core_memory memory;
    uint64_t size;
} raw_block;
bool raw_alloc(raw *plugin, outcome *out, uint64_t size, raw_block *block);
void raw_free(raw *plugin, raw_block *block);
core_memory raw_at(const raw_block *block, uint64_t offset);
/* Copies that are done when the call returns. */
bool raw_write(raw *plugin, outcome *out, core_memory to, const void *from,
               uint64_t size);
bool raw_read(raw *plugin, outcome *out, void *to, core_memory from,
              uint64_t size);
/* Whether that many streams can be there beside raw->stream; if not, the
 * outcome is NOT_SUPPORTED. */
bool raw_streams(raw *plugin, uint32_t more, outcome *out);
/* The same for so many streams; where the device has just those, the one above
 * is destroyed for a while, until raw_take_back. */
bool raw_make_room(raw *plugin, uint32_t streams, outcome *out);
bool raw_take_back(raw *plugin, outcome *out);
/* Waits for raw->stream. */
bool raw_wait(raw *plugin, outcome *out);

#endif
