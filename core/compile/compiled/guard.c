/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Guard records. */

#include "compile/compiled/compiled.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/device.h"
#include "dispatch/preferred_layout.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <string.h>

/* A record: a guard_thread; per input a guard_input, its sizes and its strides;
 * the key. */
typedef struct guard_thread {
    core_device *device; /* the current one */
    uint8_t autocast[16];
    uint32_t ninputs, noutputs;
    uint32_t call_flags;
    uint32_t included, excluded; /* keys */
    uint8_t no_grad, inference, device_layout, reserved;
} guard_thread;

enum {
    FACT_LEAF = 1u << 0,
    FACT_GRAD = 1u << 1,    /* has a gradient */
    FACT_ALIGNED = 1u << 2, /* to ALIGNMENT bytes */
    FACT_HOOKS = 1u << 3,   /* a backward in the function calls hooks */
    ALIGNMENT = 16
};

typedef struct guard_input {
    core_device *device;
    uint64_t keys;
    int64_t place;   /* bytes from the first element of input `shares` */
    uint32_t shares; /* the first input on the same storage */
    uint32_t same;   /* the first input that is the same tensor */
    union {
        struct {
            uint8_t ndim, dtype;
        };
        uint16_t kind;
    };
    uint16_t flags;
    uint32_t facts;
} guard_input;

_Static_assert(
    sizeof(guard_thread) == 48 && sizeof(guard_input) == 40,
    "guard records are compared by memcmp, so nothing may be padded");

static const uint64_t compared_keys =
    CORE__KEYS_SLOTS | CORE__KEYS_REQUIRES_GRAD | CORE__KEYS_TENSOR;
/* Of tensors that stand for others. */
static const uint64_t refused_keys =
    CORE__KEYS_FUNCTIONALITY & ~CORE__KEYS_TENSOR;
/* Layers that only observe make no difference. */
static const uint32_t compared_layers =
    (uint32_t) ~(CORE__KEY_TRACE | CORE__KEY_PROFILER | CORE__KEYS_MODE);
static const uint16_t compared_flags =
    CORE__TENSOR_INFERENCE | CORE__TENSOR_NUMBER | CORE__TENSOR_READ_ONLY;

/* ------------------------------------------------------------ refusals -- */

const char *core__guard_refuses_thread(const core__thread *self)
{
    if (core__unlikely(self->modes[0] || self->modes[1]))
        return "a mode is active, which sees the calls of the function";
    if (core__unlikely(self->saved_hooks != NULL))
        return "hooks for saved tensors are active";
    return core__unlikely(self->anomaly) ? "anomaly mode is on" : NULL;
}

const char *core__guard_refuses_inputs(core_tensor *const *inputs,
                                       size_t ninputs, uint32_t *out_input)
{
    for (uint32_t i = 0; i < ninputs; i++) {
        const core_tensor *input = inputs[i];

        *out_input = i;
        if (!input->storage)
            return "an input is on \"meta\"";
        if (input->keys & refused_keys)
            return "an input stands for something else in a transformation";
        if (core__view_is_stale(input))
            return "an input is a view whose base was changed in place";
    }
    *out_input = UINT32_MAX;
    return NULL;
}

/* ------------------------------------------------------------- records -- */

static inline uint32_t facts_of(const core_tensor *input, uint32_t size)
{
    const core__autograd_meta *autograd = input->autograd;
    const core_memory *memory = &input->storage->memory;
    uint64_t address = (uintptr_t)memory->handle + memory->offset +
                       (uint64_t)input->offset * size;
    uint32_t facts = FACT_LEAF;

    if (autograd)
        facts = (autograd->grad_fn ? 0 : FACT_LEAF) |
                (autograd->grad ? FACT_GRAD : 0) |
                (core__has_hooks(input) ? FACT_HOOKS : 0);
    if ((address & (ALIGNMENT - 1)) == 0)
        facts |= FACT_ALIGNED;
    return facts;
}

/* Inputs by storage and by address, for many inputs. */
typedef struct seen_inputs {
    uint32_t *slots; /* input + 1; 0: free */
    size_t mask;
} seen_inputs;

enum { FEW_INPUTS = 16 };

static size_t hash(const void *pointer)
{
    return (size_t)(((uintptr_t)pointer >> 4) * UINT64_C(0x9e3779b97f4a7c15) >>
                    20);
}

/* The first input on the storage, which is i if there was none before. */
static uint32_t first_on_storage(const seen_inputs *seen,
                                 core_tensor *const *inputs, uint32_t i)
{
    const core_storage *storage = inputs[i]->storage;
    size_t at = hash(storage);

    if (!seen->slots) {
        for (uint32_t k = 0; k < i; k++)
            if (inputs[k]->storage == storage)
                return k;
        return i;
    }
    for (;; at++) {
        uint32_t *slot = &seen->slots[at & seen->mask];

        if (*slot && inputs[*slot - 1]->storage != storage)
            continue;
        if (!*slot)
            *slot = i + 1;
        return *slot - 1;
    }
}

static uint32_t first_same(core_tensor *const *inputs, uint32_t from,
                           uint32_t i)
{
    while (from < i && inputs[from] != inputs[i])
        from++;
    return from;
}

static inline unsigned char *put_input(const seen_inputs *seen,
                                       core_tensor *const *inputs, uint32_t i,
                                       unsigned char *to)
{
    const core_tensor *input = inputs[i];
    uint32_t size = core__dtype_size(input->dtype);
    uint32_t ndims = 2u * input->ndim;
    int64_t *dims = (int64_t *)(void *)(to + sizeof(guard_input));
    guard_input record = {
        .device = input->device,
        .keys = input->keys & compared_keys,
        .shares = first_on_storage(seen, inputs, i),
        .same = i,
        .kind = input->kind,
        .flags = input->flags & compared_flags,
        .facts = facts_of(input, size),
    };

    if (record.shares != i) {
        const core_tensor *first = inputs[record.shares];

        record.place = input->offset * size -
                       first->offset * core__dtype_size(first->dtype);
        record.same = first_same(inputs, record.shares, i);
    }
    memcpy(to, &record, sizeof record);
    /* A few numbers: a loop costs less than a call. */
    for (uint32_t k = 0; k < ndims; k++)
        dims[k] = input->sizes[k];
    return to + sizeof record + ndims * sizeof *dims;
}

/* NULL if there is none: then nothing can depend on it. */
static core_device *current_device(const core__thread *self)
{
    core_device *device = core__device_current_known(self);
    core__error_record saved;

    if (core__likely(device != NULL))
        return device;
    core__error_save(&saved);
    if (core__device_current(&device) != CORE_OK)
        device = NULL;
    core__error_restore(&saved);
    return device;
}

static guard_thread thread_record(size_t ninputs, size_t noutputs)
{
    const core__thread *self = core__thread_self();
    guard_thread record = {
        .device = current_device(self),
        .ninputs = (uint32_t)ninputs,
        .noutputs = (uint32_t)noutputs,
        .call_flags = self->call_flags,
        .included = self->included & compared_layers,
        .excluded = self->excluded & compared_layers,
        .no_grad = self->no_grad,
        .inference = self->inference,
        .device_layout = core__layout_is_by_device(),
    };

    memcpy(record.autocast, self->autocast, sizeof record.autocast);
    return record;
}

core_status core__guard_make(core__guard *guard, core_tensor *const *inputs,
                             size_t ninputs, size_t noutputs, const void *key,
                             size_t key_size)
{
    guard_thread record = thread_record(ninputs, noutputs);
    seen_inputs seen = {NULL, 0};
    unsigned char *to;

    guard->bytes = guard->local;
    guard->size = sizeof record + ninputs * sizeof(guard_input) + key_size;
    for (size_t i = 0; i < ninputs; i++)
        guard->size += 2 * (size_t)inputs[i]->ndim * sizeof(int64_t);
    if (guard->size > sizeof guard->local) {
        guard->bytes = core__alloc(guard->size);
        if (!guard->bytes)
            return core__error_memory(guard->size);
    }
    if (ninputs > FEW_INPUTS) {
        for (seen.mask = 1; seen.mask < 2 * ninputs; seen.mask *= 2)
            ;
        seen.slots = core__alloc_zero(seen.mask * sizeof *seen.slots);
        if (!seen.slots) {
            core__guard_free(guard);
            return core__error_memory(seen.mask * sizeof *seen.slots);
        }
        seen.mask--;
    }
    memcpy(guard->bytes, &record, sizeof record);
    to = guard->bytes + sizeof record;
    for (uint32_t i = 0; i < ninputs; i++)
        to = put_input(&seen, inputs, i, to);
    if (key_size)
        memcpy(to, key, key_size);
    core__free(seen.slots);
    return CORE_OK;
}

/* ------------------------------------------------------------ comparing -- */

/* Compares with a record without making one: a call of a small function would
 * spend most of its time on that.  A record is of a call that the guards did not
 * refuse, so neither is one with an equal record. */

/* Before anything of its storage is read, which it may not have: "meta". */
static inline bool kind_holds(const guard_input *record,
                              const core_tensor *input)
{
    uint64_t differs =
        ((input->keys & (compared_keys | refused_keys)) ^ record->keys) |
        ((uintptr_t)input->device ^ (uintptr_t)record->device) |
        (uint64_t)(input->kind ^ record->kind) |
        (uint64_t)((input->flags & compared_flags) ^ record->flags);

    return differs == 0 && input->storage;
}

/* Two at a time: there are as many sizes as strides. */
static inline bool dims_hold(const guard_input *record,
                             const core_tensor *input)
{
    const int64_t *dims = (const int64_t *)(const void *)(record + 1);
    const int64_t *end = dims + 2 * (size_t)record->ndim;
    const int64_t *now = input->sizes;
    int64_t differs = 0;

    for (; dims != end; dims += 2, now += 2)
        differs |= (dims[0] ^ now[0]) | (dims[1] ^ now[1]);
    return differs == 0;
}

/* True if no input before has its storage.  *seen has a bit for each of those:
 * where it is not set, nothing must be compared. */
static inline bool is_first_on_storage(core_tensor *const *inputs, uint32_t i,
                                       uint64_t *seen)
{
    const core_storage *storage = inputs[i]->storage;
    uint64_t bit = UINT64_C(1) << (hash(storage) & 63);
    bool may_share = *seen & bit;

    *seen |= bit;
    for (uint32_t k = 0; may_share && k < i; k++)
        if (inputs[k]->storage == storage)
            return false;
    return true;
}

static inline bool place_holds(const guard_input *record,
                               core_tensor *const *inputs, uint32_t i,
                               uint64_t *seen)
{
    const core_tensor *input = inputs[i], *first = inputs[record->shares];

    if (core__likely(record->shares == i))
        return is_first_on_storage(inputs, i, seen);
    return first->storage == input->storage &&
           record->place ==
               input->offset * core__dtype_size(input->dtype) -
                   first->offset * core__dtype_size(first->dtype) &&
           record->same == first_same(inputs, record->shares, i);
}

static inline bool input_holds(const guard_input *record,
                               core_tensor *const *inputs, uint32_t i,
                               uint64_t *seen)
{
    const core_tensor *input = inputs[i];

    return kind_holds(record, input) && dims_hold(record, input) &&
           facts_of(input, core__dtype_size(input->dtype)) == record->facts &&
           place_holds(record, inputs, i, seen) &&
           !(core__unlikely(input->base != NULL) && core__view_is_stale(input));
}

bool core__guard_holds(const unsigned char *bytes, size_t size,
                       core_tensor *const *inputs, size_t ninputs,
                       size_t noutputs, const void *key, size_t key_size)
{
    guard_thread record = thread_record(ninputs, noutputs);
    const unsigned char *at = bytes + sizeof record;
    uint64_t seen = 0;

    if (ninputs > FEW_INPUTS || memcmp(bytes, &record, sizeof record) != 0)
        return false;
    for (uint32_t i = 0; i < ninputs; i++) {
        const guard_input *input = (const guard_input *)(const void *)at;

        if (!input_holds(input, inputs, i, &seen))
            return false;
        at += sizeof *input + 2 * input->ndim * sizeof(int64_t);
    }
    return size - (size_t)(at - bytes) == key_size &&
           (key_size == 0 || memcmp(at, key, key_size) == 0);
}

void core__guard_free(core__guard *guard)
{
    if (guard->bytes != guard->local)
        core__free(guard->bytes);
    guard->bytes = guard->local;
}

/* ---------------------------------------------------------- describing -- */

/* Reads a record in order. */
typedef struct reader {
    const unsigned char *at;
    guard_thread thread;
    guard_input input;
    const int64_t *dims;
} reader;

static reader read_begin(const unsigned char *bytes)
{
    reader r = {.at = bytes};

    memcpy(&r.thread, bytes, sizeof r.thread);
    r.at += sizeof r.thread;
    return r;
}

static void read_input(reader *r)
{
    memcpy(&r->input, r->at, sizeof r->input);
    r->dims = (const int64_t *)(const void *)(r->at + sizeof r->input);
    r->at += sizeof r->input + 2 * r->input.ndim * sizeof *r->dims;
}

/* True if no size is 0 or 1 in one of them alone. */
static bool sizes_may_join(const int64_t *a, const int64_t *b, uint32_t ndim)
{
    for (uint32_t i = 0; i < ndim; i++)
        if (a[i] != b[i] && (a[i] < 2 || b[i] < 2))
            return false;
    return true;
}

bool core__guard_same_but_sizes(const unsigned char *a, size_t a_size,
                                const unsigned char *b, size_t b_size)
{
    reader x = read_begin(a), y = read_begin(b);

    if (a_size != b_size || memcmp(&x.thread, &y.thread, sizeof x.thread) != 0)
        return false;
    for (uint32_t i = 0; i < x.thread.ninputs; i++) {
        read_input(&x);
        read_input(&y);
        if (memcmp(&x.input, &y.input, sizeof x.input) != 0 ||
            !sizes_may_join(x.dims, y.dims, x.input.ndim))
            return false;
    }
    return x.at - a == y.at - b &&
           memcmp(x.at, y.at, a_size - (size_t)(x.at - a)) == 0;
}

static void write_dims(core__json *json, const char *name, const int64_t *dims,
                       uint32_t ndim)
{
    json->flat = true;
    core__json_array(json, name);
    for (uint32_t i = 0; i < ndim; i++)
        core__json_integer(json, NULL, dims[i]);
    core__json_end(json);
}

static void write_input(const reader *r, uint32_t i, core__json *json)
{
    const guard_input *input = &r->input;

    core__json_object(json, NULL);
    core__json_text(json, "dtype", core__dtype_name(input->dtype));
    core__json_text(json, "device", input->device->name);
    write_dims(json, "sizes", r->dims, input->ndim);
    write_dims(json, "strides", r->dims + input->ndim, input->ndim);
    core__json_boolean(json, "requires_grad",
                       input->keys & CORE__KEYS_REQUIRES_GRAD);
    core__json_boolean(json, "aligned", input->facts & FACT_ALIGNED);
    if (input->shares != i) {
        core__json_unsigned(json, "shares_memory_with", input->shares);
        core__json_integer(json, "bytes_from_it", input->place);
    }
    core__json_end(json);
}

void core__guard_write(const unsigned char *bytes, core__json *json)
{
    reader r = read_begin(bytes);
    bool autocast = false;

    for (size_t i = 0; i < sizeof r.thread.autocast; i++)
        autocast = autocast || r.thread.autocast[i];
    core__json_boolean(json, "grad_mode", !r.thread.no_grad);
    core__json_boolean(json, "inference_mode", r.thread.inference);
    core__json_boolean(json, "autocast", autocast);
    core__json_array(json, "inputs");
    for (uint32_t i = 0; i < r.thread.ninputs; i++) {
        read_input(&r);
        write_input(&r, i, json);
    }
    core__json_end(json);
}

static const char *thread_difference(const guard_thread *a,
                                     const guard_thread *b)
{
    if (a->ninputs != b->ninputs || a->noutputs != b->noutputs)
        return "the number of inputs or outputs";
    if (a->inference != b->inference)
        return "inference mode";
    if (a->no_grad != b->no_grad)
        return "grad mode";
    if (memcmp(a->autocast, b->autocast, sizeof a->autocast) != 0)
        return "autocast";
    if (a->call_flags != b->call_flags)
        return "determinism or TF32";
    if (a->device != b->device)
        return "the current device";
    if (a->device_layout != b->device_layout)
        return "LIBCORE_LAYOUT";
    return a->included != b->included || a->excluded != b->excluded
               ? "the layers of the dispatcher in which it is called"
               : NULL;
}

static const char *input_difference(const reader *a, const reader *b)
{
    const guard_input *x = &a->input, *y = &b->input;
    size_t size = x->ndim * sizeof *a->dims;

    if (x->dtype != y->dtype)
        return "the dtype";
    if (x->device != y->device)
        return "the device";
    if (x->ndim != y->ndim || (size && memcmp(a->dims, b->dims, size) != 0))
        return "the sizes";
    if (size && memcmp(a->dims + x->ndim, b->dims + y->ndim, size) != 0)
        return "the strides";
    if (x->keys != y->keys)
        return (x->keys ^ y->keys) & CORE__KEYS_REQUIRES_GRAD
                   ? "requires_grad"
                   : "inference tensor or not";
    if (x->shares != y->shares || x->same != y->same || x->place != y->place)
        return "the memory shared with other inputs";
    if ((x->facts ^ y->facts) & FACT_ALIGNED)
        return "the alignment";
    if ((x->facts ^ y->facts) & FACT_HOOKS)
        return "whether it has hooks";
    if ((x->facts ^ y->facts) & FACT_GRAD)
        return "whether it has a gradient";
    if (x->facts != y->facts)
        return "leaf or not";
    return x->flags != y->flags ? "the kind of memory" : NULL;
}

void core__guard_difference(const unsigned char *before, size_t before_size,
                            const unsigned char *after, size_t after_size,
                            char *text, size_t size)
{
    reader a = read_begin(before), b = read_begin(after);
    const char *what = thread_difference(&a.thread, &b.thread);

    if (what) {
        core__format(text, size, "%s changed", what);
        return;
    }
    for (uint32_t i = 0; i < a.thread.ninputs; i++) {
        read_input(&a);
        read_input(&b);
        what = input_difference(&a, &b);
        if (what) {
            core__format(text, size, "input %u: %s changed", i, what);
            return;
        }
    }
    core__format(text, size,
                 before_size == after_size &&
                         memcmp(before, after, after_size) == 0
                     ? "a hidden input changed"
                     : "the key changed");
}
