/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sim.h: a simulated accelerator, small.
 *
 * It exists so that the plugin ABI is not shaped by the CPU alone: its memory
 * is named by handles that fault when the host touches them, nothing that is
 * given to its one stream happens before somebody waits, and it is built from
 * installed headers alone.  Its kernels are the CPU's, borrowed through the
 * host table and run on the memory behind the handles. */

#ifndef SIM_H
#define SIM_H

#include <libcore/sdk.h>

#include <pthread.h>
#include <stdint.h>

extern const core_host *sim_host;

/* -------------------------------------------------------------- memory -- */

extern const core_memory_table sim_memory_table;

int sim_memory_open(void);
void sim_memory_close(void);
/* The host address behind device memory; only for work that runs. */
void *sim_memory_address(core_memory memory);
/* Ends a block: what the stream does when it comes to a free. */
void sim_memory_end(core_memory memory);

/* -------------------------------------------------------------- stream -- */

extern const core_stream_table sim_stream_table;
extern const core_event_table sim_event_table;

typedef struct sim_work sim_work;
struct sim_work {
    sim_work *next;
    uint64_t number;
    core_status (*run)(sim_work *work); /* also frees what it holds */
    core_memory to;
    core_memory from;
    void *host;
    uint64_t size;
    uint64_t pattern;
    uint32_t pattern_size;
    uint32_t nargs;
    uint32_t nresults;
    core_call *call;
    const core_value *args;
    core_value *results;
    const core_kernel *kernel;
};

/* Appends a copy of *work to the stream. */
core_status sim_enqueue(const sim_work *work);
void sim_stream_close(void);

/* -------------------------------------------------------------- kernels -- */

/* Registers every kernel of the CPU under this device. */
core_status sim_register_kernels(core_registry *registry);
void sim_kernels_close(void);

#endif
