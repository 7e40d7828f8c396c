/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The interposers: their settings, and the work before and after each call. */

#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "interpose/interposer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[INTERPOSER_KINDS] = {
    "open",        "alloc",   "copy",   "fill",     "stream",    "event",
    "synchronize", "prepare", "launch", "function", "interface", "host",
};

/* The error of an injected failure. */
static const core_status kind_codes[INTERPOSER_KINDS] = {
    [INTERPOSER_OPEN] = CORE_ERROR_NO_DEVICE,
    [INTERPOSER_ALLOC] = CORE_ERROR_OUT_OF_MEMORY,
    [INTERPOSER_COPY] = CORE_ERROR_INTERNAL,
    [INTERPOSER_FILL] = CORE_ERROR_INTERNAL,
    [INTERPOSER_STREAM] = CORE_ERROR_OUT_OF_MEMORY,
    [INTERPOSER_EVENT] = CORE_ERROR_OUT_OF_MEMORY,
    [INTERPOSER_SYNCHRONIZE] = CORE_ERROR_STREAM,
    [INTERPOSER_PREPARE] = CORE_ERROR_OUT_OF_MEMORY,
    [INTERPOSER_LAUNCH] = CORE_ERROR_INTERNAL,
    [INTERPOSER_FUNCTION] = CORE_ERROR_INTERNAL,
    [INTERPOSER_INTERFACE] = CORE_ERROR_INTERNAL,
    [INTERPOSER_HOST] = CORE_ERROR_OUT_OF_MEMORY,
};

/* ------------------------------------------------------------ settings -- */

static bool next_item(const char **list, const char **item, size_t *size)
{
    *list += strspn(*list, ", ");
    *item = *list;
    *size = strcspn(*list, ", ");
    *list += *size;
    return *size > 0;
}

static core_status read_interposers(const char *list, uint32_t *out_on)
{
    static const char *const names[] = {"validate", "trace", "fault"};
    const char *item;
    size_t size;

    *out_on = 0;
    while (list && next_item(&list, &item, &size)) {
        uint32_t found = 0;

        for (uint32_t i = 0; i < 3; i++)
            if (strlen(names[i]) == size && memcmp(names[i], item, size) == 0)
                found = 1u << i;
        if (!found)
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "LIBCORE_INTERPOSERS contains \"%.*s\"; accepted: "
                "validate, trace and fault",
                (int)(size < 40 ? size : 40), item);
        *out_on |= found;
    }
    return CORE_OK;
}

/* "alloc:3" or "alloc:3+". */
static bool read_fault(core__interposers *interposers, const char *item,
                       size_t size)
{
    const char *colon = memchr(item, ':', size), *at;
    uint64_t nth = 0;
    uint32_t kind = 0;

    if (!colon)
        return false;
    while (kind < INTERPOSER_KINDS &&
           (strlen(kind_names[kind]) != (size_t)(colon - item) ||
            memcmp(kind_names[kind], item, (size_t)(colon - item)) != 0))
        kind++;
    for (at = colon + 1; at < item + size && *at >= '0' && *at <= '9'; at++)
        if (nth < 1000000000)
            nth = nth * 10 + (uint64_t)(*at - '0');
    if (kind == INTERPOSER_KINDS || nth == 0)
        return false;
    interposers->faults[kind].nth = nth;
    interposers->faults[kind].all = at < item + size && *at == '+';
    return at + interposers->faults[kind].all == item + size;
}

static core_status read_faults(core__interposers *interposers, const char *list)
{
    const char *item;
    size_t size;

    while (list && next_item(&list, &item, &size))
        if (!read_fault(interposers, item, size))
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "LIBCORE_FAULT contains \"%.*s\"; accepted: KIND:N or KIND:N+ "
                "with a KIND among open, alloc, copy, fill, stream, event, "
                "synchronize, prepare, launch, function, interface and host",
                (int)(size < 40 ? size : 40), item);
    return CORE_OK;
}

core_status core__interposers_check(const char *text)
{
    uint32_t on;

    return read_interposers(text, &on);
}

core_status core__faults_check(const char *text)
{
    core__interposers none;

    return read_faults(&none, text);
}

/* Warns, once, of faults that nothing raises. */
static void check_unused_faults(uint32_t on)
{
    static _Atomic bool warned;
    const char *faults;

    if (on & INTERPOSER_FAULT || !core__log_is_enabled(CORE_LOG_WARNING) ||
        core__setting_text(CORE__SETTING_FAULT, &faults) != CORE_OK ||
        !faults || !*faults || atomic_exchange(&warned, true))
        return;
    core__log(
        CORE_LOG_WARNING, "settings",
        "LIBCORE_FAULT is set and has no effect, because LIBCORE_INTERPOSERS "
        "does not contain fault");
}

core_status core__interposers_begin(const char *plugin,
                                    core__interposers **out_interposers)
{
    core__interposers *interposers;
    const char *names, *faults = NULL;
    core_status status;
    uint32_t on;

    *out_interposers = NULL;
    CORE_TRY(core__setting_text(CORE__SETTING_INTERPOSERS, &names));
    CORE_TRY(read_interposers(names, &on));
    check_unused_faults(on);
    if (on == 0)
        return CORE_OK;
    interposers = core__alloc_zero(sizeof *interposers);
    if (!interposers)
        return core__error_memory(sizeof *interposers);
    interposers->on = on;
    snprintf(interposers->plugin, sizeof interposers->plugin, "%s", plugin);
    status = core__setting_text(CORE__SETTING_FAULT, &faults);
    if (status == CORE_OK && on & INTERPOSER_FAULT)
        status = read_faults(interposers, faults);
    if (status != CORE_OK) {
        core__free(interposers);
        return status;
    }
    pthread_mutex_init(&interposers->lock, NULL);
    atomic_init(&interposers->lock_mark, core__fork_mark);
    *out_interposers = interposers;
    return CORE_OK;
}

#define FREE_LIST(type, list)       \
    while (list) {                  \
        type *next_ = (list)->next; \
        core__free(list);           \
        list = next_;               \
    }

/* Running calls may still use a kernel's wrapper: it is freed when none
 * does. */
void core__interposers_end(core__interposers *interposers)
{
    if (!interposers)
        return;
    interposer_objects_free(interposers);
    interposer_callbacks_free(interposers);
    for (interposer_kernel *k = interposers->kernels, *next; k; k = next) {
        next = k->next;
        core__reclaim(&k->retired, k);
    }
    for (interposer_function *f = interposers->functions, *next; f; f = next) {
        next = f->next;
        core__reclaim(&f->retired, f);
    }
    for (interposer_shape *s = interposers->shapes, *next; s; s = next) {
        next = s->next;
        core__reclaim(&s->retired, s);
    }
    FREE_LIST(interposer_device, interposers->devices)
    for (interposer_backend *b = interposers->backends, *next; b; b = next) {
        next = b->next;
        core__reclaim(&b->retired, b);
    }
    interposers->ended = true;
    interposers->backends = NULL;
    interposers->kernels = NULL;
    interposers->functions = NULL;
    interposers->shapes = NULL;
    if (!interposers->lasting)
        core__reclaim(&interposers->retired, interposers);
}

uint64_t core__interposers_violations(core__interposers *interposers,
                                      const char **out_first)
{
    uint64_t count;

    *out_first = "";
    if (!interposers)
        return 0;
    interposer_lock(interposers);
    count = interposers->violations;
    *out_first = interposers->first;
    pthread_mutex_unlock(&interposers->lock);
    return count;
}

/* --------------------------------------------------------------- calls -- */

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

void interposer_violation(interposer_call *call, const char *format, ...)
{
    core__interposers *interposers = call->interposers;
    char text[256], line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(line, sizeof line, "%s: %s%s%s: %s", interposers->plugin,
             call->device, *call->device ? "." : "", call->slot, text);
    if (!call->violated)
        snprintf(call->first, sizeof call->first, "%s", text);
    call->violated = true;
    call->violations++;
    interposer_lock(interposers);
    if (interposers->violations++ == 0)
        memcpy(interposers->first, line, sizeof line);
    pthread_mutex_unlock(&interposers->lock);
    core__log_always(CORE_LOG_INFO, "validate", "%s", line);
}

static bool fails(core__interposers *interposers, interposer_kind kind,
                  uint64_t *out_nth)
{
    bool failing;

    if (kind >= INTERPOSER_KINDS)
        return false;
    interposer_lock(interposers);
    *out_nth = ++interposers->counts[kind];
    failing = interposers->faults[kind].nth > 0 &&
              (*out_nth == interposers->faults[kind].nth ||
               (interposers->faults[kind].all &&
                *out_nth > interposers->faults[kind].nth));
    pthread_mutex_unlock(&interposers->lock);
    return failing;
}

/* Calls that a host callback must not make; releasing may create and record
 * events. */
static bool submits_work(interposer_kind kind)
{
    return kind == INTERPOSER_ALLOC || kind == INTERPOSER_COPY ||
           kind == INTERPOSER_FILL || kind == INTERPOSER_PREPARE ||
           kind == INTERPOSER_LAUNCH;
}

core_status interposer_enter(interposer_call *call,
                             core__interposers *interposers, const char *device,
                             const char *slot, interposer_kind kind)
{
    core_status status = CORE_OK;
    uint64_t nth;

    memset(call, 0, offsetof(interposer_call, process_state));
    call->interposers = interposers;
    call->device = device;
    call->slot = slot;
    call->errors = core__thread_self()->error.sequence;
    call->control = control_word();
    if (interposer_validates(interposers))
        interposer_process_state_save(&call->process_state);
    if (interposer_in_callback && interposer_validates(interposers) &&
        submits_work(kind)) {
        interposer_violation(
            call, "libcore submits work in a host callback, which may "
                  "only release objects");
        return interposer_leave(call, CORE_ERROR_INTERNAL, "-");
    }
    if (interposers->on & INTERPOSER_FAULT && fails(interposers, kind, &nth)) {
        status = core__error(
            kind_codes[kind],
            "%s: call %llu of kind \"%s\" fails because of LIBCORE_FAULT",
            interposers->plugin, (unsigned long long)nth, kind_names[kind]);
        if (interposers->on & INTERPOSER_TRACE)
            core__log_always(CORE_LOG_INFO, "trace",
                             "%s %s%s%s fails because of LIBCORE_FAULT",
                             interposers->plugin, device, *device ? "." : "",
                             slot);
    }
    return status;
}

static void trace(const interposer_call *call, const char *result,
                  const char *format, va_list arguments)
{
    char text[384];

    if (!(call->interposers->on & INTERPOSER_TRACE))
        return;
    vsnprintf(text, sizeof text, format, arguments);
    core__log_always(CORE_LOG_INFO, "trace", "%s %s %s%s%s(%s)%s%s",
                     call->interposers->plugin, call->to_host ? "->" : "<-",
                     call->device, *call->device ? "." : "", call->slot, text,
                     *result ? " = " : "", result);
}

/* Checks the state that every call must preserve, and that a failing call
 * reports an error. */
static void check_result(interposer_call *call, core_status status)
{
    bool vendors = status >= CORE_ERROR_VENDOR_FIRST;

    if (status < CORE_OK || (status > CORE_ERROR_INTERNAL && !vendors))
        interposer_violation(call, "returns the unknown status %d", status);
    else if (status != CORE_OK && status != CORE_ERROR_BUSY &&
             status != CORE_ERROR_UNSUPPORTED && !call->to_host &&
             !call->violated &&
             core__thread_self()->error.sequence == call->errors) {
        interposer_violation(call, "returns %s and reports no error",
                             core_status_name(status));
        call->violated = false; /* the status itself is passed on */
    }
    if (!call->to_host)
        interposer_process_state_check(call, control_word() == call->control);
    if (control_word() != call->control)
        interposer_violation(
            call,
            "changes the floating-point control word from 0x%x "
            "to 0x%x",
            call->control, control_word());
}

core_status interposer_leave(interposer_call *call, core_status status,
                             const char *format, ...)
{
    va_list arguments;

    if (interposer_validates(call->interposers))
        check_result(call, status);
    if (call->violated) {
        char text[sizeof call->first];

        memcpy(text, call->first, sizeof text);
        status =
            core__error(CORE_ERROR_INTERNAL, "validate: plugin %s: %s%s%s: %s",
                        call->interposers->plugin, call->device,
                        *call->device ? "." : "", call->slot, text);
    }
    va_start(arguments, format);
    trace(call, core_status_name(status), format, arguments);
    va_end(arguments);
    return status;
}

void interposer_leave_void(interposer_call *call, const char *format, ...)
{
    va_list arguments;

    if (interposer_validates(call->interposers))
        check_result(call, CORE_OK);
    va_start(arguments, format);
    trace(call, "", format, arguments);
    va_end(arguments);
}
