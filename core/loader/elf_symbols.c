/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks a plugin's dynamic symbols: it must define the entry, as a function,
 * and must not import symbols of libcore (docs/abi.md 1), which would tie it to
 * one release.
 *
 * Symbols are looked up as by the dynamic linker, through the dynamic section,
 * because nothing follows the section table.  The linker trusts the chains of
 * the hash table, so these are checked too. */

#include "base/memory.h"
#include "loader/elf.h"
#include "loader/plugin_note.h"

#include <libcore/plugin.h>

#include <string.h>

enum { SYMBOLS_LIMIT = 1 << 21, VERSIONS_LIMIT = 1024 };

typedef struct symbol_tables {
    const core__elf_dynamic *d;
    Elf64_Sym *symbols;
    uint64_t count;
    char *names; /* ends with a NUL that is appended */
    uint64_t names_size;
} symbol_tables;

#define damaged core__elf_dynamic_error

/* --------------------------------------------------- number of symbols -- */

static core_status read_words(const core__elf_dynamic *d, uint64_t address,
                              uint64_t count, uint32_t **out)
{
    void *block;

    if (count > SYMBOLS_LIMIT)
        count = SYMBOLS_LIMIT + 1; /* no file has that */
    CORE_TRY(core__elf_dynamic_copy_bytes(d, address, count * sizeof **out,
                                          "its symbol hash table is not loaded",
                                          &block));
    *out = block;
    return CORE_OK;
}

/* A chain ends with an odd word. */
static core_status chain_end(const core__elf_dynamic *d, uint64_t chains,
                             uint64_t first, uint64_t index, uint64_t *out)
{
    core_status status = CORE_OK;
    bool ended = false;

    while (!ended && status == CORE_OK) {
        uint32_t *word = NULL;

        status =
            index - first > SYMBOLS_LIMIT
                ? damaged("a chain of its symbol hash table is not terminated")
                : read_words(d, chains + (index - first) * 4, 1, &word);
        ended = status == CORE_OK && (*word & 1);
        core__free(word);
        index++;
    }
    *out = index;
    return status;
}

static core_status count_gnu(const core__elf_dynamic *d, uint64_t table,
                             uint64_t *out)
{
    uint32_t *head = NULL, *buckets = NULL;
    uint64_t last = 0, nbuckets, first, words, at;
    core_status status = read_words(d, table, 4, &head);

    if (status != CORE_OK)
        return status;
    nbuckets = head[0];
    first = head[1];
    words = head[2];
    core__free(head);
    if (nbuckets == 0 || words == 0 || words & (words - 1) ||
        words > SYMBOLS_LIMIT)
        return damaged("its symbol hash table is invalid");
    at = table + 16 + words * 8;
    CORE_TRY(read_words(d, at, nbuckets, &buckets));
    for (uint64_t i = 0; i < nbuckets && status == CORE_OK; i++) {
        if (buckets[i] && buckets[i] < first)
            status = damaged("its symbol hash table is invalid");
        if (buckets[i] > last)
            last = buckets[i];
    }
    core__free(buckets);
    *out = first;
    if (status == CORE_OK && last)
        status = chain_end(d, at + nbuckets * 4, first, last, out);
    return status;
}

static core_status count_symbols(const core__elf_dynamic *d, uint64_t *out)
{
    uint64_t table;
    uint32_t *head;

    *out = 0;
    if (core__elf_dynamic_value(d, DT_GNU_HASH, &table))
        return count_gnu(d, table, out);
    if (!core__elf_dynamic_value(d, DT_HASH, &table))
        return damaged("it has no symbol hash table");
    CORE_TRY(read_words(d, table, 2, &head));
    *out = head[1];
    core__free(head);
    return CORE_OK;
}

static core_status read_tables(const core__elf_dynamic *d,
                               symbol_tables *tables)
{
    void *block;

    if (!d->has[DT_SYMTAB] || !d->has[DT_STRTAB] || d->values[DT_STRSZ] == 0)
        return damaged("it has no dynamic symbols");
    CORE_TRY(count_symbols(d, &tables->count));
    if (tables->count > SYMBOLS_LIMIT)
        return damaged("it has too many symbols");
    CORE_TRY(core__elf_dynamic_copy_bytes(
        d, d->values[DT_SYMTAB], tables->count * sizeof(Elf64_Sym),
        "its symbols are not loaded", &block));
    tables->symbols = block;
    tables->names_size = d->values[DT_STRSZ];
    CORE_TRY(core__elf_dynamic_copy_bytes(
        d, d->values[DT_STRTAB], tables->names_size,
        "the names of its symbols are not loaded", &block));
    tables->names = block;
    return CORE_OK;
}

/* -------------------------------------------------- names of libraries -- */

static const char *name_at(const symbol_tables *tables, uint64_t offset)
{
    return offset < tables->names_size ? tables->names + offset : NULL;
}

/* Checks the names and search paths of needed libraries. */
static core_status check_needed(const symbol_tables *tables)
{
    static const int64_t tags[] = {DT_NEEDED,  DT_SONAME, DT_RPATH,
                                   DT_RUNPATH, DT_FILTER, DT_AUXILIARY};

    for (uint64_t i = 0; i < tables->d->nentries; i++)
        for (size_t k = 0; k < sizeof tags / sizeof *tags; k++)
            if (tables->d->entries[i].d_tag == tags[k] &&
                !name_at(tables, tables->d->entries[i].d_un.d_val))
                return damaged(
                    "the name of a library is outside its string table");
    return CORE_OK;
}

static bool is_needed(const symbol_tables *tables, const char *name)
{
    for (uint64_t i = 0; i < tables->d->nentries; i++)
        if (tables->d->entries[i].d_tag == DT_NEEDED &&
            strcmp(tables->names + tables->d->entries[i].d_un.d_val, name) == 0)
            return true;
    return false;
}

/* Checks the required versions of needed libraries: a list of lists. */
static core_status check_versions(const symbol_tables *tables)
{
    static const char what[] = "its required versions are invalid";
    uint64_t at, count, looked = 0;

    if (!core__elf_dynamic_value(tables->d, DT_VERNEED, &at) ||
        !core__elf_dynamic_value(tables->d, DT_VERNEEDNUM, &count))
        return CORE_OK;
    for (bool more = true; more;) {
        Elf64_Verneed one;
        uint64_t version = at;
        const char *name;
        void *block;

        CORE_TRY(core__elf_dynamic_copy_bytes(tables->d, at, sizeof one, what,
                                              &block));
        memcpy(&one, block, sizeof one);
        core__free(block);
        name = name_at(tables, one.vn_file);
        if (one.vn_version != VER_NEED_CURRENT || !name ||
            !is_needed(tables, name))
            return damaged(what);
        version += one.vn_aux;
        for (bool inner = one.vn_cnt > 0; inner;) {
            Elf64_Vernaux needed;

            CORE_TRY(core__elf_dynamic_copy_bytes(tables->d, version,
                                                  sizeof needed, what, &block));
            memcpy(&needed, block, sizeof needed);
            core__free(block);
            if (!name_at(tables, needed.vna_name) || ++looked > VERSIONS_LIMIT)
                return damaged(what);
            version += needed.vna_next;
            inner = needed.vna_next != 0;
        }
        if (++looked > VERSIONS_LIMIT)
            return damaged(what);
        at += one.vn_next;
        more = one.vn_next != 0;
    }
    return CORE_OK;
}

/* ------------------------------------------------------------- symbols -- */

static bool is_entry(const symbol_tables *tables, const Elf64_Sym *symbol,
                     const char *name)
{
    uint32_t type = ELF64_ST_TYPE(symbol->st_info);

    return strcmp(name, CORE_PLUGIN_ENTRY) == 0 &&
           (type == STT_FUNC || type == STT_NOTYPE) &&
           core__elf_dynamic_segment(tables->d, symbol->st_value, 1, PF_X,
                                     true);
}

static core_status check(const symbol_tables *tables)
{
    bool entry = false;

    for (uint64_t i = 1; i < tables->count; i++) {
        const Elf64_Sym *symbol = &tables->symbols[i];
        const char *name = name_at(tables, symbol->st_name);

        if (!name)
            return damaged("the name of a symbol is outside its string table");
        if (symbol->st_shndx != SHN_UNDEF)
            entry = entry || is_entry(tables, symbol, name);
        else if (strncmp(name, "core_", 5) == 0)
            return core__error(CORE_ERROR_REFUSED,
                               "imports %.80s; a plugin must use the host "
                               "table and not link libcore",
                               name);
    }
    if (!entry)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "does not define " CORE_PLUGIN_ENTRY
                           " as a function");
    CORE_TRY(check_needed(tables));
    return check_versions(tables);
}

core_status core__elf_symbols_check(const core__plugin_image *image)
{
    symbol_tables tables = {0};
    core__elf_dynamic *d;
    core_status status;

    CORE_TRY(core__elf_dynamic_read(image, &d));
    tables.d = d;
    status = read_tables(d, &tables);
    if (status == CORE_OK)
        status = check(&tables);
    core__free(tables.symbols);
    core__free(tables.names);
    core__elf_dynamic_free(d);
    return status;
}
