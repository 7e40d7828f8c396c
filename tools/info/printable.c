/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "printable.h"

#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BUFFERS = 8, BUFFER_SIZE = 8192, ESCAPE = 4, DOTS = 3 };

/* Tests a UTF-8 sequence for control characters (0 to 0x1f, 0x7f, and 0x80 to
 * 0x9f, which take two bytes), line separators, and characters that change the
 * text direction. */
static bool controls(const unsigned char *at, size_t length)
{
    if (length == 1)
        return at[0] < ' ' || at[0] == 0x7f;
    if (length == 2)
        return at[0] == 0xc2 && at[1] < 0xa0;
    if (length != 3 || at[0] != 0xe2)
        return false;
    return (at[1] == 0x80 && at[2] >= 0xa8 && at[2] <= 0xae) ||
           (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9);
}

const char *printable(core_string text)
{
    static char buffers[BUFFERS][BUFFER_SIZE];
    static unsigned next;
    char *buffer = buffers[next++ % BUFFERS];
    size_t used = 0, left = text.data ? text.size : 0;

    for (const char *at = text.data; left > 0;) {
        size_t length = core__utf8_sequence(at, left);
        bool bad = length == 0 || controls((const unsigned char *)at, length);
        size_t bytes = length ? length : 1;

        if (used + bytes * ESCAPE + DOTS >= BUFFER_SIZE) {
            memcpy(buffer + used, "...", DOTS);
            used += DOTS;
            break;
        }
        for (size_t i = 0; bad && i < bytes; i++)
            used += (size_t)snprintf(buffer + used, ESCAPE + 1, "\\x%02x",
                                     (unsigned char)at[i]);
        if (!bad) {
            memcpy(buffer + used, at, bytes);
            used += bytes;
        }
        at += bytes;
        left -= bytes;
    }
    buffer[used] = 0;
    return buffer;
}

const char *printable_text(const char *text)
{
    return printable((core_string){text, text ? strlen(text) : 0});
}
