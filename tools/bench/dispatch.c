/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The dispatcher alone: operators whose kernels do nothing. */

#include "bench.h"

typedef struct fixture {
    bench_operators operators;
    core_tensor *a;
    core_tensor *b;
} fixture;

static core_status nothing(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    (void)call;
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return CORE_OK;
}

static core_status first(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    (void)call;
    (void)nargs;
    (void)nresults;
    results[0] = core_pack_tensor(core_tensor_retain(args[0].u.tensor));
    return CORE_OK;
}

static core_status pass_on(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    return core_redispatch_below(call, args, nargs, results, nresults);
}

static void register_operator(bench_operators *operators, const char *schema)
{
    must(core_op_register(schema, &operators->handles[operators->count++]));
}

static void register_function(bench_operators *operators, const char *name,
                              uint32_t key, const char *device_type,
                              core_function function)
{
    must(core_function_register(name, key, device_type, function, NULL,
                                &operators->handles[operators->count++]));
}

void bench_operators_register(bench_operators *operators)
{
    operators->count = 0;
    register_operator(operators, "bench::void1(Tensor a) -> ()");
    register_operator(operators, "bench::noop(Tensor a, Tensor b) -> Tensor");
    register_operator(operators, "bench::void_ad(Tensor a) -> ()");
    register_function(operators, "bench::void1", CORE_KEY_BACKEND, "cpu",
                      nothing);
    register_function(operators, "bench::noop", CORE_KEY_BACKEND, "cpu", first);
    register_function(operators, "bench::void_ad", CORE_KEY_BACKEND, "cpu",
                      nothing);
    register_function(operators, "bench::void_ad", CORE_KEY_AUTOGRAD, NULL,
                      pass_on);
    must(core_op_find("bench::void1", &operators->void1));
    must(core_op_find("bench::noop", &operators->noop));
    must(core_op_find("bench::void_ad", &operators->void_ad));
}

void bench_operators_release(bench_operators *operators)
{
    while (operators->count > 0)
        core_registration_release(operators->handles[--operators->count]);
}

/* ------------------------------------------------------------------ rows -- */

static inline void call_void1(void *context)
{
    fixture *f = context;
    core_value args[1] = {core_pack_tensor(f->a)};

    must(core_op_invoke_on(f->operators.void1, args, 1, NULL, 0));
}

static inline void call_noop(void *context)
{
    fixture *f = context;
    core_value args[2] = {core_pack_tensor(f->a), core_pack_tensor(f->b)};
    core_value result;

    must(core_op_invoke_on(f->operators.noop, args, 2, &result, 1));
    core_tensor_release(result.u.tensor);
}

static inline void call_void_ad(void *context)
{
    fixture *f = context;
    core_value args[1] = {core_pack_tensor(f->a)};

    must(core_op_invoke_on(f->operators.void_ad, args, 1, NULL, 0));
}

static inline void call_void1_checked(void *context)
{
    fixture *f = context;
    core_value args[1] = {core_pack_tensor(f->a)};

    must(core_op_call(f->operators.void1, args, 1, NULL, 0));
}

static inline void look_up(void *context)
{
    core_operator *op;

    (void)context;
    must(core_op_find("bench::void1", &op));
}

static inline void call_kernel(void *context)
{
    fixture *f = context;
    core_value args[1] = {core_pack_tensor(f->a)};
    core_function volatile function = nothing;

    must(function(NULL, args, 1, NULL, 0));
}

void bench_dispatch(void)
{
    fixture f = {.a = bench_ones1(), .b = bench_ones1()};

    bench_operators_register(&f.operators);
    bench_ns("disp.void1.unboxed", call_void1, &f);
    bench_ns("disp.noop_returns_tensor", call_noop, &f);
    bench_ns("disp.autograd_kernel_then_redispatch", call_void_ad, &f);
    bench_ns("disp.void1.callBoxed", call_void1_checked, &f);
    bench_ns("disp.lookup_findSchema_by_name", look_up, &f);
    bench_ns("disp.plain_C_call_same_kernel", call_kernel, &f);
    bench_operators_release(&f.operators);
    core_tensor_release(f.a);
    core_tensor_release(f.b);
}
