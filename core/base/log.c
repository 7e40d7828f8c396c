/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/log.h"

#include "base/fork.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LOG_TEXT = 1024, NO_LEVEL = -1 };

typedef struct log_sink {
    core_log_function function; /* NULL: the standard error */
    void *context;
} log_sink;

/* Checks its owner, so that a sink that logs from within its own call is not
 * waited for by itself. */
static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
/* A new sink is written to the unused entry, so that the one in use is
 * complete in a child forked meanwhile. */
static log_sink sinks[2];
static _Atomic uint32_t current_sink;
/* The least severe level that is written anywhere, and the generation of the
 * settings from which it was read. */
static _Atomic int least_level = NO_LEVEL;
static _Atomic uint32_t level_generation;
static _Atomic bool level_fixed; /* a sink was set */

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static void write_line(uint32_t level, const char *component, const char *text)
{
    const log_sink *sink;

    if (level > CORE_LOG_DEBUG)
        level = CORE_LOG_DEBUG;
    if (pthread_mutex_lock(&lock) != 0)
        return;
    sink = &sinks[atomic_load(&current_sink)];
    if (sink->function)
        sink->function(sink->context, level, component, text);
    else
        fprintf(stderr, "libcore %s: %s: %s\n", level_names[level], component,
                text);
    pthread_mutex_unlock(&lock);
}

/* The thread that was writing does not exist in the child.  A sink that forks
 * still unlocks the mutex, which it then does not own. */
void core__log_after_fork(void)
{
    static const pthread_mutex_t unlocked =
        PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

    lock = unlocked;
}

/* Reads LIBCORE_LOG.  If its value is not accepted, warnings are enabled; the
 * first one reports the value. */
static void read_level(uint32_t generation)
{
    const char *text = NULL;
    uint32_t choice = 0;
    int last = NO_LEVEL;
    core__error_record earlier;

    core__error_save(&earlier);
    if (core__setting_choice(CORE__SETTING_LOG, &choice) != CORE_OK) {
        write_line(CORE_LOG_WARNING, "log", core_error_message());
        last = CORE_LOG_WARNING;
    } else if (core__setting_text(CORE__SETTING_LOG, &text) == CORE_OK &&
               text) {
        last = (int)choice;
    }
    core__error_restore(&earlier);
    atomic_store(&least_level, last);
    atomic_store(&level_generation, generation);
}

bool core__log_is_enabled(uint32_t level)
{
    uint32_t generation = core__settings_generation();

    if (!atomic_load(&level_fixed) &&
        atomic_load(&level_generation) != generation)
        read_level(generation);
    return (int)level <= atomic_load(&least_level);
}

void core__log(uint32_t level, const char *component, const char *format, ...)
{
    char text[LOG_TEXT];
    va_list arguments;

    if (!core__log_is_enabled(level))
        return;
    va_start(arguments, format);
    core__format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' '; /* one line, without control characters for a terminal */
    write_line(level, component, text);
}

void core_log_set_sink(core_log_function function, void *context,
                       uint32_t level)
{
    uint32_t other;

    if (pthread_mutex_lock(&lock) != 0)
        return;
    other = 1 - atomic_load(&current_sink);
    sinks[other] = (log_sink){function, context};
    atomic_store(&current_sink, other);
    atomic_store(&level_fixed, function != NULL);
    if (level > CORE_LOG_DEBUG)
        level = CORE_LOG_DEBUG; /* everything */
    atomic_store(&least_level, function ? (int)level : NO_LEVEL);
    atomic_store(&level_generation, 0);
    pthread_mutex_unlock(&lock);
}

void core__log_always(uint32_t level, const char *component, const char *format,
                      ...)
{
    char text[LOG_TEXT];
    va_list arguments;

    va_start(arguments, format);
    core__format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    write_line(level, component, text);
}
