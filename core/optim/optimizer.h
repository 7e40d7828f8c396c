/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* optimizer.h: what all optimizers share.
 *
 * An optimizer is a list of parameters, each with its state, and a function
 * that steps one of them. */

#ifndef CORE_OPTIM_OPTIMIZER_H
#define CORE_OPTIM_OPTIMIZER_H

#include <libcore/optim.h>

enum { CORE__OPTIMIZER_SLOTS = 2 };

/* Steps are powers in f64: more than 2^53 are not told apart. */
#define CORE__OPTIMIZER_STEPS (UINT64_C(1) << 53)

typedef struct core__parameter {
    core_tensor *tensor;
    core_tensor *state[CORE__OPTIMIZER_SLOTS]; /* all, or none */
    uint64_t steps;
} core__parameter;

/* Parameters that step together; state as in the table's slots. */
typedef struct core__fused_lists {
    core_tensor **parameters, **grads, **state[CORE__OPTIMIZER_SLOTS];
    size_t count;
    bool begins; /* it is the first step: state is new */
} core__fused_lists;

typedef struct core__optimizer_table {
    const char *slots[CORE__OPTIMIZER_SLOTS + 1]; /* NULL behind the last */
    /* Called with grad mode off.  Gets what memory it needs before it changes
     * anything.  The caller counts the step. */
    core_status (*step)(const core_optimizer *optimizer,
                        core__parameter *parameter, core_tensor *grad);
    /* The same of many at once, by the operator of this id. */
    core_status (*fused)(const core_optimizer *optimizer,
                         const core__parameter *first,
                         const core__fused_lists *lists);
    uint32_t fused_op;
    /* `step` is one operator: on a device without streams one pass over many
     * parameters saves little, and has to see first which share memory. */
    bool one_operator;
} core__optimizer_table;

struct core_optimizer {
    const core__optimizer_table *table;
    core__parameter *parameters;
    size_t count;
    uint8_t *done; /* in a step, of each parameter: one of the following */
    union {
        core_sgd_options sgd;
        core_adam_options adam;
    } options;
    double learning_rate; /* this one counts, not the one in options */
};

/* Checks the parameters; the options are the caller's to fill in. */
core_status core__optimizer_create(const core__optimizer_table *table,
                                   core_tensor *const *parameters, size_t count,
                                   double learning_rate,
                                   core_optimizer **out_optimizer);

/* UNSUPPORTED inside a capture, whose launches would repeat what `step` does on
 * the host this once. */
core_status core__optimizer_not_captured(const core__parameter *parameter,
                                         const char *step);

enum {
    CORE__STEP_DUE = 0,
    CORE__STEP_DONE = 1,
    CORE__STEP_ALONE = 2 /* what it writes lies where something else does */
};

/* Steps what can be stepped by fused operators, and counts it; done[i] becomes
 * CORE__STEP_DONE for such a parameter. */
core_status core__optimizer_fused(core_optimizer *optimizer, uint8_t *done);

/* value >= 0 and finite, or an error that names the option. */
core_status core__optimizer_check(double value, const char *option);

#endif
