/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Symbol tables of ELF files, read without trusting them. */

#include "io/symbol_table.h"

#include "io/mapping.h"

#include <elf.h>
#include <string.h>

typedef struct range {
    const uint8_t *bytes;
    uint64_t size;
} range;

/* NULL bytes: not inside the file. */
static range part(const core__mapping *file, uint64_t offset, uint64_t size)
{
    if (offset > file->size || size > file->size - offset)
        return (range){0};
    return (range){file->bytes + offset, size};
}

static bool section(const core__mapping *file, const Elf64_Ehdr *header,
                    uint32_t index, Elf64_Shdr *out_section)
{
    range at;

    if (index >= header->e_shnum || header->e_shoff > file->size)
        return false;
    at = part(file, header->e_shoff + index * (uint64_t)sizeof *out_section,
              sizeof *out_section);
    if (at.bytes)
        memcpy(out_section, at.bytes, sizeof *out_section);
    return at.bytes;
}

/* Finds the table of symbols and that of their names. */
static bool tables(const core__mapping *file, range *out_symbols,
                   range *out_names)
{
    Elf64_Shdr symbols, names;
    Elf64_Ehdr header;

    memcpy(&header, file->bytes, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_shentsize != sizeof symbols)
        return false;
    for (uint32_t i = 0; section(file, &header, i, &symbols); i++)
        if (symbols.sh_type == SHT_SYMTAB &&
            section(file, &header, symbols.sh_link, &names)) {
            *out_symbols = part(file, symbols.sh_offset, symbols.sh_size);
            *out_names = part(file, names.sh_offset, names.sh_size);
            return out_symbols->bytes && out_names->bytes;
        }
    return false;
}

static bool copy_name(range names, uint32_t offset, core__symbol *symbol)
{
    uint64_t left = offset < names.size ? names.size - offset : 0;
    size_t size = 0;

    while (size < left && size < sizeof symbol->name - 1 &&
           names.bytes[offset + size])
        size++;
    if (size)
        memcpy(symbol->name, names.bytes + offset, size);
    symbol->name[size] = '\0';
    return size > 0;
}

bool core__symbol_find(const char *path, uint64_t address,
                       core__symbol *out_symbol)
{
    range symbols, names;
    core__mapping *file;
    bool found = false;

    if (core__mapping_open(path, "an ELF file", sizeof(Elf64_Ehdr), false,
                           &file) != CORE_OK)
        return false;
    if (tables(file, &symbols, &names))
        for (uint64_t i = 0; !found && i < symbols.size / sizeof(Elf64_Sym);
             i++) {
            Elf64_Sym symbol;

            memcpy(&symbol, symbols.bytes + i * sizeof symbol, sizeof symbol);
            found = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
                    address - symbol.st_value < symbol.st_size &&
                    copy_name(names, symbol.st_name, out_symbol);
            out_symbol->address = symbol.st_value;
        }
    core__mapping_release(file);
    return found;
}
