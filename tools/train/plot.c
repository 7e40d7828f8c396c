/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* --plot: draws the losses of all epochs so far (SVG 1.1); rewritten after each
 * epoch. */

#include "train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 640,
    HEIGHT = 400,
    LEFT = 60,
    RIGHT = 20,
    TOP = 40,
    BOTTOM = 45
};

static core_status add(trainer *t, const train_score *train,
                       const train_score *test)
{
    train_point *points;

    points = realloc(t->points, (t->npoints + 1) * sizeof *points);
    if (!points)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for the plot");
    t->points = points;
    points[t->npoints++] = (train_point){t->epoch, train->loss, test->loss};
    return train_plot_write(t);
}

void train_plot_add(trainer *t, const train_score *train,
                    const train_score *test)
{
    if (!t->options.plot)
        return;
    t->drawn = add(t, train, test) == CORE_OK;
    if (!t->drawn)
        train_report_missing(t);
}

/* 1, 2 or 5 times a power of ten: about five marks on the axis. */
static double mark_width(double range)
{
    double width = 1e-9;

    while (range / width > 6) {
        if (range / (2 * width) <= 6)
            return 2 * width;
        if (range / (5 * width) <= 6)
            return 5 * width;
        width *= 10;
    }
    return width;
}

typedef struct axes {
    double first, last; /* epochs */
    double most;        /* loss */
} axes;

static double across(const axes *axes, double epoch)
{
    double range = axes->last - axes->first;

    return LEFT + (range > 0 ? (epoch - axes->first) / range : 0.5) *
                      (WIDTH - LEFT - RIGHT);
}

static double down(const axes *axes, double loss)
{
    return HEIGHT - BOTTOM - loss / axes->most * (HEIGHT - TOP - BOTTOM);
}

static void draw_axes(FILE *file, const axes *axes)
{
    double step = mark_width(axes->most);
    double epochs =
        axes->last - axes->first < 1 ? 1 : mark_width(axes->last - axes->first);

    if (epochs < 1)
        epochs = 1;
    fprintf(file, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#888\"/>\n",
            LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (double loss = 0; loss <= axes->most; loss += step)
        fprintf(file,
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n"
                "<path d=\"M%d %.1fH%d\" stroke=\"#eee\"/>\n",
                LEFT - 6, down(axes, loss) + 4, loss, LEFT, down(axes, loss),
                WIDTH - RIGHT);
    for (double epoch = axes->first; epoch <= axes->last; epoch += epochs)
        fprintf(file,
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                across(axes, epoch), HEIGHT - BOTTOM + 18, epoch);
    fprintf(file,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">epoch</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
}

static void draw_line(FILE *file, const trainer *t, const axes *axes, bool test,
                      const char *colour)
{
    fputs("<polyline fill=\"none\" stroke-width=\"2\" stroke=\"", file);
    fprintf(file, "%s\" points=\"", colour);
    for (size_t i = 0; i < t->npoints; i++)
        fprintf(file, "%s%.1f,%.1f", i ? " " : "",
                across(axes, (double)t->points[i].epoch),
                down(axes, test ? t->points[i].test : t->points[i].train));
    fputs("\"/>\n", file);
    for (size_t i = 0; i < t->npoints; i++)
        fprintf(file, "<circle r=\"3\" cx=\"%.1f\" cy=\"%.1f\" fill=\"%s\"/>\n",
                across(axes, (double)t->points[i].epoch),
                down(axes, test ? t->points[i].test : t->points[i].train),
                colour);
}

static void draw(FILE *file, const trainer *t)
{
    static const char train[] = "#4c8bc9", test[] = "#c9874c";
    axes axes = {(double)t->points[0].epoch,
                 (double)t->points[t->npoints - 1].epoch, 0};

    for (size_t i = 0; i < t->npoints; i++) {
        if (t->points[i].train > axes.most)
            axes.most = t->points[i].train;
        if (t->points[i].test > axes.most)
            axes.most = t->points[i].test;
    }
    if (axes.most <= 0)
        axes.most = 1;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"%d\" y=\"22\" fill=\"%s\">training loss</text>\n"
            "<text x=\"%d\" y=\"22\" fill=\"%s\">%s loss</text>\n",
            WIDTH, HEIGHT, LEFT, train, LEFT + 120, test, t->task->half);
    draw_axes(file, &axes);
    draw_line(file, t, &axes, false, train);
    draw_line(file, t, &axes, true, test);
    fputs("</svg>\n", file);
}

/* Writes to a temporary file and renames it, so that the drawing is complete at
 * any time. */
core_status train_plot_write(const trainer *t)
{
    const char *path = t->options.plot;
    size_t size;
    char *other;
    FILE *file;
    bool good;

    if (!path)
        return CORE_OK;
    size = strlen(path) + sizeof ".new";
    other = malloc(size);
    if (!other)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for the plot");
    snprintf(other, size, "%s.new", path);
    file = fopen(other, "w");
    good = file != NULL;
    if (good && t->npoints)
        draw(file, t);
    if (good)
        good = !ferror(file);
    if (file)
        good = fclose(file) == 0 && good;
    /* Before the first epoch only checks that the file can be written. */
    if (good && t->npoints)
        good = rename(other, path) == 0;
    if (!good)
        train_error(CORE_ERROR_IO, "--plot: cannot write %s: %s", path,
                    strerror(errno));
    if (!good || !t->npoints)
        remove(other);
    free(other);
    return good ? CORE_OK : CORE_ERROR_IO;
}
