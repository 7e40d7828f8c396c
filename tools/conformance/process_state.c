/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE /* environ, sched_getaffinity */

#include "process_state.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* Without the exception flags, which any computation may raise. */
static uint32_t control_word(void)
{
#ifdef __SSE__
    return _mm_getcsr() & ~0x3fu;
#else
    return 0;
#endif
}

static void set_control_word(uint32_t word)
{
#ifdef __SSE__
    _mm_setcsr(word);
#else
    (void)word;
#endif
}

static uint32_t x87_control(void)
{
    uint16_t word = 0;

#if defined __x86_64__ || defined __i386__
    __asm__ volatile("fnstcw %0" : "=m"(word));
#endif
    return word;
}

static void set_x87_control(uint32_t word)
{
#if defined __x86_64__ || defined __i386__
    uint16_t value = (uint16_t)word;

    __asm__ volatile("fldcw %0" : : "m"(value));
#else
    (void)word;
#endif
}

/* A hash of all names and values that does not depend on their order. */
static uint64_t variables(void)
{
    uint64_t sum = 0;

    for (char **one = environ; one && *one; one++) {
        uint64_t hash = 0xcbf29ce484222325u;

        for (const char *at = *one; *at; at++)
            hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
        sum += hash;
    }
    return sum;
}

void process_state_save(process_state *out)
{
    const char *locale = setlocale(LC_ALL, NULL);
    struct itimerval timer = {{0, 0}, {0, 0}};

    memset(out, 0, sizeof *out);
    out->rounding = fegetround();
    out->control = control_word();
    for (int i = 1; i < PROCESS_SIGNALS; i++)
        sigaction(i, NULL, &out->handlers[i]);
    sigprocmask(SIG_SETMASK, NULL, &out->mask);
    snprintf(out->locale, sizeof out->locale, "%s", locale ? locale : "");
    if (!getcwd(out->folder, sizeof out->folder))
        out->folder[0] = 0;
    out->own_locale = (void *)uselocale((locale_t)0);
    out->umask = umask(0);
    umask(out->umask);
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) >= 0)
            out->standard |= 1u << i;
    getitimer(ITIMER_REAL, &timer);
    out->x87 = x87_control();
    out->variables = variables();
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit((__rlimit_resource_t)i, &out->limits[i]);
    out->nice = getpriority(PRIO_PROCESS, 0);
    (void)sched_getaffinity(0, sizeof out->processors,
                            (cpu_set_t *)(void *)out->processors);
    out->timer = timer.it_value.tv_sec > 0 || timer.it_value.tv_usec > 0;
}

static bool same_handler(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_handler == b->sa_handler &&
           (a->sa_flags & SA_SIGINFO) == (b->sa_flags & SA_SIGINFO);
}

static void check_signals(const process_state *before,
                          const process_state *after, outcome *out)
{
    for (int i = 1; i < PROCESS_SIGNALS; i++) {
        if (!expect(out,
                    same_handler(&before->handlers[i], &after->handlers[i]),
                    "the handler of signal %d was changed", i))
            sigaction(i, &before->handlers[i], NULL);
        if (!expect(out,
                    sigismember(&before->mask, i) ==
                        sigismember(&after->mask, i),
                    "the mask of signal %d was changed", i))
            sigprocmask(SIG_SETMASK, &before->mask, NULL);
    }
}

static void check_process(const process_state *before,
                          const process_state *after, outcome *out)
{
    if (!expect(out, before->own_locale == after->own_locale,
                "the thread's locale was changed (uselocale)"))
        uselocale((locale_t)before->own_locale);
    if (!expect(out, before->umask == after->umask,
                "the umask was changed from %03o to %03o", before->umask,
                after->umask))
        umask(before->umask);
    expect(out, before->standard == after->standard,
           "one of the descriptors 0, 1 and 2 was closed or opened");
    if (!expect(out, before->timer || !after->timer,
                "a timer was set that will send SIGALRM"))
        alarm(0);
    for (int i = 0; i < RLIM_NLIMITS; i++)
        if (!expect(out,
                    before->limits[i].rlim_cur == after->limits[i].rlim_cur &&
                        before->limits[i].rlim_max == after->limits[i].rlim_max,
                    "the resource limit %d (RLIMIT_… in sys/resource.h) was "
                    "changed from %llu to %llu",
                    i, (unsigned long long)before->limits[i].rlim_cur,
                    (unsigned long long)after->limits[i].rlim_cur))
            setrlimit((__rlimit_resource_t)i, &before->limits[i]);
    if (!expect(out, before->x87 == after->x87,
                "the floating-point environment was changed: x87 control word "
                "from %#x to %#x",
                before->x87, after->x87))
        set_x87_control(before->x87);
}

static void check_scheduling(const process_state *before,
                             const process_state *after, outcome *out)
{
    if (!expect(out, before->nice == after->nice,
                "the thread's niceness was changed from %d to %d", before->nice,
                after->nice))
        setpriority(PRIO_PROCESS, 0, before->nice);
    if (!expect(out,
                memcmp(before->processors, after->processors,
                       sizeof before->processors) == 0,
                "the thread's CPU affinity was changed"))
        sched_setaffinity(0, sizeof before->processors,
                          (const cpu_set_t *)(const void *)before->processors);
}

/* A process must wait for its children.  The suite leaves none, so any is the
 * plugin's; one that ends later is found after a later test. */
static void check_children(outcome *out)
{
    siginfo_t one;

    memset(&one, 0, sizeof one);
    while (waitid(P_ALL, 0, &one, WEXITED | WNOHANG) == 0 && one.si_pid != 0) {
        expect(out, false, "a child (process %ld) ended and was not waited for",
               (long)one.si_pid);
        memset(&one, 0, sizeof one);
    }
}

void process_state_check(const process_state *before, outcome *out)
{
    process_state after;

    process_state_save(&after);
    if (!expect(out, before->rounding == after.rounding,
                "the floating-point environment was changed: rounding mode"))
        fesetround(before->rounding);
    if (!expect(out, before->control == after.control,
                "the floating-point environment was changed: control word from "
                "%#x to %#x",
                before->control, after.control))
        set_control_word(before->control);
    check_signals(before, &after, out);
    check_process(before, &after, out);
    check_scheduling(before, &after, out);
    check_children(out);
    if (!expect(out, strcmp(before->locale, after.locale) == 0,
                "the locale was changed from %s to %s", before->locale,
                after.locale))
        setlocale(LC_ALL, before->locale);
    if (!expect(out, strcmp(before->folder, after.folder) == 0,
                "the working directory was changed to %s", after.folder) &&
        chdir(before->folder) != 0)
        harness_error(out, "the working directory no longer exists");
}

void process_state_check_environment(const process_state *before, outcome *out)
{
    expect(out, before->variables == variables(),
           "an environment variable was set or unset (setenv, putenv, "
           "unsetenv)");
}

/* Builds with sanitizers have their own heap. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

uint64_t process_heap(void)
{
    struct mallinfo2 about;

    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    about = mallinfo2();
    return about.uordblks + about.hblkhd;
}

bool process_heap_below(uint64_t limit)
{
    for (int i = 0; i < 1000 && process_heap() >= limit; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return process_heap() < limit;
}

uint64_t process_mapped(void)
{
    char text[64];
    ssize_t size = -1;
    int file;

    if (__sanitizer_get_current_allocated_bytes)
        return 0;
    file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        size = read(file, text, sizeof text - 1);
        close(file);
    }
    if (size <= 0)
        return 0;
    text[size] = 0;
    return strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool process_mapped_below(uint64_t limit)
{
    for (int i = 0; i < 1000 && process_mapped() >= limit; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return process_mapped() < limit;
}

uint32_t process_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t count = 0;

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

/* The state of a thread of this process, 'S' if it sleeps; 0 if it has ended. */
static char state_of(const char *thread)
{
    char path[300], line[300], state = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%s/stat", thread);
    file = fopen(path, "r");
    if (file && fgets(line, sizeof line, file) && strrchr(line, ')'))
        sscanf(strrchr(line, ')') + 1, " %c", &state);
    if (file)
        fclose(file);
    return state;
}

uint32_t process_threads(uint32_t *out_asleep)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    uint32_t count = 0;

    *out_asleep = 0;
    while (folder && (entry = readdir(folder))) {
        char state;

        if (!isdigit((unsigned char)entry->d_name[0]) ||
            atol(entry->d_name) == (long)getpid())
            continue;
        state = state_of(entry->d_name);
        count += state != 0;
        *out_asleep += state == 'S';
    }
    if (folder)
        closedir(folder);
    return count;
}

void process_settle(void)
{
    enum { CHECKS = 3, MOST = 2500 };
    uint32_t asleep, quiet = 0;

    for (int i = 0; i < MOST && quiet < CHECKS; i++) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        quiet = process_threads(&asleep) == asleep ? quiet + 1 : 0;
    }
}
