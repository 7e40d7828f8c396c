/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* optimizer.h: the common part of all optimizers.
 *
 * An optimizer is a list of parameters, each with its state, and a function
 * that steps one of them. */

#ifndef CORE_OPTIM_OPTIMIZER_H
#define CORE_OPTIM_OPTIMIZER_H

#include <libcore/optim.h>

#include <stdatomic.h>
#include <stdbool.h>

enum { CORE__OPTIMIZER_SLOTS = 2 };

/* Powers of the step count are computed in f64, which does not represent larger
 * counts exactly. */
#define CORE__OPTIMIZER_STEPS (UINT64_C(1) << 53)

typedef struct core__parameter {
    core_tensor *tensor;
    core_tensor *state[CORE__OPTIMIZER_SLOTS]; /* all are set, or none */
    uint64_t steps;
    uint32_t group;
    bool fresh; /* the state was made for a recording, and no step was counted
                 * yet: to others there is none */
} core__parameter;

/* Numbers of a step that differ from step to step.  A program that contains the
 * step reads them again at each run (dispatch/run_numbers.h). */
typedef enum core__step_number {
    CORE__STEP_COUNT, /* from 1 */
    CORE__STEP_RATE,
    CORE__STEP_MINUS_RATE,
    CORE__STEP_DECAY,       /* the factor of decoupled weight decay */
    CORE__STEP_SIZE,        /* Adam: minus the corrected rate */
    CORE__STEP_DENOMINATOR, /* Adam: the root of the second correction */
    CORE__STEP_FRACTION,    /* SGD: of the gradient that joins the momentum */
    CORE__STEP_IS_FIRST,    /* SGD: the momentum begins */
    CORE__STEP_NONE         /* not a number */
} core__step_number;

/* Parameters that step together; state as in the table's slots. */
typedef struct core__fused_lists {
    core_tensor **parameters, **grads, **state[CORE__OPTIMIZER_SLOTS];
    size_t count;
    bool begins; /* this is the first step: state is new */
} core__fused_lists;

typedef struct core__optimizer_table {
    const char *slots[CORE__OPTIMIZER_SLOTS + 1]; /* NULL-terminated */
    /* Called with grad mode off.  Allocates what it needs before it changes
     * anything.  The caller counts the step. */
    core_status (*step)(const core_optimizer *optimizer,
                        core__parameter *parameter, core_tensor *grad);
    /* Steps many parameters with the operator fused_op. */
    core_status (*fused)(const core_optimizer *optimizer,
                         const core__parameter *first,
                         const core__fused_lists *lists);
    uint32_t fused_op;
    /* `step` is a single operator: on a device without streams a fused step
     * saves little and must first find the parameters that share memory. */
    bool one_operator;
} core__optimizer_table;

/* The options of some of the parameters. */
typedef struct core__group {
    const core__optimizer_table *table;
    union {
        core_sgd_options sgd;
        core_adam_options adam;
    } options;
    double learning_rate; /* takes precedence over the one in options */
} core__group;

struct core_optimizer {
    uint64_t number; /* of this process; not that of any other optimizer */
    _Atomic uint32_t references; /* 1, and those of programs */
    core__parameter *parameters;
    size_t count;  /* 0: it was released; programs keep the struct alone */
    bool fresh;    /* some parameter may be */
    uint8_t *done; /* during a step: CORE__STEP_… for each parameter */
    core__group *groups; /* at least one; the tables have the same slots */
    uint32_t ngroups;
};

static inline const core__group *core__group_of(
    const core_optimizer *optimizer, const core__parameter *parameter)
{
    return &optimizer->groups[parameter->group];
}

/* A number of a step of a parameter.  While a program is recorded, *out becomes
 * a number that runs read: it must be argument number `argument` of the next
 * call. */
core_status core__step_number_next(const core_optimizer *optimizer,
                                   const core__parameter *parameter,
                                   core__step_number number, uint32_t argument,
                                   double *out);
/* Announces two numbers of the next call; second: or CORE__STEP_NONE. */
core_status core__step_numbers_next(const core_optimizer *optimizer,
                                    const core__parameter *parameter,
                                    core__step_number first,
                                    uint32_t first_argument,
                                    core__step_number second,
                                    uint32_t second_argument);
/* Counts a step of a parameter, which was made together with `other`; in a
 * recording, runs will. */
core_status core__step_count(const core_optimizer *optimizer,
                             core__parameter *parameter,
                             const core__parameter *other);

/* Checks the parameters.  function: the public one, for messages. */
core_status core__optimizer_create(const char *function,
                                   const core__group *group,
                                   core_tensor *const *parameters, size_t count,
                                   core_optimizer **out_optimizer);

/* Makes these parameters of the optimizer another group (optim.h). */
core_status core__optimizer_set_group(const char *function,
                                      core_optimizer *optimizer,
                                      const core__group *group,
                                      core_tensor *const *parameters,
                                      size_t count);

/* Returns UNSUPPORTED during a capture: its launches would not repeat the host
 * part of `step`. */
core_status core__optimizer_check_capture(const core__parameter *parameter,
                                          const char *step);

enum {
    CORE__STEP_DUE = 0,
    CORE__STEP_DONE = 1,
    CORE__STEP_ALONE = 2 /* it writes memory that something else uses */
};

/* Steps and counts the parameters that fused operators can step; done[i]
 * becomes CORE__STEP_DONE for them. */
core_status core__optimizer_fused(core_optimizer *optimizer, uint8_t *done);

/* Returns an error that names the option unless value is finite and 0 or
 * more. */
core_status core__optimizer_check_option(double value, const char *option);

#endif
