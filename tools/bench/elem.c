/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Element-wise operators by dtype and layout, in GB/s of what they must read
 * and write.  Each is compared with a copy of the same size, measured just
 * before it: a line below a tenth of that is followed by a second one,
 * ".slow". */

#include "bench.h"

#include <libcore/dispatch.h>

#include <stdio.h>
#include <string.h>

enum { ROWS = 1024, COLUMNS = 1024, CHANNELS = 16 };

typedef enum layout { PLAIN, STRIDED, BROADCAST, LAST, NUMBER, LAYOUTS } layout;

static const char *const layout_names[] = {"contiguous", "strided", "broadcast",
                                           "channels_last", "scalar"};

static const struct {
    core_dtype dtype;
    const char *name;
    uint32_t size;
    bool floating;
} dtypes[] = {
    {CORE_F32, "f32", 4, true},  {CORE_F64, "f64", 8, true},
    {CORE_F16, "f16", 2, true},  {CORE_BF16, "bf16", 2, true},
    {CORE_I64, "i64", 8, false}, {CORE_I32, "i32", 4, false},
    {CORE_U8, "u8", 1, false},   {CORE_BOOL, "bool", 1, false},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

enum { FLOATING = 1, NUMBERS = 2, ANY = 3 };

static const struct {
    const char *name; /* the out variant, without allocation */
    uint32_t operands;
    int on;
    bool gives_bool;
} operators[] = {
    {"add.out", 2, NUMBERS, false},    {"mul.out", 2, NUMBERS, false},
    {"div.out", 2, FLOATING, false},   {"maximum.out", 2, ANY, false},
    {"neg.out", 1, NUMBERS, false},    {"abs.out", 1, NUMBERS, false},
    {"relu.out", 1, NUMBERS, false},   {"sqrt.out", 1, FLOATING, false},
    {"exp.out", 1, FLOATING, false},   {"tanh.out", 1, FLOATING, false},
    {"gelu.out", 1, FLOATING, false},  {"eq.Tensor_out", 2, ANY, true},
    {"logical_not.out", 1, ANY, true},
};
enum { OPERATORS = sizeof operators / sizeof *operators };

/* An operand in a layout; bytes: what must be read of it. */
static core_tensor *operand(core_dtype dtype, layout layout, uint32_t itemsize,
                            double *bytes)
{
    const int64_t plain[] = {ROWS, COLUMNS}, wide[] = {ROWS, 2 * COLUMNS};
    const int64_t row[] = {COLUMNS}, batch[] = {4, CHANNELS, 128, 128};
    core_tensor *whole, *x = NULL;

    *bytes = (double)itemsize * ROWS * COLUMNS;
    switch (layout) {
    case STRIDED:
        must(core_ones(wide, 2, dtype, NULL, &whole));
        must(core_slice(whole, 1, NULL, NULL, 2, &x));
        core_tensor_release(whole);
        return x;
    case BROADCAST:
        *bytes = (double)itemsize * COLUMNS;
        must(core_ones(row, 1, dtype, NULL, &x));
        return x;
    case LAST:
        must(core_ones(batch, 4, dtype, NULL, &whole));
        must(core_contiguous(whole, CORE_FORMAT_CHANNELS_LAST, &x));
        core_tensor_release(whole);
        return x;
    case NUMBER:
        *bytes = 0;
        must(core_ones(NULL, 0, dtype, NULL, &x));
        return x;
    default:
        must(core_ones(plain, 2, dtype, NULL, &x));
        return x;
    }
}

typedef struct elem {
    core_operator *op;
    core_value args[4];
    uint32_t nargs;
} elem;

static void run(void *context)
{
    elem *e = context;

    must(core_op_call(e->op, e->args, e->nargs, NULL, 0));
}

static void set_tensor(elem *e, core_tensor *tensor)
{
    e->args[e->nargs++] =
        (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
}

/* The arguments before out: operands, then defaults. */
static void complete(elem *e, core_tensor *out)
{
    const char *schema = core_op_schema(e->op);

    if (strstr(schema, "alpha"))
        e->args[e->nargs++] = (core_value){CORE_VALUE_INT, 0, {.i = 1}};
    if (strstr(schema, "approximate"))
        e->args[e->nargs++] =
            (core_value){CORE_VALUE_STRING, 4, {.string = "none"}};
    set_tensor(e, out);
}

static double copy_speed(uint32_t itemsize)
{
    const int64_t size = (int64_t)ROWS * COLUMNS * itemsize;
    core_tensor *from, *to;
    elem e = {0};
    double speed;

    must(core_ones(&size, 1, CORE_U8, NULL, &from));
    must(core_ones(&size, 1, CORE_U8, NULL, &to));
    must(core_op_find("copy_", &e.op));
    set_tensor(&e, to);
    set_tensor(&e, from);
    e.args[e.nargs++] = (core_value){CORE_VALUE_BOOL, 0, {.i = 0}};
    speed = 2e-9 * (double)size / bench_seconds(run, &e, 0.002);
    core_tensor_release(from);
    core_tensor_release(to);
    return speed;
}

static uint32_t slow, lines;

static void measure(size_t o, size_t d, layout layout, double copy)
{
    const int64_t plain[] = {ROWS, COLUMNS}, batch[] = {4, CHANNELS, 128, 128};
    core_tensor *inputs[2] = {NULL, NULL}, *out;
    double bytes = 0, more, speed;
    char name[96];
    elem e = {0};

    must(core_op_find(operators[o].name, &e.op));
    for (uint32_t i = 0; i < operators[o].operands; i++) {
        /* The second operand is broadcast; the first has all elements. */
        bool repeats = layout == BROADCAST || layout == NUMBER;

        inputs[i] = operand(dtypes[d].dtype, i == 0 && repeats ? PLAIN : layout,
                            dtypes[d].size, &more);
        bytes += more;
        set_tensor(&e, inputs[i]);
    }
    must(core_empty(layout == LAST ? batch : plain, layout == LAST ? 4 : 2,
                    operators[o].gives_bool ? CORE_BOOL : dtypes[d].dtype, NULL,
                    layout == LAST ? CORE_FORMAT_CHANNELS_LAST
                                   : CORE_FORMAT_CONTIGUOUS,
                    &out));
    bytes +=
        (double)(operators[o].gives_bool ? 1 : dtypes[d].size) * ROWS * COLUMNS;
    complete(&e, out);
    speed = 1e-9 * bytes / bench_seconds(run, &e, 0.002);
    snprintf(name, sizeof name, "elem.%.*s.%s.%s",
             (int)strcspn(operators[o].name, "."), operators[o].name,
             dtypes[d].name, layout_names[layout]);
    bench_out(name, speed, "GB/s");
    lines++;
    if (speed < copy / 10) {
        slow++;
        strcat(name, ".slow");
        bench_out(name, speed / copy, "of copy");
    }
    core_tensor_release(inputs[0]);
    core_tensor_release(inputs[1]);
    core_tensor_release(out);
}

static bool takes(size_t o, size_t d)
{
    if (operators[o].on == FLOATING)
        return dtypes[d].floating;
    return operators[o].on == ANY || dtypes[d].dtype != CORE_BOOL;
}

void bench_elem(void)
{
    bench_large();
    for (size_t d = 0; d < DTYPES; d++) {
        char name[64];

        snprintf(name, sizeof name, "elem.copy.%s", dtypes[d].name);
        bench_out(name, copy_speed(dtypes[d].size), "GB/s");
        for (size_t o = 0; o < OPERATORS; o++)
            for (uint32_t l = 0; takes(o, d) && l < LAYOUTS; l++)
                if (operators[o].operands > 1 ||
                    (l != BROADCAST && l != NUMBER))
                    /* Measured next to a copy, since other load slows both. */
                    measure(o, d, (layout)l, copy_speed(dtypes[d].size));
    }
    bench_out("elem.lines", lines, "lines");
    bench_out("elem.slow", slow, "lines");
}
