/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The dispatcher's rules, each with at least one test.  Tests elsewhere cover:
 *
 * key of a call, exclusion, redispatch
 *     test_dispatch.c: highest_functionality_is_called_first_…,
 *     excluded_keys_override_included_and_tensor_keys
 * precedence within a slot, newest wins, handles
 *     test_dispatch.c: registration_order_never_changes_the_table,
 *     newest_registration_wins_until_it_is_released, overriding_warns_once,
 *     older_handle_may_be_released_before_a_newer_one
 * missing kernels, calls without tensors
 *     test_dispatch.c: missing_kernel_names_…, call_without_tensors_is_reported
 * inference mode
 *     test_autograd_graph.c: inference_tensors_cannot_be_part_of_a_graph,
 *     inference_mode_still_bumps_versions_of_normal_tensors
 * custom operators of a program or a plugin
 *     test_custom_operator.c, test_plugin_operator.c */

#define FIXTURE_NAME "rules"
#include "../../fixtures/fixture.h"
#include "support/registrations.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "autograd/graph/operator_gradient.h"
#include "dispatch/registry.h"
#include "dispatch/table.h"

#include <libcore/function.h>

static core_status call(const char *name, core_value *args, uint32_t nargs,
                        core_tensor **out)
{
    core_value result = {0};
    core_operator *op;
    core_status status;

    OK(core_op_find(name, &op));
    status = core_op_call(op, args, nargs, &result, 1);
    *out = result.u.tensor;
    return status;
}

/* ------------------------------------------------------------ what serves -- */

/* Appends its user pointer's text to the path.  A capital letter redispatches
 * below itself, others end here; the result is a copy of the argument. */
static char path[256];

static core_status note(core_call *c, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const char *word = c->user;
    core_tensor *copy;

    strcat(path, word);
    if (word[0] >= 'A' && word[0] <= 'Z')
        return core_redispatch_below(c, args, nargs, results, nresults);
    if (!nresults)
        return CORE_OK;
    CORE_TRY(core_clone(args[0].u.tensor, -1, &copy));
    results[0] = value_of(copy);
    return CORE_OK;
}

static core_status note_setup(core_function_context *function, void *user,
                              const core_value *args, uint32_t nargs,
                              const core_value *results, uint32_t nresults)
{
    (void)function;
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    strcat(path, user);
    return CORE_OK;
}

static core_status no_gradient(core_node *node, void *context,
                               core_tensor *const *grads, size_t ngrads,
                               core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)grads;
    (void)ngrads;
    (void)gradients;
    (void)ngradients;
    return CORE_OK;
}

static void walk(core_operator *op, core_tensor *tensor, const char *name)
{
    core_value arg = value_of(tensor), result = {0};
    core_status status = core_op_invoke_on(
        op, &arg, 1, op->nresults && op->variant == 0 ? &result : NULL,
        op->variant == 0 ? op->nresults : 0);

    core_value_release(&result);
    strcat(path, status == CORE_OK                ? " "
                 : status == CORE_ERROR_NO_KERNEL ? "missing "
                                                  : "error ");
    strcat(path, name);
    strcat(path, "; ");
}

/* Calls through every path. */
static const char *walks(core_operator *op, core_tensor *plain,
                         core_tensor *with_grad, core_tensor *meta)
{
    const uint64_t above = CORE__KEY_AUTOCAST | CORE__KEY_PROFILER;
    core__thread *self = core__thread_self();
    uint64_t inference;
    bool before;

    path[0] = '\0';
    walk(op, plain, "plain");
    walk(op, meta, "meta");
    self->included |= above;
    walk(op, plain, "above");
    self->included &= ~above;
    inference = core_inference_begin();
    walk(op, plain, "inference");
    core_inference_end(inference);
    if (with_grad) {
        walk(op, with_grad, "grad");
        before = core_grad_mode_set(false);
        walk(op, with_grad, "no grad");
        core_grad_mode_set(before);
    }
    return path;
}

/* ------------------------------------------------------------------ kinds -- */

enum { OTHER = 100, KERNEL, FALLBACK, GRADIENT };

typedef struct kind {
    uint32_t key; /* CORE_KEY_…, or one of the kinds above */
    const char *device;
    const char *word;
    uint32_t same; /* kinds that share one slot, where the newest wins */
} kind;

static core_string string(const char *text)
{
    return (core_string){text, text ? strlen(text) : 0};
}

static void add_kind(core_registry *registry, const char *name,
                     const kind *kind)
{
    void *word = (void *)(uintptr_t)kind->word;
    const core_kernel kernel = {.struct_size = sizeof kernel,
                                .name = string("neg"),
                                .launch = note,
                                .user = word};
    const core_kernel *kernels[] = {&kernel};
    const core_operator_gradient gradient = {.struct_size = sizeof gradient,
                                             .setup = note_setup,
                                             .backward = no_gradient,
                                             .user = word};

    if (kind->key == KERNEL)
        OK(core__registry_add_kernels(registry, string(kind->device), kernels,
                                      1));
    else if (kind->key == FALLBACK)
        OK(core__registry_add_fallback(registry, string(kind->device), note,
                                       word));
    else if (kind->key == GRADIENT)
        OK(core__gradient_add(registry, string(name), &gradient, NULL));
    else
        OK(core__registry_add_function(registry, string(name), kind->key,
                                       string(kind->device), note, word));
}

typedef struct trial {
    const kind *kinds;
    size_t count;
    const char *(*path_of)(const kind *const *order, size_t length);
    uint32_t tried;
} trial;

/* All orders of a choice of registrations lead to the same calls. */
static void try_orders(trial *trial, const size_t *chosen, size_t length)
{
    static const size_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                        {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    char first[sizeof path] = "";

    for (size_t o = 0; o < 6; o++) {
        const kind *order[3];
        const char *got;

        if (length == 2 && orders[o][2] != 2)
            continue;
        for (size_t i = 0; i < length; i++)
            order[i] = &trial->kinds[chosen[orders[o][i]]];
        got = trial->path_of(order, length);
        if (!*first)
            strcpy(first, got);
        ck_assert_msg(strcmp(got, first) == 0,
                      "%s, %s, %s: \"%s\", and \"%s\" in another order",
                      order[0]->word, order[1]->word,
                      length > 2 ? order[2]->word : "", got, first);
        trial->tried++;
    }
}

static void try_all(trial *trial)
{
    const kind *kinds = trial->kinds;

    for (size_t a = 0; a < trial->count; a++)
        for (size_t b = a + 1; b < trial->count; b++) {
            if (kinds[a].same && kinds[a].same == kinds[b].same)
                continue;
            try_orders(trial, (size_t[]){a, b}, 2);
            for (size_t c = b + 1; c < trial->count; c++)
                if (!(kinds[c].same && (kinds[c].same == kinds[a].same ||
                                        kinds[c].same == kinds[b].same)))
                    try_orders(trial, (size_t[]){a, b, c}, 3);
        }
}

/* ------------------------------------------------ an operator of libcore's -- */

static const kind built_in[] = {
    {KERNEL, "rules", "k", 1},
    {CORE_KEY_BACKEND, "rules", "b", 1},
    {FALLBACK, "rules", "f", 0},
    {CORE_KEY_BACKEND, "meta", "m", 0},
    {CORE_KEY_COMPOSITE_EXPLICIT, NULL, "e", 0},
    {CORE_KEY_COMPOSITE_IMPLICIT, NULL, "i", 0},
    {CORE_KEY_AUTOGRAD, NULL, "A", 0},
    {CORE_KEY_AUTOGRAD, "rules", "B", 0},
    {CORE_KEY_INPLACE_OR_VIEW, NULL, "V", 0},
    {CORE_KEY_AUTOCAST, NULL, "C", 0},
    {CORE_KEY_PROFILER, NULL, "P", 0},
};
enum { BUILT_IN = sizeof built_in / sizeof *built_in };

static const char *path_of_built_in(const kind *const *order, size_t length)
{
    core_registry registry = {0};
    core_device *device, *meta;
    core_tensor *plain, *shape;
    core_operator *op;

    OK(core__registry_add_backend(&registry, &fixture_backend));
    OK(core_op_find("neg_", &op));
    for (size_t i = 0; i < length; i++)
        add_kind(&registry, "neg_", order[i]);
    OK(core_device_find("rules", &device));
    OK(core_device_find("meta", &meta));
    OK(core_tensor_from_data((float[]){1}, CORE_F32, (int64_t[]){1}, 1, device,
                             &plain));
    OK(core_zeros((int64_t[]){1}, 1, CORE_F32, meta, &shape));
    walks(op, plain, NULL, shape);
    core_tensor_release(plain);
    core_tensor_release(shape);
    core__registry_undo(&registry);
    return path;
}

START_TEST(order_of_every_pair_and_triple_on_a_built_in_operator)
{
    trial trial = {built_in, BUILT_IN, path_of_built_in, 0};

    path_of_built_in(NULL, 0);
    ck_assert_ptr_nonnull(strstr(path, "missing plain"));
    try_all(&trial);
    /* 55 pairs less 1, 165 triples less 9 */
    ck_assert_uint_eq(trial.tried, 2 * 54 + 6 * 156);
    path_of_built_in(NULL, 0);
    ck_assert_ptr_nonnull(strstr(path, "missing plain"));
}
END_TEST

START_TEST(repeated_registration_does_not_grow_memory)
{
    const kind *kernel[] = {&built_in[0]};
    int64_t live = 0;

    for (int i = 0; i < 8; i++) {
        path_of_built_in(kernel, 1);
        if (i == 3)
            live = core__alloc_live();
    }
    ck_assert_int_eq(core__alloc_live(), live);
}
END_TEST

/* -------------------------------------------------- custom operators -- */

static const kind own[] = {
    {CORE_KEY_BACKEND, "cpu", "k", 0},
    {CORE_KEY_BACKEND, "meta", "m", 0},
    {CORE_KEY_COMPOSITE_EXPLICIT, NULL, "e", 0},
    {CORE_KEY_COMPOSITE_IMPLICIT, NULL, "i", 0},
    {GRADIENT, NULL, "g", 1},
    {CORE_KEY_AUTOGRAD, NULL, "A", 1},
    {CORE_KEY_AUTOGRAD, "cpu", "B", 0},
    {CORE_KEY_INPLACE_OR_VIEW, NULL, "V", 0},
    {CORE_KEY_AUTOCAST, NULL, "C", 0},
    {CORE_KEY_PROFILER, NULL, "P", 0},
};
enum { OWN = sizeof own / sizeof *own };

static const char *path_of_own(const kind *const *order, size_t length)
{
    core_registry registry = {0};
    core_device *meta;
    core_tensor *plain, *with_grad, *shape;
    core_operator *op;

    OK(core__registry_add_operator(&registry,
                                   string("rules::f(Tensor a) -> Tensor")));
    OK(core_op_find("rules::f", &op));
    for (size_t i = 0; i < length; i++)
        add_kind(&registry, "rules::f", order[i]);
    OK(core_device_find("meta", &meta));
    OK(core_zeros((int64_t[]){1}, 1, CORE_F32, cpu, &plain));
    OK(core_zeros((int64_t[]){1}, 1, CORE_F32, cpu, &with_grad));
    OK(core_zeros((int64_t[]){1}, 1, CORE_F32, meta, &shape));
    leaf(with_grad);
    walks(op, plain, with_grad, shape);
    core_tensor_release(plain);
    core_tensor_release(with_grad);
    core_tensor_release(shape);
    core__registry_undo(&registry);
    return path;
}

START_TEST(order_of_every_pair_and_triple_on_a_custom_operator)
{
    trial trial = {own, OWN, path_of_own, 0};

    try_all(&trial);
    /* 45 pairs less 1, 120 triples less 8 */
    ck_assert_uint_eq(trial.tried, 2 * 44 + 6 * 112);
}
END_TEST

/* The schema is the one registration that must come first: others that name an
 * unknown operator are refused, and leave nothing behind. */
START_TEST(registration_before_the_schema_is_refused)
{
    core_registry registry = {0};
    core_tensor *y;
    core_value arg = value_of(VECTOR(1, 1));

    for (size_t i = 0; i < OWN; i++) {
        if (own[i].key == GRADIENT)
            continue;
        FAILS(core__registry_add_function(&registry, string("rules::f"),
                                          own[i].key, string(own[i].device),
                                          note, (void *)(uintptr_t)own[i].word),
              CORE_ERROR_NOT_FOUND, "rules::f");
    }
    OK(core_op_register("rules::f(Tensor a) -> Tensor", &handles[nhandles++]));
    FAILS(call("rules::f", &arg, 1, &y), CORE_ERROR_NO_KERNEL, "rules::f");
}
END_TEST

/* -------------------------------------------------------------- precedence -- */

static const char *built_in_with(const char *words)
{
    const kind *order[8];
    size_t count = 0;

    for (; *words; words++)
        for (size_t i = 0; i < BUILT_IN; i++)
            if (built_in[i].word[0] == *words)
                order[count++] = &built_in[i];
    return path_of_built_in(order, count);
}

START_TEST(slot_precedence_is_kernel_explicit_implicit_fallback_missing)
{
    ck_assert_ptr_nonnull(strstr(built_in_with(""), "missing plain"));
    ck_assert_ptr_nonnull(strstr(built_in_with("f"), "f plain"));
    ck_assert_ptr_nonnull(strstr(built_in_with("ff"), "f plain"));
    ck_assert_ptr_nonnull(strstr(built_in_with("fi"), "i plain"));
    ck_assert_ptr_nonnull(strstr(built_in_with("fie"), "e plain"));
    ck_assert_ptr_nonnull(strstr(built_in_with("fiek"), "k plain"));
    ck_assert_ptr_nonnull(strstr(built_in_with("fiekb"), "b plain"));
    ck_assert_ptr_nonnull(strstr(built_in_with("fiebk"), "k plain"));
}
END_TEST

START_TEST(backend_kernel_refreshes_its_autograd_slot)
{
    core_tensor *x = leaf(VECTOR(1, 1)), *y;
    core_value arg = value_of(x);

    OK(core_op_register("rules::f(Tensor a) -> Tensor", &handles[nhandles++]));
    OK(core_function_register("rules::f", CORE_KEY_COMPOSITE_IMPLICIT, NULL,
                              note, "i", &handles[nhandles++]));
    path[0] = '\0';
    OK(call("rules::f", &arg, 1, &y));
    /* The decomposition is in the autograd slot: the operators it calls are
     * recorded. */
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(keep(y))),
                     "clone backward");
    OK(core_function_register("rules::f", CORE_KEY_BACKEND, "cpu", note, "k",
                              &handles[nhandles++]));
    OK(call("rules::f", &arg, 1, &y));
    ck_assert_str_eq(path, "ik");
    ck_assert_str_ne(core_node_name(core_tensor_grad_fn(keep(y))),
                     "clone backward");
    core_registration_release(handles[--nhandles]);
    OK(call("rules::f", &arg, 1, &y));
    ck_assert_str_eq(path, "iki");
    keep(y);
}
END_TEST

START_TEST(handle_that_outlives_its_operator_has_no_effect)
{
    core_registration *operator_handle, *late;

    OK(core_op_register("rules::f(Tensor a) -> Tensor", &operator_handle));
    OK(core_function_register("rules::f", CORE_KEY_BACKEND, "cpu", note, "k",
                              &late));
    core_registration_release(operator_handle);
    core_registration_release(late);
    core_registration_release(NULL);
}
END_TEST

START_TEST(registrations_of_a_backend_do_not_serve_the_next_one)
{
    core_registry first = {0}, second = {0};
    core_registration *stays;
    core_device *device;
    core_tensor *plain;
    core_value arg;
    core_operator *op;

    OK(core_op_find("neg_", &op));
    OK(core__registry_add_backend(&first, &fixture_backend));
    OK(core_function_register("neg_", CORE_KEY_BACKEND, "rules", note, "k",
                              &stays));
    core__registry_undo(&first);
    OK(core__registry_add_backend(&second, &fixture_backend));
    OK(core_device_find("rules", &device));
    OK(core_tensor_from_data((float[]){1}, CORE_F32, (int64_t[]){1}, 1, device,
                             &plain));
    arg = value_of(plain);
    path[0] = '\0';
    FAILS(core_op_invoke_on(op, &arg, 1, NULL, 0), CORE_ERROR_NO_KERNEL, "neg_",
          "rules");
    ck_assert_str_eq(path, "");
    core_tensor_release(plain);
    core_registration_release(stays);
    core__registry_undo(&second);
}
END_TEST

/* ----------------------------------------------------------------- the key -- */

START_TEST(redispatch_uses_only_the_given_key_set)
{
    core__keys_guard guard = core__keys_save();
    core_value arg = value_of(VECTOR(1, 1)), result = {0};
    core_operator *op;

    OK(core_op_register("rules::f(Tensor a) -> Tensor", &handles[nhandles++]));
    OK(core_op_find("rules::f", &op));
    OK(core_function_register("rules::f", CORE_KEY_BACKEND, "cpu", note, "k",
                              &handles[nhandles++]));
    OK(core_function_register("rules::f", CORE_KEY_AUTOCAST, NULL, note, "C",
                              &handles[nhandles++]));
    OK(core_function_register("rules::f", CORE_KEY_PROFILER, NULL, note, "P",
                              &handles[nhandles++]));
    /* The thread excludes keys of the set, and includes keys that are not in
     * it. */
    core__thread_self()->excluded |= CORE__KEY_AUTOCAST;
    core__thread_self()->included |= CORE__KEY_PROFILER;
    path[0] = '\0';
    OK(core__redispatch(op,
                        CORE__KEY_SLOT(CORE__SLOT_HOST) | CORE__KEY_BACKEND |
                            CORE__KEY_AUTOCAST,
                        &arg, 1, &result, 1));
    core__keys_restore(guard);
    core_value_release(&result);
    ck_assert_str_eq(path, "Ck");
}
END_TEST

START_TEST(highest_backend_runs_the_call)
{
    core_value args[2], result = {0};
    core_device *meta;
    core_tensor *shape;
    core_operator *op;

    OK(core_device_find("meta", &meta));
    OK(core_zeros((int64_t[]){1}, 1, CORE_F32, meta, &shape));
    args[0] = value_of(keep(shape));
    args[1] = value_of(VECTOR(1, 1));
    OK(core_op_register("rules::g(Tensor a, Tensor b) -> ()",
                        &handles[nhandles++]));
    OK(core_op_find("rules::g", &op));
    OK(core_function_register("rules::g", CORE_KEY_BACKEND, "meta", note, "m",
                              &handles[nhandles++]));
    OK(core_function_register("rules::g", CORE_KEY_BACKEND, "cpu", note, "c",
                              &handles[nhandles++]));
    path[0] = '\0';
    OK(core_op_invoke_on(op, args, 2, &result, 0));
    ck_assert_str_eq(path, "c");
}
END_TEST

/* ------------------------------------------------------------------- modes -- */

static core_operator *with_layers(void)
{
    core_operator *op;

    OK(core_op_register("rules::h(Tensor a) -> ()", &handles[nhandles++]));
    OK(core_function_register("rules::h", CORE_KEY_BACKEND, "cpu", note, "k",
                              &handles[nhandles++]));
    OK(core_function_register("rules::h", CORE_KEY_AUTOGRAD, NULL, note, "A",
                              &handles[nhandles++]));
    OK(core_function_register("rules::h", CORE_KEY_INPLACE_OR_VIEW, NULL, note,
                              "V", &handles[nhandles++]));
    OK(core_op_find("rules::h", &op));
    return op;
}

START_TEST(autograd_layer_records_nothing_without_grad_mode)
{
    core_operator *op = with_layers();
    core_tensor *x = leaf(VECTOR(1, 1));
    core_value arg = value_of(x);
    bool before = core_grad_mode_set(false);

    path[0] = '\0';
    OK(core_op_invoke_on(op, &arg, 1, NULL, 0));
    ck_assert_str_eq(path, "AVk");
    ck_assert(!core_tensor_requires_grad(mul(x, x)));
    core_grad_mode_set(before);
}
END_TEST

START_TEST(inference_mode_excludes_autograd_but_not_inplace_or_view)
{
    core_operator *op = with_layers();
    core_tensor *x = VECTOR(2, 1, 2), *view, *fresh;
    core_value arg = value_of(x);
    uint64_t before = core_inference_begin();
    uint32_t version = core_tensor_version(x);

    path[0] = '\0';
    OK(core_op_invoke_on(op, &arg, 1, NULL, 0));
    ck_assert_str_eq(path, "Vk");
    OK(core_mul_scalar_(x, core_float(2)));
    ck_assert_uint_eq(core_tensor_version(x), version + 1);
    view = CALL(select, x, 0, 0);
    fresh = mul(x, x);
    core_inference_end(before);
    /* A view of a normal tensor is a normal tensor: it may be changed. */
    OK(core_mul_scalar_(view, core_float(2)));
    FAILS(core_mul_scalar_(fresh, core_float(2)), CORE_ERROR_AUTOGRAD,
          "inference");
    ck_assert_uint_eq(core_tensor_version(x), version + 2);
}
END_TEST

/* ---------------------------------------------------------- decomposition -- */

/* Calls the operator that its user pointer names. */
static core_status lead_to(core_call *c, const core_value *args, uint32_t nargs,
                           core_value *results, uint32_t nresults)
{
    core_operator *op;
    core_status status = core_op_find(c->user, &op);

    return status == CORE_OK
               ? core_op_invoke_on(op, args, nargs, results, nresults)
               : status;
}

static void decompose(const char *name, uint32_t key, const char *into)
{
    OK(core_function_register(name, key, NULL, lead_to, (void *)(uintptr_t)into,
                              &handles[nhandles++]));
}

static void circle_of(uint32_t key)
{
    core_value arg = value_of(leaf(VECTOR(1, 4)));
    core_tensor *y;

    OK(core_op_register("mine::a(Tensor t) -> Tensor", &handles[nhandles++]));
    OK(core_op_register("mine::b(Tensor t) -> Tensor", &handles[nhandles++]));
    decompose("mine::a", key, "mine::b");
    decompose("mine::b", key, "mine::a");
    FAILS(call("mine::a", &arg, 1, &y), CORE_ERROR_REFUSED, "mine::a",
          "mine::b", "cycle");
    ck_assert_ptr_null(y);
    ck_assert_ptr_null(core__thread_self()->decomposing);
    /* A chain that ends is not a cycle. */
    decompose("mine::b", key, "sqrt");
    OK(call("mine::a", &arg, 1, &y));
    HOLDS(keep(y), 1, 2);
}

START_TEST(cyclic_decompositions_are_an_error)
{
    circle_of(CORE_KEY_COMPOSITE_IMPLICIT);
}
END_TEST

START_TEST(cyclic_explicit_composites_are_an_error)
{
    circle_of(CORE_KEY_COMPOSITE_EXPLICIT);
}
END_TEST

START_TEST(decomposition_is_differentiated_through_its_operators)
{
    core_tensor *x = leaf(VECTOR(1, 4)), *y;
    core_value arg = value_of(x);

    OK(core_op_register("mine::a(Tensor t) -> Tensor", &handles[nhandles++]));
    decompose("mine::a", CORE_KEY_COMPOSITE_IMPLICIT, "sqrt");
    OK(call("mine::a", &arg, 1, &y));
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(keep(y))),
                     "sqrt backward");
    backward(y);
    HOLDS(core_tensor_grad(x), 1, 0.25);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        order_of_every_pair_and_triple_on_a_built_in_operator,
        repeated_registration_does_not_grow_memory,
        order_of_every_pair_and_triple_on_a_custom_operator,
        registration_before_the_schema_is_refused,
        slot_precedence_is_kernel_explicit_implicit_fallback_missing,
        backend_kernel_refreshes_its_autograd_slot,
        handle_that_outlives_its_operator_has_no_effect,
        registrations_of_a_backend_do_not_serve_the_next_one,
        redispatch_uses_only_the_given_key_set,
        highest_backend_runs_the_call,
        autograd_layer_records_nothing_without_grad_mode,
        inference_mode_excludes_autograd_but_not_inplace_or_view,
        cyclic_decompositions_are_an_error,
        cyclic_explicit_composites_are_an_error,
        decomposition_is_differentiated_through_its_operators,
    };
    const test_suite suite = {
        .name = "dispatch/rules_dispatcher",
        .setup = open_cpu,
        .teardown = undo_all,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
