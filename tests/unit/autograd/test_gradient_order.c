/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Successive or concurrent backward calls on streams that the program does not
 * order: their contributions to one leaf. */

#include "support/engine_streams.h"

#include <pthread.h>

/* Backward of the square of a; its graph is released afterwards. */
static void add_square(core_tensor *a)
{
    core_tensor *square, *y;

    OK(core_mul(a, a, &square));
    OK(core_sum(square, CORE_DTYPE_NONE, &y));
    OK(core_backward(&y, 1, NULL, 0));
    core_tensor_release(y);
    core_tensor_release(square);
}

START_TEST(backward_adds_to_grad_after_previous_backward)
{
    core_tensor *a;
    gate gate = GATE;
    world world;

    begin(&world);
    a = leaf(filled(3, "sim:0"));
    synchronize();
    use(world.s[0]);
    hold(world.s[0], &gate);
    add_square(a);
    use(world.s[2]);
    add_square(a);
    stays_busy(world.s[2]);
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(a), 12);
    end(&world);
}
END_TEST

START_TEST(reset_grad_does_not_wait_for_previous_backward)
{
    core_tensor *a;
    gate gate = GATE;
    world world;

    begin(&world);
    a = leaf(filled(3, "sim:0"));
    synchronize();
    use(world.s[0]);
    hold(world.s[0], &gate);
    add_square(a);
    OK(core_tensor_set_grad(a, NULL));
    use(world.s[2]);
    add_square(a);
    OK(core_stream_synchronize(world.s[2])); /* must not wait for s[0] */
    is_filled(core_tensor_grad(a), 6);
    open_gate(&gate);
    synchronize();
    end(&world);
}
END_TEST

START_TEST(retained_grad_is_added_to_after_previous_backward)
{
    core_tensor *a, *y, *first, *second;
    core_event *made;
    gate gate = GATE;
    world world;

    begin(&world);
    a = leaf(filled(3, "sim:0"));
    synchronize();
    use(world.s[0]);
    y = mul(a, a);
    OK(core_tensor_retain_grad(y));
    first = sum(y);
    OK(core_event_create(device_of("sim:0"), 0, &made));
    OK(core_event_record(made, world.s[0]));
    hold(world.s[0], &gate);
    OK(core_backward(&first, 1, NULL, CORE_RETAIN_GRAPH));
    use(world.s[2]);
    OK(core_stream_wait_event(world.s[2], made));
    OK(core_mul_scalar_(y, core_float(2))); /* moves its grad to a new node */
    second = sum(y);
    OK(core_backward(&second, 1, NULL, 0));
    open_gate(&gate);
    synchronize();
    is_filled(core_tensor_grad(y), 2);
    is_filled(core_tensor_grad(a), 18);
    core_event_release(made);
    end(&world);
}
END_TEST

static core_tensor *shared;

static void *walk_often(void *stream)
{
    use(stream);
    for (int i = 0; i < 20; i++)
        add_square(shared);
    OK(core_stream_synchronize(stream));
    return NULL;
}

START_TEST(threads_on_different_streams_add_to_one_leaf)
{
    pthread_t threads[2];
    world world;

    begin(&world);
    shared = leaf(filled(3, "sim:0"));
    synchronize();
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, walk_often, world.s[2 * i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    synchronize();
    is_filled(core_tensor_grad(shared), 240);
    end(&world);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        backward_adds_to_grad_after_previous_backward,
        reset_grad_does_not_wait_for_previous_backward,
        retained_grad_is_added_to_after_previous_backward,
        threads_on_different_streams_add_to_one_leaf,
    };

    setenv("LIBCORE_SIM_CHECK", "1", 0); /* makes races errors */
    return run_suite("autograd/gradient_order", tests,
                     sizeof tests / sizeof *tests);
}
