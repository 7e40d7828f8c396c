/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* safetensors.h: named tensors and texts in a file.
 *
 * The format is that of https://github.com/huggingface/safetensors: eight
 * bytes with the length of a JSON header, the header (name, dtype, shape and
 * place of each tensor; texts under "__metadata__"), then the elements,
 * row-major and little endian, without gaps.
 *
 * A file is written beside its name and then renamed, so that under the name
 * there is the old content or the whole new one, never a part.  A file that is
 * read is checked in full before anything of it is used: what does not fit is
 * CORRUPT, and the message says what and where.
 *
 * Any thread may call the functions here; one open file may be read by several
 * threads. */

#ifndef LIBCORE_SAFETENSORS_H
#define LIBCORE_SAFETENSORS_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- writing -- */

typedef struct core_named_tensor {
    const char *name;
    core_tensor *tensor;
} core_named_tensor;

typedef struct core_named_text {
    const char *name;
    const char *text; /* UTF-8, as is name */
} core_named_text;

/* Writes path, replacing what was there.  Tensors of any device, layout and
 * number of dimensions; dtypes f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool.  Names
 * are unique, and none is "__metadata__".  IO: the message has the system's
 * reason, and a file that was there is as it was. */
core_status core_safetensors_save(const char *path,
                                  const core_named_tensor *tensors,
                                  size_t tensor_count,
                                  const core_named_text *texts,
                                  size_t text_count);

/* Whether core_safetensors_save could write there, as far as can be told
 * without doing it: for programs that work long before they save. */
core_status core_safetensors_check_path(const char *path);

/* ------------------------------------------------------------- reading -- */

typedef struct core_safetensors core_safetensors;

/* A tensor in an open file; pointers live as long as that. */
typedef struct core_safetensors_entry {
    uint32_t struct_size; /* in: the caller's; out: what was filled */
    core_dtype dtype;     /* NONE: one that libcore does not have */
    const char *name;
    const char *dtype_name; /* as the file has it, "BF16" */
    const int64_t *sizes;
    const void *data; /* row-major; aligned to 1 byte only */
    uint64_t size;    /* of data, in bytes */
    uint32_t ndim;
    uint32_t reserved;
} core_safetensors_entry;
CORE_STATIC_ASSERT(sizeof(core_safetensors_entry) == 56,
                   "core_safetensors_entry");

/* The file is mapped, not copied: it must not be shortened while it is open
 * (replacing it, as core_safetensors_save does, is fine).
 *
 * A path that ends in ".json" is an index of shards, as it comes with large
 * models (model.safetensors.index.json): an object with a "weight_map" from
 * names of tensors to files in the index's folder.  All shards are opened and
 * checked, and the functions below find the index's tensors whichever file they
 * are in; what a shard has beyond them is left out.  Texts are those of the
 * index's "metadata".  NOT_FOUND: a shard is missing; CORRUPT: a tensor is not
 * in its shard, or the name of a shard leads out of the folder ("../x", "/x").
 */
core_status core_safetensors_open(const char *path,
                                  core_safetensors **out_file);
/* The same, to use tensors in place: core_safetensors_tensor below. */
core_status core_safetensors_map(const char *path, core_safetensors **out_file);
/* Takes NULL. */
void core_safetensors_close(core_safetensors *file);

size_t core_safetensors_count(const core_safetensors *file);
/* In the order of their data, shard by shard; INDEX behind the last. */
core_status core_safetensors_describe(const core_safetensors *file,
                                      size_t index,
                                      core_safetensors_entry *out_entry);
bool core_safetensors_has(const core_safetensors *file, const char *name);
/* A new tensor with the content; device NULL: the default one.  NOT_FOUND: no
 * such name; UNSUPPORTED: a dtype that libcore does not have. */
core_status core_safetensors_load(const core_safetensors *file,
                                  const char *name, core_device *device,
                                  core_tensor **out_tensor);
/* A tensor on the cpu whose memory is the file's pages, read when they are first
 * touched: nothing is copied.  The file must have been opened with
 * core_safetensors_map (else INVALID_ARGUMENT); it may be closed before the
 * tensor, the pages stay until the last tensor on them is gone.  The tensor may
 * be changed in place: pages that are written to become this process's own, and
 * neither the file nor others who mapped it see that.  Two calls for one name
 * give tensors on the same memory, with version counters of their own.
 *
 * UNSUPPORTED: the data do not begin at a multiple of the element's size, as the
 * format allows and core_safetensors_save never writes; the message names the
 * tensor and both numbers, and core_safetensors_load works.  For a device with
 * memory of its own load too is the way.
 *
 * What others do to the file: to replace it is fine.  What they write into it
 * may or may not be seen.  If they shorten it, touching what is gone ends the
 * process by SIGBUS, as with every mapped file; libcore cannot prevent that. */
core_status core_safetensors_tensor(const core_safetensors *file,
                                    const char *name, core_tensor **out_tensor);
/* Copies the content into a tensor of the same sizes and dtype, in place;
 * SHAPE or DTYPE if it has others. */
core_status core_safetensors_load_into(const core_safetensors *file,
                                       const char *name, core_tensor *tensor);

/* A text of the file, NULL if it has none of that name. */
const char *core_safetensors_text(const core_safetensors *file,
                                  const char *name);
size_t core_safetensors_text_count(const core_safetensors *file);
/* NULL, NULL behind the last. */
core_named_text core_safetensors_text_at(const core_safetensors *file,
                                         size_t index);

#ifdef __cplusplus
}
#endif
#endif
