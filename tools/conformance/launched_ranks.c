/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "launched_ranks.h"

#include "name_filter.h"
#include "rank_outcome.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, PATH_SIZE = 512, OVER = -1 };

/* In memory of a file that all ranks have opened. */
typedef struct launched_shared {
    rank_shared test;
    _Atomic uint32_t arrived; /* ranks, at the ends of tests, in all */
    _Atomic int32_t reported; /* tests; OVER: no more are made */
} launched_shared;

typedef struct launched {
    rank self;
    launched_shared *shared;
    double limit;
    const char *filter;
    size_t number, failed;       /* tests */
    const collective_test *test; /* that runs */
    _Atomic int64_t deadline_ns; /* of the test */
    _Atomic bool met;            /* the ranks have the shared memory */
    bool unusable;               /* the engine, as rank 0 has found */
    jmp_buf leave;
} launched;

/* The shared file of rank 0, until all ranks have opened it; empty: none. */
static char shared_path[PATH_SIZE];

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --------------------------------------------------------------- watchdog -- */

static void report_hanging(launched *all)
{
    rank_processes processes = {0};

    for (uint32_t r = 0; r < all->self.size; r++)
        if (atomic_load(&all->shared->test.reports[r].verdict) == RANK_RUNS) {
            processes.hangs[r] = true;
            snprintf(processes.ends[r], sizeof processes.ends[r],
                     "it hangs: it has not ended in %g seconds", all->limit);
        }
    rank_outcome_report(all->test, all->number, &all->shared->test, &processes,
                        all->self.size);
    fflush(stdout);
}

static _Noreturn void end_before_meeting(const launched *all)
{
    fprintf(stderr,
            "core-conformance: rank %u: %s: it hangs: it has not ended in %g "
            "seconds\n",
            all->self.number, all->self.report ? all->self.report->call : "",
            all->limit);
    if (all->self.number == 0)
        unlink(shared_path);
    _exit(EXIT_FAILURE);
}

/* Ends the process if a test, or what is before them, does not end.  Rank 0
 * says which ranks hang; the others give it the time. */
static void *watch(void *context)
{
    launched *all = context;
    int64_t more = all->self.number == 0 ? 0 : INT64_C(2000000000);

    while (now_ns() < atomic_load(&all->deadline_ns) + more)
        rank_pause(0.05);
    if (!atomic_load(&all->met))
        end_before_meeting(all);
    if (all->self.number == 0)
        report_hanging(all);
    atomic_store(&all->shared->reported, OVER);
    _exit(EXIT_FAILURE);
}

static void renew_deadline(launched *all)
{
    atomic_store(&all->deadline_ns, now_ns() + (int64_t)(all->limit * 1e9));
}

static bool start_watchdog(launched *all)
{
    pthread_t thread;

    renew_deadline(all);
    if (pthread_create(&thread, NULL, watch, all) != 0)
        return false;
    pthread_detach(thread);
    return true;
}

/* ---------------------------------------------------------------- meeting -- */

static void *map(int file)
{
    void *memory = mmap(NULL, sizeof(launched_shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED, file, 0);

    close(file);
    return memory == MAP_FAILED ? NULL : memory;
}

static launched_shared *create_shared(char *path)
{
    const char *folder = getenv("TMPDIR");
    int file;

    snprintf(path, PATH_SIZE, "%s/libcore-collectives-XXXXXX",
             folder && *folder ? folder : "/tmp");
    file = mkstemp(path);
    if (file < 0)
        return NULL;
    if (ftruncate(file, sizeof(launched_shared)) == 0)
        return map(file);
    close(file);
    unlink(path);
    return NULL;
}

/* Rank 0's text, by the engine that is tested. */
static void share_text(rank *self, char *text)
{
    const int64_t size = PATH_SIZE;
    core_tensor *bytes;

    rank_connect(self, 0);
    rank_calls(self, "core_broadcast of the name of a file");
    rank_must(self, core_tensor_from_data(text, CORE_U8, &size, 1, self->device,
                                          &bytes));
    rank_must(self, core_broadcast(self->comm, bytes, 0));
    rank_must(self, core_tensor_read(bytes, text, PATH_SIZE));
    core_tensor_release(bytes);
}

/* Of a signal that ends the process. */
static void remove_path(int number)
{
    unlink(shared_path);
    signal(number, SIG_DFL);
    raise(number);
}

static const int caught[] = {SIGHUP, SIGINT, SIGTERM};
enum { CAUGHT = sizeof caught / sizeof *caught };
static struct sigaction before[CAUGHT]; /* those were caught */

/* A signal that is ignored, as SIGHUP by nohup, does not end the process. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = remove_path};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < CAUGHT; i++) {
        sigaction(caught[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
    }
}

static void restore_signals(void)
{
    for (size_t i = 0; i < CAUGHT; i++)
        sigaction(caught[i], &before[i], NULL);
}

/* All ranks have opened the file when it loses its name. */
static void meet(launched *all, char *path)
{
    rank *self = &all->self;
    int file = -1;

    share_text(self, path);
    if (self->number > 0) {
        file = open(path, O_RDWR | O_CLOEXEC);
        all->shared = file < 0 ? NULL : map(file);
        if (!all->shared)
            rank_fail(self,
                      "%s: %s; all ranks have to be on one machine, with one "
                      "TMPDIR",
                      path, strerror(errno));
    }
    rank_meet(self);
    core_comm_release(self->comm);
    self->comm = NULL;
}

/* Until then a rank reports in memory of this process. */
static int begin(launched *all)
{
    static launched_shared own;
    rank *self = &all->self;

    if (self->number == 0 && !(all->shared = create_shared(shared_path))) {
        fprintf(stderr, "core-conformance: a file for the ranks: %s\n",
                strerror(errno));
        return EXIT_USAGE;
    }
    self->shared = &own.test;
    self->leave = &all->leave;
    self->report = &own.test.reports[self->number];
    if (self->number == 0)
        catch_signals();
    if (setjmp(all->leave) == 0) {
        rank_prepare(self);
        meet(all, shared_path);
        renew_deadline(all);
        self->shared = &all->shared->test;
        self->report = &self->shared->reports[self->number];
        atomic_store(&all->met, true);
    }
    if (self->number == 0) {
        unlink(shared_path);
        restore_signals();
    }
    if (atomic_load(&all->met))
        return EXIT_SUCCESS;
    fprintf(stderr,
            "core-conformance: rank %u: %s: %s\ncore-conformance: an engine "
            "whose ranks meet in a store is tested without a launcher, or with "
            "one that sets MASTER_ADDR and MASTER_PORT\n",
            self->number, own.test.reports[self->number].call,
            own.test.reports[self->number].detail);
    return atomic_load(&own.test.reports[self->number].verdict) == RANK_UNUSABLE
               ? EXIT_USAGE
               : EXIT_FAILURE;
}

/* ------------------------------------------------------------------ tests -- */

static void run_test(launched *all)
{
    renew_deadline(all);
    if (setjmp(all->leave) == 0)
        rank_test(&all->self, all->test);
}

/* A rank that could not use the engine; nothing was tested. */
static bool is_unusable(launched *all)
{
    const rank_shared *test = &all->shared->test;
    uint32_t r = rank_outcome_find(test, all->self.size, RANK_UNUSABLE);

    if (r == all->self.size)
        return false;
    fprintf(stderr, "core-conformance: rank %u: %s: %s\n", r,
            test->reports[r].call, test->reports[r].detail);
    all->unusable = true;
    atomic_store(&all->shared->reported, OVER);
    return true;
}

/* Rank 0, when all ranks have ended a test.  Returns whether the next is made. */
static bool report(launched *all)
{
    const rank_processes none = {0};
    bool passed;

    if (is_unusable(all))
        return false;
    passed = rank_outcome_report(all->test, all->number, &all->shared->test,
                                 &none, all->self.size);
    fflush(stdout);
    all->failed += !passed;
    memset(&all->shared->test, 0, sizeof all->shared->test);
    atomic_store(&all->shared->reported, passed ? (int32_t)all->number : OVER);
    return passed;
}

/* The watchdog ends what waits for ever. */
static bool end_test(launched *all)
{
    launched_shared *shared = all->shared;
    uint32_t wanted = (uint32_t)(all->number * all->self.size);

    atomic_fetch_add(&shared->arrived, 1);
    if (all->self.number == 0) {
        while (atomic_load(&shared->arrived) +
                   atomic_load(&shared->test.vanished) <
               wanted)
            rank_pause(0.001);
        return report(all);
    }
    while (atomic_load(&shared->reported) < (int32_t)all->number &&
           atomic_load(&shared->reported) != OVER)
        rank_pause(0.001);
    return atomic_load(&shared->reported) != OVER;
}

static bool run_list(launched *all, const collective_test *tests)
{
    for (; tests->name; tests++) {
        if (!name_filter_selects(all->filter, tests->name))
            continue;
        all->test = tests;
        all->number++;
        run_test(all);
        if (!end_test(all))
            return false;
    }
    return true;
}

static size_t count(const launched *all, const collective_test *tests)
{
    size_t selected = 0;

    for (; tests->name; tests++)
        selected += name_filter_selects(all->filter, tests->name);
    return selected;
}

/* A fault leaves the engine in a state in which nothing else can be tested. */
static bool run_all(launched *all)
{
    size_t results = count(all, collective_results);
    size_t faults = count(all, collective_faults);

    if (results == 0 && faults == 1)
        return run_list(all, collective_faults);
    if (faults > 0 && all->self.number == 0)
        printf(
            "# not tested: %zu tests of faults; under a launcher each is run "
            "alone: choose one of them by --filter\n",
            faults);
    return run_list(all, collective_results);
}

static int conclude(launched *all)
{
    atomic_store(&all->deadline_ns, INT64_MAX / 2);
    if (all->self.number == 0 && all->number == 0)
        fprintf(stderr, "core-conformance: --filter matches no test that is "
                        "run\n");
    else if (all->self.number == 0)
        printf("1..%zu\n# %zu passed, %zu failed, with %u ranks on %s\n",
               all->number, all->number - all->failed, all->failed,
               all->self.size, all->self.setup->device);
    return all->number == 0 ? EXIT_USAGE : EXIT_SUCCESS;
}

int launched_rank_run(const rank_setup *setup, const char *filter, double limit,
                      uint32_t number, uint32_t size)
{
    static launched all;
    int result;

    all.self = (rank){.setup = setup, .number = number, .size = size};
    all.limit = limit;
    all.filter = filter;
    if (!start_watchdog(&all)) {
        fprintf(stderr, "core-conformance: no thread for a watchdog\n");
        return EXIT_USAGE;
    }
    result = begin(&all);
    if (result != EXIT_SUCCESS)
        return result;
    if (!run_all(&all)) {
        if (all.unusable)
            return EXIT_USAGE;
        conclude(&all);
        return EXIT_FAILURE;
    }
    return conclude(&all);
}
