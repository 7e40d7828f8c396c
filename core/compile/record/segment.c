/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The segments of lazy regions: how they are found again and run. */

#include "compile/record/segment.h"

#include "base/growing_text.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "compile/passes/simplify.h"
#include "compile/prepare/prepared.h"
#include "compile/prepare/program_explain.h"
#include "compile/run/run.h"
#include "device/device.h"

#include <libcore/lazy.h>
#include <libcore/ops.h>

#include <string.h>

/* ----------------------------------------------------------------- table -- */

typedef struct segment {
    _Atomic uint32_t references;
    core_program *program;
    struct segment *next; /* in its bucket */
    uint64_t hash;
    uint64_t runs, used; /* under the lock; used: number of the last cut */
    uint64_t recorded;   /* operators, as they were recorded */
    char cut_by[48];     /* at the first time */
    size_t size;
    _Alignas(8) unsigned char key[];
} segment;

/* What cut regions. */
typedef struct cut_cause {
    char by[48];
    char reason[160];
    uint64_t count;
} cut_cause;

enum { BUCKETS = 256, SEGMENTS = 256, CAUSES = 64, ALIGNMENT = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under the lock: */
static segment *table[BUCKETS];
static core_lazy_counts counts;
static cut_cause causes[CAUSES];
static uint32_t ncauses;

void core__segments_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

static void release(segment *s)
{
    if (!s || atomic_fetch_sub(&s->references, 1) != 1)
        return;
    core_program_release(s->program);
    core__free(s);
}

static segment *retain(segment *s)
{
    atomic_fetch_add(&s->references, 1);
    return s;
}

/* Takes the segment that was not used for the longest time out of the table. */
static segment *take_oldest(void)
{
    segment **oldest = NULL, *taken;

    for (uint32_t i = 0; i < BUCKETS; i++)
        for (segment **at = &table[i]; *at; at = &(*at)->next)
            if (!oldest || (*at)->used < (*oldest)->used)
                oldest = at;
    taken = *oldest;
    *oldest = taken->next;
    counts.segments--;
    counts.dropped++;
    return taken;
}

/* ------------------------------------------------------------------ keys -- */

/* Bytes that are written one after the other. */
typedef struct key {
    unsigned char *bytes;
    size_t size, capacity;
    uint64_t hash;
    core_status status;
} key;

static void put(key *k, const void *data, size_t size)
{
    size_t padded = (size + 7) & ~(size_t)7;
    uint64_t last = 0;

    if (k->size + padded > k->capacity) {
        size_t capacity = 2 * (k->capacity + padded) + 1024;
        unsigned char *larger = core__realloc(k->bytes, capacity);

        if (!larger) {
            k->status = core__error_memory(capacity);
            return;
        }
        k->bytes = larger;
        k->capacity = capacity;
    }
    memset(k->bytes + k->size + padded - (padded ? 8 : 0), 0, padded ? 8 : 0);
    if (size > 0)
        memcpy(k->bytes + k->size, data, size);
    for (size_t i = 0; i < padded; i += 8) {
        memcpy(&last, k->bytes + k->size + i, 8);
        k->hash = (k->hash ^ last) * UINT64_C(0x9e3779b97f4a7c15);
        k->hash ^= k->hash >> 29;
    }
    k->size += padded;
}

static void put_number(key *k, uint64_t number)
{
    put(k, &number, sizeof number);
}

static void put_pointer(key *k, const void *pointer)
{
    put_number(k, (uintptr_t)pointer);
}

static void put_type(key *k, const core__program_type *type)
{
    put_number(k, (uint64_t)type->dtype | (uint64_t)type->ndim << 8 |
                      (uint64_t)type->device << 16);
    put(k, type->dims, 2u * type->ndim * sizeof *type->dims);
}

static void put_argument(key *k, const core__program_argument *a)
{
    put_number(k, (uint64_t)a->tag << 32 | a->count);
    switch (a->tag) {
    case CORE_VALUE_NONE:
        break;
    case CORE_VALUE_TENSOR:
        put_number(k, a->u.value);
        break;
    case CORE_VALUE_DEVICE:
        put_number(k, a->u.device);
        break;
    case CORE_VALUE_GENERATOR:
        put_number(k, a->u.generator);
        break;
    case CORE_VALUE_TENSOR_LIST:
        put(k, a->u.values, a->count * sizeof *a->u.values);
        break;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        put(k, a->u.pointer, a->count * sizeof(int64_t));
        break;
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        put(k, a->u.pointer, a->count);
        break;
    default:
        put_number(k, (uint64_t)a->u.i); /* of a float, too: by its bits */
    }
}

static void put_node(key *k, const core_program *program,
                     const core__program_node *node)
{
    put_pointer(k, node->op);
    if (!node->op)
        put(k, node->name, strlen(node->name) + 1);
    put_number(k, (uint64_t)node->nargs << 32 | node->written);
    put_number(k, node->draws);
    for (uint32_t i = 0; i < node->nargs; i++)
        put_argument(k, &node->args[i]);
    for (uint32_t i = 0; i < node->nresults; i++)
        put_argument(k, &node->results[i]);
    for (uint32_t i = 0; i < node->nvalues; i++)
        put_type(k, &program->values[node->first + i].type);
}

/* What a prepared call depends on besides the type. */
static void put_input(key *k, const core_program *program,
                      const core__program_hidden *hidden)
{
    const core_tensor *tensor = hidden->tensor;
    const core_memory *memory = &tensor->storage->memory;
    uint64_t address =
        (uintptr_t)memory->handle + memory->offset +
        (uint64_t)tensor->offset * core__dtype_size(tensor->dtype);

    put_type(k, &program->values[hidden->value].type);
    put_number(k, (uint64_t)hidden->value << 32 |
                      (uint64_t)(address % ALIGNMENT == 0) << 16 |
                      (tensor->flags &
                       (CORE__TENSOR_NUMBER | CORE__TENSOR_READ_ONLY)));
}

static void make_key(key *k, const core_program *program, uint32_t codegen)
{
    put_number(k, codegen);
    put_number(k, (uint64_t)program->ndevices << 32 | program->ngenerators);
    put(k, program->devices, program->ndevices * sizeof *program->devices);
    put(k, program->generators,
        program->ngenerators * sizeof *program->generators);
    put_number(k, program->nhidden);
    for (uint32_t i = 0; i < program->nhidden; i++)
        put_input(k, program, &program->hidden[i]);
    put_number(k, program->nnodes);
    for (uint32_t i = 0; i < program->nnodes; i++)
        put_node(k, program, &program->nodes[i]);
    put_number(k, program->noutputs);
    for (uint32_t i = 0; i < program->noutputs; i++)
        put_number(k, program->outputs[i].index);
    put_number(k, program->nwrites);
    for (uint32_t i = 0; i < program->nwrites; i++)
        put_number(k, (uint64_t)program->writes[i].index << 32 |
                          program->writes[i].value);
}

/* --------------------------------------------------------------- finding -- */

/* Under the lock.  NULL: there is none. */
static segment *find(const key *k)
{
    segment *s = table[k->hash % BUCKETS];

    while (s && (s->hash != k->hash || s->size != k->size ||
                 memcmp(s->key, k->bytes, k->size) != 0))
        s = s->next;
    return s;
}

/* The program of the trace, with inputs instead of hidden inputs. */
static core_status take_program(core__trace *trace, uint32_t codegen,
                                core_program **out_program)
{
    core_program *program = trace->program;

    CORE_TRY(core__trace_hidden_to_inputs(trace));
    for (uint32_t i = 0; i < program->nwrites; i++)
        program->writes[i].hidden = false;
    core__program_forget_tensors(program);
    trace->program = NULL;
    core__program_finish(program);
    program->codegen = (uint8_t)codegen;
    *out_program = program;
    return core__program_simplify(program);
}

static core_status make_segment(core__trace *trace, const key *k,
                                uint32_t codegen, const char *by, segment **out)
{
    uint64_t recorded = trace->program->nnodes;
    segment *s = core__alloc(sizeof *s + k->size);
    core_status status;

    *out = NULL;
    if (!s)
        return core__error_memory(sizeof *s + k->size);
    *s = (segment){.hash = k->hash, .size = k->size, .recorded = recorded};
    atomic_init(&s->references, 1);
    memcpy(s->key, k->bytes, k->size);
    core__format(s->cut_by, sizeof s->cut_by, "%s", by);
    status = take_program(trace, codegen, &s->program);
    if (status != CORE_OK) {
        release(s);
        return status;
    }
    *out = s;
    return CORE_OK;
}

/* Adds a new segment, unless another thread has added an equal one, which is
 * returned then.  Takes over the reference. */
static segment *add(segment *s, const key *k)
{
    segment *other, *dropped = NULL;

    pthread_mutex_lock(&lock);
    other = find(k);
    if (!other) {
        if (counts.segments == SEGMENTS)
            dropped = take_oldest();
        s->next = table[k->hash % BUCKETS];
        table[k->hash % BUCKETS] = retain(s);
        counts.segments++;
        counts.compiled++;
        other = s;
        s = NULL;
    } else {
        retain(other);
        counts.found++;
    }
    other->used = counts.cuts;
    other->runs++;
    pthread_mutex_unlock(&lock);
    release(dropped);
    release(s);
    return other;
}

/* The segment of the trace, with a reference.  *out_again: it has been run
 * before. */
static core_status find_or_add(core__trace *trace, uint32_t codegen,
                               const char *by, segment **out, bool *out_again)
{
    key k = {.hash = 1};
    core_status status;
    segment *s;

    *out = NULL;
    make_key(&k, trace->program, codegen);
    if (k.status != CORE_OK) {
        core__free(k.bytes);
        return k.status;
    }
    pthread_mutex_lock(&lock);
    counts.operators += trace->program->nnodes;
    s = find(&k);
    if (s) {
        counts.found++;
        s->used = counts.cuts;
        s->runs++;
        retain(s);
    }
    pthread_mutex_unlock(&lock);
    *out_again = s != NULL;
    status = s ? CORE_OK : make_segment(trace, &k, codegen, by, &s);
    if (status == CORE_OK)
        *out = *out_again ? s : add(s, &k);
    core__free(k.bytes);
    return status;
}

/* --------------------------------------------------------------- running -- */

/* A run: the tensors that the segment reads, and what it makes. */
typedef struct run {
    core__trace *trace;
    core_tensor **inputs;            /* with references */
    core_tensor **outputs;           /* with references */
    core__traced_storage **storages; /* that get the memory of outputs */
    uint32_t ninputs, noutputs;
} run;

/* The storages that are in use are the outputs. */
static core_status describe_outputs(run *r)
{
    core__trace *trace = r->trace;

    for (uint32_t i = 0; i < trace->nstorages; i++) {
        core__traced_storage *traced = trace->storages[i];
        core__program_output *output;

        if (traced->kind != CORE__TRACED_RESULT || !traced->storage ||
            !traced->nviews)
            continue;
        CORE_TRY(core__trace_own_value(trace, traced));
        output = core__program_grow(&trace->program->outputs,
                                    &trace->program->noutputs, sizeof *output);
        if (!output)
            return core__error_memory(sizeof *output);
        output->kind = CORE__OUTPUT_VALUE;
        output->index = traced->views[0].value;
        output->type = traced->views[0].type;
        traced->index = CORE__NO_VALUE; /* an output has its value */
        r->storages[r->noutputs++] = traced;
    }
    return core__trace_add_writes(trace);
}

static core_status describe(run *r)
{
    const core_program *program = r->trace->program;
    size_t count = (size_t)r->trace->nstorages + 1;

    r->ninputs = program->nhidden;
    r->inputs = core__alloc_zero(3 * count * sizeof(void *));
    if (!r->inputs)
        return core__error_memory(3 * count * sizeof(void *));
    r->outputs = r->inputs + count;
    r->storages = (core__traced_storage **)(void *)(r->outputs + count);
    for (uint32_t i = 0; i < r->ninputs; i++) {
        r->inputs[i] = program->hidden[i].tensor;
        core__tensor_retain(r->inputs[i]);
    }
    return describe_outputs(r);
}

static bool has_work(const core_program *program)
{
    bool draws = false;

    for (uint32_t i = 0; i < program->nnodes && !draws; i++)
        draws = core__node_acts(&program->nodes[i]);
    return draws || program->noutputs || program->nwrites;
}

/* What is above the backends has happened when the operators were recorded, which
 * also counted the changes. */
static core_status run_program(run *r, core_program *program, bool prepared)
{
    core__thread *self = core__thread_self();
    uint32_t excluded = self->excluded;
    bool no_grad = self->no_grad, inference = self->inference;
    core_status status;

    self->excluded |= (uint32_t)(CORE__KEYS_FUNCTIONALITY & ~CORE__KEY_BACKEND);
    self->no_grad = true;
    self->inference = false;
    status = prepared
                 ? core__program_run_checked(program, r->inputs, r->outputs)
                 : core__program_run_operators(program, r->inputs, r->outputs);
    self->inference = inference;
    self->no_grad = no_grad;
    self->excluded = excluded;
    return status;
}

/* Gives the storages the memory of the outputs. */
static core_status give_memory(run *r)
{
    for (uint32_t i = 0; i < r->noutputs; i++) {
        core_tensor *output = r->outputs[i], *copy;
        core_status status;

        if (output->offset == 0 && atomic_load(&output->references) == 1 &&
            atomic_load(&output->storage->references) == 1)
            continue;
        CORE_TRY(core__tensor_new(output->device, output->dtype, output->ndim,
                                  output->sizes, output->strides, &copy));
        status = core_copy_(copy, output, false);
        core__tensor_release(output);
        r->outputs[i] = copy;
        CORE_TRY(status);
    }
    for (uint32_t i = 0; i < r->noutputs; i++) {
        core_storage *storage = core__traced_detach(r->storages[i]);

        if (storage)
            core__storage_take(storage, r->outputs[i]->storage);
    }
    return CORE_OK;
}

static void drop(run *r)
{
    for (uint32_t i = 0; i < r->ninputs && r->inputs; i++)
        core__tensor_release(r->inputs[i]);
    for (uint32_t i = 0; i < r->noutputs && r->inputs; i++)
        core__tensor_release(r->outputs[i]);
    core__free(r->inputs);
}

/* Under the lock. */
static void count_cut(const char *by, const char *reason)
{
    uint32_t i = 0;

    while (
        i < ncauses &&
        (strncmp(causes[i].by, by, sizeof causes[i].by - 1) != 0 ||
         strncmp(causes[i].reason, reason, sizeof causes[i].reason - 1) != 0))
        i++;
    if (i == CAUSES) {
        i = CAUSES - 1;
        core__format(causes[i].by, sizeof causes[i].by, "others");
        causes[i].reason[0] = '\0';
    } else if (i == ncauses) {
        ncauses++;
        core__format(causes[i].by, sizeof causes[i].by, "%s", by);
        core__format(causes[i].reason, sizeof causes[i].reason, "%s", reason);
    }
    causes[i].count++;
    counts.cuts++;
}

static core_status run_found(run *r, uint32_t codegen, const char *by)
{
    segment *s;
    bool again;
    core_status status;

    CORE_TRY(find_or_add(r->trace, codegen, by, &s, &again));
    status = run_program(r, s->program, again);
    if (status == CORE_OK)
        status = give_memory(r);
    else
        core__error_prefix("%s, which runs the lazy region", by);
    release(s);
    return status;
}

core_status core__segment_run(core__trace *trace, uint32_t codegen,
                              const char *by, const char *reason)
{
    run r = {.trace = trace};
    core_status status = describe(&r);

    if (status == CORE_OK && has_work(trace->program)) {
        pthread_mutex_lock(&lock);
        count_cut(by, reason);
        pthread_mutex_unlock(&lock);
        status = run_found(&r, codegen, by);
    }
    if (status != CORE_OK) {
        pthread_mutex_lock(&lock);
        counts.failed++;
        pthread_mutex_unlock(&lock);
    }
    drop(&r);
    return status;
}

/* ---------------------------------------------------------------- counts -- */

void core__segments_note_region(void)
{
    pthread_mutex_lock(&lock);
    counts.regions++;
    pthread_mutex_unlock(&lock);
}

void core__segments_note_call(void)
{
    pthread_mutex_lock(&lock);
    counts.called_operators++;
    pthread_mutex_unlock(&lock);
}

core_status core_lazy_get_counts(core_lazy_counts *out_counts)
{
    core_lazy_counts now;
    uint32_t size;

    CORE__NOT_NULL(out_counts);
    CORE__CHECK_STRUCT_SIZE(out_counts, core_lazy_counts);
    pthread_mutex_lock(&lock);
    now = counts;
    pthread_mutex_unlock(&lock);
    size = out_counts->struct_size < sizeof now ? out_counts->struct_size
                                                : sizeof now;
    now.struct_size = size;
    memcpy(out_counts, &now, size);
    return CORE_OK;
}

/* --------------------------------------------------------------- explain -- */

/* What explain tells, as of one moment. */
typedef struct snapshot {
    core_lazy_counts counts;
    cut_cause causes[CAUSES];
    uint32_t ncauses, nsegments;
    segment *segments[SEGMENTS]; /* with references */
    uint64_t runs[SEGMENTS];
} snapshot;

static void take_snapshot(snapshot *s)
{
    pthread_mutex_lock(&lock);
    s->counts = counts;
    memcpy(s->causes, causes, sizeof causes);
    s->ncauses = ncauses;
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (segment *at = table[i]; at; at = at->next) {
            s->runs[s->nsegments] = at->runs;
            s->segments[s->nsegments++] = retain(at);
        }
    pthread_mutex_unlock(&lock);
}

static void write_counts(const core_lazy_counts *from, core__json *json)
{
    core__json_object(json, "counts");
    core__json_unsigned(json, "regions", from->regions);
    core__json_unsigned(json, "cuts", from->cuts);
    core__json_unsigned(json, "operators", from->operators);
    core__json_unsigned(json, "called_operators", from->called_operators);
    core__json_unsigned(json, "compiled", from->compiled);
    core__json_unsigned(json, "found", from->found);
    core__json_unsigned(json, "failed", from->failed);
    core__json_unsigned(json, "segments", from->segments);
    core__json_unsigned(json, "dropped", from->dropped);
    core__json_end(json);
}

static void write_all(const snapshot *s, core__json *json)
{
    core__json_object(json, NULL);
    write_counts(&s->counts, json);
    core__json_array(json, "cuts");
    for (uint32_t i = 0; i < s->ncauses; i++) {
        core__json_object(json, NULL);
        core__json_text(json, "by", s->causes[i].by);
        core__json_text(json, "reason", s->causes[i].reason);
        core__json_unsigned(json, "count", s->causes[i].count);
        core__json_end(json);
    }
    core__json_end(json);
    core__json_array(json, "segments");
    for (uint32_t i = 0; i < s->nsegments; i++) {
        core__json_object(json, NULL);
        core__json_text(json, "cut_by", s->segments[i]->cut_by);
        core__json_unsigned(json, "recorded_operators",
                            s->segments[i]->recorded);
        core__json_unsigned(json, "runs", s->runs[i]);
        core__program_explain(s->segments[i]->program, json);
        core__json_end(json);
    }
    core__json_end(json);
    core__json_end(json);
}

core_status core_lazy_explain(char **out_json)
{
    core__growing_text to = {0};
    core_status status = CORE_OK;
    core__json json;
    snapshot *s;

    CORE__NOT_NULL(out_json);
    *out_json = NULL;
    s = core__alloc_zero(sizeof *s);
    if (!s)
        return core__error_memory(sizeof *s);
    take_snapshot(s);
    core__json_begin(&json, core__growing_text_append, &to);
    write_all(s, &json);
    if (!core__json_finish(&json))
        status = core__error_memory(to.capacity);
    for (uint32_t i = 0; i < s->nsegments; i++)
        release(s->segments[i]);
    core__free(s);
    if (status == CORE_OK)
        *out_json = to.data;
    else
        core__free(to.data);
    return status;
}
