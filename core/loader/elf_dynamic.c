/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks a plugin's dynamic section and relocations.  The dynamic linker
 * follows them and writes wherever they point, so damage would crash the
 * process: addresses must be in loaded segments, those that are written in
 * writable ones, and those that are called in executable ones. */

#include "base/memory.h"
#include "loader/elf.h"

enum {
    ENTRIES_LIMIT = 1024, /* entries of the section */
    TABLE_LIMIT = 1 << 28 /* bytes of a table that are inspected */
};

#if defined __x86_64__
enum { RELATIVE = R_X86_64_RELATIVE, INDIRECT = R_X86_64_IRELATIVE };
#elif defined __aarch64__
enum { RELATIVE = 1027, INDIRECT = 1032 };
#elif defined __riscv
enum { RELATIVE = 3, INDIRECT = 58 };
#else
enum { RELATIVE = -1, INDIRECT = -1 }; /* offsets and symbols only */
#endif

#define damaged core__elf_dynamic_error
#define load_of core__elf_dynamic_segment
#define read_loaded core__elf_dynamic_copy_bytes

core_status core__elf_dynamic_error(const char *what)
{
    return core__error(CORE_ERROR_CORRUPT, "is damaged: %s", what);
}

const Elf64_Phdr *core__elf_dynamic_segment(const core__elf_dynamic *d,
                                            uint64_t address, uint64_t size,
                                            uint32_t flags, bool in_file)
{
    for (uint32_t i = 0; i < d->nloads; i++) {
        const Elf64_Phdr *load = &d->loads[i];
        uint64_t available = in_file ? load->p_filesz : load->p_memsz;

        if (address >= load->p_vaddr && address - load->p_vaddr <= available &&
            size <= available - (address - load->p_vaddr) &&
            (load->p_flags & flags) == flags)
            return load;
    }
    return NULL;
}

core_status core__elf_dynamic_copy_bytes(const core__elf_dynamic *d,
                                         uint64_t address, uint64_t size,
                                         const char *what, void **out)
{
    const Elf64_Phdr *load = load_of(d, address, size, 0, true);

    *out = NULL;
    if (!load || size > TABLE_LIMIT)
        return damaged(what);
    *out = core__alloc(size + 1);
    if (!*out)
        return core__error_memory(size + 1);
    ((char *)*out)[size] = 0;
    if (core__plugin_image_read(
            d->image, load->p_offset + address - load->p_vaddr, *out, size))
        return CORE_OK;
    core__free(*out);
    *out = NULL;
    return damaged(what);
}

/* ------------------------------------------------------------- section -- */

static core_status read_section(core__elf_dynamic *d, const Elf64_Phdr *segment)
{
    uint64_t count = segment->p_filesz / sizeof(Elf64_Dyn);
    void *block;

    if (count > ENTRIES_LIMIT)
        return damaged("its dynamic section is too long");
    CORE_TRY(read_loaded(d, segment->p_vaddr, count * sizeof *d->entries,
                         "its dynamic section is not loaded", &block));
    d->entries = block;
    for (uint64_t i = 0; i < count; i++) {
        int64_t tag = d->entries[i].d_tag;

        if (tag == DT_NULL)
            return CORE_OK;
        d->nentries++;
        if (tag < DT_NULL || tag >= CORE__ELF_TAGS)
            continue;
        d->has[tag] = true;
        d->values[tag] = d->entries[i].d_un.d_val;
    }
    return damaged("its dynamic section is not terminated");
}

bool core__elf_dynamic_value(const core__elf_dynamic *d, int64_t tag,
                             uint64_t *out_value)
{
    bool found = false;

    *out_value = 0;
    for (uint64_t i = 0; i < d->nentries; i++)
        if (d->entries[i].d_tag == tag) {
            *out_value = d->entries[i].d_un.d_val;
            found = true;
        }
    return found;
}

static core_status read_all(core__elf_dynamic *d)
{
    Elf64_Phdr segment, section = {0};
    Elf64_Ehdr header;

    CORE_TRY(core__elf_header(d->image, &header));
    for (uint32_t i = 0; i < header.e_phnum; i++) {
        CORE_TRY(core__elf_segment(d->image, &header, i, &segment));
        if (segment.p_type == PT_LOAD) {
            d->loads[d->nloads++] = segment;
            d->end = segment.p_vaddr + segment.p_memsz;
        } else if (segment.p_type == PT_DYNAMIC) {
            section = segment;
        }
    }
    return read_section(d, &section);
}

core_status core__elf_dynamic_read(const core__plugin_image *image,
                                   core__elf_dynamic **out)
{
    core__elf_dynamic *d = core__alloc_zero(sizeof *d);
    core_status status;

    *out = NULL;
    if (!d)
        return core__error_memory(sizeof *d);
    d->image = image;
    status = read_all(d);
    if (status == CORE_OK)
        *out = d;
    else
        core__elf_dynamic_free(d);
    return status;
}

void core__elf_dynamic_free(core__elf_dynamic *d)
{
    core__free(d->entries);
    core__free(d);
}

/* The dynamic linker uses the second without a check where the first exists. */
static bool has_pairs(const core__elf_dynamic *d)
{
    static const uint32_t pairs[][2] = {
        {DT_STRTAB, DT_STRSZ},
        {DT_RELA, DT_RELASZ},
        {DT_RELA, DT_RELAENT},
        {DT_JMPREL, DT_PLTRELSZ},
        {DT_JMPREL, DT_PLTREL},
        {DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
        {DT_FINI_ARRAY, DT_FINI_ARRAYSZ},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (d->has[pairs[i][0]] && !d->has[pairs[i][1]])
            return false;
    return !d->has[DT_PLTREL] || d->values[DT_PLTREL] == DT_RELA;
}

/* Checks the addresses of tags, with a size where another tag has it. */
static core_status check_places(const core__elf_dynamic *d)
{
    static const struct {
        uint32_t tag, size_tag, flags;
    } places[] = {
        {DT_STRTAB, DT_STRSZ, 0},
        {DT_SYMTAB, 0, 0},
        {DT_HASH, 0, 0},
        {DT_RELA, DT_RELASZ, 0},
        {DT_JMPREL, DT_PLTRELSZ, 0},
        {DT_PLTGOT, 0, PF_W},
        {DT_INIT, 0, PF_X},
        {DT_FINI, 0, PF_X},
        {DT_INIT_ARRAY, DT_INIT_ARRAYSZ, 0},
        {DT_FINI_ARRAY, DT_FINI_ARRAYSZ, 0},
    };

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint64_t size = places[i].size_tag ? d->values[places[i].size_tag] : 1;

        if (d->has[places[i].tag] &&
            !load_of(d, d->values[places[i].tag], size, places[i].flags, true))
            return damaged(
                "its dynamic section points outside the loaded segments");
    }
    if (!has_pairs(d))
        return damaged("its dynamic section lacks the size or kind of a table");
    if (!d->has[DT_STRTAB] || !d->has[DT_SYMTAB] || d->values[DT_STRSZ] == 0)
        return damaged("it has no dynamic symbols");
    if ((d->has[DT_RELAENT] && d->values[DT_RELAENT] != sizeof(Elf64_Rela)) ||
        (d->has[DT_SYMENT] && d->values[DT_SYMENT] != sizeof(Elf64_Sym)) ||
        d->values[DT_RELASZ] % sizeof(Elf64_Rela) ||
        d->values[DT_INIT_ARRAYSZ] % 8 || d->values[DT_FINI_ARRAYSZ] % 8)
        return damaged("its dynamic section has tables with an unexpected size "
                       "of entries");
    return CORE_OK;
}

/* --------------------------------------------------------- relocations -- */

static bool in_array(const core__elf_dynamic *d, uint32_t tag,
                     uint32_t size_tag, uint64_t at)
{
    return d->has[tag] && at >= d->values[tag] &&
           at - d->values[tag] < d->values[size_tag];
}

static core_status check_relocation(core__elf_dynamic *d, const Elf64_Rela *one)
{
    uint64_t type = ELF64_R_TYPE(one->r_info);
    uint64_t symbol = ELF64_R_SYM(one->r_info);
    bool init = in_array(d, DT_INIT_ARRAY, DT_INIT_ARRAYSZ, one->r_offset);
    bool called =
        init || in_array(d, DT_FINI_ARRAY, DT_FINI_ARRAYSZ, one->r_offset);

    if (type == 0)
        return CORE_OK;
    if (!load_of(d, one->r_offset, 8, PF_W, false))
        return damaged("a relocation modifies read-only memory");
    if (d->symbols && symbol >= d->symbols)
        return damaged("a relocation refers to a symbol that does not exist");
    d->init_set += init;
    if ((int64_t)type == RELATIVE &&
        (one->r_addend < 0 || (uint64_t)one->r_addend > d->end))
        return damaged("a relocation points outside the loaded segments");
    if (((int64_t)type == RELATIVE && called) || (int64_t)type == INDIRECT)
        if (!load_of(d, (uint64_t)one->r_addend, 1, PF_X, true))
            return damaged("a relocation calls an address that is not code");
    return CORE_OK;
}

/* The first `count` must be RELATIVE, as the linker has declared. */
static core_status check_relative(const core__elf_dynamic *d,
                                  const Elf64_Rela *table, uint64_t count)
{
    uint64_t relative;

    core__elf_dynamic_value(d, DT_RELACOUNT, &relative);
    for (uint64_t i = 0; RELATIVE >= 0 && i < relative && i < count; i++)
        if ((int64_t)ELF64_R_TYPE(table[i].r_info) != RELATIVE)
            return damaged("its relocations are not in the declared order");
    return CORE_OK;
}

static core_status check_table(core__elf_dynamic *d, uint32_t tag,
                               uint32_t size_tag)
{
    uint64_t count = d->values[size_tag] / sizeof(Elf64_Rela);
    core_status status = CORE_OK;
    void *block;

    if (!d->has[tag] || count == 0)
        return CORE_OK;
    CORE_TRY(read_loaded(d, d->values[tag], count * sizeof(Elf64_Rela),
                         "its relocations are not loaded", &block));
    if (tag == DT_RELA)
        status = check_relative(d, block, count);
    for (uint64_t i = 0; i < count && status == CORE_OK; i++)
        status = check_relocation(d, &((Elf64_Rela *)block)[i]);
    core__free(block);
    return status;
}

static core_status check_dynamic(core__elf_dynamic *d)
{
    enum { RELR = 36 }; /* packed relocations, which older elf.h lack */

    CORE_TRY(check_places(d));
    /* Every linker puts the string table after the symbols. */
    if (d->values[DT_STRTAB] > d->values[DT_SYMTAB])
        d->symbols =
            (d->values[DT_STRTAB] - d->values[DT_SYMTAB]) / sizeof(Elf64_Sym);
    CORE_TRY(check_table(d, DT_RELA, DT_RELASZ));
    CORE_TRY(check_table(d, DT_JMPREL, DT_PLTRELSZ));
    if (RELATIVE >= 0 && !d->has[RELR] &&
        d->init_set != d->values[DT_INIT_ARRAYSZ] / 8)
        return damaged("its array of constructors is not relocated");
    return CORE_OK;
}

core_status core__elf_dynamic_check(const core__plugin_image *image)
{
    core__elf_dynamic *d;
    core_status status;

    CORE_TRY(core__elf_dynamic_read(image, &d));
    status = check_dynamic(d);
    core__elf_dynamic_free(d);
    return status;
}
