/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elementwise.c: the host side of all element-wise operators.  gen_kernels.py
 * writes their table from the expressions of the CPU backend. */

#include <gpu/host/host.h>

#include <math.h>

#include <expressions/number.h>

/* What selects a variant of a kernel; the choices are the CPU's. */
enum {
    CHOICE_NONE,
    CHOICE_ALPHA,    /* alpha is 1; any other alpha */
    CHOICE_ROUNDING, /* none; "trunc"; "floor" */
    CHOICE_TANH,     /* approximate is "none"; "tanh" */
    CHOICE_CLAMP,    /* both bounds; lower; upper */
    CHOICE_POWER,    /* any exponent; 2; 3; 0.5; -1; -2; -0.5 */
    CHOICE_BITS,     /* one; parameters.bits is args[argument[0]] */
    CHOICE_BOUND,    /* one; parameter 0 is converted to the input's dtype */
    CHOICE_FINITE    /* one; 1 and 2 are clamped to that dtype's range */
};

typedef struct entry {
    const char *name, *kernel, *family;
    uint8_t choice, word, operands, nparameters;
    uint8_t types[GPU_OPERANDS]; /* 0: any dtype of `word` bytes */
    uint8_t argument[GPU_PARAMETERS];
    double otherwise[GPU_PARAMETERS];
} entry;

#include <elementwise_table.h>

enum { ENTRIES = sizeof entries / sizeof *entries };

static int text_is(const core_value *value, const char *text)
{
    return value->tag == CORE_VALUE_STRING && value->count == strlen(text) &&
           memcmp(value->u.string, text, value->count) == 0;
}

static int choose_rounding(const core_value *mode)
{
    if (mode->tag == CORE_VALUE_NONE)
        return 0;
    if (text_is(mode, "trunc"))
        return 1;
    return text_is(mode, "floor") ? 2 : -1;
}

static int choose_tanh(const core_value *args, uint32_t nargs)
{
    for (uint32_t k = 0; k < nargs; k++) {
        if (text_is(&args[k], "tanh"))
            return 1;
        if (args[k].tag == CORE_VALUE_STRING && !text_is(&args[k], "none"))
            return -1;
    }
    return 0;
}

/* Specialised only for a constant exponent and a floating-point base. */
static int choose_power(const core_loop *loop)
{
    static const double common[] = {2, 3, 0.5, -1, -2, -0.5};
    const core_operand *exponent = &loop->operands[2];
    double value = 0;
    float single;

    if (!(exponent->flags & CORE_OPERAND_IMMEDIATE))
        return 0;
    if (exponent->dtype == CORE_F64) {
        memcpy(&value, &exponent->immediate, 8);
    } else if (exponent->dtype == CORE_F32) {
        memcpy(&single, &exponent->immediate, 4);
        value = (double)single;
    }
    for (int k = 0; k < 6; k++)
        if (value == common[k])
            return k + 1;
    return 0;
}

static int choose(const entry *self, const core_call *call,
                  const core_value *args, uint32_t nargs)
{
    switch (self->choice) {
    case CHOICE_ALPHA:
        return nargs > 2 && core_sdk_double(&args[2], 1) != 1;
    case CHOICE_ROUNDING:
        return nargs > 2 ? choose_rounding(&args[2]) : 0;
    case CHOICE_TANH:
        return choose_tanh(args, nargs);
    case CHOICE_CLAMP:
        if (call->loop->noperands == 4)
            return 0;
        return nargs > 1 && args[1].tag != CORE_VALUE_NONE ? 1 : 2;
    case CHOICE_POWER:
        return choose_power(call->loop);
    default:
        return 0;
    }
}

/* The value of the bits of an f16 or bf16. */
static double widened(uint64_t bits, core_dtype dtype)
{
    int exponent = (int)(bits >> 10 & 31), sign = (int)(bits >> 15 & 1);
    double fraction = (double)(bits & 1023) / 1024;
    uint32_t wide = (uint32_t)bits << 16;
    float number;

    if (dtype == CORE_BF16) {
        memcpy(&number, &wide, 4);
        return (double)number;
    }
    fraction = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
               : exponent == 0 ? ldexp(fraction, -14)
                               : ldexp(1 + fraction, exponent - 15);
    return sign ? -fraction : fraction;
}

/* The nearest finite number of an f16 or bf16. */
static double within(core_dtype dtype, double value)
{
    double largest = dtype == CORE_F16    ? 65504.0
                     : dtype == CORE_BF16 ? 0x1.fep127
                                          : (double)INFINITY;

    return value > largest ? largest : value < -largest ? -largest : value;
}

static void set_parameters(gpu_parameters *q, const entry *self,
                           const core_call *call, const core_value *args,
                           uint32_t nargs)
{
    memset(q, 0, sizeof *q);
    for (uint32_t k = 0; k < self->nparameters; k++) {
        uint32_t from = self->argument[k];

        q->d[k] = self->otherwise[k];
        q->i[k] = math_i64_nearest(self->otherwise[k]);
        if (from < nargs) {
            q->d[k] = core_sdk_double(&args[from], q->d[k]);
            q->i[k] = core_sdk_int(&args[from], q->i[k]);
        }
    }
    if (self->choice == CHOICE_FINITE)
        for (int k = 1; k < 3; k++)
            q->d[k] = within(call->loop->operands[0].dtype, q->d[k]);
    if (self->argument[0] >= nargs)
        return;
    if (self->choice == CHOICE_BITS) {
        q->bits = gpu_scalar_bits(&args[self->argument[0]],
                                  call->loop->operands[0].dtype);
    } else if (self->choice == CHOICE_BOUND) {
        /* An element that is as close to a bound as the dtype can express
         * equals it. */
        core_dtype dtype = call->loop->operands[1].dtype;

        if (dtype == CORE_F16 || dtype == CORE_BF16)
            q->d[0] = widened(gpu_scalar_bits(&args[self->argument[0]], dtype),
                              dtype);
    }
}

/* ------------------------------------------------------------ launching -- */

typedef struct run {
    core_call *call;
    const entry *self;
    char kernel[GPU_NAME]; /* has space for the suffix of its form */
    size_t length;
    gpu_parameters parameters;
} run;

static core_status launch_dense(run *r, const core_loop *loop)
{
    gpu_dense p = {.count = (uint64_t)loop->numel,
                   .to = gpu_address(loop->operands[0].memory),
                   .q = r->parameters,
                   .error = gpu_stream_of(r->call)->error,
                   .call = (int64_t)r->call->id};
    uintptr_t all = (uintptr_t)p.to;

    for (uint32_t k = 1; k < loop->noperands; k++) {
        const core_operand *operand = &loop->operands[k];

        p.number[k - 1] = operand->immediate;
        if (operand->flags & CORE_OPERAND_IMMEDIATE)
            continue;
        p.from[k - 1] = gpu_address(operand->memory);
        all |= (uintptr_t)p.from[k - 1];
    }
    p.vectors = all % 16 == 0;
    memcpy(r->kernel + r->length, "_d", 3);
    return gpu_launch(r->call, r->self->family, r->kernel,
                      gpu_spread(gpu_stream_of(r->call)->device, p.count, 4),
                      &p, sizeof p);
}

/* Along dimension 0 every operand is dense or constant, and the dimension has
 * at least as many elements as one vector load. */
static bool has_rows(const core_loop *loop)
{
    if (loop->ndim == 0 || loop->sizes[0] < GPU_ROW)
        return false;
    for (uint32_t k = 0; k < loop->noperands; k++) {
        const core_operand *operand = &loop->operands[k];
        int64_t stride = operand->strides[0];

        if (operand->flags & CORE_OPERAND_IMMEDIATE)
            continue;
        if (stride != core_sdk_itemsize(operand->dtype) &&
            (k < loop->noutputs || stride != 0))
            return false;
    }
    return true;
}

/* The rows of this operand are adjacent and start at a multiple of 16 bytes. */
static bool is_flat(const core_loop *loop, const core_operand *operand)
{
    int64_t next = core_sdk_itemsize(operand->dtype);

    if (operand->flags & CORE_OPERAND_IMMEDIATE ||
        (uintptr_t)gpu_address(operand->memory) % 16 != 0)
        return false;
    for (uint32_t d = 0; d < loop->ndim; d++) {
        if (operand->strides[d] != next)
            return false;
        next *= loop->sizes[d];
    }
    return true;
}

static core_status launch_strided(const core_loop *loop, void *context)
{
    run *r = context;
    gpu_strided p;

    memset(&p, 0, sizeof p);
    p.count = (uint32_t)loop->numel;
    p.ndim = loop->ndim;
    p.q = r->parameters;
    p.error = gpu_stream_of(r->call)->error;
    p.call = (int64_t)r->call->id;
    for (uint32_t d = 0; d < loop->ndim; d++)
        p.sizes[d] = gpu_divide_by((uint32_t)loop->sizes[d]);
    for (uint32_t k = 0; k < loop->noperands; k++) {
        const core_operand *operand = &loop->operands[k];

        p.number[k] = operand->immediate;
        if (operand->flags & CORE_OPERAND_IMMEDIATE)
            continue;
        p.data[k] = gpu_address(operand->memory);
        for (uint32_t d = 0; d < loop->ndim; d++)
            p.strides[k][d] = operand->strides[d];
        p.flat |= (uint32_t)is_flat(loop, operand) << k;
    }
    memcpy(r->kernel + r->length, has_rows(loop) ? "_r" : "_s", 3);
    return gpu_launch(r->call, r->self->family, r->kernel,
                      gpu_spread(gpu_stream_of(r->call)->device, p.count, 4),
                      &p, sizeof p);
}

static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    static const char digits[] = "0123456789";
    run r = {.call = call, .self = call->user};
    const core_loop *loop = call->loop;
    int variant = choose(r.self, call, args, nargs);

    (void)results;
    (void)nresults;
    if (variant < 0)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "%s: the mode is not supported", r.self->name);
    if (loop->noperands > GPU_OPERANDS)
        return gpu_refuse(CORE_ERROR_INTERNAL,
                          "%s: %u operands; at most %d are supported",
                          r.self->name, loop->noperands, GPU_OPERANDS);
    if (loop->numel == 0)
        return CORE_OK;
    set_parameters(&r.parameters, r.self, call, args, nargs);
    r.length = strlen(r.self->kernel);
    memcpy(r.kernel, r.self->kernel, r.length);
    if (variant > 0) {
        r.kernel[r.length++] = '_';
        r.kernel[r.length++] = digits[variant];
    }
    if (loop->flags & CORE_LOOP_CONTIGUOUS)
        return launch_dense(&r, loop);
    return gpu_loop_pieces(loop, launch_strided, &r);
}

/* -------------------------------------------------------- registration -- */

static uint32_t words(uint32_t bytes)
{
    uint32_t mask = 0;

    for (core_dtype dtype = CORE_F64; dtype <= CORE_BOOL; dtype++)
        if (core_sdk_itemsize(dtype) == bytes)
            mask |= CORE_DTYPE_MASK(dtype);
    return mask;
}

core_status gpu_register_elementwise(core_registry *registry)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < ENTRIES && status == CORE_OK; i++) {
        const entry *e = &entries[i];
        gpu_row row = {e->name, launch, (void *)(uintptr_t)e, {0}, 0, NULL};

        for (uint32_t k = 0; k < e->operands; k++)
            row.signature[k] = e->types[k] == 0 ? words(e->word)
                                                : CORE_DTYPE_MASK(e->types[k]);
        status = gpu_register(registry, &row, 1);
    }
    return status;
}
