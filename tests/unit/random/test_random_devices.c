/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Default generators of devices: each draws its own sequence, core_seed seeds
 * all of them, and equal seeds produce equal numbers on every device. */

#include "support/autograd.h"

#include <libcore/device.h>
#include <libcore/random.h>
#include <libcore/saved.h>

enum { NUMBERS = 32 };

static core_device *cpu, *sim;

static void open_devices(void)
{
    OK(core_device_find("cpu", &cpu));
    OK(core_device_find("sim", &sim));
}

static void draw(core_device *device, float *out)
{
    core_tensor *x, *here;

    OK(core_rand((int64_t[]){NUMBERS}, 1, NULL, CORE_F32, device, &x));
    OK(core_to_copy(x, CORE_F32, cpu, false, -1, &here));
    OK(core_tensor_read(here, out, NUMBERS * sizeof *out));
    core_tensor_release(here);
    core_tensor_release(x);
}

static bool same(const float *a, const float *b)
{
    return memcmp(a, b, NUMBERS * sizeof *a) == 0;
}

static core_generator *own(core_device *device)
{
    core_generator *generator;

    OK(core_generator_default(device, &generator));
    ck_assert_ptr_nonnull(generator);
    core_generator_release(generator); /* the device holds a reference */
    return generator;
}

/* A device without its own generator draws the next numbers of the shared
 * one. */
START_TEST(devices_share_a_generator_until_they_have_their_own)
{
    float first[NUMBERS], second[NUMBERS], a[NUMBERS], b[NUMBERS];

    open_devices();
    core_seed(5);
    draw(cpu, first);
    draw(cpu, second);
    ck_assert(!same(first, second));
    core_seed(5);
    draw(cpu, a);
    draw(sim, b);
    ck_assert(same(a, first) && same(b, second));

    own(sim);
    core_seed(5);
    draw(cpu, a);
    draw(sim, b);
    ck_assert(same(a, first) && same(b, first));
    draw(sim, b);
    draw(cpu, a);
    ck_assert(same(a, second) && same(b, second));
}
END_TEST

START_TEST(state_of_a_device_generator_is_saved_and_restored)
{
    float first[NUMBERS], a[NUMBERS], b[NUMBERS];
    uint64_t seed, offset, other;
    core_generator *of_sim;

    open_devices();
    core_seed(11);
    of_sim = own(sim);
    ck_assert_ptr_eq(own(sim), of_sim);
    ck_assert_ptr_ne(own(cpu), of_sim);
    core_generator_state(of_sim, &seed, &offset);
    ck_assert_uint_eq(seed, 11);
    ck_assert_uint_eq(offset, 0);
    draw(sim, first);
    core_generator_state(of_sim, &seed, &offset);
    ck_assert_uint_gt(offset, 0);
    core_generator_state(own(cpu), NULL, &other);
    ck_assert_uint_eq(other, 0);
    draw(sim, a);
    core_generator_set_state(of_sim, seed, offset);
    draw(sim, b);
    ck_assert(same(a, b) && !same(a, first));
}
END_TEST

static float drawn[2][NUMBERS];
static int runs;

static core_status noisy(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    draw(sim, drawn[runs++]);
    *noutputs = 1;
    return core_mul(inputs[0], inputs[0], &outputs[0]);
}

/* early: the device already had its own generator in the first run. */
static void computes_again(bool early)
{
    const core_checkpoint_info info = {.struct_size = sizeof info,
                                       .function = noisy};
    core_tensor *x = leaf(VECTOR(1, 3)), *y;
    float a[NUMBERS], b[NUMBERS];
    size_t one = 1;

    open_devices();
    core_seed(3);
    if (early)
        own(sim);
    runs = 0;
    OK(core_checkpoint(&info, &x, 1, &y, &one));
    own(sim);
    core_seed(4);
    draw(sim, a);
    core_seed(4);
    backward(keep(y));
    ck_assert_int_eq(runs, 2);
    ck_assert(same(drawn[0], drawn[1]));
    HOLDS(core_tensor_grad(x), 1, 6);
    draw(cpu, b); /* nothing was drawn from it */
    draw(sim, b);
    ck_assert(same(a, b));
}

START_TEST(checkpoints_restore_device_generators)
{
    computes_again(true);
}
END_TEST

START_TEST(checkpoints_restore_which_devices_had_no_generator)
{
    computes_again(false);
}
END_TEST

SUITE("random/random_devices",
      devices_share_a_generator_until_they_have_their_own,
      state_of_a_device_generator_is_saved_and_restored,
      checkpoints_restore_device_generators,
      checkpoints_restore_which_devices_had_no_generator)
