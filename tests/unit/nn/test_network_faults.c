/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Seven networks of a file's weights, in which each allocation, each operator and
 * each tensor of the file is at fault: an error names it, and nothing is lost.  Of
 * the allocations it is every third, under a sanitizer every seventh, and all of
 * them with LIBCORE_TEST_LONG. */

#include "support/effort.h"
#include "support/modes.h"
#include "support/networks.h"
#include "support/temporary_files.h"

#include "base/memory.h"

#include <libcore/network.h>
#include <libcore/random.h>

#include <string.h>

static temporary_path path, faulty;

/* Computes a network with the weights of a file. */
static core_status computes(int network, const char *file)
{
    core_scope scope = core_scope_begin();

    networks[network].function(core_x_inference(core_x_nn_from_file(file)));
    return core_scope_end(scope);
}

/* Writes a file of a network's weights, by which it then computes. */
static void writes(int network)
{
    core_scope scope = core_scope_begin();
    core_module *m = core_x_nn_container(NULL, NULL);

    core_seed(28);
    core_x_no_grad();
    networks[network].function(m);
    CORE_CHECK(core_module_save(m, path));
    OK(core_scope_end(scope));
    OK(computes(network, path)); /* loads plugins */
}

static void set_up(void)
{
    temporary_file(path, "network");
    temporary_file(faulty, "network");
}

static void tear_down(void)
{
    pop_all();
    temporary_remove(path);
    temporary_remove(faulty);
}

/* The computation fails, and the message has these texts and the place in
 * networks.h or here. */
static void fails(core_status status, core_status wanted, const char *text,
                  const char *other)
{
    const char *message = core_error_message();

    if (status != wanted || !strstr(message, text) || !strstr(message, other) ||
        !strstr(message, " (at "))
        ck_abort_msg("%s, not %s with \"%s\" and \"%s\": %s",
                     core_status_name(status), core_status_name(wanted), text,
                     other, message);
}

/* ---------------------------------------------------------- allocations -- */

/* Fails the allocation after that many, and with `all` those after it. */
static core_status fail_allocation(int network, int64_t allowed, bool all)
{
    core_status status;
    int64_t live = 0;

    /* What was kept for later calls is not kept a second time. */
    for (int pass = 0; pass == 0 || (pass < 3 && core__alloc_live() > live);
         pass++) {
        live = core__alloc_live();
        core__alloc_fault_set(allowed, all);
        status = computes(network, path);
        core__alloc_fault_set(-1, false);
        if (status != CORE_OK)
            fails(status, CORE_ERROR_OUT_OF_MEMORY, "memory", "");
    }
    ck_assert_int_le(core__alloc_live(), live);
    return status;
}

START_TEST(each_allocation_may_fail)
{
    const int64_t step = effort_is_long() ? 1 : effort_is_slow() ? 7 : 3;

    writes(_i);
    for (int all = 0; all < 2; all++)
        for (int64_t allowed = all;
             fail_allocation(_i, allowed, all) != CORE_OK; allowed += step)
            ck_assert_int_lt(allowed, 100000);
}
END_TEST

/* ------------------------------------------------------------ operators -- */

static int64_t left;
static char failed[128];

/* Fails the call after `left` others. */
static core_status one_fails(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    if (left-- != 0)
        return core_redispatch_below(call, args, nargs, results, nresults);
    snprintf(failed, sizeof failed, "%s fails here", core_op_name(call->op));
    return core_error_set(CORE_ERROR_INTERNAL, failed);
}

/* Fails each operator at a level; returns how many there are. */
static int64_t fail_operators(int network, uint32_t level, int64_t live)
{
    core_status status = CORE_ERROR_INTERNAL;
    int64_t count = 0;

    for (; status != CORE_OK; count++) {
        left = count;
        push(level, one_fails, NULL);
        status = computes(network, path);
        pop();
        if (status != CORE_OK)
            fails(status, CORE_ERROR_INTERNAL, failed, "");
        ck_assert_int_le(core__alloc_live(), live);
    }
    return count;
}

START_TEST(each_operator_may_fail)
{
    writes(_i);
    for (uint32_t level = CORE_MODE_API; level <= CORE_MODE_BELOW_AUTOGRAD;
         level++) {
        /* The first pass fills what keeps memory. */
        int64_t count = fail_operators(_i, level, INT64_MAX);

        ck_assert_int_gt(count, 10);
        ck_assert_int_eq(fail_operators(_i, level, core__alloc_live()), count);
    }
}
END_TEST

/* -------------------------------------------------------------- tensors -- */

/* Writes the file without a tensor, or with another one in its place. */
static void writes_with(const core_module_tensors *list, size_t at,
                        core_tensor *other)
{
    core_named_tensor named[256];
    size_t count = 0;

    ck_assert_uint_le(list->count, 256);
    for (size_t i = 0; i < list->count; i++) {
        named[count] = (core_named_tensor){list->names[i], list->tensors[i]};
        if (i == at)
            named[count].tensor = other;
        count += named[count].tensor != NULL;
    }
    OK(core_safetensors_save(faulty, named, count, NULL, 0));
}

/* The path of a tensor's layer, or of a tensor without one. */
static const char *layer_of(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? core_x_text("%.*s", (int)(dot - name), name) : name;
}

/* Computes with the faulty file, which fails, unless `wanted` is CORE_OK, with a
 * message that names the layer and the file. */
static void computes_faulty(int network, core_status wanted, const char *name)
{
    const char *layer = layer_of(name);
    int64_t live = INT64_MAX;

    for (int pass = 0; pass < 2; pass++) {
        core_status status = computes(network, faulty);

        if (wanted == CORE_OK)
            OK(status);
        else
            fails(status, wanted, layer, faulty);
        /* The first one makes the text of a long message. */
        ck_assert_int_le(core__alloc_live(), live);
        live = core__alloc_live();
    }
}

static void fault(int network, const core_module_tensors *list, size_t at)
{
    core_scope scope = core_scope_begin();
    const char *name = list->names[at];
    bool needed = !strstr(name, "num_batches_tracked");
    core_tensor *x = core_x_flatten(list->tensors[at], 0);

    writes_with(list, at, NULL);
    computes_faulty(network, needed ? CORE_ERROR_NOT_FOUND : CORE_OK, name);
    x = core_x_unsqueeze(core_x_cat(CORE_LIST(x, x)), 0);
    OK(core_scope_status());
    writes_with(list, at, x);
    computes_faulty(network, CORE_ERROR_SHAPE, name);
    ck_assert_ptr_nonnull(strstr(core_error_message(), " has sizes [1, "));
    OK(core_scope_end(scope));
}

START_TEST(each_tensor_may_be_missing_or_of_other_sizes)
{
    core_scope scope = core_scope_begin();
    core_module_tensors list;

    writes(_i);
    OK(core_module_list(core_x_nn_from_file(path), NULL, CORE_MODULE_STATE,
                        &list));
    ck_assert_uint_gt(list.count, 0);
    for (size_t i = 0; i < list.count; i++)
        fault(_i, &list, i);
    core_module_tensors_free(&list);
    OK(core_scope_end(scope));
}
END_TEST

int main(void)
{
    enum { NETWORKS = sizeof networks / sizeof *networks };
    const suite_loop loops[] = {
        {each_allocation_may_fail, 0, NETWORKS},
        {each_operator_may_fail, 0, NETWORKS},
        {each_tensor_may_be_missing_or_of_other_sizes, 0, NETWORKS},
    };
    const test_suite suite = {.name = "nn/network_faults",
                              .one_thread = true,
                              .setup = set_up,
                              .teardown = tear_down,
                              SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
