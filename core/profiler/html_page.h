/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* html_page.h: the HTML page around the data of html.c. */

#ifndef CORE_PROFILER_HTML_PAGE_H
#define CORE_PROFILER_HTML_PAGE_H

extern const char core__profile_page_head[];
extern const char core__profile_page_tail[];

#endif
