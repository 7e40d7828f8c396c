/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Parts of tensors by an index as in Python. */

#include "scope/scope.h"

#include "dispatch/inference.h"
#include "tensor/tensor.h"

#include <libcore/expressions.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An index that is being read. */
typedef struct reader {
    const char *where, *text, *at;
    const int64_t *numbers; /* for the next `*` and those after it */
    core_tensor *tensor, *part;
    int64_t dim; /* of the part, which the next item belongs to */
    bool rest;   /* after "..." */
} reader;

static const char *const an_item =
    "expected a number, \"*\", a slice such as \"1:\", \"None\" or \"...\"";

/* Reports an error of the scope; returns false. */
static bool refuse(const reader *r, const char *problem)
{
    (void)core_scope_check_at(
        r->where, "core_x_part",
        core__error(CORE_ERROR_INVALID_ARGUMENT,
                    "core_x_part: \"%s\" at character %zu: %s", r->text,
                    (size_t)(r->at - r->text) + 1, problem));
    return false;
}

/* The index has more items than the tensor has dimensions. */
static bool refuse_item(const reader *r)
{
    char problem[192], sizes[128];

    snprintf(problem, sizeof problem,
             "the tensor, of sizes %s, has no more dimensions",
             core__sizes_text(r->tensor->ndim, r->tensor->sizes, sizes,
                              sizeof sizes));
    return refuse(r, problem);
}

static void skip_blanks(reader *r)
{
    r->at += strspn(r->at, " ");
}

static bool accept(reader *r, const char *text)
{
    size_t size = strlen(text);

    skip_blanks(r);
    if (strncmp(r->at, text, size) != 0)
        return false;
    r->at += size;
    skip_blanks(r);
    return true;
}

/* Reads a number, or `*` for the next one of the program, or nothing. */
static bool read_number(reader *r, core_scalar *out)
{
    char *end;
    long long value;

    *out = core_none();
    if (accept(r, "*")) {
        *out = core_int(*r->numbers++);
        return true;
    }
    value = strtoll(r->at, &end, 10);
    if (end == r->at)
        return true;
    if (value == LLONG_MAX || value == LLONG_MIN)
        return refuse(r, "the number is out of range");
    r->at = end;
    *out = core_int(value);
    skip_blanks(r);
    return true;
}

/* The numbers and colons of one dimension: an index, or a slice. */
static bool read_dimension(reader *r)
{
    core_scalar start, stop = core_none(), step = core_int(1);
    const char *from = r->at;

    if (!read_number(r, &start))
        return false;
    if (!accept(r, ":")) {
        if (start.tag == CORE_VALUE_NONE)
            return refuse(r, an_item);
        r->part = core_x_select_at(r->where, r->part, r->dim, start.u.i);
        return true;
    }
    if (!read_number(r, &stop) || (accept(r, ":") && !read_number(r, &step)))
        return false;
    if (step.tag == CORE_VALUE_NONE)
        step = core_int(1);
    if (step.u.i < 1) {
        r->at = from;
        return refuse(r, "the step of a slice must be positive");
    }
    if (start.tag != CORE_VALUE_NONE || stop.tag != CORE_VALUE_NONE ||
        step.u.i != 1)
        r->part =
            core_x_slice_at(r->where, r->part, r->dim, start, stop, step.u.i);
    r->dim++;
    return true;
}

/* How many dimensions of the tensor the items from here on belong to. */
static int64_t dimensions_of(const char *at)
{
    int64_t count = 0;

    for (; at && *at; at = strchr(at, ',')) {
        at += strspn(at, ", ");
        count += strncmp(at, "None", 4) != 0 && strncmp(at, "...", 3) != 0;
    }
    return count;
}

static bool read_item(reader *r)
{
    int64_t ndim = core_tensor_ndim(r->part);

    if (accept(r, "None")) {
        r->part = core_x_unsqueeze_at(r->where, r->part, r->dim++);
    } else if (*r->at == '.') {
        if (r->rest)
            return refuse(r, "only one \"...\" is allowed");
        if (!accept(r, "..."))
            return refuse(r, an_item);
        r->rest = true;
        ndim -= dimensions_of(r->at + strspn(r->at, ","));
        r->dim = ndim > r->dim ? ndim : r->dim;
    } else if (r->dim >= ndim) {
        return refuse_item(r);
    } else if (!read_dimension(r)) {
        return false;
    }
    return r->part != NULL;
}

static bool read_items(reader *r)
{
    do {
        if (!read_item(r))
            return false;
    } while (accept(r, ","));
    if (*r->at)
        return refuse(r, "expected a comma");
    return true;
}

static core_status check_arguments(const core_tensor *tensor, const char *index,
                                   size_t count)
{
    size_t stars = 0;

    if (!tensor || !index)
        return core__error_null("core_x_part", tensor ? "index" : "tensor");
    for (const char *at = index; (at = strchr(at, '*')); at++)
        stars++;
    if (stars == count)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_x_part: \"%s\" needs %zu integers, one for each "
                       "\"*\"; the call passes %zu",
                       index, stars, count);
}

core_tensor *core_x_part_at(const char *where, core_tensor *tensor,
                            const char *index, core_sizes numbers)
{
    reader r = {.where = where,
                .text = index,
                .at = index,
                .numbers = numbers.items,
                .tensor = tensor,
                .part = tensor};
    core_status status = core_scope_status();

    if (status != CORE_OK)
        return NULL;
    status = check_arguments(tensor, index, numbers.count);
    if (status != CORE_OK) {
        (void)core_scope_check_at(where, "core_x_part", status);
        return NULL;
    }
    return read_items(&r) ? r.part : NULL;
}
