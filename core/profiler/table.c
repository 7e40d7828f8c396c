/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The table report with remarks below it. */

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "profiler/profile.h"

#include <stdarg.h>
#include <string.h>

typedef struct text {
    char *data;
    size_t size, capacity;
    bool failed;
} text;

static void __attribute__((format(printf, 2, 3)))
add(text *text, const char *format, ...)
{
    char line[512];
    va_list list;
    size_t size;
    int length;

    va_start(list, format);
    length = core__format_list(line, sizeof line, format, list);
    va_end(list);
    if (length < 0 || text->failed)
        return;
    size = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
    if (text->size + size + 1 > text->capacity) {
        size_t capacity = text->capacity * 2 + 4096;
        char *grown = core__realloc(text->data, capacity);

        if (!grown) {
            text->failed = true;
            return;
        }
        text->data = grown;
        text->capacity = capacity;
    }
    memcpy(text->data + text->size, line, size + 1);
    text->size += size;
}

static const char *time_text(char out[16], uint64_t ns)
{
    if (ns < 10000)
        core__format(out, 16, "%llu ns", (unsigned long long)ns);
    else if (ns < 10000000)
        core__format(out, 16, "%.1f us", (double)ns / 1e3);
    else if (ns < UINT64_C(10000000000))
        core__format(out, 16, "%.1f ms", (double)ns / 1e6);
    else
        core__format(out, 16, "%.2f s", (double)ns / 1e9);
    return out;
}

static const char *amount_text(char out[16], double amount, const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    size_t at = 0;

    if (amount == 0)
        return "";
    while ((amount >= 9999.5 || amount <= -9999.5) && at < 5) {
        amount /= 1000;
        at++;
    }
    core__format(out, 16, at ? "%.1f %s%s" : "%.0f %s%s", amount, prefixes[at],
                 unit);
    return out;
}

static const char *kind_name(core_profile_kind kind)
{
    return kind == CORE_PROFILE_RANGE  ? " (range)"
           : kind == CORE_PROFILE_WAIT ? " (wait)"
                                       : "";
}

size_t core__profile_printable_name(char *out, size_t capacity,
                                    const char *name)
{
    size_t left = strlen(name), size = 0;

    while (left > 0) {
        size_t length = core__utf8_sequence(name, left);
        bool valid = length > 0 && (unsigned char)*name >= ' ' && *name != 0x7f;

        if (size + (valid ? length : 1) > capacity)
            break;
        if (valid)
            memcpy(out + size, name, length);
        else
            out[size] = '?';
        size += valid ? length : 1;
        length += length == 0;
        name += length;
        left -= length;
    }
    out[size] = 0;
    return size;
}

static void name_text(char out[48], const core_profile_row *row)
{
    enum { NAME_SIZE = 36 };
    size_t size = core__profile_printable_name(out, NAME_SIZE, row->name);

    core__format(out + size, 48 - size, "%s", kind_name(row->kind));
}

static void add_row(text *text, const core_profile_row *row, uint64_t all)
{
    char self[16], total[16], device[16], each[16], bytes[16], flop[16],
        memory[16], name[48];
    uint64_t busy = row->device_total ? row->device_total : row->cpu_total;

    name_text(name, row);
    add(text, "%-44.44s %8llu %10s %5.1f%% %10s %10s %10s %12s %14s %10s\n",
        name, (unsigned long long)row->calls, time_text(self, row->cpu_self),
        all ? 100.0 * (double)row->cpu_self / (double)all : 0,
        time_text(total, row->cpu_total),
        time_text(each, row->cpu_total / row->calls),
        row->kernels ? time_text(device, row->device_self) : "",
        amount_text(bytes, (double)row->bytes, "B"),
        row->flop && busy
            ? amount_text(flop, (double)row->flop * 1e9 / (double)busy,
                          "FLOP/s")
            : "",
        amount_text(memory, (double)row->memory, "B"));
}

/* Where a device's times come from. */
static void add_clock(text *text, const core__profile_clock *clock)
{
    const char *colon = *clock->reason ? ": " : "";
    char name[64], reason[sizeof clock->reason];

    core__profile_printable_name(name, sizeof name - 1,
                                 core_device_name(clock->device));
    core__profile_printable_name(reason, sizeof reason - 1, clock->reason);
    if (clock->records)
        add(text,
            "\n%s: device times are those of its plugin, %llu records%s%s\n",
            name, (unsigned long long)clock->count, colon, reason);
    else if (clock->base)
        add(text,
            "\n%s: device times are between events around each launch%s%s\n",
            name, colon, reason);
    else
        add(text, "\n%s: no device times: %s\n", name, reason);
    if (clock->dropped)
        add(text,
            "%s: %llu records are missing: more than the limit, or than "
            "there was memory for\n",
            name, (unsigned long long)clock->dropped);
}

static void add_count(text *text, const char *name, uint64_t count)
{
    char printable[256];

    core__profile_printable_name(printable, sizeof printable - 1, name);
    add(text, " %s (%llu)", printable, (unsigned long long)count);
}

/* Fallbacks to the CPU and waits of the host. */
static void add_remarks(text *text, const core_profiler *profiler)
{
    const core__event_summary *rows = profiler->rows;
    uint64_t fallbacks = 0, waits = 0, waited = 0, lost = 0;
    char time[16];

    for (size_t i = 0; i < rows->count; i++) {
        fallbacks += rows->rows[i].fallbacks;
        if (rows->rows[i].kind == CORE_PROFILE_WAIT) {
            waits += rows->rows[i].calls;
            waited += rows->rows[i].cpu_total;
        }
    }
    for (size_t i = 0; i < profiler->nparts; i++)
        lost += profiler->parts[i].lost;
    if (fallbacks) {
        add(text, "\n%llu call%s ran on the CPU in place of the device:",
            (unsigned long long)fallbacks, fallbacks == 1 ? "" : "s");
        for (size_t i = 0; i < rows->count; i++)
            if (rows->rows[i].fallbacks)
                add_count(text, rows->rows[i].name, rows->rows[i].fallbacks);
        add(text, "\n");
    }
    if (waits) {
        add(text, "\nthe host waited %llu time%s for devices, %s in all:",
            (unsigned long long)waits, waits == 1 ? "" : "s",
            time_text(time, waited));
        for (size_t i = 0; i < rows->count; i++)
            if (rows->rows[i].kind == CORE_PROFILE_WAIT)
                add_count(text, rows->rows[i].name, rows->rows[i].calls);
        add(text, "\n");
    }
    for (size_t i = 0; i < profiler->nclocks; i++)
        add_clock(text, &profiler->clocks[i]);
    if (lost)
        add(text,
            "\n%llu events are missing: more than the limit, or than "
            "there was memory for\n",
            (unsigned long long)lost);
}

core_status core__profile_remarks(const core_profiler *profiler,
                                  char **out_text)
{
    text text = {0};

    *out_text = NULL;
    add(&text, "%s", "");
    add_remarks(&text, profiler);
    if (text.failed) {
        core__free(text.data);
        return core__error_memory(text.capacity);
    }
    *out_text = text.data;
    return CORE_OK;
}

core_status core_profiler_table(core_profiler *profiler,
                                core_profile_order order, size_t rows,
                                char **out_text)
{
    uint64_t all = 0, device = 0;
    char time[16], other[16];
    text text = {0};
    size_t count;

    CORE__NOT_NULL(profiler);
    CORE__NOT_NULL(out_text);
    *out_text = NULL;
    CORE_TRY(core__event_summary_sorted(profiler, order));
    count = profiler->rows->count;
    for (size_t i = 0; i < count; i++) {
        all += profiler->rows->rows[i].cpu_self;
        device += profiler->rows->rows[i].device_self;
    }
    add(&text, "%-44s %8s %10s %6s %10s %10s %10s %12s %14s %10s\n", "name",
        "calls", "self", "", "total", "per call", "device", "bytes", "rate",
        "memory");
    for (size_t i = 0; i < count && (rows == 0 || i < rows); i++)
        add_row(&text, &profiler->rows->rows[i], all);
    if (rows && count > rows)
        add(&text, "(%zu more rows)\n", count - rows);
    add(&text, "\n%s recorded; %s of threads' time seen",
        time_text(time, profiler->round_ended - profiler->round_began),
        time_text(other, all));
    if (device)
        add(&text, "; %s on devices", time_text(other, device));
    add(&text, "\n");
    add_remarks(&text, profiler);
    if (text.failed) {
        core__free(text.data);
        return core__error_memory(text.capacity);
    }
    *out_text = text.data;
    return CORE_OK;
}
