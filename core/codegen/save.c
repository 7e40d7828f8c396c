/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels as bytes: a header that says of what they are, and the plugin's
 * bytes. */

#include "base/error.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "codegen/saved_kernel.h"

#include <string.h>

/* Hashes as text without a NUL.  Little endian. */
typedef struct header {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint8_t program[32];
    char identity[64]; /* of the generator's text */
    char content[64];  /* of the plugin's bytes */
    uint64_t size;     /* of these */
} header;

static const char magic[8] = {'l', 'o', 'o', 'p', 'k', 'e', 'r', 'n'};

enum { FORMAT = 1, LARGEST = 1 << 30, TRIES = 4 };

static void hash(const void *data, size_t size, char *out_text)
{
    core__sha256 sha;
    char text[65];

    core__sha256_begin(&sha);
    core__sha256_add(&sha, data, size);
    core__sha256_end(&sha, text);
    memcpy(out_text, text, 64);
}

static core_status fill(header *h, core_device *device,
                        const core_loop_program *program)
{
    const core_codegen_interface *table = &device->interfaces.codegen;
    uint32_t errors = core__thread_self()->error.sequence;
    core_string identity = {NULL, 0};

    if (!table->identity || !table->save || !table->load)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "loop program: \"%s\" cannot save kernels",
                           device->name);
    CORE_TRY(core__loop_reason(device, table->identity(device->impl, &identity),
                               errors, "identity"));
    memset(h, 0, sizeof *h);
    memcpy(h->magic, magic, sizeof magic);
    h->version = FORMAT;
    memcpy(h->program, program->hash, sizeof h->program);
    hash(identity.size ? identity.data : "", identity.size, h->identity);
    return CORE_OK;
}

/* The plugin says how many bytes it needs; that may change between calls. */
static core_status save(core__loop_kernel *kernel, char **out_data,
                        uint64_t *out_size)
{
    const core_codegen_interface *table = &kernel->device->interfaces.codegen;
    uint32_t errors = core__thread_self()->error.sequence;
    uint64_t capacity = 0, size = 0;
    char *data = NULL;

    *out_data = NULL;
    for (int i = 0; i < TRIES; i++) {
        core_status status =
            table->save(kernel->device->impl, kernel->impl,
                        data ? data + sizeof(header) : NULL, capacity, &size);

        if (status == CORE_OK && data && size <= capacity) {
            *out_data = data;
            *out_size = size;
            return CORE_OK;
        }
        core__free(data);
        data = NULL;
        if (status != CORE_OK)
            return core__loop_reason(kernel->device, status, errors, "save");
        if (size > LARGEST)
            break;
        capacity = size;
        data = core__alloc(sizeof(header) + capacity);
        if (!data)
            return core__error_memory(sizeof(header) + capacity);
    }
    core__free(data);
    return core__error(CORE_ERROR_INTERNAL,
                       "loop program: save of \"%s\" asks for %llu bytes after "
                       "it got %llu",
                       kernel->device->name, (unsigned long long)size,
                       (unsigned long long)capacity);
}

core_status core__loop_kernel_save(core__loop_kernel *kernel, void **out_data,
                                   size_t *out_size)
{
    header head;
    char *data;

    *out_data = NULL;
    *out_size = 0;
    CORE_TRY(fill(&head, kernel->device, kernel->program));
    CORE_TRY(save(kernel, &data, &head.size));
    hash(data + sizeof head, head.size, head.content);
    memcpy(data, &head, sizeof head);
    *out_data = data;
    *out_size = sizeof head + head.size;
    return CORE_OK;
}

core_status core__loop_kernel_load(core_device *device,
                                   core_loop_program *program, const void *data,
                                   size_t size, core__loop_kernel **out_kernel)
{
    header expected, head;
    char content[64];
    const char *what = NULL;

    *out_kernel = NULL;
    CORE_TRY(fill(&expected, device, program));
    if (size >= sizeof head)
        memcpy(&head, data, sizeof head);
    if (size < sizeof head || memcmp(head.magic, magic, sizeof magic) != 0 ||
        head.reserved != 0 || head.size != size - sizeof head)
        return core__error(CORE_ERROR_CORRUPT,
                           "loop program: %zu bytes are not a saved kernel",
                           size);
    hash((const char *)data + sizeof head, head.size, content);
    if (memcmp(content, head.content, sizeof content) != 0)
        return core__error(CORE_ERROR_CORRUPT,
                           "loop program: a saved kernel is damaged");
    if (head.version != FORMAT)
        what = "format";
    else if (memcmp(head.program, expected.program, sizeof head.program) != 0)
        what = "program";
    else if (memcmp(head.identity, expected.identity, sizeof head.identity) !=
             0)
        what = "generator";
    if (what)
        return core__error(CORE_ERROR_INCOMPATIBLE,
                           "loop program: a saved kernel is of another %s",
                           what);
    return core__loop_kernel_restore(device, program,
                                     (const char *)data + sizeof head,
                                     head.size, out_kernel);
}
