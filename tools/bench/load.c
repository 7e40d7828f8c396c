/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* From process start to the first result: starts this program again, which adds
 * two numbers and reports the time of the result and libcore's share of its
 * memory.  Prints the medians. */

#include "bench.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STARTS = 21 };

typedef struct start {
    double main_began; /* seconds of the monotonic clock */
    double result;
    double mapped; /* bytes of libcore.so and core_cpu.so */
    double resident;
    double process; /* resident bytes of the process */
} start;

/* ------------------------------------------------------------- the child -- */

/* The mapped and the resident bytes of libcore.so and core_cpu.so. */
static void read_maps(start *out)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[4096];
    bool ours = false;

    if (!maps)
        return;
    while (fgets(line, sizeof line, maps)) {
        unsigned long low, high, kilobytes;

        if (sscanf(line, "%lx-%lx ", &low, &high) == 2) {
            ours = strstr(line, "/libcore.so") || strstr(line, "/core_cpu.so");
            out->mapped += ours ? (double)(high - low) : 0;
        } else if (sscanf(line, "Rss: %lu kB", &kilobytes) == 1) {
            out->resident += ours ? 1024. * (double)kilobytes : 0;
            out->process += 1024. * (double)kilobytes;
        }
    }
    fclose(maps);
}

int bench_first_result(double main_began)
{
    const float one = 1, two = 2;
    core_tensor *a, *b, *sum;
    start self = {.main_began = main_began};
    core_device *cpu;
    double value;

    must(core_device_find("cpu", &cpu));
    must(core_tensor_from_data(&one, CORE_F32, NULL, 0, cpu, &a));
    must(core_tensor_from_data(&two, CORE_F32, NULL, 0, cpu, &b));
    must(core_add(a, b, core_int(1), &sum));
    must(core_tensor_item_float(sum, &value));
    self.result = bench_now();
    core_tensor_release(sum);
    core_tensor_release(b);
    core_tensor_release(a);
    read_maps(&self);
    return value == 3 && printf("%.9f %.9f %.0f %.0f %.0f\n", self.main_began,
                                self.result, self.mapped, self.resident,
                                self.process) > 0
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}

/* ------------------------------------------------------------ the parent -- */

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "core-bench: a process that adds two numbers: %s\n", what);
    exit(EXIT_FAILURE);
}

static pid_t spawn(int output)
{
    extern char **environ;
    char *words[] = {"core-bench", BENCH_FIRST_RESULT, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int error = posix_spawn_file_actions_init(&actions);

    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, output, 1);
    if (!error)
        error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, words,
                            environ);
    if (error)
        fail(strerror(error));
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

/* Returns the start time; out has the report. */
static double start_one(start *out)
{
    int ends[2], state;
    double began;
    FILE *output;
    pid_t child;

    if (pipe(ends) != 0)
        fail(strerror(errno));
    began = bench_now();
    child = spawn(ends[1]);
    close(ends[1]);
    output = fdopen(ends[0], "r");
    if (!output ||
        fscanf(output, "%lf %lf %lf %lf %lf", &out->main_began, &out->result,
               &out->mapped, &out->resident, &out->process) != 5)
        fail("it reported nothing");
    fclose(output);
    if (waitpid(child, &state, 0) != child || state != 0)
        fail("it failed");
    return began;
}

void bench_load(void)
{
    double to_main[STARTS], to_result[STARTS], in_all[STARTS];
    double process[STARTS], resident[STARTS];
    start one;

    start_one(&one); /* from here on the files are in the page cache */
    for (int i = 0; i < STARTS; i++) {
        double began = start_one(&one);

        to_main[i] = one.main_began - began;
        to_result[i] = one.result - one.main_began;
        in_all[i] = one.result - began;
        resident[i] = one.resident;
        process[i] = one.process;
    }
    bench_out("load.exec_to_main", bench_median(to_main, STARTS) * 1e3, "ms");
    bench_out("load.main_to_first_result",
              bench_median(to_result, STARTS) * 1e3, "ms");
    bench_out("load.exec_to_first_result", bench_median(in_all, STARTS) * 1e3,
              "ms");
    bench_out("load.mapped_core+cpu", one.mapped / 1e6, "MB");
    bench_out("load.resident_core+cpu", bench_median(resident, STARTS) / 1e6,
              "MB");
    bench_out("load.resident_process", bench_median(process, STARTS) / 1e6,
              "MB");
}
