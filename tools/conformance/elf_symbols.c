/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "elf_symbols.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    unsigned char *at;
    uint64_t size;
} bytes;

static bool read_all(const char *path, bytes *out)
{
    FILE *file = fopen(path, "rb");
    long size = -1;

    *out = (bytes){0};
    if (file && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size > 0 && fseek(file, 0, SEEK_SET) == 0)
        out->at = malloc((size_t)size);
    if (out->at && fread(out->at, 1, (size_t)size, file) == (size_t)size)
        out->size = (uint64_t)size;
    if (file)
        fclose(file);
    return out->size > 0;
}

static bool inside(const bytes *file, uint64_t offset, uint64_t size)
{
    return offset <= file->size && size <= file->size - offset;
}

/* Finds the index-th section header. */
static bool section(const bytes *file, const Elf64_Ehdr *head, uint32_t index,
                    Elf64_Shdr *out)
{
    uint64_t at = head->e_shoff + (uint64_t)index * sizeof *out;

    if (index >= head->e_shnum || head->e_shentsize != sizeof *out ||
        !inside(file, at, sizeof *out))
        return false;
    memcpy(out, file->at + at, sizeof *out);
    return true;
}

static void visit_symbols(const bytes *file, const Elf64_Shdr *table,
                          const Elf64_Shdr *names, elf_symbol each,
                          void *context)
{
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size;
         at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        const char *name;

        memcpy(&symbol, file->at + table->sh_offset + at, sizeof symbol);
        if (symbol.st_name == 0 || symbol.st_name >= names->sh_size)
            continue;
        name = (const char *)file->at + names->sh_offset + symbol.st_name;
        if (!memchr(name, 0, names->sh_size - symbol.st_name))
            continue;
        if (ELF64_ST_BIND(symbol.st_info) != STB_LOCAL)
            each(context, name, symbol.st_shndx != SHN_UNDEF);
    }
}

const char *elf_symbols(const char *path, elf_symbol each, void *context)
{
    const char *wrong = "it has no dynamic symbol table";
    Elf64_Shdr table, names;
    Elf64_Ehdr head;
    bytes file;

    if (!read_all(path, &file))
        return "it cannot be read";
    if (file.size < sizeof head || memcmp(file.at, ELFMAG, SELFMAG) != 0) {
        wrong = "it is not an ELF file";
        goto done;
    }
    memcpy(&head, file.at, sizeof head);
    for (uint32_t i = 0; section(&file, &head, i, &table); i++) {
        if (table.sh_type != SHT_DYNSYM)
            continue;
        if (!section(&file, &head, table.sh_link, &names) ||
            !inside(&file, table.sh_offset, table.sh_size) ||
            !inside(&file, names.sh_offset, names.sh_size))
            wrong = "its dynamic symbol table is truncated";
        else {
            visit_symbols(&file, &table, &names, each, context);
            wrong = NULL;
        }
        break;
    }
done:
    free(file.at);
    return wrong;
}
