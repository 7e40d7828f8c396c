/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Tensors as text.  Only the printed elements are copied from the device: of a
 * large tensor, the first and last few along each dimension. */

#include "base/memory.h"
#include "device/device.h"
#include "tensor/dtype.h"
#include "tensor/number_format.h"
#include "tensor/tensor.h"

#include <libcore/tensor.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SUMMARY_ABOVE = 1000, /* elements */
    EDGE = 3,             /* elements printed at each end of a dimension */
    LINE = 75             /* characters */
};

typedef struct text_buffer {
    char *at;
    size_t size;
    size_t capacity;
    bool failed; /* out of memory */
} text_buffer;

typedef struct picture {
    core_tensor *tensor;
    bool summary;
    int64_t shown[CORE_MAX_NDIM]; /* elements along each dimension */
    unsigned char *data;          /* those elements, row-major */
    core__number_style style;
    text_buffer out;
} picture;

/* ---------------------------------------------------------------- text -- */

static void append(text_buffer *out, const char *from, size_t size)
{
    if (out->capacity - out->size <= size) {
        size_t capacity = 2 * (out->size + size) + 128;
        char *more = out->failed ? NULL : core__realloc(out->at, capacity);

        if (!more) {
            out->failed = true;
            return;
        }
        out->at = more;
        out->capacity = capacity;
    }
    memcpy(out->at + out->size, from, size);
    out->size += size;
    out->at[out->size] = 0;
}

static void append_text(text_buffer *out, const char *from)
{
    append(out, from, strlen(from));
}

static void append_many(text_buffer *out, char c, uint32_t count)
{
    while (count-- > 0)
        append(out, &c, 1);
}

/* Removes the spaces that pad the line's last number. */
static void new_line(text_buffer *out, uint32_t indent)
{
    while (out->size > 0 && out->at[out->size - 1] == ' ')
        out->size--;
    append_text(out, "\n");
    append_many(out, ' ', indent);
}

/* ------------------------------------------------------------ elements -- */

static bool is_cut(const picture *self, uint32_t dim)
{
    return self->summary && self->tensor->sizes[dim] > 2 * EDGE;
}

/* Reads a block of the tensor that is contiguous in the output: `block` has
 * its sizes, at[d] is its start among the printed elements. */
static core_status read_block(picture *self, const int64_t *block,
                              const int64_t *at, int64_t offset)
{
    core_tensor *tensor = self->tensor;
    uint32_t size = core__dtype_size(tensor->dtype);
    uint32_t ndim = tensor->ndim;
    int64_t index[CORE_MAX_NDIM] = {0};
    core_tensor *part = NULL;
    unsigned char *data = NULL;
    core_status status;
    int64_t count;

    CORE_TRY(core__tensor_alias(tensor, tensor->dtype, ndim, block,
                                tensor->strides, offset, &part));
    count = part->numel;
    data = core__alloc((size_t)count * size);
    status = data ? core_tensor_read(part, data, (size_t)count * size)
                  : core__error_memory((size_t)count * size);
    for (int64_t i = 0; status == CORE_OK && i < count; i++) {
        int64_t to = 0;

        for (uint32_t d = 0; d < ndim; d++)
            to = to * self->shown[d] + at[d] + index[d];
        memcpy(self->data + to * size, data + i * size, size);
        for (uint32_t d = ndim; d-- > 0;) {
            if (++index[d] < block[d])
                break;
            index[d] = 0;
        }
    }
    core__free(data);
    core__tensor_release(part);
    return status;
}

/* Reads both ends of every shortened dimension, in all combinations. */
static core_status read_blocks(picture *self)
{
    const core_tensor *tensor = self->tensor;
    int64_t block[CORE_MAX_NDIM];
    int64_t at[CORE_MAX_NDIM] = {0};
    int64_t offset = tensor->offset;
    uint32_t d;

    for (d = 0; d < tensor->ndim; d++)
        block[d] = is_cut(self, d) ? EDGE : tensor->sizes[d];
    for (;;) {
        CORE_TRY(read_block(self, block, at, offset));
        for (d = 0; d < tensor->ndim; d++) {
            int64_t step = tensor->strides[d] * (tensor->sizes[d] - EDGE);

            if (!is_cut(self, d))
                continue;
            if (at[d] == 0) {
                at[d] = EDGE;
                offset += step;
                break;
            }
            at[d] = 0;
            offset -= step;
        }
        if (d == tensor->ndim)
            return CORE_OK;
    }
}

static core_status read_elements(picture *self)
{
    core_tensor *tensor = self->tensor;
    size_t count = 1;
    size_t bytes;

    self->summary = tensor->numel > SUMMARY_ABOVE;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        self->shown[d] = is_cut(self, d) ? 2 * EDGE : tensor->sizes[d];
        count *= (size_t)self->shown[d];
    }
    bytes = count * core__dtype_size(tensor->dtype);
    self->data = core__alloc(bytes);
    if (!self->data)
        return core__error_memory(bytes);
    if (self->summary)
        CORE_TRY(read_blocks(self));
    else
        CORE_TRY(core_tensor_read(tensor, self->data, bytes));
    core__number_style_of(tensor->dtype, self->data, count, &self->style);
    return CORE_OK;
}

/* -------------------------------------------------------------- arrays -- */

/* The innermost dimension; long lines are broken. */
static void write_row(picture *self, const unsigned char *data)
{
    uint32_t size = core__dtype_size(self->tensor->dtype);
    uint32_t dim = self->tensor->ndim - 1u;
    uint32_t indent = dim + 1;
    int column = (int)indent;
    int end = LINE - 1 - (int)dim;
    bool cut = is_cut(self, dim);

    for (int64_t i = 0; i < self->shown[dim] + cut; i++) {
        char word[CORE__NUMBER_TEXT] = "...";
        int length = 3;

        if (!cut || i != EDGE)
            length = core__number_write(
                &self->style, data + (i - (cut && i > EDGE)) * size, word);
        if (i > 0 && column + 1 + length > end && column + 1 > (int)indent) {
            new_line(&self->out, indent);
            column = (int)indent;
        } else if (i > 0) {
            append(&self->out, " ", 1);
            column++;
        }
        append(&self->out, word, (size_t)length);
        column += length;
    }
}

static void write_dim(picture *self, uint32_t dim, const unsigned char *data)
{
    uint32_t left = self->tensor->ndim - dim;
    bool cut = is_cut(self, dim);
    size_t step = core__dtype_size(self->tensor->dtype);

    append(&self->out, "[", 1);
    for (uint32_t d = dim + 1; d < self->tensor->ndim; d++)
        step *= (size_t)self->shown[d];
    if (left == 1)
        write_row(self, data);
    for (int64_t i = 0; left > 1 && i < self->shown[dim]; i++) {
        if (i > 0) {
            append_many(&self->out, '\n', left - 1);
            append_many(&self->out, ' ', dim + 1);
        }
        if (cut && i == EDGE) {
            append_text(&self->out, "...");
            append_many(&self->out, '\n', left - 1);
            append_many(&self->out, ' ', dim + 1);
        }
        write_dim(self, dim + 1, data + (size_t)i * step);
    }
    append(&self->out, "]", 1);
}

/* " (i64, cuda:1, sizes [0, 3])": properties that differ from the defaults,
 * and sizes where the brackets do not show them. */
static void write_suffix(picture *self, bool with_sizes)
{
    const core_tensor *tensor = self->tensor;
    const char *between = " (";
    char number[32];

    if (tensor->dtype != CORE_F32) {
        append_text(&self->out, between);
        append_text(&self->out, core__dtype_name(tensor->dtype));
        between = ", ";
    }
    if (strcmp(tensor->device->name, "cpu") != 0) {
        append_text(&self->out, between);
        append_text(&self->out, tensor->device->name);
        between = ", ";
    }
    if (with_sizes) {
        append_text(&self->out, between);
        append_text(&self->out, "sizes [");
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            snprintf(number, sizeof number, "%s%" PRId64, d ? ", " : "",
                     tensor->sizes[d]);
            append_text(&self->out, number);
        }
        append_text(&self->out, "]");
        between = ", ";
    }
    if (between[0] == ',')
        append_text(&self->out, ")");
}

static core_status write_tensor(picture *self)
{
    const core_tensor *tensor = self->tensor;
    char number[CORE__NUMBER_TEXT];

    if (core__tensor_is_meta(tensor)) {
        append_text(&self->out, "[...]");
        write_suffix(self, true);
        return CORE_OK;
    }
    if (tensor->numel == 0) {
        append_text(&self->out, "[]");
        write_suffix(self, tensor->ndim > 1);
        return CORE_OK;
    }
    CORE_TRY(read_elements(self));
    if (tensor->ndim == 0) {
        core__number_write_alone(tensor->dtype, self->data, number);
        append_text(&self->out, number);
    } else {
        write_dim(self, 0, self->data);
    }
    write_suffix(self, false);
    return CORE_OK;
}

core_status core_tensor_format(core_tensor *tensor, char **out_text)
{
    picture self = {.tensor = tensor};
    core_status status;

    CORE__NOT_NULL(out_text);
    *out_text = NULL;
    CORE__NOT_NULL(tensor);
    status = write_tensor(&self);
    if (status == CORE_OK && self.out.failed)
        status = core__error_memory(self.out.size);
    if (status == CORE_OK) {
        *out_text = self.out.at;
        self.out.at = NULL;
    }
    core__free(self.data);
    core__free(self.out.at);
    return status;
}

core_status core_tensor_print(core_tensor *tensor)
{
    core_status status = CORE_OK;
    char *text;

    CORE__NOT_NULL(tensor);
    CORE_TRY(core_tensor_format(tensor, &text));
    if (puts(text) < 0)
        status = core__error(CORE_ERROR_IO,
                             "the standard output cannot be written: %s",
                             strerror(errno));
    core_text_free(text);
    return status;
}

void core_text_free(char *text)
{
    core__free(text);
}
