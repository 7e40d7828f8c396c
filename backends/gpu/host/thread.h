/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread.h: threads and signals. */

#ifndef GPU_THREAD_H
#define GPU_THREAD_H

#include <signal.h>

/* Blocks all signals in the calling thread, so that threads started by it, or by
 * a vendor's library that it calls, receive none.  The caller restores
 * *out_before with gpu_signals_restore. */
void gpu_signals_block(sigset_t *out_before);
void gpu_signals_restore(const sigset_t *before);

/* Starts a detached thread that receives no signals.  Returns 0 on success. */
int gpu_thread_start(void *(*function)(void *), void *argument);

#endif
