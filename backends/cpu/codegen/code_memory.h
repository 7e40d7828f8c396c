/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* code_memory.h: executable memory for generated code.
 *
 * Code is written to writable memory, which is then made executable and
 * read-only; no memory is ever writable and executable at once.  Kernels share
 * pages: a page to which code is appended is replaced by a copy with that code.
 * Thread-safe.  A forked child has copies, as of other memory. */

#ifndef CPU_CODE_MEMORY_H
#define CPU_CODE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

enum { CPU_CODE_MOST = 1 << 16 /* bytes of one piece of code */ };

/* Copies code to executable memory, aligned to 64 bytes.  Returns NULL if the
 * system does not permit that, or there is no memory. */
void *cpu_code_add(const void *bytes, uint32_t size);
/* Frees it.  NULL is allowed. */
void cpu_code_remove(void *code);
/* Whether the system has refused executable memory. */
bool cpu_code_refused(void);
/* Frees everything.  No other thread may use these functions, or the code. */
void cpu_code_shutdown(void);

#endif
