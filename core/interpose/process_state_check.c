/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks the state that a call must preserve besides the floating-point
 * control word: signals, locale, the x87 unit.  Nothing is restored, so that
 * the plugin's behaviour can be debugged. */

#include "interpose/interposer.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

/* Number of changes reported in this thread: a call around the one that made
 * them is not reported. */
static _Thread_local uint32_t reported;

static uint32_t x87_word(void)
{
    uint16_t word = 0;

#if defined __x86_64__ || defined __i386__
    __asm__ volatile("fnstcw %0" : "=m"(word));
#endif
    return word;
}

void interposer_process_state_save(interposer_process_state *out)
{
    const char *locale = setlocale(LC_ALL, NULL);
    struct sigaction one;

    memset(out, 0, sizeof *out);
    out->reported = reported;
    pthread_sigmask(SIG_SETMASK, NULL, &out->mask);
    /* The C library uses two signals internally; their handlers cannot be
     * read. */
    for (int i = 1; i < INTERPOSER_SIGNALS; i++)
        if (sigaction(i, NULL, &one) == 0)
            out->handlers[i] = one.sa_handler;
    out->own_locale = (const void *)uselocale((locale_t)0);
    snprintf(out->locale, sizeof out->locale, "%s", locale ? locale : "");
    out->x87 = x87_word();
}

static void check_signals(interposer_call *call,
                          const interposer_process_state *before,
                          const interposer_process_state *after)
{
    for (int i = 1; i < INTERPOSER_SIGNALS; i++) {
        if (before->handlers[i] != after->handlers[i])
            interposer_violation(call, "changes the handler of signal %d", i);
        if (sigismember(&before->mask, i) != sigismember(&after->mask, i))
            interposer_violation(
                call, "%s signal %d for the thread",
                sigismember(&after->mask, i) == 1 ? "blocks" : "unblocks", i);
    }
}

void interposer_process_state_check(interposer_call *call, bool with_x87)
{
    const interposer_process_state *before = &call->process_state;
    uint64_t before_violations = call->violations;
    interposer_process_state after;

    interposer_process_state_save(&after);
    if (before->reported != after.reported)
        return;
    check_signals(call, before, &after);
    if (before->own_locale != after.own_locale)
        interposer_violation(call, "changes the thread's locale (uselocale)");
    if (strcmp(before->locale, after.locale) != 0)
        interposer_violation(call, "changes the locale from %s to %s",
                             before->locale, after.locale);
    if (with_x87 && before->x87 != after.x87)
        interposer_violation(
            call,
            "changes the floating-point control word of the x87 "
            "from 0x%x to 0x%x",
            before->x87, after.x87);
    if (call->violations != before_violations)
        reported++;
}
