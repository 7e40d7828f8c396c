/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* kept_text.h: texts that live until the process ends, such as the reasons that
 * plugins give. */

#ifndef CORE_DEVICE_KEPT_TEXT_H
#define CORE_DEVICE_KEPT_TEXT_H

#include <stddef.h>

/* Copies text, which need not be null-terminated and may be NULL if size is 0.
 * The copy is never freed; equal texts share one.  Returns NULL if no memory is
 * available.  The caller holds the lock of the devices. */
const char *core__keep_text(const char *text, size_t size);

#endif
