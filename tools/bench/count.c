/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Rows for an instruction counter that collects inside core_bench_counted
 * alone.  The cost of a row is the difference between 2 N and N rounds, divided
 * by N. */

#include "bench.h"

#include <libcore/expressions.h>

#include <stdio.h>
#include <string.h>

enum { LEAVES = 50 };

typedef struct fixture {
    bench_operators operators;
    core_tensor *a;
    core_tensor *b;
    core_tensor *out;
    core_tensor *matrix;
    core_tensor *one_by_one;
    core_tensor *x; /* requires grad */
    core_tensor *y; /* the end of a chain from x */
    core_tensor *leaves[LEAVES];
    core_tensor *grads[LEAVES];
    bench_compiled chain, guards, step;
} fixture;

/* --------------------------------------------------------------- forward -- */

static inline void plain(fixture *f)
{
    core_tensor *result;

    must(core_add(f->a, f->b, core_int(1), &result));
    core_tensor_release(result);
}

static inline void with_grad(fixture *f)
{
    core_tensor *result;

    must(core_add(f->x, f->b, core_int(1), &result));
    core_tensor_release(result);
}

static inline void out(fixture *f)
{
    must(core_add_out(f->a, f->b, core_int(1), f->out));
}

static inline void in_place(fixture *f)
{
    must(core_add_(f->out, f->b, core_int(1)));
}

/* Adds to the gradients of leaves: a backward from the leaves themselves. */
static inline void accumulate(fixture *f)
{
    must(core_backward(f->leaves, LEAVES, f->grads, 0));
}

/* One call in a scope, with its begin and end. */
static inline void in_scope(fixture *f)
{
    core_scope scope = core_scope_begin();

    core_x_add(f->a, f->b);
    must(core_scope_end(scope));
}

/* Arguments are packed once, so that only the dispatcher is counted. */
static inline void dispatch(core_operator *op, core_tensor *a, long count)
{
    core_value args[1] = {core_pack_tensor(a)};

    for (long i = 0; i < count; i++)
        must(core_op_invoke_on(op, args, 1, NULL, 0));
}

static inline void empty1(fixture *f)
{
    const int64_t size = 1;
    core_tensor *result;

    (void)f;
    must(core_empty(&size, 1, CORE_F32, NULL, -1, &result));
    core_tensor_release(result);
}

static inline void empty_1mib(fixture *f)
{
    const int64_t size = 1 << 18;
    core_tensor *result;

    (void)f;
    must(core_empty(&size, 1, CORE_F32, NULL, -1, &result));
    core_tensor_release(result);
}

static inline void zeros1(fixture *f)
{
    const int64_t size = 1;
    core_tensor *result;

    (void)f;
    must(core_zeros(&size, 1, CORE_F32, NULL, &result));
    core_tensor_release(result);
}

static inline void add_number(fixture *f)
{
    core_tensor *result;

    must(core_add_scalar(f->a, core_float(2), core_int(1), &result));
    core_tensor_release(result);
}

static inline void mul_number_in_place(fixture *f)
{
    must(core_mul_scalar_(f->a, core_float(1)));
}

static inline void sum1(fixture *f)
{
    core_tensor *result;

    must(core_sum(f->a, CORE_DTYPE_NONE, &result));
    core_tensor_release(result);
}

static inline void mm1x1(fixture *f)
{
    core_tensor *result;

    must(core_mm(f->one_by_one, f->one_by_one, &result));
    core_tensor_release(result);
}

static inline void transpose(fixture *f)
{
    core_tensor *result;

    must(core_transpose(f->matrix, 0, 1, &result));
    core_tensor_release(result);
}

static inline void narrow(fixture *f)
{
    core_tensor *result;

    must(core_narrow(f->matrix, 0, 3, 7, &result));
    core_tensor_release(result);
}

static inline void chain(fixture *f)
{
    bench_call_compiled(&f->chain);
}

static inline void guards(fixture *f)
{
    bench_call_compiled(&f->guards);
}

static inline void step(fixture *f)
{
    bench_call_compiled(&f->step);
}

/* -------------------------------------------------------------- backward -- */

static void extend(fixture *f, core_tensor *longer)
{
    core_tensor_release(f->y);
    f->y = longer;
}

static void link_mul(fixture *f)
{
    core_tensor *longer;

    must(core_mul(f->y, f->a, &longer));
    extend(f, longer);
}

static void link_add(fixture *f)
{
    core_tensor *longer;

    must(core_add(f->y, f->a, core_int(1), &longer));
    extend(f, longer);
}

/* Alternates, so that a round is one node. */
static void link_both(fixture *f)
{
    static bool odd;

    if (odd)
        link_add(f);
    else
        link_mul(f);
    odd = !odd;
}

static void link_add_self(fixture *f)
{
    core_tensor *longer;

    must(core_add(f->y, f->y, core_int(1), &longer));
    extend(f, longer);
}

/* ------------------------------------------------------------------ rows -- */

/* Forward rows are numbered; a backward row builds a chain of links and counts
 * the backward pass. */
enum {
    ADD,
    ADD_GRAD,
    ADD_OUT,
    ADD_IN_PLACE,
    ACCUMULATE,
    ADD_SCOPE,
    VOID1,
    VOID_AD,
    EMPTY1,
    EMPTY_1MIB,
    ZEROS1,
    ADD_NUMBER,
    MUL_NUMBER_IN_PLACE,
    SUM1,
    MM1X1,
    TRANSPOSE,
    NARROW,
    CHAIN,
    GUARDS,
    STEP,
    NONE
};

static const struct {
    const char *name;
    int forward;
    void (*link)(fixture *f);
} rows[] = {
    {"add1.plain", ADD, NULL},
    {"add1.grad", ADD_GRAD, NULL},
    {"add1_out.plain", ADD_OUT, NULL},
    {"add1_.inplace", ADD_IN_PLACE, NULL},
    {"ad.accgrad_apply_inplace", ACCUMULATE, NULL},
    {"add1.scope", ADD_SCOPE, NULL},
    {"disp.void1", VOID1, NULL},
    {"disp.autograd_redispatch", VOID_AD, NULL},
    {"tensor.empty1", EMPTY1, NULL},
    {"tensor.empty_1MiB", EMPTY_1MIB, NULL},
    {"tensor.zeros1", ZEROS1, NULL},
    {"add1.scalar_rhs", ADD_NUMBER, NULL},
    {"mul1_.scalar_rhs", MUL_NUMBER_IN_PLACE, NULL},
    {"sum1.plain", SUM1, NULL},
    {"mm1x1.plain", MM1X1, NULL},
    {"view.transpose", TRANSPOSE, NULL},
    {"view.narrow", NARROW, NULL},
    {"compiled.chain3", CHAIN, NULL},
    {"compiled.guards_8_inputs", GUARDS, NULL},
    {"compiled.mlp_tiny_step", STEP, NULL},
    {"bwd.mul_per_node", NONE, link_mul},
    {"bwd.add_per_node", NONE, link_add},
    {"bwd.mul+add_per_node", NONE, link_both},
    {"bwd.fanin_add_per_node", NONE, link_add_self},
};
enum { ROWS = sizeof rows / sizeof *rows, WARM = 50 };

static inline __attribute__((always_inline)) void repeat(
    fixture *f, void (*run)(fixture *f), long count)
{
    for (long i = 0; i < count; i++)
        run(f);
}

/* External, so that it is never inlined.  Each row has its own loop, so that
 * nothing but the row is counted. */
void core_bench_counted(fixture *f, int forward, long count);
__attribute__((noinline)) void core_bench_counted(fixture *f, int forward,
                                                  long count)
{
    switch (forward) {
    case ADD:
        repeat(f, plain, count);
        break;
    case ADD_GRAD:
        repeat(f, with_grad, count);
        break;
    case ADD_OUT:
        repeat(f, out, count);
        break;
    case ADD_IN_PLACE:
        repeat(f, in_place, count);
        break;
    case ACCUMULATE:
        repeat(f, accumulate, count);
        break;
    case ADD_SCOPE:
        repeat(f, in_scope, count);
        break;
    case VOID1:
        dispatch(f->operators.void1, f->a, count);
        break;
    case VOID_AD:
        dispatch(f->operators.void_ad, f->a, count);
        break;
    case EMPTY1:
        repeat(f, empty1, count);
        break;
    case EMPTY_1MIB:
        repeat(f, empty_1mib, count);
        break;
    case ZEROS1:
        repeat(f, zeros1, count);
        break;
    case ADD_NUMBER:
        repeat(f, add_number, count);
        break;
    case MUL_NUMBER_IN_PLACE:
        repeat(f, mul_number_in_place, count);
        break;
    case SUM1:
        repeat(f, sum1, count);
        break;
    case MM1X1:
        repeat(f, mm1x1, count);
        break;
    case TRANSPOSE:
        repeat(f, transpose, count);
        break;
    case NARROW:
        repeat(f, narrow, count);
        break;
    case CHAIN:
        repeat(f, chain, count);
        break;
    case GUARDS:
        repeat(f, guards, count);
        break;
    case STEP:
        repeat(f, step, count);
        break;
    default:
        must(core_backward(&f->y, 1, NULL, 0));
        break;
    }
}

static void build_chain(fixture *f, void (*link)(fixture *f), long length)
{
    core_tensor_release(f->y);
    f->y = core_tensor_retain(f->x);
    must(core_tensor_set_grad(f->x, NULL));
    for (long i = 0; i < length; i++)
        link(f);
}

static void run_row(fixture *f, int row, long count)
{
    if (rows[row].forward != NONE) {
        core_bench_counted(f, rows[row].forward, WARM);
    } else {
        build_chain(f, rows[row].link, 2 * WARM);
        core_bench_counted(f, NONE, 0);
        build_chain(f, rows[row].link, count);
    }
    core_bench_counted(f, rows[row].forward, count);
}

static void open_compiled(fixture *f)
{
    f->chain = (bench_compiled){.function = bench_chain3,
                                .inputs = {bench_ones1()},
                                .ninputs = 1,
                                .noutputs = 1};
    must(core_compile(bench_chain3, NULL, NULL, &f->chain.compiled));
    bench_guards_open(&f->guards);
    bench_step_open(&f->step);
    must(core_compile(f->step.function, NULL, NULL, &f->step.compiled));
}

static void close_compiled(bench_compiled *b)
{
    core_compiled_release(b->compiled);
    bench_compiled_release(b);
}

bool bench_count(const char *name, long count)
{
    fixture f = {.y = NULL};
    int row = 0;

    while (row < ROWS && strcmp(rows[row].name, name) != 0)
        row++;
    if (row == ROWS)
        return false;
    f.a = bench_ones1();
    f.b = bench_ones1();
    f.out = bench_ones1();
    f.matrix = bench_full((const int64_t[]){64, 64}, 2, 1);
    f.one_by_one = bench_full((const int64_t[]){1, 1}, 2, 1);
    f.x = bench_requires_grad(bench_ones1());
    for (int i = 0; i < LEAVES; i++) {
        f.leaves[i] = bench_requires_grad(bench_ones1());
        f.grads[i] = bench_ones1();
    }
    open_compiled(&f);
    bench_operators_register(&f.operators);
    run_row(&f, row, count);
    bench_operators_release(&f.operators);
    close_compiled(&f.chain);
    close_compiled(&f.guards);
    close_compiled(&f.step);
    core_tensor_release(f.a);
    core_tensor_release(f.b);
    core_tensor_release(f.out);
    core_tensor_release(f.matrix);
    core_tensor_release(f.one_by_one);
    core_tensor_release(f.x);
    for (int i = 0; i < LEAVES; i++) {
        core_tensor_release(f.leaves[i]);
        core_tensor_release(f.grads[i]);
    }
    core_tensor_release(f.y);
    return true;
}

void bench_count_names(void)
{
    for (int i = 0; i < ROWS; i++)
        puts(rows[i].name);
}
