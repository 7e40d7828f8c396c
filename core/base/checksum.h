/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* checksum.h: a 128-bit checksum, computed as fast as the bytes are read.
 *
 * It detects damage, not forgery: collisions are easy to construct.  A change
 * within one aligned 64-bit word is always detected; a larger one is missed
 * with a probability of about 2^-64.  The result is the same on every
 * machine. */

#ifndef CORE_BASE_CHECKSUM_H
#define CORE_BASE_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CORE__CHECKSUM_LANES = 8, CORE__CHECKSUM_BLOCK = 64 };

typedef struct core__checksum {
    uint64_t sums[CORE__CHECKSUM_LANES];
    uint64_t keys[CORE__CHECKSUM_LANES]; /* differ in every block */
    uint64_t bytes;
    unsigned char block[CORE__CHECKSUM_BLOCK];
    void (*blocks)(struct core__checksum *self, const unsigned char *bytes,
                   size_t count);
} core__checksum;

/* portable: do not use vector instructions. */
void core__checksum_begin(core__checksum *self, bool portable);
void core__checksum_add(core__checksum *self, const void *data, size_t size);
void core__checksum_end(core__checksum *self, uint8_t out_sum[16]);

#endif
