/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#ifndef GPU_WARN_ONCE_H
#define GPU_WARN_ONCE_H

#include <stdatomic.h>

/* Logs a warning the first time that it is called with this flag: for
 * conditions that make results slower, not wrong.  Thread-safe. */
__attribute__((format(printf, 2, 3))) void gpu_warn_once(atomic_flag *warned,
                                                         const char *format,
                                                         ...);

#endif
