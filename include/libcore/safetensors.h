/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* safetensors.h: files of named tensors and texts.
 *
 * The format is that of https://github.com/huggingface/safetensors: the length
 * of a JSON header in eight bytes; the header (name, dtype, shape and position
 * of each tensor; texts under "__metadata__"); then the elements, row-major,
 * little endian and dense.
 *
 * A file is written atomically: under its name there is either the old content
 * or the complete new content.  A file that is read is checked completely
 * before it is used; CORRUPT if it is malformed, with a message that says what
 * is wrong and where.
 *
 * Every function here is thread-safe, and several threads may read one open
 * file at once. */

#ifndef LIBCORE_SAFETENSORS_H
#define LIBCORE_SAFETENSORS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- writing -- */

/* A tensor with its name.  Borrowed. */
typedef struct core_named_tensor {
    const char *name;
    core_tensor *tensor;
} core_named_tensor;

/* A text with its name, both in UTF-8.  Borrowed. */
typedef struct core_named_text {
    const char *name;
    const char *text;
} core_named_text;

/* Writes tensors and texts to a file, which replaces an existing one.  Tensors
 * may have any device, layout, number of dimensions and dtype.  Names must be
 * unique and other than "__metadata__".  Waits for the devices.  IO: the
 * message contains the system's reason; an existing file is unchanged. */
core_status core_safetensors_save(const char *path,
                                  const core_named_tensor *tensors,
                                  size_t tensor_count,
                                  const core_named_text *texts,
                                  size_t text_count);

/* Checks whether core_safetensors_save could write to a path, as far as
 * possible without doing so, for programs that compute for a long time before
 * they save.  Returns the error that saving would return. */
core_status core_safetensors_check_path(const char *path);

/* ------------------------------------------------------------- reading -- */

/* An open file. */
typedef struct core_safetensors core_safetensors;

/* A tensor in an open file.  The pointers are valid until the file is
 * closed. */
typedef struct core_safetensors_entry {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    core_dtype dtype;     /* NONE: libcore does not support it */
    const char *name;
    const char *dtype_name; /* as in the file, "BF16" */
    const int64_t *sizes;
    const void *data; /* row-major; not aligned */
    uint64_t size;    /* of data, in bytes */
    uint32_t ndim;
    uint32_t reserved;
} core_safetensors_entry;
CORE_STATIC_ASSERT(sizeof(core_safetensors_entry) == 56,
                   "core_safetensors_entry");

/* Opens a file and checks it.  The caller closes it with
 * core_safetensors_close.  The file is mapped, not copied: it must not be
 * truncated while it is open.  It may be replaced, as core_safetensors_save
 * does.
 *
 * A path that ends in ".json" is an index of shards, as large models have
 * (model.safetensors.index.json): an object with a "weight_map" from names of
 * tensors to files in the directory of the index.  All shards are opened and
 * checked.  The functions below find the tensors of the index in all shards;
 * other tensors in the shards are ignored.  The texts are those of the index's
 * "metadata".  NOT_FOUND: a shard is missing.  CORRUPT: a tensor is not in its
 * shard, or the name of a shard is outside the directory ("../x", "/x"). */
core_status core_safetensors_open(const char *path,
                                  core_safetensors **out_file);

/* Opens a file like core_safetensors_open, so that core_safetensors_tensor can
 * use its memory. */
core_status core_safetensors_map(const char *path, core_safetensors **out_file);

/* Closes a file.  Accepts NULL. */
void core_safetensors_close(core_safetensors *file);

/* Returns the number of tensors in a file; 0 for NULL. */
size_t core_safetensors_count(const core_safetensors *file);

/* Describes a tensor in a file.  index counts from 0 in the order of the data,
 * shard by shard.  The caller sets out_entry->struct_size.  INDEX after the
 * last tensor. */
core_status core_safetensors_describe(const core_safetensors *file,
                                      size_t index,
                                      core_safetensors_entry *out_entry);

/* Returns whether a file contains a tensor of a name; false for NULL. */
bool core_safetensors_has(const core_safetensors *file, const char *name);

/* Creates a tensor with a copy of the content.  The caller owns one reference.
 * device NULL: the default device.  NOT_FOUND: no tensor has the name.
 * UNSUPPORTED: libcore does not have the dtype. */
core_status core_safetensors_load(const core_safetensors *file,
                                  const char *name, core_device *device,
                                  core_tensor **out_tensor);

/* Creates a tensor on "cpu" whose memory is the mapped file, without a copy:
 * pages are read when they are first accessed.  The caller owns one reference.
 * The file must be open from core_safetensors_map.  It may be closed before the
 * tensor is released; the mapping stays until the last tensor on it is gone.
 * The tensor may be changed in place: pages that are written become private to
 * the process, and the file does not change.  Two tensors of one name share
 * memory, but have separate version counters.
 *
 * INVALID_ARGUMENT: the file is open from core_safetensors_open.  NOT_FOUND: no
 * tensor has the name.  UNSUPPORTED: libcore does not have the dtype, or the
 * data are not aligned to the element size, which the format allows but
 * core_safetensors_save never writes; use core_safetensors_load then, and for
 * other devices.
 *
 * Other processes may replace the file.  If they write into it, the tensor may
 * or may not change.  If they truncate it, access to the missing pages ends the
 * process with SIGBUS, as for every mapped file; libcore cannot prevent
 * that. */
core_status core_safetensors_tensor(const core_safetensors *file,
                                    const char *name, core_tensor **out_tensor);

/* Copies the content to a tensor of the same sizes and dtype, in place and not
 * recorded by autograd.  SHAPE or DTYPE if they differ. */
core_status core_safetensors_load_into(const core_safetensors *file,
                                       const char *name, core_tensor *tensor);

/* Returns a text of a file by name, borrowed until the file is closed, or NULL
 * if there is none, or for NULL. */
const char *core_safetensors_text(const core_safetensors *file,
                                  const char *name);

/* Returns the number of texts in a file; 0 for NULL. */
size_t core_safetensors_text_count(const core_safetensors *file);

/* Returns a text with its name, borrowed until the file is closed.  index
 * counts from 0.  Both are NULL after the last text, and for the file NULL. */
core_named_text core_safetensors_text_at(const core_safetensors *file,
                                         size_t index);

#ifdef __cplusplus
}
#endif
#endif
