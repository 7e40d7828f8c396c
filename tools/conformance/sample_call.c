/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "sample_call.h"

#include "element_value.h"
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const sample *sample_at(size_t index)
{
    return index < sample_count ? &sample_table[index] : NULL;
}

static int compare_operator(const void *op, const void *row)
{
    return strcmp(op, ((const kernel_name *)row)->op);
}

const char *kernel_name_of(const char *op)
{
    const kernel_name *row =
        bsearch(op, kernel_name_table, kernel_name_count,
                sizeof *kernel_name_table, compare_operator);

    return row ? row->kernel : op;
}

static int compare_name(const void *op, const void *row)
{
    return strcmp(op, *(const char *const *)row);
}

bool is_composed(const char *op)
{
    return bsearch(op, composed_table, composed_count, sizeof *composed_table,
                   compare_name) != NULL;
}

/* -------------------------------------------------------------- values -- */

/* Prime numbers, the second more than SAMPLE_NUMEL. */
enum { FEW = 101, MANY = 140009 };

static double draw(const suite *of, const sample *from, uint32_t which,
                   int64_t i)
{
    uint64_t random =
        suite_random(of, from->op, (uint64_t)which * 4096 + (uint64_t)i);

    return from->low +
           (from->high - from->low) * (double)(random >> 11) * 0x1p-53;
}

/* An integer in the range of the interval, signed or unsigned. */
static double whole(const sample *from, core_dtype dtype, double value)
{
    double share = (value - from->low) / (from->high - from->low);

    if (dtype == CORE_BOOL)
        return share >= .5;
    if (from->low < 0 && dtype != CORE_U8)
        return floor(share * 11) - 5;
    return 1 + floor(share * 6);
}

/* Up to `period` different values. */
static double distinct(const sample *from, const operand *one, int64_t i)
{
    int64_t period = one->numel > FEW ? MANY : FEW;
    int64_t place = i * 37 % period;

    if (core_dtype_is_floating(one->dtype))
        return from->low +
               (from->high - from->low) * (double)place / (double)period;
    if (one->dtype == CORE_BOOL)
        return (double)(place % 2);
    return (double)(from->low < 0 && one->dtype != CORE_U8 ? place - period / 2
                                                           : place);
}

static double value_at(const sample_call *self, const suite *of,
                       const sample *from, const operand *one, int64_t limit,
                       int64_t i)
{
    double value;

    switch (one->kind) {
    case 'x':
        return (double)(suite_random(
                            of, "index",
                            (uint64_t)(self->noperands * 512 + (uint32_t)i)) %
                        (uint64_t)limit);
    case 'y':
        return (double)(i % one->sizes[one->ndim - 1] + 1);
    case 'q':
        return (double)((i * 2 + 1) % one->numel);
    case 'm':
        return (double)((i * 7 / 3) % 2);
    case 'v':
        return core_dtype_is_floating(one->dtype)
                   ? from->low + (from->high - from->low) * (double)i /
                                     (double)one->numel
                   : (double)i;
    case 'u':
        return distinct(from, one, i);
    default:
        value = draw(of, from, self->noperands, i);
        return core_dtype_is_floating(one->dtype)
                   ? value
                   : whole(from, one->dtype, value);
    }
}

/* Replaces the matrix a by a a' + n, which is positive definite. */
static void make_positive(operand *one)
{
    int64_t n = one->sizes[one->ndim - 1];
    double a[64];

    if (n * n > 64)
        return;
    for (int64_t b = 0; b + n * n <= one->numel; b += n * n) {
        memcpy(a, one->values + b, (size_t)(n * n) * sizeof *a);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = i == j ? (double)n : 0;

                for (int64_t k = 0; k < n; k++)
                    sum += a[i * n + k] * a[j * n + k];
                one->values[b + i * n + j] = sum;
            }
    }
}

/* Slopes change, and the nearest pixel does, where a position is a multiple of
 * half a pixel.  Moves a coordinate of a grid to a quarter of one, of the image
 * with `size` pixels; align: -1 and 1 are centers of pixels. */
static double beside_pixels(double value, int64_t size, bool align)
{
    double scale = (double)(align ? size - 1 : size) / 2;
    double shift = align ? scale : scale - .5;

    if (scale <= 0)
        return value;
    return (floor((value * scale + shift) * 2) / 2 + .25 - shift) / scale;
}

/* The grid of grid_sampler_2d and _3d, the last operand of an image's
 * dimensions; its last dimension counts from the innermost one. */
static void move_grid(sample_call *self)
{
    operand *grid = &self->operands[self->noperands - 1];
    const operand *image = grid - 1;
    int64_t ncoordinates = grid->sizes[grid->ndim - 1];
    /* Behind the tensors: interpolation_mode, padding_mode, align_corners. */
    bool align = self->values[self->noperands + 2].u.i != 0;

    if (ncoordinates < 1 || ncoordinates + 2 != image->ndim)
        return;
    for (int64_t i = 0; i < grid->numel; i++)
        grid->values[i] = element_rounded(
            grid->dtype,
            beside_pixels(grid->values[i],
                          image->sizes[image->ndim - 1 - i % ncoordinates],
                          align));
}

/* ------------------------------------------------------------- parsing -- */

static size_t numbers(const char **text, int64_t *out)
{
    size_t count = 0;

    while (count < 8 && (**text == '-' || (**text >= '0' && **text <= '9'))) {
        out[count++] = strtoll(*text, (char **)(uintptr_t)text, 10);
        if (**text == ',')
            ++*text;
    }
    return count;
}

/* Reads the elements, "=0,8,4"; false: there are more or fewer. */
static bool listed_values(const char *text, operand *one, int64_t limit)
{
    int64_t i = 0;

    for (; i < one->numel && (*text == '=' || *text == ','); i++) {
        int64_t value = strtoll(text + 1, (char **)(uintptr_t)&text, 10);

        if (value >= limit)
            return false;
        one->values[i] = (double)value;
    }
    return i == one->numel && *text == 0;
}

static bool add_operand(sample_call *self, const suite *of, const sample *from,
                        const char *word)
{
    const char *text = word[1] == ':' ? word + 2 : word + 1;
    operand *one = &self->operands[self->noperands];
    int64_t limit = 2;

    if (self->noperands == SAMPLE_TENSORS)
        return false;
    one->kind = word[0];
    one->dtype = word[0] == 'y'                     ? CORE_I32
                 : word[0] == 'x' || word[0] == 'q' ? CORE_I64
                 : word[0] == 'm'                   ? CORE_BOOL
                                                    : self->dtype;
    one->ndim = (uint32_t)numbers(&text, one->sizes);
    if (*text == '/')
        limit = strtoll(text + 1, (char **)(uintptr_t)&text, 10);
    one->numel = 1;
    for (uint32_t d = 0; d < one->ndim; d++)
        one->numel *= one->sizes[d];
    if (one->numel > SAMPLE_NUMEL)
        return false;
    if (self->no_values) {
        self->noperands++;
        return true;
    }
    for (int64_t i = 0; i < one->numel; i++)
        one->values[i] = value_at(self, of, from, one, limit, i);
    if (*text == '=' && !listed_values(text, one, limit))
        return false;
    if (one->kind == 'h')
        make_positive(one);
    for (int64_t i = 0; i < one->numel; i++)
        one->values[i] = element_rounded(one->dtype, one->values[i]);
    self->noperands++;
    return true;
}

static core_value list_of(uint32_t tag, const void *data, size_t count)
{
    core_value value = {tag, (uint32_t)count, {0}};

    value.u.pointer = (void *)(uintptr_t)data;
    return value;
}

/* Adds an argument that is not a tensor; false: unknown. */
static bool add_value(sample_call *self, const char *word)
{
    uint32_t at = self->count;
    const char *text = word[1] ? word + 2 : word + 1;
    core_value *to = &self->values[at];
    size_t n;

    switch (word[0]) {
    case 'i':
        *to = core_int(strtoll(text, NULL, 10));
        break;
    case 'f':
        *to = core_float(strtod(text, NULL));
        break;
    case 'b':
        *to = core_bool(text[0] == '1');
        break;
    case 's':
        *to = (core_value){
            CORE_VALUE_STRING, (uint32_t)strlen(text), {.string = text}};
        break;
    case 'l':
        n = numbers(&text, self->ints[at]);
        *to = list_of(CORE_VALUE_INT_LIST, self->ints[at], n);
        break;
    case 'k':
        n = numbers(&text, self->ints[at]);
        for (size_t i = 0; i < n; i++)
            self->bools[at][i] = self->ints[at][i] != 0;
        *to = list_of(CORE_VALUE_BOOL_LIST, self->bools[at], n);
        break;
    case 'd':
    case '%':
        self->same[at] = true;
        break;
    case '@':
        self->device[at] = true;
        break;
    case 'n':
        break;
    default:
        return false;
    }
    return true;
}

static bool add_word(sample_call *self, const suite *of, const sample *from,
                     const char *word, int32_t *list)
{
    bool tensor = strchr("tupvxqymh", word[0]) && word[1] == ':';

    if (self->count == SAMPLE_ARGUMENTS)
        return false;
    if (word[0] == '[') {
        *list = (int32_t)self->count++;
        self->first[*list] = (int32_t)self->noperands;
        self->items[*list] = 0;
    } else if (word[0] == ']') {
        *list = -1;
    } else if (*list >= 0) {
        self->items[*list]++;
        if (tensor)
            return add_operand(self, of, from, word);
        self->absent |= 1u << self->noperands++;
    } else if (tensor) {
        self->first[self->count++] = (int32_t)self->noperands;
        return add_operand(self, of, from, word);
    } else if (add_value(self, word)) {
        self->count++;
    } else {
        return false;
    }
    return true;
}

static bool parse(sample_call *self, const suite *of, const sample *from,
                  core_dtype dtype, bool values)
{
    int32_t list = -1;
    char *rest;

    /* Values are only read as far as they were written. */
    memset(self, 0, offsetof(sample_call, operands));
    for (uint32_t k = 0; k < SAMPLE_TENSORS; k++)
        memset(&self->operands[k], 0, offsetof(operand, values));
    self->dtype = dtype;
    self->no_values = !values;
    for (int i = 0; i < SAMPLE_ARGUMENTS; i++)
        self->first[i] = self->items[i] = -1;
    if (core_op_find(from->op, &self->op) != CORE_OK)
        return false;
    snprintf(self->text, sizeof self->text, "%s", from->words);
    for (char *word = strtok_r(self->text, " ", &rest); word;
         word = strtok_r(NULL, " ", &rest))
        if (!add_word(self, of, from, word, &list))
            return false;
    if (values && self->noperands > 1 &&
        strncmp(from->op, "grid_sampler_", 13) == 0)
        move_grid(self);
    return true;
}

bool sample_call_parse(sample_call *self, const suite *of, const sample *from,
                       core_dtype dtype)
{
    return parse(self, of, from, dtype, true);
}

bool sample_call_parse_shapes(sample_call *self, const suite *of,
                              const sample *from, core_dtype dtype)
{
    return parse(self, of, from, dtype, false);
}

bool sample_call_has_dtype(const sample_call *self)
{
    for (uint32_t k = 0; k < self->noperands; k++)
        if (strchr("tupvh",
                   self->operands[k].kind ? self->operands[k].kind : 'x'))
            return true;
    for (uint32_t i = 0; i < self->count; i++)
        if (self->same[i])
            return true;
    return false;
}

/* All combinations of `count` values in the operands that are numbers. */
static void spread(operand *one, int64_t step, const double *values,
                   int64_t count)
{
    for (int64_t i = 0; i < one->numel; i++)
        one->values[i] = element_rounded(one->dtype, values[i / step % count]);
}

void sample_call_make_special(sample_call *self)
{
    enum { SPECIAL = 17 };
    int64_t step = 1;

    for (uint32_t k = 0; k < self->noperands; k++) {
        operand *one = &self->operands[k];
        double least = dtype_min_normal(one->dtype);
        double tiny = least * dtype_epsilon(one->dtype);
        double most = dtype_largest(one->dtype);
        const double special[SPECIAL] = {
            NAN,  INFINITY,  -INFINITY, 0,     -0.0,      1,
            -1,   65504,     -65504,    .5,    least / 2, -least / 4,
            tiny, -3 * tiny, most,      -most, least};

        if (core_dtype_is_floating(one->dtype))
            spread(one, step, special, SPECIAL);
        step *= core_dtype_is_floating(one->dtype) ? SPECIAL : 1;
    }
}

void sample_call_make_values(sample_call *self, const double *values,
                             int64_t count)
{
    int64_t step = 1;

    for (uint32_t k = 0; k < self->noperands; k++) {
        operand *one = &self->operands[k];

        if (!core_dtype_is_floating(one->dtype))
            continue;
        spread(one, step, values, count);
        step *= count;
    }
}

void sample_call_make_masked(sample_call *self)
{
    for (uint32_t k = 0; k < self->noperands; k++) {
        operand *one = &self->operands[k];

        for (int64_t i = 0;
             core_dtype_is_floating(one->dtype) && i < one->numel; i++)
            one->values[i] =
                i % 3 == 1
                    ? -(double)INFINITY
                    : element_rounded(one->dtype, one->values[i] * 200 + 300);
    }
}

void sample_call_add(sample_call *self, double number)
{
    for (uint32_t k = 0; k < self->noperands; k++) {
        operand *one = &self->operands[k];

        for (int64_t i = 0;
             core_dtype_is_floating(one->dtype) && i < one->numel; i++)
            one->values[i] =
                element_rounded(one->dtype, one->values[i] + number);
    }
}

void sample_call_limit(sample_call *self, double most)
{
    for (uint32_t k = 0; k < self->noperands; k++)
        for (int64_t i = 0; i < self->operands[k].numel; i++) {
            double *at = &self->operands[k].values[i];

            if (isfinite(*at) && fabs(*at) > most)
                *at = copysign(2, *at);
        }
}

bool sample_call_make_twins(sample_call *self)
{
    operand *a = &self->operands[0], *b = &self->operands[1];

    if (self->noperands < 2 || self->items[0] >= 0 || self->first[0] != 0 ||
        self->count < 2 || self->first[1] != 1 || self->items[1] >= 0 ||
        !strchr("tp", a->kind) || !strchr("tp", b->kind) ||
        a->ndim != b->ndim || a->numel == 0 || sample_call_writes(self, 0) ||
        sample_call_writes(self, 1) ||
        memcmp(a->sizes, b->sizes, a->ndim * sizeof *a->sizes) != 0)
        return false;
    memcpy(b->values, a->values, (size_t)a->numel * sizeof *a->values);
    self->twins = true;
    return true;
}

/* --------------------------------------------------------------- calls -- */

/* The place of an element in memory, advanced in row-major order. */
typedef struct place {
    const operand *of;
    const int64_t *strides;
    int64_t index[8];
    int64_t at;
} place;

static void next_place(place *p)
{
    for (uint32_t d = p->of->ndim; d-- > 0;) {
        p->at += p->strides[d];
        if (++p->index[d] < p->of->sizes[d])
            return;
        p->at -= p->strides[d] * p->of->sizes[d];
        p->index[d] = 0;
    }
}

static core_status strided(core_tensor *storage, const operand *one,
                           const int64_t *strides, int64_t offset,
                           core_tensor **out)
{
    core_value args[4] = {
        {CORE_VALUE_TENSOR, 0, {.tensor = storage}},
        {CORE_VALUE_INT_LIST, one->ndim, {.ints = one->sizes}},
        {CORE_VALUE_INT_LIST, one->ndim, {.ints = strides}},
        core_int(offset),
    };
    core_value result = {0};
    core_operator *op;

    CORE_TRY(core_op_find("as_strided", &op));
    CORE_TRY(core_op_call(op, args, 4, &result, 1));
    *out = result.u.tensor;
    return CORE_OK;
}

const char *const layout_names[LAYOUTS] = {
    "row-major",
    "transposed with gaps",
    "at an offset of one element",
    "with gaps between rows",
    "with gaps between elements",
    "transposed",
    "transposed with gaps between columns",
    "with channels last",
    "with stride 0 in its first dimension",
    "with stride 0 in its last dimension",
    "with transposed matrices",
    "with its batches between rows",
};

/* The dimension with stride 0, or the number of dimensions. */
static uint32_t repeated(const operand *one, layout how)
{
    uint32_t first = 0, last = one->ndim;

    while (first < one->ndim && one->sizes[first] == 1)
        first++;
    while (last > 0 && one->sizes[last - 1] == 1)
        last--;
    if (how == LAYOUT_ONE_ROW)
        return first;
    return how == LAYOUT_ONE_COLUMN && last > 0 ? last - 1 : one->ndim;
}

/* The place-th dimension of a layout without repetitions, from the innermost
 * outwards. */
static uint32_t dimension_at(const operand *one, layout how, uint32_t place)
{
    uint32_t last = one->ndim - 1;

    switch (how) {
    case LAYOUT_STRIDED:
    case LAYOUT_TRANSPOSED:
    case LAYOUT_COLUMNS_APART:
        return place;
    case LAYOUT_CHANNELS_LAST: /* 1, the last … 2, 0 */
        return place == last ? 0 : place == 0 ? 1 : one->ndim - place;
    case LAYOUT_MATRICES:
        return place < 2 ? last - 1 + place : last - place;
    case LAYOUT_HEADS:
        return place == 1 || place == 2 ? last - 3 + place : last - place;
    default:
        return last - place;
    }
}

/* Computes offset and strides; returns the number of elements of memory. */
static int64_t arrange(const operand *one, layout how, int64_t shift,
                       int64_t *offset, int64_t *strides)
{
    bool apart = how == LAYOUT_APART || how == LAYOUT_COLUMNS_APART;
    uint32_t fixed = repeated(one, how);
    int64_t step = how == LAYOUT_STRIDED ? 2 : how == LAYOUT_SPACED ? 3 : 1;

    *offset = how == LAYOUT_STRIDED ? 3 : how == LAYOUT_OFFSET ? 1 + shift : 0;
    for (uint32_t d = 0; d < one->ndim; d++) {
        uint32_t at = dimension_at(one, how, d);

        strides[at] = at == fixed ? 0 : step;
        step *= at == fixed ? 1 : one->sizes[at];
        if (apart && d == 0)
            step += 3;
    }
    return *offset + step + 1;
}

/* Tests whether channels-last differs from row-major. */
static bool has_channels(const operand *one)
{
    int64_t others = 1;

    for (uint32_t d = 2; d < one->ndim; d++)
        others *= one->sizes[d];
    return (one->ndim == 4 || one->ndim == 5) && one->sizes[1] > 1 &&
           others > 1;
}

/* Tests whether an operand is a batch of matrices that are multiplied. */
static bool is_batch(const char *op, const operand *one)
{
    return one->ndim > 2 && (strstr(op, "bmm") || strstr(op, "attention"));
}

bool sample_call_allows(const sample_call *self, uint32_t operand, layout how)
{
    const struct operand *one = &self->operands[operand];
    const char *op = core_op_name(self->op);
    uint32_t fixed = repeated(one, how);

    if (how == LAYOUT_MATRICES || how == LAYOUT_HEADS)
        return one->numel > 0 && !(self->absent >> operand & 1) &&
               is_batch(op, one);
    if (how < LAYOUT_ONE_ROW)
        return one->numel > 0 && !(self->absent >> operand & 1) &&
               (how != LAYOUT_CHANNELS_LAST || has_channels(one)) &&
               (one->ndim > 1 ||
                (how != LAYOUT_APART && how != LAYOUT_TRANSPOSED &&
                 how != LAYOUT_COLUMNS_APART));
    /* Distinct values, permutations and matrices of full rank have no equal
     * rows; where elements are written, positions must differ; an index of a
     * maximum is within its window. */
    return fixed < one->ndim && one->numel > 0 &&
           !(self->absent >> operand & 1) && strchr("tpxm", one->kind) &&
           !sample_call_writes(self, operand) && strncmp(op, "hist", 4) != 0 &&
           (one->kind != 'x' || (strncmp(op, "scatter", 7) != 0 &&
                                 strstr(op, "max_pool") == NULL)) &&
           (fixed + 2 < one->ndim || !oracle_factors(op)) &&
           (how != LAYOUT_ONE_COLUMN || fixed != repeated(one, LAYOUT_ONE_ROW));
}

void sample_call_repeat(sample_call *self, uint32_t operand, layout how)
{
    struct operand *one = &self->operands[operand];
    uint32_t fixed = repeated(one, how);
    int64_t step = 1;

    for (uint32_t d = fixed + 1; d < one->ndim; d++)
        step *= one->sizes[d];
    for (int64_t i = 0; i < one->numel; i++)
        one->values[i] = one->values[i - i / step % one->sizes[fixed] * step];
}

bool sample_call_writes(const sample_call *self, uint32_t operand)
{
    const char *schema = strchr(core_op_schema(self->op), '(') + 1;
    const char *name = core_op_name(self->op);
    uint32_t argument = 0;
    int depth = 0;

    while (
        argument + 1 < self->count &&
        (self->first[argument] < 0 ||
         self->first[argument] +
                 (self->items[argument] < 0 ? 0 : self->items[argument] - 1) <
             (int32_t)operand))
        argument++;
    /* Running statistics, which are not part of the schema. */
    if (strcmp(name, "native_batch_norm") == 0)
        return argument == 3 || argument == 4;
    if (strcmp(name, "batch_norm_update_stats") == 0)
        return argument == 1 || argument == 2;
    for (; *schema && argument > 0; schema++) {
        depth += (*schema == '(' || *schema == '[') -
                 (*schema == ')' || *schema == ']');
        if (depth == 0 && *schema == ',' && strncmp(schema, ", *,", 4) != 0)
            argument--;
    }
    return memchr(schema, '!', strcspn(schema, ",")) != NULL &&
           strcspn(schema, "!") < strcspn(schema, ",");
}

/* A tensor without values. */
static core_status make_meta(const operand *one, core_device *meta,
                             core_dtype as, uint32_t k, prepared *out)
{
    CORE_TRY(core_tensor_from_data(NULL, as, one->sizes, one->ndim, meta,
                                   &out->tensors[k]));
    out->memory[k] = out->tensors[k];
    core_tensor_retain(out->memory[k]);
    return CORE_OK;
}

static core_status make_tensor(const sample_call *of, core_device *device,
                               core_dtype as, layout how, uint32_t k,
                               prepared *out)
{
    const operand *one = &of->operands[k];
    size_t size = core_dtype_size(as);
    int64_t strides[8], offset;
    int64_t capacity = arrange(one, how, of->shift, &offset, strides);
    place to = {.of = one, .strides = strides};
    unsigned char *bytes;

    if (strcmp(core_device_type(device), "meta") == 0 && how == LAYOUT_ROWS)
        return make_meta(one, device, as, k, out);
    out->bytes[k] = bytes = malloc((size_t)capacity * size);
    if (!bytes)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    /* A value that would be noticed in a result. */
    for (int64_t i = 0; how != LAYOUT_ROWS && i < capacity; i++)
        element_store(as, strchr("xqy", one->kind) ? 0 : 113,
                      bytes + (size_t)i * size);
    to.at = offset;
    for (int64_t i = 0; i < one->numel; i++, next_place(&to))
        element_store(as, one->values[i], bytes + (size_t)to.at * size);
    if (how == LAYOUT_ROWS) {
        CORE_TRY(core_tensor_from_data(bytes, as, one->sizes, one->ndim, device,
                                       &out->tensors[k]));
        out->memory[k] = out->tensors[k];
        core_tensor_retain(out->memory[k]);
        return CORE_OK;
    }
    CORE_TRY(core_tensor_from_data(bytes, as, &capacity, 1, device,
                                   &out->memory[k]));
    return strided(out->memory[k], one, strides, offset, &out->tensors[k]);
}

core_status sample_call_prepare(const sample_call *self, core_device *device,
                                core_dtype as, arrangement how, prepared *out)
{
    memset(out, 0, sizeof *out);
    out->nargs = self->count;
    out->how = how;
    for (uint32_t k = 0; k < self->noperands; k++) {
        const operand *one = &self->operands[k];
        bool tested = !strchr("xqym", one->kind ? one->kind : 't');

        if (self->twins && k == 1) {
            out->tensors[1] = out->tensors[0];
            core_tensor_retain(out->tensors[1]);
        } else if (!(self->absent >> k & 1))
            CORE_TRY(make_tensor(self, device, tested ? as : one->dtype,
                                 (layout)(how >> 4 * k & 15), k, out));
    }
    for (uint32_t i = 0; i < self->count; i++) {
        core_value *to = &out->args[i];

        *to = self->values[i];
        if (self->items[i] >= 0)
            *to = list_of(CORE_VALUE_TENSOR_LIST, out->tensors + self->first[i],
                          (size_t)self->items[i]);
        else if (self->first[i] >= 0)
            *to = (core_value){
                CORE_VALUE_TENSOR, 0, {.tensor = out->tensors[self->first[i]]}};
        else if (self->same[i])
            *to = (core_value){CORE_VALUE_DTYPE, 0, {.i = as}};
        else if (self->device[i])
            *to = (core_value){CORE_VALUE_DEVICE, 0, {.device = device}};
    }
    return CORE_OK;
}

core_status sample_call_run(const sample_call *self, prepared *on)
{
    /* Random operators draw the same numbers on every device. */
    core_seed(12345);
    CORE_TRY(suite_op_call(self->op, on->args, on->nargs, on->results,
                           SAMPLE_RESULTS));
    sample_call_list_results(on);
    return CORE_OK;
}

void sample_call_list_results(prepared *on)
{
    on->nflat = 0;
    for (uint32_t i = 0; i < SAMPLE_RESULTS; i++) {
        const core_value *value = &on->results[i];

        if (value->tag == CORE_VALUE_TENSOR)
            on->flat[on->nflat++] = value->u.tensor;
        else if (value->tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t k = 0; k < value->count && on->nflat < 32; k++)
                if (value->u.tensors[k])
                    on->flat[on->nflat++] = value->u.tensors[k];
    }
    /* Operators without results work in place: the first argument is the
     * result. */
    if (on->nflat == 0 && on->tensors[0])
        on->flat[on->nflat++] = on->tensors[0];
}

/* Compares the memory of an operand with what was written to it. */
static bool same_operand(const sample_call *self, const prepared *on,
                         uint32_t k, bool written, outcome *out)
{
    const operand *one = &self->operands[k];
    core_dtype dtype = core_tensor_dtype(on->memory[k]);
    size_t size = core_dtype_size(dtype);
    size_t bytes = (size_t)core_tensor_numel(on->memory[k]) * size, at = 0;
    unsigned char *now = malloc(bytes + 1);
    bool read = false, good = false;

    if (!now)
        harness_error(out, "no memory");
    else
        read = expect_ok(out, suite_read(on->memory[k], now, bytes),
                         "reading an operand");
    if (read) {
        int64_t strides[8];
        place to = {.of = one, .strides = strides};

        arrange(one, (layout)(on->how >> 4 * k & 15), self->shift, &to.at,
                strides);
        for (int64_t i = 0; written && i < one->numel; i++, next_place(&to))
            memcpy(on->bytes[k] + (size_t)to.at * size,
                   now + (size_t)to.at * size, size);
        good = memcmp(now, on->bytes[k], bytes) == 0;
    }
    for (; read && !good && at + size < bytes; at += size)
        if (memcmp(now + at, on->bytes[k] + at, size) != 0)
            break;
    if (read && !good)
        expect(out, false,
               "operand %u, %s, is changed by the call: element %zu of %s was "
               "%.9g and is %.9g",
               k, layout_names[on->how >> 4 * k & 15], at / size,
               written ? "the gaps in its memory" : "its memory",
               element_load(dtype, on->bytes[k] + at),
               element_load(dtype, now + at));
    free(now);
    return good;
}

bool sample_call_check_operands(const sample_call *self, const prepared *on,
                                bool in_place, outcome *out)
{
    for (uint32_t k = 0; k < self->noperands; k++) {
        bool written = (in_place && k == 0) || sample_call_writes(self, k);

        if (on->memory[k] && !same_operand(self, on, k, written, out))
            return false;
    }
    return true;
}

core_status sample_call_write(const sample_call *self, prepared *on,
                              uint32_t operand, int64_t turned)
{
    const struct operand *one = &self->operands[operand];
    core_tensor *to = on->tensors[operand];
    core_dtype dtype = core_tensor_dtype(to);
    size_t size = core_dtype_size(dtype);

    for (int64_t i = 0; i < one->numel; i++)
        element_store(dtype, one->values[(i + turned) % one->numel],
                      on->bytes[operand] + (size_t)i * size);
    return core_tensor_write(to, on->bytes[operand], (size_t)one->numel * size);
}

void sample_call_done(prepared *self)
{
    for (uint32_t i = 0; i < SAMPLE_RESULTS; i++)
        core_value_release(&self->results[i]);
    for (uint32_t k = 0; k < SAMPLE_TENSORS; k++) {
        core_tensor_release(self->tensors[k]);
        core_tensor_release(self->memory[k]);
        free(self->bytes[k]);
    }
    memset(self, 0, sizeof *self);
}
