/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The state of modules: lists of tensors, files, conversion. */

#include "nn/module.h"

#include "base/error.h"
#include "base/growing_text.h"
#include "base/memory.h"

#include <libcore/ops.h>
#include <libcore/safetensors.h>

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- lists -- */

/* A list that is being made; the first pass only counts. */
typedef struct listing {
    const char *prefix;
    uint32_t flags;
    core_module_tensors *out;
    size_t count, bytes; /* tensors, and their names */
    char *names;         /* where the next name goes */
    char path[512];
} listing;

static CORE__ONCE bool is_listed(const listing *l, core_tensor *tensor)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->out->tensors[i] == tensor)
            return true;
    return false;
}

static CORE__ONCE void list_tensor(listing *l, const core__member *m)
{
    uint32_t kind = m->kind == CORE__MEMBER_PARAMETER ? CORE_MODULE_PARAMETERS
                                                      : CORE_MODULE_BUFFERS;
    size_t size = strlen(l->path) + 1;

    if (!(l->flags & kind) ||
        strncmp(l->path, l->prefix, strlen(l->prefix)) != 0)
        return;
    if (l->names) {
        if (l->flags & CORE_MODULE_ONCE && is_listed(l, m->u.tensor))
            return;
        memcpy(l->names, l->path, size);
        core_tensor_retain(m->u.tensor);
        l->out->tensors[l->count] = m->u.tensor;
        l->out->names[l->count] = l->names;
        l->names += size;
    }
    l->count++;
    l->bytes += size;
}

static CORE__ONCE core_status list_members(listing *l,
                                           const core_module *module)
{
    size_t at = strlen(l->path);

    for (size_t i = 0; i < module->count; i++) {
        const core__member *m = &module->members[i];

        if (at + strlen(m->name) + 2 > sizeof l->path)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_module_list: the path of \"%s\" has more "
                               "than %zu bytes",
                               m->name, sizeof l->path - 2);
        strcpy(l->path + at, m->name);
        if (m->kind == CORE__MEMBER_CHILD) {
            strcat(l->path, ".");
            CORE_TRY(list_members(l, m->u.child));
        } else {
            list_tensor(l, m);
        }
        l->path[at] = '\0';
    }
    return CORE_OK;
}

CORE__ONCE core_status core_module_list(const core_module *module,
                                        const char *prefix, uint32_t flags,
                                        core_module_tensors *out_list)
{
    listing l = {
        .prefix = prefix ? prefix : "", .flags = flags, .out = out_list};
    size_t n;

    CORE__NOT_NULL(out_list);
    *out_list = (core_module_tensors){0};
    CORE__NOT_NULL(module);
    if (flags & ~(uint32_t)(CORE_MODULE_STATE | CORE_MODULE_ONCE))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: flags has unknown bits, 0x%x", __func__, flags);
    CORE_TRY(list_members(&l, module));
    n = l.count;
    out_list->tensors = core__alloc(2 * n * sizeof(void *) + l.bytes + 1);
    if (!out_list->tensors)
        return core__error_memory(2 * n * sizeof(void *) + l.bytes);
    out_list->names = (const char **)(void *)(out_list->tensors + n);
    l.names = (char *)(out_list->names + n);
    l.count = 0;
    (void)list_members(&l, module);
    out_list->count = l.count;
    return CORE_OK;
}

void core_module_tensors_free(core_module_tensors *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->count; i++)
        core_tensor_release(list->tensors[i]);
    core__free(list->tensors);
    *list = (core_module_tensors){0};
}

/* ---------------------------------------------------------------- files -- */

CORE__ONCE core_status core_module_save(const core_module *module,
                                        const char *path)
{
    core_module_tensors list;
    core_named_tensor *named;
    core_status status;

    CORE__NOT_NULL(path);
    CORE_TRY(core_module_list(module, NULL, CORE_MODULE_STATE, &list));
    named = core__alloc(list.count * sizeof *named + 1);
    status = named ? CORE_OK : core__error_memory(list.count * sizeof *named);
    for (size_t i = 0; status == CORE_OK && i < list.count; i++)
        named[i] = (core_named_tensor){list.names[i], list.tensors[i]};
    if (status == CORE_OK)
        status = core_safetensors_save(path, named, list.count, NULL, 0);
    core__free(named);
    core_module_tensors_free(&list);
    return status;
}

/* A file that is read into a module. */
typedef struct loading {
    core_safetensors *file;
    const char *file_name;
    core_module_tensors list;
    const char *prefix;
    uint32_t flags;
    uint32_t
        refused;    /* names that are missing or unexpected, but must not be */
    uint32_t shown; /* as many of them are in `text` */
    core_module_report report;
    char text[256]; /* the first names that are missing or unexpected */
    core__growing_text names; /* all of them, each with its NUL, on request */
    char name[768];
} loading;

/* A name that is missing or unexpected; `allowed`: the flag that permits it. */
static CORE__ONCE core_status note(loading *l, const char *what,
                                   const char *name, uint32_t allowed)
{
    size_t at = strlen(l->text), size = strlen(name) + 1;

    if (l->flags & CORE_MODULE_NAMES &&
        !core__growing_text_append(&l->names, name, size))
        return core__error_memory(size);
    if (l->flags & allowed)
        return CORE_OK;
    l->refused++;
    if (at + size + strlen(what) + 7 < sizeof l->text) {
        snprintf(l->text + at, sizeof l->text - at, "%s%s %s", at ? ", " : "",
                 what, name);
        l->shown++;
    }
    return CORE_OK;
}

/* One block with the pointers and what they point to. */
static CORE__ONCE core_status names_reported(const loading *l,
                                             core_module_report *report)
{
    size_t count = (size_t)report->missing + report->unexpected;
    const char **names;
    char *name;

    if (!l->names.data)
        return CORE_OK;
    names = core__alloc(count * sizeof *names + l->names.size);
    if (!names)
        return core__error_memory(count * sizeof *names + l->names.size);
    name = memcpy(names + count, l->names.data, l->names.size);
    for (size_t i = 0; i < count; i++) {
        names[i] = name;
        name += strlen(name) + 1;
    }
    report->names = names;
    return CORE_OK;
}

/* The name in the file of a tensor of the list. */
static CORE__ONCE core_status name_in_file(loading *l, size_t i)
{
    int n =
        snprintf(l->name, sizeof l->name, "%s%s", l->prefix, l->list.names[i]);

    if (n >= 0 && (size_t)n < sizeof l->name)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_module_load: the prefix has more than 255 bytes");
}

static CORE__ONCE core_status check_entry(const loading *l, size_t i,
                                          const core_safetensors_entry *entry)
{
    const core_tensor *tensor = l->list.tensors[i];
    char own[128], other[128];

    if (entry->ndim != core_tensor_ndim(tensor) ||
        memcmp(entry->sizes, core_tensor_sizes(tensor),
               core_tensor_ndim(tensor) * sizeof *core_tensor_sizes(tensor)) !=
            0)
        return core__error(
            CORE_ERROR_SHAPE,
            "core_module_load: \"%s\" has sizes %s in the file and %s in the "
            "module",
            entry->name,
            core__sizes_text(entry->ndim, entry->sizes, other, sizeof other),
            core__sizes_text(core_tensor_ndim(tensor),
                             core_tensor_sizes(tensor), own, sizeof own));
    if (entry->dtype != core_tensor_dtype(tensor) &&
        !(entry->dtype != CORE_DTYPE_NONE &&
          core_dtype_is_floating(entry->dtype) &&
          core_dtype_is_floating(core_tensor_dtype(tensor))))
        return core__error(CORE_ERROR_DTYPE,
                           "core_module_load: \"%s\" is %s in the file and %s "
                           "in the module",
                           entry->name, entry->dtype_name,
                           core_dtype_name(core_tensor_dtype(tensor)));
    return CORE_OK;
}

/* Whether a name of the file is one of the module. */
static CORE__ONCE bool is_wanted(const loading *l, const char *name)
{
    for (size_t i = 0; i < l->list.count; i++)
        if (strcmp(l->list.names[i], name) == 0)
            return true;
    return false;
}

/* Visits each tensor of the file with the prefix whose name the module lacks. */
static CORE__ONCE core_status visit_unexpected(
    loading *l, core_module *module,
    core_status (*visit)(loading *l, core_module *module, const char *name))
{
    size_t skip = strlen(l->prefix);

    for (size_t i = 0; i < core_safetensors_count(l->file); i++) {
        core_safetensors_entry entry = {.struct_size = sizeof entry};

        CORE_TRY(core_safetensors_describe(l->file, i, &entry));
        if (strncmp(entry.name, l->prefix, skip) == 0 &&
            !is_wanted(l, entry.name + skip))
            CORE_TRY(visit(l, module, entry.name));
    }
    return CORE_OK;
}

static CORE__ONCE core_status note_unexpected(loading *l, core_module *module,
                                              const char *name)
{
    (void)module;
    CORE_TRY(note(l, "unexpected", name, CORE_MODULE_ALLOW_UNEXPECTED));
    l->report.unexpected++;
    return CORE_OK;
}

/* Checks all names, sizes and dtypes. */
static CORE__ONCE core_status check_file(loading *l)
{
    char more[32] = "";

    for (size_t i = 0; i < l->list.count; i++) {
        CORE_TRY(name_in_file(l, i));
        if (core_safetensors_has(l->file, l->name))
            continue;
        CORE_TRY(note(l, "missing", l->name, CORE_MODULE_ALLOW_MISSING));
        l->report.missing++;
    }
    if (!(l->flags & CORE_MODULE_ADD))
        CORE_TRY(visit_unexpected(l, NULL, note_unexpected));
    if (l->refused > l->shown)
        snprintf(more, sizeof more, "%s%u more", l->shown ? " and " : "",
                 l->refused - l->shown);
    if (l->refused)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "core_module_load: %u names are missing and %u "
                           "unexpected: %s%s",
                           l->report.missing, l->report.unexpected, l->text,
                           more);
    for (size_t k = 0; k < core_safetensors_count(l->file); k++) {
        core_safetensors_entry entry = {.struct_size = sizeof entry};

        CORE_TRY(core_safetensors_describe(l->file, k, &entry));
        for (size_t i = 0; i < l->list.count; i++) {
            CORE_TRY(name_in_file(l, i));
            if (strcmp(l->name, entry.name) == 0)
                CORE_TRY(check_entry(l, i, &entry));
        }
    }
    return CORE_OK;
}

/* Converts what has another dtype in the file; sizes were checked. */
static CORE__ONCE core_status read_one(loading *l, core_tensor *tensor)
{
    core_tensor *content = NULL;
    bool before;
    core_status status = core_safetensors_load_into(l->file, l->name, tensor);

    if (status != CORE_ERROR_DTYPE)
        return status;
    status = core_safetensors_load(l->file, l->name, core_tensor_device(tensor),
                                   &content);
    before = core_grad_mode_set(false);
    if (status == CORE_OK)
        status = core_copy_(tensor, content, false);
    core_grad_mode_set(before);
    core_tensor_release(content);
    return status;
}

/* --------------------------------------------------------------- origins -- */

static CORE__ONCE bool is_origin(const loading *l, const char *origin,
                                 const char *path, size_t size)
{
    size_t file = strlen(l->file_name), prefix = strlen(l->prefix);

    return strncmp(origin, l->file_name, file) == 0 &&
           strncmp(origin + file, ": ", 2) == 0 &&
           strncmp(origin + file + 2, l->prefix, prefix) == 0 &&
           strncmp(origin + file + 2 + prefix, path, size) == 0 &&
           origin[file + 2 + prefix + size] == '\0';
}

/* Notes in a module, at the first `size` bytes of a path, that it gets content of
 * the file.  Tensors that it has already do not make it a module of the file, but
 * may make it one of several. */
static CORE__ONCE core_status note_origin(const loading *l, core_module *module,
                                          const char *path, size_t size,
                                          bool adds)
{
    size_t length = strlen(l->file_name) + strlen(l->prefix) + size + 3;

    if (module->origin && !is_origin(l, module->origin, path, size)) {
        core__free(module->origin);
        module->origin = NULL;
        module->has_several_origins = true;
    }
    if (!adds || module->origin || module->has_several_origins)
        return CORE_OK;
    module->origin = core__alloc(length);
    if (!module->origin)
        return core__error_memory(length);
    snprintf(module->origin, length, "%s: %s%.*s", l->file_name, l->prefix,
             (int)size, path);
    return CORE_OK;
}

/* The same for all modules on the way to a tensor. */
static CORE__ONCE core_status note_origins(const loading *l,
                                           core_module *module,
                                           const char *path, bool adds)
{
    const char *name = path, *dot;

    CORE_TRY(note_origin(l, module, path, 0, adds));
    for (; (dot = strchr(name, '.')); name = dot + 1) {
        module =
            core__module_member(module, name, (size_t)(dot - name))->u.child;
        CORE_TRY(note_origin(l, module, path, (size_t)(dot + 1 - path), adds));
    }
    return CORE_OK;
}

/* Adds a tensor of the file, whose name the module lacks, as a buffer. */
static CORE__ONCE core_status add_one(loading *l, core_module *module,
                                      const char *name)
{
    const char *whole = name + strlen(l->prefix), *path = whole;
    core_module *parent = module;
    core_tensor *tensor = NULL;
    core_status status;

    CORE_TRY(core_safetensors_load(l->file, name, NULL, &tensor));
    status = core__module_walk(&parent, &path, false);
    if (status == CORE_OK)
        status = core_module_add_buffer(parent, path, tensor);
    if (status == CORE_OK) {
        parent->members[parent->count - 1].from_file = true;
        status = note_origins(l, module, whole, true);
    }
    core_tensor_release(tensor);
    l->report.loaded += status == CORE_OK;
    return status;
}

static CORE__ONCE core_status load_all(loading *l, core_module *module)
{
    CORE_TRY(check_file(l));
    for (size_t i = 0; i < l->list.count; i++) {
        CORE_TRY(name_in_file(l, i));
        if (!core_safetensors_has(l->file, l->name))
            continue;
        CORE_TRY(note_origins(l, module, l->list.names[i], false));
        CORE_TRY(read_one(l, l->list.tensors[i]));
        l->report.loaded++;
    }
    if (!(l->flags & CORE_MODULE_ADD))
        return CORE_OK;
    CORE_TRY(visit_unexpected(l, module, add_one));
    return note_origin(l, module, "", 0, true);
}

/* A report without the field `names` is that of an earlier version. */
static CORE__ONCE core_status check_report(const core_module_report *report,
                                           uint32_t flags)
{
    const char *const function = "core_module_load";
    size_t needed = flags & CORE_MODULE_NAMES
                        ? sizeof *report
                        : offsetof(core_module_report, names);

    if (flags &
        ~(uint32_t)(CORE_MODULE_ALLOW_MISSING | CORE_MODULE_ALLOW_UNEXPECTED |
                    CORE_MODULE_NAMES | CORE_MODULE_ADD))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: flags has unknown bits, 0x%x", function, flags);
    if (!report)
        return flags & CORE_MODULE_NAMES
                   ? core__error_null(function, "out_report")
                   : CORE_OK;
    return report->struct_size < needed
               ? core__error_struct_size(function, "core_module_report",
                                         report->struct_size, needed)
               : CORE_OK;
}

static CORE__ONCE core_status report_to(const loading *l,
                                        core_module_report *out)
{
    uint32_t size = out->struct_size;

    memcpy(out, &l->report, offsetof(core_module_report, names));
    out->struct_size = size;
    if (size < sizeof *out)
        return CORE_OK;
    out->names = NULL;
    return names_reported(l, out);
}

/* Whether an error of the file is named as core/safetensors and core/io do. */
static CORE__ONCE bool names_file(const char *message, const char *path)
{
    size_t size = strlen(path);

    if (strncmp(message, "cannot read ", 12) == 0)
        message += 12;
    else if (strncmp(message, "cannot map ", 11) == 0)
        message += 11;
    return size == 0 || (strncmp(message, path, size) == 0 &&
                         (message[size] == ':' || message[size] == ' '));
}

CORE__ONCE core_status core_module_load(core_module *module, const char *path,
                                        const char *prefix, uint32_t flags,
                                        core_module_report *out_report)
{
    loading l = {
        .file_name = path, .prefix = prefix ? prefix : "", .flags = flags};
    core_status status, reported = CORE_OK;

    if (out_report && out_report->struct_size >= sizeof *out_report)
        out_report->names = NULL;
    CORE__NOT_NULL(module);
    CORE__NOT_NULL(path);
    CORE_TRY(check_report(out_report, flags));
    CORE_TRY(core_module_list(module, NULL, CORE_MODULE_STATE, &l.list));
    status = core_safetensors_open(path, &l.file);
    if (status == CORE_OK)
        status = load_all(&l, module);
    if (status != CORE_OK && !names_file(core_error_message(), path))
        core__error_suffix(" (in %s)", path);
    core_safetensors_close(l.file);
    core_module_tensors_free(&l.list);
    if (out_report)
        reported = report_to(&l, out_report);
    core__free(l.names.data);
    return reported != CORE_OK ? reported : status;
}

void core_module_report_free(core_module_report *report)
{
    if (!report || report->struct_size < sizeof *report)
        return;
    core__free(report->names);
    report->names = NULL;
}

/* ------------------------------------------------------------ conversion -- */

static CORE__ONCE core_status converted(core_tensor *tensor, core_dtype dtype,
                                        core_device *device, core_tensor **out)
{
    bool floating = core_dtype_is_floating(core_tensor_dtype(tensor));

    CORE_TRY(core_to(tensor, floating ? dtype : CORE_DTYPE_NONE, device, false,
                     false, -1, out));
    if (*out == tensor || !core_tensor_requires_grad(tensor))
        return CORE_OK;
    return core_tensor_set_requires_grad(*out, true);
}

/* Puts made[i] in the place of each tensor of the list. */
static CORE__ONCE void replace(core_module *module,
                               const core_module_tensors *list,
                               core_tensor *const *made)
{
    for (size_t i = 0; i < module->count; i++) {
        core__member *m = &module->members[i];
        size_t at = 0;

        if (m->kind == CORE__MEMBER_CHILD) {
            replace(m->u.child, list, made);
            continue;
        }
        while (at < list->count && list->tensors[at] != m->u.tensor)
            at++;
        if (at == list->count)
            continue; /* a module with two parents */
        core_tensor_retain(made[at]);
        core_tensor_release(m->u.tensor);
        m->u.tensor = made[at];
    }
}

/* All are converted before one takes the place of another. */
CORE__ONCE core_status core_module_to(core_module *module, core_dtype dtype,
                                      core_device *device)
{
    core_module_tensors list;
    core_tensor **made;
    core_status status;
    bool before;

    CORE__NOT_NULL(module);
    if (dtype != CORE_DTYPE_NONE && !core_dtype_is_floating(dtype))
        return core__error(CORE_ERROR_DTYPE,
                           "%s: dtype is %s; it must be floating", __func__,
                           core_dtype_name(dtype));
    CORE_TRY(core_module_list(module, NULL,
                              CORE_MODULE_STATE | CORE_MODULE_ONCE, &list));
    made = core__alloc_zero(list.count * sizeof(core_tensor *) + 1);
    status =
        made ? CORE_OK : core__error_memory(list.count * sizeof(core_tensor *));
    before = core_grad_mode_set(false);
    for (size_t i = 0; status == CORE_OK && i < list.count; i++)
        status = converted(list.tensors[i], dtype, device, &made[i]);
    core_grad_mode_set(before);
    if (status == CORE_OK)
        replace(module, &list, made);
    for (size_t i = 0; made && i < list.count; i++)
        core_tensor_release(made[i]);
    core__free(made);
    core_module_tensors_free(&list);
    return status;
}
