/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* sdk.h: helpers for plugin authors.  Header only, C11 and C++.  Nothing here
 * is part of the contract: plugin.h, kernel.h, backend.h and codegen.h suffice
 * to write a plugin.  Every function is thread-safe.
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
#include "codegen.h"
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
 * can access, on a device with CORE_DEVICE_FLAT. */
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

/* Moves to the next index along the dimensions of a mask, the innermost first,
 * and data with it.  Returns 0 after the last index, when both are where they
 * began. */
static inline int core_sdk_loop_next(const core_loop *loop, uint32_t dimensions,
                                     int64_t *index, char **data)
{
    uint32_t d, k;

    for (d = 0; d < loop->ndim; d++) {
        int64_t steps = 1;

        if (!(dimensions >> d & 1))
            continue;
        if (++index[d] == loop->sizes[d]) {
            steps -= loop->sizes[d];
            index[d] = 0;
        }
        for (k = 0; k < loop->noperands; k++)
            if (!(loop->operands[k].flags & (uint32_t)CORE_OPERAND_IMMEDIATE))
                data[k] += loop->operands[k].strides[d] * steps;
        if (steps == 1)
            return 1;
    }
    return 0;
}

/* Begins to walk a loop: data points to the first element of each operand, and
 * strides are those along `dimension`, or 0 if there is no such dimension.
 * UNSUPPORTED, without a message, for more than CORE_SDK_OPERANDS operands or
 * CORE_MAX_NDIM dimensions. */
static inline core_status core_sdk_loop_begin(const core_loop *loop,
                                              uint32_t dimension, char **data,
                                              int64_t *strides)
{
    uint32_t k;

    if (loop->noperands > (uint32_t)CORE_SDK_OPERANDS ||
        loop->ndim > (uint32_t)CORE_MAX_NDIM)
        return CORE_ERROR_UNSUPPORTED;
    for (k = 0; k < loop->noperands; k++) {
        const core_operand *operand = &loop->operands[k];
        int fixed = (operand->flags & (uint32_t)CORE_OPERAND_IMMEDIATE) != 0;

        data[k] = fixed ? (char *)(uintptr_t)&operand->immediate
                        : core_sdk_address(operand->memory);
        strides[k] =
            fixed || dimension >= loop->ndim ? 0 : operand->strides[dimension];
    }
    return CORE_OK;
}

/* Returns 1 if one of the dimensions of a mask has no elements, else 0. */
static inline int core_sdk_loop_is_empty(const core_loop *loop,
                                         uint32_t dimensions)
{
    uint32_t d;

    for (d = 0; d < loop->ndim; d++)
        if (dimensions >> d & 1 && loop->sizes[d] == 0)
            return 1;
    return 0;
}

/* Calls row for every row of an element-wise or reduction loop.  Handle +
 * offset of each operand must be an address that the plugin's own code can
 * access; a device without CORE_DEVICE_FLAT passes a copy of the loop whose
 * operands have addresses as handles (steps/family.c of the template).  A
 * reduction may have several rows per output element; core_sdk_loop_reduce says
 * where one begins and ends.  If a reduced dimension is empty, row is called
 * with count 0 for each output element: it then writes the identity.
 * UNSUPPORTED, without a message, for more than CORE_SDK_OPERANDS operands or
 * CORE_MAX_NDIM dimensions. */
static inline core_status core_sdk_loop_rows(const core_loop *loop,
                                             core_sdk_row row, void *context)
{
    char *data[CORE_SDK_OPERANDS] = {0};
    int64_t strides[CORE_SDK_OPERANDS] = {0};
    int64_t index[CORE_MAX_NDIM] = {0};
    int64_t count = loop->ndim > 0 ? loop->sizes[0] : 1;
    uint32_t others = ~UINT32_C(1);
    core_status status = core_sdk_loop_begin(loop, 0, data, strides);

    if (status != CORE_OK || core_sdk_loop_is_empty(loop, ~loop->reduced))
        return status;
    if (core_sdk_loop_is_empty(loop, loop->reduced)) {
        others = ~loop->reduced;
        count = 0;
    }
    do
        row(context, data, strides, count);
    while (core_sdk_loop_next(loop, others, index, data));
    return CORE_OK;
}

/* How core_sdk_loop_reduce computes an output element. */
typedef struct core_sdk_reduction {
    /* Begins with the identity. */
    void (*begin)(void *context);
    /* Adds count elements of the inputs; operands as for core_sdk_row.  It does
     * not access the outputs, whose strides are 0. */
    core_sdk_row row;
    /* Writes the outputs: data[0], … */
    void (*end)(void *context, char *const *data);
} core_sdk_reduction;

/* Computes a reduction loop: for each output element `begin`, `row` for each
 * row of the elements that are reduced to it, and `end`.  Rows come in the
 * order of the loop, the innermost dimension first, so that argmax can count.
 * `row` is not called if a reduced dimension is empty; `end` then writes the
 * identity.  The conditions and the error are those of core_sdk_loop_rows. */
static inline core_status core_sdk_loop_reduce(
    const core_loop *loop, const core_sdk_reduction *reduction, void *context)
{
    char *data[CORE_SDK_OPERANDS] = {0};
    int64_t strides[CORE_SDK_OPERANDS] = {0};
    int64_t index[CORE_MAX_NDIM] = {0};
    uint32_t first = 0;
    int64_t count;
    int empty = core_sdk_loop_is_empty(loop, loop->reduced);
    core_status status;

    while (first < loop->ndim && !(loop->reduced >> first & 1))
        first++;
    count = first < loop->ndim ? loop->sizes[first] : 1;
    status = core_sdk_loop_begin(loop, first, data, strides);
    if (status != CORE_OK || core_sdk_loop_is_empty(loop, ~loop->reduced))
        return status;
    do {
        reduction->begin(context);
        if (!empty)
            do
                reduction->row(context, data, strides, count);
            while (core_sdk_loop_next(
                loop, loop->reduced & ~(UINT32_C(1) << (first & 31)), index,
                data));
        reduction->end(context, data);
    } while (core_sdk_loop_next(loop, ~loop->reduced, index, data));
    return CORE_OK;
}

/* --------------------------------------------------- 16-bit conversions -- */

/* Returns the value of an f16. */
static inline float core_sdk_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
    uint32_t wide = 0;
    float value;

    if (exponent == 31)
        wide = 0x7f800000u | mantissa << 13;
    else if (exponent > 0)
        wide = (exponent + 112) << 23 | mantissa << 13;
    else {
        value = (float)mantissa * 5.9604644775390625e-8f; /* 2 ** -24 */
        memcpy(&wide, &value, sizeof(wide));
    }
    wide |= sign;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

/* Returns the f16 nearest to a number, to even at ties: an infinity from 65520
 * on.  NaN stays NaN. */
static inline uint16_t core_sdk_f32_to_f16(float value)
{
    uint32_t wide, sign, magnitude, rest, half;
    uint32_t shift = 13;

    memcpy(&wide, &value, sizeof(wide));
    sign = wide >> 16 & 0x8000u;
    magnitude = wide & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u) /* below half the smallest subnormal */
        return (uint16_t)sign;
    if (magnitude >= 0x38800000u) {
        magnitude -= 0x38000000u;
    } else { /* subnormal: from the significand in units of 2 ** -24 */
        shift = 126 - (magnitude >> 23);
        magnitude = (magnitude & 0x7fffffu) | 0x800000u;
    }
    half = UINT32_C(1) << (shift - 1);
    rest = magnitude & (2 * half - 1);
    magnitude >>= shift;
    if (rest > half || (rest == half && (magnitude & 1)))
        magnitude++;
    return (uint16_t)(sign | magnitude);
}

/* Returns the value of a bf16. */
static inline float core_sdk_bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return value;
}

/* Returns the bf16 nearest to a number, to even at ties.  NaN stays NaN. */
static inline uint16_t core_sdk_f32_to_bf16(float value)
{
    uint32_t wide;

    memcpy(&wide, &value, sizeof(wide));
    if ((wide & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(wide >> 16 | 0x40u);
    return (uint16_t)((wide + 0x7fffu + (wide >> 16 & 1)) >> 16);
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
 * all operands of that dtype.  Operators whose results or operands differ in
 * dtype (comparisons, where.self, sums of integers, argmax: core_loop in
 * kernel.h) are registered with register_kernels.  backend: a device type of
 * this plugin.  dtypes: a mask (CORE_DTYPE_MASK).  requirements:
 * CORE_REQUIRE_….  Call it in init.  Stops at the first error and returns
 * it. */
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

/* --------------------------------------------------- displaced functions -- */

/* Calls what the function that received `call` displaced
 * (core_host.redispatch_displaced).  host: the one that init received.  args
 * and results: those that the function received, or others; see core_function
 * in plugin.h.  UNSUPPORTED if the host is older than ABI 0.6. */
static inline core_status core_sdk_displaced(
    const core_host *host, core_call *call, const core_value *args,
    uint32_t nargs, core_value *results, uint32_t nresults)
{
    if (host->abi_minor >= 6)
        return host->redispatch_displaced(call, args, nargs, results, nresults);
    return core_sdk_error(host, CORE_ERROR_UNSUPPORTED, NULL,
                          "a plugin calls what its function displaced, which "
                          "needs plugin ABI 0.6; this one is 0.%u",
                          host->abi_minor);
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
