/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Finds nodes that return an operand.  Nothing here depends on sizes: programs
 * of two sets of sizes stay alike. */

#include "compile/passes/identities.h"

#include "ops_ids.h"

#include <math.h>

/* The longest chain of nodes that is searched. */
enum { DEPTH = 8 };

static const core__program_node *node_of(const core_program *program,
                                         uint32_t value)
{
    const core__program_value *v = &program->values[value];
    const core__program_node *node;

    if (v->source != CORE__VALUE_OF_NODE)
        return NULL;
    node = &program->nodes[v->index];
    return node->op && node->nvalues == 1 && !node->written ? node : NULL;
}

static uint32_t operand_of(const core__program_node *node, const uint32_t *same)
{
    return node->nargs > 0 && node->args[0].tag == CORE_VALUE_TENSOR
               ? same[node->args[0].u.value]
               : CORE__NO_VALUE;
}

static bool is_floating(uint8_t dtype)
{
    return dtype == CORE_F64 || dtype == CORE_F32 || dtype == CORE_F16 ||
           dtype == CORE_BF16;
}

static bool is_integral(uint8_t dtype)
{
    return dtype == CORE_I64 || dtype == CORE_I32 || dtype == CORE_I16 ||
           dtype == CORE_I8 || dtype == CORE_U8;
}

/* --------------------------------------------------------------- numbers -- */

static bool is_one(const core__program_argument *a)
{
    return (a->tag == CORE_VALUE_INT && a->u.i == 1) ||
           (a->tag == CORE_VALUE_FLOAT && a->u.f == 1);
}

/* A floating 0 of this sign, or the integer. */
static bool is_zero(const core__program_argument *a, bool negative)
{
    return a->tag == CORE_VALUE_FLOAT && a->u.f == 0 &&
           !signbit(a->u.f) == !negative;
}

/* True if x + 0 is x: of floats only if the 0 is negative, because -0 + 0 is 0.
 * And x - 0 is x if it is positive. */
static bool adds_nothing(const core__program_node *node, uint8_t dtype,
                         bool negative)
{
    const core__program_argument *zero = &node->args[1];

    if (node->nargs < 3 || !is_one(&node->args[2]))
        return false;
    if (is_integral(dtype))
        return zero->tag == CORE_VALUE_INT && zero->u.i == 0;
    return is_zero(zero, negative) ||
           (!negative && zero->tag == CORE_VALUE_INT && zero->u.i == 0);
}

static bool keeps_numbers(const core__program_node *node, uint8_t dtype)
{
    if (!is_floating(dtype) && !is_integral(dtype))
        return false;
    switch (node->op->id) {
    case CORE_OP_MUL_SCALAR:
        return is_one(&node->args[1]);
    case CORE_OP_DIV_SCALAR:
        return is_floating(dtype) && is_one(&node->args[1]);
    case CORE_OP_ADD_SCALAR:
        return adds_nothing(node, dtype, true);
    case CORE_OP_SUB_SCALAR:
        return adds_nothing(node, dtype, false);
    default:
        return false;
    }
}

/* ----------------------------------------------------------------- pairs -- */

/* True if each number of `from` is one of `to`. */
static bool widens(uint8_t from, uint8_t to)
{
    static const uint8_t wider[][2] = {
        {CORE_F16, CORE_F32}, {CORE_F16, CORE_F64},  {CORE_BF16, CORE_F32},
        {CORE_F32, CORE_F64}, {CORE_BF16, CORE_F64}, {CORE_I8, CORE_I16},
        {CORE_I8, CORE_I32},  {CORE_I8, CORE_I64},   {CORE_U8, CORE_I16},
        {CORE_U8, CORE_I32},  {CORE_U8, CORE_I64},   {CORE_I16, CORE_I32},
        {CORE_I16, CORE_I64}, {CORE_I32, CORE_I64}};

    for (size_t i = 0; i < sizeof wider / sizeof *wider; i++)
        if (wider[i][0] == from && wider[i][1] == to)
            return true;
    return false;
}

/* The operand of the node before, if this one undoes that. */
static uint32_t undone(const core_program *program,
                       const core__program_node *node, uint32_t operand,
                       const uint32_t *same)
{
    const core__program_node *before = node_of(program, operand);
    uint32_t source;
    uint8_t dtype;

    if (!before || before->op != node->op)
        return CORE__NO_VALUE;
    source = operand_of(before, same);
    if (source == CORE__NO_VALUE)
        return source;
    dtype = (uint8_t)program->values[source].type.dtype;
    switch (node->op->id) {
    case CORE_OP_NEG:
        return is_floating(dtype) || is_integral(dtype) ? source
                                                        : CORE__NO_VALUE;
    case CORE_OP_BITWISE_NOT:
        return source;
    case CORE_OP_TO_COPY:
        return widens(dtype, (uint8_t)program->values[operand].type.dtype)
                   ? source
                   : CORE__NO_VALUE;
    default:
        return CORE__NO_VALUE;
    }
}

/* ------------------------------------------------------------ transposes -- */

static uint32_t wrapped(int64_t dim, uint32_t ndim)
{
    return (uint32_t)(dim < 0 ? dim + ndim : dim);
}

/* Which dimension of its operand each one of the result is; false: it is no
 * transpose. */
static bool permutation_of(const core__program_node *node, uint32_t ndim,
                           uint32_t *dims)
{
    const core__program_argument *args = node->args;
    uint32_t a = 0, b = ndim == 2; /* of t */

    for (uint32_t d = 0; d < ndim; d++)
        dims[d] = d;
    switch (node->op->id) {
    case CORE_OP_ALIAS:
    case CORE_OP_DETACH:
        return true;
    case CORE_OP_PERMUTE:
        for (uint32_t d = 0; d < ndim && args[1].count == ndim; d++)
            dims[d] = wrapped(args[1].u.ints[d], ndim);
        return args[1].count == ndim;
    case CORE_OP_TRANSPOSE_INT:
        a = wrapped(args[1].u.i, ndim);
        b = wrapped(args[2].u.i, ndim);
        break;
    case CORE_OP_T:
        break;
    default:
        return false;
    }
    if (ndim > 0) {
        dims[a] = b;
        dims[b] = a;
    }
    return true;
}

static bool is_identity(const uint32_t *dims, uint32_t ndim)
{
    for (uint32_t d = 0; d < ndim; d++)
        if (dims[d] != d)
            return false;
    return true;
}

/* What a chain of transposes that ends with the node begins with, if they leave
 * each dimension where it was. */
static uint32_t transposed_back(const core_program *program,
                                const core__program_node *node,
                                const uint32_t *same)
{
    uint32_t ndim = program->values[node->first].type.ndim;
    uint32_t total[CORE_MAX_NDIM], dims[CORE_MAX_NDIM];

    for (uint32_t d = 0; d < ndim; d++)
        total[d] = d;
    for (int i = 0; i < DEPTH && node; i++) {
        uint32_t operand = operand_of(node, same);

        if (operand == CORE__NO_VALUE || !permutation_of(node, ndim, dims))
            break;
        for (uint32_t d = 0; d < ndim; d++)
            total[d] = dims[total[d]];
        if (is_identity(total, ndim))
            return operand;
        node = node_of(program, operand);
    }
    return CORE__NO_VALUE;
}

uint32_t core__node_identity(const core_program *program,
                             const core__program_node *node,
                             const uint32_t *same)
{
    const core__program_type *type;
    uint32_t operand, found;

    if (!node->op || node->nvalues != 1 || node->written)
        return CORE__NO_VALUE;
    operand = operand_of(node, same);
    if (operand == CORE__NO_VALUE)
        return operand;
    type = &program->values[node->first].type;
    if (core__operator_is_view(node->op))
        found = transposed_back(program, node, same);
    else if (node->op->id == CORE_OP_TO_COPY &&
             program->values[operand].type.dtype == type->dtype)
        found = operand;
    else if (keeps_numbers(node, (uint8_t)type->dtype))
        found = operand;
    else
        found = undone(program, node, operand, same);
    return found != CORE__NO_VALUE &&
                   core__types_equal(&program->values[found].type, type)
               ? found
               : CORE__NO_VALUE;
}
