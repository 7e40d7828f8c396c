/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "sample_call.h"

#include "element_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const sample *sample_at(size_t index)
{
    return index < sample_count ? &sample_table[index] : NULL;
}

/* -------------------------------------------------------------- values -- */

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

static double distinct(const sample *from, core_dtype dtype, int64_t i)
{
    double place = (double)(i * 37 % 101);

    if (core_dtype_is_floating(dtype))
        return from->low + (from->high - from->low) * place / 101;
    if (dtype == CORE_BOOL)
        return (i * 37 % 101) % 2;
    return from->low < 0 && dtype != CORE_U8 ? place - 50 : place;
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
        return (double)(i + 1);
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
        return distinct(from, one->dtype, i);
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
        limit = strtoll(text + 1, NULL, 10);
    one->numel = 1;
    for (uint32_t d = 0; d < one->ndim; d++)
        one->numel *= one->sizes[d];
    if (one->numel > SAMPLE_NUMEL)
        return false;
    for (int64_t i = 0; i < one->numel; i++)
        one->values[i] = value_at(self, of, from, one, limit, i);
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

bool sample_call_parse(sample_call *self, const suite *of, const sample *from,
                       core_dtype dtype)
{
    int32_t list = -1;
    char *rest;

    /* Values are only read as far as they were written. */
    memset(self, 0, offsetof(sample_call, operands));
    for (uint32_t k = 0; k < SAMPLE_TENSORS; k++)
        memset(&self->operands[k], 0, offsetof(operand, values));
    self->dtype = dtype;
    for (int i = 0; i < SAMPLE_ARGUMENTS; i++)
        self->first[i] = self->items[i] = -1;
    if (core_op_find(from->op, &self->op) != CORE_OK)
        return false;
    snprintf(self->text, sizeof self->text, "%s", from->words);
    for (char *word = strtok_r(self->text, " ", &rest); word;
         word = strtok_r(NULL, " ", &rest))
        if (!add_word(self, of, from, word, &list))
            return false;
    return true;
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

void sample_call_make_special(sample_call *self)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0.0,    -0.0,
                                     1,   -1,       65504,     -65504, .5};

    for (uint32_t k = 0; k < self->noperands; k++) {
        operand *one = &self->operands[k];

        if (!core_dtype_is_floating(one->dtype))
            continue;
        /* Different strides, so that every pair of values occurs. */
        for (int64_t i = 0; i < one->numel; i++)
            one->values[i] = element_rounded(
                one->dtype, special[(k == 0 ? i : i / 3 + i * 3) % 10]);
    }
}

/* --------------------------------------------------------------- calls -- */

/* The storage index of (row-major) element i. */
static int64_t place_of(const operand *one, const int64_t *strides,
                        int64_t offset, int64_t i)
{
    int64_t at = offset;

    for (uint32_t d = one->ndim; d-- > 0;) {
        at += i % one->sizes[d] * strides[d];
        i /= one->sizes[d];
    }
    return at;
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

static core_status make_tensor(const operand *one, core_device *device,
                               core_dtype as, arrangement how,
                               core_tensor **out)
{
    size_t size = core_dtype_size(as);
    int64_t strides[8], offset = how == ARRANGED_STRIDED ? 3 : 0;
    int64_t step = how == ARRANGED_STRIDED ? 2 : 1;
    int64_t capacity = offset + one->numel * step + 1;
    char *bytes = calloc((size_t)capacity, size);
    core_tensor *storage = NULL;
    core_status status;

    *out = NULL;
    if (!bytes)
        return core_error_set(CORE_ERROR_OUT_OF_MEMORY, "no memory");
    for (uint32_t d = 0; d < one->ndim; d++) {
        uint32_t at = how == ARRANGED_STRIDED ? d : one->ndim - 1 - d;

        strides[at] = step;
        step *= one->sizes[at];
    }
    for (int64_t i = 0; i < one->numel; i++)
        element_store(as, one->values[i],
                      bytes + (size_t)place_of(one, strides, offset, i) * size);
    if (how == ARRANGED_ROWS) {
        status = core_tensor_from_data(bytes, as, one->sizes, one->ndim, device,
                                       out);
    } else {
        status =
            core_tensor_from_data(bytes, as, &capacity, 1, device, &storage);
        if (status == CORE_OK)
            status = strided(storage, one, strides, offset, out);
        core_tensor_release(storage);
    }
    free(bytes);
    return status;
}

core_status sample_call_prepare(const sample_call *self, core_device *device,
                                core_dtype as, arrangement how, prepared *out)
{
    memset(out, 0, sizeof *out);
    out->nargs = self->count;
    for (uint32_t k = 0; k < self->noperands; k++) {
        const operand *one = &self->operands[k];
        bool tested = !strchr("xqym", one->kind ? one->kind : 't');

        if (!(self->absent >> k & 1))
            CORE_TRY(make_tensor(one, device, tested ? as : one->dtype, how,
                                 &out->tensors[k]));
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
    CORE_TRY(core_op_call(self->op, on->args, on->nargs, on->results,
                          SAMPLE_RESULTS));
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
    return CORE_OK;
}

void sample_call_done(prepared *self)
{
    for (uint32_t i = 0; i < SAMPLE_RESULTS; i++)
        core_value_release(&self->results[i]);
    for (uint32_t k = 0; k < SAMPLE_TENSORS; k++)
        core_tensor_release(self->tensors[k]);
    memset(self, 0, sizeof *self);
}
