/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "manners.h"

#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* Without the flags, which any computation may raise. */
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

void manners_note(manners *out)
{
    const char *locale = setlocale(LC_ALL, NULL);

    memset(out, 0, sizeof *out);
    out->rounding = fegetround();
    out->control = control_word();
    for (int i = 1; i < MANNERS_SIGNALS; i++)
        sigaction(i, NULL, &out->handlers[i]);
    sigprocmask(SIG_SETMASK, NULL, &out->mask);
    snprintf(out->locale, sizeof out->locale, "%s", locale ? locale : "");
    if (!getcwd(out->folder, sizeof out->folder))
        out->folder[0] = 0;
}

static bool same_handler(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_handler == b->sa_handler &&
           (a->sa_flags & SA_SIGINFO) == (b->sa_flags & SA_SIGINFO);
}

static void check_signals(const manners *before, const manners *after,
                          outcome *out)
{
    for (int i = 1; i < MANNERS_SIGNALS; i++) {
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

void manners_check(const manners *before, outcome *out)
{
    manners after;

    manners_note(&after);
    if (!expect(out, before->rounding == after.rounding,
                "the floating-point environment was changed: rounding"))
        fesetround(before->rounding);
    if (!expect(out, before->control == after.control,
                "the floating-point environment was changed: control word "
                "%#x became %#x",
                before->control, after.control))
        set_control_word(before->control);
    check_signals(before, &after, out);
    if (!expect(out, strcmp(before->locale, after.locale) == 0,
                "the locale was changed from %s to %s", before->locale,
                after.locale))
        setlocale(LC_ALL, before->locale);
    if (!expect(out, strcmp(before->folder, after.folder) == 0,
                "the working directory was changed to %s", after.folder) &&
        chdir(before->folder) != 0)
        harness_error(out, "the working directory is gone");
}

/* A build with sanitizers has a heap of its own. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

uint64_t manners_heap(void)
{
    struct mallinfo2 about;

    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    about = mallinfo2();
    return about.uordblks + about.hblkhd;
}

bool manners_heap_below(uint64_t limit)
{
    for (int i = 0; i < 1000 && manners_heap() >= limit; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return manners_heap() < limit;
}

uint32_t manners_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t count = 0;

    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}
