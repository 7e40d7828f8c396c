/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* program.h: the structs of a program.
 *
 * A program is in SSA form.  Values have numbers; each is defined once, by an
 * input, a hidden input or a node, before it is used.  Nodes are in the order
 * in which they run: random nodes keep it, so that each draws the numbers that
 * the function would have drawn; others depend only on their arguments.
 *
 * Nodes are functional.  One whose operator writes arguments (`written`) leaves
 * them as they are: the operator gets copies, and the copies are further values
 * of the node.  Writes to inputs and hidden inputs are copies at the end, after
 * every node and every output.
 *
 * A value has exactly the strides of its type: a run copies a result for which
 * a device has chosen others, so that views may be made from strides.  In two
 * operators the offset counts from the first element of self, wherever that is
 * in its storage: as_strided and as_strided_scatter. */

#ifndef CORE_COMPILE_PROGRAM_H
#define CORE_COMPILE_PROGRAM_H

#include "codegen/loop_kernel.h"
#include "dispatch/operator.h"
#include "dispatch/run_numbers.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <libcore/compile.h>

#include <string.h>

enum { CORE__NO_VALUE = UINT32_MAX };

/* What a tensor is known to be before it has content. */
typedef struct core__program_type {
    uint8_t dtype;
    uint8_t ndim;
    uint16_t device;     /* index of program->devices */
    const int64_t *dims; /* ndim sizes, then ndim strides; in the arena */
} core__program_type;

typedef enum core__value_source {
    CORE__VALUE_OF_INPUT,
    CORE__VALUE_OF_HIDDEN,
    CORE__VALUE_OF_NODE
} core__value_source;

typedef struct core__program_value {
    core__program_type type;
    uint8_t source; /* core__value_source */
    uint32_t index; /* of the input, hidden input or node */
    uint32_t last;  /* the last node that reads it; CORE__NO_VALUE: none.  Set
                     * by core__program_finish */
    bool kept;      /* an output or a write reads it.  Set there, too */
} core__program_value;

/* An argument or result of a node: a core_value, in which tensors are numbers
 * of values, and devices and generators indices. */
typedef struct core__program_argument {
    uint32_t tag;   /* CORE_VALUE_… */
    uint32_t count; /* of lists and strings */
    union {
        int64_t i; /* INT, BOOL, DTYPE, FORMAT, LAYOUT; of
                    * CORE__ARGUMENT_NUMBER: the index */
        double f;
        uint32_t value;         /* TENSOR */
        uint32_t device;        /* DEVICE: of program->devices */
        uint32_t generator;     /* GENERATOR: of program->generators */
        const uint32_t *values; /* TENSOR_LIST; CORE__NO_VALUE: absent */
        const int64_t *ints;
        const double *floats;
        const uint8_t *bools;
        const char *string;
        const void *pointer;
    } u;
} core__program_argument;

typedef struct core__program_node {
    core_operator *op; /* custom operators are looked up by name at each use,
                        * because they may be unregistered: NULL */
    const char *name;
    uint32_t nargs;
    uint32_t nresults; /* of the operator */
    uint32_t written;  /* mask of the arguments that the operator writes */
    uint32_t first;    /* its values are numbered from here: */
    uint32_t nvalues; /* new tensors among the results, then the written ones */
    const core__program_argument *args;
    /* NONE: absent, or a written argument that the operator returns */
    const core__program_argument *results;
    uint64_t draws; /* blocks of random numbers, without those of regions */
    core_program *const *regions; /* with references (compile/program/region.h);
                                   * NULL: none */
    bool backward; /* autograd called it after the function: joint_trace.h */
} core__program_node;

typedef struct core__program_input {
    core__program_type type;
    uint32_t value; /* CORE__NO_VALUE: it is a view of input `base` */
    uint32_t base;  /* CORE__NO_VALUE: of none */
    int64_t offset; /* elements from base's first to its first */
    bool written;   /* it, or its base.  Set by core__program_finish */
} core__program_input;

typedef struct core__program_hidden {
    core_tensor *tensor; /* with a reference */
    uint32_t value;
    bool written; /* set by core__program_finish */
    /* The function made it from data of the host, so nothing else has it.  The
     * program has a second reference, so that it never looks released. */
    bool constant;
    uint8_t checksum[16]; /* of the data */
} core__program_hidden;

/* True if two programs read the same tensor, or equal constants. */
static inline bool core__same_hidden(const core__program_hidden *a,
                                     const core__program_hidden *b)
{
    return a->tensor == b->tensor ||
           (a->constant && b->constant &&
            memcmp(a->checksum, b->checksum, sizeof a->checksum) == 0);
}

/* Retains the tensor as often as a program has it. */
static inline void core__hidden_retain(const core__program_hidden *hidden)
{
    core__tensor_retain(hidden->tensor);
    if (hidden->constant)
        core__tensor_retain(hidden->tensor);
}

/* Releases it that often; it may be NULL. */
static inline void core__hidden_release(const core__program_hidden *hidden)
{
    if (hidden->tensor && hidden->constant)
        core__tensor_release(hidden->tensor);
    core__tensor_release(hidden->tensor);
}

/* The tag of an argument that is a number of program->numbers. */
enum { CORE__ARGUMENT_NUMBER = 64 };

/* A number that is read at the start of each run (dispatch/run_numbers.h). */
typedef struct core__program_number {
    const core__run_source *source;
    void *object; /* with a reference */
    uint32_t part, number, earlier;
    core_value recorded; /* what it was in the recording */
} core__program_number;

/* What is reported at the end of each run. */
typedef struct core__program_finish_call {
    const core__run_source *source;
    void *object; /* with a reference */
    uint32_t part, other;
} core__program_finish_call;

/* A tensor that the function knows besides its inputs, but is one, or a view of
 * one.  A run checks that this still holds. */
typedef struct core__program_known {
    core_tensor *tensor; /* with a reference */
    uint32_t input;
    int64_t offset;
} core__program_known;

typedef enum core__output_kind {
    CORE__OUTPUT_VALUE,
    CORE__OUTPUT_INPUT,
    CORE__OUTPUT_HIDDEN,
    CORE__OUTPUT_SAME /* the tensor of an earlier output */
} core__output_kind;

/* How an output is made of its source. */
typedef enum core__output_view {
    CORE__OUTPUT_WHOLE, /* the tensor itself */
    CORE__OUTPUT_VIEW,
    CORE__OUTPUT_DETACHED /* on its memory, but without a base */
} core__output_view;

/* Outputs with the same value share its memory. */
typedef struct core__program_output {
    uint8_t kind;
    uint8_t view;            /* core__output_view */
    uint32_t index;          /* of the value, input, hidden input or output */
    core__program_type type; /* device: of the source */
    int64_t offset;          /* elements from the first of the source */
    core_tensor *tensor;     /* the view itself, with a reference, if it existed
                              * before the call; NULL: a new one in each run */
} core__program_output;

typedef struct core__program_write {
    bool hidden; /* to a hidden input */
    uint32_t index;
    uint32_t value;
} core__program_write;

/* Arrays grow with core__program_grow; what they point to is in the arena. */
typedef struct core__prepared_calls core__prepared_calls; /* prepared.h */
typedef struct core__replay core__replay;                 /* replay.h */
typedef struct core__program_block core__program_block;

#define CORE__NO_BLOCKS UINT64_MAX

/* How prepared calls run, where that is not left to the device. */
typedef struct core__tuning {
    core__loop_division division; /* of the loops of groups */
    uint64_t row_block;           /* bytes of a block of rows; 0: the device's;
                         * CORE__NO_BLOCKS: all rows at once */
    uint64_t epilogues; /* 1: groups run on parts of products where they can */
} core__tuning;

struct core_program {
    _Atomic uint32_t references;
    core_device **devices;       /* with references */
    core_generator **generators; /* the same */
    core__program_input *inputs;
    core__program_hidden *hidden;
    core__program_known *known;
    /* Other tensors on the memory of an input or hidden input that the function
     * read and that existed before the call, with references.  A run does not
     * need them; they show a compiled function what it depends on. */
    core_tensor **aliases;
    core__program_value *values;
    core__program_node *nodes;
    core__program_output *outputs;
    core__program_write *writes;
    core__program_number *numbers;
    core__program_finish_call *finishes;
    uint32_t nnumbers, nfinishes;
    uint32_t ndevices, ngenerators, ninputs, nhidden, nknown, naliases, nvalues,
        nnodes, noutputs, nwrites;
    bool frozen;         /* freeze.h */
    uint32_t nfolded;    /* nodes that were computed when it was frozen */
    uint32_t registered; /* core__registry_generation at that time */
    core__prepared_calls *_Atomic prepared; /* NULL until one is made */
    core__replay *_Atomic replay;           /* replay.h; NULL: none */
    bool recomputes;      /* prepared calls may (recompute.h) */
    uint8_t codegen;      /* of its prepared calls: CORE_COMPILE_CODEGEN_…,
                           * or CORE__CODEGEN_MEASURED */
    bool reorders;        /* their kernels may: CORE_COMPILE_REORDER_SUMS */
    core__tuning tuning;  /* of its prepared calls, to measure them */
    core_program *parent; /* whose arena has parts of this one, with a
                           * reference; NULL: none */
    core__program_block *blocks; /* of the arena */
    size_t used, capacity;       /* of the newest block */
};

/* ------------------------------------------------------------ building -- */

core_status core__program_new(core_program **out_program);
/* Memory that lives as long as the program; NULL: none. */
void *core__program_alloc(core_program *program, size_t size);
/* Frees that memory. */
void core__program_free_blocks(core_program *program);
/* Adds an element of `size` bytes, zeroed, to an array with *count elements.
 * NULL: no memory. */
void *core__program_grow(void *array, uint32_t *count, size_t size);
core_status core__program_device(core_program *program, core_device *device,
                                 uint32_t *out_index);
core_status core__program_generator(core_program *program,
                                    core_generator *generator,
                                    uint32_t *out_index);
core_status core__program_type_set(core_program *program, core_dtype dtype,
                                   uint32_t ndim, const int64_t *sizes,
                                   const int64_t *strides, uint32_t device,
                                   core__program_type *out_type);
core_status core__program_add_value(core_program *program,
                                    const core__program_type *type,
                                    core__value_source source, uint32_t index,
                                    uint32_t *out_value);
/* Copies an argument without tensors to the arena.  Tensors are left for the
 * caller to set. */
core_status core__program_add_constant(core_program *program,
                                       const core_value *value,
                                       core__program_argument *out_argument);
/* Appends a node: copies args and results, which are in the arena already. */
core_status core__program_add_node(core_program *program,
                                   const core__program_node *node,
                                   uint32_t *out_index);
/* Computes what is derived: the last use of each value, and what is written. */
void core__program_finish(core_program *program);

/* ------------------------------------------------------------- reading -- */

static inline const int64_t *core__type_sizes(const core__program_type *type)
{
    return type->dims;
}

static inline const int64_t *core__type_strides(const core__program_type *type)
{
    return type->dims + type->ndim;
}

/* True if a node does more than to compute its values: it draws, may fail on
 * purpose, or is an operator of a program or plugin. */
bool core__node_acts(const core__program_node *node);

/* True if an argument is a number that is read in each run. */
bool core__node_reads_number(const core__program_node *node);
/* True for a node that may run again in the backward. */
bool core__node_may_recompute(const core__program_node *node);

bool core__types_equal(const core__program_type *a,
                       const core__program_type *b);
/* An argument without tensors as the operator receives it. */
core_value core__program_constant(const core_program *program,
                                  const core__program_argument *argument);
/* The operator of a node; NOT_FOUND if it was unregistered. */
core_status core__node_operator(const core__program_node *node,
                                core_operator **out_op);
/* Calls visit for each value among the arguments. */
void core__node_each_value(const core__program_node *node,
                           void (*visit)(void *context, uint32_t value),
                           void *context);
/* True for an operator that writes all of its first argument without reading
 * it: copy_, fill_, random numbers. */
bool core__operator_overwrites(const core_operator *op);
/* True for a node whose value shares memory with its first argument. */
static inline bool core__operator_is_view(const core_operator *op)
{
    return op->family == CORE__FAMILY_VIEW;
}

/* Compares two programs.  False: they differ, and text says where. */
bool core__programs_equal(const core_program *a, const core_program *b,
                          char *text, size_t size);

/* True if hidden input i of a frozen program must not change.  Tensors of
 * inference mode are not frozen, nor is what may change without its version:
 * running statistics that a batch norm has changed. */
static inline bool core__program_is_frozen(const core_program *program,
                                           uint32_t i)
{
    const core__program_hidden *hidden = &program->hidden[i];

    return program->frozen && !hidden->written && !hidden->constant &&
           !(hidden->tensor->flags & CORE__TENSOR_INFERENCE) &&
           !core__storage_varies(hidden->tensor->storage);
}

/* True if an input is still the tensor, or the view of it, that the function
 * knows. */
static inline bool core__known_holds(const core__program_known *known,
                                     core_tensor *const *inputs)
{
    const core_tensor *input = inputs[known->input];

    return known->tensor->storage == input->storage &&
           known->tensor->offset - input->offset == known->offset;
}

/* ----------------------------------------------------------- inference -- */

/* Creates a tensor on meta of a type. */
core_status core__program_stand_in(const core__program_type *type,
                                   core_tensor **out_tensor);
/* Calls an operator on meta: args has tensors on meta, results receives tensors
 * on meta.  *out_draws: blocks of random numbers. */
core_status core__program_infer(core_operator *op, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults, uint64_t *out_draws);

/* Of all elements. */
static inline uint64_t core__type_bytes(const core__program_type *type)
{
    uint64_t bytes = core__dtype_size(type->dtype);

    for (uint32_t i = 0; i < type->ndim; i++)
        bytes *= (uint64_t)core__type_sizes(type)[i];
    return bytes;
}

#endif
