/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dlpack.h: the other side of an exchange, for tests: it counts how often its
 * memory is released to it. */

#ifndef TESTS_SUPPORT_DLPACK_H
#define TESTS_SUPPORT_DLPACK_H

#include <libcore/device.h>
#include <libcore/dlpack.h>

#include <check.h>
#include <stdatomic.h>
#include <string.h>

#define OK(call) \
    ck_assert_msg((call) == CORE_OK, "%s: %s", #call, core_error_message())

static core_device *cpu;
static atomic_int deleted;

static void set_up(void)
{
    OK(core_device_find("cpu", &cpu));
    atomic_store(&deleted, 0);
}

/* The call fails with this code and a message that contains this text. */
static void failed(core_status status, core_status wanted, const char *text)
{
    ck_assert_msg(status == wanted, "%s instead of %s: %s",
                  core_status_name(status), core_status_name(wanted),
                  core_error_message());
    ck_assert_msg(strstr(core_error_message(), text), "\"%s\" is not in: %s",
                  text, core_error_message());
}

typedef struct foreign {
    core_dlpack_managed managed;
    int64_t shape[CORE_MAX_NDIM + 8];
    int64_t strides[CORE_MAX_NDIM + 8];
} foreign;

static void count_deletion(core_dlpack_managed *self)
{
    ck_assert_ptr_nonnull(self->manager_ctx);
    self->manager_ctx = NULL;
    atomic_fetch_add(&deleted, 1);
}

static void count_deletion_unversioned(core_dlpack_unversioned *self)
{
    (void)self;
    atomic_fetch_add(&deleted, 1);
}

/* f32 in host memory; strides may be NULL. */
static foreign describe(void *data, int ndim, const int64_t *shape,
                        const int64_t *strides)
{
    foreign f;

    memset(&f, 0, sizeof f);
    f.managed = (core_dlpack_managed){
        .major = 1,
        .minor = 7,
        .manager_ctx = &deleted,
        .deleter = count_deletion,
        .tensor = {.data = data,
                   .device = {CORE_DLPACK_CPU, 0},
                   .ndim = ndim,
                   .dtype = {CORE_DLPACK_FLOAT, 32, 1}},
    };
    for (int i = 0; i < ndim && i < CORE_MAX_NDIM + 8; i++) {
        f.shape[i] = shape[i];
        f.strides[i] = strides ? strides[i] : 0;
    }
    return f;
}

static core_status take(foreign *f, bool strides, core_tensor **out)
{
    f->managed.tensor.shape = f->shape;
    f->managed.tensor.strides = strides ? f->strides : NULL;
    return core_dlpack_import(&f->managed, NULL, NULL, out);
}

/* The tensor is refused, and its memory is released exactly once. */
static void refuses(foreign *f, bool strides, core_status wanted,
                    const char *text)
{
    core_tensor *tensor = (core_tensor *)f;
    int before = atomic_load(&deleted);

    failed(take(f, strides, &tensor), wanted, text);
    ck_assert_ptr_null(tensor);
    ck_assert_int_eq(atomic_load(&deleted), before + 1);
}

static const int64_t two_three[2] = {2, 3};

static void *delete_it(void *managed)
{
    ((core_dlpack_managed *)managed)->deleter(managed);
    return NULL;
}

static void *release_it(void *tensor)
{
    core_tensor_release(tensor);
    return NULL;
}

#endif
