/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* networks.h: whole networks of expressions.h on the current device. */

#ifndef TOOLS_BENCH_NETWORKS_H
#define TOOLS_BENCH_NETWORKS_H

#include "bench.h"

#include <libcore/network.h>

typedef struct bench_network {
    core_module *m;
    core_tensor *(*run)(struct bench_network *network);
    core_tensor *x, *grad;
    void *context;
} bench_network;

/* Rows "NAME_fwd_SHAPE" without gradients, in the inference mode of batch norms,
 * and "NAME_fwd+bwd_SHAPE". */
void bench_network_rows(const char *name, const char *shape, uint32_t threads,
                        bench_network *network);
/* Runs the network once. */
void bench_network_forward(void *network);

/* Batches of a section's rows: 1 and 8; 1 alone if rows are only checked. */
int64_t bench_network_batches(void);
void bench_decoders(uint32_t threads, int64_t batch);

#endif
