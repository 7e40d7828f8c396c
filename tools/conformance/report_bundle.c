/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "report_bundle.h"

#include "base/sha256.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, FILES = 4, EXIT_BROKEN = 2 };

/* A report as it is stored in the file. */
typedef struct member {
    char *data;
    size_t size;
    char hash[65];
} member;

static const struct {
    const char *name;
    bool (*write)(const report *, FILE *);
} files[FILES] = {
    {"results.jsonl", report_jsonl},
    {"results.tap", report_tap},
    {"results.xml", report_junit},
    {"results.html", report_html},
};

static void hash_of(const char *data, size_t size, char out[65])
{
    core__sha256 hash;

    core__sha256_begin(&hash);
    core__sha256_add(&hash, data, size);
    core__sha256_end(&hash, out);
}

/* --------------------------------------------------------------- write -- */

static bool put_member(FILE *to, const char *name, const char *data,
                       size_t size)
{
    unsigned char head[BLOCK] = {0};
    unsigned sum = 0;

    snprintf((char *)head, 100, "%s", name);
    memcpy(head + 100, "0000644", 8);
    memcpy(head + 108, "0000000", 8);
    memcpy(head + 116, "0000000", 8);
    snprintf((char *)head + 124, 12, "%011zo", size);
    memcpy(head + 136, "00000000000", 12);
    memset(head + 148, ' ', 8);
    head[156] = '0';
    memcpy(head + 257, "ustar", 6);
    memcpy(head + 263, "00", 2);
    for (int i = 0; i < BLOCK; i++)
        sum += head[i];
    snprintf((char *)head + 148, 8, "%06o", sum);
    fwrite(head, 1, sizeof head, to);
    fwrite(data, 1, size, to);
    for (size_t i = size; i % BLOCK; i++)
        putc(0, to);
    return !ferror(to);
}

bool submit_write(const report *self, const char *path, char *text,
                  size_t capacity)
{
    member members[FILES] = {{0}};
    char sums[FILES * 100] = "";
    FILE *file = fopen(path, "wb");
    bool good = file != NULL;

    for (int i = 0; good && i < FILES; i++) {
        FILE *memory = open_memstream(&members[i].data, &members[i].size);

        good = memory && files[i].write(self, memory);
        if (memory && fclose(memory) != 0)
            good = false;
        if (!good)
            break;
        hash_of(members[i].data, members[i].size, members[i].hash);
        snprintf(sums + strlen(sums), sizeof sums - strlen(sums), "%s  %s\n",
                 members[i].hash, files[i].name);
        good =
            put_member(file, files[i].name, members[i].data, members[i].size);
    }
    if (good)
        good = put_member(file, "SHA256SUMS", sums, strlen(sums));
    for (int i = 0; good && i < 2 * BLOCK; i++)
        putc(0, file);
    if (file && fclose(file) != 0)
        good = false;
    for (int i = 0; i < FILES; i++)
        free(members[i].data);
    if (!good)
        snprintf(text, capacity, "%s cannot be written", path);
    return good;
}

/* -------------------------------------------------------------- verify -- */

typedef struct archive {
    char *data;
    size_t size;
    struct {
        char name[101];
        const char *data;
        size_t size;
    } members[FILES + 1];
    size_t count;
} archive;

static int broken(const char *path, const char *reason)
{
    fprintf(stderr, "core-conformance: %s: %s\n", path, reason);
    return EXIT_BROKEN;
}

static bool read_file(const char *path, archive *out)
{
    FILE *file = fopen(path, "rb");
    long size = -1;

    if (file && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size > 0 && size < 1 << 28 && fseek(file, 0, SEEK_SET) == 0)
        out->data = malloc((size_t)size);
    if (out->data && fread(out->data, 1, (size_t)size, file) == (size_t)size)
        out->size = (size_t)size;
    if (file)
        fclose(file);
    return out->size > 0;
}

/* Returns NULL, or what is wrong. */
static const char *split(archive *self)
{
    size_t at = 0;

    while (at + BLOCK <= self->size && self->data[at]) {
        const char *head = self->data + at;
        char digits[13] = "";
        size_t size;
        unsigned sum = 0;

        for (int i = 0; i < BLOCK; i++)
            sum += i >= 148 && i < 156 ? ' ' : (unsigned char)head[i];
        memcpy(digits, head + 148, 8);
        if (strtoul(digits, NULL, 8) != sum)
            return "a header is damaged";
        memcpy(digits, head + 124, 12);
        size = strtoul(digits, NULL, 8);
        at += BLOCK;
        if (size > self->size - at)
            return "it is cut";
        if (self->count == FILES + 1)
            return "it has more files than a submission";
        memcpy(self->members[self->count].name, head, 100);
        self->members[self->count].data = self->data + at;
        self->members[self->count++].size = size;
        at += (size + BLOCK - 1) / BLOCK * BLOCK;
        if (at > self->size)
            return "it is cut";
    }
    for (; at < self->size; at++) /* an archive ends with zeros */
        if (self->data[at])
            return "there are data after its end";
    return self->count == FILES + 1 ? NULL : "a report is missing";
}

static const char *check_hashes(const archive *self)
{
    for (int i = 0; i < FILES; i++) {
        char line[200];
        char hash[65];
        char *sums;
        bool same;

        if (strcmp(self->members[i].name, files[i].name) != 0)
            return "its reports are not those of a submission";
        hash_of(self->members[i].data, self->members[i].size, hash);
        snprintf(line, sizeof line, "%s  %s\n", hash, files[i].name);
        sums = strndup(self->members[FILES].data, self->members[FILES].size);
        same = sums && strstr(sums, line);
        free(sums);
        if (!same)
            return "a report does not match its hash";
    }
    return NULL;
}

static bool holds(const char *line, const char *text)
{
    return strstr(line, text) != NULL;
}

typedef struct counted {
    size_t tests[LEVELS][VERDICTS];
    bool bad; /* a test that prevents its level from being passed */
    bool conformance;
    bool levels_passed;
    bool levels_agree;
    size_t levels;
    char sha256[65];
} counted;

static int index_of(const char *line, const char *key, const char *const *names,
                    int count)
{
    char text[64];

    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "\"%s\": \"%s\"", key, names[i]);
        if (holds(line, text))
            return i;
    }
    return -1;
}

static void count_test(const char *line, counted *out)
{
    int which = index_of(line, "level", level_names, LEVELS);
    int what = index_of(line, "verdict", verdict_names, VERDICTS);
    record one = {.verdict = (verdict)what,
                  .optional = holds(line, "\"optional\": true")};

    if (which < 0 || what < 0) {
        out->bad = true;
        return;
    }
    out->tests[which][what]++;
    out->bad |= report_bad(&one);
}

static void check_level(const char *line, counted *out)
{
    int which = index_of(line, "level", level_names, LEVELS);

    out->levels++;
    out->levels_passed &= holds(line, "\"passed\": true");
    for (int v = 0; which >= 0 && v < VERDICTS; v++) {
        char text[64];

        snprintf(text, sizeof text, "\"%s\": %zu", verdict_names[v],
                 out->tests[which][v]);
        out->levels_agree &= holds(line, text);
    }
}

static void count_line(const char *line, counted *out)
{
    const char *at;

    if (holds(line, "\"record\": \"run\"")) {
        out->conformance = holds(line, "\"conformance_run\": true");
        at = strstr(line, "\"sha256\": \"");
        if (at && strlen(at) > 11 + 64)
            memcpy(out->sha256, at + 11, 64);
    } else if (holds(line, "\"record\": \"test\"")) {
        count_test(line, out);
    } else if (holds(line, "\"record\": \"level\"")) {
        check_level(line, out);
    }
}

static int verify_report(const archive *self, const char *path,
                         const char *plugin)
{
    char *text = strndup(self->members[0].data, self->members[0].size);
    counted seen = {.levels_passed = true, .levels_agree = true};
    char hash[65] = "";
    char *rest = text;
    char *line;

    if (!text)
        return broken(path, "no memory");
    while ((line = strsep(&rest, "\n")))
        count_line(line, &seen);
    free(text);
    if (!seen.levels_agree || seen.levels == 0)
        return broken(path, "its summary does not match its results");
    if (plugin && !core__sha256_file(plugin, hash))
        return broken(plugin, "cannot be read");
    if (plugin && strcmp(hash, seen.sha256) != 0)
        return broken(path, "it belongs to another plugin file");
    printf("%s: intact, of the plugin %s\n", path, seen.sha256);
    if (!seen.conformance) {
        printf("%s: it was not a conformance run\n", path);
        return EXIT_FAILURE;
    }
    printf("%s: %zu levels, %s\n", path, seen.levels,
           seen.levels_passed && !seen.bad ? "all passed" : "not all passed");
    return seen.levels_passed && !seen.bad ? EXIT_SUCCESS : EXIT_FAILURE;
}

int submit_verify(const char *path, const char *plugin)
{
    archive self = {0};
    const char *wrong = "it cannot be read";
    int result;

    if (read_file(path, &self))
        wrong = split(&self);
    if (!wrong)
        wrong = check_hashes(&self);
    result = wrong ? broken(path, wrong) : verify_report(&self, path, plugin);
    free(self.data);
    return result;
}
