/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Which layers there are, and what each does before and after a call. */

#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "interpose/interposer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[LAYER_KINDS] = {
    "open",        "alloc",   "copy",   "fill",     "stream",    "event",
    "synchronize", "prepare", "launch", "function", "interface", "host",
};

/* What an injected failure answers. */
static const core_status kind_codes[LAYER_KINDS] = {
    [LAYER_OPEN] = CORE_ERROR_NO_DEVICE,
    [LAYER_ALLOC] = CORE_ERROR_OUT_OF_MEMORY,
    [LAYER_COPY] = CORE_ERROR_INTERNAL,
    [LAYER_FILL] = CORE_ERROR_INTERNAL,
    [LAYER_STREAM] = CORE_ERROR_OUT_OF_MEMORY,
    [LAYER_EVENT] = CORE_ERROR_OUT_OF_MEMORY,
    [LAYER_SYNCHRONIZE] = CORE_ERROR_STREAM,
    [LAYER_PREPARE] = CORE_ERROR_OUT_OF_MEMORY,
    [LAYER_LAUNCH] = CORE_ERROR_INTERNAL,
    [LAYER_FUNCTION] = CORE_ERROR_INTERNAL,
    [LAYER_INTERFACE] = CORE_ERROR_INTERNAL,
    [LAYER_HOST] = CORE_ERROR_OUT_OF_MEMORY,
};

/* -------------------------------------------------------------- settings -- */

static bool next_word(const char **list, const char **word, size_t *size)
{
    *list += strspn(*list, ", ");
    *word = *list;
    *size = strcspn(*list, ", ");
    *list += *size;
    return *size > 0;
}

static core_status read_layers(const char *list, uint32_t *out_on)
{
    static const char *const names[] = {"validate", "trace", "fault"};
    const char *word;
    size_t size;

    *out_on = 0;
    while (list && next_word(&list, &word, &size)) {
        uint32_t found = 0;

        for (uint32_t i = 0; i < 3; i++)
            if (strlen(names[i]) == size && memcmp(names[i], word, size) == 0)
                found = 1u << i;
        if (!found)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "LIBCORE_LAYERS has the word \"%.*s\"; it takes "
                               "validate, trace and fault",
                               (int)(size < 40 ? size : 40), word);
        *out_on |= found;
    }
    return CORE_OK;
}

/* "alloc:3" or "alloc:3+". */
static bool read_fault(core__layers *layers, const char *word, size_t size)
{
    const char *colon = memchr(word, ':', size), *at;
    uint64_t nth = 0;
    uint32_t kind = 0;

    if (!colon)
        return false;
    while (kind < LAYER_KINDS &&
           (strlen(kind_names[kind]) != (size_t)(colon - word) ||
            memcmp(kind_names[kind], word, (size_t)(colon - word)) != 0))
        kind++;
    for (at = colon + 1; at < word + size && *at >= '0' && *at <= '9'; at++)
        if (nth < 1000000000)
            nth = nth * 10 + (uint64_t)(*at - '0');
    if (kind == LAYER_KINDS || nth == 0)
        return false;
    layers->faults[kind].nth = nth;
    layers->faults[kind].all = at < word + size && *at == '+';
    return at + layers->faults[kind].all == word + size;
}

static core_status read_faults(core__layers *layers, const char *list)
{
    const char *word;
    size_t size;

    while (list && next_word(&list, &word, &size))
        if (!read_fault(layers, word, size))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "LIBCORE_FAULT has \"%.*s\"; it takes KIND:N or "
                               "KIND:N+ with a KIND among open, alloc, copy, "
                               "fill, stream, event, synchronize, prepare, "
                               "launch, function, interface and host",
                               (int)(size < 40 ? size : 40), word);
    return CORE_OK;
}

core_status core__layers_check(const char *text)
{
    uint32_t on;

    return read_layers(text, &on);
}

core_status core__faults_check(const char *text)
{
    core__layers none;

    return read_faults(&none, text);
}

core_status core__layers_begin(const char *plugin, core__layers **out_layers)
{
    core__layers *layers;
    const char *names, *faults = NULL;
    core_status status;
    uint32_t on;

    *out_layers = NULL;
    CORE_TRY(core__setting_text(CORE__SETTING_LAYERS, &names));
    CORE_TRY(read_layers(names, &on));
    if (on == 0)
        return CORE_OK;
    layers = core__alloc_zero(sizeof *layers);
    if (!layers)
        return core__error_memory(sizeof *layers);
    layers->on = on;
    snprintf(layers->plugin, sizeof layers->plugin, "%s", plugin);
    status = core__setting_text(CORE__SETTING_FAULT, &faults);
    if (status == CORE_OK && on & LAYER_FAULT)
        status = read_faults(layers, faults);
    if (status != CORE_OK) {
        core__free(layers);
        return status;
    }
    pthread_mutex_init(&layers->lock, NULL);
    atomic_init(&layers->lock_mark, core__fork_mark);
    *out_layers = layers;
    return CORE_OK;
}

#define FREE_LIST(type, list)       \
    while (list) {                  \
        type *next_ = (list)->next; \
        core__free(list);           \
        list = next_;               \
    }

/* Running calls may still hold a kernel's wrapper: it goes when none can. */
void core__layers_end(core__layers *layers)
{
    if (!layers)
        return;
    layer_objects_free(layers);
    layer_callbacks_free(layers);
    for (layer_kernel *k = layers->kernels, *next; k; k = next) {
        next = k->next;
        core__reclaim(&k->retired, k);
    }
    for (layer_function *f = layers->functions, *next; f; f = next) {
        next = f->next;
        core__reclaim(&f->retired, f);
    }
    FREE_LIST(layer_device, layers->devices)
    for (layer_backend *b = layers->backends, *next; b; b = next) {
        next = b->next;
        core__reclaim(&b->retired, b);
    }
    layers->ended = true;
    layers->backends = NULL;
    layers->kernels = NULL;
    layers->functions = NULL;
    if (!layers->lasting)
        core__reclaim(&layers->retired, layers);
}

uint64_t core__layers_breaches(core__layers *layers, const char **out_first)
{
    uint64_t count;

    *out_first = "";
    if (!layers)
        return 0;
    layer_lock(layers);
    count = layers->breaches;
    *out_first = layers->first;
    pthread_mutex_unlock(&layers->lock);
    return count;
}

/* ----------------------------------------------------------------- calls -- */

/* Rounding, masks and the flushing of denormals; not the flags that every
 * computation sets. */
static uint32_t control_word(void)
{
#if defined __x86_64__
    return __builtin_ia32_stmxcsr() & 0xffc0u;
#elif defined __aarch64__
    uint64_t word;

    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return (uint32_t)word;
#else
    return 0;
#endif
}

void layer_breach(layer_call *call, const char *format, ...)
{
    core__layers *layers = call->layers;
    char text[256], line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(line, sizeof line, "%s: %s%s%s: %s", layers->plugin, call->device,
             *call->device ? "." : "", call->slot, text);
    if (!call->broken)
        snprintf(call->first, sizeof call->first, "%s", text);
    call->broken = true;
    call->told++;
    layer_lock(layers);
    if (layers->breaches++ == 0)
        memcpy(layers->first, line, sizeof line);
    pthread_mutex_unlock(&layers->lock);
    core__log_asked("validate", "%s", line);
}

static bool fails(core__layers *layers, layer_kind kind, uint64_t *out_nth)
{
    bool failing;

    if (kind >= LAYER_KINDS)
        return false;
    layer_lock(layers);
    *out_nth = ++layers->counts[kind];
    failing =
        layers->faults[kind].nth > 0 &&
        (*out_nth == layers->faults[kind].nth ||
         (layers->faults[kind].all && *out_nth > layers->faults[kind].nth));
    pthread_mutex_unlock(&layers->lock);
    return failing;
}

/* What no callback may ask for; releasing may make and record events. */
static bool gives_work(layer_kind kind)
{
    return kind == LAYER_ALLOC || kind == LAYER_COPY || kind == LAYER_FILL ||
           kind == LAYER_PREPARE || kind == LAYER_LAUNCH;
}

core_status layer_enter(layer_call *call, core__layers *layers,
                        const char *device, const char *slot, layer_kind kind)
{
    core_status status = CORE_OK;
    uint64_t nth;

    memset(call, 0, offsetof(layer_call, manners));
    call->layers = layers;
    call->device = device;
    call->slot = slot;
    call->errors = core__thread_self()->error.sequence;
    call->control = control_word();
    if (layer_validates(layers))
        layer_manners_note(&call->manners);
    if (layer_in_callback && layer_validates(layers) && gives_work(kind)) {
        layer_breach(call, "libcore is called in a host callback, which may "
                           "only release");
        return layer_leave(call, CORE_ERROR_INTERNAL, "-");
    }
    if (layers->on & LAYER_FAULT && fails(layers, kind, &nth)) {
        status = core__error(kind_codes[kind],
                             "%s: call %llu of kind \"%s\" fails, "
                             "as LIBCORE_FAULT asks",
                             layers->plugin, (unsigned long long)nth,
                             kind_names[kind]);
        if (layers->on & LAYER_TRACE)
            core__log_asked("trace", "%s %s%s%s fails as LIBCORE_FAULT asks",
                            layers->plugin, device, *device ? "." : "", slot);
    }
    return status;
}

static void trace(const layer_call *call, const char *answer,
                  const char *format, va_list arguments)
{
    char text[384];

    if (!(call->layers->on & LAYER_TRACE))
        return;
    vsnprintf(text, sizeof text, format, arguments);
    core__log_asked("trace", "%s %s %s%s%s(%s)%s%s", call->layers->plugin,
                    call->outwards ? "->" : "<-", call->device,
                    *call->device ? "." : "", call->slot, text,
                    *answer ? " = " : "", answer);
}

/* What every call has to leave as it was, and a failing one to say. */
static void check_answer(layer_call *call, core_status status)
{
    bool vendors = status >= CORE_ERROR_VENDOR_FIRST;

    if (status < CORE_OK || (status > CORE_ERROR_INTERNAL && !vendors))
        layer_breach(call, "answers the status %d, which there is not", status);
    else if (status != CORE_OK && status != CORE_ERROR_BUSY &&
             status != CORE_ERROR_UNSUPPORTED && !call->outwards &&
             !call->broken &&
             core__thread_self()->error.sequence == call->errors) {
        layer_breach(call, "answers %s and does not say why",
                     core_status_name(status));
        call->broken = false; /* the status itself is right */
    }
    if (!call->outwards)
        layer_manners_check(call, control_word() == call->control);
    if (control_word() != call->control)
        layer_breach(call,
                     "changes the floating-point control word from 0x%x "
                     "to 0x%x",
                     call->control, control_word());
}

core_status layer_leave(layer_call *call, core_status status,
                        const char *format, ...)
{
    va_list arguments;

    if (layer_validates(call->layers))
        check_answer(call, status);
    if (call->broken) {
        char text[sizeof call->first];

        memcpy(text, call->first, sizeof text);
        status =
            core__error(CORE_ERROR_INTERNAL, "validate: plugin %s: %s%s%s: %s",
                        call->layers->plugin, call->device,
                        *call->device ? "." : "", call->slot, text);
    }
    va_start(arguments, format);
    trace(call, core_status_name(status), format, arguments);
    va_end(arguments);
    return status;
}

void layer_leave_void(layer_call *call, const char *format, ...)
{
    va_list arguments;

    if (layer_validates(call->layers))
        check_answer(call, CORE_OK);
    va_start(arguments, format);
    trace(call, "", format, arguments);
    va_end(arguments);
}
