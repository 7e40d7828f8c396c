/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* suite.h: the interface between the suite and its tests.
 *
 * The tests run in a child process (child.c), which the runner (runner.c)
 * watches and restarts after a crash.  A test is a function that calls
 * expect for every condition; the first failed condition is reported. */

#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <libcore/core.h>
#include <libcore/memory.h>
#include <libcore/stream.h>

#include <stdbool.h>
#include <stdint.h>

#define SUITE_VERSION "1.4"

/* If this test fails, every other would: the run ends. */
#define SUITE_OPENING_TEST "core/opening/plugin-opens"

typedef enum verdict {
    VERDICT_PASS,
    VERDICT_FAIL,
    VERDICT_NOT_SUPPORTED, /* the plugin does not claim it */
    VERDICT_WAIVED,
    VERDICT_XFAIL,
    VERDICT_XPASS,
    VERDICT_CRASH,
    VERDICT_TIMEOUT,
    VERDICT_DEVICE_LOST,
    VERDICT_HARNESS_ERROR, /* the suite failed, not the plugin */
    VERDICT_NOT_RUN,
    VERDICTS
} verdict;

typedef enum level {
    LEVEL_CORE,
    LEVEL_OPS,
    LEVEL_TRAINING,
    LEVEL_STRESS,
    LEVEL_PERF,
    LEVELS
} level;

extern const char *const verdict_names[VERDICTS];
extern const char *const level_names[LEVELS];

enum { TEST_NAME = 128, TEST_DETAIL = 600, TEST_NEEDS = 2000 };

/* The result of a test. */
typedef struct outcome {
    verdict verdict;
    char detail[TEST_DETAIL];
    double error;        /* the largest seen, as a multiple of the bound; < 0:
                       * none */
    double measured;     /* a rate or a time; < 0: none */
    const char *unit;    /* of measured */
    bool harness;        /* `expect` found an error of the suite */
    const char *remarks; /* what detail has no room for, a remark per line;
                          * static, or NULL */
} outcome;

typedef struct suite suite;
typedef struct test test;
typedef struct plugin_tables plugin_tables;

struct test {
    char name[TEST_NAME]; /* "core/memory/no-leaks" */
    level level;
    bool optional; /* NOT_SUPPORTED is not a failure */
    void (*run)(suite *self, outcome *out, const test *the_test);
    const void *data; /* private to the test */
    uint32_t number;  /* private to the test */
};

struct suite {
    const char *plugin;  /* the file */
    const char *golden;  /* prefix, or NULL */
    const char *wanted;  /* the device's name, or NULL: the plugin's first */
    const char *filter;  /* runs only tests of matching names; NULL: all */
    const char *remove;  /* the command that removes the device, or NULL */
    const char *restore; /* the command that undoes that, or NULL */
    bool quick;          /* leaves out calls of many elements */
    /* Seconds: a call that would take longer is left out. */
    double longest_call;
    uint64_t seed;
    test *tests;
    size_t count;
    size_t capacity;
    /* Set by suite_device. */
    core_device *device;
    core_device *host;
    char type[64];
    bool synchronous; /* it has no streams */
    bool missing;     /* there is no device `wanted` */
    core_device_properties properties;
    core_device_information information;
    core_numerics numerics;
    bool list;             /* the tests will be listed only */
    double compile_budget; /* seconds that a first call may take */
    double open_budget;    /* seconds that a slot may take until it is open */
    /* Set by plugin_tables_open (plugin_tables.h). */
    plugin_tables *tables;
};

/* --------------------------------------------------------- outcomes -- */

/* Records a failure if the condition is false and nothing was recorded before;
 * returns condition. */
bool expect(outcome *out, bool condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a libcore call that must succeed: records libcore's message; a
 * lost device has its own verdict. */
bool expect_ok(outcome *out, core_status status, const char *what);
/* Records that the plugin does not claim the feature. */
void not_supported(outcome *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Records that the suite could not run the test. */
void harness_error(outcome *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Records the largest error seen, as a multiple of the bound. */
void note_error(outcome *out, double error);

/* ------------------------------------------------------------ the suite -- */

/* False: no memory. */
bool suite_add(suite *self, const test *one);
typedef struct listed {
    const char *name;
    void (*run)(suite *self, outcome *out, const test *the_test);
    bool optional;
} listed;
bool suite_add_list(suite *self, level which, const listed *list, size_t count);
/* Loads the plugin through libcore, and checks that it has its device type. */
bool suite_load(suite *self, outcome *out);
/* Loads the plugin and opens the device. */
bool suite_device(suite *self, outcome *out);
/* Kernels that the device has run, and that the CPU has run for it. */
typedef struct kernel_counts {
    uint64_t launches, fallbacks;
} kernel_counts;
kernel_counts suite_kernel_counts(const suite *self);
/* Checks that since then the device has run kernels and the CPU has run none
 * for it. */
bool suite_ran_on_device(const suite *self, kernel_counts since, outcome *out);
/* Calls an operator; *out_tensor is its first result, or NULL. */
core_status suite_call(const char *name, const core_value *args, uint32_t nargs,
                       core_tensor **out_tensor);
/* core_tensor_read, in which a kernel that hangs is noticed. */
core_status suite_read(core_tensor *tensor, void *to, size_t bytes);
/* core_op_call; a hanging launch is noticed in it. */
core_status suite_op_call(core_operator *op, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults);
core_value suite_tensor_value(core_tensor *tensor);
/* Returns the seconds of a clock that is never set. */
double suite_seconds(void);
/* Returns a number that depends on the seed and on its purpose. */
uint64_t suite_random(const suite *self, const char *purpose, uint64_t index);

/* Each adds the tests of its area; false: no memory.  The tests of ops are
 * known only after the plugin was loaded. */
bool suite_add_opening(suite *self);
bool suite_add_abi(suite *self);
bool suite_add_memory(suite *self);
bool suite_add_blocks(suite *self);
bool suite_add_many_objects(suite *self);
bool suite_add_huge_copies(suite *self);
bool suite_add_streams(suite *self);
bool suite_add_waits(suite *self);
bool suite_add_synchronize(suite *self);
bool suite_add_any_thread(suite *self);
bool suite_add_two_devices(suite *self);
bool suite_add_interfaces(suite *self);
bool suite_add_features(suite *self);
bool suite_add_codegen(suite *self);
bool suite_add_reset(suite *self);
bool suite_add_handles(suite *self);
bool suite_add_wide_weights(suite *self);
bool suite_add_attention(suite *self);
bool suite_add_equal_elements(suite *self);
bool suite_add_removal(suite *self);
bool suite_add_tensors(suite *self);
bool suite_add_ops(suite *self);
bool suite_add_rules(suite *self);
bool suite_add_large(suite *self);
bool suite_add_order(suite *self);
bool suite_add_shapes(suite *self);
bool suite_add_rows(suite *self);
bool suite_add_backward(suite *self);
bool suite_add_conversions(suite *self);
bool suite_add_values(suite *self);
bool suite_add_narrow_sums(suite *self);
bool suite_add_stochastic_rounding(suite *self);
bool suite_add_fused_steps(suite *self);
bool suite_add_pending_steps(suite *self);
bool suite_add_products(suite *self);
bool suite_add_long_rows(suite *self);
bool suite_add_rows_of_two(suite *self);
bool suite_add_narrow_indices(suite *self);
bool suite_add_narrow_rows(suite *self);
bool suite_add_multinomial(suite *self);
bool suite_add_millions(suite *self);
bool suite_add_windows(suite *self);
bool suite_add_distributions(suite *self);
bool suite_add_many_conversions(suite *self);
/* Tests whether those tests call the operator. */
bool fused_steps_has(const char *op);
bool stochastic_rounding_has(const char *op);
bool distributions_have(const char *op);
bool attention_has(const char *op);
bool suite_add_numbers(suite *self);
bool suite_add_definitions(suite *self);
bool suite_add_division(suite *self);
bool suite_add_grid_limits(suite *self);
bool suite_add_dimension_sizes(suite *self);
bool suite_add_other_thread(suite *self);
bool suite_add_variances(suite *self);
bool suite_add_dimensions(suite *self);
bool suite_add_second_device(suite *self);
bool suite_add_kernel_events(suite *self);
bool suite_add_kernel_times(suite *self);
bool suite_add_layers(suite *self);
bool suite_add_arguments(suite *self);
bool suite_add_graph_kernels(suite *self);
bool suite_add_kept_weights(suite *self);
bool suite_add_stream_order(suite *self);
bool suite_add_two_streams(suite *self);
bool suite_add_contexts(suite *self);
bool suite_add_indices(suite *self);
bool suite_add_random_graphs(suite *self);
bool suite_add_training(suite *self);
bool suite_add_custom(suite *self);
bool suite_add_stress(suite *self);
bool suite_add_alloc_failure(suite *self);
bool suite_add_cross_thread_free(suite *self);
bool suite_add_perf(suite *self);

#endif
