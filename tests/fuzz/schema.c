/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The parser of operators' schemas, fed by libFuzzer: any bytes are a text.
 * What is refused has a reason. */

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
