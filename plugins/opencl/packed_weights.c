/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "packed_weights.h"

enum {
    SMALLEST = 1024, /* elements of a matrix that is kept */
    SEEN = 1024,     /* matrices that are remembered */
    LONG_AGO = 4096  /* products since a packed matrix was used */
};

/* Of all packed matrices of a device [256 MiB]. */
static const uint64_t default_limit = UINT64_C(256) << 20;

/* Equal keys: the same content, read in the same way. */
typedef struct key {
    uint64_t storage, version, stream;
    core_memory memory;
    int64_t inner, columns, row, column;
    uint64_t dtype;
} key;

typedef struct entry {
    struct entry *next;
    key key;
    cl_mem packed;
    uint64_t bytes;
    uint64_t used; /* the number of the last product */
} entry;

struct opencl_packed_weights {
    pthread_mutex_t lock;
    entry *entries;
    uint64_t bytes, limit;
    uint64_t products;
    uint64_t seen[SEEN]; /* hashes of keys */
};

static core_status limit_of(uint64_t *out_limit)
{
    core_string set =
        opencl_host->setting(core_sdk_string("LIBCORE_OPENCL_PACKED"));

    *out_limit = default_limit;
    if (set.data == NULL || set.size == 0)
        return CORE_OK;
    *out_limit = 0;
    for (uint64_t i = 0; i < set.size; i++) {
        if (set.data[i] < '0' || set.data[i] > '9' || i > 15)
            return opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                                 "LIBCORE_OPENCL_PACKED is \"%.*s\"; it must "
                                 "be a number of bytes, or 0",
                                 (int)set.size, set.data);
        *out_limit = *out_limit * 10 + (uint64_t)(set.data[i] - '0');
    }
    return CORE_OK;
}

core_status opencl_packed_weights_open(opencl_device *device)
{
    opencl_packed_weights *weights;
    uint64_t limit;
    core_status status = limit_of(&limit);

    if (status != CORE_OK || limit == 0 || !device->wide_vectors)
        return status;
    weights = calloc(1, sizeof *weights);
    if (weights == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for packed weights");
    weights->limit = limit;
    pthread_mutex_init(&weights->lock, NULL);
    device->packed = weights;
    return CORE_OK;
}

/* Releases the entry that *at points to. */
static void drop(opencl_device *device, entry **at)
{
    entry *e = *at;

    *at = e->next;
    device->packed->bytes -= e->bytes;
    atomic_fetch_sub(&device->allocated, e->bytes);
    /* Kernels that use it keep it until they are done. */
    cl.ReleaseMemObject(e->packed);
    free(e);
}

/* Releases entries; of: NULL for any buffer; stream: 0 for any stream. */
static void drop_matching(opencl_device *device, cl_mem of, uint64_t stream)
{
    opencl_packed_weights *weights = device->packed;
    entry **at;

    if (weights == NULL)
        return;
    pthread_mutex_lock(&weights->lock);
    for (at = &weights->entries; *at != NULL;)
        if ((of == NULL || (*at)->key.memory.handle == of) &&
            (stream == 0 || (*at)->key.stream == stream))
            drop(device, at);
        else
            at = &(*at)->next;
    pthread_mutex_unlock(&weights->lock);
}

void opencl_packed_weights_drop(opencl_device *device, cl_mem of)
{
    drop_matching(device, of, 0);
}

void opencl_packed_weights_drop_stream(opencl_device *device, uint64_t number)
{
    drop_matching(device, NULL, number);
}

void opencl_packed_weights_close(opencl_device *device)
{
    if (device->packed == NULL)
        return;
    opencl_packed_weights_drop(device, NULL);
    pthread_mutex_destroy(&device->packed->lock);
    free(device->packed);
    device->packed = NULL;
}

static bool key_of(core_call *call, const opencl_product *p, key *to)
{
    core_view_content content = {.struct_size = sizeof content};
    const opencl_stream *stream = call->stream;

    if (opencl_host->call_view_content(call, p->weight, &content) != CORE_OK)
        return false;
    *to = (key){.storage = content.storage,
                .version = content.version,
                .stream = stream->number,
                .memory = p->b.memory,
                .inner = p->inner,
                .columns = p->columns,
                .row = p->b.row,
                .column = p->b.column,
                .dtype = p->dtype};
    return true;
}

/* Returns whether the key was seen before.  A key with the same slot, seen
 * since, makes it forget this one. */
static bool was_seen(opencl_packed_weights *weights, const key *of)
{
    const unsigned char *bytes = (const unsigned char *)of;
    uint64_t hash = UINT64_C(0xcbf29ce484222325), *slot;

    for (size_t i = 0; i < sizeof *of; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    slot = &weights->seen[(hash >> 32) % SEEN];
    if (*slot == hash)
        return true;
    *slot = hash;
    return false;
}

/* Returns the entry of a key, or NULL.  Releases outdated entries. */
static entry *find(opencl_device *device, const key *of)
{
    entry **at = &device->packed->entries, *found = NULL;

    while (*at != NULL) {
        const key *k = &(*at)->key;
        bool same_place = k->memory.handle == of->memory.handle &&
                          k->memory.offset == of->memory.offset;

        if (memcmp(k, of, sizeof *k) == 0)
            found = *at;
        if ((k->storage == of->storage && k->version != of->version) ||
            (k->storage != of->storage && same_place)) {
            drop(device, at);
            continue;
        }
        at = &(*at)->next;
    }
    return found;
}

/* Recently used matrices are not evicted: if more weights than fit are in use,
 * each would be evicted before its next product. */
static bool make_room(opencl_device *device, uint64_t bytes)
{
    opencl_packed_weights *weights = device->packed;
    entry **at = &weights->entries;

    while (weights->bytes + bytes > weights->limit && *at != NULL)
        if (weights->products - (*at)->used > LONG_AGO)
            drop(device, at);
        else
            at = &(*at)->next;
    return weights->bytes + bytes <= weights->limit &&
           (device->total == 0 ||
            atomic_load(&device->allocated) + bytes <= device->total);
}

/* Packs a matrix and keeps it.  *out_entry is NULL, without an error, if the
 * limit is reached or memory has run out. */
static core_status add(core_call *call, const opencl_product *p, const key *of,
                       entry **out_entry)
{
    opencl_device *device = call->device;
    uint64_t bytes = opencl_packed_bytes(p);
    core_memory to = {NULL, 0};
    entry *e;
    cl_int code;
    core_status status;

    *out_entry = NULL;
    if (!make_room(device, bytes))
        return CORE_OK;
    e = calloc(1, sizeof *e);
    if (e == NULL)
        return CORE_OK;
    e->packed =
        cl.CreateBuffer(device->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (code != CL_SUCCESS) {
        free(e);
        return CORE_OK;
    }
    to.handle = e->packed;
    status = opencl_pack(call, p, to);
    if (status != CORE_OK) {
        cl.ReleaseMemObject(e->packed);
        free(e);
        return status;
    }
    e->key = *of;
    e->bytes = bytes;
    e->next = device->packed->entries;
    device->packed->entries = e;
    device->packed->bytes += bytes;
    atomic_fetch_add(&device->allocated, bytes);
    *out_entry = e;
    return CORE_OK;
}

core_status opencl_packed_weight(core_call *call, const opencl_product *p,
                                 cl_mem *out_packed)
{
    opencl_device *device = call->device;
    opencl_packed_weights *weights = device->packed;
    core_status status = CORE_OK;
    entry *e;
    key k;

    *out_packed = NULL;
    /* Hosts before 0.6 do not report changes.  A graph may run after the
     * operand has changed. */
    if (weights == NULL || p->weight == NULL || opencl_host->abi_minor < 6 ||
        p->inner * p->columns < SMALLEST ||
        (call->flags & CORE_CALL_CAPTURING) != 0 || !key_of(call, p, &k))
        return CORE_OK;
    pthread_mutex_lock(&weights->lock);
    weights->products++;
    e = find(device, &k);
    if (e == NULL && was_seen(weights, &k))
        status = add(call, p, &k, &e);
    if (e != NULL) {
        e->used = weights->products;
        cl.RetainMemObject(e->packed);
        *out_packed = e->packed;
    }
    pthread_mutex_unlock(&weights->lock);
    return status;
}
