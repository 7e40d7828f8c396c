/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include <libcore/safetensors.h>

#include "base/error.h"
#include "base/memory.h"
#include "io/header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct core_safetensors {
    core__header header;
    char *path;
    const uint8_t *map;
    size_t map_size;
    const uint8_t *data;
};

/* Larger headers are not believed. */
enum { HEADER_MAX = 100000000 };

static core_status map_file(core_safetensors *file, const char *path)
{
    struct stat now;
    core_status status = CORE_OK;
    void *map;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &now) != 0) {
        status =
            core__error(errno == ENOENT ? CORE_ERROR_NOT_FOUND : CORE_ERROR_IO,
                        "cannot read %s: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(now.st_mode)) {
        status = core__error(CORE_ERROR_IO, "cannot read %s: it is not a file",
                             path);
        goto done;
    }
    if (now.st_size < 8) {
        status = core__error(CORE_ERROR_CORRUPT,
                             "%s: not a safetensors file: it has %lld bytes",
                             path, (long long)now.st_size);
        goto done;
    }
    map = mmap(NULL, (size_t)now.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        status = core__error(errno == ENOMEM ? CORE_ERROR_OUT_OF_MEMORY
                                             : CORE_ERROR_IO,
                             "cannot map %s: %s", path, strerror(errno));
        goto done;
    }
    file->map = map;
    file->map_size = (size_t)now.st_size;
done:
    if (fd >= 0)
        close(fd);
    return status;
}

static core_status read_header(core_safetensors *file)
{
    uint64_t size, rest = file->map_size - 8;

    memcpy(&size, file->map, 8);
    if (size > rest)
        return core__error(CORE_ERROR_CORRUPT,
                           "%s: not a safetensors file, or truncated: its "
                           "header would be %llu bytes, and %llu follow",
                           file->path, (unsigned long long)size,
                           (unsigned long long)rest);
    if (size > HEADER_MAX)
        return core__error(CORE_ERROR_CORRUPT,
                           "%s: its header of %llu bytes is larger than the "
                           "format allows",
                           file->path, (unsigned long long)size);
    file->data = file->map + 8 + size;
    return core__header_parse(&file->header, file->path,
                              (const char *)file->map + 8, (size_t)size,
                              rest - size);
}

core_status core_safetensors_open(const char *path, core_safetensors **out_file)
{
    core_safetensors *file = NULL;
    core_status status;

    *out_file = NULL;
    if (!path || !*path)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "a file to read needs a name");
    file = core__alloc_zero(sizeof *file);
    if (!file)
        return core__error_memory(sizeof *file);
    file->path = core__strdup(path);
    status = file->path ? CORE_OK : core__error_memory(strlen(path) + 1);
    if (status == CORE_OK)
        status = map_file(file, path);
    if (status == CORE_OK)
        status = read_header(file);
    if (status == CORE_OK) {
        *out_file = file;
        file = NULL;
    }
    core_safetensors_close(file);
    return status;
}

void core_safetensors_close(core_safetensors *file)
{
    if (!file)
        return;
    core__header_free(&file->header);
    if (file->map)
        munmap((void *)(uintptr_t)file->map, file->map_size);
    core__free(file->path);
    core__free(file);
}

/* ------------------------------------------------------------- contents -- */

size_t core_safetensors_count(const core_safetensors *file)
{
    return file->header.tensor_count;
}

core_status core_safetensors_describe(const core_safetensors *file,
                                      size_t index,
                                      core_safetensors_entry *out_entry)
{
    core_safetensors_entry entry = {0};
    const core__header_tensor *tensor;
    uint32_t size = out_entry->struct_size;

    if (index >= file->header.tensor_count)
        return core__error(CORE_ERROR_INDEX,
                           "%s: has %zu tensors, and no "
                           "number %zu",
                           file->path, file->header.tensor_count, index);
    tensor = file->header.by_place[index];
    if (size > sizeof entry)
        size = sizeof entry;
    entry.struct_size = size;
    entry.dtype = tensor->dtype;
    entry.name = tensor->name;
    entry.dtype_name = tensor->dtype_name;
    entry.sizes = tensor->sizes;
    entry.data = file->data + tensor->begin;
    entry.size = tensor->end - tensor->begin;
    entry.ndim = tensor->ndim;
    memcpy(out_entry, &entry, size);
    return CORE_OK;
}

static int compare_name(const void *key, const void *element)
{
    const core__header_tensor *tensor = element;

    return strcmp(key, tensor->name);
}

static const core__header_tensor *find(const core_safetensors *file,
                                       const char *name)
{
    if (!file->header.tensor_count)
        return NULL;
    return bsearch(name, file->header.tensors, file->header.tensor_count,
                   sizeof *file->header.tensors, compare_name);
}

bool core_safetensors_has(const core_safetensors *file, const char *name)
{
    return find(file, name) != NULL;
}

/* The tensor of that name, if it can be one of libcore's. */
static core_status find_usable(const core_safetensors *file, const char *name,
                               const core__header_tensor **out_tensor)
{
    const core__header_tensor *tensor = find(file, name);

    *out_tensor = tensor;
    if (!tensor)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "%s: there is no tensor \"%.80s\" in it", file->path,
                           name);
    if (tensor->dtype == CORE_DTYPE_NONE)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: tensor \"%.80s\" has dtype %.16s, which "
                           "libcore does not have",
                           file->path, name, tensor->dtype_name);
    if (tensor->dtype == CORE_BOOL)
        for (uint64_t i = tensor->begin; i < tensor->end; i++)
            if (file->data[i] > 1)
                return core__error(CORE_ERROR_CORRUPT,
                                   "%s: tensor \"%.80s\" is BOOL and has a "
                                   "byte of value %u",
                                   file->path, name, file->data[i]);
    return CORE_OK;
}

core_status core_safetensors_load(const core_safetensors *file,
                                  const char *name, core_device *device,
                                  core_tensor **out_tensor)
{
    const core__header_tensor *tensor;

    *out_tensor = NULL;
    CORE_TRY(find_usable(file, name, &tensor));
    return core_tensor_from_data(file->data + tensor->begin, tensor->dtype,
                                 tensor->sizes, tensor->ndim, device,
                                 out_tensor);
}

core_status core_safetensors_load_into(const core_safetensors *file,
                                       const char *name, core_tensor *into)
{
    const core__header_tensor *tensor;
    bool same;

    CORE_TRY(find_usable(file, name, &tensor));
    if (tensor->dtype != core_tensor_dtype(into))
        return core__error(CORE_ERROR_DTYPE,
                           "%s: tensor \"%.80s\" is %s, and %s is wanted",
                           file->path, name, core_dtype_name(tensor->dtype),
                           core_dtype_name(core_tensor_dtype(into)));
    same = tensor->ndim == core_tensor_ndim(into);
    for (uint32_t i = 0; same && i < tensor->ndim; i++)
        same = tensor->sizes[i] == core_tensor_sizes(into)[i];
    if (!same) {
        char has[200], wants[200];

        core__header_shape(has, sizeof has, tensor->sizes, tensor->ndim);
        core__header_shape(wants, sizeof wants, core_tensor_sizes(into),
                           core_tensor_ndim(into));
        return core__error(CORE_ERROR_SHAPE,
                           "%s: tensor \"%.80s\" is %s, and %s is wanted",
                           file->path, name, has, wants);
    }
    return core_tensor_write(into, file->data + tensor->begin,
                             (size_t)(tensor->end - tensor->begin));
}

static int compare_text(const void *key, const void *element)
{
    const core_named_text *text = element;

    return strcmp(key, text->name);
}

const char *core_safetensors_text(const core_safetensors *file,
                                  const char *name)
{
    const core_named_text *text = NULL;

    if (file->header.text_count)
        text = bsearch(name, file->header.texts, file->header.text_count,
                       sizeof *file->header.texts, compare_text);
    return text ? text->text : NULL;
}

size_t core_safetensors_text_count(const core_safetensors *file)
{
    return file->header.text_count;
}

core_named_text core_safetensors_text_at(const core_safetensors *file,
                                         size_t index)
{
    const core_named_text none = {NULL, NULL};

    return index < file->header.text_count ? file->header.texts[index] : none;
}
