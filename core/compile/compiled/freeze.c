/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Computes what depends on frozen hidden inputs alone (freeze.h). */

#include "compile/compiled/freeze.h"

#include "base/checksum.h"
#include "base/memory.h"
#include "base/thread.h"
#include "compile/passes/simplify.h"
#include "compile/run/run.h"
#include "device/device.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "ops_ids.h"
#include "tensor/dtype.h"

#include <libcore/tensor.h>

enum {
    SMALL = 1 << 16, /* bytes of results that may be of any size */
    LARGEST = 4      /* otherwise, times the bytes of what is read */
};

/* When a value is needed. */
enum { BEFORE = 1, IN_RUNS = 2 };

typedef struct freezing {
    core_program *program;
    core__run run;
    uint8_t *known;  /* by value: it depends on nothing else */
    uint8_t *needed; /* by value: BEFORE, IN_RUNS */
    uint8_t *early;  /* by node: it is computed now */
} freezing;

/* ------------------------------------------------------------- selection -- */

typedef struct reading {
    const freezing *f;
    uint64_t bytes;
    uint32_t count;
    bool known;
} reading;

static void read_value(void *context, uint32_t value)
{
    reading *r = context;

    r->bytes += core__type_bytes(&r->f->program->values[value].type);
    r->known = r->known && r->f->known[value];
    r->count++;
}

static bool is_repeatable(const core__program_node *node)
{
    if (!node->op || node->draws || node->regions || node->backward ||
        node->op->registrations ||
        node->op->flags &
            (CORE__OP_CUSTOM | CORE__OP_RANDOM | CORE__OP_HOST_WAIT))
        return false;
    for (uint32_t i = 0; i < node->nargs; i++)
        if (node->args[i].tag == CORE__ARGUMENT_NUMBER ||
            node->args[i].tag == CORE_VALUE_GENERATOR)
            return false;
    return true;
}

static bool is_view(const core__program_node *node)
{
    return core__operator_is_view(node->op);
}

/* True for a node whose results depend on what is known alone. */
static bool is_known(const freezing *f, const core__program_node *node)
{
    const core_program *program = f->program;
    reading r = {.f = f, .known = is_repeatable(node)};
    uint64_t results = 0;

    core__node_each_value(node, read_value, &r);
    for (uint32_t i = 0; i < node->nvalues; i++) {
        if (program->values[node->first + i].kept)
            return false;
        results += core__type_bytes(&program->values[node->first + i].type);
    }
    return r.known && (results <= SMALL || results <= LARGEST * r.bytes);
}

static void find_known(freezing *f)
{
    const core_program *program = f->program;

    for (uint32_t i = 0; i < program->nhidden; i++)
        f->known[program->hidden[i].value] =
            core__program_is_frozen(program, i) ||
            (program->hidden[i].constant && !program->hidden[i].written);
    for (uint32_t i = 0; i < program->nnodes; i++) {
        const core__program_node *node = &program->nodes[i];

        if (is_known(f, node))
            for (uint32_t k = 0; k < node->nvalues; k++)
                f->known[node->first + k] = true;
    }
}

typedef struct marking {
    freezing *f;
    uint8_t need;
} marking;

static void mark(void *context, uint32_t value)
{
    const marking *m = context;

    m->f->needed[value] |= m->need;
}

static void need_arguments(freezing *f, const core__program_node *node,
                           uint8_t need)
{
    marking m = {f, need};

    core__node_each_value(node, mark, &m);
}

static bool reads_nothing(const freezing *f, const core__program_node *node)
{
    reading r = {.f = f};

    core__node_each_value(node, read_value, &r);
    return r.count == 0;
}

/* The content of its result is whatever the memory contains. */
static bool is_without_content(const core__program_node *node)
{
    switch (node->op->id) {
    case CORE_OP_EMPTY:
    case CORE_OP_EMPTY_LIKE:
    case CORE_OP_EMPTY_STRIDED:
    case CORE_OP_NEW_EMPTY:
    case CORE_OP_NEW_EMPTY_STRIDED:
        return true;
    default:
        return false;
    }
}

/* A node that runs can call, though what it reads is known. */
static bool is_cheap(const freezing *f, const core__program_node *node)
{
    return is_view(node) || reads_nothing(f, node) || is_without_content(node);
}

/* Which nodes are computed now, and which of their values runs need. */
static void select_nodes(freezing *f)
{
    const core_program *program = f->program;

    for (uint32_t i = program->nnodes; i-- > 0;) {
        const core__program_node *node = &program->nodes[i];
        bool known = node->nvalues && f->known[node->first], stays = !known;
        uint8_t needed = 0;

        for (uint32_t k = 0; k < node->nvalues; k++)
            needed |= f->needed[node->first + k];
        if (known && needed & IN_RUNS)
            stays = is_cheap(f, node);
        f->early[i] = known && (needed & BEFORE || (needed && !stays));
        if (f->early[i])
            need_arguments(f, node, BEFORE);
        if (!stays)
            continue;
        need_arguments(f, node, IN_RUNS);
        for (uint32_t k = 0; k < node->nvalues; k++)
            f->needed[node->first + k] &= (uint8_t)~IN_RUNS;
    }
}

/* ------------------------------------------------------------- computing -- */

/* What runs need is not changed by the node that reads it last. */
static void keep_content(freezing *f, bool kept)
{
    core_program *program = f->program;

    for (uint32_t i = 0; i < program->nnodes; i++)
        for (uint32_t k = 0; k < program->nodes[i].nvalues && f->early[i]; k++)
            program->values[program->nodes[i].first + k].kept = kept;
}

static core_status compute(freezing *f)
{
    core_program *program = f->program;

    for (uint32_t i = 0; i < program->nhidden; i++) {
        const core__program_hidden *hidden = &program->hidden[i];

        core__tensor_retain(hidden->tensor);
        f->run.tensors[hidden->value] = hidden->tensor;
    }
    for (uint32_t i = 0; i < program->nnodes; i++) {
        if (!f->early[i])
            continue;
        f->run.node = i;
        CORE_TRY(core__run_node(&f->run, &program->nodes[i]));
    }
    return CORE_OK;
}

/* Reading it also waits for it, so runs on other streams can use it. */
static core_status set_checksum(core__program_hidden *hidden)
{
    core_tensor *tensor = hidden->tensor;
    size_t size =
        (size_t)tensor->numel * core__dtype_size((core_dtype)tensor->dtype);
    void *content = core__alloc(size + 1);
    core_status status;
    core__checksum sum;

    if (!content)
        return core__error_memory(size);
    status = core_tensor_read(tensor, content, size);
    core__checksum_begin(&sum, false);
    if (status == CORE_OK)
        core__checksum_add(&sum, content, size);
    core__checksum_end(&sum, hidden->checksum);
    core__free(content);
    return status;
}

/* A value becomes a constant. */
static core_status keep_value(freezing *f, uint32_t value)
{
    core_program *program = f->program;
    core__program_hidden *hidden;

    program->values[value].source = CORE__VALUE_OF_HIDDEN;
    program->values[value].index = program->nhidden;
    hidden =
        core__program_grow(&program->hidden, &program->nhidden, sizeof *hidden);
    if (!hidden)
        return core__error_memory(sizeof *hidden);
    hidden->tensor = f->run.tensors[value];
    f->run.tensors[value] = NULL;
    hidden->value = value;
    hidden->constant = true;
    core__tensor_retain(hidden->tensor);
    return set_checksum(hidden);
}

static core_status keep_values(freezing *f)
{
    core_program *program = f->program;

    for (uint32_t i = 0; i < program->nnodes; i++) {
        const core__program_node *node = &program->nodes[i];

        if (!f->early[i])
            continue;
        program->nfolded++;
        for (uint32_t k = 0; k < node->nvalues; k++)
            if (f->needed[node->first + k] & IN_RUNS)
                CORE_TRY(keep_value(f, node->first + k));
    }
    return CORE_OK;
}

/* Autograd and autocast have done their part. */
static core_status fold(freezing *f)
{
    core__thread *self = core__thread_self();
    uint32_t excluded = self->excluded;
    bool no_grad = self->no_grad;
    core_status status;

    find_known(f);
    select_nodes(f);
    self->excluded |= (uint32_t)(CORE__KEY_AUTOGRAD | CORE__KEY_AUTOCAST);
    self->no_grad = true;
    keep_content(f, true);
    status = compute(f);
    keep_content(f, false);
    if (status == CORE_OK)
        status = keep_values(f);
    self->no_grad = no_grad;
    self->excluded = excluded;
    return status;
}

static bool is_capturing(const core_program *program)
{
    for (uint32_t i = 0; i < program->ndevices; i++)
        if (core__stream_current(program->devices[i])->capture)
            return true;
    return false;
}

core_status core__program_freeze(core_program *program)
{
    freezing f = {.program = program};
    size_t nvalues = program->nvalues;
    size_t size = nvalues * (sizeof(core_tensor *) + 2) + program->nnodes + 1;
    core_status status;

    program->frozen = true;
    program->registered = atomic_load(&core__registry_generation);
    if (is_capturing(program))
        return CORE_OK;
    f.run = (core__run){.program = program, .devices = program->devices};
    f.run.tensors = core__alloc_zero(size);
    if (!f.run.tensors)
        return core__error_memory(size);
    f.known = (uint8_t *)(f.run.tensors + nvalues);
    f.needed = f.known + nvalues;
    f.early = f.needed + nvalues;
    status = fold(&f);
    for (size_t i = 0; i < nvalues; i++)
        core__tensor_release(f.run.tensors[i]);
    core__free(f.run.tensors);
    return status == CORE_OK && program->nfolded
               ? core__program_simplify(program)
               : status;
}
