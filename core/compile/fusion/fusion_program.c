/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes groups of operators as loop programs. */

#include "compile/fusion/fusion.h"

#include "base/memory.h"
#include "codegen/operator_programs.h"
#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "ops_ids.h"
#include "tensor/dtype.h"

enum { INPUTS = 4 }; /* of an element-wise operator */

typedef struct writing {
    const core_program *program;
    core_tensor *const *tensors;
    core__loop_writer writer;
    /* By operand, in the order in which they were added: */
    uint32_t values[CORE_LOOP_MAX_OPERANDS], loaded[CORE_LOOP_MAX_OPERANDS];
    uint32_t noperands;
    /* By node of the group: its value, and that of the loop program */
    uint32_t results[CORE__GROUP_MEMBERS], written[CORE__GROUP_MEMBERS];
    uint32_t nresults;
    bool rows; /* a node reduces the last dimension */
} writing;

static bool is_copy(const core_operator *op)
{
    return op->id == CORE_OP_TO_COPY || op->id == CORE_OP_CLONE;
}

/* ------------------------------------------------------------- operands -- */

static uint32_t add_operand(writing *w, uint32_t value, uint32_t flags)
{
    core_dtype dtype = w->program->values[value].type.dtype;
    uint32_t operand = core__loop_write_operand(&w->writer, dtype, flags);

    if (operand == CORE__LOOP_NO_VALUE)
        return operand;
    w->values[operand] = value;
    w->loaded[operand] = CORE__LOOP_NO_VALUE;
    w->noperands = operand + 1;
    return operand;
}

/* In a group with rows: that of a value which is the same for all elements of a
 * row, because it has one in the last dimension. */
static uint32_t flags_of(const writing *w, uint32_t value)
{
    const core__program_type *type = &w->program->values[value].type;

    return w->rows && (type->ndim == 0 ||
                       core__type_sizes(type)[type->ndim - 1] == 1)
               ? CORE_LOOP_OPERAND_ROW
               : 0;
}

/* What the group computes or has loaded, or a load. */
static uint32_t read_value(writing *w, uint32_t value)
{
    uint32_t operand;

    for (uint32_t i = w->nresults; i-- > 0;)
        if (w->results[i] == value)
            return w->written[i];
    for (uint32_t i = 0; i < w->noperands; i++)
        if (w->values[i] == value)
            return w->loaded[i];
    operand = add_operand(w, value, flags_of(w, value));
    if (operand == CORE__LOOP_NO_VALUE)
        return operand;
    w->loaded[operand] =
        core__loop_write(&w->writer, CORE_LOOP_LOAD,
                         w->program->values[value].type.dtype, operand, 0, 0);
    return w->loaded[operand];
}

/* ---------------------------------------------------------------- nodes -- */

/* The dtype in which an operator computes, as dispatch/elementwise.c finds it.
 * Of tensors, promotion looks at dtype, dimensions and flags. */
static core_dtype compute_of(const writing *w, const core__program_node *node,
                             core_value *args)
{
    core_tensor stand_ins[INPUTS] = {{0}};
    const core_operator *op = node->op;
    core_dtype result = w->program->values[node->first].type.dtype, common;

    if (op->data->promotion == CORE__PROMOTE_OWN)
        return result;
    for (uint32_t k = 0; k < op->data->operands; k++) {
        const core__program_argument *from = &node->args[op->data->operand[k]];
        const core__program_type *type;

        if (from->tag != CORE_VALUE_TENSOR)
            continue;
        type = &w->program->values[from->u.value].type;
        stand_ins[k].ndim = type->ndim;
        stand_ins[k].dtype = type->dtype;
        if (w->tensors[from->u.value])
            stand_ins[k].flags = w->tensors[from->u.value]->flags;
        args[op->data->operand[k]].u.tensor = &stand_ins[k];
    }
    common = core__elementwise_common_dtype(op, args);
    return op->data->promotion == CORE__PROMOTE_FLOAT &&
                   !core__dtype_is_floating(common)
               ? core__dtype_default()
               : common;
}

static core_status write_operator(writing *w, const core__program_node *node,
                                  uint32_t *out_value)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];
    const core_operator *op = node->op;
    uint32_t inputs[INPUTS], ninputs = 0;
    core_dtype compute;

    for (uint32_t i = 0; i < node->nargs; i++) {
        args[i] = (core_value){node->args[i].tag, 0, {0}};
        if (node->args[i].tag != CORE_VALUE_TENSOR)
            args[i] = core__program_constant(w->program, &node->args[i]);
    }
    compute = compute_of(w, node, args);
    for (uint32_t k = 0; k < op->data->operands; k++) {
        uint32_t at = op->data->operand[k];

        if (args[at].tag == CORE_VALUE_NONE)
            continue;
        inputs[ninputs++] =
            args[at].tag != CORE_VALUE_TENSOR
                ? core__loop_write_constant(&w->writer, compute, args[at])
            : op->data->promotion == CORE__PROMOTE_OWN ||
                    op->data->keep_dtype >> k & 1
                ? read_value(w, node->args[at].u.value)
                : core__loop_write_convert(
                      &w->writer, compute,
                      read_value(w, node->args[at].u.value));
    }
    return core__loop_write_operator(&w->writer, core__operator_kernel_name(op),
                                     compute, inputs, ninputs, args,
                                     node->nargs, out_value);
}

/* Its tensors, in the dtype in which it computes. */
static uint32_t write_rows(writing *w, const core__program_node *node)
{
    const core__program_value *values = w->program->values;
    uint32_t in[INPUTS] = {CORE__LOOP_NO_VALUE, CORE__LOOP_NO_VALUE,
                           CORE__LOOP_NO_VALUE, CORE__LOOP_NO_VALUE};
    core_dtype out = values[node->first].type.dtype;
    core_dtype cast = core__fusion_row_cast(
        node, values[node->args[0].u.value].type.dtype, out);
    core_dtype type = core__fusion_row_type(node, cast, out);
    bool norm = node->op->id == CORE_OP_NATIVE_LAYER_NORM;

    for (uint32_t i = 0, k = 0; i < node->nargs && k < INPUTS; i++) {
        if (norm && i == 1) /* the sizes */
            continue;
        if (node->args[i].tag == CORE_VALUE_TENSOR)
            in[k] = read_value(w, node->args[i].u.value);
        if (node->args[i].tag == CORE_VALUE_TENSOR && k == 0)
            in[k] = core__loop_write_convert(&w->writer, cast, in[k]);
        if (node->args[i].tag == CORE_VALUE_TENSOR)
            in[k] = core__loop_write_convert(&w->writer, type, in[k]);
        k++;
    }
    return core__loop_write_convert(
        &w->writer, out,
        core__fusion_write_row(w->program, node, &w->writer, type, in));
}

static core_status write_node(writing *w, const core__program_node *node)
{
    core_dtype dtype = w->program->values[node->first].type.dtype;
    core_status status = CORE_OK;
    uint32_t value;

    if (core__fusion_is_of_rows(node))
        value = write_rows(w, node);
    else if (is_copy(node->op))
        value = core__loop_write_convert(&w->writer, dtype,
                                         read_value(w, node->args[0].u.value));
    else
        status = write_operator(w, node, &value);
    if (status == CORE_OK)
        status = w->writer.status;
    if (status == CORE_OK && core__loop_type_of(&w->writer, value) != dtype)
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "the result of %s has another dtype", node->name);
    if (status != CORE_OK)
        return status;
    w->results[w->nresults] = node->first;
    w->written[w->nresults++] = value;
    return CORE_OK;
}

static void begin(writing *w, const core_program *program,
                  core_tensor *const *tensors)
{
    w->program = program;
    w->tensors = tensors;
    w->noperands = w->nresults = 0;
    w->rows = false;
    core__loop_writer_begin(&w->writer, 0);
}

/* ------------------------------------------------------------- refusals -- */

/* What reduces rows takes no value that is the same for all elements of a row.
 * No node alone computes one of what is not, so no group does. */
static bool is_uniform(const writing *w, const core__program_node *node)
{
    return w->rows && !core__fusion_is_of_rows(node) &&
           core__loop_is_uniform(&w->writer, w->written[0]);
}

/* rows: others that run over the same elements may reduce rows of them. */
static core_status try_to_write(const core_program *program,
                                core_tensor *const *tensors,
                                const core__program_node *node, bool rows,
                                const char **out_reason)
{
    core__error_record saved;
    core_status status;
    writing w;

    core__error_save(&saved);
    begin(&w, program, tensors);
    w.rows = rows;
    status = write_node(&w, node);
    if (status == CORE_OK && is_uniform(&w, node))
        *out_reason = "its result is the same for all elements of a row";
    core__loop_writer_end(&w.writer);
    if (status != CORE_ERROR_OUT_OF_MEMORY)
        core__error_restore(&saved);
    return status;
}

static bool has_rows(const core_program *program,
                     const core__program_node *node)
{
    const core__program_type *type = core__fusion_space(program, node);

    return type->ndim > 0 && core__type_sizes(type)[type->ndim - 1] > 1;
}

static const char *kind_refused(const core_program *program,
                                const core__program_node *node,
                                const char *no_rows)
{
    if (node->regions)
        return "it runs a part of the program that data choose";
    if (!node->op || node->op->flags & CORE__OP_CUSTOM)
        return "it is an operator of a program or plugin";
    if (node->op->registrations)
        return "a function is registered for it";
    if (core__operator_is_view(node->op))
        return "it is a view";
    if (node->draws)
        return "it draws random numbers";
    if (core__fusion_is_of_rows(node)) {
        const char *reason = core__fusion_refuses_rows(program, node);

        return reason ? reason : no_rows;
    }
    if (node->op->family != CORE__FAMILY_ELEMENTWISE && !is_copy(node->op))
        return "it is not element-wise";
    return node->written ? "it changes an argument in place" : NULL;
}

static bool has_one_result(const core__program_node *node)
{
    if (core__fusion_is_of_rows(node))
        return true;
    return node->nvalues == 1 && node->nresults == 1 &&
           node->results[0].tag == CORE_VALUE_TENSOR &&
           (is_copy(node->op) || node->op->data->operands <= INPUTS);
}

core_status core__fusion_refuses(const core_program *program,
                                 core_tensor *const *tensors,
                                 const core__program_node *node,
                                 const char *no_rows, const char **out_reason)
{
    core_status status = CORE_ERROR_UNSUPPORTED;

    *out_reason = kind_refused(program, node, no_rows);
    for (uint32_t i = 0; i < node->nargs && !*out_reason; i++)
        if (node->args[i].tag == CORE__ARGUMENT_NUMBER)
            *out_reason = "it reads a number at each run";
    if (!*out_reason && node->nvalues &&
        core__type_bytes(&program->values[node->first].type) == 0)
        *out_reason = "its result has no elements";
    if (*out_reason)
        return CORE_OK;
    if (has_one_result(node))
        status = try_to_write(program, tensors, node,
                              !no_rows && has_rows(program, node), out_reason);
    if (status != CORE_OK)
        *out_reason = "it has no loop program";
    return status == CORE_ERROR_OUT_OF_MEMORY ? status : CORE_OK;
}

/* --------------------------------------------------------------- groups -- */

static core_status store(writing *w, const bool *is_read)
{
    for (uint32_t i = 0; i < w->nresults; i++) {
        uint32_t operand;

        if (!is_read[w->results[i]])
            continue;
        operand =
            add_operand(w, w->results[i],
                        CORE_LOOP_OPERAND_OUTPUT | flags_of(w, w->results[i]));
        if (operand != CORE__LOOP_NO_VALUE)
            core__loop_write(&w->writer, CORE_LOOP_STORE, 0, operand,
                             w->written[i], 0);
    }
    return w->writer.status;
}

static core_status finish(writing *w, core__fused_group *group,
                          core_loop_program **out_program)
{
    uint32_t places[CORE_LOOP_MAX_OPERANDS];
    core_loop_program *program;
    size_t size;

    CORE_TRY(core__loop_writer_finish(&w->writer, &program, places));
    size = program->noperands * sizeof *group->values;
    group->values = core__alloc(size);
    if (!group->values) {
        core__loop_program_release(program);
        return core__error_memory(size);
    }
    for (uint32_t i = 0; i < w->noperands; i++)
        if (places[i] != CORE__LOOP_NO_VALUE)
            group->values[places[i]] = w->values[i];
    group->noperands = program->noperands;
    group->noutputs = program->noutputs;
    *out_program = program;
    return CORE_OK;
}

core_status core__fusion_write(const core_program *program,
                               core_tensor *const *tensors,
                               const uint32_t *nodes, const bool *is_read,
                               core__fused_group *group,
                               core_loop_program **out_program)
{
    core_status status = CORE_OK;
    writing w;

    *out_program = NULL;
    begin(&w, program, tensors);
    group->space = core__fusion_space_value(&program->nodes[nodes[0]]);
    for (uint32_t i = 0; i < group->count; i++)
        group->nreduced += core__fusion_is_of_rows(&program->nodes[nodes[i]]);
    w.rows = group->nreduced > 0;
    for (uint32_t i = 0; i < group->count && status == CORE_OK; i++)
        status = write_node(&w, &program->nodes[nodes[i]]);
    if (status == CORE_OK)
        status = store(&w, is_read);
    if (status == CORE_OK)
        status = finish(&w, group, out_program);
    core__loop_writer_end(&w.writer);
    return status;
}
