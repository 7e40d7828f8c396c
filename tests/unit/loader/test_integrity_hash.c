/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Sealed files, damaged in every way, and loaded: either the loaded bytes are
 * as they were sealed, or the load fails with a reason, and the process never
 * crashes. */

#define SUITE_FORKS true

#include "support/effort.h"
#include "support/loader.h"

#include "loader/elf.h"
#include "loader/quarantine.h"

#include <libcore/device.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static path_text path;
static unsigned char *sound; /* the sealed file */
static size_t size;
static size_t seal_at;

static size_t seal_place(const unsigned char *file, size_t file_size)
{
    core__plugin_image image = core__plugin_image_of_bytes(file, file_size);
    core_plugin_note note;
    core__integrity_seal seal;

    ck_assert_int_eq(core__plugin_note_read_sealed(&image, &note, &seal),
                     CORE_OK);
    ck_assert_uint_gt(seal.at, 0);
    return seal.at;
}

static void seal_file(const char *file)
{
    ck_assert_msg(core_plugin_seal_file(file) == CORE_OK, "%s",
                  core_error_message());
}

static void prepare(void)
{
    folder_make();
    strcpy(path, install("good", "core_good.so"));
    seal_file(path);
    sound = file_read(path, &size);
    seal_at = seal_place(sound, size);
}

static void clean(void)
{
    free(sound);
    folder_remove();
}

/* ------------------------------------------------------------- loading -- */

typedef enum outcome { LOADED, REFUSED, SILENT, CRASHED } outcome;

static outcome outcome_of_child(pid_t child)
{
    int status;

    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > SILENT)
        return CRASHED;
    return (outcome)WEXITSTATUS(status);
}

/* In a child process: loads the file, and finds its device. */
static outcome load(const char *file)
{
    pid_t child = fork();

    if (child == 0) {
        core_device *device;

        if (core_plugin_load(file, NULL) == CORE_OK)
            _exit(core_device_find("good", &device) == CORE_OK ? LOADED
                                                               : SILENT);
        _exit(*core_error_message() ? REFUSED : SILENT);
    }
    return outcome_of_child(child);
}

static void assert_refused_for(const unsigned char *bytes, size_t count,
                               const char *why)
{
    file_write(path, bytes, count);
    ck_assert_int_eq(load(path), REFUSED);
    ck_assert_int_ne(core_plugin_load(path, NULL), CORE_OK);
    assert_contains(core_error_message(), why);
}

static const char broken[] = "does not match its seal";

static core_plugin_information information(void)
{
    return entry_of("/core_good.so");
}

START_TEST(sealed_file_loads_and_is_listed_as_sealed)
{
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    ck_assert_uint_eq(information().seal, CORE_PLUGIN_SEALED);
    ck_assert_int_eq(core_plugin_load(path, NULL), CORE_OK);
    ck_assert_uint_eq(information().state, CORE_PLUGIN_LOADED);
    ck_assert_uint_eq(information().seal, CORE_PLUGIN_SEALED);
}
END_TEST

START_TEST(unsealed_file_loads)
{
    install("good", "core_good.so");
    ck_assert_int_eq(core_plugin_load(path, NULL), CORE_OK);
    ck_assert_uint_eq(information().seal, CORE_PLUGIN_UNSEALED);
}
END_TEST

/* Headers of 0.1 have no seal. */
START_TEST(plugin_of_0_1_without_a_seal_loads)
{
    const char *build = getenv("LIBCORE_BUILD");
    path_text old;

    snprintf(old, sizeof old, "%s/tests/abi/.libs/core_abi_0_1.so",
             build ? build : ".");
    ck_assert_int_eq(core_plugin_seal_file(old), CORE_ERROR_UNSUPPORTED);
    assert_contains(core_error_message(), "no space for a seal");
    ck_assert_msg(core_plugin_load(old, NULL) == CORE_OK, "%s",
                  core_error_message());
    ck_assert_uint_eq(entry_of("/core_abi_0_1.so").seal,
                      CORE_PLUGIN_WITHOUT_SEAL);
}
END_TEST

/* -------------------------------------------------------------- damage -- */

/* What strip and similar tools may change. */
static void forget_sections(unsigned char *file)
{
    Elf64_Ehdr header;

    memcpy(&header, file, sizeof header);
    header.e_shoff = 0;
    header.e_shentsize = header.e_shnum = header.e_shstrndx = 0;
    memcpy(file, &header, sizeof header);
}

/* Whether the loaded bytes are unchanged.  Decided independently of the
 * loader's code, by the segments of the sound file. */
static bool harmless(const unsigned char *bytes, size_t count)
{
    unsigned char *copy = calloc(1, size), *whole = malloc(size);
    bool same;

    memcpy(copy, bytes, count < size ? count : size);
    memcpy(whole, sound, size);
    forget_sections(copy);
    forget_sections(whole);
    Elf64_Ehdr *header = (void *)whole;
    Elf64_Phdr *segments = (void *)(whole + header->e_phoff);

    same = memcmp(copy, whole, sizeof *header) == 0 &&
           memcmp(copy + header->e_phoff, segments,
                  header->e_phnum * sizeof *segments) == 0;
    for (uint32_t i = 0; same && i < header->e_phnum; i++) {
        uint64_t at = segments[i].p_offset, part = segments[i].p_filesz;

        if (segments[i].p_type == PT_LOAD)
            same =
                at + part <= count && memcmp(copy + at, whole + at, part) == 0;
    }
    free(copy);
    free(whole);
    return same;
}

/* By reading alone, without loading. */
static core_status check(const unsigned char *bytes, size_t count)
{
    core__plugin_image image = core__plugin_image_of_bytes(bytes, count);
    core_plugin_note note;
    core__integrity_seal seal;

    CORE_TRY(core__plugin_note_read_sealed(&image, &note, &seal));
    ck_assert(core__integrity_seal_is_set(&seal));
    return core__integrity_seal_check(&image, &seal);
}

START_TEST(every_loaded_bit_is_covered_by_the_seal)
{
    size_t found = 0;

    for (size_t bit = 0; bit < size * 8; bit++) {
        unsigned char kept = sound[bit / 8], other;
        bool good;

        sound[bit / 8] ^= (unsigned char)(1u << bit % 8);
        good = check(sound, size) == CORE_OK;
        other = sound[bit / 8];
        sound[bit / 8] = kept;
        found += !good;
        if (!good)
            continue;
        unsigned char *copy = malloc(size);

        memcpy(copy, sound, size);
        copy[bit / 8] = other;
        ck_assert_msg(harmless(copy, size), "bit %zu was not found", bit);
        free(copy);
    }
    /* at least an eighth of the file is loaded */
    ck_assert_uint_gt(found, size);
}
END_TEST

/* Our own generator: the same damage on every machine. */
static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

static size_t random_below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

/* Damages a copy like disks, memory and copying do; returns its new size, at
 * most twice the old one. */
static size_t damage(unsigned char *copy)
{
    size_t at = random_below(size), part = 512u << random_below(4);

    switch (random_below(8)) {
    case 0: /* one bit */
        copy[at] ^= (unsigned char)(1u << random_below(8));
        return size;
    case 1: /* bytes, anywhere */
        for (size_t k = random_below(16) + 1; k > 0; k--)
            copy[random_below(size)] = (unsigned char)random_below(256);
        return size;
    case 2: /* bytes of headers */
        for (size_t k = random_below(8) + 1; k > 0; k--)
            copy[random_below(1024)] = (unsigned char)random_below(256);
        return size;
    case 3: /* bytes of the note and the seal */
        for (size_t k = random_below(4) + 1; k > 0; k--)
            copy[seal_at - 340 + random_below(372)] =
                (unsigned char)random_below(256);
        return size;
    case 4: /* a sector that was never written */
        at -= at % part;
        memset(copy + at, 0, at + part < size ? part : size - at);
        return size;
    case 5: /* one sector overwritten by another */
        at -= at % part;
        memmove(copy + at, copy + random_below(size / part) * part,
                at + part < size ? part : size - at);
        return size;
    case 6: /* truncated */
        return random_below(size);
    default: /* one extra byte */
        memmove(copy + at + 1, copy + at, size - at);
        return size + 1;
    }
}

typedef struct counts {
    int of[CRASHED + 1];
    int unsound; /* loaded, although it is not what was sealed */
} counts;

/* A child continues until it has loaded a file or crashed, and reports each
 * outcome except a crash. */
static int child_loads(int from, int rounds, const uint64_t *seeds, int answers)
{
    unsigned char *copy = malloc(size * 2);

    for (int round = from; round < rounds; round++) {
        outcome is;
        size_t count;
        char says[2];

        memcpy(copy, sound, size);
        state = seeds[round];
        count = damage(copy);
        file_write(path, copy, count);
        is = core_plugin_load(path, NULL) == CORE_OK ? LOADED
             : *core_error_message()                 ? REFUSED
                                                     : SILENT;
        says[0] = (char)is;
        says[1] = is == LOADED && !harmless(copy, count);
        if (write(answers, says, 2) != 2)
            _exit(1);
        if (is == LOADED)
            break;
    }
    _exit(0);
}

static int run_child(int from, int rounds, const uint64_t *seeds,
                     counts *totals)
{
    int ends[2], status, done = from;
    char says[2];
    pid_t child;

    ck_assert_int_eq(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        close(ends[0]);
        child_loads(from, rounds, seeds, ends[1]);
    }
    close(ends[1]);
    while (read(ends[0], says, 2) == 2) {
        totals->of[(int)says[0]]++;
        totals->unsound += says[1];
        done++;
    }
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        totals->of[CRASHED]++;
        done++;
    }
    return done;
}

/* Removes from the sound file what is not loaded: most damage would otherwise
 * hit its debug information. */
static void cut_to_what_is_loaded(void)
{
    Elf64_Ehdr *header = (void *)sound;
    Elf64_Phdr *segments = (void *)(sound + header->e_phoff);

    size = 0;
    for (uint32_t i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD &&
            segments[i].p_offset + segments[i].p_filesz > size)
            size = segments[i].p_offset + segments[i].p_filesz;
}

/* LIBCORE_CORRUPTIONS=N tries more of them. */
START_TEST(damaged_files_never_crash_the_loader)
{
    const char *wanted = getenv("LIBCORE_CORRUPTIONS");
    int rounds = wanted ? atoi(wanted) : effort_is_slow() ? 2000 : 10000;
    uint64_t *seeds = calloc((size_t)rounds, sizeof *seeds);
    counts totals = {0};

    cut_to_what_is_loaded();
    for (int round = 0; round < rounds; round++) {
        random_below(1);
        seeds[round] = state;
    }
    for (int round = 0; round < rounds;)
        round = run_child(round, rounds, seeds, &totals);
    free(seeds);
    if (wanted)
        printf("# %d damaged files: %d refused, %d loaded as nothing that is "
               "loaded was damaged\n",
               rounds, totals.of[REFUSED], totals.of[LOADED]);
    ck_assert_int_eq(totals.of[CRASHED], 0);
    ck_assert_int_eq(totals.of[SILENT], 0);
    ck_assert_int_eq(totals.unsound, 0);
    ck_assert_int_gt(totals.of[REFUSED], rounds / 4 * 3);
    ck_assert_int_eq(totals.of[REFUSED] + totals.of[LOADED], rounds);
}
END_TEST

START_TEST(truncated_file_is_refused)
{
    for (size_t count = 0; count < size; count += 509)
        if (!harmless(sound, count)) {
            file_write(path, sound, count);
            ck_assert_int_ne(core_plugin_load(path, NULL), CORE_OK);
            ck_assert_str_ne(core_error_message(), "");
        }
    assert_refused_for(sound, seal_at + 4096, "truncated?");
}
END_TEST

/* Bytes after the end are never loaded. */
START_TEST(file_with_appended_bytes_loads)
{
    unsigned char *copy = calloc(1, size + 5000);

    memcpy(copy, sound, size);
    file_write(path, copy, size + 5000);
    ck_assert_int_eq(load(path), LOADED);
    free(copy);
}
END_TEST

START_TEST(seal_of_another_file_is_refused)
{
    size_t other_size;
    unsigned char *other;

    seal_file(install("crashing", "core_crashing.so"));
    other = file_read(inside("core_crashing.so"), &other_size);
    memcpy(sound + seal_at, other + seal_place(other, other_size),
           sizeof(core_plugin_seal));
    free(other);
    assert_refused_for(sound, size, broken);
}
END_TEST

START_TEST(moved_seal_is_refused)
{
    memmove(sound + seal_at + 4, sound + seal_at, sizeof(core_plugin_seal) - 4);
    assert_refused_for(sound, size, "its seal is invalid");
}
END_TEST

/* The note's size ends before the seal, or inside it. */
START_TEST(seal_outside_the_note_is_refused)
{
    Elf64_Nhdr *header = (void *)(sound + seal_at - 340);

    ck_assert_uint_eq(header->n_descsz, 352);
    header->n_descsz = 320;
    assert_refused_for(sound, size, "extends beyond its segment");
    header->n_descsz = 351;
    assert_refused_for(sound, size, "a libcore note of 351 bytes");
}
END_TEST

/* Clearing one word of the seal is not enough to make it empty. */
START_TEST(half_cleared_seal_is_refused)
{
    memcpy(sound + seal_at, "UNSEALED", 8);
    assert_refused_for(sound, size, "its seal is invalid");
    memset(sound + seal_at, 0, 8);
    assert_refused_for(sound, size, "its seal is invalid");
    memset(sound + seal_at, 0, sizeof(core_plugin_seal));
    assert_refused_for(sound, size, "its seal is invalid");
}
END_TEST

static unsigned char *code_of(unsigned char *file)
{
    Elf64_Ehdr *header = (void *)file;
    Elf64_Phdr *segment = (void *)(file + header->e_phoff);

    while (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
        segment++;
    return file + segment->p_offset;
}

START_TEST(strip_keeps_the_seal_valid)
{
    char command[2 * PATH_MAX];
    size_t stripped;

    snprintf(command, sizeof command, "strip '%s'", path);
    if (system("strip --version >/dev/null 2>&1") != 0) {
        suite_skip("strip is not installed");
        return;
    }
    ck_assert_int_eq(system(command), 0);
    free(sound);
    sound = file_read(path, &stripped);
    ck_assert_uint_lt(stripped, size);
    ck_assert_int_eq(load(path), LOADED);
    code_of(sound)[8] ^= 1;
    assert_refused_for(sound, stripped, broken);
}
END_TEST

/* ------------------------------------------------------------- changes -- */

ssize_t __real_pread(int file, void *to, size_t count, off_t offset);
ssize_t __wrap_pread(int file, void *to, size_t count, off_t offset);

static int reads_left; /* until it happens; 0: never */
static void (*happens)(void);

ssize_t __wrap_pread(int file, void *to, size_t count, off_t offset)
{
    if (reads_left > 0 && --reads_left == 0)
        happens();
    return __real_pread(file, to, count, offset);
}

/* The same bytes with another modification time. */
static void rewritten(void)
{
    file_write(path, sound, size);
}

static void cut(void)
{
    ck_assert_int_eq(truncate(path, 64), 0);
}

static void wait_for_the_clock(void)
{
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

START_TEST(file_that_changes_while_it_is_checked_is_refused)
{
    int refused = 0;

    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    wait_for_the_clock();
    happens = rewritten;
    reads_left = 3;
    ck_assert_int_eq(core_plugin_load(path, NULL), CORE_ERROR_REFUSED);
    assert_contains(core_error_message(), "while it was being checked");
    happens = cut;
    for (int at = 1; at < 40; at++) {
        rewritten();
        reads_left = at;
        outcome is = load(path);

        ck_assert(is == LOADED || is == REFUSED);
        refused += is == REFUSED;
    }
    reads_left = 0;
    ck_assert_int_ge(refused, 3);
    /* In the meantime nothing was loaded that is not in the file. */
    rewritten();
    ck_assert_int_eq(load(path), LOADED);
}
END_TEST

/* ------------------------------------------------------------- sealing -- */

static int files_of_folder(void)
{
    path_text command;
    FILE *list;
    int count = -1;

    snprintf(command, sizeof command, "ls -A '%.3000s' | wc -l", folder);
    list = popen(command, "r");
    ck_assert_ptr_nonnull(list);
    ck_assert_int_eq(fscanf(list, "%d", &count), 1);
    pclose(list);
    return count;
}

START_TEST(sealing_keeps_the_mode_and_leaves_nothing_behind)
{
    struct stat before, after;

    install("good", "core_good.so");
    ck_assert_int_eq(chmod(path, 0751), 0);
    ck_assert_int_eq(symlink("core_good.so", inside("link.so")), 0);
    seal_file(inside("link.so"));
    ck_assert_int_eq(lstat(inside("link.so"), &after), 0);
    ck_assert(S_ISLNK(after.st_mode));
    ck_assert_int_eq(stat(path, &before), 0);
    ck_assert_uint_eq(before.st_mode & 07777, 0751);
    ck_assert_int_eq(load(path), LOADED);
    /* A sealed file is not rewritten. */
    seal_file(path);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_int_eq(files_of_folder(), 2);
}
END_TEST

START_TEST(deliberately_changed_file_can_be_sealed_again)
{
    /* The driver version that it requires. */
    memcpy(sound + seal_at - 64, "9.9", 4);
    file_write(path, sound, size);
    ck_assert_int_eq(load(path), REFUSED);
    seal_file(path);
    ck_assert_int_eq(load(path), LOADED);
}
END_TEST

static void assert_not_sealed(const char *file, core_status status,
                              const char *why)
{
    ck_assert_int_eq(core_plugin_seal_file(file), status);
    assert_contains(core_error_message(), why);
    if (file)
        assert_contains(core_error_message(), file);
}

START_TEST(sealing_failure_has_a_reason)
{
    static const char text[] = "no plugin";

    ck_assert_int_eq(core_plugin_seal_file(NULL), CORE_ERROR_INVALID_ARGUMENT);
    assert_not_sealed(inside("nothing.so"), CORE_ERROR_IO, "No such file");
    assert_not_sealed(folder, CORE_ERROR_CORRUPT, "not a regular file");
    file_write(inside("text.so"), text, sizeof text);
    assert_not_sealed(inside("text.so"), CORE_ERROR_CORRUPT, "not an ELF file");
    file_write(path, sound, seal_at + 4096);
    assert_not_sealed(path, CORE_ERROR_CORRUPT, "truncated?");
    ck_assert_int_eq(files_of_folder(), 2);
}
END_TEST

/* A user who may read the file but not write to its folder. */
START_TEST(read_only_folder_is_reported)
{
    pid_t child;

    install("good", "core_good.so");
    ck_assert_int_eq(chmod(folder, 0555), 0);
    child = fork();
    if (child == 0) {
        if (geteuid() == 0 && seteuid(65534) != 0)
            /* the user nobody cannot be assumed here: not tested */
            _exit(LOADED);
        _exit(core_plugin_seal_file(path) == CORE_ERROR_IO &&
                      strstr(core_error_message(),
                             "no file can be created beside")
                  ? LOADED
                  : SILENT);
    }
    ck_assert_int_eq(outcome_of_child(child), LOADED);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    ck_assert_int_eq(files_of_folder(), 1);
}
END_TEST

/* ---------------------------------------------------------- quarantine -- */

START_TEST(quarantine_of_unsealed_plugins_loads_sealed_ones_directly)
{
    path_text helper;
    const char *build = getenv("LIBCORE_BUILD");

    snprintf(helper, sizeof helper, "%s/quarantine", build ? build : ".");
    core__quarantine_helper = helper;
    ck_assert_int_eq(core_setting_set("LIBCORE_QUARANTINE", "unsealed"),
                     CORE_OK);
    install("crashing", "core_crashing.so");
    setenv("FIXTURE_CRASHING", "crash", 1);
    ck_assert_int_eq(core_plugin_load(inside("core_crashing.so"), NULL),
                     CORE_ERROR_REFUSED);
    assert_contains(core_error_message(), "in quarantine");
    /* It crashes if it is loaded directly. */
    seal_file(inside("core_crashing.so"));
    ck_assert_int_eq(load(inside("core_crashing.so")), CRASHED);
    ck_assert_int_eq(core_setting_set("LIBCORE_QUARANTINE", helper), CORE_OK);
    ck_assert_int_eq(load(inside("core_crashing.so")), REFUSED);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        sealed_file_loads_and_is_listed_as_sealed,
        unsealed_file_loads,
        plugin_of_0_1_without_a_seal_loads,
        every_loaded_bit_is_covered_by_the_seal,
        damaged_files_never_crash_the_loader,
        truncated_file_is_refused,
        file_with_appended_bytes_loads,
        seal_of_another_file_is_refused,
        moved_seal_is_refused,
        seal_outside_the_note_is_refused,
        half_cleared_seal_is_refused,
        strip_keeps_the_seal_valid,
        file_that_changes_while_it_is_checked_is_refused,
        sealing_keeps_the_mode_and_leaves_nothing_behind,
        deliberately_changed_file_can_be_sealed_again,
        sealing_failure_has_a_reason,
        read_only_folder_is_reported,
        quarantine_of_unsealed_plugins_loads_sealed_ones_directly,
    };
    const test_suite suite = {
        .name = "loader/integrity_hash",
        .setup = prepare,
        .teardown = clean,
        .seconds = 300, /* ten thousand loads */
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
