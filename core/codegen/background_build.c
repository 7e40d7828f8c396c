/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Builds kernels in the background, one after another, in a thread that exists
 * while there is something to build. */

#include "base/error.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/thread_start.h"
#include "codegen/background_build.h"
#include "codegen/saved_kernel.h"

#include <libcore/device.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WAITING, BUILDING, BUILT, FAILED };

struct core__loop_build {
    uint32_t references; /* under the lock, as all that follows */
    _Atomic uint32_t state;
    bool reported;
    core_device *device; /* with a reference */
    uint32_t generation; /* the device's */
    core_loop_program *program;
    core_loop_hints hints;
    core__loop_kernel *kernel; /* BUILT */
    core_status status;        /* FAILED */
    char *message;             /* NULL without memory */
    core__loop_build *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static core__loop_build *builds; /* oldest first */
static pthread_t thread;
static bool runs;     /* the thread has work */
static bool joinable; /* it was started, and not joined */
static bool ending;   /* the process exits */

/* ------------------------------------------------------------- lifetime -- */

/* Takes a build that nothing refers to out of the list. */
static bool drop(core__loop_build *build)
{
    core__loop_build **at = &builds;

    if (--build->references > 0)
        return false;
    while (*at != build)
        at = &(*at)->next;
    *at = build->next;
    return true;
}

static void destroy(core__loop_build *build)
{
    core__loop_kernel_release(build->kernel);
    core__loop_program_release(build->program);
    core_device_release(build->device);
    core__free(build->message);
    core__free(build);
}

void core__loop_build_release(core__loop_build *build)
{
    bool last;

    if (!build)
        return;
    pthread_mutex_lock(&lock);
    last = drop(build);
    pthread_mutex_unlock(&lock);
    if (last)
        destroy(build);
}

bool core__loop_build_is_finished(const core__loop_build *build)
{
    return atomic_load_explicit(&build->state, memory_order_acquire) >= BUILT;
}

/* ------------------------------------------------------------ the thread -- */

static void run(core__loop_build *build)
{
    core__loop_kernel *kernel = NULL;
    char *message = NULL;
    core_status status = core__loop_kernel_make_shared(
        build->device, build->program, &build->hints, &kernel);
    bool last;

    if (status != CORE_OK)
        message = core__strdup(core_error_message());
    pthread_mutex_lock(&lock);
    build->kernel = kernel;
    build->status = status;
    build->message = message;
    atomic_store_explicit(&build->state, status == CORE_OK ? BUILT : FAILED,
                          memory_order_release);
    pthread_cond_broadcast(&finished);
    last = drop(build);
    pthread_mutex_unlock(&lock);
    if (last)
        destroy(build);
}

/* The next one, with a reference; without one the thread ends. */
static core__loop_build *take(void)
{
    core__loop_build *build;

    pthread_mutex_lock(&lock);
    for (build = builds; build; build = build->next)
        if (atomic_load(&build->state) == WAITING)
            break;
    if (ending)
        build = NULL;
    runs = build != NULL;
    if (build) {
        atomic_store(&build->state, BUILDING);
        build->references++;
    } else {
        pthread_cond_broadcast(&finished);
    }
    pthread_mutex_unlock(&lock);
    return build;
}

static void *work(void *unused)
{
    core__loop_build *build;

    (void)unused;
    while ((build = take()))
        run(build);
    return NULL;
}

static void join(void)
{
    pthread_t former = thread;

    joinable = false;
    pthread_mutex_unlock(&lock);
    pthread_join(former, NULL);
    pthread_mutex_lock(&lock);
}

/* Compilers do not survive the destructors of their libraries, which run after
 * this. */
static void end_at_exit(void)
{
    pthread_mutex_lock(&lock);
    ending = true;
    if (joinable)
        join();
    pthread_mutex_unlock(&lock);
}

/* Under the lock.  Signals are left to the program's threads. */
static bool start(void)
{
    static bool registered;

    if (runs || ending)
        return true;
    while (joinable && !runs) /* others may start and end one meanwhile */
        join();
    if (runs || ending)
        return true;
    if (!registered)
        atexit(end_at_exit);
    registered = true;
    runs = joinable = core__thread_start(&thread, work, NULL) == 0;
    return runs;
}

void core__loop_builds_wait(void)
{
    pthread_mutex_lock(&lock);
    while (runs)
        pthread_cond_wait(&finished, &lock);
    pthread_mutex_unlock(&lock);
}

/* The child has no such thread.  What it was building will never be there. */
void core__loop_builds_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
    if (at != CORE__FORK_CHILD)
        return;
    pthread_cond_init(&finished, NULL);
    runs = joinable = false;
    for (core__loop_build *b = builds; b; b = b->next)
        if (atomic_load(&b->state) < BUILT) {
            b->status = CORE_ERROR_UNSUPPORTED;
            atomic_store(&b->state, FAILED);
        }
}

/* -------------------------------------------------------------- requests -- */

static core__loop_build *find(const core_device *device,
                              const core_loop_program *program,
                              const core_loop_hints *hints)
{
    core__loop_build *b;

    for (b = builds; b; b = b->next)
        if (b->device == device && b->hints.flags == hints->flags &&
            b->generation == atomic_load(&device->generation) &&
            memcmp(b->program->hash, program->hash, sizeof program->hash) == 0)
            break;
    if (b)
        b->references++;
    return b;
}

static core__loop_build *new_build(core_device *device,
                                   core_loop_program *program,
                                   const core_loop_hints *hints)
{
    core__loop_build *build = core__alloc_zero(sizeof *build);

    if (!build)
        return NULL;
    build->references = 1;
    build->generation = atomic_load(&device->generation);
    build->device = core_device_retain(device);
    build->program = core__loop_program_retain(program);
    build->hints = *hints;
    return build;
}

static core_status add(core_device *device, core_loop_program *program,
                       const core_loop_hints *hints,
                       core__loop_build **out_build)
{
    core__loop_build *build = new_build(device, program, hints);
    core__loop_build **at = &builds, *other;
    bool started = true;

    if (!build)
        return core__error_memory(sizeof *build);
    pthread_mutex_lock(&lock);
    other = find(device, program, hints);
    if (!other) {
        while (*at)
            at = &(*at)->next;
        *at = build;
        started = start();
    }
    pthread_mutex_unlock(&lock);
    if (other)
        destroy(build);
    *out_build = other ? other : build;
    if (started)
        return CORE_OK;
    core__loop_build_release(build);
    *out_build = NULL;
    return core__error(CORE_ERROR_OUT_OF_MEMORY,
                       "loop program: no thread could be created to build a "
                       "kernel");
}

/* What has become of a build. */
static core_status result(core__loop_build *build,
                          core__loop_kernel **out_kernel, bool *out_new)
{
    core_status status = CORE_OK;

    if (!core__loop_build_is_finished(build))
        return CORE_OK;
    pthread_mutex_lock(&lock);
    *out_new = !build->reported;
    build->reported = true;
    if (atomic_load(&build->state) == BUILT)
        *out_kernel = core__loop_kernel_retain(build->kernel);
    else
        status = build->status;
    pthread_mutex_unlock(&lock);
    return status == CORE_OK
               ? CORE_OK
               : core__error(status, "%s",
                             build->message ? build->message
                                            : "a kernel was not built");
}

static core_status built_now(core_device *device, core_loop_program *program,
                             const core_loop_hints *hints,
                             core__loop_kernel **out_kernel, bool *out_new)
{
    *out_new = true;
    CORE_TRY(core__loop_kernel_accepts(device, program));
    return core__loop_kernel_make_shared(device, program, hints, out_kernel);
}

core_status core__loop_kernel_request(core_device *device,
                                      core_loop_program *program,
                                      const core_loop_hints *hints,
                                      core__loop_kernel **out_kernel,
                                      bool *out_new,
                                      core__loop_build **out_build)
{
    bool background;

    *out_build = NULL;
    *out_new = false;
    pthread_mutex_lock(&lock);
    *out_build = find(device, program, hints);
    pthread_mutex_unlock(&lock);
    *out_kernel =
        *out_build ? NULL : core__loop_kernel_find(device, program, hints);
    if (*out_kernel)
        return CORE_OK;
    CORE_TRY(
        core__setting_boolean(CORE__SETTING_COMPILE_BACKGROUND, &background));
    if (!*out_build && (!background || !(device->interfaces.codegen.flags &
                                         CORE_CODEGEN_BUILDS_SLOWLY)))
        return built_now(device, program, hints, out_kernel, out_new);
    if (!*out_build) {
        *out_new = true;
        CORE_TRY(core__loop_kernel_accepts(device, program));
        CORE_TRY(add(device, program, hints, out_build));
        *out_new = false;
    }
    return result(*out_build, out_kernel, out_new);
}
