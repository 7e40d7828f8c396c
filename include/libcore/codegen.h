/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* codegen.h: loop programs, and the interface "core.codegen" through which a
 * plugin makes kernels of them.  Since ABI 0.6.
 *
 * A loop program computes several element-wise operators, and reductions along
 * rows, in one pass over memory.  The core makes it, checks it and owns it; a
 * plugin compiles or interprets it.  A plugin without this interface, or one
 * that does not accept a program, runs operator by operator.  core_compile
 * makes loop programs of element-wise operators, and of reductions if a program
 * allows sums to be reordered (CORE_COMPILE_REORDER_SUMS in compiled.h).
 *
 * Values.  A program is a list of instructions, which run in order for each
 * element of a loop (core_loop in kernel.h).  Instruction i defines value i, of
 * the dtype `type`; a STORE defines none.  An instruction uses only values of
 * instructions before it.  Each value contributes to a STORE.  There are no
 * jumps.
 *
 * Bits.  An instruction computes what the operator that is named beside its
 * opcode computes on this device, on tensors of the dtype of its operands: the
 * same bits, also for NaN, infinities, zeros and subnormal numbers.  So floats
 * are rounded after each instruction: f32 and f64 to nearest, ties to even;
 * arithmetic on f16 and bf16 is computed in f32 and rounded to the dtype.  A
 * product and a sum are never contracted: only FMA is fused, on devices whose
 * addcmul is.  Nothing is reassociated.  Integers wrap.  Which NaN results from
 * an operation on NaN is not defined.  Reductions are excepted: see
 * CORE_LOOP_REDUCE_SUM.
 *
 * Rows.  A program with reductions runs on a loop of which `reduced` contains
 * the innermost dimensions: bits 0 to k - 1, k >= 1.  The elements of these
 * dimensions are a row.  A value is *uniform* if it is the same for all
 * elements of a row: a CONSTANT, SIZE or ROW_SIZE, a LOAD of an operand with
 * CORE_LOOP_OPERAND_NUMBER or CORE_LOOP_OPERAND_ROW, a reduction, or a value
 * that other instructions compute from uniform values only.  In a program
 * without reductions, `reduced` is 0 and there are no rows. */

#ifndef LIBCORE_CODEGEN_H
#define LIBCORE_CODEGEN_H

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------- instructions -- */

/* Opcodes.  a, b and c are values unless stated otherwise; those that are not
 * mentioned are 0.  "Numbers": the ten dtypes except bool.  "Floats": f64, f32,
 * f16, bf16.  "Integers": i64, i32, i16, i8, u8.  Unless stated otherwise the
 * operands have the result's dtype. */
enum {
    /* The element of operand a, an input of the dtype `type`. */
    CORE_LOOP_LOAD = 1,
    /* Writes value b to the element of operand a, an output of b's dtype.
     * `type` is CORE_DTYPE_NONE.  All STOREs are at the end of the program, and
     * each output has exactly one.  If a has CORE_LOOP_OPERAND_ROW, b is
     * uniform; any other output may also get a uniform value, for each element
     * of the row. */
    CORE_LOOP_STORE = 2,
    /* The number whose bits, as an element of `type`, are a (the low 32 bits)
     * and b (the high ones); unused high bits are 0, a bool is 0 or 1. */
    CORE_LOOP_CONSTANT = 3,
    /* The index of the element in dimension a of the loop, 0 being the
     * innermost; a is below the program's `ndim`.  i64. */
    CORE_LOOP_INDEX = 4,
    /* The size of dimension a of the loop; a is below `ndim`.  i64. */
    CORE_LOOP_SIZE = 5,
    /* The number of the element in row-major order: its index in dimension 0,
     * plus the size of dimension 0 times its index in dimension 1, and so on.
     * i64. */
    CORE_LOOP_POSITION = 6,
    /* The number of elements of a row.  Only with reductions.  i64. */
    CORE_LOOP_ROW_SIZE = 7,

    /* Arithmetic. */
    CORE_LOOP_ADD = 16, /* add.Tensor: a + b; numbers */
    CORE_LOOP_SUB = 17, /* sub.Tensor: a - b; numbers */
    CORE_LOOP_MUL = 18, /* mul.Tensor: a b; numbers */
    /* Floats: div.Tensor, a / b.  Integers: div.Tensor_mode with "trunc"; for a
     * divisor of 0 the result is 0 and the stream's error (core.stream_error)
     * is set to INVALID_ARGUMENT; on a synchronous device the launch returns
     * it.  This holds for FLOOR_DIVIDE, FMOD and REMAINDER too.  The least
     * integer divided by -1 is itself. */
    CORE_LOOP_DIV = 19,
    CORE_LOOP_FLOOR_DIVIDE = 20, /* floor_divide: rounded down; numbers */
    CORE_LOOP_FMOD = 21,         /* fmod.Tensor: has the sign of a; numbers */
    CORE_LOOP_REMAINDER = 22,    /* remainder.Tensor: that of b; numbers */
    CORE_LOOP_FMA = 23,          /* addcmul of c, a and b: a b + c; floats */
    CORE_LOOP_NEG = 24,          /* neg; numbers */
    CORE_LOOP_ABS = 25,          /* abs; numbers */
    CORE_LOOP_SQRT = 26,         /* sqrt; floats */
    CORE_LOOP_CEIL = 27,         /* ceil; floats */
    CORE_LOOP_FLOOR = 28,        /* floor; floats */
    CORE_LOOP_TRUNC = 29,        /* trunc; floats */
    CORE_LOOP_ROUND = 30,        /* round: ties to even; floats */
    CORE_LOOP_MAXIMUM = 31,      /* maximum: NaN if a or b is; numbers */
    CORE_LOOP_MINIMUM = 32,      /* minimum: NaN if a or b is; numbers */
    CORE_LOOP_FMAX = 33,         /* fmax: NaN only if both are; numbers */
    CORE_LOOP_FMIN = 34,         /* fmin: NaN only if both are; numbers */
    CORE_LOOP_COPYSIGN = 35, /* copysign.Tensor: |a|, the sign of b; floats */
    CORE_LOOP_SIGNBIT = 36,  /* signbit of a, a float or integer; bool */

    /* Bits. */
    CORE_LOOP_AND = 48, /* bitwise_and.Tensor; integers and bool */
    CORE_LOOP_OR = 49,  /* bitwise_or.Tensor; integers and bool */
    CORE_LOOP_XOR = 50, /* bitwise_xor.Tensor; integers and bool */
    CORE_LOOP_NOT = 51, /* bitwise_not; integers and bool */
    /* bitwise_left_shift.Tensor, bitwise_right_shift.Tensor: a shifted by b
     * bits; integers.  Computed on i64 and truncated; from 64 bits on, or if b
     * is negative, the result is 0, and for a right shift of a negative a, -1.
     * The right shift copies the sign. */
    CORE_LOOP_SHIFT_LEFT = 52,
    CORE_LOOP_SHIFT_RIGHT = 53,

    /* Comparisons: eq.Tensor to ge.Tensor, of a and b, which have the same
     * dtype, any of the ten.  bool.  With NaN, NE is 1 and the others 0. */
    CORE_LOOP_EQ = 56,
    CORE_LOOP_NE = 57,
    CORE_LOOP_LT = 58,
    CORE_LOOP_LE = 59,
    CORE_LOOP_GT = 60,
    CORE_LOOP_GE = 61,

    /* where.self: b if a, a bool, is 1, else c.  Any dtype; bits are copied. */
    CORE_LOOP_SELECT = 64,
    /* copy_: a, of another dtype, converted to `type`.  Floats to integers
     * truncate; a float that an i64 cannot represent, and NaN, becomes the
     * smallest i64, or, to i32, the smallest i32 if it does not fit that;
     * narrower integers take the low bits.  To bool: 1 if a is not 0 (NaN is
     * not 0).  To floats: to nearest, ties to even. */
    CORE_LOOP_CONVERT = 65,
    /* A function by name: c is an index of the program's `names`, a is its
     * argument, for a function of two arguments b is the second.  Floats, and
     * integers where the operator has them.  The name is that of an
     * element-wise operator without other arguments or with these at their
     * defaults ("exp", "tanh", "erf", "pow.Tensor_Tensor", …), or one of
     * "gelu_tanh" and "gelu_backward_tanh": gelu and gelu_backward with
     * approximate="tanh".  A plugin accepts the names that it knows. */
    CORE_LOOP_FUNCTION = 66,

    /* Random numbers: Philox4x32-10 with the seed a, of element c of a draw
     * that begins at block b; a, b and c are i64.  The key is the seed, low
     * word first; the counter is the block's number in the two low words, and
     * zero in the others.  PHILOX32, an i32: word c mod 4 of block b + c / 4.
     * PHILOX64, an i64: words 2 (c mod 2), low, and 2 (c mod 2) + 1, high, of
     * block b + c / 2.  c >= 0. */
    CORE_LOOP_PHILOX32 = 72,
    CORE_LOOP_PHILOX64 = 73,

    /* Reductions of a, which is not uniform, over the row; f64, f32, i64, i32.
     * sum: integers wrap; floats are accumulated in `type` or wider, in any
     * order that depends only on sizes, strides and the device, not on the
     * number of threads, within the error that core-conformance allows sums.
     * amax and amin: exact; NaN if an element is NaN. */
    CORE_LOOP_REDUCE_SUM = 80, /* sum.dim_IntList */
    CORE_LOOP_REDUCE_MAX = 81, /* amax */
    CORE_LOOP_REDUCE_MIN = 82  /* amin */
};

/* An instruction.  Frozen at 16 bytes. */
typedef struct core_loop_instruction {
    uint8_t opcode;    /* CORE_LOOP_… */
    uint8_t type;      /* the dtype of its value */
    uint16_t reserved; /* 0 */
    uint32_t a, b, c;
} core_loop_instruction;
CORE_STATIC_ASSERT(sizeof(core_loop_instruction) == 16,
                   "core_loop_instruction is frozen");

/* ------------------------------------------------------------ programs -- */

/* Flags of a program's operand. */
enum {
    CORE_LOOP_OPERAND_OUTPUT = 1u << 0,
    /* In every loop it is a number in the operand itself
     * (CORE_OPERAND_IMMEDIATE); other operands are in memory. */
    CORE_LOOP_OPERAND_NUMBER = 1u << 1,
    /* Its strides are 0 in the dimensions that are reduced.  Only with
     * reductions, and not with NUMBER. */
    CORE_LOOP_OPERAND_ROW = 1u << 2
};

/* What a program knows of an operand of its loops.  Frozen. */
typedef struct core_loop_operand {
    core_dtype dtype; /* one of the ten */
    uint32_t flags;   /* CORE_LOOP_OPERAND_… */
} core_loop_operand;
CORE_STATIC_ASSERT(sizeof(core_loop_operand) == 8,
                   "core_loop_operand is frozen");

/* The limits of every program. */
enum {
    CORE_LOOP_MAX_INSTRUCTIONS = 1024,
    CORE_LOOP_MAX_OPERANDS = 32,
    CORE_LOOP_MAX_NAMES = 64,
    CORE_LOOP_MAX_NAME_SIZE = 64 /* bytes */
};

/* Flags of a program. */
enum {
    CORE_LOOP_PROGRAM_REDUCES = 1u << 0 /* it has a reduction */
};

/* A loop program.  The core has checked everything that this header says about
 * it.  It is valid until the call that receives it returns. */
typedef struct core_loop_program {
    uint32_t struct_size;
    uint32_t flags; /* CORE_LOOP_PROGRAM_… */
    uint32_t ninstructions;
    uint32_t noperands; /* outputs first, as in its loops */
    uint32_t noutputs;  /* at least 1 */
    uint32_t ndim; /* if not 0, the number of dimensions of its loops, which the
                      core then has not joined or reordered */
    uint32_t nnames;
    uint32_t reserved; /* 0 */
    const core_loop_instruction *instructions;
    const core_loop_operand *operands;
    const core_string *names; /* of FUNCTION; each is used, none twice */
    uint8_t hash[32]; /* SHA-256 of the program: equal programs, equal hashes */
} core_loop_program;
CORE_STATIC_ASSERT(sizeof(core_loop_program) == 88, "core_loop_program");

/* Flags of hints. */
enum {
    /* The loops have CORE_LOOP_CONTIGUOUS: numbers aside, all operands are
     * dense.  With reductions: all but those with ROW are dense. */
    CORE_LOOP_HINT_CONTIGUOUS = 1u << 0
};

/* What is known of the loops that a kernel will run.  The kernel must compute
 * others correctly too. */
typedef struct core_loop_hints {
    uint32_t struct_size;
    uint32_t flags;    /* CORE_LOOP_HINT_… */
    uint32_t ndim;     /* 0: unknown */
    uint32_t reserved; /* 0 */
    int64_t numel;     /* 0: unknown */
    int64_t row_size;  /* 0: unknown */
} core_loop_hints;
CORE_STATIC_ASSERT(sizeof(core_loop_hints) == 32, "core_loop_hints");

/* Memory of the device.  Frozen. */
typedef struct core_loop_range {
    core_memory memory; /* the first byte */
    uint64_t bytes;
} core_loop_range;
CORE_STATIC_ASSERT(sizeof(core_loop_range) == 24, "core_loop_range is frozen");

/* A launch of a kernel.  What it points to is valid until the call returns.
 *
 * The loop has the operands of the program, in order, with the same dtypes and
 * with CORE_OPERAND_OUTPUT and CORE_OPERAND_IMMEDIATE where the program says
 * OUTPUT and NUMBER.  numel > 0.  Strides are >= 0, and 0 in any input's
 * dimension that is broadcast.  An output has strides that give its elements
 * different memory, except that an output with ROW has stride 0 in the reduced
 * dimensions.  An output's elements are exactly those of an input, at the same
 * indices, or it does not overlap that input; outputs do not overlap each
 * other.  Memory is aligned to the element. */
typedef struct core_loop_launch {
    uint32_t struct_size;
    uint32_t flags; /* CORE_CALL_DETERMINISTIC, CORE_CALL_CAPTURING */
    void *stream;   /* NULL on a synchronous device */
    const core_loop *loop;
    core_memory scratch; /* as large as scratch_size said; else NULL */
    uint64_t id; /* core_call.id: it also names the launch in stream errors */
    /* What the core has measured to be fast, or 0: the device chooses.  A
     * device may do something else.  The elements do not depend on them. */
    uint32_t tile;    /* how many elements are computed at a time */
    uint32_t threads; /* how many threads compute, at most */
    /* What the next block of rows reads first (row_block): a device may load it
     * into a cache while this kernel computes.  This kernel does not write
     * there, and its results do not depend on it. */
    const core_loop_range *ahead; /* NULL: nothing */
    uint32_t nahead;
    uint32_t reserved; /* 0 */
} core_loop_launch;
CORE_STATIC_ASSERT(sizeof(core_loop_launch) == 72, "core_loop_launch");

/* ----------------------------------------------------------- interface -- */

/* The least and the greatest size of the rows of a reduction for which the
 * promise of row_block must hold. */
enum { CORE_ROW_BLOCK_REDUCED_LEAST = 32, CORE_ROW_BLOCK_REDUCED_MOST = 65536 };

/* Flags of the interface. */
enum {
    /* Building a kernel takes so long that no call should wait for it, for
     * example because it runs a compiler.  The core then builds in the
     * background, runs the operators one by one until the kernel is built, and
     * keeps what `save` returns on disk. */
    CORE_CODEGEN_BUILDS_SLOWLY = 1u << 0
};

/* "core.codegen": kernels made of loop programs.
 *
 * Threads.  Any thread may call any function, several at once for one kernel;
 * `build` may run in the background for seconds.
 *
 * Ownership.  A kernel belongs to the core until `destroy`; each success of
 * build and load is destroyed once.  Work that was launched with it may then
 * still be waiting on a stream or be part of a graph: the plugin keeps what
 * that work needs.  After a reset of the device (core.device_reset) the core
 * does not launch older kernels again, and destroys them.
 *
 * Errors.  UNSUPPORTED from accepts, build or load says that this device runs
 * the program operator by operator, and why; it is not an error of the program.
 * Another error of build is reported once, with the same consequence.  A
 * launch that fails has enqueued nothing. */
typedef struct core_codegen_interface {
    uint32_t struct_size;
    uint16_t flags; /* CORE_CODEGEN_… */

    /* The size in KiB of a block of rows that stays in the caches next to a
     * thread, such as the second-level cache, from one launch to the next; 0:
     * the core makes no blocks of rows.  On a synchronous device the core then
     * runs several kernels on one block of rows before the next block.
     *
     * A plugin that sets it promises that a result does not depend on the
     * number of rows in the call: a row has the same bits in a call with only
     * some of the rows.  This holds for element-wise operators, kernels of loop
     * programs, softmax, log_softmax and their gradients, native_layer_norm,
     * and reductions along the innermost dimension only, of
     * CORE_ROW_BLOCK_REDUCED_LEAST to CORE_ROW_BLOCK_REDUCED_MOST elements.  It
     * also holds for bernoulli_.float on a part that begins at a multiple of
     * four elements, with the offset of that block of random numbers. */
    uint16_t row_block;

    /* Gets a text that identifies the generator: its version, and what its
     * kernels depend on, such as instruction set and driver.  A saved kernel is
     * loaded only where the text is the same.  It lives as long as the
     * device. */
    core_status (*identity)(void *device, core_string *out_text);

    /* Checks whether the device can run a program, without building it.  It
     * depends on program and device only, and takes microseconds. */
    core_status (*accepts)(void *device, const core_loop_program *program);

    /* Builds a kernel, which is not NULL.  The hints may be NULL. */
    core_status (*build)(void *device, const core_loop_program *program,
                         const core_loop_hints *hints, void **out_kernel);

    /* Destroys a kernel that build or load returned. */
    void (*destroy)(void *device, void *kernel);

    /* Gets the number of bytes of temporary memory that a launch on this loop
     * (whose operands have no memory yet) needs; the core provides it, in the
     * order of the launch's stream.  NULL: none. */
    core_status (*scratch_size)(void *device, void *kernel,
                                const core_loop *loop, uint64_t *out_size);

    /* Enqueues the kernel on a stream, or runs it on a synchronous device. */
    core_status (*launch)(void *device, void *kernel,
                          const core_loop_launch *launch);

    /* Writes a kernel as bytes that `load` accepts in another process.  Stores
     * their number in *out_size.  If that is more than capacity, nothing is
     * written and the result is still CORE_OK; the core calls again.  The bytes
     * say which program they are of, by its hash.  UNSUPPORTED: this kernel
     * cannot be saved.  NULL, as load then is: no kernel can. */
    core_status (*save)(void *device, void *kernel, void *data,
                        uint64_t capacity, uint64_t *out_size);

    /* Makes a kernel of saved bytes.  The core has checked that they are
     * unchanged and were saved under this identity for this program; the plugin
     * checks nevertheless that the hash in them is the program's, and their
     * structure: CORRUPT otherwise, and the core builds the kernel. */
    core_status (*load)(void *device, const core_loop_program *program,
                        const void *data, uint64_t size, void **out_kernel);

    /* Calls `produce` once, which launches one other kernel of the device in
     * the calling thread, and runs the kernel on the loop.  An element of the
     * loop may be computed as soon as that other kernel has written the element
     * of its result that the loop's operand `result` has there, so that it is
     * still in a cache, or in a register.
     *
     * The loop has three dimensions: the columns, the rows and the matrices of
     * a matrix product's result, which is dense and row-major, or the
     * positions, the channels and the images of a convolution's.  Some may have
     * the size 1.  No output of the loop shares memory with what the other
     * kernel reads.  The program has no INDEX, SIZE, POSITION, random numbers
     * or reductions.
     *
     * If `produce` fails, returns its status; outputs then have any content.
     * Only on a synchronous device without scratch_size.  NULL: the core
     * launches one kernel after the other. */
    core_status (*launch_after)(void *device, void *kernel,
                                const core_loop_launch *launch, uint32_t result,
                                core_status (*produce)(void *context),
                                void *context);
} core_codegen_interface;
CORE_STATIC_ASSERT(sizeof(core_codegen_interface) == 80, "core.codegen");

#ifdef __cplusplus
}
#endif
#endif
