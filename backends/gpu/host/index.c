/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index.c: reading by indices; nll_loss; tensors made of a rule. */

#include <gpu/host/host.h>
#include <gpu/shared_index.h>

static gpu_indexing begin(core_call *call, const core_value *to,
                          const core_value *index)
{
    gpu_indexing p;

    memset(&p, 0, sizeof p);
    p.to = gpu_data(to);
    p.count = (uint64_t)to->u.view->numel;
    p.index = gpu_data(index);
    p.index_dtype = index->u.view->dtype;
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return p;
}

static core_status finish(core_call *call, const char *stem, const char *type,
                          const gpu_indexing *p)
{
    char name[GPU_NAME];
    size_t n = strlen(stem);

    if (p->count == 0)
        return CORE_OK;
    memcpy(name, stem, n);
    name[n] = '_';
    memcpy(name + n + 1, type, strlen(type) + 1);
    return gpu_launch(call, "index", name,
                      gpu_spread(gpu_stream_of(call)->device, p->count, 2), p,
                      sizeof *p);
}

static const char *word_of(const core_view *view)
{
    return gpu_word_name(core_sdk_itemsize(view->dtype));
}

/* ---------------------------------------------------------------- lines -- */

static void set_lines(gpu_indexing *p, gpu_line line, int64_t n)
{
    p->outer = line.outer;
    p->limit = line.size;
    p->inner = line.inner;
    p->n = n;
}

/* index_select(self, dim, index); embedding(weight, indices, …) */
static core_status select_lines(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    bool embedding = call->user != NULL;
    const core_value *index = &args[embedding ? 1 : 2];
    gpu_indexing p = begin(call, &results[0], index);

    (void)nargs;
    (void)nresults;
    p.from = gpu_data(&args[0]);
    set_lines(&p, gpu_line_of(args[0].u.view, embedding ? 0 : args[1].u.i),
              index->u.view->numel);
    return finish(call, "index_select", word_of(results[0].u.view), &p);
}

/* ------------------------------------------------------------- elements -- */

static core_status too_many(const core_view *view)
{
    if (view->ndim <= GPU_DIMS && view->numel <= INT32_MAX)
        return CORE_OK;
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "%u dimensions and %lld elements to gather or scatter; "
                      "at most %d and 2^31 - 1",
                      view->ndim, (long long)view->numel, GPU_DIMS);
}

static void set_elements(gpu_indexing *p, const core_view *to,
                         const core_view *from, int64_t dim)
{
    dim += dim < 0 ? to->ndim : 0;
    p->ndim = to->ndim > 0 ? to->ndim : 1;
    p->sizes[0] = gpu_divide_by(1);
    for (uint32_t d = 0; d < to->ndim; d++) {
        uint32_t k = to->ndim - 1 - d;

        p->sizes[d] = gpu_divide_by((uint32_t)to->sizes[k]);
        p->from_strides[d] = from->ndim > 0 ? from->strides[k] : 0;
    }
    if (to->ndim > 0)
        p->dim = to->ndim - 1 - (uint32_t)dim;
}

/* gather(self, dim, index, sparse_grad) */
static core_status gather(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    const core_view *self = args[0].u.view, *index = args[2].u.view;
    gpu_indexing p = begin(call, &results[0], &args[2]);
    core_status status = too_many(index);

    (void)nargs;
    (void)nresults;
    if (status != CORE_OK)
        return status;
    p.from = gpu_data(&args[0]);
    set_elements(&p, results[0].u.view, self, args[1].u.i);
    p.limit = self->ndim > 0 ? self->sizes[self->ndim - 1 - p.dim] : 1;
    return finish(call, "index_gather", word_of(self), &p);
}

/* ----------------------------------------------------------------- loss -- */

/* self is (C), (N, C) or (N, C, …); from weight on the arguments are weight?,
 * reduction, ignore_index. */
static gpu_loss begin_loss(core_call *call, const core_view *self,
                           const core_value *target, const core_value *weight)
{
    gpu_line line = gpu_line_of(self, self->ndim > 1 ? 1 : 0);
    gpu_loss p;

    memset(&p, 0, sizeof p);
    p.target = gpu_data(target);
    p.index_dtype = target->u.view->dtype;
    p.weight = gpu_data(weight);
    p.outer = line.outer;
    p.classes = line.size;
    p.inner = line.inner;
    p.reduction = (uint32_t)weight[1].u.i;
    p.ignore = weight[2].u.i;
    p.error = gpu_stream_of(call)->error;
    p.call = (int64_t)call->id;
    return p;
}

/* nll_loss_forward(self, target, weight?, reduction, ignore_index)
 * -> (output, total_weight) */
static core_status loss_forward(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const core_view *self = args[0].u.view;
    gpu_loss p = begin_loss(call, self, &args[1], &args[2]);
    char name[GPU_NAME];

    (void)nargs;
    (void)nresults;
    /* One loss (of a row of classes, reduction 0) is its own sum. */
    if (self->ndim == 1 && p.reduction == 0)
        p.reduction = 2;
    p.to = gpu_data(&results[0]);
    p.total = gpu_data(&results[1]);
    p.from = gpu_data(&args[0]);
    return gpu_launch(call, "index", gpu_name(name, "nll_forward", self->dtype),
                      gpu_blocks(1, GPU_BLOCK), &p, sizeof p);
}

/* nll_loss_backward(grad_output, self, target, weight?, reduction,
 * ignore_index, total_weight) -> grad_self */
static core_status loss_backward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *self = args[1].u.view;
    gpu_loss p = begin_loss(call, self, &args[2], &args[3]);
    char name[GPU_NAME];

    (void)nargs;
    (void)nresults;
    if (self->numel == 0)
        return CORE_OK;
    p.to = gpu_data(&results[0]);
    p.total = gpu_data(&args[6]);
    p.from = gpu_data(&args[0]);
    return gpu_launch(call, "index",
                      gpu_name(name, "nll_backward", self->dtype),
                      gpu_spread(gpu_stream_of(call)->device,
                                 (uint64_t)(p.outer * p.inner), 1),
                      &p, sizeof p);
}

/* ---------------------------------------------------------------- rules -- */

static core_status finish_rule(core_call *call, const char *name, gpu_rule *p)
{
    if (p->count == 0)
        return CORE_OK;
    return gpu_launch(call, "index", name,
                      gpu_spread(gpu_stream_of(call)->device, p->count, 2), p,
                      sizeof *p);
}

static gpu_rule begin_rule(const core_view *to)
{
    gpu_rule p;

    memset(&p, 0, sizeof p);
    p.to = gpu_address(to->memory);
    p.count = (uint64_t)to->numel;
    p.dtype = to->dtype;
    if (to->ndim >= 2) {
        p.rows = to->sizes[to->ndim - 2];
        p.columns = to->sizes[to->ndim - 1];
    }
    return p;
}

/* arange.start_step(start, end, step, …), arange.start(start, end, …),
 * arange(end, …): the user word is how many of these numbers there are. */
static core_status arange(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    static const core_value zero = {.tag = CORE_VALUE_INT};
    static const core_value one = {.tag = CORE_VALUE_INT, .u.i = 1};
    intptr_t given = (intptr_t)call->user;
    const core_value *start = given > 1 ? &args[0] : &zero;
    const core_value *step = given > 2 ? &args[2] : &one;
    gpu_rule p = begin_rule(results[0].u.view);

    (void)nargs;
    (void)nresults;
    p.start = core_sdk_double(start, 0);
    p.width = core_sdk_double(step, 1);
    p.first = core_sdk_int(start, 0);
    p.step = core_sdk_int(step, 1);
    return finish_rule(call, "rule_arange", &p);
}

/* eye(n, …), eye.m(n, m, …) */
static core_status eye(core_call *call, const core_value *args, uint32_t nargs,
                       core_value *results, uint32_t nresults)
{
    gpu_rule p = begin_rule(results[0].u.view);

    (void)args;
    (void)nargs;
    (void)nresults;
    return finish_rule(call, "rule_eye", &p);
}

/* tril(self, diagonal), triu */
static core_status triangle(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    gpu_rule p = begin_rule(results[0].u.view);
    char name[GPU_NAME] = "rule_triangle_";

    (void)nresults;
    p.from = gpu_data(&args[0]);
    p.diagonal = nargs > 1 ? core_sdk_int(&args[1], 0) : 0;
    p.upper = call->user != NULL;
    strcat(name, word_of(results[0].u.view));
    return finish_rule(call, name, &p);
}

core_status gpu_register_index(core_registry *registry)
{
    enum {
        INDEX = GPU_M_I64 | GPU_M_I32,
        NUMBERS = GPU_M_FLOATS | GPU_M_WHOLE
    };
    enum { DENSE = CORE_REQUIRE_CONTIGUOUS };
    static const gpu_row rows[] = {
        {"index_select", select_lines, NULL, {0, INDEX, 0}, DENSE, NULL},
        {"embedding", select_lines, (void *)1, {0, INDEX, 0}, DENSE, NULL},
        {"gather", gather, NULL, {0, INDEX, 0}, DENSE, gpu_few_dims},
        {"arange", arange, (void *)1, {NUMBERS}, DENSE, NULL},
        {"arange.start", arange, (void *)2, {NUMBERS}, DENSE, NULL},
        {"arange.start_step", arange, (void *)3, {NUMBERS}, DENSE, NULL},
        {"eye", eye, NULL, {GPU_M_ALL}, DENSE, NULL},
        {"eye.m", eye, NULL, {GPU_M_ALL}, DENSE, NULL},
        {"tril", triangle, NULL, {0}, DENSE, NULL},
        {"triu", triangle, (void *)1, {0}, DENSE, NULL},
    };
    core_status status =
        gpu_register(registry, rows, sizeof rows / sizeof *rows);

    for (core_dtype d = CORE_F64; d <= CORE_BF16 && status == CORE_OK; d++) {
        uint32_t m = CORE_DTYPE_MASK(d);
        const gpu_row typed[] = {
            {"nll_loss_forward",
             loss_forward,
             NULL,
             {m, INDEX, m, m, m},
             DENSE,
             NULL},
            {"nll_loss_backward",
             loss_backward,
             NULL,
             {m, m, INDEX, m, m, m},
             DENSE,
             NULL},
            {"nll_loss2d_forward",
             loss_forward,
             NULL,
             {m, INDEX, m, m, m},
             DENSE,
             NULL},
            {"nll_loss2d_backward",
             loss_backward,
             NULL,
             {m, m, INDEX, m, m, m},
             DENSE,
             NULL},
        };

        status = gpu_register(registry, typed, sizeof typed / sizeof *typed);
    }
    return status;
}
