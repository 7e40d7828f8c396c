/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_bench.h: runs kernels of loop programs (core.codegen) through the
 * plugin's table, and compares them with the suite's interpreter. */

#ifndef CONFORMANCE_LOOP_BENCH_H
#define CONFORMANCE_LOOP_BENCH_H

#include "loop_reference.h"
#include "plugin_tables.h"

enum { LOOP_DIMENSIONS = 6, LOOP_GUARD = 64 /* bytes around operands */ };

typedef struct codegen_bed {
    plugin_tables *p;
    void *stream; /* of launches */
    const core_codegen_interface *table;
    outcome *out;
    bool divides; /* divisions are rounded exactly */
    bool flushes; /* subnormal numbers may become 0 */
} codegen_bed;

typedef enum loop_layout {
    LOOP_DENSE,
    LOOP_GAPS,       /* between all elements */
    LOOP_TRANSPOSED, /* the outermost dimension is dense */
    LOOP_REPEATED,   /* inputs: stride 0 in the innermost dimension */
    LOOP_LAYOUTS
} loop_layout;

/* "dense", and so on. */
extern const char *const loop_layout_texts[LOOP_LAYOUTS];

/* Operands in host memory, for the reference, and on the device. */
typedef struct loop_bench {
    core_loop loop;
    int64_t sizes[LOOP_DIMENSIONS];
    core_operand host[LOOP_OPERANDS], device[LOOP_OPERANDS];
    int64_t strides[LOOP_OPERANDS][LOOP_DIMENSIONS];
    char *data[LOOP_OPERANDS]; /* with a guard on both sides */
    uint64_t bytes[LOOP_OPERANDS];
    plugin_block blocks[LOOP_OPERANDS];
    uint32_t from[LOOP_OPERANDS]; /* whose memory an operand uses */
    bool spread[LOOP_OPERANDS];   /* there are gaps between its elements */
    uint64_t salt;                /* changes the numbers of the inputs */
    plugin_block scratch;
    uint32_t tile, threads; /* of launches */
} loop_bench;

/* Opens the plugin; if it has no core.codegen, the outcome says so. */
bool codegen_bed_open(codegen_bed *b, suite *self, outcome *out);

/* The program out = a + b b. */
void loop_case_square_sum(loop_case *now, core_dtype dtype);
uint32_t loop_itemsize(core_dtype dtype);

/* Allocates and writes the operands.  all_same: each has the layout `how`;
 * otherwise they have `how` and the layouts after it, in turn. */
bool loop_bench_begin(codegen_bed *b, loop_bench *k,
                      const core_loop_program *program, uint32_t ndim,
                      const int64_t *sizes, uint32_t reduced, loop_layout how,
                      bool all_same);
void loop_bench_end(codegen_bed *b, loop_bench *k);
/* Makes an operand use the memory of another one of the same dtype and
 * layout. */
void loop_bench_share(loop_bench *k, uint32_t operand, uint32_t with);
/* Writes other numbers to the inputs, and a pattern to the outputs. */
bool loop_bench_renew(codegen_bed *b, loop_bench *k);
/* Writes numbers to an input that is not a number itself. */
bool loop_bench_fill(codegen_bed *b, loop_bench *k, uint32_t operand,
                     double (*number)(uint64_t i));

/* Enqueues the kernel.  *out_status: what the plugin's launch returns. */
bool loop_bench_launch_returns(codegen_bed *b, void *kernel, loop_bench *k,
                               core_status *out_status);
bool loop_bench_launch(codegen_bed *b, void *kernel, loop_bench *k);

/* Compares the outputs and what is around and between their elements with the
 * reference, which has run on the host's copies.  tolerance: relative; 0: the
 * same bits, except of NaN. */
bool loop_bench_is_same(codegen_bed *b, loop_bench *k, double tolerance,
                        const char *what);

/* Builds a kernel.  *out_refused: the plugin does not accept the program. */
bool codegen_build(codegen_bed *b, const core_loop_program *program,
                   void **out_kernel, bool *out_refused);
/* Runs a kernel on one loop, destroys it if it is not needed again, and
 * compares. */
bool codegen_compare(codegen_bed *b, const core_loop_program *program,
                     void *kernel, loop_bench *k, const char *what, bool last);
/* Builds, runs and compares one program on one loop. */
bool codegen_run(codegen_bed *b, const core_loop_program *program,
                 loop_bench *k, const char *what, bool *out_refused);

#endif
