/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* side_effects.h: what a call of the plugin does outside it: text on standard
 * output, which is the program's, and environment variables. */

#ifndef CONFORMANCE_SIDE_EFFECTS_H
#define CONFORMANCE_SIDE_EFFECTS_H

#include "slot_watch.h"

#include <stdbool.h>

/* The first effects of several calls. */
typedef struct side_effects {
    slot printer; /* SLOT_NONE: nothing was printed */
    char printed[96];
    slot setter; /* SLOT_NONE: no variable was changed */
    char variable[96];
} side_effects;

/* Redirects standard output to a file.  Without it nothing is noticed. */
void side_effects_redirect_output(void);
/* Passes the text that was printed since the last call on to standard error.
 * text: receives its beginning.  Returns whether there was any. */
bool side_effects_take_output(char *text, size_t capacity);

/* The environment before a call. */
typedef struct side_effects_before {
    char **variables; /* NULL: no memory */
} side_effects_before;
void side_effects_begin(side_effects_before *self);
void side_effects_end(side_effects_before *self, slot which,
                      side_effects *effects);

#endif
