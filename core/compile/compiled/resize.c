/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Copies a program with other sizes, and infers the types of its values. */

#include "compile/compiled/resize.h"

#include "base/memory.h"
#include "compile/program/extract.h"
#include "device/device.h"
#include "dispatch/schema.h"

#include <string.h>

/* Numbers for the visits of a new program. */
typedef struct filling {
    const core__dynamic_number *numbers;
    uint32_t count;
    const int64_t *symbols;
    uint32_t next;
    bool known;
} filling;

static void fill_number(void *context, uint32_t place, bool is_float,
                        int64_t *slot)
{
    filling *f = context;
    int64_t value;

    (void)is_float;
    if (f->next == f->count || f->numbers[f->next].place != place)
        return;
    if (core__dynamic_value(&f->numbers[f->next++], f->symbols, &value))
        memcpy(slot, &value, sizeof value);
    else
        f->known = false;
}

/* A copy of the type in the arena of another program. */
static core_status copy_type(core_program *to, core__program_type *type)
{
    return core__program_type_set(to, (core_dtype)type->dtype, type->ndim,
                                  core__type_sizes(type),
                                  core__type_strides(type), type->device, type);
}

static core_status copy_arguments(core_program *to, uint32_t count,
                                  const core__program_argument **inout)
{
    core__program_argument *args =
        core__program_alloc(to, (count + 1) * sizeof *args);

    if (!args)
        return core__error_memory(count * sizeof *args);
    for (uint32_t i = 0; i < count; i++) {
        int64_t *numbers;

        args[i] = (*inout)[i];
        if (args[i].tag != CORE_VALUE_INT_LIST &&
            args[i].tag != CORE_VALUE_FLOAT_LIST)
            continue;
        numbers = core__program_alloc(to, args[i].count * sizeof *numbers + 1);
        if (!numbers)
            return core__error_memory(args[i].count * sizeof *numbers);
        if (args[i].count)
            memcpy(numbers, args[i].u.ints, args[i].count * sizeof *numbers);
        args[i].u.ints = numbers;
    }
    *inout = args;
    return CORE_OK;
}

/* The views that are made outside of the program, in the arena of a copy. */
static core_status copy_views(core_program *to, core__joint *joint)
{
    size_t size = joint->noutputs * sizeof *joint->outputs;
    core__joint_output *outputs = core__program_alloc(to, size + 1);

    if (!outputs)
        return core__error_memory(size);
    for (uint32_t i = 0; i < joint->noutputs; i++) {
        core__joint_output *output = &outputs[i];
        core__view_step *steps;

        *output = joint->outputs[i];
        steps = core__program_alloc(to, output->nsteps * sizeof *steps + 1);
        if (!steps)
            return core__error_memory(output->nsteps * sizeof *steps);
        for (uint32_t k = 0; k < output->nsteps; k++) {
            steps[k] = output->steps[k];
            CORE_TRY(copy_arguments(to, steps[k].nargs, &steps[k].args));
        }
        output->steps = steps;
    }
    joint->outputs = outputs;
    return CORE_OK;
}

#define COPY_ARRAY(to, from, array, count)                                \
    do {                                                                  \
        for (uint32_t i_ = 0; i_ < (from)->count; i_++) {                 \
            void *added_ = core__program_grow(&(to)->array, &(to)->count, \
                                              sizeof *(to)->array);       \
            if (!added_)                                                  \
                return core__error_memory(sizeof *(to)->array);           \
            memcpy(added_, &(from)->array[i_], sizeof *(to)->array);      \
        }                                                                 \
    } while (0)

/* References are taken one by one, so that a failure drops those alone. */
static core_status copy_tensors(core_program *to, const core__recorded_call *r)
{
    const core_program *from = r->program;
    core_status status = CORE_OK;

#define COPY_REFERENCES(from, array, count, retain)                        \
    for (uint32_t i = 0; status == CORE_OK && i < from->count; i++) {      \
        void *added =                                                      \
            core__program_grow(&to->array, &to->count, sizeof *to->array); \
        if (!added) {                                                      \
            status = core__error_memory(sizeof *to->array);                \
            break;                                                         \
        }                                                                  \
        memcpy(added, &from->array[i], sizeof *to->array);                 \
        retain;                                                            \
    }
    COPY_REFERENCES(from, hidden, nhidden,
                    to->hidden[i].tensor = r->holder->hidden[i].tensor;
                    core__hidden_retain(&to->hidden[i]))
    COPY_REFERENCES(r->holder, aliases, naliases,
                    core__tensor_retain(to->aliases[i]))
    COPY_REFERENCES(from, outputs, noutputs,
                    if (to->outputs[i].tensor)
                        core__tensor_retain(to->outputs[i].tensor))
#undef COPY_REFERENCES
    return status;
}

/* The program with the sizes of these inputs, and the types of its values as
 * they were. */
static core_status copy_program(core_program *to, const core__recorded_call *r,
                                core_tensor *const *inputs)
{
    const core_program *from = r->program;

    to->recomputes = from->recomputes;
    to->codegen = from->codegen;
    to->reorders = from->reorders;
    CORE_TRY(copy_tensors(to, r));
    COPY_ARRAY(to, from, inputs, ninputs);
    COPY_ARRAY(to, from, values, nvalues);
    COPY_ARRAY(to, from, nodes, nnodes);
    COPY_ARRAY(to, from, writes, nwrites);
    for (uint32_t i = 0; i < to->ninputs; i++) {
        core__program_type *type = &to->inputs[i].type;

        CORE_TRY(copy_type(to, type));
        if (type->ndim && i < r->ninputs)
            memcpy((int64_t *)(uintptr_t)type->dims, inputs[i]->sizes,
                   type->ndim * sizeof(int64_t));
    }
    for (uint32_t i = 0; i < to->nnodes; i++)
        CORE_TRY(copy_arguments(to, to->nodes[i].nargs, &to->nodes[i].args));
    for (uint32_t i = 0; i < to->noutputs; i++)
        CORE_TRY(copy_type(to, &to->outputs[i].type));
    return CORE_OK;
}

/* True if the inputs have the strides that the pattern expects. */
static bool inputs_fit(const core_program *program, core_tensor *const *inputs,
                       uint32_t ninputs)
{
    for (uint32_t i = 0; i < ninputs; i++)
        for (uint32_t k = 0; k < inputs[i]->ndim; k++)
            if (inputs[i]->strides[k] !=
                core__type_strides(&program->inputs[i].type)[k])
                return false;
    return true;
}

/* ------------------------------------------------------------- inference -- */

/* A node while its results are inferred. */
typedef struct inference {
    core_program *program;
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_value results[CORE__SCHEMA_RESULTS];
    core_tensor **stand_ins; /* owned */
    uint32_t count;
} inference;

static core_status stand_in(inference *f, uint32_t value, core_tensor **out)
{
    *out = NULL;
    if (value == CORE__NO_VALUE)
        return CORE_OK;
    CORE_TRY(core__program_stand_in(&f->program->values[value].type, out));
    f->stand_ins[f->count++] = *out;
    return CORE_OK;
}

static core_status make_argument(inference *f,
                                 const core__program_argument *from,
                                 core_tensor ***list, core_value *out)
{
    *out = core__program_constant(f->program, from);
    if (from->tag == CORE_VALUE_DEVICE)
        out->u.device = &core__meta_device;
    if (from->tag == CORE_VALUE_TENSOR)
        return stand_in(f, from->u.value, &out->u.tensor);
    if (from->tag != CORE_VALUE_TENSOR_LIST)
        return CORE_OK;
    out->u.tensors = *list;
    for (uint32_t k = 0; k < from->count; k++)
        CORE_TRY(stand_in(f, from->u.values[k], (*list)++));
    return CORE_OK;
}

static core_status make_arguments(inference *f, const core__program_node *node)
{
    core_tensor **list;
    size_t count = 1;

    for (uint32_t i = 0; i < node->nargs; i++)
        count += node->args[i].tag == CORE_VALUE_TENSOR_LIST
                     ? node->args[i].count
                     : 1;
    f->count = 0;
    f->stand_ins = core__alloc(2 * count * sizeof *f->stand_ins);
    if (!f->stand_ins)
        return core__error_memory(2 * count * sizeof *f->stand_ins);
    list = f->stand_ins + count;
    for (uint32_t i = 0; i < node->nargs; i++)
        CORE_TRY(make_argument(f, &node->args[i], &list, &f->args[i]));
    return CORE_OK;
}

static core_status __attribute__((cold)) unlike(const core__program_node *node)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: with these sizes it returns something else",
                       node->name);
}

static core_status set_type(inference *f, const core__program_node *node,
                            uint32_t value, const core_tensor *inferred)
{
    core__program_type *type = &f->program->values[value].type;

    if (!inferred || inferred->dtype != type->dtype ||
        inferred->ndim != type->ndim)
        return unlike(node);
    return core__program_type_set(f->program, inferred->dtype, inferred->ndim,
                                  inferred->sizes, inferred->strides,
                                  type->device, type);
}

static core_status set_result(inference *f, const core__program_node *node,
                              uint32_t i)
{
    const core__program_argument *described = &node->results[i];
    const core_value *result = &f->results[i];

    if (described->tag == CORE_VALUE_NONE)
        return CORE_OK;
    if (described->tag != result->tag ||
        (described->tag == CORE_VALUE_TENSOR_LIST &&
         described->count != result->count))
        return unlike(node);
    if (described->tag == CORE_VALUE_TENSOR)
        return set_type(f, node, described->u.value, result->u.tensor);
    for (uint32_t k = 0; k < described->count; k++)
        if (described->u.values[k] != CORE__NO_VALUE)
            CORE_TRY(set_type(f, node, described->u.values[k],
                              result->u.tensors[k]));
    return CORE_OK;
}

/* The values of written arguments have the types of the arguments. */
static void set_written(core_program *program, const core__program_node *node)
{
    uint32_t next = node->first + node->nvalues;

    for (uint32_t i = node->nargs; i-- > 0;) {
        const core__program_argument *a = &node->args[i];
        bool list = a->tag == CORE_VALUE_TENSOR_LIST;
        uint32_t count = list ? a->count : a->tag == CORE_VALUE_TENSOR;
        const uint32_t *values = list ? a->u.values : &a->u.value;

        for (uint32_t k = count; node->written >> i & 1 && k-- > 0;)
            if (values[k] != CORE__NO_VALUE)
                program->values[--next].type = program->values[values[k]].type;
    }
}

static core_status infer_node(core_program *program, core__program_node *node)
{
    inference f = {.program = program};
    core_status status = make_arguments(&f, node);

    if (status == CORE_OK)
        status = core__program_infer(node->op, f.args, node->nargs, f.results,
                                     node->op->nresults, &node->draws);
    for (uint32_t i = 0; i < node->nresults && status == CORE_OK; i++)
        status = set_result(&f, node, i);
    if (status == CORE_OK)
        set_written(program, node);
    for (uint32_t i = 0; i < node->op->nresults; i++)
        core_value_release(&f.results[i]);
    for (uint32_t i = 0; i < f.count; i++)
        core__tensor_release(f.stand_ins[i]);
    core__free(f.stand_ins);
    return status;
}

static core_status infer_all(core_program *program)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        program->values[program->inputs[i].value].type =
            program->inputs[i].type;
    for (uint32_t i = 0; i < program->nnodes; i++)
        CORE_TRY(infer_node(program, &program->nodes[i]));
    for (uint32_t i = 0; i < program->nwrites; i++) {
        const core__program_write *write = &program->writes[i];
        uint32_t target = write->hidden ? program->hidden[write->index].value
                                        : program->inputs[write->index].value;

        if (!core__types_equal(&program->values[target].type,
                               &program->values[write->value].type))
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "with these sizes what is written to an input "
                               "has other sizes");
    }
    return CORE_OK;
}

/* Gradients of roots have the types of the roots. */
static void set_tangents(core_program *program, const core__joint *joint)
{
    for (uint32_t i = 0; i < joint->nroots; i++)
        program->inputs[joint->ninputs + i].type =
            program->outputs[joint->roots[i]].type;
}

static core_status fill(core_program *program, filling *f,
                        const core__joint *joint, core_tensor *const *inputs,
                        uint32_t ninputs)
{
    core__number_visitor v = {fill_number, f, 0};

    core__recorded_call_visit(program, joint, &v);
    if (!f->known || !inputs_fit(program, inputs, ninputs))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "a number is not known for these sizes");
    if (joint)
        set_tangents(program, joint);
    return infer_all(program);
}

core_status core__program_resize(const core__recorded_call *r,
                                 const core__dynamic_number *numbers,
                                 uint32_t ndynamic, core_tensor *const *inputs,
                                 const int64_t *symbols, core__joint *joint,
                                 core_program **out)
{
    filling f = {numbers, ndynamic, symbols, 0, true};
    core__joint *own = r->joint ? joint : NULL;
    core__extraction e;
    core_status status =
        core__extraction_begin(&e, (core_program *)(uintptr_t)r->program);

    if (own)
        *own = *r->joint;
    if (status == CORE_OK)
        status = copy_program(e.to, r, inputs);
    if (status == CORE_OK && own)
        status = copy_views(e.to, own);
    if (status == CORE_OK)
        status = fill(e.to, &f, own, inputs, r->ninputs);
    return core__extraction_end(&e, status, out);
}
