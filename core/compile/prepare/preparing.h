/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* preparing.h: what the parts of preparing calls share. */

#ifndef CORE_COMPILE_PREPARING_H
#define CORE_COMPILE_PREPARING_H

#include "compile/prepare/prepared.h"

enum {
    CORE__PREPARE_NEVER = UINT32_MAX,
    CORE__PREPARE_WORTH_IT =
        32 /* results are computed again if that saves this part */
};

typedef struct core__prepared_buffer {
    uint8_t kind;   /* core__source_kind */
    uint32_t index; /* of the input or hidden input; else of the value that is
                     * all of it, or NO_VALUE */
    /* Of a stand-in: with a reference while something may still refer to it. */
    core_storage *storage;
    core_memory start;
    uint64_t size;
    uint32_t first, last; /* steps that use it; NEVER */
    bool seen;            /* a node that is called as an operator uses it */
    /* Another buffer in which it is, and how far from the start; NEVER: none */
    uint32_t into;
    uint64_t distance;
    uint32_t taken; /* the step whose output is in its place; NEVER */
    uint32_t source;
    uint64_t offset; /* in the arena */
} core__prepared_buffer;

/* A change of the content of a tensor by a step. */
typedef struct core__prepared_change {
    uint32_t step;
    core__operand_tensor *tensor;
} core__prepared_change;

typedef struct core__preparing {
    core__run run; /* first */
    core_device *device;
    core__prepared *to;
    core__prepared_buffer *buffers;
    uint32_t nbuffers;
    uint32_t *live; /* buffers with a reference to a storage */
    uint32_t nlive;
    uint32_t *value_buffers; /* by value */
    uint32_t *last;          /* by value: the last node that reads it */
    const uint32_t *order;   /* of the nodes */
    core__prepared_change *changes;
    uint32_t nchanges;
    core__launch_log log;
    const char *reason; /* why the program cannot be prepared */
    bool copied;        /* a value that is written, before any is written */
    /* The target of a write, while it is prepared. */
    const core_tensor *target;
    uint32_t target_buffer;
} core__preparing;

/* prepare.c */

/* The error of a lack of memory for buffers. */
core_status core__prepare_no_memory(void);
/* Not an error for the caller of a compiled function. */
core_status core__prepare_refuse(core__preparing *p, const char *reason);
/* core__prepare without the passes before it. */
core_status core__prepare_set(core_program *program, core_tensor *const *inputs,
                              core__fusion *fusion,
                              core__prepared **out_prepared,
                              const char **out_reason);

/* prepare_launches.c */

/* Adds a buffer for the storage of a tensor. */
core_status core__prepare_add_buffer(core__preparing *p, core__source_kind kind,
                                     uint32_t index, const core_tensor *tensor,
                                     uint32_t *out_buffer);
/* Forgets storages to which nothing else refers. */
void core__prepare_drop_unused_buffers(core__preparing *p, bool all);
/* The step that is prepared uses the buffer. */
void core__prepare_use_buffer(core__preparing *p, uint32_t index);
/* The live buffer of a storage; NEVER: none. */
uint32_t core__prepare_find_live(const core__preparing *p,
                                 const core_storage *storage);
/* The buffer of a tensor that a node uses; one of its own if its storage is
 * new. */
core_status core__prepare_buffer_of(core__preparing *p,
                                    const core__program_node *node,
                                    const core_tensor *tensor,
                                    uint32_t *out_buffer);
/* How far memory is from the start of a buffer, in bytes. */
uint64_t core__prepare_distance_of(const core__preparing *p, uint32_t buffer,
                                   core_memory memory);
/* The operand whose tensor this is. */
core__operand_tensor *core__prepare_operand_of(core_tensor *tensor);
/* Finds the buffers of the operands of a launch. */
core_status core__prepare_take_operands(core__preparing *p,
                                        const core__program_node *node,
                                        core__logged_launch *launch);
/* Takes over the launch, which may be NULL. */
core_status core__prepare_add_step(core__preparing *p, core__step_kind kind,
                                   uint32_t index, core__logged_launch *launch);
/* Makes steps of the launches of a node, or (NULL) of a copy. */
core_status core__prepare_take_log(core__preparing *p,
                                   const core__program_node *node);
/* From now on the run notes the kernels that operators launch. */
void core__prepare_log_calls(core__preparing *p);

/* prepare_nodes.c */

/* The same for the buffer of a value; context: core__preparing. */
void core__prepare_use_value(void *context, uint32_t value);
/* Runs all nodes on stand-ins, and takes their launches. */
core_status core__prepare_nodes(core__preparing *p);
/* Makes the buffers of inputs and hidden inputs. */
core_status core__prepare_sources(core__preparing *p);

/* prepare_writes.c */

/* The memory of a value that the caller receives is new in each call. */
void core__prepare_output(core__preparing *p,
                          const core__program_output *output);
/* True for equal sizes and strides. */
bool core__prepare_same_layout(const core_tensor *a, const core_tensor *b);
/* The buffer in whose memory a buffer is, perhaps itself. */
uint32_t core__prepare_root_of(const core__preparing *p, uint32_t buffer);
/* True if a launch may have the target in the place of its output `buffer`: it
 * is a loop, and reads exactly the elements of the target that it writes. */
bool core__prepare_in_place(const core__preparing *p,
                            core__logged_launch *launch,
                            const core_tensor *target, uint32_t buffer,
                            uint32_t from, uint64_t distance);
/* Prepares the copies to inputs and hidden inputs. */
core_status core__prepare_writes(core__preparing *p);

/* prepare_finish.c */

/* Makes the steps of the set, and plans its arena. */
core_status core__prepare_steps(core__preparing *p);

#endif
