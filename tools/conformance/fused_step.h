/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fused_step.h: a fused optimizer step on lists of tensors, which has no results
 * and changes these, and its reference on the CPU. */

#ifndef CONFORMANCE_FUSED_STEP_H
#define CONFORMANCE_FUSED_STEP_H

#include "suite.h"

enum {
    FUSED_LISTS = 4, /* self, grads, and the state */
    FUSED_FEW = 5,   /* tensors */
    FUSED_MANY = 150 /* more than the arguments of a launch have room for */
};

/* Adam follows SGD; in the last two, numbers are in memory of the device. */
enum { FUSED_STEPS = 4, FUSED_ON_DEVICE = 2, FUSED_NUMBERS = 3 };
extern const char *const fused_names[FUSED_STEPS];

/* Numbers of a step; found < 0: without found_inf, scale 0: without
 * grad_scale. */
typedef struct step {
    const char *what;
    double decay;
    double scale, found;
    bool other; /* nesterov, or decoupled */
    double momentum, dampening;
    bool first;
} step;

/* One step on one device. */
typedef struct lists {
    core_tensor *tensors[FUSED_LISTS][FUSED_MANY];
    core_tensor *scale, *found;
    core_tensor *numbers; /* NULL: they are arguments */
} lists;

typedef struct fused {
    suite *self;
    outcome *out;
    size_t which; /* of fused_names */
    core_dtype dtype;
    uint32_t count;   /* of tensors: FUSED_FEW or FUSED_MANY */
    int64_t large;    /* elements of one of few tensors */
    int64_t turned;   /* by so many places are the values */
    int64_t gradient; /* and the gradients by so many more */
    double rate;      /* the learning rate */
} fused;

uint32_t fused_lists(const fused *test);
/* Stores the numbers of a step that a tensor has, and returns how many. */
int64_t fused_numbers(const fused *test, const step *with,
                      double out[FUSED_NUMBERS]);
/* Makes the operands.  Call fused_release in any case. */
core_status fused_make(const fused *test, const step *with, core_device *device,
                       core_dtype dtype, lists *out);
void fused_release(lists *l);
/* Makes the step on the current stream. */
core_status fused_run(const fused *test, const step *with, lists *on);
/* Compares a list with that of the reference, in f64 on the CPU; gradients must
 * not have changed.  `when` ends the name of the step in messages. */
bool fused_holds(const fused *test, const step *with, uint32_t list,
                 const lists *device, const lists *host, const char *when);

#endif
