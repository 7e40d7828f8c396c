/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sha256.h: SHA-256 (FIPS 180-4), so that a report names the very file that
 * it is of. */

#ifndef CONFORMANCE_SHA256_H
#define CONFORMANCE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} sha256;

void sha256_begin(sha256 *self);
void sha256_add(sha256 *self, const void *data, size_t size);
/* 64 digits and a NUL. */
void sha256_end(sha256 *self, char out_text[65]);

/* False: the file cannot be read. */
bool sha256_file(const char *path, char out_text[65]);

#endif
