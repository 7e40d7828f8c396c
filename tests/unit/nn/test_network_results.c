/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Seven networks compute what PyTorch computes with the same weights, to 1e-5 of
 * the greatest element. */

#include "support/autograd.h"
#include "support/network_results.h"
#include "support/networks.h"

#include <math.h>
#include <string.h>

enum { MOST = 4096 };

static const double TOLERANCE = 1e-5;

/* Numbers that follow from a name, as in record-networks.py. */
static core_tensor *named_numbers(const char *name, core_sizes sizes)
{
    static double values[MOST];
    size_t length = strlen(name), count = 1;
    uint32_t state = 2166136261u;
    double middle = 0;

    for (size_t i = 0; i < length; i++)
        state = (state ^ (unsigned char)name[i]) * 16777619u;
    for (size_t i = 0; i < sizes.count; i++)
        count *= (size_t)sizes.items[i];
    ck_assert_uint_le(count, MOST);
    if (strstr(name, "running_var") ||
        (length >= 6 && strcmp(name + length - 6, "weight") == 0 &&
         sizes.count == 1))
        middle = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (state >> 8) / 16777216. - .5 + middle;
    }
    return core_x_from_data(values, CORE_F64, sizes, NULL);
}

/* Gives each floating tensor of a module the numbers of its name. */
static void fill(core_module *m)
{
    core_module_tensors list;

    OK(core_module_list(m, NULL, CORE_MODULE_STATE, &list));
    for (size_t i = 0; i < list.count; i++) {
        core_tensor *x = list.tensors[i];

        if (core_tensor_dtype(x) == CORE_F32)
            core_x_copy_(x,
                         named_numbers(list.names[i],
                                       core_sizes_from(core_tensor_sizes(x),
                                                       core_tensor_ndim(x))));
    }
    core_module_tensors_free(&list);
}

/* _i: the network. */
START_TEST(networks_compute_what_pytorch_computes)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);
    float got[16] = {0};
    double most = 0;
    core_tensor *y;

    ck_assert_str_eq(networks[_i].name, network_results[_i].name);
    core_x_no_grad();
    networks[_i].function(m); /* creates the layers */
    fill(m);
    y = networks[_i].function(core_x_inference(m));
    ck_assert_int_eq(core_tensor_numel(y), network_results[_i].count);
    CORE_CHECK(core_tensor_read(y, got, (size_t)core_tensor_numel(y) * 4));
    OK(core_scope_end(scope));
    for (int i = 0; i < network_results[_i].count; i++)
        most = fmax(most, fabs(network_results[_i].values[i]));
    for (int i = 0; i < network_results[_i].count; i++)
        ck_assert_msg(fabs(got[i] - network_results[_i].values[i]) <=
                          TOLERANCE * most,
                      "%s, element %d: %.9g, not %.9g", networks[_i].name, i,
                      (double)got[i], network_results[_i].values[i]);
}
END_TEST

/* Of a row whose greatest element leads by less, argmax could return another index
 * though all elements are within the tolerance.  The results that follow would be
 * others, and say nothing. */
START_TEST(greatest_elements_lead_by_more_than_the_tolerance)
{
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        ck_assert_msg(network_results[i].lead > 2 * TOLERANCE,
                      "%s: a greatest element leads by %g",
                      network_results[i].name, network_results[i].lead);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        greatest_elements_lead_by_more_than_the_tolerance,
    };
    const suite_loop loops[] = {
        {networks_compute_what_pytorch_computes, 0,
         sizeof networks / sizeof *networks},
    };
    const test_suite suite = {.name = "nn/network_results",
                              .teardown = drop_all,
                              SUITE_TESTS(tests),
                              SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
