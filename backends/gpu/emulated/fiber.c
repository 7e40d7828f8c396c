/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fiber.c: runs a launch.  The threads of a cooperative kernel are fibers: each
 * runs until it waits or ends.  When none can continue, a warp or block whose
 * threads all wait for the same thing is released.  If there is none, threads
 * wait at different places, which would hang or be undefined on a device; that
 * is an error.  The caller of a launch holds a lock (driver.c).
 *
 * To ThreadSanitizer each fiber is a thread; only barriers order them,
 * exchanges do not, so that it finds missing barriers.  Independent threads are
 * then fibers, too, which nothing orders, across all blocks. */

#include "emulate.h"
#include "order.h"

#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define WATCHED 1
/* Hides the emulator's own accesses from ThreadSanitizer. */
#define NOT_SANITIZED __attribute__((no_sanitize("thread")))
#else
#define WATCHED 0
#define NOT_SANITIZED
#endif

enum { THREADS = 1024, STACK = 64 * 1024, DYNAMIC = 256 * 1024 };
enum { READY, AT_BARRIER, AT_EXCHANGE, ENDED };

typedef struct fiber {
    ucontext_t context;
    void *stack_pointer;
    char *stack;
    gpu_index thread;
    uint64_t left; /* the value provided for an exchange */
    int state;
    uint32_t barriers;
    void *watched; /* ThreadSanitizer's */
} fiber;

typedef struct block {
    const gpu_emulated_kernel *kernel;
    const void *parameters;
    fiber *fibers;
    ucontext_t context;
    void *stack_pointer;
    uint32_t count, current;
    void *watched;
} block;

gpu_emulated_position gpu_emulated = {.warp = 32};
static block now;
static unsigned char *dynamic;

/* --------------------------------------------------------------- order -- */

/* A permutation of the numbers below count: the k-th is k * step + first. */
typedef struct order {
    uint64_t count, step, first;
} order;

static uint64_t order_number, order_state;
static order threads = {.step = 1};

void gpu_emulated_set_order(uint64_t number)
{
    order_number = order_state = number;
}

/* splitmix64, by Vigna. */
static uint64_t next_random(void)
{
    uint64_t x = order_state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t common(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common(b, a % b);
}

static order order_of(uint64_t count)
{
    order o = {count, 1, 0};

    if (order_number == 0 || count < 2)
        return o;
    o.first = next_random() % count;
    do
        o.step = next_random() % count;
    while (common(o.step, count) != 1);
    return o;
}

static uint64_t in_order(const order *o, uint64_t k)
{
    if (o->step == 1 && o->first == 0)
        return k;
    return (uint64_t)(((unsigned __int128)k * o->step + o->first) % o->count);
}

/* ------------------------------------------------------------ watching -- */

#if WATCHED

/* What orders threads: the start of a block, its end, and barriers; two objects
 * that alternate, since one thread may reach the next barrier before others
 * leave the last. */
static char begun, ended, met[2];

NOT_SANITIZED static int watch(fiber *f)
{
    if (f->watched == NULL)
        f->watched = __tsan_create_fiber(0);
    now.watched = __tsan_get_current_fiber();
    return f->watched != NULL;
}

NOT_SANITIZED static void watch_switch(void *to)
{
    __tsan_switch_to_fiber(to, __tsan_switch_to_fiber_no_sync);
}

NOT_SANITIZED static void before(char *what)
{
    __tsan_release(what);
}

NOT_SANITIZED static void after(char *what)
{
    __tsan_acquire(what);
}

#else

static char begun, ended, met[2];

static int watch(fiber *f)
{
    (void)f;
    return 1;
}

static void watch_switch(void *to)
{
    (void)to;
}

static void before(char *what)
{
    (void)what;
}

static void after(char *what)
{
    (void)what;
}

#endif

/* -------------------------------------------------------------- switch -- */

#if defined(__x86_64__)

/* Saves the registers that a call preserves, and continues on the other
 * stack. */
void gpu_emulated_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden gpu_emulated_switch\n"
        ".globl gpu_emulated_switch\n"
        ".type gpu_emulated_switch, @function\n"
        "gpu_emulated_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n"
        "    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n"
        "    pop %rbx\n    pop %rbp\n    ret\n"
        ".size gpu_emulated_switch, .-gpu_emulated_switch\n");

NOT_SANITIZED static void start_fiber(fiber *f, void (*function)(void))
{
    void **top = (void **)(void *)(f->stack + STACK) - 2;

    /* The stack as after a call: a return address and six registers. */
    *--top = NULL;
    *--top = (void *)function;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    f->stack_pointer = top;
}

NOT_SANITIZED static void enter_fiber(fiber *f)
{
    watch_switch(f->watched);
    gpu_emulated_switch(&now.stack_pointer, f->stack_pointer);
}

NOT_SANITIZED static void leave_fiber(fiber *f)
{
    watch_switch(now.watched);
    gpu_emulated_switch(&f->stack_pointer, now.stack_pointer);
}

#else

static void start_fiber(fiber *f, void (*function)(void))
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, function, 0);
}

NOT_SANITIZED static void enter_fiber(fiber *f)
{
    watch_switch(f->watched);
    swapcontext(&now.context, &f->context);
}

NOT_SANITIZED static void leave_fiber(fiber *f)
{
    watch_switch(now.watched);
    swapcontext(&f->context, &now.context);
}

#endif

NOT_SANITIZED static void wait_as(int state)
{
    fiber *f = &now.fibers[now.current];

    f->state = state;
    leave_fiber(f);
}

NOT_SANITIZED static void fiber_main(void)
{
    after(&begun);
    now.kernel->run(now.parameters);
    before(&ended);
    wait_as(ENDED);
    abort(); /* a fiber that has ended is not resumed */
}

/* ------------------------------------------------------------ meetings -- */

NOT_SANITIZED void gpu_emulated_barrier(void)
{
    uint32_t turn = now.fibers[now.current].barriers++ % 2;

    before(&met[turn]);
    wait_as(AT_BARRIER);
    after(&met[turn]);
}

NOT_SANITIZED uint32_t gpu_emulated_lane(void)
{
    return now.current % gpu_emulated.warp;
}

NOT_SANITIZED uint64_t gpu_emulated_exchange(uint64_t x, uint32_t from)
{
    uint32_t first = now.current / gpu_emulated.warp * gpu_emulated.warp;
    uint64_t found = x;

    now.fibers[now.current].left = x;
    wait_as(AT_EXCHANGE);
    if (from < gpu_emulated.warp && first + from < now.count)
        found = now.fibers[first + from].left;
    /* The next value is provided only after all have read this one. */
    wait_as(AT_EXCHANGE);
    return found;
}

NOT_SANITIZED uint64_t gpu_emulated_ballot(int x)
{
    uint32_t first = now.current / gpu_emulated.warp * gpu_emulated.warp;
    uint64_t bits = 0;

    now.fibers[now.current].left = x != 0;
    wait_as(AT_EXCHANGE);
    for (uint32_t k = 0; k < gpu_emulated.warp && first + k < now.count; k++)
        bits |= now.fibers[first + k].left << k;
    wait_as(AT_EXCHANGE);
    return bits;
}

/* ---------------------------------------------------------------- runs -- */

/* Releases the fibers [first, end) if all wait in this state. */
NOT_SANITIZED static int release(uint32_t first, uint32_t end, int state)
{
    for (uint32_t k = first; k < end; k++)
        if (now.fibers[k].state != state)
            return 0;
    for (uint32_t k = first; k < end; k++)
        now.fibers[k].state = READY;
    return first < end;
}

NOT_SANITIZED static int release_some(void)
{
    int released = release(0, now.count, AT_BARRIER);

    for (uint32_t k = 0; k < now.count; k += gpu_emulated.warp) {
        uint32_t end = k + gpu_emulated.warp;

        released |= release(k, end < now.count ? end : now.count, AT_EXCHANGE);
    }
    return released;
}

NOT_SANITIZED static const char *run_fibers(void)
{
    uint32_t over = 0;

    before(&begun);
    for (uint32_t k = 0; k < now.count; k++) {
        now.fibers[k].state = READY;
        now.fibers[k].barriers = 0;
        start_fiber(&now.fibers[k], fiber_main);
    }
    while (over < now.count) {
        for (uint32_t i = 0; i < now.count; i++) {
            uint32_t k = (uint32_t)in_order(&threads, i);
            fiber *f = &now.fibers[k];

            if (f->state != READY)
                continue;
            now.current = k;
            gpu_emulated.thread = f->thread;
            enter_fiber(f);
            over += f->state == ENDED;
        }
        if (over < now.count && !release_some())
            return "threads of a block wait at different places";
    }
    return NULL;
}

NOT_SANITIZED static void run_alone(void)
{
    for (uint32_t i = 0; i < now.count; i++) {
        uint32_t k = (uint32_t)in_order(&threads, i);

        now.current = k;
        gpu_emulated.thread = now.fibers[k].thread;
        now.kernel->run(now.parameters);
    }
}

NOT_SANITIZED static const char *prepare(const uint32_t size[3],
                                         uint32_t shared_bytes, int fibers)
{
    if (now.fibers == NULL)
        now.fibers = calloc(THREADS, sizeof *now.fibers);
    if (dynamic == NULL)
        dynamic = aligned_alloc(64, DYNAMIC);
    if (now.fibers == NULL || dynamic == NULL)
        return "no memory for the threads of a block";
    now.count = size[0] * size[1] * size[2];
    if (now.count == 0 || now.count > THREADS || shared_bytes > DYNAMIC)
        return "a block has 1 to 1024 threads and at most 256 KiB";
    for (uint32_t k = 0; k < now.count; k++) {
        fiber *f = &now.fibers[k];

        if (fibers && f->stack == NULL)
            f->stack = aligned_alloc(64, STACK);
        if (fibers && (f->stack == NULL || !watch(f)))
            return "no memory for the stacks of threads";
        f->thread.x = k % size[0];
        f->thread.y = k / size[0] % size[1];
        f->thread.z = k / size[0] / size[1];
    }
    return NULL;
}

NOT_SANITIZED const char *gpu_emulated_launch(const gpu_emulated_kernel *kernel,
                                              const uint32_t grid[3],
                                              const uint32_t size[3],
                                              uint32_t shared_bytes,
                                              const void *parameters)
{
    int fibers = kernel->cooperative != 0 || WATCHED;
    const char *reason = prepare(size, shared_bytes, fibers);
    order blocks = order_of((uint64_t)grid[0] * grid[1] * grid[2]);

    threads = order_of(now.count);
    now.kernel = kernel;
    now.parameters = parameters;
    gpu_emulated.dynamic = dynamic;
    gpu_emulated.block_size = (gpu_index){size[0], size[1], size[2]};
    gpu_emulated.grid = (gpu_index){grid[0], grid[1], grid[2]};
    for (uint64_t i = 0; i < blocks.count && reason == NULL; i++) {
        uint64_t b = in_order(&blocks, i);

        gpu_emulated.block = (gpu_index){(uint32_t)(b % grid[0]),
                                         (uint32_t)(b / grid[0] % grid[1]),
                                         (uint32_t)(b / grid[0] / grid[1])};
        /* Memory that no thread has written is undefined on a device. */
        memset(dynamic, 0xab, shared_bytes);
        if (fibers)
            reason = run_fibers();
        else
            run_alone();
        /* The next block reuses the shared memory. */
        if (kernel->cooperative)
            after(&ended);
    }
    after(&ended);
    return reason;
}
