/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The encoder of x86-64 instructions: each instruction against bytes that GNU
 * binutils disassemble as the text beside them. */

#include "support/suite.h"
#include "support/temporary_files.h"

#include "codegen/x86_encode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* to: 255 if the instruction has no such field, as `from`. */
typedef struct encoding {
    x86_instruction instruction;
    int evex, length, mask, immediate; /* -1: none */
    int to, from;
    x86_operand operand;
    const char *bytes, *text;
} encoding;

#define R(number)                                                 \
    {                                                             \
        .kind = X86_REGISTER, .base = (number), .index = X86_NONE \
    }
#define M(register, offset)                                            \
    {                                                                  \
        .kind = X86_MEMORY, .base = X86_##register, .index = X86_NONE, \
        .displacement = (offset)                                       \
    }
#define E(register, counter, factor, offset)                                \
    {                                                                       \
        .kind = X86_MEMORY, .base = X86_##register, .index = X86_##counter, \
        .scale = (factor), .displacement = (offset)                         \
    }
#define P(offset, repeated)                                            \
    {                                                                  \
        .kind = X86_PLACE, .index = X86_NONE, .broadcast = (repeated), \
        .displacement = (offset)                                       \
    }

static const encoding encodings[] = {
    /* clang-format off */
    {X86_MOVUPS, 0, 1, 0, -1, 9, 255, R(11), "c4417c10cb",
     "vmovups ymm9,ymm11"},
    {X86_MOVUPS, 0, 1, 0, -1, 9, 255, E(R13, RCX, 4, 291), "c4417c108c8d23010000",
     "vmovups ymm9,YMMWORD PTR [r13+rcx*4+0x123]"},
    {X86_MOVUPS, 0, 1, 0, -1, 9, 255, E(RBX, R9, 2, 0), "c4217c108c4b00000000",
     "vmovups ymm9,YMMWORD PTR [rbx+r9*2+0x0]"},
    {X86_MOVUPS, 0, 1, 0, -1, 9, 255, M(RSP, 64), "c4617c108c2440000000",
     "vmovups ymm9,YMMWORD PTR [rsp+0x40]"},
    {X86_MOVUPS, 0, 1, 0, -1, 9, 255, M(R12, -64), "c4417c108c24c0ffffff",
     "vmovups ymm9,YMMWORD PTR [r12-0x40]"},
    {X86_MOVUPS_TO, 0, 1, 0, -1, 9, 255, R(11), "c4417c11cb",
     "vmovups ymm11,ymm9"},
    {X86_MOVAPS, 0, 1, 0, -1, 9, 255, R(11), "c4417c28cb",
     "vmovaps ymm9,ymm11"},
    {X86_MOVAPS_TO, 0, 1, 0, -1, 9, 255, R(11), "c4417c29cb",
     "vmovaps ymm11,ymm9"},
    {X86_MOVD, 0, 0, 0, -1, 9, 255, R(11), "c441796ecb",
     "vmovd xmm9,r11d"},
    {X86_BROADCASTSS, 0, 1, 0, -1, 9, 255, R(11), "c4427d18cb",
     "vbroadcastss ymm9,xmm11"},
    {X86_ADDPS, 0, 1, 0, -1, 9, 10, R(11), "c4412c58cb",
     "vaddps ymm9,ymm10,ymm11"},
    {X86_ADDPS, 0, 1, 0, -1, 9, 10, E(R13, RCX, 4, 291), "c4412c588c8d23010000",
     "vaddps ymm9,ymm10,YMMWORD PTR [r13+rcx*4+0x123]"},
    {X86_ADDPS, 0, 1, 0, -1, 9, 10, E(RBX, R9, 2, 0), "c4212c588c4b00000000",
     "vaddps ymm9,ymm10,YMMWORD PTR [rbx+r9*2+0x0]"},
    {X86_ADDPS, 0, 1, 0, -1, 9, 10, M(RSP, 64), "c4612c588c2440000000",
     "vaddps ymm9,ymm10,YMMWORD PTR [rsp+0x40]"},
    {X86_ADDPS, 0, 1, 0, -1, 9, 10, M(R12, -64), "c4412c588c24c0ffffff",
     "vaddps ymm9,ymm10,YMMWORD PTR [r12-0x40]"},
    {X86_ADDPS, 0, 1, 0, -1, 9, 10, P(4096, false), "c4612c580df70f0000",
     "vaddps ymm9,ymm10,YMMWORD PTR [rip+0xff7]"},
    {X86_MULPS, 0, 1, 0, -1, 9, 10, R(11), "c4412c59cb",
     "vmulps ymm9,ymm10,ymm11"},
    {X86_SUBPS, 0, 1, 0, -1, 9, 10, R(11), "c4412c5ccb",
     "vsubps ymm9,ymm10,ymm11"},
    {X86_MINPS, 0, 1, 0, -1, 9, 10, R(11), "c4412c5dcb",
     "vminps ymm9,ymm10,ymm11"},
    {X86_DIVPS, 0, 1, 0, -1, 9, 10, R(11), "c4412c5ecb",
     "vdivps ymm9,ymm10,ymm11"},
    {X86_MAXPS, 0, 1, 0, -1, 9, 10, R(11), "c4412c5fcb",
     "vmaxps ymm9,ymm10,ymm11"},
    {X86_SQRTPS, 0, 1, 0, -1, 9, 255, R(11), "c4417c51cb",
     "vsqrtps ymm9,ymm11"},
    {X86_FMADD132PS, 0, 1, 0, -1, 9, 10, R(11), "c4422d98cb",
     "vfmadd132ps ymm9,ymm10,ymm11"},
    {X86_FMADD213PS, 0, 1, 0, -1, 9, 10, R(11), "c4422da8cb",
     "vfmadd213ps ymm9,ymm10,ymm11"},
    {X86_FMADD231PS, 0, 1, 0, -1, 9, 10, R(11), "c4422db8cb",
     "vfmadd231ps ymm9,ymm10,ymm11"},
    {X86_FMADD231PS, 0, 1, 0, -1, 9, 10, E(R13, RCX, 4, 291), "c4422db88c8d23010000",
     "vfmadd231ps ymm9,ymm10,YMMWORD PTR [r13+rcx*4+0x123]"},
    {X86_FMADD231PS, 0, 1, 0, -1, 9, 10, E(RBX, R9, 2, 0), "c4222db88c4b00000000",
     "vfmadd231ps ymm9,ymm10,YMMWORD PTR [rbx+r9*2+0x0]"},
    {X86_FMADD231PS, 0, 1, 0, -1, 9, 10, M(RSP, 64), "c4622db88c2440000000",
     "vfmadd231ps ymm9,ymm10,YMMWORD PTR [rsp+0x40]"},
    {X86_FMADD231PS, 0, 1, 0, -1, 9, 10, M(R12, -64), "c4422db88c24c0ffffff",
     "vfmadd231ps ymm9,ymm10,YMMWORD PTR [r12-0x40]"},
    {X86_ROUNDPS, 0, 1, 0, 3, 9, 255, R(11), "c4437d08cb03",
     "vroundps ymm9,ymm11,0x3"},
    {X86_CMPPS, 0, 1, 0, 3, 9, 10, R(11), "c4412cc2cb03",
     "vcmpunordps ymm9,ymm10,ymm11"},
    {X86_CMPPS, 0, 1, 0, 3, 9, 10, P(4096, false), "c4612cc20df60f000003",
     "vcmpunordps ymm9,ymm10,YMMWORD PTR [rip+0xff6]"},
    {X86_CVTDQ2PS, 0, 1, 0, -1, 9, 255, R(11), "c4417c5bcb",
     "vcvtdq2ps ymm9,ymm11"},
    {X86_CVTTPS2DQ, 0, 1, 0, -1, 9, 255, R(11), "c4417e5bcb",
     "vcvttps2dq ymm9,ymm11"},
    {X86_CVTPH2PS, 0, 1, 0, -1, 9, 255, R(11), "c4427d13cb",
     "vcvtph2ps ymm9,xmm11"},
    {X86_CVTPS2PH, 0, 1, 0, 3, 9, 255, R(11), "c4437d1dcb03",
     "vcvtps2ph xmm11,ymm9,0x3"},
    {X86_PAND, 0, 1, 0, -1, 9, 10, R(11), "c4412ddbcb",
     "vpand ymm9,ymm10,ymm11"},
    {X86_PANDN, 0, 1, 0, -1, 9, 10, R(11), "c4412ddfcb",
     "vpandn ymm9,ymm10,ymm11"},
    {X86_POR, 0, 1, 0, -1, 9, 10, R(11), "c4412debcb",
     "vpor ymm9,ymm10,ymm11"},
    {X86_PXOR, 0, 1, 0, -1, 9, 10, R(11), "c4412defcb",
     "vpxor ymm9,ymm10,ymm11"},
    {X86_PADDD, 0, 1, 0, -1, 9, 10, R(11), "c4412dfecb",
     "vpaddd ymm9,ymm10,ymm11"},
    {X86_PSUBD, 0, 1, 0, -1, 9, 10, R(11), "c4412dfacb",
     "vpsubd ymm9,ymm10,ymm11"},
    {X86_PMULLD, 0, 1, 0, -1, 9, 10, R(11), "c4422d40cb",
     "vpmulld ymm9,ymm10,ymm11"},
    {X86_PMINSD, 0, 1, 0, -1, 9, 10, R(11), "c4422d39cb",
     "vpminsd ymm9,ymm10,ymm11"},
    {X86_PMINUD, 0, 1, 0, -1, 9, 10, R(11), "c4422d3bcb",
     "vpminud ymm9,ymm10,ymm11"},
    {X86_PMAXSD, 0, 1, 0, -1, 9, 10, R(11), "c4422d3dcb",
     "vpmaxsd ymm9,ymm10,ymm11"},
    {X86_PABSD, 0, 1, 0, -1, 9, 255, R(11), "c4427d1ecb",
     "vpabsd ymm9,ymm11"},
    {X86_PABSB, 0, 1, 0, -1, 9, 255, R(11), "c4427d1ccb",
     "vpabsb ymm9,ymm11"},
    {X86_PSRLD, 0, 1, 0, 3, 0, 10, R(11), "c4c12d72d303",
     "vpsrld ymm10,ymm11,0x3"},
    {X86_PSRAD, 0, 1, 0, 3, 0, 10, R(11), "c4c12d72e303",
     "vpsrad ymm10,ymm11,0x3"},
    {X86_PSLLD, 0, 1, 0, 3, 0, 10, R(11), "c4c12d72f303",
     "vpslld ymm10,ymm11,0x3"},
    {X86_PMOVSXBD, 0, 1, 0, -1, 9, 255, R(11), "c4427d21cb",
     "vpmovsxbd ymm9,xmm11"},
    {X86_PMOVSXWD, 0, 1, 0, -1, 9, 255, R(11), "c4427d23cb",
     "vpmovsxwd ymm9,xmm11"},
    {X86_PMOVZXBD, 0, 1, 0, -1, 9, 255, R(11), "c4427d31cb",
     "vpmovzxbd ymm9,xmm11"},
    {X86_PMOVZXWD, 0, 1, 0, -1, 9, 255, R(11), "c4427d33cb",
     "vpmovzxwd ymm9,xmm11"},
    {X86_PCMPEQD, 0, 1, 0, -1, 9, 10, R(11), "c4412d76cb",
     "vpcmpeqd ymm9,ymm10,ymm11"},
    {X86_PCMPGTD, 0, 1, 0, -1, 9, 10, R(11), "c4412d66cb",
     "vpcmpgtd ymm9,ymm10,ymm11"},
    {X86_BLENDVPS, 0, 1, 0, 80, 9, 10, R(11), "c4432d4acb50",
     "vblendvps ymm9,ymm10,ymm11,ymm5"},
    {X86_EXTRACTI128, 0, 1, 0, 3, 9, 255, R(11), "c4437d39cb03",
     "vextracti128 xmm11,ymm9,0x3"},
    {X86_PACKUSDW, 0, 1, 0, -1, 9, 10, R(11), "c4422d2bcb",
     "vpackusdw ymm9,ymm10,ymm11"},
    {X86_PACKUSWB, 0, 1, 0, -1, 9, 10, R(11), "c4412d67cb",
     "vpackuswb ymm9,ymm10,ymm11"},
    {X86_MOVQ_TO, 0, 0, 0, -1, 9, 255, M(RDX, 64), "c46179d68a40000000",
     "vmovq QWORD PTR [rdx+0x40],xmm9"},
    {X86_ZEROUPPER, 0, 0, 0, -1, 0, 255, R(0), "c4e17877",
     "vzeroupper"},
    {X86_KANDW, 0, 1, 0, -1, 3, 2, R(1), "c4e16c41d9",
     "kandw k3,k2,k1"},
    {X86_KNOTW, 0, 0, 0, -1, 3, 255, R(1), "c4e17844d9",
     "knotw k3,k1"},
    {X86_KORW, 0, 1, 0, -1, 3, 2, R(1), "c4e16c45d9",
     "korw k3,k2,k1"},
    {X86_KXORW, 0, 1, 0, -1, 3, 2, R(1), "c4e16c47d9",
     "kxorw k3,k2,k1"},
    {X86_KMOVW, 0, 0, 0, -1, 3, 255, R(1), "c4e17890d9",
     "kmovw k3,k1"},
    {X86_KMOVW_TO, 0, 0, 0, -1, 3, 255, M(RDX, 64), "c4e178919a40000000",
     "kmovw WORD PTR [rdx+0x40],k3"},
    {X86_MOVUPS, 1, 2, 0, -1, 19, 255, R(29), "62817c4810dd",
     "vmovups zmm19,zmm29"},
    {X86_MOVUPS, 1, 2, 0, -1, 19, 255, E(R13, RCX, 4, 291), "62c17c48109c8d23010000",
     "vmovups zmm19,ZMMWORD PTR [r13+rcx*4+0x123]"},
    {X86_MOVUPS, 1, 2, 0, -1, 19, 255, E(RBX, R9, 2, 0), "62a17c48109c4b00000000",
     "vmovups zmm19,ZMMWORD PTR [rbx+r9*2+0x0]"},
    {X86_MOVUPS, 1, 2, 0, -1, 19, 255, M(RSP, 64), "62e17c48109c2440000000",
     "vmovups zmm19,ZMMWORD PTR [rsp+0x40]"},
    {X86_MOVUPS, 1, 2, 0, -1, 19, 255, M(R12, -64), "62c17c48109c24c0ffffff",
     "vmovups zmm19,ZMMWORD PTR [r12-0x40]"},
    {X86_MOVUPS_TO, 1, 2, 0, -1, 19, 255, R(29), "62817c4811dd",
     "vmovups zmm29,zmm19"},
    {X86_MOVAPS, 1, 2, 0, -1, 19, 255, R(29), "62817c4828dd",
     "vmovaps zmm19,zmm29"},
    {X86_MOVAPS_TO, 1, 2, 0, -1, 19, 255, R(29), "62817c4829dd",
     "vmovaps zmm29,zmm19"},
    {X86_MOVD, 1, 0, 0, -1, 19, 255, R(29), "62817d086edd",
     "vmovd xmm19,r13d"},
    {X86_BROADCASTSS, 1, 2, 0, -1, 19, 255, R(29), "62827d4818dd",
     "vbroadcastss zmm19,xmm29"},
    {X86_ADDPS, 1, 2, 0, -1, 19, 20, R(29), "62815c4058dd",
     "vaddps zmm19,zmm20,zmm29"},
    {X86_ADDPS, 1, 2, 0, -1, 19, 20, E(R13, RCX, 4, 291), "62c15c40589c8d23010000",
     "vaddps zmm19,zmm20,ZMMWORD PTR [r13+rcx*4+0x123]"},
    {X86_ADDPS, 1, 2, 0, -1, 19, 20, E(RBX, R9, 2, 0), "62a15c40589c4b00000000",
     "vaddps zmm19,zmm20,ZMMWORD PTR [rbx+r9*2+0x0]"},
    {X86_ADDPS, 1, 2, 0, -1, 19, 20, M(RSP, 64), "62e15c40589c2440000000",
     "vaddps zmm19,zmm20,ZMMWORD PTR [rsp+0x40]"},
    {X86_ADDPS, 1, 2, 0, -1, 19, 20, M(R12, -64), "62c15c40589c24c0ffffff",
     "vaddps zmm19,zmm20,ZMMWORD PTR [r12-0x40]"},
    {X86_ADDPS, 1, 2, 0, -1, 19, 20, P(4096, true), "62e15c50581df60f0000",
     "vaddps zmm19,zmm20,DWORD BCST [rip+0xff6]"},
    {X86_MULPS, 1, 2, 0, -1, 19, 20, R(29), "62815c4059dd",
     "vmulps zmm19,zmm20,zmm29"},
    {X86_SUBPS, 1, 2, 0, -1, 19, 20, R(29), "62815c405cdd",
     "vsubps zmm19,zmm20,zmm29"},
    {X86_MINPS, 1, 2, 0, -1, 19, 20, R(29), "62815c405ddd",
     "vminps zmm19,zmm20,zmm29"},
    {X86_DIVPS, 1, 2, 0, -1, 19, 20, R(29), "62815c405edd",
     "vdivps zmm19,zmm20,zmm29"},
    {X86_MAXPS, 1, 2, 0, -1, 19, 20, R(29), "62815c405fdd",
     "vmaxps zmm19,zmm20,zmm29"},
    {X86_SQRTPS, 1, 2, 0, -1, 19, 255, R(29), "62817c4851dd",
     "vsqrtps zmm19,zmm29"},
    {X86_FMADD132PS, 1, 2, 0, -1, 19, 20, R(29), "62825d4098dd",
     "vfmadd132ps zmm19,zmm20,zmm29"},
    {X86_FMADD213PS, 1, 2, 0, -1, 19, 20, R(29), "62825d40a8dd",
     "vfmadd213ps zmm19,zmm20,zmm29"},
    {X86_FMADD231PS, 1, 2, 0, -1, 19, 20, R(29), "62825d40b8dd",
     "vfmadd231ps zmm19,zmm20,zmm29"},
    {X86_FMADD231PS, 1, 2, 0, -1, 19, 20, E(R13, RCX, 4, 291), "62c25d40b89c8d23010000",
     "vfmadd231ps zmm19,zmm20,ZMMWORD PTR [r13+rcx*4+0x123]"},
    {X86_FMADD231PS, 1, 2, 0, -1, 19, 20, E(RBX, R9, 2, 0), "62a25d40b89c4b00000000",
     "vfmadd231ps zmm19,zmm20,ZMMWORD PTR [rbx+r9*2+0x0]"},
    {X86_FMADD231PS, 1, 2, 0, -1, 19, 20, M(RSP, 64), "62e25d40b89c2440000000",
     "vfmadd231ps zmm19,zmm20,ZMMWORD PTR [rsp+0x40]"},
    {X86_FMADD231PS, 1, 2, 0, -1, 19, 20, M(R12, -64), "62c25d40b89c24c0ffffff",
     "vfmadd231ps zmm19,zmm20,ZMMWORD PTR [r12-0x40]"},
    {X86_ROUNDPS, 1, 2, 0, 3, 19, 255, R(29), "62837d4808dd03",
     "vrndscaleps zmm19,zmm29,0x3"},
    {X86_CMPPS, 1, 2, 0, 3, 5, 20, R(29), "62915c40c2ed03",
     "vcmpunordps k5,zmm20,zmm29"},
    {X86_CMPPS, 1, 2, 0, 3, 5, 20, P(4096, true), "62f15c50c22df50f000003",
     "vcmpunordps k5,zmm20,DWORD BCST [rip+0xff5]"},
    {X86_CVTDQ2PS, 1, 2, 0, -1, 19, 255, R(29), "62817c485bdd",
     "vcvtdq2ps zmm19,zmm29"},
    {X86_CVTTPS2DQ, 1, 2, 0, -1, 19, 255, R(29), "62817e485bdd",
     "vcvttps2dq zmm19,zmm29"},
    {X86_CVTPH2PS, 1, 2, 0, -1, 19, 255, R(29), "62827d4813dd",
     "vcvtph2ps zmm19,ymm29"},
    {X86_CVTPS2PH, 1, 2, 0, 3, 19, 255, R(29), "62837d481ddd03",
     "vcvtps2ph ymm29,zmm19,0x3"},
    {X86_PAND, 1, 2, 0, -1, 19, 20, R(29), "62815d40dbdd",
     "vpandd zmm19,zmm20,zmm29"},
    {X86_PANDN, 1, 2, 0, -1, 19, 20, R(29), "62815d40dfdd",
     "vpandnd zmm19,zmm20,zmm29"},
    {X86_POR, 1, 2, 0, -1, 19, 20, R(29), "62815d40ebdd",
     "vpord zmm19,zmm20,zmm29"},
    {X86_PXOR, 1, 2, 0, -1, 19, 20, R(29), "62815d40efdd",
     "vpxord zmm19,zmm20,zmm29"},
    {X86_PADDD, 1, 2, 0, -1, 19, 20, R(29), "62815d40fedd",
     "vpaddd zmm19,zmm20,zmm29"},
    {X86_PSUBD, 1, 2, 0, -1, 19, 20, R(29), "62815d40fadd",
     "vpsubd zmm19,zmm20,zmm29"},
    {X86_PMULLD, 1, 2, 0, -1, 19, 20, R(29), "62825d4040dd",
     "vpmulld zmm19,zmm20,zmm29"},
    {X86_PMINSD, 1, 2, 0, -1, 19, 20, R(29), "62825d4039dd",
     "vpminsd zmm19,zmm20,zmm29"},
    {X86_PMINUD, 1, 2, 0, -1, 19, 20, R(29), "62825d403bdd",
     "vpminud zmm19,zmm20,zmm29"},
    {X86_PMAXSD, 1, 2, 0, -1, 19, 20, R(29), "62825d403ddd",
     "vpmaxsd zmm19,zmm20,zmm29"},
    {X86_PABSD, 1, 2, 0, -1, 19, 255, R(29), "62827d481edd",
     "vpabsd zmm19,zmm29"},
    {X86_PABSB, 1, 2, 0, -1, 19, 255, R(29), "62827d481cdd",
     "vpabsb zmm19,zmm29"},
    {X86_PSRLD, 1, 2, 0, 3, 0, 20, R(29), "62915d4072d503",
     "vpsrld zmm20,zmm29,0x3"},
    {X86_PSRAD, 1, 2, 0, 3, 0, 20, R(29), "62915d4072e503",
     "vpsrad zmm20,zmm29,0x3"},
    {X86_PSLLD, 1, 2, 0, 3, 0, 20, R(29), "62915d4072f503",
     "vpslld zmm20,zmm29,0x3"},
    {X86_PMOVSXBD, 1, 2, 0, -1, 19, 255, R(29), "62827d4821dd",
     "vpmovsxbd zmm19,xmm29"},
    {X86_PMOVSXWD, 1, 2, 0, -1, 19, 255, R(29), "62827d4823dd",
     "vpmovsxwd zmm19,ymm29"},
    {X86_PMOVZXBD, 1, 2, 0, -1, 19, 255, R(29), "62827d4831dd",
     "vpmovzxbd zmm19,xmm29"},
    {X86_PMOVZXWD, 1, 2, 0, -1, 19, 255, R(29), "62827d4833dd",
     "vpmovzxwd zmm19,ymm29"},
    {X86_PCMPD, 1, 2, 0, 3, 5, 20, R(29), "62935d401fed03",
     "vpcmpd k5,zmm20,zmm29,0x3"},
    {X86_BLENDMPS, 1, 2, 3, -1, 19, 20, R(29), "62825d4365dd",
     "vblendmps zmm19{k3},zmm20,zmm29"},
    {X86_PMOVDB, 1, 2, 0, -1, 19, 255, R(29), "62827e4831dd",
     "vpmovdb xmm29,zmm19"},
    {X86_PMOVDW, 1, 2, 0, -1, 19, 255, R(29), "62827e4833dd",
     "vpmovdw ymm29,zmm19"},
    {X86_PMOVM2B, 1, 0, 0, -1, 19, 255, R(5), "62e27e0828dd",
     "vpmovm2b xmm19,k5"},
    {X86_PMOVM2D, 1, 2, 0, -1, 19, 255, R(5), "62e27e4838dd",
     "vpmovm2d zmm19,k5"},
    {X86_PMOVD2M, 1, 2, 0, -1, 5, 255, R(29), "62927e4839ed",
     "vpmovd2m k5,zmm29"},
    /* clang-format on */
};
enum { ENCODINGS = sizeof encodings / sizeof *encodings };

static uint32_t encode(const encoding *e, uint8_t *bytes)
{
    x86_code code = {.bytes = bytes, .capacity = 16};
    const x86_form form = {.evex = e->evex,
                           .length = (uint8_t)e->length,
                           .mask = (uint8_t)e->mask,
                           .immediate = e->immediate >= 0,
                           .value = (uint8_t)e->immediate};

    x86_vector(&code, e->instruction, form, (uint8_t)e->to, (uint8_t)e->from,
               e->operand);
    ck_assert(!code.full);
    return code.size;
}

static void hex(const uint8_t *bytes, uint32_t size, char *to)
{
    for (uint32_t k = 0; k < size; k++)
        sprintf(to + 2 * k, "%02x", bytes[k]);
    to[2 * size] = '\0';
}

START_TEST(vector_instructions_have_known_bytes)
{
    for (int i = 0; i < ENCODINGS; i++) {
        uint8_t bytes[16];
        char text[33];

        hex(bytes, encode(&encodings[i], bytes), text);
        ck_assert_msg(strcmp(text, encodings[i].bytes) == 0,
                      "%s: %s instead of %s", encodings[i].text, text,
                      encodings[i].bytes);
    }
}
END_TEST

START_TEST(every_instruction_has_a_known_encoding)
{
    for (int k = 0; k < X86_INSTRUCTION_LIMIT; k++) {
        bool found = false;

        for (int i = 0; i < ENCODINGS; i++)
            found = found || (int)encodings[i].instruction == k;
        ck_assert_msg(found, "instruction %d", k);
    }
}
END_TEST

START_TEST(general_instructions_have_known_bytes)
{
    static const char *const expected =
        "4155"
        "55"
        "5b"
        "415f" /* push r13, rbp; pop rbx, r15 */
        "4c8b8f18000000"
        "418b8000000000" /* mov r9, [rdi+24]; eax, [r8] */
        "0fb78000000000"
        "4889e5" /* movzx eax, [rax]; mov rbp, rsp */
        "488da5d8ffffff"
        "4839f1" /* lea rsp, [rbp-40]; cmp rcx, rsi */
        "4881c110000000"
        "4883e4c0"      /* add rcx, 16; and rsp, -64 */
        "0f82c8ffffff"; /* jb 1 */
    uint8_t bytes[128];
    x86_code code = {.bytes = bytes, .capacity = sizeof bytes};
    char text[257];

    x86_push(&code, X86_R13);
    x86_push(&code, X86_RBP);
    x86_pop(&code, X86_RBX);
    x86_pop(&code, X86_R15);
    x86_general(&code, 0x8b, true, X86_R9, x86_memory(X86_RDI, 24));
    x86_general(&code, 0x8b, false, X86_RAX, x86_memory(X86_R8, 0));
    x86_general(&code, 0x0fb7, false, X86_RAX, x86_memory(X86_RAX, 0));
    x86_general(&code, 0x89, true, X86_RSP, x86_register(X86_RBP));
    x86_general(&code, 0x8d, true, X86_RSP, x86_memory(X86_RBP, -40));
    x86_general(&code, 0x39, true, X86_RSI, x86_register(X86_RCX));
    x86_add_immediate(&code, X86_RCX, 16);
    x86_and_immediate(&code, X86_RSP, -64);
    x86_jump_below(&code, 1);
    hex(bytes, code.size, text);
    ck_assert_str_eq(text, expected);
}
END_TEST

START_TEST(code_that_does_not_fit_is_reported)
{
    uint8_t bytes[4] = {0};
    x86_code code = {.bytes = bytes, .capacity = 3};

    x86_push(&code, X86_RBX);
    ck_assert(!code.full);
    x86_vector(&code, X86_ADDPS, (x86_form){.length = X86_256}, 1, 2,
               x86_register(3));
    ck_assert(code.full);
    ck_assert_uint_eq(bytes[3], 0);
}
END_TEST

/* The first word of a disassembled line, and where the instruction is. */
typedef struct disassembled {
    unsigned long at;
    char mnemonic[32];
} disassembled;

static bool read_line(FILE *from, disassembled *out)
{
    char line[512];

    while (fgets(line, sizeof line, from))
        if (sscanf(line, " %lx: %31s", &out->at, out->mnemonic) == 2)
            return true;
    return false;
}

static int disassemble(const char *path, disassembled *lines, int most)
{
    char command[PATH_MAX + 128];
    FILE *from;
    int count = 0;

    snprintf(command, sizeof command,
             "objdump -D -b binary -m i386:x86-64 -M intel "
             "--no-show-raw-insn '%s'",
             path);
    from = popen(command, "r");
    ck_assert_ptr_nonnull(from);
    while (count < most && read_line(from, &lines[count]))
        count++;
    pclose(from);
    return count;
}

START_TEST(objdump_reads_the_same_instructions)
{
    disassembled lines[ENCODINGS];
    temporary_path path;
    unsigned long expected = 0;
    FILE *file;
    int count;

    if (system("objdump --version >/dev/null 2>&1") != 0) {
        suite_skip("objdump is not available");
        return;
    }
    temporary_file(path, "core-encode");
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < ENCODINGS; i++) {
        uint8_t bytes[16];

        fwrite(bytes, 1, encode(&encodings[i], bytes), file);
    }
    ck_assert_int_eq(fclose(file), 0);
    count = disassemble(path, lines, ENCODINGS);
    temporary_remove(path);
    ck_assert_int_eq(count, ENCODINGS);
    for (int i = 0; i < ENCODINGS; i++) {
        size_t size = strcspn(encodings[i].text, " ");

        ck_assert_msg(
            lines[i].at == expected && strlen(lines[i].mnemonic) == size &&
                memcmp(lines[i].mnemonic, encodings[i].text, size) == 0,
            "%s: objdump reads %s", encodings[i].text, lines[i].mnemonic);
        expected += strlen(encodings[i].bytes) / 2;
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        vector_instructions_have_known_bytes,
        every_instruction_has_a_known_encoding,
        general_instructions_have_known_bytes,
        code_that_does_not_fit_is_reported,
        objdump_reads_the_same_instructions,
    };
    const test_suite suites[] = {
        {.name = "encoding of x86-64 instructions", SUITE_TESTS(tests)},
    };

    return suite_run(suites, 1);
}
