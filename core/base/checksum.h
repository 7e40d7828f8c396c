/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* checksum.h: 128 bits of a sequence of bytes, as fast as they are read.
 *
 * Against damage, not against forgery: who may choose the bytes finds others of
 * the same sum.  Change of one aligned word of 64 bits, and so of any single
 * bit, byte or sector's end within it, is always found; of more, but for one
 * case in about 2^64.  The same on every machine. */

#ifndef CORE_BASE_CHECKSUM_H
#define CORE_BASE_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CORE__CHECKSUM_LANES = 8, CORE__CHECKSUM_BLOCK = 64 };

typedef struct core__checksum {
    uint64_t sums[CORE__CHECKSUM_LANES];
    uint64_t keys[CORE__CHECKSUM_LANES]; /* others for every block */
    uint64_t bytes;
    unsigned char block[CORE__CHECKSUM_BLOCK];
    void (*blocks)(struct core__checksum *self, const unsigned char *bytes,
                   size_t count);
} core__checksum;

/* plain: without the instructions that this machine may have. */
void core__checksum_begin(core__checksum *self, bool plain);
void core__checksum_add(core__checksum *self, const void *data, size_t size);
void core__checksum_end(core__checksum *self, uint8_t out_sum[16]);

#endif
