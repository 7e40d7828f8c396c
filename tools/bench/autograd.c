/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Backward through long chains of operators on one element: the cost of a
 * node. */

#include "bench.h"

enum { LENGTH = 1000, APPLIED = 50, WARM = 10, ROUNDS = 60 };

typedef struct fixture {
    core_tensor *x; /* requires grad */
    core_tensor *one;
    core_tensor *half;
    core_tensor *leaves[LENGTH];
    core_tensor *grads[APPLIED];
} fixture;

/* -------------------------------------------------------------- chains -- */

typedef core_tensor *(*link)(fixture *f, core_tensor *y);

static core_tensor *link_mul(fixture *f, core_tensor *y)
{
    core_tensor *result;

    must(core_mul(y, f->one, &result));
    return result;
}

static core_tensor *link_add(fixture *f, core_tensor *y)
{
    core_tensor *result;

    must(core_add(y, f->half, core_int(1), &result));
    return result;
}

static core_tensor *link_neg(fixture *f, core_tensor *y)
{
    core_tensor *result;

    (void)f;
    must(core_neg(y, &result));
    return result;
}

static core_tensor *link_add_self(fixture *f, core_tensor *y)
{
    core_tensor *result;

    (void)f;
    must(core_add(y, y, core_int(1), &result));
    return result;
}

static core_tensor *link_mul_self(fixture *f, core_tensor *y)
{
    core_tensor *result;

    (void)f;
    must(core_mul(y, y, &result));
    return result;
}

static core_tensor *link_both(fixture *f, core_tensor *y)
{
    core_tensor *product = link_mul(f, y);
    core_tensor *result = link_add(f, product);

    core_tensor_release(product);
    return result;
}

static core_tensor *chain(fixture *f, link next, int length)
{
    core_tensor *y = core_tensor_retain(f->x);

    for (int i = 0; i < length; i++) {
        core_tensor *longer = next(f, y);

        core_tensor_release(y);
        y = longer;
    }
    return y;
}

static void clear_grad(fixture *f)
{
    must(core_tensor_set_grad(f->x, NULL));
}

/* ---------------------------------------------------------------- rows -- */

static void chain_phases(fixture *f)
{
    enum { FORWARD, BACKWARD, FREE, TOTAL, PHASES };
    static const char *const names[PHASES] = {
        "ad.chain_fwd_per_op", "ad.chain_bwd_per_node",
        "ad.chain_free_per_node", "ad.chain_total_per_op"};
    double times[PHASES][ROUNDS - WARM];

    for (int r = 0; r < ROUNDS; r++) {
        double t0 = bench_now(), t1, t2, t3;
        core_tensor *y = chain(f, link_both, LENGTH);

        t1 = bench_now();
        must(core_backward(&y, 1, NULL, 0));
        t2 = bench_now();
        core_tensor_release(y);
        t3 = bench_now();
        clear_grad(f);
        if (r < WARM)
            continue;
        times[FORWARD][r - WARM] = t1 - t0;
        times[BACKWARD][r - WARM] = t2 - t1;
        times[FREE][r - WARM] = t3 - t2;
        times[TOTAL][r - WARM] = t3 - t0;
    }
    for (int i = 0; i < PHASES; i++)
        bench_out(names[i],
                  bench_median(times[i], ROUNDS - WARM) / (2 * LENGTH) * 1e9,
                  "ns");
}

static void chain_forward(void *context)
{
    core_tensor_release(chain(context, link_both, LENGTH));
}

static void chain_no_grad(fixture *f)
{
    bool before = core_grad_mode_set(false);

    bench_out("ad.chain_fwd_nograd_per_op",
              bench_seconds(chain_forward, f, 0.02) / (2 * LENGTH) * 1e9, "ns");
    core_grad_mode_set(before);
}

/* Backward from one root at the end of a chain of `length`. */
static void chain_backward(fixture *f, const char *name, link next, int length)
{
    double times[ROUNDS - WARM];

    for (int r = 0; r < ROUNDS; r++) {
        core_tensor *y = chain(f, next, length), *grad = bench_ones1();
        double begin = bench_now(), time;

        must(core_backward(&y, 1, &grad, 0));
        time = bench_now() - begin;
        clear_grad(f);
        core_tensor_release(y);
        core_tensor_release(grad);
        if (r >= WARM)
            times[r - WARM] = time;
    }
    bench_out(name, bench_median(times, ROUNDS - WARM) / length * 1e9, "ns");
}

/* Backward from many roots, each with its own leaf. */
static void leaf_backward(fixture *f, const char *name, bool clear)
{
    core_tensor *roots[LENGTH], *grads[LENGTH];
    double times[ROUNDS - WARM];

    for (int r = 0; r < ROUNDS; r++) {
        double begin, time;

        for (int i = 0; i < LENGTH; i++) {
            roots[i] = link_mul(f, f->leaves[i]);
            grads[i] = bench_ones1();
        }
        begin = bench_now();
        must(core_backward(roots, LENGTH, grads, 0));
        time = bench_now() - begin;
        for (int i = 0; i < LENGTH; i++) {
            if (clear)
                must(core_tensor_set_grad(f->leaves[i], NULL));
            core_tensor_release(roots[i]);
            core_tensor_release(grads[i]);
        }
        if (r >= WARM)
            times[r - WARM] = time;
    }
    bench_out(name, bench_median(times, ROUNDS - WARM) / LENGTH * 1e9, "ns");
}

static void apply(void *context)
{
    fixture *f = context;

    must(core_backward(f->leaves, APPLIED, f->grads, 0));
}

/* Only accumulations into existing gradients: a backward whose roots are the
 * leaves.  Unlike in the other library's program a node cannot be called
 * directly, so its share of the engine's work is included. */
static void accumulations(fixture *f)
{
    for (int i = 0; i < APPLIED; i++)
        f->grads[i] = bench_ones1();
    bench_out("ad.accgrad_apply_inplace",
              bench_seconds(apply, f, 0.02) / APPLIED * 1e9, "ns");
    for (int i = 0; i < APPLIED; i++)
        core_tensor_release(f->grads[i]);
}

static void leaves(fixture *f)
{
    for (int i = 0; i < LENGTH; i++)
        f->leaves[i] = bench_requires_grad(bench_ones1());
    leaf_backward(f, "ad.leaf_mul+accgrad_steal_per_leaf", true);
    for (int i = 0; i < LENGTH; i++) {
        core_tensor *zero = bench_full((const int64_t[]){1}, 1, 0);

        must(core_tensor_set_grad(f->leaves[i], zero));
        core_tensor_release(zero);
    }
    leaf_backward(f, "ad.leaf_mul+accgrad_inplace_per_leaf", false);
    accumulations(f);
    for (int i = 0; i < LENGTH; i++)
        core_tensor_release(f->leaves[i]);
}

static void chain_grad(fixture *f, const char *name, uint32_t flags)
{
    enum { GRAD_ROUNDS = 40, GRAD_WARM = 6 };
    double times[GRAD_ROUNDS - GRAD_WARM];

    for (int r = 0; r < GRAD_ROUNDS; r++) {
        core_tensor *y = chain(f, link_both, LENGTH), *grad;
        double begin = bench_now(), time;

        must(core_grad(&y, 1, NULL, &f->x, 1, flags, &grad));
        time = bench_now() - begin;
        core_tensor_release(grad);
        core_tensor_release(y);
        if (r >= GRAD_WARM)
            times[r - GRAD_WARM] = time;
    }
    bench_out(name,
              bench_median(times, GRAD_ROUNDS - GRAD_WARM) / (2 * LENGTH) * 1e9,
              "ns");
}

void bench_autograd(void)
{
    fixture f = {
        .x = bench_requires_grad(bench_ones1()),
        .one = bench_ones1(),
        .half = bench_full((const int64_t[]){1}, 1, 0.5f),
    };

    chain_phases(&f);
    chain_no_grad(&f);
    chain_backward(&f, "ad.mul_only_chain_bwd_per_node", link_mul, LENGTH);
    chain_backward(&f, "ad.add_only_chain_bwd_per_node", link_add, LENGTH);
    chain_backward(&f, "ad.neg_chain_bwd_per_node", link_neg, LENGTH);
    chain_backward(&f, "ad.fanin2_add(y,y)_bwd_per_node", link_add_self,
                   LENGTH);
    chain_backward(&f, "ad.fanin2_mul(y,y)_bwd_per_node", link_mul_self,
                   LENGTH);
    chain_backward(&f, "ad.single_node_backward_call", link_mul, 1);
    leaves(&f);
    chain_grad(&f, "ad.chain_grad()_per_node", 0);
    chain_grad(&f, "ad.chain_grad_create_graph_per_node",
               CORE_RETAIN_GRAPH | CORE_CREATE_GRAPH);
    core_tensor_release(f.x);
    core_tensor_release(f.one);
    core_tensor_release(f.half);
    bench_jacobians();
}
