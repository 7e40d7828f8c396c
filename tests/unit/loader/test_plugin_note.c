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
    core__image image = core__image_bytes(bytes, size);

    return core__note_read(&image, note);
}

/* Where the note's content lies in the file. */
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

START_TEST(a_good_note_is_read_whole)
{
    core_plugin_note note;

    ck_assert_int_eq(read_note(&note), CORE_OK);
    ck_assert_str_eq(note.name, "good");
    ck_assert_str_eq(note.vendor, "libcore tests");
    ck_assert_str_eq(note.license, "MIT-0");
    ck_assert_str_eq(note.device_types, "good");
    ck_assert_uint_eq(note.abi_major, CORE_ABI_MAJOR);
    ck_assert_int_eq(core__note_check_abi(&note), CORE_OK);
}
END_TEST

/* Where the last segment ends: what lies behind it, sections and debug
 * information, is not needed to run the file. */
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
        core__image image;
        unsigned char *part;

        length = length > step ? length - step : 0;
        /* Its own block, so that a sanitizer sees a read behind its end. */
        part = malloc(length + 1);
        memcpy(part, bytes, length);
        image = core__image_bytes(part, length);
        ck_assert_int_eq(core__note_read(&image, &note), CORE_ERROR_CORRUPT);
        free(part);
    }
}
END_TEST

START_TEST(an_empty_file_is_no_elf_file)
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

START_TEST(a_program_is_no_plugin)
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

START_TEST(another_owner_is_not_our_note)
{
    ((char *)note_in_file())[-8] = 'L';
    assert_bad(CORE_ERROR_NOT_FOUND, "no note of libcore");
}
END_TEST

START_TEST(name_without_end_is_refused)
{
    memset(note_in_file()->name, 'a', sizeof note_in_file()->name);
    assert_bad(CORE_ERROR_CORRUPT, "name");
}
END_TEST

START_TEST(name_with_other_characters_is_refused)
{
    note_in_file()->name[0] = '/';
    assert_bad(CORE_ERROR_CORRUPT, "name");
}
END_TEST

START_TEST(bytes_behind_a_text_are_refused)
{
    core_plugin_note *note = note_in_file();

    note->vendor[sizeof note->vendor - 1] = 'x';
    assert_bad(CORE_ERROR_CORRUPT, "text");
}
END_TEST

START_TEST(device_types_are_words)
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
    note_in_file()->abi_minor_min = note_in_file()->abi_minor_max + 1;
    assert_bad(CORE_ERROR_CORRUPT, "ABI range");
}
END_TEST

START_TEST(abi_ranges_that_do_not_meet_are_named)
{
    core_plugin_note note;

    note_in_file()->abi_major = CORE_ABI_MAJOR + 7;
    ck_assert_int_eq(read_note(&note), CORE_OK);
    ck_assert_int_eq(core__note_check_abi(&note), CORE_ERROR_INCOMPATIBLE);
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
    assert_bad(CORE_ERROR_CORRUPT, "does not lie in the file");
}
END_TEST

START_TEST(note_sizes_near_the_end_of_numbers_do_not_wrap)
{
    uint32_t *header = (void *)(bytes + note_segment()->p_offset);

    header[0] = UINT32_MAX;
    header[1] = UINT32_MAX;
    assert_bad(CORE_ERROR_CORRUPT, "past its segment");
}
END_TEST

START_TEST(segment_table_behind_the_end_is_refused)
{
    ((Elf64_Ehdr *)bytes)->e_phoff = UINT64_MAX - 16;
    assert_bad(CORE_ERROR_CORRUPT, "segment table");
}
END_TEST

/* The first segment to load, or the first that may be written. */
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
    core__image image = core__image_bytes(bytes, size);

    ck_assert_int_eq(core__segments_check(&image), code);
    if (code != CORE_OK)
        assert_contains(core_error_message(), part);
}

START_TEST(good_segments_are_accepted)
{
    assert_segments(CORE_OK, "");
    load_segment(true)->p_memsz += 4096; /* its tail is cleared */
    assert_segments(CORE_OK, "");
}
END_TEST

START_TEST(a_tail_that_may_not_be_written_is_refused)
{
    load_segment(false)->p_memsz += 16;
    assert_segments(CORE_ERROR_CORRUPT, "may not be written");
}
END_TEST

START_TEST(segments_over_each_other_are_refused)
{
    load_segment(false)->p_vaddr += UINT64_C(1) << 30;
    assert_segments(CORE_ERROR_CORRUPT, "lies over the one before it");
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

/* What the fixture's file has for an address. */
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

START_TEST(a_dynamic_section_that_points_elsewhere_is_refused)
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
    assert_segments(CORE_ERROR_CORRUPT, "outside of what is loaded");
}
END_TEST

/* The dynamic linker ends the process where these are not so. */
START_TEST(a_table_without_its_size_or_kind_is_refused)
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
    core__image image = core__image_bytes(bytes, size);

    ck_assert_int_eq(core__symbols_check(&image), code);
    if (code != CORE_OK)
        assert_contains(core_error_message(), part);
}

START_TEST(names_that_lie_elsewhere_are_refused)
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
    assert_symbols(CORE_ERROR_CORRUPT, "symbols by name");
}
END_TEST

START_TEST(relocations_that_cannot_be_are_refused)
{
    Elf64_Rela *first = at_address(dynamic_entry(DT_RELA)->d_un.d_val);
    uint64_t array = dynamic_entry(DT_INIT_ARRAY)->d_un.d_val;
    uint64_t count = dynamic_entry(DT_RELASZ)->d_un.d_val / sizeof *first;
    Elf64_Rela before = *first, *called = first;

    first->r_offset = dynamic_entry(DT_STRTAB)->d_un.d_val;
    assert_segments(CORE_ERROR_CORRUPT, "may not be written");
    first->r_offset = UINT64_MAX - 3;
    assert_segments(CORE_ERROR_CORRUPT, "may not be written");
    *first = before;
    first->r_info = ELF64_R_INFO(UINT64_C(1) << 20, 1);
    assert_segments(CORE_ERROR_CORRUPT, "symbol that there is not");
    *first = before;
    first->r_info = ELF64_R_INFO(0, 6); /* anything but RELATIVE */
    *dynamic_entry(DT_SONAME) = (Elf64_Dyn){DT_RELACOUNT, {1}};
    assert_segments(CORE_ERROR_CORRUPT, "not in the order");
    *first = before;
    dynamic_entry(DT_RELACOUNT)->d_un.d_val = 0;
    /* A linker that packs relocations (DT_RELR) has none for the array. */
    while (called < first + count && called->r_offset != array)
        called++;
    if (called == first + count) {
        suite_skip("the linker packs relocations");
        return;
    }
    before = *called;
    called->r_addend = (int64_t)dynamic_entry(DT_STRTAB)->d_un.d_val;
    assert_segments(CORE_ERROR_CORRUPT, "calls what is no code");
    called->r_addend = INT64_C(1) << 41;
    assert_segments(CORE_ERROR_CORRUPT, "points outside");
    *called = before;
    called->r_info = 0;
    assert_segments(CORE_ERROR_CORRUPT, "constructors is not relocated");
}
END_TEST

START_TEST(good_symbols_are_accepted)
{
    core__image image = core__image_bytes(bytes, size);

    ck_assert_int_eq(core__symbols_check(&image), CORE_OK);
}
END_TEST

/* A generator of our own: the same corruptions on every machine. */
static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t random_next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Where something that is read lies: headers, notes, or anywhere. */
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

/* In the note's content, where all that is judged lies. */
static size_t random_note_place(void)
{
    return (size_t)((unsigned char *)note_in_file() - bytes) +
           random_next() % sizeof(core_plugin_note);
}

/* Each is refused with a reason, or was changed where nobody looks.  How many
 * were refused. */
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
        core__image image;
        core_status status;

        memcpy(copy, bytes, length);
        for (uint64_t k = 0; k < changes; k++) {
            size_t at = place();

            if (at < length)
                copy[at] = random_next() % 2
                               ? (unsigned char)random_next()
                               : edges[random_next() % sizeof edges];
        }
        /* The block ends where the file does. */
        copy = realloc(copy, length ? length : 1);
        image = core__image_bytes(copy, length);
        core_error_clear();
        status = core__note_read(&image, &note);
        if (status == CORE_OK)
            status = core__note_check_abi(&note);
        /* All readers, each with whatever there is. */
        if (status == CORE_OK)
            status = core__segments_check(&image);
        else
            core__segments_check(&image);
        if (status == CORE_OK)
            status = core__symbols_check(&image);
        else
            core__symbols_check(&image);
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
        a_good_note_is_read_whole,
        every_truncation_is_an_error,
        an_empty_file_is_no_elf_file,
        another_machine_is_named,
        big_endian_is_refused,
        a_program_is_no_plugin,
        wrong_magic_is_refused,
        unknown_note_version_is_refused,
        another_owner_is_not_our_note,
        name_without_end_is_refused,
        name_with_other_characters_is_refused,
        bytes_behind_a_text_are_refused,
        device_types_are_words,
        impossible_abi_range_is_refused,
        abi_ranges_that_do_not_meet_are_named,
        huge_note_segment_is_not_read,
        note_sizes_near_the_end_of_numbers_do_not_wrap,
        segment_table_behind_the_end_is_refused,
        good_segments_are_accepted,
        a_tail_that_may_not_be_written_is_refused,
        segments_over_each_other_are_refused,
        impossible_segments_are_refused,
        a_dynamic_section_that_points_elsewhere_is_refused,
        a_table_without_its_size_or_kind_is_refused,
        names_that_lie_elsewhere_are_refused,
        relocations_that_cannot_be_are_refused,
        good_symbols_are_accepted,
        ten_thousand_corrupted_files_never_crash,
        ten_thousand_corrupted_notes_never_crash,
    };
    const test_suite suite = {
        .name = "loader/note",
        .setup = load_good,
        .teardown = free_good,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
