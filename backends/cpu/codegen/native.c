/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "native.h"

#include <stdlib.h>
#include <string.h>

#include <expressions/number.h>
#include <libcore/sdk.h>

#include "code_memory.h"

static bool wanted = true;

void cpu_native_choose(const core_host *host)
{
    static const char *const no[] = {"0", "off", "no", "false"};
    core_string text = host->setting(core_sdk_string("LIBCORE_CPU_NATIVE"));

    wanted = true;
    for (int k = 0; k < 4; k++)
        if (core_sdk_string_equal(text, no[k]))
            wanted = false;
}

bool cpu_native_is_on(void)
{
    return CPU_NATIVE && wanted && cpu_isa >= CPU_ISA_AVX2 &&
           !cpu_code_refused();
}

/* -------------------------------------------------------- vector code -- */

enum {
    SUPPORTED = 1u << CORE_F32 | 1u << CORE_F16 | 1u << CORE_BF16 |
                1u << CORE_I32 | 1u << CORE_I16 | 1u << CORE_I8 |
                1u << CORE_U8 | 1u << CORE_BOOL,
    FLOATS = 1u << CORE_F32 | 1u << CORE_F16 | 1u << CORE_BF16
};

/* The vectors of a step's value.  Floats are f32; integers are extended to 32
 * bits; bool is a mask.  f16 may also be bits, for what copies it. */
typedef struct vectors {
    vector_value value, bits;
} vectors;

typedef struct lowering {
    const cpu_tile_kernel *kernel;
    vector_code *code;
    cpu_native_group *group;
    vectors *of;  /* each step */
    bool attempt; /* only to find out whether a step can be lowered */
} lowering;

static bool is_float(uint32_t type)
{
    return FLOATS >> type & 1;
}

static vector_element element_of(uint32_t type, bool bits)
{
    switch (type) {
    case CORE_BF16:
        return VECTOR_BF16;
    case CORE_F16:
        return bits ? VECTOR_U16 : VECTOR_F16;
    case CORE_I16:
        return VECTOR_I16;
    case CORE_I8:
        return VECTOR_I8;
    case CORE_U8:
        return VECTOR_U8;
    case CORE_BOOL:
        return VECTOR_BOOL;
    default:
        return VECTOR_32;
    }
}

/* The number of the pointer to a step's value. */
static uint32_t pointer_to(lowering *l, uint16_t step, uint8_t role)
{
    cpu_native_group *group = l->group;

    for (uint32_t k = 0; k < group->npointers; k++)
        if (group->step[k] == step && group->role[k] == role)
            return k;
    if (group->npointers == VECTOR_POINTERS) {
        l->code->full = true;
        return 0;
    }
    group->step[group->npointers] = step;
    group->role[group->npointers] = role;
    group->size[group->npointers] =
        (uint8_t)core_sdk_itemsize(l->kernel->steps[step].type);
    return group->npointers++;
}

static vector_value constant(lowering *l, const cpu_tile_step *step, bool bits)
{
    uint32_t low = (uint32_t)step->bits;

    switch (step->type) {
    case CORE_BF16:
        return vector_bits(l->code, low << 16);
    case CORE_F16:
        return bits ? vector_bits(l->code, low & 0xffff)
                    : vector_float(l->code, math_f32_of_f16((uint16_t)low));
    case CORE_I16:
        return vector_bits(l->code, (uint32_t)(int16_t)low);
    case CORE_I8:
        return vector_bits(l->code, (uint32_t)(int8_t)low);
    case CORE_BOOL:
        return vector_int_compare(l->code, VECTOR_NE,
                                  vector_bits(l->code, low & 0xff),
                                  vector_bits(l->code, 0));
    default:
        return vector_bits(l->code, low);
    }
}

/* A value that is computed before the group. */
static vector_value outside(lowering *l, uint16_t number, bool bits)
{
    const cpu_tile_step *step = &l->kernel->steps[number];
    vector_element element = element_of(step->type, bits);

    if (l->attempt)
        return step->type == CORE_BOOL ? vector_uniform(l->code, 0, VECTOR_BOOL)
                                       : vector_bits(l->code, 0);
    if (step->kind == CPU_TILE_FILL && step->operand == CPU_TILE_NONE)
        return constant(l, step, bits);
    if (step->constant || step->uniform)
        return vector_uniform(
            l->code, pointer_to(l, number, CPU_NATIVE_UNIFORM), element);
    return vector_load(l->code, pointer_to(l, number, CPU_NATIVE_INPUT),
                       element, step->kind == CPU_TILE_LOAD);
}

static vector_value select_values(lowering *l, const cpu_tile_step *step,
                                  bool bits);

/* bits: of an f16. */
static vector_value vector_of(lowering *l, uint16_t number, bool bits)
{
    const cpu_tile_step *step = &l->kernel->steps[number];
    vectors *known;
    vector_value *place;

    if (l->attempt)
        return outside(l, number, bits);
    known = &l->of[number];
    place = bits ? &known->bits : &known->value;
    if (*place != VECTOR_NONE)
        return *place;
    if (number < l->group->first)
        *place = outside(l, number, bits);
    else if (step->kind == CPU_TILE_ROW && step->operation == CORE_LOOP_SELECT)
        *place = select_values(l, step, bits);
    else
        *place = vector_1(l->code, VECTOR_BITS_OF_F16, known->value);
    return *place;
}

static vector_value input_of(lowering *l, const cpu_tile_step *step, uint32_t k)
{
    return vector_of(l, step->inputs[k], false);
}

static vector_value select_values(lowering *l, const cpu_tile_step *step,
                                  bool bits)
{
    vector_value mask = input_of(l, step, 0);
    vector_value a = vector_of(l, step->inputs[1], bits);
    vector_value b = vector_of(l, step->inputs[2], bits);

    if (step->type == CORE_BOOL) {
        a = vector_masks(l->code, VECTOR_MASK_AND, mask, a);
        b = vector_masks(l->code, VECTOR_MASK_AND, vector_not(l->code, mask),
                         b);
        return vector_masks(l->code, VECTOR_MASK_OR, a, b);
    }
    return vector_3(l->code, VECTOR_SELECT, mask, a, b);
}

/* Rounds what was computed in f32, or wraps what was computed in i32. */
static vector_value fit(lowering *l, uint32_t type, vector_value x)
{
    uint32_t bits = type == CORE_I16 ? 16 : 24;

    switch (type) {
    case CORE_BF16:
        return vector_round_bf16(l->code, x);
    case CORE_F16:
        return vector_1(l->code, VECTOR_ROUND_F16, x);
    case CORE_U8:
        return vector_2(l->code, VECTOR_AND, x, vector_bits(l->code, 0xff));
    case CORE_I16:
    case CORE_I8:
        x = vector_shift(l->code, VECTOR_SHIFT_LEFT, x, bits);
        return vector_shift(l->code, VECTOR_SHIFT_SIGN, x, bits);
    default:
        return x;
    }
}

/* op of two floats, or a if test is NaN.  test: a or b. */
static vector_value choose(vector_code *c, uint32_t op, vector_value a,
                           vector_value b, vector_value test)
{
    vector_value chosen = vector_2(c, op, a, b);

    return vector_3(c, VECTOR_SELECT,
                    vector_compare(c, VECTOR_UNORDERED, test, test), a, chosen);
}

static vector_value float_operation(lowering *l, const cpu_tile_step *step)
{
    vector_code *c = l->code;
    const vector_value sign = vector_bits(c, UINT32_C(1) << 31);
    const vector_value rest = vector_bits(c, ~(UINT32_C(1) << 31));
    vector_value a = input_of(l, step, 0), b = a;

    if (step->ninputs > 1)
        b = input_of(l, step, 1);
    switch (step->operation) {
    case CORE_LOOP_ADD:
        return vector_2(c, VECTOR_ADD, a, b);
    case CORE_LOOP_SUB:
        return vector_2(c, VECTOR_SUB, a, b);
    case CORE_LOOP_MUL:
        return vector_2(c, VECTOR_MUL, a, b);
    case CORE_LOOP_DIV:
        return vector_2(c, VECTOR_DIV, a, b);
    case CORE_LOOP_FMA: /* addcmul adds to its first */
        return vector_3(c, VECTOR_FMA, b, input_of(l, step, 2), a);
    case CORE_LOOP_NEG:
        return vector_2(c, VECTOR_XOR, a, sign);
    case CORE_LOOP_ABS:
        return vector_2(c, VECTOR_AND, a, rest);
    case CORE_LOOP_SQRT:
        return vector_1(c, VECTOR_SQRT, a);
    case CORE_LOOP_CEIL:
        return vector_shift(c, VECTOR_ROUND, a, VECTOR_UP);
    case CORE_LOOP_FLOOR:
        return vector_shift(c, VECTOR_ROUND, a, VECTOR_DOWN);
    case CORE_LOOP_TRUNC:
        return vector_shift(c, VECTOR_ROUND, a, VECTOR_TO_ZERO);
    case CORE_LOOP_ROUND:
        return vector_shift(c, VECTOR_ROUND, a, VECTOR_NEAREST);
    case CORE_LOOP_MAXIMUM:
        return choose(c, VECTOR_MAX, a, b, a);
    case CORE_LOOP_MINIMUM:
        return choose(c, VECTOR_MIN, a, b, a);
    case CORE_LOOP_FMAX:
        return choose(c, VECTOR_MAX, a, b, b);
    case CORE_LOOP_FMIN:
        return choose(c, VECTOR_MIN, a, b, b);
    case CORE_LOOP_COPYSIGN:
        return vector_2(c, VECTOR_OR, vector_2(c, VECTOR_AND, a, rest),
                        vector_2(c, VECTOR_AND, b, sign));
    case CORE_LOOP_SIGNBIT:
        return vector_1(c, VECTOR_MASK_OF_SIGNS, a);
    case CORE_LOOP_FUNCTION:
        if (step->function == NULL)
            return VECTOR_NONE;
        return step->ninputs == 1
                   ? step->function(c, a)
                   : vector_2(c, VECTOR_MUL, a, step->function(c, b));
    default:
        if (step->operation >= CORE_LOOP_EQ && step->operation <= CORE_LOOP_GE)
            return vector_compare(
                c, (vector_relation)(step->operation - CORE_LOOP_EQ), a, b);
        return VECTOR_NONE;
    }
}

static vector_value integer_operation(lowering *l, const cpu_tile_step *step)
{
    static const uint8_t ops[] = {[CORE_LOOP_ADD] = VECTOR_INT_ADD,
                                  [CORE_LOOP_SUB] = VECTOR_INT_SUB,
                                  [CORE_LOOP_MUL] = VECTOR_INT_MUL,
                                  [CORE_LOOP_MAXIMUM] = VECTOR_INT_MAX,
                                  [CORE_LOOP_MINIMUM] = VECTOR_INT_MIN,
                                  [CORE_LOOP_FMAX] = VECTOR_INT_MAX,
                                  [CORE_LOOP_FMIN] = VECTOR_INT_MIN,
                                  [CORE_LOOP_AND] = VECTOR_AND,
                                  [CORE_LOOP_OR] = VECTOR_OR,
                                  [CORE_LOOP_XOR] = VECTOR_XOR};
    vector_code *c = l->code;
    vector_value a = input_of(l, step, 0), b = a;

    if (step->ninputs > 1)
        b = input_of(l, step, 1);
    switch (step->operation) {
    case CORE_LOOP_NEG:
        return vector_2(c, VECTOR_INT_SUB, vector_bits(c, 0), a);
    case CORE_LOOP_ABS:
        return vector_1(c, VECTOR_INT_ABS, a);
    case CORE_LOOP_NOT:
        return vector_2(c, VECTOR_XOR, a, vector_bits(c, ~0u));
    case CORE_LOOP_SIGNBIT:
        return vector_1(c, VECTOR_MASK_OF_SIGNS, a);
    default:
        if (step->operation >= CORE_LOOP_EQ && step->operation <= CORE_LOOP_GE)
            return vector_int_compare(
                c, (vector_relation)(step->operation - CORE_LOOP_EQ), a, b);
        if (step->operation >= sizeof ops || ops[step->operation] == 0)
            return VECTOR_NONE;
        return vector_2(c, ops[step->operation], a, b);
    }
}

static vector_value mask_operation(lowering *l, const cpu_tile_step *step)
{
    vector_code *c = l->code;
    vector_value a = input_of(l, step, 0), b = a;

    if (step->ninputs > 1)
        b = input_of(l, step, 1);
    switch (step->operation) {
    case CORE_LOOP_AND:
        return vector_masks(c, VECTOR_MASK_AND, a, b);
    case CORE_LOOP_OR:
        return vector_masks(c, VECTOR_MASK_OR, a, b);
    case CORE_LOOP_XOR:
    case CORE_LOOP_NE:
        return vector_masks(c, VECTOR_MASK_XOR, a, b);
    case CORE_LOOP_EQ:
        return vector_not(c, vector_masks(c, VECTOR_MASK_XOR, a, b));
    case CORE_LOOP_NOT:
        return vector_not(c, a);
    default:
        return VECTOR_NONE;
    }
}

static vector_value conversion(lowering *l, const cpu_tile_step *step)
{
    vector_code *c = l->code;
    vector_value a = input_of(l, step, 0);
    const bool real = is_float(step->from), to_real = is_float(step->type);

    if (step->type == CORE_BOOL)
        return real ? vector_compare(c, VECTOR_NE, a, vector_bits(c, 0))
                    : vector_int_compare(c, VECTOR_NE, a, vector_bits(c, 0));
    if (step->from == CORE_BOOL)
        return vector_3(c, VECTOR_SELECT, a,
                        to_real ? vector_float(c, 1) : vector_bits(c, 1),
                        vector_bits(c, 0));
    if (real && !to_real) /* narrower ones are low bits of an i64 */
        return step->type == CORE_I32 ? vector_1(c, VECTOR_INT_OF_FLOAT, a)
                                      : VECTOR_NONE;
    if (!real && to_real)
        a = vector_1(c, VECTOR_FLOAT_OF_INT, a);
    return fit(l, step->type, a);
}

/* VECTOR_NONE: it cannot be lowered. */
static vector_value lower(lowering *l, const cpu_tile_step *step)
{
    const uint32_t from = l->kernel->steps[step->inputs[0]].type;
    vector_value x;

    if (step->kind == CPU_TILE_CONVERT)
        return conversion(l, step);
    if (step->operation == CORE_LOOP_SELECT)
        return select_values(l, step, false);
    if (from == CORE_BOOL)
        return mask_operation(l, step);
    x = is_float(from) ? float_operation(l, step) : integer_operation(l, step);
    return x == VECTOR_NONE ? x : fit(l, step->type, x);
}

static bool can_lower(const cpu_tile_kernel *kernel, cpu_tile_step *step)
{
    vector_instruction instructions[256];
    vector_code code = {.at = instructions,
                        .capacity = 256,
                        .mask_registers = cpu_isa >= CPU_ISA_AVX512,
                        .last_constant = VECTOR_NONE};
    lowering l = {.kernel = kernel, .code = &code, .attempt = true};

    if ((step->kind != CPU_TILE_ROW && step->kind != CPU_TILE_CONVERT) ||
        step->constant || !(SUPPORTED >> step->type & 1))
        return false;
    for (uint32_t k = 0; k < step->ninputs; k++)
        if (!(SUPPORTED >> kernel->steps[step->inputs[k]].type & 1))
            return false;
    if (lower(&l, step) == VECTOR_NONE || code.full)
        return false;
    step->latency = (uint16_t)vector_latency(&code);
    return true;
}

/* -------------------------------------------------------------- groups -- */

enum { INSTRUCTIONS = 2 * VECTOR_MOST }; /* the second half: unrolled */

/* What compiling needs. */
typedef struct compiler {
    cpu_tile_kernel *kernel;
    vectors *of;
    bool *needed; /* of each step: its value is read outside of its group */
    vector_instruction *instructions;
    x86_code out;
    bool refused;
} compiler;

static void find_needed(const compiler *c, const cpu_native_group *group)
{
    const cpu_tile_kernel *kernel = c->kernel;

    memset(c->needed + group->first, 0, group->end - group->first);
    for (uint32_t i = group->end; i < kernel->nsteps; i++)
        for (uint32_t k = 0; k < kernel->steps[i].ninputs; k++) {
            uint32_t number = kernel->steps[i].inputs[k];

            if (number >= group->first && number < group->end)
                c->needed[number] = true;
        }
}

/* A selected f16 is stored as it is, also a NaN. */
static bool stores_bits(const cpu_tile_step *step)
{
    return step->type == CORE_F16 && step->kind == CPU_TILE_ROW &&
           step->operation == CORE_LOOP_SELECT;
}

static bool write_code(compiler *c, cpu_native_group *group, vector_code *code)
{
    const cpu_tile_kernel *kernel = c->kernel;
    lowering l = {.kernel = kernel, .code = code, .group = group, .of = c->of};

    memset(c->of, 0xff, kernel->nsteps * sizeof *c->of);
    find_needed(c, group);
    for (uint32_t i = group->first; i < group->end && !code->full; i++)
        c->of[i].value = lower(&l, &kernel->steps[i]);
    /* An output may have the memory of an input, so all loads come first: a
     * selection of bits loads those of its operands. */
    for (uint32_t i = group->first; i < group->end && !code->full; i++)
        if (c->needed[i])
            (void)vector_of(&l, (uint16_t)i, stores_bits(&kernel->steps[i]));
    for (uint32_t i = group->first; i < group->end && !code->full; i++) {
        const cpu_tile_step *step = &kernel->steps[i];
        bool bits = stores_bits(step);

        if (c->needed[i])
            vector_store(code, pointer_to(&l, (uint16_t)i, CPU_NATIVE_OUTPUT),
                         element_of(step->type, bits),
                         vector_of(&l, (uint16_t)i, bits));
    }
    return !code->full;
}

/* Compiles two functions, of several vectors at a time and of one.
 *
 * Several vectors at a time hide the latency of instructions.  With AVX2 that is
 * worth a few spills: at most one per 12 instructions.  GELU of two vectors has
 * 2 for 114 and takes 0.86 of the time, of four 28 for 228 and takes longer.
 * (AMD EPYC, Zen 3; with AVX-512 only two vectors were measured.) */
static bool unroll(compiler *c, const vector_code *code, x86_result *out,
                   x86_result *one)
{
    const uint32_t most = code->mask_registers ? 2 : VECTOR_UNROLLED;
    const uint32_t spills = code->mask_registers ? 0 : 1;

    for (uint32_t times = most; times > 1; times /= 2) {
        vector_code several = *code;

        several.at = c->instructions + VECTOR_MOST;
        several.count = 0;
        c->out.size = 0;
        c->out.full = false;
        if (vector_unroll(code, times, &several) &&
            x86_compile(&several, &c->out, out) &&
            out->spills * 12 <= spills * times * code->count &&
            x86_compile(code, &c->out, one))
            return true;
    }
    return false;
}

/* The function that begins at an offset of code. */
static x86_function *function_at(char *bytes, uint32_t entry)
{
    x86_function *function;

    /* C has no conversion of an object pointer to a function pointer. */
    bytes += entry;
    memcpy(&function, &bytes, sizeof function);
    return function;
}

static bool make_code(compiler *c, cpu_native_group *group)
{
    vector_code code = {.at = c->instructions,
                        .capacity = VECTOR_MOST,
                        .mask_registers = cpu_isa >= CPU_ISA_AVX512,
                        .last_constant = VECTOR_NONE};
    x86_result several = {0}, one;
    bool unrolled;
    char *bytes;

    group->uniform = c->kernel->steps[group->first].uniform;
    if (!write_code(c, group, &code))
        return false;
    unrolled = !group->uniform && unroll(c, &code, &several, &one);
    if (!unrolled) {
        c->out.size = 0;
        c->out.full = false;
        if (!x86_compile(&code, &c->out, &one))
            return false;
    }
    bytes = cpu_code_add(c->out.bytes, c->out.size);
    c->refused = bytes == NULL;
    if (bytes == NULL)
        return false;
    group->memory = bytes;
    group->function = function_at(bytes, one.entry);
    group->elements = one.elements;
    if (unrolled) {
        group->unrolled = function_at(bytes, several.entry);
        group->unrolled_elements = several.elements;
    }
    return true;
}

/* Compiles steps.  Too many become two groups; one that does not fit remains a
 * step. */
static bool compile(compiler *c, uint32_t first, uint32_t end)
{
    cpu_tile_kernel *kernel = c->kernel;
    cpu_native_group *groups = realloc(
        kernel->groups, (kernel->ngroups + 1) * sizeof(cpu_native_group));
    cpu_native_group *group;
    uint32_t middle = first + (end - first) / 2;

    if (groups == NULL)
        return false;
    kernel->groups = groups;
    group = &groups[kernel->ngroups];
    memset(group, 0, sizeof *group);
    group->first = first;
    group->end = end;
    if (!make_code(c, group))
        return !c->refused && (end - first == 1 || (compile(c, first, middle) &&
                                                    compile(c, middle, end)));
    kernel->ngroups++;
    for (uint32_t i = first; i < end; i++)
        kernel->steps[i].group = (uint16_t)kernel->ngroups;
    return true;
}

/* ------------------------------------------------------------- stages -- */

/* In a stage, steps that are interpreted come first, then a group of uniform
 * steps, then a group of others.  None depends on what comes after it. */
enum { INTERPRETED, UNIFORM, ELEMENTS, STAGE };

static uint32_t next_key(uint32_t key, uint32_t place)
{
    return key + (place + STAGE - key % STAGE) % STAGE;
}

/* The key of a step is the number of its stage, times STAGE, and its place
 * there.  Stores come last.  Returns how many keys there are. */
static uint32_t find_keys(cpu_tile_kernel *kernel, uint16_t *keys)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < kernel->nsteps; i++) {
        cpu_tile_step *step = &kernel->steps[i];
        uint32_t most = 0;

        for (uint32_t k = 0; k < step->ninputs; k++)
            if (keys[step->inputs[k]] > most)
                most = keys[step->inputs[k]];
        if (step->kind == CPU_TILE_STORE)
            continue;
        keys[i] =
            (uint16_t)next_key(most, !can_lower(kernel, step) ? INTERPRETED
                                     : step->uniform          ? UNIFORM
                                                              : ELEMENTS);
        if (keys[i] >= count)
            count = keys[i] + 1u;
    }
    count = next_key(count, INTERPRETED);
    for (uint32_t i = 0; i < kernel->nsteps; i++)
        if (kernel->steps[i].kind == CPU_TILE_STORE)
            keys[i] = (uint16_t)count;
    return count + 1;
}

/* Sorts the steps by key; begins[k] is where key k begins. */
static bool sort_steps(cpu_tile_kernel *kernel, const uint16_t *keys,
                       uint32_t count, uint32_t *begins)
{
    cpu_tile_step *sorted = malloc(kernel->nsteps * sizeof *sorted);
    uint16_t *place = malloc(kernel->nsteps * sizeof *place);
    const bool ok = sorted && place;

    for (uint32_t i = 0; i < kernel->nsteps; i++)
        begins[keys[i] + 1]++;
    for (uint32_t k = 0; k < count; k++)
        begins[k + 1] += begins[k];
    for (uint32_t i = 0; ok && i < kernel->nsteps; i++) {
        uint32_t next = begins[keys[i]]++;

        place[i] = (uint16_t)next;
        sorted[next] = kernel->steps[i];
        for (uint32_t k = 0; k < sorted[next].ninputs; k++)
            sorted[next].inputs[k] = place[sorted[next].inputs[k]];
    }
    for (uint32_t k = count; k > 0; k--)
        begins[k] = begins[k - 1];
    begins[0] = 0;
    if (ok)
        memcpy(kernel->steps, sorted, kernel->nsteps * sizeof *sorted);
    free(sorted);
    free(place);
    return ok;
}

void cpu_native_free(cpu_tile_kernel *kernel)
{
    for (uint32_t k = 0; k < kernel->ngroups; k++)
        cpu_code_remove(kernel->groups[k].memory);
    free(kernel->groups);
    kernel->groups = NULL;
    kernel->ngroups = 0;
    for (uint32_t i = 0; i < kernel->nsteps; i++)
        kernel->steps[i].group = 0;
}

/* The cycles of latency that a processor can hide, roughly.  With 80, chains of
 * tanh, sigmoid and exp were fastest for both sizes of vectors: with 100 to 200
 * up to a quarter slower, with 60 or less as well. */
enum { LATENCY = 80 };

/* Compiles the steps of a stage, in groups that are not limited by latency:
 * iterations of a short loop overlap, those of a long one do not. */
static bool compile_stage(compiler *c, uint32_t first, uint32_t end)
{
    cpu_tile_step *steps = c->kernel->steps;
    bool ok = true;

    for (uint32_t i = first; ok && i < end; i++) {
        uint32_t own = steps[i].latency, before = 0;

        for (uint32_t k = 0; k < steps[i].ninputs; k++) {
            uint32_t number = steps[i].inputs[k];

            if (number >= first && steps[number].latency > before)
                before = steps[number].latency;
        }
        if (before > 0 && before + own > LATENCY) {
            ok = compile(c, first, i);
            first = i;
            before = 0;
        }
        steps[i].latency = (uint16_t)(before + own); /* from the first step */
    }
    return ok && (first == end || compile(c, first, end));
}

static void compile_groups(compiler *c)
{
    cpu_tile_kernel *kernel = c->kernel;
    uint16_t *keys = calloc(kernel->nsteps, sizeof *keys);
    uint32_t *begins = NULL, count = 0;
    bool ok = keys != NULL;

    if (ok) {
        count = find_keys(kernel, keys);
        begins = calloc(count + 1u, sizeof *begins);
        ok = begins != NULL && sort_steps(kernel, keys, count, begins);
    }
    for (uint32_t k = 0; ok && k < count; k++)
        if (k % STAGE != INTERPRETED)
            ok = compile_stage(c, begins[k], begins[k + 1]);
    if (!ok)
        cpu_native_free(kernel);
    free(keys);
    free(begins);
}

void cpu_native_make(cpu_tile_kernel *kernel)
{
    compiler c = {.kernel = kernel};

    if (!cpu_native_is_on())
        return;
    c.of = malloc(kernel->nsteps * sizeof *c.of);
    c.needed = malloc(kernel->nsteps * sizeof *c.needed);
    c.instructions = malloc(INSTRUCTIONS * sizeof *c.instructions);
    c.out.capacity = CPU_CODE_MOST;
    c.out.bytes = malloc(c.out.capacity);
    if (c.of && c.needed && c.instructions && c.out.bytes)
        compile_groups(&c);
    free(c.of);
    free(c.needed);
    free(c.instructions);
    free(c.out.bytes);
}

/* ----------------------------------------------------------------- run -- */

enum { MOST_ELEMENTS = 16, MOST_BYTES = 4 * MOST_ELEMENTS };

/* Moves the pointers to elements by n. */
static void advance(const cpu_native_group *group, char **pointers, int64_t n)
{
    for (uint32_t k = 0; k < group->npointers; k++)
        if (group->role[k] != CPU_NATIVE_UNIFORM)
            pointers[k] += n * group->size[k];
}

/* Computes fewer elements than the function does at a time, in copies. */
static void run_rest(const cpu_native_group *group, char *const *pointers,
                     int64_t n)
{
    _Alignas(64) char copies[VECTOR_POINTERS][MOST_BYTES];
    char *at[VECTOR_POINTERS];

    for (uint32_t k = 0; k < group->npointers; k++) {
        size_t size = group->size[k], bytes = (size_t)n * size;

        at[k] = group->role[k] == CPU_NATIVE_UNIFORM ? pointers[k] : copies[k];
        if (group->role[k] == CPU_NATIVE_INPUT) {
            memcpy(copies[k], pointers[k], bytes);
            memset(copies[k] + bytes, 0, group->elements * size - bytes);
        }
    }
    group->function(at, group->elements);
    for (uint32_t k = 0; k < group->npointers; k++)
        if (group->role[k] == CPU_NATIVE_OUTPUT)
            memcpy(pointers[k], copies[k], (size_t)n * group->size[k]);
}

/* Computes as many elements as are whole steps of a function.  Returns how many
 * are left. */
static int64_t run_whole(const cpu_native_group *group, x86_function *function,
                         uint32_t elements, char **pointers, int64_t n)
{
    const int64_t rest = n % elements;

    if (rest == n)
        return n;
    function(pointers, n - rest);
    if (rest > 0)
        advance(group, pointers, n - rest);
    return rest;
}

void cpu_native_run(const cpu_native_group *group, char **pointers, int64_t n)
{
    if (group->unrolled)
        n = run_whole(group, group->unrolled, group->unrolled_elements,
                      pointers, n);
    if (n > 0)
        n = run_whole(group, group->function, group->elements, pointers, n);
    if (n > 0)
        run_rest(group, pointers, n);
}
