/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collectives.c: the collectives, and the table of the engine. */

#include <gpu/host/collectives.h>

#define calls (gpu_this_vendor.driver)
#define ccl gpu_ccl_calls

/* -------------------------------------------------------------- numbers -- */

static int type_of(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
        return GPU_CCL_FLOAT64;
    case CORE_F32:
        return GPU_CCL_FLOAT32;
    case CORE_F16:
        return GPU_CCL_FLOAT16;
    case CORE_BF16:
        return GPU_CCL_BFLOAT16;
    case CORE_I64:
        return GPU_CCL_INT64;
    case CORE_I32:
        return GPU_CCL_INT32;
    case CORE_I8:
        return GPU_CCL_INT8;
    default:
        return GPU_CCL_UINT8;
    }
}

static int operation(uint32_t reduction)
{
    return reduction == CORE_REDUCE_PROD  ? GPU_CCL_PROD
           : reduction == CORE_REDUCE_MIN ? GPU_CCL_MIN
           : reduction == CORE_REDUCE_MAX ? GPU_CCL_MAX
           : reduction == CORE_REDUCE_AVG ? GPU_CCL_AVG
                                          : GPU_CCL_SUM;
}

/* ---------------------------------------------------------- their start -- */

static bool is_error(int code)
{
    return code != GPU_CCL_SUCCESS && code != GPU_CCL_IN_PROGRESS;
}

/* Messages to and from rank r, in a group. */
static int swap(gpu_comm *comm, uint32_t r, const char *from, uint64_t sent,
                char *to, uint64_t received)
{
    int code = GPU_CCL_SUCCESS;

    if (sent > 0)
        code = ccl.send(from, sent, GPU_CCL_UINT8, (int)r, comm->handle,
                        comm->stream);
    if (!is_error(code) && received > 0)
        code = ccl.recv(to, received, GPU_CCL_UINT8, (int)r, comm->handle,
                        comm->stream);
    return code;
}

/* Every rank sends to every rank. */
static int all_to_all(gpu_comm *comm, const core_collective *call)
{
    bool counts = call->kind == CORE_COLLECTIVE_ALL_TO_ALL_COUNTS;
    uint64_t item = core_sdk_itemsize(call->dtype);
    const char *from = call->input;
    char *to = call->output;
    int code = ccl.group_start(), ended;

    if (is_error(code))
        return code;
    for (uint32_t r = 0; r < comm->size && !is_error(code); r++) {
        uint64_t sent = item * (counts ? call->input_counts[r] : call->count);
        uint64_t received =
            item * (counts ? call->output_counts[r] : call->count);

        code = swap(comm, r, from, sent, to, received);
        from += sent;
        to += received;
    }
    ended = ccl.group_end();
    return is_error(code) ? code : ended;
}

static int move(gpu_comm *comm, const core_collective *call)
{
    size_t bytes = call->count * core_sdk_itemsize(call->dtype);
    const void *input = call->input;
    int peer = (int)call->peer;

    switch (call->kind) {
    case CORE_COLLECTIVE_BROADCAST:
        return ccl.broadcast(input != NULL ? input : call->output, call->output,
                             bytes, GPU_CCL_UINT8, peer, comm->handle,
                             comm->stream);
    case CORE_COLLECTIVE_ALL_GATHER:
        return ccl.all_gather(input, call->output, bytes, GPU_CCL_UINT8,
                              comm->handle, comm->stream);
    case CORE_COLLECTIVE_SEND:
        return ccl.send(input, bytes, GPU_CCL_UINT8, peer, comm->handle,
                        comm->stream);
    case CORE_COLLECTIVE_RECV:
        return ccl.recv(call->output, bytes, GPU_CCL_UINT8, peer, comm->handle,
                        comm->stream);
    default:
        return all_to_all(comm, call);
    }
}

static int reduce(gpu_comm *comm, const core_collective *call)
{
    int type = type_of(call->dtype), op = operation(call->reduction);

    switch (call->kind) {
    case CORE_COLLECTIVE_ALL_REDUCE:
        return ccl.all_reduce(call->input, call->output, call->count, type, op,
                              comm->handle, comm->stream);
    case CORE_COLLECTIVE_REDUCE_SCATTER:
        return ccl.reduce_scatter(call->input, call->output, call->count, type,
                                  op, comm->handle, comm->stream);
    case CORE_COLLECTIVE_REDUCE:
        return ccl.reduce(call->input, call->output, call->count, type, op,
                          (int)call->peer, comm->handle, comm->stream);
    default: /* a barrier */
        return ccl.all_reduce(comm->staged, comm->staged, 1, GPU_CCL_UINT8,
                              GPU_CCL_MAX, comm->handle, comm->stream);
    }
}

static const struct {
    const char *function;
    int (*start)(gpu_comm *comm, const core_collective *call);
} kinds[] = {
    [CORE_COLLECTIVE_ALL_REDUCE] = {"ncclAllReduce", reduce},
    [CORE_COLLECTIVE_BROADCAST] = {"ncclBroadcast", move},
    [CORE_COLLECTIVE_ALL_GATHER] = {"ncclAllGather", move},
    [CORE_COLLECTIVE_REDUCE_SCATTER] = {"ncclReduceScatter", reduce},
    [CORE_COLLECTIVE_ALL_TO_ALL] = {"ncclGroupEnd", move},
    [CORE_COLLECTIVE_SEND] = {"ncclSend", move},
    [CORE_COLLECTIVE_RECV] = {"ncclRecv", move},
    [CORE_COLLECTIVE_BARRIER] = {"ncclAllReduce", reduce},
    [CORE_COLLECTIVE_REDUCE] = {"ncclReduce", reduce},
    [CORE_COLLECTIVE_ALL_TO_ALL_COUNTS] = {"ncclGroupEnd", move},
};

static core_status check_kind(const core_collective *call)
{
    uint32_t kind = call->kind;

    if (kind < sizeof kinds / sizeof *kinds && kinds[kind].start != NULL)
        return CORE_OK;
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "collective kind %u is not supported", kind);
}

static core_status start(gpu_comm *comm, const core_collective *call,
                         int64_t deadline)
{
    core_status status = check_kind(call);

    if (status != CORE_OK)
        return status;
    return gpu_comm_settle(comm, kinds[call->kind].start(comm, call),
                           kinds[call->kind].function, deadline);
}

/* The library starts those of a group at once, when it ends; an all-to-all has a
 * group in it. */
static core_status start_group(gpu_comm *comm, const core_collective *group,
                               uint32_t count, int64_t deadline)
{
    const char *function = "ncclGroupStart";
    core_status status = CORE_OK;
    int code, ended;

    for (uint32_t i = 0; i < count && status == CORE_OK; i++)
        status = check_kind(&group[i]);
    if (status != CORE_OK)
        return status;
    code = ccl.group_start();
    if (is_error(code))
        return gpu_comm_settle(comm, code, function, deadline);
    for (uint32_t i = 0; i < count && !is_error(code); i++) {
        function = kinds[group[i].kind].function;
        code = kinds[group[i].kind].start(comm, &group[i]);
    }
    ended = ccl.group_end();
    return is_error(code)
               ? gpu_comm_settle(comm, code, function, deadline)
               : gpu_comm_settle(comm, ended, "ncclGroupEnd", deadline);
}

/* ------------------------------------------------------------- execution -- */

/* The sizes of input and output, in parts. */
static void count_parts(const gpu_comm *comm, uint32_t kind, uint32_t *out_in,
                        uint32_t *out_out)
{
    *out_in = kind == CORE_COLLECTIVE_ALL_TO_ALL ? comm->size
                                                 : kind != CORE_COLLECTIVE_RECV;
    *out_out =
        kind == CORE_COLLECTIVE_ALL_TO_ALL || kind == CORE_COLLECTIVE_ALL_GATHER
            ? comm->size
            : kind != CORE_COLLECTIVE_SEND;
}

static core_status copy(gpu_comm *comm, void *to, const void *from,
                        uint64_t size, int direction)
{
    int code = size == 0 ? 0
                         : calls->copy(comm->device->context, comm->stream, to,
                                       from, size, direction);

    return gpu_report(comm->device, code, "a copy for a collective");
}

/* Through memory of the device. */
static core_status run_on_host(gpu_comm *comm, const core_collective *call,
                               int64_t deadline)
{
    uint64_t part = call->count * core_sdk_itemsize(call->dtype), in, out;
    char *result = comm->pinned + comm->staging;
    core_collective there = *call;
    uint32_t parts_in, parts_out;
    core_status status;

    count_parts(comm, call->kind, &parts_in, &parts_out);
    in = part * parts_in;
    out = part * parts_out;
    if (in > comm->staging || out > comm->staging)
        return gpu_refuse(
            CORE_ERROR_INVALID_ARGUMENT,
            "a collective on %llu bytes of host memory; accepted: "
            "%zu",
            (unsigned long long)(in > out ? in : out), comm->staging);
    there.input = comm->staged;
    there.output = comm->staged + comm->staging;
    if (in > 0 && call->input != NULL)
        memcpy(comm->pinned, call->input, in);
    status = copy(comm, comm->staged, comm->pinned, in, GPU_TO_DEVICE);
    if (status == CORE_OK)
        status = start(comm, &there, deadline);
    if (status == CORE_OK)
        status = copy(comm, result, there.output, out, GPU_TO_HOST);
    if (status == CORE_OK)
        status = gpu_comm_wait(comm, deadline);
    if (status == CORE_OK && out > 0)
        memcpy(call->output, result, out);
    return status;
}

static core_status run_on_device(gpu_comm *comm, const core_collective *call,
                                 int64_t deadline)
{
    core_status status = start(comm, call, deadline);

    return status == CORE_OK ? gpu_comm_wait(comm, deadline) : status;
}

static core_status check_usable(const gpu_comm *comm)
{
    if (comm->generation != comm->device->generation)
        return gpu_refuse(CORE_ERROR_DEVICE_LOST,
                          "the device was reset since the communicator was "
                          "created");
    if (comm->handle == NULL || atomic_load(&comm->aborted))
        return gpu_refuse(CORE_ERROR_CANCELLED, "the communicator was aborted");
    return gpu_report(comm->device, atomic_load(&comm->device->lost),
                      "a collective");
}

static core_status run_group_on_device(gpu_comm *comm,
                                       const core_collective *group,
                                       uint32_t count, int64_t deadline)
{
    core_status status = start_group(comm, group, count, deadline);

    return status == CORE_OK ? gpu_comm_wait(comm, deadline) : status;
}

/* With the device current and the lock held. */
static core_status run_locked(gpu_comm *comm, const core_collective *group,
                              uint32_t count)
{
    int64_t deadline = gpu_comm_now() + group->timeout_ns;
    core_status status = check_usable(comm);

    if (status != CORE_OK)
        return status;
    status = count > 1 ? run_group_on_device(comm, group, count, deadline)
             : group->on_host ? run_on_host(comm, group, deadline)
                              : run_on_device(comm, group, deadline);
    if (status != CORE_OK)
        gpu_comm_stop(comm);
    return status;
}

static core_status run_group(void *opaque, const core_collective *group,
                             uint32_t count)
{
    gpu_comm *comm = opaque;
    core_status status;
    gpu_use use;
    int code = calls->use_begin(comm->device->context, &use);

    if (code != 0)
        return gpu_report(comm->device, code, "a collective");
    pthread_mutex_lock(&comm->lock);
    status = run_locked(comm, group, count);
    pthread_mutex_unlock(&comm->lock);
    calls->use_end(&use);
    /* An abort that came after the last look has not got the lock. */
    if (atomic_load(&comm->aborted))
        gpu_comm_abort(comm);
    return status;
}

static core_status run(void *comm, const core_collective *call)
{
    return run_group(comm, call, 1);
}

static core_status exchange(void *comm, const void *mine, uint32_t bytes,
                            void *out_all, int64_t timeout_ns)
{
    const core_collective call = {.struct_size = sizeof call,
                                  .kind = CORE_COLLECTIVE_ALL_GATHER,
                                  .dtype = CORE_U8,
                                  .count = bytes,
                                  .input = mine,
                                  .output = out_all,
                                  .timeout_ns = timeout_ns,
                                  .on_host = 1};

    return run(comm, &call);
}

/* ----------------------------------------------------------------- table -- */

static core_status probe(void *user)
{
    core_string reason;
    uint32_t count = 0;

    (void)user;
    (void)gpu_enumerate(NULL, &count, &reason);
    if (count == 0)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED, "%.*s", (int)reason.size,
                          reason.data);
    return gpu_ccl_open();
}

core_status gpu_collectives_register(core_registry *registry)
{
    const core_collectives_interface table = {
        .struct_size = sizeof table,
        .dtypes = GPU_M_FLOATS | GPU_M_I64 | GPU_M_I32 |
                  CORE_DTYPE_MASK(CORE_I8) | CORE_DTYPE_MASK(CORE_U8),
        .reductions = CORE_REDUCE_MASK(CORE_REDUCE_SUM) |
                      CORE_REDUCE_MASK(CORE_REDUCE_PROD) |
                      CORE_REDUCE_MASK(CORE_REDUCE_MIN) |
                      CORE_REDUCE_MASK(CORE_REDUCE_MAX) |
                      CORE_REDUCE_MASK(CORE_REDUCE_AVG),
        .kinds = CORE_COLLECTIVE_MASK(CORE_COLLECTIVE_REDUCE) |
                 CORE_COLLECTIVE_MASK(CORE_COLLECTIVE_ALL_TO_ALL_COUNTS),
        .engine = core_sdk_string(gpu_this_vendor.collectives->engine),
        .probe = probe,
        .unique_id = gpu_comm_unique_id,
        .destroy = gpu_comm_destroy,
        .exchange = exchange,
        .run = run,
        .abort = gpu_comm_abort,
        .create_on_device = gpu_comm_create,
        .run_group = run_group,
    };

    return gpu_host->register_interface(
        registry, core_sdk_string("core.collectives"), 1, &table, NULL);
}
