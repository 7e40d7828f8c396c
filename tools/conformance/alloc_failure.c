/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE /* link_map */

#include "alloc_failure.h"

#include "free_quarantine.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The allocation that fails, counted from now; 0: none does. */
static _Atomic uint64_t until;
static _Atomic bool fired;

static bool fails(void)
{
    uint64_t left = atomic_load(&until);

    while (left > 0)
        if (atomic_compare_exchange_weak(&until, &left, left - 1)) {
            if (left > 1)
                return false;
            atomic_store(&fired, true);
            errno = ENOMEM;
            return true;
        }
    return false;
}

static void *failing_malloc(size_t size)
{
    return fails() ? NULL : malloc(size);
}

static void *failing_calloc(size_t count, size_t size)
{
    return fails() ? NULL : calloc(count, size);
}

static void *failing_realloc(void *data, size_t size)
{
    return size > 0 && fails() ? NULL : realloc(data, size);
}

static void *failing_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : aligned_alloc(alignment, size);
}

static int failing_posix_memalign(void **out, size_t alignment, size_t size)
{
    return fails() ? ENOMEM : posix_memalign(out, alignment, size);
}

static char *failing_strdup(const char *text)
{
    return fails() ? NULL : strdup(text);
}

static const struct {
    const char *name;
    uintptr_t with;
} replaced[] = {
    {"malloc", (uintptr_t)failing_malloc},
    {"calloc", (uintptr_t)failing_calloc},
    {"realloc", (uintptr_t)failing_realloc},
    {"aligned_alloc", (uintptr_t)failing_aligned_alloc},
    {"posix_memalign", (uintptr_t)failing_posix_memalign},
    {"strdup", (uintptr_t)failing_strdup},
    {"free", (uintptr_t)quarantine_free},
};

/* ---------------------------------------------------------- relocations -- */

/* Tables that the dynamic section of a loaded object points to. */
typedef struct tables {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * lists[2];
    size_t counts[2];
} tables;

/* The dynamic linker has relocated most of these pointers, but not on every
 * platform. */
static const void *address(const tables *of, ElfW(Addr) value)
{
    return (const void *)(value < of->base ? of->base + value : value);
}

static void read_tables(const struct link_map *map, tables *out)
{
    memset(out, 0, sizeof *out);
    out->base = map->l_addr;
    for (const ElfW(Dyn) *at = map->l_ld; at->d_tag != DT_NULL; at++)
        switch (at->d_tag) {
        case DT_SYMTAB:
            out->symbols = address(out, at->d_un.d_ptr);
            break;
        case DT_STRTAB:
            out->names = address(out, at->d_un.d_ptr);
            break;
        case DT_RELA:
            out->lists[0] = address(out, at->d_un.d_ptr);
            break;
        case DT_RELASZ:
            out->counts[0] = at->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_JMPREL:
            out->lists[1] = address(out, at->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            out->counts[1] = at->d_un.d_val / sizeof(ElfW(Rela));
            break;
        default:
            break;
        }
}

static bool write_slot(uintptr_t *slot, uintptr_t value)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)slot & ~(page - 1);

    /* RELRO: the linker has made the page read-only. */
    if (mprotect((void *)start, page, PROT_READ | PROT_WRITE) != 0)
        return false;
    *slot = value;
    return true;
}

static size_t replace_all(const tables *of)
{
    size_t count = 0;

    for (int list = 0; list < 2; list++)
        for (size_t i = 0; of->lists[list] && i < of->counts[list]; i++) {
            const ElfW(Rela) *one = &of->lists[list][i];
            size_t symbol = one->r_info >> 32;
            const char *name = of->names + of->symbols[symbol].st_name;

            for (size_t k = 0; symbol && k < sizeof replaced / sizeof *replaced;
                 k++)
                if (strcmp(name, replaced[k].name) == 0)
                    count += write_slot((uintptr_t *)(of->base + one->r_offset),
                                        replaced[k].with);
        }
    return count;
}

bool alloc_failure_install(const char *plugin, outcome *out)
{
    static bool done;
    struct link_map *map = NULL;
    tables of;
    void *library;

    if (done)
        return true;
    library = dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
        harness_error(out, "the plugin is not among the loaded objects");
        return false;
    }
    read_tables(map, &of);
    if (!of.symbols || !of.names || replace_all(&of) == 0) {
        not_supported(out, "the plugin calls none of malloc, calloc, realloc, "
                           "aligned_alloc, posix_memalign, strdup and free");
        return false;
    }
    done = true;
    return true;
}

void alloc_failure_arm(uint64_t n)
{
    atomic_store(&fired, false);
    atomic_store(&until, n);
}

bool alloc_failure_disarm(void)
{
    atomic_store(&until, 0);
    return atomic_load(&fired);
}
