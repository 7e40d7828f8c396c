/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The reference interpreter of loop programs.  An instruction computes a tile
 * of up to SIM_TILE elements at a time, with the CPU's kernel of the operator
 * that the instruction is defined by, so its bits are those of the operator.
 *
 * A program with reductions runs row by row.  Each reduction computes the
 * instructions before it for all tiles of the row, then its value is known; the
 * last pass computes everything again and stores. */

#include "interpret.h"

#include <stdlib.h>

/* ------------------------------------------------------------- programs -- */

typedef struct name_of_opcode {
    uint8_t opcode;
    const char *name;
    const char *of_integers; /* where integers have another operator */
    const char *mode;        /* a string among its arguments */
} name_of_opcode;

static const name_of_opcode names[] = {
    {CORE_LOOP_ADD, "add.Tensor", NULL, NULL},
    {CORE_LOOP_SUB, "sub.Tensor", NULL, NULL},
    {CORE_LOOP_MUL, "mul.Tensor", NULL, NULL},
    {CORE_LOOP_DIV, "div.Tensor", "div.Tensor_mode", "trunc"},
    {CORE_LOOP_FLOOR_DIVIDE, "floor_divide", NULL, NULL},
    {CORE_LOOP_FMOD, "fmod.Tensor", NULL, NULL},
    {CORE_LOOP_REMAINDER, "remainder.Tensor", NULL, NULL},
    {CORE_LOOP_FMA, "addcmul", NULL, NULL},
    {CORE_LOOP_NEG, "neg", NULL, NULL},
    {CORE_LOOP_ABS, "abs", NULL, NULL},
    {CORE_LOOP_SQRT, "sqrt", NULL, NULL},
    {CORE_LOOP_CEIL, "ceil", NULL, NULL},
    {CORE_LOOP_FLOOR, "floor", NULL, NULL},
    {CORE_LOOP_TRUNC, "trunc", NULL, NULL},
    {CORE_LOOP_ROUND, "round", NULL, NULL},
    {CORE_LOOP_MAXIMUM, "maximum", NULL, NULL},
    {CORE_LOOP_MINIMUM, "minimum", NULL, NULL},
    {CORE_LOOP_FMAX, "fmax", NULL, NULL},
    {CORE_LOOP_FMIN, "fmin", NULL, NULL},
    {CORE_LOOP_COPYSIGN, "copysign.Tensor", NULL, NULL},
    {CORE_LOOP_SIGNBIT, "signbit", NULL, NULL},
    {CORE_LOOP_AND, "bitwise_and.Tensor", NULL, NULL},
    {CORE_LOOP_OR, "bitwise_or.Tensor", NULL, NULL},
    {CORE_LOOP_XOR, "bitwise_xor.Tensor", NULL, NULL},
    {CORE_LOOP_NOT, "bitwise_not", NULL, NULL},
    {CORE_LOOP_SHIFT_LEFT, "bitwise_left_shift.Tensor", NULL, NULL},
    {CORE_LOOP_SHIFT_RIGHT, "bitwise_right_shift.Tensor", NULL, NULL},
    {CORE_LOOP_EQ, "eq.Tensor", NULL, NULL},
    {CORE_LOOP_NE, "ne.Tensor", NULL, NULL},
    {CORE_LOOP_LT, "lt.Tensor", NULL, NULL},
    {CORE_LOOP_LE, "le.Tensor", NULL, NULL},
    {CORE_LOOP_GT, "gt.Tensor", NULL, NULL},
    {CORE_LOOP_GE, "ge.Tensor", NULL, NULL},
    {CORE_LOOP_SELECT, "where.self", NULL, NULL},
    {CORE_LOOP_CONVERT, "copy_", NULL, NULL},
};

/* The interpreter's own instructions. */
static bool is_own(uint32_t opcode)
{
    return (opcode >= CORE_LOOP_LOAD && opcode <= CORE_LOOP_ROW_SIZE) ||
           opcode == CORE_LOOP_PHILOX32 || opcode == CORE_LOOP_PHILOX64 ||
           (opcode >= CORE_LOOP_REDUCE_SUM && opcode <= CORE_LOOP_REDUCE_MIN);
}

static bool is_integer(uint32_t dtype)
{
    return dtype >= CORE_I64 && dtype <= CORE_U8;
}

static uint32_t count_values(uint32_t opcode)
{
    switch (opcode) {
    case CORE_LOOP_FMA:
    case CORE_LOOP_SELECT:
        return 3;
    case CORE_LOOP_NEG:
    case CORE_LOOP_ABS:
    case CORE_LOOP_SQRT:
    case CORE_LOOP_CEIL:
    case CORE_LOOP_FLOOR:
    case CORE_LOOP_TRUNC:
    case CORE_LOOP_ROUND:
    case CORE_LOOP_SIGNBIT:
    case CORE_LOOP_NOT:
    case CORE_LOOP_CONVERT:
        return 1;
    default:
        return 2;
    }
}

/* The operator of a function, and how many values it takes: the newest kernel
 * says, because functions of one and of two values have different names. */
static const core_kernel *find_function(const char *name, core_dtype type,
                                        uint32_t *out_values)
{
    const core_dtype dtypes[3] = {type, type, type};
    const core_kernel *kernel;

    for (*out_values = 1; *out_values <= 2; ++*out_values) {
        kernel = sim_kernel_of(name, dtypes, *out_values + 1);
        if (kernel && (*out_values == 2 || kernel->signature[2] == 0))
            return kernel;
    }
    return NULL;
}

static core_status no_kernel(const char *name)
{
    return core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                          "a loop program needs %s, for which the CPU has no "
                          "kernel",
                          name);
}

static core_status resolve_function(const core_loop_program *from,
                                    sim_step *step)
{
    core_string text = from->names[step->instruction.c];
    char name[CORE_LOOP_MAX_NAME_SIZE + 1];
    size_t size = (size_t)text.size;

    memcpy(name, text.data, size);
    if (core_sdk_string_equal(text, "gelu_tanh") ||
        core_sdk_string_equal(text, "gelu_backward_tanh")) {
        size -= 5;
        step->mode = "tanh";
    }
    name[size] = '\0';
    step->kernel = find_function(name, step->instruction.type, &step->nvalues);
    if (!step->kernel)
        return no_kernel(name);
    step->values[0] = step->instruction.a;
    step->values[1] = step->instruction.b;
    return sim_host->operator_find(core_sdk_string(name), &step->op);
}

static core_status resolve(const core_loop_program *from, sim_step *step)
{
    const core_loop_instruction *at = &step->instruction;
    const core_loop_instruction *all = from->instructions;
    core_dtype dtypes[4] = {at->type};
    const name_of_opcode *row = names;
    const name_of_opcode *end = names + sizeof names / sizeof *names;
    const char *name;

    if (at->opcode == CORE_LOOP_FUNCTION)
        return resolve_function(from, step);
    if (is_own(at->opcode))
        return CORE_OK;
    while (row < end && row->opcode != at->opcode)
        row++;
    if (row == end)
        return core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                              "a loop program has the opcode %u", at->opcode);
    step->nvalues = count_values(at->opcode);
    step->values[0] = at->a;
    step->values[1] = at->b;
    step->values[2] = at->c;
    if (at->opcode == CORE_LOOP_FMA) { /* addcmul adds to its first */
        step->values[0] = at->c;
        step->values[1] = at->a;
        step->values[2] = at->b;
    }
    for (uint32_t k = 0; k < step->nvalues; k++)
        dtypes[k + 1] = all[step->values[k]].type;
    name = row->name;
    if (row->of_integers && is_integer(at->type)) {
        name = row->of_integers;
        step->mode = row->mode;
    }
    step->kernel = sim_kernel_of(name, dtypes, step->nvalues + 1);
    if (!step->kernel)
        return no_kernel(name);
    return sim_host->operator_find(core_sdk_string(name), &step->op);
}

core_status sim_program_make(const core_loop_program *from, sim_program *out)
{
    core_status status = CORE_OK;

    memset(out, 0, sizeof *out);
    out->steps = calloc(from->ninstructions, sizeof *out->steps);
    if (!out->steps)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory for a loop program");
    out->nsteps = from->ninstructions;
    out->noperands = from->noperands;
    out->reduces = (from->flags & CORE_LOOP_PROGRAM_REDUCES) != 0;
    for (uint32_t k = 0; k < from->noperands; k++)
        if (from->operands[k].flags & CORE_LOOP_OPERAND_ROW)
            out->rows |= 1u << k;
    for (uint32_t i = 0; i < out->nsteps && status == CORE_OK; i++) {
        out->steps[i].instruction = from->instructions[i];
        status = resolve(from, &out->steps[i]);
    }
    return status;
}

void sim_program_free(sim_program *program)
{
    free(program->steps);
    program->steps = NULL;
}

uint64_t sim_program_scratch(const sim_program *program)
{
    return (uint64_t)program->nsteps * SIM_TILE_BYTES;
}

/* ------------------------------------------------------------------ run -- */

typedef struct run {
    const sim_program *program;
    const core_loop *loop;
    char *scratch;
    int64_t row_size;
    int64_t row;     /* its first position */
    int64_t begin;   /* the tile's, within the row */
    int64_t count;   /* its elements */
    core_status bad; /* found in data; the rest is computed nevertheless */
} run;

static char *value_of(const run *r, uint32_t value)
{
    return r->scratch + (size_t)value * SIM_TILE_BYTES;
}

static uint32_t size_of(const run *r, uint32_t value)
{
    return core_sdk_itemsize(r->program->steps[value].instruction.type);
}

/* The index of a position in all dimensions. */
static void index_of(const run *r, int64_t position, int64_t *index)
{
    for (uint32_t d = 0; d < r->loop->ndim; d++) {
        index[d] = position % r->loop->sizes[d];
        position /= r->loop->sizes[d];
    }
}

static int64_t position_of(const run *r, int64_t element)
{
    return r->row + r->begin + element;
}

static char *element_of(const run *r, uint32_t operand, int64_t element)
{
    const core_operand *o = &r->loop->operands[operand];
    char *at = (char *)o->memory.handle;
    int64_t index[CORE_MAX_NDIM];

    index_of(r, position_of(r, element), index);
    for (uint32_t d = 0; d < r->loop->ndim; d++)
        at += index[d] * o->strides[d];
    return at;
}

static void load(const run *r, const core_loop_instruction *at, char *to)
{
    const core_operand *o = &r->loop->operands[at->a];
    uint32_t size = core_sdk_itemsize(o->dtype);

    for (int64_t e = 0; e < r->count; e++)
        memcpy(to + e * size,
               o->flags & CORE_OPERAND_IMMEDIATE ? (const char *)&o->immediate
                                                 : element_of(r, at->a, e),
               size);
}

/* An element of a row is written in the last tile: it may have the memory of an
 * input that each tile reads. */
static void store(const run *r, const core_loop_instruction *at)
{
    uint32_t size = size_of(r, at->b);

    if (r->program->rows >> at->a & 1 && r->begin + r->count < r->row_size)
        return;
    for (int64_t e = 0; e < r->count; e++)
        memcpy(element_of(r, at->a, e), value_of(r, at->b) + e * size, size);
}

static void fill(const run *r, char *to, const void *element, uint32_t size)
{
    for (int64_t e = 0; e < r->count; e++)
        memcpy(to + e * size, element, size);
}

static uint64_t philox(uint64_t seed, uint64_t block, uint32_t words,
                       uint32_t which)
{
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)c[0] * 0xd2511f53u;
        uint64_t q = (uint64_t)c[2] * 0xcd9e8d57u;

        c[0] = (uint32_t)(q >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)q;
        c[2] = (uint32_t)(p >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return words == 1 ? c[which]
                      : c[2 * which] | (uint64_t)c[2 * which + 1] << 32;
}

static void draw(const run *r, const core_loop_instruction *at, char *to)
{
    const uint64_t *seed = (const void *)value_of(r, at->a);
    const uint64_t *block = (const void *)value_of(r, at->b);
    const uint64_t *element = (const void *)value_of(r, at->c);
    bool wide = at->opcode == CORE_LOOP_PHILOX64;
    uint32_t per_block = wide ? 2 : 4;

    for (int64_t e = 0; e < r->count; e++) {
        uint64_t bits =
            philox(seed[e], block[e] + element[e] / per_block, wide ? 2 : 1,
                   (uint32_t)(element[e] % per_block));

        memcpy(to + e * (wide ? 8 : 4), &bits, wide ? 8 : 4);
    }
}

/* Instructions without an operator. */
static void compute_own(const run *r, const core_loop_instruction *at, char *to)
{
    uint64_t bits = at->a | (uint64_t)at->b << 32;
    int64_t *numbers = (int64_t *)(void *)to;
    int64_t index[CORE_MAX_NDIM];

    switch (at->opcode) {
    case CORE_LOOP_LOAD:
        load(r, at, to);
        break;
    case CORE_LOOP_STORE:
        store(r, at);
        break;
    case CORE_LOOP_CONSTANT:
        fill(r, to, &bits, core_sdk_itemsize(at->type));
        break;
    case CORE_LOOP_INDEX:
        for (int64_t e = 0; e < r->count; e++) {
            index_of(r, position_of(r, e), index);
            numbers[e] = index[at->a];
        }
        break;
    case CORE_LOOP_SIZE:
        fill(r, to, &r->loop->sizes[at->a], sizeof(int64_t));
        break;
    case CORE_LOOP_POSITION:
        for (int64_t e = 0; e < r->count; e++)
            numbers[e] = position_of(r, e);
        break;
    case CORE_LOOP_ROW_SIZE:
        fill(r, to, &r->row_size, sizeof(int64_t));
        break;
    case CORE_LOOP_PHILOX32:
    case CORE_LOOP_PHILOX64:
        draw(r, at, to);
        break;
    default: /* a reduction: its value is there */
        break;
    }
}

static core_status compute(run *r, uint32_t value)
{
    const sim_step *step = &r->program->steps[value];
    int64_t strides[4][1];
    core_operand operands[4];
    core_value args[3] = {{0}, {0}, {0}};
    core_loop loop = {.struct_size = sizeof loop,
                      .flags = CORE_LOOP_CONTIGUOUS,
                      .ndim = 1,
                      .noperands = step->nvalues + 1,
                      .noutputs = 1,
                      .numel = r->count,
                      .sizes = &r->count,
                      .operands = operands};
    core_call call = {.struct_size = sizeof call,
                      .host = sim_host,
                      .loop = &loop,
                      .op = step->op,
                      .kernel_op = step->op};
    core_status status;

    if (!step->kernel) {
        compute_own(r, &step->instruction, value_of(r, value));
        return CORE_OK;
    }
    memset(operands, 0, sizeof operands);
    for (uint32_t k = 0; k <= step->nvalues; k++) {
        uint32_t of = k == 0 ? value : step->values[k - 1];

        strides[k][0] = size_of(r, of);
        operands[k].strides = strides[k];
        operands[k].dtype = r->program->steps[of].instruction.type;
        operands[k].flags = k == 0 ? CORE_OPERAND_OUTPUT : 0;
        operands[k].memory.handle = value_of(r, of);
    }
    if (step->mode) {
        args[2].tag = CORE_VALUE_STRING;
        args[2].count = (uint32_t)strlen(step->mode);
        args[2].u.string = step->mode;
    }
    call.user = step->kernel->user;
    status = step->kernel->launch(&call, args, step->mode ? 3 : 1, NULL, 0);
    if (status != CORE_ERROR_INVALID_ARGUMENT) /* division by zero */
        return status;
    r->bad = status;
    return CORE_OK;
}

/* Computes the instructions below `end` for a tile. */
static core_status compute_tile(run *r, int64_t begin, uint32_t end)
{
    core_status status = CORE_OK;

    r->begin = begin;
    r->count = r->row_size - begin < SIM_TILE ? r->row_size - begin : SIM_TILE;
    for (uint32_t i = 0; i < end && status == CORE_OK; i++)
        status = compute(r, i);
    return status;
}

/* ----------------------------------------------------------- reductions -- */

#define REDUCE(TYPE, WIDE, ADDED)                                             \
    static void reduce_##TYPE(uint32_t opcode, const TYPE *from, int64_t n,   \
                              WIDE *total, bool first)                        \
    {                                                                         \
        for (int64_t e = 0; e < n; e++, first = false) {                      \
            WIDE x = (WIDE)from[e];                                           \
            if (first)                                                        \
                *total = x;                                                   \
            else if (opcode == CORE_LOOP_REDUCE_SUM)                          \
                *total = (WIDE)((ADDED)*total + (ADDED)x);                    \
            else if (x != x || (opcode == CORE_LOOP_REDUCE_MAX ? x > *total   \
                                                               : x < *total)) \
                *total = x;                                                   \
        }                                                                     \
    }
REDUCE(float, double, double)
REDUCE(double, double, double)
REDUCE(int32_t, int64_t, uint64_t)
REDUCE(int64_t, int64_t, uint64_t)
#undef REDUCE

typedef union total {
    double real;
    int64_t integer;
} total;

static void reduce_tile(const run *r, const core_loop_instruction *at, total *t)
{
    const void *from = value_of(r, at->a);
    bool first = r->begin == 0;

    switch (at->type) {
    case CORE_F32:
        reduce_float(at->opcode, from, r->count, &t->real, first);
        break;
    case CORE_F64:
        reduce_double(at->opcode, from, r->count, &t->real, first);
        break;
    case CORE_I32:
        reduce_int32_t(at->opcode, from, r->count, &t->integer, first);
        break;
    default:
        reduce_int64_t(at->opcode, from, r->count, &t->integer, first);
        break;
    }
}

/* The value, for every element of a tile. */
static void spread(run *r, uint32_t value, const total *t)
{
    const core_loop_instruction *at = &r->program->steps[value].instruction;
    float single = (float)t->real;
    int32_t narrow = (int32_t)(uint32_t)(uint64_t)t->integer;
    const void *element = at->type == CORE_F32   ? (const void *)&single
                          : at->type == CORE_F64 ? (const void *)&t->real
                          : at->type == CORE_I32 ? (const void *)&narrow
                                                 : (const void *)&t->integer;

    r->count = SIM_TILE;
    fill(r, value_of(r, value), element, core_sdk_itemsize(at->type));
}

static core_status reduce(run *r, uint32_t value)
{
    total t = {.integer = 0};
    core_status status = CORE_OK;

    for (int64_t begin = 0; begin < r->row_size && status == CORE_OK;
         begin += SIM_TILE) {
        status = compute_tile(r, begin, value);
        reduce_tile(r, &r->program->steps[value].instruction, &t);
    }
    spread(r, value, &t);
    return status;
}

static core_status run_row(run *r)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < r->program->nsteps && status == CORE_OK; i++) {
        uint32_t opcode = r->program->steps[i].instruction.opcode;

        if (opcode >= CORE_LOOP_REDUCE_SUM && opcode <= CORE_LOOP_REDUCE_MIN)
            status = reduce(r, i);
    }
    for (int64_t begin = 0; begin < r->row_size && status == CORE_OK;
         begin += SIM_TILE)
        status = compute_tile(r, begin, r->program->nsteps);
    return status;
}

core_status sim_program_run(const sim_program *program, const core_loop *loop,
                            char *scratch)
{
    run r = {.program = program, .loop = loop, .scratch = scratch};
    core_status status = CORE_OK;

    r.row_size = 1;
    for (uint32_t d = 0; d < loop->ndim; d++)
        if (!program->reduces || loop->reduced >> d & 1)
            r.row_size *= loop->sizes[d];
    for (r.row = 0; r.row < loop->numel && status == CORE_OK;
         r.row += r.row_size)
        status = run_row(&r);
    return status == CORE_OK ? r.bad : status;
}
