/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* crash_report.h: what core-info says if a plugin crashes while it is opened. */

#ifndef INFO_CRASH_REPORT_H
#define INFO_CRASH_REPORT_H

/* From now on a fatal signal prints a line to standard error, which names the
 * plugin that is being opened, before it ends the process. */
void crash_report_begin(void);
/* Signals do what they did before. */
void crash_report_end(void);

#endif
