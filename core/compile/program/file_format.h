/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* file_format.h: files of programs.
 *
 * A file is a safetensors file.  The hidden inputs are the tensors
 * "libcore.hidden.N", row-major; the program is the u8 tensor
 * "libcore.program".  Its bytes, all numbers little endian:
 *
 *   magic, version              u32 u32
 *   checksum                    16 bytes, of everything after it
 *   devices                     u32 count; names
 *   generators                  u32 count; u64 seed, u64 offset
 *   inputs                      u32 count; type, u32 value, u32 base, i64 offset
 *   hidden inputs               u32 count; u32 value, 16 bytes of checksum of
 *                               the tensor's elements
 *   values                      u32 count; type, u8 source, u32 index
 *   operators                   u32 count; u32 id (UINT32_MAX: custom;
 *                               UINT32_MAX - 1: it has regions), u32 minor of
 *                               the ABI with which it came, name
 *   nodes                       u32 count; u32 operator, u32 written, u32 first,
 *                               u32 nvalues, u64 draws, u32 count of arguments,
 *                               arguments, u32 count of results, results
 *   outputs                     u32 count; u8 kind, u8 view, u32 index, type,
 *                               i64 offset
 *   writes                      u32 count; u8 hidden, u32 index, u32 value
 *   regions                     of each node that has some (region.h), from
 *                               `devices` on; its devices and generators are
 *                               u32 indices of those of the program that
 *                               contains it
 *
 * A name is u32 size and bytes; a type u8 dtype, u8 ndim, u16 device, ndim i64
 * sizes, ndim i64 strides; an argument u8 tag, u32 count, and 8 bytes (of a
 * number; of a value, device or generator 4) or count elements of a list. */

#ifndef CORE_COMPILE_FILE_FORMAT_H
#define CORE_COMPILE_FILE_FORMAT_H

#include <stdint.h>

enum {
    CORE__PROGRAM_MAGIC = 0x5250434c, /* "LCPR" */
    CORE__PROGRAM_VERSION = 2,
    CORE__PROGRAM_CHECKSUM = 16,
    CORE__PROGRAM_HEADER = 8 + CORE__PROGRAM_CHECKSUM
};

/* Ids of what is not a built-in operator. */
#define CORE__PROGRAM_CUSTOM UINT32_MAX
#define CORE__PROGRAM_REGIONS (UINT32_MAX - 1)

#define CORE__PROGRAM_TENSOR "libcore.program"
#define CORE__PROGRAM_HIDDEN "libcore.hidden."

#endif
