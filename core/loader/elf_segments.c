/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks how a file's segments are laid out in memory.  The dynamic linker
 * trusts the segment table: it clears the memory after a segment's bytes, even
 * if it is read-only or another segment's, which would crash the process. */

#include "loader/elf.h"

enum { SPAN_LOG2 = 40 }; /* address space that an object may occupy */

static core_status damaged(uint32_t index, const char *what)
{
    return core__error(CORE_ERROR_CORRUPT, "is damaged: segment %u %s", index,
                       what);
}

/* before: the end of the previous segments. */
static core_status check_load(const Elf64_Phdr *segment, uint32_t index,
                              uint64_t *before)
{
    uint64_t start = segment->p_vaddr;
    uint64_t align = segment->p_align;

    if (segment->p_memsz < segment->p_filesz)
        return damaged(index, "is smaller in memory than in the file");
    if (segment->p_memsz >> SPAN_LOG2 || start >> SPAN_LOG2)
        return damaged(index, "is too large, or its address is too high");
    if (align > 1 &&
        (align & (align - 1) || (start - segment->p_offset) % align))
        return damaged(index, "is not aligned as declared");
    if (start < *before)
        return damaged(index, "overlaps the one before it");
    if (segment->p_memsz > segment->p_filesz && !(segment->p_flags & PF_W))
        return damaged(index,
                       "is larger in memory than in the file, but read-only");
    *before = start + segment->p_memsz;
    return CORE_OK;
}

core_status core__segments_check(const core__image *image)
{
    uint64_t end = 0;
    uint32_t loads = 0, dynamic = 0;
    Elf64_Ehdr header;

    CORE_TRY(core__elf_header(image, &header));
    for (uint32_t i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;

        CORE_TRY(core__elf_segment(image, &header, i, &segment));
        if (segment.p_type == PT_LOAD) {
            loads++;
            CORE_TRY(check_load(&segment, i, &end));
        }
        dynamic += segment.p_type == PT_DYNAMIC;
    }
    if (loads == 0 || dynamic != 1)
        return core__error(
            CORE_ERROR_CORRUPT,
            "is damaged: it has %u loadable and %u dynamic segments", loads,
            dynamic);
    return core__dynamic_check(image);
}
