/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: one kernel of a loop program that is launched several times, by
 * two threads, and on operands that share memory. */

#include "loop_bench.h"
#include "tests_features.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static core_status accepts(const codegen_bed *b, const loop_case *now)
{
    return b->table->accepts(b->p->device, &now->program);
}

/* Opens the plugin and builds a kernel; if it does not accept the program, the
 * outcome says so. */
static bool open_with_kernel(codegen_bed *b, suite *self, outcome *out,
                             const loop_case *now, const char *what,
                             void **out_kernel)
{
    *out_kernel = NULL;
    if (!codegen_bed_open(b, self, out))
        return false;
    if (accepts(b, now) == CORE_ERROR_UNSUPPORTED) {
        not_supported(out, "it does not accept %s", what);
        return false;
    }
    return expect_plugin_ok(
        out, b->table->build(b->p->device, &now->program, NULL, out_kernel),
        "building a kernel");
}

/* ------------------------------------------------------------- again -- */

static bool launch_again(codegen_bed *b, const loop_case *now, void *kernel,
                         loop_bench *k, int launch, const char *how)
{
    char what[120];

    snprintf(what, sizeof what, "launch %d of a kernel, %s", launch, how);
    return codegen_compare(b, &now->program, kernel, k, what, false);
}

/* Two loops of one size and layout, in turn, with changing contents. */
void codegen_kernels_are_launched_again(suite *self, outcome *out,
                                        const test *one)
{
    const int64_t size = 300;
    loop_bench first, second;
    bool begun, begun_second;
    void *kernel;
    uint32_t a, c;
    loop_case now;
    codegen_bed b;

    (void)one;
    loop_case_begin(&now, 1);
    a = loop_case_load(&now, CORE_F32, 0);
    c = loop_case_load(&now, CORE_F32, CORE_LOOP_OPERAND_NUMBER);
    loop_case_store(&now, 0,
                    loop_case_add(&now, CORE_LOOP_MUL, CORE_F32, a, c, 0));
    loop_case_end(&now);
    if (!open_with_kernel(&b, self, out, &now, "a number times a tensor of f32",
                          &kernel))
        return;
    begun = loop_bench_begin(&b, &first, &now.program, 1, &size, 0, LOOP_DENSE,
                             true);
    begun_second = begun && loop_bench_begin(&b, &second, &now.program, 1,
                                             &size, 0, LOOP_DENSE, true);
    if (begun_second &&
        launch_again(&b, &now, kernel, &first, 1, "the first loop") &&
        loop_bench_renew(&b, &second) &&
        launch_again(&b, &now, kernel, &second, 2,
                     "a loop of the same size in other memory") &&
        loop_bench_renew(&b, &first))
        launch_again(&b, &now, kernel, &first, 3,
                     "the first loop with other numbers in its memory");
    if (begun)
        loop_bench_end(&b, &first);
    if (begun_second)
        loop_bench_end(&b, &second);
    b.table->destroy(b.p->device, kernel);
}

/* ------------------------------------------------ tiles and threads -- */

/* Launches a loop with each pair of a tile and a number of threads. */
static bool launch_measured(codegen_bed *b, const loop_case *now, void *kernel,
                            loop_bench *k, const char *which)
{
    static const uint32_t tiles[] = {1, 7, 64, 100, 4096, UINT32_MAX};
    static const uint32_t threads[] = {1, 2, 3, 7, 1000};
    bool good = true;

    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++)
        for (size_t n = 0; good && n < sizeof threads / sizeof *threads; n++) {
            char what[160];

            k->tile = t == n ? 0 : tiles[t];
            k->threads = threads[n];
            snprintf(what, sizeof what,
                     "a launch with a tile of %u elements and %u threads, %s",
                     k->tile, k->threads, which);
            good = loop_bench_renew(b, k) &&
                   codegen_compare(b, &now->program, kernel, k, what, false);
        }
    return good;
}

/* What the core has measured to be fast changes no element. */
void codegen_tiles_and_threads(suite *self, outcome *out, const test *one)
{
    static const int64_t sizes[][2] = {{301, 1}, {5, 61}};
    bool good = true;
    void *kernel;
    loop_case now;
    codegen_bed b;

    (void)one;
    loop_case_square_sum(&now, CORE_F32);
    if (!open_with_kernel(&b, self, out, &now, "a + b b of f32", &kernel))
        return;
    for (int i = 0; good && i < 2; i++)
        for (int how = LOOP_DENSE; good && how <= LOOP_GAPS; how++) {
            char which[60];
            loop_bench k;

            snprintf(which, sizeof which, "%lld x %lld, %s",
                     (long long)sizes[i][0], (long long)sizes[i][1],
                     loop_layout_texts[how]);
            good = loop_bench_begin(&b, &k, &now.program, i + 1U, sizes[i], 0,
                                    (loop_layout)how, true);
            if (!good)
                break;
            good = launch_measured(&b, &now, kernel, &k, which);
            loop_bench_end(&b, &k);
        }
    b.table->destroy(b.p->device, kernel);
}

/* ------------------------------------------------------- shared memory -- */

/* Both outputs depend on both inputs: whoever writes one of them before he has
 * read the inputs for the other gets that wrong. */
static void sum_and_difference(loop_case *now)
{
    uint32_t a, c, sum, difference;

    loop_case_begin(now, 2);
    a = loop_case_load(now, CORE_F32, 0);
    c = loop_case_load(now, CORE_F32, 0);
    sum = loop_case_add(now, CORE_LOOP_ADD, CORE_F32, a, c, 0);
    difference = loop_case_add(now, CORE_LOOP_SUB, CORE_F32, a, c, 0);
    loop_case_store(now, 0, sum);
    loop_case_store(now, 1, difference);
    loop_case_end(now);
}

typedef struct sharing {
    const char *text;
    uint32_t operand[2], with[2];
    uint32_t count;
} sharing;

static bool run_shared(codegen_bed *b, const loop_case *now, void *kernel,
                       const sharing *how, loop_layout layout, int64_t inner)
{
    const int64_t sizes[2] = {inner, 3};
    char what[160];
    loop_bench k;
    bool good;

    snprintf(what, sizeof what, "a + b and a - b, %lld x 3, %s, %s",
             (long long)inner, loop_layout_texts[layout], how->text);
    if (!loop_bench_begin(b, &k, &now->program, 2, sizes, 0, layout, true))
        return false;
    for (uint32_t i = 0; i < how->count; i++)
        loop_bench_share(&k, how->operand[i], how->with[i]);
    good = codegen_compare(b, &now->program, kernel, &k, what, false);
    loop_bench_end(b, &k);
    return good;
}

/* Operands 0 and 1 are the outputs, 2 and 3 the inputs a and b. */
void codegen_outputs_may_be_inputs(suite *self, outcome *out, const test *one)
{
    static const sharing ways[] = {
        {"the first output in the memory of a", {0}, {2}, 1},
        {"the first output in the memory of b", {0}, {3}, 1},
        {"the second output in the memory of a", {1}, {2}, 1},
        {"the outputs in the memory of a and b", {0, 1}, {2, 3}, 2},
        {"a and b in the same memory", {3}, {2}, 1},
        {"a and b in the same memory, and the first output too",
         {3, 0},
         {2, 2},
         2},
    };
    static const int64_t sizes[] = {1, 7, 64, 300};
    bool good = true;
    void *kernel;
    loop_case now;
    codegen_bed b;

    (void)one;
    sum_and_difference(&now);
    if (!open_with_kernel(&b, self, out, &now, "a + b and a - b of f32",
                          &kernel))
        return;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (int how = LOOP_DENSE; how <= LOOP_TRANSPOSED; how++)
            for (size_t n = 0; good && n < sizeof sizes / sizeof *sizes; n++)
                good = run_shared(&b, &now, kernel, &ways[w], (loop_layout)how,
                                  sizes[n]);
    b.table->destroy(b.p->device, kernel);
}

/* ----------------------------------------------------------- threads -- */

enum { ROUNDS = 30 };

typedef struct launcher {
    codegen_bed bed; /* its stream is that of the thread */
    outcome out;
    loop_bench k;
    void *kernel;
    pthread_barrier_t *turn; /* both launch, then both are compared */
    bool begun;
    _Atomic bool *stop;
} launcher;

static void *launch_in_turn(void *context)
{
    launcher *self = context;
    plugin_tables *p = self->bed.p;

    for (;;) {
        pthread_barrier_wait(self->turn);
        if (*self->stop)
            return NULL;
        if (loop_bench_launch(&self->bed, self->kernel, &self->k) &&
            !p->synchronous)
            expect_plugin_ok(
                &self->out, p->streams.synchronize(p->device, self->bed.stream),
                "synchronizing a stream of two");
        pthread_barrier_wait(self->turn);
    }
}

/* Launches in both threads at once, and compares both results. */
static bool both_are_right(launcher *both, const loop_case *now, int round)
{
    for (int i = 0; i < 2; i++)
        if (!loop_bench_renew(&both[i].bed, &both[i].k))
            return false;
    pthread_barrier_wait(both->turn);
    pthread_barrier_wait(both->turn);
    for (int i = 0; i < 2; i++) {
        char what[120];

        if (both[i].out.verdict != VERDICT_PASS)
            return false;
        snprintf(what, sizeof what,
                 "two threads launch one kernel at once, round %d, the loop of "
                 "%lld elements",
                 round, (long long)both[i].k.loop.numel);
        loop_reference_run(&now->program, &both[i].k.loop);
        if (!loop_bench_is_same(&both[i].bed, &both[i].k, 0, what))
            return false;
    }
    return true;
}

static void run_threads(launcher *both, const loop_case *now, outcome *out)
{
    pthread_barrier_t turn;
    _Atomic bool stop = false;
    pthread_t threads[2];
    int started = 0;

    pthread_barrier_init(&turn, NULL, 3);
    for (; started < 2; started++) {
        both[started].turn = &turn;
        both[started].stop = &stop;
        if (pthread_create(&threads[started], NULL, launch_in_turn,
                           &both[started]) != 0)
            break;
    }
    for (int i = 0; started == 2 && i < ROUNDS; i++)
        if (!both_are_right(both, now, i))
            break;
    stop = true;
    if (started == 2)
        pthread_barrier_wait(&turn);
    else
        harness_error(out, "no thread");
    for (int i = 0; started == 2 && i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&turn);
}

/* Each thread has its own stream, if the device has two. */
static bool begin_launcher(launcher *self, const codegen_bed *b,
                           const loop_case *now, void *kernel, int64_t size,
                           void *stream)
{
    self->out = *b->out;
    self->bed = *b;
    self->bed.out = &self->out;
    self->bed.stream = stream;
    self->kernel = kernel;
    self->begun = loop_bench_begin(&self->bed, &self->k, &now->program, 1,
                                   &size, 0, LOOP_DENSE, true);
    return self->begun;
}

void codegen_threads_share_a_kernel(suite *self, outcome *out, const test *one)
{
    launcher both[2] = {{.begun = false}, {.begun = false}};
    void *kernel, *stream = NULL;
    plugin_tables *p;
    loop_case now;
    codegen_bed b;

    (void)one;
    loop_case_square_sum(&now, CORE_F32);
    if (!open_with_kernel(&b, self, out, &now, "a + b b of f32", &kernel))
        return;
    p = b.p;
    if ((p->synchronous || p->properties.max_streams == 1 ||
         expect_plugin_ok(out, p->streams.create(p->device, 0, &stream),
                          "creating a second stream")) &&
        begin_launcher(&both[0], &b, &now, kernel, 300, b.stream) &&
        begin_launcher(&both[1], &b, &now, kernel, 70,
                       stream ? stream : b.stream))
        run_threads(both, &now, out);
    for (int i = 2; i-- > 0;) {
        if (both[i].begun && both[i].out.verdict != VERDICT_PASS)
            *out = both[i].out;
        if (both[i].begun)
            loop_bench_end(&both[i].bed, &both[i].k);
    }
    if (stream)
        p->streams.destroy(p->device, stream);
    b.table->destroy(p->device, kernel);
}
