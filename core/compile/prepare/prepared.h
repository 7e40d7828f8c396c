/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* prepared.h: prepared calls of a program.
 *
 * What a call of a program must do at least, on a device without streams: find
 * out which program serves it (guard.c), take an arena, compare the memory of
 * each input with that of the last call, create the outputs, call each kernel,
 * and hand the outputs over.  No operator is dispatched, nothing is inferred,
 * and no memory is allocated except for the outputs.
 *
 * So the first call notes, node by node, which kernels the operators launch
 * with which operands (dispatch/launch_log.h).  Each operand is a place at a
 * distance from the start of a source of memory: the arena, an input, a hidden
 * input, an output, or a result of a node that cannot be prepared and is called
 * as an operator each time.  Intermediate results share the arena
 * (memory_plan.c).
 *
 * The calls of kernels are changed before they are launched, so one thread at a
 * time uses them: a program has a few sets (core__prepared), each with its own
 * arena, and a call takes one out.  On a device with streams an arena belongs
 * to the stream in whose order its memory is reused.
 *
 * Kernels are ready only for the state in which they were noted.  A call in
 * another state is run operator by operator: with a mode, a profiler's session
 * or a log of calls, in which each operator must be seen, in a memory pool, and
 * in a capture.  When anything is registered, sets are made again. */

#ifndef CORE_COMPILE_PREPARED_H
#define CORE_COMPILE_PREPARED_H

#include "compile/fusion/fusion.h"
#include "compile/prepare/epilogue.h"
#include "compile/prepare/memory_plan.h"
#include "compile/prepare/row_blocks.h"
#include "compile/run/run.h"
#include "dispatch/launch_log.h"

/* To which addresses of inputs may be aligned; what depends on it is compared
 * before a call. */
enum { CORE__INPUT_ALIGNMENT = 16 };

/* Larger arenas return to the device's allocator after each call, so that
 * programs that are rarely called do not hold them. */
enum { CORE__KEPT_ARENA = 1 << 20 };

typedef enum core__source_kind {
    CORE__SOURCE_ARENA,
    CORE__SOURCE_INPUT,
    CORE__SOURCE_HIDDEN,
    CORE__SOURCE_OUTPUT, /* a new tensor in each call */
    CORE__SOURCE_NODE    /* a result of a node that is called as an operator */
} core__source_kind;

/* Where operands are: addresses of memory in the call of a kernel. */
typedef struct core__place {
    core_memory *at;
    uint32_t source;
    uint64_t distance; /* bytes from the start of the source */
} core__place;

/* A tensor that a kernel call refers to: with the layout of an operand, without
 * references, on the storage of a source. */
typedef struct core__operand_tensor {
    core_tensor tensor;
    uint32_t source;
    uint64_t distance;
} core__operand_tensor;

typedef struct core__source {
    uint8_t kind; /* core__source_kind */
    /* An output: */
    bool row_major;
    bool rewritten;          /* several launches of a call write it */
    uint16_t kind_of_tensor; /* core_tensor.kind */
    int64_t numel;
    uint32_t index; /* of the input or hidden input; else of the value whose
                     * tensor it is */
    /* As of the last call: */
    core_storage *storage;
    core_memory memory;
    /* Its places and tensors are consecutive. */
    uint32_t places, nplaces, tensors, ntensors;
} core__source;

typedef enum core__step_kind {
    CORE__STEP_DIRECT, /* only calls a kernel, on a synchronous device */
    CORE__STEP_LAUNCH,
    CORE__STEP_FUSED,    /* launches the kernel of a group */
    CORE__STEP_NODE,     /* calls the operator */
    CORE__STEP_WRITE,    /* copies a value to a target as an operator */
    CORE__STEP_ROWS,     /* runs a chain block of rows by block of rows */
    CORE__STEP_EPILOGUE, /* runs a product, and a group on its result */
    CORE__STEP_NOTHING
} core__step_kind;

typedef struct core__step {
    uint8_t kind;
    uint32_t index; /* of the node, the write, the chain or the epilogue */
    core__logged_launch *launch;
    /* Before the step: outputs that are created.  After it: storages whose
     * version changes, and values that are released. */
    uint32_t creations, ncreations, changes, nchanges, releases, nreleases;
} core__step;

/* The launch of a group's kernel, described like that of an operator's. */
typedef struct core__fused_launch {
    core__logged_launch launch; /* first */
    core__kernel_call run;
    const core__fused_group *group; /* of the set's fusion */
} core__fused_launch;

/* tensors: by value, of the operands.  core__logged_launch_free frees it. */
core_status core__fused_launch_new(const core_program *program,
                                   const core__fusion *fusion,
                                   const core__fused_group *group,
                                   core_tensor *const *tensors,
                                   core__logged_launch **out_launch);

/* An argument of a kernel that is a number of each run. */
typedef struct core__number_place {
    core_value *at;
    core_operand *operand; /* that has it, too; or NULL */
    uint32_t number;
} core__number_place;

typedef struct core__prepared {
    core_program *program; /* without a reference */
    core_program *own;     /* that is the program; NULL: it is the caller's */
    core__fusion *fusion;
    bool waits; /* the fusion does */
    core_device *device;
    void *impl; /* of the device */
    uint32_t registered, call_flags, generation;
    uint64_t stream; /* the number of the stream */
    uint64_t arena_size;
    core_tensor *arena;    /* bytes; NULL: none yet */
    core__source *sources; /* the first is the arena */
    core__place *places;
    core__operand_tensor **tensors;
    core__step *steps;
    core__row_blocks rows;
    core__epilogues epilogues;
    core_tensor **changes; /* of `tensors` */
    uint32_t *releases;    /* values */
    uint32_t *creations;   /* sources; from `unused` on, of outputs that no step
                            * uses */
    uint32_t unused, ncreations;
    bool *moves;             /* by output: nothing else needs its value */
    uint32_t *held;          /* values whose tensors a call may hold */
    uint64_t *arena_offsets; /* by value; UINT64_MAX: not in the arena */
    uint32_t *value_sources; /* by value; CORE__NO_VALUE: has none itself */
    core_tensor **real;      /* by value: tensors during a call */
    core_value *numbers;     /* of the call */
    core__number_place *number_places;
    uint32_t nnumber_places;
    core__operator_reason *unprepared; /* nodes called as operators */
    uint32_t nsources, nplaces, ntensors, nsteps, nchanges, nreleases, nheld,
        nunprepared;
    bool moves_all;    /* no tensor is held after a call */
    bool rewrites;     /* some outputs are rewritten */
    uint32_t launches; /* steps that launch */
    uint32_t nodes;    /* nodes that are prepared, and views of them */
    bool operators;    /* some steps or outputs need tensors of values */
} core__prepared;

/* Finds out how the program can be run with inputs such as these.  UNSUPPORTED:
 * not at all; *out_reason tells why, static.  fusion: of an earlier set, or
 * NULL. */
core_status core__prepare(core_program *program, core_tensor *const *inputs,
                          core__fusion *fusion, core__prepared **out_prepared,
                          const char **out_reason);
void core__prepared_free(core__prepared *prepared);

/* The stream of a call that need not be run operator by operator; NULL: it is
 * observed, or its memory is special. */
core_stream *core__program_plain_stream(core__thread *self,
                                        const core_program *program);

/* core_program_run without its checks, and by prepared calls where possible:
 * the inputs have the layouts, devices and aliases of the recording, and the
 * thread is in its state (guard.c). */
core_status core__program_run_checked(core_program *program,
                                      core_tensor *const *inputs,
                                      core_tensor **outputs);

/* What explain tells about the prepared calls of a program. */
typedef struct core__prepared_facts {
    _Atomic uint32_t references;
    uint32_t registered; /* registrations when they were found */
    uint32_t nodes, launches;
    uint32_t recomputed; /* nodes, besides those, of the changed program */
    uint64_t arena_size;
    const core__operator_reason *unprepared;
    uint32_t nunprepared;
    core__fusion *fusion;            /* with a reference */
    core__row_facts *rows;           /* the same */
    core__epilogue_facts *epilogues; /* the same */
} core__prepared_facts;

/* The sets of a program. */
enum { CORE__PREPARED_SETS = 4 };
struct core__prepared_calls {
    core__prepared *_Atomic sets[CORE__PREPARED_SETS]; /* that no call uses */
    _Atomic uint32_t dropped;    /* sets, to make room for others */
    const char *_Atomic reason;  /* why there is none; NULL: there are */
    _Atomic uint32_t refused;    /* registrations when it was found */
    core__prepared_facts *facts; /* of the first set after a registration;
                                  * under core__compiled_lock */
    /* Of the newest set, with a reference, unless a set is being made. */
    core__fusion *_Atomic fusion;
};

/* Returns a reference to the facts, which core__prepared_facts_release drops;
 * NULL: nothing is prepared, for *out_reason, which is NULL if no call has got
 * that far. */
core__prepared_facts *core__prepared_describe(core_program *program,
                                              const char **out_reason);
/* Accepts NULL. */
void core__prepared_facts_release(core__prepared_facts *facts);
/* How long this process has prepared calls: all passes after recording. */
uint64_t core__prepared_spent_ns(void);
/* Frees all sets of a program. */
void core__prepared_calls_free(core_program *program);

#endif
