/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes operators that reduce the last dimension as instructions of loop
 * programs.  Elements of f16 and bf16 are computed in f32. */

#include "compile/fusion/fusion.h"

#include "ops_ids.h"
#include "tensor/dtype.h"

typedef struct row_operator {
    uint32_t id;
    uint8_t dim;     /* the argument with the dimension */
    int8_t keepdim;  /* the one that keeps it; -1: the result has all sizes */
    uint8_t tensors; /* how many of the first arguments are tensors */
} row_operator;

static const row_operator operators[] = {
    {CORE_OP_SOFTMAX, 1, -1, 1},
    {CORE_OP_LOG_SOFTMAX, 1, -1, 1},
    {CORE_OP_SOFTMAX_BACKWARD_DATA, 2, -1, 2},
    {CORE_OP_LOG_SOFTMAX_BACKWARD_DATA, 2, -1, 2},
    {CORE_OP_SUM_DIM_INTLIST, 1, 2, 1},
    {CORE_OP_MEAN_DIM, 1, 2, 1},
    {CORE_OP_AMAX, 1, 2, 1},
    {CORE_OP_AMIN, 1, 2, 1},
    {CORE_OP_NATIVE_LAYER_NORM, 1, -1, 1},
};

static const row_operator *find(const core__program_node *node)
{
    for (size_t i = 0; node->op && i < sizeof operators / sizeof *operators;
         i++)
        if (node->op->id == operators[i].id)
            return &operators[i];
    return NULL;
}

bool core__fusion_is_of_rows(const core__program_node *node)
{
    return find(node) != NULL;
}

/* ------------------------------------------------------------- refusals -- */

static const core__program_type *input_of(const core_program *program,
                                          const core__program_node *node)
{
    return &program->values[node->args[0].u.value].type;
}

/* Whether the operator reduces the last dimension, and that alone. */
static bool is_last(const core_program *program, const core__program_node *node,
                    const core__program_argument *argument)
{
    const core__program_type *type = input_of(program, node);
    core_value dim = core__program_constant(program, argument);
    int64_t last = (int64_t)type->ndim - 1;

    if (node->op->id == CORE_OP_NATIVE_LAYER_NORM) /* the normalised sizes */
        return dim.tag == CORE_VALUE_INT_LIST && dim.count == 1;
    if (dim.tag == CORE_VALUE_INT_LIST && dim.count == 1)
        return dim.u.ints[0] == -1 || dim.u.ints[0] == last;
    return dim.tag == CORE_VALUE_INT && (dim.u.i == -1 || dim.u.i == last);
}

typedef struct reads {
    uint32_t first, last; /* values */
    bool found;
} reads;

static void note(void *context, uint32_t value)
{
    reads *r = context;

    r->found |= value >= r->first && value <= r->last;
}

/* Whether anything reads the results of a node after the first. */
static bool has_more_results(const core_program *program,
                             const core__program_node *node)
{
    reads r = {node->first + 1, node->first + node->nvalues - 1, false};

    for (uint32_t v = r.first; v <= r.last; v++)
        r.found |= program->values[v].kept;
    for (uint32_t n = 0; n < program->nnodes && !r.found; n++)
        core__node_each_value(&program->nodes[n], note, &r);
    return node->nvalues > 1 && r.found;
}

const char *core__fusion_refuses_rows(const core_program *program,
                                      const core__program_node *node)
{
    const row_operator *op = find(node);
    const core__program_type *type;

    for (uint32_t k = 0; k < op->tensors; k++)
        if (k >= node->nargs || node->args[k].tag != CORE_VALUE_TENSOR)
            return "it has no loop program";
    type = input_of(program, node);
    if (type->ndim == 0 || core__type_sizes(type)[type->ndim - 1] < 2)
        return "its rows have fewer than two elements";
    if (!is_last(program, node, &node->args[op->dim]))
        return "it reduces other dimensions than the last";
    if (op->keepdim >= 0 &&
        !core__program_constant(program, &node->args[op->keepdim]).u.i)
        return "it reduces the last dimension and does not keep it";
    return has_more_results(program, node)
               ? "results of it are read that a kernel for rows does not write"
               : NULL;
}

uint32_t core__fusion_space_value(const core__program_node *node)
{
    return find(node) ? node->args[0].u.value : node->first;
}

const core__program_type *core__fusion_space(const core_program *program,
                                             const core__program_node *node)
{
    return &program->values[core__fusion_space_value(node)].type;
}

/* -------------------------------------------------------------- writing -- */

typedef struct rows {
    core__loop_writer *w;
    core_dtype type; /* in which it computes */
} rows;

static uint32_t put(const rows *r, uint32_t opcode, uint32_t a, uint32_t b)
{
    return core__loop_write(r->w, opcode, r->type, a, b, 0);
}

static uint32_t reduce(const rows *r, uint32_t opcode, uint32_t a)
{
    return core__loop_write(r->w, opcode, r->type, a, 0, 0);
}

static uint32_t function(const rows *r, const char *name, uint32_t a)
{
    return core__loop_write(r->w, CORE_LOOP_FUNCTION, r->type, a, 0,
                            core__loop_write_name(r->w, name));
}

static uint32_t row_size(const rows *r)
{
    return core__loop_write_convert(
        r->w, r->type,
        core__loop_write(r->w, CORE_LOOP_ROW_SIZE, CORE_I64, 0, 0, 0));
}

static uint32_t mean(const rows *r, uint32_t x)
{
    return put(r, CORE_LOOP_DIV, reduce(r, CORE_LOOP_REDUCE_SUM, x),
               row_size(r));
}

/* exp(x - max) / sum, or x - max - log(sum). */
static uint32_t softmax(const rows *r, uint32_t x, bool logarithm)
{
    uint32_t shifted =
        put(r, CORE_LOOP_SUB, x, reduce(r, CORE_LOOP_REDUCE_MAX, x));
    uint32_t power = function(r, "exp", shifted);
    uint32_t sum = reduce(r, CORE_LOOP_REDUCE_SUM, power);

    return logarithm ? put(r, CORE_LOOP_SUB, shifted, function(r, "log", sum))
                     : put(r, CORE_LOOP_DIV, power, sum);
}

/* y (g - sum(g y)), or g - exp(y) sum(g). */
static uint32_t softmax_gradient(const rows *r, uint32_t g, uint32_t y,
                                 bool logarithm)
{
    uint32_t sum = reduce(r, CORE_LOOP_REDUCE_SUM,
                          logarithm ? g : put(r, CORE_LOOP_MUL, g, y));

    return logarithm ? put(r, CORE_LOOP_SUB, g,
                           put(r, CORE_LOOP_MUL, function(r, "exp", y), sum))
                     : put(r, CORE_LOOP_MUL, put(r, CORE_LOOP_SUB, g, sum), y);
}

static uint32_t constant(const rows *r, double value)
{
    return core__loop_write_constant(
        r->w, r->type, (core_scalar){.tag = CORE_VALUE_FLOAT, .u.f = value});
}

/* (x - mean) / sqrt(variance + eps) * weight + bias.  The deviations are
 * squared after the mean is known, so that nothing cancels. */
static uint32_t layer_norm(const rows *r, const uint32_t *in, double eps)
{
    uint32_t x = put(r, CORE_LOOP_SUB, in[0], mean(r, in[0]));
    uint32_t variance = mean(r, put(r, CORE_LOOP_MUL, x, x));
    uint32_t root = put(r, CORE_LOOP_SQRT,
                        put(r, CORE_LOOP_ADD, variance, constant(r, eps)), 0);

    x = put(r, CORE_LOOP_DIV, x, root);
    if (in[1] != CORE__LOOP_NO_VALUE)
        x = put(r, CORE_LOOP_MUL, x, in[1]);
    return in[2] != CORE__LOOP_NO_VALUE ? put(r, CORE_LOOP_ADD, x, in[2]) : x;
}

core_dtype core__fusion_row_cast(const core__program_node *node, core_dtype in,
                                 core_dtype out)
{
    return node->op->id == CORE_OP_SUM_DIM_INTLIST ||
                   node->op->id == CORE_OP_MEAN_DIM
               ? out
               : in;
}

core_dtype core__fusion_row_type(const core__program_node *node, core_dtype in,
                                 core_dtype out)
{
    bool sums = node->op->id == CORE_OP_SUM_DIM_INTLIST;

    if (in == CORE_F64 || out == CORE_F64 ||
        (in > CORE_BF16 && out <= CORE_BF16))
        return CORE_F64;
    if (in <= CORE_BF16)
        return CORE_F32;
    return sums || in == CORE_I64 ? CORE_I64 : CORE_I32;
}

uint32_t core__fusion_write_row(const core_program *program,
                                const core__program_node *node,
                                core__loop_writer *w, core_dtype type,
                                const uint32_t *in)
{
    const rows r = {w, type};

    switch (node->op->id) {
    case CORE_OP_SOFTMAX:
    case CORE_OP_LOG_SOFTMAX:
        return softmax(&r, in[0], node->op->id == CORE_OP_LOG_SOFTMAX);
    case CORE_OP_SOFTMAX_BACKWARD_DATA:
    case CORE_OP_LOG_SOFTMAX_BACKWARD_DATA:
        return softmax_gradient(&r, in[0], in[1],
                                node->op->id ==
                                    CORE_OP_LOG_SOFTMAX_BACKWARD_DATA);
    case CORE_OP_MEAN_DIM:
        return mean(&r, in[0]);
    case CORE_OP_AMAX:
        return reduce(&r, CORE_LOOP_REDUCE_MAX, in[0]);
    case CORE_OP_AMIN:
        return reduce(&r, CORE_LOOP_REDUCE_MIN, in[0]);
    case CORE_OP_NATIVE_LAYER_NORM:
        return layer_norm(&r, in,
                          core__program_constant(program, &node->args[4]).u.f);
    default:
        return reduce(&r, CORE_LOOP_REDUCE_SUM, in[0]);
    }
}
