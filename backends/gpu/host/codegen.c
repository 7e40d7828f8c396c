/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* codegen.c: core.codegen.  Kernels of loop programs, which a compiler that runs
 * in the program makes of their source (gpu_driver.compile).  Compiled code
 * stays loaded as long as the device: launched work and graphs refer to it. */

#include <gpu/host/codegen.h>
#include <gpu/host/loop_source.h>
#include <gpu/host/thread.h>

#include <gpu/shared_loop.h>

#include <stdio.h>
#include <stdlib.h>

#define calls (gpu_this_vendor.driver)

enum { HASH = 32 };

/* How many threads compute a row (kernels/loop_rows.h), and the rows for which
 * one thread or a team is chosen. */
enum { ALONE, TEAM, BLOCK, SIDES };
enum { SHORT_ROW = 16, TEAM_ROW = 1024, MANY_ROWS = 4096, TEAMS = 8 };
static const char *const sides[SIDES] = {"_l", "_t", "_b"};

/* Compiled and loaded code.  A device has one for each program. */
typedef struct gpu_loop_code {
    gpu_loop_code *next;
    atomic_uint references;
    char name[GPU_LOOP_NAME];
    void *module;
    void *dense, *strided; /* dense is NULL if there is no such kernel */
    void *rows[SIDES];     /* of a program with reductions, by side */
    uint8_t hash[HASH];
    uint32_t noperands, numbers; /* numbers: one bit per operand */
    uint64_t size;               /* of the image */
    unsigned char image[] __attribute__((aligned(16)));
} code;

static core_status no_memory(void)
{
    return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                      "no host memory for a loop program");
}

/* Under `loading`. */
static void describe_compiler(gpu_device *device)
{
    int major = 0, minor = 0;

    if (calls->compiler_version != NULL)
        calls->compiler_version(device->context, &major, &minor);
    snprintf(device->compiler, sizeof device->compiler, "1; %s; %s; %s; %d.%d",
             calls->component, device->facts.driver, device->facts.architecture,
             major, minor);
}

/* Kernels that were saved under another identity are compiled again.  The
 * compiler is looked for here, as late as possible: opening it takes time. */
static core_status identity(void *opaque, core_string *out_text)
{
    gpu_device *device = opaque;

    pthread_mutex_lock(&device->loading);
    if (device->compiler[0] == 0)
        describe_compiler(device);
    pthread_mutex_unlock(&device->loading);
    *out_text = core_sdk_string(device->compiler);
    return CORE_OK;
}

static core_status check_compiler(const gpu_device *device)
{
    const char *reason = calls->compiler(device->context);

    return reason == NULL
               ? CORE_OK
               : gpu_refuse(CORE_ERROR_UNSUPPORTED,
                            "loop programs cannot be compiled: %s", reason);
}

static core_status accepts(void *device, const core_loop_program *program)
{
    core_status status = gpu_loop_check(program);

    return status == CORE_OK ? check_compiler(device) : status;
}

/* ---------------------------------------------------------------- code -- */

static void release(code *c)
{
    if (atomic_fetch_sub(&c->references, 1) == 1)
        free(c);
}

void gpu_codegen_clear(gpu_device *device, bool unload)
{
    while (device->loop_code != NULL) {
        code *c = device->loop_code;

        device->loop_code = c->next;
        if (unload)
            calls->module_unload(device->context, c->module);
        release(c);
    }
}

/* The code of a program, with a reference.  Under `loading`. */
static code *find(const gpu_device *device, const core_loop_program *program)
{
    code *c = device->loop_code;

    while (c != NULL && memcmp(c->hash, program->hash, HASH) != 0)
        c = c->next;
    if (c != NULL)
        atomic_fetch_add(&c->references, 1);
    return c;
}

static code *find_loaded(gpu_device *device, const core_loop_program *program)
{
    code *c;

    pthread_mutex_lock(&device->loading);
    c = find(device, program);
    pthread_mutex_unlock(&device->loading);
    return c;
}

static code *new_code(const core_loop_program *program, const void *image,
                      uint64_t size)
{
    code *c = calloc(1, sizeof *c + size);

    if (c == NULL)
        return NULL;
    atomic_init(&c->references, 2); /* of the device and the caller */
    gpu_loop_name(program, c->name);
    memcpy(c->hash, program->hash, HASH);
    c->noperands = program->noperands;
    for (uint32_t k = 0; k < program->noperands; k++)
        if (program->operands[k].flags & CORE_LOOP_OPERAND_NUMBER)
            c->numbers |= 1u << k;
    c->size = size;
    memcpy(c->image, image, size);
    return c;
}

static int find_function(gpu_device *device, const code *c, const char *suffix,
                         void **out_function)
{
    char name[GPU_LOOP_NAME + 2];

    snprintf(name, sizeof name, "%s%s", c->name, suffix);
    return calls->function_find(device->context, c->module, name, out_function);
}

static int find_functions(gpu_device *device, code *c,
                          const core_loop_program *program)
{
    int code = 0;

    if (program->flags & CORE_LOOP_PROGRAM_REDUCES) {
        for (int side = 0; side < SIDES && code == 0; side++)
            code = find_function(device, c, sides[side], &c->rows[side]);
        return code;
    }
    if (gpu_loop_has_dense(program))
        code = find_function(device, c, "_d", &c->dense);
    return code == 0 ? find_function(device, c, "_s", &c->strided) : code;
}

static core_status load_module(gpu_device *device, code *c,
                               const core_loop_program *program)
{
    int code = calls->module_load(device->context, c->image, &c->module);

    if (code == 0)
        code = find_functions(device, c, program);
    return gpu_report(device, code, "loading the kernels of a loop program");
}

/* Loads an image, unless another thread has.  Under `loading`. */
static core_status add(gpu_device *device, const core_loop_program *program,
                       const void *image, uint64_t size, code **out_code)
{
    core_status status;
    code *c = find(device, program);

    *out_code = c;
    if (c != NULL)
        return CORE_OK;
    c = new_code(program, image, size);
    if (c == NULL)
        return no_memory();
    status = load_module(device, c, program);
    if (status != CORE_OK) {
        if (c->module != NULL)
            calls->module_unload(device->context, c->module);
        free(c);
        return status;
    }
    c->next = device->loop_code;
    device->loop_code = c;
    *out_code = c;
    return CORE_OK;
}

static core_status load_image(gpu_device *device,
                              const core_loop_program *program,
                              const void *image, uint64_t size, code **out_code)
{
    int code = atomic_load(&device->lost);
    core_status status;

    *out_code = NULL;
    if (code != 0)
        return gpu_report(device, code, "the device");
    pthread_mutex_lock(&device->loading);
    status = add(device, program, image, size, out_code);
    pthread_mutex_unlock(&device->loading);
    return status;
}

/* ---------------------------------------------------------------- build -- */

/* The beginning of a log, in one line. */
static void shorten(char *log)
{
    enum { MOST = 400 };
    size_t size = strlen(log);

    if (size > MOST)
        size = MOST;
    while (size > 0 && (log[size - 1] == '\n' || log[size - 1] == ' '))
        size--;
    log[size] = '\0';
    for (char *at = log; *at != 0; at++)
        if (*at == '\n')
            *at = ' ';
}

static core_status report_compilation(const gpu_compilation *c, int code)
{
    if (c->log != NULL)
        shorten(c->log);
    return gpu_refuse(
        CORE_ERROR_INTERNAL,
        "the compiler failed with code %d on a loop program: %s", code,
        c->log != NULL && c->log[0] != 0 ? c->log : "it gave no reason");
}

/* Compiles without this library's locks: it takes long. */
static core_status compile(gpu_device *device, const core_loop_program *program,
                           gpu_compilation *c)
{
    char name[GPU_LOOP_NAME], *source = NULL;
    sigset_t before;
    core_status status = gpu_loop_source(program, &source);
    int code;

    if (status != CORE_OK)
        return status;
    gpu_loop_name(program, name);
    c->source = source;
    c->name = name;
    c->architecture = device->facts.architecture;
    gpu_signals_block(&before);
    code = calls->compile(device->context, c);
    gpu_signals_restore(&before);
    if (code != 0)
        status = report_compilation(c, code);
    free(source);
    return status;
}

static core_status build(void *opaque, const core_loop_program *program,
                         const core_loop_hints *hints, void **out_kernel)
{
    gpu_device *device = opaque;
    gpu_compilation now = {0};
    core_status status = accepts(device, program);
    code *c = NULL;

    (void)hints;
    *out_kernel = NULL;
    if (status != CORE_OK)
        return status;
    c = find_loaded(device, program);
    if (c == NULL) {
        status = compile(device, program, &now);
        if (status == CORE_OK)
            status = load_image(device, program, now.image, now.size, &c);
        free(now.image);
        free(now.log);
    }
    *out_kernel = c;
    return status;
}

static void destroy(void *device, void *kernel)
{
    (void)device;
    release(kernel);
}

/* --------------------------------------------------------------- launch -- */

typedef struct run {
    const core_loop_launch *now;
    const code *code;
} run;

static core_status launch_code(const run *r, const char *suffix, void *function,
                               gpu_shape shape, const void *parameters,
                               size_t size)
{
    char name[GPU_LOOP_NAME + 2];

    snprintf(name, sizeof name, "%s%s", r->code->name, suffix);
    return gpu_launch_function(r->now->stream, function, name, shape,
                               parameters, size);
}

static gpu_device *device_of(const run *r)
{
    return ((gpu_stream *)r->now->stream)->device;
}

static gpu_shape shape_of_elements(const run *r, const core_loop *loop)
{
    return gpu_spread(device_of(r), (uint64_t)loop->numel, 4);
}

static core_status launch_dense(const run *r, const core_loop *loop)
{
    gpu_loop_dense p = {.count = (uint64_t)loop->numel,
                        .error = ((gpu_stream *)r->now->stream)->error,
                        .call = (int64_t)r->now->id};
    uintptr_t all = 0;

    for (uint32_t k = 0; k < loop->noperands; k++) {
        if (r->code->numbers >> k & 1) {
            p.number[k] = loop->operands[k].immediate;
            continue;
        }
        p.data[k] = gpu_address(loop->operands[k].memory);
        all |= (uintptr_t)p.data[k];
    }
    p.vectors = all % 16 == 0;
    return launch_code(r, "_d", r->code->dense, shape_of_elements(r, loop), &p,
                       sizeof p);
}

static void fill_strided(const core_loop *loop, const run *r,
                         gpu_loop_strided *p)
{
    memset(p, 0, sizeof *p);
    p->count = (uint64_t)loop->numel;
    p->ndim = loop->ndim;
    p->error = ((gpu_stream *)r->now->stream)->error;
    p->call = (int64_t)r->now->id;
    for (uint32_t d = 0; d < loop->ndim; d++) {
        p->wide_sizes[d] = loop->sizes[d];
        if (loop->numel <= INT32_MAX)
            p->sizes[d] = gpu_divide_by((uint32_t)loop->sizes[d]);
    }
    for (uint32_t k = 0; k < loop->noperands; k++) {
        const core_operand *operand = &loop->operands[k];

        if (r->code->numbers >> k & 1) {
            p->number[k] = operand->immediate;
            continue;
        }
        p->data[k] = gpu_address(operand->memory);
        memcpy(p->strides[k], operand->strides, loop->ndim * sizeof(int64_t));
    }
}

static core_status launch_strided(const core_loop *loop, void *context)
{
    const run *r = context;
    gpu_loop_strided p;

    fill_strided(loop, r, &p);
    return launch_code(r, "_s", r->code->strided, shape_of_elements(r, loop),
                       &p, sizeof p);
}

/* ----------------------------------------------------------------- rows -- */

/* Whether adjacent rows are nearer to each other than adjacent elements. */
static bool is_transposed(const gpu_loop_rows *q, const core_loop *loop)
{
    int64_t along = INT64_MAX, across = INT64_MAX;

    for (uint32_t k = 0; k < loop->noperands && q->nreduced < loop->ndim; k++) {
        const int64_t *strides = q->loop.strides[k];

        if (strides[0] <= 0) /* a number, or broadcast */
            continue;
        if (strides[0] < along)
            along = strides[0];
        if (strides[q->nreduced] > 0 && strides[q->nreduced] < across)
            across = strides[q->nreduced];
    }
    return across < along;
}

static int side_of(const gpu_loop_rows *q, const core_loop *loop)
{
    if (q->size <= SHORT_ROW ||
        (q->rows >= MANY_ROWS && is_transposed(q, loop)))
        return ALONE;
    return q->size <= TEAM_ROW ? TEAM : BLOCK;
}

static core_status launch_rows(const core_loop *loop, void *context)
{
    const run *r = context;
    gpu_loop_rows q = {.size = 1};
    gpu_shape shape;
    int side;

    fill_strided(loop, r, &q.loop);
    for (; q.nreduced < loop->ndim && loop->reduced >> q.nreduced & 1;
         q.nreduced++)
        q.size *= (uint64_t)loop->sizes[q.nreduced];
    q.rows = (uint64_t)loop->numel / q.size;
    side = side_of(&q, loop);
    shape =
        side == ALONE
            ? gpu_spread(device_of(r), q.rows, 1)
            : gpu_blocks(side == BLOCK ? q.rows : (q.rows + TEAMS - 1) / TEAMS,
                         GPU_BLOCK);
    return launch_code(r, sides[side], r->code->rows[side], shape, &q,
                       sizeof q);
}

static core_status launch(void *device, void *kernel,
                          const core_loop_launch *now)
{
    run r = {now, kernel};
    const core_loop *loop = now->loop;
    gpu_piece piece;

    (void)device;
    if (loop->noperands != r.code->noperands)
        return gpu_refuse(CORE_ERROR_INVALID_ARGUMENT,
                          "a loop with %u operands; the kernel has %u",
                          loop->noperands, r.code->noperands);
    if (loop->flags & CORE_LOOP_CONTIGUOUS && r.code->dense != NULL)
        return launch_dense(&r, loop);
    /* Cut only if there are too many dimensions, which a program that names
     * dimensions does not have. */
    piece = r.code->rows[0] != NULL ? launch_rows : launch_strided;
    if (loop->ndim <= GPU_DIMS)
        return piece(loop, &r);
    return gpu_loop_pieces(loop, piece, &r);
}

/* ---------------------------------------------------------------- saved -- */

/* Before the image. */
typedef struct saved {
    char magic[8];
    uint8_t hash[HASH];
    uint64_t size; /* of the image */
} saved;

static const char magic[8] = {'g', 'p', 'u', 'l', 'o', 'o', 'p', '1'};

static core_status save(void *device, void *kernel, void *data,
                        uint64_t capacity, uint64_t *out_size)
{
    const code *c = kernel;
    saved head = {.size = c->size};

    (void)device;
    *out_size = sizeof head + c->size;
    if (capacity < *out_size)
        return CORE_OK;
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.hash, c->hash, HASH);
    memcpy(data, &head, sizeof head);
    memcpy((char *)data + sizeof head, c->image, c->size);
    return CORE_OK;
}

static core_status load(void *opaque, const core_loop_program *program,
                        const void *data, uint64_t size, void **out_kernel)
{
    core_status status = gpu_loop_check(program);
    saved head = {{0}, {0}, 0};
    code *c = NULL;

    *out_kernel = NULL;
    if (status != CORE_OK)
        return status;
    if (size > sizeof head)
        memcpy(&head, data, sizeof head);
    if (size <= sizeof head || memcmp(head.magic, magic, sizeof magic) != 0 ||
        memcmp(head.hash, program->hash, HASH) != 0 ||
        head.size != size - sizeof head)
        return gpu_refuse(CORE_ERROR_CORRUPT,
                          "a saved kernel is damaged, or of another program");
    c = find_loaded(opaque, program);
    if (c == NULL)
        status = load_image(opaque, program, (const char *)data + sizeof head,
                            head.size, &c);
    *out_kernel = c;
    return status;
}

const core_codegen_interface gpu_codegen = {
    .struct_size = sizeof(core_codegen_interface),
    .flags = CORE_CODEGEN_BUILDS_SLOWLY,
    .identity = identity,
    .accepts = accepts,
    .build = build,
    .destroy = destroy,
    .launch = launch,
    .save = save,
    .load = load,
};
