/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elf.h: reading ELF files without trusting them; shared by note.c and
 * symbols.c. */

#ifndef CORE_LOADER_ELF_H
#define CORE_LOADER_ELF_H

#include "loader/note.h"

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
    CORE__ELF_SEGMENTS = 256, /* more are taken for damage */
    CORE__ABI_MINOR_MIN = 1   /* the oldest minor that this libcore speaks */
};

/* False: not inside the file, or the file could not be read. */
bool core__image_read(const core__image *image, uint64_t offset, void *to,
                      uint64_t size);
/* Checks what identifies the file and that the segment table lies in it. */
core_status core__elf_header(const core__image *image, Elf64_Ehdr *out_header);
/* Checks that the segment's bytes lie in the file. */
core_status core__elf_segment(const core__image *image,
                              const Elf64_Ehdr *header, uint32_t index,
                              Elf64_Phdr *out_segment);
/* The dynamic section and relocations (dynamic.c); the segments are good. */
core_status core__dynamic_check(const core__image *image);

#endif
