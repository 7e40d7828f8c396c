/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reads the IDX format (http://yann.lecun.com/exdb/mnist/): two zero bytes, a
 * byte for the type (8: unsigned bytes), a byte for the number of dimensions,
 * each dimension as four bytes in big-endian order, then the elements. */

#include "train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* Does what gzopen does, but strictly: gzopen accepts a file without its
 * checksum and ignores what follows the compressed data. */
typedef struct idx {
    const char *path;
    FILE *file;
    z_stream stream;
    bool packed;
    bool ended; /* the compressed data, including the checksum */
    unsigned char input[1 << 16];
} idx;

static void idx_close(idx *file)
{
    if (file->packed)
        inflateEnd(&file->stream);
    if (file->file)
        fclose(file->file);
}

/* Reads more input if none is left; leaves none at the end of the file. */
static core_status idx_more(idx *file)
{
    if (file->stream.avail_in > 0)
        return CORE_OK;
    file->stream.next_in = file->input;
    file->stream.avail_in =
        (unsigned)fread(file->input, 1, sizeof file->input, file->file);
    if (ferror(file->file))
        return train_error(CORE_ERROR_IO, "cannot read %s: %s", file->path,
                           strerror(errno));
    return CORE_OK;
}

static core_status idx_open(idx *file, const char *path)
{
    struct stat now;

    file->path = path;
    file->file = NULL;
    file->packed = file->ended = false;
    memset(&file->stream, 0, sizeof file->stream);
    if (stat(path, &now) != 0)
        return train_error(errno == ENOENT ? CORE_ERROR_NOT_FOUND
                                           : CORE_ERROR_IO,
                           "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(now.st_mode))
        return train_error(CORE_ERROR_IO, "cannot read %s: it is not a file",
                           path);
    file->file = fopen(path, "rb");
    if (!file->file)
        return train_error(CORE_ERROR_IO, "cannot read %s: %s", path,
                           strerror(errno));
    CORE_TRY(idx_more(file));
    if (file->stream.avail_in < 2 || file->input[0] != 0x1f ||
        file->input[1] != 0x8b)
        return CORE_OK;
    /* 15 + 16: the largest window, and the gzip format. */
    if (inflateInit2(&file->stream, 15 + 16) != Z_OK)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory to decompress %s", path);
    file->packed = true;
    return CORE_OK;
}

/* Decompresses up to *size bytes and sets *size to the number that is missing
 * at the end of the data.  Compressed streams may follow one another. */
static core_status idx_unpack(idx *file, void *data, size_t *size)
{
    z_stream *stream = &file->stream;

    stream->next_out = data;
    while (*size > 0) {
        unsigned part = *size < 1u << 30 ? (unsigned)*size : 1u << 30;
        int code;

        CORE_TRY(idx_more(file));
        if (stream->avail_in == 0 && file->ended)
            return CORE_OK;
        if (stream->avail_in == 0)
            return train_error(CORE_ERROR_CORRUPT,
                               "%s is truncated: the compressed data end early",
                               file->path);
        if (file->ended)
            inflateReset(stream);
        file->ended = false;
        stream->avail_out = part;
        code = inflate(stream, Z_NO_FLUSH);
        *size -= part - stream->avail_out;
        file->ended = code == Z_STREAM_END;
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return train_error(CORE_ERROR_CORRUPT,
                               "%s is damaged: it cannot be decompressed (%s)",
                               file->path,
                               stream->msg ? stream->msg : zError(code));
    }
    return CORE_OK;
}

static core_status idx_copy(idx *file, char *to, size_t *size)
{
    while (*size > 0) {
        size_t part;

        CORE_TRY(idx_more(file));
        part = file->stream.avail_in;
        if (part == 0)
            return CORE_OK;
        if (part > *size)
            part = *size;
        memcpy(to, file->stream.next_in, part);
        file->stream.next_in += part;
        file->stream.avail_in -= (unsigned)part;
        to += part;
        *size -= part;
    }
    return CORE_OK;
}

/* A short read is an error: the header defines the size. */
static core_status idx_read(idx *file, void *data, size_t size)
{
    CORE_TRY(file->packed ? idx_unpack(file, data, &size)
                          : idx_copy(file, data, &size));
    if (size > 0)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is truncated: %zu bytes are missing", file->path,
                           size);
    return CORE_OK;
}

/* Nothing may follow; this also makes zlib check the final checksum. */
static core_status idx_end(idx *file)
{
    size_t size = 1;
    char byte;

    CORE_TRY(file->packed ? idx_unpack(file, &byte, &size)
                          : idx_copy(file, &byte, &size));
    if (size == 0)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s has more data than its header says", file->path);
    return CORE_OK;
}

static core_status idx_header(idx *file, const char *what, uint32_t ndim,
                              uint32_t *sizes)
{
    uint8_t head[4], size[4];

    CORE_TRY(idx_read(file, head, 4));
    if (head[0] || head[1] || head[2] != 8 || head[3] != ndim)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s is not an IDX file of %s: it begins with %02x "
                           "%02x %02x %02x, not 00 00 08 %02x",
                           file->path, what, head[0], head[1], head[2], head[3],
                           ndim);
    for (uint32_t i = 0; i < ndim; i++) {
        CORE_TRY(idx_read(file, size, 4));
        sizes[i] = (uint32_t)size[0] << 24 | (uint32_t)size[1] << 16 |
                   (uint32_t)size[2] << 8 | size[3];
    }
    /* Far above any such data set: a damaged file must not cause a huge
     * allocation. */
    if (sizes[0] == 0 || sizes[0] > 10000000)
        return train_error(CORE_ERROR_CORRUPT,
                           "%s has %u %s in its header: at least 1 and at most "
                           "10000000 are accepted",
                           file->path, sizes[0], what);
    return CORE_OK;
}

static core_status read_images(const char *path, int64_t *out_count,
                               uint8_t **out_pixels)
{
    idx file;
    uint32_t sizes[3];
    core_status status = idx_open(&file, path);

    if (status == CORE_OK)
        status = idx_header(&file, "images", 3, sizes);
    if (status == CORE_OK && (sizes[1] != 28 || sizes[2] != 28))
        status = train_error(CORE_ERROR_SHAPE,
                             "%s has images of %u x %u, not 28 x 28", path,
                             sizes[1], sizes[2]);
    if (status == CORE_OK) {
        *out_count = sizes[0];
        *out_pixels = malloc((size_t)sizes[0] * TRAIN_PIXELS);
        if (!*out_pixels)
            status = train_error(CORE_ERROR_OUT_OF_MEMORY,
                                 "no memory for the images of %s", path);
    }
    if (status == CORE_OK)
        status = idx_read(&file, *out_pixels, (size_t)sizes[0] * TRAIN_PIXELS);
    if (status == CORE_OK)
        status = idx_end(&file);
    idx_close(&file);
    return status;
}

static core_status check_labels(const char *path, const uint8_t *labels,
                                int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (labels[i] >= TRAIN_CLASSES)
            return train_error(CORE_ERROR_CORRUPT,
                               "%s: label %lld is %u, not 0 to %d", path,
                               (long long)i, labels[i], TRAIN_CLASSES - 1);
    return CORE_OK;
}

static core_status read_labels(const char *path, int64_t *out_count,
                               uint8_t **out_labels)
{
    idx file;
    uint32_t size;
    core_status status = idx_open(&file, path);

    if (status == CORE_OK)
        status = idx_header(&file, "labels", 1, &size);
    if (status == CORE_OK) {
        *out_count = size;
        *out_labels = malloc(size);
        if (!*out_labels)
            status = train_error(CORE_ERROR_OUT_OF_MEMORY,
                                 "no memory for the labels of %s", path);
    }
    if (status == CORE_OK)
        status = idx_read(&file, *out_labels, size);
    if (status == CORE_OK)
        status = idx_end(&file);
    if (status == CORE_OK)
        status = check_labels(path, *out_labels, size);
    idx_close(&file);
    return status;
}

core_status train_images_read(train_images *images, const char *image_path,
                              const char *label_path, int64_t limit)
{
    int64_t labels = 0;
    core_status status;

    *images = (train_images){0, NULL, NULL};
    status = read_images(image_path, &images->count, &images->pixels);
    if (status == CORE_OK)
        status = read_labels(label_path, &labels, &images->labels);
    if (status == CORE_OK && labels != images->count)
        status = train_error(CORE_ERROR_SHAPE,
                             "%s has %lld images, but %s has %lld labels",
                             image_path, (long long)images->count, label_path,
                             (long long)labels);
    if (status != CORE_OK)
        train_images_free(images);
    else if (limit > 0 && images->count > limit)
        images->count = limit;
    return status;
}

void train_images_free(train_images *images)
{
    free(images->pixels);
    free(images->labels);
    *images = (train_images){0, NULL, NULL};
}

/* ------------------------------------------------------------ data sets -- */

static const char *const file_names[4] = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

/* Finds the file in the folder, compressed or not. */
static core_status find_file(const char *folder, const char *name, char *path,
                             size_t size)
{
    struct stat now;

    for (int packed = 1; packed >= 0; packed--) {
        int length =
            snprintf(path, size, "%s/%s%s", folder, name, packed ? ".gz" : "");

        if (length < 0 || (size_t)length >= size)
            return train_error(CORE_ERROR_INVALID_ARGUMENT,
                               "--data: the folder's name is too long");
        if (stat(path, &now) == 0)
            return CORE_OK;
    }
    return train_error(
        CORE_ERROR_NOT_FOUND,
        "data set not found: no %s.gz in %s. Debian's package "
        "dataset-fashion-mnist provides it (apt install "
        "dataset-fashion-mnist); --data DIR names another folder",
        name, folder);
}

core_status train_data_read(const train_options *options, train_images *train,
                            train_images *test)
{
    char found[4][4096];
    const char *paths[4];
    core_status status;

    for (int i = 0; i < 4; i++) {
        paths[i] = options->files[i];
        if (paths[i])
            continue;
        CORE_TRY(
            find_file(options->data, file_names[i], found[i], sizeof found[i]));
        paths[i] = found[i];
    }
    status = train_images_read(train, paths[0], paths[1], options->limit);
    if (status == CORE_OK)
        status = train_images_read(test, paths[2], paths[3], options->limit);
    return status;
}
