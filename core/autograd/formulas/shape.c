/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of operators that move elements, and of convolution and pooling. */

#include "autograd/formulas/formulas.h"

#include "ops/expression.h"
#include "tensor/layout.h"

core_status core__formula_unpermuted(core_tensor *grad, const int64_t *dims,
                                     size_t dims_count, core_tensor **out)
{
    int64_t order[CORE_MAX_NDIM];

    for (size_t i = 0; i < dims_count; i++)
        order[dims[i] < 0 ? dims[i] + (int64_t)dims_count : dims[i]] =
            (int64_t)i;
    return core_permute(grad, order, dims_count, out);
}

core_status core__formula_unrolled(core_tensor *grad, const int64_t *shifts,
                                   size_t shifts_count, const int64_t *dims,
                                   size_t dims_count, core_tensor **out)
{
    int64_t back[CORE_MAX_NDIM];

    /* Clamped to the size, since the least integer has no opposite. */
    for (size_t i = 0; i < shifts_count && i < CORE_MAX_NDIM; i++) {
        int64_t size = i < dims_count ? core_tensor_size(grad, dims[i])
                                      : core_tensor_numel(grad);

        back[i] = size > 0 ? -(shifts[i] % size) : 0;
    }
    return core_roll(grad, back, shifts_count, dims, dims_count, out);
}

core_status core__formula_constant_pad_grad(core_tensor *grad,
                                            const int64_t *pad,
                                            size_t pad_count, core_tensor **out)
{
    int64_t back[2 * CORE_MAX_NDIM];

    for (size_t i = 0; i < pad_count; i++)
        back[i] = -pad[i];
    return core_constant_pad_nd(grad, back, pad_count, core_int(0), out);
}

/* sizes: ndim and sizes of each tensor. */
core_status core__formula_cat_grad(core_tensor *grad, const int64_t *sizes,
                                   size_t sizes_count, int64_t dim,
                                   const uint8_t *needed, size_t count,
                                   core_tensor **out)
{
    int64_t start = 0;
    size_t at = 0;

    for (size_t i = 0; i < count && at < sizes_count; i++) {
        size_t ndim = (size_t)sizes[at];
        const int64_t *own = &sizes[at + 1];
        bool passed_over = ndim == 1 && own[0] == 0;
        int64_t length;

        at += ndim + 1;
        if (passed_over) {
            if (needed[i])
                CORE_TRY(core_new_zeros(grad, own, ndim, CORE_DTYPE_NONE, NULL,
                                        &out[i]));
            continue;
        }
        length = own[dim < 0 ? dim + (int64_t)ndim : dim];
        if (needed[i])
            CORE_TRY(core_narrow(grad, dim, start, length, &out[i]));
        start += length;
    }
    return CORE_OK;
}

/* ---------------------------------------------------------- as_strided -- */

/* A tensor's layout in its storage, from self.layout. */
typedef struct window {
    int64_t offset, numel;
    uint32_t ndim;
    const int64_t *sizes, *strides;
} window;

static window window_of(const int64_t *layout, size_t count)
{
    uint32_t ndim = (uint32_t)(count / 2);
    window self = {layout[0], 1, ndim, layout + 1, layout + 1 + ndim};

    for (uint32_t d = 0; d < ndim; d++)
        self.numel *= self.sizes[d];
    return self;
}

/* One past the last element of a strided window. */
static int64_t end_of(int64_t offset, const int64_t *sizes,
                      const int64_t *strides, size_t ndim)
{
    int64_t last = offset;

    for (size_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0)
            return offset;
        last += (sizes[i] - 1) * strides[i];
    }
    return last + 1;
}

static core_tensor *places(core__scope *s, core_tensor *all,
                           const int64_t *sizes, size_t ndim,
                           const int64_t *strides, int64_t offset)
{
    core_tensor *x =
        CORE__DO(s, core_as_strided, all, sizes, ndim, strides, ndim, &offset);

    return core__x_reshape(s, x, &(int64_t){-1}, 1);
}

/* Adds the window's gradients up by storage element; self's gradient is then
 * read at the positions of its elements. */
core_status core__formula_as_strided_grad(
    core_tensor *grad, const int64_t *layout, size_t layout_count,
    const int64_t *size, size_t size_count, const int64_t *stride,
    size_t stride_count, const int64_t *storage_offset, core_tensor **out)
{
    window self = window_of(layout, layout_count);
    int64_t offset = storage_offset ? *storage_offset : self.offset;
    int64_t least = offset < self.offset ? offset : self.offset;
    int64_t end = end_of(offset, size, stride, size_count);
    int64_t end_self = end_of(self.offset, self.sizes, self.strides, self.ndim);
    int64_t first = self.offset - least;
    int64_t extent = (end > end_self ? end : end_self) - least;
    core__scope s;
    core_tensor *all;
    core_tensor *x;

    (void)stride_count;
    core__scope_begin(&s);
    all = core__x_arange(&s, grad, extent);
    x = CORE__DO(&s, core_index_add, core__x_new_zeros(&s, grad, &extent, 1), 0,
                 places(&s, all, size, size_count, stride, offset - least),
                 core__x_reshape(&s, grad, &(int64_t){-1}, 1), core_int(1));
    if (self.numel > 0 &&
        core__strides_overlap(self.ndim, self.sizes, self.strides)) {
        core_tensor *mine =
            places(&s, all, self.sizes, self.ndim, self.strides, first);
        core_tensor *count = core__x_new_zeros(&s, grad, &extent, 1);
        core_tensor *ones = CORE__DO(&s, core_new_ones, grad, &self.numel, 1,
                                     CORE_DTYPE_NONE, NULL);

        count = CORE__DO(&s, core_index_add, count, 0, mine, ones, core_int(1));
        count = CORE__DO(&s, core_clamp_min, count, core_int(1));
        x = core__x_div(&s, x, count);
    }
    x = CORE__DO(&s, core_as_strided, x, self.sizes, self.ndim, self.strides,
                 self.ndim, &first);
    return core__scope_finish(&s, x, out);
}

/* A placeholder for an argument of which a call reads only sizes, strides and
 * dtype; its elements are never written. */
core_status core__formula_like(core_tensor *grad, const int64_t *layout,
                               size_t layout_count, core_tensor **out)
{
    window self = window_of(layout, layout_count);

    return core_new_empty_strided(grad, self.sizes, self.ndim, self.strides,
                                  self.ndim, CORE_DTYPE_NONE, NULL, out);
}

/* grad in the layout of as_strided_scatter's result: self's, if that is
 * dense. */
static core_tensor *laid_out(core__scope *s, core_tensor *grad,
                             const int64_t *layout, size_t layout_count)
{
    window self = window_of(layout, layout_count);
    core_tensor *x;

    if (!(core__layout_flags(self.ndim, self.sizes, self.strides, &self.numel) &
          CORE__TENSOR_DENSE))
        return CORE__DO(s, core_contiguous, grad, -1);
    x = CORE__DO(s, core_new_empty_strided, grad, self.sizes, self.ndim,
                 self.strides, self.ndim, CORE_DTYPE_NONE, NULL);
    CORE__RUN(s, core_copy_(x, grad, false));
    return x;
}

core_status core__formula_as_strided_self(
    core_tensor *grad, const int64_t *layout, size_t layout_count,
    const int64_t *size, size_t size_count, const int64_t *stride,
    size_t stride_count, const int64_t *storage_offset, core_tensor **out)
{
    core__scope s;
    core_tensor *zeros;
    core_tensor *x;

    core__scope_begin(&s);
    x = laid_out(&s, grad, layout, layout_count);
    zeros = core__x_new_zeros(&s, grad, size, size_count);
    x = CORE__DO(&s, core_as_strided_scatter, x, zeros, size, size_count,
                 stride, stride_count, storage_offset);
    return core__scope_finish(&s, x, out);
}

/* Where several elements of the part share a position, the last one written
 * stays: numbering the elements and writing the numbers the same way finds out
 * which. */
static core_tensor *written_last(core__scope *s, core_tensor *self,
                                 core_tensor *part, const int64_t *stride,
                                 size_t stride_count,
                                 const int64_t *storage_offset)
{
    core_tensor *ids = core__x_arange(s, part, part ? part->numel : 0);
    core_tensor *x = CORE__DO(s, core_zeros_like, self, CORE_I64, NULL, -1);

    if (s->status != CORE_OK)
        return NULL;
    ids = core__x_reshape(s, ids, part->sizes, part->ndim);
    x = CORE__DO(s, core_as_strided_scatter, x, ids, part->sizes, part->ndim,
                 stride, stride_count, storage_offset);
    x = CORE__DO(s, core_as_strided, x, part->sizes, part->ndim, stride,
                 stride_count, storage_offset);
    return CORE__DO(s, core_eq, x, ids);
}

core_status core__formula_as_strided_src(
    core_tensor *grad, const int64_t *layout, size_t layout_count,
    const int64_t *size, size_t size_count, const int64_t *stride,
    size_t stride_count, const int64_t *storage_offset, core_tensor **out)
{
    core__scope s;
    core_tensor *self, *x;

    core__scope_begin(&s);
    self = laid_out(&s, grad, layout, layout_count);
    x = CORE__DO(&s, core_as_strided, self, size, size_count, stride,
                 stride_count, storage_offset);
    if (s.status == CORE_OK && core__layout_overlaps_itself(x))
        x = core__x_zero_where(
            &s, x,
            core__x_logical_not(&s,
                                written_last(&s, self, x, stride, stride_count,
                                             storage_offset)));
    return core__scope_finish(&s, x, out);
}

/* -------------------------------------------------- products, convolution -- */

core_status core__formula_addbmm_grad(core_tensor *grad, const int64_t *sizes,
                                      size_t sizes_count, core_tensor **out)
{
    int64_t wide[3] = {sizes_count ? sizes[0] : 1, grad->sizes[0],
                       grad->sizes[1]};

    return core_expand(grad, wide, 3, false, out);
}

#define GEOMETRY                                                            \
    stride, stride_count, padding, padding_count, dilation, dilation_count, \
        transposed, output_padding, output_padding_count, groups

/* Convolution is linear in each of input, weight and bias. */
core_status core__formula_convolution_grad_output(
    core_tensor *grad_input, core_tensor *grad_weight, core_tensor *grad_bias,
    core_tensor *input, core_tensor *weight, const int64_t *stride,
    size_t stride_count, const int64_t *padding, size_t padding_count,
    const int64_t *dilation, size_t dilation_count, bool transposed,
    const int64_t *output_padding, size_t output_padding_count, int64_t groups,
    core_tensor **out)
{
    core__scope s;
    core_tensor *x = NULL;

    core__scope_begin(&s);
    if (!grad_input && !grad_weight)
        grad_weight = core__x_zeros_like(&s, weight);
    if (grad_input)
        x = CORE__DO(&s, core_convolution, grad_input, weight, NULL, GEOMETRY);
    if (grad_weight) {
        core_tensor *y =
            CORE__DO(&s, core_convolution, input, grad_weight, NULL, GEOMETRY);

        x = grad_input ? core__x_add(&s, x, y) : y;
    }
    if (grad_bias) {
        int64_t sizes[5] = {1, grad_bias->numel, 1, 1, 1};

        x = core__x_add(&s, x,
                        core__x_reshape(&s, grad_bias, sizes, input->ndim));
    }
    return core__scope_finish(&s, x, out);
}

/* One of the gradients that convolution_backward computes. */
static core_status one_gradient(core_tensor *grad_output, core_tensor *input,
                                core_tensor *weight, const int64_t *stride,
                                size_t stride_count, const int64_t *padding,
                                size_t padding_count, const int64_t *dilation,
                                size_t dilation_count, bool transposed,
                                const int64_t *output_padding,
                                size_t output_padding_count, int64_t groups,
                                bool of_input, core_tensor **out)
{
    const uint8_t mask[3] = {of_input, !of_input, 0};
    core_tensor *gradients[3];
    core_status status = core_convolution_backward(
        grad_output, input, weight, NULL, 0, GEOMETRY, mask, 3, &gradients[0],
        &gradients[1], &gradients[2]);

    *out = gradients[of_input ? 0 : 1];
    return status;
}

core_status core__formula_convolution_input(
    core_tensor *grad_weight, core_tensor *grad_output, core_tensor *input,
    core_tensor *weight, const int64_t *stride, size_t stride_count,
    const int64_t *padding, size_t padding_count, const int64_t *dilation,
    size_t dilation_count, bool transposed, const int64_t *output_padding,
    size_t output_padding_count, int64_t groups, core_tensor **out)
{
    (void)weight;
    if (!grad_weight)
        return core_zeros_like(input, CORE_DTYPE_NONE, NULL, -1, out);
    return one_gradient(grad_output, input, grad_weight, GEOMETRY, true, out);
}

core_status core__formula_convolution_weight(
    core_tensor *grad_input, core_tensor *grad_output, core_tensor *input,
    core_tensor *weight, const int64_t *stride, size_t stride_count,
    const int64_t *padding, size_t padding_count, const int64_t *dilation,
    size_t dilation_count, bool transposed, const int64_t *output_padding,
    size_t output_padding_count, int64_t groups, core_tensor **out)
{
    (void)input;
    if (!grad_input)
        return core_zeros_like(weight, CORE_DTYPE_NONE, NULL, -1, out);
    return one_gradient(grad_output, grad_input, weight, GEOMETRY, false, out);
}

/* Gathers the gradient of a maximum pooling at the positions of the maxima.
 * Indices count in the last `spatial` dimensions. */
core_status core__formula_pooled(core_tensor *grad, core_tensor *indices,
                                 int64_t spatial, core_tensor **out)
{
    core__scope s;
    core_tensor *x;
    core_tensor *index;

    core__scope_begin(&s);
    x = CORE__DO(&s, core_flatten, grad, -spatial, -1);
    index = CORE__DO(&s, core_flatten, indices, -spatial, -1);
    x = CORE__DO(&s, core_gather, x, -1, index, false);
    x = core__x_reshape(&s, x, indices->sizes, indices->ndim);
    return core__scope_finish(&s, x, out);
}
