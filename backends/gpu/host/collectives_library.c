/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collectives_library.c: opens a vendor's library of collectives. */

#include <gpu/host/collectives_library.h>

#include <gpu/host/host.h>
#include <gpu/host/library.h>

#include <dlfcn.h>
#include <stdio.h>

#define vendor (gpu_this_vendor.collectives)

gpu_ccl gpu_ccl_calls;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;

static const gpu_symbol required[] = {
#define ROW(field, symbol, arguments) {#symbol, offsetof(gpu_ccl, field)},
    GPU_CCL_FUNCTIONS(ROW){"ncclGetErrorString",
                           offsetof(gpu_ccl, error_string)},
};
static const gpu_symbol later[] = {
    GPU_CCL_LATER_FUNCTIONS(ROW){"ncclGetLastError",
                                 offsetof(gpu_ccl, last_error)},
#undef ROW
};

static core_status check_version(void)
{
    int version = 0, code = gpu_ccl_calls.get_version(&version);

    if (code == GPU_CCL_SUCCESS && version >= GPU_CCL_OLDEST)
        return CORE_OK;
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "%s is version %d; %s %d.%d or later is needed",
                      vendor->file, version, vendor->title,
                      GPU_CCL_OLDEST / 10000, GPU_CCL_OLDEST / 100 % 100);
}

static core_status resolve(void *library)
{
    const char *missing = gpu_library_resolve(
        library, required, sizeof required / sizeof *required, &gpu_ccl_calls);

    if (missing != NULL)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED, "%s lacks %s", vendor->file,
                          missing);
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        (void)gpu_library_resolve(library, &later[i], 1, &gpu_ccl_calls);
    return check_version();
}

/* With the lock held.  A library that is refused is closed: the next probe may
 * find another one. */
static core_status open_library(void)
{
    void *library = dlopen(vendor->file, RTLD_NOW | RTLD_LOCAL);
    core_status status;

    if (library == NULL) /* the loader's message names the file */
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "no %s was found (%s); LD_LIBRARY_PATH may name its "
                          "folder",
                          vendor->title, dlerror());
    status = resolve(library);
    if (status != CORE_OK) {
        gpu_ccl_calls = (gpu_ccl){0};
        dlclose(library);
    }
    return status;
}

core_status gpu_ccl_open(void)
{
    core_status status = CORE_OK;

    pthread_mutex_lock(&lock);
    if (!is_open)
        status = open_library();
    is_open = status == CORE_OK;
    pthread_mutex_unlock(&lock);
    return status;
}

static core_status status_of(int code)
{
    return code == GPU_CCL_INTERNAL_ERROR ? CORE_ERROR_INTERNAL
           : code == GPU_CCL_INVALID_ARGUMENT || code == GPU_CCL_INVALID_USAGE
               ? CORE_ERROR_INVALID_ARGUMENT
               : CORE_ERROR_IO;
}

core_status gpu_ccl_error(void *comm, int code, const char *function)
{
    const char *text = gpu_ccl_calls.error_string(code), *last = NULL;

    if (gpu_ccl_calls.last_error != NULL)
        last = gpu_ccl_calls.last_error(comm);
    if (last == NULL)
        last = "";
    return gpu_refuse(status_of(code), "%s: %s: %s (%d)%s%s", vendor->title,
                      function, text != NULL ? text : "unnamed error", code,
                      *last ? "; " : "", last);
}
