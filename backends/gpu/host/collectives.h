/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collectives.h: collectives among processes by the vendor's library
 * (core.collectives), on the memory of the device. */

#ifndef GPU_COLLECTIVES_H
#define GPU_COLLECTIVES_H

#include <gpu/host/collectives_library.h>
#include <gpu/host/host.h>

/* A communicator.  It has its own stream: the core calls it when the work before
 * a collective is done, and it waits until the collective is, so that a timeout
 * can end what other ranks do not join. */
typedef struct gpu_comm {
    struct gpu_comm *next; /* of all communicators */
    gpu_device *device;    /* with a reference */
    uint32_t generation;
    uint32_t rank, size;
    void *stream; /* the driver's */
    /* For calls on host memory: input and output, of `staging` bytes each, on
     * the device and pinned. */
    char *staged, *pinned;
    size_t staging;
    atomic_bool aborted;
    pthread_mutex_t lock; /* guards the rest; held by the running collective */
    void *handle;         /* the library's; NULL: it was aborted */
    bool busy;            /* the stream did not become idle after an error */
} gpu_comm;

core_status gpu_comm_unique_id(void *user, void *id);
core_status gpu_comm_create(void *user, void *device, uint32_t rank,
                            uint32_t size, const void *id, int64_t timeout_ns,
                            void **out_comm);
void gpu_comm_destroy(void *comm, uint32_t failed);
void gpu_comm_abort(void *comm);
/* Ends what the library does on a device that is about to be reset. */
void gpu_comms_stop(const gpu_device *device);

/* Ends what the library does; the communicator cannot be used any more.  The
 * device is current and the lock held, as in the functions below. */
void gpu_comm_stop(gpu_comm *comm);

/* Waits for a call of the library that returned `code`, which the library may
 * finish in the background; deadline: of gpu_comm_now. */
core_status gpu_comm_settle(gpu_comm *comm, int code, const char *function,
                            int64_t deadline);
/* Waits for the stream's work, of which the library's is a part. */
core_status gpu_comm_wait(gpu_comm *comm, int64_t deadline);
int64_t gpu_comm_now(void); /* nanoseconds */

core_status gpu_collectives_register(core_registry *registry);

#endif
