/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elf.h: reads ELF files without trusting them; shared by plugin_note.c,
 * elf_segments.c, elf_dynamic.c and elf_symbols.c. */

#ifndef CORE_LOADER_ELF_H
#define CORE_LOADER_ELF_H

#include "loader/plugin_note.h"

#include <elf.h>

#if defined __x86_64__
#define CORE__ELF_MACHINE EM_X86_64
#elif defined __aarch64__
#define CORE__ELF_MACHINE EM_AARCH64
#elif defined __riscv
#define CORE__ELF_MACHINE EM_RISCV
#elif defined __powerpc64__
#define CORE__ELF_MACHINE EM_PPC64
#elif defined __loongarch__
#define CORE__ELF_MACHINE 258 /* EM_LOONGARCH, which older elf.h lack */
#else
#error "add this machine's EM_ constant"
#endif

enum {
    CORE__ELF_SEGMENTS = 256, /* larger counts are taken for damage */
    CORE__ABI_MINOR_MIN = 1   /* the oldest minor that this libcore supports */
};

/* False if the range is not inside the file, or the file cannot be read. */
bool core__plugin_image_read(const core__plugin_image *image, uint64_t offset,
                             void *to, uint64_t size);
/* Checks the file's identification and that the segment table is inside it. */
core_status core__elf_header(const core__plugin_image *image,
                             Elf64_Ehdr *out_header);
/* Checks that the segment's bytes are inside the file. */
core_status core__elf_segment(const core__plugin_image *image,
                              const Elf64_Ehdr *header, uint32_t index,
                              Elf64_Phdr *out_segment);
/* Checks the dynamic section and relocations (elf_dynamic.c); the segments
 * have been checked. */
core_status core__elf_dynamic_check(const core__plugin_image *image);

/* ---------------------------------- the dynamic section: elf_dynamic.c -- */

enum { CORE__ELF_TAGS = DT_FLAGS + 8 }; /* small tags are indexed by number */

typedef struct core__elf_dynamic {
    const core__plugin_image *image;
    Elf64_Phdr loads[CORE__ELF_SEGMENTS];
    uint32_t nloads;
    Elf64_Dyn *entries; /* up to DT_NULL */
    uint64_t nentries;
    uint64_t values[CORE__ELF_TAGS];
    bool has[CORE__ELF_TAGS];
    uint64_t symbols;  /* number of symbols, derived from the table's position;
                        * 0: unknown */
    uint64_t end;      /* end of the loaded segments */
    uint64_t init_set; /* slots of the init array that a relocation fills */
} core__elf_dynamic;

/* Freed with core__elf_dynamic_free; NULL on failure. */
core_status core__elf_dynamic_read(const core__plugin_image *image,
                                   core__elf_dynamic **out);
void core__elf_dynamic_free(core__elf_dynamic *d);
/* The value of any tag; the last one counts. */
bool core__elf_dynamic_value(const core__elf_dynamic *d, int64_t tag,
                             uint64_t *out_value);
/* The segment that contains all of these bytes and has these flags; NULL:
 * none. */
const Elf64_Phdr *core__elf_dynamic_segment(const core__elf_dynamic *d,
                                            uint64_t address, uint64_t size,
                                            uint32_t flags, bool in_file);
/* A copy of loaded bytes, as they are in the file, followed by a 0. */
core_status core__elf_dynamic_copy_bytes(const core__elf_dynamic *d,
                                         uint64_t address, uint64_t size,
                                         const char *what, void **out);
core_status core__elf_dynamic_error(const char *what);

#endif
