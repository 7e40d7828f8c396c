/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What a call has to leave as it was besides the floating-point control word:
 * signals, locale, the x87 unit.  Nothing is put back: who debugs a plugin
 * wants to see what it does. */

#include "interpose/interposer.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

/* Changes that this thread has been told of: a call around the one that made
 * them is not to blame. */
static _Thread_local uint32_t told;

static uint32_t x87_word(void)
{
    uint16_t word = 0;

#if defined __x86_64__ || defined __i386__
    __asm__ volatile("fnstcw %0" : "=m"(word));
#endif
    return word;
}

void layer_manners_note(layer_manners *out)
{
    const char *locale = setlocale(LC_ALL, NULL);
    struct sigaction one;

    memset(out, 0, sizeof *out);
    out->told = told;
    pthread_sigmask(SIG_SETMASK, NULL, &out->mask);
    /* The C library keeps two signals for itself and answers for neither. */
    for (int i = 1; i < LAYER_SIGNALS; i++)
        if (sigaction(i, NULL, &one) == 0)
            out->handlers[i] = one.sa_handler;
    out->own_locale = (const void *)uselocale((locale_t)0);
    snprintf(out->locale, sizeof out->locale, "%s", locale ? locale : "");
    out->x87 = x87_word();
}

static void check_signals(layer_call *call, const layer_manners *before,
                          const layer_manners *after)
{
    for (int i = 1; i < LAYER_SIGNALS; i++) {
        if (before->handlers[i] != after->handlers[i])
            layer_breach(call, "changes the handler of signal %d", i);
        if (sigismember(&before->mask, i) != sigismember(&after->mask, i))
            layer_breach(
                call, "%s signal %d for the thread",
                sigismember(&after->mask, i) == 1 ? "blocks" : "unblocks", i);
    }
}

void layer_manners_check(layer_call *call, bool with_x87)
{
    const layer_manners *before = &call->manners;
    uint64_t breaches = call->told;
    layer_manners after;

    layer_manners_note(&after);
    if (before->told != after.told)
        return;
    check_signals(call, before, &after);
    if (before->own_locale != after.own_locale)
        layer_breach(call, "changes the thread's locale (uselocale)");
    if (strcmp(before->locale, after.locale) != 0)
        layer_breach(call, "changes the locale from %s to %s", before->locale,
                     after.locale);
    if (with_x87 && before->x87 != after.x87)
        layer_breach(call,
                     "changes the floating-point control word of the x87 "
                     "from 0x%x to 0x%x",
                     before->x87, after.x87);
    if (call->told != breaches)
        told++;
}
