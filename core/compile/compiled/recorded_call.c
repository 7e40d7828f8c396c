/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Numbers of recordings, and their comparison. */

#include "compile/compiled/recorded_call.h"

#include "base/memory.h"
#include "base/text.h"
#include "compile/compiled/compiled.h"

#include <string.h>

core__recorded_call core__recorded_call_of(const core_program *program,
                                           const core__training *training)
{
    if (!training)
        return (core__recorded_call){program, program, NULL, program->ninputs};
    return (core__recorded_call){training->joint, program, &training->recorded,
                                 training->recorded.ninputs};
}

/* --------------------------------------------------------------- numbers -- */

static void visit_numbers(core__number_visitor *v, const int64_t *numbers,
                          uint32_t count, bool is_float)
{
    for (uint32_t i = 0; i < count; i++)
        v->visit(v->context, v->place++, is_float,
                 (int64_t *)(uintptr_t)&numbers[i]);
}

static void visit_argument(core__number_visitor *v,
                           const core__program_argument *argument)
{
    switch (argument->tag) {
    case CORE_VALUE_INT:
    case CORE_VALUE_FLOAT:
        visit_numbers(v, &argument->u.i, 1, argument->tag == CORE_VALUE_FLOAT);
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        visit_numbers(v, argument->u.ints, argument->count,
                      argument->tag == CORE_VALUE_FLOAT_LIST);
        break;
    default:
        break;
    }
}

/* The numbers of views that are made outside of the program. */
static void visit_views(const core__joint *joint, core__number_visitor *v)
{
    for (uint32_t i = 0; i < joint->noutputs; i++)
        for (uint32_t k = 0; k < joint->outputs[i].nsteps; k++) {
            const core__view_step *step = &joint->outputs[i].steps[k];

            for (uint32_t n = 1; n < step->nargs; n++)
                visit_argument(v, &step->args[n]);
        }
}

void core__recorded_call_visit(const core_program *program,
                               const core__joint *joint,
                               core__number_visitor *v)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        visit_numbers(v, core__type_strides(&program->inputs[i].type),
                      program->inputs[i].type.ndim, false);
    for (uint32_t i = 0; i < program->nnodes; i++)
        for (uint32_t k = 0; k < program->nodes[i].nargs; k++)
            visit_argument(v, &program->nodes[i].args[k]);
    for (uint32_t i = 0; i < program->noutputs; i++) {
        const core__program_output *output = &program->outputs[i];

        visit_numbers(v, output->type.dims, 2u * output->type.ndim, false);
        visit_numbers(v, &output->offset, 1, false);
    }
    if (joint)
        visit_views(joint, v);
}

static void count_number(void *context, uint32_t place, bool is_float,
                         int64_t *slot)
{
    (void)is_float;
    (void)slot;
    *(uint32_t *)context = place + 1;
}

static void store_number(void *context, uint32_t place, bool is_float,
                         int64_t *slot)
{
    core__recorded_number *numbers = context;

    memcpy(&numbers[place].value, slot, sizeof *slot);
    numbers[place].is_float = is_float;
}

core__recorded_number *core__recorded_call_numbers(const core__recorded_call *r,
                                                   uint32_t *out_count)
{
    core__number_visitor counting = {count_number, out_count, 0};
    core__number_visitor storing = {store_number, NULL, 0};

    *out_count = 0;
    core__recorded_call_visit(r->program, r->joint, &counting);
    storing.context =
        core__alloc((*out_count + 1) * sizeof(core__recorded_number));
    if (storing.context)
        core__recorded_call_visit(r->program, r->joint, &storing);
    return storing.context;
}

/* ------------------------------------------------------------ structures -- */

static bool same_argument(const core_program *x, const core_program *y,
                          const core__program_argument *a,
                          const core__program_argument *b)
{
    if (a->tag != b->tag || a->count != b->count)
        return false;
    switch (a->tag) {
    case CORE_VALUE_NONE:
    case CORE_VALUE_INT:
    case CORE_VALUE_FLOAT:
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        return true;
    case CORE_VALUE_TENSOR:
        return a->u.value == b->u.value;
    case CORE_VALUE_TENSOR_LIST:
        return !a->count || memcmp(a->u.values, b->u.values,
                                   a->count * sizeof *a->u.values) == 0;
    case CORE_VALUE_DEVICE:
        return x->devices[a->u.device] == y->devices[b->u.device];
    case CORE_VALUE_GENERATOR:
        return x->generators[a->u.generator] == y->generators[b->u.generator];
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        return !a->count || memcmp(a->u.pointer, b->u.pointer, a->count) == 0;
    case CORE__ARGUMENT_NUMBER:
        return false;
    default:
        return a->u.i == b->u.i;
    }
}

static bool same_node(const core_program *x, const core_program *y,
                      const core__program_node *a, const core__program_node *b)
{
    /* What an operator of a program infers from sizes is not known. */
    if (!a->op || a->op != b->op || a->nargs != b->nargs ||
        a->nresults != b->nresults || a->written != b->written ||
        a->first != b->first || a->nvalues != b->nvalues ||
        a->backward != b->backward)
        return false;
    for (uint32_t i = 0; i < a->nargs; i++)
        if (!same_argument(x, y, &a->args[i], &b->args[i]))
            return false;
    for (uint32_t i = 0; i < a->nresults; i++)
        if (!same_argument(x, y, &a->results[i], &b->results[i]))
            return false;
    return true;
}

static bool same_type(const core_program *x, const core_program *y,
                      const core__program_type *a, const core__program_type *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           x->devices[a->device] == y->devices[b->device];
}

static bool same_inputs(const core_program *a, const core_program *b)
{
    for (uint32_t i = 0; i < a->ninputs; i++)
        if (a->inputs[i].value != b->inputs[i].value ||
            a->inputs[i].base != CORE__NO_VALUE ||
            b->inputs[i].base != CORE__NO_VALUE ||
            !same_type(a, b, &a->inputs[i].type, &b->inputs[i].type))
            return false;
    return true;
}

static bool same_sources(const core__recorded_call *x,
                         const core__recorded_call *y)
{
    const core_program *a = x->program, *b = y->program;

    for (uint32_t i = 0; i < a->nhidden; i++)
        if (!core__same_hidden(&x->holder->hidden[i], &y->holder->hidden[i]) ||
            !core__types_equal(&a->values[a->hidden[i].value].type,
                               &b->values[b->hidden[i].value].type) ||
            a->hidden[i].value != b->hidden[i].value)
            return false;
    for (uint32_t i = 0; i < x->holder->naliases; i++)
        if (x->holder->aliases[i] != y->holder->aliases[i])
            return false;
    return true;
}

static bool same_results(const core_program *a, const core_program *b)
{
    for (uint32_t i = 0; i < a->noutputs; i++) {
        const core__program_output *x = &a->outputs[i], *y = &b->outputs[i];

        if (x->kind != y->kind || x->view != y->view || x->index != y->index ||
            x->tensor != y->tensor || !same_type(a, b, &x->type, &y->type))
            return false;
    }
    for (uint32_t i = 0; i < a->nwrites; i++)
        if (a->writes[i].hidden != b->writes[i].hidden ||
            a->writes[i].index != b->writes[i].index ||
            a->writes[i].value != b->writes[i].value)
            return false;
    return true;
}

static bool differs(char *text, size_t size, const char *what)
{
    core__format(text, size, "%s", what);
    return false;
}

/* ------------------------------------------------------------- backwards -- */

static bool same_views(const core__recorded_call *x,
                       const core__recorded_call *y,
                       const core__joint_output *a, const core__joint_output *b)
{
    if (a->kind != b->kind || a->alias != b->alias || a->index != b->index ||
        a->nsteps != b->nsteps)
        return false;
    for (uint32_t i = 0; i < a->nsteps; i++) {
        const core__view_step *from = &a->steps[i], *to = &b->steps[i];

        if (from->op != to->op || from->nargs != to->nargs ||
            from->result != to->result)
            return false;
        for (uint32_t k = 1; k < from->nargs; k++)
            if (!same_argument(x->program, y->program, &from->args[k],
                               &to->args[k]))
                return false;
    }
    return true;
}

static bool same_numbers(const void *a, const void *b, size_t count,
                         size_t size)
{
    return !count || memcmp(a, b, count * size) == 0;
}

/* The gradient of a root is an input that has the type of the root, and outputs
 * are not tensors from before the call. */
static bool is_usual(const core__recorded_call *r)
{
    for (uint32_t i = 0; i < r->joint->nroots; i++)
        if (!core__types_equal(&r->program->inputs[r->ninputs + i].type,
                               &r->program->outputs[r->joint->roots[i]].type))
            return false;
    for (uint32_t i = 0; i < r->holder->noutputs; i++)
        if (r->holder->outputs[i].tensor)
            return false;
    return true;
}

static bool same_backward(const core__recorded_call *x,
                          const core__recorded_call *y)
{
    const core__joint *a = x->joint, *b = y->joint;
    size_t gradients;

    if (!a || !b)
        return a == b;
    gradients = (size_t)a->nmasks * a->nsources;
    if (a->ninputs != b->ninputs || a->noutputs != b->noutputs ||
        a->nroots != b->nroots || a->nsources != b->nsources ||
        a->nmasks != b->nmasks || a->views != b->views || !is_usual(x) ||
        !is_usual(y) ||
        !same_numbers(a->roots, b->roots, a->nroots, sizeof *a->roots) ||
        !same_numbers(a->root_outputs, b->root_outputs, a->nroots,
                      sizeof *a->root_outputs) ||
        !same_numbers(a->masks, b->masks, a->nmasks, sizeof *a->masks) ||
        !same_numbers(a->gradients, b->gradients, gradients,
                      sizeof *a->gradients))
        return false;
    for (uint32_t i = 0; i < a->nsources; i++)
        if (a->sources[i].tensor != b->sources[i].tensor ||
            a->sources[i].input != b->sources[i].input)
            return false;
    for (uint32_t i = 0; i < a->noutputs; i++)
        if (!same_views(x, y, &a->outputs[i], &b->outputs[i]))
            return false;
    return true;
}

bool core__recorded_calls_match(const core__recorded_call *x,
                                const core__recorded_call *y, char *text,
                                size_t size)
{
    const core_program *a = x->program, *b = y->program;
    const core_program *of_a = x->holder, *of_b = y->holder;

    if (of_a->nnumbers || of_b->nnumbers || of_a->nfinishes || of_b->nfinishes)
        return differs(text, size, "a program contains an optimizer's step");
    if (of_a->nknown || of_b->nknown || a->ninputs != b->ninputs ||
        a->nhidden != b->nhidden || of_a->naliases != of_b->naliases ||
        !same_inputs(a, b) || !same_sources(x, y))
        return differs(text, size,
                       "inputs are views, or the function knows other tensors");
    if (a->nnodes != b->nnodes || a->nvalues != b->nvalues)
        return differs(text, size, "the number of operators");
    for (uint32_t i = 0; i < a->nnodes; i++)
        if (!same_node(a, b, &a->nodes[i], &b->nodes[i])) {
            core__format(text, size, "operator %u: %s and %s, or its arguments",
                         i, a->nodes[i].name, b->nodes[i].name);
            return false;
        }
    for (uint32_t i = 0; i < a->nvalues; i++)
        if (!same_type(a, b, &a->values[i].type, &b->values[i].type))
            return differs(text, size, "the dtype of a value");
    return a->noutputs == b->noutputs && a->nwrites == b->nwrites &&
                   same_results(a, b) && same_backward(x, y)
               ? true
               : differs(text, size, "the outputs, or their gradients");
}
