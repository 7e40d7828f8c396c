/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Allocates registers and encodes.  The body of the loop has no branches, so
 * one pass is enough: an instruction's operands are loaded into registers, and
 * if none is free, the value whose next use is farthest is put on the stack.
 * Constants are memory operands where an instruction can have one; so are
 * uniform values, which are repeated on the stack before the loop. */

#include "x86_compile.h"

#include <stdlib.h>
#include <string.h>

enum {
    NEVER = UINT16_MAX,
    MOST_FRAME = 1 << 15, /* bytes */
    VECTORS = 32,         /* registers, at most */
    MASKS = 8,
    POINTERS = 10,
    AHEAD = 4096 /* bytes: rows are short, and alternate between operands, which
                    defeats prefetching by the processor */
};

/* Registers that hold pointers; further pointers are loaded into rax when they
 * are used.  rdi is the array of pointers, rsi is n, rcx is the number of the
 * first element. */
static const uint8_t pointer_registers[POINTERS] = {
    X86_RDX, X86_R8,  X86_R9,  X86_R10, X86_R11,
    X86_RBX, X86_R12, X86_R13, X86_R14, X86_R15};
/* Those from here on are saved for the caller. */
enum { FREE_POINTERS = 5 };

/* Registers of a kind. */
typedef struct file {
    vector_value value[VECTORS]; /* VECTOR_NONE: free */
    bool pinned[VECTORS];        /* by the current instruction */
    uint8_t first, end;
} file;

typedef struct where {
    uint8_t reg;   /* X86_NONE: in none */
    bool in_code;  /* a constant, at `offset` of the code */
    bool on_stack; /* at `offset` */
    int32_t offset;
    uint16_t next;     /* the next instruction that uses it */
    uint16_t after[3]; /* of an instruction: the next use of each operand */
} where;

typedef struct emitter {
    const vector_code *code;
    x86_code *out;
    where *at;
    file files[2]; /* vectors, masks */
    uint32_t now;  /* the instruction */
    int32_t frame;
    uint32_t spills;
    uint32_t lanes;
    bool evex;
    uint32_t npointers;
    uint8_t pointer[VECTOR_POINTERS]; /* its register; X86_NONE */
} emitter;

static x86_form form_of(const emitter *e)
{
    return (x86_form){.evex = e->evex, .length = e->evex ? X86_512 : X86_256};
}

static x86_form form_with(const emitter *e, uint32_t immediate)
{
    x86_form form = form_of(e);

    form.immediate = true;
    form.value = (uint8_t)immediate;
    return form;
}

static const x86_form mask_form = {.length = X86_128};

static file *file_of(emitter *e, vector_value value)
{
    return &e->files[e->evex && vector_is_mask(e->code, value)];
}

static int32_t new_slot(emitter *e)
{
    int32_t offset = e->frame;

    e->frame += e->evex ? 64 : 32;
    if (e->frame > MOST_FRAME)
        e->out->full = true;
    return offset;
}

/* Makes a register free: its value goes to the stack, unless it is in memory
 * already. */
static void evict(emitter *e, file *f, uint8_t reg)
{
    where *w = &e->at[f->value[reg]];

    if (!w->in_code && !w->on_stack) {
        w->on_stack = true;
        w->offset = new_slot(e);
        e->spills++;
        if (f == &e->files[1])
            x86_vector(e->out, X86_KMOVW_TO, mask_form, reg, X86_NONE,
                       x86_memory(X86_RSP, w->offset));
        else
            x86_vector(e->out, X86_MOVAPS_TO, form_of(e), reg, X86_NONE,
                       x86_memory(X86_RSP, w->offset));
    }
    w->reg = X86_NONE;
    f->value[reg] = VECTOR_NONE;
}

/* Finds a register, which stays reserved for the current instruction. */
static uint8_t take(emitter *e, file *f)
{
    uint8_t found = X86_NONE;
    uint32_t latest = 0;

    for (uint8_t r = f->first; r < f->end; r++) {
        uint32_t next =
            f->value[r] == VECTOR_NONE ? NEVER : e->at[f->value[r]].next;

        if (f->pinned[r] || (found != X86_NONE && next <= latest))
            continue;
        found = r;
        latest = next;
        if (f->value[r] == VECTOR_NONE)
            break;
    }
    if (f->value[found] != VECTOR_NONE)
        evict(e, f, found);
    f->pinned[found] = true;
    return found;
}

static x86_operand in_memory(const emitter *e, vector_value value)
{
    const where *w = &e->at[value];

    return w->in_code ? x86_place((uint32_t)w->offset, e->evex)
                      : x86_memory(X86_RSP, w->offset);
}

/* A register with the value. */
static uint8_t need(emitter *e, vector_value value)
{
    file *f = file_of(e, value);
    where *w = &e->at[value];

    if (w->reg == X86_NONE) {
        x86_operand from = in_memory(e, value);
        uint8_t reg = take(e, f);

        if (f == &e->files[1]) {
            x86_vector(e->out, X86_KMOVW, mask_form, reg, X86_NONE, from);
        } else if (from.broadcast) {
            from.broadcast = false; /* the instruction repeats it */
            x86_vector(e->out, X86_BROADCASTSS, form_of(e), reg, X86_NONE,
                       from);
        } else {
            x86_vector(e->out, X86_MOVAPS, form_of(e), reg, X86_NONE, from);
        }
        f->value[reg] = value;
        w->reg = reg;
    }
    f->pinned[w->reg] = true;
    return w->reg;
}

/* A register or, where it is, memory. */
static x86_operand source(emitter *e, vector_value value)
{
    if (e->at[value].reg == X86_NONE && file_of(e, value) == &e->files[0])
        return in_memory(e, value);
    return x86_register(need(e, value));
}

static vector_value input(const vector_instruction *i, uint32_t k)
{
    if (i->op == VECTOR_STORE)
        return i->b;
    return k == 0 ? i->a : k == 1 ? i->b : i->c;
}

static uint32_t inputs_of(const vector_instruction *i)
{
    return i->op == VECTOR_STORE ? 1 : vector_inputs(i->op);
}

/* Ends the use of operands: values that nothing needs leave their registers. */
static void release(emitter *e)
{
    const vector_instruction *i = &e->code->at[e->now];

    for (uint32_t k = 0; k < inputs_of(i); k++) {
        where *w = &e->at[input(i, k)];

        w->next = e->at[e->now].after[k];
        if (w->next == NEVER && w->reg != X86_NONE) {
            file_of(e, input(i, k))->value[w->reg] = VECTOR_NONE;
            w->reg = X86_NONE;
        }
    }
    memset(e->files[0].pinned, 0, sizeof e->files[0].pinned);
    memset(e->files[1].pinned, 0, sizeof e->files[1].pinned);
}

static void set_result(emitter *e, uint8_t reg)
{
    file_of(e, (vector_value)e->now)->value[reg] = (vector_value)e->now;
    e->at[e->now].reg = reg;
}

/* A register for the result, which may be that of an operand. */
static uint8_t result(emitter *e)
{
    uint8_t reg;

    release(e);
    reg = take(e, file_of(e, (vector_value)e->now));
    set_result(e, reg);
    return reg;
}

/* ------------------------------------------------------- instructions -- */

typedef struct simple {
    uint8_t instruction, evex; /* 0: the same */
    bool commutes;
} simple;

/* Of two operands. */
static const simple binaries[VECTOR_OPS] = {
    [VECTOR_ADD] = {X86_ADDPS, 0, true},
    [VECTOR_SUB] = {X86_SUBPS, 0, false},
    [VECTOR_MUL] = {X86_MULPS, 0, true},
    [VECTOR_DIV] = {X86_DIVPS, 0, false},
    [VECTOR_MAX] = {X86_MAXPS, 0, false},
    [VECTOR_MIN] = {X86_MINPS, 0, false},
    [VECTOR_AND] = {X86_PAND, 0, true},
    [VECTOR_OR] = {X86_POR, 0, true},
    [VECTOR_XOR] = {X86_PXOR, 0, true},
    [VECTOR_INT_ADD] = {X86_PADDD, 0, true},
    [VECTOR_INT_SUB] = {X86_PSUBD, 0, false},
    [VECTOR_INT_MUL] = {X86_PMULLD, 0, true},
    [VECTOR_INT_MIN] = {X86_PMINSD, 0, true},
    [VECTOR_INT_MAX] = {X86_PMAXSD, 0, true},
    [VECTOR_UNSIGNED_MIN] = {X86_PMINUD, 0, true},
    [VECTOR_COMPARE] = {X86_CMPPS, 0, false},
    [VECTOR_INT_EQUAL] = {X86_PCMPEQD, X86_PCMPD, true},
    [VECTOR_INT_GREATER] = {X86_PCMPGTD, X86_PCMPD, false},
    [VECTOR_MASK_AND] = {X86_KANDW, 0, true},
    [VECTOR_MASK_OR] = {X86_KORW, 0, true},
    [VECTOR_MASK_XOR] = {X86_KXORW, 0, true},
};

/* Of one operand. */
static const simple unaries[VECTOR_OPS] = {
    [VECTOR_SQRT] = {X86_SQRTPS, 0, false},
    [VECTOR_ROUND] = {X86_ROUNDPS, 0, false},
    [VECTOR_INT_OF_FLOAT] = {X86_CVTTPS2DQ, 0, false},
    [VECTOR_FLOAT_OF_INT] = {X86_CVTDQ2PS, 0, false},
    [VECTOR_INT_ABS] = {X86_PABSD, 0, false},
};

static x86_form form_of_op(const emitter *e, const vector_instruction *i)
{
    static const uint8_t relations[] = {
        [VECTOR_EQ] = 0,       [VECTOR_NE] = 4,    [VECTOR_LT] = 0x11,
        [VECTOR_LE] = 0x12,    [VECTOR_GT] = 0x1e, [VECTOR_GE] = 0x1d,
        [VECTOR_UNORDERED] = 3};

    switch (i->op) {
    case VECTOR_COMPARE:
        return form_with(e, relations[i->immediate]);
    case VECTOR_ROUND:
        return form_with(e, i->immediate);
    case VECTOR_INT_EQUAL:
        return e->evex ? form_with(e, 0) : form_of(e);
    case VECTOR_INT_GREATER:
        return e->evex ? form_with(e, 6) : form_of(e); /* not <= */
    case VECTOR_MASK_AND:
    case VECTOR_MASK_OR:
    case VECTOR_MASK_XOR:
        return (x86_form){.length = X86_256};
    default:
        return form_of(e);
    }
}

/* By all elements. */
static bool is_shared(const emitter *e, vector_value value)
{
    const uint8_t op = e->code->at[value].op;

    return op == VECTOR_CONSTANT || op == VECTOR_UNIFORM;
}

/* A sum or product of two NaNs is the first one, and the same one for each
 * element, so registers do not decide which operand comes first. */
static bool swaps(const emitter *e, const vector_instruction *i)
{
    if (i->op == VECTOR_ADD || i->op == VECTOR_MUL)
        return is_shared(e, i->a) && !is_shared(e, i->b);
    return binaries[i->op].commutes && e->at[i->a].reg == X86_NONE;
}

static void emit_binary(emitter *e, const vector_instruction *i)
{
    const simple *s = &binaries[i->op];
    vector_value a = i->a, b = i->b;
    x86_operand operand;
    uint8_t first;

    if (swaps(e, i)) {
        a = i->b;
        b = i->a;
    }
    first = need(e, a);
    operand = source(e, b);
    x86_vector(e->out, e->evex && s->evex ? s->evex : s->instruction,
               form_of_op(e, i), result(e), first, operand);
}

static void emit_unary(emitter *e, const vector_instruction *i)
{
    x86_operand operand = source(e, i->a);

    x86_vector(e->out, unaries[i->op].instruction, form_of_op(e, i), result(e),
               X86_NONE, operand);
}

static void emit_shift(emitter *e, const vector_instruction *i)
{
    x86_instruction instruction = i->op == VECTOR_SHIFT_LEFT    ? X86_PSLLD
                                  : i->op == VECTOR_SHIFT_RIGHT ? X86_PSRLD
                                                                : X86_PSRAD;
    x86_operand operand = x86_register(need(e, i->a));

    x86_vector(e->out, instruction, form_with(e, i->immediate), 0, result(e),
               operand);
}

static bool dies(const emitter *e, uint32_t k)
{
    return e->at[e->now].after[k] == NEVER;
}

static bool may_be_nan(const emitter *e, vector_value value)
{
    const vector_instruction *i = &e->code->at[value];

    return i->op != VECTOR_CONSTANT || (i->bits << 1) > 0xff000000u;
}

/* How a multiply-add is emitted. */
typedef struct fma_choice {
    vector_value value[3]; /* the factors in their order, and the addend */
    int memory;            /* the one that is in memory; -1: none */
    int over; /* the one whose register the result has; -1: that of a copy */
} fma_choice;

/* If several operands are NaN, the result is the first factor that is one, else
 * the addend: which factor is first depends on the code alone, as in
 * emit_binary. */
static fma_choice choose_fma(const emitter *e, const vector_instruction *i)
{
    const bool swap = is_shared(e, i->a)
                          ? !is_shared(e, i->b)
                          : !is_shared(e, i->b) && dies(e, 0) && !dies(e, 1);
    const bool dying[3] = {dies(e, swap), dies(e, !swap), dies(e, 2)};
    fma_choice f = {.value = {swap ? i->b : i->a, swap ? i->a : i->b, i->c},
                    .memory = -1,
                    .over = -1};
    const vector_value *v = f.value;
    /* Over the first factor, with the addend in memory, the other is first. */
    const bool ordered = may_be_nan(e, v[1]);

    for (int k = 2; k > 0; k--)
        if (e->at[v[k]].reg == X86_NONE && f.memory < 0 &&
            v[k] != v[(k + 1) % 3] && v[k] != v[(k + 2) % 3])
            f.memory = k;
    for (int k = 0; k < 3; k++)
        if (k != f.memory && dying[k] && (k > 0 || f.memory < 2 || !ordered))
            f.over = k;
    return f;
}

/* The digits of VFMADD132, 213 and 231 tell which operands are the first factor,
 * the second one and the addend.  The result is in operand 1, and operand 3 may
 * be in memory. */
static void emit_fma(emitter *e, const vector_instruction *i)
{
    const fma_choice f = choose_fma(e, i);
    int over = f.over;
    x86_operand operand[3];
    uint8_t to;

    for (int k = 0; k < 3; k++)
        operand[k] = k == f.memory ? in_memory(e, f.value[k])
                                   : x86_register(need(e, f.value[k]));
    if (over < 0) { /* all are needed later */
        over = f.memory == 2 ? 1 : 2;
        to = take(e, &e->files[0]);
        x86_vector(e->out, X86_MOVAPS, form_of(e), to, X86_NONE, operand[over]);
    } else {
        to = operand[over].base;
    }
    if (over == 0 && f.memory < 2)
        x86_vector(e->out, X86_FMADD132PS, form_of(e), to, operand[2].base,
                   operand[1]);
    else
        x86_vector(e->out, over == 2 ? X86_FMADD231PS : X86_FMADD213PS,
                   form_of(e), to, operand[over == 0].base,
                   operand[over == 2 ? 1 : 2]);
    release(e);
    set_result(e, to);
}

static void emit_select(emitter *e, const vector_instruction *i)
{
    uint8_t mask = need(e, i->a), otherwise = need(e, i->c);
    x86_operand chosen = source(e, i->b);
    x86_form form = form_of(e);

    if (e->evex) {
        form.mask = mask;
        x86_vector(e->out, X86_BLENDMPS, form, result(e), otherwise, chosen);
        return;
    }
    x86_vector(e->out, X86_BLENDVPS, form_with(e, (uint32_t)mask << 4),
               result(e), otherwise, chosen);
}

/* To f16 and back, or to its bits. */
static void emit_f16(emitter *e, const vector_instruction *i)
{
    uint8_t from = need(e, i->a), to = result(e);
    x86_instruction back =
        i->op == VECTOR_ROUND_F16 ? X86_CVTPH2PS : X86_PMOVZXWD;

    x86_vector(e->out, X86_CVTPS2PH, form_with(e, 0), from, X86_NONE,
               x86_register(to));
    x86_vector(e->out, back, form_of(e), to, X86_NONE, x86_register(to));
}

static void emit_mask(emitter *e, const vector_instruction *i)
{
    uint8_t from = need(e, i->a), to = result(e);

    if (i->op == VECTOR_MASK_NOT)
        x86_vector(e->out, X86_KNOTW, mask_form, to, X86_NONE,
                   x86_register(from));
    else if (e->evex)
        x86_vector(e->out, X86_PMOVD2M, form_of(e), to, X86_NONE,
                   x86_register(from));
    else
        x86_vector(e->out, X86_PSRAD, form_with(e, 31), 0, to,
                   x86_register(from));
}

/* -------------------------------------------------------------- memory -- */

/* The current elements at a pointer. */
static x86_operand elements(emitter *e, const vector_instruction *i)
{
    uint8_t reg = e->pointer[i->a],
            size = (uint8_t)vector_element_size(i->immediate);

    if (reg == X86_NONE) {
        reg = X86_RAX;
        x86_general(e->out, 0x8b, true, reg, x86_memory(X86_RDI, 8 * i->a));
    }
    return x86_element(reg, X86_RCX, size, (int32_t)(i->c * e->lanes * size));
}

static x86_instruction load_of(uint32_t element)
{
    static const uint8_t loads[] = {
        [VECTOR_32] = X86_MOVUPS,    [VECTOR_BF16] = X86_PMOVZXWD,
        [VECTOR_F16] = X86_CVTPH2PS, [VECTOR_U16] = X86_PMOVZXWD,
        [VECTOR_I16] = X86_PMOVSXWD, [VECTOR_U8] = X86_PMOVZXBD,
        [VECTOR_I8] = X86_PMOVSXBD};

    return loads[element];
}

static void emit_load(emitter *e, const vector_instruction *i)
{
    x86_operand from = elements(e, i), later = from;
    uint8_t to = result(e);

    if (i->b && i->c == 0) { /* prefetcht0 */
        later.displacement += AHEAD;
        x86_general(e->out, 0x0f18, false, 1, later);
    }
    x86_vector(e->out, load_of(i->immediate), form_of(e), to, X86_NONE, from);
    if (i->immediate == VECTOR_BF16)
        x86_vector(e->out, X86_PSLLD, form_with(e, 16), 0, to,
                   x86_register(to));
}

/* Elements of 8 or 16 bits with AVX2: by packing the two halves. */
static void store_packed(emitter *e, uint8_t from, bool narrow, x86_operand to)
{
    const x86_form half = {.length = X86_128};
    uint8_t high = take(e, &e->files[0]);

    x86_vector(e->out, X86_EXTRACTI128, form_with(e, 1), from, X86_NONE,
               x86_register(high));
    x86_vector(e->out, X86_PACKUSDW, half, high, from, x86_register(high));
    if (narrow)
        x86_vector(e->out, X86_PACKUSWB, half, high, high, x86_register(high));
    x86_vector(e->out, narrow ? X86_MOVQ_TO : X86_MOVUPS_TO, half, high,
               X86_NONE, to);
}

static void emit_store(emitter *e, const vector_instruction *i)
{
    uint8_t from = need(e, i->b);
    x86_operand to = elements(e, i);

    if (i->immediate == VECTOR_BF16) { /* its bits are the high ones */
        uint8_t bits = take(e, &e->files[0]);

        x86_vector(e->out, X86_PSRLD, form_with(e, 16), 0, bits,
                   x86_register(from));
        from = bits;
    }
    if (i->immediate == VECTOR_32)
        x86_vector(e->out, X86_MOVUPS_TO, form_of(e), from, X86_NONE, to);
    else if (i->immediate == VECTOR_F16)
        x86_vector(e->out, X86_CVTPS2PH, form_with(e, 0), from, X86_NONE, to);
    else if (e->evex)
        x86_vector(e->out, i->immediate < VECTOR_U8 ? X86_PMOVDW : X86_PMOVDB,
                   form_of(e), from, X86_NONE, to);
    else
        store_packed(e, from, i->immediate >= VECTOR_U8, to);
    release(e);
}

/* Repeats an element on the stack. */
static void emit_uniform(emitter *e, const vector_instruction *i, where *w)
{
    static const uint32_t loads[] = {
        [VECTOR_32] = 0x8b,    [VECTOR_BF16] = 0x0fb7, [VECTOR_F16] = 0x0fb7,
        [VECTOR_U16] = 0x0fb7, [VECTOR_I16] = 0x0fbf,  [VECTOR_U8] = 0x0fb6,
        [VECTOR_I8] = 0x0fbe};
    const x86_form one = {.evex = e->evex, .length = X86_128};

    x86_general(e->out, 0x8b, true, X86_RAX, x86_memory(X86_RDI, 8 * i->a));
    x86_general(e->out, loads[i->immediate], false, X86_RAX,
                x86_memory(X86_RAX, 0));
    x86_vector(e->out, X86_MOVD, one, 0, X86_NONE, x86_register(X86_RAX));
    if (i->immediate == VECTOR_F16)
        x86_vector(e->out, X86_CVTPH2PS, one, 0, X86_NONE, x86_register(0));
    x86_vector(e->out, X86_BROADCASTSS, form_of(e), 0, X86_NONE,
               x86_register(0));
    if (i->immediate == VECTOR_BF16)
        x86_vector(e->out, X86_PSLLD, form_with(e, 16), 0, 0, x86_register(0));
    w->on_stack = true;
    w->offset = new_slot(e);
    x86_vector(e->out, X86_MOVAPS_TO, form_of(e), 0, X86_NONE,
               x86_memory(X86_RSP, w->offset));
}

static void emit(emitter *e, const vector_instruction *i)
{
    switch (i->op) {
    case VECTOR_CONSTANT:
    case VECTOR_UNIFORM:
        break;
    case VECTOR_LOAD:
        emit_load(e, i);
        break;
    case VECTOR_STORE:
        emit_store(e, i);
        break;
    case VECTOR_FMA:
        emit_fma(e, i);
        break;
    case VECTOR_SELECT:
        emit_select(e, i);
        break;
    case VECTOR_ROUND_F16:
    case VECTOR_BITS_OF_F16:
        emit_f16(e, i);
        break;
    case VECTOR_SHIFT_LEFT:
    case VECTOR_SHIFT_RIGHT:
    case VECTOR_SHIFT_SIGN:
        emit_shift(e, i);
        break;
    case VECTOR_MASK_NOT:
    case VECTOR_MASK_OF_SIGNS:
        emit_mask(e, i);
        break;
    default:
        if (vector_inputs(i->op) == 1)
            emit_unary(e, i);
        else
            emit_binary(e, i);
        break;
    }
}

/* ------------------------------------------------------------ function -- */

/* Backwards: what uses each value, and when next. */
static void find_uses(emitter *e)
{
    const vector_code *code = e->code;

    for (uint32_t i = 0; i < code->count; i++) {
        e->at[i].next = NEVER;
        e->at[i].reg = X86_NONE;
    }
    for (uint32_t i = code->count; i-- > 0;) {
        const vector_instruction *now = &code->at[i];

        if (now->op != VECTOR_STORE && e->at[i].next == NEVER)
            continue; /* nothing needs it */
        for (uint32_t k = 0; k < inputs_of(now); k++)
            e->at[i].after[k] = e->at[input(now, k)].next;
        for (uint32_t k = 0; k < inputs_of(now); k++)
            e->at[input(now, k)].next = (uint16_t)i;
    }
}

static bool is_used(const emitter *e, uint32_t i)
{
    return e->code->at[i].op == VECTOR_STORE || e->at[i].next != NEVER;
}

static void align(x86_code *out)
{
    while (out->size % X86_CODE_ALIGNMENT != 0 && !out->full)
        x86_bytes(out, &(uint8_t){0xcc}, 1);
}

/* Constants come first, whole vectors or, if an instruction can repeat them,
 * once. */
static void put_constants(emitter *e)
{
    const uint32_t times = e->evex ? 1 : e->lanes;

    align(e->out);
    for (uint32_t i = 0; i < e->code->count; i++) {
        if (e->code->at[i].op != VECTOR_CONSTANT || !is_used(e, i))
            continue;
        e->at[i].in_code = true;
        e->at[i].offset = (int32_t)e->out->size;
        for (uint32_t k = 0; k < times; k++)
            x86_bytes(e->out, &e->code->at[i].bits, 4);
    }
    align(e->out);
}

/* Gives registers to the pointers of the loop, as far as there are enough. */
static void choose_pointers(emitter *e)
{
    memset(e->pointer, X86_NONE, sizeof e->pointer);
    for (uint32_t i = 0; i < e->code->count; i++) {
        const vector_instruction *now = &e->code->at[i];

        if ((now->op == VECTOR_LOAD || now->op == VECTOR_STORE) &&
            is_used(e, i) && e->pointer[now->a] == X86_NONE &&
            e->npointers < POINTERS)
            e->pointer[now->a] = pointer_registers[e->npointers++];
    }
}

/* Returns where the frame's size is. */
static uint32_t emit_begin(emitter *e)
{
    uint32_t at;

    x86_push(e->out, X86_RBP);
    x86_general(e->out, 0x89, true, X86_RSP, x86_register(X86_RBP));
    for (uint32_t k = FREE_POINTERS; k < e->npointers; k++)
        x86_push(e->out, pointer_registers[k]);
    x86_and_immediate(e->out, X86_RSP, -64);
    x86_add_immediate(e->out, X86_RSP, 0);
    at = e->out->size - 4;
    for (uint32_t i = 0; i < e->code->count; i++)
        if (e->code->at[i].op == VECTOR_UNIFORM && is_used(e, i))
            emit_uniform(e, &e->code->at[i], &e->at[i]);
    for (uint32_t k = 0; k < VECTOR_POINTERS; k++)
        if (e->pointer[k] != X86_NONE)
            x86_general(e->out, 0x8b, true, e->pointer[k],
                        x86_memory(X86_RDI, (int32_t)(8 * k)));
    x86_general(e->out, 0x31, false, X86_RCX, x86_register(X86_RCX));
    return at;
}

static void emit_end(emitter *e, uint32_t loop, uint32_t elements)
{
    static const uint8_t ret = 0xc3;
    int32_t pushed = e->npointers > FREE_POINTERS
                         ? (int32_t)(e->npointers - FREE_POINTERS)
                         : 0;

    x86_add_immediate(e->out, X86_RCX, (int32_t)elements);
    x86_general(e->out, 0x39, true, X86_RSI, x86_register(X86_RCX));
    x86_jump_below(e->out, loop);
    x86_vector(e->out, X86_ZEROUPPER, mask_form, 0, X86_NONE, x86_register(0));
    x86_general(e->out, 0x8d, true, X86_RSP, x86_memory(X86_RBP, -8 * pushed));
    for (uint32_t k = e->npointers; k-- > FREE_POINTERS;)
        x86_pop(e->out, pointer_registers[k]);
    x86_pop(e->out, X86_RBP);
    x86_bytes(e->out, &ret, 1);
}

bool x86_compile(const vector_code *code, x86_code *out, x86_result *out_result)
{
    emitter e = {.code = code,
                 .out = out,
                 .evex = code->mask_registers,
                 .lanes = code->mask_registers ? 16 : 8,
                 .at = calloc(code->count + 1u, sizeof(where))};
    uint32_t vectors = 1, frame, loop;

    if (!e.at || code->full) {
        free(e.at);
        return false;
    }
    memset(e.files[0].value, 0xff, sizeof e.files[0].value);
    memset(e.files[1].value, 0xff, sizeof e.files[1].value);
    e.files[0].end = e.evex ? VECTORS : VECTORS / 2;
    e.files[1].first = 1; /* k0 selects everything */
    e.files[1].end = MASKS;
    for (uint32_t i = 0; i < code->count; i++)
        if (code->at[i].op == VECTOR_STORE && code->at[i].c + 1u > vectors)
            vectors = code->at[i].c + 1u;
    find_uses(&e);
    put_constants(&e);
    choose_pointers(&e);
    out_result->entry = out->size;
    frame = emit_begin(&e);
    loop = out->size;
    for (e.now = 0; e.now < code->count; e.now++)
        if (is_used(&e, e.now))
            emit(&e, &code->at[e.now]);
    out_result->elements = vectors * e.lanes;
    out_result->spills = e.spills;
    emit_end(&e, loop, out_result->elements);
    if (!out->full) {
        int32_t size = -((e.frame + 63) / 64 * 64);

        memcpy(out->bytes + frame, &size, sizeof size);
    }
    free(e.at);
    return !out->full;
}
