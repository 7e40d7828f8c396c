/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elf_symbols.h: the symbols that a shared object exports and imports. */

#ifndef CONFORMANCE_ELF_SYMBOLS_H
#define CONFORMANCE_ELF_SYMBOLS_H

#include <stdbool.h>

/* Is called for each dynamic symbol that has a name. */
typedef void (*elf_symbol)(void *context, const char *name, bool defined);

/* Returns NULL, or what is wrong with the file. */
const char *elf_symbols(const char *path, elf_symbol each, void *context);

#endif
