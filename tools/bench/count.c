/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Rows for an instruction counter, which collects inside core_bench_counted
 * alone.  A row's cost is the difference between 2 N and N rounds, over N. */

#include "bench.h"

#include <stdio.h>
#include <string.h>

typedef struct fixture {
    bench_operators operators;
    core_tensor *a;
    core_tensor *b;
    core_tensor *out;
    core_tensor *matrix;
    core_tensor *x; /* requires grad */
    core_tensor *y; /* the end of a chain from x */
} fixture;

/* --------------------------------------------------------------- forward -- */

static void plain(fixture *f)
{
    core_tensor *result;

    must(core_add(f->a, f->b, core_int(1), &result));
    core_tensor_release(result);
}

static void with_grad(fixture *f)
{
    core_tensor *result;

    must(core_add(f->x, f->b, core_int(1), &result));
    core_tensor_release(result);
}

static void out(fixture *f)
{
    must(core_add_out(f->a, f->b, core_int(1), f->out));
}

static void void1(fixture *f)
{
    core_value args[1] = {core_pack_tensor(f->a)};

    must(core_op_invoke_on(f->operators.void1, args, 1, NULL, 0));
}

static void void_ad(fixture *f)
{
    core_value args[1] = {core_pack_tensor(f->a)};

    must(core_op_invoke_on(f->operators.void_ad, args, 1, NULL, 0));
}

static void empty1(fixture *f)
{
    const int64_t size = 1;
    core_tensor *result;

    (void)f;
    must(core_empty(&size, 1, CORE_F32, NULL, -1, &result));
    core_tensor_release(result);
}

static void transpose(fixture *f)
{
    core_tensor *result;

    must(core_transpose(f->matrix, 0, 1, &result));
    core_tensor_release(result);
}

static void narrow(fixture *f)
{
    core_tensor *result;

    must(core_narrow(f->matrix, 0, 3, 7, &result));
    core_tensor_release(result);
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

/* In turn, so that a round is one node. */
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

/* One function is what a forward row repeats; a backward row builds a chain of
 * it and counts the way back. */
static const struct {
    const char *name;
    void (*run)(fixture *f);
    bool backward;
} rows[] = {
    {"add1.plain", plain, false},
    {"add1.grad", with_grad, false},
    {"add1_out.plain", out, false},
    {"disp.void1", void1, false},
    {"disp.autograd_redispatch", void_ad, false},
    {"tensor.empty1", empty1, false},
    {"view.transpose", transpose, false},
    {"view.narrow", narrow, false},
    {"bwd.mul_per_node", link_mul, true},
    {"bwd.add_per_node", link_add, true},
    {"bwd.mul+add_per_node", link_both, true},
    {"bwd.fanin_add_per_node", link_add_self, true},
};
enum { ROWS = sizeof rows / sizeof *rows, WARM = 50 };

/* Seen from outside, and never part of another function. */
void core_bench_counted(fixture *f, void (*run)(fixture *f), long count);
__attribute__((noinline)) void core_bench_counted(fixture *f,
                                                  void (*run)(fixture *f),
                                                  long count)
{
    if (run)
        for (long i = 0; i < count; i++)
            run(f);
    else
        must(core_backward(&f->y, 1, NULL, 0));
}

static void build_chain(fixture *f, void (*run)(fixture *f), long length)
{
    core_tensor_release(f->y);
    f->y = core_tensor_retain(f->x);
    must(core_tensor_set_grad(f->x, NULL));
    for (long i = 0; i < length; i++)
        run(f);
}

static void run_row(fixture *f, int row, long count)
{
    void (*run)(fixture *) = rows[row].run;

    if (!rows[row].backward) {
        for (int i = 0; i < WARM; i++)
            run(f);
        core_bench_counted(f, run, count);
        return;
    }
    build_chain(f, run, 2 * WARM);
    must(core_backward(&f->y, 1, NULL, 0));
    build_chain(f, run, count);
    core_bench_counted(f, NULL, count);
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
    f.x = bench_requires_grad(bench_ones1());
    bench_operators_register(&f.operators);
    run_row(&f, row, count);
    bench_operators_release(&f.operators);
    core_tensor_release(f.a);
    core_tensor_release(f.b);
    core_tensor_release(f.out);
    core_tensor_release(f.matrix);
    core_tensor_release(f.x);
    core_tensor_release(f.y);
    return true;
}

void bench_count_names(void)
{
    for (int i = 0; i < ROWS; i++)
        puts(rows[i].name);
}
