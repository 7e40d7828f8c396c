/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elementwise.c: one launch function for every row of the table that
 * gen_operations.py generates.  The kernels for a row's expression are composed
 * when it is first used with a dtype. */

#include "elementwise.h"
#include "opencl_kernels.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "opencl_operations.h"

enum { OPERATIONS = sizeof operations / sizeof *operations };

static opencl_source *sources;

/* -------------------------------------------------------------- source -- */

typedef struct writer {
    char *to;
    size_t used, size;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w,
                                                      const char *format, ...)
{
    va_list arguments;
    size_t left = w->used < w->size ? w->size - w->used : 0;
    int n;

    va_start(arguments, format);
    n = vsnprintf(left ? w->to + w->used : NULL, left, format, arguments);
    va_end(arguments);
    if (n > 0)
        w->used += (size_t)n;
}

static bool by_size(const operation *op)
{
    return (op->flags & (SELECTS | MASKS)) != 0;
}

/* The index of the operand whose type is T. */
static uint32_t typed_by(const operation *op)
{
    return op->flags & SELECTS ? 2 : 1;
}

static size_t put_head(const opencl_source *source, char *to, size_t size)
{
    const operation *op = source->user;
    writer w = {to, 0, size};
    uint32_t t = typed_by(op);

    /* T is not known here, so the preprocessor chooses. */
    put(&w, "typedef C%u T;\n#define OPERANDS %u\n", t, op->inputs + 1);
    if (by_size(op))
        put(&w, "#define FLOAT 0\n#define EXPRESSION %s\n", op->floats);
    else
        put(&w,
            "#define IDT ID%u\n#if ID%u <= BF16n\n#define FLOAT 1\n"
            "#define EXPRESSION %s\n#elif ID%u == BOOLn\n#define FLOAT 0\n"
            "#define EXPRESSION %s\n#else\n#define FLOAT 0\n"
            "#define EXPRESSION %s\n#endif\n",
            t, t, op->floats ? op->floats : "0", t,
            op->boolean ? op->boolean : "0", op->integers ? op->integers : "0");
    put(&w, "%s", opencl_elementwise_cl);
    if (op->flags & SPECIAL)
        put(&w, "%s", opencl_special_cl);
    put(&w, "static C0 compute(");
    for (uint32_t k = 1; k <= op->inputs; k++)
        put(&w, "C%u %c, ", k, (char)('a' + k - 1));
    put(&w, "T p0, T p1, T p2, T p3, int *failed)\n"
            "{\n    int bad = 0;\n    C0 value = (C0)(EXPRESSION);\n"
            "    if (bad)\n        *failed = 1;\n    return value;\n}\n");
    return w.used;
}

/* dense: a mask of inputs that are immediates; -1: any loop. */
static void put_kernel(writer *w, const operation *op, int dense)
{
    uint32_t n = op->inputs;

    if (dense < 0)
        put(w, "kernel void spaced(");
    else
        put(w, "kernel void dense_%d(", dense);
    put(w, "global uchar *to, ulong to_at");
    for (uint32_t k = 1; k <= n; k++)
        put(w, ", const global uchar *in%u, ulong in%u_at, ulong now%u", k, k,
            k);
    put(w, ", T p0, T p1, T p2, T p3, global fault *errors, long call, "
           "loop l)\n{\n"
           "    ulong at = get_global_id(0);\n    int failed = 0;\n");
    for (uint32_t k = 1; k <= n; k++)
        put(w, "    C%u v%u;\n", k, k);
    put(w, "    if (at >= l.numel)\n        return;\n");
    if (dense < 0)
        put(w, "    long o[OPERANDS] = {0};\n    strided(&l, at, o);\n");
    for (uint32_t k = 1; k <= n; k++) {
        if (dense >= 0 && (dense >> (k - 1) & 1))
            put(w, "    v%u = GET%u(*(T%u *)&now%u);\n", k, k, k, k);
        else if (dense >= 0)
            put(w, "    v%u = LOAD(%u, in%u, in%u_at, at);\n", k, k, k, k);
        else
            put(w,
                "    if (l.immediates & %uu)\n"
                "        v%u = GET%u(*(T%u *)&now%u);\n"
                "    else\n        v%u = LOAD(%u, in%u, in%u_at + o[%u], 0);\n",
                1u << k, k, k, k, k, k, k, k, k, k);
    }
    put(w, dense < 0 ? "    STORE(0, to, to_at + o[0], 0, compute("
                     : "    STORE(0, to, to_at, at, compute(");
    for (uint32_t k = 1; k <= n; k++)
        put(w, "v%u, ", k);
    put(w, "p0, p1, p2, p3, &failed));\n");
    if (op->flags & MAY_FAIL)
        put(w, "    if (failed)\n        fail(errors, 1, call, 0);\n");
    put(w, "}\n");
}

static size_t compose(const opencl_source *source, char *to, size_t size)
{
    const operation *op = source->user;
    size_t used = put_head(source, to, size);
    writer w = {to, used, size};

    put_kernel(&w, op, -1);
    put_kernel(&w, op, 0);
    if (op->inputs == 2) {
        put_kernel(&w, op, 1);
        put_kernel(&w, op, 2);
    }
    return w.used;
}

/* -------------------------------------------------------------- launch -- */

core_status opencl_loop_fill(const core_loop *loop, opencl_loop *out)
{
    memset(out, 0, sizeof *out);
    if (loop->ndim > OPENCL_MAX_NDIM || loop->noperands > 4 ||
        loop->numel > INT64_C(0xffffffff))
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "a loop of %u dimensions, %u operands and %lld "
                             "elements; at most %u, 4 and 2^32 - 1",
                             loop->ndim, loop->noperands,
                             (long long)loop->numel, OPENCL_MAX_NDIM);
    out->numel = (cl_ulong)loop->numel;
    out->ndim = loop->ndim;
    for (uint32_t d = 0; d < loop->ndim; d++)
        out->sizes[d] = (cl_uint)loop->sizes[d];
    for (uint32_t k = 0; k < loop->noperands; k++) {
        if (loop->operands[k].flags & CORE_OPERAND_IMMEDIATE) {
            out->immediates |= 1u << k;
            continue;
        }
        for (uint32_t d = 0; d < loop->ndim; d++)
            out->strides[k][d] = loop->operands[k].strides[d];
    }
    return CORE_OK;
}

static double read_parameter(const parameter *p, const core_value *value)
{
    switch (p->how) {
    case READ_IS_TANH:
        return value->tag == CORE_VALUE_STRING && value->count == 4 &&
               memcmp(value->u.string, "tanh", 4) == 0;
    case READ_ROUNDING:
        if (value->tag != CORE_VALUE_STRING)
            return 0;
        return value->u.string[0] == 't' ? 1 : 2;
    case READ_IS_BELOW_0:
        return core_sdk_double(value, 0) < 0;
    case READ_POWER_OF_10:
        return pow(10, fabs(core_sdk_double(value, 0)));
    case READ_IS_PRESENT:
        return value->tag != CORE_VALUE_NONE;
    default:
        return core_sdk_double(value, p->default_value);
    }
}

/* The least and greatest integer of a type, where a bound is absent. */
static int64_t whole_of(double number)
{
    if (number >= 9223372036854775808.0)
        return INT64_MAX;
    if (number < -9223372036854775808.0 || number != number)
        return INT64_MIN;
    return (int64_t)number;
}

static int64_t limited(int64_t number, core_dtype dtype, bool clip)
{
    static const struct {
        int64_t least, most;
    } limits[CORE_DTYPE_LIMIT] = {
        [CORE_I32] = {INT32_MIN, INT32_MAX},
        [CORE_I16] = {INT16_MIN, INT16_MAX},
        [CORE_I8] = {INT8_MIN, INT8_MAX},
        [CORE_U8] = {0, UINT8_MAX},
        [CORE_BOOL] = {0, 1},
    };

    if (!clip || limits[dtype].most == 0)
        return number;
    return number < limits[dtype].least  ? limits[dtype].least
           : number > limits[dtype].most ? limits[dtype].most
                                         : number;
}

static uint16_t half_bits(double number, core_dtype dtype);

/* Returns the number as the first bytes of an element. */
static uint64_t bits_of(const core_value *value, double number,
                        core_dtype dtype, bool clip)
{
    uint64_t bits = 0;
    float narrow = (float)number;
    int64_t integer;

    if (dtype == CORE_F64) {
        memcpy(&bits, &number, 8);
    } else if (dtype == CORE_F32) {
        memcpy(&bits, &narrow, 4);
    } else if (dtype == CORE_F16 || dtype == CORE_BF16) {
        bits = half_bits(number, dtype);
    } else {
        integer = value != NULL && (value->tag == CORE_VALUE_INT ||
                                    value->tag == CORE_VALUE_BOOL)
                      ? value->u.i
                      : whole_of(number);
        if (dtype == CORE_BOOL && !clip)
            integer = number != 0;
        integer = limited(integer, dtype, clip);
        memcpy(&bits, &integer, 8);
    }
    return bits;
}

uint64_t opencl_scalar_bits(const core_value *value, core_dtype dtype)
{
    return bits_of(value, core_sdk_double(value, 0), dtype, false);
}

/* Rounds to nearest, ties to even. */
static uint16_t half_bits(double number, core_dtype dtype)
{
    float narrow = (float)number, moved;
    uint32_t bits, sign;

    memcpy(&bits, &narrow, 4);
    if (number != number)
        return dtype == CORE_F16 ? 0x7e00 : 0x7fc0;
    if (dtype == CORE_BF16)
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    sign = bits >> 16 & 0x8000;
    bits &= UINT32_C(0x7fffffff);
    if (bits >= UINT32_C(0x477ff000))
        return (uint16_t)(sign | 0x7c00);
    if (bits >= UINT32_C(0x38800000))
        return (uint16_t)(sign | (bits + (bits >> 13 & 1) + 0xfff -
                                  UINT32_C(0x38000000)) >>
                                     13);
    /* Adding it to 0.5 puts the last place of a subnormal at the end. */
    memcpy(&moved, &bits, 4);
    moved += 0.5f;
    memcpy(&bits, &moved, 4);
    return (uint16_t)(sign | (bits - UINT32_C(0x3f000000)));
}

static void put_parameters(opencl_launch *l, const operation *op,
                           const core_value *args, uint32_t nargs,
                           core_dtype dtype, core_dtype computed)
{
    bool clip = (strncmp(op->name, "clamp", 5) == 0 && op->inputs == 1) ||
                strcmp(op->name, "hardtanh") == 0;

    for (uint32_t i = 0; i < 4; i++) {
        const parameter *p = &op->parameters[i];
        const core_value *value = NULL;
        double number = p->default_value;
        uint64_t bits;

        if (p->argument > 0 && (uint32_t)p->argument <= nargs) {
            value = &args[p->argument - 1];
            number = read_parameter(p, value);
        }
        if (p->how != READ_NUMBER)
            value = NULL;
        bits = bits_of(value, number, dtype, clip);
        opencl_bytes(l, &bits, core_sdk_itemsize(computed));
    }
}

static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    static const char *const dense[] = {"dense_0", "dense_1", "dense_2"};
    const opencl_source *source = call->user;
    const core_loop *loop = call->loop;
    const operation *op = source->user;
    const char *function = "spaced";
    core_dtype types[OPENCL_TYPES] = {0}, dtype, computed;
    opencl_launch l;
    opencl_loop shape;
    core_status status = opencl_loop_fill(loop, &shape);

    (void)results;
    (void)nresults;
    if (status != CORE_OK || loop->numel == 0)
        return status;
    if ((op->flags & OR_NEXT) && loop->noperands <= op->inputs)
        op = (++source)->user;
    for (uint32_t k = 0; k < loop->noperands; k++)
        types[k] = by_size(op) ? opencl_bits_of(loop->operands[k].dtype)
                               : loop->operands[k].dtype;
    dtype = loop->operands[typed_by(op)].dtype;
    computed = types[typed_by(op)];
    if ((loop->flags & CORE_LOOP_CONTIGUOUS) &&
        (shape.immediates == 0 || (op->inputs == 2 && shape.immediates <= 4)))
        function = dense[shape.immediates >> 1];
    if (opencl_is_half(computed))
        dtype = computed = CORE_F32; /* the type of computation */
    l = opencl_begin(call, source, types, loop->noperands, function);
    opencl_buffer(&l, loop->operands[0].memory);
    for (uint32_t k = 1; k <= op->inputs; k++) {
        const core_operand *operand = &loop->operands[k];

        if (operand->flags & CORE_OPERAND_IMMEDIATE)
            opencl_null_buffer(&l);
        else
            opencl_buffer(&l, operand->memory);
        opencl_bytes(&l, &operand->immediate, 8);
    }
    put_parameters(&l, op, args, nargs, dtype, computed);
    if (op->flags & MAY_FAIL)
        opencl_error_args(&l, call->id);
    else
        opencl_no_error_args(&l);
    opencl_bytes(&l, &shape, sizeof shape);
    return opencl_run(&l, (uint64_t)loop->numel, 2 * OPENCL_GROUP);
}

/* -------------------------------------------------------- registration -- */

static const uint32_t size_classes[4] = {
    CORE_DTYPE_MASK(CORE_I8) | CORE_DTYPE_MASK(CORE_U8) |
        CORE_DTYPE_MASK(CORE_BOOL),
    CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16) |
        CORE_DTYPE_MASK(CORE_I16),
    CORE_DTYPE_MASK(CORE_F32) | CORE_DTYPE_MASK(CORE_I32),
    CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_I64)};

const operation *opencl_operation_find(core_string name)
{
    for (uint32_t i = 0; i < OPERATIONS; i++)
        if (core_sdk_string_equal(name, operations[i].name))
            return &operations[i];
    return NULL;
}

const char *opencl_expression_for(const operation *op, core_dtype dtype)
{
    if (opencl_is_half(dtype) && (op->flags & NO_HALVES))
        return NULL;
    if (dtype <= CORE_BF16)
        return op->floats;
    return dtype == CORE_BOOL ? op->boolean : op->integers;
}

static core_status register_special(core_registry *registry,
                                    const opencl_row *row)
{
    core_kernel kernel = {.struct_size = sizeof kernel,
                          .name = core_sdk_string(row->name),
                          .launch = row->launch,
                          .user = row->user,
                          .max_ndim = OPENCL_MAX_NDIM,
                          .supports = opencl_needs_f64};

    memcpy(kernel.signature, row->signature, sizeof kernel.signature);
    return opencl_register_kernel(registry, kernel);
}

static core_status register_one(core_registry *registry, const operation *op,
                                opencl_source *source)
{
    core_status status = CORE_OK;
    uint32_t bools = CORE_DTYPE_MASK(CORE_BOOL);

    for (core_dtype d = CORE_F64; d <= CORE_BOOL && status == CORE_OK; d++) {
        opencl_row row = {op->name, launch, source, {0}, 0};
        uint32_t mask = CORE_DTYPE_MASK(d);

        if (by_size(op))
            for (uint32_t k = 0; k < 4; k++)
                if (size_classes[k] & mask)
                    mask &= size_classes[k];
        if (!by_size(op) && opencl_expression_for(op, d) == NULL)
            continue;
        if (strchr(op->name, '/') != NULL)
            break; /* handled by the previous row */
        for (uint32_t k = 0; k <= op->inputs; k++)
            row.signature[k] = mask;
        if (op->flags & TO_BOOL)
            row.signature[0] = bools;
        if (op->flags & SELECTS)
            row.signature[1] = bools;
        if (op->flags & MASKS)
            row.signature[2] = bools;
        status = op->flags & SPECIAL
                     ? register_special(registry, &row)
                     : opencl_register(registry, &row, 1, OPENCL_MAX_NDIM);
    }
    return status;
}

core_status opencl_register_elementwise(core_registry *registry)
{
    core_status status = CORE_OK;

    if (sources == NULL)
        sources = calloc(OPERATIONS, sizeof *sources);
    if (sources == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for the table of operators");
    for (uint32_t i = 0; i < OPERATIONS && status == CORE_OK; i++) {
        sources[i].name = operations[i].name;
        sources[i].text = "";
        sources[i].compose = compose;
        sources[i].user = &operations[i];
        status = register_one(registry, &operations[i], &sources[i]);
    }
    return status;
}
