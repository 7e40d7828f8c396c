/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* joint_trace.h: a function and its backward, recorded as one program.
 *
 * After the function has returned, while its results still have their graph,
 * autograd computes the gradients of the tensors that the function used, and
 * these operators are appended to the program.  Its inputs are then
 *
 *   the inputs of the function; one gradient per root,
 *
 * and its outputs
 *
 *   the outputs of the function; the roots; gradients of sources, for each mask.
 *
 * A root is a result that requires grad: an output, or the tensor of which an
 * output is a view.  Views are made from roots again, outside of the program, by
 * the operators that made them, so that autograd sees views as it does
 * otherwise.  A source is a tensor that the function used and whose gradient a
 * backward may need: an input, or a tensor that it knows itself.
 *
 * A mask is a set of roots that have a gradient.  A gradient that is missing is
 * not the same as one of zeros: what leads to that root alone is not computed
 * then.  So the backward is recorded for several masks.  Parts that they have in
 * common are one in the simplified program. */

#ifndef CORE_COMPILE_JOINT_TRACE_H
#define CORE_COMPILE_JOINT_TRACE_H

#include "compile/record/trace.h"

enum {
    CORE__JOINT_ROOTS = 64,
    CORE__JOINT_ALL_MASKS = 3 /* roots of which every set is a mask.  Of more:
                               * all of them, and each alone */
};

/* A view operator and its arguments, except for the first. */
typedef struct core__view_step {
    core_operator *op;
    const core__program_argument *args; /* in the arena of the program */
    uint32_t nargs;
    uint32_t result; /* which one, of an operator that returns several */
} core__view_step;

typedef enum core__joint_kind {
    CORE__JOINT_PROGRAM, /* an output of the program */
    CORE__JOINT_SAME,    /* the tensor of an earlier output */
    CORE__JOINT_ROOT,    /* a root, or a view of it */
    CORE__JOINT_INPUT,   /* a view of an input */
    CORE__JOINT_DETACHED /* shares memory with a root, without history */
} core__joint_kind;

/* How an output of the function is made. */
typedef struct core__joint_output {
    uint8_t kind;
    bool alias;     /* a view of the whole that is another tensor */
    uint32_t index; /* of the output, root or input */
    uint32_t nsteps;
    core__view_step *steps; /* from the root or input on */
} core__joint_output;

typedef struct core__joint_source {
    core_tensor *tensor; /* borrowed from the program; NULL: an input */
    uint32_t input;
} core__joint_source;

/* What is known besides the program, in its arena. */
typedef struct core__joint {
    uint32_t ninputs, noutputs, nroots, nsources, nmasks;
    bool views; /* an output is made from a root or an input */
    core__joint_output *outputs;
    uint32_t *roots;        /* output of the program that is the root */
    uint32_t *root_outputs; /* output of the function that is the root or a view
                             * of it */
    core__joint_source *sources;
    uint64_t *masks;
    uint32_t *gradients; /* nmasks * nsources: output of the program, or
                          * CORE__NO_VALUE */
} core__joint;

/* core_program_trace, with the backward if there is a root; nroots is 0
 * otherwise. */
core_status core__joint_trace(core_tensor_function function, void *context,
                              core_tensor *const *inputs, size_t ninputs,
                              size_t max_outputs, core__joint *joint,
                              core_program **out_program);

/* Appends the backward of a function whose outputs are described. */
core_status core__joint_record(core__trace *trace,
                               core_tensor *const *stand_ins, uint32_t ninputs,
                               core_tensor *const *outputs, uint32_t noutputs,
                               core__joint *joint);

/* The root of an output of the function: the output, or what it is a view of. */
core_tensor *core__joint_root_of(core_tensor *output);

/* Makes the view of a root or input. */
core_status core__joint_view(const core_program *program,
                             const core__joint_output *output,
                             core_tensor *source, core_tensor **out_view);

#endif
