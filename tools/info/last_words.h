/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* last_words.h: what core-info says if a plugin crashes while it is opened. */

#ifndef INFO_LAST_WORDS_H
#define INFO_LAST_WORDS_H

/* From now on a fatal signal prints a line to standard error, which names the
 * plugin that is being opened, before it ends the process. */
void last_words_begin(void);
/* Signals do what they did before. */
void last_words_end(void);

#endif
