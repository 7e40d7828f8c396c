/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: copy_ between all pairs of dtypes that the device claims, from and
 * to all layouts, bit for bit; and operators with operands of two dtypes.  A
 * test is named after the dtype of the source, ops/conversions/DTYPE. */

#include "claims.h"
#include "element_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const core_dtype dtypes[] = {
    CORE_F64, CORE_F32, CORE_F16, CORE_BF16, CORE_I64,    CORE_I32,
    CORE_I16, CORE_I8,  CORE_U8,  CORE_BOOL, CORE_F8E4M3, CORE_F8E5M2};

enum { DTYPES = sizeof dtypes / sizeof *dtypes, MOST = 256, MANY = 70001 };

/* ---------------------------------------------------------------- values -- */

/* For each format: ties to even on both sides, the smallest normal and
 * subnormal numbers and half of those, the largest, what rounds to it and what
 * rounds beyond. */
static const double floats[] = {
    NAN, INFINITY, -INFINITY, 0.0, -0.0, 1, -1, .5, -.5, 1.5, 2.5, -2.5, .3,
    100.75, -100.75, 127, -128, 200, 255, 1000, -1000, 32767, -32768, 65535,
    /* f32 from f64 */
    1 + 0x1p-24, 1 + 3 * 0x1p-24, 1 + 0x1p-24 + 0x1p-40, 0x1p-126, 0x1p-127,
    0x1p-149, 0x1p-150, 3 * 0x1p-150, 0x1.fffffep127, 0x1.ffffffp127, 0x1p128,
    0x1p-1040, 1e300, 2147483520.0, -2147483648.0, 0x1p62, -0x1p63,
    /* f16 */
    1 + 0x1p-11, 1 + 3 * 0x1p-11, 1 + 0x1p-11 + 0x1p-20, -1 - 0x1p-11, 65504,
    65519, 65520, -65520, 70000, 0x1p-14, 0x1p-14 - 0x1p-24, 0x1p-24, 0x1p-25,
    3 * 0x1p-25, -3 * 0x1p-25, 0x1.8p-20, 0x1.8p-26,
    /* bf16 */
    1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-20, -1 - 3 * 0x1p-8,
    0x1.fep127, 0x1.fefffep127, 0x1.ffp127, 0x1p-133, 0x1p-134, 3 * 0x1p-134,
    /* f8e4m3 and f8e5m2 */
    1 + 0x1p-4, 1 + 3 * 0x1p-4, 448, 464, -464, 465, 480, 500, 0x1p-6, 0x1p-9,
    0x1p-10, 3 * 0x1p-10, 1 + 0x1p-3, 1 + 3 * 0x1p-3, 57344, 61439, 61440,
    -61440, 0x1p-16, 0x1p-17, 3 * 0x1p-17};

static const int64_t integers[] = {0,
                                   1,
                                   -1,
                                   2,
                                   3,
                                   7,
                                   100,
                                   127,
                                   128,
                                   -128,
                                   -129,
                                   200,
                                   255,
                                   256,
                                   257,
                                   259,
                                   -257,
                                   2047,
                                   2049,
                                   2051,
                                   -2049,
                                   32767,
                                   32768,
                                   -32768,
                                   65504,
                                   65535,
                                   65536,
                                   65519,
                                   65520,
                                   16777215,
                                   16777217,
                                   16777219,
                                   -16777217,
                                   2147483647,
                                   -2147483647 - 1,
                                   INT64_C(4294967296),
                                   INT64_C(4294967297),
                                   INT64_C(9007199254740993),
                                   INT64_C(9007199254740995),
                                   INT64_C(-9007199254740993),
                                   INT64_C(4611686293305294849),
                                   INT64_MAX,
                                   INT64_MIN};

enum {
    FLOATS = sizeof floats / sizeof *floats,
    INTEGERS = sizeof integers / sizeof *integers
};

/* The elements of one conversion. */
typedef struct elements {
    core_dtype from, to;
    int64_t count;
    unsigned char source[MOST * 8], wanted[MOST * 8];
    bool nan[MOST];
} elements;

/* Also those of eight bits, with which no operator computes. */
static bool is_float(core_dtype dtype)
{
    return core_dtype_is_floating(dtype) || dtype == CORE_F8E4M3 ||
           dtype == CORE_F8E5M2;
}

static int64_t whole_of(core_dtype dtype, const void *at)
{
    int64_t wide = 0;

    memcpy(&wide, at, core_dtype_size(dtype));
    switch (dtype) {
    case CORE_I32:
        return (int32_t)wide;
    case CORE_I16:
        return (int16_t)wide;
    case CORE_I8:
        return (int8_t)wide;
    default:
        return wide;
    }
}

/* Whether semantics.md defines the result: floats that fit an integer, and only
 * one rounding where f32 may be in between. */
static bool float_defined(core_dtype to, double value)
{
    double whole = trunc(value);
    bool narrow = to == CORE_F16 || to == CORE_BF16 || to == CORE_F8E4M3 ||
                  to == CORE_F8E5M2;

    if (to == CORE_BOOL || to == CORE_F64 || to == CORE_F32)
        return true;
    if (narrow)
        return isnan(value) || (double)(float)value == value;
    if (!isfinite(value))
        return false;
    switch (to) {
    case CORE_I64:
        return whole >= -0x1p63 && whole < 0x1p63;
    case CORE_I32:
        return whole >= -0x1p31 && whole < 0x1p31;
    case CORE_I16:
        return whole >= -32768 && whole < 32768;
    case CORE_I8:
        return whole >= -128 && whole < 128;
    default:
        return whole >= 0 && whole < 256;
    }
}

static void add_float(elements *self, double value)
{
    size_t size = core_dtype_size(self->from), to = core_dtype_size(self->to);
    unsigned char *source = self->source + (size_t)self->count * size;
    unsigned char *wanted = self->wanted + (size_t)self->count * to;
    int64_t whole;

    element_store(self->from, value, source);
    value = element_load(self->from, source);
    if (!float_defined(self->to, value))
        return;
    if (self->to == CORE_BOOL)
        *wanted = value != 0;
    else if (is_float(self->to))
        element_store(self->to, value, wanted);
    else
        whole = (int64_t)value, memcpy(wanted, &whole, to);
    self->nan[self->count++] =
        is_float(self->to) && isnan(element_load(self->to, wanted));
}

/* NaN whose payload a rounding of the bits carries into the exponent or the sign,
 * or whose high bits are all 0. */
static const struct {
    core_dtype dtype;
    uint64_t bits[4];
} payloads[] = {
    {CORE_F64,
     {0x7fffffffffffffff, 0xffffffffffffffff, 0x7ff0000000000001,
      0xfff7ffffffffffff}},
    {CORE_F32, {0x7fffffff, 0xffffffff, 0x7f800001, 0xffbfffff}},
    {CORE_F16, {0x7fff, 0xffff, 0x7c01, 0xfdff}},
    {CORE_BF16, {0x7fff, 0xffff, 0x7f81, 0xffbf}},
};

static void add_payloads(elements *self)
{
    size_t size = core_dtype_size(self->from), to = core_dtype_size(self->to);

    for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++)
        for (int k = 0; payloads[i].dtype == self->from &&
                        float_defined(self->to, NAN) && k < 4;
             k++) {
            unsigned char *wanted = self->wanted + (size_t)self->count * to;

            memcpy(self->source + (size_t)self->count * size,
                   &payloads[i].bits[k], size);
            if (self->to == CORE_BOOL)
                *wanted = 1;
            else
                element_store(self->to, NAN, wanted);
            self->nan[self->count++] = self->to != CORE_BOOL;
        }
}

/* Integers keep their low bits; those that f16, bf16 and eight bits might round
 * twice are left out. */
static void add_integer(elements *self, int64_t value)
{
    size_t size = core_dtype_size(self->from), to = core_dtype_size(self->to);
    unsigned char *source = self->source + (size_t)self->count * size;
    unsigned char *wanted = self->wanted + (size_t)self->count * to;
    float single;
    double wide;

    if (self->from == CORE_BOOL)
        value = value & 1;
    memcpy(source, &value, size);
    value = whole_of(self->from, source);
    single = (float)value;
    wide = (double)value;
    if (self->to == CORE_BOOL)
        *wanted = value != 0;
    else if (self->to == CORE_F32)
        memcpy(wanted, &single, 4);
    else if (self->to == CORE_F64)
        memcpy(wanted, &wide, 8);
    else if (!is_float(self->to))
        memcpy(wanted, &value, to);
    else if (value < -0x1000000 || value > 0x1000000)
        return;
    else
        element_store(self->to, wide, wanted);
    self->nan[self->count++] =
        is_float(self->to) && isnan(element_load(self->to, wanted));
}

static void collect(elements *self, core_dtype from, core_dtype to)
{
    self->from = from;
    self->to = to;
    self->count = 0;
    for (size_t i = 0; is_float(from) && i < FLOATS; i++)
        add_float(self, floats[i]);
    add_payloads(self);
    for (size_t i = 0; !is_float(from) && i < INTEGERS; i++)
        add_integer(self, integers[i]);
}

/* --------------------------------------------------------------- layouts -- */

typedef enum place {
    PLACE_ROWS,
    PLACE_OFFSET,     /* one element from the beginning */
    PLACE_SPACED,     /* every third element */
    PLACE_TRANSPOSED, /* columns first */
    PLACE_PADDED,     /* columns first, with gaps between them */
    PLACE_PERMUTED,   /* four dimensions in another order, with gaps */
    PLACE_REPEATED,   /* the rows are one; for sources only */
    PLACES
} place;

static const char *const place_names[PLACES] = {"row-major",
                                                "at an offset of one element",
                                                "with gaps",
                                                "transposed",
                                                "transposed with gaps",
                                                "permuted in four dimensions",
                                                "broadcast from one row"};

enum { COLUMNS = 11, DIMENSIONS = 4 };

/* `rows` by COLUMNS elements: of four dimensions where rows is a multiple of
 * four, else of two. */
typedef struct matrix {
    core_tensor *memory, *view;
    int64_t rows, capacity;
    uint32_t ndim;
    int64_t offset, sizes[DIMENSIONS], strides[DIMENSIONS];
} matrix;

static void matrix_free(matrix *self)
{
    core_tensor_release(self->view);
    core_tensor_release(self->memory);
    memset(self, 0, sizeof *self);
}

static int64_t place_at(const matrix *self, int64_t i)
{
    int64_t at = self->offset;

    for (uint32_t d = self->ndim; d-- > 0; i /= self->sizes[d])
        at += i % self->sizes[d] * self->strides[d];
    return at;
}

/* No two dimensions can be merged. */
static void permute(matrix *self)
{
    const int64_t sizes[DIMENSIONS] = {2, 2, self->rows / 4, COLUMNS};
    const int64_t third = 3, second = third * sizes[2] + 2,
                  last = second * sizes[1] + 1;
    const int64_t strides[DIMENSIONS] = {1, second, third, last};

    self->ndim = DIMENSIONS;
    memcpy(self->sizes, sizes, sizeof sizes);
    memcpy(self->strides, strides, sizeof strides);
}

static void arrange(matrix *self, place how, int64_t rows)
{
    self->rows = rows;
    self->ndim = 2;
    self->offset = how == PLACE_OFFSET || how == PLACE_PADDED;
    self->sizes[0] = rows;
    self->sizes[1] = self->strides[0] = COLUMNS;
    self->strides[1] = 1;
    if (how == PLACE_SPACED) {
        self->strides[0] = 3 * COLUMNS + 2;
        self->strides[1] = 3;
    } else if (how == PLACE_TRANSPOSED || how == PLACE_PADDED) {
        self->strides[0] = 1;
        self->strides[1] = rows + 5 * (how == PLACE_PADDED);
    } else if (how == PLACE_REPEATED) {
        self->strides[0] = 0;
    } else if (how == PLACE_PERMUTED) {
        permute(self);
    }
    self->capacity = place_at(self, rows * COLUMNS - 1) + 3;
}

/* Gives a matrix the four dimensions of another: its rows are not apart. */
static void split_rows(matrix *self, const matrix *other)
{
    const int64_t row = self->strides[0], column = self->strides[1];

    if (self->ndim == other->ndim || other->ndim == 2)
        return;
    self->ndim = other->ndim;
    memcpy(self->sizes, other->sizes, sizeof self->sizes);
    self->strides[2] = row;
    self->strides[1] = row * self->sizes[2];
    self->strides[0] = self->strides[1] * self->sizes[1];
    self->strides[3] = column;
}

/* The view of memory with these bytes. */
static bool make(suite *of, matrix *self, core_dtype dtype, const void *bytes,
                 outcome *out)
{
    core_value args[4];

    if (!expect_ok(out,
                   core_tensor_from_data(bytes, dtype, &self->capacity, 1,
                                         of->device, &self->memory),
                   "making a tensor"))
        return false;
    args[0] = suite_tensor_value(self->memory);
    args[1] =
        (core_value){CORE_VALUE_INT_LIST, self->ndim, {.ints = self->sizes}};
    args[2] =
        (core_value){CORE_VALUE_INT_LIST, self->ndim, {.ints = self->strides}};
    args[3] = core_int(self->offset);
    return expect_ok(out, suite_call("as_strided", args, 4, &self->view),
                     "as_strided");
}

static bool is_small(const suite *of, core_dtype dtype, const void *at)
{
    double size;

    if (!is_float(dtype) ||
        !(of->numerics.flushes_denormals & CORE_DTYPE_MASK(dtype)))
        return false;
    size = fabs(element_load(dtype, at));
    return size < dtype_min_normal(dtype);
}

/* Tests one element; a device without subnormal numbers may make it zero. */
static bool same(const suite *of, const elements *e, int64_t i,
                 const unsigned char *got)
{
    size_t to = core_dtype_size(e->to);
    const unsigned char *wanted = e->wanted + (size_t)i * to;

    if (e->nan[i])
        return isnan(element_load(e->to, got));
    return memcmp(got, wanted, to) == 0 ||
           ((is_small(of, e->to, wanted) ||
             is_small(of, e->from,
                      e->source + (size_t)i * core_dtype_size(e->from))) &&
            element_load(e->to, got) == 0);
}

/* The number of the element that is stored at (row-major) element i of the
 * source. */
static int64_t which(const elements *e, place from, int64_t i)
{
    return (from == PLACE_REPEATED ? i % COLUMNS : i) % e->count;
}

static bool holds(suite *of, const elements *e, const matrix *target,
                  place from, place to, const unsigned char *filled,
                  outcome *out)
{
    size_t size = core_dtype_size(e->to);
    size_t bytes = (size_t)target->capacity * size;
    unsigned char *got = malloc(bytes);
    unsigned char *gaps = malloc(bytes);
    char label[100];
    bool good = false;

    snprintf(label, sizeof label, "%s to %s, %s to %s",
             core_dtype_name(e->from), core_dtype_name(e->to),
             place_names[from], place_names[to]);
    if (!got || !gaps) {
        harness_error(out, "no memory");
        goto done;
    }
    memcpy(gaps, filled, bytes);
    good = expect_ok(out, core_tensor_read(target->memory, got, bytes),
                     "reading a result");
    for (int64_t i = 0; good && i < target->rows * COLUMNS; i++) {
        int64_t k = which(e, from, i);
        size_t offset = (size_t)place_at(target, i) * size;
        unsigned char *at = got + offset;
        const unsigned char *source =
            e->source + (size_t)k * core_dtype_size(e->from);

        good = expect(out, same(of, e, k, at),
                      "%s: element %lld, %.17g, becomes %.17g, expected %.17g",
                      label, (long long)i, element_load(e->from, source),
                      element_load(e->to, at),
                      element_load(e->to, e->wanted + (size_t)k * size));
        memcpy(gaps + offset, at, size);
    }
    good = good && expect(out, memcmp(gaps, got, bytes) == 0,
                          "%s: memory between the elements of the target is "
                          "changed",
                          label);
done:
    free(gaps);
    free(got);
    return good;
}

static core_status copy(core_tensor *to, core_tensor *from)
{
    core_value args[2] = {suite_tensor_value(to), suite_tensor_value(from)};
    core_tensor *result;
    core_status status = suite_call("copy_", args, 2, &result);

    core_tensor_release(result);
    return status;
}

static bool convert(suite *of, const elements *e, int64_t rows, place from,
                    place to, outcome *out)
{
    matrix source = {NULL}, target = {NULL};
    size_t size = core_dtype_size(e->from), room;
    unsigned char *bytes;
    bool good = false;

    if (from == PLACE_PERMUTED || to == PLACE_PERMUTED)
        rows += 3 - (rows + 3) % 4;
    arrange(&source, from, rows);
    arrange(&target, to, rows);
    split_rows(&source, &target);
    split_rows(&target, &source);
    room = (size_t)(source.capacity > target.capacity ? source.capacity
                                                      : target.capacity) *
           8;
    bytes = malloc(room);
    if (!bytes) {
        harness_error(out, "no memory");
        return false;
    }
    memset(bytes, e->from == CORE_BOOL, room);
    for (int64_t i = 0; i < rows * COLUMNS; i++)
        memcpy(bytes + (size_t)place_at(&source, i) * size,
               e->source + (size_t)which(e, from, i) * size, size);
    if (!make(of, &source, e->from, bytes, out))
        goto done;
    memset(bytes, e->to == CORE_BOOL ? 1 : 0x5a, room);
    good = make(of, &target, e->to, bytes, out) &&
           expect_ok(out, copy(target.view, source.view), "copy_") &&
           holds(of, e, &target, from, to, bytes, out);
done:
    matrix_free(&target);
    matrix_free(&source);
    free(bytes);
    return good;
}

/* ----------------------------------------------------------------- tests -- */

/* Tests whether the core skips a kernel of copy_ for these dtypes: it converts
 * no operand of copy_ for a kernel that requires equal ones. */
static bool is_skipped(const core_kernel *kernel, core_dtype from,
                       core_dtype to)
{
    return kernel->demands & CORE_REQUIRE_EQUAL_DTYPES && from != to &&
           core_dtype_is_floating(from) && core_dtype_is_floating(to);
}

static claim claim_of_copy(const suite *self, core_dtype from, core_dtype to)
{
    const core_kernel *kernel;
    claim found = CLAIM_NONE;

    for (uint32_t i = 0; core_kernel_at(self->type, i, &kernel) == CORE_OK;
         i++) {
        uint32_t targets = kernel->signature[0], sources = kernel->signature[1];

        if (kernel->name.size != 5 ||
            memcmp(kernel->name.data, "copy_", 5) != 0 ||
            (targets && !(targets & CORE_DTYPE_MASK(to))) ||
            (sources && !(sources & CORE_DTYPE_MASK(from))) ||
            is_skipped(kernel, from, to))
            continue;
        if (!kernel->supports)
            return CLAIM_KERNEL;
        found = CLAIM_CONDITIONAL;
    }
    return found;
}

/* The conversions from one dtype. */
typedef struct conversion_counts {
    bool conditional; /* the kernel for the current pair may refuse */
    uint32_t ran, refused;
} conversion_counts;

/* Makes one conversion; one that `supports` refuses is not claimed. */
static bool convert_if_claimed(suite *self, const elements *e, int64_t rows,
                               place from, place to, conversion_counts *all,
                               outcome *out)
{
    core_error_clear();
    if (convert(self, e, rows, from, to, out)) {
        all->ran++;
        return true;
    }
    if (!all->conditional || out->verdict != VERDICT_FAIL ||
        core_error_code() != CORE_ERROR_NO_KERNEL)
        return false;
    out->verdict = VERDICT_PASS;
    out->detail[0] = 0;
    all->refused++;
    return true;
}

/* More elements than 2^16: dense, each side with strides, and both. */
static bool convert_many(suite *self, const elements *e, conversion_counts *all,
                         outcome *out)
{
    static const place pairs[][2] = {{PLACE_ROWS, PLACE_ROWS},
                                     {PLACE_PERMUTED, PLACE_ROWS},
                                     {PLACE_ROWS, PLACE_PADDED},
                                     {PLACE_REPEATED, PLACE_SPACED}};

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!convert_if_claimed(self, e, MANY / COLUMNS, pairs[i][0],
                                pairs[i][1], all, out))
            return false;
    return true;
}

/* All layouts of both, then many elements. */
static bool convert_all(suite *self, const elements *e, conversion_counts *all,
                        outcome *out)
{
    const int64_t rows = (e->count + COLUMNS - 1) / COLUMNS + 1;

    for (int from = 0; from < PLACES; from++)
        for (int to = 0; to < PLACE_REPEATED; to++)
            if (!convert_if_claimed(self, e, rows, (place)from, (place)to, all,
                                    out))
                return false;
    return convert_if_claimed(self, e, 1, PLACE_ROWS, PLACE_ROWS, all, out) &&
           (self->quick || convert_many(self, e, all, out));
}

static void conversions(suite *self, outcome *out, const test *one)
{
    static elements e;
    core_dtype from = (core_dtype)one->number;
    conversion_counts all = {.ran = 0};

    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < DTYPES; i++) {
        claim what = claim_of_copy(self, from, dtypes[i]);

        if (what == CLAIM_NONE)
            continue;
        all.conditional = what == CLAIM_CONDITIONAL;
        collect(&e, from, dtypes[i]);
        if (!convert_all(self, &e, &all, out))
            return;
    }
    if (all.ran == 0)
        not_supported(out, "copy_ from %s is not claimed%s",
                      core_dtype_name(from),
                      all.refused ? ": the kernel refuses every call" : "");
    else if (all.refused > 0)
        snprintf(out->detail, sizeof out->detail,
                 "the kernel refuses %u of %u calls", all.refused,
                 all.refused + all.ran);
}

/* ---------------------------------------------------------- mixed dtypes -- */

static const char *const mixed[] = {"add.Tensor", "mul.Tensor", "sub.Tensor"};

static double mixed_value(size_t op, double a, double b)
{
    return op == 0 ? a + b : op == 1 ? a * b : a - b;
}

/* Small numbers, of which every dtype represents sums and products. */
static bool mix(suite *self, size_t op, core_dtype a, core_dtype b,
                uint32_t *ran, outcome *out)
{
    enum { SOME = 37 };
    static const int64_t size = SOME;
    const char *name = mixed[op];
    unsigned char data[2][SOME * 8], got[SOME * 8];
    core_tensor *operands[2] = {NULL, NULL}, *result = NULL;
    core_value args[2];
    core_status status;
    bool good = true;

    for (int k = 0; good && k < 2; k++) {
        core_dtype dtype = k ? b : a;

        for (int64_t i = 0; i < SOME; i++)
            element_store(dtype,
                          (double)(k ? i / 3 % 4 : i % 6 + 3 * (op == 2)),
                          data[k] + (size_t)i * core_dtype_size(dtype));
        good = expect_ok(out,
                         core_tensor_from_data(data[k], dtype, &size, 1,
                                               self->device, &operands[k]),
                         "making an operand");
        if (good)
            args[k] = suite_tensor_value(operands[k]);
    }
    if (!good)
        goto done;
    status = suite_call(name, args, 2, &result);
    if (status == CORE_ERROR_NO_KERNEL)
        goto done; /* not claimed */
    good = expect_ok(out, status, name) &&
           expect_ok(out,
                     core_tensor_read(
                         result, got,
                         SOME * core_dtype_size(core_tensor_dtype(result))),
                     "reading a result");
    ++*ran;
    for (int64_t i = 0; good && i < SOME; i++) {
        core_dtype dtype = core_tensor_dtype(result);
        double x = element_load(a, data[0] + (size_t)i * core_dtype_size(a));
        double y = element_load(b, data[1] + (size_t)i * core_dtype_size(b));
        double is =
            element_load(dtype, got + (size_t)i * core_dtype_size(dtype));

        good = expect(out, is == mixed_value(op, x, y),
                      "%s of %s and %s: element %lld, of %g and %g, is %g, "
                      "expected %g",
                      name, core_dtype_name(a), core_dtype_name(b),
                      (long long)i, x, y, is, mixed_value(op, x, y));
    }
done:
    core_tensor_release(result);
    core_tensor_release(operands[1]);
    core_tensor_release(operands[0]);
    return good;
}

static void mixed_dtypes(suite *self, outcome *out, const test *one)
{
    uint32_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t k = 0; k < sizeof mixed / sizeof *mixed; k++)
        for (size_t i = 0; i < DTYPES; i++)
            for (size_t j = 0; j < DTYPES; j++) {
                bool small =
                    dtypes[i] == CORE_F8E4M3 || dtypes[i] == CORE_F8E5M2 ||
                    dtypes[j] == CORE_F8E4M3 || dtypes[j] == CORE_F8E5M2 ||
                    dtypes[i] == CORE_BOOL || dtypes[j] == CORE_BOOL;

                if (i != j && !small &&
                    !mix(self, k, dtypes[i], dtypes[j], &ran, out))
                    return;
            }
    if (ran == 0)
        not_supported(out, "no operator takes operands of two dtypes");
}

bool suite_add_conversions(suite *self)
{
    static const listed rules[] = {
        {"ops/rules/mixed-dtypes", mixed_dtypes, true},
    };

    for (size_t i = 0; i < DTYPES; i++) {
        test one = {.level = LEVEL_OPS, .optional = true, .run = conversions};

        snprintf(one.name, sizeof one.name, "ops/conversions/%s",
                 core_dtype_name(dtypes[i]));
        one.number = dtypes[i];
        if (!suite_add(self, &one))
            return false;
    }
    return suite_add_list(self, LEVEL_OPS, rules, sizeof rules / sizeof *rules);
}
