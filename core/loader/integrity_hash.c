/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The checksum of a plugin's file, called its seal.  It covers everything that
 * the dynamic linker reads or maps, and nothing else: debug information is
 * several times larger than the code, `strip` removes it, and damage in it is
 * harmless for callers of the plugin. */

#include "base/checksum.h"
#include "base/memory.h"
#include "loader/elf.h"

#include <libcore/plugins.h>

enum { CHUNK = 64 << 10 };

static core_status unreadable(void)
{
    return core__error(
        CORE_ERROR_IO,
        "cannot be read to its end: it is being changed, or its disk fails");
}

/* Clears those of the `size` bytes read at an offset of the file that belong
 * to the seal, which is checked separately. */
static void blank(const core__seal *seal, uint8_t *bytes, uint64_t at,
                  uint64_t size)
{
    uint64_t from = seal->at, to = from + sizeof seal->content;

    from = from < at ? at : from;
    to = to > at + size ? at + size : to;
    if (from < to)
        memset(bytes + (from - at), 0, to - from);
}

static core_status add_range(const core__image *image, const core__seal *seal,
                             uint64_t at, uint64_t end, uint8_t *buffer,
                             core__checksum *sum)
{
    while (at < end) {
        uint64_t size = end - at < CHUNK ? end - at : CHUNK;

        if (!core__image_read(image, at, buffer, size))
            return unreadable();
        blank(seal, buffer, at, size);
        core__checksum_add(sum, buffer, size);
        at += size;
    }
    return CORE_OK;
}

/* The position of the section table is left out, because no loader reads it. */
static core_status add_header(const core__image *image, Elf64_Ehdr *header,
                              core__checksum *sum)
{
    Elf64_Ehdr loaded;

    CORE_TRY(core__elf_header(image, header));
    loaded = *header;
    loaded.e_shoff = 0;
    loaded.e_shnum = loaded.e_shstrndx = loaded.e_shentsize = 0;
    core__checksum_add(sum, &loaded, sizeof loaded);
    return CORE_OK;
}

static core_status add_file(const core__image *image, const core__seal *seal,
                            uint8_t *buffer, core__checksum *sum)
{
    Elf64_Ehdr header;

    CORE_TRY(add_header(image, &header, sum));
    CORE_TRY(add_range(image, seal, header.e_phoff,
                       header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr),
                       buffer, sum));
    for (uint32_t i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        uint64_t from;

        CORE_TRY(core__elf_segment(image, &header, i, &segment));
        from = segment.p_offset;
        if (from < sizeof header)
            from = sizeof header; /* already included */
        if (segment.p_type == PT_LOAD)
            CORE_TRY(add_range(image, seal, from,
                               segment.p_offset + segment.p_filesz, buffer,
                               sum));
    }
    return CORE_OK;
}

core_status core__seal_compute(const core__image *image, const core__seal *seal,
                               core_plugin_seal *out_content)
{
    uint8_t *buffer = core__alloc(CHUNK);
    core_status status;
    core__checksum sum;

    memset(out_content, 0, sizeof *out_content);
    memcpy(out_content->mark, "SEALED", 6);
    if (!buffer)
        return core__error_memory(CHUNK);
    core__checksum_begin(&sum, false);
    status = add_file(image, seal, buffer, &sum);
    memcpy(out_content->size, &sum.bytes, sizeof sum.bytes);
    core__checksum_end(&sum, out_content->sum);
    core__free(buffer);
    return status;
}

uint32_t core__seal_kind(const core__seal *seal)
{
    if (core__seal_closed(seal))
        return CORE_PLUGIN_SEALED;
    return seal->at > 0 ? CORE_PLUGIN_UNSEALED : CORE_PLUGIN_WITHOUT_SEAL;
}

core_status core__seal_check(const core__image *image, const core__seal *seal)
{
    core_plugin_seal is;

    if (!core__seal_closed(seal))
        return CORE_OK;
    CORE_TRY(core__seal_compute(image, seal, &is));
    if (memcmp(&is, &seal->content, sizeof is) != 0)
        return core__error(CORE_ERROR_CORRUPT,
                           "does not match its seal: it is damaged, or was "
                           "changed afterwards; if you changed it, seal it "
                           "again (core-info --seal FILE)");
    return CORE_OK;
}
