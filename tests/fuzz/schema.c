/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fuzzes the parser of operator schemas: any bytes are a text, and each refusal
 * must set a message. */

#include "dispatch/schema.h"

#include "base/error.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static core__schema schema; /* large */

    core_error_clear();
    if (core__schema_parse((const char *)data, size, &schema) != CORE_OK &&
        !*core_error_message())
        abort();
    return 0;
}
