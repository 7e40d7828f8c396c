/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* comm_ranks: one rank of a test of an engine of core.collectives, for mpirun;
 * or all of them, for an engine without a launcher.
 *
 *     comm_ranks ENGINE DEVICE TEST [RANKS [PLUGIN]]
 *
 * With RANKS it starts that many processes.  A DEVICE such as "cuda:" means the
 * device with the number of the rank.  TEST is `results`, or what the last rank does
 * wrong: kill, stop, leave, abort, cancel (a backward), size, dtype, order, root, or
 * absent (from the creation of a second communicator); sum-size and sum-order, while the
 * others sum; or `unchecked`, which is stop in a barrier whose calls are not compared, or
 * `unchecked-sum`, the same in a large sum.  The others then print the error that they
 * get.
 *
 * - `versions`: the last rank's plugin is another version, which all ranks print.
 * - `large`: sums of 32 MB.
 * - `shared`: each rank prints whether it shares memory of the engine mpi.
 * - `fork`: a child of each rank ends by exit.
 * - `shrink` and `shrink-killed`: the last rank stops or is killed, and the others go
 *   on; one that stopped continues then, and must not go on.
 * - `shrink-late`: the last rank is killed, and of the others some shrink later, by a
 *   third of the timeout.
 * - `shrink-apart`: the same, and each of the others waits on another communicator until
 *   the timeout.
 * - `shrink-alone`: all others are killed.
 *
 * Exits with 0 if a rank passes; SIGALRM ends it if it hangs for COMM_WATCHDOG seconds
 * (60). */

#include <libcore/core.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MOST = 16, COUNT = 12, WATCHDOG_SECONDS = 60, TIMEOUT = 2 };

static core_comm *comm;
static core_device *device;
static uint32_t rank, size;
/* A library of GPUs: it does not reduce i16, and rounds after each addition. */
static bool of_gpus;

#define OK(call)                                             \
    do {                                                     \
        if ((call) != CORE_OK) {                             \
            printf("rank %u: line %d: %s\n", rank, __LINE__, \
                   core_error_message());                    \
            exit(1);                                         \
        }                                                    \
    } while (0)

#define CHECK(condition, ...)                             \
    do {                                                  \
        if (!(condition)) {                               \
            printf("rank %u: line %d: ", rank, __LINE__); \
            printf(__VA_ARGS__);                          \
            printf("\n");                                 \
            exit(1);                                      \
        }                                                 \
    } while (0)

/* -------------------------------------------------------------- results -- */

/* The finalizer of MurmurHash3 (Appleby). */
static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bU;
    x = (x ^ x >> 13) * 0xc2b2ae35U;
    return x ^ x >> 16;
}

/* Whole numbers from 1 to 3, whose sums every dtype has, also of 16 ranks.  They and
 * their sums differ between ranks, elements and parts. */
static double value_of(uint32_t of, int64_t i)
{
    return mix((of + 1) * 0x9e3779b9U + (uint32_t)i) % 3 + 1;
}

/* The same for products: 1 but for one or two ranks, which all ranks are in turn. */
static double factor_of(uint32_t of, int64_t i)
{
    if (of == (i + i / COUNT) % size)
        return mix((uint32_t)i) % 3 + 2;
    if (of == size - 1 - i % size)
        return mix((uint32_t)i + 1) % 4 + 2;
    return 1;
}

static core_tensor *make_for(core_dtype dtype, uint32_t reduction,
                             int64_t count)
{
    double *values = malloc((size_t)count * sizeof *values);
    core_tensor *wide, *there, *made;

    for (int64_t i = 0; i < count; i++)
        values[i] = reduction == CORE_REDUCE_PROD ? factor_of(rank, i)
                                                  : value_of(rank, i);
    OK(core_tensor_from_data(values, CORE_F64, &count, 1, NULL, &wide));
    OK(core_to_copy(wide, dtype, NULL, false, -1, &there));
    OK(core_to_copy(there, dtype, device, false, -1, &made));
    core_tensor_release(wide);
    core_tensor_release(there);
    free(values);
    return made;
}

static core_tensor *make(core_dtype dtype, int64_t count)
{
    return make_for(dtype, CORE_REDUCE_SUM, count);
}

static void expect(core_tensor *found, const double *values, int64_t count,
                   const char *what)
{
    core_device *cpu;
    core_tensor *here, *wide;
    double *numbers = malloc((size_t)count * sizeof *numbers);

    OK(core_device_find("cpu", &cpu));
    CHECK(core_tensor_numel(found) == count, "%s has %lld elements", what,
          (long long)core_tensor_numel(found));
    OK(core_to_copy(found, core_tensor_dtype(found), cpu, false, -1, &here));
    OK(core_to_copy(here, CORE_F64, NULL, false, -1, &wide));
    OK(core_tensor_read(wide, numbers, (size_t)count * sizeof *numbers));
    for (int64_t i = 0; i < count; i++)
        CHECK(numbers[i] == values[i], "%s in %s: element %lld is %g, not %g",
              what, core_dtype_name(core_tensor_dtype(found)), (long long)i,
              numbers[i], values[i]);
    core_tensor_release(here);
    core_tensor_release(wide);
    free(numbers);
}

static double reduced(uint32_t reduction, int64_t i)
{
    bool product = reduction == CORE_REDUCE_PROD;
    double result = product ? factor_of(0, i) : value_of(0, i);

    for (uint32_t r = 1; r < size; r++) {
        double next = product ? factor_of(r, i) : value_of(r, i);

        result =
            product                        ? result * next
            : reduction == CORE_REDUCE_MIN ? (next < result ? next : result)
            : reduction == CORE_REDUCE_MAX ? (next > result ? next : result)
                                           : result + next;
    }
    return result;
}

static void reductions(core_dtype dtype)
{
    static const char *const names[] = {"", "sum", "prod", "min", "max"};
    int64_t count = COUNT * size;

    for (uint32_t reduction = CORE_REDUCE_SUM; reduction <= CORE_REDUCE_MAX;
         reduction++) {
        core_tensor *x = make_for(dtype, reduction, count), *all, *part;
        double values[COUNT * RANKS_MOST];

        for (int64_t i = 0; i < count; i++)
            values[i] = reduced(reduction, i);
        OK(core_all_reduce(comm, x, reduction, &all));
        OK(core_reduce_scatter(comm, x, reduction, &part));
        expect(all, values, count, names[reduction]);
        expect(part, values + COUNT * rank, COUNT, names[reduction]);
        OK(core_all_reduce_(comm, x, reduction));
        expect(x, values, count, names[reduction]);
        core_tensor_release(x);
        core_tensor_release(all);
        core_tensor_release(part);
    }
}

/* An engine may treat few and many elements differently. */
static void sums_of(core_dtype dtype, int64_t count)
{
    double *values = malloc((size_t)count * sizeof *values);
    core_tensor *x = make(dtype, count), *sums;

    for (int64_t i = 0; i < count; i++)
        values[i] = reduced(CORE_REDUCE_SUM, i);
    OK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &sums));
    expect(sums, values, count, "sum");
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    expect(x, values, count, "sum");
    core_tensor_release(x);
    core_tensor_release(sums);
    free(values);
}

/* The result is at the root alone. */
static void reductions_to(core_dtype dtype, uint32_t root)
{
    core_tensor *x = make(dtype, COUNT), *y;
    double values[COUNT];

    for (int64_t i = 0; i < COUNT; i++)
        values[i] = rank == root ? reduced(CORE_REDUCE_MAX, i) : 0;
    OK(core_reduce(comm, x, CORE_REDUCE_MAX, root, &y));
    expect(y, values, COUNT, "reduce");
    core_tensor_release(x);
    core_tensor_release(y);
}

static void averages(core_dtype dtype)
{
    core_tensor *x = make(dtype, COUNT), *scaled, *mean;
    double values[COUNT];

    /* A multiple of the number of ranks, so that the average is exact. */
    for (int64_t i = 0; i < COUNT; i++)
        values[i] = reduced(CORE_REDUCE_SUM, i);
    OK(core_mul_scalar(x, core_float(size), &scaled));
    OK(core_all_reduce(comm, scaled, CORE_REDUCE_AVG, &mean));
    expect(mean, values, COUNT, "avg");
    core_tensor_release(x);
    core_tensor_release(scaled);
    core_tensor_release(mean);
}

/* Rank a sends (a + b) % 3 rows of two elements to rank b. */
static void move_rows(core_dtype dtype)
{
    int64_t send[RANKS_MOST], receive[RANKS_MOST], sent = 0, at = 0;
    int64_t sizes[2] = {0, 2};
    core_tensor *flat, *x, *y;
    double values[4 * RANKS_MOST];

    for (uint32_t r = 0; r < size; r++) {
        send[r] = receive[r] = (rank + r) % 3;
        sent += send[r];
    }
    sizes[0] = sent;
    flat = make(dtype, 2 * sent);
    OK(core_reshape(flat, sizes, 2, &x));
    OK(core_all_to_all_rows(comm, x, send, receive, &y));
    for (uint32_t r = 0; r < size; r++) {
        int64_t first = 0;

        for (uint32_t before = 0; before < rank; before++)
            first += 2 * ((r + before) % 3);
        for (int64_t i = 0; i < 2 * receive[r]; i++)
            values[at++] = value_of(r, first + i);
    }
    expect(y, values, at, "all_to_all_rows");
    core_tensor_release(flat);
    core_tensor_release(x);
    core_tensor_release(y);
}

static void movements(core_dtype dtype)
{
    core_tensor *x = make(dtype, COUNT), *y = make(dtype, size * 2);
    core_tensor *all, *exchanged;
    double values[COUNT * RANKS_MOST];

    OK(core_all_gather(comm, x, &all));
    for (int64_t i = 0; i < COUNT * size; i++)
        values[i] = value_of((uint32_t)(i / COUNT), i % COUNT);
    expect(all, values, COUNT * size, "all_gather");
    OK(core_all_to_all(comm, y, &exchanged));
    for (int64_t i = 0; i < 2 * size; i++)
        values[i] = value_of((uint32_t)(i / 2), 2 * rank + i % 2);
    expect(exchanged, values, 2 * size, "all_to_all");
    for (uint32_t root = 0; root < size; root++) {
        core_tensor *copy = make(dtype, COUNT);

        OK(core_broadcast(comm, copy, root));
        for (int64_t i = 0; i < COUNT; i++)
            values[i] = value_of(root, i);
        expect(copy, values, COUNT, "broadcast");
        core_tensor_release(copy);
    }
    core_tensor_release(x);
    core_tensor_release(y);
    core_tensor_release(all);
    core_tensor_release(exchanged);
}

static void messages(void)
{
    core_tensor *x = make(CORE_F32, COUNT), *y = make(CORE_F32, COUNT);
    double values[COUNT];

    if (size == 1)
        return;
    if (rank > 0)
        OK(core_recv(comm, y, rank - 1));
    OK(core_send(comm, x, (rank + 1) % size));
    if (rank == 0)
        OK(core_recv(comm, y, size - 1));
    for (int64_t i = 0; i < COUNT; i++)
        values[i] = value_of((rank + size - 1) % size, i);
    expect(y, values, COUNT, "recv");
    core_tensor_release(x);
    core_tensor_release(y);
}

/* A sum of f32 whose bits depend on the order of the additions. */
static void same_bits(int64_t count)
{
    size_t bytes = (size_t)count * sizeof(float);
    float *values = malloc(bytes), *all = malloc(bytes * size);
    core_tensor *x, *sum, *sums;

    for (int64_t i = 0; i < count; i++)
        values[i] = 1.0f / (float)(i + 1 + 7 * (int)rank);
    OK(core_tensor_from_data(values, CORE_F32, &count, 1, device, &x));
    OK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &sum));
    OK(core_all_gather(comm, sum, &sums));
    OK(core_tensor_read(sums, all, bytes * size));
    for (uint32_t r = 1; r < size; r++)
        CHECK(memcmp(all, all + (size_t)count * r, bytes) == 0,
              "the sums of ranks 0 and %u have different bits", r);
    core_tensor_release(x);
    core_tensor_release(sum);
    core_tensor_release(sums);
    free(values);
    free(all);
}

/* 1 + 2^-7 is a bf16 and 1 + 2^-8 is not: the sum of 1, 1 + 2^-7 and 1 + 2^-7
 * is the bf16 3 + 2^-6 only without rounding in between. */
static void rounded_once(void)
{
    float value = rank == 0 ? 1 : 1.0078125f;
    double expected = rank < 3 ? 3.015625 : 0;
    core_tensor *x, *half, *sum;

    if (size != 3)
        return;
    OK(core_tensor_from_data(&value, CORE_F32, NULL, 0, device, &x));
    OK(core_to_copy(x, CORE_BF16, NULL, false, -1, &half));
    OK(core_all_reduce(comm, half, CORE_REDUCE_SUM, &sum));
    expect(sum, &expected, 1, "sum that is rounded once");
    core_tensor_release(x);
    core_tensor_release(half);
    core_tensor_release(sum);
}

static void parts(void)
{
    core_comm *whole = comm, *part;
    core_tensor *x = make(CORE_F32, COUNT);
    double values[COUNT] = {0};

    OK(core_comm_split(comm, rank % 2 ? UINT32_MAX : 7, rank, &part));
    for (uint32_t r = rank % 2; r < size; r += 2)
        for (int64_t i = 0; i < COUNT; i++)
            values[i] += value_of(r, i);
    OK(core_all_reduce_(part, x, CORE_REDUCE_SUM));
    expect(x, values, COUNT, "sum in a part");
    core_tensor_release(x);
    core_comm_release(part);
    comm = whole;
}

/* What the engine cannot reduce is an error, and the communicator still works. */
static void refusals(core_dtype dtype)
{
    core_tensor *x = make(dtype, COUNT), *y;

    CHECK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &y) ==
              CORE_ERROR_UNSUPPORTED,
          "%s was reduced", core_dtype_name(dtype));
    core_tensor_release(x);
}

static void results(void)
{
    static const core_dtype dtypes[] = {CORE_F64,  CORE_F32, CORE_F16,
                                        CORE_BF16, CORE_I64, CORE_I32,
                                        CORE_I16,  CORE_I8,  CORE_U8};
    static const int64_t counts[] = {1, 511, 513, 1024, 1025, 4097, 300007};

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        movements(dtypes[i]);
        move_rows(dtypes[i]);
        if (of_gpus && dtypes[i] == CORE_I16) {
            refusals(dtypes[i]);
            continue;
        }
        reductions(dtypes[i]);
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            sums_of(dtypes[i], counts[k]);
        for (uint32_t root = 0; root < size; root++)
            reductions_to(dtypes[i], root);
        if (core_dtype_is_floating(dtypes[i]))
            averages(dtypes[i]);
    }
    messages();
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        same_bits(counts[k]);
    if (!of_gpus)
        rounded_once();
    parts();
    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
}

/* The part of each rank has so many elements. */
static void scattered_sums(int64_t count)
{
    int64_t all = count * size, i = 0;
    double *values = malloc((size_t)all * sizeof *values);
    core_tensor *wide, *x, *part;

    for (i = 0; i < all; i++)
        values[i] = value_of(rank, i);
    OK(core_tensor_from_data(values, CORE_F64, &all, 1, NULL, &wide));
    OK(core_to_copy(wide, CORE_F32, device, false, -1, &x));
    OK(core_reduce_scatter(comm, x, CORE_REDUCE_SUM, &part));
    for (i = 0; i < count; i++) {
        values[i] = 0;
        for (uint32_t r = 0; r < size; r++)
            values[i] += value_of(r, i + count * rank);
    }
    expect(part, values, count, "a part of a sum");
    core_tensor_release(x);
    core_tensor_release(wide);
    core_tensor_release(part);
    free(values);
}

/* Each rank has so many elements. */
static void gathered_elements(int64_t count)
{
    double *values = malloc((size_t)(count * size) * sizeof *values);
    core_tensor *x = make(CORE_F32, count), *all;

    OK(core_all_gather(comm, x, &all));
    for (uint32_t r = 0; r < size; r++)
        for (int64_t i = 0; i < count; i++)
            values[r * count + i] = value_of(r, i);
    expect(all, values, count * size, "elements of all ranks");
    core_tensor_release(x);
    core_tensor_release(all);
    free(values);
}

/* More than an engine may move in one piece. */
static void large_sums(void)
{
    const int64_t count = (1 << 23) + 7;

    sums_of(CORE_F32, count);
    same_bits(count);
    scattered_sums(300007);
    gathered_elements(300007);
}

/* Whether the ranks have memory of the engine mpi in common. */
static void report_memory(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    bool shared = false;
    char line[512];

    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        shared = shared || strstr(line, "memfd:libcore-mpi") != NULL;
    if (maps != NULL)
        fclose(maps);
    printf("memory is %s\n", shared ? "shared" : "not shared");
}

/* --------------------------------------------------------------- faults -- */

/* The collective that the last rank does differently, or not at all: a broadcast, or
 * with "sum-" a sum, which an engine may begin before it knows. */
static core_status differ(const char *fault, bool wrong)
{
    bool sums = strncmp(fault, "sum-", 4) == 0;
    const char *what = !wrong ? "" : sums ? fault + 4 : fault;
    int64_t count = sums ? 1000 : COUNT;
    core_tensor *x = make(strcmp(what, "dtype") == 0 ? CORE_F64 : CORE_F32,
                          count + (strcmp(what, "size") == 0));
    core_status status;

    if (strcmp(what, "order") == 0)
        status = core_barrier(comm);
    else if (sums)
        status = core_all_reduce_(comm, x, CORE_REDUCE_SUM);
    else
        status = core_broadcast(comm, x, strcmp(what, "root") == 0);
    core_tensor_release(x);
    return status;
}

/* A backward with averages, which one rank cancels. */
static int cancel(void)
{
    core_tensor *x = make(CORE_F32, COUNT), *loss;
    core_reducer *reducer;
    core_status status;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_reducer_create(comm, &x, 1, NULL, &reducer));
    OK(core_sum(x, CORE_DTYPE_NONE, &loss));
    status = rank == size - 1
                 ? core_reducer_cancel(reducer, CORE_ERROR_CANCELLED, NULL)
                 : core_reducer_backward(reducer, &loss, 1, NULL, 0);
    if (status == CORE_OK)
        status = core_comm_synchronize(core_reducer_comm(reducer));
    CHECK(status == (rank == size - 1 ? CORE_ERROR_CANCELLED : CORE_ERROR_IO),
          "there was no error");
    printf("error: %s\n", core_error_message());
    core_tensor_release(x);
    core_tensor_release(loss);
    core_reducer_release(reducer);
    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    return 0;
}

/* One rank does not create the second communicator. */
static int absent(core_comm_options options)
{
    core_comm *second = NULL;
    core_status status;

    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (rank == size - 1) {
        sleep(3 * TIMEOUT);
        _exit(0);
    }
    options.rank = rank;
    options.size = size;
    status = core_comm_create(device, &options, &second);
    CHECK(status == CORE_ERROR_CANCELLED, "there was no timeout");
    printf("error: %s\n", core_error_message());
    return 0;
}

/* The plugin of one rank has another version. */
static int versions(core_comm_options options)
{
    core_status status = core_comm_create(device, &options, &comm);

    CHECK(status == CORE_ERROR_INCOMPATIBLE, "there was no error");
    printf("error: %s\n", core_error_message());
    return 0;
}

/* A child that ends does not end what its parent uses. */
static void fork_child(void)
{
    pid_t child = fork();
    int state = 1;

    CHECK(child >= 0, "fork fails");
    if (child == 0)
        exit(0);
    CHECK(waitpid(child, &state, 0) == child && state == 0,
          "the child ends with state %d", state);
    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
}

/* This process, on all ranks: the last one's. */
static pid_t share_pid(void)
{
    int64_t mine = getpid(), all[RANKS_MOST], one = 1;
    core_tensor *sent, *got;

    OK(core_tensor_from_data(&mine, CORE_I64, &one, 1, device, &sent));
    OK(core_all_gather(comm, sent, &got));
    OK(core_tensor_read(got, all, size * sizeof mine));
    core_tensor_release(sent);
    core_tensor_release(got);
    return (pid_t)all[size - 1];
}

static core_status waits_in_vain(core_comm *of)
{
    core_status status = core_barrier(of);

    return status == CORE_OK ? core_comm_synchronize(of) : status;
}

/* A rank without which the others have gone on, twice; or one that is alone. */
static int cannot_go_on(void)
{
    core_comm *rest;
    core_status status = waits_in_vain(comm);

    CHECK(status != CORE_OK, "there was no error");
    for (int i = 0; i < 2; i++) {
        status = core_comm_shrink(comm, &rest);
        CHECK((status == CORE_ERROR_CANCELLED || status == CORE_ERROR_IO) &&
                  rest == NULL,
              "the rank goes on with %u", core_comm_size(rest));
        printf("error: %s\n", core_error_message());
    }
    printf("rank %u of %u does not go on\n", rank, size);
    return 0;
}

/* The others find out with the timeout, make a communicator of those that are left,
 * and test it. */
static int shrink(const char *test)
{
    bool killed = strcmp(test, "shrink-killed") == 0 ||
                  strcmp(test, "shrink-late") == 0 ||
                  strcmp(test, "shrink-apart") == 0;
    core_comm *rest, *none, *part = NULL;
    core_status status;
    uint32_t before = size;
    pid_t last = share_pid();

    if (strcmp(test, "shrink-apart") == 0)
        OK(core_comm_split(comm, 0, rank, &part));
    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    CHECK(core_comm_shrink(comm, &none) == CORE_ERROR_INVALID_ARGUMENT,
          "a communicator that works was made smaller");
    if (rank == size - 1 && killed)
        raise(SIGKILL);
    if (strcmp(test, "shrink-alone") == 0) {
        if (rank < size - 1)
            raise(SIGKILL);
        return cannot_go_on();
    }
    if (rank == size - 1) {
        raise(SIGSTOP);
        return cannot_go_on();
    }
    if (strcmp(test, "shrink-late") == 0) { /* no rank is known to be missing */
        OK(core_comm_abort(comm));
        sleep(rank == 0 ? 0 : 2 * TIMEOUT);
        status = core_comm_error(comm);
    } else if (part && rank > 0) { /* rank 0 misses this one, and is missed */
        sleep(TIMEOUT);
        status = waits_in_vain(part);
        OK(core_comm_abort(comm));
    } else {
        status = waits_in_vain(comm);
    }
    CHECK(status != CORE_OK, "there was no error");
    OK(core_comm_shrink(comm, &rest));
    core_comm_release(part);
    core_comm_release(comm);
    comm = rest;
    CHECK(core_comm_rank(comm) == rank, "the rank is %u", core_comm_rank(comm));
    size = core_comm_size(comm);
    CHECK(size == before - 1, "there are %u ranks", size);
    results();
    printf("rank %u of %u goes on\n", rank, size);
    if (rank == 0 && !killed)
        kill(last, SIGCONT);
    return 0;
}

/* More than one exchange moves. */
static core_status add_many(void)
{
    core_tensor *x = make(CORE_F32, 300007);
    core_status status = core_all_reduce_(comm, x, CORE_REDUCE_SUM);

    core_tensor_release(x);
    return status;
}

static int faults(const char *fault)
{
    bool wrong = rank == size - 1;
    core_status status;

    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (wrong && strcmp(fault, "kill") == 0)
        raise(SIGKILL);
    if (wrong && strcmp(fault, "leave") == 0)
        return 0;
    if (wrong && strcmp(fault, "abort") == 0) {
        OK(core_comm_abort(comm));
        CHECK(core_barrier(comm) == CORE_ERROR_CANCELLED,
              "the communicator has not failed");
        sleep(2 * TIMEOUT); /* its end would be an error, too */
        _exit(0);
    }
    if (wrong &&
        (strcmp(fault, "stop") == 0 || strncmp(fault, "unchecked", 9) == 0)) {
        sleep(3 * TIMEOUT);
        _exit(0);
    }
    status = strcmp(fault, "unchecked") == 0       ? core_barrier(comm)
             : strcmp(fault, "unchecked-sum") == 0 ? add_many()
                                                   : differ(fault, wrong);
    if (status == CORE_OK)
        status = core_comm_synchronize(comm);
    CHECK(status != CORE_OK, "there was no error");
    printf("error: %s\n", core_error_message());
    CHECK(core_barrier(comm) == status, "the communicator has not failed");
    return 0;
}

/* ----------------------------------------------------------------- main -- */

/* Tests whose errors come with the timeout, which is therefore short. */
static bool waits_for_the_timeout(const char *test)
{
    return strcmp(test, "stop") == 0 || strcmp(test, "leave") == 0 ||
           strcmp(test, "abort") == 0 || strncmp(test, "unchecked", 9) == 0 ||
           strcmp(test, "absent") == 0 || strncmp(test, "shrink", 6) == 0;
}

static void find_device(const char *name)
{
    size_t used = strlen(name);
    char numbered[64];

    if (used > 0 && name[used - 1] == ':') {
        snprintf(numbered, sizeof numbered, "%s%u", name, rank);
        name = numbered;
    }
    OK(core_device_find(name, &device));
}

static int run(char **arguments, const char *store)
{
    core_comm_options options = {.struct_size = sizeof options,
                                 .engine = arguments[1],
                                 .store = store,
                                 .rank = rank,
                                 .size = size,
                                 .timeout = TIMEOUT};
    const char *watchdog = getenv("COMM_WATCHDOG");
    int result = 0;

    of_gpus =
        strcmp(arguments[1], "nccl") == 0 || strcmp(arguments[1], "rccl") == 0;
    if (strncmp(arguments[3], "unchecked", 9) == 0)
        options.flags = CORE_COMM_UNCHECKED;
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(watchdog != NULL ? (unsigned)atoi(watchdog) : WATCHDOG_SECONDS);
    if (strncmp(arguments[3], "shrink", 6) == 0)
        options.timeout = strcmp(arguments[3], "shrink") == 0 ||
                                  strcmp(arguments[3], "shrink-alone") == 0
                              ? 3 * TIMEOUT
                              : 6 * TIMEOUT; /* busy ranks may notice it late */
    if (!waits_for_the_timeout(arguments[3]))
        options.timeout = WATCHDOG_SECONDS / 2;
    find_device(arguments[2]);
    if (strcmp(arguments[3], "versions") == 0)
        return versions(options);
    OK(core_comm_create(device, &options, &comm));
    rank = core_comm_rank(comm);
    size = core_comm_size(comm);
    if (strcmp(arguments[3], "results") == 0)
        results();
    else if (strcmp(arguments[3], "large") == 0)
        large_sums();
    else if (strcmp(arguments[3], "shared") == 0)
        report_memory();
    else if (strcmp(arguments[3], "fork") == 0)
        fork_child();
    else if (strcmp(arguments[3], "absent") == 0)
        result = absent(options);
    else if (strcmp(arguments[3], "cancel") == 0)
        result = cancel();
    else if (strncmp(arguments[3], "shrink", 6) == 0)
        result = shrink(arguments[3]);
    else
        result = faults(arguments[3]);
    core_comm_release(comm);
    return result;
}

static int start_all(char **arguments, uint32_t count, const char *plugin)
{
    char store[64] = "file:/tmp/libcore-comm-XXXXXX";
    int failed = 0, file = mkstemp(store + 5);

    if (file < 0 || unlink(store + 5) != 0 || close(file) != 0)
        return 1;
    for (uint32_t r = 0; r < count; r++) {
        if (fork() != 0)
            continue;
        rank = r;
        size = count;
        if (plugin != NULL)
            OK(core_plugin_load(plugin, NULL));
        exit(run(arguments, store));
    }
    for (uint32_t r = 0; r < count; r++) {
        int state = 0;

        wait(&state);
        if (WIFSIGNALED(state))
            printf("a rank ended by signal %d (%s)\n", WTERMSIG(state),
                   strsignal(WTERMSIG(state)));
        failed += WIFSIGNALED(state) ? strcmp(arguments[3], "kill") != 0 ||
                                           WTERMSIG(state) != SIGKILL
                                     : WEXITSTATUS(state) != 0;
    }
    unlink(store + 5); /* rank 0 may have ended before it could */
    return failed > 0;
}

int main(int count, char **arguments)
{
    if (count < 4)
        return 2;
    if (count == 4)
        return run(arguments, NULL);
    return start_all(arguments, (uint32_t)atoi(arguments[4]),
                     count > 5 ? arguments[5] : NULL);
}
