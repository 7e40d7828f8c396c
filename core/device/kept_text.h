/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* kept_text.h: texts that live until the process ends, such as the reasons that
 * plugins give. */

#ifndef CORE_DEVICE_KEPT_TEXT_H
#define CORE_DEVICE_KEPT_TEXT_H

#include <stddef.h>

/* Copies text, which need not end with a zero, until the process ends.  Equal
 * texts share one copy.  NULL if there is no memory.  With the lock of the
 * devices held. */
const char *core__keep_text(const char *text, size_t size);

#endif
