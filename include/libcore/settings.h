/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* settings.h: the settings of libcore, and its log.
 *
 * A setting is an environment variable whose name starts with LIBCORE_.  The
 * program can also set it with core_setting_set, which has precedence.  libcore
 * reads the environment variable once, at the first use of the setting, and
 * ignores the environment in a privileged process (set-user-ID and the like).
 * Most settings take effect when the part of libcore that uses them starts: set
 * them before.
 *
 * Every function here is thread-safe. */

#ifndef LIBCORE_SETTINGS_H
#define LIBCORE_SETTINGS_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The type of a setting's value. */
enum {
    CORE_SETTING_TEXT = 0,
    CORE_SETTING_INTEGER = 1,
    CORE_SETTING_BOOLEAN = 2, /* 0, 1, off, on, no, yes, false, true */
    CORE_SETTING_CHOICE = 3,  /* one of the names in `allowed` */
    CORE_SETTING_LIST = 4,    /* names, comma-separated */
    CORE_SETTING_PATHS = 5    /* absolute paths, colon-separated */
};

/* Where the value of a setting comes from. */
enum {
    CORE_SETTING_SOURCE_DEFAULT = 0,
    CORE_SETTING_SOURCE_ENVIRONMENT = 1,
    CORE_SETTING_SOURCE_PROGRAM = 2
};

/* A setting and its current value.  Texts live as long as the process. */
typedef struct core_setting_information {
    uint32_t struct_size;     /* in: sizeof of the caller's; out: filled */
    uint32_t type;            /* CORE_SETTING_… */
    uint32_t source;          /* CORE_SETTING_SOURCE_… */
    core_status status;       /* CORE_OK, or the error of an invalid value */
    const char *name;         /* "LIBCORE_DEVICE" */
    const char *value;        /* as it was set; NULL if it is not set */
    const char *default_text; /* description of the default */
    const char *allowed;      /* description of the valid values */
    const char *help;         /* one sentence */
    const char *used_by;      /* the part of libcore that uses it */
} core_setting_information;
CORE_STATIC_ASSERT(sizeof(core_setting_information) == 64,
                   "core_setting_information");

/* Returns the number of libcore's own settings. */
uint32_t core_setting_count(void);

/* Describes a setting and its value.  index counts from 0.  The caller sets
 * out_information->struct_size.  If the value is invalid, the call succeeds,
 * out_information->status is the error, and the calling thread's error record
 * has the message.  NOT_FOUND after the last setting. */
core_status core_setting_describe(uint32_t index,
                                  core_setting_information *out_information);

/* Gets the value of a setting; *out_value is NULL if it is not set.  The text
 * lives as long as the process.  Other names that start with LIBCORE_ are
 * settings of plugins; libcore does not check their values. */
core_status core_setting_get(const char *name, const char **out_value);

/* Sets a setting for this process.  The value is copied; NULL restores that of
 * the environment, or the default.  A plugin's setting must have the form
 * LIBCORE_<WORD>_<WORDS>, where the first word is not COMPILE: those are
 * libcore's own.  INVALID_ARGUMENT for an invalid value; the message
 * describes the valid ones.  NOT_FOUND for an unknown setting.  UNSUPPORTED for
 * LIBCORE_TRACE_DISPATCH after the first call of an operator, which reads
 * it. */
core_status core_setting_set(const char *name, const char *value);

/* Receives a log message.  text contains no newline and is valid during the
 * call.  Any thread may call the sink; calls are serialised.  The sink must not
 * call libcore. */
typedef void (*core_log_function)(void *context, uint32_t level,
                                  const char *component, const char *text);

/* Sends log messages up to `level` (CORE_LOG_…) to sink.  context: passed to
 * sink; borrowed until another sink is set, after which no thread calls this
 * one.  sink NULL, the initial state: messages go to the standard error if the
 * setting LIBCORE_LOG is set, and nowhere otherwise, except for the first call
 * of an expression in a thread without a scope (scope.h). */
void core_log_set_sink(core_log_function sink, void *context, uint32_t level);

#ifdef __cplusplus
}
#endif
#endif
