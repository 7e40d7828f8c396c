/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What CORE_COMPILE_MAX_AUTOTUNE measures is kept in files, which decide how
 * programs run in later processes; results have the same bits whatever was
 * chosen. */

#define SUITE_FORKS true /* settings are those of a process */
#include "support/temporary_files.h"
#include "support/training.h"

#include "compile/prepare/tune.h"

#include <dirent.h>
#include <sys/stat.h>

static temporary_path folder;

static void begin(void)
{
    on_cpu();
    OK(core_threads_set(1));
    temporary_folder(folder, "choices");
    OK(core_setting_set("LIBCORE_CACHE", folder));
}

static void end(void)
{
    temporary_remove(folder);
    drop_all();
}

/* ----------------------------------------------------------------- files -- */

static const char name[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void path_of(temporary_path out)
{
    ck_assert_int_lt(
        snprintf(out, PATH_MAX, "%s/kernels/%s.choice.kernel", folder, name),
        PATH_MAX);
}

static bool is_there(void)
{
    core__choice choice;

    return core__choice_load(name, &choice);
}

static void store(void)
{
    core__choice_store(name, &(core__choice){{1, 2, 3, 4}});
    ck_assert(is_there());
}

static core_compile_cache counts(void)
{
    core_compile_cache cache = {.struct_size = sizeof cache};

    OK(core_compile_get_cache(&cache, NULL, 0));
    return cache;
}

START_TEST(a_choice_is_kept)
{
    core__choice choice = {{0}};

    ck_assert(!is_there());
    store();
    ck_assert_uint_eq(counts().choices_stored, 1);
    ck_assert_uint_eq(counts().choices_loaded, 1);
    ck_assert(core__choice_load(name, &choice));
    for (uint64_t i = 0; i < 4; i++)
        ck_assert_uint_eq(choice.numbers[i], i + 1);
    OK(core_setting_set("LIBCORE_CACHE", "0"));
    ck_assert(!is_there());
}
END_TEST

START_TEST(a_file_that_is_damaged_or_of_others_is_no_choice)
{
    temporary_path path;
    FILE *file;

    store();
    path_of(path);
    file = fopen(path, "r+");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ne(fputc(77, file), EOF);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert(!is_there());
    store();
    ck_assert_int_eq(truncate(path, 12), 0);
    ck_assert(!is_there());
    store();
    ck_assert_int_eq(chmod(path, 0666), 0);
    ck_assert(!is_there());
}
END_TEST

/* ---------------------------------------------------------------- choices -- */

/* Makes all files say the same. */
static void choose(core__choice choice)
{
    temporary_path path;
    DIR *all;
    const struct dirent *entry;
    int count = 0;

    snprintf(path, sizeof path, "%.*s/kernels", (int)sizeof path / 2, folder);
    all = opendir(path);
    ck_assert_ptr_nonnull(all);
    while ((entry = readdir(all))) {
        char part[65];

        if (!strstr(entry->d_name, ".choice"))
            continue;
        snprintf(part, sizeof part, "%.64s", entry->d_name);
        core__choice_store(part, &choice);
        count++;
    }
    closedir(all);
    ck_assert_int_gt(count, 0);
}

/* relu(x y + row) */
COMPILED_FUNCTION(product)
{
    out[0] = own(T(relu, T(add, T(mm, x[0], x[1]), x[2], core_int(1))));
    *noutputs = 1;
    return finish();
}

/* gelu(layer_norm(x + 1) x) + x */
COMPILED_FUNCTION(norm)
{
    int64_t width = core_tensor_size(x[0], 1);
    core_tensor *y;

    y = T(layer_norm, T(add_scalar, x[0], core_int(1), core_int(1)), &width, 1,
          NULL, NULL, 1e-5);
    y = T(gelu, T(mul, y, x[0]), "none");
    out[0] = own(T(add, y, x[0], core_int(1)));
    *noutputs = 1;
    return finish();
}

static void add_input(world *w, int64_t rows, int64_t columns)
{
    const int64_t sizes[] = {rows, columns};

    core_seed(w->ninputs + 1);
    OK(core_randn(sizes, 2, NULL, CORE_F32, w->device, &w->inputs[w->ninputs]));
    keep(w->inputs[w->ninputs++]);
}

/* What explain says about it, from this member on; the caller frees it. */
static char *explained(core_compiled *compiled, const char *member)
{
    char *json, *part;

    OK(core_compiled_explain(compiled, &json));
    part = strstr(json, member);
    ck_assert_ptr_nonnull(part);
    part = strndup(part, 2048);
    core_text_free(json);
    return part;
}

/* Compares with the function, and returns how it runs. */
static char *measured_call(core_tensor_function function, const world *w)
{
    core_compiled *compiled =
        compile_with(function, NULL,
                     (core_compile_options){.mode = CORE_COMPILE_MAX_AUTOTUNE,
                                            .flags = CORE_COMPILE_FULLGRAPH});
    world eager = *w, traced = *w;
    char *json;

    for (int i = 0; i < 2; i++)
        same_call(function, &eager, compiled, &traced);
    json = explained(compiled, "\"row_blocks\"");
    core_compiled_release(compiled);
    return json;
}

/* Groups are fused, and steps run in the way with this number.  What is chosen
 * for groups decides which other parts there are, whose files the next call
 * makes. */
static char *call_with_way(core_tensor_function function, const world *w,
                           uint64_t way)
{
    free(measured_call(function, w));
    choose((core__choice){{way, 9, 0, 0}});
    free(measured_call(function, w));
    choose((core__choice){{way, 9, 0, 0}});
    return measured_call(function, w);
}

static int64_t rows_of_block(const world *w, uint64_t way)
{
    static const char rows[] = "\"rows_of_a_block\": ";
    char *json = call_with_way(norm, w, way);
    const char *at = strstr(json, rows);
    int64_t block = at ? atoi(at + strlen(rows)) : 0;

    free(json);
    return block;
}

START_TEST(files_decide_how_many_rows_a_block_has)
{
    world w = {.device = program_device};
    int64_t block;

    add_input(&w, 512, 1024);
    block = rows_of_block(&w, 0);
    ck_assert_int_gt(block, 1);
    ck_assert_int_lt(rows_of_block(&w, 1), block);
    ck_assert_int_gt(rows_of_block(&w, 2), block);
    ck_assert_int_eq(rows_of_block(&w, 3), 0); /* all at once */
}
END_TEST

static void runs_in_parts(const world *w, uint64_t way, bool expected)
{
    char *json = call_with_way(product, w, way);

    ck_assert_msg((strstr(json, "\"product\": \"mm\"") != NULL) == expected,
                  "%s", json);
    ck_assert(expected ||
              strstr(json, "\"reason\": \"measured: it is not faster\""));
    free(json);
}

START_TEST(files_decide_what_runs_on_parts_of_a_product)
{
    world w = {.device = program_device};

    add_input(&w, 256, 64);
    add_input(&w, 64, 256);
    add_input(&w, 1, 256);
    runs_in_parts(&w, 0, false);
    runs_in_parts(&w, 1, true);
}
END_TEST

/* An input whose elements share memory can be measured, and nothing that was
 * measured stays. */
START_TEST(expanded_inputs_are_measured)
{
    world w = {.device = program_device};
    uint32_t references;
    core_tensor *row;
    char *json;

    add_input(&w, 256, 64);
    add_input(&w, 64, 256);
    add_input(&w, 1, 256);
    OK(core_expand(w.inputs[2], (const int64_t[]){256, 256}, 2, false, &row));
    w.inputs[2] = keep(row);
    references = core_tensor_references(w.inputs[1]);
    json = measured_call(product, &w);
    ck_assert_msg(!strstr(json, "could not be measured"), "%s", json);
    free(json);
    ck_assert_uint_eq(core_tensor_references(w.inputs[1]), references);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_choice_is_kept,
        a_file_that_is_damaged_or_of_others_is_no_choice,
        files_decide_how_many_rows_a_block_has,
        files_decide_what_runs_on_parts_of_a_product,
        expanded_inputs_are_measured,
    };
    const test_suite suites[] = {{.name = "compile/tune",
                                  .setup = begin,
                                  .teardown = end,
                                  SUITE_TESTS(tests)}};

    return suite_run(suites, sizeof suites / sizeof *suites);
}
