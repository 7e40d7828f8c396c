/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* copy_ between any two dtypes, and fill_.  Compiled per instruction set. */

#include <string.h>

#include "loop/loop.h"
#include "runtime/thread_pool.h"
#include "nontemporal.h"
#include "transpose.h"

enum { GRAIN = 65536 /* elements for one thread */ };

#define MOVE_ROWS(BITS)                                                     \
    static core_status copy_##BITS(char *out, const char *a, const char *b, \
                                   int64_t n, cpu_parameters *q,            \
                                   char *const *p)                          \
    {                                                                       \
        (void)b;                                                            \
        (void)q;                                                            \
        (void)p;                                                            \
        if (out != a)                                                       \
            memcpy(out, a, (size_t)n *((BITS) / 8));                        \
        return CORE_OK;                                                     \
    }                                                                       \
    static core_status fill_##BITS(char *out, const char *a, const char *b, \
                                   int64_t n, cpu_parameters *q,            \
                                   char *const *p)                          \
    {                                                                       \
        uint##BITS##_t *to = (uint##BITS##_t *)out;                         \
        uint##BITS##_t word = (uint##BITS##_t)q->bits;                      \
        (void)a;                                                            \
        (void)b;                                                            \
        (void)p;                                                            \
        for (int64_t k = 0; k < n; k++)                                     \
            to[k] = word;                                                   \
        return CORE_OK;                                                     \
    }
MOVE_ROWS(8)
MOVE_ROWS(16)
MOVE_ROWS(32)
MOVE_ROWS(64)
#undef MOVE_ROWS

static cpu_row row_of(uint32_t bytes, cpu_row of1, cpu_row of2, cpu_row of4,
                      cpu_row of8)
{
    return bytes == 1 ? of1 : bytes == 2 ? of2 : bytes == 4 ? of4 : of8;
}

/* ------------------------------------------------------------- kernels -- */

typedef struct conversion {
    core_dtype to_dtype, dtype;
    char *to;
    const char *from;
} conversion;

static void convert_task(void *context, int64_t begin, int64_t end)
{
    const conversion *c = context;

    cpu_convert(c->to_dtype, c->to + begin * cpu_bytes_of(c->to_dtype),
                c->dtype, c->from + begin * cpu_bytes_of(c->dtype),
                end - begin);
}

/* Copies bytes with non-temporal stores. */
static void stream_task(void *context, int64_t begin, int64_t end)
{
    const conversion *c = context;

    cpu_copy_nontemporal(c->to + begin, c->from + begin, end - begin);
    cpu_nontemporal_end();
}

static core_status copy_launch(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_loop *loop = call->loop;
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];
    uint32_t bytes = cpu_bytes_of(to->dtype);
    cpu_elementwise self = {.types = {(uint8_t)to->dtype, (uint8_t)to->dtype},
                            .grain = GRAIN};
    int dense = (loop->flags & CORE_LOOP_CONTIGUOUS) &&
                !(from->flags & CORE_OPERAND_IMMEDIATE);

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    if (dense && to->dtype == from->dtype && loop->numel <= 4096) {
        char *target = cpu_address(to->memory), *source;

        source = cpu_address(from->memory);
        if (target != source)
            memcpy(target, source, (size_t)loop->numel * bytes);
        return CORE_OK;
    }
    if (dense) {
        conversion c = {to->dtype, from->dtype, cpu_address(to->memory),
                        cpu_address(from->memory)};

        if (to->dtype != from->dtype) {
            cpu_parallel_for(loop->numel, GRAIN, convert_task, &c);
            return CORE_OK;
        }
        if (c.to != c.from &&
            cpu_writes_nontemporal(c.to, loop->numel * bytes)) {
            cpu_parallel_for(loop->numel * bytes, 4 * GRAIN, stream_task, &c);
            return CORE_OK;
        }
    }
    if (to->dtype == from->dtype && !(from->flags & CORE_OPERAND_IMMEDIATE) &&
        (CPU_NAME(cpu_transpose)(loop, bytes) || cpu_short_rows(loop, bytes)))
        return CORE_OK;
    return cpu_loop_run(call, &self,
                        row_of(bytes, copy_8, copy_16, copy_32, copy_64), NULL);
}

static core_status fill(core_call *call, cpu_parameters *parameters)
{
    const core_loop *loop = call->loop;
    const core_operand *to = &loop->operands[0];
    static const cpu_elementwise self = {.grain = GRAIN};
    cpu_row row =
        row_of(cpu_bytes_of(to->dtype), fill_8, fill_16, fill_32, fill_64);

    if (!(loop->flags & CORE_LOOP_CONTIGUOUS) || loop->numel > GRAIN)
        return cpu_loop_run(call, &self, row, parameters);
    return row(cpu_address(to->memory), NULL, NULL, loop->numel, parameters,
               NULL);
}

static core_status fill_launch(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    cpu_parameters parameters;

    (void)results;
    (void)nresults;
    if (nargs < 2)
        return cpu_error(CORE_ERROR_INTERNAL, "fill_ without a value");
    parameters.bits = cpu_scalar_bits(&args[1], call->loop->operands[0].dtype);
    return fill(call, &parameters);
}

static core_status zero_launch(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    cpu_parameters parameters = {.bits = 0};

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return fill(call, &parameters);
}

#define ALL                                                   \
    (CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |  \
     CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16) | \
     CORE_DTYPE_MASK(CORE_I64) | CORE_DTYPE_MASK(CORE_I32) |  \
     CORE_DTYPE_MASK(CORE_I16) | CORE_DTYPE_MASK(CORE_I8) |   \
     CORE_DTYPE_MASK(CORE_U8) | CORE_DTYPE_MASK(CORE_BOOL) |  \
     CORE_DTYPE_MASK(CORE_F8E4M3) | CORE_DTYPE_MASK(CORE_F8E5M2))

static const cpu_kernel kernels[] = {
    {"copy_", copy_launch, NULL, {ALL, ALL}, 0},
    {"fill_.Scalar", fill_launch, NULL, {ALL}, 0},
    {"zero_", zero_launch, NULL, {ALL}, 0},
};

extern const cpu_kernel_table CPU_NAME(cpu_copy_kernels);
const cpu_kernel_table CPU_NAME(cpu_copy_kernels) = {
    kernels, sizeof(kernels) / sizeof(kernels[0])};
