/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators on one element: what remains is the overhead of a call. */

#include "bench.h"

typedef struct fixture {
    core_tensor *a;
    core_tensor *b;
    core_tensor *out;
    core_tensor *grad_a; /* these require grad */
    core_tensor *grad_b;
    core_tensor *matrix; /* 1 x 1 */
    core_operator *add;
    core_operator *add_out;
} fixture;

#define RESULT_ROW(name, call)             \
    static inline void name(void *context) \
    {                                      \
        fixture *f = context;              \
        core_tensor *result;               \
                                           \
        must(call);                        \
        core_tensor_release(result);       \
    }

RESULT_ROW(add, core_add(f->a, f->b, core_int(1), &result))
RESULT_ROW(add_grad, core_add(f->grad_a, f->grad_b, core_int(1), &result))
RESULT_ROW(add_grad_one, core_add(f->grad_a, f->b, core_int(1), &result))
RESULT_ROW(mul, core_mul(f->a, f->b, &result))
RESULT_ROW(mul_grad, core_mul(f->grad_a, f->grad_b, &result))
RESULT_ROW(add_scalar,
           core_add_scalar(f->a, core_float(1), core_int(1), &result))
RESULT_ROW(relu, core_relu(f->a, &result))
RESULT_ROW(exponential, core_exp(f->a, &result))
RESULT_ROW(sum, core_sum(f->a, CORE_DTYPE_NONE, &result))
RESULT_ROW(mm, core_mm(f->matrix, f->matrix, &result))

static inline void add_out(void *context)
{
    fixture *f = context;

    must(core_add_out(f->a, f->b, core_int(1), f->out));
}

static inline void add_in_place(void *context)
{
    fixture *f = context;

    must(core_add_(f->out, f->b, core_int(1)));
}

static inline void add_boxed(void *context)
{
    fixture *f = context;
    core_value args[3] = {core_pack_tensor(f->a), core_pack_tensor(f->b),
                          core_int(1)};
    core_value result;

    must(core_op_call(f->add, args, 3, &result, 1));
    core_value_release(&result);
}

static inline void add_out_boxed(void *context)
{
    fixture *f = context;
    core_value args[4] = {core_pack_tensor(f->a), core_pack_tensor(f->b),
                          core_int(1), core_pack_tensor(f->out)};

    must(core_op_call(f->add_out, args, 4, NULL, 0));
}

static inline void guard_no_grad(void *context)
{
    bool before = core_grad_mode_set(false);

    (void)context;
    __asm__ volatile("" : : : "memory");
    core_grad_mode_set(before);
}

static inline void guard_inference(void *context)
{
    uint64_t before = core_inference_begin();

    (void)context;
    __asm__ volatile("" : : : "memory");
    core_inference_end(before);
}

static void no_grad_rows(fixture *f)
{
    bool before = core_grad_mode_set(false);

    bench_ns("add1.nograd_reqgrad_inputs", add_grad, f);
    core_grad_mode_set(before);
}

static void inference_rows(void)
{
    uint64_t before = core_inference_begin();
    fixture f = {.a = bench_ones1(), .b = bench_ones1(), .out = bench_ones1()};

    bench_ns("add1.inference_mode", add, &f);
    bench_ns("add1_out.inference_mode", add_out, &f);
    bench_ns("add1_.inplace.inference_mode", add_in_place, &f);
    core_tensor_release(f.a);
    core_tensor_release(f.b);
    core_tensor_release(f.out);
    core_inference_end(before);
}

static void set_up(fixture *f)
{
    f->a = bench_ones1();
    f->b = bench_ones1();
    f->out = bench_ones1();
    f->grad_a = bench_requires_grad(bench_ones1());
    f->grad_b = bench_requires_grad(bench_ones1());
    f->matrix = bench_full((const int64_t[]){1, 1}, 2, 1);
    must(core_op_find("add.Tensor", &f->add));
    must(core_op_find("add.out", &f->add_out));
}

static void tear_down(fixture *f)
{
    core_tensor_release(f->a);
    core_tensor_release(f->b);
    core_tensor_release(f->out);
    core_tensor_release(f->grad_a);
    core_tensor_release(f->grad_b);
    core_tensor_release(f->matrix);
}

void bench_micro(void)
{
    fixture f;

    set_up(&f);
    bench_ns("add1.plain", add, &f);
    no_grad_rows(&f);
    inference_rows();
    bench_ns("add1.grad_records_graph", add_grad, &f);
    bench_ns("add1.grad_one_input", add_grad_one, &f);
    bench_ns("mul1.plain", mul, &f);
    bench_ns("mul1.grad_saves_both", mul_grad, &f);
    bench_ns("add1_out.prealloc", add_out, &f);
    bench_ns("add1_.inplace", add_in_place, &f);
    bench_ns("add1.scalar_rhs", add_scalar, &f);
    bench_ns("relu1.plain", relu, &f);
    bench_ns("exp1.plain", exponential, &f);
    bench_ns("sum1.plain", sum, &f);
    bench_ns("mm1x1.plain", mm, &f);
    bench_ns("add1.callBoxed", add_boxed, &f);
    bench_ns("add1_out.callBoxed", add_out_boxed, &f);
    bench_dispatch();
    bench_ns("guard.NoGradGuard", guard_no_grad, NULL);
    bench_ns("guard.InferenceMode", guard_inference, NULL);
    bench_tensors();
    tear_down(&f);
}
