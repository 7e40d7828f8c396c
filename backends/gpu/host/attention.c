/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* attention.c: fused attention, forward and backward. */

#include <gpu/host/host.h>
#include <gpu/shared_attention.h>

#include <math.h>

enum { MOST = 256 }; /* elements of a query, and of a value */

/* Lines of a tile; the same as in the kernels. */
static int64_t side_of(core_dtype dtype)
{
    return dtype == CORE_F64 ? 32 : 64;
}

static gpu_heads heads_of(const core_value *value)
{
    gpu_heads heads = {0};
    const core_view *view;

    if (value->tag != CORE_VALUE_VIEW)
        return heads;
    view = value->u.view;
    heads.data = gpu_address(view->memory);
    /* A broadcast dimension has one size and no stride. */
    heads.batch = view->sizes[0] == 1 ? 0 : view->strides[0];
    heads.head = view->sizes[1] == 1 ? 0 : view->strides[1];
    heads.row = view->sizes[2] == 1 ? 0 : view->strides[2];
    heads.item = view->sizes[3] == 1 ? 0 : view->strides[3];
    return heads;
}

/* [batch, head, row] */
static gpu_heads sums_of(const core_view *view)
{
    gpu_heads sums = {gpu_address(view->memory), view->strides[0],
                      view->strides[1], view->strides[2], 0};

    if (view->numel == 0)
        sums.data = NULL;
    return sums;
}

/* args: query, key, value, bias */
static gpu_attention begin(const core_value *args, double dropout, bool causal,
                           const core_value *scale)
{
    const core_view *query = args[0].u.view, *key = args[1].u.view;
    gpu_attention p;
    int64_t side = side_of(query->dtype);

    memset(&p, 0, sizeof p);
    p.query = heads_of(&args[0]);
    p.key = heads_of(&args[1]);
    p.value = heads_of(&args[2]);
    p.bias = heads_of(&args[3]);
    p.whole_bias = p.bias.data != NULL && args[3].u.view->dtype == CORE_BOOL;
    p.batch = query->sizes[0];
    p.heads = query->sizes[1];
    p.rows = query->sizes[2];
    p.columns = key->sizes[2];
    p.inner = query->sizes[3];
    p.outer = args[2].u.view->sizes[3];
    p.row_tiles = (p.rows + side - 1) / side;
    p.column_tiles = (p.columns + side - 1) / side;
    p.scale = core_sdk_double(scale, 1 / sqrt((double)p.inner));
    p.causal = causal;
    p.dropout = dropout > 0;
    /* a draw is kept if draw / 2^32 < 1 - dropout */
    p.kept_below = (uint64_t)ceil((1 - dropout) * 0x1p32);
    p.kept_scale = dropout < 1 ? 1 / (1 - dropout) : 0;
    return p;
}

static core_status start(core_call *call, const char *stem, core_dtype dtype,
                         int64_t tiles, const gpu_attention *p)
{
    int64_t most = p->inner > p->outer ? p->inner : p->outer;
    char name[GPU_NAME], sized[GPU_NAME];

    snprintf(sized, sizeof sized, "%s_%d", stem,
             most <= 64                         ? 64
             : most <= 128 && dtype != CORE_F64 ? 128
                                                : MOST);
    tiles *= p->batch * p->heads;
    /* At least one block: it stores the seed and offset that were used. */
    return gpu_launch(call, "attention", gpu_name(name, sized, dtype),
                      gpu_blocks(tiles > 0 ? (uint64_t)tiles : 1, GPU_BLOCK), p,
                      sizeof *p);
}

/* Whether an operand is absent, or its lines can be copied and written 16 bytes
 * at a time. */
static bool in_units(const gpu_heads *x)
{
    return x->data == NULL || ((uintptr_t)x->data % 16 == 0 && x->item == 1 &&
                               (x->row | x->head | x->batch) % 8 == 0);
}

/* Whether the kernels for tensor cores (attention_mma.cu) compute this.  Their
 * maximum is that of the products, so that the scale must be positive. */
static bool by_tensor_cores(const core_call *call, core_dtype dtype,
                            const gpu_attention *p)
{
    return gpu_stream_of(call)->device->facts.tensor_cores != 0 &&
           (dtype == CORE_F16 || dtype == CORE_BF16) && p->inner <= 128 &&
           p->outer <= 128 && p->inner % 8 == 0 && p->outer % 8 == 0 &&
           p->scale > 0 && isfinite(p->scale) && in_units(&p->query) &&
           in_units(&p->key) && in_units(&p->value) && in_units(&p->output);
}

/* lines: of all blocks; each: of one. */
static core_status start_mma(core_call *call, const char *stem,
                             core_dtype dtype, int64_t lines, int64_t each,
                             const gpu_attention *p)
{
    bool wide = p->inner > 64 || p->outer > 64;
    bool plain = p->bias.data == NULL && !p->dropout;
    int64_t tiles = (lines + each - 1) / each * p->batch * p->heads;
    char name[GPU_NAME], sized[GPU_NAME];

    snprintf(sized, sizeof sized, "%s_%s%d", stem, plain ? "" : "any_",
             wide ? 128 : 64);
    return gpu_launch(call, "attention_mma", gpu_name(name, sized, dtype),
                      gpu_blocks(tiles > 0 ? (uint64_t)tiles : 1, 128), p,
                      sizeof *p);
}

static core_status start_forward_mma(core_call *call, core_dtype dtype,
                                     const gpu_attention *p)
{
    bool narrow = p->inner <= 64 && p->outer <= 64;
    bool plain = p->bias.data == NULL && !p->dropout;

    return start_mma(call, "attention_mma", dtype, p->rows,
                     plain && narrow ? 128 : 64, p);
}

/* _scaled_dot_product_efficient_attention(query, key, value, attn_bias,
 * compute_log_sumexp, dropout_p, is_causal, scale) -> (output, log_sumexp,
 * philox_seed, philox_offset) */
static core_status forward(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    gpu_attention p =
        begin(args, core_sdk_double(&args[5], 0), args[6].u.i != 0, &args[7]);
    core_dtype dtype = args[0].u.view->dtype;
    const core_value *last = &args[nargs - 1];
    /* A host of minor version 0.1 passes two values. */
    const core_value *seed = last->tag == CORE_VALUE_INT ? last - 1 : last - 2;

    (void)nresults;
    p.output = heads_of(&results[0]);
    p.sum = sums_of(results[1].u.view);
    p.state[0] = gpu_data(&results[2]);
    p.state[1] = gpu_data(&results[3]);
    p.seed = (uint64_t)seed[0].u.i;
    p.offset = (uint64_t)seed[1].u.i;
    p.counter = gpu_data(last);
    if (by_tensor_cores(call, dtype, &p))
        return start_forward_mma(call, dtype, &p);
    return start(call, "attention", dtype, p.row_tiles, &p);
}

/* _scaled_dot_product_efficient_attention_backward(grad_out, query, key, value,
 * attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p,
 * grad_input_mask, is_causal, scale) */
static core_status backward(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    gpu_attention p = begin(args + 1, core_sdk_double(&args[9], 0),
                            args[11].u.i != 0, &args[12]);
    core_dtype dtype = args[1].u.view->dtype;
    gpu_device *device = gpu_stream_of(call)->device;
    uint64_t queries = (uint64_t)(p.batch * p.heads * p.rows);
    core_memory delta;
    core_status status;
    char name[GPU_NAME];

    (void)nargs;
    (void)nresults;
    p.grad = heads_of(&args[0]);
    p.output = heads_of(&args[5]);
    p.sum = sums_of(args[6].u.view);
    p.state[0] = gpu_data(&args[7]);
    p.state[1] = gpu_data(&args[8]);
    p.to_query = heads_of(&results[0]);
    p.to_key = heads_of(&results[1]);
    p.to_value = heads_of(&results[2]);
    p.to_bias = heads_of(&results[3]);
    status = gpu_host->call_scratch(
        call, queries * (dtype == CORE_F64 ? sizeof(double) : sizeof(float)),
        &delta);
    if (status != CORE_OK)
        return status;
    p.delta = gpu_address(delta);
    status =
        gpu_launch(call, "attention", gpu_name(name, "attention_delta", dtype),
                   gpu_spread(device, queries * 16, 1), &p, sizeof p);
    if (status == CORE_OK && by_tensor_cores(call, dtype, &p) &&
        p.to_bias.data == NULL && in_units(&p.grad) && in_units(&p.to_query) &&
        in_units(&p.to_key) && in_units(&p.to_value)) {
        if (p.to_query.data)
            status =
                start_mma(call, "attention_mma_rows", dtype, p.rows, 64, &p);
        if (status == CORE_OK && (p.to_key.data || p.to_value.data))
            status =
                start_mma(call, "attention_mma_keys", dtype, p.columns, 64, &p);
        return status;
    }
    if (status == CORE_OK && (p.to_query.data || p.to_bias.data))
        status = start(call, "attention_rows", dtype, p.row_tiles, &p);
    if (status == CORE_OK && (p.to_key.data || p.to_value.data))
        status = start(call, "attention_keys", dtype, p.column_tiles, &p);
    return status;
}

static core_status narrow(const core_view *query, const core_view *value)
{
    if (query->sizes[3] <= MOST && value->sizes[3] <= MOST)
        return CORE_OK;
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "attention: queries have %lld elements and values %lld; "
                      "at most %d are computed with at once",
                      (long long)query->sizes[3], (long long)value->sizes[3],
                      MOST);
}

static core_status supports(const core_call *call, const core_value *args,
                            uint32_t nargs)
{
    (void)call;
    (void)nargs;
    return narrow(args[0].u.view, args[2].u.view);
}

static core_status supports_backward(const core_call *call,
                                     const core_value *args, uint32_t nargs)
{
    (void)call;
    (void)nargs;
    return narrow(args[1].u.view, args[3].u.view);
}

core_status gpu_register_attention(core_registry *registry)
{
#define ROWS(M, SUM)                                                        \
    {"_scaled_dot_product_efficient_attention",                             \
     forward,                                                               \
     NULL,                                                                  \
     {M, M, M, (M) | GPU_M_BOOL, M, SUM, GPU_M_I64, GPU_M_I64},             \
     0,                                                                     \
     supports},                                                             \
    {                                                                       \
        "_scaled_dot_product_efficient_attention_backward", backward, NULL, \
            {M, M, M, M, (M) | GPU_M_BOOL, M, SUM, GPU_M_I64}, 0,           \
            supports_backward                                               \
    }
    static const gpu_row rows[] = {
        ROWS(GPU_M_F32, GPU_M_F32),
        ROWS(GPU_M_F64, GPU_M_F64),
        ROWS(GPU_M_F16, GPU_M_F32),
        ROWS(GPU_M_BF16, GPU_M_F32),
    };

    return gpu_register(registry, rows, sizeof rows / sizeof *rows);
}
