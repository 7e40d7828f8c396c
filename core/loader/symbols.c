/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin's dynamic symbols: it defines the entry, and imports nothing of
 * libcore (ABI.md 1), which would tie it to one release. */

#include "base/memory.h"
#include "loader/elf.h"
#include "loader/note.h"

#include <libcore/plugin.h>

#include <string.h>

enum { SYMBOLS_LIMIT = 1 << 26 }; /* bytes of a table that are looked at */

typedef struct symbol_tables {
    Elf64_Sym *symbols;
    uint64_t count;
    char *names; /* ends with a NUL of our own */
    uint64_t names_size;
} symbol_tables;

static core_status read_block(const core__image *image, uint64_t offset,
                              uint64_t size, void **out_block)
{
    void *block;

    *out_block = NULL;
    if (size > SYMBOLS_LIMIT)
        return core__error(CORE_ERROR_CORRUPT,
                           "has a symbol table of %llu bytes; more than %d are "
                           "not read",
                           (unsigned long long)size, SYMBOLS_LIMIT);
    block = core__alloc_zero(size + 1);
    if (!block)
        return core__error_memory(size + 1);
    if (!core__image_read(image, offset, block, size)) {
        core__free(block);
        return core__error(CORE_ERROR_CORRUPT,
                           "is damaged: its symbols do not lie in the file");
    }
    *out_block = block;
    return CORE_OK;
}

static bool read_section(const core__image *image, const Elf64_Ehdr *header,
                         uint32_t index, Elf64_Shdr *section)
{
    uint64_t offset = (uint64_t)index * sizeof *section;

    return index < header->e_shnum && header->e_shoff <= image->size &&
           offset <= image->size - header->e_shoff &&
           core__image_read(image, header->e_shoff + offset, section,
                            sizeof *section);
}

/* count stays 0 in a file whose section table was stripped: the dynamic loader
 * then finds out what we cannot. */
static core_status read_tables(const core__image *image, symbol_tables *tables)
{
    Elf64_Ehdr header;
    Elf64_Shdr section, strings;
    void *block;

    CORE_TRY(core__elf_header(image, &header));
    if (header.e_shentsize != sizeof section)
        return CORE_OK;
    for (uint32_t i = 0; read_section(image, &header, i, &section); i++) {
        if (section.sh_type != SHT_DYNSYM ||
            !read_section(image, &header, section.sh_link, &strings))
            continue;
        CORE_TRY(read_block(image, section.sh_offset, section.sh_size, &block));
        tables->symbols = block;
        tables->count = section.sh_size / sizeof(Elf64_Sym);
        CORE_TRY(read_block(image, strings.sh_offset, strings.sh_size, &block));
        tables->names = block;
        tables->names_size = strings.sh_size;
        return CORE_OK;
    }
    return CORE_OK;
}

static core_status check(const symbol_tables *tables)
{
    bool entry = false;

    for (uint64_t i = 1; i < tables->count; i++) {
        const Elf64_Sym *symbol = &tables->symbols[i];
        const char *name = symbol->st_name < tables->names_size
                               ? tables->names + symbol->st_name
                               : "";

        if (symbol->st_shndx != SHN_UNDEF)
            entry = entry || strcmp(name, CORE_PLUGIN_ENTRY) == 0;
        else if (strncmp(name, "core_", 5) == 0)
            return core__error(CORE_ERROR_REFUSED,
                               "imports %.80s: a plugin takes libcore's "
                               "services from the host table and links nothing "
                               "of it",
                               name);
    }
    if (!entry)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "does not define " CORE_PLUGIN_ENTRY);
    return CORE_OK;
}

core_status core__symbols_check(const core__image *image)
{
    symbol_tables tables = {0};
    core_status status = read_tables(image, &tables);

    if (status == CORE_OK && tables.names)
        status = check(&tables);
    core__free(tables.symbols);
    core__free(tables.names);
    return status;
}
