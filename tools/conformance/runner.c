/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE /* asprintf, memfd_create */

#include "runner.h"

#include "child.h"
#include "process_times.h"
#include "slot_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum {
    LINE = 2048,
    ARGUMENTS = 28,
    LISTING = 10,
    HELD_UP = 5, /* times the limit, on a busy machine */
    LOOK = 1,    /* seconds from one look to the next, at most */
    WINDOW = 10, /* seconds in which a test computes or not, at most */
};

/* One child process and its state. */
typedef struct child {
    pid_t pid;
    int results; /* the read end of CHILD_RESULTS */
    char line[LINE];
    size_t used;
    double started;  /* the test that is running */
    double spent;    /* processor time before it, in seconds */
    double elapsed;  /* of a test that timed out, in seconds */
    double computed; /* its processor time */
    double window;   /* when the latest look at its processor time began */
    double before;   /* process_ready_seconds then */
    double ran;      /* process_seconds then */
    bool waits;      /* in the window before it did not compute */
    record *current;
    bool done;
    bool timed_out;
    bool lists;        /* it lists the tests */
    slot_watch *slots; /* shared with it; NULL: not available */
} child;

/* --------------------------------------------------------------- spawn -- */

/* glibc's per-thread caches count freed blocks as in use, which looks like a
 * leak where heap sizes are compared; this environment disables them.  Release
 * it with free(*out_set) and free(): all strings but that one belong to the
 * process. */
static char **without_thread_caches(char **out_set)
{
    static const char name[] = "GLIBC_TUNABLES=";
    static const char tunable[] = "glibc.malloc.tcache_count=0";
    const char *old = getenv("GLIBC_TUNABLES");
    size_t count = 0, n = 0;
    char **copy;

    while (environ[count])
        count++;
    *out_set = NULL;
    copy = malloc((count + 2) * sizeof *copy);
    if (!copy || asprintf(out_set, "%s%s%s%s", name, old ? old : "",
                          old && *old ? ":" : "", tunable) < 0) {
        free(copy);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], name, sizeof name - 1) != 0)
            copy[n++] = environ[i];
    copy[n++] = *out_set;
    copy[n] = NULL;
    return copy;
}

/* Measurements use the default environment. */
static pid_t spawn(const runner *self, const char *flag, const char *group,
                   int input, int output, int slots)
{
    char *arguments[ARGUMENTS] = {(char *)(uintptr_t) "core-conformance",
                                  (char *)(uintptr_t)flag};
    posix_spawn_file_actions_t actions;
    char **without = NULL, *set = NULL;
    pid_t pid = -1;
    size_t n = 2;

    for (size_t i = 0; self->arguments[i] && n + 1 < ARGUMENTS; i++)
        arguments[n++] = (char *)(uintptr_t)self->arguments[i];
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    if (strcmp(group, "perf") != 0 && !(without = without_thread_caches(&set)))
        goto done;
    /* A plugin may print to standard output, which is the report's. */
    if (posix_spawn_file_actions_adddup2(&actions, input, 0) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, 2, 1) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, output, CHILD_RESULTS) !=
            0 ||
        (slots >= 0 && posix_spawn_file_actions_adddup2(
                           &actions, slots, SLOT_WATCH_FILE) != 0) ||
        posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments,
                    without ? without : environ) != 0)
        pid = -1;
done:
    free(set);
    free(without);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

/* A temporary file with the names of the tests to run. */
static FILE *names_file(const runner *self, const char *group)
{
    FILE *file = tmpfile();
    size_t size = strlen(group);

    if (!file)
        return NULL;
    for (size_t i = 0; i < self->report->count; i++) {
        const record *one = &self->report->records[i];

        if (one->chosen && !one->done && strncmp(one->name, group, size) == 0 &&
            one->name[size] == '/')
            fprintf(file, "%s\n", one->name);
    }
    if (fflush(file) != 0 || fseek(file, 0, SEEK_SET) != 0 ||
        lseek(fileno(file), 0, SEEK_SET) != 0) {
        fclose(file);
        return NULL;
    }
    return file;
}

/* What the child has measured, later ones get. */
static gate_measure measured;

static void forget(child *self)
{
    if (self->slots && self->slots->gate.copies > 0)
        measured = self->slots->gate;
    if (self->slots)
        munmap(self->slots, sizeof *self->slots);
    self->slots = NULL;
}

/* Returns a descriptor of memory that the child maps too, or -1. */
static int share_slots(slot_watch **out)
{
    int file = memfd_create("slots", MFD_CLOEXEC), high = -1;
    void *shared;

    *out = NULL;
    if (file < 0)
        return -1;
    if (ftruncate(file, sizeof **out) == 0)
        high = fcntl(file, F_DUPFD_CLOEXEC, 64);
    close(file);
    shared = high < 0 ? MAP_FAILED
                      : mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE,
                             MAP_SHARED, high, 0);
    if (shared != MAP_FAILED)
        *out = shared;
    return high;
}

static bool start(const runner *self, const char *flag, const char *group,
                  child *out)
{
    FILE *names = names_file(self, group);
    int ends[2] = {-1, -1}, slots;

    memset(out, 0, sizeof *out);
    out->pid = -1;
    slots = share_slots(&out->slots);
    if (out->slots)
        out->slots->gate = measured;
    /* High numbers, so that dup2 to CHILD_RESULTS really duplicates, which
     * clears the close-on-exec flag. */
    if (names && pipe2(ends, O_CLOEXEC) == 0) {
        int high = fcntl(ends[1], F_DUPFD_CLOEXEC, 64);

        if (high >= 0) {
            out->pid = spawn(self, flag, group, fileno(names), high, slots);
            close(high);
        }
        close(ends[1]);
    }
    out->results = ends[0];
    if (names)
        fclose(names);
    if (slots >= 0)
        close(slots);
    if (out->pid < 0 && ends[0] >= 0)
        close(ends[0]);
    if (out->pid < 0)
        forget(out);
    out->started = out->window = suite_seconds();
    return out->pid >= 0;
}

/* ------------------------------------------------------------- answers -- */

/* Cuts off the next field of a line. */
static char *next(char **line)
{
    return *line ? strsep(line, "\t") : NULL;
}

static void end_test(runner *self, child *from, char *rest)
{
    record *one = from->current;
    const char *name = next(&rest);
    const char *what = next(&rest), *error = next(&rest);
    const char *measured = next(&rest), *unit = next(&rest);
    const char *detail = next(&rest);

    from->current = NULL;
    if (!one || !name || strcmp(one->name, name) != 0 || !detail)
        return;
    one->done = true;
    one->verdict = (verdict)atoi(what);
    if (one->verdict >= VERDICTS)
        one->verdict = VERDICT_HARNESS_ERROR;
    one->error = atof(error);
    one->measured = *unit ? atof(measured) : -1;
    one->milliseconds = (suite_seconds() - from->started) * 1000;
    snprintf(one->unit, sizeof one->unit, "%s", unit);
    snprintf(one->detail, sizeof one->detail, "%s", detail);
    if (strcmp(one->name, SUITE_OPENING_TEST) == 0 && report_bad(one))
        report_stop(self->report, one);
}

static void report_result(const runner *self, record *one)
{
    if (self->verbose && one)
        fprintf(stderr, "%-13s %s%s%s\n", verdict_names[one->verdict],
                one->name, one->detail[0] ? ": " : "", one->detail);
    if (self->ended && one && one->done)
        self->ended(self->context, one);
}

static void take_line(runner *self, child *from)
{
    char *rest = from->line;
    const char *word = next(&rest);
    record *one = from->current;

    if (strcmp(word, "begin") == 0 && rest) {
        from->current = report_find(self->report, rest);
        from->started = suite_seconds();
        from->spent = process_seconds(from->pid);
        from->window = from->started;
        from->before = process_ready_seconds(from->pid);
        from->ran = from->spent;
        from->waits = false;
    } else if (strcmp(word, "end") == 0) {
        end_test(self, from, rest);
        report_result(self, one);
    } else if (strcmp(word, "done") == 0) {
        from->done = true;
    } else if (strcmp(word, "about") == 0) {
        const char *key = next(&rest);

        if (key && rest)
            report_set_about(self->report, key, rest);
    } else if (strcmp(word, "remark") == 0 && rest) {
        report_remark(self->report, "%s", rest);
    } else if (strcmp(word, "needs") == 0 && rest) {
        snprintf(self->report->needs, sizeof self->report->needs, "%s", rest);
    } else if (strcmp(word, "few") == 0 && rest) {
        snprintf(self->report->few, sizeof self->report->few, "%s", rest);
    } else if (strcmp(word, "test") == 0) {
        const char *name = next(&rest), *which = next(&rest);

        one = name && which && rest ? report_add(self->report, name) : NULL;
        if (one) {
            one->level = (level)atoi(which);
            one->optional = atoi(rest) != 0;
        }
    }
}

/* Reads the available output; false: the child has closed its end. */
static bool take(runner *self, child *from)
{
    char part[4096];
    ssize_t size = read(from->results, part, sizeof part);

    if (size < 0)
        return errno == EINTR;
    for (ssize_t i = 0; i < size; i++) {
        if (self->report->stopped)
            return false;
        if (part[i] == '\n') {
            from->line[from->used] = 0;
            from->used = 0;
            take_line(self, from);
        } else if (from->used + 1 < sizeof from->line) {
            from->line[from->used++] = part[i];
        }
    }
    return size > 0;
}

/* Listing may take longer than one test, but opening the device may not. */
static double limit_of(const runner *self, const child *from)
{
    bool lists = from->lists && (!from->slots || from->slots->opened);

    return self->timeout * (lists ? LISTING : 1);
}

/* Looks whether the test computes, or would if it had a processor, or waits. */
static void look(const runner *self, child *from)
{
    const double least = .05; /* of the time; one that polls has less */
    double limit = limit_of(self, from);
    double passed = suite_seconds() - from->window, ready, ran;

    if (passed < (limit < WINDOW ? limit : WINDOW))
        return;
    /* The times of threads that have ended are missing in the first. */
    ready = process_ready_seconds(from->pid);
    ran = process_seconds(from->pid);
    from->waits = ready - from->before < least * passed &&
                  ran - from->ran < least * passed;
    from->before = ready;
    from->ran = ran;
    from->window += passed;
}

/* Tests whether a test that has reached its limit computes, and other programs
 * have kept it from having had the limit as processor time. */
static bool was_held_up(const runner *self, const child *from)
{
    double spent = process_seconds(from->pid) - from->spent;

    return !from->waits && spent < limit_of(self, from) &&
           suite_seconds() - from->started < HELD_UP * limit_of(self, from);
}

/* Reads until the child ends or is killed. */
static int watch(runner *self, child *from)
{
    int status = 0;

    for (;;) {
        struct pollfd one = {.fd = from->results, .events = POLLIN};
        double left = from->started + limit_of(self, from) - suite_seconds();
        int ready;

        look(self, from);
        if (left <= 0 && !was_held_up(self, from)) {
            from->timed_out = true;
            from->elapsed = suite_seconds() - from->started;
            from->computed = process_seconds(from->pid) - from->spent;
            break;
        }
        left = left > 0 && left < LOOK ? left : LOOK;
        ready = poll(&one, 1, (int)(left * 1000) + 1);
        if (ready < 0 && errno != EINTR)
            break;
        if ((ready > 0 && !take(self, from)) || self->report->stopped)
            break;
    }
    /* A child that has closed its results writes nothing more; one that crashes
     * takes a moment to end. */
    for (double end = suite_seconds() + 5;
         !from->done && !from->timed_out && !self->report->stopped;) {
        if (waitpid(from->pid, &status, WNOHANG) == from->pid)
            goto done;
        if (suite_seconds() > end)
            break;
        usleep(1000);
    }
    kill(from->pid, SIGKILL);
    while (waitpid(from->pid, &status, 0) < 0 && errno == EINTR)
        ;
done:
    close(from->results);
    return status;
}

/* Tests whether the child ended while it opened the device, which every other
 * test does, too. */
static bool ended_while_opening(const child *from)
{
    return strcmp(from->current->name, SUITE_OPENING_TEST) == 0 ||
           (from->slots && !from->slots->opened &&
            from->slots->current != SLOT_NONE &&
            from->slots->current <= SLOT_OPENING_LAST);
}

/* Tests whether the child's current test opens the plugin or the device. */
static bool opens(const child *from)
{
    return from->slots &&
           (!from->slots->opened ||
            strcmp(from->current->name, SUITE_OPENING_TEST) == 0);
}

/* Of a crash outside of the functions that are watched. */
static const char *frequent_cause(const char *test, bool flat)
{
    if (strstr(test, "host-allocation-failures"))
        return ": the test lets malloc and the like return NULL in the plugin, "
               "which must check that";
    if (strstr(test, "/plans/"))
        return ": causes are a plan that is destroyed twice, or used after "
               "plan_destroy by queued work that holds no reference";
    if (!flat)
        return ": causes are a kernel that takes handle + offset for an "
               "address (core_sdk_address, core_sdk_loop_rows), which the "
               "device does not declare (CORE_DEVICE_FLAT), and a kernel that "
               "runs later than its launch and uses the call or its arguments "
               "without a copy: it must copy them (core_host.call_copy)";
    return ": one cause is a kernel that runs later than its launch and uses "
           "the call or its arguments, which are valid until launch returns: "
           "it must copy them (core_host.call_copy)";
}

/* Appends the operator that the test called last. */
static void add_last_call(const child *from, char *where, size_t capacity)
{
    size_t used = strlen(where);
    char call[200] = "";

    if (from->slots && from->current->level > LEVEL_CORE)
        slot_watch_describe_call(from->slots, call, sizeof call);
    if (call[0])
        snprintf(where + used, capacity - used, "; the last call was %s", call);
}

/* Turns the way the child ended into the verdict of the running test. */
static void set_verdict_of_exit(runner *self, const child *from, int status)
{
    record *one = from->current;
    char where[400] = "";
    bool in_slot;

    if (!one)
        return;
    if (from->slots)
        slot_watch_describe(from->slots, from->timed_out ? from->elapsed : 0,
                            where, sizeof where);
    if (!where[0] && !from->timed_out && opens(from))
        slot_watch_describe_last(from->slots, true, where, sizeof where);
    in_slot = where[0] != 0;
    if (!in_slot && !from->timed_out && from->slots && one->level == LEVEL_CORE)
        slot_watch_describe_last(from->slots, false, where, sizeof where);
    add_last_call(from, where, sizeof where);
    one->done = true;
    one->milliseconds = (suite_seconds() - from->started) * 1000;
    if (from->timed_out) {
        double limit = limit_of(self, from);
        bool longer = from->elapsed > limit * 1.5;
        char computed[60] = "";

        if (longer)
            snprintf(computed, sizeof computed, " (%.1f of processor time)",
                     from->computed);
        one->verdict = VERDICT_TIMEOUT;
        snprintf(one->detail, sizeof one->detail,
                 "not finished after %g seconds%s%s",
                 longer ? round(from->elapsed) : limit, computed, where);
    } else if (WIFSIGNALED(status)) {
        one->verdict = VERDICT_CRASH;
        snprintf(
            one->detail, sizeof one->detail, "signal %d (%s)%s%s",
            WTERMSIG(status), strsignal(WTERMSIG(status)), where,
            one->level > LEVEL_CORE && !in_slot
                ? frequent_cause(one->name, !from->slots || from->slots->flat)
                : "");
    } else {
        one->verdict = VERDICT_CRASH;
        snprintf(one->detail, sizeof one->detail,
                 "the process ended with status %d%s", WEXITSTATUS(status),
                 where);
    }
    if (ended_while_opening(from))
        report_stop(self->report, one);
    report_result(self, one);
}

/* The matrix of operators could not be listed.  A failed test reports that, so
 * that its absence is not taken for success. */
static void report_unlisted_matrix(runner *self, const child *of, int status)
{
    child none = *of;

    none.current = report_add(self->report, "ops/operators/are-listed");
    if (!none.current)
        return;
    none.current->level = LEVEL_OPS;
    set_verdict_of_exit(self, &none, status);
    /* The first selected test that opens the device finds the same. */
    self->report->stopped = NULL;
}

/* A plugin that crashes or hangs when it is loaded does so in its tests, too;
 * the list of the others does not need it. */
bool runner_list(runner *self, char *text, size_t capacity)
{
    static const char *const flags[] = {"--child-list", "--child-list-core"};
    child one, failed;
    int status, failure = 0;

    for (int i = 0; i < 2; i++) {
        self->report->count = 0;
        if (!start(self, flags[i], "", &one)) {
            snprintf(text, capacity, "cannot start a process: %s",
                     strerror(errno));
            return false;
        }
        one.lists = true;
        status = watch(self, &one);
        if (one.done && i > 0)
            report_unlisted_matrix(self, &failed, failure);
        if (i > 0)
            forget(&failed);
        if (one.done) {
            forget(&one);
            return true;
        }
        failed = one;
        failure = status;
    }
    forget(&failed);
    snprintf(text, capacity, "the tests cannot be listed");
    return false;
}

static bool group_left(const runner *self, const char *group)
{
    size_t size = strlen(group);

    for (size_t i = 0; i < self->report->count; i++) {
        const record *one = &self->report->records[i];

        if (one->chosen && !one->done && strncmp(one->name, group, size) == 0 &&
            one->name[size] == '/')
            return true;
    }
    return false;
}

static size_t left(const runner *self)
{
    size_t count = 0;

    for (size_t i = 0; i < self->report->count; i++)
        count +=
            self->report->records[i].chosen && !self->report->records[i].done;
    return count;
}

/* The first two parts of the name are the group, which shares a process. */
static void group_of(const char *name, char *group, size_t capacity)
{
    const char *slash = strchr(name, '/');
    const char *second = slash ? strchr(slash + 1, '/') : NULL;
    size_t size = second  ? (size_t)(second - name)
                  : slash ? (size_t)(slash - name)
                          : strlen(name);

    if (strncmp(name, "ops/", 4) == 0 && strncmp(name, "ops/rules/", 10) != 0)
        size = 3; /* starting a process for each operator would take long */
    snprintf(group, capacity, "%.*s", (int)size, name);
}

static bool run_group(runner *self, const char *group, char *text,
                      size_t capacity)
{
    while (group_left(self, group)) {
        size_t before = left(self);
        child one;
        int status;

        if (!start(self, "--child-run", group, &one)) {
            snprintf(text, capacity, "cannot start a process: %s",
                     strerror(errno));
            return false;
        }
        status = watch(self, &one);
        if (!self->report->stopped)
            set_verdict_of_exit(self, &one, status);
        forget(&one);
        if (self->report->stopped)
            break;
        if (left(self) == before) {
            snprintf(text, capacity, "the process of %s ran no test", group);
            return false;
        }
    }
    return true;
}

bool runner_run(runner *self, char *text, size_t capacity)
{
    for (size_t i = 0; i < self->report->count; i++) {
        const record *one = &self->report->records[i];
        char group[TEST_NAME];

        if (!one->chosen || one->done)
            continue;
        group_of(one->name, group, sizeof group);
        if (!run_group(self, group, text, capacity))
            return false;
        if (self->report->stopped)
            break;
    }
    return true;
}
