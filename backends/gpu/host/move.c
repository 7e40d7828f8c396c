/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* move.c: copies, casts and fills of loops, and operators that copy windows of
 * their operands. */

#include <gpu/host/move.h>

/* -------------------------------------------------------------- copies -- */

static void set_convert(gpu_convert *p, const core_loop *loop)
{
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];

    memset(p, 0, sizeof *p);
    p->count = (uint32_t)loop->numel;
    p->ndim = loop->ndim;
    p->to = gpu_address(to->memory);
    p->to_dtype = to->dtype;
    p->from_dtype = from->dtype;
    p->number = from->immediate;
    if (!(from->flags & CORE_OPERAND_IMMEDIATE))
        p->from = gpu_address(from->memory);
    for (uint32_t d = 0; d < loop->ndim; d++) {
        p->sizes[d] = gpu_divide_by((uint32_t)loop->sizes[d]);
        p->to_strides[d] = to->strides[d];
        if (p->from != NULL)
            p->from_strides[d] = from->strides[d];
    }
}

static void swap_dims(gpu_convert *p, uint32_t a, uint32_t b)
{
    gpu_divisor size = p->sizes[a];
    int64_t to = p->to_strides[a], from = p->from_strides[a];

    p->sizes[a] = p->sizes[b];
    p->to_strides[a] = p->to_strides[b];
    p->from_strides[a] = p->from_strides[b];
    p->sizes[b] = size;
    p->to_strides[b] = to;
    p->from_strides[b] = from;
}

/* The shape of a launch by tiles; empty if tiles do not help. */
static gpu_shape transposition(gpu_convert *p, int64_t bytes)
{
    gpu_shape none = {{0, 1, 1}, {32, 8, 1}, 0};
    uint32_t other = 0, rest;

    if (p->from == NULL || p->ndim < 2 || p->to_strides[0] != bytes ||
        p->from_strides[0] == bytes || p->sizes[0].value < 8)
        return none;
    for (uint32_t d = 1; d < p->ndim; d++)
        if (p->from_strides[d] == bytes && p->sizes[d].value >= 8)
            other = d;
    if (other == 0)
        return none;
    rest = p->count / p->sizes[0].value / p->sizes[other].value;
    if (rest > 65535)
        return none;
    swap_dims(p, 1, other);
    none.grid[0] = (p->sizes[0].value + 31) / 32;
    none.grid[0] *= (p->sizes[1].value + 31) / 32;
    none.grid[1] = rest;
    return none;
}

static core_status copy_piece(const core_loop *loop, void *context)
{
    core_call *call = context;
    gpu_device *device = gpu_stream_of(call)->device;
    uint32_t bytes = core_sdk_itemsize(loop->operands[0].dtype);
    const char *width = gpu_width_name(bytes);
    char name[GPU_NAME] = "copy_s_";
    gpu_shape shape;
    gpu_convert p;

    set_convert(&p, loop);
    if (p.to_dtype != p.from_dtype)
        return gpu_launch(call, "move", "convert_any",
                          gpu_spread(device, p.count, 4), &p, sizeof p);
    shape = transposition(&p, bytes);
    if (shape.grid[0] > 0)
        name[5] = 't';
    else
        shape = gpu_spread(device, p.count, 4);
    memcpy(name + 7, width, strlen(width) + 1);
    return gpu_launch(call, "move", name, shape, &p, sizeof p);
}

static bool has_cast(core_dtype from, core_dtype to)
{
    return (from == CORE_F32 && to <= CORE_BF16) ||
           (to == CORE_F32 && from <= CORE_BF16);
}

static core_status copy_dense(core_call *call, const core_loop *loop)
{
    gpu_stream *stream = gpu_stream_of(call);
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];
    gpu_dense p = {.count = (uint64_t)loop->numel,
                   .to = gpu_address(to->memory),
                   .from = {gpu_address(from->memory)}};
    char name[GPU_NAME] = "cast_";

    if (to->dtype == from->dtype)
        return gpu_memory_table.copy(stream->device, stream, to->memory,
                                     from->memory,
                                     p.count * core_sdk_itemsize(to->dtype));
    strcat(name, gpu_dtype_name(from->dtype));
    strcat(name, "_");
    strcat(name, gpu_dtype_name(to->dtype));
    p.vectors = ((uintptr_t)p.to | (uintptr_t)p.from[0]) % 16 == 0;
    return gpu_launch(call, "move", name,
                      gpu_spread(stream->device, p.count, 4), &p, sizeof p);
}

core_status gpu_copy_loop(core_call *call, const core_loop *loop)
{
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];
    bool dense = (loop->flags & CORE_LOOP_CONTIGUOUS) &&
                 !(from->flags & CORE_OPERAND_IMMEDIATE);

    if (loop->numel == 0)
        return CORE_OK;
    if (dense && (to->dtype == from->dtype || has_cast(from->dtype, to->dtype)))
        return copy_dense(call, loop);
    return gpu_loop_pieces(loop, copy_piece, call);
}

/* One side of a copy: the start of the window, and its strides. */
typedef struct side {
    core_dtype dtype;
    core_memory memory;
    const int64_t *strides;
} side;

/* Casts if the dtypes differ. */
static core_status copy_sides(core_call *call, uint32_t ndim,
                              const int64_t *sizes, side to, side from)
{
    int64_t wide = core_sdk_itemsize(to.dtype);
    int64_t narrow = core_sdk_itemsize(from.dtype);
    int64_t turned[3][CORE_MAX_NDIM];
    core_operand operands[2] = {
        {to.memory, turned[1], to.dtype, CORE_OPERAND_OUTPUT, 0, 0},
        {from.memory, turned[2], from.dtype, 0, 0, 0}};
    core_loop loop = {.struct_size = sizeof loop,
                      .noperands = 2,
                      .noutputs = 1,
                      .numel = 1,
                      .sizes = turned[0],
                      .operands = operands};

    /* Innermost first; adjacent dimensions are merged. */
    for (uint32_t d = ndim; d-- > 0;) {
        uint32_t n = loop.ndim;

        loop.numel *= sizes[d];
        if (sizes[d] == 1)
            continue;
        if (n > 0 &&
            to.strides[d] * wide == turned[1][n - 1] * turned[0][n - 1] &&
            from.strides[d] * narrow == turned[2][n - 1] * turned[0][n - 1]) {
            turned[0][n - 1] *= sizes[d];
            continue;
        }
        turned[0][n] = sizes[d];
        turned[1][n] = to.strides[d] * wide;
        turned[2][n] = from.strides[d] * narrow;
        loop.ndim++;
    }
    if (loop.ndim == 0 ||
        (loop.ndim == 1 && turned[1][0] == wide && turned[2][0] == narrow))
        loop.flags = CORE_LOOP_CONTIGUOUS;
    return gpu_copy_loop(call, &loop);
}

core_status gpu_copy_window(core_call *call, core_dtype dtype, uint32_t ndim,
                            const int64_t *sizes, core_memory to,
                            const int64_t *to_strides, core_memory from,
                            const int64_t *from_strides)
{
    return copy_sides(call, ndim, sizes, (side){dtype, to, to_strides},
                      (side){dtype, from, from_strides});
}

/* --------------------------------------------------------------- fills -- */

typedef struct filling {
    core_call *call;
    uint64_t bits;
} filling;

static core_status fill_piece(const core_loop *loop, void *context)
{
    filling *f = context;
    core_operand operands[2] = {loop->operands[0], loop->operands[0]};
    core_loop both = *loop;

    operands[1].flags = CORE_OPERAND_IMMEDIATE;
    operands[1].immediate = f->bits;
    both.operands = operands;
    both.noperands = 2;
    return copy_piece(&both, f->call);
}

core_status gpu_fill_loop(core_call *call, const core_loop *loop, uint64_t bits)
{
    const core_operand *to = &loop->operands[0];
    gpu_stream *stream = gpu_stream_of(call);
    uint32_t bytes = core_sdk_itemsize(to->dtype);
    filling f = {call, bits};

    if (loop->numel == 0)
        return CORE_OK;
    if (loop->flags & CORE_LOOP_CONTIGUOUS)
        return gpu_memory_table.fill(stream->device, stream, to->memory,
                                     (uint64_t)loop->numel * bytes, bits,
                                     bytes);
    return gpu_loop_pieces(loop, fill_piece, &f);
}

core_status gpu_fill_view(core_call *call, const core_view *to, uint64_t bits)
{
    int64_t sizes[CORE_MAX_NDIM], strides[CORE_MAX_NDIM];
    core_operand operand = {to->memory,          strides, to->dtype,
                            CORE_OPERAND_OUTPUT, 0,       0};
    core_loop loop = {.struct_size = sizeof loop,
                      .ndim = to->ndim,
                      .noperands = 1,
                      .noutputs = 1,
                      .numel = to->numel,
                      .sizes = sizes,
                      .operands = &operand};

    if (to->flags & CORE_VIEW_CONTIGUOUS)
        loop.flags = CORE_LOOP_CONTIGUOUS;
    for (uint32_t d = 0; d < to->ndim; d++) {
        sizes[d] = to->sizes[to->ndim - 1 - d];
        strides[d] = to->strides[to->ndim - 1 - d] *
                     (int64_t)core_sdk_itemsize(to->dtype);
    }
    return gpu_fill_loop(call, &loop, bits);
}

/* ------------------------------------------------------------- kernels -- */

static core_status copy(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return gpu_copy_loop(call, call->loop);
}

static core_status fill(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    (void)results;
    (void)nresults;
    if (nargs < 2)
        return gpu_refuse(CORE_ERROR_INTERNAL, "fill_: the value is missing");
    return gpu_fill_loop(
        call, call->loop,
        gpu_scalar_bits(&args[1], call->loop->operands[0].dtype));
}

static core_status zero(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return gpu_fill_loop(call, call->loop, 0);
}

/* The address of the element `steps` along a dimension. */
static core_memory moved(const core_view *view, uint32_t dim, int64_t steps)
{
    core_memory memory = view->memory;

    memory.offset += (uint64_t)(steps * view->strides[dim] *
                                (int64_t)core_sdk_itemsize(view->dtype));
    return memory;
}

/* cat(tensors, dim) of any dtypes; empty 1-D tensors are skipped. */
static core_status cat(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    const core_view *to = results[0].u.view;
    int64_t dim = args[1].u.i < 0 ? args[1].u.i + to->ndim : args[1].u.i;
    core_status status = CORE_OK;
    int64_t at = 0;

    (void)nargs;
    (void)nresults;
    for (uint32_t i = 0; i < args[0].count && status == CORE_OK; i++) {
        const core_view *from = args[0].u.views[i];

        if (from->numel == 0)
            continue;
        status = copy_sides(
            call, to->ndim, from->sizes,
            (side){to->dtype, moved(to, (uint32_t)dim, at), to->strides},
            (side){from->dtype, from->memory, from->strides});
        at += from->sizes[dim];
    }
    return status;
}

/* flip(self, dims) */
static core_status flip(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_view *from = args[0].u.view, *to = results[0].u.view;
    core_memory memory = from->memory;
    int64_t strides[CORE_MAX_NDIM];

    (void)nargs;
    (void)nresults;
    for (uint32_t d = 0; d < from->ndim; d++)
        strides[d] = from->strides[d];
    /* A 0-D tensor has no dimension to flip. */
    for (uint32_t i = 0; i < args[1].count && from->numel > 0 && from->ndim > 0;
         i++) {
        int64_t d = args[1].u.ints[i];

        d += d < 0 ? from->ndim : 0;
        memory.offset += (uint64_t)((from->sizes[d] - 1) * from->strides[d] *
                                    (int64_t)core_sdk_itemsize(from->dtype));
        strides[d] = -from->strides[d];
    }
    return gpu_copy_window(call, to->dtype, to->ndim, to->sizes, to->memory,
                           to->strides, memory, strides);
}

/* constant_pad_nd(self, pad, value); pads may be negative. */
static core_status pad(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    static const core_value zero_value = {.tag = CORE_VALUE_INT};
    const core_view *from = args[0].u.view, *to = results[0].u.view;
    core_memory source = from->memory, target = to->memory;
    int64_t item = core_sdk_itemsize(to->dtype), sizes[CORE_MAX_NDIM];
    core_status status = gpu_fill_view(
        call, to,
        gpu_scalar_bits(nargs > 2 ? &args[2] : &zero_value, to->dtype));

    (void)nresults;
    for (uint32_t d = 0; d < to->ndim; d++) {
        uint32_t k = 2 * (to->ndim - 1 - d);
        int64_t before = k < args[1].count ? args[1].u.ints[k] : 0;
        int64_t after = k < args[1].count ? args[1].u.ints[k + 1] : 0;

        sizes[d] = from->sizes[d] + (before < 0 ? before : 0) +
                   (after < 0 ? after : 0);
        if (sizes[d] <= 0)
            return status;
        if (before > 0)
            target.offset += (uint64_t)(before * to->strides[d] * item);
        else
            source.offset += (uint64_t)(-before * from->strides[d] * item);
    }
    if (status != CORE_OK)
        return status;
    return gpu_copy_window(call, to->dtype, to->ndim, sizes, target,
                           to->strides, source, from->strides);
}

core_status gpu_register_move(core_registry *registry)
{
    static const gpu_row rows[] = {
        {"copy_", copy, NULL, {GPU_M_ALL, GPU_M_ALL}, 0, NULL},
        {"fill_.Scalar", fill, NULL, {GPU_M_ALL}, 0, NULL},
        {"zero_", zero, NULL, {GPU_M_ALL}, 0, NULL},
        {"cat", cat, NULL, {0}, 0, NULL},
        {"flip", flip, NULL, {0}, 0, NULL},
        {"constant_pad_nd", pad, NULL, {0}, 0, NULL},
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
