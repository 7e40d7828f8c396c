/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* symbol_table.h: names of functions in the symbol tables of ELF files. */

#ifndef CORE_IO_SYMBOL_TABLE_H
#define CORE_IO_SYMBOL_TABLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct core__symbol {
    char name[128];   /* cut at its end */
    uint64_t address; /* of its first byte */
} core__symbol;

/* Finds the function that contains an address, among all in a file's own table
 * of symbols: those that dladdr knows are only the exported ones.  address: as
 * in the file, that is without the address at which it is loaded.  False if the
 * file has no such table (it is stripped), cannot be read, or is damaged.  May
 * set the thread's error record. */
bool core__symbol_find(const char *path, uint64_t address,
                       core__symbol *out_symbol);

#endif
