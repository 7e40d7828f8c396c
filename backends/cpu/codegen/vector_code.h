/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* vector_code.h: what generated code computes, before registers are allocated.
 *
 * Vector code is the body of a loop over elements, as a list of instructions on
 * vectors of lanes of 32 bits: floats, integers, and masks.  An instruction
 * defines the value of its number and uses those of instructions before it.
 * Loads and stores convert narrower elements.  x86_compile.c makes machine code
 * of it. */

#ifndef CPU_VECTOR_CODE_H
#define CPU_VECTOR_CODE_H

#include <stdbool.h>
#include <stdint.h>

typedef uint16_t vector_value;

enum {
    VECTOR_NONE = UINT16_MAX,
    VECTOR_MOST = 4096,  /* instructions */
    VECTOR_UNROLLED = 4, /* vectors at a time */
    VECTOR_POINTERS = 64 /* that code may use */
};

typedef enum vector_op {
    VECTOR_CONSTANT, /* bits, in each lane */
    VECTOR_UNIFORM,  /* the element at pointer a, in each lane */
    VECTOR_LOAD,     /* elements from pointer a on, c vectors ahead; b: those
                        that come later are fetched into the cache */
    VECTOR_STORE,    /* b, to pointer a on; the same */

    /* Floats: a and b */
    VECTOR_ADD,
    VECTOR_SUB,
    VECTOR_MUL,
    VECTOR_DIV,
    VECTOR_MAX, /* b unless a > b */
    VECTOR_MIN, /* b unless a < b */
    VECTOR_SQRT,
    VECTOR_FMA,          /* a b + c */
    VECTOR_ROUND,        /* to a whole number; immediate: VECTOR_NEAREST, … */
    VECTOR_COMPARE,      /* a mask; immediate: vector_relation */
    VECTOR_INT_OF_FLOAT, /* truncates; the least integer if it does not fit */
    VECTOR_ROUND_F16,    /* to the precision of f16 */
    VECTOR_BITS_OF_F16,  /* the bits of that f16, in 32 bits */

    /* Integers, or the bits of floats. */
    VECTOR_AND,
    VECTOR_OR,
    VECTOR_XOR,
    VECTOR_INT_ADD,
    VECTOR_INT_SUB,
    VECTOR_INT_MUL,
    VECTOR_INT_MIN,
    VECTOR_INT_MAX,
    VECTOR_UNSIGNED_MIN,
    VECTOR_INT_ABS,
    VECTOR_SHIFT_LEFT,  /* a, by the immediate */
    VECTOR_SHIFT_RIGHT, /* in zeros */
    VECTOR_SHIFT_SIGN,  /* in copies of the sign */
    VECTOR_FLOAT_OF_INT,
    VECTOR_INT_EQUAL, /* masks */
    VECTOR_INT_GREATER,

    /* Masks. */
    VECTOR_SELECT, /* b where a, a mask, is set, else c */
    VECTOR_MASK_AND,
    VECTOR_MASK_OR,
    VECTOR_MASK_XOR,
    VECTOR_MASK_NOT,      /* with mask registers only */
    VECTOR_MASK_OF_SIGNS, /* set where a is negative */
    VECTOR_OPS
} vector_op;

typedef enum vector_relation {
    VECTOR_EQ,
    VECTOR_NE,
    VECTOR_LT,
    VECTOR_LE,
    VECTOR_GT,
    VECTOR_GE,
    VECTOR_UNORDERED /* a or b is NaN */
} vector_relation;

/* As the immediates of ROUNDPS; without exceptions. */
enum {
    VECTOR_NEAREST = 8,
    VECTOR_DOWN = 9,
    VECTOR_UP = 10,
    VECTOR_TO_ZERO = 11
};

/* Elements in memory: the immediate of loads, uniforms and stores. */
typedef enum vector_element {
    VECTOR_32,   /* f32, i32 */
    VECTOR_BF16, /* to and from f32; a store takes an f32 that is one */
    VECTOR_F16,
    VECTOR_U16,
    VECTOR_I16,
    VECTOR_U8,
    VECTOR_I8,
    VECTOR_BOOL /* a mask; the functions below make other instructions of it */
} vector_element;

typedef struct vector_instruction {
    uint8_t op, immediate;
    vector_value a, b, c;
    uint32_t bits;
} vector_instruction;

typedef struct vector_code {
    vector_instruction *at;
    uint32_t count, capacity;
    bool full;
    bool mask_registers; /* masks are not vectors: AVX-512 */
    vector_value last_constant;
} vector_code;

static inline uint32_t vector_element_size(uint32_t element)
{
    return element == VECTOR_32 ? 4 : element < VECTOR_U8 ? 2 : 1;
}

/* How many of a, b and c are values, from a on.  A store's is b. */
uint32_t vector_inputs(uint32_t op);
/* Whether the value is a mask. */
bool vector_is_mask(const vector_code *code, vector_value value);

/* Each adds an instruction, and returns its value. */
vector_value vector_add(vector_code *code, uint32_t op, uint32_t immediate,
                        vector_value a, vector_value b, vector_value c);
vector_value vector_bits(vector_code *code, uint32_t bits);
vector_value vector_float(vector_code *code, float value);
vector_value vector_load(vector_code *code, uint32_t pointer,
                         vector_element element, bool prefetch);
vector_value vector_uniform(vector_code *code, uint32_t pointer,
                            vector_element element);
void vector_store(vector_code *code, uint32_t pointer, vector_element element,
                  vector_value value);
vector_value vector_compare(vector_code *code, vector_relation relation,
                            vector_value a, vector_value b);
vector_value vector_int_compare(vector_code *code, vector_relation relation,
                                vector_value a, vector_value b);
vector_value vector_not(vector_code *code, vector_value mask);
/* op: VECTOR_MASK_AND, VECTOR_MASK_OR or VECTOR_MASK_XOR. */
vector_value vector_masks(vector_code *code, uint32_t op, vector_value a,
                          vector_value b);
/* Estimates how many cycles pass until the last value is known. */
uint32_t vector_latency(const vector_code *code);
/* Makes code that computes `times` vectors at a time, at most VECTOR_UNROLLED;
 * false if it does not fit. */
bool vector_unroll(const vector_code *code, uint32_t times, vector_code *out);

static inline vector_value vector_1(vector_code *code, uint32_t op,
                                    vector_value a)
{
    return vector_add(code, op, 0, a, 0, 0);
}

static inline vector_value vector_2(vector_code *code, uint32_t op,
                                    vector_value a, vector_value b)
{
    return vector_add(code, op, 0, a, b, 0);
}

static inline vector_value vector_3(vector_code *code, uint32_t op,
                                    vector_value a, vector_value b,
                                    vector_value c)
{
    return vector_add(code, op, 0, a, b, c);
}

static inline vector_value vector_shift(vector_code *code, uint32_t op,
                                        vector_value a, uint32_t bits)
{
    return vector_add(code, op, bits, a, 0, 0);
}

/* Functions of expressions/vecmath.h and functions.h of f32, operation by
 * operation. */
typedef vector_value vector_function(vector_code *code, vector_value x);
/* Returns NULL for an operator that has none. */
vector_function *vector_function_of(const char *name);
/* The bits of bf16 that the rounding of x gives, as an f32. */
vector_value vector_round_bf16(vector_code *code, vector_value x);

#endif
