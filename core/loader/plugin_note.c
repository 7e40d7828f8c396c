/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "loader/plugin_note.h"

#include "base/memory.h"
#include "loader/elf.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NOTES_LIMIT = 1 << 20, /* bytes of a note segment that are inspected */
    OWNER_SIZE = 8         /* "libcore" and its NUL */
};

uint32_t core__abi_minor_offered = CORE_ABI_MINOR;

/* -------------------------------------------------------------- images -- */

static bool read_bytes(const core__plugin_image *image, uint64_t offset,
                       void *to, uint64_t size)
{
    memcpy(to, image->bytes + offset, size);
    return true;
}

static bool read_file(const core__plugin_image *image, uint64_t offset,
                      void *to, uint64_t size)
{
    uint64_t done = 0;

    if (offset + size <= image->nhead) {
        memcpy(to, image->head + offset, size);
        return true;
    }
    while (done < size) {
        ssize_t got = pread(image->file, (char *)to + done, size - done,
                            (off_t)(offset + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (uint64_t)got;
    }
    return true;
}

core__plugin_image core__plugin_image_of_bytes(const void *bytes, uint64_t size)
{
    return (core__plugin_image){
        .size = size, .read = read_bytes, .bytes = bytes};
}

core_status core__plugin_image_of_file(int file, core__plugin_image *out_image)
{
    struct stat status;
    ssize_t got;

    out_image->size = 0;
    out_image->read = read_file;
    out_image->bytes = NULL;
    out_image->file = file;
    out_image->nhead = 0;
    if (fstat(file, &status) != 0)
        return core__error(CORE_ERROR_IO, "cannot be read: %s",
                           strerror(errno));
    if (!S_ISREG(status.st_mode))
        return core__error(CORE_ERROR_CORRUPT, "is not a regular file");
    out_image->size = (uint64_t)status.st_size;
    /* A read error is reported by a later read. */
    got = pread(file, out_image->head, sizeof out_image->head, 0);
    if (got > 0)
        out_image->nhead = (uint32_t)got;
    return CORE_OK;
}

bool core__plugin_image_read(const core__plugin_image *image, uint64_t offset,
                             void *to, uint64_t size)
{
    if (offset > image->size || size > image->size - offset)
        return false;
    return image->read(image, offset, to, size);
}

/* ----------------------------------------------------------------- ELF -- */

core_status core__elf_header(const core__plugin_image *image,
                             Elf64_Ehdr *out_header)
{
    Elf64_Ehdr *header = out_header;

    if (!core__plugin_image_read(image, 0, header, sizeof *header) ||
        memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return core__error(CORE_ERROR_CORRUPT, "is not an ELF file");
    if (header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != CORE__ELF_MACHINE)
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "is for another machine (class %u, byte order %u, "
                           "machine %u; this is machine %u)",
                           header->e_ident[EI_CLASS], header->e_ident[EI_DATA],
                           header->e_machine, CORE__ELF_MACHINE);
    if (header->e_type != ET_DYN)
        return core__error(CORE_ERROR_CORRUPT, "is not a shared object");
    if (header->e_phentsize != sizeof(Elf64_Phdr) ||
        header->e_phnum > CORE__ELF_SEGMENTS || header->e_phoff > image->size ||
        header->e_phnum * sizeof(Elf64_Phdr) > image->size - header->e_phoff)
        return core__error(CORE_ERROR_CORRUPT,
                           "is damaged: its segment table is outside the file");
    return CORE_OK;
}

core_status core__elf_segment(const core__plugin_image *image,
                              const Elf64_Ehdr *header, uint32_t index,
                              Elf64_Phdr *out_segment)
{
    if (!core__plugin_image_read(image,
                                 header->e_phoff + index * sizeof *out_segment,
                                 out_segment, sizeof *out_segment))
        return core__error(CORE_ERROR_IO, "cannot be read");
    if (out_segment->p_type != PT_NULL &&
        (out_segment->p_offset > image->size ||
         out_segment->p_filesz > image->size - out_segment->p_offset))
        return core__error(
            CORE_ERROR_CORRUPT,
            "is damaged: segment %u is outside the file (truncated?)", index);
    return CORE_OK;
}

/* -------------------------------------------------------------- fields -- */

static bool text_good(const char *text, size_t size)
{
    const char *end = memchr(text, '\0', size);

    if (!end)
        return false;
    for (const char *c = text; c < end; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    for (; end < text + size; end++)
        if (*end)
            return false;
    return true;
}

static bool name_good(const char *name)
{
    for (const char *c = name; *c; c++)
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9') && *c != '_')
            return false;
    return *name != '\0';
}

/* Comma-separated, each [a-z][a-z0-9]*, shorter than core__backend.type. */
static bool device_types_good(const char *types)
{
    size_t length = 0;

    for (const char *c = types;; c++) {
        if (*c == ',' || !*c) {
            if (length == 0 || length > 31)
                return false;
            if (!*c)
                return true;
            length = 0;
            continue;
        }
        if (!(*c >= 'a' && *c <= 'z') &&
            !(length > 0 && *c >= '0' && *c <= '9'))
            return false;
        length++;
    }
}

static core_status check_note(const core_plugin_note *note)
{
    static const char magic[8] = "LIBCORE";

    if (memcmp(note->magic, magic, sizeof magic) != 0)
        return core__error(CORE_ERROR_CORRUPT,
                           "has a libcore note with a wrong magic number");
    if (note->note_version != CORE_NOTE_VERSION)
        return core__error(
            CORE_ERROR_INCOMPATIBLE,
            "has a libcore note of version %u; this libcore reads version %d",
            note->note_version, CORE_NOTE_VERSION);
    if (!text_good(note->name, sizeof note->name) || !name_good(note->name))
        return core__error(
            CORE_ERROR_CORRUPT,
            "has a note whose name does not consist of [a-z0-9_]+");
    if (!text_good(note->vendor, sizeof note->vendor) ||
        !text_good(note->version, sizeof note->version) ||
        !text_good(note->license, sizeof note->license) ||
        !text_good(note->minimum_driver, sizeof note->minimum_driver))
        return core__error(CORE_ERROR_CORRUPT,
                           "has a note with a text that is not terminated or "
                           "contains control characters");
    if (!text_good(note->device_types, sizeof note->device_types) ||
        !(note->device_types[0] == '\0' ||
          device_types_good(note->device_types)))
        return core__error(CORE_ERROR_CORRUPT,
                           "has a note whose device types are not "
                           "[a-z][a-z0-9]*, separated by commas");
    if (note->flags != 0)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "has a note with flags 0x%x; this libcore accepts none",
            note->flags);
    if (note->abi_minor_min > note->abi_minor_max || note->reserved != 0)
        return core__error(CORE_ERROR_CORRUPT,
                           "has a note with an impossible ABI range: minor %u "
                           "to %u, reserved %u; the first must not exceed the "
                           "second, reserved must be 0 (this libcore offers "
                           "minor %d to %u)",
                           note->abi_minor_min, note->abi_minor_max,
                           note->reserved, CORE__ABI_MINOR_MIN,
                           core__abi_minor_offered);
    return CORE_OK;
}

core_status core__plugin_note_check_abi(const core_plugin_note *note)
{
    if (note->abi_major != CORE_ABI_MAJOR ||
        note->abi_minor_min > core__abi_minor_offered ||
        note->abi_minor_max < CORE__ABI_MINOR_MIN)
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "runs under plugin ABI %u.%u to %u.%u; this libcore "
                           "offers %d.%d to %d.%u",
                           note->abi_major, note->abi_minor_min,
                           note->abi_major, note->abi_minor_max, CORE_ABI_MAJOR,
                           CORE__ABI_MINOR_MIN, CORE_ABI_MAJOR,
                           core__abi_minor_offered);
    return CORE_OK;
}

/* --------------------------------------------------------------- notes -- */

typedef struct finding {
    core_plugin_note *note;
    core__integrity_seal *seal;
    uint32_t count; /* number of libcore notes */
} finding;

/* size: of the content, which begins at this offset of the file. */
static core_status take_note(finding *found, const uint8_t *content,
                             uint32_t size, uint64_t at)
{
    core_plugin_note *note = found->note;
    core__integrity_seal *seal = found->seal;

    if (size < sizeof *note ||
        (size > sizeof *note && size < sizeof *note + sizeof seal->content))
        return core__error(
            CORE_ERROR_CORRUPT,
            "has a libcore note of %u bytes; accepted: %zu, or %zu with a seal",
            size, sizeof *note, sizeof *note + sizeof seal->content);
    memcpy(note, content, sizeof *note);
    if (size > sizeof *note) {
        seal->at = at + sizeof *note;
        memcpy(&seal->content, content + sizeof *note, sizeof seal->content);
    }
    found->count++;
    return CORE_OK;
}

/* Reads a note segment: entries of {owner size, content size, type}, owner,
 * content, each padded to the segment's alignment. */
static core_status scan_notes(const uint8_t *bytes, const Elf64_Phdr *segment,
                              finding *found)
{
    uint64_t size = segment->p_filesz, at = 0;
    uint64_t align = segment->p_align == 8 ? 8 : 4;

    while (size - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr entry;
        uint64_t owner, content, next;

        memcpy(&entry, bytes + at, sizeof entry);
        /* 32-bit sizes in 64-bit sums, so nothing can overflow. */
        owner = at + sizeof entry;
        content = (owner + entry.n_namesz + align - 1) & ~(align - 1);
        next = (content + entry.n_descsz + align - 1) & ~(align - 1);
        if (content > size || entry.n_descsz > size - content)
            return core__error(CORE_ERROR_CORRUPT,
                               "is damaged: a note extends beyond its segment");
        if (entry.n_type == CORE_NOTE_TYPE && entry.n_namesz == OWNER_SIZE &&
            memcmp(bytes + owner, "libcore", OWNER_SIZE) == 0)
            CORE_TRY(take_note(found, bytes + content, entry.n_descsz,
                               segment->p_offset + content));
        if (next >= size)
            break;
        at = next;
    }
    return CORE_OK;
}

static core_status read_segment(const core__plugin_image *image,
                                const Elf64_Phdr *segment, finding *found)
{
    uint64_t size = segment->p_filesz;
    core_status status;
    uint8_t *bytes;

    if (size > NOTES_LIMIT)
        return core__error(
            CORE_ERROR_CORRUPT,
            "has a note segment of %llu bytes; at most %d are accepted",
            (unsigned long long)size, NOTES_LIMIT);
    bytes = core__alloc(size);
    if (!bytes)
        return core__error_memory(size);
    if (core__plugin_image_read(image, segment->p_offset, bytes, size))
        status = scan_notes(bytes, segment, found);
    else
        status = core__error(CORE_ERROR_IO, "cannot be read");
    core__free(bytes);
    return status;
}

/* Damage must not turn a seal into an empty one: an empty seal has exactly the
 * state word EMPTY, and zeros after it. */
static core_status check_seal(const core__integrity_seal *seal)
{
    static const core_plugin_seal empty = {
        .mark = {'U', 'N', 'S', 'E', 'A', 'L', 'E', 'D'}};

    if (seal->at > 0 && !core__integrity_seal_is_set(seal) &&
        memcmp(&seal->content, &empty, sizeof empty) != 0)
        return core__error(CORE_ERROR_CORRUPT,
                           "is damaged: its seal is invalid");
    return CORE_OK;
}

core_status core__plugin_note_read_sealed(const core__plugin_image *image,
                                          core_plugin_note *out_note,
                                          core__integrity_seal *out_seal)
{
    finding found = {.note = out_note, .seal = out_seal};
    Elf64_Ehdr header;

    memset(out_note, 0, sizeof *out_note);
    memset(out_seal, 0, sizeof *out_seal);
    CORE_TRY(core__elf_header(image, &header));
    for (uint32_t i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;

        CORE_TRY(core__elf_segment(image, &header, i, &segment));
        if (segment.p_type == PT_NOTE)
            CORE_TRY(read_segment(image, &segment, &found));
    }
    if (found.count == 0)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "has no libcore note: it is not a plugin");
    if (found.count > 1)
        return core__error(CORE_ERROR_CORRUPT,
                           "has %u libcore notes; a plugin has one",
                           found.count);
    CORE_TRY(check_note(out_note));
    return check_seal(out_seal);
}

core_status core__plugin_note_read(const core__plugin_image *image,
                                   core_plugin_note *out_note)
{
    core__integrity_seal seal;

    return core__plugin_note_read_sealed(image, out_note, &seal);
}
