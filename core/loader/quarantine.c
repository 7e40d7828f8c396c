/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Opens a plugin in a helper process (tools/quarantine.c), which writes one
 * line to its standard output: "OK", or a status and a reason.  A helper that
 * ends without it was ended by the plugin. */

#include "loader/quarantine.h"

#include "base/memory.h"
#include "base/settings.h"
#include "loader/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef LIBCORE_QUARANTINE_HELPER
#error "LIBCORE_QUARANTINE_HELPER, the installed helper, must be defined"
#endif

extern char **environ;

uint32_t core__quarantine_ms = 10000;
const char *core__quarantine_helper = LIBCORE_QUARANTINE_HELPER;

enum { LINE_MAX_SIZE = 1024, STEP_MS = 10 };

typedef struct helper_process {
    pid_t process;
    int output; /* read end of its output */
    char line[LINE_MAX_SIZE];
    size_t size;
    bool closed; /* its output has ended */
    int status;  /* from waitpid */
    bool ended;
} helper_process;

/* *out_path is NULL: no quarantine, or not for sealed plugins. */
static core_status parse_setting(const char *text, bool sealed,
                                 const char **out_path)
{
    *out_path = NULL;
    if (!text || strcmp(text, "0") == 0 || strcmp(text, "off") == 0)
        return CORE_OK;
    if (strcmp(text, "unsealed") == 0) {
        *out_path = sealed ? NULL : core__quarantine_helper;
        return CORE_OK;
    }
    *out_path = text[0] == '/' ? text : core__quarantine_helper;
    if (text[0] != '/' && strcmp(text, "1") != 0 && strcmp(text, "on") != 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "LIBCORE_QUARANTINE is \"%.60s\"; accepted: 0, 1, "
                           "unsealed, or the absolute path of the helper",
                           text);
    return CORE_OK;
}

core_status core__quarantine_check(const char *text)
{
    const char *path;

    return parse_setting(text, false, &path);
}

static core_status find_helper(bool sealed, const char **out_path)
{
    const char *text;

    *out_path = NULL;
    CORE_TRY(core__setting_text(CORE__SETTING_QUARANTINE, &text));
    return parse_setting(text, sealed, out_path);
}

/* The helper gets the settings of the program, except the one that would make
 * it start a helper, too. */
static char **make_environment(void)
{
    size_t count = 0, rows = core_setting_count();
    char **list;

    while (environ[count])
        count++;
    list = core__alloc_zero((count + rows + 2) * sizeof *list);
    if (!list)
        return NULL;
    for (size_t i = 0, n = 0; i < rows + count; i++) {
        core_setting_information s = {.struct_size = sizeof s};
        char *text = NULL;

        if (i >= rows) {
            text = core__strdup(environ[i - rows]);
        } else if (core_setting_describe((uint32_t)i, &s) == CORE_OK &&
                   s.source == CORE_SETTING_SOURCE_PROGRAM && s.value &&
                   strcmp(s.name, "LIBCORE_QUARANTINE") != 0) {
            text = core__alloc(strlen(s.name) + strlen(s.value) + 2);
            if (text)
                sprintf(text, "%s=%s", s.name, s.value);
        } else {
            continue;
        }
        if (!text)
            break; /* it gets fewer, and the plugin may be refused because of
                    * that */
        list[n++] = text;
    }
    return list;
}

static void free_environment(char **list)
{
    for (char **at = list; at && *at; at++)
        core__free(*at);
    core__free(list);
}

static int spawn(const char *program, const char *path, int output,
                 pid_t *out_process)
{
    char *const words[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)path,
                           NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char **list = make_environment();
    sigset_t none, all;
    int failed;

    if (!list)
        return ENOMEM;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    failed =
        posix_spawn(out_process, program, &actions, &attributes, words, list);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free_environment(list);
    return failed;
}

static void read_output(helper_process *g)
{
    ssize_t got = 1;

    while (got > 0 && g->size < LINE_MAX_SIZE - 1) {
        got = read(g->output, g->line + g->size, LINE_MAX_SIZE - 1 - g->size);
        if (got > 0)
            g->size += (size_t)got;
    }
    g->closed = got >= 0 || (errno != EAGAIN && errno != EINTR);
    g->line[g->size] = '\0';
}

/* Waits until the process has ended or its time is over.  A process that
 * something else in the program waited for (ECHILD) has ended too. */
static void wait_for_helper(helper_process *g)
{
    struct timespec begin, now;
    int64_t passed = 0;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (!g->ended && passed < core__quarantine_ms) {
        struct pollfd poller = {.fd = g->output, .events = POLLIN};

        /* A closed pipe, or one with too much output, is always ready. */
        if (g->closed)
            poller.fd = -1;
        if (poll(&poller, 1, STEP_MS) > 0)
            read_output(g);
        if (waitpid(g->process, &g->status, WNOHANG) != 0)
            g->ended = true;
        clock_gettime(CLOCK_MONOTONIC, &now);
        passed = (now.tv_sec - begin.tv_sec) * 1000 +
                 (now.tv_nsec - begin.tv_nsec) / 1000000;
    }
    if (g->ended) {
        read_output(g);
        return;
    }
    kill(g->process, SIGKILL);
    while (waitpid(g->process, &g->status, 0) < 0 && errno == EINTR)
        ;
}

static core_status check_output(const helper_process *g)
{
    char *end;
    long code;

    if (!g->ended)
        return core__error(CORE_ERROR_REFUSED,
                           "did not return from its init within %u ms when it "
                           "was opened in quarantine",
                           core__quarantine_ms);
    if (strcmp(g->line, "OK\n") == 0 && WIFEXITED(g->status))
        return CORE_OK;
    if (WIFSIGNALED(g->status))
        return core__error(CORE_ERROR_REFUSED,
                           "ended the process with signal %d (%s) when it was "
                           "opened in quarantine",
                           WTERMSIG(g->status), strsignal(WTERMSIG(g->status)));
    code = strtol(g->line, &end, 10);
    if (g->size > 0 && end > g->line && code > 0 && code < INT32_MAX)
        return core__error((core_status)code, "in quarantine: %.*s",
                           (int)strcspn(end + 1, "\n"),
                           *end ? end + 1 : "no reason");
    return core__error(CORE_ERROR_REFUSED,
                       "ended the process with status %d when it was opened in "
                       "quarantine",
                       WEXITSTATUS(g->status));
}

core_status core__quarantine(const char *path, bool sealed)
{
    helper_process g = {.output = -1};
    const char *program;
    int ends[2] = {-1, -1};
    core_status status;
    int failed;

    CORE_TRY(find_helper(sealed, &program));
    if (!program)
        return CORE_OK;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return core__error(CORE_ERROR_IO, "quarantine: no pipe: %s",
                           strerror(errno));
    failed = spawn(program, path, ends[1], &g.process);
    close(ends[1]);
    if (failed) {
        status = core__error(CORE_ERROR_IO,
                             "quarantine: %s could not be started: %s", program,
                             strerror(failed));
    } else {
        g.output = ends[0];
        wait_for_helper(&g);
        status = check_output(&g);
    }
    close(ends[0]);
    return status;
}
