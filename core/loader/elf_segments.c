/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How a file's segments lie in memory.  The dynamic linker trusts the segment
 * table: it clears what is behind a segment's bytes, in memory that it may not
 * write or that is another segment's, and the process is gone. */

#include "loader/elf.h"

enum { SPAN_LOG2 = 40 }; /* addresses that an object may take */

static core_status damaged(uint32_t index, const char *what)
{
    return core__error(CORE_ERROR_CORRUPT, "is damaged: segment %u %s", index,
                       what);
}

/* before: the end of those so far. */
static core_status check_load(const Elf64_Phdr *segment, uint32_t index,
                              uint64_t *before)
{
    uint64_t start = segment->p_vaddr;
    uint64_t align = segment->p_align;

    if (segment->p_memsz < segment->p_filesz)
        return damaged(index, "is smaller in memory than in the file");
    if (segment->p_memsz >> SPAN_LOG2 || start >> SPAN_LOG2)
        return damaged(index, "is too large, or too far away");
    if (align > 1 &&
        (align & (align - 1) || (start - segment->p_offset) % align))
        return damaged(index, "is not aligned as it says");
    if (start < *before)
        return damaged(index, "lies over the one before it");
    if (segment->p_memsz > segment->p_filesz && !(segment->p_flags & PF_W))
        return damaged(index, "wants more memory than bytes, and may not be "
                              "written");
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
        return core__error(CORE_ERROR_CORRUPT,
                           "is damaged: it has %u segments to load and %u "
                           "dynamic ones",
                           loads, dynamic);
    return core__dynamic_check(image);
}
