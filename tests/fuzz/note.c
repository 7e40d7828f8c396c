/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fuzzes the parsers of plugin notes, seals, segments, dynamic sections and
 * symbols: any bytes are a file, and each refusal must set a message. */

#include "loader/plugin_note.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    core__image image = core__image_bytes(data, size);
    core_plugin_note note;
    core_plugin_seal is;
    core_status status;
    core__seal seal;

    core_error_clear();
    status = core__note_read_sealed(&image, &note, &seal);
    if (status == CORE_OK)
        status = core__note_check_abi(&note);
    if (status == CORE_OK)
        status = core__seal_check(&image, &seal);
    if (status != CORE_OK && !*core_error_message())
        abort();
    core_error_clear();
    if (core__seal_compute(&image, &seal, &is) != CORE_OK &&
        !*core_error_message())
        abort();
    core_error_clear();
    if (core__segments_check(&image) != CORE_OK && !*core_error_message())
        abort();
    core_error_clear();
    if (core__symbols_check(&image) != CORE_OK && !*core_error_message())
        abort();
    return 0;
}
