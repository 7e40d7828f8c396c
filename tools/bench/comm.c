/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Collectives of the ranks that mpirun started, beside calls of the MPI library,
 * and the reducer beside one all-reduce of all gradients after the backward.
 * Every rank makes the same number of calls. */

#include "bench.h"

#include <libcore/reducer.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { REPEATS = 15, MANY = 60, LAYERS = 8, WIDTH = 1024, ROWS = 16 };

static core_comm *comm;

static bool is_check(void)
{
    return bench_only_checks();
}

/* Measures two rows in turns; the fastest repeats are the least disturbed.  Of short
 * calls there are many. */
static void compare_rows(bench_row rows[2], void *contexts[2], int calls,
                         double *out_seconds)
{
    int repeats = is_check() ? 1 : calls > 2 ? MANY : REPEATS;

    calls = is_check() ? 1 : calls;
    out_seconds[0] = out_seconds[1] = 1e9;
    for (int r = 0; r < 2 * repeats; r++) {
        double begin, time;

        if (!rows[r % 2])
            continue;
        must(core_barrier(comm));
        rows[r % 2](contexts[r % 2]);
        begin = bench_now();
        for (int i = 0; i < calls; i++)
            rows[r % 2](contexts[r % 2]);
        time = (bench_now() - begin) / calls;
        if (time < out_seconds[r % 2])
            out_seconds[r % 2] = time;
    }
}

static void print(const char *what, const char *of, double seconds)
{
    char name[80];

    snprintf(name, sizeof name, "comm.%s%s/%u", what, of, core_comm_size(comm));
    if (core_comm_rank(comm) == 0)
        bench_out(name, seconds * 1e6, "us");
}

/* ---------------------------------------------------------------- MPI -- */

/* MPI_Allreduce of floats, of the library that the engine has opened.  Its
 * handles are addresses of variables in Open MPI, and numbers, which MPICH's
 * ABI fixes, in MPICH. */
typedef struct bare {
    union {
        int (*of_addresses)(const void *, void *, int, void *, void *, void *);
        int (*of_numbers)(const void *, void *, int, int, int, int);
        void *symbol;
    } call;
    void *type, *sum, *world;
    float *data;
    int count;
} bare;

static bool bare_find(bare *b)
{
    b->call.symbol = dlsym(RTLD_DEFAULT, "MPI_Allreduce");
    b->type = dlsym(RTLD_DEFAULT, "ompi_mpi_float");
    b->sum = dlsym(RTLD_DEFAULT, "ompi_mpi_op_sum");
    b->world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
    return b->call.symbol != NULL;
}

static void bare_row(void *context)
{
    bare *b = context;

    if (b->world)
        b->call.of_addresses((void *)1, b->data, b->count, b->type, b->sum,
                             b->world);
    else
        b->call.of_numbers((void *)-1, b->data, b->count, 0x4c00040a,
                           0x58000003, 0x44000000);
}

static void all_reduce_row(void *context)
{
    must(core_all_reduce_(comm, context, CORE_REDUCE_SUM));
}

static void all_reduce(const char *name, int64_t count, int calls)
{
    bare b = {.count = (int)count};
    core_tensor *ours, *theirs;
    bool found = bare_find(&b);
    void *data;
    double seconds[2];

    must(core_zeros(&count, 1, CORE_F32, core_comm_device(comm), &ours));
    must(core_zeros(&count, 1, CORE_F32, core_comm_device(comm), &theirs));
    must(core_tensor_data(theirs, &data));
    b.data = data;
    compare_rows((bench_row[]){all_reduce_row, found ? bare_row : NULL},
                 (void *[]){ours, &b}, calls, seconds);
    print("all_reduce_", name, seconds[0]);
    if (found)
        print("mpi_allreduce_", name, seconds[1]);
    core_tensor_release(ours);
    core_tensor_release(theirs);
}

/* --------------------------------------------------------- comparison -- */

static void barrier_row(void *context)
{
    must(core_barrier(context));
}

/* The difference is what the comparison of calls takes. */
static void barriers(void)
{
    core_comm_options options = {.struct_size = sizeof options,
                                 .flags = CORE_COMM_UNCHECKED};
    core_comm *unchecked;
    double seconds[2];

    must(core_comm_create(NULL, &options, &unchecked));
    compare_rows((bench_row[]){barrier_row, barrier_row},
                 (void *[]){comm, unchecked}, 200, seconds);
    print("barrier", "", seconds[0]);
    print("barrier_unchecked", "", seconds[1]);
    core_comm_release(unchecked);
}

/* ------------------------------------------------------------- reducer -- */

typedef struct model {
    core_tensor *input, *weights[LAYERS];
    core_tensor *flat; /* the gradients, without the reducer */
    core_gradient_destination to[LAYERS];
    core_reducer *reducer;
} model;

static core_tensor *loss_of(const model *m)
{
    core_tensor *x = core_tensor_retain(m->input), *y;

    for (int i = 0; i < LAYERS; i++) {
        must(core_linear(x, m->weights[i], NULL, &y));
        core_tensor_release(x);
        x = y;
    }
    must(core_sum(x, CORE_DTYPE_NONE, &y));
    core_tensor_release(x);
    return y;
}

static void reducer_row(void *context)
{
    model *m = context;
    core_tensor *loss = loss_of(m);

    for (int i = 0; i < LAYERS; i++)
        must(core_tensor_set_grad(m->weights[i], NULL));
    must(core_reducer_backward(m->reducer, &loss, 1, NULL, 0));
    core_tensor_release(loss);
}

static void flat_row(void *context)
{
    model *m = context;
    core_tensor *loss = loss_of(m);

    must(core_backward_into(&loss, 1, NULL, 0, m->to, LAYERS));
    must(core_all_reduce_(comm, m->flat, CORE_REDUCE_AVG));
    core_tensor_release(loss);
}

static void local_row(void *context)
{
    model *m = context;
    core_tensor *loss = loss_of(m);

    must(core_backward_into(&loss, 1, NULL, 0, m->to, LAYERS));
    core_tensor_release(loss);
}

static void make_model(model *m)
{
    int64_t sizes[2] = {WIDTH, WIDTH}, batch[2] = {ROWS, WIDTH};
    int64_t all = LAYERS * WIDTH * WIDTH, one = WIDTH * WIDTH;
    core_device *device = core_comm_device(comm);

    must(core_full(batch, 2, core_float(1), CORE_F32, device, &m->input));
    must(core_zeros(&all, 1, CORE_F32, device, &m->flat));
    for (int i = 0; i < LAYERS; i++) {
        core_tensor *part;

        must(core_full(sizes, 2, core_float(1. / WIDTH), CORE_F32, device,
                       &m->weights[i]));
        must(core_tensor_set_requires_grad(m->weights[i], true));
        m->to[i] = (core_gradient_destination){.struct_size = sizeof *m->to,
                                               .input = m->weights[i]};
        must(core_narrow(m->flat, 0, i * one, one, &part));
        must(core_view_sizes(part, sizes, 2, &m->to[i].buffer));
        core_tensor_release(part);
    }
    must(core_reducer_create(comm, m->weights, LAYERS, NULL, &m->reducer));
}

static void release_model(model *m)
{
    core_reducer_release(m->reducer);
    for (int i = 0; i < LAYERS; i++) {
        core_tensor_release(m->weights[i]);
        core_tensor_release(m->to[i].buffer);
    }
    core_tensor_release(m->input);
    core_tensor_release(m->flat);
}

/* Of each step of the reducer: in collectives, and after the backward. */
static void print_overlap(const model *m)
{
    core_reducer_counts counts = {.struct_size = sizeof counts};

    must(core_reducer_get_counts(m->reducer, &counts));
    if (counts.steps == 0 || counts.communicated_ns == 0)
        return; /* the device has streams */
    print("step_reducer_32MB_communication", "",
          (double)counts.communicated_ns / (double)counts.steps * 1e-9);
    print("step_reducer_32MB_waiting", "",
          (double)counts.waited_ns / (double)counts.steps * 1e-9);
}

static void data_parallel(void)
{
    double seconds[2], local[2];
    model m;

    memset(&m, 0, sizeof m);
    make_model(&m);
    compare_rows((bench_row[]){reducer_row, flat_row}, (void *[]){&m, &m}, 2,
                 seconds);
    compare_rows((bench_row[]){local_row, NULL}, (void *[]){&m, NULL}, 2,
                 local);
    print("step_reducer_32MB", "", seconds[0]);
    print_overlap(&m);
    print("step_flat_all_reduce_32MB", "", seconds[1]);
    print("step_alone", "", local[0]);
    release_model(&m);
}

/* ------------------------------------------------------------- section -- */

void bench_comm(void)
{
    /* Without a launcher this section has no rows. */
    if (core_comm_create(NULL, NULL, &comm) != CORE_OK) {
        fprintf(stderr, "comm: no rows: %s\n", core_error_message());
        core_error_clear();
        return;
    }
    must(core_threads_set(1));
    all_reduce("4KB", 1 << 10, 200);
    all_reduce("1MB", 1 << 18, 20);
    all_reduce("64MB", 1 << 24, 1);
    barriers();
    data_parallel();
    core_comm_release(comm);
}
