/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64
 * primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

static void schedule(const unsigned char *block, uint32_t *w)
{
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) +
               w[i - 7] + (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
}

static void add_block(core__sha256 *self)
{
    uint32_t a = self->state[0], b = self->state[1], c = self->state[2];
    uint32_t d = self->state[3], e = self->state[4], f = self->state[5];
    uint32_t g = self->state[6], h = self->state[7];
    uint32_t w[64];

    schedule(self->block, w);
    for (int i = 0; i < 64; i++) {
        uint32_t e1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
        uint32_t a0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
        uint32_t one = h + e1 + ((e & f) ^ (~e & g)) + constants[i] + w[i];
        uint32_t two = a0 + ((a & b) ^ (a & c) ^ (b & c));

        h = g;
        g = f;
        f = e;
        e = d + one;
        d = c;
        c = b;
        b = a;
        a = one + two;
    }
    self->state[0] += a;
    self->state[1] += b;
    self->state[2] += c;
    self->state[3] += d;
    self->state[4] += e;
    self->state[5] += f;
    self->state[6] += g;
    self->state[7] += h;
}

void core__sha256_begin(core__sha256 *self)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                      0xa54ff53a, 0x510e527f, 0x9b05688c,
                                      0x1f83d9ab, 0x5be0cd19};

    memset(self, 0, sizeof *self);
    memcpy(self->state, first, sizeof first);
}

void core__sha256_add(core__sha256 *self, const void *data, size_t size)
{
    const unsigned char *from = data;

    while (size > 0) {
        size_t used = self->bytes % 64;
        size_t now = size < 64 - used ? size : 64 - used;

        memcpy(self->block + used, from, now);
        self->bytes += now;
        from += now;
        size -= now;
        if (self->bytes % 64 == 0)
            add_block(self);
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
