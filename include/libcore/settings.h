/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* settings.h: the settings of libcore, one table, and its log.
 *
 * A setting is a variable of the environment whose name begins with LIBCORE_,
 * or is set by the program, which has precedence.  The environment is read
 * once, when the setting is first asked for, and not at all in a privileged
 * process (set-user-ID and the like).  Most settings take effect when what
 * they govern first starts: set them before.
 *
 * Every function here may be called by any thread. */

#ifndef LIBCORE_SETTINGS_H
#define LIBCORE_SETTINGS_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CORE_SETTING_TEXT = 0,
    CORE_SETTING_INTEGER = 1,
    CORE_SETTING_BOOLEAN = 2, /* 0, 1, off, on, no, yes, false, true */
    CORE_SETTING_CHOICE = 3,  /* one of the words of `allowed` */
    CORE_SETTING_LIST = 4,    /* words with commas between them */
    CORE_SETTING_PATHS = 5    /* absolute paths with colons between them */
};

enum {
    CORE_SETTING_FROM_DEFAULT = 0,
    CORE_SETTING_FROM_ENVIRONMENT = 1,
    CORE_SETTING_FROM_PROGRAM = 2
};

/* Texts live as long as the process. */
typedef struct core_setting_information {
    uint32_t struct_size;     /* in: the caller's; out: what was filled */
    uint32_t type;            /* CORE_SETTING_… */
    uint32_t from;            /* CORE_SETTING_FROM_… */
    core_status status;       /* CORE_OK, or why the value is not accepted */
    const char *name;         /* "LIBCORE_DEVICE" */
    const char *value;        /* as it was given; NULL when it is not set */
    const char *default_text; /* what holds when it is not set, in words */
    const char *allowed;      /* what a value may be, in words */
    const char *help;         /* one sentence */
    const char *used_by;      /* the part of libcore that reads it */
} core_setting_information;
CORE_STATIC_ASSERT(sizeof(core_setting_information) == 64,
                   "core_setting_information");

uint32_t core_setting_count(void);
/* The index-th row of the table; NOT_FOUND behind the last.  An environment
 * value that is not accepted is told in status, and its message is the
 * thread's error record. */
core_status core_setting_describe(uint32_t index,
                                  core_setting_information *out_information);

/* The text of a setting, NULL in *out_value when it has none.  Names outside
 * the table that begin with LIBCORE_ belong to plugins and are read as they
 * stand.  Lives as long as the process. */
core_status core_setting_get(const char *name, const char **out_value);

/* Sets it for this process; NULL returns it to the environment or default.
 * A value that is not accepted is refused, and the message says what is.
 * Changing LIBCORE_TRACE_DISPATCH after the first call of an operator, which
 * reads it, is UNSUPPORTED.  A plugin's own setting must have the form
 * LIBCORE_<WORD>_<WORDS>. */
core_status core_setting_set(const char *name, const char *value);

/* text has no newline and is valid during the call.  The sink may be called
 * by any thread, one at a time, and must not call libcore. */
typedef void (*core_log_function)(void *context, uint32_t level,
                                  const char *component, const char *text);

/* Sends messages up to `level` (CORE_LOG_…) to sink.  NULL: to the standard
 * error, and only if LIBCORE_LOG is set; that is how a process starts. */
void core_log_set_sink(core_log_function sink, void *context, uint32_t level);

#ifdef __cplusplus
}
#endif
#endif
