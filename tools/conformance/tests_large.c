/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: elements more than 2^31 bytes apart, and more than 2^32 of them.  A
 * kernel with 32-bit offsets declares that (CORE_REQUIRE_INDEX32) or fails
 * here. */

#include "claims.h"
#include "skipped_calls.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements, the last of which begins behind 2^31 bytes: three, or two whose
 * stride alone exceeds that; or behind 2^32 bytes. */
enum { ELEMENTS = 3, READS = 7, PICKS = 4, SPACINGS = 3 };
static const int64_t values[ELEMENTS] = {5, -7, 9};
static const struct {
    int64_t count;
    int64_t bytes; /* between elements */
} spacings[SPACINGS] = {{3, (INT64_C(1) << 30) + 64},
                        {2, (INT64_C(1) << 31) + 64},
                        {3, (INT64_C(1) << 31) + 64}};

typedef struct large {
    core_dtype dtype;
    int64_t count;    /* of elements */
    int64_t step;     /* between elements */
    core_tensor *all; /* mostly untouched */
    core_tensor *view;
} large;

/* What a test has called. */
typedef struct coverage {
    bool read[READS], picked[PICKS], wrote; /* with any dtype */
    bool again;                             /* what has no kernel is known */
    int64_t too_large; /* bytes that could not be allocated; 0: none */
    uint32_t ran;
    skipped_calls left;
} coverage;

/* A tensor of one element alone, which is read and written by plain copies. */
static core_status element(const large *l, int64_t i, core_tensor **out)
{
    const core_value args[] = {suite_tensor_value(l->all), core_int(0),
                               core_int(i * l->step), core_int(i * l->step + 1),
                               core_int(1)};

    return suite_call("slice.Tensor", args, 5, out);
}

static void put(core_dtype dtype, int64_t number, void *to)
{
    const int8_t small = (int8_t)number;
    const float real = (float)number;

    if (dtype == CORE_F32)
        memcpy(to, &real, sizeof real);
    else
        memcpy(to, &small, sizeof small);
}

static bool fill(large *l, outcome *out)
{
    bool good = true;

    for (int64_t i = 0; good && i < l->count; i++) {
        core_tensor *to = NULL;
        unsigned char bytes[4];

        put(l->dtype, values[i], bytes);
        good = expect_ok(out, element(l, i, &to), "slice") &&
               expect_ok(
                   out, core_tensor_write(to, bytes, core_dtype_size(l->dtype)),
                   "writing an element");
        core_tensor_release(to);
    }
    return good;
}

static void done(large *l)
{
    core_tensor_release(l->view);
    core_tensor_release(l->all);
    l->view = l->all = NULL;
}

/* False: not supported, or there is too little memory. */
static bool begin(suite *self, core_dtype dtype, size_t spacing, large *l,
                  int64_t *too_large, outcome *out)
{
    const int64_t item = (int64_t)core_dtype_size(dtype);
    int64_t count;
    core_value args[4];
    core_status status;

    *l = (large){.dtype = dtype,
                 .count = spacings[spacing].count,
                 .step = spacings[spacing].bytes / item};
    count = (l->count - 1) * l->step + 1;
    args[0] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = &count}};
    args[1] = (core_value){CORE_VALUE_DTYPE, 0, {.i = dtype}};
    args[2] = (core_value){0};
    args[3] = (core_value){CORE_VALUE_DEVICE, 0, {.device = self->device}};
    status = suite_call("empty", args, 4, &l->all);
    if (status != CORE_OK) {
        expect(out, status == CORE_ERROR_OUT_OF_MEMORY,
               "a tensor of %lld bytes: %s", (long long)(count * item),
               core_error_message());
        *too_large = count * item;
        return false;
    }
    args[0] = suite_tensor_value(l->all);
    args[1] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = &l->count}};
    args[2] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = &l->step}};
    args[3] = core_int(0);
    return expect_ok(out, suite_call("as_strided", args, 4, &l->view),
                     "as_strided") &&
           fill(l, out);
}

/* Reads a result of up to three elements, row-major. */
static bool holds(const large *l, core_tensor *got, const int64_t *wanted,
                  const char *name, bool indexed, outcome *out)
{
    unsigned char bytes[4 * ELEMENTS], one[4];
    char way[64];
    const core_dtype dtype = l->dtype;
    size_t item = core_dtype_size(dtype);
    size_t count = (size_t)core_tensor_numel(got);

    if (!expect(out, core_tensor_dtype(got) == dtype && count <= ELEMENTS,
                "%s: the result has another dtype or shape", name) ||
        !expect_ok(out, core_tensor_read(got, bytes, count * item), name))
        return false;
    for (size_t i = 0; i < count; i++) {
        put(dtype, wanted[i], one);
        snprintf(way, sizeof way,
                 indexed ? "an index of %lld" : "a stride of %lld bytes",
                 (long long)l->step * (long long)(indexed ? i : item));
        if (!expect(
                out, memcmp(bytes + i * item, one, item) == 0,
                "%s of %s: element %zu of %lld, %lld bytes behind the first, "
                "was not reached with %s",
                name, core_dtype_name(dtype), i, (long long)l->count,
                (long long)i * l->step * (long long)item, way))
            return false;
    }
    return true;
}

/* The expected results of the operators. */
static const struct {
    const char *name;
    uint32_t tensors;
    int64_t wanted[ELEMENTS];
} reads[READS] = {
    {"neg", 1, {-5, 7, -9}},
    {"abs", 1, {5, 7, 9}},
    {"clone", 1, {5, -7, 9}},
    {"add.Tensor", 2, {10, -14, 18}},
    {"mul.Tensor", 2, {25, 49, 81}},
    {"maximum", 2, {5, -7, 9}},
    {"amax", 1, {0}}, /* of all elements: see read_far */
};

static void read_far(large *l, outcome *out, coverage *of)
{
    static const int64_t most[ELEMENTS + 1] = {0, 5, 5, 9};

    for (size_t i = 0; i < READS; i++) {
        const core_value args[2] = {suite_tensor_value(l->view),
                                    suite_tensor_value(l->view)};
        core_tensor *got;
        core_status status;

        if (of->read[i])
            continue;
        status = suite_call(reads[i].name, args, reads[i].tensors, &got);
        if (status == CORE_ERROR_NO_KERNEL) {
            if (!of->again)
                skipped_calls_add(&of->left, reads[i].name, l->dtype);
            continue;
        }
        of->read[i] = true;
        of->ran++;
        if (expect_ok(out, status, reads[i].name))
            holds(l, got,
                  core_tensor_numel(got) == 1 ? &most[l->count]
                                              : reads[i].wanted,
                  reads[i].name, false, out);
        core_tensor_release(got);
    }
}

/* Operators that take the places of elements, which 31 or 32 bits do not hold. */
static const struct {
    const char *name;
    bool list; /* the indices are in a list */
    bool dim;  /* they are behind the dimension */
} picks[PICKS] = {{"index_select", false, true},
                  {"gather", false, true},
                  {"take", false, false},
                  {"index.Tensor", true, false}};

static core_status pick(const large *l, size_t which, core_tensor *places,
                        core_tensor **out_got)
{
    core_value args[3] = {suite_tensor_value(l->all)};
    uint32_t n = 1;

    if (picks[which].dim)
        args[n++] = core_int(0);
    args[n++] =
        picks[which].list
            ? (core_value){CORE_VALUE_TENSOR_LIST, 1, {.tensors = &places}}
            : suite_tensor_value(places);
    return suite_call(picks[which].name, args, n, out_got);
}

static void pick_far(suite *self, large *l, outcome *out, coverage *of)
{
    int64_t at[ELEMENTS];
    core_tensor *places = NULL;

    for (int64_t i = 0; i < l->count; i++)
        at[i] = i * l->step;
    if (!expect_ok(out,
                   core_tensor_from_data(at, CORE_I64, &l->count, 1,
                                         self->device, &places),
                   "making indices"))
        return;
    for (size_t i = 0; i < PICKS; i++) {
        core_tensor *got = NULL;
        core_status status;

        if (of->picked[i])
            continue;
        status = pick(l, i, places, &got);
        if (call_is_left(self, status, picks[i].name)) {
            core_error_clear();
            if (!of->again)
                skipped_calls_add(&of->left, picks[i].name, l->dtype);
            continue;
        }
        of->picked[i] = true;
        of->ran++;
        if (expect_ok(out, status, picks[i].name))
            holds(l, got, values, picks[i].name, true, out);
        core_tensor_release(got);
    }
    core_tensor_release(places);
}

/* neg, from near to far elements. */
static void write_far(suite *self, large *l, outcome *out, coverage *of)
{
    unsigned char bytes[4 * ELEMENTS];
    size_t item = core_dtype_size(l->dtype);
    core_tensor *near = NULL, *result = NULL;
    core_value args[2];
    core_status status;

    for (size_t i = 0; i < ELEMENTS; i++)
        put(l->dtype, 100 + (int64_t)i, bytes + i * item);
    if (!expect_ok(out,
                   core_tensor_from_data(bytes, l->dtype, &l->count, 1,
                                         self->device, &near),
                   "making the operand"))
        return;
    args[0] = suite_tensor_value(near);
    args[1] = suite_tensor_value(l->view);
    status = suite_call("neg.out", args, 2, &result);
    for (int64_t i = 0; status == CORE_OK && i < l->count; i++) {
        const int64_t wanted = -100 - i;
        core_tensor *one = NULL;

        if (expect_ok(out, element(l, i, &one), "slice"))
            holds(l, one, &wanted, "neg.out", false, out);
        core_tensor_release(one);
    }
    if (status == CORE_ERROR_NO_KERNEL && !of->again)
        skipped_calls_add(&of->left, "neg.out", l->dtype);
    else if (status != CORE_ERROR_NO_KERNEL &&
             expect_ok(out, status, "neg.out")) {
        of->wrote = true;
        of->ran++;
    }
    core_tensor_release(result);
    core_tensor_release(near);
}

/* With i8 bytes and elements both exceed 32 bits; f32 for what has no kernel of
 * i8. */
static void reach(suite *self, size_t spacing, coverage *of, outcome *out)
{
    static const core_dtype dtypes[] = {CORE_I8, CORE_F32};
    bool missing = true;

    memset(of->read, 0, sizeof of->read);
    memset(of->picked, 0, sizeof of->picked);
    of->wrote = false;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes && missing; d++) {
        large l;

        if (begin(self, dtypes[d], spacing, &l, &of->too_large, out)) {
            read_far(&l, out, of);
            pick_far(self, &l, out, of);
            if (!of->wrote)
                write_far(self, &l, out, of);
        }
        done(&l);
        core_memory_empty_cache(self->device);
        missing = !of->wrote;
        for (size_t i = 0; i < READS; i++)
            missing |= !of->read[i];
        for (size_t i = 0; i < PICKS; i++)
            missing |= !of->picked[i];
    }
}

static void far_elements(suite *self, outcome *out, const test *one)
{
    coverage of = {.ran = 0};

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < SPACINGS && out->verdict == VERDICT_PASS; i++) {
        reach(self, i, &of, out);
        of.again = true;
    }
    if (of.ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "2 GiB cannot be allocated in one piece, or none of "
                           "the operators that this needs is claimed");
    skipped_calls_report(&of.left, of.ran, out);
    if (out->verdict == VERDICT_PASS && of.too_large > 0) {
        size_t used = strlen(out->detail);

        snprintf(out->detail + used, sizeof out->detail - used,
                 "%soffsets of %lld bytes were not tested: that many cannot be "
                 "allocated in one piece",
                 used ? "; " : "", (long long)of.too_large);
    }
}

/* --------------------------------------------------------- many elements -- */

/* One element that is repeated, so that only the results need memory. */
enum { FEWER = 1 << 22 };
static const int64_t repeats = (INT64_C(1) << 32) + 8;

/* The number of elements that are 1, as an operator computes it. */
static core_status total(suite *self, const char *name, core_dtype dtype,
                         int64_t count, double *out)
{
    const int64_t none = 0;
    unsigned char one[4], bytes[8];
    core_tensor *element = NULL, *all = NULL, *got = NULL;
    core_value args[4] = {{0}};
    core_status status;
    float sum;
    int64_t number;

    put(dtype, 1, one);
    status = core_tensor_from_data(one, dtype, NULL, 0, self->device, &element);
    args[0] = suite_tensor_value(element);
    args[1] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = &count}};
    args[2] = (core_value){CORE_VALUE_INT_LIST, 1, {.ints = &none}};
    args[3] = core_int(0);
    if (status == CORE_OK)
        status = suite_call("as_strided", args, 4, &all);
    args[0] = suite_tensor_value(all);
    if (status == CORE_OK)
        status = suite_call(name, args, 1, &got);
    if (status == CORE_OK)
        status = core_tensor_read(got, bytes,
                                  core_dtype_size(core_tensor_dtype(got)));
    if (status == CORE_OK) {
        memcpy(&sum, bytes, sizeof sum);
        memcpy(&number, bytes, sizeof number);
        *out =
            core_tensor_dtype(got) == CORE_F32 ? (double)sum : (double)number;
    }
    core_tensor_release(got);
    core_tensor_release(all);
    core_tensor_release(element);
    return status;
}

/* Appends to the detail of a test that passed. */
__attribute__((format(printf, 2, 3))) static void add_detail(outcome *out,
                                                             const char *format,
                                                             ...)
{
    size_t used = strlen(out->detail);
    va_list args;

    if (out->verdict != VERDICT_PASS)
        return;
    if (used > 0 && used + 2 < sizeof out->detail) {
        memcpy(out->detail + used, "; ", 3);
        used += 2;
    }
    va_start(args, format);
    vsnprintf(out->detail + used, sizeof out->detail - used, format, args);
    va_end(args);
}

typedef struct counting {
    suite *self;
    outcome *out;
    uint32_t ran;
    skipped_calls left;
    char slow[120]; /* "sum of f32 would take 90 seconds" */
} counting;

/* Tests one operator; a sum of f32 need only be far from that of the elements
 * that 32 bits can count.  Returns whether there is a kernel. */
static bool count_many(counting *c, const char *name, core_dtype dtype)
{
    double seconds = suite_seconds(), few = 0, found = 0;
    core_status status = total(c->self, name, dtype, FEWER, &few);

    if (status == CORE_OK) {
        seconds = (suite_seconds() - seconds) * (double)(repeats / FEWER);
        if (seconds > c->self->longest_call) {
            snprintf(c->slow, sizeof c->slow,
                     "%s of %s would take %.0f seconds", name,
                     core_dtype_name(dtype), seconds);
            return true;
        }
        status = total(c->self, name, dtype, repeats, &found);
    }
    /* A kernel may refuse so many elements. */
    if (status == CORE_ERROR_NO_KERNEL || status == CORE_ERROR_UNSUPPORTED) {
        core_error_clear();
        skipped_calls_add(&c->left, name, dtype);
        return false;
    }
    if (!expect_ok(c->out, status, name))
        return true;
    c->ran++;
    expect(c->out, dtype == CORE_F32 ? found > FEWER : found == (double)repeats,
           "%s of %s: the sum of %lld elements that are 1 is %.10g", name,
           core_dtype_name(dtype), (long long)repeats, found);
    return true;
}

static void report_count(counting *c)
{
    if (c->ran == 0 && c->out->verdict == VERDICT_PASS)
        not_supported(c->out, "%s",
                      c->slow[0] ? c->slow
                                 : "no kernel computes that many elements");
    skipped_calls_report(&c->left, c->ran, c->out);
    if (c->slow[0])
        add_detail(c->out, "%s, and was not tested", c->slow);
}

/* i8, so that 2^32 elements are counted exactly; f32 for what has no kernel of
 * i8. */
static void many_elements(suite *self, outcome *out, const test *one)
{
    static const char *const names[] = {"sum", "count_nonzero"};
    counting c = {.self = self, .out = out};

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    if (self->quick) {
        not_supported(out, "--quick leaves it out");
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (out->verdict == VERDICT_PASS &&
            !count_many(&c, names[i], CORE_I8) && out->verdict == VERDICT_PASS)
            count_many(&c, names[i], CORE_F32);
    report_count(&c);
}

/* ------------------------------------------------------------ long sums -- */

/* Not a multiple of 1024, 2^20 of them, and three times what a sum of f32 can
 * count one by one. */
enum { LONG = (1 << 20) + 1027, LONGEST = 3 * (1 << 24) + 5 };

/* Sums 1, 2, 3, 1, 2, …, which is exact in any order.  dtype: f32 or f64. */
static void sum_exactly(suite *self, outcome *out, core_dtype dtype,
                        skipped_calls *left, uint32_t *ran)
{
    const int64_t count = LONG;
    double *data = malloc(LONG * sizeof *data), sum = 0, wanted = 0;
    float *narrow = (float *)data, narrow_sum;
    core_tensor *all = NULL, *got = NULL;
    core_value args[1];
    core_status status;

    if (!data) {
        harness_error(out, "no memory");
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        double value = (double)(i % 3 + 1);

        wanted += value;
        if (dtype == CORE_F32)
            narrow[i] = (float)value;
        else
            data[i] = value;
    }
    if (expect_ok(
            out,
            core_tensor_from_data(data, dtype, &count, 1, self->device, &all),
            "making the operand")) {
        args[0] = suite_tensor_value(all);
        status = suite_call("sum", args, 1, &got);
        if (status == CORE_ERROR_NO_KERNEL)
            skipped_calls_add(left, "sum", dtype);
        else if (expect_ok(out, status, "sum") &&
                 expect_ok(out,
                           core_tensor_read(got,
                                            dtype == CORE_F32
                                                ? (void *)&narrow_sum
                                                : (void *)&sum,
                                            core_dtype_size(dtype)),
                           "reading the sum")) {
            if (dtype == CORE_F32)
                sum = (double)narrow_sum;
            ++*ran;
            expect(out, sum == wanted,
                   "the sum of %lld elements of %s is %.9g, expected %.9g",
                   (long long)count, core_dtype_name(dtype), sum, wanted);
        }
    }
    core_tensor_release(got);
    core_tensor_release(all);
    free(data);
}

/* A sum of f32 that adds one by one stays at 2^24. */
static void sum_of_ones(suite *self, outcome *out)
{
    double seconds = suite_seconds(), found = 0;
    core_status status = total(self, "sum", CORE_F32, FEWER, &found);

    seconds = (suite_seconds() - seconds) * (double)(LONGEST / FEWER);
    if (status == CORE_OK && seconds > self->longest_call) {
        add_detail(out,
                   "a sum of %d elements of f32 was not tested: it would take "
                   "%.0f seconds",
                   (int)LONGEST, seconds);
        return;
    }
    if (status == CORE_OK)
        status = total(self, "sum", CORE_F32, LONGEST, &found);
    if (status == CORE_ERROR_NO_KERNEL)
        add_detail(out,
                   "a sum of %d elements of f32 was not tested: no kernel "
                   "accepts an operand of stride 0",
                   (int)LONGEST);
    else if (expect_ok(out, status, "sum"))
        expect(out, found > .99 * LONGEST && found < 1.01 * LONGEST,
               "the sum of %d elements of f32 that are 1 is %.9g", (int)LONGEST,
               found);
}

static void long_sums(suite *self, outcome *out, const test *one)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64};
    skipped_calls left = {.count = 0};
    bool f32 = false;
    uint32_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        sum_exactly(self, out, dtypes[d], &left, &ran);
        f32 = f32 || (dtypes[d] == CORE_F32 && ran > 0);
    }
    skipped_calls_report(&left, ran, out);
    if (f32 && out->verdict == VERDICT_PASS)
        sum_of_ones(self, out);
}

bool suite_add_large(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/offsets-beyond-2-gib", far_elements, true},
        {"ops/rules/more-than-2-to-the-32-elements", many_elements, true},
        {"ops/rules/long-sums", long_sums, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
