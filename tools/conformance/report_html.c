/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The HTML report: one page without scripts: the matrix of operators and dtypes
 * in colour, the failures, then all tests. */

#include "report.h"

#include <string.h>

static const char style[] =
    "body{font:14px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;"
    "padding:0 1em;color:#222;background:#fff}"
    "h1{font-size:1.6em}h2{margin-top:2em;font-size:1.2em}"
    "table{border-collapse:collapse}td,th{padding:.15em .6em;border:1px solid "
    "#ddd;text-align:left}th{background:#f4f4f4}"
    "table.matrix td{text-align:center;font-size:12px}"
    "table.matrix td:first-child{text-align:left;font-family:monospace}"
    ".PASS{background:#cfeccf}.FAIL,.CRASH,.TIMEOUT,.DEVICE_LOST,.XPASS{"
    "background:#f6b6b0}.HARNESS_ERROR,.NOT_RUN{background:#f3dca2}"
    ".NOT_SUPPORTED{background:#eee}.WAIVED,.XFAIL{background:#d5def5}"
    "td.none{background:#fafafa;color:#bbb}"
    ".notice{padding:.6em 1em;background:#f3dca2}"
    "code{font-size:13px}";

static const char *const dtypes[] = {"f64", "f32", "f16", "bf16", "i64",
                                     "i32", "i16", "i8",  "u8",   "bool"};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static void text(const char *from, FILE *to)
{
    for (; *from; from++) {
        if (*from == '<')
            fputs("&lt;", to);
        else if (*from == '>')
            fputs("&gt;", to);
        else if (*from == '&')
            fputs("&amp;", to);
        else
            putc(*from, to);
    }
}

static void row(const char *key, const char *value, FILE *to)
{
    if (!*value)
        return;
    fprintf(to, "<tr><th>");
    text(key, to);
    fprintf(to, "</th><td><code>");
    text(value, to);
    fprintf(to, "</code></td></tr>\n");
}

static void head(const report *self, FILE *to)
{
    const char *slash = strrchr(self->plugin, '/');
    char seed[32];

    fprintf(to, "<h1>Conformance of ");
    text(slash ? slash + 1 : self->plugin, to);
    fprintf(to, "</h1>\n");
    if (report_partial(self))
        fprintf(to, "<p class=\"notice\">This was not a conformance run: only "
                    "a part of the tests was selected.</p>\n");
    fprintf(to, "<table>\n");
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)self->seed);
    row("SHA-256", self->sha256, to);
    for (size_t i = 0; i < self->abouts; i++)
        row(self->about[i].key, self->about[i].value, to);
    row("suite", SUITE_VERSION, to);
    row("seed", seed, to);
    row("date", self->date, to);
    fprintf(to, "</table>\n");
}

static void levels(const report *self, FILE *to)
{
    fprintf(to, "<h2>Levels</h2>\n<table><tr><th>level</th><th></th>");
    for (int v = 0; v < VERDICTS; v++)
        fprintf(to, "<th>%s</th>", verdict_names[v]);
    fprintf(to, "</tr>\n");
    for (int i = 0; i < LEVELS; i++) {
        level_result result = report_level(self, (level)i);

        if (!report_wants(self, (level)i))
            continue;
        fprintf(to, "<tr><td>%s</td><td class=\"%s\">%s</td>", level_names[i],
                result.passed ? "PASS" : "FAIL",
                result.passed ? report_partial(self) ? "no failure" : "passed"
                : result.executed == 0 ? "nothing was executed"
                                       : "not passed");
        for (int v = 0; v < VERDICTS; v++)
            fprintf(to, "<td>%zu</td>", result.counts[v]);
        fprintf(to, "</tr>\n");
    }
    fprintf(to, "</table>\n");
}

/* "ops/add.Tensor/f32": returns the end of the operator's name, or NULL if the
 * test is not of this form. */
static const char *operator_end(const char *name)
{
    const char *slash =
        strncmp(name, "ops/", 4) == 0 && strncmp(name, "ops/rules", 9) != 0
            ? strrchr(name, '/')
            : NULL;

    return slash && slash > name + 4 ? slash : NULL;
}

static void matrix_row(const report *self, size_t *at, FILE *to)
{
    const record *first = &self->records[*at];
    const char *end = operator_end(first->name);
    size_t size = (size_t)(end - first->name);
    const record *cells[DTYPES] = {NULL};

    for (; *at < self->count; ++*at) {
        const record *one = &self->records[*at];

        end = operator_end(one->name);
        if (!end || (size_t)(end - one->name) != size ||
            strncmp(one->name, first->name, size) != 0)
            break;
        for (int d = 0; d < DTYPES; d++)
            if (strcmp(end + 1, dtypes[d]) == 0)
                cells[d] = one;
    }
    fprintf(to, "<tr><td>%.*s</td>", (int)size - 4, first->name + 4);
    for (int d = 0; d < DTYPES; d++) {
        const record *one = cells[d];

        if (!one || !one->chosen) {
            fprintf(to, "<td class=\"none\">&middot;</td>");
            continue;
        }
        fprintf(to, "<td class=\"%s\" title=\"%s", verdict_names[one->verdict],
                verdict_names[one->verdict]);
        if (one->error >= 0)
            fprintf(to, ", %.2g of the bound", one->error);
        fprintf(to, "\">%s</td>",
                one->verdict == VERDICT_PASS            ? "&#10003;"
                : one->verdict == VERDICT_NOT_SUPPORTED ? "&ndash;"
                                                        : "&#10007;");
    }
    fprintf(to, "</tr>\n");
}

static void matrix(const report *self, FILE *to)
{
    fprintf(to, "<h2>Operators and dtypes</h2>\n<table class=\"matrix\"><tr>"
                "<th>operator</th>");
    for (int d = 0; d < DTYPES; d++)
        fprintf(to, "<th>%s</th>", dtypes[d]);
    fprintf(to, "</tr>\n");
    for (size_t i = 0; i < self->count;) {
        if (operator_end(self->records[i].name))
            matrix_row(self, &i, to);
        else
            i++;
    }
    fprintf(to, "</table>\n"
                "<p>A dot: the plugin does not claim it.</p>\n");
}

static void tests(const report *self, bool bad, FILE *to)
{
    fprintf(to, "<h2>%s</h2>\n<table>\n",
            bad ? "Failures that prevent a level from being passed"
                : "All tests");
    for (size_t i = 0; i < self->count; i++) {
        const record *one = &self->records[i];

        if (!one->chosen || (bad && !report_bad(one)))
            continue;
        fprintf(to, "<tr><td><code>");
        text(one->name, to);
        fprintf(to, "</code></td><td class=\"%s\">%s</td><td>",
                verdict_names[one->verdict], verdict_names[one->verdict]);
        text(one->detail, to);
        if (one->error >= 0)
            fprintf(to, " (error: %.3g of the bound)", one->error);
        if (one->measured >= 0)
            fprintf(to, " %.4g %s", one->measured, one->unit);
        fprintf(to, "</td></tr>\n");
    }
    fprintf(to, "</table>\n");
}

static void remarks(const report *self, FILE *to)
{
    for (size_t i = 0; i < self->nremarks; i++) {
        fprintf(to, "<p>");
        text(self->remarks[i], to);
        fprintf(to, "</p>\n");
    }
}

bool report_html(const report *self, FILE *to)
{
    fprintf(to,
            "<!DOCTYPE html>\n<html lang=\"en\"><head>"
            "<meta charset=\"utf-8\"><title>Conformance</title>"
            "<style>%s</style></head><body>\n",
            style);
    head(self, to);
    levels(self, to);
    remarks(self, to);
    tests(self, true, to);
    matrix(self, to);
    tests(self, false, to);
    fprintf(to, "</body></html>\n");
    return fflush(to) == 0 && !ferror(to);
}
