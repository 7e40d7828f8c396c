/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* sdk.h: helpers for plugin authors.  Header only, C11 and C++.  Nothing here
 * is part of the contract: plugin.h, backend.h and kernel.h suffice to write a
 * plugin.  Every function is thread-safe.
 *
 * One source file of a plugin contains:
 *
 *     CORE_SDK_NOTE("example", "A vendor", "1.0", "MIT", "example", "");
 *
 *     CORE_SDK_EXPORT core_status core_plugin_entry(
 *         const core_plugin_offer *offer, core_plugin_answer *answer)
 *     {
 *         return core_sdk_negotiate(offer, answer, 1, 0, init, shutdown);
 *     }
 *
 * The plugin is linked so that core_plugin_entry is its only exported
 * symbol. */

#ifndef LIBCORE_SDK_H
#define LIBCORE_SDK_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "kernel.h"
#include "plugin.h"

/* CORE_SDK_EXPORT marks the definition of core_plugin_entry. */
#ifdef __cplusplus
extern "C" {
#define CORE_SDK_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define CORE_SDK_EXPORT __attribute__((visibility("default")))
#endif

/* ------------------------------------------------------------- strings -- */

/* Returns a string for a NUL-terminated text, which it borrows.  NULL: an empty
 * string. */
static inline core_string core_sdk_string(const char *text)
{
    core_string string;

    string.data = text;
    string.size = text != NULL ? (uint64_t)strlen(text) : 0;
    return string;
}

/* Returns 1 if the string and the NUL-terminated text are equal, else 0. */
static inline int core_sdk_string_equal(core_string string, const char *text)
{
    size_t size = strlen(text);

    return string.size == size &&
           (size == 0 || memcmp(string.data, text, size) == 0);
}

/* -------------------------------------------------------------- errors -- */

/* Reports an error with a formatted message and returns its code.  The message
 * is truncated to 511 bytes.  component: may be NULL. */
#if defined(__GNUC__)
__attribute__((format(printf, 7, 0)))
#endif
static inline core_status
core_sdk_error_va(const core_host *host, core_status code, uint32_t severity,
                  uint32_t retryable, int64_t vendor_code,
                  const char *component, const char *format, va_list arguments)
{
    char text[512];
    core_error_info info;
    int size = vsnprintf(text, sizeof(text), format, arguments);

    if (size < 0)
        size = 0;
    if ((size_t)size >= sizeof(text))
        size = (int)sizeof(text) - 1;
    memset(&info, 0, sizeof(info));
    info.struct_size = (uint32_t)sizeof(info);
    info.code = code;
    info.severity = severity;
    info.retryable = retryable;
    info.vendor_code = vendor_code;
    info.component = core_sdk_string(component);
    info.text.data = text;
    info.text.size = (uint64_t)size;
    return host->error(&info);
}

/* Reports a recoverable error without a vendor code and returns its code. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static inline core_status
core_sdk_error(const core_host *host, core_status code, const char *component,
               const char *format, ...)
{
    va_list arguments;
    core_status status;

    va_start(arguments, format);
    status = core_sdk_error_va(host, code, CORE_SEVERITY_RECOVERABLE, 0, 0,
                               component, format, arguments);
    va_end(arguments);
    return status;
}

/* Reports an error with a severity (CORE_SEVERITY_…), such as failed work on a
 * stream or a lost device, and returns its code. */
#if defined(__GNUC__)
__attribute__((format(printf, 5, 6)))
#endif
static inline core_status
core_sdk_error_severe(const core_host *host, core_status code,
                      uint32_t severity, const char *component,
                      const char *format, ...)
{
    va_list arguments;
    core_status status;

    va_start(arguments, format);
    status = core_sdk_error_va(host, code, severity, 0, 0, component, format,
                               arguments);
    va_end(arguments);
    return status;
}

/* -------------------------------------------------------------- values -- */

/* Returns a number (INT, FLOAT or BOOL) as double, or default_value if the
 * value is not a number. */
static inline double core_sdk_double(const core_value *value,
                                     double default_value)
{
    if (value->tag == CORE_VALUE_FLOAT)
        return value->u.f;
    if (value->tag == CORE_VALUE_INT || value->tag == CORE_VALUE_BOOL)
        return (double)value->u.i;
    return default_value;
}

/* Returns a number (INT, FLOAT or BOOL) as int64, a FLOAT rounded toward zero,
 * or default_value if the value is not a number or not in range. */
static inline int64_t core_sdk_int(const core_value *value,
                                   int64_t default_value)
{
    if (value->tag == CORE_VALUE_INT || value->tag == CORE_VALUE_BOOL)
        return value->u.i;
    /* C does not define the conversion of NaN or a number out of range. */
    if (value->tag == CORE_VALUE_FLOAT &&
        value->u.f >= -9223372036854775808.0 &&
        value->u.f < 9223372036854775808.0)
        return (int64_t)value->u.f;
    return default_value;
}

/* Returns the size of an element in bytes, or 0 for a dtype that these headers
 * do not know. */
static inline uint32_t core_sdk_itemsize(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
    case CORE_I64:
        return 8;
    case CORE_F32:
    case CORE_I32:
        return 4;
    case CORE_F16:
    case CORE_BF16:
    case CORE_I16:
        return 2;
    case CORE_I8:
    case CORE_U8:
    case CORE_BOOL:
    case CORE_F8E4M3:
    case CORE_F8E5M2:
        return 1;
    default:
        return 0;
    }
}

/* --------------------------------------------------------------- loops -- */

/* Returns handle + offset as an address, for memory that the plugin's own code
 * can access. */
static inline char *core_sdk_address(core_memory memory)
{
    return (char *)memory.handle + memory.offset;
}

/* The maximum number of operands that core_sdk_loop_rows supports. */
enum { CORE_SDK_OPERANDS = 16 };

/* Computes count elements along the innermost dimension of a loop.  data[k] and
 * strides[k] (in bytes) belong to operand k, outputs first.  An immediate has
 * stride 0. */
typedef void (*core_sdk_row)(void *context, char *const *data,
                             const int64_t *strides, int64_t count);

/* Calls row for every row of an element-wise or reduction loop.  The memory of
 * the operands must be accessible to the plugin's own code.  UNSUPPORTED,
 * without a message, for more than CORE_SDK_OPERANDS operands or CORE_MAX_NDIM
 * dimensions. */
static inline core_status core_sdk_loop_rows(const core_loop *loop,
                                             core_sdk_row row, void *context)
{
    char *data[CORE_SDK_OPERANDS] = {0};
    int64_t inner[CORE_SDK_OPERANDS] = {0};
    int64_t index[CORE_MAX_NDIM];
    int64_t count = loop->ndim > 0 ? loop->sizes[0] : 1;
    uint32_t d, k;

    if (loop->noperands > (uint32_t)CORE_SDK_OPERANDS ||
        loop->ndim > (uint32_t)CORE_MAX_NDIM)
        return CORE_ERROR_UNSUPPORTED;
    for (k = 0; k < loop->noperands; k++) {
        const core_operand *operand = &loop->operands[k];
        int fixed = (operand->flags & (uint32_t)CORE_OPERAND_IMMEDIATE) != 0;

        data[k] = fixed ? (char *)(uintptr_t)&operand->immediate
                        : core_sdk_address(operand->memory);
        inner[k] = fixed || loop->ndim == 0 ? 0 : operand->strides[0];
    }
    for (d = 0; d < loop->ndim; d++) {
        index[d] = 0;
        if (loop->sizes[d] == 0)
            return CORE_OK;
    }
    for (;;) {
        row(context, data, inner, count);
        for (d = 1; d < loop->ndim; d++) {
            int64_t back = ++index[d] < loop->sizes[d] ? 0 : index[d];

            for (k = 0; k < loop->noperands; k++)
                if (!(loop->operands[k].flags &
                      (uint32_t)CORE_OPERAND_IMMEDIATE))
                    data[k] +=
                        loop->operands[k].strides[d] * (back ? 1 - back : 1);
            if (!back)
                break;
            index[d] = 0;
        }
        if (d >= loop->ndim)
            return CORE_OK;
    }
}

/* -------------------------------------------------------- requirements -- */

/* Returns the CORE_REQUIRE_… flags for memory that is aligned to `bytes`, a
 * power of two up to 32768. */
static inline uint32_t core_sdk_aligned(uint32_t bytes)
{
    uint32_t n = 0;

    while (n < 15 && bytes >> n > 1)
        n++;
    return n << CORE_REQUIRE_ALIGNMENT_SHIFT;
}

/* ------------------------------------------------------------ families -- */

/* An operator of a family of element-wise operators that share one kernel
 * function. */
typedef struct core_sdk_member {
    const char *name;
    uint32_t inputs; /* number of tensors that it reads */
    intptr_t user;   /* passed as call->user, to tell the members apart */
} core_sdk_member;

/* Registers launch as a kernel for each member and each dtype of the mask, with
 * all operands of that dtype.  backend: a device type of this plugin.
 * dtypes: a mask (CORE_DTYPE_MASK).  requirements: CORE_REQUIRE_….  Call it in
 * init.  Stops at the first error and returns it. */
static inline core_status core_sdk_register_family(
    const core_host *host, core_registry *registry, core_string backend,
    core_function launch, uint32_t dtypes, uint32_t requirements,
    const core_sdk_member *members, uint32_t count)
{
    core_status status = CORE_OK;
    uint32_t i, dtype, k;

    for (i = 0; i < count && status == CORE_OK; i++)
        for (dtype = 0; dtype < (uint32_t)CORE_DTYPE_LIMIT; dtype++) {
            core_kernel kernel;
            const core_kernel *one = &kernel;

            if (!(dtypes & CORE_DTYPE_MASK(dtype)))
                continue;
            memset(&kernel, 0, sizeof(kernel));
            kernel.struct_size = (uint32_t)sizeof(kernel);
            kernel.demands = requirements;
            kernel.name = core_sdk_string(members[i].name);
            for (k = 0;
                 k <= members[i].inputs && k < (uint32_t)CORE_SIGNATURE_MAX;
                 k++)
                kernel.signature[k] = CORE_DTYPE_MASK(dtype);
            kernel.launch = launch;
            kernel.user = (void *)members[i].user;
            status = host->register_kernels(registry, backend, &one, 1);
            if (status != CORE_OK)
                break;
        }
    return status;
}

/* --------------------------------------------------------- negotiation -- */

/* Implements core_plugin_entry: chooses the newest ABI minor that the host and
 * these headers support, and fills the answer.  minor_min: the oldest minor
 * that the plugin can run under.  flags: CORE_PLUGIN_….  INCOMPATIBLE, with a
 * refusal, if there is no common version. */
static inline core_status core_sdk_negotiate(
    const core_plugin_offer *offer, core_plugin_answer *answer,
    uint32_t minor_min, uint32_t flags,
    core_status (*init)(const core_host *, core_registry *, void **),
    core_status (*shutdown)(void *, uint64_t))
{
    core_plugin_answer mine;
    uint32_t size = answer->struct_size;
    core_status status = CORE_OK;

    memset(&mine, 0, sizeof(mine));
    mine.abi_minor = offer->abi_minor_max < (uint32_t)CORE_ABI_MINOR
                         ? offer->abi_minor_max
                         : (uint32_t)CORE_ABI_MINOR;
    mine.host_minor_min = minor_min;
    mine.flags = flags;
    mine.init = init;
    mine.shutdown = shutdown;
    if (offer->abi_major != (uint32_t)CORE_ABI_MAJOR) {
        mine.refusal = core_sdk_string("built for another ABI major");
        status = CORE_ERROR_INCOMPATIBLE;
    } else if (mine.abi_minor < minor_min) {
        mine.refusal = core_sdk_string("needs a newer libcore");
        status = CORE_ERROR_INCOMPATIBLE;
    } else if (mine.abi_minor < offer->abi_minor_min) {
        mine.refusal = core_sdk_string("too old for this libcore");
        status = CORE_ERROR_INCOMPATIBLE;
    }
    if (size > (uint32_t)sizeof(mine))
        size = (uint32_t)sizeof(mine);
    mine.struct_size = size;
    memcpy(answer, &mine, size);
    return status;
}

#ifdef __cplusplus
}
#endif

/* ------------------------------------------------------------ ELF note -- */

/* The note as it is stored in the file: header, owner, and content, which ends
 * with space for a seal. */
typedef struct core_sdk_note {
    uint32_t owner_size;
    uint32_t content_size;
    uint32_t type;
    char owner[8];
    core_plugin_note content;
    core_plugin_seal seal;
} core_sdk_note;
CORE_STATIC_ASSERT(sizeof(core_sdk_note) == 20 + 320 + 32, "core_sdk_note");

/* Defines the ELF note of a plugin that runs under ABI minor minor_min or
 * later.  The strings are literals that fit into the fields of
 * core_plugin_note.  device_types: the device types that init registers,
 * comma-separated.  minimum_driver: may be "". */
#define CORE_SDK_NOTE_SINCE(minor_min, name, vendor, version, license,      \
                            device_types, minimum_driver)                   \
    __attribute__((                                                         \
        section(".note.libcore"), used,                                     \
        aligned(4))) static const core_sdk_note core_sdk_note_of_plugin = { \
        8,                                                                  \
        (uint32_t)(sizeof(core_plugin_note) + sizeof(core_plugin_seal)),    \
        CORE_NOTE_TYPE,                                                     \
        "libcore",                                                          \
        {{'L', 'I', 'B', 'C', 'O', 'R', 'E', 0},                            \
         CORE_NOTE_VERSION,                                                 \
         CORE_ABI_MAJOR,                                                    \
         minor_min,                                                         \
         CORE_ABI_MINOR,                                                    \
         0,                                                                 \
         0,                                                                 \
         name,                                                              \
         vendor,                                                            \
         version,                                                           \
         license,                                                           \
         device_types,                                                      \
         minimum_driver},                                                   \
        {{'U', 'N', 'S', 'E', 'A', 'L', 'E', 'D'}, {0}, {0}}}

/* Defines the ELF note of a plugin that runs under ABI minor 1 or later. */
#define CORE_SDK_NOTE(name, vendor, version, license, device_types,      \
                      minimum_driver)                                    \
    CORE_SDK_NOTE_SINCE(1, name, vendor, version, license, device_types, \
                        minimum_driver)

#endif
