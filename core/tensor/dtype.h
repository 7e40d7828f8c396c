/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* dtype.h: element types, their categories and promotion. */

#ifndef CORE_TENSOR_DTYPE_H
#define CORE_TENSOR_DTYPE_H

#include "base/error.h"

#include <stdbool.h>

typedef enum core__category {
    CORE__CATEGORY_BOOL,
    CORE__CATEGORY_INTEGER,
    CORE__CATEGORY_FLOATING,
    CORE__CATEGORY_STORAGE
} core__category;

/* 0 for an id without elements. */
extern const uint8_t core__dtype_sizes[CORE_DTYPE_LIMIT];

static inline uint32_t core__dtype_size(core_dtype dtype)
{
    return core__dtype_sizes[dtype];
}

static inline bool core__dtype_is_known(core_dtype dtype)
{
    return dtype < CORE_DTYPE_LIMIT && core__dtype_sizes[dtype] != 0;
}

/* Accepts the dtypes of this release; else UNSUPPORTED or INVALID_ARGUMENT. */
core_status core__dtype_check(core_dtype dtype);
core__category core__dtype_category(core_dtype dtype);
static inline bool core__dtype_is_floating(core_dtype dtype)
{
    return dtype >= CORE_F64 && dtype <= CORE_BF16;
}
/* Stored, copied and converted, but never computed with. */
static inline bool core__dtype_is_storage(core_dtype dtype)
{
    return dtype == CORE_F8E4M3 || dtype == CORE_F8E5M2;
}
/* True for dtypes with fractions. */
static inline bool core__dtype_is_real(core_dtype dtype)
{
    return core__dtype_is_floating(dtype) || core__dtype_is_storage(dtype);
}
static inline bool core__dtype_is_integer(core_dtype dtype)
{
    return dtype >= CORE_I64 && dtype <= CORE_U8;
}
/* The smallest dtype to which both promote (docs/semantics.md, Types and
 * layout 1); NONE if they differ and one is a storage dtype. */
core_dtype core__dtype_promote(core_dtype a, core_dtype b);
/* The largest finite number of a floating dtype; of others, infinity. */
double core__dtype_largest(core_dtype dtype);
/* f32 unless it is set to another. */
core_dtype core__dtype_default(void);
/* Short names such as "f32"; printing uses names such as "float32". */
const char *core__dtype_name(core_dtype dtype);
/* For errors: the names of all dtypes. */
#define CORE__DTYPE_NAMES \
    "f64, f32, f16, bf16, i64, i32, i16, i8, u8, bool, f8e4m3 and f8e5m2"
core_dtype core__dtype_from_name(const char *name, size_t size);

/* Converts scalars to and from one element in host memory. */
void core__element_store(core_dtype dtype, void *to, core_scalar value);
core_scalar core__element_load(core_dtype dtype, const void *from);

float core__f16_to_f32(uint16_t bits);
uint16_t core__f32_to_f16(float value);
float core__bf16_to_f32(uint16_t bits);
uint16_t core__f32_to_bf16(float value);

#endif
