/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "rank_processes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

/* ------------------------------------------------------------- signals -- */

static volatile sig_atomic_t signalled;

static const int caught[] = {SIGINT, SIGTERM};
enum { CAUGHT = sizeof caught / sizeof *caught };
static struct sigaction before[CAUGHT]; /* those were caught */

static void on_signal(int number)
{
    signalled = number;
}

/* A signal that is ignored ends no test. */
void rank_processes_catch(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < CAUGHT; i++) {
        sigaction(caught[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
    }
}

int rank_processes_signal(void)
{
    return signalled;
}

/* ------------------------------------------------------------ processes -- */

/* A rank does not outlive the process that started it. */
static void end_with_parent(pid_t parent)
{
    for (size_t i = 0; i < CAUGHT; i++)
        sigaction(caught[i], &before[i], NULL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent)
        _exit(1);
}

static int start(const rank_setup *setup, const collective_test *test,
                 rank_shared *shared, uint32_t ranks, rank_processes *all)
{
    pid_t parent = getpid();

    fflush(NULL);
    for (uint32_t r = 0; r < ranks; r++) {
        rank self = {
            .setup = setup, .shared = shared, .number = r, .size = ranks};

        all->ids[r] = fork();
        if (all->ids[r] == 0) {
            end_with_parent(parent);
            rank_run(&self, test);
        }
        if (all->ids[r] < 0)
            return errno;
    }
    return 0;
}

static void note_end(rank_processes *all, const rank_shared *shared, uint32_t r,
                     int state)
{
    char *text = all->ends[r];

    if (WIFSIGNALED(state))
        snprintf(text, sizeof all->ends[r], "it was ended by signal %d (%s)",
                 WTERMSIG(state), strsignal(WTERMSIG(state)));
    else if (WEXITSTATUS(state) != 0)
        snprintf(text, sizeof all->ends[r], "it ended with status %d",
                 WEXITSTATUS(state));
    else if (atomic_load(&shared->reports[r].verdict) == RANK_RUNS)
        snprintf(text, sizeof all->ends[r],
                 "the process ended, with status 0, in this call");
}

/* Takes note of ranks that have ended; returns how many have not. */
static uint32_t collect(rank_processes *all, const rank_shared *shared,
                        uint32_t ranks)
{
    uint32_t left = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        int state;

        if (all->ids[r] <= 0)
            continue;
        if (waitpid(all->ids[r], &state, WNOHANG) != all->ids[r]) {
            left++;
            continue;
        }
        all->ids[r] = 0;
        note_end(all, shared, r, state);
    }
    return left;
}

/* A rank that has a verdict does not hang: it only waits for the others. */
static void end_all(rank_processes *all, const rank_shared *shared,
                    uint32_t ranks, double limit)
{
    for (uint32_t r = 0; r < ranks; r++) {
        if (all->ids[r] <= 0)
            continue;
        kill(all->ids[r], SIGKILL);
        waitpid(all->ids[r], NULL, 0);
        all->ids[r] = 0;
        all->hangs[r] = atomic_load(&shared->reports[r].verdict) == RANK_RUNS;
        if (all->hangs[r])
            snprintf(all->ends[r], sizeof all->ends[r],
                     "it hangs: it has not ended in %g seconds", limit);
    }
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int rank_processes_run(const rank_setup *setup, const collective_test *test,
                       rank_shared *shared, uint32_t ranks, double limit,
                       rank_processes *out)
{
    double end = seconds_now() + limit;
    int error;

    *out = (rank_processes){0};
    error = start(setup, test, shared, ranks, out);
    while (!error && !signalled && collect(out, shared, ranks) > 0 &&
           seconds_now() < end)
        rank_pause(0.002);
    end_all(out, shared, ranks, limit);
    return error;
}

/* ------------------------------------------------------------- outcomes -- */

/* A process that has ended comes before one that hangs, perhaps because of it,
 * and that before one that failed, perhaps with a timeout. */
static int weight(const rank_processes *all, const rank_shared *shared,
                  uint32_t r)
{
    if (all->ends[r][0])
        return all->hangs[r] ? 2 : 3;
    return atomic_load(&shared->reports[r].verdict) == RANK_FAILED;
}

uint32_t rank_processes_cause(const rank_processes *all,
                              const rank_shared *shared, uint32_t ranks)
{
    uint32_t cause = ranks;
    int most = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        int found = weight(all, shared, r);

        if (found > most ||
            (found == 1 && most == 1 &&
             shared->reports[r].when < shared->reports[cause].when)) {
            most = found;
            cause = r;
        }
    }
    return cause;
}
