/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* block.h: allocations of a device: blocks, and reservations that are mapped in
 * parts.  Their data is in host memory that only workers know; the device's
 * names for it, handles or addresses, cannot be dereferenced.  Everything here
 * requires sim_lock, except access to the contents. */

#ifndef SIM_BLOCK_H
#define SIM_BLOCK_H

#include "race.h"
#include "sim.h"

enum {
    SIM_BLOCKS = 1 << 20, /* of one device */
    SIM_KEPT = 1 << 10,   /* freed blocks that are remembered */
    SIM_CHUNK = 1 << 10,  /* blocks that are allocated at once */
    SIM_SPACING = 16,     /* between handles */
    SIM_PAGE = 1 << 16,   /* flat: blocks begin at multiples of it */
    SIM_CANARY = 64,      /* poisoned bytes after a block */
    SIM_POISON = 0xa5,    /* pattern of new memory */
    SIM_POISON_FREED = 0x5a
};

/* The address range of one device, if the process may reserve that much. */
#define SIM_FLAT_BYTES (UINT64_C(256) << 30)
#define SIM_FLAT_LEAST (UINT64_C(16) << 20)

typedef struct sim_block {
    char *data; /* NULL: freed */
    /* Freed while the device was lost, and not accessed since: work that was
     * running then may still access it. */
    char *retained;
    uint64_t size;
    uint64_t address;   /* flat: offset from the first address */
    uint64_t serial;    /* number of the block, for messages */
    uint8_t *mapped;    /* reservation: a byte per granule; else NULL */
    uint32_t name;      /* index + 1 */
    uint32_t next_free; /* a name */
    bool fenced;        /* freed, and its name not reused */
    bool imported;      /* memory of a file that `open` of core.ipc mapped */
    int file;           /* exported: its file, plus 1 */
    uint32_t exports;   /* that have not ended */
    uint64_t shared;    /* bytes of a file's mapping; 0: data is allocated */
    sim_history history;
} sim_block;

typedef struct sim_memory {
    char *handles; /* inaccessible */
    uint64_t handle_bytes;
    sim_block **chunks;
    uint32_t *pages; /* flat: the name of each page's block */
    uint64_t next_page;
    uint32_t used;
    uint32_t first_free; /* a name, the least recently used */
    uint32_t last_free;
    uint64_t taken; /* bytes */
    uint64_t created;
    uint64_t live;
    uint64_t imports; /* open memory of core.ipc */
    uint64_t reservations;
    struct sim_pinned *pinned; /* freed while the device was lost */
} sim_memory;

/* Creates a block of `size` bytes with a name; NULL if no name is left. */
sim_block *sim_block_create(sim_device *device, uint64_t size, char *data,
                            core_memory *out_memory);
/* Fences its name: a later use reports the freed block. */
void sim_block_destroy(sim_device *device, sim_block *block);
void sim_block_free_data(sim_block *block);

/* data.c: the data of blocks of `size` bytes. */

/* The bytes of the data with what follows it. */
uint64_t sim_data_bytes(uint64_t size);
/* Returns new data, poisoned, or NULL. */
char *sim_data_create(uint64_t size);
void sim_data_poison_freed(char *data, uint64_t size);
void sim_data_free(char *data, uint64_t size);

/* Frees its data; on a lost device, when the device is reset or closed. */
void sim_block_release(const sim_device *device, sim_block *block);
void sim_pinned_free(struct sim_pinned *pinned);
/* Returns the block that contains the memory, live or freed, and the offset in
 * it; NULL if it is not memory of this device. */
sim_block *sim_block_find(sim_device *device, core_memory memory,
                          uint64_t *out_offset);
/* Writes why `size` bytes at an offset of the block (NULL: none) cannot be
 * used; an empty text if they can. */
void sim_block_check(const sim_device *device, const sim_block *block,
                     core_memory memory, uint64_t offset, uint64_t size,
                     char *text, size_t capacity);

/* Reports a conflict that was found by a free to the stream that may still use
 * the block, if it still exists. */
void sim_fail_user(sim_device *device, uint64_t stream, const char *text);
core_status sim_memory_refused(const sim_device *device, uint64_t size);
void sim_quarantine_empty(void);

extern uint64_t sim_overruns;  /* freed blocks that were written past their
                                * end */
extern uint64_t sim_bad_frees; /* frees of invalid blocks */

uint64_t sim_granule(void); /* of reservations */
/* Called when the host frees these bytes: checks that no stream may still use
 * them. */
void sim_history_check(sim_device *device, sim_block *block, uint64_t from,
                       uint64_t to);
extern uint64_t sim_pinned_blocks;

/* copy.c */
core_status sim_copy_from_host(void *device, void *stream, core_memory to,
                               const void *from, uint64_t size);
core_status sim_copy_to_host(void *device, void *stream, void *to,
                             core_memory from, uint64_t size);
core_status sim_copy(void *device, void *stream, core_memory to,
                     core_memory from, uint64_t size);
core_status sim_fill(void *device, void *stream, core_memory to, uint64_t size,
                     uint64_t pattern, uint32_t pattern_size);

#endif
