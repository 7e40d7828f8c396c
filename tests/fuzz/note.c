/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fuzzes the parsers of plugin notes, seals, segments, dynamic sections and
 * symbols: any bytes are a file, and each refusal must set a message. */

#include "loader/plugin_note.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    core__plugin_image image = core__plugin_image_of_bytes(data, size);
    core_plugin_note note;
    core_plugin_seal is;
    core_status status;
    core__integrity_seal seal;

    core_error_clear();
    status = core__plugin_note_read_sealed(&image, &note, &seal);
    if (status == CORE_OK)
        status = core__plugin_note_check_abi(&note);
    if (status == CORE_OK)
        status = core__integrity_seal_check(&image, &seal);
    if (status != CORE_OK && !*core_error_message())
        abort();
    core_error_clear();
    if (core__integrity_seal_compute(&image, &seal, &is) != CORE_OK &&
        !*core_error_message())
        abort();
    core_error_clear();
    if (core__elf_segments_check(&image) != CORE_OK && !*core_error_message())
        abort();
    core_error_clear();
    if (core__elf_symbols_check(&image) != CORE_OK && !*core_error_message())
        abort();
    return 0;
}
