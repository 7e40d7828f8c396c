/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* suite.h: what a test of a plugin is, and what it is given.
 *
 * The tests run in a child process (child.c), which the runner (runner.c) watches
 * and starts again where it crashed.  A test is a function that calls expect
 * for everything that must hold; the first that does not is what is told. */

#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <libcore/core.h>
#include <libcore/memory.h>
#include <libcore/stream.h>

#include <stdbool.h>
#include <stdint.h>

#define SUITE_VERSION "1.2"

typedef enum verdict {
    VERDICT_PASS,
    VERDICT_FAIL,
    VERDICT_NOT_SUPPORTED, /* nothing that the plugin claims */
    VERDICT_WAIVED,
    VERDICT_XFAIL,
    VERDICT_XPASS,
    VERDICT_CRASH,
    VERDICT_TIMEOUT,
    VERDICT_DEVICE_LOST,
    VERDICT_HARNESS_ERROR, /* the suite itself could not do its part */
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

enum { TEST_NAME = 128, TEST_DETAIL = 600 };

/* What came of a test. */
typedef struct outcome {
    verdict verdict;
    char detail[TEST_DETAIL];
    double error;     /* the largest seen, in units of the bound; < 0: none */
    double measured;  /* a rate or a time; < 0: none */
    const char *unit; /* of measured */
    bool harness;     /* `expect` found the suite itself at fault */
} outcome;

typedef struct suite suite;
typedef struct test test;
typedef struct raw raw;

struct test {
    char name[TEST_NAME]; /* "core/memory/fill-patterns" */
    level level;
    bool optional; /* NOT_SUPPORTED is no failure */
    void (*run)(suite *self, outcome *out, const test *the_test);
    const void *data; /* the test's own */
    uint32_t number;  /* the test's own */
};

struct suite {
    const char *plugin; /* the file */
    const char *golden; /* prefix, or NULL */
    const char *wanted; /* the device's name, or NULL: the plugin's first */
    const char *filter; /* tests of other names are not wanted; NULL: all */
    uint64_t seed;
    test *tests;
    size_t count;
    size_t room;
    /* Had from suite_device. */
    core_device *device;
    core_device *host;
    char type[64];
    bool synchronous; /* it has no streams */
    core_device_properties properties;
    core_device_information information;
    core_numerics numerics;
    double compile_budget; /* seconds that a first call may take */
    /* Had from raw_open (plugin_tables.h). */
    raw *raw;
};

/* --------------------------------------------------------- outcomes -- */

/* Notes that something does not hold, if nothing was noted before; returns
 * condition. */
bool expect(outcome *out, bool condition, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a call of libcore's that must succeed: its message is told, and
 * a lost device is its own verdict. */
bool expect_ok(outcome *out, core_status status, const char *what);
/* What the plugin does not claim. */
void not_supported(outcome *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The suite lacks what it needs. */
void harness_error(outcome *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The largest error seen, in units of what is allowed. */
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
/* Loads the plugin and opens the device. */
bool suite_device(suite *self, outcome *out);
/* Kernels that the device has run, or that the CPU has run for it. */
typedef struct proof {
    uint64_t launches, fallbacks;
} proof;
proof suite_proof(const suite *self);
/* Since then the device has computed by kernels of its own, and nobody else
 * has. */
bool suite_proves(const suite *self, proof since, outcome *out);
/* A number that depends on the seed and on what it is for. */
uint64_t suite_random(const suite *self, const char *purpose, uint64_t index);

/* Each adds the tests of its part; false: no memory.  The ops' are known only
 * once the plugin was loaded. */
bool suite_add_abi(suite *self);
bool suite_add_memory(suite *self);
bool suite_add_streams(suite *self);
bool suite_add_features(suite *self);
bool suite_add_tensors(suite *self);
bool suite_add_ops(suite *self);
bool suite_add_rules(suite *self);
bool suite_add_large(suite *self);
bool suite_add_order(suite *self);
bool suite_add_shapes(suite *self);
bool suite_add_training(suite *self);
bool suite_add_custom(suite *self);
bool suite_add_stress(suite *self);
bool suite_add_starve(suite *self);
bool suite_add_handover(suite *self);
bool suite_add_perf(suite *self);

#endif
