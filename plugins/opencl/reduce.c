/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Sums, products, extremes, tests, norms and variance.  Few outputs of many
 * elements: a work group for each; otherwise a work item for each. */

#include "opencl.h"
#include "opencl_kernels.h"

#include <math.h>
#include <stdio.h>

enum { PLAIN, FIND_BOTH, FIND_INDEX };
enum { BY_OUTPUT, BY_INPUT };

typedef struct reduction {
    const char *name;
    const char *initial, *map, *combine, *finish;
    const char *least; /* INITIAL for integers; NULL: initial */
    int indexed, moments, by;
    int argument; /* of the number, counted from 1; 0: none */
    double default_value;
    uint32_t inputs; /* mask of dtypes */
    const char *alias;
} reduction;

/* Must match kernels/reduce.cl. */
typedef struct shape {
    cl_ulong outputs, count;
    cl_uint nkept, nreduced, noutputs, immediates;
    cl_uint kept[OPENCL_MAX_NDIM], reduced[OPENCL_MAX_NDIM];
    cl_long to[2][OPENCL_MAX_NDIM], from[OPENCL_MAX_NDIM],
        along[OPENCL_MAX_NDIM];
} shape;

#define F OPENCL_FLOATS
#define WHOLE                                              \
    (OPENCL_I64 | OPENCL_I32 | CORE_DTYPE_MASK(CORE_I16) | \
     CORE_DTYPE_MASK(CORE_I8) | CORE_DTYPE_MASK(CORE_U8) | OPENCL_BOOL)
#define MOST "((s) > (t) || (s) != (s) ? (s) : (t))"
#define LEAST "((s) < (t) || (s) != (s) ? (s) : (t))"

static const reduction reductions[] = {
    {"sum", "0", "x", "s + t", "s", NULL, 0, 0, BY_OUTPUT, 0, 0, F | WHOLE,
     "sum.dim_IntList"},
    {"nansum", "0", "x != x ? 0 : x", "s + t", "s", NULL, 0, 0, BY_OUTPUT, 0, 0,
     F | WHOLE, NULL},
    {"mean", "0", "x", "s + t", "s / (S)count", NULL, 0, 0, BY_OUTPUT, 0, 0, F,
     "mean.dim"},
    {"prod", "1", "x", "s * t", "s", NULL, 0, 0, BY_OUTPUT, 0, 0, F | WHOLE,
     "prod.dim_int"},
    {"amax", "-INFINITY", "x", MOST, "s", "LONG_MIN", 0, 0, BY_INPUT, 0, 0,
     F | WHOLE, "max"},
    {"amin", "INFINITY", "x", LEAST, "s", "LONG_MAX", 0, 0, BY_INPUT, 0, 0,
     F | WHOLE, "min"},
    {"any", "0", "x != 0", "s || t", "s", NULL, 0, 0, BY_INPUT, 0, 0, F | WHOLE,
     "any.dim"},
    {"all", "1", "x != 0", "s && t", "s", NULL, 0, 0, BY_INPUT, 0, 0, F | WHOLE,
     "all.dim"},
    {"count_nonzero", "0", "x != 0", "s + t", "s", NULL, 0, 0, BY_INPUT, 0, 0,
     F | WHOLE, "count_nonzero.dim_IntList"},
    {"max.dim", "0", "x", "s > t", "s", NULL, FIND_BOTH, 0, BY_INPUT, 0, 0,
     F | WHOLE, NULL},
    {"min.dim", "0", "x", "s < t", "s", NULL, FIND_BOTH, 0, BY_INPUT, 0, 0,
     F | WHOLE, NULL},
    {"argmax", "0", "x", "s > t", "s", NULL, FIND_INDEX, 0, BY_INPUT, 0, 0,
     F | WHOLE, NULL},
    {"argmin", "0", "x", "s < t", "s", NULL, FIND_INDEX, 0, BY_INPUT, 0, 0,
     F | WHOLE, NULL},
    {"var.correction", "0", "x", "s + t", "s", NULL, 0, 1, BY_OUTPUT, 3, 1, F,
     NULL},
    {"linalg_vector_norm", "number == -INFINITY ? INFINITY : 0",
     "number == 2 ? (S)x * (S)x : number == 0 ? (S)(x != 0) : number == 1 || "
     "isinf(number) ? fabs((S)x) : pow(fabs((S)x), (S)number)",
     "isinf(number) ? (number > 0 ? " MOST " : " LEAST ") : s + t",
     "number == 2 ? sqrt(s) : number == 0 || number == 1 || isinf(number) ? s "
     ": pow(s, 1 / (S)number)",
     NULL, 0, 0, BY_OUTPUT, 2, 2, F, NULL},
    {"logsumexp", "0", "x", "s + t", "s", NULL, 0, 3, BY_OUTPUT, 0, 0, F, NULL},
    {"std.correction", "0", "x", "s + t", "s", NULL, 0, 2, BY_OUTPUT, 3, 1, F,
     NULL},
};

enum { COUNT = sizeof reductions / sizeof *reductions };

static opencl_source sources[COUNT];

static size_t compose(const opencl_source *source, char *to, size_t size)
{
    const reduction *r = source->user;
    const char *type = r->by == BY_OUTPUT ? "0" : "1";
    int n = snprintf(
        to, size,
        "#if ID1 > BF16n && ID%s > BF16n\n#define INITIAL %s\n#else\n"
        "#define INITIAL %s\n#endif\n"
        "#define MAP(x) (%s)\n#define %s(s, t) (%s)\n#define FINISH(s) (%s)\n"
        "#define INDEXED %d\n#define MOMENTS %d\n",
        type, r->least != NULL ? r->least : r->initial, r->initial, r->map,
        r->indexed ? "BETTER" : "COMBINE", r->combine, r->finish, r->indexed,
        r->moments);

    /* Extremes and indices have the input's type; tests count. */
    n += snprintf(n < (int)size ? to + n : NULL, n < (int)size ? size - n : 0,
                  "typedef %s S;\n",
                  r->by == BY_OUTPUT ? "ACC0"
                  : r->map[1] == 0   ? "ACC1"
                                     : "long");
    return (size_t)n;
}

static core_status shape_of(const core_loop *loop, shape *p)
{
    const core_operand *in = &loop->operands[loop->noutputs];
    opencl_loop checked;
    core_status status = opencl_loop_fill(loop, &checked);

    memset(p, 0, sizeof *p);
    p->outputs = p->count = 1;
    p->noutputs = loop->noutputs;
    p->immediates = in->flags & CORE_OPERAND_IMMEDIATE ? 1 : 0;
    for (uint32_t d = 0; d < loop->ndim && status == CORE_OK; d++) {
        int64_t from = p->immediates ? 0 : in->strides[d];

        if (loop->reduced >> d & 1) {
            p->count *= (cl_ulong)loop->sizes[d];
            p->reduced[p->nreduced] = (cl_uint)loop->sizes[d];
            p->along[p->nreduced++] = from;
            continue;
        }
        p->outputs *= (cl_ulong)loop->sizes[d];
        p->kept[p->nkept] = (cl_uint)loop->sizes[d];
        p->from[p->nkept] = from;
        for (uint32_t k = 0; k < loop->noutputs && k < 2; k++)
            p->to[k][p->nkept] = loop->operands[k].strides[d];
        p->nkept++;
    }
    return status;
}

static core_status launch(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const opencl_source *source = call->user;
    const reduction *r = source->user;
    const core_loop *loop = call->loop;
    const core_operand *in = &loop->operands[loop->noutputs];
    core_dtype types[2] = {loop->operands[0].dtype, in->dtype};
    double number = r->default_value;
    bool lines;
    opencl_launch l;
    shape p;
    core_status status = shape_of(loop, &p);

    (void)results;
    (void)nresults;
    if (status != CORE_OK || p.outputs == 0)
        return status;
    if (r->argument > 0 && (uint32_t)r->argument <= nargs)
        number = core_sdk_double(&args[r->argument - 1], number);
    lines = !r->moments && (p.outputs >= 256 || p.count <= 32);
    l = opencl_begin(call, source, types, 2,
                     r->moments == 3 ? "exponentials"
                     : r->moments    ? "moments"
                     : lines         ? "lines"
                                     : "groups");
    opencl_buffer(&l, loop->operands[0].memory);
    if (loop->noutputs > 1)
        opencl_buffer(&l, loop->operands[1].memory);
    else
        opencl_null_buffer(&l);
    if (p.immediates)
        opencl_null_buffer(&l);
    else
        opencl_buffer(&l, in->memory);
    opencl_bytes(&l, &in->immediate, 8);
    opencl_double(&l, number);
    opencl_bytes(&l, &p, sizeof p);
    return opencl_run(&l, lines ? p.outputs : p.outputs * OPENCL_GROUP,
                      OPENCL_GROUP);
}

core_status opencl_register_reduce(core_registry *registry)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < COUNT && status == CORE_OK; i++) {
        const reduction *r = &reductions[i];
        opencl_row row = {r->name, launch, &sources[i], {0}, 0};
        uint32_t outputs = r->indexed == FIND_BOTH ? 2 : 1;
        uint32_t floats = r->inputs & F;

        sources[i] = (opencl_source){r->name, opencl_reduce_cl, compose, r};
        /* Any pair of floats, any pair of integers: the core has chosen
         * them. */
        for (int pass = 0; pass < 2 && status == CORE_OK; pass++) {
            uint32_t mask = pass ? r->inputs & ~floats : floats;

            if (mask == 0)
                continue;
            row.signature[0] = r->by == BY_INPUT && !r->indexed && r->map[1]
                                   ? F | WHOLE
                               : r->indexed == FIND_INDEX ? OPENCL_I64
                                                          : mask;
            if (r->by == BY_OUTPUT)
                mask |= WHOLE;
            row.signature[1] = outputs == 2 ? OPENCL_I64 : mask;
            row.signature[2] = outputs == 2 ? mask : 0;
            row.name = r->name;
            status = opencl_register(registry, &row, 1, OPENCL_MAX_NDIM);
            row.name = r->alias;
            if (status == CORE_OK && r->alias != NULL)
                status = opencl_register(registry, &row, 1, OPENCL_MAX_NDIM);
        }
    }
    return status;
}
