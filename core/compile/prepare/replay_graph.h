/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* replay_graph.h: the device graphs of a program. */

#ifndef CORE_COMPILE_REPLAY_GRAPH_H
#define CORE_COMPILE_REPLAY_GRAPH_H

#include "compile/fusion/fusion.h"
#include "compile/prepare/replay.h"
#include "compile/prepare/replay_numbers.h"
#include "compile/run/run.h"

#include <libcore/capture.h>
#include <libcore/memory.h>

/* When a number that has changed counts as one that does not, and how often. */
enum { CORE__REPLAY_STEADY_CALLS = 8, CORE__REPLAY_REVIVALS = 2 };

/* What graphs of one device share. */
typedef struct core__replay_place {
    struct core__replay_place *next;
    core_device *device;
    uint32_t generation; /* of the device */
    core_memory_pool *pool;
    core_stream *stream; /* on which they are captured */
    core_stream *last;   /* of the last launch; NULL: none yet */
} core__replay_place;

struct core__replays {
    /* True while a call captures or launches: it has all that follows, and the
     * graphs. */
    _Atomic bool busy;
    core__replay_place *places;
    _Atomic uint64_t captures, launches, busy_calls;
};

typedef enum core__replay_state {
    CORE__REPLAY_FRESH,    /* not called yet, or what was captured is void */
    CORE__REPLAY_CALLED,   /* once: the next call is captured */
    CORE__REPLAY_CAPTURED, /* has a graph */
    CORE__REPLAY_NEVER     /* cannot be captured, for `reason` */
} core__replay_state;

struct core__replay {
    _Atomic uint32_t state;
    _Atomic uint64_t captures, launches;
    _Atomic uint32_t end;   /* how many nodes are in the graph */
    _Atomic uint32_t fused; /* kernels in the graph, of groups of operators */
    _Atomic uint32_t moved; /* inputs that are copied */
    uint32_t failures;
    char reason[240]; /* set before the state NEVER */
    /* Why the first node that is not in the graph is not: a number that it
     * reads, or a reason, static. */
    const char *_Atomic end_number, *_Atomic end_reason;
    _Atomic uint32_t end_node;
    core__replays *replays;
    core__fusion *fusion; /* with a reference; NULL: nothing is fused, and the
                           * nodes are in their order */
    core_graph *graph;
    core_stream *last; /* of the last launch of this graph */
    uint32_t generation, registered, call_flags;
    /* By input: */
    core_memory *input_memory;  /* of the last call, or of the capture */
    bool *copies;               /* it moves */
    core_tensor **buffers;      /* of those that move */
    core_memory *hidden_memory; /* by hidden input */
    core_value *numbers;        /* by number: of the capture */
    core_value *numbers_now;
    core__replay_numbers *device_numbers; /* that the graph reads, or NULL */
    bool *varies;                         /* by number */
    bool *refreshed;       /* by number: the graph reads it in each launch */
    uint8_t *steady;       /* by number that varies: calls since it changed */
    uint8_t *revived;      /* by number: how often it did no longer vary */
    core_tensor **results; /* by value: tensors of the graph that are read
                            * after it */
    core_tensor **tensors; /* by value: of a call */
    uint32_t *last_reader; /* by value, with fusion */
};

/* replay.c */

/* The place of a device, with a stream and a pool. */
core_status core__replay_find_place(core__replays *replays, core_device *device,
                                    core__replay_place **out_place);

/* replay_graph.c */

/* What is known of the graphs of a program, made if it is not there. */
core_status core__replay_of(core_program *program, core__replays *replays,
                            core__replay **out_replay);
/* Frees the graph and what it uses. */
void core__replay_drop_graph(const core_program *program, core__replay *r);
/* From the next call on, none is tried. */
void core__replay_never(core_program *program, core__replay *r,
                        const char *reason);
/* Writes which node is the first that is not in the graph, and why. */
void core__replay_describe_end(const core_program *program,
                               const core__replay *r, char *text, size_t size);

/* replay_capture.c */

/* Why a program is never captured, whatever its calls; NULL: no reason. */
const char *core__replay_refusal(const core_program *program);
/* Notes what has changed since the last call; *out_holds: nothing that the
 * graph depends on.  False: a tied input has moved. */
bool core__replay_note_changes(const core_program *program, core__replay *r,
                               core_tensor *const *inputs, bool *out_holds);
/* What the next call is compared with. */
void core__replay_note_first(const core_program *program, core__replay *r,
                             core_tensor *const *inputs);
/* Releases the tensors of a call. */
void core__replay_release_tensors(const core_program *program, core__replay *r);
/* Nodes that follow a graph are operators; those in it are groups, too. */
core_status core__replay_run_nodes(core__run *run, const core__replay *r,
                                   uint32_t first, uint32_t end, bool groups);
/* Captures the program.  *out_done: the call that wanted it has been made
 * without a graph, because the kernels need one more. */
core_status core__replay_capture(core_program *program, core__replay *r,
                                 core_tensor *const *inputs,
                                 core_tensor **outputs, bool *out_done);

#endif
