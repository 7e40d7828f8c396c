/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_recurrent.h: the parameters of the kernels of recurrent cells. */

#ifndef GPU_SHARED_RECURRENT_H
#define GPU_SHARED_RECURRENT_H

#include <gpu/shared.h>

/* Matrices of `count / units` rows: gates have 4 blocks (LSTM) or 3 (GRU) of
 * `units` columns, `saved` has 4 or 5, and the others have one.  Absent operands
 * are NULL. */
typedef struct gpu_cell {
    const void *input, *hidden, *input_bias, *hidden_bias; /* gates */
    const void *state;                                     /* c, or h */
    void *h, *c, *saved;
    int64_t count, units;
} gpu_cell;

/* The gradients of h and c; those of the gates (the parts of input and hidden
 * state are the same for LSTM) and of the state. */
typedef struct gpu_cell_grad {
    const void *grad_h, *grad_c, *state, *c, *saved;
    void *to_input, *to_hidden, *to_state;
    int64_t count, units;
} gpu_cell_grad;

#endif
