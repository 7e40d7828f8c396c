/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The MPI library: opened at run time, initialised and finalised once. */

#define _GNU_SOURCE

#include "mpi_engine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

mpi_library mpi;

static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static bool started, own; /* MPI was initialised; by this plugin */
static pid_t process;     /* that initialised it */
static atomic_bool never_finalize;
static _Atomic int64_t patience_ns; /* of MPI_Finalize */

void mpi_lock(void)
{
    pthread_mutex_lock(&calls);
}

bool mpi_try_lock(void)
{
    return pthread_mutex_trylock(&calls) == 0;
}

void mpi_unlock(void)
{
    pthread_mutex_unlock(&calls);
}

int64_t mpi_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

core_status mpi_error(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int size = 0;

    mpi.Error_string(code, text, &size);
    return core_sdk_error(mpi_host, CORE_ERROR_IO, MPI_TITLE, "%s: %s", what,
                          text);
}

/* ------------------------------------------------------------- opening -- */

static core_status missing(const char *name)
{
    return core_sdk_error(mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
                          "the library has no %s", name);
}

#ifdef MPICH_VERSION
/* With the device ch4 of MPICH 4.0, MPIX_Comm_revoke fails an assertion, which
 * ends the process; ch3 has the function. */
static void find_revoke(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    void *symbol;

    if (mpi.Get_library_version(text, &length) != MPI_SUCCESS ||
        strstr(text, "ch3") == NULL)
        return;
    symbol = dlsym(library, "MPIX_Comm_revoke");
    memcpy(&mpi.Comm_revoke, &symbol, sizeof symbol);
}
#endif

/* Variables are looked up in the whole process: a program that uses Open MPI
 * itself may have a copy of them, which the library then uses, too. */
static core_status find_symbols(void)
{
    void *symbol;

#define FIND(name)                         \
    symbol = dlsym(library, "MPI_" #name); \
    if (symbol == NULL)                    \
        return missing("MPI_" #name);      \
    memcpy(&mpi.name, &symbol, sizeof symbol);
    MPI_FUNCTIONS(FIND)
#undef FIND
#ifdef OPEN_MPI
#define FIND(type, name, symbol_name)                   \
    mpi.name = (type)dlsym(RTLD_DEFAULT, #symbol_name); \
    if (mpi.name == NULL)                               \
        return missing(#symbol_name);
#else
#define FIND(type, name, symbol_name) mpi.name = MPI_##name;
#endif
    MPI_HANDLES(FIND)
#undef FIND
#ifdef MPICH_VERSION
    find_revoke();
#endif
    return CORE_OK;
}

/* RTLD_GLOBAL: Open MPI's components use its symbols. */
static core_status open_library(void)
{
#ifdef OPEN_MPI
    static const char *const files[] = {"libmpi.so.40"};
#else
    static const char *const files[] = {"libmpich.so.12", "libmpi.so.12"};
#endif
    core_status status;

    for (size_t i = 0; library == NULL && i < sizeof files / sizeof *files; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL)
        return core_sdk_error(mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
                              "%s cannot be opened: %s", files[0], dlerror());
    status = find_symbols();
    if (status != CORE_OK) {
        dlclose(library);
        library = NULL;
    }
    return status;
}

/* Two MPI libraries in one process disturb each other, so only the launcher's
 * is opened: Open MPI's mpirun sets OMPI_COMM_WORLD_SIZE, MPICH's (hydra) and
 * srun PMI_SIZE or PMI_FD. */
static core_status check_launcher(void)
{
    bool open_mpi = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
    bool pmi = getenv("PMI_SIZE") != NULL || getenv("PMI_FD") != NULL;
#ifdef OPEN_MPI
    bool mine = open_mpi;
#else
    bool mine = pmi && !open_mpi;
#endif

    if (mine || started)
        return CORE_OK;
    return core_sdk_error(
        mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
        "the process was started by %s; accepted: mpirun of " MPI_TITLE "%s",
        open_mpi ? "mpirun of Open MPI"
        : pmi    ? "a launcher with PMI"
                 : "none of the launchers of MPI",
        sizeof MPI_NAME == sizeof "mpich" ? " or srun (mpirun.mpich -n 2 …)"
                                          : " (mpirun.openmpi -n 2 …)");
}

core_status mpi_probe(void *user)
{
    core_status status;

    (void)user;
    pthread_mutex_lock(&starting);
    status = check_launcher();
    if (status == CORE_OK && library == NULL)
        status = open_library();
    pthread_mutex_unlock(&starting);
    return status;
}

/* ------------------------------------------------------ start and end -- */

void mpi_never_finalize(void)
{
    atomic_store(&never_finalize, true);
}

static void *call_finalize(void *nothing)
{
    mpi.Finalize();
    return nothing;
}

/* Waits for the other processes, which is what mpirun expects, but not after an
 * error, when they may never come, and no longer than the timeout. */
static void finalize(void)
{
    struct timespec until;
    pthread_t thread;
    int finalized = 1;

    /* A child of fork has the handler, but not the connections. */
    if (!own || getpid() != process || atomic_load(&never_finalize))
        return;
    mpi.Finalized(&finalized);
    if (finalized)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += atomic_load(&patience_ns) / 1000000000 + 1;
    if (pthread_create(&thread, NULL, call_finalize, NULL) == 0)
        pthread_timedjoin_np(thread, NULL, &until);
}

void mpi_set_finalize_timeout(int64_t timeout_ns)
{
    atomic_store(&patience_ns, timeout_ns);
}

static core_status start(void)
{
    int initialized = 0, provided = 0, code;

    mpi.Initialized(&initialized);
    if (!initialized) {
        code = mpi.Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
        if (code != MPI_SUCCESS)
            return core_sdk_error(mpi_host, CORE_ERROR_IO, MPI_TITLE,
                                  "MPI_Init_thread fails with code %d", code);
        own = true;
        process = getpid();
        atexit(finalize);
    }
    mpi.Query_thread(&provided);
    if (provided < MPI_THREAD_SERIALIZED)
        return core_sdk_error(mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
                              "MPI was initialised without support for calls "
                              "of several threads (MPI_THREAD_SERIALIZED)");
    mpi.Comm_set_errhandler(mpi.COMM_WORLD, mpi.ERRORS_RETURN);
    started = true;
    return CORE_OK;
}

core_status mpi_start(void)
{
    core_status status = CORE_OK;
    int finalized = 0;

    pthread_mutex_lock(&starting);
    mpi.Finalized(&finalized);
    if (finalized)
        status = core_sdk_error(mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
                                "MPI has been finalised");
    else if (!started)
        status = start();
    pthread_mutex_unlock(&starting);
    return status;
}
