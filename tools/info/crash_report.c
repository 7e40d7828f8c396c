/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE /* sigaction */

#include "info/crash_report.h"

#include <libcore/plugins.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum { FATAL = sizeof fatal / sizeof *fatal };

static struct sigaction before[FATAL];
static pthread_t opener;

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* Plugins are opened in the order of their list.  The thread that opens them
 * has the lock of the list already. */
static const char *plugin_being_opened(void)
{
    static core_plugin_information about;
    core_plugin *one;

    for (uint32_t i = 0; (one = core_plugin_at(i)); i++) {
        about.struct_size = sizeof about;
        if (core_plugin_describe(one, &about) == CORE_OK &&
            about.state == CORE_PLUGIN_FOUND)
            return about.path;
    }
    return NULL;
}

/* The action is the default again, so that returning repeats the fault, and
 * raising the signal ends the process. */
static void on_fatal(int number)
{
    const char *path = NULL;

    if (pthread_equal(pthread_self(), opener))
        path = plugin_being_opened();
    say("core-info: crashed (");
    say(strsignal(number));
    say(") while it opened ");
    say(path ? path : "a plugin");
    say("; with LIBCORE_QUARANTINE=1 such a plugin is refused and listed\n");
    raise(number);
}

void crash_report_begin(void)
{
    struct sigaction action = {.sa_handler = on_fatal,
                               .sa_flags = SA_RESETHAND};

    opener = pthread_self();
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < FATAL; i++)
        sigaction(fatal[i], &action, &before[i]);
}

void crash_report_end(void)
{
    for (size_t i = 0; i < FATAL; i++)
        sigaction(fatal[i], &before[i], NULL);
}
