/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "child.h"
#include "large_calls.h"

#include "process_state.h"
#include "side_effects.h"
#include "tests_training.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *results;

/* Streams come before memory, and the order of kernels before what they compute:
 * a device that does not wait makes the others fail, too, in ways that do not
 * name the cause. */
static bool add_all(suite *self, bool with_ops)
{
    return suite_add_opening(self) && suite_add_abi(self) &&
           suite_add_handles(self) && suite_add_streams(self) &&
           suite_add_synchronize(self) && suite_add_waits(self) &&
           suite_add_memory(self) && suite_add_blocks(self) &&
           suite_add_many_objects(self) && suite_add_huge_copies(self) &&
           suite_add_any_thread(self) && suite_add_interfaces(self) &&
           suite_add_two_devices(self) && suite_add_features(self) &&
           suite_add_codegen(self) && suite_add_reset(self) &&
           suite_add_removal(self) && suite_add_tensors(self) &&
           (!with_ops || suite_add_ops(self)) && suite_add_stream_order(self) &&
           suite_add_rules(self) && suite_add_large(self) &&
           suite_add_shapes(self) && suite_add_rows(self) &&
           suite_add_conversions(self) && suite_add_values(self) &&
           suite_add_narrow_sums(self) && suite_add_stochastic_rounding(self) &&
           suite_add_fused_steps(self) && suite_add_products(self) &&
           suite_add_long_rows(self) && suite_add_distributions(self) &&
           suite_add_many_conversions(self) && suite_add_numbers(self) &&
           suite_add_definitions(self) && suite_add_division(self) &&
           suite_add_grid_limits(self) && suite_add_dimension_sizes(self) &&
           suite_add_other_thread(self) && suite_add_variances(self) &&
           suite_add_dimensions(self) && suite_add_second_device(self) &&
           suite_add_kernel_events(self) && suite_add_kernel_times(self) &&
           suite_add_layers(self) && suite_add_arguments(self) &&
           suite_add_rows_of_two(self) && suite_add_narrow_indices(self) &&
           suite_add_narrow_rows(self) && suite_add_windows(self) &&
           suite_add_multinomial(self) && suite_add_millions(self) &&
           suite_add_attention(self) && suite_add_wide_weights(self) &&
           suite_add_equal_elements(self) && suite_add_graph_kernels(self) &&
           suite_add_kept_weights(self) && suite_add_two_streams(self) &&
           suite_add_pending_steps(self) && suite_add_contexts(self) &&
           suite_add_indices(self) && suite_add_random_graphs(self) &&
           suite_add_order(self) && suite_add_backward(self) &&
           suite_add_training(self) && suite_add_custom(self) &&
           suite_add_stress(self) && suite_add_alloc_failure(self) &&
           suite_add_cross_thread_free(self) && suite_add_perf(self);
}

/* Tabs and newlines separate fields and lines; other control characters are
 * replaced as well. */
static void put(const char *text)
{
    for (; *text; text++)
        putc((unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text,
             results);
}

static void put_string(const char *key, core_string text)
{
    char copy[200];
    size_t size = text.size < sizeof copy ? text.size : sizeof copy - 1;

    if (!text.data)
        size = 0;
    if (size)
        memcpy(copy, text.data, size);
    copy[size] = 0;
    fprintf(results, "about\t%s\t", key);
    put(copy);
    putc('\n', results);
}

static void put_needs(suite *self)
{
    char text[TEST_NEEDS];

    if (!training_list_needs(self, text, sizeof text))
        return;
    fprintf(results, "needs\t");
    put(text);
    putc('\n', results);
}

static void put_few(suite *self)
{
    char text[TEST_NEEDS];

    large_calls_list_missing(self, text, sizeof text);
    fprintf(results, "few\t");
    put(text);
    putc('\n', results);
}

static bool open_results(void)
{
    results = fdopen(CHILD_RESULTS, "w");
    return results != NULL;
}

int child_list(suite *self, bool load)
{
    outcome out = {.error = -1, .measured = -1};
    bool loaded;

    if (!open_results())
        return EXIT_FAILURE;
    slot_watch_share();
    loaded = load && suite_device(self, &out);
    if (!loaded && self->missing)
        put_string("missing", (core_string){core_error_message(),
                                            strlen(core_error_message())});
    if (!add_all(self, loaded))
        return EXIT_FAILURE;
    if (loaded) {
        fprintf(results, "about\tdevice\t%s\n", core_device_name(self->device));
        put_string("name", self->information.name);
        put_string("id", self->information.stable_id);
        put_string("driver", self->information.driver);
        put_string("runtime", self->information.runtime);
        put_string("firmware", self->information.firmware);
        put_string("features", self->information.features);
        fprintf(results,
                "about\tnumerics\tmax_ulp %g, product_bits %u, "
                "flushes_denormals %#x, narrow_sums %#x\n",
                self->numerics.max_ulp, self->numerics.product_bits,
                self->numerics.flushes_denormals, self->numerics.narrow_sums);
    } else {
        fprintf(results, "about\tproblem\t");
        put(out.detail);
        putc('\n', results);
    }
    if (loaded && self->list) {
        put_needs(self);
        put_few(self);
    }
    for (size_t i = 0; i < self->count; i++)
        fprintf(results, "test\t%s\t%d\t%d\n", self->tests[i].name,
                (int)self->tests[i].level, self->tests[i].optional);
    free(self->tests);
    fprintf(results, "done\n");
    return fflush(results) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void write_remarks(const char *name, const char *lines)
{
    while (lines && *lines) {
        size_t length = strcspn(lines, "\n");

        fprintf(results, "remark\t%s: ", name);
        for (size_t i = 0; i < length; i++)
            put((char[]){lines[i], 0});
        putc('\n', results);
        lines += length + (lines[length] == '\n');
    }
}

static void write_result(const char *name, const outcome *out)
{
    write_remarks(name, out->remarks);
    fprintf(results, "end\t%s\t%d\t%.17g\t%.17g\t%s\t", name, (int)out->verdict,
            out->error, out->measured, out->unit ? out->unit : "");
    put(out->detail);
    putc('\n', results);
    fflush(results);
}

static const test *find(const suite *self, const char *name)
{
    for (size_t i = 0; i < self->count; i++)
        if (strcmp(self->tests[i].name, name) == 0)
            return &self->tests[i];
    return NULL;
}

/* Opening the plugin has tests of its own for this. */
static void run_one(suite *self, const test *one, outcome *out)
{
    char printed[TEST_DETAIL / 4];
    process_state before;

    core_error_clear();
    process_state_save(&before);
    side_effects_take_output(printed, sizeof printed);
    one->run(self, out, one);
    process_state_check(&before, out);
    expect(out, !side_effects_take_output(printed, sizeof printed),
           "the plugin prints to standard output, which is the program's: "
           "\"%s\"",
           printed);
}

/* Tests whether what has failed would make later tests fail, too: a lost device,
 * or the current stream, which keeps the error of its work. */
static bool is_spoilt(const suite *self, const outcome *out)
{
    core_stream *stream = NULL;
    core_status status = CORE_OK;

    if (out->verdict == VERDICT_FAIL && self->device &&
        core_stream_current(self->device, &stream) == CORE_OK)
        status = core_stream_query(stream);
    core_error_clear();
    return out->verdict == VERDICT_DEVICE_LOST ||
           (status != CORE_OK && status != CORE_ERROR_BUSY);
}

int child_run(suite *self)
{
    outcome out = {.error = -1, .measured = -1};
    char name[TEST_NAME + 2];
    bool ops = false;
    bool all = false;

    if (!open_results())
        return EXIT_FAILURE;
    slot_watch_share();
    side_effects_redirect_output();
    while (fgets(name, sizeof name, stdin)) {
        const test *one;

        name[strcspn(name, "\n")] = 0;
        /* Threads that come and go would allocate heap arenas, whose memory
         * looks like a leak.  Measurements keep them. */
        if (!all && strncmp(name, "perf/", 5) != 0)
            mallopt(M_ARENA_MAX, 1);
        slot_watch_restart();
        fprintf(results, "begin\t%s\n", name);
        fflush(results);
        out = (outcome){.error = -1, .measured = -1};
        if (!ops && strncmp(name, "ops/", 4) == 0)
            ops = suite_device(self, &out);
        if (!all && !add_all(self, ops))
            return EXIT_FAILURE;
        all = true;
        one = find(self, name);
        if (one)
            run_one(self, one, &out);
        else if (out.verdict == VERDICT_PASS)
            harness_error(&out, "there is no test of this name");
        write_result(name, &out);
        if (is_spoilt(self, &out))
            break; /* the next test gets a new process */
    }
    fprintf(results, "done\n");
    fflush(results);
    /* The plugin may be in any state now, so none of its code runs any more. */
    _Exit(EXIT_SUCCESS);
}
