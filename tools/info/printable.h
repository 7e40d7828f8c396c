/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* printable.h: texts of plugins and drivers, fit for a terminal and a line. */

#ifndef INFO_CLEAN_H
#define INFO_CLEAN_H

#include <libcore/plugin.h>

/* What controls a terminal or ends a line, and what is no UTF-8, becomes \xNN;
 * NULL is "".  Good for eight calls, then the room is used again; what is too
 * long for it ends in "...". */
const char *clean(core_string text);
const char *clean_text(const char *text);

#endif
