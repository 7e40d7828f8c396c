/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE /* environ, memfd_create */

#include "side_effects.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* -------------------------------------------------------------- output -- */

static int output = -1;
static off_t taken;

void side_effects_redirect_output(void)
{
    int file = memfd_create("output", MFD_CLOEXEC);

    if (file < 0)
        return;
    output = fcntl(file, F_DUPFD_CLOEXEC, 64);
    close(file);
    if (output >= 0 && dup2(output, STDOUT_FILENO) < 0)
        output = -1;
}

bool side_effects_take_output(char *text, size_t capacity)
{
    char part[256];
    size_t size = 0;
    ssize_t got;

    if (output < 0)
        return false;
    fflush(stdout);
    while ((got = pread(output, part, sizeof part, taken)) > 0) {
        size_t fits = size + 1 < capacity ? capacity - 1 - size : 0;

        taken += got;
        (void)!write(STDERR_FILENO, part, (size_t)got);
        fits = (size_t)got < fits ? (size_t)got : fits;
        memcpy(text + size, part, fits);
        size += fits;
    }
    text[size] = 0;
    return size > 0;
}

/* --------------------------------------------------------- environment -- */

static void release(char **variables)
{
    for (size_t i = 0; variables && variables[i]; i++)
        free(variables[i]);
    free(variables);
}

static char **copy_environment(void)
{
    size_t count = 0;
    char **copy;

    while (environ && environ[count])
        count++;
    copy = calloc(count + 1, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        if (!(copy[i] = strdup(environ[i]))) {
            release(copy);
            return NULL;
        }
    return copy;
}

static bool contains(char **variables, const char *one)
{
    for (; variables && *variables; variables++)
        if (strcmp(*variables, one) == 0)
            return true;
    return false;
}

/* Copies the name of the first variable in one environment that the other does
 * not have with the same value. */
static bool find_change(char **in, char **other, char *name, size_t capacity)
{
    for (; in && *in; in++)
        if (!contains(other, *in)) {
            snprintf(name, capacity, "%.*s", (int)strcspn(*in, "="), *in);
            return true;
        }
    return false;
}

/* --------------------------------------------------------------- calls -- */

void side_effects_begin(side_effects_before *self)
{
    char text[2];

    side_effects_take_output(text, sizeof text);
    self->variables = copy_environment();
}

void side_effects_end(side_effects_before *self, slot which,
                      side_effects *effects)
{
    char text[sizeof effects->printed];

    if (side_effects_take_output(text, sizeof text) &&
        effects->printer == SLOT_NONE) {
        effects->printer = which;
        memcpy(effects->printed, text, sizeof text);
    }
    if (self->variables && effects->setter == SLOT_NONE &&
        (find_change(environ, self->variables, effects->variable,
                     sizeof effects->variable) ||
         find_change(self->variables, environ, effects->variable,
                     sizeof effects->variable)))
        effects->setter = which;
    release(self->variables);
    self->variables = NULL;
}
