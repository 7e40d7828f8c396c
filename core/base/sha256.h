/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sha256.h: SHA-256 (FIPS 180-4), with which manifests and reports identify a
 * file.  core-conformance compiles this file in. */

#ifndef CORE_BASE_SHA256_H
#define CORE_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct core__sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
    bool in_c; /* without instructions of the processor; a test may set it */
} core__sha256;

void core__sha256_begin(core__sha256 *self);
void core__sha256_add(core__sha256 *self, const void *data, size_t size);
/* 64 digits and a NUL. */
void core__sha256_end(core__sha256 *self, char out_text[65]);

/* Adds `count` blocks of 64 bytes to the state. */
void core__sha256_blocks(core__sha256 *self, const void *data, size_t count);
bool core__sha256_has_instructions(void);

/* False if the file cannot be read.  The second function hashes the whole file
 * of a descriptor, whatever its position. */
bool core__sha256_file(const char *path, char out_text[65]);
bool core__sha256_descriptor(int file, char out_text[65]);

#endif
