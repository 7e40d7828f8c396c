/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The convolutions of conv.h as products of weights and columns of patches, in
 * each dtype of computation. */

#include "conv.h"

#include "gemm/blas.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"

void conv_geometry_finish(conv_geometry *g)
{
    int64_t depth;

    g->in_size = g->out_size = g->kernel_size = 1;
    g->direct = true;
    for (int k = 0; k < 3; k++) {
        g->in_size *= g->in[k];
        g->out_size *= g->out[k];
        g->kernel_size *= g->kernel[k];
        g->direct &= g->kernel[k] == 1 && g->stride[k] == 1 &&
                     g->padding[k] == 0 && g->in[k] == g->out[k];
    }
    /* The columns of a tile that fit in the second-level cache. */
    depth = g->channels / g->groups * g->kernel_size;
    g->tile = (1 << 17) / (depth > 0 ? depth : 1) / 16 * 16;
    if (g->tile < 128)
        g->tile = 128;
    if (g->tile > g->out_size || g->direct)
        g->tile = g->out_size;
    if (g->direct && g->tile > 4096)
        g->tile = 4096;
    if (g->tile < 1)
        g->tile = 1;
}

int64_t conv_channel_block(const conv_geometry *g, int64_t tasks)
{
    int64_t channels = g->channels / g->groups;
    int64_t parts = tasks > 0 ? (16 + tasks - 1) / tasks : 1;
    int64_t block = (channels + parts - 1) / parts;

    if (block < 16)
        block = 16;
    return block < channels ? block : channels > 0 ? channels : 1;
}

#define T_PASTE(name, suffix) name##_##suffix
#define TYPE float
#define T(name) T_PASTE(name, f32)
#include "conv_type.h"
#undef TYPE
#undef T
#define TYPE double
#define T(name) T_PASTE(name, f64)
#include "conv_type.h"
#undef TYPE
#undef T
#define TYPE int64_t
#define T(name) T_PASTE(name, i64)
#include "conv_type.h"
