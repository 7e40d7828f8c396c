/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/loader.h"

#include "loader/elf.h"
#include "loader/plugin_note.h"

#include <stdint.h>

static unsigned char *bytes;
static size_t size;

static void load_good(void)
{
    bytes = file_read(fixture("good"), &size);
}

static void free_good(void)
{
    free(bytes);
}

static core_status read_note(core_plugin_note *note)
{
    core__plugin_image image = core__plugin_image_of_bytes(bytes, size);

    return core__plugin_note_read(&image, note);
}

/* The note's content in the file. */
static core_plugin_note *note_in_file(void)
{
    static const char mark[] = "libcore\0LIBCORE";

    for (size_t i = 0; i + sizeof mark + sizeof(core_plugin_note) < size; i++)
        if (memcmp(bytes + i, mark, sizeof mark) == 0)
            return (void *)(bytes + i + 8);
    ck_abort_msg("no note in the fixture");
}

static void assert_bad(core_status code, const char *part)
{
    core_plugin_note note;

    ck_assert_int_eq(read_note(&note), code);
    assert_contains(core_error_message(), part);
}

START_TEST(good_note_is_read_completely)
{
    core_plugin_note note;

    ck_assert_int_eq(read_note(&note), CORE_OK);
    ck_assert_str_eq(note.name, "good");
    ck_assert_str_eq(note.vendor, "libcore tests");
    ck_assert_str_eq(note.license, "MIT-0");
    ck_assert_str_eq(note.device_types, "good");
    ck_assert_uint_eq(note.abi_major, CORE_ABI_MAJOR);
    ck_assert_int_eq(core__plugin_note_check_abi(&note), CORE_OK);
}
END_TEST

/* The end of the last segment: sections and debug information after it are not
 * needed to load the file. */
static size_t segments_end(void)
{
    Elf64_Ehdr *header = (void *)bytes;
    Elf64_Phdr *segments = (void *)(bytes + header->e_phoff);
    size_t end = 0;

    for (unsigned i = 0; i < header->e_phnum; i++)
        if (segments[i].p_offset + segments[i].p_filesz > end)
            end = segments[i].p_offset + segments[i].p_filesz;
    return end;
}

START_TEST(every_truncation_is_an_error)
{
    size_t end = segments_end(), step = end / 400 + 1;
    size_t length = end;

    ck_assert_uint_gt(end, 1000);
    while (length > 0) {
        core_plugin_note note;
        core__plugin_image image;
        unsigned char *part;

        length = length > step ? length - step : 0;
        /* A block of the exact size, so that a sanitizer detects reads beyond
         * its end. */
        part = malloc(length + 1);
        memcpy(part, bytes, length);
        image = core__plugin_image_of_bytes(part, length);
        ck_assert_int_eq(core__plugin_note_read(&image, &note),
                         CORE_ERROR_CORRUPT);
        free(part);
    }
}
END_TEST

START_TEST(empty_file_is_not_an_elf_file)
{
    size = 0;
    assert_bad(CORE_ERROR_CORRUPT, "not an ELF file");
}
END_TEST

START_TEST(another_machine_is_named)
{
    ((Elf64_Ehdr *)bytes)->e_machine = EM_S390;
    assert_bad(CORE_ERROR_INCOMPATIBLE, "another machine");
}
END_TEST

START_TEST(big_endian_is_refused)
{
    bytes[EI_DATA] = ELFDATA2MSB;
    assert_bad(CORE_ERROR_INCOMPATIBLE, "another machine");
}
END_TEST

START_TEST(program_is_not_a_plugin)
{
    ((Elf64_Ehdr *)bytes)->e_type = ET_EXEC;
    assert_bad(CORE_ERROR_CORRUPT, "not a shared object");
}
END_TEST

START_TEST(wrong_magic_is_refused)
{
    note_in_file()->magic[3] = 'X';
    assert_bad(CORE_ERROR_CORRUPT, "magic");
}
END_TEST

START_TEST(unknown_note_version_is_refused)
{
    note_in_file()->note_version = 9;
    assert_bad(CORE_ERROR_INCOMPATIBLE, "version 9");
}
END_TEST

START_TEST(note_of_another_owner_is_ignored)
{
    ((char *)note_in_file())[-8] = 'L';
    assert_bad(CORE_ERROR_NOT_FOUND, "no libcore note");
}
END_TEST

START_TEST(unterminated_name_is_refused)
{
    memset(note_in_file()->name, 'a', sizeof note_in_file()->name);
    assert_bad(CORE_ERROR_CORRUPT, "name");
}
END_TEST

START_TEST(name_with_invalid_characters_is_refused)
{
    note_in_file()->name[0] = '/';
    assert_bad(CORE_ERROR_CORRUPT, "name");
}
END_TEST

START_TEST(bytes_after_a_text_are_refused)
{
    core_plugin_note *note = note_in_file();

    note->vendor[sizeof note->vendor - 1] = 'x';
    assert_bad(CORE_ERROR_CORRUPT, "text");
}
END_TEST

START_TEST(malformed_device_types_are_refused)
{
    static const char *const wrong[] = {"a,,b", ",a", "a,", "A", "0a", "a b"};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *types = note_in_file()->device_types;

        memset(types, 0, sizeof note_in_file()->device_types);
        strcpy(types, wrong[i]);
        assert_bad(CORE_ERROR_CORRUPT, "device types");
    }
}
END_TEST

START_TEST(impossible_abi_range_is_refused)
{
    note_in_file()->abi_minor_min = 9;
    note_in_file()->abi_minor_max = 8;
    assert_bad(CORE_ERROR_CORRUPT, "ABI range: minor 9 to 8, reserved 0; the "
                                   "first must not exceed the second");
}
END_TEST

START_TEST(disjoint_abi_ranges_are_named)
{
    core_plugin_note note;

    note_in_file()->abi_major = CORE_ABI_MAJOR + 7;
    ck_assert_int_eq(read_note(&note), CORE_OK);
    ck_assert_int_eq(core__plugin_note_check_abi(&note),
                     CORE_ERROR_INCOMPATIBLE);
    assert_contains(core_error_message(), "this libcore offers");
}
END_TEST

static Elf64_Phdr *note_segment(void)
{
    Elf64_Ehdr *header = (void *)bytes;
    Elf64_Phdr *segments = (void *)(bytes + header->e_phoff);

    for (unsigned i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_NOTE)
            return &segments[i];
    ck_abort_msg("no note segment in the fixture");
}

START_TEST(huge_note_segment_is_not_read)
{
    note_segment()->p_filesz = UINT64_MAX - 8;
    assert_bad(CORE_ERROR_CORRUPT, "is outside the file");
}
END_TEST

START_TEST(note_sizes_near_the_integer_limit_do_not_wrap)
{
    uint32_t *header = (void *)(bytes + note_segment()->p_offset);

    header[0] = UINT32_MAX;
    header[1] = UINT32_MAX;
    assert_bad(CORE_ERROR_CORRUPT, "beyond its segment");
}
END_TEST

START_TEST(segment_table_beyond_the_end_is_refused)
{
    ((Elf64_Ehdr *)bytes)->e_phoff = UINT64_MAX - 16;
    assert_bad(CORE_ERROR_CORRUPT, "segment table");
}
END_TEST

/* The first segment to be loaded, or the first writable one. */
static Elf64_Phdr *load_segment(bool writable)
{
    Elf64_Ehdr *header = (void *)bytes;
    Elf64_Phdr *segments = (void *)(bytes + header->e_phoff);

    for (unsigned i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD &&
            (!writable || segments[i].p_flags & PF_W))
            return &segments[i];
    ck_abort_msg("no such segment in the fixture");
}

static void assert_segments(core_status code, const char *part)
{
    core__plugin_image image = core__plugin_image_of_bytes(bytes, size);

    ck_assert_int_eq(core__elf_segments_check(&image), code);
    if (code != CORE_OK)
        assert_contains(core_error_message(), part);
}

START_TEST(good_segments_are_accepted)
{
    assert_segments(CORE_OK, "");
    load_segment(true)->p_memsz += 4096; /* its tail is zero-filled */
    assert_segments(CORE_OK, "");
}
END_TEST

START_TEST(read_only_zero_filled_tail_is_refused)
{
    load_segment(false)->p_memsz += 16;
    assert_segments(CORE_ERROR_CORRUPT, "read-only");
}
END_TEST

START_TEST(overlapping_segments_are_refused)
{
    load_segment(false)->p_vaddr += UINT64_C(1) << 30;
    assert_segments(CORE_ERROR_CORRUPT, "overlaps the one before it");
}
END_TEST

START_TEST(impossible_segments_are_refused)
{
    Elf64_Phdr before = *load_segment(true);

    load_segment(true)->p_memsz = 0;
    assert_segments(CORE_ERROR_CORRUPT, "smaller in memory");
    *load_segment(true) = before;
    load_segment(true)->p_memsz = UINT64_MAX;
    assert_segments(CORE_ERROR_CORRUPT, "too large");
    *load_segment(true) = before;
    load_segment(true)->p_vaddr += 8;
    assert_segments(CORE_ERROR_CORRUPT, "not aligned");
    *load_segment(true) = before;
    load_segment(true)->p_align = 3;
    assert_segments(CORE_ERROR_CORRUPT, "not aligned");
    *load_segment(true) = before;
    for (unsigned i = 0; i < ((Elf64_Ehdr *)bytes)->e_phnum; i++) {
        Elf64_Phdr *one =
            (Elf64_Phdr *)(bytes + ((Elf64_Ehdr *)bytes)->e_phoff) + i;

        if (one->p_type == PT_DYNAMIC)
            one->p_type = PT_NULL;
    }
    assert_segments(CORE_ERROR_CORRUPT, "and 0 dynamic");
}
END_TEST

/* The bytes of the fixture's file at a virtual address. */
static void *at_address(uint64_t address)
{
    const Elf64_Ehdr *header = (void *)bytes;
    const Elf64_Phdr *segments = (void *)(bytes + header->e_phoff);

    for (unsigned i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && address >= segments[i].p_vaddr &&
            address - segments[i].p_vaddr < segments[i].p_filesz)
            return bytes + segments[i].p_offset + address - segments[i].p_vaddr;
    ck_abort_msg("0x%llx is not loaded", (unsigned long long)address);
}

static Elf64_Dyn *dynamic_entry(int64_t tag)
{
    const Elf64_Ehdr *header = (void *)bytes;
    const Elf64_Phdr *segments = (void *)(bytes + header->e_phoff);

    for (unsigned i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_DYNAMIC)
            for (Elf64_Dyn *d = (void *)(bytes + segments[i].p_offset);
                 d->d_tag != DT_NULL; d++)
                if (d->d_tag == tag)
                    return d;
    ck_abort_msg("no entry %lld in the fixture", (long long)tag);
}

START_TEST(dynamic_section_that_points_outside_is_refused)
{
    static const int64_t tags[] = {DT_STRTAB,     DT_SYMTAB, DT_RELA,
                                   DT_RELASZ,     DT_STRSZ,  DT_INIT_ARRAY,
                                   DT_FINI_ARRAY, DT_JMPREL};

    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        Elf64_Dyn *entry = dynamic_entry(tags[i]);
        uint64_t before = entry->d_un.d_val;

        entry->d_un.d_val = before + 24 * (UINT64_C(1) << 32);
        assert_segments(CORE_ERROR_CORRUPT, "is damaged");
        entry->d_un.d_val = before;
    }
    assert_segments(CORE_OK, "");
    dynamic_entry(DT_INIT)->d_un.d_val = dynamic_entry(DT_STRTAB)->d_un.d_val;
    assert_segments(CORE_ERROR_CORRUPT, "outside the loaded segments");
}
END_TEST

/* Otherwise the dynamic linker would crash the process. */
START_TEST(table_without_its_size_or_kind_is_refused)
{
    static const int64_t tags[] = {DT_STRSZ,        DT_RELASZ,
                                   DT_RELAENT,      DT_PLTRELSZ,
                                   DT_INIT_ARRAYSZ, DT_FINI_ARRAYSZ};

    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        Elf64_Dyn *entry = dynamic_entry(tags[i]);

        entry->d_tag = DT_DEBUG;
        assert_segments(CORE_ERROR_CORRUPT, "lacks the size or kind");
        entry->d_tag = tags[i];
    }
    assert_segments(CORE_OK, "");
    dynamic_entry(DT_PLTREL)->d_un.d_val = DT_REL;
    assert_segments(CORE_ERROR_CORRUPT, "lacks the size or kind");
}
END_TEST

static void assert_symbols(core_status code, const char *part)
{
    core__plugin_image image = core__plugin_image_of_bytes(bytes, size);

    ck_assert_int_eq(core__elf_symbols_check(&image), code);
    if (code != CORE_OK)
        assert_contains(core_error_message(), part);
}

START_TEST(names_outside_of_the_file_are_refused)
{
    Elf64_Dyn *needed = dynamic_entry(DT_NEEDED);
    uint64_t library = needed->d_un.d_val;
    Elf64_Sym *symbols = at_address(dynamic_entry(DT_SYMTAB)->d_un.d_val);
    Elf64_Verneed *version;
    uint32_t before = symbols[1].st_name, *hash;

    assert_symbols(CORE_OK, "");
    needed->d_un.d_val = UINT32_MAX;
    assert_symbols(CORE_ERROR_CORRUPT, "name of a library");
    needed->d_un.d_val = library;
    symbols[1].st_name = UINT32_MAX;
    assert_symbols(CORE_ERROR_CORRUPT, "name of a symbol");
    symbols[1].st_name = before;
    version = at_address(dynamic_entry(DT_VERNEED)->d_un.d_val);
    before = version->vn_file;
    version->vn_file = symbols[1].st_name;
    assert_symbols(CORE_ERROR_CORRUPT, "versions");
    version->vn_file = before;
    hash = at_address(dynamic_entry(DT_GNU_HASH)->d_un.d_val);
    hash[2] = 3;
    assert_symbols(CORE_ERROR_CORRUPT, "symbol hash table");
}
END_TEST

START_TEST(impossible_relocations_are_refused)
{
    Elf64_Rela *first = at_address(dynamic_entry(DT_RELA)->d_un.d_val);
    uint64_t array = dynamic_entry(DT_INIT_ARRAY)->d_un.d_val;
    uint64_t count = dynamic_entry(DT_RELASZ)->d_un.d_val / sizeof *first;
    Elf64_Rela before = *first, *called = first;

    first->r_offset = dynamic_entry(DT_STRTAB)->d_un.d_val;
    assert_segments(CORE_ERROR_CORRUPT, "read-only");
    first->r_offset = UINT64_MAX - 3;
    assert_segments(CORE_ERROR_CORRUPT, "read-only");
    *first = before;
    first->r_info = ELF64_R_INFO(UINT64_C(1) << 20, 1);
    assert_segments(CORE_ERROR_CORRUPT, "symbol that does not exist");
    *first = before;
    first->r_info = ELF64_R_INFO(0, 6); /* anything but RELATIVE */
    *dynamic_entry(DT_SONAME) = (Elf64_Dyn){DT_RELACOUNT, {1}};
    assert_segments(CORE_ERROR_CORRUPT, "not in the declared order");
    *first = before;
    dynamic_entry(DT_RELACOUNT)->d_un.d_val = 0;
    /* A linker that packs relocations (DT_RELR) emits none for the array. */
    while (called < first + count && called->r_offset != array)
        called++;
    if (called == first + count) {
        suite_skip("the linker packs relocations");
        return;
    }
    before = *called;
    called->r_addend = (int64_t)dynamic_entry(DT_STRTAB)->d_un.d_val;
    assert_segments(CORE_ERROR_CORRUPT, "calls an address that is not code");
    called->r_addend = INT64_C(1) << 41;
    assert_segments(CORE_ERROR_CORRUPT, "points outside");
    *called = before;
    called->r_info = 0;
    assert_segments(CORE_ERROR_CORRUPT, "constructors is not relocated");
}
END_TEST

START_TEST(good_symbols_are_accepted)
{
    core__plugin_image image = core__plugin_image_of_bytes(bytes, size);

    ck_assert_int_eq(core__elf_symbols_check(&image), CORE_OK);
}
END_TEST

/* Our own generator: the same corruptions on every machine. */
static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t random_next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* A place that is read: in headers, in notes, or anywhere. */
static size_t random_place(void)
{
    Elf64_Ehdr *header = (void *)bytes;
    Elf64_Phdr *note = note_segment();

    switch (random_next() % 4) {
    case 0:
        return random_next() % sizeof *header;
    case 1:
        return header->e_phoff +
               random_next() % (header->e_phnum * sizeof(Elf64_Phdr));
    case 2:
        return note->p_offset + random_next() % note->p_filesz;
    default:
        return random_next() % size;
    }
}

/* A place in the note's content, all of which is checked. */
static size_t random_note_place(void)
{
    return (size_t)((unsigned char *)note_in_file() - bytes) +
           random_next() % sizeof(core_plugin_note);
}

/* Each corrupted file is refused with a reason, or was changed where nothing is
 * read.  Returns how many were refused. */
static int corrupt(int rounds, size_t (*place)(void), bool cut)
{
    static const unsigned char edges[] = {0, 1, 0x7f, 0x80, 0xff};
    int refused = 0;

    for (int round = 0; round < rounds; round++) {
        uint64_t changes = 1 + random_next() % 8;
        size_t length =
            cut && random_next() % 4 == 0 ? random_next() % size : size;
        unsigned char *copy = malloc(length + 1);
        core_plugin_note note;
        core__plugin_image image;
        core_status status;

        memcpy(copy, bytes, length);
        for (uint64_t k = 0; k < changes; k++) {
            size_t at = place();

            if (at < length)
                copy[at] = random_next() % 2
                               ? (unsigned char)random_next()
                               : edges[random_next() % sizeof edges];
        }
        /* The block ends where the file ends. */
        copy = realloc(copy, length ? length : 1);
        image = core__plugin_image_of_bytes(copy, length);
        core_error_clear();
        status = core__plugin_note_read(&image, &note);
        if (status == CORE_OK)
            status = core__plugin_note_check_abi(&note);
        /* All readers, each with what the previous ones accepted. */
        if (status == CORE_OK)
            status = core__elf_segments_check(&image);
        else
            core__elf_segments_check(&image);
        if (status == CORE_OK)
            status = core__elf_symbols_check(&image);
        else
            core__elf_symbols_check(&image);
        refused += status != CORE_OK;
        if (status != CORE_OK)
            ck_assert_str_ne(core_error_message(), "");
        free(copy);
    }
    return refused;
}

START_TEST(ten_thousand_corrupted_files_never_crash)
{
    ck_assert_int_gt(corrupt(10000, random_place, true), 4000);
}
END_TEST

START_TEST(ten_thousand_corrupted_notes_never_crash)
{
    ck_assert_int_gt(corrupt(10000, random_note_place, false), 9000);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        good_note_is_read_completely,
        every_truncation_is_an_error,
        empty_file_is_not_an_elf_file,
        another_machine_is_named,
        big_endian_is_refused,
        program_is_not_a_plugin,
        wrong_magic_is_refused,
        unknown_note_version_is_refused,
        note_of_another_owner_is_ignored,
        unterminated_name_is_refused,
        name_with_invalid_characters_is_refused,
        bytes_after_a_text_are_refused,
        malformed_device_types_are_refused,
        impossible_abi_range_is_refused,
        disjoint_abi_ranges_are_named,
        huge_note_segment_is_not_read,
        note_sizes_near_the_integer_limit_do_not_wrap,
        segment_table_beyond_the_end_is_refused,
        good_segments_are_accepted,
        read_only_zero_filled_tail_is_refused,
        overlapping_segments_are_refused,
        impossible_segments_are_refused,
        dynamic_section_that_points_outside_is_refused,
        table_without_its_size_or_kind_is_refused,
        names_outside_of_the_file_are_refused,
        impossible_relocations_are_refused,
        good_symbols_are_accepted,
        ten_thousand_corrupted_files_never_crash,
        ten_thousand_corrupted_notes_never_crash,
    };
    const test_suite suite = {
        .name = "loader/plugin_note",
        .setup = load_good,
        .teardown = free_good,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
