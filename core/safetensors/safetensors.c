/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Queries of an open file, and reading its tensors. */

#include "safetensors/safetensors.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

size_t core_safetensors_count(const core_safetensors *file)
{
    return file ? file->count : 0;
}

core_status core_safetensors_describe(const core_safetensors *file,
                                      size_t index,
                                      core_safetensors_entry *out_entry)
{
    core_safetensors_entry entry = {0};
    const core__safetensors_entry *found;
    const core__safetensors_header_tensor *tensor;
    uint32_t size;

    CORE__NOT_NULL(file);
    CORE__NOT_NULL(out_entry);
    CORE__CHECK_STRUCT_SIZE(out_entry, core_safetensors_entry);
    size = out_entry->struct_size;
    if (index >= file->count)
        return core__error(CORE_ERROR_INDEX,
                           "%s: index is %zu; the file has %zu tensors",
                           file->path, index, file->count);
    found = file->by_place[index];
    tensor = found->tensor;
    if (size > sizeof entry)
        size = sizeof entry;
    entry.struct_size = size;
    entry.dtype = tensor->dtype;
    entry.name = tensor->name;
    entry.dtype_name = tensor->dtype_name;
    entry.sizes = tensor->sizes;
    entry.data = core__safetensors_data(found);
    entry.size = tensor->end - tensor->begin;
    entry.ndim = tensor->ndim;
    memcpy(out_entry, &entry, size);
    return CORE_OK;
}

static int compare_name(const void *key, const void *element)
{
    const core__safetensors_entry *entry = element;

    return strcmp(key, entry->tensor->name);
}

static const core__safetensors_entry *find(const core_safetensors *file,
                                           const char *name)
{
    if (!file->count)
        return NULL;
    return bsearch(name, file->entries, file->count, sizeof *file->entries,
                   compare_name);
}

bool core_safetensors_has(const core_safetensors *file, const char *name)
{
    return file && name && find(file, name) != NULL;
}

/* Finds the tensor of that name; an error if libcore does not have its
 * dtype. */
static core_status find_usable(const core_safetensors *file, const char *name,
                               const core__safetensors_entry **out_entry)
{
    const core__safetensors_entry *entry = find(file, name);
    const core__safetensors_header_tensor *tensor;
    const uint8_t *data;

    *out_entry = entry;
    if (!entry)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "%s: the file has no tensor \"%.80s\"", file->path,
                           name);
    tensor = entry->tensor;
    if (tensor->dtype == CORE_DTYPE_NONE)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: tensor \"%.80s\" has dtype %.16s, which "
                           "libcore does not support",
                           entry->part->path, name, tensor->dtype_name);
    data = core__safetensors_data(entry);
    if (tensor->dtype == CORE_BOOL)
        for (uint64_t i = 0; i < tensor->end - tensor->begin; i++)
            if (data[i] > 1)
                return core__error(CORE_ERROR_CORRUPT,
                                   "%s: tensor \"%.80s\" is BOOL and has a "
                                   "byte with the value %u; it must be 0 or 1",
                                   entry->part->path, name, data[i]);
    return CORE_OK;
}

core_status core_safetensors_load(const core_safetensors *file,
                                  const char *name, core_device *device,
                                  core_tensor **out_tensor)
{
    const core__safetensors_entry *entry;

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(file);
    CORE__NOT_NULL(name);
    CORE_TRY(find_usable(file, name, &entry));
    return core_tensor_from_data(core__safetensors_data(entry),
                                 entry->tensor->dtype, entry->tensor->sizes,
                                 entry->tensor->ndim, device, out_tensor);
}

static void release_mapping(void *mapping, void *data)
{
    (void)data;
    core__mapping_release(mapping);
}

/* Checks the alignment that the tensor needs to be used in place. */
static core_status check_place(const core__safetensors_entry *entry)
{
    const core__safetensors_header_tensor *tensor = entry->tensor;
    uint64_t size = core_dtype_size(tensor->dtype);
    uint64_t place =
        (uint64_t)(core__safetensors_data(entry) - entry->part->mapping->bytes);

    if (place % size == 0)
        return CORE_OK;
    return core__error(
        CORE_ERROR_UNSUPPORTED,
        "%s: tensor \"%.80s\" of %s begins at byte %llu of the file, but must "
        "be aligned to %llu bytes to be used in place; load it with "
        "core_safetensors_load, which copies it",
        entry->part->path, tensor->name, core_dtype_name(tensor->dtype),
        (unsigned long long)place, (unsigned long long)size);
}

core_status core_safetensors_tensor(const core_safetensors *file,
                                    const char *name, core_tensor **out_tensor)
{
    const core__safetensors_entry *entry;
    const core__safetensors_header_tensor *tensor;

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(file);
    CORE__NOT_NULL(name);
    if (!file->mapped)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: the file was not opened with core_safetensors_map, which is "
            "needed to use its memory",
            file->path);
    CORE_TRY(find_usable(file, name, &entry));
    tensor = entry->tensor;
    if (tensor->begin < tensor->end)
        CORE_TRY(check_place(entry));
    else /* there is no memory to use */
        return core_tensor_from_data("", tensor->dtype, tensor->sizes,
                                     tensor->ndim, file->host, out_tensor);
    return core_tensor_from_memory(
        (void *)(uintptr_t)core__safetensors_data(entry), tensor->dtype,
        tensor->sizes, tensor->ndim, release_mapping,
        core__mapping_retain(entry->part->mapping), out_tensor);
}

core_status core_safetensors_load_into(const core_safetensors *file,
                                       const char *name, core_tensor *into)
{
    const core__safetensors_entry *entry;
    const core__safetensors_header_tensor *tensor;
    bool same;

    CORE__NOT_NULL(file);
    CORE__NOT_NULL(name);
    CORE__NOT_NULL(into);
    CORE_TRY(find_usable(file, name, &entry));
    tensor = entry->tensor;
    if (tensor->dtype != core_tensor_dtype(into))
        return core__error(
            CORE_ERROR_DTYPE,
            "%s: tensor \"%.80s\" is %s, but the destination is %s", file->path,
            name, core_dtype_name(tensor->dtype),
            core_dtype_name(core_tensor_dtype(into)));
    same = tensor->ndim == core_tensor_ndim(into);
    for (uint32_t i = 0; same && i < tensor->ndim; i++)
        same = tensor->sizes[i] == core_tensor_sizes(into)[i];
    if (!same) {
        char has[200], wants[200];

        core__safetensors_header_shape(has, sizeof has, tensor->sizes,
                                       tensor->ndim);
        core__safetensors_header_shape(wants, sizeof wants,
                                       core_tensor_sizes(into),
                                       core_tensor_ndim(into));
        return core__error(
            CORE_ERROR_SHAPE,
            "%s: tensor \"%.80s\" is %s, but the destination is %s", file->path,
            name, has, wants);
    }
    return core_tensor_write(into, core__safetensors_data(entry),
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

    if (file && name && file->text_count)
        text = bsearch(name, file->texts, file->text_count, sizeof *file->texts,
                       compare_text);
    return text ? text->text : NULL;
}

size_t core_safetensors_text_count(const core_safetensors *file)
{
    return file ? file->text_count : 0;
}

core_named_text core_safetensors_text_at(const core_safetensors *file,
                                         size_t index)
{
    const core_named_text none = {NULL, NULL};

    return file && index < file->text_count ? file->texts[index] : none;
}
