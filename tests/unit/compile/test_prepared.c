/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Prepared calls: what they share and reuse, who may make them at once, and when
 * operators are called instead. */

#include "support/compiled.h"

#include "base/memory.h"
#include "compile/compiled/compiled.h"
#include "compile/prepare/prepared.h"
#include "compile/passes/recompute.h"
#include "dispatch/operator.h"
#include "ops_ids.h"

#include <libcore/dispatch.h>
#include <libcore/memory.h>
#include <libcore/optim.h>
#include <libcore/function.h>
#include <libcore/stream.h>

#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 4 };

static bool on_sim_now(void)
{
    return strcmp(core_device_type(program_device), "sim") == 0;
}

static core_program *program_of(core_compiled *compiled)
{
    for (uint32_t i = 0; i < compiled->limit; i++)
        if (compiled->entries[i])
            return compiled->entries[i]->program;
    return NULL;
}

static const core__prepared_facts *facts_of(core_compiled *compiled)
{
    const char *reason;
    static core__prepared_facts copy; /* without what it points to */
    core__prepared_facts *facts =
        core__prepared_describe(program_of(compiled), &reason);

    ck_assert_msg(facts != NULL, "not prepared: %s", reason);
    copy = *facts;
    core__prepared_facts_release(facts);
    return &copy;
}

/* Fills the arenas with NaNs: a call must not read what an earlier one left. */
static void poison(core_compiled *compiled)
{
    core__prepared_calls *calls = program_of(compiled)->prepared;

    for (int i = 0; i < CORE__PREPARED_SETS; i++) {
        core__prepared *set = calls->sets[i];

        if (set && set->arena)
            OK(core_fill_(set->arena, core_int(255)));
    }
}

/* Both worlds, several calls, other inputs from the second on. */
static core_compiled *compare_poisoned(core_tensor_function function,
                                       world (*make)(void))
{
    world eager = make(), traced = make();
    core_compiled *compiled = compile_fully(function, &traced);

    for (int i = 0; i < CALLS; i++) {
        same_call(function, &eager, compiled, &traced);
        poison(compiled);
        if (i == 1) {
            eager.inputs[0] = NUMBERS(&eager, 900, 4, 5);
            traced.inputs[0] = NUMBERS(&traced, 900, 4, 5);
        }
    }
    return compiled;
}

static world two(void)
{
    return world_of(2, 4, 5);
}

/* -------------------------------------------------------------- results -- */

/* Views of intermediate results, dropout, a product, a reduction. */
COMPILED_FUNCTION(mixed)
{
    core_tensor *t = NULL, *m = NULL, *d = NULL, *s = NULL;
    core_status status = core_transpose(x[1], 0, 1, &t);

    if (status == CORE_OK)
        status = core_mm(x[0], t, &m);
    if (status == CORE_OK)
        status = core_dropout(m, .5, true, &d);
    if (status == CORE_OK)
        status = core_sum_dim(d, (int64_t[]){1}, 1, true, CORE_DTYPE_NONE, &s);
    if (status == CORE_OK)
        status = core_mul(d, s, &out[0]);
    if (status == CORE_OK)
        status = core_transpose(out[0], 0, 1, &out[1]);
    core_tensor_release(t);
    core_tensor_release(m);
    core_tensor_release(d);
    core_tensor_release(s);
    *noutputs = 2;
    return status;
}

START_TEST(calls_do_not_depend_on_what_the_arena_has)
{
    core_compiled *compiled = compare_poisoned(mixed, two);

    ck_assert_uint_eq(facts_of(compiled)->nunprepared, 0);
    ck_assert_uint_gt(facts_of(compiled)->arena_size, 0);
    EXPLAINS(compiled, "\"executor\": \"prepared\"");
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(chain)
{
    core_tensor *a = NULL, *b = NULL;
    core_status status = core_mul(x[0], x[1], &a);

    if (status == CORE_OK)
        status = core_add(a, x[0], core_int(1), &b);
    if (status == CORE_OK)
        status = core_relu(b, &out[0]);
    core_tensor_release(a);
    core_tensor_release(b);
    *noutputs = 1;
    return status;
}

/* The number of allocations that may succeed before the call does. */
static int allocations(core_status (*call)(world *w), world *w)
{
    for (int n = 0;; n++) {
        core_status status;

        core__alloc_fault_set(n, true);
        status = call(w);
        core__alloc_fault_set(-1, false);
        if (status == CORE_OK)
            return n;
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_int_lt(n, 50);
    }
}

static core_compiled *measured;

static core_status call_compiled(world *w)
{
    core_tensor *out;
    core_status status =
        core_compiled_call(measured, w->inputs, w->ninputs, &out, 1);

    core_tensor_release(out);
    return status;
}

static core_status make_output(world *w)
{
    core_tensor *out;
    core_status status =
        core_empty_like(w->inputs[0], CORE_DTYPE_NONE, NULL, -1, &out);

    core_tensor_release(out);
    return status;
}

START_TEST(only_outputs_are_allocated)
{
    world w = two();

    measured = compile_with(
        chain, &w,
        (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH,
                               .codegen = CORE_COMPILE_CODEGEN_OFF});
    OK(call_compiled(&w));
    ck_assert_uint_eq(facts_of(measured)->nodes, 3);
    ck_assert_uint_eq(facts_of(measured)->launches, 3);
    if (!on_sim_now()) /* it copies each call */
        ck_assert_int_eq(allocations(call_compiled, &w),
                         allocations(make_output, &w));
    core_compiled_release(measured);
}
END_TEST

/* ---------------------------------------------------------------- writes -- */

COMPILED_FUNCTION(momentum)
{
    core_tensor *grads[1] = {x[0]};
    core_status status =
        core_fused_sgd_step(&x[1], 1, grads, 1, w->hidden, 1, .5, .5, 0, 0,
                            false, false, NULL, NULL);

    if (status == CORE_OK)
        status = core_neg(x[0], &out[0]);
    *noutputs = 1;
    return status;
}

static world with_state(void)
{
    world w = world_of(2, 4, 5);

    w.nhidden = 1;
    w.hidden[0] = NUMBERS(&w, 500, 4, 5);
    return w;
}

START_TEST(an_optimizer_writes_parameters_and_states_in_place)
{
    core_compiled *compiled = compare_poisoned(momentum, with_state);

    /* One kernel of the optimizer, and one for the output. */
    ck_assert_uint_eq(facts_of(compiled)->launches, 2);
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(adds_in_place)
{
    core_status status = core_add_(x[1], x[0], core_float(.5));

    if (status == CORE_OK)
        status = core_mul(x[1], x[0], &out[0]);
    *noutputs = 1;
    return status;
}

START_TEST(a_written_input_takes_the_new_value_without_a_copy)
{
    core_compiled *compiled = compare_poisoned(adds_in_place, two);
    world w = two();
    core_tensor *out;
    uint32_t before = core_tensor_version(w.inputs[1]);

    ck_assert_uint_eq(facts_of(compiled)->launches, 2);
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    ck_assert_uint_gt(core_tensor_version(w.inputs[1]), before);
    core_compiled_release(compiled);
}
END_TEST

/* The old content is read after the new one is computed. */
COMPILED_FUNCTION(reads_later)
{
    core_tensor *old = NULL;
    core_status status = core_clone(x[1], -1, &old);

    if (status == CORE_OK)
        status = core_add_(x[1], x[0], core_int(1));
    if (status == CORE_OK)
        status = core_mul(old, x[1], &out[0]);
    core_tensor_release(old);
    *noutputs = 1;
    return status;
}

START_TEST(the_old_content_is_kept_for_those_who_read_it_later)
{
    core_compiled_release(compare_poisoned(reads_later, two));
}
END_TEST

COMPILED_FUNCTION(swaps)
{
    core_tensor *old = NULL;
    core_status status = core_clone(x[0], -1, &old);

    if (status == CORE_OK)
        status = core_copy_(x[0], x[1], false);
    if (status == CORE_OK)
        status = core_copy_(x[1], old, false);
    if (status == CORE_OK)
        status = core_sub(x[0], x[1], core_int(1), &out[0]);
    core_tensor_release(old);
    *noutputs = 1;
    return status;
}

START_TEST(inputs_are_swapped)
{
    core_compiled_release(compare_poisoned(swaps, two));
}
END_TEST

/* The kernel reads the elements in another order than it writes them. */
COMPILED_FUNCTION(reads_transposed)
{
    core_tensor *t = NULL, *sum = NULL;
    core_status status = core_transpose(x[0], 0, 1, &t);

    if (status == CORE_OK)
        status = core_add(x[0], t, core_int(1), &sum);
    if (status == CORE_OK)
        status = core_copy_(x[0], sum, false);
    if (status == CORE_OK)
        status = core_neg(x[0], &out[0]);
    core_tensor_release(t);
    core_tensor_release(sum);
    *noutputs = 1;
    return status;
}

START_TEST(an_input_is_not_written_while_it_is_read_in_another_order)
{
    world eager = two(), traced = two();
    core_compiled *compiled = compile_fully(reads_transposed, &traced);

    eager.inputs[0] = NUMBERS(&eager, 3, 6, 6);
    traced.inputs[0] = NUMBERS(&traced, 3, 6, 6);
    for (int i = 0; i < CALLS; i++)
        same_call(reads_transposed, &eager, compiled, &traced);
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- memory -- */

enum { LAYERS = 4, WIDTH = 128 };

/* Gradients of all layers, then the updates: x[0] is the batch. */
COMPILED_FUNCTION(deep_step)
{
    core_tensor *h[LAYERS + 1] = {x[0]}, *m[LAYERS] = {NULL};
    core_tensor *grads[LAYERS] = {NULL}, *loss = NULL;
    core_status status = CORE_OK;

    for (int i = 0; i < LAYERS && status == CORE_OK; i++) {
        status = core_mm(h[i], x[i + 1], &m[i]);
        if (status == CORE_OK)
            status = core_tanh(m[i], &h[i + 1]);
    }
    if (status == CORE_OK)
        status = core_sum(h[LAYERS], CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, &x[1], LAYERS, 0, grads);
    core_grad_mode_set(false);
    for (int i = 0; i < LAYERS && status == CORE_OK; i++)
        status = core_add_(x[i + 1], grads[i], core_float(-.01));
    core_grad_mode_set(true);
    if (status == CORE_OK)
        status = core_detach(loss, &out[0]);
    for (int i = 0; i < LAYERS; i++) {
        core_tensor_release(h[i + 1]);
        core_tensor_release(m[i]);
        core_tensor_release(grads[i]);
    }
    core_tensor_release(loss);
    *noutputs = 1;
    return status;
}

static world deep(void)
{
    world w = {.device = program_device, .ninputs = LAYERS + 1};

    for (int i = 0; i <= LAYERS; i++) {
        OK(core_full((int64_t[]){WIDTH, WIDTH}, 2, core_float(.01 * (i + 1)),
                     CORE_F32, w.device, &w.inputs[i]));
        keep(w.inputs[i]);
        if (i)
            leaf(w.inputs[i]);
    }
    return w;
}

/* What a call needs besides what exists before it. */
static uint64_t peak_of(core_status (*call)(world *w), world *w)
{
    core_memory_stats stats = {.struct_size = sizeof stats};
    uint64_t before;

    OK(call(w));
    OK(core_device_synchronize(program_device));
    OK(core_memory_reset_peaks(program_device));
    OK(core_memory_get_stats(program_device, &stats));
    before = stats.allocated_bytes[CORE_MEMORY_ALL].current;
    OK(call(w));
    OK(core_device_synchronize(program_device));
    stats.struct_size = sizeof stats;
    OK(core_memory_get_stats(program_device, &stats));
    return stats.allocated_bytes[CORE_MEMORY_ALL].peak - before;
}

static core_status call_deep(world *w)
{
    core_tensor *out = NULL;
    size_t count = 1;
    core_status status = deep_step(w, w->inputs, w->ninputs, &out, &count);

    core_tensor_release(out);
    return status;
}

/* The arena of the measured program is given up, so that it counts again. */
static core_status call_deep_compiled(world *w)
{
    core__prepared_calls *calls;

    CORE_TRY(call_compiled(w));
    calls = program_of(measured)->prepared;
    for (int i = 0; i < CORE__PREPARED_SETS; i++)
        core__prepared_free(atomic_exchange(&calls->sets[i], NULL));
    return CORE_OK;
}

START_TEST(a_step_needs_less_memory_than_the_function)
{
    world eager = deep(), traced = deep();
    uint64_t least, most;

    measured = compile_fully(deep_step, &traced);
    for (int i = 0; i < CALLS; i++)
        same_call(deep_step, &eager, measured, &traced);
    if (on_sim_now()) {
        most = peak_of(call_deep, &eager);
        least = peak_of(call_deep_compiled, &traced);
        ck_assert_msg(5 * least <= 4 * most, "%llu bytes, not %llu",
                      (unsigned long long)least, (unsigned long long)most);
    }
    core_compiled_release(measured);
}
END_TEST

enum { ROWS = 2048, COLUMNS = 128 };

/* Two layers after a norm whose input is computed; x[0] is the batch, and the
 * others are weights.  The gradient of x[2] reads the output of the norm again. */
COMPILED_FUNCTION(norm_step)
{
    core_tensor *m = NULL, *n = NULL, *h = NULL, *a = NULL, *y = NULL;
    core_tensor *loss = NULL, *grads[3] = {NULL};
    core_status status = core_mm(x[0], x[1], &m);

    if (status == CORE_OK)
        status =
            core_layer_norm(m, (int64_t[]){COLUMNS}, 1, NULL, NULL, 1e-5, &n);
    if (status == CORE_OK)
        status = core_mm(n, x[2], &h);
    if (status == CORE_OK)
        status = core_gelu(h, "none", &a);
    if (status == CORE_OK)
        status = core_mm(a, x[3], &y);
    if (status == CORE_OK)
        status = core_mean(y, CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, &x[1], 3, 0, grads);
    core_grad_mode_set(false);
    for (int i = 0; i < 3 && status == CORE_OK; i++)
        status = core_add_(x[i + 1], grads[i], core_float(-.01));
    core_grad_mode_set(true);
    if (status == CORE_OK)
        status = core_detach(loss, &out[0]);
    for (int i = 0; i < 3; i++)
        core_tensor_release(grads[i]);
    core_tensor_release(m);
    core_tensor_release(n);
    core_tensor_release(h);
    core_tensor_release(a);
    core_tensor_release(y);
    core_tensor_release(loss);
    *noutputs = 1;
    return status;
}

static world normed(void)
{
    static float data[ROWS * COLUMNS];
    world w = {.device = program_device, .ninputs = 4};

    for (size_t i = 0; i < w.ninputs; i++) {
        int64_t sizes[] = {i == 0 ? ROWS : COLUMNS, COLUMNS};

        for (int k = 0; k < ROWS * COLUMNS; k++)
            data[k] = (float)sin(k * (1. + (double)i)) / 64;
        OK(core_tensor_from_data(data, CORE_F32, sizes, 2, w.device,
                                 &w.inputs[i]));
        keep(w.inputs[i]);
        if (i)
            leaf(w.inputs[i]);
    }
    return w;
}

/* The calls of norm_step with this budget; with the bits of the function. */
static core__prepared_facts facts_with(uint64_t budget)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_FULLGRAPH,
                                    .recompute_budget = budget};
    world eager = normed(), traced = normed();
    core__prepared_facts facts;
    core_compiled *compiled;

    OK(core_compile(norm_step, &traced, &options, &compiled));
    for (int i = 0; i < 2; i++)
        same_call(norm_step, &eager, compiled, &traced);
    facts = *facts_of(compiled);
    core_compiled_release(compiled);
    return facts;
}

START_TEST(a_layer_norm_is_computed_again_instead_of_kept)
{
    core__prepared_facts again = facts_with(0), kept = facts_with(UINT64_MAX);

    ck_assert_uint_eq(kept.recomputed, 0);
    ck_assert_uint_gt(again.recomputed, 0);
    ck_assert_uint_eq(again.nodes, kept.nodes);
    ck_assert_msg(again.arena_size < kept.arena_size, "%llu bytes, not %llu",
                  (unsigned long long)again.arena_size,
                  (unsigned long long)kept.arena_size);
}
END_TEST

START_TEST(a_program_that_computes_again_needs_memory_to_be_made)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .recompute_budget = UINT64_MAX};
    world w = normed();
    core_program *made = NULL;
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    core_compiled *compiled;
    core_tensor *out;
    int failures = -1;

    OK(core_compile(norm_step, &w, &options, &compiled));
    OK(core_compiled_call(compiled, w.inputs, w.ninputs, &out, 1));
    while (status == CORE_ERROR_OUT_OF_MEMORY) {
        core__alloc_fault_set(++failures, true);
        status = core__program_recompute(program_of(compiled), &made);
        core__alloc_fault_set(-1, false);
        ck_assert(status == CORE_OK || !made);
    }
    OK(status);
    ck_assert_int_gt(failures, 2);
    ck_assert_ptr_nonnull(made);
    core__program_recomputed_free(made);
    core_tensor_release(out);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_chain_is_computed_in_the_memory_of_its_output)
{
    core_compiled *compiled = compare_poisoned(chain, two);

    ck_assert_uint_eq(facts_of(compiled)->arena_size, CORE__PLAN_ALIGNMENT);
    core_compiled_release(compiled);
}
END_TEST

/* ------------------------------------------------------------ dispatcher -- */

/* No call of an operator is served between these. */
static core_operator *saved;

static void close_dispatcher(void)
{
    saved = core__alloc(CORE_OP_COUNT * sizeof *saved);
    ck_assert_ptr_nonnull(saved);
    memcpy(saved, core__operators, CORE_OP_COUNT * sizeof *saved);
    for (int i = 0; i < CORE_OP_COUNT; i++) {
        core__operators[i].key_path = CORE__KEY_PATH_NONE;
        core__operators[i].mask = 0;
    }
}

static void open_dispatcher(void)
{
    for (int i = 0; i < CORE_OP_COUNT; i++) {
        core__operators[i].key_path = saved[i].key_path;
        core__operators[i].mask = saved[i].mask;
    }
    core__free(saved);
}

static void call_without_dispatcher(core_tensor_function function, world w,
                                    uint32_t codegen)
{
    core_tensor *out = NULL;
    core_status eager, compiled_status;
    size_t count = 1;

    measured =
        compile_with(function, &w,
                     (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH,
                                            .codegen = codegen});
    OK(call_compiled(&w));
    close_dispatcher();
    eager = function(&w, w.inputs, w.ninputs, &out, &count);
    compiled_status = call_compiled(&w);
    open_dispatcher();
    ck_assert_int_eq(eager, CORE_ERROR_INVALID_ARGUMENT);
    OK(compiled_status);
    core_compiled_release(measured);
}

START_TEST(calls_do_not_enter_the_dispatcher)
{
    call_without_dispatcher(chain, two(), CORE_COMPILE_CODEGEN_OFF);
    call_without_dispatcher(chain, two(), CORE_COMPILE_CODEGEN_ON);
    call_without_dispatcher(deep_step, deep(), CORE_COMPILE_CODEGEN_AUTO);
}
END_TEST

/* The call and its backward. */
static core_status train_compiled(world *w, core_tensor *gradient)
{
    core_tensor *out = NULL, *gradients[2] = {NULL};
    core_status status =
        core_compiled_call(measured, w->inputs, w->ninputs, &out, 1);

    if (status == CORE_OK)
        status = core_grad(&out, 1, &gradient, w->inputs, 2, 0, gradients);
    core_tensor_release(out);
    release_tensors(gradients, 2);
    return status;
}

START_TEST(training_does_not_enter_the_dispatcher)
{
    world w = two();
    core_tensor *gradient = NUMBERS(&w, 70, 4, 5);
    core_status status;

    leaf(w.inputs[0]);
    leaf(w.inputs[1]);
    measured = compile_fully(chain, &w);
    OK(train_compiled(&w, gradient));
    close_dispatcher();
    status = train_compiled(&w, gradient);
    open_dispatcher();
    OK(status);
    core_compiled_release(measured);
}
END_TEST

/* The first call prepares the program; later ones find it ready. */
START_TEST(the_time_of_preparing_is_counted)
{
    world w = two();
    core_compiled *compiled = compile_fully(chain, &w);
    uint64_t before = compile_counts().prepare_ns, first;
    core_tensor *out;

    call_world(chain, &w, compiled, 1, &out);
    core_tensor_release(out);
    first = compile_counts().prepare_ns;
    ck_assert_uint_gt(first, before);
    call_world(chain, &w, compiled, 1, &out);
    core_tensor_release(out);
    ck_assert_uint_eq(compile_counts().prepare_ns, first);
    core_compiled_release(compiled);
}
END_TEST

/* ------------------------------------------------------ at the same time -- */

enum { THREADS = 4, THREAD_CALLS = 40 };

static core_compiled *shared;

static void *call_on_a_stream(void *context)
{
    core_stream *stream = NULL;

    if (on_sim_now()) {
        OK(core_stream_create(program_device, &stream));
        OK(core_stream_set_current(stream));
    }
    for (int i = 0; i < THREAD_CALLS; i++) {
        core_tensor *given[2], *a[2] = {NULL}, *b[2] = {NULL};
        size_t count = 1;

        for (int k = 0; k < 2; k++)
            OK(core_full((int64_t[]){4, 5}, 2,
                         core_float(i + k + *(const int *)context), CORE_F32,
                         program_device, &given[k]));
        OK(core_compiled_call(shared, given, 2, a, 1));
        OK(chain(NULL, given, 2, b, &count));
        same_bits("output", 0, b[0], a[0]);
        core_tensor_release(a[0]);
        core_tensor_release(b[0]);
        core_tensor_release(given[0]);
        core_tensor_release(given[1]);
    }
    core_stream_release(stream);
    return NULL;
}

START_TEST(threads_and_streams_do_not_share_an_arena)
{
    world w = two();
    pthread_t threads[THREADS];
    int numbers[THREADS];

    shared = compile_fully(chain, &w);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = 100 * i;
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, call_on_a_stream, &numbers[i]),
            0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    core_compiled_release(shared);
}
END_TEST

START_TEST(a_thread_changes_between_streams)
{
    world w = two();
    core_stream *streams[CORE__PREPARED_SETS + 2];
    core_tensor *a[1], *b[1];
    size_t count = 1;

    if (!on_sim_now())
        return;
    shared = compile_fully(chain, &w);
    OK(chain(&w, w.inputs, 2, b, &count));
    for (int i = 0; i < CORE__PREPARED_SETS + 2; i++)
        OK(core_stream_create(program_device, &streams[i]));
    OK(core_device_synchronize(program_device));
    for (int i = 0; i < 30; i++) {
        OK(core_stream_set_current(streams[i % (CORE__PREPARED_SETS + 2)]));
        OK(core_compiled_call(shared, w.inputs, 2, a, 1));
        same_bits("output", 0, b[0], a[0]);
        core_tensor_release(a[0]);
    }
    for (int i = 0; i < CORE__PREPARED_SETS + 2; i++)
        core_stream_release(streams[i]);
    core_tensor_release(b[0]);
    core_compiled_release(shared);
}
END_TEST

START_TEST(a_child_process_calls)
{
    world w = two();
    core_tensor *out;
    int result;
    pid_t child;

    if (on_sim_now())
        return;
    shared = compile_fully(chain, &w);
    OK(core_compiled_call(shared, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    child = fork();
    if (child == 0)
        _exit(core_compiled_call(shared, w.inputs, 2, &out, 1) != CORE_OK);
    ck_assert_int_eq(waitpid(child, &result, 0), child);
    ck_assert_int_eq(result, 0);
    OK(core_compiled_call(shared, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    core_compiled_release(shared);
}
END_TEST

/* ---------------------------------------------------------------- errors -- */

COMPILED_FUNCTION(selects)
{
    *noutputs = 1;
    return core_index_select(x[0], 0, x[1], &out[0]);
}

static core_tensor *indices(const world *w, int64_t last)
{
    int64_t values[2] = {1, last};
    core_tensor *tensor;

    OK(core_tensor_from_data(values, CORE_I64, (int64_t[]){2}, 1, w->device,
                             &tensor));
    return keep(tensor);
}

START_TEST(an_error_of_a_kernel_is_that_of_the_operator)
{
    world w = two();
    core_compiled *compiled = compile_fully(selects, &w);
    char message[512];
    core_tensor *out = NULL;
    size_t count = 1;

    if (on_sim_now()) { /* it fails later */
        core_compiled_release(compiled);
        return;
    }
    w.inputs[1] = indices(&w, 2);
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    w.inputs[1] = indices(&w, 77);
    ck_assert_int_ne(selects(&w, w.inputs, 2, &out, &count), CORE_OK);
    snprintf(message, sizeof message, "%s", core_error_message());
    ck_assert_int_ne(core_compiled_call(compiled, w.inputs, 2, &out, 1),
                     CORE_OK);
    ck_assert_str_eq(core_error_message(), message);
    ck_assert_ptr_null(out);
    core_error_clear();
    w.inputs[1] = indices(&w, 3);
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    core_compiled_release(compiled);
}
END_TEST

/* An output that is written twice before the call fails. */
COMPILED_FUNCTION(writes_and_selects)
{
    core_status status =
        core_add_scalar(x[0], core_int(1), core_int(1), &out[0]);

    if (status == CORE_OK)
        status = core_mul_scalar_(out[0], core_int(2));
    if (status == CORE_OK)
        status = core_index_select(x[0], 0, x[1], &out[1]);
    *noutputs = 2;
    return status;
}

START_TEST(memory_of_a_failed_call_has_numbers_again)
{
    world w = two();
    core_compiled *compiled = compile_fully(writes_and_selects, &w);
    core_tensor *out[2];

    w.inputs[1] = indices(&w, 2);
    OK(core_compiled_call(compiled, w.inputs, 2, out, 2));
    core_tensor_release(out[0]);
    core_tensor_release(out[1]);
    w.inputs[1] = indices(&w, 77);
    if (!on_sim_now())
        ck_assert_int_ne(core_compiled_call(compiled, w.inputs, 2, out, 2),
                         CORE_OK);
    for (int i = 0; i < 2; i++) {
        OK(core_empty((int64_t[]){4, 5}, 2, w.inputs[0]->dtype, w.device, 0,
                      &out[i]));
        ck_assert(!core__storage_varies(out[i]->storage));
    }
    core_tensor_release(out[0]);
    core_tensor_release(out[1]);
    core_compiled_release(compiled);
}
END_TEST

/* -------------------------------------------------- operators are called -- */

static int seen;

static core_status sees_relu(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    core_tensor *out;

    (void)call;
    (void)nargs;
    (void)nresults;
    seen++;
    CORE_TRY(core_neg(args[0].u.tensor, &out));
    results[0] = core_pack_tensor(out);
    return CORE_OK;
}

START_TEST(a_function_that_is_registered_later_is_called)
{
    world eager = two(), traced = two();
    core_compiled *compiled = compile_fully(chain, &traced);
    core_registration *registration;

    same_call(chain, &eager, compiled, &traced);
    OK(core_function_register("relu", CORE_KEY_BACKEND,
                              core_device_type(program_device), sees_relu, NULL,
                              &registration));
    seen = 0;
    same_call(chain, &eager, compiled, &traced);
    ck_assert_int_eq(seen, 2);
    EXPLAINS(compiled, "a function is registered for it");
    core_registration_release(registration);
    same_call(chain, &eager, compiled, &traced);
    ck_assert_int_eq(seen, 2);
    EXPLAINS(compiled, "\"called_as_operators\": []");
    core_compiled_release(compiled);
}
END_TEST

static core_status twice(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core_tensor *out;

    (void)call;
    (void)nargs;
    (void)nresults;
    seen++;
    CORE_TRY(core_add(args[0].u.tensor, args[0].u.tensor, core_int(1), &out));
    results[0] = core_pack_tensor(out);
    return CORE_OK;
}

/* A custom operator on a view of an intermediate result, between kernels. */
COMPILED_FUNCTION(with_custom)
{
    core_tensor *a = NULL, *t = NULL;
    core_value args[1], result = {0};
    core_operator *op;
    core_status status = core_op_find("mine::twice", &op);

    if (status == CORE_OK)
        status = core_mul(x[0], x[1], &a);
    if (status == CORE_OK)
        status = core_transpose(a, 0, 1, &t);
    args[0] = core_pack_tensor(t);
    if (status == CORE_OK)
        status = core_op_call(op, args, 1, &result, 1);
    if (status == CORE_OK)
        status = core_transpose(result.u.tensor, 0, 1, &out[1]);
    if (status == CORE_OK)
        status = core_add(out[1], x[0], core_int(1), &out[0]);
    core_value_release(&result);
    core_tensor_release(a);
    core_tensor_release(t);
    *noutputs = 2;
    return status;
}

START_TEST(custom_operators_are_called_between_kernels)
{
    core_registration *made[3];
    core_compiled *compiled;

    OK(core_op_register("mine::twice(Tensor self) -> Tensor", &made[0]));
    OK(core_function_register("mine::twice", CORE_KEY_BACKEND,
                              core_device_type(program_device), twice, NULL,
                              &made[1]));
    OK(core_shape_register("mine::twice", twice, NULL, &made[2]));
    compiled = compare_poisoned(with_custom, two);
    ck_assert_uint_eq(facts_of(compiled)->nunprepared, 1);
    EXPLAINS(compiled, "\"operator\": \"mine::twice\"");
    EXPLAINS(compiled, "operator of a program or plugin");
    core_compiled_release(compiled);
    for (int i = 3; i-- > 0;)
        core_registration_release(made[i]);
}
END_TEST

/* A set of prepared calls is made when an input is the hidden input; later it
 * is another tensor. */
COMPILED_FUNCTION(less_hidden)
{
    *noutputs = 1;
    return core_sub(x[0], w->hidden[0], core_int(1), &out[0]);
}

static world one_and_hidden(void)
{
    world w = world_of(1, 4, 5);

    w.hidden[0] = NUMBERS(&w, 300, 4, 5);
    w.nhidden = 1;
    return w;
}

/* Sets are made again. */
static core_registration *register_relu(void)
{
    core_registration *made;

    OK(core_function_register("relu", CORE_KEY_BACKEND,
                              core_device_type(program_device), sees_relu, NULL,
                              &made));
    return made;
}

START_TEST(an_input_that_was_the_hidden_input_is_another_tensor_later)
{
    world eager = one_and_hidden(), traced = one_and_hidden();
    core_compiled *compiled = compile_fully(less_hidden, &traced);
    core_tensor *eager_input = eager.inputs[0];
    core_tensor *traced_input = traced.inputs[0];
    core_registration *made;

    same_call(less_hidden, &eager, compiled, &traced);
    made = register_relu();
    eager.inputs[0] = eager.hidden[0];
    traced.inputs[0] = traced.hidden[0];
    same_call(less_hidden, &eager, compiled, &traced);
    eager.inputs[0] = eager_input;
    traced.inputs[0] = traced_input;
    same_call(less_hidden, &eager, compiled, &traced);
    core_registration_release(made);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(an_earlier_error_of_the_thread_stays_when_calls_are_prepared)
{
    world w = one_and_hidden();
    core_compiled *compiled = compile_fully(less_hidden, &w);
    core_tensor *wide = NUMBERS(&w, 1, 7, 3), *out;
    core_registration *made = NULL;

    for (int i = 0; i < 2; i++) {
        ck_assert_int_ne(core_add(wide, w.inputs[0], core_int(1), &out),
                         CORE_OK);
        OK(core_compiled_call(compiled, w.inputs, 1, &out, 1));
        core_tensor_release(out);
        ck_assert_int_ne(core_error_code(), CORE_OK);
        if (i == 0)
            made = register_relu();
    }
    core_registration_release(made);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_pool_gets_the_memory_of_a_call)
{
    world eager = two(), traced = two();
    core_compiled *compiled = compile_fully(chain, &traced);
    core_memory_pool *pool;

    if (on_sim_now()) {
        same_call(chain, &eager, compiled, &traced);
        OK(core_memory_pool_create(program_device, &pool));
        OK(core_memory_pool_begin(pool));
        same_call(chain, &eager, compiled, &traced);
        OK(core_memory_pool_end(pool));
        core_memory_pool_release(pool);
    }
    core_compiled_release(compiled);
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/prepared", calls_do_not_depend_on_what_the_arena_has,
    only_outputs_are_allocated, calls_do_not_enter_the_dispatcher,
    training_does_not_enter_the_dispatcher, the_time_of_preparing_is_counted,
    an_optimizer_writes_parameters_and_states_in_place,
    a_written_input_takes_the_new_value_without_a_copy,
    the_old_content_is_kept_for_those_who_read_it_later, inputs_are_swapped,
    an_input_is_not_written_while_it_is_read_in_another_order,
    a_step_needs_less_memory_than_the_function,
    a_layer_norm_is_computed_again_instead_of_kept,
    a_program_that_computes_again_needs_memory_to_be_made,
    a_chain_is_computed_in_the_memory_of_its_output,
    threads_and_streams_do_not_share_an_arena, a_thread_changes_between_streams,
    a_child_process_calls, an_error_of_a_kernel_is_that_of_the_operator,
    memory_of_a_failed_call_has_numbers_again,
    a_function_that_is_registered_later_is_called,
    custom_operators_are_called_between_kernels,
    an_input_that_was_the_hidden_input_is_another_tensor_later,
    an_earlier_error_of_the_thread_stays_when_calls_are_prepared,
    a_pool_gets_the_memory_of_a_call)
