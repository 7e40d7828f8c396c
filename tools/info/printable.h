/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* printable.h: makes texts of plugins and drivers safe to print on a
 * terminal. */

#ifndef INFO_PRINTABLE_H
#define INFO_PRINTABLE_H

#include <libcore/plugin.h>

/* Replaces control characters, line ends and invalid UTF-8 by \xNN; NULL is "".
 * The result is valid until the eighth next call; a text that is too long is
 * cut and ends in "...". */
const char *printable(core_string text);
const char *printable_text(const char *text);

#endif
