/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Files of sharded states: they load on another number of ranks, and what is
 * damaged or missing is an error. */

#include "support/shards.h"

#include <sys/stat.h>

static temporary_path folder;
static char path[4200];

static void train_and_save(core_comm *comm)
{
    model m = sharded(comm, NULL);

    for (int i = 0; i < 2; i++)
        step(&m, 1);
    OK(core_shard_save(m.shard, m.optimizer, path));
    end(&m);
}

/* Averages of equal numbers are exact, so the number of ranks does not
 * matter. */
static void load_and_train(core_comm *comm)
{
    model a = sharded(comm, &small), b = whole(comm);

    for (int i = 0; i < 2; i++)
        step(&b, 1);
    for (int i = 0; i < COUNT; i++) {
        core_grad_mode_set(false);
        OK(core_copy_(a.parameters[i], b.parameters[i], false));
        core_grad_mode_set(true);
    }
    OK(core_shard_load(a.shard, a.optimizer, path));
    for (int i = 0; i < 2; i++) {
        step(&a, 1);
        step(&b, 1);
        expect_equal_models(&a, &b);
    }
    end(&a);
    end(&b);
}

START_TEST(states_load_on_another_number_of_ranks)
{
    temporary_folder(folder, "libcore-shard");
    snprintf(path, sizeof path, "%s/states", folder);
    on_ranks(4, train_and_save);
    on_ranks(2, load_and_train);
    on_ranks(1, load_and_train);
    on_ranks(2, train_and_save);
    on_ranks(4, load_and_train);
    temporary_remove(folder);
}
END_TEST

/* One parameter, of 6 elements in either order in memory. */
static core_tensor *matrix(core_comm *comm, const int64_t *dims, bool columns)
{
    core_tensor *parameter;
    const int64_t turned[2] = {dims[1], dims[0]};

    if (columns) {
        core_tensor *other;

        OK(core_ones(turned, 2, CORE_F32, core_comm_device(comm), &other));
        OK(core_transpose(other, 0, 1, &parameter));
        core_tensor_release(other);
    } else {
        OK(core_ones(dims, 2, CORE_F32, core_comm_device(comm), &parameter));
    }
    OK(core_tensor_set_requires_grad(parameter, true));
    return parameter;
}

static core_status save_or_load(core_comm *comm, const int64_t *dims,
                                bool columns, bool save)
{
    core_tensor *parameter = matrix(comm, dims, columns);
    core_optimizer *optimizer;
    core_shard *shard;
    core_status status;

    OK(core_shard_create(comm, &parameter, 1, NULL, &shard));
    optimizer = adam_of_pieces(shard);
    status = save ? core_shard_save(shard, optimizer, path)
                  : core_shard_load(shard, optimizer, path);
    core_optimizer_release(optimizer);
    core_shard_release(shard);
    core_tensor_release(parameter);
    return status;
}

/* The state of an element is found by its place in memory. */
static void refuse_other_layouts(core_comm *comm)
{
    const int64_t dims[2] = {2, 3}, turned[2] = {3, 2};

    OK(save_or_load(comm, dims, false, true));
    OK(save_or_load(comm, dims, false, false));
    ck_assert_int_eq(save_or_load(comm, dims, true, false), CORE_ERROR_CORRUPT);
    MESSAGE("\"parameters\" is");
    ck_assert_int_eq(save_or_load(comm, turned, false, false),
                     CORE_ERROR_CORRUPT);
}

static void expect_load(const model *m, core_status expected, const char *text)
{
    ck_assert_int_eq(core_shard_load(m->shard, m->optimizer, path), expected);
    MESSAGE(text);
}

static void copy_file(uint32_t from, uint32_t to)
{
    char command[9000];

    snprintf(command, sizeof command, "cp '%s.%u' '%s.%u'", path, from, path,
             to);
    ck_assert_int_eq(system(command), 0);
}

static void load_what_is_wrong(core_comm *comm)
{
    model m = sharded(comm, NULL);
    core_sgd_options options = {.struct_size = sizeof options,
                                .learning_rate = 1};
    core_optimizer *other;

    OK(core_sgd_create(m.parameters, COUNT, &options, &other));
    ck_assert_int_eq(core_shard_load(m.shard, other, path),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_shard_load: the optimizer's parameters are not the 5 pieces");
    expect_load(&m, CORE_ERROR_NOT_FOUND, "nowhere");
    core_optimizer_release(other);
    ck_assert_int_eq(core_shard_save(m.shard, m.optimizer, path),
                     CORE_ERROR_IO);
    snprintf(path, sizeof path, "%s/states", folder);
    OK(core_shard_load(m.shard, m.optimizer, path));
    copy_file(0, 2);
    copy_file(1, 0);
    expect_load(&m, CORE_ERROR_CORRUPT, "the state of a parameter is not");
    copy_file(2, 0);
    step(&m, 1);
    OK(core_shard_save(m.shard, m.optimizer, path));
    copy_file(0, 1);
    OK(core_shard_load(m.shard, m.optimizer, path));
    end(&m);
}

/* One of three ranks cannot write. */
static void save_what_cannot_be(core_comm *comm)
{
    model m = sharded(comm, NULL);
    char file[5000];

    snprintf(file, sizeof file, "%s.1", path);
    if (core_comm_rank(comm) == 1)
        ck_assert_int_eq(mkdir(file, 0700), 0);
    OK(core_barrier(comm));
    ck_assert_int_eq(core_shard_save(m.shard, m.optimizer, path),
                     CORE_ERROR_IO);
    if (core_comm_rank(comm) != 1)
        MESSAGE("core_shard_save: rank 1 could not save its pieces");
    OK(core_barrier(comm));
    rmdir(file);
    OK(core_shard_save(m.shard, m.optimizer, path));
    end(&m);
}

START_TEST(damaged_files_are_refused)
{
    temporary_folder(folder, "libcore-shard");
    snprintf(path, sizeof path, "%s/states", folder);
    on_ranks(2, train_and_save);
    snprintf(path, sizeof path, "%s/nowhere/states", folder);
    on_ranks(1, load_what_is_wrong);
    snprintf(path, sizeof path, "%s/others", folder);
    on_ranks(3, save_what_cannot_be);
    on_ranks(1, refuse_other_layouts);
    temporary_remove(folder);
}
END_TEST

/* All ranks get an error if one of them finds no file. */
static void one_rank_fails_to_load(core_comm *comm)
{
    model m = sharded(comm, &small);
    core_status status = core_shard_load(m.shard, m.optimizer, "/no/folder/x");

    ck_assert_int_eq(status, CORE_ERROR_NOT_FOUND);
    OK(core_shard_save(m.shard, m.optimizer, path));
    status = core_shard_load(m.shard, m.optimizer,
                             core_comm_rank(comm) == 0 ? path : "/no/folder/x");
    if (core_comm_rank(comm) == 0) {
        ck_assert_int_eq(status, CORE_ERROR_IO);
        MESSAGE("core_shard_load: rank 1 could not load the state");
    } else {
        ck_assert_int_eq(status, CORE_ERROR_NOT_FOUND);
    }
    end(&m);
}

START_TEST(file_that_one_rank_misses_is_an_error_of_all)
{
    rank_device = rank_devices[_i];
    temporary_folder(folder, "libcore-shard");
    snprintf(path, sizeof path, "%s/states", folder);
    on_ranks(2, one_rank_fails_to_load);
    temporary_remove(folder);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        states_load_on_another_number_of_ranks,
        damaged_files_are_refused,
    };
    const suite_loop loops[] = {
        {file_that_one_rank_misses_is_an_error_of_all, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/shard_files", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
