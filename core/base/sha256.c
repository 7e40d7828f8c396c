/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void core__sha256_begin(core__sha256 *self)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                      0xa54ff53a, 0x510e527f, 0x9b05688c,
                                      0x1f83d9ab, 0x5be0cd19};

    memset(self, 0, sizeof *self);
    memcpy(self->state, first, sizeof first);
    self->in_c = !core__sha256_has_instructions();
}

/* What does not fill a block waits in it. */
static size_t fill_block(core__sha256 *self, const void *data, size_t size)
{
    size_t used = self->bytes % 64, free = 64 - used;
    size_t now = size < free ? size : free;

    memcpy(self->block + used, data, now);
    if (now == free)
        core__sha256_blocks(self, self->block, 1);
    return now;
}

void core__sha256_add(core__sha256 *self, const void *data, size_t size)
{
    const unsigned char *from = data;

    while (size > 0) {
        size_t now = size & ~(size_t)63;

        if (self->bytes % 64 != 0 || now == 0)
            now = fill_block(self, from, size);
        else
            core__sha256_blocks(self, from, now / 64);
        self->bytes += now;
        from += now;
        size -= now;
    }
}

void core__sha256_end(core__sha256 *self, char out_text[65])
{
    uint64_t bits = self->bytes * 8;
    unsigned char tail[72] = {0x80};
    size_t pad = (self->bytes % 64 < 56 ? 56 : 120) - self->bytes % 64;

    for (int i = 0; i < 8; i++)
        tail[pad + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    core__sha256_add(self, tail, pad + 8);
    for (int i = 0; i < 8; i++)
        snprintf(out_text + 8 * i, 9, "%08x", self->state[i]);
}

bool core__sha256_descriptor(int file, char out_text[65])
{
    unsigned char part[16384];
    core__sha256 self;
    off_t offset = 0;
    ssize_t size;

    core__sha256_begin(&self);
    while ((size = pread(file, part, sizeof part, offset)) != 0) {
        if (size < 0 && errno != EINTR)
            return false;
        if (size < 0)
            continue;
        core__sha256_add(&self, part, (size_t)size);
        offset += size;
    }
    core__sha256_end(&self, out_text);
    return true;
}

bool core__sha256_file(const char *path, char out_text[65])
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool valid = file >= 0 && core__sha256_descriptor(file, out_text);

    if (file >= 0)
        close(file);
    return valid;
}
