/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Loop programs at random, and their results. */

#include "loop_reference.h"

#include "base/sha256.h"
#include "element_value.h"

#include <libcore/sdk.h>

#include <math.h>

/* ------------------------------------------------------------- programs -- */

void loop_case_begin(loop_case *self, uint32_t noutputs)
{
    memset(self, 0, sizeof *self);
    self->program.struct_size = sizeof self->program;
    self->program.noutputs = noutputs;
    self->program.noperands = noutputs;
    self->program.instructions = self->instructions;
    self->program.operands = self->operands;
    self->program.names = self->names;
    for (uint32_t k = 0; k < noutputs; k++)
        self->operands[k].flags = CORE_LOOP_OPERAND_OUTPUT;
}

uint32_t loop_case_operand(loop_case *self, core_dtype dtype, uint32_t flags)
{
    self->operands[self->program.noperands] = (core_loop_operand){dtype, flags};
    return self->program.noperands++;
}

uint32_t loop_case_add(loop_case *self, uint32_t opcode, core_dtype type,
                       uint32_t a, uint32_t b, uint32_t c)
{
    self->instructions[self->program.ninstructions] =
        (core_loop_instruction){(uint8_t)opcode, (uint8_t)type, 0, a, b, c};
    return self->program.ninstructions++;
}

uint32_t loop_case_load(loop_case *self, core_dtype dtype, uint32_t flags)
{
    return loop_case_add(self, CORE_LOOP_LOAD, dtype,
                         loop_case_operand(self, dtype, flags), 0, 0);
}

uint32_t loop_case_constant(loop_case *self, core_dtype dtype, double value)
{
    uint64_t bits = 0;

    element_store(dtype, value, &bits);
    return loop_case_add(self, CORE_LOOP_CONSTANT, dtype, (uint32_t)bits,
                         (uint32_t)(bits >> 32), 0);
}

void loop_case_store(loop_case *self, uint32_t output, uint32_t value)
{
    self->operands[output].dtype = self->instructions[value].type;
    loop_case_add(self, CORE_LOOP_STORE, CORE_DTYPE_NONE, output, value, 0);
}

void loop_case_end(loop_case *self)
{
    const core_loop_program *p = &self->program;
    core__sha256 sha;
    char text[65];

    core__sha256_begin(&sha);
    core__sha256_add(&sha, self->instructions,
                     p->ninstructions * sizeof *self->instructions);
    core__sha256_add(&sha, self->operands,
                     p->noperands * sizeof *self->operands);
    for (uint32_t i = 0; i < p->nnames; i++)
        core__sha256_add(&sha, p->names[i].data, p->names[i].size);
    core__sha256_end(&sha, text);
    for (size_t i = 0; i < sizeof p->hash; i++)
        self->program.hash[i] = (uint8_t)(text[2 * i] * 31 + text[2 * i + 1]);
}

/* --------------------------------------------------------------- random -- */

enum {
    FLOATS = 0x1e,
    INTEGERS = 0x3e0,
    NUMBERS = 0x3fe,
    BITS = 0x7e0,
    ANY = 0x7fe
};

typedef enum shape { UNARY, BINARY, TEST, SELECTION, CONVERSION } shape;

/* What is drawn from; the results of all are defined to the bit. */
static const struct {
    uint8_t opcode, shape;
    uint16_t types;
    bool divides; /* by an integer that must not be 0 */
} drawn[] = {
    {CORE_LOOP_ADD, BINARY, NUMBERS, false},
    {CORE_LOOP_SUB, BINARY, NUMBERS, false},
    {CORE_LOOP_MUL, BINARY, NUMBERS, false},
    {CORE_LOOP_DIV, BINARY, NUMBERS, true},
    {CORE_LOOP_FLOOR_DIVIDE, BINARY, INTEGERS, true},
    {CORE_LOOP_FMOD, BINARY, INTEGERS, true},
    {CORE_LOOP_REMAINDER, BINARY, INTEGERS, true},
    {CORE_LOOP_NEG, UNARY, NUMBERS, false},
    {CORE_LOOP_ABS, UNARY, NUMBERS, false},
    {CORE_LOOP_SQRT, UNARY, FLOATS, false},
    {CORE_LOOP_CEIL, UNARY, FLOATS, false},
    {CORE_LOOP_FLOOR, UNARY, FLOATS, false},
    {CORE_LOOP_TRUNC, UNARY, FLOATS, false},
    {CORE_LOOP_ROUND, UNARY, FLOATS, false},
    {CORE_LOOP_MAXIMUM, BINARY, NUMBERS, false},
    {CORE_LOOP_MINIMUM, BINARY, NUMBERS, false},
    {CORE_LOOP_FMAX, BINARY, NUMBERS, false},
    {CORE_LOOP_FMIN, BINARY, NUMBERS, false},
    {CORE_LOOP_AND, BINARY, BITS, false},
    {CORE_LOOP_OR, BINARY, BITS, false},
    {CORE_LOOP_XOR, BINARY, BITS, false},
    {CORE_LOOP_NOT, UNARY, BITS, false},
    {CORE_LOOP_EQ, TEST, ANY, false},
    {CORE_LOOP_NE, TEST, ANY, false},
    {CORE_LOOP_LT, TEST, ANY, false},
    {CORE_LOOP_LE, TEST, ANY, false},
    {CORE_LOOP_GT, TEST, ANY, false},
    {CORE_LOOP_GE, TEST, ANY, false},
    {CORE_LOOP_SELECT, SELECTION, ANY, false},
    {CORE_LOOP_CONVERT, CONVERSION, ANY, false},
};

static uint32_t draw(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % limit);
}

/* The value of a type that was defined last but a few; UINT32_MAX: none. */
static uint32_t pick(loop_case *self, uint64_t *state, core_dtype type)
{
    uint32_t found[LOOP_INSTRUCTIONS], count = 0;

    for (uint32_t i = self->program.ninstructions; i-- > 0;)
        if (self->instructions[i].type == type)
            found[count++] = i;
    return count ? found[draw(state, count < 4 ? count : 4)] : UINT32_MAX;
}

static bool is_float(core_dtype type)
{
    return FLOATS >> type & 1;
}

/* Conversions that round once, and whose results are in range. */
static bool converts(core_dtype from, core_dtype to)
{
    bool half = to == CORE_F16 || to == CORE_BF16;

    if (from == to || (is_float(from) && INTEGERS >> to & 1))
        return false;
    return !half || from == CORE_F32 || from == CORE_BOOL || from == CORE_I8 ||
           from == CORE_U8;
}

static void add_random(loop_case *self, uint64_t *state, bool divides)
{
    uint32_t at = draw(state, sizeof drawn / sizeof *drawn);
    core_dtype type = CORE_F64 + draw(state, 10);
    uint32_t a = pick(self, state, type), b = pick(self, state, type), c;

    if (!(drawn[at].types >> type & 1) || a == UINT32_MAX)
        return;
    if (!divides && is_float(type) &&
        (drawn[at].opcode == CORE_LOOP_DIV ||
         drawn[at].opcode == CORE_LOOP_SQRT))
        return;
    if (drawn[at].divides && INTEGERS >> type & 1)
        b = loop_case_add(self, CORE_LOOP_OR, type, b,
                          loop_case_constant(self, type, 1), 0);
    switch (drawn[at].shape) {
    case UNARY:
        loop_case_add(self, drawn[at].opcode, type, a, 0, 0);
        break;
    case BINARY:
        loop_case_add(self, drawn[at].opcode, type, a, b, 0);
        break;
    case TEST:
        loop_case_add(self, drawn[at].opcode, CORE_BOOL, a, b, 0);
        break;
    case SELECTION:
        c = pick(self, state, CORE_BOOL);
        if (c != UINT32_MAX)
            loop_case_add(self, drawn[at].opcode, type, c, a, b);
        break;
    default: {
        core_dtype to = CORE_F64 + draw(state, 10);

        if (converts(type, to))
            loop_case_add(self, drawn[at].opcode, to, a, 0, 0);
        break;
    }
    }
}

static uint32_t values_of(const core_loop_instruction *at)
{
    switch (at->opcode) {
    case CORE_LOOP_LOAD:
    case CORE_LOOP_CONSTANT:
    case CORE_LOOP_INDEX:
    case CORE_LOOP_SIZE:
    case CORE_LOOP_POSITION:
    case CORE_LOOP_ROW_SIZE:
        return 0;
    case CORE_LOOP_STORE:
        return 2;
    case CORE_LOOP_SELECT:
        return 7;
    case CORE_LOOP_REDUCE_SUM:
    case CORE_LOOP_REDUCE_MAX:
    case CORE_LOOP_REDUCE_MIN:
        return 1;
    default:
        for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
            if (drawn[i].opcode == at->opcode)
                return drawn[i].shape == UNARY || drawn[i].shape == CONVERSION
                           ? 1
                           : 3;
        return 0;
    }
}

/* Removes instructions and inputs on which no STORE depends. */
static void compact(loop_case *self)
{
    uint32_t number[LOOP_INSTRUCTIONS], operand[LOOP_OPERANDS] = {0};
    bool used[LOOP_INSTRUCTIONS] = {false}, loaded[LOOP_OPERANDS] = {false};
    core_loop_program *p = &self->program;
    uint32_t count = 0, noperands = p->noutputs;

    for (uint32_t i = p->ninstructions; i-- > 0;) {
        const core_loop_instruction *at = &self->instructions[i];
        uint32_t values = values_of(at);

        used[i] = used[i] || at->opcode == CORE_LOOP_STORE;
        if (!used[i])
            continue;
        if (at->opcode == CORE_LOOP_LOAD)
            loaded[at->a] = true;
        if (values & 1)
            used[at->a] = true;
        if (values & 2)
            used[at->b] = true;
        if (values & 4)
            used[at->c] = true;
    }
    for (uint32_t k = p->noutputs; k < p->noperands; k++)
        if (loaded[k]) {
            operand[k] = noperands;
            self->operands[noperands++] = self->operands[k];
        }
    for (uint32_t i = 0; i < p->ninstructions; i++) {
        core_loop_instruction now = self->instructions[i];
        uint32_t values = values_of(&now);

        if (!used[i])
            continue;
        if (now.opcode == CORE_LOOP_LOAD)
            now.a = operand[now.a];
        now.a = values & 1 ? number[now.a] : now.a;
        now.b = values & 2 ? number[now.b] : now.b;
        now.c = values & 4 ? number[now.c] : now.c;
        number[i] = count;
        self->instructions[count++] = now;
    }
    p->ninstructions = count;
    p->noperands = noperands;
}

void loop_case_random(loop_case *self, uint64_t seed, bool divides)
{
    uint64_t state = seed;
    uint32_t inputs = 2 + draw(&state, 4), noutputs = 1 + draw(&state, 2);
    uint32_t steps = 20 + draw(&state, 100), last;

    loop_case_begin(self, noutputs);
    for (uint32_t k = 0; k < inputs; k++)
        loop_case_load(self, CORE_F64 + draw(&state, 10),
                       draw(&state, 6) == 0 ? CORE_LOOP_OPERAND_NUMBER : 0);
    for (uint32_t k = 0; k < 3; k++)
        loop_case_constant(self, CORE_F64 + draw(&state, 10),
                           (double)draw(&state, 9) - 4);
    while (steps-- > 0 && self->program.ninstructions < LOOP_INSTRUCTIONS - 8)
        add_random(self, &state, divides);
    last = self->program.ninstructions - 1;
    for (uint32_t k = 0; k < noutputs; k++)
        loop_case_store(self, k, last - k);
    compact(self);
    loop_case_end(self);
}

/* ------------------------------------------------------- random, of rows -- */

static bool reduces(uint32_t opcode)
{
    return opcode >= CORE_LOOP_REDUCE_SUM && opcode <= CORE_LOOP_REDUCE_MIN;
}

/* Whether a value is the same for all elements of a row. */
static bool is_uniform(const loop_case *self, uint32_t value)
{
    bool known[LOOP_INSTRUCTIONS];

    for (uint32_t i = 0; i <= value; i++) {
        const core_loop_instruction *at = &self->instructions[i];
        uint32_t values = values_of(at);

        known[i] = (!(values & 1) || known[at->a]) &&
                   (!(values & 2) || known[at->b]) &&
                   (!(values & 4) || known[at->c]);
        if (at->opcode == CORE_LOOP_LOAD)
            known[i] = self->operands[at->a].flags &
                       (CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW);
        if (at->opcode == CORE_LOOP_INDEX || at->opcode == CORE_LOOP_POSITION)
            known[i] = false;
        if (reduces(at->opcode))
            known[i] = true;
    }
    return known[value];
}

/* The sum of small integers, or an extreme of numbers without -0; of a value
 * that is not uniform. */
static void add_reduction(loop_case *self, uint64_t *state)
{
    static const core_dtype types[] = {CORE_F32, CORE_F64, CORE_I32, CORE_I64};
    core_dtype type = types[draw(state, 4)];
    uint32_t opcode = CORE_LOOP_REDUCE_SUM + draw(state, 3);
    bool exact = opcode == CORE_LOOP_REDUCE_SUM && is_float(type);
    uint32_t a = pick(self, state, exact ? CORE_I8 : type);

    if (a == UINT32_MAX || is_uniform(self, a)) {
        /* The first input is of u8 and not uniform. */
        a = loop_case_add(self, CORE_LOOP_CONVERT, type, 0, 0, 0);
    } else if (exact) {
        a = loop_case_add(self, CORE_LOOP_CONVERT, type, a, 0, 0);
    } else if (is_float(type)) {
        a = loop_case_add(self, CORE_LOOP_ADD, type, a,
                          loop_case_constant(self, type, 0), 0);
    }
    loop_case_add(self, opcode, type, a, 0, 0);
}

void loop_case_random_rows(loop_case *self, uint64_t seed, bool divides)
{
    uint64_t state = seed;
    uint32_t inputs = 1 + draw(&state, 4), count = 1 + draw(&state, 3), last;

    loop_case_begin(self, 2);
    self->program.flags = CORE_LOOP_PROGRAM_REDUCES;
    self->operands[1].flags |= CORE_LOOP_OPERAND_ROW;
    loop_case_load(self, CORE_U8, 0);
    for (uint32_t k = 0; k < inputs; k++) {
        uint32_t how = draw(&state, 8);

        loop_case_load(self, CORE_F64 + draw(&state, 10),
                       how == 0   ? CORE_LOOP_OPERAND_NUMBER
                       : how == 1 ? CORE_LOOP_OPERAND_ROW
                                  : 0);
    }
    loop_case_add(self, CORE_LOOP_ROW_SIZE, CORE_I64, 0, 0, 0);
    loop_case_constant(self, CORE_F64 + draw(&state, 10), 3);
    while (count-- > 0) {
        for (uint32_t i = draw(&state, 40); i > 0; i--)
            if (self->program.ninstructions < LOOP_INSTRUCTIONS / 4 * 3)
                add_random(self, &state, divides);
        add_reduction(self, &state);
    }
    last = self->program.ninstructions - 1;
    for (uint32_t i = draw(&state, 20); i > 0; i--)
        if (self->program.ninstructions < LOOP_INSTRUCTIONS - 8)
            add_random(self, &state, divides);
    loop_case_store(self, 0, self->program.ninstructions - 1);
    loop_case_store(self, 1, last);
    compact(self);
    loop_case_end(self);
}

/* ----------------------------------------------------------- arithmetic -- */

/* A value: floats in f, exactly; integers and bools in i. */
typedef struct number {
    double f;
    int64_t i;
} number;

static int64_t wrapped(core_dtype type, uint64_t bits)
{
    switch (type) {
    case CORE_I32:
        return (int32_t)(uint32_t)bits;
    case CORE_I16:
        return (int16_t)(uint16_t)bits;
    case CORE_I8:
        return (int8_t)(uint8_t)bits;
    case CORE_U8:
        return (uint8_t)bits;
    case CORE_BOOL:
        return bits != 0;
    default:
        return (int64_t)bits;
    }
}

/* f16 and bf16 are computed in f32; f is then an f32. */
static double rounded(core_dtype type, double f)
{
    return type == CORE_F64 ? f : element_rounded(type, f);
}

static double divided(core_dtype type, double a, double b)
{
    return type == CORE_F64 ? a / b : (double)((float)a / (float)b);
}

static double of_floats(const core_loop_instruction *at, double a, double b)
{
    bool wide = at->type == CORE_F64;

    switch (at->opcode) {
    case CORE_LOOP_ADD:
        return wide ? a + b : (double)((float)a + (float)b);
    case CORE_LOOP_SUB:
        return wide ? a - b : (double)((float)a - (float)b);
    case CORE_LOOP_MUL:
        return wide ? a * b : (double)((float)a * (float)b);
    case CORE_LOOP_DIV:
        return divided(at->type, a, b);
    case CORE_LOOP_NEG:
        return -a;
    case CORE_LOOP_ABS:
        return fabs(a);
    case CORE_LOOP_SQRT:
        return wide ? sqrt(a) : (double)sqrtf((float)a);
    case CORE_LOOP_CEIL:
        return ceil(a);
    case CORE_LOOP_FLOOR:
        return floor(a);
    case CORE_LOOP_TRUNC:
        return trunc(a);
    case CORE_LOOP_ROUND:
        return rint(a);
    case CORE_LOOP_MAXIMUM:
        return a > b || a != a ? a : b;
    case CORE_LOOP_MINIMUM:
        return a < b || a != a ? a : b;
    case CORE_LOOP_FMAX:
        return a > b || b != b ? a : b;
    default: /* FMIN */
        return a < b || b != b ? a : b;
    }
}

static int64_t divided_down(int64_t a, int64_t b)
{
    int64_t quotient = b == -1 ? (int64_t) - (uint64_t)a : a / b;

    return b != -1 && a % b != 0 && (a ^ b) < 0 ? quotient - 1 : quotient;
}

static uint64_t of_integers(const core_loop_instruction *at, int64_t a,
                            int64_t b)
{
    uint64_t x = (uint64_t)a, y = (uint64_t)b;

    switch (at->opcode) {
    case CORE_LOOP_ADD:
        return x + y;
    case CORE_LOOP_SUB:
        return x - y;
    case CORE_LOOP_MUL:
        return x * y;
    case CORE_LOOP_DIV:
        return b == -1 ? -x : (uint64_t)(a / b);
    case CORE_LOOP_FLOOR_DIVIDE:
        return (uint64_t)divided_down(a, b);
    case CORE_LOOP_FMOD:
        return b == -1 ? 0 : (uint64_t)(a % b);
    case CORE_LOOP_REMAINDER:
        return b == -1 ? 0 : x - y * (uint64_t)divided_down(a, b);
    case CORE_LOOP_NEG:
        return -x;
    case CORE_LOOP_ABS:
        return a < 0 ? -x : x;
    case CORE_LOOP_MAXIMUM:
    case CORE_LOOP_FMAX:
        return a > b ? x : y;
    case CORE_LOOP_MINIMUM:
    case CORE_LOOP_FMIN:
        return a < b ? x : y;
    case CORE_LOOP_AND:
        return x & y;
    case CORE_LOOP_OR:
        return x | y;
    case CORE_LOOP_XOR:
        return x ^ y;
    default: /* NOT */
        return at->type == CORE_BOOL ? !a : ~x;
    }
}

static bool compared(uint32_t opcode, core_dtype type, number a, number b)
{
    int order =
        is_float(type) ? (a.f > b.f) - (a.f < b.f) : (a.i > b.i) - (a.i < b.i);
    bool ordered = !is_float(type) || (a.f == a.f && b.f == b.f);

    switch (opcode) {
    case CORE_LOOP_EQ:
        return ordered && order == 0;
    case CORE_LOOP_NE:
        return !ordered || order != 0;
    case CORE_LOOP_LT:
        return ordered && order < 0;
    case CORE_LOOP_LE:
        return ordered && order <= 0;
    case CORE_LOOP_GT:
        return ordered && order > 0;
    default:
        return ordered && order >= 0;
    }
}

static number converted(core_dtype from, core_dtype to, number a)
{
    if (is_float(from) && is_float(to))
        a.f = to == CORE_F32 ? (double)(float)a.f : rounded(to, a.f);
    else if (is_float(from)) /* to bool */
        a.i = a.f != 0;
    else if (is_float(to))
        a.f = to == CORE_F64 ? (double)a.i : rounded(to, (double)(float)a.i);
    else
        a.i = wrapped(to, (uint64_t)a.i);
    return a;
}

static number loaded(core_dtype type, const void *from)
{
    number value = {0, 0};
    uint64_t bits = 0;

    memcpy(&bits, from, core_sdk_itemsize(type));
    if (is_float(type))
        value.f = element_load(type, from);
    else
        value.i = wrapped(type, bits);
    return value;
}

static void stored(core_dtype type, number value, void *to)
{
    if (is_float(type))
        element_store(type, value.f, to);
    else
        memcpy(to, &value.i, core_sdk_itemsize(type));
}

/* ------------------------------------------------------------------ run -- */

typedef struct run {
    const core_loop_program *program;
    const core_loop *loop;
    int64_t index[CORE_MAX_NDIM];
    int64_t position, row_size;
    number values[LOOP_INSTRUCTIONS];
} run;

static char *element(const run *r, uint32_t operand)
{
    const core_operand *o = &r->loop->operands[operand];
    char *at = (char *)o->memory.handle + o->memory.offset;

    if (o->flags & CORE_OPERAND_IMMEDIATE)
        return (char *)(uintptr_t)&o->immediate;
    for (uint32_t d = 0; d < r->loop->ndim; d++)
        at += r->index[d] * o->strides[d];
    return at;
}

static number computed(const run *r, const core_loop_instruction *at)
{
    const core_loop_instruction *all = r->program->instructions;
    uint64_t bits = at->a | (uint64_t)at->b << 32;
    uint32_t values = values_of(at);
    number a = {0, 0}, b = a, out = a;

    if (values & 1)
        a = r->values[at->a];
    if (values & 2)
        b = r->values[at->b];
    switch (at->opcode) {
    case CORE_LOOP_LOAD:
        return loaded(at->type, element(r, at->a));
    case CORE_LOOP_CONSTANT:
        return loaded(at->type, &bits);
    case CORE_LOOP_INDEX:
        out.i = r->index[at->a];
        return out;
    case CORE_LOOP_SIZE:
        out.i = r->loop->sizes[at->a];
        return out;
    case CORE_LOOP_POSITION:
        out.i = r->position;
        return out;
    case CORE_LOOP_ROW_SIZE:
        out.i = r->row_size;
        return out;
    case CORE_LOOP_SELECT:
        return a.i ? b : r->values[at->c];
    case CORE_LOOP_CONVERT:
        return converted(all[at->a].type, at->type, a);
    default:
        break;
    }
    if (at->opcode >= CORE_LOOP_EQ && at->opcode <= CORE_LOOP_GE)
        out.i = compared(at->opcode, all[at->a].type, a, b);
    else if (is_float(at->type))
        out.f = rounded(at->type, of_floats(at, a.f, b.f));
    else
        out.i = wrapped(at->type, of_integers(at, a.i, b.i));
    return out;
}

/* An element of a row may have the memory of inputs of all its elements. */
static bool is_written(const run *r, uint32_t operand)
{
    return !(r->program->operands[operand].flags & CORE_LOOP_OPERAND_ROW) ||
           r->position % r->row_size == r->row_size - 1;
}

/* The instructions before `end` for an element; those of reductions keep their
 * values. */
static void run_element(run *r, uint32_t end)
{
    const core_loop_program *p = r->program;
    int64_t left = r->position;

    for (uint32_t d = 0; d < r->loop->ndim; d++) {
        r->index[d] = left % r->loop->sizes[d];
        left /= r->loop->sizes[d];
    }
    for (uint32_t i = 0; i < end; i++) {
        const core_loop_instruction *at = &p->instructions[i];

        if (at->opcode == CORE_LOOP_STORE && is_written(r, at->a))
            stored(p->operands[at->a].dtype, r->values[at->b],
                   element(r, at->a));
        else if (at->opcode != CORE_LOOP_STORE && !reduces(at->opcode))
            r->values[i] = computed(r, at);
    }
}

static number combined(const core_loop_instruction *at, number a, number b)
{
    core_loop_instruction step = {.type = at->type};

    step.opcode = at->opcode == CORE_LOOP_REDUCE_SUM   ? CORE_LOOP_ADD
                  : at->opcode == CORE_LOOP_REDUCE_MAX ? CORE_LOOP_MAXIMUM
                                                       : CORE_LOOP_MINIMUM;
    if (is_float(at->type)) {
        step.type = CORE_F64;
        a.f = of_floats(&step, a.f, b.f);
    } else {
        a.i = wrapped(at->type, of_integers(&step, a.i, b.i));
    }
    return a;
}

/* The row's first element is at the position. */
static void reduce_row(run *r, uint32_t value)
{
    const core_loop_instruction *at = &r->program->instructions[value];
    int64_t first = r->position, end = first + r->row_size;
    number total = {0, 0};

    for (; r->position < end; r->position++) {
        run_element(r, value);
        total = r->position == first ? r->values[at->a]
                                     : combined(at, total, r->values[at->a]);
    }
    r->position = first;
    if (is_float(at->type))
        total.f = rounded(at->type, total.f);
    r->values[value] = total;
}

void loop_reference_run(const core_loop_program *program, const core_loop *loop)
{
    run r = {.program = program, .loop = loop, .row_size = 1};

    for (uint32_t d = 0; d < loop->ndim; d++)
        if (loop->reduced >> d & 1)
            r.row_size *= loop->sizes[d];
    while (r.position < loop->numel) {
        int64_t end = r.position + r.row_size;

        for (uint32_t i = 0; i < program->ninstructions; i++)
            if (reduces(program->instructions[i].opcode))
                reduce_row(&r, i);
        for (; r.position < end; r.position++)
            run_element(&r, program->ninstructions);
    }
}

/* The constants CORE_LOOP_… without their prefix. */
static const char *const opcode_names[] = {
    [CORE_LOOP_LOAD] = "load",
    [CORE_LOOP_STORE] = "store",
    [CORE_LOOP_CONSTANT] = "constant",
    [CORE_LOOP_INDEX] = "index",
    [CORE_LOOP_SIZE] = "size",
    [CORE_LOOP_POSITION] = "position",
    [CORE_LOOP_ROW_SIZE] = "row_size",
    [CORE_LOOP_ADD] = "add",
    [CORE_LOOP_SUB] = "sub",
    [CORE_LOOP_MUL] = "mul",
    [CORE_LOOP_DIV] = "div",
    [CORE_LOOP_FLOOR_DIVIDE] = "floor_divide",
    [CORE_LOOP_FMOD] = "fmod",
    [CORE_LOOP_REMAINDER] = "remainder",
    [CORE_LOOP_FMA] = "fma",
    [CORE_LOOP_NEG] = "neg",
    [CORE_LOOP_ABS] = "abs",
    [CORE_LOOP_SQRT] = "sqrt",
    [CORE_LOOP_CEIL] = "ceil",
    [CORE_LOOP_FLOOR] = "floor",
    [CORE_LOOP_TRUNC] = "trunc",
    [CORE_LOOP_ROUND] = "round",
    [CORE_LOOP_MAXIMUM] = "maximum",
    [CORE_LOOP_MINIMUM] = "minimum",
    [CORE_LOOP_FMAX] = "fmax",
    [CORE_LOOP_FMIN] = "fmin",
    [CORE_LOOP_COPYSIGN] = "copysign",
    [CORE_LOOP_SIGNBIT] = "signbit",
    [CORE_LOOP_AND] = "and",
    [CORE_LOOP_OR] = "or",
    [CORE_LOOP_XOR] = "xor",
    [CORE_LOOP_NOT] = "not",
    [CORE_LOOP_SHIFT_LEFT] = "shift_left",
    [CORE_LOOP_SHIFT_RIGHT] = "shift_right",
    [CORE_LOOP_EQ] = "eq",
    [CORE_LOOP_NE] = "ne",
    [CORE_LOOP_LT] = "lt",
    [CORE_LOOP_LE] = "le",
    [CORE_LOOP_GT] = "gt",
    [CORE_LOOP_GE] = "ge",
    [CORE_LOOP_SELECT] = "select",
    [CORE_LOOP_CONVERT] = "convert",
    [CORE_LOOP_FUNCTION] = "function",
    [CORE_LOOP_PHILOX32] = "philox32",
    [CORE_LOOP_PHILOX64] = "philox64",
    [CORE_LOOP_REDUCE_SUM] = "reduce_sum",
    [CORE_LOOP_REDUCE_MAX] = "reduce_max",
    [CORE_LOOP_REDUCE_MIN] = "reduce_min",
};

/* "%3 = mul f32 %1 %2", as "mul f32 1 2": the operands are those of codegen.h,
 * values counted by instruction. */
static const char *opcode_name(uint32_t opcode)
{
    const size_t count = sizeof opcode_names / sizeof *opcode_names;

    return opcode < count && opcode_names[opcode] ? opcode_names[opcode] : "?";
}

void loop_case_text(const core_loop_program *program, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < program->ninstructions; i++) {
        const core_loop_instruction *at = &program->instructions[i];
        int length = snprintf(
            text + used, size - used, "%s%s%s%s(%u,%u,%u)", i ? " " : "",
            opcode_name(at->opcode), at->type ? " " : "",
            at->type ? core_dtype_name(at->type) : "", at->a, at->b, at->c);

        if (length < 0 || (size_t)length >= size - used)
            break;
        used += (size_t)length;
    }
}
