/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* block.h: what was taken from a device: blocks, and reservations that are
 * filled bit by bit.  Their data lies in host memory that only workers know;
 * the device's own names for it, handles or addresses, cannot be read.
 * Everything here wants sim_lock, but the content. */

#ifndef SIM_BLOCK_H
#define SIM_BLOCK_H

#include "race.h"
#include "sim.h"

enum {
    SIM_BLOCKS = 1 << 20, /* of one device */
    SIM_KEPT = 1 << 10,   /* freed ones that are remembered */
    SIM_CHUNK = 1 << 10,  /* blocks that are made at once */
    SIM_SPACING = 16,     /* between handles */
    SIM_PAGE = 1 << 16,   /* flat: addresses of a block begin with one */
    SIM_CANARY = 64,      /* bytes behind a block that stay poisoned */
    SIM_POISON = 0xa5,    /* fresh */
    SIM_POISON_FREED = 0x5a
};

/* Addresses of one device, where the process may have so many. */
#define SIM_FLAT_BYTES (UINT64_C(256) << 30)
#define SIM_FLAT_LEAST (UINT64_C(16) << 20)

typedef struct sim_block {
    char *data; /* NULL: freed */
    char *kept; /* freed while the device was lost, and not touched since: what
                 * it ran then may still be at it */
    uint64_t size;
    uint64_t address;   /* flat: distance from the first */
    uint64_t serial;    /* counts all blocks of the device, for messages */
    uint8_t *mapped;    /* reservation: a byte per granule; else NULL */
    uint32_t name;      /* index + 1 */
    uint32_t next_free; /* a name */
    bool fenced;        /* freed, and its name not given anew */
    sim_history history;
} sim_block;

typedef struct sim_memory {
    char *handles; /* without access */
    uint64_t handle_bytes;
    sim_block **chunks;
    uint32_t *pages; /* flat: the name of the block of each page */
    uint64_t next_page;
    uint32_t used;
    uint32_t first_free; /* a name, the oldest; handed out last */
    uint32_t last_free;
    uint64_t taken; /* bytes */
    uint64_t made;
    uint64_t live;
    uint64_t reservations;
    struct sim_pinned *pinned; /* freed while the device was lost */
} sim_memory;

/* A name for a block of so many bytes; NULL where there is none left. */
sim_block *sim_block_make(sim_device *device, uint64_t size, char *data,
                          core_memory *out_memory);
/* Its name is fenced: who uses it is told of the block. */
void sim_block_unmake(sim_device *device, sim_block *block);
void sim_block_free_data(sim_block *block);
/* Its data is given back; of a lost device, when that is reset or closed. */
void sim_block_give_back(const sim_device *device, sim_block *block);
void sim_pinned_give_back(struct sim_pinned *pinned);
/* The block that memory lies in, alive or not, and how far in it; NULL if it
 * is no memory of this device. */
sim_block *sim_block_find(sim_device *device, core_memory memory,
                          uint64_t *out_offset);
/* Why `size` bytes at an offset of the block (NULL: none) cannot be used; an
 * empty text if they can. */
void sim_block_check(const sim_device *device, const sim_block *block,
                     core_memory memory, uint64_t offset, uint64_t size,
                     char *text, size_t room);

/* A conflict that a free found: the stream that may still use it learns of it,
 * if it is there. */
void sim_fail_user(sim_device *device, uint64_t stream, const char *text);
core_status sim_memory_refused(const sim_device *device, uint64_t size);
void sim_quarantine_empty(void);

extern uint64_t sim_overruns;  /* blocks with something behind their end */
extern uint64_t sim_bad_frees; /* frees of what is no block */

uint64_t sim_granule(void); /* of reservations */
/* The host takes bytes away: everybody must be done with them. */
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
