/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* recorded_call.h: what was recorded of a call, to be compared with another.
 *
 * Two recordings match if they differ in numbers alone, such as sizes.  The
 * numbers of a recording have an order that depends on the rest alone, so those
 * of two that match can be compared one by one. */

#ifndef CORE_COMPILE_RECORDED_CALL_H
#define CORE_COMPILE_RECORDED_CALL_H

#include "compile/compiled/compiled_node.h"

/* What was recorded of a call. */
typedef struct core__recorded_call {
    const core_program *program; /* the joint program, if there is a backward */
    const core_program *holder;  /* that has the tensors: it, or the forward */
    const core__joint *joint;    /* NULL: there is no backward */
    uint32_t ninputs;            /* of the function */
} core__recorded_call;

core__recorded_call core__recorded_call_of(const core_program *program,
                                           const core__training *training);

/* True if the programs differ in numbers alone.  False: text, of at most `size`
 * bytes, says in what else. */
bool core__recorded_calls_match(const core__recorded_call *x,
                                const core__recorded_call *y, char *text,
                                size_t size);

/* Calls `visit` for each number, whose place in the order grows by one. */
typedef struct core__number_visitor {
    void (*visit)(void *context, uint32_t place, bool is_float, int64_t *slot);
    void *context;
    uint32_t place;
} core__number_visitor;

void core__recorded_call_visit(const core_program *program,
                               const core__joint *joint,
                               core__number_visitor *v);

typedef struct core__recorded_number {
    int64_t value; /* of a floating number: its bits */
    bool is_float;
} core__recorded_number;

/* The numbers in their order.  The caller frees them; NULL: no memory. */
core__recorded_number *core__recorded_call_numbers(const core__recorded_call *r,
                                                   uint32_t *out_count);

#endif
