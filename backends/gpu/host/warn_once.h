/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#ifndef GPU_WARN_ONCE_H
#define GPU_WARN_ONCE_H

#include <stdatomic.h>

/* What a user may want to mend: results are right, and slower than they need
 * be.  A warning of the plugin's, the first time only that this flag comes.
 * From any thread. */
__attribute__((format(printf, 2, 3))) void gpu_warn_once(atomic_flag *warned,
                                                         const char *format,
                                                         ...);

#endif
