/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* Step 3: element-wise operators, one function for a whole family. */

#include "device.h"

#if STEP >= 3
#include <math.h>

/* ----------------------------------------------------------- launching -- */

static core_status launch_run(void *context)
{
    launch *l = context;

    return l->compute(l->call, l->args, l->nargs, l->results, l->nresults);
}

static void launch_drop(void *context)
{
    launch *l = context;

    host->call_drop(l->call);
    if (l->release != NULL)
        l->release(l->held);
    free(l);
}

/* Everything that a call points to is invalid after the kernel returns, so work
 * that runs later needs a copy. */
core_status launch_later(core_function compute, core_call *call,
                         const core_value *args, uint32_t nargs,
                         core_value *results, uint32_t nresults,
                         void (*release)(void *held), void *held)
{
    launch *l = calloc(1, sizeof *l);
    core_status status;

    if (l == NULL && release != NULL)
        release(held);
    if (l == NULL)
        return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                              "no host memory for a launch");
    l->compute = compute;
    l->nargs = nargs;
    l->nresults = nresults;
    l->release = release;
    l->held = held;
    status = host->call_copy(call, args, nargs, results, nresults, &l->call,
                             &l->args, &l->results);
    if (status != CORE_OK) {
        if (release != NULL)
            release(held);
        free(l);
        return status;
    }
    return stream_submit(
        call->stream,
        (job){.run = launch_run, .drop = launch_drop, .context = l});
}

/* ---------------------------------------------------------- the family -- */

enum { NEG, EXP, SQRT, TANH, ADD, SUB, MUL, DIV };

typedef struct operation {
    int which;
    double alpha;
} operation;

static double apply(const operation *op, double a, double b)
{
    switch (op->which) {
    case NEG:
        return -a;
    case EXP:
        return exp(a);
    case SQRT:
        return sqrt(a);
    case TANH:
        return tanh(a);
    case ADD:
        return a + op->alpha * b;
    case SUB:
        return a - op->alpha * b;
    case MUL:
        return a * b;
    default:
        return a / b;
    }
}

/* One run along the innermost dimension, for one element type. */
#define ROW(type)                                                 \
    static void row_##type(void *context, char *const *data,      \
                           const int64_t *strides, int64_t count) \
    {                                                             \
        const operation *op = context;                            \
                                                                  \
        for (int64_t i = 0; i < count; i++) {                     \
            type a, b = 0;                                        \
                                                                  \
            memcpy(&a, data[1] + i * strides[1], sizeof a);       \
            if (op->which >= ADD)                                 \
                memcpy(&b, data[2] + i * strides[2], sizeof b);   \
            a = (type)apply(op, a, b);                            \
            memcpy(data[0] + i * strides[0], &a, sizeof a);       \
        }                                                         \
    }
ROW(float)
ROW(double)

/* From handles to addresses; immediates have none. */
static core_status walk(const core_call *call, core_sdk_row row, void *context)
{
    core_operand operands[3];
    core_loop loop = *call->loop;

    for (uint32_t k = 0; k < loop.noperands && k < 3; k++) {
        operands[k] = loop.operands[k];
        if (!(operands[k].flags & CORE_OPERAND_IMMEDIATE)) {
            operands[k].memory.handle = address(operands[k].memory);
            operands[k].memory.offset = 0;
        }
    }
    loop.operands = operands;
    return core_sdk_loop_rows(&loop, row, context);
}

static core_status compute(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    operation op = {(int)(intptr_t)call->user, 1};

    (void)results;
    (void)nresults;
    if ((op.which == ADD || op.which == SUB) && nargs > 2)
        op.alpha = core_sdk_double(&args[2], 1);
    return walk(call,
                call->loop->operands[0].dtype == CORE_F32 ? row_float
                                                          : row_double,
                &op);
}

static core_status launch_family(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    return launch_later(compute, call, args, nargs, results, nresults, NULL,
                        NULL);
}

#if STEP >= 4
/* Copies between layouts of one dtype: the core uses them to meet
 * requirements. */
static void row_bytes(void *context, char *const *data, const int64_t *strides,
                      int64_t count)
{
    const uint32_t *size = context;

    for (int64_t i = 0; i < count; i++)
        memcpy(data[0] + i * strides[0], data[1] + i * strides[1], *size);
}

static core_status compute_copy(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    uint32_t size = core_sdk_itemsize(call->loop->operands[0].dtype);

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return walk(call, row_bytes, &size);
}

static core_status launch_copy(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    return launch_later(compute_copy, call, args, nargs, results, nresults,
                        NULL, NULL);
}

static core_status copies_register(core_registry *registry)
{
    static const core_sdk_member copy[] = {{"copy_", 1, 0}};
    uint32_t dtypes = 0;

    for (core_dtype dtype = CORE_F64; dtype <= CORE_BOOL; dtype++)
        dtypes |= CORE_DTYPE_MASK(dtype);
    return core_sdk_register_family(host, registry, core_sdk_string(NAME),
                                    launch_copy, dtypes, 0, copy, 1);
}
#endif

core_status family_register(core_registry *registry)
{
    static const core_sdk_member members[] = {
        {"neg", 1, NEG},        {"exp", 1, EXP},        {"sqrt", 1, SQRT},
        {"tanh", 1, TANH},      {"add.Tensor", 2, ADD}, {"sub.Tensor", 2, SUB},
        {"mul.Tensor", 2, MUL}, {"div.Tensor", 2, DIV}};

    core_status status = core_sdk_register_family(
        host, registry, core_sdk_string(NAME), launch_family,
        CORE_DTYPE_MASK(CORE_F32) | CORE_DTYPE_MASK(CORE_F64), 0, members,
        (uint32_t)(sizeof members / sizeof *members));

#if STEP >= 4
    if (status == CORE_OK)
        status = copies_register(registry);
#endif
    return status;
}
#endif
