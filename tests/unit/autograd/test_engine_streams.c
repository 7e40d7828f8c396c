/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients between streams: each wait and each record_stream of the engine has
 * a case that fails without it (tools/checks/mutate-engine removes them one by
 * one).  A callback that waits for a gate blocks a stream: whatever waits for
 * that stream stays busy, and memory it still uses is not reused. */

#define SUITE_FORKS true

#include "support/engine_streams.h"

/* ---------------------------------------------------------------- case A -- */

/* Consumer on s[0], producers on s[2] and s[4], all of sim:0. */
typedef struct case_a {
    world world;
    core_tensor *leaf;
    core_tensor *roots[2];
    producer consumer, first, second; /* first: the one that runs first */
} case_a;

static void begin_a(case_a *a, bool two)
{
    core_tensor *y;

    a->consumer.factor = 2;
    a->second.factor = 3;
    a->first.factor = 5;
    begin(&a->world);
    use(a->world.s[0]);
    a->leaf = leaf(filled(1, "sim:0"));
    y = through(&a->consumer, a->leaf, "sim:0");
    if (two) {
        use(a->world.s[4]);
        a->roots[1] = through(&a->second, y, "sim:0");
    }
    use(a->world.s[2]);
    a->roots[0] = through(&a->first, y, "sim:0"); /* newest, runs first */
    callers(&a->world);
    synchronize();
}

START_TEST(consumer_waits_for_stream_of_producer)
{
    case_a a = {0};
    gate gate = GATE;

    begin_a(&a, false);
    hold(a.world.s[2], &gate);
    walk(&a.world, a.roots, 1, 0);
    stays_busy(a.world.s[0]);
    open_gate(&gate);
    is_filled(core_tensor_grad(a.leaf), 10);
    end(&a.world);
}
END_TEST

START_TEST(gradient_is_not_reused_while_consumer_reads_it)
{
    case_a a = {0};
    gate gate = GATE;

    begin_a(&a, false);
    hold(a.world.s[0], &gate);
    walk(&a.world, a.roots, 1, 0);
    ck_assert(!is_reused(a.world.s[2], a.first.memory));
    open_gate(&gate);
    is_filled(core_tensor_grad(a.leaf), 10);
    end(&a.world);
}
END_TEST

/* held: which producer's stream is blocked. */
static void two_producers_a(int held)
{
    case_a a = {0};
    gate gate = GATE;

    begin_a(&a, true);
    hold(a.world.s[held], &gate);
    walk(&a.world, a.roots, 2, 0);
    stays_busy(a.world.s[0]);
    open_gate(&gate);
    is_filled(core_tensor_grad(a.leaf), 16);
    end(&a.world);
}

START_TEST(sum_on_consumer_stream_waits_for_first_producer)
{
    two_producers_a(2);
}
END_TEST

START_TEST(sum_on_consumer_stream_waits_for_second_producer)
{
    two_producers_a(4);
}
END_TEST

START_TEST(second_gradient_is_not_reused_while_it_is_summed)
{
    case_a a = {0};
    gate gate = GATE;

    begin_a(&a, true);
    hold(a.world.s[0], &gate);
    walk(&a.world, a.roots, 2, 0);
    ck_assert(!is_reused(a.world.s[2], a.first.memory));
    ck_assert(!is_reused(a.world.s[4], a.second.memory));
    open_gate(&gate);
    is_filled(core_tensor_grad(a.leaf), 16);
    end(&a.world);
}
END_TEST

/* ---------------------------------------------------------------- case B -- */

/* Consumer on s[1] of sim:1; gradients on sim:0, from its s[2] and s[4]. */
typedef struct case_b {
    world world;
    core_tensor *leaf;
    core_tensor *roots[2];
    split consumer;
    producer first, second;
} case_b;

static void begin_b(case_b *b, bool two)
{
    core_tensor *y;

    b->second.factor = 3;
    b->first.factor = 5;
    begin(&b->world);
    use(b->world.s[1]);
    b->leaf = leaf(filled(1, "sim:1"));
    y = split_of(&b->consumer, b->leaf);
    if (two) {
        use(b->world.s[4]);
        b->roots[1] = through(&b->second, y, "sim:0");
    }
    use(b->world.s[2]);
    b->roots[0] = through(&b->first, y, "sim:0");
    callers(&b->world);
    synchronize();
}

/* The gradient is on the producer's device, the consumer on another. */
static void check_blocked_b(bool two, int held)
{
    case_b b = {0};
    gate gate = GATE;

    begin_b(&b, two);
    hold(b.world.s[held], &gate);
    walk(&b.world, b.roots, two ? 2 : 1, 0);
    stays_busy(b.world.s[1]);
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(b.leaf), two ? 8 : 5);
    end(&b.world);
}

START_TEST(consumer_on_another_device_waits_for_producer)
{
    check_blocked_b(false, 2);
}
END_TEST

START_TEST(consumer_waits_for_sum_on_producer_stream)
{
    check_blocked_b(true, 4);
}
END_TEST

START_TEST(sum_runs_on_stream_of_first_producer)
{
    check_blocked_b(true, 2);
}
END_TEST

/* Even if the producer leaves another stream current. */
START_TEST(sum_runs_on_producer_stream_and_not_on_current_stream)
{
    case_b b = {0};
    gate gate = GATE;

    begin_b(&b, true);
    b.first.leaves = b.world.s[6];
    hold(b.world.s[2], &gate);
    walk(&b.world, b.roots, 2, 0);
    OK(core_stream_query(b.world.s[6])); /* got no work */
    ck_assert_ptr_eq(current_of("sim:0"), b.world.before[0]);
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(b.leaf), 8);
    end(&b.world);
}
END_TEST

/* The caller's current stream is restored as well. */
START_TEST(node_that_changes_current_stream_has_no_effect_on_caller)
{
    producer producer = {.factor = 2};
    core_tensor *a, *y;
    world world;

    begin(&world);
    producer.leaves = world.s[0];
    a = leaf(filled(1, "sim:0"));
    y = through(&producer, a, "sim:0");
    walk(&world, &y, 1, 0);
    ck_assert_ptr_eq(current_of("sim:0"), world.before[0]);
    is_filled(core_tensor_grad(a), 2);
    end(&world);
}
END_TEST

START_TEST(second_gradient_is_not_reused_while_first_producer_stream_sums)
{
    case_b b = {0};
    gate gate = GATE;

    begin_b(&b, true);
    hold(b.world.s[2], &gate);
    walk(&b.world, b.roots, 2, 0);
    ck_assert(!is_reused(b.world.s[4], b.second.memory));
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(b.leaf), 8);
    end(&b.world);
}
END_TEST

/* ---------------------------------------------------------------- case C -- */

/* Consumer on s[1], producers on s[3] and s[5], all of sim:1; gradients on
 * sim:0, from s[2] and s[4]; the caller's current stream of sim:0 is s[0]. */
typedef struct case_c {
    world world;
    core_tensor *leaf;
    core_tensor *roots[2];
    split consumer;
    producer first, second;
} case_c;

static void begin_c(case_c *c, bool two, bool untouched)
{
    core_tensor *y;

    begin(&c->world);
    c->consumer.untouched = untouched;
    c->first.factor = 5;
    c->first.elsewhere = c->world.s[2];
    c->second.factor = 3;
    c->second.elsewhere = c->world.s[4];
    use(c->world.s[1]);
    c->leaf = leaf(filled(1, "sim:1"));
    y = split_of(&c->consumer, c->leaf);
    if (two) {
        use(c->world.s[5]);
        c->roots[1] = through(&c->second, y, "sim:1");
    }
    use(c->world.s[3]);
    c->roots[0] = through(&c->first, y, "sim:1");
    callers(&c->world);
    use(c->world.s[0]);
    synchronize();
}

/* waits: the stream that must be busy besides the consumer's. */
static void check_blocked_c(bool two, int held, int waits)
{
    case_c c = {0};
    gate gate = GATE;

    begin_c(&c, two, false);
    hold(c.world.s[held], &gate);
    walk(&c.world, c.roots, two ? 2 : 1, 1);
    stays_busy(c.world.s[1]);
    stays_busy(c.world.s[waits]);
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(c.leaf), two ? 8 : 5);
    end(&c.world);
}

START_TEST(consumer_waits_for_gradient_on_third_device)
{
    check_blocked_c(false, 3, 1);
}
END_TEST

START_TEST(sum_on_current_stream_waits_for_first_producer)
{
    check_blocked_c(true, 3, 0);
}
END_TEST

START_TEST(sum_on_current_stream_waits_for_second_producer)
{
    check_blocked_c(true, 5, 0);
}
END_TEST

START_TEST(consumer_waits_for_sum_on_current_stream)
{
    check_blocked_c(true, 0, 0);
}
END_TEST

START_TEST(gradients_are_not_reused_while_current_stream_sums)
{
    case_c c = {0};
    gate gate = GATE;

    begin_c(&c, true, true);
    hold(c.world.s[0], &gate);
    walk(&c.world, c.roots, 2, 1);
    ck_assert(!is_reused(c.world.s[2], c.first.memory));
    ck_assert(!is_reused(c.world.s[4], c.second.memory));
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(c.leaf), 0);
    end(&c.world);
}
END_TEST

/* Consumer and producers share s[1]; only the stream of the sum differs. */
START_TEST(sum_on_another_device_waits_for_stream_of_its_nodes)
{
    case_c c = {0};
    gate gate = GATE;
    core_tensor *y;

    begin(&c.world);
    c.first = (producer){.factor = 5, .elsewhere = c.world.s[2]};
    c.second = (producer){.factor = 3, .elsewhere = c.world.s[4]};
    use(c.world.s[1]);
    c.leaf = leaf(filled(1, "sim:1"));
    y = split_of(&c.consumer, c.leaf);
    c.roots[1] = through(&c.second, y, "sim:1");
    c.roots[0] = through(&c.first, y, "sim:1");
    callers(&c.world);
    use(c.world.s[0]);
    synchronize();
    hold(c.world.s[1], &gate);
    walk(&c.world, c.roots, 2, 1);
    stays_busy(c.world.s[0]);
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(c.leaf), 8);
    end(&c.world);
}
END_TEST

/* A gradient on another device with another dtype is cast on that device's
 * current stream. */
static void check_blocked_cast(int held, int waits)
{
    case_c c = {.consumer.narrow = true};
    gate gate = GATE;

    begin_c(&c, false, true);
    hold(c.world.s[held], &gate);
    walk(&c.world, c.roots, 1, 1);
    stays_busy(c.world.s[waits]);
    open_gate(&gate);
    synchronize();
    end(&c.world);
}

START_TEST(cast_on_current_stream_waits_for_producer)
{
    check_blocked_cast(2, 0);
}
END_TEST

START_TEST(consumer_waits_for_cast_on_current_stream)
{
    check_blocked_cast(0, 3);
}
END_TEST

START_TEST(gradient_is_not_reused_while_current_stream_casts_it)
{
    case_c c = {.consumer.narrow = true};
    gate gate = GATE;

    begin_c(&c, false, true);
    hold(c.world.s[0], &gate);
    walk(&c.world, c.roots, 1, 1);
    ck_assert(!is_reused(c.world.s[2], c.first.memory));
    open_gate(&gate);
    synchronize();
    end(&c.world);
}
END_TEST

/* A missing gradient on another device is filled on its current stream. */
START_TEST(consumer_waits_for_zeros_on_another_device)
{
    case_c c = {0};
    gate gate = GATE;

    begin_c(&c, false, true);
    hold(c.world.s[0], &gate);
    walk(&c.world, &c.consumer.other, 1, 1);
    stays_busy(c.world.s[1]);
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(c.leaf), 1);
    end(&c.world);
}
END_TEST

/* ---------------------------------------------------------------- leaves -- */

/* The leaf's stream is s[0]. */
static core_tensor *leaf_elsewhere(world *world, core_tensor **out_leaf)
{
    core_tensor *y;

    begin(world);
    use(world->s[0]);
    *out_leaf = leaf(filled(3, "sim:0"));
    y = CALL(mul, *out_leaf, *out_leaf);
    callers(world);
    synchronize();
    return y;
}

START_TEST(caller_stream_waits_for_leaf_stream)
{
    gate gate = GATE;
    core_tensor *a, *y;
    world world;

    y = leaf_elsewhere(&world, &a);
    hold(world.s[0], &gate);
    walk(&world, &y, 1, 0);
    stays_busy(world.before[0]);
    open_gate(&gate);
    is_filled(core_tensor_grad(a), 6);
    end(&world);
}
END_TEST

START_TEST(caller_stream_waits_for_gradient_returned_by_grad)
{
    core_tensor *a, *y, *grad;
    gate gate = GATE;
    world world;

    y = leaf_elsewhere(&world, &a);
    hold(world.s[0], &gate);
    OK(core_grad(&y, 1, world.ones, &a, 1, 0, &grad));
    stays_busy(world.before[0]);
    open_gate(&gate);
    is_filled(keep(grad), 6);
    end(&world);
}
END_TEST

/* For a tensor in the middle of the graph, with no leaf behind it. */
START_TEST(caller_stream_waits_for_gradient_of_inner_tensor)
{
    core_tensor *a, *x, *y, *grad;
    gate gate = GATE;
    world world;

    x = leaf_elsewhere(&world, &a);
    use(world.s[0]);
    y = mul(x, x);
    callers(&world);
    synchronize();
    hold(world.s[0], &gate);
    OK(core_grad(&y, 1, world.ones, &x, 1, 0, &grad));
    stays_busy(world.before[0]);
    open_gate(&gate);
    is_filled(keep(grad), 18);
    end(&world);
}
END_TEST

START_TEST(leaf_gradient_is_not_reused_while_caller_stream_uses_it)
{
    gate gate = GATE;
    core_memory memory;
    core_tensor *a, *y;
    world world;

    y = leaf_elsewhere(&world, &a);
    walk(&world, &y, 1, 0);
    synchronize();
    hold(world.before[0], &gate);
    memory = core_tensor_grad(a)->storage->memory;
    OK(core_tensor_set_grad(a, NULL));
    ck_assert(!is_reused(world.s[0], memory));
    open_gate(&gate);
    end(&world);
}
END_TEST

START_TEST(returned_gradient_is_not_reused_while_caller_stream_uses_it)
{
    core_tensor *a, *y, *grad;
    gate gate = GATE;
    core_memory memory;
    world world;

    y = leaf_elsewhere(&world, &a);
    OK(core_grad(&y, 1, world.ones, &a, 1, 0, &grad));
    synchronize();
    hold(world.before[0], &gate);
    memory = grad->storage->memory;
    core_tensor_release(grad);
    ck_assert(!is_reused(world.s[0], memory));
    open_gate(&gate);
    end(&world);
}
END_TEST

/* One backward on s[0]; the next, ordered after it, on s[2]. */
START_TEST(grad_is_not_reused_while_another_stream_adds_to_it)
{
    gate gate = GATE;
    core_memory memory;
    core_tensor *a, *y;
    world world;
    size_t kept;

    begin(&world);
    use(world.s[0]);
    a = leaf(filled(3, "sim:0"));
    kept = pooled;
    y = CALL(mul, a, a);
    walk(&world, &y, 1, 0);
    synchronize();
    memory = core_tensor_grad(a)->storage->memory;
    while (pooled > kept)
        core_tensor_release(pool[--pooled]);
    use(world.s[2]); /* the first graph is gone */
    y = CALL(mul, a, a);
    synchronize();
    hold(world.s[2], &gate);
    walk(&world, &y, 1, 0);
    OK(core_tensor_set_grad(a, NULL));
    ck_assert(!is_reused(world.s[0], memory));
    open_gate(&gate);
    end(&world);
}
END_TEST

/* Checks the method itself: memory used only by its own stream is reused at
 * once. */
START_TEST(memory_used_only_by_its_own_stream_is_reused)
{
    core_memory memory;
    core_tensor *grad;
    world world;

    begin(&world);
    use(world.s[0]);
    grad = filled(1, "sim:0");
    memory = grad->storage->memory;
    drop(grad);
    ck_assert(is_reused(world.s[0], memory));
    end(&world);
}
END_TEST

/* ---------------------------------------------------------------- events -- */

static void residual_steps(core_tensor *a)
{
    for (int i = 0; i < 3; i++) {
        core_tensor *y = a;

        for (int j = 0; j < 10; j++)
            y = add(mul(y, a), y);
        backward(sum(y));
    }
}

START_TEST(backward_on_one_stream_creates_no_events)
{
    core_stream *before = core_stream_retain(current_of("sim:0"));
    core_stream *stream = new_stream("sim:0");

    residual_steps(leaf(filled(0.5, "sim:0")));
    ck_assert_uint_eq(core_device_events_created(device_of("sim:0")), 0);
    use(stream);
    residual_steps(leaf(filled(0.5, "sim:0")));
    ck_assert_uint_eq(core_device_events_created(device_of("sim:0")), 0);
    use(before);
    core_stream_release(stream);
    core_stream_release(before);
}
END_TEST

START_TEST(accumulation_runs_on_stream_of_its_graph)
{
    core_stream *before = core_stream_retain(current_of("sim:0"));
    core_stream *stream = new_stream("sim:0");
    core_tensor *a = leaf(filled(1, "sim:0")), *y;
    size_t kept = pooled;

    backward(sum(mul(a, a)));
    while (pooled > kept)
        core_tensor_release(pool[--pooled]);
    OK(core_tensor_set_grad(a, NULL));
    synchronize();
    use(stream); /* the next graph runs entirely on another stream */
    y = sum(mul(a, a));
    backward(y);
    ck_assert_uint_eq(core_device_events_created(device_of("sim:0")), 0);
    is_filled(core_tensor_grad(a), 2);
    use(before);
    core_stream_release(stream);
    core_stream_release(before);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        memory_used_only_by_its_own_stream_is_reused,
        consumer_waits_for_stream_of_producer,
        gradient_is_not_reused_while_consumer_reads_it,
        sum_on_consumer_stream_waits_for_first_producer,
        sum_on_consumer_stream_waits_for_second_producer,
        second_gradient_is_not_reused_while_it_is_summed,
        consumer_on_another_device_waits_for_producer,
        consumer_waits_for_sum_on_producer_stream,
        sum_runs_on_stream_of_first_producer,
        sum_runs_on_producer_stream_and_not_on_current_stream,
        node_that_changes_current_stream_has_no_effect_on_caller,
        second_gradient_is_not_reused_while_first_producer_stream_sums,
        consumer_waits_for_gradient_on_third_device,
        sum_on_current_stream_waits_for_first_producer,
        sum_on_current_stream_waits_for_second_producer,
        consumer_waits_for_sum_on_current_stream,
        gradients_are_not_reused_while_current_stream_sums,
        sum_on_another_device_waits_for_stream_of_its_nodes,
        cast_on_current_stream_waits_for_producer,
        consumer_waits_for_cast_on_current_stream,
        gradient_is_not_reused_while_current_stream_casts_it,
        consumer_waits_for_zeros_on_another_device,
        caller_stream_waits_for_leaf_stream,
        caller_stream_waits_for_gradient_returned_by_grad,
        caller_stream_waits_for_gradient_of_inner_tensor,
        leaf_gradient_is_not_reused_while_caller_stream_uses_it,
        returned_gradient_is_not_reused_while_caller_stream_uses_it,
        grad_is_not_reused_while_another_stream_adds_to_it,
        backward_on_one_stream_creates_no_events,
        accumulation_runs_on_stream_of_its_graph};

    /* Makes races errors. */
    setenv("LIBCORE_SIM_CHECK", "1", 0);
    return run_suite("autograd/engine_streams", tests,
                     sizeof tests / sizeof *tests);
}
