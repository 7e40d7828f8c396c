/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* x86_encode.h: encodes the x86-64 instructions that generated code consists of
 * (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).
 * Vector instructions are rows of a table; they are encoded with VEX, for
 * registers of 128 or 256 bits, or with EVEX, for 512 bits and masks. */

#ifndef CPU_X86_ENCODE_H
#define CPU_X86_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

/* Code under construction.  What does not fit sets `full`. */
typedef struct x86_code {
    uint8_t *bytes;
    uint32_t size, capacity;
    bool full;
} x86_code;

enum {
    X86_RAX,
    X86_RCX,
    X86_RDX,
    X86_RBX,
    X86_RSP,
    X86_RBP,
    X86_RSI,
    X86_RDI,
    X86_R8,
    X86_R9,
    X86_R10,
    X86_R11,
    X86_R12,
    X86_R13,
    X86_R14,
    X86_R15,
    X86_NONE = 255
};

typedef enum x86_operand_kind {
    X86_REGISTER,
    X86_MEMORY, /* base + index * scale + displacement */
    X86_PLACE   /* a place in the code: displacement is its offset */
} x86_operand_kind;

/* What the r/m field of an instruction describes. */
typedef struct x86_operand {
    uint8_t kind; /* x86_operand_kind */
    uint8_t base; /* or the register */
    uint8_t index, scale;
    bool broadcast; /* EVEX: one element of 32 bits */
    int32_t displacement;
} x86_operand;

/* prefix: 0, or the position of 66, F3, F2 from 1 on.  map: 1 is 0F, 2 0F38, 3
 * 0F3A.  extension: of the opcode, in the place of a register; -1: none. */
#define X86_INSTRUCTIONS(ROW)                   \
    /*  name, prefix, map, opcode, extension */ \
    ROW(MOVUPS, 0, 1, 0x10, -1)                 \
    ROW(MOVUPS_TO, 0, 1, 0x11, -1)              \
    ROW(MOVAPS, 0, 1, 0x28, -1)                 \
    ROW(MOVAPS_TO, 0, 1, 0x29, -1)              \
    ROW(MOVD, 1, 1, 0x6e, -1)                   \
    ROW(BROADCASTSS, 1, 2, 0x18, -1)            \
    ROW(ADDPS, 0, 1, 0x58, -1)                  \
    ROW(MULPS, 0, 1, 0x59, -1)                  \
    ROW(SUBPS, 0, 1, 0x5c, -1)                  \
    ROW(MINPS, 0, 1, 0x5d, -1)                  \
    ROW(DIVPS, 0, 1, 0x5e, -1)                  \
    ROW(MAXPS, 0, 1, 0x5f, -1)                  \
    ROW(SQRTPS, 0, 1, 0x51, -1)                 \
    ROW(FMADD132PS, 1, 2, 0x98, -1)             \
    ROW(FMADD213PS, 1, 2, 0xa8, -1)             \
    ROW(FMADD231PS, 1, 2, 0xb8, -1)             \
    ROW(ROUNDPS, 1, 3, 0x08, -1)                \
    ROW(CMPPS, 0, 1, 0xc2, -1)                  \
    ROW(CVTDQ2PS, 0, 1, 0x5b, -1)               \
    ROW(CVTTPS2DQ, 2, 1, 0x5b, -1)              \
    ROW(CVTPH2PS, 1, 2, 0x13, -1)               \
    ROW(CVTPS2PH, 1, 3, 0x1d, -1)               \
    ROW(PAND, 1, 1, 0xdb, -1)                   \
    ROW(PANDN, 1, 1, 0xdf, -1)                  \
    ROW(POR, 1, 1, 0xeb, -1)                    \
    ROW(PXOR, 1, 1, 0xef, -1)                   \
    ROW(PADDD, 1, 1, 0xfe, -1)                  \
    ROW(PSUBD, 1, 1, 0xfa, -1)                  \
    ROW(PMULLD, 1, 2, 0x40, -1)                 \
    ROW(PMINSD, 1, 2, 0x39, -1)                 \
    ROW(PMINUD, 1, 2, 0x3b, -1)                 \
    ROW(PMAXSD, 1, 2, 0x3d, -1)                 \
    ROW(PABSD, 1, 2, 0x1e, -1)                  \
    ROW(PABSB, 1, 2, 0x1c, -1)                  \
    ROW(PSRLD, 1, 1, 0x72, 2)                   \
    ROW(PSRAD, 1, 1, 0x72, 4)                   \
    ROW(PSLLD, 1, 1, 0x72, 6)                   \
    ROW(PMOVSXBD, 1, 2, 0x21, -1)               \
    ROW(PMOVSXWD, 1, 2, 0x23, -1)               \
    ROW(PMOVZXBD, 1, 2, 0x31, -1)               \
    ROW(PMOVZXWD, 1, 2, 0x33, -1)               \
    /* VEX */                                   \
    ROW(PCMPEQD, 1, 1, 0x76, -1)                \
    ROW(PCMPGTD, 1, 1, 0x66, -1)                \
    ROW(BLENDVPS, 1, 3, 0x4a, -1)               \
    ROW(EXTRACTI128, 1, 3, 0x39, -1)            \
    ROW(PACKUSDW, 1, 2, 0x2b, -1)               \
    ROW(PACKUSWB, 1, 1, 0x67, -1)               \
    ROW(MOVQ_TO, 1, 1, 0xd6, -1)                \
    ROW(ZEROUPPER, 0, 1, 0x77, -1)              \
    ROW(KANDW, 0, 1, 0x41, -1)                  \
    ROW(KNOTW, 0, 1, 0x44, -1)                  \
    ROW(KORW, 0, 1, 0x45, -1)                   \
    ROW(KXORW, 0, 1, 0x47, -1)                  \
    ROW(KMOVW, 0, 1, 0x90, -1)                  \
    ROW(KMOVW_TO, 0, 1, 0x91, -1)               \
    /* EVEX */                                  \
    ROW(PCMPD, 1, 3, 0x1f, -1)                  \
    ROW(BLENDMPS, 1, 2, 0x65, -1)               \
    ROW(PMOVDB, 2, 2, 0x31, -1)                 \
    ROW(PMOVDW, 2, 2, 0x33, -1)                 \
    ROW(PMOVM2B, 2, 2, 0x28, -1)                \
    ROW(PMOVM2D, 2, 2, 0x38, -1)                \
    ROW(PMOVD2M, 2, 2, 0x39, -1)

typedef enum x86_instruction {
#define ROW(name, prefix, map, opcode, extension) X86_##name,
    X86_INSTRUCTIONS(ROW)
#undef ROW
        X86_INSTRUCTION_LIMIT
} x86_instruction;

typedef enum x86_length { X86_128, X86_256, X86_512 } x86_length;

/* How an instruction is encoded. */
typedef struct x86_form {
    bool evex;
    uint8_t length; /* x86_length */
    uint8_t mask;   /* EVEX: a mask register that selects elements */
    bool immediate; /* a byte follows */
    uint8_t value;  /* of that byte */
} x86_form;

/* Encodes a vector instruction.  to: the register in the reg field; from: that
 * in the vvvv field, X86_NONE if there is none.  With an opcode extension, the
 * result is in `from`, and `to` is not used. */
void x86_vector(x86_code *code, x86_instruction instruction, x86_form form,
                uint8_t to, uint8_t from, x86_operand operand);

/* Instructions for pointers and the loop.  Registers have 64 bits. */
void x86_push(x86_code *code, uint8_t reg);
void x86_pop(x86_code *code, uint8_t reg);
/* opcode: of one byte, or with 0x0f00 of two.  wide: 64 bits. */
void x86_general(x86_code *code, uint32_t opcode, bool wide, uint8_t reg,
                 x86_operand operand);
void x86_add_immediate(x86_code *code, uint8_t reg, int32_t value);
void x86_and_immediate(x86_code *code, uint8_t reg, int8_t value);
/* Jumps to an offset of the code if the last comparison found "below". */
void x86_jump_below(x86_code *code, uint32_t target);
void x86_bytes(x86_code *code, const void *bytes, uint32_t size);

static inline x86_operand x86_register(uint8_t reg)
{
    return (x86_operand){.kind = X86_REGISTER, .base = reg, .index = X86_NONE};
}

static inline x86_operand x86_memory(uint8_t base, int32_t displacement)
{
    return (x86_operand){.kind = X86_MEMORY,
                         .base = base,
                         .index = X86_NONE,
                         .displacement = displacement};
}

static inline x86_operand x86_element(uint8_t base, uint8_t index,
                                      uint8_t scale, int32_t displacement)
{
    return (x86_operand){.kind = X86_MEMORY,
                         .base = base,
                         .index = index,
                         .scale = scale,
                         .displacement = displacement};
}

static inline x86_operand x86_place(uint32_t offset, bool broadcast)
{
    return (x86_operand){.kind = X86_PLACE,
                         .index = X86_NONE,
                         .broadcast = broadcast,
                         .displacement = (int32_t)offset};
}

#endif
