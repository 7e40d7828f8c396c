/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* run.h: a run of a program (run.c), and the parts that prepared calls share
 * with it (prepare/prepared.h). */

#ifndef CORE_COMPILE_RUN_H
#define CORE_COMPILE_RUN_H

#include "compile/program/program.h"

typedef struct core__run core__run;

/* What a run does instead of calling operators, to find out what it would
 * do. */
typedef struct core__run_steps {
    core_status (*call)(core__run *r, core_operator *op, const core_value *args,
                        uint32_t nargs, core_value *results, uint32_t nresults);
    core_status (*copy)(core__run *r, core_tensor *to, core_tensor *from);
    /* True if nothing else reads the memory of a value that is used for the
     * last time. */
    bool (*owns)(const core__run *r, uint32_t value);
} core__run_steps;

struct core__run {
    core_program *program;
    core_tensor *const *inputs;
    core_device **devices; /* by index: where this run computes */
    core_tensor **tensors; /* by value, with references */
    core_value *numbers;   /* of this run */
    uint32_t node;
    bool checks;                  /* of the inputs */
    bool recorded;                /* by autograd */
    const core__run_steps *steps; /* NULL: operators are called */
    const uint32_t *last; /* by value: the last node that reads it, if nodes run
                           * in another order; else NULL */
};

/* The tensors of inputs and hidden inputs. */
core_status core__run_set_sources(core__run *r);
/* Calls the operator of r->node and sets its values. */
core_status core__run_node(core__run *r, const core__program_node *node);
/* Releases values that nothing reads after r->node. */
void core__run_drop(core__run *r, const core__program_node *node);
/* Output i, from the tensors of the values; outputs has those before it. */
core_status core__run_output(const core__run *r, uint32_t i,
                             core_tensor *const *outputs, core_tensor **out);
/* Copies the new contents of inputs and hidden inputs to them. */
core_status core__run_writes(core__run *r);
core_tensor *core__run_target(const core__run *r,
                              const core__program_write *write);
/* True if a write changes the storage of the tensor. */
bool core__run_is_target(const core__run *r, const core_tensor *tensor);
/* A tensor of the type, with undefined content. */
core_status core__run_new(const core__run *r, const core__program_type *type,
                          core_tensor **out_tensor);
/* A copy in the layout of the type. */
core_status core__run_copy(core__run *r, const core__program_type *type,
                           core_tensor *from, core_tensor **out_tensor);

/* Runs a program operator by operator. */
core_status core__program_run_operators(core_program *program,
                                        core_tensor *const *inputs,
                                        core_tensor **outputs);
/* The same, and autograd records the operators. */
core_status core__program_run_recorded(core_program *program,
                                       core_tensor *const *inputs,
                                       core_tensor **outputs);

/* ------------------------------------------------------------- numbers -- */

/* Reads the numbers of a run; out has program->nnumbers entries.  REFUSED if
 * they cannot be read as they were recorded. */
core_status core__program_read_numbers(const core_program *program,
                                       core_value *out);
/* True if an object whose calls the program makes was released. */
bool core__program_object_is_gone(const core_program *program);
/* True if core__program_read_numbers would succeed. */
bool core__program_numbers_hold(const core_program *program);
/* Reports what a run has done. */
void core__program_finish_run(const core_program *program);

#endif
